"""scalar.h: conversions against NumPy bit by bit, functions within their ulp, integers at their ends."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opwright import toolchain

SOURCE = """
#include "opwright/kernel.h"
#define MAP1(NAME, IN, OUT, EXPR) \\
  extern "C" void NAME(const IN* x, OUT* y, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) { const IN a = x[i]; y[i] = EXPR; } }
#define MAP2(NAME, IN, OUT, EXPR) \\
  extern "C" void NAME(const IN* x, const IN* z, OUT* y, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) { const IN a = x[i], b = z[i]; y[i] = EXPR; } }
MAP1(from_f16, owk_f16, float, owk_f16_to_f32(a))
MAP1(from_bf16, owk_bf16, float, owk_bf16_to_f32(a))
MAP1(to_f16, float, owk_f16, owk_f32_to_f16(a))
MAP1(to_bf16, float, owk_bf16, owk_f32_to_bf16(a))
MAP1(exp32, float, float, owk_exp_f32(a))
MAP1(sigmoid32, float, float, owk_sigmoid_f32(a))
MAP1(order32, float, int64_t, owk_order_f32(a))
MAP1(order64, double, int64_t, owk_order_f64(a))
MAP1(to_i32, double, int32_t, owk_to_i32(a))
MAP1(to_i64, double, int64_t, owk_to_i64(a))
MAP1(to_u8, double, uint8_t, owk_to_u8(a))
MAP2(div_i64, int64_t, int64_t, owk_div_i64(a, b))
MAP2(mod_i64, int64_t, int64_t, owk_mod_i64(a, b))
MAP2(cdiv_i64, int64_t, int64_t, owk_cdiv_i64(a, b))
MAP2(tdiv_i32, int32_t, int32_t, owk_tdiv_i32(a, b))
MAP2(pow_i64, int64_t, int64_t, owk_pow_i64(a, b))
MAP2(div_f32, float, float, owk_div_f32(a, b))
MAP2(mod_f32, float, float, owk_mod_f32(a, b))
MAP2(max_f32, float, float, owk_max_f32(a, b))
MAP2(fmax_f32, float, float, owk_fmax_f32(a, b))
MAP1(blocks, int64_t, int64_t, owk_block(a))
MAP1(short_blocks, int64_t, int64_t, owk_short_block(a))
"""


@pytest.fixture(scope="module")
def lib() -> ctypes.CDLL:
    path = toolchain.compile_library(
        {"scalar.cpp": SOURCE}, name="test_scalar", extra_flags=("-Wall", "-Werror")
    )
    return ctypes.CDLL(str(path))


def apply(lib: ctypes.CDLL, name: str, out: Any, *args: np.ndarray) -> np.ndarray:
    y = np.empty(args[0].shape, out)
    held = [np.ascontiguousarray(a) for a in args]
    getattr(lib, name)(
        *(a.ctypes.data_as(ctypes.c_void_p) for a in held),
        y.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(y.size),
    )
    return y


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN."""
    bits = f"u{a.itemsize}"
    return (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))


def test_every_half_widens_exactly(lib: ctypes.CDLL) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    assert same(apply(lib, "from_f16", np.float32, bits), bits.view(np.float16).astype(np.float32)).all()
    assert same(
        apply(lib, "from_bf16", np.float32, bits), bits.view(ml_dtypes.bfloat16).astype(np.float32)
    ).all()


def floats() -> np.ndarray:
    rng = np.random.default_rng(1)
    anything = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    near = np.array(
        [
            65504,
            65519.996,
            65520,
            5.9604645e-8,
            2.9802322e-8,
            2.98023e-8,
            6.1035156e-5,
            3.3895314e38,
            3.4e38,
            0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1e-45,
            9.2e-41,
        ],
        np.float32,
    )
    halfway = (
        (rng.integers(0, 2**16, 50_000, dtype=np.uint32) << 16 | 0x8000).astype(np.uint32).view(np.float32)
    )
    return np.concatenate(
        [anything, near, -near, halfway, rng.standard_normal(100_000).astype(np.float32) * 1e-5]
    )


@pytest.mark.parametrize(("name", "half"), [("to_f16", np.float16), ("to_bf16", ml_dtypes.bfloat16)])
def test_rounding_to_half_is_to_nearest_even(lib: ctypes.CDLL, name: str, half: Any) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        want = x.astype(half)
    got = apply(lib, name, np.uint16, x).view(half)
    bad = ~same(got.view(np.uint16).view(half), want)
    assert not bad.any(), list(zip(x[bad][:5], got[bad][:5], want[bad][:5], strict=True))


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    spacing = np.maximum(np.abs(np.spacing(want.astype(np.float32))).astype(np.float64), 2.0**-149)
    return np.abs(got.astype(np.float64) - want) / spacing


def test_exp_is_within_two_ulp_subnormals_included(lib: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-104, 88.7, 400_001), np.linspace(-1e-3, 1e-3, 10_001)]).astype(
        np.float32
    )
    assert ulps(apply(lib, "exp32", np.float32, x), np.exp(x.astype(np.float64))).max() <= 1.5
    edges = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 89, 1e30, -1e30, -200], np.float32)
    with np.errstate(over="ignore"):
        want = np.exp(edges.astype(np.float64)).astype(np.float32)
    assert same(apply(lib, "exp32", np.float32, edges), want).all()


