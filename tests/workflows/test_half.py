"""Level L3: what the rule for bf16 lets pass and what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opwright.generator.program.folder import write_tensors
from opwright.workflows.half import Half, judge_half

EXACT = np.array([1.0, -2.0, 4.0])
U = 2.0**-8  # bf16 keeps 8 bits


def judged(place: Path, ours: object, own: object, exact: object = EXACT) -> Half:
    for folder, name, values in (
        ("records/0", "outputs_f64", exact),
        ("records/0", "outputs_bf16", own),
        ("ran/0", "outputs", ours),
    ):
        (place / folder).mkdir(parents=True, exist_ok=True)
        write_tensors(place / folder / f"{name}.safetensors", {"y": np.asarray(values)})
    return judge_half(place / "records", place / "ran")


@pytest.mark.parametrize(
    ("ours", "held"), [(0.0, True), (0.19, True), (0.2, True), (0.21, False), (-0.21, False), (np.nan, False)]
)
def test_at_most_twice_pytorchs_own_error(ours: float, held: bool, tmp_path: Path) -> None:
    found = judged(tmp_path, EXACT + np.array([0, ours, 0]), EXACT + np.array([0.1, 0, 0]))
    assert found.held is held
    assert held or "y: error" in found.reason
    assert found.error["eager"] == pytest.approx(0.1) and found.error["bound"] == pytest.approx(0.2)


def test_an_exact_answer_rounded_once_passes_whatever_pytorchs_luck(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", EXACT * (1 + 0.9 * U), EXACT).held
    assert not judged(tmp_path / "b", EXACT * (1 + 1.1 * U), EXACT).held


def test_infinities_and_integers_are_where_they_belong(tmp_path: Path) -> None:
    there = np.array([1.0, -np.inf])
    assert judged(tmp_path / "a", there, there, there).held
    assert not judged(tmp_path / "b", np.array([1.0, -3e38]), there, there).held
    whole = np.array([3, 5])
    assert judged(tmp_path / "c", whole, whole, whole).held
    assert not judged(tmp_path / "d", np.array([3, 6]), whole, whole).held
    assert judged(tmp_path / "e", np.array([3, 6]), np.array([3, 4]), whole).held


def test_an_output_that_is_not_there_is_not_held(tmp_path: Path) -> None:
    assert "another shape" in judged(tmp_path / "a", EXACT[:2], EXACT).reason
    (tmp_path / "records").mkdir()
    assert judge_half(tmp_path / "records", tmp_path / "ran") == Half(False, "no output was compared")
