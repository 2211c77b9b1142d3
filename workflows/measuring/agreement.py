"""Whether a rival's answer is ours, and by which bound.

    by the oracle   where the case is small enough: ours lies in the judge's balls (validators/oracle.py), and theirs
                    no further from ours than two of its radii
    by f64          else: |ours - theirs| within twice  4 × max |eager - f64| + 8 u max |f64|, PyTorch's f64 standing
                    for the exact answer (the rule of parity)
A rival whose answer differs is still measured: the row says by how much.  Ours that differs is an error.
May import: validators.{ball, oracle, values}, generator.{bind, types}, numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...generator.bind import bind
from ...generator.spec import OpSpec
from ...generator.types import DType
from ...validators.ball import Ball, check
from ...validators.oracle import OracleRefusal, OracleTooLarge, evaluate
from ...validators.trial import Trial
from ...validators.values import from_array

__all__ = ["around", "by_balls", "by_exact", "exact_balls", "precision_of"]

#: Points up to which the oracle is asked: a second or so.
POINTS = 1 << 22


def exact_balls(spec: OpSpec, trial: Trial) -> dict[str, Ball] | None:
    """What the judge's oracle says of a case; None where it is too large."""
    try:
        return evaluate(
            bind(spec, trial.key),
            dict(trial.arrays),
            trial.attrs,
            max_points=POINTS,
            out_shapes=trial.out_shapes,
        )
    except (OracleRefusal, OracleTooLarge):
        return None


def by_balls(answers: Mapping[str, Any], balls: Mapping[str, Ball]) -> tuple[float, str]:
    """The largest error over its bound among the outputs that are there, and where it is."""
    worst, where = 0.0, ""
    for name, got in answers.items():
        if name not in balls:
            continue
        want = balls[name]
        if np.shape(got) != want.shape:
            return float("inf"), f"`{name}` has shape {list(np.shape(got))}, not {list(want.shape)}"
        found = check(np.asarray(got), want, None, signed_zero=False)
        ratio = found.ratio if found.ratio == found.ratio else float("inf")
        if ratio > worst:
            worst, where = ratio, f"`{name}`: {found.reason}" if found.reason else f"`{name}`"
    return worst, where


def around(ours: Mapping[str, Any], balls: Mapping[str, Ball]) -> dict[str, Ball]:
    """Balls around our own answers, twice as wide: what another honest kernel may differ from us."""
    return {
        n: b
        if b.choices is not None
        else replace(
            b,
            value=from_array(np.asarray(ours[n]), b.dtype),
            r=None if b.r is None else 2 * b.radius,
            typed=None,
            nonneg=False,
        )
        for n, b in balls.items()
        if n in ours
    }


def precision_of(a: Any) -> float:
    """The unit roundoff of an array's dtype."""
    name = str(a.dtype)
    return {
        "bfloat16": DType.BF16.u,
        "float16": DType.F16.u,
        "float32": DType.F32.u,
        "complex64": DType.F32.u,
    }.get(name, DType.F64.u)


def by_exact(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], eager: Mapping[str, Any], wide: Mapping[str, Any]
) -> tuple[float, str]:
    """The largest difference over twice its bound, and where it is."""
    worst, where = 0.0, ""
    for name in ours:
        if name not in theirs or name not in wide or name not in eager:
            continue
        ratio, why = _one(np.asarray(ours[name]), np.asarray(theirs[name]), eager[name], wide[name])
        if ratio > worst:
            worst, where = ratio, f"`{name}` {why}"
    return worst, where


def _one(a: Any, b: Any, own: Any, exact: Any) -> tuple[float, str]:
    if a.shape != b.shape:
        return float("inf"), f"has shape {list(b.shape)}, not {list(a.shape)}"
    if not (a.dtype.kind in "fc" or a.dtype.name == "bfloat16"):
        odd = int(np.count_nonzero(a != b))
        return (float("inf"), f"differs in {odd} of {a.size}") if odd else (0.0, "")
    u = max(precision_of(a), precision_of(b))
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y, e, z = (np.asarray(v).astype(kind) for v in (a, b, own, exact))
    plain = np.isfinite(z)
    if not np.array_equal(np.where(plain, 0, x), np.where(plain, 0, y), equal_nan=True):
        return float("inf"), "differs in nan or infinity"
    bound = 4 * np.abs(e - z)[plain].max(initial=0.0) + 8 * u * np.abs(z)[plain].max(initial=0.0)
    error = float(np.abs(x - y)[plain].max(initial=0.0))
    if np.isnan(error):
        return float("inf"), "is nan"
    return (
        error / (2 * bound) if bound > 0 else (0.0 if error == 0 else float("inf"))
    ), f"is off by {error:.3g}"
