"""Targets: what each kind gives, and one clear error for what gives no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opwright.generator.errors import OpwrightError
from opwright.generator.program import models
from opwright.generator.program.models import TargetError, load, target_kind

torch = pytest.importorskip("torch")

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.drop(self.a(x)) * scale

class Broken(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("no forward today")

def make():
    return Net(), (torch.ones(2, 4),)

def named():
    return Net(), (torch.ones(2, 4),), {"scale": 2.0}

def lone():
    return Net(), torch.ones(2, 4)

def number():
    return 5

def no_module():
    return "net", (torch.ones(2, 4),)

def no_args():
    return Net(), 3, 4

def raises():
    x = 1
    raise ValueError("not today")

def broken():
    return Broken(), (torch.ones(2, 4),)

constant = 5
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "net.py"
    path.write_text(SOURCE)
    return path


def test_a_function_gives_its_module_in_eval_mode(source: Path) -> None:
    model = load(f"{source}:make")
    assert model.name == "net" and not model.module.training and model.meta["weights"] == "given"
    assert model.args[0].shape == (2, 4) and model.kwargs == {}
    assert load(f"{source}:named").kwargs == {"scale": 2.0}
    assert len(load(f"{source}:lone").args) == 1


def test_given_weights_stay_as_they_are(source: Path) -> None:
    torch.manual_seed(0)
    want = torch.nn.Linear(4, 4).weight
    assert torch.equal(load(f"{source}:make", seed=0).module.a.weight, want)
    assert not torch.equal(load(f"{source}:make", seed=0, enlarge=True).module.a.weight, want)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("number", "returned an object of type int"),
        ("no_module", "returned an object of type str as the module"),
        ("no_args", "as args and an object of type int as kwargs"),
        ("raises", "raises() raised ValueError: not today"),
        ("broken", "the module that broken() returned raised RuntimeError: no forward today"),
        ("maek", "has no function maek"),
        ("constant", "has no function constant"),
    ],
)
def test_a_function_that_gives_no_model(source: Path, function: str, says: str) -> None:
    with pytest.raises(TargetError) as e:
        load(f"{source}:{function}")
    assert says in e.value.message


def test_the_line_that_raised(source: Path) -> None:
    with pytest.raises(TargetError) as e:
        load(f"{source}:raises")
    assert e.value.place is not None and 'raise ValueError("not today")' in (e.value.place.text or "")


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def make(:\n")
    with pytest.raises(TargetError, match="is not Python") as e:
        load(f"{path}:make")
    assert e.value.place is not None and e.value.place.line == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("model.pt", "is a pickle"),
        ("model.PTH", "is a pickle"),
        ("weights.bin", "is a pickle"),
        ("x.pkl", "is a pickle"),
        ("none.pt2", "there is no file"),
        ("none.py:make", "there is no file"),
        ("none.py", "is a file"),
    ],
)
def test_forms_refused_without_running_anything(target: str, says: str) -> None:
    with pytest.raises(TargetError, match=says) as e:
        target_kind(target)
    assert e.value.hint


def test_a_function_name_that_is_none(source: Path) -> None:
    with pytest.raises(TargetError, match="not the name of a function"):
        target_kind(f"{source}:make it")


def test_pt2(tmp_path: Path, source: Path) -> None:
    model = load(f"{source}:make")
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(model.module, model.args), path)
    again = load(str(path))
    assert again.name == "net" and again.exported is not None
    assert torch.equal(again.module(*again.args), model.module(*model.args))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(TargetError, match="cannot be read"):
        load(str(path))


def test_an_unknown_type_says_what_is_near() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(TargetError, match="neither a model type") as e:
        load("lamma")
    assert e.value.hint == "did you mean `llama`?"


def test_the_tiny_llama_is_the_surveyed_one(model_of: Callable[[str], Any]) -> None:
    meta = model_of("llama").meta
    assert (
        meta["model_class"] == "LlamaForCausalLM" and meta["scale"] == "tiny" and meta["weights"] == "random"
    )
    assert meta["kwargs"] == {
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 128,
    }
    assert meta["inputs"] == {"input_ids": [[2, 16], "int64"], "attention_mask": [[2, 16], "int64"]}


@pytest.mark.parametrize(
    ("name", "model_class"),
    [
        ("gpt2", "GPT2LMHeadModel"),
        ("bert", "BertForMaskedLM"),
        ("vit", "ViTForImageClassification"),
    ],
)
def test_the_head_that_uses_most_of_the_model(
    name: str, model_class: str, model_of: Callable[[str], Any]
) -> None:
    assert model_of(name).meta["model_class"] == model_class


def test_the_same_seed_gives_the_same_model(model_of: Callable[[str], Any]) -> None:
    again = load("llama", seed=0)
    want = dict(model_of("llama").module.named_parameters())
    assert all(torch.equal(p, want[n]) for n, p in again.module.named_parameters())
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.kwargs.values(), model_of("llama").kwargs.values(), strict=True)
    )
    other = load("llama", seed=1)
    assert not torch.equal(other.module.lm_head.weight, want["lm_head.weight"])


class Roles(torch.nn.Module):  # type: ignore[misc]
    """One parameter of each role that `rescale` tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 32)
        self.norm = torch.nn.LayerNorm(64)
        self.embed = torch.nn.Embedding(10, 64)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.batch = torch.nn.BatchNorm2d(8)
        self.gate = torch.nn.Parameter(torch.full((64,), 1e-6))
        self.rates = torch.nn.Parameter(torch.log(torch.arange(1.0, 17.0)).repeat(4, 1))
        self.temperature = torch.nn.Parameter(torch.tensor(2.6592))
        self.token = torch.nn.Parameter(torch.zeros(1, 1, 64))


