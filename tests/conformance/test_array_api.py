"""The array API standard's functions hold for drawn arguments; the page says what does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opwright as ow
import opwright.array_api as xp

from .array_api import ATTRIBUTES, DRAWS, METHODS, PAGE, WHY, absent, differs, page, trouble

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_function(name: str) -> None:
    @given(st.integers(0, 2**32 - 1))
    def holds(seed: int) -> None:
        assert trouble(name, seed) == ""

    holds()


@pytest.mark.parametrize("name", sorted(WHY))
def test_what_the_page_says_does_not_hold_does_not(name: str) -> None:
    assert differs(name, WHY[name][1])


def test_nothing_is_absent() -> None:
    assert absent() == [] and len(METHODS) > 50 and len(ATTRIBUTES) == 7


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_namespace_is_the_modules_names() -> None:
    x = ow.zeros(2)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ow.OpValueError, match=r"version 2019.01 of the array API standard is not spoken"):
        x.__array_namespace__(api_version="2019.01")
    assert all(hasattr(xp, name) for name in xp.__all__)
    assert {n for n in DRAWS if "." not in n} <= set(xp.__all__)


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert (
        info.default_device() == "cpu"
        and info.devices() == ["cpu"]
        and info.capabilities()["max dimensions"] == 16
    )
    assert info.default_dtypes()["real floating"] == xp.float32 == xp.asarray([1.0]).dtype
    assert info.default_dtypes()["integral"] == xp.asarray([1]).dtype
    assert info.default_dtypes()["complex floating"] == xp.asarray([1j]).dtype
    assert info.dtypes(kind="unsigned integer") == {"uint8": "u8"} and "float16" not in info.dtypes()
    with pytest.raises(ow.OpValueError, match="the device must be cpu, got cuda:0"):
        xp.zeros(2, device="cuda:0")


def test_numbers_are_weak_and_arrays_of_rank_0_are_not() -> None:
    x = xp.asarray([1.0, 2.0])
    assert (
        xp.add(x, 2).dtype == xp.float32 and xp.add(x, xp.asarray(2.0, dtype=xp.float64)).dtype == xp.float64
    )
    assert xp.result_type(xp.int8, 2) == xp.int8 and xp.result_type(xp.int8, xp.uint8) == xp.int16
    assert xp.result_type(xp.float64, 1j) == xp.complex128
    assert xp.can_cast(xp.int8, xp.int64) and not xp.can_cast(xp.float64, xp.float32)


def test_copies_are_made_where_they_are_asked_for() -> None:
    a = np.arange(3.0)
    assert np.shares_memory(xp.asarray(a).numpy(), a) and not np.shares_memory(
        xp.asarray(a, copy=True).numpy(), a
    )
    x = xp.asarray(a)
    assert xp.asarray(x) is x and xp.astype(x, x.dtype, copy=False) is x and xp.astype(x, x.dtype) is not x
    with pytest.raises(ow.OpValueError, match="without a copy"):
        xp.asarray([1, 2], copy=False)
    with pytest.raises(ow.OpTypeError, match="do not allow a view"):
        xp.reshape(xp.permute_dims(xp.zeros((2, 3)), (1, 0)), (6,), copy=False)
    assert xp.reshape(x, (3, 1), copy=True).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: xp.squeeze(xp.zeros((2, 1)), 0), "axis 0 has extent 2"),
        (lambda: xp.take(xp.zeros((2, 2)), xp.asarray([0])), "an axis must be named"),
        (lambda: xp.cumulative_sum(xp.zeros((2, 2))), "an axis must be named"),
        (lambda: xp.nonzero(xp.asarray(1)), "at least one axis"),
        (lambda: xp.meshgrid(xp.zeros(2), indexing="zz"), "indexing"),
        (lambda: xp.iinfo(xp.float32), "holds no integers"),
        (lambda: xp.finfo(xp.int8), "holds no floats"),
        (lambda: xp.result_type(1, 2.0), "an array or a dtype is wanted"),
        (lambda: xp.vecdot(xp.zeros(2), xp.zeros(1)), "differ"),
        (lambda: xp.linalg.qr(xp.zeros((2, 2)), mode="r"), "mode"),
        (lambda: xp.searchsorted(xp.zeros(2), 1.0, side="middle"), "side"),
    ],
)
def test_wrong_arguments_say_why(call: object, text: str) -> None:
    assert callable(call)
    with pytest.raises((ow.OpValueError, ow.OpTypeError), match=text):
        call()


def test_unique_all_by_example() -> None:
    values, indices, inverse, counts = xp.unique_all(xp.asarray([[3, 1], [3, 2]]))
    assert values.tolist() == [1, 2, 3] and indices.tolist() == [1, 3, 0]
    assert inverse.tolist() == [[2, 0], [2, 1]] and counts.tolist() == [1, 1, 2]
