"""What is made from a configuration that no task names: a part of a larger model.

    classes(config_class)                    what is built from it, the likeliest first
    owners(config_class, known)              the model types of whose configuration it is a part
    part, inputs = within(module, config_class, inputs)    the part in a model, and what that gives it

A part's inputs are what its owner makes of images and texts, in shapes that no name says; so where none that names
suggest is taken, the owner runs and what it passes on is looked at.

May import: torch_compat (torch and transformers inside functions).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import torch_compat as compat

__all__ = ["CONSTANTS", "classes", "is_model", "owners", "runs", "within"]

#: What a part is given that belongs to what it is.
CONSTANTS = (bool, int, float, str, type(None))


def classes(config_class: Any) -> list[tuple[str, Any]]:
    """(task, class): models that take this configuration, those with a head first, then what their module comes to
    last; else the plain module of its own name that says in its `__init__` that it takes it; else what its
    documentation builds from it."""
    found = [c for home in _homes(config_class) for c in _defined(home)]
    owned = [c for c in found if getattr(c, "config_class", None) is config_class and "__init__" in vars(c)]
    models = [c for c in owned if "forward" in vars(c)]
    models.reverse()
    if models:
        return [("BASE", c) for c in sorted(models, key=lambda c: "For" not in c.__name__)]
    stem = config_class.__name__.removesuffix("Config")
    plain = [c for c in found if c.__name__ == stem and _takes(c, config_class)]  # others are blocks of it
    return [
        ("BASE", c) for c in plain or _documented(config_class) or owned
    ]  # what has no forward has parts that do


def runs(kind: Any) -> bool:
    """Whether a class of modules has a `forward` at all."""
    return bool(kind.forward is not compat.require_torch().nn.Module.forward)


def is_model(kind: Any) -> bool:
    """Whether transformers makes it from a configuration as it makes models; else it is a plain module of one."""
    return hasattr(kind, "_from_config")


def owners(config_class: Any, known: Mapping[str, str]) -> list[str]:
    """Of these model types (type → name of its configuration's class), those beside it that hold one of it."""
    home = importlib.import_module(config_class.__module__)
    out = []
    for model_type, name in known.items():
        owner = vars(home).get(name)
        if owner is None or owner is config_class or owner.model_type != model_type:
            continue
        held = getattr(owner, "sub_configs", None)
        said = getattr(owner, "sub_configs_defaults", None)  # by its type, where it may be any
        types = [getattr(x, "model_type", None) for x in dict(said or {}).values()]
        if (isinstance(held, Mapping) and config_class in held.values()) or config_class.model_type in types:
            out.append(model_type)
    return out


def within(module: Any, config_class: Any, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The part of `module` that has a configuration of this class (that of its own name first, then the outermost), as
    `module` calls it on `inputs`: its inputs by name (tensors, and what else is not as its `forward` has it anyway).
    None where there is none, or it is not called."""
    torch = compat.require_torch()
    seen: list[tuple[Any, dict[str, Any]]] = []

    def look(part: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((part, _by_name(part, args, kwargs)))

    parts = [m for m in module.modules() if m is not module and _is_of(m, config_class)]
    inner = {id(m) for part in parts for m in part.modules() if m is not part}
    parts = [m for m in parts if id(m) not in inner]  # a block of a part is not the part
    hooks = [m.register_forward_pre_hook(look, with_kwargs=True) for m in parts]
    try:
        with torch.no_grad():
            module(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    stem = config_class.__name__.removesuffix("Config")
    order = {id(m): (not type(m).__name__.startswith(stem), k) for k, m in enumerate(parts)}
    for part, given in sorted(seen, key=lambda x: order[id(x[0])]):
        if any(isinstance(x, torch.Tensor) for x in given.values()):
            return part, given
    return None


def _is_of(module: Any, config_class: Any) -> bool:
    return (
        type(getattr(module, "config", None)) is config_class
        or type(module).__name__ == config_class.__name__.removesuffix("Config")
        or _takes(type(module), config_class, alone=False)
    )


def _by_name(part: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    signature = inspect.signature(part.forward)
    bound = signature.bind(*args, **kwargs)
    out: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            out |= value
        elif kind is not inspect.Parameter.VAR_POSITIONAL:
            out[name] = value
    defaults = {p.name: p.default for p in signature.parameters.values()}
    return {
        n: compat.copied(((x,), {}))[0][0]
        for n, x in out.items()
        if not (isinstance(x, CONSTANTS) and x == defaults.get(n))
    }


# ---- the classes of a package


def _homes(config_class: Any) -> Iterator[Any]:
    """The modules that may hold a configuration's models, that of its own name first."""
    own = config_class.__module__.replace(".configuration_", ".modeling_")
    package = importlib.import_module(config_class.__module__.rpartition(".")[0])
    names = [
        f"{package.__name__}.{m.name}"
        for m in pkgutil.iter_modules(getattr(package, "__path__", ()))
        if m.name.startswith("modeling_") and not m.name.startswith(("modeling_tf_", "modeling_flax_"))
    ]
    for name in sorted(names, key=lambda n: n != own):
        yield importlib.import_module(name)


def _defined(module: Any) -> list[Any]:
    return [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]


def _takes(kind: Any, config_class: Any, alone: bool = True) -> bool:
    """Whether a module is said to be built from such a configuration, and (`alone`) from nothing else."""
    if "forward" not in vars(kind) or "__init__" not in vars(kind):
        return False
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    said = [p.annotation in (config_class, config_class.__name__) for p in needed]
    return said == [True] if alone else any(said)


def _documented(config_class: Any) -> list[Any]:
    """The models that a configuration's example makes."""
    import transformers

    names = re.findall(r">>> \w+ = (\w+)\((?:config=)?config(?:uration)?\)", config_class.__doc__ or "")
    found = [getattr(transformers, n, None) for n in names]
    return [c for c in found if inspect.isclass(c) and hasattr(c, "forward")]
