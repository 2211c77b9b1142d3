"""The gates on a kernel, as one table: what each proves, and how many cases it must run to prove anything.

A gate is a function from a `Session` to a `GateResult`.  Each looks at one thing only and runs in the circumstances
that show it: numerics on clean memory, memory on poisoned memory, determinism under every order of the pool.  So a
failure names its kind, and the tests can hold each gate to wrong kernels that it alone rejects.

May import: everything of the judge; never what prints kernels.
To add a gate: a function here (or a module of its own), a row in `GATES`, two wrong kernels in tests/validators/corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from . import abi
from .candidate import build
from .extents import OracleError, OracleRefusal
from .gradients import gate_gradient
from .harness import NUMPY, Array, How, Outcome, far_view
from .layouts import LAYOUTS, applies, lay_out
from .lint import lint
from .meaning import gate_meaning
from .oracle import output_shapes
from .refusals import gate_errors
from .session import Session
from .sizes import rung_of
from .trial import FREE_LIMIT, Subject, Trial, bits_differ, compare, shrink, size_of
from .verdict import NOT_APPLICABLE, SHOWN, Failure, GateResult

__all__ = ["GATE", "GATES", "Gate"]

# ---- before anything runs ----------------------------------------------------------------------------------------

#: The line above a body in a printed kernel (generator/emit/bodies.py).
BODY = "// ---- the body, by hand"
_MARCH = {"cpu-avx512": "x86-64-v4", "cpu-avx2": "x86-64-v3"}


def gate_lint(s: Session) -> GateResult:
    """Source rules on every text, forward and gradient."""
    tally = s.tally("lint")
    for text in (*s.texts, *s.grads.values()):
        found = lint(text.source, [text.symbol], march=_MARCH.get(text.dialect))
        if not found:
            tally.passed()
            continue
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        where = _in_body(text.source, found[0].place.line)
        tally.fail(Failure(f"{text.symbol}: {where}{found[0]}{more}", shrunken=found[0].place.excerpt()))
    return tally.result()


def _in_body(source: str, line: int) -> str:
    """Which line of a body that was written by hand this is; empty where it is none."""
    begins = next((k for k, text in enumerate(source.splitlines(), 1) if text == BODY), line)
    return f"line {line - begins} of the body: " if line > begins else ""


def gate_build(s: Session) -> GateResult:
    """Every text compiles, loads, and has its three entries."""
    tally = s.tally("build")
    texts = [*s.texts, *s.grads.values()]
    built = build(texts)
    s.built = built[: len(s.texts)]
    keys = list(s.ops)
    s.subjects = {key: Subject(s.ops[key], b, s.harness) for key, b in zip(keys, s.built, strict=True)}
    s.grad_built = dict(zip(s.grads, built[len(s.texts) :], strict=True))
    for b in built:
        trouble = b.trouble or s.harness.load(b.library, b.text.symbol)
        if trouble:
            said = re.search(r"kernel\.cpp:(\d+)", trouble)
            where = _in_body(b.text.source, int(said[1])) if said else ""
            tally.fail(Failure(f"{b.text.symbol}: {where}{trouble}"))
        else:
            tally.passed()
    return tally.result()


# ---- values ------------------------------------------------------------------------------------------------------


def judge_values(subject: Subject, trial: Trial, outcome: Outcome) -> tuple[list[str], float, float]:
    """Refusals, crashes and wrong values of one run, as (what is wrong, worst ratio, free share)."""
    if outcome.crash:
        return [outcome.crash], float("inf"), 0.0
    if outcome.status != abi.OK:
        return (
            [f"the kernel refused with {abi.error_name(outcome.status)} {dict(outcome.error)}"],
            float("inf"),
            0.0,
        )
    want = subject.want(trial)
    assert isinstance(want, dict)
    return compare(subject.op, outcome, want)


def gate_numerics(s: Session) -> GateResult:
    """Every case, contiguous, on clean memory: shapes as the oracle's, every element within its bound."""
    tally = s.tally("numerics")
    loose = 0
    for trial, subject in s.each("numerics", s.trials):
        if wrong := subject.wrong(trial):
            ratio = subject.compared(trial)[1] if not subject.base(trial).trouble else float("inf")
            shrunk = tally.failed < SHOWN and not subject.hung
            small = shrink(trial, partial(_still_wrong, subject)) if shrunk else trial
            tally.fail(s.failure((subject.wrong(small) or wrong)[0], trial, small), ratio)
            continue
        _, ratio, free = subject.compared(trial)
        if free > FREE_LIMIT:
            loose += 1
        else:
            tally.passed(ratio)
            tally.classes.update(trial.classes)
    if loose:
        tally.note(f"{loose} case(s) bound too little to count")
    unseen = {t.values for t in s.trials} - set(tally.classes)
    if unseen and not tally.failed:
        tally.note(f"no case counts of class {', '.join(sorted(unseen))}")
    for k, why in _impossible(s):
        tally.fail(Failure(f"case {k} of the spec is none of its own calls, whatever it holds: {why}"))
    if s.unmade:
        name, why = s.unmade[0]
        tally.note(f"{len(s.unmade)} case(s) could not be built, {name}: {why}")
    return tally.result()


