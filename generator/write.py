"""Writing generated files: only what changed, all listed in a manifest, what is no longer made removed.

    out = Tree(root / "softmax")
    out.add("cpu.cpp", text)
    changes = out.commit()          or out.compare(): what `--check` says, nothing written

Every file is replaced whole (`files.py`); the manifest goes last, under a lock, so that Ctrl-C or a full disk leaves a
tree that the next run completes.  A file that is not in the manifest is nobody's of ours: never touched.

May import: errors, opwright.files, the standard library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import locked, write_text
from .errors import OpwrightError, Place

__all__ = ["MANIFEST", "Changes", "Tree", "WriteError"]

MANIFEST = "manifest.json"
SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")


class WriteError(OpwrightError):
    """A generated file cannot be written: its name, or what lies there already."""


@dataclass(frozen=True)
class Changes:
    """Names of files, relative to the tree: made or changed; the same as before; no longer made."""

    written: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.written or self.removed)


class Tree:
    """A folder of generated files.  `about` is what the manifest says beside the list (what it was made from)."""

    def __init__(self, root: Path, about: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self.about = dict(about or {})
        self.files: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        """A file of the tree.  Raises `WriteError` for a name that could leave it."""
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise WriteError(f"`{name}` is no name for a generated file")
        if name in self.files:
            raise WriteError(f"{name} is made twice")
        self.files[name] = text if text.endswith("\n") else text + "\n"

    # ---- the manifest

    def manifest(self) -> str:
        """Its text: sorted, no times, so that the same input gives the same bytes."""
        hashes = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in sorted(self.files.items())}
        return json.dumps({"schema": SCHEMA, **self.about, "files": hashes}, indent=1, sort_keys=True) + "\n"

    def before(self) -> set[str]:
        """What an earlier run made here."""
        path = self.root / MANIFEST
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            names = data["files"]
            return {n for n in names if isinstance(n, str) and _NAME.fullmatch(n)}
        except FileNotFoundError:
            return set()
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise WriteError(
                f"{MANIFEST} cannot be read: {error}",
                place=Place(str(path)),
                hint=f"remove {self.root} and generate again",
            ) from error

    # ---- writing

    def compare(self) -> Changes:
        """What `commit` would do."""
        if self.root.is_symlink() or (self.root.exists() and not self.root.is_dir()):
            raise WriteError(f"{self.root} is not a folder", hint="remove it and generate again")
        old = self.before()
        written = [n for n, text in self.files.items() if self._says(n) != text]
        removed = [n for n in old - self.files.keys() if (self.root / n).exists()]
        if not written and not removed and self._says(MANIFEST) != self.manifest():
            written.append(MANIFEST)
        same = [n for n in self.files if n not in written]
        return Changes(tuple(sorted(written)), tuple(sorted(same)), tuple(sorted(removed)))

    def _says(self, name: str) -> str | None:
        try:
            return (self.root / name).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return None

    def commit(self) -> Changes:
        """Write what changed, remove what is no longer made, write the manifest."""
        self.root.mkdir(parents=True, exist_ok=True)
        with locked(self.root):
            changes = self.compare()
            for name, text in self.files.items():
                write_text(self.root / name, text, durable=False)
            for name in changes.removed:
                (self.root / name).unlink(missing_ok=True)
                self._prune((self.root / name).parent)
            write_text(self.root / MANIFEST, self.manifest(), durable=False)
        return changes

    def _prune(self, folder: Path) -> None:
        """Empty folders that held only removed files."""
        while folder != self.root and folder.is_relative_to(self.root):
            try:
                folder.rmdir()
            except OSError:  # something else lies there
                return
            folder = folder.parent
