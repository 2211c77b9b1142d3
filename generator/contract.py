"""Contractions: which statements are sums of products with separable index sets, and how a nest of one is lowered.

A contraction is `t[…] = sum[k](f * g)`.  Free indices that only f has are the rows, those that only g has the columns
(or the other way round: columns own the last index of t, along which memory runs); what both have, or none, is outer.
An index that one factor has only as `v // c` is cut in two: its blocks of c are outer, the place in a block is a row.

A nest holds a contraction and the elementwise statements that follow on the same indices (bias, activation, rounding):
they see each sum where it is made.  Nothing here looks at an operator's name.

May import: expr, bound, normal, simplify, loops; of fusion and lower their types alone.  To widen the class:
`contraction` says which statements, `separate` which of them become nests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .bound import Axis, BoundOp, DimUse, Statement, Tensor
from .expr import (
    And,
    Assign,
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
    Star,
    Target,
    children,
    map_children,
    walk,
)
from .loops import Cell, Check, Contract, Factor, Let, Local, LoopStmt, Nest, Store, Walk, WalkAxis
from .normal import plain_index
from .simplify import fresh_name, loads
from .types import DType

if TYPE_CHECKING:
    from .fusion import Stmt
    from .lower import Lowering

__all__ = [
    "TILE",
    "Blocked",
    "Contraction",
    "below",
    "block_of_rows",
    "blocked",
    "conjuncts",
    "contract_nest",
    "contraction",
    "materialise",
    "separate",
]

#: Outputs accumulated together, and rows of a block: four vector registers of f32 at 512 bits.
TILE = 64


def conjuncts(x: Expr) -> list[Expr]:
    return [c for y in x.xs for c in conjuncts(y)] if isinstance(x, And) else [x]


def below(x: Expr) -> tuple[Expr, Expr, int] | None:
    """A comparison as (a, b, d): a + d <= b."""
    match x:
        case Cmp(op="<=", left=a, right=b) | Cmp(op=">=", left=b, right=a):
            return a, b, 0
        case Cmp(op="<", left=a, right=b) | Cmp(op=">", left=b, right=a):
            return a, b, 1
    return None


@dataclass(frozen=True)
class Contraction:
    """How one statement is cut.  `left` is the factor of the rows, `right` that of the columns.

    block   (index, size): the row index whose blocks of `size` are outer
    """

    outer: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    left: Expr
    right: Expr
    block: tuple[str, Expr] | None = None


def _names(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Name) and n.kind in ("index", "packindex")}


def contraction(s: Statement, split: bool = True) -> Contraction | None:
    """The contraction that a Normal statement is, else None; `split`: indices may be cut into blocks."""
    a = s.assign
    if not isinstance(a.value, Reduce) or a.value.kind != "sum" or a.mode != "=" or a.guard is not None:
        return None
    body = a.value.body
    if s.recur is not None or body.dtype not in (DType.F32, DType.F64):
        return None
    if not isinstance(body, Bin) or body.op != "*" or not s.axes:
        return None
    target = [plain_index(e) for e in a.target.index]
    free = [x.name for x in s.axes]
    if None in target or sorted(map(str, target)) != sorted(free) or len(set(free)) != len(free):
        return None
    if any(isinstance(n, Load) and n.tensor == s.target for n in walk(body)):
        return None
    sums = {n for n, _ in s.reduced}
    found = _cut(str(target[-1]), free, sums, body.left, body.right, split)
    if found is None or found.rows:
        return found
    # With one row there is nothing to share: worth it where memory is read as it lies.
    plain = all(isinstance(_bare(x), Load) for x in (found.left, found.right))
    return found if plain else None


def _bare(x: Expr) -> Expr:
    """An expression without the casts around it."""
    while isinstance(x, Call) and len(x.args) == 1 and x.fn in {d.value for d in DType}:
        x = x.args[0]
    return x


def _cut(last: str, free: list[str], sums: set[str], a: Expr, b: Expr, split: bool) -> Contraction | None:
    for left, right in ((a, b), (b, a)):
        mine, theirs = _names(left), _names(right)
        if not sums & mine & theirs:
            return None
        columns = [n for n in free if n in theirs - mine and n not in sums]
        if last not in columns:
            continue
        rows = [n for n in free if n in mine - theirs and n not in sums]
        block = None
        for n in free:
            shared = split and n in mine and n in theirs and n not in sums
            size = _block(right, n) if shared else None
            if size is not None:
                block = (n, size)
                rows = [x for x in free if x in rows or x == n]
                break
        outer = tuple(n for n in free if n not in columns and (n not in rows or (block and n == block[0])))
        if block is not None:  # blocks are outer, the place in one comes first among the rows
            rows = [block[0], *(r for r in rows if r != block[0])]
        return Contraction(outer, tuple(rows), tuple(columns), left, right, block)
    return None


def _block(x: Expr, v: str) -> Expr | None:
    """The c of `v // c`, if that is all that `x` has of index v and c has no index."""
    sizes: list[Expr] = []

    def go(e: Expr) -> bool:
        if isinstance(e, Bin) and e.op == "//" and plain_index(e.left) == v and not _names(e.right):
            sizes.append(e.right)
            return True
        if isinstance(e, Name) and e.id == v and e.kind in ("index", "packindex"):
            return False
        return all(go(c) for c in children(e))

    plain = go(x)
    return sizes[0] if plain and sizes and all(s == sizes[0] for s in sizes) else None


# ================================================================================================ choice


def separate(op: BoundOp, chosen: Mapping[int, Contraction]) -> dict[int, tuple[int, ...]]:
    """Contractions that get a nest of their own -> the numbers of the statements in it, in order.

    One whose sums a reduction reads (attention's scores) stays in its row kernel, and so does what comes of it: a
    nest of its own would keep the whole matrix in memory.
    """
    found: dict[int, tuple[int, ...]] = {}
    kept: set[str] = set()  # tensors that stay in row kernels
    inputs = {t.name for t in op.inputs}
    for i, s in enumerate(op.body):
        reads = {x.tensor for x in loads(s.assign.value)}
        # With one row nothing is shared: it stays where what it reads is made.
        lone = i in chosen and not chosen[i].rows and not reads <= inputs
        if i in chosen and not lone and not reads & kept:
            members = _members(op, i)
            if members is not None:
                if _escapes(op, members, chosen):
                    kept.add(s.target)
                else:
                    found[i] = members
        if s.target in kept or reads & kept:
            kept |= {s.target} if op.tensor(s.target).role == "temp" else set()
    return found


def _escapes(op: BoundOp, members: tuple[int, ...], chosen: Mapping[int, Contraction]) -> bool:
    """Whether a temporary of a nest is read by a reduction outside that is no contraction."""
    made = {op.body[k].target for k in members if op.tensor(op.body[k].target).role == "temp"}
    return any(
        k not in members and k not in chosen and any(x.tensor in made for x in loads(s.assign.value))
        for k, s in enumerate(op.body)
    )


def _members(op: BoundOp, i: int) -> tuple[int, ...] | None:
    """A contraction and the elementwise statements after it on the same indices; None where it is written twice."""
    first = op.body[i]
    members = [i]
    order = {first.target: _places(first)}
    touched = {first.target} | {x.tensor for x in loads(first.assign.value)}
    for k in range(i + 1, len(op.body)):
        s = op.body[k]
        if not _elementwise(first, s) or s.target in touched:
            break
        reads = list(loads(s.assign.value))
        mine = [x.name for x in s.axes]
        if not any(x.tensor in order for x in reads):
            break
        if any(
            x.tensor in order and [plain_index(e) for e in x.index] != [mine[p] for p in order[x.tensor]]
            for x in reads
        ):
            break
        order[s.target] = _places(s)
        touched |= {s.target} | {x.tensor for x in reads}
        members.append(k)
    writers = [s.target for s in op.body]
    return tuple(members) if all(writers.count(op.body[k].target) == 1 for k in members) else None


def _places(s: Statement) -> list[int]:
    """Which axis each index entry of the target is."""
    names = [x.name for x in s.axes]
    return [names.index(str(plain_index(e))) for e in s.assign.target.index]


def _elementwise(first: Statement, s: Statement) -> bool:
    a = s.assign
    if isinstance(a.value, Reduce) or a.mode != "=" or a.guard is not None or s.recur is not None:
        return False
    names = [plain_index(e) for e in a.target.index]
    axes = [x.name for x in s.axes]
    if None in names or sorted(map(str, names)) != sorted(axes):
        return False
    return [(x.extent, x.pack) for x in first.axes] == [(x.extent, x.pack) for x in s.axes]


# ================================================================================================ lowering


def _product(axes: Sequence[Axis]) -> Expr:
    total: Expr = Num(1, dtype=DType.I64)
    for a in axes:
        count = Fold("prod", a.extent, dtype=DType.I64) if a.pack else a.extent
        total = count if total == Num(1, dtype=DType.I64) else Bin("*", total, count, dtype=DType.I64)
    return total


def contract_nest(low: Lowering, group: Sequence[Stmt], cut: Contraction) -> Nest:
    """The nest of a contraction and the statements that read its sums."""
    low.begin()
    first = group[0]
    low.written = {s.st.target for s in group}
    for s in group[1:]:
        for have, mine in zip(first.axes, s.axes, strict=True):
            s.rename(mine.name, have.name)
    axes = {a.name: a for a in first.axes}
    sums = [a for _, a in first.st.reduced]
    rows = [axes[n] for n in cut.rows]
    columns = [axes[n] for n in cut.columns]
    outer = [WalkAxis(n, axes[n].extent, axes[n].pack) for n in cut.outer]
    if cut.block is not None:
        name, size = cut.block
        outer = [replace(x, tile=size) if x.name == name else x for x in outer]
        rows = [replace(a, extent=size) if a.name == name else a for a in rows]
    limit: list[Expr] = []

    def body() -> None:
        low.enter(first)
        left = _factor(low, cut.left, rows, sums)
        right = _factor(low, cut.right, columns, sums)
        if cut.block is not None:
            name, _ = cut.block
            limit.append(Bin("-", axes[name].extent, low.index_value(name), dtype=DType.I64))
        dtype = first.st.assign.value.dtype
        assert dtype is not None
        low.emit(
            Contract(
                low.next_walk(),
                dtype,
                (_product(rows), _product(columns), _product(sums)),
                limit[0] if limit else None,
                left,
                right,
                _epilogue(low, group, rows, columns),
            )
        )

    low.walk_over(outer, "rows", True, body)
    return Nest(tuple(low.frames[0].out), Num(1, dtype=DType.I64), tuple(s.text for s in group), True)


def _walks(low: Lowering, outside: Sequence[Axis], inside: Sequence[Axis], body: Callable[[], None]) -> Walk:
    """A walk row by row over `outside` around a flat one over `inside`, in the order of their axes."""

    def axes(xs: Sequence[Axis]) -> list[WalkAxis]:
        return [WalkAxis(a.name, a.extent, a.pack) for a in xs]

    low.walk_over(axes(outside), "rows", False, lambda: low.walk_over(axes(inside), "flat", False, body))
    made = low.frames[-1].out.pop()
    assert isinstance(made, Walk)
    inner = made.body[-1]
    assert isinstance(inner, Walk)
    return replace(made, body=(*made.body[:-1], replace(inner, parallel=True, ordered=True)))


def _factor(low: Lowering, x: Expr, own: Sequence[Axis], sums: Sequence[Axis]) -> Factor:
    window = _window(x, {a.name for a in own})
    if window is not None:
        found = _window_factor(low, window, own, sums)
        if found is not None:
            return found
    value: list[Expr] = []

    def element() -> None:
        value.append(_element(low, x) if isinstance(_bare(x), Load) else low.value(x))

    made = _walks(low, sums, own, element)
    return Factor(made, value[0])


@dataclass(frozen=True)
class _Window:
    """`value`, a load with casts, where all of `numbers` are at least 0 (that is, where all of `facts` hold)."""

    value: Expr
    numbers: tuple[Expr, ...]
    facts: tuple[Expr, ...]

    def apart(self, own: set[str], sums: set[str]) -> bool:
        load = _bare(self.value)
        assert isinstance(load, Load)
        return all(_apart(e, own, sums) for e in (*load.index, *self.numbers))


def _window(x: Expr, own: set[str]) -> _Window | None:
    """A guarded load whose place and guard are linear in the factor's own indices: a window slid over memory."""
    casts: list[Call] = []
    while isinstance(x, Call) and len(x.args) == 1 and x.fn in {d.value for d in DType}:
        casts.append(x)
        x = x.args[0]
    if not isinstance(x, Select) or not isinstance(x.other, Num) or x.other.value != 0:
        return None
    load = _bare(x.then)
    if not isinstance(load, Load) or not all(_linear(e, own) for e in load.index):
        return None
    numbers: list[Expr] = []
    facts = conjuncts(x.test)
    for f in facts:
        side = below(f)
        if side is None or not (_linear(side[0], own) and _linear(side[1], own)):
            return None
        a, b, d = side
        if a.dtype is not DType.I64 or b.dtype is not DType.I64:
            return None
        numbers.append(_less(_less(b, a), Num(d, dtype=DType.I64)))
    value = x.then
    for c in reversed(casts):
        value = replace(c, args=(value,))
    return _Window(value, tuple(numbers), tuple(facts))


def _less(a: Expr, b: Expr) -> Expr:
    return a if isinstance(b, Num) and b.value == 0 else Bin("-", a, b, dtype=DType.I64)


def _linear(e: Expr, own: set[str]) -> bool:
    """Whether an integer expression changes evenly with each of the indices `own`."""
    if not _names(e) & own:
        return True
    match e:
        case Name(kind="index") | Star():
            return True
        case Bin(op="+" | "-", left=a, right=b):
            return _linear(a, own) and _linear(b, own)
        case Bin(op="*", left=a, right=b):
            return (_linear(a, own) and not _names(b) & own) or (_linear(b, own) and not _names(a) & own)
    return False


def _apart(e: Expr, own: set[str], sums: set[str]) -> bool:
    """Whether a linear integer expression is what depends on `own` plus what depends on `sums`."""
    names = _names(e)
    if not names & own or not names & sums:
        return True
    return isinstance(e, Bin) and e.op in "+-" and _apart(e.left, own, sums) and _apart(e.right, own, sums)


def _window_factor(low: Lowering, w: _Window, own: Sequence[Axis], sums: Sequence[Axis]) -> Factor | None:
    """The factor of a window; None where more than checks of what a run has in common stands between."""
    made: list[tuple[tuple[Expr, ...], list[LoopStmt], Expr]] = []

    def element() -> None:
        numbers = tuple(low.value(e) for e in w.numbers)
        stmts, value = low.block(list(w.facts), lambda: _element(low, w.value))
        assert value is not None
        made.append((numbers, stmts, value))

    walk_ = _walks(low, sums, own, element)
    inner = walk_.body[-1]
    assert isinstance(inner, Walk)
    numbers, stmts, value = made[0]
    moving = {o.name for o in inner.operands}
    checks = [s for s in stmts if isinstance(s, Check) and not _locals(s.index) & moving]
    if inner.body or len(checks) < len(stmts):
        return None
    apart = w.apart({a.name for a in own}, {a.name for a in sums})
    return Factor(walk_, value, numbers, tuple(checks), apart)


def _locals(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Local)}


