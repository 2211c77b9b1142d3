"""What stands in for parts of torch while a module is exported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opwright.generator.program import torch_compat as compat  # noqa: E402


def exported(f: Callable[..., Any], *args: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *xs: Any) -> Any:
            return f(*xs)

    return compat.export(Module(), args, {}, [(0,) for _ in args]).module()


def checked(x: Any) -> Any:
    assert torch.isfinite(x).all() and not torch.isnan(x).any(), "numbers"
    if not (x.abs() < 1e6).all():
        raise ValueError("too large")
    if torch.any(x > 1e5) or x.max() > 1e5:
        raise ValueError("too large")
    return x * 2


def test_a_check_that_only_raises_passes() -> None:
    x = torch.randn(3, 2)
    assert torch.equal(exported(checked, x)(torch.ones(4, 2)), 2 * torch.ones(4, 2))
    with pytest.raises(AssertionError):
        checked(x / 0)  # nothing of torch is changed afterwards
    assert "__bool__" not in vars(torch.Tensor)


def masked(x: Any) -> Any:
    x = x.clone()
    low, high = x < 0, x > 1
    if low.any():
        x[low] = 0.5
    if torch.any(high):
        x = x.masked_fill(high, 2.0)
    if not high.any():
        high = None
    return x if high is None else x + high


def test_what_is_done_where_a_mask_holds_is_done_nowhere_where_it_does_not() -> None:
    x = torch.tensor([[0.2, -1.0], [3.0, 0.1]])
    program = exported(masked, x)
    for y in (x, x.abs() / 4, -x):
        assert torch.equal(program(y), masked(y))


def experts(x: Any) -> Any:
    """As mixtures of experts go through those that some token chose."""
    out = torch.zeros_like(x)
    chosen = torch.nn.functional.one_hot((x.sum(1) > 0).long() * 2, 4).T
    for k in torch.greater(chosen.sum(1), 0).nonzero():
        k = k[0]
        if k == 4:
            continue
        at = torch.where(chosen[k])[0]
        if at.numel() == 0:
            continue
        out.index_add_(0, at, x[at] * (k + 1))
    return out


def weighed(x: Any) -> Any:
    """As `experts`, of weights that a number more than there are stands for none of."""
    out, weights = torch.zeros_like(x), torch.arange(1.0, 4.0)
    chosen = torch.nn.functional.one_hot((x.sum(1) > 0).long() * 2, 4).T
    for k in torch.greater(chosen.sum(1), 0).nonzero():
        at = torch.where(chosen[k[0]])[0]
        out.index_add_(0, at, x[at] * weights[k[0]])
    return out


def test_a_place_that_stands_for_nothing_is_left_out() -> None:
    program = exported(weighed, torch.randn(5, 2))
    y = torch.randn(7, 2)
    assert torch.equal(program(y), weighed(y))


def test_a_loop_over_the_places_that_hold_goes_over_all() -> None:
    x, y = torch.randn(5, 2), torch.randn(7, 2)
    program = exported(experts, x)
    assert torch.equal(program(y), experts(y))
    assert torch.equal(program(-y.abs()), experts(-y.abs()))  # one alone is chosen
    assert [list(k) for k in torch.ones(2).nonzero()] == [[0], [1]]  # nothing of torch is changed afterwards


def test_a_choice_is_none() -> None:
    with pytest.raises(Exception, match="data-dependent"):
        exported(lambda x: x * 2 if x.sum() > 0 else x - 1, torch.randn(3, 2))


def test_covariances() -> None:
    x, y = torch.randn(3, 5), torch.randn(6, 5)
    for f in (lambda t: torch.cov(t), lambda t: t.corrcoef(), lambda t: torch.cov(t[0], correction=0)):
        torch.testing.assert_close(exported(f, x)(y), f(y))


def test_a_score_function_of_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slopes = torch.rand(2)

    def attend(q: Any) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.where(i >= j, s - slopes[h] * (i - j), -float("inf"))

        n = q.shape[2]
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
        return flex_attention(q, q, q, score_mod=score) + flex_attention(q, q, q, block_mask=mask)

    x, y = torch.randn(3, 2, 4, 8), torch.randn(5, 2, 4, 8)
    with compat.uncompiled():
        torch.testing.assert_close(exported(attend, x)(y), attend(y))


def test_a_mask_of_a_transformer_is_not_looked_at() -> None:
    layer = torch.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    decoder = torch.nn.TransformerDecoder(layer, 1).eval()

    def decode(x: Any) -> Any:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return decoder(x, x, tgt_mask=mask)

    x, y = torch.randn(3, 4, 8), torch.randn(5, 4, 8)
    torch.testing.assert_close(exported(decode, x)(y), decode(y))


def test_a_scan_of_several_carries_runs_plainly() -> None:
    from torch._higher_order_ops.scan import scan

    def step(carry: Any, x: Any) -> Any:
        a, b = carry
        return (a + x, b + 1), {"s": a * x}

    with compat.uncompiled():
        (a, b), out = scan(step, (torch.zeros(2), torch.zeros(2)), torch.ones(3, 2))
    assert a.tolist() == [3, 3] and b.tolist() == [3, 3] and out["s"].shape == (3, 2)


def test_recurrent_layers_take_any_number_of_steps() -> None:
    class Layers(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.GRU(4, 5, 2, batch_first=True, bidirectional=True)
            self.b = torch.nn.RNN(10, 3, nonlinearity="relu", bias=False)
            self.c = torch.nn.LSTM(3, 4)

        def forward(self, x: Any) -> Any:
            y, h = self.a(x)
            z, k = self.b(y.transpose(0, 1))
            w, (last, cell) = self.c(z)
            return w, last, cell, k, h

    m = Layers().eval()
    program = compat.decompose(compat.export(m, (torch.randn(3, 4, 4),), {}, [(0, 1)]))
    names = {compat.overload_name(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert {"aten.gru.input", "aten.rnn_relu.input", "aten.lstm.input"} <= names
    y = torch.randn(2, 7, 4)
    for got, want in zip(program.module()(y), m(y), strict=True):
        torch.testing.assert_close(got, want)


def test_an_encoder_gives_0_where_a_row_is_padded() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    m = torch.nn.TransformerEncoder(layer, 1, norm=torch.nn.LayerNorm(8)).eval()

    def encode(x: Any, pad: Any) -> Any:
        return m(x, src_key_padding_mask=pad)

    ends, x, y = torch.tensor([4, 2, 3]), torch.randn(3, 4, 8), torch.randn(3, 4, 8)
    left = torch.arange(4)[None] >= ends[:, None]
    graph = exported(encode, x, left)
    for pad in (left, left.flip(1)):
        with torch.no_grad():
            torch.testing.assert_close(graph(y, pad), encode(y, pad))


def test_complex_weights_keep_their_imaginary_parts() -> None:
    m = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.randn(2, dtype=torch.complex64))})
    assert compat.module_in(m, compat.DType.F64)["w"].dtype == torch.complex128


def test_extents_that_vary_stay_ones() -> None:
    def f(x: Any) -> Any:
        order = x.argsort(1)
        near = torch.take_along_dim(x.unsqueeze(-1) * torch.ones(3), order.unsqueeze(-1), 1)
        return (x @ x.mT).fill_diagonal_(2.0) / math.sqrt(x.shape[0]), near, x.take_along_dim(order - 2, 1)

    graph = exported(f, torch.randn(3, 4))
    for x in (torch.randn(3, 4), torch.randn(6, 4)):
        for got, want in zip(graph(x), f(x), strict=True):
            torch.testing.assert_close(got, want)


def test_masks_of_several_functions_are_of_all_indices_at_once() -> None:
    utils = pytest.importorskip("transformers.masking_utils")
    near = utils.and_masks(
        utils.causal_mask_function,
        lambda b, h, q, k: (q - k).abs() < 3,
        lambda b, h, q, k: q.new_ones(()) > 0,
    )

    def mask(x: Any) -> Any:
        places = [torch.arange(n) for n in (x.shape[0], 1, 5, 5)]
        with utils.TransformGetItemToIndex():
            return utils._vmap_expansion_sdpa(utils.and_masks(near, lambda b, h, q, k: x[b, k] > 0))(*places)

    x, y = torch.randn(2, 5), torch.randn(3, 5)
    program = exported(mask, x)
    assert torch.equal(program(y), mask(y))


def test_a_mask_that_nobody_gave_is_made_no_more_while_exporting_than_else() -> None:
    utils = pytest.importorskip("transformers.masking_utils")
    said: list[tuple[bool, bool, bool]] = []

    def skips(x: Any) -> Any:
        said.append(
            tuple(
                bool(utils._ignore_bidirectional_mask_sdpa(given, 5, local))
                for given, local in ((None, None), (None, 3), (x > -9, None))
            )
        )
        return x + 1

    exported(skips, torch.ones(2, 5))
    assert said[-1] == (True, False, False)  # a mask's contents are not known then
    skips(torch.ones(2, 5))
    assert said[-1] == (True, False, True)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (6, 3), (3, 5)])
def test_least_squares_have_extents_that_no_rank_decides(m: int, n: int) -> None:
    a, b = torch.randn(2, m, n, dtype=torch.float64), torch.randn(2, m, 2, dtype=torch.float64)
    program = exported(lambda a, b: torch.linalg.lstsq(a, b).solution, a, b)
    torch.testing.assert_close(program(a, b), torch.linalg.lstsq(a, b).solution)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("total", [False, True])
def test_packed_sequences_are_rows_that_end(kind: str, total: bool) -> None:
    rnn = torch.nn.utils.rnn
    torch.manual_seed(0)
    first = total  # the axis of the batch, too
    net = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=first)

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, lengths: Any) -> Any:
            rows = x if first else x.transpose(0, 1)
            packed = rnn.pack_padded_sequence(rows, lengths, batch_first=first, enforce_sorted=total)
            y, state = self.net(packed)
            return rnn.pad_packed_sequence(
                y, batch_first=first, padding_value=2.0, total_length=x.shape[1] if total else None
            ), state

    given = torch.randn(3, 6, 3), torch.tensor([6, 4, 1])
    program = compat.export(Tagger().eval(), given, {}, [(0, 1), (0,)]).module()
    leaves = torch.utils._pytree.tree_leaves
    for lengths in ([5, 3, 3, 2], [4, 4, 2, 1]) if total else ([2, 5, 3, 3],):
        again = torch.randn(4, 5, 3), torch.tensor(lengths)
        for got, want in zip(leaves(program(*again)), leaves(Tagger()(*again)), strict=True):
            torch.testing.assert_close(got, want)


def test_combinations_are_as_many_as_the_extent_says() -> None:
    x = torch.arange(5)
    for r, again in ((2, False), (3, True), (6, False)):
        program = compat.export(Pick(r, again), (x,), {}, [()]).module()
        assert torch.equal(program(x * 3), torch.combinations(x * 3, r, again))


class Pick(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, r: int, again: bool) -> None:
        super().__init__()
        self.given = r, again

    def forward(self, x: Any) -> Any:
        return torch.combinations(x, *self.given)


def test_a_module_that_has_its_dtype_already_is_left_alone() -> None:
    class Router(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            self.classifier = self.classifier.to(torch.float32)
            return self.classifier(x)

    m, x = Router().eval(), torch.randn(3, 4)
    assert torch.allclose(compat.export(m, (x,), {}, [(0,)]).module()(x), m(x))
