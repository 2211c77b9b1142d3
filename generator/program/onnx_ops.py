"""What single ONNX operators need beyond the `onnx:` maps of the specs.

    CONTENT   integers over symbols: what `Shape` gives and what is computed from it
    VIEWS     the same elements elsewhere: no call
    PREPARE   arguments as the maps want them: axes as an attribute wherever the opset has them, pads in pairs
    REWRITE   a node as other ONNX nodes, where neither a map nor ONNX's own function body says it

Each takes the converter and the node's arguments by the schema's names; None: this case is not mine.
May import: views, intexpr, captured, onnx_convert (types), numpy.  To add an operator: a row in one of the four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..types import DType
from . import views
from .captured import Ref, RowRefused
from .expand import ProgramDoor
from .intexpr import IntExpr, floordiv, maximum, minimum, mod, product
from .onnx_recurrent import RECURRENT
from .onnx_rewrite import REWRITES, of_nothing
from .onnx_windows import WINDOWS, pads_of

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter, Tensor

__all__ = ["CONTENT", "PREPARE", "REWRITE", "VIEWS", "slices"]

Args: TypeAlias = Mapping[str, Any]
_Content: TypeAlias = "Callable[[OnnxConverter, Args], Any]"
_View: TypeAlias = "Callable[[OnnxConverter, Args], Sequence[Ref] | None]"
_Prepare: TypeAlias = "Callable[[OnnxConverter, Args], dict[str, Any]]"
_Rewrite: TypeAlias = "Callable[[OnnxConverter, Any, Args], Sequence[Any] | None]"


# ---- reading arguments


def _numbers(x: Any) -> list[Any] | None:
    """The elements of a list attribute, or of an input whose content is known; None where it is absent."""
    if x is None:
        return None
    if isinstance(x, tuple | list):
        return list(x)
    if x.content is None:
        raise RowRefused(f"`{x.name}` is known only when the model runs")
    return [e.item() if hasattr(e, "item") else e for e in x.content.reshape(-1)]


def _extents(x: Any) -> list[IntExpr] | None:
    found = _numbers(x)
    return None if found is None else [IntExpr.of(e) for e in found]


def _elements(c: OnnxConverter, x: Any) -> list[Any] | None:
    """As `_numbers`, and what only the run can tell is read then."""
    return c.elements(x) if hasattr(x, "content") and x is not None else _numbers(x)


def _extents_of(c: OnnxConverter, x: Any) -> list[IntExpr] | None:
    found = _elements(c, x)
    return None if found is None else [IntExpr.of(e) for e in found]


def _input(args: Args) -> Tensor:
    """The first input."""
    found: Tensor = next(iter(args.values()))
    return found


def _axes(args: Args) -> list[int] | None:
    found = _numbers(args.get("axes"))
    return None if found is None else [int(a) for a in found]


# ---- integers over symbols


def _array(t: Tensor) -> Any:
    return t.content.astype(object)


def _binary(do: Callable[[Any, Any], Any]) -> _Content:
    def content(c: OnnxConverter, args: Args) -> Any:
        a, b = (_array(t) for t in list(args.values())[:2])
        return np.vectorize(do, otypes=[object])(a, b)

    return content


def _quotient(a: Any, b: Any) -> Any:
    return floordiv(IntExpr.of(a), IntExpr.of(b))


def _gather_content(c: OnnxConverter, args: Args) -> Any:
    if not args["indices"].known:
        return None
    return np.take(_array(args["data"]), args["indices"].content, axis=args["axis"])


def _concat_content(c: OnnxConverter, args: Args) -> Any:
    return np.concatenate([_array(t) for t in args["inputs"]], axis=args["axis"])


def _slice_content(c: OnnxConverter, args: Args) -> Any:
    found = slices(args)
    if found is None or any(isinstance(e, IntExpr) and e.value is None for s in found for e in s[1:3]):
        return None
    data = _array(args["data"])
    at: list[Any] = [slice(None)] * data.ndim
    for axis, start, end, step in found:
        at[axis] = slice(_int(start), _int(end), step)
    return data[tuple(at)]


def _int(e: Any) -> int:
    if isinstance(e, IntExpr):
        assert e.value is not None
        return e.value
    return int(e)


def _unsqueeze_content(c: OnnxConverter, args: Args) -> Any:
    axes = _axes(args) or []
    data = _array(args["data"])
    return np.expand_dims(data, tuple(axes))


def _squeeze_content(c: OnnxConverter, args: Args) -> Any:
    axes = _axes(args)
    return np.squeeze(_array(args["data"]), None if axes is None else tuple(axes))


def _reshape_content(c: OnnxConverter, args: Args) -> Any:
    shape = _numbers(args["shape"])
    if shape is None or not all(isinstance(e, int) for e in shape):
        return None
    return _array(args["data"]).reshape(shape)


def _cast_content(c: OnnxConverter, args: Args) -> Any:
    return _array(args["input"]) if args["to"] in (6, 7) else None


def _product_content(c: OnnxConverter, args: Args) -> Any:
    x = args["data"]
    axes = _axes(args)
    if x.rank != 1 or axes not in (None, [], [0], [-1]):
        return None
    found = np.asarray(product(IntExpr.of(e) for e in x.content), object)
    return found.reshape((1,)) if args["keepdims"] else found


def _same_content(c: OnnxConverter, args: Args) -> Any:
    return _array(_input(args))


def _equal_content(c: OnnxConverter, args: Args) -> Any:
    """Where it can be said for all values of the symbols."""
    a, b = np.broadcast_arrays(*(_array(t) for t in list(args.values())[:2]))
    out = []
    for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True):
        difference = IntExpr.of(x) - IntExpr.of(y)
        if difference.value is None and not _positive(difference) and not _positive(-difference):
            return None
        out.append(difference.value == 0)
    return np.array(out, object).reshape(a.shape)


def _positive(e: IntExpr) -> bool:
    """Above 0 whatever its symbols are (they are at least 1)."""
    return bool(e.terms) and all(n > 0 for _, n in e.terms)


def _where_content(c: OnnxConverter, args: Args) -> Any:
    if not args["condition"].known:
        return None
    return np.where(args["condition"].content, _array(args["X"]), _array(args["Y"]))


def _expand_content(c: OnnxConverter, args: Args) -> Any:
    shape = _numbers(args["shape"])
    if shape is None or not all(isinstance(e, int) for e in shape):
        return None
    data = _array(args["input"])
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))


#: operators on tensors whose elements are all known, some of them as integers over symbols
CONTENT: Mapping[str, _Content] = {
    "Add": _binary(lambda a, b: a + b),
    "Sub": _binary(lambda a, b: a - b),
    "Mul": _binary(lambda a, b: a * b),
    "Div": _binary(_quotient),
    "Mod": _binary(lambda a, b: mod(IntExpr.of(a), IntExpr.of(b))),
    "Max": _binary(lambda a, b: maximum(IntExpr.of(a), IntExpr.of(b))),
    "Min": _binary(lambda a, b: minimum(IntExpr.of(a), IntExpr.of(b))),
    "Cast": _cast_content,
    "Concat": _concat_content,
    "Equal": _equal_content,
    "Expand": _expand_content,
    "Gather": _gather_content,
    "Identity": _same_content,
    "ReduceProd": _product_content,
    "Reshape": _reshape_content,
    "Slice": _slice_content,
    "Squeeze": _squeeze_content,
    "Unsqueeze": _unsqueeze_content,
    "Where": _where_content,
}


# ---- views


def _same_view(c: OnnxConverter, args: Args) -> list[Ref] | None:
    return [c.ref(_input(args))]


def _dropout(c: OnnxConverter, args: Args) -> list[Ref] | None:
    mode = args.get("training_mode")
    if mode is not None and not (mode.known and not mode.content.any()):
        return None
    if any(o in c.read for o in c.current.output[1:]):
        return None
    return [c.ref(_input(args))]


def _reshape(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, wanted = args["data"], _extents_of(c, args["shape"])
    if wanted is None:
        return None
    shape = [x.shape[k] if e.value == 0 and not args.get("allowzero") else e for k, e in enumerate(wanted)]
    if any(e.value == -1 for e in shape):
        rest = product(e for e in shape if e.value != -1)
        left = floordiv(product(x.shape), rest) if rest.value != 0 else IntExpr.of(0)
        shape = [left if e.value == -1 else e for e in shape]
    if c.of_data(*wanted):
        for e in wanted:
            if c.of_data(e):
                c.demand(("ge", e, IntExpr.of(1)), "an extent that the run tells is at least 1")
        c.demand(("eq", product(shape), product(x.shape)), "a reshape keeps the number of elements")
    return [c.reshape(c.ref(x), shape)]


def _flatten(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, axis = _input(args), int(args["axis"])
    axis += x.rank if axis < 0 else 0
    return [c.reshape(c.ref(x), [product(x.shape[:axis]), product(x.shape[axis:])])]


def _transpose(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x = args["data"]
    r = c.ref(x)
    order = args["perm"] if args["perm"] is not None else tuple(reversed(range(x.rank)))
    return [Ref(r.base, r.dtype, views.permute(r.layout, order))]


def _unsqueeze(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, axes = args["data"], _axes(args) or []
    rank = x.rank + len(axes)
    layout = c.ref(x).layout
    for a in sorted(a % rank for a in axes):
        layout = views.unsqueeze(layout, a)
    return [Ref(c.ref(x).base, x.dtype, layout)]


def _squeeze(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, axes = args["data"], _axes(args)
    r = c.ref(x)
    return [Ref(r.base, r.dtype, views.squeeze(r.layout, axes))]


def _expand(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, wanted = args["input"], _extents_of(c, args["shape"])
    if wanted is None:
        return None
    rank = max(x.rank, len(wanted))
    own = [IntExpr.of(1)] * (rank - x.rank) + list(x.shape)
    other = [IntExpr.of(1)] * (rank - len(wanted)) + wanted
    shape = [_joined(c, a, b) for a, b in zip(own, other, strict=True)]
    r = c.ref(x)
    return [Ref(r.base, r.dtype, views.expand(r.layout, shape))]


def _joined(c: OnnxConverter, own: IntExpr, other: IntExpr) -> IntExpr:
    """The extent that two have together, the other one maybe known only when the program runs."""
    if not c.of_data(other):
        return own if other.value == 1 else other
    if own.value is None:
        raise RowRefused(f"{own} and an extent that only the run can tell")
    if own.value == 1:
        c.demand(("ge", other, IntExpr.of(0)), "an extent is not below 0")
        return other
    c.demand(("or", ("eq", other, own), ("eq", other, IntExpr.of(1))), f"{own} is expanded to itself alone")
    return own


def slices(args: Args, c: OnnxConverter | None = None) -> list[tuple[int, Any, Any, int]] | None:
    """(axis, start, end, step) of a Slice of any opset.  With a converter, what only the run can tell is read then."""
    starts, ends = (_numbers(args[n]) if c is None else _elements(c, args[n]) for n in ("starts", "ends"))
    if starts is None or ends is None:
        return None
    rank = args["data"].rank
    axes = _axes(args)
    axes = list(range(len(starts))) if axes is None else axes
    steps = _numbers(args.get("steps")) or [1] * len(starts)
    return [(a % rank, s, e, int(k)) for a, s, e, k in zip(axes, starts, ends, steps, strict=True)]


def _slice(c: OnnxConverter, args: Args) -> list[Ref] | None:
    found = slices(args, c)
    if found is None or any(step < 1 for *_, step in found):
        return None
    r = c.ref(args["data"])
    layout = r.layout
    for axis, start, end, step in found:
        ends = [_place(c, IntExpr.of(e), layout.shape[axis]) for e in (start, end)]
        layout = views.slice_dim(layout, axis, ends[0], ends[1], step)
    return [Ref(r.base, r.dtype, layout)]


def _place(c: OnnxConverter, e: IntExpr, n: IntExpr) -> IntExpr:
    """An end of a slice, which may count from the end of the axis where its sign is not known."""
    if e.value is not None:
        return e
    low, high = ProgramDoor(c).bounds(e)  # type: ignore[arg-type]
    if low is not None and low >= 0:
        return e
    zero = IntExpr.of(0)
    below = maximum(minimum(e, zero), IntExpr.of(-1))  # -1 or 0
    return minimum(maximum(e + n if high is not None and high < 0 else e - n * below, zero), n)


def _split(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x = args["input"]
    axis = int(args["axis"]) % x.rank
    sizes = _extents(args.get("split"))
    if sizes is None:
        count = args.get("num_outputs") or len(c.current.output)
        whole = -floordiv(-x.shape[axis], IntExpr.of(count))
        sizes = [whole] * (count - 1) + [x.shape[axis] - whole * (count - 1)]
    r = c.ref(x)
    return [Ref(r.base, r.dtype, part) for part in views.split(r.layout, axis, sizes)]


def _gather_view(c: OnnxConverter, args: Args) -> list[Ref] | None:
    """One index that is known: a slice of the data."""
    x, i = args["data"], args["indices"]
    if i.content is None or i.rank != 0:
        return None
    r = c.ref(x)
    at = IntExpr.of(i.content.reshape(-1)[0] if not i.known else int(i.content))
    return [Ref(r.base, r.dtype, views.select(r.layout, int(args["axis"]), at))]


def _depth_to_space(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, b = args["input"], int(args["blocksize"])
    n, d, h, w = x.shape
    rest = floordiv(d, IntExpr.of(b * b))
    block = IntExpr.of(b)
    first = args.get("mode", "DCR") == "DCR"
    split = [n, block, block, rest, h, w] if first else [n, rest, block, block, h, w]
    r = c.reshape(c.ref(x), split)
    order = (0, 3, 4, 1, 5, 2) if first else (0, 1, 4, 2, 5, 3)
    r = Ref(r.base, r.dtype, views.permute(r.layout, order))
    return [c.reshape(r, [n, rest, h * b, w * b])]


def _space_to_depth(c: OnnxConverter, args: Args) -> list[Ref] | None:
    x, b = args["input"], int(args["blocksize"])
    n, d, h, w = x.shape
    block = IntExpr.of(b)
    down, across = floordiv(h, block), floordiv(w, block)
    r = c.reshape(c.ref(x), [n, d, down, block, across, block])
    order = (0, 3, 5, 1, 2, 4) if args.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    r = Ref(r.base, r.dtype, views.permute(r.layout, order))
    return [c.reshape(r, [n, d * b * b, down, across])]


def _cast(c: OnnxConverter, args: Args) -> list[Ref] | None:
    from .onnx_model import dtype_of

    return [c.cast(c.ref(args["input"]), dtype_of(int(args["to"])))]


#: operators that only say where elements lie (or of which dtype: `cast` stands in no table)
VIEWS: Mapping[str, _View] = {
    "Cast": _cast,
    "DepthToSpace": _depth_to_space,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather_view,
    "Identity": _same_view,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


# ---- arguments


def _reduction(c: OnnxConverter, args: Args) -> dict[str, Any]:
    """Axes as an attribute; absent means all, unless the node says none."""
    axes = _axes(args)
    x = args["data"]
    if not axes and args.get("noop_with_empty_axes"):
        raise RowRefused("it reduces nothing")
    named = tuple(range(x.rank)) if not axes else tuple(axes)
    out = {"data": x, "axes": named, "keepdims": bool(args["keepdims"])}
    if c.overload in ("onnx.ReduceSum", "onnx.ReduceProd"):
        out["dtype"] = x.dtype.value  # the sum of i32 is i32
    if c.overload == "onnx.ReduceProd":
        out["axes"] = named[0]  # `_reduce_nothing` leaves one
    return out


def _arg_extreme(c: OnnxConverter, args: Args) -> dict[str, Any]:
    return {**args, "keepdims": bool(args["keepdims"])}


def _top_k(c: OnnxConverter, args: Args) -> dict[str, Any]:
    k = _elements(c, args["K"]) if not isinstance(args.get("k"), int) else [args["k"]]
    assert k is not None
    return {**args, "K": k[0], "largest": bool(args.get("largest", 1)), "sorted": None}


def _cum_sum(c: OnnxConverter, args: Args) -> dict[str, Any]:
    axis = _numbers(args["axis"])
    assert axis is not None
    return {**args, "axis": axis[0], "dtype": args["x"].dtype.value}


def _spatial(args: Args) -> int:
    return int(_input(args).rank) - 2


def _windows(c: OnnxConverter, args: Args) -> dict[str, Any]:
    """Strides, dilations and pads of every spatial axis; pads must be equal on both sides."""
    n = _spatial(args)
    out = dict(args)
    out["strides"] = args["strides"] or (1,) * n
    out["dilations"] = args.get("dilations") or (1,) * n
    pads = pads_of(args, n)
    if pads[:n] != pads[n:]:
        raise RowRefused(f"pads {pads} are not the same before and after")
    out["pads"] = pads[:n]
    out["auto_pad"] = None
    if "group" in args:
        out["kernel_shape"] = None
    return out


def _pool(c: OnnxConverter, args: Args) -> dict[str, Any]:
    out = _windows(c, args)
    out["ceil_mode"] = bool(args.get("ceil_mode"))
    if "count_include_pad" in args:
        out["count_include_pad"] = bool(args["count_include_pad"])
        if any(d != 1 for d in out["dilations"]):
            raise RowRefused(f"dilations {out['dilations']}")
        out["dilations"] = None
    if args.get("storage_order") and any(o in c.read for o in c.current.output[1:]):
        raise RowRefused("places that count by columns")
    out["storage_order"] = None
    return out


def _transposed(c: OnnxConverter, args: Args) -> dict[str, Any]:
    if args["output_shape"] is not None or (args.get("auto_pad") or "NOTSET") not in ("NOTSET", "VALID"):
        raise RowRefused("its pads follow from an output shape")
    out = _windows(c, args)
    out["output_padding"] = args["output_padding"] or (0,) * _spatial(args)
    return out


def _batch_norm(c: OnnxConverter, args: Args) -> dict[str, Any]:
    if args.get("training_mode"):
        raise RowRefused("it trains")
    out = {**args, "momentum": None, "training_mode": None, "spatial": None}
    for name in ("mean", "var"):  # as they were called before opset 15
        if name in out:
            out[f"input_{name}"] = out.pop(name)
    return out


def _layer_norm(c: OnnxConverter, args: Args) -> dict[str, Any]:
    x = _input(args)
    axis = int(args["axis"]) % x.rank
    shape = tuple(e.value if e.value is not None else e for e in x.shape[axis:])
    for name in ("Scale", "scale", "B"):
        w = args.get(name)
        if w is not None and list(w.shape) != list(x.shape[axis:]):
            raise RowRefused(f"`{w.name}` is not of the normalised shape")
    return {**args, "axis": shape, "stash_type": None}


def _pad(c: OnnxConverter, args: Args) -> dict[str, Any]:
    x, pads = args["data"], _elements(c, args["pads"])
    assert pads is not None
    axes = _axes(args)
    n = x.rank
    before, after = [0] * n, [0] * n
    for k, a in enumerate(range(n) if axes is None else axes):
        before[a % n], after[a % n] = pads[k], pads[len(pads) // 2 + k]
    value = args.get("constant_value", args.get("value"))
    mode = args["mode"]
    if mode == "constant":
        filled = _numbers(value)[0] if hasattr(value, "content") else value  # type: ignore[index]
        return {"data": x, "before": tuple(before), "after": tuple(after), "mode": mode, "value": filled or 0}
    if any(not isinstance(p, int) or p < 0 for p in (*before, *after)):
        raise RowRefused(f"pads {pads} in mode {mode}")
    return {"data": x, "before": tuple(before), "after": tuple(after), "mode": mode}


def _clip(c: OnnxConverter, args: Args) -> dict[str, Any]:
    """Bounds that are known are attributes."""
    out = dict(args)
    for name in ("min", "max"):
        t: Any = args.get(name)
        if hasattr(t, "content"):
            if not t.known:
                raise RowRefused(f"`{t.name}` is known only when the model runs")
            out[name] = t.content.reshape(-1)[0].item()
    return out


def _full(c: OnnxConverter, args: Args) -> dict[str, Any]:
    value = args["value"]
    number = np.zeros(1, np.float32) if value is None else np.asarray(value)
    from .onnx_model import dtype_of

    kind = dtype_of(c.onnx.helper.np_dtype_to_tensor_dtype(number.dtype))
    extents = tuple(_elements(c, args["input"]) or ())
    return {"input": extents, "value": number.reshape(-1)[0].item(), "dtype": kind.value}


def _range(c: OnnxConverter, args: Args) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("start", "limit", "delta"):
        found = _elements(c, args[name])
        assert found is not None
        out[name] = found[0]
    return {**out, "dtype": args["start"].dtype.value}


def _repeat(c: OnnxConverter, args: Args) -> dict[str, Any]:
    times = _elements(c, args["repeats"])
    return {"input": args["input"], "repeats": tuple(times or ())}


def _triangle(c: OnnxConverter, args: Args) -> dict[str, Any]:
    k = _numbers(args["k"])
    return {"input": args["input"], "k": k[0] if k else 0, "upper": bool(args["upper"])}


def _of_ints(c: OnnxConverter, args: Args) -> dict[str, Any]:
    """A demand on the kind of number as one more argument, which a map asks for by `only`."""
    return {**args, "kind": "float" if _input(args).dtype.is_float else "int"}


def _modulo(c: OnnxConverter, args: Args) -> dict[str, Any]:
    return {**args, "fmod": bool(args["fmod"])}


def _is_inf(c: OnnxConverter, args: Args) -> dict[str, Any]:
    return {k: bool(v) if k.startswith("detect") else v for k, v in args.items()}


def _resize(c: OnnxConverter, args: Args) -> dict[str, Any]:
    """Spatial extents of the result, and the interpolation as one word."""
    x = args["X"]
    sizes = _extents(args.get("sizes"))
    if args.get("axes") or args.get("antialias") or args.get("exclude_outside"):
        raise RowRefused("axes, antialias and exclude_outside of Resize")
    how, where = args["mode"], args.get("coordinate_transformation_mode", "half_pixel")
    if sizes is None:
        scales = _numbers(args["scales"])
        assert scales is not None
        if any(float(s) != int(s) for s in scales):
            raise RowRefused(f"scales {scales} that are no whole numbers")
        sizes = [e * int(s) for e, s in zip(x.shape, scales, strict=True)]
    if list(sizes[:2]) != list(x.shape[:2]):
        raise RowRefused("a Resize of batch or channels")
    out = tuple(e.value if e.value is not None else e for e in sizes[2:])
    nearest = args.get("nearest_mode", "round_prefer_floor")
    kind = f"{how} {where} {nearest}" if how == "nearest" else f"{how} {where} {len(out)}"
    return {"X": x, "sizes": out, "kind": kind, "coeff": args.get("cubic_coeff_a")}


def _grid(c: OnnxConverter, args: Args) -> dict[str, Any]:
    modes = {"bilinear": 0, "linear": 0, "nearest": 1}
    paddings = {"zeros": 0, "border": 1}
    if args["mode"] not in modes or args["padding_mode"] not in paddings:
        raise RowRefused(f"mode {args['mode']}, padding_mode {args['padding_mode']}")
    return {
        **args,
        "mode": modes[args["mode"]],
        "padding_mode": paddings[args["padding_mode"]],
        "align_corners": bool(args["align_corners"]),
        "axes": _input(args).rank - 2,
    }


PREPARE: Mapping[str, _Prepare] = {
    "ArgMax": _arg_extreme,
    "ArgMin": _arg_extreme,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "ConstantOfShape": _full,
    "Conv": _windows,
    "ConvTranspose": _transposed,
    "CumProd": _cum_sum,
    "CumSum": _cum_sum,
    "Div": _of_ints,
    "GridSample": _grid,
    "IsInf": _is_inf,
    "LayerNormalization": _layer_norm,
    "MaxPool": _pool,
    "Mod": _modulo,
    "Pad": _pad,
    "RMSNormalization": _layer_norm,
    "Range": _range,
    "Resize": _resize,
    "Tile": _repeat,
    "TopK": _top_k,
    "Trilu": _triangle,
    **{
        f"Reduce{n}": _reduction
        for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum")
    },
}


# ---- rewriting


def _node(c: OnnxConverter, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return c.onnx.helper.make_node(op, list(inputs), list(outputs), **attributes)


def _shape(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Extents are content: no node at all."""
    x = args["data"]
    end = x.rank if args.get("end") is None else args["end"]
    extents = x.shape[slice(args.get("start") or 0, end)]
    _give(c, node, list(extents), (len(extents),))
    return []