def _element(low: Lowering, x: Expr) -> Expr:
    """A load and the casts around it, read where it stands: packing moves it, nothing is hoisted."""
    if isinstance(x, Load):
        return low.access(low.tensors[x.tensor], x.index)
    assert isinstance(x, Call)
    return replace(x, args=(_element(low, x.args[0]),))


def _epilogue(low: Lowering, group: Sequence[Stmt], rows: Sequence[Axis], columns: Sequence[Axis]) -> Walk:
    first = group[0]

    def statements() -> None:
        low.enter(first)
        t: Tensor = low.tensors[first.st.target]
        cell = Cell(dtype=first.st.assign.value.dtype)
        place = low.places.get(t.name)
        if place is not None and place.kind == "scalar":
            low.emit(Let(place.local, cell))
        else:
            target = low.access(t, first.st.assign.target.index)
            low.emit(Store(target, "=", cell))  # type: ignore[arg-type]
        for s in group[1:]:
            low.leaf(s)

    return _walks(low, rows, columns, statements)


# ================================================================================================ inside rows


@dataclass(frozen=True)
class Blocked:
    """A contraction inside a row kernel: its one row axis is number `depth` of its axes; `members` share its place."""

    depth: int
    members: tuple[int, ...]


def blocked(op: BoundOp, chosen: Mapping[int, Contraction]) -> dict[int, Blocked]:
    """Contractions of row kernels that a block of rows serves at once."""
    found: dict[int, Blocked] = {}
    for i in chosen:
        s = op.body[i]
        c = contraction(s, split=False)
        if c is None or len(c.rows) != 1 or s.axis(c.rows[0]).pack:
            continue
        depth = [a.name for a in s.axes].index(c.rows[0])
        if {a.name for a in s.axes[:depth]} != set(c.outer):
            continue
        members = _members(op, i)
        if members is not None:
            found[i] = Blocked(depth, members)
    return found


