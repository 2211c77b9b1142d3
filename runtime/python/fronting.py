"""What fronts are written with: `Call`, `Refused`, the call of a table's function, and small helpers over tensors.

A front says what is to be done; a `Door` does it.  The runtime's door runs operators on arrays; a program's door
(generator/program/expand.py) writes them down as nodes, so that a captured program can use what `call_aten` answers.
A front therefore makes tensors by `tensor`, `full`, `empty` and `run` alone, and takes extents as numbers that may be
symbolic: a decision on one that is not known refuses the call.

May import: `.arguments`; `.registry` and `.load` where the runtime's door is first used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

from .arguments import Refused, ints

__all__ = [
    "PLACEMENT",
    "Call",
    "Door",
    "Front",
    "Ints",
    "Refused",
    "Tensor",
    "at",
    "axis_of",
    "broadcast",
    "dtype_name",
    "empty",
    "front",
    "full",
    "ints",
    "inverse",
    "joined",
    "moved",
    "run",
    "somewhere",
    "stated",
    "tensor",
    "through",
    "without_axes",
]

#: Where a tensor lies is not an op's business.
PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})

Tensor: TypeAlias = Any
Ints: TypeAlias = Sequence[int]


@dataclass(frozen=True)
class Call:
    """One call that answers the overload.

    to         an operator, or an overload whose rows take the arguments
    arguments  by the operator's (or the overload's) own names
    finish     what makes the overload's results of the call's; `None`: they are the same
    """

    to: str
    arguments: Mapping[str, Any]
    finish: Callable[[Any], Any] | None = None


Front: TypeAlias = Callable[..., Any]


class Door(Protocol):
    """Who does what fronts say."""

    blind: bool
    """Whether there are no numbers yet to decide by: a program is being written."""

    def tensor(self, x: Any) -> Tensor:
        """What was given as a tensor of this door; a tensor stays itself."""

    def run(self, op: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """An operator's results."""

    def full(self, size: Ints, value: Any, dtype: str) -> Tensor: ...

    def empty(self, size: Ints, dtype: str) -> Tensor: ...

    def stated(self, values: Sequence[Any], dtype: str) -> Tensor: ...

    def dtype_name(self, dtype: Any) -> str:
        """Our name of a dtype, whoever's object it is."""


