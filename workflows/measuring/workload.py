"""A row to measure, as data: an operator, its extents and attributes, one dtype; and the calls that it stands for.

    workloads(spec, spec.bench, dtypes)     what a spec says that it is measured at
    case_of(spec, workload, seed)           the judge's own case of it: arrays, attributes, key
    request_of(spec, workload, case)        what a measuring process is told, as JSON, and the arrays that it names

May import: validators.{cases, case_model, meaning, trial}, generator.{spec, types}, numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import OpwrightError
from ...generator.spec import Only, OpSpec
from ...generator.types import DType
from ...validators.trial import Trial

__all__ = ["SETS", "Workload", "WorkloadError", "case_of", "request_of", "sets_of", "workloads"]

#: A workload's inputs are cut (its first extents halved) until they fit in this much, unless `--full` is given.
CUT_BYTES = 64 << 20
#: Input sets that the rounds go through, so that no call sees the last one's; fewer where they are large.
SETS = 4
_ROOM = 256 << 20
_MANY = 1 << 20
#: What only numbers above zero are given to: elsewhere a vector library takes another, slower way.
POSITIVE = frozenset(
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "reciprocal", "lgamma", "digamma"}
)


class WorkloadError(OpwrightError):
    """What cannot be measured as it is asked for: a workload that the op does not take, no such rival, row or model."""


@dataclass(frozen=True)
class Workload:
    """A case to measure: extents and attributes, one dtype, whether it was cut, how inputs lie, and which optional
    ones are absent."""

    given: Mapping[str, Any]
    dtype: str
    cut: bool = False
    layout: str = "contiguous"
    absent: tuple[str, ...] = ()

    def show(self) -> str:
        parts = [f"{k}={v}" for k, v in self.given.items() if k not in ("from", "types")]
        laid = "" if self.layout == "contiguous" else f" ({self.layout})"
        return f"{self.dtype} {', '.join(parts)}{laid}" + (" (cut)" if self.cut else "")


def workloads(spec: OpSpec, listed: Sequence[Mapping[str, Any]], dtypes: Sequence[str]) -> list[Workload]:
    """The spec's workloads, one dtype each; the plainest where it has none."""
    rows = list(listed) or [dict(c) for c in spec.test.cases[:1]]
    out = []
    for row in rows:
        named = [str(t) for t in row.get("types", ["f32"])]
        for dtype in [d for d in named if not dtypes or d in dtypes] or (list(dtypes) if dtypes else []):
            out.append(Workload({k: v for k, v in row.items() if k not in ("types", "from")}, dtype))
    return out


def case_of(spec: OpSpec, w: Workload, seed: int, *, full: bool = True) -> tuple[Workload, Any]:
    """The workload as a case of the judge's (arrays and attributes), cut to fit unless `full`.

    Raises WorkloadError where the op refuses it.
    """
    from ...validators.case_model import CaseRefused
    from ...validators.cases import build_case

    while True:
        as_case = replace(
            spec, test=replace(spec.test, cases=({k: v for k, v in w.given.items() if k != "types"},))
        )
        if full or _bytes(w) <= CUT_BYTES or not (smaller := _halved(w)):
            given = f"no:{'+'.join(w.absent)}" if w.absent else "all"
            name = f"case0/{_types(spec, w.dtype)}/normal/{w.layout}/-/{given}"
            try:
                return w, build_case(as_case, name, seed)
            except CaseRefused as error:
                raise WorkloadError(
                    f"{spec.op}: the workload {w.show()} is refused: {error.message}", place=spec.place
                ) from error
        w = smaller


def _types(spec: OpSpec, dtype: str) -> str:
    """A dtype for each type that the op chooses: this one where it may be."""
    from ...validators.case_calls import type_choices

    chosen = []
    for _, allowed in type_choices(spec):
        wanted = DType(dtype)
        chosen.append(wanted if wanted in allowed else DType.I64 if DType.I64 in allowed else allowed[-1])
    return "+".join(d.value for d in chosen) or "-"


def _bytes(w: Workload) -> int:
    """About the bytes of the largest tensor: all extents together, `a.B` and `b.B` being those of two."""
    shared = 1
    apart: dict[str, int] = {}
    for name, value in w.given.items():
        count = 1
        for n in value if isinstance(value, list | tuple) else [value]:
            if isinstance(n, int) and not isinstance(n, bool) and n > 1:
                count *= n
        if "." in name:
            tensor = name.partition(".")[0]
            apart[tensor] = apart.get(tensor, 1) * count
        else:
            shared *= count
    return shared * max(apart.values(), default=1) * DType(w.dtype).bytes


