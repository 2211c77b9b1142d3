"""The model in bf16, as its own users run it: captured again, with what PyTorch makes of it in bf16 and in f64.

    record_half(model, table, outdir, seed=…, count=2)

writes OUTDIR/{program/, records/<k>/{inputs, outputs_bf16, outputs_f64, values}.safetensors, records/<k>/record.json}.
The model is captured again and not rewritten: where its code asks for f32 (norms, softmax), the program does so too.
The f64 outputs are those of the bf16 weights and inputs, so both errors are of the arithmetic alone.

May import: capture, captured, records, folder, torch_compat (and torch inside functions).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..types import DType
from . import records
from . import torch_compat as compat
from .aten import AtenTable
from .capture import capture
from .captured import CaptureError
from .explain import explain
from .folder import write_folder, write_tensors
from .models import Model

__all__ = ["record_half"]


def record_half(
    model: Model,
    table: AtenTable,
    out: Path,
    *,
    seed: int = 0,
    count: int = 2,
    further: bool = False,
    clock: Callable[[str, Callable[[], Any]], Any] | None = None,
) -> None:
    """Raises `CaptureError` where PyTorch itself does not run the model in bf16, or it does not export."""
    timed = clock or (lambda stage, work: work())
    half = timed("half", lambda: _halved(model))
    captured = timed(
        "half",
        lambda: capture(
            half.module,
            half.args,
            half.kwargs,
            table,
            name=half.name,
            source=half.source,
            further=further,
            fixed=half.fixed,
            assuming=half.assuming,
        ),
    )
    write_folder(out / "program", captured.program, captured.tensors)
    for k in range(count):
        timed("half", partial(_record, half, captured, out / "records" / str(k), k, seed))


def _halved(model: Model) -> Model:
    torch = compat.require_torch()
    if model.exported is not None:
        raise CaptureError(
            "a .pt2 is of the dtypes that it was exported in", hint="export the model in bf16 too"
        )
    module = copy.deepcopy(model.module).to(torch.bfloat16)
    args, kwargs = compat.widened((tuple(model.args), dict(model.kwargs)), DType.BF16)
    try:
        records.eager(module, args, kwargs)
    except Exception as e:
        place, _ = explain(e)
        what = (str(e).strip().splitlines() or [""])[0][:200]
        raise CaptureError(
            f"PyTorch itself does not run it in bf16: {type(e).__name__}: {what}", place=place
        ) from e
    return replace(model, module=module, args=args, kwargs=kwargs)


def _record(model: Model, captured: Any, path: Path, k: int, seed: int) -> None:
    path.mkdir(parents=True)
    inputs, symbols, out16 = records.fresh(model, captured, k, seed + 100 + k)
    args, kwargs = records.call_of(model, captured, inputs)
    if captured.program.state:
        out16 = records.eager(model.module, args, kwargs, captured=captured)
    out64 = records.eager(model.module, args, kwargs, DType.F64, captured=captured)
    names = {b.name for b in captured.program.outputs}
    for name, out in (("bf16", out16), ("f64", out64)):
        kept = {n: t for n, t in out.items() if n.removesuffix("@2") in names}
        write_tensors(path / f"outputs_{name}.safetensors", kept)
    write_tensors(path / "inputs.safetensors", inputs)
    write_tensors(path / "values.safetensors", {})
    (path / "record.json").write_text(json.dumps({"symbols": symbols}), encoding="utf-8")
