"""Masks of padding that a forward takes are inputs of what is captured of it."""

from __future__ import annotations

from typing import Any

import pytest

from opwright.generator.program import masks
from opwright.generator.program.described import Said

torch = pytest.importorskip("torch")


class Model(torch.nn.Module):  # type: ignore[misc]
    """Of its masks one is heeded, one means something else where it is one, one does nothing, one is of queries."""

    def forward(
        self,
        pixel_values: Any,
        features: Any,
        pixel_mask: Any = None,
        features_mask: Any = None,
        global_attention_mask: Any = None,
        perm_mask: Any = None,
        other_mask: Any = None,
        decoder_attention_mask: Any = None,
    ) -> Any:
        out = features.sum(1)
        if features_mask is not None:
            assert features_mask.dtype is torch.bool
            out = (features * features_mask.unsqueeze(-1)).sum(1)
        if pixel_mask is not None:  # of a large image few places are left
            small = torch.nn.functional.interpolate(pixel_mask[None].float(), size=(2, 2))[0]
            out = out + (1 - small).sum((1, 2)).unsqueeze(1)
        for mask in (global_attention_mask, other_mask):
            out = out if mask is None else out + mask.sum()
        if decoder_attention_mask is not None:
            out = out * decoder_attention_mask.reshape(2, 5).float().mean(1, keepdim=True)
        return out, pixel_values


def test_masks_that_are_heeded_are_found() -> None:
    inputs = {"pixel_values": torch.randn(2, 3, 8, 8), "features": torch.randn(2, 7, 4)}
    found = masks.heeded(Model(), inputs, {"decoder_attention_mask": Said((2, 5), "int")})
    assert {n: (tuple(x.shape), x.dtype) for n, x in found.items()} == {
        "pixel_mask": ((2, 8, 8), torch.int64),
        "features_mask": ((2, 7), torch.bool),
        "decoder_attention_mask": ((2, 5), torch.int64),
    }
    assert all(bool((x == 1).all()) for x in found.values())


def test_padding_is_behind_the_first_row() -> None:
    out = masks.padded(torch.ones(2, 4, dtype=torch.int64))
    assert out.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert masks.padded(torch.ones(1, 4)).tolist() == [[1, 1, 0, 0]]
    assert masks.padded(torch.ones(2, 4, 4))[1].sum() == 4


@pytest.mark.parametrize(
    "name", ["head_mask", "cross_attn_head_mask", "perm_mask", "labels_mask", "input_masks"]
)
def test_what_is_called_a_mask_and_is_of_no_padding(name: str) -> None:
    assert not masks.is_mask(name) and masks.is_mask("decoder_attention_mask")
