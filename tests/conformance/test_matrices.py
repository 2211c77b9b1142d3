"""Factors, solutions and eigenvalues of matrices, and functions of complex numbers, as PyTorch has them in f64.

Kernels of f64 and c128 that nothing else uses are compiled here, so most of it runs at night.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import opwright as ow  # noqa: E402
from opwright.complexes import COMPLEXES  # noqa: E402
from opwright.exceptions import OpError, OpTypeError  # noqa: E402

from .replay import bridge  # noqa: E402
from .torch_samples import overload  # noqa: E402

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def served() -> None:
    bridge()


def random(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def close(got: Any, want: Any, unit: float = 1e-10) -> None:
    a, b = got.numpy(), want.resolve_conj().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=unit, atol=unit * max(1.0, np.abs(b).max(initial=0.0)))


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    return ow.call_aten(f"aten.{name}", *args, **kwargs)


def test_a_system_is_solved() -> None:
    a, b = random(2, 3, 3), random(3, 2)
    close(call("linalg_solve.default", a, b), torch.linalg.solve(a, b))
    close(call("linalg_solve.default", a.float(), b.float()), torch.linalg.solve(a, b).float(), 1e-4)


def test_a_singular_matrix_is_one_clear_error() -> None:
    a = torch.ones(2, 3, 3, dtype=torch.float64)
    with pytest.raises(OpError, match=r"^aten\.linalg_inv\.default: .*singular"):
        call("linalg_inv.default", a)
    assert call("linalg_inv_ex.default", a)[1].numpy().tolist() == [2, 2]
    with pytest.raises(OpTypeError, match=r"`A` must be square"):
        call("linalg_inv.default", a[:, :2])


MATRICES = {
    "cholesky_inverse.default": lambda a: (torch.linalg.cholesky(a @ a.mH),),
    "cholesky_solve.default": lambda a: (a, torch.linalg.cholesky(a @ a.mH)),
    "geqrf.default": lambda a: (a[:, :2],),
    "linalg_cholesky_ex.default": lambda a: (a @ a.mH,),
    "linalg_det.default": lambda a: (a,),
    "linalg_eigvalsh.default": lambda a: (a + a.mH,),
    "linalg_inv.default": lambda a: (a,),
    "linalg_lstsq.default": lambda a: (a[:, :, :2], a),
    "linalg_lu_factor_ex.default": lambda a: (a[:, :2],),
    "linalg_matrix_exp.default": lambda a: (a,),
    "linalg_pinv.default": lambda a: (a[:, :2], 1e-12),
    "linalg_qr.default": lambda a: (a[:, :, :2],),
    "linalg_slogdet.default": lambda a: (a,),
    "linalg_svdvals.default": lambda a: (a[:, :2],),
    "triangular_solve.default": lambda a: (a, a, False, True),
}


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str, dtype: Any) -> None:
    args = MATRICES[name](random(2, 3, 3, dtype=dtype))
    got, want = call(name, *args), overload(f"aten.{name}")(*args)
    for mine, theirs in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        close(mine, theirs)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_what_has_no_single_answer_is_put_together_again(dtype: Any) -> None:
    a = random(2, 4, 3, dtype=dtype)
    a[1, :, 2] = a[1, :, 0]  # of rank 2
    u, s, vh = (torch.from_numpy(x.numpy()) for x in call("linalg_svd.default", a, True))
    torch.testing.assert_close((u[..., :3] * s[..., None, :]) @ vh, a)
    torch.testing.assert_close(u.mH @ u, torch.eye(4, dtype=dtype).expand(2, 4, 4))
    h = a.mH @ a
    w, v = (torch.from_numpy(x.numpy()) for x in call("linalg_eigh.default", h))
    torch.testing.assert_close(h @ v, v * w[..., None, :])
    w, v = (torch.from_numpy(x.numpy()) for x in call("linalg_eig.default", a[:, :3]))
    torch.testing.assert_close(a[:, :3].to(v.dtype) @ v, v * w[..., None, :])


def test_the_adjoint_of_a_complex_matrix_is_conjugated() -> None:
    z = random(2, 3, dtype=torch.complex64)
    for name in ("mH", "adjoint"):
        close(call(f"{name}.default", z), z.mH)


def test_a_norm_of_any_order() -> None:
    x = random(4, 3).float()
    for p in (0.5, 3.0, -2.0):
        close(call("linalg_vector_norm.default", x, p, [1]), torch.linalg.vector_norm(x, p, 1), 1e-5)


POINTS = torch.tensor(
    [0.3 - 2j, -1.5 + 0.25j, 1e-9 + 1e-9j, 1 + 0j, -2 + 0j, -2 - 0.0j, 40 + 3j, 0.5j, -3e5 - 2e4j]
)


def functions() -> list[str]:
    return sorted(o for o in COMPLEXES if o.endswith(".default") and len(overload(o)._schema.arguments) == 1)


@pytest.mark.parametrize("name", ["aten.abs.default", "aten.exp.default", "aten.sqrt.default"])
def test_functions_of_complex_numbers(name: str) -> None:
    close(call(name.removeprefix("aten."), POINTS[:7]), overload(name)(POINTS[:7]), 2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", functions())
def test_all_functions_of_complex_numbers(name: str) -> None:
    far = any(part in name for part in ("exp", "sinh", "cosh", "sigmoid", "silu"))  # where PyTorch overflows
    z = POINTS[:6] if far else POINTS
    got = call(name.removeprefix("aten."), z).numpy()
    want = overload(name)(z.to(torch.complex128)).to(overload(name)(z).dtype).numpy()
    assert got.dtype == want.dtype
    if got.dtype == bool:
        assert (got == want).all()
    else:
        np.testing.assert_allclose(got, want, rtol=2e-6)
