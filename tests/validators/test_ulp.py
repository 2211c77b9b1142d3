"""The functions of f32 keep the ulp that the oracle assumes, in every dialect that runs here."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from opwright import toolchain
from opwright.generator.expr import FUNCTIONS
from opwright.validators import ulp

DIALECTS = [d for d in toolchain.DIALECTS if toolchain.runs_here(d)]
#: Not made of double arithmetic: a few roundings of float.
SHORT = {"cos", "erf", "exp", "expm1", "log1p", "log2", "log10", "rsqrt", "sigmoid", "sin", "sqrt", "tanh"}


@pytest.fixture(scope="module", params=DIALECTS)
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return ulp.library(request.param)


@pytest.mark.parametrize("name", ulp.UNARY)
def test_a_function_keeps_its_ulp(lib: ctypes.CDLL, name: str) -> None:
    worst = ulp.measure(lib, name, 9973)
    assert worst.ulp <= FUNCTIONS[name].ulp, worst.line()
    assert name in SHORT or worst.ulp < 1, worst.line()


def test_the_command_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert ulp.main(["log", "--step", "1000003"]) == 0
    assert "log" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        ulp.main(["no_such_function"])


def test_a_wrong_function_is_caught() -> None:
    rows = (
        ulp._SOURCE
        + "OWK_FN float owk_bad_f32(float x) { return x == 0 ? 1.0f : __builtin_logf(x) * 1.000001f; }\n"
    )
    path = toolchain.compile_library({"bad.cpp": rows + "MEASURE(bad, __builtin_log(x))\n"}, name="bad")
    call = ctypes.CDLL(str(path)).measure_bad
    call.restype = ctypes.c_double
    assert call(ctypes.c_int64(1000003), ctypes.byref(ctypes.c_uint32())) > 4


EDGES = np.array(
    [0, 1, 2, 0.5, 3, 4, 1e30, 1e-30, 1e-45, np.inf, np.nan, 2.5, 16777217, 127, 128, 0.9999999, 150],
    np.float32,
)


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_functions_of_two_floats(name: str) -> None:
    source = f"""#include "opwright/kernel.h"
extern "C" void f(const float* x, const float* z, float* y, int64_t n) {{
  OWK_IVDEP
  for (int64_t i = 0; i < n; ++i) y[i] = owk_{name}_f32(x[i], z[i]);
}}
"""
    lib = ctypes.CDLL(str(toolchain.compile_library({"two.cpp": source}, name="two")))
    edges = np.concatenate([EDGES, -EDGES])
    rng = np.random.default_rng(3)
    near = rng.standard_normal(200_000).astype(np.float32) * np.float32(4)
    a = np.concatenate(
        [np.repeat(edges, edges.size), near, np.abs(near), np.float32(1) + near / np.float32(1e5)]
    )
    b = np.concatenate([np.tile(edges, edges.size), near[::-1], near[::-1] * 9, near[::-1] * np.float32(1e5)])
    y = np.empty_like(a)
    lib.f(*(ctypes.c_void_p(v.ctypes.data) for v in (a, b, y)), ctypes.c_int64(a.size))
    with np.errstate(all="ignore"):
        wide = {"pow": np.power, "atan2": np.arctan2}[name](a.astype(np.float64), b.astype(np.float64))
        want = wide.astype(np.float32)
        spacing = np.maximum(np.abs(np.spacing(want)).astype(np.float64), 2.0**-149)
        off = np.abs(y.astype(np.float64) - wide) / spacing
    special = ~np.isfinite(want) | ~np.isfinite(y) | (want == 0) | (y == 0)
    same = (y.view(np.int32) == want.view(np.int32)) | (np.isnan(y) & np.isnan(want))
    edge = special & ~same & (off <= 1)  # rounds to the least float or to nothing
    bad = (special & ~same & ~edge) | (~special & ~(off <= FUNCTIONS[name].ulp))
    assert not bad.any(), list(zip(a[bad][:5], b[bad][:5], y[bad][:5], want[bad][:5], strict=True))


@pytest.mark.parametrize("name", [n for n in ulp.UNARY if hasattr(np, n)])
def test_zeros_infinities_and_nan_are_what_they_should_be(name: str) -> None:
    source = f"""#include "opwright/kernel.h"
extern "C" void f(const float* x, float* y, int64_t n) {{
  OWK_IVDEP
  for (int64_t i = 0; i < n; ++i) y[i] = owk_{name}_f32(x[i]);
}}
"""
    lib = ctypes.CDLL(str(toolchain.compile_library({"one.cpp": source}, name="one")))
    x = np.concatenate([EDGES, -EDGES])
    y = np.empty_like(x)
    lib.f(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    special = ~np.isfinite(want) | (want == 0)
    same = (y.view(np.int32) == want.view(np.int32)) | (np.isnan(y) & np.isnan(want))
    assert same[special].all(), (x[special & ~same], y[special & ~same])
