"""Level L5: gradients of all parameters by the L2 rule, and ten steps of AdamW that keep the losses together.

    gradients   per record and weight, at the weights of the capture:
                max |ours − f64|  ≤  4 × max |eager f32's − f64|  +  8 u max |f64|
    losses      of the first record, over its ten steps, S being what the first loss adds up, in magnitude:
                max |ours − f64|  ≤  4 × max |eager f32's − f64|  +  8 u S

The loss is linear in the outputs, by given cotangents (generator/program/training.py), so its size says nothing of the
rounding in it: S does.  A weight that PyTorch gives no gradient, nothing depends on; ours has then none or zeros.

May import: parity (its rule), generator.program (folder, training), numpy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..generator.program.folder import read_tensors
from ..generator.types import DType
from .parity import float_rule

__all__ = ["Trained", "judge_training"]


@dataclass(frozen=True)
class Trained:
    """What the comparison found: of the worst gradient its error, bound and eager's own error; the same of losses."""

    held: bool
    reason: str = ""
    gradients: int = 0
    error: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)


def judge_training(records: Path, ran: Path) -> Trained:
    """Compare what the child wrote (`ran`) with what PyTorch said (`records`)."""
    worst, where = -1.0, ""
    error: Mapping[str, float] = {}
    losses: Mapping[str, float] = {}
    count = 0
    bad = ""
    for path in sorted(p for p in records.iterdir() if p.is_dir()):
        f32, f64 = (read_tensors(path / f"gradients_{n}.safetensors") for n in ("f32", "f64"))
        got = read_tensors(ran / path.name / "gradients.safetensors")
        facts = json.loads((path / "training.json").read_text(encoding="utf-8"))
        ours = json.loads((ran / path.name / "losses.json").read_text(encoding="utf-8"))
        for name in sorted(f64.keys() | got.keys()):
            ratio, numbers = _gradient(got.get(name), f32.get(name), f64.get(name))
            count += 1
            if ratio > worst:
                worst, where, error = ratio, f"the gradient of {name} in record {path.name}", numbers
        off, numbers = _losses(ours, facts)
        if not losses or off > losses["ratio"]:
            losses = numbers | {"ratio": off}
        if off > 1 and not bad:
            bad = (
                f"the losses of record {path.name} part: off by {numbers['max']:.3g}, at most"
                f" {numbers['bound']:.3g}"
            )
    if not count:
        return Trained(False, "no gradient was compared")
    if worst > 1:
        bad = f"{where}: error {error['max']:.3g}, at most {error['bound']:.3g}"
    return Trained(not bad, bad, count, error, losses)


def _gradient(
    got: NDArray[Any] | None, f32: NDArray[Any] | None, f64: NDArray[Any] | None
) -> tuple[float, dict[str, float]]:
    """Error over bound of one gradient; a side that has none has zeros."""
    shape = next(x.shape for x in (f64, got) if x is not None)
    if got is not None and got.shape != shape:
        return np.inf, {"max": np.inf, "bound": 0.0, "eager": 0.0}
    zero = np.zeros(shape)
    return float_rule(
        zero if got is None else got, zero if f32 is None else f32, zero if f64 is None else f64
    )


def _losses(ours: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """Of the outputs that ours is made of: what no weight reaches adds to PyTorch's a number that never changes."""
    exact, own = (
        np.asarray([sum(step[n] for n in ours["of"]) for step in facts["losses"][side]], dtype=np.float64)
        for side in ("f64", "f32")
    )
    scale = sum(facts["scale"][n] for n in ours["of"])
    got = np.asarray(ours["losses"], dtype=np.float64)
    if got.shape != exact.shape or not np.isfinite(got).all():
        return np.inf, {"max": np.inf, "bound": 0.0, "eager": 0.0}
    error, eager = float(np.abs(got - exact).max()), float(np.abs(own - exact).max())
    bound = 4 * eager + 8 * DType.F32.u * scale
    return (error / bound if bound > 0 else 0.0 if error == 0 else np.inf), {
        "max": error,
        "bound": bound,
        "eager": eager,
    }
