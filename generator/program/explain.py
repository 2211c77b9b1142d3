"""Why torch.export stopped: where in the model's source, and what to write there instead.

    explain(error) -> (place or None, hint or None)
    plainly(error) -> what it means, or nothing

Torch says what it could not do; which of its reasons a person can act on, and how, is here.
May import: torch_compat, generator.errors.  To add a cause: a row of `_CAUSES`.
"""

from __future__ import annotations

import os
import re

from ..errors import OpwrightError, Place
from . import torch_compat as compat

__all__ = ["explain", "plainly"]

#: (what the error's class and text look like, what that means where torch's own words are about its insides, what to
#: do), the first that fits.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"GuardOnDataDependent.*specialized integer|DataDependentOutput",
        "a data-dependent extent: it is what a tensor holds",
        "the graph may not depend on what tensors hold: take extents from shapes, keep numbers in tensors",
    ),
    (
        r"GuardOnDataDependent|data-dependent|UserError.*[Cc]onsider using torch\.cond",
        "a data-dependent choice: what is done depends on what a tensor holds",
        "the graph may not depend on what tensors hold: choose by torch.where or torch.cond, keep numbers in tensors",
    ),
    (
        r"\.numpy\(\) is not supported|can't convert .*numpy|from_numpy",
        "a tensor leaves torch for NumPy",
        "compute it with torch: what other libraries do is not in the graph",
    ),
    (
        r"is not a known type|argument of type: <class|register_dataclass|register_pytree|pytree",
        "",
        "give and take tensors, lists, tuples, dicts and dataclasses, or register the type as a pytree",
    ),
    (r"Dynamo|torch\.compile", "", "call the plain function: torch.compile cannot be exported"),
    (
        r"aot_autograd expected|functional graph",
        "",
        "write the result to a new tensor where the model changes one in place",
    ),
    (r"OutOfMemory|not enough memory|MemoryError", "", "a smaller example input needs less memory"),
)


def _cause(error: BaseException) -> tuple[str, str | None]:
    text = f"{type(error).__name__}: {error}"
    return next(((says, do) for pattern, says, do in _CAUSES if re.search(pattern, text)), ("", None))


def plainly(error: BaseException) -> str:
    """What the error means, in words of the model's author; empty where its own are the best there are."""
    return _cause(error)[0]


def explain(error: Exception) -> tuple[Place | None, str | None]:
    """The place is the last line outside torch and outside this package that the error passed."""
    if isinstance(error, OpwrightError):
        return error.place, error.hint
    return place_of(error), _cause(error)[1]


def place_of(error: BaseException) -> Place | None:
    """Where the model's own source raised, or called what raised."""
    ours = os.path.dirname(os.path.realpath(__file__)) + os.sep
    inside = (os.path.dirname(compat.require_torch().__file__) + os.sep, ours, "<")
    found: Place | None = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(inside) and not os.path.realpath(file).startswith(ours):
            found = Place.in_file(file, trace.tb_lineno)
        trace = trace.tb_next
    return found
