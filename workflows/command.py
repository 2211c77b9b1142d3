"""How a command is declared: `@command("softmax …", section…)` with examples in its help, `--debug`, `--json`.

    @command("check", example=["opwright check softmax"])
    @click.argument("ops", nargs=-1)
    @json_option
    def check(ops: tuple[str, ...], as_json: bool) -> int | None:

A command returns its exit code (None: 0) and raises `OpwrightError` for what a person can cause; `cli.main` prints.
May import: click.  To add a shared option: a decorator here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["Command", "command", "file_option", "jobs_option", "json_option", "seed_option"]

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help ends with examples, and that takes `--debug` after its name as well."""

    def __init__(self, *args: Any, example: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = tuple(example)
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_remember_debug,
                help="Show the traceback of an error.",
            )
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.example:  # one a line, never wrapped: people copy them
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Group(Command, click.Group):
    """A command of commands (`cache info`)."""


def _remember_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    if value:
        ctx.find_root().meta["opwright.debug"] = True
    return value


def command(name: str, *, example: Sequence[str]) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command.  Its docstring is the help."""
    return click.command(name, cls=Command, example=example)


def group(name: str, *, example: Sequence[str]) -> Callable[[Callable[..., Any]], Group]:
    """Make a function the head of a group of commands."""
    return click.group(name, cls=Group, example=example)


def json_option(f: F) -> F:
    """`--json`, as the parameter `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON for programs, nothing else, on stdout."
    )(f)


def jobs_option(f: F) -> F:
    """`-j N`, as the parameter `jobs`; 0: the cores that this process may use."""
    return click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="How many to judge at once (default: the cores that this process may use).",
    )(f)


def file_option(name: str, text: str) -> Callable[[F], F]:
    """`--NAME FILE`, a `Path` or None."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(f"--{name}", default=None, type=kind, metavar="FILE", help=text)


def seed_option(f: F) -> F:
    """`--seed N`, as the parameter `seed`."""
    return click.option(
        "--seed",
        type=click.IntRange(0, 2**63 - 1),
        default=None,
        metavar="N",
        help="Draw cases and inputs from this number.",
    )(f)
