"""`opwright`: the command line.  Commands are imported when they are called, so that `--help` costs nothing.

Exit codes: 0 fine · 1 something was judged and failed · 2 the request was wrong · 3 the machine lacks something
(`opwright doctor` says what) · 130 interrupted · 70 a fault of opwright's own.

May import: click, command, start, generator.errors; everything else inside functions.
To add a command: a module that holds a `command` of the same name, and a row in `SECTIONS`.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from .. import __version__
from ..errors import EXIT_MACHINE, OpwrightError
from .start import EXIT_INTERRUPTED, INTERRUPTED

__all__ = ["SECTIONS", "main"]

EXIT_FAULT = 70

#: section -> command -> (module, what it does in a few words)
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Add an op": {
        "new": ("new", "Write the first draft of a spec."),
        "check": ("check", "Read a spec: language, types, every key that it admits."),
        "generate": ("generate", "Write kernels, bindings, tests, benchmark and page of an op."),
        "validate": ("accept", "Judge an op's kernels; writes nothing."),
        "accept": ("accept", "Judge an op's kernels and record the evidence."),
        "show": ("show", "Print an op at any level, from its spec to its C++."),
        "bench": ("bench", "Measure operators, a suite or whole models against other frameworks."),
    },
    "Support a model": {
        "inventory": ("inventory", "List the operators that a model needs, and those that are missing."),
        "enable": ("enable", "Take a model from its code to parity with PyTorch, by the clock."),
        "sweep": ("sweep", "Take many model types as far as they go, and say what stops which."),
        "run": ("run", "Run a program folder, without PyTorch."),
        "watch": ("watch", "Find the model types of a new transformers, and enable them."),
        "requalify": ("requalify", "After an upgrade of torch: is every recorded graph the same?"),
        "derive": ("derive", "Take an operator away: does PyTorch's decomposition stand for it?"),
        "backtest": ("backtest", "Say how well earlier architectures' operators covered later ones."),
        "report": ("report", "Show architectures, levels of support, and the time each took."),
    },
    "Keep it": {
        "build": ("build", "Build kernels ahead of time: for C++, or for machines without a compiler."),
        "gate": ("gate", "Say whether a change keeps what was proven; for CI."),
        "doctor": ("doctor", "Say what this machine has, what it lacks, and what to do."),
        "ops": ("ops", "List operators, what they are called elsewhere, and what is proven."),
        "judge": ("judge", "Measure the judge: its bounds, its own error rates."),
        "cache": ("cache", "Look at, prune or clear the cache of built artifacts."),
        "init": ("init", "Make a repository of your own a workbench."),
        "migrate": ("migrate", "Bring specs, evidence and records to this version's schema."),
        "explain": ("explain", "Say what an error class means, and what to do."),
        "schema": ("schema", "Print the JSON Schema of specs, for editors."),
    },
}


_EXAMPLES = ("opwright enable llama", "opwright accept softmax", "opwright check specs/ops/norm/softmax.yaml")


class Root(click.Group):
    """The group of all commands: three sections of help, lazy members."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for rows in SECTIONS.values() for name in rows]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for rows in SECTIONS.values():
            if cmd_name in rows:
                module = importlib.import_module(f".{rows[cmd_name][0]}", __package__)
                found: click.Command = getattr(module, cmd_name)
                found.short_help = rows[cmd_name][1]
                return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            from ..generator.errors import did_you_mean

            hint = did_you_mean(name, self.list_commands(ctx), what="commands")
            raise RequestError(f"there is no command `{name}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in _EXAMPLES:
                formatter.write(f"  {line}\n")


class RequestError(OpwrightError):
    """The command line asks for something that there is not."""


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, debug: bool) -> None:
    """Turn a declared operator into a proven kernel, and a new model architecture into a supported one."""
    if debug:
        ctx.meta["opwright.debug"] = True


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code and prints one clear error where there is one."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug, as_json = "--debug" in arguments, "--json" in arguments
    before = _catch_signals()
    try:
        return _run(arguments)
    except (click.Abort, KeyboardInterrupt):
        _print_error(INTERRUPTED)
        return EXIT_INTERRUPTED
    except OpwrightError as error:
        return _failed(error, debug, as_json)
    except click.UsageError as error:
        return _misused(error, as_json)
    except click.ClickException as error:
        return _failed(RequestError(error.format_message()), debug, as_json)
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not complain about it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        said = str(error).strip().splitlines()
        told = _MachineError(
            f"not enough memory{': ' + said[0] if said else ''}", hint="smaller sizes, or a larger machine"
        )
        return _failed(told, debug, as_json)
    except OSError as error:
        return _failed(_machine_error(error), debug, as_json)
    except Exception as error:
        return _fault(error, debug, as_json)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: list[str]) -> int:
    if workbench := sys.modules.get(f"{__package__}.workbench"):
        workbench.Workbench.last_broken = ()
    result = root.main(arguments, prog_name="opwright", standalone_mode=False)
    sys.stdout.flush()
    _tell_of_unread()
    return result if isinstance(result, int) else 0


