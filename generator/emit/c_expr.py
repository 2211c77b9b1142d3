"""Expressions and elements of memory in C: the lower floor of `c_like.py`'s printer.

Half types are stored as 16 bits and computed as float; integers wrap; a product that is added is an fma where the
dialect has one, written out, so that the text decides the result and not the compiler; where a result is rounded to
an integer there is none (rounding.py).

May import: expr, types, loops, errors, rounding.  To add a function: its row in `_FUNCTIONS` (or a case in `call`),
its text in scalar.h.
"""

from __future__ import annotations

import math

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
)
from ..loops import (
    Cell,
    Elem,
    Local,
    LoopProgram,
    Operand,
    Stride,
    Walk,
)
from ..types import DType, rounded
from .rounding import uncontracted

__all__ = ["NEAR", "PARTS", "SPECIAL", "CExpr", "compute_dtype", "compute_type", "storage_type"]

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
HALF = (DType.F16, DType.BF16)
SMALL = (DType.U8, DType.I8, DType.I16)

#: Those whose helpers are in special.h.
SPECIAL = frozenset(("erfinv", "lgamma", "digamma", "trigamma", "i0e", "i1e", "gcd"))
#: Those whose helpers are in parts.h.
PARTS = frozenset(("ldexp", "exponent"))
#: Those whose helpers are in masked.h.
MASKED = frozenset(("exp_masked",))
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
        *PARTS,
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
#: Those that have a shorter text, owk_<name>_near_f32, for what is near 0 (vmath.h).
NEAR = frozenset(("sin", "cos"))
_TESTS = frozenset({"isnan", "isinf", "isfinite", "signbit"})


def compute_type(d: DType) -> str:
    """The C type of a value."""
    return _COMPUTE[d]


def storage_type(d: DType) -> str:
    """The C type of an element in memory."""
    return _STORAGE[d]


def compute_dtype(d: DType) -> DType:
    """What a value of this dtype is computed in."""
    return DType.F32 if d in HALF else d


def dtype_of(x: Expr) -> DType:
    assert x.dtype is not None, f"{type(x).__name__} has no type"
    return x.dtype


# C's precedences, higher binds tighter.
ATOM, UNARY, MUL, ADD, REL, EQ, AND, OR, COND = 16, 14, 12, 11, 9, 8, 4, 3, 2


def wrapped(text: str, have: int, need: int) -> str:
    return f"({text})" if have < need else text


