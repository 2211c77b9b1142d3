"""The oracle: what an operator's program means on given inputs, with the bound that every correct kernel stays within.

It reads Bound programs (Normal ones, and gradients, are Bound programs too), and shares no code with what makes
kernels.  Dense NumPy evaluation, statement by statement; fast paths for contractions and scans, each tested against the
slow way.

May import: numpy, ball*, evaluator, extents, values, generator.{bound, expr, types}.
To add a mode of update: a case in `ball_reduce.Accumulator`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..generator.bound import BoundOp, Rule, Statement, Tensor
from ..generator.expr import (
    And,
    Bin,
    Decl,
    Expr,
    Load,
    Name,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    children,
    rounds_to_integer,
    show,
    walk,
)
from ..generator.types import DType
from .ball import Ball, cast, exact, select
from .ball_reduce import Accumulator, identity
from .evaluator import CHUNK, Active, Evaluator, Slot, Space, Stored, TooDense, scan_form
from .extents import OracleError, OracleRefusal, OracleTooLarge, Shape
from .values import STORAGE, Array

__all__ = [
    "MAX_POINTS",
    "OracleError",
    "OracleRefusal",
    "OracleTooLarge",
    "Survey",
    "evaluate",
    "output_shapes",
    "survey",
]

#: Points that one statement may visit one by one.
MAX_POINTS = 50_000_000
#: What one node of one step of a recurrence costs beyond its points, in points: steps come one after the other, each
#: through NumPy's calls.  It limits how long drawn recurrences are (no judgement takes minutes), never what is right.
STEP_POINTS = 8
#: Multiplications that the fast path of contractions may do.
MAX_PRODUCTS = 200_000_000_000


def evaluate(
    op: BoundOp,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    temps: bool = False,
    fast: bool = True,
    max_points: int = MAX_POINTS,
    out_shapes: Mapping[str, Shape] | None = None,
) -> dict[str, Ball]:
    """The outputs of `op` (and with `temps` its temporaries, in logical order) as balls in physical order.

    inputs      flat name -> array in physical order (a list input may also be given as a list under its own name); an
                array of another dtype is rounded to the input's once; a `Ball` is taken as it is
    attrs       run-time attributes; missing ones take their defaults
    fast        False: without the fast paths (contractions, scans)
    out_shapes  physical shape of outputs that the inputs do not tell (adjoints of inputs that broadcast)

    Raises OracleRefusal (the operator refuses the call: rule, shape, rank, axis, index), OracleTooLarge, OracleError.
    """
    run = _Run(op, inputs, attrs or {}, fast, max_points)
    run.bind(out_shapes or {})
    run.execute()
    out = {t.name: run.output(t) for t in op.outputs}
    if temps:
        out |= {t.name: run.machine.tensors[t.name].ball for t in op.temps if t.name in run.machine.tensors}
    return out


def output_shapes(
    op: BoundOp,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    out_shapes: Mapping[str, Shape] | None = None,
) -> dict[str, Shape]:
    """Physical shapes of the outputs; refuses as `evaluate` does.  Contents matter to `sizes` and rules over data."""
    run = _Run(op, inputs, attrs or {}, True, MAX_POINTS)
    run.bind(out_shapes or {})
    return {t.name: run.machine.extents.output_shape(t.name) for t in op.outputs}


@dataclass(frozen=True)
class Survey:
    """What shapes alone tell of a call.

    points  visits of the largest statement (of a recurrence no less than its steps cost)
    depth   terms of its longest reduction
    ranges  integer input -> extent of the shortest axis that its values point into
    """

    points: int
    depth: int
    ranges: dict[str, int]


def survey(op: BoundOp, shapes: Mapping[str, Shape], attrs: Mapping[str, Any] | None = None) -> Survey:
    """Check a call by its shapes and attributes; raises OracleRefusal where rules, shapes, ranks or axes refuse it."""
    run = _Run(op, {}, attrs or {}, True, MAX_POINTS)
    m = run.machine
    m.extents.solve_shapes(shapes, run.check_rule)
    for t in (*op.outputs, *op.temps):
        # shapes that depend on data stay unknown
        with contextlib.suppress(KeyError):
            m.extents.shapes.setdefault(t.name, m.extents.logical_shape(t.dims))
    points = depth = 1
    ranges: dict[str, int] = {}
    integers = {t.name for t in op.inputs if t.dtype.is_integer}
    for s in op.body:
        m.reduced = dict(s.reduced)
        whole = [e for e in (s.assign.value, s.assign.guard) if e is not None]
        with contextlib.suppress(KeyError):
            free = math.prod(math.prod(run.axis_shape(a.extent, a.pack)) for a in s.axes)
            inner = [
                (n, math.prod(math.prod(run.reduce_shape(d, n)) for d in n.indices))
                for e in whole
                for n in walk(e)
                if isinstance(n, Reduce)
            ]
            points = max(points, free * max((2 if scan_form(n) else k for n, k in inner), default=1))
            if s.recur is not None:
                nodes = sum(1 for e in whole for _ in walk(e))
                steps = run.axis_shape(s.axis(s.recur).extent, False)[0]
                points = max(points, steps * nodes * STEP_POINTS)
            depth = max(depth, *(k for _, k in inner), 1)
        with contextlib.suppress(KeyError):
            _check_walks(m, s, {a.name: run.axis_shape(a.extent, a.pack) for a in s.axes})
        places = [
            (n.tensor, n.index)
            for e in (*whole, *s.assign.target.index)
            for n in walk(e)
            if isinstance(n, Load)
        ]
        for tensor, index in (*places, (s.target, s.assign.target.index)):
            if tensor not in m.extents.shapes:
                continue
            for e, first, _, _ in m.entries(tensor, index):
                for n in walk(e):
                    if isinstance(n, Load) and n.tensor in integers:
                        extent = m.extents.shapes[tensor][first]
                        ranges[n.tensor] = min(ranges.get(n.tensor, extent), extent)
    return Survey(points, depth, ranges)


def _unguarded(x: Expr) -> Iterator[Load]:
    """Loads that happen whatever the tests of the expression say."""
    match x:
        case Select(test=t):
            yield from _unguarded(t)
        case And(xs=xs) | Or(xs=xs):
            yield from _unguarded(xs[0])
        case _:
            if isinstance(x, Load):
                yield x
            for c in children(x):
                yield from _unguarded(c)


def _check_walks(m: Evaluator, s: Statement, axes: Mapping[str, Shape]) -> None:
    """An index that walks a stated extent stays within every tensor that it walks; raises OracleRefusal."""
    if any(0 in shape for shape in axes.values()):
        return  # nothing is walked
    places = [(s.target, s.assign.target.index)] if s.assign.guard is None else []
    if s.assign.guard is None:
        places += [(n.tensor, n.index) for n in _unguarded(s.assign.value)]
    for tensor, index in places:
        if tensor not in m.extents.shapes:
            continue
        shape = m.extents.shapes[tensor]
        for e, first, count, spread in m.entries(tensor, index):
            name = (
                e.x.id
                if isinstance(e, Star) and isinstance(e.x, Name)
                else e.id
                if isinstance(e, Name)
                else ""
            )
            if name not in axes:
                continue
            walk_, have = axes[name], shape[first : first + count]
            if len(walk_) < count or (len(walk_) > count and not spread):
                raise OracleRefusal(
                    "index", f"{m.op.name}: `{name}` has {len(walk_)} axes, `{tensor}` {count}"
                )
            for w, h in zip(walk_[len(walk_) - count :], have, strict=True):
                if w > h and not (spread and h == 1):
                    raise OracleRefusal(
                        "index", f"{m.op.name}: `{name}` walks {list(walk_)}, `{tensor}` has {list(have)}"
                    )


@dataclass
class _Target:
    """A tensor while statements write it."""

    value: Array
    r: Array | None
    typed: Array | None
    written: Array | None  # None: every element
    signed: bool = True
    nonneg: bool = True
    choices: Array | None = None


@dataclass
class _Run:
    op: BoundOp
    inputs: Mapping[str, Any]
    given: Mapping[str, Any]
    fast: bool
    max_points: int
    machine: Evaluator = field(init=False)
    targets: dict[str, _Target] = field(default_factory=dict)
    sums: dict[str, Accumulator] = field(default_factory=dict)
    tracked: frozenset[int] = frozenset()
    terms: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        attrs = {
            a.name: self.given[a.name] if self.given.get(a.name) is not None else a.default
            for a in self.op.attrs
        }
        self.machine = Evaluator(self.op, attrs, fast=self.fast)
        self.tracked = _tracked(self.op)

    # ------------------------------------------------------------------------------------------ inputs and rules
    def array(self, t: Tensor) -> Any:
        if t.name in self.inputs:
            return self.inputs[t.name]
        if t.list_of is not None and t.list_of in self.inputs:
            return self.inputs[t.list_of][int(t.name.rsplit(".", 1)[1])]
        raise OracleError(f"{self.op.name}: input `{t.name}` is missing")

    def bind(self, out_shapes: Mapping[str, Shape]) -> None:
        """Solve the extents, check the rules, and put the inputs in logical order."""
        arrays: dict[str, Ball] = {}
        for t in self.op.inputs:
            raw = self.array(t)
            arrays[t.name] = raw if isinstance(raw, Ball) else exact(np.asarray(raw), t.dtype)
        physical = {name: b.shape for name, b in arrays.items()}
        extents = self.machine.extents
        extents.solve_shapes(physical, self.check_rule)
        for t in self.op.inputs:
            if t.expand:
                logical = arrays[t.name].map(partial(np.broadcast_to, shape=extents.shapes[t.name]))
            else:
                logical = arrays[t.name].map(extents.placed[t.name].logical)
            self.machine.tensors[t.name] = Stored(logical)
        for s in self.op.body:  # as a kernel's host code does, before it looks at data
            with contextlib.suppress(KeyError):
                _check_walks(self.machine, s, {a.name: self.axis_shape(a.extent, a.pack) for a in s.axes})
        extents.solve_data(physical, self.check_rule, out_shapes)

    def check_rule(self, position: int, rule: Rule) -> None:
        """Raise the refusal of a rule that does not hold."""
        axes = [(a.name, self.axis_shape(a.extent, a.pack)) for a in rule.axes]
        space = Space({}, ()).extended(axes)
        self.machine.whole = dict(axes)
        if not math.prod(space.sizes):
            return  # of no place nothing is required, even where a tensor that broadcasts has elements
        for piece in _pieces(space, CHUNK):
            b = self.machine.eval(rule.expr, piece, Active())
            holds = b.value if b.r is None else b.value | (b.r > 0)
            if not holds.all():
                raise OracleRefusal(
                    "data" if rule.data else "require",
                    f"{self.op.name}: requires {rule.text}",
                    which=position,
                )

    def axis_shape(self, extent: Expr, pack: bool) -> Shape:
        if pack:
            assert isinstance(extent, Name)
            return self.machine.extents.packs[extent.id]
        return (self.machine.extents.extent(extent),)

    # ------------------------------------------------------------------------------------------ statements
    def execute(self) -> None:
        last: dict[str, int] = {}
        for k, s in enumerate(self.op.body):
            last[s.target] = k
        k = 0
        while k < len(self.op.body):
            s = self.op.body[k]
            if s.recur is None:
                self.statement(k, s)
                k += 1
            else:
                n = k
                while n < len(self.op.body) and self.op.body[n].recur == s.recur:
                    n += 1
                self.recurrence(range(k, n), s.recur)
                k = n
            for name, at in last.items():
                if at < k and at >= 0:
                    self.finish(name)
                    last[name] = -1

    def recurrence(self, members: Sequence[int], axis: str) -> None:
        """Statements that read one another at neighbouring places of `axis`: in lockstep, one step at a time."""
        body = [self.op.body[k] for k in members]
        steps = {self.axis_shape(s.axis(axis).extent, False)[0] for s in body}
        if len(steps) != 1:
            raise OracleError(f"{self.op.name}: the recurrence over `{axis}` has steps {sorted(steps)}")
        for s in body:
            self.target(s.target, partial=True)
            self.publish(s.target)
        count = steps.pop()
        order = range(count - 1, -1, -1) if _descends(body, axis) else range(count)
        for t in order:
            for k, s in zip(members, body, strict=True):
                self.statement(k, s, fixed=(axis, t))
                made = self.targets[s.target].r
                if made is not None and self.machine.tensors[s.target].ball.r is None:
                    self.publish(s.target)  # its first radius: the next step starts from it

    def target(self, name: str, *, partial: bool) -> _Target:
        """The storage of a tensor, made on first use; `partial`: not every element will be written at once."""
        t = self.targets.get(name)
        if t is None:
            shape = self.machine.extents.shapes[name]
            dtype = self.op.tensor(name).dtype
            written = np.zeros(shape, np.bool_) if partial else None
            t = self.targets[name] = _Target(np.zeros(shape, STORAGE[dtype]), None, None, written)
        return t

    def publish(self, name: str) -> None:
        """Make what is written so far readable."""
        t = self.targets[name]
        written = None if t.written is None or t.written.all() else t.written
        ball = Ball(
            t.value,
            self.op.tensor(name).dtype,
            t.r if t.r is not None and t.r.any() else None,
            t.signed,
            t.nonneg,
            t.typed,
            t.choices,
        )
        self.machine.tensors[name] = Stored(ball, written)

    def finish(self, name: str) -> None:
        """After the last statement that writes `name`: round what was accumulated, and publish."""
        done = self.sums.pop(name, None)
        if done is not None:
            shape = self.machine.extents.shapes[name]
            self.machine.tensors[name] = Stored(done.result().map(lambda a: a.reshape(shape)))
            self.targets.pop(name, None)
        else:
            self.publish(name)

    def statement(self, k: int, s: Statement, fixed: tuple[str, int] | None = None) -> None:
        axes = [(a.name, self.axis_shape(a.extent, a.pack)) for a in s.axes]
        space = Space({}, ()).extended(axes)
        m = self.machine
        m.whole = dict(axes)
        m.reduced = dict(s.reduced)
        m.track = k in self.tracked
        if fixed is not None:
            space = _fixed(space, *fixed)
        inner = self.inner(k, s)
        points = math.prod(space.sizes)
        try:
            m.dense = False
            if points > self.max_points or points * inner > MAX_PRODUCTS:
                raise OracleTooLarge(_too_large(self.op, s, points * inner))
            for piece in _pieces(space, 4 * CHUNK if inner == 1 or not self.fast else max(CHUNK, points)):
                self.piece(s, piece, space)
        except TooDense:
            if points * inner > self.max_points:
                raise OracleTooLarge(_too_large(self.op, s, points * inner)) from None
            m.dense = True
            for piece in _pieces(space, max(1, CHUNK // max(inner, 1))):
                self.piece(s, piece, space)
            m.dense = False

    def inner(self, k: int, s: Statement) -> int:
        """Terms of the statement's longest reduction; asked once, for a recurrence comes by many times."""
        if k not in self.terms:
            self.terms[k] = max(
                (
                    math.prod(math.prod(self.reduce_shape(d, n)) for d in n.indices)
                    for n in walk(s.assign.value)
                    if isinstance(n, Reduce)
                ),
                default=1,
            )
        return self.terms[k]

    def reduce_shape(self, d: Decl, r: Reduce) -> Shape:
        return self.machine.axis_shape(d, r.body)

    def piece(self, s: Statement, piece: Space, space: Space) -> None:
        if not math.prod(piece.sizes):
            if s.assign.mode in ("=", "set"):
                self.target(s.target, partial=True)
            else:
                self.accumulator(s)
            return
        a = s.assign
        active = Active()
        guard: Ball | None = None
        if a.guard is not None:
            guard = self.machine.eval(a.guard, piece, active)
            active = active.narrowed(guard)
        value = self.machine.eval(a.value, piece, active)
        place = self.plain_target(s, piece)
        if a.mode in ("=", "set"):
            value = cast(value, self.op.tensor(s.target).dtype)
            if place is not None and guard is None:
                self.store(s, value, piece, place, whole=piece.sizes == space.sizes)
            else:
                self.scatter(s, value, guard, piece, active)
        else:
            self.accumulate(s, value, guard, piece, active)

    # ------------------------------------------------------------------------------------------ stores
    def plain_target(self, s: Statement, piece: Space) -> list[tuple[int, int]] | None:
        """(space axis, offset) for each axis of the target, when its indices are all the free axes, each once."""
        shape = self.machine.extents.shapes[s.target]
        out: list[tuple[int, int]] = []
        for e, first, count, _ in self.machine.entries(s.target, s.assign.target.index):
            slot = _variable(e, piece)
            if slot is None or len(slot.sizes) != count:
                return None
            for k in range(count):
                if slot.offsets[k] + slot.sizes[k] > shape[first + k]:
                    return None
                out.append((slot.start + k, slot.offsets[k]))
        axes = [p for p, _ in out]
        return out if sorted(axes) == list(range(piece.ndim)) else None

    def store(self, s: Statement, b: Ball, piece: Space, place: list[tuple[int, int]], whole: bool) -> None:
        shape = self.machine.extents.shapes[s.target]
        order = [p for p, _ in place]
        slices = tuple(slice(o, o + piece.sizes[p]) for p, o in place)
        complete = whole and all(piece.sizes[p] == n for (p, _), n in zip(place, shape, strict=True))
        t = self.target(s.target, partial=not complete)

        def arranged(x: Array, extra: int = 0) -> Array:
            full = np.broadcast_to(x, piece.sizes + x.shape[piece.ndim :])
            return np.transpose(full, [*order, *range(piece.ndim, piece.ndim + extra)])

        t.value[slices] = arranged(b.value)
        if b.r is not None or t.r is not None:
            if t.r is None:
                t.r = np.zeros(shape)
            t.r[slices] = 0.0 if b.r is None else arranged(b.r)
        if self.machine.track and b.dtype.is_float:
            typed = b.typed if b.typed is not None else b.value if b.r is None else None
            if typed is None:
                t.typed = None
            elif complete or t.typed is not None or t.written is None or not t.written.any():
                if t.typed is None:
                    t.typed = np.zeros(shape)
                t.typed[slices] = arranged(typed)
        if b.choices is not None or t.choices is not None:
            n = (b.choices if b.choices is not None else t.choices).shape[-1]  # type: ignore[union-attr]
            if t.choices is None:
                t.choices = t.value[..., None] == np.arange(n)
            one = b.value[..., None] == np.arange(n)
            t.choices[slices] = arranged(one if b.choices is None else b.choices, 1)
        t.signed, t.nonneg = t.signed and b.signed, t.nonneg and b.nonneg
        if t.written is not None:
            t.written[slices] = True

    def flat_index(
        self, s: Statement, piece: Space, guard: Ball | None, active: Active
    ) -> tuple[Array, Array | None, bool]:
        """Flat target positions of all points of a piece, which of them store (None: all), whether any is unsure."""
        shape = self.machine.extents.shapes[s.target]
        where = self.machine.positions(s.target, s.assign.target.index, piece, active)
        stores: Array | None = None
        if guard is not None:
            may = guard.value if guard.r is None else guard.value | (guard.r > 0)
            stores = np.broadcast_to(may, piece.sizes).reshape(-1)
        flat = np.zeros(piece.sizes, np.int64)
        unsure = False
        for p, extent in zip(where, shape, strict=True):
            outside = (p.value < 0) | (p.value >= extent)
            if outside.any():
                hit = np.broadcast_to(outside, piece.sizes).reshape(-1)
                hit = hit if stores is None else hit & stores
                if hit.any():
                    bad = np.broadcast_to(p.value, piece.sizes).reshape(-1)[hit][0]
                    text = show(Load(s.target, s.assign.target.index))
                    raise OracleRefusal(
                        "index", f"{self.op.name}: `{text}` writes position {int(bad)} of an axis of {extent}"
                    )
            unsure = unsure or (p.r is not None and bool(np.any(p.r > 0)))
            flat = flat * max(extent, 1) + np.clip(p.value, 0, max(extent - 1, 0))
        return flat.reshape(-1), stores, unsure

    def scatter(self, s: Statement, b: Ball, guard: Ball | None, piece: Space, active: Active) -> None:
        """Stores at computed places, in index order: the last one wins."""
        flat, stores, unsure = self.flat_index(s, piece, guard, active)
        t = self.target(s.target, partial=True)
        dtype = self.op.tensor(s.target).dtype
        line = (
            b.map(lambda a: np.broadcast_to(a, piece.sizes).reshape(-1))
            if b.shape != piece.sizes
            else b.map(lambda a: a.reshape(-1))
        )
        line = replace(
            line,
            r=None if b.r is None else np.broadcast_to(b.r, piece.sizes).reshape(-1),
            typed=None if b.typed is None else np.broadcast_to(b.typed, piece.sizes).reshape(-1),
        )
        if guard is not None and guard.r is not None and (guard.r > 0).any():
            # where the store itself is unsure: the hull of before and after
            old = Ball(t.value.reshape(-1)[flat], dtype, None if t.r is None else t.r.reshape(-1)[flat])
            test = Ball(
                np.broadcast_to(guard.value, piece.sizes).reshape(-1),
                DType.BOOL,
                np.broadcast_to(guard.r, piece.sizes).reshape(-1),
            )
            line = select(test, line, old, dtype)
        value, r, typed = line.value, line.r, line.typed
        if stores is not None:
            flat, value = flat[stores], value[stores]
            r = None if r is None else r[stores]
            typed = None if typed is None else typed[stores]
        t.value.reshape(-1)[flat] = value
        if r is not None or t.r is not None or unsure:
            if t.r is None:
                t.r = np.zeros(t.value.shape)
            t.r.reshape(-1)[flat] = 0.0 if r is None else r
            if unsure:
                t.r[...] = np.inf
        if self.machine.track and dtype.is_float:
            if typed is None:
                t.typed = None
            else:
                if t.typed is None:
                    t.typed = t.value.copy()
                t.typed.reshape(-1)[flat] = typed
        t.signed, t.nonneg = t.signed and b.signed, t.nonneg and b.nonneg
        if t.written is not None:
            t.written.reshape(-1)[flat] = True

    def accumulator(self, s: Statement) -> Accumulator:
        """The running total of a target: starts from what `=` has written, else from the identity of the mode."""
        name, mode = s.target, s.assign.mode
        have = self.sums.get(name)
        if have is not None and have.mode == mode:
            return have
        dtype = self.op.tensor(name).dtype
        shape = self.machine.extents.shapes[name]
        base: Ball | None = None
        if have is not None:
            base = have.result()
        elif name in self.targets:
            t = self.targets.pop(name)
            value = t.value
            if t.written is not None and not t.written.all():
                nothing = identity({"+=": "sum", "*=": "prod"}.get(mode, mode), dtype)
                value = np.where(t.written, value, np.asarray(nothing).astype(value.dtype))
            base = Ball(value.reshape(-1), dtype, None if t.r is None else t.r.reshape(-1), nonneg=t.nonneg)
        self.sums[name] = Accumulator(mode, dtype, math.prod(shape), base)
        return self.sums[name]

    def accumulate(self, s: Statement, b: Ball, guard: Ball | None, piece: Space, active: Active) -> None:
        flat, stores, unsure = self.flat_index(s, piece, guard, active)
        total = self.accumulator(s)
        if guard is not None and guard.r is not None and (guard.r > 0).any():
            kind = {"+=": "sum", "*=": "prod"}.get(s.assign.mode, s.assign.mode)
            nothing = Ball(np.full((1,) * piece.ndim, identity(kind, b.dtype), STORAGE[b.dtype]), b.dtype)
            b = select(guard, b, nothing, b.dtype)
        value = np.broadcast_to(b.value, piece.sizes).reshape(-1)
        r = None if b.r is None else np.broadcast_to(b.r, piece.sizes).reshape(-1)
        if stores is not None:
            flat, value = flat[stores], value[stores]
            r = None if r is None else r[stores]
        if unsure:
            total.r[...] = np.inf
        total.update(flat, Ball(value, b.dtype, r, nonneg=b.nonneg))

    # ------------------------------------------------------------------------------------------ outputs
    def output(self, t: Tensor) -> Ball:
        """An output in physical order; every element must have been written."""
        stored = self.machine.tensors.get(t.name)
        if stored is None:
            raise OracleError(f"{self.op.name}: output `{t.name}` is never written")
        if stored.written is not None and not stored.written.all():
            raise OracleError(f"{self.op.name}: output `{t.name}` has elements that nothing writes")
        placed = self.machine.extents.placed[t.name]
        ball = stored.ball
        choices = None if ball.choices is None else placed.physical(ball.choices, 1)
        return replace(ball.map(placed.physical), choices=choices, typed=None)


