"""`judge` as a whole: what it takes, what it says, and that nothing empty or missing ever passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from opwright.generator.bound import BindKey, KernelText
from opwright.generator.errors import OpwrightError
from opwright.validators import meaning
from opwright.validators.corpus import Entry, TextSource
from opwright.validators.gates import GATE, GATES
from opwright.validators.judge import judge, judged_keys
from opwright.validators.session import Session, Tally
from opwright.validators.torch_server import TorchMissing
from opwright.validators.trial import Trial
from opwright.validators.verdict import (
    EMPTY,
    FAILED,
    NOT_APPLICABLE,
    NOT_HERE,
    PASSED,
    SKIPPED,
    Failure,
    GateResult,
)

from .corpus_here import honest, spec_of

LATER = ["lint", "build", "numerics", "layouts", "memory", "determinism", "errors", "gradient", "inplace"]


def entry(name: str) -> Entry:
    return next(e for e in honest() if e.name == name)


def test_the_verdict_is_json_with_every_gate_and_its_counts() -> None:
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(e))
    data = json.loads(json.dumps(verdict.to_json()))
    assert data["schema"] == 1
    assert data["op"] == "c_rowmax"
    assert data["passed"] is True
    assert [g["name"] for g in data["gates"]] == [g.name for g in GATES]
    for row in data["gates"]:
        assert row["cases"] >= row["minimum"]
    assert data["meaning"] == e.spec.meaning_hash()
    assert data["place"]["compiler"]
    assert verdict.source == "also"


def test_only_the_gates_that_are_asked_for_are_reported() -> None:
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(e), gates=["numerics"])
    assert [g.name for g in verdict.gates] == ["numerics"]


def test_meaning_alone_asks_for_no_kernel() -> None:
    source = TextSource(entry("rowmax"))
    verdict = judge(source.entry.spec, source, gates=["meaning"])
    assert verdict.passed
    assert source.asked == []
    assert verdict.text == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"gates": ["numeric"]}, "no gate `numeric`"),
        ({"tier": "slow"}, "no tier `slow`"),
        ({"case": "case0/f32/normal"}, "is no case"),
    ],
)
def test_a_wrong_request_is_one_clear_error(arguments: dict[str, object], said: str) -> None:
    e = entry("rowmax")
    with pytest.raises(OpwrightError, match=said):
        judge(e.spec, TextSource(e), **arguments)  # type: ignore[arg-type]


def test_one_case_is_judged_alone() -> None:
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(e), case="case0/-/normal/contiguous/-/all", gates=["numerics"])
    assert verdict.passed
    assert verdict.gate("numerics").cases == 1


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    e = entry("rowmax")
    judge(e.spec, TextSource(e), gates=["numerics"], progress=lambda *step: told.append(step))
    assert {gate for gate, _, _ in told} == {"lint", "build", "numerics"}
    assert all(done <= total for _, done, total in told)


def test_an_empty_proof_is_a_failure() -> None:
    assert Tally("numerics", 3).result().state == EMPTY
    tally = Tally("numerics", 3)
    for _ in range(2):
        tally.passed()
    assert tally.result().state == EMPTY
    tally.passed()
    assert tally.result().state == PASSED
    assert Tally("memory", 3, excuse="numerics failed").result().state == SKIPPED
    assert not GateResult("x", EMPTY).ok


def test_no_verdict_without_gates_passes() -> None:
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(e), gates=["numerics"])
    assert not replace(verdict, gates=()).passed
    assert not replace(verdict, gates=()).proven


def test_after_a_failed_lint_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(s: Session) -> GateResult:
        raise AssertionError("it was built")

    monkeypatch.setitem(GATE, "build", replace(GATE["build"], run=built))
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(replace(e, forward=e.forward + "static int kept;\n")), gates=LATER)
    states = {g.name: g.state for g in verdict.gates}
    assert states.pop("lint") == FAILED
    assert set(states.values()) == {SKIPPED}
    assert not verdict.passed


def test_a_candidate_that_crashes_is_judged_to_the_end() -> None:
    e = entry("rowmax")
    text = e.forward.replace(
        "    float m = from[0];", "    float m = n > 4 ? *(const float*)nullptr : from[0];"
    )
    verdict = judge(e.spec, TextSource(replace(e, forward=text)), gates=LATER)
    failure = verdict.gate("numerics").failures[0]
    assert "SIGSEGV" in failure.message
    assert "case" in failure.repeat
    assert verdict.gate("errors").state == PASSED


def test_without_torch_the_meaning_is_not_proven_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        version = ""

        def call(self, *_: object, **__: object) -> None:
            raise TorchMissing("torch is missing: not today")

    monkeypatch.setattr(meaning, "torch_server", Missing)
    e = entry("add")
    verdict = judge(e.spec, TextSource(e), gates=["meaning"])
    assert verdict.gate("meaning").state == NOT_HERE
    assert verdict.gate("meaning").note == "not proven here: torch is missing: not today"
    assert verdict.passed
    assert not verdict.proven


def test_a_meaning_that_nobody_else_vouches_for_is_the_authors_only() -> None:
    spec = replace(spec_of("c_rowmax"), also=None)
    verdict = judge(spec, TextSource(entry("rowmax")), gates=["meaning"])
    assert verdict.source == meaning.AUTHOR_ONLY
    assert verdict.gate("meaning").state == NOT_APPLICABLE
    assert "author only" in verdict.gate("meaning").note


def test_the_text_hash_does_not_depend_on_the_seed() -> None:
    e = entry("take")
    hashes = {judge(e.spec, TextSource(e), seed=seed, gates=["numerics"]).text for seed in (0, 3)}
    assert len(hashes) == 1
    assert len(judged_keys(e.spec)) == 1


def test_a_gradient_that_is_promised_must_come() -> None:
    e = replace(entry("softmax"), gradient=None)
    verdict = judge(e.spec, TextSource(e), gates=["gradient"])
    assert verdict.gate("gradient").state == EMPTY


def test_kernels_that_break_together_are_built_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(TextSource):
        def gradient(self, keys: Sequence[BindKey]) -> list[KernelText]:
            (text,) = super().gradient(keys)
            return [replace(text, source=text.source.replace("float g = 0;", "float g = unheard_of;"))]

    monkeypatch.setitem(GATE, "lint", replace(GATE["lint"], run=lambda s: GateResult("lint", PASSED, 2, 1)))
    e = entry("softmax")
    result = judge(e.spec, Two(e), gates=["build"]).gate("build")
    assert (result.state, result.cases, result.failed) == (FAILED, 2, 1)
    assert "unheard_of" in result.failures[0].message


def test_every_gate_says_what_it_proves() -> None:
    assert len({g.name for g in GATES}) == len(GATES) == 10
    for gate in GATES:
        assert gate.what
        assert 1 <= gate.quick <= gate.full
        assert gate.minimum(True) == gate.full


def test_failures_beyond_the_first_are_counted() -> None:
    tally = Tally("numerics", 1)
    for k in range(9):
        tally.fail(Failure(f"case {k}"), 2.0)
    result = tally.result()
    assert (result.failed, len(result.failures), result.worst) == (9, 5, 2.0)


CLASSES = {
    "exact",
    "normal",
    "large",
    "tiny",
    "denormal",
    "zeros",
    "inf",
    "nan",
    "nan_inf",
    "halves",
    "all_equal",
    "mixed",
}


def test_every_class_of_values_and_positions_is_counted() -> None:
    e = entry("take")
    verdict = judge(e.spec, TextSource(e), tier="full", gates=["numerics", "errors"])
    counted = verdict.gate("numerics").classes or {}
    assert set(counted) >= CLASSES
    assert min(counted.values()) >= 1
    assert {"index uniform", "index same", "index bounds"} <= set(counted)
    assert "index negative" not in counted, "its rules forbid them"
    assert (verdict.gate("errors").classes or {})["index out of range"] > 4
    assert verdict.gate("numerics").to_json()["classes"] == counted


def test_a_gate_that_is_left_out_proves_nothing() -> None:
    e = entry("rowmax")
    verdict = judge(e.spec, TextSource(e), gates=["lint", "build"], without=["lint"])
    assert verdict.gate("lint").state == SKIPPED
    assert verdict.gate("build").state == PASSED
    assert not verdict.proven


def test_a_share_of_what_fits_holds_nothing_else() -> None:
    """However few of many fit, a gate that asks for a share gets those."""
    key = BindKey()
    trials = [Trial(f"case{k}", key, {"x": np.zeros(k + 1)}, values=f"v{k % 40}") for k in range(200)]
    trials += [Trial(f"size0.{k}", key, {"x": np.zeros(100 + k)}) for k in range(40)]
    session = Session(spec_of("c_rowmax"), None, "quick", 0, trials, [], [], {}, {}, None, {})  # type: ignore[arg-type]
    chosen = session.spread(8, lambda t: t.name in ("case0", "case199", "size0.39"))
    assert {t.name for t in chosen} == {"case0", "case199", "size0.39"}
    assert len(session.spread(8)) == 10
