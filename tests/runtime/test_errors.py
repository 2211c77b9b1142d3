"""What a person sees of an error: place, line, caret, hint; and what a program sees."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import ClassVar

import pytest

from opwright.errors import (
    EXIT_FAILED,
    EXIT_MACHINE,
    EXIT_REQUEST,
    MAX_EXCERPT,
    ErrorGroup,
    OpwrightError,
    Place,
    raise_all,
)


class Failed(OpwrightError):
    exit_code: ClassVar[int] = EXIT_FAILED


class Machine(OpwrightError):
    exit_code: ClassVar[int] = EXIT_MACHINE


def test_render_has_place_line_caret_and_hint():
    place = Place("specs/x.yaml", 12, 8, "  dims: [N, K]", length=6)
    assert OpwrightError("no such dim", place=place, hint="did you mean `M`?").render() == (
        "specs/x.yaml:12:8: error: no such dim\n"
        "   12 |   dims: [N, K]\n"
        "      |        ^~~~~~\n"
        "  hint: did you mean `M`?"
    )


def test_render_without_a_place():
    assert OpwrightError("the disk is full").render() == "error: the disk is full"


@pytest.mark.parametrize(
    ("place", "shown"),
    [(Place("a.yaml"), "a.yaml"), (Place("a.yaml", 3), "a.yaml:3"), (Place("a.yaml", 3, 7), "a.yaml:3:7")],
)
def test_place_shows_what_is_known(place, shown):
    assert str(place) == shown


def test_place_without_a_column_shows_the_line_alone():
    assert Place("a", 3, 0, "text").excerpt() == "    3 | text"


def test_caret_stays_within_the_line():
    assert Place("a", 1, 3, "abcd", length=99).excerpt().endswith("|   ^~")
    assert Place("a", 1, 5, "abcd", length=3).excerpt().endswith("|     ^")


def test_tabs_stay_tabs_under_the_caret():
    assert Place("a", 1, 3, "\ta b").excerpt().splitlines()[1] == "      | \t ^"


def test_a_very_long_line_is_cut_around_the_caret():
    text = "x" * 5_000_000 + "!" + "y" * 5_000_000
    line, caret = Place("a", 1, 5_000_001, text).excerpt().splitlines()
    assert len(line) <= MAX_EXCERPT + 10
    assert line[caret.index("^")] == "!"


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in Place("a", 1, 1, "\x1b[31mred").excerpt()


def test_place_in_file_reads_the_line(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("one\r\ntwo\nthree\n")
    assert Place.in_file(file, 1, 1).text == "one"
    assert Place.in_file(file, 2).text == "two"
    assert Place.in_file(file, 9).text is None
    assert Place.in_file(tmp_path / "none", 1).text is None


def test_place_with_text_cuts_the_line_out():
    assert Place("a", 2, 1).with_text("one\r\ntwo\r\n").text == "two"
    assert Place("a", 7, 1).with_text("one").text is None


def test_paths_are_shown_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(Place(str(tmp_path / "specs" / "a.yaml"), 1)) == str(Path("specs") / "a.yaml") + ":1"
    assert str(Place("/elsewhere/a.yaml", 1)) == "/elsewhere/a.yaml:1"


def test_json_for_programs():
    error = Failed("wrong", place=Place("a.yaml", 3, 7), hint="mend it")
    place = {"file": "a.yaml", "line": 3, "column": 7}
    assert error.to_json() == {
        "error": "Failed",
        "message": "wrong",
        "exit_code": 1,
        "hint": "mend it",
        **place,
    }


def test_group_renders_all_and_counts():
    group = ErrorGroup([OpwrightError("one"), ErrorGroup([Failed("two"), OpwrightError("three")])])
    assert group.render() == "error: one\nerror: two\nerror: three\n3 errors"
    assert [e["message"] for e in group.to_json()["errors"]] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([Failed("a")], EXIT_FAILED),
        ([Failed("a"), OpwrightError("b")], EXIT_REQUEST),
        ([OpwrightError("b"), Machine("c"), Failed("a")], EXIT_MACHINE),
    ],
)
def test_a_group_takes_the_gravest_exit_code(errors, code):
    assert ErrorGroup(errors).exit_code == code


def test_an_empty_group_is_a_mistake_of_ours():
    with pytest.raises(ValueError, match="at least one"):
        ErrorGroup([])


def test_raise_all():
    raise_all([])
    one = OpwrightError("one")
    with pytest.raises(OpwrightError) as caught:
        raise_all([one])
    assert caught.value is one
    with pytest.raises(ErrorGroup):
        raise_all([one, OpwrightError("two")])


def test_errors_cross_processes():
    group = ErrorGroup([Failed("a", place=Place("f", 1, 2, "text"), hint="h"), Machine("b")])
    again = pickle.loads(pickle.dumps(group))
    assert again.render() == group.render()
    assert again.exit_code == EXIT_MACHINE
    assert [type(e) for e in again.errors] == [Failed, Machine]
