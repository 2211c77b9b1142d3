"""The gate `meaning`: `compute` is a claim, held against sources that its author did not write.

In f64, i64, bool and c128: the ATen overloads of `aten:` (mandatory where one exists; torch runs as a server process),
the NumPy or SciPy function of `reference:`, or its composition of PyTorch operators (compositions.py), the second
formulation of `also:`.  Another source must lie within the oracle's own ball for f64, and nothing else is allowed for.
At the full tier mutants of `compute` say how strong the cases are.

May import: generator.{bind, bound, spec}, ball, case_plan, cases, lift, mutants, oracle, session, torch_server, trial.
To add a kind of source: a function like `_against_reference`, and its place in `gate_meaning`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..generator.bind import bind
from ..generator.errors import OpwrightError
from ..generator.expr import Block, show_block
from ..generator.spec import AtenEntry, Only, OpSpec
from ..generator.types import DType
from .ball import Ball, as_floats, check, every_rounding_counts
from .case_model import CaseRefused
from .case_plan import Plan
from .cases import Builder
from .extents import OracleError
from .harness import Array
from .laws import holds, law_op
from .lift import lift_dtype, lift_key, lift_trial
from .mutants import KillRate, kill_rate
from .oracle import OracleRefusal, OracleTooLarge, evaluate
from .overloads import SUPPLIED, mistakes
from .promotions import mixed_types
from .refusals import bad_data
from .session import Session, Tally
from .torch_server import TorchCrashed, TorchError, TorchMissing, TorchServer
from .trial import Trial, describe, size_of
from .values import ARRAY, dtype_of
from .verdict import AUTHOR_ONLY, NOT_APPLICABLE, NOT_HERE, Failure, GateResult

__all__ = [
    "AUTHOR_ONLY",
    "aten_arguments",
    "attribute_value",
    "gate_meaning",
    "lifted_attrs",
    "measure_strength",
    "tie_rule",
    "torch_server",
    "untied",
]

#: Elements of a case beyond which another source is not asked.
_LARGEST = 1 << 18
#: Overloads whose answer among equals is documented, or the same in every kernel of PyTorch's for the CPU: those that
#: may be at odds with `compute` about a position.  Where one is not listed, another choice among equals is no error.
_TIES = {
    "aten.argmax": "the first",
    "aten.argmin": "the first",
    "aten.max.dim": "the first",
    "aten.min.dim": "the first",
    "aten.cummax": "the last",
    "aten.cummin": "the last",
    "aten.sort.stable": "in the order of the input",
    "aten.argsort.stable": "in the order of the input",
    "aten.max_pool2d_with_indices": "the first of the window",
    "aten.max_pool3d_with_indices": "the first of the window",
    "aten.adaptive_max_pool2d": "the first of the window",
    "aten.searchsorted": "by its `right`",
    "aten.bucketize": "by its `right`",
    "aten.nonzero": "in the order of the input",
}


@dataclass(frozen=True)
class _Quirk:
    """What an overload's kernel for the CPU may say (PyTorch 2.13) where `compute` says another thing.

    note     what the record says of it
    at       the values of `compute` that it may say it for
    says     what it may say there
    only     arguments without which there is no pardon; when: the same, asked of all arguments
    blurs    its result is off by as much as the last bits of its inputs matter
    along    an argument that names axes: every result along them is off by as much as the least exact of them
    """

    note: str
    at: Callable[[Array], Array] = lambda v: np.zeros(v.shape, np.bool_)
    says: Callable[[Array], Array] = np.isnan
    only: Mapping[str, Any] = field(default_factory=dict)
    when: Callable[[Mapping[str, Any]], bool] | None = None
    blurs: bool = False
    along: str = ""


#: It subtracts two numbers that may be large, or both infinite, where ours subtracts the mean first: a running mean, or
#: x * scale + (bias - mean * scale).
_SUBTRACTS = _Quirk("gives nan where it may", np.isinf, blurs=True)
#: It multiplies by the reciprocal of a divisor, which overflows where that is subnormal, as then the remainder is (of
#: fewer elements than a vector holds it gives the number).
_DIVIDES = _Quirk("gives nan where it may", lambda v: np.abs(v) < 2.0**-1022)
#: It halves exp(|x|), which overflows from half of the greatest number on (of less than a vector it is exact).
_HALVES = _Quirk("overflows early", lambda v: np.abs(v) >= 2.0**1023, np.isinf)
#: BLAS does not look at the factors of a product that is multiplied by 0.
_LEAVES_OUT = _Quirk(
    "leaves out a product times 0", np.isnan, lambda v: np.ones(v.shape, np.bool_), {"alpha": 0}
)
#: Its pass over rows goes wrong where a row has one number: of two equal columns it says another thing, which is ours.
_ONE_COLUMN = _Quirk(
    "resamples a single column in another way than two equal ones",
    lambda v: np.ones(v.shape, np.bool_),
    lambda v: np.ones(v.shape, np.bool_),
    when=lambda call: call["output_size"][-1] == 1,
)
_QUIRKS = {
    "aten._upsample_bilinear2d_aa": _ONE_COLUMN,
    "aten._upsample_bicubic2d_aa": _ONE_COLUMN,
    "aten._native_batch_norm_legit": _SUBTRACTS,
    "aten._native_batch_norm_legit_no_training": _SUBTRACTS,
    "aten.batch_norm": _SUBTRACTS,
    "aten.native_batch_norm": _SUBTRACTS,
    "aten.native_group_norm": _SUBTRACTS,
    "aten.native_layer_norm": _SUBTRACTS,
    "aten.fmod": _DIVIDES,
    "aten.remainder": _DIVIDES,
    "aten.cosh": _HALVES,
    "aten.sinh": _HALVES,
    # Reflection takes the tangent of pi times what is beyond the integer towards 0, which is rounded beside a pole.
    "aten.digamma": _Quirk("", blurs=True),
    # A fast transform's error is relative to the whole vector: butterflies add imaginary parts that cancel only up to
    # rounding even where they count for nothing, as in the sum that is the first of the reals.
    "aten._fft_c2r": _Quirk("", along="dim"),
    "aten.addmm": _LEAVES_OUT,
    "aten.addbmm": _LEAVES_OUT,
    # Its maximum over a vector drops nan.
    "aten._cdist_forward": _Quirk(
        "loses nan", np.isnan, lambda v: np.ones(v.shape, np.bool_), {"p": float("inf")}
    ),
}
#: Overloads that PyTorch serves with two kernels which differ in nan.  Attention by its formula adds -inf to hidden
#: scores, so that a hidden nan or inf makes a row nan; the fused kernel replaces them (and gives 0 for a row of nan).
#: The formula is asked; only where it says nan and `compute` does not, the fused kernel has to agree with `compute`.
_TWO_KERNELS = {"aten.scaled_dot_product_attention"}
#: Arguments that say where and how a result is stored, and `sorted`, without which an overload promises no order.
_IRRELEVANT = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "sorted"}
#: What PyTorch prints of memory that it never set: another text each time.
_ADDRESS = re.compile(r"(?:-?\d+, ){8,}-?\d+|-?\d{12,}")
_OTHER_VALUES = (True, 1, 0.5)
#: torch's way of saying that it has no kernel for a dtype: nothing to compare with, not a disagreement.
_NO_KERNEL = (
    "not implemented for",
    "not currently supported",
    "does not support",
    "expected scalar type",
    "is not supported",
    "Inexpressible",
)
#: Sources of cases that differ from others by an attribute.
_OF_ATTRIBUTES = ("attr.", "axes.", "default.", "edge.", "zero.")
#: How torch refuses a position.
_OUT_OF_RANGE = ("IndexError", "out of range", "out of bounds", "out-of-bounds")


@functools.cache
def torch_server() -> TorchServer:
    """One server for the process, started when first asked, stopped at exit."""
    server = TorchServer()
    atexit.register(server.stop)
    return server


def tie_rule(overload: str) -> str | None:
    """Which of several equals the overload takes, as PyTorch documents it; None where it promises nothing."""
    return _TIES.get(overload, _TIES.get(_packet(overload)))


def _packet(overload: str) -> str:
    """`aten.argmax` of `aten.argmax.default`."""
    return overload.rpartition(".")[0]


def attribute_value(spec: OpSpec, trial: Trial, name: str) -> Any:
    """An attribute's value in this trial: given, or constant in the key, or its default."""
    if name in trial.given:
        return trial.given[name]
    static = dict(trial.key.static)
    if name in static:
        return static[name]
    decl = spec.attrs[name]
    return decl.default if decl.has_default and decl.default_expr is None else None


