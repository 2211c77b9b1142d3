"""`judge`: all gates, in order, on one candidate; the verdict.

The order is cheap before dear and safe before unsafe: what a spec means first; source rules before anything is built;
nothing runs that did not build.  The candidate runs in a sandboxed child, the oracle and every comparison here.

May import: everything of the judge, generator.{bind, bound, spec, errors}, toolchain.  To add a gate see `gates.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from .. import toolchain
from ..generator.bind import bind
from ..generator.bound import BindKey, KernelText
from ..generator.errors import EXIT_MACHINE, OpwrightError, SpecError, did_you_mean
from ..generator.spec import OpSpec
from ..generator.types import DType
from .abi import tiles_here
from .candidate import CandidateSource
from .case_model import CaseReport
from .cases import build_case, make_cases
from .evidence import text_hash
from .gates import GATE, GATES, Gate
from .harness import Harness
from .memory import OWN, WORKER, TooMuchMemory, limited, mib
from .sandbox import Limits, Sandbox, pool_library
from .session import Progress, Session
from .trial import Trial
from .verdict import EMPTY, FAILED, SKIPPED, Failure, GateResult, Verdict

__all__ = ["DTYPES", "TIERS", "CandidateSource", "judge", "judged_keys"]

TIERS = ("quick", "full")
#: What the CPU emitters print.
DTYPES = (DType.F32, DType.F64, DType.BF16, DType.I64, DType.I32, DType.BOOL)
#: Gates that run nothing of the candidate's.
_BEFORE = ("meaning", "lint")


def judge(
    spec: OpSpec,
    source: CandidateSource,
    *,
    tier: str = "quick",
    seed: int = 0,
    gates: Collection[str] | None = None,
    case: str | None = None,
    dtypes: Sequence[DType] = DTYPES,
    progress: Progress | None = None,
    without: Collection[str] = (),
    known: Mapping[str, GateResult] | None = None,
    all_types: bool = False,
) -> Verdict:
    """The verdict on a candidate.

    tier      quick (about a second) or full
    seed      of the drawn cases; the same seed repeats them
    gates     names of the gates to run (default all; `build` runs when one after it needs it)
    case      only the case of this name: the command that a failure prints
    dtypes    those that the source has kernels for
    known     what another judgement of this spec, tier and seed found: results of gates that look at no kernel
    all_types some cases of every type that the operator takes, where there are kernels of it
    without   gates that are left out, to see what the others say: nothing is proven by such a verdict

    Raises OpwrightError when the request is wrong or the machine lacks something; what the candidate does wrong is
    in the verdict.
    """
    wanted = _wanted(tier, gates)
    if case is not None:
        report = CaseReport((build_case(spec, case, seed),))
    else:
        report = make_cases(spec, tier, seed, dtypes, all_types=all_types)
    trials = [Trial.of_case(c) for c in report]
    if all_types and case is None:
        asked = {c.key for c in make_cases(spec, tier, seed, dtypes)}
        none = {k for k in {t.key for t in trials} - asked if not _has_kernel(source, k)}
        trials = [t for t in trials if t.key not in none]
    order = list(dict.fromkeys(t.key for t in trials))
    runs = any(name != "meaning" for name in wanted)
    texts = source.forward(order) if runs else []
    grads = _gradients(source, order) if runs else {}
    dialect = texts[0].dialect if texts else toolchain.native_dialect()
    toolchain.require_dialect(dialect)
    with limited(), contextlib.ExitStack() as stack:
        box = stack.enter_context(Sandbox(limits=Limits(memory=WORKER), pool=pool_library() if runs else ""))
        minimums = {g.name: 1 if case is not None else g.minimum(tier == "full") for g in GATES}
        session = Session(
            spec,
            source,
            tier,
            seed,
            [t for t in trials if t.expect is None],
            [t for t in trials if t.expect],
            texts,
            grads,
            {k: bind(spec, k) for k in order},
            Harness(box),
            minimums,
            progress,
            report.refused,
        )
        results = _run(session, wanted, set(gates) if gates is not None else None, without, known or {})
        level = box.level
    missing = tuple(sorted(level.missing)) if level is not None else ()
    session.place["compiler"] = toolchain.find_compiler().version
    if any('"opwright/pairs.h"' in t.source for t in (*texts, *grads.values())):
        session.place["tiles"] = tiles_here()
    return Verdict(
        spec.op,
        spec.meaning_hash(),
        session.meaning_source,
        dialect,
        _hash(spec, source, tier, seed, dtypes, all_types, dict(zip(order, texts, strict=True)), grads)
        if runs and case is None
        else "",
        tier,
        seed,
        tuple(results),
        # The text is that of the keys at seed 0, which other seeds have, but for a draw of their own.
        tuple(
            sorted(
                {
                    k.show()
                    for k in (*order, *(judged_keys(spec, tier, dtypes, all_types) if seed and runs else ()))
                }
            )
        ),
        missing,
        tuple(sorted(session.place.items())),
    )


def _wanted(tier: str, gates: Collection[str] | None) -> list[str]:
    if tier not in TIERS:
        raise OpwrightError(f"no tier `{tier}`", hint=f"one of {', '.join(TIERS)}")
    for name in gates or ():
        if name not in GATE:
            raise OpwrightError(f"no gate `{name}`", hint=did_you_mean(name, GATE, what="gates"))
    chosen = [g.name for g in GATES if gates is None or g.name in gates]
    if any(name not in _BEFORE for name in chosen):
        chosen = [g.name for g in GATES if g.name in chosen or g.name in ("lint", "build")]
    return chosen


def _run(
    s: Session,
    wanted: Sequence[str],
    asked: set[str] | None,
    without: Collection[str],
    known: Mapping[str, GateResult],
) -> list[GateResult]:
    """Run the gates; after a failed `lint` nothing is built, after a failed `build` nothing runs."""
    results: list[GateResult] = []
    stopped = ""
    for name in wanted:
        gate = GATE[name]
        if name in without:
            results.append(GateResult(name, SKIPPED, minimum=s.minimums[name], note="left out"))
            continue
        if stopped and name not in ("meaning", "lint"):
            results.append(GateResult(name, SKIPPED, minimum=s.minimums[name], note=f"{stopped} failed"))
            continue
        if name in known:
            results.append(known[name])
            continue
        if s.progress is not None:
            s.progress(name, 0, 0)
        try:
            result = _in_memory(gate, s)
        except OpwrightError as error:
            if error.exit_code == EXIT_MACHINE:
                raise
            # The oracle or the binder cannot follow: that is a finding about the spec, not the end of the judgement.
            failure = Failure(str(error))
            result = GateResult(name, FAILED, 0, s.minimums[name], 1, (failure,))
        if result.state == EMPTY and s.unmade and not s.trials:
            which, why = s.unmade[0]
            result = replace(result, note=f"no case could be built, `{which}` not for this: {why}")
        results.append(result)
        if not result.ok:
            s.failed.add(name)
        if not result.ok and name in ("lint", "build"):
            stopped = name
    return [r for r in results if asked is None or r.name in asked or not r.ok]


def _in_memory(gate: Gate, s: Session) -> GateResult:
    """The gate's result; that the judge may take no more memory is a finding, too."""
    try:
        return gate.run(s)
    except MemoryError as error:
        raise TooMuchMemory(
            f"the judge would need more than {mib(OWN)} of its own: {error or 'no memory'}",
            hint="a case of the spec is too large: give it smaller extents",
        ) from None


