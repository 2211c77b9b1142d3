"""A spec written from PyTorch's own decomposition of an overload: what `opwright new --from` begins with.

    python -m opwright.workflows.derive_spec NAME OVERLOAD         JSON: {"text": …} or {"why": …}

The overload is captured twice, with other numbers for its attributes, as a graph of our operators; the graph is fused
into one group, whose composition is the meaning.  Numbers that follow an attribute become the attribute, and what
remains must be the same both times: then the text says what the decomposition computes.  It is captured in bf16, so
that the dtype that it computes in is told from the dtype of its arguments.  Whether it is eager's meaning, `accept`
judges, as of any spec.

Elementwise overloads on tensors that broadcast, with attributes that are numbers or truth values (those at their
defaults), and one result.  Needs torch.  May import: bridge, workbench, generator.program.
To derive more: another shape of graph in `_meaning`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import OpwrightError
from ..generator.program.capture import capture
from ..generator.program.fuse import fuse
from ..generator.program.ir import Program
from .bridge import aten_rows
from .workbench import Workbench

__all__ = ["DerivationError", "derived_spec"]

#: Numbers that no decomposition writes by itself, in the order of the attributes; the second trace takes the others.
_MARKS = ((0.731058, 1.377541, 2.918273, 0.409817), (0.618034, 1.202057, 2.685452, 0.373956))


#: Calls in a composition: polynomials written out have some dozens.
_MOST = 400


class DerivationError(OpwrightError):
    """PyTorch has no decomposition of the overload, or one that is no elementwise composition."""


class _Hidden(DerivationError):
    """A number of the call that its graph does not show."""


#: (the kernels that it is made of, the statements of `compute`, the type of the result)
_Meaning = tuple[tuple[str, ...], tuple[str, ...], str]


@dataclass(frozen=True)
class _Schema:
    """What of the overload's arguments becomes what."""

    tensors: tuple[str, ...]
    numbers: Mapping[str, Any]  # name → default, `...` where it has none
    fixed: Mapping[str, Any]  # held at their defaults


def derived_spec(bench: Workbench, name: str, overload: str) -> str:
    """The text of a spec of that name.  Raises `DerivationError` with the reason."""
    from ..generator.program import torch_compat as compat

    if not compat.has_reference(overload):
        raise DerivationError(f"PyTorch has no decomposition of `{overload}`")
    schema, (kernels, lines, result) = _seen(bench, overload, _schema(overload))
    inputs = {n: ("x" if n == "self" else n) for n in schema.tensors}
    own = list(inputs.values())
    dtype = "T: float" if len(own) == 1 else f'T: "float(promote({", ".join(own)}))"'
    attrs = ", ".join(
        f"{n}: {{type: float{'' if d is ... else f', default: {float(d)!r}'}}}"
        for n, d in schema.numbers.items()
    )
    pairs = [f"{n}: {o}" for n, o in inputs.items()] + [f"{n}: {n}" for n in schema.numbers]
    pairs += [f"{n}: {{only: {json.dumps(v)}}}" for n, v in schema.fixed.items()]
    given = "".join(f", {n}: {v}" for n, v in zip(schema.numbers, _MARKS[0], strict=False))
    cases = [f"B: {b}{given}" for b in ("[7, 5]", "[0, 3]", "[]", "[1025]")]
    if len(own) > 1:
        cases.append(
            ", ".join(f"{n}.B: {[[4, 1, 3], [6, 1], [3]][min(k, 2)]}" for k, n in enumerate(own)) + given
        )
    return "\n".join(
        [
            f"op: {name}",
            f"doc: Derived from PyTorch's decomposition of {overload}, composed of {', '.join(kernels)}.",
            f"types: {{{dtype}, A: accum(T)}}",
            f"dims: {{B: {'batch' if len(own) == 1 else 'broadcast'}}}",
            "inputs: {" + ", ".join(f'{n}: "T[*B]"' for n in own) + "}",
            *([f"attrs: {{{attrs}}}"] if attrs else []),
            f'outputs: {{y: "{result}[*B]"}}',
            "compute: |",
            *(f"  {line}" for line in lines),
            f"grad: {{wrt: [{', '.join(own)}], derive: true}}"
            if result == "T"
            else "grad: {none: constant almost everywhere}",
            "test:",
            "  cases: [" + ", ".join(f"{{{c}}}" for c in cases) + "]",
            "  layouts: [contiguous, transposed, sliced]",
            "  values: [normal, zeros, nan_inf, denormal]",
            "  tol: bound",
            f"aten: [{{overload: {overload}, map: {{{', '.join(pairs)}}}}}]",
            "",
        ]
    )


