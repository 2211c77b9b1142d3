"""The CUDA dialects: kernels as device code for NVRTC, and a launcher as host text that plans their launches.

The loops are those of every target; this dialect deals them out.  A nest of independent elements is one
grid-stride loop
(`thread`); a nest of rows gives each row to a block (`block`), where straight code is uniform, independent
loops are dealt
out by thread, reductions are the block's, and memory written by one thread is read after a barrier.

May import: expr, bound, loops, plan, types, errors, c_expr, c_like, prologue.  To add an architecture: its name in
`ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..bound import BoundOp
from ..errors import LowerError
from ..expr import Call, Expr, Name, walk
from ..loops import (
    Accumulate,
    ArgBegin,
    ArgStep,
    Elem,
    For,
    If,
    Let,
    LoopProgram,
    LoopStmt,
    Nest,
    Set,
    Store,
    Walk,
)
from ..lower import lower
from ..normal import identity
from .c_expr import compute_type, storage_type
from .c_like import CLike
from .prologue import Prologue
from .prologue_names import walks_in

__all__ = ["ARCHITECTURES", "Cuda", "CudaText", "print_cuda"]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")


@dataclass(frozen=True)
class CudaText:
    """One operator for CUDA: device code for NVRTC, and the host text of its launcher
    (runtime/include/opwright/launch.h).
    """

    kernel: str
    launcher: str
    symbol: str
    row: dict[str, object]


class Cuda(CLike):
    """Device C++.  `block`: a row's threads run this nest together; `shared` code is uniform over them."""

    ivdep = ""
    inline = ""

    def __init__(self, program: LoopProgram) -> None:
        super().__init__(program)
        self.block_nest = False
        self.uniform = False
        self.fills: dict[
            str, tuple[str, str]
        ] = {}  # member of the kernel's parameter -> type, host expression

    # -------------------------------------------------------------------------------------------- strings
    def inf(self, suffix: str) -> str:
        return "__int_as_float(0x7f800000)" if suffix else "__longlong_as_double(0x7ff0000000000000LL)"

    def nan(self, suffix: str) -> str:
        return "__int_as_float(0x7fc00000)" if suffix else "__longlong_as_double(0x7ff8000000000000LL)"

    # -------------------------------------------------------------------------------------------- the
    # kernel's parameter
    def env(self, name: str, ctype: str, source: str | None = None) -> str:
        if self.host:
            return super().env(name, ctype, source)
        self.fills[name] = (ctype, source or f"e.{name}")
        self.used[name] = f"const {ctype} {name} = e.{name};"
        return name

    def base(self, tensor: str) -> str:
        if self.host:
            return super().base(tensor)
        name = self.tensor_name(tensor)
        b = self.p.buffer(tensor)
        t = self.p.op.tensor(tensor)
        ctype = storage_type(t.dtype)
        if b is not None and b.scope == "thread":
            self.fills["rows"] = ("char*", "e.rows")
            self.fills["row_bytes"] = ("int64_t", "e.row_bytes")
            self.fills[f"{name}_at"] = ("int64_t", f"e.{name}_at")
            self.used[name] = (
                f"{ctype}* const {name} = ({ctype}*)(e.rows + blockIdx.x * e.row_bytes + e.{name}_at);"
            )
            return name
        if b is not None and b.scope == "stack":
            raise LowerError(f"{self.p.op.name}: a tile has no CUDA text")
        const = "const " if t.role == "input" else ""
        self.fills[name] = (f"{const}{ctype}*", f"e.{name}")
        self.used[name] = f"{const}{ctype}* const {name} = e.{name};"
        return name

    def call(self, x: Call) -> tuple[str, int]:
        if x.fn == "lane" and not self.host:
            assert isinstance(x.args[0], Name)
            pack = self.p.names[("dim", x.args[0].id)]
            self.fills[pack] = ("OwkPack", f"e.{pack}")
        return super().call(x)

    # -------------------------------------------------------------------------------------------- statements
    def alone(self, body: Callable[[], None]) -> None:
        """Code that one thread runs by itself."""
        before, self.uniform = self.uniform, False
        body()
        self.uniform = before

    def barrier(self) -> None:
        if self.uniform:
            self.line("__syncthreads();")

    def store(self, s: Store) -> None:
        if not self.uniform:
            super().store(s)
            return
        with self.indented("if (threadIdx.x == 0) {"):
            super().store(s)
        self.barrier()

    def loop(self, s: For, body: Callable[[], None] | None = None) -> None:
        if not self.uniform or body is not None or s.kind == "serial" or s.step != 1:
            super().loop(s, body)
            return
        lo, hi = self.expr(s.lo), self.expr(s.hi, 10)
        first = "threadIdx.x" if lo == "0" else f"{lo} + threadIdx.x"
        head = f"for (int64_t {s.var} = {first}; {s.var} < {hi}; {s.var} += blockDim.x) {{"
        with self.indented(head, skip="continue;"):
            self.alone(lambda: self.block(s.body))
        self.barrier()

    def at(self, w: Walk, g: str) -> None:
        """Where a walk is at step `g`."""
        if not w.operands:
            return
        self.line(f"OwkAt<{self.width(w)}> a{w.id};")
        self.line(f"owk_seek(e.w{w.id}, {g}, a{w.id});")
        for k, o in enumerate(w.operands):
            self.line(self.pointer(w, k, o))
        self.enter(w)

    def walk(self, w: Walk) -> None:
        g, total = f"g{w.id}", f"e.w{w.id}.total"
        dealt = self.uniform and w.parallel
        head = (
            f"for (int64_t {g} = threadIdx.x; {g} < {total}; {g} += blockDim.x) {{"
            if dealt
            else f"for (int64_t {g} = 0; {g} < {total}; ++{g}) {{"
        )

        def body() -> None:
            self.at(w, g)
            self.block(w.body)

        with self.indented(head, skip="continue;"):
            self.alone(body) if dealt else body()
        if dealt:
            self.barrier()

    def steps(self, w: Walk, lo: str, hi: str) -> None:
        """The outermost walk: rows to blocks, or elements to threads."""
        g, total = f"g{w.id}", f"e.w{w.id}.total"
        first, step = (
            ("blockIdx.x", "gridDim.x")
            if self.block_nest
            else ("blockIdx.x * (int64_t)blockDim.x + threadIdx.x", "gridDim.x * (int64_t)blockDim.x")
        )
        with self.indented(f"for (int64_t {g} = {first}; {g} < {total}; {g} += {step}) {{", skip="continue;"):
            self.at(w, g)
            self.block(w.body)

    # -------------------------------------------------------------------------------------------- reductions
    def run_sum(self, s: Accumulate) -> None:
        self.leaf_sum(s)

    def leaf_sum(self, s: Accumulate) -> None:
        """A reduction over one counted loop, by the block where the code is uniform, else by the thread."""
        ctype = compute_type(s.dtype)
        if isinstance(s.loop, Walk):
            lo, hi, var = "0", f"e.w{s.loop.id}.total", f"g{s.loop.id}"
        else:
            lo, hi, var = self.expr(s.loop.lo), self.expr(s.loop.hi), s.loop.var
        unit = self.expr(identity(s.kind, s.dtype))
        join = self.joined_text(s.kind, s.dtype, "p", "q")
        step = f"[&]({ctype} acc, int64_t {var}) -> {ctype} {{"
        blocked = self.blocked(s)
        closing = "});"
        if self.uniform and blocked:
            opening = f"owk_block_sum<{ctype}>({lo}, {hi}, {step}"
        elif self.uniform:
            opening = f"owk_block_fold<{ctype}>({lo}, {hi}, {unit}, {step}"
            closing = f"}}, []({ctype} p, {ctype} q) -> {ctype} {{ return {join}; }});"
        elif blocked:
            opening = f"owk_sum<{ctype}>({lo}, {hi}, {step}"
        else:
            opening = f"owk_fold<{ctype}>({lo}, {hi}, {unit}, {step}"

        def body() -> None:
            if isinstance(s.loop, Walk):
                self.at(s.loop, var)
            self.step_body(s)

        with self.indented(f"const {ctype} {s.name} = {opening}", closing, skip="return acc;"):
            self.alone(body)

    def accumulate(self, s: Accumulate) -> None:
        if s.leaf:
            self.leaf_sum(s)
            return
        if isinstance(s.loop, For):
            super().accumulate(s)
            return
        w, ctype = s.loop, compute_type(s.dtype)
        blocked = self.blocked(s)
        self.line(
            f"OwkCascade<{ctype}> {s.name}_c(e.w{w.id}.total);"
            if blocked
            else f"{ctype} {s.name} = {self.expr(identity(s.kind, s.dtype))};"
        )
        with self.indented(
            f"for (int64_t g{w.id} = 0; g{w.id} < e.w{w.id}.total; ++g{w.id}) {{", skip="continue;"
        ):
            self.at(w, f"g{w.id}")
            self.block(s.body)
            self.line(
                f"{s.name}_c.add({self.expr(s.value)});"
                if blocked
                else f"{s.name} = {self.joined(s.kind, s.dtype, s.name, s.value)};"
            )
        if blocked:
            self.line(f"const {ctype} {s.name} = {s.name}_c.value();")


