"""Random numbers: a seed and an offset that moves on with every draw, and the ATen overloads that draw.

Every number is a function of (seed, offset, position) alone (Philox 4x32-10, specs/ops/random), so that `manual_seed`
makes a run the same again, on every machine and by any number of threads.  PyTorch's own numbers differ.

`DRAWS` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.  May import: `.fronting`, `.products`.
"""

from __future__ import annotations

import math
import secrets
import threading
from typing import Any

from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    converted,
    dtype_name,
    full,
    joined,
    run,
    somewhere,
    stated,
    tensor,
)
from .products import attention_scores

__all__ = ["DRAWS", "Generator", "default", "manual_seed"]


class Generator:
    """Where a stream of random numbers stands.

    seed    chooses the stream
    offset  blocks of four words that are spent
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.offset = seed, 0
        self._lock = threading.Lock()

    def spend(self, numbers: int, words: int = 1) -> dict[str, int]:
        """The seed and offset of a draw of so many numbers, and move on."""
        with self._lock:
            here = self.offset
            self.offset += -(-numbers * words // 4)
            return {"seed": self.seed, "offset": here}


default = Generator(secrets.randbits(62))


def manual_seed(seed: int) -> Generator:
    """Begin the default stream of this seed."""
    default.seed, default.offset = int(seed), 0
    return default


def _kind(dtype: Any, like: str = "f32") -> str:
    return like if dtype is None else dtype_name(dtype)


def _spend(size: Ints, generator: Any, words: int = 1) -> dict[str, int]:
    if generator is not None and not isinstance(generator, Generator):
        raise Refused("a generator is one of opwright.random")
    return (generator or default).spend(math.prod(size), words)


def _rand(size: Ints, dtype: Any = None, generator: Any = None) -> Call:
    return Call("rand", {"size": list(size), "dtype": _kind(dtype), **_spend(size, generator)})


def _randn(size: Ints, dtype: Any = None, generator: Any = None) -> Call:
    return Call("randn", {"size": list(size), "dtype": _kind(dtype), **_spend(size, generator, 2)})


def _like(draw: Any) -> Front:
    def one(self: Any, dtype: Any = None, generator: Any = None) -> Call:
        x = tensor(self)
        call: Call = draw(x.shape, _kind(dtype, x.dtype), generator)
        return call

    return one


def _with_generator(draw: Any) -> Front:
    return lambda size, generator=None, dtype=None: draw(size, dtype, generator)


def _randint(low: int, high: int, size: Ints, dtype: Any = None, generator: Any = None) -> Call:
    if high <= low:
        raise Refused(f"nothing lies from {low} up to {high}")
    span = {"low": low, "high": high, "size": list(size), "dtype": _kind(dtype, "i64")}
    return Call("randint", {**span, **_spend(size, generator)})


def _randint_below(high: int, size: Ints, dtype: Any = None, generator: Any = None) -> Call:
    return _randint(0, high, size, dtype, generator)


def _randint_like(self: Any, low: int, high: int, dtype: Any = None) -> Call:
    x = tensor(self)
    return _randint(low, high, x.shape, _kind(dtype, x.dtype))


def _bernoulli(self: Any, generator: Any = None) -> Call:
    x = tensor(self)
    return Call("bernoulli", {"p": x, **_spend(x.shape, generator)})


def _bernoulli_by(self: Any, p: float = 0.5, generator: Any = None) -> Call:
    x = tensor(self)
    _share(p)
    return _bernoulli(full((), float(p), x.dtype).expand(list(x.shape)), generator)


def _share(p: float) -> None:
    if not 0 <= p <= 1:
        raise Refused(f"`p` must lie from 0 to 1, it is {p}")


def _native_dropout(input: Any, p: float, train: bool | None = True) -> Any:
    x = tensor(input)
    _share(p)
    if train is False or p == 0:
        return run("contiguous", x), full(list(x.shape), True, "bool")
    return Call("native_dropout", {"x": x, "p": p, **_spend(x.shape, None)})


def _dropout(input: Any, p: float, train: bool) -> Call:
    x = tensor(input)
    _share(p)
    if not train or p == 0:
        return Call("contiguous", {"x": x})
    return Call("native_dropout", {"x": x, "p": p, **_spend(x.shape, None)}, lambda y: y[0])


def _feature_dropout(input: Any, p: float, train: bool) -> Call:
    """Whole channels are kept or not."""
    x = tensor(input)
    _share(p)
    if not train or p == 0:
        return Call("contiguous", {"x": x})
    shape = [n if k < 2 else 1 for k, n in enumerate(x.shape)]
    ones = full(shape, 1, x.dtype)
    kept = run("native_dropout", ones, p=p, **_spend(shape, None))[0]
    return Call("mul", {"a": x, "b": kept})


def _scaled(draw: Call, mean: Any, std: Any) -> Tensor:
    return run("add", run("mul", run(draw.to, **draw.arguments), std), mean)


def _normal(mean: Any, std: Any, generator: Any = None) -> Tensor:
    """Around tensors, or a tensor and a number."""
    if isinstance(std, int | float):
        if not std >= 0:
            raise Refused(f"`std` must not be negative, it is {std}")
    elif tensor(std).size and somewhere(run("lt", tensor(std), 0)):
        raise Refused("`std` must not be negative anywhere")
    given = [tensor(v) for v in (mean, std) if not isinstance(v, int | float)]
    shape, kind = list(joined(*given)[0].shape), given[0].dtype
    return _scaled(_randn(shape, kind, generator), mean, std)


def _normal_of(mean: float, std: float, size: Ints, generator: Any = None, dtype: Any = None) -> Tensor:
    if not std >= 0:
        raise Refused(f"`std` must not be negative, it is {std}")
    return _scaled(_randn(size, dtype, generator), mean, std)


def _normal_like(self: Any, mean: float = 0, std: float = 1, generator: Any = None) -> Tensor:
    x = _floats(tensor(self))
    if not std >= 0:
        raise Refused(f"`std` must not be negative, it is {std}")
    return _scaled(_randn(x.shape, x.dtype, generator), mean, std)


def _uniform(self: Any, low: float = 0, high: float = 1, generator: Any = None) -> Tensor:
    x = _floats(tensor(self))
    if not low <= high:
        raise Refused(f"`from` must be at most `to`: {low} and {high}")
    return _scaled(_rand(x.shape, x.dtype, generator), low, high - low)


def _floats(x: Tensor) -> Tensor:
    if x.dtype not in ("f16", "bf16", "f32", "f64"):
        raise Refused(f"`self` must be of a float type, it is {x.dtype}")
    return x


def _distributed(op: str, name: str, value: float, most: float = math.inf) -> Front:
    def one(self: Any, parameter: float = value, generator: Any = None) -> Call:
        x = tensor(self)
        if not 0 < parameter < most:
            limit = f" and below {most:g}" if most < math.inf else ""
            raise Refused(f"`{name}` must be above 0{limit}, it is {parameter}")
        return Call(op, {"x": x, name: float(parameter), **_spend(x.shape, generator)})

    return one


def _cauchy(self: Any, median: float = 0, sigma: float = 1, generator: Any = None) -> Call:
    x = _floats(tensor(self))
    if not sigma > 0:
        raise Refused(f"`sigma` must be above 0, it is {sigma}")
    given = {"median": float(median), "sigma": float(sigma)}
    return Call("cauchy", {"x": x, **given, **_spend(x.shape, generator)})


def _poisson(self: Any, generator: Any = None) -> Tensor:
    """How many arrivals, exponential times apart, come before each rate."""
    x = _floats(tensor(self))
    if not x.size:
        return full(list(x.shape), 0, x.dtype)
    rates = converted(x, "f64")
    most = float(run("amax", rates).item())
    if not (float(run("amin", rates).item()) >= 0 and most < math.inf):
        raise Refused("rates must be finite and not below 0")
    count = int(most + 12 * math.sqrt(most) + 40)
    if count * x.size > 1 << 26:
        raise Refused(f"rates up to {most:g} for {x.size} numbers take too many draws")
    size = [*x.shape, count]
    waits = run("exponential", full(size, 0, "f64"), rate=1.0, **_spend(size, generator))
    before = run("lt", run("cumsum", waits, dim=-1), rates.unsqueeze(x.ndim))
    return converted(run("sum", before, dim=[x.ndim]), x.dtype)


def _binomial(count: Any, prob: Any, generator: Any = None) -> Tensor:
    """How many of `count` trials succeed."""
    n, p = joined(count, prob)
    if n.dtype != p.dtype or n.dtype not in ("f16", "bf16", "f32", "f64"):
        raise Refused(f"`count` and `prob` must be of one float type, they are {n.dtype} and {p.dtype}")
    if not n.size:
        return full(list(n.shape), 0, n.dtype)
    most = float(run("amax", n).item())
    share = [float(run(op, p).item()) for op in ("amin", "amax")]
    if not (float(run("amin", n).item()) >= 0 and most < math.inf and 0 <= share[0] <= share[1] <= 1):
        raise Refused("`count` must be finite and not below 0, `prob` from 0 to 1")
    trials = max(int(most), 1)
    if trials * n.size > 1 << 26:
        raise Refused(f"{trials} trials for {n.size} numbers take too many draws")
    size = [*n.shape, trials]
    drawn = run("rand", size=size, dtype="f64", **_spend(size, generator))
    hit = run("lt", drawn, converted(p, "f64").unsqueeze(n.ndim))
    counted = run(
        "lt", run("arange", start=0, end=trials, step=1, dtype="f64"), converted(n, "f64").unsqueeze(n.ndim)
    )
    return converted(run("sum", run("logical_and", hit, counted), dim=[n.ndim]), n.dtype)


#: As many integers from 0 on as a dtype holds without a gap.
_WHOLE = {"bool": 2, "u8": 1 << 8, "i8": 1 << 7, "i16": 1 << 15, "i32": 1 << 31, "i64": (1 << 63) - 1}
_EXACT = {"f16": (1 << 11) + 1, "bf16": (1 << 8) + 1, "f32": (1 << 24) + 1, "f64": (1 << 53) + 1}


def _random(self: Any, low: int = 0, high: int | None = None, generator: Any = None) -> Tensor:
    x = tensor(self)
    most = (_WHOLE | _EXACT).get(x.dtype)
    if most is None:
        raise Refused(f"a tensor of {x.dtype} holds no integers")
    end = most if high is None else high
    if end <= low:
        raise Refused(f"nothing lies from {low} up to {end}")
    size = list(x.shape)

    def draw(low: int, high: int) -> Tensor:
        return run("randint", low=low, high=high, size=size, dtype="i64", **_spend(size, generator))

    if high is None and end > 1 << 32:  # one draw has 32 bits
        return converted(run("add", run("mul", draw(0, end >> 32), 1 << 32), draw(0, 1 << 32)), x.dtype)
    return converted(draw(low, end), x.dtype)


def _randperm(n: int, dtype: Any = None, generator: Any = None) -> Tensor:
    """The order of as many random keys."""
    keys = run("rand", size=[n], dtype="f64", **_spend([n], generator))
    return converted(run("sort", keys)[1], _kind(dtype, "i64"))


def _multinomial(self: Any, num_samples: int, replacement: bool = False, generator: Any = None) -> Any:
    """Weights over exponential numbers are largest at i with a probability as i's weight; the next largest are a draw
    of what is left."""
    x = tensor(self)
    rows = x if x.ndim == 2 else x.unsqueeze(0)
    if x.ndim not in (1, 2) or num_samples < 1 or (not replacement and num_samples > rows.shape[1]):
        raise Refused(f"{num_samples} samples of weights of shape {list(x.shape)}")
    if rows.shape[1] > 1 << 24 or x.dtype not in ("f16", "bf16", "f32", "f64"):
        raise Refused(f"weights must be at most 2^24 real numbers, these are {rows.shape[1]} {x.dtype}")
    if rows.size:
        sums = run("sum", rows if x.dtype in ("f32", "f64") else rows.to("f32"), dim=[1])
        good = run("logical_and", run("isfinite", sums), run("gt", sums, 0))
        if not bool(run("all", good).item()) or not float(run("amin", rows).item()) >= 0:
            raise Refused("weights must be finite, none below 0, and each row's sum above 0")
    if replacement:
        wide = rows.unsqueeze(1).expand([rows.shape[0], num_samples, rows.shape[1]])
        noise = run("exponential", run("contiguous", wide), **_spend(wide.shape, generator))
        out = run("argmax", run("div", wide, noise), dim=-1)
    else:
        noise = run("exponential", rows, **_spend(rows.shape, generator))
        out = run("topk", run("div", rows, noise), k=num_samples)[1]
    return out if x.ndim == 2 else out[0]


def _log_normal(self: Any, mean: float = 1, std: float = 2, generator: Any = None) -> Call:
    if not std > 0:
        raise Refused(f"`std` must be above 0, it is {std}")
    return Call("exp", {"x": _normal_like(self, mean, std, generator)})


def _bernoulli_of(self: Any, p: Any, generator: Any = None) -> Tensor:
    """In self's shape and dtype, by chances of their own."""
    x = tensor(self)
    chances = tensor(p).expand(list(x.shape))
    wide = chances if chances.dtype in ("f32", "f64") else chances.to("f32")
    drawn = run("bernoulli", run("contiguous", wide), **_spend(x.shape, generator))
    return tensor(drawn if drawn.dtype == x.dtype else drawn.to(x.dtype))


