"""The measuring core on invented clocks and figures: what ratios say, what the control forbids, which goals are met."""

from __future__ import annotations

from typing import Any

import pytest

from opwright.workflows.measuring import rounds
from opwright.workflows.measuring.rounds import best, goals_of, measure, quantile, verdict

QUIET = [0.99, 1.0, 1.01]


def test_a_round_calls_every_side_forwards_and_backwards() -> None:
    called: list[str] = []

    def side(name: str, seconds: float) -> Any:
        def timer(k: int, calls: int) -> float:
            if k == 1:
                called.append(name)
            return seconds

        return timer

    clock = iter(float(k) for k in range(100))
    sides = {"ours": side("o", 1.0), "torch": side("t", 2.0), "control": side("c", 1.0)}
    found = measure(sides, 0.0, sets=2, clock=lambda: next(clock))
    assert found.rounds == rounds.LEAST
    assert called[:6] == ["o", "t", "c", "c", "t", "o"]
    assert found.ratios["torch"] == [2.0] * (2 * rounds.LEAST) and set(found.ratios["control"]) == {1.0}
    assert "ours" not in found.ratios and len(found.seconds["ours"]) == 2 * rounds.LEAST


def test_a_block_has_as_many_calls_as_fill_it_and_one_of_long_ones() -> None:
    found = measure({"ours": lambda k, n: 1e-6, "slow": lambda k, n: 3.0, "control": lambda k, n: 1e-6}, 0.0)
    assert found.calls == {"ours": 4000, "slow": 1, "control": 4000}


@pytest.mark.parametrize(
    ("pairs", "control", "said"),
    [
        ([1.3, 1.31, 1.32], QUIET, "faster"),
        ([0.7, 0.71, 0.72], QUIET, "slower"),
        ([0.998, 1.0, 1.002], QUIET, "the same"),
        ([1.3, 1.31, 1.32], [0.6, 1.0, 1.4], "no verdict"),  # the control is wider than the gain
        ([0.9, 1.3, 1.8], QUIET, "no verdict"),
    ],
)
def test_a_verdict_is_given_only_beyond_the_control(
    pairs: list[float], control: list[float], said: str
) -> None:
    found = verdict(pairs, control)
    assert found["verdict"] == said
    assert found["p10"] <= found["ratio"] <= found["p90"]


def test_quantiles_are_interpolated() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 1.0], 0.25) == 0.25


def row(**rivals: Any) -> dict[str, Any]:
    made = {n: r if isinstance(r, dict) else verdict([r] * 3, QUIET) for n, r in rivals.items()}
    return {"rivals": made, "ours_s": 50e-9, "gb_s": 18.0, "limits": {"copy": 20.0}}


def test_the_best_is_the_quickest_of_the_plain_rivals() -> None:
    found = best(row(**{"torch": 3.0, "jax": 1.5, "torch-out": 1.1, "inductor": {"missing": "…"}})["rivals"])
    assert found is not None and found[0] == "jax"
    assert best({"torch-out": {"ratio": 1.0}}) is None


def test_goals_are_met_missed_or_left_open_with_the_reason() -> None:
    r = row(torch=1.5, jax=1.2, inductor={"missing": "not installed"})
    unsure = {**verdict([0.9, 1.4, 1.8], QUIET)}
    r["rivals"]["onnxruntime"] = unsure
    found = {
        g["vs"]: (g["met"], g["why"])
        for g in goals_of({"torch": 1.3, "jax": 2, "inductor": 1, "onnxruntime": 1.3, "torch-out": 1}, r)
    }
    assert found == {
        "torch": (True, ""),
        "jax": (False, ""),
        "inductor": (None, "not installed"),
        "onnxruntime": (None, "no verdict"),
        "torch-out": (None, "not measured"),
    }
    assert goals_of({"onnxruntime": 2}, r)[0]["met"] is False  # even its p90 is below
    ours = {
        g["vs"]: g["met"] for g in goals_of({"ns": 60, "copy": 0.95, "read": 0.9, "gb_s": 18, "best": 1.2}, r)
    }
    assert ours == {"ns": True, "copy": False, "read": None, "gb_s": True, "best": True}


def test_the_same_is_at_least_once_as_fast() -> None:
    r = row(torch={**verdict([0.999, 0.9995, 1.0], QUIET)})
    assert goals_of({"torch": 1.0}, r)[0]["met"] is True
    assert goals_of({"torch": 1.2}, r)[0]["met"] is False
