"""Quantiles, covariances, differences, histograms, segments, bags, windows of signals, and what normalisation keeps."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import opwright as ow  # noqa: E402
from opwright.exceptions import OpTypeError  # noqa: E402

from .replay import bridge  # noqa: E402
from .torch_samples import overload  # noqa: E402

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def served() -> None:
    bridge()


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


X, SIGNAL, Z = random(4, 5), random(2, 24), random(2, 9, dtype=torch.complex64)
HOLES = X.masked_fill(X > 1, float("nan"))
Q = torch.tensor([0.0, 0.3, 1.0])
BAGS = (random(10, 3), torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 5]))
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "combinations.default": [(X[0],), (X[0], 3, True)],
    "corrcoef.default": [(X,), (X[:1],), (X + 1j,)],
    "cov.default": [(X,), (X[0],)],
    "cumulative_trapezoid.x": [(X, random(5)), (X, random(4, 5))],
    "embedding_bag.default": [(*BAGS, False, mode) for mode in (0, 1, 2)],
    "fft_hfftn.default": [(Z,), (Z, [3, 8], [0, 1], "ortho")],
    "fft_ihfft.default": [(X,)],
    "fft_irfft2.default": [(Z,)],
    "fft_rfftn.default": [(X,), (X, [3, 4], [0, 1], "forward")],
    "gradient.scalarint": [(X,)],
    "histogram.bin_ct": [(X, 4)],
    "nanquantile.default": [(HOLES, Q), (HOLES, Q, 1, True)],
    "quantile.default": [(X, Q), (X, Q, 0), (HOLES, Q, 1)],
    "quantile.scalar": [(X, 0.5, 0, True)],
    "segment_reduce.default": [(X, kind, {"lengths": torch.tensor([1, 0, 3])}) for kind in ("sum", "max")],
    "stft.center": [(SIGNAL, 8, 3, None, torch.hann_window(8), True, "reflect", False, True, True)],
    "sum_to_size.default": [(X, [1, 5]), (X, [5])],
    "trapezoid.x": [(X, random(5))],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch_says(name: str) -> None:
    for args in CALLS[name]:
        named = args[-1] if isinstance(args[-1], dict) else {}
        given = args[:-1] if named else args
        got = ow.call_aten(f"aten.{name}", *given, **named)
        want = overload(f"aten.{name}")(*given, **named)
        pairs = zip(*((tuple(x) if isinstance(x, tuple | list) else (x,)) for x in (got, want)), strict=True)
        for mine, theirs in pairs:
            a, b = mine.numpy(), theirs.resolve_conj().numpy()
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.nightly
def test_a_signal_comes_back_from_its_windows() -> None:
    window = torch.hann_window(8)
    spectrum = torch.stft(SIGNAL, 8, 2, window=window, return_complex=True)
    got = ow.call_aten("aten.istft.default", spectrum, 8, 2, None, window)
    np.testing.assert_allclose(got.numpy(), SIGNAL.numpy(), rtol=1e-4, atol=1e-5)


def test_a_quantile_lies_between_two_numbers_and_q_from_0_to_1() -> None:
    close = np.testing.assert_allclose
    close(
        ow.call_aten("aten.quantile.scalar", X, 0.3, 1).numpy(), torch.quantile(X, 0.3, 1).numpy(), rtol=1e-6
    )
    with pytest.raises(OpTypeError, match="`q` must lie from 0 to 1"):
        ow.call_aten("aten.quantile.scalar", X, 1.5)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_training_moves_what_is_kept(name: str) -> None:
    y = random(3, 4, 5)
    kept = [random(4), random(4).abs() + 0.5]
    theirs = [k.clone() for k in kept]
    got = ow.call_aten(f"aten.{name}.default", y, None, None, *kept, True, 0.1, 1e-5, True)
    want = overload(f"aten.{name}.default")(y, None, None, *theirs, True, 0.1, 1e-5, True)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    for mine, other in zip(kept, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5)
