"""Which maxima of a program only keep it from overflowing: no output changes when they are shifted.

softmax subtracts the maximum of each row before it exponentiates, and divides by a sum that was shifted alike.  The
derivative by such a maximum is zero, so `grad.py` need not follow it; nor need it share a gradient between ties of
computed values, which no bound can decide.

How it is proven: every tensor is followed under m -> m + d, d a number for each row of m.  It may not change, gain
c * d (`_State("add", c)`: x - m, or log of a scaled sum) or be scaled by exp(c * d) (`_State("mul", c)`: exp(x - m),
sums of it).  Whatever else depends on m makes the answer no.

May import: expr, bound, normal, simplify.  To add a function: a case in `_Follower.expr`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .bound import Axis, BoundOp, Statement
from .expr import FUNCTIONS, Bin, Call, Expr, Load, Num, Reduce, Select, Star, Un, children
from .normal import plain_index
from .simplify import loads, plain_indices, ref, rename_indices

__all__ = ["is_shift_free", "maxima"]


@dataclass(frozen=True)
class _State:
    """How a value changes with d: by `+ amount * d` or `* exp(amount * d)`, with d taken at the indices `rows`."""

    how: str
    amount: float
    rows: tuple[str, ...]


class _Unknown(Exception):
    """It depends on m in another way."""


def maxima(op: BoundOp) -> list[str]:
    """Temporaries that are a maximum or minimum over an index, or one of those bounded by a literal."""
    direct: set[str] = set()
    out: list[str] = []
    count: dict[str, int] = {}
    for s in op.body:
        count[s.target] = count.get(s.target, 0) + 1
    for s in op.body:
        a = s.assign
        if a.mode != "=" or a.guard is not None or s.recur is not None or count[s.target] > 1:
            continue
        if plain_indices(a.target.index) is None:
            continue
        match a.value:
            case Reduce(kind="max" | "min"):
                direct.add(s.target)
                out.append(s.target)
            case Call(fn="max" | "min", args=(Load(tensor=t, index=ix), Num())) if (
                t in direct and ix == a.target.index
            ):
                out.append(s.target)
    return [n for n in out if n in {t.name for t in op.temps}]


def is_shift_free(op: BoundOp, name: str, outputs: Iterable[str]) -> bool:
    """Whether none of `outputs` changes when `name` (one of `maxima(op)`) is shifted, row by row."""
    return _Follower(op, name).proves(set(outputs))


class _Follower:
    def __init__(self, op: BoundOp, name: str) -> None:
        self.op, self.name = op, name
        self.states: dict[str, tuple[str, float, tuple[int, ...]]] = {}
        self.writers: dict[str, list[Statement]] = {}
        for s in op.body:
            self.writers.setdefault(s.target, []).append(s)

    def proves(self, outputs: set[str]) -> bool:
        (first,) = self.writers[self.name]
        self.states[self.name] = ("add", 1.0, tuple(range(len(first.assign.target.index))))
        begun = False
        try:
            for s in self.op.body:
                if s is first:
                    begun = True
                elif begun:
                    self.statement(s)
        except _Unknown:
            return False
        return not outputs & self.states.keys()

    def statement(self, s: Statement) -> None:
        a = s.assign
        for e in (*a.target.index, *((a.guard,) if a.guard is not None else ())):
            self.steady(e)
        state = self.expr(a.value)
        if state is None:
            if s.target in self.states:
                raise _Unknown
            return
        plain = plain_indices(a.target.index)
        if a.mode != "=" or a.guard is not None or s.recur is not None or len(self.writers[s.target]) > 1:
            raise _Unknown
        if plain is None or not set(state.rows) <= set(plain):
            raise _Unknown
        self.states[s.target] = (state.how, state.amount, tuple(plain.index(n) for n in state.rows))

    def steady(self, x: Expr) -> None:
        """`x` must not depend on m."""
        if any(ld.tensor in self.states for ld in loads(x)):
            raise _Unknown

    def expr(self, x: Expr) -> _State | None:
        """None: does not change."""
        match x:
            case Load(tensor=t, index=ix):
                for e in ix:
                    self.steady(e)
                if t not in self.states:
                    return None
                how, amount, spots = self.states[t]
                rows = [plain_index(ix[k]) for k in spots]
                names = tuple(n for n in rows if n is not None)
                if len(names) < len(rows):
                    raise _Unknown
                return _State(how, amount, names)
            case Un(op="-", x=a):
                return self.scaled(self.expr(a), -1)
            case Bin(op="+" | "-" as op, left=a, right=b):
                return self.plus(self.expr(a), self.expr(b), -1 if op == "-" else 1)
            case Bin(op="*" | "/" as op, left=a, right=b):
                return self.times(self.expr(a), self.expr(b), -1 if op == "/" else 1)
            case Call(fn="exp", args=(a,)):
                return self.turned(self.expr(a), "add", "mul")
            case Call(fn="log", args=(a,)):
                return self.turned(self.expr(a), "mul", "add")
            case Call(fn="max", args=(Load() as a, Num(value=v))) if 0 <= v < 1 and self.is_at_least_one(a):
                return self.expr(a)
            case Call(fn=fn, args=(a,)) if fn not in FUNCTIONS and x.dtype is not None and x.dtype.is_inexact:
                return self.expr(a)
            case Select(test=t, then=a, other=b):
                self.steady(t)
                return self.either(a, b)
            case Reduce(kind="sum", body=b, indices=ds):
                state = self.expr(b)
                if state is not None and (state.how != "mul" or {d.id for d in ds} & set(state.rows)):
                    raise _Unknown
                return state
            case Star():
                return None
        for c in children(x):
            if self.expr(c) is not None:
                raise _Unknown
        return None

    @staticmethod
    def scaled(a: _State | None, by: int) -> _State | None:
        """Times -1 or 1."""
        return _State("add", by * a.amount, a.rows) if a is not None and a.how == "add" else a

    @staticmethod
    def joined(how: str, amount: float, a: _State | None, b: _State | None) -> _State | None:
        one = a or b
        if one is None or amount == 0:
            if a is not None and b is not None and a.rows != b.rows:
                raise _Unknown
            return None
        if a is not None and b is not None and a.rows != b.rows:
            raise _Unknown
        return _State(how, amount, one.rows)

    def plus(self, a: _State | None, b: _State | None, sign: int) -> _State | None:
        if a is not None and a == b and a.how == "mul":
            return a
        if any(s is not None and s.how == "mul" for s in (a, b)):
            raise _Unknown
        return self.joined("add", (a.amount if a else 0) + sign * (b.amount if b else 0), a, b)

    def times(self, a: _State | None, b: _State | None, sign: int) -> _State | None:
        if any(s is not None and s.how == "add" for s in (a, b)):
            raise _Unknown
        return self.joined("mul", (a.amount if a else 0) + sign * (b.amount if b else 0), a, b)

    @staticmethod
    def turned(a: _State | None, source: str, to: str) -> _State | None:
        if a is None:
            return None
        if a.how != source:
            raise _Unknown
        return _State(to, a.amount, a.rows)

    def either(self, a: Expr, b: Expr) -> _State | None:
        u, v = self.expr(a), self.expr(b)
        if u == v:
            return u
        for state, other in ((u, b), (v, a)):
            # 0 stays 0 when scaled, -inf stays -inf when shifted.
            if state is None or not isinstance(other, Num):
                continue
            if other.value == 0 if state.how == "mul" else math.isinf(other.value):
                return state
        raise _Unknown

    def is_at_least_one(self, x: Load) -> bool:
        """`x` sums exp(X - m) over what m is the maximum of: one term is exp(0) wherever m follows that maximum."""
        writers = self.writers.get(x.tensor, [])
        if len(writers) != 1:
            return False
        s = writers[0]
        match s.assign.value:
            case Reduce(kind="sum", body=Call(fn="exp", args=(Bin(op="-", left=over, right=Load() as m),))):
                rows = m.index
                if m.tensor != self.name:
                    return False
            case _:
                return False
        source = self.writers[self.name][0]
        match source.assign.value:
            case Call(args=(Load(tensor=inner), Num())):
                (source,) = self.writers[inner]
        top = source.assign.value
        names, here = plain_indices(source.assign.target.index), plain_indices(rows)
        if (
            not isinstance(top, Reduce)
            or top.kind != "max"
            or names is None
            or here is None
            or len(names) != len(here)
        ):
            return False
        if len(source.reduced) != len(s.reduced):
            return False
        given = dict(zip(names, rows, strict=True))
        for (n, a), (other, b) in zip(source.reduced, s.reduced, strict=True):
            if (a.extent, a.pack) != (b.extent, b.pack):
                return False
            given[n] = ref(Axis(other, b.extent, b.pack))
        return rename_indices(top.body, given) == over
