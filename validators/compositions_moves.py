"""What operators that move, count, pad and cast mean, said with PyTorch's: more functions like compositions.py's.

For those whose meaning a PyTorch function has that is no overload with the spec's own arguments: a pad of each side, a
flip by flags, results that are as long as the data say.  A spec names one by `reference: compositions.NAME`; how such
a function is called and what it may do is told there.

Run by the process of torch_server.py alone; may import: torch and the standard library.  To add one: a function.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all its users name it

Tensor = Any

# The types that meaning is judged in, and the integers that a call may ask for.
_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f64": torch.float64,
    "c128": torch.complex128,
}

# ---- moves and pads ----------------------------------------------------------------------------------------------


def flip(x: Tensor, *, flags: list[int]) -> Any:
    return torch.flip(x, [k for k, flag in enumerate(flags) if flag])


def roll(x: Tensor, *, shifts: list[int]) -> Any:
    return torch.roll(x, shifts, list(range(x.dim()))) if shifts else x


def repeat(x: Tensor, *, times: list[int]) -> Any:
    return x.repeat(times)


def diag_embed(x: Tensor, *, offset: int) -> Any:
    return torch.diag_embed(x, offset)


def slice_scatter(x: Tensor, s: Tensor, *, dim: int, start: int, step: int) -> Any:
    """PyTorch wants to be told an end: the one after the last place that s has."""
    size = x.shape[dim]
    first = slice(start, None).indices(size)[0]
    end = first + max(s.shape[dim] - 1, 0) * step + min(s.shape[dim], 1)
    return torch.slice_scatter(x, s, dim, first, end, step)


def constant_pad(x: Tensor, *, before: list[int], after: list[int], value: Any) -> Any:
    pairs = [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]
    return F.pad(x, pairs, value=value)


def _padded(x: Tensor, before: list[int], after: list[int], mode: str) -> Tensor:
    """Axis by axis.  The positions are padded, for PyTorch pads no integers by these modes, and nothing of size 0."""
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            places = torch.arange(x.shape[axis], dtype=torch.float64)[None, None]
            x = x.index_select(axis, F.pad(places, (b, a), mode=mode).flatten().long())
    return x


def reflection_pad(x: Tensor, *, before: list[int], after: list[int]) -> Any:
    return _padded(x, before, after, "reflect")


def replication_pad(x: Tensor, *, before: list[int], after: list[int]) -> Any:
    return _padded(x, before, after, "replicate")


def circular_pad(x: Tensor, *, before: list[int], after: list[int]) -> Any:
    return _padded(x, before, after, "circular")


# ---- windows and grids -------------------------------------------------------------------------------------------


def fold(x: Tensor, *, out: list[int], dilation: list[int], padding: list[int], stride: list[int]) -> Any:
    """PyTorch's is of planes alone: a line is one of height 1."""
    rank = len(out)
    n, c, *rest = x.shape
    size, lead = rest[:rank], 2 - rank
    flat = x.reshape(n, c * math.prod(size), math.prod(rest[rank:]))
    plane = [[1] * lead + list(v) for v in (out, size, dilation, stride)]
    y = F.fold(flat, plane[0], plane[1], plane[2], [0] * lead + padding, plane[3])
    return y.reshape(n, c, *out)


def adaptive_max_pool(x: Tensor, *, out: list[int]) -> Any:
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[len(out) - 1]
    batch, plane = x.shape[: x.dim() - len(out)], x.shape[x.dim() - len(out) :]
    # the batch as PyTorch's batch, not as its channels: of those it takes none only in a batch
    y, indices = pool(x.reshape(math.prod(batch), 1, *plane), out, return_indices=True)
    return y.reshape(*batch, *out), indices.reshape(*batch, *out)


def affine_grid_2d(m: Tensor, *, h: int, w: int, align: bool) -> Any:
    # F.affine_grid's own positions come from torch.linspace, which is off by units of 1 where the middle is 0
    def places(n: int) -> Tensor:
        return (2 * torch.arange(n, dtype=m.dtype) + 1 - n) / (max(n - 1, 1) if align else n)

    x, y = torch.meshgrid(places(w), places(h), indexing="xy")
    points = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    return torch.einsum("hwc,ndc->nhwd", points, m)


