"""Spec -> Bound: solve the types of a call (`key_for_call`), then resolve and type every statement (`bind`).

Rules of typing, in the order they are tried
  1. A load has its tensor's dtype; a cast (a type variable or a dtype name) has the one it names.
  2. Literals, extents, indices and attributes are *weak*: beside a strong operand they take its dtype.  Weak integers
     alone are i64, weak floats f64; `/` of weak integers is a weak float.
  3. Two strong integers widen to the larger; any other two strong dtypes that differ are an error: cast one.
  4. No arithmetic on half types: widen with `A(…)` first (moves, comparisons, max, min and
     negation are exact and allowed).
  5. What is stored must have the target's dtype (rounding is written in the spec, as a cast); updates of a half-typed
     target may be in its accumulator: `normal.py` rounds once.

May import: spec, expr, types, bound, errors.  To add a function: its typing in `_call`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from .bound import (
    Attr,
    Axis,
    BindKey,
    BoundOp,
    Dim,
    DimUse,
    Rule,
    Statement,
    StaticValue,
    Tensor,
    show_dim_use,
)
from .errors import BindError, DomainError, did_you_mean
from .expr import (
    FUNCTIONS,
    And,
    Assign,
    Bin,
    Block,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    If,
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
    children,
    map_children,
    show,
    substitute,
    walk,
)
from .spec import AttrDecl, DimText, OpSpec, TensorType
from .types import (
    CATEGORIES,
    RULES,
    DType,
    Operand,
    accum,
    complex_of,
    default_dtype,
    exact_in,
    in_category,
    promote,
    promote_operands,
    real_of,
)

__all__ = ["Resolved", "bind", "bind_grad", "key_for_call", "keys_of", "rebind"]

# ================================================================================================ types of a call


@dataclass(frozen=True)
class Resolved:
    """A call's key; `casts`: flat input name -> dtype it must be cast to; `attrs`: run-time attribute values."""

    key: BindKey
    casts: dict[str, DType]
    attrs: dict[str, Any]


def flat_names(spec: OpSpec, key: BindKey) -> list[tuple[str, str]]:
    """(flat name, spec input) of every present input entry, in call order: lists as `xs.0`, `xs.1` …"""
    present, lengths = dict(key.present), dict(key.lengths)
    out: list[tuple[str, str]] = []
    for name, t in spec.inputs.items():
        if t.is_list:
            out += [(f"{name}.{k}", name) for k in range(lengths.get(name, 0))]
        elif present.get(name, True):
            out.append((name, name))
    return out


class _TypeSolver:
    """Solves `types:` in the order written; each rule may use variables solved before it."""

    def __init__(
        self, spec: OpSpec, operands: Mapping[str, Sequence[Operand]], attrs: Mapping[str, Any]
    ) -> None:
        self.spec, self.operands, self.attrs = spec, operands, attrs
        self.vars: dict[str, DType] = {}
        self.castable: set[str] = set()

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        raise DomainError(f"{self.spec.op}: {what}", hint=hint)

    def solve(self) -> dict[str, DType]:
        for var, rule in self.spec.types.items():
            self.vars[var] = self.free(var, rule) if self.is_free(rule) else self.rule(var, rule)
        return self.vars

    @staticmethod
    def is_free(rule: Expr) -> bool:
        return isinstance(rule, Name) and rule.id in CATEGORIES

    def users(self, var: str) -> list[str]:
        return [n for n, t in self.spec.inputs.items() if t.dtype == var and self.operands.get(n)]

    def free(self, var: str, rule: Expr) -> DType:
        assert isinstance(rule, Name)
        found: DType | None = None
        where = ""
        weak: list[DType] = []
        for name in self.users(var):
            for op in self.operands[name]:
                if op.weak:
                    weak.append(op.dtype)
                elif found is None:
                    found, where = op.dtype, name
                elif op.dtype is not found:
                    self.refuse(
                        f"inputs `{where}` and `{name}` must have one dtype, got {found} and {op.dtype}"
                    )
        if found is None and weak:
            found = promote_operands([Operand(w, 0, True) for w in weak])
        if found is None:
            fits = [v for v in self.vars.values() if in_category(v, rule.id)]
            found = fits[0] if fits else CATEGORIES[rule.id][-1]
        if not in_category(found, rule.id):
            self.refuse(
                f"dtype {found} is not {rule.id} (type {var})",
                f"{var} may be {', '.join(map(str, CATEGORIES[rule.id]))}",
            )
        return found

    def rule(self, var: str, rule: Expr) -> DType:
        match rule:
            case Name(id=n) if n in self.vars:
                return self.vars[n]
            case Name(id=n) if n in DType._value2member_map_:
                return DType(n)
            case Call(fn="promote", args=args):
                self.castable.add(var)
                ops: list[Operand] = []
                for a in args:
                    assert isinstance(a, Name)
                    if a.id in self.spec.inputs:
                        ops += self.operands.get(a.id, ())
                    else:
                        v = self.attrs.get(a.id)
                        if v is not None:
                            ops.append(Operand(default_dtype(v), 0, True))
                if not ops:
                    self.refuse(f"nothing to promote for type {var}")
                return promote_operands(ops)
            case Call(fn="attr", args=(Name(id=a), other)):
                v = self.attrs.get(a)
                return DType(str(v)) if v is not None else self.rule(var, other)
            case Call(fn="default", args=args):
                vals = [self.attrs.get(a.id) for a in args if isinstance(a, Name)]
                known = [default_dtype(v) for v in vals if v is not None]
                if not known:
                    return DType.F32
                out = known[0]
                for k in known[1:]:
                    out = promote(out, k)
                return out
            case Call(fn=fn, args=(inner,)) if fn in CATEGORIES:
                t = self.rule(var, inner)
                if not in_category(t, fn):
                    self.refuse(
                        f"dtype {t} is not {fn} (type {var})",
                        f"{var} may be {', '.join(map(str, CATEGORIES[fn]))}",
                    )
                return t
            case Call(fn=fn, args=args) if fn in RULES:
                out = RULES[fn](*(self.rule(var, a) for a in args))
                assert isinstance(out, DType)
                return out
        self.refuse(
            f"type rule `{show(rule)}` of {var} is not known",
            f"rules: promote, attr, default, {', '.join(RULES)}",
        )


def _canon_attr(spec: OpSpec, a: AttrDecl, value: Any) -> Any:
    """The canonical Python value of an attribute, or a DomainError that names it."""

    def bad(want: str) -> NoReturn:
        raise DomainError(f"{spec.op}: attribute `{a.name}` is {want}, got {value!r}")

    if value is None:
        if (
            a.optional
            or a.default_expr is not None
            or a.kind in ("axes", "dtype")
            or (a.has_default and a.default is None)
        ):
            return None
        bad(f"a {a.kind} and required")
    match a.kind:
        case "int" | "axis":
            if isinstance(value, bool) or not isinstance(value, int):
                if isinstance(value, float) and value.is_integer():
                    return int(value)
                bad("an int")
            return value
        case "float":
            if not isinstance(value, (int, float)):
                bad("a float")
            return float(value)
        case "bool":
            if not isinstance(value, (bool, int)):
                bad("a bool")
            return bool(value)
        case "scalar":
            if not isinstance(value, (bool, int, float, complex)):
                bad("a number")
            return value
        case "axes" | "ints":
            if isinstance(value, int) and not isinstance(value, bool):
                return (value,)
            if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
                bad("a list of ints")
            return tuple(int(v) for v in value)
        case "floats":
            if isinstance(value, (int, float)):
                return (float(value),)
            return tuple(float(v) for v in value)
        case "dtype":
            try:
                return DType(str(value)).value
            except ValueError:
                bad(f"a dtype name ({', '.join(d.value for d in DType)})")
        case "enum":
            if value not in a.values:
                bad(f"one of {', '.join(a.values)}")
            return value
        case "str":
            if not isinstance(value, str):
                bad("a string")
            return value
    raise AssertionError(a.kind)


