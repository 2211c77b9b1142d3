"""Errors that a person can cause: one class each, one message, one place, and what to do about it.

May import: the standard library only (the runtime, which imports nothing of the workbench, raises these too).
To add one: derive from `OpwrightError` (in `generator/errors.py` when only the workbench raises it), set
`exit_code` when it is not 2, and give every `raise` a `hint` that says what to write instead.

Exit codes: 0 fine · 1 was judged and failed · 2 the request was wrong · 3 the machine lacks something.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_REQUEST = 2
EXIT_MACHINE = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a file, a line and a column (both from 1; 0 = not known), and that line's text.

    `length` is how many characters from `column` on the caret underlines.
    """

    file: str
    line: int = 0
    column: int = 0
    text: str | None = None
    length: int = 1

    @classmethod
    def in_file(cls, file: str | Path, line: int, column: int = 0, length: int = 1) -> Place:
        """A place whose source line is read from the file; a file that cannot be read leaves the text out."""
        text = None
        try:
            with open(file, encoding="utf-8", errors="replace") as lines:
                for number, content in enumerate(lines, 1):
                    if number == line:
                        text = content.rstrip("\r\n")
                        break
        except OSError:
            pass  # the place is still worth naming
        return cls(str(file), line, column, text, length)

    def with_text(self, source: str) -> Place:
        """The same place, its line cut out of `source` (the whole text of the file)."""
        lines = source.split("\n")
        if not 1 <= self.line <= len(lines):
            return self
        return replace(self, text=lines[self.line - 1].rstrip("\r"))

    def __str__(self) -> str:
        parts = [short_path(self.file)]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)

    def excerpt(self) -> str:
        """The source line and a caret below its column; empty when the line is not known."""
        if self.text is None or not self.line:
            return ""
        gutter = f"{self.line:>5} | "
        text, column = self.text, self.column
        if len(text) > MAX_EXCERPT:  # a 50 MB line must not reach the terminal
            start = max(0, min(column - 1 - MAX_EXCERPT // 2, len(text) - MAX_EXCERPT))
            text, column = text[start : start + MAX_EXCERPT], column - start
        # Tabs stay tabs under the caret, so that it lands where the terminal put the character.
        line = f"{gutter}{_printable(text)}"
        if column < 1:
            return line
        lead = "".join("\t" if c == "\t" else " " for c in text[: column - 1]).ljust(column - 1)
        marks = "^" + "~" * max(0, min(self.length, len(text) - column + 1) - 1)
        return f"{line}\n{' ' * (len(gutter) - 2)}| {lead}{marks}"


MAX_EXCERPT = 160


def short_path(file: str) -> str:
    """`file` relative to the working directory when it lies below it, else as it is."""
    try:
        relative = os.path.relpath(file)
    except (ValueError, OSError):  # another drive, or the working directory is gone
        return file
    return file if relative.startswith("..") else relative


def _clean(text: str) -> str:
    """A message of several lines, each printable: it may quote what a spec says."""
    return "\n".join(_printable(line) for line in text.split("\n"))


def _printable(text: str) -> str:
    """`text` without control characters other than tab: a spec must not drive the terminal."""
    return "".join(c if c == "\t" or c.isprintable() else "?" for c in text)


class OpwrightError(Exception):
    """Base of every error that a person can cause.

    message: one sentence, lower case, no full stop.  place: where.  hint: what to write or do instead.
    """

    exit_code: ClassVar[int] = EXIT_REQUEST

    def __init__(self, message: str, *, place: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint
        if hint:  # a traceback, which prints no more than the message, ends with it
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from child processes; keyword-only arguments would not survive Exception's own way.
        return _rebuild, (type(self), self.args, self.__dict__)

    @property
    def errors(self) -> tuple[OpwrightError, ...]:
        """The single errors in this one: itself, or the members of a group."""
        return (self,)

    def render(self) -> str:
        """What a person sees: `file:line:column: error: message`, the line, a caret, and the hint."""
        where = f"{self.place}: " if self.place else ""
        lines = [f"{where}error: {_clean(self.message)}"]
        if self.place and (excerpt := self.place.excerpt()):
            lines.append(excerpt)
        if self.hint:
            lines.append(f"  hint: {_clean(self.hint)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same for a program that reads it."""
        out: dict[str, Any] = {
            "error": type(self).__name__,
            "message": self.message,
            "exit_code": self.exit_code,
        }
        if self.place:
            out |= {"file": self.place.file, "line": self.place.line, "column": self.place.column}
        if self.hint:
            out["hint"] = self.hint
        return out


class ErrorGroup(OpwrightError):
    """Several errors found in one run, reported together; nested groups are flattened."""

    def __init__(self, errors: Iterable[OpwrightError], *, summary: str | None = None) -> None:
        self._errors = tuple(single for error in errors for single in error.errors)
        if not self._errors:
            raise ValueError("an ErrorGroup needs at least one error")
        super().__init__(summary or f"{len(self._errors)} errors", place=self._errors[0].place)

    @property
    def errors(self) -> tuple[OpwrightError, ...]:
        return self._errors

    # A machine that lacks something outranks a wrong request, and that outranks a failed judgement.
    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return max(error.exit_code for error in self._errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self._errors)

    def render(self) -> str:
        parts = [error.render() for error in self._errors]
        if len(parts) > 1:
            parts.append(self.message)
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"errors": [error.to_json() for error in self._errors]}


def raise_all(errors: Iterable[OpwrightError]) -> None:
    """Raise what was collected: nothing, the one error, or all of them as a group."""
    found = list(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise ErrorGroup(found)


def _rebuild(cls: type[OpwrightError], args: tuple[Any, ...], state: dict[str, Any]) -> OpwrightError:
    error = cls.__new__(cls, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error
