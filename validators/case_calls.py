"""Calls before they have data: extents, attributes and presence, from a spec's cases, drawn near them, or on a rung.

`Calls` is the lower floor of `cases.Builder`, which fills a call with data and turns some into calls to be refused.

May import: numpy, oracle, case_model, case_plan, sizes, extents, generator.{spec, bind, bind_key, bound, expr, types,
errors}.  To add a way to a call: a branch in `Calls.make_call`, names for it in `case_plan.Plan`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..generator.bind import bind
from ..generator.bind_key import Resolved, key_for_call
from ..generator.bound import BindKey, BoundOp
from ..generator.errors import OpwrightError
from ..generator.expr import Bin, Block, Call, Cmp, Expr, If, Name, Num, Str, Un, show, walk
from ..generator.spec import OpSpec
from ..generator.spec_model import AttrDecl, TensorType
from ..generator.types import CATEGORIES, RULES, DType, Operand
from .case_model import CaseRefused
from .case_plan import MAX_ELEMENTS
from .extents import Shape
from .oracle import survey
from .sizes import RUNGS, cut, grown

__all__ = ["BareCall", "Calls", "expressions", "type_choices"]

Rng = np.random.Generator
#: Extents of held-out shapes: the ends, powers of two and their neighbours.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)
MAX_POINTS = 4_000_000
ATTEMPTS = 80
#: Stand for an attribute of one more than the largest extent of a call, and than the product of all.
MOST, ALL = "most", "all"
_FRACTIONAL = ("float", "floats", "scalar")
#: What a call on the ladder of sizes may cost the oracle.
SIZED_POINTS = 1_500_000


def rng_of(*parts: object) -> Rng:
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


@dataclass
class BareCall:
    """Extents and attributes of a call before it has data.

    dims   name -> extent, extents of a pack, or (list input) an extent per entry; also `input.dim` and `input.shape`
    attrs  what the caller gives
    data   contents that a case states itself; where drawn extents no longer fit them, they are drawn as well
    """

    dims: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    lengths: dict[str, int] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ()

    def copy(self) -> BareCall:
        return replace(
            self,
            dims=dict(self.dims),
            attrs=dict(self.attrs),
            lengths=dict(self.lengths),
            data=dict(self.data),
        )


_INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": lambda p, q: int(p**q),
}


def int_value(x: Expr, names: Mapping[str, Any]) -> int:
    """An integer expression over extents and attributes; raises CaseRefused for a name without a value."""
    match x:
        case Num(value=v):
            return int(v)
        case Name(id=n):
            known = names.get(n)
            if isinstance(known, bool) or not isinstance(known, (int, float)):
                raise CaseRefused(f"`{n}` has no value")
            return int(known)
        case Un(op="-", x=a):
            return -int_value(a, names)
        case Bin(op=op, left=a, right=b):
            p, q = int_value(a, names), int_value(b, names)
            if op in ("//", "%") and q == 0:
                raise CaseRefused(f"`{show(x)}` divides by zero")
            if op in _INTEGER_OPS:
                return _INTEGER_OPS[op](p, q)
        case Call(fn="len" | "rank", args=(Name(id=n),)):
            return len(names[n])
        case Call(fn="max" | "min" as fn, args=args):
            return (max if fn == "max" else min)(int_value(a, names) for a in args)
        case Call(fn="cdiv", args=(a, b)):
            return -(-int_value(a, names) // int_value(b, names))
    raise CaseRefused(f"`{show(x)}` is no extent that cases can be made of")


class Calls:
    """Makes the calls of one spec."""

    def __init__(self, spec: OpSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.bound: dict[BindKey, BoundOp] = {}
        self.calls: dict[str, BareCall | CaseRefused] = {}
        self.choices = type_choices(spec)
        self.list_dims = _list_dims(spec)
        self.literals = _literals(spec)

    def types(self, text: str) -> dict[str, DType]:
        names = [] if text == "-" else text.split("+")
        if len(names) != len(self.choices):
            raise CaseRefused(f"`{text}` gives {len(names)} types, the operator chooses {len(self.choices)}")
        return {var: DType(n) for (var, _), n in zip(self.choices, names, strict=True)}

    def call(self, source: str, types: str) -> BareCall:
        key = f"{source}/{types}"
        if key not in self.calls:
            try:
                self.calls[key] = self.admitted(self.make_call(source, types), self.types(types))
            except CaseRefused as e:
                self.calls[key] = e
        found = self.calls[key]
        if isinstance(found, CaseRefused):
            raise found
        return found

    def admitted(self, call: BareCall, chosen: Mapping[str, DType]) -> BareCall:
        """The call with as many of its optional inputs as the operator takes together (a mask, or causal)."""
        optional = [
            n for n, t in self.spec.inputs.items() if t.optional and n not in call.absent | set(call.data)
        ]
        for left_out in ([], *([n] for n in optional), optional):
            fewer = replace(call.copy(), absent=call.absent | frozenset(left_out))
            with contextlib.suppress(OpwrightError):
                self.resolve(fewer, chosen)
                return fewer
        return call  # the reason comes with the case

    def make_call(self, source: str, types: str) -> BareCall:
        if source.startswith("case"):
            k = int(source[4:])
            if k >= len(self.spec.test.cases):
                raise CaseRefused(f"the spec has {len(self.spec.test.cases)} cases")
            return self.complete(self.declared(k))
        if source.startswith("draw"):
            return self.held_out(int(source[4:]), self.types(types))
        if source.startswith("alike"):
            return self.held_out(int(source[5:]), self.types(types), alike=True)
        if source.startswith("size"):
            rung, variant = source[4:].split(".")
            return self.sized(int(rung), int(variant), self.types(types))
        if source.startswith("attr."):
            _, attr, place = source.split(".")
            call = self.complete(self.plainest())
            call.attrs[attr] = self.domain(self.spec.attrs[attr])[int(place)]
            return call
        if source.startswith("zero."):
            call = self.complete(self.plainest())
            call.attrs[source[5:]] = 0
            return call
        if source.startswith("edge."):
            _, attr, place = source.split(".")
            return self.beyond(self.spec.attrs[attr], int(place), self.types(types))
        if source.startswith("axes."):
            _, attr, place = source.split(".")
            return self.edge_of_axes(self.spec.attrs[attr], int(place), self.types(types))
        if source.startswith("default."):
            return self.left_out(source[8:], self.types(types))
        return self.complete(self.plainest())

    def left_out(self, attr: str, chosen: dict[str, DType]) -> BareCall:
        """A declared case without an attribute, extents that a rule ties to it repaired."""
        for k in range(len(self.spec.test.cases)):
            call = self.declared(k)
            call.attrs.pop(attr, None)
            with contextlib.suppress(OpwrightError):
                self.repair(call, rng_of(self.seed, self.spec.op, attr, k))
                call = self.complete(call)
                op, run_attrs, shapes, _ = self.resolve(call, chosen)
                survey(op, shapes, run_attrs)
                return call
        raise CaseRefused(f"no declared case is taken without `{attr}`", inapplicable=True)

    def beyond(self, a: AttrDecl, place: int, chosen: dict[str, DType]) -> BareCall:
        """The plainest call with a number beyond those that `drawn_attrs` gives."""
        call = self.complete(self.plainest())
        extents = [
            e for v in call.dims.values() for e in (v if isinstance(v, tuple) else (v,)) if isinstance(e, int)
        ]
        value = self.edges_of(a)[place]
        if value in (MOST, ALL):
            value = (math.prod(extents) if value is ALL else max(extents, default=1)) + 1
        have = call.attrs.get(a.name, a.default if a.has_default else None)
        if a.kind in ("ints", "floats"):
            call.attrs[a.name] = (value,) * (len(have) if isinstance(have, tuple) else 1)
        else:
            call.attrs[a.name] = value
        points = 0
        with contextlib.suppress(OpwrightError):  # why the operator does not take it comes with the case
            op, run_attrs, shapes, _ = self.resolve(call, chosen)
            points = survey(op, shapes, run_attrs).points
        if points > SIZED_POINTS:
            raise CaseRefused(f"`{a.name}` = {value} makes the call too large", inapplicable=True)
        return call

    def edges_of(self, a: AttrDecl) -> list[Any]:
        """Numbers where an operator may change its mind about an attribute: around zero, beyond its extents (`MOST` of
        any, `ALL` of their product), and those that the spec compares it with.
        """
        if a.kind not in (*_FRACTIONAL, "int", "ints"):
            return []
        compared = [v for v in self.literals.get(a.name, ()) if a.kind in _FRACTIONAL or v == int(v)]
        beside = [v + d for v in compared for d in (-1, 0, 1)]
        if isinstance(a.static, tuple):  # `domain` has the others
            return [v for v in dict.fromkeys((-1 if a.kind == "int" else -1.5, *beside)) if v not in a.static]
        match a.kind:
            case "int" | "ints":
                return list(dict.fromkeys((-1, 0, 1, *map(int, beside), MOST, ALL)))
            case "float" | "floats":
                return list(dict.fromkeys((-0.5, 0.0, 1.0, 2.5, *map(float, beside), MOST)))
        return list(dict.fromkeys((-1, 0, 1, 2.5, *beside, MOST, ALL)))

    def edge_of_axes(self, a: AttrDecl, place: int, chosen: dict[str, DType]) -> BareCall:
        """A declared case whose axes named by `a` have extent 1 (place 0), or with no axes named (1)."""
        why = "no input's axes are named by it"
        for k in range(len(self.spec.test.cases)):
            call = self.declared(k)
            for t in self.spec.inputs.values():
                named = {d.expr.id: d.pack for d in t.dims if d.at == a.name and isinstance(d.expr, Name)}
                rest = [d.expr.id for d in t.dims if d.pack and d.at is None and isinstance(d.expr, Name)]
                if not named or not all(n in call.dims for n in (*named, *rest)):
                    continue
                if place == 0:
                    for n, pack in named.items():
                        call.dims[n] = (1,) * max(1, len(call.dims[n])) if pack else 1
                    if a.kind == "axes":
                        call.attrs.pop(a.name, None)
                elif len(named) == 1 and all(named.values()) and len(rest) == 1:
                    (name,) = named
                    whole = (*call.dims[rest[0]], *call.dims[name])
                    everything = a.empty == "all"
                    call.dims[name], call.dims[rest[0]] = (whole, ()) if everything else ((), whole)
                    call.attrs[a.name] = ()
                else:
                    continue
                try:
                    call = self.complete(call)
                    op, run_attrs, shapes, _ = self.resolve(call, chosen)
                    survey(op, shapes, run_attrs)
                except OpwrightError as e:
                    why = e.message
                    break
                return call
        raise CaseRefused(f"no declared case is taken at this edge of `{a.name}`: {why}", inapplicable=True)

    # ------------------------------------------------------------------------------------------ declared cases
    def declared(self, k: int) -> BareCall:
        """A case as the spec writes it."""
        call = BareCall()
        for key, value in self.spec.test.cases[k].items():
            if key in self.spec.attrs:
                call.attrs[key] = tuple(value) if isinstance(value, list) else value
            elif key == "types":
                call.types = tuple(value) if isinstance(value, list) else (str(value),)
            elif key in ("from", "values", "layouts"):
                continue
            elif key in self.spec.inputs:
                t = self.spec.inputs[key]
                if t.is_list and isinstance(value, int) and not isinstance(value, bool):
                    call.lengths[key] = value
                elif t.optional and (value is None or value is False):
                    call.absent |= {key}
                elif isinstance(value, list):
                    call.data[key] = value
            else:
                call.dims[key] = tuple(value) if isinstance(value, list) else value
        return call

    def plainest(self) -> BareCall:
        """The first declared case with something in it, else a small call made up."""
        for k in range(len(self.spec.test.cases)):
            call = self.declared(k)
            if not is_empty(call):
                return call
        return self.made_up()

    def made_up(self) -> BareCall:
        """Extents for a spec without cases."""
        call = BareCall()
        size = iter((3, 4, 5, 2, 6, 7, 3, 4, 5, 2, 6, 7))
        for t in self.spec.inputs.values():
            for d in t.dims:
                if (
                    isinstance(d.expr, Name)
                    and d.expr.id not in call.dims
                    and d.expr.id not in self.spec.attrs
                ):
                    decl = self.spec.dims.get(d.expr.id)
                    if d.pack:
                        rank = (
                            int_value(decl.rank, {}) if decl is not None and isinstance(decl.rank, Num) else 2
                        )
                        call.dims[d.expr.id] = tuple(next(size, 2) for _ in range(rank))
                    else:
                        call.dims[d.expr.id] = (2, 3) if d.expr.id in self.list_dims else next(size, 2)
        return call

    def complete(self, call: BareCall) -> BareCall:
        """Lengths of lists, and attributes that the case leaves to us: axes where its packs ask for some."""
        for name, t in self.spec.inputs.items():
            if t.is_list and name not in call.lengths:
                call.lengths[name] = self.length(name, t, call)
        for a in self.spec.attrs.values():
            if a.name in call.attrs:
                continue
            if a.kind == "axes" and (not a.has_default or a.default in (None, ())):
                chosen = self.last_axes(a.name, call)
                if chosen is not None:
                    call.attrs[a.name] = chosen
            elif not (a.has_default or a.optional or a.default_expr is not None):
                call.attrs[a.name] = self.plain_value(a, call)
        return call

    def length(self, name: str, t: TensorType, call: BareCall) -> int:
        for d in t.dims:
            if (
                isinstance(d.expr, Name)
                and d.expr.id in self.list_dims
                and isinstance(call.dims.get(d.expr.id), tuple)
            ):
                return len(call.dims[d.expr.id])
        for dim, decl in self.spec.dims.items():
            match decl.rank:
                case Call(fn="len", args=(Name(id=n),)) if n == name and dim in call.dims:
                    return len(call.dims[dim])
        return 2

    def last_axes(self, attr: str, call: BareCall) -> tuple[int, ...] | None:
        """The last axes of the tensor whose pack the attribute moves; None where it moves all of them."""
        for t in self.spec.inputs.values():
            moved = [d for d in t.dims if d.at == attr and d.pack]
            if moved and isinstance(moved[0].expr, Name) and moved[0].expr.id in call.dims:
                count = len(call.dims[moved[0].expr.id])
                rank = self.rank_of(t, call)
                return None if count == rank else tuple(range(rank - count, rank))
        return None

    def rank_of(self, t: TensorType, call: BareCall) -> int:
        return sum(
            len(call.dims.get(d.expr.id, ())) if d.pack and isinstance(d.expr, Name) else 1 for d in t.dims
        )

    def plain_value(self, a: AttrDecl, call: BareCall) -> Any:
        match a.kind:
            case "axis":
                return -1
            case "enum":
                return a.values[0]
            case "bool":
                return False
            case "dtype":
                return "f32"
            case "ints":
                return (1,) * max(
                    (
                        len(v)
                        for n, v in call.dims.items()
                        if isinstance(v, tuple) and n in self.spec.dims and self.spec.dims[n].kind == "static"
                    ),
                    default=1,
                )
            case "axes":
                return ()
            case "floats":
                return (1.0,)
            case "str":
                return ""
        return 1

    # ------------------------------------------------------------------------------------------ held-out shapes
    def held_out(self, k: int, chosen: dict[str, DType], *, alike: bool = False) -> BareCall:
        """Extents and attributes drawn by the seed near a declared case, until the operator takes them.

        alike: no input is smaller than what it broadcasts to, and attributes are the case's own.
        """
        cases = len(self.spec.test.cases)
        why = "no attempt"
        for attempt in range(ATTEMPTS):
            rng = rng_of(self.seed, self.spec.op, "draw", k, attempt)
            base = self.declared(int(rng.integers(cases))) if cases else self.made_up()
            # From wild to tame: later attempts keep more of the declared case.
            keep = 0.1 + 0.8 * attempt / ATTEMPTS
            try:
                call = self.perturbed(base, rng, keep, flavour=k % 6)
                if alike:
                    joined = _joined(call.dims)
                    call.dims = {n: v for n, v in joined.items() if not n.endswith(".shape")}
                call = self.complete(call)
                if not alike:
                    self.drawn_attrs(call, base, rng, keep)
                op, run_attrs, shapes, _ = self.resolve(call, chosen)
                found = survey(op, shapes, run_attrs)
            except (CaseRefused, OpwrightError) as e:
                why = e.message
                continue
            sizes = [math.prod(s) for s in shapes.values()]
            if max(sizes, default=0) > MAX_ELEMENTS or found.points > MAX_POINTS:
                why = "too large"
                continue
            if any(extent == 0 and math.prod(shapes[n]) for n, extent in found.ranges.items()):
                why = "positions in an axis of extent 0"
                continue
            return call
        raise CaseRefused(f"no held-out shape in {ATTEMPTS} attempts (the last: {why})")

    def sized(self, rung: int, variant: int, chosen: dict[str, DType]) -> BareCall:
        """A call with one extent (or the product of two) on a rung of the ladder.

        Variants go through the extents, then through the tails.  Where the operator does not take it, or it costs too
        much, the other extents are cut, then another one grows.
        """
        cases = [k for k in range(len(self.spec.test.cases)) if not is_empty(self.declared(k))]
        why, on = "no extent can grow", RUNGS[rung]
        for attempt in range(ATTEMPTS):
            rng = rng_of(self.seed, self.spec.op, "size", rung, variant, attempt)
            base = self.declared(cases[int(rng.integers(len(cases)))]) if cases else self.made_up()
            names = self.growable(base)
            if not names:
                continue
            victim = names[(variant + attempt // 8) % len(names)]
            n = on.draw(rng, rung + variant // len(names))
            try:
                call = self.enlarged(base, victim, n, (64, 8, 3, 1)[attempt % 4], rng)
                for a in self.spec.attrs.values():
                    if a.kind in ("axis", "axes"):
                        self.drawn_axes(a, call, rng)
                op, run_attrs, shapes, _ = self.resolve(call, chosen)
                found = survey(op, shapes, run_attrs)
            except (CaseRefused, OpwrightError) as e:
                why = e.message
                continue
            most = max((math.prod(s) for s in shapes.values()), default=0)
            if most > on.elements or found.points > SIZED_POINTS:
                why = "too large"
                continue
            if victim in call.dims and max(max((*s, math.prod(s))) for s in shapes.values()) < on.low:
                why = "every input broadcasts along it"
                continue
            return call
        raise CaseRefused(f"no call with an extent above {on.low} (the last attempt: {why})")

    def growable(self, base: BareCall) -> list[str]:
        """What may be made large: the call's extents, and the attributes that extents of outputs are made of."""
        joint = _joined(base.dims)
        made_of = {
            n.id
            for t in self.spec.outputs.values()
            for d in t.dims
            for n in walk(d.expr)
            if isinstance(n, Name)
        }
        kinds = {"int": int, "ints": tuple, "scalar": int}
        attrs = [
            a.name
            for a in self.spec.attrs.values()
            if a.name in made_of
            and isinstance(base.attrs.get(a.name), kinds.get(a.kind, str))
            and not isinstance(base.attrs[a.name], bool)
        ]
        return [n for n in joint if n not in self.spec.inputs and "." not in n] + attrs

    def enlarged(self, base: BareCall, victim: str, n: int, cap: int, rng: Rng) -> BareCall:
        call = base.copy()
        call.dims = {}
        for name, value in _joined(base.dims).items():
            decl = self.spec.dims.get(name)
            fixed = decl is not None and (decl.kind == "static" or decl.rank is not None)
            new: Any = cut(value, cap)
            if name == victim and name in self.list_dims and isinstance(new, tuple):
                place = int(rng.integers(len(new)))
                new = (*new[:place], n, *new[place + 1 :])
            elif name == victim:
                new = grown(new, n, rng, fixed=fixed) if isinstance(new, tuple) else n
            call.dims[name] = new
            for attr, given in base.attrs.items():
                if isinstance(value, tuple) and value and given == value and len(new) == len(value):
                    call.attrs[attr] = new  # normalized_shape follows its pack
        if victim in base.attrs:
            given = base.attrs[victim]
            call.attrs[victim] = grown(given, n, rng, fixed=True) if isinstance(given, tuple) else n
        for name, t in self.spec.inputs.items():
            if t.is_list:
                call.lengths.pop(name, None)
        self.repair(call, rng)
        self.broadcast(call, rng)
        return self.complete(call)

    def extent(self, rng: Rng, flavour: int, static: bool) -> int:
        if static:
            return int(rng.integers(1, 10))
        match flavour:
            case 1:
                return int(rng.choice([0, 1, 2, 3, 5], p=[0.3, 0.2, 0.2, 0.2, 0.1]))
            case 2:
                return int(rng.choice([1, 2, 3, 4], p=[0.5, 0.2, 0.2, 0.1]))
            case 4:  # many axes, and few elements in all
                return int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
        return int(rng.choice(EXTENTS[:12] if flavour != 3 else EXTENTS))

    def perturbed(self, base: BareCall, rng: Rng, keep: float, flavour: int) -> BareCall:
        call = base.copy()
        call.dims = _joined(base.dims)
        ranks: dict[int, int] = {}
        seen: dict[Any, Any] = {}
        for n, v in list(call.dims.items()):
            decl = self.spec.dims.get(n)
            static = decl is not None and (decl.kind == "static")
            if v in seen and rng.random() < 0.6:
                call.dims[n] = seen[v]  # what was equal stays equal, more often than not
                continue
            if rng.random() < keep:
                new = v
            elif isinstance(v, tuple):
                rank = len(v)
                if not static and n not in self.list_dims and (decl is None or decl.rank is None):
                    if rank not in ranks:
                        most = 13 if self.spec.by_hand else 8  # hands have limits that a printer has not
                        low, high = {4: (3, most), 5: (0, 1)}.get(flavour, (0, 4))
                        ranks[rank] = int(rng.integers(low, high))
                    rank = ranks[rank]
                new = tuple(self.extent(rng, flavour, static) for _ in range(rank))
            else:
                new = self.extent(rng, flavour, False)
                if flavour == 3 and rng.random() < 0.4:
                    new = int(2 ** rng.integers(7, 12) + rng.integers(-1, 2))
            if isinstance(v, tuple):
                seen.setdefault(v, new)
            call.dims[n] = new
            for attr, value in base.attrs.items():
                if isinstance(v, tuple) and v and value == v and len(new) == len(v):
                    call.attrs[attr] = new  # normalized_shape follows its pack
        for name, t in self.spec.inputs.items():
            if t.is_list:
                call.lengths.pop(name, None)
        self.repair(call, rng)
        self.broadcast(call, rng)
        return call

    def repair(self, call: BareCall, rng: Rng) -> None:
        """Extents that a rule ties to others: `C == G * groups`, `H % G == 0`."""
        names: dict[str, Any] = {a.name: a.default for a in self.spec.attrs.values()} | call.attrs | call.dims
        for r in self.spec.require:
            match r.expr:
                case Cmp(op="==", left=Bin(op="%", left=Name(id=a), right=b), right=Num(value=0)) if (
                    a in call.dims
                ):
                    call.dims[a] = names[a] = int_value(b, names) * int(rng.integers(1, 4))
                case Cmp(op="==", left=Name(id=a), right=b) if a in call.dims and isinstance(
                    call.dims[a], int
                ):
                    call.dims[a] = names[a] = int_value(b, names)

    def broadcast(self, call: BareCall, rng: Rng) -> None:
        """A share of its own for each input of a pack that broadcasts, and for `expand` inputs."""
        for n, decl in self.spec.dims.items():
            if decl.kind != "broadcast" or n not in call.dims:
                continue
            users = [
                i
                for i, t in self.spec.inputs.items()
                if not t.is_list
                and any(d.pack and isinstance(d.expr, Name) and d.expr.id == n for d in t.dims)
            ]
            if len(users) < 2 or rng.random() < 0.3:
                continue
            for user in users:
                call.dims[f"{user}.{n}"] = _share(call.dims[n], rng)
        for name, t in self.spec.inputs.items():
            if t.expand and rng.random() < 0.7:
                call.dims[f"{name}.shape"] = ("share", int(rng.integers(1 << 30)))

    def drawn_attrs(self, call: BareCall, base: BareCall, rng: Rng, keep: float) -> None:
        for a in self.spec.attrs.values():
            if rng.random() < keep or a.kind in ("str", "dtype"):
                continue
            if a.kind in ("axis", "axes"):
                self.drawn_axes(a, call, rng)
            elif a.optional and rng.random() < 0.3:
                call.attrs[a.name] = None
            elif a.kind in ("bool", "enum") or isinstance(a.static, tuple):
                domain = self.domain(a)
                call.attrs[a.name] = domain[int(rng.integers(len(domain)))]
            elif a.kind == "ints":
                have = call.attrs.get(a.name, a.default)
                tied = any(call.attrs.get(a.name) == v for n, v in call.dims.items() if isinstance(v, tuple))
                if isinstance(have, tuple) and not tied:
                    call.attrs[a.name] = tuple(max(0, v + int(rng.integers(-1, 2))) for v in have)
            elif a.kind == "int":
                have = call.attrs.get(a.name, a.default if a.has_default else 1)
                call.attrs[a.name] = (
                    int(rng.integers(0, 6))
                    if not isinstance(have, int) or rng.random() < 0.3
                    else have + int(rng.integers(-1, 3))
                )
            elif a.kind == "float":
                call.attrs[a.name] = float(np.round(rng.uniform(0.05, 0.95), 3))
            elif a.kind == "scalar":
                whole = rng.random() < 0.5
                call.attrs[a.name] = (
                    int(rng.integers(-3, 4)) if whole else float(np.round(rng.uniform(-3, 3), 2))
                )

    def drawn_axes(self, a: AttrDecl, call: BareCall, rng: Rng) -> None:
        """Any admissible axis, counted from either end."""
        for t in self.spec.inputs.values():
            moved = [d for d in t.dims if d.at == a.name]
            if not moved:
                continue
            rank = self.rank_of(t, call)
            if a.kind == "axis":
                if rank:
                    call.attrs[a.name] = int(rng.integers(-rank, rank))
                return
            count = sum(
                len(call.dims.get(d.expr.id, ())) if d.pack and isinstance(d.expr, Name) else 1 for d in moved
            )
            if (count == rank and rng.random() < 0.5) or (a.empty == "all" and not count):
                call.attrs[a.name] = None  # all of them; `()` would mean the same
                return
            picked = sorted(int(p) for p in rng.permutation(rank)[:count])
            call.attrs[a.name] = tuple(p - rank if rng.random() < 0.4 else p for p in picked)
            return

    def domain(self, a: AttrDecl) -> list[Any]:
        """The values of an attribute that make kernels of their own."""
        if a.kind == "bool":
            return [False, True]
        if a.kind == "enum":
            return list(a.values)
        if a.kind == "str":
            return [*dict.fromkeys(self.literals.get(a.name, ()))]
        if isinstance(a.static, tuple):
            return [*a.static, 3 if a.kind == "int" else 2.5]
        return []

    # ------------------------------------------------------------------------------------------ shapes
    def shapes(self, call: BareCall) -> dict[str, Shape | list[Shape]]:
        """Physical shape of every input that is present."""
        names: dict[str, Any] = {a.name: a.default for a in self.spec.attrs.values()} | call.attrs | call.dims
        out: dict[str, Shape | list[Shape]] = {}
        for name, t in self.spec.inputs.items():
            if name in call.absent:
                continue
            if t.is_list:
                out[name] = [self.shape(name, t, call, names, k) for k in range(call.lengths[name])]
                continue
            try:
                out[name] = self.shape(name, t, call, names, 0)
            except CaseRefused:
                if name not in call.data:
                    raise
                out[name] = np.shape(call.data[name])
        return out

    def shape(self, name: str, t: TensorType, call: BareCall, names: Mapping[str, Any], entry: int) -> Shape:
        given = call.dims.get(f"{name}.shape")
        if given is not None and given[:1] != ("share",):  # a shape stated whole, of a list one an entry
            return tuple(given[entry]) if t.is_list else tuple(given)
        parts: list[tuple[Shape, str | None]] = []
        for d in t.dims:
            dim = d.expr.id if isinstance(d.expr, Name) else ""
            value = call.dims.get(f"{name}.{dim}", call.dims.get(dim)) if dim else None
            if d.pack:
                if value is None:
                    lanes = [
                        len(v)
                        for n, v in call.dims.items()
                        if isinstance(v, tuple)
                        and any(isinstance(m, Name) and m.id == n for m in walk(d.expr))
                    ]
                    if not lanes:
                        raise CaseRefused(f"nothing says the extents of `*{show(d.expr)}` of `{name}`")
                    value = tuple(
                        int_value(
                            d.expr,
                            {
                                n: v[k] if isinstance(v, tuple) and len(v) == lanes[0] else v
                                for n, v in names.items()
                            },
                        )
                        for k in range(lanes[0])
                    )
                parts.append((tuple(value), d.at))
                continue
            if isinstance(value, tuple):
                value = value[entry]
            if value is None:
                value = self.let_value(dim, names) if dim in self.spec.let else int_value(d.expr, names)
            parts.append(((int(value),), d.at))
        if any(e < 0 for extents, _ in parts for e in extents):
            raise CaseRefused(f"an extent of `{name}` would be negative")
        whole = _placed(parts, names)
        if t.expand and given is not None:
            return _share(whole, np.random.default_rng(given[1]))
        return whole

    def let_value(self, dim: str, names: Mapping[str, Any]) -> int:
        return int_value(self.spec.let[dim].expr, names)

    def dtype(self, t: TensorType, chosen: Mapping[str, DType]) -> DType:
        """What an input's type is before promotion."""
        if t.dtype in chosen:
            return chosen[t.dtype]
        if t.dtype not in self.spec.types:
            return DType(t.dtype)
        return self.derived(self.spec.types[t.dtype], chosen)

    def derived(self, rule: Expr, chosen: Mapping[str, DType]) -> DType:
        match rule:
            case Name(id=n) if n in chosen:
                return chosen[n]
            case Name(id=n) if n in self.spec.types:
                return self.derived(self.spec.types[n], chosen)
            case Name(id=n) if n in {d.value for d in DType}:
                return DType(n)
            case Call(fn=fn, args=args) if fn in RULES:
                out = RULES[fn](*(self.derived(a, chosen) for a in args))
                assert isinstance(out, DType)
                return out
            case Call(fn=fn, args=(inner,)) if fn in CATEGORIES:
                return self.derived(inner, chosen)
            case Call(fn="attr", args=(_, inner)):
                return self.derived(inner, chosen)
        raise CaseRefused(f"type rule `{show(rule)}` of an input is not known to cases")

    def resolve(
        self,
        call: BareCall,
        chosen: Mapping[str, DType],
        shapes: dict[str, Shape | list[Shape]] | None = None,
    ) -> tuple[BoundOp, dict[str, Any], dict[str, Shape], Resolved]:
        """The bound program of a call, its run-time attributes, flat shapes, and the resolution."""
        shapes = self.shapes(call) if shapes is None else shapes
        operands: dict[str, Any] = {}
        flat: dict[str, Shape] = {}
        for name, t in self.spec.inputs.items():
            s = shapes.get(name)
            if s is None:
                operands[name] = None
            elif isinstance(s, list):
                operands[name] = [Operand(self.dtype(t, chosen), len(e)) for e in s]
                flat |= {f"{name}.{k}": e for k, e in enumerate(s)}
            else:
                operands[name] = Operand(self.dtype(t, chosen), len(s))
                flat[name] = s
        resolved = key_for_call(self.spec, operands, call.attrs)
        if resolved.key not in self.bound:
            self.bound[resolved.key] = bind(self.spec, resolved.key)
        return self.bound[resolved.key], resolved.attrs, flat, resolved


