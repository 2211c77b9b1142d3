"""Maxima whose shift changes nothing are found, others are not; gradients agree with finite differences either way."""

from __future__ import annotations

import numpy as np
import pytest

from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp, show_statements
from opwright.generator.grad import adjoint
from opwright.generator.normal import normalise
from opwright.generator.shifts import is_shift_free, maxima
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand

from .bound_interpreter import run

HEAD = """
op: f
types: {T: float, A: accum(T)}
inputs: {x: "T[B, N]", v: "T[N]"}
outputs: {y: "T[B, N]"}
grad: {none: a test}
compute: |
  m[b] = max[j](x[b, j])
"""


def program(compute: str) -> BoundOp:
    text = HEAD + "".join(f"  {line}\n" for line in compute.split("; "))
    (spec,) = load_spec_text(text, "<test>")
    inputs = {"x": Operand(DType.F64, 2), "v": Operand(DType.F64, 1)}
    return normalise(bind(spec, key_for_call(spec, inputs).key))


FREE = [
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / s[b]",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = x[b, i] - m[b] - log(s[b])",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = v[i] * (m[b] + log(s[b]))",
    "z[b] = sum[j](exp(x[b, j] - m[b])); o[b] = sum[j](exp(x[b, j] - m[b]) * v[j]); y[b, i] = o[b] / max(z[b], 1e-9)",
    "e[b, i] = exp(x[b, i] - m[b]) if v[i] > 0 else 0; s[b] = sum[j](e[b, j]); y[b, i] = e[b, i] / s[b]",
    "k[b] = max(m[b], -1e30); z[b] = sum[j](exp(x[b, j] - k[b])); y[b, i] = exp(x[b, i] - k[b]) / max(z[b], 0.5)",
    "s[b] = sum[j](exp(-(m[b] - x[b, j]))); t[b] = s[b] * 2 + s[b]; y[b, i] = exp(x[b, i] - m[b]) * 2 / -t[b]",
]
BOUND = [
    "y[b, i] = exp(x[b, i] - m[b])",
    "y[b, i] = x[b, i] - m[b]",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / (s[b] + 1)",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / max(s[b], 2.5)",
    "s[b] = sum[j](exp(x[b, j] - 2 * m[b])); y[b, i] = exp(x[b, i] - m[b]) / s[b]",
    "s[b] = sum[j](exp(v[j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / max(s[b], 0.5)",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[B - 1 - b]) / s[b]",
    "s[b] = sum[j](exp(x[b, j] - m[b])); t[i] = sum[b](exp(x[b, i] - m[b])); y[b, i] = t[i] / s[b]",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / s[b] if m[b] > 0 else x[b, i]",
    "s[b] = sum[j](exp(x[b, j] - m[b])); y[b, i] = exp(x[b, i] - m[b]) / s[b] * tanh(m[b])",
]


def free(op: BoundOp) -> bool:
    return any(is_shift_free(op, n, ["y"]) for n in maxima(op))


def check(op: BoundOp) -> None:
    rng = np.random.default_rng(3)
    x, v, dy = rng.standard_normal((2, 4)), rng.standard_normal(4), rng.standard_normal((2, 4))
    g = adjoint(op, ["x"])
    got = run(g, {t.name: {"x": x, "v": v, "dy": dy}[t.name] for t in g.inputs})["dx"]
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = 1e-6
        up, down = (run(op, {"x": x + s, "v": v})["y"] for s in (step, -step))
        np.testing.assert_allclose(got[k], np.sum((up - down) * dy) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compute", FREE)
def test_free_maxima_have_no_derivative_and_need_none(compute: str) -> None:
    op = program(compute)
    assert free(op)
    assert "ties" not in show_statements(adjoint(op, ["x"]).body)
    check(op)


@pytest.mark.parametrize("compute", BOUND)
def test_other_maxima_keep_their_derivative(compute: str) -> None:
    op = program(compute)
    assert not free(op)
    assert "ties" in show_statements(adjoint(op, ["x"]).body)
    check(op)


def test_only_maxima_are_asked_about() -> None:
    op = program("k[b] = max(m[b], -1e30); s[b] = sum[j](x[b, j]); y[b, i] = x[b, i] - k[b] + s[b]")
    assert maxima(op) == ["m", "k"]
