"""`opwright bench`: an op against PyTorch, interleaved, with a control, and no number where there is no verdict.

JUDGE.md, "Measuring speed": blocks A,B,B,A; the median of per-pair ratios with p10 and p90; an A/A control, and "no
verdict" where its spread is wider than the claimed gain; pinned threads; fresh inputs; every output checked.

The measuring happens in `bench_child.py`, where torch is imported; this module asks and prints.
May import: bridge, workbench, validators.cases.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from .. import toolchain
from ..errors import EXIT_OK, OpwrightError
from ..files import write_text
from ..generator.errors import JudgedError, MachineError
from ..generator.spec import OpSpec
from ..generator.types import DType
from ..validators.traced import read_calls, with_calls
from . import console
from .command import command, file_option, json_option, seed_option
from .workbench import Workbench, folder_name

__all__ = ["bench", "measure", "run_file", "verdict", "workload_cases"]

#: A workload's inputs are cut (its first extents halved) until they fit in this much, unless `--full` is given.
CUT_BYTES = 64 << 20
#: A gain above this is more often a mistake than a gain.
REVIEW = 10.0


class BenchError(JudgedError):
    """A measurement that cannot be made: no workload, an answer that is wrong."""


class WorkloadError(OpwrightError):
    """A workload that the op does not take."""


@dataclass(frozen=True)
class Workload:
    """A case to measure: extents and attributes, one dtype, and whether it was cut."""

    given: Mapping[str, Any]
    dtype: str
    cut: bool = False

    def show(self) -> str:
        parts = [f"{k}={v}" for k, v in self.given.items() if k not in ("from", "types")]
        return f"{self.dtype} {', '.join(parts)}" + (" (cut)" if self.cut else "")


def workloads(spec: OpSpec, listed: Sequence[Mapping[str, Any]], dtypes: Sequence[str]) -> list[Workload]:
    """The spec's workloads, one dtype each; the plainest where it has none."""
    rows = list(listed) or [dict(c) for c in spec.test.cases[:1]]
    out = []
    for row in rows:
        named = [str(t) for t in row.get("types", ["f32"])]
        for dtype in [d for d in named if not dtypes or d in dtypes] or (list(dtypes) if dtypes else []):
            out.append(Workload({k: v for k, v in row.items() if k not in ("types", "from")}, dtype))
    return out


def workload_cases(spec: OpSpec, w: Workload, seed: int, *, full: bool) -> tuple[Workload, Any]:
    """The workload as a case of the judge's (arrays and attributes), cut to fit unless `full`."""
    from ..validators.case_model import CaseRefused
    from ..validators.cases import build_case

    while True:
        as_case = replace(
            spec, test=replace(spec.test, cases=({k: v for k, v in w.given.items() if k != "types"},))
        )
        if full or _bytes(w) <= CUT_BYTES or not (smaller := _halved(w)):
            try:
                return w, build_case(as_case, f"case0/{_types(spec, w.dtype)}/normal/contiguous/-/all", seed)
            except CaseRefused as error:
                raise WorkloadError(
                    f"{spec.op}: the workload {w.show()} is refused: {error.message}", place=spec.place
                ) from error
        w = smaller


def _types(spec: OpSpec, dtype: str) -> str:
    """A dtype for each type that the op chooses: this one where it may be."""
    from ..validators.case_calls import type_choices

    chosen = []
    for _, allowed in type_choices(spec):
        wanted = DType(dtype)
        chosen.append(wanted if wanted in allowed else DType.I64 if DType.I64 in allowed else allowed[-1])
    return "+".join(d.value for d in chosen) or "-"


def _bytes(w: Workload) -> int:
    """About the bytes of the largest tensor: all extents together, `a.B` and `b.B` being those of two."""
    shared = 1
    apart: dict[str, int] = {}
    for name, value in w.given.items():
        count = 1
        for n in value if isinstance(value, list | tuple) else [value]:
            if isinstance(n, int) and not isinstance(n, bool) and n > 1:
                count *= n
        if "." in name:
            tensor = name.partition(".")[0]
            apart[tensor] = apart.get(tensor, 1) * count
        else:
            shared *= count
    return shared * max(apart.values(), default=1) * DType(w.dtype).bytes


