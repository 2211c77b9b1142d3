"""The Loop level: loop nests over walks of any strides, scalars, buffers; its verifier and its text.

A frozen tree over the expression nodes of `expr.py` plus `Elem` (an element of memory), `Stride` and
`Local`; no `Reduce`
is left.  `lower.py` makes it from Normal, the printers of `emit/` read it.

May import: expr, types, bound, updates, errors.  To add a loop node: its dataclass, its case in `verify`,
its line in
`_show`, its text in `emit/c_like.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .bound import Axis, BoundOp
from .errors import LowerError
from .expr import Bin, Expr, Load, Name, Num, Reduce, Star, map_children, show, walk
from .types import DType
from .updates import Split

__all__ = [
    "Accumulate",
    "ArgBegin",
    "ArgStep",
    "Buffer",
    "Cell",
    "Check",
    "Contract",
    "Elem",
    "Factor",
    "Fail",
    "For",
    "HostCheck",
    "If",
    "Let",
    "Local",
    "LoopProgram",
    "LoopStmt",
    "Nest",
    "Operand",
    "ScanBegin",
    "ScanStep",
    "Set",
    "Size",
    "Store",
    "Stride",
    "Tile",
    "Var",
    "Walk",
    "WalkAxis",
    "contracts_in",
    "show_loops",
    "verify",
]


@dataclass(frozen=True)
class Local(Expr):
    """A scalar of the kernel: a `Let`, a `Var`, a loop variable or a value operand of a walk."""

    id: str


@dataclass(frozen=True)
class Stride(Expr):
    """Elements between neighbours along index entry `dim` of `tensor`."""

    tensor: str
    dim: int


@dataclass(frozen=True)
class Elem(Expr):
    """`ptr[sum(index * stride)]`: `ptr` names an operand of an enclosing walk, a buffer, or a tensor."""

    ptr: str
    tensor: str
    index: tuple[Expr, ...] = ()
    stride: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Cell(Expr):
    """The sum that a `Contract` made for the row and column at hand."""


@dataclass(frozen=True)
class Let:
    """A constant scalar of the enclosing block, of the value's dtype."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Var:
    """A scalar that `Set` changes."""

    name: str
    dtype: DType
    value: Expr


@dataclass(frozen=True)
class Set:
    """`name mode value` of a `Var`."""

    name: str
    mode: str
    value: Expr


@dataclass(frozen=True)
class Store:
    """`target mode value`; mode is one of the language's."""

    target: Elem
    mode: str
    value: Expr


@dataclass(frozen=True)
class If:
    test: Expr
    then: tuple[LoopStmt, ...]
    orelse: tuple[LoopStmt, ...] = ()


@dataclass(frozen=True)
class Check:
    """Unless 0 <= index < extent: report OW_E_INDEX and leave this iteration."""

    index: Expr
    extent: Expr


@dataclass(frozen=True)
class Fail:
    """Report OW_E_DATA for rule `which`."""

    which: int


@dataclass(frozen=True)
class For:
    """`for var in range(lo, hi, step)`.

    kind: serial; free: iterations do not touch each other's memory; simd: free, and the body is a straight line.
    """

    var: str
    lo: Expr
    hi: Expr
    body: tuple[LoopStmt, ...] = ()
    kind: str = "serial"
    step: int = 1  # -1: from hi - 1 down to lo


@dataclass(frozen=True)
class Operand:
    """What a walk moves.  kind: `element` (a pointer into `base`), `value` (index `axis`), `linear`
    (position in pack `axis`).

    lanes pairs an axis of the walk with the index entry of `tensor` that it moves along.
    """

    name: str
    kind: str
    tensor: str = ""
    base: str = ""
    lanes: tuple[tuple[str, int], ...] = ()
    axis: str = ""


@dataclass(frozen=True)
class WalkAxis:
    """An axis of a walk; `tile` > 0 (or an extent): its extent is the number of tiles of that many."""

    name: str
    extent: Expr
    pack: bool = False
    tile: int | Expr = 0


@dataclass(frozen=True)
class Walk:
    """The product of axes in row-major order.

    mode      flat: the body is a straight line per element, run along the innermost merged axis; rows: one
              at a time
    parallel  elements do not touch each other's memory: any order, any thread
    ordered   its positions are counted: axes keep their order all the same
    """

    id: int
    axes: tuple[WalkAxis, ...]
    operands: tuple[Operand, ...]
    body: tuple[LoopStmt, ...]
    mode: str
    parallel: bool
    ordered: bool = False


