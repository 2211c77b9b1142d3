"""`opwright sweep`: many model types in a row, to see what stops which; no attempt is recorded, no level is claimed.

    opwright sweep --until supplied          captures and inventories only: which fail, which operators are missing
    opwright sweep llama t5 swin             to parity

One line of JSON per target goes to `build/sweep/<until>.jsonl` as it ends; run again, it goes on with those that are
not there.  Each target runs in a child that starts from this process, where torch and transformers are imported once.
May import: enable, forked, console.  To tell more of a target: a field of `Row`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from . import console
from .command import command, jobs_option
from .enable import FURTHER, STAGES, Trial, enable_target
from .forked import Forked
from .workbench import Workbench

__all__ = ["Row", "causes", "run_all", "sweep", "table"]

LIMIT_S = 900.0


@dataclass(frozen=True)
class Row:
    """One target.

    reached   the last stage that it passed, empty when none
    failed    the stage that it ended in; empty when it came to the end that was asked for
    message   what that stage said;  missing: the overloads and operators that nothing supplies, each with why
    unproven  operators that served without evidence
    """

    target: str
    reached: str = ""
    failed: str = ""
    message: str = ""
    missing: Sequence[Mapping[str, str]] = ()
    unproven: str = ""
    calls: int = 0
    sensitivity: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    dynamic: str = ""

    @property
    def causes(self) -> tuple[str, ...]:
        """What stops it, in words that are the same for all that this stops."""
        if not self.failed:
            return ()
        if self.missing:
            return tuple(dict.fromkeys(f"{m['op']}: {_plain(m['why'])}" for m in self.missing))
        return (_plain(self.message),)


#: (what differs from target to target, what stands for it)
_NAMES = (
    (r"`[^`]*`", "`…`"),
    (r"(cannot capture|no tiny|capturing|process that captured) \S+", r"\1 …"),
    (r"\b[a-z_0-9]+_\d+ at \S+", "CALL at SITE"),
    (r"group:[0-9a-f]+", "group:…"),
    (r"0x[0-9a-f]+", "0x…"),
    (r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "N"),
    (r"\bu?s?N\b", "N"),
)


def _plain(text: str) -> str:
    for pattern, to in _NAMES:
        text = re.sub(pattern, to, text)
    return text[:200]


# ---- one target ----------------------------------------------------------------------------------------------------


def _preload() -> None:
    """What every child would import."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ..generator.program import capture_worker, models

    models.model_types()
    assert callable(capture_worker.work)
    import transformers

    assert transformers.LlamaForCausalLM
    from transformers.models.auto import modeling_auto

    assert modeling_auto


def _spawn(command: list[str], env: dict[str, str], errors: IO[bytes]) -> Forked:
    """The capturing child, from this process: `command` is a new interpreter's, `-m capture_worker …`."""
    from ..generator.program import capture_worker

    arguments = command[command.index("-m") + 2 :]
    return Forked(lambda: capture_worker.main(arguments), env, errors)


def _trial(bench: Workbench, target: str, until: str) -> Row:
    """One target, in this process."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="opwright-sweep-") as scratch:
        try:
            out = Path(scratch) / "program"
            trial = Trial(until, _spawn)
            r = enable_target(bench, target, console.Progress(), out=out, trial=trial)
        except OpwrightError as error:  # no such target, or the machine lacks something
            return Row(target, "", STAGES[0], error.message, seconds={"total": time.perf_counter() - begun})
    failed, _, message = r.failed.partition(": ")
    if not failed and r.reached != until:
        failed, message = STAGES[STAGES.index(r.reached) + 1 if r.reached else 0], str(r.cause)
    if not failed and until in FURTHER and not r.levels[FURTHER[until]]:
        failed, message = until, r.reasons.get(FURTHER[until], "")
    return Row(
        target,
        r.reached,
        failed,
        message,
        [{"op": m.op, "why": m.why, "site": m.site} for m in r.missing],
        r.reasons.get("L1", "") if not r.missing else "",
        r.calls,
        r.sensitivity,
        {
            **r.seconds,
            "total": time.perf_counter() - begun,
            **{f"captured.{k}": v for k, v in r.parts.items()},
        },
        r.dynamic,
    )


def _child(target: str, until: str, path: Path) -> int:
    bench = Workbench.here()
    row = _trial(bench, target, until)
    path.write_text(json.dumps(asdict(row)), encoding="utf-8")
    return 0


def _outcome(target: str, path: Path, child: Forked, late: bool) -> Row:
    if late:
        return Row(target, "", "captured", f"took longer than {LIMIT_S:g} s")
    try:
        return Row(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        tail = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return Row(target, "", "captured", f"status {child.returncode}: {tail[-1] if tail else ''}")


# ---- many ----------------------------------------------------------------------------------------------------------


def run_all(
    targets: Sequence[str], start: Callable[[str, Path], Forked], jobs: int, done: Callable[[Row], None]
) -> None:
    """Run each target in a child of `start(target, path of its row)`, `jobs` at a time; `done` hears each row."""
    waiting = list(targets)[::-1]
    running: dict[str, tuple[Forked, Path, float]] = {}
    with tempfile.TemporaryDirectory(prefix="opwright-sweep-rows-") as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    target = waiting.pop()
                    path = Path(scratch) / f"{len(waiting)}.json"
                    running[target] = (start(target, path), path, time.monotonic())
                for target, (child, path, begun) in list(running.items()):
                    late = time.monotonic() - begun > LIMIT_S
                    if child.poll() is None and not late:
                        continue
                    _end(child)
                    del running[target]
                    done(_outcome(target, path, child, late))
                time.sleep(0.05)
        finally:
            for child, _, _ in running.values():
                _end(child)


def _end(child: Forked) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()


def _start(until: str) -> Callable[[str, Path], Forked]:
    def start(target: str, path: Path) -> Forked:
        with open(path.with_suffix(".log"), "wb") as log:
            return Forked(lambda: _child(target, until, path), None, log)

    return start


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of a file by target, a later one instead of an earlier one."""
    rows: dict[str, Row] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = Row(**json.loads(line))
            except (ValueError, TypeError):
                continue  # cut off when the machine stopped
            rows[row.target] = row
    return rows


