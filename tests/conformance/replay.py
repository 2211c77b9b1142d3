"""One recorded call through `ow.call_aten`, against the judge's oracle and against what PyTorch says.

A kernel's result lies within the oracle's ball; PyTorch's lies within a wider one (it rounds in other places), or its
result in f64 does.  What is not one call of an operator (a view, a permuted result) is compared exactly.

May import: opwright (all rooms), numpy, mpmath (torch brings it), torch_samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mpmath
import numpy as np
import torch

import opwright as ow
from opwright import registry
from opwright.aten import Planned, plan_aten
from opwright.errors import OpwrightError
from opwright.exceptions import OpError
from opwright.fronts import COMPOSE, PREPARE, VIEWS
from opwright.generator.bind import bind
from opwright.generator.bind_key import Resolved, key_for_call
from opwright.generator.errors import DomainError
from opwright.generator.spec import OpSpec
from opwright.generator.types import DType, Operand
from opwright.validators.ball import Ball, check
from opwright.validators.oracle import OracleError, OracleRefusal, OracleTooLarge, evaluate
from opwright.validators.values import ARRAY, STORAGE, precision
from opwright.workflows.bridge import Bridge
from opwright.workflows.workbench import Workbench

from .torch_samples import Recorded, draws, leaves, mapped, overload, widened

__all__ = ["FAILED", "PASSED", "REFUSED", "Outcome", "bridge", "claimed", "mapped_ours", "prepare", "replay"]

PASSED, REFUSED, FAILED = "passed", "refused", "failed"

#: What PyTorch may be off by more than a kernel of ours: it sums in another order and rounds in other places.
LOOSER = 8.0
#: Overloads of values and positions whose positions among equals PyTorch does not promise.
TIES = {
    "aten.kthvalue.default",
    "aten.median.dim",
    "aten.mode.default",
    "aten.nanmedian.dim",
    "aten.sort.default",
    "aten.topk.default",
}
#: Their memory is not defined.
UNDEFINED = {
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_permuted.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
}


@dataclass(frozen=True)
class Outcome:
    """passed, refused or failed, and why; `by_oracle`: the oracle's ball was the measure."""

    status: str
    why: str = ""
    by_oracle: bool = False


@cache
def bridge() -> Bridge:
    """Every operator that has a spec may serve here, proven or not: what fails shows."""
    made = Bridge(Workbench.here())
    registry.set_bootstrap(lambda: made.install(made.bench.registry.all()))
    registry.ensure()
    return made


@cache
def specs() -> Mapping[str, OpSpec]:
    return {s.op: s for s in bridge().bench.registry.all()}


@cache
def claimed() -> frozenset[str]:
    """The overloads that some row of the table, or a front, takes."""
    bridge()
    return frozenset({*registry.aten_overloads(), *VIEWS, *PREPARE, *COMPOSE})


def prepare(calls: Sequence[Recorded]) -> None:
    """Build the kernels of many calls at once.  What cannot be built is left for `replay` to say."""
    texts = {}
    for call in calls:
        try:
            planned = _plan(call)
            if isinstance(planned, Planned):
                resolved, _, _ = _resolved(planned)
                text = bridge().text(specs()[planned.op], resolved.key)
                texts[text.symbol] = text
        except (OpwrightError, KeyError):
            continue
    try:
        bridge().libraries(list(texts.values()))
    except OpwrightError:
        return


