"""Bound -> Normal: at most one reduction a statement, at its root; accumulators explicit.  Also: verify, classify.

Passes, in order
  accumulate   `+=` and `*=` on a half-typed or bool target go to a temporary in the accumulator, rounded once
  hoist        a reduction inside an expression becomes a temporary over the indices it depends on
  share        identical reductions of unchanging tensors are computed once

A reduction that stands under a condition and reads tensors at computed places takes the condition into its body (the
other side gives the identity), so that no load happens that the spec did not ask for.

May import: expr, types, bound, errors.  To add a pass: a function `BoundOp -> BoundOp`, listed in `normalise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .bound import Axis, BoundOp, DimUse, Statement, Tensor
from .errors import NormalError
from .expr import (
    And,
    Assign,
    Bin,
    Call,
    Decl,
    Expr,
    Load,
    Name,
    Not,
    Num,
    Reduce,
    Select,
    Star,
    Target,
    children,
    map_children,
    show,
    substitute,
    walk,
)
from .types import DType, accum, exact_in

__all__ = [
    "classify",
    "classify_statement",
    "free_indices",
    "identity",
    "normalise",
    "plain_index",
    "restate",
    "verify",
]


def free_indices(x: Expr) -> set[str]:
    """Index variables that `x` depends on (its own reductions' indices left out)."""
    out: set[str] = set()

    def go(e: Expr, bound: frozenset[str]) -> None:
        if isinstance(e, Reduce):
            go_kids(e, bound | {d.id for d in e.indices})
            return
        if isinstance(e, Name) and e.kind in ("index", "packindex") and e.id not in bound:
            out.add(e.id)
        go_kids(e, bound)

    def go_kids(e: Expr, bound: frozenset[str]) -> None:
        if isinstance(e, Reduce):
            go(e.body, bound)
            return
        for c in children(e):
            go(c, bound)

    go(x, frozenset())
    return out


def plain_index(e: Expr) -> str | None:
    """The index variable that an index entry is, when it is one and nothing else."""
    match e:
        case Name(id=n, kind="index"):
            return n
        case Star(x=Name(id=n, kind="packindex")):
            return n
    return None


def identity(kind: str, dtype: DType) -> Num:
    """What a reduction over nothing gives."""
    if kind in ("any", "all"):
        return Num(kind == "all", dtype=DType.BOOL)
    if kind in ("sum", "+=", "="):
        return Num(0, dtype=dtype)
    if kind in ("prod", "*="):
        return Num(1, dtype=dtype)
    low = kind in ("max", "argmax")
    if dtype is DType.BOOL:
        return Num(not low, dtype=dtype)
    if dtype.is_integer:
        return Num(int(dtype.min if low else dtype.max), dtype=dtype)
    return Num(-math.inf if low else math.inf, dtype=dtype)


# ================================================================================================ accumulate


def _fresh(base: str, taken: set[str]) -> str:
    name, k = base, 0
    while name in taken:
        k += 1
        name = f"{base}_{k}"
    taken.add(name)
    return name


def _rename_tensor(x: Expr, old: str, new: str, dtype: DType) -> Expr:
    def put(e: Expr) -> Expr:
        e = map_children(e, put)
        if isinstance(e, Load) and e.tensor == old:
            return replace(e, tensor=new, dtype=dtype)
        return e

    return put(x)


def accumulate(op: BoundOp) -> BoundOp:
    """Updates of a half-typed or bool tensor happen in its accumulator; one last statement rounds."""
    taken = {t.name for t in (*op.inputs, *op.outputs, *op.temps)}
    body = list(op.body)
    temps = list(op.temps)
    for t in (*op.outputs, *op.temps):
        acc = accum(t.dtype)
        mine = [k for k, s in enumerate(body) if s.target == t.name]
        if acc is t.dtype or not any(body[k].assign.mode in ("+=", "*=") for k in mine):
            continue
        name = _fresh(f"{t.name}_acc", taken)
        temps.append(Tensor(name, acc, tuple(replace(d, at=None) for d in t.dims if not d.keep), "temp"))
        for k in mine:
            s = body[k]
            value = s.assign.value
            if isinstance(value, Num) and value.dtype is not None and exact_in(value.value, value.dtype):
                value = replace(value, dtype=acc)
            elif value.dtype is not acc:
                value = Call(acc.value, (value,), dtype=acc)
            value = _rename_tensor(value, t.name, name, acc)
            body[k] = replace(
                s, assign=replace(s.assign, target=replace(s.assign.target, name=name), value=value)
            )
        axes, index = _whole(t)
        load = Load(name, index, dtype=acc)
        last = Statement(
            Assign(Target(t.name, index), "=", Call(t.dtype.value, (load,), dtype=t.dtype)), axes
        )
        body.insert(mine[-1] + 1, last)
    return replace(op, body=tuple(body), temps=tuple(temps))


def _whole(t: Tensor) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Axes and index that walk a whole tensor."""
    axes: list[Axis] = []
    index: list[Expr] = []
    for k, d in enumerate(d for d in t.dims if not d.keep):
        a = Axis(f"w{k}", d.extent, d.pack)
        axes.append(a)
        n = Name(a.name, kind="packindex" if d.pack else "index", dtype=DType.I64)
        index.append(Star(n, dtype=DType.I64) if d.pack else n)
    return tuple(axes), tuple(index)


# ================================================================================================ hoist and share


@dataclass
class _Hoist:
    op: BoundOp
    taken: set[str]
    temps: list[Tensor] = field(default_factory=list)
    out: list[Statement] = field(default_factory=list)
    shared: dict[tuple[object, ...], str] = field(default_factory=dict)
    constant: set[str] = field(
        default_factory=set
    )  # tensors written once (or inputs): their reductions may be shared

    def statement(self, s: Statement) -> None:
        a = s.assign
        axes = {x.name: x for x in (*s.axes, *(x for _, x in s.reduced))}
        guard = self.rewrite(a.guard, s, axes, ()) if a.guard is not None else None
        index = tuple(self.rewrite(e, s, axes, ()) for e in a.target.index)
        path: tuple[Expr, ...] = (guard,) if guard is not None else ()
        if (
            isinstance(a.value, Reduce)
            and a.guard is None
            and (a.mode == "=" or a.value.kind == _MODE_OF.get(a.mode))
        ):
            inner = self.rewrite(a.value.body, s, axes, path)
            value: Expr = replace(a.value, body=inner)
            reduced = tuple((d.id, axes[d.id]) for d in a.value.indices)
        else:
            value = self.rewrite(a.value, s, axes, path)
            reduced = ()
        self.out.append(
            Statement(
                replace(a, target=replace(a.target, index=index), value=value, guard=guard),
                s.axes,
                reduced,
                s.recur,
            )
        )

    def rewrite(self, x: Expr, s: Statement, axes: dict[str, Axis], path: tuple[Expr, ...]) -> Expr:
        """`x` with its reductions replaced by loads of temporaries; `path`: conditions under which `x` is evaluated."""
        if not any(isinstance(n, Reduce) for n in walk(x)):
            return x
        match x:
            case Select(test=t, then=a, other=b):
                test = self.rewrite(t, s, axes, path)
                return replace(
                    x,
                    test=test,
                    then=self.rewrite(a, s, axes, (*path, test)),
                    other=self.rewrite(b, s, axes, (*path, Not(test, dtype=DType.BOOL))),
                )
            case Reduce(kind=kind, body=body, indices=decls):
                inner = self.rewrite(body, s, axes, path)
                if path and not _loads_plainly(inner):
                    cond = path[0] if len(path) == 1 else And(path, dtype=DType.BOOL)
                    inner = Select(cond, inner, _identity_of(kind, body), dtype=body.dtype)
                return self.hoist(replace(x, body=inner), s, axes, decls)
        return map_children(x, lambda c: self.rewrite(c, s, axes, path))

    def hoist(self, r: Reduce, s: Statement, axes: dict[str, Axis], decls: tuple[Decl, ...]) -> Expr:
        free = free_indices(r)
        order = [a for a in axes.values() if a.name in free]
        recur = s.recur if any(isinstance(n, Load) and n.tensor == s.target for n in walk(r)) else None
        reads = {n.tensor for n in walk(r) if isinstance(n, Load)}
        canon = _canonical(r)
        key = (
            tuple((a.name, show(a.extent)) for a in order),
            tuple(show(axes[d.id].extent) for d in decls),
            canon,
        )
        can_share = recur is None and reads <= self.constant
        index = tuple(_index_of(a) for a in order)
        if can_share and key in self.shared:
            return Load(self.shared[key], index, dtype=r.dtype)
        name = _fresh(f"{s.target}_{r.kind}", self.taken)
        assert r.dtype is not None
        self.temps.append(Tensor(name, r.dtype, tuple(DimUse(a.extent, a.pack) for a in order), "temp"))
        self.constant.add(name)
        reduced = tuple((d.id, axes[d.id]) for d in decls)
        self.out.append(
            Statement(Assign(Target(name, index), "=", r, span=s.assign.span), tuple(order), reduced, recur)
        )
        if can_share:
            self.shared[key] = name
        return Load(name, index, dtype=r.dtype)


_MODE_OF = {"+=": "sum", "*=": "prod", "max": "max", "min": "min", "any": "any", "all": "all"}


def _identity_of(kind: str, body: Expr) -> Expr:
    assert body.dtype is not None
    return identity(kind, body.dtype)


def _index_of(a: Axis) -> Expr:
    n = Name(a.name, kind="packindex" if a.pack else "index", dtype=DType.I64)
    return Star(n, dtype=DType.I64) if a.pack else n


def _loads_plainly(x: Expr) -> bool:
    return all(plain_index(e) is not None for n in walk(x) if isinstance(n, Load) for e in n.index)


def _canonical(r: Reduce) -> str:
    """The text of a reduction with its own indices renamed by position."""
    names: dict[str, Expr] = {
        d.id: Name(f"#{k}", kind="packindex" if d.pack else "index", dtype=DType.I64)
        for k, d in enumerate(r.indices)
    }
    return f"{r.kind}:{r.dtype}:{show(substitute(r.body, names))}"


def hoist(op: BoundOp) -> BoundOp:
    counts: dict[str, int] = {}
    for s in op.body:
        counts[s.target] = counts.get(s.target, 0) + 1
    constant = {t.name for t in op.inputs} | {n for n, c in counts.items() if c == 1}
    constant -= {s.target for s in op.body if s.recur}
    h = _Hoist(op, {t.name for t in (*op.inputs, *op.outputs, *op.temps)}, list(op.temps), constant=constant)
    for s in op.body:
        h.statement(s)
    return replace(op, body=tuple(h.out), temps=tuple(h.temps))


def restate(op: BoundOp) -> BoundOp:
    """Mark as stated just those extents that plain uses do not give: the printed program then reads back as itself."""
    shapes = {t.name: [d for d in t.dims if not d.keep] for t in (*op.inputs, *op.outputs)}
    temps = {t.name: [d for d in t.dims if not d.keep] for t in op.temps}
    body: list[Statement] = []
    for s in op.body:
        uses: dict[str, set[Expr]] = {}

        def plain(index: tuple[Expr, ...], name: str, uses: dict[str, set[Expr]] = uses) -> None:
            for e, d in zip(index, shapes.get(name, ()), strict=False):
                n = plain_index(e)
                if n is not None:
                    uses.setdefault(n, set()).add(d.extent)

        a = s.assign
        # A temporary that reads itself has no shape yet: its own loads tell nothing.
        plain(a.target.index, a.target.name)
        for root in (*a.target.index, a.value, *((a.guard,) if a.guard is not None else ())):
            for n in walk(root):
                if isinstance(n, Load):
                    plain(n.index, n.tensor)
        axes = tuple(replace(x, stated=uses.get(x.name) != {x.extent}) for x in s.axes)
        body.append(replace(s, axes=axes))
        if s.target in temps:
            shapes[s.target] = temps[s.target]
    return replace(op, body=tuple(body))


def normalise(op: BoundOp) -> BoundOp:
    """The Normal program of a Bound one.  Raises NormalError when a pass broke an invariant (a bug of ours)."""
    out = restate(hoist(accumulate(op)))
    verify(out)
    return out


# ================================================================================================ verify


def verify(op: BoundOp) -> None:
    """Raise NormalError unless every rule of the Normal level holds."""

    def fail(s: Statement | None, what: str) -> None:
        span = s.assign.span if s is not None else None
        raise NormalError(f"{op.name}: {what}", place=span.place if span else None)

    tensors = {t.name: t for t in (*op.inputs, *op.outputs, *op.temps)}
    if len(tensors) != len(op.inputs) + len(op.outputs) + len(op.temps):
        fail(None, "two tensors have one name")
    written = {t.name for t in op.inputs}
    groups = _groups(op)
    for members in groups:
        in_group = {s.target for s in members}
        for s in members:
            a = s.assign
            root = a.value.body if isinstance(a.value, Reduce) else a.value
            for e in (root, *a.target.index, *((a.guard,) if a.guard is not None else ())):
                if any(isinstance(n, Reduce) for n in walk(e)):
                    fail(s, f"reduction inside `{show(e)}`")
            t = tensors.get(a.target.name)
            if t is None:
                fail(s, f"no tensor `{a.target.name}`")
                return
            if t.role == "input":
                fail(s, f"input `{t.name}` is written")
            known = {x.name for x in s.axes} | {n for n, _ in s.reduced}
            for e in (a.value, *a.target.index, *((a.guard,) if a.guard is not None else ())):
                for n in walk(e):
                    if n.dtype is None and not isinstance(n, Decl):
                        fail(s, f"`{show(n)}` has no type")
                    if isinstance(n, Name) and n.kind in ("index", "packindex") and n.id not in known:
                        fail(s, f"index `{n.id}` is not an axis of its statement")
                    if isinstance(n, Name) and not n.kind:
                        fail(s, f"name `{n.id}` is not resolved")
                    if isinstance(n, Load):
                        have = tensors.get(n.tensor)
                        if have is None:
                            fail(s, f"no tensor `{n.tensor}`")
                            return
                        if n.tensor not in written and n.tensor not in in_group:
                            fail(s, f"`{n.tensor}` is read before it is written")
                        if len(n.index) != sum(1 for d in have.dims if not d.keep):
                            fail(s, f"`{show(n)}` has {len(n.index)} indices")
            if len(a.target.index) != sum(1 for d in t.dims if not d.keep):
                fail(s, f"`{t.name}` is written with {len(a.target.index)} indices")
            if a.mode == "=" and a.value.dtype is not t.dtype:
                fail(s, f"`{t.name}` is {t.dtype}, its value {a.value.dtype}")
        written |= in_group
    for t in op.outputs:
        if t.name not in written:
            fail(None, f"output `{t.name}` is never written")


def _groups(op: BoundOp) -> Iterator[tuple[Statement, ...]]:
    """Statements one by one; those of one recurrence group together."""
    k = 0
    while k < len(op.body):
        s = op.body[k]
        if s.recur is None:
            yield (s,)
            k += 1
            continue
        n = k
        while n < len(op.body) and op.body[n].recur == s.recur:
            n += 1
        yield op.body[k:n]
        k = n


# ================================================================================================ classify

_CLASS_ORDER = (
    "recur",
    "scatter",
    "scan",
    "window",
    "contract",
    "rows",
    "reduce",
    "gather",
    "pointwise",
    "copy",
)


def classify_statement(op: BoundOp, s: Statement) -> str:
    """The access pattern of one Normal statement; see `_CLASS_ORDER`."""
    a = s.assign
    if s.recur is not None:
        return "recur"
    plain = [plain_index(e) for e in a.target.index]
    if a.mode != "=" or any(p is None for p in plain) or len(set(plain)) != len(plain):
        return (
            "scatter"
            if any(
                p is None and any(isinstance(n, Load) for n in walk(e))
                for p, e in zip(plain, a.target.index, strict=True)
            )
            or a.mode != "="
            else "copy"
        )
    loads = [n for n in walk(a.value) if isinstance(n, Load)]
    computed = [e for ld in loads for e in ld.index if plain_index(e) is None]
    if isinstance(a.value, Reduce):
        reduced = {n for n, _ in s.reduced}
        if any(free_indices(e) & reduced and len(free_indices(e)) > 1 for e in computed):
            return "window"
        if a.value.kind == "sum" and _is_product(a.value.body) and len(s.axes) >= 2:
            sets = [free_indices(ld) - reduced for ld in loads]
            if len(sets) >= 2 and any(x - y for x in sets for y in sets):
                return "contract"
        if _triangular(a.value.body, reduced):
            return "scan"
        return "reduce"
    if any(any(isinstance(n, Load) for n in walk(e)) for e in computed):
        return "gather"
    if isinstance(a.value, Load) or (isinstance(a.value, Select) and isinstance(a.value.then, Load)):
        return "copy"
    return "pointwise"


def _is_product(x: Expr) -> bool:
    return isinstance(x, Bin) and x.op == "*"


def _triangular(body: Expr, reduced: set[str]) -> bool:
    """`e if j <= i else identity`: a guard between a reduced index and a free one."""
    if not isinstance(body, Select):
        return False
    names = free_indices(body.test)
    return (
        bool(names & reduced)
        and bool(names - reduced)
        and not any(isinstance(n, Load) for n in walk(body.test))
    )


def classify(op: BoundOp) -> str:
    """The class of a whole Normal program: what `opwright show` prints and `plan.py` starts from."""
    kinds = [classify_statement(op, s) for s in op.body]
    found = set(kinds)
    if (
        "reduce" in found
        and ("pointwise" in found or "copy" in found or len(op.body) > 1)
        and _shared_prefix(op)
    ):
        found.add("rows")
    for k in _CLASS_ORDER:
        if k in found:
            return k
    raise AssertionError(kinds)


def _shared_prefix(op: BoundOp) -> bool:
    """Whether all statements start with one common axis: then rows are independent of each other."""
    firsts = {(s.axes[0].name, show(s.axes[0].extent)) if s.axes else None for s in op.body}
    return len(firsts) == 1 and None not in firsts and len(op.body) > 1
