"""CUDA text: one printer carries it; NVRTC compiles it where the `[cuda]` extra is installed; launchers plan
on any machine.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import bound, parsed, placed

import specs
from opwright import toolchain
from opwright.generator.emit import CudaText, emit_cuda
from opwright.generator.errors import LowerError
from opwright.validators import abi

pytestmark = pytest.mark.cuda

F32 = np.float32
CALLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "add": (specs.ADD, {"a": np.zeros((2, 3), F32), "b": np.zeros((3,), F32)}, {}),
    "softmax": (specs.SOFTMAX, {"x": np.zeros((2, 3), F32)}, {}),
    "rms_norm": (specs.RMS_NORM, {"x": np.zeros((2, 3), F32), "w": np.zeros(3, F32)}, {}),
    "matmul": (specs.MATMUL, {"a": np.zeros((2, 3), F32), "b": np.zeros((3, 2), F32)}, {}),
    "layer_norm": (
        specs.LAYER_NORM,
        {"x": np.zeros((2, 3), F32), "w": None, "b": None},
        {"normalized_shape": (3,)},
    ),
    "sum": (specs.SUM, {"x": np.zeros((2, 3), F32)}, {}),
    "embedding": (specs.EMBEDDING, {"w": np.zeros((2, 3), F32), "i": np.zeros(2, np.int64)}, {}),
    "argmax": (specs.ARGMAX, {"x": np.zeros((2, 3), F32)}, {}),
    "cumsum": (specs.CUMSUM, {"x": np.zeros((2, 3), F32)}, {"dim": 1}),
    "delta": (
        specs.DELTA,
        {
            **{n: np.zeros((2, 3, 4), F32) for n in "qkv"},
            "g": np.zeros((2, 3), F32),
            "beta": np.zeros((2, 3), F32),
            "s0": None,
        },
        {},
    ),
    "index_put": (
        specs.INDEX_PUT,
        {"x": np.zeros((2, 3), F32), "i": np.zeros(2, np.int64), "v": np.zeros((2, 3), F32)},
        {"accumulate": True},
    ),
}


@cache
def text(name: str, arch: str = "sm_80") -> CudaText:
    spec, inputs, attrs = CALLS[name]
    return emit_cuda(bound(parsed(spec), inputs, attrs)[0], arch)


def own(t: CudaText) -> str:
    """The kernel text without the helpers before it."""
    return t.kernel[t.kernel.rindex("#endif") :]


def nvrtc() -> ctypes.CDLL | None:
    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (found.submodule_search_locations or []) if found else []:
            for path in sorted(Path(folder).glob("lib/libnvrtc.so*")):
                if "builtins" not in path.name:
                    return ctypes.CDLL(str(path))
    return None


def compile_cubin(lib: ctypes.CDLL, source: str, arch: str) -> tuple[str, bytes]:
    """(log, cubin); the cubin is empty when the text is refused."""
    program = ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={arch}".encode(), b"--fmad=false"]
    status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    if status:
        return log.value.decode(), b""
    lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode(), cubin.raw


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_nvrtc_makes_a_cubin(name: str, arch: str) -> None:
    lib = nvrtc()
    if lib is None:
        pytest.skip("NVRTC is not installed (pip install 'opwright[cuda]')")
    log, cubin = compile_cubin(lib, text(name, arch).kernel, arch)
    assert cubin[:4] == b"\x7fELF", log


@pytest.mark.parametrize("name", sorted(CALLS))
def test_kernel_text_is_device_code_only(name: str) -> None:
    kernel = text(name).kernel
    includes = [line for line in kernel.splitlines() if line.startswith("#include")]
    assert includes == ["#include <stdint.h>", '#include "vmath.h"']  # which NVRTC never sees
    assert "__builtin_" not in own(text(name))
    assert "OwCall" not in own(text(name))


def test_rows_are_a_block_s_and_elements_a_grid_s() -> None:
    assert "owk_block_sum<float>" in own(text("softmax"))
    assert "__syncthreads();" in own(text("softmax"))
    assert "blockIdx.x * (int64_t)blockDim.x + threadIdx.x" in own(text("add"))
    assert "__syncthreads" not in own(text("add"))
    # one thread an output: neighbours share the operands' cache lines
    assert "owk_sum<float>" in own(text("matmul"))


def test_the_text_depends_on_the_architecture_s_name_only_in_its_symbol() -> None:
    a, b = text("softmax", "sm_80"), text("softmax", "sm_90")
    assert a.symbol != b.symbol
    assert own(a).replace(a.symbol, "") == own(b).replace(b.symbol, "")


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(LowerError, match="no CUDA architecture `sm_30`"):
        emit_cuda(bound(parsed(specs.SOFTMAX), {"x": np.zeros((2, 3), F32)}, {})[0], "sm_30")


def test_sizes_that_depend_on_data_are_refused_by_name() -> None:
    op = bound(parsed(specs.NONZERO), {"x": np.zeros((2, 3), F32)}, {})[0]
    with pytest.raises(LowerError, match="nonzero: extents that depend on data"):
        emit_cuda(op, "sm_80")


class Launch(ctypes.Structure):
    """OwkLaunch of launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("blocks", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("args_bytes", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("args", ctypes.c_ubyte * 4032),
    )


@cache
def launchers() -> ctypes.CDLL:
    sources = {f"{n}.cpp": text(n).launcher for n in ("add", "softmax", "matmul")}
    return ctypes.CDLL(
        str(
            toolchain.compile_library(
                sources, name="launchers", dialect="cpu-portable", extra_flags=("-Wall", "-Werror")
            )
        )
    )


def planned(
    name: str, inputs: list[np.ndarray], out: np.ndarray, attr: object, capacity: int = 4
) -> tuple[int, list[Launch], abi.Call]:
    symbol = text(name).symbol
    args = ([placed(a) for a in inputs], [placed(out)], [] if attr is None else [abi.encode_attr(attr)])
    workspace = getattr(launchers(), f"{symbol}_workspace")
    workspace.restype = ctypes.c_int64
    size = workspace(ctypes.byref(abi.build_call(*args).raw))
    assert size >= 64
    scratch = np.zeros(size, np.uint8)
    call = abi.build_call(*args, workspace=(scratch.ctypes.data, size))
    launches = (Launch * 4)()
    count = getattr(launchers(), f"{symbol}_plan")(ctypes.byref(call.raw), launches, capacity)
    return count, list(launches), call


def test_a_launcher_gives_rows_to_blocks() -> None:
    x = np.zeros((1000, 300), F32)
    count, launches, _ = planned("softmax", [x], np.empty_like(x), -1)
    assert count == 1
    assert launches[0].kernel.decode() == f"{text('softmax').symbol}_nest0"
    assert (launches[0].blocks, launches[0].threads) == (1000, 256)
    assert 0 < launches[0].args_bytes <= 4032


def test_a_launcher_fills_the_machine_at_two_to_the_24() -> None:
    x = np.zeros((1 << 12, 1 << 12), F32)
    _, launches, _ = planned("add", [x, x.copy()], np.empty_like(x), 1)
    # 2 blocks for each of 132 multiprocessors, and little work for each thread
    assert launches[0].blocks >= 264
    assert x.size / (launches[0].blocks * launches[0].threads) <= 64


def test_a_launcher_checks_the_call() -> None:
    a, b = np.zeros((2, 3), F32), np.zeros((4, 2), F32)
    symbol = text("matmul").symbol
    infer = getattr(launchers(), f"{symbol}_infer")
    call = abi.build_call([placed(a), placed(b)], [None], [])
    assert abi.error_name(infer(ctypes.byref(call.raw))) == "OW_E_SHAPE"


def test_nothing_to_do_is_no_launch() -> None:
    x = np.zeros((0, 5), F32)
    assert planned("softmax", [x], np.empty_like(x), -1)[0] == 0
