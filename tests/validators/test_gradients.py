"""Finite differences: exact where a function is smooth, silent where it has no derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opwright.generator.bind import bind, bind_grad
from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BindKey
from opwright.generator.grad import adjoint, with_saved
from opwright.generator.normal import normalise
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType
from opwright.validators.gradients import (
    _directions,
    _of_one_scale,
    _Problem,
    _step,
    check_differences,
    difference,
    smooth_part,
)
from opwright.validators.session import Tally
from opwright.validators.trial import Trial
from opwright.validators.verdict import Failure


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


def test_a_kink_of_one_output_is_seen_where_the_sum_has_none() -> None:
    """Of three equal numbers in order, the middle one moves up as the last, down as the first."""

    def terms(h: float) -> np.ndarray:
        return np.array([0.5, -0.25, 0.5]) * np.sort([1.0, 1.0 + h, 1.0])

    assert difference(terms, 2.0**-10).kink
    assert difference(lambda h: np.sum(terms(h)), 2.0**-10).value == pytest.approx(0.5)  # and it is -0.25


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


def proved(text: str, dtype: float) -> tuple[int, int, int]:
    """(passed, failed, proved nothing) of the declared or derived gradient at numbers of one size."""
    spec = load_spec_text(text)[0]
    assert spec.grad is not None
    key = keys_of(spec, [DType.F64])[0]
    forward = with_saved(normalise(bind(spec, key)), spec.grad.save)
    backward = (
        adjoint(normalise(bind(spec, key)), spec.grad.wrt, spec.grad.save)
        if spec.grad.derive
        else normalise(bind_grad(spec, key))
    )
    rng = np.random.default_rng(0)
    arrays = {n: dtype * rng.uniform(0.5, 2, 5) * rng.choice([-1, 1], 5) for n in spec.inputs}
    problem = _Problem(Trial("here", key, arrays), forward, backward, {"y": rng.uniform(0.5, 1, 5)})
    tally = Tally("gradient", 1)
    rough = check_differences(problem, tally, Failure, 6, rng)
    return tally.cases - tally.failed, tally.failed, rough


HEAD = "op: t\ntypes: {T: float, A: accum(T)}\n"


@pytest.mark.parametrize(("size", "says"), [(1.0, True), (1e-40, False), (1e-300, False)])
def test_a_period_far_below_the_step_proves_nothing(size: float, says: bool) -> None:
    """Of numbers near 1e-40, a step of 2^-22 lands anywhere in the period of a remainder."""
    passed, failed, rough = proved(
        HEAD + 'inputs: {x: "T[N]", z: "T[N]"}\noutputs: {y: "T[N]"}\n'
        "compute: |\n  y[i] = T(fmod(A(x[i]), A(z[i])))\ngrad: {wrt: [x], derive: true}\n",
        size,
    )
    assert not failed
    assert (passed >= 3) == says
    assert rough or says


def test_terms_that_cancel_are_each_rounded() -> None:
    """The loss is near 0, its rounding is that of 1e6: logsumexp of tiny numbers by random cotangents."""
    d = difference(lambda h: np.array([1e6 + h, -1e6 + h]), 2.0**-10)
    assert d.size >= 2e6
    assert abs(d.value - 2) <= 64 * d.size * 2.0**-52 / 2.0**-10


def test_differences_are_asked_of_numbers_of_one_scale() -> None:
    def trial(*numbers: float) -> Trial:
        return Trial("here", BindKey(), {"x": np.array(numbers), "i": np.array([0, 1])})

    assert _of_one_scale(trial(1.0, -3.0, 0.0, 1e-9))
    assert _of_one_scale(trial(0.0, 0.0))
    assert not _of_one_scale(trial(1.0, 1e-320))
    assert not _of_one_scale(trial(3e-321, 1e-320))


@pytest.mark.parametrize("size", [1.0, 1e-40, 1e-300])
def test_a_wrong_gradient_is_found_at_any_size(size: float) -> None:
    _, failed, _ = proved(
        HEAD + 'inputs: {x: "T[N]"}\noutputs: {y: "T[N]"}\n'
        "compute: |\n  y[i] = T(exp(A(x[i])))\n"
        "grad: {wrt: [x], compute: 'dx[i] = T(A(dy[i]) * exp(A(x[i])) * 1.001)'}\n",
        size,
    )
    assert failed >= 5


def test_gaps_of_terms_do_not_cancel() -> None:
    """The slope of each term bends within the steps: what one gains another loses, not so what the value is off by."""
    at = np.array([0.0, 0.4]) * 2.0**-10

    def terms(h: float) -> np.ndarray:
        y = h - at
        return np.array([1.0, -1.45]) * np.where(y > 0, y, np.expm1(y))

    d = difference(terms, 2.0**-10)
    want = 1.0 - 1.45 * math.exp(-at[1])
    assert abs(d.value - want) <= d.apart + 1e-9


def test_where_no_gradient_is_each_direction_may_have_a_derivative() -> None:
    """clamp(x, x, x) along x alone is constant, and the gradient of a choice among equals is 1."""
    spec = load_spec_text(
        HEAD + 'inputs: {x: "T[N]", z: "T[N]", w: "T[N]"}\noutputs: {y: "T[N]"}\n'
        "compute: |\n  y[i] = min(max(x[i], z[i]), w[i])\ngrad: {wrt: [x, z, w], derive: true}\n"
    )[0]
    key = keys_of(spec, [DType.F64])[0]
    op = normalise(bind(spec, key))
    problem = _Problem(
        Trial(
            "here",
            key,
            {n: np.array([1.0, 2.0, 3.0]) + k * np.array([0, 0, 1.0]) for k, n in enumerate("zxw")},
        ),
        op,
        adjoint(op, ("x", "z", "w"), ()),
        {"y": np.ones(3)},
    )
    smooth, kinked = smooth_part(problem, np.random.default_rng(0))
    assert kinked and smooth.cotangents["y"].tolist() == [0, 0, 1]
    tally = Tally("gradient", 1)
    assert check_differences(problem, tally, Failure, 6, np.random.default_rng(0)) == 1
    assert tally.cases > 3 and not tally.failed
