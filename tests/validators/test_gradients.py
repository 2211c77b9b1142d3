"""Finite differences: exact where a function is smooth, silent where it has no derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opwright.validators.gradients import _directions, _step, difference


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (math.sin, 1.0),
        (lambda h: math.exp(3 * h), 3.0),
        (lambda h: (2 + h) ** 3, 12.0),
        (lambda h: 5 - 0.25 * h, -0.25),
    ],
)
def test_smooth_functions(f: object, slope: float) -> None:
    d = difference(f, 2.0**-10)  # type: ignore[arg-type]
    assert not d.kink
    assert abs(d.value - slope) <= d.apart + 1e-9


@pytest.mark.parametrize("shift", [0.0, 1e-7, -1e-5])
def test_a_kink_is_seen(shift: float) -> None:
    assert difference(lambda h: abs(h + shift), 2.0**-10).kink
    assert difference(lambda h: 3 * h + max(h + shift, 0.0), 2.0**-10).kink


def test_a_jump_and_an_overflow_prove_nothing() -> None:
    jump = difference(lambda h: 1.0 if h > 0 else 0.0, 2.0**-10)
    assert jump.kink or jump.apart > 1e-3 * abs(jump.value)
    assert difference(lambda h: math.inf if h > 0 else 0.0, 2.0**-10).kink


def test_the_step_suits_the_numbers() -> None:
    assert _step(np.array([1.0, -2.0, 0.0])) == 2.0**-10
    assert _step(np.full(3, 0.125)) == 2.0**-13
    assert _step(np.zeros(3)) == 2.0**-10
    assert _step(np.full(3, 1e-300)) == 2.0**-22


def test_directions_leave_out_what_is_not_finite() -> None:
    finite = np.array([[True, False], [True, True]])
    found = _directions(finite, 6, np.random.default_rng(0))
    assert len(found) == 5  # two random ones, three elements
    assert all(d[0, 1] == 0 for d in found)
    assert _directions(np.zeros(2, bool), 4, np.random.default_rng(0)) == []
