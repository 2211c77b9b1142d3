"""Shapes that the documentation of a `forward` says."""

from __future__ import annotations

from opwright.generator.program.described import Said, described


def forward() -> None:
    """
    input_ids (`torch.LongTensor` of shape `(batch_size, sequence_length)`):
        Words.
    marks (`torch.LongTensor` of shape `(num_marks,)`, *optional*):
        Where they stand.
    boxes (`torch.Tensor` of shape `(batch_size, num_boxes, 4)`):
    wide (`torch.FloatTensor` of shape `(batch_size, 2 * config.hidden_size + 1)`, *optional*):
    at (`torch.LongTensor` of shape `(batch_size, max_patches, 2)`):
    held (`torch.BoolTensor` of shape `(batch_size, num_heads)`):
    strange (`torch.FloatTensor` of shape `(batch_size, whatever)`):
    cache (`Cache`, *optional*):
    """


def test_extents_are_numbers_fields_words_and_what_is_made_of_them() -> None:
    fields = {"hidden_size": 8, "num_heads": 6, "batch_size": 100}
    assert described(forward, fields.get) == {
        "input_ids": Said((2, 16), "int"),
        "marks": Said((2,), "int"),
        "boxes": Said((2, 2, 4), "float"),
        "wide": Said((2, 17), "float"),
        "at": Said((2, 16, 2), "int"),
        "held": Said((2, 6), "bool"),
    }


def test_who_documents_nothing_is_asked_in_vain() -> None:
    assert described(lambda x: x, {}.get) == {}
