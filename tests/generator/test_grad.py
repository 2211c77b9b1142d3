"""Derived gradients against finite differences in f64, their second derivatives, their signatures and their cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.bind import bind, bind_grad, rebind
from opwright.generator.bind_key import key_for_call, keys_of
from opwright.generator.bound import BoundOp, show_bound, show_statements
from opwright.generator.errors import DomainError, GradError
from opwright.generator.expr import parse_statements
from opwright.generator.grad import adjoint, with_saved
from opwright.generator.grad_cost import check_cost, cost
from opwright.generator.grad_push import cotangent_names, gradient_names
from opwright.generator.grad_rules import NotDifferentiable
from opwright.generator.normal import classify, normalise, verify
from opwright.generator.spec import OpSpec, Registry, load_spec, load_spec_text
from opwright.generator.types import DType, Operand

from .bound_interpreter import DTYPES, Array, run

Inputs = Mapping[str, Any]


@pytest.fixture(scope="session")
def forms(root: Path) -> Registry:
    """Specs that are hard to derive, each for one reason."""
    return Registry.load([root / "tests" / "generator" / "specs" / "grad_forms.yaml"])


class Specs:
    """The repository's specs, and of attention the form with a declared gradient (`attention`)."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry.load([root / "specs" / "ops"])
        (self.attention,) = load_spec(root / "tests" / "generator" / "specs" / "attention.yaml")

    def get(self, name: str) -> OpSpec:
        return self.attention if name == "attention" else self.registry.get(name)

    def all(self) -> list[OpSpec]:
        return list(self.registry.all())


@pytest.fixture(scope="session")
def registry(root: Path) -> Specs:
    return Specs(root)


def spec_of(text: str) -> OpSpec:
    """A spec from its meaning alone."""
    (spec,) = load_spec_text(text, "<test>")
    return spec


def normal(
    spec: OpSpec, inputs: Inputs, attrs: Mapping[str, Any] | None = None
) -> tuple[BoundOp, dict[str, Any]]:
    """The Normal program of a call, and the run-time attributes of it."""
    names = {np.dtype(v): k for k, v in DTYPES.items() if k != "bf16"}

    def operand(a: Any) -> Any:
        if isinstance(a, list):
            return [operand(x) for x in a]
        return Operand(DType(names[np.asarray(a).dtype]), np.asarray(a).ndim)

    got = key_for_call(spec, {n: operand(a) for n, a in inputs.items() if a is not None}, attrs or {})
    return normalise(bind(spec, got.key)), got.attrs


def flat(inputs: Inputs) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for n, a in inputs.items():
        if isinstance(a, list):
            out |= {f"{n}.{k}": np.asarray(x) for k, x in enumerate(a)}
        elif a is not None:
            out[n] = np.asarray(a)
    return out


