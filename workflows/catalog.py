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
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import __version__, toolchain
from ..errors import OpwrightError
from ..files import write_text
from ..generator.spec import OpSpec, aten_row, load_spec
from .workbench import Workbench

__all__ = ["Row", "catalog", "load_row", "row_of"]

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One operator that may serve: its signature and ATen entries as the registry takes them, and where its spec is."""

    name: str
    file: str
    family: str
    signature: dict[str, Any]
    aten: list[tuple[str, dict[str, Any]]]


def row_of(spec: OpSpec) -> Row:
    """What the runtime is told of a spec."""
    from .bridge import signature

    return Row(
        spec.op, spec.file, spec.family, signature(spec), [(e.overload, aten_row(spec, e)) for e in spec.aten]
    )


def load_row(row: Row) -> OpSpec:
    """The spec of a row, from its file alone."""
    return next(s for s in load_spec(row.file, family=row.family) if s.op == row.name)


def catalog(bench: Workbench) -> dict[str, Row]:
    """The operators that may serve, by name."""
    name = _name(bench)
    try:
        path = toolchain.open_cache() / "catalog" / name[:2] / f"{name}.json"
    except OpwrightError:
        return _made(bench)  # a machine without a cache still serves
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] == SCHEMA:
            return {r["name"]: Row(**{**r, "aten": [(o, e) for o, e in r["aten"]]}) for r in data["rows"]}
    made = _made(bench)
    with contextlib.suppress(OSError):  # a full disk costs time, not the answer
        write_text(path, json.dumps({"schema": SCHEMA, "rows": [asdict(r) for r in made.values()]}))
    return made


def _made(bench: Workbench) -> dict[str, Row]:
    return {s.op: row_of(s) for s in bench.proven()}


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