def judged_keys(
    spec: OpSpec, tier: str = "full", dtypes: Sequence[DType] = DTYPES, all_types: bool = False
) -> list[BindKey]:
    """The keys whose texts a verdict's `text` is about: those of the tier's cases at seed 0, under every seed."""
    return list(dict.fromkeys(c.key for c in make_cases(spec, tier, 0, dtypes, all_types=all_types)))


def _has_kernel(source: CandidateSource, key: BindKey) -> bool:
    """Whether the source can make a kernel of the key: what it cannot, nobody is served by."""
    try:
        source.forward([key])
    except SpecError:
        return False
    return True


def _gradients(source: CandidateSource, keys: Sequence[BindKey]) -> dict[BindKey, KernelText]:
    """The adjoint's kernels, for the keys that have one."""
    return {key: texts[0] for key in keys if (texts := source.gradient([key]))}


def _hash(
    spec: OpSpec,
    source: CandidateSource,
    tier: str,
    seed: int,
    dtypes: Sequence[DType],
    all_types: bool,
    texts: Mapping[BindKey, KernelText],
    grads: Mapping[BindKey, KernelText],
) -> str:
    """Hash of the texts of `judged_keys`, so that one text has one hash under every seed."""
    if seed == 0:
        return text_hash([*texts.values(), *grads.values()])
    keys = judged_keys(spec, tier, dtypes)
    keys += [
        k for k in judged_keys(spec, tier, dtypes, all_types) if k not in keys and _has_kernel(source, k)
    ]
    missing = [k for k in keys if k not in texts]
    forward = dict(texts) | dict(zip(missing, source.forward(missing) if missing else [], strict=True))
    backward = dict(grads) | _gradients(source, missing)
    return text_hash([*(forward[k] for k in keys), *(backward[k] for k in keys if k in backward)])