def materialise(op: BoundOp, inside: Mapping[int, Blocked]) -> BoundOp:
    """The program with each computed row factor of such a contraction in a temporary of its own: it is computed along
    memory, once, for all that read it.
    """
    body, temps = list(op.body), list(op.temps)
    taken = {t.name for t in (*op.inputs, *op.outputs, *op.temps)} | {d.name for d in op.dims}
    taken |= {a.name for a in op.attrs}
    for i in inside:
        s = op.body[i]
        cut = contraction(s, split=False)
        if cut is None or isinstance(_bare(cut.left), Load) or cut.left.dtype is None:
            continue
        axes = {a.name: a for a in (*s.axes, *(x for _, x in s.reduced))}
        used = [a for a in axes.values() if a.name in _names(cut.left)]
        name = fresh_name(f"{s.target}_{cut.rows[0]}", taken)
        taken.add(name)
        place: tuple[Expr, ...] = tuple(
            Star(Name(a.name, kind="packindex", dtype=DType.I64), dtype=DType.I64)
            if a.pack
            else Name(a.name, kind="index", dtype=DType.I64)
            for a in used
        )
        read = Load(name, place, dtype=cut.left.dtype)
        at = next(k for k, x in enumerate(body) if _same_space(x, used) and _holds(x, cut.left))
        made = Statement(
            Assign(Target(name, place), "=", cut.left), tuple(replace(a, stated=True) for a in used)
        )
        temps.append(Tensor(name, cut.left.dtype, tuple(DimUse(a.extent, a.pack) for a in used), "temp"))
        body = [
            *body[:at],
            made,
            *(_put(x, cut.left, read) if _same_space(x, used) else x for x in body[at:]),
        ]
    return replace(op, body=tuple(body), temps=tuple(temps))