@dataclass(frozen=True)
class Accumulate:
    """`name = reduction of value over loop` (a For or Walk without body of its own); `body` runs before
    `value` each time.

    leaf False: the loop's body holds another Accumulate, so this one adds up sums.
    """

    name: str
    kind: str
    dtype: DType
    loop: For | Walk
    body: tuple[LoopStmt, ...]
    value: Expr
    leaf: bool


@dataclass(frozen=True)
class ArgBegin:
    name: str
    kind: str
    dtype: DType


@dataclass(frozen=True)
class ArgStep:
    """One candidate of `ArgBegin` `name`: its value, and the row-major position `at`."""

    name: str
    kind: str
    value: Expr
    at: Expr


@dataclass(frozen=True)
class ScanBegin:
    """A running reduction `name` of nothing so far."""

    name: str
    kind: str
    dtype: DType


@dataclass(frozen=True)
class ScanStep:
    """One more value of `ScanBegin` `name`; `into` is what it comes to."""

    name: str
    kind: str
    dtype: DType
    into: str
    value: Expr


@dataclass(frozen=True)
class Tile:
    """Sums of `count` <= `size` neighbours at once: name[t] = sum over `k` of value(k, t), with `before`
    once per k.

    columns: stride that must be 1 for the order k-then-t; else rows are summed one by one, t-then-k.
    """

    name: str
    dtype: DType
    size: int
    count: Expr
    t: str
    k: str
    lo: Expr
    hi: Expr
    before: tuple[LoopStmt, ...]
    body: tuple[LoopStmt, ...]
    value: Expr
    columns: Expr


@dataclass(frozen=True)
class Factor:
    """One factor of a contraction: a walk over the sum's axes around a flat one over the factor's own; `value` each
    time.

    window  `value` is an element of memory where all of these are at least 0, and 0 elsewhere; along a run the place
            of the element and these numbers change evenly.  `checks` hold for all elements of a run alike
    apart   place and numbers are each a part that the sum's axes move and one that the own axes move
    """

    walk: Walk
    value: Expr
    window: tuple[Expr, ...] = ()
    checks: tuple[Check, ...] = ()
    apart: bool = False

    @property
    def own(self) -> Walk:
        inner = self.walk.body[-1]
        assert isinstance(inner, Walk)
        return inner


@dataclass(frozen=True)
class Contract:
    """Sums of products for all rows and columns of an outer position, in tiles: `epilogue` (a walk over rows around
    a flat one over columns) reads each as `Cell`.

    extents: of rows, columns and terms; limit: how many rows there are at this outer position, where that varies.
    until: the column from which on no sum is read, where that is known.
    inside: among the statements of a block of `limit` rows; else it is what its nest does, task by task.
    """

    id: int
    dtype: DType
    extents: tuple[Expr, Expr, Expr]
    limit: Expr | None
    left: Factor
    right: Factor
    epilogue: Walk
    until: Expr | None = None
    inside: bool = False

    @property
    def columns(self) -> Walk:
        inner = self.epilogue.body[-1]
        assert isinstance(inner, Walk)
        return inner


LoopStmt = (
    Let
    | Var
    | Set
    | Store
    | If
    | Check
    | Fail
    | For
    | Walk
    | Accumulate
    | ArgBegin
    | ArgStep
    | ScanBegin
    | ScanStep
    | Tile
    | Contract
)


@dataclass(frozen=True)
class Buffer:
    """Where a temporary lives.  scope: global | thread | stack.  dims: (index entry, extent, pack); tile
    extents are TILE.
    """

    tensor: str
    dtype: DType
    scope: str
    dims: tuple[tuple[int, Expr, bool], ...]


@dataclass(frozen=True)
class HostCheck:
    """An affine index that must lie in [0, extent) for all values of its axes, unless `box` is empty.

    pack: `index` and `extent` name packs; the first must be of the other's rank and lie inside it.
    """

    index: Expr
    extent: Expr
    axes: tuple[tuple[str, Expr], ...]
    box: tuple[Axis, ...]
    pack: bool = False


