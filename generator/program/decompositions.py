"""Decompositions of our own: overloads that one set of arguments makes one operator, and others several.

`torch_compat.decompose` puts them beside core ATen's.  A decomposition that answers NotImplemented leaves the call as
it is: those arguments are what a row of the table takes.  What is decomposed is written in torch, over traced tensors,
so extents may be symbolic.

May import: opwright.arguments; torch, where `own` is called.  To add one: a function, and its line in `own`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arguments import ints

#: ATen's `normalization` of a transform: what a sum over n terms is divided by.
_NONE, _ROOT, _ALL = 0, 1, 2


def own(torch: Any) -> Mapping[Any, Callable[..., Any]]:
    """By overload."""
    aten = torch.ops.aten
    algebra = _Algebra(torch)
    return {
        aten._linalg_det.default: algebra.det,
        aten._linalg_slogdet.default: algebra.slogdet,
        aten._linalg_solve_ex.default: algebra.solve,
        aten.cholesky_solve.default: algebra.cholesky_solve,
        aten.linalg_cholesky_ex.default: algebra.cholesky,
        aten.linalg_householder_product.default: algebra.reflected,
        aten.linalg_inv_ex.default: algebra.inverse,
        aten.linalg_matrix_exp.default: algebra.exponential,
        aten.linalg_qr.default: algebra.qr,
        aten.grid_sampler_2d.default: lambda *a: _grid(torch, *a),
        aten.avg_pool2d.default: lambda *a, **k: _avg_pool(torch, 2, *a, **k),
        aten.avg_pool3d.default: lambda *a, **k: _avg_pool(torch, 3, *a, **k),
        aten.fake_quantize_per_tensor_affine_cachemask.default: lambda *a: _fake_quantised(torch, *a),
        aten.fake_quantize_per_channel_affine_cachemask.default: (
            lambda *a: _fake_quantised_channels(torch, *a)
        ),
        aten.abs.default: lambda x: torch.hypot(x.real, x.imag) if x.is_complex() else NotImplemented,
        aten._conj.default: lambda x: _conjugate(torch, x),
        aten._conj_physical.default: lambda x: _conjugate(torch, x),
        aten.index_reduce.default: lambda *a, **k: _index_reduce(torch, *a, **k),
        aten._embedding_bag.default: lambda *a, **k: _embedding_bag(torch, *a, **k),
        aten._embedding_bag_forward_only.default: lambda *a, **k: _embedding_bag(torch, *a, **k),
        aten.as_strided_scatter.default: lambda *a: _strided_scatter(torch, *a),
        aten.segment_reduce.default: lambda *a, **k: _segment_reduce(torch, *a, **k),
        aten._ctc_loss.Tensor: lambda *a: _ctc_loss(torch, *a),
        **_windows(torch),
        aten._int_mm.default: lambda a, b: a.to(torch.int32) @ b.to(torch.int32),
        aten._upsample_bilinear2d_aa.default: lambda *a: _filtered(torch, 1, _triangle, *a),
        aten._upsample_bicubic2d_aa.default: lambda *a: _filtered(torch, 2, _half_cubic, *a),
        aten.diagonal_scatter.default: lambda *a, **k: _diagonal_scatter(torch, *a, **k),
        aten._fft_c2c.default: lambda *a: _c2c(torch, *a),
        aten._fft_r2c.default: lambda *a: _r2c(torch, *a),
        aten._fft_c2r.default: lambda *a: _c2r(torch, *a),
    }


def _scaled(torch: Any, y: Any, normalization: int, extents: Sequence[Any]) -> Any:
    """A transform over these extents, of which y is the plain sum."""
    n: Any = 1
    for extent in extents:
        n = n * extent
    if normalization == _ALL:
        return y / n
    if normalization == _ROOT:
        return y / torch.sqrt(torch.full((), n, dtype=y.real.dtype if y.is_complex() else y.dtype))
    return y


def _c2c(torch: Any, x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    if len(dim) == 1 and normalization == _NONE:
        return NotImplemented
    y = x
    for d in dim:
        y = torch.ops.aten._fft_c2c.default(y, [d], _NONE, forward)
    return _scaled(torch, y, normalization, [x.shape[d] for d in dim])


def _r2c(torch: Any, x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not onesided:
        return torch.ops.aten._fft_c2c.default(
            torch.complex(x, torch.zeros_like(x)), dim, normalization, True
        )
    if len(dim) == 1 and normalization == _NONE:
        return NotImplemented
    y = torch.ops.aten._fft_r2c.default(x, [dim[-1]], _NONE, True)
    for d in dim[:-1]:
        y = torch.ops.aten._fft_c2c.default(y, [d], _NONE, True)
    return _scaled(torch, y, normalization, [x.shape[d] for d in dim])


def _c2r(torch: Any, x: Any, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    if len(dim) == 1 and normalization == _NONE:
        return NotImplemented
    y = x
    for d in dim[:-1]:
        y = torch.ops.aten._fft_c2c.default(y, [d], _NONE, False)
    y = torch.ops.aten._fft_c2r.default(y, [dim[-1]], _NONE, last_dim_size)
    return _scaled(torch, y, normalization, [*(x.shape[d] for d in dim[:-1]), last_dim_size])


_REFLECTION, _BORDER = 2, 1
_CUBIC = 2


def _grid(torch: Any, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    if mode == _CUBIC and padding != _REFLECTION:
        return _cubic_grid(torch, x, grid, padding, align)
    return _reflected_grid(torch, x, grid, mode, padding, align)


def _cubic_grid(torch: Any, x: Any, grid: Any, padding: int, align: bool) -> Any:
    """Each value from sixteen around it, by the cubic of a = -3/4; one beyond an edge is 0, or the edge's own."""
    (batch, channels), sides = x.shape[:2], (x.shape[-1], x.shape[-2])
    weights, places, inside = [], [], []
    for k, n in enumerate(sides):
        g = grid[..., k]
        at = (g + 1) / 2 * (n - 1) if align else ((g + 1) * n - 1) / 2
        low = at.floor()
        tap = torch.arange(4) - 1
        far = (at - low).unsqueeze(-1) - tap
        far = far.abs()
        near = ((1.25 * far - 2.25) * far) * far + 1
        beyond = ((-0.75 * far + 3.75) * far - 6) * far + 3
        weights.append(torch.where(far <= 1, near, beyond))
        place = low.long().unsqueeze(-1) + tap
        places.append(place.clamp(0, n - 1))
        inside.append((place >= 0) & (place < n))
    (across, down), (of_x, of_y) = places, weights
    index = (down.unsqueeze(-1) * sides[0] + across.unsqueeze(-2)).reshape(batch, 1, -1)
    taken = x.reshape(batch, channels, -1).gather(2, index.expand(batch, channels, -1))
    taken = taken.reshape(batch, channels, *grid.shape[1:3], 4, 4)
    if padding != _BORDER:
        seen = inside[1].unsqueeze(-1) & inside[0].unsqueeze(-2)
        taken = torch.where(seen.unsqueeze(1), taken, torch.zeros((), dtype=x.dtype))
    return (taken * of_y.unsqueeze(-1).unsqueeze(1) * of_x.unsqueeze(-2).unsqueeze(1)).sum((-2, -1))


