"""`ow.memory`: what the allocator holds, limits to it, and pools (runtime/src/allocator.h).

    ow.memory.stats()                      numbers: allocated, reserved, their peaks, fragmentation …
    ow.memory.snapshot(html="memory.html") every segment and block as JSON data, and as a picture
    with ow.memory.pool("cache"): …        what is allocated here shares no segment with anything else

`$OPWRIGHT_ALLOC_CONF` sets the same when the runtime is loaded, as `key:value,…`: `max_cached_mb`, `limit_mb`,
`fraction`, `collect_at`, `huge_pages:0|1`, `poison:0|1`.

May import: `.exceptions`, `.files`, `.load`.
"""

from __future__ import annotations

import contextlib
import ctypes
import html as markup
import json as text_json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .exceptions import OpTypeError, OpValueError
from .files import write_text
from .load import core

__all__ = [
    "Pool",
    "collect_at",
    "empty_cache",
    "pool",
    "reset_peak",
    "set_backend",
    "set_fraction",
    "set_limit",
    "snapshot",
    "stats",
]

SCHEMA = 1


def stats() -> dict[str, Any]:
    """What is held now, in bytes and counts.

    allocated: in use, by size classes; requested: what was asked for of that.  reserved: held from the system, of
    which `cached` is not in use.  peak, peak_reserved: the highest since the start or `reset_peak()`.
    fragmentation: the share of what is free that one request could not get in one piece (0: all of it could);
    waste: the share of `allocated` that nobody asked for.
    """
    return _with_shares(core.memory_stats())


def _with_shares(found: dict[str, Any]) -> dict[str, Any]:
    cached = found["reserved"] - found["allocated"]
    found["cached"] = cached
    found["fragmentation"] = 1 - found["largest_free"] / cached if cached else 0.0
    found["waste"] = 1 - found["requested"] / found["allocated"] if found["allocated"] else 0.0
    return found


def snapshot(
    path: str | os.PathLike[str] | None = None, *, html: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Every segment and block at this moment, with who asked for it; `path` gets it as JSON, `html` as a picture.

    The page stands alone: no script and nothing from elsewhere.
    """
    data: dict[str, Any] = {"schema": SCHEMA, **core.memory_snapshot()}
    data["pools"] = {str(number): name for number, name in data["pools"].items()}
    _with_shares(data["stats"])
    if path is not None:
        write_text(Path(path), text_json.dumps(data, indent=1))
    if html is not None:
        write_text(Path(html), page(data))
    return data


def empty_cache() -> None:
    """Give free segments back to the system."""
    core.empty_cache()


def reset_peak() -> None:
    """Set the peaks to what is held now."""
    core.reset_peak_memory()


def set_limit(bytes: int) -> None:
    """Take no more than this from the system; what cannot be served then is an OutOfMemoryError."""
    core.memory_limit(bytes)


def set_fraction(share: float) -> None:
    """Take no more than this share of the memory that the process may have."""
    if not 0 < share <= 1:
        raise OpValueError(f"a fraction of memory must be above 0 and at most 1, got {share}")
    core.memory_limit(int(share * core.memory_total()))


def collect_at(share: float) -> None:
    """Above this share of the limit, free segments go back before new ones are taken (default: at the limit)."""
    core.memory_collect_at(share)


class Pool:
    """Memory apart from all other: what is allocated inside `with pool.use():` shares no segment with anything else,
    so that it cannot be fragmented by it, and goes back at once when the pool is closed and its tensors are gone."""

    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.number: int = core.pool_make(name)

    @contextlib.contextmanager
    def use(self) -> Iterator[Pool]:
        """Allocations of this thread come from the pool."""
        before = core.pool_enter(self.number)
        try:
            yield self
        finally:
            core.pool_enter(before)

    def close(self) -> None:
        """No more is allocated here; its memory goes back as its tensors do."""
        core.pool_drop(self.number)

    def segments(self) -> list[dict[str, Any]]:
        """The pool's segments, as `snapshot` shows them."""
        return [s for s in core.memory_snapshot()["segments"] if s["pool"] == self.number]


@contextlib.contextmanager
def pool(name: str = "pool") -> Iterator[Pool]:
    """A pool for the length of a block: `with ow.memory.pool("cache") as p: …`; it is closed after it."""
    made = Pool(name)
    try:
        with made.use():
            yield made
    finally:
        made.close()


_held: list[Any] = []  # functions of backends: segments are given back by the one that they came from


def set_backend(backend: tuple[Any, Any] | None, context: int = 0) -> None:
    """Where segments to come are taken from: (allocate, release) as addresses or ctypes functions, or None: the
    system's mmap.

    `void* allocate(void* context, size_t bytes, size_t alignment)`, null when there is nothing; `void release(void*
    context, void* data, size_t bytes)`.  They are called with the allocator's lock held: they must not allocate here.
    """
    if backend is None:
        core.set_memory_backend(None)
        return
    if len(backend) != 2:
        raise OpTypeError("a backend is two functions: (allocate, release)")
    _held.append(backend)

    def address(f: Any) -> int:
        return f if isinstance(f, int) else ctypes.cast(f, ctypes.c_void_p).value or 0

    core.set_memory_backend((address(backend[0]), address(backend[1]), context))


# ---- the picture ---------------------------------------------------------------------------------------------------

_WIDTH = 1000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float) -> str:
    """`3.2 MiB`."""
    unit = 0
    while count >= 1024 and unit + 1 < len(_UNITS):
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def _colour(tag: str) -> str:
    """One hue a tag, the same in every picture."""
    value = 0
    for byte in tag.encode():
        value = (value * 131 + byte) % 360
    return f"hsl({value} 60% 55%)"


