"""The text of a nest that is a contraction: tasks, factors, epilogue; gemm.h does the rest.

A factor that is an element of memory moved along strides is handed over as such (`OwkPlain`: read in place, or
packed by vectors); any other one as a function that packs it.

May import: c_expr, c_like, loops, expr, types.  To add a kind of factor: a case in `_factor`, its type beside OwkPlain.
"""

from __future__ import annotations

from dataclasses import replace

from ..expr import FUNCTIONS, Call, Expr, Num
from ..loops import Contract, Elem, Factor, Local, Nest, Store
from ..types import DType
from .c_expr import compute_dtype, compute_type, storage_type
from .c_like import CLike

__all__ = ["by_pairs", "inside", "launch", "plan_type", "room", "tasks"]


def tasks(c: CLike, n: Nest) -> None:
    """The loop over tasks [lo, hi) of a contraction's nest."""
    w, k = n.walk, n.contract
    assert k is not None
    ctype = compute_type(k.dtype)
    c.line(f"{ctype}* const scratch = ({ctype}*)(e.rows + thread * e.row_bytes + e.g{k.id}_at);")
    with c.indented("for (int64_t task = lo; task < hi; ++task) {", skip="continue;"):
        c.line(f"OwkTile tile = owk_tile(e.g{k.id}, task);")
        c.line(f"OwkAt<{c.width(w)}> a{w.id};")
        c.line(f"owk_seek(e.w{w.id}, tile.outer, a{w.id});")
        for i, o in enumerate(w.operands):
            c.line(c.pointer(w, i, o))
        outside = dict(c.operands)
        c.enter(w)
        c.block(w.body[:-1])
        if k.limit is not None:
            c.line(f"tile.m1 = owk_least(tile.m1, {c.expr(k.limit)});")
            c.line("if (tile.m0 >= tile.m1) continue;")
        _factor(c, "left", k.left, k.dtype)
        _factor(c, "right", k.right, k.dtype)
        _sums(c, k, f"e.g{k.id}")
        c.operands = outside


def inside(c: CLike, k: Contract) -> None:
    """A contraction among the statements of a block of rows."""
    ctype = compute_type(k.dtype)
    assert k.limit is not None
    with c.indented("{"):
        c.line(f"{ctype}* const scratch = ({ctype}*)(e.rows + thread * e.row_bytes + e.g{k.id}_at);")
        _factor(c, "left", k.left, k.dtype)
        _factor(c, "right", k.right, k.dtype)
        c.line(f"{plan_type(c, k)} gemm;")
        tiles = f", e.g{k.id}.tiles" if by_pairs(c, k) else ""
        c.line(
            f"{_cut(c, k)}(gemm, 1, {c.expr(k.limit)}, e.w{k.columns.id}.total, "
            f"e.w{k.left.walk.id}.total, 1{tiles});"
        )
        with c.indented("for (int64_t task = 0; task < gemm.down * gemm.across; ++task) {", skip="continue;"):
            c.line("OwkTile tile = owk_tile(gemm, task);")
            if k.until is not None:
                c.line(f"tile.read = owk_least(tile.n1, owk_most(tile.n0, {c.expr(k.until)}));")
            _sums(c, k, "gemm")


def _sums(c: CLike, k: Contract, plan: str) -> None:
    ctype = compute_type(k.dtype)
    c.line("int64_t sums_stride;")
    sparse = ["true"] if k.inside else []
    if by_pairs(c, k):
        tile = f"owk_pairs_tile<{', '.join(sparse)}>"
    else:
        tile = f"owk_gemm_tile<{', '.join([ctype, *sparse])}>"
    c.line(f"const {ctype}* const sums = {tile}({plan}, tile, left, right, scratch, &sums_stride);")
    _epilogue(c, k)


def launch(c: CLike, n: Nest, k: Contract, name: str) -> None:
    """Host text: cut the contraction into tiles, then run its tasks."""
    c.host = True
    rows, columns, terms = k.epilogue.id, k.columns.id, k.left.walk.id
    g = f"e.g{k.id}"
    tiles = f", {g}.tiles" if by_pairs(c, k) else ""
    c.line(
        f"{_cut(c, k)}({g}, e.w{n.walk.id}.total, e.w{rows}.total, e.w{columns}.total, "
        f"e.w{terms}.total, c->max_threads{tiles});"
    )
    c.line(f"owk_parallel(c, e.w{n.walk.id}.total * {g}.down * {g}.across, owk_gemm_work({g}), {name}, &e);")
    c.host = False


def by_pairs(c: CLike, k: Contract) -> bool:
    """Whether the dialect has tiles for this: a factor of bf16 and another, or one of f32 (pairs.h)."""
    kinds = {_kind(k.left, k.dtype), _kind(k.right, k.dtype)}
    return c.pairs and k.dtype is DType.F32 and DType.BF16 in kinds and kinds <= {DType.BF16, DType.F32}


