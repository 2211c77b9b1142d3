"""`ow.call_aten("aten.add.Tensor", …)`: an ATen overload's arguments, put to the op that claims it.

The rules of a row are in docs/internals.md, "`aten:` entries in a spec".
May import: `.registry`, `.exceptions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import registry
from .exceptions import OpTypeError

# Where a tensor lies is not an op's business.
_PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})


class _Refused(Exception):
    """A row does not take these arguments; the text says why."""


def call_aten(overload: str, *args: Any, **kwargs: Any) -> Any:
    """Call the op that claims `overload` with the overload's own arguments; a Tensor, or a tuple of them.

    Raises MissingKernelError when nothing claims it, and OpTypeError when no row takes these arguments.
    """
    refusals: list[str] = []
    for row in registry.aten_rows(overload):
        try:
            given = _arguments(row, args, kwargs)
        except _Refused as why:
            refusals.append(f"{row['op']}: {why}")
            continue
        return _call(row, given)
    raise OpTypeError(f"{overload} is not supplied for these arguments: {'; '.join(refusals)}")


def _arguments(row: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The spec's arguments by name."""
    targets: dict[str, Any] = dict(row["map"])
    order = list(targets)
    if len(args) > len(order):
        raise _Refused(f"takes {len(order)} arguments, got {len(args)}")
    given = dict(zip(order, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise _Refused(f"`{name}` is given twice")
        if name not in targets and value is not None and name not in _PLACEMENT:
            raise _Refused(f"`{name}` is not taken")
        given[name] = value
    out: dict[str, Any] = dict(row.get("set", {}))
    for name, value in given.items():
        match targets.get(name):
            case None:
                pass
            case str(target):
                out[target] = value
            case list() | tuple() as names:
                if not isinstance(value, list | tuple) or len(value) != len(names):
                    raise _Refused(f"`{name}` must have {len(names)} items")
                out.update(zip(names, value, strict=True))
            case Mapping() as demand:
                if not _same(value, demand["only"]):
                    raise _Refused(f"`{name}` must be {demand['only']!r}, got {value!r}")
            case other:
                raise _Refused(f"`{name}` has a target that is not known: {other!r}")
    return out


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return isinstance(value, list | tuple) and list(value) == list(wanted)
    return (
        type(value) is type(wanted) and bool(value == wanted)
        if isinstance(wanted, bool)
        else bool(value == wanted)
    )


def _call(row: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    op = registry.get(row["op"])
    outputs = [output["name"] for output in op.signature["outputs"]]
    shown = [output["name"] for output in op.signature["outputs"] if not output["aux"]]
    returns = list(row.get("returns") or shown)
    # None stands for "the default" of an attribute that cannot be None.
    takes_none = {a["name"] for a in op.signature["attrs"] if a["optional"] or a.get("default", ...) is None}
    attrs = {a["name"] for a in op.signature["attrs"]}
    arguments = {k: v for k, v in given.items() if v is not None or k not in attrs or k in takes_none}
    results = dict(zip(outputs, op.all(**arguments), strict=True))
    if len(returns) == 1:
        return results[returns[0]]
    return tuple(results[name] for name in returns)
