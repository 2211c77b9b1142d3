"""Rows for people: a line as each is done, a table at the end, the same as Markdown.  May import: console, rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import console
from .rounds import REVIEW

__all__ = ["goal_text", "markdown", "print_rows", "ratio_text", "row_text", "time_text"]


def time_text(s: float) -> str:
    """`12.3 µs`, in the unit that fits."""
    for unit, size in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if s < 1000 * size:
            n = s / size
            return f"{n:,.0f} {unit}" if n >= 100 else f"{n:.1f} {unit}"
    return f"{s:.2f} s"


def ratio_text(row: Mapping[str, Any], name: str) -> str:
    """A rival's cell: `1.30 (1.25–1.35)`; `?` before what is no verdict, `!` where the answers differ, `–`: missing."""
    r = row.get("rivals", {}).get(name)
    if r is None or r.get("ratio") is None:
        return "–"
    mark = "?" if r["verdict"] in ("no verdict", "invalid") else ""
    odd = "!" if not str(r.get("answers", "agree")).startswith("agree") else ""
    return f"{mark}{r['ratio']:.2f} ({r['p10']:.2f}–{r['p90']:.2f}){odd}"


def goal_text(row: Mapping[str, Any]) -> str:
    """The goals of a row and whether each is met."""
    return "; ".join(_goal(g) for g in row.get("goals", ()))


def _goal(g: Mapping[str, Any]) -> str:
    why = (
        g["why"] if g["why"] in ("no verdict", "invalid") else "not measured"
    )  # others are told below the table
    said = {True: "met", False: "not met", None: why}[g["met"]]
    n, got = g["goal"], g["got"]
    if g["vs"] == "ns":
        text = f"≤ {n:.0f} ns"
        return f"{text}: {said}" + (f" ({got:.0f})" if got is not None and not g["met"] else "")
    if g["vs"] in ("copy", "read"):
        text = f"≥ {n:.0%} of {g['vs']}"
        return f"{text}: {said}" + (f" ({got:.0%})" if got is not None else "")
    if g["vs"] == "gb_s":
        return f"≥ {n:.0f} GB/s: {said}" + (f" ({got:.1f})" if got is not None else "")
    who = (
        f"best ({g['why']})"
        if g["vs"] == "best" and g["got"] is not None and g["met"] is not None
        else g["vs"]
    )
    return f"≥ {n:g} × {who}: {said}" + (f" ({got:.2f})" if got is not None and g["met"] is False else "")


def row_text(row: Mapping[str, Any]) -> str:
    """A row in some lines, as it is done."""
    from .rows import said_of

    lines = [row["name"]]
    for name, r in row["rivals"].items():
        line = f"  {name}: {said_of(row, name)}"
        if r.get("ratio") is not None:
            line += f", {time_text(r['seconds'])}"
            if r["ratio"] > REVIEW:
                line += "; such a gain is to be reviewed by a person"
            if not str(r["answers"]).startswith("agree"):
                line += f"; its answers {r['answers']}"
            if (r.get("compile_s") or 0) > 0.05:
                line += f"; compiled in {r['compile_s']:.1f} s"
        lines.append(line)
    clock = "CPU time" if row["threads"] == 1 else f"{row['threads']} threads, wall time"
    lines.append(
        f"  ours {time_text(row['ours_s'])}, {row['gb_s']:.1f} GB/s; {row['rounds']} rounds, {clock}, warm cache,"
        f" control {row['control_ratio']:.2f} ± {row['control']:.0%}"
    )
    if goals := goal_text(row):
        lines.append(f"  goal {goals}")
    return "\n".join(lines)


def _cells(rows: Sequence[Mapping[str, Any]], vs: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    with_goals = any(r.get("goals") for r in rows)
    head = ["what", "ours", *(f"× {n}" for n in vs), "control"] + (["goal"] if with_goals else [])
    cells = []
    for r in rows:
        if "failed" in r:
            cells.append([r["name"], "–", *("–" for _ in vs), "–"] + ([r["failed"]] if with_goals else []))
            continue
        cells.append(
            [r["name"], time_text(r["ours_s"]), *(ratio_text(r, n) for n in vs), f"± {r['control']:.0%}"]
            + ([goal_text(r)] if with_goals else [])
        )
    return head, cells


def absent(rows: Sequence[Mapping[str, Any]], vs: Sequence[str]) -> list[str]:
    """Who could not, and why: one line for each reason."""
    by: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        for n in vs:
            why = r.get("rivals", {}).get(n, {}).get("missing")
            if why:
                by.setdefault((n, why), []).append(r["name"])
        if "failed" in r:
            by.setdefault(("not measured", r["failed"]), []).append(r["name"])
    return [f"{n}: {why} ({', '.join(names)})" for (n, why), names in by.items()]


def differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose answers are not ours, and by how much."""
    return [
        f"{n}, {r['name']}: its answers {x['answers']}"
        for r in rows
        for n, x in r.get("rivals", {}).items()
        if "answers" in x and not x["answers"].startswith("agree")
    ]


def print_rows(rows: Sequence[Mapping[str, Any]], vs: Sequence[str]) -> None:
    """The table on stdout, then who is missing and whose answers differ."""
    if not rows:
        return
    head, cells = _cells(rows, vs)
    console.print_table(head, cells, right=range(1, len(vs) + 3))
    for line in (*absent(rows, vs), *differing(rows)):
        console.say(line)


def markdown(rows: Sequence[Mapping[str, Any]], vs: Sequence[str], machine: Mapping[str, Any]) -> str:
    """The table for a page."""
    head, cells = _cells(rows, vs)
    lines = [
        "| " + " | ".join(head) + " |",
        "| --- |" + " ---: |" * (len(vs) + 2) + (" --- |" if len(head) > len(vs) + 3 else ""),
        *("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells),
        "",
        *(f"- {line}" for line in (*absent(rows, vs), *differing(rows))),
    ]
    return "\n".join(lines).rstrip() + "\n"
