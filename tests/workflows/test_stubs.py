"""`generate --stubs`: what a type checker and an editor read is what the runtime has."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opwright
from opwright import registry
from opwright.workflows.stubs import stub_texts
from opwright.workflows.workbench import Workbench

USE = """
import numpy as np
import opwright as ow
x = ow.tensor([[1.0, 2.0]])
reveal_type(x)
reveal_type(x + 1)
reveal_type(2 * x)
reveal_type(x == x)
reveal_type(x[0, 0])
reveal_type(x.sum(dim=0, keepdim=True))
reveal_type(x.sum(axis=0, keepdims=True))
reveal_type(x.max(1))
reveal_type(x.numel())
reveal_type(x.shape)
reveal_type(ow.zeros(3))
reveal_type(ow.ops.softmax(x, axis=-1))
reveal_type(ow.ops.topk(np.zeros(3), 2))
reveal_type(ow.ops.cat([x, x], dim=0))
reveal_type(ow.ops.softmax.all(x))
for row in x:
    reveal_type(row)
ow.ops.softmax(x, axsi=-1)
ow.ops.gelu(x, approximate="fast")
ow.ops.sofmax(x)
x.summ()
"""
WANTED = [
    *["Tensor"] * 7, "Any", "int", "tuple[int, ...]", "Tensor", "Tensor", "tuple[Tensor, Tensor]", "Tensor",
    "tuple[Tensor, ...]", "Tensor",
]  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return stub_texts(Workbench.here().proven())


def functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in body if isinstance(n, ast.FunctionDef)}


def test_every_op_is_there_with_its_text_and_its_arguments(texts: dict[str, str]) -> None:
    tree = ast.parse(texts["ops.pyi"])
    found = {n: f for n, f in functions(tree.body).items() if not n.startswith("_")}
    assert set(found) == {s.op for s in Workbench.here().proven() if s.op.isidentifier()}
    for name, function in found.items():
        assert len(ast.get_docstring(function) or "") > 10, name
        signature = registry.get(name).signature
        wanted = [i["name"] for i in signature["inputs"]] + [a["name"] for a in signature["attrs"]]
        arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        assert [a for a in arguments if a != "out" or "out" in wanted] == wanted, name


def test_every_member_of_tensor_is_there(texts: dict[str, str]) -> None:
    tree = ast.parse(texts["_core.pyi"])
    (tensor,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    own = {n for n in dir(opwright.Tensor) if n not in dir(object)}
    said = functions(tensor.body)
    assert own - set(said) == {"__array_ufunc__", "__delitem__"} and set(said) - own <= {
        "__hash__",
        "__eq__",
        "__ne__",
        *dir(object),
    } | {"__iter__"}
    assert all(ast.get_docstring(f) for n, f in said.items() if not n.startswith("__"))


def test_mypy_reads_them(texts: dict[str, str], tmp_path: Path) -> None:
    """As somebody else's project sees an installed opwright: types where they are right, errors where they are not."""
    site = tmp_path / "site"
    package = site / "opwright"
    package.mkdir(parents=True)
    face = Path(opwright.__file__).parent
    for path in (*face.glob("*.py"), face / "py.typed"):
        shutil.copy(path, package / path.name)
    for name, text in texts.items():
        (package / name).write_text(text)
    use = tmp_path / "use.py"
    use.write_text(USE)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--no-error-summary",
            "--config-file=",
            str(use),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(site), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    notes = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed type" in line]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    plain = [n.replace("opwright._core.", "").replace("builtins.", "") for n in notes]
    assert plain == WANTED, done.stdout
    assert len(errors) == 4, done.stdout
    for error, part in zip(errors, ("axsi", "approximate", "sofmax", "summ"), strict=True):
        assert part in error or "Unexpected keyword" in error or "incompatible type" in error
    # And the stubs themselves are in order.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", str(package / "ops.pyi"),
         str(package / "_core.pyi")],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(site), "PYTHONPATH": ""}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    wrong = [line for line in checked.stdout.splitlines() if ".pyi:" in line and ": error:" in line]
    assert not wrong, checked.stdout


def test_the_command_writes_them_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opwright.workflows.cli", "generate", "--stubs", "--out", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (
        "_core.pyi, ops.pyi" in first.stdout + first.stderr
        and "nothing changed" in second.stdout + second.stderr
    )
    refused = subprocess.run([*command, "softmax"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "stand alone" in refused.stderr
