"""The key of a call: its type variables solved, its attributes made canonical, what else is constant in a kernel.

`key_for_call` answers for one call, `keys_of` lists what a spec admits.

May import: spec, expr, types, bound, errors.  To add a rule of types: a case of `_TypeSolver.rule` (and its name in
`types.RULES`); a kind of attribute: `_canon_attr`, and a plain value of it in `sample_attrs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .bound import (
    BindKey,
    StaticValue,
)
from .errors import DomainError
from .expr import (
    Bin,
    Block,
    Call,
    Expr,
    Fold,
    If,
    Name,
    Num,
    Star,
    show,
    walk,
)
from .spec import AttrDecl, OpSpec
from .types import (
    CATEGORIES,
    HALVES,
    RULES,
    DType,
    Operand,
    accum,
    default_dtype,
    in_category,
    promote,
    promote_operands,
)

__all__ = [
    "Resolved",
    "canonical_attrs",
    "flat_names",
    "key_for_call",
    "keys_of",
    "rederived",
    "sample_attrs",
]


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
            case Call(fn="opmath", args=(Name(id=a), other)):
                self.castable.add(var)
                beside = self.rule(var, other)
                lone = [o for o in self.operands.get(a, ()) if o.weak or o.rank == 0]
                exact = any(o.weak or o.dtype is not beside for o in lone)
                return accum(beside) if exact and beside in HALVES else beside
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


def rederived(spec: OpSpec, types: Mapping[str, DType]) -> dict[str, DType]:
    """`types`, with what a rule makes of variables before it alone made anew: for who has replaced some of them."""
    solver = _TypeSolver(spec, {}, {})
    for var, rule in spec.types.items():
        parts = list(walk(rule))
        of_call = any(isinstance(e, Call) and e.fn in ("promote", "attr", "default") for e in parts)
        of_others = any(isinstance(e, Name) and e.id in solver.vars for e in parts)
        solver.vars[var] = solver.rule(var, rule) if of_others and not of_call else types[var]
    return solver.vars


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
            if op.dtype.is_complex and not want.is_complex:
                raise DomainError(
                    f"{spec.op}: input `{name}` is {want}, got {op.dtype}, whose imaginary part would be lost",
                    hint="take its real part first: ow.ops.real(x)",
                )
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
    # inputs that are read at their own width where they are of rank 0: once so, for keys of their own
    lone = {
        c.args[0].id
        for r in spec.types.values()
        for c in walk(r)
        if isinstance(c, Call) and c.fn == "opmath" and isinstance(c.args[0], Name)
    }
    optional = tuple(n for n, t in spec.inputs.items() if t.optional)
    out: dict[BindKey, None] = {}
    for attrs, single in itertools.product(sample_attrs(spec), (set(), lone) if lone else (set(),)):
        for absent in ((), optional):
            for combo in itertools.product(*choices):
                fixed = dict(zip(open_vars, combo, strict=True))
                inputs: dict[str, Any] = {}
                for name, t in spec.inputs.items():
                    d = fixed[t.dtype] if t.dtype in fixed else DType(t.dtype)
                    one = Operand(d, 0 if name in single else sum(1 if not u.pack else 2 for u in t.dims))
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