def _same_space(s: Statement, axes: Sequence[Axis]) -> bool:
    have = {a.name: (a.extent, a.pack) for a in (*s.axes, *(x for _, x in s.reduced))}
    return all(have.get(a.name) == (a.extent, a.pack) for a in axes)


def _holds(s: Statement, x: Expr) -> bool:
    return any(n == x for n in walk(s.assign.value))


def _put(s: Statement, old: Expr, new: Expr) -> Statement:
    def put(e: Expr) -> Expr:
        return new if e == old else map_children(e, put)

    return replace(s, assign=replace(s.assign, value=put(s.assign.value)))


def block_of_rows(low: Lowering, group: Sequence[Stmt], row: Axis, tile: tuple[Expr, Expr]) -> None:
    """A contraction and what reads its sums, for the block of rows that a tile of `row` is."""
    first = group[0]
    cut = contraction(first.st, split=False)
    assert cut is not None
    for s in group[1:]:
        for have, mine in zip(first.axes, s.axes, strict=True):
            s.rename(mine.name, have.name)
    low.enter(first)
    axes = {a.name: a for a in first.axes}
    sums = [a for _, a in first.st.reduced]
    rows = [replace(row, extent=Num(TILE, dtype=DType.I64))]
    columns = [axes[n] for n in cut.columns]
    until = _until(low, group, row.name, columns, tile)
    low.enter(first)
    left = _factor(low, cut.left, rows, sums)
    right = _factor(low, cut.right, columns, sums)
    dtype = first.st.assign.value.dtype
    assert dtype is not None
    extents = (_product(rows), _product(columns), _product(sums))
    number = low.next_walk()
    last = _epilogue(low, group, rows, columns)
    low.emit(Contract(number, dtype, extents, tile[1], left, right, last, until, inside=True))