def _input(spec: OpSpec, trial: Trial, name: str) -> Any:
    if not spec.inputs[name].is_list:
        return trial.arrays.get(name)
    items: list[Array] = []
    while f"{name}.{len(items)}" in trial.arrays:
        items.append(trial.arrays[f"{name}.{len(items)}"])
    return items


def _wrapped(spec: OpSpec, trial: Trial, name: str) -> Any:
    """An axis counted from the front, as PyTorch's own callers give it to an overload that is not for others: on
    `_fft_c2c` over axis -2 an assertion of its own fails."""
    value = attribute_value(spec, trial, name)
    if spec.attrs[name].kind == "axis" and isinstance(value, int) and value < 0:
        for n, t in spec.inputs.items():
            if not t.is_list and any(d.at == name for d in t.dims) and n in trial.arrays:
                return value + trial.arrays[n].ndim
    return value


def aten_arguments(
    spec: OpSpec, entry: AtenEntry, trial: Trial
) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The overload's arguments by name, and those that are dtypes; None when the overload cannot express the trial."""
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    arguments: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    named = {
        n for _, to in pairs if isinstance(to, str | tuple) for n in ((to,) if isinstance(to, str) else to)
    }
    for name in spec.inputs:
        if name not in named and _input(spec, trial, name) not in (None, []):
            return None
    for name, decl in spec.attrs.items():
        if name in named:
            continue
        wanted = entry.set.get(name, decl.default if decl.has_default else None)
        if _plain(attribute_value(spec, trial, name)) != _plain(wanted):
            return None
    for argument, to in pairs:
        if to is None:
            continue
        if isinstance(to, Only):
            arguments[argument] = to.value
        elif isinstance(to, tuple):
            value_of = _wrapped if entry.overload.startswith("aten._") else attribute_value
            arguments[argument] = [(_input if n in spec.inputs else value_of)(spec, trial, n) for n in to]
        elif to in spec.inputs:
            arguments[argument] = _input(spec, trial, to)
        else:
            value = attribute_value(spec, trial, to)
            if spec.attrs[to].kind == "dtype":
                if value is not None:
                    dtypes[argument] = str(value.value if isinstance(value, DType) else value)
            elif value is None and spec.attrs[to].default_expr is not None:
                continue  # both leave it to their own default
            else:
                arguments[argument] = list(value) if isinstance(value, tuple) else value
    return arguments, dtypes


