"""The gate `errors`: calls are spoiled in every way, and the oracle's refusal is asked of the kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opwright.generator.bind import bind
from opwright.generator.bind_key import keys_of
from opwright.validators.candidate import Built
from opwright.validators.corpus import TextSource
from opwright.validators.harness import Harness
from opwright.validators.refusals import _refusal, spoiled
from opwright.validators.sandbox import Sandbox
from opwright.validators.trial import Subject, Trial

from .corpus_here import honest, spec_of


def trial_of(op: str, **arrays: np.ndarray) -> tuple[Trial, Subject]:
    spec = spec_of(op)
    key = keys_of(spec)[0]
    entry = replace(honest()[0], spec=spec)
    subject = Subject(
        bind(spec, key), Built(TextSource(entry).forward([key])[0]), Harness(Sandbox(arena=1 << 16))
    )
    return Trial("t", key, arrays), subject


def refusals(trial: Trial, subject: Subject) -> dict[str, tuple[str, int]]:
    kinds = {a.name: a.kind for a in subject.op.attrs}
    out = {}
    for what, bad in spoiled(trial, kinds):
        if (refusal := _refusal(subject, bad)) is not None:
            out[what] = (refusal.kind, refusal.which)
    return out


def test_shapes_that_disagree_and_ranks_that_are_missing() -> None:
    found = refusals(*trial_of("c_add", a=np.ones((2, 3), np.float32), b=np.ones((2, 3), np.float32)))
    assert found["extent 4 of axis 1 of b"] == ("shape", -1)
    found = refusals(*trial_of("c_softmax", x=np.ones((3,), np.float32)))
    assert found["rank 0 of x"][0] == "rank"


def test_axes_out_of_range() -> None:
    found = refusals(*trial_of("c_softmax", x=np.ones((2, 3), np.float32)))
    assert {found[f"axis = {axis}"][0] for axis in (2, -3, 64)} == {"axis"}


def test_rules_over_extents_and_over_data_are_negated() -> None:
    found = refusals(*trial_of("c_rowmax", x=np.ones((2, 3), np.float32)))
    assert found["extent 0 of axis 1 of x"] == ("require", 0)
    found = refusals(*trial_of("c_take", x=np.ones((5, 2), np.float32), i=np.arange(3)))
    assert found["i holds -1 at 0"] == found["i holds -1 at 2"] == ("data", 0)
    assert found["i holds 5 at 1"] == found["i holds 16384 at 1"] == ("data", 1)


def test_every_spoiled_call_has_a_name_of_its_own() -> None:
    trial, subject = trial_of("c_take", x=np.ones((5, 2), np.float32), i=np.arange(3))
    names = [bad.name for _, bad in spoiled(trial, {a.name: a.kind for a in subject.op.attrs})]
    assert len(set(names)) == len(names) > 10
    assert all(
        trial.arrays["i"] is not bad.arrays["i"] or "x" in what or "i" not in what.split()
        for what, bad in spoiled(trial, {})
        if "holds" in what and what.startswith("i")
    )
