"""The capture of an `.onnx` file: the program, fresh inputs, and what onnx's reference evaluator says of them.

    facts = work(target, out, table, clock=…)       writes what `capture_worker.work` writes for a module

Outputs in f32 and f64 come from the file's own graph; the values of single calls from the graph as it was converted
(no functions, constants folded), so that a wrong conversion cannot agree with itself end to end.
There is no half: a graph says the dtype that it computes in.
May import: onnx_convert, onnx_model, draw, folder, inventory, records (rules), numpy.  To add a fact: `work`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..types import DType
from .aten import AtenTable
from .captured import CaptureError
from .draw import draw_inputs, small_sizes
from .evaluate import evaluate, moved
from .folder import numpy_dtype, write_folder, write_tensors
from .inventory import inventory
from .ir import Assert, Call, Program, arg_values, cond_holds, cond_names
from .onnx_convert import OnnxCapture, OnnxConverter
from .onnx_model import Reference, read_model, widened
from .records import SENSITIVE, reaching

__all__ = ["values", "work"]

#: How often inputs are drawn until f32 and f64 take the same decisions.
_DRAWS = 6
_NO_TRAINING = "an ONNX graph is one of inference: what it was trained by is not in the file"
_NO_HALF = "an ONNX graph is compared in the dtypes that it states"


def work(
    target: str,
    out: Path,
    table: AtenTable,
    *,
    seed: int = 0,
    count: int = 2,
    sensitive: bool = True,
    clock: Any,
) -> dict[str, Any]:
    """Convert the file into the folder `out`; the facts that `capture.json` holds."""
    out.mkdir(parents=True, exist_ok=True)
    path = Path(target)
    model = clock("load", lambda: read_model(path))
    captured: OnnxCapture = clock("convert", lambda: OnnxConverter(model, table, path.stem, target).run())
    p = captured.program
    clock("write", lambda: write_folder(out / "program", p, captured.tensors))
    meta = {"weights": "given", "scale": "given", "producer": model.producer_name}
    inv = inventory(p, captured.sites, notes=captured.notes, meta=meta)
    (out / "inventory.json").write_text(json.dumps(inv.to_json(), indent=1), encoding="utf-8")
    given = [s for s in p.symbols.values() if s.source in {b.name for b in p.inputs}]
    facts: dict[str, Any] = {
        "schema": 1,
        "name": path.stem,
        "source": target,
        "meta": meta,
        "dynamic": ", ".join(f"{s.source}[{s.axis}]" for s in given) or "no extent",
        "notes": list(captured.notes),
        "decomposed": [],
        "random": [],
        "records": [],
        "sensitivity": None,
        "half": _NO_HALF,
        "training": _NO_TRAINING,
    }
    if count and not any(c.missing for c in p.calls):
        judge = _Recorder(model, captured, seed)
        for k in range(count):
            entry = clock("reference", lambda k=k: judge.record(out / "records" / str(k), k))
            facts["records"].append(entry)
        if sensitive:
            facts["sensitivity"] = clock("sensitivity", lambda: judge.sensitivity(out))
    facts["seconds"] = clock.seconds
    (out / "capture.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


class _Recorder:
    """The four evaluators of one capture, and what they said."""

    def __init__(self, model: Any, captured: OnnxCapture, seed: int) -> None:
        self.captured, self.seed = captured, seed
        self.own, self.own64 = Reference(model), Reference(widened(model))
        self.flat, self.flat64 = Reference(captured.flat), Reference(widened(captured.flat))
        self.inputs: list[dict[str, Any]] = []
        self.wide: list[dict[str, Any]] = []

    def record(self, path: Path, k: int) -> dict[str, Any]:
        """One set of fresh inputs; k > 0 at other extents where the graph takes them."""
        p = self.captured.program
        path.mkdir(parents=True)
        last: Exception | None = None
        for sizes in _sizes(p, k):
            for draw in range(_DRAWS):
                at = self.seed + 100 + k + 1000 * draw
                inputs = draw_inputs(p, sizes, at)
                try:
                    out32 = _outputs(p, self.own.run(inputs))
                except Exception as e:  # the graph refuses these extents
                    last = e
                    break
                out64 = _outputs(p, self.own64.run(_wide(inputs)))
                if any(np.isnan(a).any() for a in out32.values() if a.dtype.kind == "f"):
                    continue
                if all(
                    a.shape == out64[n].shape and (a.dtype.kind == "f" or np.array_equal(a, out64[n]))
                    for n, a in out32.items()
                ):
                    return self.write(path, k, at, sizes, inputs, out32, out64)
        if last is not None:
            first = (str(last).strip().splitlines() or [""])[0][:300]
            raise CaptureError(
                f"the graph does not run under onnx's reference: {type(last).__name__}: {first}"
            )
        raise CaptureError(
            f"the reference gives nan, or f32 and f64 decide otherwise, at {_DRAWS} draws of inputs",
            hint="nothing says which is right",
        )

    def write(
        self, path: Path, k: int, at: int, sizes: Mapping[str, int], inputs: Any, out32: Any, out64: Any
    ) -> dict[str, Any]:
        p = self.captured.program
        env = self.flat.run(inputs)
        found = values(self.captured, sizes, inputs, env)
        used = {v for c in p.calls for a in c.inputs for v in arg_values(a)}
        used |= {o for c in p.calls for o in c.out if o}
        write_tensors(path / "inputs.safetensors", inputs)
        write_tensors(path / "outputs_f32.safetensors", out32)
        write_tensors(path / "outputs_f64.safetensors", out64)
        write_tensors(path / "values.safetensors", {i: a for i, a in found.items() if i in used})
        self.inputs.append(inputs)
        self.wide.append(out64)
        floats = [n for n in out32 if out32[n].dtype.kind == "f"]
        entry = {
            "path": f"records/{k}",
            "symbols": dict(sizes),
            "seed": at,
            "eager_error": {n: _error(out32[n], out64[n]) for n in floats},
            "bound": {n: _bound(out32[n], out64[n]) for n in floats},
        }
        (path / "record.json").write_text(json.dumps(entry, indent=1), encoding="utf-8")
        return entry

    def sensitivity(self, out: Path) -> dict[str, Any]:
        """Disturb each call that computes floats, and see whether the outputs tell (records.py has the rule)."""
        p, names = self.captured.program, self.captured.names
        base = self.flat.run(self.inputs[0])
        bounds = {n: _bound(a, self.wide[0][n]) for n, a in _outputs(p, base).items() if a.dtype.kind == "f"}
        rng = np.random.default_rng(self.seed)
        total = nodes = 0
        missed: list[tuple[str, str, float, str, Any]] = []
        seen = reaching(p)
        for call in p.calls:
            value = next((o for o in call.out if o is not None), None)
            if call.id not in seen or value is None or value not in names or _moves(call):
                continue
            name = names[value]
            plain = np.asarray(base[name])
            if plain.dtype.kind != "f" or not plain.size:
                continue
            nodes += 1
            for kind, disturb in _DISTURB.items():
                changed = disturb(plain, rng)
                if np.array_equal(changed, plain):
                    continue
                total += 1
                got = _outputs(p, self.flat.rerun(base, name, changed))
                worst = max((_over(got[n], self.wide[0][n], b) for n, b in bounds.items()), default=0.0)
                if worst <= 1:
                    missed.append((call.id, kind, worst, value, changed))
        by_outputs = total - len(missed)
        observed: list[str] = []
        if len(missed) > (1 - SENSITIVE) * total:
            wide = self.flat64.run(_wide(self.inputs[0]))
            missed, observed = _observe(missed, total, base, wide, names)
            for k, inputs in enumerate(self.inputs if observed else ()):
                env = self.flat64.run(_wide(inputs))
                write_tensors(
                    out / "records" / str(k) / "inner_f64.safetensors",
                    {v: np.asarray(env[names[v]]) for v in observed},
                )
        return {
            "detected": total - len(missed),
            "total": total,
            "weights": "own",
            "missed": [list(m[:3]) for m in missed],
            "observed": observed,
            "by_outputs": by_outputs,
            "nodes": nodes,
        }


def _observe(
    missed: list[Any], total: int, base: Mapping[str, Any], wide: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[list[Any], list[str]]:
    """Inner values to compare beside the outputs, the largest first, until enough is seen."""
    observed: list[str] = []
    for value in dict.fromkeys(m[3] for m in sorted(missed, key=lambda m: -m[4].size)):
        if len(missed) <= (1 - SENSITIVE) * total:
            break
        f32, f64 = np.asarray(base[names[value]]), np.asarray(wide[names[value]])
        if f32.shape != f64.shape:
            continue
        limit = _bound(f32, f64)
        told = [m for m in missed if m[3] == value and _over(m[4], f64, limit) > 1]
        if told:
            observed.append(value)
            missed = [m for m in missed if not any(m is t for t in told)]
    return missed, observed


#: ONNX operators that move or choose numbers and compute none
_MOVES = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Concat",
        "ConstantOfShape",
        "Gather",
        "GatherElements",
        "GatherND",
        "Max",
        "MaxPool",
        "Min",
        "Pad",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "ScatterElements",
        "ScatterND",
        "Tile",
        "TopK",
        "Trilu",
        "Where",
    }
)


def _moves(call: Call) -> bool:
    return call.aten.removeprefix("onnx.") in _MOVES or call.op in ("contiguous", "cast")


def _off(t: Any, rng: Any) -> Any:
    return (t * (1 + 0.01 * rng.choice((-1.0, 1.0), t.shape))).astype(t.dtype)


def _half(t: Any, rng: Any) -> Any:
    import ml_dtypes

    return t.astype(ml_dtypes.bfloat16).astype(t.dtype)


_DISTURB: Mapping[str, Callable[[Any, Any], Any]] = {"1 %": _off, "bf16": _half}


def _outputs(p: Program, env: Mapping[str, Any]) -> dict[str, Any]:
    """By name; of a sequence, which only the file's own graph has whole, each tensor."""

    def one(name: str) -> Any:
        owner, _, k = name.rpartition(".")
        return np.asarray(env[name] if name in env else env[owner][int(k)])

    return {b.name: one(b.name) for b in p.outputs}


