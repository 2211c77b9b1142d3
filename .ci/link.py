"""Make the development link tree `build/src/opwright/`: the package as a wheel lays it out, as symlinks.

Every entry of runtime/python becomes an entry of `opwright`, and generator, validators and workflows lie
beside them, so that mypy, import-linter, editors and `import opwright` see one package.  Run it again after
adding a file (`make link`; pytest does so by itself).  Safe at any time, also twice at once: links that are
right stay as they are.  Entry points of pyproject.toml are written beside it, for importlib.metadata to find.

`--pth SITE_PACKAGES` also writes `opwright-dev.pth` there, which puts the tree on that environment's path.
Uses the standard library only, for it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "src" / "opwright"
ROOMS = ("generator", "validators", "workflows")


def wanted() -> dict[str, str]:
    """Name in the tree -> target of the link, relative to the tree."""
    face = ROOT / "runtime" / "python"
    entries = {
        entry.name: face / entry.name
        for entry in face.iterdir()
        if entry.name not in {"__pycache__", "_data"} and not entry.name.startswith(".")
    }
    entries |= {room: ROOT / room for room in ROOMS}
    return {name: os.path.relpath(path, TREE) for name, path in entries.items()}


def link() -> Path:
    """Create, correct and prune the links; returns the folder to put on sys.path."""
    TREE.mkdir(parents=True, exist_ok=True)
    links = wanted()
    for entry in TREE.iterdir():
        if entry.name not in links and entry.is_symlink():
            entry.unlink(missing_ok=True)
    for name, target in links.items():
        path = TREE / name
        if path.is_symlink() and os.readlink(path) == target:
            continue
        if path.is_dir() and not path.is_symlink():
            raise SystemExit(f"{path} is a directory, not a link: remove it")
        # A new link is renamed over the old one, so that a concurrent import never misses it.
        with tempfile.TemporaryDirectory(dir=TREE.parent) as scratch:
            fresh = Path(scratch) / name
            fresh.symlink_to(target)
            os.replace(fresh, path)
    describe()
    return TREE.parent


def describe() -> None:
    """Write the entry points where an installed package has them, if they differ from what is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project.get("entry-points", {})
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}-dev\nVersion: {project['version']}\n",
        "entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in groups.items()
        ),
    }
    folder = TREE.parent / f"{project['name']}_dev-{project['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        with tempfile.TemporaryDirectory(dir=TREE.parent) as scratch:
            fresh = Path(scratch) / name
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, path)


def main() -> None:
    """Link, and with `--pth` put the tree on an environment's path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pth", type=Path, metavar="SITE_PACKAGES", help="also put the tree on this environment's path"
    )
    arguments = parser.parse_args()
    tree = link()
    if arguments.pth:
        pth = arguments.pth / "opwright-dev.pth"
        pth.write_text(f"{tree}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
