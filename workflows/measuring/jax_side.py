"""JAX's side: operators as expressions over ATen's arguments, jitted for the CPU; what is compiled is not counted.

`EXPRESSIONS` maps an overload to a function of its arguments by ATen's names; to add one: a row there.  Names that
ATen shares with jax.numpy need none (`_NAMES`).  May import: jax.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from .child import Call, Loaded, Missing
from .ours import _sets, loaded, tensors_by

__all__ = ["EXPRESSIONS", "Jax", "expression_of"]

_WIDE = {"float64", "int64", "uint64", "complex128"}
_DTYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16, "i64": jnp.int64,
           "i32": jnp.int32, "i16": jnp.int16, "i8": jnp.int8, "u8": jnp.uint8, "bool": jnp.bool_}  # fmt: skip

#: ATen packet -> a function of its tensors in order.
_SHARED = """
exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh floor ceil trunc sign square reciprocal positive
isnan isinf isfinite signbit logaddexp logaddexp2 hypot copysign nextafter fmod maximum minimum fmax fmin bitwise_and
bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_xor logical_not where outer deg2rad rad2deg sinc
heaviside gcd lcm
"""
_NAMES: dict[str, Callable[..., Any]] = {n: getattr(jnp, n) for n in _SHARED.split()} | {
    "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan, "asinh": jnp.arcsinh, "acosh": jnp.arccosh,
    "atanh": jnp.arctanh, "atan2": jnp.arctan2, "neg": jnp.negative, "abs": jnp.abs, "rsqrt": lax.rsqrt,
    "erf": lax.erf, "erfc": lax.erfc, "erfinv": lax.erf_inv, "lgamma": lax.lgamma, "digamma": lax.digamma,
    "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "silu": jax.nn.silu, "mul": jnp.multiply,
    "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater,
    "ge": jnp.greater_equal, "matmul": jnp.matmul, "mm": jnp.matmul, "bmm": jnp.matmul, "mv": jnp.matmul,
    "dot": jnp.dot, "pow": jnp.power, "remainder": jnp.remainder, "round": jnp.round, "xlogy": special.xlogy,
    "log_sigmoid": jax.nn.log_sigmoid, "mish": jax.nn.mish, "relu6": jax.nn.relu6, "clone": jnp.array,
}  # fmt: skip

EXPRESSIONS: dict[str, Callable[..., Any]] = {}


def _of(*overloads: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def put(f: Callable[..., Any]) -> Callable[..., Any]:
        for o in overloads:
            EXPRESSIONS[f"aten.{o}"] = f
        return f

    return put


def _axis(dim: Any) -> Any:
    return (
        tuple(dim)
        if isinstance(dim, list | tuple) and dim
        else None
        if isinstance(dim, list | tuple)
        else dim
    )


@_of("add.Tensor")
def _add(self: Any, other: Any, alpha: Any = 1) -> Any:
    return self + (other if alpha == 1 else alpha * other)


@_of("sub.Tensor")
def _sub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return self - (other if alpha == 1 else alpha * other)


@_of("div.Tensor")
def _div(self: Any, other: Any) -> Any:
    return self / other


@_of("gelu.default")
def _gelu(self: Any, approximate: str = "none") -> Any:
    return jax.nn.gelu(self, approximate=approximate == "tanh")


@_of("leaky_relu.default")
def _leaky_relu(self: Any, negative_slope: float = 0.01) -> Any:
    return jnp.where(self > 0, self, negative_slope * self)


@_of("clamp.default", "clamp.Tensor")
def _clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    return jnp.clip(self, min, max)


@_of("addcmul.default")
def _addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    return self + value * tensor1 * tensor2


@_of("lerp.Tensor", "lerp.Scalar")
def _lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


@_of("sum.dim_IntList", "sum.default")
def _sum(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return jnp.sum(self, _axis(dim), dtype=dtype, keepdims=keepdim)


@_of("mean.dim", "mean.default")
def _mean(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return jnp.mean(self, _axis(dim), dtype=dtype, keepdims=keepdim)


@_of("prod.dim_int", "prod.default")
def _prod(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return jnp.prod(self, dim, dtype=dtype, keepdims=keepdim)


@_of("var.correction")
def _var(self: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    return jnp.var(self, _axis(dim), ddof=1 if correction is None else correction, keepdims=keepdim)


@_of("std.correction")
def _std(self: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    return jnp.sqrt(_var(self, dim, correction, keepdim))


@_of("amax.default")
def _amax(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return jnp.max(self, _axis(dim), keepdims=keepdim)


@_of("amin.default")
def _amin(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return jnp.min(self, _axis(dim), keepdims=keepdim)


@_of("argmax.default")
def _argmax(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.argmax(self, dim, keepdims=keepdim and dim is not None)


@_of("argmin.default")
def _argmin(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.argmin(self, dim, keepdims=keepdim and dim is not None)


@_of("any.dims", "any.dim", "any.default")
def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.any(self, _axis(dim), keepdims=keepdim)


@_of("all.dims", "all.dim", "all.default")
def _all(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.all(self, _axis(dim), keepdims=keepdim)


@_of("cumsum.default")
def _cumsum(self: Any, dim: int, dtype: Any = None) -> Any:
    return jnp.cumsum(self, dim, dtype=dtype)


@_of("cumprod.default")
def _cumprod(self: Any, dim: int, dtype: Any = None) -> Any:
    return jnp.cumprod(self, dim, dtype=dtype)


@_of("logsumexp.default")
def _logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    return jax.nn.logsumexp(self, _axis(dim), keepdims=keepdim)


@_of("_softmax.default", "softmax.int")
def _softmax(self: Any, dim: int, half_to_float: bool = False, dtype: Any = None) -> Any:
    return jax.nn.softmax(self, dim)


@_of("_log_softmax.default", "log_softmax.int")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False, dtype: Any = None) -> Any:
    return jax.nn.log_softmax(self, dim)


def _f32(x: Any) -> Any:
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


@_of("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    x = _f32(input)
    axes = tuple(range(-len(normalized_shape), 0))
    y = x * lax.rsqrt(
        jnp.mean(x * x, axes, keepdims=True) + (jnp.finfo(input.dtype).eps if eps is None else eps)
    )
    return (y if weight is None else y * _f32(weight)).astype(input.dtype)


@_of("native_layer_norm.default")
def _layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = _f32(input)
    axes = tuple(range(-len(normalized_shape), 0))
    mean = jnp.mean(x, axes, keepdims=True)
    scale = lax.rsqrt(jnp.mean((x - mean) ** 2, axes, keepdims=True) + eps)
    y = (x - mean) * scale
    y = y if weight is None else y * _f32(weight)
    y = y if bias is None else y + _f32(bias)
    return y.astype(input.dtype), mean.astype(input.dtype), scale.astype(input.dtype)


@_of("linear.default")
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    y = input @ weight.T
    return y if bias is None else y + bias


@_of("addmm.default")
def _addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * self + alpha * (mat1 @ mat2)


@_of("convolution.default")
def _convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any = (), groups: int = 1,
) -> Any:  # fmt: skip
    if transposed:
        raise Missing("no expression of a transposed convolution")
    y = lax.conv_general_dilated(
        input,
        weight,
        tuple(stride),
        [(p, p) for p in padding],
        rhs_dilation=tuple(dilation),
        feature_group_count=groups,
    )
    return y if bias is None else y + bias.reshape(1, -1, *[1] * (y.ndim - 2))


@_of("scaled_dot_product_attention.default")
def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    # jax's own takes [batch, places, heads, width], and shares heads out by their numbers.
    q, k, v = (jnp.moveaxis(x, -3, -2) for x in (query, key, value))
    lead = q.shape[:-3]
    q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    if attn_mask is not None:
        raise Missing("no expression of a mask")
    y = jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=is_causal)
    return jnp.moveaxis(y.reshape(*lead, *y.shape[-3:]), -3, -2)


@_of("embedding.default")
def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: Any = False, sparse: Any = False
) -> Any:
    return jnp.take(weight, indices, axis=0, mode="clip")


@_of("gather.default")
def _gather(self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return jnp.take_along_axis(self, index, dim)


@_of("index_select.default")
def _index_select(self: Any, dim: int, index: Any) -> Any:
    return jnp.take(self, index, dim, mode="clip")


@_of("cat.default")
def _cat(tensors: Any, dim: int = 0) -> Any:
    return jnp.concatenate(tensors, dim)


@_of("sort.stable", "sort.default")
def _sort(self: Any, stable: Any = True, dim: int = -1, descending: bool = False) -> Any:
    at = jnp.argsort(self, dim, stable=True, descending=descending)
    return jnp.take_along_axis(self, at, dim), at


@_of("topk.default")
def _topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if dim not in (-1, self.ndim - 1) or not largest:
        raise Missing("lax.top_k takes the largest along the last axis")
    return lax.top_k(self, k)


@_of("flip.default")
def _flip(self: Any, dims: Any) -> Any:
    return jnp.flip(self, tuple(dims))


@_of("clone.default", "contiguous.default")
def _clone(self: Any, memory_format: Any = None) -> Any:
    return jnp.array(self)


def expression_of(overload: str) -> Callable[..., Any] | None:
    """The expression of an overload; None where nobody wrote one."""
    if overload in EXPRESSIONS:
        return EXPRESSIONS[overload]
    parts = overload.split(".")
    f = _NAMES.get(parts[1]) if len(parts) == 3 and parts[0] == "aten" else None
    if f is None:
        return None
    return lambda **given: f(*given.values())


class Jax:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self.version = str(jax.__version__)
        jax.config.update("jax_cpu_enable_async_dispatch", False)

    def load(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        if "program" in request:
            raise Missing("a torch module has no expression in JAX here")
        if request["layouts"]:
            raise Missing("its arrays have no strides")
        f = expression_of(request["overload"])
        if f is None:
            raise Missing(f"no expression of {request['overload']} is written")
        sets = _sets(folder, request)
        wide = any(a.dtype.name in _WIDE for a in sets[0].values())
        jax.config.update("jax_enable_x64", wide)
        constants: dict[str, Any] = {}
        places: dict[str, Any] = {}
        for k, v in request["torch"].items():
            (places if "tensor" in v or _tensors(v) else constants)[k] = v
        given = {k: loaded(v, lambda _: None) for k, v in constants.items()}
        given |= {k: _DTYPES[v] for k, v in request["dtypes"].items()}
        accepted = inspect.signature(f).parameters if request["overload"] in EXPRESSIONS else None
        if accepted is not None:
            for k in [k for k in given if k not in accepted]:
                if given.pop(k) not in (None, False, 0):
                    raise Missing(f"the expression of {request['overload']} has no {k}")
        names = list(places)

        def run(*args: Any) -> Any:
            tensors = dict(zip(names, args, strict=True))
            order = {
                k: tensors[k] if k in tensors else given[k]
                for k in request["torch"]
                if k in tensors or k in given
            }
            return f(**order, **{k: v for k, v in given.items() if k not in order})

        jitted = jax.jit(run)
        ready = jax.block_until_ready
        calls = []
        for arrays in sets:
            of = tensors_by(jax.device_put, arrays, request)
            args = tuple(loaded(places[n], of) for n in names)
            calls.append(Call(lambda *a: ready(jitted(*a)), args))
        begun = time.perf_counter()
        calls[0]()
        took = time.perf_counter() - begun

        def answers(result: Any) -> dict[str, Any]:
            found = result if isinstance(result, list | tuple) else [result]
            return {n: np.asarray(x) for n, x in zip(request["returns"], found, strict=False)}

        return Loaded(calls, answers, self.version, took)


def _tensors(v: Mapping[str, Any]) -> bool:
    return "list" in v and any("tensor" in y for y in v["list"])
