"""The part of a kernel that runs before its loops, on the host: what a call is, what it must satisfy, what shapes it
gives.

Printed once per kernel as `bind`, for the three entry points of abi.h.  Three floors, each a class over the one below:
  prologue_names.py    what `Env` holds, what things are called in it, how a call is refused
  prologue_shapes.py   the dims of a call: ranks, where each dim lies, extents
  prologue.py          `Env` and `bind` as text: attributes, rules and affine indices, strides, outputs, workspace

May import: expr, types, bound, loops, errors, c_expr, gemm, the `prologue_*` modules.  To add a kind of attribute: a
case in `attrs`.
"""

from __future__ import annotations

from ..bound import Tensor
from ..errors import LowerError
from ..expr import Bin, Call, Expr, Fold, Name, Num, Star, Un
from ..loops import HostCheck, Walk
from ..types import DType
from .c_expr import compute_type, storage_type
from .gemm import by_pairs, plan_type, room
from .prologue_names import walks
from .prologue_shapes import Shapes

__all__ = ["Prologue"]


class Prologue(Shapes):
    """Prints `Env` and `bind` of one program with a dialect's printer (its `host` mode)."""

    # -------------------------------------------------------------------------------------------- Env
    def env(self) -> list[str]:
        """Members of `struct Env`."""
        out = ["OwError* error;"]
        for t in (*self.op.inputs, *self.op.outputs):
            const = "const " if t.role == "input" else ""
            out.append(f"{const}{storage_type(t.dtype)}* {self.tensor(t.name)};")
        for b in self.p.buffers:
            n = self.tensor(b.tensor)
            if b.scope == "global":
                out.append(f"{storage_type(b.dtype)}* {n};")
            elif b.scope == "thread":
                out.append(f"int64_t {n}_at;")
        for k in self.p.contracts:
            out += [f"{plan_type(self.c, k)} g{k.id};", f"int64_t g{k.id}_at;"]
        if self.per_thread():
            out.append("char* rows;")
        out.append("int64_t shared_bytes, row_bytes;")
        if self.c.wide:
            out.append("int64_t columns;")
        for d in self.op.dims:
            out.append(f"OwkPack {self.dim(d.name)};" if d.pack else f"int64_t {self.dim(d.name)};")
        for a in self.op.attrs:
            n = self.attr(a.name)
            if a.kind in ("ints", "floats"):
                out.append(f"{compute_type(self.element(a))} {n}[{max(1, self.length(a))}];")
            elif a.kind == "axes":
                out.append(f"OwkOrder {n};")
            else:
                out.append(f"{compute_type(a.dtype)} {n};")
        for x in self.p.splits:
            kind = "OwkPack" if x.pack else "int64_t"
            out.append(f"{kind} {self.dim(x.own)}, {self.dim(x.gone)};")
        out += [f"OwkOrder {self.attr(n)};" for n in self.absent_axes()]
        for t in (*self.op.inputs, *self.op.outputs):
            out += self.stride_members(t, [(k, d.pack) for k, d in enumerate(self.dims(t))])
        for b in self.p.buffers:
            if b.scope != "stack":
                out += self.stride_members(self.op.tensor(b.tensor), [(k, pack) for k, _, pack in b.dims])
        out += [f"int64_t {self.aligned_name(*x)}[OW_MAX_RANK];" for x in self.aligned()]
        for n in self.linear_packs():
            out.append(f"int64_t {self.dim(n)}_linear[OW_MAX_RANK];")
        out += [f"OwShape {self.tensor(t.name)}_shape;" for t in self.op.outputs]
        out += [f"OwkWalk<{self.c.width(w)}> w{w.id};" for w in walks(self.p)]
        return out

    def stride_members(self, t: Tensor, dims: list[tuple[int, bool]]) -> list[str]:
        n = self.tensor(t.name)
        scalars = [f"{n}_s{k}" for k, pack in dims if not pack]
        out = [f"int64_t {', '.join(scalars)};"] if scalars else []
        return out + [f"int64_t {n}_p{k}[OW_MAX_RANK];" for k, pack in dims if pack]

    # -------------------------------------------------------------------------------------------- bind
    def bind(self, first_byte: str = "0", slots: str = "owk_most(1, c->max_threads)") -> None:
        """Print the body of `static int32_t bind(const OwCall* c, Env& e, bool run)`.

        first_byte: where temporaries begin in the workspace; slots: how many rows are under way at most.
        """
        self.first_byte, self.slots = first_byte, slots
        c = self.c
        c.host = True
        line = c.line
        line("OwError* const error = c->error;")
        line("owk_fail(error, OW_OK, -1, -1, -1, 0, 0);")
        line("e.error = error;")
        n_in = 1 + max(self.slot.values(), default=-1)
        line(
            f"if (c->abi != OW_ABI || c->n_in < {n_in} || "
            f"c->n_out < {len(self.op.outputs)} || c->n_attr < {len(self.op.attrs)})"
        )
        line(f"  {self.fail('OW_E_ABI', want='OW_ABI', got='c->abi')}")
        self.attrs()
        for t in self.op.inputs:
            k = self.slot[t.name]
            n = f"{self.tensor(t.name)}_t"
            line(f"const OwTensor* const {n} = c->in[{k}];")
            self.refuse(
                f"!{n} || {n}->dtype.bits != {8 * t.dtype.bytes} || {n}->ndim > OW_MAX_RANK",
                "OW_E_ABI",
                arg=k,
            )
            const = storage_type(t.dtype)
            line(f"e.{self.tensor(t.name)} = (const {const}*)owk_data({n});")
        self.ranks()
        self.extents()
        self.strides()
        self.align("input")
        if self.p.sizes:
            self.sizes()
        self.ask(all_known=True)
        for chk in self.p.checks:
            self.host_check(chk)
        self.outputs()
        self.buffers()
        line("if (!run) return OW_OK;")
        self.align("output")
        self.align("temp")
        self.overlaps()
        line("return OW_OK;")
        c.host = False

    def attrs(self) -> None:
        line = self.c.line
        for k, a in enumerate(self.op.attrs):
            n, at = self.attr(a.name), f"c->attr[{k}]"
            if a.kind == "axes":
                continue
            if a.kind in ("ints", "floats"):
                length = self.length(a)
                self.refuse(f"{at}.count != {length}", "OW_E_ABI", arg=k, want=length, got=f"{at}.count")
                if length:
                    field_ = "f" if a.kind == "floats" else "i"
                    line(f"for (int32_t k = 0; k < {length}; ++k) e.{n}[k] = {at}.{field_}[k];")
                continue
            self.refuse(f"{at}.count < 1", "OW_E_ABI", arg=k, want=1, got=f"{at}.count")
            if a.dtype is DType.BOOL:
                line(f"e.{n} = {at}.i[0] != 0;")
            elif a.dtype.is_float:
                line(f"e.{n} = ({compute_type(a.dtype)}){at}.f[0];")
            else:
                line(f"e.{n} = ({compute_type(a.dtype)}){at}.i[0];")

    def strides(self) -> None:
        for t in self.op.inputs:
            if t.expand:
                continue
            self.tensor_strides(t, f"{self.tensor(t.name)}_t")
        for n in self.linear_packs():
            self.c.line(f"owk_linear(e.{self.dim(n)}, 1, e.{self.dim(n)}_linear);")

    def tensor_strides(self, t: Tensor, handle: str) -> None:
        line = self.c.line
        w, n = self.where[t.name], self.tensor(t.name)
        entry = 0
        for k, d in enumerate(t.dims):
            if d.keep:
                continue
            if d.pack:
                assert isinstance(d.extent, Name)
                order, first, rank = w.pack[k]
                if t.role == "input" and self.broadcast(d.extent.id):
                    line(
                        f"owk_join_strides({handle}, {order}, {first}, {rank}, "
                        f"e.{self.dim(d.extent.id)}, e.{n}_p{entry});"
                    )
                else:
                    line(f"owk_take_strides({handle}, {order}, {first}, {rank}, e.{n}_p{entry});")
            else:
                line(f"e.{n}_s{entry} = {handle}->strides[{w.scalar[k]}];")
            entry += 1

    def sizes(self) -> None:
        line = self.c.line
        for k, _ in enumerate(self.p.rules):
            line(f"check{k}(c, e);")
        if self.p.rules:
            line("if (error->code) return error->code;")
        for s in self.p.sizes:
            n = self.dim(s.dim)
            line(f"e.{n} = size_{n}(e);")
            line("if (error->code) return error->code;")
            self.refuse(f"e.{n} < 0", "OW_E_SHAPE", arg=self.origin(self.op.dim(s.dim).expr), got=f"e.{n}")

    def host_check(self, chk: HostCheck) -> None:
        """An affine index at the ends of its axes; see `_host_vars` for why the ends suffice."""
        line = self.c.line
        axes = dict(chk.axes)
        counts = " && ".join(f"{self.expr(_count(a.extent, a.pack), 10)} > 0" for a in chk.box) or "true"
        if chk.pack:
            assert isinstance(chk.index, Name)
            assert isinstance(chk.extent, Name)
            have, want = f"e.{self.dim(chk.index.id)}", f"e.{self.dim(chk.extent.id)}"
            with self.c.indented(f"if ({counts}) {{"):
                line(f"const int32_t axis = owk_outside({have}, {want});")
                self.refuse(
                    "axis >= 0",
                    "OW_E_INDEX",
                    axis="axis",
                    want=f"{want}.dim[axis]",
                    got=f"{have}.dim[axis] - 1",
                )
                self.refuse(
                    f"{have}.rank != {want}.rank", "OW_E_INDEX", want=f"{want}.rank", got=f"{have}.rank"
                )
            return
        low, high = self.ends(chk.index, axes)
        extent = self.expr(chk.extent)
        with self.c.indented(f"if ({counts}) {{"):
            line(f"const int64_t low = {low};")
            line(f"const int64_t high = {high};")
            self.refuse("low < 0", "OW_E_INDEX", want=extent, got="low")
            self.refuse(f"high >= {extent}", "OW_E_INDEX", want=extent, got="high")

    def ends(self, x: Expr, axes: dict[str, Expr]) -> tuple[str, str]:
        """C expressions of the least and the greatest value."""
        match x:
            case Star(x=Name(id=n)) | Name(id=n, kind="index"):
                return "0", f"{self.expr(axes[n], 11)} - 1"
            case Bin(op="+", left=a, right=b):
                (al, ah), (bl, bh) = self.ends(a, axes), self.ends(b, axes)
                return f"({al}) + ({bl})", f"({ah}) + ({bh})"
            case Bin(op="-", left=a, right=b):
                (al, ah), (bl, bh) = self.ends(a, axes), self.ends(b, axes)
                return f"({al}) - ({bh})", f"({ah}) - ({bl})"
            case Un(op="-", x=a):
                al, ah = self.ends(a, axes)
                return f"-({ah})", f"-({al})"
            case Bin(op="*" | "//" as op, left=a, right=b):
                (al, ah), (bl, bh) = self.ends(a, axes), self.ends(b, axes)
                if al == ah and bl == bh:
                    return self.expr(x), self.expr(x)
                made = [
                    f"owk_div_i64({p}, {q})" if op == "//" else f"({p}) * ({q})"
                    for p, q in ((al, bl), (ah, bh))
                ]
                return f"owk_least({made[0]}, {made[1]})", f"owk_most({made[0]}, {made[1]})"
            case Call(fn="max" | "min" as fn, args=(a, b)):
                (al, ah), (bl, bh) = self.ends(a, axes), self.ends(b, axes)
                helper = "owk_most" if fn == "max" else "owk_least"
                return f"{helper}({al}, {bl})", f"{helper}({ah}, {bh})"
        text = self.expr(x)
        return text, text

    # -------------------------------------------------------------------------------------------- outputs
    def outputs(self) -> None:
        line = self.c.line
        for i, t in enumerate(self.op.outputs):
            n, handle = self.tensor(t.name), f"{self.tensor(t.name)}_t"
            if t.expand and t.like is not None:
                like = f"{self.tensor(t.like)}_t"
                line(f"e.{n}_shape.rank = {like}->ndim;")
                line(f"e.{n}_shape.pad = 0;")
                line(f"for (int32_t k = 0; k < {like}->ndim; ++k) e.{n}_shape.dim[k] = {like}->shape[k];")
            else:
                self.output_shape(t)
            line(f"const OwTensor* const {handle} = run ? c->out[{i}] : nullptr;")
            with self.c.indented("if (run) {"):
                arg = f"c->n_in + {i}"
                self.refuse(f"!{handle} || {handle}->dtype.bits != {8 * t.dtype.bytes}", "OW_E_ABI", arg=arg)
                line(f"if (owk_same_shape(error, {handle}, e.{n}_shape, {arg})) return error->code;")
                line(f"e.{n} = ({storage_type(t.dtype)}*)owk_data({handle});")
                if t.expand:
                    self.expand_strides(t, f"{handle}->ndim", f"{handle}->shape", f"{handle}->strides")
                else:
                    self.tensor_strides(t, handle)

    def output_shape(self, t: Tensor) -> None:
        line = self.c.line
        n = self.tensor(t.name)
        rank = f"{n}_rank"
        line(f"const int32_t {rank} = {self.rank_terms(t)};")
        self.refuse(f"{rank} > OW_MAX_RANK", "OW_E_RANK", want="OW_MAX_RANK", got=rank)
        self.locate(t, rank, {})
        w = self.where[t.name]
        line(f"e.{n}_shape.rank = {rank};")
        line(f"e.{n}_shape.pad = 0;")
        for k, d in enumerate(t.dims):
            if k in w.pack:
                order, first, r = w.pack[k]
                extent = "1" if d.keep else f"e.{self.dim(d.extent.id)}.dim[l]"  # type: ignore[attr-defined]
                first = "" if first == "0" else f"{first} + "
                line(f"for (int32_t l = 0; l < {r}; ++l) e.{n}_shape.dim[{order}.axis[{first}l]] = {extent};")
            else:
                if not d.keep:
                    self.refuse_beyond(d.extent)
                line(f"e.{n}_shape.dim[{w.scalar[k]}] = {'1' if d.keep else self.expr(d.extent)};")
                if not d.keep and not isinstance(d.extent, (Num, Name)):
                    self.refuse(
                        f"e.{n}_shape.dim[{w.scalar[k]}] < 0",
                        "OW_E_SHAPE",
                        arg=self.origin(d.extent),
                        axis=w.scalar[k],
                        got=f"e.{n}_shape.dim[{w.scalar[k]}]",
                    )

    def buffers(self) -> None:
        """Row-major strides of temporaries, and where they lie: shared ones first, then a stretch per thread."""
        line = self.c.line
        line(f"e.shared_bytes = {self.first_byte};")
        line("e.row_bytes = 0;")
        for b in self.p.buffers:
            if b.scope == "stack":
                continue
            n = self.tensor(b.tensor)
            region = "e.shared_bytes" if b.scope == "global" else "e.row_bytes"
            with self.c.indented("{"):
                line("int64_t count = 1;")
                t = self.op.tensor(b.tensor)
                if t.expand and t.like is not None:
                    like = f"{self.tensor(t.like)}_t"
                    line("int64_t stride[OW_MAX_RANK];")
                    line(
                        f"for (int32_t k = {like}->ndim - 1; k >= 0; --k) "
                        f"{{ stride[k] = count; count *= {like}->shape[k]; }}"
                    )
                    self.expand_strides(t, f"{like}->ndim", f"{like}->shape", "stride")
                else:
                    for k, extent, pack in reversed(b.dims):
                        if pack:
                            assert isinstance(extent, Name)
                            line(f"count = owk_linear(e.{self.dim(extent.id)}, count, e.{n}_p{k});")
                        else:
                            line(f"e.{n}_s{k} = count;")
                            line(f"count *= {self.expr(extent, 12)};")
                if b.scope == "global":
                    line(f"if (run) e.{n} = ({storage_type(b.dtype)}*)((char*)c->workspace + {region});")
                else:
                    line(f"e.{n}_at = {region};")
                line(f"{region} += owk_round_up(count * {b.dtype.bytes}, 64);")
        for s in self.p.contracts:
            extents = ", ".join(self.expr(x) for x in s.extents)
            line(f"e.g{s.id}_at = e.row_bytes;")
            line(f"e.row_bytes += {room(self.c, s)}({extents});")
            if by_pairs(self.c, s):
                line(f"e.g{s.id}.tiles = owk_may_tile(c);")
        if self.c.wide:
            line("e.columns = owk_column_rows(e.row_bytes);")
            line("e.row_bytes *= e.columns;")

    def overlaps(self) -> None:
        line = self.c.line
        if self.p.buffers or self.p.contracts or self.first_byte != "0":
            line(f"const int64_t bytes = e.shared_bytes + e.row_bytes * {self.slots};")
            self.refuse(
                "bytes > 0 && (!c->workspace || c->workspace_bytes < bytes)",
                "OW_E_WORKSPACE",
                want="bytes",
                got="c->workspace_bytes",
            )
            if self.per_thread():
                line("e.rows = (char*)c->workspace + e.shared_bytes;")
        outs = [(i, t.name) for i, t in enumerate(self.op.outputs)]
        twins = set(self.p.twins)
        for i, o in outs:
            h = f"{self.tensor(o)}_t"
            self.refuse(f"owk_folded({h})", "OW_E_OVERLAP", arg=f"c->n_in + {i}")
            line(f"[[maybe_unused]] const OwkSpan {self.tensor(o)}_span = owk_span({h});")
        for i, o in outs:
            for j, other in outs[:i]:
                self.refuse(
                    f"owk_meet({self.tensor(o)}_span, {self.tensor(other)}_span)",
                    "OW_E_OVERLAP",
                    arg=f"c->n_in + {i}",
                    got=f"c->n_in + {j}",
                )
            for t in self.op.inputs:
                h = f"{self.tensor(t.name)}_t"
                same = f" && !owk_twins({self.tensor(o)}_t, {h})" if (o, t.name) in twins else ""
                self.refuse(
                    f"owk_meet({self.tensor(o)}_span, owk_span({h})){same}",
                    "OW_E_OVERLAP",
                    arg=f"c->n_in + {i}",
                    got=self.slot[t.name],
                )

    # -------------------------------------------------------------------------------------------- walks
    def set_up(self, w: Walk) -> None:
        """Print the filling of `e.w<id>` (host text)."""
        line = self.c.line
        width = self.c.width(w)
        line(f"owk_begin(e.w{w.id});")
        for a in w.axes:
            if a.pack:
                assert isinstance(a.extent, Name)
                rows = [self.lane_pack(w, k, a.name, a.extent.id) for k in range(width)]
                line(
                    f"{{ const int64_t* const s[{width}] = {{{', '.join(rows)}}}; "
                    f"owk_axes(e.w{w.id}, e.{self.dim(a.extent.id)}, s); }}"
                )
            else:
                tile = self.expr(a.tile) if isinstance(a.tile, Expr) else str(a.tile)
                extent = self.expr(a.extent) if not a.tile else f"owk_tiles({self.expr(a.extent)}, {tile})"
                steps = [self.lane_scalar(w, k, a.name, tile if a.tile else "1") for k in range(width)]
                line(
                    f"{{ const int64_t s[{width}] = {{{', '.join(steps)}}}; owk_axis(e.w{w.id}, {extent}, s); }}"
                )
        if w.parallel and w.mode == "flat" and not w.ordered:
            line(f"owk_sort(e.w{w.id});")
        line(f"owk_end(e.w{w.id});")

    def lane_pack(self, w: Walk, k: int, axis: str, pack: str) -> str:
        if k >= len(w.operands):
            return "nullptr"
        o = w.operands[k]
        if o.kind == "linear" and o.axis == axis:
            return f"e.{self.dim(self.whole(pack))}_linear"
        at = [d for a, d in o.lanes if a == axis] if o.kind == "element" else []
        if len(at) > 1:
            raise LowerError(f"{self.op.name}: `{o.tensor}` is indexed twice by the pack `{axis}`")
        if not at:
            return "nullptr"
        if self.needs_aligning(o.tensor, at[0], self.whole(pack)):
            return f"e.{self.aligned_name(o.tensor, at[0], self.whole(pack))}"
        return f"e.{self.tensor(o.tensor)}_p{at[0]}"

    def lane_scalar(self, w: Walk, k: int, axis: str, tile: str) -> str:
        if k >= len(w.operands):
            return "0"
        o = w.operands[k]
        if o.kind == "value":
            return tile if o.axis == axis else "0"
        terms = [self.stride_of(o.tensor, d) for a, d in o.lanes if a == axis] if o.kind == "element" else []
        text = " + ".join(terms)
        if not terms:
            return "0"
        return text if tile == "1" else f"({text}) * {tile}"

    def stride_of(self, tensor: str, k: int) -> str:
        b = self.p.buffer(tensor)
        if b is not None and b.dims[-1][0] == k and not b.dims[-1][2]:
            return "1"
        return f"e.{self.tensor(tensor)}_s{k}"


def _count(extent: Expr, pack: bool) -> Expr:
    return Fold("prod", extent, dtype=DType.I64) if pack else extent
