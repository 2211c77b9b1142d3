"""A program with every kind of node once, for the tests of what reads programs."""

from __future__ import annotations

from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import (
    Assert,
    Binding,
    Call,
    Copy,
    Program,
    Read,
    Scalar,
    ScalarArg,
    State,
    Symbol,
    Value,
    View,
)
from opwright.generator.program.views import contiguous_strides
from opwright.generator.types import DType

of = IntExpr.of
S = of("s0")


def tensor(id: str, *shape: int | IntExpr, dtype: DType = DType.F32) -> Value:
    extents = tuple(of(n) for n in shape)
    return Value(id, dtype, extents, contiguous_strides(extents))


def small() -> Program:
    """Every kind of node once."""
    values = [
        tensor("v1", S, 4),
        tensor("w1", 4),
        tensor("c1"),
        tensor("v2", S, 4),
        Value("v3", DType.F32, (of(4), S), (of(1), of(4))),
        Value("n1", DType.I64, kind="scalar"),
        Value("n2", DType.F64, kind="scalar"),
        tensor("v4", S, 4),
        tensor("v5", S, 4),
    ]
    nodes = (
        Assert(("or", ("le", S, of(64)), ("not", ("eq", S, of(3)))), "few rows"),
        Call(
            "mul_0",
            "mul",
            ("v1", "w1"),
            {"alpha": 1.5, "axes": (0, S), "mode": "tanh", "big": float("inf"), "none": None, "on": True},
            ("v2",),
            "model.py:3",
            "aten.mul.Tensor",
        ),
        View("v2", "v3", (of(4), S), (of(1), of(4)), of(0)),
        Scalar("n1", S * 2 + 1),
        Read("c1", "n2"),
        Copy("v2", "v4", "cpu"),
        Call(
            "cat_0",
            "cat",
            (("v3", "v3"), None, ScalarArg(2), ScalarArg(2.0), ScalarArg(True), ScalarArg(of("n1"))),
            {},
            ("v5", None),
        ),
    )
    return Program(
        "small",
        "test",
        DType.F32,
        {v.id: v for v in values},
        (Binding("x", "v1"),),
        (Binding("y", "v5"),),
        nodes,
        {"s0": Symbol("s0", "x", 0, 1, 64)},
        (Binding("w", "w1"),),
        (Binding("k", "c1"),),
        (State("x", "v4"),),
        {"inputs": [["x"], {}], "outputs": "y"},
    )