@dataclass(frozen=True)
class Nest:
    """One loop nest: `body` ends with its Walk; `work`: elements touched per step of the walk; `text`: its
    statements.
    """

    body: tuple[LoopStmt, ...]
    work: Expr
    text: tuple[str, ...]
    parallel: bool

    @property
    def walk(self) -> Walk:
        last = self.body[-1]
        assert isinstance(last, Walk)
        return last

    @property
    def contract(self) -> Contract | None:
        """The contraction that the walk's steps end with."""
        last = self.walk.body[-1] if self.walk.body else None
        return last if isinstance(last, Contract) and not last.inside else None


@dataclass(frozen=True)
class Size:
    """A data-dependent extent: run `body`, then `value` is `dim`."""

    dim: str
    body: tuple[LoopStmt, ...]
    value: Expr


@dataclass(frozen=True)
class LoopProgram:
    """Everything a printer needs.  names: C identifier of each dim, attribute and tensor."""

    op: BoundOp
    target: str
    names: dict[tuple[str, str], str]
    sizes: tuple[Size, ...]
    rules: tuple[Nest, ...]
    checks: tuple[HostCheck, ...]
    nests: tuple[Nest, ...]
    buffers: tuple[Buffer, ...]
    splits: tuple[Split, ...]
    twins: tuple[tuple[str, str], ...]  # (output, input) that may be one tensor

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """All contractions, those inside rows too."""
        return tuple(k for n in self.nests for k in contracts_in(n.body))

    def buffer(self, tensor: str) -> Buffer | None:
        return next((b for b in self.buffers if b.tensor == tensor), None)


def contracts_in(stmts: Sequence[LoopStmt]) -> list[Contract]:
    """The contractions among statements and below them."""
    found: list[Contract] = []
    for s in stmts:
        match s:
            case Contract():
                found.append(s)
            case Walk(body=b) | For(body=b):
                found += contracts_in(b)
            case If(then=a, orelse=b):
                found += contracts_in((*a, *b))
    return found


# ================================================================================================ verify


