"""Kernel tables: kernels that were built ahead of time, and what they answer (docs/internals.md, "A kernel table").

    write_table(folder, entries, …)   libraries and tables by dialect, and `kernels.json`, which names them
    Prebuilt.installed()              the table of an installed wheel, or None: what the bridge asks before it compiles

The folder is read by the C++ core as well (runtime/src/table.h): change both in one commit.

May import: generator.bound, generator.emit, runtime.toolchain, runtime.resources, runtime.files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import resources, toolchain
from ..errors import OpwrightError
from ..files import replacing, write_text
from ..generator.bound import BindKey, KernelText

__all__ = ["Built", "Entry", "KernelTableError", "Prebuilt", "key_text", "units_of", "write_table"]

SCHEMA = 1
ABI = 1
INDEX = "kernels.json"

#: Kernels in one translation unit: the headers that all of them include are then read once for all.
UNIT = 32


class KernelTableError(OpwrightError):
    """A kernel table that cannot be read or does not fit."""


@dataclass(frozen=True)
class Entry:
    """One answer: a kernel, and to whom.  asked: the line of a program's request (None: whoever asks); casts: as a
    miss hook answers them; gradient_of: the operator whose adjoint this is."""

    text: KernelText
    asked: str | None = None
    casts: Sequence[str | None] = ()
    gradient_of: str | None = None


@dataclass(frozen=True)
class Built:
    """What one dialect's library came to."""

    dialect: str
    library: Path
    kernels: int
    units: int
    bytes: int


def units_of(texts: Sequence[KernelText], size: int = UNIT) -> dict[str, str]:
    """Translation units of at most `size` kernels, each kernel once; one operator's kernels lie together."""
    from ..generator.emit import emit_unit

    unique = list({t.symbol: t for t in texts}.values())
    unique.sort(key=lambda t: (str(t.row.get("op")), t.symbol))
    chunks = [unique[k : k + size] for k in range(0, len(unique), size)]
    return {f"unit_{k:03}.cpp": emit_unit(chunk) for k, chunk in enumerate(chunks)}


def digest_of(data: bytes) -> str:
    """FNV-1a of 64 bits, as the core computes it: which program.json a table is for."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def key_text(key: BindKey | Mapping[str, Any]) -> str:
    """A key, by which a row is found."""
    parts = ("types", "static", "present", "lengths", "ranks")
    data = (
        {p: key[p] for p in parts} if isinstance(key, Mapping) else {p: dict(getattr(key, p)) for p in parts}
    )
    return json.dumps(data, sort_keys=True)


def write_table(
    folder: Path,
    entries: Mapping[str, Sequence[Entry]],
    *,
    signatures: Sequence[Mapping[str, Any]],
    program: str | None = None,
    workers: int | None = None,
    step: Callable[[str], None] = lambda text: None,
) -> list[Built]:
    """Build the entries of each dialect into one library, and write the folder; what an older table left is removed.

    signatures: of the operators that are called by name, as the registry takes them (with `meaning` beside).
    program: the digest of the program.json that this is for.  The index is written last: a reader finds the old
    table or the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    built: list[Built] = []
    names = {INDEX}
    for dialect, mine in entries.items():
        units = units_of([e.text for e in mine])
        step(f"{dialect}: {len(units)} units")
        made = toolchain.compile_library(
            units,
            name=f"the kernels for {dialect}",
            dialect=dialect,
            workers=workers or toolchain.available_cores(),
        )
        stem = f"{dialect}-{made.stem[:12]}"
        library = f"{stem}.so"
        if not (folder / library).exists():
            with made.open("rb") as source, replacing(folder / library) as out:
                shutil.copyfileobj(source, out)
            (folder / library).chmod(0o755)
        text = json.dumps(
            {"schema": SCHEMA, "dialect": dialect, "kernels": [_entry_json(e) for e in mine]}, allow_nan=True
        )
        # Which answers a library gives is no part of its own name.
        table = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.table.json"
        write_text(folder / table, text)
        names |= {library, table}
        about = toolchain.dialect(dialect)
        rows.append(
            {
                "name": dialect,
                "machine": about.machine,
                "features": sorted(about.features),
                "library": library,
                "table": table,
            }
        )
        symbols = {e.text.symbol for e in mine}
        built.append(
            Built(dialect, folder / library, len(symbols), len(units), (folder / library).stat().st_size)
        )
    index: dict[str, Any] = {"schema": SCHEMA, "abi": ABI, "dialects": rows, "ops": list(signatures)}
    if program is not None:
        index["program"] = program
    write_text(folder / INDEX, json.dumps(index, indent=1, allow_nan=True))
    for old in folder.iterdir():
        if old.name not in names and old.name.endswith((".so", ".table.json")):
            old.unlink(missing_ok=True)
    return built


def _entry_json(entry: Entry) -> dict[str, Any]:
    out: dict[str, Any] = {"row": entry.text.row}
    if entry.asked is not None:
        out |= {"asked": entry.asked, "casts": list(entry.casts)}
    if entry.gradient_of is not None:
        out["gradient_of"] = entry.gradient_of
    return out


# ---- reading ------------------------------------------------------------------------------------------------------


@dataclass
class Prebuilt:
    """The table of a folder for one dialect: rows by operator and key, where the operator's meaning is still this."""

    folder: Path
    dialect: str
    library: Path
    meanings: Mapping[str, str]
    rows: dict[tuple[str, bool, str], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def installed(cls, dialect: str) -> Prebuilt | None:
        """The table that came with the installation, if it has this dialect."""
        folder = resources.kernels_dir()
        return None if folder is None else cls.read(folder, dialect)

    @classmethod
    def read(cls, folder: Path, dialect: str) -> Prebuilt | None:
        """The table in a folder; None where it has not this dialect.  Raises KernelTableError."""
        index = _read(folder / INDEX)
        try:
            about = next((d for d in index["dialects"] if d["name"] == dialect), None)
            if about is None:
                return None
            table = _read(folder / about["table"])
            meanings = {op["name"]: str(op.get("meaning", "")) for op in index["ops"]}
            made = cls(folder, dialect, folder / about["library"], meanings)
            for entry in table["kernels"]:
                gradient_of = entry.get("gradient_of")
                op = gradient_of or entry["row"]["op"]
                made.rows[op, gradient_of is not None, key_text(entry["row"]["key"])] = entry["row"]
        except (KeyError, TypeError) as error:
            raise KernelTableError(
                f"{folder / INDEX} is no kernel table: {error!r}", hint="`opwright build` writes one"
            ) from error
        return made

    def find(self, op: str, meaning: str, key: BindKey, *, gradient: bool = False) -> dict[str, Any] | None:
        """The row of a kernel that was built for exactly this; None: there is none."""
        if self.meanings.get(op) != meaning:
            return None
        return self.rows.get((op, gradient, key_text(key)))


def _read(path: Path) -> Any:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelTableError(
            f"{path} cannot be read: {error.strerror}", hint="`opwright build` writes it"
        ) from error
    except ValueError as error:
        raise KernelTableError(
            f"{path} is no JSON: {error}", hint="`opwright build` writes it anew"
        ) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise KernelTableError(f"{path}: its schema is not {SCHEMA}", hint="`opwright build` writes it anew")
    return data
