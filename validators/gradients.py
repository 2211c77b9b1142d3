"""The gate `gradient`: the adjoint program is the derivative of the operator, and its kernel computes it.

Four proofs.  (1) In f64, by the oracle alone: the adjoint's outputs against finite differences of the forward, along
random directions and for single elements, with Richardson's extrapolation, whose two estimates also say how far the
difference can be trusted.  (2) A declared adjoint against the derived one, ball against ball.  (3) At corners, where
differences prove nothing, against eager autograd (subgradients.py).  (4) The adjoint's kernel against the adjoint's
oracle by the ball bound, on saved values rounded as a forward kernel would round them.

May import: bind, normal, grad of the generator; ball, meaning, oracle, session, subgradients, trial, values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..generator.bind import bind
from ..generator.bound import BindKey, BoundOp
from ..generator.errors import OpwrightError
from ..generator.grad import adjoint, with_saved
from ..generator.normal import normalise
from ..generator.spec import OpSpec
from ..generator.types import DType
from .ball import Ball
from .extents import OracleError
from .harness import Array
from .lift import lift_key, lift_trial
from .meaning import lifted_attrs
from .oracle import OracleRefusal, OracleTooLarge, evaluate
from .session import Session, Tally
from .subgradients import apart, cornered, eager
from .torch_server import TorchMissing
from .trial import Subject, Trial, compare, describe, size_of
from .values import ARRAY, to_array
from .verdict import NOT_APPLICABLE, Failure, GateResult

__all__ = ["gate_gradient"]

#: The two steps' estimates may differ by this share of the scale before a difference proves nothing.
_ROUGH = 1e-3
#: The largest ratio of two numbers of a call that one step can be small beside, and more than rounding beside.
_SPREAD = 2.0**40
#: How many pairs of directions look for outputs without a gradient.
_ROUNDS = 4
#: What differences at these steps can resolve, as a share of the scale.
_RESOLVED = 1e-7


@dataclass(frozen=True)
class _Problem:
    """A trial in f64, ready for differences: the forward with what is saved, the adjoint, and a cotangent."""

    trial: Trial
    forward: BoundOp
    backward: BoundOp
    cotangents: Mapping[str, Array]

    def terms(self, arrays: Mapping[str, Array]) -> Array:
        """What the loss is a sum of: every element of every output, times its cotangent."""
        out = evaluate(self.forward, arrays, self.trial.attrs)
        with np.errstate(all="ignore"):
            each = [(ct * out[name].value).reshape(-1) for name, ct in self.cotangents.items()]
        return np.concatenate([np.zeros(0), *each])


def _attrs(op: BoundOp, trial: Trial) -> dict[str, Any]:
    return {
        a.name: trial.attrs.get(a.name) if trial.attrs.get(a.name) is not None else a.default
        for a in op.attrs
    }


def _cotangents(op: BoundOp, want: Mapping[str, Ball], rng: np.random.Generator) -> dict[str, Array]:
    """Output -> a random cotangent of its shape, for outputs that have one."""
    return {
        t.name: rng.integers(-8, 9, want[t.name].shape).astype(np.float64) / 8 + 0.0625
        for t in op.outputs
        if t.dtype.is_inexact and not t.aux
    }


def backward_inputs(
    backward: BoundOp, trial: Trial, forward: Mapping[str, Ball], cotangents: Mapping[str, Array]
) -> dict[str, Array]:
    """What the adjoint reads: the forward's inputs, its saved outputs rounded to their dtype, `d<output>`."""
    out: dict[str, Array] = {}
    for t in backward.inputs:
        if t.name in trial.arrays:
            out[t.name] = trial.arrays[t.name]
        elif t.name in forward:
            out[t.name] = to_array(forward[t.name].value, t.dtype)
        elif t.name.startswith("d") and t.name[1:] in cotangents:
            out[t.name] = to_array(cotangents[t.name[1:]], t.dtype)
        elif t.name[1:] in forward and not t.dtype.is_inexact:
            out[t.name] = np.zeros(forward[t.name[1:]].shape, ARRAY[t.dtype])  # of positions: never read
        else:
            raise OracleError(f"{backward.name}: nothing says what its input `{t.name}` holds")
    return out


