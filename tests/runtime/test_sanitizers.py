"""The core under sanitizers: driver.cpp without Python, and tests of this folder with it.

By day addresses alone, unoptimised, which compiles quickly; at night undefined behaviour and threads as well, many
rounds, and the tests that run the core from Python.  Nothing is suppressed.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opwright import resources, toolchain

from .conftest import KERNELS, SIGNATURES
from .test_program import WEIGHT, call, program, safetensors, tensor

pytestmark = pytest.mark.sanitizers
HERE = Path(__file__).parent
#: The first fault ends the process.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def flags(sanitizers: str) -> tuple[str, ...]:
    return (
        "-O0",
        "-g1",
        "-fno-omit-frame-pointer",
        f"-fsanitize={sanitizers}",
        "-fno-sanitize-recover=all",
        "-pthread",
    )


def supported(sanitizers: str) -> bool:
    """Whether the compiler has this sanitizer's library."""
    command = [
        *toolchain.find_compiler().command,
        f"-fsanitize={sanitizers}",
        "-x",
        "c++",
        "-",
        "-o",
        os.devnull,
    ]
    return subprocess.run(command, input="int main() {}", capture_output=True, text=True).returncode == 0


@functools.cache
def built(sanitizers: str) -> Path:
    """The driver with the core in it, from objects that the cache keeps."""
    src = resources.src_dir()
    sources = {
        p.name: p.read_text()
        for p in src.iterdir()
        if p.suffix in (".cpp", ".h") and not p.name.startswith("py_")
    }
    sources |= {
        "driver.cpp": (HERE / "driver.cpp").read_text(),
        "version.h": '#define OPWRIGHT_VERSION "0"\n',
    }
    return toolchain.compile_library(
        sources, name="the core under sanitizers", dialect="cpu-portable", extra_flags=(*flags(sanitizers), "-ldl"),
        workers=toolchain.available_cores(),
    )  # fmt: skip


