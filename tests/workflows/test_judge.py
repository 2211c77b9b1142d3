"""`opwright judge`: the bounds calibrated, and the judge's own error rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opwright.validators import calibrate
from opwright.validators import corpus as corpora
from opwright.validators.calibrate import Measured
from opwright.workflows import judge


def test_calibrate_prints_a_table_and_says_when_a_bound_is_off(
    ow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Measured("f", "N=1", "good", True, 0.25), Measured("f", "N=1", "bad", False, float("inf"))]
    monkeypatch.setattr(calibrate, "calibrate", lambda seed: rows)
    ran = ow("judge", "calibrate")
    assert ran.code == 0
    assert "f   good    honest  N=1: 0.25\n" in ran.out
    assert "f   bad     cheat   N=1: inf\n" in ran.out
    assert ow("judge", "calibrate", "--json").json == {
        "schema": 1,
        "faults": [],
        "rows": [
            {"op": "f", "size": "N=1", "kernel": "good", "honest": True, "ratio": 0.25},
            {"op": "f", "size": "N=1", "kernel": "bad", "honest": False, "ratio": "inf"},
        ],
    }
    rows[0] = Measured("f", "N=1", "good", True, 2.0)
    ran = ow("judge", "calibrate")
    assert ran.code == 1
    assert "✗ f N=1: good is honest, 2 of the bound" in ran.out


@pytest.mark.scorecard
def test_scorecard_counts_by_gate(ow: Any) -> None:
    found = ow("judge", "scorecard", "--gate", "build", "--json")
    assert found.code == 0
    assert found.json["gates"]["build"]["killed"] == found.json["wrong"] >= 2
    assert found.json["honest"] == 0


def test_a_kernel_let_through_is_told(ow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def let_pass(entry: corpora.Entry, *, seed: int) -> corpora.Score:
        class Passed:
            failed_gates = ()
            gates = ()

        right = entry.gate is None
        return corpora.Score(entry, Passed(), right, right)  # type: ignore[arg-type]

    monkeypatch.setattr(corpora, "score", let_pass)
    ran = ow("judge", "scorecard", "--family", "nan dropped", "--family", "honest")
    assert ran.code == 1
    assert "✗ drops nan (nan dropped) was let through" in ran.out
    assert "honest kernels accused: 0 of" in ran.out


def test_what_there_is_not_is_said(ow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = ow("judge", "scorecard", "--gate", "numeric")
    assert ran.code == 2
    assert "numerics" in ran.err
    assert "lost tail" in ow("judge", "scorecard", "--family", "tails").err
    monkeypatch.setattr(judge.resources, "checkout", lambda: None)
    ran = ow("judge", "scorecard")
    assert ran.code == 2
    assert "checkout" in ran.err


def test_the_corpus_is_where_the_command_looks() -> None:
    assert (judge.corpus_folder() / "manifest.yaml").samefile(
        Path(__file__).parents[1] / "validators" / "corpus" / "manifest.yaml"
    )
