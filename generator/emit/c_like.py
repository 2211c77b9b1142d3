"""Loop -> C: one printer for expressions and statements; a dialect overrides strings.

The text calls the helpers of runtime/include/opwright/{scalar,kernel}.h, which say once how an odometer
turns and how a
sum is blocked.  Half types are stored as 16 bits and computed as float; integers wrap; a product that is
added is an fma
where the dialect has one, written out, so that the text decides the result and not the compiler.

May import: expr, types, bound, loops, errors.  To add a function: its row in `_FUNCTIONS` (or a case in
`call`), its text
in scalar.h.  To add a dialect: a subclass with other strings; nothing here may ask which dialect it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import LowerError
from ..expr import (
    FUNCTIONS,
    And,
    Bin,
    Call,
    Cmp,
    Expr,
    Fold,
    Item,
    Name,
    Not,
    Num,
    Or,
    Select,
    Un,
    walk,
)
from ..loops import (
    Accumulate,
    ArgBegin,
    ArgStep,
    Cell,
    Check,
    Elem,
    Fail,
    For,
    If,
    Let,
    Local,
    LoopProgram,
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
from ..types import DType, rounded

__all__ = ["CLike", "compute_dtype", "compute_type", "storage_type"]

_COMPUTE = {
    DType.BOOL: "bool",
    DType.U8: "uint8_t",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.F16: "float",
    DType.BF16: "float",
    DType.F32: "float",
    DType.F64: "double",
    DType.C64: "owk_c64",
    DType.C128: "owk_c128",
}
_STORAGE = _COMPUTE | {DType.BOOL: "uint8_t", DType.F16: "owk_f16", DType.BF16: "owk_bf16"}
_HALF = (DType.F16, DType.BF16)
_SMALL = (DType.U8, DType.I8, DType.I16)

#: Those whose helpers are in special.h.
SPECIAL = frozenset(("erfinv", "lgamma", "digamma", "trigamma", "i0e", "i1e", "gcd"))
#: Functions with one text per compute type, owk_<name>_<dtype>.
_FUNCTIONS = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sigmoid",
        "erf",
        "erfc",
        *SPECIAL,
        "abs",
        "sign",
        "floor",
        "ceil",
        "trunc",
        "round",
        "fmod",
        "cdiv",
        "tdiv",
        "trem",
        "fmax",
        "fmin",
        "order",
        "conj",
    ]
)
_TESTS = frozenset({"isnan", "isinf", "isfinite", "signbit"})


def compute_type(d: DType) -> str:
    """The C type of a value."""
    return _COMPUTE[d]


def storage_type(d: DType) -> str:
    """The C type of an element in memory."""
    return _STORAGE[d]


def compute_dtype(d: DType) -> DType:
    """What a value of this dtype is computed in."""
    return DType.F32 if d in _HALF else d


def _dtype(x: Expr) -> DType:
    assert x.dtype is not None, f"{type(x).__name__} has no type"
    return x.dtype


# C's precedences, higher binds tighter.
_ATOM, _UNARY, _MUL, _ADD, _REL, _EQ, _AND, _OR, _COND = 16, 14, 12, 11, 9, 8, 4, 3, 2


def _wrap(text: str, have: int, need: int) -> str:
    return f"({text})" if have < need else text


class CLike:
    """Prints the loops of one program.  `host` True while text for the call's prologue is made: names live
    in `e.`.
    """

    #: Whether a product that is added becomes one fma.
    fma = True
    #: Before a loop whose iterations are independent.
    ivdep = "OWK_IVDEP"
    inline = "OWK_INLINE "

    def __init__(self, program: LoopProgram) -> None:
        self.p = program
        self.host = False
        self.used: dict[str, str] = {}  # consts of the nest being printed: name -> its definition
        self.lines: list[str] = []
        self.pad = ""
        self.skip = ["return;"]  # how the innermost loop leaves an iteration
        self.operands: dict[
            str, tuple[Walk, int, Operand, str]
        ] = {}  # name -> walk, position, operand, counter of a flat run
        self.shadows: dict[Stride, str] = {}
        self.cell = ""  # the text of a contraction's sum, inside its epilogue
        self.expanded: dict[str, str] = {}  # scalars that are an array over columns: name -> its element
        self.column = ""  # the counter of columns, in a nest's text by columns
        self.wide = False  # whether some such text has row buffers, of `e.columns` rows side by side

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

    # -------------------------------------------------------------------------------------------- the call's values
    def env(self, name: str, ctype: str, source: str | None = None) -> str:
        """A value of the call: `e.name` in the prologue, in a nest a const of that name, taken from `source`."""
        source = source or f"e.{name}"
        if self.host:
            return source
        self.used[name] = f"const {ctype} {name} = {source};"
        return name

    def tensor_name(self, t: str) -> str:
        return self.p.names[("tensor", t)]

    def stride_name(self, x: Stride) -> str:
        return f"{self.tensor_name(x.tensor)}_s{x.dim}"

    def stride(self, x: Expr) -> str:
        if isinstance(x, Num):
            return str(x.value)
        assert isinstance(x, Stride)
        if x in self.shadows and not self.host:
            return self.shadows[x]
        return self.env(self.stride_name(x), "int64_t")

    # -------------------------------------------------------------------------------------------- expressions
    def expr(self, x: Expr, need: int = 0) -> str:
        text, have = self._expr(x)
        return _wrap(text, have, need)

    def _expr(self, x: Expr) -> tuple[str, int]:
        match x:
            case Num():
                return self.number(x)
            case Local(id=n):
                return self.local(n)
            case Name(id=n, kind="dim"):
                return self.env(self.p.names[("dim", n)], "int64_t"), _ATOM
            case Name(id=n, kind="attr"):
                return self.env(self.p.names[("attr", n)], compute_type(_dtype(x))), _ATOM
            case Item(id=n, lane=k):
                name = self.p.names[("attr", n)]
                return self.env(f"{name}_{k}", compute_type(_dtype(x)), f"e.{name}[{k}]"), _ATOM
            case Stride():
                return self.stride(x), _ATOM
            case Elem():
                return self.load(x), _ATOM
            case Cell():
                return self.cell, _ATOM
            case Fold(kind="prod", body=Name(id=n)):
                pack = self.p.names[("dim", n)]
                return self.env(f"{pack}_count", "int64_t", f"owk_count(e.{pack})"), _ATOM
            case Un(op="-", x=a):
                d = _dtype(x)
                if d in _SMALL:
                    return f"({compute_type(d)})-{self.expr(a, _UNARY)}", _UNARY
                inner = self.expr(a, _UNARY)
                return (f"-({inner})" if inner.startswith("-") else f"-{inner}"), _UNARY
            case Un(op="~", x=a):
                return f"({compute_type(_dtype(x))})~{self.expr(a, _UNARY)}", _UNARY
            case Bin():
                return self.binary(x)
            case Cmp(op=op, left=a, right=b):
                prec = _EQ if op in ("==", "!=") else _REL
                return f"{self.expr(a, prec + 1)} {op} {self.expr(b, prec + 1)}", prec
            case And(xs=xs):
                return " && ".join(self.expr(e, _AND + 1) for e in xs), _AND
            case Or(xs=xs):
                # gcc warns about && beside ||: parentheses help people too
                return " || ".join(self.expr(e, _EQ) for e in xs), _OR
            case Not(x=a):
                return f"!{self.expr(a, _UNARY)}", _UNARY
            case Select(test=t, then=a, other=b):
                return f"{self.expr(t, _OR)} ? {self.expr(a, _OR)} : {self.expr(b, _COND)}", _COND
            case Call():
                return self.call(x)
        raise LowerError(f"{self.p.op.name}: no text for {type(x).__name__}")

    def local(self, n: str) -> tuple[str, int]:
        if n in self.operands:
            _, _, operand, counter = self.operands[n]
            if counter:
                return f"{operand.name} + {counter} * {operand.name}_s", _ADD
        return self.expanded.get(n, n), _ATOM

    def number(self, x: Num) -> tuple[str, int]:
        d = compute_dtype(_dtype(x))
        v = x.value
        if d is DType.BOOL:
            return ("true" if v else "false"), _ATOM
        if d.is_integer:
            return self.integer(int(v), d)
        if d.is_complex:
            part = DType.F32 if d is DType.C64 else DType.F64
            re = self.number(Num(float(v), dtype=part))[0]
            return f"owk_complex_{d}({re}, 0)", _ATOM
        return self.real(
            rounded(float(v), _dtype(x)), d
        )  # half types are computed in f32: 0.1 is another number there

    def integer(self, v: int, d: DType) -> tuple[str, int]:
        if d is DType.I64:
            if v == -(2**63):
                return "(-9223372036854775807LL - 1)", _ATOM
            text = f"{v}LL" if abs(v) >= 2**31 else str(v)
            return text, _ATOM if v >= 0 else _UNARY
        if d is DType.I32 and v == -(2**31):
            return "(-2147483647 - 1)", _ATOM
        return str(v), _ATOM if v >= 0 else _UNARY

    def real(self, v: float, d: DType) -> tuple[str, int]:
        suffix = "f" if d is DType.F32 else ""
        if math.isnan(v):
            return self.nan(suffix), _ATOM
        if math.isinf(v):
            return (self.inf(suffix), _ATOM) if v > 0 else (f"-{self.inf(suffix)}", _UNARY)
        text = repr(v)
        if "e" not in text and "." not in text:
            text += ".0"
        if d is DType.F32 and abs(v) > 3.4028235677973366e38:
            return (self.inf("f"), _ATOM) if v > 0 else (f"-{self.inf('f')}", _UNARY)
        return text + suffix, _UNARY if text.startswith("-") else _ATOM

    def inf(self, suffix: str) -> str:
        return f"__builtin_inf{suffix}()"

    def nan(self, suffix: str) -> str:
        return f'__builtin_nan{suffix}("")'

    def binary(self, x: Bin) -> tuple[str, int]:
        d, op = _dtype(x), x.op
        c = compute_dtype(d)
        if c.is_integer or c is DType.BOOL:
            return self.int_binary(x, d)
        if op == "**":
            return self.power(x.left, x.right, c), _ATOM
        if op in ("//", "%"):
            fn = "div" if op == "//" else "mod"
            return f"owk_{fn}_{c}({self.expr(x.left)}, {self.expr(x.right)})", _ATOM
        text = self.contracted(x) if self.fma and not c.is_complex else None
        if text is not None:
            return text, _ATOM
        prec = _ADD if op in "+-" else _MUL
        return f"{self.expr(x.left, prec)} {op} {self.expr(x.right, prec + 1)}", prec

    def contracted(self, x: Bin) -> str | None:
        """`a * b + c` and its signs as one fma."""

        def product(e: Expr) -> tuple[str, str] | None:
            return (self.expr(e.left), self.expr(e.right)) if isinstance(e, Bin) and e.op == "*" else None

        if x.op == "+":
            for one, other in ((x.left, x.right), (x.right, x.left)):
                p = product(one)
                if p is not None:
                    return f"owk_fma({p[0]}, {p[1]}, {self.expr(other)})"
        if x.op == "-":
            p = product(x.left)
            if p is not None:
                return f"owk_fma({p[0]}, {p[1]}, -{self.expr(x.right, _ATOM)})"
            if isinstance(x.right, Bin) and x.right.op == "*":
                return f"owk_fma(-{self.expr(x.right.left, _ATOM)}, {self.expr(x.right.right)}, {self.expr(x.left)})"
        return None

    def added(self, acc: str, value: Expr) -> str:
        """`acc + value`."""
        d = compute_dtype(_dtype(value))
        if self.fma and d.is_float and isinstance(value, Bin) and value.op == "*":
            return f"owk_fma({self.expr(value.left)}, {self.expr(value.right)}, {acc})"
        text = f"{acc} + {self.expr(value, _ADD + 1)}"
        return f"({compute_type(d)})({text})" if d in _SMALL else text

    def int_binary(self, x: Bin, d: DType) -> tuple[str, int]:
        op = x.op
        name = {"//": "div", "%": "mod", "**": "pow", "<<": "shl", ">>": "shr"}.get(op)
        if name is not None:
            literal = isinstance(x.right, Num) and x.right.value > 0 and isinstance(x.left, Num)
            assert not literal or op != "/", "folded before"
            return f"owk_{name}_{d}({self.expr(x.left)}, {self.expr(x.right)})", _ATOM
        prec = {"+": _ADD, "-": _ADD, "*": _MUL}.get(op, _AND)
        left, right = (
            self.expr(x.left, prec if prec != _AND else _UNARY),
            self.expr(x.right, prec + 1 if prec != _AND else _UNARY),
        )
        text = f"{left} {op} {right}"
        if d in _SMALL:
            return f"({compute_type(d)})({text})", _UNARY
        return text, prec

    def power(self, a: Expr, b: Expr, d: DType) -> str:
        if isinstance(b, Num) and float(b.value).is_integer() and abs(b.value) <= 8 and not d.is_complex:
            return f"owk_ipow_{d}({self.expr(a)}, {int(b.value)})"
        right = self.expr(b) if _dtype(b) is d else self.converted(b, d)
        return f"owk_pow_{d}({self.expr(a)}, {right})"

    def call(self, x: Call) -> tuple[str, int]:
        fn, args, d = x.fn, x.args, _dtype(x)
        if fn not in FUNCTIONS and fn != "lane":
            return self.cast(args[0], d)
        if fn in ("max", "min"):
            c = compute_dtype(d)
            text = self.expr(args[0])
            for more in args[1:]:
                text = f"owk_{fn}_{c}({text}, {self.expr(more)})"
            return text, _ATOM
        if fn == "rank":
            assert isinstance(args[0], Name)
            pack = self.p.names[("dim", args[0].id)]
            return self.env(f"{pack}_rank", "int64_t", f"e.{pack}.rank"), _ATOM
        if fn == "lane":
            assert isinstance(args[0], Name)
            pack = self.p.names[("dim", args[0].id)]
            return f"owk_lane(e.{pack}, {self.expr(args[1])}, {self.expr(args[2])})", _ATOM
        a = compute_dtype(_dtype(args[0])) if args else d
        if fn in _TESTS:
            if not a.is_float:
                lowest = fn == "signbit" and a.kind == "int"
                return (
                    f"{self.expr(args[0], _REL + 1)} < 0"
                    if lowest
                    else "true"
                    if fn == "isfinite"
                    else "false"
                ), _REL
            return f"owk_{fn}_{a}({self.expr(args[0])})", _ATOM
        if fn == "same":
            left, right = (self.expr(v) for v in args)
            if not a.is_float:
                return f"{self.expr(args[0], _EQ + 1)} == {self.expr(args[1], _EQ + 1)}", _EQ
            return f"owk_same_{a}({left}, {right})", _ATOM
        if fn == "order" and not a.is_float:
            return f"(int64_t){self.expr(args[0], _UNARY)}", _UNARY
        if fn == "pow":
            return (
                f"owk_pow_{a}({self.expr(args[0])}, {self.expr(args[1])})"
                if a.is_integer
                else self.power(args[0], args[1], a)
            ), _ATOM
        if fn == "complex":
            return f"owk_complex_{d}({', '.join(self.converted(v, _part(d)) for v in args)})", _ATOM
        if fn in ("real", "imag"):
            if not a.is_complex:
                return (self.expr(args[0], _ATOM) if fn == "real" else "0"), _ATOM
            return f"owk_{fn}_{a}({self.expr(args[0])})", _ATOM
        if fn == "philox":
            return f"owk_philox({', '.join(self.expr(v) for v in args)})", _ATOM
        if fn == "uniform":
            return f"owk_uniform({self.expr(args[0])})", _ATOM
        if fn in _FUNCTIONS:
            if not a.is_inexact:
                fn = {"fmod": "trem", "fmax": "max", "fmin": "min"}.get(fn, fn)
            return f"owk_{fn}_{a}({', '.join(self.expr(v) for v in args)})", _ATOM
        raise LowerError(f"{self.p.op.name}: no text for function `{fn}`")

    # -------------------------------------------------------------------------------------------- conversions
    def cast(self, x: Expr, to: DType) -> tuple[str, int]:
        if to in _HALF:
            if _dtype(x) is to:
                return self._expr(x)
            return f"owk_round_{to}({self.converted(x, DType.F32)})", _ATOM
        return self.converted_prec(x, to)

    def converted(self, x: Expr, to: DType) -> str:
        """`x` as a value of the compute type of `to` (which is not a half type), as a C cast or helper."""
        return self.converted_prec(x, to)[0]

    def converted_prec(self, x: Expr, to: DType) -> tuple[str, int]:
        d = compute_dtype(_dtype(x))
        if d is to:
            return self._expr(x)
        if d.is_complex and not to.is_complex:
            part = _part(d)
            text = f"owk_real_{d}({self.expr(x)})"
            return (text, _ATOM) if part is to else (f"({compute_type(to)}){text}", _UNARY)
        if to.is_complex:
            if d.is_complex:
                return f"({compute_type(to)}){self.expr(x, _UNARY)}", _UNARY
            return f"owk_complex_{to}({self.converted(x, _part(to))}, 0)", _ATOM
        if to is DType.BOOL:
            return f"{self.expr(x, _EQ + 1)} != 0", _EQ
        if d.is_float and to.is_integer:
            return f"owk_to_{to}({self.expr(x)})", _ATOM
        return f"({compute_type(to)}){self.expr(x, _UNARY)}", _UNARY

    # -------------------------------------------------------------------------------------------- memory
    def place(self, x: Elem) -> str:
        terms: list[str] = []
        head = x.ptr
        if x.ptr in self.operands:
            _, _, o, counter = self.operands[x.ptr]
            if counter:
                terms.append(f"{counter} * {o.name}_s")
        elif x.ptr == self.p.names.get(("tensor", x.tensor)):
            head = self.base(x.tensor)
        for i, s in zip(x.index, x.stride, strict=True):
            text = self.stride(s)
            terms.append(self.expr(i, _ADD) if text == "1" else f"{self.expr(i, _MUL)} * {text}")
        at = " + ".join(terms) or "0"
        if self.column and (b := self.p.buffer(x.tensor)) is not None and b.scope == "thread":
            at = f"({at}) * ow_columns + {self.column}"
        return f"{head}[{at}]"

    def base(self, tensor: str) -> str:
        """The pointer to a tensor's or buffer's first element."""
        name = self.tensor_name(tensor)
        if self.host:
            return f"e.{name}"
        b = self.p.buffer(tensor)
        t = self.p.op.tensor(tensor)
        ctype = storage_type(t.dtype)
        if b is None or b.scope == "global":
            const = "const " if t.role == "input" else ""
            self.used[name] = f"{const}{ctype}* const {name} = e.{name};"
        elif b.scope == "thread":
            at = f"e.{name}_at * e.columns" if self.column else f"e.{name}_at"
            self.used[name] = f"{ctype}* const {name} = ({ctype}*)(e.rows + thread * e.row_bytes + {at});"
        else:
            size = 1
            for _, extent, _ in b.dims:
                assert isinstance(extent, Num)
                size *= int(extent.value)
            self.used[name] = f"{ctype} {name}[{size}];"
        return name

    def load(self, x: Elem) -> str:
        d, text = _dtype(x), self.place(x)
        if d in _HALF:
            return f"owk_{d}_to_f32({text})"
        return f"({text} != 0)" if d is DType.BOOL else text

    def stored(self, value: Expr, d: DType) -> str:
        """A value as an element of dtype `d`."""
        if d in _HALF:
            # A cast to the half type at the root rounds here, once.
            while (
                isinstance(value, Call)
                and value.fn not in FUNCTIONS
                and _dtype(value) is d
                and _dtype(value.args[0]) is not d
            ):
                return f"owk_f32_to_{d}({self.converted(value.args[0], DType.F32)})"
            return f"owk_f32_to_{d}({self.expr(value)})"
        return self.expr(value)

    def combined(self, old: str, mode: str, value: Expr, d: DType) -> str:
        """The new value of an update, as a value of d's compute type."""
        c = compute_dtype(d)
        if mode == "+=":
            return self.added(old, value)
        if mode == "*=":
            text = f"{old} * {self.expr(value, _MUL + 1)}"
            return f"({compute_type(c)})({text})" if c in _SMALL else text
        if mode in ("any", "all") or (mode in ("max", "min") and c is DType.BOOL):
            # No short circuit: both sides are there, and without a branch the loop is a vector's.
            return f"{old} {'|' if mode in ('any', 'max') else '&'} ({self.expr(value)})"
        if mode in ("max", "min"):
            return f"owk_{mode}_{c}({self.expr(value)}, {old})"
        raise LowerError(f"{self.p.op.name}: no text for update mode `{mode}`")

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
                self.line(f"const {compute_type(_dtype(v))} {n} = {self.expr(v)};")
            case Var(name=n, dtype=d, value=v):
                self.line(f"{compute_type(d)} {n} = {self.expr(v)};")
            case Set(name=n, mode=m, value=v):
                self.line(
                    f"{n} = {self.expr(v) if m in ('=', 'set') else self.combined(n, m, v, _dtype(v))};"
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
        d = _dtype(s.target)
        place = self.place(s.target)
        if s.mode in ("=", "set"):
            self.line(f"{place} = {self.stored(s.value, d)};")
            return
        new = self.combined(self.load(s.target), s.mode, s.value, d)
        self.line(f"{place} = {f'owk_f32_to_{d}({new})' if d in _HALF else new};")

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
        lo, hi = self.expr(s.lo), self.expr(s.hi, _REL + 1)
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
        ctype, found = compute_type(_dtype(last.value)), f"{last.name}_run"
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

            def body() -> None:
                if w.parallel and self.ivdep:
                    self.line(self.ivdep)
                with self.indented(
                    f"for (int64_t t{w.id} = 0; t{w.id} < n{w.id}; ++t{w.id}) {{", skip="continue;"
                ):
                    self.block(w.body)

            self.run(w, body, "", ";")
            self.line(f"owk_move(e.w{w.id}, a{w.id}, n{w.id});")
            self.line(f"{g} += n{w.id};")

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
        return f"{self.expr(loop.hi, _ADD)} - {self.expr(loop.lo, _ADD + 1)}"

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
                f"for (int64_t {f.var} = {self.expr(f.lo)}; {f.var} < {self.expr(f.hi, _REL + 1)}; ++{f.var}) {{",
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


def _part(d: DType) -> DType:
    return DType.F32 if d is DType.C64 else DType.F64


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
