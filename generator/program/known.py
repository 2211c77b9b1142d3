"""What an exporter could know: values that follow from constants alone, while it traces with tensors that hold none.

    with knowing({traced: real, …}):      `.item()`, `.tolist()`, `int(x)`, `bool(x)` of what follows from these (and
        model(…)                          from tensors that are made of numbers) are Python's, not the data's

Beside every call whose arguments are all known, the same call runs on the values.  A write of something unknown makes
what shares its memory unknown again.  May import: torch_compat (torch inside functions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import torch_compat as compat

__all__ = ["knowing"]

#: What gives other values each time, or none.
_UNKNOWN = (
    "rand",
    "empty",
    "bernoulli",
    "multinomial",
    "normal",
    "dropout",
    "poisson",
    "exponential",
    "uniform",
)
#: What takes extents and places as numbers, which a tensor of one stands for.
_TAKES = frozenset(
    (
        *(
            "repeat",
            "tile",
            "view",
            "reshape",
            "expand",
            "unflatten",
            "narrow",
            "split",
            "chunk",
            "roll",
            "pad",
        ),
        *("interpolate", "arange", "linspace", "zeros", "ones", "full", "new_zeros", "new_ones", "new_full"),
        *("__getitem__", "__setitem__"),
    )
)
#: A larger tensor is no geometry.
_MOST = 1 << 20


@contextmanager
def knowing(values: Mapping[Any, Any]) -> Iterator[None]:
    torch = compat.require_torch()
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import _disable_current_modes

    pytree = torch.utils._pytree
    # with the traced one: it stays alive
    real: dict[int, tuple[Any, Any]] = {id(x): (x, v) for x, v in values.items()}
    unknown: set[int] = set()  # memory that something unknown was written to

    def of(x: Any) -> Any:
        found = real.get(id(x))
        return found[1] if found is not None and _memory(found[1]) not in unknown else None

    def _memory(x: Any) -> int:
        return int(x.untyped_storage()._cdata)

    def number(x: Any) -> Any:
        """An extent that is a known tensor of one integer, as that; within lists and slices too."""
        if isinstance(x, list | tuple):
            return type(x)(number(y) for y in x)
        if isinstance(x, slice):
            return slice(number(x.start), number(x.stop), number(x.step))
        v = of(x) if isinstance(x, torch.Tensor) and x.dim() == 0 else None
        return x if v is None or v.is_floating_point() or v.dtype is torch.bool else int(v)

    class Known(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            if name == "__get__":
                return func(*args, **kwargs)
            if name in _TAKES and args:
                whole = name == "arange"  # of the others the first is the tensor
                args = tuple(number(x) if k or whole else x for k, x in enumerate(args))
                kwargs = {k: number(x) for k, x in kwargs.items()}
            leaves, spec = pytree.tree_flatten((args, kwargs))
            tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
            have = {id(x): of(x) for x in tensors}
            known = (
                all(v is not None for v in have.values())
                and not any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in leaves)
                and not any(word in name for word in _UNKNOWN)
            )
            writes = (
                (name.endswith("_") and not name.endswith("__"))
                or name == "__setitem__"
                or (name.startswith("__i") and name not in ("__index__", "__invert__"))
                or kwargs.get("out") is not None
            )
            if known:
                with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
                    values = pytree.tree_unflatten(
                        [have[id(x)] if isinstance(x, torch.Tensor) else x for x in leaves], spec
                    )
                    try:
                        told = func(*values[0], **values[1])
                    except Exception:
                        known = False
                if known and tensors and _is_number(told):
                    return told
            elif writes and tensors:
                target = of(tensors[0])
                if target is not None:
                    unknown.add(_memory(target))
            out = func(*args, **kwargs)
            if known:
                traced, values = pytree.tree_leaves(out), pytree.tree_leaves(told)
                if len(traced) == len(values):
                    for x, v in zip(traced, values, strict=True):
                        if isinstance(x, torch.Tensor) and isinstance(v, torch.Tensor) and v.numel() <= _MOST:
                            real[id(x)] = (x, v)
            return out

    with Known():
        yield


def _is_number(x: Any) -> bool:
    """What a tensor was asked for: one of Python's, or a list of them (`.tolist()`)."""
    return all(map(_is_number, x)) if type(x) is list else isinstance(x, bool | int | float | complex)
