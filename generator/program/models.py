"""A TARGET → a module with example arguments.

    llama                 any model type of transformers: a tiny configuration (shrink.py), random weights by a seed
    file.py:function      a function that returns (module, args) or (module, args, kwargs)
    model.pt2             what `torch.export.save` wrote
    folder                a checkpoint of transformers: its weights, its scale (checkpoints.py)
    config.json           its configuration alone, on the meta device: shapes for an inventory (checkpoints.py)
    model.onnx            a graph; it is no module: onnx_record.py captures it
Pickles (`.pt`, `.pth`, `.bin`, `.pkl`) are refused: reading one runs whatever code it holds.

All of this runs code that others wrote, so `capture_worker` does it in a child process.
Random weights are then enlarged (`rescale`): as they are initialised, many blocks barely move the output and an error
in them cannot be seen (DESIGN.md, L2).

May import: shrink, masks, torch_compat, generator.errors (torch and transformers inside functions).
To add a kind of target: a branch in `load`; a task of transformers: a line in `_TASKS`; an input: `_inputs`.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import MachineError, OpwrightError, Place, did_you_mean
from . import geometry, masks, mending, parts, placeholders
from . import torch_compat as compat
from .described import Said, described
from .shrink import Sizes, attempts

__all__ = ["Model", "TargetError", "load", "model_types", "rescale"]

#: The implementations whose graphs export (and are the ones the survey took).
CONSTRUCT = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}
#: A model of more is tried only where no smaller one works, and never one of more than the second.
MANY_PARAMETERS, MAX_PARAMETERS = 50_000_000, 150_000_000


class TargetError(OpwrightError):
    """A TARGET that is not there, or does not give a model."""


@dataclass(frozen=True)
class Model:
    """A module and a call of it.  `exported` instead of `module` for a `.pt2`; `meta` says how it was made; `fixed`:
    the keyword arguments whose extents belong to what the module was given (`geometry.py`); `plain`: keyword arguments
    without images and sounds, where the module takes text alone as well; `masks`: those of the keyword arguments that
    only say what is padding, beyond what the module asks for; `assuming`: choices by what tensors hold are the
    example's."""

    name: str
    source: str
    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    meta: Mapping[str, Any] = field(default_factory=dict)
    exported: Any = None
    fixed: frozenset[str] = frozenset()
    plain: Mapping[str, Any] | None = None
    masks: frozenset[str] = frozenset()
    assuming: bool = False


def load(target: str, *, seed: int = 0, enlarge: bool | None = None, trust: bool = False) -> Model:
    """The model that `target` names.  `enlarge`: rescale the weights; by default where they are random ones of ours.
    `trust`: code that lies in a checkpoint folder may run.

    Raises `TargetError`; `MachineError` where torch or transformers is not installed.
    """
    torch = compat.require_torch()
    kind = target_kind(target)
    torch.manual_seed(seed)
    if kind == "function":
        model = _from_function(target)
    elif kind == "pt2":
        model = _from_pt2(target)
    elif kind in ("checkpoint", "config"):
        from . import checkpoints

        model = (
            checkpoints.from_checkpoint(target, seed, trust)
            if kind == "checkpoint"
            else checkpoints.from_config(target, seed)
        )
    else:
        model = _from_transformers(target, seed)
    if enlarge if enlarge is not None else kind == "transformers":
        rescale(model.module, seed)
        if kind == "transformers":
            model = replace(model, kwargs=_seen(model.module, model.kwargs))
        return replace(model, meta=dict(model.meta) | {"rescaled": True})
    return model


