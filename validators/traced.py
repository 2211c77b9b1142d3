"""Calls that a program really made (`ow.trace`), as cases of an operator: its declared ones with their shapes.

    calls = read_calls("calls.jsonl")            the lines of the file, checked
    with_calls(spec, calls) -> OpSpec            the spec, its test's cases those calls (the most frequent first)

May import: case_calls, generator.{spec, errors, types}.  To read another kind of argument: a case in `_value`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..generator.errors import OpwrightError, Place
from ..generator.spec import AtenEntry, Only, OpSpec
from ..generator.types import DType
from .case_calls import type_choices

__all__ = ["TraceError", "TracedCall", "read_calls", "with_calls"]

SCHEMA = 1


class TraceError(OpwrightError):
    """A file of recorded calls cannot be read, or holds none of the operator's."""


@dataclass(frozen=True)
class TracedCall:
    """One line: the overload, its arguments by name, and how often it was made."""

    overload: str
    arguments: Mapping[str, Any]
    count: int


def read_calls(path: Path) -> list[TracedCall]:
    """The calls of a file that `ow.trace` wrote.  Raises `TraceError` with the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise TraceError(f"there is no file {path}", hint="`with ow.trace(FILE):` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = Place(str(path), number, 1)
        try:
            row = json.loads(line)
            call = TracedCall(str(row["overload"]), dict(row["arguments"]), int(row.get("count", 1)))
            schema = row["schema"]
        except KeyError as error:
            raise TraceError(f"this is no recorded call: it has no {error}", place=place) from error
        except (ValueError, TypeError) as error:
            raise TraceError(f"this is no recorded call: {error}", place=place) from error
        if schema != SCHEMA:
            raise TraceError(f"schema {schema} is not read by this version", place=place)
        out.append(call)
    return out


def with_calls(spec: OpSpec, calls: Sequence[TracedCall], path: Path) -> OpSpec:
    """The spec with those of the calls that it serves as its cases.  Raises `TraceError` where there are none."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for call in calls:
        for entry in spec.aten:
            case = _case(spec, entry, call) if entry.overload == call.overload else None
            if case is not None:
                name = json.dumps(case, sort_keys=True, default=str)
                found[name] = (found.get(name, (0, case))[0] + call.count, case)
                break
    if not found:
        overloads = ", ".join(e.overload for e in spec.aten) or "it names no overload"
        raise TraceError(f"{path} has no call that `{spec.op}` serves", hint=f"it serves {overloads}")
    cases = tuple(case for _, case in sorted(found.values(), key=lambda f: -f[0]))
    return replace(spec, test=replace(spec.test, cases=cases))


def _case(spec: OpSpec, entry: AtenEntry, call: TracedCall) -> dict[str, Any] | None:
    """The call as a declared case; None where the entry does not take it."""
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    case: dict[str, Any] = dict(entry.set)
    types: dict[str, str] = {}
    for argument, target in pairs:
        given = argument in call.arguments
        value = call.arguments.get(argument)
        if isinstance(target, Only):
            if given and _value(value) != target.value:
                return None
            continue
        if target is None or not given:
            continue
        names = target if isinstance(target, tuple | list) else (target,)
        values = value if isinstance(target, tuple | list) and isinstance(value, list) else [value]
        for name, one in zip(names, values, strict=False):
            if name in spec.inputs:
                if not _input(spec, str(name), one, case, types):
                    return None
            elif one is not None:
                case[str(name)] = _value(one)
    for name, t in spec.inputs.items():
        if t.optional and f"{name}.shape" not in case:
            case[name] = None
    if not all(name in {d.value for d in DType} for name in types.values()):
        return None
    chosen = [types.get(v) for v, _ in type_choices(spec)]
    return case | ({"types": chosen} if chosen and None not in chosen else {})


def _input(spec: OpSpec, name: str, value: Any, case: dict[str, Any], types: dict[str, str]) -> bool:
    """Put an input's shape into the case; False where it is no tensor."""
    t = spec.inputs[name]
    if value is None:
        return t.optional
    tensors = value if t.is_list and isinstance(value, list) else [value]
    if not all(isinstance(v, dict) and "tensor" in v for v in tensors):
        return False
    shapes = [list(v["tensor"]["shape"]) for v in tensors]
    case[f"{name}.shape"] = shapes if t.is_list else shapes[0]
    if t.is_list:
        case[name] = len(shapes)
    types.setdefault(t.dtype, str(tensors[0]["tensor"]["dtype"]))
    return True


def _value(x: Any) -> Any:
    """A recorded attribute as a case writes it."""
    if isinstance(x, dict):
        if "dtype" in x:
            return x["dtype"]
        if "float" in x:
            return math.inf if x["float"] == "inf" else -math.inf if x["float"] == "-inf" else math.nan
        return None
    return [_value(e) for e in x] if isinstance(x, list) else x
