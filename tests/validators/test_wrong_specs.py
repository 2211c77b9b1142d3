"""Specs that differ from PyTorch in a corner, and only there: the gate `meaning` refuses each, its right twin passes.

To add one: a spec with the right `compute`, and the edit that makes it wrong.
"""

from __future__ import annotations

import importlib.util

import pytest

from .test_meaning import meaning_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


def spec(
    types: str, inputs: str, outputs: str, compute: str, aten: str, more: str = "", cases: str = ""
) -> str:
    lines = "".join(f"  {line}\n" for line in compute.split("\n"))
    return (
        f"op: t\ntypes: {{{types}}}\ndims: {{B: batch}}\ninputs: {{{inputs}}}\n{more}outputs: {{{outputs}}}\n"
        f"compute: |\n{lines}grad: {{none: not asked}}\ntest: {{cases: [{cases}], "
        f"values: [exact, normal, halves, zeros, large, nan_inf, all_equal]}}\naten: [{aten}]\n"
    )


MAP = "T: float, A: accum(T)", 'x: "T[*B]"', 'y: "T[*B]"'
TWO = "T: any", 'a: "T[*B]", b: "T[*B]"', 'y: "T[*B]"'
ONE_CASE, ROW_CASE = "{B: [7, 5]}", "{B: [3], N: 5}, {B: [2, 4], N: 9}"
ROW = "T: float, A: accum(T)", 'x: "T[*B, N@axis]"'
AXIS = "attrs: {axis: {type: axis, default: -1}}\n"

