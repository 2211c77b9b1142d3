"""One judgement in progress: the trials, the built kernels, and the counting of a gate's cases.

May import: candidate, harness, trial, verdict, generator.{bound, spec}.  A gate takes a `Session` and returns a
`GateResult`.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..generator.bound import BindKey, BoundOp, KernelText
from ..generator.spec import OpSpec
from .candidate import Built, CandidateSource
from .harness import Harness
from .trial import Subject, Trial, describe, size_of
from .verdict import EMPTY, FAILED, PASSED, SHOWN, SKIPPED, Failure, GateResult

__all__ = ["Progress", "Session", "Tally"]

#: Called with the gate's name, the cases done and the cases there are.
Progress = Callable[[str, int, int], None]


@dataclass
class Tally:
    """Counts the cases of one gate; `result` judges the counts."""

    name: str
    minimum: int
    cases: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    worst: float = 0.0
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    classes: Counter[str] = field(default_factory=Counter)
    too_large: int = 0  # cases that the oracle does not take on
    excuse: str = ""  # why too few cases may be left: another gate has failed on the others

    def passed(self, ratio: float = 0.0) -> None:
        self.cases += 1
        self.worst = max(self.worst, ratio)

    def fail(self, failure: Failure, ratio: float = 0.0) -> None:
        self.cases += 1
        self.failed += 1
        self.worst = max(self.worst, ratio)
        if len(self.failures) < SHOWN:
            self.failures.append(failure)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def result(self) -> GateResult:
        empty = self.cases < self.minimum or not self.cases
        state = FAILED if self.failed else PASSED if not empty else SKIPPED if self.excuse else EMPTY
        if state == SKIPPED:
            self.note(self.excuse)
        if self.too_large:
            self.note(f"{self.too_large} case(s) too large for the oracle")
        return GateResult(
            self.name,
            state,
            self.cases,
            self.minimum,
            self.failed,
            tuple(self.failures),
            self.worst,
            "; ".join(self.notes),
            time.monotonic() - self.started,
            classes=dict(self.classes) or None,
        )


@dataclass
class Session:
    """One judgement: the spec, its trials, and the built kernels by key.

    trials are calls that the operator takes, refusals those that it must not; unmade: cases that could not be built;
    failed: gates that found something.
    """

    spec: OpSpec
    source: CandidateSource
    tier: str
    seed: int
    trials: Sequence[Trial]
    refusals: Sequence[Trial]
    texts: Sequence[KernelText]
    grads: Mapping[BindKey, KernelText]
    ops: Mapping[BindKey, BoundOp]
    harness: Harness
    minimums: Mapping[str, int]
    progress: Progress | None = None
    unmade: Sequence[tuple[str, str]] = ()
    built: list[Built] = field(default_factory=list)
    grad_built: dict[BindKey, Built] = field(default_factory=dict)
    subjects: dict[BindKey, Subject] = field(default_factory=dict)
    meaning_source: str = ""
    place: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.tier == "full"

    def tally(self, name: str) -> Tally:
        excuse = "numerics failed" if "numerics" in self.failed else ""
        self.tallies[name] = Tally(name, self.minimums[name], excuse=excuse)
        return self.tallies[name]

    def repeat(self, trial: Trial) -> str:
        """The one command that runs this case again."""
        how = self.spec.lower.get("cpu")
        body = (
            f" --body {how['file']}"
            if isinstance(how, dict) and str(how.get("file", "")).startswith("/")
            else ""
        )
        return f"opwright validate {self.spec.op} --case '{trial.case}' --seed {self.seed}{body}"

    def failure(self, message: str, trial: Trial, small: Trial | None = None) -> Failure:
        return Failure(message, trial.case or trial.name, describe(small or trial), self.repeat(trial))

    def each(self, gate: str, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Subject]]:
        """Trials whose call the operator takes, with their kernels; tells the progress."""
        chosen = list(trials)
        for k, trial in enumerate(chosen):
            if self.progress is not None:
                self.progress(gate, k, len(chosen))
            subject = self.subjects[trial.key]
            want = subject.want(trial)
            if isinstance(want, dict):
                yield trial, subject
            elif want is None and gate in self.tallies:
                self.tallies[gate].too_large += 1

    def sound(self, gate: str, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Subject]]:
        """The same, left out those whose plain run is wrong: numerics says so, once."""
        for trial, subject in self.each(gate, trials):
            if not subject.wrong(trial):
                yield trial, subject

    def spread(self, limit: int, fits: Callable[[Trial], bool] = lambda _: True) -> list[Trial]:
        """At most `limit` trials: of every key and class of values some; and a quarter more on the ladder of sizes.

        fits: which trials come into question at all.  A gate that cannot use every trial says so here and not in its
        loop, where the share it was given may hold none that it can use.
        """
        groups: dict[tuple[BindKey, str], list[Trial]] = {}
        usable = [t for t in self.trials if fits(t)]
        for trial in sorted((t for t in usable if not t.name.startswith("size")), key=size_of):
            groups.setdefault((trial.key, trial.values), []).append(trial)
        out: list[Trial] = []
        depth = 0
        while len(out) < limit and any(depth < len(g) for g in groups.values()):
            # Middle sizes first: the smallest are empty, the largest slow.
            out += [g[(depth + len(g) // 2) % len(g)] for g in groups.values() if depth < len(g)]
            depth += 1
        return out[:limit] + self.sized(limit // 4, fits)

    def sized(self, limit: int, fits: Callable[[Trial], bool] = lambda _: True) -> list[Trial]:
        """At most `limit` trials (one at least) on the ladder of sizes: of every key and rung some."""
        groups: dict[tuple[BindKey, str], list[Trial]] = {}
        for trial in self.trials:
            if trial.name.startswith("size") and fits(trial):
                groups.setdefault((trial.key, trial.name.split(".", 1)[0]), []).append(trial)
        turns = itertools.zip_longest(*groups.values())
        return [t for turn in turns for t in turn if t is not None][: max(1, limit)]
