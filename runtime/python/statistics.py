"""ATen overloads over samples and signals: quantiles, covariances, differences, sums of slices, histograms, segments,
bags of rows, transforms of windows and of several axes.

`STATISTICS` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.

May import: `.fronting`, `.products`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .fronting import (
    Front,
    Ints,
    Refused,
    Tensor,
    at,
    axis_of,
    conjugate,
    converted,
    full,
    run,
    somewhere,
    stated,
    tensor,
)
from .products import attention_scores, fft_axes, fftn_scale, fitted, wide

__all__ = ["STATISTICS"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_COMPLEX = ("c64", "c128")
_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))


def _part(x: Tensor, axis: int, begin: int | None, end: int | None) -> Tensor:
    return x[at(x.ndim, axis, slice(begin, end))]


# ---- quantiles ---------------------------------------------------------------------------------------------------

_WAYS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    nans: bool,
    self: Any,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """Between the two of the numbers in order that are nearest to q; `nans`: of those that are numbers."""
    x = tensor(self)
    if x.dtype not in ("f32", "f64"):
        raise Refused(f"`self` must be f32 or f64, it is {x.dtype}")
    if interpolation not in _WAYS:
        raise Refused(f"`interpolation` must be one of {', '.join(_WAYS)}, it is {interpolation}")
    at_q = full((), q, x.dtype) if isinstance(q, bool | int | float) else tensor(q)
    if at_q.ndim > 1 or at_q.dtype != x.dtype:
        raise Refused(f"`q` must be one {x.dtype} or a vector of them")
    if not x.size:
        raise Refused("`self` must not be empty")
    if at_q.size and not bool(run("all", run("logical_and", run("ge", at_q, 0), run("le", at_q, 1))).item()):
        raise Refused("`q` must lie from 0 to 1")
    given = x
    if dim is None:
        x, axis = x.reshape([1, x.size]), 0
    else:
        x, axis = (x if x.ndim else x.reshape([1])), axis_of(dim, x.ndim)
        x = x.permute([*(k for k in range(x.ndim) if k != axis), axis])
    n = x.shape[-1]
    rows = run("sort", x, dim=-1)[0]
    m = at_q.size
    ranks = at_q.reshape([m])
    lost = run("isnan", x)
    if nans:
        counts = _sub(n - 1, run("sum", lost, dim=[x.ndim - 1], keepdim=True))
        ranks = run("maximum", _mul(converted(counts, x.dtype), ranks), 0.0)
    else:
        ranks = _mul(ranks, float(n - 1)).expand([*x.shape[:-1], m])
        ranks = _where(run("any", lost, dim=[x.ndim - 1], keepdim=True), float(n - 1), ranks)
    low = run("floor", ranks)
    if interpolation == "nearest":
        low = run("round", ranks)
    elif interpolation == "higher":
        low = run("ceil", ranks)
    out = run("gather", rows, converted(low, "i64"), dim=-1)
    if interpolation in ("linear", "midpoint"):
        above = run("gather", rows, converted(run("ceil", ranks), "i64"), dim=-1)
        share = full(list(ranks.shape), 0.5, x.dtype) if interpolation == "midpoint" else _sub(ranks, low)
        out = run("lerp", out, above, share)
    out = out.permute([out.ndim - 1, *range(out.ndim - 1)])
    lead = [m] if at_q.ndim else []
    if keepdim:
        rest = [1 if dim is None or k == axis else e for k, e in enumerate(given.shape)]
    else:
        rest = [] if dim is None else [e for k, e in enumerate(given.shape) if k != axis]
    return out.reshape([*lead, *rest])


# ---- covariances -------------------------------------------------------------------------------------------------


def _cov(self: Any, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Of rows as variables and columns as observations."""
    x = tensor(self)
    if x.ndim > 2:
        raise Refused("at most two axes are wanted")
    if x.dtype == "bool":
        raise Refused("bool observations have no covariance")
    rows = x.reshape([1, x.size]) if x.ndim < 2 else x
    n = rows.shape[1]
    rows = rows if rows.dtype in (*_FLOATS, *_COMPLEX) else converted(rows, "f32")
    w: Any = None
    if fweights is not None:
        w = tensor(fweights)
        if w.shape != (n,) or w.dtype in (*_FLOATS, *_COMPLEX):
            raise Refused(f"`fweights` must be {n} integers")
        if n and somewhere(run("lt", w, 0)):
            raise Refused("`fweights` must not be negative")
    if aweights is not None:
        a = tensor(aweights)
        if a.shape != (n,) or a.dtype not in _FLOATS:
            raise Refused(f"`aweights` must be {n} real numbers")
        if n and somewhere(run("lt", a, 0)):
            raise Refused("`aweights` must not be negative")
        w = a if w is None else _mul(w, a)
    if w is None:
        count: Any = float(n)
        mean = _div(run("sum", rows, dim=[1], keepdim=True), count)
        scale: Any = max(n - correction, 0)
    else:
        count = run("sum", w)
        mean = _div(run("sum", _mul(rows, w), dim=[1], keepdim=True), count)
        if aweights is not None and correction:
            inner = run("sum", _mul(w, tensor(aweights)))
            scale = _sub(count, _div(_mul(inner, correction), count))
        else:
            scale = _sub(count, correction)
        scale = run("maximum", scale, 0)
    apart = _sub(rows, mean)
    weighted = apart if w is None else _mul(apart, w)
    dtype = weighted.dtype  # wider than the rows' where real weights are
    other = conjugate(weighted.transpose(0, 1))
    out = run("matmul", converted(apart, dtype), converted(other, dtype))
    real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    out = _div(out, converted(scale, real) if not isinstance(scale, int | float) else full((), scale, real))
    out = converted(out, dtype)
    return out.reshape([]) if rows.shape[0] == 1 else out