def _left_out(spec: OpSpec, entry: AtenEntry, trial: Trial) -> list[str]:
    """The overload's arguments that the caller of the spec left to its default: that has to be the overload's own."""
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    return [
        argument
        for argument, to in pairs
        if isinstance(to, str)
        and to in spec.attrs
        and spec.attrs[to].has_default
        and to not in trial.given
        and (entry.overload, argument) not in SUPPLIED
    ]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ---- the trials --------------------------------------------------------------------------------------------------


def _lifted(s: Session, limit: int) -> list[Trial]:
    """Trials in f64, as they are where f64 is not admitted: at most `limit`, but of every class of values and of
    positions one.

    Of the same case in several dtypes the widest, which has the most digits.
    """
    groups: dict[tuple[str, ...], dict[tuple[Any, ...], Trial]] = {}
    extra: set[str] = set()  # what such cases add to the limit, so that they take no other's place
    every = {id(t): t for t in (*s.spread(len(s.trials)), *s.trials)}
    for trial in sorted(every.values(), key=_narrow):
        if size_of(trial) > _LARGEST:
            continue
        lifted = _lift(s.spec, trial)
        mark = (lifted.key, tuple((n, a.shape) for n, a in lifted.arrays.items()), str(lifted.attrs))
        # What an attribute alone makes a case of, no other case stands for.
        source = trial.case.partition("/")[0]
        alone = (source,) if source.startswith(_OF_ATTRIBUTES) else ()
        extra.update(alone)
        of_class = groups.setdefault(trial.classes + alone, {})
        if mark not in of_class:
            of_class[mark] = lifted
    rounds = itertools.zip_longest(*(g.values() for g in groups.values()))
    order = [trial for turn in rounds for trial in turn if trial is not None]
    return order[: max(limit, len(groups) - len(extra)) + len(extra)]


def _lift(spec: OpSpec, trial: Trial) -> Trial:
    key = lift_key(spec, trial.key)
    lifted = trial if key is None else lift_trial(trial, key)
    return replace(lifted, given=lifted_attrs(spec, lifted))


def _edges(s: Session) -> list[Trial]:
    """What no other gate asks, for each is a kernel of its own: numbers of static attributes beyond those drawn."""
    builder = Builder(s.spec, s.seed)
    plan = Plan(builder, "quick", _NARROW)
    out = []
    for a in (a for a in s.spec.attrs.values() if a.static is True):
        for k in range(len(builder.edges_of(a))):
            name = f"edge.{a.name}.{k}/{plan.combinations()[0]}/{plan.finite()}/contiguous/{plan.index}/all"
            with contextlib.suppress(CaseRefused):
                out.append(Trial.of_case(builder.build(name)))
    return [t for t in out if size_of(t) <= _LARGEST]


def _narrow(trial: Trial) -> int:
    """0 for f64, more for what has fewer digits (a sort key: sorting keeps the order of equals)."""
    return -max((a.itemsize for a in trial.arrays.values() if a.dtype.kind not in "biu"), default=0)


def lifted_attrs(spec: OpSpec, trial: Trial) -> dict[str, Any]:
    out = dict(trial.given)
    for name, decl in spec.attrs.items():
        if decl.kind != "dtype":
            continue
        if out.get(name) is not None:
            out[name] = lift_dtype(str(out[name]))
        elif not trial.arrays and dict(trial.key.types):
            # No tensor says f64: the call has to.
            out[name] = dict(trial.key.types)[next(iter(spec.outputs.values())).dtype]
    return out


def untied(trial: Trial) -> Trial:
    """The same with no two numbers of a tensor equal, and no inf or nan."""

    def spread(a: Array) -> Array:
        if a.dtype.kind in "iu" and 0 < a.size <= np.iinfo(a.dtype).max:
            return np.asarray(
                np.argsort(np.argsort(a.reshape(-1), kind="stable")).reshape(a.shape).astype(a.dtype)
            )
        if a.dtype.kind != "f" or not a.size:
            return a
        steps = np.arange(1, a.size + 1).reshape(a.shape) * 2.0**-20
        finite: Array = np.where(np.isfinite(a), a, 0.0)
        return np.asarray(finite + steps * (1 + np.abs(finite)))

    return trial.with_arrays({n: spread(a) for n, a in trial.arrays.items()}, "~untied")


