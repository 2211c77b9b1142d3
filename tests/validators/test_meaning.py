"""The gate `meaning` in its parts: arguments of overloads, laws, second formulations, strength."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opwright.generator.bind import keys_of
from opwright.generator.spec import AtenEntry, Only, OpSpec, load_spec_text
from opwright.validators.judge import judge
from opwright.validators.lift import lift_key, lift_trial
from opwright.validators.meaning import aten_arguments, measure_strength
from opwright.validators.trial import Trial
from opwright.validators.verdict import FAILED, PASSED

from .corpus import TextSource, honest, spec_of

SPEC = """
op: m_ops
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B]", w: "optional T[*B]"}
attrs: {alpha: {type: scalar, default: 1}, dim: {type: axis, default: -1}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = x[*B]
"""


def spec() -> OpSpec:
    return load_spec_text(SPEC)[0]


def trial(**given: object) -> Trial:
    x = np.ones(3, np.float32)
    return Trial("t", keys_of(spec())[0], {"x": x}, {}, given=given)


def test_arguments_go_where_the_map_says() -> None:
    entry = AtenEntry("aten.f.default", (("self", "x"), ("other", Only(2.5)), ("out", None), ("dim", "dim")))
    call = aten_arguments(spec(), entry, trial(dim=0))
    assert call is not None
    arguments, dtypes = call
    assert arguments["self"].shape == (3,)
    assert arguments["other"] == 2.5
    assert arguments["dim"] == 0
    assert "out" not in arguments
    assert dtypes == {}


def test_lists_are_shared_out() -> None:
    entry = AtenEntry("aten.f.default", (("self", "x"), ("pair", ("alpha", "dim"))))
    call = aten_arguments(spec(), entry, trial(alpha=3, dim=1))
    assert call is not None
    assert call[0]["pair"] == [3, 1]


@pytest.mark.parametrize(("given", "expressible"), [({}, True), ({"alpha": 1}, True), ({"alpha": 2}, False)])
def test_an_argument_that_the_overload_lacks_must_have_its_default(
    given: dict[str, object], expressible: bool
) -> None:
    entry = AtenEntry("aten.f.default", (("self", "x"), ("dim", "dim")))
    assert (aten_arguments(spec(), entry, trial(**given)) is not None) == expressible
    fixed = replace(entry, set={"alpha": 2})
    assert (aten_arguments(spec(), fixed, trial(**given)) is not None) == (given == {"alpha": 2})


def test_lifting_is_exact_and_leaves_integers() -> None:
    s = spec()
    t = replace(trial(), arrays={"x": np.array([0.1, np.inf], np.float32), "i": np.arange(3, dtype=np.int32)})
    key = lift_key(s, t.key)
    assert key is not None
    assert set(dict(key.types).values()) == {"f64"}
    lifted = lift_trial(t, key)
    assert lifted.arrays["x"].dtype == np.float64
    assert lifted.arrays["x"][0] == np.float64(np.float32(0.1))
    assert lifted.arrays["i"].dtype == np.int32


def judged(s: OpSpec) -> tuple[str, str]:
    entry = next(e for e in honest() if e.name == "rowmax")
    result = judge(s, TextSource(replace(entry, spec=s)), gates=["meaning"]).gate("meaning")
    return result.state, result.failures[0].message if result.failures else ""


def test_a_second_formulation_must_agree() -> None:
    assert judged(spec_of("c_rowmax")) == (PASSED, "")
    state, said = judged(spec_of("c_rowmax", [["-min[j](-x[*B, j])", "min[j](x[*B, j])"]]))
    assert state == FAILED
    assert "`also` `y`" in said


@pytest.mark.parametrize(
    ("law", "state"),
    [
        ("all[j](y[*B] >= x[*B, j])", PASSED),
        ("y[*B] == y[*B]", PASSED),
        ("all[j](y[*B] > x[*B, j])", FAILED),
        ("y[*B] == x[*B, 0]", FAILED),
    ],
)
def test_laws_hold_or_are_named(law: str, state: str) -> None:
    text = "  values: [normal, nan_inf, exact]\n"
    found, said = judged(spec_of("c_rowmax", [[text, f'{text}  checks: ["{law}"]\n']]))
    assert found == state
    assert (law in said) == (state == FAILED)


def test_a_reference_of_numpy_is_asked_and_others_are_refused() -> None:
    s = load_spec_text(SPEC.replace("y[*B] = x[*B]", "y[*B] = x[*B] if w is None else x[*B]"))[0]
    plain = load_spec_text(
        """
op: m_ref
types: {T: float}
dims: {B: batch}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = max(a[*B], b[*B])
reference: numpy.maximum
test: {cases: [{B: [3, 4]}], values: [normal, nan_inf]}
"""
    )[0]
    assert s.op == "m_ops"

    def state(of: OpSpec) -> tuple[str, str]:
        entry = next(e for e in honest() if e.name == "rowmax")
        r = judge(of, TextSource(replace(entry, spec=of)), gates=["meaning"]).gate("meaning")
        return r.state, r.failures[0].message if r.failures else ""

    assert state(plain) == (PASSED, "")
    assert state(replace(plain, reference="numpy.fmax"))[0] == FAILED
    assert "neither NumPy nor SciPy" in state(replace(plain, reference="os.getcwd"))[1]
    assert "there is no" in state(replace(plain, reference="numpy.no_such"))[1]


def test_strength_counts_what_the_cases_can_tell() -> None:
    s = spec_of("c_add")
    key = keys_of(s)[0]
    ones = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
    weak = measure_strength(s, [Trial("ones", key, ones, {"alpha": 1})])
    strong = measure_strength(
        s,
        [
            Trial(
                "apart",
                key,
                {"a": np.array([1, 2], np.float32), "b": np.array([5, -3], np.float32)},
                {"alpha": 2},
            )
        ],
    )
    assert strong.rate == 1
    assert weak.rate < 1
    assert any("alpha" in line for line in weak.survivors)
