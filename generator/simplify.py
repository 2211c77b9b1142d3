"""Algebra on typed expressions and programs: builders that fold as they build, and the clean-up of whole programs.

What may change and what may not
  expressions   only identities that hold for every IEEE value, -0, inf and nan included (`x * 1`, `-(-x)`, `a + -b`);
                `x + 0` stays, since it turns -0 into 0.  Integers may use all identities of a ring.
  programs      statements nobody reads go, equal statements become one, temporaries read once are put in place.

May import: expr, bound, types, normal.  To add a rule: a case in the builder of its operator (`mul`, `select` …), so
that both `fold` and whoever builds expressions (`grad.py`) have it.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from .bound import Axis, BoundOp, Statement, Tensor
from .expr import (
    FUNCTIONS,
    MAX_DEPTH,
    And,
    Assign,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    Target,
    Un,
    children,
    map_children,
    walk,
)
from .normal import plain_index
from .types import DType, exact_in

__all__ = [
    "add",
    "call",
    "cast",
    "cmp",
    "cse",
    "dead",
    "depth",
    "div",
    "fold",
    "fresh_name",
    "inline",
    "is_costly",
    "land",
    "lnot",
    "loads",
    "lor",
    "mul",
    "neg",
    "num",
    "plain_indices",
    "reduction",
    "ref",
    "rename_indices",
    "rename_tensors",
    "reuse",
    "select",
    "simplify",
    "state_extents",
    "statement",
    "statement_loads",
    "sub",
]

#: Deepest expression that inlining may make; the parser reads 60.
_INLINE_DEPTH = MAX_DEPTH - 20

# ------------------------------------------------------------------------------------------------ looking


def loads(x: Expr) -> Iterator[Load]:
    """Every load in `x`, those in indices of other loads included."""
    return (n for n in walk(x) if isinstance(n, Load))


def statement_exprs(s: Statement) -> tuple[Expr, ...]:
    """What a statement evaluates: its indices, value and guard."""
    a = s.assign
    return (*a.target.index, a.value, *((a.guard,) if a.guard is not None else ()))


def statement_loads(s: Statement) -> Iterator[Load]:
    for e in statement_exprs(s):
        yield from loads(e)


def depth(x: Expr) -> int:
    """Levels of nesting."""
    return 1 + max((depth(c) for c in children(x)), default=0)


def plain_indices(index: Sequence[Expr]) -> tuple[str, ...] | None:
    """The variables of an index list that is nothing but distinct index variables, else None."""
    out = [plain_index(e) for e in index]
    names = tuple(n for n in out if n is not None)
    return names if len(names) == len(out) == len(set(names)) else None


# ------------------------------------------------------------------------------------------------ building


def num(value: int | float, dtype: DType) -> Num:
    """A literal of `dtype`: int-valued for integers, float-valued for floats."""
    if dtype is DType.BOOL:
        return Num(bool(value), dtype=dtype)
    return Num(int(value) if dtype.is_integer else float(value), dtype=dtype)


def ref(axis: Axis) -> Expr:
    """An axis as an index entry: its variable, or the pack variable under a star."""
    if axis.pack:
        return Star(Name(axis.name, kind="packindex", dtype=DType.I64), dtype=DType.I64)
    return Name(axis.name, kind="index", dtype=DType.I64)


def is_num(x: Expr, value: float) -> bool:
    """Whether `x` is this literal; 0 is +0."""
    return (
        isinstance(x, Num)
        and not isinstance(x.value, bool)
        and x.value == value
        and math.copysign(1, x.value) == math.copysign(1, value)
    )


def is_zero(x: Expr) -> bool:
    return isinstance(x, Num) and x.dtype is not DType.BOOL and x.value == 0


def _rounded(value: float, dtype: DType) -> float | None:
    """`value` as this float dtype holds it; None where that is not for us to say (half types, overflow)."""
    if dtype is DType.F64:
        return value
    if dtype is not DType.F32:
        return None
    if math.isfinite(value) and abs(value) > dtype.max:
        return None
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _fold_bin(op: str, a: Num, b: Num, dtype: DType) -> Num | None:
    """`a op b` of literals when its value is what every kernel would give (+ - * / of one float rounding)."""
    x, y = a.value, b.value
    if isinstance(x, bool) or isinstance(y, bool):
        return None
    if dtype.is_integer:
        if not (isinstance(x, int) and isinstance(y, int)):
            return None
        if op in ("//", "%") and y == 0:
            return None
        v: int | None = {"+": x + y, "-": x - y, "*": x * y}.get(op)
        if op in ("//", "%"):
            v = x // y if op == "//" else x % y
        return num(v, dtype) if v is not None and dtype.min <= v <= dtype.max else None
    if not dtype.is_float or op not in ("+", "-", "*", "/"):
        return None
    # Twice rounding a double to f32 is the single rounding for these four (53 >= 2 * 24 + 2).
    f, g = float(x), float(y)
    if op == "/":
        if g == 0 or not (math.isfinite(f) and math.isfinite(g)):
            return None
        raw = f / g
    else:
        raw = {"+": f + g, "-": f - g, "*": f * g}[op]
    if math.isnan(raw):
        return None
    w = _rounded(raw, dtype)
    return None if w is None else num(w, dtype)


def _minus(x: Expr) -> Expr | None:
    """`y` when `x` is `-y`, literals included."""
    match x:
        case Un(op="-", x=y):
            return y
        case Num(value=v) if (
            x.dtype is not None
            and x.dtype.is_inexact
            and not isinstance(v, bool)
            and (v < 0 or (v == 0 and math.copysign(1, v) < 0))
        ):
            return num(-v, x.dtype)
    return None


def _dtype(x: Expr) -> DType:
    assert x.dtype is not None, f"untyped expression {x!r}"
    return x.dtype


def add(a: Expr, b: Expr) -> Expr:
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num) and (v := _fold_bin("+", a, b, d)) is not None:
        return v
    if d.is_integer:
        if is_zero(a):
            return b
        if is_zero(b):
            return a
        match a, b:
            case Bin(op="-", left=x, right=y), _ if y == b:
                return x
            case Bin(op="+", left=x, right=Num() as m), Num() as n:
                return add(x, add(m, n))
            case Bin(op="-", left=x, right=Num() as m), Num() as n:
                return add(x, sub(n, m))
    if is_num(b, -0.0) and d.is_inexact:
        return a
    if is_num(a, -0.0) and d.is_inexact:
        return b
    if a == b and d.is_inexact and not isinstance(a, Num):
        return mul(num(2, d), a)
    if d.is_inexact and (minus := _minus(b)) is not None:
        return sub(a, minus)
    if d.is_inexact and not isinstance(a, Num) and (minus := _minus(a)) is not None:
        return sub(b, minus)
    return Bin("+", a, b, dtype=d)


def sub(a: Expr, b: Expr) -> Expr:
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num) and (v := _fold_bin("-", a, b, d)) is not None:
        return v
    if is_num(b, 0):
        return a
    if d.is_integer:
        if a == b:
            return num(0, d)
        match a, b:
            case _, Bin(op="-", left=x, right=y) if x == a:
                return y
            case Bin(op="-", left=x, right=Num() as m), Num() as n:
                return sub(x, add(m, n))
            case Bin(op="+", left=x, right=Num() as m), Num() as n:
                return add(x, sub(m, n))
    if d.is_inexact and (minus := _minus(b)) is not None:
        return add(a, minus)
    return Bin("-", a, b, dtype=d)


def neg(x: Expr) -> Expr:
    match x:
        case Un(op="-", x=y):
            return y
        case Num(value=v) if not isinstance(v, bool):
            return Num(-v, dtype=x.dtype)
        case Bin(op="*" | "/" as op, left=Num() as a, right=b) if _dtype(x).is_inexact:
            return Bin(op, neg(a), b, dtype=x.dtype)
    return Un("-", x, dtype=x.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num) and (folded := _fold_bin("*", a, b, d)) is not None:
        return folded
    if d.is_integer and (is_zero(a) or is_zero(b)):
        return num(0, d)
    if isinstance(b, Num) and not isinstance(a, Num):
        a, b = b, a
    if is_num(a, 1):
        return b
    if d.is_inexact:
        if is_num(a, -1):
            return neg(b)
        match a, b:
            # Powers of two from 1 up scale exactly, to infinity where it must be, in one step or two.
            case Num(value=u), Bin(op="*", left=Num(value=v), right=x) if _two_power(u) and _two_power(v):
                return mul(num(u * v, d), x)
        if not isinstance(a, Num) and (minus := _minus(a)) is not None:
            return neg(mul(minus, b))
        if not isinstance(b, Num) and (minus := _minus(b)) is not None:
            return neg(mul(a, minus))
    return Bin("*", a, b, dtype=d)


def _two_power(v: float) -> bool:
    return math.isfinite(v) and abs(math.frexp(v)[0]) == 0.5 and 1 <= abs(v) <= 2.0**8


def div(a: Expr, b: Expr) -> Expr:
    """True division (floats)."""
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num) and (v := _fold_bin("/", a, b, d)) is not None:
        return v
    if is_num(b, 1):
        return a
    if is_num(b, -1):
        return neg(a)
    if not isinstance(a, Num) and (x := _minus(a)) is not None:
        return neg(div(x, b))
    if not isinstance(b, Num) and (y := _minus(b)) is not None:
        return neg(div(a, y))
    return Bin("/", a, b, dtype=d)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """Any binary operator of one dtype, folded."""
    match op:
        case "+":
            return add(a, b)
        case "-":
            return sub(a, b)
        case "*":
            return mul(a, b)
        case "/":
            return div(a, b)
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num) and (v := _fold_bin(op, a, b, d)) is not None:
        return v
    if d.is_integer and op == "//" and is_num(b, 1):
        return a
    if d.is_integer and op == "%" and is_num(b, 1):
        return num(0, d)
    if op == "**" and is_num(b, 1):
        return a
    return Bin(op, a, b, dtype=d)


def _widens(small: DType, big: DType) -> bool:
    """Every value of `small` is exactly one of `big`."""
    if small is big:
        return True
    if small in (DType.F16, DType.BF16):
        return big in (DType.F32, DType.F64)
    return small is DType.F32 and big is DType.F64


def cast(x: Expr, to: DType) -> Expr:
    """`x` as `to`; exact literals change their dtype, a widening that is narrowed again goes."""
    d = _dtype(x)
    if d is to:
        return x
    match x:
        case Num(value=v) if not isinstance(v, bool):
            if to.is_float and exact_in(v, to) and exact_in(v, d):
                return num(v, to)
            if to.is_integer and isinstance(v, int) and to.min <= v <= to.max:
                return num(v, to)
        case Num(value=bool() as v) if to is not DType.BOOL and not to.is_complex:
            return num(int(v), to)
        case Call(fn=fn, args=(y,)) if fn not in FUNCTIONS and y.dtype is not None and _widens(y.dtype, d):
            if y.dtype is to or _widens(y.dtype, to):
                return cast(y, to)
    return Call(to.value, (x,), dtype=to)


def call(fn: str, *args: Expr, dtype: DType | None = None) -> Expr:
    return Call(fn, args, dtype=dtype or args[0].dtype)


TRUE = Num(True, dtype=DType.BOOL)
FALSE = Num(False, dtype=DType.BOOL)


def lnot(x: Expr) -> Expr:
    match x:
        case Num(value=v):
            return FALSE if v else TRUE
        case Not(x=y):
            return y
        case Cmp(op="==" | "!=" as op, left=a, right=b):
            return Cmp("!=" if op == "==" else "==", a, b, dtype=DType.BOOL)
        case Cmp(op="<" | "<=" | ">" | ">=" as op, left=a, right=b) if (
            a.dtype is not None and a.dtype.is_integer
        ):
            return Cmp({"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op], a, b, dtype=DType.BOOL)
    return Not(x, dtype=DType.BOOL)


def _junction(xs: Iterable[Expr], kind: type[And] | type[Or]) -> Expr:
    stop, unit = (FALSE, TRUE) if kind is And else (TRUE, FALSE)
    out: list[Expr] = []
    for x in xs:
        for y in x.xs if isinstance(x, kind) else (x,):
            if y == stop:
                return stop
            if y != unit and y not in out:
                out.append(y)
    if not out:
        return unit
    return out[0] if len(out) == 1 else kind(tuple(out), dtype=DType.BOOL)


def land(*xs: Expr) -> Expr:
    """`and`, in order: a later condition may rely on an earlier one."""
    return _junction(xs, And)


def lor(*xs: Expr) -> Expr:
    return _junction(xs, Or)


def cmp(op: str, a: Expr, b: Expr) -> Expr:
    d = _dtype(a)
    if isinstance(a, Num) and isinstance(b, Num):
        u, v = a.value, b.value
        return (
            TRUE
            if {"==": u == v, "!=": u != v, "<": u < v, "<=": u <= v, ">": u > v, ">=": u >= v}[op]
            else FALSE
        )
    if a == b and not d.is_inexact:
        return TRUE if op in ("==", "<=", ">=") else FALSE
    match op, a, b:  # an index is never negative
        case "<=", Num(value=v), Name(kind="index") if v <= 0:
            return TRUE
        case ">=", Name(kind="index"), Num(value=v) if v <= 0:
            return TRUE
        case "<", Name(kind="index"), Num(value=v) if v <= 0:
            return FALSE
    return Cmp(op, a, b, dtype=DType.BOOL)


def _harmless(x: Expr) -> bool:
    """Whether it may be evaluated where it was not asked for: no loads, and nothing to divide by zero."""
    return not any(
        isinstance(n, Load)
        or (isinstance(n, Bin) and n.op in ("//", "%"))
        or (isinstance(n, Call) and n.fn in ("cdiv", "tdiv", "trem"))
        for n in walk(x)
    )


def select(test: Expr, then: Expr, other: Expr) -> Expr:
    match test:
        case Num(value=v):
            return then if v else other
        case Not(x=t):
            return select(t, other, then)
    if isinstance(then, Select) and then.test == test:
        then = then.then
    if isinstance(other, Select) and other.test == test:
        other = other.other
    if isinstance(then, Select) and then.other == other and _harmless(then.test):
        return select(land(test, then.test), then.then, other)
    if then == other:
        return then
    return Select(test, then, other, dtype=then.dtype)


def reduction(kind: str, axes: Sequence[Axis], body: Expr) -> Expr:
    """`kind[axes](body)` with the extents of the axes written in."""
    decls = tuple(Decl(a.name, a.pack, a.extent, dtype=DType.I64) for a in axes)
    out = DType.I64 if kind in ("argmax", "argmin") else body.dtype
    return Reduce(kind, decls, body, dtype=out)


def fold(x: Expr) -> Expr:
    """`x` with the rules of the builders applied everywhere.  Never changes a value, nor what may be evaluated."""
    y = map_children(x, fold)
    if y.dtype is None:
        return y
    match y:
        case Bin(op=op, left=a, right=b):
            z = binary(op, a, b) if a.dtype is b.dtype is y.dtype else y
        case Un(op="-", x=a):
            z = neg(a)
        case Call(fn=fn, args=(a,)) if fn not in FUNCTIONS:
            z = cast(a, y.dtype)
        case Select(test=t, then=a, other=b):
            z = select(t, a, b)
        case And(xs=xs):
            z = land(*xs)
        case Or(xs=xs):
            z = lor(*xs)
        case Not(x=a):
            z = lnot(a)
        case Cmp(op=op, left=a, right=b) if op != "in" and a.dtype is b.dtype and a.dtype is not None:
            z = cmp(op, a, b)
        case _:
            return y
    return y if z == y else replace(z, span=y.span) if z.span is None and y.span is not None else z


# ------------------------------------------------------------------------------------------------ renaming


def rename_indices(x: Expr, names: Mapping[str, Expr]) -> Expr:
    """Put expressions for index variables.  A pack variable may only become another pack variable."""
    match x:
        case Name(id=n, kind="index") if n in names:
            return names[n]
        case Name(id=n, kind="packindex") if n in names:
            y = names[n]
            return y.x if isinstance(y, Star) else y
        case Decl(id=n) if n in names:
            y = names[n]
            inner = y.x if isinstance(y, Star) else y
            assert isinstance(inner, Name), "a declared index becomes a name"
            x = replace(x, id=inner.id)
    return map_children(x, lambda c: rename_indices(c, names))


def rename_tensors(x: Expr, names: Mapping[str, str]) -> Expr:
    y = map_children(x, lambda c: rename_tensors(c, names))
    return replace(y, tensor=names[y.tensor]) if isinstance(y, Load) and y.tensor in names else y


def map_statement(s: Statement, fn: Callable[[Expr], Expr]) -> Statement:
    """`fn` over index, value and guard, and over the extents of the axes."""
    a = s.assign
    target = replace(a.target, index=tuple(fn(e) for e in a.target.index))
    guard = None if a.guard is None else fn(a.guard)
    if isinstance(guard, Num) and guard.value:
        guard = None
    assign = replace(a, target=target, value=fn(a.value), guard=guard)
    return replace(
        s,
        assign=assign,
        axes=tuple(replace(x, extent=fn(x.extent)) for x in s.axes),
        reduced=tuple((n, replace(x, extent=fn(x.extent))) for n, x in s.reduced),
    )


def rename_statement(s: Statement, tensors: Mapping[str, str]) -> Statement:
    """The statement with tensors renamed, its target included."""
    s = map_statement(s, lambda e: rename_tensors(e, tensors))
    t = s.assign.target
    return replace(s, assign=replace(s.assign, target=replace(t, name=tensors.get(t.name, t.name))))


# ------------------------------------------------------------------------------------------------ programs


def dead(op: BoundOp) -> BoundOp:
    """Without the statements whose results no output needs, and without temporaries that nobody writes any more."""
    need = {t.name for t in op.outputs}
    # Backwards to a fixed point: in a recurrence an earlier statement may be read by a later one of the group.
    while True:
        more = {load.tensor for s in op.body if s.target in need for load in statement_loads(s)} - need
        if not more:
            break
        need |= more
    body = tuple(s for s in op.body if s.target in need)
    return replace(op, body=body, temps=tuple(t for t in op.temps if t.name in need))


def _canonical(s: Statement, t: Tensor) -> tuple[object, ...] | None:
    """What a statement computes, whatever its target and indices are called; None when it is not a plain definition."""
    a = s.assign
    if a.mode != "=" or a.guard is not None or s.recur is not None:
        return None
    order = plain_indices(a.target.index)
    if order is None or set(order) != {x.name for x in s.axes}:
        return None
    axes = {x.name: x for x in s.axes}
    names: dict[str, Expr] = {}
    rows: list[tuple[bool, Expr]] = []
    for i, n in enumerate((*order, *(m for m, _ in s.reduced))):
        x = s.axis(n) if n not in axes else axes[n]
        names[n] = ref(Axis(f"@{i}", x.extent, x.pack))
        rows.append((x.pack, x.extent))
    return (
        tuple((d.extent, d.pack, d.keep) for d in t.dims),
        t.dtype,
        t.like,
        tuple(rows),
        len(order),
        rename_indices(a.value, names),
    )


def cse(op: BoundOp) -> BoundOp:
    """One statement for temporaries that are defined alike."""
    while True:
        writes = Counter(s.target for s in op.body)
        temps = {t.name: t for t in op.temps}
        last = {s.target: i for i, s in enumerate(op.body)}
        seen: dict[tuple[object, ...], str] = {}
        same: dict[str, str] = {}
        for i, s in enumerate(op.body):
            if s.target not in temps or writes[s.target] > 1:
                continue
            t = temps[s.target]
            if any(last.get(x.tensor, -1) > i for x in statement_loads(s)):
                continue
            key = _canonical(s, t)
            if key is None:
                continue
            if key in seen:
                same[s.target] = seen[key]
            else:
                seen[key] = s.target
        if not same:
            return op
        body = tuple(rename_statement(s, same) for s in op.body if s.target not in same)
        op = replace(op, body=body, temps=tuple(t for t in op.temps if t.name not in same))


def is_costly(x: Expr) -> bool:
    """A call of exp and the like."""
    return isinstance(x, Call) and x.fn in FUNCTIONS and FUNCTIONS[x.fn].ulp > 0.5 and _dtype(x).is_inexact


def reuse(op: BoundOp) -> BoundOp:
    """Read temporaries where later statements compute the same calls again over the same indices."""
    writes = Counter(s.target for s in op.body)
    temps = {t.name: t for t in op.temps}
    last = {s.target: i for i, s in enumerate(op.body)}
    known: dict[Expr, tuple[Load, dict[str, Expr]]] = {}
    body: list[Statement] = []
    for i, s in enumerate(op.body):
        axes = {a.name: a.extent for a in s.axes} | {n: a.extent for n, a in s.reduced}

        def put(x: Expr, axes: dict[str, Expr] = axes) -> Expr:
            if x in known:
                load, extents = known[x]
                if all(axes.get(n) == e for n, e in extents.items()):
                    return load
            return map_children(x, put)

        if known:
            s = replace(s, assign=replace(s.assign, value=put(s.assign.value)))
        body.append(s)
        value = s.assign.value
        if (
            s.target in temps
            and writes[s.target] == 1
            and is_costly(value)
            and _covers(s, temps[s.target]) is not None
            and not any(last.get(x.tensor, -1) > i for x in statement_loads(s))
        ):
            known[value] = (
                Load(s.target, s.assign.target.index, dtype=value.dtype),
                {a.name: a.extent for a in s.axes},
            )
    return replace(op, body=tuple(body))


def _cheap(x: Expr) -> bool:
    """A literal, name, or load behind casts: as quick to repeat as to look up."""
    while isinstance(x, Call) and x.fn not in FUNCTIONS and len(x.args) == 1:
        x = x.args[0]
    return isinstance(x, (Num, Name)) or (isinstance(x, Load) and plain_indices(x.index) is not None)


def _covers(s: Statement, t: Tensor) -> tuple[str, ...] | None:
    """The index variables of a plain definition of the whole of `t`, else None."""
    a = s.assign
    order = plain_indices(a.target.index)
    if a.mode != "=" or a.guard is not None or s.recur is not None or order is None:
        return None
    if set(order) != {x.name for x in s.axes}:
        return None
    dims = [d for d in t.dims if not d.keep]
    if len(dims) != len(order) or any(s.axis(n).extent != d.extent for n, d in zip(order, dims, strict=True)):
        return None
    return order


def _scope_ok(s: Statement, use: Load, t: Tensor, exact: bool) -> bool:
    """Whether the value of `t` may stand where `use` does: plainly indexed over its own extents, evaluated as often."""
    names = plain_indices(use.index)
    if names is None:
        return False
    dims = [d for d in t.dims if not d.keep]
    if any(s.axis(n).extent != d.extent for n, d in zip(names, dims, strict=True)):
        return False
    return not exact or set(names) == {a.name for a in s.axes} | {n for n, _ in s.reduced}


def inline(op: BoundOp) -> BoundOp:
    """Put the values of temporaries in place of their loads where that costs nothing.

    Copies and casts always; a pointwise value where it is read once and as often as it was written; a reduction where
    a whole statement is that one load.
    """
    while True:
        done = _inline_one(op)
        if done is None:
            return op
        op = done


def _inline_one(op: BoundOp) -> BoundOp | None:
    writes = Counter(s.target for s in op.body)
    temps = {t.name: t for t in op.temps}
    uses: dict[str, list[tuple[int, Load]]] = {}
    for i, s in enumerate(op.body):
        for x in statement_loads(s):
            uses.setdefault(x.tensor, []).append((i, x))
    for d in (*(d.expr for d in op.dims if d.expr is not None), *(r.expr for r in op.rules)):
        for x in loads(d):
            uses.setdefault(x.tensor, []).append((-1, x))
    last = {s.target: i for i, s in enumerate(op.body)}
    for i, s in enumerate(op.body):
        name = s.target
        if name not in temps or writes[name] > 1 or name not in uses:
            continue
        t = temps[name]
        order = _covers(s, t)
        if order is None or any(j <= i for j, _ in uses[name]):
            continue
        # The value must mean the same at its use: nothing it reads is updated in between.
        if any(last.get(x.tensor, -1) > i for x in statement_loads(s)):
            continue
        value = s.assign.value
        users = {j for j, _ in uses[name]}
        if isinstance(value, Reduce):
            if len(uses[name]) != 1:
                continue
            j, use = uses[name][0]
            user = op.body[j]
            if (
                user.assign.value != use
                or not _scope_ok(user, use, t, exact=True)
                or user.reduced
                or user.recur
            ):
                continue
            # As `normal.py` has it: a reduction stands in a plain definition or in an update of its own kind.
            if user.assign.guard is not None or (user.assign.mode, value.kind) not in (
                ("=", value.kind),
                ("+=", "sum"),
                ("*=", "prod"),
            ):
                continue
        elif _cheap(value):
            if not all(_scope_ok(op.body[j], x, t, exact=False) for j, x in uses[name]):
                continue
        else:
            if len(uses[name]) != 1:
                continue
            j, use = uses[name][0]
            user = op.body[j]
            in_index = [x for e in user.assign.target.index for x in loads(e)]
            if not _scope_ok(user, use, t, exact=True) or use in in_index:
                continue
            if max(depth(e) for e in statement_exprs(user)) + depth(value) > _INLINE_DEPTH:
                continue
        body = list(op.body)
        for j in users:
            body[j] = _substitute(body[j], name, order, s)
        del body[i]
        return replace(op, body=tuple(body), temps=tuple(x for x in op.temps if x.name != name))
    return None


def _substitute(user: Statement, name: str, order: tuple[str, ...], definition: Statement) -> Statement:
    """`user` with loads of `name` replaced by its definition's value."""
    taken = {a.name for a in user.axes} | {n for n, _ in user.reduced}
    inner: dict[str, Expr] = {}
    reduced: list[tuple[str, Axis]] = []
    for n, a in definition.reduced:
        new = fresh_name(n, taken)
        taken.add(new)
        inner[n] = ref(Axis(new, a.extent, a.pack))
        reduced.append((new, replace(a, name=new)))

    def put(x: Expr) -> Expr:
        if isinstance(x, Load) and x.tensor == name:
            names = dict(zip(order, x.index, strict=True)) | inner
            return rename_indices(definition.assign.value, names)
        return map_children(x, put)

    s = map_statement(user, put)
    return replace(s, reduced=(*s.reduced, *reduced))


