"""A program's nodes in order, on NumPy arrays: views, registers and copies here, calls by whoever is asked.

    values = evaluate(program, symbols, given, call)      every value by id

`call(node, values, env)` gives the arrays of a call's outputs by value id; `env` holds symbols and registers so far.
May import: ir, intexpr, folder (dtypes), numpy.  To add a kind of node: a case in `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from .folder import numpy_dtype
from .intexpr import IntExpr
from .ir import Assert, Call, Copy, Program, Read, Scalar, View

__all__ = ["evaluate", "moved"]

Values: TypeAlias = dict[str, Any]


def evaluate(
    p: Program,
    symbols: Mapping[str, int],
    given: Mapping[str, Any],
    call: Callable[[Call, Values, dict[str, int]], Mapping[str, Any]],
) -> Values:
    """Every value by id, and none that needs one which `call` left out.  `given`: those of inputs, weights and
    constants; `symbols`: those of the inputs."""
    out: Values = {}
    env = dict(symbols)

    def put(id: str, array: Any) -> None:
        out[id] = np.array(array, order="C")
        for s in p.symbols.values():
            if s.source == id:
                env[s.name] = int(out[id].shape[s.axis])
        for e, n in zip(p.values[id].shape, out[id].shape, strict=True):
            (name, *rest) = [*e.names(), ""]
            if rest == [""] and name not in env and e == IntExpr.of(name):
                env[name] = int(n)

    for id, array in given.items():
        put(id, array)
    for node in p.nodes:
        match node:
            case View(base=base) | Read(base=base) | Copy(base=base) if base not in out:
                continue
            case View(base=base, out=id):
                source = out[base]
                strided = np.lib.stride_tricks.as_strided(
                    source.reshape(-1)[node.offset.evaluate(env) :],
                    [e.evaluate(env) for e in node.shape],
                    [e.evaluate(env) * source.itemsize for e in node.strides],
                )
                out[id] = np.array(strided, order="C")
            case Read(base=base, out=id):
                out[id] = out[base].item()
                env[id] = int(out[id])
            case Scalar(out=id, expr=e):
                out[id] = env[id] = e.evaluate(env)
            case Copy(base=base, out=id):
                out[id] = out[base]
            case Call():
                for id, array in call(node, out, env).items():
                    put(id, array)
            case Assert():
                pass
    return out


def moved(p: Program, node: Call, values: Mapping[str, Any]) -> dict[str, Any]:
    """What `contiguous` and `cast` give."""
    (base,), (id,) = node.inputs, node.out
    assert isinstance(base, str) and id is not None
    return {id: values[base].astype(numpy_dtype(p.values[id].dtype))}