def _kind(f: Factor, dtype: DType) -> DType | None:
    """What the elements of a factor are: as they lie in memory, or as the text computes them."""
    x = _bare(f.value) if f.window else _plain(f, dtype)
    return x.dtype if x is not None else dtype


def plan_type(c: CLike, k: Contract) -> str:
    """The type of a contraction's plan."""
    return "OwkPairs" if by_pairs(c, k) else "OwkGemm"


def room(c: CLike, k: Contract) -> str:
    """The function that says how much scratch memory a contraction's tile needs."""
    return "owk_pairs_bytes" if by_pairs(c, k) else f"owk_gemm_bytes<{compute_type(k.dtype)}>"


def _cut(c: CLike, k: Contract) -> str:
    return "owk_pairs_plan" if by_pairs(c, k) else f"owk_gemm_plan<{compute_type(k.dtype)}>"


def _bare(x: Expr) -> Expr:
    while isinstance(x, Call) and x.fn not in FUNCTIONS and len(x.args) == 1:
        x = x.args[0]
    return x


def _plain(f: Factor, dtype: DType) -> Elem | None:
    """The element that a factor is, where all that moves it are the two walks' strides."""
    x = _bare(f.value)
    walk, own = f.walk, f.own
    if not isinstance(x, Elem) or len(walk.body) > 1 or own.body:
        return None
    if x.dtype is None or not x.dtype.is_float or compute_dtype(x.dtype) is not dtype:
        return None
    if any(o.kind != "element" for o in (*walk.operands, *own.operands)):
        return None
    if len(walk.operands) > 1 or len(own.operands) > 1:
        return None
    # casts on the way must not round
    y: Expr = f.value
    while isinstance(y, Call):
        if y.dtype not in (dtype, x.dtype):
            return None
        y = y.args[0]
    return x


def _factor(c: CLike, name: str, f: Factor, dtype: DType) -> None:
    x = _plain(f, dtype)
    if x is not None:
        _in_place(c, name, f, x, dtype)
        return
    ctype = compute_type(dtype)
    w, own = f.walk, f.own
    outside = dict(c.operands)
    g, t = f"g{own.id}", f"t{own.id}"
    jump = "int64_t jump, " if f.window else ""
    with c.indented(
        f"const auto {name}_pack = [&]({ctype}* to, int64_t width, {jump}int64_t i0, int64_t i1, int64_t k0, "
        "int64_t k1) {",
        "};",
        skip="return;",
    ):
        c.line(f"OwkAt<{c.width(w)}> a{w.id};")
        c.line(f"owk_seek(e.w{w.id}, k0, a{w.id});")
        c.line(f"OwkAt<{c.width(own)}> start;")
        c.line(f"owk_seek(e.w{own.id}, i0, start);")
        with c.indented(
            f"for (int64_t g{w.id} = k0; g{w.id} < k1; ++g{w.id}, owk_move(e.w{w.id}, a{w.id}, 1)) {{",
            skip="continue;",
        ):
            for i, o in enumerate(w.operands):
                c.line(c.pointer(w, i, o))
            c.enter(w)
            c.block(w.body[:-1])
            start = f"to + (g{w.id} - k0) * width"
            if f.window:
                c.line(f"OwkCursor<{ctype}> at = {{{start}, width, jump, 0}};")
            else:
                c.line(f"{ctype}* const at = {start} - i0;")
            c.line(f"OwkAt<{c.width(own)}> a{own.id} = start;")
            if f.window:
                _window(c, f)
            else:
                place = Elem("at", "", (Local(f"{g} + {t}"),), (Num(1, dtype=DType.I64),), dtype=dtype)
                c.steps(replace(own, body=(*own.body, Store(place, "=", f.value))), "i0", "i1")
    c.operands = outside
    if not f.window:
        c.line(f"const auto {name} = owk_computed({name}_pack);")
        return
    _point(c, name, f)
    kind = f"{_stored(f)}, {len(f.window)}, {'true' if f.apart else 'false'}"
    make = "owk_lined" if c.lined else "owk_windowed"
    c.line(f"const auto {name} = {make}<{kind}>({name}_pack, {name}_point, e.w{own.id}, e.w{w.id});")


def _stored(f: Factor) -> str:
    """How the elements of a window lie in memory."""
    value = _bare(f.value)
    assert isinstance(value, Elem) and value.dtype is not None
    return storage_type(value.dtype)


