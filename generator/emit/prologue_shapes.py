"""The dims of a call: physical axes split into the spec's (`N@axis` moves one out, `*N@axes` a set), extents that
agree, broadcast packs joined, derived and data-dependent extents computed (`prologue.py`'s middle floor).

May import: expr, types, bound, loops, errors, updates, prologue_names.  To add a kind of dim: in `ranks` (how its rank
is found) and `extents` (how its value is).
"""

from __future__ import annotations

from ..bound import Dim, Tensor
from ..errors import LowerError
from ..expr import Call, Cmp, Name, walk
from ..updates import Split
from .prologue_names import Names, Where

__all__ = ["Shapes"]


class Shapes(Names):
    """Prints how a call's dims are found."""

    # -------------------------------------------------------------------------------------------- ranks
    def ranks(self) -> None:
        """Ranks of packs, and where each input's dims sit; inputs whose only unknown pack is solved by their
        rank come first.
        """
        for d in self.op.dims:
            if d.pack and d.rank is not None and not d.broadcast:
                name = f"{self.dim(d.name)}_rank"
                self.c.line(f"const int32_t {name} = (int32_t)({self.expr(d.rank)});")
                self.pack_rank[d.name] = name
        waiting = [t for t in self.op.inputs if not t.expand]
        while waiting:
            ready = next((t for t in waiting if len(self.open_packs(t)) <= 1), None)
            if ready is None:
                names = ", ".join(f"`{t.name}`" for t in waiting)
                raise LowerError(
                    f"{self.op.name}: the ranks of {names} cannot be told apart",
                    hint="one pack per input may have unknown rank; give others `{rank: …}`",
                )
            waiting.remove(ready)
            self.place_input(ready)

    def open_packs(self, t: Tensor) -> list[str]:
        out = []
        for d in t.dims:
            if d.pack:
                assert isinstance(d.extent, Name)
                by_axes = d.at is not None and self.attr_of(d.at).kind == "axes"
                if not by_axes and d.extent.id not in self.pack_rank:
                    out.append(d.extent.id)
        return out

    def broadcast(self, n: str) -> bool:
        return self.op.dim(n).broadcast

    def place_input(self, t: Tensor) -> None:
        line = self.c.line
        n = f"{self.tensor(t.name)}_t"
        arg = self.slot[t.name]
        for d in t.dims:
            if d.at is not None and self.attr_of(d.at).kind == "axes":
                self.axes_count(d.at, f"{n}->ndim")
        unknown = self.open_packs(t)
        terms = self.rank_terms(t, skip=unknown[0] if unknown else None)
        if unknown:
            pack = unknown[0]
            rank = (
                f"{self.tensor(t.name)}_{self.dim(pack)}_rank"
                if self.broadcast(pack)
                else f"{self.dim(pack)}_rank"
            )
            line(
                f"const int32_t {rank} = {n}->ndim - ({terms});"
                if terms != "0"
                else f"const int32_t {rank} = {n}->ndim;"
            )
            if terms != "0":
                self.refuse(f"{rank} < 0", "OW_E_RANK", arg=arg, want=terms, got=f"{n}->ndim")
            own = {pack: rank}
            if not self.broadcast(pack):
                self.pack_rank[pack] = rank
        else:
            own = {}
            self.refuse(f"{n}->ndim != {terms}", "OW_E_RANK", arg=arg, want=terms, got=f"{n}->ndim")
        self.locate(t, f"{n}->ndim", own)

    def rank_terms(self, t: Tensor, skip: str | None = None) -> str:
        fixed = 0
        parts: list[str] = []
        for d in t.dims:
            if d.keep and d.at is not None and self.attr_of(d.at).kind == "axes":
                parts.append(f"e.{self.attr(d.at)}.n")
            elif d.pack:
                assert isinstance(d.extent, Name)
                if d.extent.id == skip:
                    continue
                if d.at is not None and self.attr_of(d.at).kind == "axes":
                    parts.append(f"e.{self.attr(d.at)}.n")
                else:
                    parts.append(self.rank_of(d.extent.id))
            else:
                fixed += 1
        if fixed or not parts:
            parts.append(str(fixed))
        return " + ".join(parts)

    def rank_of(self, pack: str) -> str:
        return self.pack_rank.get(pack, f"e.{self.dim(pack)}.rank")

    def axes_count(self, name: str, rank: str) -> None:
        """How many axes a set has, which is part of a tensor's rank, before it is known whether they exist."""
        if name in self.axis_done or name in self.counted:
            return
        self.counted.add(name)
        n = self.attr(name)
        if name in self.absent_axes():
            self.c.line(f"e.{n}.n = {rank};")
            return
        empty = "true" if self.attr_of(name).empty_all else "false"
        self.c.line(f"e.{n}.n = owk_count_axes(&c->attr[{self.attr_at(name)}], {rank}, {empty});")

    def axes_attr(self, name: str, rank: str) -> None:
        """Normalise a set of axes once; the mask of its bits is `<name>_mask`."""
        if name in self.axis_done:
            return
        self.axis_done.add(name)
        n = self.attr(name)
        line = self.c.line
        line(f"uint32_t {n}_mask;")
        if name in self.absent_axes():
            line(f"owk_all_axes({rank}, &e.{n}, &{n}_mask);")
            return
        k = self.attr_at(name)
        empty = "true" if self.attr_of(name).empty_all else "false"
        line(f"const int32_t {n}_bad = owk_norm_axes(&c->attr[{k}], {rank}, {empty}, &e.{n}, &{n}_mask);")
        self.refuse(f"{n}_bad >= 0", "OW_E_AXIS", arg=k, want=rank, got=f"c->attr[{k}].i[{n}_bad]")

    def axis_attr(self, name: str, rank: str) -> None:
        """Normalise a single axis once; its place is `<name>_axis`."""
        if name in self.axis_done:
            return
        self.axis_done.add(name)
        k, n = self.attr_at(name), self.attr(name)
        line = self.c.line
        line(f"int32_t {n}_axis;")
        self.refuse(f"!owk_norm_axis(e.{n}, {rank}, &{n}_axis)", "OW_E_AXIS", arg=k, want=rank, got=f"e.{n}")
        line(f"e.{n} = {n}_axis;")

    def same_axis(self, name: str, t: Tensor, rank: str) -> None:
        """An input over packs of its own has a rank of its own: rules about ranks come first, then the axis must lie in
        this input as well.
        """
        packs = {d.extent.id for d in t.dims if d.pack and isinstance(d.extent, Name)}
        first = self.axis_packs.setdefault(name, packs)
        if t.role != "input" or packs <= first:
            return
        for k, r in enumerate(self.op.rules):
            match r.expr:
                case Cmp(
                    op="==",
                    left=Call(fn="rank", args=(Name(id=a),)),
                    right=Call(fn="rank", args=(Name(id=b),)),
                ) if k not in self.asked and a in self.pack_rank and b in self.pack_rank:
                    self.asked.add(k)
                    fail = self.fail("OW_E_REQUIRE", which=k)
                    self.c.line(f"if ({self.pack_rank[a]} != {self.pack_rank[b]}) {fail}  // {r.text}")
        n, k = self.attr(name), self.attr_at(name)
        raw = f"(int64_t)c->attr[{k}].i[0]"
        self.refuse(f"!owk_norm_axis({raw}, {rank}, &{n}_axis)", "OW_E_AXIS", arg=k, want=rank, got=raw)

    def locate(self, t: Tensor, rank: str, own: dict[str, str]) -> None:
        """Physical axes of every dim of a tensor; prints what claims axes out of order."""
        line = self.c.line
        order = f"{self.tensor(t.name)}_o"
        masks: list[str] = []
        for d in t.dims:
            if d.at is None:
                continue
            a = self.attr_of(d.at)
            if a.kind == "axes":
                self.axes_attr(d.at, rank)
                masks.append(f"{self.attr(d.at)}_mask")
            else:
                self.axis_attr(d.at, rank)
                self.same_axis(d.at, t, rank)
                masks.append(f"1u << {self.attr(d.at)}_axis")
        axes = [d.at for d in t.dims if d.at is not None and self.attr_of(d.at).kind != "axes"]
        for i in range(len(axes)):
            for j in range(i + 1, len(axes)):
                x, y = axes[i], axes[j]
                assert x is not None
                assert y is not None
                self.refuse(
                    f"{self.attr(x)}_axis == {self.attr(y)}_axis",
                    "OW_E_AXIS",
                    arg=self.attr_at(y),
                    want=rank,
                    got=f"{self.attr(y)}_axis",
                )
        line(f"[[maybe_unused]] const OwkOrder {order} = owk_free_axes({rank}, {' | '.join(masks) or '0'});")
        w = Where(rank, order)
        fixed = 0
        packs: list[str] = []
        for k, d in enumerate(t.dims):
            first = " + ".join([*packs, *([str(fixed)] if fixed or not packs else [])])
            if d.at is not None:
                a = self.attr_of(d.at)
                if a.kind == "axes":
                    w.pack[k] = (f"e.{self.attr(d.at)}", "0", f"e.{self.attr(d.at)}.n")
                elif d.pack:
                    raise LowerError(f"{self.op.name}: a pack of `{t.name}` sits at the single axis `{d.at}`")
                else:
                    w.scalar[k] = f"{self.attr(d.at)}_axis"
            elif d.pack:
                assert isinstance(d.extent, Name)
                pack_rank = own.get(d.extent.id, self.rank_of(d.extent.id))
                w.pack[k] = (order, first, pack_rank)
                packs.append(pack_rank)
            else:
                w.scalar[k] = f"{order}.axis[{first}]"
                fixed += 1
        self.where[t.name] = w

    # -------------------------------------------------------------------------------------------- extents
    def extents(self) -> None:
        """Extents from inputs, then derived ones; each rule is asked as soon as it can be."""
        solved: set[tuple[str, int]] = set()
        for d in self.op.dims:
            if d.expr is None:
                self.source(d)
                self.known.add(d.name)
                solved |= set(d.sources)
        self.ask()
        for d in self.op.dims:
            if d.data or d.expr is None:
                continue
            n = self.dim(d.name)
            if d.pack:
                assert isinstance(d.expr, Name)
                self.c.line(f"e.{n} = e.{self.dim(d.expr.id)};")
            else:
                self.refuse_beyond(d.expr)
                self.c.line(f"e.{n} = {self.expr(d.expr)};")
                self.refuse(f"e.{n} < 0", "OW_E_SHAPE", arg=self.origin(d.expr), got=f"e.{n}")
            self.known.add(d.name)
            self.ask()
        for t in self.op.inputs:
            if t.expand:
                self.expanded(t)
                continue
            for k, u in enumerate(t.dims):
                if u.keep:
                    self.ones(t, k)
                elif (t.name, k) not in solved and not u.pack:
                    self.agree(t, k, self.expr(u.extent))
        for x in self.p.splits:
            self.split(x)

    def ask(self, all_known: bool = False) -> None:
        """Print the rules over shapes and attributes whose names are known by now."""
        for k, r in enumerate(self.op.rules):
            names = {n.id for n in walk(r.expr) if isinstance(n, Name) and n.kind in ("dim", "pack")}
            if r.data or k in self.asked or not (all_known or names <= self.known):
                continue
            self.asked.add(k)
            # A rule whose own integers wrap says nothing.
            wraps = f"{test} || " if (test := self.beyond(r.expr)) else ""
            self.c.line(
                f"if ({wraps}!({self.expr(r.expr)})) {self.fail('OW_E_REQUIRE', which=k)}  // {r.text}"
            )

    def positions(self, t: Tensor) -> tuple[list[str], str]:
        """Where each dim's lanes stand among the tensor's aligned axes, and how many there are."""
        at: list[str] = []
        fixed = 0
        packs: list[str] = []
        for d in self.dims(t):
            at.append(" + ".join([*packs, *([str(fixed)] if fixed or not packs else [])]))
            if d.pack:
                assert isinstance(d.extent, Name)
                packs.append(f"e.{self.dim(d.extent.id)}.rank")
            else:
                fixed += 1
        return at, " + ".join([*packs, *([str(fixed)] if fixed or not packs else [])])

    def expanded(self, t: Tensor) -> None:
        """An input of any shape that broadcasts to its dims."""
        line = self.c.line
        n, arg = f"{self.tensor(t.name)}_t", self.slot[t.name]
        at, total = self.positions(t)
        # Asked once, not by axis: among packs of rank 0 there is none to ask.
        self.refuse(f"{n}->ndim > {total}", "OW_E_SHAPE", arg=arg, got=f"{n}->ndim")
        for k, d in enumerate(self.dims(t)):
            if d.pack:
                pack = self.dim(d.extent.id)  # type: ignore[attr-defined]
                line(f"for (int32_t l = 0; l < e.{pack}.rank; ++l)")
                line(
                    f"  if (owk_expand(error, {n}, {total}, {at[k]} + l, e.{pack}.dim[l], {arg})) return error->code;"
                )
            else:
                line(
                    f"if (owk_expand(error, {n}, {total}, {at[k]}, {self.expr(d.extent)}, {arg})) return error->code;"
                )
        self.expand_strides(t, f"{n}->ndim", f"{n}->shape", f"{n}->strides")

    def expand_strides(self, t: Tensor, rank: str, shape: str, strides: str) -> None:
        """Strides of an `expand` tensor along its declared dims: 0 for axes that it lacks."""
        line = self.c.line
        at, total = self.positions(t)
        n = self.tensor(t.name)
        for k, d in enumerate(self.dims(t)):
            if d.pack:
                pack = self.dim(d.extent.id)  # type: ignore[attr-defined]
                line(f"for (int32_t l = 0; l < e.{pack}.rank; ++l)")
                line(
                    f"  e.{n}_p{k}[l] = owk_expand_stride({rank}, {shape}, {strides}, {total}, {at[k]} + l);"
                )
            else:
                line(f"e.{n}_s{k} = owk_expand_stride({rank}, {shape}, {strides}, {total}, {at[k]});")

    def split(self, x: Split) -> None:
        """The two parts of an axis for a tensor that lacks some of it."""
        line = self.c.line
        own, gone = f"e.{self.dim(x.own)}", f"e.{self.dim(x.gone)}"
        if x.share is not None:
            assert isinstance(x.over, Name)
            line(f"owk_split_pack(e.{self.dim(x.over.id)}, e.{self.dim(x.share)}, &{own}, &{gone});")
            return
        assert x.like is not None
        h = f"{self.tensor(x.like)}_t"
        at, total = self.positions(self.op.tensor(x.tensor))
        head = f"{h}->ndim, {h}->shape, {total}, {at[x.dim]}"
        if x.pack:
            assert isinstance(x.over, Name)
            over = f"e.{self.dim(x.over.id)}"
            line(f"{own}.rank = {gone}.rank = {over}.rank;")
            line(f"for (int32_t l = 0; l < {over}.rank; ++l)")
            line(f"  owk_split_extent({head} + l, {over}.dim[l], &{own}.dim[l], &{gone}.dim[l]);")
        else:
            line(f"owk_split_extent({head}, {self.expr(x.over)}, &{own}, &{gone});")

    def align(self, role: str) -> None:
        """Strides along packs that a tensor has only a share of."""
        for tensor, k, pack in self.aligned():
            t = self.op.tensor(tensor)
            if t.role != role:
                continue
            name, whole = f"e.{self.aligned_name(tensor, k, pack)}", f"e.{self.dim(pack)}"
            mine = self.dims(t)[k].extent
            assert isinstance(mine, Name)
            if role == "input" and self.broadcast(mine.id):
                order, first, rank = self.where[tensor].pack[
                    [i for i, d in enumerate(t.dims) if not d.keep][k]
                ]
                self.c.line(
                    f"owk_join_strides({self.tensor(tensor)}_t, {order}, {first}, {rank}, {whole}, {name});"
                )
            else:
                self.c.line(
                    f"owk_align(e.{self.dim(mine.id)}, e.{self.tensor(tensor)}_p{k}, {whole}, {name});"
                )

    def source(self, d: Dim) -> None:
        line = self.c.line
        n = self.dim(d.name)
        sources = [x for x in d.sources if not self.op.tensor(x[0]).expand]
        if not sources and not self.uses(d.name):
            return
        if not sources:
            raise LowerError(f"{self.op.name}: nothing says what extent `{d.name}` is")
        if d.pack and d.broadcast:
            line(f"e.{n}.rank = 0;")
        for i, (tensor, k) in enumerate(sources):
            t = f"{self.tensor(tensor)}_t"
            w = self.where[tensor]
            if not d.pack:
                if i == 0:
                    line(f"e.{n} = {t}->shape[{w.scalar[k]}];")
                else:
                    self.agree(self.op.tensor(tensor), k, f"e.{n}")
                continue
            order, first, rank = w.pack[k]
            arg = self.slot[tensor]
            if d.broadcast:
                line(
                    f"if (owk_join_pack(error, {t}, {order}, {first}, {rank}, &e.{n}, {arg})) return error->code;"
                )
            elif i == 0:
                line(f"owk_take_pack({t}, {order}, {first}, {rank}, &e.{n});")
            else:
                line(f"if (owk_same_pack(error, {t}, {order}, {first}, e.{n}, {arg})) return error->code;")

    def uses(self, dim: str) -> bool:
        """Whether any tensor, axis or derived extent needs this dim."""
        exprs = [
            u.extent
            for t in (*self.op.outputs, *self.op.temps, *self.op.inputs)
            for u in t.dims
            if not t.expand
        ]
        exprs += [a.extent for s in self.op.body for a in (*s.axes, *(r for _, r in s.reduced))]
        exprs += [d.expr for d in self.op.dims if d.expr is not None] + [r.expr for r in self.op.rules]
        return any(
            isinstance(n, Name) and n.id == dim and n.kind in ("dim", "pack") for e in exprs for n in walk(e)
        )

    def ones(self, t: Tensor, k: int) -> None:
        """A kept dim of an input (the adjoint of one that was put back) has extent 1."""
        w, n = self.where[t.name], f"{self.tensor(t.name)}_t"
        axes = [] if k in w.pack else [w.scalar[k]]
        if k in w.pack:
            order, first, rank = w.pack[k]
            self.c.line(f"for (int32_t l = 0; l < {rank}; ++l)")
            axes = [f"{order}.axis[{first} + l]"]
        for axis in axes:
            self.c.line(
                f"{'  ' if k in w.pack else ''}if ({n}->shape[{axis}] != 1) "
                + self.fail("OW_E_SHAPE", arg=self.slot[t.name], axis=axis, want=1, got=f"{n}->shape[{axis}]")
            )

    def agree(self, t: Tensor, k: int, want: str) -> None:
        n, axis = f"{self.tensor(t.name)}_t", self.where[t.name].scalar[k]
        self.refuse(
            f"{n}->shape[{axis}] != {want}",
            "OW_E_SHAPE",
            arg=self.slot[t.name],
            axis=axis,
            want=want,
            got=f"{n}->shape[{axis}]",
        )
