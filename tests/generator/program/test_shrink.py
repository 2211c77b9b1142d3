"""Shrinking: fields by meaning, on made-up configurations and on a few real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from opwright.generator.program.shrink import attempts, shrink


class Config:
    """What every configuration of transformers has."""

    model_type = "made-up"

    def to_diff_dict(self) -> dict[str, Any]:
        return {}


@dataclass
class Decoder(Config):
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    max_position_embeddings: int = 2048
    type_vocab_size: int = 2
    use_cache: bool = True
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    pad_token_id: int = 31999
    eos_token_id: Any = 2
    image_token_id: int = 31000
    video_token_id: int = 31001


def test_sizes_by_meaning() -> None:
    assert shrink(Decoder) == {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "image_token_id": 127,
        "video_token_id": 126,
    }


def test_nothing_grows() -> None:
    @dataclass
    class Small(Decoder):
        hidden_size: int = 32
        num_hidden_layers: int = 1
        vocab_size: int = 100

    assert not {"hidden_size", "num_hidden_layers", "vocab_size"} & shrink(Small).keys()


@dataclass
class Mixed(Config):
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    layer_types: list[str] = field(default_factory=lambda: (["sliding"] * 5 + ["full"]) * 4)
    no_rope_layers: list[int] = field(default_factory=lambda: [1] * 24)
    num_local_experts: int = 64
    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 1408
    n_routed_experts: int = 256
    first_k_dense_replace: int = 3
    sliding_window: int = 4096
    kv_lora_rank: int = 512
    num_key_value_heads: int = 16


def test_layers_keep_every_kind() -> None:
    got = shrink(Mixed)
    assert (
        got["num_hidden_layers"] == 2
        and got["layer_types"] == ["sliding", "full"]
        and got["no_rope_layers"] == [1, 1]
    )
    assert got["first_k_dense_replace"] == 1 and got["sliding_window"] == 8


@dataclass
class Shared(Config):
    """Works out what nobody gives; layers of one kind share weights, which takes two of them."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    attention_hidden_size: int | None = None
    layer_types: list[str] | None = None

    def __post_init__(self) -> None:
        self.attention_hidden_size = self.attention_hidden_size or 2 * self.hidden_size
        self.layer_types = self.layer_types or ["plain", "shared", *(["plain"] * 4 + ["shared"]) * 2]


def test_what_a_configuration_works_out_is_worked_out_again() -> None:
    assert shrink(Shared)["layer_types"] == ["plain", "shared"]
    kwargs = shrink(Shared, without=frozenset({"derived", "twice"}))
    assert kwargs["layer_types"] == ["plain", "shared", "plain", "shared"]
    assert kwargs["num_hidden_layers"] == 4
    assert "attention_hidden_size" not in kwargs and Shared(**kwargs).attention_hidden_size == 128
    assert kwargs in list(attempts(Shared))


@dataclass
class Stages(Config):
    hidden_sizes: Any = (96, 192, 384, 768)
    num_hidden_layers: int = 12


def test_channels_of_stages_keep_their_ratios() -> None:
    assert shrink(Stages)["hidden_sizes"] == (48, 96, 192, 384)
    assert "hidden_sizes" not in shrink(Stages, without=frozenset({"channels"}))
    assert "hidden_sizes" not in shrink(StagedHeads)


@dataclass
class Scaled(Config):
    depth_coefficient: float = 3.1
    width_coefficient: float = 2.0
    num_block_repeats: Any = (1, 2, 3)


def test_factors_on_depth_are_taken_out() -> None:
    assert shrink(Scaled) == {"depth_coefficient": 1.0, "num_block_repeats": (1, 1, 1)}


@dataclass
class StagedHeads(Stages):
    num_heads: Any = (3, 6, 12, 24)


def test_a_series_is_predicted_so_far_and_has_times() -> None:
    @dataclass
    class Series(Config):
        prediction_length: int | None = None
        num_time_features: int = 0

    assert shrink(Series) == {"prediction_length": 16, "num_time_features": 2}
    given = Series(24, 3)
    assert "prediction_length" not in shrink(Series, start=given)
    assert "num_time_features" not in shrink(Series, start=given)


def test_a_backbone_keeps_the_stages_that_it_is_asked_for() -> None:
    @dataclass
    class Backbone(Config):
        depths: tuple[int, ...] = (3, 4, 6)

        def __init__(self, depths: tuple[int, ...] = (3, 4, 6), out_indices: Any = (3,)) -> None:
            self.depths, self._out_indices = depths, list(out_indices)

    class Head(Config):
        def __init__(self) -> None:
            self.backbone_config = Backbone(out_indices=(1, 2, 3))

    backbone = shrink(Head)["backbone_config"]
    assert backbone.depths == (2, 2, 2) and backbone._out_indices == [1, 2, 3]


def test_kinds_of_layers_that_the_configuration_does_not_say() -> None:
    @dataclass
    class Hybrid(Config):
        num_hidden_layers: int = 32
        layer_types: Any = None

    tried = [a.get("layer_types") for a in attempts(Hybrid)]
    assert tried[:2] == [None, ["conv", "full_attention"]]


