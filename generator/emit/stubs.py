"""`ops.pyi`: every operator as an editor and a type checker see it, its text from its spec.

May import: docs, spec, expr.  To say more of an operator: `_text`.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable

from ..spec import AttrDecl, OpSpec

__all__ = ["print_ops_stub"]

_HEAD = '''# Made by `opwright generate --stubs` from the operators' specs.
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from ._core import Array, DType, Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")

class Op(Generic[_P, _R]):
    """An operator: called as a function; `all` gives the auxiliary outputs, too."""

    __name__: str
    signature: dict[str, Any]
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def all(self, *args: _P.args, **kwargs: _P.kwargs) -> tuple[Tensor, ...]:
        """Every output, the auxiliary ones too, as a tuple."""
    def forget(self) -> None:
        """The next calls ask the miss hook again."""

def _op(function: Callable[_P, _R]) -> Op[_P, _R]: ...
'''
_KINDS = {
    "int": "int",
    "axis": "int",
    "float": "float",
    "bool": "bool",
    "scalar": "float",  # ints and bools are taken where a float is
    "axes": "int | Sequence[int]",
    "ints": "int | Sequence[int]",
    "floats": "Sequence[float]",
    "dtype": "DType",
    "str": "str",
}


def print_ops_stub(specs: Iterable[OpSpec]) -> str:
    """The text of `ops.pyi`.  Operators of a namespace (`myco::rope`) and names that Python reserves are left out."""
    taken = sorted(
        (s for s in specs if s.op.isidentifier() and not keyword.iskeyword(s.op)), key=lambda s: s.op
    )
    return "\n".join([_HEAD, *map(_function, taken)])


def _function(spec: OpSpec) -> str:
    parts: list[str] = []
    inputs = list(spec.inputs.items())
    for k, (name, tensor) in enumerate(inputs):
        kind = "Sequence[Array]" if tensor.is_list else "Array"
        last = all(
            t.optional for _, t in inputs[k:]
        )  # one that must be given comes after: None is said there
        parts.append(f"{name}: {kind}" + (" | None" if tensor.optional else "") + (" = None" if last else ""))
    optional = bool(inputs) and inputs[-1][1].optional
    by_name = False
    for attr in spec.attrs.values():
        text, given = _attribute(attr)
        if given and optional and not by_name:  # Python wants those without a default first
            parts.append("*")
            by_name = True
        optional = optional or not given
        parts.append(text)
    if "out" not in spec.attrs:
        parts += [] if by_name else ["*"]
        one = sum(not t.aux for t in spec.outputs.values()) == 1
        parts.append(f"out: {'Array' if one else 'Sequence[Array | None]'} | None = None")
    shown = sum(not t.aux for t in spec.outputs.values())
    result = "Tensor" if shown == 1 else f"tuple[{', '.join(['Tensor'] * shown)}]"
    return f'@_op\ndef {spec.op}({", ".join(parts)}) -> {result}:\n    """{_text(spec)}"""\n'


def _attribute(attr: AttrDecl) -> tuple[str, bool]:
    """The parameter, and whether it must be given."""
    kind = f"Literal[{', '.join(map(repr, attr.values))}]" if attr.kind == "enum" else _KINDS[attr.kind]
    none = attr.optional or attr.default_expr is not None or attr.kind in ("axes", "dtype")
    if attr.has_default and attr.default_expr is None and attr.default is not None:
        default = list(attr.default) if isinstance(attr.default, tuple) else attr.default
        text = repr(default)
        text = f"float({text!r})" if text in ("inf", "-inf", "nan") else text
        return f"{attr.name}: {kind}{' | None' if none else ''} = {text}", False
    if none or attr.has_default:
        return f"{attr.name}: {kind} | None = None", False
    return f"{attr.name}: {kind}", True


def _text(spec: OpSpec) -> str:
    """What it does, what its arguments are, and what others call it."""
    lines = [spec.doc, ""]
    lines += [f"    {n}: {t.show()}" for n, t in spec.inputs.items()]
    lines += [f"    {n} (output): {t.show()}" for n, t in spec.outputs.items() if not t.aux]
    if spec.require:
        lines += ["", "Holds: " + "; ".join(r.text for r in spec.require)]
    others = [e.overload for e in spec.aten] + [f"onnx.{e.op}" for e in spec.onnx]
    if others:
        lines += ["", "Elsewhere: " + ", ".join(dict.fromkeys(others))]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return text.replace("\n", "\n    ").replace("    \n", "\n").rstrip() + "\n    "
