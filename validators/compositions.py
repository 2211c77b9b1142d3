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
import torch.nn.functional as F  # noqa: N812 - as all its users name it

Tensor = Any


# PyTorch's own lose numbers near the ends of the range, where they go through exp(-x).


def _sigmoid(x: Tensor) -> Tensor:
    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, torch.ones_like(e)) / (1 + e)


def _silu(x: Tensor) -> Tensor:
    return x * _sigmoid(x)


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


# ---- norms and gates ---------------------------------------------------------------------------------------------


def add_rms_norm(x: Tensor, residual: Tensor, w: Tensor | None, *, eps: float, offset: float) -> Any:
    total = x + residual
    weight = None if w is None else w + offset
    return F.rms_norm(total, total.shape[-1:], weight, eps), total


def add_layer_norm(x: Tensor, residual: Tensor, w: Tensor | None, b: Tensor | None, *, eps: float) -> Any:
    total = x + residual
    return F.layer_norm(total, total.shape[-1:], w, b, eps), total


def gated_rms_norm(x: Tensor, z: Tensor, w: Tensor, *, eps: float, gate_first: bool) -> Any:
    gate = _silu(z)
    if gate_first:
        return F.rms_norm(x * gate, x.shape[-1:], None, eps) * w
    return F.rms_norm(x, x.shape[-1:], None, eps) * w * gate


def silu_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return _silu(gate) * up


def gelu_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return F.gelu(gate) * up


def gelu_tanh_and_mul(x: Tensor) -> Any:
    gate, up = x.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def clamped_swiglu(x: Tensor, *, alpha: float, limit: float) -> Any:
    gate, up = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * _sigmoid(gate * alpha))


# ---- rotary positions --------------------------------------------------------------------------------------------


