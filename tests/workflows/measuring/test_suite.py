"""The table of the suite: every row is an operator's call that its spec takes, or a model that there is."""

from __future__ import annotations

import pytest

from opwright.validators.case_calls import type_choices
from opwright.validators.cases import Builder
from opwright.workflows.measuring import models, suite
from opwright.workflows.measuring.rounds import goals_of
from opwright.workflows.measuring.sides import RIVALS
from opwright.workflows.measuring.workload import POSITIVE
from opwright.workflows.workbench import Workbench

ROWS = suite.read("speed")
#: SPEED.md's classes.
CLASSES = {
    "dispatch", "elementwise at 1M", "chains at 1M", "norm and rope at 1M", "the same at 16M", "sums",
    "argmax, cumsum, sum over the first dim", "f32 products", "bf16 products", "matrix × vector", "attention",
    "convolution", "a small Llama",
}  # fmt: skip


def test_every_class_has_rows_and_no_name_is_there_twice() -> None:
    assert {r.cls for r in ROWS} == CLASSES
    names = [(r.cls, r.name) for r in ROWS]
    assert len(names) == len(set(names))


def test_goals_are_of_known_kinds() -> None:
    for r in ROWS:
        assert set(r.goals) <= {*RIVALS, "best", "ns", "copy", "read", "gb_s"}, r.name
        row = {"rivals": {}, "ours_s": 1e-6, "gb_s": 1.0, "limits": {}}
        assert len(goals_of(r.goals, row)) == len(r.goals)
    by = {r.name: dict(r.goals) for r in ROWS}
    assert by["argmax over rows, 2048², bf16"] == {"torch": 20} and by["llama, one token, f32"] == {
        "torch": 1.4
    }


@pytest.mark.parametrize("row", [r for r in ROWS if r.op], ids=lambda r: f"{r.op} {r.name}")
def test_each_row_is_a_call_that_its_spec_takes(row: suite.SuiteRow) -> None:
    from dataclasses import replace

    from opwright.workflows.measuring.workload import DType

    spec = Workbench.here().registry.get(row.op)
    assert spec.aten, f"{row.op} is measured against nobody"
    as_case = replace(spec, test=replace(spec.test, cases=(dict(row.given),)))
    builder = Builder(as_case, 0)
    types = "+".join(row.dtype if DType(row.dtype) in allowed else "i64" for _, allowed in type_choices(spec))
    builder.resolve(builder.call("case0", types), builder.types(types))  # by shapes alone: nothing is drawn


def test_each_model_is_there() -> None:
    for r in ROWS:
        if r.model:
            assert r.dtype in models.NAMES[r.model][1]
            assert models.row_named(r.model, r.dtype).target.endswith(f"_{r.dtype}")


def test_rows_are_chosen_by_name_class_and_dtype() -> None:
    chosen = [r for r in ROWS if suite.chosen(r, "sums", ("bf16",))]
    assert chosen and all(r.cls == "sums" and r.dtype == "bf16" for r in chosen)
    assert [r for r in ROWS if suite.chosen(r, "gelu, 1 Mi", ())]


def test_what_needs_numbers_above_zero_is_an_operator() -> None:
    known = Workbench.here().registry
    assert {known.get(n).op for n in POSITIVE} == POSITIVE