def _halved(w: Workload) -> Workload | None:
    """The largest extent of a batch (a list) halved; None where there is nothing to halve."""
    lists = [
        (k, v)
        for k, v in w.given.items()
        if isinstance(v, list | tuple) and any(isinstance(x, int) and x > 1 for x in v)
    ]
    if not lists:
        return None
    name, value = max(lists, key=lambda kv: max(x for x in kv[1] if isinstance(x, int)))
    top = max(x for x in value if isinstance(x, int))
    cut = list(value)
    cut[cut.index(top)] = max(top // 2, 1)
    given = {k: (cut if k == name or v == value else v) for k, v in w.given.items()}
    return replace(w, given=given, cut=True)


# ---- what a process is told ----------------------------------------------------------------------------------------


def request_of(spec: OpSpec, w: Workload, case: Any) -> tuple[dict[str, Any], dict[str, Any], Trial]:
    """Our call of a case, PyTorch's and ONNX's, as a measuring process reads them; the arrays; the trial.

    Raises WorkloadError where nobody else is named who could do the same.
    """
    from ...validators.meaning import aten_arguments, attribute_value

    trial = Trial.of_case(case)
    if spec.op in POSITIVE:
        trial = trial.with_arrays({n: _positive(a) for n, a in trial.arrays.items()})
    laid = {id(trial.arrays[n]): n for n in trial.laid}
    names: dict[str, Any] = {}
    layouts: dict[str, list[int]] = {}

    def stored(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            for key, have in names.items():
                if have is x:
                    return {"tensor": key}
            key = f"a{len(names)}"
            names[key] = x
            if id(x) in laid and (order := _order(trial.laid[laid[id(x)]])):
                layouts[key] = order
            return {"tensor": key}
        if isinstance(x, DType):
            return {"value": x.value}
        return {"list": [stored(y) for y in x]} if isinstance(x, list | tuple) else {"value": x}

    request: dict[str, Any] = {
        "op": spec.op,
        "dtype": w.dtype,
        "outputs": [n for n, t in spec.outputs.items() if not t.aux],
    }
    asked = next(((e, a) for e in spec.aten if (a := aten_arguments(spec, e, trial)) is not None), None)
    values = {n: attribute_value(spec, trial, n) for n in spec.attrs}
    if asked is not None:
        entry, (arguments, dtypes) = asked
        request |= {
            "overload": entry.overload,
            "torch": {k: stored(v) for k, v in arguments.items()},
            "dtypes": dtypes,
            "returns": list(entry.returns or request["outputs"]),
        }
    elif spec.reference and spec.reference.startswith("compositions."):
        request |= {"reference": spec.reference.removeprefix("compositions."), "returns": list(spec.outputs)}
        request["overload"] = spec.reference
    elif spec.aten:
        raise WorkloadError(f"no overload of `{spec.op}` can be called as {w.show()}", place=spec.place)
    else:
        raise WorkloadError(
            f"`{spec.op}` names no PyTorch overload to be measured against",
            place=spec.place,
            hint="its `aten:` says which it is",
        )
    request |= {
        "inputs": {
            n: stored(_list(trial.arrays, n) if t.is_list else trial.arrays.get(n))
            for n, t in spec.inputs.items()
        },
        "attrs": {k: stored(v) for k, v in case.attrs.items()},
        "values": {k: stored(v) for k, v in values.items()},
        "kinds": {k: a.kind for k, a in spec.attrs.items()},
        "defaults": {
            k: _plain(a.default) for k, a in spec.attrs.items() if a.has_default and a.default_expr is None
        },
        "onnx": [_onnx_entry(e) for e in spec.onnx],
        "layouts": layouts,
    }
    return request, names, trial


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, DType) else list(x) if isinstance(x, tuple) else x


def _onnx_entry(e: Any) -> dict[str, Any]:
    def target(to: Any) -> Any:
        if isinstance(to, Only):
            return {"only": _plain(to.value)}
        return {"to": list(to) if isinstance(to, tuple) else to}

    return {
        "op": e.op,
        "since": e.since,
        "map": None if e.map is None else [[n, target(to)] for n, to in e.map],
        "set": {k: _plain(v) for k, v in e.set.items()},
        "returns": list(e.returns) if e.returns else None,
    }


def _positive(a: Any) -> Any:
    if a.dtype.kind in "f" or a.dtype.name == "bfloat16":
        return (np.abs(a) + a.dtype.type(0.01)).astype(a.dtype)
    return a


def _order(a: Any) -> list[int]:
    """The axes in the order in which memory has them; empty where that is their own order."""
    order = sorted(range(a.ndim), key=lambda k: (-abs(a.strides[k]), k))
    return [] if order == list(range(a.ndim)) else order


def _list(arrays: Mapping[str, Any], name: str) -> list[Any]:
    out: list[Any] = []
    while f"{name}.{len(out)}" in arrays:
        out.append(arrays[f"{name}.{len(out)}"])
    return out


def sets_of(arrays: Mapping[str, Any], seed: int) -> Iterator[dict[str, Any]]:
    """The arrays, then others of the same kind: the numbers of each array in another order, positions as they are."""
    yield dict(arrays)
    rng = np.random.default_rng(seed)
    size = sum(a.nbytes for a in arrays.values())
    for _ in range(max(1, min(SETS, _ROOM // max(size, 1))) - 1):
        yield {k: _moved(v, rng) if _is_number(v) else v for k, v in arrays.items()}


def _moved(a: Any, rng: np.random.Generator) -> Any:
    """The elements in another order; many of them only turned round, which is quick."""
    flat = a.reshape(-1)
    if flat.size > _MANY:
        return np.roll(flat, int(rng.integers(1, flat.size))).reshape(a.shape)
    return rng.permutation(flat).reshape(a.shape)


def _is_number(a: Any) -> bool:
    return a.dtype.kind in "fc" or a.dtype.name == "bfloat16"