# ================================================================================================ nests


def _flatten(stmts: Sequence[LoopStmt]) -> list[LoopStmt]:
    out: list[LoopStmt] = []
    for s in stmts:
        out.append(s)
        match s:
            case For(body=b) | Walk(body=b) | Accumulate(body=b):
                out += _flatten(b)
            case If(then=a, orelse=b):
                out += _flatten(a) + _flatten(b)
    return out


def _exprs(s: LoopStmt) -> list[Expr]:
    match s:
        case Let(value=v) | Set(value=v) | Accumulate(value=v) | ArgStep(value=v):
            return [v]
        case Store(target=t, value=v):
            return [t, v]
        case If(test=t):
            return [t]
    return []


def by_block(p: LoopProgram, n: Nest) -> bool:
    """Whether a block takes a row: there is something in it to share, and no reuse across rows that a grid
    would spread.
    """
    w = n.walk
    if w.mode == "flat":
        return False
    inner = _flatten(w.body)
    loops = [s for s in inner if isinstance(s, (For, Walk))]
    sums = [s for s in inner if isinstance(s, (Accumulate, ArgBegin))]
    thread_buffers = {b.tensor for b in p.buffers if b.scope == "thread"}
    uses = {x.tensor for s in inner for e in _exprs(s) for x in walk(e) if isinstance(x, Elem)}
    if not loops and not sums:
        return False
    if not n.parallel or uses & thread_buffers or loops:
        return True
    # Only sums: when some operand does not move along the walk's last axis, neighbours share it (a matrix product).
    last = w.axes[-1].name if w.axes else ""
    moved = [o for o in w.operands if o.kind == "element" and p.op.tensor(o.tensor).role == "input"]
    return all(any(a == last for a, _ in o.lanes) for o in moved)


