"""One row of a table: load it into every process, compare the answers, measure, and say what came out.

May import: sides, rounds, agreement, workload, generator.program.folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...files import write_text
from ...generator.errors import JudgedError
from ...generator.spec import OpSpec
from . import agreement
from .rounds import CONTROL, OURS, Measured, goals_of, measure, median, spread_of, verdict
from .sides import Gone, Sides, told
from .workload import Workload, case_of, request_of, sets_of

__all__ = ["BenchError", "Plan", "measure_op", "said_of"]


#: Elements of an output above which the first set alone is compared by value.
LARGE = 1 << 22


class BenchError(JudgedError):
    """A measurement that cannot be made: no workload, an answer that is wrong."""


@dataclass(frozen=True)
class Plan:
    """How a run measures: against whom, for how long, with how many threads; what the machine's memory gives."""

    vs: Sequence[str]
    seconds: float = 2.0
    threads: int = 1
    seed: int = 0
    full: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    report: Callable[[str], None] = lambda _: None


def measure_op(
    sides: Sides, spec: OpSpec, w: Workload, plan: Plan, goals: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A row of an operator at a workload.  Raises BenchError where our own answer is wrong."""
    from ...generator.program.folder import write_tensors

    used, case = case_of(spec, w, plan.seed, full=plan.full)
    request, arrays, trial = request_of(spec, used, case)
    request["seed"] = plan.seed
    row: dict[str, Any] = {
        "op": spec.op,
        "workload": used.show(),
        "dtype": used.dtype,
        "overload": request["overload"],
    }
    with tempfile.TemporaryDirectory(prefix="opwright-bench-") as scratch:
        folder = Path(scratch)
        write_tensors(folder / "arrays.safetensors", arrays)
        write_text(folder / "request.json", json.dumps(request))
        loaded = load_all(sides, request, folder, plan, row)
        compared = _Op(spec, trial, arrays, sides, loaded, folder, plan.seed)
        compared.all(row)
        row["bytes"] = sum(a.nbytes for a in arrays.values()) + compared.written
        finish(row, timed(sides, loaded, plan), plan, goals)
        compared.again(row)
    return row


def load_all(
    sides: Sides, request: Mapping[str, Any], folder: Path, plan: Plan, row: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Every side's word about the row: `row["rivals"]` names those that cannot, and what compiling took.

    Raises BenchError, MachineError where ours cannot.
    """
    row["rivals"] = {}
    loaded: dict[str, dict[str, Any]] = {}
    for name in (OURS, CONTROL, *plan.vs):
        plan.report(f"loading {name}")
        said = told(sides[name], request, folder)
        if name in (OURS, CONTROL):
            if "missing" in said:
                raise BenchError(f"the measurement failed: {said['missing']}")
        elif "missing" in said:
            row["rivals"][name] = {"missing": said["missing"]}
            continue
        else:
            row["rivals"][name] = {"version": said["version"], "compile_s": said["compile_s"]}
        loaded[name] = said
    return loaded


def timed(sides: Sides, loaded: Mapping[str, Mapping[str, Any]], plan: Plan) -> Measured:
    """Rounds of all that loaded.  One that ends meanwhile ends the row."""

    def timer(name: str) -> Callable[[int, int], float]:
        side = sides[name]

        def once(k: int, calls: int) -> float:
            found: float = side.ask({"do": "time", "set": k, "calls": calls})["s"]
            return found

        return once

    plan.report("measuring")
    order = [OURS, *(n for n in loaded if n not in (OURS, CONTROL)), CONTROL]
    sets = min(int(said["sets"]) for said in loaded.values())
    try:
        return measure({n: timer(n) for n in order}, plan.seconds, sets)
    except Gone as error:
        raise BenchError(f"the measurement failed: {error}") from None


def finish(row: dict[str, Any], found: Measured, plan: Plan, goals: Mapping[str, float] | None) -> None:
    """Verdicts, times, throughput, goals."""
    control = found.ratios[CONTROL]
    row |= {
        "threads": plan.threads,
        "rounds": found.rounds,
        "ours_s": median(found.seconds[OURS]),
        "control": spread_of(control),
        "control_ratio": median(control),
        "control_pairs": control,
        "limits": dict(plan.limits),
    }
    row["gb_s"] = row["bytes"] / row["ours_s"] / 1e9
    # Faster than nine tenths of what memory allows is a fault of the measurement, not a gain.
    limit = max(plan.limits.values(), default=0.0)
    impossible = bool(limit) and bool({"copy", "read"} & set(goals or {})) and row["gb_s"] * 0.9 > limit
    for name in plan.vs:
        if name in found.ratios:
            pairs = found.ratios[name]
            said = verdict(pairs, control)
            del said["control"]
            if impossible:
                said["verdict"] = "invalid"
            row["rivals"][name] |= said | {"seconds": median(found.seconds[name]), "pairs": pairs}
    first = row["rivals"][plan.vs[0]]
    row |= {k: first.get(k) for k in ("ratio", "p10", "p90")}
    row["verdict"] = first.get("verdict", "no verdict")
    row["goals"] = goals_of(goals or {}, row)


class _Op:
    """The answers of all sides to an operator's call, held against each other."""

    def __init__(
        self,
        spec: OpSpec,
        trial: Any,
        arrays: Mapping[str, Any],
        sides: Sides,
        loaded: Mapping[str, Mapping[str, Any]],
        folder: Path,
        seed: int,
    ) -> None:
        self.spec, self.trial, self.sides, self.loaded, self.folder = spec, trial, sides, loaded, folder
        self.written = 0
        of = {id(a): n for n, a in trial.arrays.items()}
        self.flat = {key: of[id(a)] for key, a in arrays.items() if id(a) in of}
        sets = list(sets_of(arrays, seed))
        self.sets = sets[: min(int(said["sets"]) for said in loaded.values())]
        self.digests: dict[tuple[str, int], Any] = {}

    def answers(self, name: str, k: int, what: str = "answers") -> dict[str, Any] | None:
        return answers_of(self.sides, name, k, self.folder, what)

    def all(self, row: dict[str, Any]) -> None:
        """The answers to every set; of large ones to the first.  Raises BenchError where ours is wrong."""
        for k, arrays in enumerate(self.sets):
            ours = self.answers(OURS, k)
            assert ours is not None
            if not self.written:
                self.written = sum(a.nbytes for a in ours.values())
            for name in (OURS, *row["rivals"]):
                if name in self.loaded:
                    self.digests[name, k] = self.digest(name, k)
            if k and max(a.size for a in ours.values()) > LARGE:
                continue
            trial = self.trial.with_arrays({n: arrays[key] for key, n in self.flat.items()})
            balls = agreement.exact_balls(self.spec, trial)
            if balls is None:
                self.without_oracle(row, k, ours)
                continue
            worst, where = agreement.by_balls(ours, balls)
            if not worst <= 1:
                raise wrong(f"{where}, {worst:.3g} times its bound")
            near = agreement.around(ours, balls)
            for name in row["rivals"]:
                theirs = self.answers(name, k) if name in self.loaded else None
                if theirs is not None:
                    note_of(row, name, "oracle", *agreement.by_balls(_like(theirs, ours), near))

    def again(self, row: dict[str, Any]) -> None:
        """After the measuring: still the answers that were compared; else they are compared once more."""
        for (name, k), before in self.digests.items():
            if self.digest(name, k) != before:
                self.all(row)
                return

    def digest(self, name: str, k: int) -> Any:
        try:
            return self.sides[name].ask({"do": "digest", "set": k})["digest"]
        except Gone as error:
            raise BenchError(f"the measurement failed: {error}") from None

    def without_oracle(self, row: dict[str, Any], k: int, ours: Mapping[str, Any]) -> None:
        """By PyTorch's f64, if PyTorch is among the sides."""
        eager = next((n for n in ("torch", "torch-out") if n in self.loaded), None)
        wide = None if eager is None else self.answers(eager, k, "exact")
        own = None if eager is None else self.answers(eager, k)
        for name in (OURS, *row["rivals"]):
            if name not in self.loaded:
                continue
            if wide is None or own is None:
                row["rivals"].get(name, {})["answers"] = (
                    "not compared: too large for the oracle, and no f64 of PyTorch's"
                )
                continue
            theirs = ours if name == OURS else self.answers(name, k)
            assert theirs is not None
            against = own if name == OURS else _like(theirs, ours)
            worst, where = agreement.by_exact(ours, against, own, wide)
            if name != OURS:
                note_of(row, name, "f64", worst, where)
            elif not worst <= 1:
                raise wrong(f"{where}, {worst:.3g} times the bound")


def answers_of(sides: Sides, name: str, k: int, folder: Path, what: str = "answers") -> dict[str, Any] | None:
    from ...generator.program.folder import read_tensors

    file = folder / f"{name}.{what}.safetensors"
    try:
        said = sides[name].ask({"do": what, "set": k, "file": str(file)})
    except Gone as error:
        raise BenchError(f"the measurement failed: {error}") from None
    if said["names"] is None:
        return None
    found = {n: np.array(a) for n, a in read_tensors(file).items()}
    file.unlink()
    return found


def wrong(what: str) -> BenchError:
    return BenchError(f"the outputs disagree: {what}", hint="`opwright validate OP` judges them")


def note_of(row: dict[str, Any], name: str, by: str, worst: float, where: str) -> None:
    """What the answers of a rival are: the worst of all comparisons stays."""
    rival = row["rivals"][name]
    worst = min(worst, 1e30)
    if "agreement" in rival and rival["agreement"]["ratio"] >= worst:
        return
    rival["agreement"] = {"by": by, "ratio": worst}
    times = (
        f", {worst:.3g} times its bound" if worst < 1e30 else ""
    )  # of a bound of 0 there is no such number
    rival["answers"] = "agree" if worst <= 1 else f"differ: {where}{times}"


def _like(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Positions in our dtype: JAX counts in i32, ONNX knows no other bool."""
    return {
        n: a.astype(ours[n].dtype)
        if n in ours and a.dtype.kind in "iub" and ours[n].dtype.kind in "iub"
        else a
        for n, a in theirs.items()
    }


def said_of(row: Mapping[str, Any], name: str) -> str:
    """One rival's part of a row, in words."""
    r = row["rivals"][name]
    if "missing" in r:
        return f"– {r['missing']}"
    spread = f"{r['p10']:.2f} … {r['p90']:.2f}"
    if r["verdict"] == "invalid":
        return f"invalid: ours moves {row['gb_s']:.1f} GB/s, more than memory gives"
    if r["verdict"] == "no verdict":
        return f"no verdict: the control spreads {row['control']:.0%}, the ratio is {spread}"
    return f"{r['verdict']}: × {r['ratio']:.2f} ({spread})"
