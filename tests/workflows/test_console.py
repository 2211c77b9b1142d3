"""What commands write on a terminal."""

from __future__ import annotations

from opwright.workflows import console


def test_a_number_agrees_with_its_noun() -> None:
    assert [console.counted(n, "operator") for n in (0, 1, 2)] == ["0 operators", "1 operator", "2 operators"]
