"""What a spec says of overloads, against what PyTorch has."""

from __future__ import annotations

import pytest

from opwright.generator.spec import load_spec_text
from opwright.validators import overloads
from opwright.validators.overloads import Overloads, mistakes

SPEC = """
op: o
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {slope: {type: scalar, default: 0.01}, free: {type: scalar, default: 3}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = x[*B] * slope * free
aten: [{overload: aten.leaky_relu.default, map: {self: x, negative_slope: slope, extra: free}}]
"""
THERE = Overloads(
    "2.0",
    {
        "aten.leaky_relu.default": {
            "self": ["Tensor"],
            "negative_slope": ["number", 0.01],
            "extra": ["number", None],
        }
    },
)


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overloads, "known", lambda: THERE)


def told(text: str) -> list[tuple[str, str]]:
    return [(m.message, m.hint) for m in mistakes(load_spec_text(text)[0])]


def test_what_is_right_is_left_alone() -> None:
    """None is whatever the overload makes of it; other namespaces are of packages that need not be loaded."""
    assert told(SPEC) == []
    assert told(SPEC.replace("aten.leaky_relu.default", "torchvision.nms.default")) == []


def test_an_overload_that_is_not_there_is_told_with_the_one_that_is() -> None:
    ((message, hint),) = told(SPEC.replace("aten.leaky_relu.default", "aten.leaky_rely.default"))
    assert "`aten.leaky_rely.default`, which PyTorch 2.0 does not have" in message
    assert hint == "did you mean `aten.leaky_relu.default`?"


def test_an_argument_that_is_not_there_is_told() -> None:
    ((message, hint),) = told(SPEC.replace("negative_slope:", "negative_slop:"))
    assert "maps `negative_slop`" in message and "negative_slope" in hint


def test_another_default_is_told() -> None:
    ((message, hint),) = told(SPEC.replace("0.01", "0.02"))
    assert "is 0.02 by default" in message and "is 0.01" in message and "default: 0.01" in hint


def test_without_torch_nobody_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overloads, "known", lambda: None)
    assert told(SPEC.replace("aten.leaky_relu.default", "aten.no.such")) == []