def _loosened(
    spec: OpSpec,
    trial: Trial,
    want: Mapping[str, Ball],
    *,
    blurs: bool = False,
    along: Sequence[int] = (),
) -> dict[str, Ball]:
    """The balls with the radius of any order of evaluation.

    Where every operation of ours happens to be exact (small integers, numbers that were f32) the ball has no radius,
    but another formula of the same meaning, such as a running mean, rounds; a formula of another shape, a few times
    as often.  Results within a few binary places of the least normal number may be flushed to zero, for the reciprocal
    that a formula goes through may overflow before they do.  blurs: the inputs' last bits count as well.  along: axes
    of every output whose elements are made together, so that each has the largest radius along them.
    """
    with every_rounding_counts():
        loose = _oracle(spec, _blurred(trial) if blurs else trial)
    out = {}
    for name, ball in want.items():
        if not ball.dtype.is_inexact:
            out[name] = ball
            continue
        radius = ball.radius + 2.0**-1012
        if loose is not None and loose[name].shape == ball.shape:
            wide = 4 * np.nan_to_num(loose[name].radius, nan=0.0, posinf=0.0)
            radius = np.maximum(
                radius, wide.max(tuple(along), keepdims=True) if along and wide.size else wide
            )
        out[name] = replace(ball, r=np.where(np.isfinite(ball.value), radius, ball.radius))
    return out


def _blurred(trial: Trial) -> Trial:
    """Its floats as balls of one rounding."""
    arrays: dict[str, Any] = {
        n: Ball(a, DType.F64, np.abs(np.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0)) * 2.0**-53)
        if a.dtype == np.float64
        else a
        for n, a in trial.arrays.items()
    }
    return replace(trial, arrays=arrays)


def _oracle(spec: OpSpec, trial: Trial) -> dict[str, Ball] | None:
    """The oracle's balls; None where it refuses the call or cannot take it on."""
    try:
        return evaluate(bind(spec, trial.key), trial.arrays, trial.attrs)
    except (OracleRefusal, OracleTooLarge):
        return None


def _disagreement(want: Mapping[str, Ball], got: Mapping[str, Array | None]) -> tuple[str, float]:
    """What another source says differently, and the worst ratio of a difference to its bound."""
    worst = 0.0
    for name, value in got.items():
        ball = want[name]
        if value is None:
            return f"gives no `{name}`", float("inf")
        if value.dtype != ARRAY[ball.dtype]:
            return f"`{name}` is {value.dtype} there, {ball.dtype} here", float("inf")
        result = check(value, ball, ball.dtype, signed_zero=False)
        worst = max(worst, result.ratio)
        if not result.passed:
            said = result.reason.replace("got", "it says").replace("expected", "`compute` says")
            return f"`{name}` {said}", worst
    return "", worst


def _only_positions(trial: Trial, want: Mapping[str, Ball], got: Mapping[str, Array | None]) -> bool:
    """Whether bools, of which more than two are never all different, leave nothing to compare but what is no position:
    and that agrees.
    """
    tied = any(a.dtype == np.bool_ and a.size > 1 for a in trial.arrays.values())
    others = {n: a for n, a in got.items() if want[n].dtype is not DType.I64}
    return tied and bool(others) and not _disagreement(want, others)[0]


def _overflows(spec: OpSpec, trial: Trial, want: Mapping[str, Ball], got: Mapping[str, Array | None]) -> str:
    """Where another source has a number, and `compute` none because an intermediate of it overflows.

    The ball of such an element is free, for a kernel that follows `compute` may give anything there: no pardon for
    `compute` itself, which says what kernels are to reach.  One that comes to a number all the same (the tangent of
    infinity is 1) says enough.
    """
    open_ = {
        name: want[name].free & np.isfinite(value)
        for name, value in got.items()
        if value is not None and want[name].dtype.is_inexact
    }
    if not any(o.any() for o in open_.values()):
        return ""
    with as_floats():
        plain = _oracle(spec, trial) or {}
    for name, ball in plain.items():
        value = got.get(name)
        if name not in open_ or value is None:
            continue
        lost = open_[name] & ~np.isfinite(ball.value)
        if lost.any():
            at = tuple(int(i) for i in np.argwhere(lost)[0])
            return f"`{name}` at {list(at)}: it says {value[at]}, `compute` overflows to {ball.value[at]}"
    return ""


# ---- the sources -------------------------------------------------------------------------------------------------


