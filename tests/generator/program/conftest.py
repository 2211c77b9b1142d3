"""Captures that several test files look at, made once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from opwright.generator.program import torch_compat as compat
from opwright.generator.program.aten import AtenRow
from opwright.generator.program.capture import capture
from opwright.generator.program.captured import PLACEMENT, Capture

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are tiny: threads would only wait for each other


class Everything(dict[str, tuple[AtenRow, ...]]):
    """An aten table that takes every overload, as an op of the overload's name with its own arguments."""

    def get(self, name: str, default: Any = ()) -> tuple[AtenRow, ...]:  # type: ignore[override]
        op = compat.overload_of(name)
        if op is None:
            return ()
        args = [a for a in compat.arguments(op) if a.name not in PLACEMENT]
        inputs = tuple(a.name for a in args if "Tensor" in a.type)
        attrs = tuple(a.name for a in args if "Tensor" not in a.type)
        count = len(op._schema.returns)
        outputs = tuple(f"y{k}" for k in range(count)) if count > 1 else ("y",)
        return (
            AtenRow(
                name.split(".")[1],
                name,
                tuple((a.name, a.name) for a in args),
                inputs,
                attrs,
                outputs,
                outputs,
            ),
        )


@pytest.fixture(scope="session")
def everything() -> Everything:
    return Everything()


@cache
def _model(name: str) -> Any:
    pytest.importorskip("transformers")
    from opwright.generator.program import models

    return models.load(name)


@cache
def _capture(name: str) -> Capture:
    model = _model(name)
    return capture(model.module, model.args, model.kwargs, Everything(), name=name, source=model.source)


@pytest.fixture(scope="session")
def model_of() -> Callable[[str], Any]:
    """The tiny model of a transformers type."""
    return _model


@pytest.fixture(scope="session")
def capture_of() -> Callable[[str], Capture]:
    """Its capture with a table that takes everything."""
    return _capture
