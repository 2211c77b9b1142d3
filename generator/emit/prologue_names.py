"""The names of a call's dims, attributes and tensors in `Env`, facts about them, and refusals (`prologue.py`'s lowest
floor).

May import: expr, types, bound, loops, c_like, updates.  To add a reason to refuse a call: `Names.refuse` with a code of
abi.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..bound import Attr, DimUse, Tensor
from ..expr import Bin, Expr, Fold, Item, Load, Name, Num, Un, walk
from ..loops import Accumulate, Contract, For, If, LoopProgram, LoopStmt, Tile, Walk
from ..types import DType
from ..updates import shares
from .c_like import CLike

__all__ = ["Names", "Where", "walks", "walks_in"]


@dataclass
class Where:
    """How one tensor's dims sit in its physical axes: C expressions per logical dim."""

    rank: str  # int32_t expression of the whole rank
    order: str  # name of the OwkOrder of the axes that no attribute claims
    scalar: dict[int, str] = field(default_factory=dict)  # dim position -> physical axis
    pack: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # position -> (order, first, rank)


class Names:
    """What things are called in `Env`, and refusals."""

    def __init__(self, p: LoopProgram, c: CLike) -> None:
        self.p, self.op, self.c = p, p.op, c
        self.slot = dict(self.op.slots) or {t.name: k for k, t in enumerate(self.op.inputs)}
        self.pack_rank: dict[str, str] = {}
        self.axis_done: set[str] = set()
        self.axis_packs: dict[str, set[str]] = {}
        self.counted: set[str] = set()
        self.where: dict[str, Where] = {}
        self.known: set[str] = set()
        self.asked: set[int] = set()

    # -------------------------------------------------------------------------------------------- names
    def dim(self, n: str) -> str:
        return self.p.names[("dim", n)]

    def attr(self, n: str) -> str:
        return self.p.names[("attr", n)]

    def tensor(self, n: str) -> str:
        return self.p.names[("tensor", n)]

    def attr_at(self, n: str) -> int:
        return next(k for k, a in enumerate(self.op.attrs) if a.name == n)

    def attr_of(self, n: str) -> Attr:
        """The attribute that a dim sits at; a set of axes that the call left out has no slot, and means all
        axes.
        """
        return next((a for a in self.op.attrs if a.name == n), Attr(n, "axes", DType.I64))

    def absent_axes(self) -> list[str]:
        known = {a.name for a in self.op.attrs}
        found = {
            d.at: None
            for t in (*self.op.inputs, *self.op.outputs)
            for d in t.dims
            if d.at is not None and d.at not in known
        }
        return list(found)

    def expr(self, x: Expr, need: int = 0) -> str:
        return self.c.expr(x, need)

    def fail(
        self,
        code: str,
        *,
        which: object = -1,
        arg: object = -1,
        axis: object = -1,
        want: object = 0,
        got: object = 0,
    ) -> str:
        return f"return owk_fail(error, {code}, {which}, {arg}, {axis}, {want}, {got});"

    def refuse(self, test: str, code: str, note: str = "", **fields: object) -> None:
        """Print that a call is refused where `test` holds."""
        self.c.line(f"if ({test}) {self.fail(code, **fields)}" + (f"  // {note}" if note else ""))

    # -------------------------------------------------------------------------------------------- integers
    def wide(self, x: Expr) -> str:
        """An integer expression in doubles, that do not wrap."""
        match x:
            case Num(value=v):
                return repr(float(v))
            case Bin(op="+" | "-" | "*" as op, left=a, right=b):
                return f"({self.wide(a)} {op} {self.wide(b)})"
            case Un(op="-", x=a):
                return f"-{self.wide(a)}"
        return f"(double)({self.expr(x)})"

    def beyond(self, x: Expr) -> str:
        """A test for integers of `x` that 64 bits do not hold; empty where none can be.

        Sums and products wrap alike, so one test at the root of each of them says whether it is right.
        """
        ring = ("+", "-", "*")
        inside: set[int] = set()
        tests: dict[str, None] = {}
        for n in walk(x):  # parents first
            if not isinstance(n, Bin) or n.op not in ring or n.dtype is not DType.I64:
                continue
            inside |= {id(c) for c in (n.left, n.right)}
            leaves = [c for c in walk(n) if isinstance(c, (Name, Item, Fold))]
            if id(n) not in inside and len(leaves) > 1 and not any(isinstance(c, Load) for c in walk(n)):
                tests[f"owk_beyond({self.wide(n)})"] = None
        return " || ".join(tests)

    def refuse_beyond(self, x: Expr) -> None:
        """Print that a call is refused whose arguments make an extent of more than 64 bits."""
        if test := self.beyond(x):
            self.refuse(test, "OW_E_SHAPE", arg=self.origin(x), got="INT64_MIN")

    def per_thread(self) -> bool:
        """Whether each thread has memory of its own."""
        return bool(self.p.contracts) or any(b.scope == "thread" for b in self.p.buffers)

    @staticmethod
    def dims(t: Tensor) -> list[DimUse]:
        """The dims that indices name: kept ones of extent 1 are only in the shape."""
        return [d for d in t.dims if not d.keep]

    @staticmethod
    def element(a: Attr) -> DType:
        return DType.F64 if a.kind == "floats" else DType.I64

    def length(self, a: Attr) -> int:
        known = dict(self.op.key.lengths).get(a.name)
        if known is not None:
            return known
        exprs = [d.expr for d in self.op.dims if d.expr is not None] + [r.expr for r in self.op.rules]
        exprs += [e for s in self.op.body for e in (s.assign.value, *s.assign.target.index)]
        return 1 + max(
            (n.lane for e in exprs for n in walk(e) if isinstance(n, Item) and n.id == a.name), default=-1
        )

    def linear_packs(self) -> list[str]:
        found: dict[str, None] = {}
        for w in walks(self.p):
            packs = {a.name: a for a in w.axes}
            for o in w.operands:
                if o.kind == "linear":
                    extent = packs[o.axis].extent
                    assert isinstance(extent, Name)
                    found[self.whole(extent.id)] = None
        return list(found)

    def whole(self, pack: str) -> str:
        """The pack that `pack` is, or is a part of."""
        for x in self.p.splits:
            if pack in (x.own, x.gone) and isinstance(x.over, Name):
                return x.over.id
        return pack

    def aligned(self) -> list[tuple[str, int, str]]:
        """(tensor, index entry, pack): strides of an entry's own pack along the axes of another that walks it."""
        found: dict[tuple[str, int, str], None] = {}
        for w in walks(self.p):
            packs = {a.name: a.extent for a in w.axes if a.pack}
            for o in w.operands:
                for axis, k in o.lanes:
                    extent = packs.get(axis)
                    if isinstance(extent, Name) and self.needs_aligning(o.tensor, k, self.whole(extent.id)):
                        found[(o.tensor, k, self.whole(extent.id))] = None
        return list(found)

    def needs_aligning(self, tensor: str, k: int, pack: str) -> bool:
        t = self.op.tensor(tensor)
        mine = self.dims(t)[k].extent
        return (
            not t.expand
            and isinstance(mine, Name)
            and mine.id != pack
            and (shares(self.op, mine.id, pack) or shares(self.op, pack, mine.id))
        )

    def aligned_name(self, tensor: str, k: int, pack: str) -> str:
        return f"{self.tensor(tensor)}_p{k}_{self.dim(pack)}"

    def origin(self, x: Expr | None) -> int:
        """The input to name in an error about an extent: the first that its expression takes an extent from."""
        for n in walk(x) if x is not None else ():
            if isinstance(n, Load) and n.tensor in self.slot:
                return self.slot[n.tensor]
            if isinstance(n, Name) and n.kind in ("dim", "pack"):
                d = next((d for d in self.op.dims if d.name == n.id), None)
                if d is not None and d.sources:
                    return self.slot[d.sources[0][0]]
                if d is not None and d.expr is not None and (k := self.origin(d.expr)) >= 0:
                    return k
        return min(self.slot.values(), default=-1)


def walks(p: LoopProgram) -> list[Walk]:
    """Every walk of a program, in the order of their numbers."""
    stmts = [s for n in (*p.rules, *p.nests) for s in n.body] + [s for z in p.sizes for s in z.body]
    return walks_in(stmts)


def walks_in(stmts: Iterable[LoopStmt]) -> list[Walk]:
    """Every walk in statements, in the order of their numbers."""
    found: dict[int, Walk] = {}

    def go(body: Iterable[LoopStmt]) -> None:
        for s in body:
            match s:
                case Walk():
                    found[s.id] = s
                    go(s.body)
                case For(body=b):
                    go(b)
                case If(then=a, orelse=b):
                    go(a)
                    go(b)
                case Accumulate(loop=loop, body=b):
                    if isinstance(loop, Walk):
                        found[loop.id] = loop
                    go(b)
                case Tile(before=a, body=b):
                    go(a)
                    go(b)
                case Contract(left=left, right=right, epilogue=last):
                    go((left.walk, right.walk, last))

    go(stmts)
    return [found[k] for k in sorted(found)]
