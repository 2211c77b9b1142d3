"""The semantic rules of the language, one test each, at every level (`levels.py`), and what each rule refuses.

The numbers are those of the list of rules that specs are designed by; docs/language.md says the same to writers.
To add a case: `case(rule, spec, inputs, attrs, want)`; all kernels are built at once, by the first test that needs one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels import Bench, Case, Refused, bound, dtype_of, parsed
from levels import LEVELS, hold

import specs
from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call, keys_of
from opwright.generator.emit import emit
from opwright.generator.errors import SpecError
from opwright.generator.grad import adjoint
from opwright.generator.grad_cost import cost
from opwright.generator.loops import show_loops
from opwright.generator.lower import lower
from opwright.generator.normal import classify, normalise, verify
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand
from opwright.validators.cases import make_cases
from opwright.validators.laws import holds, law_op
from opwright.validators.oracle import OracleRefusal, evaluate

BF16 = ml_dtypes.bfloat16
F32 = DType.F32
rng = np.random.default_rng(11)

CASES: dict[int, list[Case]] = {n: [] for n in range(1, 19)}


def case(
    rule: int, spec: str, inputs: dict[str, Any], attrs: dict[str, Any], *want: Any, tol: float = 0.0
) -> None:
    CASES[rule].append(Case(spec, inputs, attrs, [np.asarray(w) for w in want], tol, f"rule {rule}"))


@functools.cache
def bench() -> Bench:
    return Bench([c for cases in CASES.values() for c in cases], "rules of the language")


every_level = pytest.mark.parametrize("level", LEVELS)


def refused(text: str, says: str, *, key: DType = F32) -> SpecError:
    """The error of a spec, read and bound: it has a place in the text."""
    if "grad:" not in text:
        text += "grad: {none: not under test}\n"

    def read() -> None:
        for spec in load_spec_text(text, "rule.yaml"):
            for k in keys_of(spec, [key]):
                verify(normalise(bind(spec, k)))

    with pytest.raises(SpecError, match=says) as caught:
        read()
    assert caught.value.place is not None and caught.value.place.line > 0, "no place"
    return caught.value


def randn(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def spec(compute: str, *, x: str = "T[N]", y: str = "T[N]", more: str = "") -> str:
    """A spec of one input and one output."""
    lines = "".join(f"  {line}\n" for line in compute.splitlines())
    return (
        f'op: rule\ntypes: {{T: float, A: accum(T)}}\ninputs: {{x: "{x}"}}\n'
        f'{more}outputs: {{y: "{y}"}}\ncompute: |\n{lines}'
    )


# ---- 1. packs ----------------------------------------------------------------------------------------------------

POOL = """
op: pool
types: {T: real}
dims: {B: batch, I: {kind: static, rank: len(kernel)}}
let: {"*O": "(I - kernel) // stride + 1"}
inputs: {x: "T[*B, *I]"}
attrs: {kernel: {type: ints}, stride: {type: ints}}
outputs: {y: "T[*B, *O]"}
compute: |
  y[*B, *o] = max[*k in kernel](x[*B, *(o * stride + k)])
