"""What a model's own code misses: fields of its configuration, and inputs that it may be called without."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from opwright.generator.program import models
from opwright.generator.program.mending import Change, absent, agreeing, asked, changed, refused, widened

torch = pytest.importorskip("torch")


class Config:
    """What all of transformers' configurations have."""

    model_type = "toy"

    def to_diff_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclasses.dataclass
class Attention(Config):
    clip: float | None = None
    budget: int | None = None
    deep: list | None = None  # type: ignore[type-arg]
    rope_parameters: dict[str, Any] | None = dataclasses.field(default_factory=dict)
    layer_types: list[str] = dataclasses.field(default_factory=lambda: ["full", "near"])


@dataclasses.dataclass
class Whole(Config):
    hidden_size: int = 8
    dropout_rate: float = 0.1
    attn_config: Any = dataclasses.field(default_factory=Attention)


class Index:
    def __init__(self, config: Any) -> None:
        self.config = config
        self.most = config.budget

    def halved(self) -> int:
        return self.most // 2  # type: ignore[no-any-return]

    def kind(self) -> Any:
        return self.config.rope_parameters["near"]


def complaint(work: Any) -> Exception:
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("it does not complain")


def test_a_field_that_no_class_declares_is_another_configurations() -> None:
    config = Whole()
    (change,) = asked(complaint(lambda: config.attn_config.dropout_rate), config)
    assert change == Change(Attention, "dropout_rate", 0.1)
    kwargs = changed({}, config, change)
    assert kwargs["attn_config"].dropout_rate == 0.1
    assert not hasattr(config.attn_config, "dropout_rate")  # the one that was asked is left as it is


def test_a_field_that_holds_nothing_is_filled_by_its_type() -> None:
    config = Whole()
    index = Index(config.attn_config)
    assert list(asked(complaint(index.halved), config)) == [Change(Attention, "budget", 4)]
    assert list(asked(complaint(lambda: -config.attn_config.clip), config)) == [
        Change(Attention, "clip", 1.0)
    ]