def _corrcoef(self: Any) -> Tensor:
    x = tensor(self)
    c = _cov(x)
    if c.ndim == 0:
        return _div(c, c)
    n = c.shape[0]
    line = run("contiguous", c.as_strided([n], [n + 1], c.offset))
    line = run("real", line) if line.dtype in _COMPLEX else line
    spread = run("sqrt", line)
    out = _div(_div(c, spread.unsqueeze(1)), spread.unsqueeze(0))
    if out.dtype in _COMPLEX:
        parts = (run("clamp", run(p, out), lo=-1, hi=1) for p in ("real", "imag"))
        return converted(run("complex", *parts), out.dtype)
    return run("clamp", out, lo=-1, hi=1)


# ---- along an axis -----------------------------------------------------------------------------------------------


def _steps(x: Any, y: Tensor, axis: int) -> Tensor:
    """Distances between positions, in the shape of differences of y along the axis."""
    t = tensor(x)
    if t.ndim == 1 and y.ndim > 1:
        if t.shape[0] != y.shape[axis]:
            raise Refused(f"{t.shape[0]} positions for {y.shape[axis]} numbers")
        t = t.reshape([t.shape[0] if k == axis else 1 for k in range(y.ndim)])
    elif t.ndim < y.ndim:
        t = t.reshape([*[1] * (y.ndim - t.ndim), *t.shape])
    return _sub(_part(t, axis, 1, None), _part(t, axis, None, -1))


def _between(y: Tensor, axis: int) -> Tensor:
    return _add(_part(y, axis, None, -1), _part(y, axis, 1, None))


def _numbers(y: Any) -> Tensor:
    t = tensor(y)
    return t if t.dtype != "bool" else converted(t, "i64")


def _trapezoid_at(y: Any, x: Any, dim: int = -1) -> Tensor:
    t = _numbers(y)
    axis = axis_of(dim, t.ndim)
    if not t.ndim or not t.shape[axis]:
        rest = [n for k, n in enumerate(t.shape) if k != axis]
        return full(rest, 0, _div(full((), 0, t.dtype), 2).dtype)
    product = _mul(_between(t, axis), _steps(x, t, axis))
    return _div(run("sum", product, dim=[axis]), 2)


