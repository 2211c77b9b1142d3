"""Kernels that are filled by hand: what a body is given, and that nothing else of the kernel changes."""

from __future__ import annotations

import contextlib

import pytest

from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BoundOp, KernelText
from opwright.generator.emit import emit
from opwright.generator.emit.bodies import ByHand, stub
from opwright.generator.errors import DomainError, LowerError
from opwright.generator.gradient import normal
from opwright.generator.spec import OpSpec
from opwright.workflows.show import choose_key
from opwright.workflows.workbench import Workbench

BODY = "static void body(const Args& a) { (void)a; }"


def spec_of(op: str) -> OpSpec:
    return Workbench.here().one(op)


def program(op: str, *wanted: str) -> BoundOp:
    return normal(spec_of(op), choose_key(spec_of(op), wanted))


def text(op: str, body: str = BODY) -> KernelText:
    return emit(program(op), "cpu-avx2", ByHand(body, spec_of(op)))


def test_a_body_takes_the_place_of_the_loops_and_of_nothing_else() -> None:
    ours, theirs = emit(program("softmax"), "cpu-avx2").source, text("softmax").source
    assert BODY in theirs and "body(args);" in theirs
    assert "nest0" in ours and "nest0" not in theirs
    for kept in ("OW_E_OVERLAP", "OW_E_AXIS", "_infer(const OwCall* c)", "_workspace(const OwCall* c)"):
        assert ours.count(kept) == theirs.count(kept), kept
    assert text("softmax", BODY.replace("(void)a", "(void)a.x")).symbol != text("softmax").symbol


@pytest.mark.parametrize("line", ["#define owk_norm_axis(...) 1", "#include <cmath>", "int x; \\"])
def test_a_body_has_nothing_for_the_preprocessor(line: str) -> None:
    with pytest.raises(LowerError, match="a line for the preprocessor, its line 1"):
        text("softmax", f"{line}\n{BODY}")


@pytest.mark.parametrize(
    ("op", "wanted", "lines"),
    [
        ("softmax", ["T=bf16"], ["View<const owk_bf16> x;", "int64_t axis;", "using T = owk_bf16;"]),
        ("cat", [], ["View<const float> xs[2];", "int64_t dim;"]),
        ("rms_norm", ["w=false"], ["View<const float> w;  // left out", "constexpr bool w_given = false;"]),
        (
            "gelu",
            ["approximate=tanh"],
            ["constexpr bool approximate_is_tanh = true;", "constexpr bool approximate_is_none = false;"],
        ),
        ("sum", ["T=bf16", "dim=false"], ["using A = float;", "constexpr bool dim_given = false;"]),
    ],
)
def test_what_a_body_is_given(op: str, wanted: list[str], lines: list[str]) -> None:
    said = stub(program(op, *wanted), spec_of(op))
    for line in lines:
        assert line in said
    assert said.rstrip().endswith("static void body(const Args& a) {\n}")


def test_extents_that_depend_on_data_are_counted_before_a_body_runs() -> None:
    source = text("nonzero").source
    assert "static int64_t size_M(Env& e)" in source and "int64_t M;" in source and BODY in source


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
            assert stub(first_program(spec), spec).count("static void body(const Args& a) {") == 1
        except LowerError as error:
            refused.append(error.message)
    assert len(refused) < 12
    assert all("a body cannot fill it yet" in said for said in refused), refused
