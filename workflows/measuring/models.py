"""Whole models: a program made by `enable`'s own stages, against the module that it was made of.

    rows_of("llama", bench, dtypes)      rows of a name of whole.py: `llama`, or one of them, `llama-decode-bf16`
    rows_of("gpt2", …)                   what `enable` takes, or the folder of a program

The parent makes the program (captured, fused, its groups judged, kernels built: no records); the processes load the
module by itself, with the same seed.  May import: enable, generator.program; torch inside functions of the children.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...generator.errors import did_you_mean
from ..workbench import Workbench
from . import agreement
from .rounds import OURS
from .rows import BenchError, Plan, answers_of, finish, load_all, note_of, timed, wrong
from .sides import Gone, Sides
from .workload import WorkloadError

__all__ = ["NAMES", "ModelRow", "eager_model", "exported_onnx", "row_named", "rows_of"]

#: name -> (maker of whole.py, dtypes): `llama` stands for all that begin with it.
NAMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "llama-decode": ("llama_decode", ("f32", "bf16")),
    "llama-prefill": ("llama_prefill", ("f32", "bf16")),
    "bert": ("bert", ("f32", "bf16")),
    "vit": ("vit", ("f32",)),
    "resnet": ("resnet", ("f32",)),
    "chain": ("chain", ("f32", "bf16")),
    "chain-bias": ("chain_bias", ("f32", "bf16")),
    "rope": ("rope", ("f32", "bf16")),
}
#: What the suite alone asks for, but by its whole name.
_PARTS = ("chain", "chain-bias", "rope")


@dataclass(frozen=True)
class ModelRow:
    """One model to measure: what people call it, and the target or folder that it is."""

    name: str
    target: str
    dtype: str = "f32"
    folder: Path | None = None

    @property
    def short(self) -> str:
        """The name as part of a file's."""
        return re.sub(r"[^\w.]+", "-", self.name).strip("-.")

    def facts(self) -> dict[str, Any]:
        return {"model": self.name, "class": "whole models"}

    def measurer(
        self, bench: Workbench, progress: Any, goals: Mapping[str, float] | None = None
    ) -> Callable[[Sides, Plan], dict[str, Any]]:
        return lambda sides, plan: measure_model(self, bench, progress, sides, plan, goals)


def rows_of(name: str, bench: Workbench, dtypes: Sequence[str]) -> list[ModelRow]:
    """The rows that a name stands for.  Raises WorkloadError, TargetError."""
    from ...generator.program.models import target_kind

    path = Path(name)
    if (path / "program.json").is_file():
        source = json.loads((path / "program.json").read_text(encoding="utf-8"))
        return [ModelRow(path.name, source["source"].removeprefix("transformers:"), source["dtype"], path)]
    found = [
        row_named(n, dtype)
        for n, (_, known) in NAMES.items()
        for dtype in known
        if _means(name, n, dtype) and (not dtypes or dtype in dtypes)
    ]
    if found:
        return found
    if target_kind(name) == "config":
        raise WorkloadError(f"{name} is a configuration without weights: nothing can run")
    if target_kind(name) == "transformers":
        from ...generator.program.models import model_types

        if name not in model_types():
            raise WorkloadError(
                f"there is no model `{name}`",
                hint=did_you_mean(name, [*NAMES, "llama", *model_types()], what="models")
                or "llama, bert, vit, resnet, a model type of transformers, file.py:function or a program folder",
            )
    return [ModelRow(name, name)]


def _means(asked: str, name: str, dtype: str) -> bool:
    if asked in (name, f"{name}-{dtype}"):
        return True
    return name not in _PARTS and asked in (name.partition("-")[0], f"{name.partition('-')[0]}-{dtype}")


def row_named(name: str, dtype: str) -> ModelRow:
    """A row of whole.py."""
    maker, _ = NAMES[name]
    file = Path(__file__).with_name("whole.py")
    return ModelRow(f"{name}, {dtype}", f"{file}:{maker}_{dtype}", dtype)


