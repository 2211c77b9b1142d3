"""Modules that once told something: what looks at data only to check it, what torch writes out step by step, what its
own shortcuts change.

As zoo.py: a function returns (module, args) or (module, args, kwargs); test_zoo.py says what is expected of each.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention


def seed():
    torch.manual_seed(0)


class Checked(nn.Module):
    """Checks of data that only raise, in its own code and in torch's."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        assert torch.isfinite(x).all() and not torch.isnan(x).any(), "numbers"
        if not (x.abs() < 1e6).all():
            raise ValueError("too large")
        y = x @ self.w
        return y, F.gaussian_nll_loss(y, x, x.exp()), torch.cov(y.T), torch.corrcoef(y.T)


def checked():
    seed()
    return Checked(), (torch.randn(5, 4),)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, src, tgt):
        return self.t(src, tgt, tgt_mask=self.t.generate_square_subsequent_mask(tgt.shape[1]))


def whole_transformer():
    seed()
    return Whole(), (torch.randn(2, 5, 8), torch.randn(2, 4, 8))


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x, pad):
        return self.e(x, src_key_padding_mask=pad)


def padded_encoder():
    seed()
    return Padded(), (torch.randn(3, 5, 8), torch.arange(5)[None] >= torch.tensor([5, 3, 4])[:, None])


class Flex(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.slopes = nn.Parameter(torch.rand(2))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)

        def score(s, b, h, i, j):
            return torch.where(i >= j, s - self.slopes[h] * (i - j), -float("inf"))

        return flex_attention(q, k, v, score_mod=score).transpose(1, 2).reshape(b, t, d)


def flex():
    seed()
    return Flex(), (torch.randn(2, 8, 16),)


class Carries(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 5)
        self.u = nn.Linear(5, 5, bias=False)

    def forward(self, x):
        def step(carry, xt):
            h, n = carry
            h = torch.tanh(self.w(xt) + self.u(h))
            return (h, n + 1), h.sum(-1)

        start = torch.zeros(x.shape[1], 5), torch.zeros(x.shape[1], dtype=torch.int64)
        (h, n), ys = scan(step, start, x, dim=0)
        return h, ys, n


def several_carries():
    seed()
    return Carries(), (torch.randn(6, 3, 4),)


class Dispatch(nn.Module):
    """An expert that gets one token, or none."""

    def __init__(self):
        super().__init__()
        self.g = nn.Linear(6, 4)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])

    def forward(self, x):
        p = self.g(x).softmax(-1)
        w, chosen = p.topk(2, -1)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, 4).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            k, token = torch.where(mask[e])
            out = out.index_add(0, token, expert(x[token]) * w[token, k, None])
        return out, p


def dispatch():
    seed()
    return Dispatch(), (torch.randn(5, 6),)


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        by = nn.utils.parametrizations.orthogonal
        self.a = by(nn.Linear(4, 4))
        self.b = by(nn.Linear(4, 3), orthogonal_map="householder")
        self.c = by(nn.Linear(4, 4), orthogonal_map="cayley")

    def forward(self, x):
        near = (x @ x.T).fill_diagonal_(2.0).softmax(-1)
        return self.a(x), self.b(x), self.c(x), near @ x


def turned():
    seed()
    return Turned(), (torch.randn(3, 4),)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.b = nn.GRU(12, 5)
        self.c = nn.RNN(5, 3, nonlinearity="relu", bias=False)

    def forward(self, x, h):
        y, (last, cell) = self.a(x, (h, h.cos()))
        z, _ = self.b(y.transpose(0, 1))
        w, end = self.c(z)
        return w, end, last, cell


def layers():
    seed()
    return Layers(), (torch.randn(2, 5, 4), torch.randn(4, 2, 6))


class Ctc(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 7)

    def forward(self, x, targets):
        logs = self.l(x).log_softmax(-1).transpose(0, 1)
        steps = torch.full((x.shape[0],), x.shape[1])
        labels = torch.full((x.shape[0],), targets.shape[1])
        whole = F.ctc_loss(logs, targets, steps, labels, zero_infinity=True)
        return whole, F.ctc_loss(logs, targets.flatten(), steps, labels, reduction="none")


def ctc():
    seed()
    return Ctc(), (torch.randn(2, 8, 5), torch.randint(1, 7, (2, 3)))


class Fourier(nn.Module):
    """Complex weights; slices of a spectrum written in place."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3, 2, 2, dtype=torch.cfloat))

    def forward(self, x):
        f = torch.fft.rfft2(x)
        out = torch.zeros_like(f)
        out[:, :, :2, :2] = torch.einsum("bixy,ioxy->boxy", f[:, :, :2, :2], self.w)
        return torch.fft.irfft2(out, s=x.shape[-2:]), f.abs()


def fourier():
    seed()
    return Fourier(), (torch.randn(2, 3, 6, 8),)
