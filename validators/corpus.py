"""The judge's corpus as candidates: honest kernels, wrong ones made of them by an edit, the specs they are about, and
what the judge says of each.

The data lies in a checkout, in tests/validators/corpus (manifest.yaml, specs.yaml, kernels); it is no part of a wheel.

May import: judge, verdict, generator.{bind, bound, errors, grad, normal, spec}, ruamel.yaml.
To add an entry: tests/validators/corpus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ..generator.bind import bind, bind_grad
from ..generator.bound import BindKey, BoundOp, KernelText
from ..generator.errors import OpwrightError
from ..generator.grad import adjoint
from ..generator.normal import normalise
from ..generator.spec import OpSpec, load_spec_text
from .judge import judge
from .verdict import NOT_HERE, GateResult, Verdict

__all__ = ["Corpus", "CorpusError", "Entry", "Score", "TextSource", "said", "score", "wilson"]


class CorpusError(OpwrightError):
    """There is no corpus here, or a line of its manifest does not fit its kernels."""


DIALECT = "cpu-portable"


@dataclass(frozen=True)
class Entry:
    """One line of the manifest, with the texts that it makes."""

    name: str
    spec: OpSpec
    forward: str
    forward_symbol: str
    gradient: str | None = None
    gradient_symbol: str = ""
    gate: str | None = None
    family: str = "honest"
    compiler: str | None = None
    without: str | None = None
    tier: str = "quick"
    nightly: bool = False


@dataclass
class TextSource:
    """A `CandidateSource` of fixed texts, for specs of one key."""

    entry: Entry
    asked: list[BindKey] = field(default_factory=list)

    def _text(self, op: BoundOp, source: str, symbol: str) -> KernelText:
        row: dict[str, Any] = {
            "op": op.name,
            "symbol": symbol,
            "inputs": [
                {"name": t.name, "dtype": t.dtype.value, "list": False, "optional": False} for t in op.inputs
            ],
            "attrs": [{"name": a.name, "kind": a.kind} for a in op.attrs],
            "outputs": [{"name": t.name, "dtype": t.dtype.value, "aux": t.aux} for t in op.outputs],
            "rules": [{"text": r.text, "line": r.line} for r in op.rules],
            "inplace": dict(op.inplace),
            "dialect": DIALECT,
        }
        return KernelText(symbol, source, row, DIALECT)

    def forward(self, keys: Sequence[BindKey]) -> list[KernelText]:
        self.asked += keys
        return [
            self._text(bind(self.entry.spec, k), self.entry.forward, self.entry.forward_symbol) for k in keys
        ]

    def gradient(self, keys: Sequence[BindKey]) -> list[KernelText]:
        if self.entry.gradient is None:
            return []
        return [
            self._text(self.gradient_op(k), self.entry.gradient, self.entry.gradient_symbol) for k in keys
        ]

    def gradient_op(self, key: BindKey) -> BoundOp:
        grad = self.entry.spec.grad
        if grad is not None and grad.derive:
            return adjoint(normalise(bind(self.entry.spec, key)), grad.wrt, grad.save)
        return bind_grad(self.entry.spec, key)


def edited(text: str, edits: Sequence[Sequence[str]], where: str) -> str:
    """The text after its edits; each must fit in exactly one place."""
    for old, new in edits:
        if text.count(old) != 1:
            raise CorpusError(f"{where}: an edit fits in {text.count(old)} places: {old!r}")
        text = text.replace(old, new)
    return text


class Corpus:
    """The corpus in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "manifest.yaml").is_file():
            raise CorpusError(
                f"{folder} holds no corpus", hint="it is part of a checkout of opwright, not of the wheel"
            )

    def _text(self, file: str) -> str:
        return (self.folder / file).read_text(encoding="utf-8")

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest as data."""
        data: Mapping[str, Any] = YAML(typ="safe").load(self._text("manifest.yaml"))
        return data

    def spec(self, op: str, edits: Sequence[Sequence[str]] = ()) -> OpSpec:
        """The corpus spec of this name, after edits of its own document."""
        document = next(d for d in self._text("specs.yaml").split("\n---\n") if f"op: {op}\n" in d)
        return load_spec_text(edited(document, edits, op), str(self.folder / "specs.yaml"))[0]

    def _entry(self, base: Mapping[str, Any], row: Mapping[str, Any]) -> Entry:
        edits: dict[str, list[list[str]]] = dict(row.get("edits", {}))

        def text(file: str) -> str:
            return edited(self._text(file), edits.pop(file, []), f"{row['name']}: {file}")

        gradient = base.get("gradient")
        out = Entry(
            row["name"],
            self.spec(base["op"], row.get("spec", ())),
            text(base["forward"]),
            f"ow_{Path(base['forward']).stem}",
            text(gradient) if gradient else None,
            f"ow_{Path(gradient).stem}" if gradient else "",
            row.get("gate"),
            row.get("family", "honest"),
            row.get("compiler"),
            row.get("without"),
            row.get("tier", "quick"),
            row.get("nightly", False),
        )
        if edits:
            raise CorpusError(f"{row['name']}: edits of files that it does not have: {', '.join(edits)}")
        return out

    @cached_property
    def _bases(self) -> Mapping[str, Any]:
        return {row["name"]: row for row in self.manifest["honest"]}

    @cached_property
    def honest(self) -> tuple[Entry, ...]:
        """Kernels that must pass every gate."""
        return tuple(
            self._entry(self._bases[row.get("of", row["name"])], row) for row in self.manifest["honest"]
        )

    @cached_property
    def wrong(self) -> tuple[Entry, ...]:
        """Kernels that must be rejected, each by the gate that it names and no other."""
        return tuple(self._entry(self._bases[row["of"]], row) for row in self.manifest["wrong"])


# ---- what the judge says of an entry -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """One entry, judged.  right: an honest one passed, a wrong one was rejected by the gate that should reject it."""

    entry: Entry
    verdict: Verdict
    right: bool
    alone: bool

    @property
    def counted(self) -> bool:
        """Whether this machine could tell at all (`meaning` needs torch)."""
        return self.right or all(g.state != NOT_HERE for g in self.verdict.gates)


#: What the gate `meaning` said of a spec at a tier and a seed: it looks at no kernel, and dozens share a spec.
_MEANINGS: dict[tuple[str, str, str, int], GateResult] = {}


def score(
    entry: Entry, *, tier: str | None = None, seed: int = 0, gates: Sequence[str] | None = None
) -> Score:
    """The judge on one entry.  alone: the gate that should rejected it, and no other (without a gate: it is right)."""
    without = [entry.without] if entry.without else []
    tier = tier or entry.tier
    about = (entry.spec.op, entry.spec.meaning_hash() + repr(entry.spec.aten), tier, seed)
    known = {"meaning": _MEANINGS[about]} if about in _MEANINGS else {}
    verdict = judge(
        entry.spec,
        TextSource(entry),
        tier=tier,
        seed=seed,
        gates=gates,
        without=without,
        known=known if gates is None or "meaning" in gates else {},
    )
    for gate in verdict.gates:
        if gate.name == "meaning":
            _MEANINGS[about] = gate
    if entry.gate is None:
        return Score(entry, verdict, verdict.passed, verdict.passed)
    right = entry.gate in verdict.failed_gates and bool(verdict.gate(entry.gate).failures)
    return Score(entry, verdict, right, right and (bool(without) or verdict.failed_gates == (entry.gate,)))


# ---- rates -------------------------------------------------------------------------------------------------------


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a rate of which `hits` of `total` were seen."""
    if total == 0:
        return 0.0, 1.0
    rate, n = hits / total, float(total)
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def said(hits: int, total: int) -> str:
    """`57 of 57 (94–100 %)`."""
    low, high = wilson(hits, total)
    return f"{hits} of {total} ({100 * low:.0f}–{100 * high:.0f} %)"
