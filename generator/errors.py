"""Errors of the workbench, beside the base classes that the runtime shares (`runtime/python/errors.py`).

May import: `opwright.errors`.
To add one: derive from the class whose exit code fits; one class per kind of mistake.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

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
    "BindError",
    "DomainError",
    "ErrorGroup",
    "GradError",
    "JudgedError",
    "LanguageError",
    "LowerError",
    "MachineError",
    "NormalError",
    "OpwrightError",
    "Place",
    "SpecError",
    "did_you_mean",
    "raise_all",
    "raise_together",
    "short_path",
]


class SpecError(OpwrightError):
    """A spec says something that is not in the language, or contradicts itself.

    others: further mistakes found in the same run; `errors` and `render()` hold them too.
    """

    def __init__(
        self,
        message: str,
        *,
        place: Place | None = None,
        hint: str | None = None,
        others: Iterable[OpwrightError] = (),
    ) -> None:
        super().__init__(message, place=place, hint=hint or None)
        self.others: tuple[OpwrightError, ...] = tuple(others)

    @property
    def errors(self) -> tuple[OpwrightError, ...]:
        if not self.others:
            return (self,)
        alone = copy.copy(self)
        alone.others = ()
        return (alone, *(single for other in self.others for single in other.errors))

    def render(self) -> str:
        if not self.others:
            return super().render()
        return ErrorGroup(self.errors).render()

    def to_json(self) -> dict[str, Any]:
        if not self.others:
            return super().to_json()
        return super().to_json() | {"errors": [e.to_json() for e in self.errors]}


class LanguageError(SpecError):
    """A text is not an expression, statement or type of the language."""


class BindError(SpecError):
    """A spec cannot be bound to this key or call: names, types or extents do not fit."""


class DomainError(BindError):
    """A call lies outside what a spec admits: a dtype, a rank, a missing input, an attribute's value."""


class NormalError(SpecError):
    """A program breaks a rule of the Bound or Normal level."""


class GradError(SpecError):
    """A derivative that is asked for does not exist, or contradicts the declared one."""


class LowerError(SpecError):
    """A program has no lowering to the target as written."""


def raise_together(errors: Iterable[SpecError]) -> None:
    """Raise nothing, or the first error by place with the rest in its `.others`."""
    seen: dict[tuple[object, str], OpwrightError] = {}
    for error in errors:
        for e in error.errors:
            # a document with `each` stands for many specs: a mistake of the shared text is told once
            seen.setdefault(((e.place.file, e.place.line, e.place.column) if e.place else None, e.message), e)
    flat = list(seen.values())
    if not flat:
        return
    flat.sort(key=lambda e: (e.place.file, e.place.line, e.place.column) if e.place else ("", 0, 0))
    first, *rest = flat
    assert isinstance(first, SpecError)
    first.others = tuple(rest)
    raise first


class JudgedError(OpwrightError):
    """Something was judged and failed."""

    exit_code: ClassVar[int] = EXIT_FAILED


class MachineError(OpwrightError):
    """The machine lacks something; `opwright doctor` says what."""

    exit_code: ClassVar[int] = EXIT_MACHINE


def did_you_mean(name: str, known: Iterable[str], *, what: str = "", cutoff: float = 0.6) -> str:
    """The hint for an unknown name: the nearest known one, else the list of them (`what` names the list).

    Names that differ in case alone are one for nearness; of those, the one that is written more like `name`.
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), {n.lower() for n in names}, n=1, cutoff=cutoff)
    if near:
        alike = [n for n in names if n.lower() == near[0]]
        best = max(alike, key=lambda n: difflib.SequenceMatcher(None, name, n).ratio())
        return f"did you mean `{best}`?"
    if not names:
        return f"there are no {what or 'names'} here"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{what or 'known'}: {shown}"
