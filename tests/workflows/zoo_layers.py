"""More modules that no listed architecture has: layers of torch.nn and what models put between them.

As zoo.py: a function returns (module, args) or (module, args, kwargs); test_zoo.py says what is expected of each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812


def seed():
    torch.manual_seed(0)


class BiGRU(nn.Module):
    """Two directions of two layers, states by hand, what is behind the end of a row masked."""

    def __init__(self):
        super().__init__()
        self.r = nn.GRU(5, 6, 2, bidirectional=True, batch_first=True)
        self.a = nn.Linear(12, 1)

    def forward(self, x, lengths):
        h0 = x.new_full((4, x.shape[0], 6), 0.1)
        y, h = self.r(x, h0)
        dead = torch.arange(x.shape[1]) >= lengths.unsqueeze(1)
        w = self.a(y).squeeze(-1).masked_fill(dead, float("-inf")).softmax(1)
        return torch.einsum("bt,btd->bd", w, y), h.transpose(0, 1).flatten(1)


def bigru():
    seed()
    return BiGRU(), (torch.randn(3, 7, 5), torch.tensor([7, 3, 5]))


class ProjectedLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(4, 8, proj_size=3)

    def forward(self, x):
        y, (h, c) = self.r(x)
        return y, h, c


def lstm_proj():
    seed()
    return ProjectedLSTM(), (torch.randn(6, 2, 4),)


class ElmanStack(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.RNN(4, 5, nonlinearity="relu", batch_first=True)
        self.b = nn.RNN(5, 5, nonlinearity="tanh", bias=False, batch_first=True)
        self.c = nn.LSTMCell(5, 3)

    def forward(self, x):
        y, _ = self.a(x)
        y, _ = self.b(y)
        h = (x.new_zeros(x.shape[0], 3), x.new_zeros(x.shape[0], 3))
        for t in (0, -1):
            h = self.c(y[:, t], h)
        return h


def elman():
    seed()
    return ElmanStack(), (torch.randn(2, 6, 4),)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.3, batch_first=True)
        self.e = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(12), enable_nested_tensor=False)
        self.p = nn.Embedding(32, 12)

    def forward(self, x):
        t = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        return self.e(x + self.p(torch.arange(t)), mask=mask, is_causal=True)


def encoder():
    seed()
    return Encoder().eval(), (torch.randn(2, 6, 12),)


class DecoderCross(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.m = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, add_bias_kv=True, batch_first=True)

    def forward(self, x, memory, k, v, pad):
        y = self.d(x, memory, memory_key_padding_mask=pad)
        out, w = self.m(y, k, v, average_attn_weights=False)
        return out, w


def decoder_cross():
    seed()
    pad = torch.zeros(2, 4, dtype=torch.bool)
    pad[0, 3] = True
    args = (torch.randn(2, 5, 8), torch.randn(2, 4, 8), torch.randn(2, 3, 6), torch.randn(2, 3, 5), pad)
    return DecoderCross().eval(), args


class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(4, 6, 4, padding="same", dilation=2, groups=2)
        self.b = nn.ConvTranspose3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 0, 1))
        self.c = nn.Conv2d(6, 4, (1, 3), padding=(0, 2), padding_mode="circular")
        self.d = nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate", groups=4, bias=False)

    def forward(self, x, v):
        y = self.a(x)
        z = self.d(self.c(y.unsqueeze(2)))
        return F.hardswish(z), self.b(v)


def convs():
    seed()
    return Convs(), (torch.randn(2, 4, 9), torch.randn(1, 2, 2, 3, 4))


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(6)
        self.gn = nn.GroupNorm(3, 6)
        self.inn = nn.InstanceNorm1d(6)
        self.ln = nn.LayerNorm([6, 4], elementwise_affine=False)
        self.lrn = nn.LocalResponseNorm(3)
        self.bn.running_mean.uniform_(-1, 1)
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = self.gn(self.bn(x))
        z = self.inn(y.flatten(2))
        return self.ln(y.mean(2)[..., :4]), z, self.lrn(x), F.normalize(y, p=1, dim=1)


def norms():
    seed()
    return Norms().eval(), (torch.randn(2, 6, 3, 5),)


class BatchStatistics(nn.Module):
    """Training-mode statistics without running ones."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        y = self.bn(x)
        v, m = torch.var_mean(x, dim=(0, 2), correction=0, keepdim=True)
        return y, (x - m) * torch.rsqrt(v + 1e-5), torch.std_mean(x, dim=1)


