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
from ..generator.program.inventory import Inventory
from ..generator.program.models import TargetError, target_kind
from . import console
from .bridge import Bridge, aten_rows
from .command import command, json_option, seed_option
from .enable import architecture_of, missing_of
from .workbench import Workbench

__all__ = ["inventory"]


def take(
    bench: Workbench, target: str, seed: int, progress: console.Progress, trust: bool = False
) -> dict[str, Any]:
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
            trust=trust,
            report=progress.step,
        )
        progress.step("asking")
        bridge = Bridge(bench)
        missing = missing_of(bench, bridge, captured.program)
        lacking = {m.op: m.why for m in missing}
        rows = []
        shapes = _shapes(captured.inventory)
        for r in captured.inventory.rows():
            op = r.op.removeprefix("missing:")
            proven = op in bench.registry and bench.is_proven(bench.registry.get(op))
            state = "missing" if op in lacking else "accepted" if proven else "not accepted"
            rows.append(
                {
                    "op": op,
                    "overload": r.overload,
                    "dtypes": list(r.dtypes),
                    "shapes": shapes[r.op, r.overload, r.dtypes],
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
            "scale": captured.facts["meta"].get("scale"),
            "parameters": captured.facts["meta"].get("parameters"),
        }


def _shapes(found: Inventory) -> dict[tuple[str, str, tuple[str, ...]], list[list[str]]]:
    """The shapes of inputs that an operator is called with, by row of the inventory, each once: `2x16x64`."""

    def one(x: Any) -> str:
        if isinstance(x, list):
            return ", ".join(one(y) for y in x)
        return "-" if x is None else "x".join(x["shape"]) if "shape" in x else str(x.get("value"))

    out: dict[tuple[str, str, tuple[str, ...]], list[list[str]]] = {}
    for i in found.items:
        mine = out.setdefault((i.op, i.overload, i.dtypes), [])
        shape = [one(x) for x in i.inputs]
        if shape not in mine:
            mine.append(shape)
    return out


@command(
    "inventory",
    example=[
        "opwright inventory llama",
        "opwright inventory model.py:make_model --json",
        "opwright inventory model.onnx",
        "opwright inventory --config config.json",
    ],
)
@click.argument("target", required=False)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="FILE",
    help="Instead of TARGET: the config.json of a full-size model; no weights are read or made.",
)
@click.option(
    "--trust-remote-code",
    "trust",
    is_flag=True,
    help="Code that lies in the checkpoint folder may run, in a process without a network.",
)
@seed_option
@json_option
def inventory(target: str | None, config: str | None, trust: bool, seed: int | None, as_json: bool) -> int:
    """List the operators that a model needs, and those that are missing.

    TARGET is as for `enable`.  Exit code 1: something is missing.
    """
    if (target is None) == (config is None):
        raise click.UsageError("give a TARGET or --config FILE")
    if config is not None and target_kind(config) != "config":
        raise TargetError(f"{config} is no config.json", hint="TARGET is given without --config")
    target = target if target is not None else config
    assert target is not None
    bench = Workbench.here()
    with console.progress(f"capturing {target}", quiet=as_json) as progress:
        found = take(bench, target, seed or 0, progress, trust)
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
