"""Gradients of programs: small modules through every kind of node, against PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.gradient import NoGradientError
from opwright.generator.program import views
from opwright.generator.program.capture import capture
from opwright.generator.program.folder import FolderError, read_folder, write_folder
from opwright.generator.program.grad import permutation
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import from_json, to_json
from opwright.generator.program.request import gradient_text, read_gradient
from opwright.generator.program.training import Training, training_program
from opwright.generator.program.views import Layout
from opwright.workflows.bridge import Bridge, aten_rows
from opwright.workflows.workbench import Workbench

torch = pytest.importorskip("torch")
of = IntExpr.of


class Net(torch.nn.Module):  # type: ignore[misc]
    """A function of an input [2, 6] and the weights w [4, 6] and b [6]."""

    def __init__(self, fn: Callable[..., Any], tied: bool = False) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.w = torch.nn.Parameter(torch.randn(4, 6, generator=g))
        self.b = torch.nn.Parameter(torch.randn(6, generator=g))
        self.fn = fn
        if tied:
            self.again = self.w

    def forward(self, x: Any) -> Any:
        return self.fn(self, x)


X = torch.linspace(-1, 2, 12).reshape(2, 6)


def _under_no_grad(m: Any, x: Any) -> Any:
    """A gate that nothing is learned through, of a value that is learned through elsewhere."""
    y = x * m.b
    with torch.no_grad():
        gate = torch.softmax(y @ m.w.T, -1)
        top, _ = gate.max(-1)
    return y * gate[:, :1] + top[:, None] * m.b


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "a layer": lambda m, x: torch.tanh(x @ m.w.T) @ m.w + m.b,
    "one weight twice in a call": lambda m, x: x * m.b * m.b,
    "a slice and a stride": lambda m, x: x[:, 1:4] * m.w[0, 2:5] + m.w[1, ::2],
    "windows that overlap": lambda m, x: m.b.unfold(0, 3, 1).sum(-1) * x[:, :4],
    "a diagonal": lambda m, x: torch.diagonal(m.w) * x[:, :4],
    "a permutation": lambda m, x: x @ m.w.reshape(2, 2, 6).permute(2, 1, 0).reshape(6, 4),
    "an expanded weight": lambda m, x: m.b[None, :, None].expand(2, 6, 3).sum(-1) * x,
    "parts joined": lambda m, x: torch.cat([m.w[:2], x, m.w[2:]], 0).softmax(0),
    "rows by index": lambda m, x: m.w[torch.tensor([0, 2, 2])] + x[:1],
    "several results": lambda m, x: m.w.topk(2, dim=1)[0] * x[0, :2],
    "a choice": lambda m, x: torch.where(m.w > 0, m.w * 2, m.w * m.w)[:2] + x,
    "two outputs": lambda m, x: (x * m.b, (x + m.w[0]).sum(-1)),
    "what is detached": lambda m, x: (m.w * m.b).detach()[:2] * m.b + x * m.b,
    "what is detached after a view": lambda m, x: m.w.T.detach() @ m.w + m.w[0].detach() * m.b,
    "what is computed under no_grad": _under_no_grad,
    "straight through": lambda m, x: x * m.b + (torch.round(x * m.b) - x * m.b).detach(),
    "what is constant almost everywhere": lambda m, x: (
        (torch.floor(m.w[:2] * 3) + torch.ones_like(m.w[:2])) * m.b
    ),
    "a norm": lambda m, x: torch.nn.functional.layer_norm(x @ m.w.T, (4,), m.b[:4], m.w[:, 0]),
}


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench.here(Path(__file__))


@pytest.fixture(scope="module")
def installed(bench: Workbench) -> None:
    Bridge(bench).install(bench.registry.all())


def trained(bench: Workbench, module: Any) -> tuple[Any, Training]:
    table = aten_rows(bench.registry.all())
    c = capture(module, (X,), {}, table, name="net", source="test", further=True)
    return c, training_program(c.program, bench.registry.get)


def run(
    c: Any, t: Training, folder: Path, cotangents: dict[str, Any], steps: int = 1
) -> list[dict[str, Any]]:
    from opwright.program import Program

    write_folder(folder, t.program, t.tensors({k: v.detach() for k, v in c.tensors.items()}), None, t.grads)
    loaded = Program.load(folder)
    given = {b.name: X.numpy() for b in c.program.inputs} | cotangents
    return [{n: np.array(v.numpy()) for n, v in loaded.run(given).items()} for _ in range(steps)]


def outputs_of(module: Any) -> list[Any]:
    out = module(X)
    return list(out) if isinstance(out, tuple) else [out]


def given_to(c: Any, module: Any) -> dict[str, Any]:
    g = torch.Generator().manual_seed(2)
    return {
        f"cotangent.{b.name}": torch.randn(y.shape, generator=g).numpy()
        for b, y in zip(c.program.outputs, outputs_of(module), strict=True)
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("installed")
def test_gradients_are_those_of_autograd(name: str, bench: Workbench, tmp_path: Path) -> None:
    module = Net(CASES[name])
    c, t = trained(bench, module)
    cotangents = given_to(c, module)
    (got,) = run(c, t, tmp_path / "training", cotangents)
    loss = sum(
        (y * torch.from_numpy(g)).sum() for y, g in zip(outputs_of(module), cotangents.values(), strict=True)
    )
    loss.backward()
    assert got["loss"] == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-5)
    for weight, p in module.named_parameters():
        if p.grad is None:
            assert weight not in t.trained
        else:
            np.testing.assert_allclose(got[f"gradient.{weight}"], p.grad.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("installed")
def test_ten_steps_are_those_of_pytorchs_adamw(bench: Workbench, tmp_path: Path) -> None:
    module = Net(CASES["a layer"], tied=True)
    c, t = trained(bench, module)
    assert len(t.trained) == 2, "a tied weight is one"
    cotangents = given_to(c, module)
    got = [float(r["loss"]) for r in run(c, t, tmp_path / "training", cotangents, steps=10)]
    optimizer = torch.optim.AdamW(module.parameters())
    want = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = sum(
            (y * torch.from_numpy(g)).sum()
            for y, g in zip(outputs_of(module), cotangents.values(), strict=True)
        )
        loss.backward()
        optimizer.step()
        want.append(float(loss.detach()))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert got[9] < got[0]


def test_what_has_no_gradient_is_named(bench: Workbench) -> None:
    with pytest.raises(NoGradientError, match=r"at .*test_grad_program.py:\d+ has no gradient: "):
        trained(bench, Net(lambda m, x: torch.complex(m.w[:2], x).abs()))
    with pytest.raises(NoGradientError, match="no float output depends on a weight"):
        trained(bench, Net(lambda m, x: x * 2))


def test_outputs_of_two_dtypes_add_up_in_the_wider(bench: Workbench) -> None:
    _, t = trained(bench, Net(lambda m, x: (x * m.b, m.w.double() * 2, m.b * 3)))
    (loss,) = (b.value for b in t.program.outputs if b.name == "loss")
    assert t.program.values[loss].dtype.value == "f64"


def test_what_does_not_depend_on_a_weight_needs_no_gradient(bench: Workbench) -> None:
    _, t = trained(bench, Net(lambda m, x: torch.floor(x) * m.b))
    assert t.trained == ("b",) and t.losses == ("output",)


def test_the_program_is_data_and_the_folder_is_whole(bench: Workbench, tmp_path: Path) -> None:
    c, t = trained(bench, Net(CASES["a layer"]))
    assert from_json(to_json(t.program)) == t.program
    tensors = t.tensors({k: v.detach() for k, v in c.tensors.items()})
    with pytest.raises(FolderError, match="no spec for the grads"):
        write_folder(tmp_path / "lacking", t.program, tensors)
    write_folder(tmp_path / "whole", t.program, tensors, None, t.grads)
    assert read_folder(tmp_path / "whole").grads == t.grads
    hash = next(iter(t.grads))
    path = tmp_path / "whole" / "grads" / f"{hash}.json"
    request = read_gradient(path, f"grad:{hash}")
    assert gradient_text(request) == (f"grad:{hash}", path.read_text())
    with pytest.raises(ValueError, match="does not hold"):
        read_gradient(path, "grad:0000000000000000")


def test_layouts_that_only_permute() -> None:
    n = of("s0")
    base = (of(4), n, of(6))
    x = views.contiguous(base)
    assert permutation(x, base) == [0, 1, 2]
    assert permutation(views.permute(x, (2, 0, 1)), base) == [1, 2, 0]
    assert permutation(views.reshape(x, [of(4), n, of(2), of(3)]) or x, base) == [0, 1, 2, 3]
    assert permutation(views.slice_dim(x, 2, of(0), of(5), 1), base) is None
    assert permutation(Layout((of(3),), (of(1),), of(1)), (of(4),)) is None
