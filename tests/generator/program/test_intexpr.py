"""Canonical integer polynomials: equal where they must be, right where they are evaluated, exact in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.program.intexpr import IntExpr, floordiv, maximum, minimum, mod

A, B, C = (IntExpr.of(n) for n in "abc")
OPS = {"add", "sub", "mul", "floordiv", "mod", "max", "min"}


def trees() -> st.SearchStrategy[Any]:
    leaves: st.SearchStrategy[Any] = st.one_of(st.integers(-9, 9), st.sampled_from("abc"))
    return st.recursive(
        leaves, lambda t: st.tuples(st.sampled_from(sorted(OPS)), t, t).map(list), max_leaves=8
    )


def evaluate(tree: Any, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    x, y = evaluate(tree[1], env), evaluate(tree[2], env)
    match tree[0]:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "floordiv":
            return x // y
        case "mod":
            return x % y
        case "max":
            return max(x, y)
    return min(x, y)


@given(trees(), st.tuples(*[st.integers(1, 7)] * 3))
def test_value_survives_canonical_form(tree: Any, values: tuple[int, int, int]) -> None:
    env = dict(zip("abc", values, strict=True))
    try:
        want = evaluate(tree, env)
    except ZeroDivisionError:
        return
    assert IntExpr.from_json(tree).evaluate(env) == want


@given(trees())
def test_json_round_trip(tree: Any) -> None:
    x = IntExpr.from_json(tree)
    assert IntExpr.from_json(json.loads(json.dumps(x.to_json()))) == x


def test_equal_polynomials_are_equal() -> None:
    assert (A + 1) * (A - 1) == A * A - 1
    assert A * B * 4 == B * (A * 2) * 2
    assert hash(A * B) == hash(B * A)
    assert A - A == IntExpr.of(0)
    assert str(A * B * 4 - C + 1) == "4*a*b - c + 1"


def test_exact_division() -> None:
    assert ((A + B) * (C + 2)).exact_div(A + B) == C + 2
    assert (A * B * 4).exact_div(A * 2) == B * 2
    assert (A + 1).exact_div(B) is None
    assert (A * 3).exact_div(IntExpr.of(2)) is None
    assert A.exact_div(IntExpr.of(0)) is None


def test_floordiv_and_mod_split_off_whole_parts() -> None:
    assert floordiv(A * 64, IntExpr.of(64)) == A
    assert floordiv(A * 4 + B, IntExpr.of(4)) == A + floordiv(B, IntExpr.of(4))
    assert mod(A * 4 + 6, IntExpr.of(4)) == IntExpr.of(2)
    assert mod(A * B, A) == IntExpr.of(0)


def test_max_and_min_of_a_known_difference() -> None:
    assert maximum(A + 1, A) == A + 1
    assert minimum(A + 1, A) == A
    assert maximum(A, B) == maximum(B, A)


def test_rename_simplifies() -> None:
    assert floordiv(A, IntExpr.of(2)).rename({"a": B * 2}) == B
    assert (A * B).rename({"a": 3, "b": 5}).value == 15
    assert (A * floordiv(B, C)).names() == {"a", "b", "c"}


@pytest.mark.parametrize("bad", [True, 1.5, None, ["pow", 1, 2], ["add", 1], {"sym": "a"}])
def test_bad_json(bad: Any) -> None:
    with pytest.raises(ValueError, match="not an integer expression"):
        IntExpr.from_json(bad)


def test_no_truth_value() -> None:
    with pytest.raises(TypeError, match="truth"):
        bool(A)
