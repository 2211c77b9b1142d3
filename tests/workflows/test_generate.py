"""`generate`: everything that is made from a spec, as files that list, compare and test themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwright import toolchain


@pytest.fixture
def made(ow: Any, project: Path) -> Path:
    ran = ow("generate", "scale")
    assert ran.code == 0, ran.err
    return project / "build" / "generated" / "scale"


def test_it_writes_kernels_bindings_test_benchmark_and_page(made: Path) -> None:
    dialect = toolchain.native_dialect()
    assert sorted(p.name for p in made.iterdir()) == [
        "bench_scale.py",
        f"{dialect}.cpp",
        "manifest.json",
        "rows.json",
        "scale.md",
        "test_scale.py",
    ]
    rows = json.loads((made / "rows.json").read_text())
    forward = rows["dialects"][dialect]["forward"]
    assert {r["row"]["key"]["types"]["T"] for r in forward} >= {"f32", "f64", "bf16"}
    lines = (made / f"{dialect}.cpp").read_text().split("\n")
    for r in forward:
        text = "\n".join(lines[r["line"] - 1 : r["line"] - 1 + r["lines"]])
        assert f"{r['row']['symbol']}(const OwCall*" in text, "each row says where its kernel stands"


def test_the_folder_names_nothing_of_this_machine(made: Path) -> None:
    for path in made.iterdir():
        assert str(made.parent.parent.parent) not in path.read_text(), path.name


def test_a_second_run_writes_nothing_and_check_agrees(ow: Any, made: Path) -> None:
    (row,) = ow("generate", "scale", "--json").json["ops"]
    assert row["written"] == [] and len(row["same"]) == 5
    assert ow("generate", "--all", "--check").code == 0


def test_check_sees_an_edit_and_a_changed_spec(ow: Any, made: Path, project: Path) -> None:
    (made / "scale.md").write_text("edited\n")
    ran = ow("generate", "scale", "--check")
    assert ran.code == 1 and "scale.md differs" in ran.out
    assert (made / "scale.md").read_text() == "edited\n"
    assert ow("generate", "scale").code == 0
    spec = project / "specs" / "tiny" / "scale.yaml"
    spec.write_text(spec.read_text().replace("A(x[*B]) * A(by)", "A(x[*B]) * A(by) + A(by)"))
    ran = ow("generate", "--all", "--check")
    assert ran.code == 1 and ".cpp differs" in ran.out and "rows.json differs" in ran.out


def test_other_dialects_are_written_on_any_machine_and_remembered(ow: Any, made: Path) -> None:
    assert ow("generate", "scale", "--dialect", "cpu-portable").code == 0
    assert [p.name for p in made.glob("*.cpp")] == ["cpu-portable.cpp"]
    (row,) = ow("generate", "scale", "--json").json["ops"]
    assert row["written"] == []


def test_what_is_asked_for_wrongly_is_said(ow: Any, project: Path) -> None:
    assert ow("generate").code == 2
    assert ow("generate", "scale", "--all").code == 2
    assert "dialects: cpu-" in ow("generate", "scale", "--dialect", "cpu-avx1024").err
    assert ow("generate", "nope").code == 2


@pytest.mark.judge
def test_the_generated_test_passes_by_itself_and_fails_on_a_wrong_kernel(made: Path) -> None:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)]
        return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=made)

    good = run()
    assert good.returncode == 0, good.stdout
    unit = next(made.glob("*.cpp"))
    text = unit.read_text()
    wrong = text.replace("] * (float)by", "] + (float)by")
    assert wrong != text
    unit.write_text(wrong)
    bad = run()
    assert bad.returncode == 1 and "numerics" in bad.stdout
