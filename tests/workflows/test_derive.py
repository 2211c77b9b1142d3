"""An overload without its operator: what comes back from PyTorch's decompositions, and what is said where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from opwright.errors import OpwrightError
from opwright.workflows.bridge import Bridge
from opwright.workflows.derive import Derived, chosen, derive_one, page
from opwright.workflows.workbench import Workbench

#: Overload → the kernels that it is made of when its own is taken away.
BACK = {
    "aten._softmax.default": {"amax", "div", "exp", "sub", "sum"},
    "aten.gelu.default": {"add", "erf", "mul", "tanh"},
    "aten.hardswish.default": {"add", "clamp", "div", "mul"},
    "aten.embedding.default": {"index", "index_select"},
    "aten.linear.default": {"addmm"},
    "aten.native_layer_norm.default": {"add", "mul", "rsqrt", "sub", "var_mean"},
}


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench.here(Path(__file__))


@pytest.mark.judge
@pytest.mark.parametrize("overload", BACK)
def test_what_has_a_reference_comes_back_with_parity(overload: str, bench: Workbench) -> None:
    Bridge(bench).install(bench.registry.all())
    found = derive_one(bench, *chosen(bench, [overload])[0])
    assert (found.state, set(found.kernels)) == ("derived", BACK[overload]), found.reason
    assert found.ratio <= 1


def test_what_has_none_says_so(bench: Workbench) -> None:
    found = derive_one(bench, *chosen(bench, ["aten.mm.default"])[0])
    assert (found.state, found.kernels) == ("no reference", ())


def test_another_result_than_eagers_is_seen(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that computes something else: the comparison is with the overload, not with what it became."""
    import torch

    from opwright.generator.program import torch_compat as compat

    Bridge(bench).install(bench.registry.all())
    wrong = {torch.ops.aten.hardswish.default: lambda x: torch.relu(x) * 0.5}
    monkeypatch.setattr(compat, "own", lambda t: wrong)
    found = derive_one(bench, *chosen(bench, ["aten.hardswish.default"])[0])
    assert found.state == "differs" and found.ratio > 1


def test_an_overload_that_nobody_claims_is_refused(bench: Workbench) -> None:
    with pytest.raises(OpwrightError, match="no accepted operator claims") as refused:
        chosen(bench, ["aten.geluu.default"])
    assert "aten.gelu.default" in (refused.value.hint or "")


def test_the_page_lists_both_kinds() -> None:
    text = page(
        [
            Derived("aten.a.default", "a", "derived", ("mul", "add"), 0.25),
            Derived("aten.b.default", "b", "no reference", reason="PyTorch has no decomposition of it"),
        ]
    )
    assert "| aten.a.default | a | mul, add | 0.25 |" in text
    assert "made of 2 operators" in text
    assert "| aten.b.default | b | no reference: PyTorch has no decomposition of it |" in text
