"""Normal -> Normal before lowering: updates become reductions where they are one, and start from a base where not.

  reduce   `da[*B] += f` sums over every index that the target does not name.  A target that lacks axes of
           the index space
           (the adjoint of a broadcast input: a pack of its own, or `expand … like x`) names only a part of
           it: the axis
           is split into what the target has (`own`) and what it lacks (`gone`), each with extent 1 where the
           other has
           the whole.  The same index variable then runs over `own` outside and over `gone` inside, and
           stands for the sum
           of both.  Sums come out blocked, rows parallel, and nothing is added twice.
  base     Updates without a base start at the identity of their mode (rule 6); `set` writes what it writes.

May import: expr, types, bound, normal.  To add a mode of update: its reduction in `_KIND`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .bound import Axis, BoundOp, Statement, Tensor
from .expr import Assign, Decl, Expr, Load, Name, Reduce, Select, Star, Target, walk
from .normal import identity, plain_index
from .types import DType

__all__ = ["Split", "normal_updates", "shares"]

_KIND = {"+=": "sum", "*=": "prod", "max": "max", "min": "min", "any": "any", "all": "all"}


@dataclass(frozen=True)
class Split:
    """An axis over `over` (a pack's name or an extent) met by a tensor that may lack it; `own` and `gone`
    name its parts.

    share   the tensor's own pack, a share of `over`; None where the tensor has the shape of input `like`
    like    that input, aligned right in the dims of `tensor`, of which this is entry `dim`
    """

    over: Expr
    pack: bool
    own: str
    gone: str
    share: str | None = None
    like: str | None = None
    tensor: str = ""
    dim: int = 0


_Splits = dict[tuple[object, ...], Split]


def normal_updates(op: BoundOp) -> tuple[BoundOp, tuple[Split, ...]]:
    """The program with updates reduced and based; extents `own` and `gone` are names of kind dim or pack."""
    splits: _Splits = {}
    body: list[Statement] = []
    started: set[str] = set()
    for s in op.body:
        t = op.tensor(s.target)
        s = _reduced(op, t, s, splits)
        first = s.target not in started
        started.add(s.target)
        if first and s.assign.mode in _KIND:
            if _covers(t, s, splits):
                s = replace(s, assign=replace(s.assign, mode="="))
            else:
                body.append(_base(op, t, s.assign.mode, splits))
        body.append(s)
    return replace(op, body=tuple(body)), tuple(splits.values())


def _dims(t: Tensor) -> list[tuple[Expr, bool]]:
    return [(d.extent, d.pack) for d in t.dims if not d.keep]


def shares(op: BoundOp, share: str, whole: str) -> bool:
    """Whether pack `share` is one input's own part of the broadcast pack `whole`: its axes may be missing or 1."""
    if share == whole:
        return False
    a, b = op.dim(share), op.dim(whole)
    return b.broadcast and bool(set(a.sources) & set(b.sources))


def _split_of(op: BoundOp, t: Tensor, k: int, axis: Axis, splits: _Splits) -> Split | None:
    """The split of an axis that runs over more than entry `k` of the tensor has; None when the tensor has it
    whole.
    """
    extent, pack = _dims(t)[k]
    over = axis.extent.id if isinstance(axis.extent, Name) else ""
    if t.expand and t.like is not None:
        key: tuple[object, ...] = (t.like, k, axis.extent)
        new = Split(
            axis.extent, pack, f"{t.like}.{k}.own", f"{t.like}.{k}.gone", like=t.like, tensor=t.name, dim=k
        )
    elif (
        pack
        and isinstance(extent, Name)
        and isinstance(axis.extent, Name)
        and shares(op, extent.id, axis.extent.id)
    ):
        key = (extent, axis.extent)
        new = Split(axis.extent, True, f"{extent.id}.{over}.own", f"{extent.id}.{over}.gone", share=extent.id)
    else:
        return None
    return splits.setdefault(key, new)


def _part(axis: Axis, name: str) -> Axis:
    return replace(axis, extent=Name(name, kind="pack" if axis.pack else "dim", dtype=DType.I64))


def _reduced(op: BoundOp, t: Tensor, s: Statement, splits: _Splits) -> Statement:
    a = s.assign
    axes = list(s.axes)
    gone: list[Axis] = []
    for k, e in enumerate(a.target.index):
        v = plain_index(e)
        axis = next((x for x in axes if x.name == v), None)
        if axis is None:
            continue
        split = _split_of(op, t, k, axis, splits)
        if split is not None:
            axes[axes.index(axis)] = _part(axis, split.own)
            gone.append(_part(axis, split.gone))
    reads_itself = any(isinstance(n, Load) and n.tensor == t.name for n in walk(a.value))
    kind = _KIND.get(a.mode)
    if kind is None or reads_itself:
        return replace(s, axes=tuple(axes)) if gone else s
    named = {
        n.id
        for e in a.target.index
        for n in walk(e)
        if isinstance(n, Name) and n.kind in ("index", "packindex")
    }
    absent = [x for x in axes if x.name not in named]
    moved = [*gone, *absent]
    if not moved:
        return s
    value = a.value
    assert value.dtype is not None
    more: tuple[Decl, ...] = ()
    if isinstance(value, Reduce) and value.kind == kind and a.guard is None:
        more, value = value.indices, value.body
    elif a.guard is not None:
        assert value.dtype is not None
        value = Select(a.guard, value, identity(kind, value.dtype), dtype=value.dtype)
    decls = tuple(Decl(x.name, x.pack, x.extent, dtype=DType.I64) for x in moved)
    root = Reduce(kind, (*decls, *more), value, dtype=value.dtype)
    reduced = (*((x.name, x) for x in moved), *s.reduced)
    return Statement(
        replace(a, value=root, guard=None), tuple(x for x in axes if x not in absent), reduced, s.recur
    )


def _covers(t: Tensor, s: Statement, splits: _Splits) -> bool:
    """Whether the statement writes every element of its target exactly once."""
    a = s.assign
    names = [plain_index(e) for e in a.target.index]
    if a.guard is not None or s.recur is not None or None in names or len(set(names)) != len(names):
        return False
    if {x.name for x in s.axes} != set(names) or any(
        isinstance(n, Load) and n.tensor == t.name for n in walk(a.value)
    ):
        return False
    own = {x.own for x in splits.values()}
    for n, (extent, _) in zip(names, _dims(t), strict=True):
        have = next(x.extent for x in s.axes if x.name == n)
        if have != extent and not (isinstance(have, Name) and have.id in own):
            return False
    return a.value.dtype is t.dtype


def _base(op: BoundOp, t: Tensor, mode: str, splits: _Splits) -> Statement:
    axes = []
    for k, (extent, pack) in enumerate(_dims(t)):
        axis = Axis(f"w{k}", extent, pack)
        split = _split_of(op, t, k, axis, splits)
        axes.append(axis if split is None else _part(axis, split.own))
    index = tuple(_ref(x) for x in axes)
    return Statement(Assign(Target(t.name, index), "=", identity(mode, t.dtype)), tuple(axes))


def _ref(a: Axis) -> Expr:
    n = Name(a.name, kind="packindex" if a.pack else "index", dtype=DType.I64)
    return Star(n, dtype=DType.I64) if a.pack else n