def verify(p: LoopProgram) -> None:
    """Raise LowerError unless every scalar is declared once, and before it is read, every pointer exists and no
    Reduce is left.
    """

    def fail(what: str) -> None:
        raise LowerError(f"{p.op.name}: {what}")

    outer = {t.name for t in p.op.outputs} | {b.tensor for b in p.buffers}

    def expr(x: Expr, scope: set[str]) -> None:
        for n in walk(x):
            if isinstance(n, (Reduce, Load, Star)):
                fail(f"`{show(n)}` is left at the Loop level")
            if isinstance(n, Name) and n.kind in ("index", "packindex"):
                fail(f"index `{n.id}` is left at the Loop level")
            if isinstance(n, Local) and n.id.split(".")[0] not in scope:
                fail(f"scalar `{n.id}` is read before it is set")
            if isinstance(n, Elem):
                if n.ptr not in scope:
                    fail(f"pointer `{n.ptr}` does not exist")
                if len(n.index) != len(n.stride):
                    fail(f"`{n.ptr}` has {len(n.index)} indices and {len(n.stride)} strides")
            if n.dtype is None and not isinstance(n, Name):
                fail(f"`{type(n).__name__}` has no type")

    def operands(w: Walk, scope: set[str]) -> set[str]:
        new = set(scope)
        for o in w.operands:
            if o.kind == "element" and o.base not in scope:
                fail(f"operand `{o.name}` starts at `{o.base}`, which does not exist")
            new.add(o.name)
        return new

    def block(stmts: Sequence[LoopStmt], scope: set[str]) -> None:
        scope = set(scope)
        for s in stmts:
            match s:
                case Let(name=n, value=v) | Var(name=n, value=v):
                    expr(v, scope)
                    # A constant may hide a constant; what `Set` changes must be the one that is read.
                    if f"={n}" in scope:
                        fail(f"`{n}` is declared where there is one: what is set would be the inner one")
                    scope |= {n, f"={n}"} if isinstance(s, Var) else {n}
                case Set(name=n, value=v):
                    expr(v, scope)
                    if n not in scope:
                        fail(f"`{n}` is set before it is declared")
                case Store(target=t, value=v):
                    expr(t, scope)
                    expr(v, scope)
                    if t.tensor not in outer:
                        fail(f"`{t.tensor}` is written, but is neither an output nor a buffer")
                case If(test=t, then=a, orelse=b):
                    expr(t, scope)
                    block(a, scope)
                    block(b, scope)
                case Check(index=i, extent=e):
                    expr(i, scope)
                    expr(e, scope)
                case For(var=v, lo=a, hi=b, body=body):
                    expr(a, scope)
                    expr(b, scope)
                    block(body, scope | {v})
                case Walk(body=body):
                    block(body, operands(s, scope))
                case Accumulate(name=n, loop=loop, body=body, value=v):
                    inner = operands(loop, scope) if isinstance(loop, Walk) else scope | {loop.var}
                    block((*body, Let("#value", v)), inner)
                    if n in scope:
                        fail(f"the sum `{n}` hides one of the same name, which may be read below")
                    scope.add(n)
                case ArgBegin(name=n) | ScanBegin(name=n):
                    scope.add(n)
                case ScanStep(name=n, into=into, value=v):
                    expr(v, scope)
                    if n not in scope:
                        fail(f"`{n}` has no beginning")
                    scope.add(into)
                case ArgStep(name=n, value=v, at=at):
                    expr(v, scope)
                    expr(at, scope)
                    if n not in scope:
                        fail(f"`{n}` has no beginning")
                case Tile(name=n, count=c, t=t, k=k, before=before, body=body, value=v):
                    expr(c, scope)
                    block((*before, *body, Let("#value", v)), scope | {t, k})
                    scope.add(n)
                case Contract(extents=es, limit=limit, left=left, right=right, epilogue=last):
                    for e in (*es, *(x for x in (limit, s.until) if x is not None)):
                        expr(e, scope)
                    for f in (left, right):
                        ends = [Let("#value", x) for x in (*f.window, f.value)]
                        own = replace(f.own, body=(*f.own.body, *f.checks, *ends))
                        block((replace(f.walk, body=(*f.walk.body[:-1], own)),), scope)
                    block((last,), scope)

    base = {p.names[("tensor", t.name)] for t in (*p.op.inputs, *p.op.outputs)}
    base |= {p.names[("tensor", b.tensor)] for b in p.buffers}
    for nest in (*p.rules, *p.nests):
        block(nest.body, base)
    for s in p.sizes:
        block((*s.body, Let("#size", s.value)), base)


# ================================================================================================ show


def show_loops(p: LoopProgram) -> str:
    """What `opwright show OP --level loop` prints."""
    out = [f"loops {p.op.name}  [{p.op.key.show()}]  {p.target}"]
    for b in p.buffers:
        dims = ", ".join(("*" if pack else "") + show(e) for _, e, pack in b.dims)
        out.append(f"  {b.scope} {b.tensor}: {b.dtype}[{dims}]")
    for o, i in p.twins:
        out.append(f"  {o} may be {i}")
    for c in p.checks:
        out.append(f"  check 0 <= {show(c.index)} < {show(c.extent)}")
    for s in p.sizes:
        out.append(f"  size {s.dim}")
        _show(s.body, "    ", out)
        out.append(f"    = {_text(s.value)}")
    for n in (*p.rules, *p.nests):
        out += [f"  # {t}" for t in n.text]
        _show(n.body, "  ", out)
    return "\n".join(out) + "\n"


def _text(x: Expr) -> str:
    def put(e: Expr) -> Expr:
        match e:
            case Local(id=n):
                return Name(n)
            case Stride(tensor=t, dim=k):
                return Name(f"{t}.s{k}")
            case Elem(ptr=p, index=ix, stride=st):
                terms: list[Expr] = [
                    put(i) if isinstance(s, Num) else Bin("*", put(i), put(s))
                    for i, s in zip(ix, st, strict=True)
                ]
                total: Expr = terms[0] if terms else Num(0)
                for term in terms[1:]:
                    total = Bin("+", total, term)
                return Load(p, (total,))
            case Cell():
                return Name("cell")
        return map_children(e, put)

    return show(put(x))


