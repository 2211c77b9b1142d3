"""Evidence: `runtime/accepted/<op>.yaml`, what was proven of an operator's kernels, in git.

One file holds the meaning's hash and, per named dialect, the hash of the generated text and every gate with its
number of cases and worst error over bound.  Keys are sorted; there are no timestamps and no speeds.  A changed
meaning or text makes it *stale*; another place (compiler, torch, instruction set) makes it *not proven here*.

May import: opwright.{files, resources, toolchain}, generator.errors, generator.bound, verdict, ruamel.yaml.
To add a fact: a field of `Proof`, `_proof` that writes it, and, when its change should be noticed, `reproduces`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .. import resources
from ..files import locked, write_text, writing
from ..generator.bound import KernelText
from ..generator.errors import OpwrightError, Place
from ..toolchain import without_layout
from .verdict import Verdict

__all__ = [
    "Evidence",
    "EvidenceError",
    "Freshness",
    "Proof",
    "evidence_path",
    "freshness",
    "load",
    "record",
    "reproduces",
    "text_hash",
]

SCHEMA = 1
FRESH, STALE, NOT_HERE, ABSENT = "fresh", "stale", "not_here", "absent"


class EvidenceError(OpwrightError):
    """An evidence file cannot be read, or is asked for under a name that is no operator's."""


# ---- hashes ------------------------------------------------------------------------------------------------------

_HEADER = re.compile(r'^\s*#\s*include\s*"(?:opwright/)?(\w+\.h)"', re.MULTILINE)


