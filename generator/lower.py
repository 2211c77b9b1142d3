"""Normal -> Loop: fused trees become nests, with temporaries put where they live.

  place    A temporary lives below the loops that all its users share: as a scalar when nothing else indexes it, in
           a tile on the stack, in the thread's workspace (row buffer), else in the global workspace.
  walk     The leading parallel axes of a nest become one `Walk`: every operand has a stride per axis, merged at run
           time.
  hoist    What does not depend on a loop is computed before it, but no memory is read that a condition guards.
  check    Indices are proven by plain use or by the guard around them; affine ones are checked on the host once; the
           rest in the loop, where a bad one is reported and its access skipped.

May import: expr, types, bound, normal, simplify, updates, plan, contract, fusion, loops, errors.  To add a choice of
lowering: its class in `plan.py`, its statements here or in a module of its own, as contract.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from .bound import Axis, BoundOp, Rule, Tensor
from .contract import Contraction, below, block_of_rows, conjuncts, contract_nest, materialise
from .errors import LowerError
from .expr import (
    FUNCTIONS,
    And,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    children,
    map_children,
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
    Check,
    Elem,
    Fail,
    For,
    HostCheck,
    If,
    Let,
    Local,
    LoopProgram,
    LoopStmt,
    Nest,
    Operand,
    ScanBegin,
    ScanStep,
    Set,
    Size,
    Store,
    Stride,
    Tile,
    Var,
    Walk,
    WalkAxis,
    verify,
)
from .normal import identity, plain_index
from .plan import TILE, Plan, Tiled, plan
from .simplify import dead, inline, loads
from .types import DType
from .updates import Split, normal_updates, shares

__all__ = ["lower"]


# ================================================================================================ names

_RESERVED = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "concept",
        "const",
        "const_cast",
        "constexpr",
        "continue",
        "co_await",
        "co_return",
        "co_yield",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
        "linux",
        "unix",
        "main",
        "e",
        "c",
        "ctx",
        "acc",
        "lo",
        "hi",
        "g",
        "thread",
        "error",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "Env",
        "bind",
        "ws",
        "rows",
        "in",
        "attr",
        "order",
        "bytes",
        "UNIT",
        "block",
        "begin",
        "end",
        "part",
        "count",
        "run",
        "task",
        "tile",
        "gemm",
        "scratch",
        "start",
        "first",
        "last",
        "place",
        "sums",
        "sums_row",
        "sums_stride",
        "left",
        "right",
        "left_pack",
        "right_pack",
        "to",
        "at",
        "width",
        "jump",
        "i0",
        "i1",
        "k0",
        "k1",
    ]
)


#: Names that the printers give to a walk's parts.
_PRINTERS = re.compile(r"(a|g|n|t|r|w|run|nest|rule)\d+")


def _c_name(base: str) -> str:
    name = "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in base)
    if not name or name[0].isdigit() or name.startswith(("ow", "OW", "__")):
        name = "v_" + name
    return name


def _fresh(base: str, taken: Callable[[str], bool]) -> str:
    base = _c_name(base)
    if base in _RESERVED or _PRINTERS.fullmatch(base):
        base += "_"
    name, k = base, 0
    while taken(name):
        k += 1
        name = f"{base}_{k}"
    return name


def _assign_names(op: BoundOp, splits: tuple[Split, ...]) -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    things = [("tensor", t.name) for t in (*op.inputs, *op.outputs, *op.temps)]
    things += [("dim", d.name) for d in op.dims] + [("attr", a.name) for a in op.attrs]
    known = {a.name for a in op.attrs}
    absent = {
        d.at: None
        for t in (*op.inputs, *op.outputs)
        for d in t.dims
        if d.at is not None and d.at not in known
    }
    things += [("attr", n) for n in absent]
    things += [("dim", n) for x in splits for n in (x.own, x.gone)]
    for key in things:
        name = _fresh(key[1], lambda n: n in used)
        used.add(name)
        names[key] = name
    return names


# ================================================================================================ lowering


@dataclass
class _WalkBuild:
    id: int
    axes: list[WalkAxis]
    operands: dict[tuple[object, ...], Operand] = field(default_factory=dict)


@dataclass
class _Frame:
    """One level of loops.  vars: index variable -> what this level adds to it; `tile`: it steps over whole
    tiles.
    """

    vars: dict[str, Expr] = field(default_factory=dict)
    out: list[LoopStmt] = field(default_factory=list)
    walk: _WalkBuild | None = None
    block: bool = False
    tile: bool = False
    names: set[str] = field(default_factory=set)
    cache: dict[Expr, Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    """kind: scalar | buffer; dropped: index entries that the shared loops fix."""

    kind: str
    dropped: frozenset[int]
    local: str = ""


def _i64(value: int) -> Num:
    return Num(value, dtype=DType.I64)


def _bin(op: str, a: Expr, b: Expr) -> Expr:
    x = a.value if isinstance(a, Num) else None
    y = b.value if isinstance(b, Num) else None
    if op in "+-*" and isinstance(x, int) and isinstance(y, int):
        return _i64({"+": x + y, "-": x - y, "*": x * y}[op])
    if (op in "+-" and y == 0) or (op == "*" and y == 1):
        return a
    if (op == "+" and x == 0) or (op == "*" and x == 1):
        return b
    return Bin(op, a, b, dtype=DType.I64)


def _pick(fn: str, a: Expr, b: Expr) -> Expr:
    return a if a == b else Call(fn, (a, b), dtype=DType.I64)


def _count(a: Axis) -> Expr:
    if not a.pack:
        return a.extent
    assert isinstance(a.extent, Name)
    return Fold("prod", a.extent, dtype=DType.I64)


_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _negated(x: Expr) -> list[Expr]:
    """What is known where `x` does not hold, as far as it is a list of facts."""
    match x:
        case Not(x=inner):
            return conjuncts(inner)
        case Cmp(op=op, left=a, right=b) if op in _NEGATED:
            return [Cmp(_NEGATED[op], a, b, dtype=DType.BOOL)]
        case Or(xs=xs):
            return [f for y in xs for f in _negated(y)]
    return []


def _shift(x: Expr) -> tuple[Expr, int]:
    """`x` as (y, c) with x = y + c."""
    match x:
        case Bin(op="+", left=a, right=Num(value=int() as c)):
            return a, int(c)
        case Bin(op="-", left=a, right=Num(value=int() as c)):
            return a, -int(c)
    return x, 0


_CHEAP_CALLS = frozenset({"rank", "len", "complex", "real", "imag"})


def _worth_hoisting(x: Expr) -> bool:
    for n in walk(x):
        if isinstance(n, (Load, Reduce)):
            return True
        if isinstance(n, Call) and n.fn in FUNCTIONS and n.fn not in _CHEAP_CALLS:
            return True
        if isinstance(n, Bin) and n.op in ("/", "//", "%", "**"):
            return True
    return False


def _host_vars(x: Expr) -> set[str] | None:
    """Index variables of an expression whose exact range is that of its ends, else None."""
    match x:
        case Name(id=n, kind="index"):
            return {n}
        case Name(kind="dim" | "attr") | Num() | Item() | Fold():
            return set()
        case Bin(op="+" | "-", left=a, right=b) | Call(fn="max" | "min", args=(a, b)):
            va, vb = _host_vars(a), _host_vars(b)
            return None if va is None or vb is None or va & vb else va | vb
        case Bin(op="*", left=a, right=b):
            va, vb = _host_vars(a), _host_vars(b)
            return None if va is None or vb is None or (va and vb) else va | vb
        case Bin(op="//", left=a, right=b):
            va, vb = _host_vars(a), _host_vars(b)
            return va if va is not None and vb == set() else None
    if any(
        isinstance(n, Load) or (isinstance(n, Name) and n.kind in ("index", "packindex")) for n in walk(x)
    ):
        return None
    return set()


class _Lowering:
    def __init__(self, op: BoundOp, choice: Plan, splits: tuple[Split, ...] = ()) -> None:
        self.op = op
        self.splits = splits
        self.plan = choice
        self.names = _assign_names(op, splits)
        self.globals = set(self.names.values())
        self.tensors: dict[str, Tensor] = {t.name: t for t in (*op.inputs, *op.outputs, *op.temps)}
        self.frames: list[_Frame] = []
        self.facts: list[Expr] = []
        self.narrowed = 0
        self.places: dict[str, _Place] = {}
        self.buffers: dict[str, Buffer] = {}
        self.checks: dict[HostCheck, None] = {}
        self.walks = 0
        self.written: set[str] = set()
        self.current: Stmt | None = None
        self.base_level = 0
        self.tiles: dict[str, tuple[Expr, Expr]] = {}
        self.scans: dict[int, str] = {}  # the running reduction of a statement
        self.extents: dict[str, Axis] = {}
        self.vars: dict[
            int, list[Tensor]
        ] = {}  # scalars that several statements set, by the loop they live in

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
        return Nest(stmts, _i64(1), (f"require {r.text}",), False)

    def begin(self) -> None:
        self.frames = [_Frame()]
        self.set_aside: list[_Frame] = []  # inner scopes, while something is written further out
        self.facts = []
        self.narrowed = 0
        self.tiles = {}
        self.extents = {}
        self.base_level = 0
        self.current = None

    def next_walk(self) -> int:
        self.walks += 1
        return self.walks - 1

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
            self.places[t.name] = _Place("scalar", frozenset(), self.names[("tensor", t.name)])
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
                self.places[t.name] = _Place("scalar", frozenset(), self.names[("tensor", t.name)])
                return
        dropped, tiled = self.one_at_a_time(t, users, path)
        kept = [(k, d) for k, d in enumerate(dims) if k not in dropped]
        if home is not None and not kept:
            self.places[t.name] = _Place("scalar", dropped, self.names[("tensor", t.name)])
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
        self.places[t.name] = _Place("buffer", dropped)
        self.buffers[t.name] = Buffer(
            t.name,
            t.dtype,
            scope,
            tuple((k, _i64(TILE) if k in tiled else d.extent, d.pack) for k, d in kept),
        )

    def stride(self, t: Tensor, k: int) -> Expr:
        b = self.buffers.get(t.name)
        if b is not None and not b.dims[-1][2] and b.dims[-1][0] == k:
            return _i64(1)
        return Stride(t.name, k, dtype=DType.I64)

    # -------------------------------------------------------------------------------------------- frames
    @property
    def floor(self) -> int:
        return max((i for i, f in enumerate(self.frames) if f.block), default=0)

    def emit(self, s: LoopStmt) -> None:
        self.frames[-1].out.append(s)

    def taken(self, name: str) -> bool:
        """Whether a name is one of any open scope: what is written further out may be read within."""
        return name in self.globals or any(name in f.names for f in (*self.frames, *self.set_aside))

    def name(self, base: str) -> str:
        """A C name free in all open scopes; it lives in the innermost one."""
        new = _fresh(base, self.taken)
        self.frames[-1].names.add(new)
        return new

    def binding(self, var: str) -> int:
        for i in range(len(self.frames) - 1, -1, -1):
            if var in self.frames[i].vars:
                return i
        raise LowerError(f"{self.op.name}: index `{var}` is used outside its loop")

    def level(self, x: Expr, bound: frozenset[str] = frozenset()) -> int:
        """The outermost frame at which everything `x` reads is there."""
        match x:
            case Reduce(indices=ds, body=b):
                return self.level(b, bound | {d.id for d in ds})
            case Name(id=n, kind="index" | "packindex"):
                return 0 if n in bound and not any(n in f.vars for f in self.frames) else self.binding(n)
            case Load(tensor=t):
                low = max((self.level(c, bound) for c in children(x)), default=0)
                if t not in self.written:
                    return low
                here = len(self.frames) - 1
                own = self.current is not None and t == self.current.st.target
                return here if own else max(low, min(self.base_level, here))
        return max((self.level(c, bound) for c in children(x)), default=0)

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
            term: Expr = _i64(TILE if tile else 1)
            for a in inner:
                term = _bin("*", term, _count(a))
            terms.append(term)
        while len(terms) > 1:  # a tree: a chain of hundreds is too deep for what walks it
            pairs = [_bin("+", a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        work = terms[0] if terms else _i64(0)
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
        frame = _Frame(walk=_WalkBuild(self.next_walk(), list(axes)))
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
        self.emit(Let(name, _pick("min", _i64(TILE), Bin("-", extent, start, dtype=DType.I64))))
        self.tiles[var] = (start, Local(name, dtype=DType.I64))

    def walk_value(self, frame: _Frame, a: WalkAxis) -> Expr:
        """The value of a scalar axis of a walk (for a tile: where it starts), as an operand."""
        assert frame.walk is not None
        key = ("value", a.name)
        if key not in frame.walk.operands:
            base = f"{a.name}_0" if a.tile else a.name
            new = _fresh(base, self.taken)
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "value", axis=a.name)
        return Local(frame.walk.operands[key].name, dtype=DType.I64)

    def walk_linear(self, frame: _Frame, pack: str) -> Expr:
        assert frame.walk is not None
        key = ("linear", pack)
        if key not in frame.walk.operands:
            new = _fresh(f"{pack}_at", self.taken)
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "linear", axis=pack)
        return Local(frame.walk.operands[key].name, dtype=DType.I64)

    def walk_operand(self, frame: _Frame, tensor: str, base: str, lanes: tuple[tuple[str, int], ...]) -> str:
        assert frame.walk is not None
        key = ("element", tensor, base, lanes)
        if key not in frame.walk.operands:
            new = _fresh(
                f"{self.names[('tensor', tensor)]}_p",
                self.taken,
            )
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "element", tensor, base, lanes)
        return frame.walk.operands[key].name

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
        lo: Expr = _i64(0)
        hi = a.extent
        for s in node.stmts:
            if s.scan == a.name:
                self.scan_begin(s)
        frame = _Frame()
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
        frame = _Frame(tile=True)
        self.frames.append(frame)
        var = self.name(f"{a.name}_0")
        here = Local(var, dtype=DType.I64)
        frame.vars[a.name] = here
        saved = dict(self.tiles)
        self.tile_bounds(a.name, here, a.extent)
        self.nodes(node.children, node)
        self.tiles = saved
        self.frames.pop()
        self.emit(For(var, _i64(0), a.extent, tuple(frame.out), "serial", TILE))

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
        frame = _Frame()
        self.frames.append(frame)
        var = self.name(a.name)
        frame.vars[a.name] = Local(var, dtype=DType.I64)
        self.inside(axes[1:], body)
        self.frames.pop()
        self.emit(For(var, _i64(0), a.extent, tuple(frame.out)))

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

    def block(self, facts: list[Expr], body: Callable[[], Expr | None]) -> tuple[list[LoopStmt], Expr | None]:
        """Statements and value of code under a condition."""
        frame = _Frame(block=True)
        self.frames.append(frame)
        n = len(self.facts)
        self.facts += facts
        value = body()
        del self.facts[n:]
        self.frames.pop()
        return frame.out, value

    # -------------------------------------------------------------------------------------------- values
    def value(self, x: Expr) -> Expr:
        here = len(self.frames) - 1
        if not isinstance(x, (Num, Name)):
            # What reads no memory may be computed where its condition does not hold.
            floor = self.floor if any(isinstance(n, (Load, Reduce)) for n in walk(x)) else 0
            lvl = max(self.level(x), floor)
            if lvl < here and _worth_hoisting(x):
                return self.hoisted(x, lvl)
        return self._value(x)

    def hoisted(self, x: Expr, lvl: int) -> Expr:
        known = self.frames[lvl].cache.get(x)
        if known is not None:
            return known
        saved = self.frames
        self.frames = saved[: lvl + 1]
        self.set_aside += saved[lvl + 1 :]
        value = self._value(x)
        if not isinstance(value, (Local, Num, Name)):
            # The name must be free in the inner scopes too: they may read it.
            base = (
                value.tensor
                if isinstance(value, Elem)
                else value.fn
                if isinstance(value, Call) and value.fn in FUNCTIONS
                else "t"
            )
            new = _fresh(f"{_c_name(base)}_v", self.taken)
            self.frames[-1].names.add(new)
            self.emit(Let(new, value))
            value = Local(new, dtype=x.dtype)
        if not any(isinstance(n, Load) and n.tensor in self.written for n in walk(x)):
            self.frames[-1].cache[x] = value
        self.frames = saved
        del self.set_aside[len(self.set_aside) - len(saved[lvl + 1 :]) :]
        return value

    def _value(self, x: Expr) -> Expr:
        match x:
            case Name(id=n, kind="index"):
                return self.index_value(n)
            case Num() | Name() | Item() | Fold():
                return x
            case Load(tensor=t, index=ix):
                return self.access(self.tensors[t], ix)
            case Call(fn="linear", args=(Star(x=Name(id=n)),)):
                return self.linear_value(n)
            case Call(fn="lane", args=(Name(id=n), k)):
                return Call("lane", (self.pack_of(n), self.linear_value(n), self.value(k)), dtype=DType.I64)
            case Reduce():
                return self.reduce(x)
            case Select(test=t, then=a, other=b):
                test = self.value(t)
                name = self.name("pick")  # before its branches are written: a name within must be another
                first, va = self.block(conjuncts(t), lambda: self.value(a))
                second, vb = self.block(_negated(t), lambda: self.value(b))
                assert va is not None
                assert vb is not None
                if not first and not second:
                    self.frames[-1].names.discard(name)
                    return replace(x, test=test, then=va, other=vb)
                return self.choose(name, test, first, va, second, vb, x)
            case And(xs=xs) | Or(xs=xs):
                return self.junction(x, list(xs))
        return map_children(x, self.value)

    def choose(
        self, name: str, test: Expr, first: list[LoopStmt], a: Expr, second: list[LoopStmt], b: Expr, x: Expr
    ) -> Expr:
        assert x.dtype is not None
        self.emit(Var(name, x.dtype, Num(0, dtype=x.dtype)))
        self.emit(If(test, (*first, Set(name, "=", a)), (*second, Set(name, "=", b))))
        return Local(name, dtype=x.dtype)

    def junction(self, x: And | Or, xs: list[Expr]) -> Expr:
        """`and`, `or`: a later operand is evaluated only when the earlier ones leave it open, its checks
        included.
        """
        stop = isinstance(x, Or)
        out: list[Expr] = [self.value(xs[0])]
        for k in range(1, len(xs)):
            facts = [f for y in xs[:k] for f in (_negated(y) if stop else conjuncts(y))]
            name = self.name("pick")
            stmts, v = self.block(facts, lambda k=k: self.value(xs[k]))  # type: ignore[misc]
            assert v is not None
            if stmts:
                head: Expr = out[0] if len(out) == 1 else replace(x, xs=tuple(out))
                yes, no = (Num(True, dtype=DType.BOOL), v) if stop else (v, Num(False, dtype=DType.BOOL))
                then, other = ([], stmts) if stop else (stmts, [])
                out = [self.choose(name, head, then, yes, other, no, x)]
            else:
                self.frames[-1].names.discard(name)
                out.append(v)
        return out[0] if len(out) == 1 else replace(x, xs=tuple(out))

    def index_value(self, var: str) -> Expr:
        """The value of an index variable: the sum of what each loop over it adds."""
        self.binding(var)
        total: Expr = _i64(0)
        for f in self.frames:
            if var in f.vars:
                total = _bin(
                    "+", total, f.vars[var] if f.walk is None else self.walk_value(f, self.walk_axis(f, var))
                )
        return total

    def linear_value(self, var: str) -> Expr:
        """The row-major position of a pack index."""
        self.binding(var)
        total: Expr = _i64(0)
        for f in self.frames:
            if var in f.vars:
                total = _bin("+", total, self.walk_linear(f, var))
        return total

    def pack_of(self, var: str) -> Expr:
        f = self.frames[self.binding(var)]
        pack = self.walk_axis(f, var).extent
        assert isinstance(pack, Name)
        return next((x.over for x in self.splits if pack.id in (x.own, x.gone)), pack)

    # -------------------------------------------------------------------------------------------- memory
    def access(self, t: Tensor, index: tuple[Expr, ...]) -> Expr:
        place = self.places.get(t.name)
        if place is not None and place.kind == "scalar":
            return Local(place.local, dtype=t.dtype)
        dropped = place.dropped if place is not None else frozenset()
        dims = [d for d in t.dims if not d.keep]
        lanes: dict[int, list[tuple[str, int]]] = {}
        terms: list[Expr] = []
        strides: list[Expr] = []

        def term(e: Expr, k: int) -> None:
            if not (isinstance(e, Num) and e.value == 0):
                terms.append(e)
                strides.append(self.stride(t, k))

        for k, e in enumerate(index):
            if k in dropped:
                continue
            var, rest = plain_index(e), None
            if var is None:
                var, rest = self.split(e)
                self.check(e, dims[k].extent, t)
            elif dims[k].pack:
                self.check_pack(t, self.extents[var].extent, dims[k].extent)
            elif not self.same_extent(self.extents[var].extent, dims[k].extent):
                self.check(e, dims[k].extent, t)
            if var is None:
                term(self.value(e), k)
                continue
            local = (
                place is not None
                and self.buffers[t.name].scope in ("stack", "thread")
                and self.is_tile_dim(t.name, k)
            )
            for i, f in enumerate(self.frames):
                if var not in f.vars or (
                    local and (f.tile or (f.walk is not None and self.walk_axis(f, var).tile))
                ):
                    continue
                if f.walk is not None:
                    lanes.setdefault(i, []).append((var, k))
                else:
                    term(f.vars[var], k)
            if rest is not None:
                term(self.value(rest), k)
        ptr = self.names[("tensor", t.name)]
        for i in sorted(lanes):
            ptr = self.walk_operand(self.frames[i], t.name, ptr, tuple(lanes[i]))
        return Elem(ptr, t.name, tuple(terms), tuple(strides), dtype=t.dtype)

    def check_pack(self, t: Tensor, have: Expr, want: Expr) -> None:
        """A pack walked by the index of another one: a smaller box, unless it is a share of a broadcast pack."""
        assert isinstance(have, Name)
        assert isinstance(want, Name)
        parts = {n for x in self.splits for n in (x.own, x.gone)}
        if have == want or t.expand or have.id in parts or self.current is None:
            return
        if not shares(self.op, want.id, have.id) and not shares(self.op, have.id, want.id):
            box = (*self.current.axes, *(a for _, a in self.current.st.reduced))
            self.checks[HostCheck(have, want, (), box, True)] = None

    def same_extent(self, have: Expr, want: Expr) -> bool:
        """Whether an axis stays inside an entry: equal extents, or a part of the entry's."""
        return have == want or (
            isinstance(have, Name) and any(x.over == want and have.id in (x.own, x.gone) for x in self.splits)
        )

    def is_tile_dim(self, tensor: str, k: int) -> bool:
        return any(d == k and e == _i64(TILE) for d, e, _ in self.buffers[tensor].dims)

    @staticmethod
    def walk_axis(f: _Frame, var: str) -> WalkAxis:
        assert f.walk is not None
        return next(a for a in f.walk.axes if a.name == var)

    def split(self, e: Expr) -> tuple[str | None, Expr | None]:
        """`var + rest` for a variable of a walk: the walk moves, the rest is an offset."""
        if isinstance(e, Bin) and e.op in "+-":
            for one, other in ((e.left, e.right), (e.right, e.left)):
                v = plain_index(one)
                if v is None or v in index_names(other) or (e.op == "-" and one is e.right):
                    continue
                if (
                    self.frames[self.binding(v)].walk is None
                    or self.walk_axis(self.frames[self.binding(v)], v).tile
                ):
                    continue
                rest = other if e.op == "+" else Bin("-", _i64(0), other, dtype=DType.I64)
                return v, rest
        return None, None

    def check(self, e: Expr, extent: Expr, t: Tensor) -> None:
        if self.proven(e, extent):
            return
        free = (
            self.floor == 0
            and not self.narrowed
            and not (self.current is not None and self.current.st.assign.guard is not None)
        )
        used = _host_vars(e)
        if free and used is not None and self.current is not None:
            box = (*self.current.axes, *(a for _, a in self.current.st.reduced))
            axes = tuple((n, self.extents[n].extent) for n in sorted(used))
            self.checks[HostCheck(e, extent, axes, box)] = None
            return
        lvl = max(self.level(e), self.floor)
        key = Cmp("in", e, extent)
        frame = self.frames[lvl]
        if key in frame.cache:
            return
        saved = self.frames
        self.frames = saved[: lvl + 1]
        self.set_aside += saved[lvl + 1 :]
        self.emit(Check(self.value(e), self.value(extent)))
        frame.cache[key] = extent
        self.frames = saved
        del self.set_aside[len(self.set_aside) - len(saved[lvl + 1 :]) :]

    def proven(self, e: Expr, extent: Expr) -> bool:
        """0 <= e < extent by the facts in force, or by the axis that e is an earlier place of."""
        facts = [f for x in self.facts if (f := below(x)) is not None]
        base, c = _shift(e)
        low = high = False
        if isinstance(e, Num) and isinstance(e.value, int):
            low = e.value >= 0
            high = isinstance(extent, Num) and e.value < extent.value
        var = plain_index(base)
        if var is not None:
            low = c >= 0
            high = c <= 0 and var in self.extents and self.extents[var].extent == extent
        for a, b, d in facts:
            ab, ac = _shift(a)
            bb, bc = _shift(b)
            # a + d <= b, as  (ab) + ac + d <= (bb) + bc
            if (
                isinstance(ab, Num)
                and isinstance(ab.value, int)
                and bb == base
                and ab.value + ac + d - bc + c >= 0
            ):
                low = True
            if ab == base and bb == extent and c - ac - d + bc < 0:
                high = True
            if (
                ab == base
                and isinstance(bb, Num)
                and isinstance(extent, Num)
                and bb.value + bc - d - ac + c < extent.value
            ):
                high = True
        return low and high

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
                    his.append(_bin("+", other, _i64(1 - d)))
                else:
                    los.append(_bin("+", other, _i64(d)))
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
        lo: Expr = _i64(0)
        hi: Expr = a.extent
        los, his = bounds.get(a.name, ([], []))
        for e in los:
            lo = _pick("max", lo, self.value(e))
        for e in his:
            hi = _pick("min", hi, self.value(e))
        name = self.name(kind)
        frame = _Frame()
        self.frames.append(frame)
        var = ""
        if a.pack:
            frame.walk = _WalkBuild(self.next_walk(), [WalkAxis(a.name, a.extent, True)])
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
            at: Expr = _i64(0)
            for a in axes:
                here = self.linear_value(a.name) if a.pack else self.index_value(a.name)
                at = _bin("+", _bin("*", at, _count(a)), here)
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
        outer = _Frame()
        self.frames.append(outer)
        k_var = self.name(k.name)
        here = Local(k_var, dtype=DType.I64)
        outer.vars[k.name] = here
        inner = _Frame()
        self.frames.append(inner)
        t_var = self.name(n.name)
        rel = Local(t_var, dtype=DType.I64)
        inner.vars[n.name] = rel
        value = self.value(r.body)
        self.frames.pop()
        self.frames.pop()
        name = self.name(f"{_c_name(s.st.target)}_tile")
        self.emit(
            Tile(
                name,
                r.dtype,
                TILE,
                count,
                t_var,
                k_var,
                _i64(0),
                k.extent,
                tuple(outer.out),
                tuple(inner.out),
                value,
                probe,
            )
        )
        frame = _Frame()
        self.frames.append(frame)
        var = self.name(n.name)
        here = Local(var, dtype=DType.I64)
        frame.vars[n.name] = here
        target = self.access(self.tensors[s.st.target], s.st.assign.target.index)
        assert isinstance(target, Elem)
        self.emit(Store(target, "=", Elem(name, name, (here,), (_i64(1),), dtype=r.dtype)))
        self.frames.pop()
        self.emit(For(var, _i64(0), count, tuple(frame.out), "simd"))

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
    program = _Lowering(op, choice or plan(op, target), splits).run()
    verify(program)
    return program
