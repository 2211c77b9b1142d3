"""Checks of a spec that need no key: every name stands for one thing that exists, marks and counts of indices fit.

May import: errors, expr, source (places), spec_model, types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol

from .errors import did_you_mean
from .expr import (
    FUNCTIONS,
    REDUCTIONS,
    Assign,
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
    Num,
    Reduce,
    Span,
    Star,
    Stmt,
    Str,
    TupleLit,
    children,
    walk,
)
from .source import Node
from .spec_model import CALL_RULES, CONSTANTS, DimDecl, DimText, OpSpec, TensorType
from .types import CATEGORIES, RULES, DType


class Fail(Protocol):
    """Takes note of a mistake; checking goes on."""

    def __call__(self, at: Node | Span | None, what: str, hint: str = "") -> None: ...


@dataclass
class _Scope:
    """What a block may name beside the spec's own declarations."""

    tensors: dict[str, TensorType]  # readable
    written: dict[str, TensorType]  # may be written
    what: str
    unsaved: Set[str] = frozenset()  # known in forward, not here


class Checker:
    """Names and marks, without a key: a name stands for one thing, and that thing exists."""

    def __init__(self, spec: OpSpec, fail: Fail) -> None:
        self.spec, self.fail = spec, fail
        self.scalars: set[str] = set()  # dims that are one extent
        self.packs: dict[str, DimDecl] = dict(spec.dims)
        self.list_dims: set[str] = set()  # dims of list inputs
        self.used: set[str] = set()

    # -- declarations
    def run(self, *, blocks: bool = True) -> None:
        """Check everything; without `blocks` (statements that could not be read) the declarations only."""
        s = self.spec
        for name, t in s.inputs.items():
            self.declare_dims(name, t)
        for name in s.dims:
            if name not in self.used:
                self.fail(
                    s.dims[name].span,
                    f"the dim `{name}` is used by no input",
                    "remove it, or name it in an input's type",
                )
        for name, t in (*s.inputs.items(), *s.outputs.items()):
            self.tensor_type(name, t, name in s.outputs)
        self.types()
        for a in s.attrs.values():
            if a.default_expr is not None:
                self.extent(a.default_expr, "a default")
        for decl in s.dims.values():
            if decl.rank is not None:
                self.extent(decl.rank, "a rank")
        for let in s.let.values():
            self.extent(let.expr, "let")
        tensors = dict(s.inputs)
        scope = _Scope(tensors, {}, "require")
        for r in s.require:
            self.condition(r.expr, scope)
        for e in s.sizes.values():
            self.condition(e, _Scope(tensors, {}, "sizes"))
        if s.view:
            for d in (*s.view.size, *s.view.stride):
                self.extent(d.expr, "view")
            self.extent(s.view.offset, "view")
        if not blocks:
            return
        temps = self.block(s.compute, _Scope(tensors, dict(s.outputs), "compute"))
        if s.also is not None:
            self.block(s.also, _Scope(tensors, dict(s.outputs), "also"))
        for r in s.test.checks:
            self.condition(r.expr, _Scope({**tensors, **s.outputs, **temps}, {}, "checks"))
        self.grad(temps)

    def all_dims(self) -> dict[str, DimDecl]:
        """The packs, with those that needed no declaration."""
        return self.packs

    def declare_dims(self, name: str, t: TensorType) -> None:
        s = self.spec
        for d in t.dims:
            if not isinstance(d.expr, Name):
                continue
            n = d.expr.id
            self.used.add(n)
            if t.is_list and not d.pack:
                self.list_dims.add(n)
            if n in s.let or n in s.sizes or n in s.attrs:
                continue
            if d.pack:
                if n in self.scalars:
                    self.fail(
                        d.span, f"`{n}` is one extent elsewhere and a pack here", f"`{n}` or another name"
                    )
                elif n not in self.packs and self.free_dim(n, d.span):
                    self.packs[n] = DimDecl("batch", None, d.span)
            elif n in self.packs:
                self.fail(d.span, f"`{n}` is a pack of axes", f"`*{n}`")
            elif self.free_dim(n, d.span):
                self.scalars.add(n)

    def free_dim(self, name: str, span: Span | None) -> bool:
        s = self.spec
        for what, names in (("a type variable", s.types), ("an input", s.inputs), ("an output", s.outputs)):
            if name in names:
                self.fail(
                    span, f"`{name}` is {what}, and a dim here", "one name, one meaning: choose another"
                )
                return False
        return True

    def tensor_type(self, name: str, t: TensorType, output: bool) -> None:
        s = self.spec
        dtypes = {d.value for d in DType}
        if t.dtype not in s.types and t.dtype not in dtypes:
            hint = (
                f"types: {{T: {t.dtype}}}, and `T[…]` here"
                if t.dtype in CATEGORIES
                else did_you_mean(t.dtype, (*s.types, *dtypes), what="types")
            )
            self.fail(t.span, f"the type `{t.dtype}` of `{name}` is not declared", hint)
        for d in t.dims:
            if d.at is not None:
                a = s.attrs.get(d.at)
                if a is None:
                    self.fail(
                        d.span,
                        f"`@{d.at}` names no attribute",
                        did_you_mean(d.at, s.attrs, what="attributes"),
                    )
                elif a.kind not in ("axis", "axes"):
                    self.fail(
                        d.span, f"`@{d.at}` needs an attribute of type axis or axes; `{d.at}` is {a.kind}"
                    )
                elif (
                    (a.kind == "axes") != d.pack
                    and d.keep_if is None
                    and not (isinstance(d.expr, Num) and output)
                ):
                    self.fail(
                        d.span,
                        f"`{d.at}` is {a.kind}: "
                        + ("a pack moves there" if a.kind == "axes" else "one dim moves there"),
                        f"`*N@{d.at}`" if a.kind == "axes" else f"`N@{d.at}`",
                    )
            if d.keep_if is not None:
                k = s.attrs.get(d.keep_if)
                if not output:
                    self.fail(d.span, f"`if {d.keep_if}` is for outputs")
                elif k is None:
                    self.fail(
                        d.span,
                        f"`if {d.keep_if}` names no attribute",
                        did_you_mean(d.keep_if, s.attrs, what="attributes"),
                    )
                elif k.kind != "bool" or not k.is_static:
                    self.fail(d.span, f"`if {d.keep_if}` needs a static bool attribute", "static: true")
            if d.pack and isinstance(d.expr, Name):
                n = d.expr.id
                ok = (
                    n in self.packs
                    or (n in s.let and s.let[n].pack)
                    or (n in s.attrs and s.attrs[n].kind == "ints")
                )
                if not ok:
                    known = (*self.packs, *(k for k, v in s.let.items() if v.pack))
                    self.fail(d.span, f"`*{n}` is no pack of axes", did_you_mean(n, known, what="packs"))
            else:
                if isinstance(d.expr, Name) and not d.pack and (d.expr.id in self.packs):
                    if output:
                        self.fail(d.span, f"`{d.expr.id}` is a pack of axes", f"`*{d.expr.id}`")
                    continue
                self.extent(d.expr, "a shape")

    def types(self) -> None:
        s = self.spec
        known: set[str] = {d.value for d in DType}
        fixed = {t.dtype for t in s.inputs.values()}
        unknown = fixed - known - set(s.types)  # said already
        for name, e in s.types.items():
            self.type_rule(name, e, known)
            if isinstance(e, Name) and e.id in CATEGORIES and name not in fixed and not unknown:
                self.fail(
                    e.span, f"no input fixes the type `{name}`", f'an input of type "{name}[…]", or a rule'
                )
            known.add(name)

    def type_rule(self, owner: str, e: Expr, known: set[str]) -> None:
        s = self.spec
        match e:
            case Name(id=n) if n in CATEGORIES or n in known:
                return
            case Name(id=n) if n in s.types:
                self.fail(e.span, f"`{n}` is declared below `{owner}`", f"declare `{n}` first")
            case Name(id=n):
                self.fail(
                    e.span,
                    f"`{n}` is neither a category, a dtype nor a type variable",
                    did_you_mean(n, (*CATEGORIES, *known), what="categories and types"),
                )
            case Call(fn="promote" | "default" as fn, args=args) if args:
                for a in args:
                    ok = isinstance(a, Name) and (
                        (fn == "promote" and a.id in s.inputs)
                        or (a.id in s.attrs and s.attrs[a.id].kind in ("scalar", "int", "float", "bool"))
                    )
                    if not ok:
                        pool = (*(s.inputs if fn == "promote" else ()), *s.attrs)
                        self.fail(
                            a.span,
                            f"`{fn}` takes {'inputs and ' if fn == 'promote' else ''}scalar attributes",
                            did_you_mean(a.id, pool) if isinstance(a, Name) else "",
                        )
            case Call(fn="opmath", args=(Name(id=n), rule)):
                if n not in s.inputs or s.inputs[n].is_list:
                    self.fail(
                        e.span,
                        f"`opmath({n}, …)` needs an input `{n}` that is one tensor",
                        did_you_mean(n, s.inputs, what="inputs"),
                    )
                self.type_rule(owner, rule, known)
            case Call(fn="attr", args=(Name(id=n), rule)):
                if n not in s.attrs or s.attrs[n].kind != "dtype":
                    self.fail(
                        e.span,
                        f"`attr({n}, …)` needs an attribute `{n}` of type dtype",
                        f"attrs: {{{n}: {{type: dtype, default: null}}}}",
                    )
                self.type_rule(owner, rule, known)
            case Call(fn=fn, args=(inner,)) if fn in CATEGORIES:
                self.type_rule(owner, inner, known)  # real(promote(a, b)): the rule's result must be real
            case Call(fn=fn, args=args) if fn in RULES and args:
                for a in args:
                    self.type_rule(owner, a, known)
            case Call(fn=fn) if fn not in {*RULES, *CALL_RULES, *CATEGORIES}:
                self.fail(
                    e.span,
                    f"`{fn}` is not a rule for types",
                    did_you_mean(fn, (*RULES, *CALL_RULES, *CATEGORIES), what="rules"),
                )
            case _:
                self.fail(
                    e.span, "this is not a type", "a category, a dtype, or a rule: accum(T), promote(a, b)"
                )

    # -- expressions without indices
    def plain_names(self) -> set[str]:
        s = self.spec
        return {*self.scalars, *self.packs, *s.let, *s.sizes, *s.attrs, *CONSTANTS}

    def extent(self, e: Expr, what: str) -> None:
        """Names of an expression over dims, attributes and let."""
        self.expr(e, _Scope({}, {}, what), set())

    def condition(self, e: Expr, scope: _Scope) -> None:
        free = self.indices((e,), scope)
        self.expr(e, scope, free)

    # -- statements
    def block(self, block: Block, scope: _Scope) -> dict[str, TensorType]:
        """Check a block; returns its temporaries, with types of as many dims as their first index."""
        s = self.spec
        temps: dict[str, TensorType] = {}
        assigns = list(_assigns(block))
        for st in assigns:
            t = st.target
            if t.name in scope.written or t.name in temps:
                continue
            if t.name in scope.tensors:
                self.fail(
                    t.span, f"`{t.name}` is an input: it cannot be written", "write an output or a temporary"
                )
            elif t.name in self.plain_names() or t.name in s.types:
                self.fail(t.span, f"`{t.name}` is already declared", "choose another name for the temporary")
            else:
                dims = tuple(
                    DimText(Num(0), isinstance(i, Star) or (isinstance(i, Decl) and i.pack)) for i in t.index
                )
                temps[t.name] = TensorType("", dims, is_list=t.item is not None)
        inner = replace(scope, tensors={**scope.tensors, **scope.written, **temps})
        self.tests(block)
        self.modes(block, {})
        self.sized: set[str] = set()
        for st in assigns:
            self.statement(st, inner)
        done = {st.target.name for st in assigns}
        if block or (s.view is None and s.oracle is None):
            for name, out in scope.written.items():
                if name not in done:
                    near = did_you_mean(name, temps)
                    self.fail(
                        out.span,
                        f"`{name}` is never written in {scope.what}",
                        near if near.startswith("did") else f"`{name}[…] = …`",
                    )
        return temps

    def modes(self, block: Block, seen: dict[str, str]) -> dict[str, str]:
        """One `=` base, then updates of one mode.  `seen`: target -> last mode, on every path to here; what only some
        paths write is judged at bind, where static tests are decided."""
        for st in block:
            if isinstance(st, If):
                then, other = self.modes(st.then, dict(seen)), self.modes(st.orelse, dict(seen))
                seen = {n: m for n, m in then.items() if other.get(n) == m}
                continue
            name, before = st.target.name, seen.get(st.target.name)
            if before is not None and st.mode == "=":
                self.fail(
                    st.span, f"`{name}` is written a second time", "name the first value, or use `: set =`"
                )
            elif before not in (None, "=", st.mode):
                self.fail(
                    st.span, f"`{name}` is updated by `{before}` and by `{st.mode}`", "one mode a target"
                )
            seen[name] = st.mode
        return seen

    def tests(self, block: Block) -> None:
        for st in block:
            if isinstance(st, If):
                self.static_test(st.test)
                self.tests(st.then)
                self.tests(st.orelse)

    def static_test(self, e: Expr) -> None:
        for x in walk(e):
            if isinstance(x, Load | Reduce | Fold):
                self.fail(
                    x.span, "only a static test chooses statements", "choose a value: `a if test else b`"
                )
                return
        self.expr(e, _Scope({}, {}, "a test"), set())
        asked = {
            a.id
            for x in walk(e)
            if isinstance(x, Call) and x.fn in ("rank", "len")
            for a in x.args
            if isinstance(a, Name)
        }
        for x in walk(e):
            if isinstance(x, Name) and x.id not in asked and x.id in self.plain_names():
                a = self.spec.attrs.get(x.id)
                if a is None or not a.is_static:
                    self.fail(
                        x.span,
                        f"`{x.id}` is not static: only a static test chooses statements",
                        "`static: true` on the attribute, or choose a value: `a if test else b`",
                    )

    def statement(self, st: Assign, scope: _Scope) -> None:
        parts = [*st.target.index, st.value]
        if st.target.item is not None:
            parts.append(st.target.item)
        if st.guard is not None:
            parts.append(st.guard)
        free = self.indices(parts, scope, st)
        t = scope.tensors.get(st.target.name)
        if t is not None:
            self.count(st.target.name, t, st.target.index, st.target.item, st.target.span)
        for i in parts:
            self.expr(i, scope, free)
        if t is not None and not t.dtype and st.target.name not in self.sized:
            self.sized.add(st.target.name)  # a temporary takes its extents from its first statement
            loads = {i.id for p in parts for i in _direct(p)} | {
                d.id for p in parts for d in walk(p) if isinstance(d, Decl)
            }
            for i in st.target.index:
                inner = i.x if isinstance(i, Star) else i
                if isinstance(inner, Name) and inner.id in free and inner.id not in loads:
                    self.no_extent(inner.id, i.span)
        if st.mode == "=" and t is not None:
            placed = {n for i in st.target.index for n in _names(i)}
            if st.target.item is not None:
                placed |= _names(st.target.item)
            for x in [st.value, *([st.guard] if st.guard is not None else [])]:
                for name, span in self.free_in(x, free, frozenset()):
                    if name not in placed:
                        self.fail(
                            span,
                            f"the index `{name}` is not in the target `{st.target.name}`",
                            f"reduce over it: `sum[{name}](…)`, or write it in the target",
                        )
                        placed.add(name)

    def no_extent(self, name: str, span: Span | None) -> None:
        self.fail(span, f"the index `{name}` has no extent: it stands alone in no load", f"`{name} in N`")

    def free_in(self, x: Expr, free: set[str], bound: frozenset[str]) -> Iterator[tuple[str, Span | None]]:
        if isinstance(x, Name) and x.id in free and x.id not in bound:
            yield x.id, x.span
        if isinstance(x, Decl) and x.id in free and x.id not in bound:
            yield x.id, x.span
        if isinstance(x, Reduce):
            bound = bound | {d.id for d in x.indices}
            yield from self.free_in(x.body, free, bound)
            return
        for c in children(x):
            yield from self.free_in(c, free, bound)

    def indices(self, parts: Iterable[Expr], scope: _Scope, st: Assign | None = None) -> set[str]:
        """The free index names of a statement: those that stand alone at an index position, or are declared."""
        known = self.plain_names() | set(scope.tensors) | set(self.spec.types)
        free: set[str] = set()

        def take(i: Expr, bound: frozenset[str]) -> None:
            inner = i.x if isinstance(i, Star) else i
            if isinstance(inner, Name) and inner.id not in known and inner.id not in bound:
                free.add(inner.id)

        def visit(x: Expr, bound: frozenset[str]) -> None:
            if isinstance(x, Reduce):
                bound = bound | {d.id for d in x.indices}
                for d in x.indices:
                    if d.extent is not None:
                        visit(d.extent, bound)
                visit(x.body, bound)
                return
            if isinstance(x, Load):
                for i in x.index:
                    take(i, bound)
                if x.item is not None:
                    take(x.item, bound)
            if isinstance(x, Decl) and x.id not in bound:
                free.add(x.id)
            for c in children(x):
                visit(c, bound)

        for p in parts:
            visit(p, frozenset())
        if st is not None:
            for i in st.target.index:
                take(i, frozenset())
            if st.target.item is not None:
                take(st.target.item, frozenset())
        return free

    def count(
        self, name: str, t: TensorType, index: tuple[Expr, ...], item: Expr | None, span: Span | None
    ) -> None:
        if t.is_list and item is None:
            self.fail(span, f"`{name}` is a list: which entry?", f"`{name}[k][…]`")
            return
        if item is not None and not t.is_list:
            self.fail(span, f"`{name}` is not a list", f"`{name}[…]` with one pair of brackets")
            return
        dims = t.indexed
        if len(index) != len(dims):
            shape = f", {t.show()}," if t.dtype else ""
            have = f"{len(dims)} ax{'is' if len(dims) == 1 else 'es'}"
            self.fail(
                span,
                f"`{name}`{shape} has {have}, and here {len(index)} {'index' if len(index) == 1 else 'indices'}",
                "a pack counts as one: `*b`",
            )
            return
        for d, i in zip(dims, index, strict=True):
            pack = isinstance(i, Star) or (isinstance(i, Decl) and i.pack)
            if pack != d.pack:
                self.fail(
                    i.span or span,
                    f"here `{name}` has {'a pack of axes' if d.pack else 'one axis'}"
                    + (f": {d.show()}" if t.dtype else ""),
                    "`*i`" if d.pack else "an index without `*`",
                )
                return

    by_lane = 0  # how many pack expressions we are inside of

    def expr(self, x: Expr, scope: _Scope, free: set[str]) -> None:
        s = self.spec
        match x:
            case Reduce(indices=ix, body=b):
                known = self.plain_names() | set(scope.tensors) | set(s.types)
                names: set[str] = set()
                for d in ix:
                    if d.id in known:
                        self.fail(
                            d.span, f"`{d.id}` is already declared: an index needs a name of its own", ""
                        )
                    elif d.id in free or d.id in names:
                        self.fail(
                            d.span, f"the index `{d.id}` is taken in this statement", "choose another name"
                        )
                    names.add(d.id)
                    if d.extent is not None:
                        self.expr(d.extent, scope, free)
                placed = {i.id for i in _direct(b)}
                for d in ix:
                    if d.extent is None and d.id in names - placed:
                        self.no_extent(d.id, d.span)
                self.expr(b, scope, free | names)
                return
            case Decl(extent=e):
                if x.id in self.plain_names() | set(scope.tensors):
                    self.fail(x.span, f"`{x.id}` is already declared: an index needs a name of its own")
                if e is not None:
                    self.expr(e, scope, free)
                return
            case Load(tensor=n, index=ix, item=item):
                t = scope.tensors.get(n)
                if t is not None and t.is_list and item is None and self.by_lane:
                    self.count(n, replace(t, is_list=False), ix, None, x.span)  # lane k is entry k
                elif t is not None:
                    self.count(n, t, ix, item, x.span)
                elif n in self.list_dims and item is None and len(ix) == 1:
                    pass  # N[k]: the extent of entry k
                elif n in self.packs or (n in s.let and s.let[n].pack) or n in s.attrs:
                    # I[0], kernel[1]: one lane of a static pack or of an ints attribute
                    if len(ix) != 1 or item is not None or not isinstance(ix[0], Num):
                        self.fail(x.span, f"`{n}[…]` takes one lane's number", f"`{n}[0]`")
                else:
                    what = f"the tensor `{n}` is not known in {scope.what}"
                    if n in scope.unsaved:
                        self.fail(
                            x.span, what, f"backward reads what `save` lists: add `{n}`, or compute it again"
                        )
                    else:
                        self.unknown(n, x.span, (*scope.tensors,), what, "tensors")
            case Call(fn="len", args=(Name(id=n),)) if n in s.inputs and s.inputs[n].is_list:
                return
            case Call(fn=fn, args=args):
                self.call(x, fn, args, scope)
            case Name(id=n):
                t = scope.tensors.get(n)
                if t is not None and n not in free:
                    hint = f"`{n}[…]`" if t.indexed else f"`{n}[()]`"
                    self.fail(x.span, f"`{n}` is a {'list' if t.is_list else 'tensor'}: which element?", hint)
                elif n not in free and n not in self.plain_names():
                    literal = {"true": "`True`", "false": "`False`", "null": "`name is None`"}.get(n)
                    if literal:
                        self.fail(x.span, f"the name `{n}` is not declared", literal)
                        return
                    pool = (
                        *self.plain_names(),
                        *free,
                        *(k for k, v in scope.tensors.items() if not v.indexed),
                    )
                    self.unknown(n, x.span, pool, f"the name `{n}` is not declared", "names")
                return
            case IsNone(id=n):
                optional = (n in s.inputs and s.inputs[n].optional) or (n in s.attrs and s.attrs[n].optional)
                if not optional:
                    if n in s.inputs or n in s.attrs:
                        self.fail(x.span, f"`{n}` is never None", '`"optional T[…]"`, or `default: null`')
                    else:
                        self.unknown(
                            n, x.span, (*s.inputs, *s.attrs), f"the name `{n}` is not declared", "names"
                        )
                return
            case Cmp(left=a, right=b):
                self.strings(x, a, b)
                for side, other in ((a, b), (b, a)):
                    # `T == "bf16"` and `M == T` test dtypes
                    dtype_test = self.is_type(side) and (
                        isinstance(other, Str | TupleLit) or self.is_type(other)
                    )
                    if not dtype_test and not isinstance(side, Str | TupleLit):
                        self.expr(side, scope, free)
                return
            case Str():
                self.fail(x.span, "a string is only compared with an attribute", '`mode == "mean"`')
        deeper = isinstance(x, Star | Fold)
        self.by_lane += deeper
        for c in children(x):
            self.expr(c, scope, free)
        self.by_lane -= deeper

    def is_type(self, x: Expr) -> bool:
        return isinstance(x, Name) and x.id in self.spec.types

    def strings(self, x: Cmp, a: Expr, b: Expr) -> None:
        for name, side in ((a, b), (b, a)):
            texts = (
                [side]
                if isinstance(side, Str)
                else ([t for t in side.xs if isinstance(t, Str)] if isinstance(side, TupleLit) else [])
            )
            if not texts:
                continue
            if isinstance(name, Name) and name.id in self.spec.types:
                for t in texts:
                    if t.value not in {d.value for d in DType}:
                        known = [d.value for d in DType]
                        self.fail(
                            t.span, f"`{t.value}` is not a dtype", did_you_mean(t.value, known, what="dtypes")
                        )
                continue
            attr = self.spec.attrs.get(name.id) if isinstance(name, Name) else None
            if attr is None or attr.kind not in ("enum", "str", "dtype"):
                self.fail(x.span, "a string is only compared with an enum attribute", '`mode == "mean"`')
                continue
            for t in texts:
                if attr.kind == "enum" and t.value not in attr.values:
                    self.fail(
                        t.span,
                        f"`{t.value}` is not a value of `{attr.name}`",
                        did_you_mean(t.value, attr.values, what="values"),
                    )

    def call(self, x: Call, fn: str, args: tuple[Expr, ...], scope: _Scope) -> None:
        s = self.spec
        if fn in s.types or fn in {d.value for d in DType}:
            if len(args) != 1:
                self.fail(x.span, f"the cast `{fn}(…)` takes one argument")
            return
        f = FUNCTIONS.get(fn)
        if f is None:
            if fn in scope.tensors:
                self.fail(x.span, f"`{fn}` is a tensor, not a function", f"`{fn}[…]`")
                return
            hint = did_you_mean(fn, (*FUNCTIONS, *s.types, *REDUCTIONS), what="functions")
            if fn in REDUCTIONS:
                hint = f"a reduction names its indices: `{fn}[i](…)`"
            self.fail(x.span, f"`{fn}` is not a function of the language", hint)
            return
        low, high = f.arity
        if not low <= len(args) <= high:
            n = str(low) if low == high else f"{low} to {high}"
            self.fail(
                x.span, f"`{fn}` takes {n} argument{'s' if n != '1' else ''}, here are {len(args)}", f.doc
            )

    def unknown(self, name: str, span: Span | None, pool: Iterable[str], what: str, kind: str) -> None:
        self.fail(span, what, did_you_mean(name, pool, what=kind))

    # -- gradient, cases
    def grad(self, temps: Mapping[str, TensorType]) -> None:
        s, g = self.spec, self.spec.grad
        if g is None:
            return
        savable = (*s.inputs, *s.outputs, *temps)
        for n in g.save:
            if n not in savable:
                self.unknown(
                    n, g.span, savable, f"`{n}` in `save` is not known", "inputs, outputs and temporaries"
                )
        for n, _ in g.every:
            if n not in (*s.outputs, *temps):
                self.fail(g.span, f"`every` of `{n}`: it is no state of a recurrence")
        if g.compute is None:
            return
        kept = set(g.save) if g.save else {*s.inputs, *s.outputs}
        readable = {n: t for n, t in {**s.inputs, **s.outputs, **temps}.items() if n in kept}
        readable |= {f"d{n}": t for n, t in s.outputs.items() if not t.aux}
        written = {f"d{n}": replace(s.inputs[n], span=g.span) for n in g.wrt}
        unsaved = {*s.inputs, *s.outputs, *temps} - set(readable)
        self.block(g.compute, _Scope(readable, written, "grad", unsaved))

    def cases(self, test: Node | None, bench: Node | None) -> None:
        """Keys of test cases and workloads: dims, attributes, optional inputs, `input.dim`."""
        s = self.spec
        cases = test.get("cases") if test is not None and test.kind == "map" else None
        special = ("types", "from", "values", "layouts")
        pool = {
            *self.scalars,
            *self.packs,
            *s.attrs,
            *special,
            *(n for n, t in s.inputs.items() if t.optional or t.is_list or s.sizes),
        }
        bench_items = bench.items if bench and bench.kind == "list" else ()
        for item in (*(cases.items if cases else ()), *bench_items):
            if item.kind != "map":
                self.fail(item, "a workload is a mapping of extents and attributes", "{B: [3], N: 5}")
                continue
            for k, v in item.pairs:
                head, dot, dim = k.string.partition(".")
                ok = k.string in pool or (dot and head in s.inputs and dim in {*self.packs, *self.scalars})
                ok = ok or (k.string in s.inputs and v.kind == "list")  # the contents of that input
                ok = ok or (dim == "shape" and head in s.inputs and s.inputs[head].expand)
                if not ok:
                    self.fail(
                        k,
                        f"`{k.string}` is no dim or attribute of `{s.op}`",
                        did_you_mean(k.string, pool - set(special), what="dims and attributes"),
                    )
                elif (name := dim if dot else k.string) in self.packs and not _extents(v.plain()):
                    self.fail(
                        v, f"`{name}` is a pack of axes: its extents are a list", f"`{k.string}: [2, 3]`"
                    )
                elif name in self.scalars - self.list_dims and not _extents([v.plain()]):
                    self.fail(v, f"`{name}` is one extent", f"`{k.string}: 5`")
                elif k.string in s.attrs and s.attrs[k.string].kind == "enum":
                    text = v.string if v.kind == "scalar" else ""
                    if text not in s.attrs[k.string].values and not v.is_null:
                        self.fail(
                            v,
                            f"`{text}` is not a value of `{k.string}`",
                            did_you_mean(text, s.attrs[k.string].values, what="values"),
                        )
                elif k.string == "types":
                    for t in v.items if v.kind == "list" else [v]:
                        # in a test, `bf16+f32` is one type for each variable, in order
                        parts = (
                            t.string.split("+")
                            if item not in bench_items and t.kind == "scalar"
                            else [t.string]
                        )
                        if t.kind == "scalar" and not {d.value for d in DType}.issuperset(parts):
                            self.fail(
                                t,
                                f"`{t.string}` is not a dtype",
                                did_you_mean(t.string, [d.value for d in DType], what="dtypes"),
                            )