def cotangents(op: BoundOp, values: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    return {d: rng.standard_normal(values[n].shape) for n, d in cotangent_names(op).items()}


def difference(
    op: BoundOp,
    inputs: Mapping[str, Array],
    attrs: Mapping[str, Any],
    dys: Mapping[str, Array],
    name: str,
    direction: Array,
    step: float = 1e-6,
) -> float:
    """The central difference of sum(dy * y) when one input moves along a direction."""
    cot = cotangent_names(op)

    def loss(x: Array) -> float:
        out = run(op, {**inputs, name: x}, attrs)
        return float(sum(np.sum(out[n] * dys[d]) for n, d in cot.items()))

    x = np.asarray(inputs[name], dtype=np.float64)
    return (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)


def directions(shape: tuple[int, ...], every: bool, rng: np.random.Generator) -> list[Array]:
    """Each element alone, or two random directions."""
    if not every:
        return [rng.standard_normal(shape) for _ in range(2)]
    size = int(np.prod(shape))
    return list(np.eye(size).reshape(size, *shape))


def evaluate(
    op: BoundOp,
    gradient: BoundOp,
    inputs: Mapping[str, Array],
    attrs: Mapping[str, Any],
    dys: Mapping[str, Array],
    save: Sequence[str],
) -> dict[str, Array]:
    forward = with_saved(op, save)
    values = run(forward, inputs, attrs)
    given = {**inputs, **{n: values[n] for n in save if n in values}, **dys}
    return run(gradient, {t.name: given[t.name] for t in gradient.inputs}, attrs)


def check(
    op: BoundOp,
    inputs: Inputs,
    attrs: Mapping[str, Any],
    wrt: Sequence[str],
    *,
    save: Sequence[str] = (),
    second: bool = True,
    every: bool = True,
    tol: float = 1e-6,
) -> BoundOp:
    """The adjoint agrees with finite differences of the forward, and (`second`) its adjoint with those of it.

    every: by every element of the inputs, else along random directions (as for second derivatives).
    """
    rng = np.random.default_rng(7)
    given = flat(inputs)
    dys = cotangents(op, run(op, given, attrs), rng)
    g = adjoint(op, wrt, save)
    verify(g)
    assert g.name == f"{op.name}.grad"
    got = evaluate(op, g, given, attrs, dys, save)
    names = gradient_names(op, wrt)
    assert {t.name for t in g.outputs} == set(names.values())
    for n, d in names.items():
        assert got[d].shape == given[n].shape
        for v in directions(got[d].shape, every, rng):
            want = difference(op, given, attrs, dys, n, v)
            np.testing.assert_allclose(
                np.sum(got[d] * v), want, rtol=tol, atol=tol, err_msg=f"{d}\n{show_bound(g)}"
            )
    if second:
        plain = adjoint(op, wrt) if save else g
        again = {t.name: {**given, **dys}[t.name] for t in plain.inputs}
        check(
            plain,
            again,
            attrs,
            [n for n in again if again[n].dtype == np.float64],
            second=False,
            every=False,
            tol=20 * tol,
        )
    return g


def normal_data(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# ------------------------------------------------------------------------------------------ the repository's specs

CASES: dict[str, tuple[str, Inputs, dict[str, Any], list[str]]] = {
    "add": ("add", {"a": normal_data(4, 1, 3), "b": normal_data(2, 1, seed=1)}, {"alpha": 2.5}, ["a", "b"]),
    "add_lower": ("add", {"a": normal_data(3), "b": normal_data(2, 3, seed=1)}, {}, ["a", "b"]),
    "mul": ("mul", {"a": normal_data(4, 1), "b": normal_data(2, 1, 3, seed=1)}, {}, ["a", "b"]),
    "softmax": ("softmax", {"x": normal_data(2, 2, 5)}, {}, ["x"]),
    "log_softmax": ("log_softmax", {"x": normal_data(3, 4)}, {}, ["x"]),
    "rms_norm": (
        "rms_norm",
        {"x": normal_data(3, 5), "w": normal_data(5, seed=1)},
        {"normalized_shape": (5,)},
        ["x", "w"],
    ),
    "rms_norm_bare": (
        "rms_norm",
        {"x": normal_data(3, 5), "w": None},
        {"normalized_shape": (5,)},
        ["x", "w"],
    ),
    "layer_norm": (
        "native_layer_norm",
        {"x": normal_data(3, 2, 3), "w": normal_data(2, 3, seed=1), "b": normal_data(2, 3, seed=2)},
        {"normalized_shape": (2, 3)},
        ["x", "w", "b"],
    ),
    "matmul": ("matmul", {"a": normal_data(3, 1, 2, 3), "b": normal_data(2, 3, 2, seed=1)}, {}, ["a", "b"]),
    "linear": (
        "linear",
        {"x": normal_data(2, 2, 3), "w": normal_data(4, 3, seed=1), "b": normal_data(4, seed=2)},
        {},
        ["x", "w", "b"],
    ),
    "addmm": (
        "addmm",
        {"c": normal_data(3), "a": normal_data(2, 4, seed=1), "b": normal_data(4, 3, seed=2)},
        {"alpha": 0.5, "beta": 2.0},
        ["c", "a", "b"],
    ),
    "addmm_column": (
        "addmm",
        {"c": normal_data(2, 1), "a": normal_data(2, 4, seed=1), "b": normal_data(4, 3, seed=2)},
        {},
        ["c", "a", "b"],
    ),
    "embedding": ("embedding", {"w": normal_data(4, 3), "i": np.array([[1, 1], [3, 0]])}, {}, ["w"]),
    "gather": ("gather", {"x": normal_data(3, 5), "i": np.array([[1, 4], [1, 1]])}, {"dim": 1}, ["x"]),
    "index_select": ("index_select", {"x": normal_data(3, 5), "i": np.array([4, 1, 4])}, {"dim": 1}, ["x"]),
    "cat": (
        "cat",
        {"xs": [normal_data(2, 3), normal_data(2, 1, seed=1), normal_data(2, 2, seed=2)]},
        {"dim": 1},
        ["xs"],
    ),
    "sum": ("sum", {"x": normal_data(2, 3, 2)}, {"dim": (1, 2)}, ["x"]),
    "convolution": (
        "convolution",
        {"x": normal_data(2, 4, 7, 5), "w": normal_data(4, 2, 3, 2, seed=1), "b": normal_data(4, seed=2)},
        {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2},
        ["x", "w", "b"],
    ),
    "attention": (
        "attention",
        {
            "q": normal_data(1, 4, 3, 2),
            "k": normal_data(1, 2, 5, 2, seed=1),
            "v": normal_data(1, 2, 5, 3, seed=2),
        },
        {},
        ["q", "k", "v"],
    ),
    "attention_causal": (
        "attention",
        {
            "q": normal_data(2, 2, 3, 2),
            "k": normal_data(2, 1, 2, 2, seed=1),
            "v": normal_data(2, 1, 2, 3, seed=2),
        },
        {"causal": True, "scale": 0.7},
        ["q", "k", "v"],
    ),
    "sdpa_with_mask": (
        "scaled_dot_product_attention",
        {
            "q": normal_data(1, 4, 3, 2),
            "k": normal_data(1, 2, 5, 2, seed=1),
            "v": normal_data(1, 2, 5, 3, seed=2),
            "mask": normal_data(3, 1, seed=3),
        },
        {"gqa": True},
        ["q", "k", "v", "mask"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_specs_agree_with_finite_differences(registry: Specs, case: str) -> None:
    name, inputs, attrs, wrt = CASES[case]
    op, values = normal(registry.get(name), inputs, attrs)
    check(op, inputs, values, wrt)


# ------------------------------------------------------------------------------------------------ forms of statements

#: Inputs and attributes of each spec in specs/grad_forms.yaml.
FORMS: dict[str, tuple[Inputs, dict[str, Any]]] = {
    "cumsum": ({"x": normal_data(2, 5)}, {"dim": -1}),
    "amax": ({"x": normal_data(3, 5)}, {}),
    "min_of_a_window": ({"x": normal_data(7)}, {}),
    "where": ({"c": np.array([[True], [False]]), "a": normal_data(3), "b": normal_data(2, 3, seed=1)}, {}),
    "pow": ({"a": np.abs(normal_data(2, 3)) + 0.5, "b": normal_data(3, seed=1)}, {}),
    "pow_by_attribute": ({"x": np.abs(normal_data(4)) + 0.5}, {"p": 2.5}),
    "index_put": ({"x": normal_data(5, 2), "i": np.array([3, -1, 3, 0]), "v": normal_data(4, 2, seed=1)}, {}),
    "index_put_twice": (
        {
            "x": normal_data(6),
            "i": np.array([3, 1, 3, 0]),
            "v": np.array([1.0, 2, 20, 4]),
            "k": np.array([0, 5, 5]),
            "w": normal_data(3, seed=2),
        },
        {},
    ),
    "index_add": ({"x": normal_data(5, 2), "i": np.array([3, 1, 3, 0]), "v": normal_data(4, 2, seed=1)}, {}),
    "slice_scatter": (
        {"x": normal_data(2, 7), "s": normal_data(2, 3, seed=1)},
        {"dim": 1, "start": 1, "step": 2},
    ),
    "scatter_amax": (
        {"x": normal_data(4), "idx": np.array([0, 2, 2, 3, 0]), "src": normal_data(5, seed=1)},
        {},
    ),
    "scatter_prod": (
        {
            "x": np.array([1.5, 0.0, 2.0, 0.0]),
            "idx": np.array([0, 1, 1, 3, 0, 2]),
            "src": np.array([2.0, 3.0, 0.5, 0.0, 0.0, 1.0]),
        },
        {},
    ),
    "prod": ({"x": np.array([[1.5, -2, 3], [0, 2, 3], [0, 2, 0], [0, 0, 0]])}, {}),
    "var": ({"x": normal_data(2, 2, 3)}, {"dim": (1, 2), "keepdim": True}),
    "group_norm": ({"x": normal_data(2, 4, 3), "w": normal_data(4, seed=1)}, {"group": 2}),
    "transposed_convolution": (
        {"x": normal_data(1, 4, 3, 2), "w": normal_data(4, 2, 2, 3, seed=1)},
        {"stride": (2, 1), "padding": (1, 1), "output_padding": (1, 0), "dilation": (1, 1), "groups": 2},
    ),
    "clamp": ({"x": normal_data(6)}, {"lo": -0.5, "hi": 0.5}),
    "recurrence": ({"x": normal_data(2, 4), "a": normal_data(4, seed=1), "h0": normal_data(2, seed=2)}, {}),
    "delta_rule": (
        {
            "q": normal_data(1, 3, 2),
            "k": normal_data(1, 3, 2, seed=1),
            "v": normal_data(1, 3, 2, seed=2),
            "g": normal_data(1, 3, seed=3),
            "beta": normal_data(1, 3, seed=4),
            "s0": normal_data(1, 2, 2, seed=5),
        },
        {},
    ),
    "lstm_cell": (
        {
            "x": normal_data(2, 3),
            "h": normal_data(2, 2, seed=1),
            "c": normal_data(2, 2, seed=2),
            "wi": normal_data(8, 3, seed=3),
            "wh": normal_data(8, 2, seed=4),
        },
        {},
    ),
    "grid_sampler": ({"x": normal_data(1, 2, 3, 4), "g": normal_data(1, 2, 2, 2, seed=1) * 0.6}, {}),
    "a_guard_that_ties_two_indices": ({"x": normal_data(5), "w": normal_data(3, seed=1)}, {}),
    "an_expanded_pack": (
        {
            "x": normal_data(5, 2),
            "i": np.array([[0], [1]]),
            "k": np.array([0, 3, 1]),
            "v": normal_data(3, 1, seed=1),
        },
        {},
    ),
    "values_that_lack_an_index": ({"x": normal_data(3), "w": normal_data(3, 2, seed=1)}, {}),
    "one_load_two_ways": ({"x": normal_data(4), "w": normal_data(4, seed=1)}, {}),
    "a_scalar_output": ({"x": normal_data(2, 3), "t": normal_data(2, 3, seed=1)}, {}),
    "a_deep_chain": ({"x": normal_data(4), "w": normal_data(4, seed=1)}, {}),
}


@pytest.mark.parametrize("case", FORMS)
def test_forms_agree_with_finite_differences(forms: Registry, case: str) -> None:
    inputs, attrs = FORMS[case]
    spec = forms.get(case)
    op, values = normal(spec, inputs, attrs)
    assert spec.grad is not None
    check(op, inputs, values, spec.grad.wrt, tol=3e-6)


UNARY = {
    "exp": 0,
    "exp2": 0,
    "expm1": 0,
    "log": 1,
    "log2": 1,
    "log10": 1,
    "log1p": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "sin": 0,
    "cos": 0,
    "tan": 0,
    "asin": 2,
    "acos": 2,
    "atan": 0,
    "sinh": 0,
    "cosh": 0,
    "tanh": 0,
    "asinh": 0,
    "acosh": 3,
    "atanh": 2,
    "sigmoid": 0,
    "erf": 0,
    "erfc": 0,
    "abs": 0,
    "sign": 0,
    "floor": 0,
    "ceil": 0,
    "trunc": 0,
    "round": 0,
}


@pytest.mark.parametrize("fn", UNARY)
def test_functions_agree_with_finite_differences(fn: str) -> None:
    domain = UNARY[fn]
    x = normal_data(5, seed=3)
    x = [x, np.abs(x) + 0.3, np.tanh(x) * 0.9, np.abs(x) + 1.2][domain]
    op, attrs = normal(
        spec_of(f"""
op: f
types: {{T: float}}
inputs: {{x: "T[N]"}}
outputs: {{y: "T[N]"}}
compute: |
  y[i] = {fn}(x[i]) * x[i]
grad: {{wrt: [x], derive: true}}
"""),
        {"x": x},
    )
    check(op, {"x": x}, attrs, ["x"], tol=1e-5)


# ------------------------------------------------------------------------------------------------ subgradients


def derive(compute: str, inputs: Inputs, *, dims: str = "N", temps: str = "") -> dict[str, Array]:
    """Gradients of the sum of y, where `compute` makes y of the same shape from inputs of one shape."""
    text = f"""
op: f
types: {{T: float}}
inputs: {{{", ".join(f'{n}: "T[{dims}]"' for n in inputs)}}}
outputs: {{y: "T[{dims}]"}}
compute: |
  {compute}
grad: {{wrt: [{", ".join(inputs)}], derive: true}}
"""
    op, attrs = normal(spec_of(text), inputs)
    g = adjoint(op, list(inputs))
    y = run(op, inputs, attrs)["y"]
    return run(g, {t.name: {**inputs, "dy": np.ones_like(y)}[t.name] for t in g.inputs}, attrs)


def test_max_reduction_splits_evenly_over_ties(forms: Registry) -> None:
    op, _ = normal(forms.get("amax"), {"x": normal_data(1, 4)})
    got = run(adjoint(op, ["x"]), {"x": np.array([[3.0, 1, 3, 3]]), "dy": np.array([6.0])})
    assert got["dx"].tolist() == [[2, 0, 2, 2]]


def test_scatter_max_splits_evenly_over_ties_with_its_base(forms: Registry) -> None:
    op, _ = normal(
        forms.get("scatter_amax"), {"x": normal_data(2), "idx": np.array([0]), "src": normal_data(1)}
    )
    g = adjoint(op, ["x", "src"])
    given = {
        "x": np.array([2.0, 1]),
        "idx": np.array([0, 0, 1]),
        "src": np.array([2.0, 2, 0]),
        "dy": np.array([3.0, 1]),
    }
    got = run(g, {t.name: given[t.name] for t in g.inputs})
    assert got["dx"].tolist() == [4, 2]
    assert got["dsrc"].tolist() == [4, 4, 0]


def test_maximum_and_minimum_halve_at_ties_and_fmax_takes_the_first() -> None:
    a, b = np.array([1.0, 2, 3]), np.array([1.0, 1, 4])
    assert derive("y[i] = max(a[i], b[i])", {"a": a, "b": b})["da"].tolist() == [0.5, 1, 0]
    assert derive("y[i] = min(a[i], b[i])", {"a": a, "b": b})["db"].tolist() == [0.5, 1, 0]
    got = derive("y[i] = fmax(a[i], b[i])", {"a": a, "b": np.array([1.0, np.nan, 4])})
    assert got["da"].tolist() == [1, 1, 0]
    assert got["db"].tolist() == [0, 0, 1]


def test_max_of_three_shares_between_those_that_are_equal() -> None:
    x = {"a": np.array([1.0, 5]), "b": np.array([1.0, 5]), "c": np.array([0.0, 5])}
    got = derive("y[i] = max(a[i], b[i], c[i])", x)
    np.testing.assert_allclose([got["da"], got["db"], got["dc"]], [[0.5, 1 / 3], [0.5, 1 / 3], [0, 1 / 3]])


def test_clamp_passes_at_the_bound_and_abs_is_zero_at_zero(forms: Registry) -> None:
    x = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    op, attrs = normal(forms.get("clamp"), {"x": x}, {"lo": -0.5, "hi": 0.5})
    assert run(adjoint(op, ["x"]), {"x": x, "dy": np.ones(5)}, attrs)["dx"].tolist() == [0, 1, 1, 1, 0]
    assert derive("y[i] = abs(x[i])", {"x": np.array([-2.0, 0, 2])})["dx"].tolist() == [-1, 0, 1]


def test_an_angle_has_no_slope_at_the_origin() -> None:
    got = derive("y[i] = atan2(a[i], b[i])", {"a": np.array([0.0, 0, -0.0]), "b": np.array([0.0, 2, -0.0])})
    assert (got["da"].tolist(), got["db"].tolist()) == ([0, 0.5, 0], [0, 0, 0])


def test_a_choice_has_the_slope_of_what_is_chosen() -> None:
    x = {"x": np.array([-1.0, 0, 2])}
    assert derive("y[i] = 0 if x[i] <= 0 else x[i]", x)["dx"].tolist() == [0, 0, 1]
    assert derive("y[i] = 0 if x[i] == 0 else sqrt(x[i] * x[i])", x)["dx"].tolist() == [-1, 0, 1]


def test_powers_at_zero() -> None:
    x = {"a": np.array([0.0, 0, 2]), "b": np.array([0.0, 2, 0])}
    got = derive("y[i] = a[i] ** b[i]", x)
    np.testing.assert_allclose(got["da"], [0, 0, 0])
    np.testing.assert_allclose(got["db"], [0, 0, np.log(2)])
    assert derive("y[i] = x[i] ** 2", {"x": np.array([0.0, -3])})["dx"].tolist() == [0, -6]


def test_prod_with_zeros_and_its_second_derivative(forms: Registry) -> None:
    op, _ = normal(forms.get("prod"), {"x": normal_data(1, 3)})
    g = adjoint(op, ["x"])
    assert run(g, {"x": np.array([[0.0, 2, 3]]), "dy": np.ones(1)})["dx"].tolist() == [[6, 0, 0]]
    h = adjoint(g, ["x"])
    got = run(h, {"x": np.array([[0.0, 2, 3]]), "dy": np.ones(1), "ddx": np.array([[0.0, 1, 0]])})
    assert got["dx"].tolist() == [[3, 0, 0]]


def test_calls_inside_calls_are_made_once_each() -> None:
    x = normal_data(3) / 4
    op, attrs = normal(
        spec_of("""
op: f
types: {T: float}
inputs: {x: "T[N]"}
outputs: {y: "T[N]"}
compute: |
  y[i] = exp(sin(exp(tanh(exp(x[i])))))
grad: {wrt: [x], derive: true}
"""),
        {"x": x},
    )
    g = check(op, {"x": x}, attrs, ["x"])
    assert cost(g, {"N": 1}).calls <= 3 * cost(op, {"N": 1}).calls


def test_the_branch_not_taken_gives_no_nan() -> None:
    got = derive("y[i] = sqrt(x[i]) if x[i] > 0 else 0", {"x": np.array([0.0, 4])})
    assert got["dx"].tolist() == [0, 0.25]


def test_fully_masked_attention_rows_have_finite_gradients(registry: Specs) -> None:
    inputs = {
        "q": normal_data(1, 1, 3, 2),
        "k": normal_data(1, 1, 2, 2, seed=1),
        "v": normal_data(1, 1, 2, 2, seed=2),
    }
    op, attrs = normal(registry.get("attention"), inputs, {"causal": True})
    got = run(adjoint(op, ["q", "k", "v"]), {**inputs, "dy": np.ones((1, 1, 3, 2))}, attrs)
    assert all(np.isfinite(v).all() for v in got.values())
    assert not got["dq"][0, 0, 0].any()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_tensors(registry: Specs, shape: tuple[int, int]) -> None:
    x = np.zeros(shape)
    op, attrs = normal(registry.get("softmax"), {"x": x})
    assert run(adjoint(op, ["x"]), {"x": x, "dy": x}, attrs)["dx"].shape == shape


# ------------------------------------------------------------------------------------------------ saving and declaring


def test_a_saved_output_is_read_and_not_computed_again(registry: Specs) -> None:
    x = normal_data(3, 4)
    op, attrs = normal(registry.get("softmax"), {"x": x})
    assert "y" not in [t.name for t in adjoint(op, ["x"]).inputs]
    g = check(op, {"x": x}, attrs, ["x"], save=["e", "s"])
    assert [t.name for t in g.inputs] == ["e", "s", "dy"]
    assert "exp(" not in show_statements(g.body)


def test_with_saved_turns_temporaries_into_auxiliary_outputs(registry: Specs) -> None:
    x = normal_data(3, 4)
    op, attrs = normal(registry.get("softmax"), {"x": x})
    forward = with_saved(op, ["e", "x", "y"])
    verify(forward)
    assert [(t.name, t.role, t.aux) for t in forward.outputs] == [
        ("y", "output", False),
        ("e", "output", True),
    ]
    assert "e" not in [t.name for t in forward.temps]
    np.testing.assert_allclose(run(forward, {"x": x}, attrs)["e"], np.exp(x - x.max(1, keepdims=True)))
    # `aux` outputs have no adjoint.
    assert [t.name for t in adjoint(forward, ["x"]).inputs] == ["x", "dy"]


DECLARED = ["softmax", "log_softmax", "attention", "attention_causal"]


@pytest.mark.parametrize("case", DECLARED)
def test_declared_gradients_are_the_derived_ones(registry: Specs, case: str) -> None:
    name, inputs, attrs, wrt = CASES[case]
    if case == "attention_causal":  # the declared one reads lse, which is -inf where a row sees nothing
        inputs = {"q": normal_data(2, 2, 2, 2), "k": inputs["k"], "v": inputs["v"]}
    spec = registry.get(name)
    op, values = normal(spec, inputs, attrs)
    declared = normalise(bind_grad(spec, op.key))
    out = run(op, flat(inputs), values)
    given = {**flat(inputs), **out, **cotangents(op, out, np.random.default_rng(1))}
    derived = adjoint(op, wrt)
    want = run(derived, {t.name: given[t.name] for t in derived.inputs}, values)
    got = run(declared, {t.name: given[t.name] for t in declared.inputs}, values)
    assert got.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=1e-9, atol=1e-12)


def test_a_declared_gradient_is_derived_again(registry: Specs) -> None:
    spec = registry.get("softmax")
    x = normal_data(2, 3)
    op, attrs = normal(spec, {"x": x})
    first = normalise(bind_grad(spec, op.key))
    given = {"x": x, "y": run(op, {"x": x}, attrs)["y"], "dy": normal_data(2, 3, seed=4)}
    assert gradient_names(first, ["y", "dy"]) == {"y": "dy_1", "dy": "ddy"}
    check(first, given, attrs, ["y", "dy"], second=False)


# ------------------------------------------------------------------------------------------------ signatures


def test_what_only_gives_a_shape_is_noted(registry: Specs) -> None:
    op, _ = normal(registry.get("add"), {"a": normal_data(3), "b": normal_data(2, 3)})
    g = adjoint(op, ["a", "b"])
    assert [t.name for t in g.inputs] == ["a", "b", "dy"]
    assert g.notes == ("only the shape is read of: a, b",)
    assert {d.name: d.sources for d in g.dims} == {
        "B": (("a", 0), ("b", 0), ("dy", 0)),
        "B_a": (("a", 0),),
        "B_b": (("b", 0),),
    }
    op, _ = normal(registry.get("sum"), {"x": normal_data(3, 2)}, {"dim": (0,)})
    assert adjoint(op, ["x"]).notes == ("only the shape is read of: x",)


def test_only_what_is_read_is_an_input(registry: Specs) -> None:
    inputs = {"x": normal_data(2, 3), "w": normal_data(4, 3), "b": normal_data(4)}
    op, _ = normal(registry.get("linear"), inputs)
    assert [t.name for t in adjoint(op, ["x"]).inputs] == ["w", "dy"]
    assert [t.name for t in adjoint(op, ["w"]).inputs] == ["x", "dy"]
    assert [t.name for t in adjoint(op, ["b"]).inputs] == ["dy"]
    assert [t.name for t in adjoint(op, ["x", "w", "b"]).outputs] == ["dx", "dw", "db"]


def test_an_absent_input_has_no_gradient_and_an_unknown_one_is_an_error(registry: Specs) -> None:
    op, _ = normal(registry.get("linear"), {"x": normal_data(2, 3), "w": normal_data(4, 3), "b": None})
    assert [t.name for t in adjoint(op, ["x", "w", "b"]).outputs] == ["dx", "dw"]
    with pytest.raises(NotDifferentiable, match="no input `v`"):
        adjoint(op, ["v"])
    with pytest.raises(NotDifferentiable, match="nothing is called `q`"):
        adjoint(op, ["x"], save=["q"])


def test_entries_of_a_list_have_gradients_of_their_own(registry: Specs) -> None:
    op, _ = normal(registry.get("cat"), {"xs": [normal_data(2, 3), normal_data(2, 1)]}, {"dim": 1})
    g = adjoint(op, ["xs"])
    assert [(t.name, t.list_of) for t in g.outputs] == [("dxs.0", "dxs"), ("dxs.1", "dxs")]
    assert [t.name for t in g.inputs] == ["xs.0", "xs.1", "dy"]


def test_an_input_that_changes_nothing_has_a_zero_gradient() -> None:
    got = derive("y[i] = floor(a[i]) + b[i] * 0", {"a": normal_data(3), "b": normal_data(3)})
    assert not got["da"].any()


def test_the_gradient_of_an_expanded_input_has_its_shape(registry: Specs) -> None:
    inputs = {"c": normal_data(3), "a": normal_data(2, 4), "b": normal_data(4, 3)}
    op, _ = normal(registry.get("addmm"), inputs)
    dc = adjoint(op, ["c"]).tensor("dc")
    assert (dc.expand, dc.like) == (True, "c")


def test_half_types_are_summed_in_their_accumulator_and_rounded_once(registry: Specs) -> None:
    spec = registry.get("rms_norm")
    x, w = Operand(DType.BF16, 2), Operand(DType.BF16, 1)
    op = normalise(bind(spec, key_for_call(spec, {"x": x, "w": w}, {"normalized_shape": (4,)}).key))
    g = adjoint(op, ["x", "w"])
    assert {t.dtype for t in g.temps} == {DType.F32}
    assert {t.dtype for t in g.outputs} == {DType.BF16}
    assert show_statements(g.body).count("bf16(") == 2


def test_extents_that_the_forward_derives_come_from_the_cotangent_where_that_is_simpler(
    registry: Specs,
) -> None:
    name, inputs, attrs, _ = CASES["convolution"]
    op, _ = normal(registry.get(name), inputs, attrs)
    bias = adjoint(op, ["b"])
    assert [t.name for t in bias.inputs] == ["dy"]
    assert bias.dim("P_0").sources == (("dy", 2),)
    # With x and w there anyway, the extents of dy are checked against theirs.
    assert adjoint(op, ["x", "w"]).dim("P_0").expr is not None


def test_extents_that_depend_on_data_are_not_computed_again() -> None:
    spec = spec_of("""
op: f
types: {T: any, I: index}
inputs: {x: "T[N, *C]", r: "I[N]"}
dims: {C: batch}
sizes: {M: "sum[i](r[i])"}
outputs: {y: "T[M, *C]"}
require: ["r[i] >= 0"]
compute: |
  e[i in N] = sum[j](r[j] if j <= i else 0)
  src[m in M] = sum[i](1 if e[i] <= m else 0)
  y[m, *C] = x[src[m], *C]
grad: {wrt: [x], derive: true}
""")
    op, _ = normal(spec, {"x": normal_data(3, 2), "r": np.array([2, 0, 1])})
    g = adjoint(op, ["x"])
    assert not g.dim("M").data
    given = {"x": normal_data(3, 2), "r": np.array([2, 0, 1]), "dy": np.array([[1.0, 2], [3, 4], [5, 6]])}
    got = run(g, {t.name: given[t.name] for t in g.inputs})
    assert got["dx"].tolist() == [[4, 6], [0, 0], [5, 6]]


def test_axis_marks_and_kept_axes_come_back(registry: Specs) -> None:
    op, _ = normal(registry.get("sum"), {"x": normal_data(3, 2)}, {"dim": (0,), "keepdim": True})
    g = adjoint(op, ["x"])
    assert [d.at for d in g.tensor("dx").dims] == [None, "dim"]
    assert [d.keep for d in g.tensor("dy").dims] == [False, True]


def test_the_adjoint_of_a_product_of_matrices_is_two_contractions(registry: Specs) -> None:
    op, _ = normal(registry.get("linear"), {"x": normal_data(2, 3), "w": normal_data(4, 3), "b": None})
    g = adjoint(op, ["x", "w"])
    assert classify(g) == "contract"
    assert g.temps == ()
    assert show_statements(g.body) == (
        "dx[*B, k] = sum[n](dy[*B, n] * w[n, k])\ndw[n, k] = sum[*B](dy[*B, n] * x[*B, k])\n"
    )


@pytest.mark.parametrize(
    "case", ["softmax", "rms_norm", "layer_norm", "linear", "matmul", "convolution", "attention"]
)
def test_what_is_printed_reads_back(registry: Specs, case: str) -> None:
    name, inputs, attrs, wrt = CASES[case]
    op, _ = normal(registry.get(name), inputs, attrs)
    g = adjoint(op, wrt)
    assert rebind(g, parse_statements(show_statements(g.body))).body == g.body


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ("y[i] = real(complex(x[i], x[i]))", "complex"),
        ("a[i] = x[i]\n  b[i] = a[i] * 2\n  a[i] += b[i]\n  y[i] = a[i]", "read here and updated later"),
    ],
)
def test_what_has_no_derivative_yet_is_named(compute: str, message: str) -> None:
    text = f"""
op: f
types: {{T: float}}
inputs: {{x: "T[N]"}}
outputs: {{y: "T[N]"}}
compute: |
  {compute}
grad: {{wrt: [x], derive: true}}
"""
    op, _ = normal(spec_of(text), {"x": normal_data(3)})
    with pytest.raises(NotDifferentiable, match=message) as e:
        adjoint(op, ["x"])
    assert e.value.place is not None
    assert e.value.hint


def test_integers_have_no_gradient(registry: Specs) -> None:
    op, _ = normal(registry.get("add"), {"a": np.array([1]), "b": np.array([2])})
    with pytest.raises(NotDifferentiable, match="floating dtype"):
        adjoint(op, ["a", "b"])


# ------------------------------------------------------------------------------------------------ cost

SIZES: dict[str, Any] = {
    "B": (64,),
    "N": 512,
    "D": (512,),
    "D_0": 32,
    "D_1": 16,
    "H": 8,
    "G": 2,
    "L": 128,
    "S": 128,
    "E": 64,
    "F": 64,
    "M": 128,
    "K": 128,
    "B_a": (64,),
    "B_b": (64,),
}


@pytest.mark.parametrize(
    "case",
    ["softmax", "log_softmax", "layer_norm", "rms_norm", "attention", "attention_causal", "linear", "matmul"],
)
def test_an_adjoint_costs_a_small_multiple_of_its_forward(registry: Specs, case: str) -> None:
    name, inputs, attrs, wrt = CASES[case]
    op, values = normal(registry.get(name), inputs, attrs)
    floats = {k: v for k, v in values.items() if isinstance(v, (int, float))}
    assert 1 < check_cost(op, adjoint(op, wrt), SIZES, floats) <= 4


def test_cost_counts_each_part_as_often_as_its_indices_ask(registry: Specs) -> None:
    op, _ = normal(registry.get("softmax"), {"x": normal_data(2, 3)})
    got = cost(op, {"B": (2,), "N": 3})
    # max 6, subtract 6, sum 6, divide 6; exp 6; m, e and s are temporaries
    assert (got.plain, got.calls, got.elements, got.total) == (24, 6, 2 + 6 + 2, 72)


def test_a_gradient_that_costs_too_much_is_refused(registry: Specs) -> None:
    op, _ = normal(registry.get("softmax"), {"x": normal_data(2, 3)})
    with pytest.raises(GradError, match="times its forward"):
        check_cost(op, adjoint(op, ["x"]), {"B": (2,), "N": 3}, factor=1.0)


#: Operators without a second derivative, and what it needs.
NO_SECOND = {"digamma": "polygamma(2): trigamma is the last of its kind in the language"}


@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.nightly)], ids=["a key", "all"])
def test_every_spec_that_derives_its_gradient_has_one(registry: Specs, most: int | None) -> None:
    count = 0
    for spec in registry.all():
        if spec.grad is None or not spec.grad.derive:
            continue
        twice = False
        for key in itertools.islice(keys_of(spec, [DType.BF16]), most):
            try:
                op = normalise(bind(spec, key))
            except DomainError:  # `require` refuses this key
                continue
            g = adjoint(op, spec.grad.wrt)
            verify(g)
            inexact = [t.name for t in g.inputs if t.dtype.is_inexact]
            if not twice and spec.op in NO_SECOND:
                with pytest.raises(NotDifferentiable):
                    adjoint(g, inexact)
            elif not twice:
                verify(adjoint(g, inexact))
            twice = True
            count += 1
    assert count > 40


