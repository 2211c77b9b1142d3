"""Contractions: which statements are one, how their indices are cut, and what shares their nest."""

from __future__ import annotations

from opwright.generator.contract import contraction
from opwright.generator.loops import LoopProgram, show_loops
from opwright.generator.lower import lower
from opwright.generator.plan import plan

from .test_loops import MATMUL, normal


def cuts(body: str, ranks: dict[str, int | None], dtype: str = "f32") -> list[tuple[str, str, str]]:
    """Outer, row and column indices of every contraction of a spec."""
    op = normal(body, ranks, dtype)
    found = [c for s in op.body if (c := contraction(s)) is not None]
    return [(" ".join(c.outer), " ".join(c.rows), " ".join(c.columns)) for c in found]


def lowered(body: str, ranks: dict[str, int | None], dtype: str = "f32") -> LoopProgram:
    return lower(normal(body, ranks, dtype))


def test_columns_own_the_last_index_and_rows_are_the_other_factor_s() -> None:
    assert cuts(MATMUL, {"a": 2, "b": 2}) == [("", "m", "n")]
    swapped = MATMUL.replace("y[m, n]", "y[n, m]").replace('y: "T[M, N]"', 'y: "T[N, M]"')
    assert cuts(swapped, {"a": 2, "b": 2}) == [("", "n", "m")]


def test_an_index_of_both_factors_is_outer_wherever_it_stands() -> None:
    body = """inputs: {a: "T[M, H, K]", b: "T[H, K, N]"}
outputs: {y: "T[M, H, N]"}
compute: |
  y[m, h, n] = T(sum[k](A(a[m, h, k]) * A(b[h, k, n])))
"""
    assert cuts(body, {"a": 3, "b": 3}) == [("h", "m", "n")]


def test_several_summed_indices_and_a_pack_of_rows() -> None:
    body = """dims: {B: batch}
inputs: {x: "T[*B, J, K]", w: "T[N, J, K]"}
outputs: {y: "T[*B, N]"}
compute: |
  y[*B, n] = T(sum[j, k](A(x[*B, j, k]) * A(w[n, j, k])))
"""
    assert cuts(body, {"x": 4, "w": 3}) == [("", "B", "n")]


def test_blocks_of_an_index_that_the_other_factor_divides_are_outer() -> None:
    body = """inputs: {x: "T[G, K, P]", w: "T[O, K]"}
outputs: {y: "T[O, P]"}
require: ["O % G == 0", "G > 0"]
compute: |
  y[o, p] = T(sum[k](A(w[o, k]) * A(x[o // (O // G), k, p])))
"""
    assert cuts(body, {"x": 3, "w": 2}) == [("o", "o", "p")]
    assert "o by O // G" in show_loops(lowered(body, {"x": 3, "w": 2}))


def test_what_is_no_contraction() -> None:
    for value in (
        "sum[k](A(a[m, k]) + A(b[k, n]))",  # no product
        "sum[k](A(a[m, k]) * A(a[m, k])) + A(b[0, n])",  # one index set
        "max[k](A(a[m, k]) * A(b[k, n]))",
        "sum[k](A(a[m, k])) * A(b[0, n])",  # the sum has one factor only
    ):
        body = MATMUL.replace("sum[k](A(a[m, k]) * A(b[k, n]))", value)
        assert body != MATMUL
        assert not plan(normal(body, {"a": 2, "b": 2}), "cpu").contract, value


def test_what_follows_on_the_same_indices_shares_the_nest() -> None:
    body = """inputs: {a: "T[M, K]", b: "T[K, N]", c: "T[N]"}
outputs: {y: "T[M, N]", z: "T[M, N]"}
compute: |
  s[m, n] = sum[k](A(a[m, k]) * A(b[k, n]))
  t[m, n] = s[m, n] + A(c[n])
  y[m, n] = T(t[m, n] * sigmoid(t[m, n]))
  z[m, n] = T(t[m, n])
"""
    p = lowered(body, {"a": 2, "b": 2, "c": 1}, "bf16")
    assert len(p.nests) == 1
    assert p.nests[0].contract is not None
    assert not p.buffers


