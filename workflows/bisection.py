"""Which operator makes a program's outputs leave eager's?  Bisection: eager's values up to a call, ours from there on.

    call = first_diverging(program, folder, record)     None where all is ours and it holds

With all calls ours the comparison fails, with all eager's it holds; halving finds the first call whose output, put in
the place of eager's, makes it fail.  log2(calls) runs of single calls; nothing is built anew.
May import: bridge, parity (the rule), generator.program, the runtime.  To bisect by another rule: `holds`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..generator.program.evaluate import evaluate
from ..generator.program.folder import read_tensors
from ..generator.program.ir import Call, Program
from .parity import compared, gathered

__all__ = ["first_diverging", "halved"]


def halved(count: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest k for which `holds(k)`, given that it holds from there on; None where it holds at 0 already, or not
    even at `count`."""
    if holds(0) or not holds(count):
        return None
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class _Replay:
    """One record, replayed with the first `kept` calls as eager has them."""

    def __init__(self, program: Program, loaded: Any, folder: Path, record: Path) -> None:
        self.program, self.loaded, self.record = program, loaded, record
        self.facts = json.loads((record / "record.json").read_text(encoding="utf-8"))
        inputs = read_tensors(record / "inputs.safetensors")
        tensors = read_tensors(folder / "weights.safetensors")
        self.given = {b.value: inputs[b.name] for b in program.inputs}
        for b in (*program.weights, *program.constants):
            self.given[b.value] = tensors[b.tie or b.name]
        self.eager = dict(read_tensors(record / "values.safetensors"))
        self.place = {c.id: k for k, c in enumerate(program.calls)}

    def outputs(self, kept: int) -> dict[str, Any]:
        def call(node: Call, values: dict[str, Any], env: dict[str, int]) -> Mapping[str, Any]:
            ids = [(k, o) for k, o in enumerate(node.out) if o is not None]
            if self.place[node.id] < kept and all(o in self.eager for _, o in ids):
                return {o: self.eager[o] for _, o in ids}
            given = gathered(node, values, env)
            made = self.loaded.run_call(node.id, given, env)
            return {o: _array(made[k]) for k, o in ids}

        values = evaluate(self.program, self.facts["symbols"], self.given, call)
        return {b.name: values[b.value] for b in self.program.outputs}

    def holds(self, kept: int) -> bool:
        got = self.outputs(kept)
        want64 = read_tensors(self.record / "outputs_f64.safetensors")
        want32 = read_tensors(self.record / "outputs_f32.safetensors")
        names = got.keys() & want64.keys()
        rows = compared({n: want64[n] for n in names}, {n: want32[n] for n in names}, got)
        return all(ratio <= 1 for _, ratio, _ in rows)


def _array(t: Any) -> Any:
    return np.array(t.numpy() if hasattr(t, "numpy") else t, order="C")


def first_diverging(program: Program, folder: Path, record: Path, loaded: Any = None) -> Call | None:
    """The first call whose output makes the outputs leave eager's; None where no single place can be told."""
    if loaded is None:
        from ..program import Program as Loaded
        from .bridge import install

        install()
        loaded = Loaded.load(folder)
    replay = _Replay(program, loaded, folder, record)
    found = halved(len(program.calls), replay.holds)
    return program.calls[found - 1] if found is not None else None