def _impossible(s: Session) -> list[tuple[int, str]]:
    """Declared cases of which no class of values and no type makes a call that the operator takes, and why."""
    made = {t.case.partition("/")[0] for t in s.trials}
    reasons = {name.partition("/")[0]: why for name, why in reversed(s.unmade)}
    return [
        (k, reasons[f"case{k}"])
        for k in range(len(s.spec.test.cases))
        if f"case{k}" in reasons and f"case{k}" not in made
    ]


def _still_wrong(subject: Subject, trial: Trial) -> bool:
    try:
        return isinstance(subject.want(trial), dict) and bool(subject.wrong(trial))
    except OracleError:  # cut to what the operator is not defined on
        return False


def gate_layouts(s: Session) -> GateResult:
    """The same cases with inputs and outputs transposed, sliced, expanded, offset, reversed: values within bounds."""
    tally = s.tally("layouts")
    rng = np.random.default_rng(s.seed)
    for trial, subject in s.sound("layouts", s.spread(48 if s.full else 6)):
        for name, laid, taken in arrangements(s, subject, trial, rng):
            subject.same_answer(trial, laid)
            want = subject.want(laid)
            if not isinstance(want, dict):
                continue
            # Shapes may depend on the data, and an expanded tensor has other data.
            outputs = {
                k: lay_out(np.zeros(want[k].shape, NUMPY[want[k].dtype.value]), taken[k], rng) for k in taken
            }
            inv = subject.invocation(laid, outputs=outputs)
            plan = subject.plan(laid, inv)
            if plan.crash or plan.status != abi.OK:
                wrong, ratio = [f"infer: {plan.crash or abi.error_name(plan.status)}"], float("inf")
            else:
                wrong, ratio, _ = judge_values(
                    subject, laid, subject.harness.run(inv, workspace=plan.workspace)
                )
            subject.forget(laid)
            if wrong and "numerics" in s.failed and _wrong_when_plain(subject, laid):
                continue  # it is wrong wherever it lies: numerics has said so
            if wrong:
                strides = ", ".join(f"{k} {list(v.strides)}" for k, v in {**laid.arrays, **outputs}.items())
                tally.fail(s.failure(f"layout {name} (strides in bytes: {strides}): {wrong[0]}", laid), ratio)
            else:
                tally.passed(ratio)
    for laid, wrong, ratio in _far_apart(s):
        if wrong:
            tally.fail(s.failure(f"with slices more than 2**31 elements apart: {wrong[0]}", laid), ratio)
        else:
            tally.passed(ratio)
    return tally.result()


def _far_apart(s: Session) -> Iterator[tuple[Trial, list[str], float]]:
    """Small calls of each kernel whose tensors span more elements than 32 bits count, mapped where they have some: (the
    trial, what is wrong, worst ratio).
    """
    left = dict.fromkeys(s.subjects, 2 if s.full else 1)

    def fits(trial: Trial) -> bool:
        return size_of(trial) <= 4096 and any(far_view(a) is not None for a in trial.arrays.values())

    for trial, subject in s.sound("layouts", s.spread(4 * len(left), fits)):
        want = subject.want(trial)
        assert isinstance(want, dict)
        plain = {k: np.zeros(b.shape, NUMPY[b.dtype.value]) for k, b in want.items()}
        far = {k: far_view(a) for k, a in plain.items()}
        if not left[trial.key] or all(a is None for a in far.values()):
            continue
        left[trial.key] -= 1
        arrays = {k: a if (apart := far_view(a)) is None else apart for k, a in trial.arrays.items()}
        laid = trial.with_arrays(arrays, "/far")
        subject.same_answer(trial, laid)
        outputs = {k: plain[k] if a is None else a for k, a in far.items()}
        inv = subject.invocation(laid, outputs=outputs)
        outcome = subject.harness.run(inv, How(far=True), workspace=subject.base(trial).plan.workspace)
        wrong, ratio, _ = judge_values(subject, laid, outcome)
        subject.forget(laid)
        yield laid, wrong, ratio


