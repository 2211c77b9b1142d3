"""How the judge stores numbers: one NumPy storage type per dtype, correct rounding, exactness tests, conversions.

Floats are kept as float64 and complex as complex128 whatever their dtype; integers and bools in their own width, so
that they wrap and are never evaluated in float64.

May import: numpy, ml_dtypes, generator.types.  To add a dtype: a row in `STORAGE`, in `ARRAY` and in `_FORMAT`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..generator.types import DType

__all__ = [
    "ARRAY",
    "STORAGE",
    "U64",
    "Array",
    "dtype_of",
    "from_array",
    "is_representable",
    "least",
    "lowest_unit",
    "philox4x32",
    "precision",
    "product_is_exact",
    "round_to",
    "sum_error",
    "to_array",
    "to_integer",
]

Array = npt.NDArray[Any]

#: Unit roundoff of the oracle itself.
U64 = 2.0**-53

#: What the oracle computes in.
STORAGE: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.U8: np.dtype(np.uint8),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.F16: np.dtype(np.float64),
    DType.BF16: np.dtype(np.float64),
    DType.F32: np.dtype(np.float64),
    DType.F64: np.dtype(np.float64),
    DType.C64: np.dtype(np.complex128),
    DType.C128: np.dtype(np.complex128),
}

#: What tensors of a dtype are made of outside (operands, kernels' outputs).
ARRAY: dict[DType, np.dtype[Any]] = STORAGE | {
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F32: np.dtype(np.float32),
    DType.C64: np.dtype(np.complex64),
}
_DTYPES = {array: dtype for dtype, array in ARRAY.items()}

#: Significant bits and lowest exponent of a normal number (value = 1.xxx * 2**e).
_FORMAT = {
    DType.F16: (11, -14),
    DType.BF16: (8, -126),
    DType.F32: (24, -126),
    DType.F64: (53, -1022),
    DType.C64: (24, -126),
    DType.C128: (53, -1022),
}


def least(dtype: DType) -> float:
    """What one rounding near zero may be off by: half of the smallest subnormal (of f64, which has no half, all)."""
    return dtype.eta or 2.0**-1074


def dtype_of(array: Array) -> DType:
    """The dtype of an array; raises KeyError for types outside the language."""
    return _DTYPES[array.dtype]


def precision(dtype: DType) -> int:
    """Significant bits of an inexact dtype."""
    return _FORMAT[dtype][0]


def from_array(array: Array, dtype: DType) -> Array:
    """An array as the oracle stores it, after rounding it once to `dtype` when it is of another type."""
    if array.dtype == ARRAY[dtype]:
        return np.asarray(array, dtype=STORAGE[dtype])
    have = dtype_of(array)
    if not dtype.is_inexact:
        return to_integer(np.asarray(array, STORAGE[have]), dtype)
    if have.is_integer and dtype in (DType.F16, DType.BF16, DType.F32):
        array = array.astype(np.float32)  # one rounding to f32; the half types round again, as PyTorch does
    return round_to(np.asarray(array, dtype=STORAGE[dtype]), dtype)


def to_array(value: Array, dtype: DType) -> Array:
    """Stored values as a tensor of `dtype`, correctly rounded; the inverse of `from_array`."""
    if not dtype.is_inexact:
        return to_integer(value, dtype)
    with np.errstate(all="ignore"):
        return round_to(np.asarray(value, STORAGE[dtype]), dtype).astype(ARRAY[dtype])


def round_to(v: Array, dtype: DType) -> Array:
    """Round to nearest even in `dtype`, overflow to inf, subnormals kept; the result is stored as float64."""
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            v = np.asarray(v, np.complex128)
            return v if dtype is DType.C128 else v.astype(np.complex64).astype(np.complex128)
        v = np.asarray(v, np.float64)
        if dtype is DType.F64:
            return v
        if dtype is DType.F32:
            return v.astype(np.float32).astype(np.float64)
        if dtype is DType.F16:
            return v.astype(np.float16).astype(np.float64)
        bits, lowest = _FORMAT[dtype]
        exponent = np.maximum(np.frexp(v)[1] - 1, lowest) - (bits - 1)
        rounded = np.ldexp(np.rint(np.ldexp(v, -exponent)), exponent)
        out = np.where(np.abs(rounded) > dtype.max, np.copysign(np.inf, v), rounded)
        return np.where(np.isfinite(v), out, v)


def is_representable(v: Array, dtype: DType) -> Array:
    """Where a stored value is a value of `dtype` (inf and nan are)."""
    if dtype.is_complex:
        return is_representable(v.real, _REAL[dtype]) & is_representable(v.imag, _REAL[dtype])
    if dtype is DType.F64:
        return np.ones(np.shape(v), np.bool_)
    return np.asarray((round_to(v, dtype) == v) | ~np.isfinite(v))


_REAL = {DType.C64: DType.F32, DType.C128: DType.F64}


def sum_error(a: Array, b: Array, s: Array) -> Array:
    """What float64 addition lost: a + b = s + error exactly, for finite values without overflow (Knuth's TwoSum)."""
    t = s - a
    return np.asarray((a - (s - t)) + (b - t))


def product_is_exact(a: Array, b: Array, p: Array) -> Array:
    """Where `p`, the float64 product of a and b, is their exact product (never claimed near over- and underflow)."""
    split = 134217729.0  # 2**27 + 1 (Dekker)
    with np.errstate(all="ignore"):
        ca, cb = split * a, split * b
        ah = ca - (ca - a)
        bh = cb - (cb - b)
        al, bl = a - ah, b - bh
        error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
        safe = (np.abs(a) < 1e290) & (np.abs(b) < 1e290) & (np.abs(p) > 1e-290)
    return np.asarray((safe & (error == 0)) | ((a == 0) | (b == 0)))


def lowest_unit(v: Array) -> Array:
    """The value of the lowest set bit of each finite number; inf for zeros (they are multiples of every unit)."""
    m, e = np.frexp(np.abs(v))
    bits = (m * 2.0**53).astype(np.int64)
    low = (bits & -bits).astype(np.float64)
    return np.where(bits == 0, np.inf, np.ldexp(low, e - 53))


def to_integer(v: Array, dtype: DType) -> Array:
    """Conversion to bool or an integer type, defined for every value.

    bool: v != 0 (nan is true).  Integers wrap.  A float is cut towards zero; nan and what does not fit give the lowest
    value of i32 (for i32) or i64 (for i64); narrower types take the low bits of the conversion to i64.  That is what
    PyTorch's CPU kernels give on x86 (cvttss2si).
    """
    v = np.asarray(v)
    if dtype is DType.BOOL:
        return np.asarray(v != 0)
    target = STORAGE[dtype]
    if v.dtype.kind in "biu":
        return v.astype(target)
    if v.dtype.kind == "c":
        v = v.real
    wide = DType.I32 if dtype is DType.I32 else DType.I64
    low, high = float(wide.min), -float(wide.min)
    with np.errstate(invalid="ignore"):
        cut = np.trunc(v)
        fits = (cut >= low) & (cut < high)
        whole = np.where(fits, cut, low).astype(STORAGE[wide])
    return whole.astype(target)


_PHILOX_M = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_W = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def philox4x32(seed: Array, offset: Array) -> tuple[Array, Array, Array, Array]:
    """Philox 4x32-10 (Salmon et al., SC'11): four u32 words, held in i64.

    key = (low, high) word of `seed`; counter = (low, high word of `offset`, 0, 0).
    """
    key = np.asarray(seed).astype(np.uint64)
    at = np.asarray(offset).astype(np.uint64)
    k0, k1 = key & _LOW, key >> np.uint64(32)
    c0, c1 = np.broadcast_arrays(at & _LOW, at >> np.uint64(32), key)[:2]
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    for step in range(10):
        r0 = (k0 + np.uint64(step * _PHILOX_W[0] & 0xFFFFFFFF)) & _LOW
        r1 = (k1 + np.uint64(step * _PHILOX_W[1] & 0xFFFFFFFF)) & _LOW
        p0, p1 = _PHILOX_M[0] * c0, _PHILOX_M[1] * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ r0,
            p1 & _LOW,
            (p0 >> np.uint64(32)) ^ c3 ^ r1,
            p0 & _LOW,
        )
    return (c0.astype(np.int64), c1.astype(np.int64), c2.astype(np.int64), c3.astype(np.int64))
