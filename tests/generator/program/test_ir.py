"""The program IR: exact in JSON, refused where it does not hold together, readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.errors import OpwrightError
from opwright.generator.program import ir
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import (
    Assert,
    Binding,
    Call,
    MalformedProgram,
    Program,
    Read,
    Scalar,
    ScalarArg,
    State,
    Symbol,
    Value,
    View,
)
from opwright.generator.types import DType

from .small_program import S, of, small, tensor


def test_round_trip_is_exact() -> None:
    p = small()
    ir.verify(p)
    text = ir.dumps(p)
    q = ir.loads(text)
    assert q == p
    assert ir.dumps(q) == text
    kinds = [type(a.value) for a in q.call("cat_0").inputs if isinstance(a, ScalarArg)]
    assert kinds == [int, float, bool, IntExpr]  # equality alone would not tell 2 from 2.0 from True


def test_text_is_json_a_line_a_node() -> None:
    text = ir.dumps(small())
    data = json.loads(text)
    assert data["schema"] == 1
    assert sum(line.lstrip().startswith('{"kind"') for line in text.splitlines()) == len(data["nodes"])
    assert '"inf"' in text and "Infinity" not in text


def test_fields_of_the_contract() -> None:
    data = ir.to_json(small())
    assert data["symbols"]["s0"] == {"min": 1, "max": 64, "divisor": 1, "from": ["x", 0]}
    assert data["values"]["v1"] == {"dtype": "f32", "shape": ["s0", 4], "strides": [4, 1], "kind": "tensor"}
    assert data["values"]["n1"] == {"dtype": "i64", "kind": "scalar"}
    assert data["nodes"][1]["attrs"]["axes"] == [0, {"sym": "s0"}]
    assert data["nodes"][6]["in"] == [
        ["v3", "v3"],
        None,
        {"scalar": 2},
        {"scalar": 2.0},
        {"scalar": True},
        {"scalar": {"sym": "n1"}},
    ]
    assert data["nodes"][0]["cond"] == ["or", ["le", "s0", 64], ["not", ["eq", "s0", 3]]]


numbers = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
attributes = st.recursive(
    st.one_of(
        st.none(), st.text(max_size=4), numbers, st.builds(lambda n: of("s0") * n + 1, st.integers(-3, 3))
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


@given(attributes)
def test_attributes_survive_json(value: Any) -> None:
    again = ir.attr_of(json.loads(json.dumps(ir.attr_json(value), allow_nan=False)))
    # A constant expression reads back as an expression; repr tells 1 from 1.0 from True, and nan from nothing.
    assert repr(again) == repr(value)


def changed(**fields: Any) -> Callable[[Program], Program]:
    return lambda p: replace(p, **fields)


def node(k: int, new: Any) -> Callable[[Program], Program]:
    return lambda p: replace(p, nodes=(*p.nodes[:k], new, *p.nodes[k + 1 :]))


def value(v: Value) -> Callable[[Program], Program]:
    return lambda p: replace(p, values={**p.values, v.id: v})


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (node(1, Call("mul_0", "mul", ("v5", "w1"), {}, ("v2",))), "before it is made"),
        (node(1, Call("mul_0", "mul", ("v99",), {}, ("v2",))), "not among the values"),
        (node(1, Call("mul_0", "mul", ("v1",), {}, ("v5",))), "makes v5 again"),
        (node(1, Call("cat_0", "mul", ("v1",), {}, ("v2",))), "not the only one"),
        (node(1, Call("mul_0", "mul", ("n1",), {}, ("v2",))), "before it is made"),
        (node(1, Call("mul_0", "mul", ("v1",), {"n": of("n1")}, ("v2",))), "reads n1 before it is known"),
        (node(1, Call("mul_0", "mul", ("v1",), {"n": of("zz")}, ("v2",))), "which nothing defines"),
        (node(2, View("v2", "v3", (of(4), S), (of(2), of(4)), of(0))), "differs from what v3 says"),
        (
            lambda p: value(Value("v3", DType.F32, (of(4), S), (of(1), of(5))))(
                node(2, View("v2", "v3", (of(4), S), (of(1), of(5)), of(0)))(p)
            ),
            "reaches elements",
        ),
        (
            lambda p: value(Value("v3", DType.F32, (of(4), S), (of(1), of(4))))(
                node(2, View("v2", "v3", (of(4), S), (of(1), of(4)), of(1)))(p)
            ),
            "reaches elements",
        ),
        (value(Value("v3", DType.F64, (of(4), S), (of(1), of(4)))), "turns f32 into f64"),
        (node(5, View("v3", "v4", (S, of(4)), (of(4), of(1)), of(0))), "itself a view"),
        (node(3, Scalar("v4", S)), "not a register"),
        (node(4, Read("w1", "n2")), "one element"),
        (node(0, Assert(("le", of("u9"), of(1)), "m")), "which nothing defines"),
        (value(Value("v5", DType.F32, (S, of(4)), (of(1), S))), "not a contiguous tensor"),
        (value(tensor("extra", 3)), "never made"),
        (value(Value("n1", DType.F32, kind="scalar")), "is a register"),
        (changed(outputs=(Binding("y", "v77"),)), "never made"),
        (changed(state=(State("x", "n1"),)), "of another type"),
        (changed(state=(State("nobody", "v4"),)), "neither an input nor a constant"),
        (changed(symbols={"s0": Symbol("s0", "x", 1)}), "is not axis 1 of x"),
        (changed(symbols={"s0": Symbol("s0", "nobody", 0)}), "neither an input nor a value"),
        (changed(symbols={"s0": Symbol("s0", "x", 0, 5, 2)}), "has the range"),
        (changed(weights=(Binding("w", "w1", "other"),)), "tied to other"),
        (changed(weights=(Binding("w", "v1"),)), "makes v1 again"),
    ],
)
def test_verifier_refuses(edit: Callable[[Program], Program], says: str) -> None:
    with pytest.raises(OpwrightError) as e:
        ir.verify(edit(small()))
    assert says in str(e.value)


def test_a_view_that_fits_only_where_the_program_asserts_it() -> None:
    """Sizes that the program's own assertions exclude are not held against its views."""
    x, v = tensor("v1", S, 4), Value("v2", DType.F32, (of(2), of(4)), (of(4), of(1)))
    p = Program(
        "p",
        "t",
        DType.F32,
        {"v1": x, "v2": v, "v3": tensor("v3", 2, 4)},
        (Binding("x", "v1"),),
        (Binding("y", "v3"),),
        (
            Assert(("ge", S, of(2)), "two rows"),
            View("v1", "v2", (of(2), of(4)), (of(4), of(1)), of(0)),
            Call("c_0", "neg", ("v2",), {}, ("v3",)),
        ),
        {"s0": Symbol("s0", "x", 0, 1)},
    )
    ir.verify(p)
    with pytest.raises(MalformedProgram, match="reaches elements"):
        ir.verify(replace(p, nodes=p.nodes[1:]))


