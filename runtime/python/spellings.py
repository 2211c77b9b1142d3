"""ATen overloads that say in other words what another overload or operator says: sides the other way round, older names
with older arguments, single steps of recurrent networks, convolutions named by how they were computed, and what an
exported graph asks of its inputs.

`SPELLINGS` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.
May import: `.arrangements`, `.copies`, `.exceptions`, `.fronting`, `.matrices`, `.products`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .arrangements import ARRANGEMENTS
from .copies import COPIES
from .exceptions import OpValueError
from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    axis_of,
    converted,
    dtype_name,
    full,
    ints,
    run,
    tensor,
)
from .matrices import MATRICES
from .products import PRODUCTS

__all__ = ["SPELLINGS"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_add, _sub, _mul = (partial(run, op) for op in ("add", "sub", "mul"))

# ---- the same arguments in another place --------------------------------------------------------------------------


def _turned(op: str) -> Front:
    """A number first, then a tensor."""
    return lambda self, other: Call(op, {"a": self, "b": other})


def _along(op: str, self: Any, dim: int, dtype: Any = None) -> Call:
    x = tensor(self)
    wanted = dtype_name(dtype) if dtype is not None else x.dtype if x.dtype in _FLOATS else "f32"
    return Call(op, {"x": converted(x, wanted), "axis": dim})


def _none_of(self: Any, dim: Ints | None = None, keepdim: bool = False) -> Tensor:
    """Over no axis at all: what each element says."""
    if dim is None or len(dim):
        raise Refused("")  # the rule has said why
    x = tensor(self)
    return run("cast", run("ne", x, 0), dtype="u8" if x.dtype == "u8" else "bool")


def _divided(self: Any, other: Any, rounding_mode: str | None = None) -> Call:
    return Call("aten.div.Tensor_mode", {"self": self, "other": other, "rounding_mode": rounding_mode})


def _range(start: float, end: float, step: float = 1, dtype: Any = None) -> Tensor:
    """With its end."""
    if step == 0 or (end - start) / step < 0:
        raise Refused(f"{step} does not lead from {start} to {end}")
    count = math.floor((end - start) / step) + 1
    places = run("arange", start=0, end=count, step=1, dtype="f64")
    return converted(_add(_mul(places, float(step)), float(start)), dtype_name(dtype or "f32"))


def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    t = tensor(x)
    if t.ndim != 1:
        raise Refused(f"a vector is wanted, its shape is {list(t.shape)}")
    n = t.shape[0] if N is None else N
    if n < 0:
        raise Refused(f"`N` must not be negative, it is {n}")
    kind = "i64" if t.dtype in ("bool", "u8", "i8", "i16", "i32") else t.dtype
    rows = converted(t, kind).unsqueeze(-1)
    powers = [full([t.shape[0], 1], 1, kind)]
    for _ in range(n - 1):
        powers.append(_mul(powers[-1], rows))
    powers = powers[:n]
    if not powers:
        return full([t.shape[0], 0], 0, kind)
    return run("cat", powers if increasing else powers[::-1], dim=1)


def _chain(matrices: Sequence[Any]) -> Any:
    return MATRICES["aten.linalg_multi_dot.default"](matrices)


def _pad_sequence(
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    xs = [tensor(x) for x in sequences]
    if not xs or padding_side not in ("left", "right") or any(x.ndim == 0 for x in xs):
        raise Refused("sequences of at least one axis are wanted, and a `padding_side` of left or right")
    most = max(x.shape[0] for x in xs)
    rows = []
    for x in xs:
        none, lack = [0] * x.ndim, [most - x.shape[0], *([0] * (x.ndim - 1))]
        before, after = (none, lack) if padding_side == "right" else (lack, none)
        rows.append(run("constant_pad", x, before=before, after=after, value=padding_value).unsqueeze(0))
    out = run("cat", rows, dim=0)
    return out if batch_first else out.transpose(0, 1)


def _filled_diagonal(self: Any, fill_value: complex, wrap: bool = False) -> Tensor:
    """A copy with one value where all indices are equal; `wrap`: a tall matrix begins anew after its last column."""
    x = tensor(self)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise Refused(f"equal extents along at least two axes are wanted, not {list(x.shape)}")
    columns = x.shape[-1]
    step = sum(math.prod(x.shape[k + 1 :]) for k in range(x.ndim))
    end = x.size if x.ndim > 2 or wrap else min(x.size, columns * columns)
    count = -(-end // step) if x.size else 0
    if not count:
        return run("contiguous", x)
    places = run("arange", start=0, end=count, step=1, dtype="i64")
    flat = run("contiguous", x).reshape([x.size])
    kept = run("scatter", flat, _mul(places, step), full([count], fill_value, x.dtype), dim=0)
    return kept.reshape(list(x.shape))


def _except(v: Any, pow: int = 2, dim: int = 0) -> Tensor:
    x = tensor(v)
    axes = [k for k in range(x.ndim) if dim == -1 or k != axis_of(dim, x.ndim)]
    return run("vector_norm", x, ord=float(pow), dim=axes, keepdim=dim != -1)


# ---- losses -------------------------------------------------------------------------------------------------------


def _multilabel(self: Any, target: Any, reduction: int = 1) -> tuple[Tensor, Tensor]:
    """Targets are classes up to the first -1.  (the loss, which classes are targets)"""
    x, t = tensor(self), tensor(target)
    if x.ndim > 2 or tuple(x.shape) != tuple(t.shape) or not x.size or t.dtype not in ("i32", "i64"):
        raise Refused(
            f"at most two axes with elements, and integer targets of one shape are wanted, not {x.dtype}"
            f"{list(x.shape)} and {t.dtype}{list(t.shape)}"
        )
    n = x.shape[-1] if x.ndim else 1
    scores, classes = x.reshape([x.size // n, n]), converted(t.reshape([x.size // n, n]), "i64")
    wide = scores if x.dtype in ("f32", "f64") else scores.to("f32")
    counts = run("cummin", run("ge", classes, 0).to("i64"), dim=1)[0]  # 1 up to the first -1
    chosen = run("clamp", classes, lo=0, hi=n - 1)
    marks = run("scatter_reduce", full([x.size // n, n], 0, "i64"), chosen, counts, dim=1, reduce="amax")
    gaps = _add(_sub(wide.unsqueeze(1), run("gather", wide, chosen, dim=1).unsqueeze(2)), 1.0)
    losing = run("logical_and", run("eq", marks, 0).unsqueeze(1), run("eq", counts, 1).unsqueeze(2))
    terms = run("where", losing, run("clamp", gaps, lo=0), 0.0)
    rows = run("div", run("sum", terms, dim=[1, 2]), float(n))
    out = rows if reduction == 0 else run("mean" if reduction == 1 else "sum", rows)
    flags = converted(marks.reshape(list(x.shape)), x.dtype)
    return converted(out if reduction or x.ndim == 2 else out.reshape([]), x.dtype), flags


# ---- one step of recurrent networks ---------------------------------------------------------------------------------


def _gates(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What input and state say, each with its bias, and the state."""
    t, s = tensor(x), tensor(h)
    rows = (t, s) if t.ndim == 2 else (t.unsqueeze(0), s.unsqueeze(0))
    return run("linear", rows[0], w_ih, b_ih), run("linear", rows[1], w_hh, b_hh), rows[1]


