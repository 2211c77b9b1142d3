"""Dtypes and promotion, compared with PyTorch where it is installed."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opwright.generator.types import (
    CATEGORIES,
    DType,
    Operand,
    accum,
    complex_of,
    default_dtype,
    exact_in,
    float_of,
    in_category,
    promote,
    promote_operands,
    real_of,
    rounded,
    stat_type,
    sum_type,
    wider,
)

NUMPY = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
TORCH = {**NUMPY, "bf16": "bfloat16"}
PAIRS = list(itertools.product(DType, DType))

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def test_every_dtype_has_a_row_and_a_name() -> None:
    assert [str(d) for d in DType] == [
        "bool",
        "u8",
        "i8",
        "i16",
        "i32",
        "i64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "c64",
        "c128",
    ]
    for d in DType:
        assert d.bytes in (1, 2, 4, 8, 16)
        assert d.min <= 0 < d.max
        assert (d.u > 0) == d.is_inexact


@pytest.mark.parametrize("d", [d for d in DType if d.value in NUMPY], ids=str)
def test_rows_agree_with_numpy(d: DType) -> None:
    dtype = np.dtype(NUMPY[d.value])
    assert dtype.itemsize == d.bytes
    if d.is_float:
        info = np.finfo(dtype)
        assert (d.min, d.max, d.u) == (float(info.min), float(info.max), float(info.eps) / 2)
        assert d.eta == float(info.smallest_subnormal) / 2
    elif d.is_integer:
        assert (d.min, d.max) == (np.iinfo(dtype).min, np.iinfo(dtype).max)


def test_bf16_is_the_upper_half_of_f32() -> None:
    largest = np.array(0x7F7F0000, np.uint32).view(np.float32)
    assert float(largest) == DType.BF16.max
    assert DType.BF16.u == 2.0**-8
    assert DType.BF16.eta == 2.0**-134


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=str)
def test_promotion_is_commutative_and_idempotent(a: DType, b: DType) -> None:
    t = promote(a, b)
    assert t is promote(b, a)
    assert promote(t, a) is t


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories_hold_only_dtypes_and_no_dtype_twice(name: str) -> None:
    assert len(set(CATEGORIES[name])) == len(CATEGORIES[name])
    assert name not in {d.value for d in DType}


def test_categories_nest_as_their_names_say() -> None:
    sets = {k: set(v) for k, v in CATEGORIES.items()}
    assert sets["float"] < sets["inexact"] < sets["number"] < sets["any"]
    assert sets["index"] < sets["integer"] < sets["ordered"] < sets["real"]
    assert sets["integral"] == sets["integer"] | {DType.BOOL}
    assert in_category(DType.F32, "float")
    assert in_category(DType.F32, "f32")
    assert not in_category(DType.F32, "f64")


def test_rules() -> None:
    assert [accum(d) for d in (DType.F16, DType.BF16, DType.F32, DType.BOOL, DType.I32)] == [
        DType.F32, DType.F32, DType.F32, DType.I64, DType.I32,
    ]  # fmt: skip
    assert [sum_type(d) for d in (DType.BOOL, DType.U8, DType.F16)] == [DType.I64, DType.I64, DType.F16]
    assert (complex_of(DType.F64), complex_of(DType.BF16), real_of(DType.C128)) == (
        DType.C128,
        DType.C64,
        DType.F64,
    )
    assert (float_of(DType.I64), float_of(DType.BF16), float_of(DType.C64)) == (
        DType.F32,
        DType.BF16,
        DType.C64,
    )
    assert (stat_type(DType.BF16, DType.F32), stat_type(DType.F32, DType.BF16)) == (DType.F32, DType.F32)
    assert stat_type(DType.BF16, DType.BF16) is DType.BF16
    assert wider(DType.I8, DType.U8, DType.F16) is DType.F16
    assert [default_dtype(v) for v in (True, 1, 1.0, 1j)] == [DType.BOOL, DType.I64, DType.F32, DType.C64]


def test_promotion_of_nothing_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="promotion of nothing"):
        promote_operands([])


def operands(torch: Any) -> Iterator[tuple[Operand, Any]]:
    for d in DType:
        dtype = getattr(torch, TORCH[d.value])
        yield Operand(d, 1), torch.zeros(1, dtype=dtype)
        yield Operand(d, 0), torch.zeros((), dtype=dtype)
    for value in (True, 2, 1.5, 1j):
        yield Operand(default_dtype(value), 0, weak=True), value


@needs_torch
def test_promotion_of_dtypes_is_pytorchs() -> None:
    import torch

    wrong = [
        (a, b)
        for a, b in PAIRS
        if getattr(torch, TORCH[promote(a, b).value])
        is not torch.promote_types(getattr(torch, TORCH[a.value]), getattr(torch, TORCH[b.value]))
    ]
    assert wrong == []


@needs_torch
def test_promotion_of_operands_is_pytorchs() -> None:
    import torch

    wrong = []
    for (a, x), (b, y) in itertools.product(operands(torch), repeat=2):
        want = torch.result_type(x, y)
        if want is torch.complex32:  # f16 beside a complex number: not a dtype of the language
            want = torch.complex64
        if getattr(torch, TORCH[promote_operands([a, b]).value]) is not want:
            wrong.append((a, b, want))
    assert wrong == []


WEAK_FLOAT, WEAK_COMPLEX = Operand(DType.F32, 0, weak=True), Operand(DType.C64, 0, weak=True)


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        ([Operand(DType.I32), Operand(DType.F64, 0), WEAK_COMPLEX], DType.C128),
        ([Operand(DType.F32), Operand(DType.I64, 0), WEAK_COMPLEX], DType.C64),
        ([Operand(DType.F32), Operand(DType.F64, 0), WEAK_COMPLEX], DType.C64),
        ([Operand(DType.BOOL), Operand(DType.U8, 0), WEAK_FLOAT], DType.F32),
        ([Operand(DType.U8), Operand(DType.I8), Operand(DType.F16, 0)], DType.F16),
        ([Operand(DType.F16), Operand(DType.BF16), WEAK_FLOAT], DType.F32),
    ],
)
def test_promotion_of_three_kinds(operands: list[Operand], result: DType) -> None:
    assert promote_operands(operands) is result
    assert promote_operands(operands[::-1]) is result


@pytest.mark.parametrize(("dtype", "like"), [(DType.F16, np.float16), (DType.BF16, ml_dtypes.bfloat16)])
def test_rounded_is_the_nearest_number_of_the_dtype(dtype: DType, like: type) -> None:
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(3000) * 10.0 ** rng.integers(-44, 39, 3000)
    edges = [
        0.1,
        65504,
        65519,
        65520,
        3.39e38,
        3.4e38,
        6e-8,
        3e-8,
        2.9e-8,
        1e-40,
        4.6e-41,
        -0.0,
        np.inf,
        -np.inf,
    ]
    with np.errstate(over="ignore"):
        for v in (*drawn, *edges):
            got, want = rounded(float(v), dtype), float(np.float64(v).astype(like))
            assert got == want and np.signbit(got) == np.signbit(want), v
            assert not exact_in(float(v), dtype) or got == v
    assert rounded(0.1, DType.F32) == 0.1
