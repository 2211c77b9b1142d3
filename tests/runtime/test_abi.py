"""abi.h as the compiler lays it out, against a mirror by ctypes: a field that moves breaks every built kernel."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

from opwright import resources, toolchain

P, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class OwDevice(ctypes.Structure):
    _fields_ = [("device_type", I32), ("device_id", I32)]


class OwDType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class OwTensor(ctypes.Structure):
    _fields_ = [
        ("data", P), ("device", OwDevice), ("ndim", I32), ("dtype", OwDType), ("shape", P), ("strides", P),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class OwError(ctypes.Structure):
    _fields_ = [("code", I32), ("which", I32), ("arg", I32), ("axis", I32), ("want", I64), ("got", I64)]


class OwAttr(ctypes.Structure):
    _fields_ = [("count", I64), ("i", P), ("f", P)]


class OwShape(ctypes.Structure):
    _fields_ = [("rank", I32), ("pad", I32), ("dim", I64 * 16)]


class OwCall(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32), ("n_in", I32), ("n_out", I32), ("n_attr", I32), ("in", P), ("list_len", P),
        ("out", P), ("attr", P), ("shapes", P), ("workspace", P), ("workspace_bytes", I64), ("stream", P),
        ("error", P), ("parallel", P), ("pool", P), ("max_threads", I32), ("flags", I32),
    ]  # fmt: skip


MIRROR = (OwDevice, OwDType, OwTensor, OwError, OwAttr, OwShape, OwCall)


def test_offsets(tmp_path: Path) -> None:
    code = []
    for struct in MIRROR:
        name = struct.__name__
        code.append(
            f'std::printf("%s\\"{name}\\": {{\\"sizeof\\": %zu", separator, sizeof({name})); separator = ", ";'
        )
        for field, *_ in struct._fields_:
            code.append(f'std::printf(", \\"{field}\\": %zu", offsetof({name}, {field}));')
        code.append('std::printf("}");')
    for constant in ("OW_ABI", "OW_MAX_RANK", "OW_E_ABI"):
        code.append(f'std::printf(", \\"{constant}\\": %d", {constant});')
    includes = '#include <cstddef>\n#include <cstdio>\n#include "opwright/abi.h"\n'
    head = includes + 'int main() { const char* separator = "{";\n'
    source = tmp_path / "offsets.cpp"
    source.write_text(head + "\n".join(code) + '\nstd::printf("}"); }\n')
    program = tmp_path / "offsets"
    compiler = toolchain.find_compiler().command
    subprocess.run(
        [*compiler, "-std=c++20", f"-I{resources.include_dir()}", source, "-o", program], check=True
    )
    got = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    want: dict[str, object] = {"OW_ABI": 1, "OW_MAX_RANK": 16, "OW_E_ABI": 9}
    for struct in MIRROR:
        offsets = {field: getattr(struct, field).offset for field, *_ in struct._fields_}
        want[struct.__name__] = {"sizeof": ctypes.sizeof(struct)} | offsets
    assert got == want


def test_the_header_is_c(tmp_path: Path) -> None:
    """Kernels in C, and callers in any language that reads C, include it as it is."""
    source = tmp_path / "header.c"
    source.write_text('#include "opwright/abi.h"\nint main(void) { return (int)sizeof(OwCall) == 0; }\n')
    compiler = toolchain.find_compiler().command
    subprocess.run(
        [
            *compiler,
            "-x",
            "c",
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            f"-I{resources.include_dir()}",
            "-c",
            source,
            "-o",
            tmp_path / "o",
        ],
        check=True,
    )
