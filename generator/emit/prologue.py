"""The part of a kernel that runs before its loops, on the host: what a call is, what it must satisfy, what
shapes it gives.

Printed once per kernel as `bind`, for the three entry points of abi.h.  It reads attributes, splits physical
axes into the
spec's dims (`N@axis` moves one out, `*N@axes` a set), checks that extents agree, joins broadcast packs,
computes derived
and data-dependent extents, checks rules and affine indices, and lays out strides, outputs and workspace in `Env`.

May import: expr, types, bound, loops, errors, c_like.  To add a kind of attribute: a case in `attrs`; a kind
of dim: in
`ranks` (how its rank is found) and `extents` (how its value is).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..bound import Attr, Dim, DimUse, Tensor
from ..errors import LowerError
from ..expr import Bin, Call, Cmp, Expr, Fold, Item, Load, Name, Num, Star, Un, walk
from ..loops import Accumulate, Contract, For, HostCheck, If, LoopProgram, LoopStmt, Tile, Walk
from ..types import DType
from ..updates import Split, shares
from .c_like import CLike, compute_type, storage_type

__all__ = ["Prologue", "walks", "walks_in"]


@dataclass
class _Where:
    """How one tensor's dims sit in its physical axes: C expressions per logical dim."""

    rank: str  # int32_t expression of the whole rank
    order: str  # name of the OwkOrder of the axes that no attribute claims
    scalar: dict[int, str] = field(default_factory=dict)  # dim position -> physical axis
    pack: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # position -> (order, first, rank)


