"""The program executor over hand-written kernels: loading, sizes, memory, state, debugging, and everything wrong."""

from __future__ import annotations

import copy
import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opwright as ow

from .conftest import Hook

pytestmark = pytest.mark.usefixtures("hook")
Json = dict[str, Any]

DTYPES = {"f32": "F32", "f64": "F64", "i64": "I64", "bool": "BOOL"}
NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "bool": np.bool_}


def safetensors(tensors: dict[str, np.ndarray[Any, Any]], pad: int = 0) -> bytes:
    header: Json = {"__metadata__": {"format": "pt"}}
    body = b""
    names = {np.dtype(NUMPY[name]): tag for name, tag in DTYPES.items()}
    for name, array in tensors.items():
        data = array.tobytes()
        header[name] = {
            "dtype": names[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    return struct.pack("<Q", len(text)) + text + body


def tensor(dtype: str, *shape: Any, strides: list[Any] | None = None) -> Json:
    if strides is None:
        strides = []
        step: Any = 1
        for extent in reversed(shape):
            strides.insert(0, step)
            step = (
                extent * step if isinstance(extent, int) and isinstance(step, int) else ["mul", extent, step]
            )
    return {"dtype": dtype, "shape": list(shape), "strides": strides, "kind": "tensor"}


def call(id: str, op: str, inputs: list[Any], out: list[Any], **attrs: Any) -> Json:
    return {
        "kind": "call",
        "id": id,
        "op": op,
        "in": inputs,
        "attrs": attrs,
        "out": out,
        "site": "model.py:7",
        "aten": "aten.x",
    }


def program(**changes: Any) -> Json:
    """softmax(x + w + 1) over rows, then columns through a view, doubled; x is [s0, 4]."""
    base: Json = {
        "schema": 1,
        "name": "tiny",
        "source": "test",
        "target": "cpu",
        "dtype": "f32",
        "symbols": {"s0": {"min": 1, "max": 64, "divisor": 1, "from": ["x", 0]}},
        "values": {
            "v0": tensor("f32", "s0", 4),
            "w0": tensor("f32", 4),
            "v1": tensor("f32", "s0", 4),
            "v2": tensor("f32", "s0", 4),
            "v3": tensor("f32", "s0", 4),
            "v4": tensor("f32", 4, "s0", strides=[1, 4]),
            "v5": tensor("f32", 4, "s0"),
            "v6": tensor("f32", 4, "s0"),
        },
        "inputs": [{"name": "x", "value": "v0"}],
        "outputs": [{"name": "y", "value": "v6"}],
        "tree": {"inputs": [["x"], {}], "outputs": "y"},
        "weights": [{"value": "w0", "tensor": "layer.weight", "tie": None}],
        "state": [],
        "constants": [],
        "nodes": [
            call("add_1", "add", ["v0", "w0"], ["v1"], alpha=1),
            call("add_2", "add", ["v1", {"scalar": 1.0}], ["v2"]),
            call("soft_1", "softmax", ["v2"], ["v3", None], axis=-1),
            {"kind": "view", "in": "v3", "out": "v4", "shape": [4, "s0"], "strides": [1, 4], "offset": 0},
            call("soft_2", "softmax", ["v4"], ["v5", None], axis=1),
            call("add_3", "add", ["v5", "v5"], ["v6"]),
        ],
    }
    return base | changes


WEIGHT = np.array([1, -1, 0.5, 2], np.float32)


def save(folder: Path, data: Json, weights: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "program.json").write_text(json.dumps(data))
    (folder / "weights.safetensors").write_bytes(
        safetensors({"layer.weight": WEIGHT}) if weights is None else weights
    )
    return folder


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def want(x: Any) -> Any:
    return 2 * softmax(softmax(x + WEIGHT + 1, 1).T, 1)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- running -----------------------------------------------------------------------------------------------


def test_it_runs_at_any_size(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    for n in (3, 1, 64, 3):
        x = draw(n, 4, seed=n)
        got = p(x=x)
        assert list(got) == ["y"]
        np.testing.assert_allclose(got["y"].numpy(), want(x), rtol=1e-5)
    assert repr(p) == "<Program tiny(x: f32[s0, 4]) -> (y: f32[4, s0]), 5 calls>"
    assert p.json["symbols"]["s0"]["max"] == 64


def test_the_plan_reuses_memory(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    x = draw(64, 4)
    plan = p.plan({"x": x})
    assert plan["calls"] == 5 and plan["dynamic_calls"] == 0
    assert plan["arena_bytes"] < plan["unshared_bytes"]
    assert plan["arena_bytes"] == 2 * 1024 + 64  # two values of 1 KB at a time, and the unread output
    first = p(x=x)["y"]
    kept = first.numpy().copy()
    p(x=draw(64, 4, seed=1))
    np.testing.assert_array_equal(first.numpy(), kept)  # an output is nobody else's memory
    before = ow.memory_stats()["allocated"]
    p(x=x)
    assert ow.memory_stats()["allocated"] == before


def test_poisoned_memory_changes_nothing(tmp_path: Path) -> None:
    from opwright.load import core

    core.set_poison(True)
    try:
        p = ow.Program.load(save(tmp_path, program()))
        np.testing.assert_allclose(p(x=draw(5, 4))["y"].numpy(), want(draw(5, 4)), rtol=1e-5)
    finally:
        core.set_poison(False)


def test_inputs_that_are_not_contiguous(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    x = draw(4, 6).T[::-1]
    np.testing.assert_allclose(p(x=x)["y"].numpy(), want(x), rtol=1e-5)


def test_all_kernels_are_asked_for_at_once(tmp_path: Path, hook: Hook) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    assert hook.batches == [3]  # add of tensors, add of a weak scalar, softmax
    assert hook.requests[1]["inputs"][1] == {"dtype": "f64", "rank": 0, "weak": True}
    p(x=draw(2, 4))
    p(x=draw(3, 4))
    assert len(hook.requests) == 3
    assert p.calls[2]["symbol"] == "ow_softmax" and p.calls[2]["site"] == "model.py:7"


def test_threads_take_turns(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = draw(seed + 1, 4, seed=seed)
        for _ in range(20):
            if not np.allclose(p(x=x)["y"].numpy(), want(x), rtol=1e-5):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_change_of_threads_is_noticed(tmp_path: Path) -> None:
    data = program(
        values={"v0": tensor("f32", 5), "v1": tensor("f32", 5)},
        symbols={},
        weights=[],
        inputs=[{"name": "x", "value": "v0"}],
        outputs=[{"name": "y", "value": "v1"}],
        nodes=[call("told", "told", ["v0", None], ["v1"])],
    )
    p = ow.Program.load(save(tmp_path, data))
    before = ow.num_threads()
    try:
        for threads in (1, 3, 2):
            ow.set_num_threads(threads)
            assert p(x=draw(5))["y"].tolist() == [0, threads, 1, 0, -1]
    finally:
        ow.set_num_threads(before)


def test_casts_lists_workspace_and_views_of_outputs(tmp_path: Path) -> None:
    """cat([x, i + x]) with i integers, reversed, and an output that is a view."""
    data = program(
        symbols={"n": {"min": 0, "max": 9, "divisor": 1, "from": ["x", 0]}},
        values={
            "v0": tensor("f32", "n"),
            "v1": tensor("i64", "n"),
            "v2": tensor("f32", "n"),
            "v3": tensor("f32", ["mul", 2, "n"]),
            "v4": tensor("f32", ["mul", 2, "n"]),
            "v5": tensor("f32", "n", strides=[1]),
        },
        inputs=[{"name": "x", "value": "v0"}, {"name": "i", "value": "v1"}],
        weights=[],
        outputs=[{"name": "y", "value": "v4"}, {"name": "tail", "value": "v5"}],
        nodes=[
            call("add", "add", ["v1", "v0"], ["v2"]),
            call("cat", "cat", [["v0", "v2"]], ["v3"]),
            call("rev", "reverse", ["v3"], ["v4"]),
            {"kind": "view", "in": "v4", "out": "v5", "shape": ["n"], "strides": [1], "offset": "n"},
        ],
    )
    p = ow.Program.load(save(tmp_path, data))
    for n in (0, 1, 5):
        x, i = draw(n), np.arange(n)
        got = p(x=x, i=i)
        np.testing.assert_array_equal(got["y"].numpy(), np.concatenate([x, i + x])[::-1].astype(np.float32))
        np.testing.assert_array_equal(got["tail"].numpy(), x[::-1])


def test_weights_are_mapped_and_tied(tmp_path: Path) -> None:
    data = program()
    data["values"] |= {"w1": tensor("f32", 4)}
    data["weights"].append({"value": "w1", "tensor": "head.weight", "tie": "layer.weight"})
    data["nodes"][1]["in"] = ["v1", "w1"]
    data["outputs"].append({"name": "w", "value": "w0"})
    p = ow.Program.load(save(tmp_path, data))
    x = draw(3, 4)
    got = p(x=x)
    np.testing.assert_allclose(got["y"].numpy(), 2 * softmax(softmax(x + 2 * WEIGHT, 1).T, 1), rtol=1e-5)
    assert got["w"].readonly
    del p
    assert got["w"].tolist() == WEIGHT.tolist()  # the mapping lives on


def test_weights_at_odd_addresses(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program(), safetensors({"layer.weight": WEIGHT}, pad=3)))
    np.testing.assert_allclose(p(x=draw(2, 4))["y"].numpy(), want(draw(2, 4)), rtol=1e-5)


def test_registers_and_what_depends_on_data(tmp_path: Path) -> None:
    """nonzero decides an extent; a register is read from a tensor, and shifts another; both reach the outputs."""
    data = program(
        symbols={
            "n": {"min": 1, "max": 100, "divisor": 1, "from": ["x", 0]},
            "u0": {"min": 1, "max": 100, "divisor": 1, "from": ["v1", 0]},
        },
        values={
            "v0": tensor("f32", "n"),
            "v1": tensor("i64", "u0"),
            "v2": tensor("i64", "u0"),
            "v3": tensor("i64", strides=[]),
            "n4": {"dtype": "i64", "kind": "scalar"},
            "n5": {"dtype": "i64", "kind": "scalar"},
            "n6": {"dtype": "i64", "kind": "scalar"},
            "v7": tensor("i64", ["sub", "u0", 1], strides=[1]),
            "v8": tensor("i64", ["sub", "u0", 1]),
            "v9": tensor("i64", "u0"),
        },
        inputs=[{"name": "x", "value": "v0"}],
        weights=[],
        outputs=[
            {"name": "y", "value": "v8"},
            {"name": "last", "value": "n4"},
            {"name": "twice", "value": "n6"},
            {"name": "copy", "value": "v9"},
        ],
        nodes=[
            {"kind": "scalar", "out": "n6", "expr": ["mul", 2, "n"]},
            call("nonzero", "nonzero", ["v0"], ["v1"]),
            call("shift", "add", ["v1", {"scalar": {"sym": "n6"}}], ["v2"]),
            {"kind": "view", "in": "v2", "out": "v3", "shape": [], "strides": [], "offset": ["sub", "u0", 1]},
            {"kind": "read", "in": "v3", "out": "n4"},
            {"kind": "scalar", "out": "n5", "expr": ["mod", "n4", 7]},
            {"kind": "assert", "cond": ["or", ["ge", "n5", 0], ["not", ["lt", "n5", 0]]], "message": "odd"},
            {
                "kind": "view",
                "in": "v2",
                "out": "v7",
                "shape": [["sub", "u0", 1]],
                "strides": [1],
                "offset": 1,
            },
            call("scaled", "add", ["v7", "v7"], ["v8"], alpha={"sym": "n5"}),
            {"kind": "copy", "in": "v2", "out": "v9", "device": "cpu"},
        ],
    )
    p = ow.Program.load(save(tmp_path, data))
    before = None
    for x in ([0, 1, 0, 5, 2], [0, 0, 3], [1] * 50, [0, 1, 0, 5, 2]):
        x = np.array(x, np.float32)
        at = np.flatnonzero(x) + 2 * len(x)
        got = p(x=x)
        assert got["last"] == at[-1] and got["twice"] == 2 * len(x)
        assert got["copy"].tolist() == at.tolist()
        assert got["y"].tolist() == (at[1:] * (1 + at[-1] % 7)).tolist()
        del got
        if before is not None:
            assert ow.memory_stats()["allocated"] == before
        before = ow.memory_stats()["allocated"]
    assert p.plan({"x": draw(3)})["dynamic_calls"] == 3
    with pytest.raises(
        ow.OpValueError,
        match=r"value 'v1' has extent 0 along axis 0, which must be from 1 to 100 \(symbol u0\)",
    ):
        p(x=np.zeros(3, np.float32))
    assert p.run_call("scaled", [np.array([1, 2]), np.array([1, 1])], {"n5": 3})[0].tolist() == [4, 5]
    with pytest.raises(ow.OpValueError, match="the value of 'n5' must be given"):
        p.run_call("scaled", [np.array([1, 2]), np.array([1, 1])])


def test_state_is_updated_after_the_run(tmp_path: Path) -> None:
    """Two states that exchange places, and one that a call makes; a constant counts runs."""
    data = program(
        symbols={},
        values={
            "a": tensor("f32", 3),
            "b": tensor("f32", 3),
            "c": tensor("f32", 3),
            "k": tensor("f32", 1),
            "k1": tensor("f32", 1),
            "c1": tensor("f32", 3),
        },
        inputs=[{"name": "a", "value": "a"}, {"name": "b", "value": "b"}, {"name": "c", "value": "c"}],
        weights=[],
        constants=[{"value": "k", "tensor": "const.0"}],
        outputs=[{"name": "count", "value": "k1"}, {"name": "was", "value": "a"}],
        state=[
            {"input": "a", "output": "b"},
            {"input": "b", "output": "a"},
            {"input": "c", "output": "c1"},
            {"input": "k", "output": "k1"},
        ],
        nodes=[call("one", "add", ["k", {"scalar": 1}], ["k1"]), call("sum", "add", ["c", "a"], ["c1"])],
    )
    p = ow.Program.load(save(tmp_path, data, safetensors({"const.0": np.zeros(1, np.float32)})))
    a, b, c = np.array([1, 2, 3], np.float32), np.array([7, 8, 9], np.float32), np.zeros(6, np.float32)[::2]
    got = p(a=a, b=b, c=c)
    assert a.tolist() == [7, 8, 9] and b.tolist() == [1, 2, 3] and c.tolist() == [1, 2, 3]
    assert got["count"].tolist() == [1] and got["was"].tolist() == [1, 2, 3]
    assert p(a=a, b=b, c=c)["count"].tolist() == [2]
    a.flags.writeable = False
    with pytest.raises(
        ow.OpValueError, match="input 'a' is state, which the run updates, but it is read-only"
    ):
        p(a=a, b=b, c=c)


def test_groups_are_specs_in_the_folder(tmp_path: Path, hook: Hook) -> None:
    data = program()
    data["nodes"][2] |= {"op": "group:softmax"}
    folder = save(tmp_path, data)
    with pytest.raises(
        ow.ProgramError, match=r"node 'soft_1' \(model.py:7\): groups/softmax.yaml is missing"
    ):
        ow.Program.load(folder)
    (folder / "groups").mkdir()
    (folder / "groups" / "softmax.yaml").write_text("op: softmax")
    p = ow.Program.load(folder)
    request = next(r for r in hook.requests if r["op"] == "group:softmax")
    assert request["group"] == str(folder / "groups" / "softmax.yaml")
    assert request["attrs"] == {"axis": -1}
    np.testing.assert_allclose(p(x=draw(2, 4))["y"].numpy(), want(draw(2, 4)), rtol=1e-5)
    assert "group:softmax" not in dir(ow.ops)


# ---- looking inside ----------------------------------------------------------------------------------------


def test_debug_shows_every_call(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    x = draw(3, 4)
    run = p.run_debug({"x": x})
    assert [c.id for c in run.calls] == ["add_1", "add_2", "soft_1", "soft_2", "add_3"]
    np.testing.assert_array_equal(run["add_1"].inputs[1].numpy(), WEIGHT)
    assert run["add_2"].inputs[1].item() == 1 and run["add_2"].attrs == {"alpha": 1}
    np.testing.assert_allclose(run["soft_2"].inputs[0].numpy(), softmax(x + WEIGHT + 1, 1).T, rtol=1e-5)
    assert run["soft_2"].outputs[1].item() == 4  # the unread output has memory too
    np.testing.assert_array_equal(run["add_3"].outputs[0].numpy(), run.outputs["y"].numpy())
    for c in run.calls:
        again = p.run_call(c.id, c.inputs, p.symbols({"x": x}))
        for got, kept in zip(again, c.outputs, strict=True):
            np.testing.assert_array_equal(got.numpy(), kept.numpy())
    seen: list[str] = []
    assert p.run_debug({"x": x}, on_call=lambda c: seen.append(c.op)).calls == []
    assert seen == ["add", "add", "softmax", "softmax", "add"]
    assert p.run_debug({"x": x}, capture=False).calls == []


def test_perturb_one_node(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    x = draw(3, 4)
    plain = p(x=x)["y"].numpy()
    for last, factor in (("scale", 1.01), ("scale", 3.0)):
        np.testing.assert_allclose(
            p.run_debug({"x": x}, perturb={"add_3": (last, factor)}).outputs["y"].numpy(),
            plain * factor,
            rtol=1e-6,
        )
    soft = p.run_debug({"x": x}, perturb={"soft_1": ("scale", 1.5)}).outputs["y"].numpy()
    np.testing.assert_allclose(soft, 2 * softmax(1.5 * softmax(x + WEIGHT + 1, 1).T, 1), rtol=1e-5)
    rounded = p.run_debug({"x": x}, perturb={"add_3": ("bf16",)}, capture=False).outputs["y"]
    np.testing.assert_array_equal(rounded.numpy(), ow.tensor(plain).to("bf16").to("f32").numpy())
    np.testing.assert_array_equal(p(x=x)["y"].numpy(), plain)
    with pytest.raises(ow.OpValueError, match="has no call 'add_9'"):
        p.run_debug({"x": x}, perturb={"add_9": ("bf16",)})
    with pytest.raises(ow.OpValueError, match="a perturbation is"):
        p.run_debug({"x": x}, perturb={"add_3": ("scale",)})


def test_an_observer_that_raises_ends_the_run(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program()))

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    before = ow.memory_stats()["allocated"]
    with pytest.raises(KeyboardInterrupt):
        p.run_debug({"x": draw(2, 4)}, on_call=stop)
    assert ow.memory_stats()["allocated"] <= before + 64
    np.testing.assert_allclose(p(x=draw(2, 4))["y"].numpy(), want(draw(2, 4)), rtol=1e-5)


# ---- inputs that do not fit --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "error", "text"),
    [
        ({}, ow.OpValueError, "tiny: input 'x' is missing"),
        ({"x": draw(2, 4), "z": 1}, ow.OpValueError, "tiny: has no input 'z'"),
        ({"y": draw(2, 4)}, ow.OpValueError, "tiny: has no input 'y'"),  # before `x`, which it may stand for
        ({"x": [1]}, ow.OpTypeError, "input 'x' must be an array, got list"),
        ({"x": draw(2, 4).astype(np.float64)}, ow.OpValueError, "input 'x' is f64, the program wants f32"),
        ({"x": draw(2)}, ow.OpValueError, "input 'x' has rank 1, the program wants 2"),
        ({"x": draw(2, 5)}, ow.OpValueError, "input 'x' has extent 5 along axis 1, which must be 4"),
        (
            {"x": draw(65, 4)},
            ow.OpValueError,
            r"input 'x' has extent 65 along axis 0, which must be from 1 to 64 \(symbol s0\)",
        ),
        ({"x": draw(0, 4)}, ow.OpValueError, "which must be from 1 to 64"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path: Path, inputs: Json, error: type[Exception], text: str) -> None:
    p = ow.Program.load(save(tmp_path, program()))
    with pytest.raises(error, match=text):
        p.run(inputs)


def numbered(tmp_path: Path) -> ow.Program:
    """x + s + 1, where x is [s0, 4] and s a number."""
    data = program()
    data["values"]["s"] = tensor("f32")
    data["inputs"].append({"name": "scale", "value": "s"})
    data["nodes"][0]["in"] = ["v0", "s"]
    data["nodes"] = data["nodes"][:2]
    data["outputs"] = [{"name": "y", "value": "v2"}]
    data["weights"] = []
    data["values"] = {k: v for k, v in data["values"].items() if k in ("v0", "v1", "v2", "s")}
    data["tree"]["inputs"] = [["x", {"const": 3}], {"more": [{"by": "scale"}]}]
    return ow.Program.load(save(tmp_path, data))


def test_inputs_by_position_are_those_of_the_model(tmp_path: Path) -> None:
    p = numbered(tmp_path)
    x = draw(2, 4)
    for out in (p(x, [{"by": 2}]), p(x, scale=2.0), p(scale=2, x=x), p.run({"x": x, "scale": np.float32(2)})):
        np.testing.assert_allclose(out["y"].numpy(), x + 3, rtol=1e-6)
        assert isinstance(out, dict) and out[0] is out["y"] and list(out) == ["y"]
    with pytest.raises(KeyError, match="no output is called 'z'; there are y"):
        _ = out["z"]
    with pytest.raises(IndexError):
        _ = out[1]


def test_inputs_by_position_that_do_not_fit(tmp_path: Path) -> None:
    p = numbered(tmp_path)
    x = draw(2, 4)
    with pytest.raises(ow.OpTypeError, match="tiny: takes 2 inputs, got 3 by position"):
        p(x, 1, 2)
    with pytest.raises(ow.OpTypeError, match="tiny: argument 1 must be a list of 1: scale"):
        p(x, 1)
    with pytest.raises(ow.OpTypeError, match="tiny: argument 1 must be a dict with the key 'by'"):
        p(x, [{}])
    with pytest.raises(ow.OpTypeError, match="tiny: input 'x' is given twice"):
        p(x, x=x)
    with pytest.raises(ow.OpValueError, match="tiny: has no input 'sacle'") as caught:
        p(x, sacle=1.0)
    assert caught.value.hint == "did you mean `scale`?"
    with pytest.raises(ow.OpValueError, match=r"tiny: input 'scale' is f32, got the number 1j"):
        p(x, scale=1j)


def test_without_a_tree_the_order_is_that_of_the_inputs(tmp_path: Path) -> None:
    p = ow.Program.load(save(tmp_path, program(tree={"inputs": "x", "outputs": "y"})))
    np.testing.assert_allclose(p(draw(2, 4))["y"].numpy(), want(draw(2, 4)), rtol=1e-5)


def test_divisors_expressions_and_assertions(tmp_path: Path) -> None:
    data = program()
    data["symbols"]["s0"] |= {"divisor": 3, "max": 2**63 - 1}
    data["values"]["z"] = tensor("f32", ["add", ["mul", "s0", 2], 1])
    data["inputs"].append({"name": "z", "value": "z"})
    data["nodes"].insert(
        0,
        {
            "kind": "assert",
            "cond": ["and", ["ne", ["floordiv", "s0", 3], 2], ["le", "s0", 9]],
            "message": "six is odd",
        },
    )
    p = ow.Program.load(save(tmp_path, data))
    p(x=draw(3, 4), z=draw(7))
    for n, m, text in [
        (4, 9, r"must be a multiple of 3 \(symbol s0\)"),
        (3, 8, r"input 'z' has extent 8 along axis 0, which must be 7 = \(\(s0\*2\) \+ 1\)"),
        (6, 13, r"six is odd does not hold: \(\(s0//3\) != 2 and s0 <= 9\)"),
        (0, 1, "which must be at least 1"),
    ]:
        with pytest.raises(ow.OpValueError, match=text):
            p(x=draw(n, 4), z=draw(m))


def test_an_error_names_node_op_and_site(tmp_path: Path) -> None:
    data = program()
    data["nodes"][4]["attrs"]["axis"] = 5
    p = ow.Program.load(save(tmp_path, data))
    with pytest.raises(
        ow.OpIndexError, match=r"tiny: node 'soft_2' \(softmax, model.py:7\): softmax: attribute 'axis' = 5"
    ):
        p(x=draw(2, 4))
    data = program()
    data["values"] |= {"i": tensor("i64", 2), "v1": tensor("f32", 2, 4), "v2": tensor("f32", 2, 4)}
    data["inputs"].append({"name": "i", "value": "i"})
    data["nodes"] = [call("take", "take", ["v0", "i"], ["v1"]), call("add_1", "add", ["v1", "w0"], ["v2"])]
    data["outputs"] = [{"name": "y", "value": "v2"}]
    data["values"] = {k: data["values"][k] for k in ("v0", "w0", "v1", "v2", "i")}
    p = ow.Program.load(save(tmp_path, data))
    assert p(x=draw(3, 4), i=np.array([2, 0]))["y"].shape == (2, 4)
    with pytest.raises(
        ow.OpIndexError, match=r"node 'take' \(take, model.py:7\): take: index 3 is out of range for extent 3"
    ):
        p(x=draw(3, 4), i=np.array([0, 3]))
    assert p(x=draw(4, 4), i=np.array([0, 3]))["y"].shape == (2, 4)


def test_shapes_that_the_model_got_wrong(tmp_path: Path) -> None:
    data = program()
    data["values"]["v6"] = tensor("f32", "s0", 4)
    p = ow.Program.load(save(tmp_path, data))
    with pytest.raises(
        ow.OpValueError, match=r"node 'add_3' .*makes 'y' of shape \[4, 3\], the program wants \[3, 4\]"
    ):
        p(x=draw(3, 4))
    data = program()
    data["nodes"][3]["offset"] = 1
    p = ow.Program.load(save(tmp_path, data))
    with pytest.raises(ow.ProgramError, match=r"view 'v4' reaches elements 1 to 12 of the 12 in 'v3'"):
        p(x=draw(3, 4))


# ---- folders that are wrong --------------------------------------------------------------------------------


def change(*path: Any, to: Any) -> Callable[[Json], None]:
    def apply(data: Json) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        if to is ...:
            del at[path[-1]]
        else:
            at[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("edit", "error", "text"),
    [
        (change("schema", to=2), ow.ProgramError, "schema 2 is not known"),
        (change("schema", to=...), ow.ProgramError, "'schema' is missing"),
        (change("target", to="cuda"), ow.ProgramError, "target 'cuda' is not supported"),
        (change("values", to=[]), ow.ProgramError, "an object expected, got a list"),
        (change("values", "v1", "dtype", to="f31"), ow.ProgramError, "value 'v1': unknown dtype 'f31'"),
        (
            change("values", "v1", "shape", to=["s9", 4]),
            ow.ProgramError,
            "value 'v1' reads 's9', which is neither a symbol nor a register",
        ),
        (
            change("values", "v1", "shape", to=[["pow", "s0", 2], 4]),
            ow.ProgramError,
            "'pow' of 2 operands is no integer expression",
        ),
        (change("values", "v1", "strides", to=[1]), ow.ProgramError, "has 2 extents and 1 strides"),
        (change("values", "q", to=tensor("f32", 1)), ow.ProgramError, "value 'q' is never made"),
        (
            change("symbols", "s0", "from", to=["x", 1]),
            ow.ProgramError,
            "symbol 's0' is not the extent along axis 1 of 'x'",
        ),
        (change("symbols", "s0", "from", to=["nobody", 0]), ow.ProgramError, "names 'nobody'"),
        (change("symbols", "s0", "max", to=0), ow.ProgramError, "symbol 's0' has an empty range"),
        (
            change("inputs", 0, "value", to="v1"),
            ow.ProgramError,
            "'add_1' reads 'v0' before it is made|makes 'v1' again|is not the extent",
        ),
        (
            change("outputs", 0, "value", to="v99"),
            ow.ProgramError,
            "output 'y' names 'v99', which is not among the values",
        ),
        (
            change("weights", 0, "tensor", to="layer.bias"),
            ow.ProgramError,
            "weights.safetensors: weight 'layer.bias' is missing",
        ),
        (
            change("values", "w0", to=tensor("f32", 5)),
            ow.ProgramError,
            r"weight 'layer.weight' has shape \[4\], the program wants \[5\]",
        ),
        (
            change("values", "w0", to=tensor("f64", 4)),
            ow.ProgramError,
            "weight 'layer.weight' is f32, the program wants f64",
        ),
        (
            change("values", "w0", to=tensor("f32", "s0")),
            ow.ProgramError,
            "has an extent that is not a number: s0",
        ),
        (change("nodes", 0, "kind", to="jump"), ow.ProgramError, "node 'add_1' is of the kind 'jump'"),
        (
            change("nodes", 0, "op", to="nothing"),
            ow.MissingKernelError,
            r"node 'add_1' \(model.py:7\) calls op 'nothing', which is not registered",
        ),
        (
            lambda d: d["nodes"][0].update(op="missing:aten.foo.default", why="no spec"),
            ow.ProgramError,
            r"node 'add_1' \(model.py:7\) calls aten.foo.default, which no op supplies: no spec",
        ),
        (change("nodes", 0, "op", to="group:../../x"), ow.ProgramError, "names no file in groups/"),
        (change("nodes", 0, "in", to=["v0"]), ow.ProgramError, "op 'add' has 2 inputs, the call gives 1"),
        (change("nodes", 0, "in", to=["v0", None]), ow.ProgramError, "input 'b' is missing"),
        (change("nodes", 0, "in", to=["v0", ["w0"]]), ow.ProgramError, "input 'b' is no list"),
        (
            change("nodes", 0, "in", to=["v0", "v2"]),
            ow.ProgramError,
            "node 'add_1' reads 'v2' before it is made",
        ),
        (
            change("nodes", 0, "in", to=["v0", {"scalar": "x"}]),
            ow.ProgramError,
            "a scalar must be a number, got a string",
        ),
        (change("nodes", 0, "out", to=[]), ow.ProgramError, "op 'add' has 1 outputs, the call takes 0"),
        (change("nodes", 1, "out", to=["v1"]), ow.ProgramError, "node 'add_2' makes 'v1' again"),
        (
            change("nodes", 1, "id", to="add_1"),
            ow.ProgramError,
            "node 'add_1' is not the only one of this id",
        ),
        (change("nodes", 0, "attrs", to={"beta": 1}), ow.ProgramError, "op 'add' has no attribute 'beta'"),
        (
            change("nodes", 2, "attrs", to={"axis": 1.5}),
            ow.ProgramError,
            "attribute 'axis' must be an integer, got a float",
        ),
        (
            change("nodes", 2, "attrs", to={"axis": None}),
            ow.ProgramError,
            "attribute 'axis' must not be null",
        ),
        (change("nodes", 3, "offset", to=...), ow.ProgramError, "node 3: 'offset' is missing"),
        (change("nodes", 3, "in", to="v4"), ow.ProgramError, "node 3 reads 'v4' before it is made"),
        (
            change("values", "v1", to=tensor("f64", "s0", 4)),
            ow.ProgramError,
            "op 'add' makes f32 as 'y', the program wants f64",
        ),
        (change("state", to=[{"input": "y", "output": "v6"}]), ow.ProgramError, "state 'y' names 'y'"),
    ],
)
def test_a_wrong_program_is_refused_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Any, error: Any, text: str
) -> None:
    from opwright import registry

    monkeypatch.setattr(registry._State, "ready", True)
    data = copy.deepcopy(program())
    edit(data)
    with pytest.raises(error, match=text):
        ow.Program.load(save(tmp_path, data))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "program.json:1:1: not valid JSON: unexpected end"),
        ('{"schema": 1,\n "name": tiny}', "program.json:2:10: not valid JSON: a value expected"),
        ('{"schema": 1, "schema": 1}', "key 'schema' appears twice"),
        ("[" * 1000, "nested too deeply"),
        ('{"schema": 1} x', "text after the end"),
        ('{"name": "a\nb"}', "a control character in a string"),
        ('{"name": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_json_that_is_none(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "program.json").write_text(text)
    with pytest.raises(ow.ProgramError, match=what):
        ow.Program.load(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ow.ProgramError, match=r"nowhere/program.json: cannot be opened"):
        ow.Program.load(tmp_path / "nowhere")


GOOD = safetensors({"layer.weight": WEIGHT})


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (b"", "is truncated: 0 bytes"),
        (GOOD[:5], "is truncated: 5 bytes"),
        (GOOD[:40], "a header of .* in a file of 40"),
        (GOOD[:-3], "is truncated: tensor 'layer.weight' ends at byte 16 of the data, which has 13"),
        (struct.pack("<Q", 2**60) + GOOD[8:], "is truncated or no safetensors file"),
        (
            GOOD.replace(b"[4]", b"[5]"),
            r"'layer.weight' of shape \[5\] needs 20 bytes, the header gives it 16",
        ),
        (GOOD.replace(b'"F32"', b'"F99"'), "has the dtype F99, which is not supported"),
        (GOOD.replace(b'"dtype"', b'"dtyqe"'), "tensor 'layer.weight': 'dtype' is missing"),
        (GOOD.replace(b"[0, 16]", b"[0, -1]"), "the header gives it"),
        (GOOD[:8] + b"x" + GOOD[9:], "not valid JSON"),
    ],
)
def test_weights_that_are_wrong(tmp_path: Path, weights: bytes, text: str) -> None:
    with pytest.raises(ow.ProgramError, match="weights.safetensors.*" + text):
        ow.Program.load(save(tmp_path, program(), weights))


def test_no_weights_file(tmp_path: Path) -> None:
    folder = save(tmp_path, program())
    (folder / "weights.safetensors").unlink()
    with pytest.raises(ow.ProgramError, match=r"weights.safetensors: cannot be opened"):
        ow.Program.load(folder)


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    data = program()
    data["nodes"][1]["in"][1] = {"scalar": {"float": "-inf"}}
    p = ow.Program.load(save(tmp_path, data))
    assert np.isnan(p(x=draw(2, 4))["y"].numpy()).all()
    data["nodes"][1]["in"][1] = {"scalar": {"float": "huge"}}
    with pytest.raises(ow.ProgramError, match="'huge' is none of inf, -inf, nan"):
        ow.Program.load(save(tmp_path, data))
