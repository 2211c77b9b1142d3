"""`opwright judge`: the judge judged.  `calibrate`: are its bounds as tight as they should be; `scorecard`: what of the
corpus of wrong kernels it kills, and how often it accuses an honest one.

May import: validators, console, command, config.  To add a measure: a command here, its function in validators/.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import resources
from ..errors import EXIT_FAILED, EXIT_OK
from ..generator.errors import OpwrightError
from . import console
from .command import command, group, json_option, seed_option

__all__ = ["judge"]


@group(
    "judge",
    example=[
        "opwright judge calibrate",
        "opwright judge scorecard --family 'lost tail'",
        "opwright judge scorecard --json",
    ],
)
def judge() -> None:
    """Measure the judge itself: its bounds and its error rates.

    Exit code 1: an honest kernel was accused, or a wrong one let through.
    """


# ---- calibrate ---------------------------------------------------------------------------------------------------


@command("calibrate", example=["opwright judge calibrate", "opwright judge calibrate --seed 3 --json"])
@seed_option
@json_option
def calibrate(seed: int | None, as_json: bool) -> int:
    """Known kernels against the computed bounds: worst error over bound, honest at most 1, cheats above.

    A cheat that one size does not show, in brackets, must be shown by another.
    """
    from ..validators.calibrate import calibrate as measure
    from ..validators.calibrate import faults

    measured = measure(seed=seed or 0)
    wrong = faults(measured)
    if as_json:
        rows = [
            {"op": m.op, "size": m.size, "kernel": m.kernel, "honest": m.honest, "ratio": _number(m.ratio)}
            for m in measured
        ]
        console.print_json({"rows": rows, "faults": wrong})
        return EXIT_FAILED if wrong else EXIT_OK
    console.print_table(("op", "kernel", "", "error / bound, by size"), _rows(measured))
    for text in wrong:
        console.say(f"✗ {text}")
    return EXIT_FAILED if wrong else EXIT_OK


def _rows(measured: Sequence[Any]) -> list[tuple[str, ...]]:
    """A line for each kernel; in brackets where a cheat stays within the bound."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for m in measured:
        missed = m.within and not m.honest
        ratio = f"({m.ratio:.2g})" if missed else f"{m.ratio:.2g}"
        kind = "honest" if m.honest else "cheat"
        lines.setdefault((m.op, m.kernel, kind), []).append(f"{m.size}: {ratio}")
    return [(*key, "  ".join(said)) for key, said in lines.items()]


def _number(x: float) -> float | str:
    """JSON has no infinity."""
    return float(f"{x:.4g}") if math.isfinite(x) else "inf"


# ---- scorecard ---------------------------------------------------------------------------------------------------


def corpus_folder() -> Path:
    """Where this checkout keeps the corpus.  Raises OpwrightError where there is no checkout."""
    root = resources.checkout()
    if root is None:
        raise OpwrightError(
            "the corpus is part of a checkout of opwright, and this is an installed package",
            hint="clone the repository and run it there",
        )
    return root / "tests" / "validators" / "corpus"


@command(
    "scorecard",
    example=[
        "opwright judge scorecard",
        "opwright judge scorecard --gate numerics",
        "opwright judge scorecard --family honest",
    ],
)
@click.option(
    "--gate", "gates", multiple=True, metavar="NAME", help="Only wrong kernels that this gate should reject."
)
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME",
    help="Only kernels of this family (`honest`: the good ones).",
)
@seed_option
@json_option
def scorecard(gates: Sequence[str], families: Sequence[str], seed: int | None, as_json: bool) -> int:
    """The corpus of kernels: how many wrong ones the judge kills, by gate, and how many honest ones it accuses.

    Every wrong kernel must be rejected by the gate that it is made for; the interval (Wilson, 95 %) says what so many
    kernels can show.  A few seconds each.
    """
    from ..validators.corpus import Corpus, Score, score
    from ..validators.gates import GATE

    unknown = [g for g in gates if g not in GATE]
    if unknown:
        from ..generator.errors import did_you_mean

        raise OpwrightError(f"no gate `{unknown[0]}`", hint=did_you_mean(unknown[0], GATE, what="gates"))
    corpus = Corpus(corpus_folder())
    every = (*corpus.honest, *corpus.wrong)
    chosen = [e for e in every if (not gates or e.gate in gates) and (not families or e.family in families)]
    if not chosen:
        known = ", ".join(sorted({e.family for e in every}))
        raise OpwrightError("no kernel of the corpus is of this gate and family", hint=f"families: {known}")
    scores: list[Score] = []
    with console.progress("judging the corpus") as bar:
        for k, entry in enumerate(chosen):
            bar.step(entry.name, k, len(chosen))
            scores.append(score(entry, seed=seed or 0))
    return _report([s for s in scores if s.counted], [s for s in scores if not s.counted], as_json)


def _report(scores: Sequence[Any], uncounted: Sequence[Any], as_json: bool) -> int:
    from ..validators.corpus import said

    wrong = [s for s in scores if s.entry.gate is not None]
    honest = [s for s in scores if s.entry.gate is None]
    missed = [s for s in scores if not s.right]
    by_gate = {g: [s for s in wrong if s.entry.gate == g] for g in dict.fromkeys(s.entry.gate for s in wrong)}
    code = EXIT_FAILED if missed else EXIT_OK
    if as_json:
        console.print_json(
            {
                "killed": sum(s.right for s in wrong),
                "wrong": len(wrong),
                "accused": sum(not s.right for s in honest),
                "honest": len(honest),
                "gates": {
                    g: {"killed": sum(s.right for s in of), "wrong": len(of)} for g, of in by_gate.items()
                },
                "missed": [
                    {"name": s.entry.name, "gate": s.entry.gate, "family": s.entry.family} for s in missed
                ],
                "not_proven_here": [s.entry.name for s in uncounted],
            }
        )
        return code
    rows: list[tuple[object, ...]] = [
        (gate, said(sum(s.right for s in of), len(of)), ", ".join(sorted({s.entry.family for s in of})))
        for gate, of in by_gate.items()
    ]
    if wrong:
        rows.append(("all wrong kernels", said(sum(s.right for s in wrong), len(wrong)), ""))
        console.print_table(("gate", "killed", "families"), rows)
    if honest:
        console.say(f"honest kernels accused: {said(sum(not s.right for s in honest), len(honest))}")
    for s in missed:
        what = "was let through" if s.entry.gate else f"was accused by {', '.join(s.verdict.failed_gates)}"
        console.say(f"✗ {s.entry.name} ({s.entry.family}) {what}")
    for s in uncounted:
        console.note(f"– {s.entry.name}: not proven here")
    return code


for member in (calibrate, scorecard):
    judge.add_command(member)
