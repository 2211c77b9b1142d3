"""A measuring process: one framework, pinned, asked by lines of JSON on stdin, answering by lines on stdout.

    {"do": "start", "side": "torch", "threads": 1, "cpus": [1], "root": …}
    {"do": "load", "folder": F, "request": {…}}     → {"version", "compile_s", "sets"} or {"missing": why}
    {"do": "time", "set": k, "calls": n}            → {"s": seconds a call}: the process's CPU time, or wall time
    {"do": "answers", "set": k, "file": F}          → writes the outputs as safetensors → {"names": […]}
    {"do": "digest", "set": k}                      → {"digest": {name: sum of its bytes}}
    {"do": "inputs", "folder": F, "request": {…}}   → writes what the module of a program is called with
    {"do": "exact", "set": k, "file": F}            → the same in f64, where the side can (eager)

A side is a class with `load(folder, request) -> Loaded`; it raises `Missing` for what it cannot express.
May import: the sides, inside functions, so that each process has one framework.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

__all__ = ["Call", "Loaded", "Missing", "array_of", "main"]

#: side -> (module, class)
_SIDES = {
    "ours": ("ours", "Ours"),
    "control": ("ours", "Ours"),
    "generated": ("ours", "Generated"),
    "torch": ("eager", "Eager"),
    "torch-out": ("eager", "EagerOut"),
    "inductor": ("eager", "Inductor"),
    "onnxruntime": ("onnx_side", "OnnxRuntime"),
    "jax": ("jax_side", "Jax"),
}


class Missing(Exception):
    """What a side cannot express, or lacks: its words are the reason that a row shows."""


@dataclass
class Call:
    """A call as a person writes it."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def __call__(self) -> Any:
        return self.function(*self.args, **(self.kwargs or {}))


@dataclass
class Loaded:
    """A row, ready: a call for each input set; what a call gives as NumPy arrays by output name; the versions.

    exact   outputs of set k in f64, where the side can
    """

    calls: Sequence[Call]
    answers: Callable[[Any], Mapping[str, Any]]
    version: str
    compile_s: float | None = None
    exact: Callable[[int], Mapping[str, Any]] | None = None


def array_of(t: Any) -> Any:
    """A tensor of anybody's as a NumPy array."""
    return t.numpy() if hasattr(t, "numpy") else t


def timed(call: Call, calls: int, clock: Callable[[], float]) -> float:
    """Seconds a call.  The loop around it is as short as Python has one."""
    f, args, kwargs = call.function, call.args, call.kwargs
    rounds = repeat(None, calls)
    if kwargs:
        begun = clock()
        for _ in rounds:
            f(*args, **kwargs)
    elif len(args) == 1:
        (a,) = args
        begun = clock()
        for _ in rounds:
            f(a)
    elif len(args) == 2:
        a, b = args
        begun = clock()
        for _ in rounds:
            f(a, b)
    else:
        begun = clock()
        for _ in rounds:
            f(*args)
    return (clock() - begun) / calls


class _Served:
    """What the process holds between lines."""

    def __init__(self) -> None:
        self.side: Any = None
        self.loaded: Loaded | None = None
        self.clock: Callable[[], float] = time.process_time

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, f"do_{request['do']}")(request)
        return found

    def do_start(self, r: Mapping[str, Any]) -> dict[str, Any]:
        if r["cpus"]:
            os.sched_setaffinity(0, r["cpus"])
        self.clock = time.process_time if r["threads"] == 1 else time.perf_counter
        module, name = _SIDES[r["side"]]
        self.side = (module, name, r)
        return {}

    def _begun(self) -> Any:
        """The side itself: imported when it is first asked for something, for that may fail."""
        if isinstance(self.side, tuple):
            module, name, given = self.side
            self.side = getattr(importlib.import_module(f".{module}", __package__), name)(given)
        return self.side

    def do_load(self, r: Mapping[str, Any]) -> dict[str, Any]:
        self.loaded = None
        gc.collect()
        try:
            self.loaded = self._begun().load(Path(r["folder"]), r["request"])
            self.loaded.answers(self.loaded.calls[0]())  # what cannot be read is of no use
        except Missing as error:
            return {"missing": str(error)}
        except ImportError as error:
            return {"missing": f"not installed ({error})"}
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:300]
            return {"missing": f"{type(error).__name__}: {first}"}
        gc.collect()
        gc.freeze()
        gc.disable()
        x = self.loaded
        return {"version": x.version, "compile_s": x.compile_s, "sets": len(x.calls)}

    def do_inputs(self, r: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._begun().inputs(Path(r["folder"]), r["request"])
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:300]
            return {"missing": f"{type(error).__name__}: {first}"}
        return {}

    def _loaded(self) -> Loaded:
        assert self.loaded is not None, "nothing is loaded"
        return self.loaded

    def do_time(self, r: Mapping[str, Any]) -> dict[str, Any]:
        call = self._loaded().calls[r["set"]]
        if r["calls"] > 1:  # the caches are this side's again
            call()
        return {"s": timed(call, r["calls"], self.clock)}

    def do_answers(self, r: Mapping[str, Any]) -> dict[str, Any]:
        x = self._loaded()
        return _written(r["file"], x.answers(x.calls[r["set"]]()))

    def do_digest(self, r: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the answer is the one that was compared: sums of its bytes."""
        import numpy as np

        x = self._loaded()
        found = x.answers(x.calls[r["set"]]())
        arrays = {n: np.ascontiguousarray(a) for n, a in found.items() if a is not None}
        return {"digest": {n: zlib.crc32(a.tobytes()) for n, a in arrays.items()}}

    def do_exact(self, r: Mapping[str, Any]) -> dict[str, Any]:
        x = self._loaded()
        if x.exact is None:
            return {"names": None}
        try:
            found = x.exact(r["set"])
        except Exception:
            return {"names": None}
        return _written(r["file"], found)


def _written(file: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from ...generator.program.folder import write_tensors

    kept = {n: np.ascontiguousarray(a).reshape(np.shape(a)) for n, a in arrays.items() if a is not None}
    write_tensors(file, kept)
    return {"names": sorted(kept)}


def main() -> int:
    # Libraries print where they like; answers go where nobody else writes.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    served = _Served()
    for line in sys.stdin:
        out.write(json.dumps(served.answer(json.loads(line))) + "\n")
        out.flush()
    return 0
