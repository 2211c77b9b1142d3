"""The gate `meaning` in its parts: arguments of overloads, laws, second formulations, strength."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BindKey, BoundOp, KernelText
from opwright.generator.spec import AtenEntry, Only, OpSpec, load_spec_text
from opwright.generator.types import DType
from opwright.validators import meaning
from opwright.validators.ball import Ball
from opwright.validators.cases import make_cases
from opwright.validators.corpus import TextSource
from opwright.validators.judge import judge
from opwright.validators.lift import lift_key, lift_trial
from opwright.validators.meaning import aten_arguments, measure_strength
from opwright.validators.session import Session
from opwright.validators.trial import Trial
from opwright.validators.verdict import FAILED, PASSED

from .corpus_here import honest, spec_of
from .oracle_help import specs

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


def test_a_second_formulation_is_another() -> None:
    spec = (
        'op: t\ntypes: {T: float, A: accum(T)}\ndims: {B: batch}\ninputs: {x: "T[*B, N]"}\noutputs: {y: "T[*B]"}\n'
        "compute: |\n  m[*B] = sum[j](A(x[*B, j]))\n  y[*B] = T(m[*B] * 3)\n"
        "also: |\n  q[*B] = sum[k](A(x[*B, k]))\n  y[*B] = T(%s)\n"
        "grad: {none: not asked}\ntest: {cases: [{B: [3], N: 4}], values: [normal]}\n"
    )
    state, said = meaning_of(spec % "q[*B] * 3")
    assert state == FAILED
    assert "word for word" in said
    assert meaning_of(spec % "q[*B] + 2 * q[*B]")[0] == PASSED


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


# ---- what is forgiven, and what is not ---------------------------------------------------------------------------

POSITION = """
op: m_place
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B, N]"}
outputs: {y: "i64[*B]"}
require: ["N > 0"]
compute: |
  y[*B] = argmax[j](x[*B, j])
