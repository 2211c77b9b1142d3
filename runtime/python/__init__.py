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

# Modules of the runtime that are reached as attributes without an import of their own.
_MODULES = frozenset({"errors", "exceptions", "ops", "registry", "resources", "toolchain"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    face = importlib.import_module("._face", __name__)
    if name in face.__all__:
        value = getattr(face, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *importlib.import_module("._face", __name__).__all__})
