"""`opwright bench`: operators, a suite, whole models against other frameworks; no number where there is no verdict.

JUDGE.md, "Measuring speed": one pinned process for each framework, blocks by turns, the median of per-pair ratios with
p10 and p90; a control in a process of its own, and "no verdict" where its spread is wider than the claimed gain; fresh
inputs; every answer compared.

What measures is in measuring/; this module asks and prints.  May import: measuring, bridge, workbench.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from .. import toolchain
from ..errors import EXIT_OK, OpwrightError
from ..files import write_text
from ..generator.errors import did_you_mean
from ..generator.spec import OpSpec
from ..validators.traced import read_calls, with_calls
from . import console
from .command import command, file_option, json_option, seed_option
from .measuring import suite as suites
from .measuring.limits import memory_limits
from .measuring.rows import BenchError, Plan, measure_op
from .measuring.sides import DEFAULT, RIVALS, Sides, cpus
from .measuring.table import markdown, print_rows, row_text
from .measuring.workload import Workload, WorkloadError, workloads
from .workbench import Workbench, folder_name

__all__ = ["BenchError", "WorkloadError", "bench", "run_file"]


@dataclass(frozen=True)
class Job:
    """A row to come: its name for people, and what measures it."""

    name: str
    measure: Callable[[Sides, Plan], dict[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)


def rivals_of(text: str) -> tuple[str, ...]:
    """`torch,inductor` as names.  Raises WorkloadError."""
    names = [n.strip() for n in text.split(",") if n.strip()]
    for n in names:
        if n not in RIVALS:
            raise WorkloadError(
                f"`{n}` is no rival",
                hint=did_you_mean(n, list(RIVALS), what="rivals") or f"one of {', '.join(RIVALS)}",
            )
    if not names:
        raise WorkloadError("--vs names nobody", hint=f"one of {', '.join(RIVALS)}")
    return tuple(dict.fromkeys(names))


def jobs_of_ops(specs: Sequence[tuple[OpSpec, Sequence[Workload]]]) -> Iterator[Job]:
    for spec, work in specs:
        for w in work:
            yield Job(f"{spec.op} {w.show()}", partial(_measured, spec, w))


def _measured(spec: OpSpec, w: Workload, sides: Sides, plan: Plan) -> dict[str, Any]:
    return measure_op(sides, spec, w, plan)


def run(
    bench: Workbench, jobs: Sequence[Job], plan: Plan, start: Mapping[str, Any], name: str, quiet: bool
) -> tuple[list[dict[str, Any]], bool]:
    """All rows, and whether Ctrl-C ended them early.  What is done is kept in `runtime/measured/`.

    Raises OpwrightError for a row that cannot be measured at all, unless there are others.
    """
    rows: list[dict[str, Any]] = []
    stopped = False
    troubles: list[OpwrightError] = []
    path = bench.config.measured / f"{folder_name(name)}.json"

    def keep() -> None:
        text = json.dumps({"schema": 1, "machine": machine(), "rows": rows}, indent=1, allow_nan=False)
        write_text(path, text + "\n")

    with console.progress("measuring", quiet=quiet) as progress, Sides(plan.vs, start) as sides:
        try:
            for k, job in enumerate(jobs):

                def report(what: str, k: int = k, job: Job = job) -> None:
                    progress.step(f"{job.name}: {what}", k, len(jobs))

                try:
                    row = job.measure(sides, replace(plan, report=report))
                except OpwrightError as error:
                    if len(jobs) == 1:
                        raise
                    troubles.append(error)
                    rows.append({"name": job.name, **job.facts, "failed": error.message})
                    progress.done(f"{job.name}: {error.message}")
                    continue
                rows.append({"name": job.name, **job.facts, **row})
                keep()
                if not quiet:
                    progress.done(row_text(rows[-1]))
        except KeyboardInterrupt:
            stopped = True
    if troubles and len(troubles) == len(jobs):
        raise troubles[0]
    return rows, stopped


def machine() -> dict[str, Any]:
    """What a measurement belongs to."""
    import platform

    return {
        "processor": _processor() or platform.processor() or platform.machine(),
        "dialect": toolchain.native_dialect(),
        "cores": toolchain.available_cores(),
        "compiler": toolchain.find_compiler().version,
    }


def _processor() -> str:
    """The model's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def starting(bench: Workbench, plan: Plan, specs: Sequence[OpSpec]) -> dict[str, Any]:
    """What every process is told first."""
    own = [s.op for s in specs if s.op in bench.registry]
    return {
        "threads": plan.threads,
        "cpus": cpus(plan.threads),
        "root": str(bench.config.root),
        "ops": own,
    }


def run_file(op: str, listed: Sequence[Mapping[str, Any]]) -> None:
    """What a generated benchmark file runs."""
    workbench = Workbench.here(Path(sys.argv[0]).resolve().parent)
    plan = Plan(DEFAULT)
    try:
        spec = workbench.one(op)
        jobs = list(jobs_of_ops([(spec, required(spec, workloads(spec, listed, ())))]))
        rows, stopped = run(workbench, jobs, plan, starting(workbench, plan, [spec]), op, False)
        print_rows(rows, plan.vs)
        sys.exit(130 if stopped else EXIT_OK)
    except OpwrightError as error:
        console.note(error.render())
        sys.exit(error.exit_code)


