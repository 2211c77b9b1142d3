"""`opwright schema`: the JSON Schema of a spec file, for editors.

May import: generator.schema.
"""

from __future__ import annotations

import click

from ..files import write_text
from ..generator.schema import schema_text
from . import console
from .command import command

__all__ = ["schema"]


@command("schema", example=["opwright schema", "opwright schema -o .vscode/opwright.schema.json"])
@click.option(
    "-o", "--out", default=None, type=click.Path(dir_okay=False), metavar="FILE", help="Write it there."
)
def schema(out: str | None) -> int:
    """Print the JSON Schema of a spec file.

    An editor with a YAML language server completes and checks specs by it; `opwright check` is the judge.
    """
    if out is None:
        console.say(schema_text().rstrip("\n"))
        return 0
    from pathlib import Path

    path = Path(out)
    write_text(path, schema_text())
    console.say(str(path))
    return 0