class _Aten:
    """One overload, asked trial by trial."""

    def __init__(self, s: Session, entry: AtenEntry, tally: Tally) -> None:
        self.s, self.entry, self.tally = s, entry, tally
        self.returns: Sequence[str] = entry.returns or tuple(
            n for n, t in s.spec.outputs.items() if not t.aux
        )
        self.compared = 0
        self.refused: list[str] = []

    def outputs(self, trial: Trial, *, fused: bool = False) -> list[Array | None] | None:
        """What torch says; None where the overload cannot express the trial.  Raises TorchError, TorchCrashed."""
        call = aten_arguments(self.s.spec, self.entry, trial)
        if call is None:
            return None
        left_out = _left_out(self.s.spec, self.entry, trial)
        return torch_server().call(
            self.entry.overload, *call, in_order=self.entry.map is None, left_out=left_out, fused=fused
        )

    def ignoring(self, trial: Trial) -> None:
        """An argument that the map ignores must not matter: other values of it, the same answer."""
        want, call = _oracle(self.s.spec, trial), aten_arguments(self.s.spec, self.entry, trial)
        if want is None or call is None:
            return
        for argument in (a for a, to in self.entry.map or () if to is None and a not in _IRRELEVANT):
            for value in _OTHER_VALUES:
                arguments = {**call[0], argument: value}
                try:
                    outputs = torch_server().call(self.entry.overload, arguments, call[1])
                except (TorchError, TorchCrashed):
                    continue  # no value of this argument's type
                wrong, ratio = self.disagreement(trial, want, outputs)
                if wrong:
                    said = (
                        f"{self.entry.overload} with `{argument}` = {value}, which the map ignores, {wrong}"
                    )
                    self.tally.fail(_failure(self.s, trial, said), ratio)
                else:
                    self.tally.passed(ratio)

    def ask(self, trial: Trial) -> None:
        want = _oracle(self.s.spec, trial)
        if want is None:
            return
        try:
            outputs = self.outputs(trial)
        except TorchCrashed as death:
            self.tally.note(f"{self.entry.overload} crashed torch ({death}) on {describe(trial)}")
            return
        except TorchError as refusal:
            if not any(words in str(refusal) for words in _NO_KERNEL):
                self.refused.append(_ADDRESS.sub("…", str(refusal)))
            elif (smaller := self.as_number(trial, str(refusal))) is not None:
                self.ask(smaller)
            return
        if outputs is None:
            return
        self.compared += 1
        wrong, ratio = self.disagreement(trial, want, outputs)
        if wrong:
            self.tally.fail(_failure(self.s, trial, f"{self.entry.overload} {wrong}"), ratio)
        else:
            self.tally.passed(ratio)

    def refusing(self, trial: Trial) -> None:
        """A position out of range that the overload refuses, `compute` has to refuse, by a rule or by an index."""
        integers = {n: a for n, a in trial.arrays.items() if a.dtype.kind in "iu"}
        for what, bad in bad_data(replace(trial, arrays=integers)):
            spoiled = bad.with_arrays({**trial.arrays, **bad.arrays}, f"!{what}")
            want = _oracle(self.s.spec, spoiled)
            if want is None:
                continue
            try:
                outputs = self.outputs(spoiled)
            except TorchCrashed:
                continue
            except TorchError as refusal:
                if any(words in str(refusal) for words in _OUT_OF_RANGE):
                    said = f"{what}: {self.entry.overload} refuses it ({refusal}), `compute` does not"
                    self.tally.fail(_failure(self.s, spoiled, said))
                    return
                continue
            if outputs is None:
                continue
            wrong, ratio = self.disagreement(spoiled, want, outputs)
            if wrong:
                self.tally.fail(_failure(self.s, spoiled, f"{what}: {self.entry.overload} {wrong}"), ratio)
                return
            self.tally.passed(ratio)

    def as_number(self, trial: Trial, said: str) -> Trial | None:
        """Where the overload takes a number: the trial with the first element of that tensor."""
        for argument, to in self.entry.map or ():
            if (
                f"`{argument}` is a number" in said
                and isinstance(to, str)
                and trial.arrays.get(to, np.empty(0)).size
            ):
                first = trial.arrays[to].reshape(-1)[:1].reshape(()).copy()
                return trial.with_arrays({**trial.arrays, to: first}, "~number")
        return None

    def disagreement(
        self, trial: Trial, want: dict[str, Ball], outputs: Sequence[Array | None]
    ) -> tuple[str, float]:
        if len(outputs) < len(self.returns):
            return f"gives {len(outputs)} outputs, `returns` names {len(self.returns)}", float("inf")
        got = dict(zip(self.returns, outputs, strict=False))
        wrong, ratio = _disagreement(want, got)
        quirk = self.quirk(trial)
        if wrong:
            loose = self.loosened(trial, want, quirk)
            wrong, ratio = _disagreement(loose, got)
        else:
            wrong = _overflows(self.s.spec, trial, want, got)
            if wrong:
                return wrong, float("inf")
        rule = tie_rule(self.entry.overload)
        if (
            wrong
            and rule is None
            and self.only_indices(want, got)
            and (self.agrees_without_ties(trial) or _only_positions(trial, want, got))
        ):
            self.tally.note(f"{self.entry.overload} breaks ties in another way")
            return "", 0.0
        two = _packet(self.entry.overload) in _TWO_KERNELS
        if wrong and two and self.fused_agrees(trial, want, got):
            self.tally.note(f"{self.entry.overload} has nan in one of PyTorch's kernels only")
            return "", 0.0
        if wrong and quirk is not None and self.only_where(quirk, trial, want, got):
            self.tally.note(f"{self.entry.overload} {quirk.note}")
            return "", 0.0
        return wrong, ratio

    def loosened(self, trial: Trial, want: Mapping[str, Ball], quirk: _Quirk | None) -> dict[str, Ball]:
        """The bound of an overload that may evaluate in any order, and of which `quirk` is known."""
        if quirk is None:
            return _loosened(self.s.spec, trial, want)
        call = aten_arguments(self.s.spec, self.entry, trial)
        along = call[0][quirk.along] if quirk.along and call is not None else ()
        return _loosened(self.s.spec, trial, want, blurs=quirk.blurs, along=along)

    def agrees_without_ties(self, trial: Trial) -> bool:
        if trial.name.endswith("~untied"):
            return False
        apart_ = untied(trial)
        want = _oracle(self.s.spec, apart_)
        try:
            outputs = None if want is None else self.outputs(apart_)
        except (TorchError, TorchCrashed):
            return False
        return want is not None and outputs is not None and not self.disagreement(apart_, want, outputs)[0]

    def quirk(self, trial: Trial) -> _Quirk | None:
        """What is known of the overload, where the call is one that it is known of."""
        quirk = _QUIRKS.get(_packet(self.entry.overload))
        if quirk is None or not (quirk.only or quirk.when):
            return quirk
        call = aten_arguments(self.s.spec, self.entry, trial)
        if call is None or not quirk.only.items() <= call[0].items():
            return None
        return quirk if quirk.when is None or quirk.when(call[0]) else None

    def only_where(
        self, quirk: _Quirk, trial: Trial, want: Mapping[str, Ball], got: Mapping[str, Array | None]
    ) -> bool:
        """Whether all that differs is what the quirk pardons."""
        patched: dict[str, Array | None] = {}
        for name, value in got.items():
            v = want[name].value
            if value is None or value.shape != v.shape:
                return False
            if want[name].dtype.is_inexact:
                value = np.where(quirk.at(v) & quirk.says(value), v, value).astype(value.dtype)
            patched[name] = value
        return not _disagreement(_loosened(self.s.spec, trial, want), patched)[0]

    def fused_agrees(self, trial: Trial, want: Mapping[str, Ball], got: Mapping[str, Array | None]) -> bool:
        """Whether PyTorch's fused kernel says what `compute` does wherever only the formula says nan."""
        outputs = self.outputs(trial, fused=True)
        if outputs is None or len(outputs) < len(self.returns):
            return False
        patched: dict[str, Array | None] = {}
        for name, other in zip(self.returns, outputs, strict=False):
            v, value = want[name].value, got[name]
            if value is None or other is None or value.shape != v.shape or other.shape != v.shape:
                return False
            patched[name] = np.where(np.isnan(value) & ~np.isnan(v), other, value).astype(value.dtype)
        return not _disagreement(_loosened(self.s.spec, trial, want), patched)[0]

    @staticmethod
    def only_indices(want: Mapping[str, Ball], got: Mapping[str, Array | None]) -> bool:
        """Whether every float agrees, so that only positions differ."""
        floats = {n: a for n, a in got.items() if want[n].dtype.is_inexact}
        return len(floats) < len(got) and not _disagreement(want, floats)[0]


