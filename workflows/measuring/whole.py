"""The models that `--model` and the suite name, as `file.py:function` targets: `llama_decode_bf16()` → (module, args).

A small Llama (hidden 512, 8 layers, vocabulary 32,000: 42 M weights a token), a BERT and a ViT of their base width with
few layers, a ResNet, and chains of a few operators.  Weights are random.  Imported by the processes that load a target;
may import: torch, and transformers inside functions.  To add one: a function in `MAKERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

#: Tokens that a prefill reads, and that the cache holds when one more is written.
PROMPT, CACHE = 128, 256


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=2048,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class _Logits(nn.Module):
    """A module's logits alone."""

    def __init__(self, module: Any, name: str = "logits") -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, x: Any) -> Any:
        return getattr(self.module(x), self.name)


class _Step(nn.Module):
    """One token with a static cache that is full up to it: buffers, written at the same place each time."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        from transformers import StaticCache

        self.model = model
        model.config.use_cache = True
        self.cache = StaticCache(config=model.config, max_cache_len=CACHE)
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.int64), past_key_values=self.cache, use_cache=True)
        for k, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{k}", torch.randn_like(layer.keys))
            self.register_buffer(f"values_{k}", torch.randn_like(layer.values))

    def forward(self, token: Any) -> Any:
        before = [dict(vars(layer)) for layer in self.cache.layers]
        try:
            for k, layer in enumerate(self.cache.layers):
                layer.keys, layer.values = getattr(self, f"keys_{k}"), getattr(self, f"values_{k}")
                layer.cumulative_length = torch.full((), CACHE - 1, dtype=torch.int64)
            return self.model(token, past_key_values=self.cache, use_cache=True).logits
        finally:
            for layer, was in zip(self.cache.layers, before, strict=True):
                vars(layer).update(was)


def llama_prefill(dtype: torch.dtype) -> Made:
    return _Logits(_llama().to(dtype)), (torch.randint(0, 32000, (1, PROMPT)),), {}


def llama_decode(dtype: torch.dtype) -> Made:
    return _Step(_llama().to(dtype).eval()), (torch.randint(0, 32000, (1, 1)),), {}


def bert(dtype: torch.dtype) -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=4)
    return _Logits(BertModel(config).to(dtype), "last_hidden_state"), (torch.randint(0, 30000, (1, 128)),), {}


def vit(dtype: torch.dtype) -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=4)
    return (
        _Logits(ViTModel(config).to(dtype), "last_hidden_state"),
        (torch.randn(1, 3, 224, 224, dtype=dtype),),
        {},
    )


class _Block(nn.Module):
    """Two convolutions of 3² beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.short = (
            nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 or before != after else None
        )

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return torch.relu(y + (x if self.short is None else self.short(x)))


def resnet(dtype: torch.dtype) -> Made:
    """ResNet-18's layers for images of 224²."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for k, after in enumerate((64, 128, 256, 512)):
        layers += [_Block(before, after, 1 if k == 0 else 2), _Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    module = nn.Sequential(*layers).to(dtype).eval()
    return module, (torch.randn(1, 3, 224, 224, dtype=dtype),), {}


class _Chain(nn.Module):
    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return torch.nn.functional.silu(x) * y + z


class _Bias(nn.Module):
    def forward(self, x: Any, bias: Any, scale: Any) -> Any:
        return torch.nn.functional.gelu(x + bias) * scale


class _Rope(nn.Module):
    """Pairs of halves, as models write it."""

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * cos + turned * sin


def chain(dtype: torch.dtype) -> Made:
    return _Chain(), tuple(torch.randn(1024, 1024, dtype=dtype) for _ in range(3)), {}


def chain_bias(dtype: torch.dtype) -> Made:
    shapes = ((1024, 1024), (1024,), (1024,))
    return _Bias(), tuple(torch.randn(s, dtype=dtype) for s in shapes), {}


def rope(dtype: torch.dtype) -> Made:
    angle = torch.rand(512, 64).repeat(1, 2)
    x = torch.randn(1, 16, 512, 128, dtype=dtype)
    return _Rope(), (x, angle.cos().to(dtype), angle.sin().to(dtype)), {}


MAKERS: dict[str, Callable[[torch.dtype], Made]] = {
    "llama_prefill": llama_prefill,
    "llama_decode": llama_decode,
    "bert": bert,
    "vit": vit,
    "resnet": resnet,
    "chain": chain,
    "chain_bias": chain_bias,
    "rope": rope,
}
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def __getattr__(name: str) -> Callable[[], Made]:
    """`llama_decode_bf16` and the others: a maker and a dtype."""
    maker, _, dtype = name.rpartition("_")
    if maker not in MAKERS or dtype not in _DTYPES:
        raise AttributeError(name)
    return lambda: MAKERS[maker](_DTYPES[dtype])