"""


def pooled(x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...]) -> np.ndarray:
    n = len(kernel)
    out = [(e - k) // s + 1 for e, k, s in zip(x.shape[-n:], kernel, stride, strict=True)]
    y = np.empty((*x.shape[:-n], *out), x.dtype)
    for at in itertools.product(*map(range, out)):
        window = tuple(slice(a * s, a * s + k) for a, s, k in zip(at, stride, kernel, strict=True))
        y[(..., *at)] = x[(..., *window)].max(axis=tuple(range(-n, 0)))
    return y


for batch, extents, kernel, stride in [
    ((2,), (7,), (3,), (2,)),
    ((), (5, 6), (2, 3), (1, 2)),
    ((2, 0), (4,), (2,), (1,)),
]:
    x = randn(*batch, *extents)
    case(1, POOL, {"x": x}, {"kernel": kernel, "stride": stride}, pooled(x, kernel, stride))
a, b = randn(4, 1, 3), randn(2, 1, 6, 1)
case(1, specs.ADD, {"a": a, "b": b}, {}, a + b)


@every_level
def test_rule_01_packs(level: str) -> None:
    hold(level, CASES[1], bench)
    if level == "parse":
        refused(spec("y[*B] = x[*(b + 1)]", x="T[*B]", y="T[*B]"), "b")
    if level == "text":  # the rank of a batch pack is a matter of run time: one kernel for all
        texts = {
            emit(bound(parsed(specs.SOFTMAX), {"x": randn(*shape)}, {})[0], "cpu-avx2").symbol
            for shape in [(3,), (2, 3), (2, 1, 2, 3)]
        }
        assert len(texts) == 1
        ranks = {
            emit(
                bound(parsed(POOL), {"x": randn(*[4] * n)}, {"kernel": (2,) * n, "stride": (1,) * n})[0],
                "cpu-avx2",
            ).symbol
            for n in (1, 2)
        }
        assert len(ranks) == 2, "a static pack is unrolled: a kernel for each rank"


# ---- 2. axes -----------------------------------------------------------------------------------------------------

SPREAD = """
op: spread
types: {T: float, A: accum(T)}
dims: {B: batch, N: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs: {dim: {type: axes}, keepdim: {type: bool, default: false, static: true}}
outputs: {y: "T[*B, 1@dim if keepdim]"}
compute: |
  y[*B] = max[*n](x[*B, *n])
"""
BACKWARD = """
op: backward
types: {T: any}
dims: {B: batch}
inputs: {x: "T[*B, N@axis]"}
attrs: {axis: {type: axis}}
outputs: {y: "T[*B, N@axis]"}
compute: |
  y[*B, i] = x[*B, N - 1 - i]
"""
x = randn(3, 4, 5)
for axes, keep in [((0, 2), True), ((0, 2), False), ((-1,), True), ((1,), False)]:
    case(2, SPREAD, {"x": x}, {"dim": axes, "keepdim": keep}, x.max(axis=axes, keepdims=keep))
for axis in (0, 1, -1):
    case(2, BACKWARD, {"x": x}, {"axis": axis}, np.flip(x, axis))


@every_level
def test_rule_02_axes(level: str) -> None:
    hold(level, CASES[2], bench)
    if level == "oracle":
        for axes in [(0, 3), (0, -3)]:  # no such axis; one axis twice
            inputs = CASES[2][0].inputs
            op, attrs = bound(parsed(SPREAD), inputs, {"dim": axes, "keepdim": False})
            with pytest.raises(OracleRefusal) as caught:
                evaluate(op, inputs, attrs)
            assert caught.value.kind == "axis"


# ---- 3. extents --------------------------------------------------------------------------------------------------

MOVING = spec(
    "y[o] = sum[j in k](A(x[o + j - k // 2]) if 0 <= o + j - k // 2 < N else 0)",
    y="A[N]",
    more="attrs: {k: {type: int}}\n",
)
x = randn(9)
for k in (1, 3, 4):
    padded = np.pad(x.astype(np.float64), (k // 2, k))
    case(
        3,
        MOVING,
        {"x": x},
        {"k": k},
        np.array([padded[o : o + k].sum() for o in range(9)], np.float32),
        tol=1e-5,
    )
PREFIX = spec("y[i in 3] = x[i]", y="T[3]", more='require: ["N >= 3"]\n')
case(3, PREFIX, {"x": x}, {}, x[:3])


@every_level
def test_rule_03_extents(level: str) -> None:
    hold(level, CASES[3], bench)
    if level == "bind":
        text = spec("y[i] = x[i] + z[i]").replace('"T[N]"}', '"T[N]", z: "T[M]"}', 1)
        error = refused(text, r"index i ranges over N .* and M")
        assert error.place is not None and error.place.line == 6


# ---- 4. static attributes ----------------------------------------------------------------------------------------

MODES = """
op: modes
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N]"}
attrs:
  mode: {type: "enum[sum, mean]", static: true}
  by: {type: float, default: 2.0}
  ord: {type: float, static: "in (0, 1, inf)"}
outputs: {y: "A[*B]"}
compute: |
  if mode == "sum":
    s[*B] = sum[i](A(x[*B, i]))
  else:
    s[*B] = sum[i](A(x[*B, i])) / N
  if ord == 0:
    y[*B] = A(0)
  elif ord == inf:
    y[*B] = s[*B] * by
  else:
    y[*B] = s[*B] * by ** ord
