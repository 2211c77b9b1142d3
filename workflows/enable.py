"""`opwright enable`: take a model from its code to parity with PyTorch, by a clock over named stages.

    captured     its graph is exported, in a child process                                    L0
    inventoried  every call: operator, types, where it stands in the model's source
    supplied     each call has an operator whose domain covers it; what has none is listed with site and why
    validated    operators without evidence are judged in full, and accepted                  L1
    composed     fused, its groups judged, kernels built, the program folder written
    parity       run where importing torch fails, compared with what eager said               L2
    half         the same in bf16, beside PyTorch's own bf16                                  L3
    decoding     token by token with a key/value cache, where the model writes text           L4
    training     differentiated: gradients of all weights, ten steps of AdamW                 L5
    fast         measured against torch.compile, by turns; only where it is asked for         L6

What fails after parity leaves L2 as it is.
The attempt is appended to the records (records.py), failures too.  Machine's faults are no attempt.
May import: everything.  To add a stage: a method of `_Run`, its name in `STAGES`, and its level in `levels`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from .. import __version__, toolchain
from ..errors import EXIT_FAILED, EXIT_MACHINE, EXIT_OK, OpwrightError, Place
from ..generator.errors import JudgedError, SpecError
from ..generator.gradient import NoGradientError
from ..generator.program.capture_run import Captured, Spawn, run_worker
from ..generator.program.checkpoints import model_type_of
from ..generator.program.folder import local_file, read_folder, write_folder
from ..generator.program.fuse import Fused, fuse
from ..generator.program.ir import Call, Program
from ..generator.program.models import TargetError, target_kind
from ..generator.program.records import SENSITIVE
from ..generator.program.request import GRADIENT, request_of
from ..generator.program.training import training_program
from ..generator.spec import load_spec_text
from . import console, records
from .accept import Job, judge_all, record
from .bridge import Bridge, aten_rows
from .command import command, json_option, seed_option
from .console import Progress
from .decoding import judge_decoding
from .half import Half, judge_half
from .parity import Parity, judge_parity, run_child
from .records import LEVELS, UNMEASURED, Attempt
from .training import judge_training
from .workbench import Workbench

__all__ = ["STAGES", "Result", "Trial", "enable", "enable_target", "missing_of", "request_of"]

STAGES = (
    "captured",
    "inventoried",
    "supplied",
    "validated",
    "composed",
    "parity",
    "half",
    "decoding",
    "training",
    "fast",
)
#: The stage that an attempt ends after, unless it is told otherwise: torch.compile takes longer than all before it.
LAST = "training"
#: The stages after parity, and the level that each decides.
FURTHER = {"half": "L3", "decoding": "L4", "training": "L5", "fast": "L6"}
#: Seconds that a model's own code gets to be captured in.
CAPTURE_LIMIT = 600.0
_LATER = f"{UNMEASURED} by this version"
#: Of the disturbances of single nodes: seen, all, and seen by the outputs alone.
_SEEN = ("detected", "total", "by_outputs")
#: Of a comparison: the largest error, the bound on it, and eager's own error.
_ERROR = ("max", "bound", "eager")
#: Of a measurement against torch.compile: its time over ours, median and spread, and the same of eager's.
_RATIO = ("verdict", "ratio", "p10", "p90", "eager")


class EnableError(JudgedError):
    """A model could not be enabled: an operator is missing, or a group of its program did not pass."""


class TargetNameError(OpwrightError):
    """A target whose architecture has no name that a record can have."""


# ---- what a call asks for ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """A call that nothing supplies: the operator (or overload), where it stands, and why."""

    op: str
    site: str
    why: str

    def to_json(self) -> dict[str, str]:
        return {"op": self.op, "site": self.site, "why": self.why}


def missing_of(bench: Workbench, bridge: Bridge, program: Program) -> list[Missing]:
    """The calls that no spec of the workbench covers, equal ones once with all their sites."""
    found: dict[tuple[str, str], list[str]] = {}
    answers: dict[str, str] = {}
    for call in program.calls:
        asked = request_of(program, call)
        key = repr(asked)
        if key not in answers:
            answers[key] = (
                call.why or "no operator claims this overload"
                if call.missing
                else _refusal(bench, bridge, asked)
            )
        if answers[key]:
            found.setdefault((call.op.removeprefix("missing:"), answers[key]), []).append(call.site)
    return [
        Missing(op, ", ".join(dict.fromkeys(s for s in sites if s)), why)
        for (op, why), sites in found.items()
    ]


def _refusal(bench: Workbench, bridge: Bridge, asked: Mapping[str, Any]) -> str:
    """Why the operator does not cover the request; empty when it does."""
    try:
        spec = bench.registry.get(str(asked["op"]))
        wanted = bridge.resolve(spec, asked)
        bridge.text(spec, wanted.resolved.key)
    except SpecError as error:
        return error.message
    if not spec.op.startswith("group:") and bench.is_its_authors_only(spec):
        return "nobody but its author says what it means: name its overload in `aten:`, or a `reference:`"
    return ""


# ---- one attempt ---------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What an attempt came to."""

    architecture: str
    target: str
    dtype: str
    source: str = ""
    levels: dict[str, bool | None] = field(default_factory=lambda: dict.fromkeys(LEVELS))
    reasons: dict[str, str] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    supplied: list[dict[str, Any]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    error: dict[str, float] = field(default_factory=dict)
    half: dict[str, float] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    fast: dict[str, Any] = field(default_factory=dict)
    sensitivity: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=dict)
    slowest: list[dict[str, Any]] = field(default_factory=list)
    program: Path | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 0
    groups: int = 0
    worst_call: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)
    reached: str = ""
    dynamic: str = ""
    notes: tuple[str, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""
    cause: OpwrightError | None = None
    kernels: toolchain.Tally = field(default_factory=toolchain.Tally)

    @property
    def level(self) -> str | None:
        return records.highest(self.levels, self.reasons)

    def to_json(self) -> dict[str, Any]:
        """The face (issue 2)."""
        return {
            "architecture": self.architecture,
            "target": self.target,
            "dtype": self.dtype,
            "level": self.level,
            "levels": dict(self.levels),
            "reasons": dict(self.reasons),
            "operators": {
                "needed": len(self.needed),
                "accepted": len(self.accepted),
                "names": list(self.needed),
                "supplied": list(self.supplied),
                "missing": [m.to_json() for m in self.missing],
            },
            "error": {k: _finite(self.error.get(k)) for k in _ERROR},
            "half": {k: _finite(self.half.get(k)) for k in _ERROR},
            "decoding": {
                "tokens": self.decoding.get("tokens", 0),
                "open": self.decoding.get("open", 0),
                "error": {k: _finite(self.decoding.get("error", {}).get(k)) for k in _ERROR},
            },
            "training": {
                "gradients": self.training.get("gradients", 0),
                "error": {k: _finite(self.training.get("error", {}).get(k)) for k in _ERROR},
                "losses": {k: _finite(self.training.get("losses", {}).get(k)) for k in _ERROR},
            },
            "fast": {k: self.fast.get(k) for k in _RATIO},
            "sensitivity": {k: self.sensitivity.get(k) for k in _SEEN}
            | {"observed": len(self.sensitivity.get("observed", ()))},
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "program": str(self.program) if self.program is not None else None,
            "source": self.source,
            "weights": self.meta.get("weights"),
            "scale": self.meta.get("scale"),
            "calls": self.calls,
            "groups": self.groups,
            "refused_groups": dict(self.refused),
            "dynamic": self.dynamic,
            "notes": list(self.notes),
            "worst_call": _finite(self.worst_call),
            "failed": self.failed or None,
        }

    def attempt(self, at: str, commit: str | None, dirty: bool) -> Attempt:
        """The attempt as it is recorded."""
        place = {
            "opwright": __version__,
            "dialect": toolchain.native_dialect(),
            "compiler": toolchain.find_compiler().version,
        }
        if version := self.meta.get("transformers"):
            place["transformers"] = str(version)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            place["torch"] = importlib.metadata.version("torch")
        return Attempt(
            self.architecture,
            self.target,
            self.dtype,
            at,
            self.source,
            commit=commit,
            dirty=dirty,
            weights=str(self.meta.get("weights", "")),
            scale=str(self.meta.get("scale", "")),
            levels=dict(self.levels),
            reasons=dict(self.reasons),
            seconds={k: round(v, 3) for k, v in self.seconds.items()},
            active={"machine": round(sum(self.seconds.values()), 3)},
            supplied=list(self.supplied),
            missing=[m.to_json() for m in self.missing],
            operators=len(self.needed),
            error={k: float(f"{v:.6g}") for k, v in self.error.items()},
            sensitivity={k: self.sensitivity[k] for k in _SEEN if k in self.sensitivity},
            hashes=dict(sorted(self.hashes.items())),
            place=place,
            graph=dict(self.graph),
            slowest=list(self.slowest),
            failed=self.failed,
            kernels={"built": self.kernels.built, "found": self.kernels.found},
        )


def _finite(x: float | None) -> float | None:
    return None if x is None or x != x or x in (float("inf"), float("-inf")) else x


@dataclass(frozen=True)
class Trial:
    """How an attempt differs from a person's: it ends after the stage `until`; operators without evidence serve and
    are listed in the result, which then holds no more than L0; `spawn` starts the capturing child."""

    until: str = "parity"
    spawn: Spawn | None = None


class _Run:
    """One attempt in progress."""

    def __init__(
        self,
        bench: Workbench,
        target: str,
        work: Path,
        out: Path | None,
        seed: int,
        progress: Progress,
        trial: Trial | None = None,
        until: str = LAST,
    ) -> None:
        self.bench, self.target, self.work, self.out, self.seed, self.progress = (
            bench,
            target,
            work,
            out,
            seed,
            progress,
        )
        self.trial = trial
        self.until = trial.until if trial is not None else until
        self.timeout = CAPTURE_LIMIT
        self.trust = False
        self.bridge = Bridge(bench)
        self.result = Result(architecture_of(target), "cpu", "f32")
        self.captured: Captured | None = None
        self.folder: Path | None = None
        self.program: Program | None = None
        self.admitted: tuple[str, ...] = ()  # operators that serve in a trial without evidence

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """The clock of one stage; what is appended to the list is said when it ends."""
        said: list[str] = []
        self.progress.step(name)
        begun = time.perf_counter()
        try:
            yield said
        except OpwrightError as error:
            if error.exit_code != EXIT_MACHINE:
                self.result.failed = f"{name}: {error.message}"
                self.result.cause = error
            raise
        finally:
            took = time.perf_counter() - begun
            self.result.seconds[name] = took
            if self.result.failed:
                said[:] = [self.result.failed.partition(": ")[2]]
            self.progress.done(f"{name:<12} {took:6.1f} s  {'; '.join(said)}".rstrip())

    def run(self) -> None:
        """All stages.  What fails is in the result; a machine's fault is raised."""
        steps = (
            self.capture,
            self.inventory,
            self.supply,
            self.validate,
            self.compose,
            self.parity,
            self.half,
            self.decoding,
            self.training,
            self.fast,
        )
        before = toolchain.tally()
        try:
            for name, step in zip(STAGES, steps, strict=True):
                if name in FURTHER and not self.reaches(name):
                    continue
                step()
                self.result.reached = name
                if name == self.until:
                    break
        except JudgedError as error:
            self.result.cause = error
        finally:
            self.result.kernels = toolchain.tally().since(before)
            self.explain_unmeasured()

    def explain_unmeasured(self) -> None:
        """A reason for each level that this attempt says nothing of."""
        r = self.result
        of = {level: stage for stage, level in FURTHER.items()}
        for level in LEVELS[3:]:
            if r.levels[level] is None and level not in r.reasons:
                short = level in of and not r.failed and not self.reaches(of[level])
                r.reasons[level] = f"{UNMEASURED}: ended after {self.until}" if short else _LATER

    def reaches(self, stage: str) -> bool:
        """Whether this attempt is to go through that stage: of those after parity, a trial only through its last."""
        if self.trial is not None and stage in FURTHER:
            return stage == self.until
        return STAGES.index(stage) <= STAGES.index(self.until)

    # ---- the stages

    def capture(self) -> None:
        r = self.result
        with self.stage("captured") as said:
            r.levels["L0"] = False
            try:
                self.captured = run_worker(
                    self.target,
                    self.work / "capture",
                    table=aten_rows(self.bench.registry.all()),
                    timeout=self.timeout,
                    seed=self.seed,
                    further=True,
                    report=lambda stage: self.progress.step(f"captured: {stage}"),
                    spawn=self.trial.spawn if self.trial else None,
                    records=2 if self.reaches("parity") else 0,
                    sensitivity=self.reaches("parity"),
                    half=self.reaches("half"),
                    decoding=self.reaches("decoding"),
                    training=self.reaches("training"),
                    trust=self.trust,
                )
            except OpwrightError as error:
                r.reasons["L0"] = error.message
                raise
            facts = self.captured.facts
            self.program = self.captured.program
            r.architecture = records.file_name(_plain_name(str(facts["name"])))[: -len(".yaml")]
            r.source, r.meta = str(facts["source"]), facts["meta"]
            r.dtype = self.program.dtype.value
            r.levels["L0"] = True
            r.dynamic, r.notes = str(facts["dynamic"]), tuple(facts["notes"])
            r.parts = {k: float(v) for k, v in self.captured.seconds.items()}
            r.calls = len(self.program.calls)
            r.graph = graph_of(self.program)
            varies = "nothing" if r.dynamic == "static" else r.dynamic
            said.append(f"{r.calls} calls, {varies} may vary")

    def inventory(self) -> None:
        assert self.program is not None
        with self.stage("inventoried") as said:
            names = dict.fromkeys(c.op.removeprefix("missing:") for c in self.program.calls)
            self.result.needed = tuple(sorted(names))
            said.append(console.counted(len(names), "operator"))

    def supply(self) -> None:
        assert self.program is not None
        r = self.result
        with self.stage("supplied") as said:
            r.levels["L1"] = False
            assert self.captured is not None
            for fact, by in (("composed", "decomposed"), ("derived", "derived")):
                for overload in self.captured.facts.get(fact, ()):
                    r.supplied.append({"op": overload, "by": by, "seconds": 0.0})
            r.missing = missing_of(self.bench, self.bridge, self.program)
            lacking = {m.op for m in r.missing}
            r.accepted = tuple(
                n for n in r.needed if n not in lacking and self.bench.is_proven(self.bench.registry.get(n))
            )
            if r.missing:
                r.reasons["L1"] = f"missing: {', '.join(sorted(lacking))}"
                raise EnableError(
                    f"{r.architecture} lacks {console.counted(len(lacking), 'operator')}: {', '.join(sorted(lacking))}",
                    hint="`opwright new --from OVERLOAD` writes the first draft of a spec",
                )
            said.append(f"{len(r.accepted)} of {len(r.needed)} are accepted")

    def validate(self) -> None:
        """Judge what has no evidence yet, and accept it: it is charged to this attempt."""
        r = self.result
        with self.stage("validated") as said:
            todo = [n for n in r.needed if n not in r.accepted]
            if self.trial is not None and todo:
                r.reasons["L1"] = f"without evidence: {', '.join(todo)}"
                self.admitted = tuple(todo)
                said.append(r.reasons["L1"])
                return
            bad: list[str] = []
            jobs = [Job(self._address(n), "full", 0, None, None, self.bridge.dialect) for n in todo]
            begun = time.perf_counter()
            for found in (
                judge_all(self.bench, jobs, toolchain.available_cores(), self.progress) if jobs else ()
            ):
                name = found.job.op.rpartition(".yaml:")[2]
                took, begun = time.perf_counter() - begun, time.perf_counter()
                if found.passed:
                    record(self.bench, found)
                    r.supplied.append({"op": name, "by": "person", "seconds": round(took, 3)})
                elif found.error is not None:
                    bad.append(f"{name}: {found.error.message}")
                else:
                    assert found.verdict is not None
                    bad.append(f"{name} fails {', '.join(found.verdict.failed_gates)}")
            if bad:
                r.reasons["L1"] = "; ".join(bad)
                raise EnableError(
                    f"an operator did not pass: {'; '.join(bad)}", hint="`opwright validate OP` shows why"
                )
            r.levels["L1"] = True
            r.hashes = hashes_now(self.bench, r.needed)
            said.append(f"{len(todo)} accepted now" if todo else "all evidence holds")

    def _address(self, name: str) -> str:
        return f"{self.bench.registry.get(name).file}:{name}"

    def compose(self) -> None:
        assert self.captured is not None and self.program is not None
        r = self.result
        with self.stage("composed") as said:
            fused = self.fused()
            where = self.out or program_folder(self.bench, r)
            weights = self.captured.folder.tensors()
            write_folder(where, fused.program, weights, fused.groups, example=self.captured.example())
            self.folder, self.program, r.program, r.groups = where, fused.program, where, len(fused.groups)
            self.progress.step("composed: the runtime's core, once for this compiler and Python")
            toolchain.build_core()
            self.progress.step("composed: building kernels")
            kernels = self.build(fused.program, where)
            said.append(f"{len(fused.program.calls)} calls, {len(fused.groups)} groups, {kernels} kernels")
            if r.refused:
                said.append(f"{len(r.refused)} groups left as single calls: {_words(r.refused)}")

    def fused(self) -> Fused:
        """The program with its groups.  Each passes the quick tier (it is composed of what was accepted); one that does
        not is left as the calls it was made of, and the result says so."""
        from .verdicts import judge_groups

        assert self.program is not None and self.captured is not None
        refused = self.result.refused
        keep = (self.captured.facts.get("sensitivity") or {}).get("observed", ())
        while True:
            out = {op.removeprefix("group:") for op in refused}
            fused = fuse(self.program, self.bench.registry.get, out, keep)
            texts = [text for _, text in sorted(fused.groups.items())]
            specs = [load_spec_text(text, "group.yaml")[0] for text in texts]
            bad = judge_groups(self.bench, specs, texts, self.bridge.dialect, self.progress)
            if not bad:
                return fused
            refused |= bad

    def build(self, program: Program, folder: Path) -> int:
        """Every kernel that the program uses, all at once, so that loading it finds them."""
        requests: dict[str, dict[str, Any]] = {}
        for call in program.calls:
            asked = request_of(program, call)
            if local := local_file(call.op):
                asked["group"] = str(folder / local)
            requests.setdefault(repr(asked), asked)
        for name in {*self.result.needed, *(c.op for c in program.calls if ":" not in c.op)}:
            self.bridge.admit(self.bench.registry.get(name))
        found = self.bridge.resolve_many(list(requests.values()))
        return len({a["row"]["symbol"] for a in found})

    def refuse_random(self) -> None:
        """A model that draws numbers in its forward gives others at every call: nothing can be compared."""
        assert self.captured is not None
        drawn = self.captured.facts.get("random") or ()
        if drawn:
            r = self.result
            r.reasons["L2"] = "it draws random numbers: " + ", ".join(
                f"{d['aten']} at {d['site']}" for d in drawn
            )
            raise EnableError(
                f"{r.architecture} cannot be compared: {r.reasons['L2']}",
                hint="pass the numbers in as an input: write a file.py:function whose module takes them",
            )

    def parity(self) -> None:
        assert self.captured is not None and self.folder is not None and self.program is not None
        r = self.result
        with self.stage("parity") as said:
            r.levels["L2"] = False
            self.refuse_random()
            records_at, ran = self.captured.path / "records", self.work / "ran"
            try:
                run_child(self.folder, records_at, ran, admit=self.admitted)
            except OpwrightError as error:
                r.reasons["L2"] = error.message
                raise
            found = judge_parity(
                self.bridge,
                self.program,
                self.folder,
                records_at,
                ran,
                lambda what, k, n: self.progress.step(f"parity: {what}", k, n),
            )
            r.error, r.sensitivity = dict(found.error), dict(self.captured.facts.get("sensitivity") or {})
            r.slowest = slowest_of(ran, self.program)
            r.worst_call = max((c.ratio for c in found.calls), default=0.0)
            why = found.reason if not found.held else blind(r.sensitivity)
            if found.ratio > 1 and not found.bad_calls:
                why += self.culprit(records_at)
            if why:
                r.reasons["L2"] = why
                raise EnableError(f"{r.architecture} does not hold L2: {why}", place=_site_place(found))
            r.levels["L2"] = True
            said.append(
                f"error {r.error['max']:.3g} of at most {r.error['bound']:.3g} (eager's own {r.error['eager']:.3g})"
            )
            said.append(f"worst call {r.worst_call:.2g} of its bound")
            inner = len(r.sensitivity.get("observed", ()))
            by = f" by the outputs and {inner} inner values" if inner else ""
            said.append(f"sees {r.sensitivity['detected']} of {r.sensitivity['total']} disturbances{by}")

    def culprit(self, records_at: Path) -> str:
        """The call whose output makes the outputs leave eager's, found by bisection, in words."""
        from .bisection import first_diverging

        assert self.program is not None and self.folder is not None
        self.progress.step("parity: bisecting")
        for path in sorted(p for p in records_at.iterdir() if p.is_dir()):
            call = first_diverging(self.program, self.folder, path)
            if call is not None:
                return f"; the first operator that makes them diverge is {call.id} at {call.site or '?'}"
        return "; no single operator makes them diverge"

    def further(self, stage: str, work: Callable[[], str]) -> None:
        """A stage after parity: `work` decides its level and gives what to say of it.  What stands in its way is the
        level's reason, and takes nothing from L2."""
        r, level = self.result, FURTHER[stage]
        begun = time.perf_counter()
        self.progress.step(stage)
        try:
            said = work()
        except OpwrightError as error:
            if error.exit_code == EXIT_MACHINE:
                raise
            r.levels[level], said = False, error.message
        if not r.levels[level]:
            r.reasons[level] = said
        r.seconds[stage] = time.perf_counter() - begun
        self.progress.done(f"{stage:<12} {r.seconds[stage]:6.1f} s  {said}")

    def unproven(self, program: Program) -> list[str]:
        """Operators of a program that may not serve."""
        names = {c.op for c in program.calls if not c.op.startswith(GRADIENT)} - set(self.admitted)
        return sorted(n for n in names if not self.bench.is_proven(self.bench.registry.get(n)))

    def decoding(self) -> None:
        self.further("decoding", self.decoded)

    def decoded(self) -> str:
        """The step of decoding, built without groups, along the text that eager wrote."""
        assert self.captured is not None
        r = self.result
        facts = self.captured.facts.get("decoding") or {"generates": False}
        if not facts["generates"]:
            return "it does not apply: the model writes no text"
        if why := facts.get("why"):
            raise EnableError(str(why))
        at = self.captured.path / "decoding"
        program = read_folder(at / "program").program
        if missing := missing_of(self.bench, self.bridge, program):
            raise EnableError("; ".join(f"{m.op} at {m.site}: {m.why}" for m in missing[:3]))
        if unproven := self.unproven(program):
            raise EnableError(f"not accepted: {', '.join(unproven)}")
        self.progress.step("decoding: building kernels")
        self.build(program, at / "program")
        ran = self.work / "ran-decoding"
        run_child(at / "program", at / "text", ran, admit=self.admitted, module="decoding_child")
        found = judge_decoding(at / "text", ran)
        r.levels["L4"] = found.held
        r.decoding = {"tokens": found.tokens, "open": found.open, "error": dict(found.error)}
        if not found.held:
            return found.reason
        left = f", {found.open} of them open to eager" if found.open else ""
        return (
            f"{found.tokens} tokens are eager's{left}; error of the logits {found.error['max']:.3g}"
            f" of at most {found.error['bound']:.3g}"
        )

    def training(self) -> None:
        self.further("training", self.trained)

    def trained(self) -> str:
        """The training program, of the program before it was fused, on the records of L2."""
        assert self.captured is not None and self.folder is not None
        r = self.result
        if why := self.captured.facts.get(
            "training", "it is a graph of inference: PyTorch gives no gradients of it"
        ):
            return str(why)
        try:
            t = training_program(self.captured.program, self.bench.registry.get)
        except NoGradientError as error:
            return error.message
        if unproven := self.unproven(t.program):
            return f"not accepted: {', '.join(unproven)}"
        at = self.folder / "training"
        write_folder(at, t.program, t.tensors(self.captured.folder.tensors()), None, t.grads)
        self.progress.step("training: building kernels")
        self.build(t.program, at)
        ran = self.work / "ran-training"
        run_child(at, self.captured.path / "records", ran, admit=self.admitted, module="training_child")
        found = judge_training(self.captured.path / "records", ran)
        r.levels["L5"] = found.held
        r.training = {"gradients": found.gradients, "error": found.error, "losses": found.losses}
        if not found.held:
            return found.reason
        return (
            "error of {gradients} gradients {error[max]:.3g} of at most {error[bound]:.3g}, of losses {losses[max]:.3g}"
            " of at most {losses[bound]:.3g}".format(**r.training)
        )

    def fast(self) -> None:
        self.further("fast", self.measured)

    def measured(self) -> str:
        """The fused program against torch.compile of the module, by turns (`opwright bench --model`)."""
        from .bench import starting
        from .measuring.models import ModelRow, measure_model
        from .measuring.rows import Plan
        from .measuring.sides import Sides

        assert self.folder is not None
        r, rival = self.result, "inductor"
        plan = Plan((rival, "torch"), seed=self.seed, report=lambda what: self.progress.step(f"fast: {what}"))
        row = ModelRow(r.architecture, self.target, r.dtype, self.folder)
        with Sides(plan.vs, starting(self.bench, plan, ())) as sides:
            found = measure_model(row, self.bench, self.progress, sides, plan, None)
        said = found["rivals"][rival]
        r.levels["L6"] = said.get("verdict") == "faster"
        if said.get("ratio") is None:
            return f"torch.compile was not measured: {said.get('missing', 'no reason given')}"
        r.fast = {k: said[k] for k in _RATIO[:-1]} | {"eager": found["rivals"]["torch"].get("ratio")}
        beside = f", {r.fast['eager']:.2f} times of eager's" if r.fast["eager"] is not None else ""
        times = "{ratio:.2f} ({p10:.2f} to {p90:.2f})".format(**r.fast)
        return f"{said['verdict']}: torch.compile takes {times} times of ours{beside}"

    def half(self) -> None:
        self.further("half", self.halved)

    def halved(self) -> str:
        r = self.result
        found = self.in_half()
        r.levels["L3"], r.half = found.held, dict(found.error)
        return found.reason or "error {max:.3g} of at most {bound:.3g} (PyTorch's own {eager:.3g})".format(
            **r.half
        )

    def in_half(self) -> Half:
        """The program in bf16, built without groups, and run as that of L2 was."""
        assert self.captured is not None
        if why := self.captured.facts.get("half"):
            return Half(False, str(why))
        at = self.captured.path / "half"
        folder = read_folder(at / "program")
        missing = missing_of(self.bench, self.bridge, folder.program)
        if missing:
            return Half(False, "; ".join(f"{m.op} at {m.site}: {m.why}" for m in missing[:3]))
        if unproven := self.unproven(folder.program):
            return Half(False, f"not accepted: {', '.join(unproven)}")
        self.progress.step("half: building kernels")
        self.build(folder.program, at / "program")
        run_child(at / "program", at / "records", self.work / "ran-half", admit=self.admitted)
        return judge_half(at / "records", self.work / "ran-half")


def _words(refused: Mapping[str, str]) -> str:
    """The reasons, each once."""
    return ", ".join(dict.fromkeys(refused.values()))


def blind(sensitivity: Mapping[str, Any]) -> str:
    """Why the comparison could not see an error; empty when it could."""
    detected, total = sensitivity.get("detected", 0), sensitivity.get("total", 0)
    if total and detected / total >= SENSITIVE:
        return ""
    if sensitivity.get("nodes") == 0:  # it computes no floats: what it moves and counts is compared exactly
        return ""
    return f"the comparison sees {detected} of {total} disturbances, at least {SENSITIVE:.0%} are wanted"


def _site_place(found: Parity) -> Place | None:
    bad = found.bad_calls
    file, colon, line = bad[0].site.rpartition(":") if bad else ("", "", "")
    return Place(file, int(line)) if colon and line.isdecimal() else None


# ---- names, hashes, places -----------------------------------------------------------------------------------------


def architecture_of(target: str) -> str:
    """What the target's architecture is called before it was loaded.  Raises `TargetError`."""
    kind = target_kind(target)
    if kind == "transformers":
        return _plain_name(target)
    if kind in ("checkpoint", "config"):
        return _plain_name(model_type_of(target))
    path, _, function = target.rpartition(":")
    return _plain_name(
        Path(path or target).stem
        if function in ("make", "model", "make_model", "build") or not path
        else function
    )


def _plain_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", text)[:80]
    if not re.match(r"[A-Za-z0-9_]", name):
        raise TargetNameError(
            f"`{text}` gives no name for an architecture", hint="name the function or file otherwise"
        )
    return name


def graph_of(program: Program) -> dict[str, Any]:
    """What tells two captures apart: a hash of every node with its types and attributes, and the calls by operator.
    Where a call stands in the source, and how it is called by, tell nothing."""
    plain = [replace(n, site="", id="") if isinstance(n, Call) else n for n in program.nodes]
    types = [(v.dtype.value, str(v.shape), str(v.strides)) for v in program.values.values()]
    text = repr((plain, types, [(s.source, s.axis, s.divisor) for s in program.symbols.values()]))
    calls = Counter(c.op.removeprefix("missing:") for c in program.calls)
    return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16], "calls": dict(sorted(calls.items()))}