def _halved(w: Workload) -> Workload | None:
    """The largest extent of a batch (a list) halved; None where there is nothing to halve."""
    lists = [
        (k, v)
        for k, v in w.given.items()
        if isinstance(v, list | tuple) and any(isinstance(x, int) and x > 1 for x in v)
    ]
    if not lists:
        return None
    name, value = max(lists, key=lambda kv: max(x for x in kv[1] if isinstance(x, int)))
    top = max(x for x in value if isinstance(x, int))
    cut = list(value)
    cut[cut.index(top)] = max(top // 2, 1)
    given = {k: (cut if k == name or v == value else v) for k, v in w.given.items()}
    return Workload(given, w.dtype, True)


# ---- measuring -----------------------------------------------------------------------------------------------------


def verdict(pairs: Sequence[float], control: Sequence[float]) -> dict[str, Any]:
    """What ratios (torch's time over ours, per pair) say, given the control's (ours over ours).

    `faster` or `slower` only where p10…p90 lies beyond 1 by more than the control spreads.
    """
    low, middle, high = (quantile(pairs, q) for q in (0.1, 0.5, 0.9))
    spread = max(abs(quantile(control, 0.1) - 1), abs(quantile(control, 0.9) - 1))
    said = "no verdict"
    if low > 1 + spread:
        said = "faster"
    elif high < 1 - spread:
        said = "slower"
    elif high - low < 2 * spread and abs(middle - 1) <= spread:
        said = "the same"
    return {"verdict": said, "ratio": middle, "p10": low, "p90": high, "control": spread}


def quantile(values: Sequence[float], q: float) -> float:
    """By linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def measure(
    bench: Workbench,
    spec: OpSpec,
    work: Sequence[Workload],
    *,
    seed: int,
    seconds: float,
    full: bool,
    threads: int,
) -> list[dict[str, Any]]:
    """Measure the workloads in a child process; a row each."""
    from ..generator.program.folder import write_tensors

    if not spec.aten:
        raise WorkloadError(
            f"`{spec.op}` names no PyTorch overload to be measured against",
            place=spec.place,
            hint="its `aten:` says which it is",
        )
    rows = []
    for w in work:
        used, case = workload_cases(spec, w, seed, full=full)
        request, arrays = calls(spec, used, case)
        request |= {"seconds": seconds, "threads": threads, "seed": seed, "start": str(bench.config.root)}
        with tempfile.TemporaryDirectory(prefix="opwright-bench-") as folder:
            write_tensors(Path(folder) / "arrays.safetensors", arrays)
            (Path(folder) / "request.json").write_text(json.dumps(request), encoding="utf-8")
            rows.append(
                {
                    "op": spec.op,
                    "workload": used.show(),
                    "overload": request["overload"],
                    **_child(Path(folder)),
                }
            )
    return rows


def calls(spec: OpSpec, w: Workload, case: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our call of a case and PyTorch's, as `bench_child.py` reads them, and the arrays that they name."""
    import numpy as np

    from ..validators.meaning import aten_arguments
    from ..validators.trial import Trial

    trial = Trial.of_case(case)
    asked = next(((e, a) for e in spec.aten if (a := aten_arguments(spec, e, trial)) is not None), None)
    if asked is None:
        raise WorkloadError(f"no overload of `{spec.op}` can be called as {w.show()}", place=spec.place)
    entry, (arguments, dtypes) = asked
    names: dict[str, Any] = {}

    def stored(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            for key, have in names.items():
                if have is x:
                    return {"tensor": key}
            names[f"a{len(names)}"] = x
            return {"tensor": f"a{len(names) - 1}"}
        return {"list": [stored(y) for y in x]} if isinstance(x, list | tuple) else {"value": x}

    request = {
        "op": spec.op,
        "overload": entry.overload,
        "torch": {k: stored(v) for k, v in arguments.items()},
        "dtypes": dtypes,
        "returns": list(entry.returns or ()),
        "inputs": {
            n: stored(_list(trial.arrays, n) if t.is_list else trial.arrays.get(n))
            for n, t in spec.inputs.items()
        },
        "attrs": {k: {"value": v} for k, v in case.attrs.items()},
    }
    return request, names


def _list(arrays: Mapping[str, Any], name: str) -> list[Any]:
    out: list[Any] = []
    while f"{name}.{len(out)}" in arrays:
        out.append(arrays[f"{name}.{len(out)}"])
    return out


def _child(folder: Path) -> dict[str, Any]:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    ran = subprocess.run(
        [sys.executable, "-m", f"{__package__}.bench_child", str(folder)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    answer = folder / "answer.json"
    if ran.returncode != 0 or not answer.exists():
        said = (ran.stderr.strip().splitlines() or ["no output"])[-1]
        raise (MachineError if "torch" in said and "No module" in said else BenchError)(
            f"the measurement failed: {said}"
        )
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["trouble"]:
        raise BenchError(
            f"the outputs disagree: {found['trouble']}", hint="`opwright validate OP` judges them"
        )
    return {**found, **verdict(found["pairs"], found["control_pairs"])}


# ---- the command ---------------------------------------------------------------------------------------------------


def _print(row: Mapping[str, Any]) -> None:
    counts = f"{row['rounds']} rounds, {row['threads']} threads, warm cache"
    times = f"ours {row['ours_s'] * 1e6:.1f} µs, torch {row['torch_s'] * 1e6:.1f} µs"
    spread = f"{row['p10']:.2f} … {row['p90']:.2f}"
    said = f"{row['verdict']}: × {row['ratio']:.2f} ({spread}), control {row['control']:.0%}"
    if row["verdict"] == "no verdict":
        said = f"no verdict: the control spreads {row['control']:.0%}, the ratio is {spread}"
    elif row["ratio"] > REVIEW:
        said += "; such a gain is to be reviewed by a person"
    console.say(f"{row['op']}  {row['workload']}\n  {said}\n  {times}; {counts}")


def _run(
    bench: Workbench,
    spec: OpSpec,
    work: Sequence[Workload],
    seed: int,
    seconds: float,
    full: bool,
    threads: int,
    as_json: bool,
) -> int:
    if not work:
        raise WorkloadError(
            f"`{spec.op}` has no workload of these dtypes", place=spec.place, hint="its `bench:` lists them"
        )
    rows = []
    with console.progress("measuring", quiet=as_json) as progress:
        for k, w in enumerate(work):
            progress.step(f"measuring {w.show()}", k, len(work))
            rows += measure(bench, spec, [w], seed=seed, seconds=seconds, full=full, threads=threads)
            if not as_json:
                _print(rows[-1])
    path = bench.config.measured / f"{folder_name(spec.op)}.json"
    write_text(path, json.dumps({"schema": 1, "machine": machine(), "rows": rows}, indent=1) + "\n")
    if as_json:
        console.print_json({"machine": machine(), "rows": rows})
    return EXIT_OK


def machine() -> dict[str, Any]:
    """What a measurement belongs to."""
    import platform

    return {
        "processor": platform.processor() or platform.machine(),
        "dialect": toolchain.native_dialect(),
        "cores": toolchain.available_cores(),
        "compiler": toolchain.find_compiler().version,
    }


def run_file(op: str, listed: Sequence[Mapping[str, Any]]) -> None:
    """What a generated benchmark file runs."""
    workbench = Workbench.here(Path(sys.argv[0]).resolve().parent)
    spec = workbench.one(op)
    work = workloads(spec, listed, ())
    try:
        sys.exit(_run(workbench, spec, work, 0, 2.0, False, toolchain.available_cores(), False))
    except OpwrightError as error:
        console.note(error.render())
        sys.exit(error.exit_code)


@command(
    "bench",
    example=[
        "opwright bench softmax",
        "opwright bench add --dtype f32 --seconds 5 --threads 1",
        "opwright bench softmax --calls calls.jsonl",
        "opwright bench softmax --json",
    ],
)
@click.argument("op")
@click.option("--vs", type=click.Choice(["torch"]), default="torch", show_default=True, help="The baseline.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Only workloads of this dtype.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=2.0,
    show_default=True,
    help="Time for each workload.",
)
@click.option("--threads", type=click.IntRange(1, 1024), default=None, metavar="N", help="Threads for both.")
@file_option(
    "calls", "Measure at the shapes of calls that `ow.trace` recorded, in place of the spec's workloads."
)
@click.option("--full", is_flag=True, help="Do not cut workloads that are larger than 64 MiB.")
@seed_option
@json_option
def bench(
    op: str,
    vs: str,
    dtypes: tuple[str, ...],
    seconds: float,
    threads: int | None,
    calls: Path | None,
    full: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """Measure an op against PyTorch, interleaved, on the workloads of its spec.

    A ratio above 1 says that ours is faster.  Where the control (ours against ours) spreads wider than the gain, the
    verdict is "no verdict".  The op must have been accepted.
    """
    workbench = Workbench.here()
    spec = workbench.one(op)
    if calls is not None:
        spec = with_calls(spec, read_calls(calls), calls)
    work = workloads(spec, spec.bench if calls is None else spec.test.cases, dtypes)
    return _run(
        workbench, spec, work, seed or 0, seconds, full, threads or toolchain.available_cores(), as_json
    )
