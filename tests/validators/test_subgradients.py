"""Corners: where they are looked for, and what two gradients there may differ by."""

from __future__ import annotations

import numpy as np
import pytest

from opwright.generator.bind_key import keys_of
from opwright.generator.spec import OpSpec, load_spec_text
from opwright.generator.types import DType
from opwright.validators.ball import Ball
from opwright.validators.subgradients import apart, cornered, corners
from opwright.validators.trial import Trial

CLIP = """
op: clip
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {top: {type: scalar}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = T(top) if x[*B] >= T(top) else x[*B] if x[*B] > -3 else 0
aten: [{overload: aten.clamp_max.default, map: {self: x, max: top}}]
"""
SORTED = """
op: sorted
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B, N]"}
outputs: {y: "i64[*B]"}
compute: |
  y[*B] = argmax[j](x[*B, j])
aten: [{overload: aten.argmax_somehow.default, map: {self: x}}]
"""


def trial_of(text: str) -> tuple[OpSpec, Trial]:
    spec = load_spec_text(text)[0]
    key = keys_of(spec, [DType.F64])[0]
    return spec, Trial("t", key, {"x": np.linspace(0.1, 0.9, 400).reshape(20, 20)}, given={"top": 1.75})


def test_corners_are_zeros_attributes_and_literals() -> None:
    spec, trial = trial_of(CLIP)
    found = corners(spec, trial)
    assert {0.0, 1.75, -1.75, 3.0, -3.0, 0.5} <= set(found)
    assert np.signbit(found[found == 0]).any() and not np.signbit(found[found == 0]).all()
    mixed, equal, zeros = cornered(spec, trial, np.random.default_rng(0))
    assert set(mixed.arrays["x"].reshape(-1)) == set(found)
    assert len(set(equal.arrays["x"].reshape(-1))) == 1
    assert not zeros.arrays["x"].any()


def test_a_gradient_that_follows_unpromised_positions_is_asked_without_equals() -> None:
    spec, trial = trial_of(SORTED)
    (only,) = cornered(spec, trial, np.random.default_rng(0))
    assert len(set(only.arrays["x"].reshape(-1))) == 400


@pytest.mark.parametrize(
    ("ours", "theirs", "beyond", "differs"),
    [
        (1.0, 1.0, False, False),
        (1.0, 0.0, False, True),
        (0.5, 1.0, False, True),
        (np.nan, 0.0, False, True),
        (np.nan, 0.0, True, False),
        (0.0, np.nan, False, False),
        (np.inf, 4e31, False, False),
        (np.inf, 2.0, False, True),
    ],
)
def test_what_is_apart(ours: float, theirs: float, beyond: bool, differs: bool) -> None:
    _, trial = trial_of(CLIP)
    ball = Ball(np.array([1.0, ours]), DType.F64, np.array([0.0, 1e-16]))
    at, pardoned = apart("aten.f.default", trial, ball, np.array([1.0, theirs]), 1e-7, beyond=beyond)
    assert (at is not None) == differs
    assert not pardoned


def test_what_pytorch_has_no_gradient_for_is_pardoned_and_said() -> None:
    _, trial = trial_of(CLIP)
    ball = Ball(np.array([1.0, 0.0]), DType.F64, np.zeros(2))
    at, pardoned = apart("aten.scatter.src", trial, ball, np.array([1.0, 2.0]), 1e-7, beyond=False)
    assert at is None and "several values for one place" in pardoned
    assert apart("aten.scatter.src", trial, ball, np.array([2.0, 0.0]), 1e-7, beyond=False)[0] == (0,)
