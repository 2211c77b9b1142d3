"""`opwright gate`: does a change keep what was proven?  For CI; red is exit code 1.

What it does, each a row of the result and a case of the JUnit file
  spec        every spec file reads
  evidence    every operator with evidence: does it hold for today's meaning and text; is any gone that base had
  judged      what changed, and a rotating sample of the rest (chosen by the commit), is judged in full again; a verdict
              that does not reproduce its evidence is red
  base judge  where the judge itself changed, what changed is judged by base's judge too; a difference is red without
              `--allow-judge-change`
  generated   what was generated into the workbench is what would be generated now
  models      architectures whose records rest on what changed are enabled again, the largest first, as far as the
              time budget goes; what is left out is named, and of one that no longer holds the first operator that
              makes its outputs leave PyTorch's (bisection.py)
and it prints the diff of the generated text between base and head, by base's own generator.

May import: accept, enable, generate, records; GitPython.  To add a check: a method of `_Gate`, called in `run`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import click

from .. import toolchain
from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from ..files import write_text
from ..generator.bind_key import keys_of
from ..generator.errors import SpecError, did_you_mean
from ..generator.spec import OpSpec, Registry
from ..validators import evidence
from ..validators.judge import DTYPES, judged_keys
from ..validators.torch_server import composition_names
from . import console, records
from .accept import Job, judge_all, texts_of_proofs
from .bridge import Bridge
from .check import composition_of
from .command import command, json_option
from .config import Config
from .console import Progress
from .workbench import Workbench, folder_name

__all__ = ["Check", "gate", "junit"]

OK, RED, SKIPPED = "ok", "red", "skipped"
DIFF_LINES = 400
#: The plainest text shows a change best, and every machine prints it.
DIFF_DIALECT = "cpu-portable"


class GateError(OpwrightError):
    """The gate cannot compare: no repository, no such revision."""


@dataclass(frozen=True)
class Check:
    """One row: `kind` is the check, `name` what it is about."""

    kind: str
    name: str
    state: str
    reason: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.kind,
            "name": self.name,
            "state": self.state,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


# ---- git -----------------------------------------------------------------------------------------------------------


def open_repo(root: Path) -> Any:
    """The repository that holds the workbench.  Raises `GateError`."""
    try:
        import git
    except ImportError as error:
        raise GateError(
            f"git cannot be used here: {str(error).splitlines()[0]}", hint="install git"
        ) from error
    try:
        return git.Repo(root, search_parent_directories=True)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        raise GateError(
            f"{root} is in no git repository", hint="the gate compares a working tree with a revision"
        ) from None


def commit_at(repo: Any, rev: str) -> Any:
    """The commit that a revision names.  Raises `GateError` that says what is near."""
    import git

    if rev.startswith("-"):
        raise GateError(f"`{rev}` is no revision")
    try:
        return repo.commit(rev)
    except (git.BadName, git.GitCommandError, ValueError, IndexError):
        known = [r.name for r in repo.references] + [t.name for t in repo.tags]
        raise GateError(
            f"there is no revision `{rev}`", hint=did_you_mean(rev, known, what="references")
        ) from None


def changed_files(repo: Any, base: Any) -> list[str]:
    """Paths that differ between base and the working tree, untracked ones too; relative to the repository."""
    names = set(repo.git.diff(base.hexsha, "--name-only", "-z").split("\0")) | set(repo.untracked_files)
    return sorted(n for n in names if n)


def extract(repo: Any, commit: Any, folder: Path) -> Path:
    """The commit's files in `folder`."""
    archive = folder.with_suffix(".tar")
    with open(archive, "wb") as out:
        repo.archive(out, commit.hexsha)
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    return folder


# ---- other versions of ourselves -----------------------------------------------------------------------------------


def is_checkout(tree: Path) -> bool:
    """Whether a tree is opwright's own source, which brings its own generator and judge."""
    return all((tree / p).is_dir() for p in ("generator", "validators", "workflows", "runtime/python"))


