"""`opwright report --html`: everything that the records say, as one page that works alone.

The page holds its style and its script; it loads nothing.  Without the script every row and every architecture is
there all the same: the script filters, sorts and folds.  Terms are explained where they first stand (`TERMS`).

May import: jinja2 (inside functions), records (a word), the standard library; not `report`, which calls this.
To show another fact of an attempt: a key of `report._row`, then its place in `report.html.j2`.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .records import UNMEASURED

__all__ = ["TERMS", "first_line", "page", "summary"]

Row = Mapping[str, Any]

LEVEL_WORDS = {
    "L0": "captured: the model's graph was exported",
    "L1": "supplied: every operator that it calls has a proven kernel",
    "L2": "parity: its numbers are PyTorch's, within bounds that follow from the arithmetic",
    "L3": "half: the same in bf16, within twice PyTorch's own error",
    "L4": "decoding: with a cache it writes the very text that PyTorch writes",
    "L5": "training: the gradients of all parameters agree, and ten steps of AdamW",
    "L6": "fast: faster than torch.compile on the same machine",
}
STATE_WORDS = {
    "verified": "the gate ran it again at a commit, and it held",
    "claimed": "it was enabled, and what it rests on still matches, but the gate has not run it at a commit yet",
    "stale": "something that it rests on has changed since, so it holds nothing until it is run again",
}
TERMS = {
    "architecture": "a kind of model, by the name that transformers has for it",
    "target": "what it runs on: cpu, or a GPU architecture",
    "supported": "L0 to L3 hold, and L4 where the model generates text, as the gate found at a commit",
    "sensitivity": "small disturbances of single operators that the comparison noticed; under 95 % it proves nothing",
    "supplied": "operators that had no proven kernel before this architecture asked for them, and where they came from",
    "fused groups": "operators that run as one kernel",
    "coverage": "of an architecture's operators, those that architectures before it had already asked for",
    "cold": "kernels had to be compiled in that time; warm: all of them were in the cache",
    "error": "the largest difference from PyTorch in f64, beside the most that is allowed and PyTorch's own in f32",
}
STAGE_WORDS = {
    "captured": "export the graph",
    "inventoried": "list the operator calls",
    "supplied": "find a kernel for each",
    "validated": "judge what is new",
    "composed": "fuse, compile, plan memory",
    "parity": "compare with PyTorch",
    "half": "the same in bf16",
    "decoding": "the same text, with a cache",
    "training": "gradients and steps of AdamW",
    "fast": "measure against torch.compile",
}


def duration(seconds: float | None) -> str:
    """A time as people say it."""
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def held_words(r: Row, level: str) -> str:
    """Of a level: held, not held, not measured, does not apply; of what is stale nothing is held."""
    held = r["levels"].get(level)
    if held is not None:
        return "held" if held else "not held"
    if r["state"] == "stale":
        return "stale"
    return "not measured" if r["reasons"].get(level, UNMEASURED).startswith(UNMEASURED) else "does not apply"


def cache_words(r: Row) -> str:
    """Whether the times of an attempt hold what compilers took."""
    kernels = r.get("kernels") or {}
    built, found = kernels.get("built", 0), kernels.get("found", 0)
    if not built + found:
        return "unknown"
    return f"cold ({built} of {built + found} built)" if built else "warm"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """What the first line says, as numbers.  `supported`: verified, and every level that the word asks for."""
    states = Counter("supported" if r["supported"] else r["state"] for r in rows)
    waited = [s for r in rows if (s := published_to_supported(r)) is not None]
    active = [s for r in rows if (s := sum(r["seconds"].values())) > 0]
    return {
        "supported": states["supported"],
        "verified": states["verified"],
        "claimed": states["claimed"],
        "stale": states["stale"],
        "median_published_to_supported_s": statistics.median(waited) if waited else None,
        "median_active_s": statistics.median(active) if active else None,
    }


def published_to_supported(r: Row) -> float | None:
    """Seconds from the release of a model's code to its support; None where one of them is not known."""
    published, supported = r["clocks"]["published"], r["clocks"]["supported"]
    if not published or not supported:
        return None
    first, then = (
        datetime.datetime.fromisoformat(str(t).replace("Z", "+00:00")) for t in (published, supported)
    )
    if first.tzinfo is None:
        first = first.replace(tzinfo=datetime.UTC)
    return (then - first).total_seconds()


def first_line(rows: Sequence[Row]) -> str:
    """The page in one sentence, in plain words."""
    s = summary(rows)
    parts = [f"{s['supported']} supported"]
    if s["verified"]:
        parts.append(f"{s['verified']} verified below support")
    parts += [f"{s['claimed']} claimed", f"{s['stale']} stale"]
    if s["median_published_to_supported_s"] is not None:
        tail = f"median from published to supported {duration(s['median_published_to_supported_s'])}"
    elif s["median_active_s"] is not None:
        tail = (
            f"median active time {duration(s['median_active_s'])}; none is supported whose release is dated"
        )
    else:
        tail = "no time was measured yet"
    return f"{', '.join(parts)}; {tail}."


