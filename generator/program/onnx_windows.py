"""ONNX's windows and resamplings that no operator of ours takes as they are, as other ONNX nodes.

Part of `onnx_ops.REWRITE`; its rules hold.  May import: intexpr, captured, onnx_rewrite, onnx_convert (types), numpy.
To add an operator: a function, and its line in `WINDOWS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .captured import RowRefused
from .onnx_rewrite import Args, Rewrite, Writer, extent, kind_of, resized

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter

__all__ = ["WINDOWS", "pads_of"]


def pads_of(args: Args, n: int) -> tuple[int, ...]:
    """Pads before and after, `auto_pad` worked out for extents that are known."""
    mode = args.get("auto_pad") or "NOTSET"
    if mode == "VALID":
        return (0,) * (2 * n)
    if mode == "NOTSET":
        return tuple(args["pads"] or (0,) * (2 * n))
    x = next(iter(args.values()))
    kernel = args["kernel_shape"] or tuple(e.value for e in args["W"].shape[2:])
    before, after = [], []
    for k in range(n):
        size = x.shape[2 + k].value
        if size is None:
            raise RowRefused(f"auto_pad {mode} of an extent that varies")
        stride, dilation = (args["strides"] or (1,) * n)[k], (args.get("dilations") or (1,) * n)[k]
        total = max((-(-size // stride) - 1) * stride + (kernel[k] - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return (*before, *after)


class _Windows:
    """The windows of a pooling node along each axis."""

    def __init__(self, args: Args) -> None:
        self.x = next(iter(args.values()))
        self.n = n = int(self.x.rank) - 2
        self.kernel = [int(k) for k in args["kernel_shape"]]
        self.strides = [int(s) for s in args["strides"] or (1,) * n]
        self.dilations = [int(d) for d in args.get("dilations") or (1,) * n]
        pads = pads_of(args, n)
        self.before, self.after = list(pads[:n]), list(pads[n:])
        self.ceil = bool(args.get("ceil_mode"))

    @property
    def plain(self) -> bool:
        """Whether our own pools take them."""
        few = all(2 * p <= k for p, k in zip(self.before, self.kernel, strict=True))
        return self.before == self.after and few

    def lines(self) -> list[tuple[int, int, int]]:
        """Of each axis: its extent, how many windows there are, and what the last one lacks behind the pads."""
        out = []
        for k in range(self.n):
            size = extent(self.x, 2 + k)
            reach = (self.kernel[k] - 1) * self.dilations[k] + 1
            room = size + self.before[k] + self.after[k] - reach
            count = (-(-room // self.strides[k]) if self.ceil else room // self.strides[k]) + 1
            if self.ceil and (count - 1) * self.strides[k] >= size + self.before[k]:
                count -= 1
            out.append((size, count, (count - 1) * self.strides[k] - room))
        return out


def _padding(w: Writer, name: str, before: Sequence[int], after: Sequence[int], value: Any, kind: Any) -> str:
    """Pads along the spatial axes."""
    if not any(before) and not any(after):
        return name
    pads = [0, 0, *before, 0, 0, *after]
    if w.c.opset < 11:
        return w("Pad", name, pads=pads, value=float(value))
    return w("Pad", name, w.c.put(w.node, "pads", np.array(pads)), w.number(value, kind))


def _sums(w: Writer, windows: _Windows, name: str, kind: Any) -> str:
    """The sum of each window, nothing where it lies outside: a convolution of each channel with ones."""
    lines = windows.lines()
    rest = [max(lack, 0) for _, _, lack in lines]
    after = [a + r for a, r in zip(windows.after, rest, strict=True)]
    padded = _padding(w, name, windows.before, after, 0, kind)
    channels = extent(windows.x, 1)
    ones = w.c.put(w.node, "ones", np.ones([channels, 1, *windows.kernel], kind))
    return w("Conv", padded, ones, group=channels, strides=windows.strides, dilations=windows.dilations)


def _average_pool(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The sum over how many there are, where a pool of ours has not such windows."""
    windows = _Windows(args)
    whole = bool(args.get("count_include_pad"))
    if all(d == 1 for d in windows.dilations) and windows.plain:
        return None
    kind = kind_of(windows.x)
    w = Writer(c, node)
    counts: Any = np.ones([1] * windows.n)
    for k, (size, count, _) in enumerate(windows.lines()):
        begin = 0 if whole else windows.before[k]
        end = windows.before[k] + size + (windows.after[k] if whole else 0)
        at = (
            np.arange(count)[:, None] * windows.strides[k]
            + np.arange(windows.kernel[k]) * windows.dilations[k]
        )
        inside = ((at >= begin) & (at < end)).sum(1)
        counts = counts * inside.reshape([-1 if j == k else 1 for j in range(windows.n)])
    sums = _sums(w, windows, node.input[0], kind)
    return w.done(w("Div", sums, c.put(node, "counts", counts[None, None].astype(kind))))