def slowest_of(ran: Path, program: Program) -> list[dict[str, Any]]:
    """The ten operators whose calls took longest in the comparison, as the child wrote them down."""
    ops = {c.id: c.op for c in program.calls}
    seconds: dict[str, list[float]] = {}
    for path in sorted(ran.glob("*/seconds.json")):
        for id, s in json.loads(path.read_text(encoding="utf-8")).items():
            seconds.setdefault(ops.get(id, id), []).append(float(s))
    order = sorted(seconds, key=lambda op: -sum(seconds[op]))[:10]
    return [
        {"op": op, "calls": len(seconds[op]), "seconds": float(f"{sum(seconds[op]):.3g}")} for op in order
    ]


def hashes_now(bench: Workbench, ops: Sequence[str]) -> dict[str, str]:
    """Operator → what a record rests on: its meaning, and the text that was proven of it."""
    out = {}
    for name in ops:
        if name not in bench.registry:
            continue
        found = bench.evidence(name)
        meaning = bench.registry.get(name).meaning_hash()
        texts = (
            "-".join(sorted(p.text[:16] for p in found.proofs.values()))
            if found is not None and found.meaning == meaning
            else "none"
        )
        out[name] = f"{meaning[:16]}:{texts}"
    return out


def program_folder(bench: Workbench, r: Result) -> Path:
    """Where a program goes unless `--out` says: `build/programs/<architecture>-<target>-<dtype>`."""
    return bench.config.root / "build" / "programs" / f"{r.architecture}-{r.target}-{r.dtype}"