# ---- counts and orders -------------------------------------------------------------------------------------------


def bincount(x: Tensor, *, minlength: int) -> Any:
    return torch.bincount(x, minlength=minlength)


def bincount_weighted(x: Tensor, w: Tensor, *, minlength: int) -> Any:
    return torch.bincount(x, w, minlength=minlength)


def histc(x: Tensor, *, bins: int, lo: float, hi: float) -> Any:
    return torch.histc(x, bins, lo, hi)


def repeat_interleave(r: Tensor) -> Any:
    return torch.repeat_interleave(r)


def searchsorted(s: Tensor, x: Tensor, *, right: bool) -> Any:
    """Rows that are not in order are put in order: the spec counts, others bisect.  By NumPy, to which nan is the
    largest; PyTorch's bisection goes right at a nan and left after it."""
    batch = math.prod(s.shape[:-1])
    rows = s.sort(-1).values.reshape(batch, s.shape[-1]).numpy()
    values = x.reshape(batch, x.shape[-1]).numpy()
    found = [
        np.searchsorted(row, v, "right" if right else "left") for row, v in zip(rows, values, strict=True)
    ]
    return torch.from_numpy(np.array(found, np.int64).reshape(x.shape))


def unique(x: Tensor) -> Any:
    """Each nan is a value of its own; which of them is which, PyTorch's sort leaves open: here in x's order."""
    y, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    nan = x.isnan()
    inverse[nan] = inverse[nan].sort().values
    return y, inverse, counts


def unique_consecutive(x: Tensor) -> Any:
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True)


def nms(x: Tensor, many: Tensor, limit: Tensor) -> Any:
    """One box after the other; of one that went away nothing is ruled out.  In the accumulator."""
    keep = torch.arange(x.shape[1]) < many[:, None]
    low, high = x[..., :2], x[..., 2:]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    area = (high.to(wide) - low.to(wide)).prod(-1)
    for t in range(x.shape[1]):
        end = torch.minimum(high[:, t : t + 1], high).to(wide)
        begin = torch.maximum(low[:, t : t + 1], low).to(wide)
        shared = (end - begin).clamp(min=0).prod(-1)
        share = shared / (area[:, t : t + 1] + area - shared)
        over = (shared > 0) & (share > limit.to(wide))
        keep[:, t + 1 :] &= ~(over & keep[:, t : t + 1])[:, t + 1 :]
    return keep


# ---- elements ----------------------------------------------------------------------------------------------------


def cast(x: Tensor, *, dtype: str) -> Any:
    """PyTorch leaves it open what nan, and a number that does not fit, is as an integer: here what scalar.h has for
    it, the lowest i32, or i64, of which narrower ones are the low bits.
    """
    kind = _DTYPES[dtype]
    if x.is_complex() and not kind.is_complex:
        x = x.real
    if not x.is_floating_point() or kind.is_floating_point or kind.is_complex or kind == torch.bool:
        return x.to(kind)
    wide = torch.int32 if kind == torch.int32 else torch.int64
    low = torch.iinfo(wide).min
    fits = (x.trunc() >= low) & (x < -float(low))
    return torch.where(fits, x, 0.0).to(wide).masked_fill(~fits, low).to(kind)


def real(x: Tensor) -> Any:
    return torch.view_as_real(x)[..., 0]


def imag(x: Tensor) -> Any:
    return torch.view_as_real(x)[..., 1]


def isfinite(x: Tensor) -> Any:
    return torch.isfinite(x)


def nan_to_num(x: Tensor, *, instead: float, posinf: float, neginf: float) -> Any:
    return torch.nan_to_num(x, instead, posinf, neginf)


def linalg_cross(a: Tensor, b: Tensor, *, dim: int) -> Any:
    return torch.linalg.cross(a, b, dim=dim)