def _joined(dims: Mapping[str, Any]) -> dict[str, Any]:
    """Extents by dim: `a.B: [3, 1], b.B: [2]` stands for a joint B, and no input has a shape of its own."""
    out = {n: v for n, v in dims.items() if "." not in n}
    for n, v in dims.items():
        if "." in n and not n.endswith(".shape"):
            dim = n.split(".", 1)[1]
            if dim not in out:
                parts = [w for m, w in dims.items() if m.endswith(f".{dim}")]
                out[dim] = np.broadcast_shapes(*parts) if isinstance(v, tuple) else v
    return out


def is_empty(call: BareCall) -> bool:
    """Whether an extent of it is 0."""
    return any(v == 0 or (isinstance(v, tuple) and 0 in v) for v in call.dims.values())


def _share(whole: Shape, rng: Rng) -> Shape:
    """A shape that broadcasts to `whole`: leading axes left out, some axes of extent 1."""
    drop = int(rng.integers(0, len(whole) + 1)) if rng.random() < 0.5 else 0
    return tuple(1 if rng.random() < 0.3 else n for n in whole[drop:])


def _placed(parts: Sequence[tuple[Shape, str | None]], names: Mapping[str, Any]) -> Shape:
    """Extents with the axes that attributes name put where they say."""
    total = sum(len(p) for p, _ in parts)
    at: dict[int, int] = {}
    rest: list[int] = []
    for extents, attr in parts:
        axes = names.get(attr) if attr is not None else None
        if attr is None or axes is None or axes == ():
            rest += extents
            continue
        wanted = [axes] if isinstance(axes, int) else list(axes)
        if len(wanted) != len(extents) or any(not -total <= a < total for a in wanted):
            raise CaseRefused(f"`{attr}` = {axes} does not fit {total} axes")
        for p, e in zip(sorted(a % total for a in wanted), extents, strict=True):
            if p in at:
                raise CaseRefused(f"`{attr}` names an axis twice")
            at[p] = e
    left = iter(rest)
    return tuple(at[p] if p in at else next(left) for p in range(total))