def batch_statistics():
    seed()
    return BatchStatistics().train(), (torch.randn(3, 4, 5),)


class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.MaxUnpool2d(2)

    def forward(self, x):
        m, i = F.max_pool2d(x, 2, return_indices=True)
        return (
            self.up(m, i, output_size=x.shape[-2:]),
            F.avg_pool2d(x, 2, stride=1, divisor_override=3),
            F.lp_pool2d(x.abs() + 0.1, 2, 2),
            F.adaptive_max_pool1d(x.flatten(1, 2), 3),
            F.avg_pool1d(x[:, :, 0], 3, 2, padding=1, count_include_pad=False),
            F.max_pool2d(x, 3, 2, padding=1, dilation=1, ceil_mode=True),
        )


def pools():
    seed()
    return Pools(), (torch.randn(2, 3, 6, 8),)


class Shuffles(nn.Module):
    def forward(self, x):
        y = F.channel_shuffle(x, 4)
        z = F.pixel_shuffle(y, 2)
        u = F.unfold(z, (2, 3), dilation=(1, 2), stride=(2, 1), padding=(0, 1))
        w = F.pad(z, (1, 2, -1, 1), mode="constant", value=0.5)
        r = F.pad(z, (2, 1, 1, 2), mode="reflect")
        return z, u, w, r, torch.rot90(z, 1, (2, 3)), z.unflatten(1, (1, 2)).movedim(2, 0)


def shuffles():
    seed()
    return Shuffles(), (torch.randn(2, 8, 4, 5),)


class Warp(nn.Module):
    """Sampling by a grid, in every way of going over the edge."""

    def forward(self, x, flow):
        h, w = x.shape[-2:]
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack([xs, ys], -1)[None] + flow.permute(0, 2, 3, 1) * 1.5
        return tuple(
            F.grid_sample(x, grid, mode=mode, padding_mode=pad, align_corners=align)
            for mode, pad, align in (
                ("bilinear", "zeros", True),
                ("bilinear", "reflection", False),
                ("nearest", "border", False),
                ("bilinear", "reflection", True),
            )
        )


def warp():
    seed()
    return Warp(), (torch.randn(2, 3, 5, 6), torch.randn(2, 2, 5, 6))


class Pyramid(nn.Module):
    def forward(self, x):
        half = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
        up = F.interpolate(half, scale_factor=2.0, mode="nearest")
        exact = F.interpolate(x, size=(7, 9), mode="nearest-exact")
        area = F.interpolate(x, size=(3, 4), mode="area")
        line = F.interpolate(x.flatten(2), size=11, mode="linear", align_corners=True)
        return half, up + x, exact, area, line


def pyramid():
    seed()
    return Pyramid(), (torch.randn(2, 3, 8, 6),)


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.s = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.SiLU(), nn.Conv2d(2, 4, 1))
        self.o = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(5), nn.Softplus())

    def forward(self, x):
        y = self.d(x)
        return self.o(y * self.s(y).sigmoid())


def squeeze_excite():
    seed()
    m = SqueezeExcite().eval()
    m(torch.randn(1, 4, 6, 6))
    return m, (torch.randn(2, 4, 6, 6),)


class Bags(nn.Module):
    """Bags by offsets, weights of rows, a padding row."""

    def __init__(self):
        super().__init__()
        self.b = nn.EmbeddingBag(20, 5, mode="sum", padding_idx=0)
        self.e = nn.Embedding(20, 5, max_norm=None, scale_grad_by_freq=True)

    def forward(self, ids, offsets, w):
        return self.b(ids, offsets, per_sample_weights=w), self.e(ids).cumsum(0)