def _size(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    _give(c, node, [product(args["data"].shape)], ())
    return []


def _give(c: OnnxConverter, node: Any, elements: Sequence[IntExpr], shape: tuple[int, ...]) -> None:
    from .onnx_convert import Tensor

    if all(e.value is not None for e in elements):
        content: Any = np.array([e.value for e in elements], np.int64).reshape(shape)
    else:
        content = np.empty(len(elements), object)
        content[:] = list(elements)
        content = content.reshape(shape)
    dims = tuple(IntExpr.of(n) for n in shape)
    name = node.output[0]
    c.flat.append(node)
    c.env[name] = Tensor(name, DType.I64, dims, None, content)


def _matmul(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """NumPy's rule for vectors: an axis of extent 1 that goes away again."""
    a, b = args["A"], args["B"]
    if a.rank > 1 and b.rank > 1:
        return None
    out: list[Any] = []
    names = [node.input[0], node.input[1]]
    gone = []
    if a.rank == 1:
        names[0] = f"{node.output[0]}/row"
        out.append(_reshaped(c, node, node.input[0], names[0], 0))
        gone.append(-2)
    if b.rank == 1:
        names[1] = f"{node.output[0]}/column"
        out.append(_reshaped(c, node, node.input[1], names[1], 1))
        gone.append(-1)
    whole = f"{node.output[0]}/whole"
    out.append(_node(c, "MatMul", names, [whole]))
    out.append(_squeezed(c, node, whole, gone))
    return out


def _reshaped(c: OnnxConverter, node: Any, name: str, to: str, axis: int) -> Any:
    if c.opset < 13:
        return _node(c, "Unsqueeze", [name], [to], axes=[axis])
    return _node(c, "Unsqueeze", [name, c.put(node, "axis", np.array([axis]))], [to])


def _squeezed(c: OnnxConverter, node: Any, name: str, axes: Sequence[int]) -> Any:
    if c.opset < 13:
        return _node(c, "Squeeze", [name], [node.output[0]], axes=list(axes))
    return _node(c, "Squeeze", [name, c.put(node, "axes", np.array(axes))], [node.output[0]])


def _gemm(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """alpha A' B' + beta C in steps, where no operator takes it as it is."""
    kind = _numpy(args["A"])
    out: list[Any] = []
    names = list(node.input)
    for k, (flag, what) in enumerate((("transA", "A"), ("transB", "B"))):
        if args[flag]:
            to = f"{node.output[0]}/{what}"
            out.append(_node(c, "Transpose", [names[k]], [to], perm=[1, 0]))
            names[k] = to
    last = f"{node.output[0]}/product"
    out.append(_node(c, "MatMul", names[:2], [last]))
    if args["alpha"] != 1.0:
        out.append(
            _node(
                c,
                "Mul",
                [last, c.put(node, "alpha", np.array(args["alpha"], kind))],
                [f"{last}.alpha"],
            )
        )
        last = f"{last}.alpha"
    if args["C"] is None or args["beta"] == 0.0:
        return [*out, _node(c, "Identity", [last], node.output)]
    bias = names[2]
    if args["beta"] != 1.0:
        to = f"{node.output[0]}/C"
        out.append(_node(c, "Mul", [bias, c.put(node, "beta", np.array(args["beta"], kind))], [to]))
        bias = to
    return [*out, _node(c, "Add", [last, bias], node.output)]


def _numpy(t: Any) -> Any:
    from .folder import numpy_dtype

    return numpy_dtype(t.dtype)


def _chain(op: str) -> _Rewrite:
    """A variadic operator as pairs, from the left."""

    def rewrite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
        names = list(node.input)
        if len(names) == 1:
            return [_node(c, "Identity", names, node.output)]
        if len(names) == 2 and op == node.op_type:
            return None
        out = []
        last = names[0]
        for k, name in enumerate(names[1:]):
            to = node.output[0] if k == len(names) - 2 else f"{node.output[0]}/{k}"
            out.append(_node(c, op, [last, name], [to]))
            last = to
        return out

    return rewrite


def _cast_like(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    from .onnx_model import onnx_of

    return [_node(c, "Cast", node.input[:1], node.output, to=onnx_of(args["target_type"].dtype))]


def _mean(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    total = f"{node.output[0]}/sum"
    first = c.env[node.input[0]]
    count = c.put(node, "count", np.array(len(node.input), _numpy(first)))
    return [_node(c, "Sum", node.input, [total]), _node(c, "Div", [total, count], node.output)]


def _padded(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """A convolution whose pads differ before and after: padded first."""
    n = _spatial(args)
    pads = pads_of(args, n)
    if pads[:n] == pads[n:]:
        return None
    x = _input(args)
    to = f"{node.output[0]}/padded"
    whole = [0, 0, *pads[:n], 0, 0, *pads[n:]]
    if c.opset < 11:
        first = _node(c, "Pad", [node.input[0]], [to], pads=whole)
    else:
        zero = c.put(node, "value", np.array(0, _numpy(x)))
        first = _node(c, "Pad", [node.input[0], c.put(node, "pads", np.array(whole)), zero], [to])
    own = c.onnx.NodeProto()
    own.CopyFrom(node)
    kept = [a for a in node.attribute if a.name not in ("pads", "auto_pad")]
    del own.attribute[:]
    own.attribute.extend(kept)
    own.input[0] = to
    return [first, own]


def _global_pool(op: str) -> _Rewrite:
    def rewrite(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
        axes = list(range(2, _input(args).rank))
        if c.opset < 18:
            return [_node(c, op, node.input, node.output, axes=axes, keepdims=1)]
        name = c.put(node, "axes", np.array(axes))
        return [_node(c, op, [node.input[0], name], node.output, keepdims=1)]

    return rewrite


def _indices(c: OnnxConverter, node: Any, extent: IntExpr, which: int = 1) -> tuple[list[Any], str]:
    """Indices that may count from the end, as ones that do not: (nodes, name)."""
    name = node.input[which]
    t = c.env[name]
    if t.known:
        if (t.content >= 0).all():
            return [], name
        if extent.value is not None:
            wrapped = np.where(t.content < 0, t.content + extent.value, t.content)
            return [], c.put(node, "indices", wrapped.astype(t.content.dtype))
    if name in c.wrapped:
        return [], name
    kind = _numpy(t)
    zero = c.put(node, "zero", np.array(0, kind))
    size = f"{node.output[0]}/extent"
    if extent.value is not None:
        size = c.put(node, "extent", np.array(extent.value, kind))
        first: list[Any] = []
    else:  # the extent is content, of the data's own shape
        axis = next(k for k, e in enumerate(c.env[node.input[0]].shape) if e == extent)
        whole, at = f"{size}.shape", c.put(node, "axis", np.array(axis))
        first = [
            _node(c, "Shape", [node.input[0]], [whole]),
            _node(c, "Gather", [whole, at], [f"{size}.one"], axis=0),
            _node(c, "Cast", [f"{size}.one"], [size], to=c.onnx.helper.np_dtype_to_tensor_dtype(kind)),
        ]
    below, moved, to = (f"{node.output[0]}/{w}" for w in ("below", "moved", "wrapped"))
    c.wrapped.add(to)
    return [
        *first,
        _node(c, "Less", [name, zero], [below]),
        _node(c, "Add", [name, size], [moved]),
        _node(c, "Where", [below, moved, name], [to]),
    ], to


def _gather(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Indices of any rank along any axis: flattened, chosen, and the axes put back."""
    x, i = args["data"], args["indices"]
    axis = int(args["axis"]) % x.rank
    nodes, name = _indices(c, node, x.shape[axis])
    if i.rank == 1 and name == node.input[1]:
        return None
    if i.rank == 1:
        return [*nodes, _node(c, "Gather", [node.input[0], name], node.output, axis=axis)]
    out = f"{node.output[0]}/rows"
    flat = f"{node.output[0]}/flat"
    minus = c.put(node, "flat", np.array([-1]))
    c.wrapped.add(flat)
    nodes += [
        _node(c, "Reshape", [name, minus], [flat]),
        _node(c, "Gather", [node.input[0], flat], [out], axis=axis),
    ]
    shape = [*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]]
    return [*nodes, *_reshape_to(c, node, out, shape)]


def _reshape_to(c: OnnxConverter, node: Any, name: str, shape: Sequence[IntExpr]) -> list[Any]:
    """A reshape to extents, those over symbols taken from the run: at most one is left open."""
    numbers = [e.value for e in shape]
    open_ = [k for k, v in enumerate(numbers) if v is None]
    if len(open_) <= 1:
        target = c.put(node, "shape", np.array([-1 if v is None else v for v in numbers]))
        return [_node(c, "Reshape", [name, target], node.output)]
    # Extents come from the shapes of the node's own inputs.
    parts: list[str] = []
    nodes: list[Any] = []
    for k, e in enumerate(shape):
        if e.value is not None:
            parts.append(c.put(node, "extent", np.array([e.value])))
            continue
        source = next((n for n in node.input if n and e in c.env[n].shape), None)
        if source is None:
            raise RowRefused(f"the extent {e} of its result")
        axis = list(c.env[source].shape).index(e)
        whole, one = f"{node.output[0]}/shape.{k}", f"{node.output[0]}/extent.{k}"
        nodes.append(_node(c, "Shape", [source], [whole]))
        nodes.append(_node(c, "Gather", [whole, c.put(node, "axis", np.array([axis]))], [one], axis=0))
        parts.append(one)
    target = f"{node.output[0]}/target"
    nodes.append(_node(c, "Concat", parts, [target], axis=0))
    nodes.append(_node(c, "Reshape", [name, target], node.output))
    return nodes


def _wrapped(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """GatherElements and ScatterElements with indices that count from the end."""
    x = args["data"]
    nodes, name = _indices(c, node, x.shape[int(args["axis"]) % x.rank])
    if name == node.input[1]:
        return None
    own = c.onnx.NodeProto()
    own.CopyFrom(node)
    own.input[1] = name
    return [*nodes, own]


def _reduce_nothing(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """No axes at all where that means none; several axes of a product one after the other; the largest of nothing."""
    if node.op_type in ("ReduceMax", "ReduceMin") and (made := of_nothing(c, node, args)) is not None:
        return made
    axes = _axes(args)
    if not axes and args.get("noop_with_empty_axes"):
        inner = {"ReduceSumSquare": "Mul", "ReduceL1": "Abs", "ReduceL2": "Abs"}.get(node.op_type, "Identity")
        if node.op_type in ("ReduceLogSum", "ReduceLogSumExp"):
            return (
                None
                if node.op_type == "ReduceLogSum"
                else [_node(c, "Identity", node.input[:1], node.output)]
            )
        inputs = [node.input[0]] * (2 if inner == "Mul" else 1)
        return [_node(c, inner, inputs, node.output)]
    if node.op_type != "ReduceProd":
        return None
    rank = _input(args).rank
    named = sorted((a % rank for a in (axes or range(rank))), reverse=True)
    if len(named) == 1:
        return None
    out = []
    last = node.input[0]
    for k, a in enumerate(named):
        to = node.output[0] if k == len(named) - 1 else f"{node.output[0]}/{a}"
        own = _node(c, "ReduceProd", [last], [to], keepdims=int(args["keepdims"]))
        if c.opset < 18:
            own.attribute.append(c.onnx.helper.make_attribute("axes", [a]))
        else:
            own.input.append(c.put(node, "axes", np.array([a])))
        out.append(own)
        last = to
    return out


def _log_sum(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    to = f"{node.output[0]}/sum"
    own = c.onnx.NodeProto()
    own.CopyFrom(node)
    own.op_type = "ReduceSum"
    own.output[0] = to
    if c.opset < 18 and c.opset >= 13:  # ReduceSum takes its axes as an input earlier than the others
        axes = _axes(args)
        kept = [a for a in node.attribute if a.name != "axes"]
        del own.attribute[:]
        own.attribute.extend(kept)
        if axes:
            own.input.append(c.put(node, "axes", np.array(axes)))
    return [own, _node(c, "Log", [to], node.output)]


def _flat_softmax(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    """Before opset 13 all axes from `axis` on are one."""
    x = _input(args)
    if c.opset >= 13 or (int(args["axis"]) % max(x.rank, 1)) == x.rank - 1:
        return None
    flat, done, shape = (f"{node.output[0]}/{w}" for w in ("flat", "done", "shape"))
    return [
        _node(c, "Flatten", node.input, [flat], axis=int(args["axis"])),
        _node(c, node.op_type, [flat], [done], axis=1),
        _node(c, "Shape", node.input, [shape]),
        _node(c, "Reshape", [done, shape], node.output),
    ]


#: operators as other nodes; an empty list: what it gives was given already
REWRITE: Mapping[str, _Rewrite] = {
    "CastLike": _cast_like,
    "Conv": _padded,
    "Gather": _gather,
    "GatherElements": _wrapped,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "LogSoftmax": _flat_softmax,
    "MatMul": _matmul,
    "Max": _chain("Max"),
    "Mean": _mean,
    "Min": _chain("Min"),
    "ReduceLogSum": _log_sum,
    "ScatterElements": _wrapped,
    "Shape": _shape,
    "Size": _size,
    "Softmax": _flat_softmax,
    "Sum": _chain("Add"),
    **{
        f"Reduce{n}": _reduce_nothing
        for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
    },
    **RECURRENT,
    **REWRITES,
    **WINDOWS,
}
