"""The oracle's special functions against values that tables have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opwright.generator.types import DType
from opwright.validators import special
from opwright.validators.ball import Ball
from opwright.validators.ball_functions import call

EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("fn", "x", "want"),
    [
        ("lgamma", 0.5, math.log(math.pi) / 2),
        ("lgamma", 10.0, math.log(362880.0)),
        ("lgamma", -1.0, math.inf),
        ("lgamma", -5e-324, 744.4400719213812),
        ("digamma", 1.0, -EULER),
        ("digamma", 0.5, -EULER - 2 * math.log(2)),
        ("digamma", -0.5, 2 - EULER - 2 * math.log(2)),
        ("digamma", 2.0, 1 - EULER),
        ("trigamma", 1.0, math.pi**2 / 6),
        ("trigamma", 0.5, math.pi**2 / 2),
        ("trigamma", -0.5, math.pi**2 / 2 + 4),
        ("erfinv", 0.5, 0.4769362762044699),
        ("erfinv", -0.999, -2.326753765513525),
        ("erfinv", 1.0, math.inf),
        ("i0e", 0.0, 1.0),
        ("i0e", 1.0, 0.46575960759364043),
        ("i0e", 40.0, float(np.i0(40.0)) * math.exp(-40)),
        ("i1e", 1.0, 0.2079104153497085),
        ("i1e", -1.0, -0.2079104153497085),
    ],
)
def test_values(fn: str, x: float, want: float) -> None:
    got = float(getattr(special, fn)(np.array([x]))[0])
    assert got == want or got == pytest.approx(want, rel=4e-15, abs=2e-15)


def test_digamma_where_it_is_none() -> None:
    assert math.isnan(special.digamma(np.array([-2.0]))[0])
    at_zero = special.digamma(np.array([0.0, -0.0]))
    assert at_zero[0] == -math.inf and at_zero[1] == math.inf


def test_erfinv_is_the_inverse_to_the_end() -> None:
    y = np.array([1e-300, 1e-9, 0.1, 0.49999, 0.5, 0.9, 1 - 1e-9, 1 - 2.0**-53])
    x = special.erfinv(y)
    assert np.all(np.diff(x) > 0)
    tail = np.array([math.erfc(v) for v in x[4:]])
    assert np.allclose(tail, 1 - y[4:], rtol=1e-13, atol=0)


@pytest.mark.parametrize("fn", ["lgamma", "digamma", "trigamma", "erfinv", "i0e", "i1e"])
def test_a_ball_covers_its_ends(fn: str) -> None:
    """What an uncertain argument may give lies within the result's ball."""
    middle, radius = np.array([0.3, 0.55, 0.81]), np.array([1e-3, 2e-3, 1e-4])
    out = call(fn, [Ball(middle, DType.F64, radius)], DType.F64)
    for end in (middle - radius, middle + radius):
        assert np.all(np.abs(getattr(special, fn)(end) - out.value) <= out.radius)
    assert np.all(out.radius < 1)


@pytest.mark.parametrize("fn", ["lgamma", "digamma", "trigamma"])
def test_a_ball_across_a_pole_is_open(fn: str) -> None:
    out = call(fn, [Ball(np.array([-1.0001]), DType.F64, np.array([0.01]))], DType.F64)
    assert np.isinf(out.radius).all()


@pytest.mark.parametrize(
    ("fn", "x", "want"),  # by mpmath, with 60 digits
    [
        ("lgamma", -15.999999999999956, 0.07347591648857112),
        ("lgamma", -15.000000000000629, 0.19564355046093052),
        ("lgamma", -3.9702608901851066, 0.38338618114321693),
        ("digamma", -9.99945647317237, -1837.4820980713132),
        ("i0e", 708.0, 0.01499581822855583),
        ("i1e", 712.6843185311733, 0.014935947792475342),
    ],
)
def test_beside_zeros_and_far_out(fn: str, x: float, want: float) -> None:
    """Within what the oracle takes for its own error: two logarithms cancel beside a zero, and sines of nearly pi."""
    got = float(getattr(special, fn)(np.array([x]))[0])
    assert abs(got - want) <= 2.0**-53 * (4 * abs(want) + special.CROSSING.get(fn, 0.0))
