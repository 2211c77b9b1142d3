"""The expression language: nodes, parser, printer.  `parse(print(x)) == x` for every statement.

One family of nodes serves the Spec, Bound and Normal levels: a node is born untyped (`dtype is None`, names of no
kind); `bind.py` resolves names and fills dtypes; `normal.py` rewrites without new node kinds.

May import: errors.  To add a function of the language: a row in `FUNCTIONS` here, its typing rule in `bind_types.py`,
its value and radius in `validators/oracle.py`, its derivative in `grad_rules.py`, its text in `emit/c_expr.py`.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Literal, TypeGuard, TypeVar, cast

from .errors import LanguageError, Place, did_you_mean
from .types import DType

__all__ = [
    "FUNCTIONS",
    "REDUCTIONS",
    "And",
    "Assign",
    "Bin",
    "Block",
    "Call",
    "Cmp",
    "Decl",
    "Expr",
    "Fold",
    "If",
    "IsNone",
    "Item",
    "Load",
    "Name",
    "Not",
    "Num",
    "Or",
    "Reduce",
    "Select",
    "Span",
    "Star",
    "Stmt",
    "Str",
    "Target",
    "Un",
    "children",
    "map_children",
    "parse_expr",
    "parse_statements",
    "rounds_to_integer",
    "show",
    "show_block",
    "substitute",
    "transform",
    "walk",
]

FOLDS = ("sum", "prod", "max", "min", "any", "all")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
MODES = ("=", "+=", "*=", "set", "max", "min", "any", "all")


@dataclass(frozen=True)
class Function:
    """A function of the language: how many arguments, the error of a float evaluation in ulp of the result, and
    whether it takes complex numbers.
    """

    arity: tuple[int, int]
    ulp: float = 0.5
    doc: str = ""
    complex: bool = False


#: Every function, with the ulp that its kernels may be off by (0: exact; 0.5: correctly rounded).
FUNCTIONS: dict[str, Function] = {
    "exp": Function((1, 1), 2, complex=True),
    "exp2": Function((1, 1), 2),
    "expm1": Function((1, 1), 2),
    "log": Function((1, 1), 2, complex=True),
    "log2": Function((1, 1), 2),
    "log10": Function((1, 1), 2),
    "log1p": Function((1, 1), 2),
    "sqrt": Function((1, 1), 0.5, complex=True),
    "rsqrt": Function((1, 1), 2),
    "sin": Function((1, 1), 2),
    "cos": Function((1, 1), 2),
    "tan": Function((1, 1), 4),
    "asin": Function((1, 1), 4),
    "acos": Function((1, 1), 4),
    "atan": Function((1, 1), 4),
    "atan2": Function((2, 2), 4),
    "sinh": Function((1, 1), 4),
    "cosh": Function((1, 1), 4),
    "tanh": Function((1, 1), 4),
    "asinh": Function((1, 1), 4),
    "acosh": Function((1, 1), 4),
    "atanh": Function((1, 1), 4),
    "sigmoid": Function((1, 1), 4),
    "erf": Function((1, 1), 4),
    "erfc": Function((1, 1), 8),
    "erfinv": Function((1, 1), 8, "inverse of erf"),
    "lgamma": Function((1, 1), 8, "log of the size of the gamma function"),
    "digamma": Function((1, 1), 8, "derivative of lgamma"),
    "trigamma": Function((1, 1), 16, "derivative of digamma"),
    "i0e": Function((1, 1), 8, "modified Bessel function of order 0, times exp(-|x|)"),
    "i1e": Function((1, 1), 8, "modified Bessel function of order 1, times exp(-|x|)"),
    "pow": Function((2, 2), 4, "same as **", complex=True),
    "abs": Function((1, 1), 0, complex=True),
    "sign": Function((1, 1), 0),
    "floor": Function((1, 1), 0),
    "ceil": Function((1, 1), 0),
    "trunc": Function((1, 1), 0),
    "round": Function((1, 1), 0, "half to even"),
    "fmod": Function((2, 2), 0),
    "cdiv": Function((2, 2), 0, "integer division rounding up"),
    "tdiv": Function((2, 2), 0, "integer division rounding to zero"),
    "trem": Function((2, 2), 0, "remainder with the dividend's sign"),
    "gcd": Function((2, 2), 0, "greatest common divisor of integers, at least 0"),
    "isnan": Function((1, 1), 0),
    "isinf": Function((1, 1), 0),
    "isfinite": Function((1, 1), 0),
    "signbit": Function((1, 1), 0),
    "same": Function((2, 2), 0, "equal, with nan the same as nan"),
    "exponent": Function((1, 1), 0, "power of two of the leading bit, in i64; 0 of zero, inf and nan"),
    "ldexp": Function((2, 2), 0.5, "ldexp(x, k): x times two to the k, rounded once"),
    "order": Function((1, 1), 0, "key of a total order: nan greatest, -0 == +0"),
    "max": Function((2, 8), 0, "nan if any argument is nan"),
    "min": Function((2, 8), 0, "nan if any argument is nan"),
    "fmax": Function((2, 2), 0, "the other argument if one is nan"),
    "fmin": Function((2, 2), 0, "the other argument if one is nan"),
    "complex": Function((2, 2), 0),
    "real": Function((1, 1), 0, complex=True),
    "imag": Function((1, 1), 0, complex=True),
    "conj": Function((1, 1), 0, complex=True),
    "philox": Function((3, 3), 0, "word (seed, offset, lane 0..3) of Philox 4x32-10, as u32 in i64"),
    "uniform": Function((1, 1), 0, "u32 to [0, 1) with 24 bits"),
    "linear": Function(
        (1, 2), 0, "row-major position of a pack of indices: linear(*b) or linear(*(lanes), *I)"
    ),
    "lane": Function((2, 2), 0, "lane(b, d): index d of the pack b"),
    "rank": Function((1, 1), 0, "number of axes of a pack"),
    "len": Function((1, 1), 0, "number of entries of a list or of an ints attribute"),
    "start": Function((2, 2), 0, "start(N, k): sum of the extents N of the lists entries before k"),
    "total": Function((1, 1), 0, "total(N): sum of the extents N over a list"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands: 1-based line and column in `file`."""

    file: str
    line: int
    col: int
    end: int = 0

    @property
    def place(self) -> Place:
        """Where an error points; its source line is read from the file when there is one."""
        return Place.in_file(self.file, self.line, self.col, max(self.end - self.col, 1))


