"""Lanes: what an expression is before any call, and static packs written out (the second floor of `bind.py`).

A static pack has a known number of axes, so `x[*i]` becomes `x[i_0, i_1]`, a fold over it its terms, and a test of an
attribute's value, of a dtype or of presence is decided.  What comes out has neither stars over lanes nor folds.

May import: expr, types, bound, errors, bind_types.  To add what is known before a call: `Lanes.static_value`; what is
written out: a case of `Lanes.expand`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .bind_types import Typing
from .expr import (
    And,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    IsNone,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Span,
    Star,
    Str,
    Target,
    TupleLit,
    Un,
    show,
    walk,
)
from .types import (
    DType,
)

__all__ = ["UNKNOWN", "Lanes", "running_extent"]


def running_extent(n: str, k: int) -> str:
    """The name of the sum of the extents `n` of a list's first k entries."""
    return f"{n}_before_{k}"


class Lanes(Typing):
    """Decides what can be decided, and writes static packs out."""

    # ------------------------------------------------------------------------------------------ static values
    def static_value(self, x: Expr) -> Any:
        """The value of an expression known at bind, else `UNKNOWN`."""
        env = self.env
        match x:
            case Num(value=v) | Str(value=v):
                return v
            case Name(id=n) if n in env.static:
                return env.static[n]
            case IsNone(id=n, negate=neg):
                if n in env.absent:
                    return not neg
                if n in env.static:
                    return (env.static[n] is None) != neg
                if n in env.known or n in env.tensors:
                    return neg
                self.fail(x, f"`{n}` is neither an optional input nor an optional attribute")
            case Call(fn="len", args=(Name(id=n),)):
                if n in env.lists:
                    return env.lists[n]
                if n in env.attr_len:
                    return env.attr_len[n]
                return UNKNOWN
            case Call(fn="rank", args=(Name(id=n),)) if n in env.lanes:
                return len(env.lanes[n])
            case Name(id=n) if n in env.vars:
                return env.vars[n].value
            case TupleLit(xs=xs):
                vals = [self.static_value(e) for e in xs]
                return UNKNOWN if any(v is UNKNOWN for v in vals) else tuple(vals)
            case Not(x=inner):
                v = self.static_value(inner)
                return UNKNOWN if v is UNKNOWN else not v
            case And(xs=xs):
                vals = [self.static_value(e) for e in xs]
                if any(v is not UNKNOWN and not v for v in vals):
                    return False
                return UNKNOWN if any(v is UNKNOWN for v in vals) else True
            case Or(xs=xs):
                vals = [self.static_value(e) for e in xs]
                if any(v is not UNKNOWN and bool(v) for v in vals):
                    return True
                return UNKNOWN if any(v is UNKNOWN for v in vals) else False
            case Cmp(op=op, left=a, right=b):
                u, v = self.static_value(a), self.static_value(b)
                if u is UNKNOWN or v is UNKNOWN:
                    return UNKNOWN
                if op == "in":
                    return u in v
                if self.untold(a, v) or self.untold(b, u):
                    return UNKNOWN
                if op in ("==", "!="):
                    return (u == v) if op == "==" else (u != v)
                if "other" in (u, v):  # none of the numbers told apart: how it compares is seen later
                    return UNKNOWN
                try:
                    return {"<": u < v, "<=": u <= v, ">": u > v, ">=": u >= v}[op]
                except TypeError:
                    self.fail(x, f"cannot compare {u!r} {op} {v!r}")
            case Un(op="-", x=inner):
                v = self.static_value(inner)
                return UNKNOWN if v is UNKNOWN else -v
            case Select(test=t, then=a, other=b):
                c = self.static_value(t)
                return UNKNOWN if c is UNKNOWN else self.static_value(a if c else b)
        return UNKNOWN

    def untold(self, x: Expr, value: object) -> bool:
        """Whether `x` is an attribute that is none of the numbers told apart, and `value` is none of them either."""
        if not isinstance(x, Name) or self.env.static.get(x.id) != "other" or x.id not in self.env.attrs:
            return False
        return value not in self.env.told.get(x.id, (value,))

    # ------------------------------------------------------------------------------------------ lanes
    def lane_count(self, x: Expr) -> int | None:
        """How many lanes a pack expression has, when a static pack, its index, a list or an ints attribute is in it."""
        found: set[int] = set()
        for n in walk(x):
            if isinstance(n, Name):
                if n.id in self.lane_index:
                    found.add(len(self.lane_index[n.id]))
                elif n.id in self.env.lanes:
                    found.add(len(self.env.lanes[n.id]))
                elif n.id in self.env.attr_len and self.env.attrs[n.id].kind in ("ints", "floats"):
                    found.add(self.env.attr_len[n.id])
            elif isinstance(n, Load) and n.item is None and n.tensor in self.env.lists:
                found.add(self.env.lists[n.tensor])
        if len(found) > 1:
            self.fail(x, f"lanes disagree in `{show(x)}`: {sorted(found)}")
        return found.pop() if found else None

    def lane(self, x: Expr, k: int) -> Expr:
        """Lane `k` of a pack expression (unbound)."""
        match x:
            case Name(id=n):
                if n in self.lane_index:
                    return self.lane_index[n][k]
                if n in self.env.lanes:
                    return Name(f"{n}_{k}", span=x.span)
                if n in self.env.attr_len and self.env.attrs[n].kind in ("ints", "floats"):
                    return Item(n, k, span=x.span)
                return x
            case Num() | Str() | Item() | IsNone():
                return x
            case Bin(op=op, left=a, right=b):
                return Bin(op, self.lane(a, k), self.lane(b, k), span=x.span)
            case Un(op=op, x=a):
                return Un(op, self.lane(a, k), span=x.span)
            case Cmp(op=op, left=a, right=b):
                return Cmp(op, self.lane(a, k), self.lane(b, k), span=x.span)
            case And(xs=xs):
                return And(tuple(self.lane(e, k) for e in xs), span=x.span)
            case Or(xs=xs):
                return Or(tuple(self.lane(e, k) for e in xs), span=x.span)
            case Not(x=a):
                return Not(self.lane(a, k), span=x.span)
            case Select(test=t, then=a, other=b):
                return Select(self.lane(t, k), self.lane(a, k), self.lane(b, k), span=x.span)
            case Call(fn=fn, args=args):
                return Call(fn, tuple(self.lane(e, k) for e in args), span=x.span)
            case Load(tensor=t, index=ix, item=None) if t in self.env.lists:
                # a list inside a pack expression: lane k is entry k
                return Load(t, ix, Num(k), span=x.span)
            case Load(tensor=t, index=ix, item=item):
                return Load(
                    t, tuple(e if isinstance(e, Star) else self.lane(e, k) for e in ix), item, span=x.span
                )
        self.fail(x, f"`{show(x)}` cannot be taken lane by lane")

    def spread(self, index: Iterable[Expr]) -> tuple[Expr, ...]:
        """Index entries with static packs expanded to lanes."""
        out: list[Expr] = []
        for e in index:
            if isinstance(e, Star):
                n = self.lane_count(e.x)
                if n is not None:
                    out += [self.lane(e.x, k) for k in range(n)]
                    continue
                if not isinstance(e.x, Name):
                    self.fail(e, f"`*({show(e.x)})` needs a static pack", "declare the pack `static` in dims")
            if isinstance(e, Decl) and e.pack:
                lanes = self.lane_index.get(e.id)
                if lanes is not None:
                    out += lanes
                    continue
            out.append(e)
        return tuple(out)

    # ------------------------------------------------------------------------------------ expand (unbound -> unbound)
    def expand(self, x: Expr) -> Expr:
        """Static parts decided, packs of known rank spread to lanes, default expressions put in."""
        v = self.static_value(x) if not isinstance(x, (Num, Str, Name, TupleLit)) else UNKNOWN
        if isinstance(v, (bool, int, float)) and v is not UNKNOWN:
            return Num(v, span=x.span)
        match x:
            case Name(id=n) if n in self.env.static and n not in self.indices:
                s = self.env.static[n]
                if isinstance(s, (bool, int, float)):
                    return Num(s, span=x.span)
                if s == "other" and n in self.env.attrs:
                    return x
                self.fail(x, f"static attribute `{n}` = {s!r} has no number", 'compare it: `mode == "mean"`')
            case Name(id=n) if n in self.env.attr_exprs and n not in self.indices:
                return self.expand(self.env.attr_exprs[n])
            case Decl(pack=False):  # inside of a computed index
                return Decl(x.id, False, self.expand_extent(x), span=x.span)
            case Num() | Str() | Name() | Item() | IsNone():
                return x
            case Load(tensor=t, index=(Num(value=int() as k),), item=None) if t in self.env.list_dims:
                return Name(f"{t}_{k}", span=x.span)
            case Load(tensor=t, index=(Num(value=int() as k),), item=None) if t in self.env.lanes:
                return Name(f"{t}_{k}", span=x.span)
            case Load(tensor=t, index=(Num(value=int() as k),), item=None) if t in self.env.attr_len:
                if not -self.env.attr_len[t] <= k < self.env.attr_len[t]:
                    self.fail(x, f"`{t}` has {self.env.attr_len[t]} entries")
                return Item(t, k % self.env.attr_len[t], span=x.span)
            case Load(tensor=t, index=ix, item=item):
                name = t
                if item is not None:
                    k = self.expand(item)
                    if not (isinstance(k, Num) and isinstance(k.value, int)):
                        self.fail(x, f"`{t}[…]` takes the loop's list position")
                    name = f"{t}.{k.value}"
                return Load(name, tuple(self.expand_index(e) for e in self.spread(ix)), span=x.span)
            case Call(fn="linear", args=args):
                return self.expand_linear(x, args)
            case Call(fn="start", args=(Name(id=n), k)) if n in self.env.list_dims:
                kk = self.expand(k)
                if not (isinstance(kk, Num) and isinstance(kk.value, int)):
                    self.fail(x, "`start(N, k)` takes the list position")
                return self.before(n, int(kk.value), x.span)
            case Call(fn="total", args=(Name(id=n),)) if n in self.env.list_dims:
                return self.before(n, self.env.list_dims[n], x.span)
            case Call(fn="lane", args=(Name(id=n), k)) if n in self.lane_index:
                kk = self.expand(k)
                if isinstance(kk, Num):
                    return self.lane_index[n][int(kk.value)]
                out: Expr = self.lane_index[n][-1]
                for i in range(len(self.lane_index[n]) - 2, -1, -1):
                    out = Select(Cmp("==", kk, Num(i)), self.lane_index[n][i], out, span=x.span)
                return out
            case Call(fn=fn, args=args):
                return Call(fn, tuple(self.expand(a) for a in args), span=x.span)
            case Un(op=op, x=a):
                return Un(op, self.expand(a), span=x.span)
            case Bin(op=op, left=a, right=b):
                y = Bin(op, self.expand(a), self.expand(b), span=x.span)
                z = fold(y)
                # `0 + i` stays: a bare index states an extent, an offset one does not
                return y if isinstance(z, Name) and self.is_index(z.id) else z
            case Cmp(op=op, left=a, right=b):
                return Cmp(op, self.expand(a), self.expand(b), span=x.span)
            case And(xs=xs):
                keep = [e for e in (self.expand(e) for e in xs) if not _is_bool(e, True)]
                if any(_is_bool(e, False) for e in keep):
                    return Num(False, span=x.span)
                return (
                    keep[0]
                    if len(keep) == 1
                    else (And(tuple(keep), span=x.span) if keep else Num(True, span=x.span))
                )
            case Or(xs=xs):
                keep = [e for e in (self.expand(e) for e in xs) if not _is_bool(e, False)]
                if any(_is_bool(e, True) for e in keep):
                    return Num(True, span=x.span)
                return (
                    keep[0]
                    if len(keep) == 1
                    else (Or(tuple(keep), span=x.span) if keep else Num(False, span=x.span))
                )
            case Not(x=a):
                return Not(self.expand(a), span=x.span)
            case Select(test=t, then=a, other=b):
                test = self.expand(t)
                if isinstance(test, Num):
                    return self.expand(a if test.value else b)
                return Select(test, self.expand(a), self.expand(b), span=x.span)
            case Fold(kind=kind, body=body):
                return self.expand_fold(x, kind, body)
            case Reduce(kind=kind, indices=decls, body=body):
                ds: list[Decl] = []
                for d in decls:
                    lanes = self.declare_lanes(d)
                    if lanes is None:
                        ds.append(Decl(d.id, d.pack, self.expand_extent(d), span=d.span))
                    else:
                        ds += lanes
                return Reduce(kind, tuple(ds), self.expand(body), span=x.span)
        self.fail(x, f"`{show(x)}` does not stand here")

    def expand_index(self, e: Expr) -> Expr:
        if isinstance(e, Star):
            return e
        if isinstance(e, Decl):
            return Decl(e.id, e.pack, self.expand_extent(e), span=e.span)
        return self.expand(e)

    def expand_extent(self, d: Decl) -> Expr | None:
        if d.extent is None or d.pack:
            return d.extent
        return self.expand(d.extent)

    def before(self, n: str, k: int, span: Span | None = None) -> Expr:
        """The sum of the extents `n` of a list's first k entries (`running_extents` made it)."""
        if k < 2:
            return Name(f"{n}_0", span=span) if k else Num(0, span=span)
        return Name(running_extent(n, k), span=span)

    def expand_linear(self, x: Expr, args: tuple[Expr, ...]) -> Expr:
        first = args[0]
        if not isinstance(first, Star):
            self.fail(x, "`linear(*b)` takes a pack of indices")
        n = self.lane_count(first.x)
        if n is None:
            return x
        over = args[1] if len(args) > 1 else None
        if over is None:
            lanes_of = self.lane_index.get(first.x.id) if isinstance(first.x, Name) else None
            if lanes_of is None or any(i.id not in self.indices for i in lanes_of):
                self.fail(x, "`linear(*(…), *I)` needs the extents `*I` of its lanes")
            extents: list[Expr] = [self.indices[i.id].extent for i in lanes_of]
        else:
            if not isinstance(over, Star):
                self.fail(x, "`linear(*b, *I)` takes a pack of extents")
            extents = [self.lane(over.x, k) for k in range(n)]
        lanes = [self.expand(self.lane(first.x, k)) for k in range(n)]
        if not lanes:
            return Num(0, span=x.span)
        out = lanes[0]
        for ln, e in zip(lanes[1:], extents[1:], strict=True):
            out = Bin("+", Bin("*", out, self.expand(e), span=x.span), ln, span=x.span)
        return out

    def fold_terms(self, op: str, terms: list[Expr], unit: int) -> Expr:
        if not terms:
            return Num(unit)
        out = terms[0]
        for t in terms[1:]:
            out = Bin(op, out, t, span=t.span)
        return out

    def expand_fold(self, x: Expr, kind: str, body: Expr) -> Expr:
        if isinstance(body, Name) and body.id in self.env.dims and self.env.dims[body.id].pack:
            if kind != "prod":
                self.fail(
                    x, f"`{kind}({body.id})` of a batch pack", "its rank is a run-time matter: only prod(B)"
                )
            return x
        n = self.lane_count(body)
        if n is None:
            self.fail(
                x,
                f"`{kind}(…)` folds the lanes of a static pack or of an ints attribute",
                f"a reduction over an index is `{kind}[i](…)`",
            )
        lanes = [self.expand(self.lane(body, k)) for k in range(n)]
        match kind:
            case "sum":
                return self.fold_terms("+", lanes, 0)
            case "prod":
                return self.fold_terms("*", lanes, 1)
            case "all":
                return self.expand(And(tuple(lanes), span=x.span)) if lanes else Num(True)
            case "any":
                return self.expand(Or(tuple(lanes), span=x.span)) if lanes else Num(False)
            case _:
                if not lanes:
                    self.fail(x, f"`{kind}` of no lanes")
                return lanes[0] if len(lanes) == 1 else Call(kind, tuple(lanes), span=x.span)

    # ------------------------------------------------------------------------------------------ index declarations
    def declare_lanes(self, d: Decl) -> list[Decl] | None:
        """A static pack index: its lanes as scalar declarations.  None when the pack is a batch pack or a scalar."""
        if not d.pack:
            return None
        if d.extent is not None:
            n = self.lane_count(d.extent)
            if n is None:
                return None
            extents: list[Expr | None] = [self.expand(self.lane(d.extent, k)) for k in range(n)]
        else:
            n = self.lane_use.get(d.id)
            if n is None:
                return None
            extents = [None] * n
        lanes = tuple(Name(f"{d.id}_{k}", span=d.span) for k in range(n))
        self.lane_index[d.id] = lanes
        self.lane_extents.update((ln.id, e) for ln, e in zip(lanes, extents, strict=True) if e is not None)
        return [Decl(ln.id, False, e, span=d.span) for ln, e in zip(lanes, extents, strict=True)]

    lane_use: dict[str, int]
    lane_extents: dict[str, Expr]
    unlike: set[str]  # indices whose plain uses have different extents (stated ones only)

    def find_lane_use(self, exprs: Sequence[Expr], target: Target) -> None:
        """Static index packs by use: `*k` where a tensor has a static pack, or beside one in a pack expression."""
        self.lane_use = {}
        self.lane_index = {}
        self.lane_extents = {}
        self.unlike = set()
        loads: list[tuple[str, tuple[Expr, ...]]] = [(target.name, target.index)]
        for e in (*exprs, *target.index):
            for n in walk(e):
                if isinstance(n, Load):
                    loads.append((n.tensor if n.item is None else f"{n.tensor}.0", n.index))
        for name, index in loads:
            t = self.env.tensors.get(name)
            spots = self.spots.get(name)
            if t is None or spots is None:
                continue
            for e, spot in zip(index, spots, strict=False):
                pack = (
                    e.x.id
                    if isinstance(e, Star) and isinstance(e.x, Name)
                    else e.id
                    if isinstance(e, Decl) and e.pack
                    else ""
                )
                if pack and spot in self.env.lanes:
                    self.lane_use[pack] = len(self.env.lanes[spot])
                elif pack and spot.startswith("#"):
                    self.lane_use[pack] = int(spot[1:])
        # `*o` of a static pack beside attributes only: every index of one pack expression has one rank
        for e in (*exprs, *target.index):
            for n in walk(e):
                inner = n.x if isinstance(n, Star) else n.body if isinstance(n, Fold) else None
                if inner is None or isinstance(inner, Name):
                    continue
                names = {m.id for m in walk(inner) if isinstance(m, Name)}
                ranks = {len(self.env.lanes[m]) for m in names if m in self.env.lanes}
                ranks |= {self.env.attr_len[m] for m in names if m in self.env.attr_len}
                ranks |= {self.lane_use[m] for m in names if m in self.lane_use}
                if len(ranks) == 1:
                    r = next(iter(ranks))
                    for m in names:
                        if self.is_free_name(m):
                            self.lane_use.setdefault(m, r)
        for pack, count in list(self.lane_use.items()):
            self.lane_index[pack] = tuple(Name(f"{pack}_{k}") for k in range(count))

    spots: dict[str, tuple[str, ...]]

    def is_free_name(self, n: str) -> bool:
        env = self.env
        return not (
            n in env.dims
            or n in env.lanes
            or n in env.attrs
            or n in env.static
            or n in env.vars
            or n in env.attr_exprs
            or n in env.tensors
            or n in env.list_dims
            or n in ("pi",)
        )

    def is_index(self, n: str) -> bool:
        return n in self.indices or self.is_free_name(n)


