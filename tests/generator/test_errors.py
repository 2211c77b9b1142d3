"""The workbench's own error classes, and the nearest name to a wrong one."""

from __future__ import annotations

import pytest

from opwright import errors as base
from opwright.generator.errors import (
    JudgedError,
    MachineError,
    OpwrightError,
    SpecError,
    did_you_mean,
)


def test_one_base_class():
    assert OpwrightError is base.OpwrightError


@pytest.mark.parametrize(("cls", "code"), [(SpecError, 2), (JudgedError, 1), (MachineError, 3)])
def test_exit_codes(cls, code):
    assert cls("x").exit_code == code


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("computes", "did you mean `compute`?"),
        ("COMPUTE", "did you mean `compute`?"),
        ("sizs", "did you mean `sizes`?"),
        ("zzz", "fields: compute, op, sizes"),
    ],
)
def test_did_you_mean(name, hint):
    assert did_you_mean(name, ["op", "compute", "sizes"], what="fields") == hint


def test_did_you_mean_keeps_the_list_short():
    hint = did_you_mean("q", [f"name{i:02}" for i in range(50)], what="names")
    assert hint.count(",") == 20
    assert hint.endswith("…")


def test_did_you_mean_prefers_the_case_that_was_written():
    assert did_you_mean("bb", ["B", "b"]) == "did you mean `b`?"
    assert did_you_mean("BB", ["B", "b"]) == "did you mean `B`?"


def test_did_you_mean_of_nothing():
    assert did_you_mean("q", [], what="dims") == "there are no dims here"