def _cumulative_at(y: Any, x: Any, dim: int = -1) -> Tensor:
    t = _numbers(y)
    axis = axis_of(dim, t.ndim)
    return _div(run("cumsum", _mul(_between(t, axis), _steps(x, t, axis)), dim=axis), 2)


def _cumulative(y: Any, dx: Any = 1, dim: int = -1) -> Tensor:
    t = _numbers(y)
    axis = axis_of(dim, t.ndim)
    return _mul(run("cumsum", _between(t, axis), dim=axis), _div(full((), dx, "f64"), 2).item())


def _gradient(x: Any, spaces: Sequence[Any], dims: Sequence[int], edge_order: int) -> tuple[Tensor, ...]:
    """Central differences of the second order, one-sided at the ends; a space is a distance or positions."""
    t = tensor(x)
    if edge_order not in (1, 2):
        raise Refused(f"`edge_order` must be 1 or 2, it is {edge_order}")
    axes = [axis_of(d, t.ndim) for d in dims]
    if len(set(axes)) < len(axes):
        raise Refused(f"an axis appears twice in {list(dims)}")
    if len(spaces) != len(axes):
        raise Refused(f"{len(spaces)} spacings for {len(axes)} axes")
    return tuple(_slope(t, space, axis, edge_order) for space, axis in zip(spaces, axes, strict=True))


def _slope(t: Tensor, space: Any, axis: int, edge_order: int) -> Tensor:
    n = t.shape[axis] if t.ndim else 0
    if n < edge_order + 1:
        raise Refused(f"at least {edge_order + 1} numbers are wanted along an axis, there are {n}")

    def part(a: int | None, b: int | None) -> Tensor:
        return _part(t, axis, a, b)

    if isinstance(space, bool | int | float | complex):
        middle = _div(_sub(part(2, None), part(None, -2)), 2 * space)
        if edge_order == 1:
            first = _div(_sub(part(1, 2), part(0, 1)), space)
            last = _div(_sub(part(-1, None), part(-2, -1)), space)
        else:
            first = _div(_sub(_sub(_mul(part(1, 2), 4), _mul(part(0, 1), 3)), part(2, 3)), 2 * space)
            last = _div(_add(_sub(_mul(part(-1, None), 3), _mul(part(-2, -1), 4)), part(-3, -2)), 2 * space)
        return run("cat", [first, middle, last], dim=axis)
    places = tensor(space)
    if places.shape != (n,):
        raise Refused(f"{list(places.shape)} positions for an axis of {n}")
    h = _sub(places[1:], places[:-1]).reshape([n - 1 if k == axis else 1 for k in range(t.ndim)])
    left, right = _part(h, axis, None, -1), _part(h, axis, 1, None)
    ahead = _div(_sub(part(1, None), part(None, -1)), h)
    both = _add(left, right)
    middle = _add(
        _mul(_part(ahead, axis, None, -1), _div(right, both)),
        _mul(_part(ahead, axis, 1, None), _div(left, both)),
    )
    first, last = _part(ahead, axis, None, 1), _part(ahead, axis, -1, None)
    if edge_order == 2:
        d0, d1 = _part(h, axis, 0, 1), _part(h, axis, 1, 2)
        second = _part(ahead, axis, 1, 2)
        first = _sub(_mul(first, _add(1, _div(d0, _add(d0, d1)))), _mul(second, _div(d0, _add(d0, d1))))
        e0, e1 = _part(h, axis, -1, None), _part(h, axis, -2, -1)
        before = _part(ahead, axis, -2, -1)
        last = _sub(_mul(last, _add(1, _div(e0, _add(e0, e1)))), _mul(before, _div(e0, _add(e0, e1))))
    return run("cat", [first, middle, last], dim=axis)