def _against_aten(s: Session, entry: AtenEntry, trials: Sequence[Trial], tally: Tally) -> None:
    asked = _Aten(s, entry, tally)
    # An overload that says few of the calls is asked about more of them.
    more = (
        [t for t in _lifted(s, 4096) if all(t.name != k.name for k in trials)] if len(s.spec.aten) > 1 else []
    )
    for k, trial in enumerate([*trials, *more]):
        if k >= len(trials) and asked.compared >= 2:
            break
        if s.progress is not None:
            s.progress("meaning", k, len(trials))
        asked.ask(trial)
    for trial in sorted(trials, key=size_of)[-3:] if entry.map else ():
        asked.ignoring(trial)
    pointing = [t for t in trials if t.arrays and any(a.dtype.kind in "iu" for a in t.arrays.values())]
    for trial in sorted((t for t in pointing if 0 < size_of(t) <= 256), key=size_of)[-2 if s.full else -1 :]:
        asked.refusing(trial)
    result_types(s, asked)
    for trial, wrong in mixed_types(s.spec, s.seed, asked):
        if wrong:
            tally.fail(_failure(s, trial, wrong))
        else:
            tally.passed()
    if asked.refused:
        tally.note(
            f"{entry.overload} refuses {len(asked.refused)} call(s) that the spec takes: {asked.refused[0]}"
        )
    if not asked.compared:
        tally.fail(Failure(f"{entry.overload} was compared on no case: its map expresses none of them"))


#: Types of small calls that show what the results' are: f64 and i64, in which meaning is judged, promote to themselves.
_NARROW = (DType.F32, DType.F64, DType.I64, DType.I32, DType.BOOL)


def result_types(s: Session, asked: _Aten) -> None:
    """The types of the results, for each combination of types that the operator takes: a sum of bools is i64."""
    builder = Builder(s.spec, s.seed)
    plan = Plan(builder, "quick", _NARROW)
    for types in plan.combinations():
        name = f"{plan.roomy()}/{types}/{plan.finite()}/contiguous/{plan.index}/all"
        try:
            trial = Trial.of_case(builder.build(name))
            op, outputs = bind(s.spec, trial.key), asked.outputs(trial)
        except (CaseRefused, TorchError, TorchCrashed):
            continue  # nothing to compare with
        if outputs is None or any(t.dtype in (DType.BF16, DType.F16) for t in (*op.inputs, *op.outputs)):
            continue  # what crosses from torch as bf16 is f32
        got = dict(zip(asked.returns, outputs, strict=False))
        wrong = [
            f"`{t.name}` is {t.dtype}, {asked.entry.overload} says {dtype_of(have)}"
            for t in op.outputs
            if (have := got.get(t.name)) is not None and dtype_of(have) is not t.dtype
        ]
        if wrong:
            asked.tally.fail(_failure(s, trial, f"{wrong[0]} ({types})"))
        else:
            asked.tally.passed()


