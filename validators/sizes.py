"""Held-out sizes: how large the extents of drawn calls are, beyond what any list of tested shapes holds.

A kernel may treat a long axis in another way than a short one (vectors, unrolling, blocks, threads), so every operator
is judged on rungs of a ladder, at extents that the seed draws: one less and one more than whole vectors, the neighbours
of a power of two among them, and any.

May import: numpy.  To add a rung: a row in `RUNGS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["RUNGS", "Rung", "cut", "grown", "rung_of"]

Rng = np.random.Generator
Shape = tuple[int, ...]
#: Lanes of the widest vector that kernels use.
LANES = 16
TAILS = 3


@dataclass(frozen=True)
class Rung:
    """Extents from `low` up to and without `high`.

    elements  what a call on it may hold
    chain     long enough to tell a sum in one chain, whose roundings of equal numbers all go one way: such numbers are
              drawn there, and few others
    few       one call for each extent that can grow, no more: they are dear
    """

    low: int
    high: int
    why: str
    elements: int = 1 << 16
    chain: bool = False
    few: bool = False

    def draw(self, rng: Rng, tail: int) -> int:
        """An extent.  tail: 0 one lane less than whole vectors, 1 one more, 2 any, of which some are whole."""
        powers = [1 << k for k in range(32) if self.low < 1 << k < self.high - 1]
        if tail % TAILS < 2 and powers and rng.random() < 0.5:  # where blocks and buffers end
            return int(rng.choice(powers)) + (1 if tail % TAILS else -1)
        n = int(rng.integers(self.low, self.high - LANES))
        match tail % TAILS:
            case 0:
                return n - n % LANES + LANES - 1
            case 1:
                return n - n % LANES + LANES + 1
        return n


RUNGS: tuple[Rung, ...] = (
    Rung(65, 256, "above a vector times the unrolling"),
    Rung(257, 1000, "above a block of the blocked sums"),
    Rung(1001, 4000, "in the thousands"),
    Rung(65535, 70000, "beyond what 16 bits count", elements=1 << 18, chain=True),
    Rung(4001, 1 << 15, "beyond blocks of caches and scratch memory", elements=1 << 17, few=True),
)


def rung_of(source: str) -> Rung | None:
    """The rung that a case is made on, by its name or source (`size2.1`); None where it is made otherwise."""
    rung, _, variant = source.partition("/")[0].removeprefix("size").partition(".")
    return RUNGS[int(rung)] if source.startswith("size") and variant and rung.isdigit() else None


def grown(shape: Shape, n: int, rng: Rng, *, fixed: bool) -> Shape:
    """`shape` with `n` in one axis (more often than not the last), or as a product of two; fixed: its rank is given."""
    rank = len(shape) if fixed else max(1, len(shape))
    small = (*shape, *(2 for _ in range(rank - len(shape))))
    if not small:
        return shape
    if rank >= 2 and rng.random() < 0.3:
        first = int(rng.integers(3, max(4, math.isqrt(n))))
        axis = int(rng.integers(rank - 1))
        return (*small[:axis], first, n // first + 1, *small[axis + 2 :])
    axis = rank - 1 if rng.random() < 0.6 else int(rng.integers(rank))
    return (*small[:axis], n, *small[axis + 1 :])


def cut(value: int | Shape, cap: int) -> int | Shape:
    """The extents that do not grow, none above `cap`."""
    return min(value, cap) if isinstance(value, int) else tuple(min(e, cap) for e in value)
