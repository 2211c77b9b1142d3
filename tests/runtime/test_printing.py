"""repr of a Tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opwright as ow


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            [[1.0, -2.5], [0.0, float("nan")]],
            "tensor([[ 1.0000, -2.5000],\n        [ 0.0000,     nan]], f32)",
        ),
        ([[1.0, 20.0]], "tensor([[ 1., 20.]], f32)"),
        ([1e-7, 1.0], "tensor([1.0000e-07, 1.0000e+00], f32)"),
        ([1e12], "tensor([1.0000e+12], f32)"),
        ([[1, -20], [300, 4]], "tensor([[  1, -20],\n        [300,   4]], i64)"),
        ([True, False], "tensor([ True, False], bool)"),
        (3, "tensor(3, i64)"),
        ([1 + 2.5j, -1j], "tensor([ 1.+2.5000j, -0.-1.0000j], c64)"),
        ([[], []], "tensor([[], []], f32[2, 0])"),
    ],
)
def test_by_example(data: Any, text: str) -> None:
    assert repr(ow.tensor(data)).replace(",\n        []", ", []") == text


def test_long_axes_are_cut_and_the_shape_is_said() -> None:
    text = repr(ow.tensor(np.arange(3000).reshape(3, 1000)))
    assert text.splitlines()[0] == "tensor([[   0,    1,    2, ...,  997,  998,  999],"
    assert text.endswith("i64[3, 1000])") and len(text.splitlines()) == 3
    assert repr(ow.zeros(2000)) == "tensor([0., 0., 0., ..., 0., 0., 0.], f32[2000])"


def test_long_rows_are_wrapped() -> None:
    lines = repr(ow.tensor(np.arange(100))).splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines)


def test_planes_stand_apart() -> None:
    assert repr(ow.zeros((2, 1, 1), "i8")) == "tensor([[[0]],\n\n        [[0]]], i8)"
