"""The torch server: values, refusals, a crash, and a machine without torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opwright.validators import torch_server
from opwright.validators.torch_server import TorchCrashed, TorchError, TorchMissing, TorchServer

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServer]:
    with TorchServer() as made:
        yield made


@needs_torch
def test_values_by_argument_name(server: TorchServer) -> None:
    (y,) = server.call("aten.add.Tensor", {"self": np.ones(3), "other": np.arange(3.0), "alpha": 2})
    assert y is not None
    assert y.tolist() == [1, 3, 5]
    assert y.dtype == np.float64


@needs_torch
def test_lists_dtypes_and_several_outputs(server: TorchServer) -> None:
    arguments = {"self": np.ones((2, 3), np.int32), "dim": [0], "keepdim": True}
    (y,) = server.call("aten.sum.dim_IntList", arguments, {"dtype": "i64"})
    assert y is not None
    assert (y.shape, y.dtype) == ((1, 3), np.int64)
    values, indices = server.call("aten.max.dim", {"self": np.array([[1.0, 5.0]]), "dim": 1})
    assert values is not None
    assert indices is not None
    assert (values.tolist(), indices.tolist()) == ([5], [1])
    (z,) = server.call("aten.cat.default", {"tensors": [np.zeros(1), np.ones(2)]})
    assert z is not None
    assert z.tolist() == [0, 1, 1]


@needs_torch
def test_attention_by_its_formula_or_by_the_fused_kernel(server: TorchServer) -> None:
    """A hidden nan makes the formula's row nan, for -inf is added to it; the fused kernel replaces it."""
    q, v = np.ones((1, 1, 2, 4)), np.ones((1, 1, 2, 4))
    k = np.array([1.0, np.nan]).reshape(1, 1, 2, 1) * np.ones((1, 1, 2, 4))
    call = {"query": q, "key": k, "value": v, "is_causal": True}
    (formula,) = server.call("aten.scaled_dot_product_attention.default", call)
    (fused,) = server.call("aten.scaled_dot_product_attention.default", call, fused=True)
    assert formula is not None and fused is not None
    assert np.isnan(formula[0, 0, 0]).all()
    assert (fused[0, 0, 0] == 1).all()


@needs_torch
def test_gradients_of_tensors_and_lists(server: TorchServer) -> None:
    x, ct = np.array([-1.0, 0.0, 2.0]), np.array([3.0, 3.0, 3.0])
    (dx,) = server.gradients("aten.relu.default", {"self": x}, {}, ["self"], [ct])
    assert dx is not None
    assert dx.tolist() == [0, 0, 3]
    one, two = server.gradients("aten.cat.default", {"tensors": [x[:1], x[1:]]}, {}, ["tensors"], [ct])
    assert one is not None and two is not None
    assert (one.shape, two.tolist()) == ((1,), [3, 3])
    number = {"self": x, "other": np.array(2.0)}
    assert server.gradients("aten.mul.Scalar", number, {}, ["other"], [ct]) == [None]


@needs_torch
def test_overloads_tell_their_arguments(server: TorchServer) -> None:
    there = server.overloads()
    assert there["aten.hardtanh.default"] == {
        "self": ["Tensor"],
        "min_val": ["number", -1],
        "max_val": ["number", 1],
    }


def test_a_refusal_is_an_error_with_torchs_words(server: TorchServer) -> None:
    with pytest.raises(TorchError, match="IndexError"):
        server.call("aten.amax.default", {"self": np.ones((2, 0)), "dim": [1]})
    with pytest.raises(TorchError):
        server.call("aten.no_such_op.default", {})


@needs_torch
def test_a_crash_is_survived() -> None:
    with TorchServer() as server:
        low, one = np.array([-(2**31)], np.int32), np.array([-1], np.int32)
        arguments = {"self": low, "other": one, "rounding_mode": "trunc"}
        with pytest.raises(TorchCrashed):
            server.call("aten.div.Tensor_mode", arguments)
        (y,) = server.call("aten.neg.default", {"self": np.ones(1)})
        assert y is not None
        assert y.tolist() == [-1]
        assert server.restarts == 1


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('not today')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with TorchServer() as server, pytest.raises(TorchMissing, match="not today"):
        server.call("aten.neg.default", {"self": np.ones(1)})


def test_messages_round_trip() -> None:
    arrays: dict[str, np.ndarray] = {}
    message = {"x": torch_server.encode([np.array(1.0), 2, None, "a", 1j], arrays)}
    packed = torch_server._pack(message, arrays)
    _, text, data = torch_server._HEAD.unpack(packed[: torch_server._HEAD.size])
    body = packed[torch_server._HEAD.size :]
    back, tensors = torch_server._unpack(body[:text], body[text : text + data])
    assert back == message
    assert tensors["a0"].shape == ()
