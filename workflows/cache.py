"""`opwright cache`: the cache of built artifacts.

May import: runtime.toolchain.
"""

from __future__ import annotations

import re

import click

from .. import toolchain
from ..generator.errors import OpwrightError
from . import console
from .command import command, group, json_option

__all__ = ["cache"]


class SizeError(OpwrightError):
    """A size that is none."""


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size_of(text: str) -> int:
    """Bytes of `500M`, `2G`, `0`.  Raises SizeError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise SizeError(f"`{text}` is not a size", hint="such as 500M or 2G")
    return int(float(found[1]) * _UNITS[found[2]])


def size_text(count: int) -> str:
    """`3.2 MiB`."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


@group("cache", example=["opwright cache info", "opwright cache prune --to 500M", "opwright cache clear"])
def cache() -> None:
    """Look at, prune or clear the cache of built artifacts.

    Everything in it can be built again.  It lies at $OPWRIGHT_CACHE, else $XDG_CACHE_HOME/opwright, else
    ~/.cache/opwright.
    """


@command("info", example=["opwright cache info --json"])
@json_option
def info(as_json: bool) -> int:
    """Where the cache lies and what it holds."""
    found = toolchain.cache_info()
    if as_json:
        console.print_json(
            {"path": str(found.path), "files": found.files, "bytes": found.bytes, "limit": found.limit}
        )
    else:
        console.say(
            f"{found.path}\n{console.counted(found.files, 'artifact')}, "
            f"{size_text(found.bytes)} of at most {size_text(found.limit)}"
        )
    return 0


def _prune(to: int, min_age_s: float, as_json: bool) -> int:
    removed = toolchain.cache_prune(to, min_age_s=min_age_s)
    if as_json:
        console.print_json({"removed_bytes": removed})
    else:
        console.say(f"removed {size_text(removed)}")
    return 0


@command("prune", example=["opwright cache prune", "opwright cache prune --to 500M"])
@click.option(
    "--to", "limit", default=None, metavar="SIZE", help="Keep at most this much (default: the limit, 8 GiB)."
)
@json_option
def prune(limit: str | None, as_json: bool) -> int:
    """Remove what was used longest ago, and what killed processes left behind."""
    return _prune(toolchain.CACHE_LIMIT_BYTES if limit is None else size_of(limit), 60.0, as_json)


@command("clear", example=["opwright cache clear"])
@json_option
def clear(as_json: bool) -> int:
    """Remove every artifact.  Processes that loaded one keep working."""
    return _prune(0, 0.0, as_json)


for member in (info, prune, clear):
    cache.add_command(member)
