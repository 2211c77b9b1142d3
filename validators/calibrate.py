"""Are the computed bounds as tight, and as wide, as they should be?  Known kernels in f32, in NumPy, against them.

An honest kernel must stay within the bound (worst error over radius at most 1) at every size; a cheat must leave it at
one size at least, and `seen` says at which.  A wide bound at a long sum misses a small error: that is why small extents
and exact values are mandatory, and the table shows it.

May import: numpy, ball, oracle, values, generator.{bind, spec, types}, resources.
To add a kernel: a row of `Study.kernels`; to add an operator: a `Study` in `STUDIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import resources
from ..generator.bind import bind
from ..generator.bind_key import key_for_call
from ..generator.spec import Registry
from ..generator.types import DType, Operand
from .ball import check
from .oracle import evaluate
from .values import ARRAY, Array

__all__ = ["STUDIES", "Measured", "Study", "calibrate", "faults"]

F32 = np.float32
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Kernel:
    """honest: must pass.  `run` takes the inputs and gives the first output."""

    name: str
    honest: bool
    run: Callable[[Arrays], Array]


@dataclass(frozen=True)
class Study:
    """An operator, the sizes it is tried at, its inputs and attributes at a size, and the kernels."""

    op: str
    sizes: Sequence[int]
    extent: str
    make: Callable[[int, np.random.Generator], tuple[dict[str, Array], dict[str, Any]]]
    kernels: Sequence[Kernel]


@dataclass(frozen=True)
class Measured:
    """Worst error over its bound of one kernel at one size."""

    op: str
    size: str
    kernel: str
    honest: bool
    ratio: float

    @property
    def within(self) -> bool:
        return self.ratio <= 1


# ---- how numbers are spoiled -------------------------------------------------------------------------------------


def _bf16(x: Array) -> Array:
    return x.astype(ARRAY[DType.BF16]).astype(F32)


def _tf32(x: Array) -> Array:
    return ((x.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)).view(F32)


def _same(x: Array) -> Array:
    return x


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(F32)


# ---- the kernels -------------------------------------------------------------------------------------------------


def _blocked(x: Array, block: int = 32) -> Array:
    """The sum along the last axis in f32, in blocks that are summed one after the other."""
    total = np.zeros(x.shape[:-1], F32)
    for start in range(0, x.shape[-1], block):
        part = np.zeros(x.shape[:-1], F32)
        for k in range(start, min(start + block, x.shape[-1])):
            part = part + x[..., k]
        total = total + part
    return total[..., None]


def _pairwise(x: Array) -> Array:
    return np.asarray(x.sum(-1, keepdims=True, dtype=F32))


def _double(x: Array) -> Array:
    return np.asarray(x.sum(-1, keepdims=True, dtype=np.float64))


def _softmax(
    x: Array, total: Callable[[Array], Array] = _pairwise, inside: Callable[[Array], Array] = _same
) -> Array:
    e = inside(np.exp(inside(x - x.max(-1, keepdims=True))))
    return np.asarray((e / total(e)).astype(F32))


def _jittered(y: Array) -> Array:
    sign = np.where(np.arange(y.size).reshape(y.shape) % 2, -1.0, 1.0)
    return np.asarray((y * (1 + 1e-5 * sign)).astype(F32))


def _rms_norm(
    x: Array,
    w: Array,
    total: Callable[[Array], Array] = _pairwise,
    eps: float = 1e-6,
    inside: Callable[[Array], Array] = _same,
) -> Array:
    r = 1 / np.sqrt(inside((total(x * x) / F32(x.shape[-1])).astype(F32)) + F32(eps))
    return np.asarray((x * r * w).astype(F32))


def _attention(q: Array, k: Array, v: Array, causal: bool = True) -> Array:
    s = np.einsum("bhie,bhje->bhij", q, k) * F32(q.shape[-1] ** -0.5)
    rows, cols = s.shape[-2:]
    if causal:
        s = np.where(np.arange(cols) <= np.arange(rows)[:, None], s, F32(-np.inf))
    return np.asarray(np.einsum("bhij,bhje->bhie", _softmax(s), v).astype(F32))


def _product(a: Array, b: Array, block: int) -> Array:
    """a @ b, the sum in f32 by blocks."""
    out = np.zeros((a.shape[0], b.shape[1]), F32)
    for start in range(0, a.shape[1], block):
        out = out + a[:, start : start + block] @ b[start : start + block]
    return out


STUDIES: tuple[Study, ...] = (
    Study(
        "softmax",
        (5, 33, 512, 1025, 8193),
        "N",
        lambda n, rng: ({"x": _normal(rng, 8, n)}, {"axis": -1}),
        (
            Kernel("pairwise sum", True, lambda a: _softmax(a["x"])),
            Kernel("sum in blocks of 32", True, lambda a: _softmax(a["x"], _blocked)),
            Kernel("sum in f64", True, lambda a: _softmax(a["x"], _double)),
            Kernel("bf16 inside", False, lambda a: _softmax(a["x"], inside=_bf16)),
            Kernel("1e-5 jitter", False, lambda a: _jittered(_softmax(a["x"]))),
            Kernel("lost tail", False, lambda a: _softmax(a["x"], lambda e: _pairwise(e[..., :-1]))),
        ),
    ),
    Study(
        "matmul",
        (31, 512, 2048),
        "K",
        lambda k, rng: ({"a": _normal(rng, 17, k), "b": _normal(rng, k, 9)}, {}),
        (
            Kernel("BLAS", True, lambda a: a["a"] @ a["b"]),
            Kernel("blocks of 7", True, lambda a: _product(a["a"], a["b"], 7)),
            Kernel("sum in f64", True, lambda a: (a["a"].astype(np.float64) @ a["b"]).astype(F32)),
            Kernel("tf32", False, lambda a: _tf32(a["a"]) @ _tf32(a["b"])),
            Kernel("bf16", False, lambda a: _bf16(a["a"]) @ _bf16(a["b"])),
            Kernel("lost tail", False, lambda a: a["a"][:, :-1] @ a["b"][:-1]),
        ),
    ),
    Study(
        "rms_norm",
        (16, 257, 2048),
        "D",
        lambda d, rng: ({"x": _normal(rng, 4, d), "w": _normal(rng, d)}, {"normalized_shape": (d,)}),
        (
            Kernel("pairwise sum", True, lambda a: _rms_norm(a["x"], a["w"])),
            Kernel("sum in blocks of 32", True, lambda a: _rms_norm(a["x"], a["w"], _blocked)),
            Kernel("eps 1e-5", False, lambda a: _rms_norm(a["x"], a["w"], eps=1e-5)),
            Kernel("bf16 inside", False, lambda a: _rms_norm(a["x"], a["w"], inside=_bf16)),
            Kernel("lost tail", False, lambda a: _rms_norm(a["x"], a["w"], lambda x: _pairwise(x[..., :-1]))),
        ),
    ),
    Study(
        "scaled_dot_product_attention",
        (5, 33, 129),
        "L",
        lambda n, rng: ({k: _normal(rng, 2, 2, n, 16) for k in "qkv"}, {"causal": True}),
        (
            Kernel("dense", True, lambda a: _attention(a["q"], a["k"], a["v"])),
            Kernel("no causal mask", False, lambda a: _attention(a["q"], a["k"], a["v"], causal=False)),
            Kernel("bf16 q", False, lambda a: _attention(_bf16(a["q"]), a["k"], a["v"])),
        ),
    ),
)


def calibrate(studies: Sequence[Study] = STUDIES, *, seed: int = 0) -> list[Measured]:
    """Every kernel at every size, in order."""
    registry = Registry.load([resources.specs_dir()])
    found: list[Measured] = []
    for study in studies:
        spec = registry.get(study.op)
        for size in study.sizes:
            arrays, attrs = study.make(size, np.random.default_rng((seed, size)))
            operands = {n: Operand(DType.F32, arrays[n].ndim) if n in arrays else None for n in spec.inputs}
            resolved = key_for_call(spec, operands, attrs)
            want = evaluate(bind(spec, resolved.key), arrays, resolved.attrs)[next(iter(spec.outputs))]
            for kernel in study.kernels:
                with np.errstate(all="ignore"):
                    ratio = check(kernel.run(arrays), want, DType.F32).ratio
                found.append(
                    Measured(study.op, f"{study.extent}={size}", kernel.name, kernel.honest, float(ratio))
                )
    return found


def faults(measured: Sequence[Measured]) -> list[str]:
    """What is not as it should be: an honest kernel refused, a cheat that no size shows."""
    out = [
        f"{m.op} {m.size}: {m.kernel} is honest, {m.ratio:.3g} of the bound"
        for m in measured
        if m.honest and not m.within
    ]
    cheats = dict.fromkeys((m.op, m.kernel) for m in measured if not m.honest)
    for op, kernel in cheats:
        if all(m.within for m in measured if (m.op, m.kernel) == (op, kernel)):
            out.append(f"{op}: {kernel} is within the bound at every size")
    return out
