"""Inputs for a program, drawn: where nobody gave an example.

    sizes = small_sizes(program)                     a small extent for every symbol of an input, all different
    arrays = draw_inputs(program, sizes, seed)       floats normal, masks ones, integers below whatever they index

May import: ir, folder (dtypes), generator.types, numpy.  To draw another kind of input: a branch in `draw_inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..types import DType
from .folder import numpy_dtype
from .ir import Call, Copy, Program, Symbol, View

__all__ = ["draw_inputs", "index_limit", "small_sizes"]


def small_sizes(program: Program) -> dict[str, int]:
    """A value for every symbol that comes from an input: a small one within its range."""
    inputs = {b.name for b in program.inputs}
    given = [s for s in program.symbols.values() if s.source in inputs]
    return {s.name: _small(s, k) for k, s in enumerate(given)}


def _small(s: Symbol, k: int) -> int:
    """Different for each symbol, so that a confusion of two shows."""
    wanted = (2, 7, 5, 3)[k % 4]
    wanted = -(-wanted // s.divisor) * s.divisor
    return min(max(wanted, s.min), s.max)


def draw_inputs(program: Program, sizes: Mapping[str, int], seed: int) -> dict[str, NDArray[Any]]:
    """Inputs of these sizes: floats normal, masks ones, integers below whatever table they index."""
    rng = np.random.default_rng(seed)
    out: dict[str, NDArray[Any]] = {}
    for b in program.inputs:
        v = program.values[b.value]
        shape = tuple(n.evaluate(sizes) for n in v.shape)
        kind = numpy_dtype(v.dtype)
        if v.dtype.is_float or v.dtype.is_complex:
            out[b.name] = rng.standard_normal(shape).astype(kind)
        elif "mask" in b.name or v.dtype is DType.BOOL:
            out[b.name] = np.ones(shape, kind)
        else:
            out[b.name] = rng.integers(0, index_limit(program, b.value), shape).astype(kind)
    return out


def index_limit(program: Program, value: str) -> int:
    """The smallest extent of a weight that the value indexes, as far as views, casts and copies show; 8 where none."""
    same = {value}
    limits: list[int] = []
    weights = {b.value for b in (*program.weights, *program.constants)}
    for node in program.nodes:
        match node:
            case View(base=base, out=made) | Copy(base=base, out=made):
                if base in same:
                    same.add(made)
            case Call(op="cast" | "contiguous", inputs=(str(base),), out=(str(made),)):
                if base in same:
                    same.add(made)
            case Call(op=op, inputs=inputs) if op in ("embedding", "index", "index_select", "gather"):
                if any(i in same for i in inputs if isinstance(i, str)):
                    tables = [program.values[i] for i in inputs if isinstance(i, str) and i in weights]
                    limits += [n for t in tables if t.shape and (n := t.shape[0].value) is not None]
    return max(min(limits, default=8), 1)