# ---- the parent -----------------------------------------------------------------------------------------------------


def program_of(row: ModelRow, bench: Workbench, progress: Any, seed: int) -> tuple[Path, dict[str, Any]]:
    """The program of a model: the folder that was named, or one made now.  Raises WorkloadError."""
    if row.folder is not None:
        return row.folder, {}
    from ..enable import enable_target

    folder = bench.config.root / "build" / "programs" / f"bench-{row.short}"
    if folder.exists():
        shutil.rmtree(folder)
    result = enable_target(bench, row.target, progress, out=folder, seed=seed, until="composed")
    if result.failed:
        raise WorkloadError(
            f"{row.name} is no program yet: {result.failed}", hint=f"opwright enable {row.target}"
        )
    seconds = {k: round(v, 1) for k, v in result.seconds.items()}
    return folder, {"program_s": seconds, "calls": result.calls, "groups": result.groups}


def measure_model(
    row: ModelRow,
    bench: Workbench,
    progress: Any,
    sides: Sides,
    plan: Plan,
    goals: Mapping[str, float] | None,
) -> dict[str, Any]:
    """A row of a whole model."""
    plan.report("making the program")
    folder, facts = program_of(row, bench, progress, plan.seed)
    program = json.loads((folder / "program.json").read_text(encoding="utf-8"))
    request = {
        "program": str(folder.absolute()),
        "target": row.target,
        "seed": plan.seed,
        "tree": program["tree"],
        "outputs": [b["name"] for b in program["outputs"]],
    }
    out: dict[str, Any] = {
        "op": None,
        "workload": row.name,
        "dtype": program["dtype"],
        "overload": None,
        "program": facts,
    }
    with tempfile.TemporaryDirectory(prefix="opwright-bench-") as scratch:
        work = Path(scratch)
        _inputs(sides, request, work)
        loaded = load_all(sides, request, work, plan, out)
        compare(sides, loaded, work, out)
        out["bytes"] = _bytes(folder, work)
        finish(out, timed(sides, loaded, plan), plan, goals)
        compare(sides, loaded, work, out)
    return out


def _inputs(sides: Sides, request: Mapping[str, Any], work: Path) -> None:
    """What the module is called with, by the program's names: the example of the folder, else the module's own."""
    from ...generator.program.folder import read_folder, write_tensors

    example = read_folder(Path(request["program"])).example()
    if example is not None:
        write_tensors(work / "inputs.safetensors", example.arrays)
        return
    try:
        said = sides.helper.ask({"do": "inputs", "folder": str(work), "request": dict(request)})
    except Gone as error:
        raise BenchError(f"the model cannot be loaded: {error}") from None
    if "missing" in said:
        raise BenchError(f"the model cannot be loaded: {said['missing']}")


def _bytes(folder: Path, work: Path) -> int:
    """What a run reads at least: the weights and its inputs."""
    files = (folder / "weights.safetensors", work / "inputs.safetensors")
    return sum(f.stat().st_size for f in files if f.is_file())


def compare(sides: Sides, loaded: Mapping[str, Any], work: Path, row: dict[str, Any]) -> None:
    """All answers against ours, by PyTorch's f64.  Raises BenchError where ours is wrong."""
    eager = "torch" if "torch" in loaded else None
    ours = answers_of(sides, OURS, 0, work)
    assert ours is not None
    own = answers_of(sides, eager, 0, work) if eager else None
    wide = answers_of(sides, eager, 0, work, "exact") if eager else None
    for name in (OURS, *row["rivals"]):
        if name not in loaded:
            continue
        if own is None or wide is None:
            row["rivals"].get(name, {})["answers"] = "not compared: torch is not among the rivals"
            continue
        theirs = own if name in (OURS, eager) else answers_of(sides, name, 0, work)
        worst, where = agreement.by_exact(ours, theirs or {}, own, wide)
        if name != OURS:
            note_of(row, name, "f64", worst, where)
        elif not worst <= 1:
            raise wrong(f"{where}, {worst:.3g} times the bound")


