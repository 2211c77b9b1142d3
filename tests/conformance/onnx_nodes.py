"""ONNX's own node tests through the `onnx:` maps of the specs: conversion, then our kernels against onnx's numbers.

May import: numpy, onnx, opwright (all rooms), run's names of counts.
"""

from __future__ import annotations

import copy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from opwright.errors import OpwrightError
from opwright.generator.program.folder import write_folder
from opwright.generator.program.onnx_convert import OnnxConverter
from opwright.program import Program
from opwright.workflows.bridge import aten_rows, install
from opwright.workflows.workbench import Workbench

from .run import ONNX_PARTS

__all__ = ["LACKING", "cases", "node_results", "run_case", "table"]

#: Element types that we have not: a case that takes or gives one is no case of ours.
LACKING = ("STRING", "FLOAT8", "INT4", "INT2", "UINT16", "UINT32", "UINT64", "FLOAT4", "UINT4", "UINT2")
#: Operators that make a tensor of no other, or go by a number, and what cases are called that are bodies of such.
SIZED = (
    *("ConstantOfShape", "Range", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"),
    *("If", "Loop"),
)
SIZED_NAMES = ("test_range_", "test_hannwindow", "test_hammingwindow", "test_blackmanwindow")


@cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    return sorted(collect_testcases(None), key=lambda c: str(c.name))


@cache
def table() -> Any:
    specs = Workbench.here().registry.all()
    install(extra=specs)
    return aten_rows(specs)


def node_results(part: str) -> dict[str, Any]:
    """By the ONNX operator that a case is named after: the counts of `run`, for one part of all cases."""
    k = int(part.split()[-1])
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n, case in enumerate(cases()[k::ONNX_PARTS]):
            if not _ours(case.model):
                continue
            nodes = [node.op_type for node in case.model.graph.node]
            row = out.setdefault(
                f"onnx.{nodes[0] if len(set(nodes)) == 1 else case.name}",
                {"tried": 0, "passed": 0, "oracle": 0, "refused": {}, "failed": []},
            )
            row["tried"] += 1
            try:
                said, wrong = run_case(case, table(), Path(folder) / str(n))
            except Exception as error:  # every other end is a fault: named, counted, and not hidden
                said, wrong = f"raises {type(error).__name__}: {str(error)[:100]}", True
            if not said:
                row["passed"] += 1
            elif wrong:
                row["failed"].append({"call": case.name, "sample": "onnx", "why": said})
            else:
                row["refused"][said] = row["refused"].get(said, 0) + 1
    return out


def _ours(model: Any) -> bool:
    """Whether every tensor of a case is of a type that we have."""
    from onnx import TensorProto

    values = [*model.graph.input, *model.graph.output]
    names = [TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in values]
    return not any(name.startswith(LACKING) for name in names)


def constants(model: Any, inputs: list[Any]) -> tuple[Any, list[Any]]:
    """Axes, shapes, counts and scales become constants, as exporters write them: short integer inputs behind the first
    (of some operators the first as well), and scales."""
    from onnx import numpy_helper

    out = copy.deepcopy(model)
    kept = []
    first = any(n.op_type in SIZED for n in out.graph.node) or out.graph.name.startswith(SIZED_NAMES)
    for k, (v, array) in enumerate(zip(list(out.graph.input), inputs, strict=False)):
        array = np.asarray(array) if isinstance(array, np.generic) else array
        short = isinstance(array, np.ndarray) and array.ndim < 2 and array.size < 33
        if (
            short
            and (k > 0 or first)
            and (array.dtype.kind in "iub" or first or v.name in ("depth", "r", "scales", "roi"))
        ):
            out.graph.initializer.append(numpy_helper.from_array(array, v.name))
            out.graph.input.remove(v)
        else:
            kept.append(array)
    return out, kept


def _plain(x: Any) -> Any:
    """A case's value as an array, a list of them, or None."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x


def _tensors(by_name: dict[str, Any]) -> dict[str, Any]:
    """A sequence is its tensors, by name and place; an optional that holds nothing is none."""
    out: dict[str, Any] = {}
    for name, x in by_name.items():
        if isinstance(x, list):
            out |= {f"{name}.{k}": np.asarray(y) for k, y in enumerate(x)}
        elif x is not None:
            out[name] = np.asarray(x)
    return out


def run_case(case: Any, table: Any, folder: Path) -> tuple[str, bool]:
    """Why the case does not pass (empty when it does), and whether that is a fault: what is not supplied is none."""
    inputs, outputs = ([_plain(x) for x in side] for side in case.data_sets[0])
    examples = {v.name: x for v, x in zip(case.model.graph.input, inputs, strict=True)}
    model, given = constants(case.model, list(inputs))
    try:
        try:
            made = OnnxConverter(model, table, case.name, case.name, examples).run()
            lacking = [c for c in made.program.calls if c.missing]
        except OpwrightError:
            lacking = [None]  # type: ignore[list-item]
        if lacking:
            first = lacking[0]
            model, given = case.model, list(inputs)
            made = OnnxConverter(model, table, case.name, case.name, examples).run()
            lacking = [c for c in made.program.calls if c.missing]
            if lacking and first is not None:
                lacking = [first]
        if lacking:
            return f"{lacking[0].op}: {lacking[0].why}", False
        write_folder(folder, made.program, made.tensors)
        loaded = Program.load(folder)
        feeds = _tensors({v.name: x for v, x in zip(model.graph.input, given, strict=True)})
        found = loaded.run({b.name: feeds[b.name] for b in made.program.inputs})
    except OpwrightError as error:
        return error.message, False
    wanted = _tensors({v.name: x for v, x in zip(model.graph.output, outputs, strict=True)})
    for b, want in zip(made.program.outputs, wanted.values(), strict=True):
        t = found[b.name]
        got = np.asarray(t.numpy() if hasattr(t, "numpy") else t)
        want = np.asarray(want)
        loose = {"float16": 1e-2, "bfloat16": 3e-2}.get(want.dtype.name, 1e-3)
        if got.shape != want.shape:
            return f"{b.name} is {got.shape}, not {want.shape}", True
        if want.dtype.kind in "iub":
            if not np.array_equal(got, want):
                return f"{b.name} differs", True
        elif not np.allclose(got.astype(np.float64), want.astype(np.float64), loose, 1e-6, equal_nan=True):
            return f"{b.name} is off", True
    return "", False
