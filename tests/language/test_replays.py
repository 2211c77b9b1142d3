"""Bugs of other projects, replayed on our own specs: what the oracle says and what the kernel gives is the right value.

To add one: a row of `REPLAYS`, with the bug's name.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels import Library, Refused, bound, dialect, run

from opwright.generator.emit import emit
from opwright.generator.spec import Registry
from opwright.resources import specs_dir
from opwright.validators.ball import check
from opwright.validators.oracle import OracleRefusal, evaluate

nan, inf = np.nan, np.inf
f32, bf16 = np.float32, ml_dtypes.bfloat16


def floats(*x: Any) -> np.ndarray:
    return np.array(x, f32)


LOW = np.iinfo(np.int64).min
MASKED = {n: np.ones((1, 1, 2, 4), f32) for n in "qkv"} | {
    "mask": np.array([[[[True, False], [False, False]]]])
}

#: bug -> operator, inputs, attributes, the outputs that it must have (None: a refusal)
REPLAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[np.ndarray] | None]] = {
    "pytorch#25016": ("maximum", {"a": floats(1, nan), "b": floats(nan, 1)}, {}, [floats(nan, nan)]),
    "tinygrad#862": ("amax", {"x": floats(1, nan)}, {}, [floats(nan).reshape(())]),
    "triton#10291 nan": ("argmax", {"x": floats(nan, 6, 8)}, {"dim": 0}, [np.array(0)]),
    "triton#10291 inf": ("argmax", {"x": floats(inf, nan)}, {"dim": 0}, [np.array(1)]),
    "pytorch#43874 //": (
        "floor_divide", {"a": np.array([-3, 3, -3]), "b": np.array([2, -2, -2])}, {}, [np.array([-2, -2, 1])]),
    "pytorch#43874 %": (
        "remainder", {"a": np.array([-3, 3, -3]), "b": np.array([2, -2, -2])}, {}, [np.array([1, -1, -1])]),
    "pytorch#127804": ("trunc_divide", {"a": np.array([LOW]), "b": np.array([-1])}, {}, [np.array([LOW])]),
    "a quotient by zero": ("floor_divide", {"a": np.array([1]), "b": np.array([0])}, {}, None),
    "tvm#18590": ("round", {"x": floats(0.5, 1.5, 2.5, -0.5)}, {}, [floats(0, 2, 2, -0.0)]),
    "burn#4694": (
        "scaled_dot_product_attention", MASKED, {}, [np.array([[[[1] * 4, [0] * 4]]], f32)]),
    "mlx#2395": ("softmax", {"x": floats(-inf, -inf)}, {}, [floats(nan, nan)]),
    "ml_dtypes#63 sum": ("sum", {"x": np.ones(1000, bf16)}, {}, [np.array(1000, bf16)]),
    "ml_dtypes#63 softmax": ("softmax", {"x": np.zeros(512, bf16)}, {}, [np.full(512, 1 / 512, bf16)]),
    "onnx#3547": (
        "index_put", {"x": np.ones(5, f32), "i": [np.array([0, 4, 2, 2, 4])], "v": np.ones(1, f32)},
        {"accumulate": True}, [floats(2, 1, 3, 1, 3)]),
    "pytorch#39227": (
        "index_put", {"x": np.zeros(3, f32), "i": [np.array([0, 0])], "v": np.ones(2, f32)},
        {"accumulate": True}, [floats(2, 0, 0)]),
    "pytorch#17262 empty": ("log_softmax", {"x": np.zeros((10, 0), f32)}, {"axis": 1}, [np.zeros((10, 0), f32)]),
    "pytorch#17262 maximum": ("max_dim", {"x": np.zeros((2, 0), f32)}, {"dim": 1}, None),
    "a bool's running maximum": (
        "cummax", {"x": np.array([False, False, True])}, {"dim": 0},
        [np.array([False, False, True]), np.array([0, 1, 2])]),
}  # fmt: skip


@pytest.fixture(scope="module")
def specs() -> Registry:
    return Registry.load([specs_dir() / "ops"])


@pytest.fixture(scope="module")
def library(specs: Registry) -> Library:
    texts = [
        emit(bound(specs.get(op), inputs, attrs)[0], dialect()) for op, inputs, attrs, _ in REPLAYS.values()
    ]
    return Library(texts, "test_replays")


@pytest.mark.parametrize("bug", REPLAYS)
def test_the_oracle(specs: Registry, bug: str) -> None:
    name, inputs, attrs, want = REPLAYS[bug]
    op, given = bound(specs.get(name), inputs, attrs)
    flat = {}
    for n, v in inputs.items():
        flat |= {f"{n}.{k}": a for k, a in enumerate(v)} if isinstance(v, list) else {n: v}
    if want is None:
        with pytest.raises(OracleRefusal):
            evaluate(op, flat, given)
        return
    found = evaluate(op, flat, given)
    for t, w in zip([t for t in op.outputs if not t.aux], want, strict=True):
        assert check(w, found[t.name], t.dtype).passed, t.name


@pytest.mark.parametrize("bug", REPLAYS)
def test_the_kernel(specs: Registry, library: Library, bug: str) -> None:
    name, inputs, attrs, want = REPLAYS[bug]
    spec = specs.get(name)
    op, given = bound(spec, inputs, attrs)

    def call() -> list[np.ndarray]:
        values = [given[a.name] for a in op.attrs]
        kernel = library.kernel(emit(op, dialect()).symbol)
        return run(kernel, spec, inputs, values, [t.dtype.value for t in op.outputs])

    if want is None:
        with pytest.raises(Refused):
            call()
        return
    outputs = [y for t, y in zip(op.outputs, call(), strict=True) if not t.aux]
    for y, w in zip(outputs, want, strict=True):
        assert y.shape == w.shape
        assert (
            np.array_equal(np.signbit(y.astype(f32)), np.signbit(w.astype(f32)))
            or np.isnan(w.astype(f32)).any()
        )
        np.testing.assert_allclose(y.astype(np.float64), w.astype(np.float64), rtol=1e-6)
