"""The call convention `runtime/include/opwright/abi.h` as the judge sees it: ctypes mirrors and a builder of calls.

Used on both sides of the sandbox, so it imports the standard library only; the one function that takes NumPy
arrays reads nothing but their public attributes.  To add a field of `OwCall`: append it in abi.h, here in
`OwCall`, and raise `ABI` with it; tests/validators/test_abi.py compares every offset with the compiler's.

`strides` and `offset` of tensors are in elements, `shape` is the physical one.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ABI",
    "DTYPES",
    "ERRORS",
    "MAX_RANK",
    "Kernel",
    "OwAttr",
    "OwCall",
    "OwError",
    "OwShape",
    "OwTensor",
    "PlacedTensor",
    "build_call",
    "encode_attr",
    "error_name",
    "tile_flag",
    "tiles_here",
]

ABI = 1
MAX_RANK = 16
CPU = 1
#: A bit of `OwCall.flags`: kernels may use the processor's tiles.
OW_TILES = 0x40000000

OK = 0
#: Status names of abi.h.
ERRORS: dict[str, int] = {
    "OK": 0,
    "REQUIRE": 1,
    "SHAPE": 2,
    "RANK": 3,
    "AXIS": 4,
    "INDEX": 5,
    "OVERLAP": 6,
    "WORKSPACE": 7,
    "DATA": 8,
    "ABI": 9,
}

#: dtype name -> (DLPack code, bits)
DTYPES: dict[str, tuple[int, int]] = {
    "bool": (6, 8),
    "u8": (1, 8),
    "i8": (0, 8),
    "i16": (0, 16),
    "i32": (0, 32),
    "i64": (0, 64),
    "f16": (2, 16),
    "bf16": (4, 16),
    "f32": (2, 32),
    "f64": (2, 64),
    "c64": (5, 64),
    "c128": (5, 128),
}


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPES[dtype][1] // 8


def error_name(status: int) -> str:
    """`OW_E_SHAPE` for 2, and the number itself for what abi.h does not name."""
    for name, code in ERRORS.items():
        if code == status:
            return "OW_OK" if code == 0 else f"OW_E_{name}"
    return str(status)


class OwDevice(ctypes.Structure):
    _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class OwDType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class OwTensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device", OwDevice),
        ("ndim", c_int32),
        ("dtype", OwDType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class OwError(ctypes.Structure):
    _fields_ = (
        ("code", c_int32),
        ("which", c_int32),
        ("arg", c_int32),
        ("axis", c_int32),
        ("want", c_int64),
        ("got", c_int64),
    )


class OwAttr(ctypes.Structure):
    _fields_ = (("count", c_int64), ("i", ctypes.POINTER(c_int64)), ("f", ctypes.POINTER(c_double)))


class OwShape(ctypes.Structure):
    _fields_ = (("rank", c_int32), ("pad", c_int32), ("dim", c_int64 * MAX_RANK))


class OwCall(ctypes.Structure):
    _fields_ = (
        ("abi", c_uint32),
        ("n_in", c_int32),
        ("n_out", c_int32),
        ("n_attr", c_int32),
        ("inputs", ctypes.POINTER(ctypes.POINTER(OwTensor))),
        ("list_len", ctypes.POINTER(c_int32)),
        ("out", ctypes.POINTER(ctypes.POINTER(OwTensor))),
        ("attr", ctypes.POINTER(OwAttr)),
        ("shapes", ctypes.POINTER(OwShape)),
        ("workspace", c_void_p),
        ("workspace_bytes", c_int64),
        ("stream", c_void_p),
        ("error", ctypes.POINTER(OwError)),
        ("parallel", c_void_p),
        ("pool", c_void_p),
        ("max_threads", c_int32),
        ("flags", c_int32),
    )


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor at an address: `address` is that of element 0, `strides` in elements."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of_array(cls, array: Any, dtype: str) -> PlacedTensor:
        """The view of a NumPy array, whatever its strides.  The caller keeps the array alive."""
        size = itemsize(dtype)
        if array.itemsize != size or any(s % size for s in array.strides):
            raise ValueError(f"an array of {array.dtype} is not a tensor of {dtype}")
        strides = tuple(s // size for s in array.strides)
        return cls(array.__array_interface__["data"][0], dtype, tuple(array.shape), strides)


#: One attribute as it crosses the boundary: None when absent, else its values as integers and as floats.
EncodedAttr = tuple[list[int], list[float]] | None

_INT_LIMIT = 2**63


def encode_attr(value: object) -> EncodedAttr:
    """A Python attribute value (None, bool, int, float, or a sequence of them) as `OwAttr` carries it."""
    if value is None:
        return None
    items = list(value) if isinstance(value, list | tuple) else [value]
    ints, floats = [], []
    for item in items:
        if not isinstance(item, bool | int | float):
            raise TypeError(f"an attribute holds numbers, not {type(item).__name__}")
        floats.append(float(item))
        # A float's integer half is what a cast would give; where there is none it is 0 and never read.
        whole = item == item and abs(item) < _INT_LIMIT
        ints.append(int(item) if whole else 0)
    return ints, floats


class Call:
    """An `OwCall` and everything it points to, kept alive together."""

    def __init__(self, raw: OwCall, error: OwError, shapes: Any, keep: list[Any]) -> None:
        self.raw, self.error, self.shapes, self._keep = raw, error, shapes, keep

    def words(self) -> list[bytes]:
        """What a kernel is told of its tensors and attributes, and may not change."""
        told = [bytes(part) for part in self._keep if part is not None]
        return [bytes(self.raw), *told]

    def output_shapes(self) -> list[list[int]]:
        """What infer wrote."""
        return [list(s.dim[: min(max(s.rank, 0), MAX_RANK)]) for s in self.shapes[: self.raw.n_out]]

    def error_fields(self) -> dict[str, int]:
        e = self.error
        return {name: getattr(e, name) for name in ("code", "which", "arg", "axis", "want", "got")}


def _tensors(entries: Sequence[PlacedTensor | None], keep: list[Any]) -> Any:
    pointers = (ctypes.POINTER(OwTensor) * max(len(entries), 1))()
    for k, t in enumerate(entries):
        if t is None:
            continue
        if len(t.shape) != len(t.strides) or len(t.shape) > MAX_RANK:
            raise ValueError(f"shape {t.shape} and strides {t.strides} do not make a tensor")
        code, bits = DTYPES[t.dtype]
        shape = (c_int64 * max(len(t.shape), 1))(*t.shape)
        strides = (c_int64 * max(len(t.strides), 1))(*t.strides)
        raw = OwTensor(t.address, OwDevice(CPU, 0), len(t.shape), OwDType(code, bits, 1), shape, strides, 0)
        pointers[k] = ctypes.pointer(raw)
        keep += [shape, strides, raw]
    keep.append(pointers)
    return pointers


def tiles_here() -> str:
    """What a verdict's `place` says of the machine's tiles, where a text can use them."""
    return "amx" if tile_flag() else "none"


@functools.cache
def tile_flag() -> int:
    """OW_TILES of pairs.h where this process may use the processor's tiles, else 0.  Asks Linux once, as the runtime
    does; before /proc is out of reach."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return 0
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            features = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        return 0
    if not {"amx_tile", "amx_bf16"} <= set(features):
        return 0
    arch_prctl, request, tile_data = 158, 0x1023, 18
    granted = ctypes.CDLL(None).syscall(
        ctypes.c_long(arch_prctl), ctypes.c_long(request), ctypes.c_long(tile_data)
    )
    return OW_TILES if granted == 0 else 0