def _point(c: CLike, name: str, f: Factor) -> None:
    """A window's element at one place of both walks: where it lies, and by how much it is inside, each with its step
    along a run.  Nothing where a check fails: packing reports it, should an element be read.
    """
    w, own = f.walk, f.own
    outside = dict(c.operands)
    params = (
        f"[[maybe_unused]] const OwkAt<{c.width(w)}>& a{w.id}, "
        f"[[maybe_unused]] const OwkAt<{c.width(own)}>& a{own.id}, int64_t* inside, int64_t* by, int64_t* step"
    )
    with c.indented(
        f"const auto {name}_point = [&]({params}) -> const {_stored(f)}* {{", "};", skip="return nullptr;"
    ):
        for i, o in enumerate(w.operands):
            c.line(c.pointer(w, i, o))
        c.enter(w)
        c.block(w.body[:-1])
        for i, o in enumerate(own.operands):
            c.line(c.pointer(own, i, o))
        t = f"t{own.id}"
        memory, place = _moving(c, f)
        for k, x in enumerate(f.window):
            c.line(f"const auto inside{k} = [&](int64_t {t}) {c.inline}{{ return {c.expr(x)}; }};")
            c.line(f"inside[{k}] = inside{k}(0), by[{k}] = inside{k}(1) - inside[{k}];")
        for check in f.checks:
            index, extent = c.expr(check.index), c.expr(check.extent)
            c.line(f"if ((uint64_t)({index}) >= (uint64_t)({extent})) return nullptr;")
        c.line(f"const auto place = [&](int64_t {t}) {c.inline}{{ return {place}; }};")
        c.line("*step = place(1) - place(0);")
        c.line(f"return {memory} + place(0);")
    c.operands = outside


def _moving(c: CLike, f: Factor) -> tuple[str, str]:
    """Enter a run of a window: its operands' steps; where its elements lie, as a pointer and a place after it."""
    own = f.own
    c.enter(own, f"t{own.id}")
    for o in own.operands:
        c.line(f"const int64_t {o.name}_s = e.w{own.id}.step[{c.operands[o.name][1]}][e.w{own.id}.rank - 1];")
    value = _bare(f.value)
    assert isinstance(value, Elem)
    memory, _, place = c.place(value).partition("[")
    return memory, place[:-1]


def _window(c: CLike, f: Factor) -> None:
    """Runs of a window: which part of one lies inside is known from its ends, and that part is copied."""
    own = f.own
    g, t, n = f"g{own.id}", f"t{own.id}", f"n{own.id}"
    with c.indented(f"for (int64_t {g} = i0; {g} < i1;) {{", skip="return;"):
        c.run_head(own, "i1", g)
        memory, place = _moving(c, f)
        c.line(f"int64_t first = 0, last = {n};")
        for x in f.window:
            c.line(f"owk_clip([&](int64_t {t}) {c.inline}{{ return {c.expr(x)}; }}, {n}, &first, &last);")
        if f.checks:
            with c.indented("if (first < last) {"):
                c.block(f.checks)
        c.line(f"const auto place = [&](int64_t {t}) {c.inline}{{ return {place}; }};")
        c.line(f"owk_window(at, {n}, first, last, {memory}, place(first), place(1) - place(0));")
        c.line(f"owk_move(e.w{own.id}, a{own.id}, {n});")
        c.line(f"{g} += {n};")


def _in_place(c: CLike, name: str, f: Factor, x: Elem, dtype: DType) -> None:
    first = next((o for w in (f.walk, f.own) for o in w.operands), None)
    assert x.dtype is not None
    tensor = x.tensor
    base = first.base if first is not None else x.ptr
    if base == c.tensor_name(tensor):
        base = c.base(tensor)
    terms = [base]
    for i, s in zip(x.index, x.stride, strict=True):
        text = c.stride(s)
        terms.append(c.expr(i, 11) if text == "1" else f"{c.expr(i, 12)} * {text}")
    kind = f"OwkPlain<{compute_type(dtype)}, {storage_type(x.dtype)}>"
    c.line(f"const {kind} {name} = {{{' + '.join(terms)}, &e.w{f.own.id}, &e.w{f.walk.id}}};")


def _epilogue(c: CLike, k: Contract) -> None:
    rows, columns = k.epilogue, k.columns
    ctype = compute_type(k.dtype)
    with c.indented("{"):
        c.line(f"OwkAt<{c.width(rows)}> a{rows.id};")
        c.line(f"owk_seek(e.w{rows.id}, tile.m0, a{rows.id});")
        c.line(f"OwkAt<{c.width(columns)}> start;")
        c.line(f"owk_seek(e.w{columns.id}, tile.n0, start);")
        with c.indented(
            f"for (int64_t g{rows.id} = tile.m0; g{rows.id} < tile.m1; "
            f"++g{rows.id}, owk_move(e.w{rows.id}, a{rows.id}, 1)) {{",
            skip="continue;",
        ):
            for i, o in enumerate(rows.operands):
                c.line(c.pointer(rows, i, o))
            c.enter(rows)
            c.block(rows.body[:-1])
            c.line(f"const {ctype}* const sums_row = sums + (g{rows.id} - tile.m0) * sums_stride - tile.n0;")
            c.line(f"OwkAt<{c.width(columns)}> a{columns.id} = start;")
            c.cell = f"sums_row[g{columns.id} + t{columns.id}]"
            c.steps(columns, "tile.n0", "tile.n1")
            c.cell = ""
