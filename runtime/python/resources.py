"""Where the data files lie: in a checkout, seen through the link tree, or in an installed wheel.

May import: the standard library only.
To add a folder: one function here, one line in `_PLACES`, and one package-dir entry in pyproject.toml
(`opwright._data.<name>`); tests/test_layout.py compares the two.

A wheel carries the folders as `opwright/_data/<name>`.  In a checkout this file is
`runtime/python/resources.py`, whatever link led here, so the repository's root is two folders up.
"""

from __future__ import annotations

import os
from pathlib import Path

# name in the wheel -> path in a checkout
_PLACES = {
    "specs": "specs",
    "include": "runtime/include",
    "src": "runtime/src",
    "bodies": "runtime/bodies",
    "accepted": "runtime/accepted",
    "support": "runtime/support",
}

_HERE = Path(__file__).resolve().parent
_DATA = _HERE / "_data"


def checkout() -> Path | None:
    """The repository's root when this runs from a checkout, else None (installed)."""
    return None if _DATA.is_dir() else _HERE.parents[1]


def _folder(name: str) -> Path:
    root = checkout()
    return _DATA / name if root is None else root / _PLACES[name]


def specs_dir() -> Path:
    """The built-in specs: `ops/<family>/<op>.yaml`, `models/<architecture>.yaml`."""
    return _folder("specs")


def include_dir() -> Path:
    """The directory to put on the include path: `opwright/abi.h` lies below it."""
    return _folder("include")


def src_dir() -> Path:
    """The C++ sources of the runtime core."""
    return _folder("src")


def bodies_dir() -> Path:
    """Kernel bodies written by hand or by agents."""
    return _folder("bodies")


def accepted_dir() -> Path:
    """The evidence: `<op>.yaml`."""
    return _folder("accepted")


def support_dir() -> Path:
    """The records of enabled architectures: `<architecture>.yaml`."""
    return _folder("support")


def kernels_dir() -> Path | None:
    """Kernels that were built ahead of time and came with the installation (`opwright build --wheel`), or None."""
    folder = _DATA / "kernels"
    return folder if folder.is_dir() else None


def cache_dir() -> Path:
    """Where built artifacts go: `$OPWRIGHT_CACHE`, else `$XDG_CACHE_HOME/opwright`, else `~/.cache/opwright`.

    Only names it; `toolchain.open_cache` creates it and refuses one that others can write to.
    """
    if own := os.environ.get("OPWRIGHT_CACHE"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    base = Path(xdg) if os.path.isabs(xdg) else Path(os.path.expanduser("~")).absolute() / ".cache"
    return base / "opwright"
