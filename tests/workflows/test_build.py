"""`opwright build`: a program folder run from C++ by docs/host_api.md's example, single operators from C, the wheel."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright import resources, toolchain
from opwright.generator.program.folder import read_tensors, write_tensors
from opwright.workflows.kernels import digest_of

from .conftest import Run
from .test_json_faces import SHAPES, fits

PAGE = resources.checkout() / "docs" / "host_api.md"  # type: ignore[operator]
NATIVE = toolchain.native_dialect()


def tensor(*shape: Any) -> dict[str, Any]:
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = extent if step == 1 else ["mul", extent, step]
    return {"dtype": "f32", "shape": list(shape), "strides": strides, "kind": "tensor"}


def call(id: str, op: str, inputs: list[Any], out: str, **attrs: Any) -> dict[str, Any]:
    return {"kind": "call", "id": id, "op": op, "in": inputs, "attrs": attrs, "out": [out], "site": "net.py:3",
            "aten": f"aten.{op}"}  # fmt: skip


GROUP = """\
op: group:00000000000000aa
doc: Composed of relu and mul.
dims: {B: broadcast}
inputs: {x0: "f32[*B]", x1: "f32[*B]"}
outputs: {y: "f32[*B]"}
compute: |
  t0[*B] = max(x0[*B], 0)
  y[*B] = t0[*B] * x1[*B]