def canonical_attrs(spec: OpSpec, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute of the spec with its canonical value, defaults filled.  Raises DomainError."""
    for name in attrs:
        if name not in spec.attrs:
            raise DomainError(
                f"{spec.op}: no attribute `{name}`", hint=f"it has {', '.join(spec.attrs) or 'none'}"
            )
    out: dict[str, Any] = {}
    for a in spec.attrs.values():
        if a.name in attrs:
            value = attrs[a.name]
        elif a.has_default and a.default_expr is None:
            value = a.default
        elif a.default_expr is not None or a.optional:
            value = None
        else:
            raise DomainError(f"{spec.op}: attribute `{a.name}` is required")
        out[a.name] = _canon_attr(spec, a, value)
    return out


def _lane_groups(spec: OpSpec) -> list[set[str]]:
    """Names (ints attributes, static packs, `*P` lets) that stand in one pack expression, so must have one rank."""
    packs = {d for d, k in spec.dims.items() if k.kind == "static"} | {
        n for n, v in spec.let.items() if v.pack
    }
    ints = {n for n, a in spec.attrs.items() if a.kind in ("ints", "floats")}
    groups: list[set[str]] = []

    def add(names: set[str]) -> None:
        names = names & (packs | ints)
        if len(names) < 2:
            return
        for g in [g for g in groups if g & names]:
            groups.remove(g)
            names = names | g
        groups.append(names)

    def scan(x: Expr) -> None:
        for n in walk(x):
            if isinstance(n, (Star, Fold)) and not isinstance(n.x if isinstance(n, Star) else n.body, Name):
                inner = n.x if isinstance(n, Star) else n.body
                add({m.id for m in walk(inner) if isinstance(m, Name)})

    for d in itertools.chain.from_iterable(t.dims for t in (*spec.inputs.values(), *spec.outputs.values())):
        if d.pack:
            add({m.id for m in walk(d.expr) if isinstance(m, Name)})
    for v in spec.let.values():
        if v.pack:
            add({v.name} | {m.id for m in walk(v.expr) if isinstance(m, Name)})
    for name, decl in spec.dims.items():
        if decl.rank is not None:
            for n in walk(decl.rank):
                if isinstance(n, Call) and n.fn == "len":
                    add({name} | {m.id for m in n.args if isinstance(m, Name)})

    def block(b: Block) -> None:
        for s in b:
            if isinstance(s, If):
                block(s.then)
                block(s.orelse)
            else:
                for e in (*s.target.index, s.value, *((s.guard,) if s.guard is not None else ())):
                    scan(e)

    block(spec.compute)
    return groups


def _static_ranks(
    spec: OpSpec, ranks: Mapping[str, int], attrs: dict[str, Any], lengths: Mapping[str, int]
) -> dict[str, int]:
    """Rank of each static pack of a call, and ints attributes of length 1 spread to the rank of their group."""
    out: dict[str, int] = {}
    for name, decl in spec.dims.items():
        if decl.kind != "static":
            continue
        if decl.rank is not None:
            r = _static_int(decl.rank, attrs, lengths)
            if r is not None:
                out[name] = r
                continue
        for inp, t in spec.inputs.items():
            uses = [d for d in t.dims if d.pack and isinstance(d.expr, Name) and d.expr.id == name]
            if not uses or inp not in ranks:
                continue
            fixed = sum(1 for d in t.dims if not d.pack)
            others = [d for d in t.dims if d.pack and d not in uses]
            if others:
                continue
            r = ranks[inp] - fixed
            if r < 0:
                raise DomainError(f"{spec.op}: input `{inp}` needs at least {fixed} axes, got {ranks[inp]}")
            if name in out and out[name] != r:
                raise DomainError(f"{spec.op}: `*{name}` has {out[name]} axes and {r} axes (input `{inp}`)")
            out[name] = r
    for group in _lane_groups(spec):
        want = {out[n] for n in group if n in out}
        lists = {n: len(attrs[n]) for n in group if n in spec.attrs and attrs.get(n) is not None}
        if not want and lists:
            want = {max(lists.values())}
        if len(want) > 1:
            raise DomainError(f"{spec.op}: {', '.join(sorted(group))} must have one rank, got {sorted(want)}")
        if not want:
            continue
        r = next(iter(want))
        for n in group:
            if n in spec.dims and spec.dims[n].kind == "static":
                out.setdefault(n, r)
        for n, have in lists.items():
            if have == 1 and r != 1:
                attrs[n] = attrs[n] * r
            elif have != r:
                raise DomainError(f"{spec.op}: attribute `{n}` needs {r} entries, got {have}")
    return out


def _static_int(e: Expr, attrs: Mapping[str, Any], lengths: Mapping[str, int]) -> int | None:
    match e:
        case Num(value=int() as v):
            return v
        case Call(fn="len", args=(Name(id=n),)) if n in lengths:
            return lengths[n]
        case Call(fn="len", args=(Name(id=n),)) if n in attrs:
            return len(attrs[n]) if attrs[n] is not None else None
        case Bin(op=op, left=a, right=b):
            x, y = _static_int(a, attrs, lengths), _static_int(b, attrs, lengths)
            if x is None or y is None:
                return None
            return {"+": x + y, "-": x - y, "*": x * y, "//": x // y if y else 0}.get(op)
    return None


def _weak_default(o: Operand) -> Operand:
    if not o.weak or o.dtype is DType.BOOL:
        return o
    return replace(o, dtype=DType.C64 if o.dtype.is_complex else DType.F32 if o.dtype.is_float else DType.I64)


def key_for_call(
    spec: OpSpec,
    inputs: Mapping[str, Operand | Sequence[Operand] | None],
    attrs: Mapping[str, Any] | None = None,
) -> Resolved:
    """The key of a call: dtypes and ranks of `inputs` (None: absent; a list for list inputs), attribute values.

    Raises DomainError when the spec does not admit the call (dtype, rank, a missing input, an attribute's value).
    """
    for name in inputs:
        if name not in spec.inputs:
            raise DomainError(f"{spec.op}: no input `{name}`", hint=f"it has {', '.join(spec.inputs)}")
    values = canonical_attrs(spec, attrs or {})
    operands: dict[str, Sequence[Operand]] = {}
    present: dict[str, bool] = {}
    lengths: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for name, t in spec.inputs.items():
        got = inputs.get(name)
        if t.is_list:
            if got is None or isinstance(got, Operand):
                raise DomainError(f"{spec.op}: input `{name}` is a list of tensors")
            operands[name] = list(got)
            lengths[name] = len(got)
            if not got:
                raise DomainError(f"{spec.op}: input `{name}` is an empty list")
            continue
        if got is None:
            if not t.optional:
                raise DomainError(f"{spec.op}: input `{name}` is required")
            operands[name] = []
        elif isinstance(got, Operand):
            operands[name] = [got]
            ranks[name] = got.rank
        else:
            raise DomainError(f"{spec.op}: input `{name}` is one tensor, got a list")
        if t.optional:
            present[name] = got is not None
        if isinstance(got, Operand):
            fixed = sum(1 for d in t.dims if not d.pack)
            free = any(d.pack for d in t.dims)
            if (got.rank < fixed and not t.expand) or (got.rank > fixed and not free):
                raise DomainError(
                    f"{spec.op}: input `{name}` has {'at least ' if free else ''}{fixed} axes, got {got.rank}"
                )
    # a Python scalar's own width never counts
    operands = {n: [_weak_default(o) for o in ops] for n, ops in operands.items()}
    types = _TypeSolver(spec, operands, values)
    solved = types.solve()
    casts: dict[str, DType] = {}
    for name, t in spec.inputs.items():
        want = solved[t.dtype] if t.dtype in solved else DType(t.dtype)
        for k, op in enumerate(operands[name]):
            if op.dtype is want:
                continue
            flat = f"{name}.{k}" if t.is_list else name
            if not (op.weak or t.dtype in types.castable):
                raise DomainError(
                    f"{spec.op}: input `{name}` is {want}, got {op.dtype}",
                    hint="cast it first: ow.ops.cast(x, dtype=…)",
                )
            casts[flat] = want
    pack_ranks = _static_ranks(spec, ranks, values, lengths)
    static: dict[str, StaticValue] = {}
    runtime: dict[str, Any] = {}
    for a in spec.attrs.values():
        v = values[a.name]
        if a.kind in ("dtype", "enum", "str") or a.static is True:
            static[a.name] = v
        elif isinstance(a.static, tuple):
            static[a.name] = v if v in a.static else "other"
            runtime[a.name] = v
        else:
            if (
                a.optional
                or a.default_expr is not None
                or (a.has_default and a.default is None and a.kind != "axes")
            ):
                present[a.name] = v is not None
            if a.kind in ("ints", "floats") and v is not None:
                lengths[a.name] = len(v)
            if v is not None or a.kind == "axes":
                runtime[a.name] = v
    key = BindKey(
        types=tuple(sorted((k, v.value) for k, v in solved.items())),
        static=tuple(sorted(static.items())),
        present=tuple(sorted(present.items())),
        lengths=tuple(sorted(lengths.items())),
        ranks=tuple(sorted(pack_ranks.items())),
    )
    return Resolved(key, casts, runtime)


# ================================================================================================ binding


@dataclass(frozen=True)
class _Ty:
    """Type of an expression while binding: its dtype, and whether it adapts to what stands beside it."""

    dtype: DType
    weak: bool = False


@dataclass
class _Env:
    """Names of one spec at one key."""

    spec_name: str
    file: str
    vars: dict[str, DType]
    static: dict[str, StaticValue]
    absent: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)  # inputs and attributes whose presence may be asked
    attrs: dict[str, Attr] = field(default_factory=dict)
    attr_exprs: dict[str, Expr] = field(
        default_factory=dict
    )  # absent attribute -> its default expression (unbound)
    attr_len: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    dims: dict[str, Dim] = field(default_factory=dict)  # bound dims, in dependency order
    list_dims: dict[str, int] = field(default_factory=dict)  # dim of a list input -> number of entries
    lanes: dict[str, tuple[Expr, ...]] = field(default_factory=dict)  # static pack -> its bound extents
    tensors: dict[str, Tensor] = field(default_factory=dict)


HALF = (DType.F16, DType.BF16)
_ARITH = ("+", "-", "*", "/", "//", "%", "**")
_CASTS = {d.value for d in DType}
#: dtypes of literals that were rounded as written; a weak literal is an f64, an i64 or a bool
_ROUNDING = (DType.F16, DType.BF16, DType.F32)


def running_extent(n: str, k: int) -> str:
    """The name of the sum of the extents `n` of a list's first k entries."""
    return f"{n}_before_{k}"


class _Binder:
    def __init__(self, env: _Env) -> None:
        self.env = env
        self.temps: dict[str, Tensor] = {}
        self.indices: dict[str, Axis] = {}
        self.lane_index: dict[str, tuple[Name, ...]] = {}
        self.order: list[str] = []

    # ------------------------------------------------------------------------------------------ errors
    def fail(self, at: Expr | Target | Assign | If | None, what: str, hint: str = "") -> NoReturn:
        span: Span | None = getattr(at, "span", None)
        raise BindError(f"{self.env.spec_name}: {what}", place=span.place if span else None, hint=hint)

    # ------------------------------------------------------------------------------------------ static values
    def static_value(self, x: Expr) -> Any:
        """The value of an expression known at bind, else `_UNKNOWN`."""
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
                return _UNKNOWN
            case Call(fn="rank", args=(Name(id=n),)) if n in env.lanes:
                return len(env.lanes[n])
            case Name(id=n) if n in env.vars:
                return env.vars[n].value
            case TupleLit(xs=xs):
                vals = [self.static_value(e) for e in xs]
                return _UNKNOWN if any(v is _UNKNOWN for v in vals) else tuple(vals)
            case Not(x=inner):
                v = self.static_value(inner)
                return _UNKNOWN if v is _UNKNOWN else not v
            case And(xs=xs):
                vals = [self.static_value(e) for e in xs]
                if any(v is not _UNKNOWN and not v for v in vals):
                    return False
                return _UNKNOWN if any(v is _UNKNOWN for v in vals) else True
            case Or(xs=xs):
                vals = [self.static_value(e) for e in xs]
                if any(v is not _UNKNOWN and bool(v) for v in vals):
                    return True
                return _UNKNOWN if any(v is _UNKNOWN for v in vals) else False
            case Cmp(op=op, left=a, right=b):
                u, v = self.static_value(a), self.static_value(b)
                if u is _UNKNOWN or v is _UNKNOWN:
                    return _UNKNOWN
                if op == "in":
                    return u in v
                if op in ("==", "!="):
                    return (u == v) if op == "==" else (u != v)
                try:
                    return {"<": u < v, "<=": u <= v, ">": u > v, ">=": u >= v}[op]
                except TypeError:
                    self.fail(x, f"cannot compare {u!r} {op} {v!r}")
            case Un(op="-", x=inner):
                v = self.static_value(inner)
                return _UNKNOWN if v is _UNKNOWN else -v
            case Select(test=t, then=a, other=b):
                c = self.static_value(t)
                return _UNKNOWN if c is _UNKNOWN else self.static_value(a if c else b)
        return _UNKNOWN

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
        v = self.static_value(x) if not isinstance(x, (Num, Str, Name, TupleLit)) else _UNKNOWN
        if isinstance(v, (bool, int, float)) and v is not _UNKNOWN:
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
                z = _fold(y)
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
            assert isinstance(over, Star)
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

    # ------------------------------------------------------------------------------------------ statements
    def unique_indices(self, st: Assign) -> Assign:
        """Each reduction of a statement gets index names of its own: `sum[j](a) / sum[j](b)` may name j twice."""
        plain = [e.x if isinstance(e, Star) else e for e in st.target.index]
        used = {e.id for e in plain if isinstance(e, (Name, Decl))}

        def go(x: Expr, names: dict[str, str]) -> Expr:
            match x:
                case Reduce(indices=ds, body=body):
                    inner = dict(names)
                    new: list[Decl] = []
                    for d in ds:
                        fresh, k = d.id, 0
                        while fresh in used:
                            k += 1
                            fresh = f"{d.id}__{k}"
                        used.add(fresh)
                        inner[d.id] = fresh
                        new.append(
                            replace(d, id=fresh, extent=go(d.extent, names) if d.extent is not None else None)
                        )
                    return replace(x, indices=tuple(new), body=go(body, inner))
                case Name(id=n) if n in names:
                    return replace(x, id=names[n])
                case Decl(id=n) if n in names:
                    return replace(x, id=names[n])
            return map_children(x, lambda c: go(c, names))

        return replace(st, value=go(st.value, {}), guard=go(st.guard, {}) if st.guard is not None else None)

    def statement(self, st: Assign) -> Statement:
        st = self.unique_indices(st)
        exprs = [st.value] + ([st.guard] if st.guard is not None else [])
        self.indices = {}
        self.order = []
        self.find_lane_use(exprs, st.target)
        self.pre_declare(st.target, exprs)
        tname = st.target.name
        if st.target.item is not None:
            k = self.expand(st.target.item)
            if not (isinstance(k, Num) and isinstance(k.value, int)):
                self.fail(st.target, "a list output is written entry by entry")
            tname = f"{tname}.{k.value}"
        index = tuple(self.expand_index(e) for e in self.spread(st.target.index))
        value = self.expand(st.value)
        guard = self.expand(st.guard) if st.guard is not None else None
        if isinstance(guard, Num) and guard.value:
            guard = None
        tensor = self.env.tensors.get(tname)
        if tensor is not None and tensor.role == "input":
            self.fail(st.target, f"`{tname}` is an input and cannot be written")
        free, reduced = self.collect(st, tname, tensor, index, value, guard)
        all_axes = {a.name: a for a in (*free, *(a for _, a in reduced))}
        self.indices = all_axes
        bound_index = tuple(self.index_expr(e) for e in index)
        bound_value, ty = self.typed(value)
        bound_guard = None
        if guard is not None:
            bound_guard, _ = self.as_bool(guard)
        if tensor is None:
            tensor = self.new_temp(st, tname, index, all_axes, ty)
        bound_value = self.store(st, tensor, st.mode, bound_value, ty)
        recur = self.recurrence(tname, index, bound_value, free)
        assign = Assign(
            Target(tname, bound_index, span=st.target.span), st.mode, bound_value, bound_guard, span=st.span
        )
        return Statement(assign, tuple(free), tuple(reduced), recur)

    def pre_declare(self, target: Target, exprs: Sequence[Expr]) -> None:
        """Names that the target or a reduction declares are indices even where a dim has the same name."""
        for e in target.index:
            if isinstance(e, Name) and (self.is_free_name(e.id)):
                self.indices[e.id] = Axis(e.id, Num(0))
            elif isinstance(e, Decl):
                self.indices[e.id] = Axis(e.id, Num(0), e.pack)
                if e.pack and e.extent is not None:
                    self.declare_lanes(e)
            elif isinstance(e, Star) and isinstance(e.x, Name):
                self.indices[e.x.id] = Axis(e.x.id, Num(0), True)
        for x in exprs:
            for n in walk(x):
                if isinstance(n, Reduce):
                    for d in n.indices:
                        self.indices[d.id] = Axis(d.id, Num(0), d.pack)
                elif isinstance(n, Decl):
                    self.indices[n.id] = Axis(n.id, Num(0), n.pack)
                    if n.pack and n.extent is not None:
                        self.declare_lanes(n)
                elif isinstance(n, Star) and isinstance(n.x, Name) and n.x.id not in self.env.lanes:
                    self.indices.setdefault(n.x.id, Axis(n.x.id, Num(0), True))

    def collect(
        self,
        st: Assign,
        tname: str,
        tensor: Tensor | None,
        index: tuple[Expr, ...],
        value: Expr,
        guard: Expr | None,
    ) -> tuple[list[Axis], list[tuple[str, Axis]]]:
        """Index variables with their extents: stated by `in`, else by plain uses, which must agree."""
        stated: dict[str, Expr] = {n: self.extent(e) for n, e in self.lane_extents.items()}
        found: dict[str, tuple[Expr, str]] = {}
        packs: set[str] = set()
        order: list[str] = []
        reduce_names: list[str] = []
        reduce_set: set[str] = set()
        pending_self = tensor is None and any(isinstance(n, Load) and n.tensor == tname for n in walk(value))

        def note(name: str, pack: bool) -> None:
            if name not in order and name not in reduce_set:
                order.append(name)
            if pack:
                packs.add(name)

        def state(d: Decl) -> None:
            if d.pack:
                packs.add(d.id)
            if d.extent is not None:
                stated[d.id] = self.pack_name(d) if d.pack else self.extent(d.extent)

        def use(e: Expr, dim: DimUse, where: str, at: Expr | Target) -> None:
            name = _index_name(e)
            if name is None or (isinstance(e, Name) and not self.is_index(name)):
                return
            pack = isinstance(e, Star) or (isinstance(e, Decl) and e.pack)
            if pack != dim.pack:
                self.fail(
                    at,
                    f"`{'*' if pack else ''}{name}` meets {'a pack' if dim.pack else 'one axis'} of `{where}`",
                )
            if name in found:
                have, other = found[name]
                if have != dim.extent:
                    self.unlike.add(name)
                if pending_self and other == tname:  # what another tensor tells weighs more
                    found[name] = (have, where)
                if have != dim.extent and name not in stated and not self.joined(have, dim.extent):
                    self.fail(
                        at,
                        f"index {name} ranges over {show(have)} (`{other}`) and {show(dim.extent)} (`{where}`)",
                        f"state it: `{name} in …`, or give both axes one name",
                    )
            else:
                found[name] = (dim.extent, where)

        def plain(t: Tensor, ix: tuple[Expr, ...], at: Expr | Target) -> None:
            dims = [d for d in t.dims if not d.keep]
            if len(ix) != len(dims):
                self.fail(
                    at,
                    f"`{t.name}` has {len(dims)} axes ({', '.join(show_dim_use(d) for d in dims)}), "
                    f"indexed with {len(ix)}",
                )
            for e, d in zip(ix, dims, strict=True):
                use(e, d, t.name, at)

        def names(e: Expr) -> None:
            match e:
                case Reduce(indices=ds, body=b):
                    for d in ds:
                        if d.id in reduce_set or d.id in order:
                            self.fail(
                                e,
                                f"index `{d.id}` is declared twice in this statement",
                                "every reduction of a statement names its own indices",
                            )
                        reduce_set.add(d.id)
                        reduce_names.append(d.id)
                        state(d)
                    names(b)
                case Decl():
                    note(e.id, e.pack)
                    state(e)
                case Star(x=Name(id=n)):
                    note(n, True)
                case Name(id=n):
                    if self.is_index(n):
                        note(n, n in packs)
                case Load(tensor=t, index=ix):
                    have = self.env.tensors.get(t)
                    if have is None and t == tname:
                        self.fail(
                            e,
                            f"`{t}` is read before its first statement gave it a shape",
                            "state its extents: `s[t in L, …]`",
                        )
                    if have is None:
                        self.unknown(e, t)
                    for i in ix:
                        names(i)
                    plain(have, ix, e)
                case _:
                    for c in children(e):
                        names(c)

        for e in index:
            names(e)
        if tensor is not None:
            plain(tensor, index, st.target)
        elif pending_self:
            self.predeclare_recurrence(st, tname, index, stated, found, value)
        names(value)
        if guard is not None:
            names(guard)
        if pending_self:  # its own shape is not known before this statement: what was stated has to stay so
            self.unlike |= {n for n in stated if n in found and found[n][1] == tname}
        free: list[Axis] = []
        for n in order:
            free.append(self.axis(st, n, n in packs, stated, found))
        reduced: list[tuple[str, Axis]] = []
        for n in reduce_names:
            reduced.append((n, self.axis(st, n, n in packs, stated, found)))
        return free, reduced

    def predeclare_recurrence(
        self,
        st: Assign,
        tname: str,
        index: tuple[Expr, ...],
        stated: dict[str, Expr],
        found: dict[str, tuple[Expr, str]],
        value: Expr,
    ) -> None:
        """A temporary that reads itself: its shape comes from the other loads of its first statement."""
        probe: dict[str, Expr] = dict(stated)
        for n in walk(value):
            if isinstance(n, Load) and n.tensor != tname and n.tensor in self.env.tensors:
                dims = [d for d in self.env.tensors[n.tensor].dims if not d.keep]
                for e, d in zip(n.index, dims, strict=False):
                    name = (
                        e.id
                        if isinstance(e, Name)
                        else e.x.id
                        if isinstance(e, Star) and isinstance(e.x, Name)
                        else None
                    )
                    if name is not None:
                        probe.setdefault(name, d.extent)
        dims_out: list[DimUse] = []
        for e in index:
            name = _index_name(e)
            if name is None or name not in probe:
                self.fail(
                    st.target, f"cannot see the extent of an index of `{tname}`", "state it: `s[t in L, …]`"
                )
            dims_out.append(DimUse(probe[name], isinstance(e, Star)))
        dtype = self.recurrence_dtype(tname, value)
        self.env.tensors[tname] = self.temps[tname] = Tensor(tname, dtype, tuple(dims_out), "temp")
        self.spots[tname] = ("",) * len(dims_out)

    def recurrence_dtype(self, tname: str, value: Expr) -> DType:
        """The dtype of a temporary that reads itself: that of a cast or load among its terms, else a weak number's."""
        real = False

        def go(x: Expr) -> DType | None:
            nonlocal real
            match x:
                case Call(fn=fn) if fn in self.env.vars or fn in _CASTS:
                    return self.env.vars.get(fn) or DType(fn)
                case Load(tensor=t):
                    have = self.env.tensors.get(t)
                    return have.dtype if have is not None and t != tname else None
                case Num(value=v):
                    real |= isinstance(v, float)
                    return None
                case Select(then=a, other=b):
                    return go(a) or go(b)
                case Cmp() | And() | Or() | Not():
                    return None
            return next((d for c in children(x) if (d := go(c)) is not None), None)

        return go(value) or (DType.F64 if real else DType.I64)

    def joined(self, a: Expr, b: Expr) -> bool:
        return show(a) == show(b)

    def axis(
        self, st: Assign, name: str, pack: bool, stated: dict[str, Expr], found: dict[str, tuple[Expr, str]]
    ) -> Axis:
        if name in stated:
            plain = name in found and found[name][0] == stated[name] and name not in self.unlike
            return Axis(name, stated[name], pack, not plain)
        if name in found:
            return Axis(name, found[name][0], pack)
        self.fail(
            st,
            f"index `{name}` has no extent: no tensor is indexed with it alone",
            f"state it: `{name} in N`; or is `{name}` a misspelt name?",
        )

    def is_index(self, n: str) -> bool:
        return n in self.indices or self.is_free_name(n)

    def pack_name(self, d: Decl) -> Expr:
        if isinstance(d.extent, Name) and d.extent.id in self.env.dims and self.env.dims[d.extent.id].pack:
            return Name(d.extent.id, kind="pack", dtype=DType.I64)
        self.fail(d, f"`*{d.id} in …` takes the name of a pack")

    def extent(self, e: Expr) -> Expr:
        """A bound integer expression over dims and attributes."""
        x, ty = self.typed(self.expand(e))
        if ty.dtype is not DType.I64 and not ty.dtype.is_integer:
            self.fail(e, f"an extent is an integer, `{show(e)}` is {ty.dtype}")
        return _fold(x)

    def new_temp(
        self, st: Assign, tname: str, index: tuple[Expr, ...], axes: dict[str, Axis], ty: _Ty
    ) -> Tensor:
        dims: list[DimUse] = []
        for e in index:
            name = _index_name(e)
            if name is None or name not in axes:
                self.fail(
                    st.target,
                    f"the first statement of temporary `{tname}` states its shape with plain indices",
                    "give it a base: `t[i in N] = 0`",
                )
            dims.append(DimUse(axes[name].extent, axes[name].pack))
        t = Tensor(tname, ty.dtype, tuple(dims), "temp")
        self.temps[tname] = t
        self.env.tensors[tname] = t
        self.spots[tname] = ("",) * len(dims)
        return t

    def store(self, st: Assign, t: Tensor, mode: str, value: Expr, ty: _Ty) -> Expr:
        if mode in ("any", "all") and t.dtype is not DType.BOOL:
            self.fail(st, f"mode {mode} writes bool, `{t.name}` is {t.dtype}")
        if ty.dtype is t.dtype:
            return value
        if ty.weak and self.fits(ty.dtype, t.dtype):
            return self.cast(value, t.dtype)
        if mode in ("+=", "*=") and ty.dtype is accum(t.dtype):
            return value
        if ty.dtype.is_integer and t.dtype.is_integer and promote(ty.dtype, t.dtype) is t.dtype:
            return self.cast(value, t.dtype)
        names = [v for v, d in self.env.vars.items() if d is t.dtype]
        self.fail(
            st,
            f"`{t.name}` is {t.dtype}, the value is {ty.dtype}",
            f"round it where you mean to: `{names[0] if names else t.dtype}(…)`",
        )

    def recurrence(self, tname: str, index: tuple[Expr, ...], value: Expr, free: list[Axis]) -> str | None:
        for n in walk(value):
            if isinstance(n, Load) and n.tensor == tname:
                for e, have in zip(index, n.index, strict=True):
                    if isinstance(e, (Name, Decl)) and not (isinstance(have, Name) and have.id == e.id):
                        return e.id
                self.fail(
                    n,
                    f"`{tname}` reads itself at the place it writes",
                    "a recurrence reads at an earlier index: t - 1",
                )
        return None

    def unknown(self, at: Expr, name: str) -> NoReturn:
        if name in self.env.absent:
            self.fail(
                at,
                f"`{name}` is absent in this call and read all the same",
                f"guard it: `… if {name} is not None else …`",
            )
        self.fail(at, f"no tensor `{name}`", did_you_mean(name, self.env.tensors, what="tensors"))

    def index_expr(self, e: Expr) -> Expr:
        """A bound index entry: `Star(Name(packindex))`, a `Name(index)`, or an i64 expression."""
        match e:
            case Star(x=Name(id=n)):
                return Star(
                    Name(n, kind="packindex", dtype=DType.I64, span=e.span), dtype=DType.I64, span=e.span
                )
            case Decl(id=n, pack=True):
                return Star(
                    Name(n, kind="packindex", dtype=DType.I64, span=e.span), dtype=DType.I64, span=e.span
                )
            case Decl(id=n):
                return Name(n, kind="index", dtype=DType.I64, span=e.span)
        x, ty = self.typed(e)
        if ty.dtype is DType.BOOL or ty.dtype.is_complex:
            self.fail(e, f"an index is an integer, `{show(e)}` is {ty.dtype}")
        return x if ty.dtype is DType.I64 else self.cast(x, DType.I64)

    # ------------------------------------------------------------------------------------------ typing
    def cast(self, x: Expr, to: DType) -> Expr:
        if x.dtype is to:
            return x
        if isinstance(x, Num):
            if not to.is_inexact and isinstance(x.value, float) and math.isinf(x.value):
                # ±inf where numbers are finite: the type's own extreme
                extreme = int(to.max if x.value > 0 else to.min)
                return Num(bool(extreme) if to is DType.BOOL else extreme, dtype=to, span=x.span)
            # Rule 9: `A(T(0.1))` rounds where it says T; only a number that T holds is the same number in A.
            if x.dtype in _ROUNDING and math.isfinite(x.value) and not exact_in(x.value, x.dtype):
                return Call(to.value, (x,), dtype=to, span=x.span)
            return Num(x.value, dtype=to, span=x.span)
        if isinstance(x, Select) and not to.is_inexact and any(_infinite(e) for e in (x.then, x.other)):
            return replace(x, then=self.cast(x.then, to), other=self.cast(x.other, to), dtype=to)
        return Call(to.value, (x,), dtype=to, span=x.span)

    @staticmethod
    def fits(weak: DType, strong: DType) -> bool:
        """Whether a weak operand may become this strong dtype."""
        if weak is DType.BOOL:
            return True
        if weak.is_integer:
            return True
        return strong.is_inexact

    def unify(self, at: Expr, parts: list[tuple[Expr, _Ty]]) -> tuple[list[Expr], _Ty]:
        strong = [(x, t) for x, t in parts if not t.weak]
        if not strong:
            best = parts[0][1].dtype
            for _, t in parts[1:]:
                best = promote(best, t.dtype) if best is not t.dtype else best
            ty = _Ty(best, True)
        else:
            best = strong[0][1].dtype
            for x, t in strong[1:]:
                if t.dtype is best:
                    continue
                if t.dtype.is_integer and best.is_integer:
                    best = promote(best, t.dtype)
                else:
                    self.fail(
                        at,
                        f"`{show(strong[0][0])}` is {best} and `{show(x)}` is {t.dtype}",
                        "cast one of them",
                    )
            for x, t in parts:
                if t.weak and not self.fits(t.dtype, best):
                    if isinstance(x, Num) and isinstance(x.value, float) and math.isinf(x.value):
                        continue
                    self.fail(
                        at,
                        f"`{show(x)}` is a float beside `{show(strong[0][0])}`, which is {best}",
                        "cast one of them",
                    )
            ty = _Ty(best)
        return [self.cast(x, ty.dtype) for x, _ in parts], ty

    def as_bool(self, x: Expr) -> tuple[Expr, _Ty]:
        y, ty = self.typed(x)
        if ty.dtype is not DType.BOOL:
            self.fail(x, f"a condition is bool, `{show(x)}` is {ty.dtype}", "compare it: `… != 0`")
        return y, ty

    def no_half(self, at: Expr, ty: _Ty, what: str) -> None:
        if ty.dtype in HALF:
            acc = [v for v, d in self.env.vars.items() if d is DType.F32]
            self.fail(
                at,
                f"{what} on {ty.dtype} would round at every step",
                f"widen first: `{acc[0] if acc else 'f32'}(…)`",
            )

    def typed(self, x: Expr) -> tuple[Expr, _Ty]:
        y, ty = self._typed(x)
        if y.dtype is not ty.dtype:
            y = replace(y, dtype=ty.dtype)
        return y, ty

    def _typed(self, x: Expr) -> tuple[Expr, _Ty]:
        env = self.env
        match x:
            case Decl(id=n, pack=False):  # `min(i in N, M - 1)`: what is stated was noted before
                return self._typed(Name(n, span=x.span))
            case Num(value=v):
                if x.dtype is not None:
                    return x, _Ty(x.dtype)
                d = DType.BOOL if isinstance(v, bool) else DType.I64 if isinstance(v, int) else DType.F64
                return replace(x, dtype=d), _Ty(d, d is not DType.BOOL)
            case Name(id=n):
                if n in self.indices and not self.indices[n].pack:
                    return Name(n, kind="index", dtype=DType.I64, span=x.span), _Ty(DType.I64, True)
                if n in env.dims and not env.dims[n].pack:
                    return Name(n, kind="dim", dtype=DType.I64, span=x.span), _Ty(DType.I64, True)
                if n in env.attrs:
                    a = env.attrs[n]
                    if a.kind in ("axes", "ints", "floats"):
                        self.fail(
                            x, f"`{n}` is a list", "take its lanes in a pack expression, or an entry `{n}[0]`"
                        )
                    return Name(n, kind="attr", dtype=a.dtype, span=x.span), _Ty(a.dtype, True)
                if n == "pi":
                    return Num(math.pi, dtype=DType.F64, span=x.span), _Ty(DType.F64, True)
                if n in env.tensors:
                    self.fail(x, f"`{n}` is a tensor", f"index it: `{n}[…]` (`{n}[()]` when it has no axes)")
                if n in env.dims or n in self.indices:
                    self.fail(
                        x,
                        f"`{n}` is a pack of unknown rank",
                        "use it whole: `*b`, linear(*b), prod(B), rank(B)",
                    )
                self.fail(x, f"unknown name `{n}`", self.near(n))
            case Item(id=n, lane=k):
                a = env.attrs[n]
                d = DType.F64 if a.kind == "floats" else DType.I64
                return Item(n, k, "attr", dtype=d, span=x.span), _Ty(d, True)
            case Load(tensor=t, index=ix):
                have = env.tensors.get(t)
                if have is None:
                    self.unknown(x, t)
                return Load(t, tuple(self.index_expr(e) for e in ix), dtype=have.dtype, span=x.span), _Ty(
                    have.dtype
                )
            case Call():
                return self.call(x)
            case Un(op="-", x=a):
                y, ty = self.typed(a)
                if ty.dtype is DType.BOOL:
                    self.fail(x, "`-` of a bool")
                return Un("-", y, span=x.span), ty
            case Un(op="~", x=a):
                y, ty = self.typed(a)
                if ty.dtype.is_inexact:
                    self.fail(x, f"`~` of {ty.dtype}")
                if ty.dtype is DType.BOOL:
                    return Not(y, dtype=DType.BOOL, span=x.span), ty
                return Un("~", y, span=x.span), ty
            case Bin(op=op, left=a, right=b):
                return self.binary(x, op, a, b)
            case Cmp(op=op, left=a, right=b):
                (l, r), ty = self.unify(x, [self.typed(a), self.typed(b)])
                if ty.dtype.is_complex and op not in ("==", "!="):
                    self.fail(x, "complex numbers have no order")
                return Cmp(op, l, r, span=x.span), _Ty(DType.BOOL)
            case And(xs=xs):
                return And(tuple(self.as_bool(e)[0] for e in xs), span=x.span), _Ty(DType.BOOL)
            case Or(xs=xs):
                return Or(tuple(self.as_bool(e)[0] for e in xs), span=x.span), _Ty(DType.BOOL)
            case Not(x=a):
                return Not(self.as_bool(a)[0], span=x.span), _Ty(DType.BOOL)
            case Select(test=t, then=a, other=b):
                test, _ = self.as_bool(t)
                (l, r), ty = self.unify(x, [self.typed(a), self.typed(b)])
                return Select(test, l, r, span=x.span), ty
            case Fold(kind="prod", body=Name(id=n)):
                return Fold("prod", Name(n, kind="pack", dtype=DType.I64), span=x.span), _Ty(DType.I64, True)
            case Reduce(kind=kind, indices=ds, body=b):
                y, ty = self.typed(b)
                if kind in ("any", "all"):
                    if ty.dtype is not DType.BOOL:
                        self.fail(x, f"`{kind}` reduces bools, got {ty.dtype}")
                elif kind in ("sum", "prod"):
                    self.no_half(x, ty, f"`{kind}`")
                    if ty.dtype is DType.BOOL:
                        self.fail(x, f"`{kind}` of bools", "write `1 if … else 0`")
                elif ty.dtype.is_complex:
                    self.fail(x, "complex numbers have no order")
                out = DType.I64 if kind in ("argmax", "argmin") else ty.dtype
                decls = tuple(
                    Decl(
                        d.id,
                        d.pack,
                        self.indices[d.id].extent if d.extent is not None else None,
                        dtype=DType.I64,
                        span=d.span,
                    )
                    for d in ds
                )
                return Reduce(kind, decls, y, span=x.span), _Ty(out)
            case Str():
                self.fail(x, "a string is only compared with a static attribute")
        self.fail(x, f"`{show(x)}` does not stand here")

    def near(self, n: str) -> str:
        return did_you_mean(n, [*self.env.dims, *self.env.attrs, *self.env.tensors, *self.indices])

    def binary(self, x: Expr, op: str, a: Expr, b: Expr) -> tuple[Expr, _Ty]:
        left, right = self.typed(a), self.typed(b)
        if op in ("&", "|", "^", "<<", ">>"):
            (l, r), ty = self.unify(x, [left, right])
            if ty.dtype.is_inexact:
                self.fail(x, f"`{op}` of {ty.dtype}")
            if ty.dtype is DType.BOOL:
                if op == "&":
                    return And((l, r), span=x.span), ty
                if op == "|":
                    return Or((l, r), span=x.span), ty
                if op == "^":
                    return Cmp("!=", l, r, span=x.span), ty
                self.fail(x, f"`{op}` of bools")
            return Bin(op, l, r, span=x.span), ty
        if op == "/":
            if left[1].weak and right[1].weak:
                l, r = self.cast(left[0], DType.F64), self.cast(right[0], DType.F64)
                return Bin("/", l, r, span=x.span), _Ty(DType.F64, True)
            (l, r), ty = self.unify(x, [left, right])
            if not ty.dtype.is_inexact:
                self.fail(x, f"`/` of {ty.dtype}", "use // for integers, or cast to a float first")
            self.no_half(x, ty, "division")
            return Bin("/", l, r, span=x.span), ty
        if (
            op == "**"
            and right[1].weak
            and isinstance(right[0], Num)
            and isinstance(right[0].value, int)
            and not left[1].weak
        ):
            self.no_half(x, left[1], "`**`")
            return Bin("**", left[0], right[0], span=x.span), left[1]
        if (
            op == "**"
            and left[1].weak
            and right[1].weak
            and not (
                left[1].dtype is DType.I64
                and isinstance(right[0], Num)
                and isinstance(right[0].value, int)
                and right[0].value >= 0
            )
        ):
            return Bin("**", self.cast(left[0], DType.F64), self.cast(right[0], DType.F64), span=x.span), _Ty(
                DType.F64, True
            )
        (l, r), ty = self.unify(x, [left, right])
        if ty.dtype is DType.BOOL:
            self.fail(x, f"`{op}` of bools", "cast to an integer, or use & | ^")
        self.no_half(x, ty, f"`{op}`")
        if op in ("//", "%") and ty.dtype.is_complex:
            self.fail(x, f"`{op}` of complex numbers")
        return Bin(op, l, r, span=x.span), ty

    def call(self, x: Call) -> tuple[Expr, _Ty]:
        fn, args = x.fn, x.args
        env = self.env
        to = env.vars.get(fn) or (DType(fn) if fn in _CASTS else None)
        if to is not None:
            if len(args) != 1:
                self.fail(x, f"cast `{fn}(…)` takes one value")
            y, _ = self.typed(args[0])
            return (self.cast(y, to) if y.dtype is not to else y), _Ty(to)
        if fn not in FUNCTIONS:
            self.fail(x, f"no function `{fn}`", did_you_mean(fn, [*FUNCTIONS, *env.vars]))
        lo, hi = FUNCTIONS[fn].arity
        if not lo <= len(args) <= hi:
            self.fail(x, f"`{fn}` takes {lo if lo == hi else f'{lo} to {hi}'} arguments, got {len(args)}")
        if fn == "linear":
            star = args[0]
            assert isinstance(star, Star) and isinstance(star.x, Name)
            if star.x.id not in self.indices:
                self.fail(x, f"`{star.x.id}` is not an index here")
            return Call(
                fn, (Star(Name(star.x.id, kind="packindex", dtype=DType.I64), dtype=DType.I64),), span=x.span
            ), _Ty(DType.I64, True)
        if fn == "lane":
            b, k = args
            if not isinstance(b, Name) or b.id not in self.indices:
                self.fail(x, "`lane(b, d)` takes a pack index")
            kk, ty = self.typed(k)
            return Call(fn, (Name(b.id, kind="packindex", dtype=DType.I64), kk), span=x.span), _Ty(
                DType.I64, True
            )
        if fn == "rank":
            b = args[0]
            if not isinstance(b, Name) or b.id not in env.dims:
                self.fail(x, "`rank(B)` takes a pack")
            return Call(fn, (Name(b.id, kind="pack", dtype=DType.I64),), span=x.span), _Ty(DType.I64, True)
        parts = [self.typed(a) for a in args]
        if not FUNCTIONS[fn].complex and any(t.dtype.is_complex for _, t in parts):
            self.fail(x, f"`{fn}` of complex numbers", "take `real(…)` and `imag(…)` apart")
        if fn == "philox":
            return Call(fn, tuple(self.cast(p, DType.I64) for p, _ in parts), span=x.span), _Ty(DType.I64)
        if fn == "uniform":
            return Call(fn, (self.cast(parts[0][0], DType.I64),), span=x.span), _Ty(DType.F32)
        if fn in ("max", "min", "fmax", "fmin", "same", "fmod", "atan2", "pow", "complex"):
            xs, ty = self.unify(x, parts)
            if fn == "same":
                return Call(fn, tuple(xs), span=x.span), _Ty(DType.BOOL)
            if fn == "complex":
                return Call(fn, tuple(xs), span=x.span), _Ty(complex_of(ty.dtype))
            if fn in ("fmod", "atan2", "pow"):
                self.no_half(x, ty, f"`{fn}`")
            if fn in ("fmod", "pow") and ty.dtype is DType.BOOL:
                self.fail(x, f"`{fn}` of bools", "cast to an integer first: `A(…)`")
            if fn in ("atan2",) and not ty.dtype.is_inexact:
                xs, ty = [self.cast(p, DType.F64) for p in xs], _Ty(DType.F64, ty.weak)
            return Call(fn, tuple(xs), span=x.span), ty
        if fn in ("cdiv", "tdiv", "trem", "gcd"):
            xs, ty = self.unify(x, parts)
            if ty.dtype is DType.BOOL:
                self.fail(x, f"`{fn}` of bools", "cast to an integer first: `A(…)`")
            if ty.dtype.is_float and fn not in ("cdiv", "gcd"):
                # of floats they are other functions: trunc(a / b) and fmod
                self.no_half(x, ty, f"`{fn}`")
                if fn == "trem":
                    return Call("fmod", tuple(xs), span=x.span), ty
                return Call("trunc", (Bin("/", xs[0], xs[1], dtype=ty.dtype, span=x.span),), span=x.span), ty
            if ty.dtype.is_inexact:
                self.fail(x, f"`{fn}` divides integers, got {ty.dtype}")
            return Call(fn, tuple(xs), span=x.span), ty
        y, ty = parts[0]
        if fn in ("isnan", "isinf", "isfinite", "signbit"):
            return Call(fn, (y,), span=x.span), _Ty(DType.BOOL)
        if fn == "order":
            return Call(fn, (y,), span=x.span), _Ty(DType.I64)
        if fn in ("real", "imag"):
            return Call(fn, (y,), span=x.span), _Ty(real_of(ty.dtype))
        if fn == "conj":
            return (Call(fn, (y,), span=x.span) if ty.dtype.is_complex else y), ty
        if fn == "abs":
            if ty.dtype is DType.BOOL:
                return y, ty
            return Call(fn, (y,), span=x.span), _Ty(real_of(ty.dtype), ty.weak)
        if fn in ("sign", "floor", "ceil", "trunc", "round"):
            if ty.dtype is DType.BOOL or (fn != "sign" and not ty.dtype.is_inexact):
                return y, ty
            return Call(fn, (y,), span=x.span), ty
        if not ty.dtype.is_inexact:
            if not ty.weak:
                self.fail(x, f"`{fn}` of {ty.dtype}", "cast to a float first: `A(…)`")
            y, ty = self.cast(y, DType.F64), _Ty(DType.F64, True)
        self.no_half(x, ty, f"`{fn}`")
        return Call(fn, (y,), span=x.span), ty


def _infinite(x: Expr) -> bool:
    """Whether a literal infinity stands here, or may be chosen."""
    if isinstance(x, Select):
        return _infinite(x.then) or _infinite(x.other)
    return isinstance(x, Num) and isinstance(x.value, float) and math.isinf(x.value)


_UNKNOWN: Any = object()


def _is_bool(x: Expr, value: bool) -> bool:
    return isinstance(x, Num) and isinstance(x.value, bool) and x.value is value


def _fold(x: Expr) -> Expr:
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


def _index_name(e: Expr) -> str | None:
    """The index that an entry of a load or target is, when it is one alone: `i`, `i in N`, `*b`."""
    match e:
        case Name(id=n) | Decl(id=n) | Star(x=Name(id=n)):
            return n
    return None


# ------------------------------------------------------------------------------------------------ a spec's environment


class _SpecBinder:
    def __init__(self, spec: OpSpec, key: BindKey) -> None:
        self.spec, self.key = spec, key
        self.present = dict(key.present)
        self.lengths = dict(key.lengths)
        self.ranks = dict(key.ranks)
        self.env = _Env(spec.op, spec.file, {k: DType(v) for k, v in key.types}, dict(key.static))
        self.b = _Binder(self.env)
        self.b.spots = {}
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def dtype(self, name: str) -> DType:
        return self.env.vars[name] if name in self.env.vars else DType(name)

    def attrs(self) -> None:
        env = self.env
        for a in self.spec.attrs.values():
            env.known.add(a.name)
            if self.present.get(a.name, True) is False:
                if a.default_expr is not None:
                    env.attr_exprs[a.name] = a.default_expr
                else:
                    env.absent.add(a.name)
                continue
            if a.name in env.static and env.static[a.name] != "other":
                continue
            if a.kind in ("ints", "floats"):
                env.attr_len[a.name] = self.lengths.get(a.name, 0)
            d = {"float": DType.F64, "floats": DType.F64, "bool": DType.BOOL}.get(a.kind, DType.I64)
            if a.kind == "scalar":
                d = DType.F64 if self.scalar_is_float(a.name) else DType.I64
            env.attrs[a.name] = Attr(
                a.name, a.kind, d, a.default if a.has_default else None, a.empty == "all"
            )

    def scalar_is_float(self, name: str) -> bool:
        """A scalar attribute is read as f64 when any inexact type is about, else exactly, as i64."""
        return any(d.is_inexact for d in self.env.vars.values()) or not self.env.vars

    def shape(
        self, name: str, t: TensorType, entry: int | None, flat: str
    ) -> tuple[list[DimUse], tuple[str, ...]]:
        """DimUses of one tensor; and per index entry of the *spec* the static pack it is (for lanes), else ''."""
        env = self.env
        uses: list[DimUse] = []
        spots: list[str] = []
        for d in t.dims:
            if d.keep_if is not None:
                if d.keep_if in env.static and not env.static[d.keep_if]:
                    continue
                if d.keep_if not in env.static:
                    self.b.fail(d.expr, f"`{d.keep_if}` must be a static attribute to choose axes")
                uses.append(DimUse(Num(1, dtype=DType.I64), False, d.at, True))
                continue
            if d.pack:
                self.pack_use(t, d, flat, uses, spots)
                continue
            e = d.expr
            if (
                isinstance(e, Name)
                and entry is not None
                and e.id not in env.dims
                and self.list_dim(e.id, name)
            ):
                env.list_dims[e.id] = self.lengths[name]
                e = Name(f"{e.id}_{entry}", span=e.span)
            if (
                isinstance(e, Name)
                and e.id not in env.attrs
                and e.id not in env.static
                and e.id not in env.attr_exprs
            ):
                self.source(e.id, flat, len(uses), t)
                uses.append(DimUse(Name(e.id, kind="dim", dtype=DType.I64), False, d.at))
            else:
                uses.append(DimUse(self.b.extent(e), False, d.at))
            spots.append("")
        return uses, tuple(spots)

    def list_dim(self, dim: str, name: str) -> bool:
        """Whether entries of list input `name` may differ in `dim`: something reads it by entry, by start or total."""
        if dim in self.env.list_dims:
            return True
        text = self.spec.compute_text + " ".join(
            show(d.expr) for o in self.spec.outputs.values() for d in o.dims
        )
        return (
            f"start({dim}" in text.replace(" ", "")
            or f"total({dim})" in text.replace(" ", "")
            or f"{dim}[" in text
        )

    def pack_use(self, t: TensorType, d: DimText, flat: str, uses: list[DimUse], spots: list[str]) -> None:
        env = self.env
        e = d.expr
        role_in = flat in self.input_names
        if (
            isinstance(e, Bin)
            and e.op == "**"
            and isinstance(e.right, Num)
            and e.right.value == 0
            and isinstance(e.left, Name)
        ):
            one = DimUse(Num(1, dtype=DType.I64), False, d.at, True)
            pack = DimUse(Name(e.left.id, kind="pack", dtype=DType.I64), True, d.at, True)
            uses += [one] * self.ranks[e.left.id] if e.left.id in self.ranks else [pack]
            return
        if isinstance(e, Name) and e.id in self.ranks and role_in:
            lanes = []
            for k in range(self.ranks[e.id]):
                lane = f"{e.id}_{k}"
                self.source(lane, flat, len(uses), t)
                uses.append(DimUse(Name(lane, kind="dim", dtype=DType.I64), False, d.at))
                lanes.append(Name(lane, kind="dim", dtype=DType.I64))
            env.lanes[e.id] = tuple(lanes)
            spots.append(e.id)
            return
        n = self.b.lane_count(e)
        if n is not None:
            for k in range(n):
                uses.append(DimUse(self.b.extent(self.b.lane(e, k)), False, d.at))
            spots.append(e.id if isinstance(e, Name) and e.id in env.lanes else f"#{n}")
            return
        if not isinstance(e, Name):
            self.b.fail(e, f"`*({show(e)})` needs a static pack")
        decl = self.spec.dims.get(e.id)
        if e.id not in env.dims:
            rank = decl.rank if decl is not None else None
            bound_rank: Expr | None = None
            if rank is not None:
                bound_rank = self.rank_expr(rank)
            env.dims[e.id] = Dim(e.id, True, decl is not None and decl.kind == "broadcast", bound_rank)
        if role_in:
            dim = env.dims[e.id]
            env.dims[e.id] = replace(dim, sources=(*dim.sources, (flat, len(uses))))
        elif not env.dims[e.id].sources and env.dims[e.id].expr is None:
            self.b.fail(e, f"nothing says what `*{e.id}` is", "an output's pack comes from an input")
        uses.append(DimUse(Name(e.id, kind="pack", dtype=DType.I64), True, d.at))
        spots.append("")

    def rank_expr(self, rank: Expr) -> Expr:
        x, _ = self.b.typed(self.b.expand(rank))
        return x

    def source(self, dim: str, flat: str, pos: int, t: TensorType) -> None:
        env = self.env
        role_in = flat in self.input_names
        if t.expand and role_in:
            if dim not in env.dims:
                env.dims[dim] = Dim(dim)  # fixed by an input read later
            return
        if role_in:
            have = env.dims.get(dim, Dim(dim))
            if have.expr is None:
                env.dims[dim] = replace(have, sources=(*have.sources, (flat, pos)))
            else:
                # a derived extent used on an input: checked, not solved
                return
        elif dim not in env.dims:
            self.b.fail(
                t.dims[0].expr if t.dims else None,
                f"nothing says what extent `{dim}` is",
                "an output's extents come from inputs, attributes, `let` or `sizes`",
            )

    input_names: set[str]

    def tensors(self, group: Mapping[str, TensorType], role: str) -> list[Tensor]:
        out: list[Tensor] = []
        for name, t in group.items():
            if role == "input" and self.present.get(name, True) is False:
                self.env.absent.add(name)
                continue
            if t.is_list:
                n = self.lengths.get(name, 0)
                self.env.lists[name] = n
                for k in range(n):
                    flat = f"{name}.{k}"
                    self.input_names.add(flat)
                    uses, spots = self.shape(name, t, k, flat)
                    out.append(Tensor(flat, self.dtype(t.dtype), tuple(uses), role, name, t.aux))
                    self.b.spots[flat] = spots
                continue
            if role == "input":
                self.input_names.add(name)
            uses, spots = self.shape(name, t, None, name)
            out.append(Tensor(name, self.dtype(t.dtype), tuple(uses), role, None, t.aux, t.expand))
            self.b.spots[name] = spots
        for tt in out:
            self.env.tensors[tt.name] = tt
        return out

    def running_extents(self) -> None:
        """The sum of a list's extents up to each entry, as extents of their own: cat of n tensors stays linear in n."""
        said = self.spec.compute_text + " ".join(
            show(e)
            for e in (
                *(d.expr for o in self.spec.outputs.values() for d in o.dims),
                *(v.expr for v in self.spec.let.values()),
            )
        )
        if "start(" not in said and "total(" not in said:
            return
        for n, count in self.env.list_dims.items():
            for k in range(2, count + 1):
                more = Bin("+", self.b.before(n, k - 1), Name(f"{n}_{k - 1}"))
                name = running_extent(n, k)
                self.env.dims[name] = Dim(name, expr=self.b.extent(more))

    def lets(self) -> None:
        env = self.env
        self.running_extents()
        for v in self.spec.let.values():
            if v.pack:
                n = self.b.lane_count(v.expr)
                if n is None:
                    self.b.fail(v.expr, f"let *{v.name} needs a static pack on the right")
                lanes = []
                for k in range(n):
                    lane = f"{v.name}_{k}"
                    env.dims[lane] = Dim(lane, expr=self.b.extent(self.b.lane(v.expr, k)))
                    lanes.append(Name(lane, kind="dim", dtype=DType.I64))
                env.lanes[v.name] = tuple(lanes)
            else:
                env.dims[v.name] = Dim(v.name, expr=self.b.extent(v.expr))
        for name, e in self.spec.sizes.items():
            st = self.rule_statement(Assign(Target("#size", ()), "=", e, span=e.span))
            env.dims[name] = Dim(name, expr=st.assign.value, data=True)

    def rules(self) -> tuple[Rule, ...]:
        out: list[Rule] = []
        for r in self.spec.require:
            probe = Assign(Target("#rule", ()), "=", r.expr, span=r.expr.span)
            names = {n.tensor for n in walk(r.expr) if isinstance(n, Load)}
            if names & self.env.absent:
                continue
            st = self.rule_statement(probe)
            data = any(isinstance(n, Load) for n in walk(st.assign.value))
            value = st.assign.value
            if isinstance(value, Num):
                if not value.value:
                    raise DomainError(f"{self.spec.op}: requires {r.text}")
                continue
            if value.dtype is not DType.BOOL:
                self.b.fail(r.expr, f"`require` is a condition, `{r.text}` is {value.dtype}")
            out.append(Rule(r.text, value, data, st.axes, r.span.line if r.span else 0))
        return tuple(out)

    def rule_statement(self, probe: Assign) -> Statement:
        """Bind an expression whose free indices are all its own (a rule over data): no target shape."""
        st = self.b.statement(probe)
        del self.env.tensors[probe.target.name], self.b.temps[probe.target.name]
        return st

    def statements(self, block: Block) -> list[Statement]:
        out: list[Statement] = []
        errors: list[BindError] = []
        for s in flatten(self.b, block):
            try:
                for one in self.over_lists(s):
                    out.append(self.b.statement(one))
            except BindError as e:
                errors.append(e)
                if s.target.name not in self.env.tensors:
                    break  # later statements would only complain about the missing temporary
        if errors:
            errors[0].others = tuple(errors[1:])
            raise errors[0]
        return out

    def over_lists(self, st: Assign) -> list[Assign]:
        """A statement that reads `xs[k]` with a free `k` stands for one statement per entry."""
        var: str | None = None
        n = 0
        items = [
            (x.tensor, x.item)
            for e in (st.value, *((st.guard,) if st.guard else ()), *st.target.index)
            for x in walk(e)
            if isinstance(x, Load) and x.item is not None
        ]
        if st.target.item is not None:
            items.append((st.target.name, st.target.item))
        for name, item in items:
            if isinstance(item, Name) and item.id not in self.env.attrs and name in self.env.lists:
                var, n = item.id, self.env.lists[name]
        if var is None:
            return [st]
        out: list[Assign] = []
        for k in range(n):
            names: dict[str, Expr] = {var: Num(k)}
            target = Target(
                st.target.name,
                tuple(substitute(e, names) for e in st.target.index),
                substitute(st.target.item, names) if st.target.item is not None else None,
                span=st.target.span,
            )
            out.append(
                Assign(
                    target,
                    st.mode,
                    substitute(st.value, names),
                    substitute(st.guard, names) if st.guard is not None else None,
                    span=st.span,
                )
            )
        return out

    def run(self, block: Block, outputs: Mapping[str, TensorType] | None = None) -> BoundOp:
        self.input_names = set()
        self.attrs()
        self.inputs = self.tensors(self.spec.inputs, "input")
        self.lets()
        self.outputs = self.tensors(self.spec.outputs if outputs is None else outputs, "output")
        rules = self.rules()
        body = self.statements(block)
        return self.finish(rules, body)

    def finish(self, rules: tuple[Rule, ...], body: list[Statement]) -> BoundOp:
        spec = self.spec
        written = {s.target for s in body}
        for t in self.outputs:
            if t.name not in written:
                self.b.fail(None, f"output `{t.name}` is never written")
        for d in self.env.dims.values():
            if not d.sources and d.expr is None:
                self.b.fail(
                    None,
                    f"nothing says what extent `{d.name}` is",
                    "an `expand` input takes its extents from others",
                )
        slots: list[tuple[str, int]] = []
        pos = 0
        for name, declared in spec.inputs.items():
            if declared.is_list:
                for k in range(self.lengths.get(name, 0)):
                    slots.append((f"{name}.{k}", pos))
                    pos += 1
            else:
                if name not in self.env.absent:
                    slots.append((name, pos))
                pos += 1
        inplace = tuple(
            (o, i) for i in spec.inplace for o in list(spec.outputs)[:1] if i not in self.env.absent
        )
        return BoundOp(
            name=spec.op,
            key=self.key,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            temps=tuple(self.b.temps.values()),
            attrs=tuple(self.env.attrs.values()),
            dims=_sorted_dims(self.env.dims),
            rules=rules,
            body=tuple(body),
            inplace=inplace,
            slots=tuple(slots),
        )


def flatten(b: _Binder, block: Block) -> list[Assign]:
    """Statements with static `if`s decided."""
    out: list[Assign] = []
    for s in block:
        if isinstance(s, Assign):
            out.append(s)
            continue
        v = b.static_value(s.test)
        if v is _UNKNOWN:
            b.fail(
                s,
                f"`if {show(s.test)}` must be decidable before the call",
                "only static attributes, dtypes and presence may choose statements; else write `a if c else b`",
            )
        out += flatten(b, s.then if v else s.orelse)
    return out


def _sorted_dims(dims: dict[str, Dim]) -> tuple[Dim, ...]:
    """Dims with sources first, then derived ones in the order written (each depends on earlier ones only)."""
    vals = list(dims.values())
    return tuple(
        [d for d in vals if d.expr is None]
        + [d for d in vals if d.expr is not None and not d.data]
        + [d for d in vals if d.data]
    )


def bind(spec: OpSpec, key: BindKey) -> BoundOp:
    """The Bound program of `spec` at `key`.  Raises BindError (with place) or DomainError (the key is not admitted)."""
    return _SpecBinder(spec, key).run(spec.compute)


def bind_grad(spec: OpSpec, key: BindKey) -> BoundOp:
    """The declared gradient as a program named `<op>.grad`, with the inputs and outputs that `grad.adjoint` gives.

    Inputs: the forward's inputs, the saved outputs, `d<output>`; outputs `d<input>` for each present input in `wrt`.
    Raises BindError; ValueError when the spec declares none.
    """
    g = spec.grad
    if g is None or g.compute is None:
        raise ValueError(f"{spec.op} declares no gradient")
    inputs = dict(spec.inputs)
    present = dict(key.present)
    for name in g.save:
        if name in spec.outputs:
            inputs[name] = replace(spec.outputs[name], aux=False)
    for name, t in spec.outputs.items():
        if not t.aux:
            inputs[f"d{name}"] = t
    outputs = {f"d{n}": replace(spec.inputs[n], optional=False) for n in g.wrt if present.get(n, True)}
    sb = _SpecBinder(
        replace(spec, op=f"{spec.op}.grad", inputs=inputs, outputs=outputs, require=(), sizes={}, inplace=()),
        key,
    )
    return sb.run(g.compute, outputs)


def rebind(op: BoundOp, block: Block) -> BoundOp:
    """Bind statements (printed from a Bound or Normal program) again over `op`'s inputs, attributes and dims.

    `parse_statements(show_block(…))` of a program's body rebinds to the program itself; tests hold it to that.
    """
    env = _Env(op.name, "<printed>", {}, {})
    env.attrs = {a.name: a for a in op.attrs}
    env.attr_len = {}
    for s in op.body:
        for n in walk(s.assign.value):
            if isinstance(n, Item):
                env.attr_len[n.id] = max(env.attr_len.get(n.id, 0), n.lane + 1)
    for a in op.attrs:
        if a.kind in ("ints", "floats"):
            env.attr_len.setdefault(a.name, dict(op.key.lengths).get(a.name, 0))
    env.dims = {d.name: d for d in op.dims}
    b = _Binder(env)
    b.spots = {}
    for t in (*op.inputs, *op.outputs):
        env.tensors[t.name] = t
        head, dot, _ = t.name.partition(".")
        if dot:
            env.lists[head] = env.lists.get(head, 0) + 1
    body = [b.statement(s) for s in block if isinstance(s, Assign)]
    return replace(op, temps=tuple(b.temps.values()), body=tuple(body))


def keys_of(spec: OpSpec, dtypes: Sequence[DType] | None = None, *, limit: int = 64) -> list[BindKey]:
    """Keys a spec admits: type variables over their categories (cut to `dtypes`), presence on and off, static values.

    Ranks of static packs and lengths of lists are open; here they are 2.  At most `limit`, the plainest first.
    """
    cats = {v: r.id for v, r in spec.types.items() if isinstance(r, Name) and r.id in CATEGORIES}
    open_vars = list(dict.fromkeys(t.dtype for t in spec.inputs.values() if t.dtype in spec.types))
    choices: list[list[DType]] = []
    for v in open_vars:
        rule = spec.types[v]
        if isinstance(rule, Call) and rule.fn in CATEGORIES:
            cats[v] = rule.fn
        pool = list(CATEGORIES[cats[v]] if v in cats else CATEGORIES["any"])
        wanted = [d for d in dtypes if d in pool] if dtypes is not None else pool
        choices.append(wanted or pool[-1:])
    out: dict[BindKey, None] = {}
    for attrs in sample_attrs(spec):
        for absent in ((), tuple(n for n, t in spec.inputs.items() if t.optional)):
            for combo in itertools.product(*choices):
                fixed = dict(zip(open_vars, combo, strict=True))
                inputs: dict[str, Any] = {}
                for name, t in spec.inputs.items():
                    d = fixed[t.dtype] if t.dtype in fixed else DType(t.dtype)
                    one = Operand(d, sum(1 if not u.pack else 2 for u in t.dims))
                    inputs[name] = None if name in absent else [one, one] if t.is_list else one
                try:
                    out[key_for_call(spec, inputs, attrs).key] = None
                except DomainError:
                    continue
                if len(out) >= limit:
                    return list(out)
    return list(out)


def sample_attrs(spec: OpSpec) -> list[dict[str, Any]]:
    """Plain attribute values: the defaults; each value of a static bool or enum; optional ones given."""
    plain = {
        "int": 1,
        "axis": 0,
        "float": 1.0,
        "bool": False,
        "scalar": 1,
        "axes": (0,),
        "ints": (1, 1),
        "floats": (1.0, 1.0),
        "dtype": "f32",
        "str": "",
    }
    base: dict[str, Any] = {}
    more: list[dict[str, Any]] = []
    given: dict[str, Any] = {}
    for a in spec.attrs.values():
        value = a.values[0] if a.kind == "enum" else plain[a.kind]
        if not (a.has_default or a.optional or a.default_expr is not None):
            base[a.name] = value
        elif a.kind != "dtype" and (a.optional or a.default_expr is not None or a.default is None):
            given[a.name] = value
        if a.static is True and a.kind == "bool":
            more += [{a.name: True}, {a.name: False}]
        elif a.kind == "enum":
            more += [{a.name: v} for v in a.values]
        elif isinstance(a.static, tuple):
            more += [{a.name: v} for v in a.static]
    return [base, *([{**base, **given}] if given else []), *({**base, **m} for m in more)]
