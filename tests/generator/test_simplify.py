"""Folding keeps every IEEE value; the clean-up of programs keeps what they compute and drops what nobody reads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp, show_statements
from opwright.generator.expr import Bin, Call, Cmp, Expr, Load, Name, Num, Select, Un, show
from opwright.generator.normal import normalise, verify
from opwright.generator.simplify import (
    add,
    cast,
    cmp,
    cse,
    dead,
    div,
    fold,
    inline,
    land,
    lnot,
    mul,
    neg,
    num,
    reuse,
    select,
    simplify,
    sub,
)
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand

from .bound_interpreter import run

F, H, I, B = DType.F32, DType.BF16, DType.I64, DType.BOOL


def x_(name: str = "x", dtype: DType = F) -> Load:
    return Load(name, (Name("i", kind="index", dtype=I),), dtype=dtype)


def n_(name: str = "n") -> Name:
    return Name(name, kind="dim", dtype=I)


def test_units_of_floats_and_what_keeps_the_sign_of_zero() -> None:
    x = x_()
    assert (
        mul(x, num(1, F))
        == x
        == mul(num(1, F), x)
        == div(x, num(1, F))
        == sub(x, num(0, F))
        == add(x, num(-0.0, F))
    )
    assert show(add(x, num(0, F))) == "x[i] + 0.0"  # -0 + 0 is 0
    assert show(sub(num(0, F), x)) == "0.0 - x[i]"  # 0 - 0 is 0, -0 is not
    assert show(mul(x, num(0, F))) == "0.0 * x[i]"  # nan and inf
    assert show(sub(x, x)) == "x[i] - x[i]"


def test_signs_go_outwards() -> None:
    x, y = x_(), x_("y")
    assert neg(neg(x)) == x
    assert show(mul(neg(x), y)) == "-(x[i] * y[i])"
    assert show(mul(neg(x), neg(y))) == "x[i] * y[i]"
    assert show(div(neg(x), y)) == "-(x[i] / y[i])"
    assert show(add(x, neg(y))) == "x[i] - y[i]"
    assert show(sub(x, neg(y))) == "x[i] + y[i]"
    assert show(add(neg(x), y)) == "y[i] - x[i]"
    assert show(add(x, x)) == "2.0 * x[i]"


def test_literals_fold_as_the_kernel_would_round_them() -> None:
    third = div(num(1, F), num(3, F))
    assert isinstance(third, Num)
    assert third.value == float(np.float32(1) / np.float32(3))
    assert show(div(num(1, F), num(0, F))) == "1.0 / 0.0"
    assert show(mul(num(1e38, F), num(10, F))) == "1e+38 * 10.0"  # overflows: left to the kernel
    assert show(mul(num(3, H), num(3, H))) == "3.0 * 3.0"  # half types are not for us to round
    assert add(num(2**62, I), num(2**62, I)) == Bin("+", num(2**62, I), num(2**62, I), dtype=I)


def test_integers_are_a_ring() -> None:
    n, zero, one = n_(), num(0, I), num(1, I)
    assert add(n, zero) == n == mul(n, one) == sub(n, zero)
    assert mul(n, zero) == zero == sub(n, n)
    assert add(sub(n, one), one) == n
    assert show(sub(sub(n, one), one)) == "n - 2"
    assert sub(n, sub(n, one)) == one
    assert cmp("<=", n, n) == num(1, B)


def test_casts() -> None:
    x = x_(dtype=H)
    wide = cast(x, F)
    assert isinstance(wide, Call)
    assert cast(wide, H) == x == cast(x, H)
    assert show(cast(cast(x_(dtype=F), H), F)) == "f32(bf16(x[i]))"  # rounds: stays
    assert cast(num(2, I), F) == num(2, F)
    assert show(cast(num(0.1, DType.F64), F)) == "f32(0.1)"
    assert cast(num(0.5, DType.F64), H) == num(0.5, H)


def test_conditions() -> None:
    x, y = x_(), x_("y")
    c, d = Cmp("<", x, y, dtype=B), Cmp("==", x, y, dtype=B)
    assert show(lnot(d)) == "x[i] != y[i]"
    assert show(lnot(c)) == "not x[i] < y[i]"  # nan: not the same as >=
    assert lnot(lnot(c)) == c
    assert land(c, num(1, B), land(c, d)) == land(c, d)
    assert land(c, num(0, B)) == num(0, B)
    assert show(lnot(Cmp("<", n_(), n_("m"), dtype=B))) == "n >= m"
    assert cmp("<=", num(0, I), Name("i", kind="index", dtype=I)) == num(1, B)


def test_choices() -> None:
    x, y = x_(), x_("y")
    c, d = Cmp("<", x, y, dtype=B), Cmp("==", n_(), n_("m"), dtype=B)
    assert select(num(1, B), x, y) == x == select(c, x, x)
    assert select(lnot(c), x, y) == select(c, y, x)
    assert select(c, select(c, x, y), x) == x
    assert show(select(c, select(d, x, y), y)) == "x[i] if x[i] < y[i] and n == m else y[i]"
    # A load, or a division, stays where its condition guards it.
    guarded = Cmp("<", x_("z"), y, dtype=B)
    assert show(select(d, select(guarded, x, y), y)) == "(x[i] if z[i] < y[i] else y[i]) if n == m else y[i]"


SPECIAL = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, math.inf, -math.inf, math.nan, 3.25, 1e38, -1e38, 1e-45]
)


@st.composite
def floats(draw: Any, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            return x_(draw(st.sampled_from("xyz")))
        v = draw(SPECIAL)
        return num(float(np.float32(v)), F)
    kind = draw(st.sampled_from(["bin", "neg", "select", "cast"]))
    a = draw(floats(depth=depth - 1))
    if kind == "neg":
        return Un("-", a, dtype=F)
    if kind == "cast":
        return Call("f32", (Call("f64", (a,), dtype=DType.F64),), dtype=F)
    b = draw(floats(depth=depth - 1))
    if kind == "bin":
        return Bin(draw(st.sampled_from("+-*/")), a, b, dtype=F)
    test = Cmp(
        draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="])),
        draw(floats(depth=0)),
        draw(floats(depth=0)),
        dtype=B,
    )
    return Select(test, a, b, dtype=F)


def evaluate(x: Expr, env: dict[str, np.float32]) -> Any:
    with np.errstate(all="ignore"):
        match x:
            case Num(value=v):
                return np.float32(v)
            case Load(tensor=t):
                return env[t]
            case Un(x=a):
                return -evaluate(a, env)
            case Call(fn=fn, args=(a,)):
                return {"f32": np.float32, "f64": np.float64}[fn](evaluate(a, env))
            case Bin(op=op, left=a, right=b):
                u, v = evaluate(a, env), evaluate(b, env)
                return {"+": u + v, "-": u - v, "*": u * v, "/": np.divide(u, v)}[op]
            case Select(test=Num(value=c), then=a, other=b):
                return evaluate(a if c else b, env)
            case Select(test=t, then=a, other=b):
                return evaluate(a if truth(t, env) else b, env)
    raise AssertionError(x)


def truth(x: Expr, env: dict[str, np.float32]) -> bool:
    from opwright.generator.expr import And, Not

    match x:
        case Num(value=v):
            return bool(v)
        case Not(x=a):
            return not truth(a, env)
        case And(xs=xs):
            return all(truth(a, env) for a in xs)
        case Cmp(op=op, left=a, right=b):
            u, v = evaluate(a, env), evaluate(b, env)
            return bool({"<": u < v, "<=": u <= v, "==": u == v, "!=": u != v, ">": u > v, ">=": u >= v}[op])
    raise AssertionError(x)


@given(floats(), SPECIAL, SPECIAL, SPECIAL)
def test_fold_keeps_every_bit_but_those_of_nan(x: Expr, a: float, b: float, c: float) -> None:
    env = {"x": np.float32(a), "y": np.float32(b), "z": np.float32(c)}
    want, got = evaluate(x, env), evaluate(fold(x), env)
    assert np.isnan(want) == np.isnan(got)
    if not np.isnan(want):
        assert (want, np.signbit(want)) == (got, np.signbit(got))


# ------------------------------------------------------------------------------------------------ programs


def program(compute: str, *, outputs: str = 'y: "T[N]"', inputs: str = 'x: "T[N]", w: "T[N]"') -> BoundOp:
    text = f"""