def offset_bags():
    seed()
    return Bags(), (torch.randint(0, 20, (9,)), torch.tensor([0, 3, 3, 7]), torch.rand(9))


class Losses(nn.Module):
    def forward(self, x, target, y):
        logp = F.log_softmax(x, -1)
        return {
            "ce": F.cross_entropy(x, target, label_smoothing=0.1, ignore_index=1),
            "nll": F.nll_loss(logp, target, reduction="none"),
            "kl": F.kl_div(logp, y, reduction="batchmean"),
            "huber": F.huber_loss(x, y, delta=0.5),
            "cos": F.cosine_embedding_loss(x, y, torch.ones(x.shape[0])),
            "triplet": F.triplet_margin_loss(x, y, x.flip(0)),
            "poisson": F.poisson_nll_loss(x, y),
            "soft": F.soft_margin_loss(x, (y > 0.2).float() * 2 - 1),
            "multi": F.multi_margin_loss(x, target),
            "pair": F.pairwise_distance(x, y),
        }


def losses():
    seed()
    return Losses(), (torch.randn(4, 5), torch.tensor([0, 2, 1, 4]), torch.rand(4, 5).softmax(-1))


class Gaussian(nn.Module):
    """A loss that looks at its data and raises."""

    def forward(self, x, y):
        return F.gaussian_nll_loss(x, y, y + 0.5)


def gaussian():
    seed()
    return Gaussian(), (torch.randn(4, 5), torch.rand(4, 5))


class Quantised(nn.Module):
    """Rounding that learns straight through, by hand and by torch's own."""

    def forward(self, x):
        s = x.abs().amax(-1, keepdim=True).clamp_min(1e-4) / 127
        q = torch.clamp(torch.round(x / s), -128, 127)
        i8 = q.to(torch.int8)
        f = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255)
        c = torch.fake_quantize_per_channel_affine(
            x, torch.tensor([0.1, 0.05, 0.02]), torch.zeros(3, dtype=torch.int32), 0, -8, 7
        )
        return x + (q * s - x).detach(), i8, i8.to(torch.int32).sum(-1), f, c


def quantised():
    seed()
    return Quantised(), (torch.randn(3, 8),)


class Moments(NamedTuple):
    mean: torch.Tensor
    extra: dict


class Mixture(nn.Module):
    """A named tuple of a dict of lists, scalars made of extents, non-contiguous inputs."""

    def __init__(self):
        super().__init__()
        self.w = nn.ParameterDict({"a": nn.Parameter(torch.randn(4, 4)), "b": nn.Parameter(torch.randn(4))})

    def forward(self, x):
        n = x.shape[0] * x.shape[1]
        y = (x @ self.w["a"]).addcmul(self.w["b"], x, value=0.5) / n**0.5
        return Moments(y.mean(0), {"parts": list(y.tensor_split(2, -1)), "n": torch.tensor(1.0) * n})


def mixture():
    seed()
    return Mixture(), (torch.randn(5, 3, 4).transpose(0, 1),)


class DoubleHalf(nn.Module):
    """bf16 in, f64 inside, f32 out."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 6, dtype=torch.bfloat16)

    def forward(self, x, y):
        h = torch.tanh(self.l(x))
        wide = h.double() @ y.double().T
        return wide.logsumexp(-1), wide.float().softmax(-1).to(torch.bfloat16), h.amax()


def double_half():
    seed()
    return DoubleHalf(), (torch.randn(3, 6).bfloat16(), torch.randn(4, 6).bfloat16())


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
        self.t = nn.Parameter(torch.tensor(0.5))
        self.bi = nn.Bilinear(4, 4, 2)

    def forward(self, a, b):
        u, v = F.normalize(self.f(a), dim=-1), F.normalize(self.f(b), dim=-1)
        s = u @ v.T * self.t.exp()
        labels = torch.arange(a.shape[0])
        return (
            (F.cross_entropy(s, labels) + F.cross_entropy(s.T, labels)) / 2,
            self.bi(u, v),
            torch.cdist(u, v, p=1.0),
        )


def siamese():
    seed()
    return Siamese(), (torch.randn(4, 6), torch.randn(4, 6))