def test_rescale_reads_roles_from_values() -> None:
    torch.manual_seed(0)
    m = Roles()
    rates, temperature = m.rates.detach().clone(), float(m.temperature.detach())
    models.rescale(m, seed=0)
    assert 0.1 < float(m.linear.weight.detach().std()) < 0.3  # about gain / sqrt(fan)
    assert 0.4 <= float(m.norm.weight.min()) < float(m.norm.weight.max()) <= 1.6
    assert 0.1 < float(m.norm.bias.std()) < 0.6
    assert 0.8 < float(m.embed.weight.std()) < 1.2
    assert float(m.gate.min()) > 0.2  # a layer scale of 1e-6 would hide its block
    assert (
        float((m.rates / rates.clamp(min=1e-9))[:, 1:].min()) > 0.85
    )  # decay rates keep their order of size
    assert abs(float(m.temperature.detach()) / temperature - 1) <= 0.11
    assert float(m.token.std()) > 0.1
    assert float(m.batch.running_var.min()) >= 0.5 and float(m.batch.running_mean.abs().max()) > 0


def test_rescale_of_the_same_seed_is_the_same() -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(0)
        m = Roles()
        models.rescale(m, seed=3)
        weights.append(m.linear.weight.detach().clone())
    assert torch.equal(*weights)


def test_every_error_is_one_a_person_can_read(source: Path) -> None:
    with pytest.raises(OpwrightError) as e:
        load(f"{source}:raises")
    assert "Traceback" not in e.value.render()


def test_a_series_goes_back_by_its_lags_and_says_what_is_known_of_the_future() -> None:
    class Series(torch.nn.Module):
        main_input_name = "past_values"
        config = SimpleNamespace(
            context_length=16, prediction_length=8, lags_sequence=[1, 5], input_size=1, num_time_features=2
        )

        def forward(
            self,
            past_values: Any,
            past_time_features: Any,
            past_observed_mask: Any,
            future_values: Any = None,
            future_time_features: Any = None,
        ) -> None: ...

    first = next(models._inputs(Series(), 0))
    assert {name: tuple(x.shape) for name, x in first.items()} == {
        "past_values": (2, 21),
        "past_time_features": (2, 21, 2),
        "past_observed_mask": (2, 21),
        "future_values": (2, 8),
        "future_time_features": (2, 8, 2),
    }
    Series.config.input_size = 3
    first = next(models._inputs(Series(), 0))
    assert first["past_observed_mask"].shape == first["past_values"].shape == (2, 21, 3)
    assert first["future_values"].shape == (2, 8, 3)


def test_a_decision_is_masked_by_its_steps() -> None:
    class Decision(torch.nn.Module):
        main_input_name = "states"
        config = SimpleNamespace(state_dim=5, act_dim=3)

        def forward(
            self,
            states: Any = None,
            actions: Any = None,
            rewards: Any = None,
            returns_to_go: Any = None,
            timesteps: Any = None,
            attention_mask: Any = None,
        ) -> None: ...

    whole = [x for x in models._inputs(Decision(), 0) if len(x) == 6]
    assert whole and all(x["attention_mask"].shape == x["timesteps"].shape for x in whole)