def unused(spec: OpSpec) -> Iterator[tuple[Span | None, str, str]]:
    """Attributes and temporaries that nothing reads, as (where, what, hint): no mistakes, but seldom what was meant.

    A case or a law reads nothing: it says what the operator does, and is no part of it.
    """
    s, grad = spec, spec.grad
    blocks = [s.compute, s.also or (), (grad.compute or ()) if grad is not None else ()]
    types = (*s.inputs.values(), *s.outputs.values())
    dims = [d for t in types for d in t.dims]
    plain: list[Expr] = [
        *s.types.values(),
        *(d.rank for d in s.dims.values() if d.rank is not None),
        *(let.expr for let in s.let.values()),
        *s.sizes.values(),
        *(a.default_expr for a in s.attrs.values() if a.default_expr is not None),
        *(r.expr for r in s.require),
        *(d.expr for d in dims),
        *((d.expr for d in (*s.view.size, *s.view.stride)) if s.view else ()),
        *((s.view.offset,) if s.view else ()),
    ]
    read = {n for x in plain for n in _reads(x)} | {n for b in blocks for n in _block_reads(b)}
    read |= {n for d in dims for n in (d.at, d.keep_if) if n is not None}
    # What a function of Python means with them, nobody sees here.
    for a in s.attrs.values() if s.oracle is None else ():
        if a.name not in read:
            yield (
                a.span,
                f"the attribute `{a.name}` changes nothing: nothing reads it",
                "use it, or leave it out",
            )
    kept = set(grad.save) if grad is not None else set()
    kept |= {n for r in s.test.checks for n in _reads(r.expr)}
    for which, block in zip(("compute", "also", "grad"), blocks, strict=True):
        mine = _block_reads(block) | (kept if which != "also" else set())
        if which == "compute" and grad is not None and grad.compute is not None:
            mine |= _block_reads(grad.compute)
        given = {*s.outputs, *(f"d{n}" for n in s.inputs)}
        said: set[str] = set()
        for st in _assigns(block):
            name = st.target.name
            if name not in mine | given | said:
                said.add(name)
                yield (
                    st.target.span,
                    f"the temporary `{name}` is written in {which}, and nothing reads it",
                    "",
                )


