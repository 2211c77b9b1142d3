"""Rows by columns: a second text for a nest of rows, that takes many neighbouring rows at once.

A nest in `rows` mode runs its body once per element of a parallel walk: a sum along a row, what follows from it, a
loop that writes the row.  Where the loops inside step through memory in long strides while the walk itself steps by
one (a sum over the first axis, a softmax over channels, a scan down the columns), the same body is run for up to
`COLUMNS` elements of the walk's innermost axis together: every loop of the body stays outside, every straight line
of it becomes a loop over those elements, and every scalar that lives from one line to the next becomes an array.
Elements of a parallel walk do not touch each other's memory, so any order of them is right.

Buffers of a row stand side by side, an element's columns next to each other, as many as a thread has room for.

Which of the two texts runs is decided by the strides of the call (`unit_votes`), never by the op.

Sums keep the bound of kernel.h, Note [Blocked sums]: a column is summed in blocks of about sqrt(n) terms.

May import: expr, types, loops, normal, c_expr, c_like.  To let another statement take part: its case in `fits`
(whether it can), in `straight` when it is one line, and in `Columns.statement`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace

from ..expr import Expr, walk
from ..loops import (
    Accumulate,
    ArgBegin,
    ArgStep,
    Elem,
    For,
    If,
    Let,
    Local,
    LoopStmt,
    Nest,
    ScanBegin,
    ScanStep,
    Set,
    Store,
    Stride,
    Var,
    Walk,
)
from ..normal import identity
from .c_expr import compute_type
from .c_like import CLike

__all__ = ["COLUMNS", "Columns", "fits", "row_buffers", "unit_votes"]

#: Elements taken together at most: whole pages are read in order.  Fewer where their scalars would pass `STACK` bytes,
#: or where a thread has room for fewer row buffers (kernel.h, owk_column_rows).
COLUMNS = 4096
BUFFERED = 512
STACK = 256 << 10

#: A nest of more loops (the parts of a long cat) has one text: what a second one costs to compile buys nothing there.
LOOPS = 8


def row_buffers(c: CLike, n: Nest) -> bool:
    """Whether the rows of a nest have buffers, of which a text by columns needs one per column."""
    thread = {b.tensor for b in c.p.buffers if b.scope == "thread"}

    def touched(stmts: Sequence[LoopStmt]) -> bool:
        return any(
            any(isinstance(x, Elem) and x.tensor in thread for x in _memory(s))
            or touched(getattr(s, "body", ()))
            for s in stmts
        )

    return bool(thread) and touched(n.walk.body)


def fits(n: Nest, stack: frozenset[str]) -> bool:
    """Whether a nest has a text by columns: loops in its body whose ends do not depend on the row, and no buffers on
    the stack.
    """
    w = n.walk
    if w.mode != "rows" or not n.parallel or not w.axes or any(a.tile for a in w.axes):
        return False
    own = {o.name for o in w.operands}
    loops = sum(isinstance(s, (For, Walk, Accumulate)) for s in w.body)
    return 0 < loops <= LOOPS and _fits(w.body, own, stack)


def _fits(stmts: Sequence[LoopStmt], varies: set[str], buffers: frozenset[str]) -> bool:
    """`varies`: names that differ from column to column."""
    varies = set(varies)
    for s in stmts:
        if any(isinstance(x, Elem) and x.tensor in buffers for x in _memory(s)):
            return False
        match s:
            case Let(name=n) | Var(name=n) | ArgBegin(name=n) | ScanBegin(name=n):
                varies.add(n)
            case ScanStep(into=n):
                varies.add(n)
            case Set() | Store() | ArgStep():
                pass
            case If(then=a, orelse=b):
                if not straight(a) or not straight(b):
                    return False
            case For(lo=lo, hi=hi, body=body):
                if _names(lo, hi) & varies or not _fits(body, varies, buffers):
                    return False
            case Walk(body=body):
                if not _fits(body, varies, buffers):
                    return False
            case Accumulate(loop=loop, body=body, name=n):
                if isinstance(loop, For) and _names(loop.lo, loop.hi) & varies:
                    return False
                if not _fits(body, varies, buffers):
                    return False
                varies.add(n)
            case _:
                return False
    return True


def straight(stmts: Sequence[LoopStmt]) -> bool:
    """Whether statements are a straight line (with branches)."""
    return all(
        isinstance(s, (Let, Var, Set, Store, ArgStep, ScanStep))
        or (isinstance(s, If) and straight(s.then) and straight(s.orelse))
        for s in stmts
    )


def _names(*xs: Expr) -> set[str]:
    return {n.id.split(".")[0] for x in xs for n in walk(x) if isinstance(n, Local)}


def _exprs(s: LoopStmt) -> Iterator[Expr]:
    match s:
        case Let(value=v) | Var(value=v) | Set(value=v) | Accumulate(value=v) | ScanStep(value=v):
            yield v
        case Store(target=t, value=v):
            yield t
            yield v
        case ArgStep(value=v, at=at):
            yield v
            yield at
        case If(test=t, then=a, orelse=b):
            yield t
            for x in (*a, *b):
                yield from _exprs(x)


def _memory(s: LoopStmt) -> Iterator[Expr]:
    for x in _exprs(s):
        yield from walk(x)


def unit_votes(c: CLike, n: Nest) -> tuple[list[str], list[str]]:
    """(steps of the loops inside, steps of the walk) of every element that both move, as host text.

    The text by columns runs where more of the latter than of the former are 1 or 0.
    """
    w = n.walk
    inner: list[str] = []
    outer: list[str] = []
    roots = {o.name: k for k, o in enumerate(w.operands) if o.kind == "element"}
    last = f"[e.w{w.id}.rank - 1]"

    def vote(step: str, root: int) -> None:
        if (step, root) not in seen:
            seen.add((step, root))
            inner.append(step)
            outer.append(f"e.w{w.id}.step[{root}]{last}")

    seen: set[tuple[str, int]] = set()

    def go(stmts: Sequence[LoopStmt], var: str, bases: dict[str, int]) -> None:
        for s in stmts:
            for x in _memory(s):
                if isinstance(x, Elem) and x.ptr in bases and var:
                    for i, step in zip(x.index, x.stride, strict=True):
                        if isinstance(i, Local) and i.id == var and isinstance(step, Stride):
                            vote(c.stride(step), bases[x.ptr])
            match s:
                case For(var=v, body=body):
                    go(body, v, bases)
                case Walk():
                    walked(s, s.body, bases)
                case Accumulate(loop=loop, body=body, value=value):
                    inside: tuple[LoopStmt, ...] = (*body, Let("", value))
                    if isinstance(loop, Walk):
                        walked(loop, inside, bases)
                    else:
                        go(inside, loop.var, bases)

    def walked(inner_walk: Walk, stmts: Sequence[LoopStmt], bases: dict[str, int]) -> None:
        more = dict(bases)
        for k, o in enumerate(inner_walk.operands):
            if o.kind == "element" and o.base in bases:
                more[o.name] = bases[o.base]
                vote(f"e.w{inner_walk.id}.step[{k}][e.w{inner_walk.id}.rank - 1]", bases[o.base])
        go(stmts, "", more)

    host, c.host = c.host, True
    go(w.body, "", roots)
    c.host = host
    return inner, outer


class Columns:
    """Prints the body of one nest by columns, with a dialect's printer."""

    def __init__(self, c: CLike, w: Walk, buffered: bool) -> None:
        self.c = c
        self.buffered = buffered
        self.size = BUFFERED if buffered else _room(w.body)
        self.most = "ow_columns" if buffered else str(self.size)
        self.w = w
        self.t = f"t{w.id}"
        self.count = f"n{w.id}"

    def steps(self, lo: str, hi: str) -> None:
        """The loop over elements [lo, hi) of the walk, whose position stands at lo."""
        c, w, g = self.c, self.w, f"g{self.w.id}"
        c.column = self.t
        if self.buffered:
            c.line("const int64_t ow_columns = e.columns;")
        with c.indented(f"for (int64_t {g} = {lo}; {g} < {hi};) {{"):
            c.line(
                f"const int64_t {self.count} = owk_run(e.w{w.id}, a{w.id}, owk_least({self.most}, {hi} - {g}));"
            )
            for k, o in enumerate(w.operands):
                c.line(c.pointer(w, k, o))
            elements = [o.name for o in w.operands if o.kind == "element"]
            params = ", ".join(f"[[maybe_unused]] const int64_t {o.name}_s" for o in w.operands)
            outer = dict(c.operands)
            c.enter(w, self.t)
            with c.indented(f"const auto run{w.id} = [&]({params}) {c.inline}{{", "};"):
                self.block(w.body)
            c.expanded.clear()
            for k, o in enumerate(w.operands):
                c.line(f"const int64_t {o.name}_s = e.w{w.id}.step[{k}][e.w{w.id}.rank - 1];")
            general = f"run{w.id}({', '.join(f'{o.name}_s' for o in w.operands)});"
            if elements:
                unit = ", ".join("1" if o.name in elements else f"{o.name}_s" for o in w.operands)
                c.line(f"if ({' && '.join(f'{n}_s == 1' for n in elements)}) run{w.id}({unit});")
                c.line(f"else {general}")
            else:
                c.line(general)
            c.operands = outer
            c.line(f"owk_move(e.w{w.id}, a{w.id}, {self.count});")
            c.line(f"{g} += {self.count};")
        c.column = ""

    # -------------------------------------------------------------------------------------------- lines
    def across(self, body: Callable[[], None]) -> None:
        """A loop over the columns."""
        if self.c.ivdep:
            self.c.line(self.c.ivdep)
        with self.c.indented(
            f"for (int64_t {self.t} = 0; {self.t} < {self.count}; ++{self.t}) {{", skip="continue;"
        ):
            body()

    def array(self, name: str, ctype: str) -> None:
        self.c.line(f"{'uint8_t' if ctype == 'bool' else ctype} {name}[{self.size}];")  # vectors have no bool

    def block(self, stmts: Sequence[LoopStmt], after: Sequence[LoopStmt] = ()) -> None:
        """Statements in order; `after` is what may read their scalars once they are done."""
        run: list[LoopStmt] = []
        for k, s in enumerate(stmts):
            if straight((s,)):
                run.append(s)
                continue
            self.line_of(run, (*stmts[k:], *after))
            run = []
            self.statement(s)
        self.line_of(run, after)

    def line_of(self, run: Sequence[LoopStmt], rest: Sequence[LoopStmt]) -> None:
        """Straight statements as one loop over columns; what `rest` reads of them is kept in arrays."""
        if not run:
            return
        c = self.c
        later = _read(rest)
        kept = {n: ctype for s in run for n, ctype in _declares(s) if n in later}
        for n, ctype in kept.items():
            self.array(n, ctype)

        def body() -> None:
            for s in run:
                self.plain(s, kept)

        self.across(body)
        c.expanded |= {n: f"{n}[{self.t}]" for n in kept}

    def plain(self, s: LoopStmt, kept: Container[str] = ()) -> None:
        """One straight statement at column `t`; scalars in `kept` have an array."""
        c = self.c
        match s:
            case Let(name=n, value=v) | Var(name=n, value=v):
                c.expanded.pop(n, None)
                if n not in kept:
                    c.statement(s)
                    return
                c.line(f"{n}[{self.t}] = {c.expr(v)};")
                c.expanded[n] = f"{n}[{self.t}]"
            case Set(name=n, mode=m, value=v) if n in c.expanded:
                d = v.dtype
                assert d is not None
                here = c.expanded[n]
                c.line(f"{here} = {c.expr(v) if m in ('=', 'set') else c.combined(here, m, v, d)};")
            case ArgStep(name=n, kind=k, value=v, at=at):
                c.line(f"owk_take_{k}({n}_value[{self.t}], {n}_at[{self.t}], {c.expr(v)}, {c.expr(at)});")
            case ScanStep(into=n):
                c.expanded.pop(n, None)
                c.scan_step(s, f"[{self.t}]", f"{n}[{self.t}]" if n in kept else "")
                if n in kept:
                    c.expanded[n] = f"{n}[{self.t}]"
            case If(test=test, then=a, orelse=b):
                with c.indented(f"if ({c.expr(test)}) {{"):
                    for x in a:
                        self.plain(x)
                if b:
                    with c.indented("else {"):
                        for x in b:
                            self.plain(x)
            case _:
                c.statement(s)

    # -------------------------------------------------------------------------------------------- loops
    def statement(self, s: LoopStmt) -> None:
        c = self.c
        match s:
            case ArgBegin(name=n, dtype=d):
                c.line(f"{compute_type(d)} {n}_value[{self.size}];")
                c.line(f"int64_t {n}_at[{self.size}];")
                c.expanded[f"{n}.at"] = f"{n}_at[{self.t}]"
                self.across(lambda: c.line(f"{n}_value[{self.t}] = 0, {n}_at[{self.t}] = -1;"))
            case ScanBegin():
                names = c.scan_state(s)
                for n in names:
                    self.array(n, compute_type(s.dtype))
                unit = c.expr(identity(s.kind, s.dtype))
                self.across(lambda: c.line(f"{', '.join(f'{n}[{self.t}] = {unit}' for n in names)};"))
            case For() | Walk():
                self.loop(s, lambda: self.block(s.body))
            case Accumulate():
                self.accumulate(s)
            case _:
                raise AssertionError(f"{type(s).__name__} has no text by columns")

    def loop(self, s: For | Walk, body: Callable[[], None]) -> None:
        """A loop of the body, one step at a time, with all columns inside."""
        c = self.c
        known = dict(c.expanded)
        if isinstance(s, For):
            c.loop(replace(s, kind="serial"), body)
            c.expanded = known
            return
        outer = dict(c.operands)
        with c.indented("{"):
            c.line(f"OwkAt<{c.width(s)}> a{s.id};")
            c.line(f"owk_start(e.w{s.id}, a{s.id});")
            with c.indented(
                f"for (int64_t g{s.id} = 0; g{s.id} < e.w{s.id}.total; ++g{s.id}, owk_move(e.w{s.id}, a{s.id}, 1)) {{"
            ):
                for k, o in enumerate(s.operands):
                    root = c.operands.get(o.base) if o.kind == "element" else None
                    c.line(c.pointer(s, k, o, along=True))
                    if root is not None and root[3]:
                        # It starts where an operand of the rows does, and moves with it from column to column.
                        c.operands[o.name] = (s, k, root[2], self.t)
                    else:
                        c.operands[o.name] = (s, k, o, "")
                body()
        c.operands = outer
        c.expanded = known

    def accumulate(self, s: Accumulate) -> None:
        c, t = self.c, self.t
        ctype = compute_type(s.dtype)
        unit = c.expr(identity(s.kind, s.dtype))
        self.array(s.name, ctype)
        blocked = c.blocked(s)
        part = f"{s.name}_part"
        if blocked:
            c.line(f"{ctype} {part}[{self.size}];")
            c.line(f"const int64_t {s.name}_block = owk_short_block({c.terms(s.loop)});")
            c.line(f"int64_t {s.name}_left = {s.name}_block;")
        clear = f", {part}[{t}] = 0" if blocked else ""
        self.across(lambda: c.line(f"{s.name}[{t}] = {unit}{clear};"))
        into = f"{part if blocked else s.name}[{t}]"

        def last() -> None:
            c.line(f"{into} = {c.joined(s.kind, s.dtype, into, s.value)};")

        def body() -> None:
            self.split(s.body, Let("", s.value), last)
            if blocked:
                with c.indented(f"if (--{s.name}_left == 0) {{"):
                    self.across(
                        lambda: c.line(f"{s.name}[{t}] = {s.name}[{t}] + {part}[{t}], {part}[{t}] = 0;")
                    )
                    c.line(f"{s.name}_left = {s.name}_block;")

        self.loop(s.loop, body)
        if blocked:
            self.across(lambda: c.line(f"{s.name}[{t}] = {s.name}[{t}] + {part}[{t}];"))
        c.expanded[s.name] = f"{s.name}[{t}]"

    def split(self, stmts: Sequence[LoopStmt], value: LoopStmt, last: Callable[[], None]) -> None:
        """`stmts`, then `last`, which reads what `value` does: their straight end is one loop over columns."""
        cut = len(stmts)
        while cut and straight(stmts[cut - 1 : cut]):
            cut -= 1
        self.block(stmts[:cut], (*stmts[cut:], value))

        def body() -> None:
            for s in stmts[cut:]:
                self.plain(s)
            last()

        self.across(body)


