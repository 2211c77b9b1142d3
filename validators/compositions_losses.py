"""What losses, moments and a few functions of one number mean, said with PyTorch's: as compositions.py, for those
operators that PyTorch has a function for, but no overload that takes the spec's axes and sums.

A spec names one by `reference: compositions.NAME`.  It gets the spec's inputs in order (None: absent), its attributes
by name, and returns the outputs in order.  A loss is PyTorch's of that name, which also sums or averages where the
axes are all there are; over fewer, its elements are added up.

Run by the process of torch_server.py alone; may import: torch and the standard library.  To add one: a function of the
operator's name.  It cannot call those of compositions.py, for each file is loaded on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as all its users name it

Tensor = Any


def _reduced(loss: Callable[..., Tensor], x: Tensor, dim: Sequence[int] | None, mean: bool) -> Tensor:
    """`loss(reduction=...)`, whose elements are those of x, over the axes `dim` (None: all of them)."""
    if dim is None or (dim and len(dim) == x.dim()):
        return loss(reduction="mean" if mean else "sum")
    elements = loss(reduction="none")
    if not dim:
        return elements
    return elements.mean(tuple(dim)) if mean else elements.sum(tuple(dim))


# ---- element by element ------------------------------------------------------------------------------------------


def mse_loss(x: Tensor, t: Tensor, *, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(lambda reduction: F.mse_loss(x, t, reduction=reduction), x, dim, mean)


def l1_loss(x: Tensor, t: Tensor, *, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(lambda reduction: F.l1_loss(x, t, reduction=reduction), x, dim, mean)


def soft_margin_loss(x: Tensor, t: Tensor, *, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(lambda reduction: F.soft_margin_loss(x, t, reduction=reduction), x, dim, mean)


def smooth_l1_loss(x: Tensor, t: Tensor, *, beta: float, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(lambda reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=beta), x, dim, mean)


def huber_loss(x: Tensor, t: Tensor, *, delta: float, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(lambda reduction: F.huber_loss(x, t, reduction=reduction, delta=delta), x, dim, mean)


def kl_div(x: Tensor, t: Tensor, *, log_target: bool, dim: Sequence[int] | None, mean: bool) -> Any:
    return _reduced(
        lambda reduction: F.kl_div(x, t, reduction=reduction, log_target=log_target), x, dim, mean
    )


def poisson_nll_loss(
    x: Tensor, t: Tensor, *, log_input: bool, full: bool, eps: float, dim: Sequence[int] | None, mean: bool
) -> Any:
    return _reduced(
        lambda reduction: F.poisson_nll_loss(x, t, log_input, full, eps=eps, reduction=reduction),
        x,
        dim,
        mean,
    )


def hinge_embedding_loss(
    x: Tensor, t: Tensor, *, margin: float, dim: Sequence[int] | None, mean: bool
) -> Any:
    return _reduced(lambda reduction: F.hinge_embedding_loss(x, t, margin, reduction=reduction), x, dim, mean)


def binary_cross_entropy(
    x: Tensor, t: Tensor, w: Tensor | None, *, dim: Sequence[int] | None, mean: bool
) -> Any:
    return _reduced(lambda reduction: F.binary_cross_entropy(x, t, w, reduction=reduction), x, dim, mean)


def binary_cross_entropy_with_logits(
    x: Tensor, t: Tensor, w: Tensor | None, p: Tensor | None, *, dim: Sequence[int] | None, mean: bool
) -> Any:
    return _reduced(
        lambda reduction: F.binary_cross_entropy_with_logits(x, t, w, reduction=reduction, pos_weight=p),
        x,
        dim,
        mean,
    )


def margin_ranking_loss(
    a: Tensor, b: Tensor, t: Tensor, *, margin: float, dim: Sequence[int] | None, mean: bool
) -> Any:
    return _reduced(
        lambda reduction: F.margin_ranking_loss(a, b, t, margin, reduction=reduction), a, dim, mean
    )


def gaussian_nll_loss(
    a: Tensor, b: Tensor, t: Tensor, *, eps: float, full: bool, dim: Sequence[int] | None, mean: bool
) -> Any:
    """PyTorch's looks for a variance below 0 first, and refuses it: such a one counts as eps here, too."""
    at_least = b.clamp(min=eps)
    return _reduced(lambda reduction: F.gaussian_nll_loss(a, t, at_least, full, eps, reduction), a, dim, mean)


