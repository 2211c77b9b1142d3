"""Gradients at the face: `ow.vjp`, and ATen's backward overloads as PyTorch's, in f64 and (rounded once) in bf16."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import opwright as ow  # noqa: E402
from opwright.exceptions import OpTypeError  # noqa: E402

from .replay import bridge  # noqa: E402

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module", autouse=True)
def everything() -> None:
    bridge()


def random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def near(got: Any, want: Any, tol: float = 1e-10) -> None:
    if want is None:
        assert got is None
        return
    torch.testing.assert_close(torch.from_dlpack(got), want, rtol=tol, atol=tol)


G, X, T = random(3, 5), random(3, 6)[:, :5], random(5, 3).T
IMAGE, MAP = random(2, 3, 6, 5), random(2, 3, 7, 8)
POOLED, PLACES = torch.ops.aten.max_pool2d_with_indices(IMAGE, [2, 2], [1, 2], [1, 1], [1, 1])
POOLED3, PLACES3 = torch.ops.aten.max_pool3d_with_indices(random(2, 4, 4, 5), [2, 2, 2], [1, 2, 2])
KEPT, PLACES_A = torch.ops.aten.adaptive_max_pool2d(IMAGE, [3, 2])
LN = torch.ops.aten.native_layer_norm(X, [5], None, None, 1e-5)
GN = torch.ops.aten.native_group_norm(
    IMAGE[:, :2].repeat(1, 2, 1, 1).contiguous(), None, None, 2, 4, 30, 2, 1e-5
)
BN = torch.ops.aten.native_batch_norm(IMAGE, None, None, None, None, True, 0.1, 1e-5)
CLASSES = torch.tensor([4, 0, 2])
ALL = [True, True, True]
F64 = torch.float64

CALLS: dict[str, list[tuple[Any, ...]]] = {
    "_adaptive_avg_pool2d_backward": [(random(2, 3, 2, 4), IMAGE)],
    "_log_softmax_backward_data": [
        (G, torch.log_softmax(X, 1), 1, F64),
        (G, torch.log_softmax(X, 0), 0, F64),
    ],
    "_prelu_kernel_backward": [(G, X, random(3, 5))],
    "_softmax_backward_data": [(G, torch.softmax(X, 1), -1, F64)],
    "adaptive_max_pool2d_backward": [(random(*KEPT.shape), IMAGE, PLACES_A)],
    "avg_pool2d_backward": [(random(2, 3, 4, 3), IMAGE, [2, 2], [2, 2], [1, 1], False, False, None)],
    "binary_cross_entropy_backward": [
        (G, X.sigmoid(), T.sigmoid(), random(3, 5), 0),
        (random(), X.sigmoid(), T.sigmoid(), None, 1),
    ],
    "convolution_backward": [
        (random(2, 4, 3, 2), IMAGE, random(4, 3, 3, 2), [4], [2, 2], [1, 0], [1, 1], False, [0, 0], 1, ALL),
        (random(2, 6, 6, 4), IMAGE, random(6, 1, 3, 2), [6], [1, 1], [1, 0], [1, 1], False, [0, 0], 3, ALL),
        (random(2, 4, 12, 10), IMAGE, random(3, 4, 2, 2), [4], [2, 2], [0, 0], [1, 1], True, [0, 0], 1, ALL),
        (
            random(2, 4, 3, 2),
            IMAGE,
            random(4, 3, 3, 2),
            None,
            [2, 2],
            [1, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [1, 0, 0],
        ),
    ],
    "diagonal_backward": [(random(3), [4, 3], -1, 0, 1)],
    "elu_backward": [
        (G, 0.7, 1.1, 0.9, False, X),
        (G, 0.7, 1.1, 0.9, True, torch.ops.aten.elu(X, 0.7, 1.1, 0.9)),
    ],
    "embedding_dense_backward": [
        (random(4, 3), torch.tensor([1, 0, 1, 2]), 5, -1, False),
        (random(2, 2, 3), torch.tensor([[1, 0], [1, 2]]), 5, 1, False),
        (random(4, 3), torch.tensor([1, 0, 1, 2]), 5, -1, True),
    ],
    "gelu_backward": [(G, X)],
    "glu_backward": [(random(3, 2), X[:, :4], 1)],
    "grid_sampler_2d_backward": [
        (random(2, 3, 4, 5), IMAGE, random(2, 4, 5, 2).tanh(), 0, 0, False, [True, True])
    ],
    "hardsigmoid_backward": [(G, 4 * X)],
    "hardswish_backward": [(G, 4 * X)],
    "hardtanh_backward": [(G, X, -0.5, 0.7)],
    "huber_loss_backward": [(G, X, T, 0, 0.5), (random(), X, T, 1, 0.5)],
    "leaky_relu_backward": [(G, X, 0.1, False), (G, X, 0.1, True)],
    "log_sigmoid_backward": [(G, X, torch.ops.aten.log_sigmoid_forward(X)[1])],
    "logit_backward": [(G, X.sigmoid(), None), (G, X.sigmoid(), 0.3)],
    "max_pool2d_with_indices_backward": [
        (random(*POOLED.shape), IMAGE, [2, 2], [1, 2], [1, 1], [1, 1], False, PLACES)
    ],
    "max_pool3d_with_indices_backward": [
        (
            random(*POOLED3.shape),
            random(2, 4, 4, 5),
            [2, 2, 2],
            [1, 2, 2],
            [0, 0, 0],
            [1, 1, 1],
            False,
            PLACES3,
        )
    ],
    "mish_backward": [(G, X)],
    "mse_loss_backward": [(G, X, T, 0), (random(), X, T, 1), (random(), X, T, 2)],
    "native_batch_norm_backward": [
        (random(*IMAGE.shape), IMAGE, random(3), None, None, *BN[1:], True, 1e-5, ALL),
        (random(*IMAGE.shape), IMAGE, random(3), random(3), random(3).abs(), None, None, False, 1e-5, ALL),
    ],
    "native_dropout_backward": [(G, X > 0, 2.0)],
    "native_group_norm_backward": [
        (
            random(2, 4, 6, 5),
            IMAGE[:, :2].repeat(1, 2, 1, 1).contiguous(),
            *GN[1:],
            random(4),
            2,
            4,
            30,
            2,
            ALL,
        )
    ],
    "native_layer_norm_backward": [
        (G, X, [5], *LN[1:], random(5), random(5), ALL),
        (G, X, [5], *LN[1:], None, None, [True, False, False]),
    ],
    "nll_loss2d_backward": [
        (
            random(),
            random(2, 4, 3, 2),
            torch.arange(12).reshape(2, 3, 2) % 4,
            random(4),
            1,
            3,
            torch.tensor(2.5, dtype=F64),
        )
    ],
    "nll_loss_backward": [
        (random(3), X, CLASSES, None, 0, -100, torch.tensor(0.0, dtype=F64)),
        (random(), X, CLASSES, random(5), 1, 2, torch.tensor(1.5, dtype=F64)),
        (random(), X, CLASSES, None, 2, -100, torch.tensor(0.0, dtype=F64)),
    ],
    "reflection_pad1d_backward": [(random(3, 8), X, [2, 1])],
    "reflection_pad2d_backward": [(random(2, 3, 9, 7), IMAGE, [1, 1, 1, 2])],
    "replication_pad2d_backward": [(random(2, 3, 9, 7), IMAGE, [1, 1, 1, 2])],
    "select_backward": [(random(3), [3, 5], 1, -2)],
    "sigmoid_backward": [(G, X.sigmoid())],
    "silu_backward": [(G, X)],
    "slice_backward": [(random(3, 2), [3, 5], 1, 1, 5, 2)],
    "smooth_l1_loss_backward": [(G, X, T, 0, 0.5), (random(), X, T, 1, 0.0)],
    "soft_margin_loss_backward": [(G, X, T.sign(), 0)],
    "softplus_backward": [(G, X, 1.5, 2.0)],
    "tanh_backward": [(G, X.tanh())],
    "threshold_backward": [(G, X, 0.2)],
    "unfold_backward": [(random(3, 4, 2), [3, 5], 1, 2, 1)],
    "upsample_bicubic2d_backward": [(MAP, [7, 8], [2, 3, 6, 5], False)],
    "upsample_bilinear2d_backward": [(MAP, [7, 8], [2, 3, 6, 5], True), (MAP, [7, 8], [2, 3, 6, 5], False)],
    "upsample_nearest2d_backward": [(MAP, [7, 8], [2, 3, 6, 5])],
}


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch_says(name: str) -> None:
    theirs = getattr(torch.ops.aten, name).default
    for args in CALLS[name]:
        want = theirs(*args)
        got = ow.call_aten(f"aten.{name}.default", *args)
        pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
        for w, g in pairs:
            near(g, w, 1e-7 if name == "hardsigmoid_backward" else 1e-10)  # there PyTorch's 1/6 is one of f32


@pytest.mark.parametrize("name", ["gelu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward"])
def test_half_types_are_rounded_once(name: str) -> None:
    args = [a.to(torch.bfloat16) if isinstance(a, torch.Tensor) else a for a in CALLS[name][0]]
    want = getattr(torch.ops.aten, name).default(
        *[a.double() if isinstance(a, torch.Tensor) else a for a in args]
    )
    got = torch.from_dlpack(ow.call_aten(f"aten.{name}.default", *args))
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=2**-16)


def leaf(*shape: int) -> Any:
    return random(*shape).requires_grad_()


def test_one_op_by_its_own_names() -> None:
    x, g = leaf(3, 5), random(3, 5)
    torch.softmax(x, 0).backward(g)
    near(ow.vjp("softmax", g, x.detach(), axis=0)["x"], x.grad)


def test_several_inputs_lists_and_several_outputs() -> None:
    a, b, g = leaf(3, 4), leaf(4, 5), random(3, 5)
    (a @ b).backward(g)
    found = ow.vjp_aten("aten.mm.default", g, a.detach(), b.detach())
    near(found["a"], a.grad)
    near(found["b"], b.grad)
    xs = [leaf(2, 5), leaf(1, 5)]
    torch.cat(xs).backward(g)
    (pieces,) = ow.vjp_aten("aten.cat.default", g, [x.detach() for x in xs]).values()
    for piece, x in zip(pieces, xs, strict=True):
        near(piece, x.grad)
    x = leaf(3, 5)
    y = torch.native_layer_norm(x, [5], None, None, 1e-5)[0]
    y.backward(g)
    near(ow.vjp_aten("aten.native_layer_norm.default", g, x.detach(), [5], None, None, 1e-5)["x"], x.grad)


def test_a_gradient_that_was_asked_for_before_keeps_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = random(3, 5), random(3, 5)
    first = ow.vjp("softmax", g, x, axis=1)["x"]

    def asked(*_: Any) -> Any:
        raise AssertionError("the hook is asked again")

    monkeypatch.setattr(bridge(), "gradient_rule", asked)
    near(ow.vjp("softmax", g, x, axis=1)["x"], torch.from_dlpack(first))


def test_what_has_no_gradient_says_so() -> None:
    with pytest.raises(OpTypeError, match="`argmax` has no gradient"):
        ow.vjp("argmax", random(3), random(3, 5), dim=1)
    with pytest.raises(OpTypeError, match="no output is called `z`"):
        ow.vjp("softmax", {"z": random(3, 5)}, random(3, 5))
    with pytest.raises(OpTypeError, match="`x` is missing"):
        ow.vjp("softmax", random(3, 5))
