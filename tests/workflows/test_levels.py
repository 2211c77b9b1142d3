"""Levels L4 and L5: what the rules for texts, gradients and losses let pass, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.folder import write_tensors
from opwright.workflows import enable
from opwright.workflows.console import Progress
from opwright.workflows.decoding import Decoded, judge_decoding
from opwright.workflows.records import highest
from opwright.workflows.training import Trained, judge_training
from opwright.workflows.workbench import Workbench

EXACT = np.array(
    [[[0.0, 9.0, 1.0], [5.0, 0.0, 4.0], [1.0, 2.0, 1.9999999]]]
)  # one text: three places, three tokens
TEXT = np.array([[2, 1, 0]])


def decoded(place: Path, ours: Any, own: Any = 0.0, text: Any = TEXT) -> Decoded:
    for folder in ("text", "ran"):
        (place / folder).mkdir(parents=True)
    write_tensors(place / "text" / "inputs.safetensors", {"text": text})
    write_tensors(place / "text" / "logits_f64.safetensors", {"logits": EXACT})
    write_tensors(place / "text" / "logits_f32.safetensors", {"logits": (EXACT + own).astype("f")})
    write_tensors(place / "ran" / "logits.safetensors", {"logits": np.asarray(ours, dtype="f")})
    (place / "text" / "text.json").write_text(json.dumps({"token": "input_ids", "prompt": 1}))
    return judge_decoding(place / "text", place / "ran")


def test_the_text_is_eagers_token_for_token(tmp_path: Path) -> None:
    found = decoded(tmp_path / "same", EXACT)
    assert (found.held, found.tokens, found.open) == (True, 2, 0)
    other = EXACT.copy()
    other[0, 1] = [0.0, 7.0, 0.0]
    found = decoded(tmp_path / "other", other)
    assert not found.held and found.reason == "token 2 of text 0 is 1, eager's is 0"
    other[0, 1] = np.nan
    assert not decoded(tmp_path / "nan", other).held
    assert not decoded(tmp_path / "short", EXACT[:, :2]).held


def test_a_choice_that_eager_leaves_open_may_differ(tmp_path: Path) -> None:
    other = EXACT.copy()
    other[0, 1] = [4.0, 0.0, 5.0]
    assert not decoded(tmp_path / "clear", other).held
    found = decoded(tmp_path / "open", other, own=np.array([0.3, 0.0, 0.0]))  # eager f32 itself is off by 0.3
    assert (found.held, found.open) == (True, 1)
    other[0, 1] = [0.0, 5.0, 0.0]
    assert not decoded(tmp_path / "third", other, own=np.array([0.3, 0.0, 0.0])).held, (
        "only the second may win"
    )


def trained(place: Path, ours: Any, losses: list[float], own: float = 1e-6, name: str = "w") -> Trained:
    for folder in ("records/0", "ran/0"):
        (place / folder).mkdir(parents=True)
    exact = np.array([1.0, -4.0])
    record, ran = place / "records" / "0", place / "ran" / "0"
    write_tensors(record / "gradients_f64.safetensors", {"w": exact})
    write_tensors(record / "gradients_f32.safetensors", {"w": (exact + own).astype("f")})
    write_tensors(ran / "gradients.safetensors", {name: np.asarray(ours, dtype="f")})
    # `c` is an output that no weight reaches: it is in PyTorch's loss, and not in ours.
    told = [{"y": 3.0, "c": 5.0}, {"y": 2.0, "c": 5.0}]
    facts = {"losses": {"f64": told, "f32": told}, "scale": {"y": 100.0, "c": 1e9}}
    (record / "training.json").write_text(json.dumps(facts))
    (ran / "losses.json").write_text(json.dumps({"of": ["y"], "losses": losses}))
    return judge_training(place / "records", place / "ran")


def test_gradients_within_four_of_eagers_errors(tmp_path: Path) -> None:
    assert trained(tmp_path / "a", [1.0 + 3e-6, -4.0], [3.0, 2.0]).held
    found = trained(tmp_path / "b", [1.0 + 2e-5, -4.0], [3.0, 2.0])
    assert not found.held and "the gradient of w in record 0: error" in found.reason
    assert not trained(tmp_path / "c", [np.nan, -4.0], [3.0, 2.0]).held
    assert not trained(tmp_path / "d", [1.0], [3.0, 2.0]).held
    assert not trained(tmp_path / "e", [1.0, -4.0], [3.0, 2.0], name="v").held, (
        "one that is not there is zeros"
    )


def test_losses_may_part_by_the_rounding_of_what_they_add_up(tmp_path: Path) -> None:
    assert trained(tmp_path / "a", [1.0, -4.0], [3.0, 2.0 + 4e-5]).held
    found = trained(tmp_path / "b", [1.0, -4.0], [3.0, 2.0 + 6e-5])
    assert not found.held and "the losses of record 0 part" in found.reason
    assert not trained(tmp_path / "c", [1.0, -4.0], [3.0]).held
    assert not trained(tmp_path / "d", [1.0, -4.0], [3.0, np.nan]).held


@pytest.mark.parametrize(
    ("l4", "why", "level"),
    [
        (True, "", "L5"),
        (None, "it does not apply: the model writes no text", "L5"),
        (None, "not measured by this version", "L3"),
        (False, "token 1 of text 0 is 1, eager's is 0", "L3"),
    ],
)
def test_a_level_that_does_not_apply_stands_in_no_way(l4: bool | None, why: str, level: str) -> None:
    levels = {"L0": True, "L1": True, "L2": True, "L3": True, "L4": l4, "L5": True, "L6": None}
    assert highest(levels, {"L4": why} if why else {}) == level


@pytest.mark.parametrize(
    ("rival", "held", "said"),
    [
        (
            {"verdict": "faster", "ratio": 2.0, "p10": 1.8, "p90": 2.25},
            True,
            "faster: torch.compile takes 2.00",
        ),
        (
            {"verdict": "no verdict", "ratio": 1.1, "p10": 0.9, "p90": 1.4},
            False,
            "no verdict: torch.compile takes 1.10",
        ),
        ({"missing": "BackendCompilerFailed: no"}, False, "not measured: BackendCompilerFailed: no"),
    ],
)
def test_fast_is_faster_than_torch_compile_by_a_verdict(
    rival: dict[str, Any], held: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def measured(row: Any, bench: Any, progress: Any, sides: Any, plan: Any, goals: Any) -> dict[str, Any]:
        asked.append((row.target, row.folder, plan.vs))
        return {"rivals": {"inductor": rival, "torch": {"ratio": 4.0}}}

    monkeypatch.setattr("opwright.workflows.measuring.models.measure_model", measured)
    run = enable._Run(Workbench.here(), "llama", tmp_path, None, 0, Progress(), until="fast")
    run.folder = tmp_path
    text = run.measured()
    assert asked == [("llama", tmp_path, ("inductor", "torch"))]
    assert run.result.levels["L6"] is held and said in text
    face = run.result.to_json()["fast"]
    assert face == {k: rival.get(k) for k in ("verdict", "ratio", "p10", "p90")} | {
        "eager": 4.0 if "ratio" in rival else None
    }


def test_what_is_not_asked_for_is_not_measured(tmp_path: Path) -> None:
    run = enable._Run(Workbench.here(), "llama", tmp_path, None, 0, Progress())
    assert run.reaches("training") and not run.reaches("fast")
    run.explain_unmeasured()
    assert run.result.reasons["L6"] == "not measured: ended after training"
