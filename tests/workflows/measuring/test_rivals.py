"""What rivals are asked to compute, by their answers: the same as ours, or a reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.folder import write_tensors
from opwright.validators.trial import Trial
from opwright.workflows.measuring import agreement
from opwright.workflows.measuring.child import Missing
from opwright.workflows.measuring.workload import Workload, case_of, request_of, sets_of
from opwright.workflows.workbench import Workbench

pytest.importorskip("torch")

#: op -> extents and attributes: one for each way in which a rival's expression is made.
CASES: dict[str, Mapping[str, Any]] = {
    "add": {"a.B": [3, 4], "b.B": [4], "alpha": 2},
    "mul": {"B": [3, 4]},
    "relu": {"B": [7]},
    "gelu": {"B": [7]},
    "log": {"B": [7]},
    "where": {"B": [5]},
    "sum": {"B": [3], "N": [4], "dim": [1]},
    "amax": {"B": [3], "N": [4], "dim": [0]},
    "argmax": {"B": [3], "N": 4, "dim": 1},
    "var": {"B": [3], "N": [4], "dim": [1]},
    "cumsum": {"B": [3], "N": 4, "dim": 1},
    "softmax": {"B": [3], "N": 5, "axis": 1},
    "rms_norm": {"B": [3], "D": [4], "normalized_shape": [4]},
    "native_layer_norm": {"B": [3], "D": [4], "normalized_shape": [4]},
    "matmul": {"B": [], "M": 2, "K": 3, "N": 4},
    "linear": {"B": [2], "K": 3, "N": 4},
    "convolution": {
        "N": 1, "C": 2, "I": [5, 5], "O": 3, "G": 2, "K": [3, 3], "stride": [1, 1], "padding": [1, 1],
        "dilation": [1, 1],
    },
    "scaled_dot_product_attention": {"B": [1], "H": 2, "G": 2, "L": 4, "S": 4, "E": 8, "F": 8, "causal": True},
    "embedding": {"V": 9, "D": 4, "J": [3]},
    "gather": {},
    "contiguous": {"B": [3, 4]},
}  # fmt: skip
#: Who has no word for it.
CANNOT = {
    "torch-out": {"scaled_dot_product_attention", "rms_norm"},
    "onnxruntime": {"add", "var", "linear", "scaled_dot_product_attention", "embedding", "contiguous"},
    "jax": set[str](),
}


def asked(op: str, tmp_path: Path) -> tuple[dict[str, Any], Trial, Any]:
    spec = Workbench.here().registry.get(op)
    given = CASES[op] or dict(spec.test.cases[0])
    used, case = case_of(spec, Workload(given, "f32"), 0)
    request, arrays, trial = request_of(spec, used, case)
    request["seed"] = 0
    write_tensors(tmp_path / "arrays.safetensors", arrays)
    return request, trial, spec


def side(name: str) -> Any:
    if name == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="make bench installs it")
        from opwright.workflows.measuring.onnx_side import OnnxRuntime as Side
    elif name == "jax":
        pytest.importorskip("jax", reason="make bench installs it")
        from opwright.workflows.measuring.jax_side import Jax as Side  # type: ignore[assignment]
    else:
        from opwright.workflows.measuring import eager

        Side = {"torch": eager.Eager, "torch-out": eager.EagerOut}[name]  # type: ignore[assignment]
    return Side({"threads": 1})


@pytest.mark.parametrize("name", ["torch", "torch-out", "onnxruntime", "jax"])
def test_answers_lie_within_the_bounds_of_the_judge(name: str, tmp_path: Path) -> None:
    rival = side(name)
    cannot = set()
    for op in CASES:
        request, trial, spec = asked(op, tmp_path)
        try:
            loaded = rival.load(tmp_path, request)
        except Missing:
            cannot.add(op)
            continue
        answers = dict(loaded.answers(loaded.calls[0]()))
        balls = agreement.exact_balls(spec, trial)
        assert answers and balls is not None, op
        for n, a in answers.items():
            if a.dtype == np.int32:  # JAX counts so
                answers[n] = a.astype(np.int64)
        ratio, where = agreement.by_balls(answers, balls)
        assert ratio <= 1, f"{name}, {op}: {where}"
    assert cannot == CANNOT.get(name, set())


def test_the_function_that_people_write_is_called_where_it_does_the_same(tmp_path: Path) -> None:
    import torch

    from opwright.workflows.measuring.eager import Eager

    eager = Eager({"threads": 1})
    for op, function in {
        "softmax": torch._softmax,
        "matmul": torch.mm,
        "gelu": torch._C._nn.gelu,
    }.items():
        request, _, _ = asked(op, tmp_path)
        call = eager.load(tmp_path, request).calls[0]
        assert call.function is function, op
        assert "approximate" not in (call.kwargs or {})  # what is the default is not said


def test_an_operator_that_nobody_names_is_missing_with_the_reason(tmp_path: Path) -> None:
    request, _, _ = asked("linear", tmp_path)
    with pytest.raises(Missing, match="names no ONNX operator"):
        side("onnxruntime").load(tmp_path, request)
    with pytest.raises(Missing, match="no expression of"):
        side("jax").load(tmp_path, request | {"overload": "aten.nothing.default"})
    with pytest.raises(Missing, match="strides"):
        side("jax").load(tmp_path, request | {"layouts": {"a0": [1, 0]}})


def test_sets_hold_other_numbers_and_the_same_positions() -> None:
    arrays = {"x": np.arange(8, dtype="f"), "i": np.arange(8)}
    first, *others = sets_of(arrays, 1)
    assert len(others) == 3 and first["x"] is arrays["x"]
    for s in others:
        assert sorted(s["x"]) == list(range(8)) and s["i"] is arrays["i"]
    assert not np.array_equal(others[0]["x"], first["x"])


def test_a_transposed_input_keeps_its_order_in_memory() -> None:
    from opwright.workflows.measuring.ours import laid_out

    spec = Workbench.here().registry.get("contiguous")
    used, case = case_of(spec, Workload({"B": [3, 4]}, "f32", layout="transposed"), 0)
    request, arrays, _ = request_of(spec, used, case)
    assert request["layouts"] == {"a0": [1, 0]}
    a = laid_out(arrays["a0"], [1, 0])
    assert np.array_equal(a, arrays["a0"]) and a.T.flags.c_contiguous


def test_a_rival_may_be_off_from_us_by_both_bounds_and_no_more(tmp_path: Path) -> None:
    _, trial, spec = asked("gelu", tmp_path)
    balls = agreement.exact_balls(spec, trial)
    assert balls is not None
    r, v = balls["y"].radius, balls["y"].value
    ours, theirs, odd = ({"y": (v + k * r).astype("f")} for k in (0.5, -1.2, -2.2))
    near = agreement.around(ours, balls)
    assert agreement.by_balls(theirs, near)[0] <= 1 < agreement.by_balls(odd, near)[0]


def test_an_answer_that_differs_is_told_by_how_much() -> None:
    exact = {"y": np.array([1.0, 2.0])}
    eager = {"y": np.array([1.0, 2.0], "f") + np.float32(1e-7)}
    fine, far = {"y": np.array([1.0, 2.0], "f")}, {"y": np.array([1.0, 2.1], "f")}
    assert agreement.by_exact(fine, eager, eager, exact)[0] <= 1
    ratio, where = agreement.by_exact(fine, far, eager, exact)
    assert ratio > 1000 and "off by 0.1" in where
    odd = {"y": np.array([1.0, np.nan], "f")}
    assert agreement.by_exact(fine, odd, eager, exact)[0] == np.inf
    one, two = {"i": np.array([1])}, {"i": np.array([2])}
    assert agreement.by_exact(one, two, one, one)[1].startswith("`i` differs")
