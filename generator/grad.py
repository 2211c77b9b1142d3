"""Reverse mode: a Normal program and the inputs wanted -> the Normal program of their gradients, and what both cost.

How it goes
  The statements are read backwards.  The cotangent of a value is an expression over the indices it ran over, under the
  conditions it ran under (`_Term`).  Pushed down to a part that depends on fewer indices it is first summed over the
  others, with factors that do not depend on them taken out: so an adjoint costs a small multiple of its forward.
  At a load with plain indices that cover the tensor the contribution is an expression (*gather*); at any other load it
  is an update `d_x[index] += …` under its conditions (*scatter*).
  A pack index used on a tensor whose own axes are smaller is aligned right and stays at 0 on axes of extent 1.
  So `d_a[*b] += …`, with `d_a` in the shape of `a`, sums over the axes that `a` was broadcast along.
  Cotangents are held in the accumulator of their dtype and rounded once, in the last statement.

Subgradients: LANGUAGE.md, rule 14.  Formulas: PyTorch's where a choice exists.

May import: expr, bound, types, normal, simplify, errors.  To add a function: a row in `_PARTIALS`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .bound import Axis, BoundOp, Dim, DimUse, Statement, Tensor
from .errors import GradError
from .expr import (
    FUNCTIONS,
    Bin,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    Item,
    Load,
    Name,
    Num,
    Reduce,
    Select,
    Span,
    Star,
    Un,
    children,
    map_children,
    walk,
)
from .normal import free_indices, verify
from .shifts import is_shift_free, maxima
from .simplify import (
    add,
    call,
    cast,
    cmp,
    depth,
    div,
    fresh_name,
    is_costly,
    is_zero,
    land,
    lnot,
    loads,
    lor,
    mul,
    neg,
    num,
    plain_indices,
    reduction,
    ref,
    rename_indices,
    rename_statement,
    select,
    simplify,
    statement,
    statement_exprs,
    statement_loads,
    sub,
)
from .types import DType, accum

__all__ = [
    "Cost",
    "NotDifferentiable",
    "adjoint",
    "check_cost",
    "cost",
    "cotangent_names",
    "gradient_names",
    "with_saved",
]


class NotDifferentiable(GradError):
    """The derivative of this program is not defined, or not in the language yet."""


# ================================================================================================ names and saving


def _differentiable(t: Tensor) -> bool:
    return t.dtype.is_inexact


def cotangent_names(op: BoundOp) -> dict[str, str]:
    """Output -> the name of its cotangent, for every differentiable output that is not `aux`: `d<output>`."""
    taken = {t.name for t in op.inputs}
    out: dict[str, str] = {}
    for t in op.outputs:
        if _differentiable(t) and not t.aux:
            out[t.name] = fresh_name(f"d{t.name}", taken)
            taken.add(out[t.name])
    return out


def gradient_names(op: BoundOp, wrt: Sequence[str]) -> dict[str, str]:
    """Flat input -> the name of its gradient, `d<input>`, for each differentiable input that `wrt` names.

    A list stands for its entries, an absent input for none.  Where an input or cotangent has that name already
    (deriving `softmax.grad` with respect to a saved `y`), a number is added: `dy_1`.
    """
    taken = {t.name for t in op.inputs} | set(cotangent_names(op).values())
    out: dict[str, str] = {}
    for w in wrt:
        for t in op.inputs:
            if w in (t.name, t.list_of) and t.name not in out and _differentiable(t):
                out[t.name] = fresh_name(f"d{t.name}", taken)
                taken.add(out[t.name])
    return out


def with_saved(op: BoundOp, save: Sequence[str]) -> BoundOp:
    """The forward with the temporaries of `save` as `aux` outputs, so that an adjoint may read them."""
    have = {t.name: t for t in op.temps}
    moved = tuple(dict.fromkeys(n for n in save if n in have))
    outputs = tuple(replace(have[n], role="output", aux=True) for n in moved)
    return replace(
        op, outputs=(*op.outputs, *outputs), temps=tuple(t for t in op.temps if t.name not in moved)
    )


# ================================================================================================ local derivatives

_LN2, _LN10, _TWO_OVER_SQRT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)

#: Functions whose derivative is zero wherever it exists.
_FLAT = frozenset(("sign", "floor", "ceil", "trunc", "round", "uniform"))
_COMPLEX = frozenset(("complex", "real", "imag", "conj"))


def _bessel_slope(x: Expr, y: Expr) -> Expr:
    """i0e - i1e / x, which at 0 is 1/2."""
    return select(cmp("==", x, _n(0, x)), _n(0.5, x), sub(call("i0e", x), div(y, x)))


#: fn -> (x, y, g) -> cotangent of x, for functions of one argument; `y` is the value, `g` the cotangent of it.
_PARTIALS: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "exp": lambda x, y, g: mul(g, y),
    "exp2": lambda x, y, g: mul(_n(_LN2, g), mul(g, y)),
    "expm1": lambda x, y, g: mul(g, add(y, _n(1, g))),
    "log": lambda x, y, g: div(g, x),
    "log2": lambda x, y, g: div(g, mul(_n(_LN2, g), x)),
    "log10": lambda x, y, g: div(g, mul(_n(_LN10, g), x)),
    "log1p": lambda x, y, g: div(g, add(x, _n(1, g))),
    "sqrt": lambda x, y, g: div(g, mul(_n(2, g), y)),
    "rsqrt": lambda x, y, g: mul(_n(-0.5, g), mul(g, mul(y, mul(y, y)))),
    "sin": lambda x, y, g: mul(g, call("cos", x)),
    "cos": lambda x, y, g: neg(mul(g, call("sin", x))),
    "tan": lambda x, y, g: mul(g, add(mul(y, y), _n(1, g))),
    "asin": lambda x, y, g: div(g, call("sqrt", sub(_n(1, g), mul(x, x)))),
    "acos": lambda x, y, g: neg(div(g, call("sqrt", sub(_n(1, g), mul(x, x))))),
    "atan": lambda x, y, g: div(g, add(mul(x, x), _n(1, g))),
    "sinh": lambda x, y, g: mul(g, call("cosh", x)),
    "cosh": lambda x, y, g: mul(g, call("sinh", x)),
    "tanh": lambda x, y, g: mul(g, sub(_n(1, g), mul(y, y))),
    "asinh": lambda x, y, g: div(g, call("sqrt", add(mul(x, x), _n(1, g)))),
    "acosh": lambda x, y, g: div(g, call("sqrt", sub(mul(x, x), _n(1, g)))),
    "atanh": lambda x, y, g: div(g, sub(_n(1, g), mul(x, x))),
    "sigmoid": lambda x, y, g: mul(mul(g, y), sub(_n(1, g), y)),
    "erf": lambda x, y, g: mul(_n(_TWO_OVER_SQRT_PI, g), mul(g, call("exp", neg(mul(x, x))))),
    "erfc": lambda x, y, g: mul(_n(-_TWO_OVER_SQRT_PI, g), mul(g, call("exp", neg(mul(x, x))))),
    "erfinv": lambda x, y, g: mul(_n(1 / _TWO_OVER_SQRT_PI, g), mul(g, call("exp", mul(y, y)))),
    "lgamma": lambda x, y, g: mul(g, call("digamma", x)),
    "digamma": lambda x, y, g: mul(g, call("trigamma", x)),
    "i0e": lambda x, y, g: mul(g, sub(call("i1e", x), mul(call("sign", x), y))),
    "i1e": lambda x, y, g: mul(g, sub(_bessel_slope(x, y), mul(call("sign", x), y))),
    "abs": lambda x, y, g: mul(g, call("sign", x)),
}
#: Those of them that read their value more than once: it gets a name.
_VALUE_TWICE = frozenset(("rsqrt", "tan", "tanh", "sigmoid", "erfinv", "i1e"))


def _n(value: float, like: Expr) -> Num:
    assert like.dtype is not None
    return num(value, like.dtype)


def _acc(x: Expr) -> DType:
    assert x.dtype is not None
    return accum(x.dtype)


def _wide(x: Expr) -> Expr:
    return cast(x, _acc(x))


def _is_cast(x: Expr) -> bool:
    return isinstance(x, Call) and x.fn not in FUNCTIONS and len(x.args) == 1


def _carriers(x: Expr) -> tuple[Expr, ...]:
    """The parts of `x` through which a derivative flows."""
    match x:
        case Un(op="-", x=a):
            return (a,)
        case Bin(op="+" | "-" | "*" | "/" | "**" | "%", left=a, right=b):
            return (a, b)
        case Select(then=a, other=b):
            return (a, b)
        case Reduce(kind="sum" | "prod" | "max" | "min", body=b):
            return (b,)
        case Call(fn=fn, args=args):
            return () if fn in _FLAT else args
    return ()


# ================================================================================================ terms


@dataclass(frozen=True)
class _Term:
    """A cotangent: `g`, for all values of `axes`, where all of `guards` hold (it is zero elsewhere)."""

    g: Expr
    guards: tuple[Expr, ...]
    axes: frozenset[str]


@dataclass
class _Scope:
    """Where a statement's derivative is written: its axes, where helper statements go, and their recurrence."""

    axes: dict[str, Axis]
    free: frozenset[str]  # those of them that are not reduced over
    emit: list[Statement]
    name: str  # target of the statement: helpers are named after it
    recur: str | None = None
    span: Span | None = None
    values: dict[Expr, Expr] = field(default_factory=dict)

    def pick(self, names: Iterable[str]) -> list[Axis]:
        wanted = set(names)
        return [a for n, a in self.axes.items() if n in wanted]


