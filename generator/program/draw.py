"""Inputs for a program, drawn.

    sizes = small_sizes(program)                        a small extent for every symbol of an input, all different
    arrays = draw_inputs(program, sizes, seed)          floats normal, masks ones, integers below whatever they index

    sizes = example_sizes(program, example, chosen)     those of the folder's example, but for what somebody chose
    arrays = drawn_like(program, example, sizes, seed)  each input as the example's: its range, what is constant or
                                                        whole in it, its placeholders where they are

May import: ir, folder, generator.types, numpy.  To draw another kind of input: a branch in `draw_inputs`, `_like`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..types import DType
from .folder import Example, numpy_dtype
from .ir import Call, Copy, Program, Symbol, View

__all__ = ["draw_inputs", "drawn_like", "example_sizes", "index_limit", "small_sizes", "whole_columns"]


def small_sizes(program: Program) -> dict[str, int]:
    """A value for every symbol that comes from an input: a small one within its range."""
    return {s.name: _small(s, k) for k, s in enumerate(_given(program))}


def _given(program: Program) -> list[Symbol]:
    inputs = {b.name for b in program.inputs}
    return [s for s in program.symbols.values() if s.source in inputs]


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


def example_sizes(program: Program, example: Example, chosen: Mapping[str, int]) -> dict[str, int]:
    """The example's extents, and what was `chosen` instead.  Symbols that stand for one extent of the example along
    the same axis (the batch of a text, and that of its mask) follow the one that was chosen."""
    have = {s.name: (s.axis, int(example.arrays[s.source].shape[s.axis])) for s in _given(program)}
    wanted = {have[name]: n for name, n in chosen.items()}
    return {name: chosen.get(name, wanted.get(at, at[1])) for name, at in have.items()}


def drawn_like(
    program: Program, example: Example, sizes: Mapping[str, int], seed: int
) -> dict[str, NDArray[Any]]:
    """Inputs of these sizes, like the example's."""
    rng = np.random.default_rng(seed)
    return {
        b.name: _like(
            example.arrays[b.name],
            tuple(n.evaluate(sizes) for n in program.values[b.value].shape),
            rng,
            example.stand.get(b.name, ()),
        )
        for b in program.inputs
    }


def _like(
    x: NDArray[Any], shape: tuple[int, ...], rng: np.random.Generator, stand: Sequence[int]
) -> NDArray[Any]:
    if not x.size or x.dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(x.dtype)
    wide = x if x.dtype.kind in "iub" else x.astype(np.float64)
    low, high = wide.min(), wide.max()
    if low == high:
        return np.full(shape, low, x.dtype)
    if x.dtype.kind == "b":
        return np.asarray(rng.random(shape) < wide.mean())
    if x.dtype.kind in "iu":
        drawn = rng.integers(int(low), int(high) + 1, shape).astype(x.dtype)
        return _kept(x, drawn, stand) if stand else drawn
    if low >= 0 or high <= 0:  # a logarithm or a root may stand behind it
        out = rng.uniform(low, high, shape)
    else:
        out = rng.standard_normal(shape) * wide.std() + wide.mean()
    for k in whole_columns(wide) if shape[-1:] == x.shape[-1:] else ():
        column = wide[..., k]
        out[..., k] = rng.integers(int(column.min()), int(column.max()) + 1, shape[:-1])
    return np.asarray(out).astype(x.dtype)


def whole_columns(x: Any) -> list[int]:
    """Where along the last axis numbers are whole that lie beside others: a place that indexes a table, say."""
    if x.ndim < 2 or not x.shape[-1]:
        return []
    rows = np.asarray(x).reshape(-1, x.shape[-1])
    # Rows that are whole by chance: of one or two there may be some, and a constant says nothing.
    varies = rows.min(0) < rows.max(0)
    whole = (rows == np.rint(rows)).all(0) & np.isfinite(rows).all(0) & varies
    return [] if len(rows) < 4 else [int(k) for k in np.flatnonzero(whole)]


def _kept(x: NDArray[Any], drawn: NDArray[Any], stand: Sequence[int]) -> NDArray[Any]:
    """`drawn` with the tokens that `stand` for something where `x` has them, and nowhere else."""
    stands = np.isin(x, list(stand))
    plain = x[~stands]
    drawn[np.isin(drawn, list(stand))] = int(plain.min()) if plain.size else 0
    rows = np.arange(len(drawn)) % len(x)
    n = min(drawn.shape[1], x.shape[1])
    drawn[:, :n] = np.where(stands[rows, :n], x[rows, :n], drawn[:, :n])
    return drawn
