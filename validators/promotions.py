"""The types of the results where inputs differ in type: of every category beside every other, of rank 0 and of more,
tensors and Python numbers.

A tensor outweighs one of rank 0, and that a number, as long as the category does not rise: f32 beside a single f64 is
f32.  A spec says so by `promote(a, b)`, or says another rule; PyTorch's answer to such a call is what holds.

May import: generator.{bind, bind_key, errors, expr, spec, types}, cases, overloads, torch_server, trial, values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..generator.bind import bind
from ..generator.bind_key import key_for_call
from ..generator.errors import OpwrightError
from ..generator.expr import Call, Name, walk
from ..generator.spec import AtenEntry, OpSpec
from ..generator.types import DType, Operand, default_dtype
from .cases import Builder
from .overloads import known
from .torch_server import TorchCrashed, TorchError
from .trial import Trial
from .values import ARRAY, dtype_of

__all__ = ["mixed_types", "mixes"]

#: What stands beside each: one of each category, then every other width.
_BASES = (DType.F32, DType.BOOL, DType.I64, DType.C64)
_OTHERS = (DType.BOOL, DType.U8, DType.I32, DType.I64, DType.F16, DType.F32, DType.F64, DType.C64, DType.C128)
#: A Python number of each category.
_NUMBERS: tuple[Any, ...] = (True, 2, 1.5, 1j)
_TAKES_NUMBERS = ("number", "Scalar", "float", "int", "bool", "complex", "Optional[number]")


class Asked(Protocol):
    """One overload that can be asked: `meaning._Aten`."""

    entry: AtenEntry

    @property
    def returns(self) -> Sequence[str]: ...

    def outputs(self, trial: Trial) -> Sequence[Any] | None: ...


def mixes(spec: OpSpec) -> bool:
    """Whether a call may have inputs, or an input and a number, of several types."""
    used = {t.dtype for t in spec.inputs.values() if t.dtype in spec.types}
    ruled = any(isinstance(n, Call) and n.fn == "promote" for t in used for n in walk(spec.types[t]))
    numbers = any(a.kind == "scalar" for a in spec.attrs.values())
    return len(spec.inputs) + numbers > 1 and (ruled or len(used) > 1)


def mixed_types(spec: OpSpec, seed: int, asked: Asked) -> Iterator[tuple[Trial, str]]:
    """Each small call of mixed types that both sides take, and what is wrong with the types of its results (or "")."""
    if not mixes(spec) or any(t.is_list for t in spec.inputs.values()):
        return
    builder = Builder(spec, seed)
    for base, other in itertools.product(_BASES, _OTHERS):
        for name, single in itertools.product(spec.inputs, (False, True)):
            call = _call(builder, spec, asked, dict.fromkeys(spec.inputs, base) | {name: other}, name, single)
            if call is not None:
                yield from _compared(spec, asked, *call)
    ruled = {
        n.id
        for rule in spec.types.values()
        for c in walk(rule)
        if isinstance(c, Call) and c.fn in ("promote", "default")
        for n in c.args
        if isinstance(n, Name)
    }
    for attr in (a.name for a in spec.attrs.values() if a.kind == "scalar" and a.name in ruled):
        for base, number, single in itertools.product(_BASES, _NUMBERS, (False, True)):
            first = next(iter(spec.inputs), "")
            call = _call(
                builder, spec, asked, dict.fromkeys(spec.inputs, base), first, single, {attr: number}
            )
            if call is not None:
                yield from _compared(spec, asked, *call)


def _call(
    builder: Builder,
    spec: OpSpec,
    asked: Asked,
    types: dict[str, DType],
    single: str,
    rank_0: bool,
    attrs: dict[str, Any] | None = None,
) -> tuple[dict[str, Operand], dict[str, Any], dict[str, Any]] | None:
    """Operands, arrays and attributes of a small call; rank_0: `single` is of rank 0.  None: there is none."""
    bare = builder.complete(builder.plainest()).copy()
    bare.data = {}
    bare.attrs |= attrs or {}
    if rank_0:
        packs = [d.expr.id for d in spec.inputs[single].dims if d.pack and isinstance(d.expr, Name)]
        if len(packs) != len(spec.inputs[single].dims):
            return None
        for pack in packs:
            bare.dims[f"{single}.{pack}"] = ()
    try:
        shapes = builder.shapes(bare)
    except OpwrightError:
        return None
    arguments = (known().arguments if known() is not None else {}).get(asked.entry.overload, {})  # type: ignore[union-attr]
    weak = {
        to
        for argument, to in asked.entry.map or ()
        if isinstance(to, str)
        and to in spec.inputs
        and arguments.get(argument, ["Tensor"])[0] in _TAKES_NUMBERS
    }
    operands, arrays = {}, {}
    for name, shape in shapes.items():
        assert not isinstance(shape, list)
        if name in weak and (shape or name != single):
            return None
        arrays[name] = np.ones(shape, ARRAY[types[name]])
        number = default_dtype(arrays[name].item()) if name in weak else types[name]
        operands[name] = Operand(number, len(shape), name in weak)
    return operands, arrays, bare.attrs


def _compared(
    spec: OpSpec, asked: Asked, operands: dict[str, Operand], arrays: dict[str, Any], attrs: dict[str, Any]
) -> Iterator[tuple[Trial, str]]:
    try:
        resolved = key_for_call(spec, {n: operands.get(n) for n in spec.inputs}, attrs)
        op = bind(spec, resolved.key)
        trial = Trial("mixed", resolved.key, arrays, resolved.attrs, given=attrs)
        outputs = asked.outputs(trial)
    except (OpwrightError, TorchError, TorchCrashed):
        return
    if outputs is None or any(t.dtype is DType.BF16 for t in op.outputs):
        return
    got = dict(zip(asked.returns, outputs, strict=False))
    wrong = [
        f"`{t.name}` is {t.dtype}, {asked.entry.overload} says {dtype_of(have)}"
        for t in op.outputs
        if (have := got.get(t.name)) is not None and dtype_of(have) is not t.dtype
    ]
    said = ", ".join(
        f"{n} {'number' if o.weak else o.dtype}[{'…' if o.rank else ''}]" for n, o in operands.items()
    )
    yield trial, f"{wrong[0]} ({said})" if wrong else ""