@dataclass(frozen=True)
class _Gather:
    """A contribution `d_x[names] = g`, for all indices of the tensor."""

    names: tuple[str, ...]
    g: Expr


@dataclass(frozen=True)
class _Scatter:
    """A contribution `d_x[index] += g if guard else skip`, for all `axes`."""

    index: tuple[Expr, ...]
    g: Expr
    guard: Expr | None
    axes: tuple[Axis, ...]


Access = Callable[[Sequence[Expr]], Expr]
Leaf = Callable[[_Scope, Load, _Term], None]

_WEIGHT_OF_CALL, _SHARE_FROM, _SHARE_DEPTH = 8, 8, 24


def _weight(x: Expr) -> int:
    """A rough count of operations: what decides whether a cotangent that goes two ways gets a name."""
    own = 0
    match x:
        case Bin(op="/" | "**"):
            own = _WEIGHT_OF_CALL // 2
        case Call(fn=fn) if fn in FUNCTIONS and FUNCTIONS[fn].ulp > 0:
            own = _WEIGHT_OF_CALL
        case Bin() | Un() | Select() | Cmp() | Call():
            own = 1
        case Load():
            return 0
    return own + sum(_weight(c) for c in children(x))


def _plus(a: Expr, b: Expr) -> Expr:
    """Sum of two contributions; a choice between something and nothing joins its complement.

    (That may keep a -0 which a true sum with 0 would turn into +0: no matter in a cotangent.)
    """
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    match a, b:
        case Select(test=s, then=x, other=z), Select(test=t, then=y, other=w) if is_zero(z) and is_zero(w):
            if s == t:
                return select(s, _plus(x, y), z)
            if t == lnot(s):
                return select(s, x, y)
    return add(a, b)


def _total(xs: Sequence[Expr]) -> Expr:
    out = xs[0]
    for x in xs[1:]:
        out = _plus(out, x)
    return out


def _merge(terms: Sequence[_Term]) -> list[_Term]:
    """One term for each set of axes: common conditions stay outside, the others become choices."""
    groups: dict[frozenset[str], list[_Term]] = {}
    for t in terms:
        groups.setdefault(t.axes, []).append(t)
    out: list[_Term] = []
    for axes, ts in groups.items():
        common = tuple(c for c in ts[0].guards if all(c in t.guards for t in ts[1:]))
        parts = [_guarded(t.g, [c for c in t.guards if c not in common]) for t in ts]
        out.append(_Term(_total(parts), common, axes))
    return out


def _guarded(g: Expr, guards: Sequence[Expr]) -> Expr:
    return select(land(*guards), g, _n(0, g)) if guards else g


def _factor(g: Expr, over: frozenset[str]) -> tuple[list[Callable[[Expr], Expr]], Expr | None]:
    """`g` as factors that do not depend on the indices `over`, to apply to the sum of what is left (None: 1)."""
    if not free_indices(g) & over:
        return [lambda t: mul(g, t)], None
    match g:
        case Un(op="-", x=x):
            outer, inner = _factor(x, over)
            return [*outer, neg], inner
        case Bin(op="*", left=a, right=b):
            (o1, i1), (o2, i2) = _factor(a, over), _factor(b, over)
            inner = i2 if i1 is None else i1 if i2 is None else mul(i1, i2)
            return o1 + o2, inner
        case Bin(op="/", left=a, right=b) if not free_indices(b) & over:
            outer, inner = _factor(a, over)
            return [*outer, lambda t: div(t, b)], inner
    return [], g


# ================================================================================================ the adjoint


def adjoint(op: BoundOp, wrt: Sequence[str], save: Sequence[str] = ()) -> BoundOp:
    """The gradient program `<op>.grad`: given `d<output>` it computes `d<input>` for the inputs of `wrt`.

    Inputs, in this order: what it reads of the forward's inputs (values or only shapes: `notes` says which), of the
    outputs and temporaries named in `save`, and the cotangent of every differentiable output that is not `aux`.
    What else it needs of the forward's values is recomputed by the forward's own statements.
    `with_saved(op, save)` is the forward that goes with it.  Raises NotDifferentiable.
    """
    return _Adjoint(op, wrt, save).build()


def _rename(op: BoundOp, names: Mapping[str, str]) -> BoundOp:
    """The program with outputs and temporaries renamed."""
    if not names:
        return op

    def put(t: Tensor) -> Tensor:
        return replace(t, name=names.get(t.name, t.name))

    return replace(
        op,
        outputs=tuple(put(t) for t in op.outputs),
        temps=tuple(put(t) for t in op.temps),
        body=tuple(rename_statement(s, names) for s in op.body),
    )


