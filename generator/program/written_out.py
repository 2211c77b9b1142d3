"""A module that differentiates while it runs, as a graph of what its derivatives compute.

`torch.func` (grad, jacrev, hessian, jvp under vmap) and `torch.autograd.grad` work below the level at which
torch.export writes a module down.  Here the module's forward is traced once at the level of plain operators, where
derivatives are operators like any other, and the export writes down that graph, node by node, in the forward's
place.

    differentiates(error)      whether an export failed because of it
    with written_out(torch, module):
        torch.export.export(module, …)

May import: torch's own modules, inside functions.  To add another sign of such a module: `_SIGNS` or `_PLACES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

__all__ = ["differentiates", "needs_gradients", "written_out"]

#: Where an error of such a module passes, in torch's own folders; what it says.
_PLACES = ("/torch/_functorch/", "/torch/autograd/__init__.py")
_SIGNS = re.compile(r"functorch|fake tensor in the exported program constant's list|autograd\.grad")
_NO_GRADIENT = re.compile(
    r"does not require grad and does not have a grad_fn|appears to not have been used in the graph"
)


def needs_gradients(error: BaseException) -> bool:
    """Whether a module could not differentiate because nothing that it computes was being recorded."""
    return isinstance(error, RuntimeError) and _NO_GRADIENT.search(str(error)) is not None


def differentiates(error: BaseException) -> bool:
    """Whether the error says so, or came through torch's transforms of functions."""
    if _SIGNS.search(str(error)) or needs_gradients(error):
        return True
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if any(place in file for place in _PLACES):
            return True
        trace = trace.tb_next
    return False


@contextmanager
def written_out(torch: Any, module: Any) -> Iterator[None]:
    """The module's forward is its graph, traced for what it is given; it is its own again afterwards."""
    before = vars(module).get("forward")
    module.forward = _graph_of(torch, module, module.forward)
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _graph_of(torch: Any, module: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta
    from torch.nn.utils.stateless import _reparametrize_module
    from torch.utils._python_dispatch import _disable_current_modes

    tree = torch.utils._pytree

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        leaves, spec = tree.tree_flatten((args, kwargs))
        tensors = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        structure: list[Any] = []

        def plain(state: list[Any], given: list[Any]) -> list[Any]:
            whole = list(leaves)
            for k, x in zip(tensors, given, strict=True):
                whole[k] = x
            inner_args, inner_kwargs = tree.tree_unflatten(whole, spec)
            with _reparametrize_module(module, dict(zip(held, state, strict=True))), torch.enable_grad():
                out = own(*inner_args, **inner_kwargs)
            flat, form = tree.tree_flatten(out)
            structure.append(form)
            return [x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x for x in flat]

        state, given = list(held.values()), [leaves[k] for k in tensors]
        fake = detect_fake_mode([*given, *state])
        # What the export has in force would see tensors that only a transform knows.
        with _disable_current_modes(), torch._C.DisableTorchFunction(), fake:
            graph = make_fx(plain, _allow_non_fake_inputs=True, record_stack_traces=True)(state, given)
        # What autograd saves for itself is detached as well as what the module detaches: none of it is a stop.
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
            node.replace_all_uses_with(node.args[0])
        graph.recompile()
        with preserve_node_meta(), torch.set_grad_enabled(False):  # `no_grad` would be a mark (stops.py)
            flat = torch.fx.Interpreter(graph).run(state, given)
        return tree.tree_unflatten(flat, structure[-1])

    return forward
