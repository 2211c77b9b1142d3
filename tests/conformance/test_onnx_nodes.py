"""ONNX's own node tests, all of them: the share that passes, and the rest by name (`make conformance` counts them)."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from .onnx_nodes import node_results
from .run import ONNX_PARTS, merged, totals

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

#: Of the cases whose types we have, at least this share passes; what fails or is refused is printed (`pytest -rP`).
AT_LEAST = 0.75


def test_node_tests_run_through_the_maps() -> None:
    rows = merged(node_results(f"part {k}") for k in range(ONNX_PARTS))
    counts = totals(rows)
    print(f"{counts['passed']} of {counts['tried']} of ONNX's node tests pass; the rest:")
    for name, row in sorted(rows.items()):
        for why, n in sorted(row["refused"].items()):
            print(f"  {name}: {why} ({n})")
    wrong = [(f["call"], f["why"]) for row in rows.values() for f in row["failed"]]
    assert not wrong, f"wrong: {wrong}"
    assert counts["passed"] >= AT_LEAST * counts["tried"]
