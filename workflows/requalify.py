"""`opwright requalify`: after an upgrade of torch or transformers, is every recorded model still the same graph?

Each recorded architecture is captured again, and its graph compared with the one that its newest attempt was about
(`Attempt.graph`: a hash of all nodes, and the calls by operator).  The same graph keeps what was proven of it; of
another one the differences are printed, and `opwright enable` has to say what holds.  Nothing is recorded.
May import: bridge, enable (fingerprints), records.  To compare more of a graph: `graph_of`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from ..generator.program.capture_run import run_worker
from . import console, records
from .bridge import aten_rows
from .command import command, json_option, seed_option
from .enable import graph_of
from .records import Attempt
from .workbench import Workbench

__all__ = ["differences", "requalify"]

SAME, CHANGED, UNKNOWN, FAILED = "unchanged", "changed", "unknown", "failed"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What became of the calls, a line each: `softmax 2 → 3`."""
    old, new = before.get("calls", {}), now.get("calls", {})
    lines = [
        f"{op} {old.get(op, 0)} → {new.get(op, 0)}"
        for op in sorted({*old, *new})
        if old.get(op, 0) != new.get(op, 0)
    ]
    if not lines and before.get("hash") != now.get("hash"):
        lines.append("the same calls of other shapes, attributes or order")
    return lines


def newest(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The newest attempt for each target and dtype that ran through."""
    found: dict[tuple[str, str], Attempt] = {}
    for a in attempts:
        if not a.failed:
            found[a.target, a.dtype] = a
    return list(found.values())


def requalified(a: Attempt, capture: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """One attempt: `capture(target)` gives its graph today."""
    row: dict[str, Any] = {
        "architecture": a.architecture,
        "target": a.target,
        "dtype": a.dtype,
        "was": {k: a.place[k] for k in ("torch", "transformers") if k in a.place},
        "state": UNKNOWN,
        "differences": [],
        "reason": "",
    }
    if not a.graph:
        return row | {"reason": "its record holds no graph: `opwright enable` records one"}
    try:
        now = capture(a.source.removeprefix("transformers:"))
    except OpwrightError as error:
        return row | {"state": FAILED, "reason": error.message}
    found = differences(a.graph, now)
    return row | {"state": CHANGED if found else SAME, "differences": found}


@command("requalify", example=["opwright requalify", "opwright requalify llama --json"])
@click.argument("architectures", nargs=-1, metavar="[ARCHITECTURE]...")
@seed_option
@json_option
def requalify(architectures: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Capture every recorded model again, and print what became of its graph.

    For after an upgrade of torch or transformers.  An unchanged graph keeps its record.  Exit code 1: a graph is
    another one, or can no longer be captured.
    """
    bench = Workbench.here()
    found = records.load_all(bench.config.support_dirs)
    unknown = sorted(set(architectures) - found.keys())
    if unknown:
        raise records.RecordError(f"there are no records of {', '.join(unknown)}")
    table = aten_rows(bench.registry.all())
    rows = []
    with (
        console.progress("requalifying", quiet=as_json) as progress,
        tempfile.TemporaryDirectory(prefix="opwright-requalify-") as scratch,
    ):

        def capture(target: str) -> Mapping[str, Any]:
            out = Path(scratch) / "capture"
            captured = run_worker(
                target, out, table=table, seed=seed or 0, records=0, sensitivity=False, further=True
            )
            return graph_of(captured.program)

        chosen = [
            a for name, attempts in found.items() if not architectures or name in architectures
            for a in newest(attempts)
        ]  # fmt: skip
        for k, a in enumerate(chosen):
            progress.step(a.architecture, k, len(chosen))
            rows.append(requalified(a, capture))
    if as_json:
        console.print_json({"architectures": rows})
    else:
        for r in rows:
            console.say(
                f"{r['architecture']} ({r['target']}, {r['dtype']}): {r['state']}  {r['reason']}".rstrip()
            )
            for line in r["differences"]:
                console.say(f"  {line}")
    return EXIT_FAILED if any(r["state"] in (CHANGED, FAILED) for r in rows) else EXIT_OK
