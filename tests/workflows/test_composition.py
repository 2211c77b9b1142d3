"""The gate's models: the largest first, what the budget leaves out is named, a red one says which operator it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from opwright.workflows import enable, records
from opwright.workflows.console import Progress
from opwright.workflows.gate import _Gate, size_of
from opwright.workflows.records import Attempt
from opwright.workflows.workbench import Workbench

HELD: dict[str, bool | None] = {n: n <= "L2" for n in records.LEVELS}
CALLS = {"small": 2, "large": 40, "middle": 9}


class Heard(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def done(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def gate(tmp_path: Path) -> _Gate:
    """A gate over three recorded models, without a repository: only its check of models is asked."""
    (tmp_path / "opwright.toml").write_text("schema = 1\n")
    bench = Workbench.here(tmp_path)
    for name, n in CALLS.items():
        graph = {"hash": "00", "calls": {"add": n}}
        records.append(
            bench.config.support,
            Attempt(name, "cpu", "f32", records.now(), f"transformers:{name}", levels=HELD, graph=graph),
        )
    found: _Gate = object.__new__(_Gate)
    for key, value in {
        "bench": bench,
        "work": tmp_path,
        "progress": Heard(),
        "budget_s": 3600.0,
        "begun": time.monotonic(),
        "models": True,
        "record": True,
        "checks": [],
    }.items():
        setattr(found, key, value)
    return found


def ran_by(monkeypatch: pytest.MonkeyPatch, failed: str = "", each: Any = None) -> list[str]:
    """Stand for `enable_target`: what was run, in order; the model `middle` fails so."""
    ran: list[str] = []

    def enabled(_bench: Workbench, target: str, *_: Any, **__: Any) -> enable.Result:
        ran.append(target)
        if each is not None:
            each()
        bad = failed if target == "middle" else ""
        held = HELD | {"L2": False} if bad else dict(HELD)
        return enable.Result(target, "cpu", "f32", f"transformers:{target}", levels=held, failed=bad)

    monkeypatch.setattr(enable, "enable_target", enabled)
    return ran


def test_the_largest_models_run_first(gate: _Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = ran_by(monkeypatch)
    gate.check_models([])
    assert ran == ["large", "middle", "small"]
    assert [(c.name, c.state) for c in gate.checks] == [(f"{n} cpu f32", "ok") for n in ran]


def test_what_the_budget_leaves_out_is_named(gate: _Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def spend() -> None:
        gate.budget_s -= 1800

    ran = ran_by(monkeypatch, each=spend)
    gate.check_models([])
    assert ran == ["large", "middle"]
    (left,) = [c for c in gate.checks if c.state == "skipped"]
    assert left.name == "small cpu f32" and left.reason.startswith("the time budget is spent")
    assert "left out, the time budget is spent: small cpu f32" in gate.progress.lines  # type: ignore[attr-defined]


def test_a_model_that_no_longer_holds_is_red_with_the_operator(
    gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "parity: y: error 1, at most 0.1; the first operator that makes them diverge is add_3 at model.py:7"
    ran_by(monkeypatch, failed=why)
    gate.check_models([])
    (red,) = [c for c in gate.checks if c.state == "red"]
    assert (red.name, red.reason) == ("middle cpu f32", why)


def test_a_size_is_calls_else_operators() -> None:
    a = Attempt("x", "cpu", "f32", records.now(), operators=5)
    assert size_of(a) == 5
