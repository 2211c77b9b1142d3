"""Control flow, sequences, windows and layers of ONNX as programs: the flat graph gives what the file's own does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.aten import AtenTable
from opwright.generator.program.captured import CaptureError
from opwright.generator.program.onnx_convert import OnnxConverter
from opwright.generator.program.onnx_model import Reference

from .test_onnx import TABLE, parsed, row

onnx = pytest.importorskip("onnx")

MORE: AtenTable = {
    **TABLE,
    "onnx.Where": (row("where", "Where", "cond a b"),),
    "onnx.Greater": (row("gt", "Greater", "a b"),),
}
X = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)


def both(model: Any, inputs: dict[str, Any], given: dict[str, Any] | None = None) -> list[tuple[Any, Any]]:
    """Each output by the flat graph, and by the file's own."""
    made = OnnxConverter(model, MORE, "m", "m.onnx", given).run()
    own, flat = Reference(model).run(given or inputs), Reference(made.flat).run(inputs)
    return [(flat[v.name], own[v.name]) for v in model.graph.output if v.name in flat]


LOOP = """m (float[n, 6] x) => (float[n, 6] y, float[k, n, 6] ys) {
  k = Constant <value_int=4> ()
  yes = Constant <value = bool {1}> ()
  y, ys = Loop (k, yes, x) <
    body = g (int64 i, bool c, float[n, 6] a) => (bool go, float[n, 6] b, float[n, 6] o) {
      CONDITION
      f = Cast <to=1> (i)
      b = Add(a, f)
      o = Mul(b, b) }
  >
}"""


def test_a_loop_is_its_rounds() -> None:
    model = parsed(LOOP.replace("CONDITION", "go = Identity(c)"))
    made = OnnxConverter(model, MORE, "m", "m.onnx").run()
    assert [c.op for c in made.program.calls].count("add") == 4
    (y, ys), wanted = zip(*both(model, {"x": X}), strict=True)
    np.testing.assert_array_equal(y, wanted[0])
    assert ys.shape == (4, 3, 6), "what each round gives is put under a new axis"
    np.testing.assert_array_equal(ys, wanted[1])


@pytest.mark.parametrize("limit", [1.0, 2.5, 100.0])
def test_a_round_that_only_the_run_can_rule_out_keeps_the_state(limit: float) -> None:
    condition = f"s = ReduceMean <keepdims=0> (a) l = Constant <value_float={limit}> () go = Less(s, l)"
    model = parsed(LOOP.replace("CONDITION", condition))
    for got, want in both(model, {"x": X}):
        np.testing.assert_array_equal(got, want)


def test_a_branch_that_only_the_run_can_tell_is_chosen_by_element() -> None:
    text = """m (float[n, 6] x) => (float[n, 6] y) {
      s = ReduceMean <keepdims=0> (x)
      zero = Constant <value_float=0.0> ()
      yes = Greater(s, zero)
      y = If (yes) <
        then_branch = t () => (float[n, 6] a) { a = Tanh(x) },
        else_branch = e () => (float[n, 6] b) { b = Mul(x, x) }
      >
    }"""
    model = parsed(text)
    assert "where" in [c.op for c in OnnxConverter(model, MORE, "m", "m.onnx").run().program.calls]
    for x in (X, -X):
        ((got, want),) = both(model, {"x": x})
        np.testing.assert_array_equal(got, want)
    wide = parsed(text.replace("{ b = Mul(x, x) }", "{ b = Constant <value_floats=[1.0]> () }"))
    with pytest.raises(CaptureError, match=r"f32\['s0', '6'\] or f32\['1'\], as the data say"):
        OnnxConverter(wide, MORE, "m", "m.onnx").run()


def test_a_scan_goes_along_an_axis_that_is_known_and_no_other() -> None:
    text = """m (float[2] s, float[n, 6, 2] x) => (float[2] y, float[n, 6, 2] ys) {
      y, ys = Scan (s, x) <
        num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1],
        body = g (float[2] a, float[n, 2] r) => (float[2] b, float[n, 2] o) {
          axes = Constant <value_ints=[0]> ()
          t = ReduceSum <keepdims=0> (r, axes)
          b = Add(a, t)
          o = Mul(r, b) }
      >
    }"""
    x = np.arange(36, dtype=np.float32).reshape(3, 6, 2)
    made = OnnxConverter(parsed(text), MORE, "m", "m.onnx").run()
    flat = Reference(made.flat).run({"s": np.ones(2, np.float32), "x": x})
    state, rows = np.ones(2, np.float32), []
    for k in range(6)[::-1]:
        state = state + x[:, k].sum(0)
        rows.append(x[:, k] * state)
    np.testing.assert_array_equal(flat["y"], state)
    np.testing.assert_array_equal(flat["ys"], np.stack(rows, 1))
    varies = parsed(text.replace("float[n, 6, 2]", "float[n, t, 2]"))
    with pytest.raises(CaptureError, match="Scan over the extent s1, which varies"):
        OnnxConverter(varies, MORE, "m", "m.onnx").run()