def test_sigmoid_is_within_four_ulp(lib: ctypes.CDLL) -> None:
    x = np.linspace(-103, 40, 300_001).astype(np.float32)
    wide = x.astype(np.float64)
    want = np.where(wide < 0, np.exp(wide) / (1 + np.exp(wide)), 1 / (1 + np.exp(-wide)))
    assert ulps(apply(lib, "sigmoid32", np.float32, x), want).max() <= 4
    assert apply(lib, "sigmoid32", np.float32, np.array([np.inf, -np.inf], np.float32)).tolist() == [1, 0]


@pytest.mark.parametrize(("name", "dtype"), [("order32", np.float32), ("order64", np.float64)])
def test_order_is_total(lib: ctypes.CDLL, name: str, dtype: Any) -> None:
    x = np.array([-np.inf, -1e30, -1, -1e-45, 0, 1e-45, 1, 1e30, np.inf, np.nan], dtype)
    keys = apply(lib, name, np.int64, x)
    assert (np.diff(keys) > 0).all() or dtype is np.float64  # 1e-45 is its own double
    assert (np.diff(keys) >= 0).all()
    assert len(set(apply(lib, name, np.int64, np.array([0.0, -0.0], dtype)).tolist())) == 1


def test_float_to_integer_is_defined(lib: ctypes.CDLL) -> None:
    x = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 3e9, -3e9, 2147483647.9, 1e19, -1e19])
    low32, low64 = -(2**31), -(2**63)
    assert apply(lib, "to_i32", np.int32, x).tolist() == [1, -1, *[low32] * 5, 2147483647, low32, low32]
    assert apply(lib, "to_i64", np.int64, x).tolist() == [
        1,
        -1,
        low64,
        low64,
        low64,
        3_000_000_000,
        -3_000_000_000,
        2147483647,
        low64,
        low64,
    ]
    assert apply(lib, "to_u8", np.uint8, np.array([-1.0, 255.9, 256.0, np.nan])).tolist() == [255, 255, 0, 0]


def test_integer_division_never_traps(lib: ctypes.CDLL) -> None:
    low = -(2**63)
    a = np.array([7, -7, 7, -7, low, 5, low, 0], np.int64)
    b = np.array([2, 2, -2, -2, -1, 0, 0, 3], np.int64)
    assert apply(lib, "div_i64", np.int64, a, b).tolist() == [3, -4, -4, 3, low, 0, 0, 0]
    assert apply(lib, "mod_i64", np.int64, a, b).tolist() == [1, 1, -1, -1, 0, 0, 0, 0]
    assert apply(lib, "cdiv_i64", np.int64, a, b).tolist() == [4, -3, -3, 4, low, 0, 0, 0]
    assert apply(
        lib, "tdiv_i32", np.int32, np.array([-(2**31)], np.int32), np.array([-1], np.int32)
    ).tolist() == [-(2**31)]
    assert apply(
        lib, "pow_i64", np.int64, np.array([3, 2, -1, 5], np.int64), np.array([4, -1, -3, 0], np.int64)
    ).tolist() == [81, 0, -1, 1]


def test_float_floor_division_follows_python(lib: ctypes.CDLL) -> None:
    rng = np.random.default_rng(2)
    a = np.concatenate([rng.standard_normal(5000) * 9, rng.integers(-9, 9, 5000)]).astype(np.float32)
    b = np.concatenate(
        [rng.standard_normal(5000), rng.integers(1, 5, 5000) * rng.choice([-1, 1], 5000)]
    ).astype(np.float32)
    assert same(apply(lib, "div_f32", np.float32, a, b), np.floor_divide(a, b)).all()
    assert same(apply(lib, "mod_f32", np.float32, a, b) + 0, np.mod(a, b) + 0).all()


def test_extremes_carry_nan(lib: ctypes.CDLL) -> None:
    a, b = np.array([1, np.nan, 2], np.float32), np.array([np.nan, 1, 3], np.float32)
    assert same(apply(lib, "max_f32", np.float32, a, b), np.maximum(a, b)).all()
    assert same(apply(lib, "fmax_f32", np.float32, a, b), np.fmax(a, b)).all()


def test_blocks_keep_the_bound_on_sums(lib: ctypes.CDLL) -> None:
    """Note [Blocked sums]: additions on the longest path stay under 4 sqrt(n) + 16."""
    n = np.unique(np.concatenate([np.arange(1, 5000), 2 ** np.arange(2, 40), 3 ** np.arange(2, 25)])).astype(
        np.int64
    )
    limit = 4 * np.sqrt(n) + 16
    block = apply(lib, "blocks", np.int64, n)
    assert (block % 16 == 0).all()
    assert (np.minimum(block, n) / 16 + 4 + n / block <= limit).all()
    short = apply(lib, "short_blocks", np.int64, n)
    assert (np.minimum(short, n) + n / short <= limit).all()
    assert math.isclose(float(limit[0]), 20)
