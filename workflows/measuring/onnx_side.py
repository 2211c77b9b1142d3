"""ONNX Runtime's side: a graph of the one operator that the spec's `onnx:` map names, inputs and outputs bound.

`node_of` is the map read backwards: from the spec's inputs and attributes to the operator's.  What generator/program/
onnx_ops.py prepares on the way in is undone in `_PUT`.
May import: generator.program.onnx_model, onnx, onnxruntime.  To add what an operator needs: a row in `_PUT`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...generator.program.onnx_model import onnx_of
from ...generator.types import DType
from .child import Call, Loaded, Missing
from .ours import _sets

__all__ = ["Node", "OnnxRuntime", "model_of", "node_of"]

#: The newest opset whose operators the maps name and that runtimes of these years take.
OPSET = 23


@dataclass
class Node:
    """An operator's call: inputs in order (a name of `arrays`, or a constant array, or None), attributes, outputs."""

    op: str
    inputs: list[Any] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)


def node_of(entry: Mapping[str, Any], request: Mapping[str, Any], arrays: Mapping[str, Any]) -> Node:
    """The call of `entry`'s operator that means the request.  Raises Missing with the reason."""
    import onnx

    schema = onnx.defs.get_schema(entry["op"], OPSET, "")
    order = [p.name for p in schema.inputs] + list(schema.attributes)
    inputs, values = request["inputs"], request["values"]
    pairs = entry["map"]
    if pairs is None:
        pairs = [[f"#{k}", {"to": n}] for k, n in enumerate([*inputs, *values])]
    given: dict[str, Any] = {}
    named: set[str] = set()
    for name, target in pairs:
        name = order[int(name[1:])] if name.startswith("#") and int(name[1:]) < len(order) else name
        if "only" in target:
            if name in order:
                given[name] = target["only"]
            continue
        to = target["to"]
        if to is None:
            continue
        names = to if isinstance(to, list) else [to]
        named |= set(names)
        found = [inputs[n] if n in inputs else {"attr": _of(values.get(n))} for n in names]
        given[name] = found if isinstance(to, list) else found[0]
    for n, v in inputs.items():
        if n not in named and _present(v):
            raise Missing(f"onnx.{entry['op']} does not take `{n}`")
    for n, v in values.items():
        wanted = entry["set"].get(n, request["defaults"].get(n))
        if n not in named and _of(v) != wanted and _of(v) is not None:
            raise Missing(f"onnx.{entry['op']} does not take {n} = {_of(v)}")
    node = Node(entry["op"], outputs=[p.name for p in schema.outputs])
    attributes: dict[str, Any] = {}
    slots: dict[str, Any] = {}
    for name, value in given.items():
        put = _PUT.get(f"{entry['op']}.{name}") or _PUT.get(name)
        if put is not None and isinstance(value, dict) and "attr" in value:
            for where, what in put(value["attr"], request, arrays).items():
                (attributes if where in schema.attributes else slots)[where] = what
        elif name in schema.attributes:
            attributes[name] = value["attr"] if isinstance(value, dict) and "attr" in value else value
        elif any(p.name == name for p in schema.inputs):
            slots[name] = value
        elif isinstance(value, dict) and value.get("attr") not in (None, False, 0):
            raise Missing(f"onnx.{entry['op']} has no {name}")
    for p in schema.inputs:
        x = slots.get(p.name)
        if isinstance(x, dict) and "list" in x:
            node.inputs += [y["tensor"] for y in x["list"]]
        elif isinstance(x, list):
            node.inputs += [_slot(y) for y in x]
        else:
            node.inputs.append(_slot(x))
    while node.inputs and node.inputs[-1] is None:
        node.inputs.pop()
    node.attributes = {k: _plain(v) for k, v in attributes.items() if v is not None}
    node.outputs = node.outputs[: len(entry["returns"] or request["outputs"])]
    return node


def _of(x: Any) -> Any:
    """A value as the request writes it."""
    if not isinstance(x, dict):
        return x
    return [_of(y) for y in x["list"]] if "list" in x else x.get("value")


def _present(x: Any) -> bool:
    return bool(x.get("list")) or "tensor" in x


def _slot(x: Any) -> Any:
    if not isinstance(x, dict):
        return None if x is None else np.asarray(x)
    if "tensor" in x:
        return x["tensor"]
    value = x.get("attr", x.get("value"))
    return None if value is None else np.asarray(value, np.int64 if _whole(value) else None)


def _whole(x: Any) -> bool:
    return all(isinstance(y, int) for y in (x if isinstance(x, list) else [x]))


def _plain(x: Any) -> Any:
    return int(x) if isinstance(x, bool) else x


def _pads(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"pads": [*x, *x]} if isinstance(x, list) else {}


def _last_axes(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"axis": -len(x)}