def executable(sanitizers: str, folder: Path) -> Path:
    out = folder / "driver"
    library = built(sanitizers)
    # The library holds main(): the program is nothing but it.
    command = [*toolchain.find_compiler().command, *flags(sanitizers), "-x", "c++", os.devnull, "-x", "none",
               str(library), f"-Wl,-rpath,{library.parent}", "-o", str(out)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def write_folder(folder: Path, sanitizers: str) -> Path:
    """y = 2 * (x + w + 1) over the hand-written `add`, and the table that supplies it."""
    rows = {f"v{k}": tensor("f32", "s0", 4) for k in range(4)}
    data = program(
        values=rows | {"w0": tensor("f32", 4)},
        outputs=[{"name": "y", "value": "v3"}],
        nodes=[
            call("a", "add", ["v0", "w0"], ["v1"], alpha=1),
            call("b", "add", ["v1", {"scalar": 1.0}], ["v2"]),
            call("c", "add", ["v2", "v2"], ["v3"]),
        ],
    )  # fmt: skip
    (folder / "kernels").mkdir(parents=True)
    (folder / "program.json").write_text(json.dumps(data))
    (folder / "weights.safetensors").write_bytes(safetensors({"layer.weight": WEIGHT}))
    library = toolchain.compile_library(
        {"kernels.cpp": KERNELS.read_text()},
        name="kernels",
        dialect="cpu-portable",
        extra_flags=flags(sanitizers),
    )
    row: dict[str, Any] = {
        "op": "add",
        "symbol": "ow_add_f32",
        "key": {"types": {"T": "f32"}, "static": {}, "present": {}, "lengths": {}, "ranks": {}},
        "inputs": [{"name": n, "dtype": "f32", "list": False, "optional": False} for n in "ab"],
        "attrs": [{"name": "alpha", "kind": "scalar"}],
        "outputs": [{"name": "y", "dtype": "f32", "aux": False}],
        "rules": [],
        "inplace": {"y": "a"},
    }
    about = {"name": "cpu-portable", "machine": platform.machine(), "features": [], "library": "kernels.so",
             "table": "table.json"}  # fmt: skip
    (folder / "kernels" / "kernels.so").symlink_to(library)
    (folder / "kernels" / "table.json").write_text(json.dumps({"schema": 1, "kernels": [{"row": row}]}))
    index = {"schema": 1, "abi": 1, "dialects": [about], "ops": [SIGNATURES[0]]}
    (folder / "kernels" / "kernels.json").write_text(json.dumps(index))
    (folder / "damaged" / "kernels").mkdir(parents=True)
    (folder / "damaged" / "kernels" / "kernels.so").symlink_to(library)
    state = folder / "state"
    state.mkdir()
    flat = {n: tensor("f32", 4) for n in ("c", "x", "c1")}
    ports = [{"name": n, "value": n} for n in "cx"]
    nodes = [call("a", "add", ["c", "x"], ["c1"], alpha=1)]
    data |= {"symbols": {}, "values": flat, "inputs": ports, "outputs": [], "weights": [], "nodes": nodes}
    (state / "program.json").write_text(json.dumps(data | {"state": [{"input": "c", "output": "c1"}]}))
    (state / "kernels").symlink_to(folder / "kernels")
    return folder


def drive(sanitizers: str, folder: Path, rounds: int) -> None:
    if not supported(sanitizers):
        pytest.skip(f"the compiler has no library for -fsanitize={sanitizers}")
    program = executable(sanitizers, folder)
    files = write_folder(folder / "program", sanitizers)
    done = subprocess.run(
        [program, files, str(rounds)], capture_output=True, text=True, env=os.environ | OPTIONS
    )
    assert done.returncode == 0 and done.stdout.endswith("fine\n"), done.stdout[-2000:] + done.stderr[-6000:]


def test_addresses(tmp_path: Path) -> None:
    drive("address", tmp_path, 5)


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_many_rounds(tmp_path: Path, sanitizers: str) -> None:
    drive(sanitizers, tmp_path, 100)


def test_a_block_ends_where_it_was_asked_to_end(tmp_path: Path) -> None:
    """The sanitizer sees a write between two blocks and a read of one that was given back, though both lie in memory
    that is mapped: without that, the other tests here would prove little of what the core does with its own memory."""
    if not supported("address"):
        pytest.skip("the compiler has no library for -fsanitize=address")
    program = executable("address", tmp_path)
    for fault in ("write past the end", "read after"):
        done = subprocess.run([program, fault, "0"], capture_output=True, text=True, env=os.environ | OPTIONS)
        assert done.returncode != 0 and "AddressSanitizer: use-after-poison" in done.stderr, done.stderr[
            -2000:
        ]


# ---- with Python -----------------------------------------------------------------------------------------------------

RUN = """
import importlib.machinery, importlib.util, sys
name, path = "opwright._core", sys.argv[1]
loader = importlib.machinery.ExtensionFileLoader(name, path)
spec = importlib.util.spec_from_file_location(name, path, loader=loader)
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
from opwright.exceptions import BY_KIND
core.set_error_classes(dict(BY_KIND))
core.configure("")
sys.modules[name] = core
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""

#: Of this folder: what needs no compiler's time and no memory that a sanitizer refuses to give.
FILES = (
    "test_program.py",
    "test_executor.py",
    "test_dispatcher.py",
    "test_exchange.py",
    "test_indexing.py",
    "test_methods.py",
    "test_short_calls.py",
    "test_tensor.py",
)


def from_python(sanitizers: str, runtimes: Sequence[str], files: Sequence[str], *more: str) -> None:
    core = toolchain.build_core(extra_flags=flags(sanitizers))
    compiler = toolchain.find_compiler().command
    preload = [subprocess.run([*compiler, f"-print-file-name={r}"], capture_output=True, text=True).stdout.strip()
               for r in runtimes]  # fmt: skip
    env = os.environ | OPTIONS | {"LD_PRELOAD": ":".join(preload), "PYTHONMALLOC": "malloc"}
    env["ASAN_OPTIONS"] = "detect_leaks=0"  # Python's own
    words = [
        sys.executable,
        "-c",
        RUN,
        str(core),
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *more,
        *(str(HERE / f) for f in files),
    ]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


@pytest.mark.nightly
def test_python_with_address_and_undefined_behaviour() -> None:
    from_python("address,undefined", ["libasan.so", "libubsan.so"], FILES)


@pytest.mark.nightly
def test_python_with_threads() -> None:
    from_python(
        "thread",
        ["libtsan.so"],
        ("test_executor.py", "test_memory.py", "test_short_calls.py"),
        "-k",
        "thread or run",
    )
