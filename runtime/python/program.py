"""`ow.Program`: a program folder, loaded and run by the C++ executor (docs/internals.md, "A program folder").

Loading checks the whole folder, maps the weights and resolves every call; running calls no Python between nodes.
May import: `.load`, `.registry`, `.exceptions`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import registry
from .exceptions import MissingKernelError, OpTypeError, OpValueError
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


class Outputs(dict[str, Any]):
    """What a run gives, by name in the program's order; `out[0]` is the first one."""

    def __missing__(self, key: object) -> Any:
        if isinstance(key, int):
            return list(self.values())[key]
        raise KeyError(f"no output is called {key!r}; there are {', '.join(self)}")


class Program:
    """A loaded program.  Several threads may run it at once; runs that update its constants wait for each other.

        p = ow.Program.load("build/programs/llama-cpu-f32")
        print(p)  # its inputs and outputs: names, dtypes, shapes
        logits = p(tokens, mask)[0]  # by position, as the model takes them ...
        logits = p(input_ids=tokens, attention_mask=mask)["logits"]  # ... or by name

    An input is an array of the dtype that `print(p)` shows; one of rank 0 may be a Python number.
    """

    def __init__(self, loaded: Any, folder: Path) -> None:
        self._core = loaded
        self.folder = folder
        self.name: str = loaded.name
        self.inputs: list[dict[str, Any]] = loaded.inputs
        self.outputs: list[dict[str, Any]] = loaded.outputs
        self.calls: list[dict[str, str]] = loaded.calls
        self._known = frozenset(port["name"] for port in self.inputs)
        self._numbers = {port["name"]: str(port["dtype"]) for port in self.inputs if not port["shape"]}
        self._slots: list[Any] | None = None

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

    def __call__(self, /, *args: Any, **inputs: Any) -> Outputs:
        """`run`, with inputs by position as the model takes them (what it takes as one list or dict is one here, too),
        by name, or both."""
        return self.run(self._by_name(args, inputs) if args else inputs)

    def run(self, inputs: Mapping[str, Any]) -> Outputs:
        """Run on arrays by name; the outputs by name, Tensors (or Python numbers where an output is a register).

        Raises OpValueError that names the input and the axis where an array does not fit, and errors that name the
        node, the op and the model's source line where a call fails.
        """
        return Outputs(self._core.run(self._arrays(inputs)))

    def _by_name(self, args: Sequence[Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by name of those by position and by name."""
        if self._slots is None:
            self._slots = _slots(self.json.get("tree", {}).get("inputs"), [p["name"] for p in self.inputs])
        if len(args) > len(self._slots):
            raise OpTypeError(
                f"{self.name}: takes {len(self._slots)} inputs, got {len(args)} by position",
                hint=f"it takes {', '.join(p['name'] for p in self.inputs)}",
            )
        out: dict[str, Any] = {}
        for k, (slot, value) in enumerate(zip(self._slots, args, strict=False)):
            for name, leaf in _leaves(slot, value, f"{self.name}: argument {k}"):
                if name in inputs:
                    raise OpTypeError(f"{self.name}: input '{name}' is given twice")
                out[name] = leaf
        return out | dict(inputs)

    def _arrays(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as the core takes them; what is no input is refused first, for it explains what is missing."""
        given = dict(inputs)
        for name in given.keys() - self._known:
            missing = [p["name"] for p in self.inputs if p["name"] not in given]
            near = difflib.get_close_matches(str(name), missing, n=1) or difflib.get_close_matches(
                str(name), self._known, n=1
            )
            raise OpValueError(
                f"{self.name}: has no input '{name}'",
                hint=f"did you mean `{near[0]}`?"
                if near
                else f"it takes {', '.join(p['name'] for p in self.inputs)}",
            )
        for name, dtype in self._numbers.items():
            value = given.get(name)
            if isinstance(value, bool | int | float | complex):
                given[name] = _number(value, dtype, f"{self.name}: input '{name}'")
        return given

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
        outputs = self._core.run_debug(self._arrays(inputs), observer, dict(perturb or {}))
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
        found: dict[str, int] = self._core.symbols(self._arrays(inputs))
        return found

    def plan(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """The memory plan at these sizes: `arena_bytes`, `unshared_bytes` (had nothing been reused), calls, and
        `donated_states`: how many are updated in place, without a copy."""
        found: dict[str, int] = self._core.plan(self._arrays(inputs))
        return found

    def __repr__(self) -> str:
        def ports(items: list[dict[str, Any]]) -> str:
            return ", ".join(f"{p['name']}: {p['dtype']}[{', '.join(p['shape'])}]" for p in items)

        return (
            f"<Program {self.name}({ports(self.inputs)}) -> ({ports(self.outputs)}), {len(self.calls)} calls>"
        )


def _slots(tree: Any, names: Sequence[str]) -> list[Any]:
    """What a program takes by position: the model's own arguments, those that it takes by name last, each with names of
    inputs as leaves; without such a tree the inputs themselves."""
    if not (isinstance(tree, list) and len(tree) == 2):
        return list(names)
    slots = [*tree[0], *tree[1].values()]
    slots = [slot for slot in slots if any(_names(slot))]
    held = {name for slot in slots for name in _names(slot)}
    return [*slots, *(name for name in names if name not in held)]


def _names(slot: Any) -> Iterator[str]:
    if isinstance(slot, str):
        yield slot
    elif isinstance(slot, dict) and set(slot) != {"const"}:
        for part in slot.values():
            yield from _names(part)
    elif isinstance(slot, list):
        for part in slot:
            yield from _names(part)


def _leaves(slot: Any, value: Any, what: str) -> Iterator[tuple[str, Any]]:
    """Names of inputs and what an argument gives for each; what is constant in the program is passed over."""
    if isinstance(slot, str):
        yield slot, value
    elif isinstance(slot, list) and any(_names(slot)):
        if not isinstance(value, list | tuple) or len(value) != len(slot):
            raise OpTypeError(f"{what} must be a list of {len(slot)}: {', '.join(_names(slot))}")
        for part, one in zip(slot, value, strict=True):
            yield from _leaves(part, one, what)
    elif isinstance(slot, dict) and any(_names(slot)):
        for key, part in slot.items():
            if not any(_names(part)):
                continue
            if not isinstance(value, Mapping) or key not in value:
                raise OpTypeError(f"{what} must be a dict with the key '{key}'")
            yield from _leaves(part, value[key], what)


def _number(value: complex, dtype: str, what: str) -> Any:
    """A number as a tensor of rank 0.  Raises OpValueError where its category does not fit the dtype."""
    rank = next(k for k, kind in enumerate((bool, int, float, complex)) if isinstance(value, kind))
    wanted = 0 if dtype == "bool" else 3 if dtype[0] == "c" else 2 if dtype[0] in "fb" else 1
    if rank > wanted:
        raise OpValueError(f"{what} is {dtype}, got the number {value!r}")
    return core.full((), value, dtype)