def _out_shapes(backward: BoundOp, trial: Trial) -> dict[str, tuple[int, ...]]:
    """The gradient of an input has its shape."""
    return {t.name: trial.arrays[t.name[1:]].shape for t in backward.outputs if t.name[1:] in trial.arrays}


def gradients_of(p: _Problem) -> dict[str, Ball]:
    """The adjoint's outputs in f64."""
    forward = evaluate(p.forward, p.trial.arrays, p.trial.attrs)
    given = backward_inputs(p.backward, p.trial, forward, p.cotangents)
    return evaluate(p.backward, given, p.trial.attrs, out_shapes=_out_shapes(p.backward, p.trial))


# ---- finite differences ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A derivative by differences: its value, how far two estimates lie apart, and what was subtracted.

    size: the sum of the terms' magnitudes, for each is rounded by itself, whatever is left of their sum.

    apart: the sum over the terms, for what they are off by need not have one sign: where the second derivative jumps
    between the steps (elu at 0), the gaps of two terms may cancel while their errors do not.
    kink: the one-sided differences of some term do not approach each other, so that there is no derivative to find.
    kinks, slopes: of each term.
    """

    value: float
    apart: float
    size: float
    kink: bool
    kinks: Array
    slopes: Array


def difference(terms: Callable[[float], Array], step: float) -> Difference:
    """The derivative at 0 of the sum of `terms`, by central differences at two steps and Richardson's extrapolation.

    A kink is looked for in each term and in their sum: where values tie, what one output gains from one side another
    gains from the other, and of the sum the two slopes may be one by chance.
    """
    middle = _summed(terms(0.0))
    estimates: list[Array] = []
    gaps, size = [], _magnitude(middle)
    for h in (step, step / 2):
        ahead, behind = _summed(terms(h)), _summed(terms(-h))
        with np.errstate(all="ignore"):
            estimates.append((ahead - behind) / (2 * h))
            gaps.append(np.abs(ahead - 2 * middle + behind) / h)
        size = max(size, _magnitude(ahead), _magnitude(behind))
    coarse, fine = estimates
    # Of a smooth function the gap halves with the step; rounding alone leaves one of about size / step.
    with np.errstate(all="ignore"):
        largest = max(size, float(np.max(np.abs(middle))))
        noise = largest * 2.0**-50 / step
        open_ = (gaps[1] > 0.65 * gaps[0]) & (gaps[1] > 64 * noise + _ROUGH * 1e-3 * abs(fine[-1]))
        value, apart = float(4 * fine[-1] - coarse[-1]) / 3, float(np.sum(np.abs(fine - coarse)[:-1]))
        slopes = ((4 * fine - coarse) / 3)[:-1]
    return Difference(value, apart, size, not np.isfinite(size) or bool(open_.any()), open_[:-1], slopes)


def _summed(terms: Array) -> Array:
    """The terms, and last their sum."""
    flat = np.asarray(terms, np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        return np.append(flat, np.sum(flat))


def _magnitude(summed: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.sum(np.abs(summed[:-1])))


def _step(x: Array) -> float:
    """A step that suits the size of what it is added to."""
    sizes = np.abs(x[x != 0])
    typical = float(np.median(sizes)) if sizes.size else 1.0
    return 2.0**-10 * min(max(typical, 2.0**-12), 1.0)


def _everywhere(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A direction in which all elements move, no two at one speed: equals part."""
    n = math.prod(shape)
    speeds = 0.5 + rng.permutation(n) / (2 * max(n, 1))
    return np.asarray((speeds * rng.choice(np.array([-1.0, 1.0]), n)).reshape(shape))


