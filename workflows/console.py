"""What people and programs see: results on stdout, progress and notes on stderr.

Nothing here decides; a command computes first and prints last.  `NO_COLOR` and a stream that is no terminal turn
colours and moving progress off (rich does both).

May import: rich (inside functions: it costs a tenth of a second), the standard library.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Progress", "counted", "note", "print_json", "print_table", "progress", "say", "table_text"]

SCHEMA = 1


def say(text: str = "") -> None:
    """A result, on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Something about the run, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def counted(n: int, noun: str) -> str:
    """`1 operator`, `2 operators`: a number with its noun, which takes a plain s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def short(path: Path) -> str:
    """The path as a person here would type it: relative to the working directory, if it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_json(data: dict[str, Any]) -> None:
    """One JSON object with `schema: 1` in front."""
    say(json.dumps({"schema": SCHEMA, **data}, indent=1, ensure_ascii=False, allow_nan=False))


def table_text(head: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; `right`: the columns that hold numbers.  Nothing is cut off: tables are
    also read by grep."""
    cells = [[str(c) for c in row] for row in (head, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = (
            c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(parts).rstrip()

    return "\n".join(line(row) for row in cells)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """A table on stdout."""
    say(table_text(head, rows, right=right))


class Progress:
    """What is going on: `step(text)` names it, `done(text)` leaves a line behind."""

    def step(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """What is being done now, and how far it is."""

    def done(self, text: str) -> None:
        """A line that stays."""
        note(text)


class _Live(Progress):
    """On a terminal: one moving line, which rich draws."""

    def __init__(self, status: Any, console: Any) -> None:
        self._status, self._console = status, console

    def step(self, text: str, done: int | None = None, total: int | None = None) -> None:
        count = f" {done}/{total}" if total is not None else ""
        self._status.update(f"{text}{count}")

    def done(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


class _Plain(Progress):
    """Anywhere else: a line now and then, so that a log shows where the time goes."""

    def __init__(self, every_s: float = 10.0) -> None:
        self._last, self._every, self._lock = time.monotonic(), every_s, threading.Lock()

    def step(self, text: str, done: int | None = None, total: int | None = None) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last < self._every:
                return
            self._last = now
        note(f"… {text}" + (f" {done}/{total}" if total is not None else ""))


@contextlib.contextmanager
def progress(text: str, *, quiet: bool = False, after_s: float | None = None) -> Iterator[Progress]:
    """Progress on stderr while the block runs; `quiet`: only lines that stay.

    after_s: of what mostly takes a moment: where there is no terminal, `text` is said once the block has taken so long.
    """
    if quiet or not sys.stderr.isatty():
        late = threading.Timer(after_s, note, [f"… {text}"]) if after_s is not None and not quiet else None
        if late is not None:
            late.daemon = True
            late.start()
        try:
            yield _Plain()
        finally:
            if late is not None:
                late.cancel()
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) as status:
        yield _Live(status, console)


def width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((100, 24)).columns
