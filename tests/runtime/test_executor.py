"""The executor where runs meet: threads, runs inside runs, state in place, and what a failed run leaves behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opwright as ow

from .test_program import WEIGHT, call, draw, program, safetensors, save, tensor, want

pytestmark = pytest.mark.usefixtures("hook")


def load(folder: Path, data: Any, **constants: Any) -> Any:
    return ow.Program.load(save(folder, data, safetensors({"layer.weight": WEIGHT} | constants)))


# ---- several threads -------------------------------------------------------------------------------------------------


def test_threads_run_one_program_at_once(tmp_path: Path) -> None:
    """Two runs wait for each other in the middle: if one waited for the other to end, neither would."""
    p = load(tmp_path, program())
    meet = threading.Barrier(2, timeout=30)
    got: dict[int, Any] = {}

    def work(seed: int) -> None:
        x = draw(5, 4, seed=seed)
        run = p.run_debug({"x": x}, on_call=lambda c: meet.wait() if c.id == "add_2" else None)
        got[seed] = run.outputs["y"].numpy(), want(x)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 2
    for found, right in got.values():
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_threads_with_sizes_of_their_own(tmp_path: Path) -> None:
    p = load(tmp_path, program())
    before = ow.memory_stats()["allocated"]
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = rng.normal(size=(int(rng.integers(1, 65)), 4)).astype(np.float32)
            if not np.allclose(p(x=x)["y"].numpy(), want(x), rtol=1e-5):
                wrong.append(f"thread {seed}: {x.shape}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and ow.memory_stats()["allocated"] == before


def test_a_run_inside_a_run(tmp_path: Path) -> None:
    p = load(tmp_path, program())
    x, inner = draw(3, 4), draw(3, 4, seed=1)
    found: list[Any] = []
    run = p.run_debug({"x": x}, on_call=lambda c: found.append(p(x=inner)["y"].numpy()))
    np.testing.assert_allclose(run.outputs["y"].numpy(), want(x), rtol=1e-5)
    assert len(found) == 5
    for y in found:
        np.testing.assert_allclose(y, want(inner), rtol=1e-5)


# ---- state in place --------------------------------------------------------------------------------------------------


def stateful(nodes: list[Any], state: str, outputs: dict[str, str] | None = None, **values: Any) -> Any:
    """A program over c, which is state and becomes `state`, and x."""
    names = {"c", "x", *values} | {o for n in nodes for o in (n["out"] if n["kind"] == "call" else [])}
    return program(
        symbols={},
        values={n: values.get(n, tensor("f32", 3)) for n in sorted(names)},
        inputs=[{"name": "c", "value": "c"}, {"name": "x", "value": "x"}],
        weights=[],
        outputs=[{"name": n, "value": v} for n, v in (outputs or {}).items()],
        state=[{"input": "c", "output": state}],
        nodes=nodes,
    )


PLUS = call("plus", "add", ["c", "x"], ["c1"])
TWICE = call("twice", "add", ["c", "c"], ["y"])
VIEW = {"kind": "view", "in": "c", "out": "w", "shape": [2], "strides": [1], "offset": 1}


@pytest.mark.parametrize(
    ("nodes", "state", "outputs", "donated", "c", "y"),
    [
        pytest.param([PLUS], "c1", {}, 1, "c+x", None, id="one call"),
        pytest.param([PLUS, call("two", "add", ["c1", "c1"], ["y"])], "c1", {"y": "y"}, 1, "c+x", "2*(c+x)", id="read"),
        pytest.param(
            [PLUS, call("two", "add", ["c1", "x"], ["c2"])], "c2", {}, 1, "c+2*x", None, id="two calls in a row"
        ),
        pytest.param([TWICE, PLUS], "c1", {"y": "y"}, 1, "c+x", "2*c", id="read before"),
        pytest.param([PLUS, TWICE], "c1", {"y": "y"}, 0, "c+x", "2*c", id="read after"),
        pytest.param([PLUS], "c1", {"y": "c1"}, 0, "c+x", "c+x", id="given to the caller"),
        pytest.param([PLUS], "c1", {"y": "c"}, 0, "c+x", "c", id="the old one is given"),
        pytest.param([call("d", "add", ["c", "c"], ["c1"])], "c1", {}, 0, "2*c", None, id="both inputs"),
        pytest.param([call("s", "add", ["x", "c"], ["c1"])], "c1", {}, 0, "c+x", None, id="over the other input"),
        pytest.param(
            [VIEW, PLUS, call("v", "add", ["w", "w"], ["y"])], "c1", {"y": "y"}, 0, "c+x", "2*c[1:]", id="a view after"
        ),
        pytest.param(
            [VIEW, call("v", "add", ["w", "w"], ["y"]), PLUS], "c1", {"y": "y"}, 1, "c+x", "2*c[1:]", id="a view before"
        ),
        pytest.param([call("n", "reverse", ["c"], ["c1"])], "c1", {}, 0, "c[::-1]", None, id="no kernel in place"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strided", [False, True])
def test_state_is_written_where_it_is(
    tmp_path: Path, nodes: Any, state: str, outputs: Any, donated: int, c: str, y: str | None, strided: bool
) -> None:
    """What comes out is the same, in place or not; the expressions say what."""
    shapes = {"w": tensor("f32", 2), "y": tensor("f32", 2)} if VIEW in nodes else {}
    p = load(tmp_path, stateful(nodes, state, outputs, **shapes))
    start, x = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    cache = np.zeros(6, np.float32)[::2] if strided else np.zeros(3, np.float32)
    cache[:] = start
    assert p.plan({"c": cache, "x": x})["donated_states"] == donated
    names = {"c": start, "x": x}
    right = {n: eval(e, dict(names)) for n, e in (("c", c), ("y", y)) if e is not None}
    got = p(c=cache, x=x)
    np.testing.assert_array_equal(cache, right["c"])
    if y is not None:
        np.testing.assert_array_equal(got["y"].numpy(), right["y"])
    cache[:] = start
    run = p.run_debug({"c": cache, "x": x})  # who looks inside sees each input as it was before its call
    np.testing.assert_array_equal(cache, right["c"])
    for shown, of in zip(run["plus"].inputs, ("c", "x"), strict=True) if nodes[0] is PLUS else ():
        np.testing.assert_array_equal(shown.numpy(), names[of])


def test_a_large_cache_is_not_copied(tmp_path: Path) -> None:
    """In place, a run takes no memory for the cache's new value."""
    n = 1 << 20
    big = {k: tensor("f32", n) for k in ("c", "x", "c1")}
    cache, x = ow.zeros(n), ow.ones(n)
    peaks = {}
    for name, outputs in (("inplace", {}), ("copied", {"y": "c1"})):
        p = load(tmp_path / name, stateful([PLUS], "c1", outputs, **big))
        p.run({"c": cache, "x": x})
        ow.reset_peak_memory()
        before = ow.memory_stats()["allocated"]
        p.run({"c": cache, "x": x})
        peaks[name] = ow.memory_stats()["peak"] - before
    assert peaks["inplace"] < 1 << 16 and peaks["copied"] >= 4 * n
    assert cache.numpy()[0] == 4


