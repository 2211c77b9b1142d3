"""An `.onnx` file → a checked model, and numbers by onnx's own reference evaluator.

    model = read_model(path)                 functions of the file inlined; raises `TargetError`
    flat = Reference(model)                  run(feeds) → every tensor by name; rerun(env, changed) → the outputs
    widened(model)                           the same graph in f64: weights, constants, casts

No code comes with an ONNX file, but it may be large, cut off, or of an opset that nobody here knows.
May import: models (TargetError), generator.{errors, types}, numpy (onnx inside functions).  To support another opset:
install an onnx that knows it; `OLDEST` is the oldest whose operators mean what the maps of the specs say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MachineError
from ..types import DType
from .models import TargetError

__all__ = ["OLDEST", "Reference", "dtype_of", "numpy_of", "onnx_of", "read_model", "require_onnx", "widened"]

#: Before it, operators broadcast by an attribute.
OLDEST = 7

#: TensorProto's numbers, which never change.
_DTYPES = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    5: DType.I16,
    6: DType.I32,
    7: DType.I64,
    9: DType.BOOL,
    10: DType.F16,
    11: DType.F64,
    14: DType.C64,
    15: DType.C128,
    16: DType.BF16,
}


def require_onnx() -> Any:
    """The module onnx.  Raises `MachineError`."""
    try:
        import onnx
    except ImportError:
        raise MachineError("reading .onnx needs onnx", hint="pip install 'opwright[models]'") from None
    return onnx


def dtype_of(number: int, what: str = "a tensor") -> DType:
    """A TensorProto's element type.  Raises `TargetError` for one that no program has."""
    try:
        return _DTYPES[number]
    except KeyError:
        name = require_onnx().TensorProto.DataType.Name(number).lower()
        raise TargetError(f"{what} is of {name}, which a program cannot say") from None


def onnx_of(dtype: DType) -> int:
    """The number of a dtype in TensorProto."""
    return next(n for n, d in _DTYPES.items() if d is dtype)


def numpy_of(tensor: Any) -> Any:
    """A TensorProto as an array."""
    return np.asarray(require_onnx().numpy_helper.to_array(tensor))


def read_model(path: Path) -> Any:
    """The model in a file.  Raises `TargetError` where it is none, of an unknown opset or domain, or has no shapes."""
    onnx = require_onnx()
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(str(path))
    except Exception as e:  # protobuf, checker and file errors have no common class
        first = (str(e).strip().splitlines() or [type(e).__name__])[0][:300]
        raise TargetError(
            f"{path} cannot be read: {first}", hint="a file that onnx.checker.check_model accepts"
        ) from e
    newest = onnx.defs.onnx_opset_version()
    local = {f.domain for f in model.functions}
    for o in model.opset_import:
        if o.domain in ("", "ai.onnx") and not OLDEST <= o.version <= newest:
            raise TargetError(
                f"{path} is of opset {o.version}; known are {OLDEST} to {newest}",
                hint="onnx.version_converter.convert_version(model, 18)"
                if o.version < OLDEST
                else "a newer onnx knows newer opsets",
            )
        unknown = [
            n.op_type for n in model.graph.node if n.domain == o.domain and not _defined(onnx, n, o.version)
        ]
        if o.domain not in ("", "ai.onnx", *local) and unknown:
            raise TargetError(
                f"{path} has operators of {o.domain}, which nothing here defines: {unknown[0]}",
                hint="export it with the standard operators only",
            )
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    return model


def _defined(onnx: Any, node: Any, version: int) -> bool:
    """Whether onnx itself has the operator."""
    try:
        onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return True


