"""At a kink: the adjoint in f64 against eager autograd, where the operator has an overload.

Finite differences prove nothing where a function has a corner, and that is where conventions differ: relu has slope 0
at 0, a clamp passes at its limits, the largest of equals share what comes back.  PyTorch's choice is a fact that its
autograd tells, so calls are made up of few numbers that corners lie at: zeros of both signs, halves and ones, what
attributes are, and the literals of `compute`; equal ones are in every tensor, and among the tensors.

May import: generator.{expr, spec}, ball, case_calls, meaning, torch_server, trial.
To add a point where conventions differ: `corners`; a gradient of PyTorch's that is none: `_ELSEWHERE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..generator.expr import Num, walk
from ..generator.spec import AtenEntry, OpSpec
from .ball import Ball
from .case_calls import expressions
from .harness import Array
from .meaning import aten_arguments, tie_rule, torch_server, untied
from .torch_server import TorchCrashed, TorchError
from .trial import Trial

__all__ = ["cornered", "corners", "eager"]

#: Numbers that corners lie at, whatever the operator.
_USUAL = (-1.0, -0.5, -0.0, 0.0, 0.5, 1.0)
#: Literals beyond are no corners but scales, and would drown the others.
_LARGEST = 64.0
#: What stands for infinity where an argument is off by a rounding.
_POLE = 2.0**50


def _unreached(trial: Trial, ours: Array) -> Array:
    """Values of more than there are positions: those beyond have no part in the result."""
    fewer = any(a.dtype.kind == "i" and a.shape != ours.shape for a in trial.arrays.values())
    return np.asarray((ours == 0) & fewer)


def _left_out(trial: Trial, ours: Array, theirs: Array) -> Array:
    """Where a largest value gets less because the old one, which is left out, happens to be equal: the result does not
    depend on that one, so that all of what comes back is the value's.
    """
    said = dict(trial.key.static)
    if said.get("include_self", True) or said.get("reduce") not in ("amax", "amin"):
        return np.zeros(ours.shape, np.bool_)
    return np.asarray(
        (np.sign(ours) == np.sign(theirs)) & (0 < np.abs(theirs)) & (np.abs(theirs) < np.abs(ours))
    )


#: Overloads whose gradient in PyTorch is none somewhere, and where ours follows the rules of docs/language.md: what
#: PyTorch does, and which of its elements that pardons, of this call, beside ours.
_ELSEWHERE: dict[str, tuple[str, Callable[[Trial, Array, Array], Array]]] = {
    "aten._cdist_forward.default": (
        "gives each of several largest differences all of it",
        lambda trial, ours, theirs: np.full(ours.shape, math.inf in dict(trial.key.static).values()),
    ),
    "aten._ctc_loss.Tensor": (
        "takes the gradient through the log_softmax that it expects before it",
        lambda trial, ours, theirs: np.ones(ours.shape, np.bool_),
    ),
    "aten.clamp.Tensor": (
        "passes nothing on to two limits that are equal",
        lambda trial, ours, theirs: theirs == 0,
    ),
    "aten.max_unpool2d.default": (
        "gives each of several values for one place the gradient of the one that stays",
        lambda trial, ours, theirs: ours == 0,
    ),
    "aten.scatter.src": (
        "gives each of several values for one place the gradient of the one that stays",
        lambda trial, ours, theirs: ours == 0,
    ),
    "aten.scatter_reduce.two": (
        "gives values that no position is for the gradient of others, and counts what is left out among ties",
        lambda trial, ours, theirs: _unreached(trial, ours) | _left_out(trial, ours, theirs),
    ),
}


def corners(spec: OpSpec, trial: Trial) -> Array:
    """The numbers that the operator's own corners may lie at."""
    found = list(_USUAL)
    literals = [x.value for root in expressions(spec.compute) for x in walk(root) if isinstance(x, Num)]
    given = [
        trial.given.get(n, trial.attrs.get(n)) for n, a in spec.attrs.items() if a.kind in ("scalar", "float")
    ]
    for v in (*literals, *given):
        if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and abs(v) <= _LARGEST:
            found += [float(v), -float(v)]
    return np.asarray(list(dict.fromkeys(found)) + [0.0, -0.0])


