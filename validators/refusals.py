"""The gate `errors`: what the oracle refuses, the kernel must refuse, with the status of the call convention.

Good calls are spoiled in one place at a time (an extent, a rank, an axis, an attribute, one element of the data); the
oracle says which of them the operator refuses and why.  So every `require`, every agreement of extents and every range
of an axis is negated without a word about it in the spec.

May import: abi, extents, harness, session, trial.  To add a way to spoil a call: a generator in `SPOILERS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..generator.bound import BoundOp
from . import abi
from .candidate import empty
from .extents import OracleError, OracleRefusal, OracleTooLarge
from .harness import Array, Invocation
from .oracle import evaluate, output_shapes
from .session import Session
from .trial import Subject, Trial, size_of
from .verdict import Failure, GateResult

__all__ = ["bad_data", "gate_errors", "spoiled"]

#: Elements of outputs up to which a call is evaluated to see whether it is refused.
_SMALL = 4096

#: Refusal of the oracle -> statuses that say the same.
_STATUS: dict[str, frozenset[int]] = {
    "require": frozenset({abi.ERRORS["REQUIRE"]}),
    "data": frozenset({abi.ERRORS["DATA"], abi.ERRORS["REQUIRE"]}),
    "index": frozenset({abi.ERRORS["INDEX"]}),
    "axis": frozenset({abi.ERRORS["AXIS"]}),
    # A missing axis is a wrong rank or a wrong shape, depending on which was looked at first.
    "shape": frozenset({abi.ERRORS["SHAPE"], abi.ERRORS["RANK"]}),
    "rank": frozenset({abi.ERRORS["SHAPE"], abi.ERRORS["RANK"]}),
}


def _grown(a: Array, axis: int, by: int) -> Array:
    """The array with an axis longer (elements repeat) or shorter."""
    index = np.arange(a.shape[axis] + by) % max(a.shape[axis], 1)
    if a.shape[axis] == 0:
        shape = tuple(n + by if k == axis else n for k, n in enumerate(a.shape))
        return np.zeros(shape, a.dtype)
    return np.ascontiguousarray(np.take(a, index, axis))


def _shapes(trial: Trial) -> Iterator[tuple[str, Trial]]:
    for name, a in trial.arrays.items():
        for axis, n in enumerate(a.shape):
            for by in (1, -n):
                if by and n + by >= 0:
                    arrays = {**trial.arrays, name: _grown(a, axis, by)}
                    yield f"extent {n + by} of axis {axis} of {name}", trial.with_arrays(arrays)
        if a.ndim:
            yield (
                f"rank {a.ndim - 1} of {name}",
                trial.with_arrays(
                    {
                        **trial.arrays,
                        name: np.ascontiguousarray(a[0]) if a.shape[0] else np.zeros(a.shape[1:], a.dtype),
                    }
                ),
            )
            one = a.reshape(-1)[:1] if a.size else np.zeros(1, a.dtype)
            yield f"rank 0 of {name}", trial.with_arrays({**trial.arrays, name: one.reshape(()).copy()})
        yield f"rank {a.ndim + 1} of {name}", trial.with_arrays({**trial.arrays, name: a[None].copy()})


def _attributes(trial: Trial, kinds: dict[str, str]) -> Iterator[tuple[str, Trial]]:
    rank = max((a.ndim for a in trial.arrays.values()), default=0)
    for name, kind in kinds.items():
        now = trial.attrs.get(name)
        values: list[Any] = []
        if kind == "axis":
            values = [rank, -rank - 1, 64]
        elif kind == "axes":
            values = [(0, 0), (rank,), (-rank - 1,)]
        elif kind in ("int", "scalar"):
            values = [-1, 0, 1 << 20]
        elif kind in ("ints", "floats") and isinstance(now, list | tuple) and now:
            for k in range(len(now)):
                values += [(*now[:k], bad, *now[k + 1 :]) for bad in (-1, 0, 1 << 20)]
        for value in values:
            if value != now:
                yield f"{name} = {value}", replace(trial, attrs={**trial.attrs, name: value})


def bad_data(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """One number out of range, at either end or in the middle: just outside of every extent, and far outside."""
    extents = sorted({n for a in trial.arrays.values() for n in a.shape})[:6]
    outside = list(dict.fromkeys((-1, 1 << 14, *(n for n in extents), *(-n - 1 for n in extents))))
    for name, a in trial.arrays.items():
        if not a.size or a.dtype == np.bool_:
            continue
        bad: list[int] | list[float] = outside if a.dtype.kind in "iu" else [-1.0, np.nan]
        for value in bad:
            if a.dtype.kind in "iu" and not np.iinfo(a.dtype).min <= value <= np.iinfo(a.dtype).max:
                continue
            for at in sorted({0, a.size // 2, a.size - 1}):
                changed = a.copy()
                changed.reshape(-1)[at] = value
                yield f"{name} holds {value} at {at}", trial.with_arrays({**trial.arrays, name: changed})


def spoiled(trial: Trial, kinds: dict[str, str]) -> Iterator[tuple[str, Trial]]:
    """(what was spoiled, the call) for calls one change away; `kinds`: run-time attribute -> its kind."""
    ways = (*_shapes(trial), *_attributes(trial, kinds), *bad_data(trial))
    for k, (what, bad) in enumerate(ways):
        yield what, replace(bad, name=f"{trial.name}!{k} {what}")


def _refusal(
    subject: Subject, trial: Trial, op: BoundOp | None = None, attrs: Mapping[str, Any] | None = None
) -> OracleRefusal | None:
    """Why the oracle refuses a call, None when it takes it or has no opinion."""
    op = op or subject.op
    given = {**subject.attrs(trial), **(attrs or {})}
    try:
        shapes = output_shapes(op, trial.arrays, given)
        if "holds" in trial.name and sum(math.prod(s) for s in shapes.values()) <= _SMALL:
            evaluate(op, trial.arrays, given)  # a position out of range shows when it is read
    except OracleRefusal as refusal:
        return refusal
    except (OracleError, OracleTooLarge, ValueError, OverflowError, MemoryError):
        return None  # spoiled beyond what the oracle has an opinion on
    return None


def _reasons(subject: Subject, trial: Trial, first: OracleRefusal) -> list[OracleRefusal]:
    """Every reason that one spoiling gave: a shape may break a rule and leave an axis out of range at once, and which
    is told is a matter of order.  So the oracle is asked again without the rules, and with every axis in range.
    """
    axes = {a.name: 0 for a in subject.op.attrs if a.kind == "axis"}
    others = [_refusal(subject, trial, replace(subject.op, rules=()))]
    if axes:
        others.append(_refusal(subject, trial, attrs=axes))
    return [first, *(r for r in others if r is not None)]


def _ask(subject: Subject, inv: Invocation) -> tuple[int, dict[str, int], str]:
    """Status, error word and crash of infer, and, when that is content, of a run."""
    plan = subject.harness.plan(inv)
    if plan.crash or plan.status != abi.OK:
        return plan.status, dict(plan.error), plan.crash
    if plan.workspace < 0:
        return -plan.workspace, dict(plan.error), ""
    # The operator refuses the call, so the oracle has no shapes: the outputs are what infer asked for.
    if sum(int(np.prod(s)) for s in plan.shapes) > 1 << 22:
        return abi.OK, {}, "asks for outputs without end"
    templates = tuple(np.empty(s, o.dtype) for s, o in zip(plan.shapes, inv.outputs, strict=True))
    outcome = subject.harness.run(replace(inv, outputs=templates), workspace=plan.workspace)
    return outcome.status, dict(outcome.error), outcome.crash


def _mismatch(subject: Subject, inv: Invocation, reasons: Sequence[OracleRefusal]) -> str:
    """What is wrong with the kernel's answer to a call that must be refused; empty when nothing is.  One of the reasons
    has to be told, the first being the oracle's own.
    """
    status, error, crash = _ask(subject, inv)
    want = next((r for r in reasons if status in _STATUS[r.kind]), reasons[0])
    names = " or ".join(sorted(abi.error_name(s) for s in _STATUS[want.kind]))
    if crash:
        return f"should refuse with {names} ({want}); {crash}"
    if status not in _STATUS[want.kind]:
        return f"should refuse with {names} ({want}), said {abi.error_name(status)}"
    if want.which >= 0 and error["which"] != want.which:
        return f"refuses by rule {error['which']}, rule {want.which} does not hold ({want})"
    if want.kind == "axis" and not 0 <= error["arg"] < len(inv.attrs):
        return f"the error names attribute {error['arg']} of {len(inv.attrs)} ({want})"
    if want.kind in ("shape", "rank") and not 0 <= error["arg"] < len(inv.inputs):
        return f"the error names input {error['arg']} of {len(inv.inputs)} ({want})"
    return ""


def gate_errors(s: Session) -> GateResult:
    """Every spoiled call that the oracle refuses, and a call of another version of the convention."""
    tally = s.tally("errors")
    asked: set[tuple[object, ...]] = set()
    negated: set[int] = set()
    small = [t for t in sorted(s.spread(96), key=size_of) if size_of(t) <= 4096]
    for trial, subject in s.sound("errors", small[: 24 if s.full else 4]):
        kinds = {a.name: a.kind for a in subject.op.attrs}
        if ("abi", trial.key) not in asked:
            asked.add(("abi", trial.key))
            plan = subject.harness.plan(replace(subject.invocation(trial), version=0))
            if plan.status == abi.ERRORS["ABI"]:
                tally.passed()
            else:
                message = f"version 0 of the call convention: {plan.crash or abi.error_name(plan.status)}, not OW_E_ABI"
                tally.fail(Failure(message, repeat=s.repeat(trial)))
        for what, bad in spoiled(trial, kinds):
            want = _refusal(subject, bad)
            if want is None:
                continue
            # One of each kind, place and key is enough at the quick tier.
            kind = (
                trial.key,
                want.kind,
                want.which,
                what if s.full else what.split(" of ")[-1].split(" = ")[0],
            )
            if kind in asked:
                continue
            asked.add(kind)
            if want.which >= 0:
                negated.add(want.which)
            outputs = {t.name: empty(t.dtype.value, ()) for t in subject.op.outputs}
            wrong = _mismatch(subject, subject.invocation(bad, outputs=outputs), _reasons(subject, bad, want))
            if wrong:
                tally.fail(s.failure(f"{what}: {wrong}", trial, bad))
            else:
                tally.passed()
                tally.classes["index out of range"] += want.kind in ("data", "index")
    for trial in s.refusals:
        expect = trial.expect
        assert expect is not None
        subject = s.subjects[trial.key]
        subject.forget(trial)
        outputs = {t.name: empty(t.dtype.value, ()) for t in subject.op.outputs}
        refusal = OracleRefusal(expect.kind, expect.text, which=expect.which)
        wrong = _mismatch(
            subject, subject.invocation(trial, outputs=outputs), _reasons(subject, trial, refusal)
        )
        if expect.which >= 0:
            negated.add(expect.which)
        if wrong:
            tally.fail(s.failure(wrong, trial))
        else:
            tally.passed()
            tally.classes["index out of range"] += expect.kind in ("data", "index")
    tally.classes = +tally.classes  # no zeros
    rules = next(iter(s.ops.values())).rules if s.ops else ()
    missed = [r.text for k, r in enumerate(rules) if k not in negated]
    if missed:
        tally.note(f"not negated: {'; '.join(missed)}")
    return tally.result()
