"""`opwright explain`: what an error class means.  The text is the class's own docstring, so that it cannot drift.

May import: everything that defines errors, inside functions.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import click

from ..errors import OpwrightError
from ..generator.errors import did_you_mean
from . import console
from .command import command, json_option

__all__ = ["explain"]

_EXIT = {1: "something was judged and failed", 2: "the request was wrong", 3: "the machine lacks something"}


class UnknownErrorError(OpwrightError):
    """There is no error class of the name that `opwright explain` was asked about."""


def error_classes() -> dict[str, type[OpwrightError]]:
    """Every error class of opwright by name."""
    package = importlib.import_module(__package__.rpartition(".")[0])
    for room in ("", ".generator", ".generator.emit", ".generator.program", ".validators", ".workflows"):
        _import_all(importlib.import_module(package.__name__ + room))
    found: dict[str, type[OpwrightError]] = {}
    todo = [OpwrightError]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if not cls.__name__.startswith("_") and cls.__module__.startswith(package.__name__ + "."):
            found[cls.__name__] = cls
    return found


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        name = module.name.rpartition(".")[2]
        # The runtime's core is compiled on import; `child` is the sandbox's other side.
        if not module.ispkg and name not in ("_core", "_face", "load", "aten", "ops", "registry", "child"):
            importlib.import_module(module.name)


def _text(cls: type[OpwrightError]) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


@command("explain", example=["opwright explain DomainError", "opwright explain        # all of them"])
@click.argument("error", required=False)
@json_option
def explain(error: str | None, as_json: bool) -> int:
    """Say what an error class means.

    ERROR is the `error` field of JSON output, such as DomainError; without it all classes are listed.
    """
    classes = error_classes()
    if error is None:
        rows = sorted(classes)
    elif error in classes:
        rows = [error]
    else:
        raise UnknownErrorError(
            f"there is no error class `{error}`", hint=did_you_mean(error, classes, what="errors")
        )
    data: list[dict[str, Any]] = []
    for name in rows:
        code: object = classes[name].exit_code
        number = code if isinstance(code, int) else None  # a group's is that of its members
        data.append(
            {
                "error": name,
                "means": _text(classes[name]),
                "exit_code": number,
                "bases": [b.__name__ for b in classes[name].__mro__[1:] if issubclass(b, OpwrightError)],
            }
        )
    if as_json:
        console.print_json({"errors": data})
    elif error is None:
        console.print_table(
            ("error", "exit", "means"),
            [(d["error"], d["exit_code"] or "", str(d["means"]).splitlines()[0]) for d in data],
        )
    else:
        ends = data[0]["exit_code"]
        how = f"exit code {ends}: {_EXIT[ends]}" if ends else "exit code: that of the errors in it"
        console.say(f"{error}\n\n{data[0]['means']}\n\n{how}")
    return 0
