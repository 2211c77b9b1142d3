"""What an operator's call gives, over symbols: the dtype of each output, and its extents as integer expressions.

    results(spec, operands, shapes, attrs)   (name, dtype, extents, aux) of each output; an extent that only the data
                                             tell is None

It reads Bound, as a kernel's host code and the oracle do: where an input's axes lie, what each named extent is, what
outputs have.  What a call's rules refuse is refused when the program runs.

May import: generator.{bind, bind_key, bound, expr, spec, types, errors}, intexpr.  To add a way to say an extent: a
case of `_Shapes.number`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..bind import bind
from ..bind_key import Resolved, flat_names, key_for_call
from ..bound import BoundOp, Dim, DimUse, Tensor
from ..errors import DomainError
from ..expr import And, Bin, Call, Cmp, Expr, Item, Name, Not, Num, Or, Select, Un
from ..spec import OpSpec
from ..types import DType, Operand
from .intexpr import IntExpr, floordiv, maximum, minimum, mod, product

__all__ = ["Result", "results"]

#: None: an extent that only the data tell.
Extent: TypeAlias = "IntExpr | None"
Shape: TypeAlias = "tuple[Extent, ...]"


@dataclass(frozen=True)
class Result:
    name: str
    dtype: DType
    shape: Shape
    aux: bool


def results(
    spec: OpSpec,
    operands: Mapping[str, Operand | Sequence[Operand] | None],
    shapes: Mapping[str, Sequence[IntExpr] | Sequence[Sequence[IntExpr]]],
    attrs: Mapping[str, Any],
) -> list[Result]:
    """`operands` and `shapes` by input; an attribute may hold `IntExpr`s.  Raises DomainError as binding does."""
    resolved = key_for_call(spec, operands, {k: _sample(v) for k, v in attrs.items()})
    op = bind(spec, resolved.key)
    flat: dict[str, Shape] = {}
    for name, source in flat_names(spec, resolved.key):
        _, dot, k = name.rpartition(".")
        given: Any = shapes[source]
        flat[name] = tuple(given[int(k)] if spec.inputs[source].is_list and dot else given)
    found = _Shapes(op, _values(resolved, attrs), flat)
    aux = {n: t.aux for n, t in spec.outputs.items()}
    return [Result(t.name, t.dtype, found.output(t), aux.get(t.name, t.aux)) for t in op.outputs]


def _sample(v: Any) -> Any:
    """A value of the same kind for an attribute that varies: no key depends on which."""
    if isinstance(v, list | tuple):
        return tuple(_sample(x) for x in v)
    return 2 if isinstance(v, IntExpr) else v


def _values(resolved: Resolved, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in canonical form, with what varies in its place."""
    out: dict[str, Any] = dict(resolved.attrs) | dict(resolved.key.static)
    for name, value in attrs.items():
        if isinstance(value, IntExpr):
            out[name] = value
        elif isinstance(value, list | tuple) and any(isinstance(v, IntExpr) for v in value):
            out[name] = tuple(value) if len(value) == len(out[name]) else tuple(value) * len(out[name])
    return out


