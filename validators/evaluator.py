"""One expression of a Bound program over a whole index space, in ball arithmetic.

Every index variable owns NumPy axes: a scalar index one, a pack index as many as its pack has.  A sub-expression is a
`Ball` whose arrays have all axes of the space, of extent 1 where it does not depend on them.  Reductions append axes
and remove them again.  `Select`, `and` and `or` narrow where their parts are *active*; a load outside of its tensor is
refused where it is active and never happens elsewhere.

May import: numpy, ball*, extents, values, generator.{bound, expr, types}.
To add a node: a case in `Evaluator.eval`.  To add a fast path: a method that returns None where it does not apply,
tried in `_reduce`, with a test that compares it with the slow path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..generator.bound import Axis, BoundOp, DimUse
from ..generator.expr import (
    FUNCTIONS,
    And,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    Un,
    show,
    walk,
)
from ..generator.types import DType
from .ball import Ball, arithmetic, cast, compare, constant, logical, negate, select, square
from .ball_functions import call, power
from .ball_reduce import contract, identity, reduce_, scan
from .extents import Extents, OracleError, OracleRefusal, Shape, pack_name
from .values import Array

__all__ = ["Active", "Evaluator", "Slot", "Space", "Stored", "TooDense", "scan_form"]

#: Points of one dense evaluation held at once.
CHUNK = 1 << 20


class TooDense(Exception):
    """A fast path did not apply to a space too large to hold; the statement is tried again in small pieces."""


@dataclass(frozen=True)
class Slot:
    """The axes of one index variable: where they start, their extents in this piece, and where the piece begins."""

    start: int
    sizes: Shape
    offsets: Shape


@dataclass(frozen=True)
class Space:
    """The index variables in scope."""

    slots: Mapping[str, Slot]
    sizes: Shape

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    def extended(self, axes: Sequence[tuple[str, Shape]]) -> Space:
        slots = dict(self.slots)
        sizes = list(self.sizes)
        for name, shape in axes:
            slots[name] = Slot(len(sizes), shape, (0,) * len(shape))
            sizes += shape
        return Space(slots, tuple(sizes))

    def piece(self, begin: Shape, sizes: Shape) -> Space:
        """A box of this space."""
        slots = {}
        for name, s in self.slots.items():
            stop = s.start + len(s.sizes)
            offsets = tuple(o + b for o, b in zip(s.offsets, begin[s.start : stop], strict=True))
            slots[name] = Slot(s.start, sizes[s.start : stop], offsets)
        return Space(slots, sizes)

    def line(self, slot: Slot, k: int) -> Array:
        """The values of axis `k` of a slot, aligned with the space."""
        shape = [1] * self.ndim
        shape[slot.start + k] = slot.sizes[k]
        return np.arange(slot.offsets[k], slot.offsets[k] + slot.sizes[k], dtype=np.int64).reshape(shape)


@dataclass(frozen=True)
class Active:
    """Where an expression is evaluated: `must` surely, `may` possibly (an ambiguous test leads there).  None: all."""

    may: Array | None = None
    must: Array | None = None

    def narrowed(self, test: Ball, *, negate_test: bool = False) -> Active:
        value = ~test.value if negate_test else test.value
        if test.r is None:
            may = must = value
        else:
            open_ = test.r > 0
            may, must = value | open_, value & ~open_
        return Active(
            may if self.may is None else self.may & may, must if self.must is None else self.must & must
        )

    def deeper(self, count: int) -> Active:
        """For a space with `count` more axes."""

        def grow(x: Array | None) -> Array | None:
            return None if x is None else x.reshape(x.shape + (1,) * count)

        return Active(grow(self.may), grow(self.must))


@dataclass
class Stored:
    """A tensor in the making: a ball in logical order, and which elements exist (None: all)."""

    ball: Ball
    written: Array | None = None


@dataclass
class Evaluator:
    """Evaluates expressions of `op` for one call."""

    op: BoundOp
    attrs: Mapping[str, Any]
    tensors: dict[str, Stored] = field(default_factory=dict)
    extents: Extents = field(init=False)
    fast: bool = True
    track: bool = False  # keep values as rounded in their own type (index arithmetic in floats)
    reduced: Mapping[str, Axis] = field(default_factory=dict)
    dense: bool = False  # small pieces: no fast path is needed to hold a space
    whole: dict[str, Shape] = field(
        default_factory=dict
    )  # full extents of the pack indices of this statement

    def __post_init__(self) -> None:
        self.extents = Extents(self.op, self.attrs, self.scalar)

    def scalar(self, x: Expr) -> Any:
        """The value of an expression of rank 0, as a Python number."""
        ball = self.eval(x, Space({}, ()), Active())
        if ball.r is not None and np.any(np.isinf(ball.r)):
            raise OracleRefusal("shape", f"{self.op.name}: `{show(x)}` has no value (a division by zero?)")
        return ball.value.item()

    # ------------------------------------------------------------------------------------------ expressions
    def eval(self, x: Expr, space: Space, active: Active) -> Ball:
        """The ball of `x`, aligned with `space`."""
        n = space.ndim
        match x:
            case Num(value=v):
                return constant(v, _dtype(x), n, track=self.track)
            case Name(id=name, kind="index"):
                return Ball(space.line(space.slots[name], 0), DType.I64, nonneg=True)
            case Name(id=name, kind="dim"):
                return self._count(self.extents.dims[name], n)
            case Name(id=name, kind="attr"):
                return self._attribute(name, self.attrs[name], x, n)
            case Item(id=name, lane=k):
                return self._attribute(name, self.attrs[name][k], x, n)
            case Load():
                return self._load(x, space, active)
            case Call(fn=fn):
                return self._call(x, fn, space, active)
            case Un(op=op, x=inner):
                b = self.eval(inner, space, active)
                if op == "-":
                    return negate(b)
                return Ball(~b.value, b.dtype, b.r)
            case Bin(op=op, left=left, right=right):
                a = self.eval(left, space, active)
                if op == "*" and _dtype(x).is_float and left == right:
                    return square(a, _dtype(x))
                b = self.eval(right, space, active)
                return power(a, b, _dtype(x)) if op == "**" else arithmetic(op, a, b, _dtype(x))
            case Cmp(op=op, left=left, right=right):
                return compare(op, self.eval(left, space, active), self.eval(right, space, active))
            case And(xs=xs) | Or(xs=xs):
                word = "and" if isinstance(x, And) else "or"
                out = self.eval(xs[0], space, active)
                for part in xs[1:]:
                    # the next part is asked only where this one leaves it open
                    active = active.narrowed(out, negate_test=word == "or")
                    out = logical(word, out, self.eval(part, space, active))
                return out
            case Not(x=inner):
                b = self.eval(inner, space, active)
                return Ball(~b.value, DType.BOOL, b.r)
            case Select(test=test, then=then, other=other):
                return self._select(x, test, then, other, space, active)
            case Reduce():
                return self._reduce(x, space, active)
            case Fold(kind="prod", body=Name(id=name, kind="pack")):
                return self._count(math.prod(self.extents.packs[name]), n)
            case Decl(id=name):
                return Ball(space.line(space.slots[name], 0), DType.I64, nonneg=True)
        raise OracleError(f"{self.op.name}: no evaluation for `{show(x)}`")

    def _count(self, value: int, ndim: int) -> Ball:
        return Ball(np.full((1,) * ndim, value, np.int64), DType.I64, nonneg=True)

    def _attribute(self, name: str, value: Any, x: Expr, ndim: int) -> Ball:
        if isinstance(value, Expr):
            return self.eval(value, Space({}, ()), Active()).map(lambda a: a.reshape((1,) * ndim))
        if value is None:
            raise OracleError(f"{self.op.name}: attribute `{name}` has no value")
        return constant(value, _dtype(x), ndim, track=self.track)

    def _select(self, x: Select, test: Expr, then: Expr, other: Expr, space: Space, active: Active) -> Ball:
        t = self.eval(test, space, active)
        if t.r is None and t.value.size and t.value.all():
            return cast(self.eval(then, space, active), _dtype(x))
        if t.r is None and t.value.size and not t.value.any():
            return cast(self.eval(other, space, active), _dtype(x))
        a = self.eval(then, space, active.narrowed(t))
        b = self.eval(other, space, active.narrowed(t, negate_test=True))
        return select(t, a, b, _dtype(x))

    def _call(self, x: Call, fn: str, space: Space, active: Active) -> Ball:
        if fn not in FUNCTIONS:
            return cast(self.eval(x.args[0], space, active), _dtype(x))
        match x:
            case Call(fn="rank", args=(Name(id=pack),)):
                return self._count(len(self.extents.packs[pack]), space.ndim)
            case Call(fn="linear", args=(Star(x=Name(id=pack)), *_)):
                return self._linear(space, space.slots[pack], pack)
            case Call(fn="lane", args=(Name(id=pack), which)):
                slot = space.slots[pack]
                k = self.eval(which, space, active)
                value = np.zeros((1,) * space.ndim, np.int64)
                for j in range(len(slot.sizes)):
                    value = np.where(k.value == j, space.line(slot, j), value)
                return Ball(value, DType.I64, nonneg=True)
        return call(fn, [self.eval(a, space, active) for a in x.args], _dtype(x))

    def _linear(self, space: Space, slot: Slot, index: str) -> Ball:
        """Row-major position of a pack index within its pack's whole extents."""
        whole = self.whole[index]
        value = np.zeros((1,) * space.ndim, np.int64)
        for k, extent in enumerate(whole):
            value = value * extent + space.line(slot, k)
        return Ball(value, DType.I64, nonneg=True)

    # ------------------------------------------------------------------------------------------ loads
    def _load(self, x: Load, space: Space, active: Active) -> Ball:
        stored = self.tensors.get(x.tensor)
        if stored is None:
            raise OracleError(f"{self.op.name}: `{x.tensor}` is read before it is written")
        ball = stored.ball
        if self.track and ball.typed is None and ball.r is None and ball.dtype.is_float:
            ball = replace(ball, typed=ball.value)
        view = self._plain_load(x, ball.shape, space)
        if view is not None:
            out = ball.map(view)
            written = None if stored.written is None else view(stored.written)
        else:
            out, written = self._gather(x, ball, stored.written, space, active)
        if written is not None and not written.all():
            bad = ~written
            if np.any(bad if active.must is None else bad & active.must):
                raise OracleError(f"{self.op.name}: `{show(x)}` reads an element that nothing has written")
        return out

    def entries(self, tensor: str, index: Sequence[Expr]) -> list[tuple[Expr, int, int, bool]]:
        """(index entry, first logical axis, number of axes, may broadcast) of a load or a target."""
        t = self.op.tensor(tensor)
        uses = [u for u in t.dims if not u.keep]
        if len(uses) != len(index):
            raise OracleError(f"{self.op.name}: `{tensor}` has {len(uses)} dims, indexed with {len(index)}")
        total = len(self.extents.shapes[tensor])
        if t.expand and t.role != "input":
            return self._aligned_right(uses, index, total)
        packs = sum(1 for u in uses if u.pack)
        scalars = len(uses) - packs
        out: list[tuple[Expr, int, int, bool]] = []
        at = 0
        for use, e in zip(uses, index, strict=True):
            if not use.pack:
                count = 1
            elif packs == 1:
                count = total - scalars  # a tensor's own share of a pack that broadcasts may be shorter
            else:
                count = len(self.extents.entry(use))
            out.append((e, at, count, use.pack and self.extents.spreads(pack_name(use))))
            at += count
        return out

    def _aligned_right(
        self, uses: Sequence[DimUse], index: Sequence[Expr], total: int
    ) -> list[tuple[Expr, int, int, bool]]:
        """Entries of a tensor that lacks leading axes of its dims, and has others of extent 1."""
        ranks = [len(self.extents.entry(u)) for u in uses]
        missing = sum(ranks) - total
        out: list[tuple[Expr, int, int, bool]] = []
        at = 0
        for e, rank in zip(index, ranks, strict=True):
            drop = min(missing, rank)
            missing -= drop
            out.append((e, at, rank - drop, True))
            at += rank - drop
        return out

    def _plain_load(self, x: Load, shape: Shape, space: Space) -> Any:
        """The load as transpose, slice and reshape, if its indices are distinct variables within the tensor."""
        place: list[tuple[int, int, int | None]] = []  # space axis, tensor axis, offset (None: broadcast)
        for e, first, count, spread in self.entries(x.tensor, x.index):
            slot = _slot_of(e, space)
            if slot is None or count > len(slot.sizes):
                return None
            lead = len(slot.sizes) - count
            if lead and not spread:
                return None
            for k in range(count):
                size, offset = slot.sizes[lead + k], slot.offsets[lead + k]
                extent = shape[first + k]
                if spread and extent == 1:
                    place.append((slot.start + lead + k, first + k, None))
                elif offset + size <= extent:
                    place.append((slot.start + lead + k, first + k, offset))
                else:
                    return None
        if len({p for p, _, _ in place}) != len(place):
            return None
        order = [axis for _, axis, _ in sorted(place)]
        aligned = [1] * space.ndim
        slices: list[slice] = [slice(None)] * len(shape)
        for p, axis, begin in place:
            if begin is not None:
                slices[axis] = slice(begin, begin + space.sizes[p])
                aligned[p] = space.sizes[p]

        def view(a: Array) -> Array:
            return np.transpose(a[tuple(slices)], order).reshape(aligned)

        return view

    def positions(self, tensor: str, index: Sequence[Expr], space: Space, active: Active) -> list[Ball]:
        """Integer position along every logical axis, aligned with the space; 0 where a pack broadcasts."""
        shape = self.extents.shapes[tensor]
        out: list[Ball] = []
        for e, first, count, spread in self.entries(tensor, index):
            slot = _slot_of(e, space)
            if slot is None:
                if count and spread and shape[first] == 1:
                    out.append(self._count(0, space.ndim))
                elif count:
                    out.append(_collapsed(cast(self.eval(e, space, active), DType.I64)))
                continue
            lead = len(slot.sizes) - count
            if lead < 0:
                raise OracleRefusal("rank", f"{self.op.name}: `{show(e)}` has fewer axes than `{tensor}`")
            for k in range(count):
                one = spread and shape[first + k] == 1
                line = np.zeros((1,) * space.ndim, np.int64) if one else space.line(slot, lead + k)
                out.append(Ball(line, DType.I64, nonneg=True))
        return out

    def _gather(
        self, x: Load, ball: Ball, written: Array | None, space: Space, active: Active
    ) -> tuple[Ball, Array | None]:
        shape = ball.shape
        where = self.positions(x.tensor, x.index, space, active)
        index: list[Array] = []
        open_: Array | None = None
        for p, extent, axis in zip(where, shape, range(len(shape)), strict=True):
            outside = (p.value < 0) | (p.value >= extent)
            if outside.any():
                surely = outside if p.r is None else outside & (p.r == 0)
                surely = surely if active.must is None else surely & active.must
                if surely.any():
                    worst = np.broadcast_to(p.value, surely.shape)[surely][0]
                    raise OracleRefusal(
                        "index",
                        f"{self.op.name}: `{show(x)}` reads position {int(worst)} of axis "
                        f"{axis}, which has {extent}",
                    )
                maybe = outside if active.may is None else outside & active.may
                if maybe.any():
                    open_ = maybe if open_ is None else open_ | maybe
            if p.r is not None:
                unsure = p.r > 0
                open_ = unsure if open_ is None else open_ | unsure
            index.append(np.clip(p.value, 0, max(extent - 1, 0)))
        if not shape:
            return ball.map(lambda a: a.reshape((1,) * space.ndim)), written
        if 0 in shape:
            full = np.broadcast_shapes(*(i.shape for i in index))
            return Ball(np.zeros(full, ball.value.dtype), ball.dtype), None
        take = tuple(index)
        out = ball.map(lambda a: a[take])
        if open_ is not None and open_.any():
            out = replace(out, r=np.where(open_, np.inf, out.radius), typed=None)
            if ball.dtype.is_inexact:
                out = replace(out, value=np.where(open_, np.nan, out.value))
        return out, None if written is None else written[take]

    # ------------------------------------------------------------------------------------------ reductions
    def axis_shape(self, d: Decl, body: Expr) -> Shape:
        """The extents of a reduced index: as declared, as the statement says, or those of a tensor it walks."""
        axis = self.reduced.get(d.id)
        extent = d.extent if d.extent is not None else axis.extent if axis is not None else None
        if extent is None:
            for n in walk(body):
                if isinstance(n, Load):
                    for e, first, count, _ in self.entries(n.tensor, n.index):
                        plain = e.x if isinstance(e, Star) else e
                        if isinstance(plain, Name) and plain.id == d.id:
                            return self.extents.shapes[n.tensor][first : first + count]
            raise OracleError(f"{self.op.name}: index `{d.id}` has no extent")
        if d.pack:
            assert isinstance(extent, Name)
            return self.extents.packs[extent.id]
        return (self.extents.extent(extent),)

    def _reduce(self, x: Reduce, space: Space, active: Active) -> Ball:
        axes = [(d.id, self.axis_shape(d, x.body)) for d in x.indices]
        for name, shape in axes:
            self.whole[name] = shape
        inner = space.extended(axes)
        deeper = active.deeper(inner.ndim - space.ndim)
        reduced = list(range(space.ndim, inner.ndim))
        if self.fast and not self.track:
            out = self._contract(x, space, inner, deeper, reduced) or self._scan(x, space, inner, active)
            if out is not None:
                return out
        if not self.dense and math.prod(inner.sizes) > 4 * CHUNK and math.prod(space.sizes) > 1:
            raise TooDense
        body = self.eval(x.body, inner, deeper)
        whole = list(np.broadcast_shapes(body.shape, () if body.r is None else body.r.shape))
        for k in reduced:
            whole[k] = inner.sizes[k]
        if x.kind in ("max", "min", "argmax", "argmin") and not math.prod(whole[space.ndim :]):
            if x.kind.startswith("arg"):
                raise OracleRefusal("require", f"{self.op.name}: `{x.kind}` over nothing")
            return constant(identity(x.kind, _dtype(x)), _dtype(x), space.ndim)
        return reduce_(x.kind, body, reduced, tuple(whole), _dtype(x))

    def _contract(
        self, x: Reduce, space: Space, inner: Space, active: Active, reduced: list[int]
    ) -> Ball | None:
        """A sum of products of factors that depend on fewer indices than their product: as a matrix product."""
        if x.kind != "sum" or not isinstance(x.body, Bin) or x.body.op != "*" or not _dtype(x).is_inexact:
            return None
        if math.prod(inner.sizes) < 4096 or _dtype(x.body) is not _dtype(x):
            return None
        a = cast(self.eval(x.body.left, inner, active), _dtype(x))
        b = cast(self.eval(x.body.right, inner, active), _dtype(x))
        shape = [max(p, q) if p and q else 0 for p, q in zip(a.shape, b.shape, strict=True)]
        for k in reduced:
            shape[k] = inner.sizes[k]
        if math.prod(shape) < 2 * (a.value.size + b.value.size):
            return None
        return contract(a, b, reduced, tuple(shape), _dtype(x))

    def _scan(self, x: Reduce, space: Space, inner: Space, active: Active) -> Ball | None:
        """`sum[j](e if j <= i else 0)` and its like: a running sum, maximum or minimum."""
        form = scan_form(x)
        if form is None or not math.prod(inner.sizes) or form.i not in space.slots:
            return None
        i, op, then = form.i, form.op, form.then
        for n in walk(then):
            if isinstance(n, Load):
                partial = self.tensors[n.tensor].written is not None
                if partial or not all(_is_plain(e) for e in n.index):
                    return None  # a load that the guard may protect
        slot = space.slots[i]
        line = space.line(slot, 0)
        body = self.eval(then, inner, Active())
        shape = list(np.broadcast_shapes(body.shape, () if body.r is None else body.r.shape))
        axis = inner.ndim - 1
        last = inner.sizes[axis] - 1
        shape[axis] = last + 1
        run = scan(x.kind, body, axis, tuple(shape), _dtype(x), reverse=op in (">", ">="))
        # the last j that counts for this i; past the ends everything or nothing does
        at = line if op in ("<=", ">=") else line - 1 if op == "<" else line + 1
        empty = (at < 0) if op in ("<", "<=") else (at > last)
        at = np.clip(at, 0, last)

        def take(values: Array) -> Array:
            picked = np.take(values, at.reshape(-1), axis=axis)  # axis `axis` now walks i
            moved = np.moveaxis(picked, axis, slot.start)
            return moved.reshape(moved.shape[: slot.start] + (slot.sizes[0],) + moved.shape[slot.start + 2 :])

        out = run.map(take)
        if empty.any():
            first = constant(identity(x.kind, _dtype(x)), _dtype(x), space.ndim)
            out = select(Ball(empty, DType.BOOL), first, out, _dtype(x))
        return out


