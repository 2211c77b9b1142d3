"""Masks of what is padding in an input: those that a `forward` takes beside an example, and heeds.

    more = heeded(module, inputs, said)    name → a mask of ones: with it the module gives what it gives without it,
                                           and with zeros at its end something else

A program takes what its example had; a model that is captured without such a mask could never be given a padded batch.

May import: described, torch_compat (torch inside functions).  To teach which input a mask is of: `_owners`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import torch_compat as compat
from .described import Said

__all__ = ["heeded", "is_mask", "padded"]

_MASK = re.compile(r"(^|_)mask$")
#: Masks of something else than padding: of heads, of what is to be guessed.
_OTHERS = re.compile(r"head_mask$|^(multi|perm_|labels?_|global_)")


def is_mask(name: str) -> bool:
    """Whether an input may say what is padding, by its name."""
    return bool(_MASK.search(name)) and not _OTHERS.search(name)


def heeded(module: Any, inputs: Mapping[str, Any], said: Mapping[str, Said]) -> dict[str, Any]:
    """The masks that `forward` takes and that `inputs` lack; of ones, by name.  `said`: shapes by its documentation."""
    names = [n for n in inspect.signature(module.forward).parameters if is_mask(n) and n not in inputs]
    plain = _given(module, inputs) if names else None
    found: dict[str, Any] = {}
    for name in names if plain is not None else ():
        for mask in _candidates(name, inputs, said.get(name)):
            whole = _given(module, {**inputs, **found, name: mask})
            if whole is None or not _same(whole, plain):
                continue
            less = _given(module, {**inputs, **found, name: padded(mask)})
            if less is not None and not _same(less, whole, 0.0) and _numbers(less):
                found[name] = mask
                break
    return found


def padded(mask: Any) -> Any:
    """The mask with zeros in the second half of each row but the first, along all axes of an image: of the few places
    that are left of a large one some are then padding."""
    out = mask.clone()
    rows = range(1, out.shape[0]) if out.shape[0] > 1 else range(1)
    for row in rows:
        for axis in range(1, out.dim()):
            n = out.shape[axis]
            out[row].narrow(axis - 1, n - n // 2, n // 2).zero_()
    return out


def _given(module: Any, inputs: Mapping[str, Any]) -> list[Any] | None:
    """The tensors that the module gives; None where it refuses."""
    own, _ = compat.copied((dict(inputs), None))
    try:
        with compat.require_torch().no_grad(), compat.quiet(), compat.restoring(module):
            return compat.tensors_of(module(**own))
    except Exception:
        return None


def _same(a: list[Any], b: list[Any] | None, tolerance: float = 1e-4) -> bool:
    """Weights as they are initialised move little: without a tolerance, every bit is one."""
    torch = compat.require_torch()
    return (
        b is not None
        and len(a) == len(b)
        and all(
            x.shape == y.shape and torch.allclose(x, y, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
            for x, y in zip(a, b, strict=True)
        )
    )


def _numbers(outputs: list[Any]) -> bool:
    torch = compat.require_torch()
    return not any(bool(torch.isnan(t).any()) for t in outputs if t.is_floating_point())


def _candidates(name: str, inputs: Mapping[str, Any], said: Said | None) -> Iterator[Any]:
    """Masks that may be meant, the likeliest first."""
    torch = compat.require_torch()
    shapes: list[tuple[int, ...]] = []
    for x in _owners(name, inputs):
        image = name.startswith("pixel") and x.dim() >= 4
        shapes += [(*x.shape[:-3], *x.shape[-2:])] if image else []
        shapes += [(x.shape[0], x.shape[1]), (x.shape[0], x.shape[-1])]
    shapes = list(dict.fromkeys(shapes))[:4]
    if said is not None and said.shape not in shapes:
        shapes.append(said.shape)
    for shape in shapes:
        yield torch.ones(shape, dtype=torch.int64)
        yield torch.ones(shape, dtype=torch.bool)


def _owners(name: str, inputs: Mapping[str, Any]) -> list[Any]:
    """The inputs that it may be of: whose name begins as its own, then the others in their order."""
    stem = re.sub(r"(_?attention|_?padding)?_?mask$", "", name)
    of = [n for n, x in inputs.items() if hasattr(x, "dim") and x.dim() >= 2]
    of = [n for n in of if not n.endswith("mask")]
    if not stem:  # of what the model is called with first
        return [inputs[n] for n in of if not n.startswith("decoder_")]
    begun = [n for n in of if n.startswith(stem) or n.rstrip("s").startswith(stem)]
    return [inputs[n] for n in (*begun, *(n for n in of if n not in begun))]