"""
x = randn(3, 4)
for mode, order, by in [
    ("sum", 1.0, 2.0),
    ("mean", 1.0, 3.0),
    ("sum", 0.0, 1.0),
    ("mean", np.inf, 2.0),
    ("sum", 2.5, 2.0),
]:
    total = x.astype(np.float64).sum(-1) / (4 if mode == "mean" else 1)
    want = np.zeros(3) if order == 0 else total * by if order == np.inf else total * by**order
    case(4, MODES, {"x": x}, {"mode": mode, "ord": order, "by": by}, want.astype(np.float32), tol=1e-5)


@every_level
def test_rule_04_static_attributes(level: str) -> None:
    hold(level, CASES[4], bench)
    if level == "parse":
        refused(MODES.replace('mode == "sum"', "by > 1").lstrip("\n"), "static")
    if level == "bind":
        keys = [
            key_for_call(parsed(MODES), {"x": Operand(F32, 2)}, {"mode": "sum", "ord": o, "by": b}).key
            for o, b in [(1.0, 2.0), (1.0, 5.0), (2.5, 2.0), (3.5, 2.0), (0.0, 2.0)]
        ]
        assert keys[0] == keys[1], "the value of another attribute is no part of the key"
        assert keys[2] == keys[3] and len({keys[0], keys[2], keys[4]}) == 3


# ---- 5. optional inputs, lists -----------------------------------------------------------------------------------

x, w = randn(3, 8), randn(8)
for weight in (None, w):
    r = 1 / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) / 8 + 1e-6)
    want = (x * r * (1 if weight is None else weight)).astype(np.float32)
    case(5, specs.RMS_NORM, {"x": x, "w": weight}, {}, want, tol=1e-5)
parts = [randn(2, n, 3) for n in (3, 0, 4)]
case(5, specs.CAT, {"xs": parts}, {"dim": 1}, np.concatenate(parts, 1))
case(5, specs.CAT, {"xs": parts[:1]}, {"dim": -2}, parts[0])


@every_level
def test_rule_05_optional_and_lists(level: str) -> None:
    hold(level, CASES[5], bench)
    if level == "bind":
        unguarded = specs.RMS_NORM.replace("(A(w[d]) if w is not None else 1)", "A(w[d])").lstrip("\n")
        refused(unguarded, "w")
        keys = {
            key_for_call(parsed(specs.CAT), {"xs": [Operand(F32, 2)] * n}, {"dim": 0}).key for n in (1, 2, 3)
        }
        assert len(keys) == 3, "the length of a list is static"


# ---- 6. updates --------------------------------------------------------------------------------------------------

UPDATES = """
op: updates
types: {T: float, A: accum(T)}
inputs: {x: "T[N]", i: "i64[N]"}
attrs: {count: {type: int}}
outputs: {total: "T[count]", last: "T[count]", top: "T[count]", product: "A[count]", seen: "bool[count]"}
compute: |
  total[k] = T(1)
  total[i[n]] += A(x[n])
  last[k] = T(7)
  last[i[n]]: set = x[n]
  top[i[n]]: max = x[n]
  product[i[n]] *= A(x[n])
  seen[i[n]]: any = x[n] > 0
"""


def updated(x: np.ndarray, i: np.ndarray, count: int) -> list[np.ndarray]:
    total, last = np.ones(count), np.full(count, 7, x.dtype)
    top, product, seen = np.full(count, -np.inf, x.dtype), np.ones(count), np.zeros(count, bool)
    for v, k in zip(x, i, strict=True):
        total[k] += float(v)
        last[k] = v
        top[k] = max(top[k], v)
        product[k] *= float(v)
        seen[k] |= v > 0
    return [total.astype(x.dtype), last, top, product.astype(np.float32), seen]


x, i = np.array([1, -2, 3, 0.5, 4], np.float32), np.array([0, 2, 0, 2, 2])
case(6, UPDATES, {"x": x, "i": i}, {"count": 4}, *updated(x, i, 4))
# 300 times 1/128 on 1: rounded at every step in bf16, nothing would ever be added to 4
x, i = np.full(1024, 2**-7).astype(BF16), np.zeros(1024, np.int64)
case(
    6,
    UPDATES.replace(', product: "A[count]"', "").replace("  product[i[n]] *= A(x[n])\n", ""),
    {"x": x, "i": i},
    {"count": 1},
    *[v for k, v in enumerate(updated(x, i, 1)) if k != 3],
)


@every_level
def test_rule_06_updates(level: str) -> None:
    hold(level, CASES[6], bench)
    if level == "oracle":
        assert float(CASES[6][1].want[0][0]) == 9.0, "added in the accumulator, rounded once"
    if level == "bind":
        refused(
            UPDATES.replace(
                "  top[i[n]]: max = x[n]\n", "  top[i[n]]: max = x[n]\n  top[i[n]]: min = x[n]\n"
            ).lstrip("\n"),
            "top",
        )


# ---- 7. ranges ---------------------------------------------------------------------------------------------------

BAGS = """
op: bags
types: {T: float, A: accum(T)}
inputs: {x: "T[N]", lo: "i64[M]", hi: "i64[M]"}
outputs: {y: "A[M]"}
compute: |
  y[b] = sum[i](A(x[i]) if lo[b] <= i < hi[b] else 0)
