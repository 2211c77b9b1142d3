"""What PyTorch says of a model's training: the loss, every weight's gradient, and how ten steps of AdamW go.

    record_training(model, captured, records, seed)

writes into each of RECORDS/<k> (which holds `inputs.safetensors` already)
  cotangents.safetensors          by output: what the output is contracted with to give the loss (training.py)
  gradients_f32, gradients_f64    by weight; a weight that nothing depends on is left out
  training.json                   {"losses": {"f32": […], "f64": […]}, "scale"}: the loss before each step (one step for
                                  records after the first), and the sum of the magnitudes that the first loss adds up
The f64 numbers are those of the same weights and inputs, with every float in f64 (`records.eager`).

May import: captured, records, folder, models, training's names, torch_compat (and torch inside functions).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..types import DType
from . import records
from . import torch_compat as compat
from .captured import Capture, CaptureError
from .folder import read_tensors, write_tensors
from .models import Model

__all__ = ["STEPS", "record_training"]

STEPS = 10


def record_training(model: Model, captured: Capture, at: Path, seed: int) -> None:
    """Raises `CaptureError` where PyTorch does not differentiate the model."""
    if model.exported is not None:
        raise CaptureError(
            "a .pt2 is a graph of inference", hint="enable the module that it was exported from"
        )
    for k, path in enumerate(sorted(p for p in at.iterdir() if p.is_dir())):
        _record(model, captured, path, seed + k, STEPS if k == 0 else 1)


def _record(model: Model, captured: Capture, path: Path, seed: int, steps: int) -> None:
    torch = compat.require_torch()
    inputs = {n: torch.from_numpy(a.copy()) for n, a in read_tensors(path / "inputs.safetensors").items()}
    wide = read_tensors(path / "outputs_f64.safetensors")
    named = {b.name: captured.program.values[b.value].dtype for b in captured.program.outputs}
    floats = {n: wide[n].shape for n, d in named.items() if d.is_float and n in wide}
    generator = torch.Generator().manual_seed(seed)
    count = max(1, sum(int(torch.Size(s).numel()) for s in floats.values()))
    cotangents = {
        n: (torch.randn(s, generator=generator) / count**0.5).to(compat.torch_dtype(named[n]))
        for n, s in floats.items()
    }
    write_tensors(path / "cotangents.safetensors", cotangents)
    args, kwargs = records.call_of(model, captured, inputs)
    weights = [b.name for b in captured.program.weights if b.tie is None]
    facts: dict[str, Any] = {"losses": {}}
    for name, dtype in (("f32", None), ("f64", DType.F64)):
        try:
            losses, gradients, facts["scale"] = _train(
                model.module, args, kwargs, cotangents, weights, dtype, steps
            )
        except Exception as e:  # autograd raises whatever the model's own code raises
            what = (str(e).strip().splitlines() or [""])[0][:200]
            raise CaptureError(f"PyTorch itself does not differentiate it: {type(e).__name__}: {what}") from e
        facts["losses"][name] = losses
        write_tensors(path / f"gradients_{name}.safetensors", gradients)
    (path / "training.json").write_text(json.dumps(facts), encoding="utf-8")


def _train(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    weights: list[str],
    dtype: DType | None,
    steps: int,
) -> tuple[list[dict[str, float]], dict[str, Any], dict[str, float]]:
    """What each output adds to the loss before each step, the first gradients, and the scales of the first of these."""
    torch = compat.require_torch()
    module = copy.deepcopy(module)
    if dtype is not None:
        module = compat.module_in(module, dtype)
        args, kwargs = compat.widened((tuple(args), dict(kwargs)), dtype)
        cotangents = compat.widened(dict(cotangents), dtype)
    every = dict(module.named_parameters(remove_duplicate=False))
    floats = {n: every[n] for n in weights if n in every and every[n].is_floating_point()}
    for p in module.parameters():
        p.requires_grad_(False)
    for p in floats.values():
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(floats.values(), foreach=False)
    losses: list[dict[str, float]] = []
    first: dict[str, Any] = {}
    scale: dict[str, float] = {}
    with torch.enable_grad(), compat.uncompiled(), compat.computing_in(dtype):
        for step in range(steps):
            own, named = compat.copied((tuple(args), dict(kwargs)))
            out = dict(compat.flatten_named(module(*own, **named), "output"))
            parts = [out[n] * c for n, c in cotangents.items()]
            sums = {n: p.sum() for n, p in zip(cotangents, parts, strict=True)}
            loss = sum(sums.values())
            losses.append({n: float(x.detach()) for n, x in sums.items()})
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                scale = {n: float(p.detach().abs().sum()) for n, p in zip(cotangents, parts, strict=True)}
                first = {n: p.grad.detach().clone() for n, p in floats.items() if p.grad is not None}
            optimizer.step()
    return losses, first, scale