class _Adjoint:
    def __init__(self, op: BoundOp, wrt: Sequence[str], save: Sequence[str]) -> None:
        cotangents = cotangent_names(op)
        self.gradients = gradient_names(op, wrt)
        # A forward tensor steps aside for an input or output of its name.
        names = {t.name for t in (*op.inputs, *op.outputs, *op.temps)}
        mine = {*cotangents.values(), *self.gradients.values()}
        moved: dict[str, str] = {}
        for t in (*op.outputs, *op.temps):
            if t.name in mine:
                if t.name in save:
                    raise NotDifferentiable(
                        f"{op.name}: `{t.name}` cannot be saved: the gradient program has a tensor of this name"
                    )
                moved[t.name] = fresh_name(f"{t.name}_f", names | mine | set(moved.values()))
        self.op = op = _rename(op, moved)
        self.cotangents = {moved.get(n, n): c for n, c in cotangents.items()}
        self.tensors = {t.name: t for t in (*op.inputs, *op.outputs, *op.temps)}
        self.dims = {d.name: d for d in op.dims}
        known = {t.name for t in op.inputs} | {t.list_of for t in op.inputs}
        for w in wrt:
            if w not in known and not any(k == w and not v for k, v in op.key.present):
                raise NotDifferentiable(
                    f"{op.name}: no input `{w}` to derive by",
                    hint=f"it has {', '.join(sorted(n for n in known if n))}",
                )
        for n in save:
            if n not in self.tensors:
                raise NotDifferentiable(
                    f"{op.name}: nothing is called `{n}`, which `save` names",
                    hint=f"it has {', '.join(self.tensors)}",
                )
        self.saved = tuple(n for n in dict.fromkeys(save) if self.tensors[n].role != "input")
        for n in self.gradients:
            if self.tensors[n].dtype.is_complex:
                raise NotDifferentiable(
                    f"{op.name}: `{n}` is {self.tensors[n].dtype}: complex gradients are not there yet"
                )
        if not self.gradients:
            raise NotDifferentiable(
                f"{op.name}: none of {', '.join(wrt) or 'no inputs'} has a floating dtype here",
                hint="`grad: {none: …}` says so in the spec",
            )
        self.temps: dict[str, Tensor] = {}
        self.taken = {
            *self.tensors,
            *self.dims,
            *(a.name for a in op.attrs),
            *self.cotangents.values(),
            *self.gradients.values(),
        }
        for s in op.body:
            self.taken |= {a.name for a in s.axes} | {n for n, _ in s.reduced}
        self.out: list[Statement] = []
        self.gathers: dict[str, list[_Gather]] = defaultdict(list)
        self.scatters: dict[str, list[_Scatter]] = defaultdict(list)
        self.writers: dict[str, list[int]] = defaultdict(list)
        for k, s in enumerate(op.body):
            self.writers[s.target].append(k)
        self.own_packs: dict[tuple[str, str], str] = {}
        self.live = self.find_live(frozenset())
        # The derivative by a maximum that only guards against overflow is zero: do not follow it.
        steady = [n for n in maxima(op) if n in self.live and is_shift_free(op, n, self.cotangents)]
        if steady:
            self.live = self.find_live(frozenset(steady))

    # ------------------------------------------------------------------------------------------ which tensors matter
    def carries(
        self, x: Expr, among: set[str] | frozenset[str], order: list[Expr], seen: dict[Expr, bool]
    ) -> bool:
        """Whether a derivative flows from `x` to a load of `among`; `order` gets such parts, children first."""
        if x in seen:
            return seen[x]
        if x.dtype is None or not x.dtype.is_inexact:
            return False
        if isinstance(x, Load):
            found = x.tensor in among
        else:
            found = False
            for c in _carriers(x):
                found |= self.carries(c, among, order, seen)
            if found and (x.dtype.is_complex or (isinstance(x, Call) and x.fn in _COMPLEX)):
                what = f"`{x.fn}`" if isinstance(x, Call) and x.fn in FUNCTIONS else f"a value of {x.dtype}"
                raise self.no(x, f"complex numbers: the derivative of {what} is not there yet")
        seen[x] = found
        if found:
            order.append(x)
        return found

    def flow(self, x: Expr, among: set[str] | frozenset[str]) -> list[Expr]:
        """The distinct parts of `x` that carry a derivative to loads of `among`, children first."""
        order: list[Expr] = []
        self.carries(x, among, order, {})
        return order

    def no(self, at: Expr | Statement | None, what: str) -> NotDifferentiable:
        span = at.assign.span if isinstance(at, Statement) else at.span if at is not None else None
        return NotDifferentiable(
            f"{self.op.name}: {what}",
            place=span.place if span else None,
            hint="declare it (`grad: {compute: …}`) or say `grad: {none: why}`",
        )

    def find_live(self, steady: frozenset[str]) -> frozenset[str]:
        """Tensors between a wanted input and an output with a cotangent; `steady` ones count as constants."""
        active = set(self.gradients)
        edges: list[tuple[str, set[str]]] = []
        while True:
            size = len(active)
            for s in self.op.body:
                if s.target in steady or not self.tensors[s.target].dtype.is_inexact:
                    continue
                if self.flow(s.assign.value, active):
                    active.add(s.target)
            if len(active) == size:
                break
        for s in self.op.body:
            if s.target in active:
                edges.append(
                    (s.target, {x.tensor for x in self.flow(s.assign.value, active) if isinstance(x, Load)})
                )
        useful = set(self.cotangents) & active
        while True:
            size = len(useful)
            for target, read in edges:
                if target in useful:
                    useful |= read
            if len(useful) == size:
                return frozenset(active & useful)

    # ------------------------------------------------------------------------------------------ names and tensors
    def fresh(self, base: str) -> str:
        name = fresh_name(base.replace(".", "_"), self.taken)
        self.taken.add(name)
        return name

    def temp(
        self, scope: _Scope, base: str, value: Expr, names: Iterable[str], reduced: Sequence[Axis] = ()
    ) -> Load:
        """A helper statement over the axes `names`; its load at those indices."""
        wanted = set(names) | ({scope.recur} if scope.recur else set())
        axes = scope.pick(wanted)
        assert value.dtype is not None
        name = self.fresh(base)
        self.temps[name] = Tensor(name, value.dtype, tuple(DimUse(a.extent, a.pack) for a in axes), "temp")
        index = tuple(ref(a) for a in axes)
        scope.emit.append(statement(name, index, value, axes, reduced=reduced, recur=scope.recur))
        return Load(name, index, dtype=value.dtype)

    def own_pack(self, pack: str, tensor: str) -> Expr:
        """The pack of an input's own axes, where a broadcast pack stands for the joined shape."""
        name = self.own_packs.get((pack, tensor))
        if name is None:
            name = self.own_packs[(pack, tensor)] = self.fresh(f"{pack}_{tensor}")
        return Name(name, kind="pack", dtype=DType.I64)

    def own_dims(self, t: Tensor) -> tuple[DimUse, ...]:
        """The dims of an input's gradient: its own, also along a broadcast pack."""
        if t.expand:  # its shape is no matter of packs: `like` says it
            return t.dims
        out: list[DimUse] = []
        for d in t.dims:
            if (
                t.role == "input"
                and d.pack
                and isinstance(d.extent, Name)
                and self.dims[d.extent.id].broadcast
            ):
                d = replace(d, extent=self.own_pack(d.extent.id, t.name))
            out.append(d)
        return tuple(out)

    def gatherable(self, load: Load, scope: _Scope) -> bool:
        """Whether the load walks the whole tensor, each element at one index."""
        names = plain_indices(load.index)
        if names is None:
            return False
        t = self.tensors[load.tensor]
        if t.role == "input" and t.expand:
            return False
        dims = [d for d in t.dims if not d.keep]
        for n, d in zip(names, dims, strict=True):
            if scope.axes[n].extent != d.extent:
                return False
            if (
                t.role == "input"
                and d.pack
                and isinstance(d.extent, Name)
                and self.dims[d.extent.id].broadcast
            ):
                return False
        return True

    def canonical_axes(self, t: Tensor, dims: Sequence[DimUse], names: Sequence[str] | None) -> list[Axis]:
        """Axes that walk `t`, called as in `names` where that is given."""
        mine = [d for d in dims if not d.keep]
        if names is None:
            for k in self.writers.get(t.name, ()):
                names = plain_indices(self.op.body[k].assign.target.index)
                if names is not None:
                    break
        if names is None:
            names = [fresh_name(f"i{k}", self.taken) for k in range(len(mine))]
        return [Axis(n, d.extent, d.pack) for n, d in zip(names, mine, strict=True)]

    # ------------------------------------------------------------------------------------------ cotangents of tensors
    def seed(self, name: str, index: Sequence[Expr]) -> Expr | None:
        cot = self.cotangents.get(name)
        if cot is None:
            return None
        return _wide(Load(cot, tuple(index), dtype=self.tensors[name].dtype))

    def finish(self, name: str) -> Access | None:
        """Write the statements of the cotangent of `name`, whose readers are all behind us; None when it is zero."""
        t = self.tensors[name]
        gathers, scatters = self.gathers.pop(name, []), self.scatters.pop(name, [])
        if not gathers and not scatters:
            if name not in self.cotangents:
                return None

            def given(index: Sequence[Expr]) -> Expr:
                g = self.seed(name, index)
                assert g is not None
                return g

            return given
        acc = accum(t.dtype)
        dims = tuple(replace(d, at=None) for d in t.dims if not d.keep)
        d_name = self.fresh(f"d_{name}")
        self.temps[d_name] = Tensor(d_name, acc, dims, "temp", expand=t.expand, like=t.like)
        self.write(t, d_name, acc, dims, gathers, scatters, base=True)

        def load(index: Sequence[Expr]) -> Expr:
            return Load(d_name, tuple(index), dtype=acc)

        return load

    def write(
        self,
        t: Tensor,
        name: str,
        dtype: DType,
        dims: Sequence[DimUse],
        gathers: Sequence[_Gather],
        scatters: Sequence[_Scatter],
        *,
        base: bool,
    ) -> None:
        """`name` = the sum of the contributions to `t`; `base`: updates start from a written zero."""
        axes = self.canonical_axes(t, dims, gathers[0].names if gathers else None)
        index = tuple(ref(a) for a in axes)
        parts: list[Expr] = []
        given = self.seed(t.name, index)
        if given is not None:
            parts.append(given)
        for c in gathers:
            parts.append(rename_indices(c.g, dict(zip(c.names, index, strict=True))))
        if parts or base or not scatters:
            value = _total(parts) if parts else num(0, accum(dtype))
            self.out.append(statement(name, index, cast(value, dtype), axes))
        for u in scatters:
            self.out.append(statement(name, u.index, u.g, u.axes, mode="+=", guard=u.guard))

    def finish_input(self, name: str) -> None:
        """The gradient of an input: rounded once."""
        t = self.tensors[name]
        gathers, scatters = self.gathers.pop(name, []), self.scatters.pop(name, [])
        dims, acc = self.own_dims(t), accum(t.dtype)
        target = self.gradients[name]
        if not scatters or acc is t.dtype:
            self.write(t, target, t.dtype, dims, gathers, scatters, base=False)
            return
        held = tuple(replace(d, at=None) for d in dims)
        d_name = self.fresh(f"d_{name}")
        self.temps[d_name] = Tensor(
            d_name, acc, held, "temp", expand=t.expand, like=name if t.expand else None
        )
        self.write(t, d_name, acc, held, gathers, scatters, base=True)
        axes = self.canonical_axes(t, dims, gathers[0].names if gathers else None)
        index = tuple(ref(a) for a in axes)
        self.out.append(statement(target, index, cast(Load(d_name, index, dtype=acc), t.dtype), axes))

    # ------------------------------------------------------------------------------------------ expressions
    def scope(self, s: Statement) -> _Scope:
        axes = {a.name: a for a in s.axes} | dict(s.reduced)
        return _Scope(axes, frozenset(a.name for a in s.axes), self.out, s.target, span=s.assign.span)

    def backprop(
        self,
        scope: _Scope,
        value: Expr,
        term: _Term,
        among: frozenset[str],
        own: Load | None,
        leaf: Leaf,
        whole: Callable[[Load, _Scope], bool],
    ) -> None:
        """Push the cotangent `term` of `value` down to its loads of `among`.  `own`: where the value is stored."""
        order = self.flow(value, among)
        if not order:
            return
        carrying = set(order)
        waiting: dict[Expr, list[_Term]] = {value: [term]}
        for node in reversed(order):
            terms = waiting.pop(node, None)
            if not terms:
                continue
            for t in _merge([self.narrow(scope, t, node, whole) for t in terms]):
                if isinstance(node, Load):
                    leaf(scope, node, t)
                    continue
                for part, g, guards in self.push(scope, node, t, carrying, own if node is value else None):
                    axes = t.axes
                    if isinstance(node, Reduce):
                        axes |= {d.id for d in node.indices}
                    if not is_zero(g):
                        waiting.setdefault(part, []).append(
                            _Term(cast(g, _acc(part)), (*t.guards, *guards), axes)
                        )

    def narrow(self, scope: _Scope, t: _Term, node: Expr, whole: Callable[[Load, _Scope], bool]) -> _Term:
        """The term summed over the axes that `node` does not depend on."""
        over = t.axes - free_indices(node)
        if not over:
            return t
        last = isinstance(node, Load) and whole(node, scope)
        # A condition that ties summed to remaining indices goes into the sum, and is lost outside of it: fine where
        # nothing but the sum is used from here on.
        tied = any(free_indices(c) & over and free_indices(c) - over for c in t.guards)
        if tied and not last:
            return t
        outer: list[Callable[[Expr], Expr]] = []
        inner: Expr | None = t.g
        if not tied:
            outer, inner = _factor(t.g, over)
        body = _guarded(inner if inner is not None else _n(1, t.g), t.guards)
        axes = scope.pick(over)
        total: Expr = self.temp(
            scope, f"d_{scope.name}_sum", reduction("sum", axes, body), free_indices(body) - over, axes
        )
        for f in outer:
            total = f(total)
        guards = () if last and not outer else tuple(c for c in t.guards if not free_indices(c) & over)
        return _Term(total, guards, t.axes - over)

    def leaf(self, scope: _Scope, load: Load, t: _Term) -> None:
        if self.gatherable(load, scope):
            names = plain_indices(load.index)
            assert names is not None and not t.axes - set(names)
            self.gathers[load.tensor].append(_Gather(names, _guarded(t.g, t.guards)))
            return
        guard = land(*t.guards) if t.guards else None
        axes = tuple(scope.pick(t.axes | free_indices(load)))
        self.scatters[load.tensor].append(_Scatter(load.index, t.g, guard, axes))

    def value(self, scope: _Scope, x: Expr, t: _Term, own: Load | None, *, twice: bool) -> Expr:
        """The forward value of `x`, widened: where it is stored, or anew (with a name when that saves calls)."""
        if own is not None:
            return _wide(own)
        inner = any(is_costly(c) for part in children(x) for c in walk(part))
        plain = all(plain_indices(ld.index) is not None for ld in loads(x))
        if (
            not (twice or inner)
            or not free_indices(x) <= scope.free
            or (t.guards and not plain)
            or scope.recur
        ):
            return _wide(x)
        return _wide(self.named(scope, x))

    def named(self, scope: _Scope, x: Expr) -> Expr:
        """A load of a helper that holds `x`, calls inside it named first."""
        if x not in scope.values:

            def put(e: Expr) -> Expr:
                return self.named(scope, e) if is_costly(e) else map_children(e, put)

            scope.values[x] = self.temp(scope, f"{scope.name}_value", map_children(x, put), free_indices(x))
        return scope.values[x]

    def push(
        self,
        scope: _Scope,
        x: Expr,
        t: _Term,
        carrying: set[Expr],
        own: Load | None,
    ) -> list[tuple[Expr, Expr, tuple[Expr, ...]]]:
        """(part, its cotangent, further conditions) for each part of `x` that carries a derivative."""
        g = t.g
        ways = sum(1 for c in _carriers(x) if c in carrying)
        deep = depth(g) >= _SHARE_DEPTH
        heavy = ways > 1 and _weight(g) >= _SHARE_FROM and t.axes <= scope.free and not isinstance(x, Select)
        if deep or heavy:
            g = self.temp(scope, f"d_{scope.name}_part", _guarded(g, t.guards), t.axes)
        out: list[tuple[Expr, Expr, tuple[Expr, ...]]] = []

        def give(part: Expr, cotangent: Callable[[], Expr], *guards: Expr) -> None:
            if part in carrying:
                out.append((part, cotangent(), guards))

        match x:
            case Un(op="-", x=a):
                give(a, lambda: neg(g))
            case Bin(op="+", left=a, right=b):
                give(a, lambda: g)
                give(b, lambda: g)
            case Bin(op="-", left=a, right=b):
                give(a, lambda: g)
                give(b, lambda: neg(g))
            case Bin(op="*", left=a, right=b):
                give(a, lambda: mul(g, _wide(b)))
                give(b, lambda: mul(g, _wide(a)))
            case Bin(op="/", left=a, right=b):
                give(a, lambda: div(g, _wide(b)))
                give(b, lambda: neg(mul(div(g, _wide(b)), self.value(scope, x, t, own, twice=False))))
            case Bin(op="%", left=a, right=b):
                give(a, lambda: g)
                give(b, lambda: neg(mul(g, call("floor", div(_wide(a), _wide(b))))))
            case Bin(op="**", left=a, right=b) | Call(fn="pow", args=(a, b)):
                give(a, lambda: _power_base(a, b, g))
                give(b, lambda: self.power_exponent(scope, x, a, b, t, own))
            case Select(test=test, then=a, other=b):
                give(a, lambda: g, test)
                give(b, lambda: g, lnot(test))
            case Reduce():
                out += self.reduction(scope, x, t, own)
            case Call(args=(a,)) if _is_cast(x):
                give(a, lambda: g)
            case Call(fn="atan2", args=(a, b)):
                u, v = _wide(a), _wide(b)
                square = add(mul(u, u), mul(v, v))
                give(a, lambda: mul(g, div(v, square)))
                give(b, lambda: neg(mul(g, div(u, square))))
            case Call(fn="fmod", args=(a, b)):
                give(a, lambda: g)
                give(b, lambda: neg(mul(g, call("trunc", div(_wide(a), _wide(b))))))
            case Call(fn="max" | "min" as fn, args=args):
                out += self.extremum(fn, x, args, g, carrying)
            case Call(fn="fmax" | "fmin" as fn, args=(a, b)):
                first = lor(cmp(">=" if fn == "fmax" else "<=", a, b), call("isnan", b, dtype=DType.BOOL))
                give(a, lambda: g, first)
                give(b, lambda: g, lnot(first))
            case Call(fn=fn, args=(a,)) if fn in _PARTIALS:
                give(
                    a,
                    lambda: _PARTIALS[fn](
                        _wide(a), self.value(scope, x, t, own, twice=fn in _VALUE_TWICE), g
                    ),
                )
            case _:
                raise self.no(x, f"no derivative of `{type(x).__name__}`")
        return out

    def power_exponent(self, scope: _Scope, x: Expr, a: Expr, b: Expr, t: _Term, own: Load | None) -> Expr:
        """`y * log(a)`; 0 where a power of 0 stays 0."""
        wide = _wide(a)
        d = mul(t.g, mul(self.value(scope, x, t, own, twice=False), call("log", wide)))
        still = land(cmp("==", wide, _n(0, wide)), cmp(">=", b, num(0, b.dtype or DType.F64)))
        return select(still, _n(0, t.g), d)

    def extremum(
        self,
        fn: str,
        x: Expr,
        args: tuple[Expr, ...],
        g: Expr,
        carrying: set[Expr],
    ) -> list[tuple[Expr, Expr, tuple[Expr, ...]]]:
        """max and min of arguments: shared evenly between those that are equal."""
        out: list[tuple[Expr, Expr, tuple[Expr, ...]]] = []
        if len(args) == 2:
            for a, b in (args, args[::-1]):
                if a in carrying:
                    loses = cmp("<" if fn == "max" else ">", a, b)
                    out.append((a, select(cmp("==", a, b), mul(_n(0.5, g), g), g), (lnot(loses),)))
            return out
        count = _one_if(cmp("==", args[0], x))
        for a in args[1:]:
            count = add(count, _one_if(cmp("==", a, x)))
        return [(a, div(g, _number_of(count, _acc(g))), (cmp("==", a, x),)) for a in args if a in carrying]

    # ------------------------------------------------------------------------------------------ reductions
    def stored(self, scope: _Scope, x: Reduce, own: Load | None) -> Expr:
        if own is not None:
            return own
        if x not in scope.values:
            axes = [scope.axes[d.id] for d in x.indices]
            scope.values[x] = self.temp(scope, f"{scope.name}_{x.kind}", x, free_indices(x), axes)
        return scope.values[x]

    def reduction(
        self, scope: _Scope, x: Reduce, t: _Term, own: Load | None
    ) -> list[tuple[Expr, Expr, tuple[Expr, ...]]]:
        body, acc = x.body, _acc(t.g)
        axes = [scope.axes[d.id] for d in x.indices]
        free = free_indices(x)
        match x.kind:
            case "sum":
                return [(body, t.g, ())]
            case "max" | "min":
                best = self.stored(scope, x, own)
                hit = cmp("==", body, best)
                count = self.temp(
                    scope, f"{scope.name}_ties", reduction("sum", axes, _one_if(hit)), free, axes
                )
                return [(body, div(t.g, _number_of(count, acc)), (hit,))]
        v = _wide(body)
        zero = cmp("==", body, num(0, body.dtype or acc))
        rest = self.temp(
            scope, f"{scope.name}_nonzero", reduction("prod", axes, select(zero, num(1, acc), v)), free, axes
        )
        many = self.temp(scope, f"{scope.name}_zeros", reduction("sum", axes, _one_if(zero)), free, axes)
        zeros = self.temp(
            scope, f"{scope.name}_zero", reduction("sum", axes, select(zero, v, num(0, acc))), free, axes
        )
        return [(body, mul(t.g, _others(v, zero, rest, many, zeros)), ())]

    # ------------------------------------------------------------------------------------------ statements
    def own_value(self, s: Statement) -> Load | None:
        """The load of what the statement stored, when that is its value and nothing else."""
        a, t = s.assign, self.tensors[s.target]
        if (
            a.mode != "="
            or a.guard is not None
            or len(self.writers[s.target]) > 1
            or a.value.dtype is not t.dtype
        ):
            return None
        names = plain_indices(a.target.index)
        # Along an index that the value does not depend on, its cotangent has been summed: the load would bring it back.
        if names is None or not set(names) <= free_indices(a.value):
            return None
        return Load(s.target, a.target.index, dtype=t.dtype)

    def run(self) -> None:
        body = self.op.body
        access: dict[str, Access | None] = {}
        helpers: dict[str, tuple[str, ...]] = {}
        k = len(body) - 1
        while k >= 0:
            s = body[k]
            if s.recur is not None:
                first = self.group_start(k)
                self.recurrence(body[first : k + 1])
                k = first - 1
                continue
            k -= 1
            if s.target not in self.live:
                continue
            if s.target not in access:
                self.check_order(s)
                access[s.target] = self.finish(s.target)
                if access[s.target] is not None:
                    helpers[s.target] = self.update_helpers(s.target)
            take = access[s.target]
            if take is not None:
                self.statement(s, take, helpers[s.target])
        for name in self.gradients:
            self.finish_input(name)

    def check_order(self, s: Statement) -> None:
        """All readers of a tensor come after its last update (else its cotangent would be several)."""
        last = self.writers[s.target][-1]
        for k, other in enumerate(self.op.body[:last]):
            if (
                other.target in self.live
                and k not in self.writers[s.target]
                and any(
                    ld.tensor == s.target
                    for ld in self.flow(other.assign.value, self.live)
                    if isinstance(ld, Load)
                )
            ):
                raise self.no(other, f"`{s.target}` is read here and updated later")

    def statement(self, s: Statement, take: Access, helpers: tuple[str, ...]) -> None:
        a, scope = s.assign, self.scope(s)
        g = take(a.target.index)
        guards: tuple[Expr, ...] = (a.guard,) if a.guard is not None else ()
        updates = self.update_modes(s.target)
        value = a.value
        mode = updates[0] if updates else a.mode
        match mode:
            case "=" | "+=":
                pass
            case "set":
                guards += self.survives(s, helpers)
            case "max" | "min":
                value = self.plain_value(scope, value)
                best = Load(s.target, a.target.index, dtype=self.tensors[s.target].dtype)
                g = div(g, _number_of(Load(helpers[0], a.target.index, dtype=DType.I64), _acc(g)))
                guards += (cmp("==", value, best),)
            case "*=":
                value = self.plain_value(scope, value)
                v = _wide(value)
                rest, many, zeros = (Load(h, a.target.index, dtype=self.temps[h].dtype) for h in helpers)
                g = mul(
                    g,
                    _others(
                        v, cmp("==", value, num(0, value.dtype or v.dtype or DType.F64)), rest, many, zeros
                    ),
                )
            case _:
                raise self.no(s, f"no derivative of updates by `{mode}`")
        term = _Term(g, guards, scope.free)
        self.backprop(scope, a.value, term, self.live, self.own_value(s), self.leaf, self.gatherable)

    def update_modes(self, name: str) -> list[str]:
        return [self.op.body[k].assign.mode for k in self.writers[name] if self.op.body[k].assign.mode != "="]

    def plain_value(self, scope: _Scope, value: Expr) -> Expr:
        """The value of a statement, as something that may stand in an expression."""
        return self.stored(scope, value, None) if isinstance(value, Reduce) else value

    def update_helpers(self, name: str) -> tuple[str, ...]:
        """Tensors beside `name` that say what became of each write: who was last, how many tie, their product."""
        modes = self.update_modes(name)
        if not modes or modes[0] in ("+=", "any", "all"):
            return ()
        t = self.tensors[name]
        acc = accum(t.dtype)
        dims = tuple(replace(d, at=None) for d in t.dims if not d.keep)
        statements = [self.op.body[k] for k in self.writers[name]]

        def helper(base: str, dtype: DType) -> str:
            n = self.fresh(base)
            self.temps[n] = Tensor(n, dtype, dims, "temp")
            return n

        def copy(s: Statement, n: str, mode: str, value: Expr) -> None:
            self.out.append(
                statement(
                    n,
                    s.assign.target.index,
                    value,
                    s.axes,
                    mode="=" if s.assign.mode == "=" else mode,
                    guard=s.assign.guard,
                )
            )

        if modes[0] == "set":
            out: list[str] = []
            for s in statements:
                if s.assign.mode == "=":
                    continue
                n = helper(f"{name}_last", DType.I64)
                axes = self.canonical_axes(t, dims, None)
                self.out.append(statement(n, tuple(ref(x) for x in axes), num(-1, DType.I64), axes))
                copy(s, n, "max", _position(s.axes))
                out.append(n)
            return tuple(out)
        if modes[0] in ("max", "min"):
            n = helper(f"{name}_ties", DType.I64)
            for s in statements:
                v = self.plain_value(self.scope(s), s.assign.value)
                best = Load(name, s.assign.target.index, dtype=t.dtype)
                copy(s, n, "+=", _one_if(cmp("==", v, best)))
            return (n,)
        assert modes[0] == "*="
        rest, many, zeros = (
            helper(f"{name}_nonzero", acc),
            helper(f"{name}_zeros", DType.I64),
            helper(f"{name}_zero", acc),
        )
        for s in statements:
            v = self.plain_value(self.scope(s), s.assign.value)
            zero = cmp("==", v, num(0, v.dtype or acc))
            copy(s, rest, "*=", select(zero, num(1, acc), _wide(v)))
            copy(s, many, "+=", _one_if(zero))
            copy(s, zeros, "+=", select(zero, _wide(v), num(0, acc)))
        return rest, many, zeros

    def survives(self, s: Statement, last: tuple[str, ...]) -> tuple[Expr, ...]:
        """When what `s` wrote is not overwritten: it is the last of its kind, and none of a later kind wrote."""
        sets = [k for k in self.writers[s.target] if self.op.body[k].assign.mode == "set"]
        me = next((n for n, k in enumerate(sets) if self.op.body[k] is s), -1)
        index = s.assign.target.index
        out: list[Expr] = []
        if me >= 0:
            out.append(cmp("==", Load(last[me], index, dtype=DType.I64), _position(s.axes)))
        for n in last[me + 1 :]:
            out.append(cmp("<", Load(n, index, dtype=DType.I64), num(0, DType.I64)))
        return tuple(out)

    # ------------------------------------------------------------------------------------------ recurrences
    def group_start(self, end: int) -> int:
        """Index of the first statement of the recurrence that ends at `end`: neighbours that read one another."""
        body = self.op.body
        first = end
        while first > 0 and body[first - 1].recur == body[end].recur:
            first -= 1
        for cut in range(end, first, -1):
            later = {s.target for s in body[cut : end + 1]}
            if not any(ld.tensor in later for s in body[first:cut] for ld in statement_loads(s)):
                return cut
        return first

    def recurrence(self, group: Sequence[Statement]) -> None:
        """The adjoint runs backwards: step r has the cotangent of `u[N - 1 - r]`, so it reads earlier steps only."""
        members = [s for s in group if s.target in self.live]
        if not members:
            return
        names = frozenset(s.target for s in members)
        t_name = members[0].recur
        assert t_name is not None
        extent = members[0].axis(t_name).extent
        r = Axis(self.fresh(f"{t_name}_back"), extent)
        back = ref(r)
        last = sub(extent, num(1, DType.I64))
        now = Bin("-", last, back, dtype=DType.I64)  # the t of step r
        then = Bin("-", last, ref(Axis(t_name, extent)), dtype=DType.I64)  # the r of step t
        spot: dict[str, int] = {}
        outside: dict[str, Access | None] = {}
        held: dict[str, str] = {}
        for s in members:
            plain = plain_indices(s.assign.target.index)
            if (
                len(self.writers[s.target]) > 1
                or s.assign.mode != "="
                or s.assign.guard is not None
                or plain is None
                or t_name not in plain
                or s.axis(t_name).extent != extent
            ):
                raise self.no(
                    s, f"the recurrence of `{s.target}` is not one plain definition for each `{t_name}`"
                )
            spot[s.target] = plain.index(t_name)
            outside[s.target] = self.finish(s.target)
            held[s.target] = self.fresh(f"d_{s.target}_back")
            t = self.tensors[s.target]
            self.temps[held[s.target]] = Tensor(
                held[s.target],
                accum(t.dtype),
                tuple(replace(d, at=None) for d in t.dims if not d.keep),
                "temp",
            )
        inside: dict[str, list[_Gather]] = defaultdict(list)
        helpers: dict[str, list[Statement]] = {}

        def step(load: Load) -> int:
            """c of a load at `t - c`."""
            match load.index[spot[load.tensor]]:
                case e if e == now:
                    return 0
                case Bin(op="-", left=e, right=Num(value=int() as c)) if e == now and c > 0:
                    return c
            raise self.no(load, f"`{load.tensor}` is read at an index other than `{t_name} - constant`")

        def at_step(load: Load) -> tuple[Expr, ...]:
            k = spot[load.tensor]
            return (*load.index[:k], back, *load.index[k + 1 :])

        def whole(load: Load, scope: _Scope) -> bool:
            return self.gatherable(replace(load, index=at_step(load)), scope)

        def leaf(scope: _Scope, load: Load, term: _Term) -> None:
            if not whole(load, scope):
                raise self.no(load, f"`{load.tensor}` is read at computed places inside its recurrence")
            index = plain_indices(at_step(load))
            assert index is not None
            c, g = step(load), _guarded(term.g, term.guards)
            if c:
                shifted = rename_indices(g, {r.name: Bin("-", back, num(c, DType.I64), dtype=DType.I64)})
                g = select(cmp(">=", back, num(c, DType.I64)), shifted, _n(0, g))
            inside[load.tensor].append(_Gather(index, g))

        for s in members:
            axes = {
                (r.name if n == t_name else n): (r if n == t_name else a)
                for n, a in self.scope(s).axes.items()
            }
            helpers[s.target] = []
            scope = _Scope(
                axes,
                frozenset(r.name if a.name == t_name else a.name for a in s.axes),
                helpers[s.target],
                s.target,
                r.name,
                s.assign.span,
            )
            index = tuple(back if n == spot[s.target] else e for n, e in enumerate(s.assign.target.index))
            g = Load(held[s.target], index, dtype=accum(self.tensors[s.target].dtype))
            value = rename_indices(s.assign.value, {t_name: now})
            self.backprop(scope, value, _Term(g, (), scope.free), names, None, leaf, whole)
        for s in reversed(members):
            u = s.target
            plain = plain_indices(s.assign.target.index)
            assert plain is not None
            mine = [r if n == t_name else s.axis(n) for n in plain]
            index = tuple(ref(a) for a in mine)
            take = outside[u]
            parts = (
                [] if take is None else [take(tuple(now if k == spot[u] else e for k, e in enumerate(index)))]
            )
            parts += [rename_indices(c.g, dict(zip(c.names, index, strict=True))) for c in inside[u]]
            value = _total(parts) if parts else num(0, accum(self.tensors[u].dtype))
            self.out.append(statement(held[u], index, value, mine, recur=r.name))
            self.out += helpers[u]
        for s in reversed(members):
            scope = self.scope(s)
            index = tuple(then if n == spot[s.target] else e for n, e in enumerate(s.assign.target.index))
            g = Load(held[s.target], index, dtype=accum(self.tensors[s.target].dtype))
            self.backprop(
                scope,
                s.assign.value,
                _Term(g, (), scope.free),
                self.live - names,
                self.own_value(s),
                self.leaf,
                self.gatherable,
            )

    # ------------------------------------------------------------------------------------------ the program
    def build(self) -> BoundOp:
        self.run()
        op = self.op
        recomputed = self.recompute()
        saved = [replace(self.tensors[n], role="input", aux=False, like=None) for n in self.saved]
        cots = [
            replace(self.tensors[n], name=c, role="input", aux=False, like=None)
            for n, c in self.cotangents.items()
        ]
        outputs: list[Tensor] = []
        for n, d in self.gradients.items():
            t = self.tensors[n]
            outputs.append(
                replace(
                    t,
                    name=d,
                    role="output",
                    aux=False,
                    dims=self.own_dims(t),
                    like=n if t.expand else None,
                    list_of=f"d{t.list_of}" if t.list_of else None,
                )
            )
        order = sorted(k for n in recomputed for k in self.writers[n])
        temps = [
            replace(
                self.tensors[n],
                role="temp",
                aux=False,
                dims=tuple(replace(d, at=None) for d in self.tensors[n].dims if not d.keep),
            )
            for n in recomputed
        ]
        draft = BoundOp(
            name=f"{op.name}.grad",
            key=op.key,
            inputs=(*op.inputs, *saved, *cots),
            outputs=tuple(outputs),
            temps=(*temps, *self.temps.values()),
            attrs=op.attrs,
            dims=op.dims,
            rules=op.rules,
            body=(*(op.body[k] for k in order), *self.out),
        )
        draft = simplify(draft)
        out = self.signature(
            draft, {t.name for t in op.inputs}, {t.name for t in saved}, {t.name for t in cots}
        )
        verify(out)
        return out

    def recompute(self) -> list[str]:
        """Forward tensors that the adjoint reads and nobody gives it, with what they are made of."""
        given = {t.name for t in self.op.inputs} | set(self.saved)
        mine = {*self.temps, *self.cotangents.values(), *self.gradients.values()}
        need: set[str] = set()
        todo = [ld.tensor for s in self.out for ld in statement_loads(s) if ld.tensor not in mine]
        while todo:
            n = todo.pop()
            if n in given or n in need:
                continue
            need.add(n)
            for k in self.writers[n]:
                todo += [ld.tensor for ld in statement_loads(self.op.body[k])]
                first = self.op.body[k]
                if first.recur is not None:  # a recurrence is recomputed as a whole
                    todo += [s.target for s in self.op.body if s.recur == first.recur]
        return [n for n in self.tensors if n in need]

    def signature(self, op: BoundOp, forward: set[str], saved: set[str], cots: set[str]) -> BoundOp:
        """Keep the inputs that are read or without which a shape is unknown; solve the dims from those."""
        reads = {ld.tensor for s in op.body for ld in statement_loads(s)}
        keep = (forward | saved) & reads
        tensors = {t.name: t for t in op.inputs}
        mentioned = self.mentioned_dims(op, reads)
        own = {name: key for key, name in self.own_packs.items() if name in mentioned}
        keep |= {tensor for _, tensor in own.values()}
        keep |= {t.like for t in (*op.outputs, *op.temps) if t.like is not None}
        while True:
            lists = {tensors[n].list_of for n in keep} - {None}
            keep |= {t.name for t in op.inputs if t.list_of in lists}
            inputs = [t for t in op.inputs if t.name in keep or t.name in cots]
            out, needed = _solve_dims(self.op.dims, mentioned, inputs, self.gradients)
            if needed is None:
                break
            if not needed:
                raise self.no(None, "some extents of the gradient follow from none of its inputs")
            keep |= needed
        for name, (pack, tensor) in own.items():
            t = tensors[tensor]
            at = next(
                k
                for k, d in enumerate(t.dims)
                if d.pack and isinstance(d.extent, Name) and d.extent.id == pack
            )
            out.append(Dim(name, pack=True, rank=self.dims[pack].rank, sources=((tensor, at),)))
        final = tuple(
            [d for d in out if d.expr is None]
            + [d for d in out if d.expr is not None and not d.data]
            + [d for d in out if d.data]
        )
        have = {d.name for d in final}
        names = {t.name for t in inputs}
        rules = tuple(
            r
            for r in op.rules
            if {ld.tensor for ld in loads(r.expr)} <= names
            and _dims_in((r.expr, *(a.extent for a in r.axes))) <= have
        )
        shape_only = [t.name for t in inputs if t.name not in reads]
        notes = (f"only the shape is read of: {', '.join(shape_only)}",) if shape_only else ()
        return replace(
            op,
            inputs=tuple(inputs),
            dims=final,
            rules=rules,
            slots=tuple((t.name, k) for k, t in enumerate(inputs)),
            notes=notes,
        )

    def mentioned_dims(self, op: BoundOp, reads: set[str]) -> set[str]:
        """Dims that statements and the tensors they use mention."""
        exprs: list[Expr] = [d.extent for t in (*op.outputs, *op.temps) for d in t.dims]
        exprs += [d.extent for t in op.inputs if t.name in reads for d in t.dims]
        for s in op.body:
            exprs += statement_exprs(s)
            exprs += [a.extent for a in s.axes] + [a.extent for _, a in s.reduced]
        return _dims_in(exprs)


