"""ONNX's own node tests through the `onnx:` maps of the specs: conversion, then our kernels against onnx's numbers."""

from __future__ import annotations

import collections
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.errors import OpwrightError

pytest.importorskip("onnx")
pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

#: Of the installed onnx's node tests, at least so many pass; what fails is printed by name (`pytest -rP`).
AT_LEAST = 900


def constants(model: Any, inputs: list[Any]) -> tuple[Any, list[Any]]:
    """Axes, shapes and counts become constants, as exporters write them: integer inputs behind the first."""
    from onnx import numpy_helper

    out = copy.deepcopy(model)
    kept = []
    for k, (v, array) in enumerate(zip(list(out.graph.input), inputs, strict=False)):
        if (
            k
            and isinstance(array, np.ndarray)
            and array.dtype.kind in "iub"
            and array.ndim < 2
            and array.size < 33
        ):
            out.graph.initializer.append(numpy_helper.from_array(array, v.name))
            out.graph.input.remove(v)
        else:
            kept.append(array)
    return out, kept


def run_case(case: Any, table: Any, folder: Path) -> str:
    """Why the case does not pass; empty when it does."""
    from opwright.generator.program.folder import write_folder
    from opwright.generator.program.onnx_convert import OnnxConverter
    from opwright.program import Program

    inputs, outputs = case.data_sets[0]
    model, given = constants(case.model, list(inputs))
    try:
        try:
            made = OnnxConverter(model, table, case.name, case.name).run()
            lacking = [c for c in made.program.calls if c.missing]
        except OpwrightError:
            lacking = [None]  # type: ignore[list-item]
        if lacking:
            model, given = case.model, list(inputs)
            made = OnnxConverter(model, table, case.name, case.name).run()
            lacking = [c for c in made.program.calls if c.missing]
        if lacking:
            return f"{lacking[0].op}: {lacking[0].why}"
        write_folder(folder, made.program, made.tensors)
        loaded = Program.load(folder)
        names = [v.name for v in model.graph.input]
        found = loaded.run({b.name: np.asarray(given[names.index(b.name)]) for b in made.program.inputs})
    except OpwrightError as error:
        return error.message
    for b, want in zip(made.program.outputs, outputs, strict=True):
        t = found[b.name]
        got = np.asarray(t.numpy() if hasattr(t, "numpy") else t)
        want = np.asarray(want)
        loose = {"float16": 1e-2, "bfloat16": 3e-2}.get(want.dtype.name, 1e-3)
        if got.shape != want.shape:
            return f"{b.name} is {got.shape}, not {want.shape}"
        if want.dtype.kind in "iub":
            if not np.array_equal(got, want):
                return f"{b.name} differs"
        elif not np.allclose(got.astype(np.float64), want.astype(np.float64), loose, 1e-6, equal_nan=True):
            return f"{b.name} is off"
    return ""


def test_node_tests_run_through_the_maps(tmp_path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    from opwright.workflows.bridge import aten_rows, install
    from opwright.workflows.workbench import Workbench

    specs = Workbench.here().registry.all()
    install(extra=specs)
    table = aten_rows(specs)
    passed = 0
    why: dict[str, list[str]] = collections.defaultdict(list)
    for k, case in enumerate(collect_testcases(None)):
        try:
            said = run_case(case, table, tmp_path / str(k))
        except Exception as error:  # every other end is a fault: named, counted, and not hidden
            said = f"fault: {type(error).__name__}: {str(error)[:100]}"
        if said:
            why[said].append(case.name)
        else:
            passed += 1
    print(f"{passed} of ONNX's node tests pass; the rest:")
    for said, names in sorted(why.items()):
        print(f"  {said}: {', '.join(names)}")
    off = [n for said, names in why.items() if said.endswith(("is off", "differs")) for n in names]
    assert not off, f"wrong numbers: {off}"
    assert passed >= AT_LEAST