op: f
types: {{T: float, A: accum(T), I: i64}}
inputs: {{{inputs}}}
outputs: {{{outputs}}}
compute: |
{compute}
grad: {{none: a test}}
"""
    (spec,) = load_spec_text(text, "<test>")
    given_ = {n: Operand(DType.F64, 1) for n in spec.inputs}
    return normalise(bind(spec, key_for_call(spec, given_).key))


def same(before: BoundOp, after: BoundOp) -> None:
    verify(after)
    data = {t.name: np.random.default_rng(k).standard_normal(4) for k, t in enumerate(before.inputs)}
    for n, v in run(before, data).items():
        np.testing.assert_allclose(run(after, data)[n], v, rtol=1e-14)


@pytest.mark.parametrize(
    ("compute", "want"),
    [
        # what nobody reads goes
        ("  a[i] = exp(x[i])\n  y[i] = w[i]", "y[i] = w[i]\n"),
        # equal definitions are one, whatever their indices are called
        (
            "  a[i] = exp(x[i])\n  b[j] = exp(x[j])\n  y[i] = a[i] * b[i] + a[i]",
            "a[i] = exp(x[i])\ny[i] = a[i] * a[i] + a[i]\n",
        ),
        # read once: put in place; copies and casts always
        ("  a[i] = x[i] * w[i]\n  y[j] = a[j] + 1.0", "y[j] = x[j] * w[j] + 1.0\n"),
        (
            "  a[i] = x[i]\n  y[j] = a[j] * a[j] + sum[k](a[k])",
            "y_sum[()] = sum[k](x[k])\ny[j] = x[j] * x[j] + y_sum[()]\n",
        ),
        # read once, but more often than written: stays
        (
            "  a[i] = exp(x[i])\n  y[j] = sum[k](a[k] * w[j])",
            "a[i] = exp(x[i])\ny[j] = sum[k](a[k] * w[j])\n",
        ),
        # a reduction that is a whole statement
        ("  a[i] = sum[k](x[k] * w[i])\n  y[j] = a[j]", "y[j] = sum[k](x[k] * w[j])\n"),
        (
            "  y[i] = x[i]\n  a[i] = sum[k](x[k] * w[i])\n  y[j] += a[j]",
            "y[i] = x[i]\ny[j] += sum[k](x[k] * w[j])\n",
        ),
        # not across an update of what it reads
        (
            "  t[i] = x[i]\n  a[i] = t[i] * 2.0\n  t[i] += w[i]\n  y[i] = a[i] * t[i]",
            "t[i] = x[i]\na[i] = 2.0 * t[i]\nt[i] += w[i]\ny[i] = a[i] * t[i]\n",
        ),
        # not where the extent is another one
        (
            "  a[i in N - 1] = exp(x[i + 1])\n  y[j] = a[j - 1] if j > 0 else w[j]",
            "a[i in N - 1] = exp(x[i + 1])\ny[j] = a[j - 1] if j > 0 else w[j]\n",
        ),
    ],
)
def test_programs(compute: str, want: str) -> None:
    op = program(compute)
    got = simplify(op)
    assert show_statements(got.body) == want
    same(op, got)
    assert {t.name for t in got.temps} == {s.target for s in got.body} - {"y"}


def test_reuse_reads_calls_that_were_made_already() -> None:
    op = program("  a[i] = exp(x[i])\n  b[i] = exp(x[i]) * w[i] + exp(w[i])\n  y[i] = a[i] * b[i] * b[i]")
    got = reuse(op)
    assert "b[i] = a[i] * w[i] + exp(w[i])" in show_statements(got.body)
    same(op, got)


def test_each_pass_leaves_a_tidy_program_alone() -> None:
    op = program("  a[i] = exp(x[i])\n  y[i] = a[i] * a[i]")
    assert dead(op) == cse(op) == inline(op) == reuse(op) == op
    assert simplify(simplify(op)) == simplify(op)


def test_recurrences_are_kept_whole() -> None:
    op = program("  h[t in N] = x[t] + (A(0.5) * h[t - 1] if t > 0 else 0)\n  y[i] = h[i]")
    got = simplify(op)
    assert got.body[0].recur == "t"
    same(op, got)


def test_renamed_reduction_indices_stay_apart() -> None:
    op = program("  a[i] = sum[j](x[j] * w[i])\n  y[j] = a[j]")
    (s,) = simplify(op).body
    assert {n for n, _ in s.reduced}.isdisjoint(a.name for a in s.axes)
    same(op, simplify(op))


def test_a_constant_guard_goes() -> None:
    op = program("  y[i] = x[i]")
    (s,) = op.body
    always = replace(op, body=(replace(s, assign=replace(s.assign, guard=cmp("<=", num(0, I), num(1, I)))),))
    assert simplify(always).body[0].assign.guard is None
