"""More modules that no listed architecture has: routing, graphs, scans, spectra, linear algebra, control flow, state.

As zoo.py: a function returns (module, args) or (module, args, kwargs); test_zoo.py says what is expected of each.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


def seed():
    torch.manual_seed(0)


class CapacityRouter(nn.Module):
    """Tokens sorted by expert, counted, and sent back."""

    def __init__(self, d=6, n=4):
        super().__init__()
        self.g = nn.Linear(d, n)
        self.w = nn.Parameter(torch.randn(n, d, d) / d**0.5)
        self.n = n

    def forward(self, x):
        p = self.g(x).softmax(-1)
        top, e = p.max(-1)
        order = e.argsort(stable=True)
        counts = torch.bincount(e, minlength=self.n)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(x.shape[0]) - starts[e[order]]
        keep = rank < 3
        y = torch.bmm(x[order].unsqueeze(1), self.w[e[order]]).squeeze(1) * keep.unsqueeze(1)
        out = torch.zeros_like(x).index_copy(0, order, y)
        return out * top.unsqueeze(1), counts, rank


def capacity_router():
    seed()
    return CapacityRouter(), (torch.randn(9, 6),)


class Hash(nn.Module):
    """Integers: bits, remainders, searches."""

    def forward(self, ids, keys):
        h = (ids * 2654435761 + 12345) % 1021
        b = torch.bitwise_xor(h, h >> 3) & 63
        at = torch.searchsorted(keys, b, right=True)
        found = torch.isin(b, keys)
        hist = torch.bincount(b.flatten() // 8, minlength=9)
        u = torch.div(ids, 7, rounding_mode="floor") + torch.fmod(ids, 7) + ids.remainder(5)
        return at, found, hist, u, torch.bitwise_not(ids), (ids == 3).nonzero().shape[0] + b


def hashing():
    seed()
    return Hash(), (torch.randint(0, 100, (3, 6)), torch.arange(0, 64, 5))


class PointCloud(nn.Module):
    """k nearest by cdist, gathered, pooled; farthest first by steps."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        d = torch.cdist(x, x)
        near = d.topk(3, largest=False).indices
        nb = torch.gather(
            x.unsqueeze(1).expand(-1, x.shape[1], -1, -1), 2, near.unsqueeze(-1).expand(-1, -1, -1, 3)
        )
        e = torch.cat([nb - x.unsqueeze(2), x.unsqueeze(2).expand_as(nb)], -1)
        y = self.f(e).amax(2)
        far = torch.full(x.shape[:2], 1e9)
        at = torch.zeros(x.shape[0], dtype=torch.long)
        picks = []
        for _ in range(3):
            far = torch.minimum(far, d[torch.arange(x.shape[0]), at])
            at = far.argmax(-1)
            picks.append(at)
        return y, torch.stack(picks, -1)


def point_cloud():
    seed()
    return PointCloud(), (torch.randn(2, 7, 3),)


class MessagePassing(nn.Module):
    def __init__(self, d=5):
        super().__init__()
        self.l = nn.Linear(d, d)
        self.g = nn.GRUCell(d, d)

    def forward(self, x, edge, w):
        src, dst = edge
        n = x.shape[0]
        a = torch.zeros(n, n).index_put((dst, src), w, accumulate=True)
        deg = a.sum(1).clamp(min=1e-6)
        h = (a / deg[:, None].sqrt()) / deg[None].sqrt()
        m = h @ self.l(x)
        top = torch.full((n, x.shape[1]), -1e4).scatter_reduce(
            0, dst[:, None].expand(-1, x.shape[1]), x[src], "amax"
        )
        mean = torch.zeros_like(x).index_reduce(0, dst, x[src], "mean", include_self=False)
        return self.g(m, x), top, mean, torch.trace(h), torch.diag(h)


def message_passing():
    seed()
    return MessagePassing(), (torch.randn(6, 5), torch.randint(0, 6, (2, 15)), torch.rand(15))


class Einsums(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.randn(3, 4, 5))
        self.v = nn.Parameter(torch.randn(4, 4))

    def forward(self, x, y):
        return (
            torch.einsum("bi,ijk,bj->bk", x[:, :3], self.u, y),
            torch.einsum("...i,...j->...ij", x, y),
            torch.einsum("ii->i", self.v),
            torch.einsum("bi,bi->", x, y),
            torch.einsum("ab,cb->ca", x, y),
            torch.einsum("ij,jk,kl->il", x, self.v, self.v.T),
            torch.tensordot(x, self.u, dims=([1], [1])),
        )


