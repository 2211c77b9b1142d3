"""PyTorch's own bad calls: the error inputs of its OpInfo database, which must raise here as they do there.

An error input is run under a dispatch mode; the overload that raises is the call.  Where PyTorch raises before any
overload runs (a composite looks at its arguments), the overloads of the entry's own name are called instead.

May import: torch, opwright (the face), replay, torch_samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import opwright as ow
from opwright.errors import OpwrightError
from opwright.exceptions import MissingKernelError

from .replay import FAILED, PASSED, REFUSED, Outcome, bridge, mapped_ours
from .torch_samples import Recorded, entries, is_plain, namesakes, overload, own

__all__ = ["bad_calls", "refuse"]

#: What torch's own binding says of arguments that are not of the schema: no overload was called.
_UNBOUND = (
    "Expected a value of type",
    "is missing value for argument",
    "positional argument",
    "Unknown keyword",
)


def bad_calls(name: str) -> Iterator[Recorded]:
    """Calls that PyTorch refuses; `result` is what it says."""
    entry = entries()[name]
    if entry.error_inputs_func is None:
        return
    seen: set[str] = set()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for k, bad in enumerate(entry.error_inputs("cpu")):
            for call in _raising(entry, bad.sample_input, f"{name} error #{k}"):
                if str(call) not in seen:
                    seen.add(str(call))
                    yield call


def _raising(entry: Any, sample: Any, where: str) -> list[Recorded]:
    spy = _Spy(where)
    try:
        with spy:
            entry.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        if spy.raised is not None:
            return [spy.raised] if _whole(spy.raised) else []
    else:
        return []
    out = []
    for name in namesakes(entry.name, _every(entry.name)):
        given = (sample.input, *sample.args), dict(sample.kwargs)
        if not all(is_plain(x) for x in tree_leaves(given) if isinstance(x, torch.Tensor)):
            continue
        args, kwargs = tree_map(own, given)
        try:
            overload(name)(*args, **kwargs)
        except (IndexError, NotImplementedError, RuntimeError, ValueError) as error:
            if not any(text in str(error) for text in _UNBOUND):
                out.append(Recorded(name, args, kwargs, str(error).splitlines()[0], where))
        except TypeError:
            continue
    return out


def _every(name: str) -> frozenset[str]:
    packet = name.removeprefix("nn.functional.").replace(".", "_")
    found = getattr(torch.ops.aten, packet, None)
    return frozenset(f"aten.{packet}.{o}" for o in found.overloads()) if found is not None else frozenset()


def _whole(call: Recorded) -> bool:
    return all(is_plain(x) for x in tree_leaves((call.args, call.kwargs)) if isinstance(x, torch.Tensor))


class _Spy(TorchDispatchMode):
    """Keeps the call that raises."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.raised: Recorded | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        args, kwargs = tree_map(own, (tuple(args), dict(kwargs)))
        try:
            return func(*args, **kwargs)
        except Exception as error:
            text = (str(error).splitlines() or [""])[0]
            self.raised = Recorded(str(func), args, kwargs, text, self.where)
            raise


def refuse(call: Recorded) -> Outcome:
    """passed: one clear error of ours; failed: a result, or another exception; refused: nothing claims the overload."""
    bridge()
    try:
        got = ow.call_aten(call.overload, *mapped_ours(call.args), **mapped_ours(call.kwargs))
    except MissingKernelError:
        return Outcome(REFUSED, "nothing claims the overload")
    except OpwrightError as why:
        return Outcome(PASSED, why.message.splitlines()[0])
    except Exception as why:
        return Outcome(FAILED, f"raises {type(why).__name__}: {why}; PyTorch says: {call.result}")
    shapes = [str(list(x.shape)) for x in tree_leaves(got) if hasattr(x, "shape")]
    return Outcome(FAILED, f"gives {', '.join(shapes) or got}; PyTorch says: {call.result}")