def commit_of(root: Path) -> tuple[str | None, bool]:
    """The commit that is checked out at `root`, and whether there are changes that it does not have."""
    try:
        import git
    except ImportError:  # GitPython without a git binary
        return None, True
    try:
        repo = git.Repo(root, search_parent_directories=True)
        return repo.head.commit.hexsha, repo.is_dirty(untracked_files=False)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError, ValueError):
        return None, True


def enable_target(
    bench: Workbench,
    target: str,
    progress: Progress,
    *,
    out: Path | None = None,
    seed: int = 0,
    keep_work: Path | None = None,
    trial: Trial | None = None,
    timeout: float = CAPTURE_LIMIT,
    until: str = LAST,
    trust: bool = False,
) -> Result:
    """One attempt; its outcome.  Raises only for a target that is none, and what the machine lacks."""
    if target_kind(target) == "config":
        raise TargetError(
            f"{target} is a configuration without weights: nothing can be compared",
            hint=f"`opwright inventory --config {target}` says what it needs; a checkpoint folder has weights",
        )
    toolchain.find_compiler()  # before minutes of work
    with tempfile.TemporaryDirectory(prefix="opwright-enable-") as scratch:
        work = keep_work or Path(scratch)
        run = _Run(bench, target, work, out, seed, progress, trial, until)
        run.timeout, run.trust = timeout, trust
        try:
            run.run()
        except TargetError:
            raise
        except OpwrightError as error:
            if error.exit_code == EXIT_MACHINE or not run.result.failed:
                raise
        return run.result