def einsums():
    seed()
    return Einsums(), (torch.randn(6, 4), torch.randn(6, 4))


class FNet(nn.Module):
    """Mixing by a Fourier transform over two axes."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(6, 6)
        self.n = nn.LayerNorm(6)

    def forward(self, x):
        y = torch.fft.fft2(x.to(torch.complex64)).real
        y = self.n(x + y)
        s = torch.fft.rfft(y, dim=-1, norm="ortho")
        back = torch.fft.irfft(s * torch.tensor([1.0, 0.5, 0.25, 0.1]), n=6, dim=-1, norm="ortho")
        shift = torch.fft.fftshift(torch.fft.fft(y, dim=1), dim=1).abs()
        return self.f(back) + x, shift, torch.fft.fftfreq(8)


def fnet():
    seed()
    return FNet(), (torch.randn(2, 5, 6),)


class ComplexSsm(nn.Module):
    """A diagonal state space in complex numbers: powers, exponentials, i."""

    def __init__(self, n=4):
        super().__init__()
        self.log = nn.Parameter(torch.rand(n) * 0.5 + 0.1)
        self.im = nn.Parameter(torch.arange(n) * 1.0)
        self.c = nn.Parameter(torch.randn(n, 2))

    def forward(self, u):
        a = torch.exp(-self.log.exp() + 1j * self.im)
        t = torch.arange(u.shape[-1])
        k = (torch.view_as_complex(self.c)[:, None] * a[:, None] ** t).sum(0).real * 2
        n = 2 * u.shape[-1]
        y = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)[..., : u.shape[-1]]
        z = u.to(torch.complex64) * a[0] + a[1].conj()
        return y, z.abs(), z.angle(), (z * z.conj()).real, torch.view_as_real(z / (z + 2))


def complex_ssm():
    seed()
    return ComplexSsm(), (torch.randn(2, 6),)


class Nucleus(nn.Module):
    """Choosing tokens: top k, nucleus, a penalty for repeats; nothing is drawn."""

    def forward(self, logits, seen):
        got = torch.gather(logits, -1, seen)
        got = torch.where(got < 0, got * 1.2, got / 1.2)
        x = logits.scatter(-1, seen, got)
        v, i = torch.sort(x, descending=True, dim=-1)
        drop = (v.softmax(-1).cumsum(-1) > 0.8).roll(1, -1)
        drop[..., 0] = False
        x = x.masked_fill(drop.scatter(-1, i, drop), -torch.inf)
        kth = x.topk(4).values[..., -1:]
        p = torch.where(x < kth, torch.full_like(x, -torch.inf), x).softmax(-1)
        return p, p.argmax(-1), torch.distributions.Categorical(probs=p + 1e-6).entropy()


def nucleus():
    seed()
    return Nucleus(), (torch.randn(3, 9), torch.randint(0, 9, (3, 2)))


class Scans(nn.Module):
    def forward(self, x):
        p = x.sigmoid()
        m, i = torch.cummin(x, 1)
        return (
            torch.logcumsumexp(x, 1),
            torch.cumprod(p, -1),
            m,
            i,
            x.flip(1).cumsum(1).flip(1),
            torch.diff(x, n=2, dim=1, prepend=x[:, :1]),
            torch.trapezoid(x, dx=0.5, dim=1),
            associative_scan(
                lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (p, x), 1, combine_mode="generic"
            )[1],
        )


def scans():
    seed()
    return Scans(), (torch.randn(2, 6, 3),)


class Solver(nn.Module):
    """Linear algebra on small matrices."""

    def forward(self, a, b):
        s = a @ a.mT + 0.5 * torch.eye(a.shape[-1])
        c = torch.linalg.cholesky(s)
        return (
            torch.linalg.solve(s, b),
            torch.linalg.inv(s),
            torch.linalg.det(s),
            torch.linalg.slogdet(s).logabsdet,
            torch.cholesky_solve(b, c),
            torch.linalg.solve_triangular(c, b, upper=False),
            torch.linalg.matrix_power(a, 3),
        )


def solver():
    seed()
    return Solver(), (torch.randn(2, 3, 3), torch.randn(2, 3, 2))


class Spectrum(nn.Module):
    """Decompositions that are unique but for signs."""

    def forward(self, a):
        s = a @ a.mT + torch.diag(torch.arange(a.shape[-2]) * 1.0)
        w, v = torch.linalg.eigh(s)
        u, d, vh = torch.linalg.svd(a, full_matrices=False)
        q, r = torch.linalg.qr(a)
        return w, (v * w.unsqueeze(-2)) @ v.mT, d, (u * d.unsqueeze(-2)) @ vh, q @ r, torch.linalg.pinv(a)


def spectrum():
    seed()
    return Spectrum(), (torch.randn(2, 3, 3),)


class Kalman(nn.Module):
    """A filter over time with an inverse in each step."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.eye(2) + 0.1 * torch.randn(2, 2))
        self.h = nn.Parameter(torch.randn(2, 2))

    def forward(self, z):
        x, p = torch.zeros(z.shape[0], 2, 1), torch.eye(2).expand(z.shape[0], 2, 2)
        out = []
        for t in range(z.shape[1]):
            x, p = self.a @ x, self.a @ p @ self.a.T + 0.1 * torch.eye(2)
            s = self.h @ p @ self.h.T + 0.2 * torch.eye(2)
            k = p @ self.h.T @ torch.inverse(s)
            x = x + k @ (z[:, t, :, None] - self.h @ x)
            p = (torch.eye(2) - k @ self.h) @ p
            out.append(x.squeeze(-1))
        return torch.stack(out, 1), p


