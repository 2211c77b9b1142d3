"""The Loop level: what is fused, where temporaries live, what is hoisted and checked, and what the verifier
refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp
from opwright.generator.emit import emit
from opwright.generator.errors import LowerError
from opwright.generator.expr import Decl, Load, Num, Reduce
from opwright.generator.loops import (
    Accumulate,
    For,
    Let,
    Local,
    LoopProgram,
    ScanBegin,
    ScanStep,
    Set,
    Store,
    Tile,
    Var,
    Walk,
    show_loops,
    verify,
)
from opwright.generator.lower import lower
from opwright.generator.normal import normalise
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand


def normal(body: str, ranks: dict[str, int | None], dtype: str = "f32", **attrs: Any) -> BoundOp:
    """The Normal program of a spec given by its fields from `inputs` on."""
    head = "op: under_test\ntypes: {T: float, A: accum(T)}\n" if "types:" not in body else "op: under_test\n"
    spec = load_spec_text(head + body + "grad: {none: not under test}\n")[0]
    operands = {
        n: None if r is None else Operand(DType("i64" if n.startswith("i") else dtype), r)
        for n, r in ranks.items()
    }
    return normalise(bind(spec, key_for_call(spec, operands, attrs).key))


SOFTMAX = """dims: {B: batch}
inputs: {x: "T[*B, N]"}
outputs: {y: "T[*B, N]"}
variants: {inplace: [x]}
compute: |
  m[*B]    = max[j](x[*B, j])
  e[*B, i] = exp(A(x[*B, i]) - A(m[*B]))
  s[*B]    = sum[j](e[*B, j])
  y[*B, i] = T(e[*B, i] / s[*B])
"""

MATMUL = """inputs: {a: "T[M, K]", b: "T[K, N]"}
outputs: {y: "T[M, N]"}
compute: |
  y[m, n] = T(sum[k](A(a[m, k]) * A(b[k, n])))
"""


def find(p: LoopProgram, kind: type) -> list[Any]:
    out: list[Any] = []

    def go(stmts: Sequence[Any]) -> None:
        for s in stmts:
            if isinstance(s, kind):
                out.append(s)
            for name in ("body", "then", "orelse", "before"):
                go(getattr(s, name, ()))
            if isinstance(s, Accumulate) and isinstance(s.loop, kind):
                out.append(s.loop)

    for n in p.nests:
        go(n.body)
    return out


def test_rows_share_one_nest_with_a_row_buffer() -> None:
    p = lower(normal(SOFTMAX, {"x": 3}))
    assert len(p.nests) == 1
    walk = p.nests[0].walk
    assert walk.parallel
    assert walk.mode == "rows"
    assert [(b.tensor, b.scope) for b in p.buffers] == [("e", "thread")]


def test_a_reduction_within_the_row_is_a_scalar() -> None:
    p = lower(normal(SOFTMAX, {"x": 3}))
    assert {s.name for s in find(p, Let)} == {"m", "s"}
    assert [a.kind for a in find(p, Accumulate)] == ["max", "sum"]


def test_pointwise_chains_are_one_flat_run() -> None:
    p = lower(
        normal(
            """dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  t[*B] = A(a[*B]) * A(b[*B])
  y[*B] = T(exp(t[*B]) + t[*B])
""",
            {"a": 2, "b": 1},
        )
    )
    assert [w.mode for w in find(p, Walk)] == ["flat"]
    assert not p.buffers


def test_another_place_of_a_temporary_needs_another_nest() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[N]"}
outputs: {y: "T[N]"}
compute: |
  t[i] = exp(A(x[i]))
  y[i] = T(t[N - 1 - i] + t[i])
""",
            {"x": 1},
        )
    )
    assert len(p.nests) == 2
    assert [(b.tensor, b.scope) for b in p.buffers] == [("t", "global")]


def test_a_sum_over_a_leading_axis_is_tiled_along_memory() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[M, N]"}
outputs: {y: "T[N]"}
compute: |
  y[n] = T(sum[m](A(x[m, n])))
