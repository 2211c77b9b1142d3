"""The ladder of sizes: every operator sees long axes, with tails, whatever it declares."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opwright.validators.cases import make_cases
from opwright.validators.sizes import LANES, RUNGS, cut, grown, rung_of

from .oracle_help import specs


def test_rungs_follow_one_another_and_their_draws_stay_within() -> None:
    assert RUNGS[0].low > 4 * LANES
    assert RUNGS[-1].low > 1000
    for rung in RUNGS:
        seen = {k: {rung.draw(np.random.default_rng(s), k) for s in range(200)} for k in range(3)}
        assert all(rung.low <= n < rung.high for of in seen.values() for n in of)
        assert {n % LANES for n in seen[0]} == {LANES - 1}
        assert {n % LANES for n in seen[1]} == {1}
        assert any(n & n - 1 == 0 for n in {n + 1 for n in seen[0]} & {n - 1 for n in seen[1]})
        assert len(seen[2]) > 80, "a kernel could list them"


def test_a_shape_grows_in_one_axis_or_as_a_product() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        big = grown((3, 4), 500, rng, fixed=False)
        assert len(big) == 2
        assert max(big) == 500 or math.prod(big) >= 500
        assert grown((), 500, rng, fixed=False) == (500,)
        assert grown((), 500, rng, fixed=True) == ()
    assert cut((9, 2), 4) == (4, 2)
    assert cut(9, 4) == 4


@pytest.mark.parametrize("tier", ["quick", "full"])
@pytest.mark.parametrize(
    "name", ["softmax", "matmul", "add", "cat", "conv", "index_put", "rms_norm", "attention", "sum"]
)
def test_every_operator_sees_every_rung(name: str, tier: str) -> None:
    report = make_cases(specs()[name], tier, seed=1)
    assert not [why for case, why in report.refused if case.startswith("size")]
    for k, rung in enumerate(RUNGS):
        cases = [c for c in report if c.source.startswith(f"size{k}.")]
        assert len({c.source for c in cases}) >= (1 if rung.chain or rung.few else 2)
        for c in cases:
            shapes = [a.shape for a in c.inputs.values()]
            assert max(max((*s, math.prod(s))) for s in shapes) >= rung.low
    longest = max(max(a.shape, default=0) for c in report for a in c.inputs.values())
    assert longest > 256


def test_quick_grows_each_extent_and_leaves_a_tail_of_every_kind() -> None:
    for seed in range(4):
        report = make_cases(specs()["softmax"], "quick", seed=seed)
        rows = [
            (c.source, c.inputs["x"].shape[c.run_attrs["axis"]])
            for c in report
            if c.source.startswith("size")
        ]
        assert any(n > 64 and n % LANES == LANES - 1 for _, n in rows), rows
        assert any(n > 1000 for _, n in rows), rows


def test_ranks_go_beyond_four() -> None:
    report = make_cases(specs()["add"], "full", seed=0)
    assert max(a.ndim for c in report for a in c.inputs.values()) > 4


def test_a_running_sum_grows_as_far_as_any() -> None:
    report = make_cases(specs()["cumsum"], "quick", seed=0)
    assert any(c.inputs["x"].shape[c.run_attrs["dim"]] > 65000 for c in report)


def test_a_case_says_its_rung() -> None:
    assert rung_of("size2.1") is RUNGS[2] and rung_of("size3.0/f32/exact/contiguous/-/all") is RUNGS[3]
    assert rung_of("case0/f32/normal/contiguous/-/all") is None and rung_of("sizes") is None
