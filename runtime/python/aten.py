"""`ow.call_aten("aten.add.Tensor", …)`: an ATen overload's arguments, put to the op that claims it.

The rules of a row are in docs/internals.md, "`aten:` entries in a spec"; what no row can say is in fronts.py.
May import: `.registry`, `.exceptions`, `.aliases`, `.complexes`, `.fronting`, `.fronts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from . import registry
from .aliases import ALIASES, APART, EXACT, ORDER, RESULTS
from .complexes import COMPLEXES, has_complex
from .exceptions import MissingKernelError, OpError, OpTypeError, OpValueError
from .fronting import tensor
from .fronts import COMPOSE, PLACEMENT, PREPARE, VIEWS, Call, Front, Refused, front, without_axes


@dataclass(frozen=True)
class Planned:
    """The one op call that answers an overload: arguments by the spec's names, and which outputs are its results."""

    op: str
    arguments: Mapping[str, Any]
    returns: tuple[str, ...]
    finish: Callable[[Any], Any] | None = None

    def run(self) -> Any:
        """A Tensor, or a tuple of them."""
        op = registry.get(self.op)
        outputs = [output["name"] for output in op.signature["outputs"]]
        results = dict(zip(outputs, op.all(**self.arguments), strict=True))
        out = results[self.returns[0]] if len(self.returns) == 1 else tuple(results[n] for n in self.returns)
        return out if self.finish is None else self.finish(out)


