"""The normaliser: one reduction a statement, accumulators explicit, identities, classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opwright.generator.bind import bind
from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BoundOp, show_statements
from opwright.generator.errors import NormalError
from opwright.generator.expr import Num
from opwright.generator.normal import classify, identity, normalise, verify
from opwright.generator.spec import Registry, load_spec_text
from opwright.generator.types import DType
from opwright.resources import specs_dir

F32, BF16 = DType.F32, DType.BF16
REGISTRY = Registry.load([specs_dir() / "ops"])


def normal(
    body: str, *, inputs: str = '{x: "T[*B, N]"}', outputs: str = '{y: "T[*B, N]"}', key: DType = F32
) -> BoundOp:
    lines = "\n".join("  " + line for line in body.splitlines())
    s = load_spec_text(
        f"op: t\ntypes: {{T: float, A: accum(T)}}\ndims: {{B: batch}}\ninputs: {inputs}\noutputs: {outputs}\n"
        f"compute: |\n{lines}\n"
    )[0]
    return normalise(bind(s, keys_of(s, [key])[0]))


def test_a_reduction_inside_becomes_a_temporary_over_what_it_depends_on() -> None:
    n = normal("y[*B, i] = T(A(x[*B, i]) / sum[j](A(x[*B, j])))")
    assert show_statements(n.body) == "y_sum[*B] = sum[j](x[*B, j])\ny[*B, i] = x[*B, i] / y_sum[*B]\n"


def test_equal_reductions_are_computed_once() -> None:
    n = normal("y[*B, i] = T(A(x[*B, i]) / sum[j](A(x[*B, j])) + sum[k](A(x[*B, k])))")
    assert len(n.body) == 2


def test_nested_reductions_come_out_inner_first() -> None:
    n = normal("y[*B, i] = T(sum[j](A(x[*B, j]) * max[k](A(x[*B, k]))))")
    assert [s.target for s in n.body] == ["y_max", "y"]


def test_a_condition_goes_into_a_reduction_that_reads_computed_places() -> None:
    n = normal("y[*B, i] = T(sum[j](A(x[*B, i - 1]) * A(x[*B, j])) if i > 0 else 0)")
    assert "sum[j](x[*B, i - 1] * x[*B, j] if i > 0 else 0)" in show_statements(n.body)


def test_updates_of_half_types_accumulate_wide_and_round_once() -> None:
    body = "y[*B, i] = x[*B, i]\ny[*B, (i + 1) % N] += A(x[*B, i])"
    n = normal(body, key=BF16)
    text = show_statements(n.body)
    assert text.startswith("y_acc[*B, i] = f32(x[*B, i])\n")
    assert text.endswith("y[*w0, w1] = bf16(y_acc[*w0, w1])\n")
    assert [s.target for s in normal(body, key=F32).body] == ["y", "y"]


@pytest.mark.parametrize(
    ("kind", "dtype", "value"),
    [
        ("sum", F32, 0),
        ("prod", F32, 1),
        ("max", F32, -math.inf),
        ("min", DType.I32, 2**31 - 1),
        ("max", DType.BOOL, False),
        ("all", DType.BOOL, True),
        ("any", DType.BOOL, False),
        ("max", DType.U8, 0),
    ],
)
def test_identities(kind: str, dtype: DType, value: object) -> None:
    assert identity(kind, dtype) == Num(value, dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("add", "pointwise"),
        ("contiguous", "copy"),
        ("softmax", "rows"),
        ("rms_norm", "rows"),
        ("sum", "reduce"),
        ("matmul", "contract"),
        ("embedding", "gather"),
        ("index_put", "scatter"),
        ("cumsum", "scan"),
        ("convolution", "window"),
        ("scaled_dot_product_attention", "contract"),
    ],
)
def test_classes(op: str, kind: str) -> None:
    spec = REGISTRY.get(op)
    assert classify(normalise(bind(spec, keys_of(spec, [F32])[0]))) == kind


def test_a_recurrence_and_its_reduction_are_one_group() -> None:
    n = normal("s[*B, t] = A(x[*B, t]) + (s[*B, t - 1] if t > 0 else 0)\ny[*B, t] = T(s[*B, t])")
    assert classify(n) == "recur"
    assert [s.recur for s in n.body] == ["t", None]


def test_verify_refuses_broken_programs() -> None:
    n = normal("y[*B, i] = T(A(x[*B, i]) / sum[j](A(x[*B, j])))")
    with pytest.raises(NormalError, match="`y_sum` is read before it is written"):
        verify(replace(n, body=n.body[::-1]))
    with pytest.raises(NormalError, match="output `y` is never written"):
        verify(replace(n, body=n.body[:1]))
    with pytest.raises(NormalError, match="no tensor `y_sum`"):
        verify(replace(n, temps=()))