def _directions(finite: Array, count: int, rng: np.random.Generator) -> list[Array]:
    """Random directions, then single elements; zero where the adjoint is not finite."""
    places = np.flatnonzero(finite)
    if not places.size:
        return []
    out = [np.where(finite, _everywhere(finite.shape, rng), 0.0) for _ in range(min(count, 2))]
    for at in rng.permutation(places)[: max(0, count - len(out))]:
        one = np.zeros(finite.size)
        one[at] = 1
        out.append(one.reshape(finite.shape))
    return out


@dataclass(frozen=True)
class _Verdict:
    """An adjoint's derivative beside the difference, which is trusted to `allowed`."""

    got: float
    want: float
    allowed: float

    @property
    def off(self) -> float:
        return abs(self.got - self.want) / self.allowed

    def __str__(self) -> str:
        return f"{self.got:.9g}, finite differences say {self.want:.9g} (trusted to {self.allowed:.2g})"


@dataclass(frozen=True)
class _Try:
    """One derivative of the loss: input `name` moved along a direction by a step."""

    problem: _Problem
    name: str
    gradient: Array
    direction: Array
    step: float

    def verdict(self) -> _Verdict | None:
        """None where the difference proves nothing: a kink, an overflow, more rounding than slope."""
        arrays = self.problem.trial.arrays

        def terms(h: float) -> Array:
            return self.problem.terms({**arrays, self.name: arrays[self.name] + h * self.direction})

        try:
            d = difference(terms, self.step)
        except OracleRefusal:
            return None
        parts = self.gradient * self.direction
        scale = max(float(np.sum(np.abs(parts))), abs(d.value), 1e-12 * float(np.max(np.abs(self.direction))))
        # What f64 leaves of a difference of two such numbers.
        resolved = _RESOLVED * scale + 64 * d.size * 2.0**-52 / self.step
        if d.kink or not np.isfinite(d.value) or d.apart > _ROUGH * scale + resolved:
            return None
        return _Verdict(float(np.sum(parts)), d.value, d.apart + resolved)


def smooth_part(p: _Problem, rng: np.random.Generator) -> tuple[_Problem, bool]:
    """The problem without the outputs that have no derivative at this point, and whether there were any.

    Steps of all inputs at once, no two elements at one speed, show them: by a kink, or since the slopes along two
    directions do not add up to that along their sum (the median of equals has no kink along any line).

    One input or element alone may not: of five equal numbers the second smallest stays whichever of them moves, and so
    does clamp(0, 0, 0); there is a derivative in each direction, but they are not those of one gradient.
    """
    arrays = p.trial.arrays
    moved = {n: _step(arrays[n]) for t in p.backward.outputs if (n := t.name[1:]) in arrays}
    if not moved:
        return p, False
    most = max(moved.values())
    size = sum(ct.size for ct in p.cotangents.values())
    kinks = np.zeros(size, np.bool_)

    def along(ways: Mapping[str, Array]) -> Difference:
        return difference(
            lambda h: p.terms({**arrays, **{n: arrays[n] + h * way for n, way in ways.items()}}), most
        )

    try:
        for _ in range(_ROUNDS):
            one, two = (
                {n: _everywhere(arrays[n].shape, rng) * (step / most) for n, step in moved.items()}
                for _ in range(2)
            )
            a, b, c = along(one), along(two), along({n: one[n] + two[n] for n in one})
            with np.errstate(all="ignore"):
                apart = np.abs(a.slopes + b.slopes - c.slopes)
                scale = np.abs(a.slopes) + np.abs(b.slopes) + np.abs(c.slopes)
                kinks |= a.kinks | b.kinks | c.kinks
                kinks |= apart > _ROUGH * scale + 64 * c.size * 2.0**-52 / most
    except OracleRefusal:
        return p, False
    kept, at = {}, 0
    for name, ct in p.cotangents.items():
        kept[name] = np.where(kinks[at : at + ct.size].reshape(ct.shape), 0.0, ct)
        at += ct.size
    return replace(p, cotangents=kept), bool(kinks.any())


