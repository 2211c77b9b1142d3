"""`opwright validate` and `opwright accept`: the judge on our own kernels; accept writes the evidence of what passed.

Several operators are judged in processes of their own, for the judge computes; each verdict comes back as data.
May import: bridge, workbench, validators.  To add a fact to the evidence: validators/evidence.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import click

from .. import generator, resources, toolchain, validators
from ..errors import EXIT_FAILED, EXIT_OK, ErrorGroup, OpwrightError
from ..files import write_text
from ..generator.bound import KernelText
from ..generator.errors import MachineError
from ..generator.spec import OpSpec
from ..validators import evidence
from ..validators.traced import read_calls, with_calls
from ..validators.verdict import AUTHOR_ONLY, Verdict
from . import console
from .bridge import Bridge, Emitted
from .command import command, file_option, jobs_option, json_option, seed_option
from .console import Progress
from .workbench import Workbench, with_body

__all__ = ["Job", "Judged", "accept", "judge_all", "judge_spec", "validate"]


class AcceptError(OpwrightError):
    """A judgement is asked for in a way that does not fit together."""


@dataclass(frozen=True)
class Job:
    """One judgement, as data: the operator (as it was named), and how it is judged."""

    op: str
    tier: str = "full"
    seed: int = 0
    gates: tuple[str, ...] | None = None
    case: str | None = None
    dialect: str | None = None
    calls: str | None = None  # a file of recorded calls, whose shapes are the declared cases
    all_types: bool = False  # some cases of every type that the operator takes
    body: str | None = None  # a file that fills the kernels in place of what the spec names


@dataclass(frozen=True)
class Judged:
    """What came of a job: a verdict with the texts that it is about, or an error that kept it from being judged."""

    job: Job
    verdict: Verdict | None = None
    texts: tuple[KernelText, ...] = ()
    error: OpwrightError | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


def judge_spec(bench: Workbench, spec: OpSpec, job: Job, progress: Progress | None = None) -> Judged:
    """Judge one operator's own kernels in this process."""
    from ..validators.case_model import CaseRefused
    from ..validators.judge import judge

    if job.body is not None:
        spec = with_body(spec, Path(job.body))
    if job.calls is not None:
        spec = with_calls(spec, read_calls(Path(job.calls)), Path(job.calls))
    source = Emitted(Bridge(bench, job.dialect), spec)

    def tell(gate: str, done: int, total: int) -> None:
        if progress is not None:
            progress.step(f"{spec.op}: {gate}", *((done, total) if total else (None, None)))

    try:
        verdict = judge(
            spec,
            source,
            tier=job.tier,
            seed=job.seed,
            gates=job.gates,
            case=job.case,
            progress=tell,
            all_types=job.all_types,
        )
    except CaseRefused as error:
        if job.case is None:
            raise
        raise AcceptError(error.message, hint="a failure prints the name of its case") from error
    return Judged(job, verdict, tuple(source.texts))


def _judge_here(start: str, job: Job) -> Judged:
    """A job in a process of its own; errors come back as data."""
    try:
        bench = Workbench.here(Path(start))
        return judge_spec(bench, bench.one(job.op), job)
    except OpwrightError as error:
        return Judged(job, error=error)
    except (
        SystemExit
    ):  # stopped: everything above has cleaned up, and the pool would only hand out the next job
        os._exit(EXIT_FAILED)


def judge_all(bench: Workbench, jobs: Sequence[Job], workers: int, progress: Progress) -> Iterator[Judged]:
    """Judge many; each as it ends.  A machine's fault ends the rest."""
    if len(jobs) <= 1 or workers == 1:
        for job in jobs:
            own = Workbench(bench.config)  # a file that is named overlays its operators: not for who asked
            try:
                found = judge_spec(own, own.one(job.op), job, progress)
            except OpwrightError as error:
                found = Judged(job, error=error)
            _stop_at_machine(found)
            yield found
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"), _quiet)
    done = False
    try:
        with _born_deaf():
            todo: set[Future[Judged]] = {pool.submit(_judge_here, os.getcwd(), job) for job in jobs}
        total = len(todo)
        while todo:
            progress.step("judging", total - len(todo), total)
            ready, todo = wait(todo, return_when=FIRST_COMPLETED)
            for future in ready:
                try:
                    found = future.result()
                except BrokenProcessPool as error:
                    raise MachineError(
                        "a process that judged was ended from outside",
                        hint="SIGKILL mostly means that the machine ran out of memory: try -j 1",
                    ) from error
                _stop_at_machine(found)
                yield found
        done = True
    finally:
        if done:
            pool.shutdown()
        else:
            _end(pool)