def test_a_constant_is_updated_in_place(tmp_path: Path) -> None:
    count = call("count", "add", ["k", "x"], ["k1"])
    data = stateful([count, PLUS], "c1", k=tensor("f32", 3))
    data["constants"] = [{"value": "k", "tensor": "const.0"}]
    data["state"].append({"input": "k", "output": "k1"})
    data["nodes"].insert(0, call("see", "add", ["k", {"scalar": 0}], ["y"]))
    data["values"]["y"] = tensor("f32", 3)
    data["outputs"] = [{"name": "y", "value": "y"}]
    p = load(tmp_path, data, **{"const.0": np.zeros(3, np.float32)})
    c, x = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert p.plan({"c": c, "x": x})["donated_states"] == 2
    assert [p(c=c, x=x)["y"].numpy()[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(
        ow.OpValueError, match="a run of it is in progress on this thread, and updates its constants"
    ):
        p.run_debug({"c": c, "x": x}, on_call=lambda _: p(c=np.zeros(3, np.float32), x=x))


# ---- memory that runs share ------------------------------------------------------------------------------------------


def test_state_shares_memory_with_no_other_input(tmp_path: Path) -> None:
    p = load(tmp_path, stateful([PLUS], "c1"))
    whole = np.zeros(8, np.float32)
    p(c=whole[:3], x=whole[3:6])
    with pytest.raises(ow.OpValueError, match="inputs 'c' and 'x' share memory, and the run updates 'c'"):
        p(c=whole[:3], x=whole[2:5])


def test_two_runs_at_once_need_two_states(tmp_path: Path) -> None:
    p = load(tmp_path, stateful([PLUS], "c1"))
    c, x = np.zeros(3, np.float32), np.ones(3, np.float32)
    with pytest.raises(
        ow.OpValueError, match="another run in progress updates an input that is state here as well"
    ):
        p.run_debug({"c": c, "x": x}, on_call=lambda _: p(c=c, x=x))
    other = np.zeros(3, np.float32)
    p.run_debug({"c": c, "x": x}, on_call=lambda _: p(c=other, x=x))
    assert other.tolist() == [1, 1, 1]


#: y = [[of[i]]], which fails where there is no such element.
PICKED = {"m": tensor("f32", 3, 1), "i": tensor("i64", 1), "y": tensor("f32", 1, 1)}


def pick(of: str) -> list[Any]:
    view = {"kind": "view", "in": of, "out": "m", "shape": [3, 1], "strides": [1, 1], "offset": 0}
    return [view, call("bad", "take", ["m", "i"], ["y"])]


def failing(folder: Path) -> Any:
    data = stateful([PLUS, *pick("c1")], "c1", {"y": "y"}, **PICKED)
    data["inputs"].append({"name": "i", "value": "i"})
    return load(folder, data)


def test_a_run_that_failed_leaves_state_that_is_not_used_by_mistake(tmp_path: Path) -> None:
    p = failing(tmp_path)
    c, x, bad, good = ow.zeros(3), ow.ones(3), np.array([7]), np.array([1])
    assert p.plan({"c": c, "x": x, "i": good})["donated_states"] == 1
    with pytest.raises(ow.OpIndexError, match=r"tiny: node 'bad' \(take, model.py:7\): .*7"):
        p(c=c, x=x, i=bad)
    for _ in range(2):
        with pytest.raises(
            ow.OpValueError, match="input 'c' was being updated in place by a run that failed"
        ):
            p(c=c, x=x, i=good)
    ow.ops.add(ow.zeros(3), 5.0, out=c)
    assert p(c=c, x=x, i=good)["y"].tolist() == [[6]]


def test_a_failure_before_any_update_loses_nothing(tmp_path: Path) -> None:
    data = stateful([*pick("x"), PLUS], "c1", **PICKED)
    data["inputs"].append({"name": "i", "value": "i"})
    p = load(tmp_path, data)
    c, x = ow.zeros(3), ow.ones(3)
    with pytest.raises(ow.OpIndexError):
        p(c=c, x=x, i=np.array([7]))
    p(c=c, x=x, i=np.array([0]))
    assert c.tolist() == [1, 1, 1]


def test_constants_of_a_run_that_failed_are_loaded_again(tmp_path: Path) -> None:
    count = call("count", "add", ["k", "x"], ["k1"])
    data = stateful([count, *pick("x"), PLUS], "c1", k=tensor("f32", 3), **PICKED)
    data["inputs"].append({"name": "i", "value": "i"})
    data["constants"] = [{"value": "k", "tensor": "const.0"}]
    data["state"].append({"input": "k", "output": "k1"})
    p = load(tmp_path, data, **{"const.0": np.zeros(3, np.float32)})
    x = ow.ones(3)
    with pytest.raises(ow.OpIndexError):
        p(c=ow.zeros(3), x=x, i=np.array([7]))
    with pytest.raises(
        ow.OpValueError, match="a run failed while it updated the program's constants; load the program"
    ):
        p(c=ow.zeros(3), x=x, i=np.array([0]))


def test_a_program_larger_than_memory_says_whose_it_is(tmp_path: Path) -> None:
    n = {"min": 1, "max": 1 << 50, "divisor": 1, "from": ["x", 0]}
    rows = {k: tensor("f32", "n", 1 << 20) for k in ("v1", "v2")}
    data = program(
        symbols={"n": n}, values={"v0": tensor("f32", "n", 1), "w0": tensor("f32", 1 << 20), **rows},
        weights=[], constants=[{"value": "w0", "tensor": "w"}], outputs=[{"name": "y", "value": "v2"}],
        nodes=[call("wide", "add", ["v0", "w0"], ["v1"]), call("more", "add", ["v1", "v1"], ["v2"])],
    )  # fmt: skip
    p = load(tmp_path, data, w=np.zeros(1 << 20, np.float32))
    before = ow.memory_stats()["allocated"]
    with pytest.raises(ow.OutOfMemoryError, match=r"^out of memory: 1.0 TiB wanted by program tiny, .*limit"):
        p(x=np.zeros((1 << 18, 1), np.float32))
    assert ow.memory_stats()["allocated"] == before
    assert p(x=np.ones((1, 1), np.float32))["y"].numpy()[0, 5] == 2


# ---- weights, and errors that say where ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["written", "cut off"])
def test_weights_that_change_under_a_loaded_program(tmp_path: Path, how: str) -> None:
    p = load(tmp_path, program())
    file = tmp_path / "weights.safetensors"
    p(x=draw(2, 4))
    if how == "written":
        with file.open("r+b") as out:
            out.seek(-4, os.SEEK_END)
            out.write(b"\0\0\0\0")
        os.utime(file, ns=(1, 1))
    else:
        os.truncate(file, 10)
    with pytest.raises(
        ow.ProgramError, match=r"weights.safetensors: was written to after the program was loaded"
    ):
        p(x=draw(2, 4))


def test_weights_that_are_replaced_are_another_file(tmp_path: Path) -> None:
    p = load(tmp_path, program())
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", tmp_path / "weights.safetensors")
    np.testing.assert_allclose(p(x=draw(2, 4))["y"].numpy(), want(draw(2, 4)), rtol=1e-5)


def test_every_node_s_error_says_which_and_where(tmp_path: Path) -> None:
    site = {"site": "model.py:9"}
    nodes = [
        call("nz", "nonzero", ["v0"], ["v1"]),
        {
            "kind": "view",
            "in": "v1",
            "out": "v2",
            "shape": [["sub", "u0", 1]],
            "strides": [1],
            "offset": 0,
            **site,
        },
        {"kind": "read", "in": "v2", "out": "n1", "id": "reading", **site},
        {"kind": "assert", "cond": ["lt", "n1", 2], "message": "small", **site},
    ]
    data = program(
        symbols={"n": {"min": 1, "max": 50, "from": ["x", 0]}, "u0": {"min": 0, "max": 100, "from": ["v1", 0]}},
        values={"v0": tensor("f32", "n"), "v1": tensor("i64", "u0"), "v2": tensor("i64", ["sub", "u0", 1]),
                "n1": {"dtype": "i64", "kind": "scalar"}},
        inputs=[{"name": "x", "value": "v0"}], outputs=[{"name": "n", "value": "n1"}], weights=[], nodes=nodes,
    )  # fmt: skip
    p = load(tmp_path, data)
    one, two, none = np.array([1, 1, 0]), np.array([0, 0, 1, 1]), np.zeros(2)
    assert p(x=one.astype(np.float32))["n"] == 0
    for x, text in (
        (two, r"^tiny: node '#3' \(assert, model.py:9\): small does not hold: n1 < 2"),
        (
            np.array([1, 1, 1]),
            r"^tiny: node 'reading' \(read, model.py:9\): 'v2' is read as one number, but has more",
        ),
        (none, r"^tiny: node '#1' \(view, model.py:9\): .*-1"),
    ):
        with pytest.raises(ow.OpValueError, match=text):
            p(x=x.astype(np.float32))
