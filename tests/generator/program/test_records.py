"""Eager's records: in f32 and f64, call by call, at fresh inputs; and which errors a comparison would notice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from opwright.generator.program import records
from opwright.generator.program.capture import capture
from opwright.generator.program.captured import Capture
from opwright.generator.types import DType

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc]
    """Casts to f32 in its own code, as norms in transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, 32).reshape(4, 8))

    def forward(self, x: Any, mask: Any) -> Any:
        h = (x @ self.w).to(torch.float32)
        h = h + torch.full((), 0.1, dtype=torch.float32) + torch.tensor(1 / 3)
        return (h * mask.to(h.dtype).unsqueeze(-1)).softmax(-1)


@pytest.fixture(scope="module")
def net(everything: Any) -> tuple[Any, Capture]:
    torch.manual_seed(0)
    args = (torch.randn(2, 6, 4), torch.ones(2, 6, dtype=torch.int64))
    module = Net()
    model = SimpleNamespace(module=module, args=args, kwargs={}, meta={})
    return model, capture(module, args, {}, everything, name="net", source="test")


def test_f64_is_f64_even_where_the_model_casts(net: tuple[Any, Capture]) -> None:
    model, _ = net
    wide = records.eager(model.module, model.args, {}, DType.F64)["output"]
    x, mask = model.args
    w = model.module.w.detach().double()
    h = x.double() @ w + 0.1 + 1 / 3
    # 1/3 was made as f32 by the model's own constant; everything else keeps 52 bits.
    want = (h * mask.unsqueeze(-1)).softmax(-1)
    assert wide.dtype == torch.float64 and float((wide - want).abs().max()) < 1e-8
    assert model.module.w.dtype == torch.float32  # the module itself stays


def test_the_graph_in_f64_is_eager_in_f64(net: tuple[Any, Capture]) -> None:
    model, c = net
    inputs = records.input_tensors(c, model.args, {})
    values = records.values(c, inputs, DType.F64)
    (out,) = c.program.outputs
    wide = records.eager(model.module, model.args, {}, DType.F64)["output"]
    assert values[out.value].dtype == torch.float64
    assert float((values[out.value] - wide).abs().max()) < 1e-14


def test_calls_come_in_order_with_their_own_inputs(net: tuple[Any, Capture]) -> None:
    model, c = net
    inputs = records.input_tensors(c, model.args, {})
    got = list(records.record_eager(c, inputs))
    assert [id for id, _, _ in got] == [k.id for k in c.program.calls]
    softmax = next(g for g in got if g[0].startswith("_softmax"))
    assert torch.equal(softmax[2][0], softmax[1][0].softmax(-1))
    add = next(k for k in c.program.calls if k.op == "add")
    assert len(next(g for g in got if g[0] == add.id)[1]) == len(add.inputs)


def test_other_weights(net: tuple[Any, Capture]) -> None:
    model, c = net
    inputs = records.input_tensors(c, model.args, {})
    other = records.values(c, inputs, tensors={"w": torch.zeros(4, 8)})
    (out,) = c.program.outputs
    assert torch.allclose(other[out.value], torch.full((), 1 / 8))


def test_fresh_inputs_are_like_the_example(net: tuple[Any, Capture]) -> None:
    model, c = net
    x0, sizes0, _ = records.fresh(model, c, 0, seed=7)
    x1, sizes1, out1 = records.fresh(model, c, 1, seed=8)
    assert sizes0 != sizes1 and x0["x"].shape == (2, 6, 4) and x1["x"].shape != x0["x"].shape
    assert not torch.equal(x0["x"], model.args[0])
    assert x0["mask"].dtype == torch.int64 and set(x0["mask"].unique().tolist()) == {
        0,
        1,
    }  # some rows lose their ends
    assert bool((x0["mask"][:, 0] == 1).all())
    assert torch.equal(records.fresh(model, c, 0, seed=7)[0]["x"], x0["x"])
    args, kwargs = records.call_of(model, c, x1)
    assert torch.equal(records.eager(model.module, args, kwargs)["output"], out1["output"])


def test_places_beside_values_are_drawn_whole(everything: Any) -> None:
    class Patches(torch.nn.Module):
        """A patch says its row and its column before its values."""

        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Embedding(4, 3)

        def forward(self, x: Any) -> Any:
            return x[..., 2:] + self.rows(x[..., 0].long()) + self.rows(x[..., 1].long())

    places = torch.randint(0, 4, (2, 5, 2)).float()
    x = torch.cat([places, torch.randn(2, 5, 3)], -1)
    model = SimpleNamespace(module=Patches().eval(), args=(x,), kwargs={}, meta={})
    captured = capture(model.module, model.args, {}, everything, name="m", source="here")
    inputs, _, _ = records.fresh(model, captured, 0, 3)  # it runs
    assert bool((inputs["x"][..., :2] == inputs["x"][..., :2].round()).all())


