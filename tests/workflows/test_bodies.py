"""Kernels written by hand, from the command line: judged like ours, and named in the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from opwright.generator.bind_key import keys_of
from opwright.workflows.bridge import Bridge
from opwright.workflows.workbench import Workbench

RIGHT = """\
static void body(const Args& a) {
  int64_t n = 1;
  for (int32_t d = 0; d < a.x.rank; ++d) n *= a.x.shape[d];
  for (int64_t k = 0; k < n; ++k) {  // element by element, the last axis fastest
    int64_t from = 0, to = 0, left = k;
    for (int32_t d = a.x.rank - 1; d >= 0; --d) {
      from += left % a.x.shape[d] * a.x.strides[d];
      to += left % a.x.shape[d] * a.y.strides[d];
      left /= a.x.shape[d];
    }
    store(a.y.data + to, load(a.x.data + from) * static_cast<A>(a.by));
  }
}
"""


@pytest.fixture
def bodies(project: Path) -> Path:
    folder = project / "bodies"
    folder.mkdir()
    (folder / "right.cpp").write_text(RIGHT)
    (folder / "wrong.cpp").write_text(RIGHT.replace("k = 0", "k = n > 40"))
    (folder / "leaves.cpp").write_text(
        RIGHT.replace("{  // element", "{ static int calls = 0; ++calls; // element")
    )
    return folder


def named(project: Path, body: str) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    path.write_text(path.read_text() + f"lower: {{cpu: {{kind: body, file: {body}, author: A. Person}}}}\n")


@pytest.mark.judge
def test_a_right_body_passes_and_wrong_ones_do_not(ow: Any, bodies: Path) -> None:
    pytest.importorskip("torch")
    ran = ow("validate", "scale", "--body", str(bodies / "right.cpp"))
    assert ran.code == 0, ran.out + ran.err
    ran = ow("validate", "scale", "--body", str(bodies / "wrong.cpp"))
    assert ran.code == 1 and "✗ numerics" in ran.out and f"--body {bodies / 'wrong.cpp'}" in ran.out
    ran = ow("validate", "scale", "--body", str(bodies / "leaves.cpp"))
    assert ran.code == 1 and "✗ lint" in ran.out and "line 4 of the body" in ran.out


@pytest.mark.judge
def test_the_evidence_says_whose_body_it_is(ow: Any, project: Path, bodies: Path) -> None:
    pytest.importorskip("torch")
    named(project, "right.cpp")
    assert ow("accept", "scale", "--tier", "quick").code == 0
    (file,) = (project / "evidence" / "ops").glob("scale.yaml")
    (proof,) = YAML(typ="safe").load(file.read_text())["dialects"].values()
    assert {b["author"] for b in proof["bodies"].values()} == {"A. Person"}
    assert ow("accept", "scale", "--stale", "--tier", "quick").out.strip() == "nothing is stale"
    (bodies / "right.cpp").write_text(RIGHT.replace("k = 0", "k = n > 40"))
    assert ow("accept", "scale", "--stale", "--tier", "quick").code == 1, "a changed body is judged again"


def test_a_body_that_is_not_there_or_not_a_body_is_said(ow: Any, project: Path, bodies: Path) -> None:
    ran = ow("validate", "scale", "--body", "none.cpp")
    assert ran.code == 2 and "no file none.cpp" in ran.err
    named(project, "missing.cpp")
    ran = ow("show", "scale", "--level", "cpp")
    assert ran.code == 2 and "missing.cpp, which is not there" in ran.err and "--level body" in ran.err


@pytest.mark.parametrize("file", ["../outside.cpp", "/etc/passwd", "a.txt", "3"])
def test_a_body_lies_in_the_folder_of_bodies(ow: Any, project: Path, file: str) -> None:
    named(project, file)
    ran = ow("check", "scale")
    assert ran.code == 2 and "a body is a .cpp file in the folder of bodies" in ran.err


@pytest.mark.judge
def test_a_body_serves_what_the_judge_saw_it_with_and_nothing_else(
    ow: Any, project: Path, bodies: Path
) -> None:
    pytest.importorskip("torch")
    named(project, "right.cpp")
    assert ow("accept", "scale", "--tier", "quick").code == 0
    bench = Workbench.here(project)
    spec, bridge = bench.one("scale"), Bridge(bench, "cpu-portable")
    f16 = next(k for k in keys_of(spec) if dict(k.types)["T"] == "f16")
    assert "static void body(" in bridge.text(spec, f16).source, "every dtype was judged"
    (file,) = (project / "evidence" / "ops").glob("scale.yaml")
    file.write_text(file.read_text().replace(f"    - {f16.show()}\n", ""))
    forgotten = Bridge(Workbench.here(project), "cpu-portable")
    assert "static void body(" not in forgotten.text(spec, f16).source
    assert "static void body(" in forgotten.text(spec, f16, judging=True).source


@pytest.mark.judge
def test_a_dtype_that_a_body_forgot_is_seen_by_the_quick_tier(ow: Any, project: Path, bodies: Path) -> None:
    pytest.importorskip("torch")
    overflows = "T h;\n    store(&h, A(70000));\n    if (load(&h) > A(80000)) continue;\n    "  # in f16 alone
    forgets = RIGHT.replace("store(a.y.data + to,", f"{overflows}store(a.y.data + to,")
    (bodies / "forgets.cpp").write_text(forgets)
    ran = ow("validate", "scale", "--body", str(bodies / "forgets.cpp"))
    assert ran.code == 1 and "✗ numerics" in ran.out and "f16" in ran.out
