"""`opwright migrate`: bring configuration, evidence and records to this version's schema.

There is one schema yet, so nothing needs to move; the command says what it found, and refuses what is newer than this
version.  To add a schema: its number where the file is defined, and a function in `STEPS`, old number -> new data.

May import: config, workbench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..generator.errors import ErrorGroup, OpwrightError, Place
from . import console
from .command import command, json_option
from .config import Config, find

__all__ = ["STEPS", "migrate"]

CURRENT = 1
#: schema it reads -> how to make the next one of it
STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


class MigrateError(OpwrightError):
    """A file's schema is not one that this version knows."""


@dataclass(frozen=True)
class Found:
    """One file and its schema."""

    path: Path
    kind: str
    schema: int


def _files(config: Config) -> Iterator[tuple[Path, str]]:
    for kind, folder in (("evidence", config.evidence), ("record", config.support)):
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            yield path, kind


def _schema(path: Path) -> int:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise MigrateError(
            f"{path.name} is no YAML", place=Place(str(path)), hint="restore it from git"
        ) from error
    number = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise MigrateError(f"{path.name} has no schema", place=Place(str(path)), hint="restore it from git")
    if number > CURRENT or any(k not in STEPS for k in range(number, CURRENT)):
        raise MigrateError(
            f"{path.name} has schema {number}, this version knows {CURRENT}",
            place=Place(str(path)),
            hint="install a newer opwright",
        )
    return number


@command("migrate", example=["opwright migrate"])
@json_option
def migrate(as_json: bool) -> int:
    """Bring evidence and records to this version's schema.

    Says what it found, file by file, and changes only what is older.
    """
    config = find()
    found: list[Found] = []
    errors: list[OpwrightError] = []
    for path, kind in _files(config):
        try:
            found.append(Found(path, kind, _schema(path)))
        except OpwrightError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(errors)
    if as_json:
        console.print_json(
            {
                "current": CURRENT,
                "files": [
                    {"file": str(f.path), "kind": f.kind, "schema": f.schema, "changed": False} for f in found
                ],
            }
        )
    else:
        console.say(f"{len(found)} files, all of schema {CURRENT}: nothing to do")
    return 0
