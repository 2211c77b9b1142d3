"""Specs, and a way to run their kernels: bind, emit, build many in one unit, call through ctypes."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from opwright import toolchain
from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp, KernelText
from opwright.generator.emit import emit, emit_unit
from opwright.generator.normal import normalise
from opwright.generator.spec import OpSpec, load_spec_text
from opwright.generator.types import DType, Operand
from opwright.validators import abi

Array = Any
NP: dict[str, Any] = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}
NAMES = {np.dtype(v): k for k, v in NP.items()}
#: OwChunk and OwParallelFor of abi.h; `fn` arrives as an address.
CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
PARALLEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


def spec_of(text: str) -> OpSpec:
    """A spec without the fields that kernels do not need."""
    if "grad:" not in text:
        text += "\ngrad: {none: not under test}\n"
    return load_spec_text(text)[0]


def dtype_of(a: Array) -> str:
    return NAMES[np.asarray(a).dtype]


def operands(inputs: dict[str, Any]) -> dict[str, Any]:
    def one(a: Array) -> Operand:
        return Operand(DType(dtype_of(a)), a.ndim)

    return {
        n: None if v is None else [one(a) for a in v] if isinstance(v, list) else one(v)
        for n, v in inputs.items()
    }


def bound(spec: OpSpec, inputs: dict[str, Any], attrs: dict[str, Any]) -> tuple[BoundOp, dict[str, Any]]:
    """The Normal program of a call, and its run-time attributes."""
    r = key_for_call(spec, operands(inputs), attrs)
    return normalise(bind(spec, r.key)), r.attrs


def dialect() -> str:
    return toolchain.native_dialect()


#: What a text means does not depend on how well it is optimised, and unoptimised it builds much faster.  By night
#: (and in every judge) the flags are those of a release.
FLAGS = tuple(os.environ.get("OPWRIGHT_TEST_FLAGS", "-O0").split())


class Library:
    """Kernels of one shared library, by symbol."""

    def __init__(
        self, texts: Iterable[KernelText], name: str, *, unit: int = 12, flags: tuple[str, ...] = ()
    ) -> None:
        distinct = list({t.symbol: t for t in texts}.values())
        groups = [distinct[i : i + unit] for i in range(0, len(distinct), unit)]
        jobs = [
            toolchain.CompileJob(
                {"kernels.cpp": emit_unit(g)}, f"{name} {k}", dialect(), ("-Wall", "-Werror", *FLAGS, *flags)
            )
            for k, g in enumerate(groups)
        ]
        self.of: dict[str, ctypes.CDLL] = {}
        for g, path in zip(groups, toolchain.compile_many(jobs, workers=2), strict=True):
            lib = ctypes.CDLL(str(path))
            for t in g:
                self.of[t.symbol] = lib

    def kernel(self, symbol: str) -> abi.Kernel:
        return abi.Kernel(self.of[symbol], symbol)


def placed(a: Array) -> abi.PlacedTensor:
    return abi.PlacedTensor.of_array(a, dtype_of(a))


class Refused(Exception):
    """A kernel's status other than OW_OK."""

    def __init__(self, status: int, fields: dict[str, int]) -> None:
        super().__init__(f"{abi.error_name(status)} {fields}")
        self.name = abi.error_name(status).removeprefix("OW_E_")
        self.fields = fields


def flat_inputs(spec: OpSpec, inputs: dict[str, Any]) -> tuple[list[Array | None], list[int]]:
    flat: list[Array | None] = []
    lens: list[int] = []
    for n, t in spec.inputs.items():
        v = inputs.get(n)
        if t.is_list:
            flat += v
            lens.append(len(v))
        else:
            flat.append(v)
    return flat, lens


_serial = {"calls": 0}


