"""`sweep`: every target gets a row, whatever its child does; rows are kept, and told by what stops them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwright.workflows import sweep
from opwright.workflows.forked import Forked
from opwright.workflows.sweep import Row


def run(work: dict[str, object], jobs: int = 2) -> dict[str, Row]:
    def start(target: str, path: Path) -> Forked:
        with open(path.with_suffix(".log"), "wb") as log:
            return Forked(lambda: work[target](path), None, log)  # type: ignore[operator]

    rows: dict[str, Row] = {}
    sweep.run_all(list(work), start, jobs, lambda r: rows.__setitem__(r.target, r))
    return rows


def test_every_target_ends_in_a_row() -> None:
    def good(path: Path) -> int:
        path.write_text(json.dumps({"target": "good", "reached": "parity"}))
        return 0

    def dies(path: Path) -> int:
        os.kill(os.getpid(), 9)
        return 0

    def raises(path: Path) -> int:
        raise ValueError("what it said")

    rows = run({"good": good, "dies": dies, "raises": raises})
    assert rows["good"] == Row("good", "parity")
    assert rows["dies"].failed == "captured" and "status -9" in rows["dies"].message
    assert "what it said" in rows["raises"].message


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LIMIT_S", 0.2)

    def never(path: Path) -> int:
        time.sleep(60)
        return 0

    begun = time.monotonic()
    rows = run({"never": never})
    assert "longer than" in rows["never"].message and time.monotonic() - begun < 30


def test_a_forked_child_is_like_a_started_one(tmp_path: Path) -> None:
    def work() -> int:
        print(os.environ["WORD"], flush=True)
        print("aside", file=sys.stderr)
        return 3

    with open(tmp_path / "log", "wb") as log, Forked(work, {"WORD": "said"}, log) as child:
        assert list(child.stdout) == ["said\n"]
        assert child.wait(60) == 3
    assert (tmp_path / "log").read_text() == "aside\n"
    with open(tmp_path / "log", "wb") as log:
        slow = Forked(lambda: time.sleep(60) or 0, None, log)
        with pytest.raises(subprocess.TimeoutExpired):
            slow.wait(0.05)
        os.killpg(slow.pid, 9)
        assert slow.wait() == -9


def test_rows_are_kept_and_a_cut_off_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"target": "a", "failed": "captured", "message": "no"}\n{"target": "a", "reached": "parity"}\n{"targ'
    )
    assert sweep.read_rows(path) == {"a": Row("a", "parity")}


def test_causes_are_the_same_for_all_that_they_stop() -> None:
    rows = [
        Row("a", "captured", "supplied", missing=[{"op": "aten.x.default", "why": "rank 3 is none of 1"}]),
        Row("b", "captured", "supplied", missing=[{"op": "aten.x.default", "why": "rank 5 is none of 1"}]),
        Row("c", "", "captured", "cannot capture transformers:c: it branches"),
        Row("d", "parity"),
    ]
    found = sweep.causes(rows)
    assert [(stage, targets) for stage, _, targets in found] == [
        ("supplied", ["a", "b"]),
        ("captured", ["c"]),
    ]
    text = sweep.table(rows, "parity")
    assert "1 of 4 pass `parity`" in text and "aten.x.default" in text
