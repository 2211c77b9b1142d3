"""`ow.ops.<name>(…)`: every registered op as an attribute; `dir(ow.ops)` lists them, `help` shows how each is called.

An op with a namespace, `myco::rope2d`, is `ow.ops.myco.rope2d`.

May import: `.registry`, `.exceptions`, `.load`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from . import registry
from .exceptions import MissingKernelError
from .load import core


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
        waiting = [f"{n} (not accepted)" for n in _of_space(self._name, registry.waiting())]
        return f"<namespace of ops {self._name}: {', '.join([*_within(self._name), *waiting])}>"


def _within(name: str) -> list[str]:
    return _of_space(name, registry.names())


def _of_space(name: str, names: Iterable[str]) -> list[str]:
    return [n.partition("::")[2] for n in names if n.startswith(f"{name}::")]


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
        # One whose ops all wait for evidence is there, too: what is asked of it says so.
        if _within(name) or _of_space(name, registry.waiting()):
            return Namespace(name)
        raise


def __dir__() -> list[str]:
    return sorted({n.partition("::")[0] for n in registry.names()})


def _signature(op: Any) -> inspect.Signature:
    """What `inspect.signature` and notebooks show: inputs, attributes, `out`; by name alone what must be given after
    something that need not."""
    known = op.signature
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found: list[inspect.Parameter] = []
    must = [i for i, x in enumerate(known["inputs"]) if not x["optional"]]
    for k, x in enumerate(known["inputs"]):
        last = not must or k > must[-1]
        found.append(inspect.Parameter(x["name"], kind, default=None if last else inspect.Parameter.empty))
    for a in known["attrs"]:
        default = a.get("default", None if a["optional"] else inspect.Parameter.empty)
        if default is inspect.Parameter.empty and found and found[-1].default is not inspect.Parameter.empty:
            kind = inspect.Parameter.KEYWORD_ONLY
        found.append(inspect.Parameter(a["name"], kind, default=default))
    if all(p.name != "out" for p in found):
        found.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(found)


core.set_signature_maker(_signature)
