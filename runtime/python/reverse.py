"""`ow.vjp("softmax", dy, x, axis=1)`: the gradient of one op, by the kernel that the judge proved with the op.

What a spec declares or derives is one kernel of all gradients that it promises; here it is called with the op's own
arguments.  `vjp_aten` is the same of an ATen overload.

May import: `.registry`, `.aten`, `.exceptions`, `.fronting`, `.load`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import registry
from .aten import Planned, plan_aten
from .exceptions import OpError, OpTypeError
from .fronting import tensor
from .load import core

__all__ = ["vjp", "vjp_aten"]


def vjp(op: str, cotangents: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The product of cotangents with the op's Jacobian: input → its gradient, in the input's shape and dtype.

    op          an op's name
    cotangents  one tensor (of the first output), or output → tensor; an output without one counts as not used
    args, kwargs  the op's own arguments

    Inputs whose gradient the spec does not promise (integers, indices, absent ones) have no entry; of a list of
    tensors the entry is a list.  Raises OpTypeError where the op has no gradient for these arguments, and
    MissingKernelError where it is not known.
    """
    found = registry.get(op)
    return _vjp(found, _bound(found, args, kwargs), cotangents)


def vjp_aten(overload: Any, cotangents: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The same of an ATen overload; gradients have the names of the op that answers it."""
    planned = plan_aten(overload, args, kwargs)
    if not isinstance(planned, Planned) or planned.finish is not None:
        raise OpTypeError(f"{overload} is not one call for these arguments, and has no gradient of its own")
    if not isinstance(cotangents, Mapping):
        cotangents = {planned.returns[0]: cotangents}
    op = registry.get(planned.op)
    return _vjp(op, _bound(op, (), planned.arguments), cotangents)


def _bound(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every input and attribute by name."""
    signature = op.signature
    names = [i["name"] for i in signature["inputs"]]
    if len(args) > len(names):
        raise OpTypeError(f"{signature['name']}: takes {len(names)} tensors, got {len(args)}")
    given = dict(zip(names, args, strict=False))
    if twice := sorted(given.keys() & kwargs.keys()):
        raise OpTypeError(f"{signature['name']}: `{twice[0]}` is given twice")
    given |= kwargs
    attrs = {a["name"]: a for a in signature["attrs"]}
    if unknown := sorted(given.keys() - set(names) - attrs.keys()):
        raise OpTypeError(
            f"{signature['name']}: has no argument '{unknown[0]}'",
            hint=f"it takes {', '.join((*names, *attrs))}",
        )
    for i in signature["inputs"]:
        if given.get(i["name"]) is None:
            if not i["optional"]:
                raise OpTypeError(f"{signature['name']}: `{i['name']}` is missing")
            given[i["name"]] = None
    for name, a in attrs.items():
        if name not in given:
            if "default" not in a and not a["optional"]:
                raise OpTypeError(f"{signature['name']}: `{name}` is missing")
            given[name] = a.get("default")
    return given


def _described(x: Any) -> dict[str, Any]:
    if isinstance(x, bool | int | float | complex):
        return {"dtype": _plain(x), "rank": 0, "weak": True}
    t = tensor(x)
    return {"dtype": str(t.dtype), "rank": t.ndim, "weak": False}


def _plain(x: complex) -> str:
    return "bool" if isinstance(x, bool) else {int: "i64", float: "f32"}.get(type(x), "c64")


def _value(x: Any) -> Any:
    """An attribute as a request has it."""
    return list(x) if isinstance(x, tuple | list) else x


def _vjp(op: Any, given: Mapping[str, Any], cotangents: Any) -> dict[str, Any]:
    signature = op.signature
    lists = {i["name"] for i in signature["inputs"] if i["list"]}
    outputs = [o["name"] for o in signature["outputs"]]
    if not isinstance(cotangents, Mapping):
        cotangents = {outputs[0]: cotangents}
    if unknown := sorted(set(cotangents) - set(outputs)):
        raise OpTypeError(f"{signature['name']}: no output is called `{unknown[0]}`")

    flat: dict[str, Any] = {}
    inputs: list[Any] = []
    for i in signature["inputs"]:
        x = given[i["name"]]
        if i["name"] in lists:
            entries = [] if x is None else list(x)
            flat |= {f"{i['name']}.{k}": e for k, e in enumerate(entries)}
            inputs.append([_described(e) for e in entries])
        else:
            flat[i["name"]] = x
            inputs.append(None if x is None else _described(x))
    attrs = {a["name"]: _value(given[a["name"]]) for a in signature["attrs"]}
    rule = registry.gradient_rule({"op": signature["name"], "inputs": inputs, "attrs": attrs})

    results: dict[str, Any] = {}

    def result(name: str) -> Any:
        if not results:
            results.update(zip(outputs, op.all(**given), strict=True))
        return results[name]

    def argument(entry: Any) -> Any:
        if isinstance(entry, list):
            return [argument(e) for e in entry]
        kind, name = entry
        if kind == "in":
            return flat[name]
        if kind == "cotangent" and name in cotangents:
            return cotangents[name]
        y = result(name)
        return y if kind == "out" else core.full(tuple(y.shape), 0, y.dtype)

    if lost := sorted(set(cotangents) - {n for _, n in _cotangents(rule["inputs"])}):
        raise OpTypeError(f"`{signature['name']}` has no gradient by its output `{lost[0]}`")
    gradient = registry.get(rule["signature"]["name"])
    taken = list(map(argument, rule["inputs"]))
    with _said_of_gradient(gradient.signature["name"], signature["name"]):
        found = gradient.all(*taken, **{n: given[n] for n in rule["attrs"]})
    out: dict[str, Any] = {}
    for name, value in zip(rule["outputs"], found, strict=True):
        x = flat[name]
        dtype = str(tensor(x).dtype) if not isinstance(x, bool | int | float | complex) else value.dtype
        value = value if value.dtype == dtype else value.to(dtype)
        whole = name.partition(".")[0]
        if whole in lists:
            out.setdefault(whole, []).append(value)
        else:
            out[name] = value
    return out


@contextmanager
def _said_of_gradient(name: str, op: str) -> Iterator[None]:
    """The gradient's own name is a hash, which tells nobody whose it is."""
    try:
        yield
    except OpError as error:
        message = error.message.replace(name, f"the gradient of {op}")
        raise type(error)(message, place=error.place, hint=error.hint) from None


def _cotangents(entries: Sequence[Any]) -> list[tuple[str, str]]:
    return [tuple(e) for e in entries if not isinstance(e, list) and e[0] == "cotangent"]