"""
x = np.arange(1.0, 9.0, dtype=np.float32)
lo, hi = np.array([0, 2, 5, 3]), np.array([3, 2, 8, 100])
case(
    7,
    BAGS,
    {"x": x, "lo": lo, "hi": hi},
    {},
    np.array([x[a:b].sum() for a, b in zip(lo, hi, strict=True)], np.float32),
)
m = rng.integers(-5, 6, (3, 7)).astype(np.float32)
case(7, specs.CUMSUM, {"x": m}, {"dim": 1}, m.cumsum(1))


@every_level
def test_rule_07_ranges(level: str) -> None:
    hold(level, CASES[7], bench)
    if level == "loop":
        c = CASES[7][0]
        text = show_loops(lower(bound(parsed(c.spec), c.inputs, c.attrs)[0]))
        assert re.search(r"for i in max\(0, lo\S*\) \.\. min\(N, hi\S*\)", text), (
            f"the loop is not narrowed:\n{text}"
        )
        prefix = show_loops(lower(bound(parsed(specs.CUMSUM), CASES[7][1].inputs, {"dim": 1})[0]))
        assert " if " not in prefix.split("\n", 3)[3], (
            f"the guard is still tested inside of the loop:\n{prefix}"
        )


# ---- 8. recurrence -----------------------------------------------------------------------------------------------

PAIR = """
op: pair
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, L]"}
attrs: {g: {type: float, default: 0.5}}
outputs: {y: "T[*B, L]"}
compute: |
  s[*B, t] = g * (s[*B, t - 1] if t > 0 else 0) + A(x[*B, t])
  u[*B, t] = (u[*B, t - 1] if t > 0 else 1) - s[*B, t]
  y[*B, t] = T(s[*B, t] * u[*B, t])
grad: {wrt: [x], derive: true}
"""


def pair(x: np.ndarray, g: float) -> np.ndarray:
    s, u, out = np.zeros(x.shape[:-1]), np.ones(x.shape[:-1]), []
    for t in range(x.shape[-1]):
        s = g * s + x[..., t]
        u = u - s
        out.append(s * u)
    return np.stack(out, -1).astype(np.float32) if out else x.copy()


for shape in [(2, 6), (1, 1), (3, 0)]:
    x = rng.integers(-4, 5, shape).astype(np.float32)
    case(8, PAIR, {"x": x}, {"g": 0.5}, pair(x, 0.5))


@every_level
def test_rule_08_recurrence(level: str) -> None:
    hold(level, CASES[8], bench)
    unguarded = PAIR.replace("(s[*B, t - 1] if t > 0 else 0)", "s[*B, t - 1]")
    if level == "oracle":  # there is nothing before the start
        op, attrs = bound(parsed(unguarded), CASES[8][0].inputs, {})
        with pytest.raises(OracleRefusal):
            evaluate(op, CASES[8][0].inputs, attrs)
    if level == "oracle":  # the adjoint recurs in reverse
        c = CASES[8][0]
        op, attrs = bound(parsed(PAIR), c.inputs, c.attrs)
        dy = rng.integers(-3, 4, c.inputs["x"].shape).astype(np.float32)
        got = evaluate(adjoint(op, ("x",), ()), {"x": c.inputs["x"], "dy": dy}, attrs)["dx"].value
        eps = 1e-3
        for at in [(0, 0), (1, 3), (1, 5)]:
            step = np.zeros(dy.shape)
            step[at] = eps
            up, down = (pair_wide(c.inputs["x"] + s * step) for s in (1, -1))
            assert abs(got[at] - ((up - down) * dy).sum() / (2 * eps)) < 1e-6 * max(1, abs(got[at]))


def pair_wide(x: np.ndarray) -> np.ndarray:
    s, u, out = np.zeros(x.shape[:-1]), np.ones(x.shape[:-1]), []
    for t in range(x.shape[-1]):
        s = 0.5 * s + x[..., t]
        u = u - s
        out.append(s * u)
    return np.stack(out, -1)


# ---- 9. casts ----------------------------------------------------------------------------------------------------

NEAREST = spec(
    "y[o] = x[min(i64(floor(f32(o) * (f32(N) / f32(out)))), N - 1)]",
    y="T[out]",
    more="attrs: {out: {type: int}}\n",
)


def nearest(n: int, out: int, dtype: Any) -> np.ndarray:
    scale = dtype(n) / dtype(out)
    return np.minimum(np.floor(np.arange(out).astype(dtype) * scale).astype(np.int64), n - 1)


#: sizes at which floor in f64 points elsewhere than floor in f32, as written
SIZES = next(
    (n, o)
    for n in range(2, 200)
    for o in range(2, 200)
    if (nearest(n, o, np.float32) != nearest(n, o, np.float64)).any()
)
x = randn(SIZES[0])
case(9, NEAREST, {"x": x}, {"out": SIZES[1]}, x[nearest(*SIZES, np.float32)])
ONCE = spec("y[i] = T(A(x[i]) * A(x[i]) - A(x[i]))")
TWICE = spec("y[i] = T(A(T(A(x[i]) * A(x[i]))) - A(x[i]))")
x = (1 + np.arange(64) / 128).astype(BF16)
wide = x.astype(np.float32)
case(9, ONCE, {"x": x}, {}, (wide * wide - wide).astype(BF16))
case(9, TWICE, {"x": x}, {}, ((wide * wide).astype(BF16).astype(np.float32) - wide).astype(BF16))

# a literal rounds where it says so: 0.1 in bf16 is 0.10009765625, and stays that in f32
LITERAL = spec("y[i] = A(x[i]) + A(T(0.1))", y="A[N]")
x = np.zeros(3, BF16)
case(9, LITERAL, {"x": x}, {}, np.full(3, 0.10009765625, np.float32))
# the same in an accumulator, where a pass widens it
BASE = """
op: base
types: {T: float, A: accum(T)}
inputs: {x: "T[N]", i: "i64[N]"}
outputs: {y: "T[N]"}
compute: |
  y[k] = T(0.1)
  y[i[n]] += A(x[n])
