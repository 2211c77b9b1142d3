"""What is decomposed by us means what it was, and leaves calls that a row of the table takes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opwright.generator.program import records  # noqa: E402
from opwright.generator.program.capture import capture  # noqa: E402
from opwright.generator.program.captured import Capture  # noqa: E402


class Transforms(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        f = torch.fft
        half = f.rfft2(x, norm="ortho")
        return (
            f.irfft(f.rfft(x, n=12, dim=1), n=12, dim=1),
            f.irfft2(half, s=x.shape[-2:], norm="ortho"),
            torch.view_as_real(f.fft(x, norm="forward")),  # reals, both halves
            torch.view_as_real(f.ifft(half, dim=1)),
            torch.view_as_real(f.fftn(half, dim=(1, 2), norm="ortho")),
            f.hfft(half, dim=-1),
            torch.nn.functional.lp_pool2d(x.abs()[:, None], 2, 2),
            torch.nn.functional.max_pool2d(x[:, None], 2),
            torch.nn.functional.max_pool3d(x[:, None, None], (1, 2, 2)),
            torch.nn.functional.avg_pool3d(x[:, None, None], (1, 2, 3)),
        )


class Bags(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(9, 4))

    def forward(self, ids: Any, starts: Any, x: Any) -> Any:
        bag = torch.nn.functional.embedding_bag
        by = torch.nn.functional.one_hot(ids % 3, 4).to(x.dtype)
        z = torch.complex(by, by.flip(0))
        return (
            bag(ids, self.weight, starts),
            bag(ids, self.weight, starts, mode="sum", per_sample_weights=ids * 0.5),
            bag(ids, self.weight, starts, mode="max", padding_idx=0),
            bag(ids, self.weight, starts, mode="mean", padding_idx=0),
            bag(ids, self.weight, torch.cat([starts, starts[-1:] * 0 + 7]), include_last_offset=True),
            bag((ids % 5)[None].repeat(2, 1), self.weight),
            x.index_reduce(0, ids % 3, by, "amax"),
            x.index_reduce(0, ids % 3, by, "mean", include_self=False),
            z.abs() + (z.conj() * z).real + torch.conj_physical(z).imag,
        )


def test_bags_slices_and_complex_parts_give_what_torch_gives(everything: Any) -> None:
    args = (torch.tensor([3, 0, 8, 1, 0, 0, 5]), torch.tensor([0, 2, 2, 4, 6]), torch.randn(6, 4))
    found = capture(Bags(), args, {}, everything, name="m", source="m")
    left = {c.op for c in found.program.calls}
    assert not left & {"_embedding_bag", "_embedding_bag_forward_only", "index_reduce", "_conj", "abs"}
    for ids, starts in ((args[0], args[1]), (args[0].flip(0), torch.tensor([0, 1, 4, 7, 7]))):
        want = records.eager(Bags(), (ids, starts, args[2]), {})
        have = records.values(found, {"ids": ids, "starts": starts, "x": args[2]})
        for b in found.program.outputs:
            torch.testing.assert_close(have[b.value], want[b.name])


@pytest.fixture(scope="module")
def captured(everything: Any) -> Capture:
    return capture(Transforms(), (torch.randn(3, 5, 8),), {}, everything, name="m", source="m")


def test_transforms_over_several_axes_and_scales_are_plain_sums_over_one(captured: Capture) -> None:
    calls = [c for c in captured.program.calls if c.op.startswith("_fft")]
    assert {c.op for c in calls} == {"_fft_c2c", "_fft_r2c", "_fft_c2r"}
    assert all(len(c.attrs["stride"]) > 1 for c in captured.program.calls if "pool" in c.op)
    for c in calls:
        dim = c.attrs["dim"]
        assert c.attrs["normalization"] == 0 and isinstance(dim, tuple) and len(dim) == 1, c
        assert c.attrs.get("onesided", True) is True, c


@pytest.mark.parametrize("shape", [(3, 5, 8), (2, 5, 8)])
def test_they_give_what_torch_gives(captured: Capture, shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    want = records.eager(Transforms(), (x,), {})
    have = records.values(captured, {"x": x})
    for b in captured.program.outputs:
        torch.testing.assert_close(have[b.value], want[b.name])


def test_the_rows_of_the_registry_take_what_is_left() -> None:
    from opwright.workflows.bridge import aten_rows
    from opwright.workflows.workbench import Workbench

    table = aten_rows(Workbench.here().registry.all())
    found = capture(Transforms(), (torch.randn(3, 5, 8),), {}, table, name="m", source="m", further=True)
    assert not [c.op for c in found.program.calls if c.missing]
    assert {"fft", "rfft", "irfft"} <= {c.op for c in found.program.calls}


@pytest.mark.parametrize("n", [1, 2, 4])
def test_matrices_are_taken_apart_as_lapack_does(n: int) -> None:
    from opwright.generator.program.decompositions import MOST_ROWS, _Algebra

    algebra, linalg = _Algebra(torch), torch.linalg
    draw = torch.Generator().manual_seed(n)
    a = torch.randn(3, n, n, generator=draw, dtype=torch.float64)
    b = torch.randn(3, n, 2, generator=draw, dtype=torch.float64)
    s = a @ a.mT + torch.eye(n)
    low = linalg.cholesky(s)
    for got, want in (
        (algebra.solve(a, b)[0], linalg.solve(a, b)),
        (algebra.solve(a, b.mT, left=False)[0], linalg.solve(a, b.mT, left=False)),
        (algebra.inverse(a)[0], linalg.inv(a)),
        (algebra.det(a)[0], linalg.det(a)),
        (algebra.slogdet(a)[0], linalg.slogdet(a)[0]),
        (algebra.slogdet(a)[1], linalg.slogdet(a)[1]),
        (algebra.cholesky(s)[0], low),
        (algebra.cholesky(s, upper=True)[0], low.mT),
        (algebra.cholesky_solve(b, low), torch.cholesky_solve(b, low)),
        *zip(algebra.qr(b), linalg.qr(b), strict=True),
        *zip(algebra.qr(b.mT), linalg.qr(b.mT), strict=True),
    ):
        torch.testing.assert_close(got, want)
    wide = torch.zeros(MOST_ROWS + 1, MOST_ROWS + 1)
    assert algebra.det(wide) is NotImplemented and algebra.qr(wide) is NotImplemented


def test_windows_with_a_divisor_and_quantisation_are_torch_s() -> None:
    from opwright.generator.program import decompositions as d

    x = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(3))
    for given in ((2, 1, 0, False), ((3, 2), (2, 2), 1, True), (3, (), 1, False), (2, 3, 0, True)):
        want = torch.ops.aten.avg_pool2d(x, *given, divisor_override=5)
        torch.testing.assert_close(d._avg_pool(torch, 2, x, *given, divisor_override=5), want)
    assert d._avg_pool(torch, 2, x, 2) is NotImplemented
    grid = torch.randn(2, 4, 5, 2, generator=torch.Generator().manual_seed(4)) * 2
    for mode, align in ((0, False), (0, True), (1, False)):
        want = torch.ops.aten.grid_sampler_2d(x, grid, mode, 2, align)
        torch.testing.assert_close(
            d._reflected_grid(torch, x, grid, mode, 2, align), want, atol=1e-5, rtol=1e-4
        )
    assert d._reflected_grid(torch, x, grid, 0, 1, False) is NotImplemented
    for padding, align in ((0, False), (0, True), (1, False)):
        want = torch.ops.aten.grid_sampler_2d(x, grid, 2, padding, align)
        torch.testing.assert_close(d._grid(torch, x, grid, 2, padding, align), want, atol=1e-5, rtol=1e-4)
    q = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.07, 3, -8, 7)
    for got, whole in zip(d._fake_quantised(torch, x, 0.07, 3, -8, 7), q, strict=True):
        torch.testing.assert_close(got, whole)
    scale, zero = torch.tensor([0.1, 0.03, 0.2]), torch.tensor([0, 2, -1], dtype=torch.int32)
    per = torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, scale, zero, 1, -8, 7)
    for got, whole in zip(d._fake_quantised_channels(torch, x, scale, zero, 1, -8, 7), per, strict=True):
        torch.testing.assert_close(got, whole)


def test_gradients_pass_straight_through_what_is_within_the_range_of_a_quantisation() -> None:
    from opwright.generator.program import decompositions as d

    # By channels, what PyTorch makes of infinity is a conversion that C++ does not define.
    x = torch.tensor([-3.0, -0.8, -0.01, 0.0, 0.004, 0.7, 9.0, float("nan")])
    scale, zero = torch.tensor([0.03]), torch.tensor([2], dtype=torch.int32)

    def of(f: Any, *args: Any) -> tuple[Any, Any]:
        given = x.clone().requires_grad_()
        y = f(given, *args)
        y = y[0] if isinstance(y, tuple) else y
        y[:7].sum().backward()
        return y.detach(), given.grad

    for ours, theirs in (
        (
            of(lambda t: d._fake_quantised(torch, t, 0.07, 3, -8, 7)),
            of(torch.fake_quantize_per_tensor_affine, 0.07, 3, -8, 7),
        ),
        (
            of(lambda t: d._fake_quantised_channels(torch, t[None], scale, zero, 0, -30, 30)[0][0]),
            of(lambda t: torch.fake_quantize_per_channel_affine(t[None], scale, zero, 0, -30, 30)[0]),
        ),
    ):
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


class Matrices(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, lengths: Any, labels: Any) -> Any:
        fn = torch.nn.functional
        square = x @ x.mT
        logs = x.log_softmax(-1).transpose(0, 1)
        steps = torch.full((x.shape[0],), x.shape[1])
        twos = torch.full((x.shape[0],), 2)
        return (
            torch.matrix_exp(x[:, :4, :4] * torch.tensor([0.1, 1.0, 30.0])[:, None, None]),
            torch.linalg.householder_product(x[0, :4, :3], x[1, 0, :3]),
            square[0].clone().fill_diagonal_(2.0),
            *(torch.segment_reduce(x[:, :3, 0].reshape(-1), how, lengths=lengths) for how in ("sum", "max")),
            torch.segment_reduce(x[0], "mean", lengths=lengths[1:3]),
            fn.ctc_loss(logs, labels, steps, twos, zero_infinity=True),
            fn.ctc_loss(logs, labels.flatten(), steps.to(torch.int32), twos, reduction="none"),
            torch.hamming_window(6),
            torch.blackman_window(5, periodic=False),
            torch.bartlett_window(6),
            torch.kaiser_window(6, False, 5.0),
        )


def test_matrices_segments_and_windows_give_what_torch_gives(everything: Any) -> None:
    args = (torch.randn(3, 6, 5), torch.tensor([2, 0, 6, 1]), torch.randint(1, 5, (3, 2)))
    found = capture(Matrices(), args, {}, everything, name="m", source="m")
    core = found.exported.module()
    for got, want in zip(core(*args), Matrices()(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_filters_of_a_stated_scale_diagonals_and_products_of_bytes_are_torch_s() -> None:
    from opwright.generator.program import decompositions as d

    x = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(5))
    for name, reach, kernel in (("bilinear", 1, d._triangle), ("bicubic", 2, d._half_cubic)):
        op = getattr(torch.ops.aten, f"_upsample_{name}2d_aa").default
        for size, align, h, w in (
            ([4, 9], False, 0.6, 1.6),
            ([9, 4], False, None, 0.7),
            ([5, 5], True, 0.8, 0.8),
        ):
            got = d._filtered(torch, reach, kernel, x, size, align, h, w)
            torch.testing.assert_close(got, op(x, size, align, h, w), atol=1e-5, rtol=1e-4)
        assert d._filtered(torch, reach, kernel, x, [4, 9], False) is NotImplemented
    for offset, dims, n in ((0, (2, 3), 6), (-2, (-2, -1), 5), (1, (3, 0), 1)):
        given = offset, *dims
        source = torch.randn(x.diagonal(*given).shape, generator=torch.Generator().manual_seed(n))
        assert source.shape[-1] == n
        assert torch.equal(d._diagonal_scatter(torch, x, source, *given), x.diagonal_scatter(source, *given))
    a, b = (
        torch.randint(-128, 128, (32, 16), dtype=torch.int8),
        torch.randint(-128, 128, (16, 8), dtype=torch.int8),
    )
    assert torch.equal(d.own(torch)[torch.ops.aten._int_mm.default](a, b), torch._int_mm(a, b))
