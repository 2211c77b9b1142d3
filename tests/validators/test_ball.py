"""Ball arithmetic: values, radii, exactness, and what a check accepts."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.expr import FUNCTIONS
from opwright.generator.types import DType
from opwright.validators.ball import (
    Ball,
    absolute,
    add,
    arithmetic,
    as_floats,
    cast,
    check,
    compare,
    constant,
    divide,
    every_rounding_counts,
    exact,
    extremum,
    logical,
    multiply,
    negate,
    select,
    square,
    subtract,
)
from opwright.validators.ball_functions import call, power
from opwright.validators.ball_reduce import Accumulator, contract, reduce_, scan, sum_factor
from opwright.validators.values import ARRAY, from_array, philox4x32, round_to, to_array, to_integer

F32, F64, BF16, F16, I32, I64, U8, BOOL = (
    DType.F32, DType.F64, DType.BF16, DType.F16, DType.I32, DType.I64, DType.U8, DType.BOOL,
)  # fmt: skip
nan, inf = math.nan, math.inf


def ball(values: Any, dtype: DType = F32, r: Any = None) -> Ball:
    """Floats as they are, with this radius."""
    v = np.asarray(values, np.float64)
    return Ball(v, dtype, None if r is None else np.broadcast_to(np.asarray(r, np.float64), v.shape).copy())


def f32(values: Any) -> Ball:
    return exact(np.asarray(values, np.float32), F32)


# ------------------------------------------------------------------------------------------------- storage


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
def test_rounding_is_to_nearest_even_in_every_format(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    v = rng.standard_normal(4000) * 10.0 ** rng.uniform(-45, 38, 4000)
    with np.errstate(over="ignore"):
        want = (v if dtype is F16 else v.astype(np.float32)).astype(ARRAY[dtype]).astype(np.float64)
    got = round_to(v, dtype)
    # bf16 by way of f32 rounds twice; they may differ only on such ties
    different = (got != want) & ~(np.isinf(got) & np.isinf(want))
    assert different.mean() < 1e-3
    assert np.all(to_array(v, dtype).astype(np.float64) == got)


def test_rounding_once_where_twice_would_differ() -> None:
    v = 1 + 2.0**-8 + 2.0**-40  # just above a tie of bf16; f32 sees the tie
    assert round_to(np.array(v), BF16) == 1 + 2.0**-7


def test_subnormals_and_overflow_round() -> None:
    assert round_to(np.array(3 * 2.0**-150), F32) == 2 * 2.0**-149
    assert round_to(np.array([1e39, -1e39, nan]), BF16)[:2].tolist() == [inf, -inf]


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (nan, I32, -(2**31)), (inf, I32, -(2**31)), (2.0**31, I32, -(2**31)), (2.0**31 - 1, I32, 2**31 - 1),
        (nan, I64, -(2**63)), (1e30, I64, -(2**63)), (-1e30, I64, -(2**63)), (-2.5, I32, -2), (2.9, I64, 2),
        (300.7, U8, 44), (-1.5, U8, 255), (nan, U8, 0), (nan, BOOL, True), (-0.0, BOOL, False),
    ],
)  # fmt: skip
def test_float_to_integer_is_defined(value: float, dtype: DType, want: int) -> None:
    assert to_integer(np.array(value), dtype) == want


def test_integers_wrap_and_never_pass_through_floats() -> None:
    big = exact(np.array([2**63 - 1, 2**62 + 1], np.int64), I64)
    assert add(big, exact(np.array([1, 0], np.int64), I64), I64).value.tolist() == [-(2**63), 2**62 + 1]
    assert multiply(
        exact(np.array([200], np.uint8), U8), exact(np.array([3], np.uint8), U8), U8
    ).value.tolist() == [88]


def test_philox_known_answers() -> None:
    # Random123's known-answer test: all zeros, and all ones in key and the counter's low words is not one of them
    assert [int(w) for w in philox4x32(np.int64(0), np.int64(0))] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]


# ------------------------------------------------------------------------------------------------- exactness


def test_exact_integers_keep_radius_zero() -> None:
    a, b = f32([3, -4, 4095]), f32([5, 7, 4095])
    assert add(a, b, F32).r is None
    assert multiply(a, b, F32).r is None
    assert divide(f32([12.0, 1.0]), f32([4.0, 8.0]), F32).r is None
    assert call("sqrt", [f32([16.0, 2.25])], F32).r is None


def test_rounding_adds_half_an_ulp() -> None:
    out = divide(f32([1.0]), f32([3.0]), F32)
    assert out.radius[0] == pytest.approx(2**-24 / 3, rel=1e-6)
    assert multiply(f32([4097.0]), f32([4097.0]), F32).radius[0] > 0  # 25 bits


def test_an_addition_that_f64_loses_is_not_called_exact() -> None:
    assert add(f32([1.0]), f32([2.0**-100]), F32).radius[0] > 0
    assert add(ball([1.0], F64), ball([2.0**-60], F64), F64).radius[0] > 0


def test_f64_products_are_seen_exact_or_not() -> None:
    assert multiply(ball([3.0], F64), ball([2.0**40 + 1], F64), F64).r is None
    assert multiply(ball([1 + 2.0**-40], F64), ball([1 + 2.0**-40], F64), F64).radius[0] > 0


def test_constants_that_a_dtype_has_not_carry_a_radius() -> None:
    assert constant(0.5, F32).r is None
    assert constant(0.1, F32).radius > 0
    assert constant(0.1, F64).r is None


# ------------------------------------------------------------------------------------------------- against truth


def _perturbed(b: Ball, rng: np.random.Generator) -> Any:
    """A point of the ball, within its dtype."""
    return b.value + b.radius * rng.uniform(-1, 1, b.shape)


_BINARY = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}


@pytest.mark.parametrize("op", sorted(_BINARY))
def test_every_point_of_the_operands_lands_in_the_result(op: str) -> None:
    rng = np.random.default_rng(1)
    a = ball(rng.standard_normal(2000) * 10.0 ** rng.integers(-3, 4, 2000), r=rng.uniform(0, 1e-3, 2000))
    b = ball(rng.standard_normal(2000), r=rng.uniform(0, 1e-2, 2000))
    out = arithmetic(op, a, b, F32)
    for _ in range(20):
        point = _BINARY[op](_perturbed(a, rng), _perturbed(b, rng)).astype(np.float32).astype(np.float64)
        assert np.all(out.free | (np.abs(point - out.value) <= out.radius))
    assert out.free.mean() < 0.05


_TRUTH = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc),
}  # fmt: skip
_DOMAIN = {"log": (0.01, 50), "log2": (0.01, 50), "log10": (0.01, 50), "log1p": (-0.98, 50), "sqrt": (0.01, 50),
           "rsqrt": (0.01, 50), "asin": (-0.99, 0.99), "acos": (-0.99, 0.99), "acosh": (1.01, 50),
           "atanh": (-0.99, 0.99), "tan": (-1.5, 1.5)}  # fmt: skip


@pytest.mark.parametrize("fn", sorted(_TRUTH))
def test_functions_spread_no_less_than_the_truth(fn: str) -> None:
    rng = np.random.default_rng(2)
    low, high = _DOMAIN.get(fn, (-20, 20))
    x = ball(rng.uniform(low, high, 3000), r=10.0 ** rng.uniform(-9, -3, 3000))
    out = call(fn, [x], F32)
    assert np.isfinite(out.radius).mean() > 0.9
    for _ in range(20):
        got = _TRUTH[fn](np.clip(_perturbed(x, rng), low, high)).astype(np.float32).astype(np.float64)
        assert np.all(np.abs(got - out.value) <= out.radius), fn


@pytest.mark.parametrize("fn", sorted(_TRUTH))
def test_functions_of_exact_arguments_allow_the_stated_ulp_and_not_much_more(fn: str) -> None:
    rng = np.random.default_rng(3)
    x = exact(rng.uniform(*_DOMAIN.get(fn, (-5, 5)), 500).astype(np.float32), F32)
    out = call(fn, [x], F32)
    size = np.abs(out.value)
    assert np.all(out.radius <= 2 * FUNCTIONS[fn].ulp * 2**-24 * size * 1.001 + 1e-44)


def test_radii_pass_exp_by_expm1() -> None:
    out = call("exp", [ball([0.0], r=0.5)], F64)
    assert out.radius[0] == pytest.approx(math.expm1(0.5), rel=1e-9)


def test_power_of_two_is_a_product_and_zero_is_one() -> None:
    assert power(f32([3.0]), constant(2, F32, 1), F32).r is None
    assert power(f32([nan]), constant(0, F32, 1), F32).value[0] == 1


@given(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6, width=32))
def test_f32_arithmetic_stays_inside(x: float, y: float) -> None:
    a, b = f32([x]), f32([y])
    for op, fn in _BINARY.items():
        with np.errstate(all="ignore"):
            got = fn(np.float32(x), np.float32(y))
        assert check(np.array([got], np.float32), arithmetic(op, a, b, F32)).passed, op


# ------------------------------------------------------------------------------------------------- inf, nan, free


def test_exact_infinities_and_nans_stay_exact() -> None:
    x = f32([inf, -inf, nan, inf])
    y = f32([1.0, 2.0, 3.0, -inf])
    out = add(x, y, F32)
    assert out.value[:2].tolist() == [inf, -inf]
    assert np.isnan(out.value[2:]).all()
    assert np.all(out.radius == 0)
    assert (
        call("exp", [f32([-inf, inf, nan])], F32).r is None
        or not call("exp", [f32([-inf])], F32).radius.any()
    )
    assert divide(f32([1.0, 0.0]), f32([0.0, 0.0]), F32).radius.tolist() == [0, 0]
    assert call("log", [f32([0.0, -1.0])], F32).radius.tolist() == [0, 0]


def test_overflow_is_free() -> None:
    out = multiply(f32([3e38, 2.0]), f32([10.0, 2.0]), F32)
    assert out.free.tolist() == [True, False]
    assert call("exp", [f32([100.0])], F32).free[0]
    # what follows an overflow may be anything, nan too
    after = subtract(out, out, F32)
    assert check(np.array([nan, 0], np.float32), after).passed
    # the overflow itself may give inf or not, but no nan
    assert check(np.array([inf, 4], np.float32), out).passed
    assert not check(np.array([nan, 4], np.float32), out).passed


def test_a_cast_beyond_the_largest_value_gives_inf() -> None:
    out = cast(f32([1e6, 65519.0, 65520.0, -1e6]), F16)
    assert out.value.tolist()[0] == inf
    assert np.isfinite(out.value[1])
    assert out.value.tolist()[2:] == [inf, -inf]
    assert out.radius[0] == out.radius[2] == 0
    assert check(np.array([inf, 65504, inf, -inf], np.float16), out).passed


def test_an_uncertain_divisor_or_sign_is_free() -> None:
    assert divide(f32([1.0]), ball([0.0], r=1e-3), F32).free[0]
    assert multiply(f32([inf]), ball([0.0], r=1e-3), F32).free[0]
    assert call("log", [ball([1e-9], r=1e-6)], F32).free[0]


def test_a_root_of_what_is_never_negative_is_not_free() -> None:
    tiny = square(f32([1e-30]), F32)  # underflows: 0 within its radius
    assert not call("sqrt", [tiny], F32).free[0]
    assert call("sqrt", [ball([1e-30], r=1e-20)], F32).free[0]


# ------------------------------------------------------------------------------------------------- decisions


def test_comparisons_within_the_radius_are_ambiguous() -> None:
    out = compare("<", ball([1.0, 2.0, 1.0], r=[0.1, 0.1, 0.0]), ball([1.05, 3.0, 1.0], r=0.0))
    assert out.radius.tolist() == [1, 0, 0]
    assert out.value.tolist() == [True, True, False]
    assert compare("<", f32([nan, inf]), ball([1.0, 1.0], r=0.5)).r is None


def test_an_ambiguous_choice_is_the_hull() -> None:
    test = Ball(np.array([True, True, True]), BOOL, np.array([0.0, 1.0, 1.0]))
    out = select(test, f32([1.0, 1.0, 5.0]), f32([9.0, 9.0, 5.0]), F32)
    assert out.value.tolist() == [1, 5, 5]
    assert out.radius.tolist() == [0, 4, 0]


def test_an_ambiguous_choice_between_a_number_and_infinity_is_free() -> None:
    test = Ball(np.array([True, True]), BOOL, np.ones(2))
    out = select(test, f32([1.0, nan]), f32([-inf, nan]), F32)
    assert out.free.tolist() == [True, False]
    assert not check(np.array([nan, nan], np.float32), out).passed
    assert check(np.array([-inf, nan], np.float32), out).passed


def test_logic_absorbs_doubt() -> None:
    doubt = Ball(np.array([True, True]), BOOL, np.ones(2))
    sure = Ball(np.array([False, True]), BOOL)
    assert logical("and", doubt, sure).radius.tolist() == [0, 1]
    assert logical("or", doubt, sure).radius.tolist() == [1, 0]


def test_maximum_propagates_nan_and_keeps_only_the_radii_that_matter() -> None:
    out = extremum("max", ball([1.0, nan, 1.0], r=[0.5, 0, 0.5]), ball([9.0, 1.0, 1.2], r=[0.1, 0, 0]), F32)
    assert out.radius.tolist() == [0.1, 0, 0.5]
    assert np.isnan(out.value[1])
    assert extremum("fmax", f32([nan]), f32([2.0]), F32).value[0] == 2


def test_integer_division_floors_and_does_not_crash() -> None:
    a, b = (
        exact(np.array([-3, 3, -3, -(2**31)], np.int32), I32),
        exact(np.array([2, -2, -2, -1], np.int32), I32),
    )
    assert arithmetic("//", a, b, I32).value.tolist() == [-2, -2, 1, -(2**31)]
    assert arithmetic("%", a, b, I32).value.tolist() == [1, -1, -1, 0]
    assert arithmetic("tdiv", a, b, I32).value.tolist()[:3] == [-1, -1, 1]
    assert arithmetic("trem", a, b, I32).value.tolist()[:3] == [-1, 1, -1]
    assert arithmetic("cdiv", a, b, I32).value.tolist()[:3] == [-1, -1, 2]
    zero = exact(np.zeros(4, np.int32), I32)
    assert arithmetic("//", a, zero, I32).free.all()


def test_rounding_functions_and_negative_zero() -> None:
    out = call("round", [f32([0.5, 1.5, 2.5, -0.5])], F32)
    assert out.value.tolist() == [0, 2, 2, 0]
    assert np.signbit(out.value[3])
    assert check(np.array([0, 2, 2, -0.0], np.float32), out).passed
    assert not check(np.array([0, 2, 2, 0.0], np.float32), out).passed
    near = call("floor", [ball([1.999, 2.5], r=0.01)], F32)
    assert near.radius.tolist() == [1, 0]


def test_the_sign_of_zero_counts_for_copies_only() -> None:
    x = f32([-0.0])
    assert not check(np.array([0.0], np.float32), x).passed
    assert check(np.array([0.0], np.float32), x, signed_zero=False).passed
    assert check(np.array([0.0], np.float32), add(x, x, F32)).passed
    assert not check(np.array([0.0], np.float32), absolute(negate(x))).passed or not np.signbit(
        absolute(x).value[0]
    )


# ------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("n", [1, 2, 33, 1000])
def test_sums_allow_a_blocked_order(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((40, n)).astype(np.float32)
    out = reduce_("sum", exact(x, F32), [1], x.shape, F32)
    assert check(x.sum(axis=1), out).ratio <= 1
    bound = sum_factor(np.array(n)) * 2**-24 * np.abs(x.astype(np.float64)).sum(axis=1)
    assert np.all(out.radius <= bound * 1.001)
    assert n > 1 or out.r is None


def test_sums_of_integers_are_exact_up_to_two_to_the_24th() -> None:
    x = np.full((2, 4096), 4095, np.float32)
    assert reduce_("sum", exact(x, F32), [1], x.shape, F32).r is None
    x[0, 0] = 2**24
    assert reduce_("sum", exact(x, F32), [1], x.shape, F32).radius.tolist()[1] == 0
    assert reduce_("sum", exact(x, F32), [1], x.shape, F32).radius[0] > 0
    quarters = np.full((1, 100), 0.25, np.float32)
    assert reduce_("sum", exact(quarters, F32), [1], quarters.shape, F32).r is None


def test_half_sums_accumulate_in_f32() -> None:
    ones = np.ones((1, 1000), ml_dtypes.bfloat16)
    out = reduce_("sum", exact(ones, BF16), [1], ones.shape, BF16)
    assert out.value[0] == 1000
    assert check(np.array([256], ml_dtypes.bfloat16), out).ratio > 1


def test_zeros_add_no_rounding() -> None:
    x = np.zeros((1, 5000), np.float32)
    x[0, 7] = 0.1
    assert reduce_("sum", exact(x, F32), [1], x.shape, F32).r is None


def test_sums_with_infinities_are_exact_and_overflow_is_free() -> None:
    x = np.array([[inf, 1, 2], [inf, -inf, 0], [3e38, 3e38, -3e38], [nan, 0, 0]], np.float32)
    out = reduce_("sum", exact(x, F32), [1], x.shape, F32)
    assert out.free.tolist() == [False, False, True, False]
    assert out.value[0] == inf
    assert np.isnan(out.value[[1, 3]]).all()


def test_products_and_their_order() -> None:
    x = np.array([[3, 5, 7], [1e30, 1e30, 1e-30], [0.1, 0.2, 0.3], [0, 5, 1e30]], np.float32)
    out = reduce_("prod", exact(x, F32), [1], x.shape, F32)
    assert out.radius[0] == 0
    assert out.free[1]
    assert 0 < out.radius[2] < 1e-8
    assert out.value[3] == 0
    assert out.radius[3] == 0
    # inf * 0 in one order, 0 in another; without overflow, or without a factor of 0, there is no nan
    out = reduce_(
        "prod", exact(np.array([[1e30, 1e30, 0], [1e30, 1e30, 2]], np.float32), F32), [1], (2, 3), F32
    )
    assert out.free.tolist() == [True, True]
    assert np.isnan(out.value).tolist() == [True, False]


def test_reductions_over_nothing_give_the_identity() -> None:
    empty = exact(np.zeros((2, 0), np.float32), F32)
    wanted = {"sum": 0, "prod": 1, "max": -inf, "min": inf}
    for kind, want in wanted.items():
        assert reduce_(kind, empty, [1], (2, 0), F32).value.tolist() == [want, want]
    none = exact(np.zeros((1, 0), np.bool_), BOOL)
    assert reduce_("any", none, [1], (1, 0), BOOL).value.tolist() == [False]
    assert reduce_("all", none, [1], (1, 0), BOOL).value.tolist() == [True]


def test_max_keeps_the_radii_of_candidates_only() -> None:
    b = ball([[1.0, 5.0, 4.9], [nan, 1.0, 2.0]], r=[[9.0, 0.1, 0.3], [0, 0, 0]])
    out = reduce_("max", b, [1], (2, 3), F32)
    assert out.radius[0] == 9.0  # 1 +- 9 may be the largest
    assert np.isnan(out.value[1])
    assert out.radius[1] == 0


@pytest.mark.parametrize(
    ("values", "want"), [([nan, 6, 8], 0), ([inf, nan], 1), ([1, 3, 3], 1), ([-inf, -inf], 0), ([2, 1, 2], 0)]
)
def test_argmax_takes_the_first(values: list[float], want: int) -> None:
    out = reduce_("argmax", f32([values]), [1], (1, len(values)), I64)
    assert out.value.tolist() == [want]
    assert out.choices is None


def test_argmax_accepts_what_lies_within_two_radii() -> None:
    out = reduce_("argmax", ball([[1.0, 1.05, 0.5, 1.02]], r=0.03), [1], (1, 4), I64)
    for index, fine in ((0, True), (1, True), (2, False), (3, True), (4, False), (-1, False)):
        assert check(np.array([index], np.int64), out).passed is fine


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_agree_with_reductions(kind: str, reverse: bool) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 50)).astype(np.float32)
    b = exact(x, F32)
    out = scan(kind, b, 1, x.shape, F32, reverse)
    for k in (0, 1, 17, 49):
        part = x[:, k:] if reverse else x[:, : k + 1]
        want = reduce_(kind, exact(part, F32), [1], part.shape, F32)
        assert np.allclose(out.value[:, k], want.value, rtol=1e-14)
        assert np.allclose(out.radius[:, k], want.radius, rtol=1e-6)


def test_contraction_bounds_no_less_than_the_plain_sum() -> None:
    rng = np.random.default_rng(6)
    a = ball(rng.standard_normal((2, 7, 1, 31)), r=1e-6)
    b = exact(rng.standard_normal((1, 1, 9, 31)).astype(np.float32), F32)
    shape = (2, 7, 9, 31)
    got = contract(a, b, [3], shape, F32)
    want = reduce_("sum", multiply(a, b, F32), [3], shape, F32)
    assert got is not None
    assert np.allclose(got.value, want.value, rtol=1e-12)
    assert np.all(got.radius >= want.radius * (1 - 1e-9))
    assert np.all(got.radius <= want.radius * 1.01)


def test_another_program_may_add_in_one_chain() -> None:
    with every_rounding_counts():
        assert sum_factor(np.array([1, 40, 10_000])).tolist() == [0, 40, 10_000]
    assert sum_factor(np.array([10_000])) == 416


def test_products_of_a_contraction_that_underflow_are_not_exact() -> None:
    a, b = (exact(np.full(shape, 2.0**-140, np.float32), F32) for shape in ((3, 1, 2), (1, 4, 2)))
    got = contract(a, b, [2], (3, 4, 2), F32)
    assert got is not None
    assert (got.radius >= np.abs(got.value)).all()


def test_contraction_leaves_infinities_to_the_slow_way() -> None:
    a = ball(np.full((3, 1, 2), inf))
    assert contract(a, ball(np.ones((1, 4, 2))), [2], (3, 4, 2), F32) is None


def test_updates_round_once_and_count_every_term() -> None:
    total = Accumulator("+=", BF16, 3, exact(np.array([1, 2, 3], ml_dtypes.bfloat16), BF16))
    at = np.array([0, 0, 2] * 300)
    total.update(at, exact(np.ones(900, np.float32), F32))
    out = total.result()
    assert out.value.tolist() == [600, 2, 304]  # 601 and 303, each rounded once: a tie to even
    assert out.dtype is BF16
    assert not out.radius.any()
    grown = Accumulator("+=", F32, 1, None)
    grown.update(np.zeros(100, np.int64), exact(np.full(100, 0.1, np.float32), F32))
    sequential = np.float32(0)
    for _ in range(100):
        sequential = np.float32(sequential + np.float32(0.1))
    assert check(np.array([sequential], np.float32), grown.result()).passed


def test_products_of_updates_that_underflow_are_not_exact() -> None:
    tiny = Accumulator("*=", F32, 1, None)
    tiny.update(np.zeros(2, np.int64), exact(np.full(2, 2.0**-140, np.float32), F32))
    assert check(np.zeros(1, np.float32), tiny.result()).passed


# ------------------------------------------------------------------------------------------------- the check


def test_check_wants_shape_and_dtype_first() -> None:
    want = f32([1.0, 2.0])
    assert "shape" in check(np.zeros((2, 1), np.float32), want).reason
    assert "dtype" in check(np.zeros(2, np.float64), want).reason
    assert not check(np.zeros((2, 1), np.float32), want).passed


def test_check_names_the_worst_element() -> None:
    out = check(np.array([1.0, 2.5], np.float32), ball([1.0, 2.0], r=[0.1, 0.25]))
    assert out.worst == (1,)
    assert out.ratio == 2
    assert out.ok.tolist() == [True, False]
    assert "2.5" in out.reason


def test_check_of_empty_outputs_and_free_fractions() -> None:
    assert check(np.zeros((0, 3), np.float32), ball(np.zeros((0, 3)))).ratio == 0
    assert check(np.zeros(4, np.float32), ball(np.zeros(4), r=[inf, 0, 0, 0])).free == 0.25


def test_integers_and_bools_are_exact() -> None:
    want = exact(np.array([1, 2], np.int64), I64)
    assert check(np.array([1, 3], np.int64), want).ratio == inf
    assert check(np.array([True]), Ball(np.array([False]), BOOL, np.ones(1))).passed
    assert not check(np.array([True]), Ball(np.array([False]), BOOL)).passed


def test_arrays_are_rounded_once_when_taken() -> None:
    assert from_array(np.array([1 + 2.0**-30]), F32)[0] == 1
    assert from_array(np.array([2**53 + 1]), F64)[0] == 2.0**53


def test_parts_of_a_float_are_exact() -> None:
    numbers = np.array([1.0, -0.75, 3.0, 5e-324, 2.0**-1022, 1.7e308, 0.0, -0.0, np.inf, np.nan])
    x = exact(numbers, DType.F64)
    power = call("exponent", [x], DType.I64)
    assert power.r is None
    assert power.value.tolist() == [0, -1, 1, -1074, -1022, 1023, 0, 0, 0, 0]
    back = call("ldexp", [call("ldexp", [x, exact(-power.value, DType.I64)], DType.F64), power], DType.F64)
    assert back.r is None
    assert np.array_equal(back.value, numbers, equal_nan=True)


def test_a_power_of_two_that_leaves_the_range_rounds_once() -> None:
    x, k = exact(np.array([3.0, 3.0]), DType.F32), exact(np.array([-149, -151]), DType.I64)
    y = call("ldexp", [x, k], DType.F32)
    assert y.radius[0] == 0
    assert y.radius[1] >= abs(float(np.float32(np.ldexp(3.0, -151))) - np.ldexp(3.0, -151))
    near = call("exponent", [Ball(np.array([1.0]), DType.F32, np.array([1e-7]))], DType.I64)
    assert near.radius[0] == 1  # 1 - 1e-7 has another power


def test_what_is_exact_is_rounded_to_one_number_and_the_rest_to_either_side() -> None:
    tie = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20])
    sure = cast(Ball(tie, F32), BF16)
    assert sure.r is None
    assert sure.value.tolist() == [1, 1 + 2.0**-6, 1 + 2.0**-7]
    near = cast(Ball(tie, F32, np.full(3, 2.0**-24)), BF16)
    assert (near.radius >= 2.0**-9).all()


def test_as_floats_an_overflow_comes_to_what_arithmetic_gives() -> None:
    x = Ball(np.array([1e300, 1.0]), DType.F64)
    assert np.isinf(multiply(x, x, DType.F64).radius[0])
    with as_floats():
        much = multiply(x, x, DType.F64)
        assert much.r is None
        assert divide(x, much, DType.F64).value.tolist() == [0, 1]
