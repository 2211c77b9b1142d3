"""`opwright bench`: what it refuses, what it prints of invented rows, what a process that dies leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from opwright.workflows import bench
from opwright.workflows.measuring import picture, rounds, rows, table
from opwright.workflows.measuring.sides import Gone, Process
from opwright.workflows.workbench import Workbench

VS = ("torch", "jax")
MACHINE = {"processor": "Xeon <5>", "dialect": "cpu-avx512", "cores": 2, "compiler": "g++ 12"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name operators, or a suite, or models"),
        (("relu", "--suite", "speed"), "name operators, or a suite, or models"),
        (("relu", "--vs", "trch"), "`trch` is no rival"),
        (("relu", "--vs", ","), "--vs names nobody"),
        (("relu", "add", "--calls", "x.jsonl"), "--calls is for one operator"),
        (("relu", "--out", "x.pdf"), "x.pdf is of no kind that is written"),
        (("--suite", "speed", "--only", "nothing like it"), "no row of the suite contains"),
        (("--suite", "slow"), "slow"),
        (("rellu",), "rellu"),
        (("--model", "lama"), "lama"),
        (("--model", "nowhere.py:make"), "no file nowhere.py"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(ow: Any, words: Any, says: str) -> None:
    ran = ow("bench", *words)
    assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err


def invented() -> list[dict[str, Any]]:
    quiet, loud = [0.99, 1.0, 1.01], [0.5, 1.0, 1.6]
    out = []
    for name, pairs, control in (("a <b>, f32", [1.4] * 3, quiet), ("c, f32", [1.2, 1.3, 1.4], loud)):
        row: dict[str, Any] = {"name": name, "class": "sums", "rivals": {"jax": {"missing": "not installed"}}}
        found = rounds.Measured(
            {"torch": pairs, "control": control}, {"ours": [1e-3], "torch": [1.4e-3], "control": [1e-3]}, 3
        )
        row["rivals"]["torch"] = {
            "version": "2",
            "compile_s": None,
            "answers": "differ: `y`, 3 times its bound",
        }
        row["bytes"] = 10**6
        rows.finish(row, found, rows.Plan(VS), {"torch": 1.3})
        out.append(row)
    return [*out, {"name": "d, f32", "class": "sums", "failed": "the measurement failed: SIGSEGV"}]


def test_no_verdict_is_no_number_of_a_gain() -> None:
    sure, unsure, _ = invented()
    assert sure["verdict"] == "faster" and sure["goals"][0]["met"] is True
    assert unsure["verdict"] == "no verdict" and unsure["goals"][0] | {"got": 0} == {
        "vs": "torch", "goal": 1.3, "got": 0, "met": None, "why": "no verdict",
    }  # fmt: skip
    assert rows.said_of(unsure, "torch").startswith("no verdict: the control spreads")
    assert table.ratio_text(unsure, "torch").startswith("?") and table.ratio_text(sure, "torch").endswith("!")


def test_what_is_quicker_than_memory_is_invalid() -> None:
    row: dict[str, Any] = {"rivals": {"torch": {}}, "bytes": 10**9}
    found = rounds.Measured({"torch": [2.0], "control": [1.0]}, {"ours": [0.02], "torch": [0.04]}, 1)
    rows.finish(
        row, found, rows.Plan(("torch",), limits={"read": 12.0, "copy": 20.0}), {"copy": 0.9, "torch": 1.5}
    )
    assert row["verdict"] == "invalid" and row["goals"][1]["why"] == "invalid"


def test_a_table_names_who_is_missing_and_whose_answers_differ(capsys: Any) -> None:
    table.print_rows(invented(), VS)
    said = capsys.readouterr().out
    assert "jax: not installed (a <b>, f32, c, f32)" in said
    assert "not measured: the measurement failed: SIGSEGV (d, f32)" in said
    assert "torch, c, f32: its answers differ: `y`, 3 times its bound" in said
    page = table.markdown(invented(), VS, MACHINE)
    assert page.count("\n| ") == 3 + 1 and "≥ 1.3 × torch: met" in page


def test_pictures_are_whole_and_show_every_row() -> None:
    drawn = picture.svg(invented(), VS, MACHINE)
    shapes = ElementTree.fromstring(drawn)
    texts = [t.text for t in shapes.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a <b>, f32", "c, f32", "sums", "1.40"} <= set(texts)
    assert "prefers-color-scheme:dark" in drawn and "http" not in drawn.replace(
        "http://www.w3.org/2000/svg", ""
    )
    page = picture.html(invented(), VS, MACHINE)
    assert "a &lt;b&gt;, f32" in page and "SIGSEGV" in page and "<script" not in page


def test_a_process_that_dies_is_an_answer_and_the_next_one_is_new() -> None:
    side = Process("torch", {"threads": 1, "cpus": [], "root": "."})
    try:
        with pytest.raises(Gone, match="the process of torch ended"):
            side.ask({"do": "nothing of the kind"})
        with pytest.raises(Gone, match="AttributeError"):
            side.ask({"do": "nothing of the kind"})
    finally:
        side.end()


def test_rows_that_are_done_stay_when_the_run_is_interrupted(
    project: Path, ow: Any, monkeypatch: Any
) -> None:
    done = invented()[0]

    def measured(sides: Any, spec: Any, w: Any, plan: Any, *_: Any) -> dict[str, Any]:
        if spec.op == "add":
            raise KeyboardInterrupt
        return {k: v for k, v in done.items() if k not in ("name", "class")}

    monkeypatch.setattr(bench, "measure_op", measured)
    ran = ow("bench", "relu", "add", "--dtype", "f32", "--vs", "torch,jax", "--json")
    assert ran.code == 130
    assert ran.json["interrupted"] is True and len(ran.json["rows"]) == 1
    assert "1 of " in ran.err and "rows were done" in ran.err
    (kept,) = Workbench.here(project).config.measured.glob("*.json")
    assert "relu" in kept.name