def test_tokens_of_codebooks_are_tried_after_plain_ones() -> None:
    assert models._shapes(SimpleNamespace(num_codebooks=32))["input_ids"][:2] == [(2, 16), (2, 16, 33)]
    assert models._shapes(SimpleNamespace())["input_ids"] == [(2, 16)]


def test_patches_are_as_wide_as_the_model_takes_them() -> None:
    def width(**fields: int) -> int:
        return models._shapes(SimpleNamespace(**fields))["flattened_patches"][0][-1]

    assert width() == 2 + 3 * 16 * 16 and width(patch_size=4) == 2 + 3 * 4 * 4
    assert width(patch_embed_hidden_size=64) == 2 + 64
    x = models._draw("flattened_patches", (2, 16, 66), None, torch.Generator().manual_seed(0))
    assert x.shape == (2, 16, 66) and set(x[..., :2].unique().tolist()) == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "t5",
        "pix2struct",
        "perceiver",
        "upernet",
        "lfm2_moe",
        "decision_transformer",
        "vibevoice",
        "vibevoice_acoustic_tokenizer",
        "time_series_transformer",
        "autoformer",
        "informer",
        "mixtral",
        "mamba",
        "resnet",
        "whisper",
        "clip",
        "wav2vec2",
        "mamba2",
        "deepseek_v3",
        "falcon_h1",
        "detr",
        "qwen2_vl",
        "gemma3_text",
        "swin",
        "esm",
        "bart",
    ],
)
def test_odd_types_build_and_run(name: str) -> None:
    model = load(name)
    assert sum(p.numel() for p in model.module.parameters()) < models.MAX_PARAMETERS


def test_a_mask_is_as_long_as_what_it_masks() -> None:
    assert (
        models._masked("input_features_mask", ("input_features", "input_features_mask")) == "input_features"
    )
    assert models._masked("mask", ("hidden_states", "mask")) == "hidden_states"
    assert models._masked("attention_mask", ("input_ids", "attention_mask")) is None


def test_a_library_that_only_the_loss_needs_need_not_be_there() -> None:
    utils = pytest.importorskip("transformers").utils.import_utils

    class Loss:
        @classmethod
        def _from_config(cls, config: Any, **_: Any) -> Any:
            utils.requires_backends(cls, ["absent"])
            return torch.nn.Linear(1, 1)

    utils.BACKENDS_MAPPING["absent"] = (lambda: False, "{0} needs it")
    try:
        built = models._build(Loss, None)
        assert isinstance(built, torch.nn.Linear) and "needs it" in vars(built)[models._LACKS]
        assert not utils.BACKENDS_MAPPING["absent"][0]()
    finally:
        del utils.BACKENDS_MAPPING["absent"]


def test_a_mask_that_says_what_to_leave_out_leaves_out_nothing() -> None:
    class Left(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, left_out: bool) -> None:
            super().__init__()
            self.left_out = left_out

        def forward(self, x: Any, x_mask: Any) -> Any:
            return x.masked_fill(x_mask if self.left_out else ~x_mask, 0.0)

    inputs = {"x": torch.randn(2, 3), "x_mask": torch.ones(2, 3, dtype=torch.bool)}
    for left_out in (True, False):
        got = models._seen(Left(left_out), inputs)
        assert bool(got["x_mask"].any()) is not left_out


def test_a_mask_holds_in_as_many_places_as_there_are_features() -> None:
    inputs = {"ids": torch.ones(2, 8).long(), "place_mask": torch.ones(2, 8).long()}
    (got,) = models._with_places(inputs, 6, 16)
    assert got["place_mask"].tolist() == [[0, 1, 1, 1, 0, 0, 0, 0]] * 2
    assert not models._with_places(inputs, 7, 16)


