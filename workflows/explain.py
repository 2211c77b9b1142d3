"""`opwright explain`: what an error class means, and what it looks like.

What it means is the class's own docstring; how it comes about and what a person sees is in `errors.yaml`, whose texts
`tests/workflows/test_error_texts.py` provokes one by one.  docs/errors.md is `opwright explain --markdown`.

May import: everything that defines errors, inside functions.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from pathlib import Path
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


@functools.cache
def examples() -> dict[str, dict[str, str]]:
    """Class -> {when, text}: how it comes about, and what a person sees then."""
    from ruamel.yaml import YAML

    found: dict[str, dict[str, str]] = YAML(typ="safe", pure=True).load(
        Path(__file__).with_name("errors.yaml").read_text(encoding="utf-8")
    )
    return found


def _text(cls: type[OpwrightError]) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def entry(name: str, cls: type[OpwrightError]) -> dict[str, Any]:
    """What is said of a class, as data."""
    code: object = cls.exit_code
    example = examples().get(name)  # none of a class that only its subclasses are raised of
    return {
        "error": name,
        "means": _text(cls),
        "exit_code": code if isinstance(code, int) else None,  # a group's is that of its members
        "bases": [b.__name__ for b in cls.__mro__[1:] if issubclass(b, OpwrightError)],
        "example": {"when": example["when"], "text": example["text"].rstrip("\n")} if example else None,
    }


def _ends(code: int | None) -> str:
    return f"exit code {code}: {_EXIT[code]}" if code else "exit code: that of the errors in it"


def page() -> str:
    """docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Every error that a person can cause, by class. `opwright explain --markdown` makes this page: do not edit it.",
        "The class is the `error` field of JSON output, and `opwright explain CLASS` prints its part of this page.",
        "Exit codes: 0 fine · 1 something was judged and failed · 2 the request was wrong · 3 the machine lacks",
        "something (`opwright doctor` says what) · 70 a fault of opwright itself · 130 interrupted.",
        "",
    ]
    for name, cls in sorted(error_classes().items()):
        e = entry(name, cls)
        bases = ", ".join(f"[{b}](#{b.lower()})" for b in e["bases"][:1])
        lines += [
            f"## {name}",
            "",
            e["means"],
            "",
            _ends(e["exit_code"]) + (f" · a {bases}" if bases else ""),
            "",
        ]
        if e["example"]:
            lines += [f"When: {e['example']['when']}", "", "```", e["example"]["text"], "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


@command(
    "explain",
    example=[
        "opwright explain DomainError",
        "opwright explain        # all of them",
        "opwright explain --markdown > docs/errors.md",
    ],
)
@click.argument("error", required=False)
@click.option("--markdown", is_flag=True, help="Print the page of all classes.")
@json_option
def explain(error: str | None, markdown: bool, as_json: bool) -> int:
    """Say what an error class means, with an example.

    ERROR is the `error` field of JSON output, such as DomainError; without it all classes are listed.
    """
    if markdown:
        console.say(page().rstrip("\n"))
        return 0
    classes = error_classes()
    if error is None:
        rows = sorted(classes)
    elif (found := {n.lower(): n for n in classes}.get(error.lower())) is not None:
        rows = [found]
    else:
        raise UnknownErrorError(
            f"there is no error class `{error}`", hint=did_you_mean(error, classes, what="errors")
        )
    data = [entry(name, classes[name]) for name in rows]
    if as_json:
        console.print_json({"errors": data})
    elif error is None:
        console.print_table(
            ("error", "exit", "means"),
            [(d["error"], d["exit_code"] or "", str(d["means"]).splitlines()[0]) for d in data],
        )
    else:
        (d,) = data
        console.say(f"{error}\n\n{d['means']}\n\n{_ends(d['exit_code'])}")
        if d["example"]:
            text = "\n".join(f"  {line}".rstrip() for line in d["example"]["text"].splitlines())
            console.say(f"\n{d['example']['when']}:\n\n{text}")
    return 0
