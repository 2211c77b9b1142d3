"""Mutants of `compute`: small edits of a meaning that the cases and laws must tell from the original.

A mutant is killed when, on some case, its value and the original's lie further apart than both radii allow.  One that
no longer binds, or prints as the original, is stillborn and not counted.  The share killed says how strong the cases
are; survivors are listed, to be looked at by a person.

May import: generator.expr, generator.spec.  To add an edit: a branch in `_edits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..generator.expr import (
    And,
    Assign,
    Bin,
    Block,
    Call,
    Cmp,
    Expr,
    If,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Stmt,
    Un,
    show,
    show_block,
)
from ..generator.spec import OpSpec

__all__ = ["KillRate", "Mutant", "kill_rate", "mutants"]

_SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_OPPOSITE = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "//"}
_REDUCED = {
    "max": "min",
    "min": "max",
    "sum": "max",
    "prod": "sum",
    "any": "all",
    "all": "any",
    "argmax": "argmin",
    "argmin": "argmax",
}
_FUNCTIONS = {
    "exp": "expm1",
    "expm1": "exp",
    "log": "log1p",
    "log1p": "log",
    "sin": "cos",
    "cos": "sin",
    "tanh": "sigmoid",
    "sigmoid": "tanh",
    "floor": "ceil",
    "ceil": "floor",
    "round": "trunc",
    "trunc": "round",
    "sqrt": "rsqrt",
    "rsqrt": "sqrt",
    "max": "min",
    "min": "max",
    "erf": "tanh",
    "abs": "sign",
}


@dataclass(frozen=True)
class Mutant:
    """One edit: the spec that it makes, what was done, and where."""

    spec: OpSpec
    what: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


@dataclass(frozen=True)
class KillRate:
    """Of `total` mutants (stillborn ones apart), those killed, and the survivors by description."""

    total: int
    killed: int
    stillborn: int
    survivors: tuple[str, ...]

    @property
    def rate(self) -> float:
        return self.killed / self.total if self.total else 0.0

    def to_json(self) -> dict[str, Any]:
        counts = {"total": self.total, "killed": self.killed, "stillborn": self.stillborn}
        return counts | {"survivors": list(self.survivors)}


def _edits(x: Expr) -> Iterator[tuple[Expr, str]]:
    """Edits of the root of an expression."""
    match x:
        case Bin(op=op, left=left, right=right):
            if op in ("+", "-", "*", "/"):
                yield left, f"dropped `{op} {show(right)}`"
            if op in ("+", "*"):
                yield right, f"dropped `{show(left)} {op}`"
            if op in _OPPOSITE:
                yield replace(x, op=_OPPOSITE[op]), f"`{op}` became `{_OPPOSITE[op]}` in `{show(x)}`"
        case Num(value=bool()):
            return
        case Num(value=v) if v == v and abs(v) != float("inf"):
            yield replace(x, value=v + 1), f"`{show(x)}` became `{v + 1}`"
            if v != 1:  # a count or exponent of 0 often changes the shape, which no case would let pass
                yield replace(x, value=v - 1), f"`{show(x)}` became `{v - 1}`"
        case Cmp(op=op) if op in _SWAPPED:
            yield replace(x, op=_SWAPPED[op]), f"`{op}` became `{_SWAPPED[op]}` in `{show(x)}`"
        case Reduce(kind=kind) if kind in _REDUCED:
            yield replace(x, kind=_REDUCED[kind]), f"`{kind}` became `{_REDUCED[kind]}` in `{show(x)}`"
        case Call(fn=fn, args=args):
            if fn in _FUNCTIONS:
                yield replace(x, fn=_FUNCTIONS[fn]), f"`{fn}` became `{_FUNCTIONS[fn]}`"
            if fn in ("max", "min"):
                for arg in args:
                    yield arg, f"`{show(x)}` became `{show(arg)}`"
        case And(xs=xs) | Or(xs=xs):
            for k, part in enumerate(xs):
                rest = xs[:k] + xs[k + 1 :]
                yield (replace(x, xs=rest) if len(rest) > 1 else rest[0]), f"dropped `{show(part)}`"
        case Not(x=inner):
            yield inner, f"dropped `not` of `{show(inner)}`"
        case Un(op="-", x=inner):
            yield inner, f"dropped `-` of `{show(inner)}`"
        case Select(then=then, other=other):
            yield then, f"always `{show(then)}`"
            yield other, f"always `{show(other)}`"
        case Load(index=index):
            for k in range(len(index) - 1):
                one, two = index[k], index[k + 1]
                if isinstance(one, Name) and isinstance(two, Name) and one != two:
                    swapped = (*index[:k], two, one, *index[k + 2 :])
                    yield replace(x, index=swapped), f"swapped `{show(one)}` and `{show(two)}` in `{show(x)}`"


def _with(x: Expr, name: str, value: Any) -> Expr:
    changes: dict[str, Any] = {name: value}
    return replace(x, **changes)


def _variants(x: Expr) -> Iterator[tuple[Expr, str, int]]:
    """Every expression one edit away, what was done, and the line."""
    for edited, what in _edits(x):
        yield edited, what, x.span.line if x.span else 0
    for f in fields(x):
        if f.name in ("span", "dtype"):
            continue
        value = getattr(x, f.name)
        if isinstance(value, Expr):
            for child, what, line in _variants(value):
                yield _with(x, f.name, child), what, line
        elif isinstance(value, tuple):
            for k, entry in enumerate(value):
                if isinstance(entry, Expr):
                    for child, what, line in _variants(entry):
                        yield _with(x, f.name, (*value[:k], child, *value[k + 1 :])), what, line


def _statement_variants(st: Stmt) -> Iterator[tuple[Stmt, str, int]]:
    if isinstance(st, If):
        for block, what, line in _block_variants(st.then):
            yield replace(st, then=block), what, line
        for block, what, line in _block_variants(st.orelse):
            yield replace(st, orelse=block), what, line
        return
    for value, what, line in _variants(st.value):
        yield replace(st, value=value), what, line
    if st.guard is not None:
        for guard, what, line in _variants(st.guard):
            yield replace(st, guard=guard), what, line
        yield replace(st, guard=None), f"dropped the guard `{show(st.guard)}`", st.span.line if st.span else 0


def _block_variants(block: Block) -> Iterator[tuple[Block, str, int]]:
    for k, st in enumerate(block):
        for edited, what, line in _statement_variants(st):
            yield (*block[:k], edited, *block[k + 1 :]), what, line
        updates = isinstance(st, Assign) and st.mode != "="
        if updates and len(block) > 1:
            yield (*block[:k], *block[k + 1 :]), "dropped the update", st.span.line if st.span else 0


def mutants(spec: OpSpec) -> list[Mutant]:
    """All specs one edit of `compute` away, in the order of the text; no two print alike."""
    seen = {show_block(spec.compute)}
    out = []
    for block, what, line in _block_variants(spec.compute):
        text = show_block(block)
        if text not in seen:
            seen.add(text)
            out.append(Mutant(replace(spec, compute=block, compute_text=text), what, line))
    return out


def kill_rate(
    spec: OpSpec, distinguishes: Callable[[OpSpec], bool | None], *, limit: int | None = None
) -> KillRate:
    """Count the mutants that `distinguishes` tells from the original; its answer None means stillborn.

    limit: at most so many, spread evenly over the text.
    """
    every: Sequence[Mutant] = mutants(spec)
    if limit is not None and len(every) > limit:
        step = len(every) / limit
        every = [every[int(k * step)] for k in range(limit)]
    killed = stillborn = 0
    survivors = []
    for mutant in every:
        answer = distinguishes(mutant.spec)
        if answer is None:
            stillborn += 1
        elif answer:
            killed += 1
        else:
            survivors.append(str(mutant))
    return KillRate(len(every) - stillborn, killed, stillborn, tuple(survivors))