@dataclass(frozen=True, kw_only=True)
class Expr:
    """A node.  `dtype` is filled by the binder; spans never take part in equality."""

    span: Span | None = field(default=None, compare=False, repr=False)
    dtype: DType | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Num(Expr):
    """A literal (int, float, bool), inf and nan included."""

    value: int | float

    def __eq__(self, other: object) -> bool:
        if (
            not isinstance(other, Num)
            or type(self.value) is not type(other.value)
            or self.dtype is not other.dtype
        ):
            return False
        if isinstance(self.value, float) and math.isnan(self.value):
            return math.isnan(other.value)
        return self.value == other.value and math.copysign(1, self.value) == math.copysign(1, other.value)

    def __hash__(self) -> int:
        return hash(("num", type(self.value).__name__, repr(self.value), self.dtype))


@dataclass(frozen=True)
class Str(Expr):
    """A string, only compared with static attributes."""

    value: str


@dataclass(frozen=True)
class Name(Expr):
    """A name.  After binding `kind` is one of `attr dim index pack packindex input const`."""

    id: str
    kind: str = ""


@dataclass(frozen=True)
class Item(Expr):
    """Lane `lane` of an ints attribute (`kind='attr'`) or of a static pack's extents (`kind='dim'`); Bound only."""

    id: str
    lane: int
    kind: str = ""


@dataclass(frozen=True)
class Load(Expr):
    """`tensor[index, …]`, or `tensor[item][index, …]` for a list input.  An index may be `Star` of a pack."""

    tensor: str
    index: tuple[Expr, ...]
    item: Expr | None = None


@dataclass(frozen=True)
class Call(Expr):
    """A function of `FUNCTIONS`, or a cast when `fn` is a type variable or a dtype name."""

    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Un(Expr):
    """`-x` or `~x`."""

    op: str
    x: Expr


@dataclass(frozen=True)
class Bin(Expr):
    """`+ - * / // % ** & | ^ << >>`; // and % floor, on integers and floats."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Cmp(Expr):
    """`== != < <= > >=`; a chain parses to `And` of comparisons.  Also `in` over static values."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class And(Expr):
    xs: tuple[Expr, ...]


@dataclass(frozen=True)
class Or(Expr):
    xs: tuple[Expr, ...]


@dataclass(frozen=True)
class Not(Expr):
    x: Expr


@dataclass(frozen=True)
class Select(Expr):
    """`then if test else other`; only the chosen side is evaluated (loads of the other never happen)."""

    test: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True)
class IsNone(Expr):
    """`name is None` (or `is not None` when `negate`)."""

    id: str
    negate: bool


@dataclass(frozen=True)
class Decl(Expr):
    """An index where it is declared: `i`, `i in N`, `*p`, `*p in P`."""

    id: str
    pack: bool = False
    extent: Expr | None = None


