"""Which float arithmetic of a program may not be contracted: that whose result is rounded to an integer.

`floor(i * s - 0.5)` is another integer where the product is not rounded, so what feeds a floor, a cast to an integer
or a remainder, at once or through scalars and temporaries, is printed as the spec writes it.  Sums over an axis are
not followed: their order is free, so their rounding is too.

May import: expr, loops.  To add an operation that sees how its argument rounds: `expr.rounds_to_integer`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..expr import Bin, Expr, rounds_to_integer, walk
from ..loops import Elem, Let, Local, LoopProgram, ScanStep, Set, Store, Var

__all__ = ["uncontracted"]


def uncontracted(p: LoopProgram) -> frozenset[Expr]:
    """The sums and differences of `p` that stay two operations."""
    parts = list(_parts((p.sizes, p.rules, p.nests)))
    kept: set[Expr] = set()
    feeds: set[str] = set()

    def keep(x: Expr) -> None:
        for n in walk(x):
            if isinstance(n, Bin) and n.op in "+-":
                kept.add(n)
            elif isinstance(n, Local | Elem):
                feeds.add(_name(n))

    for x in parts:
        if isinstance(x, Expr):
            for n in walk(x):
                if rounds_to_integer(n):
                    keep(n)
    size = -1
    while feeds and size != len(feeds):
        size = len(feeds)
        for x in parts:
            match x:
                case Let(name=to, value=v) | Var(name=to, value=v) | Set(name=to, value=v):
                    pass
                case ScanStep(into=to, value=v):
                    pass
                case Store(target=Elem(tensor=to), value=v):
                    pass
                case _:
                    continue
            if to in feeds:
                keep(v)
    return frozenset(kept)


def _name(x: Local | Elem) -> str:
    return x.id.split(".")[0] if isinstance(x, Local) else x.tensor


def _parts(x: object) -> Iterator[object]:
    """All statements and whole expressions of a piece of a loop program."""
    if isinstance(x, Expr):
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from _parts(part)
    elif dataclasses.is_dataclass(x):
        yield x
        for f in dataclasses.fields(x):
            yield from _parts(getattr(x, f.name))
