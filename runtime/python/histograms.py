"""ATen overloads that count: histograms over several axes, and the rows of a tensor that differ.

`HISTOGRAMS` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.  May import: `.fronting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .fronting import Front, Ints, Refused, Tensor, axis_of, full, run, tensor

__all__ = ["HISTOGRAMS"]

_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))


# ---- histograms of several axes, rows that differ ------------------------------------------------------------------


def _grid_edges(self: Any, bins: Ints, range: Sequence[float] | None = None) -> list[Tensor]:
    """Edges along each column of numbers: `range` holds two ends for each, else the least and the largest."""
    x = tensor(self)
    if x.dtype not in ("f32", "f64"):
        raise Refused(f"`self` must be f32 or f64, it is {x.dtype}")
    if x.ndim < 2:
        raise Refused(f"`self` must have at least two axes, its shape is {list(x.shape)}")
    d = x.shape[-1]
    if len(bins) != d or any(b < 1 for b in bins):
        raise Refused(f"{d} numbers of bins above 0 are wanted, {list(bins)} are given")
    if range is not None and len(range) != 2 * d:
        raise Refused(f"`range` must hold {2 * d} ends, it holds {len(range)}")
    flat = x.reshape([x.size // d if d else 0, d])
    out = []
    for k, count in enumerate(bins):
        ends = (0.0, 1.0)
        if range is not None:
            ends = float(range[2 * k]), float(range[2 * k + 1])
        elif flat.size:
            ends = float(run("amin", flat[:, k]).item()), float(run("amax", flat[:, k]).item())
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] <= ends[1]):
            raise Refused(f"`range` must be finite and rise, along column {k} it is {list(ends)}")
        low, high = (ends[0] - 0.5, ends[1] + 0.5) if ends[0] == ends[1] else ends
        out.append(run("linspace", start=low, end=high, steps=count + 1, dtype=x.dtype))
    return out


def _grid_counts(self: Any, edges: Sequence[Any], weight: Any = None, density: bool = False) -> Tensor:
    x = tensor(self)
    lines = [run("contiguous", tensor(e)) for e in edges]
    if x.ndim < 2 or len(lines) != x.shape[-1]:
        raise Refused(f"{len(lines)} lists of edges for `self` of shape {list(x.shape)}")
    if any(e.ndim != 1 or e.shape[0] < 2 or e.dtype != x.dtype for e in lines):
        raise Refused(f"edges must be vectors of at least two {x.dtype}")
    d = x.shape[-1]
    flat = x.reshape([x.size // d if d else 0, d])
    n = flat.shape[0]
    bins = [e.shape[0] - 1 for e in lines]
    place: Any = full([n], 0, "i64")
    inside: Any = full([n], True, "bool")
    for k, e in enumerate(lines):
        column = run("contiguous", flat[:, k])
        at = _sub(run("bucketize", column, e, right=True), 1)
        at = _where(run("eq", column, e[-1:]), bins[k] - 1, at)
        here = run("logical_and", run("ge", at, 0), run("lt", at, bins[k]))
        inside = run("logical_and", inside, here)
        place = _add(_mul(place, bins[k]), run("clamp", at, lo=0, hi=bins[k] - 1))
    w = full([n], 1, x.dtype) if weight is None else tensor(weight)
    if tuple(w.shape) not in ((n,), tuple(x.shape[:-1])) or w.dtype != x.dtype:
        raise Refused(f"`weight` must be {n} {x.dtype}, it is {w.dtype}{list(w.shape)}")
    w = _where(inside, w.reshape([n]), 0)
    found = run("scatter_add", full((math.prod(bins),), 0, x.dtype), place, w, dim=0).reshape(bins)
    if density:
        found = _div(found, run("sum", found))
        for k, e in enumerate(lines):
            widths = _sub(e[1:], e[:-1])
            found = _div(found, widths.reshape([bins[k] if j == k else 1 for j, _ in enumerate(bins)]))
    return found


def _grid_by(
    self: Any,
    bins: int | Ints,
    range: Sequence[float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> tuple[Any, ...]:
    """(counts, edges of each axis …)"""
    d = tensor(self).shape[-1] if tensor(self).ndim else 0
    edges = _grid_edges(self, [bins] * d if isinstance(bins, int) else bins, range)
    return _grid_counts(self, edges, weight, density), *edges


def _rows(x: Tensor, dim: int) -> tuple[Tensor, int]:
    """What lies at each place of an axis, as a row."""
    axis = axis_of(dim, x.ndim)
    if x.ndim == 0 or (not x.size and any(e == 0 for k, e in enumerate(x.shape) if k != axis)):
        raise Refused(f"a tensor of shape {list(x.shape)} has nothing to compare along dim {dim}")
    first = x.permute([axis, *(k for k in range(x.ndim) if k != axis)])
    return run("contiguous", first).reshape([x.shape[axis], x.size // max(x.shape[axis], 1)]), axis


def _unique_dim(
    self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    """In order of their numbers, the first ones first; inverse and counts are given in any case, as PyTorch does."""
    x = tensor(self)
    rows, axis = _rows(x, dim)
    n, m = rows.shape
    if not n:
        return x, full([0], 0, "i64"), full([0], 0, "i64")
    key = full([n], 0, "i64")
    counts = full([1], n, "i64")
    for k in range(m):
        values, places, _ = run("unique", run("contiguous", rows[:, k]))
        _, key, counts = run("unique", _add(_mul(key, values.shape[0]), places))
    order = run("flip", run("arange", start=0, end=n, step=1, dtype="i64"), flags=[1])
    first = run("scatter", full([counts.shape[0]], 0, "i64"), run("flip", key, flags=[1]), order, dim=0)
    return run("index_select", x, first, dim=axis), key, counts


def _unique_dim_consecutive(
    self: Any, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    x = tensor(self)
    rows, axis = _rows(x, dim)
    n = rows.shape[0]
    if not n:
        return x, full([0], 0, "i64"), full([0], 0, "i64")
    new = run("any", run("ne", rows[1:], rows[:-1]), dim=[1])
    begins = run("cat", [full([1], True, "bool"), new], dim=0)
    inverse = _sub(run("cumsum", begins.to("i64"), dim=0), 1)
    first = run("nonzero", begins)[:, 0]
    ends = run("cat", [first[1:], full([1], n, "i64")], dim=0)
    return run("index_select", x, first, dim=axis), inverse, _sub(ends, first)


HISTOGRAMS: dict[str, Front] = {
    "aten._histogramdd_bin_edges.default": lambda self, bins, range=None, weight=None, density=False: tuple(
        _grid_edges(self, bins, range)
    ),
    "aten._histogramdd_from_bin_cts.default": lambda self, bins, range=None, weight=None, density=False: (
        _grid_by(self, bins, range, weight, density)[0]
    ),
    "aten._histogramdd_from_bin_tensors.default": lambda self, bins, weight=None, density=False: _grid_counts(
        self, bins, weight, density
    ),
    "aten.histogramdd.TensorList_bins": lambda self, bins, range=None, weight=None, density=False: (
        _grid_counts(self, bins, weight, density),
        *map(tensor, bins),
    ),
    "aten.histogramdd.default": _grid_by,
    "aten.histogramdd.int_bins": _grid_by,
    "aten.unique_dim.default": _unique_dim,
    "aten.unique_dim_consecutive.default": _unique_dim_consecutive,
}
