"""A checkpoint folder, or a configuration alone, of transformers → a module.

    from_checkpoint(folder, trust=False)    config.json + *.safetensors: the weights that were published, full scale
    from_config(file)                       config.json alone: the module on the meta device, with shapes and no weights

Pickles are refused by name.  Code that lies in the folder (`auto_map`) is run only where `trust` says so.
May import: models, torch_compat, generator.errors (torch and transformers inside functions).
To read another kind of folder: a function here, and its kind in `models.target_kind`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import Place, did_you_mean
from . import models
from . import torch_compat as compat
from .models import CONSTRUCT, Model, TargetError

__all__ = ["from_checkpoint", "from_config", "model_type_of", "remote_code"]

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_config(path: Path) -> dict[str, Any]:
    """A config.json.  Raises `TargetError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise TargetError(f"{path} cannot be read: {e.strerror}") from None
    except ValueError as e:
        line = getattr(e, "lineno", 0)
        raise TargetError(
            f"{path} is no JSON: {e}", place=Place.in_file(path, line) if line else None
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise TargetError(f"{path} names no model_type", hint="the config.json of a transformers model")
    return data


def model_type_of(target: str) -> str:
    """The model type that a folder's or file's configuration names.  Raises `TargetError`."""
    path = Path(target)
    return str(read_config(path / "config.json" if path.is_dir() else path)["model_type"])


def remote_code(target: str) -> tuple[str, ...]:
    """The modules in the folder that its configuration wants to run."""
    path = Path(target)
    found = read_config(path / "config.json" if path.is_dir() else path).get("auto_map") or {}
    names = found.values() if isinstance(found, Mapping) else ()
    return tuple(sorted({f"{str(n).rpartition('--')[2].partition('.')[0]}.py" for n in names}))


def check_folder(folder: Path, trust: bool) -> None:
    """What can be said without running anything.  Raises `TargetError`."""
    if not (folder / "config.json").is_file():
        raise TargetError(
            f"{folder} holds no config.json", hint="a folder that save_pretrained wrote, or a download of one"
        )
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLES)
        if pickles:
            raise TargetError(
                f"the weights in {folder} are pickles ({', '.join(pickles[:3])}), and reading one runs whatever "
                "code it holds",
                hint="convert them where you trust them: model.save_pretrained(folder) writes safetensors",
            )
        raise TargetError(f"{folder} holds no *.safetensors", hint="the weights lie beside config.json")
    code = remote_code(str(folder))
    if code and not trust:
        raise TargetError(
            f"{folder} wants to run code of its own ({', '.join(code)})",
            hint="read it, then pass --trust-remote-code",
        )


def _config_class(name: str) -> Any:
    transformers = models._transformers()
    known = models.model_types()
    if name not in known:
        raise TargetError(
            f"transformers {transformers.__version__} has no model type `{name}`",
            hint=did_you_mean(name, known, what="model types"),
        )
    return transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]


def _quieted(config: Any) -> Any:
    """Without caches and extra outputs, as the tiny models are built."""
    for c in models._configs(config):
        for name in ("use_cache", "output_attentions", "output_hidden_states"):
            if getattr(c, name, False):
                setattr(c, name, False)
    return config


def _classes(config: Mapping[str, Any]) -> list[str]:
    """Names of classes to build, the one that the configuration names first."""
    named = [n for n in config.get("architectures") or () if isinstance(n, str)]
    return list(dict.fromkeys([*named, *(n for _, n in models.model_classes(str(config["model_type"])))]))


def _with_inputs(module: Any, name: str, source: str, meta: dict[str, Any], seed: int) -> Model:
    """The module with the plainest example inputs that it takes, on its own device."""
    torch = compat.require_torch()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    reasons: list[str] = []
    for drawn in models._inputs(module, seed):
        inputs = {k: v.to(device) for k, v in drawn.items()}
        try:
            with torch.no_grad(), compat.quiet():
                module(**inputs)
        except Exception as e:  # the model's own code refuses these inputs
            reasons.append(f"{', '.join(inputs)}: {models._line(e)}")
            continue
        meta["inputs"] = {k: [list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in inputs.items()}
        return Model(name, source, module, (), inputs, meta)
    raise TargetError(
        f"no example inputs of {source} run: {reasons[0] if reasons else 'it takes none that are known'}",
        hint="write a file.py:function that returns (module, args, kwargs)",
    )


def from_config(target: str, seed: int = 0) -> Model:
    """The whole model of a configuration on the meta device: shapes, and not one number."""
    path = Path(target)
    data = read_config(path)
    if remote_code(target):
        raise TargetError(
            f"{path} is of a model whose code lies elsewhere ({', '.join(remote_code(target))})"
        )
    transformers, torch = models._transformers(), compat.require_torch()
    config = _quieted(_config_class(data["model_type"]).from_dict(data))
    reasons: list[str] = []
    for class_name in _classes(data):
        model_class = getattr(transformers, class_name, None)
        if model_class is None:
            continue
        try:
            with torch.device("meta"), compat.quiet():
                module = models._build(model_class, config).float().eval()
        except Exception as e:  # of this class; another head may do
            reasons.append(f"{class_name}: {models._line(e)}")
            continue
        meta = {
            "weights": "none",
            "scale": "full",
            "model_class": class_name,
            "parameters": sum(p.numel() for p in module.parameters()),
            "transformers": transformers.__version__,
        }
        return _with_inputs(module, data["model_type"], target, meta, seed)
    raise TargetError(f"no model can be built of {path}: {reasons[0] if reasons else 'it has no class'}")


def from_checkpoint(target: str, seed: int = 0, trust: bool = False) -> Model:
    """The model with the weights of the folder, in f32."""
    folder = Path(target)
    check_folder(folder, trust)
    data = read_config(folder / "config.json")
    transformers, torch = models._transformers(), compat.require_torch()
    options: dict[str, Any] = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
    reasons: list[str] = []
    own = bool(remote_code(target))
    for class_name in ["AutoModelForCausalLM", "AutoModel"] if own else _classes(data):
        model_class = getattr(transformers, class_name, None)
        if model_class is None:
            continue
        try:
            with compat.quiet():
                if own:
                    module, said = model_class.from_pretrained(
                        folder, trust_remote_code=True, output_loading_info=True, **options
                    )
                else:
                    config = _quieted(_config_class(data["model_type"]).from_pretrained(folder))
                    module, said = model_class.from_pretrained(
                        folder, config=config, output_loading_info=True, **CONSTRUCT, **options
                    )
        except TargetError:
            raise
        except Exception as e:
            reasons.append(f"{class_name}: {models._line(e)}")
            continue
        _all_there(folder, class_name, said)
        meta = {
            "weights": "checkpoint",
            "scale": "full",
            "model_class": class_name,
            "parameters": sum(p.numel() for p in module.parameters()),
            "transformers": transformers.__version__,
        }
        return _with_inputs(module.eval(), data["model_type"], target, meta, seed)
    raise TargetError(
        f"no model can be loaded from {folder}: {reasons[0] if reasons else 'it names no class'}"
    )


def _all_there(folder: Path, class_name: str, said: Mapping[str, Any]) -> None:
    """A tensor that the weights lack would be random."""
    missing = sorted(said.get("missing_keys") or ())
    odd = sorted(str(m[0] if isinstance(m, tuple | list) else m) for m in said.get("mismatched_keys") or ())
    if missing:
        raise TargetError(
            f"the weights in {folder} lack {', '.join(missing[:3])}"
            + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            + f", which {class_name} has",
            hint="the folder is not whole, or config.json names another class",
        )
    if odd:
        raise TargetError(f"{', '.join(odd[:3])} in {folder} is of another shape than config.json says")