def _wrong_when_plain(subject: Subject, laid: Trial) -> bool:
    plain = laid.with_arrays({k: np.array(a, order="C") for k, a in laid.arrays.items()}, "~plain")
    return bool(subject.wrong(plain))


def arrangements(
    s: Session, subject: Subject, trial: Trial, rng: np.random.Generator
) -> Iterator[tuple[str, Trial, dict[str, str]]]:
    """(name, the trial with its inputs laid out, layouts of the outputs) for each layout that the shapes admit.

    Also inputs alone, outputs alone, and every tensor in a layout of its own.
    """
    base = subject.base(trial)
    plain = dict(zip((t.name for t in subject.op.outputs), base.outcome.outputs, strict=True))
    if trial.laid:
        own = replace(trial, arrays=dict(trial.laid), name=f"{trial.name}/own")
        yield "of the case", own, dict.fromkeys(plain, "contiguous")
    names = [n for n in LAYOUTS if n != "contiguous"]
    ways: list[tuple[str, dict[str, str], dict[str, str]]] = []
    for name in names:
        # What an output is written to never overlaps itself.
        out = "sliced" if name == "expanded" else name
        ways.append((name, dict.fromkeys(trial.arrays, name), dict.fromkeys(plain, out)))
    ways.append(("inputs sliced", dict.fromkeys(trial.arrays, "sliced"), dict.fromkeys(plain, "contiguous")))
    ways.append(
        ("outputs transposed", dict.fromkeys(trial.arrays, "contiguous"), dict.fromkeys(plain, "transposed"))
    )
    ways.append(
        (
            "mixed",
            {k: str(rng.choice(names)) for k in trial.arrays},
            {k: str(rng.choice([n for n in names if n != "expanded"])) for k in plain},
        )
    )
    if not s.full:
        ways = [ways[int(k)] for k in rng.permutation(len(ways))[:4]]
    for name, wanted, taken in ways:
        arrays = {k: lay_out(a, wanted[k], rng) for k, a in trial.arrays.items()}
        moved = any(wanted[k] == "offset" or a.strides != trial.arrays[k].strides for k, a in arrays.items())
        if moved or any(taken[k] != "contiguous" and applies(taken[k], a.shape) for k, a in plain.items()):
            yield name, trial.with_arrays(arrays, f"/{name.replace(' ', '-')}"), taken


# ---- memory ------------------------------------------------------------------------------------------------------


def gate_memory(s: Session) -> GateResult:
    """Reads its inputs only, writes its outputs only, all of them.

    Two poisons in outputs and workspace must give the same bits; no byte of an input, of a guard or between an
    output's elements may change; and with guard pages at both ends and inputs locked nothing may fault.
    """
    tally = s.tally("memory")
    # What has no elements lies last in a spread, and is where a kernel writes the first all the same.
    nothing = [t for t in s.trials if t.arrays and any(not a.size for a in t.arrays.values())]
    chosen = s.spread(64 if s.full else 8)
    chosen += [t for t in nothing[: 4 if s.full else 1] if t not in chosen]
    for trial, subject in s.sound("memory", chosen):
        trouble = _memory_trouble(subject, trial)
        if trouble:
            tally.fail(s.failure(trouble, trial))
        else:
            tally.passed()
    return tally.result()


