"""What is composed at the face: a small part of `make conformance`, forms that write, names, and random numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import opwright as ow  # noqa: E402
from opwright import random  # noqa: E402
from opwright.exceptions import OpError, OpTypeError, OpValueError  # noqa: E402

from .replay import PASSED, bridge, prepare, replay, specs  # noqa: E402
from .torch_samples import recorded  # noqa: E402

pytestmark = pytest.mark.conformance

#: OpInfo's entry → overload; every call must pass.
SUBSET = {
    "fft.rfft": "aten.fft_rfft.default",
    "matmul": "aten.matmul.default",
    "meshgrid.list_of_tensors": "aten.meshgrid.indexing",
    "nn.functional.cross_entropy": "aten.cross_entropy_loss.default",
    "nn.functional.mse_loss": "aten.mse_loss.default",
    "nn.functional.pixel_shuffle": "aten.pixel_shuffle.default",
    "roll": "aten.roll.default",
    "stack": "aten.stack.default",
    "unflatten": "aten.unflatten.int",
}


@pytest.mark.parametrize(("name", "overload"), SUBSET.items())
def test_composites(name: str, overload: str) -> None:
    calls = list(recorded(name, "f32", [overload], samples=12, calls=4))
    assert calls, f"OpInfo's `{name}` no longer is a call of {overload}"
    prepare(calls)
    wrong = [f"{c}: {o.status}, {o.why}" for c in calls if (o := replay(c)).status != PASSED]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(autouse=True)
def served() -> None:
    bridge()


def test_in_place_is_written_over_self_and_gives_it() -> None:
    a, b = ow.tensor([1.0, 2.0, 3.0]), ow.tensor([1.0, 1.0, 1.0])
    out = ow.call_aten("aten.add_.Tensor", a, b, alpha=2)
    assert out.data_ptr() == a.data_ptr() and a.numpy().tolist() == [3, 4, 5]
    ow.call_aten("aten.mul_.Scalar", a[1:], 10)
    assert a.numpy().tolist() == [3, 40, 50]


def test_out_is_written() -> None:
    x, out = ow.tensor([[1.0, 2.0], [3.0, 4.0]]), ow.empty([2], "f64")
    assert ow.call_aten("aten.sum.IntList_out", x, [1], out=out).numpy().tolist() == [3, 7]
    assert out.numpy().tolist() == [3, 7]


def test_what_does_not_fit_is_not_written() -> None:
    x = ow.tensor([1, 2])
    with pytest.raises(OpTypeError, match="cannot be written as i64"):
        ow.call_aten("aten.add_.Scalar", x, 0.5)
    with pytest.raises(OpTypeError, match="does not fit"):
        ow.call_aten("aten.add_.Tensor", x, ow.tensor([[1, 2], [3, 4]]))
    assert x.numpy().tolist() == [1, 2]


def test_what_cannot_be_written_to_is_said_of_the_call() -> None:
    x = np.ones((2, 3), np.float32)
    x.flags.writeable = False
    for overload, args, kwargs in (
        ("aten.add.out", (x, x), {"out": x}),
        ("aten.add.out", (x, x), {"out": "x"}),
        ("aten.add_.Tensor", (x, x), {}),
    ):
        with pytest.raises(OpError, match=rf"^{overload}: `out`, or what is written over: "):
            ow.call_aten(overload, *args, **kwargs)


def test_what_a_spec_does_not_admit_is_an_error_of_the_call() -> None:
    # said where a kernel is chosen, or by the runtime where one is loaded already
    with pytest.raises((OpTypeError, OpValueError), match=r"matmul: input .a. .*(got|rank) 1"):
        ow.ops.matmul(np.ones(3, np.float32), np.ones((3, 3), np.float32))


def test_other_names() -> None:
    x = ow.tensor([0.5, -1.0])
    assert np.array_equal(
        ow.call_aten("aten.arccos.default", x).numpy(), ow.call_aten("aten.acos.default", x).numpy()
    )
    assert ow.call_aten("aten.__and__.Tensor", ow.tensor([6]), ow.tensor([3])).numpy().tolist() == [2]


def test_a_seed_makes_a_stream_again_and_draws_differ() -> None:
    random.manual_seed(7)
    first = [ow.call_aten("aten.rand.default", [5]).numpy().tolist() for _ in range(2)]
    random.manual_seed(7)
    again = [ow.call_aten("aten.rand.default", [5]).numpy().tolist() for _ in range(2)]
    assert first == again and first[0] != first[1]


def test_distributions() -> None:
    """Means and spreads within five standard errors, under one seed."""
    random.manual_seed(1)
    n = 40_000
    u = ow.call_aten("aten.rand.default", [n]).numpy().astype(float)
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / (12 * n) ** 0.5
    z = ow.call_aten("aten.randn.default", [n]).numpy().astype(float)
    assert abs(z.mean()) < 5 / n**0.5 and abs(z.std() - 1) < 5 / (2 * n) ** 0.5
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 5 * (0.2166 / n) ** 0.5
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 5 / n**0.5
    k = ow.call_aten("aten.randint.low", -3, 4, [n]).numpy()
    counts = np.bincount(k + 3, minlength=7)
    assert counts.min() > 0 and ((counts - n / 7) ** 2 / (n / 7)).sum() < 30  # chi squared of 6
    kept = ow.call_aten("aten.dropout.default", ow.ones([n]), 0.25, True).numpy()
    assert sorted(set(kept.tolist())) == pytest.approx([0.0, 4 / 3], rel=1e-6)
    assert abs((kept == 0).mean() - 0.25) < 5 * (0.1875 / n) ** 0.5
    e = ow.call_aten("aten.exponential.default", ow.ones([n]), 2.0).numpy().astype(float)
    assert abs(e.mean() - 0.5) < 5 * 0.5 / n**0.5


def test_permutations_and_samples() -> None:
    random.manual_seed(3)
    assert sorted(ow.call_aten("aten.randperm.default", 50).numpy().tolist()) == list(range(50))
    weights = ow.tensor([0.0, 1.0, 3.0])
    drawn = ow.call_aten("aten.multinomial.default", weights, 4000, True).numpy()
    assert (drawn != 0).all() and abs((drawn == 2).mean() - 0.75) < 5 * (0.1875 / 4000) ** 0.5
    assert sorted(ow.call_aten("aten.multinomial.default", weights, 2).numpy().tolist()) == [1, 2]


def test_a_list_of_no_dims_reduces_all_or_nothing() -> None:
    x = np.asarray([[1, 0], [0, 0]], np.float32)
    assert ow.call_aten("aten.any.dims", x, None).numpy() == np.True_
    for overload in ("aten.any.dims", "aten.all.dims"):  # PyTorch reduces nothing
        assert ow.call_aten(overload, x, []).numpy().tolist() == [[True, False], [False, False]]
    assert specs()["logsumexp"].attrs["dim"].empty == "all"
