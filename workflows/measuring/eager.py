"""PyTorch's sides: the eager call, the same with `out=`, and what torch.compile makes of it.

The call is the function that people write (`torch.add`), where one takes the overload's arguments: the overload itself
goes through a slower door.  May import: generator.program.torch_compat, validators.torch_server (complete), torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...generator.program.torch_compat import overload_of, torch_dtype
from ...generator.types import DType
from ...validators.torch_server import Inexpressible, complete
from .child import Call, Loaded, Missing
from .ours import _sets, loaded, tensors_by

__all__ = ["Eager", "EagerOut", "Inductor"]


class Eager:
    def __init__(self, given: Mapping[str, Any]) -> None:
        torch.set_num_threads(given["threads"])
        torch.set_grad_enabled(False)
        np.seterr(all="ignore")
        self.version = str(torch.__version__)

    def load(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        if "program" in request:
            return self.module(folder, request)
        sets = _sets(folder, request)
        calls = [self.call(request, s) for s in sets]
        return Loaded(
            calls,
            lambda result: _answers(result, request),
            self.version,
            exact=lambda k: _answers(_overload_call(request, sets[k], wide=True)(), request),
        )

    def call(self, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> Call:
        return public(_overload_call(request, arrays))

    def module(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        from .models import eager_model

        model = eager_model(request, folder)
        return Loaded([self.model_call(model)], model.answers, self.version, exact=lambda _: model.exact())

    def inputs(self, folder: Path, request: Mapping[str, Any]) -> None:
        """What the module of a program is called with, as a file."""
        from .models import write_inputs

        write_inputs(folder, request)

    def model_call(self, model: Any) -> Call:
        return Call(model.module, model.args, dict(model.kwargs))


class EagerOut(Eager):
    def call(self, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> Call:
        if "reference" in request:
            raise Missing("it is a composition of several operators: no out= for all")
        plain = _overload_call(request, arrays)
        name = out_overload(request["overload"])
        if name is None:
            raise Missing(f"{request['overload']} has no out=")
        result = plain()
        result = tuple(result) if isinstance(result, list | tuple) else (result,)
        schema = overload_of(name)._schema
        outs = [a.name for a in schema.arguments if a.is_out]
        if len(outs) != len(result):
            raise Missing(f"{name} gives {len(outs)} outputs, {request['overload']} gives {len(result)}")
        memory = dict(zip(outs, (torch.empty_like(t) for t in result), strict=True))
        joined = {"out": next(iter(memory.values()))} if len(memory) == 1 else {"out": tuple(memory.values())}
        quick = public(plain)
        if quick.function is not plain.function:
            try:
                call = Call(quick.function, quick.args, {**(quick.kwargs or {}), **joined})
                call()
                return call
            except (TypeError, RuntimeError):
                pass
        call = Call(overload_of(name), plain.args, {**(plain.kwargs or {}), **memory})
        call()
        return call

    def module(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        raise Missing("a module has no out=")


class Inductor(Eager):
    def load(self, folder: Path, request: Mapping[str, Any]) -> Loaded:
        import torch._inductor.config as config

        config.compile_threads = 1
        self.took = 0.0
        torch._dynamo.reset()
        made = super().load(folder, request)
        begun = time.perf_counter()
        made.calls[0]()
        made.compile_s = self.took + time.perf_counter() - begun
        made.exact = None
        return made

    def call(self, request: Mapping[str, Any], arrays: Mapping[str, Any]) -> Call:
        plain = super().call(request, arrays)
        if not hasattr(self, "compiled") or self.of is not request:
            f, kwargs, of = plain.function, dict(plain.kwargs or {}), request
            self.compiled: Callable[..., Any] = torch.compile(
                lambda *args: f(*args, **kwargs), dynamic=False, fullgraph=True
            )
            self.of: Any = of
        return Call(self.compiled, plain.args)

    def model_call(self, model: Any) -> Call:
        return Call(torch.compile(model.module, dynamic=False), model.args, dict(model.kwargs))


# ---- the overload, and the function that people write ---------------------------------------------------------------


def tensor_of(a: Any, wide: bool = False) -> Any:
    if a.dtype.name == "bfloat16":
        t = torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    else:
        t = torch.from_numpy(a)
    return t.double() if wide and t.is_floating_point() else t


def _overload_call(request: Mapping[str, Any], arrays: Mapping[str, Any], wide: bool = False) -> Call:
    """The overload with its arguments: by position where the schema has them so.  Raises Missing."""
    of = tensors_by(lambda a: tensor_of(a, wide), arrays, request)
    if "reference" in request:
        from ...validators import compositions

        f = getattr(compositions, request["reference"])
        given = tuple(loaded(v, of) for v in request["inputs"].values())
        named = {k: loaded(v, of) for k, v in request["values"].items()}
        return Call(f, given, named)
    function = overload_of(request["overload"])
    if function is None:
        raise Missing(f"this PyTorch has no {request['overload']}")
    arguments = {k: loaded(v, of) for k, v in request["torch"].items()}
    arguments |= {
        k: torch_dtype(DType.F64 if wide and DType(v).is_float else DType(v))
        for k, v in request["dtypes"].items()
    }
    try:
        complete(torch, function._schema.arguments, arguments)
    except Inexpressible as error:
        raise Missing(str(error)) from None
    args: list[Any] = []
    for a in function._schema.arguments:
        if a.kwarg_only or a.name not in arguments:
            break
        args.append(arguments[a.name])
    placed = [a.name for a in function._schema.arguments[: len(args)]]
    rest = {k: v for k, v in arguments.items() if k not in placed}
    return Call(function, tuple(args), rest)


def public(call: Call) -> Call:
    """The same by the function that people write, if one takes these arguments and gives as many results."""
    function = call.function
    if not isinstance(function, torch._ops.OpOverload):
        return call
    name = function._schema.name.split("::")[1]
    names = {a.name: a for a in function._schema.arguments}
    kwargs = {
        k: v
        for k, v in (call.kwargs or {}).items()
        if not (names[k].has_default_value() and _equal(names[k].default_value, v))
    }
    args = list(call.args)
    order = list(names.values())
    while (
        args
        and order[len(args) - 1].has_default_value()
        and _equal(order[len(args) - 1].default_value, args[-1])
    ):
        args.pop()
    want = call()
    for place, short in _places(name):
        found = getattr(place, short, None)
        if found is None:
            continue
        try:
            got = found(*args, **kwargs)
        except Exception:  # another signature: the overload it is
            continue
        if _alike(got, want):
            return Call(found, tuple(args), kwargs)
    return call


def _places(name: str) -> list[tuple[Any, str]]:
    c = torch._C
    places: list[tuple[Any, str]] = [(torch, name), (c._nn, name)]
    for prefix, module in (("special_", c._special), ("fft_", c._fft), ("linalg_", c._linalg)):
        if name.startswith(prefix):
            places.append((module, name))
    return [*places, (torch.Tensor, name)]


def _alike(got: Any, want: Any) -> bool:
    a, b = (tuple(x) if isinstance(x, list | tuple) else (x,) for x in (got, want))
    return len(a) == len(b) and all(
        isinstance(x, torch.Tensor) == isinstance(y, torch.Tensor)
        and (not isinstance(x, torch.Tensor) or (x.shape == y.shape and x.dtype == y.dtype))
        for x, y in zip(a, b, strict=True)
    )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    return bool(a == b)


def out_overload(name: str) -> str | None:
    """The overload that takes the memory of its outputs: `aten.add.out` for `aten.add.Tensor`."""
    own = overload_of(name)
    if own is None:
        return None
    space, packet, _ = name.split(".")
    wanted = [(a.name, str(a.type)) for a in own._schema.arguments]
    family = getattr(getattr(torch.ops, space), packet)
    for one in family.overloads():
        arguments = getattr(family, one)._schema.arguments
        if any(a.is_out for a in arguments):
            given = [(a.name, str(a.type)) for a in arguments if not a.is_out]
            if given == wanted:
                return f"{space}.{packet}.{one}"
    return None


def _answers(result: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    given = result if isinstance(result, list | tuple) else [result]
    return {n: numpy_of(t) for n, t in zip(request["returns"], given, strict=False) if t is not None}


def numpy_of(t: Any) -> Any:
    """A tensor of torch's as an array; bf16 as ml_dtypes has it."""
    t = t.detach()
    if t.dtype is torch.bfloat16:
        import ml_dtypes

        return t.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.resolve_conj().resolve_neg().numpy() if t.is_complex() else t.numpy()
