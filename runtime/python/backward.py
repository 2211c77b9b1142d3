"""ATen's `…_backward` overloads: by the gradient of the op that answers the forward (`vjp_aten`), or, where PyTorch
hands over what the forward has kept (a result, a mean, positions), by the formula over that.

`BACKWARD` is a part of `fronts.COMPOSE`; the rules there hold.  Half types are computed in f32 and rounded once.

May import: `.fronting`; `.reverse` inside functions, for it stands on the overloads.
To add one: a function with the overload's own parameters, and its line in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .fronting import Front, Ints, Refused, Tensor, axis_of, dtype_name, full, run, tensor

__all__ = ["BACKWARD"]

_NONE, _MEAN = 0, 1
Flags = Sequence[bool]


def _of(overload: str, wrt: int, grad: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The gradient of the overload by its argument number `wrt`, which is the first, second … of those it has."""
    from .reverse import vjp_aten

    found = vjp_aten(overload, grad, *args, **kwargs)
    if len(found) <= wrt:
        raise Refused(f"the gradient of {overload} by its argument {wrt + 1} is not promised")
    return list(found.values())[wrt]


def _by_input(overload: str) -> Front:
    """(grad, self, further arguments of the forward …)."""

    def backward(grad_output: Any, self: Any, *args: Any, **kwargs: Any) -> Tensor:
        return _of(overload, 0, grad_output, self, *args, **kwargs)

    return backward


def _wide(*xs: Any) -> list[Tensor]:
    """Half types as f32."""
    found = map(tensor, xs)
    return [x.to("f32") if x.dtype in ("f16", "bf16") else x for x in found]


def _as(x: Tensor, like: Any) -> Tensor:
    dtype = tensor(like).dtype
    return x if x.dtype == dtype else x.to(dtype)


def _zeros(shape: Sequence[int], dtype: str) -> Tensor:
    return full(tuple(shape), 0, dtype)


def _mul(*xs: Any) -> Tensor:
    out = xs[0]
    for x in xs[1:]:
        out = run("mul", out, x)
    return out


# ---- functions of an element, from the result ----------------------------------------------------------------------


def _sigmoid(grad_output: Any, output: Any) -> Tensor:
    g, y = _wide(grad_output, output)
    return _as(_mul(g, run("sub", 1, y), y), grad_output)


def _tanh(grad_output: Any, output: Any) -> Tensor:
    g, y = _wide(grad_output, output)
    return _as(_mul(g, run("sub", 1, _mul(y, y))), grad_output)


def _threshold(grad_output: Any, self: Any, threshold: Any) -> Tensor:
    return run("where", run("le", self, threshold), 0, grad_output)


def _leaky_relu(grad_output: Any, self: Any, negative_slope: float, self_is_result: bool) -> Tensor:
    if self_is_result and negative_slope < 0:
        raise Refused("a negative slope cannot be told from the result")
    return _of("aten.leaky_relu.default", 0, grad_output, self, negative_slope)


def _elu(
    grad_output: Any, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Any
) -> Tensor:
    if not is_result:
        return _of("aten.elu.default", 0, grad_output, self_or_result, alpha, scale, input_scale)
    if alpha < 0:
        raise Refused("a negative `alpha` cannot be told from the result")
    g, y = _wide(grad_output, self_or_result)
    below = _mul(run("add", y, alpha * scale), input_scale)
    return _as(_mul(g, run("where", run("le", y, 0), below, scale)), grad_output)


def _log_sigmoid(grad_output: Any, self: Any, buffer: Any) -> Tensor:
    return _of("aten.log_sigmoid.default", 0, grad_output, self)


def _prelu(grad_output: Any, self: Any, weight: Any) -> tuple[Tensor, Tensor]:
    g, x, w = _wide(grad_output, self, weight)
    positive = run("gt", x, 0)
    return _as(run("where", positive, g, _mul(w, g)), self), _as(run("where", positive, 0, _mul(x, g)), self)


def _dropout(grad_output: Any, mask: Any, scale: float) -> Tensor:
    g, m = _wide(grad_output, mask)
    out = _mul(g, m.to(g.dtype), scale)
    return _as(out, grad_output) if g.dtype in ("f32", "f64") else out  # of integers: in f32