def _failure(s: Session, trial: Trial, message: str) -> Failure:
    return Failure(message, trial.name, describe(trial), s.repeat(trial))


def _against_reference(s: Session, path: str, trials: Sequence[Trial], tally: Tally) -> None:
    """A function of NumPy or SciPy, or a composition, on the inputs in order, attributes by name."""
    module, _, name = path.rpartition(".")
    if module == "compositions":
        _against_composition(s, name, trials, tally)
        return
    if module.split(".")[0] not in ("numpy", "scipy"):
        tally.fail(Failure(f"`reference: {path}` is neither NumPy nor SciPy, nor a composition"))
        return
    try:
        function = getattr(importlib.import_module(module), name)
    except ImportError as error:
        tally.note(f"not proven here: {error}")
        return
    except AttributeError:
        tally.fail(Failure(f"there is no `{path}`"))
        return
    output = next(iter(s.spec.outputs))
    for trial in trials:
        want = _oracle(s.spec, trial)
        if want is None:
            continue
        keywords = {n: v for n in s.spec.attrs if (v := attribute_value(s.spec, trial, n)) is not None}
        with np.errstate(all="ignore"):
            got = np.asarray(function(*(_input(s.spec, trial, n) for n in s.spec.inputs), **keywords))
        wrong, ratio = _disagreement(_loosened(s.spec, trial, want), {output: got})
        wrong = wrong or _overflows(s.spec, trial, want, {output: got})
        if wrong:
            tally.fail(_failure(s, trial, f"{path} {wrong}"), ratio)
        else:
            tally.passed(ratio)


def _against_composition(s: Session, name: str, trials: Sequence[Trial], tally: Tally) -> None:
    """What PyTorch's operators say, put together in another way than `compute`.  Its errors are failures."""
    compared = 0
    for trial in trials:
        want = _oracle(s.spec, trial)
        if want is None:
            continue
        inputs = [_input(s.spec, trial, n) for n in s.spec.inputs]
        attrs = {n: _plain_value(attribute_value(s.spec, trial, n)) for n in s.spec.attrs}
        known = {n: v for n, v in attrs.items() if v is not None or s.spec.attrs[n].default_expr is None}
        for n in (n for n, a in s.spec.attrs.items() if a.kind == "dtype"):
            known[n] = dict(trial.key.types).get(next(iter(s.spec.outputs.values())).dtype, known[n])
        try:
            outputs = torch_server().compose(name, inputs, known)
        except (TorchError, TorchCrashed) as error:
            if trial.case.startswith("edge."):  # a number that nobody asked whether the operator takes it
                tally.note(f"compositions.{name} refuses a number that the spec takes: {error}")
                continue
            tally.fail(_failure(s, trial, f"compositions.{name}: {error}"))
            return
        compared += 1
        got = dict(zip(s.spec.outputs, outputs, strict=False))
        wrong, ratio = _disagreement(want, got)
        if wrong:
            wrong, ratio = _disagreement(_loosened(s.spec, trial, want), got)
        if wrong:
            tally.fail(_failure(s, trial, f"compositions.{name} {wrong}"), ratio)
        else:
            tally.passed(ratio)
    if compared:
        s.place["torch"] = torch_server().version


def _plain_value(value: Any) -> Any:
    return value.value if isinstance(value, DType) else value


def _against_also(s: Session, trials: Sequence[Trial], tally: Tally) -> None:
    """The second formulation, ball against ball."""
    assert s.spec.also is not None
    if _in_order(s.spec, s.spec.also) == _in_order(s.spec, s.spec.compute or ()):
        tally.fail(Failure("`also` says what `compute` says, word for word: it vouches for nothing"))
        return
    other = replace(s.spec, compute=s.spec.also)
    for trial in trials:
        want = _oracle(s.spec, trial)
        if want is None:
            continue
        try:
            second = _oracle(other, trial)
        except OpwrightError as error:
            tally.fail(Failure(f"`also`: {error}"))
            return
        said = "refuses what `compute` takes" if second is None else apart(want, second)
        if said:
            tally.fail(_failure(s, trial, f"`also` {said}"))
        else:
            tally.passed()


def _in_order(spec: OpSpec, block: Block) -> str:
    """The text of statements, the names that they give themselves counted in the order in which they come."""
    text = show_block(block)
    known = {*spec.inputs, *spec.outputs, *spec.attrs}
    # A target's name and indices, and those that a reduction binds, are all that a block names by itself.
    bound = re.findall(r"^\s*(\w+)\[(.*?)\](?:: \w+)? \W?=|\[([^\[\]]*)\]\(", text, re.MULTILINE)
    own = {n for group in bound for part in group for n in re.findall(r"[A-Za-z_]\w*", part)} - known
    own -= {*spec.types, *spec.dims, *spec.let, "in"}
    given: dict[str, str] = {}
    return re.sub(
        r"[A-Za-z_]\w*", lambda m: given.setdefault(m[0], f"_{len(given)}") if m[0] in own else m[0], text
    )


