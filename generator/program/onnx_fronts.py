"""ONNX operators that are several of ours: through the door that the face's own fronts use (expand.py).

    FRONTS[op](converter, node, args)   the results in the order of the node's outputs (None: not given);
                                        raises `RowRefused` where it does not take the arguments

The node itself stays in the flat graph, where onnx's evaluator says what it gives; what is computed on the way has no
name there, and parity takes it from the calls before.  What other ONNX nodes say is rewritten (onnx_ops.REWRITE).

May import: captured, expand, onnx_convert (types), onnx_model, opwright.{fronting, fronts, products}.
To add an operator: a function over `Array`s, and its line in `FRONTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...fronting import Refused, front, full, run, through
from ...fronts import COMPOSE, PLACEMENT, PREPARE
from ...products import fitted
from .captured import Ref, RowRefused
from .expand import Array, ProgramDoor
from .onnx_ops import slices
from .onnx_recurrent import plain

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter, Tensor

__all__ = ["FRONTS"]

Args: TypeAlias = Mapping[str, Any]
Front: TypeAlias = "Callable[[OnnxConverter, Any, Args], Sequence[Ref | None]]"
#: A front as it is written: tensors are `Array`s, attributes what they are.
Written: TypeAlias = "Callable[[Given], Any]"


class OnnxDoor(ProgramDoor):
    """The door of an ONNX graph: an overload's rows are asked without torch, which knows the arguments' defaults."""

    def by_rows(self, overload: str, arguments: Mapping[str, Any]) -> Any:
        for row in self.c.table.get(overload, ()):
            named = dict(row.map)
            given = {k: v for k, v in arguments.items() if k not in PLACEMENT and v is not None}
            if all(isinstance(named.get(k), str) for k in given):
                return self.called(
                    row.op, {**row.set, **{str(named[k]): v for k, v in given.items()}}, row.returns
                )
        raise Refused(f"no operator takes this {overload}")


class Given:
    """The arguments of a node, for a front."""

    def __init__(self, c: OnnxConverter, node: Any, args: Args, door: OnnxDoor) -> None:
        self.c, self.node, self.args, self.door = c, node, args, door

    def __getitem__(self, name: str) -> Any:
        """A tensor as an `Array`, several as a list; an attribute or None as it is."""
        return self.array(self.args.get(name))

    def array(self, x: Any) -> Any:
        if isinstance(x, tuple) and x and hasattr(x[0], "content"):
            return [self.array(y) for y in x]
        return Array(self.door, self.c.ref(x)) if hasattr(x, "content") else x

    def number(self, name: str) -> Any:
        """An input of one element that is known, or an attribute; None where it is absent."""
        x = self.args.get(name)
        if not hasattr(x, "content"):
            return x
        assert x is not None
        if not x.known or x.content.size != 1:
            raise Refused(f"`{x.name}` is known only when the model runs")
        return x.content.reshape(-1)[0].item()

    def tensor(self, name: str) -> Tensor:
        found: Tensor = self.args[name]
        return found

    def constant(self, array: Any) -> Array:
        """Numbers as a tensor of the program."""
        name = self.c.put(self.node, "numbers", np.ascontiguousarray(array))
        return Array(self.door, self.c.ref(self.c.env[name]))

    def called(self, overload: str, arguments: Mapping[str, Any]) -> Any:
        """What the face's own front makes of an ATen overload, or who claims it."""
        for table in (PREPARE, COMPOSE):
            if overload in table:
                return self.door.answered(front(table, overload, (), arguments))
        return self.door.by_rows(overload, arguments)


def _front(write: Written) -> Front:
    @wraps(write)
    def made(c: OnnxConverter, node: Any, args: Args) -> Sequence[Ref | None]:
        door = OnnxDoor(c)  # type: ignore[arg-type]
        try:
            with through(door):
                out = write(Given(c, node, args, door))
        except Refused as e:
            raise RowRefused(str(e)) from None
        outs = list(out) if isinstance(out, list | tuple) else [out]
        return [None if x is None else x.ref for x in outs]

    return made


# ---- products, determinants, samples on a grid -----------------------------------------------------------------------


def _einsum(g: Given) -> Any:
    return g.called("aten.einsum.default", {"equation": g["equation"], "tensors": g["Inputs"]})


def _det(g: Given) -> Any:
    return g.called("aten.linalg_det.default", {"A": g["X"]})


