"""Decompositions of our own: overloads that one set of arguments makes one operator, and others several.

`torch_compat.decompose` puts them beside core ATen's.  A decomposition that answers NotImplemented leaves the call as
it is: those arguments are what a row of the table takes.  What is decomposed is written in torch, over traced tensors,
so extents may be symbolic.

May import: torch, where `own` is called.  To add one: a function, and its line in `own`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: ATen's `normalization` of a transform: what a sum over n terms is divided by.
_NONE, _ROOT, _ALL = 0, 1, 2


def own(torch: Any) -> Mapping[Any, Callable[..., Any]]:
    """By overload."""
    aten = torch.ops.aten
    return {
        aten.abs.default: lambda x: torch.hypot(x.real, x.imag) if x.is_complex() else NotImplemented,
        aten._conj.default: lambda x: _conjugate(torch, x),
        aten._conj_physical.default: lambda x: _conjugate(torch, x),
        aten.index_reduce.default: lambda *a, **k: _index_reduce(torch, *a, **k),
        aten._embedding_bag.default: lambda *a, **k: _embedding_bag(torch, *a, **k),
        aten._embedding_bag_forward_only.default: lambda *a, **k: _embedding_bag(torch, *a, **k),
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
