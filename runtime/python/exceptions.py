"""Errors of the runtime: what a call or a program can do wrong, each also one of Python's own classes where one fits.

The C++ core raises them by kind (`runtime/src/error.h`); `load.py` hands it these classes.
May import: `.errors`.  To add one: a kind in error.h, a class here, a line in `BY_KIND`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import OpwrightError


class OpError(OpwrightError):
    """Base of all that an op call can raise.  Raised itself for what is not the caller's fault."""


class OpValueError(OpError, ValueError):
    """A rule of the op does not hold: shapes, ranks, `require`, `out=`.  The text names op, argument and rule."""


class OpIndexError(OpError, IndexError):
    """An axis or an index is out of range."""


class OpTypeError(OpError, TypeError):
    """An argument is missing, unknown, or of a kind that the op does not take."""


class MissingKernelError(OpError, LookupError):
    """No op of this name, or nothing that could supply a kernel for these arguments."""


class ProgramError(OpError, ValueError):
    """A program folder cannot be loaded, or its inputs do not fit it."""


class OutOfMemoryError(OpError, MemoryError):
    """No memory is left, or no more may be taken: `ow.memory.set_fraction`.  The text lists what is in use."""


BY_KIND: Mapping[str, type[OpError]] = {
    "value": OpValueError,
    "index": OpIndexError,
    "type": OpTypeError,
    "missing": MissingKernelError,
    "program": ProgramError,
    "runtime": OpError,
    "memory": OutOfMemoryError,
}