def test_a_field_is_looked_for_where_its_meaning_is_known() -> None:
    config = Whole()
    assert list(asked(complaint(lambda: config.rope_theta), config)) == [Change(Whole, "rope_theta", 10000.0)]
    assert not list(asked(complaint(lambda: config.anything_at_all), config))
    assert not list(asked(complaint(lambda: 1 // 0), config))


def test_what_is_said_of_all_layers_is_said_of_each_kind() -> None:
    config = Whole()
    config.attn_config.rope_parameters = {"rope_type": "default", "rope_theta": 5.0}
    (change,) = asked(complaint(Index(config.attn_config).kind), config)
    assert change.value == {k: {"rope_type": "default", "rope_theta": 5.0} for k in ("full", "near")}


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("`config.attn_config.budget=56` should match `config.patch=384`.", {"patch": 56}),
        ("`attn_config.budget` (None) and `budget` (2) must be equal.", {"attn_config.budget": 2}),
        (
            "the config is missing required fields: ['index_heads', 'kv_heads'].",
            {"index_heads": 4, "kv_heads": 2},
        ),
        ("it requires kv_heads=1.", {"kv_heads": 1}),
    ],
)
def test_what_a_validation_says(message: str, want: dict[str, Any]) -> None:
    kwargs = {"attn_config": Attention(budget=56 if "56" in message else None)}
    found = agreeing(kwargs, message)
    assert found is not None
    said = {k: v for k, v in found.items() if k != "attn_config"}
    if found["attn_config"].budget not in (None, 56):
        said["attn_config.budget"] = found["attn_config"].budget
    assert said == want and agreeing(kwargs, "hidden_size must be positive") is None


class Told(torch.nn.Module):  # type: ignore[misc]
    """Reads an input that it may be called without, and takes lengths that are multiples of 6 with a mask of bools."""

    main_input_name = "input_values"

    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.config.hidden_size = 8  # type: ignore[attr-defined]

    def forward(self, input_values: Any, encoder_hidden_states: Any = None, input_mask: Any = None) -> Any:
        n = input_values.shape[1]
        if n % 6:
            raise ValueError(f"length {n} is not a multiple of 6")
        return input_values.sum() + encoder_hidden_states.mean()


def test_inputs_are_mended_by_what_the_model_says() -> None:
    reasons: list[str] = []
    inputs = models._accepted(Told(), 0, reasons, [])
    assert inputs is not None and inputs.keys() == {"input_values", "encoder_hidden_states"}
    assert inputs["input_values"].shape[1] % 6 == 0 and inputs["encoder_hidden_states"].shape[2] == 8
    assert len(reasons) <= 4


def test_what_was_none_is_named() -> None:
    def f(x: Any, mask: Any = None) -> Any:
        return x + mask.float()

    assert absent(complaint(lambda: f(1))) == ["mask"]


def test_a_want_that_grows_with_what_it_is_given_comes_to_an_end() -> None:
    class Greedy(Told):
        def forward(self, input_values: Any) -> Any:
            n = input_values.shape[1]
            raise RuntimeError(f"expected input[2, {n}, 9] to have {n + 1} channels, but got {n}")

    reasons: list[str] = []
    assert models._accepted(Greedy(), 0, reasons, []) is None and len(reasons) < 80


def test_a_tuple_that_is_added_to_a_list_becomes_one() -> None:
    @dataclasses.dataclass
    class Sizes(Config):
        widths: tuple[int, ...] = (4, 2)

    config = Sizes()
    with pytest.raises(TypeError) as e:
        [8] + config.widths  # type: ignore[operator]
    assert list(asked(e.value, config)) == [Change(Sizes, "widths", [4, 2])]


def test_what_was_none_is_followed_through_arguments_by_position() -> None:
    def layer(x: Any) -> Any:
        return x[0]

    def forward(ids: Any, states: Any = None) -> Any:
        return layer(states)

    with pytest.raises(TypeError) as e:
        forward([1])
    assert absent(e.value) == ["x", "states"]


@dataclasses.dataclass
class Bridge(Config):
    inner: int = 6
    other: int = 6
    steps: tuple[int, ...] = (6, 8)


class Narrow(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(config.inner, config.steps[1])

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def test_a_layer_becomes_as_wide_as_what_comes_to_it() -> None:
    config = Bridge()
    error = complaint(lambda: Narrow(config)(torch.zeros(2, 4)))
    assert list(widened(error, config)) == [  # `other` is not what the module reads
        Change(Bridge, "inner", 4),
        Change(Bridge, "steps", (4, 8)),
    ]
    assert list(widened(ValueError("6 is not 4"), config)) == []


def test_a_library_that_is_missed_when_it_is_called_is_named() -> None:
    class OptionalDependencyNotAvailable(BaseException):
        pass

    class Lacking(Told):
        def forward(self, input_values: Any) -> Any:
            raise OptionalDependencyNotAvailable

    module = Lacking()
    vars(module)[models._LACKS] = "it requires the natten library"
    with pytest.raises(ImportError, match="natten"):
        models._accepted(module, 0, [], [])


def test_features_that_are_permuted_as_a_picture_become_one() -> None:
    class Quantizer(Told):
        def forward(self, input_values: Any) -> Any:
            return torch.permute(input_values, (0, 2, 3, 1))

    inputs = models._accepted(Quantizer(), 0, [], [])
    assert inputs is not None
    assert inputs["input_values"].dim() == 4 and inputs["input_values"].is_contiguous()


@dataclasses.dataclass
class Spoken(Config):
    languages: tuple[str, ...] = ("en", "fr")
    default_language: str | None = None


class Speaker:
    def __init__(self, config: Any) -> None:
        self.config = config

    def say(self, language: str | None = None) -> str:
        if language is None:
            if self.config.default_language is None:
                raise ValueError("which language is it?")
            language = self.config.default_language
        return language


def test_what_a_refusal_looked_at_is_filled_and_a_default_is_one_of_those_there_are() -> None:
    config = Spoken()
    error = complaint(Speaker(config).say)
    assert refused(error) and not refused(complaint(lambda: 1 // 0))
    assert list(asked(error, config)) == [Change(Spoken, "default_language", "en")]
    assert not list(asked(complaint(Speaker(Spoken(languages=())).say), config))


class Wordless(torch.nn.Module):  # type: ignore[misc]
    """Takes vectors in the place of words, and says so."""

    main_input_name = "input_ids"

    def __init__(self, says: str) -> None:
        super().__init__()
        self.says = says
        self.config = Config()
        self.config.hidden_size = 8  # type: ignore[attr-defined]

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None, step: Any = None
    ) -> Any:
        if input_ids is not None and self.says:
            raise ValueError(self.says)
        step = inputs_embeds.shape[1] if input_ids is None else step - 1
        return inputs_embeds[:, step - 1]


@pytest.mark.parametrize("says", ["`input_ids` is expected to be `None`", ""])
def test_a_model_that_takes_no_words_is_given_what_stands_for_them(says: str) -> None:
    inputs = models._accepted(Wordless(says), 0, [], [])
    assert inputs is not None and inputs.keys() == {"inputs_embeds", "attention_mask"}
    assert inputs["inputs_embeds"].shape == (2, 16, 8)