# ---- by classes --------------------------------------------------------------------------------------------------


def nll_loss(x: Tensor, t: Tensor, w: Tensor | None, *, ignore: int, mean: bool) -> Any:
    """The weight of what is not ignored is the loss where every log-probability is -1."""
    loss = F.nll_loss(x, t.long(), w, ignore_index=ignore, reduction="mean" if mean else "sum")
    return loss, F.nll_loss(-torch.ones_like(x), t.long(), w, ignore_index=ignore, reduction="sum")


def nll_loss_elements(x: Tensor, t: Tensor, w: Tensor | None, *, ignore: int) -> Any:
    return F.nll_loss(x, t.long(), w, ignore_index=ignore, reduction="none")


def cross_entropy(
    x: Tensor, t: Tensor, w: Tensor | None, *, ignore: int, smoothing: float, mean: bool
) -> Any:
    how = "mean" if mean else "sum"
    return F.cross_entropy(x, t.long(), w, ignore_index=ignore, reduction=how, label_smoothing=smoothing)


def cross_entropy_elements(x: Tensor, t: Tensor, w: Tensor | None, *, ignore: int, smoothing: float) -> Any:
    return F.cross_entropy(x, t.long(), w, ignore_index=ignore, reduction="none", label_smoothing=smoothing)


def multi_margin_loss(x: Tensor, t: Tensor, w: Tensor | None, *, p: int, margin: float) -> Any:
    """PyTorch's kernel passes over what is not above 0: over a nan, and over 0 times a weight that is none or infinite.
    Its own decomposition does not: that is what counts here."""
    t = t.long()
    loss = F.multi_margin_loss(x, t, p, margin, w, reduction="none")
    if w is not None:
        plain = F.multi_margin_loss(x, t, p, margin, reduction="none")
        loss = torch.where(w[t].isfinite(), loss, plain * w[t])
    lost = (margin - x.gather(1, t[:, None]) + x).isnan().scatter(1, t[:, None], False).any(1)
    return loss.masked_fill(lost, math.nan)


# ---- distances ---------------------------------------------------------------------------------------------------


def cosine_similarity(a: Tensor, b: Tensor, *, dim: int, eps: float) -> Any:
    return F.cosine_similarity(a, b, dim, eps)


def pairwise_distance(a: Tensor, b: Tensor, *, p: float, eps: float) -> Any:
    return F.pairwise_distance(a, b, p, eps)


# ---- moments -----------------------------------------------------------------------------------------------------


# (PyTorch's var_mean and std_mean keep a running mean, which is nan after an infinity: here, mean() says the mean.)


def var_mean(x: Tensor, *, dim: Sequence[int] | None, correction: float, keepdim: bool) -> Any:
    return torch.var(x, dim or None, correction=correction, keepdim=keepdim), x.mean(dim or None, keepdim)


def std_mean(x: Tensor, *, dim: Sequence[int] | None, correction: float, keepdim: bool) -> Any:
    return torch.std(x, dim or None, correction=correction, keepdim=keepdim), x.mean(dim or None, keepdim)


def nanmean(x: Tensor, *, dim: Sequence[int] | None, keepdim: bool, dtype: str | None) -> Any:
    kind = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    return torch.nanmean(x, dim or None, keepdim, dtype=None if dtype is None else kind[dtype])


# ---- of one number -----------------------------------------------------------------------------------------------


def softsign(x: Tensor) -> Any:
    return F.softsign(x)


def trigamma(x: Tensor) -> Any:
    """As Hurwitz' zeta function: PyTorch's polygamma(1, x) has nine digits only."""
    right = torch.where(x < 0.5, 1 - x, x)
    # (of very large ones, of which zeta squares the reciprocal, all that counts is the first term, 1 / x)
    value = torch.where(right > 2.0**60, 1 / right, torch.special.zeta(2.0, right.clamp(max=2.0**60)))
    sine = torch.sin(math.pi * (x - x.round()))
    return torch.where(x < 0.5, (math.pi / sine) ** 2 - value, value)
