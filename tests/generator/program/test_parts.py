"""What is made from a configuration that is a part of another: its classes, and what its owner gives it."""

from __future__ import annotations

import pytest

from opwright.generator.program import models, parts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def _config(model_type: str) -> type:
    models.model_types()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]  # type: ignore[no-any-return]


def test_plain_modules_that_say_what_they_take_are_found_and_those_of_its_own_name_come_first() -> None:
    found = [c.__name__ for _, c in parts.classes(_config("sam_mask_decoder"))]
    assert found[0] == "SamMaskDecoder"
    assert not any(parts.is_model(c) for _, c in parts.classes(_config("sam_mask_decoder")))


def test_models_are_looked_for_in_all_of_a_package() -> None:
    assert next(c.__name__ for _, c in parts.classes(_config("blip_text_model"))).startswith("BlipText")


def test_owners_are_the_types_whose_configuration_holds_one() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert parts.owners(_config("sam_mask_decoder"), CONFIG_MAPPING_NAMES) == ["sam"]
    assert parts.owners(_config("llama"), CONFIG_MAPPING_NAMES) == []


class PartConfig:
    pass


class Part(torch.nn.Module):
    def forward(self, x, scale=2, *, mask=None, flag=False):  # type: ignore[no-untyped-def]
        return x * scale if mask is None else x * mask


class Unused(Part):
    pass


class Owner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused, self.part = Unused(), Part()
        self.unused.config = self.part.config = PartConfig()  # type: ignore[assignment]

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.part(x + 1, 3, flag=False)


def test_a_part_gets_what_its_owner_gives_it_by_name_but_defaults() -> None:
    owner = Owner()
    found = parts.within(owner, PartConfig, {"x": torch.zeros(2, 3)})
    assert found is not None
    part, inputs = found
    assert part is owner.part
    assert sorted(inputs) == ["scale", "x"] and inputs["scale"] == 3
    assert torch.equal(inputs["x"], torch.ones(2, 3))


def test_what_an_owner_has_not_is_not_found() -> None:
    assert parts.within(Owner(), dict, {"x": torch.zeros(2, 3)}) is None


def test_a_mask_decoder_runs_on_what_its_owner_makes_of_an_image() -> None:
    model = models.load("sam3_mask_decoder")
    assert model.meta["part_of"] == "sam3" and model.meta["model_class"] == "Sam3MaskDecoder"
    assert isinstance(model.kwargs["backbone_features"], list)
    with torch.no_grad():
        assert model.module(**model.kwargs)


class Holder(torch.nn.Module):
    """What says in methods only how its parts follow each other."""

    def __init__(self) -> None:
        super().__init__()
        self.config = PartConfig()
        self.plain, self.first, self.second = Part(), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


def test_of_what_has_no_forward_the_first_part_with_weights_runs() -> None:
    holder = Holder()
    module, name = models._that_runs(holder)
    assert module is holder.first and name == "first" and module.config is holder.config
    assert models._that_runs(holder.plain) == (holder.plain, "")


def test_a_model_without_a_forward_is_found_where_nothing_else_is() -> None:
    model = models.load("bark")
    assert model.meta["part_of"] == "BarkModel" and model.meta["model_class"] == "BarkSemanticModel"
