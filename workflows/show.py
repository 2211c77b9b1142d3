"""`opwright show`: an op at any level: what was written, what was bound, what is compiled.

May import: bridge, workbench, generator.  To add a level: a row in `LEVELS` and its function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import click

from .. import toolchain
from ..generator.bind import bind
from ..generator.bind_key import keys_of
from ..generator.bound import BindKey, show_bound
from ..generator.errors import DomainError, OpwrightError, did_you_mean
from ..generator.normal import classify
from ..generator.spec import OpSpec
from ..generator.types import DType
from . import console
from .bridge import Bridge, adjoint_of, normal
from .command import command, json_option
from .new import spec_yaml
from .workbench import Workbench

__all__ = ["LEVELS", "show"]


class ShowError(OpwrightError):
    """A level or a key that there is not."""


def _spec(spec: OpSpec, key: BindKey, dialect: str) -> str:
    return spec_yaml(spec, spec.op)


def _bound(spec: OpSpec, key: BindKey, dialect: str) -> str:
    return show_bound(bind(spec, key))


def _normal(spec: OpSpec, key: BindKey, dialect: str) -> str:
    op = normal(spec, key)
    return f"class {classify(op)}\n{show_bound(op)}"


def _grad(spec: OpSpec, key: BindKey, dialect: str) -> str:
    return show_bound(adjoint_of(spec, key))


def _loop(spec: OpSpec, key: BindKey, dialect: str) -> str:
    from ..generator.loops import show_loops
    from ..generator.lower import lower

    return show_loops(lower(normal(spec, key), "cuda" if dialect.startswith("sm_") else "cpu"))


def _cpp(spec: OpSpec, key: BindKey, dialect: str) -> str:
    return Bridge(Workbench.here(), dialect).text(spec, key).source


def _cuda(spec: OpSpec, key: BindKey, dialect: str) -> str:
    from ..generator.emit import emit_cuda

    text = emit_cuda(normal(spec, key), dialect)
    return f"{text.kernel}\n{text.launcher}"


def _body(spec: OpSpec, key: BindKey, dialect: str) -> str:
    from ..generator.emit.bodies import stub

    return stub(normal(spec, key), spec)


LEVELS: dict[str, Callable[[OpSpec, BindKey, str], str]] = {
    "spec": _spec,
    "bound": _bound,
    "normal": _normal,
    "loop": _loop,
    "cpp": _cpp,
    "cuda": _cuda,
    "body": _body,
    "grad": _grad,
}


def choose_key(spec: OpSpec, wanted: tuple[str, ...]) -> BindKey:
    """The first key that has every `name=value` of `wanted`; f32 before others where nothing is said."""
    keys = keys_of(spec)
    asked = dict(_pair(w) for w in wanted)
    known = {name for key in keys for group in _groups(key) for name, _ in group}
    for name in asked:
        if name not in known:
            raise ShowError(
                f"`{spec.op}` has no `{name}` in its key",
                hint=did_you_mean(name, known, what="parts of a key"),
            )
    fits = [k for k in keys if all(_text(_value(k, n)) == v for n, v in asked.items())]
    if not fits:
        shown = "; ".join(k.show() or "(the only key)" for k in keys[:6])
        raise ShowError(f"`{spec.op}` has no key with {', '.join(wanted)}", hint=f"keys: {shown}")
    return min(fits, key=_rank)


def first_key(spec: OpSpec) -> BindKey:
    """The plainest key that the spec's own rules admit; where they admit none, the plainest."""
    for key in sorted(keys_of(spec), key=_rank):
        with contextlib.suppress(DomainError):
            bind(spec, key)
            return key
    return choose_key(spec, ())


def _pair(text: str) -> tuple[str, str]:
    name, eq, value = text.partition("=")
    if not eq:
        raise ShowError(f"`{text}` is not name=value", hint="such as --key T=bf16")
    return name.strip(), value.strip()


def _groups(key: BindKey) -> tuple[tuple[tuple[str, object], ...], ...]:
    return (key.types, key.static, key.present, key.lengths, key.ranks)


def _value(key: BindKey, name: str) -> object:
    return next((v for group in _groups(key) for n, v in group if n == name), None)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rank(key: BindKey) -> tuple[int, ...]:
    order = [DType.F32, DType.F64, DType.I64]
    return tuple(order.index(d) if (d := DType(v)) in order else len(order) for _, v in key.types)


@command(
    "show",
    example=[
        "opwright show softmax --level normal",
        "opwright show softmax --level cpp --key T=bf16 --dialect cpu-avx2",
        "opwright show softmax --level grad",
        "opwright show add --level cuda --dialect sm_90",
        "opwright show softmax --level body > mine.cpp",
    ],
)
@click.argument("op")
@click.option(
    "--level",
    type=click.Choice(list(LEVELS)),
    default="normal",
    show_default=True,
    help="spec, bound (typed), normal (one reduction a statement), loop (nests), cpp, cuda, body (to fill), grad.",
)
@click.option(
    "--key", "wanted", multiple=True, metavar="NAME=VALUE", help="A dtype or other constant of the kernel."
)
@click.option(
    "--dialect",
    default=None,
    metavar="NAME",
    help="cpu-avx512, cpu-avx2, cpu-portable, sm_80, sm_90 (default: this machine's best).",
)
@click.option("--keys", is_flag=True, help="List the op's keys instead.")
@json_option
def show(op: str, level: str, wanted: tuple[str, ...], dialect: str | None, keys: bool, as_json: bool) -> int:
    """Print an op at one level of the language.

    OP is an operator's name or the path of a spec file.
    """
    spec = Workbench.here().one(op)
    if keys:
        names = [k.show() for k in keys_of(spec)]
        if as_json:
            console.print_json({"op": spec.op, "keys": names})
        else:
            console.say("\n".join(n or "(one key, with nothing in it)" for n in names))
        return 0
    if dialect is None:
        dialect = "sm_80" if level == "cuda" else toolchain.native_dialect()
    if level in ("cpp", "cuda") and dialect.startswith("sm_") != (level == "cuda"):
        raise ShowError(
            f"{dialect} is no dialect of {level}", hint="sm_80, sm_90" if level == "cuda" else "cpu-avx2, …"
        )
    key = choose_key(spec, wanted) if wanted else first_key(spec)
    text = LEVELS[level](spec, key, dialect)
    if as_json:
        console.print_json(
            {"op": spec.op, "level": level, "key": key.show(), "dialect": dialect, "text": text}
        )
    else:
        console.say(text.rstrip("\n"))
    return 0
