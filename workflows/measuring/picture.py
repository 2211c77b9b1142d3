"""Rows as a picture: a self-contained SVG, or an HTML page around it with the table.

A lane for each row; in it a bar for each rival from 1 to its ratio (to the right: ours is faster), on a scale of
powers of two; a thin line from p10 to p90; a tick where the goal is.  Bars without a verdict are pale.  Colours follow
the reader's choice of light or dark.  May import: table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .table import absent, differing, goal_text, ratio_text, time_text

__all__ = ["html", "svg"]

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP = 1180, 330, 300, 9, 12
#: Okabe and Ito's colours, which people who do not see red or green tell apart; lighter ones in the dark.
_LIGHT = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#8a7000")
_DARK = ("#4aa3df", "#9ad4f5", "#f0884a", "#33c99b", "#e0a3c8", "#e6c84a")
_LEAST, _MOST = 0.25, 64.0


def _style() -> str:
    def colours(each: Sequence[str], ink: str, pale: str, paper: str) -> str:
        bars = "".join(f".r{k}{{fill:{c}}}.l{k}{{stroke:{c}}}" for k, c in enumerate(each))
        return (
            f"{bars}.ink{{fill:{ink}}}.pale{{fill:{pale}}}.paper{{fill:{paper}}}"
            f".halo{{fill:{paper};stroke:{paper};stroke-width:3}}.axis{{stroke:{pale};stroke-opacity:.35}}.one{{stroke:{ink};stroke-width:1.5}}"
            f".whisker{{stroke:{ink};stroke-width:1.2}}.goal{{stroke:{ink};stroke-width:2;stroke-dasharray:2 2}}"
        )

    light = colours(_LIGHT, "#1b1f24", "#59636e", "#ffffff")
    dark = colours(_DARK, "#e6edf3", "#9198a1", "#0d1117")
    return (
        "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}"
        ".head{font-weight:600;font-size:14px}.small{font-size:11px}.end{text-anchor:end}.mid{text-anchor:middle}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )


def svg(rows: Sequence[Mapping[str, Any]], vs: Sequence[str], machine: Mapping[str, Any]) -> str:
    """The picture alone."""
    shown = [r for r in rows if "failed" not in r]
    low, high = _range(shown)
    inner = _WIDTH - _LEFT - _RIGHT

    def x(ratio: float) -> float:
        share = (math.log2(min(max(ratio, low), high)) - math.log2(low)) / (math.log2(high) - math.log2(low))
        return _LEFT + share * inner

    body: list[str] = []
    y = 24.0
    body.append(
        f'<text class="ink head" x="16" y="{y}">Time of others over ours: to the right, ours is faster</text>'
    )
    said = f"{machine['processor']}, {machine['dialect']}, {machine['compiler']}"
    body.append(
        f'<text class="pale small" x="16" y="{y + 17}">{escape(said)}; one thread unless said otherwise</text>'
    )
    at = 16.0
    y += 42
    for k, name in enumerate(vs):
        body.append(f'<rect class="r{k % 6}" x="{at}" y="{y - 9}" width="12" height="{_BAR}"/>')
        body.append(f'<text class="ink" x="{at + 18}" y="{y}">{escape(name)}</text>')
        at += 38 + 7.2 * len(name)
    legend = (("whisker", "p10 to p90"), ("goal", "goal"))
    for kind, words in legend:
        if kind == "whisker":
            body.append(f'<line class="whisker" x1="{at}" x2="{at + 22}" y1="{y - 4}" y2="{y - 4}"/>')
        else:
            body.append(f'<line class="goal" x1="{at + 11}" x2="{at + 11}" y1="{y - 12}" y2="{y + 3}"/>')
        body.append(f'<text class="pale" x="{at + 28}" y="{y}">{words}</text>')
        at += 44 + 7 * len(words)
    body.append(f'<text class="pale" x="{at}" y="{y}">pale: no verdict</text>')
    y += 26
    top = y
    lanes: list[str] = []
    last = None
    for r in shown:
        if r.get("class") and r["class"] != last:
            last = r["class"]
            y += 20
            lanes.append(f'<text class="ink head" x="16" y="{y}">{escape(str(last))}</text>')
            y += 10
        lanes += _lane(r, vs, x, y)
        y += _height(r, vs) + _GAP
    bottom = y
    axis = []
    tick = low
    while tick <= high * 1.001:
        kind = "one" if abs(tick - 1) < 1e-9 else "axis"
        axis.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{bottom}"/>')
        axis.append(f'<text class="pale small mid" x="{x(tick):.1f}" y="{top - 5}">{tick:g}</text>')
        axis.append(f'<text class="pale small mid" x="{x(tick):.1f}" y="{bottom + 14}">{tick:g}</text>')
        tick *= 2
    height = bottom + 26
    inside = "\n".join([*body, *axis, *lanes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="Time of others over ours">\n<style>{_style()}</style>\n'
        f'<rect class="paper" width="{_WIDTH}" height="{height:.0f}"/>\n{inside}\n</svg>\n'
    )


def _measured(row: Mapping[str, Any], vs: Sequence[str]) -> list[tuple[int, str, Mapping[str, Any]]]:
    """Place in the list of rivals, name and figures of those that a row has."""
    return [
        (k, n, r)
        for k, n in enumerate(vs)
        if (r := row.get("rivals", {}).get(n)) is not None and r.get("ratio") is not None
    ]


def _range(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Powers of two around all ratios and goals, and 1."""
    found = [1.0]
    for r in rows:
        found += [x[q] for _, _, x in _measured(r, list(r.get("rivals", {}))) for q in ("p10", "p90")]
        found += [g["goal"] for g in r.get("goals", ()) if g["vs"] not in ("ns", "copy", "read", "gb_s")]
    low, high = min(found), max(found)
    first = 2.0 ** math.floor(math.log2(max(low, _LEAST)))
    last = 2.0 ** math.ceil(math.log2(min(high * 1.02, _MOST)))
    return min(first, 0.5), max(last, 2.0)


