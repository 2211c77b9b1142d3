"""More ONNX nodes as other ONNX nodes: what neither a map of the specs nor ONNX's own function bodies say.

Part of `onnx_ops.REWRITE`; its rules hold.  May import: intexpr, captured, onnx_convert (types), numpy.
To add an operator: a function, and its line in `REWRITES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .captured import RowRefused
from .folder import numpy_dtype

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter

__all__ = ["REWRITES"]

Args = Mapping[str, Any]
Rewrite = Callable[["OnnxConverter", Any, Args], "Sequence[Any] | None"]


class _Writer:
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


def _kind(t: Any) -> Any:
    return numpy_dtype(t.dtype)


def _extent(t: Any, axis: int) -> int:
    value = t.shape[axis].value
    if value is None:
        raise RowRefused(f"the extent of `{t.name}` along axis {axis} varies")
    return int(value)


def _cast_to(w: _Writer, name: str, dtype: Any) -> str:
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
    n = _extent(x, axis)
    w = _Writer(c, node)
    back = c.put(node, "back", np.arange(n - 1, -1, -1))
    place = w(
        node.op_type, w("Gather", node.input[0], back, axis=axis), axis=axis, keepdims=int(args["keepdims"])
    )
    return w.done(w("Sub", w.number(n - 1, np.int64), place))


def _marks(w: _Writer, places: str, n: int, rank: int, axis: int) -> str:
    """Where the index along an axis is a place; `places` has extent 1 there."""
    shape = [n if k == axis else 1 for k in range(rank)]
    return w("Equal", places, w.c.put(w.node, "range", np.arange(n).reshape(shape)))


def _hardmax(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = args["input"]
    axis = int(args["axis"]) % x.rank
    if c.opset < 13 and axis != x.rank - 1:
        raise RowRefused("axes behind its own are one")
    w = _Writer(c, node)
    best = w("ArgMax", node.input[0], axis=axis, keepdims=1)
    return w.done(_cast_to(w, _marks(w, best, _extent(x, axis), x.rank, axis), _kind(x)))


def _one_hot(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    indices, depth = args["indices"], args["depth"]
    if depth.content is None or not depth.known:
        raise RowRefused(f"`{depth.name}` is known only when the model runs")
    n = int(depth.content.reshape(-1)[0])
    rank = indices.rank + 1
    axis = int(args["axis"]) % rank
    w = _Writer(c, node)
    place = _cast_to(w, node.input[0], np.int64)
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
    n = _extent(x, at)
    w = _Writer(c, node)
    back = c.put(node, "back", np.arange(n - 1, -1, -1))
    given = w("Gather", node.input[0], back, axis=at) if reverse else node.input[0]
    out = w(node.op_type, given, node.input[1])
    if exclusive:
        shape = [1 if k == at else _extent(x, k) for k in range(x.rank)]
        zero = c.put(node, "begin", np.full(shape, int(node.op_type == "CumProd"), _kind(x)))
        kept = w("Gather", out, c.put(node, "kept", np.arange(n - 1)), axis=at)
        out = w("Concat", zero, kept, axis=at)
    return w.done(w("Gather", out, back, axis=at) if reverse else out)


# ---- quantised numbers --------------------------------------------------------------------------------------------


def _along(c: OnnxConverter, node: Any, w: _Writer, name: str, t: Any, x: Any, axis: int, block: int) -> str:
    """A scale or a zero point as it broadcasts against x: one, or one for each place of an axis."""
    if block:
        raise RowRefused("blocks of a scale each")
    if t.rank == 0 or (t.rank == 1 and t.shape[0].value == 1 and x.rank == 0):
        return name
    if t.rank != 1:
        raise RowRefused(f"`{t.name}` has {t.rank} axes")
    shape = [-1 if k == axis % x.rank else 1 for k in range(x.rank)]
    return w("Reshape", name, c.put(node, "shape", np.array(shape)))


def _quantised(w: _Writer, x: str, scale: str, zero: str, kind: Any, real: Any) -> str:
    """round(x / scale) + zero, cut to what the type holds."""
    ends = np.iinfo(kind)
    wide = w("Add", w("Round", w("Div", x, scale)), _cast_to(w, zero, real))
    cut = w("Clip", wide, w.number(ends.min, real), w.number(ends.max, real))
    return _cast_to(w, cut, kind)


def _quantize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x, scale, zero = args["x"], args["y_scale"], args.get("y_zero_point")
    if np.dtype(_kind(x)).kind != "f" or (zero is not None and np.dtype(_kind(zero)).kind not in "iu"):
        raise RowRefused("of types that are no integers and floats of ours")
    if zero is None and args.get("output_dtype"):
        raise RowRefused("an output type without a zero point")
    w = _Writer(c, node)
    axis, block = int(args.get("axis", 1)), int(args.get("block_size") or 0)
    kind = _kind(zero) if zero is not None else np.uint8
    by = _cast_to(w, _along(c, node, w, node.input[1], scale, x, axis, block), np.float32)
    at = _along(c, node, w, node.input[2], zero, x, axis, block) if zero is not None else w.number(0, kind)
    given = _cast_to(w, node.input[0], np.float32)
    return w.done(_quantised(w, given, by, at, kind, np.float32))


def _restored(w: _Writer, x: str, scale: str, zero: str, real: Any) -> str:
    wide = w("Sub", _cast_to(w, x, np.float32), _cast_to(w, zero, np.float32))
    return w("Mul", wide, _cast_to(w, scale, np.float32))


def _dequantize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x, scale, zero = args["x"], args["x_scale"], args.get("x_zero_point")
    if np.dtype(_kind(x)).kind not in "iu" or args.get("output_dtype"):
        raise RowRefused("of types that are no integers of ours")
    w = _Writer(c, node)
    axis, block = int(args.get("axis", 1)), int(args.get("block_size") or 0)
    by = _along(c, node, w, node.input[1], scale, x, axis, block)
    at = (
        _along(c, node, w, node.input[2], zero, x, axis, block) if zero is not None else w.number(0, _kind(x))
    )
    return w.done(_cast_to(w, _restored(w, node.input[0], by, at, np.float32), _kind(scale)))


def _quantised_matmul(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    names = list(node.input)
    tensors = list(args.values())[: len(names)]
    if any(
        t.rank > 1 or (t.rank == 1 and t.shape[0].value != 1)
        for t in (tensors[k] for k in (1, 2, 4, 5, 6, 7))
    ):
        raise RowRefused("a scale for each row or column")
    w = _Writer(c, node)
    left = w("Sub", _cast_to(w, names[0], np.float64), _cast_to(w, names[2], np.float64))
    right = w("Sub", _cast_to(w, names[3], np.float64), _cast_to(w, names[5], np.float64))
    scale = w(
        "Div",
        w("Mul", *(_cast_to(w, names[k], np.float32) for k in (1, 4))),
        _cast_to(w, names[6], np.float32),
    )
    exact = w("MatMul", left, right)
    wide = w("Mul", exact, _cast_to(w, scale, np.float64))
    one = w.number(1, np.float64)
    return w.done(_quantised(w, wide, one, names[7], _kind(tensors[7]), np.float64))


def _integer_product(op: str) -> Rewrite:
    """Products of small integers are exact in f64."""

    def rewrite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
        w = _Writer(c, node)
        names = list(node.input)
        parts = []
        for k in (0, 1):
            wide = _cast_to(w, names[k], np.float64)
            zero = names[2 + k] if len(names) > 2 + k else ""
            if zero:
                t = c.env[zero]
                if t.rank == 1 and t.shape[0].value != 1:
                    if k == 1 or op != "MatMul":
                        raise RowRefused("a zero point for each column")
                    zero = w.axes("Unsqueeze", zero, [1])
                wide = w("Sub", wide, _cast_to(w, zero, np.float64))
            parts.append(wide)
        kept = {a.name: c.onnx.helper.get_attribute_value(a) for a in node.attribute}
        return w.done(_cast_to(w, w(op, *parts, **kept), np.int32))

    return rewrite


# ---- norms, windows, tests -----------------------------------------------------------------------------------------


def _lp_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    w = _Writer(c, node)
    x, axis = node.input[0], int(args["axis"])
    size = w.axes("ReduceL1" if args["p"] == 1 else "ReduceL2", x, [axis], keepdims=1)
    kind = _kind(next(iter(args.values())))
    none = w("Equal", size, w.number(0, kind))
    safe = w("Where", none, w.number(1, kind), size)
    return w.done(w("Div", x, safe))


def _instance_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    t = args["input"]
    w = _Writer(c, node)
    x, axes = node.input[0], list(range(2, t.rank))
    away = w("Sub", x, w.axes("ReduceMean", x, axes, keepdims=1))
    spread = w.axes("ReduceMean", w("Mul", away, away), axes, keepdims=1)
    root = w("Sqrt", w("Add", spread, w.number(args["epsilon"], _kind(t))))
    shape = c.put(node, "shape", np.array([1, -1, *([1] * len(axes))]))
    scale, bias = (w("Reshape", node.input[k], shape) for k in (1, 2))
    return w.done(w("Add", w("Mul", w("Div", away, root), scale), bias))


def _lp_pool(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """A mean of powers, times how many there are."""
    x = next(iter(args.values()))
    kernel = [int(k) for k in args["kernel_shape"]]
    if any(d != 1 for d in (args.get("dilations") or [])) or args.get("ceil_mode"):
        raise RowRefused("windows with gaps, or rounded up")
    p, kind = int(args["p"]), _kind(x)
    kept = {k: args[k] for k in ("kernel_shape", "strides", "pads", "auto_pad") if args.get(k)}
    w = _Writer(c, node)
    powers = w("Pow", w("Abs", node.input[0]), w.number(p, kind))
    means = w("AveragePool", powers, count_include_pad=1, **{k: _plain(v) for k, v in kept.items()})
    sums = w("Mul", means, w.number(math.prod(kernel), kind))
    return w.done(w("Pow", sums, w.number(1 / p, kind)))


def _plain(v: Any) -> Any:
    return list(v) if isinstance(v, tuple) else v


def _infinite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    up, down = bool(args["detect_positive"]), bool(args["detect_negative"])
    if up and down:
        return None
    x = next(iter(args.values()))
    w = _Writer(c, node)
    if not up and not down:
        raise RowRefused("it looks for nothing")
    side = w("Greater" if up else "Less", node.input[0], w.number(0, _kind(x)))
    return w.done(w("And", w("IsInf", node.input[0]), side))


def _shrunk(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    x = next(iter(args.values()))
    kind = _kind(x)
    w = _Writer(c, node)
    name, bias, edge = node.input[0], args["bias"], args["lambd"]
    low = w("Less", name, w.number(-edge, kind))
    high = w("Greater", name, w.number(edge, kind))
    up, down = w("Add", name, w.number(bias, kind)), w("Sub", name, w.number(bias, kind))
    return w.done(w("Where", low, up, w("Where", high, down, w.number(0, kind))))


def _eye_like(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    from .onnx_model import dtype_of

    x = next(iter(args.values()))
    kind = numpy_dtype(dtype_of(int(args["dtype"]))) if args.get("dtype") else _kind(x)
    w = _Writer(c, node)
    return w.done(c.put(node, "eye", np.eye(_extent(x, 0), _extent(x, 1), int(args["k"]), dtype=kind)))


def _scatter(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    w = _Writer(c, node)
    return w.done(w("ScatterElements", *node.input, axis=int(args["axis"])))


def _all_kept(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Dropout outside of training, and the mask that says so."""
    mode = args.get("training_mode")
    if mode is not None and not (mode.known and not mode.content.any()):
        raise RowRefused("it trains")
    x = next(iter(args.values()))
    w = _Writer(c, node)
    nodes = w.done(node.input[0])
    if len(node.output) > 1 and node.output[1]:
        shape = [_extent(x, k) for k in range(x.rank)]
        mask = c.put(node, "mask", np.ones(shape, np.bool_))
        nodes.append(c.onnx.helper.make_node("Identity", [mask], [node.output[1]]))
    return nodes


