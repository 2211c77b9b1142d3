"""`opwright derive`: an overload that nothing supplies comes back from PyTorch's own decomposition, or it does not.

One by one, the overload's operator is taken out of the table, a call of it is captured as `enable` would, and what it
became runs on our kernels: the results must be eager's, by the rule of parity (L2).  So a table that lacks an operator
still supports the models that call it, from fewer kernels; docs/derivation.md says which overloads those are.

The calls are the declared cases of the operator's spec, in f32 where it takes floats.  Needs torch.
May import: measuring.workload, bridge, parity (its rule), workbench, validators (cases, meaning), generator.program.
To add a kind of reference: `generator/program/torch_compat.decomposable` or `generator/program/decompositions.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from ..files import write_text
from ..generator.errors import did_you_mean
from ..generator.program.aten import Rows
from ..generator.program.capture import capture
from ..generator.program.folder import write_folder
from ..generator.spec import AtenEntry, OpSpec
from ..generator.types import DType
from . import console
from .bridge import aten_rows, install
from .command import command, json_option
from .measuring.workload import Workload, WorkloadError, case_of
from .parity import float_rule
from .workbench import Workbench

__all__ = ["Derived", "derive", "derive_one"]

#: Calls of an overload that are tried.
CASES = 2
STATES = ("derived", "differs", "no reference", "not derived", "no call")


@dataclass(frozen=True)
class Derived:
    """What became of one overload without its operator.

    state      derived (it came back, with parity) | differs (it came back, other than eager) | no reference (PyTorch
               has no decomposition of it) | not derived (what it became needs what nobody supplies) | no call (no case
               of the spec can be said as a call of it)
    kernels    what it was made of;  ratio: the worst error over the bound of parity;  reason: why not
    """

    overload: str
    op: str
    state: str
    kernels: tuple[str, ...] = ()
    ratio: float = 0.0
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "overload": self.overload,
            "op": self.op,
            "state": self.state,
            "kernels": list(self.kernels),
            "ratio": self.ratio if np.isfinite(self.ratio) else None,
            "reason": self.reason,
        }


@dataclass
class _Call:
    """One call: its tensors, in order, where a `_Place` stands in the arguments' tree."""

    arguments: Mapping[str, Any]
    tensors: list[NDArray[Any]] = field(default_factory=list)


def derive_one(bench: Workbench, spec: OpSpec, entry: AtenEntry) -> Derived:
    """Take one overload's rows away and compare what it becomes with eager."""
    from ..generator.program import torch_compat as compat

    told = partial(Derived, entry.overload, spec.op)
    if not compat.has_reference(entry.overload):
        return told("no reference", reason="PyTorch has no decomposition of it")
    calls = [(c, own) for c in _calls(spec, entry) if (own := _by_eager(entry.overload, c)) is not None]
    if not calls:
        return told("no call", reason="no case of its spec is a call that PyTorch takes")
    table = aten_rows(bench.registry.all()).without(entry.overload)
    kernels: set[str] = set()
    worst = 0.0
    for call, own in calls:
        try:
            found, missing, ratio = _compared(entry.overload, call, own, table)
        except OpwrightError as e:
            return told("not derived", reason=e.message)
        if missing == [entry.overload]:
            return told("no reference", reason="it is a primitive: its reference calls it")
        if missing:
            return told("not derived", tuple(sorted(kernels)), reason=f"it needs {', '.join(missing)}")
        kernels |= found
        worst = max(worst, ratio)
    if spec.op in kernels:
        return told(
            "not derived", tuple(sorted(kernels)), worst, "another overload of its operator stands for it"
        )
    state = "derived" if worst <= 1 else "differs"
    return told(state, tuple(sorted(kernels)), worst, "" if worst <= 1 else "its results are not eager's")


def _module(overload: str, call: _Call) -> Any:
    """The call as a module of its tensors."""
    import torch

    from ..generator.program import torch_compat as compat

    target = compat.overload_of(overload)

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            given = iter(tensors)
            return target(**{k: _filled(v, given) for k, v in call.arguments.items()})

    return Module()


def _by_eager(overload: str, call: _Call) -> list[NDArray[Any]] | None:
    """Eager's results; None where PyTorch does not take the call."""
    import torch

    try:
        with torch.no_grad():
            return _flat(_module(overload, call)(*(torch.from_numpy(a.copy()) for a in call.tensors)))
    except Exception:  # whatever PyTorch raises at what it does not take
        return None


def _compared(
    overload: str, call: _Call, own: Sequence[NDArray[Any]], table: Rows
) -> tuple[frozenset[str], list[str], float]:
    """The kernels that answer the call, the overloads that nobody does, and the worst error over its bound."""
    import torch

    from ..generator.program import torch_compat as compat
    from ..program import Program as Loaded

    given = tuple(torch.from_numpy(a.copy()) for a in call.tensors)
    module = _module(overload, call)
    found = capture(module, given, {}, table, name="call", source=overload, further=True)
    missing = sorted({c.aten for c in found.program.calls if c.missing})
    if missing:
        return frozenset(), missing, 0.0
    with torch.no_grad(), compat.quiet():
        wide = _flat(module(*(t.double() if t.is_floating_point() else t for t in given)))
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch), found.program, found.tensors)
        loaded = Loaded.load(Path(scratch))
        named = {b.name: a for b, a in zip(found.program.inputs, call.tensors, strict=True)}
        results = loaded.run(named)
        got = [np.array(results[b.name].numpy()) for b in found.program.outputs]
    worst = 0.0
    for ours, f32, f64 in zip(got, own, wide, strict=True):
        if ours.shape != f32.shape or ours.dtype != f32.dtype:
            worst = np.inf
        elif ours.dtype.kind in "fc":
            worst = max(worst, float_rule(ours, f32, f64)[0])
        elif not np.array_equal(ours, f32):
            worst = np.inf
    return frozenset(c.op for c in found.program.calls), [], worst