def test_a_sequence_is_its_tensors() -> None:
    model = parsed(
        """m (seq(float) xs, float[2] y) => (seq(float) zs, float[k] w, int64 n) {
          ys = SequenceInsert(xs, y)
          zs = SequenceMap (ys) < body = g (float[2] a) => (float[2] b) { b = Add(a, a) } >
          w = ConcatFromSequence <axis=0> (zs)
          n = SequenceLength(zs)
        }"""
    )
    xs = [np.ones(2, np.float32), np.full(2, 3, np.float32)]
    y = np.array([5, 7], np.float32)
    given = {"xs": xs, "y": y}
    made = OnnxConverter(model, MORE, "m", "m.onnx", given).run()
    assert [b.name for b in made.program.inputs] == ["xs.0", "xs.1", "y"]
    assert [b.name for b in made.program.outputs] == ["zs.0", "zs.1", "zs.2", "w", "n"]
    flat = Reference(made.flat).run({"xs.0": xs[0], "xs.1": xs[1], "y": y})
    np.testing.assert_array_equal(flat["w"], np.array([2, 2, 6, 6, 10, 14]))
    assert int(flat["n"]) == 3


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("AveragePool <kernel_shape=[3, 2], pads=[0, 1, 2, 0], strides=[2, 1]>", (1, 2, 7, 6)),
        ("AveragePool <kernel_shape=[2, 2], dilations=[2, 3], ceil_mode=1, strides=[2, 2]>", (1, 2, 8, 8)),
        ("AveragePool <kernel_shape=[2, 2], pads=[2, 2, 2, 2], count_include_pad=1>", (1, 1, 4, 4)),
        ("MaxPool <kernel_shape=[3, 3], pads=[2, 2, 2, 2]>", (1, 2, 5, 5)),
        ("LpNormalization <axis=1, p=2>", (2, 3)),
    ],
)
def test_windows_that_no_pool_has_are_other_nodes(node: str, shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    model = parsed(
        f"m (float[{dims}] x) => (float[{', '.join('abcd'[: len(shape)])}] y) {{ y = {node} (x) }}", 22
    )
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    ((got, want),) = both(model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


def layer(op: str, **more: Any) -> Any:
    """A layer of five steps in two directions, and its weights."""
    gates, rng = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], np.random.default_rng(3)
    shapes = {"W": (2, gates * 3, 4), "R": (2, gates * 3, 3), "B": (2, 2 * gates * 3)}
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()
    ]
    node = onnx.helper.make_node(
        op, ["x", "W", "R", "B"], ["y", "h"], direction="bidirectional", hidden_size=3, **more
    )
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "m",
        [make("x", 1, [5, "n", 4])],
        [make("y", 1, [5, 2, "n", 3]), make("h", 1, [2, "n", 3])],
        weights,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_a_layer_that_no_operator_is_goes_step_by_step(op: str) -> None:
    """A clip that nothing reaches: the evaluator knows none."""
    model = layer(op, clip=1e6)
    x = np.random.default_rng(4).standard_normal((5, 2, 4)).astype(np.float32)
    made = OnnxConverter(model, MORE, "m", "m.onnx").run()
    assert not any(n.op_type == op for n in made.flat.graph.node)
    for got, want in both(model, {"x": x}):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_functions_that_a_layer_names_are_taken_in_order() -> None:
    model = layer(
        "RNN", activations=["Affine", "HardSigmoid"], activation_alpha=[0.5, 0.3], activation_beta=[0.1, 0.2]
    )
    made = OnnxConverter(model, MORE, "m", "m.onnx").run()
    x = np.random.default_rng(4).standard_normal((5, 2, 4)).astype(np.float32)
    got = Reference(made.flat).run({"x": x})
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for d, f in enumerate((lambda z: 0.5 * z + 0.1, lambda z: np.clip(0.3 * z + 0.2, 0, 1))):
        h = np.zeros((2, 3), np.float32)
        for k in range(5)[:: -1 if d else 1]:
            h = f(x[k] @ weights["W"][d].T + h @ weights["R"][d].T + weights["B"][d].reshape(2, 3).sum(0))
        np.testing.assert_allclose(got["h"][d], h, rtol=1e-4, atol=1e-5)


def test_a_slice_of_content_over_symbols_is_numbers_where_it_can_be(tmp_path: Path) -> None:
    """`Shape(x)[1:]` of an extent that varies and one that does not."""
    model = parsed(
        """m (float[n, 6] x) => (float[6] y) {
          sh = Shape(x)
          one = Constant <value_ints=[1]> ()
          two = Constant <value_ints=[2]> ()
          tail = Slice(sh, one, two)
          y = ConstantOfShape(tail)
        }"""
    )
    made = OnnxConverter(model, MORE, "m", "m.onnx").run()
    assert not made.program.inputs or made.program.values[made.program.outputs[0].value].shape[0].value == 6