@dataclass(frozen=True)
class Reduce(Expr):
    """`sum[i, *n](body)`."""

    kind: str
    indices: tuple[Decl, ...]
    body: Expr


@dataclass(frozen=True)
class Fold(Expr):
    """`sum(lanes)`: over the lanes of a static pack expression; gone after binding."""

    kind: str
    body: Expr


@dataclass(frozen=True)
class Star(Expr):
    """`*x`: a pack used whole, or a pack expression by lane."""

    x: Expr


@dataclass(frozen=True)
class TupleLit(Expr):
    """`(0, 1, inf)` after `in`, in static tests."""

    xs: tuple[Expr, ...]


@dataclass(frozen=True)
class Target:
    """What a statement writes: `name[index, …]`, or `name[item][index, …]` of a list output."""

    name: str
    index: tuple[Expr, ...]
    item: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Assign:
    """`target mode value [if guard else skip]`."""

    target: Target
    mode: str
    value: Expr
    guard: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class If:
    """A static choice of statements; gone after binding."""

    test: Expr
    then: Block
    orelse: Block
    span: Span | None = field(default=None, compare=False, repr=False)


Stmt = Assign | If
Block = tuple[Stmt, ...]

# ------------------------------------------------------------------------------------------------- walking

E = TypeVar("E", bound=Expr)


_PARTS: dict[type[Expr], tuple[str, ...]] = {}


