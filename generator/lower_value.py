"""Values where lowering stands: open loops, facts in force, and elements reached from there.

`Values` is the lower floor of `lower.py`'s pass.  A frame is one level of loops with what is emitted in it; a walk's
operands are what its steps move along.  An expression is computed in the outermost frame that has all it reads; an
access becomes an `Elem`, with its check where nothing proves it.  What a reduction is, the upper floor says.

May import: expr, types, bound, normal, updates, plan, contract, fusion, loops, errors, lower_names.  To add a fact that
spares a check: `Values.proven`; how a node of the language becomes a value: a case of `Values._value`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .bound import Axis, BoundOp, Tensor
from .contract import below, conjuncts
from .errors import LowerError
from .expr import (
    FUNCTIONS,
    And,
    Bin,
    Call,
    Cmp,
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
    walk,
)
from .fusion import Stmt, index_names
from .loops import (
    Buffer,
    Check,
    Elem,
    HostCheck,
    If,
    Let,
    Local,
    LoopStmt,
    Operand,
    Set,
    Stride,
    Var,
    WalkAxis,
)
from .lower_names import assign_names, c_name, free_name
from .normal import plain_index
from .plan import TILE, Plan
from .types import DType
from .updates import Split, shares

__all__ = ["Frame", "Place", "Values", "WalkBuild", "axis_count", "i64", "int_bin", "int_pick"]


@dataclass
class WalkBuild:
    id: int
    axes: list[WalkAxis]
    operands: dict[tuple[object, ...], Operand] = field(default_factory=dict)


@dataclass
class Frame:
    """One level of loops.  vars: index variable -> what this level adds to it; `tile`: it steps over whole
    tiles.
    """

    vars: dict[str, Expr] = field(default_factory=dict)
    out: list[LoopStmt] = field(default_factory=list)
    walk: WalkBuild | None = None
    block: bool = False
    tile: bool = False
    names: set[str] = field(default_factory=set)
    cache: dict[Expr, Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """kind: scalar | buffer; dropped: index entries that the shared loops fix."""

    kind: str
    dropped: frozenset[int]
    local: str = ""


def i64(value: int) -> Num:
    return Num(value, dtype=DType.I64)


def int_bin(op: str, a: Expr, b: Expr) -> Expr:
    x = a.value if isinstance(a, Num) else None
    y = b.value if isinstance(b, Num) else None
    if op in "+-*" and isinstance(x, int) and isinstance(y, int):
        return i64({"+": x + y, "-": x - y, "*": x * y}[op])
    if (op in "+-" and y == 0) or (op == "*" and y == 1):
        return a
    if (op == "+" and x == 0) or (op == "*" and x == 1):
        return b
    return Bin(op, a, b, dtype=DType.I64)


def int_pick(fn: str, a: Expr, b: Expr) -> Expr:
    return a if a == b else Call(fn, (a, b), dtype=DType.I64)


def axis_count(a: Axis) -> Expr:
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


class Values(ABC):
    """What is open while a nest is written, and expressions as values there."""

    @abstractmethod
    def reduce(self, r: Reduce) -> Expr:
        """The value of a reduction: loops of its own, which the upper floor writes."""

    def __init__(self, op: BoundOp, choice: Plan, splits: tuple[Split, ...] = ()) -> None:
        self.op = op
        self.splits = splits
        self.plan = choice
        self.names = assign_names(op, splits)
        self.globals = set(self.names.values())
        self.tensors: dict[str, Tensor] = {t.name: t for t in (*op.inputs, *op.outputs, *op.temps)}
        self.frames: list[Frame] = []
        self.facts: list[Expr] = []
        self.narrowed = 0
        self.places: dict[str, Place] = {}
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

    def begin(self) -> None:
        self.frames = [Frame()]
        self.set_aside: list[Frame] = []  # inner scopes, while something is written further out
        self.facts = []
        self.narrowed = 0
        self.tiles = {}
        self.extents = {}
        self.base_level = 0
        self.current = None

    def next_walk(self) -> int:
        self.walks += 1
        return self.walks - 1

    def stride(self, t: Tensor, k: int) -> Expr:
        b = self.buffers.get(t.name)
        if b is not None and not b.dims[-1][2] and b.dims[-1][0] == k:
            return i64(1)
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
        new = free_name(base, self.taken)
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

    def walk_value(self, frame: Frame, a: WalkAxis) -> Expr:
        """The value of a scalar axis of a walk (for a tile: where it starts), as an operand."""
        assert frame.walk is not None
        key = ("value", a.name)
        if key not in frame.walk.operands:
            base = f"{a.name}_0" if a.tile else a.name
            new = free_name(base, self.taken)
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "value", axis=a.name)
        return Local(frame.walk.operands[key].name, dtype=DType.I64)

    def walk_linear(self, frame: Frame, pack: str) -> Expr:
        assert frame.walk is not None
        key = ("linear", pack)
        if key not in frame.walk.operands:
            new = free_name(f"{pack}_at", self.taken)
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "linear", axis=pack)
        return Local(frame.walk.operands[key].name, dtype=DType.I64)

    def walk_operand(self, frame: Frame, tensor: str, base: str, lanes: tuple[tuple[str, int], ...]) -> str:
        assert frame.walk is not None
        key = ("element", tensor, base, lanes)
        if key not in frame.walk.operands:
            new = free_name(
                f"{self.names[('tensor', tensor)]}_p",
                self.taken,
            )
            frame.names.add(new)
            frame.walk.operands[key] = Operand(new, "element", tensor, base, lanes)
        return frame.walk.operands[key].name

    def block(self, facts: list[Expr], body: Callable[[], Expr | None]) -> tuple[list[LoopStmt], Expr | None]:
        """Statements and value of code under a condition."""
        frame = Frame(block=True)
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
            new = free_name(f"{c_name(base)}_v", self.taken)
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
        total: Expr = i64(0)
        for f in self.frames:
            if var in f.vars:
                total = int_bin(
                    "+", total, f.vars[var] if f.walk is None else self.walk_value(f, self.walk_axis(f, var))
                )
        return total

    def linear_value(self, var: str) -> Expr:
        """The row-major position of a pack index."""
        self.binding(var)
        total: Expr = i64(0)
        for f in self.frames:
            if var in f.vars:
                total = int_bin("+", total, self.walk_linear(f, var))
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
        return any(d == k and e == i64(TILE) for d, e, _ in self.buffers[tensor].dims)

    @staticmethod
    def walk_axis(f: Frame, var: str) -> WalkAxis:
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
                rest = other if e.op == "+" else Bin("-", i64(0), other, dtype=DType.I64)
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
