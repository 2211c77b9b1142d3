"""Rows of the aten table: how one ATen overload becomes a call of a spec.

A row is what an `aten:` entry of a spec says (docs/internals.md), with the spec's own argument order beside it, so
that a call's `in`, `attrs` and `out` can be filled without the spec.  Several specs may claim one overload; the
first row that accepts a call's arguments is taken.

May import: generator.errors, generator.spec.  To add a kind of target: `Target`, its JSON here, and
`convert.Converter.mapped`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import OpwrightError

__all__ = [
    "AtenRow",
    "AtenTable",
    "Only",
    "Rows",
    "TableError",
    "files_of",
    "table_dumps",
    "table_loads",
    "table_of",
    "table_of_registry",
]


class TableError(OpwrightError):
    """An aten table that cannot be read."""


@dataclass(frozen=True)
class Only:
    """The call is refused unless the argument has this value (lists as tuples)."""

    value: Any


#: A spec's input or attribute; several inputs that share out a list argument; a demanded value; or None: ignored.
Target: TypeAlias = str | tuple[str, ...] | Only | None


@dataclass(frozen=True)
class AtenRow:
    """One overload's way into one spec.

    map      (aten argument, target), in the overload's own order; an argument that is not there must have its default
    inputs   the spec's inputs in order; attrs: its attributes; outputs: its outputs in order
    returns  the spec's output for each of the overload's results
    set      values of inputs or attributes that the overload does not have
    since    the first opset that the row is for (rows `onnx.<Op>`, of `onnx:` entries)
    """

    op: str
    overload: str
    map: tuple[tuple[str, Target], ...]
    inputs: tuple[str, ...]
    attrs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    returns: tuple[str, ...] = ("y",)
    set: Mapping[str, Any] = field(default_factory=dict)
    since: int = 0

    def __hash__(self) -> int:
        return hash((self.op, self.overload))

    def to_json(self) -> dict[str, Any]:
        def target(t: Target) -> Any:
            if isinstance(t, Only):
                return {"only": t.value}
            return list(t) if isinstance(t, tuple) else t

        return {
            "op": self.op,
            "overload": self.overload,
            "map": [[a, target(t)] for a, t in self.map],
            "inputs": list(self.inputs),
            "attrs": list(self.attrs),
            "outputs": list(self.outputs),
            "returns": list(self.returns),
            "set": dict(self.set),
            "since": self.since,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AtenRow:
        """Raises `TableError`."""

        def target(t: Any) -> Target:
            if isinstance(t, Mapping):
                value = t["only"]
                return Only(tuple(value) if isinstance(value, list) else value)
            return tuple(t) if isinstance(t, list) else t

        try:
            return cls(
                data["op"],
                data["overload"],
                tuple((a, target(t)) for a, t in data["map"]),
                tuple(data["inputs"]),
                tuple(data.get("attrs", ())),
                tuple(data["outputs"]),
                tuple(data["returns"]),
                dict(data.get("set", {})),
                int(data.get("since", 0)),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise TableError(f"not a row of the aten table: {e!r} in {data!r:.200}") from e


AtenTable: TypeAlias = Mapping[str, Sequence[AtenRow]]


class Rows(dict[str, "tuple[AtenRow, ...]"]):
    """A table that knows, too, in which file each operator's spec stands: what is composed of several operators asks
    their specs for dtypes and extents (shapes.py)."""

    def __init__(self, rows: Mapping[str, Sequence[AtenRow]], files: Mapping[str, str] | None = None) -> None:
        super().__init__({k: tuple(v) for k, v in rows.items()})
        self.files = dict(files or {})

    def without(self, overload: str) -> Rows:
        """The table in which nobody answers the overload."""
        return Rows({k: v for k, v in self.items() if k != overload}, self.files)


def table_of(rows: Iterable[AtenRow]) -> dict[str, tuple[AtenRow, ...]]:
    """Rows by overload, in the order given."""
    out: dict[str, tuple[AtenRow, ...]] = {}
    for row in rows:
        out[row.overload] = (*out.get(row.overload, ()), row)
    return out


def table_dumps(table: AtenTable) -> str:
    """The table as JSON, for the capture worker."""
    rows = [row.to_json() for name in sorted(table) for row in table[name]]
    return json.dumps({"rows": rows, "files": getattr(table, "files", {})}, indent=0)


def table_loads(text: str) -> Rows:
    """Raises `TableError`."""
    try:
        data = json.loads(text)
    except ValueError as e:
        raise TableError(f"the aten table is not JSON: {e}") from e
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise TableError("the aten table is not a list of rows")
    return Rows(table_of(AtenRow.from_json(r) for r in data["rows"]), data.get("files"))


def table_of_registry(registry: Any) -> Rows:
    """The rows of every operator that a `generator.spec.Registry` holds."""
    from ..spec import aten_row

    rows: list[AtenRow] = []
    for overload in registry.aten_table():
        for spec, entry in registry.by_aten(overload):
            rows.append(
                AtenRow.from_json(
                    {
                        **aten_row(spec, entry),
                        "overload": overload,
                        "inputs": list(spec.inputs),
                        "attrs": list(spec.attrs),
                        "outputs": list(spec.outputs),
                    }
                )
            )
    return Rows(table_of(rows), files_of(registry.all()))


def files_of(specs: Iterable[Any]) -> dict[str, str]:
    """Where each operator stands, whatever the working directory."""
    return {s.op: os.path.abspath(s.file) for s in specs}
