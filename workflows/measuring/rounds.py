"""The measuring core: blocks of all sides by turns, ratios per pair, a control, and what they let one say.

A round calls every side once forwards and once backwards (ours, A, B, …, control, then the same from the end), so that
a drift of the machine hits both of a pair alike.  A ratio is the rival's time over ours of the same half round, above 1
where ours is faster.  The control is ours once more, in a process of its own: what its ratios are off from 1 is what
the machine adds to any ratio.

Knows nothing of processes: a side is a function from (input set, calls) to seconds a call.  May import: nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["CONTROL", "OURS", "REVIEW", "Measured", "best", "goals_of", "measure", "quantile", "verdict"]

#: Seconds a call, of `calls` calls on input set k.
Timer: TypeAlias = Callable[[int, int], float]

OURS, CONTROL = "ours", "control"
#: What a block lasts at least, unless one call is longer.
BLOCK_S = 0.004
#: Rounds that are made even where the time is up.
LEAST = 4
#: A control that spreads wider can call nothing the same.
TOLD = 0.1
#: A gain above this is more often a mistake than a gain: a person looks at it.
REVIEW = 10.0
#: The rivals among which the best is looked for (SPEED.md); what is given its output's memory is no plain call.
_BEST_OF = ("torch", "inductor", "onnxruntime", "jax")


@dataclass
class Measured:
    """Ratios per pair by rival (the control among them), seconds a call by side, and how many rounds there were."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0
    calls: dict[str, int] = field(default_factory=dict)


def measure(
    sides: Mapping[str, Timer],
    seconds: float,
    sets: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Rounds of all sides until the time is up; `OURS` must be among them."""
    calls = {}
    for name, timer in sides.items():
        timer(0, 1)
        once = timer(0, 1)
        if once < BLOCK_S:  # what one call took says little where it is short
            once = timer(0, max(1, min(64, int(BLOCK_S / 8 / max(once, 1e-8)))))
        calls[name] = max(1, min(1 << 17, int(BLOCK_S / max(once, 1e-9))))
    found = Measured({n: [] for n in sides if n != OURS}, {n: [] for n in sides}, 0, calls)
    order = list(sides)
    end = clock() + seconds
    while found.rounds < LEAST or clock() < end:
        k = found.rounds % sets
        for half in (order, order[::-1]):
            took = {name: sides[name](k, calls[name]) for name in half}
            for name, s in took.items():
                found.seconds[name].append(s)
                if name != OURS:
                    found.ratios[name].append(s / took[OURS])
        found.rounds += 1
    return found


def quantile(values: Sequence[float], q: float) -> float:
    """By linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread_of(control: Sequence[float]) -> float:
    """How far the control is from 1."""
    return max(abs(quantile(control, 0.1) - 1), abs(quantile(control, 0.9) - 1))


def verdict(pairs: Sequence[float], control: Sequence[float]) -> dict[str, Any]:
    """What ratios (a rival's time over ours, per pair) say, given the control's (ours over ours).

    `faster` or `slower` only where p10…p90 lies beyond 1 by more than the control spreads; `the same` only where the
    control could have told a tenth.
    """
    low, middle, high = (quantile(pairs, q) for q in (0.1, 0.5, 0.9))
    spread = spread_of(control)
    said = "no verdict"
    if low > 1 + spread:
        said = "faster"
    elif high < 1 - spread:
        said = "slower"
    elif spread <= TOLD and high - low < 2 * spread and abs(middle - 1) <= spread:
        said = "the same"
    return {"verdict": said, "ratio": middle, "p10": low, "p90": high, "control": spread}


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def best(rivals: Mapping[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    """The quickest of the plain rivals that were measured: its ratio is the least."""
    found = [(n, r) for n, r in rivals.items() if n in _BEST_OF and r.get("ratio") is not None]
    return min(found, key=lambda p: p[1]["ratio"]) if found else None


def goals_of(goals: Mapping[str, float], row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each goal with what was reached, and whether it is met: true, false, or null with a reason.

    goals    "best" or a rival's name: the least ratio · "ns": the most that a call takes · "copy", "read": the least
             share of what the machine's memory gives · "gb_s": the least that is read and written a second
    A ratio without a verdict meets nothing, and misses a goal only where even its p90 does; the same is at least 1.
    """
    return [_goal(name, float(wanted), row) for name, wanted in goals.items()]


def _goal(name: str, wanted: float, row: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"vs": name, "goal": wanted, "got": None, "met": None, "why": ""}
    if name == "ns":
        got = row["ours_s"] * 1e9
        return out | {"got": got, "met": got <= wanted}
    if name == "gb_s":
        return out | {"got": row["gb_s"], "met": row["gb_s"] >= wanted}
    if name in ("copy", "read"):
        limit = row.get("limits", {}).get(name)
        if not limit:
            return out | {"why": "the limit was not measured"}
        got = row["gb_s"] / limit
        return out | {"got": got, "met": got >= wanted}
    rivals = row["rivals"]
    found = best(rivals) if name == "best" else ((name, rivals[name]) if name in rivals else None)
    if found is None:
        return out | {"why": "not measured"}
    who, r = found
    if r.get("ratio") is None:
        return out | {"why": r.get("missing", "not measured")}
    out["got"] = r["ratio"]
    if name == "best":
        out["why"] = who
    if r["verdict"] == "the same" and wanted <= 1:
        return out | {"met": True}
    if r["verdict"] == "invalid":
        return out | {"why": "invalid"}
    if r["p90"] < wanted:
        return out | {"met": False}
    if r["verdict"] == "no verdict":
        return out | {"why": "no verdict"}
    return out | {"met": r["ratio"] >= wanted}