def print_cuda(op: BoundOp, symbol: str, prelude: str) -> tuple[str, str]:
    """(kernel text, launcher text) of a Normal program.  Raises LowerError for what CUDA text cannot do yet."""
    p = lower(op, "cuda")
    if p.sizes:
        raise LowerError(f"{op.name}: extents that depend on data have no CUDA launcher yet")
    for d in [t.dtype for t in (*op.inputs, *op.outputs, *op.temps)]:
        if d.is_complex:
            raise LowerError(f"{op.name}: complex numbers have no CUDA text yet")
    device, host = Cuda(p), Cuda(p)
    pro = Prologue(p, host)
    named = [(f"{symbol}_rule{k}", n) for k, n in enumerate(p.rules)] + [
        (f"{symbol}_nest{k}", n) for k, n in enumerate(p.nests)
    ]
    members = [_kernel(device, p, name, n) for name, n in named]
    kernel = prelude + "\n".join(device.lines) + "\n"
    _launcher(host, pro, p, symbol, [(name, n, m) for (name, n), m in zip(named, members, strict=True)])
    return kernel, "\n".join(host.lines) + "\n"


def _kernel(c: Cuda, p: LoopProgram, name: str, n: Nest) -> dict[str, tuple[str, str]]:
    """Print one nest's kernel; returns the members of its parameter."""
    c.operands, c.used, c.fills = {}, {}, {}
    c.block_nest = by_block(p, n)
    c.uniform = c.block_nest
    start = len(c.lines)
    c.pad = "  "
    c.block(n.body[:-1])
    c.steps(n.walk, "", "")
    c.pad = ""
    body, c.lines = c.lines[start:], c.lines[:start]
    for w in walks_in(n.body):
        c.fills[f"w{w.id}"] = (f"OwkWalk<{c.width(w)}>", f"e.w{w.id}")
    c.fills["error"] = ("OwError*", "e.error")
    c.line("")
    for t in n.text:
        for part in t.split("\n"):
            c.line(f"// {part}")
    with c.indented(f"struct {name}_args {{", "};"):
        for member, (ctype, _) in c.fills.items():
            c.line(f"{ctype} {member};")
    limit = 256
    with c.indented(f'extern "C" __global__ void __launch_bounds__({limit}) {name}(const {name}_args e) {{'):
        for text in c.used.values():
            c.line(text)
        c.lines += body
    return dict(c.fills)


