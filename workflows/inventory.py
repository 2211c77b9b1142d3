"""`opwright inventory`: the operators that a model needs, where it needs them, and those that are missing.

May import: enable (what a call asks for), generator.program.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILED, EXIT_OK
from ..generator.program.capture_run import run_worker
from . import console
from .bridge import Bridge, aten_rows
from .command import command, json_option, seed_option
from .enable import architecture_of, missing_of
from .workbench import Workbench

__all__ = ["inventory"]


def take(bench: Workbench, target: str, seed: int, progress: console.Progress) -> dict[str, Any]:
    """Capture the target and ask of every call whether something supplies it."""
    name = architecture_of(target)
    with tempfile.TemporaryDirectory(prefix="opwright-inventory-") as scratch:
        captured = run_worker(
            target,
            Path(scratch) / "capture",
            table=aten_rows(bench.registry.all()),
            seed=seed,
            records=0,
            sensitivity=False,
            further=True,
            report=lambda stage, s: progress.step(f"{stage} {s:.1f} s"),
        )
        progress.step("asking")
        bridge = Bridge(bench)
        missing = missing_of(bench, bridge, captured.program)
        lacking = {m.op: m.why for m in missing}
        rows = []
        for r in captured.inventory.rows():
            op = r.op.removeprefix("missing:")
            proven = op in bench.registry and bench.is_proven(bench.registry.get(op))
            state = "missing" if op in lacking else "accepted" if proven else "not accepted"
            rows.append(
                {
                    "op": op,
                    "overload": r.overload,
                    "dtypes": list(r.dtypes),
                    "calls": r.count,
                    "state": state,
                    "why": lacking.get(op, ""),
                    "sites": list(r.sites),
                }
            )
        return {
            "architecture": name,
            "source": captured.facts["source"],
            "calls": len(captured.program.calls),
            "operators": rows,
            "missing": [m.to_json() for m in missing],
            "notes": list(captured.facts["notes"]),
            "dynamic": captured.facts["dynamic"],
        }


@command(
    "inventory",
    example=[
        "opwright inventory llama",
        "opwright inventory model.py:make_model --json",
        "opwright inventory model.onnx",
    ],
)
@click.argument("target")
@seed_option
@json_option
def inventory(target: str, seed: int | None, as_json: bool) -> int:
    """List the operators that a model needs, and those that are missing.

    TARGET is as for `enable`.  Exit code 1: something is missing.
    """
    bench = Workbench.here()
    with console.progress(f"capturing {target}", quiet=as_json) as progress:
        found = take(bench, target, seed or 0, progress)
    if as_json:
        console.print_json(found)
    else:
        console.print_table(
            ("op", "calls", "dtypes", "state", "sites"),
            [
                (
                    r["op"],
                    r["calls"],
                    " ".join(r["dtypes"]),
                    r["state"] + (f": {r['why']}" if r["why"] else ""),
                    ", ".join(r["sites"][:3]) + (", …" if len(r["sites"]) > 3 else ""),
                )
                for r in found["operators"]
            ],
            right=(1,),
        )
        names = {r["op"] for r in found["operators"]}
        console.note(
            f"{found['architecture']}: {console.counted(found['calls'], 'call')} of "
            f"{console.counted(len(names), 'operator')}, "
            f"{len(found['missing'])} missing"
        )
    return EXIT_FAILED if found["missing"] else EXIT_OK