def _parts(kind: type[Expr]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold expressions."""
    if kind not in _PARTS:
        _PARTS[kind] = tuple(f.name for f in fields(kind) if f.name not in ("span", "dtype"))
    return _PARTS[kind]


def children(x: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, in source order."""
    known: tuple[Expr, ...] | None = x.__dict__.get("_children")
    if known is not None:
        return known
    out: list[Expr] = []
    for name in _parts(type(x)):
        v = getattr(x, name)
        if isinstance(v, Expr):
            out.append(v)
        elif isinstance(v, tuple):
            out.extend(e for e in v if isinstance(e, Expr))
    found = tuple(out)
    x.__dict__["_children"] = found  # nodes are frozen: asked a hundred times, found once
    return found


def walk(x: Expr) -> Iterator[Expr]:
    """`x` and everything below it, parents first."""
    todo = [x]
    while todo:
        n = todo.pop()
        yield n
        todo.extend(reversed(children(n)))


_CUTS = ("floor", "ceil", "trunc", "round")


def rounds_to_integer(x: Expr) -> bool:
    """floor, ceil, trunc, round, `//`, `%` or a cast to an integer, of a float: these see how their argument
    rounds, so no arithmetic below them may be contracted.
    """
    match x:
        case Call(fn=fn, args=(arg, *_)) if fn in (*_CUTS, "exponent") or (
            x.dtype is not None and fn == x.dtype.value
        ):
            to_integer = fn in _CUTS or (x.dtype is not None and x.dtype.is_integer)
            return (to_integer or fn == "exponent") and arg.dtype is not None and arg.dtype.is_float
        case Bin(op="//" | "%"):
            return x.dtype is not None and x.dtype.is_float
        case Call(fn="fmod"):
            return x.dtype is not None and x.dtype.is_float
    return False


def map_children(x: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """`x` with each direct sub-expression replaced by `fn` of it; the same object when nothing changed."""
    changes: dict[str, Any] = {}
    for name in _parts(type(x)):
        v = getattr(x, name)
        if isinstance(v, Expr):
            w = fn(v)
            if w is not v:
                changes[name] = w
        elif isinstance(v, tuple) and any(isinstance(e, Expr) for e in v):
            ws = tuple(fn(e) if isinstance(e, Expr) else e for e in v)
            if any(a is not b for a, b in zip(v, ws, strict=True)):
                changes[name] = ws
    return replace(x, **changes) if changes else x


def transform(x: E, fn: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up: `fn` sees each node with new children and may return a replacement (None keeps it)."""
    y = map_children(x, lambda c: transform(c, fn))
    return fn(y) or y


def substitute(x: Expr, names: dict[str, Expr]) -> Expr:
    """Replace free names (indices, lanes); indices declared by a `Reduce` inside shadow nothing by construction."""

    def put(n: Expr) -> Expr | None:
        return names.get(n.id) if isinstance(n, Name) else None

    return transform(x, put)


# ------------------------------------------------------------------------------------------------- parsing

_BIN: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_CMP: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
#: Deep nesting is refused: no operator needs it, and recursion must never be a stranger's to exhaust.
MAX_DEPTH = 100
MAX_TEXT = 64 * 1024


#: Signs of other languages, and what to write instead.
_FOREIGN = {
    "=>": "`>=`", "=<": "`<=`",
    "&&": "`a and b`", r"\|\|": "`a or b`", r"\?": "`a if test else b`", "!(?!=)": "`not a`; unequal is `!=`",
}  # fmt: skip
#: What people try that is not in the language, by node of Python's grammar.
_REFUSED = {
    "Attribute": "a name with a dot", "Lambda": "a lambda", "List": "a list", "Dict": "a dict", "Set": "a set",
    "Tuple": "a tuple", "ListComp": "a comprehension", "GeneratorExp": "a comprehension",
    "JoinedStr": "an f-string", "NamedExpr": "`:=`", "MatMult": "`@`", "Await": "`await`", "Yield": "`yield`",
    "SetComp": "a comprehension", "DictComp": "a comprehension", "YieldFrom": "`yield`",
}  # fmt: skip
#: Maps a position inside a text (line from 1, column from 0, in characters) to a line and column (from 1) of its file.
Locate = Callable[[int, int], tuple[int, int]]


class _Parser:
    """Python's `ast` under a whitelist.  `locate` says where each position of `text` stands in its file."""

    def __init__(self, text: str, file: str, locate: Locate) -> None:
        self.text, self.file, self.locate = text, file, locate
        self.lines = text.split("\n")
        self.ascii = text.isascii()
        self.depth = 0
        self.in_index = 0  # how many index lists we are in: there `k in E` states an extent

    def at(self, line: int, col: int) -> tuple[int, int]:
        """`ast` counts columns in UTF-8 bytes; people count characters."""
        if not self.ascii and 1 <= line <= len(self.lines):
            col = len(self.lines[line - 1].encode()[:col].decode(errors="replace"))
        return self.locate(line, col)

    def span(self, n: ast.AST) -> Span:
        line: int = getattr(n, "lineno", 1)
        col: int = getattr(n, "col_offset", 0)
        row, start = self.at(line, col)
        end = start + 1
        if getattr(n, "end_lineno", line) == line:
            end_row, stop = self.at(line, getattr(n, "end_col_offset", None) or col + 1)
            end = stop if end_row == row else end
        return Span(self.file, row, start, end)

    def place(self, line: int, col: int) -> Place:
        row, start = self.locate(line, max(col, 0))
        return Place.in_file(self.file, row, start)

    def fail(self, n: ast.AST, what: str, hint: str = "") -> LanguageError:
        return LanguageError(what, place=self.span(n).place, hint=hint)

    def tree(self, mode: Literal["eval", "exec"]) -> ast.Expression | ast.Module:
        if len(self.text) > MAX_TEXT:
            raise LanguageError(
                f"a text of {len(self.text)} characters (limit {MAX_TEXT})", place=self.place(1, 0)
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", SyntaxWarning
                )  # `1[i]`, `"a" is x`: refused below, with a place
                return cast(
                    "ast.Expression | ast.Module", ast.parse(self.text, mode=mode, feature_version=(3, 11))
                )
        except SyntaxError as e:
            what = "an expression" if mode == "eval" else "a statement"
            row, col = e.lineno or 1, (e.offset or 1) - 1
            line = self.lines[row - 1] if row <= len(self.lines) else ""
            hint = next((h for sign, h in _FOREIGN.items() if re.search(sign, line)), "")
            if not hint and mode == "eval" and re.search(r"(?<![<>=!])=(?!=)", line):
                hint = "an equation is `==`"
            if not hint and mode == "exec":
                hint = "`y[i] = …`, `y[i] += …`, `y[i]: set = …`, or `if test:` with an indented block"
            said = f"cannot read this as {what}: {e.msg}"
            if odd := _odd_bracket(self.text):
                why, hint, row, col = odd
                said = f"cannot read this as {what}: {why}"
            raise LanguageError(said, place=self.place(row, col), hint=hint) from None
        except (ValueError, RecursionError, MemoryError):
            raise LanguageError(
                "cannot read this: null bytes, or nested too deeply", place=self.place(1, 0)
            ) from None

    # -- expressions
    def expr(self, n: ast.AST) -> Expr:
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise self.fail(
                    n, f"expression nested deeper than {MAX_DEPTH}", "name the parts: `t[...] = ...`"
                )
            return self._expr(n)
        finally:
            self.depth -= 1

    def _expr(self, n: ast.AST) -> Expr:
        s = self.span(n)
        match n:
            case ast.Constant(value=bool() | int() | float() as v):
                return Num(v, span=s)
            case ast.Constant(value=str() as text):
                return Str(text, span=s)
            case ast.Name(id="inf"):
                return Num(math.inf, span=s)
            case ast.Name(id="nan"):
                return Num(math.nan, span=s)
            case ast.Name(id="skip"):
                raise self.fail(n, "`skip` stands only as `target = value if test else skip`")
            case ast.Constant(value=None):
                raise self.fail(n, "`None` stands only in `name is None` and `name is not None`")
            case ast.Name(id=name):
                return Name(name, span=s)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                inner = self.expr(x)
                if isinstance(inner, Num) and not isinstance(inner.value, bool):
                    return Num(-inner.value, span=s)
                return Un("-", inner, span=s)
            case ast.UnaryOp(op=ast.UAdd(), operand=x):
                return self.expr(x)
            case ast.UnaryOp(op=ast.Invert(), operand=x):
                return Un("~", self.expr(x), span=s)
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return Not(self.expr(x), span=s)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _BIN:
                return Bin(_BIN[type(op)], self.expr(a), self.expr(b), span=s)
            case ast.BoolOp(op=op, values=xs):
                items = tuple(self.expr(x) for x in xs)
                return And(items, span=s) if isinstance(op, ast.And) else Or(items, span=s)
            case ast.Compare(
                left=x, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]
            ):
                if not isinstance(x, ast.Name):
                    raise self.fail(n, "`is None` asks about an input or attribute by name")
                return IsNone(x.id, isinstance(op, ast.IsNot), span=s)
            case ast.Compare(left=x, ops=[ast.In()], comparators=[ast.Tuple(elts=elts)]):
                return Cmp("in", self.expr(x), TupleLit(tuple(self.expr(e) for e in elts), span=s), span=s)
            case ast.Compare(left=ast.Name(id=name), ops=[ast.In()], comparators=[e]) if self.in_index:
                return Decl(name, False, self.expr(e), span=s)  # `x[min(i in N, M - 1)]`
            case ast.Compare(left=first, ops=ops, comparators=rest):
                parts: list[Expr] = []
                left = self.expr(first)
                for sign, r in zip(ops, rest, strict=True):
                    if type(sign) not in _CMP:
                        raise self.fail(
                            n,
                            "this comparison is not in the language",
                            "== != < <= > >=, `name is None`, or of static values `name in (0, 1)`",
                        )
                    right = self.expr(r)
                    parts.append(Cmp(_CMP[type(sign)], left, right, span=s))
                    left = right
                return parts[0] if len(parts) == 1 else And(tuple(parts), span=s)
            case ast.IfExp(test=t, body=a, orelse=b):
                return Select(self.expr(t), self.expr(a), self.expr(b), span=s)
            case ast.Starred(value=x):
                return Star(self.expr(x), span=s)
            case ast.Subscript(value=ast.Name(id=name), slice=sl):
                return Load(name, self.index(sl), span=s)
            case ast.Subscript(value=ast.Subscript(value=ast.Name(id=name), slice=item), slice=sl):
                return Load(name, self.index(sl), self.expr(item), span=s)
            case ast.Call(func=ast.Subscript(value=ast.Name(id=kind), slice=sl), args=[body], keywords=[]):
                if kind not in REDUCTIONS:
                    raise self.fail(
                        n,
                        f"`{kind}[…](…)` is not a reduction",
                        did_you_mean(kind, REDUCTIONS, what="reductions"),
                    )
                return Reduce(kind, self.decls(sl), self.expr(body), span=s)
            case ast.Call(func=ast.Name(id=fn), args=args, keywords=[]):
                values = tuple(self.expr(a) for a in args)
                if fn in FOLDS and (len(values) == 1 or fn not in FUNCTIONS):
                    if len(values) != 1:
                        raise self.fail(
                            n,
                            f"`{fn}(…)` folds the lanes of one pack expression",
                            f"a reduction over an index is `{fn}[i](…)`",
                        )
                    return Fold(fn, values[0], span=s)
                return Call(fn, values, span=s)
            case ast.Call(func=ast.Attribute(attr=fn), args=args):  # `np.sqrt(x)`, `x.sum()`
                raise self.fail(
                    n.func,
                    f"{_REFUSED['Attribute']} is not in the language",
                    f"write `{fn}[i](…)`, which names its indices"
                    if fn in REDUCTIONS and (fn not in FUNCTIONS or len(args) < 2)
                    else f"write `{fn}(…)`"
                    if fn in FUNCTIONS
                    else did_you_mean(fn, (*FUNCTIONS, *REDUCTIONS), what="functions"),
                )
            case ast.Call(keywords=[_, *_]):
                raise self.fail(n, "arguments are given by position: `name=` is not in the language")
        kind = type(n.op).__name__ if isinstance(n, ast.BinOp) else type(n).__name__
        raise self.fail(
            n,
            f"{_REFUSED.get(kind, 'this')} is not in the language",
            "it has numbers, names, loads, casts, calls, arithmetic, comparisons, and/or/not, "
            "`a if c else b`, reductions `sum[i](…)`",
        )

    def index(self, sl: ast.AST) -> tuple[Expr, ...]:
        items = sl.elts if isinstance(sl, ast.Tuple) else [sl]
        self.in_index += 1
        try:
            return tuple(self.one_index(i) for i in items)
        finally:
            self.in_index -= 1

    def one_index(self, n: ast.AST) -> Expr:
        match n:  # `in` a tuple is a test of static values, anywhere
            case ast.Compare(left=ast.Name(id=name), ops=[ast.In()], comparators=[e]) if not _is_tuple(e):
                return Decl(name, False, self.expr(e), span=self.span(n))
            case ast.Starred(value=ast.Compare(left=ast.Name(id=name), ops=[ast.In()], comparators=[e])) if (
                not _is_tuple(e)
            ):
                return Decl(name, True, self.expr(e), span=self.span(n))
            case ast.Slice():
                raise self.fail(
                    n, "slices are not in the language", "index with expressions: x[start + i * step]"
                )
        return self.expr(n)

    def decls(self, sl: ast.AST) -> tuple[Decl, ...]:
        out: list[Decl] = []
        for i in self.index(sl):
            match i:
                case Decl():
                    out.append(i)
                case Name(id=name):
                    out.append(Decl(name, span=i.span))
                case Star(x=Name(id=name)):
                    out.append(Decl(name, True, span=i.span))
                case _:
                    raise LanguageError(
                        "a reduction names its indices",
                        place=i.span.place if i.span else None,
                        hint="`sum[i, *n](…)` or `sum[k in K](…)`",
                    )
        if not out:
            raise self.fail(sl, "a reduction names its indices", "`sum[i, *n](…)` or `sum[k in K](…)`")
        return tuple(out)

    # -- statements
    def target(self, n: ast.AST) -> Target:
        match n:
            case ast.Name(id=name):
                return Target(name, (), span=self.span(n))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[])):
                return Target(name, (), span=self.span(n))
            case ast.Subscript(value=ast.Name(id=name), slice=sl):
                return Target(name, self.index(sl), span=self.span(n))
            case ast.Subscript(value=ast.Subscript(value=ast.Name(id=name), slice=item), slice=sl):
                return Target(name, self.index(sl), self.expr(item), span=self.span(n))
        raise self.fail(n, "a statement writes `name[index, …]`")

    def block(self, body: Sequence[ast.stmt], errors: list[LanguageError]) -> Block:
        out: list[Stmt] = []
        for st in body:
            try:
                out.append(self.stmt(st, errors))
            except LanguageError as e:
                errors.append(e)
        return tuple(out)

    def stmt(self, st: ast.stmt, errors: list[LanguageError]) -> Stmt:
        s = self.span(st)
        match st:
            case ast.Assign(targets=[t], value=v):
                return self.assign(self.target(t), "=", v, s)
            case ast.AugAssign(target=t, op=ast.Add(), value=v):
                return self.assign(self.target(t), "+=", v, s)
            case ast.AugAssign(target=t, op=ast.Mult(), value=v):
                return self.assign(self.target(t), "*=", v, s)
            case ast.AnnAssign(target=t, annotation=ast.Name(id=mode), value=ast.expr() as v) if (
                mode in MODES
            ):
                return self.assign(self.target(t), mode, v, s)
            case ast.If(test=test, body=body, orelse=orelse):
                self.depth += 1
                try:
                    if self.depth > MAX_DEPTH:
                        raise self.fail(st, f"more than {MAX_DEPTH} choices, one inside the other")
                    then, other = self.block(body, errors), self.block(orelse, errors)
                    return If(self.expr(test), then, other, span=s)
                finally:
                    self.depth -= 1
        raise self.fail(
            st,
            "not a statement of the language",
            "`y[i] = …`, `y[i] += …`, `y[i] *= …`, `y[i]: set = …` (set max min any all), or `if static:`",
        )

    def assign(self, target: Target, mode: str, v: ast.AST, s: Span) -> Assign:
        match v:
            case ast.IfExp(test=test, body=value, orelse=ast.Name(id="skip")):
                return Assign(target, mode, self.expr(value), self.expr(test), span=s)
        return Assign(target, mode, self.expr(v), span=s)


