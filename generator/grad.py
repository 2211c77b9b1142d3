"""Reverse mode: a Normal program and the inputs wanted -> the Normal program of their gradients, and what both cost.

How it goes
  The statements are read backwards.  The cotangent of a value is an expression over the indices it ran over, under the
  conditions it ran under (`Term`).  Pushed down to a part that depends on fewer indices it is first summed over the
  others, with factors that do not depend on them taken out: so an adjoint costs a small multiple of its forward.
  At a load with plain indices that cover the tensor the contribution is an expression (*gather*); at any other load it
  is an update `d_x[index] += …` under its conditions (*scatter*).
  A pack index used on a tensor whose own axes are smaller is aligned right and stays at 0 on axes of extent 1.
  So `d_a[*b] += …`, with `d_a` in the shape of `a`, sums over the axes that `a` was broadcast along.
  Cotangents are held in the accumulator of their dtype and rounded once, in the last statement.

Subgradients and formulas: PyTorch's where a choice exists.

Rooms: grad_rules.py has the derivative of each function, grad_push.py takes a cotangent through one statement's value,
this module goes through the statements; what a gradient costs is grad_cost.py's.

May import: expr, bound, types, normal, shifts, simplify, errors, the `grad_*` modules.  To add a function: a row in
`grad_rules.PARTIALS`; a kind of statement: `_Adjoint.statement`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .bound import Axis, BoundOp, Dim, DimUse, Statement, Tensor
from .expr import (
    Bin,
    Expr,
    Item,
    Load,
    Name,
    Num,
    Reduce,
    walk,
)
from .grad_push import Push
from .grad_rules import (
    Access,
    Gather,
    Scatter,
    Scope,
    Term,
    acc_dtype,
    guarded,
    num_like,
    number_of,
    one_if,
    position_among,
    product_of_others,
    total_of,
    widened,
)
from .normal import verify
from .simplify import (
    cast,
    cmp,
    div,
    loads,
    mul,
    num,
    plain_indices,
    ref,
    rename_indices,
    select,
    simplify,
    statement,
    statement_exprs,
    statement_loads,
    sub,
)
from .types import DType, accum

__all__ = ["adjoint", "with_saved"]


def with_saved(op: BoundOp, save: Sequence[str]) -> BoundOp:
    """The forward with the temporaries of `save` as `aux` outputs, so that an adjoint may read them."""
    have = {t.name: t for t in op.temps}
    moved = tuple(dict.fromkeys(n for n in save if n in have))
    outputs = tuple(replace(have[n], role="output", aux=True) for n in moved)
    return replace(
        op, outputs=(*op.outputs, *outputs), temps=tuple(t for t in op.temps if t.name not in moved)
    )


def adjoint(op: BoundOp, wrt: Sequence[str], save: Sequence[str] = ()) -> BoundOp:
    """The gradient program `<op>.grad`: given `d<output>` it computes `d<input>` for the inputs of `wrt`.

    Inputs, in this order: what it reads of the forward's inputs (values or only shapes: `notes` says which), of the
    outputs and temporaries named in `save`, and the cotangent of every differentiable output that is not `aux`.
    What else it needs of the forward's values is recomputed by the forward's own statements.
    `with_saved(op, save)` is the forward that goes with it.  Raises NotDifferentiable.
    """
    return _Adjoint(op, wrt, save).build()


class _Adjoint(Push):
    """Reads the statements of one program backwards."""

    # ------------------------------------------------------------------------------------------ cotangents of tensors
    def seed(self, name: str, index: Sequence[Expr]) -> Expr | None:
        cot = self.cotangents.get(name)
        if cot is None:
            return None
        return widened(Load(cot, tuple(index), dtype=self.tensors[name].dtype))

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
        gathers: Sequence[Gather],
        scatters: Sequence[Scatter],
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
            value = total_of(parts) if parts else num(0, accum(dtype))
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
                g = div(g, number_of(Load(helpers[0], a.target.index, dtype=DType.I64), acc_dtype(g)))
                guards += (cmp("==", value, best),)
            case "*=":
                value = self.plain_value(scope, value)
                v = widened(value)
                rest, many, zeros = (Load(h, a.target.index, dtype=self.temps[h].dtype) for h in helpers)
                g = mul(
                    g,
                    product_of_others(
                        v, cmp("==", value, num(0, value.dtype or v.dtype or DType.F64)), rest, many, zeros
                    ),
                )
            case _:
                raise self.no(s, f"no derivative of updates by `{mode}`")
        term = Term(g, guards, scope.free)
        self.backprop(scope, a.value, term, self.live, self.own_value(s), self.leaf, self.gatherable)

    def update_modes(self, name: str) -> list[str]:
        return [self.op.body[k].assign.mode for k in self.writers[name] if self.op.body[k].assign.mode != "="]

    def plain_value(self, scope: Scope, value: Expr) -> Expr:
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
                copy(s, n, "max", position_among(s.axes))
                out.append(n)
            return tuple(out)
        if modes[0] in ("max", "min"):
            n = helper(f"{name}_ties", DType.I64)
            for s in statements:
                v = self.plain_value(self.scope(s), s.assign.value)
                best = Load(name, s.assign.target.index, dtype=t.dtype)
                copy(s, n, "+=", one_if(cmp("==", v, best)))
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
            copy(s, rest, "*=", select(zero, num(1, acc), widened(v)))
            copy(s, many, "+=", one_if(zero))
            copy(s, zeros, "+=", select(zero, widened(v), num(0, acc)))
        return rest, many, zeros

    def survives(self, s: Statement, last: tuple[str, ...]) -> tuple[Expr, ...]:
        """When what `s` wrote is not overwritten: it is the last of its kind, and none of a later kind wrote."""
        sets = [k for k in self.writers[s.target] if self.op.body[k].assign.mode == "set"]
        me = next((n for n, k in enumerate(sets) if self.op.body[k] is s), -1)
        index = s.assign.target.index
        out: list[Expr] = []
        if me >= 0:
            out.append(cmp("==", Load(last[me], index, dtype=DType.I64), position_among(s.axes)))
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
        inside: dict[str, list[Gather]] = defaultdict(list)
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

        def whole(load: Load, scope: Scope) -> bool:
            return self.gatherable(replace(load, index=at_step(load)), scope)

        def leaf(scope: Scope, load: Load, term: Term) -> None:
            if not whole(load, scope):
                raise self.no(load, f"`{load.tensor}` is read at computed places inside its recurrence")
            index = plain_indices(at_step(load))
            assert index is not None
            c, g = step(load), guarded(term.g, term.guards)
            if c:
                shifted = rename_indices(g, {r.name: Bin("-", back, num(c, DType.I64), dtype=DType.I64)})
                g = select(cmp(">=", back, num(c, DType.I64)), shifted, num_like(0, g))
            inside[load.tensor].append(Gather(index, g))

        for s in members:
            axes = {
                (r.name if n == t_name else n): (r if n == t_name else a)
                for n, a in self.scope(s).axes.items()
            }
            helpers[s.target] = []
            scope = Scope(
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
            self.backprop(scope, value, Term(g, (), scope.free), names, None, leaf, whole)
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
            value = total_of(parts) if parts else num(0, accum(self.tensors[u].dtype))
            self.out.append(statement(held[u], index, value, mine, recur=r.name))
            self.out += helpers[u]
        for s in reversed(members):
            scope = self.scope(s)
            index = tuple(then if n == spot[s.target] else e for n, e in enumerate(s.assign.target.index))
            g = Load(held[s.target], index, dtype=accum(self.tensors[s.target].dtype))
            self.backprop(
                scope,
                s.assign.value,
                Term(g, (), scope.free),
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
