"""Strides of views, over symbols.  A layout says which elements of a base value a tensor reads; nothing is copied.

Every rule takes a `Layout` and gives one; `reshape` alone may answer None ("strides do not allow it: copy first"),
also when an equality of extents cannot be proven, because a copy is right whatever the extents are.
The rules are torch's (`torch.Tensor.view` for `reshape`), tested against torch on drawn shapes.

May import: intexpr.  To add a rule: a function here, one line in `overloads.VIEWS`, one case in test_views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .intexpr import IntExpr, floordiv, maximum, minimum, product

__all__ = [
    "Layout",
    "as_strided",
    "contiguous",
    "contiguous_strides",
    "diagonal",
    "expand",
    "is_contiguous",
    "permute",
    "reshape",
    "select",
    "slice_dim",
    "split",
    "squeeze",
    "transpose",
    "unfold",
    "unsqueeze",
    "wrap_dim",
]

ZERO, ONE = IntExpr.of(0), IntExpr.of(1)
Shape = tuple[IntExpr, ...]


@dataclass(frozen=True)
class Layout:
    """Extents, strides and offset in elements of the base value."""

    shape: Shape
    strides: Shape
    offset: IntExpr = ZERO

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> IntExpr:
        return product(self.shape)


def contiguous_strides(shape: Sequence[IntExpr]) -> Shape:
    """Row-major strides, as torch gives them to a fresh tensor (an extent of 0 counts as 1)."""
    out: list[IntExpr] = []
    step = ONE
    for n in reversed(shape):
        out.append(step)
        step = step * (ONE if n.value == 0 else n)
    return tuple(reversed(out))


def contiguous(shape: Sequence[IntExpr]) -> Layout:
    return Layout(tuple(shape), contiguous_strides(shape))


def is_contiguous(x: Layout) -> bool:
    """Row-major without gaps; strides of extents that are 1 do not matter, and nothing does where an extent is 0."""
    if any(n.value == 0 for n in x.shape):
        return True
    step = ONE
    for n, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if n.value == 1:
            continue
        if stride != step:
            return False
        step = step * n
    return True


def wrap_dim(dim: int, rank: int) -> int:
    """A negative dim counts from the end; a scalar takes 0 and -1.  Raises IndexError."""
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dim {dim} of a tensor of rank {rank}")
    return dim + limit if dim < 0 else dim


def permute(x: Layout, dims: Sequence[int]) -> Layout:
    order = [wrap_dim(d, x.rank) for d in dims]
    if sorted(order) != list(range(x.rank)):
        raise ValueError(f"permute {list(dims)} of a tensor of rank {x.rank}")
    return Layout(tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), x.offset)


def transpose(x: Layout, dim0: int, dim1: int) -> Layout:
    order = list(range(x.rank))
    a, b = wrap_dim(dim0, x.rank), wrap_dim(dim1, x.rank)
    if x.rank:
        order[a], order[b] = order[b], order[a]
    return permute(x, order)


def expand(x: Layout, shape: Sequence[IntExpr]) -> Layout:
    """`shape` is the whole result; -1 keeps an extent.  A static extent of 1 that grows gets stride 0."""
    lead = len(shape) - x.rank
    if lead < 0:
        raise ValueError(f"expand of rank {x.rank} to rank {len(shape)}")
    out: list[IntExpr] = list(shape[:lead])
    strides: list[IntExpr] = [ZERO] * lead
    for have, stride, want in zip(x.shape, x.strides, shape[lead:], strict=True):
        if want.value == -1 or want == have:
            out.append(have)
            strides.append(stride)
        elif have.value == 1:
            out.append(want)
            strides.append(ZERO)
        elif have.value is not None and want.value is not None:
            raise ValueError(f"expand of extent {have} to {want}")
        else:  # equal by a guard that the two spellings do not show
            out.append(want)
            strides.append(stride)
    return Layout(tuple(out), tuple(strides), x.offset)


def unsqueeze(x: Layout, dim: int) -> Layout:
    d = wrap_dim(dim, x.rank + 1)
    stride = x.shape[d] * x.strides[d] if d < x.rank else ONE
    return Layout((*x.shape[:d], ONE, *x.shape[d:]), (*x.strides[:d], stride, *x.strides[d:]), x.offset)


def squeeze(x: Layout, dims: Sequence[int] | None = None) -> Layout:
    """Static extents of 1 among `dims` (None: all) go away."""
    chosen = range(x.rank) if dims is None else {wrap_dim(d, x.rank) for d in dims}
    keep = [d for d in range(x.rank) if d not in chosen or x.shape[d].value != 1]
    return Layout(tuple(x.shape[d] for d in keep), tuple(x.strides[d] for d in keep), x.offset)


def select(x: Layout, dim: int, index: IntExpr) -> Layout:
    d = wrap_dim(dim, x.rank)
    if index.value is not None and index.value < 0:
        index = index + x.shape[d]
    return Layout(
        x.shape[:d] + x.shape[d + 1 :], x.strides[:d] + x.strides[d + 1 :], x.offset + index * x.strides[d]
    )


def slice_dim(
    x: Layout, dim: int, start: IntExpr, end: IntExpr, step: int = 1, *, length: IntExpr | None = None
) -> Layout:
    """`x[..., start:end:step, ...]` with Python's clamping.  `length` is the extent that the exporter proved (under
    its guards); without it the clamps are written out.  Raises ValueError on a step below 1.
    """
    if step < 1:
        raise ValueError(f"slice step {step}")
    d = wrap_dim(dim, x.rank)
    size = x.shape[d]

    def absolute(i: IntExpr) -> IntExpr:
        negative = i.value is not None and i.value < 0
        if negative:
            i = i + size
        if length is not None and not (i.value is not None and size.value is not None):
            return i  # in range by the exporter's proof; a negative one that is not shows in `length`
        return minimum(maximum(i, ZERO) if negative else i, size)

    first = absolute(start)
    if length is None:
        last = maximum(absolute(end), first)
        length = -floordiv(first - last, IntExpr.of(step))
    elif length == size and step == 1:
        first = ZERO  # all of it: a start below -size was clamped
    shape, strides = list(x.shape), list(x.strides)
    shape[d], strides[d] = length, strides[d] * step
    return Layout(tuple(shape), tuple(strides), x.offset + first * x.strides[d])


def split(x: Layout, dim: int, sizes: Sequence[IntExpr]) -> list[Layout]:
    d = wrap_dim(dim, x.rank)
    out: list[Layout] = []
    at = ZERO
    for n in sizes:
        out.append(Layout((*x.shape[:d], n, *x.shape[d + 1 :]), x.strides, x.offset + at * x.strides[d]))
        at = at + n
    return out


def diagonal(x: Layout, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    a, b = wrap_dim(dim1, x.rank), wrap_dim(dim2, x.rank)
    if a == b:
        raise ValueError("diagonal of one dim with itself")
    below, right = IntExpr.of(max(-offset, 0)), IntExpr.of(max(offset, 0))
    n = maximum(minimum(x.shape[a] - below, x.shape[b] - right), ZERO)
    base = x.offset if n.value == 0 else x.offset + below * x.strides[a] + right * x.strides[b]
    keep = [d for d in range(x.rank) if d not in (a, b)]
    return Layout(
        (*(x.shape[d] for d in keep), n), (*(x.strides[d] for d in keep), x.strides[a] + x.strides[b]), base
    )


def unfold(x: Layout, dim: int, size: int, step: int) -> Layout:
    """Windows of `size` every `step` along `dim`, as a new last dim."""
    if step < 1 or size < 0:
        raise ValueError(f"unfold with size {size}, step {step}")
    if x.rank == 0:
        return Layout((IntExpr.of(size),), (ONE,), x.offset)
    d = wrap_dim(dim, x.rank)
    count = floordiv(x.shape[d] - size, IntExpr.of(step)) + 1
    shape, strides = list(x.shape), list(x.strides)
    shape[d], strides[d] = count, strides[d] * step
    return Layout((*shape, IntExpr.of(size)), (*strides, x.strides[d]), x.offset)


def as_strided(size: Sequence[IntExpr], stride: Sequence[IntExpr], offset: IntExpr) -> Layout:
    """Of a base that is contiguous from its first element: the caller sees to that."""
    return Layout(tuple(size), tuple(stride), offset)


def reshape(x: Layout, shape: Sequence[IntExpr]) -> Layout | None:
    """The same elements in order under another shape of as many elements; None where strides do not allow it."""
    shape = tuple(shape)
    if is_contiguous(x):
        return Layout(shape, contiguous_strides(shape), x.offset)
    # Walk both shapes from the right.  A run of old dims that lie in memory one after the other is one block; each
    # block must be covered exactly by a run of new dims.
    old = [(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n.value != 1]
    strides: list[IntExpr] = []
    new = list(shape)
    while old:
        n, stride = old.pop()
        block, at = n, stride
        while old and old[-1][1] == block * at:
            block = block * old.pop()[0]
        covered = ONE
        while covered != block:
            if not new:
                return None
            if block.exact_div(covered * new[-1]) is None:
                return None
            strides.append(at * covered)
            covered = covered * new.pop()
    # What is left can only be 1s.
    if any(m.value != 1 for m in new):
        return None
    step = strides[-1] * shape[len(new)] if strides else ONE
    for _ in new:
        strides.append(step)
    return Layout(shape, tuple(reversed(strides)), x.offset)
