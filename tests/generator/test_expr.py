"""The expression language: what is printed is read back, what is not in it is refused with a place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.errors import LanguageError
from opwright.generator.expr import (
    FOLDS,
    MAX_TEXT,
    MODES,
    REDUCTIONS,
    And,
    Assign,
    Bin,
    Block,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    If,
    IsNone,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    Stmt,
    Str,
    Target,
    TupleLit,
    Un,
    parse_expr,
    parse_statements,
    show,
    show_block,
    substitute,
    transform,
    walk,
)

# ------------------------------------------------------------------------------------------------- any tree

NAMES = ["i", "j", "N", "eps", "x1", "B", "in_", "order"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"]
COMPARE = ["==", "!=", "<", "<=", ">", ">="]
NUMBERS = st.one_of(st.booleans(), st.integers(-(2**70), 2**70), st.floats()).map(Num)
STRINGS = st.text(st.characters(codec="utf-8"), max_size=5).map(Str)


class Trees:
    """Draws trees of every shape that the parser can give.

    A literal with a sign is a literal: `Un("-", Num(3))` is never built, nor a one-armed `And`.
    """

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw

    def pick(self, xs: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(xs))

    def name(self) -> str:
        return self.draw(st.sampled_from(NAMES))

    def many(self, depth: int, least: int = 2) -> tuple[Expr, ...]:
        return tuple(self.expr(depth) for _ in range(self.draw(st.integers(least, 3))))

    def decl(self, depth: int) -> Decl:
        return Decl(
            self.name(), self.draw(st.booleans()), self.expr(depth) if self.draw(st.booleans()) else None
        )

    def index(self, depth: int) -> tuple[Expr, ...]:
        def one() -> Expr:
            match self.draw(st.integers(0, 2)):
                case 0:
                    return Star(self.expr(depth))
                case 1:
                    return Decl(self.name(), self.draw(st.booleans()), self.expr(depth))
            return self.expr(depth)

        return tuple(one() for _ in range(self.draw(st.integers(0, 3))))

    def item(self, depth: int) -> Expr | None:
        return self.expr(depth) if self.draw(st.booleans()) else None

    def expr(self, depth: int) -> Expr:
        if depth == 0:
            return self.draw(NUMBERS) if self.draw(st.booleans()) else Name(self.name())
        d = depth - 1
        match self.draw(st.integers(0, 19)):
            case 0 | 1 | 2:
                return Bin(self.pick(BINARY), self.expr(d), self.expr(d))
            case 3:
                x = self.expr(d)
                return x if isinstance(x, Num) and not isinstance(x.value, bool) else Un("-", x)
            case 4:
                return Un("~", self.expr(d))
            case 5:
                return Cmp(self.pick(COMPARE), self.expr(d), self.expr(d))
            case 6:
                return Cmp(self.pick(["==", "!="]), self.expr(d), self.draw(STRINGS))
            case 7:
                return Cmp("in", self.expr(d), TupleLit(tuple(self.draw(st.lists(NUMBERS, max_size=3)))))
            case 8:
                a, b, c = (self.expr(d) for _ in range(3))
                return And((Cmp(self.pick(COMPARE), a, b), Cmp(self.pick(COMPARE), b, c)))
            case 9:
                return And(self.many(d))
            case 10:
                return Or(self.many(d))
            case 11:
                return Not(self.expr(d))
            case 12:
                return Select(self.expr(d), self.expr(d), self.expr(d))
            case 13:
                return IsNone(self.name(), self.draw(st.booleans()))
            case 14:
                return Call(self.pick(["exp", "A", "f32", "max", "start"]), self.many(d))
            case 15:
                return Call("linear", (Star(self.expr(d)), Star(self.expr(d))))
            case 16:
                return Load(self.name(), self.index(d), self.item(d))
            case 17:
                decls = tuple(self.decl(d) for _ in range(self.draw(st.integers(1, 2))))
                return Reduce(self.pick(REDUCTIONS), decls, self.expr(d))
            case 18:
                return Fold(self.pick(FOLDS), self.expr(d))
        return self.expr(0)

    def stmt(self, depth: int) -> Stmt:
        if depth and self.draw(st.booleans()):
            return If(self.expr(1), self.block(depth - 1, 1), self.block(depth - 1, 0))
        target = Target(self.name(), self.index(1), self.item(1))
        return Assign(target, self.pick(MODES), self.expr(2), self.item(2))

    def block(self, depth: int, least: int = 1) -> Block:
        return tuple(self.stmt(depth) for _ in range(self.draw(st.integers(least, 2))))


@st.composite
def exprs(draw: Callable[..., Any]) -> Expr:
    return Trees(draw).expr(draw(st.integers(0, 4)))


@st.composite
def blocks(draw: Callable[..., Any]) -> Block:
    return Trees(draw).block(2)


@given(exprs())
def test_an_expression_reads_back(x: Expr) -> None:
    assert parse_expr(show(x)) == x


@given(blocks())
def test_a_block_reads_back(block: Block) -> None:
    assert parse_statements(show_block(block)) == block


@given(exprs())
def test_printing_is_stable_and_transform_keeps_what_it_does_not_change(x: Expr) -> None:
    assert show(parse_expr(show(x))) == show(x)
    assert transform(x, lambda n: None) is x
    assert sum(1 for _ in walk(x)) >= 1


# ------------------------------------------------------------------------------------------------- as people write it


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("((a)+(b))*c", "(a + b) * c"),
        ("a-(b-c)-d", "a - (b - c) - d"),
        ("2**-x**2", "2 ** -x ** 2"),
        ("(-x)**2", "(-x) ** 2"),
        ("-(x**2)", "-x ** 2"),
        ("-(3)", "-3"),
        ("+x", "x"),
        ("1e-30", "1e-30"),
        ("1_000", "1000"),
        ("-inf", "-inf"),
        ("0 <= i < N and (j < M or c)", "0 <= i < N and (j < M or c)"),
        ("a < b and b < c", "a < b < c"),
        ("not (a and b)", "not (a and b)"),
        ("a if (b if c else d) else (e if f else g)", "a if (b if c else d) else e if f else g"),
        ("x[*B, h//(H//G), j]", "x[*B, h // (H // G), j]"),
        ("x[*(o*stride+k-p)]", "x[*(o * stride + k - p)]"),
        ("xs[k][*B, i in N[k]]", "xs[k][*B, i in N[k]]"),
        ("max[*k in kernel, q](x[*k])", "max[*k in kernel, q](x[*k])"),
        ("max(a, b)", "max(a, b)"),
        ("sum(o*stride)", "sum(o * stride)"),
        ("w is not None", "w is not None"),
        ("ord in (0, 1, -inf)", "ord in (0, 1, -inf)"),
        ("mode=='mean'", "mode == 'mean'"),
        ("s[()]", "s[()]"),
        ("a & b == c", "a & b == c"),
        ("  x  ", "x"),
    ],
)
def test_precedence_is_pythons(text: str, printed: str) -> None:
    x = parse_expr(text)
    assert show(x) == printed
    assert parse_expr(printed) == x


def test_kinds_of_nodes() -> None:
    assert parse_expr("A(x[i])") == Call("A", (Load("x", (Name("i"),)),))
    assert parse_expr("sum[i](x[i])") == Reduce("sum", (Decl("i"),), Load("x", (Name("i"),)))
    assert parse_expr("max(p)") == Fold("max", Name("p"))
    assert parse_expr("N[k]") == Load("N", (Name("k"),))
    assert parse_expr("x[i in N]") == Load("x", (Decl("i", False, Name("N")),))
    assert isinstance(parse_expr("nan"), Num)
    assert math.isnan(parse_expr("nan").value)  # type: ignore[attr-defined]


def test_statements() -> None:
    block = parse_statements(
        "n[i] = 0  # counts\n"
        "n[x[p]] += 1\n"
        "y[r[i]]: set = v[i] if r[i] < k else skip\n"
        "if mode == 'mean':\n  z = 1\nelif mode == 'max':\n  z = 2\nelse:\n  z = 3\n"
    )
    base, update, store, choice = block
    assert isinstance(base, Assign)
    assert base.mode == "="
    assert isinstance(update, Assign)
    assert update.mode == "+="
    assert isinstance(store, Assign)
    assert (store.mode, store.guard, store.value) == ("set", parse_expr("r[i] < k"), parse_expr("v[i]"))
    assert isinstance(choice, If)
    assert isinstance(choice.orelse[0], If)


def test_substitute_replaces_free_names() -> None:
    assert show(substitute(parse_expr("x[i] + j * sum[k](y[k, j])"), {"j": parse_expr("a + 1")})) == (
        "x[i] + (a + 1) * sum[k](y[k, a + 1])"
    )


def test_equality_knows_zero_signs_nan_and_types() -> None:
    assert Num(0.0) != Num(-0.0)
    assert Num(math.nan) == Num(math.nan)
    assert Num(1) != Num(1.0)
    assert Num(True) != Num(1)
    assert hash(Num(math.nan)) == hash(Num(math.nan))


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", "a name with a dot is not in the language"),
        ("[1]", "a list is not in the language"),
        ("{1}", "a set is not in the language"),
        ("lambda: 3", "a lambda is not in the language"),
        ("[i for i in x]", "a comprehension is not in the language"),
        ("a @ b", "`@` is not in the language"),
        ("(1, 2)", "a tuple is not in the language"),
        ("f'{x}'", "an f-string is not in the language"),
        ("1j", "this is not in the language"),
        ("b'x'", "this is not in the language"),
        ("x not in (1, 2)", "this comparison is not in the language"),
        ("a is b", "this comparison is not in the language"),
        ("None", "`None` stands only in `name is None` and `name is not None`"),
        ("f(x)(y)", "this is not in the language"),
        ("exp(x=1)", "arguments are given by position: `name=` is not in the language"),
        ("x[1:2]", "slices are not in the language"),
        ("foo[i](x)", "`foo[…](…)` is not a reduction"),
        ("sum[i + 1](x)", "a reduction names its indices"),
        ("sum[()](x)", "a reduction names its indices"),
        ("sum(a, b)", "`sum(…)` folds the lanes of one pack expression"),
        ("skip", "`skip` stands only as `target = value if test else skip`"),
        ("(a + b) is None", "`is None` asks about an input or attribute by name"),
        ("", "an expression is missing here"),
        ("a = b", "cannot read this as an expression: invalid syntax"),
    ],
)
def test_refused_expressions(text: str, message: str) -> None:
    with pytest.raises(LanguageError) as e:
        parse_expr(text)
    assert e.value.message == message
    assert e.value.place is not None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a && b", "`a and b`"),
        ("a || b", "`a or b`"),
        ("a ? b : c", "`a if test else b`"),
        ("!a", "`not a`; unequal is `!=`"),
        ("a = b", "an equation is `==`"),
        ("a => b", "`>=`"),
        ("a =< b", "`<=`"),
        ("np.sqrt(a)", "write `sqrt(…)`"),
        ("torch.max(a, b)", "write `max(…)`"),
        ("a.sum()", "write `sum[i](…)`, which names its indices"),
        ("np.sqr(a)", "did you mean `sqrt`?"),
        ("(a + f(b)", "the `)` is missing"),
        ("a + b)", "remove it, or open it before"),
        ("f(x[a)]", "close it with `]`"),
    ],
)
def test_words_of_other_languages(text: str, hint: str) -> None:
    with pytest.raises(LanguageError) as e:
        parse_expr(text)
    assert e.value.hint == hint


def test_an_open_bracket_is_told_where_it_opened() -> None:
    with pytest.raises(LanguageError) as e:
        parse_statements("a[i] = x[i]\ny[i] = (a[i] +\n  f(a[i])\nz[i] = 1  # )\n")
    assert e.value.message == "cannot read this as a statement: this `(` is never closed"
    assert e.value.place is not None and (e.value.place.line, e.value.place.column) == (2, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y[i] -= 1", "not a statement of the language"),
        ("x", "not a statement of the language"),
        ("import os", "not a statement of the language"),
        ("for i in x:\n  y = 1", "not a statement of the language"),
        ("y[i]: median = 3", "not a statement of the language"),
        ("a = b = 1", "not a statement of the language"),
        ("a, b = 1", "a statement writes `name[index, …]`"),
        ("x = (1 if a else skip) + 1", "`skip` stands only as `target = value if test else skip`"),
        ("x = 1 if skip else 2", "`skip` stands only as `target = value if test else skip`"),
    ],
)
def test_refused_statements(text: str, message: str) -> None:
    with pytest.raises(LanguageError) as e:
        parse_statements(text)
    assert e.value.message == message


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "-" * 5000 + "a", "+".join("a" * 20000), "a\0b", "x" * (MAX_TEXT + 1), "not " * 2000 + "a"],
    ids=["brackets", "signs", "sum", "null", "long", "not"],
)
def test_what_would_exhaust_a_parser_is_refused(text: str) -> None:
    with pytest.raises(LanguageError):
        parse_expr(text)
    with pytest.raises(LanguageError):
        parse_statements("y = " + text)


def test_deep_choices_are_refused() -> None:
    with pytest.raises(LanguageError):
        parse_statements("\n".join(f"{'el' if k else ''}if a == {k}:\n  x = 1" for k in range(300)))


def test_several_mistakes_in_one_run() -> None:
    with pytest.raises(LanguageError) as e:
        parse_statements("a = x.y\nb = 1\nc = [2]\nif d:\n  f = None\n")
    assert [str(x) for x in e.value.errors] == [
        "<text>:1:5: a name with a dot is not in the language",
        "<text>:3:5: a list is not in the language",
        "<text>:5:7: `None` stands only in `name is None` and `name is not None`",
    ]


# ------------------------------------------------------------------------------------------------- places


def test_spans_cover_their_node() -> None:
    x = parse_expr("a + exp(b)", file="f", line=7, col=11)
    assert isinstance(x, Bin)
    assert x.right.span is not None
    assert (x.right.span.file, x.right.span.line, x.right.span.col, x.right.span.end) == ("f", 7, 15, 21)


def test_leading_blanks_do_not_shift_columns() -> None:
    with pytest.raises(LanguageError, match=r"^<text>:1:5: "):
        parse_expr("  a+[1]")


def test_columns_count_characters_not_bytes() -> None:
    with pytest.raises(LanguageError, match=r"^<text>:1:10: "):
        parse_expr("λ + μμ + [1]")


def test_lines_of_a_block_count_from_its_place() -> None:
    with pytest.raises(LanguageError, match=r"^f.yaml:12:7: "):
        parse_statements("a = 1\nb = [2]", file="f.yaml", line=11, col=3)