def _dims_in(xs: Iterable[Expr]) -> set[str]:
    return {n.id for x in xs for n in walk(x) if isinstance(n, (Name, Item)) and n.kind in ("dim", "pack")}


def _solve_dims(
    forward: Sequence[Dim],
    mentioned: set[str],
    inputs: Sequence[Tensor],
    prefer: Mapping[str, str],
) -> tuple[list[Dim], set[str] | None]:
    """The dims that the program and its inputs mention, with sources among `inputs`, and None; else the inputs to add.

    prefer: inputs to take rather than others where any will do.  Nothing to add is the answer where nothing would help.
    """
    place = {t.name: t for t in inputs}
    given: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for t in inputs:
        for k, u in enumerate(t.dims):
            if isinstance(u.extent, Name) and not u.keep and not t.expand:
                given[u.extent.id].append((t.name, k))
    wanted = mentioned | _dims_in(u.extent for t in inputs for u in t.dims)
    for d in reversed(forward):  # what a derived extent is made of, unless an input simply has it
        if d.name in wanted and d.rank is not None:
            wanted |= _dims_in((d.rank,))
        if d.name in wanted and d.expr is not None and d.name not in given:
            wanted |= _dims_in((d.expr,))
    out: list[Dim] = []
    ranked = {d.name for d in forward if d.pack and d.rank is not None}

    def alone(source: tuple[str, int], name: str) -> bool:
        """Whether this source tells the rank of a pack: none other of it is open (attributes tell that of `*N@dim`)."""
        dims = place[source[0]].dims
        packs = {
            u.extent.id for u in dims if u.pack and not u.keep and u.at is None and isinstance(u.extent, Name)
        }
        return dims[source[1]].at is not None or packs - {name} <= ranked

    for d in forward:
        if d.name not in wanted:
            continue
        if d.expr is not None:
            reads = {ld.tensor for ld in loads(d.expr)}
            known = _dims_in((d.expr,)) <= {x.name for x in out} and reads <= place.keys()
            if given[d.name] and (d.data or not known):
                out.append(replace(d, expr=None, data=False, sources=tuple(given[d.name])))
            elif known:
                out.append(d)
            else:
                return out, reads - place.keys()
            continue
        first = [s for s in d.sources if s[0] in place and not place[s[0]].expand]
        found = first + [s for s in given[d.name] if s not in first]
        absent = [n for n, _ in d.sources if n not in place]
        # The shape of a broadcast is that of any result that has it, or of all its parts together.
        if d.broadcast and len(found) == len(first) and absent:
            return out, set(absent)
        if d.pack and d.rank is None:
            found.sort(key=lambda s: not alone(s, d.name))
        if not found or (d.pack and d.rank is None and not alone(found[0], d.name)):
            better = [n for n in absent if n in prefer] or absent
            return out, set(better[:1])
        ranked.add(d.name)
        out.append(replace(d, sources=tuple(found), broadcast=d.broadcast and len(found) > 1))
    return out, None