def _wide(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}


def _error(got: Any, f64: Any) -> float:
    """The largest error where f64 is finite; infinite where one of them is not finite and the other is."""
    plain = np.isfinite(f64)
    if (np.isfinite(got) != plain).any():
        return float("inf")
    return float(np.abs(got.astype(np.float64) - f64)[plain].max(initial=0.0))


def _bound(f32: Any, f64: Any) -> float:
    """4 × the reference's own error in f32 + 8 u max|y|  (DESIGN.md, L2)."""
    plain = np.isfinite(f64)
    own = float(np.abs(f32.astype(np.float64) - f64)[plain].max(initial=0.0))
    return 4 * own + 8 * DType.F32.u * float(np.abs(f64)[plain].max(initial=0.0))


def _over(got: Any, want: Any, limit: float) -> float:
    if got.shape != want.shape:
        return float("inf")
    error = _error(got, want)
    return error / limit if limit > 0 else float("inf") if error > 0 else 0.0


def _sizes(p: Program, k: int) -> list[dict[str, int]]:
    """Extents of record k, those that its assertions allow; the plain ones last."""
    plain = small_sizes(p)
    tried = [] if k == 0 else [{s: n + k + 1 for s, n in plain.items()}, {s: n + k for s, n in plain.items()}]
    asserts = [n.cond for n in p.nodes if isinstance(n, Assert)]

    def fits(sizes: Mapping[str, int]) -> bool:
        return all(cond_holds(c, sizes) for c in asserts if cond_names(c) <= sizes.keys())

    return [s for s in tried if fits(s)] + [plain]