grad: {none: integer output}
test: {cases: [{B: [3], N: 5}, {B: [2, 4], N: 33}, {B: [], N: 7}], values: [exact, normal, zeros, all_equal]}
aten: [{overload: aten.argmax.default, map: {self: x, dim: {only: -1}}}]
"""
LAST = "y[*B] = N - 1 - argmax[j in N](x[*B, N - 1 - j])"


def meaning_of(text: str) -> tuple[str, str]:
    """State and first message of the gate on this spec, full tier (no kernel is asked)."""

    class Nothing:
        def forward(self, keys: Sequence[BindKey]) -> list[KernelText]:
            raise AssertionError("no kernel is needed")

        gradient = forward

        def gradient_op(self, key: BindKey) -> BoundOp:
            raise AssertionError("no gradient is needed")

    result = judge(load_spec_text(text)[0], Nothing(), gates=["meaning"]).gate("meaning")
    return result.state, result.failures[0].message if result.failures else result.note


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_documented_choice_among_equals_is_demanded() -> None:
    assert meaning_of(POSITION) == (PASSED, "")
    state, said = meaning_of(POSITION.replace("y[*B] = argmax[j](x[*B, j])", LAST))
    assert state == FAILED
    assert "aten.argmax.default `y`" in said


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_where_nothing_is_documented_another_choice_is_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "_TIES", {})
    state, said = meaning_of(POSITION.replace("y[*B] = argmax[j](x[*B, j])", LAST))
    assert (state, said) == (PASSED, "aten.argmax.default breaks ties in another way")
    assert meaning_of(POSITION.replace("argmax[j]", "argmin[j]"))[0] == FAILED


@pytest.mark.parametrize(
    ("overload", "rule"),
    [
        ("aten.argmax.default", "the first"),
        ("aten.max.dim", "the first"),
        ("aten.max.other", None),
        ("aten.cummax.default", "the last"),
        ("aten.sort.stable", "in the order of the input"),
        ("aten.sort.default", None),
        ("aten.topk.default", None),
    ],
)
def test_tie_rules_are_told_by_overload(overload: str, rule: str | None) -> None:
    assert meaning.tie_rule(overload) == rule


def test_of_bools_in_order_positions_alone_may_differ() -> None:
    """A sort that promises no order among equals: of five bools some are equal, whatever they are."""
    x = np.array([True, False, True, False, True])
    want = {"values": Ball(np.sort(x), DType.BOOL), "indices": Ball(np.array([1, 3, 0, 2, 4]), DType.I64)}
    trial = Trial("here", BindKey(), {"x": x})
    other = np.array([3, 1, 4, 0, 2])
    assert meaning._only_positions(trial, want, {"values": np.sort(x), "indices": other})
    assert not meaning._only_positions(trial, want, {"values": x, "indices": other})
    assert not meaning._only_positions(trial, want, {"indices": other})
    floats = Trial("here", BindKey(), {"x": x.astype(np.float64)})
    assert not meaning._only_positions(floats, want, {"values": np.sort(x), "indices": other})


# ---- classes in f64 ----------------------------------------------------------------------------------------------

HOLDS = {
    "denormal": lambda a: ((np.abs(a) < 2.0**-1022) & (a != 0)).any(),
    "nan": lambda a: np.isnan(a).any(),
    "inf": lambda a: np.isinf(a).any(),
    "nan_inf": lambda a: a.size < 3 or (np.isnan(a).any() and np.isposinf(a).any() and np.isneginf(a).any()),
    "halves": lambda a: ((a % 1) == 0.5).any(),
    "zeros": lambda a: a.size < 8 or (a == 0).any(),
    "all_equal": lambda a: np.ptp(a) == 0,
    "tiny": lambda a: a.size < 8 or np.abs(a).min() < 0.1,
    "large": lambda a: a.size < 8 or np.abs(a).max() > 10,
    "exact": lambda a: (a == np.rint(a)).all(),
}


@pytest.mark.parametrize("tier", ["quick", "full"])
@pytest.mark.parametrize("name", ["softmax", "add", "rms_norm", "clip"])
def test_every_class_survives_lifting(name: str, tier: str) -> None:
    s = specs()[name]
    trials = [Trial.of_case(c) for c in make_cases(s, tier, 4) if c.expect is None]
    session = Session(s, None, tier, 4, trials, [], [], {}, {}, None, {})  # type: ignore[arg-type]
    lifted = meaning._lifted(session, 10)
    assert {t.values for t in lifted} == {t.values for t in trials}
    of_attributes = [t for t in lifted if t.case.startswith(meaning._OF_ATTRIBUTES)]
    assert len(lifted) - len(of_attributes) >= 10  # they take no other's place
    assert of_attributes
    for t in lifted:
        floats = [a for a in t.arrays.values() if a.dtype == np.float64 and a.size]
        if t.values in HOLDS and floats:
            assert any(HOLDS[t.values](a) for a in floats), (t.name, t.values)


# ---- defaults, and arguments that a map ignores ------------------------------------------------------------------

SCALED = """
op: m_scaled
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {a: "T[*B]", b: "T[*B]"}
attrs: {alpha: {type: scalar, default: 1}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = T(A(a[*B]) + A(alpha) * A(b[*B]))
grad: {wrt: [a, b], derive: true}
test: {cases: [{B: [3, 5], alpha: 3}, {B: [4]}], values: [exact, normal]}
aten: [{overload: aten.add.Tensor, map: {self: a, other: b, alpha: alpha}}]
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("cases", ["{B: [3, 5], alpha: 3}, {B: [4]}", "{B: [3, 5], alpha: 3}"])
def test_a_default_has_to_be_the_overloads_own(cases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCALED.replace("{B: [3, 5], alpha: 3}, {B: [4]}", cases)
    assert meaning_of(text) == (PASSED, "")
    other = text.replace("default: 1", "default: 2")
    assert meaning_of(other) == (
        FAILED,
        "`alpha` of `m_scaled` is 2 by default, `alpha` of aten.add.Tensor is 1",
    )
    monkeypatch.setattr(
        meaning, "mistakes", lambda _: ()
    )  # where nobody knows the default, leaving it out shows
    state, said = meaning_of(other)
    assert state == FAILED
    assert "aten.add.Tensor `y`" in said


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_an_argument_that_the_map_ignores_may_not_matter() -> None:
    text = SCALED.replace("attrs: {alpha: {type: scalar, default: 1}}\n", "")
    text = text.replace("A(alpha) * ", "").replace(", alpha: 3", "").replace("alpha: alpha", "alpha: null")
    state, said = meaning_of(text)
    assert state == FAILED
    assert "with `alpha` = 0.5, which the map ignores" in said
    assert meaning_of(text.replace("alpha: null", "alpha: {only: 1}")) == (PASSED, "")


def test_a_fast_transform_is_held_to_the_whole_vectors_error() -> None:
    """The first of its reals is a sum of real parts alone, but butterflies add the imaginary parts to it and off it."""
    text = (
        "op: t\ntypes: {T: complex, R: real_of(T)}\ninputs: {x: 'T[B, M]'}\n"
        "attrs: {L: {type: int}}\noutputs: {y: 'R[B, L]'}\n"
        "compute: |\n  y[b, i in L] = sum[k](real(x[b, k]) * cos(R(k * i)) - imag(x[b, k]) * sin(R(k * i)))\n"
    )
    s = load_spec_text(text)[0]
    x = np.array([[1e-6 + 1e3j, 2e-6 + 3e3j], [1e-6 + 1e-6j, 2e-6 + 3e-6j]])
    key = next(k for k in keys_of(s) if dict(k.types)["T"] == "c128")
    t = Trial("t", key, {"x": x}, {"L": 3}, given={"L": 3})
    want = meaning._oracle(s, t)
    assert want is not None
    alone, along = (meaning._loosened(s, t, want, along=a)["y"].radius for a in ((), [1]))
    assert alone[0, 0] < 1e-6 * alone[0].max()
    assert (along[0] == alone[0].max()).all()
    assert along[1].max() < 1e-6 * along[0].max()


def test_garbage_in_a_refusal_is_no_part_of_the_evidence() -> None:
    said = "negative dimension -1: [112, 140160718703497, 94172975404640, 1, 2, 3, 4, 5, 6, 7, 8]"
    assert meaning._ADDRESS.sub("…", said) == "negative dimension -1: […]"
    assert meaning._ADDRESS.sub("…", "size 12 of [3, 4] is 1024") == "size 12 of [3, 4] is 1024"


def test_a_composition_is_asked_and_its_mistakes_are_told() -> None:
    """`reference: compositions.…` is a function over PyTorch's operators, run by the server."""
    spec = load_spec_text(
        """
op: m_silu
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, D]"}
outputs: {y: "T[*B, D // 2]"}
require: ["D % 2 == 0"]
compute: |
  g[*B, i in D // 2] = A(x[*B, i])
  y[*B, i in D // 2] = T(g[*B, i] * sigmoid(g[*B, i]) * A(x[*B, D // 2 + i]))
reference: compositions.silu_and_mul
test: {cases: [{B: [3], D: 4}], values: [normal]}
"""
    )[0]

    def said(of: OpSpec) -> tuple[str, str]:
        entry = next(e for e in honest() if e.name == "rowmax")
        r = judge(of, TextSource(replace(entry, spec=of)), gates=["meaning"]).gate("meaning")
        return r.state, r.failures[0].message if r.failures else ""

    assert said(spec) == (PASSED, "")
    state, why = said(replace(spec, reference="compositions.gelu_and_mul"))
    assert state == FAILED
    assert "compositions.gelu_and_mul `y`" in why
    state, why = said(replace(spec, reference="compositions.no_such"))
    assert state == FAILED
    assert "no_such" in why
