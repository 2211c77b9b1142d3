"""`watch`, `requalify`, `backtest`: two releases replayed, graphs compared, a registry that grows."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwright.errors import OpwrightError
from opwright.generator.program.ir import Call, Node, with_nodes
from opwright.workflows import console, records
from opwright.workflows.backtest import covered
from opwright.workflows.enable import Missing, Result, graph_of
from opwright.workflows.records import Attempt
from opwright.workflows.requalify import CHANGED, FAILED, SAME, UNKNOWN, differences, newest, requalified
from opwright.workflows.watch import New, Release, enable_new, new_types, release, upload_time
from opwright.workflows.workbench import Workbench

from ..generator.program.small_program import small

#: Two releases in a row, as their model types were: the second brought two.
OLD = Release("5.1.0", ("bert", "gpt2", "llama"), "2026-01-16T10:00:00Z")
NEW = Release("5.2.0", ("bert", "gpt2", "llama", "newer", "newest"), "2026-02-16T10:00:00Z")


def test_what_the_second_of_two_releases_brought_is_new_and_published_with_it() -> None:
    assert new_types(NEW, OLD, []) == [New("newer", NEW.published), New("newest", NEW.published)]
    assert new_types(NEW, OLD, ["newer"]) == [New("newest", NEW.published)]
    # Without the release before nobody knows which one brought a type.
    assert new_types(NEW, None, ["llama", "newer"]) == [New(t, None) for t in ("bert", "gpt2", "newest")]
    assert new_types(OLD, OLD, []) == []


def test_each_new_architecture_gets_its_record_and_its_page(tmp_path: Path) -> None:
    """The replay: the first release's types are recorded, the second's new ones are enabled, one page each."""
    (tmp_path / "opwright.toml").write_text("schema = 1\n")
    bench = Workbench.here(tmp_path)
    asked = []

    def run(_bench: Workbench, target: str, _progress: console.Progress) -> Result:
        asked.append(target)
        if target == "newest":
            raise OpwrightError("cannot capture transformers:newest: it draws on the network")
        found = Result(
            target, "cpu", "f32", f"transformers:{target}", needed=("add", "mul"), accepted=("add",)
        )
        found.levels |= {"L0": True, "L1": False}
        found.reasons["L1"] = "missing: mul"
        found.missing = [Missing("aten.mul.Tensor", "modeling_newer.py:7", "no | bar")]
        found.failed = "supplied: mul is missing"
        return found

    done = enable_new(
        bench,
        new_types(NEW, OLD, []),
        NEW.version,
        tmp_path / "new",
        True,
        console.Progress(),
        quiet=True,
        run=run,
    )
    assert asked == ["newer", "newest"]
    assert [(d["type"], d["level"], bool(d["failed"])) for d in done] == [
        ("newer", "L0", True),
        ("newest", None, True),
    ]
    (attempt,) = records.load(bench.config.support, "newer")
    assert (attempt.published, attempt.levels["L0"]) == (NEW.published, True)
    page = (tmp_path / "new" / "newer.md").read_text()
    assert page.startswith("# newer: L0 held") and NEW.published in page
    assert "no \\| bar" in page and "supplied: mul is missing" in page
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["newer.md"]


def test_an_upload_time_is_the_earliest_of_the_releases_files() -> None:
    page: dict[str, Any] = {
        "files": [
            {"filename": "transformers-5.2.0.tar.gz", "upload-time": "2026-02-16T10:01:30.123Z"},
            {"filename": "transformers-5.2.0-py3-none-any.whl", "upload-time": "2026-02-16T10:00:09.999Z"},
            {"filename": "transformers-5.2.1-py3-none-any.whl", "upload-time": "2026-02-01T00:00:00Z"},
            {"filename": "transformers-5.1.0-py3-none-any.whl"},
        ]
    }
    assert upload_time(page, "5.2.0") == "2026-02-16T10:00:09Z"
    assert upload_time(page, "5.1.0") is None and upload_time(page, "4.0.0") is None


def test_a_release_is_read_from_what_list_wrote(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(OLD.to_json()))
    assert release(path) == OLD
    path.write_text("[]")
    with pytest.raises(OpwrightError, match="lists no release"):
        release(path)
    with pytest.raises(OpwrightError, match="there is no transformers in"):
        release(tmp_path)


@pytest.mark.nightly
def test_an_older_release_of_the_index_is_replayed(tmp_path: Path) -> None:
    """The real thing, where pip reaches an older transformers."""
    transformers = pytest.importorskip("transformers")
    major, minor = (int(n) for n in transformers.__version__.split(".")[:2])
    if minor == 0:
        pytest.skip("no older release of this major version")
    wanted = f"transformers>={major},<{major}.{minor}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path / "old"),
        wanted,
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("pip reaches no older transformers")
    now, before = release(None, lambda *_: None), release(tmp_path / "old", lambda *_: None)
    assert before.version != now.version and set(before.types) & set(now.types)
    assert {n.type for n in new_types(now, before, [])} == set(now.types) - set(before.types)


# ---- requalify


def attempt(name: str, at: str, ops: str = "", **more: Any) -> Attempt:
    return Attempt(
        name, "cpu", "f32", at, f"transformers:{name}", hashes=dict.fromkeys(ops.split(), "1:2"), **more
    )


GRAPH = {"hash": "aa", "calls": {"add": 2, "softmax": 1}}


def test_an_unchanged_graph_stays_valid_and_a_changed_one_says_what_changed() -> None:
    a = attempt("llama", "2026-01-01T00:00:00Z", graph=GRAPH, place={"torch": "2.13.0", "g++": "12"})
    same = requalified(a, lambda _: GRAPH)
    assert (same["state"], same["differences"], same["was"]) == (SAME, [], {"torch": "2.13.0"})
    asked = []

    def other(target: str) -> dict[str, Any]:
        asked.append(target)
        return {"hash": "bb", "calls": {"add": 3, "exp": 1}}

    changed = requalified(a, other)
    assert asked == ["llama"] and changed["state"] == CHANGED
    assert changed["differences"] == ["add 2 → 3", "exp 0 → 1", "softmax 1 → 0"]
    assert differences(GRAPH, {**GRAPH, "hash": "cc"}) == [
        "the same calls of other shapes, attributes or order"
    ]

    def fails(_target: str) -> dict[str, Any]:
        raise OpwrightError("cannot capture it")

    assert requalified(a, fails)["state"] == FAILED
    assert requalified(attempt("old", "2026-01-01T00:00:00Z"), fails)["state"] == UNKNOWN


def test_the_newest_attempt_that_ran_through_is_compared() -> None:
    first = attempt("llama", "2026-01-01T00:00:00Z", graph=GRAPH)
    failed = attempt("llama", "2026-01-02T00:00:00Z", failed="parity: no")
    assert newest([first, failed]) == [first]


def test_a_graph_is_told_by_its_nodes_and_not_by_where_they_stand() -> None:
    p = small()

    def elsewhere(n: Node) -> Node:
        return replace(n, id=n.id + "_x", site="else.py:9") if isinstance(n, Call) else n

    moved = with_nodes(p, [elsewhere(n) for n in p.nodes])
    assert graph_of(p) == graph_of(moved)
    first = next(k for k, n in enumerate(p.nodes) if isinstance(n, Call))
    other = list(p.nodes)
    call = other[first]
    assert isinstance(call, Call)
    other[first] = Call(call.id, "other", call.inputs, call.attrs, call.out)
    assert graph_of(with_nodes(p, other)) != graph_of(p)


# ---- backtest


def test_later_architectures_find_what_earlier_ones_asked_for() -> None:
    def one(name: str, at: str, ops: str, **more: Any) -> list[Attempt]:
        return [attempt(name, f"{at}T00:00:00Z", ops, **more)]

    found = {
        "bert": one("bert", "2026-03-01", "add matmul softmax", published="2019-01-01T00:00:00Z"),
        "llama": one("llama", "2026-02-01", "add matmul rms_norm softmax", published="2023-01-01T00:00:00Z"),
        "odd": one("odd", "2026-01-01", "", missing=({"op": "aten.fft.default"},), failed="supplied: x"),
        "gpt2": one("gpt2", "2026-02-02", "add matmul softmax group:01", published="2019-02-01T00:00:00Z"),
    }
    steps = covered(found)
    assert [s.architecture for s in steps] == ["bert", "gpt2", "llama", "odd"]
    assert [s.share for s in steps] == [0.0, 1.0, 0.75, 0.0]
    assert [s.registry for s in steps] == [3, 3, 4, 5]
    assert steps[2].new == ("rms_norm",) and not steps[3].dated
