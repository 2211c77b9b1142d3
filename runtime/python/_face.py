"""The names that `import opwright as ow` shows.  Importing this loads the core; `__init__` does so on first use.

May import: everything of the runtime.  To add a name: here, in `__all__`, and in that of
`__init__`, which shows it before the core is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import memory, methods, ops
from .array_api import arange, asarray, empty_like, eye, full_like, linspace, ones_like, zeros_like
from .aten import call_aten
from .errors import OpwrightError
from .exceptions import (
    MissingKernelError,
    OpError,
    OpIndexError,
    OpTypeError,
    OpValueError,
    OutOfMemoryError,
    ProgramError,
)
from .load import core
from .program import Program
from .reverse import vjp, vjp_aten
from .tracing import trace

__all__ = [
    "MissingKernelError",
    "OpError",
    "OpIndexError",
    "OpTypeError",
    "OpValueError",
    "OpwrightError",
    "OutOfMemoryError",
    "Program",
    "ProgramError",
    "Tensor",
    "arange",
    "asarray",
    "call_aten",
    "empty",
    "empty_cache",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "memory",
    "memory_stats",
    "num_threads",
    "ones",
    "ones_like",
    "ops",
    "reset_peak_memory",
    "set_num_threads",
    "tensor",
    "trace",
    "vjp",
    "vjp_aten",
    "zeros",
    "zeros_like",
]

methods.install()
if TYPE_CHECKING:  # the stub that `opwright generate --stubs` makes; Any where it was not made
    from ._core import (
        Tensor,
        empty,
        empty_cache,
        from_dlpack,
        full,
        memory_stats,
        num_threads,
        reset_peak_memory,
        set_num_threads,
        tensor,
    )
else:
    Tensor = core.Tensor
    tensor = core.tensor
    from_dlpack = core.from_dlpack
    empty = core.empty
    full = core.full
    num_threads = core.num_threads
    set_num_threads = core.set_num_threads
    memory_stats = core.memory_stats
    reset_peak_memory = core.reset_peak_memory
    empty_cache = core.empty_cache


def zeros(shape: int | Sequence[int], dtype: Any = "f32") -> Tensor:
    """A tensor of zeros."""
    return core.full(shape, 0, dtype)  # type: ignore[no-any-return, unused-ignore]


def ones(shape: int | Sequence[int], dtype: Any = "f32") -> Tensor:
    """A tensor of ones."""
    return core.full(shape, 1, dtype)  # type: ignore[no-any-return, unused-ignore]