def check_differences(
    p: _Problem, tally: Tally, say: Callable[[str], Failure], count: int, rng: np.random.Generator
) -> int:
    """Compare the adjoint with differences; returns how many proved nothing (a kink, an overflow)."""
    p, kinked = smooth_part(p, rng)
    rough = int(kinked)
    if kinked and not any(ct.any() for ct in p.cotangents.values()):
        return rough
    found = gradients_of(p)
    for t in p.backward.outputs:
        name = t.name[1:]
        if name not in p.trial.arrays:
            continue
        x, g = p.trial.arrays[name], found[t.name].value
        finite = np.isfinite(g)
        rough += int(not finite.all())
        for direction in _directions(finite, count, rng):
            tried = _Try(p, name, np.where(finite, g, 0.0), direction, _step(x))
            verdict = tried.verdict()
            if verdict is None:
                rough += 1
            elif verdict.off <= 1:
                tally.passed(verdict.off)
            else:
                kind = "an element" if np.count_nonzero(direction) == 1 else "a random direction"
                tally.fail(say(f"{t.name} along {kind} is {verdict}"), verdict.off)
    return rough


# ---- declared against derived ------------------------------------------------------------------------------------


def derived(spec: OpSpec, key: BindKey) -> tuple[BoundOp, BoundOp]:
    """The forward with its saved values as outputs, and the adjoint that the generator derives."""
    assert spec.grad is not None
    op = normalise(bind(spec, key))
    return with_saved(op, spec.grad.save), adjoint(op, spec.grad.wrt, spec.grad.save)


def check_declared(s: Session, p: _Problem, tally: Tally, say: Callable[[str], Failure]) -> None:
    """Both adjoints in f64 on the same inputs: the balls must meet everywhere."""
    forward, other = derived(s.spec, p.trial.key)
    declared, second = gradients_of(p), gradients_of(replace(p, forward=forward, backward=other))
    for t in p.backward.outputs:
        if t.name not in second:
            continue
        a, b = declared[t.name], second[t.name]
        with np.errstate(all="ignore"):
            near = np.abs(a.value - b.value) <= 4 * (a.radius + b.radius)
            near |= (a.value == b.value) | (np.isnan(a.value) & np.isnan(b.value)) | a.free | b.free
        if near.all():
            tally.passed()
        else:
            at = tuple(int(i) for i in np.argwhere(~near)[0])
            tally.fail(
                say(f"declared {t.name} {list(at)} is {a.value[at]:.9g}, the derived one {b.value[at]:.9g}")
            )


# ---- the gate ----------------------------------------------------------------------------------------------------


def gate_gradient(s: Session) -> GateResult:
    """Finite differences, declared against derived, and the adjoint's kernel."""
    tally = s.tally("gradient")
    decl = s.spec.grad
    if decl is None or decl.none is not None or not s.grads:
        why = (
            "the spec declares no gradient"
            if decl is None
            else f"no gradient: {decl.none}"
            if decl.none
            else ""
        )
        if decl is not None and decl.none is None:
            tally.note("the source gives no gradient kernels for a declared gradient")
            return tally.result()
        return replace(tally.result(), state=NOT_APPLICABLE, minimum=0, note=why)
    rng = np.random.default_rng(s.seed)
    smooth = [t for t in s.spread(96) if 0 < size_of(t) <= 400 and _finite(t) and _of_one_scale(t)]
    rough = 0
    seen: set[BindKey] = set()
    for trial in smooth:
        key = lift_key(s.spec, trial.key)
        if key is None or not _continuous(s.spec, key) or (key in seen and len(seen) >= (4 if s.full else 2)):
            continue
        if tally.cases >= (200 if s.full else 24):
            break
        seen.add(key)
        rough += _prove(s, lift_trial(trial, key), key, tally, rng)
    try:
        _at_corners(s, tally, np.random.default_rng((s.seed, 5)))
    except TorchMissing as missing:
        tally.note(f"corners are not compared with autograd here: {missing}")
    _judge_kernels(s, tally, rng)
    if rough:
        tally.note(f"{rough} difference(s) at a kink or beyond f64")
    return tally.result()


