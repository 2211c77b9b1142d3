"""`ow.Program`: a program folder, loaded and run by the C++ executor (docs/internals.md, "A program folder").

Loading checks the whole folder, maps the weights and resolves every call; running calls no Python between nodes.
May import: `.load`, `.registry`, `.exceptions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import registry
from .exceptions import MissingKernelError
from .load import core

#: `("scale", factor)` or `("bf16",)`: what is done to a call's floating outputs.
Perturbation = tuple[Any, ...]


@dataclass(frozen=True)
class CallTrace:
    """One call as it ran, its tensors copied.  `inputs` has one entry per input of the op: a Tensor, None, or a list;
    a Python scalar passed for a tensor appears as a tensor of rank 0."""

    id: str
    op: str
    site: str
    aten: str
    inputs: list[Any]
    attrs: dict[str, Any]
    outputs: list[Any]


@dataclass(frozen=True)
class DebugRun:
    """outputs: as `run` gives them.  calls: in the order they ran."""

    outputs: dict[str, Any]
    calls: list[CallTrace] = field(default_factory=list)

    def __getitem__(self, id: str) -> CallTrace:
        return next(call for call in self.calls if call.id == id)


class Program:
    """A loaded program.  Several threads may run it at once; runs that update its constants wait for each other."""

    def __init__(self, loaded: Any, folder: Path) -> None:
        self._core = loaded
        self.folder = folder
        self.name: str = loaded.name
        self.inputs: list[dict[str, Any]] = loaded.inputs
        self.outputs: list[dict[str, Any]] = loaded.outputs
        self.calls: list[dict[str, str]] = loaded.calls

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, built: bool = False, dialect: str | None = None
    ) -> Program:
        """Load a folder.  Raises ProgramError for what is wrong with it, MissingKernelError for ops nobody supplies.

        built: run the kernels that `opwright build FOLDER` put into it, and ask nobody for others; dialect: of these
        the ones for it (default: the best that this machine runs).
        """
        if built or dialect is not None:
            path = Path(folder)
            return cls(core.load_program((path, str(path / "kernels"), dialect or "")), path)
        try:
            loaded = core.load_program(folder)
        except MissingKernelError:
            if registry.is_ready():
                raise
            registry.ensure()
            loaded = core.load_program(folder)
        return cls(loaded, Path(folder))

    @property
    def json(self) -> dict[str, Any]:
        """program.json as Python data."""
        data: dict[str, Any] = self._core.json
        return data

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on arrays by name; the outputs by name, Tensors (or Python numbers where an output is a register).

        Raises OpValueError that names the input and the axis where an array does not fit, and errors that name the
        node, the op and the model's source line where a call fails.
        """
        results: dict[str, Any] = self._core.run(dict(inputs))
        return results

    def run_debug(
        self,
        inputs: Mapping[str, Any],
        *,
        capture: bool = True,
        perturb: Mapping[str, Perturbation] | None = None,
        on_call: Callable[[CallTrace], object] | None = None,
    ) -> DebugRun:
        """Run and look inside.

        capture: keep every call's inputs, attributes and outputs.  on_call: get each as it runs instead.
        perturb: call id -> what to do to its outputs before anybody reads them.
        """
        traces: list[CallTrace] = []
        sink = on_call if on_call is not None else traces.append

        def observe(call: int, ins: list[Any], attrs: dict[str, Any], outs: list[Any]) -> None:
            about = self.calls[call]
            sink(CallTrace(about["id"], about["op"], about["site"], about["aten"], ins, attrs, outs))

        observer = observe if capture or on_call is not None else None
        outputs = self._core.run_debug(dict(inputs), observer, dict(perturb or {}))
        return DebugRun(outputs, traces)

    def run_call(self, id: str, inputs: Sequence[Any], symbols: Mapping[str, int] | None = None) -> list[Any]:
        """One call by itself: the kernel that the program uses, on other inputs (one entry per input of the op).

        symbols: values of the symbols and registers that its attributes read (`symbols()` gives those of inputs).
        Returns all outputs of the op, the auxiliary ones too.
        """
        outputs: list[Any] = self._core.run_call(id, list(inputs), dict(symbols or {}))
        return outputs

    def symbols(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """The symbols that these inputs decide.  Raises OpValueError where they do not fit."""
        found: dict[str, int] = self._core.symbols(dict(inputs))
        return found

    def plan(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """The memory plan at these sizes: `arena_bytes`, `unshared_bytes` (had nothing been reused), calls, and
        `donated_states`: how many are updated in place, without a copy."""
        found: dict[str, int] = self._core.plan(dict(inputs))
        return found

    def __repr__(self) -> str:
        def ports(items: list[dict[str, Any]]) -> str:
            return ", ".join(f"{p['name']}: {p['dtype']}[{', '.join(p['shape'])}]" for p in items)

        return (
            f"<Program {self.name}({ports(self.inputs)}) -> ({ports(self.outputs)}), {len(self.calls)} calls>"
        )