def fresh_name(base: str, taken: Iterable[str]) -> str:
    """`base`, or `base_1`, `base_2` … when that is taken."""
    used = set(taken)
    if base not in used:
        return base
    k = 1
    while f"{base}_{k}" in used:
        k += 1
    return f"{base}_{k}"


def order_axes(s: Statement) -> Statement:
    """Free axes in the order of first appearance: target, then value."""
    seen: list[str] = []
    for e in statement_exprs(s):
        for n in walk(e):
            if isinstance(n, Name) and n.kind in ("index", "packindex") and n.id not in seen:
                seen.append(n.id)
    have = {a.name: a for a in s.axes}
    return replace(
        s, axes=tuple(have[n] for n in seen if n in have) + tuple(a for a in s.axes if a.name not in seen)
    )


def statement(
    name: str,
    index: Sequence[Expr],
    value: Expr,
    axes: Sequence[Axis],
    *,
    mode: str = "=",
    guard: Expr | None = None,
    reduced: Sequence[Axis] = (),
    recur: str | None = None,
) -> Statement:
    """A typed statement; `axes` are its free axes in any order."""
    s = Statement(
        Assign(Target(name, tuple(index)), mode, value, guard),
        tuple(axes),
        tuple((a.name, a) for a in reduced),
        recur,
    )
    return order_axes(s)