def _odd_bracket(text: str) -> tuple[str, str, int, int] | None:
    """Of a text that cannot be read: the first bracket without a partner, as (what, hint, line, column from 0)."""
    partner = {"(": ")", "[": "]", "{": "}"}
    opened: list[tuple[str, int, int]] = []
    for row, line in enumerate(text.split("\n"), 1):
        plain = re.sub(r"'[^']*'|\"[^\"]*\"", lambda m: " " * len(m[0]), line).partition("#")[0]
        for col, c in enumerate(plain):
            if c in partner:
                opened.append((c, row, col))
            elif c in partner.values():
                if not opened:
                    return f"this `{c}` closes nothing", "remove it, or open it before", row, col
                sign, at, begun = opened.pop()
                if partner[sign] != c:
                    where = "" if at == row else f" {row - at} line{'s' if row - at > 1 else ''} further down"
                    return (
                        f"this `{sign}` is closed by `{c}`{where}",
                        f"close it with `{partner[sign]}`",
                        at,
                        begun,
                    )
    if not opened:
        return None
    sign, row, col = opened[0]
    return f"this `{sign}` is never closed", f"the `{partner[sign]}` is missing", row, col


def _is_tuple(n: ast.AST) -> bool:
    return isinstance(n, ast.Tuple)


