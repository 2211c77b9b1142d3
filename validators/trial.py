"""What gates share about one operator: its trials, the oracle's answers, the built kernels and their plain runs.

A `Trial` is a case as arrays by flat name.  `Subject` is one kernel with the program that it should mean: the operator
at a key, or its gradient.  Answers and plain runs are computed once and kept for every gate.

May import: generator.bound, ball, candidate, case_model, harness, oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..generator.bound import BindKey, BoundOp
from ..generator.expr import Expr
from ..generator.types import DType
from . import abi
from .ball import Ball, CheckResult, check
from .candidate import Built, empty, invocation
from .case_model import Case, Expected
from .harness import Array, Harness, How, Invocation, Outcome, Plan
from .oracle import OracleRefusal, OracleTooLarge, evaluate

__all__ = [
    "FREE_LIMIT",
    "Base",
    "Subject",
    "Trial",
    "bits_differ",
    "compare",
    "describe",
    "element",
    "size_of",
]

#: A case with a larger share of elements that every result would satisfy proves too little to be counted.
FREE_LIMIT = 0.1


@dataclass(frozen=True, eq=False)
class Trial:
    """One call.

    arrays      in physical order by flat name, contiguous; absent inputs are left out
    laid        the same in the layout that the case asks for, where that is another
    attrs       run-time attributes; given: all attributes as a caller writes them
    values      class of values
    case        name of the case it came from; expect: the refusal that must come, None for a call that is taken
    out_shapes  physical shapes of outputs that inputs do not tell
    """

    name: str
    key: BindKey
    arrays: Mapping[str, Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    values: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    laid: Mapping[str, Array] = field(default_factory=dict)
    case: str = ""
    expect: Expected | None = None
    out_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of_case(cls, c: Case) -> Trial:
        """A case's arrays, made contiguous; the values are those of its layout."""
        arrays = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in c.inputs.items()}
        laid = c.inputs if c.layout != "contiguous" else {}
        return cls(c.name, c.key, arrays, c.run_attrs, c.value_class, c.attrs, laid, c.name, c.expect)

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class of values, and of positions where an input holds some."""
        parts = self.case.split("/")
        index = parts[4] if len(parts) == 6 else "-"
        return (self.values,) if index == "-" else (self.values, f"index {index}")

    def with_arrays(self, arrays: Mapping[str, Array], tail: str = "") -> Trial:
        return replace(self, arrays=dict(arrays), name=self.name + tail)


@dataclass(frozen=True)
class Base:
    """The plain run of a trial: contiguous, one thread, outputs zero before."""

    plan: Plan
    outcome: Outcome

    @property
    def trouble(self) -> str:
        """Why there are no outputs to look at; empty when there are."""
        for what, part in (("infer", self.plan), ("the kernel", self.outcome)):
            if part.crash:
                return part.crash
            if part.status != abi.OK:
                return f"{what} refused with {abi.error_name(part.status)} {dict(part.error)}"
        return ""


class Subject:
    """One built kernel and what it means."""

    def __init__(self, op: BoundOp, built: Built, harness: Harness) -> None:
        self.op, self.built, self.harness = op, built, harness
        self._wants: dict[str, dict[str, Ball] | OracleRefusal | None] = {}
        self._bases: dict[str, Base] = {}
        self._plans: dict[tuple[str, int], Plan] = {}
        self._compared: dict[str, tuple[list[str], float, float]] = {}

    def attrs(self, trial: Trial) -> dict[str, Any]:
        """Run-time attributes, defaults filled in."""
        return {
            a.name: trial.attrs[a.name] if trial.attrs.get(a.name) is not None else default_of(a.default)
            for a in self.op.attrs
        }

    def want(self, trial: Trial) -> dict[str, Ball] | OracleRefusal | None:
        """The oracle's balls, its refusal, or None where the case is too large for it."""
        if trial.name not in self._wants:
            try:
                answer: dict[str, Ball] | OracleRefusal | None = evaluate(
                    self.op, trial.arrays, self.attrs(trial), out_shapes=trial.out_shapes
                )
            except OracleRefusal as refusal:
                answer = refusal
            except OracleTooLarge:
                answer = None
            self._wants[trial.name] = answer
        return self._wants[trial.name]

    def same_answer(self, known: Trial, other: Trial) -> None:
        """Spare the oracle `other`, where its tensors hold the bytes of `known`, whatever their strides."""
        want = self.want(known)
        if all(a.tobytes() == other.arrays[n].tobytes() for n, a in known.arrays.items()):
            self._wants[other.name] = want

    def invocation(
        self,
        trial: Trial,
        *,
        outputs: Mapping[str, Array] | None = None,
        alias: Mapping[str, str] | None = None,
    ) -> Invocation:
        """The trial's call; outputs are contiguous and of the oracle's shapes unless given."""
        if outputs is None:
            want = self.want(trial)
            assert isinstance(want, dict)
            outputs = {t.name: empty(t.dtype.value, want[t.name].shape) for t in self.op.outputs}
        return invocation(self.op, self.built, trial.arrays, self.attrs(trial), outputs, alias=alias)

    def plan(self, trial: Trial, inv: Invocation, threads: int = 1) -> Plan:
        """What infer and workspace say of a trial (kept: contents and threads decide, not strides)."""
        key = (trial.name, threads)
        if key not in self._plans:
            self._plans[key] = self.harness.plan(inv, How(threads=threads))
        return self._plans[key]

    def wrong(self, trial: Trial) -> list[str]:
        """What the plain run got wrong; empty when every element is within its bound."""
        base = self.base(trial)
        if base.trouble:
            return [base.trouble]
        want = self.want(trial)
        assert isinstance(want, dict)
        shapes = tuple(want[t.name].shape for t in self.op.outputs)
        if base.plan.shapes != shapes:
            said, are = list(map(list, base.plan.shapes)), list(map(list, shapes))
            return [f"infer says {said}, the shapes are {are}"]
        return self.compared(trial)[0]

    def compared(self, trial: Trial) -> tuple[list[str], float, float]:
        """`compare` of the plain run, kept."""
        if trial.name not in self._compared:
            want = self.want(trial)
            assert isinstance(want, dict)
            self._compared[trial.name] = compare(self.op, self.base(trial).outcome, want)
        return self._compared[trial.name]

    @property
    def hung(self) -> bool:
        """Whether a call of it gave no answer in time: then it is not asked again, whatever the call."""
        return (self.built.library, self.built.text.symbol) in self.harness.hung

    def base(self, trial: Trial) -> Base:
        if trial.name not in self._bases:
            inv = self.invocation(trial)
            plan = self.plan(trial, inv)
            good = not plan.crash and plan.status == abi.OK and plan.workspace >= 0
            outcome = self.harness.run(inv, workspace=plan.workspace) if good else Outcome()
            if plan.workspace < 0:
                plan = replace(plan, status=-plan.workspace)
            self._bases[trial.name] = Base(plan, outcome)
        return self._bases[trial.name]

    def forget(self, trial: Trial) -> None:
        """Drop what is kept of a trial (large ones)."""
        self._wants.pop(trial.name, None)
        self._bases.pop(trial.name, None)
        self._compared.pop(trial.name, None)


