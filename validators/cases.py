"""Cases: the calls that an operator is judged on, each reproducible from (spec, case name, seed).

A name says how a case is made: `source/types/values/layout/index/given`, for example
`case0/f32/normal/transposed/uniform/all`.
  source   `case3` the spec's own case; `draw5` a held-out shape drawn by the seed; `size2.1` one on rung 2 of the
           ladder of sizes; `attr.mode.1` the second value of an attribute; `zero.beta` an attribute that is 0;
           `edge.size.3` the fourth of its numbers beyond those drawn; `default.mode` without it;
           `rule2`, `axis.dim`, `shape` calls that must be refused
  types    dtype of each free type variable, in order, joined by `+` (`-`: none)
  values   a value class, layout a layout, index an index class (`-`: no integer input points anywhere)
  given    `all` inputs present, or `no:w+b`

`make_cases` never drops one: what cannot be built is in `refused` with the reason, what does not apply to the operator
(a class of values that no dtype of it has, negative positions that its rules forbid) in `skipped`.

What a case is lies in case_model.py, the calls without data in case_calls.py, the names of a tier in case_plan.py.

May import: numpy, oracle, the `case_*` modules, layouts, draws, values, generator.{spec, bound, expr, types, errors}.
To add a source: a branch in `Builder.build` or (a call that must be taken) in `case_calls.Calls.make_call`, and its
names in `case_plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..generator.bind_key import Resolved
from ..generator.bound import BoundOp
from ..generator.errors import OpwrightError
from ..generator.expr import Expr, Load, Name, walk
from ..generator.spec import OpSpec
from ..generator.types import DType
from .case_calls import ATTEMPTS, BareCall, Calls, Rng, rng_of
from .case_model import Case, CaseRefused, CaseReport, CaseTensor, Expected
from .case_plan import Plan
from .draws import INDEX_CLASSES, VALUE_CLASSES, applicable, draw, draw_index
from .extents import OracleRefusal, Shape
from .layouts import LAYOUTS, applies, lay_out
from .oracle import Survey, output_shapes, survey
from .values import ARRAY, Array, from_array, to_array

__all__ = ["build_case", "impossible", "make_cases"]
#: Sources that give an attribute a number without asking whether the operator takes it.
_TRIED = ("zero.", "edge.")
DEFAULT_DTYPES = (DType.F32, DType.F64, DType.BF16, DType.F16, DType.I64, DType.I32, DType.BOOL, DType.U8)


def make_cases(
    spec: OpSpec,
    tier: str = "quick",
    seed: int = 0,
    dtypes: Sequence[DType] | None = None,
    *,
    all_types: bool = False,
) -> CaseReport:
    """The cases of a tier (`quick` | `full`).  dtypes: the kernels that there are (None: those of the language).

    all_types: some of every other type, too.
    """
    builder = Builder(spec, seed)
    cases: list[Case] = []
    refused: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    for name in Plan(builder, tier, tuple(dtypes or DEFAULT_DTYPES), all_types=all_types).names():
        try:
            cases.append(builder.build(name))
        except CaseRefused as e:
            (skipped if e.inapplicable else refused).append((name, e.message))
    return CaseReport(tuple(cases), tuple(refused), tuple(skipped))


def impossible(spec: OpSpec) -> list[tuple[int, str]]:
    """Declared cases that are no call of the operator with any types, whatever data they get: which, and why."""
    builder = Builder(spec, 0)
    types = Plan(builder, "quick", DEFAULT_DTYPES).combinations()
    out: list[tuple[int, str]] = []
    for k in range(len(spec.test.cases)):
        why = ""
        for chosen in types:
            try:
                op, run_attrs, shapes, _ = builder.resolve(
                    builder.call(f"case{k}", chosen), builder.types(chosen)
                )
                survey(op, shapes, run_attrs)
                break
            except OpwrightError as e:
                why = why or e.message
        else:
            out.append((k, why))
    return out


def build_case(spec: OpSpec, name: str, seed: int) -> Case:
    """The case of this name.  Raises CaseRefused."""
    return Builder(spec, seed).build(name)


class Builder(Calls):
    """Builds cases of one spec."""

    # ------------------------------------------------------------------------------------------ the parts of a name
    def build(self, name: str) -> Case:
        """The case of a name; raises CaseRefused with the reason."""
        parts = name.split("/")
        if len(parts) != 6:
            raise CaseRefused(f"`{name}` is no case: source/types/values/layout/index/given")
        source, types, values, layout, index, given = parts
        if values not in VALUE_CLASSES or layout not in LAYOUTS or index not in (*INDEX_CLASSES, "-"):
            raise CaseRefused(f"`{name}`: unknown value class, layout or index class")
        chosen = self.types(types)
        call = self.call(source, types)
        if given != "all":
            call = replace(call.copy(), absent=call.absent | frozenset(given.removeprefix("no:").split("+")))
        try:
            if source.startswith("rule"):
                return self.refusal(name, chosen, int(source[4:]))
            if source.startswith("axis."):
                return self.axis_error(name, call, chosen, source[5:])
            if source == "shape":
                return self.shape_error(name, call, chosen)
            return self.fill(name, call, chosen, values, layout, index)
        except OracleRefusal as e:
            raise CaseRefused(e.message, inapplicable=source.startswith(_TRIED)) from None
        except MemoryError as e:
            raise CaseRefused(f"its tensors take more memory than the judge may: {e}") from None
        except CaseRefused as e:
            raise CaseRefused(e.message, inapplicable=e.inapplicable or source.startswith("edge.")) from None
        except OpwrightError as e:
            raise CaseRefused(
                f"{type(e).__name__}: {e.message}", inapplicable=source.startswith("edge.")
            ) from None

    # ------------------------------------------------------------------------------------------ contents
    def fill(
        self, name: str, call: BareCall, chosen: dict[str, DType], values: str, layout: str, index: str
    ) -> Case:
        """Contents of the class, checked against the operator's rules."""
        op, run_attrs, shapes, resolved = self.resolve(call, chosen)
        found = survey(op, shapes, run_attrs)
        dtypes = {t.name: t.dtype for t in op.inputs}
        numbers = [d for n, d in dtypes.items() if n not in found.ranges]
        if not applicable(values, numbers) and numbers:
            raise CaseRefused(
                f"no input of {', '.join(sorted({d.value for d in numbers}))} holds `{values}`",
                inapplicable=True,
            )
        if index == "negative" and not found.ranges:
            raise CaseRefused("no input holds positions", inapplicable=True)
        if layout != "contiguous" and not any(applies(layout, s) for s in shapes.values()):
            raise CaseRefused(
                f"no input of shapes {[list(s) for s in shapes.values()]} can be {layout}", inapplicable=True
            )
        why = ""
        for attempt in range(5):
            rng = rng_of(self.seed, self.spec.op, name, attempt)
            arrays = self.contents(op, call, shapes, found, values, index, rng, attempt)
            arrays = {n: lay_out(a, layout, rng) for n, a in arrays.items()}
            try:
                output_shapes(op, arrays, run_attrs)
            except OracleRefusal as e:
                why = e.message
                if e.kind not in ("data", "index", "shape"):
                    raise
                continue
            return self.case(name, call, resolved, arrays, layout, values, index)
        raise CaseRefused(f"no contents satisfy the rules ({why})", inapplicable=index == "negative")

    def contents(
        self,
        op: BoundOp,
        call: BareCall,
        shapes: Mapping[str, Shape],
        found: Survey,
        values: str,
        index: str,
        rng: Rng,
        attempt: int,
    ) -> dict[str, Array]:
        out: dict[str, Array] = {}
        ruled = {n.tensor for r in op.rules if r.data for n in walk(r.expr) if isinstance(n, Load)}
        place = 0
        for t in op.inputs:
            shape = shapes[t.name]
            if t.name in call.data and np.shape(call.data[t.name]) == shape:
                out[t.name] = to_array(from_array(np.asarray(call.data[t.name]), t.dtype), t.dtype)
            elif t.name in found.ranges:
                kind = "uniform" if index == "-" else index
                out[t.name] = draw_index(kind, shape, t.dtype, found.ranges[t.name], rng)
            else:
                a = draw(values, shape, t.dtype, rng, depth=found.depth, place=place)
                place += t.dtype.is_inexact
                limits = self.numbers(call)
                if values == "zeros" and limits and t.dtype.is_float:
                    # where it is as large as an attribute, an operator may change its mind, as it may at zero
                    at = rng.random(shape) < 0.2
                    a = np.where(at, rng.choice(limits, shape), a.astype(np.float64))
                    a = to_array(a, t.dtype)
                out[t.name] = _tamer(a, t.dtype, attempt) if t.name in ruled else a
        return out

    def numbers(self, call: BareCall) -> list[float]:
        """The finite numbers that the call's attributes are."""
        given = [
            call.attrs.get(a.name, a.default if a.has_default else None)
            for a in self.spec.attrs.values()
            if a.kind in ("scalar", "float")
        ]
        return [float(v) for v in given if isinstance(v, int | float) and np.isfinite(v)]

    def case(
        self,
        name: str,
        call: BareCall,
        resolved: Resolved,
        arrays: Mapping[str, Array],
        layout: str,
        values: str,
        index: str,
        expect: Expected | None = None,
    ) -> Case:
        operands: dict[str, CaseTensor | tuple[CaseTensor, ...] | None] = {}
        for inp, t in self.spec.inputs.items():
            if t.is_list:
                flats = [arrays[f"{inp}.{k}"] for k in range(call.lengths[inp])]
                operands[inp] = tuple(CaseTensor(a, _dtype_of(a), layout) for a in flats)
            elif inp in arrays:
                operands[inp] = CaseTensor(arrays[inp], _dtype_of(arrays[inp]), layout)
            else:
                operands[inp] = None
        declared = not self.spec.test.values or values in self.spec.test.values
        return Case(
            self.spec.op,
            name,
            self.seed,
            resolved.key,
            operands,
            dict(call.attrs),
            dict(resolved.attrs),
            values,
            index,
            layout,
            declared,
            expect,
        )

    # ------------------------------------------------------------------------------------------ refusals
    def refusal(self, name: str, chosen: dict[str, DType], which: int) -> Case:
        """A call that breaks rule `which` of the spec, and none that is asked before it."""
        if which >= len(self.spec.require):
            raise CaseRefused(f"the spec has {len(self.spec.require)} rules")
        text = self.spec.require[which].text
        bases = [self.declared(k) for k in range(len(self.spec.test.cases))] or [self.made_up()]
        met = False
        for attempt in range(3 * ATTEMPTS):
            rng = rng_of(self.seed, self.spec.op, name, attempt)
            try:
                call = self.admitted(self.complete(bases[attempt % len(bases)]), chosen)
                op, run_attrs, shapes, resolved = self.resolve(call, chosen)
                rule = next((r for r in op.rules if r.text == text), None)
                if rule is None:
                    continue  # decided before the call, for this one
                met = True
                if rule.data:
                    arrays = self.spoiled(op, call, shapes, run_attrs, rng)
                    output_shapes(op, arrays, run_attrs)
                    continue
                call = self.twisted(call, rng, self.spec.require[which].expr)
                op, run_attrs, shapes, resolved = self.resolve(call, chosen)
                arrays = {t.name: draw("normal", shapes[t.name], t.dtype, rng) for t in op.inputs}
                survey(op, shapes, run_attrs)
            except OracleRefusal as e:
                if e.which >= 0 and op.rules[e.which].text == text:
                    return self.case(
                        name,
                        call,
                        resolved,
                        arrays,
                        "contiguous",
                        "normal",
                        "-",
                        Expected(e.kind, e.which, text),
                    )
            except OpwrightError:
                continue  # twisted too far: the call has no kernel, or no shape
        if not met:
            raise CaseRefused(f"`{text}` is decided before the call", inapplicable=True)
        raise CaseRefused(f"found no call that breaks `{text}`")

    def spoiled(
        self, op: BoundOp, call: BareCall, shapes: Mapping[str, Shape], run_attrs: Mapping[str, Any], rng: Rng
    ) -> dict[str, Array]:
        """Valid contents with one number out of its range."""
        found = survey(op, shapes, run_attrs)
        arrays = self.contents(op, call, shapes, found, "normal", "uniform", rng, 1)
        loaded = {n.tensor for r in op.rules if r.data for n in walk(r.expr) if isinstance(n, Load)}
        names = [t.name for t in op.inputs if t.name in loaded and arrays[t.name].size]
        if not names:
            raise CaseRefused("no element to spoil")
        victim = names[int(rng.integers(len(names)))]
        a = np.array(arrays[victim])
        extent = found.ranges.get(victim, 1)
        bad = [-1, extent, -extent - 1, extent + 7, -1000, 1000]
        value = bad[int(rng.integers(len(bad)))]
        if a.dtype.kind != "u" or value >= 0:
            a.reshape(-1)[int(rng.integers(a.size))] = value
        arrays[victim] = a
        return arrays

    def twisted(self, call: BareCall, rng: Rng, rule: Expr) -> BareCall:
        """One extent or attribute changed, more often than not one that the rule names."""
        out = call.copy()
        dims = [n for n, v in call.dims.items() if v not in ((),)]
        attrs = [a for a in self.spec.attrs.values() if a.kind in ("int", "ints", "scalar", "float")]
        named = {n.id for n in walk(rule) if isinstance(n, Name)}
        if rng.random() < 0.7 and named & {*dims, *(a.name for a in attrs)}:
            dims = [n for n in dims if n in named]
            attrs = [a for a in attrs if a.name in named]
        pick = int(rng.integers(len(dims) + 2 * len(attrs))) if dims or attrs else 0
        zero = int(rng.random() < 0.7)
        if pick < len(dims):
            n = dims[pick]
            v = out.dims[n]
            if isinstance(v, tuple) and v and all(isinstance(e, int) for e in v):
                k = int(rng.integers(len(v)))
                out.dims[n] = v[:k] + (max(0, v[k] + int(rng.integers(-3, 8))) * zero,) + v[k + 1 :]
            elif isinstance(v, int):
                out.dims[n] = max(0, v + int(rng.integers(-3, 8))) * zero
        elif attrs:
            a = attrs[(pick - len(dims)) // 2]
            have = out.attrs.get(a.name, a.default)
            step = int(rng.choice([-100, -5, -3, -2, -1, 1, 2, 3, 5, 100]))
            if isinstance(have, tuple) and have:
                k = int(rng.integers(len(have)))
                out.attrs[a.name] = have[:k] + (have[k] + step,) + have[k + 1 :]
            else:
                out.attrs[a.name] = ((have if isinstance(have, (int, float)) else 0) + step) * zero
        return out

    def axis_error(self, name: str, call: BareCall, chosen: dict[str, DType], attr: str) -> Case:
        """An axis that the tensor does not have."""
        a = self.spec.attrs[attr]
        rank = max(
            (self.rank_of(t, call) for t in self.spec.inputs.values() if any(d.at == attr for d in t.dims)),
            default=None,
        )
        if rank is None:
            raise CaseRefused(f"no input's axes are named by `{attr}`", inapplicable=True)
        good_shapes = self.shapes(call)
        op, run_attrs, shapes, resolved = self.resolve(call, chosen, good_shapes)
        rng = rng_of(self.seed, self.spec.op, name)
        bad: Any = rank if rng.random() < 0.5 else -rank - 1
        if a.kind == "axes":
            have = call.attrs.get(attr, a.default) or ()
            bad = (bad, *tuple(have)[1:])
        twisted = call.copy()
        twisted.attrs[attr] = bad
        op, run_attrs, shapes, resolved = self.resolve(twisted, chosen, good_shapes)
        arrays = self.contents(op, call, shapes, Survey(1, 1, {}), "normal", "-", rng, 0)
        try:
            survey(op, shapes, run_attrs)
        except OracleRefusal as e:
            if e.kind == "axis":
                return self.case(
                    name,
                    twisted,
                    resolved,
                    arrays,
                    "contiguous",
                    "normal",
                    "-",
                    Expected("axis", -1, e.message),
                )
        raise CaseRefused(f"`{attr}` = {bad} is not refused")

    def shape_error(self, name: str, call: BareCall, chosen: dict[str, DType]) -> Case:
        """One axis of one input longer than the others allow."""
        rng = rng_of(self.seed, self.spec.op, name)
        op, run_attrs, shapes, resolved = self.resolve(call, chosen)
        spots = [(n, k) for n, s in shapes.items() for k in range(len(s))]
        for at in rng.permutation(len(spots)):
            victim, axis = spots[int(at)]
            s = list(shapes[victim])
            s[axis] += 1
            wrong = dict(shapes) | {victim: tuple(s)}
            try:
                survey(op, wrong, run_attrs)
            except OracleRefusal as e:
                if e.kind == "shape":
                    arrays = self.contents(
                        op, replace(call, data={}), wrong, Survey(1, 1, {}), "normal", "-", rng, 1
                    )
                    return self.case(
                        name,
                        call,
                        resolved,
                        arrays,
                        "contiguous",
                        "normal",
                        "-",
                        Expected("shape", -1, e.message),
                    )
        raise CaseRefused("no two inputs share an extent", inapplicable=True)


def _dtype_of(a: Array) -> DType:
    return next(d for d, array in ARRAY.items() if array == a.dtype)


def _tamer(a: Array, dtype: DType, attempt: int) -> Array:
    """Contents that a rule over data is likelier to take: counts (1), nothing negative (2), sorted (3), both (4)."""
    if dtype.is_complex:
        return a
    if attempt in (1, 2, 4) and dtype.is_integer:
        a = (np.abs(a.astype(np.int64)) % 4).astype(a.dtype)
    if attempt in (2, 4) and dtype.is_float:
        a = np.abs(a)
    if attempt >= 3:
        a = np.sort(a.reshape(-1)).reshape(a.shape)
    return a
