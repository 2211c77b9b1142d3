"""Inputs that say how the others are laid out (how many patches an image has along each side, where sequences that
were packed into one end) → constants of the module.

    module, inputs, given = placed(module, inputs)

A model that counts in its masks how long sequences are is given those too, where it is not captured otherwise.

A model reads such numbers into Python and builds indices and segments from them, so they belong to what is captured as
a head count does; the tensors that they lay out are what remains to be given, at these extents.  What follows from them
alone is worked out before, by what transformers' own exporter prepares (`exporters.utils`).

May import: torch_compat, known (torch and transformers inside functions).  To name another kind: `_GEOMETRY`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

from . import torch_compat as compat
from .known import knowing

__all__ = ["is_geometry", "placed"]

_GEOMETRY = re.compile(r"grid_thw$|grids?$|(^|_)(target|image|merge)_sizes$|_(lens|lengths|structure)$")


def is_geometry(name: str) -> bool:
    return _GEOMETRY.search(name) is not None


def placed(
    module: Any, inputs: Mapping[str, Any], also: Collection[str] = ()
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The module that holds the geometry among its inputs (and `also` these), the inputs that remain, and what it was
    given, as JSON."""
    given = {n: x for n, x in inputs.items() if is_geometry(n) or n in also}
    free = {n: x for n, x in inputs.items() if n not in given}
    if not given or not free:
        return module, dict(inputs), {}
    known = _prepared(module, inputs, given)
    return (
        _holding(module, tuple(free), known),
        free,
        {n: x.tolist() if hasattr(x, "tolist") else x for n, x in given.items()},
    )


def _prepared(module: Any, inputs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The geometry with what transformers works out from it, where the model says the same of that."""
    torch = compat.require_torch()
    if "transformers.modeling_utils" not in sys.modules:
        return dict(given)
    own, _ = compat.copied((dict(inputs), None))
    try:
        from transformers.exporters.utils import precompute_export_inputs

        with torch.no_grad(), compat.quiet():
            precompute_export_inputs(module, own)
            known = {n: x for n, x in own.items() if n in given or n not in inputs}
            more = {n: x for n, x in inputs.items() if n not in given} | known
            if _same(module(**inputs), module(**more)):
                return known
    except Exception:  # an older transformers, or it cannot say: the model works it out itself
        pass
    return dict(given)


def _same(a: Any, b: Any) -> bool:
    torch = compat.require_torch()
    return all(
        torch.allclose(x, y, equal_nan=True) for x, y in zip(*map(compat.tensors_of, (a, b)), strict=True)
    )


def _holding(module: Any, names: tuple[str, ...], known: Mapping[str, Any]) -> Any:
    """A module that takes these inputs and holds the rest; its `forward` says them by name, as an exporter reads it."""
    torch = compat.require_torch()
    tensors = {n: x for n, x in known.items() if isinstance(x, torch.Tensor)}
    plain = {n: x for n, x in known.items() if n not in tensors}

    def forward(self: Any, **inputs: Any) -> Any:
        own = {n: getattr(self, f"given_{n}") for n in tensors}
        if all(type(x) is torch.Tensor for x in own.values()):
            return self.model(**inputs, **own, **plain)
        with knowing({x: self.values[n] for n, x in own.items()}):  # an exporter's, which hold no values
            return self.model(**inputs, **own, **plain)

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made = type("Placed", (torch.nn.Module,), {"forward": forward})()
    made.model, made.config, made.values = module, module.config, tensors
    for n, x in tensors.items():
        made.register_buffer(f"given_{n}", x)
    return made.eval()
