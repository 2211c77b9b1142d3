"""More ONNX nodes as other ONNX nodes: what neither a map of the specs nor ONNX's own function bodies say.

Part of `onnx_ops.REWRITE`; its rules hold.  May import: intexpr, captured, onnx_convert (types), numpy.
To add an operator: a function, and its line in `REWRITES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .captured import RowRefused
from .folder import numpy_dtype
from .intexpr import IntExpr

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter

__all__ = ["REWRITES", "Args", "Rewrite", "Writer", "cast_to", "extent", "kind_of", "of_nothing", "resized"]

Args = Mapping[str, Any]
Rewrite = Callable[["OnnxConverter", Any, Args], "Sequence[Any] | None"]


class Writer:
    """Nodes in the place of one, each with a name of its own."""

    def __init__(self, c: OnnxConverter, node: Any) -> None:
        self.c, self.node = c, node
        self.nodes: list[Any] = []

    def __call__(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = to or f"{self.node.output[0]}/{op}.{len(self.nodes)}"
        self.nodes.append(self.c.onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: Any, dtype: Any) -> str:
        return self.c.put(self.node, "number", np.array(value, dtype))

    def axes(self, op: str, name: str, axes: Sequence[int], to: str = "", **attributes: Any) -> str:
        """An operator over axes, which are an input from an opset on."""
        since = {"Unsqueeze": 13, "Squeeze": 13, "ReduceSum": 13}.get(op, 18)
        if self.c.opset < since:
            return self(op, name, to=to, axes=list(axes), **attributes)
        return self(op, name, self.c.put(self.node, "axes", np.array(axes, np.int64)), to=to, **attributes)

    def done(self, name: str) -> list[Any]:
        self("Identity", name, to=self.node.output[0])
        return self.nodes


def kind_of(t: Any) -> Any:
    return numpy_dtype(t.dtype)


def extent(t: Any, axis: int) -> int:
    value = t.shape[axis].value
    if value is None:
        raise RowRefused(f"the extent of `{t.name}` along axis {axis} varies")
    return int(value)


def cast_to(w: Writer, name: str, dtype: Any) -> str:
    kind = w.c.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    out = f"{w.node.output[0]}/Cast.{len(w.nodes)}"
    w.nodes.append(w.c.onnx.helper.make_node("Cast", [name], [out], to=kind))
    return out


# ---- places of maxima -------------------------------------------------------------------------------------------


def _last_place(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The last of equals: the first of the axis walked backwards."""
    if not args.get("select_last_index"):
        return None
    x = args["data"]
    axis = int(args["axis"]) % x.rank
    n = extent(x, axis)
    w = Writer(c, node)
    back = c.put(node, "back", np.arange(n - 1, -1, -1))
    place = w(
        node.op_type, w("Gather", node.input[0], back, axis=axis), axis=axis, keepdims=int(args["keepdims"])
    )
    return w.done(w("Sub", w.number(n - 1, np.int64), place))


def _marks(w: Writer, places: str, n: int, rank: int, axis: int) -> str:
    """Where the index along an axis is a place; `places` has extent 1 there."""
    shape = [n if k == axis else 1 for k in range(rank)]
    return w("Equal", places, w.c.put(w.node, "range", np.arange(n).reshape(shape)))


