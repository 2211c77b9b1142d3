"""ATen overloads that are another's with a copy: `view_copy`, scatters into a view of a copy, answers for Python, and
the statistics that a normalisation keeps.

`COPIES` is a part of `fronts.COMPOSE`; the rules there hold.  `copies_of(views)` makes `aten.X_copy.Y` of every view
`aten.X.Y`.

May import: `.fronting`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    axis_of,
    conjugate,
    dtype_name,
    empty,
    full,
    joined,
    run,
    stated,
    tensor,
)

__all__ = ["COPIES", "copies_of"]

_FLOATS = ("f16", "bf16", "f32", "f64")


def _fresh(x: Any) -> Any:
    """The same values in memory of their own."""
    return tuple(_fresh(e) for e in x) if isinstance(x, tuple | list) else run("contiguous", tensor(x))


def copies_of(views: Mapping[str, Front]) -> dict[str, Front]:
    """`aten.expand_copy.default` and its kind: the view's arguments, and a result that shares nothing."""

    def copied(view: Front) -> Front:
        @functools.wraps(view)  # its parameters are the view's
        def front(*args: Any, **kwargs: Any) -> Any:
            return _fresh(view(*args, **kwargs))

        return front

    found = {}
    for overload, view in views.items():
        space, packet, which = overload.split(".", 2)
        if not packet.startswith(("_", "lift", "unsafe")):
            found[f"{space}.{packet}_copy.{which}"] = copied(view)
    return found


# ---- into a view of a copy ---------------------------------------------------------------------------------------


def _into(self: Any, src: Any, window: Any) -> Tensor:
    out = _fresh(self)
    place = window(out)
    s = tensor(src)
    if list(s.shape) != list(place.shape):
        raise Refused(f"a source of shape {list(s.shape)} for a window of shape {list(place.shape)}")
    run("contiguous", s if s.dtype == place.dtype else s.to(place.dtype), out=place)
    return out


def _diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    def window(x: Tensor) -> Tensor:
        a, b = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
        if a == b:
            raise Refused("a diagonal lies between two axes")
        rows, columns = x.shape[a], x.shape[b]
        n = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        rest = [k for k in range(x.ndim) if k not in (a, b)]
        first = x.strides[b] * offset if offset > 0 else -x.strides[a] * offset
        return x.as_strided(
            [*(x.shape[k] for k in rest), n],
            [*(x.strides[k] for k in rest), x.strides[a] + x.strides[b]],
            x.offset + (first if n else 0),
        )

    return _into(self, src, window)