def _parts(x: Tensor, count: int) -> list[Tensor]:
    n = x.shape[1] // count
    return [x[:, k * n : (k + 1) * n] for k in range(count)]


def _rnn_cell(
    f: str, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b, _ = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    out = run(f, _add(a, b))
    return out if tensor(input).ndim == 2 else out[0]


def _gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    a, b, state = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    (ar, az, an), (br, bz, bn) = _parts(a, 3), _parts(b, 3)
    reset, update = run("sigmoid", _add(ar, br)), run("sigmoid", _add(az, bz))
    new = run("tanh", _add(an, _mul(reset, bn)))
    out = _add(new, _mul(update, _sub(state, new)))
    return out if tensor(input).ndim == 2 else out[0]


def _lstm_cell(
    input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Tensor, Tensor]:
    if len(hx) != 2:
        raise Refused(f"`hx` is an output and a cell, {len(hx)} tensors are given")
    a, b, _ = _gates(input, hx[0], w_ih, w_hh, b_ih, b_hh)
    enter, forget, cell, leave = _parts(_add(a, b), 4)
    kept = tensor(hx[1])
    kept = kept if kept.ndim == 2 else kept.unsqueeze(0)
    new = _add(_mul(run("sigmoid", forget), kept), _mul(run("sigmoid", enter), run("tanh", cell)))
    out = _mul(run("sigmoid", leave), run("tanh", new))
    return (out, new) if tensor(input).ndim == 2 else (out[0], new[0])


# ---- convolutions named by how they were computed --------------------------------------------------------------------


def _convolved(n: int) -> Front:
    def front(
        self: Any,
        weight: Any,
        kernel_size: int | Ints,
        bias: Any = None,
        stride: int | Ints = 1,
        padding: int | Ints = 0,
        dilation: int | Ints = 1,
    ) -> Any:
        if list(tensor(weight).shape[2:]) != ints(kernel_size, n):
            raise Refused(f"`kernel_size` is {kernel_size}, `weight` has {list(tensor(weight).shape[2:])}")
        given = {"input": self, "weight": weight, "bias": bias, "stride": stride, "padding": padding}
        return PRODUCTS[f"aten.conv{n}d.default"](**given, dilation=dilation)

    return front


def _depthwise(
    self: Any,
    weight: Any,
    kernel_size: Ints,
    bias: Any,
    stride: int | Ints,
    padding: int | Ints,
    dilation: int | Ints,
) -> Any:
    given = {"input": self, "weight": weight, "bias": bias, "stride": stride, "padding": padding}
    channels = tensor(self).shape[-4]
    return PRODUCTS["aten.conv3d.default"](**given, dilation=dilation, groups=channels)


def _conv_tbc(self: Any, weight: Any, bias: Any, pad: int = 0) -> Tensor:
    """Time first, then batch, then channels."""
    x, w = tensor(self), tensor(weight)
    if x.ndim != 3 or w.ndim != 3:
        raise Refused(f"three axes are wanted, not {list(x.shape)} and {list(w.shape)}")
    given = {"stride": [1], "padding": [pad], "dilation": [1], "groups": 1}
    y = run("convolution", x.permute([1, 2, 0]), w.permute([2, 1, 0]), bias, **given)
    return run("contiguous", y.permute([2, 0, 1]))


# ---- what an exported graph asks of its inputs -----------------------------------------------------------------------


def _assert_scalar(self: Any, assert_msg: str) -> None:
    value = self if isinstance(self, bool | int | float) else tensor(self).item()
    if not value:
        raise OpValueError(f"aten._assert_scalar: {assert_msg}", hint="the program asks this of its inputs")


def _assert_metadata(a: Any, size: Ints | None = None, stride: Ints | None = None, dtype: Any = None) -> None:
    x = tensor(a)
    for name, have, want in (
        ("size", list(x.shape), size),
        ("stride", list(x.strides), stride),
        ("dtype", x.dtype, None if dtype is None else dtype_name(dtype)),
    ):
        if want is not None and have != (list(want) if isinstance(want, list | tuple) else want):
            raise OpValueError(
                f"aten._assert_tensor_metadata: `{name}` is {have}, the program was made for {want}",
                hint="give an input like the one that the program was made with",
            )


SPELLINGS: dict[str, Front] = {
    "aten._assert_scalar.default": _assert_scalar,
    "aten._assert_tensor_metadata.default": _assert_metadata,
    **{f"aten.bitwise_{k}.Scalar_Tensor": _turned(f"bitwise_{k}") for k in ("and", "or", "xor")},
    "aten.chain_matmul.default": _chain,
    "aten.div.Scalar_mode": _divided,
    "aten.conv_depthwise3d.default": _depthwise,
    "aten.conv_tbc.default": _conv_tbc,
    "aten.fill_diagonal.default": _filled_diagonal,
    "aten.floor_divide.Scalar": lambda self, other: Call("floor_divide", {"a": self, "b": other}),
    "aten.frobenius_norm.dim": lambda self, dim, keepdim=False: run(
        "vector_norm", tensor(self), ord=2.0, dim=list(dim) or None, keepdim=keepdim
    ),
    "aten.gru_cell.default": _gru_cell,
    "aten.lstm_cell.default": _lstm_cell,
    "aten.multilabel_margin_loss.default": lambda self, target, reduction=1: _multilabel(
        self, target, reduction
    )[0],
    "aten.multilabel_margin_loss_forward.default": _multilabel,
    "aten.log_softmax.int": partial(_along, "log_softmax"),
    "aten.softmax.int": partial(_along, "softmax"),
    **{f"aten.{op}.dims": _none_of for op in ("all", "any")},
    "aten.native_channel_shuffle.default": ARRANGEMENTS["aten.channel_shuffle.default"],
    "aten.norm_except_dim.default": _except,
    "aten.pad_sequence.default": _pad_sequence,
    "aten.range.default": lambda start, end, dtype=None: _range(start, end, 1, dtype),
    "aten.range.step": _range,
    "aten.remainder.Scalar_Tensor": _turned("remainder"),
    "aten.rnn_relu_cell.default": partial(_rnn_cell, "relu"),
    "aten.rnn_tanh_cell.default": partial(_rnn_cell, "tanh"),
    "aten.slow_conv3d.default": _convolved(3),
    "aten.slow_conv_dilated2d.default": _convolved(2),
    "aten.slow_conv_dilated3d.default": _convolved(3),
    "aten.special_log_softmax.default": partial(_along, "log_softmax"),
    "aten.special_softmax.default": partial(_along, "softmax"),
    "aten.special_multigammaln.default": COPIES["aten.mvlgamma.default"],
    "aten.special_xlogy.default": lambda self, other: Call("xlogy", {"a": self, "b": other}),
    "aten.special_xlogy.other_scalar": lambda self, other: Call("xlogy", {"a": self, "b": other}),
    "aten.special_xlogy.self_scalar": lambda self, other: Call("xlogy", {"a": self, "b": other}),
    "aten.sym_size.int": lambda self, dim: int(tensor(self).shape[axis_of(dim, tensor(self).ndim)]),
    "aten.thnn_conv2d.default": _convolved(2),
    "aten.vander.default": _vander,
}
