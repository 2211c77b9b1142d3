"""Generated files: written only when they change, listed, pruned, and never outside of their tree."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opwright import files
from opwright.generator.write import Tree, WriteError


def tree(root: Path, **files: str) -> Tree:
    out = Tree(root, {"op": "softmax"})
    for name, text in files.items():
        out.add(name.replace("__", "."), text)
    return out


def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    assert tree(tmp_path, a__cpp="x").commit().written == ("a.cpp",)
    before = (tmp_path / "a.cpp").stat().st_mtime_ns
    again = tree(tmp_path, a__cpp="x").commit()
    assert (again.written, again.same, again.removed) == ((), ("a.cpp",), ())
    assert (tmp_path / "a.cpp").stat().st_mtime_ns == before


def test_what_is_no_longer_made_is_removed_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    out = tree(tmp_path, a__cpp="x")
    out.add("sub/b.cpp", "y")
    out.commit()
    (tmp_path / "mine.txt").write_text("notes")
    changes = tree(tmp_path, a__cpp="x").commit()
    assert changes.removed == ("sub/b.cpp",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.cpp", "manifest.json", "mine.txt"]


def test_compare_sees_an_edited_file_and_writes_nothing(tmp_path: Path) -> None:
    tree(tmp_path, a__cpp="x", b__cpp="y").commit()
    (tmp_path / "a.cpp").write_text("edited\n")
    assert tree(tmp_path, a__cpp="x", b__cpp="y").compare().written == ("a.cpp",)
    assert (tmp_path / "a.cpp").read_text() == "edited\n"


def test_the_manifest_lists_every_file_with_its_hash(tmp_path: Path) -> None:
    tree(tmp_path, b__md="two", a__cpp="one").commit()
    data = json.loads((tmp_path / "manifest.json").read_text())
    assert list(data["files"]) == ["a.cpp", "b.md"] and data["op"] == "softmax" and data["schema"] == 1
    assert all(len(h) == 64 for h in data["files"].values())


def test_a_changed_origin_alone_is_a_change(tmp_path: Path) -> None:
    tree(tmp_path, a__cpp="x").commit()
    other = Tree(tmp_path, {"op": "softmax", "meaning": "other"})
    other.add("a.cpp", "x")
    assert other.compare().written == ("manifest.json",)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../b", "", ".hidden", "manifest.json", "a//b"])
def test_a_name_cannot_leave_the_tree(tmp_path: Path, name: str) -> None:
    with pytest.raises(WriteError):
        Tree(tmp_path).add(name, "x")


def test_a_manifest_that_names_files_outside_removes_none(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("stays")
    root = tmp_path / "tree"
    root.mkdir()
    (root / "manifest.json").write_text('{"schema": 1, "files": {"../victim": "0"}}')
    tree(root, a__cpp="x").commit()
    assert (tmp_path / "victim").read_text() == "stays"


def test_a_cut_manifest_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 1, "fi')
    with pytest.raises(WriteError, match=r"manifest\.json cannot be read"):
        tree(tmp_path, a__cpp="x").commit()


def test_a_failed_write_leaves_the_old_file_and_no_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, a__cpp="old").commit()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        tree(tmp_path, a__cpp="new").commit()
    monkeypatch.undo()
    assert (tmp_path / "a.cpp").read_text() == "old\n"
    assert sorted(os.listdir(tmp_path)) == ["a.cpp", "manifest.json"]