def _continuous(spec: OpSpec, key: BindKey) -> bool:
    """Whether any input that the gradient is taken of is a float at this key: integers have none."""
    types = dict(key.types)
    wrt = spec.grad.wrt if spec.grad is not None else ()
    return any(DType(types.get(t.dtype, t.dtype)).is_inexact for n, t in spec.inputs.items() if n in wrt)


def _finite(trial: Trial) -> bool:
    return all(np.isfinite(a.astype(np.complex128)).all() for a in trial.arrays.values())


def _of_one_scale(trial: Trial) -> bool:
    """Whether a step can be small beside every number and more than rounding beside every other.

    A remainder, a quotient or an angle varies with the smallest number there is: among numbers of 1e-320 and 1, no
    step shows how.
    """
    sizes = [
        np.abs(a[a != 0])
        for a in trial.arrays.values()
        if a.dtype.kind in "fcV" or a.dtype.name == "bfloat16"
    ]
    found = np.concatenate([np.zeros(0), *(v.astype(np.float64).reshape(-1) for v in sizes)])
    return not found.size or bool(found.min() > 2.0**-900 and found.max() <= _SPREAD * found.min())


def _prove(s: Session, trial: Trial, key: BindKey, tally: Tally, rng: np.random.Generator) -> int:
    def say(message: str) -> Failure:
        return Failure(message, trial.name, describe(trial), s.repeat(trial))

    assert s.spec.grad is not None
    try:
        forward = with_saved(normalise(bind(s.spec, key)), s.spec.grad.save)
        backward = s.source.gradient_op(key)
        try:
            want = evaluate(forward, trial.arrays, trial.attrs)
        except OracleRefusal:
            return 0
        p = _Problem(trial, forward, backward, _cotangents(forward, want, rng))
        rough = check_differences(p, tally, say, 8 if s.full else 3, rng)
        if s.spec.grad.compute is not None and s.spec.grad.against_derive:
            check_declared(s, p, tally, say)
    except OracleTooLarge:
        return 0
    except (OracleError, OpwrightError) as error:  # a refusal, too: the operator takes this call
        tally.fail(say(f"the adjoint in f64: {error}"))
        return 0
    return rough


def _at_corners(s: Session, tally: Tally, rng: np.random.Generator) -> None:
    """Small calls, two for each set of attributes and inputs, at the operator's corners."""
    small = [t for t in s.trials if 0 < size_of(t) <= 400 and _finite(t)] if s.spec.aten else []
    groups: dict[object, list[tuple[Trial, BindKey]]] = {}
    for trial in sorted(small, key=size_of, reverse=True):
        key = lift_key(s.spec, trial.key)
        if key is not None and _continuous(s.spec, key):
            mark = (key, tuple(trial.arrays), str(trial.given))
            groups.setdefault(mark, []).append((lift_trial(trial, key), key))
    turns = [pair for n in range(2) for g in groups.values() for pair in g[n : n + 1]]
    for k, (trial, key) in enumerate(turns[: 60 if s.full else 12]):
        lifted = replace(trial, given=lifted_attrs(s.spec, trial))
        found = False
        for at in cornered(s.spec, lifted, rng)[: 3 if k < len(groups) else 1]:
            found |= _compared_at(s, at, key, tally, rng)
        if not found:
            _compared_at(s, lifted, key, tally, rng)