""",
            {"x": 2},
            "bf16",
        )
    )
    assert len(find(p, Tile)) == 1
    walk = p.nests[0].walk
    assert [(a.name, a.tile) for a in walk.axes] == [("n", 64)]
    assert [(b.tensor, b.scope) for b in p.buffers] == [("y_sum", "stack")]


def test_a_sum_along_memory_is_not_tiled() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[M, N]"}
outputs: {y: "T[M]"}
compute: |
  y[m] = T(sum[n](A(x[m, n])))
""",
            {"x": 2},
        )
    )
    assert not find(p, Tile)


def test_a_guard_narrows_the_loop() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[N]"}
outputs: {y: "T[N]"}
compute: |
  y[i] = T(sum[j](A(x[j]) if j < i else 0))
""",
            {"x": 1},
        )
    )
    loop = find(p, Accumulate)[0].loop
    assert isinstance(loop, For)
    assert "min(N, i)" in show_loops(p)


def running(test: str, kind: str = "sum", value: str = "A(x[j])", unit: str = "0") -> LoopProgram:
    return lower(
        normal(
            f"""inputs: {{x: "T[N]"}}
outputs: {{y: "T[N]"}}
compute: |
  y[i] = T({kind}[j]({value} if {test} else {unit}))
""",
            {"x": 1},
            dtype="bf16",
        )
    )


@pytest.mark.parametrize(("test", "step"), [("j <= i", 1), ("i >= j", 1), ("j >= i", -1), ("i <= j", -1)])
def test_a_prefix_is_a_running_reduction(test: str, step: int) -> None:
    p = running(test)
    assert not find(p, Accumulate)
    (begin,), (made,), (loop,) = find(p, ScanBegin), find(p, ScanStep), find(p, For)
    assert begin.name == made.name
    assert loop.step == step
    assert isinstance(loop.body[-1], Store)


@pytest.mark.parametrize(
    ("test", "value"), [("j < i", "A(x[j])"), ("j <= i", "A(x[i]) * A(x[j])"), ("j <= i + 1", "A(x[j])")]
)
def test_what_is_no_prefix_is_summed_anew(test: str, value: str) -> None:
    p = running(test, value=value)
    assert not find(p, ScanBegin)
    assert find(p, Accumulate)


def test_a_guard_proves_an_index() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[N]"}
attrs: {shift: {type: int}}
outputs: {y: "T[N]"}
compute: |
  y[i] = x[i - shift] if 0 <= i - shift < N else T(0)
""",
            {"x": 1},
            shift=1,
        )
    )
    assert not p.checks
    assert "check" not in show_loops(p)


def test_affine_indices_are_checked_once_on_the_host() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[N]"}
attrs: {size: {type: int}, start: {type: int}, step: {type: int}}
outputs: {y: "T[size]"}
compute: |
  y[i] = x[start + i * step]
""",
            {"x": 1},
            size=1,
            start=0,
            step=1,
        )
    )
    assert len(p.checks) == 1
    assert "  check 0 <= start + i * step < N" in show_loops(p).splitlines()


def test_indices_from_memory_are_checked_where_they_are_read() -> None:
    p = lower(
        normal(
            """inputs: {w: "T[V, D]", i: "i64[L]"}
outputs: {y: "T[L, D]"}
compute: |
  y[l, d] = w[i[l], d]
""",
            {"w": 2, "i": 1},
        )
    )
    text = show_loops(p)
    assert not p.checks
    # once per row, not per element
    assert text.index("check 0 <= i_p[0] < V") < text.index("for d in")


def test_loads_under_a_condition_stay_there() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[N]", i: "i64[N]"}
outputs: {y: "T[N]"}
compute: |
  y[n] = x[i[n]] if i[n] >= 0 else T(0)
""",
            {"x": 1, "i": 1},
        )
    )
    lines = [line.strip() for line in show_loops(p).splitlines()]
    at = lines.index("if i_p[0] >= 0")
    assert lines[at + 1].startswith("check")


