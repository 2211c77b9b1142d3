"""`new`, `init`, `migrate`, `schema`: beginnings that read, and nothing written over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_init_then_new_then_check(ow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "mine"
    assert ow("init", "--namespace", "myco", str(root)).code == 0
    monkeypatch.chdir(root)
    ran = ow("new", "rope2d", "--family", "attention", "--json")
    assert ran.json["op"] == "myco::rope2d"
    assert Path(ran.json["file"]) == root / "specs" / "attention" / "rope2d.yaml"
    ran = ow("check", "myco::rope2d")
    assert ran.code == 0
    for left in ("`doc` is still the draft's", "`compute` is still the draft's", "nobody is named who says"):
        assert f"warning: {left}" in ran.err
    assert {r["name"] for r in ow("ops", "--json").json["ops"]} > {"myco::rope2d", "softmax"}


def test_init_writes_over_nothing(ow: Any, project: Path) -> None:
    before = (project / "opwright.toml").read_text()
    assert ow("init").code == 2
    assert (project / "opwright.toml").read_text() == before


def test_new_needs_a_workbench(ow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = ow("new", "thing")
    assert ran.code == 2 and "opwright init" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "like", ["softmax", "matmul", "native_layer_norm", "embedding", "cumsum", "gelu", "cat", "sum"]
)
def test_a_draft_like_another_means_the_same(ow: Any, project: Path, like: str) -> None:
    from opwright.workflows.workbench import Workbench

    assert ow("new", f"my_{like}", "--like", like).code == 0
    assert ow("check", f"my_{like}").code == 0
    bench = Workbench.here(project)
    ours, theirs = bench.one(f"my_{like}"), bench.one(like)
    head = [line for line in theirs.meaning_text().splitlines() if not line.startswith("grad:")]
    assert [line for line in ours.meaning_text().splitlines() if line in head][: len(head) // 2], (
        "it keeps its meaning"
    )
    assert (
        ours.compute == theirs.compute
        and ours.types == theirs.types
        and ours.attrs.keys() == theirs.attrs.keys()
    )


@pytest.mark.parametrize("name", ["../x", "X", "a b", "", "x" * 3 + "::" + "y::z"])
def test_a_name_that_is_none_is_refused(ow: Any, project: Path, name: str) -> None:
    ran = ow("new", name)
    assert ran.code == 2 and "no operator's name" in ran.err


def test_new_writes_over_nothing(ow: Any, project: Path) -> None:
    assert ow("new", "scale").code == 2
    (project / "specs" / "misc").mkdir()
    (project / "specs" / "misc" / "thing.yaml").write_text("# notes\n")
    # The folder's own file does not read, so the workbench says that first.
    assert ow("new", "thing").code == 2
    assert (project / "specs" / "misc" / "thing.yaml").read_text() == "# notes\n"


def test_new_from_an_overload_has_its_arguments(ow: Any, project: Path) -> None:
    pytest.importorskip("torch")
    assert ow("new", "mix", "--from", "aten.dist.default").code == 0
    text = (project / "specs" / "misc" / "mix.yaml").read_text()
    assert "map: {self: x, other: other, p: p}" in text and "p: {type: scalar, default: 2}" in text
    ran = ow("new", "mix2", "--from", "aten.lerp.Nope")
    assert ran.code == 2 and "aten.lerp.Scalar" in ran.err


def test_new_from_an_elementwise_decomposition_is_whole(ow: Any, project: Path) -> None:
    pytest.importorskip("torch")
    ran = ow("new", "celu", "--from", "aten.celu.default", "--json")
    assert ran.json["derived"] is True
    text = Path(ran.json["file"]).read_text()
    assert "alpha: {type: float, default: 1.0}" in text and "expm1" in text
    assert ow("check", "celu").code == 0


def test_migrate_refuses_what_is_newer_and_what_is_broken(ow: Any, project: Path) -> None:
    folder = project / "evidence" / "ops"
    folder.mkdir(parents=True)
    assert ow("migrate").code == 0
    (folder / "a.yaml").write_text("schema: 1\n")
    (folder / "b.yaml").write_text("schema: 99\n")
    (folder / "c.yaml").write_text("no: schema\n")
    ran = ow("migrate")
    assert ran.code == 2 and "schema 99" in ran.err and "c.yaml has no schema" in ran.err


def test_schema_is_json_schema(ow: Any, tmp_path: Path) -> None:
    ran = ow("schema")
    assert "properties" in ran.out and json.loads(ran.out)["$schema"].startswith("https://json-schema.org")
    assert ow("schema", "-o", str(tmp_path / "s.json")).code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(ran.out)


def test_an_overload_that_is_served_is_refused(ow: Any, project: Path) -> None:
    ran = ow("new", "mine", "--from", "aten.lerp.Tensor")
    assert ran.code == 2 and "`lerp` already" in ran.err and "--like lerp" in ran.err
    assert not (project / "specs" / "misc").exists()


def test_the_examples_of_the_help_run(ow: Any, project: Path) -> None:
    pytest.importorskip("torch")
    from opwright.workflows.new import new

    for line in new.example:
        assert ow(*line.split()[1:]).code == 0, line
