"""Random numbers that a model draws in its forward, as inputs: its program is then a function, and can be compared.

    drawing(model)   the model, which takes what it drew as `drawn`, a list of tensors; unchanged where it draws nothing

The inputs hold plain draws (standard normal, or uniform from 0 up to 1); what the model makes of them, a mean and a
spread, a permutation or samples by weight, stays in the graph.  A draw that has no line here is left as it is, and
stands among the calls of the program.

May import: models, torch_compat (and torch inside functions).  To add a draw: its line in `_rules`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from . import torch_compat as compat
from .captured import CaptureError
from .models import Model

__all__ = ["drawing"]

#: A plain draw: its distribution, shape and dtype (None: the default).
_Plain: TypeAlias = Callable[[str, Sequence[Any], Any], Any]
_Rule: TypeAlias = Callable[..., Any]

NORMAL, UNIFORM = "normal", "uniform"


def drawing(model: Model, seed: int = 0) -> Model:
    """The model whose draws are inputs, its example numbers drawn from `seed`.  The module is changed."""
    torch = compat.require_torch()
    if model.exported is not None or "forward" in vars(model.module):
        return model
    generator = torch.Generator().manual_seed(seed)
    drawn: list[Any] = []

    def fresh(distribution: str, shape: Sequence[Any], dtype: Any) -> Any:
        make = torch.randn if distribution == NORMAL else torch.rand
        drawn.append(make(tuple(shape), generator=generator, dtype=dtype))
        return drawn[-1].clone()  # the model may write into it

    args, kwargs = compat.copied((tuple(model.args), dict(model.kwargs)))
    with torch.no_grad(), compat.uncompiled(), compat.restoring(model.module), _intercepting(fresh):
        model.module(*args, **kwargs)
    if not drawn:
        return model
    _take(model.module)
    return replace(model, kwargs={**model.kwargs, "drawn": drawn})


def _take(module: Any) -> None:
    """Make the module take `drawn`.  By its class: a copy of the module has it too, with weights of its own."""
    kind = type(module)

    def forward(self: Any, *args: Any, drawn: Sequence[Any], **kwargs: Any) -> Any:
        left = list(drawn)

        def given(distribution: str, shape: Sequence[Any], dtype: Any) -> Any:
            if not left:
                raise CaptureError(f"the model draws more than the {len(drawn)} times of its example")
            return _fitting(left.pop(0), shape, dtype)

        with _intercepting(given):
            return kind.forward(self, *args, **kwargs)

    signature = inspect.signature(kind.forward)  # the export goes by it
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    rest = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    own = inspect.Parameter("drawn", inspect.Parameter.KEYWORD_ONLY)
    forward.__signature__ = signature.replace(parameters=[*kept, own, *rest])  # type: ignore[attr-defined]
    module.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _fitting(given: Any, shape: Sequence[Any], dtype: Any) -> Any:
    """The input as the draw asks for it; where extents may vary, the export learns here which are the same."""
    torch = compat.require_torch()
    for have, want in zip(given.shape, shape, strict=True):
        torch._check(have == want)
    return given.to(torch.get_default_dtype() if dtype is None else dtype, copy=True)


def _intercepting(plain: _Plain) -> Any:
    """A context in which calls that draw get their numbers from `plain`."""
    rules = _rules(compat.require_torch(), plain)
    from torch.overrides import TorchFunctionMode

    class Draws(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            rule = rules.get(func)
            return (rule or func)(*args, **(kwargs or {}))

    return Draws()


def _rules(torch: Any, plain: _Plain) -> Mapping[Any, _Rule]:
    """By function of torch."""

    def factory(distribution: str) -> _Rule:
        def made(*size: Any, dtype: Any = None, **kwargs: Any) -> Any:
            given = kwargs.get("size", size)
            shape = given[0] if len(given) == 1 and not isinstance(given[0], int | torch.SymInt) else given
            return plain(distribution, tuple(shape), dtype)

        return made

    def like(distribution: str) -> _Rule:
        def made(input: Any, dtype: Any = None, **kwargs: Any) -> Any:
            return plain(distribution, input.shape, input.dtype if dtype is None else dtype)

        return made

    def normal(mean: Any, std: Any = 1.0, size: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
        tensors = [t for t in (mean, std) if isinstance(t, torch.Tensor)]
        shape = torch.broadcast_shapes(*(t.shape for t in tensors)) if tensors else size
        return plain(NORMAL, shape, tensors[0].dtype if tensors else dtype) * std + mean

    def normal_(self: Any, mean: float = 0, std: float = 1, **kwargs: Any) -> Any:
        return self.copy_(plain(NORMAL, self.shape, self.dtype) * std + mean)

    def uniform_(self: Any, a: float = 0, b: float = 1, **kwargs: Any) -> Any:
        low, high = kwargs.get("from", a), kwargs.get("to", b)
        return self.copy_(plain(UNIFORM, self.shape, self.dtype) * (high - low) + low)

    def exponential_(self: Any, lambd: float = 1, **kwargs: Any) -> Any:
        return self.copy_(torch.log1p(-plain(UNIFORM, self.shape, self.dtype)) / -lambd)

    def bernoulli(input: Any, **kwargs: Any) -> Any:
        return (plain(UNIFORM, input.shape, input.dtype) < input).to(input.dtype)

    def integers(low: int, high: int, shape: Sequence[Any], dtype: Any) -> Any:
        """In f64 the product is exact, so that f32 and f64 come to one integer."""
        many = high - low
        places = (plain(UNIFORM, tuple(shape), None).double() * many).floor().clamp(max=many - 1)
        return (places + low).to(torch.int64 if dtype is None else dtype)

    def randint(
        *bounds: Any, low: int = 0, high: Any = None, size: Any = None, dtype: Any = None, **_: Any
    ) -> Any:
        given = list(bounds)
        if given and isinstance(given[-1], list | tuple):
            size = given.pop()
        if len(given) == 2:
            low, high = given
        elif given:
            high = given[0]
        return integers(low, high, size, dtype)

    def randint_like(
        input: Any, *bounds: int, dtype: Any = None, low: int = 0, high: Any = None, **_: Any
    ) -> Any:
        low, high = bounds if len(bounds) == 2 else (low, bounds[0] if bounds else high)
        return integers(low, high, input.shape, input.dtype if dtype is None else dtype)

    def waits(shape: Sequence[Any], dtype: Any) -> Any:
        """Standard exponential numbers, none of them 0."""
        return -torch.log1p(-plain(UNIFORM, tuple(shape), dtype)).clamp(max=-1e-30)

    def multinomial(input: Any, num_samples: int, replacement: bool = False, **_: Any) -> Any:
        """By weight: the least waits where each is taken once, else the place among the sums."""
        if not replacement:
            return (input / waits(input.shape, input.dtype)).topk(num_samples, -1).indices
        ends = input.cumsum(-1)
        at = plain(UNIFORM, (*input.shape[:-1], num_samples), input.dtype) * ends[..., -1:]
        return torch.searchsorted(ends, at, right=True).clamp(max=input.shape[-1] - 1)

    def randperm(n: int, *, dtype: Any = None, **_: Any) -> Any:
        return plain(UNIFORM, (n,), None).argsort().to(torch.int64 if dtype is None else dtype)

    def gumbel_softmax(
        logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
    ) -> Any:
        soft = ((logits - waits(logits.shape, logits.dtype).log()) / tau).softmax(dim)
        if not hard:
            return soft
        chosen = torch.zeros_like(logits).scatter(dim, soft.argmax(dim, keepdim=True), 1.0)
        return chosen - soft.detach() + soft

    def kept(input: Any, shape: Sequence[Any], p: float) -> Any:
        """1 where a number (or, of a narrower shape, a whole channel) stays, 0 where it is dropped."""
        return (plain(UNIFORM, tuple(shape), input.dtype) >= p).to(input.dtype)

    def dropout(axes: int = 0) -> _Rule:
        """`axes`: of a channel, which is dropped whole.  An input without a batch is one where torch says so (not where
        there are two)."""

        def made(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not training or p == 0:
                return input
            own = input.dim() if not axes else 1 if axes != 2 and input.dim() == axes + 1 else 2
            shape = (*input.shape[:own], *(1,) * (input.dim() - own))
            out = input * (kept(input, shape, p) / (1 - p)) if p < 1 else input * 0
            return input.copy_(out) if inplace else out

        return made

    def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
        """What is dropped becomes the least value of SELU, and all is scaled back to mean 0 and variance 1
        (Klambauer et al., 2017, Self-Normalizing Neural Networks)."""
        if not training or p == 0:
            return input
        least = -1.7580993408473766
        scale = ((1 - p) * (1 + p * least**2)) ** -0.5 if p < 1 else 0.0
        stays = kept(input, input.shape, p)
        out = (input * stays + least * (1 - stays)) * scale - scale * least * p
        return input.copy_(out) if inplace else out

    functional = torch.nn.functional
    return {
        functional.dropout: dropout(),
        functional.dropout1d: dropout(1),
        functional.dropout2d: dropout(2),
        functional.dropout3d: dropout(3),
        functional.alpha_dropout: alpha_dropout,
        functional.gumbel_softmax: gumbel_softmax,
        torch.multinomial: multinomial,
        torch.Tensor.multinomial: multinomial,
        torch.randperm: randperm,
        torch.rand: factory(UNIFORM),
        torch.randint: randint,
        torch.randint_like: randint_like,
        torch.randn: factory(NORMAL),
        torch.rand_like: like(UNIFORM),
        torch.randn_like: like(NORMAL),
        torch.normal: normal,
        torch.bernoulli: bernoulli,
        torch.Tensor.bernoulli: bernoulli,
        torch.Tensor.exponential_: exponential_,
        torch.Tensor.normal_: normal_,
        torch.Tensor.uniform_: uniform_,
    }