def _affine(line: int, col: int) -> Locate:
    return lambda row, at: (line + row - 1, col + at)


def parse_expr(
    text: str, *, file: str = "<text>", line: int = 1, col: int = 1, locate: Locate | None = None
) -> Expr:
    """Parse one expression that stands at `line:col` of `file` (or as `locate` says).  Raises `LanguageError`."""
    lead = len(text) - len(text.lstrip())
    base = locate or _affine(line, col)

    def shifted(row: int, at: int) -> tuple[int, int]:
        return base(row, at + lead) if row == 1 else base(row, at)

    p = _Parser(text.strip(), file, shifted)
    if not p.text:
        raise LanguageError("an expression is missing here", place=p.place(1, 0))
    body = p.tree("eval")
    assert isinstance(body, ast.Expression)
    return p.expr(body.body)


def parse_statements(
    text: str, *, file: str = "<text>", line: int = 1, col: int = 1, locate: Locate | None = None
) -> Block:
    """Parse a `compute` block.  Raises `LanguageError`; one with several mistakes carries the rest in `.others`."""
    p = _Parser(text, file, locate or _affine(line, col))
    errors: list[LanguageError] = []
    body = p.tree("exec")
    assert isinstance(body, ast.Module)
    block = p.block(body.body, errors)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return block