def _turned(x: Tensor, angle: Tensor, interleaved: bool) -> Tensor:
    """By complex numbers: a pair is one, and a turn a product.  angle: complex factors [..., R]."""
    r = angle.shape[-1]
    head, rest = x[..., : 2 * r], x[..., 2 * r :]
    if interleaved:
        pairs = head.unflatten(-1, (r, 2))
    else:
        pairs = head.unflatten(-1, (2, r)).transpose(-1, -2)
    # (of nothing, "contiguous" leaves strides that view_as_complex refuses)
    turned = torch.view_as_real(torch.complex(pairs[..., 0], pairs[..., 1]) * angle.unsqueeze(-2))
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
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor,
    *,
    scale: float,
    cap: float,
    sink: Tensor | None,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """q [L, E], k [S, E], v [S, F] of one head, seen [L, S] and what is added to the scores: output and lse.  What is
    not seen counts for nothing, whatever its score (nan, too)."""
    scores = (q @ k.T) * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    scores = (scores if added is None else scores + added).masked_fill(~seen, -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.expand(len(q), 1)], 1)
    top = scores.amax(-1, keepdim=True) if scores.shape[1] else scores.new_zeros(len(q), 1)
    lse = top[:, 0] + torch.exp(scores - top).sum(-1).log()
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    return weights[:, : len(k)] @ v, lse.masked_fill(blind[:, 0], -math.inf)


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
    share, count = heads // k.shape[-3], math.prod(batch)
    k, v = k.repeat_interleave(share, -3), v.repeat_interleave(share, -3)
    y = torch.empty(*batch, heads, rows, wide, dtype=q.dtype)
    lse = torch.empty(*batch, heads, rows, dtype=q.dtype)
    whole = None if mask is None else mask.expand(*batch, heads, rows, keys).reshape(count, heads, rows, keys)
    flat = [t.reshape(count, heads, *t.shape[-2:]) for t in (q, k, v)]
    outs = y.view(count, heads, rows, wide), lse.view(count, heads, rows)
    distance = (torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)).abs()
    for n in range(count):
        for h in range(heads):
            seen: Tensor = _band(rows, keys, causal=causal, window=window)
            added = None if slope is None else -slope[h] * distance
            if whole is not None and whole.dtype == torch.bool:
                seen = seen & whole[n, h]
            elif whole is not None:
                added = whole[n, h] if added is None else added + whole[n, h]
            one = None if sink is None else sink[h]
            outs[0][n, h], outs[1][n, h] = _attend(
                flat[0][n, h], flat[1][n, h], flat[2][n, h], seen, scale=scale, cap=cap, sink=one, added=added
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
    rows = (
        out.view(-1, *cache.shape[2:]) if cache.numel() else out.reshape(cache.shape[0] * cache.shape[1], -1)
    )
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
    both = torch.stack([a_lse, b_lse], -1)
    nothing = (both == -math.inf).all(-1, keepdim=True)  # of no key: no weight, and no nan
    weights = torch.softmax(both, -1).masked_fill(nothing, 0)
    return a * weights[..., :1] + b * weights[..., 1:], torch.logaddexp(a_lse, b_lse)


# ---- mixtures of experts -----------------------------------------------------------------------------------------


def _best(scores: Tensor, k: int) -> Tensor:
    """Places of the k largest, of equals the first."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]


def moe_route(logits: Tensor, *, k: int, score: str, normalise: bool, factor: float) -> Any:
    scores = torch.softmax(logits, -1) if score == "softmax" else _sigmoid(logits)
    experts = _best(logits, k)
    weights = scores.gather(-1, experts)
    if normalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * factor, experts


def moe_route_grouped(
    scores: Tensor, bias: Tensor, *, k: int, groups: int, normalise: bool, factor: float
) -> Any:
    """By two stable sorts: by value, then those of the chosen groups before the others."""
    choice = scores + bias
    best = _best(choice.topk(2, -1).values.sum(-1), groups)
    kept = torch.zeros(choice.shape[:2], dtype=torch.int64).scatter_(1, best, 1)
    kept = kept[..., None].expand(choice.shape).flatten(1)
    order = _best(choice.flatten(1), choice[0].numel() if len(choice) else 0)
    experts = order.gather(1, _best(kept.gather(1, order), k))
    weights = scores.flatten(1).gather(1, experts)
    if normalise:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * factor, experts


def moe_permute(x: Tensor, experts: Tensor, *, count: int) -> Any:
    order = torch.sort(experts.reshape(-1), stable=True).indices
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    ends = torch.bincount(experts.reshape(-1), minlength=count).cumsum(0)
    return x[order // max(experts.shape[1], 1)], ends, places.view(experts.shape)


def grouped_matmul(x: Tensor, w: Tensor, ends: Tensor, b: Tensor | None) -> Any:
    y = torch.zeros(len(x), w.shape[-1], dtype=x.dtype)
    start = 0
    for e, end in enumerate(ends.tolist()):
        rows = slice(max(start, 0), max(end, 0))
        y[rows] = x[rows] @ w[e] + (0 if b is None else b[e])
        start = end
    return y


def gather_matmul(x: Tensor, w: Tensor, which: Tensor) -> Any:
    return (w[which] @ x[:, None, :, None]).squeeze(-1)


def moe_unpermute(y: Tensor, places: Tensor, weights: Tensor) -> Any:
    return (y[places] * weights[..., None]).sum(1)


def moe_balance_loss(logits: Tensor, experts: Tensor) -> Any:
    count = logits.shape[1]
    used = F.one_hot(experts, count).to(logits.dtype).sum(1).mean(0)
    return count * (used * torch.softmax(logits, -1).mean(0)).sum()


# ---- recurrences -------------------------------------------------------------------------------------------------


def lstm(x: Tensor, h0: Tensor, c0: Tensor, w: Tensor, u: Tensor, b: Tensor | None, d: Tensor | None) -> Any:
    """Step by step; gates in the order i, f, g, o."""
    h, c, shown = h0, c0, []
    for step in x:
        i, f, g, o = (F.linear(step, w, b) + F.linear(h, u, d)).chunk(4, -1)
        c = _sigmoid(f) * c + _sigmoid(i) * torch.tanh(g)
        h = _sigmoid(o) * torch.tanh(c)
        shown.append(h)
    return torch.stack(shown), h, c


def gru(x: Tensor, h0: Tensor, w: Tensor, u: Tensor, b: Tensor | None, d: Tensor | None) -> Any:
    """Step by step; gates in the order r, z, n, and d_n inside of what r gates."""
    h, shown = h0, []
    for step in x:
        of_x, of_h = F.linear(step, w, b).chunk(3, -1), F.linear(h, u, d).chunk(3, -1)
        r, z = _sigmoid(of_x[0] + of_h[0]), _sigmoid(of_x[1] + of_h[1])
        h = torch.lerp(torch.tanh(of_x[2] + r * of_h[2]), h, z)
        shown.append(h)
    return torch.stack(shown), h


def _rnn(f: Any, x: Tensor, h0: Tensor, w: Tensor, u: Tensor, b: Tensor | None, d: Tensor | None) -> Any:
    h, shown = h0, []
    for step in x:
        h = f(F.linear(step, w, b) + F.linear(h, u, d))
        shown.append(h)
    return torch.stack(shown), h


def rnn_tanh(*inputs: Tensor | None) -> Any:
    return _rnn(torch.tanh, *inputs)


def rnn_relu(*inputs: Tensor | None) -> Any:
    return _rnn(torch.relu, *inputs)


def causal_conv(x: Tensor, w: Tensor, b: Tensor | None, state: Tensor | None, *, silu: bool) -> Any:
    channels, kept = w.shape[0], w.shape[1] - 1
    if state is None:
        state = torch.zeros(*x.shape[:-1], kept, dtype=x.dtype)
    held = torch.cat([state, x], -1)
    windows = held.unfold(-1, w.shape[1], 1) if x.shape[-1] else held.new_zeros(*x.shape, w.shape[1])
    y = (windows * w[:, None]).sum(-1) + (0 if b is None else b[:, None])
    assert y.shape[-2] == channels
    return _silu(y) if silu else y, held[..., held.shape[-1] - kept :].clone()


def selective_scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    skip_weight: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    s0: Tensor | None,
    *,
    softplus: bool,
) -> Any:
    step = dt if dt_bias is None else dt + dt_bias[:, None]
    step = _softplus(step) if softplus else step
    share = x.shape[-2] // b.shape[-3]
    b, c = b.repeat_interleave(share, -3), c.repeat_interleave(share, -3)
    state = torch.zeros(*x.shape[:-1], a.shape[1], dtype=a.dtype) if s0 is None else s0.clone()
    outs = []
    for t in range(x.shape[-1]):
        now = step[..., t, None]
        state = torch.exp(now * a) * state + now * b[..., t] * x[..., t, None]
        outs.append(torch.einsum("...dn,...dn->...d", state, c[..., t]))
    out = torch.stack(outs, -1)
    if skip_weight is not None:
        out = out + skip_weight[:, None] * x
    return out if z is None else out * _silu(z), state


def ssd_scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    skip_weight: Tensor | None,
    s0: Tensor | None,
) -> Any:
    """As one matrix: out = ((c b^T) * decay) x, the form by attention; where that gives no number, by steps."""
    length = x.shape[-3]
    heads = _for_heads(x, b, c)
    total = _between(dt * a)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = torch.exp(total).masked_fill(future, 0.0)
    scores = torch.einsum("...thn,...uhn->...htu", heads[1], heads[0]) * weights
    out = torch.einsum("...htu,...uh,...uhp->...thp", scores, dt, x)
    last = torch.einsum("...hu,...uh,...uhp,...uhn->...hpn", weights[..., -1, :], dt, x, heads[0])
    if s0 is not None:
        since = torch.exp((dt * a).movedim(-1, -2).cumsum(-1))
        out = out + torch.einsum("...ht,...thn,...hpn->...thp", since, heads[1], s0)
        last = last + since[..., -1, None, None] * s0
    steps = _ssd_steps(x, dt, a, *heads, s0)
    out, last = (torch.where(m.isfinite(), m, n) for m, n in zip((out, last), steps, strict=True))
    return out if skip_weight is None else out + skip_weight[:, None] * x, last


def _for_heads(x: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """b and c of each head, which groups of heads share."""
    share = x.shape[-2] // b.shape[-2]
    return b.repeat_interleave(share, -2), c.repeat_interleave(share, -2)


def _between(decay: Tensor) -> Tensor:
    """[..., h, t, u]: the sum of [..., t, h] over the places after u, up to t; no difference of sums, which may be
    infinite.
    """
    rows = decay.movedim(-1, -2)
    total = torch.zeros(*rows.shape, rows.shape[-1], dtype=rows.dtype)
    for u in range(rows.shape[-1]):
        for t in range(u, rows.shape[-1]):
            total[..., t, u] = rows[..., u + 1 : t + 1].sum(-1)
    return total


def _ssd_steps(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s0: Tensor | None
) -> tuple[Tensor, Tensor]:
    state = (
        torch.zeros(*x.shape[:-3], *x.shape[-2:], b.shape[-1], dtype=a.dtype) if s0 is None else s0.clone()
    )
    outs = []
    for t in range(x.shape[-3]):
        now = dt[..., t, :, None, None]
        fresh = now * x[..., t, :, :, None] * b[..., t, :, None, :]
        state = torch.exp(now * a[:, None, None]) * state + fresh
        outs.append((state * c[..., t, :, None, :]).sum(-1))
    return torch.stack(outs, -3), state


def ssd_chunks(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s0: Tensor | None) -> Any:
    """Step by step: chunks are a way to compute, not a meaning.  Where steps give no number, chunk by chunk: of
    infinities a product of sums is not the sum of products."""
    chunks = x.shape[-4:-2]
    places = -4, -3, -4, -4
    flat = [v.flatten(p, p + 1) for v, p in zip((x, dt, b, c), places, strict=True)]
    out, last = _ssd_steps(flat[0], flat[1], a, *_for_heads(flat[0], flat[2], flat[3]), s0)
    state = torch.zeros_like(last) if s0 is None else s0
    parts = []
    b, c = _for_heads(x, b, c)
    for m in range(chunks[0]):
        xs, ds, bs, cs = x[..., m, :, :, :], dt[..., m, :, :], b[..., m, :, :, :], c[..., m, :, :, :]
        between, since = torch.exp(_between(ds * a)), torch.exp((ds * a).movedim(-1, -2).cumsum(-1))
        for t in range(chunks[1]):
            scores = torch.einsum("...hn,...uhn->...hu", cs[..., t, :, :], bs[..., : t + 1, :, :])
            scores = between[..., t, : t + 1] * scores * ds[..., : t + 1, :].movedim(-1, -2)
            own = (scores[..., None] * xs[..., : t + 1, :, :].movedim(-2, -3)).sum(-2)
            before = torch.einsum("...hn,...hpn->...hp", cs[..., t, :, :], state)
            parts.append(own + since[..., t, None] * before)
        fresh = between[..., -1, :].movedim(-1, -2)[..., None, None] * ds[..., None, None]
        fresh = fresh * xs[..., None] * bs[..., None, :]
        state = since[..., -1, None, None] * state + fresh.sum(-4)
    by_chunks = torch.stack(parts, -3), state
    out, last = (torch.where(m.isfinite(), m, n) for m, n in zip((out, last), by_chunks, strict=True))
    return out.unflatten(-3, chunks), last


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, s0: Tensor | None, *, scale: float
) -> Any:
    """As a product with one matrix a step: S = exp(g) (1 - beta k k^T) S + beta k v^T."""
    size = k.shape[-1]
    state = torch.zeros(*k.shape[:-2], size, v.shape[-1], dtype=q.dtype) if s0 is None else s0.clone()
    one, outs = torch.eye(size, dtype=q.dtype), []
    for t in range(q.shape[-2]):
        key, weight = k[..., t, :], beta[..., t, None, None]
        turn = one - weight * key[..., :, None] * key[..., None, :]
        state = torch.exp(g[..., t, None, None]) * (turn @ state) + weight * (
            key[..., :, None] * v[..., t, None, :]
        )
        outs.append(scale * (q[..., t, None, :] @ state).squeeze(-2))
    return torch.stack(outs, -2), state


def gated_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, s0: Tensor | None, *, scale: float
) -> Any:
    state = torch.zeros(*k.shape[:-2], k.shape[-1], v.shape[-1], dtype=q.dtype) if s0 is None else s0.clone()
    outs = []
    for t in range(q.shape[-2]):
        kept = state if g is None else torch.exp(g[..., t, :, None]) * state
        state = kept + k[..., t, :, None] * v[..., t, None, :]
        outs.append(scale * torch.einsum("...e,...ef->...f", q[..., t, :], state))
    return torch.stack(outs, -2), state


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *, eps: float) -> Any:
    """By places: what is after one counts for nothing, no number either; elu + 1 would cancel below 0."""
    a, b = (torch.where(x < 0, x.exp(), x + 1) for x in (q, k))
    outs = []
    for t in range(q.shape[-2]):
        weights = torch.einsum("...e,...ue->...u", a[..., t, :], b[..., : t + 1, :])
        summed = torch.einsum("...u,...uf->...f", weights, v[..., : t + 1, :])
        outs.append(summed / (weights.sum(-1, keepdim=True) + eps))
    return torch.stack(outs, -2) if outs else torch.zeros_like(v)


def rwkv6(r: Tensor, k: Tensor, v: Tensor, w: Tensor, bonus: Tensor, s0: Tensor | None) -> Any:
    state = torch.zeros(*k.shape[:-2], k.shape[-1], v.shape[-1], dtype=r.dtype) if s0 is None else s0.clone()
    outs = []
    for t in range(r.shape[-2]):
        fresh = k[..., t, :, None] * v[..., t, None, :]
        outs.append((r[..., t, None, :] @ (state + bonus[..., None] * fresh)).squeeze(-2))
        state = torch.exp(-torch.exp(w[..., t, :, None])) * state + fresh
    return torch.stack(outs, -2), state


def gated_linear_recurrence(x: Tensor, gate: Tensor, rate: Tensor, h0: Tensor | None, *, c: float) -> Any:
    power = -c * _softplus(rate) * _sigmoid(gate)
    keep, write = torch.exp(power), torch.sqrt(-torch.expm1(2 * power))
    state = torch.zeros_like(x[..., 0, :]) if h0 is None else h0
    outs = []
    for t in range(x.shape[-2]):
        state = keep[..., t, :] * state + write[..., t, :] * x[..., t, :]
        outs.append(state)
    return torch.stack(outs, -2), state


# ---- few bits ----------------------------------------------------------------------------------------------------

_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
#: The numbers of e2m1 by their code.
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def _pairs(q: Tensor) -> Tensor:
    """Two codes of 4 bits from each byte, the low one first."""
    return torch.stack([q & 15, q >> 4], -1).flatten(-2).to(torch.int64)


def quantize_int8(x: Tensor) -> Any:
    largest = x.abs().amax(-1) if x.shape[-1] else x.new_zeros(x.shape[:-1])
    scale = torch.where(largest > 0, largest / 127, torch.ones_like(largest))
    return (x / scale[..., None]).round().clamp(-127, 127).to(torch.int8), scale


def dequantize_int8(q: Tensor, scale: Tensor, zero: Tensor | None) -> Any:
    whole = q.to(scale.dtype)
    return (whole if zero is None else whole - zero[..., None]) * scale[..., None]


def fake_quantize(x: Tensor, *, scale: float, zero: int, lo: int, hi: int) -> Any:
    whole = (x * (1 / scale)).round() + zero
    return (whole.clamp(lo, hi) - zero) * scale, (whole >= lo) & (whole <= hi)


def quantize_int4(x: Tensor) -> Any:
    low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
    scale = torch.where(high > low, (high - low) / 15, torch.ones_like(high))
    zero = (-low / scale).round().clamp(0, 15)
    code = ((x / scale[..., None]).round() + zero[..., None]).clamp(0, 15).to(torch.uint8)
    return code[..., ::2] | (code[..., 1::2] << 4), scale, zero


def dequantize_int4(q: Tensor, scale: Tensor, zero: Tensor) -> Any:
    return (_pairs(q).to(scale.dtype) - zero[..., None]) * scale[..., None]


def quantize_fp8(x: Tensor, scale: Tensor, *, format: str) -> Any:
    kind = _FP8[format]
    top = torch.finfo(kind).max
    held = (x / scale[..., None]).clamp(-top, top)
    code = held.to(kind).view(torch.uint8)
    nan = 127 if format == "e4m3" else 126
    sign = torch.signbit(held).to(torch.uint8) * 128
    return torch.where(held.isnan(), sign + nan, code).to(torch.uint8)


def dequantize_fp8(q: Tensor, scale: Tensor, *, format: str) -> Any:
    return q.view(_FP8[format]).to(scale.dtype) * scale[..., None]


def quantize_mxfp4(x: Tensor) -> Any:
    """By the distance to each of the numbers; of two as near, the one with an even code."""
    largest = x.abs().amax(-1)
    power = (torch.frexp(largest).exponent - 3).clamp(-127, 127)
    power = torch.where(largest > 0, power, -127)
    lost = ~largest.isfinite()
    size = torch.ldexp(x.abs(), -power[..., None])
    off = (size[..., None] - _E2M1.to(x.dtype)).abs()
    tied = off == off.amin(-1, keepdim=True)
    even = torch.arange(8) % 2 == 0
    code = torch.where(tied & even, 2, tied.to(torch.int64)).argmax(-1)
    code = (code + 8 * torch.signbit(x)).masked_fill(lost[..., None], 0).to(torch.uint8)
    scale = (power + 127).masked_fill(lost, 255).to(torch.uint8)
    return code[..., ::2] | (code[..., 1::2] << 4), scale


def _mxfp4(q: Tensor, scale: Tensor) -> Tensor:
    code = _pairs(q)
    size = _E2M1[code & 7] * torch.where(code >= 8, -1.0, 1.0)
    power = torch.where(scale == 255, math.nan, torch.ldexp(torch.tensor(1.0).double(), scale.int() - 127))
    return size * power[..., None]


def dequantize_mxfp4(q: Tensor, scale: Tensor, *, dtype: str | None) -> Any:
    kind = {None: torch.float32, "f32": torch.float32, "f64": torch.float64, "f16": torch.float16}
    return _mxfp4(q, scale).to(kind.get(dtype, torch.bfloat16))


def matmul_int8(x: Tensor, w: Tensor, scale: Tensor, b: Tensor | None) -> Any:
    weight = (w.to(x.dtype) * scale[..., None]).flatten(1)
    return F.linear(x.flatten(-2), weight, b)


def matmul_int8_int8(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, b: Tensor | None) -> Any:
    whole = F.linear(x.to(x_scale.dtype), w.to(x_scale.dtype)) * (x_scale[..., None] * w_scale)
    return whole if b is None else whole + b


def matmul_int4(x: Tensor, w: Tensor, scale: Tensor, zero: Tensor) -> Any:
    return F.linear(x.flatten(-2), dequantize_int4(w, scale, zero).flatten(1))


def matmul_fp8(x: Tensor, w: Tensor, scale: Tensor) -> Any:
    weight = w.view(torch.float8_e4m3fn).to(x.dtype) * scale[:, None, :, None]
    return F.linear(x.flatten(-2), weight.flatten(0, 1).flatten(1)).unflatten(-1, w.shape[:2])


def matmul_mxfp4(x: Tensor, w: Tensor, scale: Tensor, b: Tensor | None) -> Any:
    return F.linear(x.flatten(-2), _mxfp4(w, scale).to(x.dtype).flatten(1), b)


# ---- sampling ----------------------------------------------------------------------------------------------------


def filter_logits(
    logits: Tensor,
    temperature: Tensor | None,
    top_k: Tensor | None,
    top_p: Tensor | None,
    min_p: Tensor | None,
) -> Any:
    """Row by row, over the sorted scores."""
    out = torch.full_like(logits, -math.inf)
    for i, row in enumerate(logits):
        order = torch.sort(row, descending=True, stable=True).indices
        x = (row if temperature is None else row / temperature[i])[order]
        kept = torch.ones(len(row), dtype=torch.bool)
        if top_k is not None and top_k[i] > 0:
            kept[int(top_k[i]) :] = False
        weight = torch.exp(x - (row / (1 if temperature is None else temperature[i])).max())
        if top_p is not None:
            before = torch.cat([x.new_zeros(1), weight.cumsum(0)[:-1]])
            kept &= (before < top_p[i] * weight.sum()) | (top_p[i] >= 1)
        if min_p is not None:
            kept &= (weight >= min_p[i]) | (min_p[i] <= 0)
        kept[0] = True
        out[i, order[kept]] = x[kept]
    return out


def penalise_logits(
    logits: Tensor,
    prompt: Tensor,
    output: Tensor,
    repetition: Tensor,
    frequency: Tensor,
    presence: Tensor,
) -> Any:
    out = logits.clone()
    for i, row in enumerate(out):
        said = [t for t in output[i].tolist() if t >= 0]
        for t in {*said, *(t for t in prompt[i].tolist() if t >= 0)}:
            row[t] = row[t] / repetition[i] if row[t] > 0 else row[t] * repetition[i]
        for t in set(said):
            row[t] = row[t] - frequency[i] * said.count(t) - presence[i]
    return out


def _philox(seed: int, offset: int) -> list[int]:
    """Philox 4x32-10, as its authors give it."""
    word = 0xFFFFFFFF
    k0, k1 = seed & word, (seed >> 32) & word
    x = [offset & word, (offset >> 32) & word, 0, 0]
    for _ in range(10):
        p, q = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(q >> 32) ^ x[1] ^ k0, q & word, (p >> 32) ^ x[3] ^ k1, p & word]
        k0, k1 = (k0 + 0x9E3779B9) & word, (k1 + 0xBB67AE85) & word
    return x


def _unit(shape: Any, seed: int, offset: int, dtype: Any) -> Tensor:
    count = math.prod(shape)
    words = [_philox(seed, offset + k)[j] for k in range(-(-count // 4)) for j in range(4)]
    return (torch.tensor(words[:count], dtype=torch.int64) >> 8).to(dtype).reshape(shape) * 2.0**-24


def _type(name: str) -> Any:
    """torch's dtype of ours, "f32"."""
    kind = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat"}[name.rstrip("0123456789")]
    return getattr(torch, kind + name.lstrip("bfiu"))


def rand(*, size: Any, seed: int, offset: int, dtype: str) -> Tensor:
    return _unit(size, seed, offset, _type(dtype))


def randn(*, size: Any, seed: int, offset: int, dtype: str) -> Tensor:
    """The real part of a number of that length and turn."""
    length, turn = _unit((math.prod(size), 2), seed, offset, torch.float64).unbind(-1)
    drawn = torch.polar(torch.sqrt(-2 * torch.log1p(-length)), 2 * math.pi * turn).real
    return drawn.reshape(size).to(_type(dtype))


def randint(*, low: int, high: int, size: Any, seed: int, offset: int, dtype: str) -> Tensor:
    count = math.prod(size)
    words = [_philox(seed, offset + k)[j] for k in range(-(-count // 4)) for j in range(4)]
    drawn = [low + w % (high - low) for w in words[:count]]
    return torch.tensor(drawn, dtype=torch.int64).reshape(size).to(_type(dtype))


def bernoulli(p: Tensor, *, seed: int, offset: int) -> Tensor:
    return torch.heaviside(p.float() - _unit(p.shape, seed, offset, torch.float32), torch.zeros(())).to(
        p.dtype
    )


def native_dropout(x: Tensor, *, p: float, seed: int, offset: int) -> Any:
    kept = ~(_unit(x.shape, seed, offset, torch.float64) < p)
    return x.masked_fill(~kept, 0) / (1 - p if p < 1 else 1), kept


def exponential(x: Tensor, *, rate: float, seed: int, offset: int) -> Tensor:
    law = torch.distributions.Exponential(torch.tensor(rate, dtype=torch.float64))
    return law.icdf(_unit(x.shape, seed, offset, torch.float64)).to(x.dtype)


def cauchy(x: Tensor, *, median: float, sigma: float, seed: int, offset: int) -> Tensor:
    law = torch.distributions.Cauchy(*torch.tensor([median, sigma], dtype=torch.float64), validate_args=False)
    return law.icdf(_unit(x.shape, seed, offset, torch.float64)).to(x.dtype)


def geometric(x: Tensor, *, p: float, seed: int, offset: int) -> Tensor:
    """The first k with 1 - (1 - p)^k >= u."""
    u = _unit(x.shape, seed, offset, torch.float64)
    return torch.ceil(torch.log1p(-u) / math.log1p(-p)).clamp(min=1).to(x.dtype)


def sample_token(logits: Tensor, *, seed: int, offset: int) -> Any:
    unit = _unit(logits.shape, seed, offset, logits.dtype)
    return (logits - torch.log(-torch.log(unit * (1 - 2.0**-24) + 2.0**-25))).argmax(-1)


def multinomial(w: Tensor, *, count: int, seed: int, offset: int) -> Any:
    unit = _unit((len(w), count), seed, offset, w.dtype)
    places = torch.searchsorted(w.cumsum(-1), unit * w.sum(-1, keepdim=True), right=True)
    return places.clamp(max=w.shape[1] - 1)


def speculative_verify(draft: Tensor, target: Tensor, tokens: Tensor, u: Tensor) -> Any:
    """Row by row, as the papers word it."""
    kept, chosen = [], []
    for i in range(len(tokens)):
        n = 0
        for k, t in enumerate(tokens[i].tolist()):
            if not u[i, k] * draft[i, k, t] < target[i, k, t]:
                break
            n += 1
        rest = target[i, n] if n == tokens.shape[1] else target[i, n] - draft[i, n]
        rest = torch.where(rest > 0, rest, 0.0)
        above = torch.searchsorted(rest.cumsum(0), u[i, -1:] * rest.sum(), right=True)
        kept.append(n)
        chosen.append(min(int(above), target.shape[-1] - 1))
    return torch.tensor(kept, dtype=torch.int64), torch.tensor(chosen, dtype=torch.int64)


def token_logprobs(logits: Tensor, tokens: Tensor) -> Any:
    logs = torch.log_softmax(logits, -1)
    said = logs.gather(-1, tokens[:, None])[:, 0]
    above = (logits > logits.gather(-1, tokens[:, None])).sum(-1)
    return said, above, -(logs.exp() * logs).sum(-1)
