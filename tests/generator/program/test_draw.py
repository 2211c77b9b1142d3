"""Inputs for a program: drawn by its types, or like the example that its folder holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opwright.generator.program.draw import drawn_like, example_sizes, small_sizes, whole_columns
from opwright.generator.program.folder import Example, read_folder, write_folder
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import Binding, Call, Program, Symbol
from opwright.generator.types import DType

from .small_program import tensor

B, S, M = IntExpr.of("s0"), IntExpr.of("s1"), IntExpr.of("s2")
I64 = DType.I64
IDS = np.array([[1, 9, 9, 4, 5], [1, 9, 9, 6, 7]])


def text_and_mask() -> Program:
    """A text, and a mask whose batch nothing ties to it: PyTorch's masks index their rows by the text's."""
    values = [tensor("v1", B, S, dtype=I64), tensor("v2", M, S, dtype=I64), tensor("v3", B, S, dtype=I64)]
    symbols = {
        "s0": Symbol("s0", "input_ids", 0, 1),
        "s1": Symbol("s1", "input_ids", 1, 1),
        "s2": Symbol("s2", "attention_mask", 0, 1),
    }
    return Program(
        "text",
        "test",
        I64,
        {v.id: v for v in values},
        (Binding("input_ids", "v1"), Binding("attention_mask", "v2")),
        (Binding("y", "v3"),),
        (Call("add_0", "add", ("v1", "v2"), {}, ("v3",)),),
        symbols,
        tree={"inputs": [["input_ids", "attention_mask"], {}], "outputs": "y"},
    )


EXAMPLE = Example({"input_ids": IDS, "attention_mask": np.ones((2, 5), np.int64)}, {"input_ids": [9]})


def test_what_is_one_extent_in_the_example_stays_one() -> None:
    program = text_and_mask()
    assert small_sizes(program)["s0"] != small_sizes(program)["s2"]
    assert example_sizes(program, EXAMPLE, {}) == {"s0": 2, "s1": 5, "s2": 2}
    assert example_sizes(program, EXAMPLE, {"s0": 3, "s1": 7}) == {"s0": 3, "s1": 7, "s2": 3}
    assert example_sizes(program, EXAMPLE, {"s0": 3, "s2": 4}) == {"s0": 3, "s1": 5, "s2": 4}


@pytest.mark.parametrize("batch", [2, 3])
def test_a_text_drawn_anew_keeps_its_placeholders_where_they_are(batch: int) -> None:
    program = text_and_mask()
    sizes = example_sizes(program, EXAMPLE, {"s0": batch, "s1": 7})
    drawn = [drawn_like(program, EXAMPLE, sizes, seed)["input_ids"] for seed in range(4)]
    for ids in drawn:
        assert ids.shape == (batch, 7) and ids.max() <= 9 and ids.min() >= 1
        assert (ids[:, 1:3] == 9).all() and (ids == 9).sum() == 2 * batch
    assert len({ids.tobytes() for ids in drawn}) == 4


def test_columns_of_places_stay_whole_beside_numbers_that_are_not() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.integers(0, 4, (2, 6, 2)), rng.standard_normal((2, 6, 3))], -1).astype("f4")
    assert whole_columns(x) == [0, 1]
    assert whole_columns(np.ones((4, 4), "f4")) == []  # constant: nothing is told apart
    values = [tensor("v1", B, S, 5), tensor("v2", B, S, 5)]
    program = Program(
        "patches",
        "test",
        DType.F32,
        {v.id: v for v in values},
        (Binding("x", "v1"),),
        (Binding("y", "v2"),),
        (Call("relu_0", "relu", ("v1",), {}, ("v2",)),),
        {"s0": Symbol("s0", "x", 0, 1), "s1": Symbol("s1", "x", 1, 1)},
        tree={"inputs": [["x"], {}], "outputs": "y"},
    )
    got = drawn_like(program, Example({"x": x}), {"s0": 3, "s1": 8}, 1)["x"]
    assert got.shape == (3, 8, 5) and got.dtype == x.dtype
    assert whole_columns(got) == [0, 1] and got[..., :2].min() >= 0 and got[..., :2].max() <= 3


def test_a_folder_holds_its_example(tmp_path: Path) -> None:
    write_folder(tmp_path / "with", text_and_mask(), {}, example=EXAMPLE)
    write_folder(tmp_path / "without", text_and_mask(), {})
    found = read_folder(tmp_path / "with").example()
    assert found is not None and np.array_equal(found.arrays["input_ids"], IDS)
    assert found.stand == {"input_ids": [9]}
    assert read_folder(tmp_path / "without").example() is None