@dataclass(frozen=True)
class ScanForm:
    """`then`, reduced over the j for which `j op i`."""

    i: str
    op: str
    then: Expr


def scan_form(x: Reduce) -> ScanForm | None:
    """How a reduction runs along an index, where it does: then it costs no more than its terms."""
    if x.kind not in ("sum", "max", "min") or len(x.indices) != 1 or x.indices[0].pack:
        return None
    j = x.indices[0].id
    match x.body:
        case Select(
            test=Cmp(op=op, left=Name(id=a, kind="index"), right=Name(id=b, kind="index")),
            then=then,
            other=Num(value=v),
        ) if op in _MIRROR and j in (a, b) and a != b:
            pass
        case _:
            return None
    i = b if a == j else a
    if float(v) != float(identity(x.kind, _dtype(x))):
        return None
    if any(isinstance(n, Name) and n.id == i and n.kind == "index" for n in walk(then)):
        return None
    return ScanForm(i, op if a == j else _MIRROR[op], then)


_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _dtype(x: Expr) -> DType:
    if x.dtype is None:
        raise OracleError(f"`{show(x)}` has no type")
    return x.dtype


def _is_plain(e: Expr) -> bool:
    return (isinstance(e, Name) and e.kind == "index") or (isinstance(e, Star) and isinstance(e.x, Name))


def _collapsed(b: Ball) -> Ball:
    """Positions without the axes along which they are the same: `o // (O // groups)` of a single group is 0."""
    if b.r is not None:
        return b
    v = b.value
    for axis, n in enumerate(v.shape):
        if n > 1:
            first = np.take(v, [0], axis=axis)
            if np.array_equal(np.broadcast_to(first, v.shape), v):
                v = first
    return replace(b, value=v)


def _slot_of(e: Expr, space: Space) -> Slot | None:
    """The slot of an index entry that is one variable and nothing else."""
    match e:
        case Star(x=Name(id=n)) | Name(id=n, kind="index") | Decl(id=n):
            return space.slots[n]
    return None
