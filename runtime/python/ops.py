"""`ow.ops.<name>(…)`: every registered op as an attribute; `dir(ow.ops)` lists them, `help` shows how each is called.

An op with a namespace, `myco::rope2d`, is `ow.ops.myco.rope2d`.

May import: `.registry`, `.exceptions`.
"""

from __future__ import annotations

from typing import Any

from . import registry
from .exceptions import MissingKernelError


class Namespace:
    """The ops whose names begin with `<name>::`, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _op(f"{self._name}::{name}")

    def __dir__(self) -> list[str]:
        return _within(self._name)

    def __repr__(self) -> str:
        return f"<namespace of ops {self._name}: {', '.join(_within(self._name))}>"


def _within(name: str) -> list[str]:
    return [n.partition("::")[2] for n in registry.names() if n.startswith(f"{name}::")]


def _op(name: str) -> Any:
    try:
        return registry.get(name)
    except MissingKernelError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise AttributeError(f"{error.message}{hint}", name=name, obj=None) from None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return _op(name)
    except AttributeError:
        if _within(name):
            return Namespace(name)
        raise


def __dir__() -> list[str]:
    return sorted({n.partition("::")[0] for n in registry.names()})