def _lp_pool(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    windows = _Windows(args)
    p, kind = int(args["p"]), kind_of(windows.x)
    w = Writer(c, node)
    powers = w("Pow", w("Abs", node.input[0]), w.number(p, kind))
    sums = _sums(w, windows, powers, kind)
    return w.done(w("Pow", sums, w.number(1 / p, kind)))


def _max_pool(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Pads that differ, or are wider than a pool of ours has them, written out; places by columns, counted anew."""
    windows = _Windows(args)
    places = len(node.output) > 1 and bool(node.output[1])
    if places and args.get("storage_order"):
        return _by_columns(c, node, args, windows)
    if windows.plain:
        return None
    if places:
        raise RowRefused("places where pads differ before and after")
    w = Writer(c, node)
    kind = kind_of(windows.x)
    low = -math.inf if np.dtype(kind).kind == "f" else np.iinfo(kind).min
    padded = _padding(w, node.input[0], windows.before, windows.after, low, kind)
    kept: dict[str, Any] = {"kernel_shape": windows.kernel, "strides": windows.strides}
    if any(d != 1 for d in windows.dilations):
        kept["dilations"] = windows.dilations
    if windows.ceil:
        kept["ceil_mode"] = 1
    return w.done(w("MaxPool", padded, **kept))


def _by_columns(c: OnnxConverter, node: Any, args: Args, windows: _Windows) -> list[Any]:
    w = Writer(c, node)
    kept = [a for a in node.attribute if a.name != "storage_order"]
    y, rows = f"{node.output[0]}/values", f"{node.output[0]}/rows"
    own = c.onnx.helper.make_node("MaxPool", [node.input[0]], [y, rows])
    own.attribute.extend(kept)
    w.nodes.append(own)
    sizes = [extent(windows.x, 2 + k) for k in range(windows.n)]
    plane = w("Div", rows, w.number(math.prod(sizes), np.int64))
    out = w("Mul", plane, w.number(math.prod(sizes), np.int64))
    for k in range(windows.n):
        at = w(
            "Mod", w("Div", rows, w.number(math.prod(sizes[k + 1 :]), np.int64)), w.number(sizes[k], np.int64)
        )
        out = w("Add", out, w("Mul", at, w.number(math.prod(sizes[:k]), np.int64)))
    w("Identity", out, to=node.output[1])
    return w.done(y)


def _transposed(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Pads that follow from what is to come out, and such as differ: cut off afterwards."""
    x, weights = args["X"], args["W"]
    n = x.rank - 2
    mode = args.get("auto_pad") or "NOTSET"
    strides, dilations = args["strides"] or (1,) * n, args["dilations"] or (1,) * n
    spare = args["output_padding"] or (0,) * n
    if args["output_shape"] is None and mode in ("NOTSET", "VALID"):
        pads = pads_of(args, n)
    else:
        before, after = [], []
        for k in range(n):
            size, kernel = extent(x, 2 + k), extent(weights, 2 + k)
            whole = strides[k] * (size - 1) + spare[k] + (kernel - 1) * dilations[k] + 1
            wanted = args["output_shape"]
            total = whole - (wanted[len(wanted) - n + k] if wanted is not None else size * strides[k])
            small, large = total // 2, total - total // 2
            before.append(small if mode == "SAME_UPPER" else large)
            after.append(large if mode == "SAME_UPPER" else small)
        pads = (*before, *after)
    if (
        pads[:n] == pads[n:]
        and min(pads) >= 0
        and args["output_shape"] is None
        and mode in ("NOTSET", "VALID")
    ):
        return None
    w = Writer(c, node)
    kept = [a for a in node.attribute if a.name not in ("pads", "auto_pad", "output_shape")]
    out = f"{node.output[0]}/whole"
    own = c.onnx.helper.make_node("ConvTranspose", list(node.input), [out])
    own.attribute.extend(kept)
    w.nodes.append(own)
    return w.done(_padding(w, out, [-p for p in pads[:n]], [-p for p in pads[n:]], 0, kind_of(x)))


# ---- regions -------------------------------------------------------------------------------------------------------


def _shares(w: Writer, begin: str, bin_size: str, bins: int, samples: int, size: int, kind: Any) -> str:
    """How much of each of `size` places goes into each bin: [regions, bins, size], the mean of its samples."""
    c, node = w.c, w.node
    offsets = np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples
    steps = c.put(node, "steps", offsets.reshape(1, bins, samples, 1).astype(kind))
    at = w("Add", begin, w("Mul", steps, bin_size))
    outside = w("Or", w("Less", at, w.number(-1, kind)), w("Greater", at, w.number(size, kind)))
    edge = w("Min", w("Max", at, w.number(0, kind)), w.number(size - 1, kind))
    places = c.put(node, "places", np.arange(size).reshape(1, 1, 1, size).astype(kind))
    near = w("Sub", w.number(1, kind), w("Abs", w("Sub", edge, places)))
    shares = w("Where", outside, w.number(0, kind), w("Max", near, w.number(0, kind)))
    return w.axes("ReduceMean", shares, [2], keepdims=0)


def _roi_align(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Bilinear samples are products of what each axis gives: two products of matrices for each region."""
    x, samples = args["X"], int(args["sampling_ratio"])
    if args["mode"] != "avg":
        raise RowRefused("the largest of weighted corners")
    if samples <= 0:
        raise RowRefused("as many samples as each region's size asks for")
    kind = kind_of(x)
    half = args.get("coordinate_transformation_mode", "half_pixel" if c.opset >= 16 else "") == "half_pixel"
    w = Writer(c, node)
    corners = []
    for k in range(4):
        corner = w("Gather", node.input[1], c.put(node, "corner", np.array([k])), axis=1)
        corner = w("Mul", corner, w.number(args["spatial_scale"], kind))
        corner = w("Sub", corner, w.number(0.5 if half else 0.0, kind))
        corners.append(w("Reshape", corner, c.put(node, "shape", np.array([-1, 1, 1, 1]))))
    shares = []
    for axis, bins in ((1, int(args["output_height"])), (0, int(args["output_width"]))):
        size = w("Sub", corners[axis + 2], corners[axis])
        if not half:
            size = w("Max", size, w.number(1, kind))
        size = w("Div", size, w.number(bins, kind))
        places = extent(x, 2 if axis else 3)
        shares.append(w.axes("Unsqueeze", _shares(w, corners[axis], size, bins, samples, places, kind), [1]))
    pictures = w("Gather", node.input[0], node.input[2], axis=0)
    rows = w("MatMul", shares[0], pictures)
    return w.done(w("MatMul", rows, w("Transpose", shares[1], perm=[0, 1, 3, 2])))


def _deform_conv(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Samples at places that are moved, as a picture of windows without overlap, and a convolution of that."""
    x, weights, offset = args["X"], args["W"], args["offset"]
    if x.rank != 4:
        raise RowRefused("planes are wanted")
    groups, kind = int(args["offset_group"] or 1), kind_of(x)
    channels, high, wide = (extent(x, k) for k in (1, 2, 3))
    kh, kw = extent(weights, 2), extent(weights, 3)
    oh, ow = extent(offset, 2), extent(offset, 3)
    strides, dilations = args["strides"] or (1, 1), args["dilations"] or (1, 1)
    pads = args["pads"] or (0,) * 4
    w = Writer(c, node)

    def shaped(name: str, *dims: int) -> str:
        return w("Reshape", name, c.put(node, "shape", np.array(dims)))

    # The offsets of a group: [batch × group, kh × kw, 2, oh, ow], vertical ones first.
    moves = shaped(node.input[2], -1, kh * kw, 2, oh, ow)
    grids = []
    for axis, size in enumerate((high, wide)):
        tap = np.arange(kh * kw) // kw if axis == 0 else np.arange(kh * kw) % kw
        out = np.arange(oh)[:, None] if axis == 0 else np.arange(ow)[None]
        base = out[None] * strides[axis] - pads[axis] + tap[:, None, None] * dilations[axis]
        base = np.broadcast_to(base, (kh * kw, oh, ow))[None]
        move = w("Gather", moves, w.number(axis, np.int64), axis=2)
        at = w("Add", move, c.put(node, "base", base.astype(kind)))
        # From places to the grid's own numbers, whose -1 is the first place's edge.
        at = w("Mul", w("Add", w("Mul", at, w.number(2, kind)), w.number(1, kind)), w.number(1 / size, kind))
        grids.append(w.axes("Unsqueeze", w("Sub", at, w.number(1, kind)), [-1] if c.opset >= 13 else [4]))
    grid = shaped(w("Concat", grids[1], grids[0], axis=-1 if c.opset >= 11 else 4), -1, kh * kw * oh, ow, 2)
    picture = shaped(node.input[0], -1, channels // groups, high, wide)
    seen = w("GridSample", picture, grid, mode="linear" if c.opset >= 20 else "bilinear", align_corners=0)
    seen = shaped(seen, -1, groups, channels // groups, kh * kw, oh, ow)
    if len(node.input) > 4 and node.input[4]:
        seen = w("Mul", seen, shaped(node.input[4], -1, groups, 1, kh * kw, oh, ow))
    # Windows side by side: [batch, channels, oh × kh, ow × kw].
    seen = shaped(seen, -1, channels, kh, kw, oh, ow)
    seen = shaped(w("Transpose", seen, perm=[0, 1, 4, 2, 5, 3]), -1, channels, oh * kh, ow * kw)
    given = [seen, node.input[1]]
    if len(node.input) > 3 and node.input[3]:
        given.append(node.input[3])
    return w.done(w("Conv", *given, strides=[kh, kw], group=int(args["group"] or 1)))


def _upsample(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """As `Resize` began: places counted from the corner, the one before."""
    given = {**args, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "sizes": None}
    return resized(c, node, given)


def _unpooled(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Numbers at their places among zeros, and zeros behind them up to the shape that is asked for."""
    x = args["X"]
    n = x.rank - 2
    kernel, strides = args["kernel_shape"], args["strides"] or (1,) * n
    pads = args["pads"] or (0,) * (2 * n)
    shape = [extent(x, 0), extent(x, 1)]
    shape += [(extent(x, 2 + k) - 1) * strides[k] - pads[k] - pads[n + k] + kernel[k] for k in range(n)]
    w = Writer(c, node)
    kind = kind_of(x)
    line = c.put(node, "line", np.array([-1]))
    zeros = c.put(node, "zeros", np.zeros(math.prod(shape), kind))
    flat = [w("Reshape", name, line) for name in node.input[:2]]
    found = w("ScatterElements", zeros, flat[1], flat[0], axis=0)
    found = w("Reshape", found, c.put(node, "shape", np.array(shape)))
    wanted = args.get("output_shape")
    if wanted is not None:
        if not wanted.known:
            raise RowRefused(f"`{wanted.name}` is known only when the model runs")
        more = [int(a) - b for a, b in zip(wanted.content, shape, strict=True)]
        found = _padding(w, found, [0] * n, more[2:], 0, kind)
    return w.done(found)


WINDOWS: Mapping[str, Rewrite] = {
    "AveragePool": _average_pool,
    "ConvTranspose": _transposed,
    "DeformConv": _deform_conv,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _unpooled,
    "RoiAlign": _roi_align,
    "Upsample": _upsample,
}
