"""ONNX's own node tests: a few of what is rewritten into other nodes by day; by night all of them, and the share that
passes (`make conformance` counts them, and names the rest)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")

from .onnx_nodes import cases, node_results, run_case, table
from .run import ONNX_PARTS, merged, totals

pytestmark = pytest.mark.conformance

#: Of the cases whose types we have, at least this share passes; what fails or is refused is printed (`pytest -rP`).
AT_LEAST = 0.97

BY_DAY = (
    "test_argmax_default_axis_example_select_last_index",
    "test_basic_deform_conv_with_padding",
    "test_dft_irfft",
    "test_einsum_batch_diagonal",
    "test_flexattention_gqa",
    "test_gru_seq_length",
    "test_hardmax_axis_1",
    "test_loop16_seq_none",
    "test_lstm_with_peepholes",
    "test_nonmaxsuppression_two_classes",
    "test_quantizelinear_axis",
    "test_resize_downsample_sizes_linear_antialias",
    "test_resize_tf_crop_and_resize_extrapolation_value",
    "test_roialign_aligned_true",
    "test_scan9_sum",
    "test_scatternd_max",
    "test_unique_not_sorted_without_axis",
)


@pytest.mark.nightly
def test_some_that_are_rewritten(tmp_path: Path) -> None:
    found = {c.name: c for c in cases()}
    said = {name: run_case(found[name], table(), tmp_path / name) for name in BY_DAY}
    assert not {name: why for name, (why, _) in said.items() if why}


@pytest.mark.nightly
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