def histogram(values: Sequence[float], unit: str = "s") -> list[dict[str, Any]]:
    """Bars of a distribution over spans that double: name, count, share of the tallest."""
    edges = [0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, float("inf")]
    counts = [sum(low <= v < high for v in values) for low, high in pairwise(edges)]
    last = max((k for k, n in enumerate(counts) if n), default=-1)
    first = next((k for k, n in enumerate(counts) if n), 0)
    top = max(counts, default=0) or 1
    return [
        {
            "name": f"{edges[k]:g}–{edges[k + 1]:g} {unit}"
            if edges[k + 1] < float("inf")
            else f"over {edges[k]:g} {unit}",
            "count": counts[k],
            "share": counts[k] / top,
        }
        for k in range(first, last + 1)
    ]


def stage_medians(rows: Sequence[Row], stages: Sequence[str]) -> list[dict[str, Any]]:
    """Per stage, the median seconds over the rows that have it."""
    found = []
    for stage in stages:
        values = [r["seconds"][stage] for r in rows if stage in r["seconds"]]
        if values:
            found.append(
                {"name": stage, "words": STAGE_WORDS.get(stage, ""), "seconds": statistics.median(values)}
            )
    top = max((f["seconds"] for f in found), default=0) or 1
    return [f | {"share": f["seconds"] / top} for f in found]


def missing_operators(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Operators that are missing, by how many architectures want them."""
    return Counter(op for r in rows for op in {m["op"] for m in r["missing"]}).most_common(20)


def plotted(
    points: Sequence[tuple[float, float, str]],
    span: tuple[float, float] | None = None,
    width: float = 100.0,
    height: float = 40.0,
) -> list[dict[str, Any]]:
    """(x, y, what it is) as places in a drawing of that size, the larger y the higher; `span`: lowest and highest y."""
    if not points:
        return []
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    left = min(xs)
    low, high = span or (min(ys), max(ys))
    if low == high:
        low, high = low - 1, high + 1
    across, up = (max(xs) - left) or 1.0, high - low
    return [
        {
            "x": round(3 + (width - 6) * (x - left) / across, 2),
            "y": round(height - 3 - (height - 6) * (y - low) / up, 2),
            "words": words,
        }
        for x, y, words in points
    ]


def over_time(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Active seconds by the day of the first attempt; a doubling of time is the same height everywhere."""
    found = []
    for r in rows:
        total = sum(r["seconds"].values())
        if total > 0:
            at = datetime.datetime.fromisoformat(str(r["clocks"]["first_attempt"]).replace("Z", "+00:00"))
            words = f"{r['architecture']}: {duration(total)} on {str(r['clocks']['first_attempt'])[:10]}"
            found.append((at.timestamp(), math.log2(total), words))
    return plotted(sorted(found))


def coverage(grown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per architecture as it arrived, the share of its operators that were there."""
    return plotted(
        [
            (k, float(s["covered"]), f"{s['architecture']}: {s['covered']:.0%} of {s['operators']} operators")
            for k, s in enumerate(grown)
        ],
        (0.0, 1.0),
    )


def page(
    rows: Sequence[Row],
    levels: Sequence[str],
    stages: Sequence[str],
    *,
    made: str = "",
    grown: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page.  `made`: what the head says of when and from what; `grown`: the registry's growth (`backtest`)."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.globals.update(held_words=held_words, cache_words=cache_words)
    text: str = environment.get_template("report.html.j2").render(
        first_line=first_line(rows),
        rows=rows,
        levels=levels,
        stages=stages,
        level_words=LEVEL_WORDS,
        state_words=STATE_WORDS,
        terms=TERMS,
        stage_words=STAGE_WORDS,
        targets=sorted({r["target"] for r in rows}),
        dtypes=sorted({r["dtype"] for r in rows}),
        times=histogram([sum(r["seconds"].values()) for r in rows if r["seconds"]]),
        medians=stage_medians(rows, stages),
        missing=missing_operators(rows),
        waited=published_to_supported,
        waits=histogram([s / 86400 for r in rows if (s := published_to_supported(r)) is not None], "days"),
        timeline=over_time(rows),
        timed=sorted(s for r in rows if (s := sum(r["seconds"].values())) > 0),
        days=sorted(str(r["clocks"]["first_attempt"])[:10] for r in rows),
        coverage=coverage(grown),
        grown=grown,
        made=made,
    )
    return text
