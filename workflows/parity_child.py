"""The process in which importing torch fails: it runs a program folder on recorded inputs, and writes what came out.

    python -m opwright.workflows.parity_child FOLDER RECORDS OUT [OPERATOR…]

For each record (`RECORDS/<k>`, as the capture writes it) it runs the program on the record's inputs, and every call by
itself on eager's own inputs, and writes `OUT/<k>/outputs.safetensors` and `OUT/<k>/calls.safetensors` (`<call id>.<n>`
for the n-th output), and `OUT/<k>/inner.safetensors` where inner values are observed.  It judges nothing: `parity.py`
does, elsewhere.  A failure is `OUT/error.json` and the exit code.
The operators named after OUT serve although nothing proves them: for a sweep, which holds no level.

May import: bridge, generator.program, the runtime.  Imports no torch: `block` is in front of everything.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias


class _Blocker(importlib.abc.MetaPathFinder):
    """Importing torch, or what needs it, fails here."""

    names = ("torch", "transformers", "torchvision", "functorch")

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.split(".")[0] in self.names:
            raise ImportError(f"{fullname} is not to be imported in this process")


def block() -> None:
    """Make every import of torch fail.  Raises RuntimeError where it is there already."""
    if "torch" in sys.modules:
        raise RuntimeError("torch was imported before it could be blocked")
    sys.meta_path.insert(0, _Blocker())


#: What such a process does: with the program folder, the records, the folder for what comes out, and operators that
#: serve although nothing proves them.
Work: TypeAlias = "Callable[[Path, Path, Path, Sequence[str]], None]"


def child(argv: Sequence[str], work: Work) -> int:
    """Run `work` where torch cannot be imported; the exit status.  What it raises is `OUT/error.json`."""
    block()
    from ..errors import OpwrightError

    folder, records, out = (Path(a) for a in argv[:3])
    out.mkdir(parents=True, exist_ok=True)
    try:
        work(folder, records, out, argv[3:])
    except OpwrightError as error:
        return _failed(out, error.to_json(), error.exit_code)
    except MemoryError:
        return _failed(out, {"error": "MachineError", "message": "not enough memory to run the program"}, 3)
    except Exception as error:
        import traceback

        traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0]
        return _failed(out, {"error": type(error).__name__, "message": first}, 1)
    if "torch" in sys.modules:
        return _failed(out, {"error": "ParityError", "message": "torch got in"}, 1)
    return 0


def _failed(out: Path, error: Mapping[str, Any], status: int) -> int:
    (out / "error.json").write_text(json.dumps(error), encoding="utf-8")
    return status


def _work(folder: Path, records: Path, out: Path, admit: Sequence[str]) -> None:
    from ..generator.program.folder import read_folder, read_tensors, write_tensors
    from ..program import Program as Loaded
    from .bridge import install
    from .workbench import Workbench

    install(extra=[Workbench.here().registry.get(name) for name in admit] if admit else ())
    program = read_folder(folder).program
    begun = time.perf_counter()
    loaded = Loaded.load(folder)
    say("load", time.perf_counter() - begun)
    for path in sorted(p for p in records.iterdir() if p.is_dir()):
        target = out / path.name
        target.mkdir(exist_ok=True)
        inputs = dict(read_tensors(path / "inputs.safetensors"))
        if program.state:  # every record begins with the state of the capture
            loaded = Loaded.load(folder)
        begun = time.perf_counter()
        results = _run(program, loaded, path, target, inputs)
        say("run", time.perf_counter() - begun)
        write_tensors(target / "outputs.safetensors", results)
        values = dict(read_tensors(path / "values.safetensors"))
        begun = time.perf_counter()
        found, seconds = _calls(program, loaded, inputs, values)
        write_tensors(target / "calls.safetensors", found)
        (target / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
        say("calls", time.perf_counter() - begun)


def _run(program: Any, loaded: Any, record: Path, target: Path, inputs: Mapping[str, Any]) -> Any:
    """The program's outputs; of the inner values that the record holds, what this very run computed is written too."""
    from ..generator.program.folder import read_tensors, write_tensors

    wanted = record / "inner_f64.safetensors"
    if not wanted.exists():
        return run_twice(program, loaded, inputs) if program.state else outputs(loaded.run(inputs))
    names = set(read_tensors(wanted))
    out_of = {call.id: call.out for call in program.calls}
    inner: dict[str, Any] = {}

    def keep(call: Any) -> None:
        for value, tensor in zip(out_of[call.id], call.outputs, strict=True):
            if value in names:
                inner[value] = array(tensor)

    if program.state:
        results = run_twice(program, loaded, inputs, keep)
    else:
        results = outputs(loaded.run_debug(inputs, on_call=keep).outputs)
    write_tensors(target / "inner.safetensors", inner)
    return results


def outputs(results: Mapping[str, Any]) -> dict[str, Any]:
    """A run's outputs as arrays."""
    return {n: array(t) for n, t in results.items()}


def run_twice(program: Any, loaded: Any, inputs: Mapping[str, Any], keep: Any = None) -> dict[str, Any]:
    """Two runs one after the other, by the names that `records.eager` gives: the second one sees the first one's
    state.  `keep` hears the calls of the first."""
    out: dict[str, Any] = {}
    for turn in ("", "@2"):
        own = {n: array(t) for n, t in inputs.items()}  # a run writes the inputs that are state
        debug = keep is not None and not turn
        results = loaded.run_debug(own, on_call=keep).outputs if debug else loaded.run(own)
        out |= {f"{n}{turn}": t for n, t in outputs(results).items()}
        out |= {f"state:{s.input}{turn}": own[s.input] for s in program.state if s.input in own}
    return out


def say(stage: str, seconds: float) -> None:
    """A line for the parent: what a stage took."""
    print(json.dumps({"stage": stage, "seconds": round(seconds, 4)}), flush=True)


def array(t: Any) -> Any:
    """A tensor of the runtime as an array of its own."""
    import numpy as np

    return np.array(
        t.numpy() if hasattr(t, "numpy") else t, order="C"
    )  # ascontiguousarray would make rank 0 rank 1


def _calls(
    program: Any, loaded: Any, inputs: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Every call by itself on recorded values, and the seconds that each took; what needs a value that nobody recorded
    or made is left out."""
    from .parity import environment, walked

    values = dict(values)
    env = environment(program, loaded.symbols(inputs), values)
    out: dict[str, Any] = {}
    seconds: dict[str, float] = {}

    def run(call: Any, given: Any) -> dict[int, Any]:
        if given is None:
            return {}
        begun = time.perf_counter()
        results = loaded.run_call(call.id, given, env)
        seconds[call.id] = time.perf_counter() - begun
        made = {k: array(t) for k, t in enumerate(results) if call.out[k] is not None}
        out.update({f"{call.id}.{k}": t for k, t in made.items()})
        return made

    walked(program, values, env, run)
    return out, seconds


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], _work))