def required(spec: OpSpec, work: list[Workload]) -> list[Workload]:
    """The workloads, if there are any.  Raises WorkloadError."""
    if not work:
        raise WorkloadError(
            f"`{spec.op}` has no workload of these dtypes", place=spec.place, hint="its `bench:` lists them"
        )
    return work


@command(
    "bench",
    example=[
        "opwright bench softmax",
        "opwright bench add gelu --vs torch,torch-out,inductor,onnxruntime,jax",
        "opwright bench --suite speed --only sum --out speed.html",
        "opwright bench --model llama --vs torch,inductor",
        "opwright bench softmax --calls calls.jsonl",
        "opwright bench softmax --json",
    ],
)
@click.argument("ops", nargs=-1)
@click.option(
    "--suite", type=click.Choice(["speed"]), default=None, help="The rows that docs/speed.md lists."
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="A whole model: llama, bert, vit, resnet (or a row, as llama-decode-bf16), what `enable` takes, "
    "a program folder.",
)
@click.option(
    "--vs",
    default=",".join(DEFAULT),
    show_default=True,
    metavar="LIST",
    help=f"The rivals, with commas: {', '.join(RIVALS)}.",
)
@click.option("--only", default="", metavar="TEXT", help="Of a suite, only rows whose name contains it.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Only workloads of this dtype.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=2.0,
    show_default=True,
    help="Time for each row (a round of every side is made at least four times).",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads for all; more than one are measured in wall time.",
)
@file_option(
    "calls", "Measure at the shapes of calls that `ow.trace` recorded, in place of the spec's workloads."
)
@file_option("out", "Write a picture too: FILE.html, FILE.svg; or the table as FILE.md.")
@click.option("--full", is_flag=True, help="Do not cut workloads that are larger than 64 MiB.")
@seed_option
@json_option
def bench(
    ops: tuple[str, ...],
    suite: str | None,
    models: tuple[str, ...],
    vs: str,
    only: str,
    dtypes: tuple[str, ...],
    seconds: float,
    threads: int,
    calls: Path | None,
    out: Path | None,
    full: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """Measure operators, a suite, or whole models against other frameworks, interleaved.

    A ratio above 1 says that ours is faster.  Where the control (ours against ours) spreads wider than the gain, the
    verdict is "no verdict".  A rival that is not installed, or that cannot express a row, is named with the reason.
    Ctrl-C keeps the rows that are done.
    """
    if sum(map(bool, (ops, suite, models))) != 1:
        raise WorkloadError(
            "name operators, or a suite, or models", hint="opwright bench add · --suite speed · --model llama"
        )
    if calls is not None and len(ops) != 1:
        raise WorkloadError("--calls is for one operator", hint="opwright bench softmax --calls calls.jsonl")
    if out is not None and out.suffix not in (".html", ".svg", ".md"):
        raise WorkloadError(f"{out} is of no kind that is written", hint="FILE.html, FILE.svg or FILE.md")
    workbench = Workbench.here()
    plan = Plan(rivals_of(vs), seconds, threads, seed or 0, full)
    with console.progress("preparing", quiet=as_json) as progress:
        if suite:
            rows_of = [r for r in suites.read(suite) if suites.chosen(r, only, dtypes)]
            if not rows_of:
                raise WorkloadError(
                    f"no row of the suite contains `{only}`", hint="`opwright bench --suite speed`"
                )
            jobs = [Job(r.name, r.measurer(workbench, progress), r.facts()) for r in rows_of]
            specs = [workbench.registry.get(r.op) for r in rows_of if r.op]
            if any(r.limited for r in rows_of):
                plan = replace(plan, limits=memory_limits(cpus(1)))
            name = f"suite-{suite}"
        elif models:
            from .measuring import models as whole

            rows_of_models = [r for m in models for r in whole.rows_of(m, workbench, dtypes)]
            jobs = [Job(r.name, r.measurer(workbench, progress), r.facts()) for r in rows_of_models]
            specs, name = [], "model-" + "-".join(r.short for r in rows_of_models)[:80]
        else:
            chosen = []
            for op in ops:
                spec = workbench.one(op)
                if calls is not None:
                    spec = with_calls(spec, read_calls(calls), calls)
                listed = spec.bench if calls is None else spec.test.cases
                chosen.append((spec, required(spec, workloads(spec, listed, dtypes))))
            jobs, specs = list(jobs_of_ops(chosen)), [s for s, _ in chosen]
            name = "-".join(ops)[:80].replace("/", ".")
    rows, stopped = run(workbench, jobs, plan, starting(workbench, plan, specs), name, as_json)
    if as_json:
        console.print_json({"machine": machine(), "rows": rows, "vs": list(plan.vs), "interrupted": stopped})
    else:
        print_rows(rows, plan.vs)
    if out is not None and rows:
        _write(out, rows, plan.vs)
        console.note(f"wrote {console.short(out)}")
    if stopped:
        console.note(f"{len(rows)} of {len(jobs)} rows were done")
        raise KeyboardInterrupt
    return EXIT_OK


def _write(out: Path, rows: Sequence[Mapping[str, Any]], vs: Sequence[str]) -> None:
    from .measuring.picture import html, svg

    write = {".md": markdown, ".html": html, ".svg": svg}[out.suffix]
    write_text(out, write(rows, vs, machine()))
