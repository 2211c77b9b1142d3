"""Quantiles, covariances, differences, histograms, segments, bags, windows of signals, and what normalisation keeps."""

from __future__ import annotations

from functools import partial
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


WHOLE, HALF, ONES = (
    torch.arange(6).reshape(2, 3),
    random(3, 4).bfloat16(),
    torch.ones(2, dtype=torch.bfloat16),
)
MASK = WHOLE > 2


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("arange.default", (3.1, {"dtype": torch.int32})),
        ("arange.start_step", (5.5, 0.0, -1.5, {"dtype": torch.uint8})),
        ("cov.default", (HALF, {"aweights": random(4).abs()})),
        ("cov.default", (HALF, {"aweights": random(4).abs().bfloat16()})),
        ("max.dim", (X, torch.tensor(1))),
        ("max.dim", (X, torch.tensor(True))),
        ("native_dropout_backward.default", (WHOLE, MASK, 2.0)),
        ("native_dropout_backward.default", (MASK, MASK, 2.0)),
        ("sum_to_size.default", (MASK, [1, 3])),
        ("sum_to_size.default", (MASK, [2, 3])),
        (
            "native_batch_norm.default",
            (HALF.reshape(3, 2, 2), ONES, ONES, 0 * ONES, ONES, False, 0.1, 1e-5),
        ),
    ],
)
def test_results_have_pytorchs_dtypes(name: str, args: tuple[Any, ...]) -> None:
    def leaves(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, tuple) else (x,)

    given = args[-1] if isinstance(args[-1], dict) else {}
    args = args[: len(args) - bool(given)]
    ours = [torch.from_dlpack(t) for t in leaves(ow.call_aten(f"aten.{name}", *args, **given))]
    for mine, other in zip(ours, leaves(overload(f"aten.{name}")(*args, **given)), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_weight_that_is_a_number_is_not_rounded_to_a_half_type() -> None:
    a, b = torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([-1.515625], dtype=torch.bfloat16)
    assert (
        ow.call_aten("aten.lerp.Scalar", a, b, 0.4).item()
        == torch.lerp(a, b, 0.4).item()
        == -0.006256103515625
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "number"),
    [
        *((n, s) for n in ("mul.Tensor", "div.Tensor", "mul_.Tensor", "mul.Scalar") for s in (0.7123, 257)),
        *(
            (n, torch.tensor(0.7123).to(d))
            for n in ("mul.Tensor", "div.Tensor", "mul_.Tensor")
            for d in (torch.float32, torch.float64)
        ),
    ],
)
def test_a_number_beside_halves_is_of_the_width_that_is_computed_in(
    dtype: torch.dtype, name: str, number: Any
) -> None:
    x = torch.linspace(-3, 3, 97).to(dtype)
    want = overload(f"aten.{name}")(x.clone(), number)
    assert torch.from_dlpack(ow.call_aten(f"aten.{name}", x.clone(), number)).equal(want)


def test_what_cancels_in_a_transform_of_half_turns_is_nothing() -> None:
    x = torch.tensor([0, 1j, 0, 0, 0], dtype=torch.complex64)
    assert ow.call_aten("aten._fft_c2r.default", x, [0], 0, 8).numpy()[4] == 0


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


PLACES = torch.tensor([[0, 1, 1, 0, 2], [2, 2, 0, 1, 1]])
SMALL: dict[str, tuple[Any, ...]] = {
    "atleast_2d.Sequence": ([X, torch.tensor(3.0)],),
    "bucketize.Tensor": (X, torch.tensor([-1.0, 0.0, 1.0]), {"out_int32": True}),
    "isin.Scalar_Tensor": (1.0, torch.tensor([1.0, 2.0])),
    "linalg_diagonal.default": (X, {"offset": 1}),
    "max_unpool2d.default": (random(1, 2, 2), torch.tensor([[[0, 3], [9, 15]]]), [4, 4]),
    "narrow.Tensor": (X, 1, torch.tensor(1), 2),
    "scatter.reduce": (X, 0, PLACES, random(2, 5), {"reduce": "add"}),
    "scatter.value_reduce": (X, 0, PLACES, 2.0, {"reduce": "multiply"}),
    "tensor_split.tensor_indices_or_sections": (X, torch.tensor([1, 3]), 1),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_laid_out_again(name: str) -> None:
    *given, last = SMALL[name]
    named = last if isinstance(last, dict) else {}
    given = given if named else [*given, last]
    got, want = (
        f(*given, **named) for f in (partial(ow.call_aten, f"aten.{name}"), overload(f"aten.{name}"))
    )
    pairs = zip(*((tuple(x) if isinstance(x, tuple | list) else (x,)) for x in (got, want)), strict=True)
    for mine, theirs in pairs:
        assert mine.numpy().dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.nightly
def test_dropped_weights_and_channels_keep_their_mean() -> None:
    ow.random.manual_seed(1)
    ones = torch.ones(1, 4, 300, 8)
    drawn = ow.call_aten("aten.scaled_dot_product_attention.default", ones, ones, ones, None, 0.25).numpy()
    assert abs(drawn.mean() - 1) < 5 * (0.25 / 0.75 / 300 / 1200) ** 0.5 and drawn.std() > 0
    z = ow.call_aten("aten.alpha_dropout.default", random(20_000), 0.3, True).numpy()
    assert abs(z.mean()) < 0.05 and abs(z.std() - 1) < 0.05


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


@pytest.mark.nightly
def test_attention_with_the_logarithms_of_its_sums() -> None:
    q, k, v = random(1, 2, 5, 4), random(1, 2, 5, 4) + 1, random(1, 2, 5, 4)
    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    got, want = (f(q, k, v, 0.0, True) for f in (partial(ow.call_aten, name), overload(name)))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("empty_permuted.default", ([2, 3], [0, 3])),
        ("fft_fft.default", (torch.tensor(1.0),)),
        ("multinomial.default", (torch.zeros(3), 1)),
        ("multinomial.default", (torch.tensor([1.0, -1.0]), 1)),
        ("native_layer_norm.default", (X, [], None, None, 1e-5)),
    ],
)
def test_what_pytorch_refuses_is_refused_in_words(name: str, args: Any) -> None:
    with pytest.raises(
        OpTypeError, match=rf"^aten\.{name} is not supplied for these arguments: .*[a-z]"
    ) as found:
        ow.call_aten(f"aten.{name}", *args)
    assert found.value.__cause__ is None  # a front that stumbled would be the cause
