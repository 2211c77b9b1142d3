"""Local derivatives: of each function by each argument, of a power, a product, an extremum; terms and their sums.

Formulas and subgradients: PyTorch's where a choice exists.

May import: expr, bound, types, simplify, errors.  To add a function: a row in `PARTIALS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .bound import Axis, Statement
from .errors import GradError
from .expr import (
    FUNCTIONS,
    Bin,
    Call,
    Cmp,
    Expr,
    Fold,
    Load,
    Name,
    Num,
    Reduce,
    Select,
    Span,
    Un,
    children,
)
from .normal import free_indices
from .simplify import (
    add,
    call,
    cast,
    cmp,
    div,
    is_zero,
    land,
    lnot,
    mul,
    neg,
    num,
    ref,
    select,
    sub,
)
from .types import DType, accum

__all__ = ["PARTIALS", "NotDifferentiable"]


class NotDifferentiable(GradError):
    """The derivative of this program is not defined, or not in the language yet."""


_LN2, _LN10, _TWO_OVER_SQRT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)

#: Functions whose derivative is zero wherever it exists.
FLAT = frozenset(("sign", "floor", "ceil", "trunc", "round", "uniform", "exponent"))
COMPLEX = frozenset(("complex", "real", "imag", "conj"))


def _bessel_slope(x: Expr, y: Expr) -> Expr:
    """i0e - i1e / x, which at 0 is 1/2."""
    return select(cmp("==", x, num_like(0, x)), num_like(0.5, x), sub(call("i0e", x), div(y, x)))


#: fn -> (x, y, g) -> cotangent of x, for functions of one argument; `y` is the value, `g` the cotangent of it.
PARTIALS: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "exp": lambda x, y, g: mul(g, y),
    "exp2": lambda x, y, g: mul(num_like(_LN2, g), mul(g, y)),
    "expm1": lambda x, y, g: mul(g, add(y, num_like(1, g))),
    "log": lambda x, y, g: div(g, x),
    "log2": lambda x, y, g: div(g, mul(num_like(_LN2, g), x)),
    "log10": lambda x, y, g: div(g, mul(num_like(_LN10, g), x)),
    "log1p": lambda x, y, g: div(g, add(x, num_like(1, g))),
    "sqrt": lambda x, y, g: div(g, mul(num_like(2, g), y)),
    "rsqrt": lambda x, y, g: mul(num_like(-0.5, g), mul(g, mul(y, mul(y, y)))),
    "sin": lambda x, y, g: mul(g, call("cos", x)),
    "cos": lambda x, y, g: neg(mul(g, call("sin", x))),
    "tan": lambda x, y, g: mul(g, add(mul(y, y), num_like(1, g))),
    "asin": lambda x, y, g: div(g, call("sqrt", sub(num_like(1, g), mul(x, x)))),
    "acos": lambda x, y, g: neg(div(g, call("sqrt", sub(num_like(1, g), mul(x, x))))),
    "atan": lambda x, y, g: div(g, add(mul(x, x), num_like(1, g))),
    "sinh": lambda x, y, g: mul(g, call("cosh", x)),
    "cosh": lambda x, y, g: mul(g, call("sinh", x)),
    "tanh": lambda x, y, g: mul(g, sub(num_like(1, g), mul(y, y))),
    "asinh": lambda x, y, g: div(g, call("sqrt", add(mul(x, x), num_like(1, g)))),
    "acosh": lambda x, y, g: div(g, call("sqrt", sub(mul(x, x), num_like(1, g)))),
    "atanh": lambda x, y, g: div(g, sub(num_like(1, g), mul(x, x))),
    "sigmoid": lambda x, y, g: mul(mul(g, y), sub(num_like(1, g), y)),
    "erf": lambda x, y, g: mul(num_like(_TWO_OVER_SQRT_PI, g), mul(g, call("exp", neg(mul(x, x))))),
    "erfc": lambda x, y, g: mul(num_like(-_TWO_OVER_SQRT_PI, g), mul(g, call("exp", neg(mul(x, x))))),
    "erfinv": lambda x, y, g: mul(num_like(1 / _TWO_OVER_SQRT_PI, g), mul(g, call("exp", mul(y, y)))),
    "lgamma": lambda x, y, g: mul(g, call("digamma", x)),
    "digamma": lambda x, y, g: mul(g, call("trigamma", x)),
    "i0e": lambda x, y, g: mul(g, sub(call("i1e", x), mul(call("sign", x), y))),
    "i1e": lambda x, y, g: mul(g, sub(_bessel_slope(x, y), mul(call("sign", x), y))),
    "abs": lambda x, y, g: mul(g, call("sign", x)),
}
#: Those of them that read their value more than once: it gets a name.
VALUE_TWICE = frozenset(("rsqrt", "tan", "tanh", "sigmoid", "erfinv", "i1e"))


def num_like(value: float, like: Expr) -> Num:
    assert like.dtype is not None
    return num(value, like.dtype)


def acc_dtype(x: Expr) -> DType:
    assert x.dtype is not None
    return accum(x.dtype)


def widened(x: Expr) -> Expr:
    return cast(x, acc_dtype(x))


def is_cast(x: Expr) -> bool:
    return isinstance(x, Call) and x.fn not in FUNCTIONS and len(x.args) == 1


def carriers(x: Expr) -> tuple[Expr, ...]:
    """The parts of `x` through which a derivative flows."""
    match x:
        case Un(op="-", x=a):
            return (a,)
        case Bin(op="+" | "-" | "*" | "/" | "**" | "%", left=a, right=b):
            return (a, b)
        case Select(then=a, other=b):
            return (a, b)
        case Reduce(kind="sum" | "prod" | "max" | "min", body=b):
            return (b,)
        case Call(fn="ldexp", args=(a, _)):
            return (a,)
        case Call(fn=fn, args=args):
            return () if fn in FLAT else args
    return ()


@dataclass(frozen=True)
class Term:
    """A cotangent: `g`, for all values of `axes`, where all of `guards` hold (it is zero elsewhere)."""

    g: Expr
    guards: tuple[Expr, ...]
    axes: frozenset[str]


@dataclass
class Scope:
    """Where a statement's derivative is written: its axes, where helper statements go, and their recurrence."""

    axes: dict[str, Axis]
    free: frozenset[str]  # those of them that are not reduced over
    emit: list[Statement]
    name: str  # target of the statement: helpers are named after it
    recur: str | None = None
    span: Span | None = None
    values: dict[Expr, Expr] = field(default_factory=dict)

    def pick(self, names: Iterable[str]) -> list[Axis]:
        wanted = set(names)
        return [a for n, a in self.axes.items() if n in wanted]