def call_aten(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the op that claims `overload` with the overload's own arguments; a Tensor, or a tuple of them.

    overload: its name, `"aten._softmax.default"`, or PyTorch's own object, `torch.ops.aten._softmax.default`.

    Raises MissingKernelError when nothing claims it, and OpTypeError when no row takes these arguments.
    """
    planned = plan_aten(overload, args, kwargs)
    return planned.run() if isinstance(planned, Planned) else planned


def _name_of(overload: Any) -> Any:
    """The name of PyTorch's own object for an overload, or for a packet of them, whose default is meant."""
    kind = type(overload)
    if not kind.__module__.startswith("torch."):
        return overload
    return {"OpOverload": str(overload), "OpOverloadPacket": f"{overload}.default"}.get(
        kind.__name__, overload
    )


def plan_aten(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What `call_aten` would call: a `Planned`, or for a view the result itself.  Raises as `call_aten`."""
    overload = _name_of(overload)
    if not isinstance(overload, str):
        raise OpTypeError(
            f"call_aten: an overload's name is wanted, got {type(overload).__name__}",
            hint='such as "aten.add.Tensor"',
        )
    overload = _renamed(overload)
    _here(overload, kwargs)
    if not _claimed(overload):
        written = _writing(overload, args, kwargs)
        if written is not None:
            return written
    refusals: list[str] = []
    try:
        if overload in COMPLEXES and has_complex(args, kwargs):
            return _called(_front(COMPLEXES, overload, args, kwargs))
        if overload in VIEWS:
            return _front(VIEWS, overload, args, kwargs)
        composed = overload in COMPOSE
        if overload in PREPARE:
            try:
                return _called(_front(PREPARE, overload, args, kwargs))
            except Refused as why:
                if not composed:
                    raise
                refusals.append(str(why))
            return _called(_front(COMPOSE, overload, args, kwargs))
        try:
            return _by_rows(overload, args, kwargs, refusals)
        except (MissingKernelError, Refused):
            if not composed:
                raise
        return _called(_front(COMPOSE, overload, args, kwargs))
    except Refused as why:
        reasons = "; ".join(dict.fromkeys(filter(None, [*refusals, str(why)])))
        raise OpTypeError(f"{overload} is not supplied for these arguments: {reasons}") from None


def _here(overload: str, kwargs: Mapping[str, Any]) -> None:
    """A tensor somewhere else, or laid out in another way, is asked for by name and is not what would be given."""
    for name, given in (("device", "cpu"), ("layout", "torch.strided")):
        wanted = kwargs.get(name)
        if wanted is not None and str(wanted).partition(":")[0] != given:
            raise OpTypeError(f"{overload}: `{name}` must be {given}, got {wanted}")


def _claimed(overload: str) -> bool:
    return overload in VIEWS or overload in PREPARE or overload in COMPOSE or registry.claims(overload)


def _renamed(overload: str) -> str:
    """By the name that our tables know: `aten.arccos.default` is `aten.acos.default`."""
    space, _, rest = overload.partition(".")
    packet, dot, which = rest.partition(".")
    return (
        f"{space}.{ALIASES[packet]}{dot}{which}" if packet in ALIASES and not _claimed(overload) else overload
    )


# ---- in place, and into what is given -----------------------------------------------------------------------------


def _writing(overload: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`aten.add_.Tensor` and `aten.add.out` are the overload that gives a result, whose values are then written over
    `self`, or `out`.  None for every other overload."""
    space, packet, which = (overload.split(".", 2) + ["", ""])[:3]
    given = dict(kwargs)
    into: Any
    if packet.endswith("_") and not packet.endswith("__"):
        into = args[0] if args else given.get("self")
        name = _renamed(f"{space}.{packet[:-1]}.{which}")
        bases = [name] if _claimed(name) else _bases(name.removesuffix(which), which)
    elif (found := _outs(packet, which, given)) is not None:
        base, names = found
        into = [given.pop(n, None) for n in names]
        into = into if len(names) > 1 else into[0]
        packet = _renamed(f"{space}.{packet}.{which}").split(".")[1]
        bases = _bases(f"{space}.{packet}.", base)
    else:
        return None
    bases = [b for b in bases if _claimed(b)]
    if not bases:
        return None
    if into is None or (isinstance(into, list) and None in into):
        raise OpTypeError(f"{overload}: there is nothing to write to")
    _apart(overload, into, args, given)
    trouble: OpError | None = None
    for base in bases:
        try:
            planned = plan_aten(base, args, given)
        except OpError as why:
            trouble = trouble or why
            continue
        if not isinstance(planned, Planned):
            return _written(overload, into, planned)
        return _finished(planned, lambda out: _written(overload, into, out))
    assert trouble is not None
    raise trouble


def _outs(packet: str, which: str, given: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Of an overload that writes into what is given: a part of its base's name, and its results' names in order."""
    if f"{packet}.{which}" in RESULTS:
        return RESULTS[f"{packet}.{which}"]
    if which == "grad_input":
        return "", ("grad_input",)
    if which != "out" and not which.endswith("_out"):
        return None
    base = which.removesuffix("out").removesuffix("_")
    count = next((k for k in range(9) if f"out{k}" not in given), 0)
    names = tuple(f"out{k}" for k in range(count)) or (
        ("grad_input",) if "grad_input" in given and "out" not in given else ("out",)
    )
    return base, names


def _bases(prefix: str, named: str) -> list[str]:
    """The overloads that `out` may be of, likeliest first: PyTorch's `IntList_out` is of `dim_IntList`, its `out` of
    `default` or `Tensor`."""
    own = sorted(o for o in {*VIEWS, *PREPARE, *COMPOSE, *registry.aten_overloads()} if o.startswith(prefix))
    same = [o for o in own if o == prefix + named]
    near = [o for o in own if named and named in o.removeprefix(prefix).split("_")]
    plain = [o for o in own if o in (prefix + "default", prefix + "Tensor")]
    return same or near or (plain if not named else []) or own


def _apart(overload: str, into: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What is written shares no memory with what is read, but for the very same elements where each result is made of
    the one in its place.  Of tensors with gaps nothing is said."""
    strict = overload.split(".")[1].rstrip("_") in APART
    own = 0 if overload.split(".")[1].endswith("_") else None
    for target in into if isinstance(into, list) else [into]:
        if not hasattr(target, "__dlpack__"):
            continue
        y = tensor(target)
        if not _dense(y):
            continue
        for k, given in enumerate(chain(args, kwargs.values())):
            for other in given if isinstance(given, list | tuple) else [given]:
                if k == own or not hasattr(other, "__dlpack__"):
                    continue
                x = tensor(other)
                if not _dense(x) or not _meet(x, y):
                    continue
                same = x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.strides == y.strides
                if strict or not same:
                    raise OpValueError(
                        f"{overload}: an argument and what is written share memory",
                        hint="give a copy of the argument, or write to another tensor",
                    )


def _dense(x: Any) -> bool:
    """Elements side by side in some order of the axes."""
    step = 1
    for stride, n in sorted(zip(x.strides, x.shape, strict=True)):
        if n > 1 and stride != step:
            return False
        step *= n
    return bool(x.size)


def _meet(x: Any, y: Any) -> bool:
    a, b = x.data_ptr(), y.data_ptr()
    return bool(a < b + y.nbytes and b < a + x.nbytes)


def _written(overload: str, into: Any, result: Any) -> Any:
    """The values of `result` in the memory of `into`, in its dtype; of several results each in its own."""
    if isinstance(into, list):
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(into):
            raise OpTypeError(f"{overload}: {len(results)} results for {len(into)} tensors to write to")
        return tuple(_written(overload, one, r) for one, r in zip(into, results, strict=True))
    with _said_of(overload, "`out`, or what is written over: "):
        target = tensor(into)
    if isinstance(result, tuple):
        raise OpTypeError(f"{overload}: several results are not written")
    if tuple(result.shape) != tuple(target.shape):
        raise OpTypeError(f"{overload}: a result of shape {result.shape} does not fit into {target.shape}")
    exact = overload.split(".")[1] in EXACT and result.dtype != target.dtype
    if exact or ORDER[result.dtype] > ORDER[target.dtype]:
        raise OpTypeError(f"{overload}: a result of {result.dtype} cannot be written as {target.dtype}")
    if result.dtype != target.dtype:
        result = result.to(target.dtype)
    with _said_of(overload, "`out`, or what is written over: "):
        registry.get("contiguous")(result, out=target)
    return target


def _front(table: Mapping[str, Front], overload: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A front's answer; what it refuses is said of the overload, for it reshapes and slices on its way."""
    with _said_of(overload):
        return front(table, overload, args, kwargs)


@contextmanager
def _said_of(overload: str, what: str = "") -> Iterator[None]:
    """Errors of what a call does on its way are the overload's.  A front is Python over what it is given: an
    argument of another kind (a text for a number, an empty list of tensors) is one more error of the call."""
    prefix = f"{overload}: {what}" if what else f"{overload}: "
    try:
        yield
    except Refused:
        raise
    except OpError as error:
        raise type(error)(f"{prefix}{error.message}", place=error.place, hint=error.hint) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OpTypeError(
            f"{prefix}an argument has a kind, a value or a number of items that is not taken ({error})",
            hint="compare the arguments with PyTorch's schema of the overload",
        ) from error


def _called(call: Any) -> Any:
    """A front's call, of an overload through its rows or of an operator; what is no call is the result."""
    if not isinstance(call, Call):
        return call
    if not call.to.startswith("aten."):
        return _finished(_planned({"op": call.to}, call.arguments), call.finish)
    refusals: list[str] = []
    try:
        return _finished(_by_rows(call.to, (), call.arguments, refusals), call.finish)
    except Refused:
        raise Refused("; ".join(refusals)) from None


def _finished(planned: Planned, then: Callable[[Any], Any] | None) -> Planned:
    first = planned.finish
    if first is None or then is None:
        return replace(planned, finish=first or then)
    return replace(planned, finish=lambda out: then(first(out)))


def _by_rows(overload: str, args: Sequence[Any], kwargs: Mapping[str, Any], refusals: list[str]) -> Planned:
    for row in registry.aten_rows(overload, chain(VIEWS, PREPARE, COMPOSE)):
        try:
            return _planned(row, _arguments(row, args, kwargs))
        except Refused as why:
            refusals.append(f"{row['op']}: {why}")
    raise Refused


def _arguments(row: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The spec's arguments by name."""
    targets: dict[str, Any] = dict(row["map"])
    order = list(targets)
    if len(args) > len(order):
        raise Refused(f"takes {len(order)} arguments, got {len(args)}")
    given = dict(zip(order, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise Refused(f"`{name}` is given twice")
        if name not in targets and value is not None and name not in PLACEMENT:
            raise Refused(f"`{name}` is not taken")
        given[name] = value
    out: dict[str, Any] = dict(row.get("set", {}))
    for name, value in given.items():
        match targets.get(name):
            case None:
                pass
            case str(target):
                out[target] = value
            case list() | tuple() as names:
                if not isinstance(value, list | tuple) or len(value) != len(names):
                    raise Refused(f"`{name}` must have {len(names)} items")
                out.update(zip(names, value, strict=True))
            case Mapping() as demand:
                if not _same(value, demand["only"]):
                    raise Refused(f"`{name}` must be {demand['only']!r}, got {value!r}")
            case other:
                raise Refused(f"`{name}` has a target that is not known: {other!r}")
    return out


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return isinstance(value, list | tuple) and list(value) == list(wanted)
    return (
        type(value) is type(wanted) and bool(value == wanted)
        if isinstance(wanted, bool)
        else bool(value == wanted)
    )


def _planned(row: Mapping[str, Any], given: Mapping[str, Any]) -> Planned:
    signature = registry.get(row["op"]).signature
    shown = [output["name"] for output in signature["outputs"] if not output["aux"]]
    # None stands for "the default" of an attribute that cannot be None.
    takes_none = {a["name"] for a in signature["attrs"] if a["optional"] or a.get("default", ...) is None}
    attrs = {a["name"] for a in signature["attrs"]}
    arguments = {k: v for k, v in given.items() if v is not None or k not in attrs or k in takes_none}
    returns = tuple(row.get("returns") or shown)
    lifted = without_axes(signature, arguments)
    return (
        Planned(row["op"], arguments, returns)
        if lifted is None
        else Planned(row["op"], lifted[0], returns, lifted[1])
    )