def _height(row: Mapping[str, Any], vs: Sequence[str]) -> float:
    return max(len(_measured(row, vs)) * (_BAR + 2), 24)


def _lane(row: Mapping[str, Any], vs: Sequence[str], x: Any, y: float) -> list[str]:
    out = [f'<text class="ink end" x="{_LEFT - 12}" y="{y + 11}">{escape(row["name"])}</text>']
    out.append(
        f'<text class="pale small end" x="{_LEFT - 12}" y="{y + 24}">ours {escape(time_text(row["ours_s"]))}, '
        f"control ± {row['control']:.0%}</text>"
    )
    bars = _measured(row, vs)
    for place, (k, name, r) in enumerate(bars):
        top = y + place * (_BAR + 2)
        a, b = sorted((x(1.0), x(r["ratio"])))
        pale = ' fill-opacity=".35"' if r["verdict"] in ("no verdict", "invalid") else ""
        tip = f"{name}: {ratio_text(row, name)}, {time_text(r['seconds'])}"
        out.append(
            f'<rect class="r{k % 6}" x="{a:.1f}" y="{top:.1f}" width="{max(b - a, 1):.1f}" height="{_BAR}"{pale}>'
            f"<title>{escape(tip)}</title></rect>"
        )
        middle = top + _BAR / 2
        out.append(
            f'<line class="whisker" x1="{x(r["p10"]):.1f}" x2="{x(r["p90"]):.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
        )
        end = max(x(r["p90"]), x(1.0)) + 4
        for kind in ("halo", "pale"):
            out.append(
                f'<text class="{kind} small" x="{end:.1f}" y="{top + _BAR - 0.5:.1f}">{r["ratio"]:.2f}</text>'
            )
    for g in row.get("goals", ()):
        lines = (
            [(y, y + _height(row, vs))]
            if g["vs"] == "best"
            else [
                (y + p * (_BAR + 2) - 1, y + p * (_BAR + 2) + _BAR + 1)
                for p, (_, n, _) in enumerate(bars)
                if n == g["vs"]
            ]
        )
        for top, bottom in lines:
            out.append(
                f'<line class="goal" x1="{x(g["goal"]):.1f}" x2="{x(g["goal"]):.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
            )
    for k, part in enumerate(goal_text(row).split("; ") if row.get("goals") else ()):
        mark = "✓" if part.endswith(": met") or ": met (" in part else "✗" if ": not met" in part else "?"
        out.append(
            f'<text class="pale small" x="{_WIDTH - _RIGHT + 26}" y="{y + 11 + 13 * k}">{mark} {escape(part)}</text>'
        )
    return out


def html(rows: Sequence[Mapping[str, Any]], vs: Sequence[str], machine: Mapping[str, Any]) -> str:
    """A page: the picture, the table, who is missing and why."""
    head = ["what", "ours", *(f"× {n}" for n in vs), "control", "goal"]
    cells = [
        [r["name"], "–", *("–" for _ in vs), "–", r["failed"]]
        if "failed" in r
        else [
            r["name"],
            time_text(r["ours_s"]),
            *(ratio_text(r, n) for n in vs),
            f"± {r['control']:.0%}",
            goal_text(r),
        ]
        for r in rows
    ]
    table = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in cells)
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*absent(rows, vs), *differing(rows)))
    heads = "".join(f"<th>{escape(h)}</th>" for h in head)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Speed</title>\n'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">\n'
        "<style>body{font:14px system-ui,sans-serif;margin:1.5rem;max-width:75rem;background:#fff;color:#1b1f24}"
        "svg{max-width:100%;height:auto}div{overflow-x:auto}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;"
        "text-align:right;border-bottom:1px solid #8884}"
        "th:first-child,td:first-child,th:last-child,td:last-child{text-align:left}"
        "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}</style>\n"
        f"{svg(rows, vs, machine)}\n<div><table><tr>{heads}</tr>{table}</table></div>\n"
        "<p>Ratios are medians of pairs, with p10 and p90. ? no verdict, for the control spreads wider than the "
        f"gain; ! the answers differ.</p>\n<ul>{notes}</ul></html>\n"
    )
