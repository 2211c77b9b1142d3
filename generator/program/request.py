"""What a call asks the runtime's miss hook for, and the key that a spec answers it by.

    request_of(program, call)      {"op", "inputs": [{"dtype", "rank", "weak"} | None | [..]], "attrs"}
    resolve(spec, request)         the key, run-time attributes, and the cast of each flat input in call order
    gradient_text(request)         `grads/<hash>.json` of a program folder: the request whose gradient `grad:<hash>` is
    read_gradient(path, op)        that request again

May import: ir, intexpr, bind_key, spec, types, errors.  What is known only at run time is a plain 1 in a request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bind_key import Resolved, key_for_call
from ..errors import DomainError
from ..spec import OpSpec
from ..types import DType, Operand, default_dtype
from .intexpr import IntExpr
from .ir import Arg, Call, Program, ScalarArg, attr_json, attr_of

__all__ = ["GRADIENT", "gradient_text", "read_gradient", "request_of", "resolve"]

#: What the names of ops begin with that are gradients of a program's calls.
GRADIENT = "grad:"


def request_of(program: Program, call: Call) -> dict[str, Any]:
    """The request that the call makes to the runtime's miss hook."""

    def one(a: Arg) -> Any:
        if a is None:
            return None
        if isinstance(a, tuple):
            return [one(x) for x in a]
        if isinstance(a, ScalarArg):
            value = 1 if isinstance(a.value, IntExpr) else a.value
            return {"dtype": default_dtype(value).value, "rank": 0, "weak": True}
        v = program.values[a]
        return {"dtype": v.dtype.value, "rank": v.rank, "weak": False}

    def plain(v: Any) -> Any:
        if isinstance(v, IntExpr):
            return 1
        return [plain(x) for x in v] if isinstance(v, tuple) else v

    return {
        "op": call.op,
        "inputs": [one(a) for a in call.inputs],
        "attrs": {k: plain(v) for k, v in call.attrs.items()},
    }


def resolve(spec: OpSpec, request: Mapping[str, Any]) -> tuple[Resolved, tuple[str | None, ...]]:
    """The key of a request to this spec, and per flat input in call order the dtype that it is cast to (None: as it
    is).  Raises `DomainError` where the spec does not admit it."""
    inputs: dict[str, Operand | Sequence[Operand] | None] = {}
    order: list[str | None] = []  # flat names in call order, None: absent
    if len(request["inputs"]) != len(spec.inputs):  # a group's spec and its caller lie in different files
        raise DomainError(
            f"`{spec.op}` has {len(spec.inputs)} inputs, the call gives {len(request['inputs'])}",
            place=spec.place,
        )
    for name, given in zip(spec.inputs, request["inputs"], strict=True):
        if isinstance(given, list):
            inputs[name] = [_operand(g) for g in given]
            order += [f"{name}.{k}" for k in range(len(given))]
        else:
            inputs[name] = None if given is None else _operand(given)
            order.append(None if given is None else name)
    attrs = {a.name: request["attrs"][a.name] for a in spec.attrs.values() if a.name in request["attrs"]}
    resolved = key_for_call(spec, inputs, attrs)
    casts = tuple(resolved.casts[n].value if n is not None and n in resolved.casts else None for n in order)
    return resolved, casts


def _operand(given: Mapping[str, Any]) -> Operand:
    return Operand(DType(given["dtype"]), int(given["rank"]), bool(given["weak"]))


def gradient_text(request: Mapping[str, Any]) -> tuple[str, str]:
    """The op `grad:<hash>` that is the gradient of what answers the request, and the text of its file."""
    attrs = {k: attr_json(_tuples(v)) for k, v in request["attrs"].items()}
    data = {"schema": 1, "op": request["op"], "inputs": request["inputs"], "attrs": attrs}
    text = json.dumps(data, sort_keys=True) + "\n"
    return GRADIENT + hashlib.sha256(text.encode()).hexdigest()[:16], text


def read_gradient(path: Path, op: str) -> dict[str, Any]:
    """The request whose gradient the op is.  Raises ValueError where the file is not the op's."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        request = {
            "op": str(data["op"]),
            "inputs": list(data["inputs"]),
            "attrs": {k: _lists(attr_of(v)) for k, v in data["attrs"].items()},
        }
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if gradient_text(request)[0] != op:
        raise ValueError(f"{path} does not hold the gradient that the program calls `{op}`")
    return request


def _tuples(x: Any) -> Any:
    return tuple(_tuples(y) for y in x) if isinstance(x, list | tuple) else x


def _lists(x: Any) -> Any:
    return [_lists(y) for y in x] if isinstance(x, list | tuple) else x