def test_what_a_recurrence_reads_back_keeps_the_axes_of_its_inner_loops() -> None:
    """A state of many rows: at step s, all rows of step s - 1 are wanted, not the last one alone."""
    p = lower(
        normal(
            """inputs: {x: "T[S, N, H]", u: "T[H, H]"}
outputs: {y: "T[S, N, H]"}
compute: |
  z[s in S, n in N, k in H] = x[s, n, k] + sum[l]((z[s - 1, n, l] if s > 0 else 0) * u[k, l])
  y[s, n, k] = z[s, n, k]
""",
            {"x": 3, "u": 2},
        )
    )
    assert "z: f32[S, N, H]" in show_loops(p)


def test_a_choice_within_a_choice_has_a_name_of_its_own() -> None:
    """Both need statements of their own; with one name, what the outer branch sets is the inner variable."""
    p = lower(
        normal(
            """inputs: {x: "T[N]", i: "i64[N]"}
outputs: {y: "T[N]"}
compute: |
  y[n] = x[i[n]] * (x[i[n] + 1] if i[n] > 0 else T(1)) if i[n] >= 0 else T(0)
""",
            {"x": 1, "i": 1},
        )
    )
    names = [v.name for v in find(p, Var)]
    assert len(names) == 2 and len(set(names)) == 2


def test_invariants_leave_the_loop() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[M, N]", g: "T[M]"}
outputs: {y: "T[M, N]"}
compute: |
  y[m, n] = T(sum[k in N](A(x[m, k]) * exp(A(g[m])) if k < n else 0))
""",
            {"x": 2, "g": 1},
        )
    )
    text = show_loops(p)
    assert text.count("exp(") == 2  # the statement and one place
    assert text.rindex("exp(") < text.index("for k")


def test_recurrences_run_in_order_and_may_run_backwards() -> None:
    spec = """types: {T: float}
inputs: {x: "T[*B, L]"}
dims: {B: batch}
outputs: {y: "T[*B, L]"}
compute: |
  y[*B, t] = x[*B, t] + (y[*B, t - 1] if t > 0 else 0)
"""
    forward = lower(normal(spec, {"x": 2}))
    backward = lower(normal(spec.replace("t - 1", "t + 1").replace("t > 0", "t < L - 1"), {"x": 2}))
    assert [f.step for f in find(forward, For)] == [1]
    assert [f.step for f in find(backward, For)] == [-1]
    assert "check" not in show_loops(forward) + show_loops(backward)
    assert [a.name for a in forward.nests[0].walk.axes] == ["B"]


def test_updates_along_absent_axes_are_reductions() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[M, N]"}
outputs: {y: "T[N]"}
compute: |
  y[n] += x[m, n]
""",
            {"x": 2},
        )
    )
    assert len(p.nests) == 1
    assert [s.mode for s in find(p, Store)] == ["="]
    assert len(find(p, Accumulate)) + len(find(p, Tile)) == 1


def test_scatters_keep_their_order_and_start_from_a_base() -> None:
    p = lower(
        normal(
            """inputs: {x: "T[L, D]", i: "i64[L]"}
attrs: {size: {type: int}}
outputs: {y: "T[size, D]"}
compute: |
  y[i[l], d] += x[l, d]
""",
            {"x": 2, "i": 1},
            size=3,
        )
    )
    base, update = p.nests
    assert base.parallel
    assert not update.parallel


def test_outputs_may_be_their_inputs_only_where_that_is_safe() -> None:
    assert lower(normal(SOFTMAX, {"x": 2})).twins == (("y", "x"),)
    flip = """inputs: {x: "T[N]"}
outputs: {y: "T[N]"}
variants: {inplace: [x]}
compute: |
  y[i] = x[N - 1 - i]
"""
    assert lower(normal(flip, {"x": 1})).twins == ()
    later = SOFTMAX.replace("y[*B, i] = T(e[*B, i] / s[*B])", "y[*B, i] = T(e[*B, i] / s[*B] + A(x[*B, 0]))")
    assert lower(normal(later, {"x": 2})).twins == ()