def state_extents(op: BoundOp) -> BoundOp:
    """Mark the axes whose extent must be printed (`i in N`), since no plain use in the statement gives it."""
    known = {t.name: t for t in (*op.inputs, *op.outputs)}
    temps = {t.name: t for t in op.temps}
    body: list[Statement] = []
    for s in op.body:
        a = s.assign
        uses: dict[str, set[Expr]] = {}
        reads = [(x.tensor, x.index) for x in statement_loads(s)]
        for name, index in (*reads, (a.target.name, a.target.index)):
            if name not in known:
                continue
            for e, d in zip(index, (d for d in known[name].dims if not d.keep), strict=True):
                n = plain_index(e)
                if n is not None:
                    uses.setdefault(n, set()).add(d.extent)
        known |= {a.target.name: temps[a.target.name]} if a.target.name in temps else {}

        def told(x: Axis, uses: dict[str, set[Expr]] = uses) -> bool:
            return uses.get(x.name) == {x.extent}

        value = a.value
        if isinstance(value, Reduce):
            by_name = dict(s.reduced)
            value = replace(
                value,
                indices=tuple(
                    replace(d, extent=None if told(by_name[d.id]) else by_name[d.id].extent)
                    for d in value.indices
                ),
            )
        body.append(
            replace(
                s,
                assign=replace(a, value=value),
                axes=tuple(replace(x, stated=not told(x)) for x in s.axes),
                reduced=tuple((n, replace(x, stated=not told(x))) for n, x in s.reduced),
            )
        )
    return replace(op, body=tuple(body))


def simplify(op: BoundOp) -> BoundOp:
    """The program with folded expressions, no unread and no repeated statements, and no needless temporaries."""
    while True:
        before = op
        op = replace(op, body=tuple(map_statement(s, fold) for s in op.body))
        op = inline(reuse(cse(dead(op))))
        if op == before:
            return state_extents(op)
