"""Recorded calls as the cases of an operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opwright.generator.spec import OpSpec
from opwright.validators.cases import build_case
from opwright.validators.traced import TraceError, read_calls, with_calls
from opwright.validators.trial import Trial
from opwright.workflows.workbench import Workbench


def tensor(*shape: int, dtype: str = "f32") -> dict[str, Any]:
    return {"tensor": {"dtype": dtype, "shape": list(shape), "strides": None}}


def given(tmp_path: Path, op: str, *calls: tuple[str, dict[str, Any], int]) -> OpSpec:
    path = tmp_path / "calls.jsonl"
    rows = [{"schema": 1, "overload": o, "arguments": a, "count": n} for o, a, n in calls]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return with_calls(Workbench.here().one(op), read_calls(path), path)


def test_the_commonest_call_is_the_first_case(tmp_path: Path) -> None:
    spec = given(
        tmp_path,
        "softmax",
        ("aten._softmax.default", {"self": tensor(3, 7), "dim": -1, "half_to_float": False}, 1),
        ("aten._softmax.default", {"self": tensor(2, 5, 9), "dim": 1, "half_to_float": False}, 4),
        ("aten.relu.default", {"self": tensor(3)}, 9),
    )
    assert [c["x.shape"] for c in spec.test.cases] == [[2, 5, 9], [3, 7]]
    case = Trial.of_case(build_case(spec, "case0/f32/normal/contiguous/-/all", 0))
    assert case.arrays["x"].shape == (2, 5, 9) and case.attrs["axis"] == 1


def test_lists_and_broadcast_inputs_have_their_own_shapes(tmp_path: Path) -> None:
    cat = given(tmp_path, "cat", ("aten.cat.default", {"tensors": [tensor(2, 3), tensor(2, 4)], "dim": 1}, 1))
    case = Trial.of_case(build_case(cat, "case0/f32/normal/contiguous/-/all", 0))
    assert [case.arrays[f"xs.{k}"].shape for k in range(2)] == [(2, 3), (2, 4)]
    add = given(tmp_path, "add", ("aten.add.Tensor", {"self": tensor(2, 3), "other": tensor(3)}, 1))
    types = "+".join(add.test.cases[0]["types"])
    case = Trial.of_case(build_case(add, f"case0/{types}/normal/contiguous/-/all", 0))
    assert case.arrays["a"].shape == (2, 3) and case.arrays["b"].shape == (3,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no recorded call"),
        ('{"schema": 9, "overload": "a", "arguments": {}}', "schema 9"),
        ("", "has no call"),
    ],
)
def test_what_is_no_file_of_calls_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        with_calls(Workbench.here().one("softmax"), read_calls(path), path)
    with pytest.raises(TraceError, match="no file"):
        read_calls(tmp_path / "none.jsonl")
