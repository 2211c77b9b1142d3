"""The process that measures: torch and the runtime side by side, in blocks A,B,B,A, and a control A,A.

    python -m opwright.workflows.bench_child FOLDER      reads request.json and arrays.safetensors, writes answer.json

Every output is checked against torch's in f64, before and after the measuring.
May import: bridge, the runtime, torch.  `bench.py` is the other side.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Input sets that the rounds go through, so that no call sees the last one's.
SETS = 4
_BLOCK_S = 0.01


def main(argv: Sequence[str]) -> int:
    import torch

    from .. import registry, set_num_threads
    from .. import tensor as as_tensor
    from ..generator.program.folder import read_tensors
    from .bridge import Bridge
    from .workbench import Workbench

    folder = Path(argv[0])
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    torch.set_num_threads(request["threads"])
    bench = Workbench.here(Path(request["start"]))
    Bridge(bench).install(extra=[bench.one(request["op"])])
    set_num_threads(request["threads"])
    arrays = {k: np.array(v) for k, v in read_tensors(folder / "arrays.safetensors").items()}
    rng = np.random.default_rng(request["seed"])
    sets = [arrays, *(_shuffled(arrays, rng) for _ in range(SETS - 1))]
    op = registry.get(request["op"])
    ours = [_ours(as_tensor, op, request, s) for s in sets]
    theirs = [_theirs(torch, request, s) for s in sets]
    with torch.no_grad():
        trouble = _compare(torch, op, request, ours, theirs, sets)
        answer: dict[str, Any] = {
            "trouble": trouble,
            "threads": request["threads"],
            "torch": torch.__version__,
        }
        if not trouble:
            answer |= _measure(ours, theirs, request["seconds"])
            answer["trouble"] = _compare(torch, op, request, ours, theirs, sets)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _shuffled(arrays: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Other contents of the same kind: each array's own elements in another order."""
    return {k: rng.permutation(v.reshape(-1)).reshape(v.shape) for k, v in arrays.items()}


def _load(x: Mapping[str, Any], of: Callable[[Any], Any], arrays: Mapping[str, Any]) -> Any:
    if "tensor" in x:
        return of(arrays[x["tensor"]])
    return [_load(y, of, arrays) for y in x["list"]] if "list" in x else x["value"]


def _ours(
    as_tensor: Callable[[Any], Any], op: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]
) -> Callable[[], Any]:
    made: dict[int, Any] = {}

    def tensor(a: Any) -> Any:
        return made.setdefault(id(a), as_tensor(a))

    given = {k: _load(v, tensor, arrays) for k, v in request["inputs"].items()}
    given |= {k: v["value"] for k, v in request["attrs"].items()}
    given = {k: v for k, v in given.items() if v is not None}
    return lambda: op(**given)


def _theirs(
    torch: Any, request: Mapping[str, Any], arrays: Mapping[str, Any], wide: bool = False
) -> Callable[[], Any]:
    from ..generator.program.torch_compat import overload_of, torch_dtype
    from ..generator.types import DType
    from ..validators.torch_server import complete

    def tensor(a: Any) -> Any:
        t = (
            torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
            if a.dtype.name == "bfloat16"
            else torch.from_numpy(a)
        )
        return t.double() if wide and t.is_floating_point() else t

    function = overload_of(request["overload"])
    given = {k: _load(v, tensor, arrays) for k, v in request["torch"].items()}
    given |= {
        k: torch_dtype(DType.F64 if wide and DType(v).is_float else DType(v))
        for k, v in request["dtypes"].items()
    }
    complete(torch, function._schema.arguments, given)  # numbers and lists as the overload has them
    return lambda: function(**given)


def _measure(
    ours: Sequence[Callable[[], Any]], theirs: Sequence[Callable[[], Any]], seconds: float
) -> dict[str, Any]:
    """Rounds of A,B,B,A and A,A until the time is up; ratios per pair."""
    repeats = max(1, int(_BLOCK_S / max(_block(ours[0], 3) / 3, _block(theirs[0], 3) / 3, 1e-7)))
    pairs: list[float] = []
    control: list[float] = []
    mine: list[float] = []
    other: list[float] = []
    end = time.perf_counter() + seconds
    k = 0
    while time.perf_counter() < end or k < 5:
        a, b = ours[k % len(ours)], theirs[k % len(theirs)]
        a1, b1, b2, a2 = _block(a, repeats), _block(b, repeats), _block(b, repeats), _block(a, repeats)
        pairs += [b1 / a1, b2 / a2]
        c1, c2 = _block(a, repeats), _block(a, repeats)
        control += [c1 / c2, c2 / c1]
        mine += [a1 / repeats, a2 / repeats]
        other += [b1 / repeats, b2 / repeats]
        k += 1
    return {
        "pairs": pairs,
        "control_pairs": control,
        "ours_s": statistics.median(mine),
        "rounds": k,
        "torch_s": statistics.median(other),
        "repeats": repeats,
    }


def _block(f: Callable[[], Any], repeats: int) -> float:
    begun = time.perf_counter()
    for _ in range(repeats):
        f()
    return time.perf_counter() - begun


def _compare(
    torch: Any,
    op: Any,
    request: Mapping[str, Any],
    ours: Sequence[Callable[[], Any]],
    theirs: Sequence[Callable[[], Any]],
    sets: Sequence[Mapping[str, Any]],
) -> str:
    """The first disagreement of our outputs with torch's in f64 beyond four times torch's own; empty when none."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        got, own = _outputs(a()), _outputs(b())
        wide = _outputs(_theirs(torch, request, sets[k], wide=True)())
        for n, (x, y, z) in enumerate(zip(got, own, wide, strict=False)):
            if x is None or y is None or z is None:
                continue
            if x.shape != y.shape:
                return f"output {n} of set {k} has shape {list(x.shape)}, torch's has {list(y.shape)}"
            if z.dtype.kind != "f":
                if not np.array_equal(x, z):
                    return f"output {n} of set {k} differs"
                continue
            finite = np.isfinite(z)
            step = 2.0**-8 if str(x.dtype) == "bfloat16" else float(np.finfo(x.dtype).eps)
            limit = 4 * np.abs(y - z)[finite].max(initial=0) + 8 * step * np.abs(z[finite]).max(initial=0)
            error = np.abs(x.astype(np.float64) - z)[finite].max(initial=0)
            if not error <= limit:
                return f"output {n} of set {k} is off by {error:.3g}, at most {limit:.3g}"
    return ""


def _outputs(result: Any) -> list[Any]:
    """Outputs as NumPy arrays (torch's bf16 as f64)."""
    found: list[Any] = []
    for t in result if isinstance(result, list | tuple) else [result]:
        if t is None:
            found.append(None)
        elif hasattr(t, "detach"):
            found.append((t.double() if t.is_floating_point() else t).detach().numpy())
        else:
            found.append(t.numpy())
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
