"""What operators without an overload mean, said with PyTorch's: the other source of the gate `meaning` for them.

A spec names one by `reference: compositions.NAME`.  It gets the spec's inputs in order (None: absent), its attributes
by name, and returns the outputs in order (the last ones may be left out).  It is written in another way than `compute`:
by whole tensors and PyTorch's own operators where there are some (its attention, norms, activations, float8 types,
solvers, convolutions), by sequence and by token in plain loops where the spec has index arithmetic.

Run by the process of torch_server.py alone; may import: torch and the standard library.  To add one: a function.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

Tensor = Any


# ---- norms and gates ---------------------------------------------------------------------------------------------


def add_rms_norm(x: Tensor, residual: Tensor, w: Tensor | None, *, eps: float, offset: float) -> Any:
    total = x + residual
    weight = None if w is None else w + offset
    return F.rms_norm(total, total.shape[-1:], weight, eps), total


def add_layer_norm(x: Tensor, residual: Tensor, w: Tensor | None, b: Tensor | None, *, eps: float) -> Any:
    total = x + residual
    return F.layer_norm(total, total.shape[-1:], w, b, eps), total


def gated_rms_norm(x: Tensor, z: Tensor, w: Tensor, *, eps: float, gate_first: bool) -> Any:
    gate = F.silu(z)
    if gate_first:
        return F.rms_norm(x * gate, x.shape[-1:], None, eps) * w
    return F.rms_norm(x, x.shape[-1:], None, eps) * w * gate


def silu_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def gelu_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return F.gelu(gate) * up


def gelu_tanh_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def clamped_swiglu(x: Tensor, *, alpha: float, limit: float) -> Any:
    gate, up = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))


# ---- rotary positions --------------------------------------------------------------------------------------------


def _turned(x: Tensor, angle: Tensor, interleaved: bool) -> Tensor:
    """By complex numbers: a pair is one, and a turn a product.  angle: complex factors [..., R]."""
    r = angle.shape[-1]
    head, rest = x[..., : 2 * r], x[..., 2 * r :]
    if interleaved:
        pairs = head.unflatten(-1, (r, 2))
    else:
        pairs = head.unflatten(-1, (2, r)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * angle.unsqueeze(-2))
    flat = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
    return torch.cat([flat, rest], -1)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, inverse: bool) -> Any:
    angle = torch.complex(cos, sin)
    return _turned(x, angle.conj() if inverse else angle, interleaved)


def rotary_embedding(
    x: Tensor, pos: Tensor, freq: Tensor, axis: Tensor | None, *, interleaved: bool, factor: float
) -> Any:
    kinds = torch.zeros(freq.shape[0], dtype=torch.int64) if axis is None else axis
    t = pos[kinds].movedim(0, -1).to(x.dtype) * freq
    return _turned(x, torch.polar(torch.full_like(t, factor), t), interleaved)


def rotary_frequencies(
    *,
    count: int,
    base: float,
    scaling: str,
    factor: float,
    fast: float,
    slow: float,
    context: float,
    dtype: str | None,
) -> Any:
    """As transformers' `modeling_rope_utils` words them, head by head dimension `2 count`."""
    wide = torch.arange(count, dtype=torch.float64)
    if scaling == "ntk" and count > 1:
        base = base * factor ** (2 * count / (2 * count - 2))
    inverse = 1.0 / base ** (2 * wide / (2 * count))
    if scaling == "linear":
        inverse = inverse / factor
    elif scaling == "llama3":
        wavelength = 2 * math.pi / inverse
        smooth = (context / wavelength - slow) / (fast - slow)
        between = (1 - smooth) * inverse / factor + smooth * inverse
        out = torch.where(wavelength > context / slow, inverse / factor, inverse)
        medium = ~(wavelength < context / fast) & ~(wavelength > context / slow)
        inverse = torch.where(medium, between, out)
    elif scaling == "yarn":

        def dim_of(turns: float) -> float:
            return (2 * count * math.log(context / (turns * 2 * math.pi))) / (2 * math.log(base))

        low, high = max(math.floor(dim_of(fast)), 0), min(math.ceil(dim_of(slow)), 2 * count - 1)
        ramp = ((wide - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        inverse = inverse / factor * ramp + inverse * (1 - ramp)
    return inverse.to(getattr(torch, {None: "float32", "f64": "float64", "f32": "float32"}[dtype]))


# ---- attention ---------------------------------------------------------------------------------------------------


def _attend(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, *, scale: float, cap: float, sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q [L, E], k [S, E], v [S, F] of one head, seen [L, S] (bool, or what is added): output and lse."""
    scores = (q @ k.T) * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~seen, -math.inf) if seen.dtype == torch.bool else scores + seen
    if sink is not None:
        scores = torch.cat([scores, sink.expand(len(q), 1)], 1)
    lse = torch.logsumexp(scores, -1)
    weights = torch.softmax(scores, -1).nan_to_num() if scores.shape[1] else scores
    return weights[:, : len(k)] @ v, lse if scores.shape[1] else torch.full((len(q),), -math.inf, dtype=q.dtype)


def _band(queries: int, keys: int, *, causal: bool, window: int) -> Tensor:
    """What the last `queries` places of `keys` see."""
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen = seen.tril(keys - queries)
    return seen.triu(keys - queries - window + 1) if window else seen


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    sink: Tensor | None,
    slope: Tensor | None,
    *,
    causal: bool,
    window: int,
    cap: float,
    scale: float | None = None,
) -> Any:
    *batch, heads, rows, size = q.shape
    keys, wide = v.shape[-2:]
    scale = size**-0.5 if scale is None else scale
    share = heads // k.shape[-3]
    k, v = k.repeat_interleave(share, -3), v.repeat_interleave(share, -3)
    y = torch.empty(*batch, heads, rows, wide, dtype=q.dtype)
    lse = torch.empty(*batch, heads, rows, dtype=q.dtype)
    whole = None if mask is None else mask.expand(*batch, heads, rows, keys).reshape(-1, heads, rows, keys)
    flat = [t.reshape(-1, heads, *t.shape[-2:]) for t in (q, k, v)]
    count = math.prod(batch)
    outs = y.view(count, heads, rows, wide), lse.view(count, heads, rows)
    distance = (torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)).abs()
    for n in range(count):
        for h in range(heads):
            seen: Tensor = _band(rows, keys, causal=causal, window=window)
            if slope is not None or (whole is not None and whole.dtype != torch.bool):
                added = torch.zeros(rows, keys, dtype=q.dtype)
                if slope is not None:
                    added = added - slope[h] * distance
                if whole is not None:
                    extra = whole[n, h]
                    added = added.masked_fill(~extra, -math.inf) if extra.dtype == torch.bool else added + extra
                seen = added.masked_fill(~seen, -math.inf)
            elif whole is not None:
                seen = seen & whole[n, h]
            one = None if sink is None else sink[h]
            outs[0][n, h], outs[1][n, h] = _attend(
                flat[0][n, h], flat[1][n, h], flat[2][n, h], seen, scale=scale, cap=cap, sink=one
            )
    return y, lse


def attention_ragged(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    sink: Tensor | None,
    *,
    causal: bool,
    window: int,
    cap: float,
    scale: float | None = None,
) -> Any:
    """Sequence by sequence; queries of none see nothing but the sink."""
    tokens, heads, size = q.shape
    scale = size**-0.5 if scale is None else scale
    share = heads // k.shape[1]
    y = torch.zeros(tokens, heads, v.shape[-1], dtype=q.dtype)
    lse = torch.full((tokens, heads), -math.inf, dtype=q.dtype)
    if sink is not None:
        lse[:] = sink
    starts, ends = q_starts.tolist(), k_starts.tolist()
    for r in range(len(starts) - 1):
        held = range(max(starts[r], 0), min(starts[r + 1], tokens))
        first, last = ends[r], ends[r + 1]
        for n in held:
            at = n - starts[r + 1] + last
            places = [
                j
                for j in range(max(first, 0), min(last, len(k)))
                if (not causal or j <= at) and (not window or j > at - window)
            ]
            for h in range(heads):
                y[n : n + 1, h], lse[n : n + 1, h] = _attend(
                    q[n : n + 1, h],
                    k[places, h // share],
                    v[places, h // share],
                    torch.ones(1, len(places), dtype=torch.bool),
                    scale=scale,
                    cap=cap,
                    sink=None if sink is None else sink[h],
                )
    return y, lse


def paged_cache_read(cache: Tensor, table: Tensor, lengths: Tensor) -> Any:
    rows = cache[table].flatten(1, 2)
    place = torch.arange(rows.shape[1])
    held = (place < lengths[:, None]).view(*rows.shape[:2], *[1] * (rows.dim() - 2))
    return torch.where(held, rows, torch.zeros((), dtype=rows.dtype))


def paged_cache_write(cache: Tensor, x: Tensor, slots: Tensor) -> Any:
    out = cache.clone()
    rows = out.view(-1, *cache.shape[2:]) if cache.numel() else out.reshape(cache.shape[0] * cache.shape[1], -1)
    for row, slot in zip(x, slots.tolist(), strict=True):
        if slot >= 0:
            rows[slot] = row
    return out


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    lengths: Tensor,
    q_starts: Tensor,
    sink: Tensor | None,
    *,
    window: int,
    cap: float,
    scale: float | None = None,
) -> Any:
    """The pages gathered into one run of keys, then as a batch of sequences laid end to end."""
    every_k, every_v = k[table].flatten(1, 2), v[table].flatten(1, 2)
    held = [n if n > 0 else 0 for n in lengths.tolist()]
    k_starts = torch.tensor([0, *torch.tensor(held, dtype=torch.int64).cumsum(0).tolist()])
    if held:
        k = torch.cat([every_k[r, :n] for r, n in enumerate(held)])
        v = torch.cat([every_v[r, :n] for r, n in enumerate(held)])
    else:
        k, v = k.flatten(0, 1)[:0], v.flatten(0, 1)[:0]
    return attention_ragged(
        q, k, v, q_starts, k_starts, sink, causal=True, window=window, cap=cap, scale=scale
    )


def latent_attention_decode(
    q: Tensor,
    q_rot: Tensor,
    latent: Tensor,
    k_rot: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    whole = torch.cat([q, q_rot], -1)
    scale = whole.shape[-1] ** -0.5 if scale is None else scale
    keys = torch.cat([latent, k_rot], -1)[table].flatten(1, 2)
    y, lse = torch.empty_like(q), torch.empty(q.shape[:2], dtype=q.dtype)
    for r, n in enumerate(lengths.tolist()):
        for h in range(q.shape[1]):
            k = keys[r, :n]
            y[r, h : h + 1], lse[r, h : h + 1] = _attend(
                whole[r, h : h + 1],
                k,
                k[:, : q.shape[-1]],
                torch.ones(1, len(k), dtype=torch.bool),
                scale=scale,
                cap=0.0,
                sink=None,
            )
    return y, lse


def merge_attention(a: Tensor, a_lse: Tensor, b: Tensor, b_lse: Tensor) -> Any:
    weights = torch.softmax(torch.stack([a_lse, b_lse], -1), -1).nan_to_num()
    return a * weights[..., :1] + b * weights[..., 1:], torch.logaddexp(a_lse, b_lse)