def apart(a: Mapping[str, Ball], b: Mapping[str, Ball], *, strict: bool = False) -> str:
    """Where two balls do not meet, or an empty text.  strict: where `b` is free and `a` is not counts, too."""
    for name, x in a.items():
        y = b[name]
        if x.shape != y.shape or x.dtype is not y.dtype:
            return f"gives `{name}` {y.dtype}{list(y.shape)}, not {x.dtype}{list(x.shape)}"
        if strict and (y.free & ~x.free).any():
            return f"`{name}` may overflow"
        with np.errstate(all="ignore"):
            near = (x.value == y.value) | x.free | y.free
            if x.dtype.is_inexact:
                near |= np.abs(x.value - y.value) <= x.radius + y.radius
                near |= np.isnan(x.value) & np.isnan(y.value)
            else:
                off = np.abs(x.value.astype(np.float64) - y.value.astype(np.float64))
                near |= off <= x.radius + y.radius
            if x.choices is not None and y.choices is not None:
                near |= (x.choices & y.choices).any(axis=-1)
        if not near.all():
            at = tuple(int(i) for i in np.argwhere(~near)[0])
            return f"`{name}` {list(at)} is {y.value[at]}, `compute` says {x.value[at]}"
    return ""


def _against_laws(s: Session, trials: Sequence[Trial], tally: Tally) -> None:
    """`test.checks` on the oracle's own answers."""
    for law in s.spec.test.checks:
        for trial in trials:
            want = _oracle(s.spec, trial)
            if want is None or not all(b.value.size for b in want.values()):
                continue
            try:
                good = holds(law_op(s.spec, trial.key, law), trial.arrays, want, trial.attrs)
            except OpwrightError as error:
                tally.fail(Failure(f"the law `{law.text}`: {error}"))
                break
            if good:
                tally.passed()
            else:
                tally.fail(_failure(s, trial, f"the law `{law.text}` does not hold"))


# ---- how strong the cases are ------------------------------------------------------------------------------------


def measure_strength(spec: OpSpec, trials: Sequence[Trial], *, limit: int = 40, cases: int = 48) -> KillRate:
    """Which mutants of `compute` the trials tell from it: at most `limit` mutants; what survives has seen `cases`."""
    known: list[tuple[Trial, dict[str, Ball]]] = []
    for trial in trials:
        want = _oracle(spec, trial)
        if want is not None and any(b.value.size for b in want.values()):
            known.append((trial, want))
        if len(known) >= cases:
            break

    def distinguishes(mutant: OpSpec) -> bool | None:
        ran = False
        for trial, want in known:
            try:
                got = evaluate(bind(mutant, trial.key), trial.arrays, trial.attrs)
            except (OracleRefusal, OracleError):
                return True  # it refuses, or leaves unwritten, what the original computes
            except OracleTooLarge:
                continue
            except OpwrightError:
                return None  # it does not bind: no such operator could be written
            ran = True
            if apart(want, got, strict=True):
                return True
        return False if ran else None

    return kill_rate(spec, distinguishes, limit=limit)


# ---- the gate ----------------------------------------------------------------------------------------------------


def gate_meaning(s: Session) -> GateResult:
    """All sources that the spec names; `s.meaning_source` says which one vouches."""
    tally = s.tally("meaning")
    trials = _lifted(s, 48 if s.full else 10)
    trials += (
        [_lift(s.spec, t) for t in _edges(s)] if s.minimums["meaning"] > 1 else []
    )  # one case has been asked for
    sources: list[str] = []
    missing = ""
    for mistake in mistakes(s.spec):
        tally.fail(Failure(mistake.message))
    try:
        for entry in s.spec.aten:
            _against_aten(s, entry, trials, tally)
            sources.append(entry.overload)
        if s.spec.aten:
            s.place["torch"] = torch_server().version
    except TorchMissing as error:
        missing = str(error)
    except (OracleError, OpwrightError) as error:
        tally.fail(Failure(f"the oracle: {error}"))
    if s.spec.reference is not None:
        try:
            _against_reference(s, s.spec.reference, trials, tally)
        except TorchMissing as error:
            missing = str(error)
        sources.append(s.spec.reference)
    if s.spec.also is not None:
        _against_also(s, trials, tally)
        sources.append("also")
    if s.spec.test.checks:
        _against_laws(s, trials, tally)
    strength = measure_strength(s.spec, trials) if s.full and not tally.failed else None
    result = tally.result()
    if strength is not None:
        result = replace(result, strength=strength.to_json())
    if missing and not tally.failed:
        s.meaning_source = "not proven here"
        return replace(result, state=NOT_HERE, note=f"not proven here: {missing}")
    if not sources and not tally.failed:
        s.meaning_source = AUTHOR_ONLY
        return replace(result, state=NOT_APPLICABLE, minimum=0, note=f"meaning: {AUTHOR_ONLY}")
    s.meaning_source = ", ".join(sources) or AUTHOR_ONLY
    return result