def test_every_program_shows_and_verifies() -> None:
    p = lower(normal(MATMUL, {"a": 2, "b": 2}))
    verify(p)
    assert show_loops(p).startswith("loops under_test")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Let("t", Local("nobody", dtype=DType.F32)), "read before it is set"),
        (Let("t", Load("x", (), dtype=DType.F32)), "left at the Loop level"),
        (
            Let("t", Reduce("sum", (Decl("k"),), Num(1, dtype=DType.F32), dtype=DType.F32)),
            "left at the Loop level",
        ),
        (Let("t", Num(1)), "has no type"),
    ],
)
def test_the_verifier_refuses(bad: Let, says: str) -> None:
    p = lower(normal(MATMUL, {"a": 2, "b": 2}))
    nest = p.nests[0]
    with pytest.raises(LowerError, match=says):
        verify(replace(p, nests=(replace(nest, body=(bad, *nest.body)),)))


def test_the_verifier_refuses_writes_to_inputs() -> None:
    p = lower(normal(SOFTMAX, {"x": 2}))
    loop = next(f for f in find(p, For) if any(isinstance(s, Store) for s in f.body))
    bad = replace(loop, body=tuple(replace(s, target=replace(s.target, tensor="x")) for s in loop.body))
    nest = p.nests[0]
    walk = replace(nest.walk, body=(*nest.walk.body, bad))
    with pytest.raises(LowerError, match="neither an output nor a buffer"):
        verify(replace(p, nests=(replace(nest, body=(*nest.body[:-1], walk)),)))


PICKS = """inputs: {x: "T[N]", z: "T[M]", i: "I[K]"}
outputs: {y: "T[K]"}
compute: |
  y[k] = (x[i[k]] if z[i[k]] > 0 else 0) if x[i[k]] > 0 else (z[i[k]] if x[i[k]] < 0 else 1)
"""


def test_a_choice_within_a_choice_sets_its_own_name() -> None:
    """The outer scalar is declared before the inner ones and set after them: each has a name of its own."""
    p = lower(normal("types: {T: float, I: index}\n" + PICKS, {"x": 1, "z": 1, "i": 1}), "cpu")
    text = show_loops(p)
    assert text.count("var pick") >= 3
    assert "pick = pick\n" not in text


def test_the_verifier_refuses_a_scalar_that_hides_one_still_to_be_set() -> None:
    p = lower(normal("types: {T: float, I: index}\n" + PICKS, {"x": 1, "z": 1, "i": 1}), "cpu")

    def renamed(x: Any) -> Any:
        """The program with every choice under one name."""
        if isinstance(x, Var | Set | Local) and (getattr(x, "name", None) or x.id).startswith("pick"):
            x = replace(x, **({"id": "pick"} if isinstance(x, Local) else {"name": "pick"}))
        if isinstance(x, tuple):
            return tuple(renamed(e) for e in x)
        if is_dataclass(x) and not isinstance(x, BoundOp):
            return replace(x, **{f.name: renamed(getattr(x, f.name)) for f in fields(x) if f.init})
        return x

    verify(p)
    with pytest.raises(LowerError, match="is declared where there is one"):
        verify(replace(p, nests=renamed(p.nests)))


def test_a_list_of_hundreds_stays_linear() -> None:
    spec = load_spec_text(
        """op: joined
types: {T: float}
dims: {B: batch}
inputs: {xs: "list T[*B, N@dim]"}
attrs: {dim: {type: axis, default: 0}}
outputs: {y: "T[*B, total(N)@dim]"}
compute: |
  y[*B, start(N, k) + i] = xs[k][*B, i]
grad: {none: not under test}
"""
    )[0]

    def size(n: int) -> int:
        key = key_for_call(spec, {"xs": [Operand(DType("f32"), 2)] * n}, {"dim": 0}).key
        return len(emit(normalise(bind(spec, key)), "cpu-portable").source)

    assert size(120) < 2.3 * size(60)