def type_choices(spec: OpSpec) -> list[tuple[str, tuple[DType, ...]]]:
    """(type variable, dtypes) of those that a caller chooses."""
    out: list[tuple[str, tuple[DType, ...]]] = []
    used = {t.dtype for t in spec.inputs.values()}
    for var, rule in spec.types.items():
        if isinstance(rule, Name) and rule.id in CATEGORIES:
            if var in used:
                out.append((var, CATEGORIES[rule.id]))
            continue
        calls = [n for n in walk(rule) if isinstance(n, Call)]
        if var in used and any(c.fn in ("promote", "opmath") for c in calls):
            sets = [CATEGORIES[c.fn] for c in calls if c.fn in CATEGORIES]
            if any(c.fn == "float_of" for c in calls):
                sets.append(CATEGORIES["inexact"])
            out.append((var, tuple(d for d in DType if all(d in s for s in sets))))
    return out


def _literals(spec: OpSpec) -> dict[str, list[Any]]:
    """Attribute -> the finite numbers that a comparison, a max or a min holds it against, in rules or in `compute`; of
    strings, strings."""
    out: dict[str, list[Any]] = {}
    for root in (*(r.expr for r in spec.require), *expressions(spec.compute)):
        for part in walk(root):
            if not (isinstance(part, Cmp) or (isinstance(part, Call) and part.fn in ("max", "min"))):
                continue
            inside = list(walk(part))
            numbers = [n.value for n in inside if isinstance(n, Num) and not isinstance(n.value, bool)]
            texts = [n.value for n in inside if isinstance(n, Str)]
            for a in (spec.attrs[n.id] for n in inside if isinstance(n, Name) and n.id in spec.attrs):
                fit = texts if a.kind == "str" else [v for v in numbers if math.isfinite(v) and abs(v) < 1e6]
                out.setdefault(a.name, []).extend(fit)
    return out


def expressions(block: Block) -> Iterator[Expr]:
    """Every value, guard and static test of a block."""
    for st in block:
        if isinstance(st, If):
            yield st.test
            yield from expressions(st.then)
            yield from expressions(st.orelse)
        else:
            yield st.value
            if st.guard is not None:
                yield st.guard


def _list_dims(spec: OpSpec) -> set[str]:
    """Dims of list inputs that differ from entry to entry: read by entry, or by start and total."""
    text = spec.compute_text + " ".join(show(d.expr) for t in spec.outputs.values() for d in t.dims)
    compact = text.replace(" ", "")
    out: set[str] = set()
    for t in spec.inputs.values():
        if t.is_list:
            for d in t.dims:
                if isinstance(d.expr, Name) and not d.pack:
                    n = d.expr.id
                    if f"start({n}" in compact or f"total({n})" in compact or f"{n}[" in compact:
                        out.add(n)
    return out