def _gradient_by(
    self: Any, spacing: Any = None, dim: int | Ints | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    x = tensor(self)
    dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if spacing is None or isinstance(spacing, bool | int | float | complex):
        spaces = [1 if spacing is None else spacing] * len(dims)
    else:
        spaces = list(spacing)
    return _gradient(x, spaces, dims, edge_order)


def _sum_to_size(self: Any, size: Ints) -> Tensor:
    x = tensor(self)
    want = [1] * (x.ndim - len(size)) + list(size)
    if len(size) > x.ndim or any(w not in (1, n) for w, n in zip(want, x.shape, strict=True)):
        raise Refused(f"{list(x.shape)} does not sum to {list(size)}")
    over = [
        k
        for k, (w, n) in enumerate(zip(want, x.shape, strict=True))
        if (w == 1 and n != 1) or k < x.ndim - len(size)
    ]
    if not size:
        return run("sum", x)
    # of integers and truth values in i64, as `sum`
    out = run("sum", x, dim=over, keepdim=True) if over else x
    return out.reshape(list(size))


def _combinations(self: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    from itertools import combinations, combinations_with_replacement

    x = tensor(self)
    if x.ndim != 1 or r < 0:
        raise Refused("a vector and a number from 0 on are wanted")
    if r == 0:
        return full((0,), 0, x.dtype)
    made = list((combinations_with_replacement if with_replacement else combinations)(range(x.shape[0]), r))
    if not made:
        return full((0, r), 0, x.dtype)
    rows = stated([k for row in made for k in row], "i64")
    return run("index_select", x, rows, dim=0).reshape([len(made), r])


# ---- counts ------------------------------------------------------------------------------------------------------


def _histogram(self: Any, edges: Tensor, weight: Any, density: bool) -> tuple[Tensor, Tensor]:
    """Bins from an edge up to the next, the last with its end."""
    x = tensor(self).reshape([tensor(self).size])
    bins = edges.shape[0] - 1
    if bins < 1:
        raise Refused("at least two edges are wanted")
    place = _sub(run("bucketize", x, edges, right=True), 1)
    place = _where(run("eq", x, edges[-1:]), bins - 1, place)
    inside = run("logical_and", run("ge", place, 0), run("lt", place, bins))
    w = full([x.size], 1, x.dtype) if weight is None else tensor(weight).reshape([x.size])
    w = _where(inside, w, 0)
    place = run("clamp", place, lo=0, hi=bins - 1)
    found = run("scatter_add", full((bins,), 0, x.dtype), place, w, dim=0)
    if density:
        found = _div(_div(found, run("sum", found)), _sub(edges[1:], edges[:-1]))
    return found, edges


def _histogram_by(
    self: Any,
    bins: int = 100,
    range: Sequence[float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    x = tensor(self)
    if x.dtype not in ("f32", "f64"):
        raise Refused(f"`self` must be f32 or f64, it is {x.dtype}")
    if range is not None:
        low, high = (float(v) for v in range)
    elif x.size:
        low, high = (float(run(op, x).item()) for op in ("amin", "amax"))
    else:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise Refused(f"`range` must be finite and rise, it is [{low}, {high}]")
    edges = run("linspace", start=low, end=high, steps=bins + 1, dtype=x.dtype)
    return _histogram(x, edges, weight, density)


def _histogram_at(self: Any, bins: Any, weight: Any = None, density: bool = False) -> tuple[Tensor, Tensor]:
    return _histogram(self, run("contiguous", tensor(bins)), weight, density)


# ---- segments and bags -------------------------------------------------------------------------------------------


def _segment_reduce(
    data: Any,
    reduce: str,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Of each run of so many rows along the last axis of `lengths`."""
    x = tensor(data)
    kinds = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
    if reduce not in kinds or indices is not None or (lengths is None) == (offsets is None):
        raise Refused("one of sum, mean, max, min, prod by `lengths` or by `offsets` is wanted")
    given = tensor(lengths if offsets is None else offsets)
    d = axis_of(axis, x.ndim)
    if given.ndim != d + 1 or tuple(given.shape[:-1]) != tuple(x.shape[:d]):
        raise Refused(
            f"segments of shape {list(given.shape)} for data of shape {list(x.shape)} along axis {d}"
        )
    ends = run("cumsum", given, dim=-1) if offsets is None else given[..., 1:]
    starts = _sub(ends, given) if offsets is None else given[..., :-1]
    count, n = starts.shape[-1], x.shape[d]
    if offsets is None and not unsafe and given.size:
        whole = ends[..., count - 1]
        if not bool(run("all", run("eq", whole, n)).item()) or int(run("amin", given).item()) < 0:
            raise Refused(f"`lengths` must be from 0 on and fill the axis of {n}")
    start = initial if initial is not None else kinds[reduce]
    rest = len(x.shape) - d - 1
    # (…, segment, row): whether the row is in the segment
    rows = run("arange", start=0, end=n, step=1, dtype="i64")
    inside = run(
        "logical_and", run("ge", rows, starts.unsqueeze(d + 1)), run("lt", rows, ends.unsqueeze(d + 1))
    )
    shape = [*x.shape[:d], count, n, *x.shape[d + 1 :]]
    mask = inside.reshape([*x.shape[:d], count, n, *[1] * rest])
    neutral = kinds[reduce]
    spread = _where(mask, x.unsqueeze(d).expand(shape), neutral)
    op = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}[reduce]
    if not n:
        out = full([*shape[: d + 1], *shape[d + 2 :]], neutral, x.dtype)
    else:
        out = run(op, spread, dim=d + 1 if op == "prod" else [d + 1])
    if initial is not None:
        step = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum", "prod": "mul"}[reduce]
        out = run(step, out, start)
    if reduce == "mean":
        sizes = _sub(ends, starts).reshape([*x.shape[:d], count, *[1] * rest])
        if initial is None:
            out = _div(out, sizes)  # of none: nan
        else:
            out = _where(run("eq", sizes, 0), out, _div(out, sizes))
    return converted(out, x.dtype)


def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums (0), means (1) or maxima (2) of rows; (bags, which bag, sizes, where maxima are)"""
    w, i, o = tensor(weight), tensor(indices), tensor(offsets)
    if w.ndim != 2 or i.ndim != 1 or o.ndim != 1 or mode not in (0, 1, 2):
        raise Refused("a matrix, a vector of indices, one of offsets and a mode of 0, 1 or 2 are wanted")
    if per_sample_weights is not None and mode:
        raise Refused("`per_sample_weights` is of sums")
    n = i.shape[0]
    starts = o[:-1] if include_last_offset else o
    count = starts.shape[0]
    ends = run("cat", [starts[1:], full((1,), n, o.dtype)], dim=0) if count else starts
    rows = run("index_select", w, i, dim=0)
    places = run("arange", start=0, end=n, step=1, dtype="i64")
    inside = run("logical_and", run("ge", places, starts.unsqueeze(1)), run("lt", places, ends.unsqueeze(1)))
    if padding_idx is not None and padding_idx != -1:
        padding = padding_idx + w.shape[0] if padding_idx < 0 else padding_idx
        inside = run("logical_and", inside, run("ne", i, padding))
    if per_sample_weights is not None:
        rows = _mul(rows, tensor(per_sample_weights).unsqueeze(1))
    sizes = run("sum", inside, dim=[1])
    bag = converted(_sub(run("sum", run("le", starts.unsqueeze(1), places), dim=[0]), 1), i.dtype)
    found: Tensor
    if mode == 2:
        spread = _where(inside.unsqueeze(2), rows.unsqueeze(0).expand([count, n, w.shape[1]]), -math.inf)
        empty = run("eq", sizes, 0).unsqueeze(1)
        if not n or not count:
            return (
                full((count, w.shape[1]), 0, w.dtype),
                bag,
                converted(sizes, i.dtype),
                full((count, w.shape[1]), 0, i.dtype),
            )
        most, where = run("max_dim", spread, dim=1)
        found = run("index_select", i, where.reshape([where.size]), dim=0).reshape(list(where.shape))
        return _where(empty, 0, most), bag, converted(sizes, i.dtype), _where(empty, 0, found)
    out = run("matmul", converted(inside, rows.dtype), rows)
    if mode == 1:
        found = converted(sizes, i.dtype)
        return converted(_div(out, run("maximum", sizes, 1).unsqueeze(1)), w.dtype), bag, found, found
    # What PyTorch does not need for sums it does not fill.
    direct = padding_idx in (None, -1) and w.dtype != "f64"
    found = full((o.shape[0],), 0, i.dtype)
    return converted(out, w.dtype), full((0,), 0, i.dtype) if direct else bag, found, found


# ---- attention and indices under a mask --------------------------------------------------------------------------


def _flash(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention, and the logarithm of every row's sum of exponentials, in f32 or f64."""
    if dropout_p:
        raise Refused("`dropout_p` must be 0")
    q, k, v = tensor(query), tensor(key), tensor(value)
    out = run("scaled_dot_product_attention", q, k, v, attn_mask, causal=is_causal, scale=scale)
    kind = "f64" if q.dtype == "f64" else "f32"
    wide_q, wide_k = converted(q, kind), converted(k, kind)
    scores = attention_scores(wide_q, wide_k, attn_mask, causal=is_causal, scale=scale)
    return out, run("logsumexp", scores, dim=[scores.ndim - 1])


# ---- windows and spectra -----------------------------------------------------------------------------------------


def _fftn_real(
    self: Any,
    s: Ints | None = None,
    dim: Ints | int | None = None,
    norm: str | None = None,
    hermitian: bool = False,
) -> Tensor:
    """The transform of reals along several axes, half of the last; `hermitian`: the inverse, of ihfftn."""
    x = wide(tensor(self), False)
    if x.dtype in _COMPLEX:
        raise Refused("reals are wanted")
    axes, extents = _named(x, s, dim)
    x = _sized(x, axes, extents)
    scale = fftn_scale(norm, math.prod(x.shape[a] for a in axes), not hermitian)
    half = run("rfft", x, dim=axes[-1], scale=scale)
    if hermitian:
        return fft_axes(run("conj_physical", half), axes[:-1], False, 1.0)
    return fft_axes(half, axes[:-1], True, 1.0)


def _named(x: Tensor, s: Ints | int | None, dim: Ints | int | None) -> tuple[list[int], list[int]]:
    """The axes of a transform, and the extents that are asked of them (none: their own)."""
    extents = None if s is None else [s] if isinstance(s, int) else list(s)
    dims = [dim] if isinstance(dim, int) else dim
    if dims is None:
        dims = range(x.ndim) if extents is None else range(x.ndim - len(extents), x.ndim)
    axes = [axis_of(d, x.ndim) for d in dims]
    if not axes or len(set(axes)) != len(axes) or (extents is not None and len(extents) != len(axes)):
        raise Refused(f"axes {list(dims)} and extents {extents} do not fit")
    return axes, extents or []


def _sized(x: Tensor, axes: Ints, extents: Ints) -> Tensor:
    for axis, n in zip(axes, extents, strict=False):
        x = fitted(x, axis, None if n == -1 else n)
    return x


def _inverse_real(
    self: Any,
    s: Ints | None = None,
    dim: Ints | int | None = None,
    norm: str | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Reals of half a spectrum along several axes; `hermitian`: the forward transform, hfftn."""
    x = wide(tensor(self), True)
    axes, extents = _named(x, s, dim)
    last = 2 * (x.shape[axes[-1]] - 1) if not extents or extents[-1] == -1 else extents[-1]
    x = _sized(x, axes[:-1], extents[:-1])
    if last < 1:
        raise Refused(f"at least one number is wanted, not {last}")
    x = fitted(x, axes[-1], last // 2 + 1)
    count = math.prod(x.shape[a] for a in axes[:-1]) * last
    scale = fftn_scale(norm, count, hermitian)
    x = fft_axes(x, axes[:-1], hermitian, 1.0)
    x = run("conj_physical", x) if hermitian else x
    return run("irfft", x, dim=axes[-1], length=last, scale=scale)


def _spectra(name: str, transform: Any, hermitian: bool) -> dict[str, Front]:
    return {
        f"aten.fft_{name}n.default": lambda self, s=None, dim=None, norm=None: transform(
            self, s, dim, norm, hermitian
        ),
        f"aten.fft_{name}2.default": lambda self, s=None, dim=(-2, -1), norm=None: transform(
            self, s, dim, norm, hermitian
        ),
    } | (
        {
            f"aten.fft_{name}.default": lambda self, n=None, dim=-1, norm=None: transform(
                self, None if n is None else [n], [dim], norm, True
            )
        }
        if hermitian
        else {}
    )


def _window(window: Any, length: int, n_fft: int, dtype: str) -> Tensor:
    """A window in the middle of zeros."""
    w = full((length,), 1, dtype) if window is None else tensor(window)
    if w.ndim != 1 or w.shape[0] != length:
        raise Refused(f"`window` must be {length} numbers, it has shape {list(w.shape)}")
    before = (n_fft - length) // 2
    return run("constant_pad", w, before=[before], after=[n_fft - length - before]) if length < n_fft else w


def _stft(
    self: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """(batch, frequency, frame), or its parts side by side."""
    given = tensor(self)
    if given.ndim not in (1, 2):
        raise Refused(f"a signal or a batch of them is wanted, got rank {given.ndim}")
    x = given if given.ndim == 2 else given.unsqueeze(0)
    hop, length = (
        n_fft // 4 if hop_length is None else hop_length,
        n_fft if win_length is None else win_length,
    )
    b, total = x.shape
    if not 0 < n_fft <= total or hop < 1 or not 0 < length <= n_fft:
        raise Refused(f"windows of {length} in {n_fft} every {hop} of {total} numbers")
    frames = 1 + (total - n_fft) // hop
    s = x.strides
    windows = x.as_strided([b, frames, n_fft], [s[0], s[1] * hop, s[1]], x.offset)
    if window is not None or length < n_fft:
        windows = _mul(windows, _window(window, length, n_fft, x.dtype if x.dtype not in _COMPLEX else "f32"))
    windows = run("contiguous", windows)
    real = windows.dtype not in _COMPLEX
    half = real if onesided is None else onesided
    if half and not real:
        raise Refused("`onesided` is of reals")
    scale = n_fft**-0.5 if normalized else 1.0
    if half:
        out = run("rfft", wide(windows, False), dim=2, scale=scale)
    else:
        out = run("fft", wide(windows, True), dim=2, scale=scale, forward=True)
    out = run("contiguous", out.transpose(1, 2))
    out = out if given.ndim == 2 else out[0]
    if return_complex is False or (return_complex is None and real and window is None):
        return run("view_as_real", out)
    return out


def _stft_centred(
    self: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    x = tensor(self)
    if center:
        op = {"reflect": "reflection_pad", "replicate": "replication_pad", "circular": "circular_pad"}
        if pad_mode not in (*op, "constant"):
            raise Refused(f"`pad_mode` {pad_mode} is not known")
        half = n_fft // 2
        amounts = {"before": [0] * (x.ndim - 1) + [half], "after": [0] * (x.ndim - 1) + [half]}
        x = run(op.get(pad_mode, "constant_pad"), x, **amounts)
    return _stft(x, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)


def _istft(
    self: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Windows laid over each other, each weighed by the window, over the sum of its squares."""
    given = tensor(self)
    if given.dtype not in _COMPLEX or given.ndim not in (2, 3):
        raise Refused("a complex spectrum (frequency, frame), or a batch of them, is wanted")
    x = given if given.ndim == 3 else given.unsqueeze(0)
    hop, size = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    bins, frames = x.shape[1:]
    half = (bins != n_fft) if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if half else n_fft) or not 0 < hop <= size <= n_fft:
        raise Refused(f"{bins} frequencies for windows of {size} in {n_fft} every {hop}")
    real = {"c64": "f32", "c128": "f64"}[x.dtype]
    w = _window(window, size, n_fft, real)
    x = run("contiguous", x.transpose(1, 2))
    scale = n_fft**-0.5 if normalized else 1 / n_fft
    if return_complex:
        if half:
            raise Refused("half a spectrum is one of reals")
        parts = run("fft", x, dim=2, scale=scale, forward=False)
    else:
        parts = run("irfft", x if half else x[:, :, : n_fft // 2 + 1], dim=2, length=n_fft, scale=scale)
    parts = _mul(parts, w)
    total = n_fft + hop * (frames - 1)
    squares = _mul(w, w).unsqueeze(0).expand([frames, n_fft])
    out, weights = _overlaid(parts, hop, total), _overlaid(squares.unsqueeze(0), hop, total)
    begin = n_fft // 2 if center else 0
    end = begin + length if length is not None else total - begin if center else total
    shown = min(end, total)
    y, norm = out[:, begin:shown], weights[:, begin:shown]
    sizes = run("hypot", run("real", norm), run("imag", norm)) if norm.dtype in _COMPLEX else run("abs", norm)
    if norm.size and not bool(run("all", run("gt", sizes, 1e-11)).item()):
        raise Refused("`window` leaves out numbers: the sum of its squares is zero somewhere")
    y = _div(y, norm)
    if end > total:
        y = run("constant_pad", y, before=[0, 0], after=[0, end - total])
    return y if given.ndim == 3 else y[0]


def _overlaid(parts: Tensor, hop: int, total: int) -> Tensor:
    """(batch, frame, n) added up at every `hop`."""
    b, frames, n = parts.shape
    places = _add(
        _mul(run("arange", start=0, end=frames, step=1, dtype="i64").unsqueeze(1), hop),
        run("arange", start=0, end=n, step=1, dtype="i64"),
    )
    flat = run("contiguous", parts).reshape([b, frames * n])
    spread = places.reshape([1, frames * n]).expand([b, frames * n])
    return run("scatter_add", full((b, total), 0, parts.dtype), spread, flat, dim=1)


STATISTICS: dict[str, Front] = {
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_forward_only.default": _embedding_bag,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten.combinations.default": _combinations,
    "aten.corrcoef.default": _corrcoef,
    "aten.cov.default": _cov,
    "aten.cumulative_trapezoid.dx": _cumulative,
    "aten.cumulative_trapezoid.x": _cumulative_at,
    "aten.embedding_bag.default": _embedding_bag,
    "aten.embedding_bag.padding_idx": _embedding_bag,
    **_spectra("hfft", _inverse_real, True),
    **_spectra("ihfft", _fftn_real, True),
    **_spectra("irfft", _inverse_real, False),
    **_spectra("rfft", _fftn_real, False),
    **{
        f"aten.gradient.{which}": _gradient_by
        for which in (
            "array",
            "scalararray",
            "scalarint",
            "scalarrayarray",
            "scalarrayint",
            "tensorarray",
            "tensorarrayint",
        )
    },
    "aten.histogram.bin_ct": _histogram_by,
    "aten.histogram.bins_tensor": _histogram_at,
    "aten.istft.default": _istft,
    **{f"aten.nanquantile.{which}": partial(_quantile, True) for which in ("default", "scalar")},
    **{f"aten.quantile.{which}": partial(_quantile, False) for which in ("default", "scalar")},
    "aten.segment_reduce.default": _segment_reduce,
    "aten.stft.center": _stft_centred,
    "aten.stft.default": _stft,
    "aten.sum_to_size.default": _sum_to_size,
    "aten.trapezoid.x": _trapezoid_at,
}