def _hardmax(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = args["input"]
    axis = int(args["axis"]) % x.rank
    if c.opset < 13 and axis != x.rank - 1:
        raise RowRefused("axes behind its own are one")
    w = Writer(c, node)
    best = w("ArgMax", node.input[0], axis=axis, keepdims=1)
    return w.done(cast_to(w, _marks(w, best, extent(x, axis), x.rank, axis), kind_of(x)))


def _one_hot(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    indices, depth = args["indices"], args["depth"]
    if depth.content is None or not depth.known:
        raise RowRefused(f"`{depth.name}` is known only when the model runs")
    n = int(depth.content.reshape(-1)[0])
    rank = indices.rank + 1
    axis = int(args["axis"]) % rank
    w = Writer(c, node)
    place = cast_to(w, node.input[0], np.int64)
    below = w("Less", place, w.number(0, np.int64))
    place = w("Where", below, w("Add", place, w.number(n, np.int64)), place)
    marks = _marks(w, w.axes("Unsqueeze", place, [axis]), n, rank, axis)
    off, on = (w("Gather", node.input[2], w.number(k, np.int64), axis=0) for k in (0, 1))
    return w.done(w("Where", marks, on, off))


# ---- running sums ------------------------------------------------------------------------------------------------


def _running(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Backwards, and without the number's own."""
    reverse, exclusive = args.get("reverse"), args.get("exclusive")
    x, axis = args["x"], args["axis"]
    if not (reverse or exclusive) or not axis.known:
        return None
    at = int(axis.content.reshape(-1)[0]) % x.rank
    n = extent(x, at)
    w = Writer(c, node)
    back = c.put(node, "back", np.arange(n - 1, -1, -1))
    given = w("Gather", node.input[0], back, axis=at) if reverse else node.input[0]
    out = w(node.op_type, given, node.input[1])
    if exclusive:
        shape = [1 if k == at else extent(x, k) for k in range(x.rank)]
        zero = c.put(node, "begin", np.full(shape, int(node.op_type == "CumProd"), kind_of(x)))
        kept = w("Gather", out, c.put(node, "kept", np.arange(n - 1)), axis=at)
        out = w("Concat", zero, kept, axis=at)
    return w.done(w("Gather", out, back, axis=at) if reverse else out)


# ---- quantised numbers --------------------------------------------------------------------------------------------


def _along(c: OnnxConverter, node: Any, w: Writer, name: str, t: Any, x: Any, axis: int, block: int) -> str:
    """A scale or a zero point as it broadcasts against x: one, or one for each place of an axis."""
    if t.rank == 0 or (t.rank == 1 and t.shape[0].value == 1 and x.rank == 0):
        return name
    if block:
        places = np.arange(extent(x, axis % x.rank)) // block
        return w("Gather", name, c.put(node, "blocks", places), axis=axis % x.rank)
    if t.rank != 1:
        raise RowRefused(f"`{t.name}` has {t.rank} axes")
    shape = [-1 if k == axis % x.rank else 1 for k in range(x.rank)]
    return w("Reshape", name, c.put(node, "shape", np.array(shape)))


def _quantised(w: Writer, x: str, scale: str, zero: str, kind: Any, real: Any) -> str:
    """round(x / scale) + zero, cut to what the type holds."""
    ends = np.iinfo(kind)
    whole = w("Div", x, scale)
    if w.c.opset >= 11:
        whole = w("Round", whole)
    else:  # to the nearest, half to even, as every sum is: behind the point there is no room beside this number
        large = w.number(1.5 * 2.0 ** (np.finfo(real).nmant), real)
        whole = w("Sub", w("Add", whole, large), large)
    wide = w("Add", whole, cast_to(w, zero, real))
    cut = w("Min", w("Max", wide, w.number(ends.min, real)), w.number(ends.max, real))
    return cast_to(w, cut, kind)


def _quantize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x, scale, zero = args["x"], args["y_scale"], args.get("y_zero_point")
    if np.dtype(kind_of(x)).kind != "f" or (zero is not None and np.dtype(kind_of(zero)).kind not in "iu"):
        raise RowRefused("of types that are no integers and floats of ours")
    from .onnx_model import dtype_of

    w = Writer(c, node)
    axis, block = int(args.get("axis", 1)), int(args.get("block_size") or 0)
    asked = args.get("output_dtype")
    kind = kind_of(zero) if zero is not None else numpy_dtype(dtype_of(asked)) if asked else np.uint8
    if np.dtype(kind).kind not in "iu":
        raise RowRefused("to what is no integer")
    by = cast_to(w, _along(c, node, w, node.input[1], scale, x, axis, block), np.float32)
    at = _along(c, node, w, node.input[2], zero, x, axis, block) if zero is not None else w.number(0, kind)
    given = cast_to(w, node.input[0], np.float32)
    return w.done(_quantised(w, given, by, at, kind, np.float32))


def _restored(w: Writer, x: str, scale: str, zero: str, real: Any) -> str:
    wide = w("Sub", cast_to(w, x, np.float32), cast_to(w, zero, np.float32))
    return w("Mul", wide, cast_to(w, scale, np.float32))


def _dequantize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x, scale, zero = args["x"], args["x_scale"], args.get("x_zero_point")
    if np.dtype(kind_of(x)).kind not in "iu" or args.get("output_dtype"):
        raise RowRefused("of types that are no integers of ours")
    w = Writer(c, node)
    axis, block = int(args.get("axis", 1)), int(args.get("block_size") or 0)
    by = _along(c, node, w, node.input[1], scale, x, axis, block)
    at = (
        _along(c, node, w, node.input[2], zero, x, axis, block)
        if zero is not None
        else w.number(0, kind_of(x))
    )
    return w.done(cast_to(w, _restored(w, node.input[0], by, at, np.float32), kind_of(scale)))


def _quantised_matmul(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    names = list(node.input)
    tensors = list(args.values())[: len(names)]
    if any(
        t.rank > 1 or (t.rank == 1 and t.shape[0].value != 1)
        for t in (tensors[k] for k in (1, 2, 4, 5, 6, 7))
    ):
        raise RowRefused("a scale for each row or column")
    w = Writer(c, node)
    left = w("Sub", cast_to(w, names[0], np.float64), cast_to(w, names[2], np.float64))
    right = w("Sub", cast_to(w, names[3], np.float64), cast_to(w, names[5], np.float64))
    scale = w(
        "Div",
        w("Mul", *(cast_to(w, names[k], np.float32) for k in (1, 4))),
        cast_to(w, names[6], np.float32),
    )
    exact = w("MatMul", left, right)
    wide = w("Mul", exact, cast_to(w, scale, np.float64))
    one = w.number(1, np.float64)
    return w.done(_quantised(w, wide, one, names[7], kind_of(tensors[7]), np.float64))


def _quantised_conv(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Products of small integers are exact in f64; each of the result's channels may have a scale."""
    names = list(node.input)
    x, out = args["x"], args["y_zero_point"]
    w = Writer(c, node)
    each = c.put(node, "each", np.array([-1] + [1] * (x.rank - 1)))
    channels = c.put(node, "channels", np.array([1, -1] + [1] * (x.rank - 2)))

    def wide(k: int, shape: str = "", kind: Any = np.float64) -> str:
        found = cast_to(w, names[k], kind)
        return w("Reshape", found, shape) if shape and c.env[names[k]].rank else found

    left = w("Sub", wide(0), wide(2))
    right = w("Sub", wide(3), wide(5, each))
    kept = {a.name: c.onnx.helper.get_attribute_value(a) for a in node.attribute}
    exact = w("Conv", left, right, **kept)
    if len(names) > 8 and names[8]:
        exact = w("Add", exact, wide(8, channels))
    scale = w(
        "Div", w("Mul", wide(1, "", np.float32), wide(4, channels, np.float32)), wide(6, "", np.float32)
    )
    found = w("Mul", exact, cast_to(w, scale, np.float64))
    return w.done(_quantised(w, found, w.number(1, np.float64), names[7], kind_of(out), np.float64))


def _integer_product(op: str) -> Rewrite:
    """Products of small integers are exact in f64."""

    def rewrite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
        w = Writer(c, node)
        names = list(node.input)
        parts = []
        for k in (0, 1):
            wide = cast_to(w, names[k], np.float64)
            zero = names[2 + k] if len(names) > 2 + k else ""
            if zero:
                t = c.env[zero]
                if t.rank == 1 and t.shape[0].value != 1 and op == "Conv":
                    rank = c.env[names[k]].rank
                    zero = w("Reshape", zero, c.put(node, "shape", np.array([-1] + [1] * (rank - 1))))
                elif t.rank == 1 and t.shape[0].value != 1 and k == 0:
                    zero = w.axes("Unsqueeze", zero, [1])
                wide = w("Sub", wide, cast_to(w, zero, np.float64))
            parts.append(wide)
        kept = {a.name: c.onnx.helper.get_attribute_value(a) for a in node.attribute}
        return w.done(cast_to(w, w(op, *parts, **kept), np.int32))

    return rewrite


# ---- norms, windows, tests -----------------------------------------------------------------------------------------


def _lp_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    w = Writer(c, node)
    x, axis = node.input[0], int(args["axis"])
    size = w.axes("ReduceL1" if args["p"] == 1 else "ReduceL2", x, [axis], keepdims=1)
    kind = kind_of(next(iter(args.values())))
    none = w("Equal", size, w.number(0, kind))
    safe = w("Where", none, w.number(1, kind), size)
    return w.done(w("Div", x, safe))


def _instance_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    t = args["input"]
    w = Writer(c, node)
    x, axes = node.input[0], list(range(2, t.rank))
    away = w("Sub", x, w.axes("ReduceMean", x, axes, keepdims=1))
    spread = w.axes("ReduceMean", w("Mul", away, away), axes, keepdims=1)
    root = w("Sqrt", w("Add", spread, w.number(args["epsilon"], kind_of(t))))
    shape = c.put(node, "shape", np.array([1, -1, *([1] * len(axes))]))
    scale, bias = (w("Reshape", node.input[k], shape) for k in (1, 2))
    return w.done(w("Add", w("Mul", w("Div", away, root), scale), bias))


def _infinite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    up, down = bool(args["detect_positive"]), bool(args["detect_negative"])
    if up and down:
        return None
    x = next(iter(args.values()))
    w = Writer(c, node)
    if not up and not down:
        raise RowRefused("it looks for nothing")
    side = w("Greater" if up else "Less", node.input[0], w.number(0, kind_of(x)))
    return w.done(w("And", w("IsInf", node.input[0]), side))


def _shrunk(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = next(iter(args.values()))
    kind = kind_of(x)
    w = Writer(c, node)
    name, bias, edge = node.input[0], args["bias"], args["lambd"]
    low = w("Less", name, w.number(-edge, kind))
    high = w("Greater", name, w.number(edge, kind))
    up, down = w("Add", name, w.number(bias, kind)), w("Sub", name, w.number(bias, kind))
    return w.done(w("Where", low, up, w("Where", high, down, w.number(0, kind))))


def _eye_like(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    from .onnx_model import dtype_of

    x = next(iter(args.values()))
    kind = numpy_dtype(dtype_of(int(args["dtype"]))) if args.get("dtype") else kind_of(x)
    w = Writer(c, node)
    return w.done(c.put(node, "eye", np.eye(extent(x, 0), extent(x, 1), int(args["k"]), dtype=kind)))


def _all_kept(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Dropout outside of training, and the mask that says so."""
    mode, ratio = args.get("training_mode"), args.get("ratio")
    none = ratio is not None and hasattr(ratio, "content") and ratio.known and not ratio.content.any()
    if mode is not None and not (mode.known and not mode.content.any()) and not none:
        raise RowRefused("it trains")
    x = next(iter(args.values()))
    w = Writer(c, node)
    nodes = w.done(node.input[0])
    if len(node.output) > 1 and node.output[1]:
        shape = [extent(x, k) for k in range(x.rank)]
        mask = c.put(node, "mask", np.ones(shape, np.bool_))
        nodes.append(c.onnx.helper.make_node("Identity", [mask], [node.output[1]]))
    return nodes


def _response_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """By a window of squares over channels: a mean of as many, zeros behind the ends."""
    x = next(iter(args.values()))
    size, kind = int(args["size"]), kind_of(x)
    before, after = (size - 1) // 2, -(-(size - 1) // 2)
    n = extent(x, 1)
    w = Writer(c, node)
    squares = w("Mul", node.input[0], node.input[0])
    band = np.array([[1 if k - before <= j <= k + after else 0 for j in range(n)] for k in range(n)], kind)
    rest = math.prod(extent(x, k) for k in range(2, x.rank))
    flat = w("Reshape", squares, c.put(node, "flat", np.array([extent(x, 0), n, rest])))
    sums = w("MatMul", c.put(node, "band", band), flat)
    sums = w("Reshape", sums, c.put(node, "shape", np.array([extent(x, k) for k in range(x.rank)])))
    inner = w("Add", w("Mul", sums, w.number(args["alpha"] / size, kind)), w.number(args["bias"], kind))
    return w.done(w("Div", node.input[0], w("Pow", inner, w.number(args["beta"], kind))))


# ---- resizing ----------------------------------------------------------------------------------------------------


def _source(mode: str, x: int, have: int, scale: float, want: int) -> float:
    """Where a place of the result lies in the source."""
    wide = scale * have
    if mode == "align_corners":
        return 0.0 if wide == 1 else x * (have - 1) / (wide - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "pytorch_half_pixel" and wide == 1:
        return -0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return have / 2 * (1 - want / wide) + (x + 0.5) / scale - 0.5
    raise RowRefused(f"coordinates by {mode}")


def _cubic(d: Any, a: float) -> Any:
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _filter(args: Args, share: float, scale: float) -> tuple[int, Any]:
    """The first place of the filter, counted from the one to the left, and its weights."""
    how, smooth = args["mode"], bool(args.get("antialias"))
    if how == "nearest":
        rule = args.get("nearest_mode", "round_prefer_floor")
        right = {"floor": share == 1, "ceil": share > 0}.get(
            rule, share > 0.5 if rule == "round_prefer_floor" else share >= 0.5
        )
        return 0, np.array([0.0, 1.0] if right else [1.0, 0.0])
    reach = 1 if how == "linear" else 2
    factor = min(scale, 1.0) if smooth else 1.0
    start = math.floor(-reach / factor) + 1
    at = np.arange(start, 2 - start) if smooth else np.arange(1 - reach, reach + 1)
    away = (at - share) * factor
    weights = (
        np.clip(1 - np.abs(away), 0, 1)
        if reach == 1
        else _cubic(away, float(args.get("cubic_coeff_a", -0.75)))
    )
    return int(at[0]), weights / weights.sum() if smooth else weights


def _resizing(args: Args, have: int, scale: float, want: int, part: tuple[float, float]) -> tuple[Any, Any]:
    """The matrix that takes an axis of the source to one of the result, and which places of the result lie outside.
    `part`: what of the axis is cut out, as shares of it."""
    out = np.zeros((want, have))
    outside = np.zeros(want, np.bool_)
    mode = args.get("coordinate_transformation_mode", "half_pixel")
    for x in range(want):
        if mode == "tf_crop_and_resize":
            begin, end = part
            step = (end - begin) * (have - 1) / (want - 1) if want > 1 else 0.0
            place = begin * (have - 1) + x * step if want > 1 else (begin + end) * (have - 1) / 2
            if not 0 <= place <= have - 1:
                outside[x] = True
                continue
        else:
            place = _source(mode, x, have, scale, want)
        left = math.floor(place)
        share = place - left
        if share == 0:  # the number itself is the right one of two
            left, share = left - 1, 1.0
        first, weights = _filter(args, share, scale)
        at = left + first + np.arange(len(weights))
        if args.get("exclude_outside"):
            weights = np.where((at >= 0) & (at < have), weights, 0.0)
            weights = weights / weights.sum()
        np.add.at(out[x], np.clip(at, 0, have - 1), weights)
    return out, outside


def _resize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Along one axis after the other, by matrices; numbers that are only moved are gathered."""
    mode = args.get("coordinate_transformation_mode", "half_pixel")
    own = args["mode"] == "nearest" and mode == "asymmetric" and args.get("nearest_mode") == "floor"
    if c.opset < 11 or (own and not args.get("axes")):
        return None
    return resized(c, node, args)


def _scaled(args: Args, have: Sequence[int], numbers: Sequence[float]) -> list[tuple[float, int]]:
    """The factor and the extent of each axis."""
    if args.get("sizes") is None:
        return [(number, math.floor(n * number)) for n, number in zip(have, numbers, strict=True)]
    policy = args.get("keep_aspect_ratio_policy") or "stretch"
    factors = [number / n for n, number in zip(have, numbers, strict=True)]
    if policy == "stretch":
        return [(f, int(number)) for f, number in zip(factors, numbers, strict=True)]
    same = min(factors) if policy == "not_larger" else max(factors)
    return [(same, math.floor(same * n + 0.5)) for n in have]


def resized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """A resize of any axes by factors or extents that are known."""
    x = args["X"]
    sizes, scales = args.get("sizes"), args.get("scales")
    known = sizes if sizes is not None else scales
    given: list[Any] = []
    if isinstance(known, tuple):
        given = list(known)
    elif known is not None and known.content is not None:
        given = list(known.content.reshape(-1))
    axes = [int(a) % x.rank for a in (args.get("axes") or range(x.rank))]
    if len(given) != len(axes):
        return None
    same = [
        x.shape[a] == IntExpr.of(e) if sizes is not None else e == 1 for a, e in zip(axes, given, strict=True)
    ]
    stays = args.get("coordinate_transformation_mode") != "tf_crop_and_resize"
    if stays and (args.get("keep_aspect_ratio_policy") or "stretch") == "stretch":  # axes that stay may vary
        axes = [a for a, s in zip(axes, same, strict=True) if not s]
        given = [e for e, s in zip(given, same, strict=True) if not s]
    if any(isinstance(e, IntExpr) and e.value is None for e in (*given, *(x.shape[a] for a in axes))):
        return None
    numbers = [float(e.value or 0) if isinstance(e, IntExpr) else float(e) for e in given]
    mode, roi = args.get("coordinate_transformation_mode", "half_pixel"), args.get("roi")
    parts = [(0.0, 1.0)] * len(axes)
    if mode == "tf_crop_and_resize":
        if roi is None or not roi.known:
            raise RowRefused("a part that is known only when the model runs")
        ends = [float(v) for v in roi.content.reshape(-1)]
        parts = list(zip(ends[: len(axes)], ends[len(axes) :], strict=True))
    w = Writer(c, node)
    name, kind = node.input[0], kind_of(x)
    have = [extent(x, a) for a in axes]
    beyond = w.number(args.get("extrapolation_value") or 0.0, kind)
    for axis, n, (scale, want), part in zip(axes, have, _scaled(args, have, numbers), parts, strict=True):
        if want == n and scale == 1 and part == (0.0, 1.0):
            continue
        matrix, outside = _resizing(args, n, scale, want, part)
        if args["mode"] == "nearest":
            name = w("Gather", name, c.put(node, "places", matrix.argmax(1)), axis=axis)
        else:
            order = [k for k in range(x.rank) if k != axis] + [axis]
            back = [order.index(k) for k in range(x.rank)]
            rows = w("Transpose", name, perm=order)
            rows = w("MatMul", rows, c.put(node, "weights", np.ascontiguousarray(matrix.T.astype(kind))))
            name = w("Transpose", rows, perm=back)
        if outside.any():
            shape = [want if k == axis else 1 for k in range(x.rank)]
            name = w("Where", c.put(node, "outside", outside.reshape(shape)), beyond, name)
    return w.done(name)


# ---- places --------------------------------------------------------------------------------------------------------


def _reversed(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The first so many of each row backwards, by places."""
    x, lengths = args["input"], node.input[1]
    time, batch = int(args["time_axis"]) % x.rank, int(args["batch_axis"]) % x.rank
    n = extent(x, time)
    w = Writer(c, node)
    at = c.put(node, "at", np.arange(n).reshape([n if k == time else 1 for k in range(x.rank)]))
    length = w(
        "Reshape",
        cast_to(w, lengths, np.int64),
        c.put(node, "shape", np.array([-1 if k == batch else 1 for k in range(x.rank)])),
    )
    back = w("Sub", w("Sub", length, w.number(1, np.int64)), at)
    place = w("Where", w("Less", at, length), back, at)
    whole = w("Expand", place, w("Shape", node.input[0]))
    return w.done(w("GatherElements", node.input[0], whole, axis=time))


def _written(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """A cache with some places written anew, from one on that each row says."""
    x, update, first = args["past_cache"], args["update"], args.get("write_indices")
    axis = int(args["axis"]) % x.rank
    n, count = extent(x, axis), extent(update, axis)
    w = Writer(c, node)
    at = c.put(node, "at", np.arange(count).reshape([count if k == axis else 1 for k in range(x.rank)]))
    if first is not None:
        begin = w(
            "Reshape",
            cast_to(w, node.input[2], np.int64),
            c.put(node, "shape", np.array([-1] + [1] * (x.rank - 1))),
        )
        at = w("Add", at, begin)
    if args["mode"] == "circular":
        at = w("Mod", at, w.number(n, np.int64))
    whole = w("Expand", at, w("Shape", node.input[1]))
    return w.done(w("ScatterElements", node.input[0], whole, node.input[1], axis=axis))


def _padded_by(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """With a number that only the run can tell: chosen where nothing of x lies."""
    value: Any = args.get("constant_value")
    if args["mode"] != "constant" or not hasattr(value, "content") or value.known:
        return None
    kind, more = np.dtype(kind_of(args["data"])), list(node.input[3:])
    kept = c.onnx.numpy_helper.from_array(np.ones(1, kind))
    w = Writer(c, node)
    ones = w("ConstantOfShape", w("Shape", node.input[0]), value=kept)
    none = w.number(0, kind)
    inside = w("Pad", ones, node.input[1], none, *more)
    found = w("Pad", node.input[0], node.input[1], none, *more)
    return w.done(w("Where", cast_to(w, inside, np.bool_), found, node.input[2]))


def _compressed(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The places that are true, taken."""
    x, axis = args["input"], args.get("axis")
    w = Writer(c, node)
    name = node.input[0]
    if axis is None:
        name = w("Reshape", name, c.put(node, "line", np.array([-1])))
    line = w("Reshape", w("NonZero", node.input[1]), c.put(node, "line", np.array([-1])))
    return w.done(w("Gather", name, line, axis=0 if axis is None else int(axis) % x.rank))


def _backwards(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Steps below 0, by places."""
    from .onnx_ops import slices

    x = args["data"]
    found = slices(args)
    if found is None or all(step > 0 for *_, step in found):
        return None
    w = Writer(c, node)
    name = node.input[0]
    for axis, start, end, step in found:
        if not isinstance(start, int) or not isinstance(end, int):
            raise RowRefused("ends that vary, and a step below 0")
        places = np.arange(extent(x, axis))[start:end:step]
        name = w("Gather", name, c.put(node, "places", places), axis=axis)
    return w.done(name)


def _features(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = args["X"]
    w = Writer(c, node)
    line = w("Reshape", node.input[1], c.put(node, "line", np.array([-1])))
    found = w("Gather", node.input[0], line, axis=x.rank - 1)
    return w.done(w.axes("Unsqueeze", found, [0]) if x.rank == 1 else found)


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def _power(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The result is of the base's type: computed in the wider one, and cut."""
    x, y = args["X"], args["Y"]
    base, by = np.dtype(kind_of(x)), np.dtype(kind_of(y))
    if base == by:
        return None
    w = Writer(c, node)
    if base.kind == "f":
        return w.done(w("Pow", node.input[0], cast_to(w, node.input[1], base)))
    wide = np.float64 if by.kind == "f" else np.int64
    found = w("Pow", *(cast_to(w, name, wide) for name in node.input))
    return w.done(cast_to(w, found, base))


def _same_bits(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Integers of one width are each other's numbers, modulo what they hold."""
    from .onnx_model import dtype_of

    base = np.dtype(kind_of(next(iter(args.values()))))
    to = np.dtype(numpy_dtype(dtype_of(int(args["to"]))))
    if base.kind not in "iub" or to.kind not in "iu" or base.itemsize != to.itemsize:
        raise RowRefused("the bits of a float, of which nothing is proven")
    w = Writer(c, node)
    return w.done(cast_to(w, node.input[0], to))


def _clipped(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Bounds that are tensors; none at all."""
    if c.opset < 11:
        return None
    bounds = [args.get(name) for name in ("min", "max")]
    w = Writer(c, node)
    if all(b is None for b in bounds):
        return w.done(node.input[0])
    if all(b is None or b.known for b in bounds):
        return None
    name = node.input[0]
    for k, op in ((1, "Max"), (2, "Min")):
        if bounds[k - 1] is not None:
            name = w(op, name, node.input[k])
    return w.done(name)


def _marked(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = args["X"]
    w = Writer(c, node)
    above = w("Greater", node.input[0], w.number(args["threshold"], kind_of(x)))
    return w.done(cast_to(w, above, kind_of(x)))


def of_nothing(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """The largest of nothing is the lowest there is."""
    x, axes = args["data"], args.get("axes")
    if hasattr(axes, "content"):
        axes = [int(a) for a in axes.content.reshape(-1)] if axes is not None and axes.known else None
    over = [int(a) % x.rank for a in axes] if axes else list(range(x.rank))
    if all(x.shape[a].value != 0 for a in over):
        return None
    kind = np.dtype(kind_of(x))
    largest = node.op_type == "ReduceMax"
    if kind.kind == "b":
        value: Any = not largest
    elif kind.kind in "iu":
        value = np.iinfo(kind).min if largest else np.iinfo(kind).max
    else:
        value = -math.inf if largest else math.inf
    shape = [extent(x, k) if k not in over else 1 for k in range(x.rank) if k not in over or args["keepdims"]]
    w = Writer(c, node)
    return w.done(c.put(node, "nothing", np.full(shape, value, kind)))


# ---- training ------------------------------------------------------------------------------------------------------


def _batch_normalised(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """By the batch's own moments, which move the running ones."""
    if not args.get("training_mode"):
        return None
    x = args["X"]
    kind, momentum = kind_of(x), float(args["momentum"])
    axes = [k for k in range(x.rank) if k != 1]
    w = Writer(c, node)
    mean = w.axes("ReduceMean", node.input[0], axes, keepdims=1)
    away = w("Sub", node.input[0], mean)
    spread = w.axes("ReduceMean", w("Mul", away, away), axes, keepdims=1)
    root = w("Sqrt", w("Add", spread, w.number(args["epsilon"], kind)))
    shape = c.put(node, "shape", np.array([1, -1, *[1] * (x.rank - 2)]))
    line = c.put(node, "line", np.array([-1]))
    for k, moment in ((1, mean), (2, spread)):
        if len(node.output) > k and node.output[k]:
            old = w("Mul", node.input[2 + k], w.number(momentum, kind))
            new = w("Mul", w("Reshape", moment, line), w.number(1 - momentum, kind))
            w("Add", old, new, to=node.output[k])
    scale, bias = (w("Reshape", node.input[k], shape) for k in (1, 2))
    return w.done(w("Add", w("Mul", w("Div", away, root), scale), bias))


def _stepped(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Momentum, Adagrad, Adam: each tensor's step, with what goes with it."""
    w = Writer(c, node)
    rate, count = node.input[:2]
    more = {"Momentum": 1, "Adagrad": 1, "Adam": 2}[node.op_type]
    n = (len(node.input) - 2) // (2 + more)
    groups = [node.input[2 + k * n : 2 + (k + 1) * n] for k in range(2 + more)]
    outs = [node.output[k * n : (k + 1) * n] for k in range(1 + more)]
    kind = kind_of(c.env[node.input[2]])

    def number(v: float) -> str:
        return w.number(v, kind)

    t = cast_to(w, count, kind)
    started = w("Greater", t, number(0))
    r = cast_to(w, rate, kind)
    for k in range(n):
        x, g = groups[0][k], groups[1][k]
        g = w("Add", w("Mul", number(args["norm_coefficient"] or 0.0), x), g)
        if node.op_type == "Momentum":
            beta = w("Where", started, number(args["beta"]), number(1))
            v = w("Add", w("Mul", number(args["alpha"]), groups[2][k]), w("Mul", beta, g), to=outs[1][k])
            nesterov = args["mode"] == "nesterov"
            step = w("Add", g, w("Mul", number(args["alpha"]), v)) if nesterov else v
            w("Sub", x, w("Mul", r, step), to=outs[0][k])
        elif node.op_type == "Adagrad":
            slow = w("Div", r, w("Add", number(1), w("Mul", t, number(args["decay_factor"] or 0.0))))
            h = w("Add", groups[2][k], w("Mul", g, g), to=outs[1][k])
            by = w("Add", w("Sqrt", h), number(args["epsilon"]))
            w("Sub", x, w("Div", w("Mul", slow, g), by), to=outs[0][k])
        else:
            first, second = float(args["alpha"]), float(args["beta"])
            v = w("Add", w("Mul", number(first), groups[2][k]), w("Mul", number(1 - first), g), to=outs[1][k])
            squares = w("Mul", number(1 - second), w("Mul", g, g))
            h = w("Add", w("Mul", number(second), groups[3][k]), squares, to=outs[2][k])
            by = w("Add", w("Sqrt", h), number(args["epsilon"]))
            up = w("Sqrt", w("Sub", number(1), w("Pow", number(second), t)))
            down = w("Sub", number(1), w("Pow", number(first), t))
            adjusted = w("Where", started, w("Div", w("Mul", r, up), down), r)
            new = w("Sub", x, w("Div", w("Mul", adjusted, v), by))
            w("Mul", number(1 - (args["norm_coefficient_post"] or 0.0)), new, to=outs[0][k])
    return w.nodes


# ---- n-grams -------------------------------------------------------------------------------------------------------


def _grams(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """How often each n-gram of a pool stands in a row, with up to so many left out between its parts."""
    x, pool = args["X"], args["pool_int64s"]
    if pool is None:
        raise RowRefused("strings")
    n = extent(x, x.rank - 1)
    starts = [*args["ngram_counts"], len(pool)]
    grams: list[tuple[int, ...]] = []
    for size, (begin, end) in enumerate(pairwise(starts), start=1):
        grams += [tuple(pool[k : k + size]) for k in range(begin, end, size)]
    columns = list(args["ngram_indexes"])
    w = Writer(c, node)
    row = cast_to(w, node.input[0], np.int64)
    low, high = int(args["min_gram_length"]), int(args["max_gram_length"])
    counts: dict[int, str] = {}
    for gram, column in zip(grams, columns, strict=True):
        size = len(gram)
        if not low <= size <= high:
            continue
        for skip in range(1, (int(args["max_skip_count"]) if size > 1 else 0) + 2):
            first = np.arange(n - skip * (size - 1))
            if not len(first):
                continue
            seen = ""
            for j, token in enumerate(gram):
                part = w("Gather", row, c.put(node, "places", first + skip * j), axis=x.rank - 1)
                same = w("Equal", part, w.number(token, np.int64))
                seen = w("And", seen, same) if seen else same
            many = w.axes("ReduceSum", cast_to(w, seen, np.float32), [x.rank - 1], keepdims=1)
            counts[column] = w("Add", counts[column], many) if column in counts else many
    none = w(
        "Mul",
        cast_to(w, w("Gather", row, c.put(node, "one", np.array([0])), axis=x.rank - 1), np.float32),
        w.number(0, np.float32),
    )
    width = max(columns) + 1
    y = w("Concat", *(counts.get(k, none) for k in range(width)), axis=x.rank - 1)
    weights = np.ones(width, np.float32)
    if args["weights"] is not None:
        weights[columns] = args["weights"]
    if args["mode"] == "IDF":
        y = cast_to(w, w("Greater", y, w.number(0, np.float32)), np.float32)
    if args["mode"] != "TF":
        y = w("Mul", y, c.put(node, "weights", weights))
    return w.done(y)


REWRITES: Mapping[str, Rewrite] = {
    "Adagrad": _stepped,
    "Adam": _stepped,
    "ArrayFeatureExtractor": _features,
    "BatchNormalization": _batch_normalised,
    "Binarizer": _marked,
    "BitCast": _same_bits,
    "Clip": _clipped,
    "Compress": _compressed,
    "Momentum": _stepped,
    "Pad": _padded_by,
    "Pow": _power,
    "QLinearConv": _quantised_conv,
    "ReverseSequence": _reversed,
    "Slice": _backwards,
    "TensorScatter": _written,
    "TfIdfVectorizer": _grams,
    "ArgMax": _last_place,
    "ArgMin": _last_place,
    "ConvInteger": _integer_product("Conv"),
    "CumProd": _running,
    "CumSum": _running,
    "DequantizeLinear": _dequantize,
    "Dropout": _all_kept,
    "EyeLike": _eye_like,
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalized,
    "IsInf": _infinite,
    "LRN": _response_normalized,
    "LpNormalization": _lp_normalized,
    "MatMulInteger": _integer_product("MatMul"),
    "OneHot": _one_hot,
    "QLinearMatMul": _quantised_matmul,
    "QuantizeLinear": _quantize,
    "Resize": _resize,
    "Shrink": _shrunk,
}
