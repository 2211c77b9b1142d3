"""What the runtime knows of ops: signatures, ATen overloads, and who supplies kernels.

The workbench, or a shipped library's table, fills it; the runtime names neither.  On the first use of a name that
nobody registered, `ensure()` runs the bootstrap: the callable given to `set_bootstrap`, else every entry point of the
group `opwright.bootstrap`.

May import: `.load`, `.exceptions`, the standard library.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .exceptions import MissingKernelError, OpError, OpValueError
from .load import core

Request = dict[str, Any]
Answer = Mapping[str, Any]
#: Answers one request; may also have `resolve_many(requests) -> answers`, asked when a program is loaded.
MissHook = Callable[[Request], Answer]

ENTRY_POINTS = "opwright.bootstrap"

_aten: dict[str, list[Mapping[str, Any]]] = {}
#: Operators that are declared and must not serve yet, and overloads that they would answer: for the error alone.
_waiting: dict[str, tuple[str, str]] = {}
_lock = threading.RLock()


class _State:
    """bootstrap, hook: what was installed.  rules: what the hook said of gradients.  ready: the bootstrap has run.
    running: it runs."""

    bootstrap: Callable[[], object] | None = None
    hook: MissHook | None = None
    rules: ClassVar[dict[str, Mapping[str, Any]]] = {}
    ready = False
    running = False


# ---- what is known -----------------------------------------------------------------------------------------


def register_op(signature: Mapping[str, Any]) -> Any:
    """Make `ow.ops.<name>` known; returns the op.

    signature: `{"name", "doc", "inputs": [{"name", "optional", "list"}], "attrs": [{"name", "kind", "static",
    "optional", "default"}], "outputs": [{"name", "aux"}]}`.  An attribute without the key `default` must be given,
    unless it is optional.  Registering a name again replaces its signature and forgets its kernels.
    """
    return core.register_op(dict(signature))


def register_aten(overload: str, entry: Mapping[str, Any]) -> None:
    """Make an ATen overload known: `{"op", "map": [[argument, target], …], "returns", "set"}` (docs/internals.md).

    Entries of one overload are tried in the order of registration; the same entry twice is one entry.
    """
    for key in ("op", "map"):
        if key not in entry:
            raise OpValueError(f"register_aten: the entry of {overload} lacks `{key}`")
    rows = _aten.setdefault(overload, [])
    if entry not in rows:
        rows.append(dict(entry))


def register_waiting(name: str, overloads: Iterable[str], hint: str) -> None:
    """Tell of an operator that is declared but does not serve yet; whoever asks for it is told so, and `hint`."""
    for asked in (name, *overloads):
        _waiting[asked] = name, hint


def _why_none(asked: str, otherwise: str, hint: str) -> MissingKernelError:
    if asked in _waiting:
        name, what_to_do = _waiting[asked]
        return MissingKernelError(
            f"the op `{name}` is declared, and does not serve: its evidence is missing or stale",
            hint=what_to_do,
        )
    return MissingKernelError(otherwise, hint=hint)


def get(name: str) -> Any:
    """The op of this name, bootstrapping if needed.  Raises MissingKernelError."""
    op = core.lookup_op(name)
    if op is None:
        ensure()
        op = core.lookup_op(name)
    if op is None:
        known = {*core.op_names(), *waiting()}
        spaces = {n.partition("::")[0] for n in known if "::" in n}
        raise _why_none(name, f"there is no op `{name}`", _nearest(name, sorted(known | spaces), "ow.ops"))
    return op


def waiting() -> list[str]:
    """Names of the operators that are declared and do not serve, sorted."""
    ensure()
    return sorted({name for name, _ in _waiting.values()})


def names() -> list[str]:
    """Names of all ops, sorted."""
    ensure()
    found: list[str] = core.op_names()
    return found


def aten_rows(overload: str, others: Iterable[str] = ()) -> Sequence[Mapping[str, Any]]:
    """The entries of an overload.  Raises MissingKernelError when there is none, which names near ones of the table
    and of `others`: what is answered without a row."""
    if overload not in _aten:
        ensure()
    if overload not in _aten:
        near = _near_overloads(overload, {*_aten, *others})
        raise _why_none(overload, f"no op claims {overload}", near)
    return _aten[overload]


def claims(overload: str) -> bool:
    """Whether some op claims this overload."""
    ensure()
    return overload in _aten


def aten_overloads() -> list[str]:
    """All overloads that some op claims, sorted."""
    ensure()
    return sorted(_aten)


def _near_overloads(asked: str, known: Iterable[str]) -> str:
    """By the packet's name first: `softmax` and `aten.softmax` mean an overload of it, `aten.add.Tensr` another one."""
    known = sorted(known)
    packet = asked.removeprefix("aten.").partition(".")[0]
    packets = {o.split(".")[1]: None for o in known if o.startswith("aten.")}
    own = [packet] if packet in packets else difflib.get_close_matches(packet, packets, n=2)
    found = [o for o in known if o.split(".")[1:2] and o.split(".")[1] in own]
    found = difflib.get_close_matches(asked, found, n=3, cutoff=0.0)
    near = f"did you mean {' or '.join(f'`{c}`' for c in found)}?" if found else NO_OVERLOAD
    return near if asked.count(".") == 2 else f"an overload's name is `aten.NAME.overload`: {near}"


