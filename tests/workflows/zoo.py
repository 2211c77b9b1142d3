"""Modules with operator mixes that no listed architecture has: what `enable file.py:function` meets in the wild.

A function returns (module, args) or (module, args, kwargs).  test_zoo.py takes every one of them to parity.
To add one: a class, and a function with a short name.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


def seed():
    torch.manual_seed(0)


class GRUHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        ys = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            ys.append(self.out(h))
        return torch.stack(ys, 1), h


def grucell():
    seed()
    return GRUHand(), (torch.randn(3, 5, 6),)


class LSTMFull(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        y, (h, c) = self.l(x)
        mask = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        y = y * mask[..., None]
        return {"y": y, "h": h, "c": c, "mean": y.sum(1) / lengths[:, None].to(y.dtype)}


def lstm():
    seed()
    return LSTMFull(), (torch.randn(3, 6, 5), torch.tensor([6, 4, 2]))


class LinearAttention(nn.Module):
    def __init__(self, d=16, h=4):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
        z = 1 / (torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)) + 1e-6)
        y = torch.einsum("bhtd,bhtde,bht->bhte", q, kv, z)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


def linear_attention():
    seed()
    return LinearAttention(), (torch.randn(2, 9, 16),)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.b = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4)
        self.n = nn.GroupNorm(2, 8)
        self.c = nn.Conv2d(8, 16, 3, padding=2, dilation=2)
        self.u = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, groups=2, output_padding=0)
        self.i = nn.InstanceNorm2d(8, affine=True)
        self.o = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = F.silu(self.a(x))
        b = F.gelu(self.n(self.b(a)), approximate="tanh")
        c = F.mish(self.c(b))
        u = self.i(self.u(c))
        y = self.o(torch.cat([u, a], 1))
        return (
            F.pixel_unshuffle(y, 2),
            F.adaptive_avg_pool2d(y, (3, 5)),
            F.avg_pool2d(y, 3, 2, ceil_mode=True, count_include_pad=False),
        )


def unet():
    seed()
    return UNet(), (torch.randn(2, 3, 16, 20),)


class GraphNet(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.m = nn.Linear(2 * d, d)
        self.u = nn.Linear(2 * d, d)
        self.a = nn.Linear(d, 1)

    def forward(self, x, edge):
        src, dst = edge[0], edge[1]
        m = F.leaky_relu(self.m(torch.cat([x[src], x[dst]], -1)), 0.2)
        s = self.a(m).squeeze(-1)
        mx = torch.full((x.shape[0],), -torch.inf).scatter_reduce(0, dst, s, "amax", include_self=True)
        e = (s - mx[dst]).exp()
        den = torch.zeros(x.shape[0]).index_add(0, dst, e)
        w = e / den[dst]
        agg = torch.zeros_like(x).index_add(0, dst, m * w[:, None])
        deg = torch.zeros(x.shape[0]).scatter_add(0, dst, torch.ones_like(s))
        return self.u(torch.cat([x, agg], -1)) / (1 + deg).rsqrt()[:, None], deg


def graphnet():
    seed()
    return GraphNet(), (torch.randn(7, 8), torch.randint(0, 7, (2, 20)))


class Router(nn.Module):
    def __init__(self, d=8, n=6, k=2):
        super().__init__()
        self.k = k
        self.g = nn.Linear(d, n, bias=False)
        self.w1 = nn.Parameter(torch.randn(n, d, 2 * d) / d**0.5)
        self.w2 = nn.Parameter(torch.randn(n, d, d) / d**0.5)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        p = self.g(x).softmax(-1)
        w, i = p.topk(self.k, -1)
        w = w / w.sum(-1, keepdim=True)
        u = torch.einsum("td,tkdf->tkf", x, self.w1[i])
        a, b = u.chunk(2, -1)
        y = torch.einsum("tkf,tkfd->tkd", F.silu(a) * b, self.w2[i])
        load = F.one_hot(i, p.shape[-1]).sum((0, 1)).float() / i.numel()
        aux = (load * p.mean(0)).sum() * p.shape[-1]
        return (y * w[..., None]).sum(1).view(shape), aux, torch.logsumexp(p, -1)


def router():
    seed()
    return Router(), (torch.randn(2, 5, 8),)


class CumPool(nn.Module):
    def forward(self, x, w: int = 3):
        c = F.pad(x.cumsum(1), (0, 0, 1, 0))
        avg = (c[:, w:] - c[:, :-w]) / w
        return avg, x.cummax(1).values, torch.cumprod(1 + 0.1 * torch.tanh(x), 1), x.logcumsumexp(1)


def cumpool():
    seed()
    return CumPool(), (torch.randn(2, 8, 4),)


class ComplexRotary(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.q = nn.Linear(d, d)
        self.register_buffer("freq", 1.0 / 100 ** (torch.arange(0, d, 2).float() / d), persistent=False)

    def forward(self, x, pos):
        q = self.q(x)
        z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        f = torch.outer(pos.float(), self.freq)
        rot = torch.polar(torch.ones_like(f), f)
        y = torch.view_as_real(z * rot).flatten(-2)
        return y, (z * rot).abs(), z.angle()


def rotary():
    seed()
    return ComplexRotary(), (torch.randn(2, 6, 8), torch.arange(6))


class Resampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Linear(3 * 4 * 4, 6)
        self.c = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        p = F.adaptive_max_pool2d(x, (4, 4)).flatten(1)
        theta = self.loc(p).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        g = F.affine_grid(theta, list(x.shape), align_corners=False)
        s = F.grid_sample(self.c(x), g[..., :2], mode="bilinear", padding_mode="border", align_corners=False)
        up = F.interpolate(s, scale_factor=2, mode="bicubic", align_corners=False)
        nn_ = F.interpolate(s, size=(5, 7), mode="nearest")
        bl = F.interpolate(up, size=(9, 9), mode="bilinear", align_corners=True)
        return up, nn_, bl


def resampler():
    seed()
    return Resampler(), (torch.randn(2, 3, 8, 8),)


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3 * 9, 12)

    def forward(self, x):
        h, w = x.shape[-2:]
        u = F.unfold(x, 3, padding=1)
        y = self.l(u.transpose(1, 2)).transpose(1, 2)
        y = F.fold(torch.cat([y, y, y[:, :3]], 1), (h, w), 3, padding=1)
        return F.pixel_shuffle(y.repeat_interleave(4, 1), 2), x.unfold(2, 4, 2).mean(-1)


def patches():
    seed()
    return Patches(), (torch.randn(2, 3, 8, 6),)


class MaskedChains(nn.Module):
    def forward(self, x, mask):
        s = x.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)
        q = torch.round(x.clamp(-1.5, 1.5) * 8) / 8
        y = torch.where(x > 0, torch.sqrt(x.abs() + 1e-3), -torch.log1p(x.abs()))
        z = (
            torch.lerp(q, y, 0.3)
            + torch.hypot(q, y)
            + torch.atan2(y, q + 2)
            + torch.fmod(x, 0.7)
            + x.remainder(0.3)
        )
        return (
            s,
            z,
            torch.sign(x) * x.floor() + torch.trunc(x) + torch.frac(x),
            torch.logical_xor(x > 0, mask),
            x.isfinite().all(),
        )


def masked_chains():
    seed()
    return MaskedChains(), (torch.randn(3, 7), torch.rand(3, 7) > 0.3)


class IntBool(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 6, padding_idx=0)

    def forward(self, ids, flags, small):
        h = (ids * 7 + 3) % 20
        h = torch.where(flags, h, ids)
        k = (h ^ 5) & 15 | (ids << 1) & 3
        p = torch.bitwise_right_shift(ids, 1)
        e = self.e(h) * flags[..., None] + self.e(k.clamp_max(19))
        return (
            e,
            h.float().mean(),
            ids // 3,
            (ids == h).sum(-1),
            small.to(torch.int32) * 3,
            flags.any(-1),
            p.cumsum(-1),
        )


def intbool():
    seed()
    return IntBool(), (
        torch.randint(0, 20, (3, 5)),
        torch.rand(3, 5) > 0.5,
        torch.randint(0, 100, (4,), dtype=torch.int16),
    )


@dataclass
class Out:
    logits: torch.Tensor
    hidden: list
    extra: dict


class DictNet(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, d) for _ in range(3)])
        self.norm = nn.RMSNorm(d)

    def forward(self, batch, *, scale=1.0, bias=None):
        x = batch["x"] * scale
        hs = []
        for l in self.layers:
            x = x + torch.tanh(l(self.norm(x)))
            hs.append(x)
        if bias is not None:
            x = x + bias
        return Out(
            x @ self.layers[0].weight.t(),
            hs,
            {"pair": (x.amax(-1), x.argmin(-1)), "n": batch["rest"][0].sum()},
        )


def dataclass_out():
    seed()
    return (
        DictNet(),
        ({"x": torch.randn(4, 6), "rest": [torch.randn(3), torch.randn(2)]},),
        {"scale": 2.0, "bias": torch.randn(6)},
    )


class Stateful(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("ema", torch.zeros(d))
        self.register_buffer("cache", torch.zeros(8, d))
        self.w = nn.Parameter(torch.randn(d, d))

    def forward(self, x):
        y = x @ self.w
        self.count += 1
        self.ema.mul_(0.9).add_(0.1 * y.mean(0))
        self.cache[:2] = y[:2]
        return y - self.ema, self.cache.sum(), self.count * 2


def stateful():
    seed()
    return Stateful(), (torch.randn(3, 4),)


class Tied(nn.Module):
    def __init__(self, v=17, d=8):
        super().__init__()
        self.e = nn.Embedding(v, d)
        self.l = nn.utils.parametrizations.weight_norm(nn.Linear(d, d))
        self.h = nn.Linear(d, v, bias=False)
        self.h.weight = self.e.weight
        self.s = nn.utils.parametrizations.orthogonal(nn.Linear(d, d))
        self.d = nn.Dropout(0.5)

    def forward(self, ids):
        return F.log_softmax(self.h(self.d(torch.relu(self.l(self.e(ids))))), -1)


def tied():
    seed()
    return Tied(), (torch.randint(0, 17, (2, 5)),)


class NonZero(nn.Module):
    def forward(self, x):
        i = torch.nonzero(x > 0)
        v = x[x > 0]
        return i, v * 2, v.sum()


def nonzero():
    seed()
    return NonZero(), (torch.randn(4, 5),)


class CondNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x) * 2, (x,))


def condnet():
    seed()
    return CondNet(), (torch.randn(3, 4),)


class ScanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)

    def forward(self, x):
        def step(c, xt):
            c = torch.tanh(self.w(c) + xt)
            return c, c * 2

        c, ys = scan(step, torch.zeros(x.shape[1], 4), x, dim=0)
        return c, ys


def scannet():
    seed()
    return ScanNet(), (torch.randn(5, 3, 4),)


class WhileNet(nn.Module):
    def forward(self, x):
        def c(i, y):
            return i < 4

        def b(i, y):
            return i + 1, y * 1.5 + 1

        _, y = while_loop(c, b, (torch.tensor(0), x))
        return y


def whilenet():
    seed()
    return WhileNet(), (torch.randn(3, 4),)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5).double()
        self.n = nn.LayerNorm(5).double()

    def forward(self, x):
        y = self.n(torch.special.expit(self.l(x)))
        return (
            torch.linalg.vector_norm(y, dim=-1),
            y.std(-1),
            y.var(0, unbiased=False),
            torch.cdist(y, y),
            y.to(torch.float32),
        )


def f64net():
    seed()
    return Wide(), (torch.randn(3, 5, dtype=torch.float64),)


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8).bfloat16()
        self.n = nn.LayerNorm(8).bfloat16()

    def forward(self, x):
        return self.n(F.gelu(self.l(x))).softmax(-1), self.l(x).float().sum(-1)


def bf16net():
    seed()
    return Half(), (torch.randn(3, 8).bfloat16(),)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.EmbeddingBag(30, 6, mode="mean")
        self.s = nn.EmbeddingBag(30, 6, mode="sum")
        self.m = nn.EmbeddingBag(30, 6, mode="max")
        self.bi = nn.Bilinear(6, 6, 4)

    def forward(self, ids, w):
        a, b = self.b(ids), self.s(ids, per_sample_weights=w)
        return self.bi(a, b), F.cosine_similarity(a, b), F.normalize(a, p=2, dim=-1), self.m(ids)


def bags():
    seed()
    return Bags(), (torch.randint(0, 30, (4, 5)), torch.rand(4, 5))


class TFLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu")
        self.m = nn.MultiheadAttention(16, 2, batch_first=True)
        self.q = nn.Parameter(torch.randn(1, 3, 16))

    def forward(self, x, pad):
        y = self.l(x, src_key_padding_mask=pad)
        p, w = self.m(self.q.expand(x.shape[0], -1, -1), y, y, key_padding_mask=pad)
        return p, w


def tflayer():
    seed()
    m = torch.zeros(2, 7, dtype=torch.bool)
    m[1, 5:] = True
    return TFLayer(), (torch.randn(2, 7, 16), m)


class RelPos(nn.Module):
    def __init__(self, d=8, h=2, w=5):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.t = nn.Parameter(torch.randn(2 * w + 1, h))
        self.w = w

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.reshape(b, t, self.h, -1).transpose(1, 2) for z in self.qkv(x).split(d, -1))
        i = torch.arange(t)
        rel = (i[None] - i[:, None]).clamp(-self.w, self.w) + self.w
        bias = self.t[rel].permute(2, 0, 1)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~causal, -1e9)[None])
        alibi = (i[None] - i[:, None]).abs().float() * -0.1
        a = ((q @ k.mT) * d**-0.5 + alibi).softmax(-1, dtype=torch.float32) @ v
        return torch.cat([y, a], -1).transpose(1, 2).flatten(2), torch.roll(x, 1, 1), torch.flip(x, [1])


def relpos():
    seed()
    return RelPos(), (torch.randn(2, 6, 8),)


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 4, 2))

    def forward(self, x):
        f = torch.fft.rfft(x, dim=1)
        w = torch.view_as_complex(self.w)
        return torch.fft.irfft(f * w, n=x.shape[1], dim=1), f.abs()


def spectral():
    seed()
    return Spectral(), (torch.randn(2, 8, 4),)


class Ssm(nn.Module):
    def __init__(self, d=6, n=4):
        super().__init__()
        self.A = nn.Parameter(torch.rand(d, n))
        self.B = nn.Linear(d, n)
        self.C = nn.Linear(d, n)
        self.dt = nn.Linear(d, d)
        self.D = nn.Parameter(torch.ones(d))
        self.conv = nn.Conv1d(d, d, 3, padding=2, groups=d)

    def forward(self, x):
        b, t, d = x.shape
        x = F.silu(self.conv(x.transpose(1, 2))[..., :t]).transpose(1, 2)
        dt = F.softplus(self.dt(x))
        A = -torch.exp(self.A)
        dA = torch.exp(dt[..., None] * A)
        dB = dt[..., None] * self.B(x)[:, :, None]
        h = torch.zeros(b, d, A.shape[1])
        ys = []
        for k in range(t):
            h = dA[:, k] * h + dB[:, k] * x[:, k, :, None]
            ys.append((h * self.C(x)[:, k, None]).sum(-1))
        return torch.stack(ys, 1) + x * self.D


def ssm():
    seed()
    return Ssm(), (torch.randn(2, 5, 6),)


class Sorter(nn.Module):
    def forward(self, x, k):
        s, i = x.sort(-1, descending=True)
        r = i.argsort(-1)
        c = s.softmax(-1).cumsum(-1)
        keep = (c - s.softmax(-1)) < 0.9
        y = x.masked_fill(~keep.gather(-1, r), -torch.inf).softmax(-1)
        med = x.median(-1).values
        kth = x.kthvalue(2, -1).values
        m = x.amin(-1)
        b = torch.bucketize(x, torch.linspace(-2, 2, 5))
        ss = torch.searchsorted(s.flip(-1).contiguous(), x)
        return y, r, med, kth, m, b, ss, x.take_along_dim(k, -1), torch.quantile(x, 0.5, dim=-1)


def sorter():
    seed()
    return Sorter(), (torch.randn(3, 7), torch.randint(0, 7, (3, 2)))


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Conv1d(4, 8, 5, stride=2), nn.BatchNorm1d(8), nn.PReLU(8), nn.Flatten())
        self.mu = nn.LazyLinear(3)
        self.d = nn.ConvTranspose1d(3, 4, 7, stride=2, padding=2, output_padding=1, dilation=1)
        self.e.eval()

    def forward(self, x):
        h = self.e(x)
        m = self.mu(h)
        z = m + torch.exp(0.5 * m.clamp(-5, 5)) * 0.1
        r = self.d(z[..., None].expand(-1, -1, 4))
        cb = torch.linspace(-1, 1, 18).view(6, 3)
        idx = torch.cdist(z, cb).argmin(-1)
        q = cb[idx]
        q = z + (q - z).detach()
        return (
            r,
            q,
            idx,
            F.mse_loss(q, z),
            F.kl_div(F.log_softmax(z, -1), F.softmax(q, -1), reduction="batchmean"),
            F.cross_entropy(z, idx % 3),
            F.smooth_l1_loss(q, z),
            F.binary_cross_entropy_with_logits(z, (q > 0).float()),
        )


def vae():
    seed()
    m = Vae()
    m(torch.randn(2, 4, 16))
    return m, (torch.randn(2, 4, 16),)


class Loops(nn.Module):
    def __init__(self):
        super().__init__()
        self.ws = nn.ParameterList([nn.Parameter(torch.randn(6, 6) / 3) for _ in range(3)])
        self.c3 = nn.Conv3d(1, 2, 3, padding=1)
        self.mp = nn.MaxPool3d(2)

    def forward(self, x, xs: list):
        def inner(a, n):
            def deeper(b):
                return b @ self.ws[n] + n

            return deeper(a) if n % 2 else torch.sin(deeper(a))

        for n in range(3):
            x = inner(x, n)
        acc = sum(t * (k + 1) for k, t in enumerate(xs))
        a, b = torch.meshgrid(x[0], x[1], indexing="ij")
        v = self.mp(self.c3(acc[:, None]))
        tri = torch.triu(a * b, 1) + torch.diag(x[0]) + torch.diagonal(a).sum()
        return (
            x,
            v,
            tri,
            torch.kron(x[:2, :2], torch.eye(2)),
            torch.outer(x[0], x[1]),
            torch.tensordot(x, self.ws[0], 1),
            torch.addmm(x, x, self.ws[0], beta=0.5, alpha=2),
        )


def loops():
    seed()
    return Loops(), (torch.randn(3, 6), [torch.randn(2, 4, 4, 4), torch.randn(2, 4, 4, 4)])


class RandNet(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)


def randnet():
    seed()
    return RandNet(), (torch.randn(3, 4),)


class Branchy(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


def branchy():
    seed()
    return Branchy(), (torch.randn(3, 4),)


class Unary(nn.Module):
    def forward(self, x):
        p = x.abs() + 0.1
        a = (
            torch.erf(x)
            + torch.erfc(x)
            + torch.erfinv(x.tanh() * 0.9)
            + torch.lgamma(p)
            + torch.digamma(p)
            + torch.special.i0(x)
            + torch.exp2(x)
            + torch.expm1(x)
            + torch.log2(p)
            + torch.log10(p)
            + torch.sinc(x)
        )
        b = (
            torch.acosh(p + 1)
            + torch.asinh(x)
            + torch.atanh(x.tanh() * 0.9)
            + torch.sinh(x)
            + torch.cosh(x)
            + torch.tan(x * 0.3)
            + torch.asin(x.tanh() * 0.9)
            + torch.acos(x.tanh() * 0.9)
            + torch.rsqrt(p)
            + torch.reciprocal(p)
            + torch.square(x)
            + x**3
            + p**x
            + torch.special.xlogy(p, p)
            + torch.logit(p.sigmoid())
            + torch.logaddexp(x, p)
            + torch.deg2rad(x)
            + torch.copysign(p, x)
            + torch.heaviside(x, p)
            + torch.ldexp(x, torch.tensor(2.0))
        )
        c = (
            F.hardswish(x)
            + F.hardsigmoid(x)
            + F.hardtanh(x)
            + F.relu6(x)
            + F.selu(x)
            + F.celu(x)
            + F.softsign(x)
            + F.tanhshrink(x)
            + F.softshrink(x, 0.2)
            + F.hardshrink(x, 0.2)
            + F.threshold(x, 0.1, -0.2)
            + F.logsigmoid(x)
            + F.softmin(x, -1)
            + F.glu(torch.cat([x, x], -1))
            + F.rrelu(x)
            + F.elu(x, 0.7)
            + F.leaky_relu(x)
            + F.softplus(x, 2.0)
        )
        return a, b, c


def unary():
    seed()
    return Unary(), (torch.randn(3, 6),)


class NG(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            y = self.l(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.l(y)
        return z + torch.utils.checkpoint.checkpoint(self.l, x, use_reentrant=False)


def ng():
    seed()
    return NG(), (torch.randn(2, 4),)


class MutIn(nn.Module):
    def forward(self, x, y):
        x.add_(1)
        y[:, 0] = 0
        y[y > 1] = 1.0
        return x * y, x, y


def mutin():
    seed()
    return MutIn(), (torch.randn(2, 4), torch.randn(2, 4))


class Rets(nn.Module):
    def forward(self, x, n: int, flag: bool, opt=None):
        z = x.T if flag else x
        return x, (z, z), [x[0], 3, None, n], x.expand(2, *x.shape), x.new_ones(2)


def rets():
    seed()
    return Rets(), (torch.randn(2, 4), 5, True)


class MaskSel(nn.Module):
    def forward(self, x, m):
        a = torch.masked_select(x, m)
        y = x.clone()
        y[m] = a * 2
        z = x.clone()
        z[m[:, 0]] = 0.0
        w = x.masked_scatter(m, a.flip(0))
        return a, y, z, w


def masksel():
    seed()
    return MaskSel(), (torch.randn(3, 4), torch.rand(3, 4) > 0.5)


class Assoc(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.map import map as tmap

        return tmap(lambda a: a.sin().cumsum(0), x)


def mapnet():
    seed()
    return Assoc(), (torch.randn(3, 4),)