def package_of(tree: Path, at: Path, **rooms: Path) -> Path:
    """A package of links to a tree's rooms, some of them another tree's; the folder to put on the path."""
    package = at / "opwright"
    package.mkdir(parents=True)
    entries = {
        p.name: p for p in (tree / "runtime" / "python").iterdir() if not p.name.startswith((".", "__pyc"))
    }
    entries |= {room: tree / room for room in ("generator", "validators", "workflows")}
    for name, path in (entries | rooms).items():
        (package / name).symlink_to(path)
    return at


def run_other(
    path: Path | None, cwd: Path, arguments: Sequence[str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """A command line of another version of ourselves (`path`: its package; None: this one), in `cwd`."""
    first = [str(path)] if path is not None else []
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([*first, *(p for p in sys.path if p)]), NO_COLOR="1")
    command = [sys.executable, "-m", "opwright.workflows.start", *arguments]
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "it did not end in time")


def size_of(a: records.Attempt) -> int:
    """How much of the registry's composition an architecture tries: its calls, else its operators."""
    return sum(a.graph.get("calls", {}).values()) or a.operators


# ---- the gate ------------------------------------------------------------------------------------------------------


@dataclass
class _Gate:
    """One run."""

    bench: Workbench
    repo: Any
    base: Any
    work: Path
    progress: Progress
    budget_s: float
    sample: float
    allow_judge_change: bool = False
    models: bool = True
    record: bool = False
    checks: list[Check] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.root = Path(self.repo.working_tree_dir)
        self.dialect = toolchain.native_dialect()
        self.files = changed_files(self.repo, self.base)
        self.tree = extract(self.repo, self.base, self.work / "base")

    # -- helpers

    def add(self, kind: str, name: str, state: str, reason: str = "", seconds: float = 0.0) -> None:
        self.checks.append(Check(kind, name, state, reason, seconds))
        if state == RED:
            self.progress.done(f"red: {kind} {name}: {reason}")

    def left(self) -> float:
        return self.budget_s - (time.monotonic() - self.begun)

    def touched(self, *folders: str) -> bool:
        """Whether files below these folders of an opwright checkout changed."""
        return is_checkout(self.root) and any(f.startswith(folders) for f in self.files)

    @contextlib.contextmanager
    def timed(self) -> Iterator[Callable[[], float]]:
        begun = time.monotonic()
        yield lambda: time.monotonic() - begun

    # -- what changed

    def base_config(self) -> Config:
        """The configuration, its paths those of base's tree."""
        config = self.bench.config

        def moved(path: Path) -> Path:
            return (
                self.tree / path.resolve().relative_to(self.root)
                if path.resolve().is_relative_to(self.root)
                else path
            )

        return replace(
            config,
            root=moved(config.root),
            specs=tuple(moved(p) for p in config.specs),
            evidence=moved(config.evidence),
            support=moved(config.support),
        )

    def base_specs(self) -> dict[str, OpSpec]:
        """Base's own operators, read by this version; empty where they cannot be."""
        folders = [p / "ops" if (p / "ops").is_dir() else p for p in self.base_config().specs]
        try:
            return {s.op: s for s in Registry.load(f for f in folders if f.is_dir())}
        except SpecError as error:
            self.add("base", "specs", SKIPPED, f"this version does not read base's specs: {error.message}")
            return {}

    def changed_ops(self, before: dict[str, OpSpec]) -> list[OpSpec]:
        """Operators that are new, mean something else, or are lowered, tested or named otherwise."""

        def facts(s: OpSpec) -> tuple[Any, ...]:
            aten = [(e.overload, e.map, e.set, e.returns) for e in s.aten]
            return (s.meaning_hash(), repr(s.lower), s.inplace, repr(s.test.cases), s.test.values, repr(aten))

        return [s for s in self.bench.own_readable() if s.op not in before or facts(s) != facts(before[s.op])]

    # -- the checks

    def run(self) -> None:
        before = self.base_specs()
        for error in (e for group in self.bench.broken for e in group.errors):
            self.add("spec", str(error.place or "spec"), RED, error.message)
        changed = self.changed_ops(before)
        # What changed first: the budget is for that, and a spent one leaves out the rest.
        self.check_evidence(changed, changed)
        self.judge(changed, before)
        names = {s.op for s in changed}
        self.check_evidence([s for s in self.bench.own_readable() if s.op not in names], changed)
        self.check_gone(before)
        self.check_generated()
        self.check_models(changed)
        self.show_diff(changed, before)

    def check_evidence(self, specs: Sequence[OpSpec], changed: Sequence[OpSpec]) -> None:
        """Of these operators: fresh, for all that has some; there, for all that changed; not lost, where base had it.

        Kernels are printed anywhere for any dialect: where nothing was proven for this machine's, the evidence of
        another is held against its own text."""
        names = {s.op for s in changed}
        base = self.base_config().evidence
        if specs and self.left() <= 0:
            self.add("evidence", f"{len(specs)} operators", SKIPPED, "the time budget is spent")
            return
        dialects = {s.op: self.dialect_of(s) for s in specs}
        printed = [(s, dialects[s.op]) for s in specs]
        texts = texts_of_proofs(self.bench, printed, self.progress)
        for spec, text in zip(specs, texts, strict=True):
            with self.timed() as seconds:
                found = self.bench.evidence(spec.op)
                if found is None:
                    lost = evidence.evidence_path(base, spec.op).exists()
                    if lost:
                        self.add(
                            "evidence", spec.op, RED, "base has evidence of it, this has none", seconds()
                        )
                    elif spec.op in names:
                        self.add(
                            "evidence",
                            spec.op,
                            RED,
                            f"it changed and has no evidence: opwright accept {spec.op}",
                            seconds(),
                        )
                    continue
                dialect = dialects[spec.op]
                state = self.bench.standing(spec, dialect, text)
                word = {evidence.FRESH: OK, evidence.NOT_HERE: SKIPPED}.get(state.state, RED)
                hint = f": opwright accept {spec.op}" if word == RED else ""
                if word == OK and dialect != self.dialect:
                    hint = f"it holds for {dialect}; nothing was proven for {self.dialect}"
                self.add("evidence", spec.op, word, state.reason + hint, seconds())

    def check_gone(self, before: dict[str, OpSpec]) -> None:
        """No evidence of base's is without its operator."""
        base = self.base_config().evidence
        here = {folder_name(s.op) for s in self.bench.own_readable()}
        for path in sorted(base.glob("*.yaml")) if base.is_dir() else ():
            if path.stem not in here and path.stem.replace(".", "::") not in before:
                self.add("evidence", path.stem, RED, "base has evidence of an operator that is gone")

    def check_generated(self) -> None:
        from .generate import _spec_of, generate_op, generated_ops

        root = self.bench.config.generated
        for folder, manifest in generated_ops(root):
            with self.timed() as seconds:
                try:
                    done = generate_op(
                        self.bench,
                        _spec_of(self.bench, folder, manifest),
                        manifest["dialects"],
                        root,
                        check=True,
                    )
                except OpwrightError as error:
                    self.add("generated", folder.name, RED, error.message, seconds())
                    continue
                names = ", ".join((*done.changes.written, *done.changes.removed)[:3])
                self.add(
                    "generated",
                    folder.name,
                    RED if done.changes.any else OK,
                    f"{names} differ: opwright generate {done.spec.op}" if names else "",
                    seconds(),
                )

    def chosen(self, changed: Sequence[OpSpec]) -> list[tuple[OpSpec, str]]:
        """What is judged again: all that changed, and a sample of the rest, by the commit."""
        names = {s.op for s in changed}
        rest = [
            s
            for s in self.bench.own_readable()
            if s.op not in names and self.bench.evidence(s.op) is not None
        ]
        count = min(len(rest), max(1, round(self.sample * len(rest)))) if self.sample > 0 else 0
        picked = random.Random(self.repo.head.commit.hexsha).sample(sorted(rest, key=lambda s: s.op), count)
        return [*((s, "changed") for s in changed), *((s, "sample") for s in picked)]

    def judge(self, changed: Sequence[OpSpec], before: dict[str, OpSpec]) -> None:
        chosen = self.chosen(changed)
        why = {s.op: reason for s, reason in chosen}
        jobs = [
            Job(f"{s.file}:{s.op}", self.tier(s), 0, None, None, self.dialect, all_types=self.all_types(s))
            for s, _ in chosen
        ]
        begun = time.monotonic()
        done: set[str] = set()
        for found in judge_all(self.bench, jobs, toolchain.available_cores(), self.progress) if jobs else ():
            op = _name_in(found.job.op)
            done.add(op)
            took, begun = time.monotonic() - begun, time.monotonic()
            if found.verdict is None:
                assert found.error is not None
                self.add("judged", op, RED, found.error.message, took)
            elif not found.verdict.passed:
                self.add("judged", op, RED, f"{why[op]}: fails {', '.join(found.verdict.failed_gates)}", took)
            else:
                short = self.short_of(op, found.verdict)
                self.add(
                    "judged", op, RED if short else OK, f"{why[op]}: {short}" if short else why[op], took
                )
            if self.left() <= 0:
                for op in sorted(why.keys() - done):
                    changed_op = why[op] == "changed"
                    said = "it changed, and the time budget is spent: give more by --budget"
                    self.add(
                        "judged", op, *((RED, said) if changed_op else (SKIPPED, "the time budget is spent"))
                    )
                break
        if self.touched(
            "validators/", "generator/bind", "generator/normal", "generator/expr", "generator/grad"
        ):
            self.base_judge([s for s, reason in chosen], before)

    def dialect_of(self, spec: OpSpec) -> str:
        """This machine's dialect; where nothing was proven for it, the first that something was."""
        found = self.bench.evidence(spec.op)
        if found is None or self.dialect in found.proofs:
            return self.dialect
        return min(found.proofs, default=self.dialect)

    def tier(self, spec: OpSpec) -> str:
        """That of the evidence which has to be reproduced; in full, where there is none for this machine."""
        proof = self.bench.proof(spec.op, spec.meaning_hash(), self.dialect)
        return "full" if proof is None else proof.tier

    def all_types(self, spec: OpSpec) -> bool:
        """Whether the evidence is about more types than a tier has by itself."""
        proof = self.bench.proof(spec.op, spec.meaning_hash(), self.dialect)
        return proof is not None and not {*proof.keys} <= {k.show() for k in judged_keys(spec, proof.tier)}

    def short_of(self, op: str, verdict: Any) -> str:
        """How a new verdict falls short of the evidence; empty where it reproduces it (or there is none)."""
        old = self.bench.proof(op, verdict.meaning, self.dialect)
        if old is None:
            return ""
        new = evidence.merged(None, verdict).proofs[self.dialect]
        return "; ".join(evidence.reproduces(old, new))

    def base_judge(self, specs: Sequence[OpSpec], before: dict[str, OpSpec]) -> None:
        """Head's kernels by base's judge, where base has one.

        The `reference:` of a new operator may be a composition that came with it (`with_new_compositions`)."""
        if not is_checkout(self.tree):
            return
        package = package_of(self.root, self.work / "head-by-base", validators=self.tree / "validators")
        fresh = self.with_new_compositions(specs, before)
        for spec in specs:
            if self.left() <= 0:
                self.add("base judge", spec.op, SKIPPED, "the time budget is spent")
                continue
            self.progress.step(f"base's judge: {spec.op}")
            with self.timed() as seconds:
                ran = run_other(
                    fresh.get(spec.op, package),
                    self.root,
                    ["validate", f"{spec.file}:{spec.op}", "--tier", "full"],
                    self.left(),
                )
                head = next((c.state for c in self.checks if c.kind == "judged" and c.name == spec.op), OK)
                base = OK if ran.returncode == 0 else RED
                if base == head:
                    self.add("base judge", spec.op, OK, "", seconds())
                    continue
                lines = [x.strip() for x in (*ran.stdout.splitlines(), *ran.stderr.splitlines())]
                said = [x for x in lines if x.startswith(("✗", "error:", "internal"))] or ["it said nothing"]
                self.add(
                    "base judge",
                    spec.op,
                    SKIPPED if self.allow_judge_change else RED,
                    f"the judge changed: base's says {base}, head's {head} ({said[0]})",
                    seconds(),
                )

    def with_new_compositions(self, specs: Sequence[OpSpec], before: dict[str, OpSpec]) -> dict[str, Path]:
        """For new operators whose meaning is said by a composition that base has not: base's judge, all of it, with
        head's compositions beside it.  An operator that base has is never judged by them."""
        theirs = self.tree / "validators"
        names = composition_names(theirs)
        new = [s.op for s in specs if s.op not in before and (c := composition_of(s)) and c not in names]
        if not new:
            return {}
        mixed = self.work / "base-validators"
        shutil.copytree(theirs, mixed)
        for path in (self.root / "validators").glob("compositions*.py"):
            shutil.copyfile(path, mixed / path.name)
        package = package_of(self.root, self.work / "head-by-base-new", validators=mixed)
        return dict.fromkeys(new, package)

    def check_models(self, changed: Sequence[OpSpec]) -> None:
        """The composition gate: an operator that changes re-runs every model that uses it."""
        from .enable import commit_of, enable_target, hashes_now, remember

        # Once: the first record that is written makes the tree differ from the commit that is being run.
        commit = commit_of(self.bench.config.root)
        found = records.load_all([self.bench.config.support])
        used = sorted({op for attempts in found.values() for a in attempts for op in a.hashes})
        today = hashes_now(self.bench, used)
        names = {s.op for s in changed}
        # The largest first: what the budget leaves out is then what tells least.
        standing = sorted(
            (s for attempts in found.values() for s in records.standing(attempts, today)),
            key=lambda s: (-size_of(s.attempt), s.attempt.architecture, s.attempt.target, s.attempt.dtype),
        )
        left_out: list[str] = []
        for s in standing:
            a = s.attempt
            name = f"{a.architecture} {a.target} {a.dtype}"
            rests = s.state == records.STALE or names & a.hashes.keys()
            if not rests and not self.record:
                self.add("model", name, OK, s.state)
                continue
            late = self.left() <= 0
            if not self.models or a.level is None or not a.source.startswith("transformers:") or late:
                if late:
                    left_out.append(name)
                self.add(
                    "model",
                    name,
                    RED if s.state == records.STALE else SKIPPED,
                    ("the time budget is spent; " if late else "")
                    + f"{s.state}: {s.reason}; opwright enable {a.architecture}",
                )
                continue
            with self.timed() as seconds:
                result = enable_target(
                    self.bench, a.source.partition(":")[2], self.progress, out=self.work / "program"
                )
                if self.record:
                    remember(self.bench, result, records.now(), by="gate", commit=commit)
                kept = (result.level or "") >= a.level
                why = "" if kept else result.failed or f"{result.level or 'nothing'} held, {a.level} was"
                self.add("model", name, OK if kept else RED, why, seconds())
        if left_out:
            self.progress.done(f"left out, the time budget is spent: {', '.join(left_out)}")

    # -- the diff

    def show_diff(self, changed: Sequence[OpSpec], before: dict[str, OpSpec]) -> None:
        """The generated text of what changed, base's by base's own generator where that is another one."""
        generator = self.touched("generator/", "runtime/include/")
        wanted = [s for s in changed if s.op in before]
        if generator:
            wanted = [
                s
                for s in self.bench.own_readable()
                if s.op in before and self.bench.evidence(s.op) is not None
            ]
        if not wanted:
            return
        self.progress.step("the diff of the generated text")
        head = {s.op: self.text_now(s) for s in wanted}
        if generator and is_checkout(self.tree):
            base = self.texts_of_base([before[s.op] for s in wanted])
        else:
            base = {s.op: self.text_now(before[s.op]) for s in wanted}
        for spec in wanted:
            old, new = base.get(spec.op, "// base's generator gave nothing"), head[spec.op]
            names = (f"base/{spec.op}.cpp", f"head/{spec.op}.cpp")
            self.diff += difflib.unified_diff(old.splitlines(), new.splitlines(), *names, n=2, lineterm="")

    def text_now(self, spec: OpSpec) -> str:
        """The operator's kernels as this version prints them, or why it does not."""
        bridge = Bridge(self.bench, DIFF_DIALECT)
        try:
            return same_names("".join(bridge.text(spec, k).source for k in keys_of(spec, DTYPES)))
        except SpecError as error:
            return f"// not generated: {error.message}"

    def texts_of_base(self, specs: Sequence[OpSpec]) -> dict[str, str]:
        """The same by base's version of ourselves: its own command writes the files."""
        package, where = package_of(self.tree, self.work / "base-package"), self.work / "text-base"
        addresses = [f"{s.file}:{s.op}" for s in specs]
        ran = run_other(
            package,
            self.tree,
            ["generate", *addresses, "--dialect", DIFF_DIALECT, "--out", str(where)],
            max(self.left(), 10),
        )
        if ran.returncode != 0:
            said = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
            self.add("diff", "base", SKIPPED, f"base's generator gave no text: {said}")
            return {}
        found = {s.op: where / folder_name(s.op) / f"{DIFF_DIALECT}.cpp" for s in specs}
        return {
            op: same_names(path.read_text(encoding="utf-8")) for op, path in found.items() if path.exists()
        }


