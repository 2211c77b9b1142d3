"""Resampling by scales, windows, drawn pools, histograms of several axes, rows that differ, several results that are
written: against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import opwright as ow  # noqa: E402

from .replay import bridge  # noqa: E402
from .torch_samples import leaves, overload  # noqa: E402

pytestmark = pytest.mark.conformance


def given(x: Any) -> Any:
    if isinstance(x, list):
        return [given(e) for e in x]
    return ow.from_dlpack(x) if isinstance(x, torch.Tensor) else x


def same(name: str, *args: Any, **kwargs: Any) -> None:
    bridge()
    want = leaves(overload(name)(*args, **kwargs))
    got = leaves(ow.call_aten(name, *map(given, args), **{k: given(v) for k, v in kwargs.items()}))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(torch.from_dlpack(mine), theirs, rtol=2e-6, atol=2e-6)


def numbers(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.nightly
@pytest.mark.parametrize("scales", [[1.7, 2.3], [0.6, 0.45]])
def test_a_scale_that_is_rounded_is_the_callers(scales: list[float]) -> None:
    x = numbers(1, 2, 5, 6)
    for kind in (
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    ):
        same(f"aten.{kind}.vec", x, None, False, scales)
    for kind in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
        same(f"aten.{kind}.vec", x, None, scales)


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "padding"), [(0, 2), (1, 2), (2, 0), (2, 1), (2, 2)])
def test_pictures_at_given_places(mode: int, padding: int) -> None:
    grid = numbers(1, 3, 4, 2)
    for align in (False, True):
        same("aten.grid_sampler_2d.default", numbers(1, 2, 5, 6), grid, mode, padding, align)


def test_a_mean_by_a_divisor() -> None:
    for ceil_mode in (False, True):
        same("aten.avg_pool2d.default", numbers(2, 5, 6), [2, 3], [2, 2], [1, 1], ceil_mode, True, 5)


def test_a_scale_of_one_axis() -> None:
    same("aten.upsample_nearest1d.default", numbers(1, 2, 5), [8], 1.7)
    same("aten.upsample_linear1d.default", numbers(1, 2, 5), [8], False, 1.7)


def test_windows() -> None:
    for kind in ("bartlett", "blackman", "hann", "hamming"):
        same(f"aten.{kind}_window.default", 7)
        same(f"aten.{kind}_window.periodic", 8, False)
        same(f"aten.{kind}_window.periodic", 1, True)
    same("aten.kaiser_window.beta", 9, True, 6.0)


@pytest.mark.nightly
def test_drawn_pools() -> None:
    x, drawn = numbers(1, 2, 7, 8), torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(0))
    same("aten.fractional_max_pool2d.default", x, [2, 3], [4, 5], drawn)
    same("aten.fractional_max_pool2d.default", x, [2, 3], [1, 5], drawn)


@pytest.mark.nightly
def test_histograms_of_several_axes() -> None:
    x = numbers(20, 2)
    same("aten.histogramdd.default", x, [3, 4])
    same("aten.histogramdd.int_bins", x, 3, range=[-1.0, 1.0, 0.0, 0.5], weight=x[:, 0].abs(), density=True)


def test_rows_that_differ() -> None:
    x = torch.tensor([[1, 0, 1], [1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 1]])
    for dim in (0, 1):
        same("aten.unique_dim.default", x, dim, True, True, True)
        same("aten.unique_dim_consecutive.default", x, dim, True, True)


def test_several_results_are_written() -> None:
    bridge()
    x = numbers(3, 5)
    values, places = torch.empty(3, 2), torch.empty(3, 2, dtype=torch.int64)
    ow.call_aten("aten.topk.values", given(x), 2, values=given(values), indices=given(places))
    want = torch.topk(x, 2)
    assert torch.equal(values, want.values) and torch.equal(places, want.indices)
    with pytest.raises(ow.OpTypeError, match=r"topk\.values: there is nothing to write to"):
        ow.call_aten("aten.topk.values", given(x), 2, values=given(values))


@pytest.mark.nightly
def test_targets_of_many_classes() -> None:
    targets = torch.tensor([[3, 0, -1, 1], [0, 1, 2, 3], [-1, 2, 2, 2]])
    for reduction in (0, 1, 2):
        same("aten.multilabel_margin_loss_forward.default", numbers(3, 4), targets, reduction)


@pytest.mark.nightly
def test_one_step_of_recurrent_networks() -> None:
    x, h = numbers(2, 3), numbers(2, 5)
    same("aten.gru_cell.default", x, h, numbers(15, 3), numbers(15, 5), numbers(15), numbers(15))
    same("aten.lstm_cell.default", x, [h, h], numbers(20, 3), numbers(20, 5), numbers(20), numbers(20))