def _power_base(a: Expr, b: Expr, g: Expr) -> Expr:
    """`g * b * a ** (b - 1)`; 0 where b is 0."""
    x = _wide(a)
    if isinstance(b, Num):
        n = b.value
        if n == 0:
            return _n(0, g)
        if n == 1:
            return g
        if n == 2:
            return mul(g, mul(_n(2, g), x))
        lower = num(n - 1, b.dtype or DType.F64)
        return mul(g, mul(_n(n, g), Bin("**", x, lower, dtype=g.dtype)))
    e = _wide(b)
    one = num(1, b.dtype or DType.F64)
    power = Bin("**", x, cast(Bin("-", b, one, dtype=b.dtype), _acc(b)), dtype=g.dtype)
    return select(cmp("==", b, num(0, b.dtype or DType.F64)), _n(0, g), mul(g, mul(cast(e, _acc(g)), power)))


def _others(v: Expr, zero: Expr, rest: Expr, many: Expr, zeros: Expr) -> Expr:
    """The product of all factors but `v`: of those not 0 `rest` is the product, of the others `many` the number.

    `zeros` is the sum of these: 0, with the derivatives that make second derivatives right where a factor is 0.
    """

    def count(k: int) -> Expr:
        return cmp("==", many, num(k, DType.I64))

    o = _n(0, v)
    when_zero = select(count(1), rest, select(count(2), mul(rest, sub(zeros, v)), o))
    quotient = div(rest, v)
    when_not = select(count(0), quotient, select(count(1), mul(quotient, zeros), o))
    return select(zero, when_zero, when_not)