def test_widths_that_each_stage_doubles_and_latents() -> None:
    @dataclass
    class Codec(Config):
        num_filters: int = 32
        num_latents: int = 256
        d_latents: int = 1280
        num_self_attends_per_block: int = 26

    want = {"num_filters": 8, "num_latents": 8, "d_latents": 64, "num_self_attends_per_block": 2}
    assert shrink(Codec) == want


def test_experts_and_latent_attention() -> None:
    got = shrink(Mixed)
    assert (
        got["num_local_experts"],
        got["n_routed_experts"],
        got["num_experts_per_tok"],
        got["moe_intermediate_size"],
    ) == (4, 4, 2, 32)
    assert got["num_key_value_heads"] == got["num_attention_heads"] == 4 and got["kv_lora_rank"] == 16


def test_images_are_a_few_patches() -> None:
    @dataclass
    class Vision(Config):
        hidden_size: int = 768
        image_size: int = 224
        patch_size: int = 14

    assert shrink(Vision)["image_size"] == 56

    @dataclass
    class Both(Config):
        vision_config: Any = field(default_factory=lambda: Vision(patch_size=8))
        mm_tokens_per_image: int = 256

    got = shrink(Both)
    assert (got["vision_config"].patch_size, got["vision_config"].image_size) == (8, 32)
    assert got["mm_tokens_per_image"] == 4


def test_a_state_space_mixer_adds_up() -> None:
    @dataclass
    class Ssm(Config):
        hidden_size: int = 4096
        num_heads: int = 128
        head_dim: int = 64
        expand: int = 2
        n_groups: int = 8
        state_size: int = 128
        num_hidden_layers: int = 64

    got = shrink(Ssm)
    assert (
        got["num_heads"] * got["head_dim"] == 2 * got["hidden_size"]
        and got["num_heads"] % got["n_groups"] == 0
    )


def test_rotary_sections_add_up_to_half_a_head() -> None:
    @dataclass
    class Rope(Config):
        hidden_size: int = 3584
        num_attention_heads: int = 28
        rope_parameters: dict[str, Any] = field(
            default_factory=lambda: {
                "rope_type": "default",
                "mrope_section": [16, 24, 24],
                "original_max_position_embeddings": 8192,
            }
        )

    got = shrink(Rope)["rope_parameters"]
    assert sum(got["mrope_section"]) == 8 and got["original_max_position_embeddings"] == 32


def test_nested_configurations() -> None:
    @dataclass
    class Outer(Config):
        text_config: Any = field(default_factory=Decoder)
        image_token_id: int = 40000

    got = shrink(Outer)
    assert got["text_config"].hidden_size == 64 and got["text_config"].vocab_size == 128
    assert got["image_token_id"] == 127


def test_what_has_no_default_is_filled_in() -> None:
    @dataclass
    class Bare(Config):
        hidden_size: int = 4096
        vocab_size: int = 32000
        sliding_window: int | None = None
        image_token_index: int | None = None

    assert shrink(Bare)["image_token_index"] == 127
    windows = [kwargs.get("sliding_window") for kwargs in attempts(Bare)]
    assert windows[0] is None and 8 in windows


def test_attempts_change_less_and_less() -> None:
    kwargs = list(attempts(Decoder))
    assert kwargs[0] == shrink(Decoder)
    assert len(kwargs) > 3 and "num_hidden_layers" not in kwargs[-1]
    assert len({repr(sorted(k.items())) for k in kwargs}) == len(kwargs)