def _mended(take: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs that `take` runs on, by what it says of others."""
    tried = models._Tried()
    waiting = [inputs]
    while waiting:
        inputs = waiting.pop()
        try:
            take(**inputs)
        except Exception as e:
            waiting += tried.mended(inputs, e)
            continue
        return inputs
    raise AssertionError("nothing was taken")


def test_what_is_shorter_than_a_window_is_made_longer() -> None:
    layer = torch.nn.Conv1d(1, 2, 100)
    assert _mended(lambda x: layer(x), {"x": torch.ones(2, 1, 16)})["x"].shape == (2, 1, 256)


def test_a_waveform_under_a_name_that_says_nothing_is_no_text() -> None:
    layer = torch.nn.Conv1d(1, 2, 3)
    ids = torch.ones(2, 16, dtype=torch.int64)
    taken = _mended(
        lambda inputs, decoder_input_ids: layer(inputs[:, None]), {"inputs": ids, "decoder_input_ids": ids}
    )
    assert taken["inputs"].is_floating_point() and taken["decoder_input_ids"] is ids


def test_a_text_has_no_more_words_than_there_are_layers_for() -> None:
    layers = torch.nn.ModuleList([torch.nn.Identity() for _ in range(7)])
    ids = torch.ones(2, 16, dtype=torch.int64)
    taken = _mended(
        lambda ids, mask: [layers[k - 1] for k in range(1, ids.shape[1])], {"ids": ids, "mask": ids}
    )
    assert taken["ids"].shape == taken["mask"].shape == (2, 8)


def test_what_is_added_to_a_text_is_as_long_as_it() -> None:
    class Reader(torch.nn.Module):
        config = SimpleNamespace(hidden_size=8)

        def forward(self, input_ids, last_hidden_state=None):  # type: ignore[no-untyped-def]
            return input_ids

    (given,) = models._with(
        Reader(), {"input_ids": torch.ones(2, 7, dtype=torch.int64)}, ["last_hidden_state"], 0
    )
    assert given["last_hidden_state"].shape == (2, 7, 8)


def test_a_width_is_read_from_what_a_product_said_of_it() -> None:
    def take(ids: Any, x: Any) -> Any:
        return torch.bmm(x.transpose(0, 1), torch.ones(3, 12, 2))

    taken = _mended(take, {"ids": torch.ones(2, 3, dtype=torch.int64), "x": torch.ones(2, 3, 8)})
    assert taken["x"].shape == (2, 3, 12)


def test_a_library_that_is_asked_for_is_named() -> None:
    said = "TimmBackbone requires the timm library but it was not found in your environment."
    assert models._libraries(ImportError(said)) == ["timm"]
    assert models._libraries(ImportError("No module named 'natten.functional'")) == ["natten.functional"]


def test_lengths_add_up_to_what_they_are_lengths_of() -> None:
    """An encoder of sounds that lie packed one after the other: no batch, and how long each is."""
    tried = models._Tried()
    inputs = {"features": torch.randn(2, 8, 64), "lens": torch.tensor([2, 2])}
    said = RuntimeError(
        "split_with_sizes expects split_sizes to sum exactly to 64 (input tensor's size at dimension 0), "
        "but got split_sizes=[2, 2]"
    )
    (found,) = tried.mended(inputs, said)
    assert found["lens"].tolist() == [32, 32]
    said = RuntimeError(
        "Expected 2D (unbatched) or 3D (batched) input to conv1d, but got input of size: [2, 8, 32, 2]"
    )
    (found,) = tried.mended(inputs, said)
    assert found["features"].shape == (8, 64)


class Pooled(torch.nn.Module):  # type: ignore[misc]
    """Takes patches that are flat, and where each stands."""

    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(patch_size=16, num_channels=3)
        self.project = torch.nn.Linear(3 * 16 * 16, 8)

    def forward(self, pixel_values: Any, pixel_position_ids: Any) -> Any:
        """
        pixel_position_ids (`torch.LongTensor` of shape `(batch_size, max_patches, 2)`):
            Where they stand.
        """
        x, y = pixel_position_ids.unbind(-1)
        return self.project(pixel_values) * (x + 4 * y)[..., None]


def test_where_patches_stand_is_a_picture() -> None:
    inputs = models._accepted(Pooled(), 0, [], [])
    assert inputs is not None and inputs["pixel_values"].shape == (2, 16, 3 * 16 * 16)
    at = inputs["pixel_position_ids"]
    assert at.dtype is torch.int64 and at.shape == (2, 16, 2)
    assert (at[1, :, 0] + 4 * at[1, :, 1]).tolist() == list(range(16))
