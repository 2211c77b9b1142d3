"""Mutants: small, different from the original, and counted honestly."""

from __future__ import annotations

from opwright.generator.expr import show_block
from opwright.generator.spec import OpSpec, load_spec_text
from opwright.validators.mutants import kill_rate, mutants

SPEC = """
op: m_test
types: {T: f32}
dims: {B: batch}
inputs: {x: "T[*B, N, M]"}
attrs: {eps: {type: float, default: 0.5}}
outputs: {y: "T[*B, N]"}
compute: |
  s[*B, i] = sum[j](x[*B, i, j] * x[*B, i, j]) + eps
  y[*B, i] = exp(s[*B, i]) if i < 2 and s[*B, i] > 0 else max(s[*B, i], 1.0)
"""


def spec() -> OpSpec:
    return load_spec_text(SPEC)[0]


def test_each_mutant_differs_in_one_place_and_from_the_others() -> None:
    original = spec()
    found = mutants(original)
    texts = [show_block(m.spec.compute) for m in found]
    assert len(set(texts)) == len(texts) >= 20
    assert show_block(original.compute) not in texts
    for text in texts:
        lines = zip(text.splitlines(), show_block(original.compute).splitlines(), strict=True)
        assert sum(a != b for a, b in lines) == 1


def test_every_kind_of_edit_is_there_with_its_line() -> None:
    said = "\n".join(map(str, mutants(spec())))
    for what in (
        "dropped `+ eps`",
        "`sum` became `max`",
        "`exp` became `expm1`",
        "`<` became `<=`",
        "`>` became `>=`",
        "swapped `i` and `j`",
        "always `exp(s[*B, i])`",
        "dropped `i < 2`",
        "`1.0` became `2.0`",
    ):
        assert what in said
    assert "line 9: dropped `+ eps`" in said


def test_the_rate_leaves_stillborn_mutants_out() -> None:
    answers = iter([True, False, None, True])
    rate = kill_rate(spec(), lambda _: next(answers), limit=4)
    assert (rate.total, rate.killed, rate.stillborn, len(rate.survivors)) == (3, 2, 1, 1)
    assert rate.rate == 2 / 3
    assert rate.to_json()["survivors"] == list(rate.survivors)