def test_a_refusing_configuration_is_passed_over() -> None:
    @dataclass
    class Never(Decoder):
        def __post_init__(self) -> None:
            raise ValueError("no")

    assert list(attempts(Never)) == []


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("MixtralConfig", {"num_local_experts": 4, "hidden_size": 64, "num_hidden_layers": 2}),
        (
            "T5Config",
            {
                "d_ff": 128,
                "d_kv": 16,
                "d_model": 64,
                "num_decoder_layers": 2,
                "num_heads": 4,
                "num_layers": 2,
                "vocab_size": 128,
            },
        ),
        (
            "GPT2Config",
            {
                "n_embd": 64,
                "n_head": 4,
                "n_layer": 2,
                "n_positions": 64,
                "vocab_size": 128,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
        ),
        (
            "ViTConfig",
            {
                "hidden_size": 64,
                "image_size": 64,
                "intermediate_size": 128,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
            },
        ),
        (
            "BertConfig",
            {
                "hidden_size": 64,
                "intermediate_size": 128,
                "max_position_embeddings": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "vocab_size": 128,
            },
        ),
    ],
)
def test_surveyed_configurations(name: str, want: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    got = shrink(getattr(transformers, name))
    assert {k: got.get(k) for k in want} == want


def test_flags_that_an_owner_set_in_a_nested_configuration_stay() -> None:
    @dataclass
    class Inner(Config):
        hidden_size: int = 512
        reshape: bool = True

    @dataclass
    class Outer(Config):
        inner: Any = field(default_factory=lambda: Inner(hidden_size=384, reshape=False))

    inner = next(iter(attempts(Outer)))["inner"]
    assert inner.reshape is False and inner.hidden_size == 64


def test_sizes_without_a_default_are_filled_where_nothing_else_works() -> None:
    @dataclass
    class Sparse(Config):
        hidden_size: int = 512
        n_routed_experts: int | None = None
        num_experts_per_tok: int | None = None

    tried = list(attempts(Sparse))
    assert "n_routed_experts" not in tried[0]
    assert any(a.get("n_routed_experts") == 4 and a.get("num_experts_per_tok") == 2 for a in tried)


def test_a_number_that_was_the_width_of_another_part_follows_it() -> None:
    @dataclass
    class Seen(Config):
        hidden_size: int = 1536
        adapter_out: int = 4096

    @dataclass
    class Both(Config):
        text: Any = field(default_factory=Decoder)
        seen: Any = field(default_factory=Seen)

    out = shrink(Both, without=frozenset({"same"}))
    assert out["seen"].adapter_out == out["text"].hidden_size == 64
    assert shrink(Both)["seen"].adapter_out == 4096


def test_a_width_that_is_the_first_stages_and_grids_of_features_follow_what_they_are_of() -> None:
    @dataclass
    class Stages(Config):
        hidden_size: int = 96
        image_size: Any = field(default_factory=lambda: [1024, 1024])
        embed_dim_per_stage: Any = field(default_factory=lambda: [96, 192, 384])

    @dataclass
    class Seer(Config):
        backbone: Any = field(default_factory=Stages)
        backbone_feature_sizes: Any = field(default_factory=lambda: [[256, 256], [128, 128]])

    out = shrink(Seer)
    assert out["backbone"].image_size == [64, 64]
    assert out["backbone_feature_sizes"] == [[16, 16], [8, 8]]
    assert out["backbone"].hidden_size == out["backbone"].embed_dim_per_stage[0] == 96
    assert "backbone_feature_sizes" not in shrink(Seer, without=frozenset({"image"}))


def test_what_an_image_becomes_shrinks_with_it() -> None:
    @dataclass
    class Seen(Config):
        image_size: int = 1024
        patch_size: int = 16

    @dataclass
    class Segmenter(Config):
        vision: Any = field(default_factory=Seen)
        backbone_feature_sizes: Any = field(default_factory=lambda: [[256, 256], [64, 64]])
        mask_feat_sizes: Any = (512, 8)

    out = shrink(Segmenter)
    assert out["vision"].image_size == 64
    assert out["backbone_feature_sizes"] == [[16, 16], [4, 4]] and out["mask_feat_sizes"] == (32, 1)
    assert "backbone_feature_sizes" not in shrink(Segmenter, without=frozenset({"image"}))


def test_the_layers_whose_states_are_read_are_there_and_as_many() -> None:
    @dataclass
    class Seen(Config):
        num_hidden_layers: int = 32
        intermediate_layers_indices: Any = (3, 7, 15, 23, 30)

    assert shrink(Seen) == {"num_hidden_layers": 5, "intermediate_layers_indices": (0, 1, 2, 3, 4)}


def test_what_is_left_as_it_is_is_left_as_the_owner_has_it() -> None:
    @dataclass
    class Outer(Config):
        text: Any = field(default_factory=lambda: Decoder(vocab_size=40000))

    assert shrink(Outer)["text"].vocab_size == 128
    assert shrink(Outer, without=frozenset({"vocab"}))["text"].vocab_size == 40000


def test_every_stage_of_a_backbone_may_be_asked_for() -> None:
    class Backbone(Config):
        def __init__(self, depth: int = 3, out_features: Any = None) -> None:
            self.depth, self.stage_names = depth, ["stem", "stage1", "stage2"]
            self.asked = out_features or ["stage2"]

    class Head(Config):
        def __init__(self) -> None:
            self.backbone_config = Backbone()

    assert shrink(Head)["backbone_config"].asked == ["stage2"]
    assert shrink(Head, without=frozenset({"stages"}))["backbone_config"].asked == ["stage1", "stage2"]


def test_patches_along_a_side_that_no_field_measures() -> None:
    @dataclass
    class Codes(Config):
        base_channels: int = 256
        num_patches: int = 32

    assert shrink(Codes) == {"base_channels": 32, "num_patches": 4}


@dataclass
class Sound(Config):
    downsampling_ratios: Any = (2, 4, 8, 8)
    codebook_size: int = 1024


@dataclass
class OfSounds(Config):
    sound_config: Any = field(default_factory=lambda: Sound(downsampling_ratios=[8, 5, 4, 2]))


def test_by_how_much_a_nested_configuration_shortens_is_its_owners_choice() -> None:
    assert shrink(OfSounds)["sound_config"].downsampling_ratios == [8, 5, 4, 2]
