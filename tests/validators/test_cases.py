"""Cases: reproducible, within the rules, of every class and layout that a spec asks for; refusals that must come."""

from __future__ import annotations

import numpy as np
import pytest

from opwright.generator import spec_model
from opwright.generator.bind import bind
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType
from opwright.validators.case_model import Case, CaseRefused
from opwright.validators.cases import Builder, build_case, make_cases
from opwright.validators.draws import VALUE_CLASSES, draw, draw_index
from opwright.validators.layouts import LAYOUTS, ROOM, applies, lay_out
from opwright.validators.oracle import OracleRefusal, evaluate, output_shapes

from .oracle_help import specs

NAMES = [
    "softmax",
    "matmul",
    "rms_norm",
    "add",
    "attention",
    "index_put",
    "cat",
    "addmm",
    "conv",
    "argmax",
    "clip",
    "sum",
]


def contents(case: Case) -> list[tuple[str, bytes, tuple[int, ...]]]:
    return [(n, np.ascontiguousarray(a).tobytes(), a.shape) for n, a in case.inputs.items()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tier", ["quick", "full"])
def test_every_case_can_be_evaluated_or_is_refused_as_expected(name: str, tier: str) -> None:
    spec = specs()[name]
    report = make_cases(spec, tier, seed=3)
    assert not report.refused
    assert len(report) >= (8 if tier == "quick" else 40)
    for case in report:
        op = bind(spec, case.key)
        if case.expect is None:
            if tier == "quick":
                evaluate(op, case.inputs, case.run_attrs)
            else:
                output_shapes(op, case.inputs, case.run_attrs)
            continue
        with pytest.raises(OracleRefusal) as e:
            output_shapes(op, case.inputs, case.run_attrs)
        assert (e.value.kind, e.value.which) == (case.expect.kind, case.expect.which)


@pytest.mark.parametrize("name", ["softmax", "index_put", "conv", "addmm"])
def test_a_case_is_made_again_from_its_name_and_seed(name: str) -> None:
    spec = specs()[name]
    for case in make_cases(spec, "quick", seed=5):
        again = build_case(spec, case.name, 5)
        assert contents(again) == contents(case)
        assert again.key == case.key
        assert again.run_attrs == case.run_attrs
        assert case.name in case.repeat


def test_another_seed_draws_other_shapes_and_contents() -> None:
    spec = specs()["softmax"]
    one, two = (make_cases(spec, "quick", seed=s) for s in (1, 2))
    shapes = [[c.inputs["x"].shape for c in r if c.source.startswith("draw")] for r in (one, two)]
    assert shapes[0] != shapes[1]
    assert contents(one.cases[0]) != contents(two.cases[0])


def test_declared_shapes_come_as_declared() -> None:
    cases = {c.source: c for c in make_cases(specs()["matmul"], "quick")}
    assert [a.shape for a in cases["case0"].inputs.values()] == [(3, 4), (4, 5)]
    assert [a.shape for a in cases["case1"].inputs.values()] == [(3, 1, 17, 31), (2, 31, 9)]
    lists = next(c for c in make_cases(specs()["cat"], "quick") if c.source == "case1")
    assert [a.shape for a in lists.inputs.values()] == [(2, 3, 4), (2, 0, 4), (2, 7, 4)]
    given = next(c for c in make_cases(specs()["addmm"], "quick") if c.source == "case1")
    assert given.inputs["c"].shape == (4,)


def test_full_covers_dtypes_values_layouts_and_ranks() -> None:
    report = make_cases(specs()["softmax"], "full")
    assert {t.dtype for c in report for _, t in c.tensors()} == {DType.F16, DType.BF16, DType.F32, DType.F64}
    assert {"normal", "large", "all_equal", "one_neg_inf", "all_neg_inf", "nan_inf", "denormal"} <= {
        c.value_class for c in report
    }
    assert {"contiguous", "transposed", "offset"} <= {c.layout for c in report}
    assert len({c.inputs["x"].ndim for c in report}) >= 3
    assert any(0 in c.inputs["x"].shape for c in report)
    assert {c.declared for c in report} == {True, False}


def test_dtypes_can_be_restricted() -> None:
    report = make_cases(specs()["add"], "full", dtypes=[DType.F32, DType.I64])
    assert {t.dtype for c in report for _, t in c.tensors()} == {DType.F32, DType.I64}


def test_optional_inputs_are_left_out_too() -> None:
    report = make_cases(specs()["rms_norm"], "quick")
    assert any(c.operands["w"] is None for c in report)
    assert any(dict(c.key.present) == {"w": True} for c in report)


def test_every_value_of_a_static_attribute_is_tried() -> None:
    report = make_cases(specs()["attention"], "quick")
    assert {dict(c.key.static)["causal"] for c in report} == {True, False}


def test_attributes_go_beyond_what_is_usual() -> None:
    """More than any extent, less than nothing, and what the spec compares them with."""
    text = (
        'op: e\ntypes: {T: float}\ndims: {B: batch}\ninputs: {x: "T[*B, N]"}\n'
        "attrs: {shift: {type: int, default: 1}, how: {type: str, default: plain}}\n"
        'outputs: {y: "T[*B, N]"}\nrequire: ["shift < 1000"]\n'
        'compute: |\n  y[*B, i] = x[*B, i] * T(shift if shift != 40 and how == "odd" else 0)\n'
        "test: {cases: [{B: [3], N: 7}]}\n"
    )
    builder = Builder(load_spec_text(text)[0], 0)
    report = make_cases(builder.spec, "quick")
    shifts = {c.run_attrs["shift"] for c in report if c.name.startswith("edge.shift.")}
    assert shifts == {-1, 0, 1, 39, 40, 41, 999, 8, 22}
    assert [n.partition("/")[0] for n, _ in report.skipped if n.startswith("edge.")] == [
        "edge.shift.4",
        "edge.shift.5",
    ]
    assert builder.domain(builder.spec.attrs["how"]) == ["odd"]


def test_index_classes_point_into_the_axis() -> None:
    report = make_cases(specs()["index_put"], "full")
    found = {c.index_class for c in report if c.expect is None}
    assert {"uniform", "same", "bounds", "negative"} <= found
    for c in report:
        if c.expect is None and c.inputs["i"].size:
            n = c.inputs["x"].shape[0]
            assert -n <= c.inputs["i"].min()
            assert c.inputs["i"].max() < n


def test_negative_positions_are_skipped_where_rules_forbid_them() -> None:
    text = """
op: rows
types: {T: any, I: index}
inputs: {w: "T[V]", i: "I[J]"}
outputs: {y: "T[J]"}
require: ["0 <= i[j]", "i[j] < V"]
compute: |
  y[j] = w[i[j]]
grad: {none: not needed here}
test: {cases: [{V: 5, J: 3}]}
"""
    report = make_cases(load_spec_text(text, "rows.yaml")[0], "quick")
    assert not report.refused
    assert any("negative" in name for name, _ in report.skipped)
    assert {c.expect.text for c in report if c.expect and c.expect.kind == "data"} == {
        "0 <= i[j]",
        "i[j] < V",
    }


def test_every_rule_is_broken_once_and_axes_and_shapes_too() -> None:
    report = make_cases(specs()["conv"], "quick")
    broken = {c.expect.text for c in report if c.expect is not None and c.expect.kind == "require"}
    assert broken == {"groups > 0", "C == G * groups", "O % groups == 0"}
    kinds = {c.expect.kind for c in make_cases(specs()["softmax"], "quick") if c.expect is not None}
    assert kinds == {"axis"}
    assert "shape" in {c.expect.kind for c in make_cases(specs()["matmul"], "quick") if c.expect is not None}


def test_what_cannot_be_built_says_why() -> None:
    spec = specs()["softmax"]
    for name in ("case9/f32/normal/contiguous/-/all", "case0/f32/normal/contiguous", "case0/f32/odd/contiguous/-/all",
                 "case0/f32+f32/normal/contiguous/-/all", "case0/i64/normal/contiguous/-/all"):  # fmt: skip
        with pytest.raises(CaseRefused):
            build_case(spec, name, 0)
    text = """
op: pairs
types: {T: float}
inputs: {a: "T[N]", b: "T[N]"}
attrs: {k: {type: int}}
outputs: {z: "f32[N]"}
require: ["k == N + 1"]
compute: |
  z[i] = f32(a[i]) + f32(b[i])
grad: {none: not needed here}
test: {cases: [{N: 4, k: 5}, {N: 4, k: 4}]}
"""
    report = make_cases(load_spec_text(text, "pairs.yaml")[0], "quick")
    assert any("case1" in name and "k == N + 1" in why for name, why in report.refused)
    assert any(c.source == "case0" for c in report)


# ------------------------------------------------------------------------------------------------- contents


def test_a_spec_may_name_the_classes_that_there_are() -> None:
    assert tuple(VALUE_CLASSES) == spec_model.VALUE_CLASSES


@pytest.mark.parametrize("value_class", sorted(VALUE_CLASSES))
@pytest.mark.parametrize(
    "dtype", [DType.F32, DType.BF16, DType.F16, DType.F64, DType.I64, DType.U8, DType.BOOL, DType.C64]
)
def test_every_class_fits_every_dtype_and_shape(value_class: str, dtype: DType) -> None:
    for shape in ((), (0, 3), (4, 5)):
        a = draw(value_class, shape, dtype, np.random.default_rng(0))
        assert a.shape == shape
        if VALUE_CLASSES[value_class].finite and dtype.is_inexact:
            assert np.isfinite(a.astype(np.complex128)).all()


def test_many_axes_are_sliced_in_little_room() -> None:
    view = lay_out(np.ones((2,) * 12, np.float32), "sliced", np.random.default_rng(0))
    root = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    assert view.shape == (2,) * 12
    assert view.strides != np.ones((2,) * 12, np.float32).strides
    assert root.size <= ROOM


def test_rows_hold_inf_alone_and_the_lowest_meets_minus_one() -> None:
    for seed in range(8):
        rows = draw("inf", (6, 7), DType.F32, np.random.default_rng(seed))
        kinds = {(bool((r == np.inf).any()), bool((r == -np.inf).any())) for r in rows}
        assert len(kinds) == 4
        a, b = (draw("int_limits", (20, 10), DType.I32, np.random.default_rng(seed + k)) for k in (50, 90))
        assert ((a == -(2**31)) & (b == -1)).any()
        assert np.isinf(draw("inf", (3,), DType.F32, np.random.default_rng(seed))).any()


def test_classes_hold_what_their_names_say() -> None:
    rng = np.random.default_rng(0)
    f32 = DType.F32
    for size in (3, 4, 5, 50, 2000):
        for k in range(20):
            weird = draw("nan_inf", (size,), f32, np.random.default_rng(k))
            assert np.isnan(weird).any()
            assert np.isposinf(weird).any()
            assert np.isneginf(weird).any()
    ends = [draw("nan", (2, 9), f32, np.random.default_rng(k)) for k in range(40)]
    assert all(np.isnan(a).any() and not np.isinf(a).any() for a in ends)
    assert {bool(np.signbit(v)) for a in ends for v in a[np.isnan(a)]} == {False, True}
    assert any(np.isnan(a[-1, -1]) and not np.isnan(a[-1, :-1]).any() for a in ends)
    assert any(not np.isnan(a[0]).any() for a in ends)
    signs = [draw("inf", (9,), f32, np.random.default_rng(k)) for k in range(20)]
    assert all(np.isinf(a).any() and not np.isnan(a).any() for a in signs)
    assert {(np.isposinf(a).any(), np.isneginf(a).any()) for a in signs} == {
        (True, True),
        (True, False),
        (False, True),
    }
    for dtype in (f32, DType.F16, DType.BF16):
        half = draw("halves", (90,), dtype, rng).astype(np.float64)
        assert (half % 1 == 0.5).sum() > 30
        assert (np.rint(half) % 2 == 0).any()
        assert ((half % 1 != 0.5) & (half % 1 != 0)).any()
    small = draw("denormal", (50,), f32, rng)
    assert ((np.abs(small) < 2.0**-126) & (small != 0)).sum() > 10
    zeros = draw("zeros", (50,), f32, rng)
    assert np.signbit(zeros[zeros == 0]).any()
    assert not np.signbit(zeros[zeros == 0]).all()
    assert np.isneginf(draw("one_neg_inf", (6, 5), f32, rng)).sum(axis=1).tolist() == [1] * 6
    assert np.ptp(draw("all_equal", (9,), f32, rng)) == 0
    wide = draw("wide", (400,), f32, rng).astype(np.float64)
    assert np.isfinite(wide).all() and (np.abs(wide) > 2.0**63).any() and (np.abs(wide) < 1e-12).any()
    assert ((np.abs(wide) > 40) & (np.abs(wide) < 88)).any()
    assert 0 < np.diff(np.unique(np.abs(wide[wide != 0])) / 2.0**16).min() < 1e-7  # neighbours
    many = draw("wide", (100,), DType.I64, rng)
    assert (np.abs(many) > 2**53).any() and (np.abs(many) < 2**20).any()
    assert 0 < np.diff(np.unique(many)).min() < 8
    levels = draw("halves", (6, 9), f32, rng)
    assert set(np.abs(levels[[1, 4]]).max(axis=1)) == {127} and set(np.abs(levels[[2, 5]]).max(axis=1)) == {7}
    ints = draw("int_limits", (90,), DType.I32, rng)
    assert {np.iinfo(np.int32).min, np.iinfo(np.int32).max} <= set(ints.tolist())


@pytest.mark.parametrize("depth", [1, 64, 4096, 100_000])
def test_exact_contents_keep_partial_sums_below_two_to_the_24th(depth: int) -> None:
    rng = np.random.default_rng(depth)
    a = draw("exact", (1000,), DType.F32, rng, depth=depth)
    b = draw("exact", (1000,), DType.F32, rng, depth=depth, place=1)
    assert np.all(a == np.rint(a))
    assert np.abs(a).max() * np.abs(b).max() * (depth if depth > 1 else 1) <= 2**24
    assert np.abs(a).max() >= min(100, 2**24 // depth // 2)


def test_index_classes() -> None:
    rng = np.random.default_rng(0)
    assert len(set(draw_index("same", (20,), DType.I64, 5, rng).tolist())) == 1
    assert set(draw_index("bounds", (50,), DType.I64, 5, rng).tolist()) == {0, 4}
    assert draw_index("negative", (50,), DType.I32, 5, rng).min() < 0
    assert draw_index("uniform", (0,), DType.I32, 0, rng).size == 0


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 1, 3), (0, 4), (2, 3, 4, 5)])
def test_layouts_keep_contents_and_change_strides(layout: str, shape: tuple[int, ...]) -> None:
    a = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    out = lay_out(a, layout, np.random.default_rng(0))
    assert out.shape == shape
    if layout != "expanded":
        assert np.array_equal(out, a)
    if not applies(layout, shape):
        assert out.flags.c_contiguous
    elif layout in ("transposed", "sliced"):
        assert not out.flags.c_contiguous
    elif layout == "expanded":
        assert 0 in out.strides
    elif layout == "negative":
        assert any(s < 0 for s in out.strides)


