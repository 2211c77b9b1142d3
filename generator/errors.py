"""Errors of the workbench, beside the base classes that the runtime shares (`runtime/python/errors.py`).

May import: `opwright.errors`.
To add one: derive from the class whose exit code fits; one class per kind of mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from ..errors import (
    EXIT_FAILED,
    EXIT_MACHINE,
    EXIT_OK,
    EXIT_REQUEST,
    ErrorGroup,
    OpwrightError,
    Place,
    raise_all,
    short_path,
)

__all__ = [
    "EXIT_FAILED",
    "EXIT_MACHINE",
    "EXIT_OK",
    "EXIT_REQUEST",
    "ErrorGroup",
    "JudgedError",
    "MachineError",
    "OpwrightError",
    "Place",
    "SpecError",
    "did_you_mean",
    "raise_all",
    "short_path",
]


class SpecError(OpwrightError):
    """A spec says something that is not in the language, or contradicts itself."""


class JudgedError(OpwrightError):
    """Something was judged and failed."""

    exit_code: ClassVar[int] = EXIT_FAILED


class MachineError(OpwrightError):
    """The machine lacks something; `opwright doctor` says what."""

    exit_code: ClassVar[int] = EXIT_MACHINE


def did_you_mean(name: str, known: Iterable[str], *, what: str = "") -> str:
    """The hint for an unknown name: the nearest known one, else the list of them (`what` names the list)."""
    names = sorted(set(known))
    lower = {n.lower(): n for n in reversed(names)}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{lower[near[0]]}`?"
    if not names:
        return f"there are no {what or 'names'} here"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{what or 'known'}: {shown}"
