"""What commands write on a terminal."""

from __future__ import annotations

import threading

import pytest

from opwright.workflows import console


def test_a_number_agrees_with_its_noun() -> None:
    assert [console.counted(n, "operator") for n in (0, 1, 2)] == ["0 operators", "1 operator", "2 operators"]


def test_a_block_that_takes_long_says_what_it_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Passed(threading.Timer):
        """A time that is over at once."""

        def start(self) -> None:
            self.function(*self.args)

    with console.progress("reading", after_s=60.0):
        pass
    monkeypatch.setattr(threading, "Timer", Passed)
    assert capsys.readouterr().err == ""
    with console.progress("reading", after_s=60.0):
        pass
    assert capsys.readouterr().err == "… reading\n"
    with console.progress("reading"):
        pass
    assert capsys.readouterr().err == ""