def _filled(value: Any, given: Iterator[Any]) -> Any:
    if isinstance(value, _Place):
        return next(given)
    return [_filled(v, given) for v in value] if isinstance(value, list) else value


class _Place:
    """Where a tensor stands among the arguments."""


def _flat(result: Any) -> list[NDArray[Any]]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [p.numpy() for p in parts if p is not None]


def _calls(spec: OpSpec, entry: AtenEntry) -> Iterator[_Call]:
    """The first declared cases that are calls of the overload with something in them."""
    from ..generator.program import torch_compat as compat
    from ..validators.meaning import aten_arguments
    from ..validators.trial import Trial

    count = 0
    for row in spec.test.cases:
        if count == CASES:
            return
        plain = {k: v for k, v in row.items() if k not in ("types", "from")}
        try:
            _, case = case_of(spec, Workload(plain, "f32"), 0, full=True)
        except WorkloadError:
            continue
        if (told := aten_arguments(spec, entry, Trial.of_case(case))) is None:
            continue
        arguments, dtypes = told
        tensors: list[NDArray[Any]] = []
        tree = {k: _taken(v, tensors) for k, v in arguments.items()}
        if not tensors or not all(a.size for a in tensors):
            continue
        count += 1
        yield _Call(
            tree | {k: compat.torch_dtype(DType(d)) for k, d in dtypes.items()},
            tensors,
        )


def _taken(value: Any, tensors: list[NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        tensors.append(value)
        return _Place()
    return [_taken(v, tensors) for v in value] if isinstance(value, list) else value


# ---- the command -------------------------------------------------------------------------------------------------


def chosen(bench: Workbench, overloads: Sequence[str]) -> list[tuple[OpSpec, AtenEntry]]:
    """The claims of accepted operators on these overloads; on all where none is named."""
    every = {
        e.overload: (s, e)
        for s in bench.registry.all()
        if bench.is_proven(s)
        for e in s.aten
        if e.overload.startswith("aten.")
    }
    for name in overloads:
        if name not in every:
            raise OpwrightError(
                f"no accepted operator claims `{name}`", hint=did_you_mean(name, every) or "opwright ops"
            )
    return [every[n] for n in overloads or sorted(every)]


def page(found: Sequence[Derived]) -> str:
    """docs/derivation.md."""
    back = [d for d in found if d.state == "derived"]
    kernels = sorted({k for d in back for k in d.kernels})
    lines = [
        "# Derivation",
        "",
        "What becomes of each overload when its operator is taken out of the table, one at a time:"
        " `opwright derive --out docs/derivation.md`. A model that calls it is still supported where it comes back:"
        " PyTorch's own decomposition stands for it, on our kernels, with eager's results by the rule of L2.",
        "",
        *(f"- {state}: {sum(d.state == state for d in found)}" for state in STATES),
        "",
        f"Those that come back are made of {len(kernels)} operators.",
        "",
        "| overload | operator | made of | error over bound |",
        "| --- | --- | --- | --- |",
        *(f"| {d.overload} | {d.op} | {', '.join(d.kernels)} | {d.ratio:.2f} |" for d in back),
        "",
        "## Those that do not",
        "",
        "| overload | operator | why |",
        "| --- | --- | --- |",
        *(f"| {d.overload} | {d.op} | {d.state}: {d.reason} |" for d in found if d.state not in ("derived",)),
        "",
    ]
    return "\n".join(lines)


@command(
    "derive",
    example=["opwright derive aten.gelu.default", "opwright derive --out docs/derivation.md"],
)
@click.argument("overloads", nargs=-1)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the page of all there.")
@json_option
def derive(overloads: tuple[str, ...], out: Path | None, as_json: bool) -> int:
    """Take an overload's operator away: does it come back from PyTorch's own decomposition, with parity?

    OVERLOADS are overloads that accepted operators claim (all of them where none is named).  Exit code 1: one came
    back with other results than eager's.
    """
    bench = Workbench.here()
    pairs = chosen(bench, overloads)
    install()
    found = []
    with console.progress("deriving", quiet=as_json) as progress:
        for k, (spec, entry) in enumerate(pairs):
            progress.step(entry.overload, k, len(pairs))
            found.append(derive_one(bench, spec, entry))
    if out is not None:
        write_text(out, page(found))
    if as_json:
        console.print_json({"overloads": [d.to_json() for d in found]})
    else:
        console.print_table(
            ("overload", "state", "made of, or why not"),
            [
                (d.overload, d.state, ", ".join(d.kernels) if d.state == "derived" else d.reason)
                for d in found
            ],
        )
    return EXIT_FAILED if any(d.state == "differs" for d in found) else EXIT_OK
