"""Contractions against NumPy, exactly: integers small enough that no order of summation rounds.

Extents lie on both sides of every choice of gemm.h: one row, few rows, ragged panels, several blocks of terms, several
tiles, factors in line along either index.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernels import NP, Bench, Case

import specs

rng = np.random.default_rng(11)

MATMUL = """op: product
types: {T: float, A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B, M, K]", b: "T[*B, K, N]"}
outputs: {y: "A[*B, M, N]"}
compute: |
  y[*B, m, n] = sum[k](A(a[*B, m, k]) * A(b[*B, k, n]))
grad: {none: not under test}
"""
LINEAR = """op: dense
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, K]", w: "T[N, K]", c: "T[N]"}
outputs: {y: "A[*B, N]"}
compute: |
  s[*B, n] = sum[k](A(x[*B, k]) * A(w[n, k]))
  y[*B, n] = max(s[*B, n] + A(c[n]), 0)
grad: {none: not under test}
"""
GROUPED = """op: grouped
types: {T: float, A: accum(T)}
inputs: {x: "T[G, K, P]", w: "T[O, K]"}
outputs: {y: "A[O, P]"}
require: ["G > 0"]
compute: |
  y[o, p] = sum[k](A(w[o, k]) * A(x[o // cdiv(O, G), k, p]))
grad: {none: not under test}
"""
WINDOW = """op: slide
types: {T: float, A: accum(T)}
dims: {I: static, U: static}
inputs: {x: "T[C, *I]", w: "T[O, C, *U]"}
attrs: {s: {type: int}, r: {type: int}, d: {type: int}}
let: {"*P": "(I + 2 * r - d * (U - 1) - 1) // s + 1"}
outputs: {y: "A[O, *P]"}
compute: |
  y[o, *p in P] = sum[c, *u](A(w[o, c, *u]) * (A(x[c, *(p * s + u * d - r)]) if all(0 <= p * s + u * d - r < I) else 0))
grad: {none: not under test}
"""
# Weights that are 0, 1 or 2, and 0 for all that the guard hides.
MASKED = """op: masked
types: {T: float, A: accum(T)}
inputs: {q: "T[L, E]", k: "T[S, E]", v: "T[S, F]"}
outputs: {y: "A[L, F]", top: "A[L]"}
compute: |
  s[i, j] = sum[e](A(q[i, e]) * A(k[j, e]))
  p[i, j] = s[i, j] if j <= i + S - L else -inf
  top[i]  = max(max[j](p[i, j]), -8)
  y[i, f] = sum[j](trunc(max(p[i, j] - top[i] + 2, 0)) * A(v[j, f]))
grad: {none: not under test}
"""


def ints(*shape: int, dtype: str = "f32", high: int = 4) -> np.ndarray:
    return rng.integers(-high + 1, high, shape).astype(NP[dtype])


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64)


CASES: list[Case] = []


def case(name: str, spec: str, inputs: dict, attrs: dict, *want: np.ndarray, **kw: object) -> None:
    CASES.append(Case(spec, inputs, attrs, list(want), 0.0, name, **kw))  # type: ignore[arg-type]


def accumulated(dtype: str) -> type:
    return np.float64 if dtype == "f64" else np.float32


def slide(x: np.ndarray, w: np.ndarray, stride: int, pad: int, step: int) -> np.ndarray:
    x = np.pad(wide(x), ((0, 0), (pad, pad), (pad, pad)))
    o, _, u, v = w.shape
    p = (x.shape[1] - step * (u - 1) - 1) // stride + 1
    q = (x.shape[2] - step * (v - 1) - 1) // stride + 1
    y = np.zeros((o, p, q))
    for a, b in itertools.product(range(u), range(v)):
        part = x[:, a * step : a * step + (p - 1) * stride + 1 : stride, b * step :][
            :, :, : (q - 1) * stride + 1 : stride
        ]
        y += np.einsum("oc,cpq->opq", wide(w[:, :, a, b]), part)
    return y


def masked(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = wide(q) @ wide(k).T
    hidden = np.arange(len(k)) > np.arange(len(q))[:, None] + len(k) - len(q)
    p = np.where(hidden, -np.inf, s)
    top = np.maximum(p.max(axis=1), -8)
    weights = np.trunc(np.maximum(p - top[:, None] + 2, 0))
    with np.errstate(invalid="ignore"):
        return (weights[:, :, None] * wide(v)[None]).sum(axis=1), top


def add_cases() -> None:
    for dt in ("f32", "f64", "bf16", "f16"):
        acc = accumulated(dt)
        for m, n, k in [
            *((m, n, 65) for m in (1, 2, 5, 9, 17, 41) for n in (1, 3, 16, 33, 67)),
            *((m, n, k) for m in (1, 13, 20) for n in (8, 40) for k in (0, 1, 15, 16, 64, 300)),
            (400, 300, 9),
            (1, 2100, 70),
        ]:
            a, b = ints(m, k, dtype=dt), ints(k, n, dtype=dt)
            case(f"{m}x{n}x{k} {dt}", MATMUL, {"a": a, "b": b}, {}, (wide(a) @ wide(b)).astype(acc))
        for rows, n, k in [((2, 3), 33, 40), ((5,), 9, 130), ((1, 40), 70, 64), ((), 40, 33), ((0,), 4, 3)]:
            x, w, c = ints(*rows, k, dtype=dt), ints(n, k, dtype=dt), ints(n, dtype=dt)
            want = np.maximum(wide(x) @ wide(w).T + wide(c), 0).astype(acc)
            case(f"dense {rows} {n} {k} {dt}", LINEAR, {"x": x, "w": w, "c": c}, {}, want)
        for shape, stride, pad, step in [
            ((3, 9, 40, 5, 3, 3), 1, 1, 1),
            ((2, 8, 70, 20, 2, 3), 2, 2, 1),
            ((4, 12, 11, 1, 3, 3), 1, 2, 2),
            ((3, 16, 16, 7, 4, 4), 4, 0, 1),
            ((70, 5, 5, 3, 1, 1), 1, 0, 1),
            ((2, 9, 70, 2, 3, 3), 1, 1, 1),  # few rows: long runs with edges,
            ((2, 9, 33, 4, 3, 5), 2, 2, 1),  # strides,
            ((1, 12, 90, 1, 11, 11), 1, 5, 1),  # several chains,
            ((20, 6, 9, 2, 3, 3), 1, 1, 1),  # too many terms
        ]:
            c_, i, j, o, u, v = shape
            x, w = ints(c_, i, j, dtype=dt), ints(o, c_, u, v, dtype=dt)
            want = slide(x, w, stride, pad, step).astype(acc)
            case(
                f"slide {shape} {dt}",
                WINDOW,
                {"x": x, "w": w},
                {"s": stride, "r": pad, "d": step},
                want,
            )
    a, b = ints(3, 1, 21, 18), ints(2, 18, 35)
    case("broadcast", MATMUL, {"a": a, "b": b}, {}, (wide(a) @ wide(b)).astype(np.float32))
    for groups, o in [
        (1, 12),
        (3, 12),
        (5, 12),
        (12, 12),
    ]:  # 12 = 4 * 3 + 0: the last of 5 blocks is short or empty
        x, w = ints(groups, 20, 37), ints(o, 20)
        size = -(-o // groups)
        want = np.stack([wide(w[i]) @ wide(x[i // size]) for i in range(o)]).astype(np.float32)
        case(f"grouped {groups}", GROUPED, {"x": x, "w": w}, {}, want)
    for rows, keys in [(3, 5), (70, 70), (130, 200), (1, 90), (5, 2)]:
        for what in ("finite", "inf", "nan"):
            q, k, v = ints(rows, 8, high=2), ints(keys, 8, high=2), ints(keys, 40)
            if what != "finite" and keys > 1:
                v[keys - 1, 3] = np.inf if what == "inf" else np.nan
            y, top = (t.astype(np.float32) for t in masked(q, k, v))
            case(f"masked {rows} {keys} {what}", MASKED, {"q": q, "k": k, "v": v}, {}, y, top)
            half = {n: x.astype(NP["bf16"]) for n, x in (("q", q), ("k", k), ("v", v))}
            case(f"masked {rows} {keys} {what} bf16", MASKED, half, {}, y, top)
    # pieces of terms, and sums that begin anew
    for m, n, k in [(5, 70, 2100), (20, 40, 1030), (3, 18, 16500)]:
        a, b, c = (ints(*s, dtype="bf16", high=2) for s in ((m, k), (n, k), (n,)))
        want = np.maximum(wide(a) @ wide(b).T + wide(c), 0).astype(np.float32)
        case(f"long {m}x{n}x{k}", LINEAR, {"x": a, "w": b, "c": c}, {}, want)


add_cases()


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(CASES, "gemm")


@pytest.mark.parametrize("c", CASES, ids=[c.name for c in CASES])
def test_sums_are_exact_in_every_layout(bench: Bench, c: Case) -> None:
    for layout in c.layouts:
        bench.check(c, layout)


@pytest.mark.parametrize("spec", ["f32", "bf16"])
def test_bits_do_not_depend_on_threads(spec: str) -> None:
    a = rng.standard_normal((70, 333)).astype(NP[spec])
    b = rng.standard_normal((333, 150)).astype(NP[spec])
    made = Case(MATMUL, {"a": a, "b": b}, {}, [])
    one = Bench([made], "threads")
    alone = one.run(made)
    for threads in (2, 3, 8):
        assert alone[0].tobytes() == one.run(made, threads=threads)[0].tobytes()


@pytest.mark.parametrize("rows", [4, 40])
def test_small_numbers_are_not_flushed_and_change_no_bit_beside_them(rows: int) -> None:
    """Tiles take subnormal numbers for 0 (pairs.h, Note [Nothing is flushed])."""
    a, b = rng.standard_normal((rows, 70)), rng.standard_normal((50, 70))
    a[-1] *= 2.0**-131  # subnormal itself,
    a[-2] *= 2.0**-80  # and in products with
    b[3] *= 2.0**-60
    a, b = a.astype(NP["bf16"]), b.astype(NP["bf16"])
    zero = np.zeros(50, NP["bf16"])
    whole, part = (Case(LINEAR, {"x": x, "w": b, "c": zero}, {}, []) for x in (a, a[:-2]))
    one = Bench([whole, part], "small")
    got, alone = one.run(whole)[0], one.run(part)[0]
    want = np.maximum(wide(a) @ wide(b).T, 0)
    size = np.abs(wide(a)) @ np.abs(wide(b)).T
    assert (np.abs(got - want) <= 1e-6 * size + 70 * 2.0**-149).all()
    assert (got[-2:] > 0).any(axis=1).all()
    assert got[:-2].tobytes() == alone.tobytes()


def test_weights_in_f32_keep_all_their_bits() -> None:
    """A factor in f32 goes through tiles in three parts."""
    q, k, v = (rng.standard_normal((1, 2, n, 64)).astype(NP["bf16"]) for n in (70, 1100, 1100))
    s = np.einsum("bhie,bhje->bhij", wide(q), wide(k)) * 64**-0.5
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    want = np.einsum("bhij,bhjf->bhif", e / e.sum(axis=-1, keepdims=True), wide(v))
    made = Case(
        specs.ATTENTION.replace("T[*B, H, L, F]", "A[*B, H, L, F]").replace("T(", "A("),
        {"q": q, "k": k, "v": v},
        {"causal": False},
        [],
    )
    got = Bench([made], "weights").run(made)[0]
    assert np.abs(got - want).max() < 2e-6


def test_attention_agrees_with_numpy_beyond_one_block_of_rows() -> None:
    q, k, v = (rng.standard_normal((1, 2, 150, 16)).astype(np.float32) for _ in range(3))
    s = np.einsum("bhie,bhje->bhij", wide(q), wide(k)) * 16**-0.5
    s = np.where(np.tril(np.ones((150, 150), bool)), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    want = np.einsum("bhij,bhjf->bhif", e / e.sum(axis=-1, keepdims=True), wide(v))
    made = Case(specs.ATTENTION, {"q": q, "k": k, "v": v}, {"causal": True}, [want.astype(np.float32)], 1e-5)
    one = Bench([made], "attention")
    got = one.run(made)[0]
    assert np.abs(got - want).max() < 1e-5
    assert got.tobytes() == one.run(made, threads=3)[0].tobytes()