def _launcher(
    c: Cuda,
    pro: Prologue,
    p: LoopProgram,
    symbol: str,
    kernels: list[tuple[str, Nest, dict[str, tuple[str, str]]]],
) -> None:
    ns = f"{symbol}_"
    c.line('#include "opwright/launch.h"')
    c.line("")
    c.line(f"namespace {ns} {{")
    c.line("")
    with c.indented("struct Env {", "};"):
        for m in pro.env():
            c.line(m)
    for name, _, members in kernels:
        with c.indented(f"struct {name}_args {{", "};"):
            for member, (ctype, _) in members.items():
                c.line(f"{ctype.replace('OwkWalk<', 'OwkDeviceWalk<')} {member};")
    c.line("")
    with c.indented("static int32_t bind(const OwCall* c, Env& e, bool run) {"):
        pro.bind(first_byte="OWK_ERROR_BYTES", slots="OWK_MOST_BLOCKS")
    c.line("")
    c.line(f"}}  // namespace {ns}")
    c.line("")
    with c.indented(f'extern "C" int32_t {symbol}_infer(const OwCall* c) {{'):
        c.line(f"{ns}::Env e;")
        c.line(f"if ({ns}::bind(c, e, false)) return c->error->code;")
        for i, t in enumerate(p.op.outputs):
            c.line(f"c->shapes[{i}] = e.{pro.tensor(t.name)}_shape;")
        c.line("return OW_OK;")
    with c.indented(f'extern "C" int64_t {symbol}_workspace(const OwCall* c) {{'):
        c.line(f"{ns}::Env e;")
        c.line(f"if ({ns}::bind(c, e, false)) return -(int64_t)c->error->code;")
        c.line("return e.shared_bytes + e.row_bytes * OWK_MOST_BLOCKS;")
    with c.indented(
        f'extern "C" int32_t {symbol}_plan(const OwCall* c, OwkLaunch* out, int32_t capacity) {{'
    ):
        c.line(f"using namespace {ns};")
        c.line("Env e;")
        c.line("if (bind(c, e, true)) return -c->error->code;")
        c.line("e.error = (OwError*)c->workspace;  // on the device; zero before the first launch")
        c.line("int32_t count = 0;")
        for name, n, members in kernels:
            _plan(c, pro, p, name, n, members)
        c.line("return count;")


def _plan(
    c: Cuda, pro: Prologue, p: LoopProgram, name: str, n: Nest, members: dict[str, tuple[str, str]]
) -> None:
    c.host = True
    with c.indented("{"):
        for w in walks_in(n.body):
            pro.set_up(w)
        total = f"e.w{n.walk.id}.total"
        with c.indented(f"if ({total} > 0) {{"):
            c.line(
                "if (count == capacity) return -owk_fail("
                f"c->error, OW_E_ABI, -1, -1, -1, {len(p.rules) + len(p.nests)}, capacity);"
            )
            c.line(f"{name}_args a;")
            for member, (ctype, source) in members.items():
                if ctype.startswith("OwkWalk<"):
                    c.line(
                        f"if (!owk_to_device({source}, a.{member})) return -owk_fail("
                        f"c->error, OW_E_RANK, -1, -1, -1, OWK_DEVICE_AXES, {source}.rank);"
                    )
                else:
                    c.line(f"a.{member} = {source};")
            if by_block(p, n):
                blocks, threads = f"owk_least(OWK_MOST_BLOCKS, {total})", f"owk_row_threads({c.expr(n.work)})"
            else:
                blocks, threads = f"owk_least(1 << 20, owk_round_up({total}, 256) / 256)", "256"
            c.line(f'owk_launch(out[count++], "{name}", {blocks}, {threads}, a);')
    c.host = False
