"""The language reference says what the code does: its examples load, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opwright.generator.bind import bind
from opwright.generator.bind_key import keys_of
from opwright.generator.expr import FUNCTIONS, REDUCTIONS
from opwright.generator.spec import load_spec_text
from opwright.generator.spec_model import ATTR_KINDS, CALL_RULES, FIELDS, LAYOUTS, VALUE_CLASSES
from opwright.generator.types import CATEGORIES, RULES, DType

TEXT = (Path(__file__).parent.parent.parent / "docs" / "language.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.split("\n")[0])
def test_examples_load_and_bind(example: str) -> None:
    for spec in load_spec_text(example, "docs/language.md"):
        for key in keys_of(spec):
            bind(spec, key)


def rows(heading: str) -> str:
    """The rows of the tables below a heading."""
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(line for line in part.split("\n") if line.startswith("|"))


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("The file", FIELDS),
        ("Types", [*CATEGORIES, *RULES, *CALL_RULES]),
        ("Attributes", ATTR_KINDS),
        ("Expressions", FUNCTIONS),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_tables_are_complete(heading: str, names: list[str]) -> None:
    assert set(names) - words(rows(heading)) == set()


def test_the_function_table_names_nothing_else() -> None:
    """A function that is gone, or was never there, must not stay in the reference."""
    first = [line.split("|")[1] for line in rows("Expressions").split("\n")[2:]]
    called = {
        w
        for cell in first
        for code in re.findall(r"`([^`]*)`", cell)
        for w in words(re.sub(r"\(.*?\)", "", code))
    }
    assert called - set(FUNCTIONS) == set()


def test_lists_in_the_text_are_complete() -> None:
    assert f"`{' '.join(d.value for d in DType)}`" in TEXT
    assert f"`{' '.join(REDUCTIONS)}`" in TEXT
    assert f"`{' '.join(LAYOUTS)}`" in TEXT
    assert f"`{' '.join(VALUE_CLASSES)}`" in TEXT


def test_categories_say_what_they_hold() -> None:
    for line in rows("Types").split("\n"):
        cells = [c.strip() for c in line.split("|")[1:-1]]
        name = cells[0].strip("`")
        if name in CATEGORIES and set(cells[1].split()) <= {d.value for d in DType}:
            assert cells[1].split() == [d.value for d in CATEGORIES[name]]
