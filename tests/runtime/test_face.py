"""`import opwright as ow`: what it shows, and what it says where it cannot do its work."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opwright as ow


def test_dir_is_the_face_and_nothing_else() -> None:
    from opwright import _face

    assert ow.__all__ == _face.__all__ == sorted(ow.__all__)
    assert {name for name in dir(ow) if not name.startswith("__")} == set(ow.__all__)
    for name in ow.__all__:
        assert getattr(ow, name) is getattr(_face, name)


def test_modules_that_others_name_are_still_there() -> None:
    assert ow.registry.names() and ow.toolchain.native_dialect() and ow.errors.OpwrightError
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ow.nonsense  # type: ignore[attr-defined]


def _alone(code: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs in a process of its own, with an empty cache."""
    package = str(Path(ow.__file__).parent.parent)
    inherited = {k: v for k, v in os.environ.items() if k not in ("OPWRIGHT_CXX", "PYTHONSTARTUP")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | {"PYTHONPATH": package, "OPWRIGHT_CACHE": str(tmp_path / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_dir_needs_no_compiler(tmp_path: Path) -> None:
    done = _alone("import opwright as ow; print('Tensor' in dir(ow), ow.__version__)", tmp_path, PATH="")
    assert done.stdout.startswith("True ") and not done.stderr


@pytest.mark.parametrize("code", ["import opwright as ow\now.tensor([1])", "from opwright import Tensor"])
def test_without_a_compiler_there_is_one_clear_error(code: str, tmp_path: Path) -> None:
    done = _alone(code, tmp_path, PATH=str(tmp_path))
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert "no C++ compiler found" in lines[-2] and lines[-1].startswith("hint: install g++")
    # The line that was written, the name that was asked for, and no module that was being loaded.
    frames = [line for line in lines if line.lstrip().startswith("File ") and "importlib" not in line]
    assert len(frames) == 2 and "__init__.py" in frames[1] and "another exception" not in done.stderr


def test_every_op_has_a_signature_that_python_can_read() -> None:
    assert str(inspect.signature(ow.ops.softmax)) == "(x, axis=-1, *, out=None)"
    assert str(inspect.signature(ow.ops.rms_norm)) == "(x, w=None, *, normalized_shape, eps=1e-06, out=None)"
    assert str(inspect.signature(ow.ops.arange)) == "(start=0, *, end, step=1, dtype=None, out=None)"
    for name in ow.registry.names():
        assert inspect.signature(getattr(ow.ops, name)).parameters


def test_an_operator_whose_op_nobody_supplies_says_so(tmp_path: Path) -> None:
    code = "import opwright as ow\now.registry.set_bootstrap(lambda: None)\nt = ow.tensor([1.0])\nt * t"
    done = _alone(code, tmp_path, OPWRIGHT_CACHE=str(ow.resources.cache_dir()))
    assert "MissingKernelError: there is no op `mul`" in done.stderr


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("aten.sofmax.int", "aten.softmax.int"),
        ("aten.add.Tensr", "aten.add.Tensor"),
        ("aten.chunkk.default", "aten.chunk.default"),  # no row of the table: a view
        ("softmax", "aten.softmax.int"),
        ("aten.softmax", "aten.softmax.int"),
    ],
)
def test_an_unknown_overload_names_near_ones(asked: str, near: str) -> None:
    with pytest.raises(ow.MissingKernelError) as caught:
        ow.call_aten(asked, 1)
    assert f"did you mean `{near}`" in (caught.value.hint or "")
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]  # a traceback prints it, too


def test_a_namespace_of_ops_is_an_attribute(ow_namespace: str) -> None:
    space = getattr(ow.ops, ow_namespace)
    assert dir(space) == ["twice"] and ow_namespace in dir(ow.ops) and "twice" in repr(space)
    assert space.twice is ow.registry.get(f"{ow_namespace}::twice")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = space.nonsense


@pytest.fixture
def ow_namespace() -> str:
    ow.registry.names()  # what there is, first
    ow.registry.register_op(
        {
            "name": "facetest::twice",
            "doc": "",
            "attrs": [],
            "inputs": [{"name": "x", "optional": False, "list": False}],
            "outputs": [{"name": "y", "aux": False}],
        }
    )
    return "facetest"