@dataclass(frozen=True)
class Gather:
    """A contribution `d_x[names] = g`, for all indices of the tensor."""

    names: tuple[str, ...]
    g: Expr


@dataclass(frozen=True)
class Scatter:
    """A contribution `d_x[index] += g if guard else skip`, for all `axes`."""

    index: tuple[Expr, ...]
    g: Expr
    guard: Expr | None
    axes: tuple[Axis, ...]


Access = Callable[[Sequence[Expr]], Expr]
Leaf = Callable[[Scope, Load, Term], None]

WEIGHT_OF_CALL, SHARE_FROM, SHARE_DEPTH = 8, 8, 24


def weight_of(x: Expr) -> int:
    """A rough count of operations: what decides whether a cotangent that goes two ways gets a name."""
    own = 0
    match x:
        case Bin(op="/" | "**"):
            own = WEIGHT_OF_CALL // 2
        case Call(fn=fn) if fn in FUNCTIONS and FUNCTIONS[fn].ulp > 0:
            own = WEIGHT_OF_CALL
        case Bin() | Un() | Select() | Cmp() | Call():
            own = 1
        case Load():
            return 0
    return own + sum(weight_of(c) for c in children(x))


def plus(a: Expr, b: Expr) -> Expr:
    """Sum of two contributions; a choice between something and nothing joins its complement.

    (That may keep a -0 which a true sum with 0 would turn into +0: no matter in a cotangent.)
    """
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    match a, b:
        case Select(test=s, then=x, other=z), Select(test=t, then=y, other=w) if is_zero(z) and is_zero(w):
            if s == t:
                return select(s, plus(x, y), z)
            if t == lnot(s):
                return select(s, x, y)
    return add(a, b)


def total_of(xs: Sequence[Expr]) -> Expr:
    out = xs[0]
    for x in xs[1:]:
        out = plus(out, x)
    return out