def same_names(text: str) -> str:
    """The text with kernels numbered: their names are hashes, and would differ in every line."""
    names: dict[str, str] = {}
    return re.sub(r"ow_[0-9a-f]{16}", lambda m: names.setdefault(m[0], f"ow_{len(names)}"), text)


def _rows(checks: Sequence[Check]) -> list[tuple[str, str, str, str]]:
    """A row each; many that say the same are one."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for c in checks:
        alike.setdefault((c.kind, c.state, c.reason), []).append(c.name)
    out = []
    for (kind, state, reason), names in alike.items():
        shown = names if len(names) <= 4 else [f"{names[0]}, {names[1]} and {len(names) - 2} more"]
        out += [(kind, name, state, reason) for name in shown]
    return out


def shown_rows(checks: Sequence[Check]) -> list[tuple[str, str, str, str]]:
    """What people see: a row for each that is not green, and of each kind a row that counts the green ones."""
    green: dict[str, list[str]] = {}
    for c in checks:
        if c.state == OK:
            green.setdefault(c.kind, []).append(c.name)
    rows = _rows([c for c in checks if c.state != OK])
    return rows + [
        (kind, names[0] if len(names) == 1 else f"{len(names)} checks", OK, "")
        for kind, names in green.items()
    ]


def _name_in(address: str) -> str:
    return address.partition(".yaml:")[2] or address


# ---- what comes out ------------------------------------------------------------------------------------------------


def junit(checks: Sequence[Check]) -> str:
    """The checks as a JUnit file."""
    red = sum(c.state == RED for c in checks)
    skipped = sum(c.state == SKIPPED for c in checks)
    total = sum(c.seconds for c in checks)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="opwright gate" tests="{len(checks)}" failures="{red}" errors="0" skipped="{skipped}" '
        f'time="{total:.3f}">',
    ]
    for c in checks:
        head = f'  <testcase classname={quoteattr("gate." + c.kind)} name={quoteattr(c.name)} time="{c.seconds:.3f}"'
        if c.state == OK:
            lines.append(head + "/>")
        else:
            tag = "failure" if c.state == RED else "skipped"
            lines.append(f"{head}><{tag} message={quoteattr(c.reason)}>{escape(c.reason)}</{tag}></testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


@command(
    "gate",
    example=[
        "opwright gate --base origin/main",
        "opwright gate --base HEAD~1 --junit gate.xml --sample 0.2",
        "opwright gate --base v1.2 --allow-judge-change --json",
    ],
)
@click.option("--base", "rev", required=True, metavar="REV", help="The revision to compare with.")
@click.option(
    "--junit",
    "junit_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write the checks there, for CI.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1),
    default=None,
    metavar="SHARE",
    help="Share of what did not change that is judged again (default: opwright.toml's).",
)
@click.option(
    "--budget", type=click.FloatRange(1), default=None, metavar="SECONDS", help="Time for all of it."
)
@click.option("--allow-judge-change", is_flag=True, help="A different verdict by base's judge is no fault.")
@click.option("--no-models", is_flag=True, help="Do not enable architectures again.")
@click.option(
    "--record", is_flag=True, help="Enable every recorded architecture again, and record that it holds."
)
@json_option
def gate(
    rev: str,
    junit_file: Path | None,
    sample: float | None,
    budget: float | None,
    allow_judge_change: bool,
    no_models: bool,
    record: bool,
    as_json: bool,
) -> int:
    """Say whether a change keeps what was proven.

    Compares the working tree with REV: evidence, generated text, what changed and a rotating sample of the rest judged
    again, the models that use it; and prints the diff of the generated code.  Exit code 1: something is red.
    """
    bench = Workbench.here()
    repo = open_repo(bench.config.root)
    base = commit_at(repo, rev)
    config = bench.config
    with (
        tempfile.TemporaryDirectory(prefix="opwright-gate-") as scratch,
        console.progress("the gate", quiet=as_json) as progress,
    ):
        work = _Gate(
            bench,
            repo,
            base,
            Path(scratch),
            progress,
            budget or config.gate_budget_s,
            config.gate_sample if sample is None else sample,
            allow_judge_change,
            not no_models,
            record,
        )
        try:
            work.run()
        except BaseException:
            work.add("gate", "the run", RED, "it was cut off before its end")
            if junit_file is not None:
                write_text(junit_file, junit(work.checks))
            raise
        shutil.rmtree(Path(scratch) / "base", ignore_errors=True)
    red = [c for c in work.checks if c.state == RED]
    if junit_file is not None:
        write_text(junit_file, junit(work.checks))
    if as_json:
        console.print_json(
            {
                "ok": not red,
                "base": base.hexsha,
                "head": repo.head.commit.hexsha,
                "files": work.files,
                "checks": [c.to_json() for c in work.checks],
                "diff": work.diff,
            }
        )
    else:
        if work.checks:
            console.print_table(("check", "name", "state", "reason"), shown_rows(work.checks))
            console.say()
        for line in work.diff[:DIFF_LINES]:
            console.say(line)
        if len(work.diff) > DIFF_LINES:
            console.say(f"… and {len(work.diff) - DIFF_LINES} more lines of the diff")
        counts = {state: sum(c.state == state for c in work.checks) for state in (OK, RED, SKIPPED)}
        console.note(
            f"{console.counted(len(work.checks), 'check')}: "
            f"{', '.join(f'{n} {state}' for state, n in counts.items())}; "
            f"{console.counted(len(work.files), 'file')} changed"
        )
    return EXIT_FAILED if red else EXIT_OK
