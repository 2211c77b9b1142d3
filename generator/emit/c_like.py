"""Loop -> C: one printer for statements, over that for expressions (c_expr.py); a dialect overrides strings.

The text calls the helpers of runtime/include/opwright/{scalar,kernel}.h, which say once how an odometer turns and how a
sum is blocked.

May import: expr, types, bound, loops, normal, errors, c_expr.  To add a statement: a case in `_statement`.  To add a
dialect: a subclass with other strings; nothing here may ask which dialect it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import LowerError
from ..expr import (
    Call,
    Expr,
    Num,
    Select,
    walk,
)
from ..loops import (
    Accumulate,
    ArgBegin,
    ArgStep,
    Check,
    Elem,
    Fail,
    For,
    If,
    Let,
    Local,
    LoopStmt,
    Operand,
    ScanBegin,
    ScanStep,
    Set,
    Store,
    Stride,
    Tile,
    Var,
    Walk,
)
from ..normal import identity
from ..types import DType
from .c_expr import ADD, HALF, NEAR, REL, CExpr, compute_dtype, compute_type, dtype_of, storage_type

__all__ = ["CLike", "moving", "unit_strides"]


class CLike(CExpr):
    """Prints the loops of one program.  `host` True while text for the call's prologue is made: names live
    in `e.`.
    """

    #: Before a loop whose iterations are independent.
    ivdep = "OWK_IVDEP"
    inline = "OWK_INLINE "

    # -------------------------------------------------------------------------------------------- text
    def line(self, text: str) -> None:
        self.lines.append(self.pad + text if text else "")

    @contextmanager
    def indented(self, opening: str, closing: str = "}", skip: str | None = None) -> Iterator[None]:
        self.line(opening)
        self.pad += "  "
        if skip is not None:
            self.skip.append(skip)
        yield
        if skip is not None:
            self.skip.pop()
        self.pad = self.pad[:-2]
        self.line(closing)

    # -------------------------------------------------------------------------------------------- statements
    def block(self, stmts: Sequence[LoopStmt]) -> None:
        for s in stmts:
            self.statement(s)

    def statement(self, s: LoopStmt) -> None:
        """Print one statement; names that its walks move mean nothing after it."""
        outer = dict(self.operands)
        self._statement(s)
        self.operands = outer

    def _statement(self, s: LoopStmt) -> None:
        match s:
            case Let(name=n, value=v):
                self.line(f"const {compute_type(dtype_of(v))} {n} = {self.expr(v)};")
            case Var(name=n, dtype=d, value=v):
                self.line(f"{compute_type(d)} {n} = {self.expr(v)};")
            case Set(name=n, mode=m, value=v):
                self.line(
                    f"{n} = {self.expr(v) if m in ('=', 'set') else self.combined(n, m, v, dtype_of(v))};"
                )
            case Store():
                self.store(s)
            case If():
                self.branch(s)
            case Check():
                self.check(s)
            case Fail(which=k):
                self.fail_rule(k)
            case For():
                self.loop(s)
            case Walk():
                self.walk(s)
            case Accumulate():
                self.accumulate(s)
            case ArgBegin(name=n, dtype=d):
                self.line(f"OwkArg<{compute_type(d)}> {n} = {{0, 0, 0}};")
            case ArgStep(name=n, kind=k, value=v, at=at):
                self.line(f"{n} = owk_{k}({n}, {self.expr(v)}, {self.expr(at)});")
            case ScanBegin(kind=k, dtype=d):
                for state in self.scan_state(s):
                    self.line(f"{compute_type(d)} {state} = {self.expr(identity(k, d))};")
            case ScanStep():
                self.scan_step(s)
            case Tile():
                self.tile(s)

    def store(self, s: Store) -> None:
        d = dtype_of(s.target)
        place = self.place(s.target)
        if s.mode in ("=", "set"):
            self.line(f"{place} = {self.stored(s.value, d)};")
            return
        new = self.combined(self.load(s.target), s.mode, s.value, d)
        self.line(f"{place} = {f'owk_f32_to_{d}({new})' if d in HALF else new};")

    def branch(self, s: If) -> None:
        if not s.then:
            with self.indented(f"if (!({self.expr(s.test)})) {{"):
                self.block(s.orelse)
            return
        with self.indented(f"if ({self.expr(s.test)}) {{", "} else {" if s.orelse else "}"):
            self.block(s.then)
        if s.orelse:
            self.pad += "  "
            self.block(s.orelse)
            self.pad = self.pad[:-2]
            self.line("}")

    def check(self, s: Check) -> None:
        index, extent = self.expr(s.index), self.expr(s.extent)
        with self.indented(f"if ((uint64_t)({index}) >= (uint64_t)({extent})) {{"):
            self.line(f"owk_report({self.error()}, OW_E_INDEX, -1, {extent}, {index});")
            self.line(self.skip[-1])

    def fail_rule(self, which: int) -> None:
        self.line(f"owk_report({self.error()}, OW_E_DATA, {which}, 0, 0);")

    def error(self) -> str:
        return "e.error"

    def loop(self, s: For, body: Callable[[], None] | None = None) -> None:
        """A counted loop; `body` prints what is in it (its statements)."""
        lo, hi = self.expr(s.lo), self.expr(s.hi, REL + 1)
        step = f"{s.var} += {s.step}" if s.step != 1 else f"++{s.var}"
        head = f"for (int64_t {s.var} = {lo}; {s.var} < {hi}; {step}) {{"
        if s.step < 0:
            head = f"for (int64_t {s.var} = {hi} - 1; {s.var} >= {lo}; --{s.var}) {{"
        if body is None and (self.arg_loop(s, lo, hi) or self.scan_loop(s, lo, hi)):
            return
        if s.kind == "simd" and self.ivdep:
            self.line(self.ivdep)
        with self.indented(head, skip="continue;"):
            if body is None:
                self.block(s.body)
            else:
                body()

    def scan_loop(self, s: For, lo: str, hi: str) -> bool:
        """A loop that only takes a running sum along and uses it: a vector of places at once."""
        at = next((k for k, x in enumerate(s.body) if isinstance(x, ScanStep)), len(s.body))
        before, after = s.body[:at], s.body[at + 1 :]
        step = s.body[at] if at < len(s.body) else None
        if not isinstance(step, ScanStep) or s.step != 1 or not self.blocked(step) or not step.dtype.is_float:
            return False
        made = {x.name for x in before if isinstance(x, Let)}
        uses = [x for x in after if isinstance(x, (Let, Store))]
        if len(made) < len(before) or len(uses) < len(after):
            return False
        used = {n.id for x in uses for e in _values(x) for n in walk(e) if isinstance(n, Local)}
        if made & used:
            return False
        ctype = compute_type(step.dtype)
        index = f"[[maybe_unused]] int64_t {s.var}"
        state = ", ".join(self.scan_state(step))
        with self.indented(
            f"owk_scan_run<{ctype}>({lo}, {hi}, {state}, [&]({index}) {self.inline}-> {ctype} {{"
        ):
            self.block(before)
            self.line(f"return {self.expr(step.value)};")
        self.lines.pop()
        with self.indented(
            f"}}, [&]({index}, [[maybe_unused]] const {ctype} {step.into}) {self.inline}{{", "});"
        ):
            self.block(after)
        return True

    def arg_loop(self, s: For, lo: str, hi: str) -> bool:
        """A loop that only looks for the place of an extreme value: several candidates at once."""
        last = s.body[-1] if s.body else None
        if not isinstance(last, ArgStep) or s.step != 1 or not all(isinstance(x, Let) for x in s.body[:-1]):
            return False
        ctype, found = compute_type(dtype_of(last.value)), f"{last.name}_run"
        with self.indented(
            f"const OwkArg<{ctype}> {found} = owk_{last.kind}_run<{ctype}>({lo}, {hi}, "
            f"[&]([[maybe_unused]] int64_t {s.var}) {self.inline}-> {ctype} {{",
            "});",
        ):
            self.block(s.body[:-1])
            self.line(f"return {self.expr(last.value)};")
        with self.indented(f"if ({found}.seen) {{"):
            self.line(f"[[maybe_unused]] const int64_t {s.var} = {found}.at;")
            self.line(f"{last.name} = owk_{last.kind}({last.name}, {found}.value, {self.expr(last.at)});")
        return True

    # -------------------------------------------------------------------------------------------- walks
    def pointer(self, w: Walk, k: int, o: Operand, along: bool = False) -> str:
        """The declaration of what operand `k` is at this step of the walk (`along`: for a run's first element)."""
        at = f"a{w.id}.at[{k}]"
        if o.kind != "element":
            return f"[[maybe_unused]] const int64_t {o.name} = {at};"
        t = self.p.op.tensor(o.tensor)
        base = self.base(o.tensor) if o.base == self.tensor_name(o.tensor) else o.base
        if not along and o.base in self.operands and self.operands[o.base][3]:
            raise LowerError(f"{self.p.op.name}: a walk inside a run")
        const = "const " if t.role == "input" else ""
        return f"[[maybe_unused]] {const}{storage_type(t.dtype)}* const {o.name} = {base} + {at};"

    def width(self, w: Walk) -> int:
        return max(1, len(w.operands))

    def enter(self, w: Walk, counter: str = "") -> None:
        for k, o in enumerate(w.operands):
            self.operands[o.name] = (w, k, o, counter)

    def walk(self, w: Walk) -> None:
        """A walk inside a nest, from its first element to its last on this thread."""
        with self.indented("{"):
            self.line(f"OwkAt<{self.width(w)}> a{w.id};")
            self.line(f"owk_start(e.w{w.id}, a{w.id});")
            self.steps(w, "0", f"e.w{w.id}.total")

    def steps(self, w: Walk, lo: str, hi: str) -> None:
        """The loop over steps [lo, hi) of a walk whose position `a<id>` stands at lo."""
        g = f"g{w.id}"
        if w.mode == "rows":
            with self.indented(
                f"for (int64_t {g} = {lo}; {g} < {hi}; ++{g}, owk_move(e.w{w.id}, a{w.id}, 1)) {{",
                skip="continue;",
            ):
                for k, o in enumerate(w.operands):
                    self.line(self.pointer(w, k, o))
                self.enter(w)
                self.block(w.body)
            return
        with self.indented(f"for (int64_t {g} = {lo}; {g} < {hi};) {{"):
            self.run_head(w, hi, g)

            def every(lo: str, hi: str) -> None:
                if w.parallel and self.ivdep:
                    self.line(self.ivdep)
                with self.indented(
                    f"for (int64_t t{w.id} = {lo}; t{w.id} < {hi}; ++t{w.id}) {{", skip="continue;"
                ):
                    self.held = {}
                    for k, x in enumerate(self.chosen(w)):
                        text = self.load(x)
                        self.held[x] = f"v{w.id}_{k}"
                        self.line(f"const {compute_type(dtype_of(x))} v{w.id}_{k} = {text};")
                    self.block(w.body)
                    self.held = {}

            def body() -> None:
                angles = _angles(w) if self.angles else None
                if angles is None:
                    every("0", f"n{w.id}")
                else:
                    self.by_distance(w, *angles, every)

            self.run(w, body, "", ";")
            self.line(f"owk_move(e.w{w.id}, a{w.id}, n{w.id});")
            self.line(f"{g} += n{w.id};")

    def chosen(self, w: Walk) -> list[Elem]:
        """What a straight line reads of inputs in one branch of a choice only: read beforehand, it is no branch."""
        body = [s for s in w.body if isinstance(s, (Let, Store))]
        if len(body) < len(w.body):
            return []
        names = {o.name for o in w.operands if o.kind == "element"}
        choices = [n for s in body for x in _values(s) for n in walk(x) if isinstance(n, Select)]
        read = [
            n for c in choices for branch in (c.then, c.other) for n in walk(branch) if isinstance(n, Elem)
        ]
        inputs = [
            x for x in read if x.ptr in names and not x.index and self.p.op.tensor(x.tensor).role == "input"
        ]
        return list(dict.fromkeys(inputs))

    def by_distance(
        self, w: Walk, before: Sequence[Let], angles: Sequence[Expr], every: Callable[[str, str], None]
    ) -> None:
        """A run in short pieces: those without an angle that is far from 0 by the shorter text."""
        b, h, far, t = f"b{w.id}", f"h{w.id}", f"far{w.id}", f"t{w.id}"
        with self.indented(f"for (int64_t {b} = 0; {b} < n{w.id}; {b} += 1024) {{"):
            self.line(f"const int64_t {h} = owk_least(n{w.id}, {b} + 1024);")
            self.line(f"int32_t {far} = 0;")
            with self.indented(f"for (int64_t {t} = {b}; {t} < {h}; ++{t}) {{"):
                self.block(before)
                for x in angles:
                    self.line(f"{far} = owk_farther({far}, {self.expr(x)});")
            with self.indented(f"if ({far} <= OWK_NEAR) {{", "} else {"):
                self.near = True
                every(b, h)
                self.near = False
            self.pad += "  "
            every(b, h)
            self.pad = self.pad[:-2]
            self.line("}")

    def run_head(self, w: Walk, hi: str, g: str) -> None:
        self.line(f"const int64_t n{w.id} = owk_run(e.w{w.id}, a{w.id}, {hi} - {g});")
        for k, o in enumerate(w.operands):
            self.line(self.pointer(w, k, o))

    def run(self, w: Walk, body: Callable[[], None], before: str, after: str) -> None:
        """`body` as a function of the operands' steps along the run, called with literal steps where they
        are 1 or 0.
        """
        elements = [o.name for o in w.operands if o.kind == "element"]
        params = ", ".join(f"[[maybe_unused]] const int64_t {o.name}_s" for o in w.operands)
        self.enter(w, f"t{w.id}")
        with self.indented(f"const auto run{w.id} = [&]({params}) {self.inline}{{", "};"):
            body()
        for o in w.operands:
            k = self.operands[o.name][1]
            self.line(f"const int64_t {o.name}_s = e.w{w.id}.step[{k}][e.w{w.id}.rank - 1];")

        def call(steps: dict[str, int]) -> str:
            return f"run{w.id}({', '.join(str(steps.get(o.name, f'{o.name}_s')) for o in w.operands)})"

        cases: list[dict[str, int]] = [dict.fromkeys(elements, 1)] if elements else []
        inputs = [
            o.name for o in w.operands if o.kind == "element" and self.p.op.tensor(o.tensor).role == "input"
        ]
        if len(elements) > 1 and len(inputs) <= 2:
            cases += [
                dict.fromkeys(elements, 1) | {i: 0}
                for i in inputs
                if len(elements) > len(inputs) or len(inputs) > 1
            ]
        chain = "".join(f"{' && '.join(f'{n}_s == {v}' for n, v in c.items())} ? {call(c)} : " for c in cases)
        if before or not cases:
            self.line(f"{before}{chain}{call({})}{after}")
            return
        for i, c in enumerate(cases):
            test = " && ".join(f"{n}_s == {v}" for n, v in c.items())
            self.line(f"{'else ' if i else ''}if ({test}) {call(c)};")
        self.line(f"else {call({})};")

    # -------------------------------------------------------------------------------------------- reductions
    def joined(self, kind: str, d: DType, acc: str, value: Expr) -> str:
        """`acc` with one more value of a reduction."""
        mode = {"sum": "+=", "prod": "*="}.get(kind, kind)
        return self.combined(acc, mode, value, d)

    def joined_text(self, kind: str, d: DType, a: str, b: str) -> str:
        return self.combined(a, {"sum": "+=", "prod": "*="}.get(kind, kind), Local(b, dtype=d), d)

    def blocked(self, s: Accumulate | ScanBegin | ScanStep) -> bool:
        return s.kind == "sum" and s.dtype.is_inexact

    def terms(self, loop: For | Walk) -> str:
        """How many steps a loop has."""
        if isinstance(loop, Walk):
            return f"e.w{loop.id}.total"
        return f"{self.expr(loop.hi, ADD)} - {self.expr(loop.lo, ADD + 1)}"

    def scan_state(self, s: ScanBegin | ScanStep) -> list[str]:
        """The variables of a running reduction; a sum keeps what its additions lost beside it."""
        return [f"{s.name}_at", f"{s.name}_lost"] if self.blocked(s) else [f"{s.name}_at"]

    def scan_step(self, s: ScanStep, element: str = "", into: str = "") -> None:
        """`element` picks this column's state, `into` is where the value goes (default: a new scalar)."""
        state = [f"{n}{element}" for n in self.scan_state(s)]
        target = into or f"const {compute_type(s.dtype)} {s.into}"
        if self.blocked(s):
            self.line(f"{target} = owk_scan({state[0]}, {state[1]}, {self.expr(s.value)});")
            return
        self.line(f"{state[0]} = {self.joined(s.kind, s.dtype, state[0], s.value)};")
        self.line(f"{target} = {state[0]};")

    def accumulate(self, s: Accumulate) -> None:
        if s.leaf:
            self.leaf_sum(s) if isinstance(s.loop, For) else self.run_sum(s)
            return
        ctype = compute_type(s.dtype)
        if self.blocked(s):
            self.line(f"OwkCascade<{ctype}> {s.name}_c({self.terms(s.loop)});")
        else:
            self.line(f"{ctype} {s.name} = {self.expr(identity(s.kind, s.dtype))};")

        def body() -> None:
            self.block(s.body)
            if self.blocked(s):
                self.line(f"{s.name}_c.add({self.expr(s.value)});")
            else:
                self.line(f"{s.name} = {self.joined(s.kind, s.dtype, s.name, s.value)};")

        if isinstance(s.loop, Walk):
            w = s.loop
            with self.indented("{"):
                self.line(f"OwkAt<{self.width(w)}> a{w.id};")
                self.line(f"owk_start(e.w{w.id}, a{w.id});")
                with self.indented(
                    f"for (int64_t g{w.id} = 0; g{w.id} < e.w{w.id}.total; "
                    f"++g{w.id}, owk_move(e.w{w.id}, a{w.id}, 1)) {{",
                    skip="continue;",
                ):
                    for k, o in enumerate(w.operands):
                        self.line(self.pointer(w, k, o))
                    self.enter(w)
                    body()
        else:
            f = s.loop
            with self.indented(
                f"for (int64_t {f.var} = {self.expr(f.lo)}; {f.var} < {self.expr(f.hi, REL + 1)}; ++{f.var}) {{",
                skip="continue;",
            ):
                body()
        if self.blocked(s):
            self.line(f"const {ctype} {s.name} = {s.name}_c.value();")

    def reduction(self, s: Accumulate, lo: str, hi: str, var: str) -> Iterator[tuple[str, str]]:
        """(opening, closing) around the step function of a reduction over var in [lo, hi)."""
        ctype = compute_type(s.dtype)
        step = f"[&]({ctype} acc, [[maybe_unused]] int64_t {var}) {self.inline}-> {ctype} {{"
        unit = self.expr(identity(s.kind, s.dtype))
        if self.blocked(s):
            yield f"owk_sum<{ctype}>({lo}, {hi}, {step}", "})"
        elif s.kind in ("max", "min", "any", "all"):
            join = self.joined_text(s.kind, s.dtype, "p", "q")
            ctype = "uint8_t" if s.dtype is DType.BOOL else ctype  # vectors have no bool
            step = step.replace("bool", ctype)
            yield (
                f"owk_fold_lanes<{ctype}>({lo}, {hi}, {unit}, {step}",
                f"}}, []({ctype} p, {ctype} q) {self.inline}{{ return {join}; }})",
            )
        else:
            yield f"owk_fold<{ctype}>({lo}, {hi}, {unit}, {step}", "})"

    def step_body(self, s: Accumulate) -> None:
        self.block(s.body)
        self.line(f"return {self.joined(s.kind, s.dtype, 'acc', s.value)};")

    def leaf_sum(self, s: Accumulate) -> None:
        f = s.loop
        assert isinstance(f, For)
        for opening, closing in self.reduction(s, self.expr(f.lo), self.expr(f.hi), f.var):
            with self.indented(
                f"const {compute_type(s.dtype)} {s.name} = {opening}", f"{closing};", skip="return acc;"
            ):
                self.step_body(s)

    def run_sum(self, s: Accumulate) -> None:
        w = s.loop
        assert isinstance(w, Walk)
        ctype = compute_type(s.dtype)
        if self.blocked(s):
            self.line(f"OwkCascade<{ctype}> {s.name}_c(owk_runs(e.w{w.id}));")
        else:
            self.line(f"{ctype} {s.name} = {self.expr(identity(s.kind, s.dtype))};")
        with self.indented("{"):
            self.line(f"OwkAt<{self.width(w)}> a{w.id};")
            self.line(f"owk_start(e.w{w.id}, a{w.id});")
            with self.indented(f"for (int64_t g{w.id} = 0; g{w.id} < e.w{w.id}.total;) {{"):
                self.run_head(w, f"e.w{w.id}.total", f"g{w.id}")

                def body() -> None:
                    for opening, closing in self.reduction(s, "0", f"n{w.id}", f"t{w.id}"):
                        with self.indented(f"return {opening}", f"{closing};", skip="return acc;"):
                            self.step_body(s)

                self.run(w, body, f"const {ctype} r{w.id} = ", ";")
                if self.blocked(s):
                    self.line(f"{s.name}_c.add(r{w.id});")
                else:
                    self.line(f"{s.name} = {self.joined_text(s.kind, s.dtype, s.name, f'r{w.id}')};")
                self.line(f"owk_move(e.w{w.id}, a{w.id}, n{w.id});")
                self.line(f"g{w.id} += n{w.id};")
        if self.blocked(s):
            self.line(f"const {ctype} {s.name} = {s.name}_c.value();")

    def tile(self, s: Tile) -> None:
        """Sums of neighbours: k outside and the tile inside where the tile lies in line, else one sum after
        the other.
        """
        ctype = compute_type(s.dtype)
        lo, hi, count = self.expr(s.lo), self.expr(s.hi), self.expr(s.count)
        self.line(f"{ctype} {s.name}[{s.size}];")
        columns, rows = f"{s.name}_columns", f"{s.name}_rows"
        fixed = isinstance(s.columns, Num)
        saved = dict(self.shadows)
        if isinstance(s.columns, Stride):
            self.shadows[s.columns] = "1"
        with self.indented(f"const auto {columns} = [&](const int64_t count) {self.inline}{{", "};"):
            self.line(f"const int64_t block = owk_short_block({hi} - {lo});")
            self.line(f"for (int64_t t = 0; t < {s.size}; ++t) {s.name}[t] = 0;")
            with self.indented(f"for (int64_t begin = {lo}; begin < {hi}; begin += block) {{"):
                self.line(f"const int64_t end = owk_least({hi}, begin + block);")
                self.line(f"{ctype} part[{s.size}] = {{}};")
                with self.indented(f"for (int64_t {s.k} = begin; {s.k} < end; ++{s.k}) {{", skip="continue;"):
                    self.block(s.before)
                    if self.ivdep:
                        self.line(f"{self.ivdep} OWK_UNROLL")
                    with self.indented(
                        f"for (int64_t {s.t} = 0; {s.t} < count; ++{s.t}) {{", skip="continue;"
                    ):
                        self.block(s.body)
                        self.line(f"part[{s.t}] = {self.added(f'part[{s.t}]', s.value)};")
                self.line(f"for (int64_t t = 0; t < {s.size}; ++t) {s.name}[t] = {s.name}[t] + part[t];")
        self.shadows = dict(saved)
        if fixed:
            self.line(f"{count} == {s.size} ? {columns}({s.size}) : {columns}({count});")
            return
        along = moving((*s.before, *s.body, Let("", s.value)), s.k)
        for x in along:
            self.shadows[x] = self.stride_name(x)
        parameter = ", ".join(f"const int64_t {self.stride_name(x)}" for x in along)
        step = f"[&]({ctype} acc, int64_t {s.k}) {self.inline}-> {ctype} {{"
        with (
            self.indented(f"const auto {rows} = [&]({parameter}) {self.inline}{{", "};"),
            self.indented(f"for (int64_t {s.t} = 0; {s.t} < {count}; ++{s.t}) {{"),
            self.indented(
                f"{s.name}[{s.t}] = owk_sum<{ctype}>({lo}, {hi}, {step}", "});", skip="return acc;"
            ),
        ):
            self.block(s.before)
            self.block(s.body)
            self.line(f"return {self.added('acc', s.value)};")
        self.shadows = saved
        self.line(
            f"if ({self.stride(s.columns)} == 1) {count} == {s.size} ? {columns}({s.size}) : {columns}({count});"
        )
        steps = [self.stride(x) for x in along]
        if along:
            self.line(
                f"else if ({' && '.join(f'{x} == 1' for x in steps)}) {rows}({', '.join('1' for _ in steps)});"
            )
        self.line(f"else {rows}({', '.join(steps)});")


def _values(s: Let | Store) -> tuple[Expr, ...]:
    return (s.value,) if isinstance(s, Let) else (s.target, s.value)


def _angles(w: Walk) -> tuple[list[Let], list[Expr]] | None:
    """The arguments of sin and cos in a straight line, behind what they are made of.

    None where there are none, or where to make them twice would not be the same or not be cheap.
    """
    body = [s for s in w.body if isinstance(s, (Let, Store))]
    calls = [n for s in body for x in _values(s) for n in walk(x) if _by_distance(n)]
    angles = list(dict.fromkeys(n.args[0] for n in calls if isinstance(n, Call)))
    if not angles or len(body) < len(w.body) or not w.parallel:
        return None
    before: list[Let] = []
    wanted = {n.id for x in angles for n in walk(x) if isinstance(n, Local)}
    for s in reversed(body):
        if isinstance(s, Let) and s.name in wanted:
            before.insert(0, s)
            wanted |= {n.id for n in walk(s.value) if isinstance(n, Local)}
    made = [n for x in (*angles, *(s.value for s in before)) for n in walk(x)]
    stored = {s.target.tensor for s in body if isinstance(s, Store)}
    if any(_by_distance(n) or (isinstance(n, Elem) and n.tensor in stored) for n in made):
        return None
    return before, angles


def _by_distance(x: Expr) -> bool:
    return isinstance(x, Call) and x.fn in NEAR and compute_dtype(dtype_of(x)) is DType.F32


def moving(stmts: Sequence[LoopStmt], var: str) -> list[Stride]:
    """Strides that a loop variable is multiplied with in straight statements."""
    found: dict[Stride, None] = {}

    def elems(x: Expr) -> None:
        for n in walk(x):
            if isinstance(n, Elem):
                for i, s in zip(n.index, n.stride, strict=True):
                    if isinstance(s, Stride) and isinstance(i, Local) and i.id == var:
                        found[s] = None

    for s in stmts:
        match s:
            case Let(value=v) | Var(value=v) | Set(value=v) | ArgStep(value=v) | ScanStep(value=v):
                elems(v)
            case Store(target=t, value=v):
                elems(t)
                elems(v)
            case If(test=t, then=a, orelse=b):
                elems(t)
                found |= dict.fromkeys((*moving(a, var), *moving(b, var)))
    return list(found)


def unit_strides(stmts: Sequence[LoopStmt]) -> list[Stride]:
    """Strides that innermost loops step through: a nest has a branch in which they are all 1.

    None where tiles do the work: they have branches of their own, and twice the text would buy little.
    """
    found: dict[Stride, None] = {}
    tiles: list[Tile] = []

    def go(body: Sequence[LoopStmt]) -> None:
        for s in body:
            match s:
                case For(var=v, body=inner):
                    if not any(isinstance(x, (For, Walk, Accumulate, Tile)) for x in inner):
                        found.update(dict.fromkeys(moving(inner, v)))
                    go(inner)
                case Walk(body=inner):
                    go(inner)
                case If(then=a, orelse=b):
                    go(a)
                    go(b)
                case Tile():
                    tiles.append(s)
                case Accumulate(loop=loop, body=inner, value=v, leaf=leaf):
                    if leaf and isinstance(loop, For):
                        found.update(dict.fromkeys(moving((*inner, Let("", v)), loop.var)))
                    go(inner)

    go(stmts)
    return [] if tiles else list(found)