class _Runtime:
    """Runs operators on arrays."""

    blind = False

    def __init__(self) -> None:
        from . import registry
        from .load import core

        self.registry, self.core = registry, core

    def tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, self.core.Tensor) else self.core.from_dlpack(x)

    def run(self, op: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        return self.registry.get(op)(*args, **attrs)

    def full(self, size: Ints, value: Any, dtype: str) -> Tensor:
        return self.core.full(size, value, dtype)

    def empty(self, size: Ints, dtype: str) -> Tensor:
        return self.core.empty(size, dtype)

    def stated(self, values: Sequence[Any], dtype: str) -> Tensor:
        return self.core.tensor(values, dtype)

    def dtype_name(self, dtype: Any) -> str:
        return str(self.core.empty((0,), dtype).dtype)


_door: ContextVar[Door | None] = ContextVar("door", default=None)


@cache
def _runtime() -> Door:
    return _Runtime()


def door() -> Door:
    """The door that is open: the runtime's, where nobody opened another."""
    return _door.get() or _runtime()


@contextmanager
def through(other: Door) -> Iterator[None]:
    """Fronts use another door."""
    before = _door.set(other)
    try:
        yield
    finally:
        _door.reset(before)


def front(table: Mapping[str, Front], overload: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the table's function for `overload` says; `Refused` where the arguments do not fit its parameters."""
    function = table[overload]
    given = {k: v for k, v in kwargs.items() if k not in PLACEMENT}
    try:
        bound = _signature(function).bind(*args, **given)
    except TypeError as why:
        raise Refused(str(why)) from None
    return function(*bound.args, **bound.kwargs)


@cache
def _signature(function: Front) -> inspect.Signature:
    return inspect.signature(function)


# ---- what fronts are written with --------------------------------------------------------------------------------


def tensor(x: Any) -> Tensor:
    """An array as a Tensor that shares its memory."""
    return door().tensor(x)


def full(size: Ints, value: Any, dtype: str) -> Tensor:
    """A tensor of one value."""
    return door().full(size, value, dtype)


def empty(size: Ints, dtype: str) -> Tensor:
    """A tensor of nothing, or one that is written next."""
    return door().empty(size, dtype)


def stated(values: Sequence[Any], dtype: str) -> Tensor:
    """A tensor of these numbers."""
    return door().stated(values, dtype)


def axis_of(dim: int, rank: int) -> int:
    """A dim from 0; of a tensor of rank 0, dims 0 and -1 are allowed."""
    span = max(rank, 1)
    if not -span <= dim < span:
        raise Refused(f"dim {dim} is out of range for rank {rank}")
    return dim % span


def somewhere(flags: Tensor) -> bool:
    """Whether it holds anywhere, as far as that is known: a program is written before there are numbers."""
    return not door().blind and bool(run("any", flags).item())


def dtype_name(dtype: Any) -> str:
    """Our name of a dtype, whoever's object it is."""
    return door().dtype_name(dtype)


def at(rank: int, axis: int, item: Any) -> tuple[Any, ...]:
    """A subscript of one axis."""
    return tuple(item if k == axis else slice(None) for k in range(rank))


def moved(x: Tensor, axis: int) -> Tensor:
    """A view with this axis first."""
    return x.permute([axis, *(k for k in range(x.ndim) if k != axis)])


def inverse(order: Ints) -> list[int]:
    out = [0] * len(order)
    for k, d in enumerate(order):
        out[d] = k
    return out


def without_axes(
    signature: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], Callable[[Any], Any]] | None:
    """PyTorch lets a tensor of rank 0 be reduced, sorted … along "dim 0": as a tensor of one element, with the axis
    taken away again.  None for every other call."""
    axes = [a for a in signature["attrs"] if a["kind"] in ("axis", "axes")]
    over = [arguments.get(a["name"], a.get("default")) for a in axes]
    if not any(isinstance(d, int) or d for d in over):
        return None
    given = {i["name"]: arguments[i["name"]] for i in signature["inputs"] if i["name"] in arguments}
    arrays = {name: x for name, x in given.items() if hasattr(x, "shape")}
    if not arrays or any(len(x.shape) for x in arrays.values()):
        return None
    lifted = dict(arguments) | {name: tensor(x).reshape([1]) for name, x in arrays.items()}

    def lower(out: Any) -> Any:
        return tuple(y.reshape([]) for y in out) if isinstance(out, tuple) else out.reshape([])

    return lifted, lower


def broadcast(shapes: Sequence[Ints]) -> tuple[int, ...]:
    """The shape that these have together."""
    rank = max(len(s) for s in shapes)
    out = []
    for k in range(-rank, 0):
        extents = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(extents) > 1:
            raise Refused(f"shapes {[list(s) for s in shapes]} do not broadcast")
        out.append(extents.pop() if extents else 1)
    return tuple(out)


def joined(*xs: Any) -> list[Any]:
    """Tensors as views of the shape that they have together; None stays."""
    found = [None if x is None else tensor(x) for x in xs]
    shape = list(broadcast([x.shape for x in found if x is not None]))
    return [None if x is None else x.expand(shape) for x in found]


def converted(x: Tensor, dtype: str) -> Tensor:
    """The tensor in a dtype: itself, where that is its own."""
    return x if x.dtype == dtype else run("cast", x, dtype=dtype)


def conjugate(x: Tensor) -> Tensor:
    """In memory of its own where the tensor is complex; of a real one the tensor."""
    return run("conj_physical", x) if x.dtype in ("c64", "c128") else x


def run(op: str, *args: Any, **attrs: Any) -> Any:
    """An operator's results, for a front that takes several steps."""
    return door().run(op, args, attrs)
