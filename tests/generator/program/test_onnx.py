"""An ONNX graph as a program: extents over symbols, views, function bodies, what is refused, what is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.aten import AtenRow, table_of
from opwright.generator.program.capture_worker import Clock
from opwright.generator.program.captured import CaptureError
from opwright.generator.program.folder import read_tensors
from opwright.generator.program.models import TargetError, target_kind
from opwright.generator.program.onnx_convert import OnnxConverter
from opwright.generator.program.onnx_model import read_model
from opwright.generator.program.onnx_record import work

onnx = pytest.importorskip("onnx")


def row(op: str, name: str, inputs: str, attrs: str = "", **more: Any) -> AtenRow:
    names, own = inputs.split(), attrs.split()
    return AtenRow(
        op,
        f"onnx.{name}",
        more.pop("map", tuple((f"#{k}", n) for k, n in enumerate([*names, *own]))),
        tuple(names),
        tuple(own),
        **more,
    )


SUM = (("data", "x"), ("axes", "dim"), ("keepdims", "keepdim"), ("dtype", "dtype"))
TABLE = table_of(
    [
        row("add", "Add", "a b"),
        row("mul", "Mul", "a b"),
        row("sub", "Sub", "a b"),
        row("matmul", "MatMul", "a b"),
        row("softmax", "Softmax", "x", "axis"),
        row("tanh", "Tanh", "x"),
        row("cat", "Concat", "xs", "dim"),
        row("sum", "ReduceSum", "x", "dim keepdim dtype", map=SUM),
    ]
)


def parsed(text: str, opset: int = 18, **tensors: np.ndarray) -> Any:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in tensors.items())
    onnx.checker.check_model(model)
    return model


W = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)


def test_extents_that_the_graph_computes_are_expressions() -> None:
    model = parsed(
        """m (float[n, t, 6] x) => (float[n, t, 2, 3] y) {
          sh = Shape(x)
          two = Constant <value_ints=[0, 1]> ()
          head = Gather <axis=0> (sh, two)
          tail = Constant <value_ints=[2, 3]> ()
          target = Concat <axis=0> (head, tail)
          z = MatMul(x, w)
          y = Reshape(z, target)
        }""",
        w=W,
    )
    p = OnnxConverter(model, TABLE, "m", "m.onnx").run().program
    assert [c.op for c in p.calls] == ["matmul"]
    (out,) = p.outputs
    assert [str(e) for e in p.values[out.value].shape] == ["s0", "s1", "2", "3"]
    assert [b.name for b in p.weights] == ["w"]


def test_an_extent_named_by_a_sum_is_a_sum() -> None:
    model = parsed("m (float[past, 2] c, float[past, 2] x) => (float[past, 2] y) { y = Add(x, c) }")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "past + 1"
    converter = OnnxConverter(model, TABLE, "m", "m.onnx")
    converter.take_inputs(list(model.graph.input))
    assert [str(e) for e in converter.env["x"].shape] == ["s0 + 1", "2"]


def test_what_no_map_says_is_what_onnx_defines_it_by() -> None:
    model = parsed("m (float[n, 6] x) => (float[n, 6] y) { y = Softsign(x) }", opset=18)
    found = OnnxConverter(model, TABLE, "m", "m.onnx").run()
    calls = found.program.calls
    assert [c.op for c in calls if c.missing], "Abs and Div are in no row here"
    assert {c.op for c in calls} >= {"add", "missing:onnx.Abs"}
    assert calls[-1].why == "no operator claims this ONNX operator"


def test_constants_are_folded_and_a_branch_is_taken() -> None:
    model = parsed(
        """m (float[n, 6] x) => (float[n, 6] y) {
          a = Constant <value_float=2.0> ()
          b = Mul(a, a)
          yes = Greater(b, a)
          k = If (yes) <
            then_branch = g1 () => (float u) { u = Sqrt(b) },
            else_branch = g2 () => (float v) { v = Neg(b) }
          >
          y = Mul(x, k)
        }"""
    )
    found = OnnxConverter(model, TABLE, "m", "m.onnx").run()
    assert [c.op for c in found.program.calls] == ["mul"]
    (constant,) = found.program.constants
    assert float(found.tensors[constant.name]) == 2.0


def test_a_loop_is_missing_by_name() -> None:
    model = parsed(
        """m (float[n] x, int64 k) => (float[n] y) {
          t = Constant <value_int=1> ()
          yes = Cast <to=9> (t)
          y = Loop (k, yes, x) <
            body = g (int64 i, bool c, float[n] a) => (bool c2, float[n] b) { c2 = Identity(c) b = Add(a, a) }
          >
        }"""
    )
    with pytest.raises(CaptureError, match="Loop"):
        OnnxConverter(model, TABLE, "m", "m.onnx").run()


@pytest.mark.parametrize("opset", [1, 5, 999])
def test_an_unknown_opset_is_refused(tmp_path: Path, opset: int) -> None:
    model = parsed("m (float[n, 6] x) => (float[n, 6] y) { y = Tanh(x) }")
    model.opset_import[0].version = opset
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(TargetError, match=r"opset|cannot be read"):
        read_model(path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x09 not a model")
    with pytest.raises(TargetError, match="cannot be read"):
        read_model(path)
    assert target_kind(str(path)) == "onnx"
    with pytest.raises(TargetError, match="there is no file"):
        target_kind(str(tmp_path / "none.onnx"))


def test_records_hold_what_the_reference_says(tmp_path: Path) -> None:
    """Values of every call, at two sets of extents, and a comparison that sees."""
    model = parsed(
        """m (float[n, 6] x) => (float[n, 6] y) {
          z = MatMul(x, w)
          p = Softmax <axis=-1> (z)
          one = Constant <value_ints=[-1]> ()
          s = ReduceSum <keepdims=1> (z, one)
          t = Mul(p, s)
          y = Tanh(t)
        }""",
        w=W,
    )
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    facts = work(str(path), tmp_path / "out", TABLE, clock=Clock(None))
    assert facts["dynamic"] == "x[0]"
    assert facts["sensitivity"]["total"] >= 8
    assert facts["sensitivity"]["detected"] / facts["sensitivity"]["total"] >= 0.95
    shapes = set()
    for k in "01":
        at = tmp_path / "out" / "records" / k
        x = read_tensors(at / "inputs.safetensors")["x"]
        shapes.add(x.shape)
        z = x.astype(np.float64) @ W.astype(np.float64)
        p = np.exp(z - z.max(-1, keepdims=True))
        want = np.tanh(p / p.sum(-1, keepdims=True) * z.sum(-1, keepdims=True))
        np.testing.assert_allclose(read_tensors(at / "outputs_f64.safetensors")["y"], want, rtol=1e-9)
        values = read_tensors(at / "values.safetensors")
        assert len(values) == 7  # x, w, and five results
    assert len(shapes) == 2
    assert json.loads((tmp_path / "out" / "capture.json").read_text())["half"].startswith("an ONNX graph")


def test_run_takes_a_file_and_says_what_is_missing(tmp_path: Path) -> None:
    from opwright.workflows.run import InputError, from_onnx

    path = tmp_path / "m.onnx"
    onnx.save(parsed("m (float[n, 6] x) => (float[n, 6] y) { y = RandomUniformLike (x) }"), path)
    with pytest.raises(InputError, match=r"needs onnx\.RandomUniformLike, which is missing"):
        from_onnx(path, tmp_path / "out")
    onnx.save(parsed("m (float[n, 6] x) => (float[n, 6] y) { y = Tanh(x) }"), path)
    assert (from_onnx(path, tmp_path / "out") / "program.json").is_file()
