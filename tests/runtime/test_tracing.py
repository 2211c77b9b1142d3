"""`ow.trace`: what a PyTorch program calls, as lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import opwright as ow

torch = pytest.importorskip("torch")


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_call_is_its_overload_and_the_facts_of_its_arguments(tmp_path: Path) -> None:
    x = torch.randn(3, 4).t()
    with ow.trace(tmp_path / "calls.jsonl"):
        for _ in range(2):
            torch.softmax(x, 1)
        torch.cat([x, x.contiguous()], 0)
        torch.full((2,), float("inf"), dtype=torch.bfloat16)
    rows = {r["overload"]: r for r in recorded(tmp_path / "calls.jsonl")}
    softmax = rows["aten._softmax.default"]
    assert softmax["count"] == 2 and softmax["arguments"]["dim"] == 1
    assert softmax["arguments"]["self"] == {"tensor": {"dtype": "f32", "shape": [4, 3], "strides": [1, 4]}}
    tensors = rows["aten.cat.default"]["arguments"]["tensors"]
    assert [t["tensor"]["strides"] for t in tensors] == [[1, 4], [3, 1]]
    full = rows["aten.full.default"]["arguments"]
    assert full["fill_value"] == {"float": "inf"} and full["dtype"] == {"dtype": "bf16"}


def test_what_was_recorded_is_kept_when_the_program_fails(tmp_path: Path) -> None:
    def program() -> None:
        with ow.trace(tmp_path / "calls.jsonl"):
            torch.ones(2).add(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    found = [r["overload"] for r in recorded(tmp_path / "calls.jsonl")]
    assert found == ["aten.ones.default", "aten.add.Tensor"]


def test_without_torch_there_is_one_clear_error() -> None:
    code = (
        "import opwright as ow\ntry: ow.trace('x').__enter__()\nexcept ow.OpValueError as e: print(e, e.hint)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "torch is not imported" in ran.stdout and "import torch first" in ran.stdout, ran.stderr