grad: {none: a program is differentiated before its groups are made}
test: {cases: [{B: [7, 5]}], values: [normal], tol: bound}
"""

#: relu(x * w + 2) * half, x of any number of rows: a weight, a weak scalar, an attribute by default, a fused group.
PROGRAM: dict[str, Any] = {
    "schema": 1,
    "name": "tiny",
    "source": "test",
    "target": "cpu",
    "dtype": "f32",
    "symbols": {"s0": {"min": 1, "max": 64, "divisor": 1, "from": ["x", 0]}},
    "values": {"v0": tensor("s0", 4), "w0": tensor(4)} | {f"v{k}": tensor("s0", 4) for k in (1, 2, 3)},
    "inputs": [{"name": "x", "value": "v0"}],
    "outputs": [{"name": "y", "value": "v3"}, {"name": "half", "value": "v1"}],
    "tree": {"inputs": [["x"], {}], "outputs": ["y", "half"]},
    "weights": [{"value": "w0", "tensor": "w", "tie": None}],
    "state": [],
    "constants": [],
    "nodes": [
        call("mul_1", "mul", ["v0", "w0"], "v1"),
        call("add_1", "add", ["v1", {"scalar": 2.0}], "v2", alpha=1),
        call("group_0", "group:00000000000000aa", ["v2", "v1"], "v3"),
    ],
}


def command(*words: object) -> Any:
    """A command's JSON, from a process of its own: what it installs must not reach other tests."""
    line = [sys.executable, "-m", "opwright.workflows.cli", *map(str, words), "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    if words[0] == "build":
        fits(said, SHAPES["build"])
    return said


def write_program(folder: Path) -> Path:
    (folder / "groups").mkdir(parents=True)
    (folder / "groups" / "00000000000000aa.yaml").write_text(GROUP)
    (folder / "program.json").write_text(json.dumps(PROGRAM))
    write_tensors(folder / "weights.safetensors", {"w": np.array([1, -1, 3, -7], np.float32)})
    return folder


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built for two dialects, and the development kit beside it."""
    root = tmp_path_factory.mktemp("built")
    folder = write_program(root / "tiny")
    words = [w for d in dict.fromkeys((NATIVE, "cpu-portable")) for w in ("--dialect", d)]
    said = command("build", folder, "--out", root / "sdk", *words)
    assert [d["name"] for d in said["dialects"]] == list(dict.fromkeys((NATIVE, "cpu-portable")))
    for row in said["dialects"]:
        assert row["kernels"] == 3 and row["bytes"] == Path(row["library"]).stat().st_size
    assert said["runtime_bytes"] == (root / "sdk" / "lib" / "libopwright.so").stat().st_size
    return root


def example(name: str) -> str:
    """A file that the page shows."""
    found = re.search(
        rf"^```\w+ file={re.escape(name)}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def runner(sdk: Path) -> Path:
    """The example of the page, compiled as the page says."""
    source, out, kit = sdk / "run_program.cpp", sdk / "run_program", sdk / "sdk"
    source.write_text(example("run_program.cpp"))
    link = [f"-I{kit}/include", f"-L{kit}/lib", "-lopwright", f"-Wl,-rpath,{kit}/lib"]
    command = [
        *toolchain.find_compiler().command,
        "-std=c++17",
        "-Wall",
        "-Werror",
        str(source),
        *link,
        "-o",
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return out


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """A program in an environment that knows neither Python nor a compiler."""
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, env={"PATH": "/nowhere"}, timeout=120
    )


def bits(tensors: dict[str, Any]) -> dict[str, tuple[Any, bytes]]:
    return {n: (a.shape, a.tobytes()) for n, a in tensors.items()}


# ---- from C++ ------------------------------------------------------------------------------------------------------


def test_the_page_s_example_is_short_and_gives_what_opwright_run_gives(sdk: Path, runner: Path) -> None:
    assert len(example("run_program.cpp").splitlines()) <= 35
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    write_tensors(sdk / "in.safetensors", {"x": x})
    said = run(runner, sdk / "tiny", sdk / "in.safetensors", sdk / "out.safetensors")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"tiny, by {NATIVE}\nhalf: [5, 4]\ny: [5, 4]\n"
    command("run", sdk / "tiny", "--inputs", sdk / "in.safetensors", "--out", sdk / "python.safetensors")
    got = dict(read_tensors(sdk / "out.safetensors"))
    assert bits(got) == bits(dict(read_tensors(sdk / "python.safetensors")))
    half = x * np.array([1, -1, 3, -7], np.float32)
    np.testing.assert_allclose(got["y"], np.maximum(half + 2, 0) * half, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.zeros((65, 4), np.float32), "input 'x' has extent 65 along axis 0, which must be from 1 to 64 (symbol s0)"),
        (np.zeros((5, 3), np.float32), "input 'x' has extent 3 along axis 1, which must be 4"),
        (np.zeros((5, 4), np.float64), "input 'x' is f64"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_named(sdk: Path, runner: Path, x: Any, text: str) -> None:
    write_tensors(sdk / "bad.safetensors", {"x": x})
    said = run(runner, sdk / "tiny", sdk / "bad.safetensors", sdk / "never.safetensors")
    assert said.returncode == 1 and said.stderr.startswith("error: tiny: ") and text in said.stderr, (
        said.stderr
    )
    assert not (sdk / "never.safetensors").exists()


def test_a_missing_and_a_needless_input_are_named(sdk: Path, runner: Path) -> None:
    write_tensors(sdk / "other.safetensors", {"z": np.zeros((5, 4), np.float32)})
    said = run(runner, sdk / "tiny", sdk / "other.safetensors", sdk / "never.safetensors")
    assert said.stderr == "error: tiny: input 'x' is missing\n"


def test_a_folder_is_shipped_without_its_specs(sdk: Path, runner: Path, tmp_path: Path) -> None:
    for name in ("program.json", "weights.safetensors"):
        shutil.copy(sdk / "tiny" / name, tmp_path / name)
    shutil.copytree(sdk / "tiny" / "kernels", tmp_path / "kernels")
    write_tensors(tmp_path / "in.safetensors", {"x": np.ones((2, 4), np.float32)})
    said = run(runner, tmp_path, tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    assert (said.returncode, said.stderr) == (0, "")


def test_a_folder_that_was_written_anew_must_be_built_anew(sdk: Path, runner: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(sdk / "tiny", folder)
    (folder / "program.json").write_text(json.dumps(PROGRAM | {"name": "other"}))
    said = run(runner, folder, sdk / "in.safetensors", tmp_path / "never.safetensors")
    assert said.returncode == 1 and "was built for another program.json" in said.stderr
    shutil.rmtree(folder / "kernels")
    said = run(runner, folder, sdk / "in.safetensors", tmp_path / "never.safetensors")
    assert said.stderr == f"error: {folder}/kernels/kernels.json: cannot be opened\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")
@pytest.mark.nightly
def test_cmake_finds_the_package(sdk: Path, tmp_path: Path) -> None:
    for name in ("run_program.cpp", "CMakeLists.txt"):
        (tmp_path / name).write_text(example(name))
    kit = sdk / "sdk" / "lib" / "cmake" / "opwright"
    where = ["-S", str(tmp_path), "-B", str(tmp_path / "b")]
    subprocess.run(["cmake", *where, f"-Dopwright_DIR={kit}"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path / "b")], check=True, capture_output=True)
    assert run(tmp_path / "b" / "run_program").returncode == 2


def test_headers_are_c_and_cpp(sdk: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "#include <opwright/host.h>\nint main(void) { return opwright_threads() < 1; }\n"
    )
    (tmp_path / "b.cpp").write_text("#include <opwright/host.h>\n#include <opwright/program.h>\n")
    gcc = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    assert gcc is not None
    include = f"-I{sdk}/sdk/include"
    for source, standard in (("a.c", "-std=c99"), ("b.cpp", "-std=c++17")):
        flags = [standard, "-Wall", "-Wextra", "-pedantic", "-fsyntax-only", include]
        subprocess.run([gcc, *flags, str(tmp_path / source)], check=True)


# ---- from Python, by the folder's own kernels ----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", list(dict.fromkeys((NATIVE, "cpu-portable"))))
def test_python_may_run_the_folder_s_kernels(sdk: Path, dialect: str) -> None:
    import opwright as ow

    x = np.ones((2, 4), np.float32)
    p = ow.Program.load(sdk / "tiny", dialect=dialect)
    assert {c["library"] for c in p.calls} == {str(next((sdk / "tiny" / "kernels").glob(f"{dialect}-*.so")))}
    np.testing.assert_array_equal(p(x=x)["y"].numpy()[0], [3, -1, 15, 0])


def test_a_dialect_that_was_not_built_is_refused(sdk: Path, tmp_path: Path) -> None:
    import opwright as ow

    with pytest.raises(ow.MissingKernelError, match=r"has no dialect 'cpu-mmx'; it has .*cpu-portable"):
        ow.Program.load(sdk / "tiny", dialect="cpu-mmx")
    folder = tmp_path / "tiny"
    shutil.copytree(sdk / "tiny", folder)
    index = json.loads((folder / "kernels" / "kernels.json").read_text())
    for about in index["dialects"]:
        about["features"].append("warp_drive")
    (folder / "kernels" / "kernels.json").write_text(json.dumps(index))
    with pytest.raises(ow.MissingKernelError, match=r"runs none of its dialects; .* needs warp_drive"):
        ow.Program.load(folder, built=True)


def test_the_digest_is_the_core_s() -> None:
    assert digest_of(b"") == "cbf29ce484222325" and digest_of(b"a") == "af63dc4c8601ec8c"


# ---- single operators ----------------------------------------------------------------------------------------------


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Host:
    """libopwright by ctypes: the C face, as any language reaches it."""

    def __init__(self, library: Path) -> None:
        self.c = ctypes.CDLL(str(library))
        self.c.opwright_error.restype = ctypes.c_char_p
        self.c.opwright_array_tensor.restype = ctypes.POINTER(_Tensor)
        self.c.opwright_array_tensor.argtypes = [ctypes.c_void_p]
        self.c.opwright_array_free.argtypes = [ctypes.c_void_p]

    def open(self, folder: Path) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        status = self.c.opwright_kernels_open(str(folder).encode(), None, ctypes.byref(out))
        assert status == 0, self.c.opwright_error()
        return out

    def call(self, kernels: ctypes.c_void_p, op: str, inputs: list[Any], **attrs: Any) -> Any:
        """The first output, or (status, message)."""
        held = []
        for a in inputs:
            shape = (ctypes.c_int64 * a.ndim)(*a.shape)
            strides = (ctypes.c_int64 * a.ndim)(*(s // a.itemsize for s in a.strides))
            code = {"f": 2, "i": 0}[a.dtype.kind]
            dtype = _DType(code, 8 * a.itemsize, 1)
            held.append(_Tensor(a.ctypes.data, (1, 0), a.ndim, dtype, shape, strides, 0))
        pointers = (ctypes.POINTER(_Tensor) * max(1, len(held)))(*map(ctypes.pointer, held))
        outs, count = (ctypes.c_void_p * 32)(), ctypes.c_int32(32)
        text = json.dumps(attrs).encode()
        status = self.c.opwright_call(
            kernels, op.encode(), len(held), pointers, text, ctypes.byref(count), outs
        )
        if status:
            return status, self.c.opwright_error().decode()
        t = self.c.opwright_array_tensor(outs[0]).contents
        shape = tuple(t.shape[k] for k in range(t.ndim))
        flat = ctypes.cast(t.data, ctypes.POINTER(ctypes.c_float * int(np.prod(shape))))
        found = np.array(flat.contents, np.float32).reshape(shape)
        for k in range(count.value):
            self.c.opwright_array_free(outs[k])
        return found


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, ctypes.c_void_p, Path]]:
    out = tmp_path_factory.mktemp("ops")
    command("build", "relu", "softmax", "--dtype", "f32", "--dialect", NATIVE, "--out", out)
    host = Host(out / "lib" / "libopwright.so")
    kernels = host.open(out / "share" / "opwright" / "kernels")
    yield host, kernels, out
    host.c.opwright_kernels_free(kernels)


def test_operators_are_called_from_c(operators: tuple[Host, ctypes.c_void_p, Path]) -> None:
    host, kernels, _ = operators
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_array_equal(host.call(kernels, "relu", [x]), np.maximum(x, 0))
    e = np.exp(x - x.max(0))
    np.testing.assert_allclose(host.call(kernels, "softmax", [x], axis=0), e / e.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(
        host.call(kernels, "relu", [x.T]), np.maximum(x.T, 0)
    )  # strides as they are


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "status", "text"),
    [
        ("tanh", 1, {}, 4, "has no op 'tanh'"),
        ("softmax", 1, {"axis": 7}, 2, "attribute 'axis' = 7 is out of range for rank 2"),
        ("softmax", 1, {"axis": "x"}, 3, "attribute 'axis' wants an integer, got a string"),
        ("softmax", 1, {"axes": 1}, 3, "has no attribute 'axes'"),
        ("relu", 2, {}, 1, "2 inputs are given, it has 1"),
    ],
)
def test_calls_that_cannot_be_say_why(
    operators: Any, op: str, inputs: int, attrs: dict[str, Any], status: int, text: str
) -> None:
    host, kernels, _ = operators
    got = host.call(kernels, op, [np.zeros((2, 2), np.float32)] * inputs, **attrs)
    assert got[0] == status and text in got[1], got


def test_a_dtype_that_was_not_built_is_named(operators: Any) -> None:
    host, kernels, _ = operators
    status, text = host.call(kernels, "relu", [np.zeros(3, np.float64)])
    assert status == 4 and "no kernel for relu(f64 of rank 1) was built; `opwright build` builds them" in text


# ---- what cannot be built ------------------------------------------------------------------------------------------


def test_only_what_is_accepted_is_built(ow: Run, project: Path) -> None:
    ran = ow("build", "scale")
    assert ran.code == 2 and "`scale` has not been accepted" in ran.err


def test_a_program_is_built_alone(ow: Run, sdk: Path) -> None:
    ran = ow("build", str(sdk / "tiny"), "--wheel")
    assert ran.code == 2 and "is a program folder" in ran.err


def test_keys_that_a_requirement_rules_out_have_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from opwright.generator.types import DType
    from opwright.workflows import build, console
    from opwright.workflows.workbench import Workbench

    written: list[Any] = []
    monkeypatch.setattr(build, "write_table", lambda folder, entries, **_: written.append(entries) or [])
    bench = Workbench.here(PAGE)
    spec = bench.registry.get("attention")  # a mask is bool, f32, or of the dtype of the rest
    types = {"T": "f32", "M": "bf16"}
    refused = [
        k for k in build.keys_for(spec, [DType.F32, DType.BF16]) if types.items() <= dict(k.types).items()
    ]
    assert refused
    monkeypatch.setattr(build, "keys_for", lambda *_: refused[:1])
    build.build_ops(bench, [spec], tmp_path, [NATIVE], progress=console.Progress())
    assert written == [{NATIVE: []}]


# ---- the wheel -----------------------------------------------------------------------------------------------------

USE = """
import shutil, sys
import numpy as np
assert shutil.which("g++") is None and shutil.which("c++") is None
import opwright as ow
y = ow.ops.softmax(np.zeros((2, 4), "f"), axis=-1)
assert (y.numpy() == 0.25).all()
g = ow.vjp("softmax", np.ones((2, 4), "f"), y, axis=-1)["x"] if sys.argv[1:] else None
try:
    ow.ops.relu(np.zeros(2, "f"))
except ow.OpError as e:
    raise SystemExit("an operator error: " + str(e))
except Exception as e:
    print(type(e).__name__, "|", e)
"""


@pytest.mark.nightly
def test_a_wheel_needs_no_compiler(tmp_path: Path) -> None:
    """Installed into a folder of its own, with no compiler on the path."""
    said = command(
        "build", "softmax", "--dtype", "f32", "--dialect", NATIVE, "--gradients", "--wheel", "--out", tmp_path
    )
    wheel = Path(said["wheel"]["file"])
    assert wheel.name.endswith("_x86_64.whl") and said["wheel"]["bytes"] == wheel.stat().st_size
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        archive.extractall(site)
    assert len(names) == len(set(names)) and sum(n.startswith("opwright/_core.cpython") for n in names) == 1
    assert {"opwright/py.typed", "opwright/ops.pyi", "opwright/_core.pyi"} <= set(names)
    env = {"PATH": "/nowhere", "PYTHONPATH": str(site), "OPWRIGHT_CACHE": str(tmp_path / "cache")}
    use = [sys.executable, "-c", USE, "gradient"]
    done = subprocess.run(use, cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NoCompilerError | no C++ compiler found"), done.stdout
    assert not list((tmp_path / "cache").glob("lib/*"))
