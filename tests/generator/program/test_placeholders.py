"""Tokens that stand for features: as many as the model says, where they stay when a text is drawn anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opwright.generator.program import placeholders as at

torch = pytest.importorskip("torch")

WIDTH = 4


def module(**fields: Any) -> Any:
    table = SimpleNamespace(embedding_dim=WIDTH)
    return SimpleNamespace(config=SimpleNamespace(**fields), get_input_embeddings=lambda: table)


def text(length: int = 6) -> dict[str, Any]:
    return {
        "input_ids": torch.arange(3, 3 + 2 * length).reshape(2, length),
        "attention_mask": torch.ones(2, length, dtype=torch.int64),
        "pixel_values": torch.zeros(2, 3, 8, 8),
    }


@pytest.mark.parametrize(
    ("refusal", "token", "each"),
    [
        ("Image features and image tokens do not match, tokens: 0, features: 8", 90, 4),
        ("Audio features and audio tokens do not match: tokens: 0, features 2", 91, 1),
        ("Placeholder tokens (0) and features (6) do not match for token id 92.", 92, 3),
    ],
)
def test_as_many_as_the_model_counts(refusal: str, token: int, each: int) -> None:
    m = module(image_token_id=90, audio_token_index=91, image_start_token_id=93, bos_token_id=1)
    inputs = at.placed(m, text(), refusal)
    assert inputs is not None
    ids = inputs["input_ids"]
    assert (ids == token).sum(1).tolist() == [each, each]
    assert not (ids[:, 0] == token).any()
    assert not (ids[:, -at.TAIL :] == token).any()
    assert inputs["attention_mask"].shape == ids.shape
    assert inputs["pixel_values"].shape == (2, 3, 8, 8)


def test_a_count_of_elements_is_one_of_features_by_their_width() -> None:
    m = module(image_token_id=90)
    says = "Image features and image tokens do not match, tokens: {}, features: 16"
    once = at.placed(m, text(), says.format(0))
    assert once is not None
    again = at.placed(m, once, says.format(16))
    assert again is not None
    assert (again["input_ids"] == 90).sum(1).tolist() == [2, 2]
    assert again["attention_mask"].shape == again["input_ids"].shape
    assert at.placed(m, again, says.format(4)) is None  # that was not it either


def test_another_refusal_places_nothing() -> None:
    assert (
        at.placed(module(image_token_id=90), text(), "shape '[2, 3]' is invalid for input of size 7") is None
    )
    assert at.placed(module(bos_token_id=1), text(), "image tokens: 0, features: 8") is None


def test_new_text_stands_around_the_same_places() -> None:
    m = module(image_token_id=90)
    inputs = at.placed(m, text(), "Image features and image tokens do not match, tokens: 0, features: 8")
    assert inputs is not None
    tokens = at.held(m.config, inputs)
    assert tokens == {"input_ids": [90]}
    drawn = at.kept(inputs["input_ids"], torch.full((3, 20), 90), tokens["input_ids"])
    assert drawn.shape == (3, 20)
    assert (drawn == 90).nonzero()[:, 1].tolist() == [1, 2, 3, 4] * 3
    plain = at.without(inputs, tokens)
    assert sorted(plain) == ["attention_mask", "input_ids"]
    assert not (plain["input_ids"] == 90).any()