def kalman():
    seed()
    return Kalman(), (torch.randn(2, 4, 2),)


class Trees(nn.Module):
    """A tree of tests, buckets, quantiles."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-1.0, -0.2, 0.3, 1.1]))
        self.t = nn.Parameter(torch.randn(5, 3))

    def forward(self, x):
        b = torch.bucketize(x, self.edges)
        y = self.t[b]
        z = torch.where(x > 0, torch.where(x > 1, x.log1p(), x * 0.5), torch.where(x < -1, -x, x.exp()))
        piece = torch.minimum(torch.maximum(x, -torch.ones(())), x.new_tensor(0.5))
        q = torch.quantile(x, torch.tensor([0.25, 0.75]), dim=1)
        h = torch.histc(x, bins=5, min=-2, max=2)
        sel = torch.select_scatter(z, piece[:, 0], 1, 2)
        st = z.clone()
        st[:, ::2] = piece[:, ::2]
        return y.sum(-1), z, piece, q, h, sel, st, x.nan_to_num().isclose(z), torch.signbit(x)


def trees():
    seed()
    return Trees(), (torch.randn(3, 6),)


class Unique(nn.Module):
    """Results whose extents the data tell."""

    def forward(self, ids, x):
        u, inv, n = torch.unique(ids, return_inverse=True, return_counts=True)
        s = torch.zeros(u.shape[0], x.shape[1]).index_add(0, inv, x)
        return u, s / n[:, None], x[ids > 2].sum(0), torch.repeat_interleave(x, ids % 3, dim=0)


def unique():
    seed()
    return Unique(), (torch.randint(0, 6, (8,)), torch.randn(8, 3))


class Branches(nn.Module):
    """cond within scan, and a while that counts."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)

    def forward(self, x, flag):
        y = torch.cond(flag.any(), lambda a: self.l(a).tanh(), lambda a: a - 1.0, (x[0],))

        def step(c, xt):
            c = 0.5 * c + self.l(xt).sigmoid()
            return c, c.amax(-1)

        c, ys = scan(step, y, x, dim=0)
        _, z = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 0.5 + 1), (torch.tensor(0), c))
        return z, ys


def branches():
    seed()
    return Branches(), (torch.randn(4, 2, 3), torch.tensor([False, True]))


class DataLoop(nn.Module):
    """Ends when its data says so: no program can say it."""

    def forward(self, x):
        return while_loop(lambda a: a.sum() < 100, lambda a: (a * 2,), (x.abs() + 0.1,))[0]


def data_loop():
    seed()
    return DataLoop(), (torch.randn(3),)