def _block_reads(block: Iterable[Stmt]) -> set[str]:
    """Names that a block reads; a target's own update reads nothing of it."""
    out: set[str] = set()
    for st in block:
        if isinstance(st, If):
            out |= _reads(st.test) | _block_reads((*st.then, *st.orelse))
        else:
            target = (*st.target.index, *((st.target.item,) if st.target.item is not None else ()))
            value = (st.value, *((st.guard,) if st.guard is not None else ()))
            out |= {n for x in target for n in _reads(x)}
            out |= {n for x in value for n in _reads(x)} - {st.target.name}
    return out


def _reads(x: Expr) -> set[str]:
    return {
        n.tensor if isinstance(n, Load) else n.id
        for n in walk(x)
        if isinstance(n, Load | Name | IsNone | Item)
    }


def _assigns(block: Iterable[Stmt]) -> Iterator[Assign]:
    for st in block:
        if isinstance(st, Assign):
            yield st
        else:
            yield from _assigns(st.then)
            yield from _assigns(st.orelse)


def _extents(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    )


def _direct(x: Expr) -> Iterator[Name]:
    """Names that stand alone at an index position of a load, or choose an entry of a list: they have its extent."""
    for n in walk(x):
        if isinstance(n, Load):
            for i in (*n.index, *([n.item] if n.item is not None else [])):
                inner = i.x if isinstance(i, Star) else i
                if isinstance(inner, Name):
                    yield inner


def _names(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Name | Decl)}
