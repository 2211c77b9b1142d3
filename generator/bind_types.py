"""Typing: the dtype of every expression of a statement (the first floor of `bind.py`).

Rules, in the order they are tried
  1. A load has its tensor's dtype; a cast (a type variable or a dtype name) has the one it names.
  2. Literals, extents, indices and attributes are *weak*: beside a strong operand they take its dtype.  Weak integers
     alone are i64, weak floats f64; `/` of weak integers is a weak float.
  3. Two strong integers widen to the larger; any other two strong dtypes that differ are an error: cast one.
  4. No arithmetic on half types: widen with `A(…)` first (moves, comparisons, max, min and
     negation are exact and allowed).
  5. What is stored must have the target's dtype (rounding is written in the spec, as a cast); updates of a half-typed
     target may be in its accumulator: `normal.py` rounds once.

May import: expr, types, bound, errors.  To add a function: its typing in `Typing.call`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NoReturn

from .bound import (
    Attr,
    Axis,
    Dim,
    StaticValue,
    Tensor,
)
from .errors import BindError, did_you_mean
from .expr import (
    FUNCTIONS,
    And,
    Assign,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    If,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Span,
    Star,
    Str,
    Target,
    Un,
    show,
)
from .types import (
    DType,
    complex_of,
    exact_in,
    promote,
    real_of,
)

__all__ = ["HALF", "Env", "Ty", "Typing"]


@dataclass(frozen=True)
class Ty:
    """Type of an expression while binding: its dtype, and whether it adapts to what stands beside it."""

    dtype: DType
    weak: bool = False


@dataclass
class Env:
    """Names of one spec at one key."""

    spec_name: str
    file: str
    vars: dict[str, DType]
    static: dict[str, StaticValue]
    absent: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)  # inputs and attributes whose presence may be asked
    attrs: dict[str, Attr] = field(default_factory=dict)
    told: dict[str, tuple[object, ...]] = field(
        default_factory=dict
    )  # attribute -> values with kernels of their own
    attr_exprs: dict[str, Expr] = field(
        default_factory=dict
    )  # absent attribute -> its default expression (unbound)
    attr_len: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    dims: dict[str, Dim] = field(default_factory=dict)  # bound dims, in dependency order
    list_dims: dict[str, int] = field(default_factory=dict)  # dim of a list input -> number of entries
    lanes: dict[str, tuple[Expr, ...]] = field(default_factory=dict)  # static pack -> its bound extents
    tensors: dict[str, Tensor] = field(default_factory=dict)


HALF = (DType.F16, DType.BF16)
_ARITH = ("+", "-", "*", "/", "//", "%", "**")
CASTS = {d.value for d in DType}
#: dtypes of literals that were rounded as written; a weak literal is an f64, an i64 or a bool
_ROUNDING = (DType.F16, DType.BF16, DType.F32)


class Typing:
    """Gives every expression its dtype; holds the names in scope."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.temps: dict[str, Tensor] = {}
        self.indices: dict[str, Axis] = {}
        self.lane_index: dict[str, tuple[Name, ...]] = {}
        self.order: list[str] = []

    # ------------------------------------------------------------------------------------------ errors
    def fail(self, at: Expr | Target | Assign | If | None, what: str, hint: str = "") -> NoReturn:
        span: Span | None = getattr(at, "span", None)
        raise BindError(f"{self.env.spec_name}: {what}", place=span.place if span else None, hint=hint)

    def unknown(self, at: Expr, name: str) -> NoReturn:
        if name in self.env.absent:
            self.fail(
                at,
                f"`{name}` is absent in this call and read all the same",
                f"guard it: `… if {name} is not None else …`",
            )
        self.fail(at, f"no tensor `{name}`", did_you_mean(name, self.env.tensors, what="tensors"))

    def index_expr(self, e: Expr) -> Expr:
        """A bound index entry: `Star(Name(packindex))`, a `Name(index)`, or an i64 expression."""
        match e:
            case Star(x=Name(id=n)):
                return Star(
                    Name(n, kind="packindex", dtype=DType.I64, span=e.span), dtype=DType.I64, span=e.span
                )
            case Decl(id=n, pack=True):
                return Star(
                    Name(n, kind="packindex", dtype=DType.I64, span=e.span), dtype=DType.I64, span=e.span
                )
            case Decl(id=n):
                return Name(n, kind="index", dtype=DType.I64, span=e.span)
        x, ty = self.typed(e)
        if ty.dtype is DType.BOOL or ty.dtype.is_complex:
            self.fail(e, f"an index is an integer, `{show(e)}` is {ty.dtype}")
        return x if ty.dtype is DType.I64 else self.cast(x, DType.I64)

    # ------------------------------------------------------------------------------------------ typing
    def cast(self, x: Expr, to: DType) -> Expr:
        if x.dtype is to:
            return x
        if isinstance(x, Num):
            if not to.is_inexact and isinstance(x.value, float) and math.isinf(x.value):
                # ±inf where numbers are finite: the type's own extreme
                extreme = int(to.max if x.value > 0 else to.min)
                return Num(bool(extreme) if to is DType.BOOL else extreme, dtype=to, span=x.span)
            # Rule 9: `A(T(0.1))` rounds where it says T; only a number that T holds is the same number in A.
            if x.dtype in _ROUNDING and math.isfinite(x.value) and not exact_in(x.value, x.dtype):
                return Call(to.value, (x,), dtype=to, span=x.span)
            return Num(x.value, dtype=to, span=x.span)
        if isinstance(x, Select) and not to.is_inexact and any(_infinite(e) for e in (x.then, x.other)):
            return replace(x, then=self.cast(x.then, to), other=self.cast(x.other, to), dtype=to)
        return Call(to.value, (x,), dtype=to, span=x.span)

    @staticmethod
    def fits(weak: DType, strong: DType) -> bool:
        """Whether a weak operand may become this strong dtype."""
        if weak is DType.BOOL:
            return True
        if weak.is_integer:
            return True
        return strong.is_inexact

    def unify(self, at: Expr, parts: list[tuple[Expr, Ty]]) -> tuple[list[Expr], Ty]:
        strong = [(x, t) for x, t in parts if not t.weak]
        if not strong:
            best = parts[0][1].dtype
            for _, t in parts[1:]:
                best = promote(best, t.dtype) if best is not t.dtype else best
            ty = Ty(best, True)
        else:
            best = strong[0][1].dtype
            for x, t in strong[1:]:
                if t.dtype is best:
                    continue
                if t.dtype.is_integer and best.is_integer:
                    best = promote(best, t.dtype)
                else:
                    self.fail(
                        at,
                        f"`{show(strong[0][0])}` is {best} and `{show(x)}` is {t.dtype}",
                        "cast one of them",
                    )
            for x, t in parts:
                if t.weak and not self.fits(t.dtype, best):
                    if isinstance(x, Num) and isinstance(x.value, float) and math.isinf(x.value):
                        continue
                    self.fail(
                        at,
                        f"`{show(x)}` is a float beside `{show(strong[0][0])}`, which is {best}",
                        "cast one of them",
                    )
            ty = Ty(best)
        return [self.cast(x, ty.dtype) for x, _ in parts], ty

    def as_bool(self, x: Expr) -> tuple[Expr, Ty]:
        y, ty = self.typed(x)
        if ty.dtype is not DType.BOOL:
            self.fail(x, f"a condition is bool, `{show(x)}` is {ty.dtype}", "compare it: `… != 0`")
        return y, ty

    def no_half(self, at: Expr, ty: Ty, what: str) -> None:
        if ty.dtype in HALF:
            acc = [v for v, d in self.env.vars.items() if d is DType.F32]
            self.fail(
                at,
                f"{what} on {ty.dtype} would round at every step",
                f"widen first: `{acc[0] if acc else 'f32'}(…)`",
            )

    def typed(self, x: Expr) -> tuple[Expr, Ty]:
        y, ty = self._typed(x)
        if y.dtype is not ty.dtype:
            y = replace(y, dtype=ty.dtype)
        return y, ty

    def _typed(self, x: Expr) -> tuple[Expr, Ty]:
        env = self.env
        match x:
            case Decl(id=n, pack=False):  # `min(i in N, M - 1)`: what is stated was noted before
                return self._typed(Name(n, span=x.span))
            case Num(value=v):
                if x.dtype is not None:
                    return x, Ty(x.dtype)
                d = DType.BOOL if isinstance(v, bool) else DType.I64 if isinstance(v, int) else DType.F64
                return replace(x, dtype=d), Ty(d, d is not DType.BOOL)
            case Name(id=n):
                if n in self.indices and not self.indices[n].pack:
                    return Name(n, kind="index", dtype=DType.I64, span=x.span), Ty(DType.I64, True)
                if n in env.dims and not env.dims[n].pack:
                    return Name(n, kind="dim", dtype=DType.I64, span=x.span), Ty(DType.I64, True)
                if n in env.attrs:
                    a = env.attrs[n]
                    if a.kind in ("axes", "ints", "floats"):
                        self.fail(
                            x, f"`{n}` is a list", "take its lanes in a pack expression, or an entry `{n}[0]`"
                        )
                    return Name(n, kind="attr", dtype=a.dtype, span=x.span), Ty(a.dtype, True)
                if n == "pi":
                    return Num(math.pi, dtype=DType.F64, span=x.span), Ty(DType.F64, True)
                if n in env.tensors:
                    self.fail(x, f"`{n}` is a tensor", f"index it: `{n}[…]` (`{n}[()]` when it has no axes)")
                if n in env.dims or n in self.indices:
                    self.fail(
                        x,
                        f"`{n}` is a pack of unknown rank",
                        "use it whole: `*b`, linear(*b), prod(B), rank(B)",
                    )
                self.fail(x, f"unknown name `{n}`", self.near(n))
            case Item(id=n, lane=k):
                a = env.attrs[n]
                d = DType.F64 if a.kind == "floats" else DType.I64
                return Item(n, k, "attr", dtype=d, span=x.span), Ty(d, True)
            case Load(tensor=t, index=ix):
                have = env.tensors.get(t)
                if have is None:
                    self.unknown(x, t)
                return Load(t, tuple(self.index_expr(e) for e in ix), dtype=have.dtype, span=x.span), Ty(
                    have.dtype
                )
            case Call():
                return self.call(x)
            case Un(op="-", x=a):
                y, ty = self.typed(a)
                if ty.dtype is DType.BOOL:
                    self.fail(x, "`-` of a bool")
                return Un("-", y, span=x.span), ty
            case Un(op="~", x=a):
                y, ty = self.typed(a)
                if ty.dtype.is_inexact:
                    self.fail(x, f"`~` of {ty.dtype}")
                if ty.dtype is DType.BOOL:
                    return Not(y, dtype=DType.BOOL, span=x.span), ty
                return Un("~", y, span=x.span), ty
            case Bin(op=op, left=a, right=b):
                return self.binary(x, op, a, b)
            case Cmp(op=op, left=a, right=b):
                (l, r), ty = self.unify(x, [self.typed(a), self.typed(b)])
                if ty.dtype.is_complex and op not in ("==", "!="):
                    self.fail(x, "complex numbers have no order")
                return Cmp(op, l, r, span=x.span), Ty(DType.BOOL)
            case And(xs=xs):
                return And(tuple(self.as_bool(e)[0] for e in xs), span=x.span), Ty(DType.BOOL)
            case Or(xs=xs):
                return Or(tuple(self.as_bool(e)[0] for e in xs), span=x.span), Ty(DType.BOOL)
            case Not(x=a):
                return Not(self.as_bool(a)[0], span=x.span), Ty(DType.BOOL)
            case Select(test=t, then=a, other=b):
                test, _ = self.as_bool(t)
                (l, r), ty = self.unify(x, [self.typed(a), self.typed(b)])
                return Select(test, l, r, span=x.span), ty
            case Fold(kind="prod", body=Name(id=n)):
                return Fold("prod", Name(n, kind="pack", dtype=DType.I64), span=x.span), Ty(DType.I64, True)
            case Reduce(kind=kind, indices=ds, body=b):
                y, ty = self.typed(b)
                if kind in ("any", "all"):
                    if ty.dtype is not DType.BOOL:
                        self.fail(x, f"`{kind}` reduces bools, got {ty.dtype}")
                elif kind in ("sum", "prod"):
                    self.no_half(x, ty, f"`{kind}`")
                    if ty.dtype is DType.BOOL:
                        self.fail(x, f"`{kind}` of bools", "write `1 if … else 0`")
                elif ty.dtype.is_complex:
                    self.fail(x, "complex numbers have no order")
                out = DType.I64 if kind in ("argmax", "argmin") else ty.dtype
                decls = tuple(
                    Decl(
                        d.id,
                        d.pack,
                        self.indices[d.id].extent if d.extent is not None else None,
                        dtype=DType.I64,
                        span=d.span,
                    )
                    for d in ds
                )
                return Reduce(kind, decls, y, span=x.span), Ty(out)
            case Str():
                self.fail(x, "a string is only compared with a static attribute")
        self.fail(x, f"`{show(x)}` does not stand here")

    def near(self, n: str) -> str:
        return did_you_mean(n, [*self.env.dims, *self.env.attrs, *self.env.tensors, *self.indices])

    def binary(self, x: Expr, op: str, a: Expr, b: Expr) -> tuple[Expr, Ty]:
        left, right = self.typed(a), self.typed(b)
        if op in ("&", "|", "^", "<<", ">>"):
            (l, r), ty = self.unify(x, [left, right])
            if ty.dtype.is_inexact:
                self.fail(x, f"`{op}` of {ty.dtype}", "a power is `**`" if op == "^" else "")
            if ty.dtype is DType.BOOL:
                if op == "&":
                    return And((l, r), span=x.span), ty
                if op == "|":
                    return Or((l, r), span=x.span), ty
                if op == "^":
                    return Cmp("!=", l, r, span=x.span), ty
                self.fail(x, f"`{op}` of bools")
            return Bin(op, l, r, span=x.span), ty
        if op == "/":
            if left[1].weak and right[1].weak:
                l, r = self.cast(left[0], DType.F64), self.cast(right[0], DType.F64)
                return Bin("/", l, r, span=x.span), Ty(DType.F64, True)
            (l, r), ty = self.unify(x, [left, right])
            if not ty.dtype.is_inexact:
                self.fail(x, f"`/` of {ty.dtype}", "use // for integers, or cast to a float first")
            self.no_half(x, ty, "division")
            return Bin("/", l, r, span=x.span), ty
        if (
            op == "**"
            and right[1].weak
            and isinstance(right[0], Num)
            and isinstance(right[0].value, int)
            and not left[1].weak
        ):
            self.no_half(x, left[1], "`**`")
            return Bin("**", left[0], right[0], span=x.span), left[1]
        if (
            op == "**"
            and left[1].weak
            and right[1].weak
            and not (
                left[1].dtype is DType.I64
                and isinstance(right[0], Num)
                and isinstance(right[0].value, int)
                and right[0].value >= 0
            )
        ):
            return Bin("**", self.cast(left[0], DType.F64), self.cast(right[0], DType.F64), span=x.span), Ty(
                DType.F64, True
            )
        (l, r), ty = self.unify(x, [left, right])
        if ty.dtype is DType.BOOL:
            self.fail(x, f"`{op}` of bools", "cast to an integer, or use & | ^")
        self.no_half(x, ty, f"`{op}`")
        if op in ("//", "%") and ty.dtype.is_complex:
            self.fail(x, f"`{op}` of complex numbers")
        return Bin(op, l, r, span=x.span), ty

    def call(self, x: Call) -> tuple[Expr, Ty]:
        fn, args = x.fn, x.args
        env = self.env
        to = env.vars.get(fn) or (DType(fn) if fn in CASTS else None)
        if to is not None:
            if len(args) != 1:
                self.fail(x, f"cast `{fn}(…)` takes one value")
            y, _ = self.typed(args[0])
            return (self.cast(y, to) if y.dtype is not to else y), Ty(to)
        if fn not in FUNCTIONS:
            self.fail(x, f"no function `{fn}`", did_you_mean(fn, [*FUNCTIONS, *env.vars]))
        lo, hi = FUNCTIONS[fn].arity
        if not lo <= len(args) <= hi:
            self.fail(x, f"`{fn}` takes {lo if lo == hi else f'{lo} to {hi}'} arguments, got {len(args)}")
        if fn == "linear":
            star = args[0]
            assert isinstance(star, Star) and isinstance(star.x, Name)
            if star.x.id not in self.indices:
                self.fail(x, f"`{star.x.id}` is not an index here")
            return Call(
                fn, (Star(Name(star.x.id, kind="packindex", dtype=DType.I64), dtype=DType.I64),), span=x.span
            ), Ty(DType.I64, True)
        if fn == "lane":
            b, k = args
            if not isinstance(b, Name) or b.id not in self.indices:
                self.fail(x, "`lane(b, d)` takes a pack index")
            kk, ty = self.typed(k)
            return Call(fn, (Name(b.id, kind="packindex", dtype=DType.I64), kk), span=x.span), Ty(
                DType.I64, True
            )
        if fn == "rank":
            b = args[0]
            if not isinstance(b, Name) or b.id not in env.dims:
                self.fail(x, "`rank(B)` takes a pack")
            return Call(fn, (Name(b.id, kind="pack", dtype=DType.I64),), span=x.span), Ty(DType.I64, True)
        parts = [self.typed(a) for a in args]
        if not FUNCTIONS[fn].complex and any(t.dtype.is_complex for _, t in parts):
            self.fail(x, f"`{fn}` of complex numbers", "take `real(…)` and `imag(…)` apart")
        if fn == "philox":
            return Call(fn, tuple(self.cast(p, DType.I64) for p, _ in parts), span=x.span), Ty(DType.I64)
        if fn == "uniform":
            return Call(fn, (self.cast(parts[0][0], DType.I64),), span=x.span), Ty(DType.F32)
        if fn in ("max", "min", "fmax", "fmin", "same", "fmod", "atan2", "pow", "complex"):
            xs, ty = self.unify(x, parts)
            if fn == "same":
                return Call(fn, tuple(xs), span=x.span), Ty(DType.BOOL)
            if fn == "complex":
                return Call(fn, tuple(xs), span=x.span), Ty(complex_of(ty.dtype))
            if fn in ("fmod", "atan2", "pow"):
                self.no_half(x, ty, f"`{fn}`")
            if fn in ("fmod", "pow") and ty.dtype is DType.BOOL:
                self.fail(x, f"`{fn}` of bools", "cast to an integer first: `A(…)`")
            if fn in ("atan2",) and not ty.dtype.is_inexact:
                xs, ty = [self.cast(p, DType.F64) for p in xs], Ty(DType.F64, ty.weak)
            return Call(fn, tuple(xs), span=x.span), ty
        if fn in ("ldexp", "exponent"):
            (y, ty) = parts[0]
            if not ty.dtype.is_float:
                self.fail(x, f"`{fn}` of {ty.dtype}", "cast to a float first: `A(…)`")
            self.no_half(x, ty, f"`{fn}`")
            if fn == "exponent":
                return Call(fn, (y,), span=x.span), Ty(DType.I64)
            k, power = parts[1]
            if not power.dtype.is_integer:
                self.fail(x, f"the power of `ldexp` is an integer, got {power.dtype}")
            return Call(fn, (y, self.cast(k, DType.I64)), span=x.span), ty
        if fn in ("cdiv", "tdiv", "trem", "gcd"):
            xs, ty = self.unify(x, parts)
            if ty.dtype is DType.BOOL:
                self.fail(x, f"`{fn}` of bools", "cast to an integer first: `A(…)`")
            if ty.dtype.is_float and fn not in ("cdiv", "gcd"):
                # of floats they are other functions: trunc(a / b) and fmod
                self.no_half(x, ty, f"`{fn}`")
                if fn == "trem":
                    return Call("fmod", tuple(xs), span=x.span), ty
                return Call("trunc", (Bin("/", xs[0], xs[1], dtype=ty.dtype, span=x.span),), span=x.span), ty
            if ty.dtype.is_inexact:
                self.fail(x, f"`{fn}` divides integers, got {ty.dtype}")
            return Call(fn, tuple(xs), span=x.span), ty
        y, ty = parts[0]
        if fn in ("isnan", "isinf", "isfinite", "signbit"):
            return Call(fn, (y,), span=x.span), Ty(DType.BOOL)
        if fn == "order":
            return Call(fn, (y,), span=x.span), Ty(DType.I64)
        if fn in ("real", "imag"):
            return Call(fn, (y,), span=x.span), Ty(real_of(ty.dtype))
        if fn == "conj":
            return (Call(fn, (y,), span=x.span) if ty.dtype.is_complex else y), ty
        if fn == "abs":
            if ty.dtype is DType.BOOL:
                return y, ty
            return Call(fn, (y,), span=x.span), Ty(real_of(ty.dtype), ty.weak)
        if fn in ("sign", "floor", "ceil", "trunc", "round"):
            if ty.dtype is DType.BOOL or (fn != "sign" and not ty.dtype.is_inexact):
                return y, ty
            return Call(fn, (y,), span=x.span), ty
        if not ty.dtype.is_inexact:
            if not ty.weak:
                self.fail(x, f"`{fn}` of {ty.dtype}", "cast to a float first: `A(…)`")
            y, ty = self.cast(y, DType.F64), Ty(DType.F64, True)
        self.no_half(x, ty, f"`{fn}`")
        return Call(fn, (y,), span=x.span), ty


def _infinite(x: Expr) -> bool:
    """Whether a literal infinity stands here, or may be chosen."""
    if isinstance(x, Select):
        return _infinite(x.then) or _infinite(x.other)
    return isinstance(x, Num) and isinstance(x.value, float) and math.isinf(x.value)
