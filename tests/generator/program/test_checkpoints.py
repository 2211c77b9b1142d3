"""Checkpoint folders and configurations: what is loaded, what is refused and by which name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opwright.generator.program import checkpoints, models
from opwright.generator.program.models import TargetError, target_kind

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as save_pretrained writes it."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES)
    folder = tmp_path_factory.mktemp("saved") / "tiny-llama"
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def copied(folder: Path, to: Path, **config: Any) -> Path:
    to.mkdir()
    for p in folder.iterdir():
        (to / p.name).write_bytes(p.read_bytes())
    if config:
        data = json.loads((to / "config.json").read_text()) | config
        (to / "config.json").write_text(json.dumps(data))
    return to


def test_a_folder_gives_the_weights_that_lie_in_it(saved: Path) -> None:
    from safetensors.torch import load_file

    assert target_kind(str(saved)) == "checkpoint"
    model = models.load(str(saved))
    assert (model.name, model.meta["weights"], model.meta["scale"]) == ("llama", "checkpoint", "full")
    assert type(model.module).__name__ == "LlamaForCausalLM"
    stored = load_file(saved / "model.safetensors")
    own = dict(model.module.named_parameters())
    assert stored and all(torch.equal(own[n], t) for n, t in stored.items())
    assert "input_ids" in model.kwargs


def test_a_pickle_is_refused_by_name(saved: Path, tmp_path: Path) -> None:
    folder = copied(saved, tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(TargetError, match=r"pickles \(pytorch_model\.bin\)"):
        models.load(str(folder))


def test_code_in_the_folder_runs_only_where_it_is_trusted(saved: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = copied(
        saved,
        tmp_path / "own",
        model_type="mine",
        auto_map={
            "AutoConfig": "modeling_mine.MineConfig",
            "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
        },
    )
    (folder / "modeling_mine.py").write_text(
        f"""
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({str(ran)!r}).write_text("yes")
class MineConfig(LlamaConfig):
    model_type = "mine"
class MineForCausalLM(LlamaForCausalLM):
    config_class = MineConfig
"""
    )
    assert checkpoints.remote_code(str(folder)) == ("modeling_mine.py",)
    with pytest.raises(TargetError, match=r"run code of its own \(modeling_mine\.py\)") as refused:
        models.load(str(folder))
    assert "--trust-remote-code" in (refused.value.hint or "")
    assert not ran.exists()
    model = models.load(str(folder), trust=True)
    assert ran.exists()
    assert type(model.module).__name__ == "MineForCausalLM"


def test_weights_that_lack_a_tensor_are_refused(saved: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied(saved, tmp_path / "cut")
    tensors = load_file(folder / "model.safetensors")
    name = next(n for n in tensors if "q_proj" in n)
    save_file({n: t for n, t in tensors.items() if n != name}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(TargetError, match=r"lack model\.layers\.0\.self_attn\.q_proj\.weight"):
        models.load(str(folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "no JSON"), ("{}", "names no model_type"), ('{"model_type": "lama"}', "has no model type `lama`")],
)
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(TargetError, match=said):
        models.load(str(path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TargetError, match=r"no config\.json"):
        models.load(str(tmp_path / "empty"))


def test_a_configuration_alone_gives_shapes_at_full_size(tmp_path: Path) -> None:
    """An 8 B model in no memory: the meta device."""
    path = tmp_path / "config.json"
    big = {
        **SIZES,
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    path.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **big}))
    model = models.load(str(path))
    assert (model.meta["weights"], model.meta["scale"]) == ("none", "full")
    assert model.meta["parameters"] > 10**9
    assert {p.device.type for p in model.module.parameters()} == {"meta"}
