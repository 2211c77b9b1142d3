"""The Bound level: a spec for one `BindKey`, every name resolved and every expression typed.  Normal is a subset.

Only data lives here (frozen trees and their text); `bind.py` makes Bound from a spec, `normal.py` makes Normal from
Bound, `grad.py` makes a Normal adjoint from Normal, `loops.py` and the judge's oracle read it.

Vocabulary
  scalar dim    one extent: a name of an input's axis, or an expression over dims and attributes
  batch pack    any number of axes used whole (`*B`); its rank is a run-time matter.  `kind='broadcast'` joins shapes
  static pack   never seen here: `bind_lanes.py` expanded `*I` into lanes `I[0]`, `I[1]` …, one `Axis` a lane
  index var     scalar (`i`) or pack (`*b`, which walks all axes of one batch pack)

May import: expr, types.  To add a field: give it a default, print it in `show_bound`, check it in `verify`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .expr import (
    Assign,
    Bin,
    Call,
    Decl,
    Expr,
    Load,
    Name,
    Num,
    Reduce,
    Select,
    Star,
    Un,
    map_children,
    show,
    show_block,
)
from .types import DType

__all__ = [
    "Attr",
    "Axis",
    "BindKey",
    "BoundOp",
    "Dim",
    "DimUse",
    "Rule",
    "Statement",
    "Tensor",
    "show_bound",
    "show_statements",
]

StaticValue = bool | int | float | str | None | tuple[int, ...]


@dataclass(frozen=True, order=True)
class BindKey:
    """Everything constant in a kernel.  Each field is sorted (name, value) pairs; values are plain data.

    types     type variable -> DType name, e.g. (("A", "f32"), ("T", "bf16"))
    static    static attribute -> value (bool, int, float, str, None)
    present   optional input or optional attribute -> bool
    lengths   list input, or ints attribute whose length is static -> int
    ranks     static pack -> rank
    """

    types: tuple[tuple[str, str], ...] = ()
    static: tuple[tuple[str, StaticValue], ...] = ()
    present: tuple[tuple[str, bool], ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()

    def dtype(self, var: str) -> DType:
        return DType(dict(self.types)[var])

    def show(self) -> str:
        """`T=f32, axis…`: what a person reads in tables."""
        parts = [
            f"{k}={v}"
            for group in (self.types, self.static, self.present, self.lengths, self.ranks)
            for k, v in group
        ]
        return ", ".join(parts)


@dataclass(frozen=True)
class Dim:
    """An extent with a name.  Exactly one of `sources` or `expr` says where its value comes from.

    pack     a batch/broadcast pack; `broadcast` joins the shapes of all its sources, else they must be equal
    rank     of a pack: None when unknown until run time and free (takes what is left), else an integer expression
    expr     a derived extent (`let`, an attribute, an output's own); of packs: a `Name` of another pack or attribute
    sources  (flat input name, position in its `dims`); the first gives the value, the others are checked
    data     True for `sizes`: the expression reads inputs
    """

    name: str
    pack: bool = False
    broadcast: bool = False
    rank: Expr | None = None
    expr: Expr | None = None
    sources: tuple[tuple[str, int], ...] = ()
    data: bool = False


@dataclass(frozen=True)
class DimUse:
    """One entry of a tensor's logical shape.

    extent   integer expression (a `Name(kind='dim')` in the plain case), or `Name(kind='pack')` when `pack`
    at       attribute (`axis` or `axes`) that says where this dim sits in the physical shape; None: in order
    keep     of outputs: axes of extent 1 that no index addresses (loads and targets skip this entry).  With `at`: put
             back where that attribute says, as many as it names (`1@dim if keepdim`); with `pack`: as many as the pack
             `extent` has axes (`*(D ** 0)`)
    """

    extent: Expr
    pack: bool = False
    at: str | None = None
    keep: bool = False


@dataclass(frozen=True)
class Tensor:
    """An input, output or temporary.

    index order in `Load`/`Target` is the order of `dims` (logical), whatever the physical layout.
    """

    name: str
    dtype: DType
    dims: tuple[DimUse, ...]
    role: str  # input | output | temp
    list_of: str | None = (
        None  # entries of a list input are bound as tensors `xs.0`, `xs.1` …; this names `xs`
    )
    aux: bool = False
    expand: bool = False  # an input of any shape that broadcasts to `dims`: missing leading axes and axes of
    # extent 1 are read with stride 0; it is no source of a dim, only checked.  An output
    # that is the adjoint of one: `+=` accumulates over the axes it lacks
    like: str | None = (
        None  # of an output or temporary with `expand`: it has the shape of this input, aligned right
    )
    # in `dims`; `+=` accumulates over the axes it lacks, `=` writes one value along them


@dataclass(frozen=True)
class Attr:
    """A run-time attribute: kind is `int float bool scalar axis axes ints floats`."""

    name: str
    kind: str
    dtype: DType  # i64 for int, axis, ints; f64 for float; the dtype of use for scalar
    default: object = None
    empty_all: bool = False  # of axes: an empty set means all of them


@dataclass(frozen=True)
class Axis:
    """An index variable of a statement: `extent` is an integer expression, or `Name(kind='pack')` when `pack`.

    A pack index may address a pack of another name and fewer or shorter axes: aligned right, at 0 on axes of extent 1
    (broadcast inputs; the adjoints of broadcast inputs, whose packs are called `<pack>_<input>`).
    """

    name: str
    extent: Expr
    pack: bool = False
    stated: bool = False  # by `in`: printed, since no plain use gives it


@dataclass(frozen=True)
class Statement:
    """`assign` with its free index variables in loop order (first appearance: target, then value).

    reads and writes of one statement follow all earlier statements.  `recur` names the free axis over which the
    statement reads its own target (or that of its group) at smaller indices; None otherwise.
    """

    assign: Assign
    axes: tuple[Axis, ...]
    reduced: tuple[
        tuple[str, Axis], ...
    ] = ()  # (name as declared, axis) of every Reduce index inside the value
    recur: str | None = None

    @property
    def target(self) -> str:
        return self.assign.target.name

    def axis(self, name: str) -> Axis:
        """The free or reduced axis of this name; raises KeyError."""
        for a in self.axes:
            if a.name == name:
                return a
        return dict(self.reduced)[name]


@dataclass(frozen=True)
class Rule:
    """One `require`: `expr` is typed and boolean; `data` when it reads inputs (then it holds for all free `axes`)."""

    text: str
    expr: Expr
    data: bool = False
    axes: tuple[Axis, ...] = ()
    line: int = 0
    file: str = field(default="", compare=False, repr=False)  # the spec's, within its folder of specs


@dataclass(frozen=True)
class BoundOp:
    """A spec for one key.  Index names are unique within a statement; tensors are SSA but for updates of one target."""

    name: str
    key: BindKey
    inputs: tuple[Tensor, ...]  # flat: absent optionals left out, lists expanded to `xs.0` …
    outputs: tuple[Tensor, ...]
    temps: tuple[Tensor, ...]
    attrs: tuple[Attr, ...]
    dims: tuple[Dim, ...]  # in an order in which each depends on earlier ones only
    rules: tuple[Rule, ...]
    body: tuple[Statement, ...]
    inplace: tuple[tuple[str, str], ...] = ()
    slots: tuple[tuple[str, int], ...] = ()  # (flat input name, position among OwCall.in incl. absent ones)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def tensor(self, name: str) -> Tensor:
        """Any tensor by name; raises KeyError."""
        for t in (*self.inputs, *self.outputs, *self.temps):
            if t.name == name:
                return t
        raise KeyError(name)

    def dim(self, name: str) -> Dim:
        for d in self.dims:
            if d.name == name:
                return d
        raise KeyError(name)


def show_dim_use(d: DimUse) -> str:
    text = ("*" if d.pack else "") + show(d.extent)
    if d.keep:
        text = "1"
    return text + (f"@{d.at}" if d.at else "")


def show_tensor(t: Tensor) -> str:
    marks = ("aux " if t.aux else "") + ("expand " if t.expand else "")
    like = f" like {t.like}" if t.like else ""
    return f"{t.name}: {marks}{t.dtype}[{', '.join(show_dim_use(d) for d in t.dims)}]{like}"


def show_axis(a: Axis) -> str:
    return f"{'*' if a.pack else ''}{a.name} in {show(a.extent)}"


def show_statements(body: Iterable[Statement]) -> str:
    """Text that re-parses and rebinds to the same statements: stated extents are written at an index's first use."""
    return show_block(tuple(_with_extents(s) for s in body))


def _natural(x: Num) -> DType:
    return DType.BOOL if isinstance(x.value, bool) else DType.I64 if isinstance(x.value, int) else DType.F64


def _typed_number(x: Expr) -> Expr | None:
    """A value whose type only numbers give, with the first of them saying it, or a temporary would take their own;
    None where something else gives the type, or the numbers' own is right."""

    def first(e: Expr) -> Expr | None:
        match e:
            case Num(dtype=DType() as d) if d is not _natural(e):
                return Call(d.value, (replace(e, dtype=None),))
            case Select(then=a, other=b):
                return (
                    replace(e, then=t)
                    if (t := first(a))
                    else replace(e, other=t)
                    if (t := first(b))
                    else None
                )
            case Reduce(kind=k, body=b) if k not in ("argmax", "argmin"):
                return replace(e, body=t) if (t := first(b)) else None
            case Un(x=a):
                return replace(e, x=t) if (t := first(a)) else None
            case Bin(left=a, right=b):
                return (
                    replace(e, left=t)
                    if (t := first(a))
                    else replace(e, right=t)
                    if (t := first(b))
                    else None
                )
        return None

    def told(e: Expr) -> bool:
        match e:
            case Num() | Name():
                return False
            case Select(then=a, other=b) | Bin(left=a, right=b):
                return told(a) or told(b)
            case Reduce(body=b):
                return told(b)
            case Un(x=a):
                return told(a)
        return True

    return None if told(x) else first(x)


def _with_extents(s: Statement) -> Assign:
    left = {a.name: a for a in s.axes if a.stated}
    a = s.assign
    a = replace(a, value=_typed_number(a.value) or a.value)
    if not left:
        return a

    def put(e: Expr) -> Expr:
        match e:
            case Name(id=n) | Star(x=Name(id=n)) if n in left:
                a = left.pop(n)
                return Decl(n, a.pack, a.extent)
        return inside(e)

    def inside(e: Expr) -> Expr:
        if isinstance(e, Load):
            return replace(e, index=tuple(put(i) for i in e.index))
        return map_children(e, inside)

    def deep(e: Expr) -> Expr:
        """The same inside of computed indices, for what stands nowhere alone."""
        if isinstance(e, Name) and e.kind == "index" and e.id in left:
            return Decl(e.id, False, left.pop(e.id).extent)
        return map_children(e, deep)

    def computed(e: Expr) -> Expr:
        if isinstance(e, Load):
            return replace(e, index=tuple(deep(i) for i in e.index))
        return map_children(e, computed)

    a = replace(
        a, target=replace(a.target, index=tuple(put(i) for i in a.target.index)), value=inside(a.value)
    )
    a = replace(a, guard=inside(a.guard) if a.guard is not None else None)
    if left:
        a = replace(a, target=replace(a.target, index=tuple(deep(i) for i in a.target.index)))
        a = replace(a, value=computed(a.value), guard=computed(a.guard) if a.guard is not None else None)
    return a


def show_bound(op: BoundOp) -> str:
    """What `opwright show OP --level bound|normal` prints.  The statements re-parse; the head is for people."""
    lines = [f"op {op.name}  [{op.key.show()}]"]
    lines += [f"  in    {show_tensor(t)}" for t in op.inputs]
    lines += [f"  attr  {a.name}: {a.kind} {a.dtype}" for a in op.attrs]
    for d in op.dims:
        star = "*" if d.pack else ""
        if d.expr is not None:
            lines.append(f"  dim   {star}{d.name} = {show(d.expr)}{'  (reads data)' if d.data else ''}")
        else:
            lines.append(
                f"  dim   {star}{d.name} from {', '.join(f'{n}.{k}' for n, k in d.sources)}"
                + (" broadcast" if d.broadcast else "")
            )
    lines += [f"  rule  {r.text}" for r in op.rules]
    lines += [f"  temp  {show_tensor(t)}" for t in op.temps]
    lines += [f"  out   {show_tensor(t)}" for t in op.outputs]
    for s in op.body:
        axes = ", ".join(show_axis(a) for a in s.axes)
        if s.reduced:
            axes += " | " + ", ".join(show_axis(a) for _, a in s.reduced)
        tail = f"   recur {s.recur}" if s.recur else ""
        lines.append(f"  for [{axes}]{tail}")
        lines.append("    " + show_statements((s,)).rstrip("\n"))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class KernelText:
    """One printed kernel: what the emitters give, the judge builds and the runtime loads.

    source is a whole translation unit exporting `symbol`, `symbol_infer`, `symbol_workspace` (abi.h);
    several may be joined into one file, since everything else in them is static and named after the symbol.
    row is the table row of docs/internals.md.
    """

    symbol: str
    source: str
    row: dict[str, object]
    dialect: str
