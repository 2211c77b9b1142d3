"""The first operator whose output makes the outputs leave eager's: found by halving, in few runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.folder import write_tensors
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import Binding, Call, Program, Symbol, Value, View
from opwright.generator.program.views import contiguous_strides
from opwright.generator.types import DType
from opwright.workflows.bisection import first_diverging, halved

STEPS = ("exp", "tanh", "sin", "cos", "sqrt_abs", "tanh", "exp", "sin", "cos")
NUMPY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt_abs": lambda x: np.sqrt(np.abs(x)),
}


def chain() -> Program:
    """A call after the other, a transposed view in the middle, all over one extent that varies."""
    n = IntExpr.of("s0")
    four = IntExpr.of(4)
    values = {"x": Value("x", DType.F32, (n, four), contiguous_strides((n, four)))}
    nodes: list[Any] = []
    last = "x"
    for k, op in enumerate(STEPS):
        if k == 4:
            values["t"] = Value("t", DType.F32, (four, n), (IntExpr.of(1), four))
            nodes.append(View(last, "t", (four, n), (IntExpr.of(1), four), IntExpr.of(0)))
            last = "t"
        shape = values[last].shape
        values[f"v{k}"] = Value(f"v{k}", DType.F32, shape, contiguous_strides(shape))
        nodes.append(Call(f"{op}_{k}", op, (last,), {}, (f"v{k}",), f"model.py:{10 + k}"))
        last = f"v{k}"
    return Program(
        "chain", "test", DType.F32, values, (Binding("x", "x"),), (Binding("y", last),), tuple(nodes),
        {"s0": Symbol("s0", "x", 0)},
    )  # fmt: skip


class Kernels:
    """Stands for a loaded program: the operators in NumPy, one of them off by a share."""

    def __init__(self, program: Program, bad: str, by: float = 1e-3) -> None:
        self.calls, self.bad, self.by = {c.id: c for c in program.calls}, bad, by
        self.asked = 0

    def run_call(self, id: str, inputs: Sequence[Any], symbols: Any = None) -> list[Any]:
        self.asked += 1
        out = NUMPY[self.calls[id].op](inputs[0]).astype(np.float32)
        return [out * np.float32(1 + self.by) if id == self.bad else out]


def record(path: Path, program: Program) -> Path:
    """What a capture would have written of the chain."""
    at = path / "0"
    at.mkdir(parents=True)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    found: dict[Any, dict[str, Any]] = {}
    for kind in (np.float32, np.float64):
        value = x.astype(kind)
        found[kind] = {}
        for k, op in enumerate(STEPS):
            value = value.T if k == 4 else value
            value = NUMPY[op](value).astype(kind)
            found[kind][f"v{k}"] = np.ascontiguousarray(value)
    last = f"v{len(STEPS) - 1}"
    write_tensors(at / "inputs.safetensors", {"x": x})
    write_tensors(at / "values.safetensors", found[np.float32])
    write_tensors(at / "outputs_f32.safetensors", {"y": found[np.float32][last]})
    write_tensors(at / "outputs_f64.safetensors", {"y": found[np.float64][last]})
    (at / "record.json").write_text(json.dumps({"symbols": {"s0": 3}}))
    write_tensors(path / "weights.safetensors", {})
    return at


@pytest.mark.parametrize("bad", range(len(STEPS)))
def test_the_wrong_operator_is_named_wherever_it_stands(tmp_path: Path, bad: int) -> None:
    p = chain()
    at = record(tmp_path, p)
    kernels = Kernels(p, f"{STEPS[bad]}_{bad}")
    found = first_diverging(p, tmp_path, at, kernels)
    assert found is not None
    assert (found.id, found.site) == (f"{STEPS[bad]}_{bad}", f"model.py:{10 + bad}")


def test_nothing_is_named_where_all_is_well(tmp_path: Path) -> None:
    p = chain()
    assert first_diverging(p, tmp_path, record(tmp_path, p), Kernels(p, "", 0.0)) is None


def test_halving_asks_a_logarithm() -> None:
    asked: list[int] = []

    def holds(k: int) -> bool:
        asked.append(k)
        return k >= 777

    assert halved(1000, holds) == 777
    assert len(asked) <= 12
    assert halved(10, lambda k: True) is None and halved(10, lambda k: False) is None
