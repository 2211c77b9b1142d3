"""`opwright init`: make a repository of one's own a workbench.

May import: config.  What it writes, `config.load` reads (tested).
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..files import write_text
from ..generator.errors import OpwrightError
from . import console
from .command import command, json_option
from .config import NAME, TEMPLATE

__all__ = ["init"]


class InitError(OpwrightError):
    """A folder cannot be made a workbench."""


_IGNORED = "build/generated/\nbuild/measured/\nbuild/programs/\n"


@command("init", example=["opwright init", "opwright init --namespace myco ../kernels"])
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--namespace", default="", metavar="NAME", help="What your operators' names begin with, such as myco."
)
@json_option
def init(folder: Path | None, namespace: str, as_json: bool) -> int:
    """Make a repository of your own a workbench.

    Writes opwright.toml and a folder for specs.  Every command then works there, against the installed operators,
    which yours overlay by name.
    """
    root = (folder or Path.cwd()).absolute()
    if namespace and not re.fullmatch(r"[a-z][a-z0-9_]*", namespace):
        raise InitError(
            f"`{namespace}` is no namespace", hint="lower-case letters, digits and _, beginning with a letter"
        )
    path = root / NAME
    if path.exists():
        raise InitError(f"{path} is there already", hint="edit it: `opwright doctor` says whether it reads")
    example = f"{namespace}::rope2d" if namespace else "rope2d"
    made = [path]
    (root / "specs").mkdir(parents=True, exist_ok=True)
    write_text(path, TEMPLATE.format(namespace=namespace, example=example))
    ignore = root / ".gitignore"
    if not ignore.exists():
        write_text(ignore, _IGNORED)
        made.append(ignore)
    if as_json:
        console.print_json({"root": str(root), "files": [str(p) for p in made]})
    else:
        for p in made:
            console.say(str(p))
        console.note("next: `opwright new NAME`, or `opwright ops` to see what there is")
    return 0
