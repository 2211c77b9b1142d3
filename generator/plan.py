"""Choices of lowering: which statements become which loops, per target.  Deleting a choice never changes an answer.

`loops.py` asks this module and nothing else; a choice is data (`Plan`), so that a tuner or a spec's `lower:`
may make it.

Classes
  rows     the default: statements fused on their shared index prefix, one row of them after the other
  scanned  a reduction over all places up to (or from) its last free index: one running value along that axis
  tiled    a reduction whose last free index `n` runs along memory while the reduced index does not need to: the
           outputs of `TILE` values of `n` are accumulated together (sums over leading axes)
  contract a sum of products with separable indices, with what is done to its sums: tiles, packed factors,
           microkernels (contract.py)

May import: expr, bound, normal, contract.  To add a class: its test here, its loops in `loops.py`, its case in
tests/generator/test_loops.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .bound import BoundOp, Statement
from .contract import TILE, Blocked, Contraction, blocked, contraction, separate
from .expr import Bin, Cmp, Expr, Load, Name, Num, Reduce, Select, walk
from .normal import identity, plain_index

__all__ = ["TILE", "Plan", "Scanned", "Tiled", "plan"]


@dataclass(frozen=True)
class Tiled:
    """A tiled reduction: `n` the free index along the tile, `k` the reduced one, `probe` the load whose
    strides decide.
    """

    n: str
    k: str
    probe: Load


@dataclass(frozen=True)
class Scanned:
    """A running reduction along the free index `i` of what its reduced index `j` ran over; `back`: from the end."""

    i: str
    j: str
    back: bool


@dataclass(frozen=True)
class Plan:
    """What was chosen for one program: `target` is `cpu` or `cuda`; the rest is keyed by statement number.

    contract  a contraction, with the numbers of all statements of its nest
    blocked   a contraction inside a row kernel, which then takes a block of rows at a time
    """

    target: str
    tiled: Mapping[int, Tiled] = field(default_factory=dict)
    contract: Mapping[int, tuple[Contraction, tuple[int, ...]]] = field(default_factory=dict)
    scanned: Mapping[int, Scanned] = field(default_factory=dict)
    blocked: Mapping[int, Blocked] = field(default_factory=dict)


def plan(op: BoundOp, target: str) -> Plan:
    """The default choices for a Normal program."""
    if target == "cuda":
        return Plan(target)
    found = {
        i: c
        for i, s in enumerate(op.body)
        if scanned_reduction(s) is None and (c := contraction(s)) is not None
    }
    contract = {i: (found[i], members) for i, members in separate(op, found).items()}
    inside = blocked(op, {i: c for i, c in found.items() if i not in contract})
    tiled: dict[int, Tiled] = {}
    scanned: dict[int, Scanned] = {}
    for i, s in enumerate(op.body):
        scan = scanned_reduction(s)
        t = tiled_reduction(s)
        if scan is not None:
            scanned[i] = scan
        elif t is not None and i not in contract and i not in inside:
            tiled[i] = t
    return Plan(target, tiled, contract, scanned, inside)


def _names(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Name) and n.kind in ("index", "packindex")}


def tiled_reduction(s: Statement) -> Tiled | None:
    """The tile of a plain `y[…, n] = sum[k](…)` that has a load moving along both, else None."""
    a = s.assign
    if (
        not isinstance(a.value, Reduce)
        or a.value.kind != "sum"
        or a.mode != "="
        or a.guard is not None
        or s.recur
    ):
        return None
    if len(s.reduced) != 1 or s.reduced[0][1].pack or not a.target.index or not s.axes:
        return None
    n = plain_index(a.target.index[-1])
    k = s.reduced[0][0]
    if n is None or s.axes[-1].name != n or s.axes[-1].pack:
        return None
    body = a.value.body
    assert body.dtype is not None
    if not body.dtype.is_inexact:
        return None
    # Under a condition on both, columns of the tile would end at different places; rows narrow their loop instead.
    if any(isinstance(x, Select) and {n, k} <= _names(x.test) for x in walk(body)):
        return None
    product = (
        isinstance(body, Bin) and body.op == "*" and (n in _names(body.left)) != (n in _names(body.right))
    )
    for x in walk(body):
        if (
            isinstance(x, Load)
            and any(plain_index(e) == n for e in x.index)
            and any(k in _names(e) for e in x.index)
        ):
            # A sum that is no product reads each element once: it follows memory, which runs along the last index.
            return Tiled(n, k, x) if product or plain_index(x.index[-1]) == n else None
    return None


def scanned_reduction(s: Statement) -> Scanned | None:
    """The running value of `y[…, i] = sum[j](f(j) if j <= i else 0)` (any fold; `j >= i` runs back), else None."""
    a = s.assign
    if not isinstance(a.value, Reduce) or a.mode != "=" or a.guard is not None or s.recur:
        return None
    body = a.value.body
    if a.value.kind in ("argmax", "argmin") or len(s.reduced) != 1 or not s.axes:
        return None
    if not isinstance(body, Select) or not isinstance(body.test, Cmp) or body.dtype is None:
        return None
    j, over = s.reduced[0]
    i = s.axes[-1]
    if i.pack or over.pack or over.extent != i.extent or plain_index(a.target.index[-1]) != i.name:
        return None
    unit = identity(a.value.kind, body.dtype)
    if not (isinstance(body.other, Num) and body.other.value == unit.value):
        return None
    ends = (plain_index(body.test.left), plain_index(body.test.right))
    if body.test.op not in ("<=", ">=") or set(ends) != {i.name, j} or i.name in _names(body.then):
        return None
    return Scanned(i.name, j, (body.test.op == ">=") == (ends[0] == j))
