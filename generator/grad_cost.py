"""What a program costs at given sizes, and that a gradient is a small multiple of its forward.

May import: expr, bound, types, simplify, errors.  To add what counts: a case of `cost`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .bound import BoundOp
from .errors import GradError
from .expr import (
    FUNCTIONS,
    Bin,
    Call,
    Decl,
    Expr,
    Fold,
    Item,
    Load,
    Name,
    Num,
    Reduce,
    Select,
    Star,
    Un,
    children,
)
from .grad_rules import WEIGHT_OF_CALL, is_cast
from .normal import free_indices

__all__ = ["Cost", "check_cost", "cost"]


@dataclass(frozen=True)
class Cost:
    """Operations of a program at given extents: additions and the like; calls (exp …); elements of temporaries."""

    plain: int = 0
    calls: int = 0
    elements: int = 0

    @property
    def total(self) -> int:
        """One call counts as eight plain operations."""
        return self.plain + WEIGHT_OF_CALL * self.calls


Sizes = Mapping[str, int | Sequence[int]]


def cost(op: BoundOp, sizes: Sizes, attrs: Mapping[str, int | float] | None = None) -> Cost:
    """What `op` costs at `sizes` (dim -> extent, pack -> extents) when nothing is computed more often than needed.

    Each part of a statement counts once for each value of the indices it depends on; conditions narrow nothing.
    """
    extents: dict[str, int | tuple[int, ...]] = {
        k: int(v) if isinstance(v, int) else tuple(int(e) for e in v) for k, v in sizes.items()
    }
    values = dict(attrs or {})
    for d in op.dims:
        if d.name not in extents and d.expr is not None:
            extents[d.name] = _extent(d.expr, extents, values)
    plain = calls = elements = 0
    for s in op.body:
        axes = {a.name: a.extent for a in s.axes} | {n: a.extent for n, a in s.reduced}
        size = {n: _extent(e, extents, values) for n, e in axes.items()}

        def times(names: Iterable[str], size: dict[str, int] = size) -> int:
            return math.prod(size[n] for n in names)

        seen: set[Expr] = set()

        def count(x: Expr, seen: set[Expr] = seen, times: Callable[[Iterable[str]], int] = times) -> None:
            nonlocal plain, calls
            if x in seen:
                return
            seen.add(x)
            match x:
                case Load() | Decl() | Star():
                    return
                case Reduce(body=b, indices=ds):
                    plain += times(free_indices(x) | {d.id for d in ds})
                    count(b)
                    return
                case Call(fn=fn) if fn in FUNCTIONS and FUNCTIONS[fn].ulp > 0.5:
                    calls += times(free_indices(x))
                case Bin() | Un() | Call() | Select() if (
                    x.dtype is not None and x.dtype.is_inexact and not is_cast(x)
                ):
                    plain += times(free_indices(x))
            for c in children(x):
                count(c)

        for e in (s.assign.value, *([s.assign.guard] if s.assign.guard is not None else [])):
            count(e)
        if s.assign.mode != "=":
            plain += times(a.name for a in s.axes)
    for t in op.temps:
        elements += math.prod(_extent(d.extent, extents, values) for d in t.dims if not d.keep)
    return Cost(plain, calls, elements)


def _extent(x: Expr, sizes: Mapping[str, int | tuple[int, ...]], attrs: Mapping[str, int | float]) -> int:
    """The value of an extent; of a pack, the product of its axes."""
    match x:
        case Num(value=v):
            return int(v)
        case Name(id=n) if n in sizes:
            have = sizes[n]
            return have if isinstance(have, int) else math.prod(have)
        case Name(id=n) if n in attrs:
            return int(attrs[n])
        case Item(id=n, lane=k) if f"{n}[{k}]" in attrs:
            return int(attrs[f"{n}[{k}]"])
        case Fold(kind="prod", body=b):
            return _extent(b, sizes, attrs)
        case Un(op="-", x=a):
            return -_extent(a, sizes, attrs)
        case Bin(op=op, left=a, right=b):
            u, v = _extent(a, sizes, attrs), _extent(b, sizes, attrs)
            match op:
                case "+":
                    return u + v
                case "-":
                    return u - v
                case "*":
                    return u * v
                case "//":
                    return u // v
                case "%":
                    return u % v
        case Call(fn="max", args=args):
            return max(_extent(a, sizes, attrs) for a in args)
        case Call(fn="min", args=args):
            return min(_extent(a, sizes, attrs) for a in args)
    raise ValueError(f"no value for the extent `{x!r}`")


def check_cost(
    forward: BoundOp,
    gradient: BoundOp,
    sizes: Sizes,
    attrs: Mapping[str, int | float] | None = None,
    *,
    factor: float = 4.0,
) -> float:
    """Cost of the gradient over that of the forward.  Raises GradError when it is more than `factor`."""
    f, g = cost(forward, sizes, attrs), cost(gradient, sizes, attrs)
    ratio = g.total / max(f.total, 1)
    if ratio > factor:
        raise GradError(
            f"{gradient.name} costs {ratio:.1f} times its forward ({g.total} operations against {f.total})",
            hint="save more (`grad: {save: […]}`), or declare the gradient",
        )
    return ratio
