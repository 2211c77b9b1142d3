"""Mixed types: a rule of promotion other than PyTorch's is seen in the types of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand, promote_operands
from opwright.validators.promotions import mixed_types, mixes
from opwright.validators.values import ARRAY, dtype_of

SPEC = """
op: times
types: {T: "promote(a, b)", A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = T(A(a[*B]) * A(b[*B]))
test: {cases: [{B: [3]}]}
aten: [{overload: aten.mul.Tensor, map: {self: a, other: b}}]
"""
WIDER = SPEC.replace('T: "promote(a, b)"', 'U: any, V: any, T: "wider(U, V)"').replace(
    '{a: "T[*B]", b: "T[*B]"}', '{a: "U[*B]", b: "V[*B]"}'
)


class Promoting:
    """An overload that promotes as PyTorch documents it."""

    def __init__(self, text: str) -> None:
        self.spec = load_spec_text(text)[0]
        self.entry, self.returns = self.spec.aten[0], ("y",)
        self.asked: list[tuple[DType, ...]] = []

    def outputs(self, trial: Any) -> list[np.ndarray]:
        arrays: Mapping[str, np.ndarray] = trial.arrays
        self.asked.append(tuple(dtype_of(a) for a in arrays.values()))
        result = promote_operands([Operand(dtype_of(a), a.ndim) for a in arrays.values()])
        return [np.zeros(3, ARRAY[result])]


def test_promotion_as_pytorch_has_it_passes_in_every_pair_of_categories() -> None:
    asked = Promoting(SPEC)
    found = list(mixed_types(asked.spec, 0, asked))
    assert not [said for _, said in found if said]
    assert {
        (DType.F32, DType.F64),
        (DType.I64, DType.F16),
        (DType.BOOL, DType.U8),
        (DType.C64, DType.F64),
    } <= set(asked.asked)


def test_types_that_look_at_no_rank_are_found() -> None:
    asked = Promoting(WIDER)
    wrong = [said for _, said in mixed_types(asked.spec, 0, asked) if said]
    assert any("`y` is f64, aten.mul.Tensor says f32" in said for said in wrong)
    assert all("[]" in said for said in wrong)


def test_one_type_cannot_be_mixed() -> None:
    assert not mixes(load_spec_text(SPEC.replace('"promote(a, b)"', "float"))[0])
    assert mixes(load_spec_text(SPEC)[0])