def remember(
    bench: Workbench,
    result: Result,
    at: str,
    by: str = "enable",
    commit: tuple[str | None, bool] | None = None,
    published: str | None = None,
) -> Path | None:
    """Append the attempt to the records, unless the newest one says the same: a warm run is no new time.

    published: when the model's code was; None: as the attempts before say
    commit: the commit that was run, and whether the tree differed from it; None: as the tree is now
    """
    revision, dirty = commit or commit_of(bench.config.root)
    attempt = replace(result.attempt(at, revision, dirty), by=by, published=published)
    folder = bench.config.support
    before = [
        a
        for a in records.load(folder, attempt.architecture)
        if (a.target, a.dtype) == (attempt.target, attempt.dtype)
    ]
    if before and published is None:
        attempt = replace(attempt, published=next((a.published for a in before if a.published), None))
    if before and by == "enable":
        last = before[-1]
        if (dict(last.hashes), dict(last.levels), last.failed) == (
            dict(attempt.hashes),
            dict(attempt.levels),
            attempt.failed,
        ):
            return None
    return records.append(folder, attempt)


def print_result(r: Result) -> None:
    """For people."""
    if r.missing:
        console.print_table(("missing", "site", "why"), [(m.op, m.site, m.why) for m in r.missing])
        console.say()
    held = r.level or "nothing"
    total = sum(r.seconds.values())
    console.say(f"{r.architecture} on {r.target} in {r.dtype}: {held} held, {total:.1f} s")
    for name in LEVELS:
        why = r.reasons.get(name, "")
        if r.levels[name] is False or (r.levels[name] is None and why and not why.startswith(UNMEASURED)):
            console.say(f"  {name}: {r.reasons.get(name, 'not held')}")
    for note in r.notes:
        console.say(f"  {note}")
    if r.program is not None and r.levels["L2"]:
        console.say(f"  run it: opwright run {_short(r.program)}")


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


