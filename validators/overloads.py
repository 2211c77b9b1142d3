"""PyTorch's overloads: whether what `aten:` names is there, its arguments, and their defaults.

The torch server tells them once; they are kept in the cache under torch's version, so that `opwright check` need not
load torch.  Where there is no torch nothing is known, and nobody is accused.

May import: opwright.{files, toolchain}, generator.{errors, spec}, torch_server.
To add a check on what a spec says of an overload: a branch of `mistakes`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from .. import toolchain
from ..errors import OpwrightError
from ..files import write_text
from ..generator.errors import Place, did_you_mean
from ..generator.spec import AtenEntry, Only, OpSpec
from .torch_server import TorchCrashed, TorchError, TorchMissing, TorchServer

__all__ = ["SUPPLIED", "Mistake", "Overloads", "known", "mistakes"]

#: Arguments whose default is no constant of a spec, and comes from runtime/python/arguments.py before any row is asked.
SUPPLIED = {
    ("aten.rms_norm.default", "eps"),
}


@dataclass(frozen=True)
class Overloads:
    """version: torch's.  arguments: overload -> argument -> its type, and its default where it has one."""

    version: str
    arguments: Mapping[str, Mapping[str, list[Any]]]


@dataclass(frozen=True)
class Mistake:
    """What is wrong with an entry of `aten:`, where, and what to write instead."""

    place: Place | None
    message: str
    hint: str = ""


@functools.cache
def known() -> Overloads | None:
    """The overloads of the torch that is installed; None where there is none."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    path = None
    with contextlib.suppress(OpwrightError):  # a machine without a cache asks each time
        path = toolchain.open_cache() / "texts" / f"overloads-2-{version}.json"
    if path is not None:
        with contextlib.suppress(OSError, ValueError):
            return Overloads(version, json.loads(path.read_text(encoding="utf-8")))
    try:
        with TorchServer() as server:
            arguments = server.overloads()
    except (TorchMissing, TorchCrashed, TorchError):
        return None
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(arguments), durable=False)
    return Overloads(version, arguments)


def mistakes(spec: OpSpec) -> Iterator[Mistake]:
    """What the entries of `aten:` say that PyTorch does not."""
    there = known() if spec.aten else None
    for entry in spec.aten if there is not None else ():
        assert there is not None
        arguments = there.arguments.get(entry.overload)
        if arguments is not None:
            yield from _of_entry(spec, entry, arguments)
        elif entry.overload.startswith("aten."):  # other namespaces are of packages that need not be loaded
            yield Mistake(
                _place(spec, entry),
                f"`{spec.op}` names the overload `{entry.overload}`, which PyTorch {there.version} does not have",
                did_you_mean(entry.overload, sorted(there.arguments), what="overloads"),
            )


def _of_entry(spec: OpSpec, entry: AtenEntry, arguments: Mapping[str, list[Any]]) -> Iterator[Mistake]:
    for argument, to in entry.map or ():
        if argument not in arguments:
            yield Mistake(
                _place(spec, entry),
                f"`{spec.op}` maps `{argument}`, which {entry.overload} does not have",
                did_you_mean(argument, list(arguments), what="arguments"),
            )
            continue
        if not isinstance(to, str) or isinstance(to, Only) or to not in spec.attrs:
            continue
        attr = spec.attrs[to]
        if not attr.has_default or attr.default_expr is not None or (entry.overload, argument) in SUPPLIED:
            continue
        for theirs in arguments[argument][1:]:
            # None is whatever the overload makes of it: the gate meaning leaves it out, and sees.
            if theirs is not None and _plain(theirs) != _plain(attr.default):
                yield Mistake(
                    _place(spec, entry),
                    f"`{to}` of `{spec.op}` is {_shown(attr.default)} by default, `{argument}` of {entry.overload} is "
                    f"{_shown(theirs)}",
                    f"write `default: {_shown(theirs)}`, or leave the default out",
                )


def _place(spec: OpSpec, entry: AtenEntry) -> Place | None:
    return entry.span.place if entry.span is not None else spec.place


def _plain(value: Any) -> Any:
    """A value as both sides write it: a list of one is its number, an empty list nothing."""
    if isinstance(value, list | tuple):
        return _plain(value[0]) if len(set(value)) == 1 else tuple(value) or None
    return value


def _shown(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
