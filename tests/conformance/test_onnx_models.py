"""Whole ONNX graphs, converted and run by our kernels, beside onnx's reference evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.folder import write_folder
from opwright.generator.program.onnx_convert import OnnxConverter
from opwright.generator.program.onnx_model import Reference
from opwright.program import Program

from .onnx_nodes import table

onnx = pytest.importorskip("onnx")
pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def parsed(text: str, **tensors: Any) -> Any:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in tensors.items())
    onnx.checker.check_model(model)
    return model


def loaded(model: Any, folder: Path) -> Program:
    made = OnnxConverter(model, table(), "m", "m.onnx").run()
    assert not [c.why for c in made.program.calls if c.missing]
    write_folder(folder, made.program, made.tensors)
    return Program.load(folder)


def agree(program: Program, model: Any, inputs: dict[str, Any]) -> None:
    want, got = Reference(model).run(inputs), program.run(inputs)
    for v in model.graph.output:
        np.testing.assert_allclose(got[v.name].numpy(), want[v.name], rtol=1e-5, atol=1e-6)


def test_places_and_extents_that_only_the_run_can_tell(tmp_path: Path) -> None:
    model = parsed(
        """m (float[n, 6] x, int64[1] start, int64[1] end, int64[1] k, int64[2] shape, int64[4] pads, int64 limit)
           => (float[a, 6] y, float[b, c] t, float[d, e] r, float[f, g] p, int64[h] s) {
          y = Slice(x, start, end)
          t, i = TopK(x, k)
          r = Reshape(x, shape)
          p = Pad(x, pads)
          zero = Constant <value_int=0> ()
          two = Constant <value_int=2> ()
          s = Range(zero, limit, two)
        }"""
    )
    program = loaded(model, tmp_path / "p")
    big, i64 = np.iinfo(np.int64), np.int64
    for start, end in [(1, 3), (-2, big.max), (big.min, -1), (3, 1), (-9, 9), (0, 0)]:
        given = {"start": np.array([start], i64), "end": np.array([end], i64), "k": np.array([3], i64)}
        given |= {
            "shape": np.array([8, 3], i64),
            "pads": np.array([1, 0, 0, 2], i64),
            "limit": np.array(7, i64),
        }
        agree(program, model, {"x": X} | given)
    with pytest.raises(Exception, match="a reshape keeps the number of elements"):
        program.run({"x": X} | given | {"shape": np.array([8, 2], i64)})


def test_extents_that_vary_stay_where_nothing_changes_them(tmp_path: Path) -> None:
    """A resize of a batch of pictures, an axis backwards, and what onnx's inference loses sight of."""
    model = parsed(
        """m (float[n, 2, 3, 4] x) => (float[n, 2, 5, 8] y, float[n, 2, 3, 4] z) {
          sh = Shape(x)
          batch = Slice(sh, zero, one)
          rest = Constant <value_ints=[2, 5, 8]> ()
          sizes = Concat <axis=0> (batch, rest)
          y = Resize <mode="linear", coordinate_transformation_mode="align_corners"> (x, , , sizes)
          z = Slice(x, minus, end, zero, minus)
        }""",
        minus=np.array([-1]),
        end=np.array([np.iinfo(np.int64).min + 1]),
        zero=np.array([0]),
        one=np.array([1]),
    )
    program = loaded(model, tmp_path / "p")
    for n in (1, 3):
        agree(
            program, model, {"x": np.random.default_rng(n).standard_normal((n, 2, 3, 4)).astype(np.float32)}
        )


def test_rounds_and_branches_that_only_the_run_can_tell(tmp_path: Path) -> None:
    model = parsed(
        """m (float[n, 6] x, float limit) => (float[n, 6] z, float[k, n, 6] ys) {
          k = Constant <value_int=5> ()
          yes = Constant <value = bool {1}> ()
          y, ys = Loop (k, yes, x) <
            body = g (int64 i, bool c, float[n, 6] a) => (bool go, float[n, 6] b, float[n, 6] o) {
              s = ReduceMax <keepdims=0> (a)
              go = Less(s, limit)
              b = Add(a, a)
              o = Neg(b) }
          >
          m = ReduceMean <keepdims=0> (y)
          big = Greater(m, limit)
          z = If (big) < then_branch = t () => (float[n, 6] u) { u = Exp(x) },
                         else_branch = e () => (float[n, 6] v) { v = MatMul(y, w) } >
        }""",
        w=np.eye(6, dtype=np.float32) * 2,
    )
    program = loaded(model, tmp_path / "p")
    for limit in (-9.0, 1.0, 4.0, 1e9):
        for x in (X, X + 3):
            agree(program, model, {"x": x, "limit": np.array(limit, np.float32)})


def test_boxes_of_a_detector(tmp_path: Path) -> None:
    """Scores and corners from a convolution; how many boxes are left is known when it runs."""
    rng = np.random.default_rng(1)
    weights = {
        f"w{k}": rng.standard_normal(s).astype(np.float32) * 0.4
        for k, s in enumerate([(8, 3, 3, 3), (4, 8, 1, 1), (2, 8, 1, 1)])
    }
    model = parsed(
        """m (float[b, 3, 12, 12] x) => (int64[n, 3] chosen, float[n] best) {
          c = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (x, w0)
          r = Relu(c)
          boxes = Conv(r, w1)
          s = Conv(r, w2)
          boxes2 = Reshape(boxes, four)
          boxes3 = Transpose <perm=[0, 2, 1]> (boxes2)
          s2 = Reshape(s, two)
          scores = Sigmoid(s2)
          chosen = NonMaxSuppression <center_point_box=1> (boxes3, scores, most, overlap, least)
          best = GatherND(scores, chosen)
        }""",
        four=np.array([0, 4, -1]),
        two=np.array([0, 2, -1]),
        most=np.array([7]),
        overlap=np.array([0.3], np.float32),
        least=np.array([0.45], np.float32),
        **weights,
    )
    program = loaded(model, tmp_path / "p")
    for k in (1, 2, 3):
        agree(program, model, {"x": rng.standard_normal((k, 3, 12, 12)).astype(np.float32)})


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("layout", [0, 1])
def test_a_layer_that_an_operator_of_ours_is(op: str, layout: int, tmp_path: Path) -> None:
    """Both directions, states that are given, gates in PyTorch's order; steps that vary."""
    gates, rng = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], np.random.default_rng(3)
    shapes = {"w": (2, gates * 3, 4), "r": (2, gates * 3, 3), "b": (2, 2 * gates * 3)}
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    more = "linear_before_reset=1," if op == "GRU" else ""
    cell = ", c" if op == "LSTM" else ""
    line, state = ("n, s, 4", "n, 2, 3") if layout else ("s, n, 4", "2, n, 3")
    out = "n, s, 2, 3" if layout else "s, 2, n, 3"
    model = parsed(
        f"""m (float[{line}] x, float[{state}] h, float[{state}] c) => (float[{out}] y, float[{state}] l) {{
          y, l = {op} <direction="bidirectional", hidden_size=3, {more} layout={layout}> (x, w, r, b, , h{cell})
        }}""",
        **weights,
    )
    program = loaded(model, tmp_path / "p")
    for s, n in ((5, 2), (1, 3)):
        x = rng.standard_normal((n, s, 4) if layout else (s, n, 4)).astype(np.float32)
        h, c = (rng.standard_normal((n, 2, 3) if layout else (2, n, 3)).astype(np.float32) for _ in "hc")
        agree(program, model, {"x": x, "h": h, "c": c})