@command(
    "enable",
    example=[
        "opwright enable llama",
        "opwright enable model.py:make_model --out programs/mine",
        "opwright enable model.pt2 --json",
        "opwright enable model.onnx",
        "opwright enable checkpoints/mine",
    ],
)
@click.argument("target")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Write the program folder there (default: build/programs/…).",
)
@click.option("--no-record", is_flag=True, help="Do not append the attempt to the records.")
@click.option(
    "--keep",
    "keep_work",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Keep the capture and what eager said there.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=CAPTURE_LIMIT,
    show_default=True,
    metavar="SECONDS",
    help="How long the model's code may take to be captured.",
)
@click.option(
    "--until",
    type=click.Choice(STAGES),
    default=LAST,
    show_default=True,
    help="The stage to end after.",
)
@click.option(
    "--trust-remote-code",
    "trust",
    is_flag=True,
    help="Code that lies in the checkpoint folder may run, in a process without a network.",
)
@seed_option
@json_option
def enable(
    target: str,
    out: Path | None,
    no_record: bool,
    keep_work: Path | None,
    timeout: float,
    until: str,
    trust: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """Take a model from its code to parity with PyTorch, and to decoding and training, by the clock.

    TARGET is a model type of transformers (llama), file.py:function, whose function returns (module, args) or
    (module, args, kwargs), a .pt2 file of torch.export.save, an .onnx file,
    or a checkpoint folder of transformers (config.json and safetensors).
    Exit code 1: a level up to L2 is not held.
    """
    bench = Workbench.here()
    at = records.now()
    with console.progress(f"enabling {target}", quiet=as_json) as progress:
        result = enable_target(
            bench,
            target,
            progress,
            out=out,
            seed=seed or 0,
            keep_work=keep_work,
            timeout=timeout,
            until=until,
            trust=trust,
        )
    at_home = bench.config.file is not None
    written = remember(bench, result, at) if at_home and not no_record else None
    if as_json:
        console.print_json(result.to_json())
    else:
        print_result(result)
        if written is not None:
            console.note(f"recorded in {_short(written)}")
        elif not at_home:
            console.note("not recorded: no opwright.toml here or above; `opwright init` makes a workbench")
        elif not no_record:
            console.note(
                f"not recorded again: the newest attempt in {_short(bench.config.support)} says the same"
            )
    if result.level is not None and result.level >= "L2":
        return EXIT_OK
    if result.cause is not None:
        console.note(result.cause.render())
        return result.cause.exit_code
    return EXIT_FAILED
