"""What a rule says in words when it does not hold: by its form, and only where the form says it."""

from __future__ import annotations

import pytest

from opwright.generator.bind import bind
from opwright.generator.bind_key import keys_of
from opwright.generator.normal import normalise
from opwright.generator.rule_words import words
from opwright.generator.spec import load_spec_text

REDUCED = "y[*B] = max[i](x[*B, i])"


def said(rule: str, compute: str = REDUCED, types: str = "integer") -> str:
    (spec,) = load_spec_text(
        f"op: t\ntypes: {{T: {types}}}\ndims: {{B: batch}}\n"
        "inputs: {x: 'T[*B, N]'}\nattrs: {eps: {type: float, default: 1.0}}\noutputs: {y: 'T[*B]'}\n"
        f'require: ["{rule}"]\ncompute: |\n  {compute}\n'
    )
    op = normalise(bind(spec, keys_of(spec)[0]))
    return words(op.rules[0], op)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("N > 0", "nothing to reduce, an axis has length 0"),
        ("0 < N", "nothing to reduce, an axis has length 0"),
        ("prod(B) > 0", "an axis has length 0"),
        ("N > 1", ""),
        ("eps >= 0", "'eps' must be at least 0"),
        ("0 < eps", "'eps' must be above 0"),
        ("x[*B, i] >= 0", "'x' holds a number below 0"),
        ("0 <= x[*B, i]", "'x' holds a number below 0"),
        ("x[*B, i] != 0", ""),  # nothing divides by it
        ("N % 2 == 0", ""),
    ],
)
def test_a_known_form_has_words(rule: str, wanted: str) -> None:
    assert said(rule) == wanted


def test_a_zero_is_one_to_divide_by_where_something_divides() -> None:
    assert said("x[*B, i] != 0", "y[*B] = sum[i](1 // x[*B, i])") == "integer division by zero in 'x'"