GELU = (
    spec(
        *MAP,
        "y[*B] = T(0.5 * A(x[*B]) * (1 + erf(A(x[*B]) * 0.7071067811865476)))",
        "{overload: aten.gelu.default, map: {self: x, approximate: {only: none}}}",
        cases=ONE_CASE,
    ),
    (
        "(1 + erf(A(x[*B]) * 0.7071067811865476))",
        "(1 + tanh(0.7978845608028654 * (A(x[*B]) + 0.044715 * A(x[*B]) * A(x[*B]) * A(x[*B]))))",
    ),
)
VARIANCE = spec(
    *ROW,
    'y: "T[*B]"',
    "m[*B] = sum[j](A(x[*B, j])) / N\ny[*B] = T(sum[j]((A(x[*B, j]) - m[*B]) ** 2) / A(max(N - correction, 0)))",
    "{overload: aten.var.correction, map: {self: x, dim: [axis], correction: correction, keepdim: {only: false}}}",
    more="attrs: {axis: {type: axis, default: -1}, correction: {type: int, default: 1}}\n",
    cases="{B: [3], N: 5, correction: 1}, {B: [2, 4], N: 9, correction: 0}",
)
DIVIDE = spec(
    "T: integer",
    *TWO[1:],
    "y[*B] = a[*B] // b[*B]",
    "{overload: aten.div.Tensor_mode, map: {self: a, other: b, rounding_mode: {only: floor}}}",
    cases=ONE_CASE,
)
SOFTMAX = spec(
    *ROW,
    'y: "T[*B, N@axis]"',
    "m[*B] = max[j](x[*B, j])\ne[*B, i] = exp(A(x[*B, i]) - A(m[*B]))\ns[*B] = sum[j](e[*B, j])\n"
    "y[*B, i] = T(e[*B, i] / s[*B])",
    "{overload: aten._softmax.default, map: {self: x, dim: axis, half_to_float: {only: false}}}",
    more=AXIS,
    cases=ROW_CASE,
)
RIGHT = {
    "gelu": GELU[0],
    "var": VARIANCE,
    "div": DIVIDE,
    "softmax": SOFTMAX,
    "round": spec(*MAP, "y[*B] = T(round(A(x[*B])))", "aten.round.default", cases=ONE_CASE),
    "sign": spec(*MAP, "y[*B] = T(sign(A(x[*B])))", "aten.sgn.default", cases=ONE_CASE),
    "remainder": spec(
        *("T: float, A: accum(T)", *TWO[1:]),
        "y[*B] = T(A(a[*B]) % A(b[*B]))",
        "{overload: aten.remainder.Tensor, map: {self: a, other: b}}",
        cases=ONE_CASE,
    ),
    "max": spec(
        *("T: float", *TWO[1:]),
        "y[*B] = max(a[*B], b[*B])",
        "{overload: aten.maximum.default, map: {self: a, other: b}}",
        cases=ONE_CASE,
    ),
    "relu": spec(
        *MAP, "y[*B] = x[*B] if x[*B] > 0 or isnan(x[*B]) else 0", "aten.relu.default", cases=ONE_CASE
    ),
    "threshold": spec(
        *MAP,
        "y[*B] = T(value) if x[*B] <= T(limit) else x[*B]",
        "{overload: aten.threshold.default, map: {self: x, threshold: limit, value: value}}",
        more="attrs: {limit: {type: scalar}, value: {type: scalar}}\n",
        cases="{B: [7, 5], limit: 0, value: 2}, {B: [9], limit: 0.5, value: 3}",
    ),
    "total": spec(
        "T: integer, S: sum_type(T)",
        'x: "T[*B, N]"',
        'y: "S[*B]"',
        "y[*B] = sum[j](S(x[*B, j]))",
        "{overload: aten.sum.dim_IntList, map: {self: x, dim: {only: [-1]}, keepdim: {only: false}}}",
        cases=ROW_CASE,
    ),
    "sigmoid": spec(*MAP, "y[*B] = T(sigmoid(A(x[*B])))", "aten.sigmoid.default", cases=ONE_CASE),
    "logsumexp": spec(
        *ROW,
        'y: "T[*B]"',
        "m[*B] = max[j](A(x[*B, j]))\nk[*B] = m[*B] if isfinite(m[*B]) else 0\n"
        "y[*B] = T(k[*B] + log(sum[j](exp(A(x[*B, j]) - k[*B]))))",
        "{overload: aten.logsumexp.default, map: {self: x, dim: [axis], keepdim: {only: false}}}",
        more=AXIS,
        cases=ROW_CASE,
    ),
}
MUL = spec(
    "T: 'promote(a, b)', A: accum(T)",
    *TWO[1:],
    "y[*B] = T(A(a[*B]) * A(b[*B]))",
    "{overload: aten.mul.Tensor, map: {self: a, other: b}}",
    cases="{B: [7, 5]}",
).replace("{B: batch}", "{B: broadcast}")
RIGHT["mul"] = MUL
RIGHT["leaky"] = spec(
    *MAP,
    "y[*B] = T(A(x[*B]) if x[*B] > 0 else A(x[*B]) * slope)",
    "{overload: aten.leaky_relu.default, map: {self: x, negative_slope: slope}}",
    more="attrs: {slope: {type: scalar, default: 0.01}}\n",
    cases=ONE_CASE,
)
RIGHT["cdist"] = spec(
    "T: wide, A: accum(T)",
    'a: "T[*B, P, N]", b: "T[*B, R, N]"',
    'y: "T[*B, P, R]"',
    "if p == 1:\n  y[*B, i, j] = T(sum[n](abs(A(a[*B, i, n]) - A(b[*B, j, n]))))\n"
    "else:\n  y[*B, i, j] = T(sum[n](abs(A(a[*B, i, n]) - A(b[*B, j, n])) ** p) ** (1 / p))",
    "{overload: aten._cdist_forward.default, map: {x1: a, x2: b, p: p, compute_mode: null}}",
    more="attrs: {p: {type: float, default: 2.0, static: 'in (1, 2)'}}\nrequire: ['p > 0', 'p != inf']\n",
    cases="{B: [], P: 3, R: 4, N: 5, p: 2.5}",
).replace("values: [exact, normal, halves, zeros, large, nan_inf, all_equal]", "values: [normal]")
WRONG = [
    ("gelu", "approximated by a tangent", *GELU[1]),
    ("var", "the correction ignored", "A(max(N - correction, 0))", "A(N - 1)"),
    ("var", "over every axis but one", "sum[j]((A(x[*B, j]) - m[*B]) ** 2)", "sum[j](A(x[*B, j]) ** 2)"),
    ("var", "no guard against a correction beyond", "A(max(N - correction, 0))", "A(N - correction)"),
    ("var", "a guard that is turned", "A(max(N - correction, 0))", "A(min(N - correction, 0))"),
    ("mul", "of a rank-0 f64 beside f32, f64", "T: 'promote(a, b)'", "U: any, V: any, T: 'wider(U, V)'"),
    ("leaky", "another default", "default: 0.01", "default: 0.02"),
    ("leaky", "an overload that nobody has", "aten.leaky_relu.default", "aten.leaky_rely.default"),
    ("leaky", "a negative slope cut", "A(x[*B]) * slope)", "A(x[*B]) * max(slope, 0))"),
    ("cdist", "another norm for p = 3", "** p)", "** (p if p != 3 else 4))"),
    ("div", "negative quotients towards zero", "a[*B] // b[*B]", "tdiv(a[*B], b[*B])"),
    ("softmax", "no maximum subtracted", "A(x[*B, i]) - A(m[*B])", "A(x[*B, i])"),
    ("round", "halves up", "round(A(x[*B]))", "floor(A(x[*B]) + 0.5)"),
    ("sign", "one of zero", "sign(A(x[*B]))", "1 if x[*B] >= 0 else -1"),
    ("remainder", "the dividend's sign", "A(a[*B]) % A(b[*B])", "fmod(A(a[*B]), A(b[*B]))"),
    ("max", "a nan that loses", "max(a[*B], b[*B])", "fmax(a[*B], b[*B])"),
    ("relu", "nothing of nan", " or isnan(x[*B])", ""),
    ("threshold", "a tie with the limit", "<=", "<"),
    ("total", "integers of their own width", "sum_type(T)", "T"),
    ("sigmoid", "an overflow for large negative numbers", "sigmoid(A(x[*B]))", "exp(A(x[*B])) / (1 + exp(A(x[*B])))"),
    ("logsumexp", "no maximum subtracted", "m[*B] if isfinite(m[*B])", "0 * m[*B] if isfinite(m[*B])"),
]  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_twin_passes(name: str) -> None:
    state, said = meaning_of(RIGHT[name])
    assert state == "passed", said


@pytest.mark.parametrize(
    ("name", "old", "new"), [(n, a, b) for n, _, a, b in WRONG], ids=[f"{n}: {w}" for n, w, *_ in WRONG]
)
def test_a_corner_apart_is_refused(name: str, old: str, new: str) -> None:
    assert RIGHT[name].count(old) == 1
    text = RIGHT[name].replace(old, new)
    if "wider(U, V)" in new:
        text = text.replace('a: "T[*B]", b: "T[*B]"', 'a: "U[*B]", b: "V[*B]"')
    state, said = meaning_of(text)
    assert state == "failed", said
