"""Derived gradients against finite differences in f64, their second derivatives, their signatures and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from .bound_interpreter import DTYPES, Array, run
from opwright.generator import grad
from opwright.generator.bind import bind, bind_grad, key_for_call, rebind
from opwright.generator.bound import BoundOp, show_bound, show_statements
from opwright.generator.expr import parse_statements
from opwright.generator.grad import NotDifferentiable, adjoint, check_cost, cost, with_saved
from opwright.generator.normal import classify, normalise, verify
from opwright.generator.spec import OpSpec, Registry, load_spec_text
from opwright.generator.types import DType, Operand

Inputs = Mapping[str, Any]


@pytest.fixture(scope="session")
def registry(root: Path) -> Registry:
    return Registry.load([root / "specs" / "ops"])


def spec_of(text: str) -> OpSpec:
    """A spec from its meaning alone."""
    (spec,) = load_spec_text(text, "<test>")
    return spec


def normal(spec: OpSpec, inputs: Inputs, attrs: Mapping[str, Any] | None = None) -> tuple[BoundOp, dict[str, Any]]:
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
    return {d: rng.standard_normal(values[n].shape) for n, d in grad.cotangent_names(op).items()}


def numeric(op: BoundOp, inputs: Mapping[str, Array], attrs: Mapping[str, Any], dys: Mapping[str, Array], name: str,
            step: float = 1e-6) -> Array:
    """Central differences of sum(dy * y) by every element of one input."""
    cot = grad.cotangent_names(op)

    def loss(x: Array) -> float:
        out = run(op, {**inputs, name: x}, attrs)
        return float(sum(np.sum(out[n] * dys[d]) for n, d in cot.items()))

    x0 = np.asarray(inputs[name], dtype=np.float64)
    out = np.zeros_like(x0)
    for k in np.ndindex(x0.shape):
        up, down = x0.copy(), x0.copy()
        up[k] += step
        down[k] -= step
        out[k] = (loss(up) - loss(down)) / (2 * step)
    return out


def evaluate(op: BoundOp, gradient: BoundOp, inputs: Mapping[str, Array], attrs: Mapping[str, Any],
             dys: Mapping[str, Array], save: Sequence[str]) -> dict[str, Array]:
    forward = with_saved(op, save)
    values = run(forward, inputs, attrs)
    given = {**inputs, **{n: values[n] for n in save if n in values}, **dys}
    return run(gradient, {t.name: given[t.name] for t in gradient.inputs}, attrs)


def check(op: BoundOp, inputs: Inputs, attrs: Mapping[str, Any], wrt: Sequence[str], *, save: Sequence[str] = (),
          second: bool = True, tol: float = 1e-6) -> BoundOp:
    """The adjoint agrees with finite differences of the forward, and (`second`) its adjoint with those of it."""
    rng = np.random.default_rng(7)
    given = flat(inputs)
    dys = cotangents(op, run(op, given, attrs), rng)
    g = adjoint(op, wrt, save)
    verify(g)
    assert g.name == f"{op.name}.grad"
    got = evaluate(op, g, given, attrs, dys, save)
    names = grad.gradient_names(op, wrt)
    assert {t.name for t in g.outputs} == set(names.values())
    for n, d in names.items():
        assert got[d].shape == given[n].shape
        np.testing.assert_allclose(got[d], numeric(op, given, attrs, dys, n), rtol=tol, atol=tol, err_msg=f"{d}\n{show_bound(g)}")
    if second:
        again = {n: v for n, v in {**given, **dys}.items() if n in {t.name for t in g.inputs}}
        plain = adjoint(op, wrt) if save else g
        again = {t.name: {**given, **dys}[t.name] for t in plain.inputs}
        check(plain, again, attrs, [n for n in again if again[n].dtype == np.float64], second=False, tol=20 * tol)
    return g


def normal_data(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# ------------------------------------------------------------------------------------------------ the specs of the repository

CASES: dict[str, tuple[str, Inputs, dict[str, Any], list[str]]] = {
    "add": ("add", {"a": normal_data(4, 1, 3), "b": normal_data(2, 1, seed=1)}, {"alpha": 2.5}, ["a", "b"]),
    "add_lower": ("add", {"a": normal_data(3), "b": normal_data(2, 3, seed=1)}, {}, ["a", "b"]),
    "mul": ("mul", {"a": normal_data(4, 1), "b": normal_data(2, 1, 3, seed=1)}, {}, ["a", "b"]),
    "softmax": ("softmax", {"x": normal_data(2, 2, 5)}, {}, ["x"]),
    "log_softmax": ("log_softmax", {"x": normal_data(3, 4)}, {}, ["x"]),
    "rms_norm": ("rms_norm", {"x": normal_data(3, 5), "w": normal_data(5, seed=1)}, {"normalized_shape": (5,)}, ["x", "w"]),
    "rms_norm_bare": ("rms_norm", {"x": normal_data(3, 5), "w": None}, {"normalized_shape": (5,)}, ["x", "w"]),
    "layer_norm": ("native_layer_norm",
                   {"x": normal_data(3, 2, 3), "w": normal_data(2, 3, seed=1), "b": normal_data(2, 3, seed=2)},
                   {"normalized_shape": (2, 3)}, ["x", "w", "b"]),
    "matmul": ("matmul", {"a": normal_data(3, 1, 2, 3), "b": normal_data(2, 3, 2, seed=1)}, {}, ["a", "b"]),
    "linear": ("linear", {"x": normal_data(2, 2, 3), "w": normal_data(4, 3, seed=1), "b": normal_data(4, seed=2)}, {},
               ["x", "w", "b"]),
    "addmm": ("addmm", {"c": normal_data(3), "a": normal_data(2, 4, seed=1), "b": normal_data(4, 3, seed=2)},
              {"alpha": 0.5, "beta": 2.0}, ["c", "a", "b"]),
    "addmm_column": ("addmm", {"c": normal_data(2, 1), "a": normal_data(2, 4, seed=1), "b": normal_data(4, 3, seed=2)}, {},
                     ["c", "a", "b"]),
    "embedding": ("embedding", {"w": normal_data(4, 3), "i": np.array([[1, 1], [3, 0]])}, {}, ["w"]),
    "gather": ("gather", {"x": normal_data(3, 5), "i": np.array([[1, 4], [1, 1]])}, {"dim": 1}, ["x"]),
    "index_select": ("index_select", {"x": normal_data(3, 5), "i": np.array([4, 1, 4])}, {"dim": 1}, ["x"]),
    "cat": ("cat", {"xs": [normal_data(2, 3), normal_data(2, 1, seed=1), normal_data(2, 2, seed=2)]}, {"dim": 1}, ["xs"]),
    "sum": ("sum", {"x": normal_data(2, 3, 2)}, {"dim": (1, 2)}, ["x"]),
    "convolution": ("convolution", {"x": normal_data(2, 4, 7, 5), "w": normal_data(4, 2, 3, 2, seed=1), "b": normal_data(4, seed=2)},
                    {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}, ["x", "w", "b"]),
    "attention": ("scaled_dot_product_attention",
                  {"q": normal_data(1, 4, 3, 2), "k": normal_data(1, 2, 5, 2, seed=1), "v": normal_data(1, 2, 5, 3, seed=2)},
                  {}, ["q", "k", "v"]),
    "attention_causal": ("scaled_dot_product_attention",
                         {"q": normal_data(2, 2, 3, 2), "k": normal_data(2, 1, 2, 2, seed=1), "v": normal_data(2, 1, 2, 3, seed=2)},
                         {"causal": True, "scale": 0.7}, ["q", "k", "v"]),
}


@pytest.mark.parametrize("case", CASES)
def test_specs_agree_with_finite_differences(registry: Registry, case: str) -> None:
    name, inputs, attrs, wrt = CASES[case]
    op, values = normal(registry.get(name), inputs, attrs)
    check(op, inputs, values, wrt)
