"""Integer expressions over symbols: the extents, strides and offsets of a program.

An `IntExpr` is a polynomial in canonical form over *atoms*: names (a symbol, or a scalar register) and opaque
operations that no polynomial holds (`floordiv mod max min`).  Equal polynomials are equal objects, so "are these two
extents the same?" is `==`; two expressions that are equal for a deeper reason compare unequal, and callers must
stay right then (`views.py` copies).

JSON form (docs/internals.md): an int, a name, or `[op, a, b]` with op in `add sub mul floordiv mod max min`.
May import: the standard library only.  To add an operation: a row in `_FUNCTIONS`, its simplification in `_binary`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

__all__ = ["IntExpr", "floordiv", "maximum", "minimum", "mod", "product"]

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


@dataclass(frozen=True)
class Opaque:
    """`op(left, right)` where no polynomial says the same."""

    op: str
    left: IntExpr
    right: IntExpr

    @cached_property
    def key(self) -> str:
        return f"~{self.op}({self.left},{self.right})"


Atom: TypeAlias = str | Opaque
Monomial: TypeAlias = tuple[Atom, ...]  # sorted by `_key`; a repeated atom is a power; () is the constant


def _key(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.key


def _monomial_key(m: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(m), tuple(_key(a) for a in m))


@dataclass(frozen=True)
class IntExpr:
    """A canonical integer polynomial.  Build it by `of`, `name`, operators and the functions of this module."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    # ---- building

    @staticmethod
    def of(value: int | str | IntExpr) -> IntExpr:
        """An int, a name, or an expression as it is."""
        if isinstance(value, IntExpr):
            return value
        if isinstance(value, str):
            return IntExpr((((value,), 1),))
        return IntExpr((((), value),)) if value else IntExpr(())

    @staticmethod
    def _from(terms: Mapping[Monomial, int]) -> IntExpr:
        kept = [(m, c) for m, c in terms.items() if c]
        return IntExpr(tuple(sorted(kept, key=lambda t: _monomial_key(t[0]))))

    def __add__(self, other: int | IntExpr) -> IntExpr:
        terms = dict(self.terms)
        for m, c in IntExpr.of(other).terms:
            terms[m] = terms.get(m, 0) + c
        return IntExpr._from(terms)

    def __neg__(self) -> IntExpr:
        return IntExpr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: int | IntExpr) -> IntExpr:
        return self + (-IntExpr.of(other))

    def __mul__(self, other: int | IntExpr) -> IntExpr:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in IntExpr.of(other).terms:
                mn = tuple(sorted(m + n, key=_key))
                terms[mn] = terms.get(mn, 0) + c * d
        return IntExpr._from(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    # ---- reading

    @property
    def value(self) -> int | None:
        """The number, when it is one."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    def __bool__(self) -> bool:
        raise TypeError("an extent has no truth value: compare it")

    def names(self) -> frozenset[str]:
        """Every symbol and register that it reads."""
        out: set[str] = set()
        for m, _ in self.terms:
            for a in m:
                out |= {a} if isinstance(a, str) else a.left.names() | a.right.names()
        return frozenset(out)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Its value; `env` gives every name (KeyError otherwise)."""
        total = 0
        for m, c in self.terms:
            for a in m:
                c *= (
                    env[a]
                    if isinstance(a, str)
                    else _FUNCTIONS[a.op](a.left.evaluate(env), a.right.evaluate(env))
                )
            total += c
        return total

    def rename(self, names: Mapping[str, str | int | IntExpr]) -> IntExpr:
        """Names replaced; those that are not in `names` stay."""
        if not self.names() & names.keys():
            return self
        total = IntExpr.of(0)
        for m, c in self.terms:
            term = IntExpr.of(c)
            for a in m:
                if isinstance(a, str):
                    term = term * IntExpr.of(names.get(a, a))
                else:
                    term = term * _binary(a.op, a.left.rename(names), a.right.rename(names))
            total = total + term
        return total

    def exact_div(self, other: IntExpr) -> IntExpr | None:
        """The polynomial q with `q * other == self`, when there is one."""
        if not other.terms:
            return None
        (lead, coefficient), quotient, rest = other.terms[0], IntExpr.of(0), self
        while rest.terms:
            m, c = rest.terms[0]
            left = list(m)
            for a in lead:
                if a not in left:
                    return None
                left.remove(a)
            if c % coefficient:
                return None
            part = IntExpr(((tuple(left), c // coefficient),))
            quotient, rest = quotient + part, rest - part * other
        return quotient

    # ---- text

    def to_json(self) -> Any:
        """An int, a name, or `[op, a, b]`."""
        if self.value is not None:
            return self.value
        out: Any = None
        for m, c in self.terms:
            factors: list[Any] = [] if abs(c) == 1 and m else [abs(c)]
            factors += [a if isinstance(a, str) else [a.op, a.left.to_json(), a.right.to_json()] for a in m]
            term = factors[0]
            for f in factors[1:]:
                term = ["mul", term, f]
            if out is None:
                out = term if c > 0 else ["sub", 0, term]
            else:
                out = ["add" if c > 0 else "sub", out, term]
        return out

    @staticmethod
    def from_json(data: Any) -> IntExpr:
        """Reads what `to_json` writes, and any other tree of the same operations.  Raises ValueError."""
        if isinstance(data, bool) or not isinstance(data, int | str | list | tuple):
            raise ValueError(f"not an integer expression: {data!r}")
        if isinstance(data, int | str):
            return IntExpr.of(data)
        if len(data) != 3 or data[0] not in _FUNCTIONS:
            raise ValueError(f"not an integer expression: {data!r}")
        return _binary(data[0], IntExpr.from_json(data[1]), IntExpr.from_json(data[2]))

    def __str__(self) -> str:
        """`4*s0*s1 + 1`: what a person reads."""
        out = ""
        for m, c in self.terms:
            factors = [] if abs(c) == 1 and m else [str(abs(c))]
            factors += [a if isinstance(a, str) else _show(a) for a in m]
            text = "*".join(factors)
            out = (f"{out} {'+' if c > 0 else '-'} {text}") if out else (text if c > 0 else f"-{text}")
        return out or "0"

    __repr__ = __str__


def _show(a: Opaque) -> str:
    if a.op in ("max", "min"):
        return f"{a.op}({a.left}, {a.right})"
    return f"({a.left} {'//' if a.op == 'floordiv' else '%'} {a.right})"


def _binary(op: str, a: IntExpr, b: IntExpr) -> IntExpr:
    if op == "add":
        return a + b
    if op == "sub":
        return a - b
    if op == "mul":
        return a * b
    x, y = a.value, b.value
    if x is not None and y is not None and not (op in ("floordiv", "mod") and y == 0):
        return IntExpr.of(_FUNCTIONS[op](x, y))
    if op in ("max", "min"):
        difference = (a - b).value
        if difference is not None:
            return a if (difference >= 0) == (op == "max") else b
        low, high = sorted((a, b), key=str)  # one spelling of a symmetric operation
        return IntExpr((((Opaque(op, low, high),), 1),))
    exact = a.exact_div(b)
    if exact is not None:
        return exact if op == "floordiv" else IntExpr.of(0)
    if y:  # (y*q + r) // y == q + r // y, whatever r is
        whole = IntExpr._from({m: c // y for m, c in a.terms if c % y == 0})
        rest = IntExpr._from({m: c for m, c in a.terms if c % y})
        if whole.terms:
            return (whole if op == "floordiv" else IntExpr.of(0)) + _binary(op, rest, b)
    return IntExpr((((Opaque(op, a, b),), 1),))


def floordiv(a: IntExpr, b: IntExpr) -> IntExpr:
    """Floor division; the divisor is taken to be non-zero."""
    return _binary("floordiv", a, b)


def mod(a: IntExpr, b: IntExpr) -> IntExpr:
    """`a - b * floordiv(a, b)`."""
    return _binary("mod", a, b)


def maximum(a: IntExpr, b: IntExpr) -> IntExpr:
    return _binary("max", a, b)


def minimum(a: IntExpr, b: IntExpr) -> IntExpr:
    return _binary("min", a, b)


def product(xs: Iterable[IntExpr]) -> IntExpr:
    """1 for nothing."""
    out = IntExpr.of(1)
    for x in xs:
        out = out * x
    return out
