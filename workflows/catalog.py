"""What the runtime is told of a workbench's operators, kept in the cache: reading every spec takes half a second, this
a few milliseconds.

An entry is named by what it was made from: path, size and time of every spec and evidence file, and of the reader's
own sources.  Whatever changes gives another name; nothing is ever updated in place.

May import: workbench, generator.spec, toolchain's cache folder.  To tell more: a field of `Row`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import __version__, toolchain
from ..errors import OpwrightError
from ..files import write_text
from ..generator.spec import OpSpec, aten_row, load_spec
from .workbench import Workbench

__all__ = ["Catalog", "Row", "catalog", "load_row", "row_of"]

SCHEMA = 2


@dataclass(frozen=True)
class Row:
    """One operator that may serve: its signature and ATen entries as the registry takes them, and where its spec is."""

    name: str
    file: str
    family: str
    signature: dict[str, Any]
    aten: list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Catalog:
    """serves: the operators that may serve, by name.  waiting: those that are declared and were not accepted, with
    the ATen overloads that they would answer.
    """

    serves: Mapping[str, Row]
    waiting: Mapping[str, Sequence[str]]


def row_of(spec: OpSpec) -> Row:
    """What the runtime is told of a spec."""
    from .bridge import signature

    return Row(
        spec.op, spec.file, spec.family, signature(spec), [(e.overload, aten_row(spec, e)) for e in spec.aten]
    )


def load_row(row: Row) -> OpSpec:
    """The spec of a row, from its file alone."""
    return next(s for s in load_spec(row.file, family=row.family) if s.op == row.name)


def catalog(bench: Workbench) -> Catalog:
    """The workbench's operators, as the runtime is told of them."""
    name = _name(bench)
    try:
        path = toolchain.open_cache() / "catalog" / name[:2] / f"{name}.json"
    except OpwrightError:
        return _made(bench)  # a machine without a cache still serves
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] == SCHEMA:
            rows = (Row(**{**r, "aten": [(o, e) for o, e in r["aten"]]}) for r in data["rows"])
            return Catalog({r.name: r for r in rows}, data["waiting"])
    made = _made(bench)
    with contextlib.suppress(OSError):  # a full disk costs time, not the answer
        rows_json = [asdict(r) for r in made.serves.values()]
        write_text(path, json.dumps({"schema": SCHEMA, "rows": rows_json, "waiting": made.waiting}))
    return made


def _made(bench: Workbench) -> Catalog:
    serves = {s.op: row_of(s) for s in bench.proven()}
    waiting = [s for s in bench.registry.all() if s.op not in serves]
    return Catalog(serves, {s.op: [e.overload for e in s.aten] for s in waiting})


def _name(bench: Workbench) -> str:
    """A hash of everything that the catalog depends on."""
    config = bench.config
    here = Path(__file__).resolve().parent
    parts: list[Any] = [SCHEMA, __version__, str(config.root)]
    sources = [*(here.parent / "generator").resolve().glob("*.py"), here / "bridge.py", here / "catalog.py"]
    parts += _state(sources)
    parts += _state(f for d in config.spec_dirs if d.is_dir() for f in d.rglob("*.yaml"))
    parts += _state(f for d in config.evidence_dirs if d.is_dir() for f in d.glob("*.yaml"))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _state(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for path in sorted(paths):
        with contextlib.suppress(FileNotFoundError):
            s = path.stat()
            yield str(path), s.st_mtime_ns, s.st_size
