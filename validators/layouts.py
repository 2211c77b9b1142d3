"""Ways in which the same numbers may lie in memory: what a kernel must not notice.

`lay_out(array, layout, rng)` gives a view with the array's contents (for `expanded`: with one axis made constant) and
other strides.  Memory that the view skips holds values that would show in any sum.

May import: numpy, values.  To add a layout: a function here, a row in `LAYOUTS`, a name in generator/spec_model.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .values import Array

__all__ = ["LAYOUTS", "applies", "lay_out"]

#: Elements that a view may lie in, whatever its size, or for each of its own: twelve axes sliced threefold are 10**8
#: times as large as what they hold.
ROOM, ROOM_EACH = 1 << 20, 16


def _garbage(shape: tuple[int, ...], like: Array) -> Array:
    """Memory between the elements of a view: nan where there is one, else the largest value."""
    out = np.empty(shape, like.dtype)
    if like.dtype.kind in "biu":
        out[...] = True if like.dtype.kind == "b" else np.iinfo(like.dtype).max
    else:
        out[...] = np.nan
    return out


def _contiguous(a: Array, rng: np.random.Generator) -> Array:
    return np.ascontiguousarray(a).reshape(a.shape)


def _transposed(a: Array, rng: np.random.Generator) -> Array:
    """Another order of axes in memory: the last axis is not the innermost."""
    order = list(range(a.ndim))
    while order[-1] == a.ndim - 1 or order == list(range(a.ndim)):
        order = [int(k) for k in rng.permutation(a.ndim)]
    stored = np.ascontiguousarray(np.transpose(a, order))
    return np.transpose(stored, np.argsort(order))


def _sliced(a: Array, rng: np.random.Generator) -> Array:
    """Every second or third element of a larger tensor, from an offset; of the last axes only, where a tensor of many
    axes would need more than `ROOM`."""
    steps = [int(s) for s in rng.integers(1, 4, a.ndim)]
    steps[-1] = max(steps[-1], 2)
    offsets = [int(o) for o in rng.integers(0, 3, a.ndim)]
    shape = list(a.shape)
    for k in reversed(range(a.ndim)):
        wide = offsets[k] + a.shape[k] * steps[k] + 1
        if math.prod(shape) // a.shape[k] * wide > max(ROOM, ROOM_EACH * a.size):
            steps[k], offsets[k] = 1, 0
        else:
            shape[k] = wide
    big = _garbage(tuple(shape), a)
    view = big[tuple(slice(o, o + n * s, s) for n, s, o in zip(a.shape, steps, offsets, strict=True))]
    view[...] = a
    return view


def _expanded(a: Array, rng: np.random.Generator) -> Array:
    """One axis of stride 0."""
    candidates = [k for k, n in enumerate(a.shape) if n > 1]
    axis = int(rng.choice(candidates))
    one = np.ascontiguousarray(np.take(a, [0], axis=axis))
    return np.broadcast_to(one, a.shape)


def _offset(a: Array, rng: np.random.Generator) -> Array:
    """Contiguous, but not at the start of its storage, and not aligned to more than one element."""
    start = 2 * int(rng.integers(0, 4)) + 1
    big = _garbage((start + a.size + 3,), a)
    view = big[start : start + a.size].reshape(a.shape)
    view[...] = a
    return view


def _negative(a: Array, rng: np.random.Generator) -> Array:
    """Negative strides along at least one axis."""
    flip = rng.integers(0, 2, a.ndim).astype(bool)
    flip[int(rng.choice([k for k, n in enumerate(a.shape) if n > 1]))] = True
    steps = tuple(slice(None, None, -1 if f else 1) for f in flip)
    return np.ascontiguousarray(a[steps])[steps]


LAYOUTS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "contiguous": _contiguous,
    "transposed": _transposed,
    "sliced": _sliced,
    "expanded": _expanded,
    "offset": _offset,
    "negative": _negative,
}


def applies(layout: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can be laid out so that it differs from contiguous."""
    match layout:
        case "transposed":
            return len(shape) >= 2 and sum(n > 1 for n in shape) >= 2
        case "expanded":
            return any(n > 1 for n in shape)
        case "sliced" | "negative":
            return any(n > 1 for n in shape) and 0 not in shape
        case "offset":
            return 0 not in shape
    return True


def lay_out(array: Array, layout: str, rng: np.random.Generator) -> Array:
    """`array` in this layout; contiguous where the layout does not apply to its shape."""
    if not applies(layout, array.shape):
        layout = "contiguous"
    return LAYOUTS[layout](array, rng)
