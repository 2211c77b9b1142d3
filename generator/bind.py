"""Spec -> Bound: names, indices and temporaries of every statement of a spec, at a key.

The pass has three floors, each a class over the one below, and this is the top one:
  bind_types.py   what a node's dtype is: `Typing`
  bind_lanes.py   what is known before a call, and static packs written out lane by lane: `Lanes`
  bind.py         statements: which indices run, over what, and what is stored; then a whole spec

Which key a call has is told in bind_key.py.

May import: spec, expr, types, bound, errors, the `bind_*` modules.  To add what a statement may say: `_Binder`; what a
spec's field means: `_SpecBinder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .bind_lanes import UNKNOWN, Lanes, fold, index_name, running_extent
from .bind_types import CASTS, Env, Ty
from .bound import (
    Attr,
    Axis,
    BindKey,
    BoundOp,
    Dim,
    DimUse,
    Rule,
    Statement,
    Tensor,
    show_dim_use,
)
from .errors import BindError, DomainError
from .expr import (
    And,
    Assign,
    Bin,
    Block,
    Call,
    Cmp,
    Decl,
    Expr,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
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
from .spec import DimText, OpSpec, TensorType
from .types import (
    DType,
    accum,
    promote,
)

__all__ = ["bind", "bind_grad", "rebind"]


class _Binder(Lanes):
    """Binds the statements of a program, one after the other."""

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
            name = index_name(e)
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
            name = index_name(e)
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
                case Call(fn=fn) if fn in self.env.vars or fn in CASTS:
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

    def pack_name(self, d: Decl) -> Expr:
        if isinstance(d.extent, Name) and d.extent.id in self.env.dims and self.env.dims[d.extent.id].pack:
            return Name(d.extent.id, kind="pack", dtype=DType.I64)
        self.fail(d, f"`*{d.id} in …` takes the name of a pack")

    def extent(self, e: Expr) -> Expr:
        """A bound integer expression over dims and attributes."""
        x, ty = self.typed(self.expand(e))
        if ty.dtype is not DType.I64 and not ty.dtype.is_integer:
            self.fail(e, f"an extent is an integer, `{show(e)}` is {ty.dtype}")
        return fold(x)

    def new_temp(
        self, st: Assign, tname: str, index: tuple[Expr, ...], axes: dict[str, Axis], ty: Ty
    ) -> Tensor:
        dims: list[DimUse] = []
        for e in index:
            name = index_name(e)
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

    def store(self, st: Assign, t: Tensor, mode: str, value: Expr, ty: Ty) -> Expr:
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


# ------------------------------------------------------------------------------------------------ a spec's environment


class _SpecBinder:
    def __init__(self, spec: OpSpec, key: BindKey) -> None:
        self.spec, self.key = spec, key
        self.present = dict(key.present)
        self.lengths = dict(key.lengths)
        self.ranks = dict(key.ranks)
        self.env = Env(spec.op, spec.file, {k: DType(v) for k, v in key.types}, dict(key.static))
        self.env.told = {n: a.static for n, a in spec.attrs.items() if isinstance(a.static, tuple)}
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
            line, file = (r.span.line, Path(r.span.file).name) if r.span else (0, "")
            if file and self.spec.family:
                file = f"{self.spec.family}/{file}"
            out.append(Rule(r.text, value, data, st.axes, line, file))
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
        if v is UNKNOWN:
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
    env = Env(op.name, "<printed>", {}, {})
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
