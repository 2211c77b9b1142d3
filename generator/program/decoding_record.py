"""One step of decoding with a static key/value cache, captured; and the text that PyTorch writes without one.

    record_decoding(model, table, outdir)

writes OUTDIR/program, a program whose inputs are the model's own with one token of text each, whose output is `logits`,
and whose state is the cache: keys, values, and how many tokens are in it; and OUTDIR/text:
  inputs.safetensors     the model's other inputs, by the program's names, and `text`: prompt and greedy continuation
  logits_f32, logits_f64 of the whole forward over that text, without a cache
  text.json              {"token": the input that takes the next token, "prompt": how many tokens were given}

The continuation is that of eager f32, one whole forward per token.  An encoder runs again in every step, its keys and
values are computed again: what is carried is the decoder's own.

May import: capture, captured, folder, models, records, torch_compat (and torch and transformers inside functions).
To add a kind of cache: `_Step`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..types import DType
from . import records
from . import torch_compat as compat
from .aten import AtenTable
from .capture import capture
from .captured import CaptureError
from .folder import write_folder, write_tensors
from .models import Model

__all__ = ["generates", "record_decoding"]

PROMPT, CONTINUED = 4, 8
LOGITS = "logits"


def generates(model: Model) -> bool:
    """Whether the model writes text: its class says so."""
    can = getattr(model.module, "can_generate", None)
    return callable(can) and bool(can()) and _text_of(model.kwargs) is not None


def _text_of(kwargs: Mapping[str, Any]) -> str | None:
    """The argument that takes the text which is continued."""
    return next((n for n in ("decoder_input_ids", "input_ids") if n in kwargs), None)


def record_decoding(
    model: Model,
    table: AtenTable,
    out: Path,
    clock: Callable[[str, Callable[[], Any]], Any] | None = None,
) -> None:
    """Raises `CaptureError` where PyTorch does not run the model so, or the step does not export."""
    timed = clock or (lambda stage, work: work())
    token = _text_of(model.kwargs)
    assert token is not None
    given = model.kwargs[token]
    # What goes along with each token of the text (masks, positions) follows from there being a cache.
    other = {
        n: v
        for n, v in model.kwargs.items()
        if n != token
        and not (_is_tensor(v) and tuple(v.shape[:2]) == tuple(given.shape[:2]) and _beside(n, token))
    }
    text, wide, narrow = timed("decoding", lambda: _written(model.module, other, token, given[:, :PROMPT]))
    step = timed("decoding", lambda: _stepping(model.module, other, token, text))
    kwargs = {**other, token: text[:, :1].clone()}
    axes: list[tuple[int, ...]] = [() for _ in compat.tensors_of(((), kwargs))]
    exported = timed("decoding", lambda: compat.export(step, (), kwargs, axes))
    captured = timed(
        "decoding",
        lambda: capture(
            step,
            (),
            kwargs,
            table,
            name=f"{model.name}.step",
            source=model.source,
            exported=exported,
            further=True,
        ),
    )
    if not captured.program.state:
        raise CaptureError("the model keeps nothing in the cache that it is given")
    write_folder(out / "program", captured.program, captured.tensors)
    names = records.input_tensors(captured, (), kwargs)
    place = next(n for n, t in names.items() if t is kwargs[token])
    at = out / "text"
    at.mkdir(parents=True)
    write_tensors(at / "inputs.safetensors", {n: t for n, t in names.items() if n != place} | {"text": text})
    write_tensors(at / "logits_f32.safetensors", {LOGITS: narrow})
    write_tensors(at / "logits_f64.safetensors", {LOGITS: wide})
    facts = {"token": place, "prompt": PROMPT}
    (at / "text.json").write_text(json.dumps(facts), encoding="utf-8")


def _is_tensor(x: Any) -> bool:
    return isinstance(x, compat.require_torch().Tensor)


def _beside(name: str, token: str) -> bool:
    """Whether an argument belongs to the text rather than to what an encoder reads."""
    return name.startswith("decoder_") or token == "input_ids"


def _written(module: Any, other: Mapping[str, Any], token: str, prompt: Any) -> tuple[Any, Any, Any]:
    """Prompt and greedy continuation, and the logits over all of it in f64 and f32."""
    torch = compat.require_torch()
    text = prompt
    for _ in range(CONTINUED):
        logits = records.eager(module, (), {**other, token: text})[LOGITS]
        text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
    narrow, wide = (
        records.eager(module, (), {**other, token: text}, dtype)[LOGITS] for dtype in (None, DType.F64)
    )
    return text, wide, narrow


def _stepping(module: Any, other: Mapping[str, Any], token: str, text: Any) -> Any:
    """A module of one step: its buffers are the cache, empty."""
    torch = compat.require_torch()
    from transformers import DynamicCache, EncoderDecoderCache, StaticCache

    config = module.config.get_text_config(decoder=True)
    cache = StaticCache(config=config, max_cache_len=text.shape[1])
    crossed = token.startswith("decoder_")

    def run(**kwargs: Any) -> Any:
        own = EncoderDecoderCache(cache, DynamicCache(config=config)) if crossed else cache
        return module(**kwargs, cache=own, use_cache=True).logits

    class Step(torch.nn.Module):  # type: ignore[name-defined]
        """The cache's tensors are put into its layers at every call: they are buffers, so that a capture sees what
        becomes of them."""

        def __init__(self) -> None:
            super().__init__()
            self.model = module
            for k, layer in enumerate(cache.layers):
                for name in _kept(layer):
                    self.register_buffer(f"{name}_{k}", torch.zeros_like(getattr(layer, name)))

        def forward(self, **kwargs: Any) -> Any:
            before = [dict(vars(layer)) for layer in cache.layers]
            try:
                for k, layer in enumerate(cache.layers):
                    for name in _kept(layer):
                        setattr(layer, name, getattr(self, f"{name}_{k}"))
                return {LOGITS: run(**kwargs)}
            finally:
                for layer, was in zip(cache.layers, before, strict=True):
                    vars(layer).update(was)

    def _kept(layer: Any) -> list[str]:
        return [n for n, v in vars(layer).items() if isinstance(v, torch.Tensor)]

    with torch.no_grad(), compat.quiet():
        run(**{**other, token: text[:, :1]})  # the cache takes its shapes from what it is first given
    return Step().eval()
