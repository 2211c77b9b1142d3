"""What a capture is: the program, its tensors, where each call came from; and what a graph's values are on the way.

May import: ir, views, intexpr, generator.{errors, types}.  To add what a capture states: a field of `Capture`,
filled in `convert.Converter.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import OpwrightError
from ..types import DType
from .intexpr import IntExpr
from .ir import (
    Program,
)
from .views import Layout

__all__ = ["Capture", "CaptureError", "Origin", "Ref", "Site"]

#: Arguments that say where or how to allocate: nothing that an executor's own allocation changes.
PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit"})


class CaptureError(OpwrightError):
    """A model that cannot be captured."""


class RowRefused(Exception):
    """A row of the table does not accept the call; the message says why."""


@dataclass(frozen=True)
class Site:
    """Where in the model's source a call stands, and in which module."""

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    module: str = ""

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else self.module


@dataclass(frozen=True)
class Origin:
    """The node of the exported graph that a call came from: its name, and per output of the call which of the node's
    results it is and the permutation that takes the node's result to the call's."""

    node: str
    results: tuple[tuple[int, tuple[int, ...] | None] | None, ...]


@dataclass(frozen=True)
class Capture:
    """What a capture gives.  `exported` is the decomposed ExportedProgram; `notes` are for people; `derived` are
    overloads that nothing claims and that PyTorch's own decompositions made others, which something does; `composed`
    those that several operators answer."""

    program: Program
    tensors: Mapping[str, Any]
    origins: Mapping[str, Origin]
    sites: Mapping[str, Site]
    exported: Any
    dynamic: str
    notes: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    composed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ref:
    """A tensor of the graph: a layout over a value that something made."""

    base: str
    dtype: DType
    layout: Layout


#: What a node of the exported graph is here.
Item: TypeAlias = (
    "Ref | Real | IntExpr | bool | int | float | str | tuple[Item, ...] | list[Item] | Opaque | None"
)


@dataclass(frozen=True)
class Real:
    """A number that the exporter computes of extents, as a tensor of rank 0 in f64."""

    ref: Ref


@dataclass(frozen=True)
class Opaque:
    """Something that only a missing call may take: a submodule, a custom object."""

    text: str


@dataclass
class Prepared:
    """A call whose arguments were put in canonical order; `permute` takes the call's result to the node's."""

    args: dict[str, Any]
    shape: tuple[IntExpr, ...] | None = None
    permute: tuple[int, ...] | None = None


def text_of(x: Any) -> str:
    if isinstance(x, Ref):
        return "a tensor"
    if isinstance(x, Real):
        return "a number that varies with extents"
    if isinstance(x, list | tuple):
        return f"[{', '.join(text_of(y) for y in x)}]"
    return x.text if isinstance(x, Opaque) else repr(x)


def inverse_of(order: Sequence[int]) -> tuple[int, ...]:
    out = [0] * len(order)
    for k, d in enumerate(order):
        out[d] = k
    return tuple(out)