def _until(
    low: Lowering, group: Sequence[Stmt], row: str, columns: Sequence[Axis], tile: tuple[Expr, Expr]
) -> Expr | None:
    """The first column whose sums none of the block's rows read: `… if j <= i + c else …` is all that reads them."""
    first = group[0]
    readers = [s for s in group[1:] if any(x.tensor == first.st.target for x in loads(s.st.assign.value))]
    if len(readers) != 1 or len(columns) != 1 or low.places[first.st.target].kind != "scalar":
        return None
    value = readers[0].st.assign.value
    if not isinstance(value, Select) or any(
        x.tensor == first.st.target for e in (value.test, value.other) for x in loads(e)
    ):
        return None
    for fact in conjuncts(value.test):
        side = below(fact)
        if side is None or side[0].dtype is not DType.I64 or side[1].dtype is not DType.I64:
            continue
        a, b, d = side
        if plain_index(a) != columns[0].name or not _rises(b, row) or columns[0].name in _names(b):
            continue
        # j + d <= b(i), and b is greatest at the block's last row
        low.enter(readers[0])
        return Bin(
            "+", low.value(b), Bin("-", tile[1], Num(d, dtype=DType.I64), dtype=DType.I64), dtype=DType.I64
        )
    return None


def _rises(e: Expr, row: str) -> bool:
    """Whether an integer expression is the index `row` plus what does not depend on it."""
    if plain_index(e) == row:
        return True
    if isinstance(e, Bin) and e.op == "+":
        return (_rises(e.left, row) and row not in _names(e.right)) or (
            _rises(e.right, row) and row not in _names(e.left)
        )
    return isinstance(e, Bin) and e.op == "-" and _rises(e.left, row) and row not in _names(e.right)
