"""The accused: where kernels come from, how they are built, and how one is called on arrays by name.

May import: generator.bound, toolchain, abi, harness.  To judge text from somewhere else (an emitter, a file, an agent):
write a `CandidateSource`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..generator.bound import BindKey, BoundOp, KernelText
from ..generator.errors import OpwrightError
from ..toolchain import CompileError, CompileJob, compile_many
from . import abi
from .harness import NUMPY, Array, Invocation

__all__ = ["Built", "CandidateSource", "build", "invocation"]


class CandidateSource(Protocol):
    """Gives kernels for keys of one spec, in the order of the keys.

    forward      the operator itself
    gradient     its adjoint; an empty list when the operator has none
    gradient_op  the program that the gradient kernels print (what the judge proves against finite differences)
    """

    def forward(self, keys: Sequence[BindKey]) -> list[KernelText]: ...

    def gradient(self, keys: Sequence[BindKey]) -> list[KernelText]: ...

    def gradient_op(self, key: BindKey) -> BoundOp: ...


@dataclass(frozen=True)
class Built:
    """A kernel text and its library, or why there is none."""

    text: KernelText
    library: str = ""
    trouble: str = ""


def build(texts: Sequence[KernelText]) -> list[Built]:
    """Compile kernels, in parallel.  Those of one dialect share a file; if it does not compile, each gets its own."""
    done: dict[int, Built] = {}
    groups: dict[str, list[int]] = {}
    for k, text in enumerate(texts):
        groups.setdefault(text.dialect, []).append(k)
    for members in groups.values():
        for part in _parts(members):
            done |= _together(texts, part) if len(part) > 1 else _apart(texts, part)
    return [done[k] for k in range(len(texts))]


#: Kernels to a file: the compiler's fixed cost is shared, and a failure costs one more round of this many.
_TOGETHER = 12


def _parts(members: list[int]) -> list[list[int]]:
    return [members[k : k + _TOGETHER] for k in range(0, len(members), _TOGETHER)]


def _together(texts: Sequence[KernelText], members: list[int]) -> dict[int, Built]:
    symbols = {texts[k].symbol for k in members}
    if len(symbols) < len(members):
        return _apart(texts, members)
    source = "\n".join(texts[k].source for k in members)
    try:
        (path,) = compile_many([_job(texts[members[0]], source)])
    except OpwrightError:
        return _apart(texts, members)
    return {k: Built(texts[k], str(path)) for k in members}


def _job(text: KernelText, source: str) -> CompileJob:
    return CompileJob({"kernel.cpp": source}, f"{text.row.get('op', 'kernel')}", text.dialect)


def _apart(texts: Sequence[KernelText], members: list[int]) -> dict[int, Built]:
    out = {}
    for k in members:
        try:
            (path,) = compile_many([_job(texts[k], texts[k].source)])
        except CompileError as refused:
            out[k] = Built(texts[k], trouble=str(refused))
        else:
            out[k] = Built(texts[k], str(path))
    return out


def _row_list(row: Mapping[str, object], name: str) -> list[dict[str, Any]]:
    value = row.get(name, [])
    assert isinstance(value, list)
    return value


def invocation(
    op: BoundOp,
    built: Built,
    arrays: Mapping[str, Array],
    attrs: Mapping[str, Any],
    outputs: Mapping[str, Array],
    *,
    alias: Mapping[str, str] | None = None,
) -> Invocation:
    """A call of a kernel: inputs where `op.slots` has them (absent ones are null), attributes as its row lists them.

    arrays   flat input name (`x`, `xs.0` …) -> array in physical order
    attrs    run-time attributes by name; absent ones cross as absent
    outputs  templates: dtype, shape and strides
    alias    output -> the input that it is written over
    """
    row = built.text.row
    slots = dict(op.slots) or {t.name: k for k, t in enumerate(op.inputs)}
    names = [""] * (1 + max(slots.values(), default=-1))
    for name, k in slots.items():
        names[k] = name
    lists = [t.list_of for t in op.inputs if t.list_of is not None]
    lengths = tuple(lists.count(name) for name in dict.fromkeys(lists))
    outs = [t.name for t in op.outputs]
    positions = {outs.index(out): names.index(given) for out, given in (alias or {}).items()}
    return Invocation(
        built.library,
        built.text.symbol,
        tuple(arrays.get(n) for n in names),
        tuple(outputs[n] for n in outs),
        tuple(abi.encode_attr(attrs.get(str(a["name"]))) for a in _row_list(row, "attrs")),
        lengths,
        tuple(n or f"in[{k}]" for k, n in enumerate(names)),
        tuple(outs),
        positions,
        sum(1 << k for k in positions),
    )


def empty(dtype: str, shape: Sequence[int]) -> Array:
    """A contiguous template of an output."""
    return np.empty(tuple(shape), NUMPY[dtype])
