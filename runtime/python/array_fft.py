"""The array API standard's extension `fft`.  See array_api.py.

May import: `.aten`, `.exceptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from .aten import call_aten
from .exceptions import OpValueError

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

Tensor: TypeAlias = Any


def _one(name: str, x: Tensor, n: int | None, axis: int, norm: str) -> Tensor:
    return call_aten(f"aten.fft_{name}.default", x, n, axis, norm)


def _many(name: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str) -> Tensor:
    listed = None if s is None else list(s)
    return call_aten(f"aten.fft_{name}.default", x, listed, None if axes is None else list(axes), norm)


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis."""
    return _one("fft", x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Its inverse."""
    return _one("ifft", x, n, axis, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of real numbers: the half that says all."""
    return _one("rfft", x, n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`."""
    return _one("irfft", x, n, axis, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of numbers whose other half is their conjugate."""
    return _one("hfft", x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return _one("ihfft", x, n, axis, norm)


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The transform along several axes."""
    return _many("fftn", x, s, axes, norm)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """Its inverse."""
    return _many("ifftn", x, s, axes, norm)


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The transform of real numbers along several axes."""
    return _many("rfftn", x, s, axes, norm)


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The inverse of `rfftn`."""
    return _many("irfftn", x, s, axes, norm)


def _here(device: Any) -> None:
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise OpValueError(f"the device must be cpu, got {device}", hint="there is one device here, cpu")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of n samples, d apart."""
    _here(device)
    return call_aten("aten.fft_fftfreq.default", n, d, dtype=dtype or "f32")


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Those of a transform of real samples."""
    _here(device)
    return call_aten("aten.fft_rfftfreq.default", n, d, dtype=dtype or "f32")


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The frequency 0 moved to the middle."""
    return call_aten("aten.fft_fftshift.default", x, [axes] if isinstance(axes, int) else axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Moved back."""
    return call_aten("aten.fft_ifftshift.default", x, [axes] if isinstance(axes, int) else axes)