def _one_if(test: Expr) -> Expr:
    """For counting: exact, as an integer."""
    return select(test, num(1, DType.I64), num(0, DType.I64))


def _number_of(ties: Expr, dtype: DType) -> Expr:
    """A count of ties to divide by.  It is 0 only beside nan, and where the oracle cannot tell whether values tie."""
    return cast(call("max", ties, num(1, DType.I64)), dtype)


def _position(axes: Sequence[Axis]) -> Expr:
    """Row-major position of a statement's indices: which of its writes comes when."""
    out: Expr | None = None
    for a in axes:
        if a.pack:
            assert isinstance(a.extent, Name)
            here: Expr = Call("linear", (ref(a),), dtype=DType.I64)
            size: Expr = Fold("prod", a.extent, dtype=DType.I64)
        else:
            here, size = ref(a), a.extent
        out = here if out is None else Bin("+", Bin("*", out, size, dtype=DType.I64), here, dtype=DType.I64)
    return out if out is not None else num(0, DType.I64)


# ================================================================================================ cost


@dataclass(frozen=True)
class Cost:
    """Operations of a program at given extents: additions and the like; calls (exp …); elements of temporaries."""

    plain: int = 0
    calls: int = 0
    elements: int = 0

    @property
    def total(self) -> int:
        """One call counts as eight plain operations."""
        return self.plain + _WEIGHT_OF_CALL * self.calls