def test_sizes_that_the_model_refuses_are_not_used(everything: Any) -> None:
    class Even(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.unflatten(1, (-1, 2)).sum(2)

    args = (torch.randn(3, 8),)
    c = capture(Even(), args, {}, everything, name="even", source="test")
    model = SimpleNamespace(module=Even(), args=args, kwargs={}, meta={})
    for k in (1, 2):
        inputs, _, _ = records.fresh(model, c, k, seed=1)
        assert inputs["x"].shape[1] % 2 == 0 and inputs["x"].shape != (3, 8)


class Hidden(torch.nn.Module):  # type: ignore[misc]
    """A block that hardly moves the output."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.a, self.scale = torch.nn.Linear(4, 4), scale

    def forward(self, x: Any) -> Any:
        return x + self.a(x).tanh() * self.scale


@pytest.mark.parametrize(("scale", "seen"), [(1.0, True), (1e-9, False)])
def test_sensitivity_tells_a_block_that_nobody_sees(scale: float, seen: bool, everything: Any) -> None:
    torch.manual_seed(0)
    args = (torch.randn(5, 4),)
    c = capture(Hidden(scale), args, {}, everything, name="h", source="test")
    got = records.sensitivity(c, records.input_tensors(c, args, {}))
    assert got.total == 2 * len(c.program.calls) == 8
    assert (got.by_outputs == got.total) is seen and (got.observed == ()) is seen
    if not seen:
        made = {o: k.op for k in c.program.calls for o in k.out}
        assert {made[v] for v in got.observed} == {"addmm", "tanh", "mul"} and got.rate >= records.SENSITIVE


def test_floats_that_end_in_integers_are_not_counted(everything: Any) -> None:
    args = (torch.randn(5, 4),)

    class Bucket(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * (x * 3).to(torch.int64).unsqueeze(0)

    c = capture(Bucket(), args, {}, everything, name="b", source="test")
    seen = records.reaching(c.program)
    first, *_, last = c.program.calls
    assert first.id not in seen and last.id in seen


def test_what_no_output_tells_of_is_observed(everything: Any) -> None:
    """One of two is taken, a scale goes into a norm: no weights make the output tell; the inner values are compared."""
    args = (torch.randn(5, 8),)

    class Chosen(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            scale = (x * 2).sum(-1, keepdim=True).abs() + 1
            return torch.stack([torch.nn.functional.layer_norm(x / scale, (8,), eps=0.0), x.sin()])[0]

    c = capture(Chosen(), args, {}, everything, name="c", source="test")
    inputs = records.input_tensors(c, args, {})
    got = records.sensitivity(c, inputs)
    made = {o: k.op for k in c.program.calls for o in k.out}
    assert {made[v] for v in got.observed} >= {"sin"} and got.rate >= records.SENSITIVE
    assert set(got.observed) <= records.values(c, inputs, DType.F64).keys()
    few = records.sensitivity(c, inputs, records.eager(Chosen(), args, {}, DType.F64))
    assert (few.observed, few.total) == (got.observed, got.total)


def test_an_inner_value_whose_error_is_luck_at_one_record_is_observed_last() -> None:
    right = torch.ones(4, dtype=torch.float64)

    def run(error: float) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"n": (right + error).float()}, {"n": right}

    assert not records._lucky("n", [run(1e-6), run(3e-6)])
    assert records._lucky("n", [run(1e-5), run(1e-7)])
    assert not records._lucky("n", [run(0.0), run(1e-7)])  # within a few units all are alike
    assert not records._lucky("n", [run(1e-6)])


def test_observed_values_are_chosen_with_the_other_records(everything: Any) -> None:
    class Chosen(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.stack([x.cos(), x.sin() * 3])[0]

    c = capture(Chosen(), (torch.randn(5, 8),), {}, everything, name="c", source="test")
    one, other = ({n: torch.randn(5, 8) for n in (b.name for b in c.program.inputs)} for _ in range(2))
    got = records.sensitivity(c, one, further=[other])
    assert got.observed == records.sensitivity(c, one).observed and got.rate >= records.SENSITIVE


def test_nothing_inner_is_observed_where_the_outputs_tell(net: tuple[Any, Capture]) -> None:
    model, c = net
    assert records.sensitivity(c, records.input_tensors(c, model.args, {})).observed == ()


def test_a_norm_does_not_hide_one_percent(everything: Any) -> None:
    """The same 1 % everywhere would pass through a norm unseen; each element has its own sign."""

    class Normed(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            h = x * 2
            return h * (h.pow(2).mean(-1, keepdim=True)).rsqrt()

    args = (torch.randn(5, 16),)
    c = capture(Normed(), args, {}, everything, name="n", source="test")
    got = records.sensitivity(c, records.input_tensors(c, args, {}))
    assert got.rate == 1.0


@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("gpt2", "bert", "vit"))]
)
def test_the_skeleton_models_are_seen(
    name: str, capture_of: Callable[[str], Capture], model_of: Callable[[str], Any]
) -> None:
    c, model = capture_of(name), model_of(name)
    inputs, _, _ = records.fresh(model, c, 0, seed=100)
    args, kwargs = records.call_of(model, c, inputs)
    wide = records.eager(model.module, args, kwargs, DType.F64)
    got = records.sensitivity(c, inputs, wide)
    assert got.by_outputs >= 0.95 * got.total and not got.observed


def test_enlarged_weights_of_a_given_model(net: tuple[Any, Capture]) -> None:
    model, c = net
    inputs = records.input_tensors(c, model.args, {})
    before = model.module.w.detach().clone()
    tensors, wide = records.enlarged(model, c, inputs, seed=0)
    assert torch.equal(model.module.w, before) and not torch.equal(tensors["w"], before)
    got = records.values(c, inputs, tensors=tensors)[c.program.outputs[0].value]
    assert float((got.double() - wide["output"]).abs().max()) < 1e-5


def test_decisions_agree_where_extents_and_integers_do() -> None:
    y = torch.tensor([1.0, 2.0])
    assert records.agree({"y": y, "i": torch.tensor([3])}, {"y": y.double() + 1, "i": torch.tensor([3])})
    assert not records.agree({"y": y}, {"y": y[:1].double()})
    assert not records.agree({"i": torch.tensor([3])}, {"i": torch.tensor([4])})


def test_bound_is_four_times_eagers_own_and_a_little() -> None:
    wide = torch.tensor([1.0, -2.0], dtype=torch.float64)
    assert records.bound((wide + 1e-3).float(), wide) == pytest.approx(4e-3 + 16 * 2**-24, rel=1e-3)
    assert records.bound(torch.zeros(0), torch.zeros(0, dtype=torch.float64)) == 0.0


def captured_of(forward: Callable[..., Any], args: tuple[Any, ...], everything: Any) -> tuple[Any, Capture]:
    class Plain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

    Plain.forward = forward  # type: ignore[method-assign]
    module = Plain().eval()
    model = SimpleNamespace(module=module, args=args, kwargs={}, meta={})
    return model, capture(module, args, {}, everything, name="plain", source="test")


def test_state_is_seen_by_a_second_call_and_the_module_keeps_its_own(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.count += 1
        x.add_(self.count)
        return x * self.count

    x = torch.ones(2, 3)
    model, c = captured_of(forward, (x,), everything)
    out = records.eager(model.module, (x,), {}, captured=c)
    assert out["output"].tolist() == [[2.0] * 3] * 2 and out["output@2"].tolist() == [[6.0] * 3] * 2
    assert out["state:x"].tolist() == [[2.0] * 3] * 2 and out["state:x@2"].tolist() == [[3.0] * 3] * 2
    assert float(model.module.count) == 0 and x.tolist() == [[1.0] * 3] * 2


def test_draws_stay_where_the_example_is_positive(everything: Any) -> None:
    model, c = captured_of(lambda self, x: x.log(), (torch.rand(3, 4) + 0.5,), everything)
    inputs, _, out = records.fresh(model, c, 1, 0)
    assert float(inputs["x"].min()) > 0 and bool(out["output"].isfinite().all())


def test_infinities_are_the_models_own_and_hide_nothing(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return torch.where(x > 0, x.exp() * 3, -torch.inf)

    model, c = captured_of(forward, (torch.randn(3, 4),), everything)
    inputs, _, out = records.fresh(model, c, 0, 0)
    assert bool(out["output"].isinf().any())
    found = records.sensitivity(c, inputs, records.eager(model.module, (inputs["x"],), {}, DType.F64))
    assert found.detected == found.total > 0
    # An error where nobody can see it is not seen: the infinities are no error of their own.
    hidden = records.sensitivity(c, {"x": -inputs["x"].abs()})
    assert hidden.by_outputs == 0 and hidden.total > 0


def test_of_the_branch_that_is_not_taken_inner_values_tell(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    _, c = captured_of(forward, (torch.ones(3, 4),), everything)
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.1
    found = records.sensitivity(c, {"x": x})
    (cos,) = [call for call in c.program.calls if call.op == "cos"]
    assert (found.by_outputs, found.detected, found.total) == (2, 4, 4) and found.observed == cos.out


def test_half_types_are_disturbed_by_their_own_units(everything: Any) -> None:
    _, c = captured_of(
        lambda self, x: (x.exp() + 1).tanh(), (torch.randn(3, 4, dtype=torch.bfloat16),), everything
    )
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).bfloat16() / 2
    found = records.sensitivity(c, {"x": x})
    assert found.total == 3 and {k for _, k, _ in found.missed} <= {"12.50%"}
    assert list(records.disturbances(c.program, records.reaching(c.program))) == ["12.50%"]


def test_where_nothing_is_computed_nothing_can_go_unseen(everything: Any) -> None:
    _, c = captured_of(lambda self, x: (x.T.contiguous(), x.flip(0)), (torch.randn(3, 4),), everything)
    found = records.sensitivity(c, {"x": torch.randn(3, 4)})
    assert (found.nodes, found.total) == (0, 0)
