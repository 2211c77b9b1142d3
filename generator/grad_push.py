"""The cotangent of a value, pushed down to the loads in it.

`Push` is the lower floor of `grad.py`'s pass: it holds the tensors, names and statements made so far, and goes through
one expression; what becomes of a cotangent at a load is `leaf`'s.

May import: expr, bound, types, normal, shifts, simplify, errors, grad_rules.  To add a node of the language: a case of
`Push.push`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from .bound import Axis, BoundOp, DimUse, Statement, Tensor
from .expr import (
    FUNCTIONS,
    Bin,
    Call,
    Expr,
    Load,
    Name,
    Reduce,
    Select,
    Un,
    children,
    map_children,
    walk,
)
from .grad_rules import (
    COMPLEX,
    PARTIALS,
    SHARE_DEPTH,
    SHARE_FROM,
    VALUE_TWICE,
    Gather,
    Leaf,
    NotDifferentiable,
    Scatter,
    Scope,
    Term,
    acc_dtype,
    carriers,
    factored,
    guarded,
    is_cast,
    merged,
    num_like,
    number_of,
    one_if,
    power_base,
    product_of_others,
    weight_of,
    widened,
)
from .normal import free_indices
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
    rename_statement,
    select,
    statement,
)
from .types import DType

__all__ = ["Push", "cotangent_names", "gradient_names"]


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


class Push:
    """What the adjoint of one program has made so far, and cotangents through expressions."""

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
        self.gathers: dict[str, list[Gather]] = defaultdict(list)
        self.scatters: dict[str, list[Scatter]] = defaultdict(list)
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
            for c in carriers(x):
                found |= self.carries(c, among, order, seen)
            if found and (x.dtype.is_complex or (isinstance(x, Call) and x.fn in COMPLEX)):
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
        self, scope: Scope, base: str, value: Expr, names: Iterable[str], reduced: Sequence[Axis] = ()
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

    def gatherable(self, load: Load, scope: Scope) -> bool:
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

    # ------------------------------------------------------------------------------------------ expressions
    def scope(self, s: Statement) -> Scope:
        axes = {a.name: a for a in s.axes} | dict(s.reduced)
        return Scope(axes, frozenset(a.name for a in s.axes), self.out, s.target, span=s.assign.span)

    def backprop(
        self,
        scope: Scope,
        value: Expr,
        term: Term,
        among: frozenset[str],
        own: Load | None,
        leaf: Leaf,
        whole: Callable[[Load, Scope], bool],
    ) -> None:
        """Push the cotangent `term` of `value` down to its loads of `among`.  `own`: where the value is stored."""
        order = self.flow(value, among)
        if not order:
            return
        carrying = set(order)
        waiting: dict[Expr, list[Term]] = {value: [term]}
        for node in reversed(order):
            terms = waiting.pop(node, None)
            if not terms:
                continue
            for t in merged([self.narrow(scope, t, node, whole) for t in terms]):
                if isinstance(node, Load):
                    leaf(scope, node, t)
                    continue
                for part, g, guards in self.push(scope, node, t, carrying, own if node is value else None):
                    axes = t.axes
                    if isinstance(node, Reduce):
                        axes |= {d.id for d in node.indices}
                    if not is_zero(g):
                        waiting.setdefault(part, []).append(
                            Term(cast(g, acc_dtype(part)), (*t.guards, *guards), axes)
                        )

    def narrow(self, scope: Scope, t: Term, node: Expr, whole: Callable[[Load, Scope], bool]) -> Term:
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
            outer, inner = factored(t.g, over)
        body = guarded(inner if inner is not None else num_like(1, t.g), t.guards)
        axes = scope.pick(over)
        total: Expr = self.temp(
            scope, f"d_{scope.name}_sum", reduction("sum", axes, body), free_indices(body) - over, axes
        )
        for f in outer:
            total = f(total)
        guards = () if last and not outer else tuple(c for c in t.guards if not free_indices(c) & over)
        return Term(total, guards, t.axes - over)

    def leaf(self, scope: Scope, load: Load, t: Term) -> None:
        if self.gatherable(load, scope):
            names = plain_indices(load.index)
            assert names is not None and not t.axes - set(names)
            self.gathers[load.tensor].append(Gather(names, guarded(t.g, t.guards)))
            return
        guard = land(*t.guards) if t.guards else None
        axes = tuple(scope.pick(t.axes | free_indices(load)))
        self.scatters[load.tensor].append(Scatter(load.index, t.g, guard, axes))

    def value(self, scope: Scope, x: Expr, t: Term, own: Load | None, *, twice: bool) -> Expr:
        """The forward value of `x`, widened: where it is stored, or anew (with a name when that saves calls)."""
        if own is not None:
            return widened(own)
        inner = any(is_costly(c) for part in children(x) for c in walk(part))
        plain = all(plain_indices(ld.index) is not None for ld in loads(x))
        if (
            not (twice or inner)
            or not free_indices(x) <= scope.free
            or (t.guards and not plain)
            or scope.recur
        ):
            return widened(x)
        return widened(self.named(scope, x))

    def named(self, scope: Scope, x: Expr) -> Expr:
        """A load of a helper that holds `x`, calls inside it named first."""
        if x not in scope.values:

            def put(e: Expr) -> Expr:
                return self.named(scope, e) if is_costly(e) else map_children(e, put)

            scope.values[x] = self.temp(scope, f"{scope.name}_value", map_children(x, put), free_indices(x))
        return scope.values[x]

    def push(
        self,
        scope: Scope,
        x: Expr,
        t: Term,
        carrying: set[Expr],
        own: Load | None,
    ) -> list[tuple[Expr, Expr, tuple[Expr, ...]]]:
        """(part, its cotangent, further conditions) for each part of `x` that carries a derivative."""
        g = t.g
        ways = sum(1 for c in carriers(x) if c in carrying)
        deep = depth(g) >= SHARE_DEPTH
        heavy = ways > 1 and weight_of(g) >= SHARE_FROM and t.axes <= scope.free and not isinstance(x, Select)
        if deep or heavy:
            g = self.temp(scope, f"d_{scope.name}_part", guarded(g, t.guards), t.axes)
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
                give(a, lambda: mul(g, widened(b)))
                give(b, lambda: mul(g, widened(a)))
            case Bin(op="/", left=a, right=b):
                give(a, lambda: div(g, widened(b)))
                give(b, lambda: neg(mul(div(g, widened(b)), self.value(scope, x, t, own, twice=False))))
            case Bin(op="%", left=a, right=b):
                give(a, lambda: g)
                give(b, lambda: neg(mul(g, call("floor", div(widened(a), widened(b))))))
            case Bin(op="**", left=a, right=b) | Call(fn="pow", args=(a, b)):
                give(a, lambda: power_base(a, b, g))
                give(b, lambda: self.power_exponent(scope, x, a, b, t, own))
            case Select(test=test, then=a, other=b):
                give(a, lambda: g, test)
                give(b, lambda: g, lnot(test))
            case Reduce():
                out += self.reduction(scope, x, t, own)
            case Call(args=(a,)) if is_cast(x):
                give(a, lambda: g)
            case Call(fn="atan2", args=(a, b)):
                u, v = widened(a), widened(b)
                square = add(mul(u, u), mul(v, v))
                # At the origin PyTorch has 0.
                apart = lnot(land(cmp("==", u, num_like(0, u)), cmp("==", v, num_like(0, v))))
                give(a, lambda: mul(g, div(v, square)), apart)
                give(b, lambda: neg(mul(g, div(u, square))), apart)
            case Call(fn="fmod", args=(a, b)):
                give(a, lambda: g)
                give(b, lambda: neg(mul(g, call("trunc", div(widened(a), widened(b))))))
            case Call(fn="ldexp", args=(a, k)):
                give(a, lambda: call("ldexp", g, k))
            case Call(fn="max" | "min" as fn, args=args):
                out += self.extremum(fn, x, args, g, carrying)
            case Call(fn="fmax" | "fmin" as fn, args=(a, b)):
                first = lor(cmp(">=" if fn == "fmax" else "<=", a, b), call("isnan", b, dtype=DType.BOOL))
                give(a, lambda: g, first)
                give(b, lambda: g, lnot(first))
            case Call(fn=fn, args=(a,)) if fn in PARTIALS:
                give(
                    a,
                    lambda: PARTIALS[fn](
                        widened(a), self.value(scope, x, t, own, twice=fn in VALUE_TWICE), g
                    ),
                )
            case _:
                raise self.no(x, f"no derivative of `{type(x).__name__}`")
        return out

    def power_exponent(self, scope: Scope, x: Expr, a: Expr, b: Expr, t: Term, own: Load | None) -> Expr:
        """`y * log(a)`; 0 where a power of 0 stays 0."""
        wide = widened(a)
        d = mul(t.g, mul(self.value(scope, x, t, own, twice=False), call("log", wide)))
        still = land(cmp("==", wide, num_like(0, wide)), cmp(">=", b, num(0, b.dtype or DType.F64)))
        return select(still, num_like(0, t.g), d)

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
                    out.append((a, select(cmp("==", a, b), mul(num_like(0.5, g), g), g), (lnot(loses),)))
            return out
        count = one_if(cmp("==", args[0], x))
        for a in args[1:]:
            count = add(count, one_if(cmp("==", a, x)))
        return [
            (a, div(g, number_of(count, acc_dtype(g))), (cmp("==", a, x),)) for a in args if a in carrying
        ]

    # ------------------------------------------------------------------------------------------ reductions
    def stored(self, scope: Scope, x: Reduce, own: Load | None) -> Expr:
        if own is not None:
            return own
        if x not in scope.values:
            axes = [scope.axes[d.id] for d in x.indices]
            scope.values[x] = self.temp(scope, f"{scope.name}_{x.kind}", x, free_indices(x), axes)
        return scope.values[x]

    def reduction(
        self, scope: Scope, x: Reduce, t: Term, own: Load | None
    ) -> list[tuple[Expr, Expr, tuple[Expr, ...]]]:
        body, acc = x.body, acc_dtype(t.g)
        axes = [scope.axes[d.id] for d in x.indices]
        free = free_indices(x)
        match x.kind:
            case "sum":
                return [(body, t.g, ())]
            case "max" | "min":
                best = self.stored(scope, x, own)
                hit = cmp("==", body, best)
                count = self.temp(
                    scope, f"{scope.name}_ties", reduction("sum", axes, one_if(hit)), free, axes
                )
                return [(body, div(t.g, number_of(count, acc)), (hit,))]
        v = widened(body)
        zero = cmp("==", body, num(0, body.dtype or acc))
        rest = self.temp(
            scope, f"{scope.name}_nonzero", reduction("prod", axes, select(zero, num(1, acc), v)), free, axes
        )
        many = self.temp(scope, f"{scope.name}_zeros", reduction("sum", axes, one_if(zero)), free, axes)
        zeros = self.temp(
            scope, f"{scope.name}_zero", reduction("sum", axes, select(zero, v, num(0, acc))), free, axes
        )
        return [(body, mul(t.g, product_of_others(v, zero, rest, many, zeros)), ())]

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
