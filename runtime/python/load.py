"""Loads the C++ core once: a `_core` that was built into the package, else the one that the toolchain builds.

Importing this module may compile, so nothing imports it before a name of the runtime is used.
May import: `.exceptions`, `.toolchain`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from .exceptions import BY_KIND

_NAME = f"{__package__}._core"


def _load() -> Any:
    if (known := sys.modules.get(_NAME)) is not None:
        return known
    spec = importlib.util.find_spec(_NAME)
    if spec is None:
        from . import toolchain  # only here: a shipped core needs no compiler

        path = str(toolchain.build_core())
        loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
        spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    core: Any = module
    core.set_error_classes(dict(BY_KIND))
    core.configure(os.environ.get("OPWRIGHT_ALLOC_CONF", ""))
    sys.modules[_NAME] = module
    return core


core: Any = _load()
