"""opwright.toml: found upwards, checked key by key, with the place of every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright import resources
from opwright.errors import ErrorGroup
from opwright.workflows import config


def write(folder: Path, text: str) -> Path:
    file = folder / "opwright.toml"
    file.write_text(text)
    return file


def test_it_is_found_from_a_folder_below(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    found = config.find(tmp_path / "a" / "b")
    assert found.root == tmp_path and found.file == tmp_path / "opwright.toml"


def test_a_folder_without_one_has_the_built_in_operators_only(tmp_path: Path) -> None:
    found = config.find(tmp_path)
    assert found.file is None and found.specs == ()
    assert found.spec_dirs == (resources.specs_dir() / "ops",)


def test_own_specs_come_after_the_built_in_ones_and_so_replace_them(tmp_path: Path) -> None:
    (tmp_path / "mine" / "ops").mkdir(parents=True)
    write(tmp_path, 'schema = 1\n[paths]\nspecs = ["mine"]\n')
    assert config.find(tmp_path).spec_dirs == (resources.specs_dir() / "ops", tmp_path / "mine" / "ops")


def test_this_repository_s_own_file_holds(root: Path) -> None:
    found = config.load(root / "opwright.toml")
    assert found.evidence == root / "runtime" / "accepted"
    assert found.evidence_dirs == (root / "runtime" / "accepted",), (
        "the built-in folder is the same one, seen once"
    )
    assert found.spec_dirs == (resources.specs_dir() / "ops",)


def test_all_mistakes_are_said_at_once_with_their_places(tmp_path: Path) -> None:
    file = write(tmp_path, 'schema = 1\nnamspace = "x"\ntargets = ["gpu"]\n[gate]\nsample = 2\n[pahts]\n')
    with pytest.raises(ErrorGroup) as caught:
        config.load(file)
    found = {(e.place.line if e.place else 0): e for e in caught.value.errors}
    assert sorted(found) == [2, 3, 5, 6]
    assert "did you mean `namespace`?" in found[2].render()
    assert "a list of targets" in found[3].message
    assert "a share from 0 to 1" in found[5].message
    assert "did you mean `paths`?" in found[6].render()


def test_text_that_is_no_toml_is_placed(tmp_path: Path) -> None:
    file = write(tmp_path, "schema = 1\nnamespace = \n")
    with pytest.raises(config.ConfigError) as caught:
        config.load(file)
    assert caught.value.place is not None and caught.value.place.line == 2
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("line", ["schema = 2", "schema = true", 'schema = "1"'])
def test_another_schema_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(config.ConfigError, match="schema"):
        config.load(write(tmp_path, line + "\n"))


def test_the_template_is_a_file_that_it_reads(tmp_path: Path) -> None:
    found = config.load(write(tmp_path, config.TEMPLATE.format(namespace="myco", example="myco::rope2d")))
    assert found.namespace == "myco" and found.evidence == tmp_path / "evidence" / "ops"
