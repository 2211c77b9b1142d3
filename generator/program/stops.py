"""Where no gradient flows: what a module detaches, and what it computes under `torch.no_grad`.

    with marking():              while a module is exported: nodes made under its `torch.no_grad` are marked
    ends = stops(exported)       the nodes of a decomposed export through whose value no gradient may flow further

A graph has `detach` as a node, and no word for a region without gradients: the mark goes with the nodes' metadata,
which decompositions keep.  Only values that a parameter or a float input can reach are told: elsewhere there is no
gradient to stop.  `set_grad_enabled` and `inference_mode` are not seen.

May import: torch, inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["marking", "stops"]

_MARK = "opwright_no_grad"
_DETACH = "aten.detach.default"


@contextmanager
def marking() -> Iterator[None]:
    """Nothing of torch is changed afterwards."""
    import torch
    from torch.fx.traceback import annotate, preserve_node_meta

    enter, leave = torch.no_grad.__enter__, torch.no_grad.__exit__

    def entered(self: Any) -> None:
        stack = ExitStack()
        stack.enter_context(annotate({_MARK: True}))
        self.__dict__.setdefault("_opwright_marks", []).append(stack)
        enter(self)

    def left(self: Any, *why: Any) -> None:
        leave(self, *why)
        marks = self.__dict__.get("_opwright_marks")
        if marks:  # none: entered before the marking began
            marks.pop().close()

    torch.no_grad.__enter__, torch.no_grad.__exit__ = entered, left
    try:
        with preserve_node_meta():
            yield
    finally:
        torch.no_grad.__enter__, torch.no_grad.__exit__ = enter, leave


def stops(exported: Any) -> frozenset[str]:
    """Names of the nodes of a decomposed `ExportedProgram`."""
    inputs = {
        s.arg.name
        for s in exported.graph_signature.input_specs
        if s.kind.name in ("PARAMETER", "USER_INPUT") and hasattr(s.arg, "name")
    }
    reached: set[Any] = set()
    found = set()
    for node in exported.graph_module.graph.nodes:
        if not _differentiable(node.meta.get("val")):
            continue
        if node.op == "placeholder":
            if node.name in inputs:
                reached.add(node)
        elif reached.intersection(node.all_input_nodes):
            if str(node.target) == _DETACH or (_marked(node) and not all(map(_marked, node.users))):
                found.add(node.name)
            else:
                reached.add(node)
    return frozenset(found)


def _marked(node: Any) -> bool:
    return bool((node.meta.get("custom") or {}).get(_MARK))


def _differentiable(value: Any) -> bool:
    """Whether it holds floats: a tensor, or one among several."""
    if isinstance(value, list | tuple):
        return any(map(_differentiable, value))
    dtype = getattr(value, "dtype", None)
    return dtype is not None and hasattr(value, "shape") and (dtype.is_floating_point or dtype.is_complex)