class Momentum(nn.Module):
    """State in buffers, what it is given is written, views of intermediates are written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("m", torch.zeros(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x, cache, at):
        self.steps.add_(1)
        self.m.lerp_(x.mean(0), 0.1)
        cache.index_copy_(0, at, x)
        y = x.clone()
        v = y.view(-1)
        v[1::2] *= -1
        y[:, 1].clamp_(-0.5, 0.5)
        y.diagonal().fill_(1.0)
        return y, self.m + cache.mean(0), self.steps


def momentum():
    seed()
    return Momentum(), (torch.randn(3, 3), torch.zeros(6, 3), torch.tensor([1, 4, 5]))


class Noise(nn.Module):
    """Draws: no record can be compared."""

    def forward(self, x):
        return x * torch.bernoulli(torch.full_like(x, 0.5)) + torch.rand(x.shape)


def noise():
    seed()
    return Noise(), (torch.randn(3, 4),)


class Empties(nn.Module):
    """A batch of nothing, next to one of something."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)

    def forward(self, x, y):
        return self.l(torch.cat([x, y])), self.l(y).sum(0), y.prod(0)


def empties():
    seed()
    return Empties(), (torch.randn(3, 4), torch.randn(0, 4))


class Alibi(nn.Module):
    """Attention with learned slopes, sinks, a soft cap and a window, written out; grouped keys repeated."""

    def __init__(self, d=8, h=4):
        super().__init__()
        self.q, self.kv = nn.Linear(d, d), nn.Linear(d, d)
        self.s = nn.Parameter(torch.rand(h))
        self.sink = nn.Parameter(torch.zeros(h))
        self.h = h

    def forward(self, x):
        b, t, d = x.shape
        q = self.q(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.h // 2, -1)).permute(2, 0, 3, 1, 4)
        k, v = (z.repeat_interleave(2, dim=1) for z in (k, v))
        i = torch.arange(t)
        far = i[:, None] - i[None]
        a = 5.0 * torch.tanh(q @ k.mT / (d**0.5 * 5.0)) - self.s[:, None, None] * far.abs()
        a = a.masked_fill((far < 0) | (far > 3), torch.finfo(a.dtype).min)
        a = torch.cat([a, self.sink[None, :, None, None].expand(b, -1, t, 1)], -1).softmax(-1)[..., :-1]
        return (a @ v).transpose(1, 2).reshape(b, t, d)


def alibi():
    seed()
    return Alibi(), (torch.randn(2, 6, 8),)


class Delta(nn.Module):
    """A fast-weight memory written and read step by step, then in chunks by triangular sums."""

    def __init__(self, d=4):
        super().__init__()
        self.p = nn.Linear(d, 3 * d + 1)

    def forward(self, x):
        d = x.shape[-1]
        q, k, v, beta = self.p(x).split([d, d, d, 1], -1)
        k = F.normalize(k, dim=-1)
        beta = beta.sigmoid()
        s = x.new_zeros(x.shape[0], d, d)
        ys = []
        for t in range(x.shape[1]):
            old = torch.einsum("bij,bj->bi", s, k[:, t])
            s = s + torch.einsum("bi,bj->bij", beta[:, t] * (v[:, t] - old), k[:, t])
            ys.append(torch.einsum("bij,bj->bi", s, q[:, t]))
        lin = torch.tril(q @ k.mT) @ v
        return torch.stack(ys, 1), lin, torch.kron(s[0], torch.ones(1, 2)), torch.block_diag(s[0], s[1])


def delta():
    seed()
    return Delta(), (torch.randn(2, 5, 4),)


class Physics(nn.Module):
    """Special functions, cross products, roots of unity, angles."""

    def forward(self, a, b):
        n = torch.linalg.cross(a, b)
        r = a.norm(dim=-1).clamp_min(0.1)
        j = (
            torch.special.i1(r)
            + torch.special.erfcx(r)
            + torch.special.log_ndtr(a[..., 0])
            + torch.special.zeta(r + 2, 2.0)
        )
        ang = torch.atan2(n.norm(dim=-1), (a * b).sum(-1))
        return (
            n,
            j,
            ang,
            torch.hypot(r, ang),
            torch.polar(r, ang).real,
            torch.vander(r, 3),
            torch.special.entr(r),
        )


def physics():
    seed()
    return Physics(), (torch.randn(5, 3), torch.randn(5, 3))
