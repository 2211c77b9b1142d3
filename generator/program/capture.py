"""A module → a program: `torch.export`, decomposition to core ATen, and every node as a call, a view or arithmetic.

    captured = capture(module, args, kwargs, table, name="llama", source="transformers:llama")
    captured.program            ir.Program, verified
    captured.tensors            its weights and constants
    captured.origins            call id → the node of the exported graph that it came from (`records.py` reads it)

Rooms: captured.py has what a capture is, convert.py makes a graph's nodes a program, overloads.py has what single
overloads need, capture_run.py runs all of this in a child.

May import: ir, aten, torch_compat (which imports torch), rewrite, inventory, captured, convert, expand.  To add a
way to export: a row of `_ATTEMPTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ..errors import MachineError, OpwrightError
from . import torch_compat as compat
from .aten import AtenTable
from .captured import Capture, CaptureError
from .convert import Converter
from .expand import answers
from .explain import explain, place_of, plainly
from .ir import Assert, cond_names
from .rewrite import ControlFlowError, rewrite

__all__ = ["capture", "dynamic_axes", "missing"]


def dynamic_axes(tensor: Any) -> tuple[int, ...]:
    """The axes that may vary: batch, and sequence for tensors of rank 2 and 3.  An example extent of 0 or 1 stays."""
    axes = (0, 1) if 2 <= tensor.dim() <= 3 else (0,) if tensor.dim() else ()
    return tuple(d for d in axes if tensor.shape[d] > 1)


def _batch_axis(tensor: Any) -> tuple[int, ...]:
    return tuple(d for d in dynamic_axes(tensor) if d == 0)


#: Which axes of each of the arguments' tensors vary.
_Axes: TypeAlias = "list[tuple[int, ...]]"

#: How much varies, tried in this order.
_ATTEMPTS: tuple[tuple[str, Callable[[Any], tuple[int, ...]]], ...] = (
    ("batch and sequence", dynamic_axes),
    ("batch", _batch_axis),
    ("static", lambda _: ()),
)


def capture(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    table: AtenTable,
    *,
    name: str,
    source: str,
    keep: Sequence[str] = (),
    exported: Any = None,
    further: bool = False,
    fixed: Collection[str] = (),
    assuming: bool = False,
    report: Callable[[str, Callable[[], Any]], Any] | None = None,
) -> Capture:
    """Export, decompose and convert; with fewer varying axes where that fails, and says so in `notes`.

    `further`: what nothing supplies is decomposed beyond core ATen, where what it becomes is supplied.
    `fixed`: keyword arguments whose extents do not vary.  `exported`: an ExportedProgram to convert instead of the
    module.  `assuming`: choices that depend on what tensors hold fall as for these arguments, and the program refuses
    others.  `report(stage, work)` runs `work` under a clock.
    Raises `CaptureError` with what each attempt said.
    """
    clock = report or _unclocked
    failures: dict[str, list[str]] = {}  # reason → attempts that ended so
    attempts: list[tuple[str, _Axes]] = (
        _distinct(args, kwargs, fixed) if exported is None else [("as exported", [])]
    )
    last: Exception | None = None
    best: Capture | None = None
    for dynamic, axes in attempts:
        try:
            ep, fixed = (
                _exported(module, args, kwargs, axes, clock, assuming)
                if exported is None
                else (rewrite(exported), ())
            )
            core = clock("decompose", partial(compat.decompose, ep, keep))
            notes = fixed + tuple(
                f"not captured with {' or '.join(tried)} dynamic: {why}" for why, tried in failures.items()
            )

            def converted(graph: Any, dynamic: str = dynamic, notes: Any = notes, ep: Any = ep) -> Capture:
                found: Capture = clock(
                    "convert", partial(Converter(graph, ep, table, name, source).run, dynamic, notes)
                )
                return found

            done = converted(core)
            if assuming and (tied := _tied(done)):
                raise CaptureError(tied)
            done = _derived(done, keep, converted) if further else done
            if best is None or len(missing(done)) < len(missing(best)):
                best = done
            refused = sorted(n for n in missing(done) if answers(n) or compat.own_decomposes(n))
            if not further or not refused:  # else fewer varying extents may be what it asks for
                return _as_it_varies(best, args, kwargs, attempts[0][1]) if exported is None else best
            failures.setdefault(f"{', '.join(refused)} not supplied so", []).append(dynamic)
        except MachineError:
            raise
        except Exception as e:  # export raises whatever the model's own code raises
            failures.setdefault(first_line(e), []).append(dynamic)
            last = e
    if best is not None:
        return _as_it_varies(best, args, kwargs, attempts[0][1]) if exported is None else best
    assert last is not None
    raise _explained(source, failures, last) from last


def _exported(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    axes: _Axes,
    clock: Callable[..., Any],
    assuming: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """The exported program without subgraphs, and what had to be fixed for that."""
    axes = list(axes)
    notes: list[str] = []
    while True:
        ep = clock("export", partial(compat.export, module, args, kwargs, axes, assuming))
        try:
            return rewrite(ep), tuple(notes)
        except ControlFlowError as e:
            spot = compat.spot_of(ep, e.symbol) if e.symbol is not None else None
            if spot is None or spot[1] not in axes[spot[0]]:
                raise
            axes[spot[0]] = tuple(d for d in axes[spot[0]] if d != spot[1])
            notes.append(f"axis {spot[1]} of tensor {spot[0]} of the arguments is fixed: {e.message}")


def _explained(source: str, failures: Mapping[str, Sequence[str]], last: Exception) -> CaptureError:
    """What the attempts said, once where they said the same; where the model's source stopped the last one, and what
    to write there instead."""
    place, hint = explain(last)
    several = len(failures) > 1
    reasons = "; ".join(f"{why} ({', '.join(tried)})" if several else why for why, tried in failures.items())
    return CaptureError(f"cannot capture {source}: {reasons}", place=place, hint=hint)


def _as_it_varies(found: Capture, args: Any, kwargs: Mapping[str, Any], asked: _Axes) -> Capture:
    """The capture, which says what varies in it, and what of `asked` does not: an exporter that is free to vary an
    extent may find that the module fixes it."""
    p = found.program
    tensors = compat.tensors_of((args, dict(kwargs)))
    if len(tensors) != len(p.inputs):
        return found
    varies: set[int] = set()
    fixed: list[str] = []
    for b, axes in zip(p.inputs, asked, strict=True):
        for axis in axes:
            extent = p.values[b.value].shape[axis]
            if extent.value is None:
                varies.add(min(axis, 1))
            else:
                fixed.append(f"{b.name}[{axis}] = {extent.value}")
    dynamic = " and ".join(w for k, w in enumerate(("batch", "sequence")) if k in varies) or "static"
    note = (f"extents that do not vary: {', '.join(fixed)}",) if fixed else ()
    return replace(found, dynamic=dynamic, notes=(*found.notes, *note))


def _tied(found: Capture) -> str:
    """The assertion that an extent which varies is what tensors hold, if there is one: other extents would fail it."""
    p = found.program
    given = {s.name for s in p.symbols.values()}
    asserts = [n for n in p.nodes if isinstance(n, Assert)]
    return next(
        (n.message for n in asserts if 0 < len(cond_names(n.cond) & given) < len(cond_names(n.cond))), ""
    )


def missing(found: Capture) -> set[str]:
    """Overloads that nothing supplies."""
    return {c.aten for c in found.program.calls if c.missing}


def _derived(found: Capture, keep: Sequence[str], converted: Callable[[Any], Capture]) -> Capture:
    """The capture in which PyTorch's own decompositions and references stand for what nothing supplies, where that
    leaves less missing: all of them at once, for each trial traces the whole graph again, and one overload after the
    other where that leaves something else."""
    before = left = missing(found)
    names = compat.decomposable(sorted(before))
    best = _deeper(found, keep, names, left, converted)
    if names and missing(best) & set(names):
        more: list[str] = []
        best = found
        for name in names:
            deeper = _deeper(best, keep, [*more, name], left, converted)
            if deeper is not best:
                best, left = deeper, missing(deeper)
                more.append(name)
    return replace(best, derived=tuple(sorted(before - missing(best))))


def _deeper(
    found: Capture,
    keep: Sequence[str],
    names: Sequence[str],
    left: set[str],
    converted: Callable[[Any], Capture],
) -> Capture:
    """The capture with these decomposed too, and what became of them once more; as it was where no less is missing.
    A decomposition that torch cannot apply to this graph (one that writes in place, say) is none."""
    trial = list(names)
    for _ in range(2 if trial else 0):
        try:
            deeper = converted(compat.decompose(found.exported, keep, trial))
        except Exception:
            return found
        now = missing(deeper)
        if now < left:
            return deeper
        trial += [n for n in compat.decomposable(sorted(now - left)) if n not in trial]
    return found


def _unclocked(stage: str, work: Callable[[], Any]) -> Any:
    return work()


def _distinct(args: Any, kwargs: Any, fixed: Collection[str] = ()) -> list[tuple[str, _Axes]]:
    """The attempts that differ on these arguments."""
    tensors = compat.tensors_of((args, dict(kwargs)))
    still = {id(t) for t in compat.tensors_of([kwargs[n] for n in fixed])}
    out: list[tuple[str, _Axes]] = []
    for dynamic, axes in _ATTEMPTS if len(still) < len(tensors) else _ATTEMPTS[-1:]:
        chosen = [() if id(t) in still else axes(t) for t in tensors]
        if all(chosen != before for _, before in out):
            out.append((dynamic, chosen))
    return out


def first_line(e: Exception) -> str:
    """What the exporter said first, and the line of the model's source that it names."""
    if isinstance(e, OpwrightError):
        return e.message
    lines = [x.strip() for x in str(e).splitlines() if x.strip()]
    says = plainly(e)
    if says:
        place = place_of(e)
        where = (
            f" at {place.file.rpartition('/')[2]}:{place.line} `{(place.text or '').strip()}`"
            if place
            else ""
        )
        return says + where
    found = compat.frames(str(e))
    site = f" at {found[-1].file.rpartition('/')[2]}:{found[-1].line} `{found[-1].text}`" if found else ""
    return (f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__) + site