def cornered(spec: OpSpec, trial: Trial, rng: np.random.Generator) -> list[Trial]:
    """The trial with floats that are corners only; with one number in all of a tensor; with nothing but zeros.

    Of an operator whose gradient follows positions that PyTorch does not promise among equals: with no two equal.
    """
    positions = any(t.dtype == "i64" and not t.aux for t in spec.outputs.values())
    if positions and not all(tie_rule(e.overload) for e in spec.aten):
        return [untied(trial)]
    pool = corners(spec, trial)

    def filled(name: str, numbers: Callable[[tuple[int, ...]], Array]) -> Trial:
        floats = {n: numbers(a.shape) for n, a in trial.arrays.items() if a.dtype == np.float64}
        return trial.with_arrays({**trial.arrays, **floats}, f"~{name}")

    return [
        filled("corners", lambda shape: np.asarray(rng.choice(pool, shape))),
        filled("equal", lambda shape: np.full(shape, rng.choice(pool))),
        filled("zeros", lambda shape: np.asarray(np.where(rng.random(shape) < 0.5, 0.0, -0.0))),
    ]


def eager(
    spec: OpSpec,
    entry: AtenEntry,
    trial: Trial,
    cotangents: Mapping[str, Array],
    wrt: tuple[str, ...],
) -> dict[str, Array] | None:
    """What autograd says of each input by flat name; None where the overload cannot say the call, or has no
    derivative.
    """
    call = aten_arguments(spec, entry, trial)
    returns = entry.returns or tuple(n for n, t in spec.outputs.items() if not t.aux)
    if call is None or any(ct.any() for n, ct in cotangents.items() if n not in returns):
        return None
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    names: dict[str, list[str]] = {}
    for argument, to in pairs:
        if isinstance(to, tuple) and all(n in spec.inputs for n in to):
            names[argument] = list(to)
        elif isinstance(to, str) and to in wrt and argument in call[0]:
            flat = (
                [n for n in trial.arrays if n.rpartition(".")[0] == to] if spec.inputs[to].is_list else [to]
            )
            names[argument] = [n for n in flat if n in trial.arrays]
    names = {a: ns for a, ns in names.items() if ns}
    if not names:
        return None
    try:
        answers = torch_server().gradients(
            entry.overload,
            *call,
            list(names),
            [None if (ct := cotangents.get(n)) is None else np.asarray(ct) for n in returns],
            in_order=entry.map is None,
        )
    except (TorchError, TorchCrashed):
        return None
    flat = [n for ns in names.values() for n in ns]
    return {n: a for n, a in zip(flat, answers, strict=True) if a is not None}


def apart(
    overload: str, trial: Trial, ours: Ball, theirs: Array, resolved: float, *, beyond: bool
) -> tuple[tuple[int, ...] | None, str]:
    """Where two gradients differ by more than rounding explains (None where they agree), and what was pardoned.

    Where PyTorch has no number, it does not vouch for ours; at a pole it may have a large one, where the argument of
    a function is rounded.  beyond: some result is no number, so that ours may be none as well.
    """
    with np.errstate(all="ignore"):
        finite = np.isfinite(theirs)
        scale = float(np.max(np.abs(theirs[finite]), initial=0.0))
        near = np.abs(ours.value - theirs) <= 4 * ours.radius + resolved * scale
        near |= (ours.value == theirs) | ours.free | ~finite
        near |= np.isinf(ours.value) & (np.abs(theirs) > _POLE)
        if beyond:
            near |= np.isnan(ours.value)
        what, pardons = _ELSEWHERE.get(overload, ("", None))
        if pardons is None or near.all():
            what = ""
        else:
            near |= pardons(trial, ours.value, theirs)
    return None if near.all() else tuple(int(i) for i in np.argwhere(~near)[0]), what