UNKNOWN: Any = object()


def _is_bool(x: Expr, value: bool) -> bool:
    return isinstance(x, Num) and isinstance(x.value, bool) and x.value is value


def fold(x: Expr) -> Expr:
    """Integer arithmetic on two literals, and the units of + and *."""
    match x:
        case Bin(op=op, left=Num(value=int() as a), right=Num(value=int() as b)) if not (
            isinstance(a, bool) or isinstance(b, bool)
        ):
            v = {"+": a + b, "-": a - b, "*": a * b}.get(op)
            if op in ("//", "%") and b != 0:
                v = a // b if op == "//" else a % b
            if v is not None:
                return Num(v, span=x.span, dtype=x.dtype)
        case (
            Bin(op="*", left=a, right=Num(value=1))
            | Bin(op="*", left=Num(value=1), right=a)
            | Bin(op="+", left=a, right=Num(value=0))
            | Bin(op="+", left=Num(value=0), right=a)
            | Bin(op="-", left=a, right=Num(value=0))
        ) if _index_like(a):
            return a
    return x


def _index_like(a: Expr) -> bool:
    """Only integer expressions of extents and indices: `0 + x` is not `x` for a float -0."""
    return (
        all(isinstance(n, (Name, Item, Num, Bin)) for n in walk(a))
        and not any(isinstance(n, Num) and isinstance(n.value, float) for n in walk(a))
        and all(n.dtype in (None, DType.I64) for n in walk(a))
    )


def index_name(e: Expr) -> str | None:
    """The index that an entry of a load or target is, when it is one alone: `i`, `i in N`, `*b`."""
    match e:
        case Name(id=n) | Decl(id=n) | Star(x=Name(id=n)):
            return n
    return None