def _seen(bench: Workbench, overload: str, schema: _Schema) -> tuple[_Schema, _Meaning]:
    """The meaning with as many numbers as its graph shows, the others at their defaults (a product of two numbers that
    PyTorch computes by itself shows neither)."""
    while True:
        try:
            first, second = (_meaning(bench, overload, schema, marks) for marks in _MARKS)
            if first != second:
                raise _Hidden(f"`{overload}` uses a number in a way that its graph does not show")
            return schema, first
        except _Hidden:
            if not schema.numbers or [*schema.numbers.values()][-1] is ...:
                raise
            last = [*schema.numbers][-1]
            numbers = {n: d for n, d in schema.numbers.items() if n != last}
            schema = _Schema(schema.tensors, numbers, {**schema.fixed, last: schema.numbers[last]})


def _schema(overload: str) -> _Schema:
    from ..generator.program import torch_compat as compat

    tensors: list[str] = []
    numbers: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for a in compat.arguments(compat.overload_of(overload)):
        if a.type == "Tensor":
            tensors.append(a.name)
        elif a.type in ("float", "number", "Scalar"):
            numbers[a.name] = ... if a.required or a.default is None else a.default
        elif not a.required:
            fixed[a.name] = a.default
        else:
            raise DerivationError(f"`{overload}` takes `{a.name}`, a {a.type}: no elementwise composition")
    if not tensors or len(numbers) > len(_MARKS[0]):
        raise DerivationError(f"`{overload}` takes {len(tensors)} tensors and {len(numbers)} numbers")
    if taken := {"y", "x"} & set(tensors):
        raise DerivationError(f"`{overload}` calls an argument `{min(taken)}`")
    return _Schema(tuple(tensors), numbers, fixed)


def _meaning(bench: Workbench, overload: str, schema: _Schema, marks: Sequence[float]) -> _Meaning:
    program = _captured(bench, overload, schema, marks)
    constants = {c.out[0]: c.attrs["value"] for c in program.calls if c.op == "full" and "value" in c.attrs}
    fused = fuse(program, bench.registry.get, most=_MOST)
    groups = [c for c in fused.program.calls if c.op.startswith("group:")]
    rest = [c for c in fused.program.calls if c.out[0] not in constants]
    outputs = [b.value for b in program.outputs]
    if len(groups) != 1 or rest != groups or outputs != [groups[0].out[0]]:
        made = ", ".join(dict.fromkeys(c.op.removeprefix("missing:") for c in program.calls))
        raise DerivationError(f"`{overload}` is no one elementwise composition: {made}")
    text = fused.groups[groups[0].op.removeprefix("group:")]
    body = text.partition("compute: |\n")[2].partition("grad:")[0]
    names = dict(zip(schema.tensors, (b.value for b in program.inputs), strict=True))
    own = {v: "x" if n == "self" else n for n, v in names.items()}
    read = [f"{own[str(v)]}[*B]" if v in own else repr(constants[str(v)]) for v in groups[0].inputs]
    body = re.sub(r"\bx(\d+)\[\*B\]", lambda m: read[int(m[1])], body)
    for n, mark in zip(schema.numbers, marks, strict=False):
        body = re.sub(rf"\b{re.escape(repr(mark))}\b", n, body)
        if not re.search(rf"\b{n}\b", body):
            raise _Hidden(f"`{overload}` uses `{n}` in a way that its graph does not show")
    body = re.sub(r"\bbf16\(", "T(", re.sub(r"\bf32\(", "A(", body))
    result = {"bf16": "T", "bool": "bool"}.get(program.values[outputs[0]].dtype.value)
    if result is None:
        raise DerivationError(f"`{overload}` gives {program.values[outputs[0]].dtype.value} of bf16")
    kernels = tuple(dict.fromkeys(c.op for c in program.calls if c.op not in ("cast", "full")))
    return kernels, tuple(line.strip() for line in body.strip().splitlines()), result


def _captured(bench: Workbench, overload: str, schema: _Schema, marks: Sequence[float]) -> Program:
    import torch

    from ..generator.program import torch_compat as compat

    target = compat.overload_of(overload)
    rows = aten_rows(s for s in bench.registry.all() if bench.is_proven(s))
    numbers = dict(zip(schema.numbers, marks, strict=False))

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return target(**dict(zip(schema.tensors, tensors, strict=True)), **numbers, **schema.fixed)

    given = tuple(torch.linspace(0.1, 0.9, 20).reshape(4, 5).bfloat16() for _ in schema.tensors)
    return capture(
        Module(), given, {}, rows.without(overload), name="call", source=overload, further=True
    ).program


def _main(name: str, overload: str) -> None:
    try:
        answer = {"text": derived_spec(Workbench.here(), name, overload)}
    except OpwrightError as e:
        answer = {"why": e.message}
    print(json.dumps(answer))


if __name__ == "__main__":
    _main(*sys.argv[1:])
