"""Fixtures of the command line: a runner, and a small workbench of its own."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opwright.workflows import cli

SCALE = """\
op: scale
doc: x times a number.
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {by: {type: float, default: 2.0}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = T(A(x[*B]) * A(by))
grad: {wrt: [x], derive: true}
test:
  cases: [{B: [3, 5]}, {B: [0]}, {B: []}]
  values: [normal]
  tol: bound
"""


@dataclass(frozen=True)
class Ran:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def ow() -> Run:
    """`ow("check", "softmax")` runs a command line in this process."""

    def run(*words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([str(w) for w in words])
        return Ran(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workbench in a folder of its own, as the working directory, with one operator `scale`."""
    root = tmp_path / "project"
    (root / "specs" / "tiny").mkdir(parents=True)
    (root / "opwright.toml").write_text('schema = 1\nlanguage = 1\n[paths]\nspecs = ["specs"]\n')
    (root / "specs" / "tiny" / "scale.yaml").write_text(SCALE)
    monkeypatch.chdir(root)
    return root