def _show(stmts: Sequence[LoopStmt], pad: str, out: list[str]) -> None:
    for s in stmts:
        match s:
            case Let(name=n, value=v):
                out.append(f"{pad}let {n} = {_text(v)}")
            case Var(name=n, dtype=d, value=v):
                out.append(f"{pad}var {n}: {d} = {_text(v)}")
            case Set(name=n, mode=m, value=v):
                out.append(f"{pad}{n} {m} {_text(v)}")
            case Store(target=t, mode=m, value=v):
                out.append(f"{pad}{_text(t)} {m} {_text(v)}")
            case If(test=t, then=a, orelse=b):
                out.append(f"{pad}if {_text(t)}")
                _show(a, pad + "  ", out)
                if b:
                    out.append(f"{pad}else")
                    _show(b, pad + "  ", out)
            case Check(index=i, extent=e):
                out.append(f"{pad}check 0 <= {_text(i)} < {_text(e)}")
            case Fail(which=k):
                out.append(f"{pad}fail rule {k}")
            case For():
                out.append(f"{pad}{_for(s)}")
                _show(s.body, pad + "  ", out)
            case Walk():
                out.append(f"{pad}{_walk(s)}")
                _show(s.body, pad + "  ", out)
            case Accumulate(name=n, kind=k, loop=loop, body=body, value=v):
                out.append(f"{pad}{n} = {k} {_walk(loop) if isinstance(loop, Walk) else _for(loop)}")
                _show(body, pad + "  ", out)
                out.append(f"{pad}  yield {_text(v)}")
            case ArgBegin(name=n, kind=k):
                out.append(f"{pad}{n} = {k} of")
            case ScanBegin(name=n, kind=k):
                out.append(f"{pad}{n} = running {k}")
            case ScanStep(name=n, value=v, into=into):
                out.append(f"{pad}let {into} = {n} with {_text(v)}")
            case ArgStep(name=n, value=v, at=at):
                out.append(f"{pad}{n} takes {_text(v)} at {_text(at)}")
            case Tile():
                out.append(
                    f"{pad}tile {s.name}[{s.t} < {_text(s.count)} <= {s.size}] = "
                    f"sum {s.k} in {_text(s.lo)} .. {_text(s.hi)}"
                    f" (columns when {_text(s.columns)} is 1)"
                )
                _show(s.before, pad + "  ", out)
                _show(s.body, pad + "    ", out)
                out.append(f"{pad}    yield {_text(s.value)}")
            case Contract():
                _show_contract(s, pad, out)


def _show_contract(s: Contract, pad: str, out: list[str]) -> None:
    m, n, k = (_text(e) for e in s.extents)
    limit = "" if s.limit is None else f" (rows at most {_text(s.limit)})"
    limit += "" if s.until is None else f" (columns read up to {_text(s.until)})"
    out.append(f"{pad}contract {s.dtype} {m} by {n} over {k}{limit}")
    for name, f in (("left", s.left), ("right", s.right)):
        own = f.own
        out.append(f"{pad}  {name} {_walk(f.walk)}")
        _show(f.walk.body[:-1], pad + "    ", out)
        out.append(f"{pad}    {_walk(own)}")
        _show((*own.body, *f.checks), pad + "      ", out)
        where = " and ".join(f"0 <= {_text(x)}" for x in f.window)
        out.append(f"{pad}      yield {_text(f.value)}{f' where {where}' if where else ''}")
    _show((s.epilogue,), pad + "  ", out)


def _for(s: For) -> str:
    step = "" if s.step == 1 else " down" if s.step < 0 else f" by {s.step}"
    return f"for {s.var} in {_text(s.lo)} .. {_text(s.hi)}{step}{'' if s.kind == 'serial' else f' {s.kind}'}"


def _tile(tile: int | Expr) -> str:
    return str(tile) if isinstance(tile, int) else _text(tile)


def _walk(w: Walk) -> str:
    axes = ", ".join(
        ("*" if a.pack else "") + a.name + (f" by {_tile(a.tile)}" if a.tile else "") for a in w.axes
    )
    moves = []
    for o in w.operands:
        if o.kind == "element":
            moves.append(f"{o.name}={o.base}({', '.join(f'{a}:{k}' for a, k in o.lanes)})")
        else:
            moves.append(f"{o.name}={o.kind}({o.axis})")
    return f"{'parallel ' if w.parallel else ''}{w.mode} walk {w.id} [{axes}] moving {', '.join(moves) or 'nothing'}"