def test_memory_between_the_elements_is_poisoned() -> None:
    out = lay_out(np.ones((4, 6), np.float32), "sliced", np.random.default_rng(0))
    assert out.base is not None
    assert np.isnan(out.base).any()


BROADCASTING = """\
op: twice
doc: A sum whose declared calls all broadcast.
types: {T: "promote(a, b)", A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {y: "T[*B]"}
variants: {inplace: [a]}
compute: |
  y[*B] = T(A(a[*B]) + A(b[*B]))
grad: {none: a test}
test: {cases: [{a.B: [4, 1, 3], b.B: [6, 1]}], values: [exact, normal]}
"""


@pytest.mark.parametrize("tier", ["quick", "full"])
@pytest.mark.parametrize("seed", range(4))
def test_what_may_be_written_over_its_input_has_calls_where_it_can(tier: str, seed: int) -> None:
    """Where every declared call broadcasts, too."""
    (spec,) = load_spec_text(BROADCASTING, "twice.yaml")
    whole = [
        c
        for c in make_cases(spec, tier, seed, [DType.F32])
        if c.expect is None
        and c.inputs["a"].shape == np.broadcast_shapes(c.inputs["a"].shape, c.inputs["b"].shape)
        and c.source.startswith("alike")
    ]
    assert len({c.name for c in whole}) == 4
    assert any(c.inputs["a"].size > 1 for c in whole)
    assert all(c.inputs["a"].shape == c.inputs["b"].shape for c in whole)


def test_stated_contents_are_used_where_they_fit_and_drawn_elsewhere() -> None:
    spec = load_spec_text(
        """
op: t_lengths
types: {T: float}
inputs: {x: "T[R, N]", lengths: "i64[R]"}
outputs: {y: "T[R, N]"}
require: ["0 <= lengths[r]", "lengths[r] <= N"]
compute: |
  y[r, i] = x[r, i] if i < lengths[r] else 0
test: {cases: [{R: 3, N: 6, lengths: [5, 0, 3]}], values: [normal]}
"""
    )[0]
    report = make_cases(spec, "quick", seed=0)
    stated = [c for c in report if c.name.startswith("case0") and c.expect is None]
    assert stated
    assert all(c.inputs["lengths"].tolist() == [5, 0, 3] for c in stated)
    drawn = [c for c in report if c.inputs["lengths"].shape != (3,) and c.expect is None]
    assert drawn  # another number of rows
    assert all(c.inputs["lengths"].max(initial=0) <= c.inputs["x"].shape[1] for c in drawn)