def _as_strided_scatter(
    self: Any, src: Any, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    return _into(self, src, lambda x: x.as_strided(list(size), list(stride), storage_offset or 0))


def _chunk_cat(tensors: Any, dim: int, num_chunks: int) -> Tensor:
    """Every tensor in `num_chunks` parts along dim (zeros after its end), the parts of one number side by side."""
    if num_chunks < 1 or not tensors:
        raise Refused("at least one chunk of at least one tensor is wanted")
    rows = []
    for t in map(tensor, tensors):
        axis = axis_of(dim, t.ndim)
        if not t.size:
            raise Refused(f"a tensor of shape {list(t.shape)} has nothing to cut")
        size = -(-t.shape[axis] // num_chunks)
        lack = size * num_chunks - t.shape[axis]
        if lack:
            more = [lack if k == axis else e for k, e in enumerate(t.shape)]
            t = run("cat", [t, full(tuple(more), 0, t.dtype)], dim=axis)
        lead = list(t.shape[:axis])
        rows.append(t.reshape([*lead, num_chunks, math.prod([size, *t.shape[axis + 1 :]])]))
    return run("cat", rows, dim=-1)


# ---- answers for Python ------------------------------------------------------------------------------------------


def _equal(self: Any, other: Any) -> bool:
    a, b = tensor(self), tensor(other)
    return tuple(a.shape) == tuple(b.shape) and bool(run("all", run("eq", a, b)).item())


def _allclose(self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    a, b = joined(self, other)
    return bool(run("all", run("isclose", a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)).item())


def _isin(elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among the others."""
    x, among = tensor(elements), tensor(test_elements)
    if among.size == 0 or x.size == 0:
        return full(tuple(x.shape), invert, "bool")
    found = run("any", run("eq", x.unsqueeze(x.ndim), among.reshape([1] * x.ndim + [among.size])), dim=[-1])
    return run("logical_not", found) if invert else found


# ---- statistics that are kept -------------------------------------------------------------------------------------


def _move(kept: Any, towards: Tensor, momentum: float) -> None:
    now = tensor(kept)
    target = towards if towards.dtype == now.dtype else towards.to(now.dtype)
    run("contiguous", run("lerp", now, target, momentum), out=now)


def _batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, 1 / deviation); in training the running statistics move by `momentum` towards the batch's, in place.

    The running variance is the unbiased one, as PyTorch's.
    """
    x = tensor(input)
    if x.ndim < 2:
        raise Refused(f"a batch of channels is wanted, got rank {x.ndim}")
    if not training:
        if running_mean is None or running_var is None:
            raise Refused("there are no running statistics, and `training` is off")
        y = run("batch_norm_inference", x, weight, bias, running_mean, running_var, eps=eps)
        nothing = empty((0,), tensor(x if weight is None else weight).dtype)
        return y, nothing, nothing
    y, mean, rstd = run("batch_norm_training", x, weight, bias, eps=eps)
    axes = [k for k in range(x.ndim) if k != 1]
    if running_mean is not None:
        _move(running_mean, mean, momentum)
    if running_var is not None:
        _move(running_var, run("var", x, dim=axes, correction=1), momentum)
    return y, mean, rstd


# ---- small ones --------------------------------------------------------------------------------------------------


def _log_sigmoid_forward(self: Any) -> tuple[Tensor, Tensor]:
    """The value, and the buffer that PyTorch keeps for the gradient on the CPU: exp(-|x|)."""
    x = tensor(self)
    return run("log_sigmoid", x), run("exp", run("neg", run("abs", x)))


def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Tensor:
    """Softmax whose rows that are all -inf are zeros."""
    x = tensor(self)
    x = x if dtype is None or dtype_name(dtype) == x.dtype else x.to(dtype_name(dtype))
    if x.ndim == 0:
        return _safe_softmax(x.reshape([1]), 0).reshape([])
    axis = axis_of(dim, x.ndim)
    masked = run("all", run("eq", x, -math.inf), dim=[axis], keepdim=True)
    soft = run("softmax", x, axis=axis)
    return run("where", masked, full((), 0, x.dtype), soft)


def _mvlgamma(self: Any, p: int) -> Tensor:
    """log of the multivariate gamma function: p (p - 1) / 4 log π + Σ lgamma(x + (1 - j) / 2), j = 1 … p."""
    if p < 1:
        raise Refused(f"`p` must be positive, got {p}")
    x = tensor(self)
    x = x if x.dtype in _FLOATS else x.to("f32")
    out = run("add", run("lgamma", x), p * (p - 1) / 4 * math.log(math.pi))
    for j in range(2, p + 1):
        out = run("add", out, run("lgamma", run("sub", x, (j - 1) / 2)))
    return out


def _ends(*ends: Any) -> list[Any]:
    return [x if isinstance(x, bool | int | float) else tensor(x).item() for x in ends]


def _linspace(start: Any, end: Any, steps: int, dtype: Any = None) -> Call:
    a, b = _ends(start, end)
    return Call("aten.linspace.default", {"start": a, "end": b, "steps": steps, "dtype": dtype})


def _logspace(start: Any, end: Any, steps: int, base: float = 10.0, dtype: Any = None) -> Call:
    a, b = _ends(start, end)
    return Call("aten.logspace.default", {"start": a, "end": b, "steps": steps, "base": base, "dtype": dtype})


def _nonzero_static(self: Any, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` positions, and `fill_value` for those that there are not."""
    found = run("nonzero", tensor(self))
    if found.shape[0] >= size:
        return run("contiguous", found[:size])
    more = full((size - found.shape[0], found.shape[1]), fill_value, "i64")
    return run("cat", [found, more], dim=0)


def _trilinear(
    i1: Any, i2: Any, i3: Any, expand1: Ints, expand2: Ints, expand3: Ints, sumdim: Ints, unroll_dim: int = 1
) -> Tensor:
    """Σ over `sumdim` of the product of three tensors, each unsqueezed at its own dims."""
    xs = []
    for x, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        t = tensor(x)
        for d in sorted(dims):
            t = t.unsqueeze(d)
        xs.append(t)
    product = run("mul", run("mul", xs[0], xs[1]), xs[2])
    return run("sum", product, dim=list(sumdim), dtype=product.dtype) if sumdim else product


def _empty_strided(size: Ints, stride: Ints, dtype: Any = None) -> Tensor:
    """Zeros, as `empty` is; with these strides."""
    room = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    return full((room,), 0, dtype_name(dtype or "f32")).as_strided(list(size), list(stride), 0)


def _empty_permuted(size: Ints, physical_layout: Ints, dtype: Any = None) -> Tensor:
    if sorted(physical_layout) != list(range(len(size))):
        raise Refused(f"{list(physical_layout)} is no order of {len(size)} axes")
    strides, step = [0] * len(size), 1
    for axis in reversed(list(physical_layout)):
        strides[axis] = step
        step *= max(size[axis], 1)
    return _empty_strided(size, strides, dtype)


def _pdist(self: Any, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows, i < j."""
    x = tensor(self)
    if x.ndim != 2:
        raise Refused(f"a matrix is wanted, got rank {x.ndim}")
    n = x.shape[0]
    if n < 2:
        return full((0,), 0, x.dtype)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    rows, columns = (stated([pair[k] for pair in pairs], "i64") for k in (0, 1))
    far = run("sub", run("index_select", x, rows, dim=0), run("index_select", x, columns, dim=0))
    return tensor(run("vector_norm", far, ord=p, dim=[1]))


def _sgn(self: Any) -> Call:
    return Call("sign", {"x": self})


def _conj(self: Any) -> Tensor:
    """A complex tensor's conjugate in memory of its own; of any other the tensor."""
    return conjugate(tensor(self))


def _normalised(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor | Call:
    """`batch_norm`: the first result, and one call where nothing is kept."""
    if training and running_mean is None and running_var is None:
        return Call("batch_norm_training", {"x": input, "w": weight, "b": bias, "eps": eps}, lambda y: y[0])
    if not training and running_mean is not None and running_var is not None:
        kept = {"mean": running_mean, "var": running_var}
        return Call("batch_norm_inference", {"x": input, "w": weight, "b": bias, **kept, "eps": eps})
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor | Call:
    """Every sample by itself; what is kept moves towards the mean of the samples' statistics."""
    x = tensor(input)
    if x.ndim < 2:
        raise Refused(f"a batch of channels is wanted, got rank {x.ndim}")
    if not use_input_stats:
        return _normalised(x, weight, bias, running_mean, running_var, False, momentum, eps)
    axes = list(range(2, x.ndim))
    if running_mean is not None:
        _move(running_mean, run("mean", run("mean", x, dim=axes), dim=[0]), momentum)
    if running_var is not None:
        _move(running_var, run("mean", run("var", x, dim=axes, correction=1), dim=[0]), momentum)
    given = {"x": x, "w": weight, "b": bias, "groups": x.shape[1], "eps": eps}
    return Call("native_group_norm", given, lambda y: y[0])


def _isin_number(
    elements: Any, test_element: Any, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    return tensor(run("ne" if invert else "eq", elements, test_element))


def _number_isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    found = run("any", run("eq", tensor(test_elements), element))
    return tensor(run("logical_not", found) if invert else found)


COPIES: dict[str, Front] = {
    **{f"aten.{name}.default": _conj for name in ("_conj", "_conj_physical", "conj")},
    **{f"aten.{name}.default": tensor for name in ("resolve_conj", "resolve_neg")},
    "aten._neg_view.default": lambda self: Call("neg", {"x": self}),
    "aten._batch_norm_with_update.default": lambda input, weight, bias, running_mean, running_var, momentum, eps: (
        *_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps),
        empty((0,), "u8"),
    ),
    "aten._chunk_cat.default": _chunk_cat,
    "aten._native_batch_norm_legit.default": _batch_norm,
    "aten._pdist_forward.default": _pdist,
    "aten._safe_softmax.default": _safe_softmax,
    "aten._trilinear.default": _trilinear,
    "aten.allclose.default": _allclose,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
    "aten.empty_permuted.default": _empty_permuted,
    "aten.empty_strided.default": _empty_strided,
    "aten.batch_norm.default": _normalised,
    "aten.equal.default": _equal,
    "aten.instance_norm.default": _instance_norm,
    "aten.isin.Scalar_Tensor": _number_isin,
    "aten.isin.Tensor_Scalar": _isin_number,
    "aten.isreal.default": lambda self: full(list(tensor(self).shape), True, "bool"),
    "aten.isin.Tensor_Tensor": _isin,
    "aten.linspace.Scalar_Tensor": _linspace,
    "aten.linspace.Tensor_Scalar": _linspace,
    "aten.linspace.Tensor_Tensor": _linspace,
    "aten.log_sigmoid_forward.default": _log_sigmoid_forward,
    "aten.logspace.Scalar_Tensor": _logspace,
    "aten.logspace.Tensor_Scalar": _logspace,
    "aten.logspace.Tensor_Tensor": _logspace,
    "aten.mvlgamma.default": _mvlgamma,
    "aten.native_batch_norm.default": _batch_norm,
    "aten.new_empty_strided.default": lambda self, size, stride, dtype=None: _empty_strided(
        size, stride, dtype or tensor(self).dtype
    ),
    "aten.nonzero_static.default": _nonzero_static,
    "aten.pdist.default": _pdist,
    "aten.sgn.default": _sgn,
    "aten.zero.default": lambda self: Call(
        "full", {"size": list(tensor(self).shape), "value": 0, "dtype": tensor(self).dtype}
    ),
}