@contextlib.contextmanager
def _born_deaf() -> Iterator[None]:
    """Processes that start meanwhile ignore Ctrl-C from their first moment."""
    import signal

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _quiet() -> None:
    """Ctrl-C is the parent's to answer: it ends the pool, whose workers then clean up behind themselves.  What they
    print meanwhile is for nobody."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _leave(_number: int, _frame: Any) -> NoReturn:
    raise SystemExit(EXIT_FAILED)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the workers at once: what they build goes to temporary names."""
    children = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)  # forgotten by what follows
    pool.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.terminate()
    for child in children:
        child.join(10)
        if child.is_alive():
            child.kill()
    # It unlinks the pool's semaphores; ended in the midst of that, Python warns of a leak.
    if manager is not None:
        manager.join(10)


def _stop_at_machine(found: Judged) -> None:
    if isinstance(found.error, OpwrightError) and found.error.exit_code == MachineError.exit_code:
        raise found.error


# ---- what is stale -----------------------------------------------------------------------------------------------


def text_now(
    bench: Workbench, spec: OpSpec, dialect: str, tier: str = "full", only: Collection[str] = ()
) -> str | None:
    """The hash of the text that the judge would be given today; None where nothing can be printed here.

    only: of these keys alone (as `BindKey.show` has them), where there are some: a judge that has come to look at more
    keys leaves what it said of others as it was.

    Kept in the cache under the hash of all that it is made from: printing every kernel takes a minute."""
    body = bench.body_of(spec)
    facts = (
        spec.meaning_text(),
        repr(spec.lower),
        body.text if body else "",
        repr(spec.test),
        repr(spec.inplace),
    )
    name = hashlib.sha256("\0".join((_sources(), *facts, dialect, tier, *sorted(only))).encode()).hexdigest()
    try:
        path = toolchain.open_cache() / "texts" / name[:2] / name
    except OpwrightError:  # a machine without a cache prints again
        return _text_now(bench, spec, dialect, tier, only)
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8") or None
    found = _text_now(bench, spec, dialect, tier, only)
    with contextlib.suppress(OSError):  # a full disk costs time, not the answer
        write_text(path, found or "", durable=False)
    return found