class Prologue:
    """Prints `Env` and `bind` of one program with a dialect's printer (its `host` mode)."""

    def __init__(self, p: LoopProgram, c: CLike) -> None:
        self.p, self.op, self.c = p, p.op, c
        self.slot = dict(self.op.slots) or {t.name: k for k, t in enumerate(self.op.inputs)}
        self.pack_rank: dict[str, str] = {}
        self.axis_done: set[str] = set()
        self.axis_packs: dict[str, set[str]] = {}
        self.counted: set[str] = set()
        self.where: dict[str, _Where] = {}
        self.known: set[str] = set()
        self.asked: set[int] = set()

    # -------------------------------------------------------------------------------------------- names
    def dim(self, n: str) -> str:
        return self.p.names[("dim", n)]

    def attr(self, n: str) -> str:
        return self.p.names[("attr", n)]

    def tensor(self, n: str) -> str:
        return self.p.names[("tensor", n)]

    def attr_at(self, n: str) -> int:
        return next(k for k, a in enumerate(self.op.attrs) if a.name == n)

    def attr_of(self, n: str) -> Attr:
        """The attribute that a dim sits at; a set of axes that the call left out has no slot, and means all
        axes.
        """
        return next((a for a in self.op.attrs if a.name == n), Attr(n, "axes", DType.I64))

    def absent_axes(self) -> list[str]:
        known = {a.name for a in self.op.attrs}
        found = {
            d.at: None
            for t in (*self.op.inputs, *self.op.outputs)
            for d in t.dims
            if d.at is not None and d.at not in known
        }
        return list(found)

    def expr(self, x: Expr, need: int = 0) -> str:
        return self.c.expr(x, need)

    def fail(
        self,
        code: str,
        *,
        which: object = -1,
        arg: object = -1,
        axis: object = -1,
        want: object = 0,
        got: object = 0,
    ) -> str:
        return f"return owk_fail(error, {code}, {which}, {arg}, {axis}, {want}, {got});"

    def refuse(self, test: str, code: str, note: str = "", **fields: object) -> None:
        """Print that a call is refused where `test` holds."""
        self.c.line(f"if ({test}) {self.fail(code, **fields)}" + (f"  // {note}" if note else ""))

    # -------------------------------------------------------------------------------------------- integers
    def wide(self, x: Expr) -> str:
        """An integer expression in doubles, that do not wrap."""
        match x:
            case Num(value=v):
                return repr(float(v))
            case Bin(op="+" | "-" | "*" as op, left=a, right=b):
                return f"({self.wide(a)} {op} {self.wide(b)})"
            case Un(op="-", x=a):
                return f"-{self.wide(a)}"
        return f"(double)({self.expr(x)})"

    def beyond(self, x: Expr) -> str:
        """A test for integers of `x` that 64 bits do not hold; empty where none can be.

        Sums and products wrap alike, so one test at the root of each of them says whether it is right.
        """
        ring = ("+", "-", "*")
        inside: set[int] = set()
        tests: dict[str, None] = {}
        for n in walk(x):  # parents first
            if not isinstance(n, Bin) or n.op not in ring or n.dtype is not DType.I64:
                continue
            inside |= {id(c) for c in (n.left, n.right)}
            leaves = [c for c in walk(n) if isinstance(c, (Name, Item, Fold))]
            if id(n) not in inside and len(leaves) > 1 and not any(isinstance(c, Load) for c in walk(n)):
                tests[f"owk_beyond({self.wide(n)})"] = None
        return " || ".join(tests)

    def refuse_beyond(self, x: Expr) -> None:
        """Print that a call is refused whose arguments make an extent of more than 64 bits."""
        if test := self.beyond(x):
            self.refuse(test, "OW_E_SHAPE", arg=self.origin(x), got="INT64_MIN")

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
            out += [f"OwkGemm g{k.id};", f"int64_t g{k.id}_at;"]
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

    def per_thread(self) -> bool:
        """Whether each thread has memory of its own."""
        return bool(self.p.contracts) or any(b.scope == "thread" for b in self.p.buffers)

    def stride_members(self, t: Tensor, dims: list[tuple[int, bool]]) -> list[str]:
        n = self.tensor(t.name)
        scalars = [f"{n}_s{k}" for k, pack in dims if not pack]
        out = [f"int64_t {', '.join(scalars)};"] if scalars else []
        return out + [f"int64_t {n}_p{k}[OW_MAX_RANK];" for k, pack in dims if pack]

    @staticmethod
    def dims(t: Tensor) -> list[DimUse]:
        """The dims that indices name: kept ones of extent 1 are only in the shape."""
        return [d for d in t.dims if not d.keep]

    @staticmethod
    def element(a: Attr) -> DType:
        return DType.F64 if a.kind == "floats" else DType.I64

    def length(self, a: Attr) -> int:
        known = dict(self.op.key.lengths).get(a.name)
        if known is not None:
            return known
        exprs = [d.expr for d in self.op.dims if d.expr is not None] + [r.expr for r in self.op.rules]
        exprs += [e for s in self.op.body for e in (s.assign.value, *s.assign.target.index)]
        return 1 + max(
            (n.lane for e in exprs for n in walk(e) if isinstance(n, Item) and n.id == a.name), default=-1
        )

    def linear_packs(self) -> list[str]:
        found: dict[str, None] = {}
        for w in walks(self.p):
            packs = {a.name: a for a in w.axes}
            for o in w.operands:
                if o.kind == "linear":
                    extent = packs[o.axis].extent
                    assert isinstance(extent, Name)
                    found[self.whole(extent.id)] = None
        return list(found)

    def whole(self, pack: str) -> str:
        """The pack that `pack` is, or is a part of."""
        for x in self.p.splits:
            if pack in (x.own, x.gone) and isinstance(x.over, Name):
                return x.over.id
        return pack

    def aligned(self) -> list[tuple[str, int, str]]:
        """(tensor, index entry, pack): strides of an entry's own pack along the axes of another that walks it."""
        found: dict[tuple[str, int, str], None] = {}
        for w in walks(self.p):
            packs = {a.name: a.extent for a in w.axes if a.pack}
            for o in w.operands:
                for axis, k in o.lanes:
                    extent = packs.get(axis)
                    if isinstance(extent, Name) and self.needs_aligning(o.tensor, k, self.whole(extent.id)):
                        found[(o.tensor, k, self.whole(extent.id))] = None
        return list(found)

    def needs_aligning(self, tensor: str, k: int, pack: str) -> bool:
        t = self.op.tensor(tensor)
        mine = self.dims(t)[k].extent
        return (
            not t.expand
            and isinstance(mine, Name)
            and mine.id != pack
            and (shares(self.op, mine.id, pack) or shares(self.op, pack, mine.id))
        )

    def aligned_name(self, tensor: str, k: int, pack: str) -> str:
        return f"{self.tensor(tensor)}_p{k}_{self.dim(pack)}"

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
        w = _Where(rank, order)
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

    def origin(self, x: Expr | None) -> int:
        """The input to name in an error about an extent: the first that its expression takes an extent from."""
        for n in walk(x) if x is not None else ():
            if isinstance(n, Load) and n.tensor in self.slot:
                return self.slot[n.tensor]
            if isinstance(n, Name) and n.kind in ("dim", "pack"):
                d = next((d for d in self.op.dims if d.name == n.id), None)
                if d is not None and d.sources:
                    return self.slot[d.sources[0][0]]
                if d is not None and d.expr is not None and (k := self.origin(d.expr)) >= 0:
                    return k
        return min(self.slot.values(), default=-1)

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
            line(f"e.row_bytes += owk_gemm_bytes<{compute_type(s.dtype)}>({extents});")
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


def walks(p: LoopProgram) -> list[Walk]:
    """Every walk of a program, in the order of their numbers."""
    stmts = [s for n in (*p.rules, *p.nests) for s in n.body] + [s for z in p.sizes for s in z.body]
    return walks_in(stmts)


def walks_in(stmts: Iterable[LoopStmt]) -> list[Walk]:
    """Every walk in statements, in the order of their numbers."""
    found: dict[int, Walk] = {}

    def go(body: Iterable[LoopStmt]) -> None:
        for s in body:
            match s:
                case Walk():
                    found[s.id] = s
                    go(s.body)
                case For(body=b):
                    go(b)
                case If(then=a, orelse=b):
                    go(a)
                    go(b)
                case Accumulate(loop=loop, body=b):
                    if isinstance(loop, Walk):
                        found[loop.id] = loop
                    go(b)
                case Tile(before=a, body=b):
                    go(a)
                    go(b)
                case Contract(left=left, right=right, epilogue=last):
                    go((left.walk, right.walk, last))

    go(stmts)
    return [found[k] for k in sorted(found)]
