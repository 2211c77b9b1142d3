"""What a generated test imports: the texts of its folder, judged as they lie there.

    SUITE = Suite(Path(__file__).parent)
    SUITE.judge("numerics", "cpu-avx512")      a gate's result on the folder's own text, never on freshly printed one

May import: workbench, bridge (the adjoint's program), validators.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import toolchain
from ..generator.bound import BindKey, BoundOp, KernelText
from ..generator.errors import JudgedError
from ..generator.spec import OpSpec
from ..validators.verdict import NOT_APPLICABLE, GateResult
from .bridge import adjoint_of, differentiable
from .workbench import Workbench

__all__ = ["Suite"]


class MissingKernel(JudgedError):
    """A generated folder has no kernel for a key of today's spec."""


class _FolderSource:
    """Kernels as they lie in a folder: a `CandidateSource`."""

    def __init__(self, spec: OpSpec, forward: dict[str, KernelText], gradient: dict[str, KernelText]) -> None:
        self.spec, self._forward, self._gradient = spec, forward, gradient

    def forward(self, keys: Sequence[BindKey]) -> list[KernelText]:
        return [self._find(self._forward, k) for k in keys]

    def gradient(self, keys: Sequence[BindKey]) -> list[KernelText]:
        return [self._find(self._gradient, k) for k in keys if differentiable(self.spec, k)]

    def gradient_op(self, key: BindKey) -> BoundOp:
        return adjoint_of(self.spec, key)

    def _find(self, texts: dict[str, KernelText], key: BindKey) -> KernelText:
        found = texts.get(_key(key))
        if found is None:
            raise MissingKernel(
                f"`{self.spec.op}` has no kernel here for {key.show()}",
                hint=f"run `opwright generate {self.spec.op}` again",
            )
        return found


def _key(key: BindKey) -> str:
    """A key as rows write it."""
    parts = {
        "types": key.types,
        "static": key.static,
        "present": key.present,
        "lengths": key.lengths,
        "ranks": key.ranks,
    }
    return json.dumps({n: dict(p) for n, p in parts.items()}, sort_keys=True)


class Suite:
    """A generated folder: its texts, and today's spec."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._results: dict[tuple[str, str], GateResult] = {}

    @cached_property
    def rows(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "rows.json").read_text(encoding="utf-8"))
        return data

    @cached_property
    def spec(self) -> OpSpec:
        manifest = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        text = str(manifest["spec"])
        return Workbench.here(self.folder).one(str(self.folder / text) if ".yaml:" in text else text)

    @property
    def meaning_made(self) -> str:
        return str(self.rows["meaning"])

    @property
    def meaning_now(self) -> str:
        return self.spec.meaning_hash()

    def dialects_here(self) -> list[str]:
        """Those that this machine can run."""
        return [d for d in self.rows["dialects"] if d in toolchain.DIALECTS and toolchain.runs_here(d)]

    def source(self, dialect: str) -> _FolderSource:
        """The folder's kernels of a dialect."""
        made = self.rows["dialects"][dialect]
        lines = (self.folder / made["file"]).read_text(encoding="utf-8").split("\n")

        def texts(part: str) -> dict[str, KernelText]:
            out = {}
            for r in made[part]:
                source = "\n".join(lines[r["line"] - 1 : r["line"] - 1 + r["lines"]]) + "\n"
                out[json.dumps(r["row"]["key"], sort_keys=True)] = KernelText(
                    r["row"]["symbol"], source, r["row"], dialect
                )
            return out

        return _FolderSource(self.spec, texts("forward"), texts("gradient"))

    def missing_keys(self) -> list[str]:
        """Keys of today's spec that have no kernel here."""
        from .generate import keys_for

        missing = []
        for dialect in self.rows["dialects"]:
            have = {
                json.dumps(r["row"]["key"], sort_keys=True) for r in self.rows["dialects"][dialect]["forward"]
            }
            missing += [f"{dialect}: {k.show()}" for k in keys_for(self.spec) if _key(k) not in have]
        return missing

    def judge(self, gate: str, dialect: str) -> GateResult:
        """The gate's result on the folder's text, at the quick tier."""
        if (gate, dialect) not in self._results:
            from ..validators.judge import judge

            verdict = judge(self.spec, self.source(dialect), tier="quick", gates=(gate,))
            for result in verdict.gates:
                self._results[result.name, dialect] = result
        return self._results[gate, dialect]

    @staticmethod
    def explain(result: GateResult) -> str:
        """A failed gate in words."""
        if result.state == NOT_APPLICABLE:
            return result.note
        lines = [
            f"{result.name} {result.state}: {result.cases} cases of at least {result.minimum}, {result.failed} failed"
        ]
        for f in result.failures:
            lines += [f"  {f.case}: {f.message}", *([f"    smallest: {f.shrunken}"] if f.shrunken else [])]
        return "\n".join(lines)