def _split(pool: int, n: int, grain: int, fn: int, ctx: int) -> None:
    """A parallel-for that cuts [0, n) into uneven chunks and hands them to threads 0 and 1, last chunk first."""
    chunk = CHUNK(fn)
    _serial["calls"] += 1
    cuts = sorted({0, n, n // 3, n // 2 + 1 if n // 2 + 1 < n else n})
    for k, (lo, hi) in reversed(list(enumerate(itertools.pairwise(cuts)))):
        chunk(ctx, lo, hi, k % 2)


SPLIT = PARALLEL(_split)


def empty_like_layout(shape: Sequence[int], dtype: str, layout: str) -> Array:
    """An output buffer full of a pattern, in a layout."""
    np_type = NP[dtype]
    if not shape:
        return np.array(77).astype(np_type)
    if layout == "transposed":
        a = np.empty(tuple(reversed(shape)), np_type).T
    elif layout == "padded":
        a = np.empty(tuple(2 * s + 1 for s in shape), np_type)[tuple(slice(1, None, 2) for _ in shape)]
    elif layout == "reversed":
        a = np.empty(shape, np_type)[tuple(slice(None, None, -1) for _ in shape)]
    else:
        a = np.empty(shape, np_type)
    a[...] = np.array(77).astype(np_type)
    return a


def arranged(a: Array, layout: str) -> Array:
    """The same values in another layout."""
    if a.ndim == 0 or layout == "contiguous":
        return np.ascontiguousarray(a).reshape(a.shape)
    out = empty_like_layout(a.shape, dtype_of(a), layout)
    out[...] = a
    return out


def run(
    kernel: abi.Kernel,
    spec: OpSpec,
    inputs: dict[str, Any],
    attrs: Sequence[Any],
    out_dtypes: Sequence[str],
    *,
    layout: str = "contiguous",
    threads: int = 1,
    outputs: list[Array] | None = None,
) -> list[Array]:
    """Infer, allocate, workspace, run.  Raises Refused."""
    flat, lens = flat_inputs(spec, inputs)
    places = [None if a is None else placed(a) for a in flat]
    encoded = [abi.encode_attr(a) for a in attrs]

    def call(outs: list[Any], ws: tuple[int, int] = (0, 0)) -> abi.Call:
        parallel = ctypes.cast(SPLIT, ctypes.c_void_p).value if threads > 1 else 0
        return abi.build_call(
            places, outs, encoded, list_len=lens, workspace=ws, threads=threads, parallel=parallel or 0
        )

    c = call([None] * len(out_dtypes))
    status = kernel.infer(c)
    if status:
        raise Refused(status, c.error_fields())
    shapes = c.output_shapes()
    if outputs is None:
        outputs = [empty_like_layout(s, d, layout) for s, d in zip(shapes, out_dtypes, strict=True)]
    size = kernel.workspace(call([None] * len(out_dtypes)))
    assert size >= 0
    scratch = np.full(size + 128, 0xA5, np.uint8)
    base = (scratch.ctypes.data + 63) // 64 * 64
    c = call([placed(o) for o in outputs], (base, size))
    status = kernel.run(c)
    if status:
        raise Refused(status, c.error_fields())
    assert (scratch[base - scratch.ctypes.data + size :] == 0xA5).all(), "wrote past its workspace"
    return outputs


@dataclass
class Case:
    """One call with what it must give; `tol` in ulp-like relative terms (0: exact)."""

    spec: str
    inputs: dict[str, Any]
    attrs: dict[str, Any]
    want: Sequence[Array] | Callable[[], Sequence[Array]]
    tol: float = 0.0
    name: str = ""
    layouts: tuple[str, ...] = ("contiguous", "transposed", "padded", "reversed")
    refused: str = ""
    fields: dict[str, int] = field(default_factory=dict)


@functools.cache
def parsed(text: str) -> OpSpec:
    return spec_of(text)


class Bench:
    """All cases of a module: emitted at once, built in few units."""

    def __init__(self, cases: Sequence[Case], name: str) -> None:
        self.texts: dict[int, tuple[KernelText, BoundOp, list[Any]]] = {}
        for c in cases:
            op, attrs = bound(parsed(c.spec), c.inputs, c.attrs)
            self.texts[id(c)] = (emit(op, dialect()), op, [attrs[a.name] for a in op.attrs])
        self.library = Library((t for t, _, _ in self.texts.values()), name)

    def run(self, c: Case, layout: str = "contiguous", threads: int = 1) -> list[Array]:
        text, op, attrs = self.texts[id(c)]
        inputs = {
            n: v
            if v is None
            else [arranged(a, layout) for a in v]
            if isinstance(v, list)
            else arranged(v, layout)
            for n, v in c.inputs.items()
        }
        before = [None if a is None else a.copy() for a in flat_inputs(parsed(c.spec), inputs)[0]]
        out = run(
            self.library.kernel(text.symbol),
            parsed(c.spec),
            inputs,
            attrs,
            [t.dtype.value for t in op.outputs],
            layout=layout,
            threads=threads,
        )
        for a, b in zip(flat_inputs(parsed(c.spec), inputs)[0], before, strict=True):
            if a is not None:
                assert a.tobytes() == b.tobytes(), "an input was written"
        return out

    def check(self, c: Case, layout: str = "contiguous", threads: int = 1) -> list[Array]:
        got = self.run(c, layout, threads)
        want = c.want() if callable(c.want) else c.want
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            w = np.asarray(w)
            assert g.shape == w.shape, f"shape {g.shape}, want {w.shape}"
            compare(g, w, c.tol)
        return got


def compare(got: Array, want: Array, tol: float) -> None:
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    if tol == 0:
        if want.dtype.kind in "iub":
            assert np.array_equal(got, want), f"got\n{got}\nwant\n{want}"
        else:
            g, w = got.astype(wide), want.astype(wide)
            assert np.array_equal(g, w, equal_nan=True), f"got\n{got}\nwant\n{want}"
        return
    g, w = got.astype(wide), want.astype(wide)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    top = np.abs(w[np.isfinite(w)]).max(initial=0)
    with np.errstate(invalid="ignore"):
        near = np.abs(g - w) <= tol * np.maximum(np.abs(w), max(1e-4, 1e-2 * top))
    bad = ~(same | near)
    assert not bad.any(), f"{bad.sum()} of {bad.size} off; got {got[bad][:4]}, want {want[bad][:4]}"