def _axes(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {} if x in (None, []) else {"axes": {"attr": list(x)}}


def _no_dtype(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    if x is not None and x != request["dtype"]:
        raise Missing(f"the operator does not choose the dtype {x}")
    return {}


def _axis_or_all(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    if x is None:
        raise Missing("onnx has no position among all elements")
    return {"axis": x}


def _k(x: Any, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"K": {"attr": [x]}}


#: What the specs call otherwise than the operator: its attributes and inputs by name.
_PUT: Mapping[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    "pads": _pads,
    "LayerNormalization.axis": _last_axes,
    "RMSNormalization.axis": _last_axes,
    "axes": _axes,
    "dtype": _no_dtype,
    "ArgMax.axis": _axis_or_all,
    "ArgMin.axis": _axis_or_all,
    "K": _k,
}


def model_of(node: Node, arrays: Mapping[str, Any]) -> Any:
    """The graph of one node.  Inputs are those of `arrays` that it names, constants are initializers."""
    import onnx

    helper = onnx.helper
    names: list[str] = []
    constants: list[Any] = []
    inputs: list[Any] = []
    for k, x in enumerate(node.inputs):
        if x is None:
            names.append("")
        elif isinstance(x, str):
            names.append(x)
            if all(i.name != x for i in inputs):
                kind = onnx_of(dtype_of(arrays[x]))
                inputs.append(helper.make_tensor_value_info(x, kind, list(arrays[x].shape)))
        else:
            names.append(f"c{k}")
            constants.append(onnx.numpy_helper.from_array(np.asarray(x), f"c{k}"))
    made = helper.make_node(node.op, names, node.outputs, **node.attributes)
    model = helper.make_model(
        helper.make_graph(
            [made], node.op, inputs, [helper.make_empty_tensor_value_info(o) for o in node.outputs], constants
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def dtype_of(a: Any) -> DType:
    from ...generator.program.folder import numpy_dtype

    return next(d for d in DType if numpy_dtype(d) == a.dtype)


class OnnxRuntime:
    def __init__(self, given: Mapping[str, Any]) -> None:
        import onnxruntime

        self.ort = onnxruntime
        self.threads = given["threads"]

    def load(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        if "program" in request:
            return self.module(folder, request)
        if request["layouts"]:
            raise Missing("its tensors have no strides")
        if not request["onnx"]:
            raise Missing("the spec names no ONNX operator")
        sets = _sets(folder, request)
        why = []
        for entry in request["onnx"]:
            try:
                node = node_of(entry, request, sets[0])
                return self.session(
                    model_of(node, sets[0]).SerializeToString(), sets, entry["returns"] or request["outputs"]
                )
            except Missing as error:
                why.append(str(error))
            except Exception as error:
                why.append((str(error).strip().splitlines() or [type(error).__name__])[0][:200])
        raise Missing("; ".join(dict.fromkeys(why)))

    def session(self, model: Any, sets: list[dict[str, Any]], names: list[str]) -> Loaded:
        """A session, and for each set of inputs a binding whose outputs have their memory."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.execution_mode = self.ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 4
        begun = time.perf_counter()
        session = self.ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        took = time.perf_counter() - begun
        outputs = [o.name for o in session.get_outputs()]
        calls = []
        for arrays in sets:
            binding = session.io_binding()
            for i in session.get_inputs():
                binding.bind_ortvalue_input(i.name, self.value(arrays[i.name]))
            for o in outputs:
                binding.bind_output(o, "cpu")
            session.run_with_iobinding(binding)  # extents of outputs are known now: bind memory for them
            for o, v in zip(outputs, binding.get_outputs(), strict=True):
                binding.bind_ortvalue_output(o, v)
            calls.append(Call(_run, (session, binding)))

        def answers(binding: Any) -> dict[str, Any]:
            return {n: _array(v) for n, v in zip(names, binding.get_outputs(), strict=False)}

        return Loaded(calls, answers, self.ort.__version__, took)

    def value(self, a: Any) -> Any:
        a = np.ascontiguousarray(a).reshape(np.shape(a))
        if a.dtype.name == "bfloat16":
            return self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
                a.view(np.uint16), onnx_of(DType.BF16)
            )
        return self.ort.OrtValue.ortvalue_from_numpy(a)

    def module(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        import torch

        from .models import exported_onnx

        torch.set_num_threads(self.threads)
        file, given = exported_onnx(folder, request)
        try:
            names = [
                i.name
                for i in self.ort.InferenceSession(str(file), providers=["CPUExecutionProvider"]).get_inputs()
            ]
        except Exception as error:
            raise Missing((str(error).strip().splitlines() or [""])[0][:200]) from None
        if len(names) != len(given):
            raise Missing(f"the exported graph takes {len(names)} inputs, the module {len(given)}")
        return self.session(str(file), [dict(zip(names, given, strict=True))], request["outputs"])


def _run(session: Any, binding: Any) -> Any:
    session.run_with_iobinding(binding)
    return binding


def _array(v: Any) -> Any:
    if "bfloat16" not in v.data_type():
        return v.numpy()
    import ml_dtypes

    count = int(np.prod(v.shape()))  # NumPy has no such dtype, so `numpy()` refuses: the memory itself
    raw = (ctypes.c_uint16 * count).from_address(v.data_ptr())
    return np.array(raw, np.uint16).view(ml_dtypes.bfloat16).reshape(v.shape())
