"""opwright's runtime: `import opwright as ow`, then `ow.ops.softmax(x, axis=-1)`.

Lazy: the C++ core is loaded (and, on a machine's first use, compiled) when one of the names below is first used, so
that `opwright.generator`, `opwright.validators` and `opwright doctor` work where there is no compiler.

May import: nothing at import time but the standard library.  To add a name: `_face.py`.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as typing's, whose import takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from ._face import *  # noqa: F403

__version__ = "0.1.0"

#: What `_face.py` holds; listed here as well, so that `dir(ow)` loads no core.
# ruff: noqa: F405
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

# Modules that are reached as attributes without an import of their own; of these, `ops` alone is a part of the face.
_MODULES = frozenset({"array_api", "errors", "exceptions", "ops", "registry", "resources", "toolchain"})


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "ops":
            importlib.import_module("._face", __name__)  # a result has its methods, whoever made it
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        value = getattr(importlib.import_module("._face", __name__), name)
    except Exception as error:
        from .errors import OpwrightError

        if isinstance(
            error, OpwrightError
        ):  # no compiler, say: whose modules were being loaded tells nobody more
            raise error.with_traceback(None) from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])
