"""The corpus as candidates: honest kernels, wrong ones made of them by an edit, and the specs they are about.

Used by test_corpus.py here and by the judge's scorecard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from opwright.generator.bind import bind, bind_grad
from opwright.generator.bound import BindKey, BoundOp, KernelText
from opwright.generator.spec import OpSpec, load_spec_text

CORPUS = Path(__file__).parent / "corpus"
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
        return bind_grad(self.entry.spec, key)


def edited(text: str, edits: Sequence[Sequence[str]], where: str) -> str:
    """The text after its edits; each must fit in exactly one place."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{where}: an edit fits in {text.count(old)} places: {old!r}")
        text = text.replace(old, new)
    return text


def spec_of(op: str, edits: Sequence[Sequence[str]] = ()) -> OpSpec:
    """The corpus spec of this name, after edits of its own document."""
    text = (CORPUS / "specs.yaml").read_text(encoding="utf-8")
    document = next(d for d in text.split("\n---\n") if f"op: {op}\n" in d)
    return load_spec_text(edited(document, edits, op), str(CORPUS / "specs.yaml"))[0]


def manifest() -> Mapping[str, Any]:
    """The manifest as data."""
    data: Mapping[str, Any] = YAML(typ="safe").load((CORPUS / "manifest.yaml").read_text(encoding="utf-8"))
    return data


def _entry(base: Mapping[str, Any], row: Mapping[str, Any]) -> Entry:
    edits: dict[str, list[list[str]]] = dict(row.get("edits", {}))

    def text(file: str) -> str:
        return edited(
            (CORPUS / file).read_text(encoding="utf-8"), edits.pop(file, []), f"{row['name']}: {file}"
        )

    gradient = base.get("gradient")
    out = Entry(
        row["name"],
        spec_of(base["op"], row.get("spec", ())),
        text(base["forward"]),
        f"ow_{Path(base['forward']).stem}",
        text(gradient) if gradient else None,
        f"ow_{Path(gradient).stem}" if gradient else "",
        row.get("gate"),
        row.get("family", "honest"),
        row.get("compiler"),
        row.get("without"),
        row.get("tier", "quick"),
    )
    if edits:
        raise ValueError(f"{row['name']}: edits of files that it does not have: {', '.join(edits)}")
    return out


@cache
def honest() -> tuple[Entry, ...]:
    """Kernels that must pass every gate."""
    return tuple(_entry(row, row) for row in manifest()["honest"])


@cache
def wrong() -> tuple[Entry, ...]:
    """Kernels that must be rejected, each by the gate that it names and no other."""
    bases = {row["name"]: row for row in manifest()["honest"]}
    return tuple(_entry(bases[row["of"]], row) for row in manifest()["wrong"])
