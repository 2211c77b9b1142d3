"""The array API standard's extension `linalg`, and the products of its main namespace.  See array_api.py.

May import: `.aten`, `.exceptions`, `.load`, `.methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from .aten import call_aten
from .exceptions import OpValueError
from .methods import apply, op

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip

Tensor: TypeAlias = Any


class Eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class Slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of matrices and vectors."""
    return call_aten("aten.matmul.default", x1, x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes swapped, a view."""
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Sums of products over axes of both."""
    if isinstance(axes, int):
        axes = (list(range(x1.ndim - axes, x1.ndim)), list(range(axes)))
    return call_aten("aten.tensordot.default", x1, x2, list(axes[0]), list(axes[1]))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of products along an axis; of complex numbers with the conjugate of the first."""
    if x1.shape[axis] != x2.shape[axis]:
        raise OpValueError(f"vecdot: extents {x1.shape[axis]} and {x2.shape[axis]} along axis {axis} differ")
    first = op("conj_physical")(x1) if x1.dtype in ("c64", "c128") else x1
    product = apply("mul", first, x2)
    return product.sum(axis, dtype=product.dtype)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The factor of a positive definite matrix."""
    return call_aten("aten.linalg_cholesky.default", x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of 3."""
    return call_aten("aten.linalg_cross.default", x1, x2, dim=axis)


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return call_aten("aten.linalg_det.default", x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of the last two axes."""
    return x.diagonal(offset, -2, -1)


def eigh(x: Tensor, /) -> Eigh:
    """Eigenvalues and eigenvectors of a symmetric or Hermitian matrix."""
    return Eigh(*call_aten("aten.linalg_eigh.default", x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of a symmetric or Hermitian matrix."""
    return call_aten("aten.linalg_eigvalsh.default", x)


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return call_aten("aten.linalg_inv.default", x)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices: "fro", "nuc", 1, 2, inf, or the least (negative) of these."""
    which = "str_ord" if isinstance(ord, str) else "default"
    return call_aten(f"aten.linalg_matrix_norm.{which}", x, ord, [-2, -1], keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A matrix times itself."""
    return call_aten("aten.linalg_matrix_power.default", x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above a tolerance."""
    values = svdvals(x)
    eps = {"f32": 2.0**-23, "f64": 2.0**-52}[values.dtype]
    relative = max(x.shape[-2:]) * eps if rtol is None else rtol
    relative = relative.unsqueeze(-1) if hasattr(relative, "unsqueeze") and relative.ndim else relative
    return (values > values.amax(-1, True) * relative).sum(-1)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Every element of one vector times every one of another."""
    return apply("mul", x1.unsqueeze(-1), x2.unsqueeze(0))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse."""
    if rtol is None:
        rtol = max(x.shape[-2:]) * (2.0**-52 if x.dtype in ("f64", "c128") else 2.0**-23)
    return call_aten("aten.linalg_pinv.atol_rtol_float", x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Orthonormal columns and a triangle."""
    if mode not in ("reduced", "complete"):
        raise OpValueError(f'qr: `mode` must be "reduced" or "complete", got {mode!r}')
    return QR(*call_aten("aten.linalg_qr.default", x, mode))


def slogdet(x: Tensor, /) -> Slogdet:
    """The determinant's sign and the logarithm of its size."""
    return Slogdet(*call_aten("aten.linalg_slogdet.default", x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What a matrix takes to the second argument: a vector, or columns."""
    return call_aten("aten.linalg_solve.default", x1, x2)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Singular values and vectors."""
    return SVD(*call_aten("aten.linalg_svd.default", x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values, the greatest first."""
    return call_aten("aten.linalg_svdvals.default", x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of the last two axes."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """A norm over axes, or over all elements."""
    return x.norm(ord, axis, keepdims)
