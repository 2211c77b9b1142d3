"""ATen overloads that PyTorch composes of others, composed here of ours: losses, activations, distances, statistics.

`COMPOSITES` is a part of `fronts.COMPOSE`, and the rules there hold: a function has the overload's own parameters and
gives a `Call`, or runs some steps (`run`) and gives the last one, or the result.

May import: `.fronting`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from .fronting import Call, Front, Refused, Tensor, converted, full, joined, run, tensor

__all__ = ["COMPOSITES"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_NONE, _MEAN, _SUM = range(3)

# ---- activations and functions of a number -----------------------------------------------------------------------


def _prelu(self: Any, weight: Any) -> Call:
    """One slope, or one for each channel (axis 1)."""
    x, w = tensor(self), tensor(weight)
    if w.ndim > 1:
        raise Refused(f"`weight` must have at most one axis, it has {w.ndim}")
    if w.size != 1 and (x.ndim < 2 or w.size != x.shape[1]):
        raise Refused(f"{w.size} slopes for a tensor of shape {list(x.shape)}")
    shape = [w.size if k == 1 else 1 for k in range(x.ndim)] if w.size != 1 else [1] * x.ndim
    return Call("prelu", {"x": x, "w": w.reshape(shape)})


def _rrelu(
    self: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Call:
    if not lower <= upper:
        raise Refused(f"`lower` must be at most `upper`: {lower} and {upper}")
    if training:
        raise Refused("`training` draws random slopes")
    return Call("aten.leaky_relu.default", {"self": self, "negative_slope": (lower + upper) / 2})


def _rrelu_with_noise(
    self: Any,
    noise: Any,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """The exporter's spelling: the slopes are a result, which only training changes."""
    if training:
        raise Refused("`training` draws random slopes")
    return run("leaky_relu", tensor(self), slope=(lower + upper) / 2), tensor(noise)


def _elu(alpha: float, scale: float, self: Any) -> Call:
    return Call("elu", {"x": self, "alpha": alpha, "scale": scale})


def _celu(self: Any, alpha: float = 1.0) -> Call:
    if alpha == 0:
        raise Refused("`alpha` must not be 0")
    return Call("elu", {"x": self, "alpha": alpha, "input_scale": 1 / alpha})


def _relu6(self: Any) -> Call:
    return Call("hardtanh", {"x": self, "lo": 0, "hi": 6})


def _nan_to_num(
    self: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Call:
    x = tensor(self)
    if x.dtype not in _FLOATS:
        return Call("aten.clone.default", {"self": x})
    top = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}.get(
        x.dtype, 1.7976931348623157e308
    )
    ends = {"posinf": top if posinf is None else posinf, "neginf": -top if neginf is None else neginf}
    return Call("nan_to_num", {"x": x, "instead": nan or 0.0, **ends})


def _float_power(self: Any, exponent: Any) -> Call:
    """Always in f64."""

    def wide(x: Any) -> Any:
        if isinstance(x, bool | int | float):
            return full((), float(x), "f64")
        t = tensor(x)
        if t.dtype in ("c64", "c128"):
            raise Refused("complex powers are to come")
        return converted(t, "f64")

    return Call("pow", {"a": wide(self), "b": wide(exponent)})


def _ldexp(self: Any, other: Any) -> Call:
    return Call("mul", {"a": self, "b": run("pow", 2.0, other)})


def _square(self: Any) -> Call:
    return Call("pow", {"a": self, "b": 2})


def _where(condition: Any) -> tuple[Tensor, ...]:
    """The positions of what holds, an axis each."""
    x = tensor(condition)
    places = run("nonzero", x if x.ndim else x.reshape([1]))
    return tuple(places[:, k] for k in range(max(x.ndim, 1)))


