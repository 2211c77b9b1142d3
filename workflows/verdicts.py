"""Verdicts on fused groups, remembered by what they are about: an edit that changes nothing of it costs nothing.

A group is composed of accepted specs, so the quick tier is enough.  The cache holds passes only, under a hash of the
group's meaning, the dialect, and the sources of everything that printed or judged it.

May import: accept's judging, toolchain's cache folder.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .. import resources, toolchain
from ..files import write_text
from ..generator.errors import OpwrightError
from ..generator.spec import OpSpec
from .accept import Job, judge_all
from .console import Progress
from .workbench import Workbench

__all__ = ["judge_groups"]


@functools.cache
def _sources() -> str:
    """One hash over all that prints and judges: generator, validators, and the headers that kernels include."""
    root = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for folder, pattern in (
        (root.parent / "generator", "**/*.py"),
        (root.parent / "validators", "**/*.py"),
        (resources.include_dir(), "**/*.h"),
    ):
        for path in sorted(folder.resolve().glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _note(spec: OpSpec, dialect: str) -> Path:
    compiler = toolchain.find_compiler().identity
    text = "\0".join((_sources(), spec.meaning_hash(), repr(spec.lower), dialect, compiler))
    name = hashlib.sha256(text.encode()).hexdigest()[:40]
    return toolchain.open_cache() / "verdict" / name[:2] / f"{name}.json"


def judge_groups(
    bench: Workbench, specs: Sequence[OpSpec], texts: Sequence[str], dialect: str, progress: Progress
) -> dict[str, str]:
    """Judge each group (its spec, and the text that this was read from), those that passed before left out.  Why not,
    by the name of each that did not pass."""
    todo = [(s, t) for s, t in zip(specs, texts, strict=True) if not _note(s, dialect).exists()]
    bad: dict[str, str] = {}
    if not todo:
        return bad
    with tempfile.TemporaryDirectory(prefix="opwright-groups-") as folder:
        paths: dict[str, OpSpec] = {}
        for k, (spec, text) in enumerate(todo):
            path = Path(folder) / f"group{k}.yaml"
            path.write_text(text, encoding="utf-8")
            paths[str(path)] = spec
        jobs = [Job(path, "quick", 0, None, None, dialect) for path in paths]
        for found in judge_all(bench, jobs, toolchain.available_cores(), progress):
            spec = paths[found.job.op]
            if found.passed:
                assert found.verdict is not None
                cases = sum(g.cases for g in found.verdict.gates)
                write_text(_note(spec, dialect), f'{{"schema": 1, "op": "{spec.op}", "cases": {cases}}}\n')
            elif found.verdict is not None:
                bad[spec.op] = f"fails {', '.join(found.verdict.failed_gates)}"
            else:
                error = found.error
                bad[spec.op] = error.message if isinstance(error, OpwrightError) else str(error)
    return bad