class _Shapes:
    def __init__(self, op: BoundOp, attrs: Mapping[str, Any], inputs: Mapping[str, Shape]) -> None:
        self.op, self.attrs, self.inputs = op, attrs, inputs
        self.dims: dict[str, Extent] = {}
        self.packs: dict[str, Shape] = {}
        self.ranks: dict[str, tuple[int, ...]] = {}
        self.logical: dict[str, Shape] = {}
        self.place_inputs()
        for d in op.dims:
            self.dim(d)

    # ---- inputs

    def axes_of(self, attr: str) -> tuple[int, ...] | None:
        """The axes that an attribute names; None: all of them."""
        value = self.attrs.get(attr)
        if value is None:
            return None
        found = (value,) if isinstance(value, int) else tuple(value)
        return None if not found and any(a.name == attr and a.empty_all for a in self.op.attrs) else found

    def broadcasts(self, pack: str) -> bool:
        return any(d.name == pack and d.broadcast for d in self.op.dims)

    def place_inputs(self) -> None:
        known: dict[str, int] = {}
        for d in self.op.dims:
            if d.pack and d.rank is not None:
                rank = self.number(d.rank)
                if isinstance(rank, IntExpr) and rank.value is not None:
                    known[d.name] = rank.value
        todo = [t for t in self.op.inputs if not t.expand]
        while todo:
            ready = next((t for t in todo if self.entry_ranks(t, known) is not None), None)
            if ready is None:
                raise DomainError(f"{self.op.name}: the rank of `{todo[0].name}`'s packs cannot be told")
            todo.remove(ready)
            ranks = self.entry_ranks(ready, known)
            assert ranks is not None
            for use, r in zip(ready.dims, ranks, strict=True):
                if use.pack and not self.broadcasts(_pack(use)):
                    known.setdefault(_pack(use), r)
            self.ranks[ready.name] = ranks
            shape = self.inputs[ready.name]
            source = self.place(ready, ranks, len(shape))
            pairs = sorted(((s, p) for p, s in enumerate(source) if s >= 0), key=lambda pair: pair[0])
            self.logical[ready.name] = tuple(shape[p] for _, p in pairs)

    def entry_ranks(self, t: Tensor, known: Mapping[str, int]) -> tuple[int, ...] | None:
        """How many axes each entry of a tensor's dims has; None: not to be told yet."""
        rank = len(self.inputs[t.name])
        ranks: list[int | None] = []
        for use in t.dims:
            if not use.pack and not (use.keep and use.at is not None):
                ranks.append(1)
            elif use.at is not None:
                axes = self.axes_of(use.at)
                ranks.append(None if axes is None else len(axes))
            elif self.broadcasts(_pack(use)):
                ranks.append(None)
            else:
                ranks.append(known.get(_pack(use)))
        rest = rank - sum(r for r in ranks if r is not None)
        unknown = [k for k, r in enumerate(ranks) if r is None]
        whole = [k for k in unknown if t.dims[k].at is not None]
        if len(unknown) > 1 and len(whole) != 1:
            return None
        for k in unknown:  # with all axes named nothing is left for another pack
            ranks[k] = rest if len(unknown) == 1 or k == whole[0] else 0
        out = tuple(-1 if r is None else r for r in ranks)
        if any(r < 0 for r in out) or sum(out) != rank:
            raise DomainError(f"{self.op.name}: input `{t.name}` has rank {rank}")
        return out

    def place(self, t: Tensor, ranks: Sequence[int], total: int) -> list[int]:
        """For each physical axis the logical one that lies there; -1: an axis of extent 1."""
        at: dict[int, int] = {}
        rest: list[int] = []
        start = 0
        for use, r in zip(t.dims, ranks, strict=True):
            if use.at is None:
                rest += [-1 if use.keep else start + j for j in range(r)]
            else:
                named = self.axes_of(use.at)
                for a in named or ():
                    if not -total <= a < total:
                        raise DomainError(
                            f"{self.op.name}: `{use.at}` = {a} is out of range for rank {total}"
                        )
                axes = sorted(range(total) if named is None else {a % total for a in named})
                at |= {p: -1 if use.keep else start + j for j, p in enumerate(axes)}
            start += 0 if use.keep else r
        return [at[p] if p in at else rest.pop(0) for p in range(total)]

    # ---- named extents

    def dim(self, d: Dim) -> None:
        if d.expr is not None:
            if d.data:
                self.dims[d.name] = None
            elif not d.pack:
                self.dims[d.name] = _whole(self.number(d.expr))
            elif isinstance(d.expr, Name) and d.expr.id in self.packs:
                self.packs[d.name] = self.packs[d.expr.id]
            elif isinstance(d.expr, Name) and d.expr.id in self.attrs:
                self.packs[d.name] = tuple(IntExpr.of(v) for v in self.attrs[d.expr.id])
            return
        found = [self.span(name, k) for name, k in d.sources if not self.op.tensor(name).expand]
        if d.pack:
            self.packs[d.name] = _joined(found) if d.broadcast else found[0]
        else:
            self.dims[d.name] = found[0][0]

    def span(self, tensor: str, position: int) -> Shape:
        t, ranks = self.op.tensor(tensor), self.ranks[tensor]
        start = sum(r for u, r in zip(t.dims[:position], ranks[:position], strict=True) if not u.keep)
        return self.logical[tensor][start : start + ranks[position]]

    def number(self, x: Expr) -> Any:
        """An `IntExpr`, a float or a bool; None where it is not known before the data are."""
        match x:
            case Num(value=bool() | float() as v):
                return v
            case Num(value=v):
                return IntExpr.of(int(v))
            case Name(id=n, kind="dim"):
                return self.dims.get(n)
            case Name(id=n, kind="attr"):
                return _number(self.attrs.get(n))
            case Item(id=n, lane=k, kind="attr"):
                return _number(self.attrs[n][k])
            case Item(id=n, lane=k):
                return self.packs[n][k]
            case Call(fn="rank", args=(Name(id=n),)):
                return IntExpr.of(len(self.packs[n])) if n in self.packs else None
            case Call(fn="len", args=(Name(id=n),)):
                return IntExpr.of(len(self.attrs[n])) if n in self.attrs else None
            case Call(fn=fn, args=args):
                return _applied(fn, [self.number(a) for a in args])
            case Un(op="-", x=a):
                value = self.number(a)
                return None if value is None else -value
            case Bin(op=op, left=a, right=b):
                return _combined(op, self.number(a), self.number(b))
            case Cmp(op=op, left=a, right=b):
                return _compared(op, self.number(a), self.number(b))
            case And(xs=xs):
                parts = [self.number(e) for e in xs]
                return False if any(p is False for p in parts) else None if None in parts else True
            case Or(xs=xs):
                parts = [self.number(e) for e in xs]
                return True if any(p is True for p in parts) else None if None in parts else False
            case Not(x=a):
                value = self.number(a)
                return None if value is None else not value
            case Select(test=test, then=a, other=b):
                chosen = self.number(test)
                return None if chosen is None else self.number(a if chosen else b)
        return None

    # ---- outputs

    def output(self, t: Tensor) -> Shape:
        if t.like is not None:
            return self.inputs[t.like]
        ranks: list[int] = []
        logical: list[Extent] = []
        for use in t.dims:
            if use.keep:
                ranks.append(self.kept(use))
                continue
            part = self.packs[_pack(use)] if use.pack else (_whole(self.number(use.extent)),)
            ranks.append(len(part))
            logical += part
        source = self.place(t, ranks, sum(ranks))
        return tuple(IntExpr.of(1) if s < 0 else logical[s] for s in source)

    def kept(self, use: DimUse) -> int:
        """How many axes of extent 1 an entry stands for."""
        if use.pack:
            return len(self.packs[_pack(use)])
        if use.at is None:
            return 1
        axes = self.axes_of(use.at)
        if axes is not None:
            return len(axes)
        for t in self.op.inputs:
            for u, r in zip(t.dims, self.ranks.get(t.name, ()), strict=False):
                if u.at == use.at:
                    return r
        raise DomainError(f"{self.op.name}: nothing says how many axes `{use.at}` names")