def test_a_temporary_that_another_contraction_reads_is_written_out() -> None:
    body = """inputs: {x: "T[M, K]", w: "T[K, F]", v: "T[F, N]"}
outputs: {y: "T[M, N]"}
compute: |
  h[m, f] = max(sum[k](A(x[m, k]) * A(w[k, f])), 0)
  y[m, n] = T(sum[f](h[m, f] * A(v[f, n])))
"""
    p = lowered(body, {"x": 2, "w": 2, "v": 2})
    assert [n.contract is not None for n in p.nests] == [True, True]
    assert [(b.tensor, b.scope) for b in p.buffers] == [("h", "global")]


ATTENTION = """inputs: {q: "T[L, E]", k: "T[S, E]", v: "T[S, F]"}
outputs: {y: "T[L, F]"}
compute: |
  s[i, j] = sum[e](A(q[i, e]) * A(k[j, e]))
  p[i, j] = s[i, j] if j <= i + S - L else -inf
  m[i]    = max(max[j](p[i, j]), -1e30)
  z[i]    = sum[j](exp(p[i, j] - m[i]))
  y[i, f] = T(sum[j](exp(p[i, j] - m[i]) * A(v[j, f])) / z[i])
"""


def test_sums_that_a_reduction_reads_stay_in_its_rows_which_come_in_blocks() -> None:
    p = lowered(ATTENTION, {"q": 2, "k": 2, "v": 2})
    assert [n.contract for n in p.nests] == [None]
    assert [(a.name, a.tile) for a in p.nests[0].walk.axes] == [("i", 64)]
    assert len(p.contracts) == 2
    scopes = {b.tensor: b.scope for b in p.buffers}
    assert set(scopes.values()) == {"thread", "stack"}
    assert "s" not in scopes


def test_a_computed_factor_of_rows_is_computed_once_for_all_that_read_it() -> None:
    p = lowered(ATTENTION, {"q": 2, "k": 2, "v": 2})
    assert sum("= exp(" in line and "#" not in line for line in show_loops(p).splitlines()) == 1


def test_sums_behind_a_guard_are_made_as_far_as_the_block_reads_them() -> None:
    p = lowered(ATTENTION, {"q": 2, "k": 2, "v": 2})
    assert [c.until is not None for c in p.contracts] == [True, False]
    for guard in ("j <= i * 2", "j + i <= S", "i <= j", "j <= S - i"):
        other = lowered(ATTENTION.replace("j <= i + S - L", guard), {"q": 2, "k": 2, "v": 2})
        assert all(c.until is None for c in other.contracts), guard
    read_elsewhere = ATTENTION.replace("else -inf", "else s[i, j] - 1")
    assert all(c.until is None for c in lowered(read_elsewhere, {"q": 2, "k": 2, "v": 2}).contracts)


def test_one_row_is_worth_it_only_where_memory_is_read_as_it_lies() -> None:
    plain = """inputs: {a: "T[N, K]", x: "T[K]"}
outputs: {y: "T[N]"}
compute: |
  y[n] = T(sum[k](A(a[n, k]) * A(x[k])))
"""
    assert cuts(plain, {"a": 2, "x": 1}) == [("", "", "n")]
    assert cuts(plain.replace("A(a[n, k])", "exp(A(a[n, k]))"), {"a": 2, "x": 1}) == []


WINDOW = """inputs: {x: "T[C, I]", w: "T[O, C, W]"}
attrs: {stride: {type: int}, pad: {type: int}}
let: {P: "(I + 2 * pad - W) // stride + 1"}
outputs: {y: "T[O, P]"}
compute: |
  y[o, p in P] = T(sum[c, k](A(x[c, p * stride + k - pad] if 0 <= p * stride + k - pad < I else 0) * A(w[o, c, k])))
"""


def test_a_guarded_load_that_moves_evenly_is_a_window() -> None:
    p = lower(normal(WINDOW, {"x": 2, "w": 3}, "bf16", stride=1, pad=0))
    made = p.nests[0].contract
    assert made is not None
    assert len(made.right.window) == 2
    assert not made.left.window
    squared = WINDOW.replace("p * stride + k - pad]", "p * p + k - pad]")
    made = lower(normal(squared, {"x": 2, "w": 3}, stride=1, pad=0)).nests[0].contract
    assert made is not None
    assert not made.right.window