# ---- along an axis --------------------------------------------------------------------------------------------------


def _softmax(log: bool, grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Tensor:
    g, y = _wide(grad_output, output)
    if g.ndim == 0:
        return _zeros([], dtype_name(input_dtype))
    axes = [axis_of(dim, g.ndim)]
    if log:
        out = run("sub", g, _mul(run("exp", y), run("sum", g, dim=axes, keepdim=True)))
    else:
        out = _mul(y, run("sub", g, run("sum", _mul(g, y), dim=axes, keepdim=True)))
    dtype = dtype_name(input_dtype)
    return out if out.dtype == dtype else out.to(dtype)


def _glu(grad_output: Any, self: Any, dim: int) -> Tensor:
    return _of("aten.glu.default", 0, grad_output, self, dim)


# ---- losses ---------------------------------------------------------------------------------------------------------


def _loss(slope: Callable[..., Tensor]) -> Front:
    """A loss of (self, target): the gradient by self is slope(x, t, …), shared among the elements of a mean."""

    def backward(
        grad_output: Any, self: Any, target: Any, reduction: int = _MEAN, *more: Any, **options: Any
    ) -> Tensor:
        g, x, t = _wide(grad_output, self, target)
        if reduction == _MEAN:
            g = _mul(g, 1 / x.size) if x.size else g
        return _as(_mul(slope(x, t, *more, **options), g), self)

    return backward


def _smooth_l1(x: Tensor, t: Tensor, beta: float) -> Tensor:
    apart = run("sub", x, t)
    return run("sign", apart) if beta == 0 else run("clamp", _mul(apart, 1 / beta), lo=-1, hi=1)


def _huber(x: Tensor, t: Tensor, delta: float) -> Tensor:
    return run("clamp", run("sub", x, t), lo=-delta, hi=delta)


def _soft_margin(x: Tensor, t: Tensor) -> Tensor:
    return _mul(t, -1.0, run("sigmoid", _mul(t, x, -1.0)))


def _bce(grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Tensor:
    g, x, t = _wide(grad_output, self, target)
    span = run("clamp", _mul(run("sub", 1, x), x), lo=1e-12)
    out = _mul(g, run("div", run("sub", x, t), span))
    if weight is not None:
        out = _mul(out, *_wide(weight))
    return _as(_mul(out, 1 / x.size) if reduction == _MEAN and x.size else out, self)


def _nll(
    grad_output: Any,
    self: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any,
) -> Tensor:
    """-w[t] g at the target's place of every row, of a mean over the total weight."""
    x, t, g = tensor(self), tensor(target), tensor(grad_output)
    rows = x if x.ndim > 1 else x.reshape([1, *x.shape])
    n, classes, *rest = rows.shape
    places = math.prod(rest)
    at = t.reshape([n, 1, places])
    counts = run("ne", at, ignore_index)
    index = run("where", counts, at, 0)
    share = g.reshape([n, 1, places]) if reduction == _NONE else g.reshape([1, 1, 1]).expand([n, 1, places])
    if weight is not None:
        share = _mul(
            share, run("index_select", weight, index.reshape([n * places]), dim=0).reshape([n, 1, places])
        )
    if reduction == _MEAN:
        share = run("div", share, total_weight)
    share = run("where", counts, run("neg", share), 0)
    zeros = _zeros([n, classes, places], x.dtype)
    return run("scatter_add", zeros, index, _as(share, x), dim=1).reshape(list(x.shape))


# ---- norms, from the statistics that the forward kept ---------------------------------------------------------------


def _normed(
    g: Tensor,
    x: Tensor,
    mean: Tensor | None,
    rstd: Tensor,
    w: Tensor | None,
    within: list[int],
    without: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dw, db) of ((x - mean) rstd) w + b: statistics over the axes `within`, weights shared over `without`."""
    unit = _mul(run("sub", x, mean) if mean is not None else x, rstd)
    gw = g if w is None else _mul(g, w)
    n = math.prod(x.shape[k] for k in within)
    along = _mul(unit, run("sum", _mul(gw, unit), dim=within, keepdim=True))
    inner = along if mean is None else run("add", along, run("sum", gw, dim=within, keepdim=True))
    dx = _mul(rstd, run("sub", gw, _mul(inner, 1 / n) if n else inner))

    def shared(y: Tensor) -> Tensor:
        return run("sum", y, dim=without) if without else y

    return dx, shared(_mul(g, unit)), shared(g)


def _masked(mask: Flags, found: Sequence[Tensor], like: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_as(f, t) if m else None for m, f, t in zip(mask, found, like, strict=True))


def _layer_norm(
    grad_out: Any,
    input: Any,
    normalized_shape: Ints,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Flags,
) -> tuple[Any, ...]:
    g, x, m, r = _wide(grad_out, input, mean, rstd)
    first = x.ndim - len(normalized_shape)
    w = None if weight is None else _wide(weight)[0]
    found = _normed(g, x, m, r, w, list(range(first, x.ndim)), list(range(first)))
    like = (input, input if weight is None else weight, input if bias is None else bias)
    return _masked(output_mask, found, like)


def _rms_norm(
    grad_out: Any, input: Any, normalized_shape: Ints, rstd: Any, weight: Any, output_mask: Flags
) -> tuple[Any, ...]:
    g, x, r = _wide(grad_out, input, rstd)
    first = x.ndim - len(normalized_shape)
    w = None if weight is None else _wide(weight)[0]
    found = _normed(g, x, None, r, w, list(range(first, x.ndim)), list(range(first)))
    return _masked(output_mask, found[:2], (input, input if weight is None else weight))


def _group_norm(
    grad_out: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Flags,
) -> tuple[Any, ...]:
    g, x, m, r = _wide(grad_out, input, mean, rstd)
    shape = [N, group, C // group, HxW]
    w = None if weight is None else _wide(weight)[0].reshape([1, group, C // group, 1])
    m, r = m.reshape([N, group, 1, 1]), r.reshape([N, group, 1, 1])
    dx, dw, db = _normed(g.reshape(shape), x.reshape(shape), m, r, w, [2, 3], [0, 3])
    found = (dx.reshape(list(x.shape)), dw.reshape([C]), db.reshape([C]))
    like = input if weight is None else weight
    return _masked(output_mask, found, (input, like, like))


def _batch_norm(
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Flags,
) -> tuple[Any, ...]:
    g, x = _wide(grad_out, input)
    shape = [x.shape[1] if k == 1 else 1 for k in range(x.ndim)]
    axes = [k for k in range(x.ndim) if k != 1]
    w = None if weight is None else _wide(weight)[0].reshape(shape)
    if train:
        m, r = _wide(save_mean, save_invstd)
    else:
        m, v = _wide(running_mean, running_var)
        r = run("rsqrt", run("add", v, eps))
    m, r = m.reshape(shape), r.reshape(shape)
    found = _normed(g, x, m, r, w, axes, axes)
    if not train:  # the statistics do not depend on the input
        found = (_mul(g if w is None else _mul(g, w), r), *found[1:])
    like = input if weight is None else weight
    return _masked(output_mask, found, (input, like, like))


# ---- windows --------------------------------------------------------------------------------------------------------


def _convolution(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Flags,
) -> tuple[Any, ...]:
    from .reverse import vjp_aten

    dx = dw = db = None
    if output_mask[0] or output_mask[1]:
        options = (stride, padding, dilation, transposed, output_padding, groups)
        found = vjp_aten("aten.convolution.default", grad_output, input, weight, None, *options)
        dx, dw = list(found.values())[:2]
    if output_mask[2]:
        g = tensor(grad_output)
        db = run("sum", g, dim=[k for k in range(g.ndim) if k != 1])
    return (dx if output_mask[0] else None, dw if output_mask[1] else None, db)


def _to_places(grad_output: Any, self: Any, indices: Any, axes: int) -> Tensor:
    """Added at the positions, counted within the last `axes` axes, that a pool has kept."""
    g, x, i = tensor(grad_output), tensor(self), tensor(indices)
    lead = list(x.shape[: x.ndim - axes])
    zeros = _zeros([*lead, math.prod(x.shape[x.ndim - axes :])], g.dtype)
    flat = [*lead, math.prod(g.shape[g.ndim - axes :])]
    out = run("scatter_add", zeros, i.reshape(flat), g.reshape(flat), dim=len(lead))
    return out.reshape(list(x.shape))


def _max_pool(axes: int) -> Front:
    def backward(
        grad_output: Any,
        self: Any,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        indices: Any,
    ) -> Tensor:
        return _to_places(grad_output, self, indices, axes)

    return backward


def _adaptive_average(axes: int) -> Front:
    def backward(grad_output: Any, self: Any) -> Tensor:
        size = list(tensor(grad_output).shape[-axes:])
        return _of(f"aten._adaptive_avg_pool{axes}d.default", 0, grad_output, self, size)

    return backward


def _upsample(overload: str, aligned: bool) -> Front:
    def backward(
        grad_output: Any, output_size: Ints, input_size: Ints, *options: Any, **named: Any
    ) -> Tensor:
        zeros = _zeros(input_size, tensor(grad_output).dtype)
        return _of(overload, 0, grad_output, zeros, list(output_size), *options, **named)

    def corners(
        grad_output: Any, output_size: Ints, input_size: Ints, align_corners: bool, *scales: Any, **named: Any
    ) -> Tensor:
        return backward(grad_output, output_size, input_size, align_corners, *scales, **named)

    return corners if aligned else backward


def _grid_sampler(
    grad_output: Any,
    input: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Flags,
) -> tuple[Any, ...]:
    from .reverse import vjp_aten

    options = (interpolation_mode, padding_mode, align_corners)
    found = vjp_aten("aten.grid_sampler_2d.default", grad_output, input, grid, *options)
    return tuple(v if m else None for m, v in zip(output_mask, list(found.values()), strict=True))


# ---- lookups and views ----------------------------------------------------------------------------------------------


def _embedding(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Rows added where they were looked up; a row that pads gets nothing."""
    g, i = tensor(grad_output), tensor(indices)
    width = g.shape[-1]
    g, i = g.reshape([i.size, width]), i.reshape([i.size])
    wide = _wide(g)[0]
    if padding_idx >= 0:
        wide = run("where", run("eq", i, padding_idx).reshape([i.size, 1]), 0, wide)
    if scale_grad_by_freq:
        ones = full((i.size,), 1, wide.dtype)
        counts = run("scatter_add", _zeros([num_weights], wide.dtype), i, ones, dim=0)
        wide = run("div", wide, run("index_select", counts, i, dim=0).reshape([i.size, 1]))
    at = i.reshape([i.size, 1]).expand([i.size, width])
    return _as(run("scatter_add", _zeros([num_weights, width], wide.dtype), at, wide, dim=0), g)


def _placed(grad_output: Any, input_sizes: Ints, view: Callable[[Tensor], Tensor]) -> Tensor:
    """Zeros with the gradient where the view looks; where it looks twice, added."""
    g = tensor(grad_output)
    count = math.prod(input_sizes)
    at = view(run("arange", start=0, end=count, step=1, dtype="i64").reshape(list(input_sizes)))
    flat = [run("contiguous", t).reshape([g.size]) for t in (at, g)]
    return run("scatter_add", _zeros([count], g.dtype), *flat, dim=0).reshape(list(input_sizes))


def _viewed(overload: str) -> Front:
    def backward(grad_output: Any, input_sizes: Ints, *args: Any) -> Tensor:
        from .aten import call_aten

        return _placed(grad_output, input_sizes, lambda x: call_aten(overload, x, *args))

    return backward


BACKWARD: dict[str, Front] = {
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_average(2),
    "aten._adaptive_avg_pool3d_backward.default": _adaptive_average(3),
    "aten._cdist_backward.default": lambda grad, x1, x2, p, cdist: _of(
        "aten._cdist_forward.default", 0, grad, x1, x2, p, None
    ),
    "aten._fused_rms_norm_backward.default": _rms_norm,
    "aten._log_softmax_backward_data.default": partial(_softmax, True),
    "aten._prelu_kernel_backward.default": _prelu,
    "aten._softmax_backward_data.default": partial(_softmax, False),
    "aten.adaptive_max_pool2d_backward.default": partial(_to_places, axes=2),
    "aten.adaptive_max_pool3d_backward.default": partial(_to_places, axes=3),
    "aten.avg_pool2d_backward.default": _by_input("aten.avg_pool2d.default"),
    "aten.avg_pool3d_backward.default": _by_input("aten.avg_pool3d.default"),
    "aten.binary_cross_entropy_backward.default": _bce,
    "aten.convolution_backward.default": _convolution,
    "aten.diagonal_backward.default": _viewed("aten.diagonal.default"),
    "aten.elu_backward.default": _elu,
    "aten.embedding_dense_backward.default": _embedding,
    "aten.gelu_backward.default": _by_input("aten.gelu.default"),
    "aten.glu_backward.default": _glu,
    "aten.grid_sampler_2d_backward.default": _grid_sampler,
    "aten.hardsigmoid_backward.default": _by_input("aten.hardsigmoid.default"),
    "aten.hardswish_backward.default": _by_input("aten.hardswish.default"),
    "aten.hardtanh_backward.default": _by_input("aten.hardtanh.default"),
    "aten.huber_loss_backward.default": _loss(_huber),
    "aten.leaky_relu_backward.default": _leaky_relu,
    "aten.log_sigmoid_backward.default": _log_sigmoid,
    "aten.logit_backward.default": _by_input("aten.logit.default"),
    "aten.max_pool2d_with_indices_backward.default": _max_pool(2),
    "aten.max_pool3d_with_indices_backward.default": _max_pool(3),
    "aten.mish_backward.default": _by_input("aten.mish.default"),
    "aten.mse_loss_backward.default": _loss(lambda x, t: _mul(run("sub", x, t), 2.0)),
    "aten.native_batch_norm_backward.default": _batch_norm,
    "aten.native_dropout_backward.default": _dropout,
    "aten.native_group_norm_backward.default": _group_norm,
    "aten.native_layer_norm_backward.default": _layer_norm,
    "aten.nll_loss2d_backward.default": _nll,
    "aten.nll_loss_backward.default": _nll,
    "aten.reflection_pad1d_backward.default": _by_input("aten.reflection_pad1d.default"),
    "aten.reflection_pad2d_backward.default": _by_input("aten.reflection_pad2d.default"),
    "aten.reflection_pad3d_backward.default": _by_input("aten.reflection_pad3d.default"),
    "aten.replication_pad1d_backward.default": _by_input("aten.replication_pad1d.default"),
    "aten.replication_pad2d_backward.default": _by_input("aten.replication_pad2d.default"),
    "aten.replication_pad3d_backward.default": _by_input("aten.replication_pad3d.default"),
    "aten.select_backward.default": _viewed("aten.select.int"),
    "aten.sigmoid_backward.default": _sigmoid,
    "aten.silu_backward.default": _by_input("aten.silu.default"),
    "aten.slice_backward.default": _viewed("aten.slice.Tensor"),
    "aten.smooth_l1_loss_backward.default": _loss(_smooth_l1),
    "aten.soft_margin_loss_backward.default": _loss(_soft_margin),
    "aten.softplus_backward.default": _by_input("aten.softplus.default"),
    "aten.tanh_backward.default": _tanh,
    "aten.threshold_backward.default": _threshold,
    "aten.unfold_backward.default": _viewed("aten.unfold.default"),
    "aten.upsample_bicubic2d_backward.default": _upsample("aten.upsample_bicubic2d.default", True),
    "aten.upsample_bilinear2d_backward.default": _upsample("aten.upsample_bilinear2d.default", True),
    "aten.upsample_nearest1d_backward.default": _upsample("aten.upsample_nearest1d.default", False),
    "aten.upsample_nearest2d_backward.default": _upsample("aten.upsample_nearest2d.default", False),
    "aten.upsample_nearest3d_backward.default": _upsample("aten.upsample_nearest3d.default", False),
}
