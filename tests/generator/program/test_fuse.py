"""Fusion: what joins, what stays; a group computes what its members did, and its text depends on that alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator import bind, bind_key, normal
from opwright.generator.program import aten, ir, records
from opwright.generator.program.capture import capture
from opwright.generator.program.captured import Capture
from opwright.generator.program.fuse import MAX_INPUTS, Fused, fuse, unfused
from opwright.generator.spec import Registry, load_spec_text

from ..bound_interpreter import run

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def registry(root: Path) -> Registry:
    return Registry.load([root / "specs" / "ops"])


@pytest.fixture(scope="module")
def table(registry: Registry) -> Any:
    return aten.table_of_registry(registry)


class Fn(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *xs: Any) -> Any:
        return self.fn(*xs)


X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
BIAS = torch.linspace(0.5, 1.5, 4)


@pytest.fixture
def made(table: Any, registry: Registry) -> Callable[..., tuple[Capture, Fused]]:
    def make(fn: Callable[..., Any], *xs: Any) -> tuple[Capture, Fused]:
        c = capture(Fn(fn), xs, {}, table, name="fn", source="test")
        assert not any(n.missing for n in c.program.calls)
        return c, fuse(c.program, registry.get)

    return make


def same(c: Capture, fused: Fused, inputs: dict[str, Any]) -> None:
    """Every group, run by a reader of Bound programs on eager's own inputs, gives eager's values."""
    values = records.values(c, inputs)
    for call in fused.program.calls:
        if not call.op.startswith("group:"):
            continue
        (spec,) = load_spec_text(fused.groups[call.op.removeprefix("group:")])
        assert spec.op == call.op
        (key, *_) = bind_key.keys_of(spec)
        op = normal.normalise(bind.bind(spec, key))
        assert normal.classify(op) in ("pointwise", "copy")
        given = {f"x{k}": values[str(a)].numpy() for k, a in enumerate(call.inputs)}
        with np.errstate(all="ignore"):
            got = run(op, given)["y"]
        want = values[str(call.out[0])]
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def ops(p: ir.Program) -> list[str]:
    return [c.op.split(":")[0] for c in p.calls]


CHAINS: dict[str, tuple[Callable[..., Any], int]] = {
    "chain": (lambda x: (x * 2.0 + 1.0).tanh().exp(), 1),
    "tree": (lambda x: (x * 2.0) * (x.sigmoid() + x), 1),
    "broadcast": (lambda x, b=BIAS: (x * b + b).relu(), 1),
    "weak scalars": (lambda x: (x * 0.1 + 3) ** 2, 1),
    "cast": (lambda x: (x * 2).to(torch.float64) * 3.0, 1),
    "a constant": (lambda x: torch.where(x > 0, torch.full_like(x, 2.0) * 3.0, x) + 1, 1),
    "a cast constant": (lambda x: (torch.zeros(2, 3, 4).to(torch.float64).to(torch.float32) + x) * 2, 1),
    "bool": (lambda x: torch.where((x > 0) & (x < 1), x, -x), 1),
    "twice": (lambda x: torch.relu(x + 1) * torch.relu(x + 1), 1),
    "around a reduction": (lambda x: ((x * 2).exp().sum(-1, keepdim=True) + 1).log() * 2, 2),
    "gelu": (lambda x: torch.nn.functional.gelu(x * 2, approximate="tanh") + 1, 1),
    "alpha": (lambda x: torch.add(x, x.exp(), alpha=2) * 3, 1),
    "constant": (lambda x: torch.minimum(x * 2, torch.full_like(x, 0.1)) + torch.full_like(x, 3).neg(), 1),
}


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_groups_compute_what_their_members_did(name: str, made: Callable[..., tuple[Capture, Fused]]) -> None:
    fn, count = CHAINS[name]
    c, fused = made(fn, X)
    assert ops(fused.program).count("group") == count
    ir.verify(fused.program)
    assert len(fused.program.calls) < len(c.program.calls)
    same(c, fused, records.input_tensors(c, (X,), {}))


def test_a_refused_group_stays_as_it_was(
    made: Callable[..., tuple[Capture, Fused]], registry: Registry
) -> None:
    c, fused = made(lambda x: ((x * 2.0 + 1.0).sum(-1) * 3.0).exp(), X)
    first, second = (n.op.removeprefix("group:") for n in fused.program.calls if n.op.startswith("group:"))
    again = fuse(c.program, registry.get, {first})
    assert again.groups.keys() == {second}
    assert ops(again.program) == ["mul", "add", "sum", "group"]


def test_values_that_are_wanted_stay(made: Callable[..., tuple[Capture, Fused]], registry: Registry) -> None:
    c, fused = made(lambda x: (x * 2.0 + 1.0).exp().tanh(), X)
    assert len(fused.program.calls) == 1
    (wanted,) = c.program.calls[1].out
    again = fuse(c.program, registry.get, keep=[str(wanted)])
    assert [n.out for n in again.program.calls] == [(wanted,), fused.program.calls[0].out]


def test_members_are_told(made: Callable[..., tuple[Capture, Fused]]) -> None:
    c, fused = made(lambda x: (x * 2.0 + 1.0).tanh().sum(-1), X)
    group, total = fused.program.calls
    assert unfused(fused, group.id) == tuple(n.id for n in c.program.calls[:3])
    assert unfused(fused, total.id) == (total.id,)
    assert group.out == c.program.calls[2].out and group.site == c.program.calls[2].site


def test_a_value_that_others_read_stays(made: Callable[..., tuple[Capture, Fused]]) -> None:
    _, fused = made(lambda x: ((x * 2.0).exp(), (x * 2.0).sum()), X)
    assert sorted(ops(fused.program)) == ["exp", "mul", "sum"]
    _, fused = made(lambda x: (x.exp(), x.exp().sin()), X)
    assert sorted(ops(fused.program)) == ["exp", "sin"]


def test_a_smaller_value_is_not_computed_again_at_every_place(
    made: Callable[..., tuple[Capture, Fused]],
) -> None:
    _, fused = made(lambda x, b: x * (b.exp() + 1), X, BIAS)
    assert sorted(ops(fused.program)) == ["group", "mul"]


def test_a_lone_call_stays_alone(made: Callable[..., tuple[Capture, Fused]]) -> None:
    c, fused = made(lambda x: x.exp().sum(-1), X)
    assert fused.program == c.program and not fused.groups


def test_inputs_are_limited(made: Callable[..., tuple[Capture, Fused]]) -> None:
    xs = [torch.full((2, 3), float(k)) for k in range(2 * MAX_INPUTS)]
    _, fused = made(lambda *xs: sum(x * 2.0 for x in xs), *xs)
    assert all(len(n.inputs) <= MAX_INPUTS for n in fused.program.calls)
    assert ops(fused.program).count("group") > 1


def test_one_text_for_one_meaning(made: Callable[..., tuple[Capture, Fused]]) -> None:
    _, one = made(lambda x: (x * 2.0 + 1.0).tanh().sum(-1), X)
    _, two = made(lambda x, b: ((b * 2.0 + 1.0).tanh().sum(), x.sum()), X, BIAS)
    assert one.groups == two.groups
    _, other = made(lambda x: (x * 2.5 + 1.0).tanh().sum(-1), X)
    assert not one.groups.keys() & other.groups.keys()
    _, twice = made(lambda x: ((x * 2.0 + 1.0).tanh().sum(-1), ((x.sum(-1)) * 2.0 + 1.0).tanh()), X)
    assert len(twice.groups) == 1 and ops(twice.program).count("group") == 2


def test_text_of_a_group(made: Callable[..., tuple[Capture, Fused]]) -> None:
    _, fused = made(lambda x, b: (x * b).sigmoid() + 0.1, X, BIAS)
    ((hash, text),) = fused.groups.items()
    assert text.startswith(f"op: group:{hash}\n")
    assert 'inputs: {x0: "f32[*B]", x1: "f32[*B]"}\noutputs: {y: "f32[*B]"}\n' in text
    assert "  t0[*B] = x0[*B] * x1[*B]\n  t1[*B] = sigmoid(t0[*B])\n  y[*B] = t1[*B] + f32(0.1)\n" in text
    assert "grad: {none: a program is differentiated before its groups are made}" in text


def test_calls_of_ops_without_specs_stay(made: Callable[..., tuple[Capture, Fused]], table: Any) -> None:
    c = capture(Fn(lambda x: (x.erfinv() * 2.0 + 1.0).exp()), (X * 0.4,), {}, table, name="fn", source="test")
    registry = Registry()
    fused = fuse(c.program, registry.get)
    assert fused.program == c.program


def test_half_rounds_where_its_members_did(made: Callable[..., tuple[Capture, Fused]]) -> None:
    _, fused = made(lambda x: (x * 3.0 + 1.0).exp(), X.to(torch.bfloat16))
    ((_, text),) = fused.groups.items()
    assert text.count("bf16(") >= 3


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("gpt2", 55),
        *(
            pytest.param(n, k, marks=pytest.mark.nightly)
            for n, k in (("llama", 90), ("bert", 60), ("vit", 50))
        ),
    ],
)
def test_the_skeleton_models(
    name: str,
    most: int,
    table: Any,
    registry: Registry,
    model_of: Callable[[str], Any],
    capture_of: Callable[[str], Capture],
) -> None:
    model = model_of(name)
    exported = capture_of(name).exported  # exported once for all tests
    c = capture(
        model.module, model.args, model.kwargs, table, name=name, source=model.source, exported=exported
    )
    assert not [n.aten for n in c.program.calls if n.missing]
    fused = fuse(c.program, registry.get)
    assert len(fused.program.calls) <= most
    assert ir.loads(ir.dumps(fused.program)) == fused.program
    same(c, fused, records.input_tensors(c, model.args, model.kwargs))
    again = fuse(
        fused.program,
        lambda op: load_spec_text(fused.groups[op[6:]])[0] if op.startswith("group:") else registry.get(op),
    )
    assert again.program == fused.program  # nothing is left to fuse


def test_what_reads_nothing_is_no_group(made: Callable[..., tuple[Capture, Fused]]) -> None:
    """Nobody would say its extents."""
    _, fused = made(lambda x: (x + 1, torch.full((3,), 2.0).add(1).exp()), X)
    assert not [g for g in fused.program.calls if g.op.startswith("group:") and not g.inputs]
