"""Normal -> Loop: fused trees become nests, with temporaries put where they live.

  place    A temporary lives below the loops that all its users share: as a scalar when nothing else indexes it, in
           a tile on the stack, in the thread's workspace (row buffer), else in the global workspace.
  walk     The leading parallel axes of a nest become one `Walk`: every operand has a stride per axis, merged at run
           time.
  hoist    What does not depend on a loop is computed before it, but no memory is read that a condition guards.
  check    Indices are proven by plain use or by the guard around them; affine ones are checked on the host once; the
           rest in the loop, where a bad one is reported and its access skipped.

Loops, statements and reductions are written here; what a value is at the place where it is written (walk, hoist, check)
is lower_value.py's, and the names are lower_names.py's.

May import: expr, types, bound, normal, simplify, updates, plan, contract, fusion, loops, errors, the `lower_*` modules.
To add a choice of lowering: its class in `plan.py`, its statements here or in a module of its own, as contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from .bound import Axis, BoundOp, Rule, Tensor
from .contract import Contraction, below, block_of_rows, conjuncts, contract_nest, materialise
from .errors import LowerError
from .expr import (
    And,
    Bin,
    Cmp,
    Decl,
    Expr,
    Load,
    Num,
    Reduce,
    Select,
    show,
    show_block,
    walk,
)
from .fusion import Fused, Fusion, Stmt, independent, index_names, renamed, spots, twin_ok
from .loops import (
    Accumulate,
    ArgBegin,
    ArgStep,
    Buffer,
    Elem,
    Fail,
    For,
    If,
    Let,
    Local,
    LoopProgram,
    Nest,
    ScanBegin,
    ScanStep,
    Set,
    Size,
    Store,
    Tile,
    Var,
    Walk,
    WalkAxis,
    verify,
)
from .lower_names import c_name
from .lower_value import Frame, Place, Values, WalkBuild, axis_count, i64, int_bin, int_pick
from .normal import identity, plain_index
from .plan import TILE, Plan, Tiled, plan
from .simplify import dead, inline, loads
from .types import DType
from .updates import normal_updates

__all__ = ["lower"]


class Lowering(Values):
    """Writes the nests of one program."""

    # -------------------------------------------------------------------------------------------- program
    def run(self) -> LoopProgram:
        sizes = tuple(self.size(d.name, d.expr) for d in self.op.dims if d.data and d.expr is not None)
        rules = tuple(self.rule(k, r) for k, r in enumerate(self.op.rules) if r.data)
        stmts = [
            Stmt(i, s, show_block((s.assign,)).rstrip("\n"), x.i if (x := self.plan.scanned.get(i)) else None)
            for i, s in enumerate(self.op.body)
        ]
        groups = self.groups(stmts)
        self.check_recurrences(groups)
        for tensor in self.op.temps:
            self.place(tensor, groups)
        nests = tuple(self.nest(g) for g in groups)
        twins = tuple((o, i) for o, i in self.op.inplace if twin_ok(self.op, groups, o, i))
        return LoopProgram(
            self.op,
            self.plan.target,
            self.names,
            sizes,
            rules,
            tuple(self.checks),
            nests,
            tuple(self.buffers.values()),
            self.splits,
            twins,
        )

    def groups(self, stmts: Sequence[Stmt]) -> list[list[Stmt | Fused]]:
        """Nests in order: contractions with what belongs to them, and the fused rest between them."""
        out: list[list[Stmt | Fused]] = []
        rest: list[Stmt] = []
        inside = {k for _, members in self.plan.contract.values() for k in members}
        for s in stmts:
            if s.number in self.plan.contract:
                out += self.group(Fusion(self.plan).fuse(rest, 0))
                rest = []
                out.append([stmts[k] for k in self.plan.contract[s.number][1]])
            elif s.number not in inside:
                rest.append(s)
        return out + self.group(Fusion(self.plan).fuse(rest, 0))

    def cut(self, group: Sequence[Stmt | Fused]) -> Contraction | None:
        """The contraction that a nest is, else None."""
        first = group[0] if group else None
        found = self.plan.contract.get(first.number) if isinstance(first, Stmt) else None
        return found[0] if found is not None else None

    def is_blocked(self, node: Fused) -> bool:
        """Whether a loop is a contraction over a block of rows."""
        return (
            node.stmts[0].number in self.plan.blocked
            and not node.tile
            and len(node.children) == len(node.stmts)
        )

    def group(self, nodes: Sequence[Stmt | Fused]) -> list[list[Stmt | Fused]]:
        """Nests: each loop is one; consecutive statements without axes share one."""
        out: list[list[Stmt | Fused]] = []
        for n in nodes:
            if isinstance(n, Stmt) and out and isinstance(out[-1][0], Stmt):
                out[-1].append(n)
            else:
                out.append([n])
        return out

    def check_recurrences(self, groups: list[list[Stmt | Fused]]) -> None:
        """Statements that wait for each other along an axis must share the loop over it."""
        paths: dict[int, list[Fused]] = {}

        def go(nodes: Sequence[Stmt | Fused], path: list[Fused]) -> None:
            for n in nodes:
                if isinstance(n, Fused):
                    go(n.children, [*path, n])
                else:
                    paths[n.number] = path

        for g in groups:
            go(g, [])
        for i, s in enumerate(self.op.body):
            for j, d in enumerate(self.op.body):
                if s.recur is None or j < i or not any(x.tensor == d.target for x in loads(s.assign.value)):
                    continue
                shared = [p for p, q in zip(paths[i], paths[j], strict=False) if p is q]
                if not any(st.st.recur == p.axis.name for p in shared for st in p.stmts):
                    raise LowerError(
                        f"{self.op.name}: `{s.target}` and `{d.target}` recur along `{s.recur}`, "
                        "but cannot share its loop",
                        place=s.assign.span.place if s.assign.span else None,
                    )

    def size(self, dim: str, expr: Expr) -> Size:
        self.begin()
        value = self.value(expr)
        return Size(dim, tuple(self.frames[0].out), value)

    def rule(self, which: int, r: Rule) -> Nest:
        self.begin()
        self.extents = {a.name: a for a in r.axes}

        def body() -> None:
            test = self.value(r.expr)
            self.emit(If(test, (), (Fail(which),)))

        self.inside(list(r.axes), body)
        stmts = tuple(self.frames[0].out)
        if not stmts or not isinstance(stmts[-1], Walk) or len(stmts) != 1:
            stmts = (Walk(self.next_walk(), (), (), stmts, "rows", False),)
        return Nest(stmts, i64(1), (f"require {r.text}",), False)

    # -------------------------------------------------------------------------------------------- places
    @staticmethod
    def one_at_a_time(t: Tensor, users: list[Stmt], path: list[Fused]) -> tuple[frozenset[int], set[int]]:
        """The dims of a temporary that need no room, and those that need a tile's: every access is at the iteration
        of a loop that encloses them all.  Within a loop that reads what another iteration wrote (a recurrence), all
        that its inner loops made is still wanted."""
        dropped: set[int] = set()
        tiled: set[int] = set()
        for loop in path:
            name = loop.axis.name
            indices = [ix for s in users for n, ix, _ in s.accesses() if n == t.name]
            common = set.intersection(*(spots(ix, name, False) for ix in indices))
            (tiled if loop.tile else dropped).update(common)
            if not common and any(name in index_names(e) for ix in indices for e in ix):
                break
        return frozenset(dropped), tiled - dropped

    def place(self, t: Tensor, groups: list[list[Stmt | Fused]]) -> None:
        def members(g: Iterable[Stmt | Fused]) -> list[Stmt]:
            return [s for n in g for s in (n.stmts if isinstance(n, Fused) else [n])]

        users = [s for g in groups for s in members(g) if any(n == t.name for n, _, _ in s.accesses())]
        if not users:
            return
        dims = [d for d in t.dims if not d.keep]
        ids = {id(s) for s in users}
        home = next((g for g in groups if ids <= {id(s) for s in members(g)}), None)
        if home is not None and self.cut(home) is not None:
            self.places[t.name] = Place("scalar", frozenset(), self.names[("tensor", t.name)])
            return
        path: list[Fused] = []
        nodes: Sequence[Stmt | Fused] = home or []
        while True:
            inner = next((n for n in nodes if isinstance(n, Fused) and ids <= {id(s) for s in n.stmts}), None)
            if inner is None:
                break
            path.append(inner)
            nodes = inner.children
            if self.is_blocked(inner):
                self.places[t.name] = Place("scalar", frozenset(), self.names[("tensor", t.name)])
                return
        dropped, tiled = self.one_at_a_time(t, users, path)
        kept = [(k, d) for k, d in enumerate(dims) if k not in dropped]
        if home is not None and not kept:
            self.places[t.name] = Place("scalar", dropped, self.names[("tensor", t.name)])
            if not all(self.sole_definition(s) for s in users if s.st.target == t.name):
                owner = id(path[-1]) if path else id(home)
                self.vars.setdefault(owner, []).append(t)
            return
        scope = (
            "global"
            if home is None or t.expand
            else "stack"
            if kept and all(k in tiled for k, _ in kept)
            else "thread"
        )
        if scope == "global":
            dropped, tiled, kept = frozenset(), set(), list(enumerate(dims))
        self.places[t.name] = Place("buffer", dropped)
        self.buffers[t.name] = Buffer(
            t.name,
            t.dtype,
            scope,
            tuple((k, i64(TILE) if k in tiled else d.extent, d.pack) for k, d in kept),
        )

    # -------------------------------------------------------------------------------------------- nests
    def nest(self, group: list[Stmt | Fused]) -> Nest:
        cut = self.cut(group)
        if cut is not None:
            return contract_nest(self, [s for s in group if isinstance(s, Stmt)], cut)
        self.begin()
        stmts = [s for n in group for s in (n.stmts if isinstance(n, Fused) else [n])]
        self.written = {s.st.target for s in stmts}
        chain: list[Fused] = []
        nodes: list[Stmt | Fused] = group
        while (
            len(nodes) == 1
            and isinstance(nodes[0], Fused)
            and independent(nodes[0].stmts, nodes[0].axis.name)
        ):
            chain.append(nodes[0])
            nodes = nodes[0].children
            if chain[-1].tile:
                break
        flat = self.is_flat(nodes) and bool(chain)
        if flat and len(chain) > 1 and self.better_as_rows(nodes, chain[-1].axis.name):
            nodes = [chain.pop()]
            flat = False
        axes = [WalkAxis(x.axis.name, x.axis.extent, x.axis.pack, x.tile) for x in chain]
        mode = "flat" if flat else "rows"
        owner = chain[-1] if chain else group
        self.walk_over(axes, mode, bool(chain), lambda: self.nodes(nodes, owner))
        outer = {a.name for a in axes}
        terms: list[Expr] = []
        for s in stmts:
            reduced = () if s.scan else s.st.reduced  # a running value takes one step a place
            inner = [a for a in (*s.axes, *(r for _, r in reduced)) if a.name not in outer]
            tile = any(a.tile and a.name in {x.name for x in s.axes} for a in axes)
            term: Expr = i64(TILE if tile else 1)
            for a in inner:
                term = int_bin("*", term, axis_count(a))
            terms.append(term)
        while len(terms) > 1:  # a tree: a chain of hundreds is too deep for what walks it
            pairs = [int_bin("+", a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        work = terms[0] if terms else i64(0)
        return Nest(tuple(self.frames[0].out), work, tuple(s.text for s in stmts), bool(chain))

    def is_flat(self, nodes: Sequence[Stmt | Fused]) -> bool:
        return all(isinstance(n, Stmt) and not isinstance(n.st.assign.value, Reduce) for n in nodes)

    def better_as_rows(self, nodes: Sequence[Stmt | Fused], last: str) -> bool:
        """Whether a computed index that does not move along the last axis makes a row loop worth while."""
        for s in nodes:
            assert isinstance(s, Stmt)
            for _, index, _ in s.accesses():
                for e in index:
                    if (
                        plain_index(e) is None
                        and any(isinstance(n, Load) for n in walk(e))
                        and last not in index_names(e)
                    ):
                        return True
        return False

    def walk_over(
        self, axes: Sequence[WalkAxis], mode: str, parallel: bool, body: Callable[[], None]
    ) -> None:
        frame = Frame(walk=WalkBuild(self.next_walk(), list(axes)))
        assert frame.walk is not None
        self.frames.append(frame)
        saved = dict(self.tiles)
        for a in axes:
            if a.tile:
                start = self.walk_value(frame, a)
                frame.vars[a.name] = start
                if isinstance(a.tile, int):
                    self.tile_bounds(a.name, start, a.extent)
            else:
                frame.vars[a.name] = Local("", dtype=DType.I64)
        body()
        self.tiles = saved
        self.frames.pop()
        w = frame.walk
        self.emit(Walk(w.id, tuple(w.axes), tuple(w.operands.values()), tuple(frame.out), mode, parallel))

    def tile_bounds(self, var: str, start: Expr, extent: Expr) -> None:
        name = self.name(f"{var}_len")
        self.emit(Let(name, int_pick("min", i64(TILE), Bin("-", extent, start, dtype=DType.I64))))
        self.tiles[var] = (start, Local(name, dtype=DType.I64))

    # -------------------------------------------------------------------------------------------- trees
    def nodes(self, nodes: Sequence[Stmt | Fused], owner: object = None) -> None:
        for t in self.vars.get(id(owner), ()):
            self.emit(Var(self.places[t.name].local, t.dtype, Num(0, dtype=t.dtype)))
        for n in nodes:
            if isinstance(n, Stmt):
                self.leaf(n)
            else:
                self.loop(n)

    def loop(self, node: Fused) -> None:
        a = node.axis
        flat = self.is_flat(node.children)
        free = independent(node.stmts, a.name)
        if a.pack:
            self.walk_over(
                [WalkAxis(a.name, a.extent, True)],
                "flat" if flat else "rows",
                free,
                lambda: self.nodes(node.children, node),
            )
            return
        if node.tile:
            self.tile_loop(node)
            return
        if a.name in self.tiles and self.is_blocked(node):
            block_of_rows(self, node.stmts, a, self.tiles[a.name])
            return
        only = node.stmts[0]
        t = self.plan.tiled.get(only.number)
        if a.name in self.tiles and len(node.stmts) == 1 and t is not None and only.axes[-1].name == a.name:
            self.tile(only, t)
            return
        lo: Expr = i64(0)
        hi = a.extent
        for s in node.stmts:
            if s.scan == a.name:
                self.scan_begin(s)
        frame = Frame()
        self.frames.append(frame)
        var = self.name(a.name)
        here = Local(var, dtype=DType.I64)
        if a.name in self.tiles:
            _, hi = self.tiles[a.name]
        frame.vars[a.name] = here
        self.nodes(node.children, node)
        self.frames.pop()
        step = -1 if self.descends(node) else 1
        self.emit(
            For(var, lo, hi, tuple(frame.out), ("simd" if flat else "free") if free else "serial", step)
        )

    def descends(self, node: Fused) -> bool:
        """Whether a recurrence reads its own at later places of the axis."""
        axis = node.axis.name
        if any(s.scan == axis and self.plan.scanned[s.number].back for s in node.stmts):
            return True
        if not any(s.st.recur == axis for s in node.stmts):
            return False
        written = {s.st.target for s in node.stmts}
        return any(
            isinstance(e, Bin)
            and e.op == "+"
            and plain_index(e.left) == axis
            and isinstance(e.right, Num)
            and e.right.value > 0
            for s in node.stmts
            for tensor, index, _ in s.accesses()
            if tensor in written
            for e in index
        )

    def tile_loop(self, node: Fused) -> None:
        a = node.axis
        frame = Frame(tile=True)
        self.frames.append(frame)
        var = self.name(f"{a.name}_0")
        here = Local(var, dtype=DType.I64)
        frame.vars[a.name] = here
        saved = dict(self.tiles)
        self.tile_bounds(a.name, here, a.extent)
        self.nodes(node.children, node)
        self.tiles = saved
        self.frames.pop()
        self.emit(For(var, i64(0), a.extent, tuple(frame.out), "serial", TILE))

    def inside(self, axes: list[Axis], body: Callable[[], None]) -> None:
        """`body` in serial loops over `axes`."""
        if not axes:
            body()
            return
        a = axes[0]
        if a.pack:
            self.walk_over(
                [WalkAxis(a.name, a.extent, True)],
                "flat" if len(axes) == 1 else "rows",
                False,
                lambda: self.inside(axes[1:], body),
            )
            return
        frame = Frame()
        self.frames.append(frame)
        var = self.name(a.name)
        frame.vars[a.name] = Local(var, dtype=DType.I64)
        self.inside(axes[1:], body)
        self.frames.pop()
        self.emit(For(var, i64(0), a.extent, tuple(frame.out)))

    # -------------------------------------------------------------------------------------------- statements
    def enter(self, s: Stmt) -> None:
        self.current = s
        self.base_level = len(self.frames) - 1
        self.extents = dict(s.st.reduced) | {a.name: a for a in s.axes}

    def leaf(self, s: Stmt) -> None:
        self.enter(s)
        a = s.st.assign
        t = self.tensors[a.target.name]
        if a.guard is None:
            self.write(t, s)
            return
        test = self.value(a.guard)
        out, _ = self.block(conjuncts(a.guard), lambda: self.write(t, s))
        self.emit(If(test, tuple(out)))

    def write(self, t: Tensor, s: Stmt) -> None:
        a = s.st.assign
        place = self.places.get(t.name)
        if place is not None and place.kind == "scalar":
            value = self.value(a.value)
            if self.sole_definition(s):
                self.emit(Let(place.local, value))
            else:
                self.emit(Set(place.local, a.mode, value))
            return
        target = self.access(t, a.target.index)
        assert isinstance(target, Elem)
        value = self.value(a.value)
        self.emit(Store(target, a.mode, value))

    def sole_definition(self, s: Stmt) -> bool:
        writers = [x for x in self.op.body if x.target == s.st.target]
        return len(writers) == 1 and s.st.assign.mode == "=" and s.st.assign.guard is None

    # -------------------------------------------------------------------------------------------- scans
    def scan_begin(self, s: Stmt) -> None:
        r = s.st.assign.value
        assert isinstance(r, Reduce)
        assert r.dtype is not None
        name = self.name(f"{r.kind}_run")
        self.scans[s.number] = name
        self.emit(ScanBegin(name, r.kind, r.dtype))

    def scan(self, s: Stmt, r: Reduce) -> Expr:
        """The running value at this place: the reduced index is where the loop is."""
        assert s.scan is not None
        assert isinstance(r.body, Select)
        assert r.dtype is not None
        value = self.value(renamed(r.body.then, {r.indices[0].id: s.scan}))
        into = self.name(r.kind)
        self.emit(ScanStep(self.scans[s.number], r.kind, r.dtype, into, value))
        return Local(into, dtype=r.dtype)

    # -------------------------------------------------------------------------------------------- reductions
    def reduce(self, r: Reduce) -> Expr:
        assert r.dtype is not None
        if self.current is not None and self.current.scan is not None:
            return self.scan(self.current, r)
        axes = [self.reduce_axis(d, r) for d in r.indices]
        saved = dict(self.extents)
        self.extents |= {a.name: a for a in axes}
        if r.kind in ("argmax", "argmin"):
            out = self.arg(r, axes)
        else:
            body, bounds = self.narrow(r, axes)
            self.narrowed += bool(bounds)
            out = self.accumulate(r.kind, r.dtype, axes, body, bounds)
            self.narrowed -= bool(bounds)
        self.extents = saved
        return out

    def reduce_axis(self, d: Decl, r: Reduce) -> Axis:
        if self.current is not None and d.id in dict(self.current.st.reduced):
            return dict(self.current.st.reduced)[d.id]
        if d.extent is not None:
            return Axis(d.id, d.extent, d.pack)
        for x in loads(r.body):
            dims = [u for u in self.tensors[x.tensor].dims if not u.keep]
            for e, u in zip(x.index, dims, strict=True):
                if plain_index(e) == d.id:
                    return Axis(d.id, u.extent, d.pack)
        raise LowerError(f"{self.op.name}: index `{d.id}` of `{show(r)}` has no extent")

    def narrow(self, r: Reduce, axes: list[Axis]) -> tuple[Expr, dict[str, tuple[list[Expr], list[Expr]]]]:
        """Rule 7: comparisons of a reduced index with what does not depend on it become its loop's ends."""
        body = r.body
        bounds: dict[str, tuple[list[Expr], list[Expr]]] = {}
        if not isinstance(body, Select) or body.dtype is None:
            return body, bounds
        unit = identity(r.kind, body.dtype)
        if not (isinstance(body.other, Num) and body.other.value == unit.value):
            return body, bounds
        rest: list[Expr] = []
        order = [a.name for a in axes]
        for c in conjuncts(body.test):
            if not self.bound(c, axes, order, bounds):
                rest.append(c)
        if not bounds:
            return body, bounds
        if not rest:
            return body.then, bounds
        test = rest[0] if len(rest) == 1 else And(tuple(rest), dtype=DType.BOOL)
        return replace(body, test=test), bounds

    def bound(
        self, c: Expr, axes: list[Axis], order: list[str], bounds: dict[str, tuple[list[Expr], list[Expr]]]
    ) -> bool:
        pairs = [below(c)]
        if isinstance(c, Cmp) and c.op == "==":
            pairs = [(c.left, c.right, 0), (c.right, c.left, 0)]
        done = False
        for p in pairs:
            if p is None:
                return False
            a, b, d = p
            for v, other, upper in ((plain_index(a), b, True), (plain_index(b), a, False)):
                axis = next((x for x in axes if x.name == v and not x.pack), None)
                if axis is None or v is None or index_names(other) & set(order[order.index(v) :]):
                    continue
                if other.dtype is not DType.I64:
                    continue
                los, his = bounds.setdefault(v, ([], []))
                if upper:
                    his.append(int_bin("+", other, i64(1 - d)))
                else:
                    los.append(int_bin("+", other, i64(d)))
                done = True
                break
            else:
                if isinstance(c, Cmp) and c.op == "==" and done:
                    continue
                return False
        return done

    def accumulate(
        self,
        kind: str,
        dtype: DType,
        axes: list[Axis],
        body: Expr,
        bounds: dict[str, tuple[list[Expr], list[Expr]]],
    ) -> Expr:
        a, last = axes[0], len(axes) == 1
        lo: Expr = i64(0)
        hi: Expr = a.extent
        los, his = bounds.get(a.name, ([], []))
        for e in los:
            lo = int_pick("max", lo, self.value(e))
        for e in his:
            hi = int_pick("min", hi, self.value(e))
        name = self.name(kind)
        frame = Frame()
        self.frames.append(frame)
        var = ""
        if a.pack:
            frame.walk = WalkBuild(self.next_walk(), [WalkAxis(a.name, a.extent, True)])
            frame.vars[a.name] = Local("", dtype=DType.I64)
        else:
            var = self.name(a.name)
            here = Local(var, dtype=DType.I64)
            frame.vars[a.name] = here
        value = self.value(body) if last else self.accumulate(kind, dtype, axes[1:], body, bounds)
        self.frames.pop()
        loop: For | Walk
        if frame.walk is not None:
            w = frame.walk
            loop = Walk(
                w.id, tuple(w.axes), tuple(w.operands.values()), (), "flat" if last else "rows", False
            )
        else:
            loop = For(var, lo, hi)
        self.emit(Accumulate(name, kind, dtype, loop, tuple(frame.out), value, last))
        return Local(name, dtype=dtype)

    def arg(self, r: Reduce, axes: list[Axis]) -> Expr:
        assert r.body.dtype is not None
        name = self.name(r.kind)
        self.emit(ArgBegin(name, r.kind, r.body.dtype))

        def body() -> None:
            at: Expr = i64(0)
            for a in axes:
                here = self.linear_value(a.name) if a.pack else self.index_value(a.name)
                at = int_bin("+", int_bin("*", at, axis_count(a)), here)
            self.emit(ArgStep(name, r.kind, self.value(r.body), at))

        self.inside(axes, body)
        return Local(f"{name}.at", dtype=DType.I64)

    # -------------------------------------------------------------------------------------------- tiles
    def tile(self, s: Stmt, t: Tiled) -> None:
        """`target[…, n] = sum[k](…)` for one tile of n."""
        self.enter(s)
        r = s.st.assign.value
        assert isinstance(r, Reduce)
        assert r.dtype is not None
        n = s.axes[-1]
        k = s.st.reduced[0][1]
        probe = self.probe(s, n.name, k.name)
        _, count = self.tiles[n.name]
        outer = Frame()
        self.frames.append(outer)
        k_var = self.name(k.name)
        here = Local(k_var, dtype=DType.I64)
        outer.vars[k.name] = here
        inner = Frame()
        self.frames.append(inner)
        t_var = self.name(n.name)
        rel = Local(t_var, dtype=DType.I64)
        inner.vars[n.name] = rel
        value = self.value(r.body)
        self.frames.pop()
        self.frames.pop()
        name = self.name(f"{c_name(s.st.target)}_tile")
        self.emit(
            Tile(
                name,
                r.dtype,
                TILE,
                count,
                t_var,
                k_var,
                i64(0),
                k.extent,
                tuple(outer.out),
                tuple(inner.out),
                value,
                probe,
            )
        )
        frame = Frame()
        self.frames.append(frame)
        var = self.name(n.name)
        here = Local(var, dtype=DType.I64)
        frame.vars[n.name] = here
        target = self.access(self.tensors[s.st.target], s.st.assign.target.index)
        assert isinstance(target, Elem)
        self.emit(Store(target, "=", Elem(name, name, (here,), (i64(1),), dtype=r.dtype)))
        self.frames.pop()
        self.emit(For(var, i64(0), count, tuple(frame.out), "simd"))

    def probe(self, s: Stmt, n: str, k: str) -> Expr:
        """The stride along n of the load that moves along both indices."""
        for x in loads(s.st.assign.value):
            at_n = [i for i, e in enumerate(x.index) if plain_index(e) == n]
            if at_n and any(k in index_names(e) for e in x.index):
                return self.stride(self.tensors[x.tensor], at_n[0])
        raise LowerError(f"{self.op.name}: no load of `{s.text}` moves along {n} and {k}")


def lower(op: BoundOp, target: str = "cpu", choice: Plan | None = None) -> LoopProgram:
    """The loops of a Normal program for `target` (`cpu` or `cuda`).  Raises LowerError."""
    op, splits = normal_updates(inline(dead(op)))
    if target == "cpu" and choice is None:
        op = materialise(op, plan(op, target).blocked)
    program = Lowering(op, choice or plan(op, target), splits).run()
    verify(program)
    return program