Sizes = Mapping[str, int | Sequence[int]]


def cost(op: BoundOp, sizes: Sizes, attrs: Mapping[str, int | float] | None = None) -> Cost:
    """What `op` costs at `sizes` (dim -> extent, pack -> extents) when nothing is computed more often than needed.

    Each part of a statement counts once for each value of the indices it depends on; conditions narrow nothing.
    """
    extents: dict[str, int | tuple[int, ...]] = {
        k: int(v) if isinstance(v, int) else tuple(int(e) for e in v) for k, v in sizes.items()
    }
    values = dict(attrs or {})
    for d in op.dims:
        if d.name not in extents and d.expr is not None:
            extents[d.name] = _extent(d.expr, extents, values)
    plain = calls = elements = 0
    for s in op.body:
        axes = {a.name: a.extent for a in s.axes} | {n: a.extent for n, a in s.reduced}
        size = {n: _extent(e, extents, values) for n, e in axes.items()}

        def times(names: Iterable[str], size: dict[str, int] = size) -> int:
            return math.prod(size[n] for n in names)

        seen: set[Expr] = set()

        def count(x: Expr, seen: set[Expr] = seen, times: Callable[[Iterable[str]], int] = times) -> None:
            nonlocal plain, calls
            if x in seen:
                return
            seen.add(x)
            match x:
                case Load() | Decl() | Star():
                    return
                case Reduce(body=b, indices=ds):
                    plain += times(free_indices(x) | {d.id for d in ds})
                    count(b)
                    return
                case Call(fn=fn) if fn in FUNCTIONS and FUNCTIONS[fn].ulp > 0.5:
                    calls += times(free_indices(x))
                case Bin() | Un() | Call() | Select() if (
                    x.dtype is not None and x.dtype.is_inexact and not _is_cast(x)
                ):
                    plain += times(free_indices(x))
            for c in children(x):
                count(c)

        for e in (s.assign.value, *([s.assign.guard] if s.assign.guard is not None else [])):
            count(e)
        if s.assign.mode != "=":
            plain += times(a.name for a in s.axes)
    for t in op.temps:
        elements += math.prod(_extent(d.extent, extents, values) for d in t.dims if not d.keep)
    return Cost(plain, calls, elements)


