"""What the judge found: frozen data, JSON, and the lines a person reads.

May import: the standard library only.  To add a fact about a gate: a field of `GateResult`, its key in `to_json`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AUTHOR_ONLY",
    "EMPTY",
    "FAILED",
    "NOT_APPLICABLE",
    "NOT_HERE",
    "PASSED",
    "SKIPPED",
    "Failure",
    "GateResult",
    "Verdict",
]

PASSED = "passed"
FAILED = "failed"
EMPTY = "empty"  # ran fewer cases than its minimum: an empty proof is a failure
NOT_HERE = "not proven here"  # this machine lacks what the proof needs
NOT_APPLICABLE = "not applicable"  # the spec declares nothing that this gate could judge; `note` says what
AUTHOR_ONLY = "author only"  # what `source` says where no other text agreed with the meaning
SKIPPED = "skipped"  # an earlier gate failed, or the caller left it out

#: How many failures of a gate are kept in full.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """One finding.  `case` is its name (or empty), `shrunken` the smallest form found, `repeat` the one command."""

    message: str
    case: str = ""
    shrunken: str = ""
    repeat: str = ""

    def to_json(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("message", "case", "shrunken", "repeat") if getattr(self, k)}


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's result.

    cases     how many it ran; `minimum` is how many it has to
    failed    how many of them failed; `failures` holds the first ones
    worst     largest error over its bound (0 where the gate compares exactly), inf when an exact value differed
    strength  of the gate meaning at the full tier: mutants of `compute`
    classes   of the gate numerics: how many of its cases were of each class of values, and of positions (`index …`);
              of the gate errors: how many calls had a position out of range
    """

    name: str
    state: str
    cases: int = 0
    minimum: int = 0
    failed: int = 0
    failures: tuple[Failure, ...] = ()
    worst: float = 0.0
    note: str = ""
    seconds: float = 0.0
    strength: dict[str, Any] | None = None
    classes: dict[str, int] | None = None

    @property
    def ok(self) -> bool:
        """Nothing was found against the candidate (which is not yet a proof: see `Verdict.proven`)."""
        return self.state not in (FAILED, EMPTY)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": self.name,
            "state": self.state,
            "cases": self.cases,
            "minimum": self.minimum,
            "failed": self.failed,
            "worst": _number(self.worst),
            "seconds": round(self.seconds, 3),
            "failures": [f.to_json() for f in self.failures],
        }
        if self.note:
            out["note"] = self.note
        if self.strength is not None:
            out["strength"] = self.strength
        if self.classes:
            out["classes"] = self.classes
        return out


@dataclass(frozen=True)
class Verdict:
    """All gates on one candidate.

    meaning   the spec's meaning hash; `source` says what other text agreed with it, or `author only`
    text      hash of the candidate's normalised text, forward and gradient, for `dialect`
    sandbox   layers that were missing while it ran
    place     what the proof depends on: compiler, libraries
    """

    op: str
    meaning: str
    source: str
    dialect: str
    text: str
    tier: str
    seed: int
    gates: tuple[GateResult, ...]
    keys: tuple[str, ...] = ()
    sandbox: tuple[str, ...] = ()
    place: tuple[tuple[str, str], ...] = ()

    def gate(self, name: str) -> GateResult:
        """Raises KeyError."""
        for g in self.gates:
            if g.name == name:
                return g
        raise KeyError(name)

    @property
    def passed(self) -> bool:
        """No gate failed and none was empty or left out after a failure."""
        return bool(self.gates) and all(g.ok for g in self.gates)

    @property
    def proven(self) -> bool:
        """Every gate passed here, or had nothing to judge."""
        return bool(self.gates) and all(g.state in (PASSED, NOT_APPLICABLE) for g in self.gates)

    @property
    def failed_gates(self) -> tuple[str, ...]:
        return tuple(g.name for g in self.gates if not g.ok)

    @property
    def worst(self) -> float:
        return max((g.worst for g in self.gates), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "op": self.op,
            "passed": self.passed,
            "proven": self.proven,
            "meaning": self.meaning,
            "source": self.source,
            "dialect": self.dialect,
            "text": self.text,
            "tier": self.tier,
            "seed": self.seed,
            "keys": list(self.keys),
            "sandbox_missing": list(self.sandbox),
            "place": dict(self.place),
            "worst": _number(self.worst),
            "gates": [g.to_json() for g in self.gates],
        }

    def lines(self) -> Iterable[str]:
        """The verdict for a terminal, one gate a line, failures indented below theirs."""
        for g in self.gates:
            mark = {PASSED: "✓", FAILED: "✗", EMPTY: "✗"}.get(g.state, "–")
            counts = f"{g.cases} of at least {g.minimum}" if g.minimum else ""
            worst = f"worst {g.worst:.3g} of the bound" if g.worst else ""
            tail = ", ".join(part for part in (counts, worst, g.note) if part)
            yield f"{mark} {g.name:<12} {g.state}" + (f": {tail}" if tail else "")
            for f in g.failures:
                yield f"    {f.case + ': ' if f.case else ''}{f.message}"
                if f.shrunken:
                    yield f"      smallest: {f.shrunken}"
                if f.repeat:
                    yield f"      repeat:   {f.repeat}"
            if g.failed > len(g.failures) > 0:
                yield f"    … and {g.failed - len(g.failures)} more"


def _number(x: float) -> float | str:
    """JSON has no infinity."""
    if math.isfinite(x):
        return float(f"{x:.4g}")
    return "inf" if x > 0 else "nan"
