"""Specs drawn from the grammar: the oracle, the kernel and the program read back from its own print all say the same,
forward and backward.  By day a few, built in two units; `make nightly` draws thousands.

A draw that fails is told by its number: `draw(random.Random(number))`.  What was found becomes a test with a name,
at the end of this file.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from draw import FORMS, Call, draw
from kernels import Library, bound, dialect, parsed, run
from levels import reads_back

from opwright.generator.bound import BoundOp, KernelText
from opwright.generator.emit import emit
from opwright.generator.grad import adjoint
from opwright.generator.grad_push import cotangent_names, gradient_names
from opwright.generator.loops import verify as verify_loops
from opwright.generator.lower import lower
from opwright.generator.normal import verify
from opwright.validators.ball import check
from opwright.validators.oracle import evaluate

DAY = 12
NIGHT = int(os.environ.get("OPWRIGHT_DRAWS", "3000"))
BATCH = 48


@dataclass
class Drawn:
    """A draw, taken to its kernels: forward and adjoint, as Normal, with their texts."""

    number: int
    text: str
    call: Call
    forward: BoundOp
    attrs: dict[str, Any]
    gradient: BoundOp
    texts: tuple[KernelText, KernelText]

    @property
    def given(self) -> dict[str, Any]:
        return {n: a for n, a in self.call.inputs.items() if a is not None}


def drawn(number: int) -> Drawn:
    text, call = draw(random.Random(number))
    op, attrs = bound(parsed(text), call.inputs, call.attrs)
    wrt = tuple(n for n in ("a", "b", "c", "d", "w") if call.inputs[n] is not None)
    gradient = adjoint(op, wrt, ())
    for p in (op, gradient):
        verify(p)
        reads_back(p)
        verify_loops(lower(p))
    return Drawn(number, text, call, op, attrs, gradient, (emit(op, dialect()), emit(gradient, dialect())))


def agree(d: Drawn, op: BoundOp, text: KernelText, library: Library, given: dict[str, Any]) -> dict[str, Any]:
    """The kernel's outputs lie within the oracle's bound."""
    balls = evaluate(op, given, d.attrs)
    flat = {t.name: given.get(t.name) for t in op.inputs}
    spec = _Inputs(list(flat))
    attrs = [d.attrs[a.name] for a in op.attrs]
    got = run(library.kernel(text.symbol), spec, flat, attrs, [t.dtype.value for t in op.outputs])  # type: ignore[arg-type]
    for t, value in zip(op.outputs, got, strict=True):
        found = check(value, balls[t.name])
        assert found.ratio <= 1, f"{op.name}: {t.name}: {found.reason}"
    return {t.name: balls[t.name] for t in op.outputs}


class _Inputs:
    """As much of a spec as `run` reads: the names of inputs, none of them a list."""

    def __init__(self, names: list[str]) -> None:
        self.inputs = {n: type("T", (), {"is_list": False})() for n in names}


def hold(numbers: range) -> None:
    """All of a batch, built together; the first that fails is told with its spec."""
    made = []
    for number in numbers:
        try:
            made.append(drawn(number))
        except Exception as error:
            raise AssertionError(f"draw {number}: {error}\n{draw(random.Random(number))[0]}") from error
    # a sum that a fold made needless may stay in the text: no fault of what it computes
    library = Library(
        (t for d in made for t in d.texts), f"drawn {numbers.start}", flags=("-Wno-unused-variable",)
    )
    for d in made:
        try:
            y = agree(d, d.forward, d.texts[0], library, d.given)["y"]
            dy = (
                np.random.default_rng(d.number).uniform(-1, 1, y.value.shape).astype(d.call.inputs["a"].dtype)
            )
            names = cotangent_names(d.forward)
            agree(d, d.gradient, d.texts[1], library, {**d.given, names["y"]: dy})
        except Exception as error:
            raise AssertionError(f"draw {d.number}: {error}\n{d.text}\n{d.call}") from error


def test_a_few_drawn_specs() -> None:
    hold(range(DAY))


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(1000, 1000 + NIGHT, BATCH))
def test_many_drawn_specs(start: int) -> None:
    hold(range(start, start + BATCH))


def test_draws_reach_every_form() -> None:
    texts = [draw(random.Random(n))[0] for n in range(300)]
    for form, sign in FORMS.items():
        assert any(sign in t.partition("compute:")[2] for t in texts), form
    assert len(set(texts)) > 290


@pytest.mark.parametrize("number", range(3))
def test_a_smooth_draw_agrees_with_finite_differences(number: int) -> None:
    """The derived gradient against differences of the oracle's own forward, in f64."""
    text, call = draw(random.Random(number), smooth=True)
    rng = np.random.default_rng(number)
    inputs = {n: a if a is None or n == "r" else a.astype(np.float64) for n, a in call.inputs.items()}
    op, attrs = bound(parsed(text), inputs, call.attrs)
    given = {n: a for n, a in inputs.items() if a is not None}
    wrt = tuple(n for n in ("a", "b", "c", "d", "w") if n in given)
    forward = evaluate(op, given, attrs)["y"].value
    dy = rng.uniform(-1, 1, forward.shape)
    balls = evaluate(adjoint(op, wrt, ()), {**given, cotangent_names(op)["y"]: dy}, attrs)
    names = gradient_names(op, wrt)
    step = 1e-6
    for n in wrt:
        along = rng.uniform(-1, 1, given[n].shape)
        up, down = (
            float((evaluate(op, given | {n: given[n] + s * step * along}, attrs)["y"].value * dy).sum())
            for s in (1, -1)
        )
        slope = float((balls[names[n]].value * along).sum())
        assert abs((up - down) / (2 * step) - slope) <= 1e-5 * max(1, abs(slope)), f"{n}\n{text}"