def _response_normalized(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """By a window of squares over channels: a mean of as many, zeros behind the ends."""
    x = next(iter(args.values()))
    size, kind = int(args["size"]), _kind(x)
    before, after = (size - 1) // 2, -(-(size - 1) // 2)
    n = _extent(x, 1)
    w = _Writer(c, node)
    squares = w("Mul", node.input[0], node.input[0])
    band = np.array([[1 if k - before <= j <= k + after else 0 for j in range(n)] for k in range(n)], kind)
    rest = math.prod(_extent(x, k) for k in range(2, x.rank))
    flat = w("Reshape", squares, c.put(node, "flat", np.array([_extent(x, 0), n, rest])))
    sums = w("MatMul", c.put(node, "band", band), flat)
    sums = w("Reshape", sums, c.put(node, "shape", np.array([_extent(x, k) for k in range(x.rank)])))
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


def _resizing(args: Args, have: int, scale: float, want: int) -> Any:
    """The matrix that takes an axis of the source to one of the result."""
    out = np.zeros((want, have))
    mode = args.get("coordinate_transformation_mode", "half_pixel")
    for x in range(want):
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
    return out


def _resize(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Along one axis after the other, by matrices; numbers that are only moved are gathered."""
    x = args["X"]
    sizes, scales = args.get("sizes"), args.get("scales")
    mode = args.get("coordinate_transformation_mode", "half_pixel")
    if args["mode"] == "nearest" and mode == "asymmetric" and args.get("nearest_mode") == "floor":
        return None  # the operator's own
    known = sizes if sizes is not None else scales
    if known is None or not known.known or any(e.value is None for e in x.shape):
        return None
    if c.opset < 11 or args.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = [int(a) % x.rank for a in (args.get("axes") or range(x.rank))]
    numbers = [float(v) for v in known.content.reshape(-1)]
    if len(numbers) != len(axes):
        return None
    w = _Writer(c, node)
    name, kind = node.input[0], _kind(x)
    for axis, number in zip(axes, numbers, strict=True):
        have = _extent(x, axis)
        want = int(number) if sizes is not None else math.floor(have * number)
        scale = want / have if sizes is not None else number
        if want == have and scale == 1:
            continue
        matrix = _resizing(args, have, scale, want)
        if args["mode"] == "nearest":
            name = w("Gather", name, c.put(node, "places", matrix.argmax(1)), axis=axis)
            continue
        order = [k for k in range(x.rank) if k != axis] + [axis]
        back = [order.index(k) for k in range(x.rank)]
        rows = w("Transpose", name, perm=order)
        rows = w("MatMul", rows, c.put(node, "weights", np.ascontiguousarray(matrix.T.astype(kind))))
        name = w("Transpose", rows, perm=back)
    return w.done(name)


REWRITES: Mapping[str, Rewrite] = {
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
    "LpPool": _lp_pool,
    "MatMulInteger": _integer_product("MatMul"),
    "OneHot": _one_hot,
    "QLinearMatMul": _quantised_matmul,
    "QuantizeLinear": _quantize,
    "Resize": _resize,
    "Scatter": _scatter,
    "Shrink": _shrunk,
}