# ------------------------------------------------------------------------------------------------- printing

_PREC = {
    "or": 1,
    "and": 2,
    "not": 3,
    "cmp": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
    "un": 11,
    "**": 12,
    "atom": 14,
}


def _number(v: int | float) -> str:
    if isinstance(v, bool):
        return "True" if v else "False"
    if isinstance(v, int):
        return str(v)
    if math.isnan(v):
        return "nan"
    if math.isinf(v):
        return "inf" if v > 0 else "-inf"
    return repr(v)


def _is_chain(xs: tuple[Expr, ...]) -> TypeGuard[tuple[Cmp, ...]]:
    """Whether the conjunction is what `a < b <= c` parses to."""
    return (
        len(xs) > 1
        and all(isinstance(x, Cmp) and x.op != "in" for x in xs)
        and all(isinstance(a, Cmp) and isinstance(b, Cmp) and a.right == b.left for a, b in pairwise(xs))
    )


def show(x: Expr) -> str:
    """The text of an expression, with no more parentheses than needed."""
    return _show(x, 0)


_DTYPES = frozenset(d.value for d in DType)
#: dtypes that a literal is rounded to where it is written; an f64 holds what was written
_ROUNDING = (DType.F16, DType.BF16, DType.F32)


def _wrap(text: str, prec: int, need: int) -> str:
    return f"({text})" if prec < need else text