def text_hash(kernels: Sequence[KernelText]) -> str:
    """One hash over the normalised texts and the headers of ours that they include, whatever their order."""
    texts = {without_layout(k.source) for k in kernels}
    todo = {name for k in kernels for name in _HEADER.findall(k.source)}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        seen.add(name)
        try:
            header = (resources.include_dir() / "opwright" / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # the gate `build` says so
        texts.add(without_layout(header))
        todo |= set(_HEADER.findall(header)) - seen
    digests = sorted(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


# ---- data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """What was proven for one dialect.  `gates`: name -> {state, cases, minimum, worst, …}."""

    text: str
    gates: Mapping[str, Mapping[str, Any]]
    tier: str
    keys: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    sandbox_missing: tuple[str, ...] = ()
    bodies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """The file: the meaning, who else agreed with it, and the proofs by dialect."""

    op: str
    meaning: str
    source: str
    proofs: Mapping[str, Proof]

    def to_data(self) -> dict[str, Any]:
        """Plain data, as it is stored."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "meaning": self.meaning,
            "meaning_source": self.source,
            "dialects": {name: _proof_data(p) for name, p in sorted(self.proofs.items())},
        }


def _proof_data(p: Proof) -> dict[str, Any]:
    out: dict[str, Any] = {
        "text": p.text,
        "tier": p.tier,
        "gates": {k: dict(v) for k, v in p.gates.items()},
        "keys": sorted(p.keys),
        "place": dict(p.place),
        "sandbox_missing": sorted(p.sandbox_missing),
    }
    if p.bodies:
        out["bodies"] = {k: dict(v) for k, v in p.bodies.items()}
    return out


def _proof(verdict: Verdict, kernels: Sequence[KernelText]) -> Proof:
    gates: dict[str, dict[str, Any]] = {}
    for g in verdict.gates:
        row: dict[str, Any] = {"state": g.state, "cases": g.cases, "minimum": g.minimum}
        if g.worst:
            row["worst"] = float(f"{g.worst:.3g}") if math.isfinite(g.worst) else str(g.worst)
        if g.note:
            row["note"] = g.note
        if g.strength is not None:
            row["strength"] = g.strength
        if g.classes:
            row["classes"] = g.classes
        gates[g.name] = row
    bodies = {
        k.symbol: {str(a): str(b) for a, b in body.items()}
        for k in kernels
        if isinstance(body := k.row.get("body"), dict)
    }
    return Proof(
        verdict.text, gates, verdict.tier, verdict.keys, dict(verdict.place), verdict.sandbox, bodies
    )


#: (dialect, proof) -> the hash of the text that is printed today for what the proof is about; None where nothing can be
#: printed.
TextOf = Callable[[str, Proof], str | None]


def merged(
    old: Evidence | None, verdict: Verdict, kernels: Sequence[KernelText] = (), text_of: TextOf | None = None
) -> Evidence:
    """The evidence after this verdict: other dialects keep theirs while the meaning is the same, and (where `text_of`
    tells what is printed) the text too: a machine that cannot run a dialect must not leave a proof of what is gone.
    """
    others = old.proofs if old is not None and old.meaning == verdict.meaning else {}

    def holds(dialect: str, proof: Proof) -> bool:
        if (
            dialect == verdict.dialect
        ):  # the new proof's place, unless the old one proves more of the same text
            more = proof.tier == "full" != verdict.tier
            return more and text_of is not None and text_of(dialect, proof) == proof.text
        return text_of is None or text_of(dialect, proof) == proof.text

    kept = {dialect: proof for dialect, proof in others.items() if holds(dialect, proof)}
    kept.setdefault(verdict.dialect, _proof(verdict, kernels))
    return Evidence(verdict.op, verdict.meaning, verdict.source, kept)


# ---- files -------------------------------------------------------------------------------------------------------

_OP = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)?")


def evidence_path(directory: str | os.PathLike[str], op: str) -> Path:
    """`<directory>/<op>.yaml`; a namespace's `::` becomes a dot."""
    if not _OP.fullmatch(op):
        raise EvidenceError(
            f"`{op}` is not an operator's name", hint="letters, digits and _, or namespace::name"
        )
    return Path(directory) / f"{op.replace('::', '.')}.yaml"


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    return yaml


def dump(evidence: Evidence) -> str:
    """The file's text: keys sorted at every level."""
    out = io.StringIO()
    _yaml().dump(_sorted(evidence.to_data()), out)
    return out.getvalue()


def _sorted(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(k): _sorted(data[k]) for k in sorted(data, key=str)}
    if isinstance(data, list | tuple):
        return [_sorted(v) for v in data]
    return data


def load(directory: str | os.PathLike[str], op: str) -> Evidence | None:
    """The evidence of an operator, None when there is none.  Raises `EvidenceError` when it cannot be read."""
    path = evidence_path(directory, op)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", place=Place(str(path))) from error
    return _read(path, op, text)


@functools.lru_cache(maxsize=1024)
def _read(path: Path, op: str, text: str) -> Evidence:
    """Reading takes 20 ms a file, and a command asks several times for the same."""
    try:
        data = _yaml().load(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise EvidenceError(
                f"{path.name} is not evidence of schema {SCHEMA}",
                place=Place(str(path)),
                hint="`opwright migrate` moves older files on",
            )
        proofs = {
            str(name): Proof(
                str(p["text"]),
                p["gates"],
                str(p["tier"]),
                tuple(p.get("keys", ())),
                p.get("place", {}),
                tuple(p.get("sandbox_missing", ())),
                p.get("bodies", {}),
            )
            for name, p in data["dialects"].items()
        }
        return Evidence(str(data["op"]), str(data["meaning"]), str(data["meaning_source"]), proofs)
    except (YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvidenceError(
            f"{path.name} cannot be read as evidence: {str(error).splitlines()[0]}",
            place=Place(str(path)),
            hint=f"remove it and run `opwright accept {op}`",
        ) from error


def record(
    directory: str | os.PathLike[str],
    verdict: Verdict,
    kernels: Sequence[KernelText] = (),
    text_of: TextOf | None = None,
) -> Path:
    """Merge a verdict into the evidence and write it: under a lock, whole or not at all.

    Raises `EvidenceError` for a verdict that did not pass: evidence is only written of what holds.
    """
    if not verdict.passed:
        raise EvidenceError(f"{verdict.op} did not pass: {', '.join(verdict.failed_gates)}")
    folder = Path(directory)
    path = evidence_path(folder, verdict.op)
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        write_text(path, dump(merged(load(folder, verdict.op), verdict, kernels, text_of)))
    return path


# ---- what it is worth --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Freshness:
    """`fresh`, `stale`, `not_here` or `absent`, and why."""

    state: str
    reason: str = ""


def freshness(
    evidence: Evidence | None,
    *,
    meaning: str,
    dialect: str,
    text: str | None,
    place: Mapping[str, str] | None = None,
) -> Freshness:
    """What evidence says of a spec's meaning and a dialect's text today.

    text: hash of the text generated now, None when it cannot be printed here; place: as `Verdict.place`.
    """
    if evidence is None:
        return Freshness(ABSENT, "there is no evidence")
    if evidence.meaning != meaning:
        return Freshness(STALE, "the meaning has changed")
    proof = evidence.proofs.get(dialect)
    if proof is None:
        known = ", ".join(sorted(evidence.proofs))
        return Freshness(NOT_HERE, f"nothing was proven for {dialect} (only {known})")
    if text is not None and proof.text != text:
        return Freshness(STALE, f"the text for {dialect} has changed")
    for name, value in (place or {}).items():
        if name in proof.place and proof.place[name] != value:
            return Freshness(NOT_HERE, f"proven with {name} {proof.place[name]}, here is {value}")
    return Freshness(FRESH)


def reproduces(old: Proof, new: Proof) -> list[str]:
    """How `new` falls short of `old`: empty when the verdicts are the same and every error is within its bound.

    Of more keys than the old one the text is another one: `freshness` is asked of those that it knows.
    """
    found = []
    if unknown := sorted({*old.keys} - {*new.keys}):
        found.append(f"no longer judged: {', '.join(unknown)}")
    if old.text != new.text and {*old.keys} == {*new.keys}:
        found.append("the text differs")
    for name, row in sorted(old.gates.items()):
        now = new.gates.get(name)
        if now is None:
            found.append(f"gate {name} did not run")
            continue
        if now["state"] != row["state"]:
            found.append(f"gate {name}: {row['state']}, now {now['state']}")
        worst = now.get("worst", 0.0)
        if isinstance(worst, str) or worst > 1:
            found.append(f"gate {name}: worst error {worst} of its bound")
        if now["cases"] < now["minimum"]:
            found.append(f"gate {name}: {now['cases']} cases of at least {now['minimum']}")
    return found
