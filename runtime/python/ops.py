"""`ow.ops.<name>(…)`: every registered op as an attribute; `dir(ow.ops)` lists them, `help` shows how each is called.

May import: `.registry`, `.exceptions`.
"""

from __future__ import annotations

from typing import Any

from . import registry
from .exceptions import MissingKernelError


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return registry.get(name)
    except MissingKernelError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise AttributeError(f"{error.message}{hint}", name=name, obj=None) from None


def __dir__() -> list[str]:
    return registry.names()