def _memory_trouble(subject: Subject, trial: Trial) -> str:
    base = subject.base(trial)
    if base.outcome.damage:
        return base.outcome.damage[0]
    inv, workspace = subject.invocation(trial), base.plan.workspace
    for fill in ("high", "ones"):
        outcome = subject.harness.run(inv, How(fill=fill), workspace=workspace)
        if outcome.crash:
            return f"with poisoned outputs and workspace: {outcome.crash}"
        if outcome.status != abi.OK:
            return f"with poisoned outputs and workspace: refused with {abi.error_name(outcome.status)}"
        if outcome.damage:
            return outcome.damage[0]
        if differs := bits_differ(subject.op, base.outcome, outcome):
            return (
                "reads what outputs, workspace or its own variables held before, "
                f"or leaves elements unwritten: {differs}"
            )
    for how in (How(parallel=True, order="reverse"), How(parallel=True, threads=3)):
        plan = subject.plan(trial, inv, how.threads)
        outcome = subject.harness.run(inv, how, workspace=max(plan.workspace, 0))
        if outcome.damage:
            return f"on {how.threads} thread(s): {outcome.damage[0]}"
    for placement in ("end", "start"):
        locked = How(placement=placement, guard=True, read_only=True)
        if (outcome := subject.harness.run(inv, locked, workspace=workspace)).crash:
            again = subject.harness.run(inv, replace(locked, read_only=False), workspace=workspace)
            edge = "past an end" if placement == "end" else "before a start"
            what = f"reads or writes {edge} of a buffer" if again.crash else "writes to an input"
            return f"{what}: {outcome.crash}"
    return ""


# ---- determinism -------------------------------------------------------------------------------------------------


def gate_determinism(s: Session) -> GateResult:
    """The same bits every time: again, for any number of threads, any order of pieces, and after other contents."""
    tally = s.tally("determinism")
    rng = np.random.default_rng((s.seed, 4))
    chosen = s.spread(40 if s.full else 6)
    # Of equal numbers no race shows, and a chain's rung is one long piece more often than many.
    shared = [
        t
        for t in s.trials
        if t.values != "all_equal" and not ((rung := rung_of(t.name)) is not None and rung.chain)
    ]
    large = sorted(shared, key=size_of)[-(3 if s.full else 1) :]
    again = [
        ("run again", How()),
        ("at addresses of another alignment", How(placement="shifted")),
        ("where a heap is", How(elsewhere="heap")),
        ("in low memory", How(elsewhere="low")),
    ]
    ordered = [
        ("with the pool's pieces in reverse", How(parallel=True, order="reverse")),
        ("with the pool's pieces shuffled", How(parallel=True, order="shuffled", seed=s.seed, threads=3)),
        ("on 2 threads", How(parallel=True, threads=2)),
        # more than a kernel may have been tried on: how many is the seed's secret
        *(
            (f"on {n} threads", How(parallel=True, threads=int(n)))
            for n in rng.integers(4, 65, 2 if s.full else 1)
        ),
    ]
    # Threads stopped half way in the longest pieces there are: a race needs luck, so it gets several tries.
    raced = [
        (
            "on 3 threads that stop each other",
            How(parallel=True, threads=3, order="shuffled", preempt=True, seed=s.seed + k),
        )
        for k in range(30 if s.full else 10)
    ]
    for trials, ways in (
        (chosen, [*again, *ordered, *raced[:1]]),
        (large, [*again, *again[:1] * 2, *ordered, *raced]),
    ):
        for trial, subject in s.sound("determinism", trials):
            trouble = _order_trouble(subject, trial, ways) or _contents_trouble(subject, trial)
            if trouble:
                tally.fail(s.failure(trouble, trial))
            else:
                tally.passed()
    return tally.result()


def _order_trouble(subject: Subject, trial: Trial, ways: Sequence[tuple[str, How]]) -> str:
    base = subject.base(trial)
    inv = subject.invocation(trial)
    for said, how in ways:
        plan = subject.plan(trial, inv, how.threads)
        outcome = subject.harness.run(inv, how, workspace=max(plan.workspace, 0))
        if outcome.crash:
            return f"{said}: {outcome.crash}"
        if outcome.status != abi.OK:
            return f"{said}: refused with {abi.error_name(outcome.status)}"
        if differs := bits_differ(subject.op, base.outcome, outcome):
            return f"{said}: {differs}"
    return ""


def _contents_trouble(subject: Subject, trial: Trial) -> str:
    """Other contents at the same addresses give what they give at others; then the first again."""
    other = trial.with_arrays({k: _turned(a) for k, a in trial.arrays.items()}, "~turned")
    if not isinstance(subject.want(other), dict):
        return ""
    inv, base = subject.invocation(other), subject.base(trial)
    plan = subject.plan(other, inv)
    if plan.crash or plan.status != abi.OK:
        return ""
    harness = subject.harness
    harness.run(subject.invocation(trial), workspace=base.plan.workspace)
    here = harness.run(inv, workspace=plan.workspace)
    there = harness.run(inv, How(placement="end"), workspace=plan.workspace)
    again = harness.run(subject.invocation(trial), workspace=base.plan.workspace)
    for outcome in (here, there, again):
        if outcome.crash:
            return outcome.crash
    if differs := bits_differ(subject.op, there, here):
        return f"other contents at the same addresses: {differs}"
    return bits_differ(subject.op, base.outcome, again)


