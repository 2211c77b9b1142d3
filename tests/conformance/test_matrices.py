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


C = torch.tensor([[1 + 2j, 0, 3j], [0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("any.dims", (C, [0, 1])),
        ("any.dims", (C, None, True)),
        ("all.dims", (C, [0])),
        ("all.dims", (C, [])),
        ("equal.default", (C, C)),
        ("equal.default", (C, C + 1)),
        ("block_diag.default", ([C, torch.ones(2, 2)],)),
        ("cat.default", ([torch.ones(2), torch.ones(3).double()],)),
        ("cat.default", ([torch.ones(2), torch.ones(3, dtype=torch.complex64)],)),
        ("cat.default", ([torch.ones(2).int(), torch.ones(3).half()],)),
        ("stack.default", ([torch.ones(2).bool(), torch.ones(2).long()], 1)),
        ("searchsorted.Tensor", (torch.tensor([1, 2, 3]), torch.tensor([1.5, 2.5, torch.nan]))),
        ("searchsorted.Tensor", (torch.tensor([1.0, 2.7]).double(), torch.tensor([2.7, 0.0]))),
        ("searchsorted.Scalar", (torch.tensor([1, 2, 3]), 1.5)),
        ("bucketize.Tensor", (torch.tensor([1.5, 2.5]), torch.tensor([1, 2, 3]))),
        ("bucketize.Scalar", (1.5, torch.tensor([1, 2, 3]))),
        ("constant_pad_nd.default", (C, [1, 2], 1 + 2j)),
        ("constant_pad_nd.default", (C, [1, 0, -1, 1], 3j)),
        ("masked_fill.Scalar", (C, C.real > 0, 1j)),
        ("masked_fill.Tensor", (C, C.real > 0, torch.tensor(1j))),
        ("full_like.default", (torch.ones(2), 1 + 0j)),
        ("ldexp.Tensor", (C, torch.tensor(2))),
        ("ldexp.Tensor", (torch.ones(3), C)),
        ("l1_loss.default", (C, C * 2j)),
        ("sum_to_size.default", (torch.tensor(3, dtype=torch.int32), [])),
    ],
)
def test_what_moves_complex_numbers_or_mixes_dtypes(name: str, args: tuple[Any, ...]) -> None:
    want = overload(f"aten.{name}")(*args)
    got = ow.call_aten(f"aten.{name}", *args)
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    torch.testing.assert_close(torch.from_dlpack(got), want)


@pytest.mark.parametrize("name", ["constant_pad_nd.default", "masked_fill.Scalar"])
def test_no_imaginary_part_is_lost_in_a_real_tensor(name: str) -> None:
    second = [1, 0] if name.startswith("constant") else torch.tensor([True, False])
    with pytest.raises(TypeError, match="a complex number does not fit into f32"):
        ow.call_aten(f"aten.{name}", torch.ones(2), second, 1j)


def test_nan_is_the_largest_of_a_sorted_row() -> None:
    """As to NumPy; PyTorch's bisection looks right of a nan, and finds [3, 3, 3]."""
    row, x = torch.tensor([1.0, torch.nan, torch.nan]), torch.tensor([0.5, 1.0, torch.nan])
    for right, want in ((False, [0, 0, 1]), (True, [0, 1, 3])):
        assert ow.call_aten("aten.searchsorted.Tensor", row, x, right=right).numpy().tolist() == want