def _reflected_grid(torch: Any, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    """Positions beyond an edge are thrown back from it, and then none is beyond one."""
    if padding != _REFLECTION or mode == _CUBIC:
        return NotImplemented
    inside = []
    for k, n in enumerate((x.shape[-1], x.shape[-2])):
        g = grid[..., k]
        at = (g + 1) / 2 * (n - 1) if align else ((g + 1) * n - 1) / 2
        low, span = (0.0, n - 1) if align else (-0.5, n)
        far = (at - low).abs()
        rest, turns = torch.fmod(far, span), torch.floor(far / span)
        at = torch.where(torch.remainder(turns, 2) == 0, rest, span - rest) + low
        at = at.clamp(min=0).minimum(torch.full((), n - 1, dtype=at.dtype))
        inside.append(at * 2 / (n - 1) - 1 if align else (at * 2 + 1) / n - 1)
    return torch.ops.aten.grid_sampler_2d.default(x, torch.stack(inside, -1), mode, _BORDER, align)


def _avg_pool(
    torch: Any,
    n: int,
    x: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Sums of windows by a divisor of the caller's."""
    if divisor_override is None:
        return NotImplemented
    k, p = ints(kernel_size, n), ints(padding, n)
    s = k if not isinstance(stride, int) and not len(stride) else ints(stride, n)
    after = []
    for d in range(n):
        extent = x.shape[d - n]
        count = (extent + 2 * p[d] - k[d]) // s[d] + 1
        if ceil_mode:
            count = -(-(extent + 2 * p[d] - k[d]) // s[d]) + 1
            count = count - 1 if (count - 1) * s[d] >= extent + p[d] else count
        after.append((count - 1) * s[d] + k[d] - extent - p[d])
    y = torch.nn.functional.pad(x, [e for d in range(n - 1, -1, -1) for e in (p[d], after[d])])
    for d in range(n):
        y = y.unfold(x.dim() - n + d, k[d], s[d])
    return y.sum(list(range(-n, 0))) / divisor_override


def _fake_quantised(torch: Any, x: Any, scale: float, zero: int, low: int, high: int) -> Any:
    """By the reciprocal of the scale in f32, as PyTorch's kernel."""
    inverse = 1 / torch.full((), scale, dtype=torch.float32)
    q = torch.round(x * inverse) + zero
    return _straight_through(
        torch, x, (_within(torch, q, low, high) - zero) * scale, (q >= low) & (q <= high)
    )


def _within(torch: Any, q: Any, low: int, high: int) -> Any:
    """What is no number is the lowest, as in PyTorch's kernels."""
    return torch.where(q >= low, q.clamp(max=high), float(low))


def _straight_through(torch: Any, x: Any, y: Any, inside: Any) -> tuple[Any, Any]:
    """y, whose gradient is x's where that is inside.  Nothing is rounded: y is no further than half a step of the scale
    from such an x, so that the difference of the two is exact (Sterbenz), or nothing."""
    within = torch.where(inside, x, 0.0)
    return within + (y - within).detach(), inside


def _fake_quantised_channels(
    torch: Any, x: Any, scale: Any, zero: Any, axis: int, low: int, high: int
) -> Any:
    shape = [1] * x.dim()
    shape[axis] = -1
    s, z = scale.reshape(shape), zero.reshape(shape)
    q = torch.round(x * (1 / s)) + z
    return _straight_through(torch, x, (_within(torch, q, low, high) - z) * s, (q >= low) & (q <= high))


def _triangle(torch: Any, far: Any) -> Any:
    return (1 - far).clamp(min=0)


def _half_cubic(torch: Any, far: Any) -> Any:
    """The cubic of a = -1/2."""
    near, beyond = (1.5 * far - 2.5) * far * far + 1, ((-0.5 * far + 2.5) * far - 4) * far + 2
    return torch.where(far < 1, near, torch.where(far < 2, beyond, 0.0))


def _filtered(
    torch: Any,
    reach: int,
    kernel: Callable[[Any, Any], Any],
    x: Any,
    size: Sequence[Any],
    align: bool,
    scale_h: float | None = None,
    scale_w: float | None = None,
) -> Any:
    """Resampling where the caller tells how much larger the result is, which extents alone only tell about: for each
    axis a matrix, whose rows are the filter's shares of what it covers."""
    if scale_h is None and scale_w is None:
        return NotImplemented
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32

    def shares(n: Any, out: Any, scale: float | None) -> Any:
        if align:
            step = (n - 1) / (out - 1) if out > 1 else 0.0
        else:
            step = n / out if scale is None or scale <= 0 else 1 / scale
        span = max(step, 1.0)
        middle = (torch.arange(out).to(wide) + 0.5).unsqueeze(1) * step
        place = torch.arange(n).to(wide)
        low = (middle - reach * span + 0.5).trunc().clamp(min=0)
        high = (middle + reach * span + 0.5).trunc().clamp(max=n)
        far = ((place - middle + 0.5) / span).abs()
        f = torch.where((low <= place) & (place < high), kernel(torch, far), 0.0)
        return f / f.sum(1, keepdim=True)

    rows, columns = shares(x.shape[-2], size[0], scale_h), shares(x.shape[-1], size[1], scale_w)
    return (rows @ (x.to(wide) @ columns.T)).to(x.dtype)


def _diagonal_scatter(torch: Any, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A choice between two: each row of the result has its place of the diagonal at hand."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    length = source.shape[-1]
    if isinstance(length, int) and not length:
        return x.clone()
    row, column = torch.arange(rows), torch.arange(columns)
    on = column - row.unsqueeze(1) == offset
    at = (row + min(offset, 0)).clamp(0, length - 1)
    out = torch.where(on, source.index_select(-1, at).unsqueeze(-1), moved)
    return out.movedim((-2, -1), (dim1, dim2))


#: Steps over the rows of a matrix that are written out; a larger one keeps its call.
MOST_ROWS = 16
#: A matrix exponential's: sums of a column's magnitudes up to 2 to the power of the first; terms that f64 sees.
MOST_HALVINGS, _TERMS = 12, 18


class _Algebra:
    """Matrices by elimination, a step for each row, of which a program holds a constant number: as LAPACK does it, with
    the largest pivot of a column.  What LAPACK says of a matrix that it cannot take apart is not said: a pivot of 0
    gives infinities."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def rows(self, a: Any) -> int:
        """How many; 0: not to be written out."""
        n = a.shape[-2]
        square = (
            isinstance(n, int) and isinstance(a.shape[-1], int) and n == a.shape[-1] and not a.is_complex()
        )
        return n if square and n <= MOST_ROWS else 0

    def info(self, a: Any) -> Any:
        return self.torch.zeros(a.shape[:-2], dtype=self.torch.int32, device=a.device)

    def eliminated(self, m: Any, n: int) -> tuple[Any, Any, Any]:
        """The first n columns of m (n rows) made upper triangular: (m, where each row came from, the sign of that)."""
        torch = self.torch
        place = torch.arange(n, device=m.device)
        order = place.expand(m.shape[:-1])
        sign = torch.ones(m.shape[:-2], dtype=m.dtype, device=m.device)
        for k in range(n - 1):
            best = m[..., k:, k].abs().argmax(-1, keepdim=True) + k
            swap = torch.where(place == k, best, torch.where(place == best, k, place))
            m = torch.gather(m, -2, swap.unsqueeze(-1).expand(m.shape))
            order = torch.gather(order, -1, swap)
            sign = torch.where(best.squeeze(-1) == k, sign, -sign)
            factor = m[..., k + 1 :, k : k + 1] / m[..., k : k + 1, k : k + 1]
            rest = m[..., k + 1 :, :] - factor * m[..., k : k + 1, :]
            m = torch.cat([m[..., : k + 1, :], rest], -2)
        return m, order, sign

    def back(self, u: Any, b: Any, n: int, upper: bool) -> Any:
        """x with u x = b, for a triangular u."""
        torch = self.torch
        x: list[Any] = [None] * n
        for k in range(n - 1, -1, -1) if upper else range(n):
            row = b[..., k : k + 1, :]
            done = range(k + 1, n) if upper else range(k)
            if len(done):
                known = torch.cat([x[j] for j in done], -2)
                row = row - u[..., k : k + 1, done[0] : done[-1] + 1] @ known
            x[k] = row / u[..., k : k + 1, k : k + 1]
        return torch.cat(x, -2)

    def solve(self, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
        n = self.rows(a)
        if not n:
            return NotImplemented
        vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
        wide = b.unsqueeze(-1) if vector else b
        mat = a if left else a.mT
        wide = wide if left else wide.mT
        batch = self.torch.broadcast_shapes(mat.shape[:-2], wide.shape[:-2])
        both = [t.expand(*batch, *t.shape[-2:]) for t in (mat, wide)]
        m, order, _ = self.eliminated(self.torch.cat(both, -1), n)
        x = self.back(m[..., :n], m[..., n:], n, True)
        x = x if left else x.mT
        x = x.squeeze(-1) if vector else x
        return x, m[..., :n], (order[..., :n] + 1).to(self.torch.int32), self.info(a)

    def inverse(self, a: Any, *, check_errors: bool = False) -> Any:
        n = self.rows(a)
        if not n:
            return NotImplemented
        one = self.torch.eye(n, dtype=a.dtype, device=a.device).expand(a.shape)
        return self.solve(a, one)[0], self.info(a)

    def det(self, a: Any) -> Any:
        n = self.rows(a)
        if not n:
            return NotImplemented
        m, order, sign = self.eliminated(a, n)
        value = sign * m.diagonal(dim1=-2, dim2=-1).prod(-1)
        return value, m, (order + 1).to(self.torch.int32)

    def slogdet(self, a: Any) -> Any:
        n = self.rows(a)
        if not n:
            return NotImplemented
        m, order, sign = self.eliminated(a, n)
        d = m.diagonal(dim1=-2, dim2=-1)
        return sign * d.sign().prod(-1), d.abs().log().sum(-1), m, (order + 1).to(self.torch.int32)

    def cholesky(self, a: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
        """Column by column."""
        torch = self.torch
        n = self.rows(a)
        if not n:
            return NotImplemented
        a = a.mT if upper else a
        columns: list[Any] = []
        for k in range(n):
            below = a[..., k:, k : k + 1]
            if columns:
                left = torch.cat(columns, -1)
                below = below - left[..., k:, :] @ left[..., k : k + 1, :].mT
            column = below / below[..., :1, :].sqrt()
            above = torch.zeros((*a.shape[:-2], k, 1), dtype=a.dtype, device=a.device)
            columns.append(torch.cat([above, column], -2) if k else column)
        out = torch.cat(columns, -1)
        return (out.mT if upper else out), self.info(a)

    def cholesky_solve(self, b: Any, a: Any, upper: bool = False) -> Any:
        n = self.rows(a)
        if not n:
            return NotImplemented
        low = a.mT if upper else a
        return self.back(low.mT, self.back(low, b, n, False), n, True)

    def exponential(self, a: Any) -> Any:
        """Halved until its powers vanish, the series summed, and squared again as often."""
        torch = self.torch
        if not self.rows(a):
            return NotImplemented
        size = a.abs().sum(-2).amax(-1)[..., None, None]
        halvings = torch.log2(size.clamp(min=1)).ceil()
        for k in range(MOST_HALVINGS):
            a = torch.where(halvings > k, a * 0.5, a)
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        out = one + a / _TERMS
        for k in range(_TERMS - 1, 0, -1):
            out = one + a @ out / k
        for k in range(MOST_HALVINGS):
            out = torch.where(halvings > k, out @ out, out)
        return out

    def reflected(self, a: Any, tau: Any) -> Any:
        """The columns of the product of reflections: each is 1 in its row, with the column of a below it."""
        torch = self.torch
        m, n = a.shape[-2:]
        steps = tau.shape[-1]
        if any(not isinstance(x, int) or x > MOST_ROWS for x in (m, n, steps)) or a.is_complex():
            return NotImplemented
        out = torch.eye(m, dtype=a.dtype, device=a.device)[:, :n].expand(a.shape)
        row = torch.arange(m, device=a.device)
        for k in range(steps - 1, -1, -1):
            v = torch.where(row > k, a[..., k], (row == k).to(a.dtype)).unsqueeze(-1)
            out = out - tau[..., k, None, None] * v @ (v.mT @ out)
        return out

    def qr(self, a: Any, mode: str = "reduced") -> Any:
        """By reflections, whose signs are LAPACK's: a column's first entry turns to the other side."""
        torch = self.torch
        m, n = a.shape[-2:]
        steps = [x for x in (m, n) if isinstance(x, int)]
        if len(steps) < 2 or max(steps) > MOST_ROWS or mode == "complete" or a.is_complex():
            return NotImplemented
        k = min(m, n)
        r, q = a, torch.eye(m, dtype=a.dtype, device=a.device).expand(*a.shape[:-1], m)
        for j in range(min(m - 1, n)):
            x = r[..., j:, j : j + 1]
            size = torch.linalg.vector_norm(x, dim=-2, keepdim=True)
            first = torch.where(x[..., :1, :] < 0, x[..., :1, :] - size, x[..., :1, :] + size)
            v = torch.cat([first, x[..., 1:, :]], -2)
            v = v / torch.linalg.vector_norm(v, dim=-2, keepdim=True)
            rest = r[..., j:, :] - 2 * v @ (v.mT @ r[..., j:, :])
            r = torch.cat([r[..., :j, :], rest], -2) if j else rest
            side = q[..., j:] - 2 * (q[..., j:] @ v) @ v.mT
            q = torch.cat([q[..., :j], side], -1) if j else side
        return q[..., :k], r[..., :k, :].triu()


def _conjugate(torch: Any, x: Any) -> Any:
    return torch.complex(x.real, -x.imag) if x.is_complex() else NotImplemented


def _index_reduce(
    torch: Any, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """A whole slice goes to one place: every element of it does."""
    if x.dim() == 0:
        return NotImplemented
    one = [1] * x.dim()
    one[dim] = -1
    places = index.to(torch.int64).reshape(one).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


#: `mode` of a bag.
_MEAN, _MAX = 1, 2


def _embedding_bag(
    torch: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Rows of the table, brought together by the bag that their place falls in; a bag of nothing is 0.  The results
    after the first are what a backward pass reads."""
    starts = offsets[:-1] if include_last_offset else offsets
    place = torch.arange(indices.shape[0], device=indices.device, dtype=starts.dtype)
    bag = (torch.bucketize(place, starts, right=True) - 1).to(torch.int64)
    rows = torch.ops.aten.embedding.default(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    kept = torch.ones_like(place) if padding_idx < 0 else (indices != padding_idx).to(place.dtype)
    count = place.new_zeros(starts.shape[0]).index_add(0, bag, kept)
    empty = weight.new_zeros(starts.shape[0], weight.shape[1])
    if mode == _MAX:
        low = rows.masked_fill((kept == 0).unsqueeze(1), float("-inf"))
        best = empty.scatter_reduce(0, bag.unsqueeze(1).expand(low.shape), low, "amax", include_self=False)
        out = best.masked_fill((count == 0).unsqueeze(1), 0.0)
    else:
        out = empty.index_add(0, bag, rows.masked_fill((kept == 0).unsqueeze(1), 0.0))
        out = out / count.clamp(min=1).unsqueeze(1) if mode == _MEAN else out
    return out, bag, count, starts


def _strided_scatter(
    torch: Any, x: Any, src: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Any:
    """`src` in the places of x's memory that the strides count."""
    if not x.is_contiguous():
        return NotImplemented
    at = torch.full((), offset or 0, dtype=torch.int64, device=x.device)
    for n, step in zip(size, stride, strict=True):
        at = at.unsqueeze(-1) + torch.arange(n, device=x.device) * step
    return x.reshape(-1).index_put((at.reshape(-1),), src.reshape(-1)).reshape(x.shape)


#: What a segment of nothing is, and how its elements meet.
_SEGMENTS = {"sum": (0.0, "sum"), "mean": (0.0, "sum"), "prod": (1.0, "prod")}
_SEGMENTS |= {"max": (float("-inf"), "amax"), "min": (float("inf"), "amin")}


def _segment_reduce(
    torch: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Rows that follow each other, brought together by the segment that their place falls in."""
    if axis != 0 or indices is not None or initial is not None or reduce not in _SEGMENTS:
        return NotImplemented
    if lengths is None:
        lengths = offsets.diff()
    if lengths.dim() != 1:
        return NotImplemented
    ends = lengths.cumsum(0)
    place = torch.arange(data.shape[0], device=data.device, dtype=ends.dtype)
    segment = torch.bucketize(place, ends, right=True).to(torch.int64)
    nothing, how = _SEGMENTS[reduce]
    rest = data.shape[1:]
    out = torch.full((lengths.shape[0], *rest), nothing, dtype=data.dtype, device=data.device)
    at = segment.reshape(-1, *(1 for _ in rest)).expand(data.shape)
    out = torch.scatter_reduce(out, 0, at, data, how)
    return out / lengths.reshape(-1, *(1 for _ in rest)) if reduce == "mean" else out


def _ctc_loss(
    torch: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """With targets in rows, of one integer dtype.  What is infinite is made 0 by whoever asked for that."""
    given = (targets, input_lengths, target_lengths)
    if targets.dim() == 2 and not zero_infinity and all(t.dtype == targets.dtype for t in given):
        return NotImplemented
    targets, input_lengths, target_lengths = (t.to(torch.int64) for t in given)
    if targets.dim() == 1:  # one after the other
        most = targets.shape[0]
        start = target_lengths.cumsum(0) - target_lengths
        at = start.unsqueeze(1) + torch.arange(most, device=targets.device)
        targets = targets[at.clamp(max=most - 1)]
    return torch.ops.aten._ctc_loss.Tensor(log_probs, targets, input_lengths, target_lengths, blank, False)


def _windows(torch: Any) -> Mapping[Any, Callable[..., Any]]:
    """Windows by their formulas."""
    aten = torch.ops.aten

    def cosines(mean: float, *shares: float) -> Callable[[Any], Any]:
        def of(t: Any) -> Any:
            waves = ((-1) ** k * share * torch.cos(t * (k * math.tau)) for k, share in enumerate(shares, 1))
            return sum(waves, mean)

        return of

    def bartlett() -> Callable[[Any], Any]:
        return lambda t: 1 - (2 * t - 1).abs()

    def kaiser(beta: float = 12.0) -> Callable[[Any], Any]:
        i0 = torch.special.i0
        top = torch.full((), beta, dtype=torch.float64)
        return lambda t: i0(beta * (1 - (2 * t - 1) ** 2).clamp(min=0).sqrt()) / i0(top)

    def made(formula: Callable[..., Callable[[Any], Any]]) -> Callable[..., Any]:
        def window(n: int, periodic: bool = True, *shape: float, dtype: Any = None, **_: Any) -> Any:
            dtype = torch.get_default_dtype() if dtype is None else dtype
            if n <= 1:
                return torch.ones(n, dtype=dtype)
            t = torch.arange(n, dtype=torch.float64) / (n if periodic else n - 1)
            return formula(*shape)(t).to(dtype)

        return window

    def hamming(alpha: float = 0.54, beta: float = 0.46) -> Callable[[Any], Any]:
        return cosines(alpha, beta)

    formulas = {
        "hamming": hamming,
        "blackman": lambda: cosines(0.42, 0.5, 0.08),
        "bartlett": bartlett,
        "kaiser": kaiser,
    }
    return {
        getattr(packet, overload): made(formula)
        for name, formula in formulas.items()
        for packet in (getattr(aten, f"{name}_window"),)
        for overload in packet.overloads()
        if overload in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta")
    }