def _tell_of_unread() -> None:
    """One line where spec files did not read and the command went on without them."""
    read = sys.modules.get(f"{__package__}.workbench")
    broken = read.Workbench.last_broken if read is not None else ()
    if broken:
        from pathlib import Path

        from . import console

        places = [e.place for group in broken for e in group.errors]
        files = sorted({console.short(Path(p.file)) for p in places if p is not None})
        _print_error(f"{', '.join(files)}: left out, for it does not read; `opwright check` says why")


def _catch_signals() -> dict[int, Any]:
    """Ctrl-C and SIGTERM become `KeyboardInterrupt` while a command runs; what they were before."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        return {}
    before: dict[int, Any] = {signal.SIGTERM: signal.signal(signal.SIGTERM, _stop)}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background jobs of a shell
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    return before


def _stop(_number: int, _frame: Any) -> NoReturn:
    """SIGTERM ends a command like Ctrl-C: children are stopped, scratch files removed."""
    raise KeyboardInterrupt


def _print_error(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")


def _failed(error: OpwrightError, debug: bool, as_json: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, **error.to_json()}, indent=1) + "\n")
    _print_error(error.render())
    return error.exit_code


def _misused(error: click.UsageError, as_json: bool) -> int:
    where = error.ctx.command_path if error.ctx is not None else "opwright"
    return _failed(
        RequestError(_lower(error.format_message()), hint=f"`{where} --help` shows how it is called"),
        False,
        as_json,
    )


def _lower(text: str) -> str:
    text = text.rstrip(".")
    return text[:1].lower() + text[1:]


class _MachineError(OpwrightError):
    exit_code = EXIT_MACHINE


def _machine_error(error: OSError) -> OpwrightError:
    """What the operating system refused, in words."""
    what = error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _MachineError(f"{where}the disk is full", hint="free space; nothing was left half-written")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _MachineError(f"{where}{what}", hint="choose a folder that you can write to")
    request = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
    hint = (
        "see the path: a folder of it is missing, or a file stands where a folder is wanted"
        if where
        else None
    )
    return (OpwrightError if request else _MachineError)(f"{where}{what}", hint=hint if request else None)


class _FaultError(OpwrightError):
    exit_code = EXIT_FAULT


def _fault(error: Exception, debug: bool, as_json: bool) -> int:
    """A fault of ours: say so, and how to report it."""
    lines = str(error).strip().splitlines()
    said = f": {lines[0][:300]}" if lines else ""
    told = _FaultError(
        f"internal error: {type(error).__name__}{said}",
        hint="this is a fault of opwright; run it again with --debug and report what it prints",
    )
    if debug:
        import traceback

        traceback.print_exception(error)
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, **told.to_json()}, indent=1) + "\n")
    _print_error(told.render().removeprefix("error: "))
    return EXIT_FAULT


if __name__ == "__main__":
    from .start import main as start

    sys.exit(start())
