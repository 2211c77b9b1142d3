"""Which statements share a loop: the tree of loops over axes that lowering walks.

Consecutive statements with the same next axis share one loop over it when every tensor that one of them writes
and another touches is indexed by that axis at the same place (at a neighbouring one along a recurrence).  This one
rule gives pointwise chains, row kernels (softmax, rms_norm), attention and recurrences.

May import: expr, bound, normal, plan, simplify.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .bound import Axis, BoundOp, Statement
from .expr import Bin, Decl, Expr, Name, Num, Reduce, map_children, walk
from .normal import plain_index
from .plan import TILE, Plan, Tiled
from .simplify import loads

__all__ = ["Fused", "Fusion", "Stmt", "independent", "index_names", "renamed", "spots", "twin_ok"]


def index_names(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Name) and n.kind in ("index", "packindex")}


def renamed(x: Expr, names: dict[str, str]) -> Expr:
    """An expression with other index names."""
    match x:
        case Name(id=n, kind="index" | "packindex") if n in names:
            return replace(x, id=names[n])
        case Decl(id=n) if n in names:
            x = replace(x, id=names[n])
    return map_children(x, lambda c: renamed(c, names))


@dataclass
class Stmt:
    """A statement on its way into a nest: index names may change, nothing else.

    scan: the axis along which it is a running reduction.
    """

    number: int
    st: Statement
    text: str
    scan: str | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.st.axes

    def names(self) -> set[str]:
        return {a.name for a in self.st.axes} | {n for n, _ in self.st.reduced}

    def rename(self, old: str, new: str) -> None:
        if old == new:
            return
        names = {old: new}
        if new in self.names():
            other, k = f"{new}_", 0
            while other in self.names() or other == old:
                k += 1
                other = f"{new}_{k}"
            names[new] = other
        a = self.st.assign

        def put(e: Expr) -> Expr:
            return renamed(e, names)

        target = replace(a.target, index=tuple(put(e) for e in a.target.index))
        assign = replace(
            a, target=target, value=put(a.value), guard=None if a.guard is None else put(a.guard)
        )
        axes = tuple(replace(x, name=names.get(x.name, x.name)) for x in self.st.axes)
        reduced = tuple(
            (names.get(n, n), replace(x, name=names.get(x.name, x.name))) for n, x in self.st.reduced
        )
        recur = None if self.st.recur is None else names.get(self.st.recur, self.st.recur)
        self.scan = None if self.scan is None else names.get(self.scan, self.scan)
        self.st = Statement(assign, axes, reduced, recur)

    def exprs(self) -> tuple[Expr, ...]:
        a = self.st.assign
        return (*a.target.index, a.value, *((a.guard,) if a.guard is not None else ()))

    def accesses(self) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
        """(tensor, index, written) of everything the statement touches."""
        yield self.st.target, self.st.assign.target.index, True
        for e in self.exprs():
            for x in loads(e):
                yield x.tensor, x.index, False


@dataclass
class Fused:
    axis: Axis
    stmts: list[Stmt]
    children: list[Stmt | Fused]
    tile: int = 0


def _at(e: Expr, axis: str, back: bool) -> bool:
    """Whether an index entry is the axis, or (`back`) the axis some places off."""
    if plain_index(e) == axis:
        return True
    return (
        back
        and isinstance(e, Bin)
        and e.op in "+-"
        and plain_index(e.left) == axis
        and isinstance(e.right, Num)
    )


def spots(index: tuple[Expr, ...], axis: str, back: bool) -> set[int]:
    return {k for k, e in enumerate(index) if _at(e, axis, back)}


class Fusion:
    def __init__(self, choice: Plan) -> None:
        self.plan = choice

    def tiled_at(self, s: Stmt, depth: int) -> Tiled | None:
        t = self.plan.tiled.get(s.number)
        return t if t is not None and depth == len(s.axes) - 1 else None

    def blocked_at(self, s: Stmt, depth: int) -> bool:
        b = self.plan.blocked.get(s.number)
        return b is not None and b.depth == depth

    def fuse(self, stmts: Sequence[Stmt], depth: int, in_tile: bool = False) -> list[Stmt | Fused]:
        out: list[Stmt | Fused] = []
        run: list[Stmt] = []

        def close() -> None:
            if run:
                out.extend(self.loop(list(run), depth, in_tile) if depth < len(run[0].axes) else run)
                run.clear()

        for s in stmts:
            if not (run and self.joins(run, s, depth, in_tile)):
                close()
            else:
                s.rename(s.axes[depth].name, run[0].axes[depth].name)
            run.append(s)
        close()
        return out

    def loop(self, run: list[Stmt], depth: int, in_tile: bool) -> list[Stmt | Fused]:
        axis = run[0].axes[depth]
        if in_tile and self.blocked_at(run[0], depth):
            return [Fused(axis, run, list(run))]
        if not in_tile and any(self.tiled_at(s, depth) or self.blocked_at(s, depth) for s in run):
            return [Fused(axis, run, self.fuse(run, depth, in_tile=True), TILE)]
        return [Fused(axis, run, self.fuse(run, depth + 1))]

    def joins(self, run: list[Stmt], s: Stmt, depth: int, in_tile: bool) -> bool:
        if depth >= len(s.axes) or depth >= len(run[0].axes):
            return False
        have, mine = run[0].axes[depth], s.axes[depth]
        if have.pack != mine.pack or have.extent != mine.extent:
            return False
        if in_tile and self.blocked_at(run[0], depth):
            return s.number in self.plan.blocked[run[0].number].members
        if in_tile and self.blocked_at(s, depth):
            return False
        if in_tile and (self.tiled_at(s, depth) or any(self.tiled_at(r, depth) for r in run)):
            return False
        # A chain that stays parallel is not folded into one that must run serially.
        together = s.st.recur == mine.name or any(r.st.recur == have.name for r in run)
        # What only reads a running value takes it where it is made.
        scans = any(r.scan == have.name for r in run) and all(s.scan is None or r.scan for r in run)
        if not (together or scans) and independent(run, have.name) != independent([s], mine.name):
            return False
        touched: dict[str, list[tuple[set[int], bool]]] = {}
        for stmt, name in [*((r, have.name) for r in run), (s, mine.name)]:
            for tensor, index, written in stmt.accesses():
                touched.setdefault(tensor, []).append((spots(index, name, together), written))
        mine_touch = {t for t, _, _ in s.accesses()}
        theirs = {t for r in run for t, _, _ in r.accesses()}
        for tensor in mine_touch & theirs:
            uses = touched[tensor]
            if any(w for _, w in uses) and not set.intersection(*(spots for spots, _ in uses)):
                return False
        return True


def independent(stmts: Sequence[Stmt], axis: str) -> bool:
    """Whether iterations along `axis` touch different elements of everything that is written."""
    if any(axis in (s.st.recur, s.scan) for s in stmts):
        return False
    written = {s.st.target for s in stmts}
    where: dict[str, set[int]] = {}
    for s in stmts:
        for tensor, index, _ in s.accesses():
            if tensor in written:
                here = spots(index, axis, False)
                where[tensor] = where[tensor] & here if tensor in where else here
    return all(where[t] for t in written)


def twin_ok(op: BoundOp, groups: list[list[Stmt | Fused]], out: str, inp: str) -> bool:
    """Whether `out` may be the very tensor `inp`: each element is read before, or exactly where, it is written."""
    a, b = op.tensor(out), op.tensor(inp)
    if a.dtype is not b.dtype or [d for d in a.dims if not d.keep] != list(b.dims):
        return False
    order: list[tuple[int, Stmt, list[Fused]]] = []

    def go(nodes: Sequence[Stmt | Fused], path: list[Fused], nest: int) -> None:
        for n in nodes:
            if isinstance(n, Stmt):
                order.append((nest, n, path))
            else:
                go(n.children, [*path, n], nest)

    for i, g in enumerate(groups):
        go(g, [], i)
    writes = [k for k, (_, s, _) in enumerate(order) if s.st.target == out]
    for k, (nest, s, path) in enumerate(order):
        for tensor, index, _ in s.accesses():
            if tensor != inp:
                continue
            for w in writes:
                w_nest, ws, w_path = order[w]
                if nest < w_nest:
                    continue
                if nest > w_nest:
                    return False
                target = ws.st.assign.target.index
                shared = [p for p, q in zip(path, w_path, strict=False) if p is q]
                same_row = all(
                    spots(index, p.axis.name, False) & spots(target, p.axis.name, False) for p in shared
                )
                if not same_row:
                    return False
                here = (
                    index == target and ws.st.assign.mode == "=" and not isinstance(s.st.assign.value, Reduce)
                )
                if k > w or (k == w and not here):
                    return False
    return True