# ---- what draws have found ---------------------------------------------------------------------------------------

HEAD = """\
op: found
types: {T: float, A: accum(T)}
inputs: {a: "T[N, M]", d: "T[N]"}
outputs: {y: "T[N, M]"}
grad: {wrt: [a, d], derive: true}
compute: |
"""


def found(*lines: str) -> None:
    """A spec of these statements reads back from its print, Bound, Normal and its gradient."""
    text = HEAD + "".join(f"  {line}\n" for line in lines)
    inputs = {"a": np.zeros((3, 2), np.float32), "d": np.zeros(3, np.float32)}
    op, _ = bound(parsed(text), inputs, {})
    for p in (op, adjoint(op, ("a", "d"), ())):
        verify(p)
        reads_back(p)


def test_found_a_recurrence_whose_index_only_its_own_load_tells() -> None:
    found(
        "s[i in N, j in M] = tanh(A(a[i, min(j, M - 1)])) + 0.5 * (s[i - 1, j] if i > 0 else 0)",
        "y[i, j] = T(s[i, j])",
    )


def test_found_a_count_in_the_accumulator_is_not_an_f64() -> None:
    """The derivative of a minimum sums 1.0 over its ties: numbers alone, which print without a type."""
    found("m[()] = min[j in M](exp(-A(d[j % N])))", "y[i, j] = T(A(a[i, j]) + m[()])")


def test_found_an_index_that_stands_only_in_computed_ones() -> None:
    """`da[min(i in N, M - 1), …] += …`: the extent is stated where the index is used."""
    found("s[()] = sum[i in N](A(a[i, min(i, M - 1)]) ** 2)", "y[i, j] = T(A(a[i, j]) + s[()])")
    found("s[()] = sum[i in N](A(a[(i + 1) % N, min(i, M - 1)]) ** 2)", "y[i, j] = T(A(a[i, j]) + s[()])")


def test_found_a_hoisted_sum_that_took_the_name_of_one_within() -> None:
    """What was hoisted out of a loop was named without a look at the names within, and was read there: a derivative
    that was wrong without a word."""
    d = drawn(1005)
    library = Library(d.texts, "draw 1005", flags=("-Wno-unused-variable",))
    dy = np.ones_like(d.call.inputs["a"])
    agree(d, d.gradient, d.texts[1], library, {**d.given, "dy": dy})


@pytest.mark.xfail(
    reason="nothing can state an extent of an index that stands in no index at all", strict=True
)
def test_found_a_last_writer_over_an_index_of_the_value_alone() -> None:
    """Its derivative asks who was last: `last[…]: max = i * M + j`, and `j` stands in no index."""
    found("s[k in N]: set = A(a[k, j])", "s[(i + 1) % N]: set = A(a[i, j])", "y[i, j] = T(s[i] + A(a[i, j]))")