def _extent(x: Expr, sizes: Mapping[str, int | tuple[int, ...]], attrs: Mapping[str, int | float]) -> int:
    """The value of an extent; of a pack, the product of its axes."""
    match x:
        case Num(value=v):
            return int(v)
        case Name(id=n) if n in sizes:
            have = sizes[n]
            return have if isinstance(have, int) else math.prod(have)
        case Name(id=n) if n in attrs:
            return int(attrs[n])
        case Item(id=n, lane=k) if f"{n}[{k}]" in attrs:
            return int(attrs[f"{n}[{k}]"])
        case Fold(kind="prod", body=b):
            return _extent(b, sizes, attrs)
        case Un(op="-", x=a):
            return -_extent(a, sizes, attrs)
        case Bin(op=op, left=a, right=b):
            u, v = _extent(a, sizes, attrs), _extent(b, sizes, attrs)
            match op:
                case "+":
                    return u + v
                case "-":
                    return u - v
                case "*":
                    return u * v
                case "//":
                    return u // v
                case "%":
                    return u % v
        case Call(fn="max", args=args):
            return max(_extent(a, sizes, attrs) for a in args)
        case Call(fn="min", args=args):
            return min(_extent(a, sizes, attrs) for a in args)
    raise ValueError(f"no value for the extent `{x!r}`")


def check_cost(
    forward: BoundOp,
    gradient: BoundOp,
    sizes: Sizes,
    attrs: Mapping[str, int | float] | None = None,
    *,
    factor: float = 4.0,
) -> float:
    """Cost of the gradient over that of the forward.  Raises GradError when it is more than `factor`."""
    f, g = cost(forward, sizes, attrs), cost(gradient, sizes, attrs)
    ratio = g.total / max(f.total, 1)
    if ratio > factor:
        raise GradError(
            f"{gradient.name} costs {ratio:.1f} times its forward ({g.total} operations against {f.total})",
            hint="save more (`grad: {save: […]}`), or declare the gradient",
        )
    return ratio