def _grid(g: Given) -> Any:
    x = g["X"]
    mode = {"bilinear": 0, "linear": 0, "nearest": 1, "bicubic": 2, "cubic": 2}[g["mode"]]
    padding = {"zeros": 0, "border": 1, "reflection": 2}[g["padding_mode"]]
    rank = x.ndim - 2
    if rank not in (2, 3):
        raise Refused(f"a grid of {rank} axes")
    given = {"input": x, "grid": g["grid"], "interpolation_mode": mode, "padding_mode": padding}
    return g.called(f"aten.grid_sampler_{rank}d.default", given | {"align_corners": bool(g["align_corners"])})


# ---- Fourier transforms ----------------------------------------------------------------------------------------------


def _complex(x: Array) -> Array:
    """A tensor whose last axis holds a real part, and maybe an imaginary one, as complex numbers."""
    if x.dtype not in ("f32", "f64"):
        raise Refused(f"a transform of {x.dtype}")
    if x.shape[-1] == 2:
        return run("view_as_complex", x)  # type: ignore[no-any-return]
    real = x[..., 0]
    return run("complex", real, run("mul", real, 0.0))  # type: ignore[no-any-return]


def _dft(g: Given) -> Any:
    """In f64: what cancels is as small as where NumPy computes it."""
    x = g["input"]
    rank = x.ndim
    axis = g.number("axis")
    axis = (-2 if g.c.opset >= 20 else 1) if axis is None else axis
    axis = int(axis) % rank
    if axis == rank - 1:
        raise Refused("an axis of real and imaginary parts")
    length, back, half = g.number("dft_length"), bool(g["inverse"]), bool(g["onesided"])
    z = _complex(x)
    if back and half:
        n = int(length) if length is not None else 2 * (z.shape[axis] - 1)
        y = run("irfft", fitted(z, axis, n // 2 + 1), dim=axis, length=n, scale=1 / n)
        return y.unsqueeze(y.ndim)
    z = fitted(z, axis, None if length is None else int(length)).to("c128")
    n = z.shape[axis]
    z = run("fft", z, dim=axis, scale=1 / n if back else 1.0, forward=not back)
    y = run("view_as_real", z.to("c64" if x.dtype == "f32" else "c128"))
    return y[(*[slice(None)] * axis, slice(0, n // 2 + 1))] if half else y


def _stft(g: Given) -> Any:
    x, window = g["signal"], g["window"]
    step = int(g.number("frame_step"))
    length = g.number("frame_length")
    n = int(window.shape[0] if length is None else length)
    plain = x.ndim == 2 or x.shape[-1] == 1
    line = x.reshape([x.shape[0], x.shape[1]]) if plain else run("view_as_complex", x)
    line = run("contiguous", line)
    frames = (x.shape[1] - n) // step + 1
    rows = line.as_strided([x.shape[0], frames, n], [x.shape[1], step, 1])
    if window is not None:
        rows = run("mul", rows, window)
    if g["onesided"] and plain:
        return run("view_as_real", run("rfft", rows, dim=2))
    z = run("complex", rows, run("mul", rows, 0.0)) if plain else rows
    y = run("view_as_real", run("fft", z, dim=2, forward=True))
    return y[:, :, : n // 2 + 1] if g["onesided"] else y


# ---- places that the data tell ---------------------------------------------------------------------------------------


def _nonzero(g: Given) -> Any:
    x = g["X"]
    places = run("nonzero", x if x.ndim else x.reshape([1]))
    return places.transpose(0, 1) if x.ndim else places[:, :0].transpose(0, 1)


def _counted(n: Any) -> Array:
    """0, 1, 2 … of an extent that may vary."""
    return run("sub", run("cumsum", full([n], 1, "i64"), dim=0), 1)  # type: ignore[no-any-return]


def _firsts(inverse: Array, n: Any, m: Any) -> Array:
    """Where each of m stands first among n: what is written last wins, and the first one is."""
    back = run("flip", inverse, flags=[1])
    return run("scatter", full([m], 0, "i64"), back, run("flip", _counted(n), flags=[1]), dim=0)  # type: ignore[no-any-return]


def _unique(g: Given) -> Any:
    x, axis = g["X"], g.args.get("axis")
    if axis is None:
        flat = run("contiguous", x).reshape([x.size])
        y, inverse, counts = run("unique", flat)
        n, at = x.size, 0
    else:
        at = int(axis) % x.ndim
        y, inverse, counts = g.called("aten.unique_dim.default", {"self": x, "dim": at})
        n = x.shape[at]
    m = y.shape[at]
    first = _firsts(inverse, n, m)
    if not g["sorted"]:
        first, order = run("sort", first, dim=0)
        y, counts = run("index_select", y, order, dim=at), run("index_select", counts, order, dim=0)
        rank = run("scatter", full([m], 0, "i64"), order, _counted(m), dim=0)
        inverse = run("index_select", rank, inverse, dim=0)
    return y, first, inverse, counts


def _flipped(g: Given) -> Any:
    """A whole axis backwards, whatever its extent."""
    found = slices(g.args) or []
    x, far = g["data"], 2**31 - 1
    flags = [0] * x.ndim
    for axis, start, end, step in found:
        whole = step == -1 and (start == -1 or start >= far) and end <= -far
        if not whole:
            raise Refused("a part of an axis that varies, backwards")
        flags[axis] = 1
    return run("flip", x, flags=flags)


def _parts(i: Array) -> list[Array]:
    """The columns of an index tensor."""
    k = i.shape[-1]
    if not isinstance(k, int):
        raise Refused("how many axes it indexes varies")
    return [i[..., j] for j in range(k)]


def _gather_nd(g: Given) -> Any:
    x, i, batch = g["data"], g["indices"], int(g["batch_dims"] or 0)
    parts = _parts(i)
    where = []
    for axis in range(batch):
        n = x.shape[axis]
        at = g.constant(np.arange(n)) if isinstance(n, int) else _counted(n)
        where.append(at.reshape([n if k == axis else 1 for k in range(i.ndim - 1)]))
    return run("index", x, [*where, *parts])


def _scatter_nd(g: Given) -> Any:
    x, i, u, how = g["data"], g["indices"], g["updates"], g["reduction"] or "none"
    parts = _parts(i)
    if how in ("none", "add"):
        return run("index_put", x, parts, u, accumulate=how == "add")
    k = len(parts)
    flat, rest = None, math.prod(x.shape[k:])
    for axis, part in enumerate(parts):
        n = x.shape[axis]
        part = run("remainder", part, n)
        flat = part if flat is None else run("add", run("mul", flat, n), part)
    assert flat is not None
    rows, many = math.prod(x.shape[:k]), math.prod(i.shape[:-1])
    places = run("contiguous", flat).reshape([many, 1]).expand([many, rest])
    y = run(
        "scatter_reduce",
        run("contiguous", x).reshape([rows, rest]),
        run("contiguous", places),
        run("contiguous", u).reshape([many, rest]),
        dim=0,
        reduce=_MODES[how],
        include_self=True,
    )
    return y.reshape(list(x.shape))


_MODES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_elements(g: Given) -> Any:
    x, i, u, how = g["data"], g["indices"], g["updates"], g["reduction"] or "none"
    axis = int(g["axis"] or 0) % x.ndim
    if how == "none":
        return run("scatter", x, run("remainder", i, x.shape[axis]), u, dim=axis)
    return run("scatter_reduce", x, i, u, dim=axis, reduce=_MODES[how], include_self=True)


# ---- layers over steps -----------------------------------------------------------------------------------------------

#: Where PyTorch's gates are among ONNX's.
_GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}


def _recurrent(g: Given) -> Any:
    op, order = g.node.op_type, _GATES[g.node.op_type]
    if not plain(g.node, g.args):
        raise Refused("a layer with peepholes, lengths, a clip or functions of its own")
    late, x = bool(g["layout"]), g["X"]
    x = x.transpose(0, 1) if late else x
    hidden, n = g["R"].shape[2], x.shape[1]
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[g["direction"]]

    def gates(name: str, d: int, half: int = 0) -> Any:
        t = g.args.get(name)
        if t is None:
            return None
        begin = half * len(order) * hidden
        if t.known:
            own = t.content[d]
            return g.constant(
                np.concatenate([own[begin + k * hidden : begin + (k + 1) * hidden] for k in order])
            )
        own = g[name][d]
        return run("cat", [own[begin + k * hidden : begin + (k + 1) * hidden] for k in order], dim=0)

    def state(name: str, d: int) -> Any:
        t = g[name]
        if t is None:
            return full([n, hidden], 0, x.dtype)
        return t[:, d] if late else t[d]

    name = {"GRU": "gru", "LSTM": "lstm", "RNN": "rnn_tanh"}[op]
    if op == "RNN" and g["activations"] and g["activations"][0].lower() == "relu":
        name = "rnn_relu"
    found = []
    for d, way in enumerate(ways):
        line = run("flip", x, flags=[1, 0, 0]) if way else x
        states = [state(s, d) for s in ("initial_h", "initial_c")[: 2 if op == "LSTM" else 1]]
        y, *last = run(name, line, *states, gates("W", d), gates("R", d), gates("B", d), gates("B", d, 1))
        found.append([run("flip", y, flags=[1, 0, 0]) if way else y, *last])
    axes = (2, 1, 1) if late else (1, 0, 0)
    out = []
    for k, parts in enumerate(zip(*found, strict=True)):
        whole = [(p.transpose(0, 1) if k == 0 and late else p).unsqueeze(axes[k]) for p in parts]
        out.append(whole[0] if len(whole) == 1 else run("cat", whole, dim=axes[k]))
    return out


# ---- boxes -----------------------------------------------------------------------------------------------------------


def _suppressed(g: Given) -> Any:
    """Boxes of a class from the best on; each is kept that no kept one before it overlaps too much."""
    boxes, scores = g["boxes"], g["scores"]
    most, overlap, least = (g[n] for n in ("max_output_boxes_per_class", "iou_threshold", "score_threshold"))
    batches, classes, n = scores.shape
    values, order = run("sort", scores, dim=2, descending=True)
    parts = [boxes[:, :, k] for k in range(4)]
    if g["center_point_box"]:
        halves = [run("mul", p, 0.5) for p in parts[2:]]
        low = [run("sub", p, h) for p, h in zip(parts[:2], halves, strict=True)]
        high = [run("add", p, h) for p, h in zip(parts[:2], halves, strict=True)]
    else:
        low = [run("minimum", parts[k], parts[k + 2]) for k in (0, 1)]
        high = [run("maximum", parts[k], parts[k + 2]) for k in (0, 1)]

    def ordered(line: Any) -> Any:
        """A corner of every class's boxes, the best ones first."""
        whole = run("contiguous", line.unsqueeze(1).expand([batches, classes, n]))
        return run("gather", whole, order, dim=2).reshape([batches * classes, n, 1])

    corners = run("cat", [ordered(line) for line in (*low, *high)], dim=2)
    if least is None:
        many = full([batches * classes], n, "i64")
    else:
        above = run("gt", values, least.reshape([])).reshape([batches * classes, n])
        many = run("sum", above.to("i64"), dim=[1])
    limit = full([], 0.0, boxes.dtype) if overlap is None else overlap.reshape([])
    keep = run("nms", corners, many, limit).reshape([batches, classes, n])
    count = run("cumsum", keep.to("i64"), dim=2)
    limit = full([], 0, "i64") if most is None else most.reshape([])
    places = run("nonzero", run("logical_and", keep, run("le", count, limit)))
    box = run("index", order, [places[:, k] for k in range(3)])
    return run("cat", [places[:, :2], box.unsqueeze(1)], dim=1)


# ---- pictures of windows ---------------------------------------------------------------------------------------------


def _col2im(g: Given) -> Any:
    """Each number is added where its window has it, with room for the pads, which are cut off."""
    x = g["input"]
    image, block = ([int(e) for e in g.tensor(n).content] for n in ("image_shape", "block_shape"))
    n = len(image)
    strides, dilations = g["strides"] or (1,) * n, g["dilations"] or (1,) * n
    pads = g["pads"] or (0,) * (2 * n)
    room = [image[k] + pads[k] + pads[n + k] for k in range(n)]
    windows = [(room[k] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in range(n)]
    taps = np.meshgrid(*map(np.arange, block), indexing="ij")
    at = np.meshgrid(*map(np.arange, windows), indexing="ij")
    flat: Any = 0
    for k in range(n):
        place = taps[k].reshape(-1, 1) * dilations[k] + at[k].reshape(1, -1) * strides[k]
        flat = flat * room[k] + place
    batch, channels = x.shape[0], x.shape[1] // math.prod(block)
    many = int(flat.size)
    places = g.constant(flat.reshape(1, 1, many)).expand([batch, channels, many])
    zeros = full([batch, channels, math.prod(room)], 0, x.dtype)
    rows = run("contiguous", x).reshape([batch, channels, many])
    y = run("scatter_add", zeros, run("contiguous", places), rows, dim=2).reshape([batch, channels, *room])
    inner = [slice(pads[k], pads[k] + image[k]) for k in range(n)]
    return y[(slice(None), slice(None), *inner)]


FRONTS: Mapping[str, Front] = {
    name: _front(write)
    for name, write in {
        "Col2Im": _col2im,
        "DFT": _dft,
        "Det": _det,
        "Einsum": _einsum,
        "GRU": _recurrent,
        "GatherND": _gather_nd,
        "GridSample": _grid,
        "LSTM": _recurrent,
        "NonMaxSuppression": _suppressed,
        "NonZero": _nonzero,
        "RNN": _recurrent,
        "STFT": _stft,
        "Slice": _flipped,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "Unique": _unique,
    }.items()
}
