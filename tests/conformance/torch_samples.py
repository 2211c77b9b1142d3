"""PyTorch's own cases: the samples of its OpInfo database, as calls of ATen overloads with arguments and results.

The one module of these tests that imports torch's private names (tried with 2.13); a change of torch is answered
here.  A sample is run under a dispatch mode, so that composites show the overloads that they are made of; the few
composites that a spec claims as a whole are called as well (`WHOLE`).

May import: torch, numpy, opwright (the face).  To try another composite: a line in `WHOLE`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn._reduction import get_enum
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "DTYPES",
    "Recorded",
    "draws",
    "entries",
    "is_plain",
    "names",
    "namesakes",
    "overload",
    "own",
    "recorded",
    "widened",
]

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip

#: Composites that a spec or a front claims: OpInfo's name → the overload that its sample is a call of, where the
#: overload is not of the entry's own name (`namesakes`).
WHOLE = {
    "nn.functional.cross_entropy": "aten.cross_entropy_loss.default",
    "nn.functional.nll_loss": "aten.nll_loss_nd.default",
    "log_softmax": "aten.log_softmax.int",
    "softmax": "aten.softmax.int",
}


#: What torch raises where a sample is no call of an overload: a name of ours, or arguments of another one.
_NOT_A_CALL = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Recorded:
    """One call of an overload: tensors have storages of their own, with the strides and offsets that they had."""

    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    sample: str

    def __str__(self) -> str:
        given = [*map(_show, self.args), *(f"{k}={_show(v)}" for k, v in self.kwargs.items())]
        return f"{self.overload}({', '.join(given)})"


def _show(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        short = next((k for k, v in DTYPES.items() if v is x.dtype), str(x.dtype))
        strides = "" if x.is_contiguous() else f" strides {list(x.stride())}"
        return f"{short}{list(x.shape)}{strides}"
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(_show, x))}]"
    return str(x)


@cache
def entries() -> dict[str, Any]:
    return {e.name + (f".{e.variant_test_name}" if e.variant_test_name else ""): e for e in op_db}


def names() -> list[str]:
    """Names of the entries, `name.variant` where there are several."""
    return sorted(entries())


def recorded(
    name: str, dtype: str, wanted: Collection[str], *, samples: int, calls: int
) -> Iterator[Recorded]:
    """Different calls of the overloads in `wanted` that the first samples of an entry are made of, at most `calls` of
    each overload.  Nothing for an entry that has no samples of this dtype."""
    entry = entries()[name]
    if DTYPES[dtype] not in entry.supported_dtypes("cpu"):
        return
    whole = [WHOLE[name]] if name in WHOLE else namesakes(entry.name, wanted)
    count: dict[str, int] = {}
    seen: set[str] = set()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for k, sample in enumerate(_taken(entry, DTYPES[dtype], samples)):
            for call in _calls(entry, sample, f"{name} {dtype} #{k}", wanted, whole):
                text = str(call)
                if text in seen or count.get(call.overload, 0) >= calls:
                    continue
                seen.add(text)
                count[call.overload] = count.get(call.overload, 0) + 1
                yield call


def _taken(entry: Any, dtype: Any, samples: int) -> Iterator[Any]:
    """The first samples; an entry that cannot make them for a dtype has none."""
    try:
        made = iter(entry.sample_inputs("cpu", dtype, requires_grad=False))
        for _ in range(samples):
            yield next(made)
    except Exception:  # StopIteration, or what torch raises where it has none
        return


def namesakes(name: str, wanted: Collection[str]) -> list[str]:
    """The overloads in `wanted` of an entry's own name: `nn.functional.pad` is `aten.pad`."""
    packet = name.removeprefix("nn.functional.").replace(".", "_")
    return sorted(o for o in wanted if o.split(".")[1] == packet)


def _calls(
    entry: Any, sample: Any, where: str, wanted: Collection[str], whole: Sequence[str]
) -> list[Recorded]:
    spy = _Spy(wanted, where)
    try:
        with spy:
            entry.op(sample.input, *sample.args, **sample.kwargs)
    except (
        Exception
    ):  # torch refuses a sample of its own (one of CUDA, say): what was called up to here still counts
        spy.refused = True
    found = spy.calls
    for name in whole if not spy.refused else ():
        if name in wanted and all(c.overload != name for c in found):
            found += _composite(name, sample, where)
    return found


def _composite(name: str, sample: Any, where: str) -> list[Recorded]:
    """A sample as one call of an overload; none where it is a call of another overload of the name."""
    kwargs = dict(sample.kwargs)
    if isinstance(kwargs.get("reduction"), str):
        if kwargs["reduction"] not in ("none", "mean", "sum"):
            return []  # Python's own
        kwargs["reduction"] = get_enum(kwargs["reduction"])
    given = (sample.input, *sample.args)
    if not all(is_plain(x) for x in tree_leaves((given, kwargs)) if isinstance(x, torch.Tensor)):
        return []
    args, kwargs = tree_map(own, (given, kwargs))
    try:
        result = overload(name)(*args, **kwargs)
    except _NOT_A_CALL:
        return []
    return [Recorded(name, args, kwargs, result, where)]


def overload(name: str) -> Any:
    space, packet, which = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet), which)


class _Spy(TorchDispatchMode):
    """Keeps the calls of overloads that change nothing."""

    def __init__(self, wanted: Collection[str], where: str) -> None:
        super().__init__()
        self.wanted, self.where = wanted, where
        self.calls: list[Recorded] = []
        self.refused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        keep = name in self.wanted and all(
            is_plain(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)
        )
        if keep:
            given = tree_map(own, (tuple(args), dict(kwargs)))
        out = func(*args, **kwargs)
        if keep and all(is_plain(x) for x in tree_leaves(out) if isinstance(x, torch.Tensor)):
            self.calls.append(Recorded(name, *given, tree_map(own, out), self.where))
        return out


def is_plain(x: Any) -> bool:
    return bool(
        x.layout is torch.strided
        and x.device.type == "cpu"
        and x.dtype in DTYPES.values()
        and not x.is_conj()
        and not x.is_neg()
        and x.numel() <= 1 << 16
    )


def own(x: Any) -> Any:
    """A tensor of the same layout over a copy of its storage."""
    if not isinstance(x, torch.Tensor):
        return x
    made = torch.empty(0, dtype=x.dtype)
    return made.set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())


def widened(call: Recorded) -> Any:
    """What torch says when every float is f64 (c128); None where it refuses, or has nothing wider."""
    wide = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
    wide[torch.complex64] = torch.complex128
    if not any(
        isinstance(x, torch.Tensor) and x.dtype in wide for x in tree_leaves((call.args, call.kwargs))
    ):
        return None

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.to(wide.get(x.dtype, x.dtype))
        return wide.get(x, x) if isinstance(x, torch.dtype) else x

    args, kwargs = tree_map(one, (call.args, call.kwargs))
    try:
        with torch.no_grad():
            return overload(call.overload)(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def leaves(x: Any) -> Sequence[Any]:
    return [e for part in x for e in leaves(part)] if isinstance(x, tuple | list) else [x]


def draws(name: str) -> bool:
    """Whether the overload's results are random."""
    return torch.Tag.nondeterministic_seeded in overload(name).tags


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    return tree_map(function, tree)
