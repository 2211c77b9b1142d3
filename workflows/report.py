"""`opwright report`: architectures by levels of support, with the time that each stage took, from the records in git.

A state is `verified` (the gate ran it again at a commit), `claimed` (enabled, and what it rests on still matches) or
`stale` (something that it rests on has changed: nothing stale is called supported).
May import: records, report_page, enable (today's hashes), workbench.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import OpwrightError
from ..files import write_text
from ..generator.errors import did_you_mean
from . import console, records
from .backtest import covered
from .command import command, json_option
from .enable import STAGES, hashes_now
from .records import LEVELS, Standing
from .report_page import LEVEL_WORDS, cache_words, first_line, missing_operators, page, summary
from .workbench import Workbench

__all__ = ["report", "rows_of"]


class ReportError(OpwrightError):
    """A record is asked for that there is not."""


def rows_of(bench: Workbench) -> list[dict[str, Any]]:
    """One row per architecture, target and dtype."""
    found = records.load_all(bench.config.support_dirs)
    used = sorted({op for attempts in found.values() for a in attempts for op in a.hashes})
    today = hashes_now(bench, used)
    return [_row(s) for attempts in found.values() for s in records.standing(attempts, today)]


def _row(s: Standing) -> dict[str, Any]:
    a = s.attempt
    stale = s.state == records.STALE
    return {
        "architecture": a.architecture,
        "target": a.target,
        "dtype": a.dtype,
        "level": s.level,
        "levels": {n: None if stale else a.levels.get(n) for n in LEVELS},
        "reasons": dict(a.reasons),
        "seconds": dict(a.seconds),
        "supplied": [dict(x) for x in a.supplied],
        "missing": [dict(x) for x in a.missing],
        "state": s.state,
        "reason": s.reason,
        "attempts": s.attempts,
        "supported": s.state == records.VERIFIED and records.supports(a),
        "operators": sorted(op for op in a.hashes if not op.startswith("group:")),
        "groups": sorted(op for op in a.hashes if op.startswith("group:")),
        "error": dict(a.error),
        "sensitivity": dict(a.sensitivity),
        "calls": dict(a.graph.get("calls", {})),
        "slowest": [dict(x) for x in a.slowest],
        "kernels": dict(a.kernels),
        "weights": a.weights,
        "scale": a.scale,
        "clocks": {
            "published": a.published,
            "first_attempt": s.first,
            "supported": s.supported,
            "wall_s": _between(s.first, s.supported),
            "active": dict(a.active),
        },
    }


def _between(first: str, then: str | None) -> float | None:
    """Seconds from the first attempt to support."""
    if then is None:
        return None
    begun, done = (datetime.datetime.fromisoformat(t.replace("Z", "+00:00")) for t in (first, then))
    return (done - begun).total_seconds()


_MARK = {True: "yes", False: "no", None: "-"}


def _stages(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The stages that took any time worth a column."""
    return [s for s in STAGES if any(r["seconds"].get(s, 0) >= 0.05 for r in rows)]


def _cells(row: dict[str, Any], stages: Sequence[str]) -> list[str]:
    seconds = [f"{row['seconds'][s]:.1f}" if s in row["seconds"] else "" for s in stages]
    return [
        row["architecture"],
        row["target"],
        row["dtype"],
        row["state"],
        *(_MARK[row["levels"][n]] for n in LEVELS),
        *seconds,
        f"{sum(row['seconds'].values()):.1f}",
        cache_words(row),
        str(len(row["supplied"]) or ""),
    ]


def _head(stages: Sequence[str]) -> list[str]:
    return ["architecture", "target", "dtype", "state", *LEVELS, *stages, "total", "cache", "made for it"]


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    stages = _stages(rows)
    head = _head(stages)
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(_cells(r, stages)) + " |" for r in rows]
    notes = [
        f"- {r['architecture']} ({r['target']}, {r['dtype']}): {r['state']}, {r['reason']}"
        for r in rows
        if r["reason"]
    ]
    missing = [f"| `{op}` | {n} |" for op, n in missing_operators(rows)]
    if missing:
        missing = ["", "| missing operator | architectures |", "| --- | --- |", *missing]
    return "\n".join([first_line(rows), "", *lines, "", *notes, *missing]) + "\n"


@command(
    "report",
    example=[
        "opwright report",
        "opwright report --markdown support.md",
        "opwright report --html support.html",
        "opwright report --json",
    ],
)
@click.argument("architectures", nargs=-1, metavar="[ARCHITECTURE]...")
@click.option(
    "--markdown",
    default=None,
    is_flag=False,
    flag_value="-",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="[FILE]",
    help="Write a page in Markdown; without FILE, print it.",
)
@click.option(
    "--html",
    default=None,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write a page that works alone.",
)
@json_option
def report(architectures: tuple[str, ...], markdown: str | None, html: str | None, as_json: bool) -> int:
    """Show architectures, the levels of support that they hold, and the seconds that each stage took.

    From the records that `opwright enable` writes.  What rests on something that changed since is stale and holds
    nothing.
    """
    with console.progress("reading records and evidence", quiet=as_json, after_s=2.0):
        bench = Workbench.here()
        rows = rows_of(bench)
    known = [r["architecture"] for r in rows]
    if (
        markdown is not None and markdown in known
    ):  # `report --markdown bert`: the flag alone, before an architecture
        architectures, markdown = (*architectures, markdown), "-"
    if architectures:
        for name in architectures:
            if name not in known:
                raise ReportError(
                    f"there is no record of `{name}`",
                    hint=did_you_mean(name, known, what="recorded architectures") if known else None,
                )
        rows = [r for r in rows if r["architecture"] in architectures]
    if html is not None:
        from .enable import commit_of

        commit, dirty = commit_of(bench.config.root)
        grown = [s.to_json() for s in covered(records.load_all(bench.config.support_dirs))]
        said = (
            f"From the records at {commit[:12]}{' and what is not committed' if dirty else ''}, "
            if commit
            else ""
        )
        write_text(
            Path(html),
            page(rows, LEVELS, STAGES, made=f"{said}{records.now()[:10]}.", grown=grown),
            durable=False,
        )
        if not as_json:
            console.say(html)
    to_file = markdown is not None and markdown != "-"
    if markdown is not None and to_file:
        write_text(Path(markdown), _markdown(rows), durable=False)
        if not as_json:
            console.say(markdown)
    if as_json:
        grown = [s.to_json() for s in covered(records.load_all(bench.config.support_dirs))]
        console.print_json({"summary": summary(rows), "architectures": rows, "coverage": grown})
    elif markdown == "-":
        console.say(_markdown(rows).rstrip("\n"))
    elif html is not None or to_file:
        pass
    elif not rows:
        console.say("no architecture was enabled yet: `opwright enable llama`")
    else:
        console.say(first_line(rows))
        console.say()
        first, stages = 4 + len(LEVELS), _stages(rows)
        console.print_table(
            _head(stages),
            [_cells(r, stages) for r in rows],
            right=tuple(range(first, first + len(stages) + 1)),
        )
        console.say()
        for name, words in LEVEL_WORDS.items():
            console.note(f"{name} {words}")
        console.note(
            "seconds by stage of the newest attempt; cache: warm, where no kernel had to be compiled; "
            "made for it: operators generated in that attempt"
        )
        for r in rows:
            if r["reason"]:
                console.note(f"{r['architecture']} ({r['target']}, {r['dtype']}): {r['reason']}")
    return 0
