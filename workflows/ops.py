"""`opwright ops`: which operators there are, what they are called elsewhere, and what was proven of them where.

May import: workbench, validators.evidence.  The JSON face is issue 2's; a field once in it stays.
"""

from __future__ import annotations

from typing import Any

import click

from ..generator.errors import did_you_mean
from ..generator.spec import OpSpec
from ..generator.spec_model import OnnxEntry
from ..generator.types import CATEGORIES, DType
from ..validators.evidence import FRESH, Evidence
from . import console
from .command import command, json_option
from .workbench import Workbench, WorkbenchError

__all__ = ["ops", "ops_json"]


def dtypes_of(spec: OpSpec) -> list[str]:
    """The dtypes that a spec's inputs (of an op without inputs: its outputs) may have."""
    from ..generator.bind_key import keys_of

    tensors = spec.inputs or spec.outputs
    variables = {t.dtype for t in tensors.values()}
    found: dict[DType, None] = {DType(v): None for v in variables if v not in spec.types}
    for key in keys_of(spec, limit=256):
        for name, value in key.types:
            if name in variables:
                found[DType(value)] = None
    order = list(CATEGORIES["any"])
    return [d.value for d in sorted(found, key=order.index)]


def unjudged(spec: OpSpec, evidence: Evidence | None) -> list[str]:
    """Of these dtypes those that no kernel was judged of: generated ones serve them all the same."""
    variables = {t.dtype for t in (spec.inputs or spec.outputs).values()}
    known = {v for v in variables if v not in spec.types}
    for proof in evidence.proofs.values() if evidence is not None else ():
        for part in (p for key in proof.keys for p in key.split(", ")):
            name, _, value = part.partition("=")
            if name in variables:
                known.add(value)
    return [d for d in dtypes_of(spec) if d not in known]


def _onnx(entry: OnnxEntry) -> str:
    return entry.op if entry.since is None else f"{entry.op}-{entry.since}"


def _targets(evidence: Evidence | None) -> dict[str, Any]:
    """Per target the gates with their counts: those of the best-proven dialect, and each dialect by name."""
    out: dict[str, Any] = {}
    for dialect, proof in sorted(evidence.proofs.items() if evidence is not None else ()):
        target = "cuda" if dialect.startswith("sm_") else "cpu"
        row = out.setdefault(target, {"gates": {}, "dialects": {}})
        gates = {name: dict(g) for name, g in proof.gates.items()}
        row["dialects"][dialect] = {
            "gates": gates,
            "tier": proof.tier,
            "text": proof.text,
            "keys": list(proof.keys),
        }
        if not row["gates"]:
            row["gates"] = gates
    return out


def op_json(bench: Workbench, spec: OpSpec) -> dict[str, Any]:
    """One operator's row of the face."""
    found = bench.evidence(spec.op)
    standing = bench.standing(spec)
    fresh = standing.state == FRESH
    return {
        "name": spec.op,
        "family": spec.family,
        "doc": spec.doc,
        "aten": [e.overload for e in spec.aten],
        "onnx": [_onnx(e) for e in spec.onnx],
        "dtypes": dtypes_of(spec),
        "unjudged": unjudged(spec, found) if fresh else [],
        "meaning": spec.meaning_hash(),
        "meaning_source": found.source if found is not None and fresh else None,
        "state": standing.state,
        "reason": standing.reason,
        "targets": _targets(found) if fresh else {},
    }


def ops_json(bench: Workbench, specs: list[OpSpec]) -> dict[str, Any]:
    """The whole face: `{"ops": […]}`."""
    return {"ops": [op_json(bench, s) for s in specs]}


def _shown(row: dict[str, Any]) -> str:
    """Its dtypes, in brackets those that no kernel was judged of."""
    judged = [d for d in row["dtypes"] if d not in row["unjudged"]]
    return " ".join([*judged, *([f"({' '.join(row['unjudged'])})"] if row["unjudged"] else [])])


def _cases(row: dict[str, Any]) -> int:
    return sum(int(g.get("cases", 0)) for t in row["targets"].values() for g in t["gates"].values())


@command(
    "ops",
    example=[
        "opwright ops",
        "opwright ops --state stale",
        "opwright ops softmax rms_norm --json",
    ],
)
@click.argument("names", nargs=-1, metavar="[OP]...")
@click.option("--family", default=None, help="Only operators of this family.")
@click.option("--state", type=click.Choice(["fresh", "stale", "absent"]), default=None, help="Only these.")
@json_option
def ops(names: tuple[str, ...], family: str | None, state: str | None, as_json: bool) -> int:
    """List operators with what was proven of them.

    A state is `fresh` (the judge proved this meaning), `stale` (it changed since) or `absent` (nothing was proven).
    Dtypes in brackets are taken, but no kernel of them was judged: `opwright accept OP --all-types` judges some.
    """
    bench = Workbench.here()
    specs = bench.select(names) if names else bench.registry.all()
    if family is not None:
        families = sorted({s.family for s in specs})
        if family not in families:
            raise WorkbenchError(
                f"there is no family `{family}`", hint=did_you_mean(family, families, what="families")
            )
        specs = [s for s in specs if s.family == family]
    rows = [op_json(bench, s) for s in specs]
    if state is not None:
        rows = [r for r in rows if r["state"] == state]
    if as_json:
        console.print_json({"ops": rows})
        return 0
    console.print_table(
        ("op", "family", "dtypes", "state", "cases", "targets", "aten"),
        [
            (
                r["name"],
                r["family"],
                _shown(r),
                r["state"],
                _cases(r) or "",
                " ".join(r["targets"]),
                " ".join(r["aten"]),
            )
            for r in rows
        ],
        right=(4,),
    )
    proven = sum(r["state"] == FRESH for r in rows)
    console.note(f"{console.counted(len(rows), 'operator')}, {proven} proven")
    return 0