def _pack(use: DimUse) -> str:
    assert isinstance(use.extent, Name)
    return use.extent.id


def _number(v: Any) -> Any:
    return IntExpr.of(v) if isinstance(v, int) and not isinstance(v, bool) else v


def _whole(v: Any) -> Extent:
    if isinstance(v, float) and v.is_integer():
        return IntExpr.of(int(v))
    return v if isinstance(v, IntExpr) else IntExpr.of(int(v)) if isinstance(v, bool) else None


def _joined(shapes: Sequence[Shape]) -> Shape:
    """Aligned right; an extent of 1 gives way.  Of two that are not the same by their spelling a number counts."""
    rank = max(len(s) for s in shapes)
    out: list[Extent] = []
    for k in range(-rank, 0):
        extents = [s[k] for s in shapes if len(s) >= -k]
        wide = [e for e in extents if e is None or e.value != 1]
        known = [e for e in wide if e is not None and e.value is not None]
        out.append(known[0] if known else wide[0] if wide else extents[0])
    return tuple(out)


def _plain(*xs: Any) -> list[Any]:
    """Expressions that are numbers, as numbers."""
    return [x.value if isinstance(x, IntExpr) and x.value is not None else x for x in xs]


def _combined(op: str, a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    if isinstance(a, IntExpr) and isinstance(b, IntExpr) and op != "/":
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "//":
                return floordiv(a, b) if b.value != 0 else None
            case "%":
                return mod(a, b) if b.value != 0 else None
            case "**" if b.value is not None:
                return product([a] * b.value)
        return None
    p, q = _plain(a, b)
    if isinstance(p, IntExpr) or isinstance(q, IntExpr) or (q == 0 and op in ("/", "//", "%")):
        return None
    return {"+": p + q, "-": p - q, "*": p * q}.get(op) if op in "+-*" else p / q if op == "/" else p // q


def _applied(fn: str, args: Sequence[Any]) -> Any:
    if any(a is None for a in args):
        return None
    if all(isinstance(a, IntExpr) for a in args):
        match fn, args:
            case (("max" | "min"), _):
                out = args[0]
                for a in args[1:]:
                    out = (maximum if fn == "max" else minimum)(out, a)
                return out
            case "cdiv", (a, b):
                return -floordiv(-a, b)
            case (("i64" | "i32" | "ceil" | "floor" | "trunc" | "round"), (a,)):
                return a
    plain = _plain(*args)
    if any(isinstance(a, IntExpr) for a in plain):
        # A quotient of extents as a float: what rounds it is handed the pair.
        return plain[0] if fn in ("f64", "f32") and len(plain) == 1 else None
    match fn, plain:
        case (("f64" | "f32"), [v]):
            return float(v)
        case (("i64" | "i32"), [v]):
            return IntExpr.of(int(v))
        case "ceil", [v]:
            return float(math.ceil(v))
        case "floor", [v]:
            return float(math.floor(v))
        case (("max" | "min"), _):
            return max(plain) if fn == "max" else min(plain)
    return None


def _compared(op: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    if isinstance(a, IntExpr) and isinstance(b, IntExpr):
        difference = (a - b).value
        if difference is None:
            return None
        a, b = difference, 0
    a, b = _plain(a, b)
    if isinstance(a, IntExpr) or isinstance(b, IntExpr):
        return None
    if op in ("==", "!="):
        return bool((a == b) == (op == "=="))
    table: dict[str, bool] = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return table.get(op)