def test_an_extent_of_data_is_known_from_its_value_on() -> None:
    x, n = tensor("v1", 4), of("s0")
    values = {"v1": x, "v2": tensor("v2", n, 1, dtype=DType.I64), "v3": tensor("v3", n, 1, dtype=DType.I64)}
    nodes = (Call("nz_0", "nonzero", ("v1",), {}, ("v2",)), Call("neg_0", "neg", ("v2",), {}, ("v3",)))
    p = Program(
        "p",
        "t",
        DType.F32,
        values,
        (Binding("x", "v1"),),
        (Binding("y", "v3"),),
        nodes,
        {"s0": Symbol("s0", "v2", 0)},
    )
    ir.verify(p)
    with pytest.raises(OpwrightError):
        ir.verify(replace(p, nodes=nodes[::-1]))


def edited(*way: str | int, to: Any = None) -> str:
    """The small program's text with one thing in it put in the place of another."""
    data = ir.to_json(small())
    at: Any = data
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return json.dumps(data)


@pytest.mark.parametrize(
    ("way", "to", "says"),
    [
        (("values", "v2", "strides"), [], "extents and 0 strides"),
        (("symbols", "s0", "divisor"), 0, "by 0"),
        (("symbols", "s0", "min"), -5, "the range -5"),
    ],
)
def test_what_a_later_check_relies_on_is_checked_before_it(way: Any, to: Any, says: str) -> None:
    with pytest.raises(OpwrightError, match=says):
        ir.verify(ir.loads(edited(*way, to=to)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2}',
        '{"schema": 1}',
        "nonsense",
        "[" * 100_000,
        ir.dumps(small())[:-40],
        ir.dumps(small()).replace('"kind": "view"', '"kind": "glance"'),
        ir.dumps(small()).replace('"f32"', '"f33"'),
        ir.dumps(small()).replace('["mul", 2, "s0"]', '["pow", 2, "s0"]'),
        edited("nodes", 1, "op"),
        edited("nodes", 1, "id"),
        edited("nodes", 1, "out", 0, to=7),
        edited("inputs", 0, "value"),
        edited("outputs", 0, "name"),
        edited("symbols", "s0", "min"),
        edited("symbols", "s0", "max", to=1.5),
        edited("symbols", "s0", "from", to=["x", 0, 0]),
    ],
)
def test_what_is_no_program_is_one_clear_error(text: str) -> None:
    with pytest.raises(MalformedProgram) as e:
        ir.loads(text)
    assert e.value.hint


def test_show_is_a_line_a_node() -> None:
    text = ir.show(small())
    assert (
        "v2: f32[s0, 4] = mul(v1, w1, alpha=1.5, axes=[0, s0], mode=tanh, big=inf, none=None, on=True)  # model.py:3"
        in text
    )
    assert "v3: f32[4, s0] = v2 by (1, 4)" in text
    assert "n1: i64 = 2*s0 + 1" in text
    assert "assert (s0 <= 64) or (not (s0 == 3))" in text
    assert "state x becomes v4" in text