def _turned(a: Array) -> Array:
    """The same elements in reverse: another answer, and whatever held of every element still does."""
    return np.ascontiguousarray(a.reshape(-1)[::-1]).reshape(a.shape)


# ---- in place ----------------------------------------------------------------------------------------------------


def gate_inplace(s: Session) -> GateResult:
    """Where the spec lets an output take an input's storage: the same bits as apart."""
    tally = s.tally("inplace")
    pairs = {pair for op in s.ops.values() for pair in op.inplace}
    if not s.spec.inplace:
        return replace(
            tally.result(), state=NOT_APPLICABLE, minimum=0, note="the spec declares no in-place form"
        )

    def fits(trial: Trial) -> bool:
        return any(_may_take(s.subjects[trial.key], trial, out, given) for out, given in pairs)

    for trial, subject in s.sound("inplace", s.spread(48 if s.full else 8, fits)):
        for out, given in sorted(pairs):
            if not _may_take(subject, trial, out, given):
                continue
            trouble = _inplace_trouble(subject, trial, out, given)
            if trouble:
                tally.fail(s.failure(f"{out} over {given}: {trouble}", trial))
            else:
                tally.passed()
    return tally.result()


def _may_take(subject: Subject, trial: Trial, out: str, given: str) -> bool:
    """Whether the output may lie in the input's storage: one dtype, one shape."""
    array = trial.arrays.get(given)
    kind = next((t.dtype for t in subject.op.inputs if t.name == given), None)
    if array is None or kind is not subject.op.tensor(out).dtype:
        return False
    try:
        shapes = output_shapes(subject.op, trial.arrays, subject.attrs(trial), trial.out_shapes)
    except OracleRefusal:
        return False  # not a call that the operator takes
    return array.shape == shapes[out]


def _inplace_trouble(subject: Subject, trial: Trial, out: str, given: str) -> str:
    base = subject.base(trial)
    inv = subject.invocation(trial, alias={out: given})
    for how in (How(), How(parallel=True, threads=2)):
        plan = subject.plan(trial, inv, how.threads)
        outcome = subject.harness.run(inv, how, workspace=max(plan.workspace, 0))
        if outcome.crash:
            return outcome.crash
        if outcome.status != abi.OK:
            return f"refused with {abi.error_name(outcome.status)}"
        if outcome.damage:
            return outcome.damage[0]
        if differs := bits_differ(subject.op, base.outcome, outcome):
            return differs
    return ""


# ---- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """A row: the gate's name, what it proves, and how many cases it needs at the quick and the full tier."""

    name: str
    what: str
    quick: int
    full: int
    run: Callable[[Session], GateResult]

    def minimum(self, full: bool) -> int:
        return self.full if full else self.quick


GATES: tuple[Gate, ...] = (
    Gate("meaning", "`compute` agrees with a source that its author did not write", 4, 8, gate_meaning),
    Gate("lint", "the source does only what a kernel may", 1, 1, gate_lint),
    Gate("build", "it compiles, loads and exports its entries", 1, 1, gate_build),
    Gate("numerics", "every element is within its computed bound", 6, 12, gate_numerics),
    Gate("layouts", "any strides of inputs and outputs", 4, 8, gate_layouts),
    Gate("memory", "inputs untouched, outputs whole, nothing else read or written", 4, 8, gate_memory),
    Gate("determinism", "the same bits again, on any threads, in any order", 4, 8, gate_determinism),
    # an operator of bools of any shape has one way to be refused
    Gate("errors", "what the spec refuses is refused, with the right error", 1, 1, gate_errors),
    Gate("gradient", "the adjoint is the derivative, and its kernel computes it", 2, 4, gate_gradient),
    Gate("inplace", "written over its input, the same bits", 1, 2, gate_inplace),
)
GATE: dict[str, Gate] = {gate.name: gate for gate in GATES}
