"""`opwright backtest`: how far would the registry have come, one architecture after the other?

From an empty registry, architectures in the order in which they were published (where that is not known, in which they
were first attempted): of each one's operators, the share that those before it had already asked for, and so paid for.
The report draws the same numbers (`covered`).
May import: records.  To order otherwise: `ordered`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import EXIT_OK
from . import console, records
from .command import command, json_option
from .records import Attempt
from .workbench import Workbench

__all__ = ["Step", "backtest", "covered"]


@dataclass(frozen=True)
class Step:
    """One architecture as it arrives.

    when        its publication, or (`dated` False) its first attempt
    operators   it needs; `new` of them nobody had asked for before;  registry: how many there are after it
    """

    architecture: str
    when: str
    dated: bool
    operators: int
    new: tuple[str, ...]
    registry: int

    @property
    def share(self) -> float:
        """Of its operators, those that were there: 1 where it needs none."""
        return 1 - len(self.new) / self.operators if self.operators else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "when": self.when,
            "published": self.dated,
            "operators": self.operators,
            "new": list(self.new),
            "covered": round(self.share, 4),
            "registry": self.registry,
        }


def ordered(found: Mapping[str, Sequence[Attempt]]) -> list[tuple[str, str, bool, frozenset[str]]]:
    """(architecture, when, whether that is its publication, the operators that it needs), the oldest first."""
    out = []
    for name, attempts in found.items():
        published = next((a.published for a in reversed(attempts) if a.published), None)
        through = [a for a in attempts if not a.failed and a.hashes] or list(attempts)
        newest = through[-1]
        needed = {op for op in newest.hashes if not op.startswith("group:")}
        needed |= {str(m["op"]) for m in newest.missing}
        out.append((name, published or attempts[0].at, published is not None, frozenset(needed)))
    return sorted(out, key=lambda row: (row[1], row[0]))


def covered(found: Mapping[str, Sequence[Attempt]]) -> list[Step]:
    """The registry as it grows, architecture by architecture."""
    have: set[str] = set()
    steps = []
    for name, when, dated, needed in ordered(found):
        new = tuple(sorted(needed - have))
        have |= needed
        steps.append(Step(name, when, dated, len(needed), new, len(have)))
    return steps


@command("backtest", example=["opwright backtest", "opwright backtest --json"])
@json_option
def backtest(as_json: bool) -> int:
    """Say how well the operators of earlier architectures covered each later one.

    From the records, in the order of publication (where it is unknown: of the first attempt), from an empty registry.
    """
    bench = Workbench.here()
    steps = covered(records.load_all(bench.config.support_dirs))
    later = [s.share for s in steps[1:]]
    median = statistics.median(later) if later else None
    if as_json:
        console.print_json({"architectures": [s.to_json() for s in steps], "median_covered": median})
        return EXIT_OK
    console.print_table(
        ("architecture", "published", "operators", "new", "covered", "registry"),
        [
            (
                s.architecture,
                s.when[:10] if s.dated else f"unknown, first attempt {s.when[:10]}",
                s.operators,
                len(s.new),
                f"{s.share:.0%}",
                s.registry,
            )
            for s in steps
        ],
        right=(2, 3, 4, 5),
    )
    if median is not None:
        console.note(f"of the operators of a later architecture, {median:.0%} were there already (median)")
    return EXIT_OK