def _compared_at(s: Session, trial: Trial, key: BindKey, tally: Tally, rng: np.random.Generator) -> bool:
    """Hold the adjoint against autograd at one call; False where the operator or PyTorch does not take it.

    Each output by itself: some overloads pass nothing on from what they return for their own use.
    """
    assert s.spec.grad is not None
    try:
        forward = with_saved(normalise(bind(s.spec, key)), s.spec.grad.save)
        backward = s.source.gradient_op(key)
        want = evaluate(forward, trial.arrays, trial.attrs)
        cotangents = {
            n: np.where(np.isfinite(want[n].value), ct, 0.0)
            for n, ct in _cotangents(forward, want, rng).items()
        }
        beyond = any(not np.isfinite(want[n].value).all() for n in cotangents)
        compared = False
        for output in cotangents:
            alone = {n: ct if n == output else np.zeros_like(ct) for n, ct in cotangents.items()}
            found = gradients_of(_Problem(trial, forward, backward, alone))
            for entry in s.spec.aten:
                answers = eager(s.spec, entry, trial, alone, s.spec.grad.wrt)
                if not answers or (len(cotangents) > 1 and not any(a.any() for a in answers.values())):
                    continue
                compared = True
                _hold(s, entry.overload, trial, found, answers, tally, beyond)
    except OpwrightError:  # where the operator takes the call, differences have said so
        return False
    return compared


def _hold(
    s: Session,
    overload: str,
    trial: Trial,
    found: Mapping[str, Ball],
    answers: Mapping[str, Array],
    tally: Tally,
    beyond: bool,
) -> None:
    for name, theirs in answers.items():
        ours = found.get(f"d{name}")
        if ours is None or ours.shape != theirs.shape:
            continue
        at, pardoned = apart(overload, trial, ours, theirs, _RESOLVED, beyond=beyond)
        if pardoned:
            tally.note(f"autograd of {overload} {pardoned}")
        if at is None:
            if not pardoned:
                tally.passed()
            continue
        is_, says = f"{ours.value[at]:.9g}", f"{theirs[at]:.9g}"
        message = f"d{name} {list(at)} is {is_} at a corner, autograd of {overload} says {says}"
        tally.fail(Failure(message, trial.name, describe(trial), s.repeat(trial)))


def _judge_kernels(s: Session, tally: Tally, rng: np.random.Generator) -> None:
    """The adjoint's kernels by the ball bound, cotangents contiguous and expanded."""
    assert s.spec.grad is not None
    for trial in s.spread(48 if s.full else 6):
        built = s.grad_built.get(trial.key)
        if built is None:
            continue
        forward = with_saved(normalise(bind(s.spec, trial.key)), s.spec.grad.save)
        backward = s.source.gradient_op(trial.key)
        subject = Subject(backward, built, s.harness)
        try:
            want = evaluate(forward, trial.arrays, _attrs(forward, trial))
        except (OracleRefusal, OracleTooLarge):
            continue
        ones = _cotangents(forward, want, rng)
        flat = {n: np.full(ct.shape, 0.75) for n, ct in ones.items()}
        for said, cotangents in (("", ones), (" with an expanded cotangent", flat)):
            arrays = backward_inputs(backward, trial, want, cotangents)
            if said:
                arrays = {
                    n: np.broadcast_to(a.reshape(-1)[0], a.shape) if n[1:] in cotangents and a.size else a
                    for n, a in arrays.items()
                }
            name = f"{trial.name}/grad{'-expanded' if said else ''}"
            case = replace(trial, name=name, arrays=arrays, out_shapes=_out_shapes(backward, trial))
            answer = subject.want(case)
            if answer is None:
                continue
            if isinstance(answer, OracleRefusal):
                said = f"the adjoint refuses what the operator takes: {answer.message}"
                tally.fail(Failure(said, trial.name, describe(case), s.repeat(trial)))
                continue
            base = subject.base(case)
            wrong, ratio, _ = (
                ([base.trouble], float("inf"), 0.0)
                if base.trouble
                else compare(backward, base.outcome, answer)
            )
            if not wrong and base.outcome.damage:
                wrong = [base.outcome.damage[0]]
            if wrong:
                tally.fail(
                    Failure(
                        f"the adjoint's kernel{said}: {wrong[0]}", trial.name, describe(case), s.repeat(trial)
                    ),
                    ratio,
                )
            else:
                tally.passed(ratio)
            subject.forget(case)