def page(data: dict[str, Any]) -> str:
    """A snapshot as one HTML file: a bar for each segment, its blocks to scale, and who holds how much."""
    stats = data["stats"]
    rows: list[str] = []
    holders: dict[str, tuple[int, int]] = {}
    for segment in data["segments"]:
        boxes: list[str] = []
        live = 0
        for block in segment["blocks"]:
            x, width = (_WIDTH * block[k] / segment["bytes"] for k in ("offset", "size"))
            tag = block["tag"] or "nobody in particular"
            if block["state"] == "live":
                live += block["size"]
                count, total = holders.get(tag, (0, 0))
                holders[tag] = (count + 1, total + block["size"])
                fill, what = _colour(tag), f"{tag}: {size_text(block['requested'])} in use"
            else:
                fill = "#d5d5d5" if block["state"] == "resting" else "#f4f4f4"
                what = "resting (kept for its size)" if block["state"] == "resting" else "free"
            title = markup.escape(f"{what}, {size_text(block['size'])} at {block['offset']:#x}")
            boxes.append(
                f'<rect x="{x:.2f}" y="0" width="{max(width - 0.3, 0.3):.2f}" height="22" fill="{fill}">'
                f"<title>{title}</title></rect>"
            )
        pool = markup.escape(data["pools"].get(str(segment["pool"]), str(segment["pool"])))
        rows.append(
            f"<p>{segment['address']:#x} · {size_text(segment['bytes'])} · {size_text(live)} in use · pool {pool}</p>"
            f'<svg viewBox="0 0 {_WIDTH} 22" preserveAspectRatio="none">{"".join(boxes)}</svg>'
        )
    table = "".join(
        f'<tr><td><i style="background:{_colour(tag)}"></i>{markup.escape(tag)}</td>'
        f"<td>{count}</td><td>{size_text(total)}</td></tr>"
        for tag, (count, total) in sorted(holders.items(), key=lambda item: -item[1][1])
    )
    head = (
        f"{size_text(stats['allocated'])} in use (peak {size_text(stats['peak'])}), "
        f"{size_text(stats['reserved'])} held (peak {size_text(stats['peak_reserved'])}), "
        f"limit {size_text(stats['limit'])}; fragmentation {stats['fragmentation']:.0%}, waste {stats['waste']:.0%}"
    )
    return _PAGE.format(
        head=markup.escape(head), rows="\n".join(rows) or "<p>Nothing is held.</p>", table=table
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Memory of opwright</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }}
p {{ margin: .8em 0 .2em; color: #555; }}
svg {{ display: block; width: 100%; height: 22px; border: 1px solid #999; }}
td, th {{ text-align: left; padding: .1em 1em .1em 0; }}
td + td, th + th {{ text-align: right; }}
i {{ display: inline-block; width: 1em; height: 1em; margin-right: .5em; vertical-align: -.1em; }}
</style></head><body>
<h1>Memory</h1>
<p>{head}</p>
{rows}
<h2>Who holds it</h2>
<table><tr><th>asked for by</th><th>blocks</th><th>bytes</th></tr>{table}</table>
</body></html>
"""