def merged(terms: Sequence[Term]) -> list[Term]:
    """One term for each set of axes: common conditions stay outside, the others become choices."""
    groups: dict[frozenset[str], list[Term]] = {}
    for t in terms:
        groups.setdefault(t.axes, []).append(t)
    out: list[Term] = []
    for axes, ts in groups.items():
        common = tuple(c for c in ts[0].guards if all(c in t.guards for t in ts[1:]))
        parts = [guarded(t.g, [c for c in t.guards if c not in common]) for t in ts]
        out.append(Term(total_of(parts), common, axes))
    return out


def guarded(g: Expr, guards: Sequence[Expr]) -> Expr:
    return select(land(*guards), g, num_like(0, g)) if guards else g


def factored(g: Expr, over: frozenset[str]) -> tuple[list[Callable[[Expr], Expr]], Expr | None]:
    """`g` as factors that do not depend on the indices `over`, to apply to the sum of what is left (None: 1)."""
    if not free_indices(g) & over:
        return [lambda t: mul(g, t)], None
    match g:
        case Un(op="-", x=x):
            outer, inner = factored(x, over)
            return [*outer, neg], inner
        case Bin(op="*", left=a, right=b):
            (o1, i1), (o2, i2) = factored(a, over), factored(b, over)
            inner = i2 if i1 is None else i1 if i2 is None else mul(i1, i2)
            return o1 + o2, inner
        case Bin(op="/", left=a, right=b) if not free_indices(b) & over:
            outer, inner = factored(a, over)
            return [*outer, lambda t: div(t, b)], inner
    return [], g


def power_base(a: Expr, b: Expr, g: Expr) -> Expr:
    """`g * b * a ** (b - 1)`; 0 where b is 0."""
    x = widened(a)
    if isinstance(b, Num):
        n = b.value
        if n == 0:
            return num_like(0, g)
        if n == 1:
            return g
        if n == 2:
            return mul(g, mul(num_like(2, g), x))
        lower = num(n - 1, b.dtype or DType.F64)
        return mul(g, mul(num_like(n, g), Bin("**", x, lower, dtype=g.dtype)))
    e = widened(b)
    one = num(1, b.dtype or DType.F64)
    power = Bin("**", x, cast(Bin("-", b, one, dtype=b.dtype), acc_dtype(b)), dtype=g.dtype)
    return select(
        cmp("==", b, num(0, b.dtype or DType.F64)), num_like(0, g), mul(g, mul(cast(e, acc_dtype(g)), power))
    )


def product_of_others(v: Expr, zero: Expr, rest: Expr, many: Expr, zeros: Expr) -> Expr:
    """The product of all factors but `v`: of those not 0 `rest` is the product, of the others `many` the number.

    `zeros` is the sum of these: 0, with the derivatives that make second derivatives right where a factor is 0.
    """

    def count(k: int) -> Expr:
        return cmp("==", many, num(k, DType.I64))

    o = num_like(0, v)
    when_zero = select(count(1), rest, select(count(2), mul(rest, sub(zeros, v)), o))
    quotient = div(rest, v)
    when_not = select(count(0), quotient, select(count(1), mul(quotient, zeros), o))
    return select(zero, when_zero, when_not)


def one_if(test: Expr) -> Expr:
    """For counting: exact, as an integer."""
    return select(test, num(1, DType.I64), num(0, DType.I64))


def number_of(ties: Expr, dtype: DType) -> Expr:
    """A count of ties to divide by.  It is 0 only beside nan, and where the oracle cannot tell whether values tie."""
    return cast(call("max", ties, num(1, DType.I64)), dtype)


def position_among(axes: Sequence[Axis]) -> Expr:
    """Row-major position of a statement's indices: which of its writes comes when."""
    out: Expr | None = None
    for a in axes:
        if a.pack:
            assert isinstance(a.extent, Name)
            here: Expr = Call("linear", (ref(a),), dtype=DType.I64)
            size: Expr = Fold("prod", a.extent, dtype=DType.I64)
        else:
            here, size = ref(a), a.extent
        out = here if out is None else Bin("+", Bin("*", out, size, dtype=DType.I64), here, dtype=DType.I64)
    return out if out is not None else num(0, DType.I64)