def replay(call: Recorded) -> Outcome:
    """What became of one call."""
    args, kwargs = _given(call)
    try:
        planned = plan_aten(call.overload, args, kwargs)
        got = planned.run() if isinstance(planned, Planned) else planned
    except NotImplementedError as why:
        return Outcome(FAILED, f"NotImplementedError: {why}")
    except (OpError, DomainError) as why:
        if not isinstance(why.__cause__, OpwrightError | None):  # a front that stumbled did not refuse
            return Outcome(FAILED, _reason(why))
        return Outcome(REFUSED, _reason(why))
    except OpwrightError as why:  # a key that the spec admits must bind, lower and compile
        return Outcome(FAILED, why.message.splitlines()[0])
    if isinstance(got, bool | int | float | complex) or got is None:  # an answer for Python
        same = got == call.result or (got != got and call.result != call.result)
        return Outcome(PASSED) if same else Outcome(FAILED, f"is {got!r}, PyTorch says {call.result!r}")
    ours = [x.numpy() for x in leaves(got)]
    theirs = [_array(x) for x in leaves(call.result) if isinstance(x, torch.Tensor)]
    if len(ours) != len(theirs):
        return Outcome(FAILED, f"{len(ours)} results, PyTorch has {len(theirs)}")
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            said = f"{mine.dtype}{list(mine.shape)}, PyTorch {other.dtype}{list(other.shape)}"
            return Outcome(FAILED, f"result {k} is {said}")
    if call.overload in UNDEFINED:
        return Outcome(PASSED)
    want = _oracle(planned, ours) if isinstance(planned, Planned) else None
    drawn = draws(call.overload)  # PyTorch's numbers are others, of the same shape and dtype
    if call.overload in TRUTHS and ours[0].dtype == np.float64:
        return _law_of_truth(call, ours, theirs)
    if call.overload in LAWS:
        return LAWS[call.overload](call, ours, theirs)
    if want is None:
        return Outcome(PASSED) if drawn else _by_distance(call, ours, theirs)
    for k, (mine, ball) in enumerate(zip(ours, want, strict=True)):
        result = check(mine, ball, ball.dtype)
        if not result.passed:
            return Outcome(FAILED, f"result {k} {result.reason} (kernel against oracle)")
    if drawn:
        return Outcome(PASSED, by_oracle=True)
    return _against_torch(call, theirs, want)


def _plan(call: Recorded) -> Any:
    args, kwargs = _given(call)
    return plan_aten(call.overload, args, kwargs)


def _given(call: Recorded) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = call.args, call.kwargs
    if call.overload == "aten.as_strided.default":  # it addresses the storage, not the tensor
        x = args[0]
        whole = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        offset = args[3] if len(args) > 3 else kwargs.get("storage_offset")
        args, kwargs = (whole, *args[1:3], x.storage_offset() if offset is None else offset), {}
    return mapped(_ours, tuple(args)), mapped(_ours, dict(kwargs))