@functools.cache
def _sources() -> str:
    """A hash of what turns a spec into text, and of what chooses the keys that are judged: the two rooms, what they
    import of the runtime's Python, and the headers."""
    digest = hashlib.sha256()
    rooms = [Path(str(room.__file__)).parent for room in (generator, validators)]
    files = [p for f in (*rooms, resources.include_dir()) for p in f.rglob("*") if p.suffix in (".py", ".h")]
    for path in sorted([*files, *Path(resources.__file__).parent.glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _text_now(bench: Workbench, spec: OpSpec, dialect: str, tier: str, only: Collection[str]) -> str | None:
    from ..generator.errors import SpecError
    from ..validators.judge import judged_keys

    source = Emitted(Bridge(bench, dialect), spec)
    try:
        keys = [k for k in judged_keys(spec, tier, all_types=bool(only)) if not only or k.show() in only]
        texts = [*source.forward(keys), *source.gradient(keys)]
    except SpecError:
        return None
    return evidence.text_hash(texts)


def text_of_proof(bench: Workbench, spec: OpSpec, dialect: str) -> str | None:
    """The hash of today's text of what the evidence for the dialect was given; None where there is no such evidence."""
    proof = bench.proof(spec.op, spec.meaning_hash(), dialect)
    return None if proof is None else text_now(bench, spec, dialect, proof.tier, proof.keys)


def texts_of_proofs(
    bench: Workbench, wanted: Sequence[tuple[OpSpec, str]], progress: Progress | None = None
) -> list[str | None]:
    """`text_of_proof` of many (operator, dialect), by as many processes as there are cores: printing all takes a
    minute of one."""
    cores = toolchain.available_cores()
    if cores < 2 or len(wanted) < 8:
        found = (text_of_proof(bench, *w) for w in wanted)
        return _counted(found, len(wanted), progress)
    # A child that is forked finds it here; nothing is pickled but the answers.
    _PRINTING[:] = [(bench, wanted)]
    pool = ProcessPoolExecutor(min(cores, len(wanted)), get_context("fork"), _quiet)
    try:
        return _counted(pool.map(_printed, range(len(wanted)), chunksize=4), len(wanted), progress)
    except BrokenProcessPool as error:
        raise MachineError(
            "a process that printed kernels was ended from outside",
            hint="SIGKILL mostly means that the machine ran out of memory",
        ) from error
    finally:
        _end(pool)
        _PRINTING.clear()


_PRINTING: list[tuple[Workbench, Sequence[tuple[OpSpec, str]]]] = []


def _printed(k: int) -> str | None:
    ((bench, wanted),) = _PRINTING
    return text_of_proof(bench, *wanted[k])


def _counted(found: Iterable[str | None], total: int, progress: Progress | None) -> list[str | None]:
    out = []
    for k, text in enumerate(found):
        if progress is not None:
            progress.step("printing kernels", k, total)
        out.append(text)
    return out


def stale(
    bench: Workbench, specs: Iterable[OpSpec], dialect: str, progress: Progress | None = None
) -> list[tuple[OpSpec, str]]:
    """The operators whose evidence does not hold for today's meaning and text, and why."""
    out = []
    asked = [(s, bench.standing(s)) for s in specs]
    fresh = [(s, dialect) for s, state in asked if state.state == evidence.FRESH]
    texts = dict(zip((s.op for s, _ in fresh), texts_of_proofs(bench, fresh, progress), strict=True))
    for spec, state in asked:
        if state.state == evidence.FRESH:
            state = bench.standing(spec, dialect, texts[spec.op])
        if state.state != evidence.FRESH:
            out.append((spec, state.reason))
    return out


# ---- the commands ------------------------------------------------------------------------------------------------


def _jobs(
    bench: Workbench,
    ops: tuple[str, ...],
    every: bool,
    only_stale: bool,
    dialect: str,
    make: Callable[[str], Job],
    progress: Progress | None = None,
) -> list[Job]:
    if every == bool(ops):
        raise AcceptError(
            "nothing to judge" if not ops else "--all and names are two answers to one question",
            hint="name operators, or say --all",
        )
    specs = bench.own() if every else bench.select(ops)
    if only_stale:
        specs = [s for s, _ in stale(bench, specs, dialect, progress)]
    names = {s.op: s for s in specs}
    return [make(_address(ops, name, spec)) for name, spec in names.items()]


def _address(ops: tuple[str, ...], name: str, spec: OpSpec) -> str:
    """How another process finds the spec: by its file where a file was named, else by its name."""
    return f"{spec.file}:{name}" if any(o.endswith((".yaml", ".yml")) or ".yaml:" in o for o in ops) else name


def _print(found: Judged, *, quiet: bool) -> None:
    verdict = found.verdict
    if verdict is None:
        assert found.error is not None
        console.note(found.error.render())
        return
    word = "passed" if verdict.passed else "FAILED"
    cases = sum(g.cases for g in verdict.gates)
    meaning = verdict.source or "not judged"
    console.say(
        f"{verdict.op}: {word} ({verdict.dialect}, {verdict.tier}, {cases} cases, meaning: {meaning})"
    )
    if not quiet or not verdict.passed:
        for line in verdict.lines():
            console.say(f"  {line}")


def _finish(results: list[Judged], as_json: bool) -> int:
    """JSON where it is asked for; the exit code."""
    errors = [r.error for r in results if r.error is not None]
    if as_json:
        console.print_json(
            {
                "ok": all(r.passed for r in results),
                "ops": [r.verdict.to_json() for r in results if r.verdict is not None],
                "errors": [e.to_json() for e in errors],
            }
        )
    if any(r.verdict is not None and not r.verdict.passed for r in results):
        return EXIT_FAILED
    if errors:
        return ErrorGroup(errors).exit_code
    return EXIT_OK


def _dialect(name: str | None) -> str:
    if name is None:
        return toolchain.native_dialect()
    return toolchain.require_dialect(name).name


@command(
    "validate",
    example=[
        "opwright validate softmax",
        "opwright validate specs/ops/norm/softmax.yaml --tier full",
        "opwright validate softmax --gate numerics --seed 7",
        "opwright validate softmax --body mine.cpp",
    ],
)
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option("--all", "every", is_flag=True, help="Every operator of this workbench.")
@click.option(
    "--tier",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="quick: about a second each; full: what `accept` demands.",
)
@click.option(
    "--gate", "gates", multiple=True, metavar="NAME", help="Only this gate; may be given several times."
)
@click.option("--case", default=None, metavar="NAME", help="Only this case: what a failure says repeats it.")
@click.option(
    "--dialect", default=None, metavar="NAME", help="Kernels for this dialect (default: this machine's best)."
)
@file_option(
    "body", "Judge kernels that this file fills (`opwright show OP --level body` prints a beginning)."
)
@file_option(
    "calls", "Judge at the shapes of calls that `ow.trace` recorded, in place of the declared cases."
)
@seed_option
@jobs_option
@json_option
def validate(
    ops: tuple[str, ...],
    every: bool,
    tier: str,
    gates: tuple[str, ...],
    case: str | None,
    dialect: str | None,
    body: Path | None,
    calls: Path | None,
    seed: int | None,
    jobs: int,
    as_json: bool,
) -> int:
    """Judge an op's kernels; nothing is written.

    OP is an operator's name or the path of a spec file.  Exit code 1: something was judged and failed.
    """
    bench = Workbench.here()
    if case is not None and len(ops) != 1:
        raise AcceptError("--case belongs to one operator", hint="opwright validate OP --case NAME")
    if body is not None and len(ops) != 1:
        raise AcceptError("--body belongs to one operator", hint="opwright validate OP --body FILE")
    if body is not None and not body.is_file():
        raise AcceptError(f"there is no file {body}")
    name = _dialect(dialect)
    file = str(body.absolute()) if body is not None else None
    recorded = str(calls.absolute()) if calls is not None else None

    def make(op: str) -> Job:
        return Job(op, tier, seed or 0, tuple(gates) or None, case, name, recorded, body=file)

    todo = _jobs(bench, ops, every, False, name, make)
    results: list[Judged] = []
    with console.progress("judging", quiet=as_json) as progress:
        for found in judge_all(bench, todo, jobs or toolchain.available_cores(), progress):
            results.append(found)
            if not as_json:
                _print(found, quiet=len(todo) > 1)
    return _finish(results, as_json)


@command(
    "accept",
    example=[
        "opwright accept softmax",
        "opwright accept specs/ops/norm/softmax.yaml",
        "opwright accept --all --stale -j 2",
    ],
)
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option("--all", "every", is_flag=True, help="Every operator of this workbench.")
@click.option(
    "--stale", "only_stale", is_flag=True, help="Of these, only those whose evidence does not hold."
)
@click.option(
    "--tier",
    type=click.Choice(["quick", "full"]),
    default="full",
    show_default=True,
    help="How many cases; the evidence says which.",
)
@click.option(
    "--all-types",
    is_flag=True,
    help="Some cases of every type that an op takes: its evidence names them all.",
)
@click.option(
    "--dialect", default=None, metavar="NAME", help="Kernels for this dialect (default: this machine's best)."
)
@seed_option
@jobs_option
@json_option
def accept(
    ops: tuple[str, ...],
    every: bool,
    only_stale: bool,
    tier: str,
    all_types: bool,
    dialect: str | None,
    seed: int | None,
    jobs: int,
    as_json: bool,
) -> int:
    """Judge an op's kernels and record the evidence of what passed.

    OP is an operator's name or the path of a spec file.  The evidence goes to the folder that opwright.toml names; an
    operator that fails leaves what is there as it is.  A proof of the quick tier takes no full one's place that holds.
    """
    bench = Workbench.here()
    name = _dialect(dialect)
    results: list[Judged] = []
    written: list[str] = []
    with console.progress("judging", quiet=as_json) as progress:
        todo = _jobs(
            bench,
            ops,
            every,
            only_stale,
            name,
            lambda op: Job(op, tier, seed or 0, None, None, name, all_types=all_types),
            progress,
        )
        if not todo and not as_json:
            console.say("nothing is stale")
        for found in judge_all(bench, todo, jobs or toolchain.available_cores(), progress):
            results.append(found)
            if not as_json:
                _print(found, quiet=len(todo) > 1)
            if found.passed:
                written.append(str(record(bench, found)))
    if not as_json:
        for r in results:
            if r.passed and r.verdict is not None and r.verdict.source == AUTHOR_ONLY:
                console.note(
                    f"{r.verdict.op}: its author alone says what it means, so it serves who calls it by name and no "
                    "model counts it; `aten:`, `onnx:`, `reference:` or `also:` in its spec names another source"
                )
        for path in written:
            with contextlib.suppress(ValueError):
                path = str(Path(path).relative_to(Path.cwd()))
            console.say(f"wrote {path}")
    return _finish(results, as_json)


def record(bench: Workbench, found: Judged) -> Path:
    """Write a passed verdict to this workbench's evidence."""
    assert found.verdict is not None
    spec = bench.one(found.job.op)
    return evidence.record(
        bench.config.evidence,
        found.verdict,
        found.texts,
        lambda d, p: text_now(bench, spec, d, p.tier, p.keys),
    )