class CExpr:
    """Prints expressions; `host` True while text for the call's prologue is made: names live in `e.`."""

    #: Whether a product that is added becomes one fma.
    fma = True
    #: Whether sums of products of bf16 go by pairs.h.
    pairs = False
    #: Whether windows are packed by lines (lined.h).
    lined = False
    #: Whether loops ask how far their angles are, and have a shorter text for near ones.
    angles = False
    #: Whether exp of a difference, most often from a maximum that a mask left, has a text of its own (masked.h).
    masked = False

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
        self.uncontracted = uncontracted(program)
        self.cell = ""  # the text of a contraction's sum, inside its epilogue
        self.expanded: dict[str, str] = {}  # scalars that are an array over columns: name -> its element
        self.column = ""  # the counter of columns, in a nest's text by columns
        self.held: dict[Elem, str] = {}  # elements that the loop being printed has read -> their names
        self.near = False  # whether the loop being printed is one over near angles
        self.wide = False  # whether some such text has row buffers, of `e.columns` rows side by side

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
        return wrapped(text, have, need)

    def _expr(self, x: Expr) -> tuple[str, int]:
        match x:
            case Num():
                return self.number(x)
            case Local(id=n):
                return self.local(n)
            case Name(id=n, kind="dim"):
                return self.env(self.p.names[("dim", n)], "int64_t"), ATOM
            case Name(id=n, kind="attr"):
                return self.env(self.p.names[("attr", n)], compute_type(dtype_of(x))), ATOM
            case Item(id=n, lane=k):
                name = self.p.names[("attr", n)]
                return self.env(f"{name}_{k}", compute_type(dtype_of(x)), f"e.{name}[{k}]"), ATOM
            case Stride():
                return self.stride(x), ATOM
            case Elem():
                return self.load(x), ATOM
            case Cell():
                return self.cell, ATOM
            case Fold(kind="prod", body=Name(id=n)):
                pack = self.p.names[("dim", n)]
                return self.env(f"{pack}_count", "int64_t", f"owk_count(e.{pack})"), ATOM
            case Un(op="-", x=a):
                d = dtype_of(x)
                if d in SMALL:
                    return f"({compute_type(d)})-{self.expr(a, UNARY)}", UNARY
                inner = self.expr(a, UNARY)
                return (f"-({inner})" if inner.startswith("-") else f"-{inner}"), UNARY
            case Un(op="~", x=a):
                return f"({compute_type(dtype_of(x))})~{self.expr(a, UNARY)}", UNARY
            case Bin():
                return self.binary(x)
            case Cmp(op=op, left=a, right=b):
                prec = EQ if op in ("==", "!=") else REL
                return f"{self.expr(a, prec + 1)} {op} {self.expr(b, prec + 1)}", prec
            case And(xs=xs):
                return " && ".join(self.expr(e, AND + 1) for e in xs), AND
            case Or(xs=xs):
                # gcc warns about && beside ||: parentheses help people too
                return " || ".join(self.expr(e, EQ) for e in xs), OR
            case Not(x=a):
                return f"!{self.expr(a, UNARY)}", UNARY
            case Select(test=t, then=a, other=b):
                return f"{self.expr(t, OR)} ? {self.expr(a, OR)} : {self.expr(b, COND)}", COND
            case Call():
                return self.call(x)
        raise LowerError(f"{self.p.op.name}: no text for {type(x).__name__}")

    def local(self, n: str) -> tuple[str, int]:
        if n in self.operands:
            _, _, operand, counter = self.operands[n]
            if counter:
                return f"{operand.name} + {counter} * {operand.name}_s", ADD
        return self.expanded.get(n, n), ATOM

    def number(self, x: Num) -> tuple[str, int]:
        d = compute_dtype(dtype_of(x))
        v = x.value
        if d is DType.BOOL:
            return ("true" if v else "false"), ATOM
        if d.is_integer:
            return self.integer(int(v), d)
        if d.is_complex:
            part = DType.F32 if d is DType.C64 else DType.F64
            re = self.number(Num(float(v), dtype=part))[0]
            return f"owk_complex_{d}({re}, 0)", ATOM
        return self.real(
            rounded(float(v), dtype_of(x)), d
        )  # half types are computed in f32: 0.1 is another number there

    def integer(self, v: int, d: DType) -> tuple[str, int]:
        if d is DType.I64:
            if v == -(2**63):
                return "(-9223372036854775807LL - 1)", ATOM
            text = f"{v}LL" if abs(v) >= 2**31 else str(v)
            return text, ATOM if v >= 0 else UNARY
        if d is DType.I32 and v == -(2**31):
            return "(-2147483647 - 1)", ATOM
        return str(v), ATOM if v >= 0 else UNARY

    def real(self, v: float, d: DType) -> tuple[str, int]:
        suffix = "f" if d is DType.F32 else ""
        if math.isnan(v):
            return self.nan(suffix), ATOM
        if math.isinf(v):
            return (self.inf(suffix), ATOM) if v > 0 else (f"-{self.inf(suffix)}", UNARY)
        text = repr(v)
        if "e" not in text and "." not in text:
            text += ".0"
        if d is DType.F32 and abs(v) > 3.4028235677973366e38:
            return (self.inf("f"), ATOM) if v > 0 else (f"-{self.inf('f')}", UNARY)
        return text + suffix, UNARY if text.startswith("-") else ATOM

    def inf(self, suffix: str) -> str:
        return f"__builtin_inf{suffix}()"

    def nan(self, suffix: str) -> str:
        return f'__builtin_nan{suffix}("")'

    def binary(self, x: Bin) -> tuple[str, int]:
        d, op = dtype_of(x), x.op
        c = compute_dtype(d)
        if c.is_integer or c is DType.BOOL:
            return self.int_binary(x, d)
        if op == "**":
            return self.power(x.left, x.right, c), ATOM
        if op in ("//", "%"):
            fn = "div" if op == "//" else "mod"
            return f"owk_{fn}_{c}({self.expr(x.left)}, {self.expr(x.right)})", ATOM
        fma = self.fma and not c.is_complex and x not in self.uncontracted
        text = self.contracted(x) if fma else None
        if text is not None:
            return text, ATOM
        prec = ADD if op in "+-" else MUL
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
                return f"owk_fma({p[0]}, {p[1]}, -{self.expr(x.right, ATOM)})"
            if isinstance(x.right, Bin) and x.right.op == "*":
                return f"owk_fma(-{self.expr(x.right.left, ATOM)}, {self.expr(x.right.right)}, {self.expr(x.left)})"
        return None

    def added(self, acc: str, value: Expr) -> str:
        """`acc + value`."""
        d = compute_dtype(dtype_of(value))
        if self.fma and d.is_float and isinstance(value, Bin) and value.op == "*":
            return f"owk_fma({self.expr(value.left)}, {self.expr(value.right)}, {acc})"
        text = f"{acc} + {self.expr(value, ADD + 1)}"
        return f"({compute_type(d)})({text})" if d in SMALL else text

    def int_binary(self, x: Bin, d: DType) -> tuple[str, int]:
        op = x.op
        name = {"//": "div", "%": "mod", "**": "pow", "<<": "shl", ">>": "shr"}.get(op)
        if name is not None:
            literal = isinstance(x.right, Num) and x.right.value > 0 and isinstance(x.left, Num)
            assert not literal or op != "/", "folded before"
            return f"owk_{name}_{d}({self.expr(x.left)}, {self.expr(x.right)})", ATOM
        prec = {"+": ADD, "-": ADD, "*": MUL}.get(op, AND)
        left, right = (
            self.expr(x.left, prec if prec != AND else UNARY),
            self.expr(x.right, prec + 1 if prec != AND else UNARY),
        )
        text = f"{left} {op} {right}"
        if d in SMALL:
            return f"({compute_type(d)})({text})", UNARY
        return text, prec

    def power(self, a: Expr, b: Expr, d: DType) -> str:
        if isinstance(b, Num) and float(b.value).is_integer() and abs(b.value) <= 8 and not d.is_complex:
            return f"owk_ipow_{d}({self.expr(a)}, {int(b.value)})"
        right = self.expr(b) if dtype_of(b) is d else self.converted(b, d)
        return f"owk_pow_{d}({self.expr(a)}, {right})"

    def call(self, x: Call) -> tuple[str, int]:
        fn, args, d = x.fn, x.args, dtype_of(x)
        if fn not in FUNCTIONS and fn != "lane":
            return self.cast(args[0], d)
        if fn in ("max", "min"):
            c = compute_dtype(d)
            text = self.expr(args[0])
            for more in args[1:]:
                text = f"owk_{fn}_{c}({text}, {self.expr(more)})"
            return text, ATOM
        if fn == "rank":
            assert isinstance(args[0], Name)
            pack = self.p.names[("dim", args[0].id)]
            return self.env(f"{pack}_rank", "int64_t", f"e.{pack}.rank"), ATOM
        if fn == "lane":
            assert isinstance(args[0], Name)
            pack = self.p.names[("dim", args[0].id)]
            return f"owk_lane(e.{pack}, {self.expr(args[1])}, {self.expr(args[2])})", ATOM
        a = compute_dtype(dtype_of(args[0])) if args else d
        if fn in _TESTS:
            if not a.is_float:
                lowest = fn == "signbit" and a.kind == "int"
                return (
                    f"{self.expr(args[0], REL + 1)} < 0"
                    if lowest
                    else "true"
                    if fn == "isfinite"
                    else "false"
                ), REL
            return f"owk_{fn}_{a}({self.expr(args[0])})", ATOM
        if fn == "same":
            left, right = (self.expr(v) for v in args)
            if not a.is_float:
                return f"{self.expr(args[0], EQ + 1)} == {self.expr(args[1], EQ + 1)}", EQ
            return f"owk_same_{a}({left}, {right})", ATOM
        if fn == "order" and not a.is_float:
            return f"(int64_t){self.expr(args[0], UNARY)}", UNARY
        if fn == "pow":
            return (
                f"owk_pow_{a}({self.expr(args[0])}, {self.expr(args[1])})"
                if a.is_integer
                else self.power(args[0], args[1], a)
            ), ATOM
        if fn == "complex":
            return f"owk_complex_{d}({', '.join(self.converted(v, _part(d)) for v in args)})", ATOM
        if fn in ("real", "imag"):
            if not a.is_complex:
                return (self.expr(args[0], ATOM) if fn == "real" else "0"), ATOM
            return f"owk_{fn}_{a}({self.expr(args[0])})", ATOM
        if fn == "philox":
            return f"owk_philox({', '.join(self.expr(v) for v in args)})", ATOM
        if fn == "uniform":
            return f"owk_uniform({self.expr(args[0])})", ATOM
        if fn == "exp" and a is DType.F32 and self.masked and isinstance(args[0], Bin) and args[0].op == "-":
            return f"owk_exp_masked_{a}({self.expr(args[0])})", ATOM
        if fn in _FUNCTIONS:
            if not a.is_inexact:
                fn = {"fmod": "trem", "fmax": "max", "fmin": "min"}.get(fn, fn)
            elif self.near and fn in NEAR and a is DType.F32:
                fn += "_near"
            return f"owk_{fn}_{a}({', '.join(self.expr(v) for v in args)})", ATOM
        raise LowerError(f"{self.p.op.name}: no text for function `{fn}`")

    # -------------------------------------------------------------------------------------------- conversions
    def cast(self, x: Expr, to: DType) -> tuple[str, int]:
        if to in HALF:
            if dtype_of(x) is to:
                return self._expr(x)
            return f"owk_round_{to}({self.converted(x, DType.F32)})", ATOM
        return self.converted_prec(x, to)

    def converted(self, x: Expr, to: DType) -> str:
        """`x` as a value of the compute type of `to` (which is not a half type), as a C cast or helper."""
        return self.converted_prec(x, to)[0]

    def converted_prec(self, x: Expr, to: DType) -> tuple[str, int]:
        d = compute_dtype(dtype_of(x))
        if d is to:
            return self._expr(x)
        if d.is_complex and not to.is_complex:
            part = _part(d)
            text = f"owk_real_{d}({self.expr(x)})"
            return (text, ATOM) if part is to else (f"({compute_type(to)}){text}", UNARY)
        if to.is_complex:
            if d.is_complex:
                return f"({compute_type(to)}){self.expr(x, UNARY)}", UNARY
            return f"owk_complex_{to}({self.converted(x, _part(to))}, 0)", ATOM
        if to is DType.BOOL:
            return f"{self.expr(x, EQ + 1)} != 0", EQ
        if d.is_float and to.is_integer:
            return f"owk_to_{to}({self.expr(x)})", ATOM
        return f"({compute_type(to)}){self.expr(x, UNARY)}", UNARY

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
            terms.append(self.expr(i, ADD) if text == "1" else f"{self.expr(i, MUL)} * {text}")
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
        if x in self.held:
            return self.held[x]
        d, text = dtype_of(x), self.place(x)
        if d in HALF:
            return f"owk_{d}_to_f32({text})"
        return f"({text} != 0)" if d is DType.BOOL else text

    def stored(self, value: Expr, d: DType) -> str:
        """A value as an element of dtype `d`."""
        if d in HALF:
            # A cast to the half type at the root rounds here, once.
            while (
                isinstance(value, Call)
                and value.fn not in FUNCTIONS
                and dtype_of(value) is d
                and dtype_of(value.args[0]) is not d
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
            text = f"{old} * {self.expr(value, MUL + 1)}"
            return f"({compute_type(c)})({text})" if c in SMALL else text
        if mode in ("any", "all") or (mode in ("max", "min") and c is DType.BOOL):
            # No short circuit: both sides are there, and without a branch the loop is a vector's.
            return f"{old} {'|' if mode in ('any', 'max') else '&'} ({self.expr(value)})"
        if mode in ("max", "min"):
            return f"owk_{mode}_{c}({self.expr(value)}, {old})"
        raise LowerError(f"{self.p.op.name}: no text for update mode `{mode}`")


def _part(d: DType) -> DType:
    return DType.F32 if d is DType.C64 else DType.F64