def values(
    captured: OnnxCapture, sizes: Mapping[str, int], inputs: Mapping[str, Any], env: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of the program by id, as the reference computes them: calls from the flat graph, views from bases.
    What is computed on the way to a node's result has no name there, and is left out."""
    p, names, turned = captured.program, captured.names, captured.turned
    given = {b.value: inputs[b.name] for b in p.inputs}
    given |= {b.value: captured.tensors[b.name] for b in (*p.weights, *p.constants)}

    def call(node: Call, found: dict[str, Any], symbols: dict[str, int]) -> dict[str, Any]:
        if node.op in ("contiguous", "cast"):
            return moved(p, node, found) if node.inputs[0] in found else {}
        out = {}
        for o in node.out:
            if o is None:
                continue
            if o in captured.filled:
                number = captured.filled[o].evaluate(symbols)
                out[o] = np.full((1,), number, numpy_dtype(p.values[o].dtype))
                continue
            if o not in names:  # computed on the way to what a node gives
                continue
            array = np.asarray(env[names[o]])
            if o in turned:
                array = array.transpose(turned[o])
            known = array.ndim == p.values[o].rank
            out[o] = array if known else array.reshape([e.evaluate(symbols) for e in p.values[o].shape])
        return out

    return evaluate(p, sizes, given, call)