def _show(x: Expr, need: int) -> str:
    match x:
        case Num(value=v):
            text = _number(v)
            return _wrap(text, _PREC["un"] if text.startswith("-") else _PREC["atom"], need)
        case Str(value=v):
            return repr(v)
        case Name(id=i):
            return i
        case Item(id=i, lane=k):
            return f"{i}[{k}]"
        case Load(tensor=t, index=ix, item=item):
            head = _entry(t) if item is None else f"{t}[{_show(item, 0)}]"
            return f"{head}[{', '.join(_show(i, 0) for i in ix) or '()'}]"
        case Call(fn=fn, args=(Num(dtype=DType() as d) as literal,)) if (
            fn in _DTYPES and d in _ROUNDING and d.value != fn
        ):
            # a bound literal that was rounded to another dtype first: 0.1 in bf16 is another number in f32
            return f"{fn}({d.value}({_show(literal, 0)}))"
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(_show(a, 0) for a in args)})"
        case Un(op=op, x=inner):
            text = _show(inner, _PREC["un"])
            if isinstance(inner, Num) or (text.startswith("-") and op == "-"):
                text = f"({text})" if not text.startswith("(") else text
            return _wrap(f"{op}{text}", _PREC["un"], need)
        case Bin(op="**", left=a, right=b):
            return _wrap(f"{_show(a, _PREC['**'] + 1)} ** {_show(b, _PREC['un'])}", _PREC["**"], need)
        case Bin(op=op, left=a, right=b):
            p = _PREC[op]
            return _wrap(f"{_show(a, p)} {op} {_show(b, p + 1)}", p, need)
        case Cmp(op=op, left=a, right=b):
            return _wrap(
                f"{_show(a, _PREC['cmp'] + 1)} {op} {_show(b, _PREC['cmp'] + 1)}", _PREC["cmp"], need
            )
        case And(xs=xs) if _is_chain(xs):
            inner_prec = _PREC["cmp"] + 1
            text = _show(xs[0].left, inner_prec) + "".join(
                f" {c.op} {_show(c.right, inner_prec)}" for c in xs
            )
            return _wrap(text, _PREC["cmp"], need)
        case And(xs=xs):
            return _wrap(" and ".join(_show(a, _PREC["and"] + 1) for a in xs), _PREC["and"], need)
        case Or(xs=xs):
            return _wrap(" or ".join(_show(a, _PREC["or"] + 1) for a in xs), _PREC["or"], need)
        case Not(x=inner):
            return _wrap(f"not {_show(inner, _PREC['not'])}", _PREC["not"], need)
        case Select(test=t, then=a, other=b):
            text = f"{_show(a, 1)} if {_show(t, 1)} else {_show(b, 0)}"
            return f"({text})" if need > 0 else text
        case IsNone(id=i, negate=neg):
            return _wrap(f"{i} is {'not ' if neg else ''}None", _PREC["cmp"], need)
        case Decl(id=i, pack=pack, extent=None):
            return f"{'*' if pack else ''}{i}"
        case Decl(id=i, pack=pack, extent=Expr() as e):
            text = f"{'*' if pack else ''}{i} in {_show(e, _PREC['cmp'] + 1)}"
            return _wrap(text, _PREC["cmp"], need)
        case Reduce(kind=k, indices=ix, body=b):
            return f"{k}[{', '.join(_show(i, 0) for i in ix)}]({_show(b, 0)})"
        case Fold(kind=k, body=b):
            return f"{k}({_show(b, 0)})"
        case Star(x=inner):
            return f"*{_show(inner, _PREC['atom'])}"  # `*(o * s + k)`: Python needs none, readers do
        case TupleLit(xs=xs):
            return f"({', '.join(_show(a, 0) for a in xs)}{',' if len(xs) == 1 else ''})"
    raise TypeError(f"no printer for {type(x).__name__}")


def _entry(tensor: str) -> str:
    """Entry `xs.0` of a list, as bound, is written `xs[0]`."""
    name, dot, k = tensor.partition(".")
    return f"{name}[{k}]" if dot else tensor


def show_target(t: Target) -> str:
    head = _entry(t.name) if t.item is None else f"{t.name}[{show(t.item)}]"
    return f"{head}[{', '.join(show(i) for i in t.index) or '()'}]"


def show_stmt(st: Stmt, indent: str = "") -> str:
    if isinstance(st, If):
        out = f"{indent}if {show(st.test)}:\n{show_block(st.then, indent + '  ')}"
        if st.orelse:
            out += f"{indent}else:\n{show_block(st.orelse, indent + '  ')}"
        return out
    rhs = show(st.value)
    if st.guard is not None:
        rhs = f"{_show(st.value, 1)} if {_show(st.guard, 1)} else skip"
    op = {"=": " =", "+=": " +=", "*=": " *="}.get(st.mode, f": {st.mode} =")
    return f"{indent}{show_target(st.target)}{op} {rhs}\n"


def show_block(block: Block, indent: str = "") -> str:
    """The text of statements, one a line, as `parse_statements` reads them."""
    return "".join(show_stmt(s, indent) for s in block)


_IDENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def is_identifier(text: str) -> bool:
    return bool(_IDENT.match(text))