def _grid_sampler(
    input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Call:
    if tensor(input).ndim != 4:
        raise Refused("planes are wanted")
    given = {"input": input, "grid": grid, "interpolation_mode": interpolation_mode}
    return Call(
        "aten.grid_sampler_2d.default",
        {**given, "padding_mode": padding_mode, "align_corners": align_corners},
    )


# ---- losses ------------------------------------------------------------------------------------------------------


def _reduced(op: str, reduction: int, xs: dict[str, Any], **attrs: Any) -> Call:
    """A loss of one number per element: all of them, their mean (1) or their sum (2)."""
    found = dict(zip(xs, joined(*xs.values()), strict=True))
    rank = next(x.ndim for x in found.values() if x is not None)
    over = [] if reduction == _NONE else list(range(rank))
    return Call(op, {**found, **attrs, "dim": over, "mean": reduction == _MEAN})


def _difference(op: str, self: Any, target: Any, reduction: int = _MEAN) -> Call:
    return _reduced(op, reduction, {"x": self, "t": target})


def _smooth_l1(self: Any, target: Any, reduction: int = _MEAN, beta: float = 1.0) -> Call:
    if beta < 0:
        raise Refused("`beta` must not be negative")
    return _reduced("smooth_l1_loss", reduction, {"x": self, "t": target}, beta=beta)


def _huber(self: Any, target: Any, reduction: int = _MEAN, delta: float = 1.0) -> Call:
    if delta <= 0:
        raise Refused("`delta` must be positive")
    return _reduced("huber_loss", reduction, {"x": self, "t": target}, delta=delta)


def _kl_div(self: Any, target: Any, reduction: int = _MEAN, log_target: bool = False) -> Call:
    return _reduced("kl_div", reduction, {"x": self, "t": target}, log_target=log_target)


def _poisson(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Call:
    attrs = {"log_input": log_input, "full": full, "eps": eps}
    return _reduced("poisson_nll_loss", reduction, {"x": input, "t": target}, **attrs)


def _hinge_embedding(self: Any, target: Any, margin: float = 1.0, reduction: int = _MEAN) -> Call:
    return _reduced("hinge_embedding_loss", reduction, {"x": self, "t": target}, margin=margin)


def _bce(self: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Call:
    return _reduced("binary_cross_entropy", reduction, {"x": self, "t": target, "w": weight})


def _bce_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = _MEAN
) -> Call:
    inputs = {"x": self, "t": target, "w": weight, "p": pos_weight}
    return _reduced("binary_cross_entropy_with_logits", reduction, inputs)


def _margin_ranking(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = _MEAN
) -> Call:
    return _reduced("margin_ranking_loss", reduction, {"a": input1, "b": input2, "t": target}, margin=margin)


def _total(x: Tensor, reduction: int) -> Tensor:
    """The elements, their mean or their sum."""
    return x if reduction == _NONE else run("mean" if reduction == _MEAN else "sum", x)


def _cosine_embedding(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = _MEAN
) -> Tensor:
    a, b, t = tensor(input1), tensor(input2), tensor(target)
    dot, aa, bb = (run("sum", run("mul", p, q), dim=[-1]) for p, q in ((a, b), (a, a), (b, b)))
    eps = 1e-12
    near = run("div", dot, run("sqrt", run("mul", run("add", aa, eps), run("add", bb, eps))))
    apart = run("clamp", run("sub", near, margin), lo=0)
    zero = full(list(near.shape), 0, near.dtype)
    one = run("where", run("eq", t, 1), run("rsub", near, 1), zero)
    return _total(run("add", one, run("where", run("eq", t, -1), apart, zero)), reduction)


def _triplet_margin(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = _MEAN,
) -> Tensor:
    def apart(a: Any, b: Any) -> Tensor:
        return _pairwise(a, b, p, eps)

    far = apart(anchor, negative)
    if swap:
        far = run("minimum", far, apart(positive, negative))
    lead = run("add", run("sub", apart(anchor, positive), far), margin)
    return _total(run("clamp", lead, lo=0), reduction)


def _pairwise(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    a, b = joined(x1, x2)
    out = run("pairwise_distance", a, b, p=p, eps=eps)
    return out.unsqueeze(-1) if keepdim else out


def _cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Call:
    a, b = joined(x1, x2)
    return Call("cosine_similarity", {"a": a, "b": b, "dim": dim, "eps": eps})


def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Call:
    return Call("cdist", {"a": x1, "b": x2, "p": p})


def _euclidean(x1: Any, x2: Any) -> Call:
    return Call("cdist", {"a": x1, "b": x2, "p": 2.0})


def _multi_margin(
    self: Any,
    target: Any,
    p: int = 1,
    margin: float = 1,
    weight: Any = None,
    reduction: int = _MEAN,
) -> Tensor:
    x, t = tensor(self), tensor(target)
    if x.ndim == 0:
        x = x.reshape([1])
    rows = x if x.ndim == 2 else x.reshape([1, x.shape[0]])
    out = run("multi_margin_loss", rows, t.reshape([rows.shape[0]]), weight, p=p, margin=margin)
    return _total(out if t.ndim else out.reshape([]), reduction)


def _classes(self: Any, target: Any) -> tuple[Tensor, Tensor, list[int]]:
    """Scores as (N, C, positions), targets as (N, positions), and the shape of a loss per element."""
    x, t = tensor(self), tensor(target)
    if x.ndim == 0 or t.ndim != max(x.ndim - 1, 0) or t.dtype not in ("i32", "i64", "u8"):
        raise Refused(f"targets {t.dtype}{list(t.shape)} for scores {x.dtype}{list(x.shape)}")
    if x.ndim == 1:
        x, t = x.reshape([1, x.shape[0]]), t.reshape([1])
    n, c, *rest = x.shape
    if list(t.shape) != [n, *rest]:
        raise Refused(f"targets of shape {list(t.shape)} for scores of shape {list(x.shape)}")
    places = math.prod(rest)
    t = t if t.dtype != "u8" else t.to("i64")
    return x.reshape([n, c, places]), t.reshape([n, places]), list(tensor(target).shape)


def _nll(
    self: Any, target: Any, weight: Any = None, reduction: int = _MEAN, ignore_index: int = -100
) -> Call | tuple[Tensor, Tensor]:
    x, t, shape = _classes(self, target)
    given = {"x": x, "t": t, "w": weight, "ignore": ignore_index}
    if reduction != _NONE or not shape:  # of one score, PyTorch gives the weight too
        return Call("nll_loss", {**given, "mean": reduction == _MEAN})
    out = run("nll_loss_elements", x, t, weight, ignore=ignore_index)
    return out.reshape(shape), full((), 0, out.dtype)


def _nll_value(
    self: Any, target: Any, weight: Any = None, reduction: int = _MEAN, ignore_index: int = -100
) -> Call | Tensor:
    found = _nll(self, target, weight, reduction, ignore_index)
    return Call(found.to, found.arguments, lambda out: out[0]) if isinstance(found, Call) else found[0]


def _cross_entropy(
    self: Any,
    target: Any,
    weight: Any = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Call | Tensor:
    if tensor(target).dtype in _FLOATS:
        return _cross_entropy_soft(tensor(self), tensor(target), weight, reduction, label_smoothing)
    x, t, shape = _classes(self, target)
    given = {"x": x, "t": t, "w": weight, "ignore": ignore_index, "smoothing": label_smoothing}
    if reduction != _NONE:
        return Call("cross_entropy", {**given, "mean": reduction == _MEAN})
    return Call("cross_entropy_elements", given, lambda y: y.reshape(shape))


def _cross_entropy_soft(x: Tensor, t: Tensor, weight: Any, reduction: int, smoothing: float) -> Tensor:
    """Of a share for every class."""
    axis = 0 if x.ndim == 1 else 1
    logs = run("log_softmax", x, axis=axis)
    if smoothing:
        t = run("add", run("mul", t, 1 - smoothing), smoothing / x.shape[axis])
    if weight is not None:
        w = tensor(weight)
        logs = run("mul", logs, w.reshape([w.size if k == axis else 1 for k in range(x.ndim)]))
    rows = run("neg", run("sum", run("mul", logs, t), dim=[axis]))
    if reduction != _MEAN:
        return _total(rows, reduction)
    return run("div", run("sum", rows), x.size // max(x.shape[axis], 1))


# ---- the table ---------------------------------------------------------------------------------------------------

COMPOSITES: dict[str, Front] = {
    "aten.clamp_max.Tensor": lambda self, max: Call("minimum", {"a": self, "b": max}),
    "aten.clamp_min.Tensor": lambda self, min: Call("maximum", {"a": self, "b": min}),
    "aten.grid_sampler.default": _grid_sampler,
    "aten.max.other": lambda self, other: Call("maximum", {"a": self, "b": other}),
    "aten.min.other": lambda self, other: Call("minimum", {"a": self, "b": other}),
    "aten.where.Scalar": lambda condition, self, other: Call(
        "where", {"c": condition, "a": self, "b": other}
    ),
    "aten._cdist_forward.default": _cdist,
    "aten._euclidean_dist.default": _euclidean,
    "aten.binary_cross_entropy.default": _bce,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.cdist.default": _cdist,
    "aten.celu.default": _celu,
    "aten.cosine_embedding_loss.default": _cosine_embedding,
    "aten.cosine_similarity.default": _cosine_similarity,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.float_power.Scalar": _float_power,
    "aten.float_power.Tensor_Scalar": _float_power,
    "aten.float_power.Tensor_Tensor": _float_power,
    "aten.hinge_embedding_loss.default": _hinge_embedding,
    "aten.huber_loss.default": _huber,
    "aten.isfinite.default": lambda self: Call("isfinite", {"x": self}),
    "aten.kl_div.default": _kl_div,
    "aten.l1_loss.default": partial(_difference, "l1_loss"),
    "aten.ldexp.Tensor": _ldexp,
    "aten.margin_ranking_loss.default": _margin_ranking,
    "aten.mse_loss.default": partial(_difference, "mse_loss"),
    "aten.multi_margin_loss.default": _multi_margin,
    "aten.nan_to_num.default": _nan_to_num,
    "aten.nll_loss.default": _nll_value,
    "aten.nll_loss2d_forward.default": _nll,
    "aten.nll_loss_forward.default": _nll,
    "aten.nll_loss_nd.default": _nll_value,
    "aten.pairwise_distance.default": _pairwise,
    "aten.poisson_nll_loss.default": _poisson,
    "aten.prelu.default": _prelu,
    "aten.relu6.default": _relu6,
    "aten.rrelu.default": _rrelu,
    "aten.rrelu_with_noise_functional.default": _rrelu_with_noise,
    "aten.selu.default": partial(_elu, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946),
    "aten.smooth_l1_loss.default": _smooth_l1,
    "aten.soft_margin_loss.default": partial(_difference, "soft_margin_loss"),
    "aten.square.default": _square,
    "aten.triplet_margin_loss.default": _triplet_margin,
    "aten.where.default": _where,
}