"""
case(
    9,
    BASE,
    {"x": np.full(3, 2.0**-10, BF16), "i": np.zeros(3, np.int64)},
    {},
    np.array([0.10302734375, 0.10009765625, 0.10009765625]).astype(BF16),
)


@every_level
def test_rule_09_casts(level: str) -> None:
    hold(level, CASES[9], bench)
    if level == "oracle":
        assert (CASES[9][1].want[0] != CASES[9][2].want[0]).any(), "the case tells the two apart"
    if level == "bind":
        refused(spec("y[i] = x[i] * x[i]"), "round", key=DType.BF16)  # it would round at every step
        refused(spec("y[i] = A(x[i])"), "f32", key=DType.BF16)


# ---- 10. promotion -----------------------------------------------------------------------------------------------

PLUS = specs.ADD
a, b = rng.integers(-4, 5, (2, 3)), randn(2, 3)
case(10, PLUS, {"a": a.astype(np.float32), "b": b}, {}, a.astype(np.float32) + b)


@every_level
def test_rule_10_promotion(level: str) -> None:
    hold(level, CASES[10], bench)
    if level == "bind":
        two, none = Operand(DType.BF16, 2), Operand(F32, 0)
        for left, right, want in [
            (two, Operand(F32, 1), F32),  # tensors: the wider
            (two, none, DType.BF16),  # a tensor outweighs a rank-0 tensor of its category
            (Operand(DType.I64, 2), none, F32),  # unless the category is higher
            (Operand(DType.BOOL, 1), Operand(DType.U8, 1), DType.U8),
        ]:
            found = key_for_call(parsed(PLUS), {"a": left, "b": right}, {})
            assert dict(found.key.types)["T"] == want.value
            assert found.casts == {n: want for n, o in (("a", left), ("b", right)) if o.dtype is not want}


# ---- 11. views ---------------------------------------------------------------------------------------------------

COPY = """
op: copy
types: {T: any}
dims: {B: batch}
inputs: {x: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = x[*B]
"""
VIEW = """
op: diagonal
types: {T: any}
inputs: {x: "T[N, N]"}
outputs: {y: "T[N]"}
view: {size: [N], stride: [N + 1], offset: 0}
grad: {none: a view}
"""
x = randn(3, 4)
case(11, COPY, {"x": x}, {}, x)


@every_level
def test_rule_11_views(level: str) -> None:
    """A relabelling says so, and computes nothing; where strides do not allow it, it is a copy of any layout."""
    hold(level, CASES[11], bench)
    if level == "parse":
        (read,) = load_spec_text(VIEW, "rule.yaml")
        assert read.view is not None and not read.compute
        assert [len(read.view.size), len(read.view.stride)] == [1, 1]
        refused(VIEW.replace("stride: [N + 1], ", "").lstrip("\n"), "`view` needs `stride`")
    if level == "normal":
        assert classify(bound(parsed(COPY), CASES[11][0].inputs, {})[0]) == "copy"


# ---- 12. in place ------------------------------------------------------------------------------------------------

x = randn(4, 5)
exps = np.exp(x - x.max(-1, keepdims=True)).astype(np.float64)
case(12, specs.SOFTMAX, {"x": x}, {}, (exps / exps.sum(-1, keepdims=True)).astype(np.float32), tol=1e-5)
SHIFTED = spec("y[i] = x[i + 1] if i + 1 < N else x[i]", more="variants: {inplace: [x]}\n")
x = randn(6)
case(12, SHIFTED, {"x": x}, {}, np.append(x[1:], x[-1]))


@every_level
def test_rule_12_in_place(level: str) -> None:
    hold(level, CASES[12], bench)
    if level == "text":
        from kernels import run

        c = CASES[12][0]
        text, _, attrs = bench().texts[id(c)]
        kernel = bench().library.kernel(text.symbol)
        apart = run(kernel, parsed(c.spec), c.inputs, attrs, ["f32"])[0]
        same = c.inputs["x"].copy()
        run(kernel, parsed(c.spec), {"x": same}, attrs, ["f32"], outputs=[same])
        assert same.tobytes() == apart.tobytes()
        # a load at another index than the output's own: not in place, said so
        c = CASES[12][1]
        text, _, attrs = bench().texts[id(c)]
        same = c.inputs["x"].copy()
        with pytest.raises(Refused, match="OVERLAP"):
            run(
                bench().library.kernel(text.symbol),
                parsed(c.spec),
                {"x": same},
                attrs,
                ["f32"],
                outputs=[same],
            )


# ---- 13. require -------------------------------------------------------------------------------------------------

RULED = """
op: ruled
types: {T: float}
inputs: {x: "T[N]", i: "i64[M]"}
attrs: {k: {type: int, default: 2}}
outputs: {y: "T[M]"}
require: ["N > 0", "k >= 2", "i[m] >= 0", "i[m] < N"]
compute: |
  y[m] = x[i[m]]
grad: {none: not under test}
test: {cases: [{N: 5, M: 3}], values: [normal]}
"""
x, i = randn(5), np.array([4, 0, 2])
case(13, RULED, {"x": x, "i": i}, {"k": 2}, x[i])
#: rule -> a call that breaks it
BROKEN = {
    1: ({"x": x, "i": i}, {"k": 1}),
    2: ({"x": x, "i": np.array([0, -1])}, {"k": 2}),
    3: ({"x": x, "i": np.array([5])}, {"k": 2}),
}


@every_level
def test_rule_13_require(level: str) -> None:
    hold(level, CASES[13], bench)
    for which, (inputs, attrs) in BROKEN.items():
        if level == "oracle":
            op, given = bound(parsed(RULED), inputs, attrs)
            with pytest.raises(OracleRefusal) as caught:
                evaluate(op, inputs, given)
            assert caught.value.which == which
        if level == "text":
            from kernels import run

            text, _, _ = bench().texts[id(CASES[13][0])]
            with pytest.raises(Refused) as refusal:
                run(bench().library.kernel(text.symbol), parsed(RULED), inputs, [attrs["k"]], ["f32"])
            assert refusal.value.fields["which"] == which
    if level == "bind":  # its negations generate the tests of its errors
        report = make_cases(parsed(RULED), "full", 0, [F32])
        expected = {(c.expect.kind, c.expect.which) for c in report if c.expect is not None}
        assert {which for _, which in expected} >= {1, 2, 3}, expected


# ---- 14. gradients -----------------------------------------------------------------------------------------------

TIES = spec("y[()] = max[i](x[i])", y="T[]") + "grad: {wrt: [x], derive: true}\n"
KINKS = spec("y[i] = abs(x[i])") + "grad: {wrt: [x], derive: true}\n"
EITHER = """
op: either
types: {T: float}
inputs: {a: "T[N]", b: "T[N]"}
outputs: {y: "T[N]"}
compute: |
  y[i] = max(a[i], b[i])
grad: {wrt: [a, b], derive: true}
"""
case(14, TIES, {"x": np.array([1, 3, 3, 0, 3], np.float32)}, {}, np.float32(3))
case(14, KINKS, {"x": np.array([-2, 0, 5], np.float32)}, {}, np.array([2, 0, 5], np.float32))
case(
    14,
    EITHER,
    {"a": np.array([1, 2, 3], np.float32), "b": np.array([1, 5, 2], np.float32)},
    {},
    np.array([1, 5, 3], np.float32),
)
#: what the derivative is, by case, for dy = 1
SLOPES: list[dict[str, list[float]]] = [
    {"dx": [0, 1 / 3, 1 / 3, 0, 1 / 3]},
    {"dx": [-1, 0, 1]},
    {"da": [0.5, 0, 1], "db": [0.5, 1, 0]},
]


@every_level
def test_rule_14_gradients(level: str) -> None:
    """Forward, and its derivative, itself a program at every level; subgradients are those of the rule."""
    hold(level, CASES[14], bench)
    for c, slopes in zip(CASES[14], SLOPES, strict=True):
        op, attrs = bound(parsed(c.spec), c.inputs, c.attrs)
        wrt = tuple(n.removeprefix("d") for n in slopes)
        g = adjoint(op, wrt, ())
        dy = np.ones_like(c.want[0])
        given = {t.name: dy if t.name == "dy" else c.inputs[t.name] for t in g.inputs}
        if level in ("bind", "normal"):
            from levels import reads_back

            reads_back(g)
        if level == "loop":
            lower(g)
        if level == "oracle":
            balls = evaluate(g, given, attrs)
            for n, want in slopes.items():
                assert np.allclose(balls[n].value, want, atol=1e-7)
    if level == "text":
        for (c, g), slopes in zip(gradient_kernels(), SLOPES, strict=True):
            got = g(c)
            for n, want in slopes.items():
                assert np.allclose(got[n], want, atol=1e-6), (n, got)


@functools.cache
def gradient_kernels() -> list[tuple[Case, Callable[[Case], dict[str, np.ndarray]]]]:
    from kernels import Library, placed

    from opwright.validators import abi

    made = []
    for c in CASES[14]:
        op, _ = bound(parsed(c.spec), c.inputs, c.attrs)
        wrt = tuple(parsed(c.spec).inputs)
        g = adjoint(op, wrt, ())
        made.append((c, g, emit(g, bench().texts[id(c)][0].row["dialect"])))
    library = Library((t for _, _, t in made), "gradients of the rules")

    def runner(g: Any, text: Any) -> Callable[[Case], dict[str, np.ndarray]]:
        def call(c: Case) -> dict[str, np.ndarray]:
            inputs = [np.ones_like(c.want[0]) if t.name == "dy" else c.inputs[t.name] for t in g.inputs]
            outputs = {t.name: np.zeros_like(c.inputs[t.name.removeprefix("d")]) for t in g.outputs}
            scratch = np.zeros(1 << 16, np.uint8)
            base = (scratch.ctypes.data + 63) // 64 * 64
            made = abi.build_call(
                [placed(a) for a in inputs],
                [placed(o) for o in outputs.values()],
                [],
                list_len=[],
                workspace=(base, scratch.size - 64),
                threads=1,
                parallel=0,
            )
            assert library.kernel(text.symbol).run(made) == 0
            return outputs

        return call

    return [(c, runner(g, text)) for c, g, text in made]


# ---- 15. laws ----------------------------------------------------------------------------------------------------

LAWFUL = (
    specs.SOFTMAX
    + """
test:
  cases: [{B: [2], N: 3}]
  values: [normal]
  checks: ["sum[i](y[*B, i]) == 1", "y[*B, i] >= 0"]
  tol: bound
"""
)
case(15, LAWFUL, CASES[12][0].inputs, {}, CASES[12][0].want[0], tol=1e-5)


@every_level
def test_rule_15_laws(level: str) -> None:
    hold(level, CASES[15], bench)
    if level == "parse":
        for tol in ("1e-3", "0.5"):
            refused(LAWFUL.replace("tol: bound", f"tol: {tol}").lstrip("\n"), "tol")
    if level == "oracle":
        c = CASES[15][0]
        law_spec = parsed(LAWFUL)
        key = key_for_call(law_spec, {"x": Operand(F32, 2)}, {}).key
        op, attrs = bound(law_spec, c.inputs, {})
        balls = evaluate(op, c.inputs, attrs)
        for law in law_spec.test.checks:
            assert holds(law_op(law_spec, key, law), c.inputs, balls, attrs), law.text
        wrong = parsed(LAWFUL.replace("== 1", "== 2"))
        assert not holds(law_op(wrong, key, wrong.test.checks[0]), c.inputs, balls, attrs)


# ---- 16. bench ---------------------------------------------------------------------------------------------------

COUNTED = specs.MATMUL + "bench: [{B: [], M: 64, N: 32, K: 16, types: [f32], from: a projection}]\n"
a, b = rng.integers(-3, 4, (3, 4)).astype(np.float32), rng.integers(-3, 4, (4, 5)).astype(np.float32)
case(16, COUNTED, {"a": a, "b": b}, {}, a @ b)


@every_level
def test_rule_16_bench(level: str) -> None:
    """What a workload costs follows from `compute` and the extents, and is not written by hand."""
    hold(level, CASES[16], bench)
    if level == "normal":
        op, _ = bound(parsed(COUNTED), CASES[16][0].inputs, {})
        small, large = (cost(op, {"B": (), "M": m, "N": 32, "K": 16}).total for m in (8, 16))
        assert large == 2 * small and small >= 2 * 8 * 32 * 16
    if level == "parse":
        refused(COUNTED.replace("from: a", "flops: 65536, from: a").lstrip("\n"), "flops")


# ---- 17. random numbers ------------------------------------------------------------------------------------------

WORDS = """
op: words
dims: {B: batch}
types: {T: any}
inputs: {x: "T[*B]"}
attrs: {seed: {type: int}, offset: {type: int}}
outputs: {y: "i64[*B]", u: "f32[*B]"}
compute: |
  y[*B] = philox(seed, offset + linear(*B) // 4, linear(*B) % 4)
  u[*B] = uniform(philox(seed, offset + linear(*B) // 4, linear(*B) % 4))
"""


def philox(seed: int, counter: int) -> list[int]:
    """Philox 4x32-10 by its paper (Salmon and others, 2011), the counter in the low words."""
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


for seed, offset in [(0, 0), (1234567890123, 7), (2**63 - 1, 2**33)]:
    words = np.array([w for k in range(3) for w in philox(seed, offset + k)][:10], np.int64)
    case(
        17,
        WORDS,
        {"x": np.zeros((2, 5), np.float32)},
        {"seed": seed, "offset": offset},
        words.reshape(2, 5),
        ((words >> 8) * 2.0**-24).astype(np.float32).reshape(2, 5),
    )


@every_level
def test_rule_17_random_numbers(level: str) -> None:
    hold(level, CASES[17], bench)
    if level == "oracle":  # the known answer of the generator's authors
        assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


# ---- 18. types of statistics -------------------------------------------------------------------------------------

CENTRED = """
op: centred
types: {T: float, W: float, A: accum(T), S: "stat_type(T, W)"}
dims: {B: batch}
inputs: {x: "T[*B, N]", w: "W[N]"}
outputs: {y: "T[*B, N]", mean: "S[*B]"}
compute: |
  m[*B] = sum[i](A(x[*B, i])) / N
  y[*B, i] = T((A(x[*B, i]) - m[*B]) * A(w[i]))
  mean[*B] = S(m[*B])
"""
for xt, wt in [(np.float32, np.float32), (BF16, np.float32), (BF16, BF16)]:
    x, w = rng.integers(-8, 9, (3, 4)).astype(xt), np.array([1, 2, 4, 0.5]).astype(wt)
    mean = x.astype(np.float32).sum(-1, keepdims=True) / 4
    stat = np.float32 if wt is np.float32 else BF16
    case(
        18,
        CENTRED,
        {"x": x, "w": w},
        {},
        ((x.astype(np.float32) - mean) * w.astype(np.float32)).astype(xt),
        mean[:, 0].astype(stat),
    )


@every_level
def test_rule_18_types_of_statistics(level: str) -> None:
    hold(level, CASES[18], bench)
    if level == "bind":
        for c in CASES[18]:
            op, _ = bound(parsed(c.spec), c.inputs, c.attrs)
            (mean,) = (t for t in op.outputs if t.name == "mean")
            assert mean.dtype.value == dtype_of(c.want[1])


def test_every_rule_has_a_test_and_cases() -> None:
    named = sorted(int(n[10:12]) for n in globals() if n.startswith("test_rule_"))
    assert named == list(range(1, 19)) == sorted(n for n, cases in CASES.items() if cases)
