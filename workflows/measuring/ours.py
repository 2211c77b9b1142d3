"""Our side: the runtime with the kernels as the tree makes them now; operators, and programs.

May import: bridge, workbench, generator.program.folder, the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..bridge import Bridge
from ..workbench import Workbench
from .child import Call, Loaded
from .workload import sets_of

__all__ = ["Generated", "Ours"]


class _Bodiless(Workbench):
    """A workbench in which nothing is written by hand."""

    def body_of(self, spec: Any) -> None:
        return None


class Ours:
    workbench: type[Workbench] = Workbench

    def __init__(self, given: Mapping[str, Any]) -> None:
        from ... import set_num_threads

        self.bench = self.workbench.here(Path(given["root"]))
        for file in given.get("files", ()):
            self.bench.one(file)
        self.bridge = Bridge(self.bench)
        self.bridge.install(extra=[self.bench.registry.get(n) for n in given.get("ops", ())])
        set_num_threads(given["threads"])

    def load(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        return self._program(folder, request) if "program" in request else self._op(folder, request)

    def _op(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        from ... import __version__, registry

        self.bridge.install(extra=[self.bench.registry.get(request["op"])])
        op = registry.get(request["op"])
        calls = [_call(op, request, s) for s in _sets(folder, request)]

        def answers(result: Any) -> dict[str, Any]:
            given = result if isinstance(result, list | tuple) else [result]
            return {n: x.numpy() for n, x in zip(request["outputs"], given, strict=True) if x is not None}

        return Loaded(calls, answers, __version__)

    def _program(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        from ... import Program, __version__, tensor
        from ...generator.program.folder import read_tensors

        self.bridge.install(extra=[self.bench.registry.get(n) for n in request.get("admit", ())])
        loaded = Program.load(request["program"])
        given = {k: tensor(np.array(v)) for k, v in read_tensors(folder / "inputs.safetensors").items()}
        return Loaded(
            [Call(loaded.run, (given,))],
            lambda result: {n: x.numpy() for n, x in result.items() if hasattr(x, "numpy")},
            __version__,
        )


class Generated(Ours):
    """The loops as they are printed: bodies are left out."""

    workbench = _Bodiless


def _sets(folder: Path, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    from ...generator.program.folder import read_tensors

    arrays = {k: np.array(v) for k, v in read_tensors(folder / "arrays.safetensors").items()}
    return list(sets_of(arrays, request["seed"]))


def laid_out(a: Any, order: list[int] | None) -> Any:
    """The same array, its axes in memory in this order."""
    if not order:
        return a
    back = [order.index(k) for k in range(a.ndim)]
    return np.ascontiguousarray(a.transpose(order)).transpose(back)


def loaded(x: Mapping[str, Any], of: Callable[[str], Any]) -> Any:
    """An argument as the request writes it; `of` gives the tensor of a name."""
    if "tensor" in x:
        return of(x["tensor"])
    return [loaded(y, of) for y in x["list"]] if "list" in x else x["value"]


def tensors_by(
    make: Callable[[Any], Any], arrays: Mapping[str, Any], request: Mapping[str, Any]
) -> Callable[[str], Any]:
    """Name → tensor, made once, as the row lays it out."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            made[name] = make(laid_out(arrays[name], request["layouts"].get(name)))
        return made[name]

    return of


def _call(op: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> Call:
    """Inputs by position up to the last that is there, then what is not the default."""
    from ... import tensor

    of = tensors_by(tensor, arrays, request)
    args = [loaded(v, of) for v in request["inputs"].values()]
    while args and args[-1] is None:
        args.pop()
    attrs = {k: loaded(v, of) for k, v in request["attrs"].items()}
    kept = {
        k: v
        for k, v in attrs.items()
        if v is not None and not (k in request["defaults"] and _same(request["defaults"][k], v))
    }
    return Call(op, tuple(args), kept)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
