"""Special functions that are made of series, fractions and recurrences, as PyTorch says in f64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import opwright as ow  # noqa: E402
from opwright.special import SPECIAL  # noqa: E402

from .replay import bridge  # noqa: E402
from .torch_samples import overload  # noqa: E402

pytestmark = pytest.mark.conformance

X = torch.tensor([-2.5, -1.0, -0.3, 0.0, 0.4, 1.0, 1.7, 6.0, 30.0], dtype=torch.float64)
N = torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.0, 11.0, 3.7, 4.0, 2.0], dtype=torch.float64)
POSITIVE = torch.tensor([0.0, 1e-3, 0.5, 1.0, 3.0, 20.0, np.inf], dtype=torch.float64)


@pytest.fixture(autouse=True)
def served() -> None:
    bridge()


def given(name: str) -> tuple[Any, ...]:
    if "gamma" in name and "poly" not in name:
        return (POSITIVE[:, None], POSITIVE)
    if "polygamma" in name:
        return (3, X[4:])
    if "zeta" in name:
        return (torch.tensor([[1.0], [1.5], [4.0]], dtype=torch.float64), POSITIVE[1:-1])
    return (X, N) if "polynomial" in name else (X,)


def check(name: str) -> None:
    args = given(name)
    got, want = ow.call_aten(name, *args).numpy(), overload(name)(*args).numpy()
    # PyTorch's J has eight digits between 5 and 25.
    np.testing.assert_allclose(
        got, want, rtol=1e-6 if "bessel_j" in name else 1e-11, atol=1e-8 if "bessel_j" in name else 1e-13
    )


def test_a_share_of_the_gamma_function() -> None:
    check("aten.igamma.default")


def test_a_polynomial_of_many_degrees() -> None:
    check("aten.special_legendre_polynomial_p.default")


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(o for o in SPECIAL if o.endswith(".default")))
def test_as_pytorch_says(name: str) -> None:
    check(name)


@pytest.mark.nightly
def test_bessel_functions_of_the_second_kind() -> None:
    x = np.array([1e-3, 0.5, 3.0, 20.0, 26.5, 1000.0])
    want = {  # mpmath's, to the last place
        "y0": [-4.471416611376044, -0.4445187335067066, 0.3768500100127904, 0.06264059680938384],
        "y1": [-636.6221672311393, -1.4714723926702430, 0.3246744247918000, -0.1655116143625211],
    }
    for name, numbers in want.items():
        got = ow.call_aten(f"aten.special_bessel_{name}.default", x).numpy()
        np.testing.assert_allclose(got[:4], numbers, rtol=1e-13, atol=1e-15)
        theirs = getattr(torch.special, f"bessel_{name}")(torch.from_numpy(x))
        np.testing.assert_allclose(got[4:], theirs.numpy()[4:], rtol=1e-12)


def test_a_bessel_function_to_the_last_digits() -> None:
    """J0, from tables: PyTorch's own has eight of them."""
    got = ow.call_aten("aten.special_bessel_j0.default", np.array([1.0, 5.0, 10.0])).numpy()
    np.testing.assert_allclose(
        got, [0.7651976865579666, -0.1775967713143383, -0.2459357644513483], rtol=1e-13
    )


@pytest.mark.nightly
def test_a_share_of_the_gamma_function_where_both_are_large() -> None:
    """P(150, 150), by mpmath; PyTorch's expansion has nine digits there."""
    got = ow.call_aten("aten.igamma.default", *(np.array(150.0),) * 2).numpy()
    np.testing.assert_allclose(got, 0.510858229749359685, rtol=2e-13)