def default_of(default: object) -> object:
    """A default as a value: lists are tuples, an expression is not a value (its case states it)."""
    return None if isinstance(default, Expr) else default


def compare(op: BoundOp, outcome: Outcome, want: Mapping[str, Ball]) -> tuple[list[str], float, float]:
    """What is wrong with the outputs, the worst error over its bound, and the largest share of free elements."""
    wrong: list[str] = []
    worst = free = 0.0
    for t, got, raw in zip(op.outputs, outcome.outputs, outcome.raw, strict=True):
        if t.dtype is DType.BOOL and raw.size and int(raw.max()) > 1:
            wrong.append(f"{t.name}: a bool is {int(raw.max())}, neither 0 nor 1")
            worst = np.inf
            continue
        result: CheckResult = check(got, want[t.name], t.dtype)
        worst, free = max(worst, result.ratio), max(free, result.free)
        if not result.passed:
            wrong.append(f"{t.name} {result.reason}")
    return wrong, float(worst), free


def bits_differ(op: BoundOp, a: Outcome, b: Outcome) -> str:
    """Where two runs gave other bits (any nan is like any other), or an empty text."""
    for t, x, y in zip(op.outputs, a.outputs, b.outputs, strict=True):
        if x.shape != y.shape:
            return f"{t.name} has shape {y.shape}, had {x.shape}"
        differs = np.asarray(x != y)
        if t.dtype.is_inexact:
            differs &= ~(np.isnan(x) & np.isnan(y))
            if not t.dtype.is_complex:
                differs |= (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
        if differs.any():
            at = tuple(int(i) for i in np.argwhere(differs)[0])
            return f"{t.name} {element(at)} is {y[at]!s}, was {x[at]!s} ({int(differs.sum())} of {x.size} differ)"
    return ""


def element(at: tuple[int, ...]) -> str:
    """`[2, 0]`."""
    return str(list(at))


def size_of(trial: Trial) -> int:
    """Elements of all inputs."""
    return sum(a.size for a in trial.arrays.values())


def describe(trial: Trial) -> str:
    """`x f32[3, 5], axis=-1, values normal`."""
    parts = [f"{name} {array.dtype}{list(array.shape)}" for name, array in trial.arrays.items()]
    parts += [f"{name}={value}" for name, value in trial.attrs.items()]
    if trial.values:
        parts.append(f"values {trial.values}")
    return ", ".join(parts)


def shrink(trial: Trial, fails: Callable[[Trial], bool], *, attempts: int = 80) -> Trial:
    """The smallest trial found that still fails.

    Axes are cut from either end: all axes of one extent together, as one dim would be, then one axis alone.
    """
    best = trial
    tried: set[object] = set()
    while True:
        for smaller in _cuts(best, tried):
            attempts -= 1
            if attempts < 0:
                return best
            if fails(smaller):
                best = smaller
                break
        else:
            return best


def _cuts(trial: Trial, tried: set[object]) -> Iterator[Trial]:
    """Smaller trials, the boldest cuts first; `tried` holds the slices that were."""
    axes = [(name, k, n) for name, a in trial.arrays.items() for k, n in enumerate(a.shape) if n > 1]
    joint = [[(m, k) for m, k, e in axes if e == n] for n in sorted({n for *_, n in axes}, reverse=True)]
    alone = [[(m, k)] for m, k, _ in axes]
    for group in joint + [g for g in alone if g not in joint]:
        extent = trial.arrays[group[0][0]].shape[group[0][1]]
        for keep in dict.fromkeys((1, extent // 2, extent - 1)):
            for part in (slice(0, keep), slice(extent - keep, extent)):
                arrays = dict(trial.arrays)
                for name, k in group:
                    cut: list[slice] = [slice(None)] * arrays[name].ndim
                    cut[k] = part
                    arrays[name] = arrays[name][tuple(cut)].copy()
                mark = tuple((a.shape, hash(a.tobytes())) for a in arrays.values())
                if mark not in tried:
                    tried.add(mark)
                    yield trial.with_arrays(arrays, f"~{len(tried)}")