def _ours(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return ow.from_dlpack(x)
    if isinstance(x, torch.dtype):
        return str(x).removeprefix("torch.")
    return x


def mapped_ours(x: Any) -> Any:
    """Arguments as the face takes them."""
    return mapped(_ours, x)


def _array(x: Any) -> Any:
    x = x.resolve_conj()
    return ow.from_dlpack(x.contiguous() if 0 in x.shape else x).numpy()


# ---- the oracle --------------------------------------------------------------------------------------------------

_SCALARS: Mapping[type, DType] = {
    bool: DType.BOOL,
    int: DType.I64,
    float: DType.F64,
    complex: DType.C128,
}


def _operand(x: Any) -> Operand:
    if isinstance(x, ow.Tensor):
        return Operand(DType(x.dtype), x.ndim, False)
    return Operand(_SCALARS[type(x)], 0, True)


def _resolved(planned: Planned) -> tuple[Resolved, dict[str, Any], Any]:
    """The key of a call, and its arrays by flat name."""
    spec = specs()[planned.op]
    inputs: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name, t in spec.inputs.items():
        x = planned.arguments.get(name)
        if t.is_list:
            inputs[name] = [_operand(e) for e in x]
            arrays |= {f"{name}.{k}": _numbers(e) for k, e in enumerate(x)}
        else:
            inputs[name] = None if x is None else _operand(x)
            if x is not None:
                arrays[name] = _numbers(x)
    attrs = {a: v for a, v in planned.arguments.items() if a in spec.attrs}
    for name, value in attrs.items():
        if spec.attrs[name].kind == "dtype" and value is not None:
            attrs[name] = ow.empty((0,), value).dtype
        elif isinstance(value, ow.Tensor):  # a number, as PyTorch takes it
            attrs[name] = int(value.item()) if spec.attrs[name].kind in ("int", "axis") else value.item()
    return key_for_call(spec, inputs, attrs), arrays, spec


def _numbers(x: Any) -> Any:
    return x.numpy() if isinstance(x, ow.Tensor) else np.array(x)


@cache
def _bound(op: str, key: Any) -> Any:
    return bind(specs()[op], key)


def _oracle(planned: Planned, ours: Sequence[Any]) -> list[Ball] | None:
    """The results as balls, in PyTorch's order and our dtypes; None where the oracle cannot take the call on."""
    resolved, arrays, _ = _resolved(planned)
    try:
        with np.errstate(all="ignore"):
            balls = evaluate(_bound(planned.op, resolved.key), arrays, resolved.attrs)
    except (OracleTooLarge, OracleRefusal, OracleError):
        return None
    out = [balls[name] for name in planned.returns]
    if planned.finish is None:
        return out
    finished = leaves(planned.finish(_whole([b.value for b in out])))
    radii = leaves(planned.finish(_whole([b.radius for b in out])))
    return [  # which results are left, and of which dtype, only the finish knows
        Ball(v.numpy(), next(d for d, a in ARRAY.items() if a == mine.dtype), r.numpy(), signed=out[0].signed)
        for mine, v, r in zip(ours, finished, radii, strict=True)
    ]


def _whole(arrays: list[Any]) -> Any:
    made = [ow.from_dlpack(np.array(a, order="C")) for a in arrays]
    return made[0] if len(made) == 1 else tuple(made)


# ---- what PyTorch says -------------------------------------------------------------------------------------------


def _looser(ball: Ball) -> Ball:
    if not ball.dtype.is_inexact:
        return ball
    with np.errstate(all="ignore"):
        unit = 2.0 ** (1 - precision(ball.dtype))
        inner = min(unit, 2.0**-23) * np.abs(ball.value[np.isfinite(ball.value)]).max(
            initial=0.0
        )  # what cancelled
        radius = LOOSER * ball.radius + 2 * (unit * np.abs(ball.value) + inner) + np.finfo(np.float32).tiny
    return replace(ball, r=np.where(np.isfinite(ball.value), radius, ball.radius), signed=False)


def _against_torch(call: Recorded, theirs: Sequence[Any], want: Sequence[Ball]) -> Outcome:
    wrong = _first_wrong(theirs, [_looser(b) for b in want])
    if not wrong:
        return Outcome(PASSED, by_oracle=True)
    wide = widened(call)  # a formula that rounds more than ours?
    if wide is not None:
        arrays = [_array(x) for x in leaves(wide) if isinstance(x, torch.Tensor)]
        rounded = [
            x if x.dtype == ARRAY[b.dtype] or not b.dtype.is_inexact else x.astype(ARRAY[b.dtype])
            for x, b in zip(arrays, want, strict=True)
        ]
        if not _first_wrong(rounded, [_looser(b) for b in want]):
            return Outcome(PASSED, by_oracle=True)
    if call.overload in TIES and _same_values(call, theirs):
        return Outcome(PASSED, by_oracle=True)
    return Outcome(FAILED, f"PyTorch {wrong}")


def _same_values(call: Recorded, theirs: Sequence[Any]) -> bool:
    """Whether PyTorch's positions are those of its values: among equals it may take any."""
    values, positions = theirs
    if values.ndim == 0:
        return False
    schema = overload(call.overload)._schema.arguments
    names = [a.name for a in schema]
    given = (
        {a.name: a.default_value for a in schema} | dict(zip(names, call.args, strict=False)) | call.kwargs
    )
    x = _array(call.args[0])
    if positions.ndim < x.ndim:  # the axis is gone
        values, positions = (np.expand_dims(a, given["dim"]) for a in (values, positions))
    picked = np.take_along_axis(x, positions, given["dim"])
    return bool(np.all((picked == values) | ((picked != picked) & (values != values))))


def _same_order(call: Recorded, ours: Any, theirs: Any) -> bool:
    """Whether two lists of positions read the same: among equals, no order is promised."""
    x = _array(call.args[0])
    if x.ndim == 0:
        return False
    given = dict(zip(("self", "dim", "descending"), call.args, strict=False)) | dict(call.kwargs)
    a, b = (np.take_along_axis(x, positions, given.get("dim", -1)) for positions in (ours, theirs))
    whole = np.array_equal(
        np.sort(ours, axis=given.get("dim", -1)), np.sort(theirs, axis=given.get("dim", -1))
    )
    return whole and bool(np.all((a == b) | ((a != a) & (b != b))))


def _first_wrong(arrays: Sequence[Any], want: Sequence[Ball]) -> str:
    for k, (array, ball) in enumerate(zip(arrays, want, strict=True)):
        result = check(array, ball, ball.dtype, signed_zero=False)
        if not result.passed:
            return f"result {k} {result.reason}".replace("got", "says")
    return ""


# ---- what has several right answers: signs of vectors, the order of eigenvalues ------------------------------------


def _far(a: Any, b: Any, scale: Any) -> bool:
    """Whether they differ by more than sums over a matrix of this size in this precision may."""
    unit = 2.0 ** (1 - precision(next(d for d, x in ARRAY.items() if x == scale.dtype)))
    size = np.abs(scale).max(initial=1.0) * max(scale.shape[-2:], default=1)
    return bool(np.abs(a - b).max(initial=0.0) > 64 * unit * size)


def _law_of_singular(call: Recorded, ours: Sequence[Any], theirs: Sequence[Any]) -> Outcome:
    x = _array(call.args[0])
    at = next(k for k, y in enumerate(theirs) if y.dtype.kind == "f" and y.ndim == x.ndim - 1)
    if _far(ours[at], theirs[at], x):
        return Outcome(FAILED, "singular values differ from PyTorch's")
    if len(ours) == 3 and all(y.size for y in theirs):
        u, s, v = (np.asarray(y) for y in ours)
        v = v if call.overload != "aten.svd.default" else np.conj(np.swapaxes(v, -1, -2))
        k = s.shape[-1]
        if _far((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, x):
            return Outcome(FAILED, "U S V is not the matrix")
    return Outcome(PASSED)


def _law_of_eigen(call: Recorded, ours: Sequence[Any], theirs: Sequence[Any]) -> Outcome:
    x = _array(call.args[0])
    values, other = (np.sort_complex(np.asarray(y[0])) for y in (ours, theirs))
    # A real matrix whose half counts is symmetric by that half; what PyTorch's vectors solve, ours must, too.
    if _far(values, other, x) and _far(np.sort(np.abs(values)), np.sort(np.abs(other)), x):
        return Outcome(FAILED, "eigenvalues differ from PyTorch's")
    if len(ours) > 1 and ours[1].size:
        mine = (ours[1] * ours[0][..., None, :]) @ np.linalg.inv(ours[1])
        with_theirs = (theirs[1] * theirs[0][..., None, :]) @ np.linalg.inv(theirs[1])
        if _far(mine, with_theirs, x):
            return Outcome(FAILED, "the vectors are not those of PyTorch's matrix")
    return Outcome(PASSED)


def _law_of_truth(call: Recorded, ours: Sequence[Any], theirs: Sequence[Any]) -> Outcome:
    """PyTorch's own f64 is off by up to 1e-5 near zeros of Bessel functions, and by 5e-10 in trigamma."""
    args = [_array(x) if isinstance(x, torch.Tensor) else x for x in call.args]
    with mpmath.workdps(30):
        want = np.vectorize(TRUTHS[call.overload], otypes=[float])(*args)
    if np.allclose(ours[0], want, rtol=1e-13, atol=1e-14, equal_nan=True):
        return Outcome(PASSED)
    return Outcome(FAILED, "result 0 differs from the truth by mpmath")


def _truth(function: Callable[..., Any], *fixed: Any) -> Callable[..., float]:
    """A function of floats; nan where it is none, or no real number."""

    def at(*xs: Any) -> float:
        try:
            value = function(*fixed, *(mpmath.mpf(float(x)) for x in xs))
            return float(value) if not value.imag else math.nan
        except (ValueError, ZeroDivisionError):
            return math.nan

    return at


#: Functions that PyTorch has less exactly in f64 than others have them.
TRUTHS: Mapping[str, Callable[..., Any]] = {
    "aten.special_bessel_j0.default": _truth(mpmath.besselj, 0),
    "aten.special_bessel_j1.default": _truth(mpmath.besselj, 1),
    "aten.special_bessel_y0.default": _truth(mpmath.bessely, 0),
    "aten.special_bessel_y1.default": _truth(mpmath.bessely, 1),
    "aten.polygamma.default": _truth(mpmath.psi),
}
LAWS: Mapping[str, Callable[[Recorded, Sequence[Any], Sequence[Any]], Outcome]] = {
    "aten._linalg_eigh.default": _law_of_eigen,
    "aten._linalg_svd.default": _law_of_singular,
    "aten.linalg_eig.default": _law_of_eigen,
    "aten.linalg_eigh.default": _law_of_eigen,
    "aten.linalg_eigvals.default": _law_of_eigen,
    "aten.linalg_eigvalsh.default": _law_of_eigen,
    "aten.linalg_svd.default": _law_of_singular,
    "aten.svd.default": _law_of_singular,
}


def _by_distance(call: Recorded, ours: Sequence[Any], theirs: Sequence[Any]) -> Outcome:
    """Views, and calls that the oracle cannot take on: equal, or for numbers that a kernel made a few units apart."""
    exact = call.overload in VIEWS
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        dtype = next(d for d, a in ARRAY.items() if a == mine.dtype)
        if not dtype.is_inexact or exact:
            same = bool(np.all((mine == other) | ((mine != mine) & (other != other))))
        else:
            a, b = mine.astype(STORAGE[dtype]), other.astype(STORAGE[dtype])
            scale = 16 * 2.0 ** (1 - precision(dtype))
            most = _largest(call, b)
            near = scale * (_magnified(call) if dtype.is_complex else 1.0)
            same = bool(np.all(np.isclose(a, b, rtol=near, atol=scale * most, equal_nan=True)))
        if not same and k == 1 and call.overload in TIES and _same_values(call, theirs):
            continue
        if not same and call.overload == "aten.argsort.default" and _same_order(call, mine, other):
            continue
        if not same:
            why = f"result {k} differs from PyTorch's"
            return Outcome(FAILED, why) if exact else _by_width(call, ours, why)
    return Outcome(PASSED)


def _largest(call: Recorded, result: Any) -> float:
    """What a rounding inside of the call is a rounding of.  Of a transform, a sum over a bag, and a function of a whole
    matrix, each result is made of all numbers: what cancels is of the largest one's size, times the condition (Higham,
    Functions of Matrices: |A| for e^A, the condition number for A⁺)."""
    name = call.overload.split(".")[1]
    most = float(np.abs(result[np.isfinite(result)]).max(initial=1.0))
    if name in ("linalg_matrix_exp", "linalg_pinv"):
        a = np.asarray(_array(call.args[0]), np.complex128)
        if not a.size or not np.isfinite(a).all():
            return most
        norm = float(np.linalg.norm(a, 2, axis=(-2, -1)).max())
        return most * max(1.0, norm * (most if name == "linalg_pinv" else 1.0))
    return most if "fft_" in name or name in ("stft", "istft") or "embedding_bag" in name else 1.0


def _magnified(call: Recorded) -> Any:
    """How many units a rounding inside of a call becomes: a power is exp(b log a), whose condition is |b log a|."""
    if call.overload.split(".")[1] not in ("pow", "float_power"):
        return 1.0
    with np.errstate(all="ignore"):
        a, b = (np.asarray(_array(x) if isinstance(x, torch.Tensor) else x) for x in call.args[:2])
        found = np.abs(b * np.log(a.astype(np.complex128)))
    return 1.0 + np.where(np.isfinite(found), found, 0.0)


def _by_width(call: Recorded, ours: Sequence[Any], why: str) -> Outcome:
    """What PyTorch says in f64 is nearer to the truth than what it says in the call's own dtype."""
    wide = widened(call)
    theirs = [] if wide is None else [_array(x) for x in leaves(wide) if isinstance(x, torch.Tensor)]
    if len(theirs) != len(ours):
        return Outcome(FAILED, why)
    for mine, other in zip(ours, theirs, strict=True):
        dtype = next(d for d, a in ARRAY.items() if a == mine.dtype)
        scale = 16 * 2.0 ** (1 - precision(dtype)) if dtype.is_inexact else 0.0
        a, b = (y.astype(STORAGE[dtype]) if dtype.is_inexact else y for y in (mine, other))
        if mine.shape != other.shape or not np.allclose(a, b, rtol=scale, atol=scale, equal_nan=True):
            return Outcome(FAILED, why)
    return Outcome(PASSED)


def _reason(why: OpwrightError) -> str:
    """The message without the numbers of this very call, so that equal reasons count as one."""
    first = why.message.splitlines()[0]
    first = re.sub(r"\[[-\d, ]*\]|\([-\d, ]*\)", "[…]", first)
    return re.sub(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])", "…", first)[:200]