def opset_of(model: Any) -> int:
    """The version of the standard operators."""
    own = (int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx"))
    return next(own, int(require_onnx().defs.onnx_opset_version()))  # without any, functions may take any


# ---- numbers


def widened(model: Any) -> Any:
    """A copy that computes in f64 wherever the model computes in f32: also where it casts."""
    onnx = require_onnx()
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    return wide


def _widen_graph(graph: Any) -> None:
    onnx = require_onnx()
    f32, f64 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    for t in graph.initializer:
        _widen_tensor(t)
    for v in (*graph.input, *graph.output, *graph.value_info):
        if v.type.tensor_type.elem_type == f32:
            v.type.tensor_type.elem_type = f64
    made = _makes_f32()
    for n in graph.node:
        names = {a.name for a in n.attribute}
        for a in n.attribute:
            if a.name in ("to", "dtype", "stash_type") and a.type == onnx.AttributeProto.INT and a.i == f32:
                a.i = f64
            elif a.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(a.t)
            elif a.type == onnx.AttributeProto.GRAPH:
                _widen_graph(a.g)
        if n.op_type == "ConstantOfShape" and "value" not in names:
            n.attribute.append(
                onnx.helper.make_attribute("value", onnx.helper.make_tensor("value", f64, [1], [0.0]))
            )
        elif n.op_type == "Constant":
            _widen_constant(n)
        elif n.op_type in made and "dtype" not in names:
            n.attribute.append(onnx.helper.make_attribute("dtype", f64))


def _makes_f32() -> frozenset[str]:
    """Operators that make f32 where nothing says another dtype."""
    return frozenset({"EyeLike", "HannWindow", "HammingWindow", "BlackmanWindow"})


def _widen_constant(n: Any) -> None:
    onnx = require_onnx()
    for a in list(n.attribute):
        if a.name in ("value_float", "value_floats"):
            numbers = np.asarray(a.f if a.name == "value_float" else list(a.floats), np.float64)
            n.attribute.remove(a)
            n.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(numbers)))


def _widen_tensor(t: Any) -> None:
    onnx = require_onnx()
    if t.data_type == onnx.TensorProto.FLOAT:
        t.CopyFrom(onnx.numpy_helper.from_array(numpy_of(t).astype(np.float64), t.name))


@cache
def _amended() -> list[Any]:
    """Operators that onnx's evaluator computes otherwise than their documentation says.

    Loop   what each round gives is put under one new axis; the evaluator lets rounds of several axes follow each other
    """
    from onnx.reference.ops.op_loop import Loop as Known

    class Loop(Known):
        op_domain = ""

        def _run(
            self, M: Any, cond: Any, *args: Any, context: Any = None, attributes: Any = None, **_: Any
        ) -> Any:
            body = self.body
            states = list(args)
            scanned: list[list[Any]] = [[] for _ in body.output_names[1 + len(states) :]]
            k = 0
            while (cond is None or np.asarray(cond).all()) and (
                M is None or k < int(np.asarray(M).reshape(()))
            ):
                given = dict(context or {})
                given |= dict(
                    zip(body.input_names, [np.array(k, np.int64), np.array(True), *states], strict=True)
                )
                cond, *found = self._run_body(given, attributes=attributes)
                states = found[: len(states)]
                for rows, x in zip(scanned, found[len(states) :], strict=True):
                    rows.append(x)
                k += 1
            return (*states, *(np.stack(rows) if rows else np.zeros(0) for rows in scanned))

    return [Loop]


class Reference:
    """A model under onnx's reference evaluator, node by node."""

    def __init__(self, model: Any) -> None:
        from onnx.reference import ReferenceEvaluator

        require_onnx()
        self.model = model
        self.evaluator = ReferenceEvaluator(model, new_ops=_amended())
        self.nodes = list(self.evaluator.rt_nodes_)
        self.names = [o.name for o in model.graph.output]
        self.readers: dict[str, set[int]] = {}
        for k, n in enumerate(self.nodes):
            for i in n.input:
                self.readers.setdefault(i, set()).add(k)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every tensor by name."""
        env: dict[str, Any] = {"": None, **self.evaluator.rt_inits_, **feeds}
        self._steps(env, range(len(self.nodes)))
        return env

    def _steps(self, env: dict[str, Any], which: Iterable[int]) -> None:
        with np.errstate(all="ignore"):
            for k in which:
                node = self.nodes[k]
                given = [env[i] for i in node.input]
                made = node.run(*given, context=env) if node.need_context() else node.run(*given)
                env.update(zip(node.output, made, strict=False))

    def rerun(self, base: Mapping[str, Any], name: str, changed: Any) -> dict[str, Any]:
        """Every tensor once more where `name` has another value: only what depends on it is computed again."""
        env = dict(base)
        env[name] = changed
        dirty = set(self.readers.get(name, ()))
        while dirty:
            k = min(dirty)
            dirty.remove(k)
            self._steps(env, [k])
            for o in self.nodes[k].output:
                dirty |= {r for r in self.readers.get(o, ()) if r > k}
        return env