# ---- what it came to -----------------------------------------------------------------------------------------------


def causes(rows: Iterable[Row]) -> list[tuple[str, str, list[str]]]:
    """(stage, cause, targets that it stops), what stops most first."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for cause in row.causes:
            found.setdefault((row.failed, cause), []).append(row.target)
    order = sorted(found.items(), key=lambda kv: (-len(kv[1]), STAGES.index(kv[0][0]), kv[0][1]))
    return [(stage, cause, targets) for (stage, cause), targets in order]


def table(rows: Sequence[Row], until: str) -> str:
    """What people read: causes by how many they stop, then the count."""
    lines = []
    found = causes(rows)
    if found:
        lines.append(
            console.table_text(
                ("stops", "at", "cause", "such as"),
                [(len(t), stage, cause, " ".join(t[:6])) for stage, cause, t in found],
                right=(0,),
            )
        )
    good = [r for r in rows if not r.failed]
    unproven = sorted({op for r in good for op in r.unproven.partition(": ")[2].split(", ") if op})
    if unproven:
        lines.append(f"without evidence: {', '.join(unproven)}")
    seconds = sorted(r.seconds.get("total", 0.0) for r in good)
    median = f", median {seconds[len(seconds) // 2]:.1f} s" if seconds else ""
    lines.append(f"{len(good)} of {len(rows)} pass `{until}`{median}")
    return "\n".join(lines)


@command("sweep", example=["opwright sweep --until supplied -j 2", "opwright sweep llama t5 swin"])
@click.argument("targets", nargs=-1)
@click.option(
    "--until", type=click.Choice(STAGES), default="parity", show_default=True, help="The stage to end after."
)
@click.option("--again", is_flag=True, help="Run those again that are there already.")
@click.option("--failed", is_flag=True, help="Run those again that did not pass.")
@click.option(
    "--show", is_flag=True, help="Run nothing: print what the last sweep came to (of TARGETS, if named)."
)
@jobs_option
def sweep(targets: tuple[str, ...], until: str, again: bool, failed: bool, show: bool, jobs: int) -> int:
    """Take many model types as far as they go, and say what stops which.

    TARGETS are as for `enable` (default: every model type of transformers that has a model).  Nothing is recorded.
    """
    bench = Workbench.here()
    path = bench.config.root / "build" / "sweep" / f"{until}.jsonl"
    rows = read_rows(path)
    if not show:
        _preload()
        wanted = list(targets or _all_types())
        todo = [t for t in wanted if again or t not in rows or (failed and rows[t].failed)]
        _run_todo(todo, until, jobs or os.cpu_count() or 1, path, rows)
    shown = [rows[t] for t in targets or rows if t in rows]
    console.say(table(shown, until))
    return EXIT_FAILED if any(r.failed for r in shown) else EXIT_OK


def _run_todo(todo: Sequence[str], until: str, jobs: int, path: Path, rows: dict[str, Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    count = 0
    with open(path, "a", encoding="utf-8") as out:

        def done(row: Row) -> None:
            nonlocal count
            count += 1
            rows[row.target] = row
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
            left = (time.monotonic() - begun) / count * (len(todo) - count)
            state = f"{row.failed}: {row.message[:140]}" if row.failed else "passes"
            console.note(
                f"{count}/{len(todo)}  {left / 60:.0f} min left  {row.target}  "
                f"{row.seconds.get('total', 0.0):.1f} s  {state}"
            )

        run_all(todo, _start(until), jobs, done)


def _all_types() -> list[str]:
    from ..generator.program import models

    return [t for t in models.model_types() if models.model_classes(t)]


if __name__ == "__main__":
    sys.exit(sweep.main(standalone_mode=False))
