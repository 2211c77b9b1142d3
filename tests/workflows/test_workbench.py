"""A workbench whose files do not all read: the rest goes on, and who asks for all is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CLAIMS = """\
op: aaa
doc: A newcomer that claims what softmax is.
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = x[*B]
grad: {wrt: [x], derive: true}
test: {cases: [{B: [2]}], tol: bound}
aten: [{overload: aten._softmax.default, map: {self: x}}]
"""


@pytest.fixture
def torn(project: Path) -> Path:
    folder = project / "specs" / "misc"
    folder.mkdir(parents=True)
    (folder / "aaa.yaml").write_text(CLAIMS)
    (folder / "bbb.yaml").write_text("op: [broken\n")
    return folder


def test_one_bad_file_takes_nothing_else_down(ow: Any, torn: Path) -> None:
    ran = ow("ops", "softmax", "--json")
    assert ran.code == 0 and ran.json["ops"][0]["state"] == "fresh"
    assert "aaa.yaml" in ran.err and "bbb.yaml" in ran.err and "left out" in ran.err


def test_the_newcomer_is_blamed_and_by_its_own_line(ow: Any, torn: Path) -> None:
    ran = ow("check", "aaa")
    assert ran.code == 2 and "misc/aaa.yaml:11:" in ran.err and "already `softmax`" in ran.err
    assert "left out" not in ran.err
    assert ow("check", "softmax").code == 0


def test_all_is_not_all_without_them(ow: Any, torn: Path) -> None:
    for words in (("check",), ("accept", "--all", "--stale"), ("generate", "--all")):
        ran = ow(*words)
        assert ran.code == 2 and "aaa.yaml" in ran.err and "bbb.yaml" in ran.err