def build_call(
    inputs: Sequence[PlacedTensor | None],
    outputs: Sequence[PlacedTensor | None],
    attrs: Sequence[EncodedAttr] = (),
    *,
    list_len: Sequence[int] = (),
    workspace: tuple[int, int] = (0, 0),
    parallel: int = 0,
    threads: int = 1,
    flags: int = 0,
    tiles: bool = True,
    version: int = ABI,
    owner: int = 0,
) -> Call:
    """One call.  `workspace` is (address, bytes), `parallel` the address of an `OwParallelFor` or 0; `tiles`: the
    kernel may use the processor's, where there are any; `owner`: what the call says of its pool and its stream."""
    keep: list[Any] = []
    values = (OwAttr * max(len(attrs), 1))()
    for k, attr in enumerate(attrs):
        if attr is None:
            values[k].count = -1
            continue
        ints, floats = attr
        i, f = (c_int64 * max(len(ints), 1))(*ints), (c_double * max(len(floats), 1))(*floats)
        values[k] = OwAttr(len(ints), i, f)
        keep += [i, f]
    lens = (c_int32 * len(list_len))(*list_len) if list_len else None
    shapes = (OwShape * max(len(outputs), 1))()
    error = OwError(which=-1, arg=-1, axis=-1)
    raw = OwCall(
        abi=version,
        n_in=len(inputs),
        n_out=len(outputs),
        n_attr=len(attrs),
        inputs=_tensors(inputs, keep),
        list_len=lens,
        out=_tensors(outputs, keep),
        attr=values,
        shapes=shapes,
        workspace=workspace[0] or None,
        workspace_bytes=workspace[1],
        error=ctypes.pointer(error),
        stream=owner or None,
        parallel=parallel or None,
        pool=owner or None,
        max_threads=threads,
        flags=flags | (tile_flag() if tiles else 0),
    )
    keep += [values, lens]
    return Call(raw, error, shapes, keep)


class Kernel:
    """The three entries of one symbol in a loaded library.  Raises AttributeError when one is missing."""

    def __init__(self, library: ctypes.CDLL, symbol: str) -> None:
        pointer = ctypes.POINTER(OwCall)

        def entry(name: str, result: type[c_int32] | type[c_int64]) -> Callable[[Any], int]:
            fn = getattr(library, name)
            fn.argtypes, fn.restype = [pointer], result
            call: Callable[[Any], int] = fn
            return call

        self._run = entry(symbol, c_int32)
        self._infer = entry(f"{symbol}_infer", c_int32)
        self._workspace = entry(f"{symbol}_workspace", c_int64)

    @property
    def address(self) -> int:
        """Where the kernel itself begins."""
        return ctypes.cast(self._run, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def run(self, call: Call) -> int:
        return self._run(ctypes.byref(call.raw))

    def infer(self, call: Call) -> int:
        return self._infer(ctypes.byref(call.raw))

    def workspace(self, call: Call) -> int:
        """Bytes, or minus the status."""
        return self._workspace(ctypes.byref(call.raw))
