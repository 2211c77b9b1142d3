"""The judge's own proof: honest kernels pass every gate, each wrong one is rejected by its gate and by no other."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

from opwright import toolchain
from opwright.validators import judge as judging
from opwright.validators.corpus import Entry, TextSource, score
from opwright.validators.gates import GATES
from opwright.validators.judge import judge
from opwright.validators.verdict import NOT_APPLICABLE, PASSED

from .corpus_here import honest, wrong

pytestmark = pytest.mark.scorecard
HAS_TORCH = importlib.util.find_spec("torch") is not None


def named(entries: Sequence[Entry]) -> list[ParameterSet]:
    """The entries as parameters; some are judged by night only."""
    night = [pytest.mark.nightly]
    return [
        pytest.param(e, id=f"{e.gate}: {e.name}" if e.gate else e.name, marks=night if e.nightly else [])
        for e in entries
    ]


def asked(entry: Entry) -> list[str] | None:
    """All gates; without torch those of overloads cannot be told right from wrong."""
    return None if HAS_TORCH or not entry.spec.aten else [g.name for g in GATES if g.name != "meaning"]


@pytest.mark.parametrize("tier", ["quick", pytest.param("full", marks=pytest.mark.nightly)])  # minutes in all
@pytest.mark.parametrize("entry", named(honest()))
def test_honest_kernels_pass_every_gate(entry: Entry, tier: str) -> None:
    verdict = score(entry, tier=tier, gates=asked(entry)).verdict
    assert verdict.passed, "\n".join(verdict.lines())
    assert all(g.state in (PASSED, NOT_APPLICABLE) for g in verdict.gates)
    assert all(g.cases >= g.minimum for g in verdict.gates if g.state == PASSED)


@pytest.mark.nightly  # other draws of the same cases
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("entry", named(honest()))
def test_honest_kernels_pass_on_other_draws(entry: Entry, seed: int) -> None:
    verdict = score(entry, seed=seed, gates=asked(entry)).verdict
    assert verdict.passed, "\n".join(verdict.lines())


@pytest.mark.parametrize("entry", named(wrong()))
def test_a_wrong_kernel_is_rejected_by_its_gate_alone(entry: Entry) -> None:
    if entry.gate == "meaning" and entry.spec.aten and not HAS_TORCH:
        pytest.skip("torch is not installed")
    if entry.compiler is not None and toolchain.find_compiler().kind != entry.compiler:
        pytest.skip(f"{entry.compiler} only")
    found = score(entry, gates=asked(entry))
    verdict = found.verdict
    assert found.right, "\n".join(verdict.lines())
    assert found.alone, "\n".join(verdict.lines())
    failing = verdict.gate(entry.gate or "")
    assert failing.failures
    assert failing.failures[0].message


def test_every_gate_has_two_wrong_kernels_of_its_own() -> None:
    counts = Counter(e.gate for e in wrong())
    assert set(counts) == {g.name for g in GATES}
    assert min(counts.values()) >= 2, counts


def test_a_failure_repeats_with_the_command_it_prints() -> None:
    entry = next(e for e in wrong() if e.name == "drops nan")
    verdict = judge(entry.spec, TextSource(entry), seed=5)
    failure = verdict.gate("numerics").failures[0]
    assert failure.repeat == f"opwright validate c_rowmax --case '{failure.case}' --seed 5"
    again = judge(entry.spec, TextSource(entry), seed=5, case=failure.case)
    assert "numerics" in again.failed_gates
    assert judging.DTYPES


def test_a_failure_is_shrunk() -> None:
    entry = next(e for e in wrong() if e.name == "drops nan")
    failure = judge(entry.spec, TextSource(entry)).gate("numerics").failures[0]
    assert "float32[1, 1, 2]" in failure.shrunken, failure.shrunken