# ---- the children that have torch -----------------------------------------------------------------------------------


@dataclass
class EagerModel:
    """A module with the call that the program is of."""

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def answers(self, result: Any) -> dict[str, Any]:
        from ...generator.program import torch_compat as compat
        from .eager import numpy_of

        return {n: numpy_of(t) for n, t in compat.flatten_named(result, "output") if hasattr(t, "detach")}

    def exact(self) -> dict[str, Any]:
        from ...generator.program import records
        from ...generator.types import DType
        from .eager import numpy_of

        found = records.eager(self.module, self.args, self.kwargs, DType.F64)
        return {n: numpy_of(t) for n, t in found.items()}


def eager_model(request: Mapping[str, Any], folder: Path | None = None) -> EagerModel:
    """The module that a program is of, made with the same seed, and its arguments: those of the example where there is
    one.  Raises TargetError."""
    from ...generator.program import models
    from ...generator.program.folder import read_tensors
    from .child import Missing
    from .eager import tensor_of

    if models.target_kind(request["target"]) == "onnx":
        raise Missing("an ONNX file is no module of torch")
    model = models.load(request["target"], seed=request["seed"])
    if model.module is None:
        raise Missing("an exported program is no module of torch")
    arrays: dict[str, Any] = {}
    if folder is not None and (folder / "inputs.safetensors").is_file():
        arrays = dict(read_tensors(folder / "inputs.safetensors"))
    positional, named = request["tree"]["inputs"]

    def put(shape: Any, given: Any) -> Any:
        if isinstance(shape, str):
            return tensor_of(np.array(arrays[shape])) if shape in arrays else given
        if isinstance(shape, list) and isinstance(given, list | tuple):
            return type(given)(put(s, g) for s, g in zip(shape, given, strict=True))
        if isinstance(shape, dict) and isinstance(given, dict):
            return {k: put(shape[k], v) if k in shape else v for k, v in given.items()}
        return given

    kwargs = {k: put(named[k], v) for k, v in model.kwargs.items() if k in named}
    args = tuple(put(s, g) for s, g in zip(positional, model.args, strict=True))
    return EagerModel(model.module, args, kwargs)


def write_inputs(folder: Path, request: Mapping[str, Any]) -> None:
    """The module's own arguments by the program's names."""
    from ...generator.program.folder import write_tensors

    model = eager_model(request)
    found: dict[str, Any] = {}

    def walk(shape: Any, given: Any) -> None:
        if isinstance(shape, str):
            if hasattr(given, "detach"):
                found[shape] = given
        elif isinstance(shape, list) and isinstance(given, list | tuple):
            for s, g in zip(shape, given, strict=True):
                walk(s, g)
        elif isinstance(shape, dict) and isinstance(given, Mapping):
            for k, s in shape.items():
                if k in given:
                    walk(s, given[k])

    positional, named = request["tree"]["inputs"]
    walk(positional, model.args)
    walk(named, dict(model.kwargs))
    write_tensors(folder / "inputs.safetensors", found)


def exported_onnx(folder: Path, request: Mapping[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    """The module as an ONNX file by PyTorch's own exporter, and its inputs in order.  Raises Missing."""
    import torch

    from ...generator.program import torch_compat as compat
    from .child import Missing
    from .eager import numpy_of

    model = eager_model(request, folder)
    file = folder / "model.onnx"
    try:
        with torch.no_grad(), compat.quiet():
            torch.onnx.export(
                model.module,
                model.args,
                str(file),
                kwargs=dict(model.kwargs),
                dynamo=True,
                verbose=False,
                opset_version=20,
            )
    except ImportError as error:
        raise Missing(f"torch.onnx needs a package: {error}") from None
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise Missing(f"torch.onnx does not export it: {first}") from None
    leaves = torch.utils._pytree.tree_leaves((model.args, dict(model.kwargs)))
    return file, [numpy_of(t) for t in leaves if isinstance(t, torch.Tensor)]
