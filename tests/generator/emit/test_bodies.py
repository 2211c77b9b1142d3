"""Kernels that are filled by hand: what a body is given, and that nothing else of the kernel changes."""

from __future__ import annotations

import contextlib

import pytest

from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BoundOp
from opwright.generator.emit import emit
from opwright.generator.emit.bodies import stub
from opwright.generator.errors import DomainError, LowerError
from opwright.generator.gradient import normal
from opwright.generator.spec import OpSpec
from opwright.workflows.show import choose_key
from opwright.workflows.workbench import Workbench

BODY = "static void body(const Args& a) { (void)a; }"


def program(op: str, *wanted: str) -> BoundOp:
    spec = Workbench.here().one(op)
    return normal(spec, choose_key(spec, wanted))


def test_a_body_takes_the_place_of_the_loops_and_of_nothing_else() -> None:
    op = program("softmax")
    ours, theirs = emit(op, "cpu-avx2").source, emit(op, "cpu-avx2", BODY).source
    assert BODY in theirs and "body(args);" in theirs
    assert "nest0" in ours and "nest0" not in theirs
    for kept in ("OW_E_OVERLAP", "OW_E_AXIS", "_infer(const OwCall* c)", "_workspace(const OwCall* c)"):
        assert ours.count(kept) == theirs.count(kept), kept
    assert (
        emit(op, "cpu-avx2", BODY.replace("(void)a", "(void)a.x")).symbol != emit(op, "cpu-avx2", BODY).symbol
    )


@pytest.mark.parametrize(
    ("op", "wanted", "lines"),
    [
        ("softmax", ["T=bf16"], ["View<const owk_bf16> x;", "int64_t axis;", "using T = owk_bf16;"]),
        ("cat", [], ["View<const float> xs[2];", "int64_t dim;"]),
        ("rms_norm", ["w=false"], ["View<const float> w;  // left out", "constexpr bool w_given = false;"]),
        ("gelu", ["approximate=tanh"], ["constexpr bool approximate_is_tanh = true;"]),
    ],
)
def test_what_a_body_is_given(op: str, wanted: list[str], lines: list[str]) -> None:
    text = stub(program(op, *wanted))
    for line in lines:
        assert line in text
    assert text.rstrip().endswith("static void body(const Args& a) {\n}")


def test_extents_that_depend_on_data_are_counted_before_a_body_runs() -> None:
    text = emit(program("nonzero"), "cpu-avx2", BODY).source
    assert "static int64_t size_M(Env& e)" in text and "int64_t M;" in text and BODY in text


def first_program(spec: OpSpec) -> BoundOp:
    """Of the first key that its rules admit."""
    for key in keys_of(spec):
        with contextlib.suppress(DomainError):
            return normal(spec, key)
    raise AssertionError(spec.op)


def test_every_operator_has_a_stub_or_says_why_not() -> None:
    refused = []
    for spec in Workbench.here().own():
        try:
            assert stub(first_program(spec)).count("static void body(const Args& a) {") == 1
        except LowerError as error:
            refused.append(error.message)
    assert len(refused) < 12
    assert all("a body cannot fill it yet" in said for said in refused), refused