def target_kind(target: str) -> str:
    """`function`, `pt2`, `onnx`, `checkpoint`, `config` or `transformers`, by the target's form alone.  Raises
    `TargetError` for a pickle or a path that is not there."""
    path, colon, function = target.rpartition(":")
    if colon and path.endswith(".py"):
        if not Path(path).is_file():
            raise TargetError(
                f"there is no file {path}", hint="TARGET is a model type, file.py:function or a .pt2 file"
            )
        if not function.isidentifier():
            raise TargetError(f"`{function}` is not the name of a function", hint=f"write {path}:make_model")
        return "function"
    suffix = Path(target).suffix.lower()
    if suffix == ".pt2":
        if not Path(target).is_file():
            raise TargetError(
                f"there is no file {target}", hint="write it with torch.export.save(program, path)"
            )
        return "pt2"
    if Path(target).is_dir() and ("/" in target or (Path(target) / "config.json").exists()):
        return "checkpoint"
    if suffix == ".json":
        if not Path(target).is_file():
            raise TargetError(f"there is no file {target}", hint="the config.json of a transformers model")
        return "config"
    if suffix == ".onnx":
        if not Path(target).is_file():
            raise TargetError(f"there is no file {target}", hint="torch.onnx.export writes one")
        return "onnx"
    if suffix in (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"):
        raise TargetError(
            f"{target} is a pickle, and reading one runs whatever code it holds",
            hint="export the model: torch.export.save(torch.export.export(module, args), 'model.pt2')",
        )
    if suffix == ".py":
        raise TargetError(f"{target} is a file", hint=f"name the function too: {target}:make_model")
    return "transformers"


# ------------------------------------------------------------------------------------------------- file.py:function


def _from_function(target: str) -> Model:
    torch = compat.require_torch()
    path, _, name = target.rpartition(":")
    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"_opwright_target_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = code  # dataclasses and pickling inside the file look it up
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(code)
    except SyntaxError as e:
        raise TargetError(
            f"{path} is not Python: {e.msg}",
            place=Place(path, e.lineno or 0, e.offset or 0, (e.text or "").rstrip("\n")),
        ) from e
    except Exception as e:
        raise _raised(e, file, f"importing {path}") from e
    function = getattr(code, name, None)
    if not callable(function):
        known = [k for k, v in vars(code).items() if inspect.isfunction(v)]
        raise TargetError(f"{path} has no function {name}", hint=did_you_mean(name, known, what="functions"))
    try:
        result = function()
    except Exception as e:
        raise _raised(e, file, f"{name}()") from e
    shape = "return (module, args) or (module, args, kwargs)"
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise TargetError(f"{name}() returned {_kind(result)}", hint=shape)
    module, args = result[0], result[1]
    kwargs = result[2] if len(result) == 3 else {}
    if not isinstance(module, torch.nn.Module):
        raise TargetError(
            f"{name}() returned {_kind(module)} as the module", hint=f"{shape}, with a torch.nn.Module"
        )
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise TargetError(
            f"{name}() returned {_kind(args)} as args and {_kind(kwargs)} as kwargs", hint=shape
        )
    elsewhere = {
        str(t.device) for t in (*module.state_dict().values(), *compat.tensors_of((args, dict(kwargs))))
    }
    if elsewhere - {"cpu"}:
        raise TargetError(
            f"{name}() returned tensors on {', '.join(sorted(elsewhere - {'cpu'}))}",
            hint="put the module and its arguments on the CPU, with weights that hold numbers",
        )
    module.eval()
    try:
        own, named = compat.copied((tuple(args), dict(kwargs)))
        with torch.no_grad(), compat.uncompiled(), compat.restoring(module):
            result = compat.called(module, own, named)
    except Exception as e:
        raise _raised(e, file, f"the module that {name}() returned") from e
    compat.register_dataclasses((args, dict(kwargs), result))
    return Model(
        file.stem if name in ("make", "model", "make_model", "build") else name,
        target,
        module,
        tuple(args),
        dict(kwargs),
        {"weights": "given", "scale": "given"},
    )


def _kind(x: Any) -> str:
    return (
        f"{'a tuple of ' + str(len(x)) if isinstance(x, tuple) else 'an object of type ' + type(x).__name__}"
    )


def _raised(e: Exception, file: Path, what: str) -> TargetError:
    """The person's own exception, with the last line of their file that it passed."""
    place = None
    trace = e.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            place = Place.in_file(file, trace.tb_lineno)
        trace = trace.tb_next
    text = str(e).strip().splitlines()
    return TargetError(
        f"{what} raised {type(e).__name__}" + (f": {text[0][:300]}" if text else ""), place=place
    )


# ------------------------------------------------------------------------------------------------- .pt2


def _from_pt2(target: str) -> Model:
    torch = compat.require_torch()
    try:
        with compat.quiet():
            exported = torch.export.load(target)
    except Exception as e:
        first = str(e).strip().splitlines()[:1]
        raise TargetError(
            f"{target} cannot be read: {''.join(first)[:300] or type(e).__name__}",
            hint="write it with torch.export.save(program, path) of the same torch",
        ) from e
    inputs = exported.example_inputs
    if inputs is None:
        raise TargetError(
            f"{target} holds no example inputs", hint="export it again: torch.export.export keeps them"
        )
    args, kwargs = inputs
    return Model(
        Path(target).stem,
        target,
        exported.module(),
        tuple(args),
        dict(kwargs),
        {"weights": "given", "scale": "given"},
        exported,
    )


# ------------------------------------------------------------------------------------------------- transformers

#: Which head a type gets when it has several: the one that uses most of the model first.
_TASKS = (
    "SPEECH_SEQ_2_SEQ",
    "CTC",
    "RNNT",
    "IMAGE_TEXT_TO_TEXT",
    "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION",
    "INSTANCE_SEGMENTATION",
    "SEMANTIC_SEGMENTATION",
    "ZERO_SHOT_OBJECT_DETECTION",
    "POSE_ESTIMATION",
    "KEYPOINT_DETECTION",
    "IMAGE_TO_IMAGE",
    "VIDEO_CLASSIFICATION",
    "TIME_SERIES_PREDICTION",
    "MASKED_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MULTIMODAL_LM",
    "CAUSAL_LM",
    "TEXT_TO_WAVEFORM",
    "DEPTH_ESTIMATION",
    "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "PRETRAINING",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "BACKBONE",
    "SEQUENCE_CLASSIFICATION",
    "TEXT_ENCODING",
    "IMAGE",
    "MODEL",
)


def _transformers() -> Any:
    try:
        with compat.quiet():
            import transformers
    except ImportError as e:
        raise MachineError(
            "a model type needs transformers, which is not installed", hint="pip install 'opwright[models]'"
        ) from e
    transformers.logging.set_verbosity_error()
    return transformers


def model_types() -> tuple[str, ...]:
    """Every model type that this transformers knows."""
    _transformers()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return tuple(sorted(CONFIG_MAPPING_NAMES))


def model_classes(model_type: str) -> list[tuple[str, str]]:
    """(task, class name) of a type, the preferred first."""
    from transformers.models.auto import modeling_auto

    tables = {"MODEL_MAPPING_NAMES" if t == "MODEL" else f"MODEL_FOR_{t}_MAPPING_NAMES": t for t in _TASKS}
    for table in vars(modeling_auto):
        found = re.fullmatch(r"MODEL_FOR_(\w+)_MAPPING_NAMES", table)
        if found:
            tables.setdefault(table, found[1])
    out: list[tuple[str, str]] = []
    for table, task in tables.items():
        found = getattr(modeling_auto, table, {}).get(model_type, ())
        for name in [found] if isinstance(found, str) else list(found):
            if name and all(name != n for _, n in out):
                out.append((task, name))
    return out


def _from_transformers(model_type: str, seed: int) -> Model:
    """The model of a type, by inputs that its own names suggest; where none are taken and it is a part of another,
    by what that gives it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = model_type in model_types()
    plain = known and not model_classes(model_type)
    if plain and not any(parts.is_model(c) for _, c in parts.classes(CONFIG_MAPPING[model_type])):
        return _as_a_part(model_type, seed) or _by_itself(model_type, seed)
    try:
        return _by_itself(model_type, seed)
    except TargetError:
        found = _as_a_part(model_type, seed) if known else None
        if found is None:
            raise
        return found


def _as_a_part(model_type: str, seed: int) -> Model | None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    config_class = CONFIG_MAPPING[model_type]
    for owner in parts.owners(config_class, CONFIG_MAPPING_NAMES):
        try:
            whole = _by_itself(owner, seed)
            found = parts.within(whole.module, config_class, whole.kwargs)
            found = found or parts.within(whole.module, config_class, _more(whole.module, whole.kwargs, seed))
        except Exception:  # the owner has faults of its own
            continue
        if found is None:
            continue
        part, inputs = found
        if not hasattr(part, "config"):
            part.config = whole.module.config
        also = [n for n, x in inputs.items() if isinstance(x, parts.CONSTANTS)]
        try:
            with compat.require_torch().no_grad(), compat.quiet():
                part(**inputs)
            module, inputs, given = geometry.placed(part.eval(), inputs, also)
        except Exception:
            continue
        meta = {
            **{k: v for k, v in whole.meta.items() if k not in ("given", "placeholders")},
            "model_class": type(part).__name__,
            "task": "PART",
            "config_class": config_class.__name__,
            "part_of": owner,
            "inputs": _said(inputs),
        }
        return Model(
            model_type,
            f"transformers:{model_type}",
            module,
            (),
            inputs,
            meta | ({"given": given} if given else {}),
            fixed=frozenset(inputs if any(map(geometry.is_geometry, given)) else ()),
        )
    return None


def _by_itself(model_type: str, seed: int) -> Model:
    transformers = _transformers()
    torch = compat.require_torch()
    known = model_types()
    if model_type not in known:
        near = did_you_mean(model_type, known, what="model types")
        raise TargetError(
            f"`{model_type}` is neither a model type of transformers {transformers.__version__} nor a file",
            hint=near
            if near.startswith("did")
            else "TARGET is a model type, file.py:function or a .pt2 file",
        )
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
    classes = [
        (task, found)
        for task, name in model_classes(model_type)
        if (found := getattr(transformers, name, None)) is not None
    ] or parts.classes(config_class)
    reasons: list[str] = []  # why none was built, and what those that were built said of their inputs
    ran: list[str] = []
    lacking: list[str] = []
    replaced: list[str] = []  # libraries whose backbones another stood in for
    large: list[tuple[int, Mapping[str, Any], tuple[str, Any]]] = []
    tries = ((kwargs, c) for kwargs in attempts(config_class, Sizes()) for c in classes)
    again: list[_Try] = []  # with what a model missed when it ran
    mended: list[tuple[type, mending.Change]] = []
    for kwargs, (task, model_class) in itertools.chain(tries, again, _once_more(large)):
        try:
            try:
                kwargs, config, count = _configured(config_class, kwargs, model_class)
            except ImportError as e:  # a backbone of another package: a plain one of transformers stands in
                replaced += _libraries(e)
                kwargs = {**kwargs, "backbone_config": _plain_backbone(transformers)}
                config = config_class(**copy.deepcopy(kwargs))
                count = _count(model_class, config)
            if count > (MAX_PARAMETERS if (count, kwargs, (task, model_class)) in large else MANY_PARAMETERS):
                large.append((count, kwargs, (task, model_class)))
                raise TargetError(f"{count:,} parameters are not tiny")
            torch.manual_seed(seed)
            module, held = _that_runs(_construct(model_class, config))
            wishes: list[mending.Change] = []
            inputs = _accepted(module, seed, ran, wishes)
        except Exception as e:
            if isinstance(e, ImportError):
                lacking += _libraries(e)
            reasons.append(f"{model_class.__name__}: {_line(e)}")
            continue
        if inputs is None:
            for change in wishes[:3]:
                if len(again) < _MOST_AGAIN and (model_class, change) not in mended:
                    mended.append((model_class, change))
                    again.append((mending.changed(kwargs, config, change), (task, model_class)))
            continue
        stand = placeholders.held(config, inputs)
        plain = _text_alone(module, inputs, stand)
        said = described(module.forward, partial(_first, config))
        beside = masks.heeded(module, inputs, said)
        inputs = {**inputs, **beside}
        if plain is not None:
            plain = {**plain, **masks.heeded(module, plain, said)}
        kind = type(module).__name__
        module, inputs, given = geometry.placed(module, inputs)
        meta = {
            "weights": "random",
            "scale": "tiny",
            "seed": seed,
            "model_class": kind,
            **({"part_of": model_class.__name__, "part": held} if held else {}),
            "task": task,
            "config_class": config_class.__name__,
            "kwargs": _plain(kwargs),
            "construct": CONSTRUCT,
            "inputs": _said(inputs),
            "transformers": transformers.__version__,
        }
        meta |= ({"given": given} if given else {}) | ({"placeholders": stand} if stand else {})
        fixed = frozenset(inputs if given else ())
        return Model(
            model_type,
            f"transformers:{model_type}",
            module,
            (),
            inputs,
            meta,
            fixed=fixed,
            plain=None if given else plain,
            masks=frozenset(beside),
        )
    if lacking or replaced:
        needed = ", ".join(dict.fromkeys(lacking + replaced))
        raise TargetError(
            f"`{model_type}` needs {needed}, which is not installed", hint="install it, then try again"
        )
    if not reasons and not ran and classes:
        raise TargetError(
            f"transformers cannot make the configuration of `{model_type}`: {_refusal(config_class)}",
            hint="write a file.py:function that builds the model",
        )
    if not reasons and not ran:
        raise TargetError(
            f"transformers has no model class for `{model_type}`",
            hint="it names a configuration only; write a file.py:function that builds the model",
        )
    raise TargetError(
        f"no tiny `{model_type}` could be built and run: {ran[0] if ran else reasons[0]}",
        hint="write a file.py:function that returns (module, args, kwargs)",
    )


def _libraries(error: ImportError) -> list[str]:
    """The libraries that it asks for."""
    return [
        a or b for a, b in re.findall(r"requires the (\S+) library|No module named '([\w.]+)'", str(error))
    ]


def _refusal(config_class: Any) -> str:
    """What a configuration says of its own defaults."""
    try:
        config_class()
    except Exception as e:
        return _line(e)
    return "no field of it can be made smaller"


def _said(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as a record says them: [extents, dtype] by name."""
    return {
        k: [list(x.shape), str(x.dtype).removeprefix("torch.")]
        if hasattr(x, "dtype")
        else [[list(t.shape), str(t.dtype).removeprefix("torch.")] for t in compat.tensors_of(x)]
        for k, x in inputs.items()
    }


_Try: TypeAlias = "tuple[Mapping[str, Any], tuple[str, Any]]"


#: So many fields of a configuration are mended, one after the other.
_MOST_MENDED = 8
#: So many configurations that were mended by what a model said when it ran are tried.
_MOST_AGAIN = 24


def _configured(
    config_class: Any, kwargs: Mapping[str, Any], model_class: Any
) -> tuple[Mapping[str, Any], Any, int]:
    """The configuration that a class can be built from, with how many parameters: of these arguments, with what the
    model's own code asks for (`mending.py`)."""
    done: list[Any] = []
    said: Exception | None = None  # what it said of the arguments as they were
    while True:
        try:
            config = config_class(**copy.deepcopy(dict(kwargs)))
        except Exception as e:
            said = said or e
            agreed = mending.agreeing(kwargs, str(e))
            if agreed is None or str(e) in done or len(done) >= _MOST_MENDED:
                raise said from None
            done.append(str(e))
            kwargs = agreed
            continue
        try:
            return kwargs, config, _count(model_class, config)
        except ImportError:
            raise
        except Exception as e:
            said = said or e
            change = next((c for c in mending.asked(e, config) if c not in done), None)
            if change is None or len(done) >= _MOST_MENDED:
                raise said from None
            done.append(change)
            try:
                kwargs = mending.changed(kwargs, config, change)
            except Exception:  # a configuration that takes no such value
                raise said from None


def _once_more(large: list[tuple[int, Mapping[str, Any], tuple[str, Any]]]) -> Iterator[_Try]:
    """What was put off for its size, the smallest first: it is tried where nothing small works."""
    for _, kwargs, c in sorted((x for x in large if x[0] <= MAX_PARAMETERS), key=lambda x: x[0]):
        yield kwargs, c


def _accepted(
    module: Any, seed: int, reasons: list[str], wishes: list[mending.Change]
) -> dict[str, Any] | None:
    """The first inputs that the module runs on.  Why it refused the others is appended to `reasons`; what its code
    missed in its configuration, to `wishes`."""
    torch = compat.require_torch()
    tried = _Tried()
    name = type(module).__name__
    waiting = _inputs(module, seed)
    mended: list[dict[str, Any]] = []
    added: set[tuple[str, ...]] = set()
    while (inputs := mended.pop() if mended else next(waiting, None)) is not None:
        if tried.hopeless(inputs):
            continue
        try:
            with torch.no_grad(), compat.quiet():
                compat.register_caches(module(**inputs))
        except BaseException as e:
            if type(e).__name__ == "OptionalDependencyNotAvailable":  # it was built as if all were installed
                raise ImportError(
                    vars(module).get(_LACKS, "it needs a library that is not installed")
                ) from None
            if not isinstance(e, Exception):
                raise
            tried.failed(inputs, e)
            reasons.append(f"{name}({', '.join(inputs)}): {_line(e)}")
            if "None" in str(e) or isinstance(e, AttributeError) or mending.refused(e):
                wishes += [c for c in mending.asked(e, module.config) if c not in wishes]
            wishes += [c for c in mending.widened(e, module.config) if c not in wishes]
            mended += tried.mended(inputs, e)
            more = _missed(module, inputs, e)
            if more and (key := (*sorted(inputs), *more)) not in added:
                added.add(key)
                mended += _with(module, inputs, more, seed) or _embedded(module, inputs, seed)
            elif _NOT_IDS.search(str(e)):
                mended += _embedded(module, inputs, seed)
            with_features = placeholders.placed(module, inputs, str(e))
            mended += [with_features] if with_features is not None else []
            continue
        return inputs
    if not tried:
        takes = ", ".join(inspect.signature(module.forward).parameters)
        reasons.append(f"{name}: no example can be made of what it takes ({takes})")
    return None


def _seen(module: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs; with masks that leave out what they name, where nothing comes of ones that name all."""
    torch = compat.require_torch()
    turned = {
        n: x == 0 for n, x in inputs.items() if n.endswith("mask") and getattr(x, "dtype", None) is torch.bool
    }

    def dead(given: Mapping[str, Any]) -> bool:
        with torch.no_grad(), compat.quiet():
            result = module(**given)
        floats = [t for t in compat.tensors_of(result) if t.is_floating_point() and t.numel() > 1]
        return bool(floats) and all(bool(t.min() == t.max()) for t in floats)

    if not turned or not dead(inputs):
        return inputs
    turned = {**inputs, **turned}
    try:
        return inputs if dead(turned) else turned
    except Exception:  # it wants something to be named
        return inputs


def _missed(module: Any, inputs: Mapping[str, Any], error: Exception) -> list[str]:
    """Inputs that a model may be called without and asked for: by their names, or by using nothing in their place."""
    names = [n for n in inspect.signature(module.forward).parameters if n not in inputs]
    text = str(error)
    if isinstance(error, TypeError | ValueError | AssertionError) and (
        said := [n for n in names if re.search(rf"\b{n}\b", text) and not n.endswith("_embeds")]
    ):
        return said
    if "None" not in text:
        return []
    return [n for n in mending.absent(error) if n in names][:1]


def _with(module: Any, inputs: Mapping[str, Any], more: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """The inputs, and these."""
    config = module.config
    generator = compat.require_torch().Generator().manual_seed(seed + 1)
    known, said = _shapes(config), described(module.forward, partial(_first, config))
    made: dict[str, Any] = {}
    for name in more:
        shapes = known.get(name) or (_like(name, config) if name not in said else [])
        if shapes:
            made[name] = _draw(name, shapes[0], config, generator)
        elif name in said:
            made[name] = _draw_said(name, said[name], config, generator)
        else:
            return []
    length = inputs["input_ids"].shape[1] if "input_ids" in inputs and inputs["input_ids"].dim() > 1 else 0
    if length and length != SEQUENCE:  # what belongs to a text is as long as that
        made = {
            n: _at_extent(x, 1, length) if x.dim() > 1 and x.shape[1] == SEQUENCE else x
            for n, x in made.items()
        }
    return [{**inputs, **made}]


#: How a model says that it takes no words, only what stands for them.
_NOT_IDS = re.compile(r"`?input_ids`? (is expected to|must|should) be `?None\b")


def _embedded(module: Any, inputs: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """The inputs with vectors in the place of words, where the module takes those."""
    takes = inspect.signature(module.forward).parameters
    if "input_ids" not in inputs or "inputs_embeds" not in takes:
        return []
    rest = {n: x for n, x in inputs.items() if n != "input_ids"}
    width = _like("inputs_embeds", module.config)[0][-1]
    shape = (*inputs["input_ids"].shape[:2], width)
    return [{"inputs_embeds": _draw("inputs_embeds", shape, module.config, _generator(seed + 1)), **rest}]


def _more(module: Any, inputs: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The inputs, and all others of known shapes that the module takes beside them."""
    out = dict(inputs)
    known = _shapes(module.config)
    for name in inspect.signature(module.forward).parameters:
        for tried in _with(module, out, [name], seed) if name in known and name not in out else ():
            try:
                with compat.require_torch().no_grad(), compat.quiet():
                    module(**tried)
            except Exception:
                continue
            out = tried
    return out


def _text_alone(
    module: Any, inputs: Mapping[str, Any], stand: Mapping[str, list[int]]
) -> dict[str, Any] | None:
    """The inputs without images and sounds, where there are some and the module takes the text without them."""
    if "input_ids" not in inputs or not any(n in inputs for n in placeholders.MEDIA):
        return None
    plain = placeholders.without(inputs, stand)
    try:
        with compat.require_torch().no_grad(), compat.quiet():
            module(**plain)
    except Exception:  # it wants both
        return None
    return plain


#: (the axis that does not fit, how PyTorch says what it is and what a layer wants)
_MISFITS = tuple(
    (axis, re.compile(said))
    for axis, said in (
        (-1, r"shapes cannot be multiplied \(\d+x(?P<now>\d+) and (?P<wanted>\d+)x\d+\)"),
        (1, r"expected input\[.*?\] to have (?P<wanted>\d+) channels, but got (?P<now>\d+)"),
        (-1, r"normalized_shape=\[(?P<wanted>\d+)\], expected .*got input of size\[[\d, ]*?(?P<now>\d+)\]"),
        (
            -1,
            r"first two dimensions of batch2 tensor to be: \[\d+, (?P<now>\d+)\] "
            r"but got: \[\d+, (?P<wanted>\d+)\]",
        ),
        (
            2,
            r"tensor a \((?P<now>\d+)\) must match the size of tensor b \((?P<wanted>\d+)\) "
            r"at non-singleton dimension 2",
        ),
    )
)


#: An input that is made longer has at most so many elements.
_LONGEST = 1 << 20
#: So many wants of one model are met.
_MOST_WANTS = 50
#: How a model says what a length must be a multiple of.
_MULTIPLE = re.compile(r"multiple of (?:`[^`]*`\D*)?(\d+)")


#: Integers that are no words.
_KINDS = re.compile(r"(?<!input)(?<!position)_ids$")
#: How Python says that a shape has too few axes.
_UNPACKED = re.compile(r"not enough values to unpack \(expected (\d+), got (\d+)\)")


#: How PyTorch says that what is permuted has too few axes: what is wanted is a picture of features.
_ORDERED = re.compile(r"input\.dim\(\) = (\d) is not equal to len\(dims\) = (\d)")
#: How PyTorch says that there is one axis too many: what is packed has no batch.
_UNBATCHED = re.compile(r"Expected \dD \(unbatched\) or (\d)D .*but got input of size: \[([\d, ]+)\]")
#: How PyTorch says that lengths of parts do not add up to what they are parts of.
_SHARED = re.compile(r"expects split_sizes to sum exactly to (\d+) .*but got split_sizes=\[([\d, ]+)\]")
#: How PyTorch says that a mask holds in so many other places than there are values.
_PLACED = re.compile(
    r"value tensor of shape \[(\d+)[^\]]*\] cannot be broadcast to indexing result of shape \[(\d+)"
)


def _with_places(inputs: Mapping[str, Any], values: int, places: int) -> list[dict[str, Any]]:
    """The inputs with a mask that held in `places`, holding in as many as there are values, behind each row's first."""
    out = []
    for name, x in inputs.items():
        each = values // len(x) if x.dim() == 2 and name.endswith("mask") and int(x.sum()) == places else 0
        if 0 < each < x.shape[1] and each * len(x) == values:
            mask = x * 0
            mask[:, 1 : 1 + each] = 1
            out.append({**inputs, name: mask})
    return out


#: How PyTorch says that a window is wider than what it slides over.
_SHORT = re.compile(r"Kernel size can't be greater than actual input size|smaller than kernel size")
#: How PyTorch says that a layer of sounds or images was given integers.
_SOUND = re.compile(r"expected scalar type Long but found Float|Input type \((long|int)")
#: Integers that are words, and masks.
_WORDS = re.compile(r"_ids$|mask$")
#: How PyTorch says that there is a layer for each of so many positions.
_FEW = re.compile(r"^index (\d+) is out of range$")


def _longer(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs with numbers that are four times as long, along the axes that windows slide over."""
    floats = [n for n, x in inputs.items() if x.is_floating_point() and 2 <= x.dim() <= 4]
    out = []
    for name in floats:
        x = inputs[name]
        for axis in (-1,) if x.dim() < 4 else (-1, -2):
            x = _at_extent(x, axis, 4 * x.shape[axis])
        if x.numel() <= _LONGEST:
            out.append({**inputs, name: x})
    return out


def _shorter(inputs: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """The inputs with texts of at most so many positions."""
    ids = next((x for x in inputs.values() if x.dim() == 2 and not x.is_floating_point()), None)
    if ids is None:
        return []
    length = ids.shape[1]
    return [
        {n: x[:, :k] if x.dim() > 1 and x.shape[1] == length else x for n, x in inputs.items()}
        for k in (most, most + 1)  # the last is the first tried
        if 0 < k < length
    ]


def _misfits(text: str, inputs: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """(axis, extent, wanted extent) by what an error says."""
    for axis, said in _MISFITS:
        if found := said.search(text):
            yield axis, int(found["now"]), int(found["wanted"])
            return
    if found := _MULTIPLE.search(text):
        of = int(found[1])
        for x in inputs.values():
            for axis, n in enumerate(x.shape):
                if axis and of > 1 and n % of and re.search(rf"\b{n}\b", text):
                    yield axis, n, -(-n // of) * of


def _masks_of(name: str, inputs: Mapping[str, Any], now: int, wanted: int) -> dict[str, Any]:
    """The masks among the inputs that are as long as this one was, as long as it is now."""
    return {
        n: _at_extent(x, -1, wanted)
        for n, x in inputs.items()
        if n != name and n.endswith("mask") and x.dim() == 2 and x.shape[-1] == now
    }


def _at_extent(x: Any, axis: int, wanted: int) -> Any:
    """Something like `x`, with this extent along an axis."""
    torch = compat.require_torch()
    shape = list(x.shape)
    now, shape[axis] = shape[axis], wanted
    generator = _generator(now)
    if x.is_floating_point():
        return torch.randn(shape, generator=generator)
    return torch.randint(int(x.min()), int(x.max()) + 1, shape, generator=generator, dtype=x.dtype)


def _generator(seed: int) -> Any:
    return compat.require_torch().Generator().manual_seed(seed)


class _Tried:
    """What inputs were refused for: the same twice over, at other extents of as many axes, is not for the extents."""

    def __init__(self) -> None:
        self._why: dict[tuple[tuple[str, int], ...], list[str]] = {}
        self._mended: set[str] = set()

    @staticmethod
    def _form(inputs: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        return tuple((name, x.dim()) for name, x in inputs.items())

    def failed(self, inputs: Mapping[str, Any], error: Exception) -> None:
        self._why.setdefault(self._form(inputs), []).append(f"{type(error).__name__}: {error}")

    def __bool__(self) -> bool:
        return bool(self._why)

    def mended(self, inputs: Mapping[str, Any], error: Exception) -> list[dict[str, Any]]:
        """The inputs with as many features, or channels, as a first layer said that it wants, or with a length that is
        a multiple of what the model said; once for each want."""
        torch = compat.require_torch()
        text = str(error)
        said = f"{text} {[tuple(x.shape) for x in inputs.values()]}"
        if said in self._mended or len(self._mended) > _MOST_WANTS:  # a want may grow with what it is given
            return []
        self._mended.add(said)
        if (
            "index out of range" in text or "is out of bounds for dimension" in text
        ):  # kinds of things, which are fewer than words
            few = {n: x % 2 for n, x in inputs.items() if x.dtype is torch.int64 and _KINDS.search(n)}
            return [dict(inputs) | few] if any(bool((inputs[n] > 1).any()) for n in few) else []
        if _SHORT.search(text):
            return _longer(inputs)
        if _SOUND.search(text):  # a waveform under a name that says nothing
            plain = [n for n, x in inputs.items() if x.dtype is torch.int64 and not _WORDS.search(n)]
            return [{**inputs, n: torch.randn(BATCH, 4000, generator=_generator(0))} for n in plain]
        if isinstance(error, IndexError) and (found := _FEW.search(text)):
            return _shorter(inputs, int(found[1]))
        if "boolean mask" in text:
            return [{n: x.bool() if n.endswith("mask") else x for n, x in inputs.items()}]
        for axis, now, wanted in _misfits(text, inputs):
            # Of several that it may mean, the last made is the first tried.
            return [
                dict(inputs) | {name: _at_extent(x, axis, wanted)} | _masks_of(name, inputs, now, wanted)
                for name, x in reversed(list(inputs.items()))
                if x.dim() > max(axis, 1) and x.shape[axis] == now
            ]
        if found := _ORDERED.search(text):
            return [
                dict(inputs) | {name: x.mT.reshape(x.shape[0], x.shape[2], side, side).contiguous()}
                for name, x in reversed(list(inputs.items()))
                if (int(found[1]), int(found[2]), x.dim()) == (3, 4, 3)
                and (side := math.isqrt(x.shape[1])) ** 2 == x.shape[1]
            ]
        if found := _SHARED.search(text):
            whole, lengths = int(found[1]), [int(n) for n in found[2].split(",")]
            share = [whole // len(lengths)] * (len(lengths) - 1)
            return [
                {**inputs, name: torch.tensor([*share, whole - sum(share)], dtype=x.dtype)}
                for name, x in inputs.items()
                if x.dim() == 1 and not x.is_floating_point() and x.tolist() == lengths
            ]
        if (found := _UNBATCHED.search(text)) and found[2].count(",") == int(found[1]):
            return [
                {**inputs, name: x[0].clone()}
                for name, x in inputs.items()
                if x.dim() == int(found[1]) and x.is_floating_point()
            ]
        if found := _PLACED.search(text):
            return _with_places(inputs, int(found[1]), int(found[2]))
        if found := _UNPACKED.search(text):
            wanted, now = int(found[1]), int(found[2])
            return [
                dict(inputs) | {name: x.reshape(x.shape[0], *[1] * (wanted - now), *x.shape[1:])}
                for name, x in inputs.items()
                if x.dim() == now and wanted > now
            ]
        return []

    def hopeless(self, inputs: Mapping[str, Any]) -> bool:
        why = self._why.get(self._form(inputs), [])
        return len(why) > 1 and len(set(why)) == 1 and "shape" not in why[0]


def without_masks(model: Model) -> Iterator[Model]:
    """The model without masks of padding: those that it does not ask for, then all, where it runs so."""
    every = frozenset(
        n for n in model.kwargs if masks.is_mask(n) and n not in model.meta.get("placeholders", {})
    )
    for names in dict.fromkeys((model.masks, every)):
        kwargs = {n: x for n, x in model.kwargs.items() if n not in names}
        plain = {n: x for n, x in model.plain.items() if n not in names} if model.plain is not None else None
        if not names or not kwargs or model.args:
            continue
        try:
            with compat.require_torch().no_grad(), compat.quiet():
                model.module(**kwargs)
        except Exception:
            continue
        meta = {**model.meta, "inputs": _said(kwargs)}
        yield replace(model, kwargs=kwargs, plain=plain, masks=model.masks - names, meta=meta)


def holding_masks(model: Model) -> Model | None:
    """The model that holds the masks of its example; None where it takes none, or nothing else."""
    names = [n for n in model.kwargs if n.endswith("mask")]
    if model.args or not names or len(names) == len(model.kwargs) or not hasattr(model.module, "config"):
        return None
    module, inputs, given = geometry.placed(model.module, model.kwargs, names)
    meta = {**model.meta, "inputs": _said(inputs), "given": {**model.meta.get("given", {}), **given}}
    return replace(model, module=module, kwargs=inputs, meta=meta, fixed=frozenset(inputs), plain=None)


def _plain_backbone(transformers: Any) -> Any:
    return transformers.ResNetConfig(
        depths=[1, 1, 1, 1], embedding_size=16, hidden_sizes=[32, 64, 128, 256], out_indices=[1, 2, 3, 4]
    )


def _line(e: Exception) -> str:
    """The error's first line; a configuration's own validation says what is wrong in its last."""
    lines = [x.strip() for x in str(e).splitlines() if x.strip()]
    if lines and lines[0].endswith(":"):
        lines[0] += f" {lines[-1]}"
    return f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__


def _plain(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration arguments as JSON, a nested configuration by its class and its own changed fields."""
    out: dict[str, Any] = {}
    for k, v in sorted(kwargs.items()):
        if hasattr(v, "to_diff_dict"):
            own = {
                n: x for n, x in v.to_diff_dict().items() if n not in ("model_type", "transformers_version")
            }
            out[k] = {"__config__": type(v).__name__, "kwargs": _jsonable(own)}
        else:
            out[k] = _jsonable(v)
    return out


def _jsonable(v: Any) -> Any:
    if isinstance(v, Mapping):
        return {str(k): _jsonable(x) for k, x in v.items()}
    if isinstance(v, list | tuple):
        return [_jsonable(x) for x in v]
    return v if v is None or isinstance(v, bool | int | float | str) else str(v)


def _that_runs(module: Any) -> tuple[Any, str]:
    """The module, and ""; the first of its parts that has a `forward`, and what it calls that, where it has none of
    its own: it says in methods only how its parts follow each other."""
    if parts.runs(type(module)):
        return module, ""
    for name, part in module.named_children():
        if parts.runs(type(part)) and next(part.parameters(), None) is not None:
            if not hasattr(part, "config"):
                part.config = module.config
            return part, name
    return module, ""


def _construct(model_class: Any, config: Any) -> Any:
    _plainly(config)
    with compat.quiet():
        return _build(model_class, config).float().eval()


def _plainly(config: Any) -> None:
    """Outputs are the model's own results: no caches, no layers' states."""
    for c in _configs(config):
        for name in ("use_cache", "output_attentions", "output_hidden_states"):
            if getattr(c, name, False):
                setattr(c, name, False)


def _count(model_class: Any, config: Any) -> int:
    """How many parameters a model has, without their memory."""
    config = copy.deepcopy(config)
    _plainly(config)
    with compat.require_torch().device("meta"), compat.quiet():
        return sum(p.numel() for p in _build(model_class, config).parameters())


def _build(model_class: Any, config: Any) -> Any:
    if not parts.is_model(model_class):
        for name, value in CONSTRUCT.items():
            setattr(config, f"_{name}", value)
        module = model_class(config)
        if not hasattr(module, "config"):
            module.config = config
        return module
    again = copy.deepcopy(config)
    try:
        return model_class._from_config(config, **CONSTRUCT)
    except ImportError as e:
        try:  # a library that only the loss needs, say, is asked for and never called
            with _as_if_installed():
                module = model_class._from_config(again, **CONSTRUCT)
        except Exception:
            raise e from None
        vars(module)[_LACKS] = str(e)
        return module


#: Where a module that was built without a library that it asked for keeps what was said.
_LACKS = "_opwright_lacks"


@contextmanager
def _as_if_installed() -> Iterator[None]:
    """transformers asks for no library that it does not then import."""
    from transformers.utils import import_utils

    table = import_utils.BACKENDS_MAPPING
    before = dict(table)
    table.update({name: (lambda: True, message) for name, (_, message) in before.items()})
    try:
        yield
    finally:
        table.update(before)


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for v in vars(config).values():
        if hasattr(v, "to_diff_dict"):
            yield from _configs(v)


# ---- inputs

BATCH, SEQUENCE, TARGET_SEQUENCE = 2, 16, 8
_Maker: TypeAlias = Callable[[], Any]


def _inputs(module: Any, seed: int) -> Iterator[dict[str, Any]]:
    """Example inputs by the names of `forward`, the plainest first.  Integers are drawn below the smallest
    vocabulary, masks are ones, everything else is normal."""
    torch = compat.require_torch()
    generator = torch.Generator().manual_seed(seed)
    names = list(inspect.signature(module.forward).parameters)
    config = module.config
    main = getattr(module, "main_input_name", None) or names[0]
    main = main if isinstance(main, str) else main[0]  # of several, the first
    makers: dict[str, list[Callable[[], Any]]] = {
        name: [partial(_draw, name, s, config, generator) for s in shapes]
        for name, shapes in _shapes(config).items()
    }
    required = [
        p.name
        for p in inspect.signature(module.forward).parameters.values()
        if p.default is inspect.Parameter.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    said = described(module.forward, partial(_first, config))
    if f"{main}_mask" in names and main in makers:
        makers.setdefault(f"{main}_mask", [])
    for name in required:
        packed = any(n.endswith("grid_thw") for n in required) and not geometry.is_geometry(name)
        if packed or name not in makers:
            shapes = _packed(config) if packed else _like(name, config)
            ways: list[_Maker] = [partial(_draw, name, s, config, generator) for s in shapes]
            if name in said and said[name].shape not in shapes:
                ways.append(partial(_draw_said, name, said[name], config, generator))
            makers |= {name: ways} if ways else {}
    if "states" in names:  # of a decision: masked by its steps
        steps = (BATCH, TARGET_SEQUENCE)
        makers["attention_mask"] = [partial(_draw, "attention_mask", steps, config, generator)]
    pairs: list[list[str]] = []
    text: list[str] = [n for n in ("input_ids", "attention_mask") if n in names]
    decoder: list[str] = [n for n in ("decoder_input_ids",) if n in names]
    encoder_decoder = bool(getattr(config, "is_encoder_decoder", False)) or (decoder and main != "input_ids")
    if main == "input_ids" or (main not in makers and text):
        base = text + (decoder if encoder_decoder else [])
        # All of the model is used where the text comes with what it speaks of.
        pairs += [[*base, n] for n in placeholders.MEDIA if n in names and n in makers]
        pairs += [
            base,
            [n for n in base if n != "attention_mask"],
            *[[*base, n] for n in names if n in makers and n not in base],
        ]
    if main in makers and main != "input_ids":
        base = [main]
        pairs += [
            base + (decoder if encoder_decoder else []),
            base,
            base + text,
            base + text + decoder,
            [main, "pixel_mask"] if "pixel_mask" in names else base,
            [main, f"{main}_mask"] if f"{main}_mask" in names else base,
        ]
    if required and all(n in makers for n in required):
        known = [n for n in ("attention_mask",) if n in names and "input_ids" in required]
        if "past_time_features" in required:  # the decoder reads what is known of the future
            known += ["future_values", "future_time_features"]
        pairs.insert(0, required + known)
        if "input_ids" not in required:  # a text beside it may be wanted as well
            pairs[1:1] = [required + text, required + text + decoder]
    pairs.append([n for n in names if n in makers and n not in ("pixel_mask", "freq")])
    tried: list[tuple[str, ...]] = []
    for pair in pairs:
        chosen = tuple(dict.fromkeys(n for n in pair if n in names and n in makers))
        if not chosen or chosen in tried:
            continue
        tried.append(chosen)
        covers = {n: of for n in chosen if (of := _masked(n, chosen)) is not None}
        free = [n for n in chosen if n not in covers]
        for combination in _combinations([makers[n] for n in free]):
            made = {n: make() for n, make in zip(free, combination, strict=True)}
            # A mask is as long as what it masks, along one axis or the other.
            for axis in (1, -1) if covers else (1,):
                over = {
                    n: torch.ones(made[of].shape[0], made[of].shape[axis]).long() for n, of in covers.items()
                }
                yield {n: over[n] if n in over else made[n] for n in chosen}


def _combinations(makers: Sequence[Sequence[_Maker]]) -> Iterator[tuple[_Maker, ...]]:
    """One way to make each: of the same rank among its ways first (images that belong together are of one size), then
    every way of each."""
    for k in range(max(map(len, makers), default=0)) if len(makers) > 1 else ():
        yield tuple(ways[min(k, len(ways) - 1)] for ways in makers)
    yield from itertools.islice(itertools.product(*makers), 12)


def _masked(name: str, among: Sequence[str]) -> str | None:
    """Which of the inputs this mask is of, where its name says so, or it is called nothing but a mask."""
    if not name.endswith("mask") or name in ("attention_mask", "pixel_mask", "past_observed_mask"):
        return None
    of = name.removesuffix("mask").removesuffix("_")
    return of if of in among else among[0] if not of and among[0] != name else None


#: How many patches two images have that lie packed in one sequence, as `grid_thw` says.
_GRID = ((1, 4, 4), (1, 4, 4))


def _packed(config: Any) -> list[tuple[int, ...]]:
    """Shapes of the patches of `_GRID`'s images, flat or not."""
    n = sum(t * h * w for t, h, w in _GRID)

    def number(other: int, *names: str) -> int:
        x = _first(config, *names)
        return x if isinstance(x, int) else other

    channels = number(3, "in_channels", "num_channels", "in_chans")
    patch = number(14, "patch_size", "spatial_patch_size")
    frames = number(1, "temporal_patch_size")
    shapes: list[tuple[int, ...]] = [(n, channels * k * patch * patch) for k in dict.fromkeys((frames, 1))]
    shapes += [(n, channels, patch, patch), (1, n, channels, patch, patch), (n, number(64, "hidden_size"))]
    return shapes


#: (what a name that nobody knows ends in, the shapes of which known one it takes)
_LIKENESS = (
    (r"(^|_)images?$|pixel(?!\w*_ids$)|_masks$", "pixel_values"),
    (r"(^|_)mel$|features$|(^|_)audio$", "input_features"),
    (r"mask$", "attention_mask"),
    (r"_ids$|_tokens$|_codes$|_inputs$", "input_ids"),
    (r"grid_thw$", "grid_thw"),
    (r"merge_sizes$|_structure$", "merge_sizes"),
)


def _like(name: str, config: Any) -> list[tuple[int, ...]]:
    """Shapes for a required input that `_shapes` does not name."""
    if re.search(r"(hidden_states?|embeds|embeddings|latents?|queries|features)$", name):
        width = _first(config, "hidden_size", "d_model", "embed_dim", "hidden_dim")
        width = width if isinstance(width, int) else 64
        if "latent" in name:  # what a sound is made of, channel by channel
            return [(BATCH, width, TARGET_SEQUENCE), (BATCH, SEQUENCE, width)]
        return [(BATCH, SEQUENCE, width)]
    known = next((k for pattern, k in _LIKENESS if re.search(pattern, name)), None)
    if known is None and re.search(r"(^|_)states?$|(^|_)latent$", name):
        width = _first(config, f"max_{name}_dim", f"{name}_dim", "hidden_size", "d_model")
        return [(BATCH, width if isinstance(width, int) else 64)]
    return [*_shapes(config)[known]] if known is not None else []


def _smallest_vocabulary(config: Any) -> int:
    sizes = [
        v
        for c in _configs(config)
        for k, v in vars(c).items()
        if k.endswith("vocab_size") and not k.startswith("type") and isinstance(v, int) and v > 8
    ]
    special = [
        v
        for c in _configs(config)
        for k, v in vars(c).items()
        if k.endswith(("token_id", "token_index"))
        and not k.startswith(("pad", "bos", "eos", "decoder"))
        and isinstance(v, int)
        and 8 < v < min(sizes, default=128)
    ]
    return min([*sizes, *special], default=128)  # below the placeholders of images and sounds


def _first(config: Any, *names: str) -> Any:
    """The first of these fields that any of the nested configs has."""
    for name in names:
        for c in _configs(config):
            v = vars(c).get(name)
            if v is not None and not isinstance(v, bool):
                return v
    return None


def _shapes(config: Any) -> dict[str, list[tuple[int, ...]]]:
    """Shapes to try, by input name."""
    b, s, t = BATCH, SEQUENCE, TARGET_SEQUENCE
    side = _first(config, "image_size", "max_img_size")
    if isinstance(side, Mapping):
        side = (side.get("height", 64), side.get("width", 64))
    if isinstance(side, list | tuple) and side:
        side = tuple(side) if len(side) == 2 else (side[0], side[0])
    sides = [side if isinstance(side, tuple) else (side, side)] if side else []
    sides += [(64, 64), (224, 224)]
    channels = _first(config, "num_channels", "in_channels", "in_chans")
    channels = channels if isinstance(channels, int) else 3
    mel = _first(
        config,
        *("num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "num_filters"),
        "input_feat_size",
    )
    mel = mel if isinstance(mel, int) else 80
    source = _first(config, "max_source_positions")
    frames = [2 * source] if isinstance(source, int) else []
    frames += [64, 128]
    length = _first(config, "max_length")
    features = (
        [(b, mel, n) for n in frames] + [(b, n, mel) for n in frames] + [(b, 64, 160), (b, 1, 1001, 64)]
    )
    frames_of = _first(config, "frames_per_clip", "num_frames")
    video = frames_of if isinstance(frames_of, int) else 4
    clips = [(b, video, channels, *x) for x in sides]
    patch = _first(config, "patch_size")
    flat = _first(config, "patch_embed_hidden_size")
    flat = flat or channels * (patch if isinstance(patch, int) else 16) ** 2
    context = _first(config, "context_length") or 128
    ahead = _first(config, "prediction_length") or 16
    past = context + max(_first(config, "lags_sequence") or [0])
    series, times = _first(config, "input_size"), _first(config, "num_time_features") or 1
    series = (series,) if isinstance(series, int) and series > 1 else ()
    tiles = _first(config, "max_num_tiles") or 1
    books = _first(config, "num_codebooks")  # a text token and one of each codebook at every step
    spoken = _first(config, "num_codebooks", "num_channels")  # what a decoder of sound says at every step
    return {
        "input_ids": [
            (b, s),
            *([(b, s, books + 1)] if isinstance(books, int) else []),
            *([(b, s, spoken)] if isinstance(spoken, int) else []),
        ],
        "attention_mask": [(b, s)],
        "decoder_input_ids": [
            (b, t),
            *([(b, t, spoken), (b * spoken, t)] if isinstance(spoken, int) else []),
        ],
        "inputs": [(b, s)],
        "pixel_values": (clips if frames_of else [])
        + [(b, channels, *x) for x in sides]
        + ([(b * video, channels, *x) for x in sides] if frames_of else clips)
        + [(b, 2, channels, *x) for x in sides]  # two that are matched
        + [(b, 1, channels, *x) for x in sides[:1]]  # each text with its image
        + ([(b, 1, tiles, channels, *x) for x in sides[:1]] if tiles > 1 else [])
        + [(b, s, channels * 16 * 16)],
        "pixel_values_videos": [(1, video, channels, *x) for x in sides],
        "pixel_mask": [(b, *x) for x in sides],
        "input_features": features,
        "input_values": [(b, 4000), (b, 1, 4000), *([(b, length, mel)] if length else []), (b, 1024, 128)],
        "past_values": [(b, past, *series), (b, past, _first(config, "num_input_channels") or 1)],
        "past_time_features": [(b, past, times)],
        "past_observed_mask": [(b, past, *series)],
        "future_values": [(b, ahead, *series)],
        "future_time_features": [(b, ahead, times)],
        "freq": [(b, 1)],
        "token_type_ids": [(b, s)],
        "bbox": [(b, s, 4)],
        "input_points": [(b, 1, 2, 2)],  # what is to be cut out of an image, one thing each
        "input_labels": [(b, 1, 2)],
        "input_boxes": [(b, 1, 4)],
        "input_boxes_labels": [(b, 1)],
        "aspect_ratio_ids": [(b, 1)],  # how an image was cut into tiles
        "aspect_ratio_mask": [(b, 1, tiles)],
        "states": [(b, t, _first(config, "state_dim") or 17)],
        "actions": [(b, t, _first(config, "act_dim") or 4)],
        "rewards": [(b, t, 1)],
        "returns_to_go": [(b, t, 1)],
        "timesteps": [(b, t)],
        "flattened_patches": [(b, s, 2 + flat)],  # where a patch stands, then the patch
        "pixel_attention_mask": [(b, s)],
        "image_attention_mask": [(b, s, 1)],
        "spatial_shapes": [(b, 2)],
        "grid_thw": [(len(_GRID), 3)],
        "merge_sizes": [(b,)],
        "visual_feats": [(b, 4, _first(config, "visual_feat_dim") or 2048)],
        "visual_pos": [(b, 4, 4)],
    }


def _draw(name: str, shape: tuple[int, ...], config: Any, generator: Any) -> Any:
    torch = compat.require_torch()
    if name.endswith("mask"):
        return torch.ones(shape, dtype=torch.int64)
    if name == "bbox":
        return torch.randint(0, 50, shape[:-1] + (2,), generator=generator).repeat(1, 1, 2) + torch.tensor(
            [0, 0, 9, 9]
        )
    if name == "flattened_patches":  # each one's row and column come before its values
        at = torch.randint(0, 4, shape[:-1] + (2,), generator=generator).float()
        return torch.cat([at, torch.randn(shape[:-1] + (shape[-1] - 2,), generator=generator)], dim=-1)
    if name.endswith("grid_thw"):
        return torch.tensor(_GRID)
    if re.search(r"merge_sizes$|_structure$", name):
        return torch.ones(shape, dtype=torch.int64)
    if name == "spatial_shapes":
        return torch.full(shape, 4, dtype=torch.int64)
    if name.endswith("position_ids") and len(shape) > 2 and shape[-1] == 2:
        # Where patches stand in a picture.
        side = math.isqrt(shape[-2] - 1) + 1
        at = torch.arange(shape[-2])
        return torch.stack([at % side, at // side], dim=-1).expand(shape).contiguous()
    if name in ("token_type_ids", "freq"):
        return torch.zeros(shape, dtype=torch.int64)
    if re.search(r"^input_(boxes_)?labels$", name):  # whether a point belongs to it
        return torch.randint(0, 2, shape, generator=generator)
    if name == "aspect_ratio_ids":  # 0 is no image
        return torch.ones(shape, dtype=torch.int64)
    if name == "timesteps":
        return torch.arange(shape[-1]).expand(shape).contiguous()
    if re.search(r"(_ids|_tokens|_codes)$|(^|_)inputs$", name):
        return torch.randint(3, max(_smallest_vocabulary(config), 4), shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _draw_said(name: str, said: Said, config: Any, generator: Any) -> Any:
    """An input of a shape that its documentation says."""
    torch = compat.require_torch()
    drawn = _draw(name, said.shape, config, generator)
    if said.kind == "bool":
        return torch.ones(said.shape, dtype=torch.bool)
    if said.kind == "int" and drawn.is_floating_point():  # kinds, counts, places: two of each there will be
        return torch.randint(1, 3, said.shape, generator=generator)
    return drawn


# ------------------------------------------------------------------------------------------------- weights


def rescale(module: Any, seed: int, gain: float = 1.0) -> None:
    """Make every block move the output, in place: matrices enlarged to `gain` per layer, norm weights and biases
    random.  A parameter's role is read from its values: ones scale, zeros shift, spread around zero multiplies."""
    torch = compat.require_torch()
    generator = torch.Generator().manual_seed(seed + 1)
    embeddings = {
        id(m.weight) for m in module.modules() if isinstance(m, torch.nn.Embedding | torch.nn.EmbeddingBag)
    }
    convolutions = {
        id(m.weight)
        for m in module.modules()
        if type(m).__name__.startswith("Conv") and hasattr(m, "kernel_size")
    }
    done: set[int] = set()
    with torch.no_grad():
        for p in module.parameters():
            if id(p) in done or not p.is_floating_point() or not p.numel():
                continue
            done.add(id(p))
            _rescale_one(p, generator, gain, id(p) in embeddings, id(p) in convolutions)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(0.3 * torch.randn(b.shape, generator=generator))
            elif name.endswith("running_var"):
                b.copy_(0.5 + torch.rand(b.shape, generator=generator))


def _rescale_one(p: Any, generator: Any, gain: float, embedding: bool, convolution: bool) -> None:
    torch = compat.require_torch()
    uniform = torch.rand(p.shape, generator=generator) * 2 - 1
    normal = torch.randn(p.shape, generator=generator)
    low, high = float(p.min()), float(p.max())
    if low == high:  # constant: it scales or shifts
        if high == 0:
            p.copy_(
                0.3 * normal
                if p.dim() <= 1 or p.shape[0] == 1
                else normal * _scale(p, gain, embedding, convolution)
            )
        elif p.numel() == 1:
            p.mul_(1 + 0.1 * uniform)  # a temperature or a gate: it knows its size
        else:
            p.copy_((1 + 0.5 * uniform) * max(abs(high), 0.5))
        return
    mean, std = float(p.mean()), float(p.std())
    if p.dim() >= 2 and abs(mean) < 0.3 * std:
        p.mul_(_scale(p, gain, embedding, convolution) / std)
    elif p.dim() <= 1 and abs(mean) < 0.3 * std:
        p.mul_(0.3 / std) if std < 0.3 else p.mul_(1 + 0.1 * uniform)
    else:  # structured: decay rates, positions, slopes
        p.mul_(1 + 0.1 * uniform)


def _scale(p: Any, gain: float, embedding: bool, convolution: bool) -> float:
    """The standard deviation that a tensor of weights gets."""
    if embedding or p.shape[0] == 1:
        return 1.0
    if convolution:
        return float(gain / (p[0].numel() ** 0.5))
    return float(gain / (max(p.shape[-1], p.shape[-2]) * min(p.shape[-1], p.shape[-2])) ** 0.25)
