"""`import opwright as ow`: what it shows, and what it says where it cannot do its work."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
        ("aten.sofmax.default", "aten._softmax.default"),
    ],
)
def test_an_unknown_overload_names_near_ones(asked: str, near: str) -> None:
    with pytest.raises(ow.MissingKernelError) as caught:
        ow.call_aten(asked, 1)
    assert f"did you mean `{near}`" in (caught.value.hint or "")
    assert ("`aten.NAME.overload`" in (caught.value.hint or "")) == (asked.count(".") < 2)
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]  # a traceback prints it, too


def test_a_namespace_of_ops_is_an_attribute(ow_namespace: str) -> None:
    space = getattr(ow.ops, ow_namespace)
    assert dir(space) == ["twice"] and ow_namespace in dir(ow.ops) and "twice" in repr(space)
    assert space.twice is ow.registry.get(f"{ow_namespace}::twice")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = space.nonsense


def test_an_op_of_a_namespace_that_waits_for_evidence_says_so() -> None:
    ow.registry.names()
    ow.registry.register_waiting("facewaits::relu9", [], "`opwright accept facewaits::relu9` judges it")
    for asked in (lambda: ow.ops.facewaits.relu9, lambda: ow.registry.get("facewaits::relu9")):
        with pytest.raises((AttributeError, ow.MissingKernelError)) as caught:
            asked()
        assert "the op `facewaits::relu9` is declared, and does not serve" in str(caught.value)
    assert "relu9 (not accepted)" in repr(ow.ops.facewaits) and dir(ow.ops.facewaits) == []
    with pytest.raises(AttributeError, match="opwright accept facewaits::relu9"):
        _ = ow.ops.facewaits.relu9
    with pytest.raises(AttributeError, match="did you mean `facewaits`"):
        _ = ow.ops.facewait


def test_torch_names_an_overload_by_its_own_object() -> None:
    torch = pytest.importorskip("torch")
    x = ow.tensor([[1.0, 2.0]])
    wanted = ow.call_aten("aten._softmax.default", x, -1, False).numpy()
    for asked in (torch.ops.aten._softmax.default, torch.ops.aten._softmax):
        assert (ow.call_aten(asked, x, -1, False).numpy() == wanted).all()


@pytest.mark.parametrize(
    ("call", "text", "hint"),
    [
        (
            lambda: ow.arange(3) // 0,
            r"integer division by zero in 'b': .* \(line \d+ of pointwise/binary.yaml\)",
            None,
        ),
        (
            lambda: ow.zeros((0, 3)).max(),
            "amax: nothing to reduce, an axis has length 0: .* of reduce/",
            None,
        ),
        (lambda: ow.zeros(3).to("cuda:0"), "to: the device must be cpu, got cuda:0", "one device"),
        (lambda: ow.ops.softmax(ow.ones(3), dim=0), "has no argument 'dim'; it takes x, axis, out", None),
        (lambda: ow.vjp("softmax", ow.ones(3), ow.ones(3), dim=0), "has no argument 'dim'", "x, axis"),
        (lambda: ow.vjp("softmax", ow.ones(2), ow.ones(3)), "^the gradient of softmax: input 'dy'", None),
    ],
)
def test_a_call_that_cannot_be_says_what_is_wrong(call: Any, text: str, hint: str | None) -> None:
    with pytest.raises(ow.OpwrightError, match=text) as caught:
        call()
    assert hint is None or hint in (caught.value.hint or "")


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
