"""Specs written from PyTorch's decompositions: their text, and why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from opwright.generator.spec import load_spec_text
from opwright.workflows.derive_spec import DerivationError, derived_spec
from opwright.workflows.workbench import Workbench

HARDSWISH = """\
op: mine
doc: Derived from PyTorch's decomposition of aten.hardswish.default, composed of add, clamp, mul, div.
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  t0[*B] = A(x[*B])
  t1[*B] = t0[*B] + 3.0
  t6[*B] = t1[*B] if t1[*B] >= A(0) or isnan(t1[*B]) else A(0)
  t2[*B] = t6[*B]
  t7[*B] = t2[*B]
  t3[*B] = t7[*B] if t7[*B] <= A(6) or isnan(t7[*B]) else A(6)
  t4[*B] = t0[*B] * t3[*B]
  t5[*B] = t4[*B] / 6.0
  y[*B] = T(t5[*B])
grad: {wrt: [x], derive: true}
test:
  cases: [{B: [7, 5]}, {B: [0, 3]}, {B: []}, {B: [1025]}]
  layouts: [contiguous, transposed, sliced]
  values: [normal, zeros, nan_inf, denormal]
  tol: bound
aten: [{overload: aten.hardswish.default, map: {self: x}}]
"""


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench.here(Path(__file__))


def test_the_whole_text(bench: Workbench) -> None:
    assert derived_spec(bench, "mine", "aten.hardswish.default") == HARDSWISH


def test_numbers_become_attributes_and_tensors_keep_their_names(bench: Workbench) -> None:
    text = derived_spec(bench, "mine", "aten.addcdiv.default")
    (spec,) = load_spec_text(text, "mine.yaml")
    assert list(spec.inputs) == ["x", "tensor1", "tensor2"] and spec.attrs["value"].default == 1.0
    assert "t3[*B] = t1[*B] * A(value)" in text and "dims: {B: broadcast}" in text


def test_a_number_that_hides_in_a_product_stays_at_its_default(bench: Workbench) -> None:
    """elu multiplies alpha by scale before any tensor is there."""
    text = derived_spec(bench, "mine", "aten.elu.default")
    assert "attrs: {alpha: {type: float, default: 1.0}}" in text
    assert "map: {self: x, alpha: alpha, input_scale: {only: 1}, scale: {only: 1}}" in text


def test_constants_are_written_where_they_are_read(bench: Workbench) -> None:
    assert " if t6[*B] else -inf" in derived_spec(bench, "mine", "aten.special_entr.default")


@pytest.mark.parametrize(
    ("overload", "why"),
    [
        ("aten.mm.default", "has no decomposition"),
        ("aten._softmax.default", "takes `dim`, a int"),
        ("aten.relu6.default", "is no one elementwise composition: hardtanh"),
        ("aten.nosuch.default", "has no decomposition"),
    ],
)
def test_what_cannot_be_derived_says_why(overload: str, why: str, bench: Workbench) -> None:
    with pytest.raises(DerivationError) as refused:
        derived_spec(bench, "mine", overload)
    assert why in refused.value.message