NO_OVERLOAD = "ow.registry.aten_overloads() lists those of the table"


def _nearest(name: str, known: Iterable[str], where: str) -> str:
    close = difflib.get_close_matches(name, list(known), n=3)
    return (
        f"did you mean {' or '.join(f'`{c}`' for c in close)}?"
        if close
        else f"dir({where}) lists what there is"
    )


# ---- who supplies kernels ----------------------------------------------------------------------------------


def set_miss_hook(hook: MissHook | None) -> None:
    """`hook(request) -> answer` supplies kernels that are not loaded yet (docs/internals.md, "The call path").

    A hook with an attribute `resolve_many(requests) -> answers` is asked for all kernels of a program at once.
    """
    _State.hook = hook
    _State.rules = {}


def gradient_rule(request: Request) -> Mapping[str, Any]:
    """How the gradient of the op that answers this request is called, from the hook's `gradient_rule`.

    `{"signature": …, "inputs": [["in" | "out" | "cotangent", name] | [… of a list], …], "outputs": [flat input, …],
    "attrs": [name, …]}`; its signature is registered here.  Raises MissingKernelError where nobody can tell.
    """
    ensure()
    key = repr(request)
    if key in _State.rules:
        return _State.rules[key]
    rule = getattr(_State.hook, "gradient_rule", None)
    if rule is None:
        raise MissingKernelError(
            f"nothing here makes gradients, and `{request['op']}` is asked for its own",
            hint="install the workbench: gradients are made from specs",
        )
    found: Mapping[str, Any] = rule(request)
    core.register_op(dict(found["signature"]))  # once: registering again would forget its kernels
    _State.rules[key] = found
    return found


def miss_hook() -> MissHook | None:
    """The hook that is installed."""
    return _State.hook


def _resolve(requests: list[Request]) -> list[Answer]:
    """What the dispatcher calls on a miss."""
    if _State.hook is None:
        ensure()
    if _State.hook is None:
        raise MissingKernelError(_no_kernel(requests[0]), hint="install a kernel table or the workbench")
    many = getattr(_State.hook, "resolve_many", None)
    if many is not None and len(requests) > 1:
        answers = list(many(requests))
    else:
        answers = [_State.hook(request) for request in requests]
    for answer in answers:
        _check_loadable(answer)
    return answers


def _check_loadable(answer: Answer) -> None:
    """Refuse a cached library whose instructions this machine lacks, before it ends in SIGILL."""
    library = Path(answer["library"])
    if library.with_suffix(".json").exists():
        from . import toolchain

        toolchain.require_loadable(library)


def _no_kernel(request: Request) -> str:
    def one(item: Any) -> str:
        if item is None:
            return "None"
        if isinstance(item, list):
            return "[" + ", ".join(map(one, item)) + "]"
        return f"{item['dtype']} scalar" if item["weak"] else f"{item['dtype']} of rank {item['rank']}"

    return f"no kernel of `{request['op']}` for ({', '.join(map(one, request['inputs']))}) is installed"


# ---- bootstrap ---------------------------------------------------------------------------------------------


def set_bootstrap(loader: Callable[[], object] | None) -> None:
    """`loader()` is run once, on the first use of a name that is not registered; it registers what there is."""
    with _lock:
        _State.bootstrap, _State.ready = loader, False


def is_ready() -> bool:
    """Whether the bootstrap has run."""
    return _State.ready


def ensure() -> None:
    """Run the bootstrap if it has not run.  When it raises, the next use tries again."""
    if _State.ready:
        return
    with _lock:
        if _State.ready or _State.running:  # running: the loader itself asks for a name
            return
        _State.running = True
        try:
            for loader in [_State.bootstrap] if _State.bootstrap is not None else _entry_points():
                loader()
            _State.ready = True
        finally:
            _State.running = False


def _entry_points() -> list[Callable[[], object]]:
    from importlib.metadata import entry_points

    found = {
        point.value: point for point in entry_points(group=ENTRY_POINTS)
    }  # one of each, however often installed
    loaders: list[Callable[[], object]] = []
    for value, point in sorted(found.items()):
        try:
            loaders.append(point.load())
        except (ImportError, AttributeError) as error:
            raise OpError(f"the bootstrap {value} cannot be loaded: {error}") from error
    return loaders


core.set_miss_hook(_resolve)
core.set_op_lookup(get)