# ------------------------------------------------------------------------------------------------ drawn programs

EXTENTS = {"i": ("N", 3), "j": ("M", 2), "k": ("K", 4)}
INPUTS = {"a": "ij", "b": "jk", "c": "k", "d": "i"}


class Draw:
    """A random program over three indices: broadcasts, reductions, conditions, shifted and computed loads, updates."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors = dict(INPUTS)
        self.lines: list[str] = []

    def one(self, *options: str) -> str:
        return str(self.rng.choice(list(options)))

    def load(self, scope: str) -> str:
        fits = [n for n, ix in self.tensors.items() if set(ix) <= set(scope)]
        if not fits:
            name = self.one(*self.tensors)
            return f"{name}[{', '.join(self.at(x, scope) for x in self.tensors[name])}]"
        name = self.one(*fits)
        ix = [self.at(x, scope) if self.rng.random() < 0.2 else x for x in self.tensors[name]]
        return f"{name}[{', '.join(ix) or '()'}]"

    def at(self, x: str, scope: str) -> str:
        """A computed index within the extent of `x`."""
        size, have = EXTENTS[x][0], [y for y in scope if y in EXTENTS]
        y = self.one(*have) if have else "1"
        return self.one(f"({y} + 1) % {size}", f"min({y}, {size} - 1)", f"{size} - 1", f"(2 * {y}) % {size}")

    def expr(self, scope: str, depth: int) -> str:
        if depth == 0:
            return self.load(scope)
        a, b = self.expr(scope, depth - 1), self.expr(scope, depth - 1)
        x = scope[0] if scope else "1"
        last = scope[-1] if scope else "0"
        return self.one(
            f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"{a} / (2 + {b} * {b})", f"tanh({a})", f"-({a})",
            f"({a} if {last} > 0 else {b})", f"(exp({a}) if {x} + 1 > {last} else 0)", f"max({a}, {b})", f"{a} ** 2",
            f"sigmoid({a}) * {b}", f"({a} if {b} > 0.1 else 0.5)",
        )  # fmt: skip

    def statement(self, name: str) -> None:
        free = self.one("ij", "jk", "ik", "i", "k", "", "ijk")
        rest = [x for x in "ijk" if x not in free]
        target = f"{name}[{', '.join(f'{x} in {EXTENTS[x][0]}' for x in free) or '()'}]"
        if rest and self.rng.random() < 0.6:
            over = self.one(*rest)
            kind = self.one("sum", "sum", "sum", "max", "prod")
            body = f"{kind}[{over} in {EXTENTS[over][0]}]({self.expr(free + over, 2)})"
            body = f"{body} * {self.load(free)}" if self.rng.random() < 0.3 else body
        else:
            body = self.expr(free, 2)
        self.lines.append(f"{target} = {body}")
        if free and self.rng.random() < 0.4:
            y = self.one("i", "j", "k")
            where = [self.at(x, y) for x in free]
            source = self.one(*[n for n, ix in INPUTS.items() if y in ix])
            guard = f" if {y} > 0 else skip" if self.rng.random() < 0.5 else ""
            spot = ", ".join(INPUTS[source])
            self.lines.append(
                f"{name}[{', '.join(where)}] += {source}[{spot}] * {self.load(INPUTS[source])}{guard}"
            )
        self.tensors[name] = free

    def spec(self) -> str:
        names = [f"t{n}" for n in range(4)]
        for n in names:
            self.statement(n)
        self.tensors = {n: ix for n, ix in self.tensors.items() if n in names}
        self.lines.append(f"y[i, j] = {self.expr('ijk'[:2], 1)} + {' + '.join(self.whole(n) for n in names)}")
        body = "".join(f"  {line}\n" for line in self.lines)
        return f"""
op: f
types: {{T: float}}
inputs: {{a: "T[N, M]", b: "T[M, K]", c: "T[K]", d: "T[N]"}}
outputs: {{y: "T[N, M]"}}
compute: |
{body}grad: {{wrt: [a, b, c, d], derive: true}}
"""

    def whole(self, name: str) -> str:
        ix = self.tensors[name]
        own = "".join({"i": "i", "j": "j"}.get(x, f"k_{name}") + ", " for x in ix)
        load = f"{name}[{own[:-2] or '()'}]"
        return f"sum[k_{name} in K]({load})" if "k" in ix else load


@pytest.mark.parametrize("seed", range(16))
def test_drawn_programs_agree_with_finite_differences(seed: int) -> None:
    text = Draw(seed).spec()
    inputs = {
        n: normal_data(*(EXTENTS[x][1] for x in ix), seed=seed + k)
        for k, (n, ix) in enumerate(INPUTS.items())
    }
    op, attrs = normal(spec_of(text), inputs)
    check(op, inputs, attrs, list(inputs), second=seed % 4 == 0, tol=1e-5)