# ------------------------------------------------------------------------------------------------- helpers


def _too_large(op: BoundOp, s: Statement, points: int) -> str:
    return f"{op.name}: `{s.target}` visits {points:.2g} points, more than the oracle takes on"


def _fixed(space: Space, axis: str, at: int) -> Space:
    slot = space.slots[axis]
    begin, sizes = [0] * space.ndim, list(space.sizes)
    begin[slot.start], sizes[slot.start] = at, 1
    return space.piece(tuple(begin), tuple(sizes))


def _pieces(space: Space, limit: int) -> Iterator[Space]:
    """Boxes of at most about `limit` points, in index order."""
    if math.prod(space.sizes) <= limit:
        yield space
        return
    steps = list(space.sizes)
    for k in range(space.ndim):
        over = math.prod(steps) / limit
        if over <= 1:
            break
        steps[k] = max(1, int(steps[k] / over))
    ranges = [range(0, n, step) for n, step in zip(space.sizes, steps, strict=True)]
    for begin in itertools.product(*ranges):
        sizes = tuple(min(step, n - b) for b, step, n in zip(begin, steps, space.sizes, strict=True))
        yield space.piece(begin, sizes)


def _variable(e: Expr, space: Space) -> Slot | None:
    match e:
        case Star(x=Name(id=n)) | Name(id=n, kind="index") | Decl(id=n):
            return space.slots[n]
    return None