def _alpha_dropout(spread: Any, input: Any, p: float, train: bool) -> Any:
    """Of SELU's outputs: what is dropped takes its least value, and mean and spread stay."""
    x = tensor(input)
    _share(p)
    if not train or p == 0 or not x.size:
        return Call("contiguous", {"x": x})
    if p == 1:
        return full(list(x.shape), 0, x.dtype)
    least = 1.7580993408473766
    a = 1 / math.sqrt((least * least * p + 1) * (1 - p))
    shape = spread(x)
    kept = run("bernoulli", full(shape, 1 - p, x.dtype), **_spend(shape, None))
    moved = run("add", run("mul", run("sub", kept, 1), least * a), least * a * p)
    return Call("add", {"a": run("mul", x, run("mul", kept, a)), "b": moved})


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """With dropped weights; without, the operator's rows have answered."""
    q, k, v = tensor(query), tensor(key), tensor(value)
    if not 0 <= dropout_p < 1:
        raise Refused(f"`dropout_p` must lie from 0 up to 1, it is {dropout_p}")
    if is_causal and attn_mask is not None:
        raise Refused("`is_causal` and `attn_mask` exclude each other")
    if q.ndim < 2 or k.ndim != q.ndim or v.ndim != q.ndim:
        raise Refused("`query`, `key` and `value` must have one rank of at least 2")
    if enable_gqa and q.ndim > 2:
        times = q.shape[-3] // k.shape[-3]
        heads = stated([h // times for h in range(q.shape[-3])], "i64")
        k, v = (run("index_select", t, heads, dim=t.ndim - 3) for t in (k, v))
    scores = attention_scores(q, k, attn_mask, causal=is_causal, scale=scale)
    blind = run("all", run("eq", scores, -math.inf), dim=[scores.ndim - 1], keepdim=True)
    weights = run("where", blind, 0.0, run("softmax", scores, axis=-1))
    kept = run("native_dropout", weights, p=dropout_p, **_spend(weights.shape, None))[0]
    return Call("matmul", {"a": kept, "b": v})


DRAWS: dict[str, Front] = {
    "aten.alpha_dropout.default": lambda input, p, train: _alpha_dropout(
        lambda x: list(x.shape), input, p, train
    ),
    "aten.bernoulli.Tensor": _bernoulli_of,
    "aten.bernoulli.float": _bernoulli_by,
    "aten.feature_alpha_dropout.default": lambda input, p, train: _alpha_dropout(
        lambda x: [n if k < 2 else 1 for k, n in enumerate(x.shape)], input, p, train
    ),
    "aten.log_normal.default": _log_normal,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.bernoulli.default": _bernoulli,
    "aten.bernoulli.p": _bernoulli_by,
    "aten.binomial.default": _binomial,
    "aten.cauchy.default": _cauchy,
    "aten.dropout.default": _dropout,
    "aten.exponential.default": _distributed("exponential", "rate", 1.0),
    "aten.feature_dropout.default": _feature_dropout,
    "aten.geometric.default": _distributed("geometric", "p", 0.5, 1.0),
    "aten.multinomial.default": _multinomial,
    "aten.native_dropout.default": _native_dropout,
    "aten.normal.Tensor_Tensor": _normal,
    "aten.normal.Tensor_float": lambda mean, std=1.0, generator=None: _normal(mean, std, generator),
    "aten.normal.float_Tensor": _normal,
    "aten.normal.float_float": _normal_of,
    "aten.normal_functional.default": _normal_like,
    "aten.poisson.default": _poisson,
    "aten.rand.default": _rand,
    "aten.rand.generator": _with_generator(_rand),
    "aten.rand_like.default": _like(_rand),
    "aten.randint.default": _randint_below,
    "aten.randint.low": _randint,
    "aten.randint_like.default": lambda self, high, dtype=None: _randint_like(self, 0, high, dtype),
    "aten.randint_like.low_dtype": _randint_like,
    "aten.randn.default": _randn,
    "aten.randn.generator": _with_generator(_randn),
    "aten.randn_like.default": _like(_randn),
    "aten.random.default": lambda self, generator=None: _random(self, 0, None, generator),
    "aten.random.from": lambda self, low, high, generator=None: _random(self, low, high, generator),
    "aten.random.to": lambda self, high, generator=None: _random(self, 0, high, generator),
    "aten.randperm.default": _randperm,
    "aten.uniform.default": _uniform,
}
