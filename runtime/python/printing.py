"""`repr` of a Tensor: numbers in columns, long axes cut in the middle, the dtype; the shape where it is not seen.

May import: `.load`.  To print a kind of number in another way: `_columns`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["text"]

#: A tensor of more elements shows this many at either end of each axis.
WHOLE, EDGE = 1000, 3
WIDTH, DIGITS = 80, 4
HEAD = "tensor("

_Nested = Any  # a number, or a list of such; `None` in a list stands for what is left out


def text(x: Any) -> str:
    """What `repr(x)` gives."""
    cut = x.size > WHOLE
    shown = _shown(x, EDGE) if cut else x.tolist()
    numbers = [n for n in _flat(shown) if n is not None]
    body = _lines(shown, x.ndim, _columns(numbers), len(HEAD))
    shape = str(list(x.shape)) if cut or not x.size else ""
    return f"{HEAD}{body}, {x.dtype}{shape})"


def _shown(x: Any, edge: int) -> _Nested:
    """The elements near the ends of each axis."""
    if x.ndim == 0:
        return x.item()
    n = x.shape[0]
    if n <= 2 * edge:
        return [_shown(x[k], edge) for k in range(n)]
    return [
        *(_shown(x[k], edge) for k in range(edge)),
        None,
        *(_shown(x[k], edge) for k in range(n - edge, n)),
    ]


def _flat(nested: _Nested) -> Iterator[Any]:
    if isinstance(nested, list):
        for item in nested:
            yield from _flat(item)
    else:
        yield nested


def _columns(numbers: list[Any]) -> Callable[[Any], str]:
    """How each of these numbers is written, all as wide."""
    if numbers and isinstance(numbers[0], complex):
        real, imag = _columns([z.real for z in numbers]), _columns([abs(z.imag) for z in numbers])
        return lambda z: (
            f"{real(z.real)}{'-' if math.copysign(1, z.imag) < 0 else '+'}{imag(abs(z.imag)).strip()}j"
        )
    write: Callable[[Any], str] = str
    if numbers and isinstance(numbers[0], float):
        write = _floats([abs(v) for v in numbers if math.isfinite(v)])
    width = max((len(write(n)) for n in numbers), default=0)
    return lambda n: write(n).rjust(width)


def _floats(sizes: list[float]) -> Callable[[float], str]:
    """Whole numbers as such; a few digits behind the point; powers of ten where numbers are far apart."""
    some = [v for v in sizes if v]
    high, low = max(some, default=1.0), min(some, default=1.0)
    if all(v == int(v) for v in sizes):
        pattern = "{:.0f}." if high < 1e8 else f"{{:.{DIGITS}e}}"
    else:
        pattern = f"{{:.{DIGITS}e}}" if high >= 1e8 or low < 1e-4 or high / low > 1000 else f"{{:.{DIGITS}f}}"
    return lambda v: pattern.format(v) if math.isfinite(v) else str(v)


def _lines(nested: _Nested, rank: int, write: Callable[[Any], str], indent: int) -> str:
    if rank == 0:
        return write(nested).strip()
    if rank == 1:
        items = ["..." if n is None else write(n) for n in nested]
        width = max((len(i) for i in items), default=0) + 2
        per_line = max((WIDTH - indent - 1) // width, 1)
        rows = [", ".join(items[k : k + per_line]) for k in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    parts = ["..." if n is None else _lines(n, rank - 1, write, indent + 1) for n in nested]
    between = "," + "\n" * (rank - 1) + " " * (indent + 1)
    return "[" + between.join(parts) + "]"