def _descends(body: Sequence[Statement], axis: str) -> bool:
    """Whether a recurrence runs downwards: it reads its targets at `t + 1`."""
    targets = {s.target for s in body}
    for s in body:
        for n in walk(s.assign.value):
            if isinstance(n, Load) and n.tensor in targets:
                for e in n.index:
                    if (
                        isinstance(e, Bin)
                        and e.op == "+"
                        and any(isinstance(p, Name) and p.id == axis for p in (e.left, e.right))
                        and any(isinstance(p, Num) and p.value > 0 for p in (e.left, e.right))
                    ):
                        return True
    return False


def _tracked(op: BoundOp) -> frozenset[int]:
    """Statements with index arithmetic in floats: what they compute, at once or through temporaries, is rounded to an
    integer, so that it matters how it was rounded before.
    """
    feeds: set[str] = set()
    marked: set[int] = set()
    exprs = [
        [e for e in (s.assign.value, s.assign.guard, *s.assign.target.index) if e is not None]
        for s in op.body
    ]

    def loads(x: Expr) -> set[str]:
        return {n.tensor for n in walk(x) if isinstance(n, Load)}

    for k, es in enumerate(exprs):
        for e in es:
            for n in walk(e):
                if rounds_to_integer(n):
                    marked.add(k)
                    feeds |= loads(n)
    while True:
        size = len(feeds), len(marked)
        for k, s in enumerate(op.body):
            if s.target in feeds:
                marked.add(k)
                for e in exprs[k]:
                    feeds |= loads(e)
        if (len(feeds), len(marked)) == size:
            return frozenset(marked)
