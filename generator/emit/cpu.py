"""The CPU dialects: one translation unit per kernel, three entry points, loops as chunk functions.

May import: c_like, gemm, prologue, prologue_names, loops, bound.  To add a dialect: a row in `DIALECTS`
(its flags are toolchain.py's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..expr import Expr
from ..loops import Contract, LoopProgram, LoopStmt, Nest, contracts_in
from . import gemm
from .c_like import CLike, unit_strides
from .columns import Columns, fits, row_buffers, unit_votes
from .prologue import Prologue
from .prologue_names import walks_in

__all__ = ["DIALECTS", "Cpu", "entries", "open_namespace", "print_cpu"]


class Cpu(CLike):
    """GNU C++ (gcc, clang)."""

    angles = True

    def _statement(self, s: LoopStmt) -> None:
        if isinstance(s, Contract):
            gemm.inside(self, s)
        else:
            super()._statement(s)


class CpuTiles(Cpu):
    """With vectors as long as a small image's row; there may be tiles for bf16 (the caller of a kernel says so); a
    subnormal number costs as much as hundreds of others."""

    pairs = masked = lined = True


class CpuPortable(Cpu):
    """For machines without fma, where the builtin would be a call."""

    fma = angles = False


DIALECTS: dict[str, type[Cpu]] = {"cpu-avx512": CpuTiles, "cpu-avx2": Cpu, "cpu-portable": CpuPortable}


def print_cpu(p: LoopProgram, dialect: str, symbol: str) -> str:
    """The text of one kernel, everything but its three entry points inside `namespace <symbol>_`."""
    c = DIALECTS[dialect](p)
    c.wide = any(_by_columns(c, n) and row_buffers(c, n) for n in p.nests)
    pro = Prologue(p, c)
    open_namespace(c, pro, p, symbol)
    c.line(f"}}  // namespace {symbol}_")
    c.line("")

    def run() -> None:
        for k, n in enumerate(p.nests):
            _launch(c, pro, n, f"nest{k}")

    entries(c, pro, p, symbol, run)
    return "\n".join(c.lines) + "\n"


def open_namespace(c: Cpu, pro: Prologue, p: LoopProgram, symbol: str) -> None:
    """`namespace <symbol>_`, left open behind what all entry points share: `Env`, rules, loops, `bind`."""
    c.line(f"namespace {symbol}_ {{")
    c.line("")
    with c.indented("struct Env {", "};"):
        for m in pro.env():
            c.line(m)
    for s in p.sizes:
        _size(c, pro, s.dim, s.body, s.value)
    for k, n in enumerate(p.rules):
        _nest(c, n, f"rule{k}")
        c.line("")
        with c.indented(f"static void check{k}(const OwCall* c, Env& e) {{"):
            c.line("(void)c;")
            _launch(c, pro, n, f"rule{k}")
    for k, n in enumerate(p.nests):
        _nest(c, n, f"nest{k}")
    c.line("")
    with c.indented("static int32_t bind(const OwCall* c, Env& e, bool run) {"):
        pro.bind()
    c.line("")


def _body(c: CLike, head: Sequence[str], opening: str, print_body: Callable[[], None]) -> None:
    """A function whose constants are known once its body is printed."""
    start = len(c.lines)
    c.used = {}
    for h in head:
        c.line(h)
    with c.indented(opening):
        at = len(c.lines)
        print_body()
        c.lines[at:at] = [f"{c.pad}{text}" for text in c.used.values()]
    assert start <= at


def _nest(c: CLike, n: Nest, name: str) -> None:
    contracted = n.contract is not None
    units = [] if contracts_in(n.body) else unit_strides(n.body)
    saved = dict(c.shadows)
    c.line("")
    for t in n.text:
        for part in t.split("\n"):
            c.line(f"// {part}")
    names = {f"{c.stride_name(s)}" for s in units}
    c.operands = {}
    head = ["template <bool UNIT>"] if units else []

    def body() -> None:
        c.line("(void)thread;")
        w = n.walk
        c.block(n.body[:-1])
        if contracted:
            gemm.tasks(c, n)
            return
        c.line(f"OwkAt<{c.width(w)}> a{w.id};")
        c.line(f"owk_seek(e.w{w.id}, lo, a{w.id});")
        c.steps(w, "lo", "hi")
        for k in names & set(c.used):
            c.used[k] = f"const int64_t {k} = UNIT ? 1 : e.{k};"

    def whole() -> None:
        c.line("Env& e = *static_cast<Env*>(ctx);")
        inner = len(c.lines)
        body()
        c.lines[inner:inner] = [f"{c.pad}{text}" for text in c.used.values()]
        c.used = {}

    _body(c, head, f"static void {name}(void* ctx, int64_t lo, int64_t hi, int32_t thread) {{", whole)
    c.shadows = saved
    if _by_columns(c, n):
        _columns(c, n, name)


def _by_columns(c: CLike, n: Nest) -> bool:
    return (
        not contracts_in(n.body)
        and fits(n, frozenset(b.tensor for b in c.p.buffers if b.scope == "stack"))
        and bool(unit_votes(c, n)[0])
    )


def _columns(c: CLike, n: Nest, name: str) -> None:
    """The second text of a nest of rows: see columns.py."""
    c.line("")
    c.line("// the same, many rows at once")
    c.operands = {}
    c.expanded = {}

    def body() -> None:
        c.line("Env& e = *static_cast<Env*>(ctx);")
        at = len(c.lines)
        c.line("(void)thread;")
        c.block(n.body[:-1])
        w = n.walk
        c.line(f"OwkAt<{c.width(w)}> a{w.id};")
        c.line(f"owk_seek(e.w{w.id}, lo, a{w.id});")
        Columns(c, w, row_buffers(c, n)).steps("lo", "hi")
        c.lines[at:at] = [f"{c.pad}{text}" for text in c.used.values()]
        c.used = {}

    _body(c, [], f"static void {name}_columns(void* ctx, int64_t lo, int64_t hi, int32_t thread) {{", body)


def _launch(c: CLike, pro: Prologue, n: Nest, name: str) -> None:
    """Host text: fill the walks of a nest, then run it."""
    for w in walks_in(n.body):
        c.host = True
        pro.set_up(w)
        c.host = False
    k = n.contract
    if k is not None:
        gemm.launch(c, n, k, name)
        return
    units = [] if contracts_in(n.body) else unit_strides(n.body)
    c.host = True
    fn = name
    if units:
        test = " && ".join(f"{c.stride(s)} == 1" for s in units)
        fn = f"{test} ? {name}<true> : {name}<false>"
    if _by_columns(c, n):
        inner, outer = (" + ".join(f"owk_in_line({x})" for x in votes) for votes in unit_votes(c, n))
        width = f"e.w{n.walk.id}.dim[e.w{n.walk.id}.rank - 1]"
        room = "e.columns >= OWK_LANES && " if row_buffers(c, n) else ""
        fn = f"{room}{width} >= OWK_LANES / 4 && {outer} > {inner} ? {name}_columns : {fn}"
    total = f"e.w{n.walk.id}.total"
    if n.parallel:
        c.line(f"owk_parallel(c, {total}, {c.expr(n.work)}, {fn}, &e);")
    else:
        c.line(f"if ({total} > 0) ({fn})(&e, 0, {total}, 0);")
    c.host = False


def _size(c: CLike, pro: Prologue, dim: str, body: tuple[LoopStmt, ...], value: Expr) -> None:
    c.line("")

    def inner() -> None:
        for w in walks_in(body):
            c.host = True
            pro.set_up(w)
            c.host = False
        at = len(c.lines)
        c.skip.append("return 0;")
        c.block(body)
        c.line(f"return {c.expr(value)};")
        c.skip.pop()
        c.lines[at:at] = [f"{c.pad}{text}" for text in c.used.values()]
        c.used = {}

    _body(c, [], f"static int64_t size_{pro.dim(dim)}(Env& e) {{", inner)


def entries(c: CLike, pro: Prologue, p: LoopProgram, symbol: str, run: Callable[[], None]) -> None:
    """The three entry points of abi.h; `run` prints what the kernel does once the call is bound."""
    ns = f"{symbol}_"
    c.line('extern "C" __attribute__((visibility("default")))')
    with c.indented(f"int32_t {symbol}_infer(const OwCall* c) {{"):
        c.line(f"{ns}::Env e;")
        c.line(f"if ({ns}::bind(c, e, false)) return c->error->code;")
        for i, t in enumerate(p.op.outputs):
            c.line(f"c->shapes[{i}] = e.{pro.tensor(t.name)}_shape;")
        c.line("return OW_OK;")
    c.line("")
    c.line('extern "C" __attribute__((visibility("default")))')
    with c.indented(f"int64_t {symbol}_workspace(const OwCall* c) {{"):
        c.line(f"{ns}::Env e;")
        c.line(f"if ({ns}::bind(c, e, false)) return -(int64_t)c->error->code;")
        c.line("return e.shared_bytes + e.row_bytes * owk_most(1, c->max_threads);")
    c.line("")
    c.line('extern "C" __attribute__((visibility("default")))')
    with c.indented(f"int32_t {symbol}(const OwCall* c) {{"):
        c.line(f"using namespace {ns};")
        c.line("Env e;")
        c.line("if (bind(c, e, true)) return c->error->code;")
        if not p.sizes:
            for k, _ in enumerate(p.rules):
                c.line(f"check{k}(c, e);")
            if p.rules:
                c.line("if (c->error->code) return c->error->code;")
        run()
        c.line("return c->error->code;")