def _room(stmts: Sequence[LoopStmt]) -> int:
    """How many elements are taken together, by the arrays that their scalars may need."""

    def arrays(body: Sequence[LoopStmt]) -> int:
        own = {Accumulate: 2, ArgBegin: 2, ScanBegin: 2, Let: 1, Var: 1, ScanStep: 1}
        return sum(own.get(type(s), 0) + arrays(getattr(s, "body", ())) for s in body)

    size = COLUMNS
    while size > 256 and arrays(stmts) * 8 * size > STACK:
        size //= 2
    return size


def _declares(s: LoopStmt) -> Iterator[tuple[str, str]]:
    """(name, C type) of the scalar that a straight statement makes."""
    match s:
        case Let(name=n, value=v):
            assert v.dtype is not None
            yield n, compute_type(v.dtype)
        case Var(name=n, dtype=d) | ScanStep(into=n, dtype=d):
            yield n, compute_type(d)


def _read(stmts: Sequence[LoopStmt]) -> set[str]:
    """Names of scalars that statements read or set."""
    out: set[str] = set()
    for s in stmts:
        out |= _names(*_exprs(s))
        match s:
            case Set(name=n):
                out.add(n)
            case If(then=a, orelse=b):
                out |= _read((*a, *b))
            case For(lo=lo, hi=hi, body=body):
                out |= _names(lo, hi) | _read(body)
            case Walk(body=body):
                out |= _read(body)
            case Accumulate(loop=loop, body=body):
                out |= _read(body)
                if isinstance(loop, For):
                    out |= _names(loop.lo, loop.hi)
    return out
