"""`opwright.toml`: what a repository says of itself as a workbench; found from the working directory upwards.

    config = find()            the nearest file, or the defaults for a folder that has none
    config.spec_dirs           built-in specs first, then this repository's own, which overlay them by name

May import: generator.errors, runtime.resources.  To add a key: a row in `_KEYS` (or `_TABLES`), a field of `Config`,
and a line in `TEMPLATE`, which `opwright init` writes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import resources
from ..generator.errors import OpwrightError, Place, did_you_mean, raise_all

__all__ = ["LANGUAGE", "SCHEMA", "TARGETS", "Config", "ConfigError", "find", "load"]

NAME = "opwright.toml"
SCHEMA = 1
LANGUAGE = 1
TARGETS = ("cpu", "cuda")


class ConfigError(OpwrightError):
    """opwright.toml says something that is not known, or is no TOML."""


@dataclass(frozen=True)
class Config:
    """Paths are absolute.  `file` is None where there is no opwright.toml; `root` is then the working directory."""

    root: Path
    file: Path | None = None
    language: int = LANGUAGE
    namespace: str = ""
    targets: tuple[str, ...] = ("cpu",)
    torch: str = ">=2.13"
    specs: tuple[Path, ...] = ()
    bodies: Path = field(default_factory=Path)
    evidence: Path = field(default_factory=Path)
    support: Path = field(default_factory=Path)
    generated: Path = field(default_factory=Path)
    measured: Path = field(default_factory=Path)
    gate_budget_s: float = 900.0
    gate_sample: float = 0.1
    agent_attempts: int = 8
    agent_seconds: float = 1800.0

    @property
    def spec_dirs(self) -> tuple[Path, ...]:
        """Folders that hold operators, built-in ones first; a later one replaces operators of an earlier one."""
        own = tuple(_operators(p) for p in self.specs)
        built_in = _operators(resources.specs_dir())
        return (built_in, *(p for p in own if p.resolve() != built_in.resolve()))

    @property
    def bodies_dirs(self) -> tuple[Path, ...]:
        """Where kernels written by hand are looked for, in this order."""
        return _distinct(self.bodies, resources.bodies_dir())

    @property
    def evidence_dirs(self) -> tuple[Path, ...]:
        """Where evidence is looked for, in this order; `accept` writes to the first."""
        return _distinct(self.evidence, resources.accepted_dir())

    @property
    def support_dirs(self) -> tuple[Path, ...]:
        """Where records of architectures are looked for; `enable` writes to the first."""
        return _distinct(self.support, resources.support_dir())


def _operators(folder: Path) -> Path:
    """`specs/ops` where there is one (models lie beside it), else the folder itself."""
    return folder / "ops" if (folder / "ops").is_dir() else folder


def _distinct(*folders: Path) -> tuple[Path, ...]:
    seen: dict[Path, Path] = {}
    for f in folders:
        seen.setdefault(f.resolve(), f)
    return tuple(seen.values())


# ---- reading -----------------------------------------------------------------------------------------------------

_Check = Callable[[Any], str]


def _is_text(v: Any) -> str:
    return "" if isinstance(v, str) else "a string"


def _is_name(v: Any) -> str:
    ok = isinstance(v, str) and (v == "" or re.fullmatch(r"[a-z][a-z0-9_]*", v) is not None)
    return "" if ok else "a name of lower-case letters, digits and _"


def _is_path(v: Any) -> str:
    return "" if isinstance(v, str) and v and "\0" not in v else "a path"


def _is_paths(v: Any) -> str:
    return (
        ""
        if isinstance(v, list) and all(not _is_path(x) for x in v)
        else 'a list of paths, such as ["specs"]'
    )


def _is_targets(v: Any) -> str:
    ok = isinstance(v, list) and v and all(x in TARGETS for x in v)
    return "" if ok else f"a list of targets: {', '.join(TARGETS)}"


def _is_positive(v: Any) -> str:
    return "" if isinstance(v, int | float) and not isinstance(v, bool) and v > 0 else "a positive number"


def _is_share(v: Any) -> str:
    return (
        ""
        if isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1
        else "a share from 0 to 1"
    )


def _is_version(newest: int) -> _Check:
    def check(v: Any) -> str:
        return (
            "" if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= newest else f"at most {newest}"
        )

    return check


#: table -> key -> (field of Config, what it must be)
_TABLES: dict[str, dict[str, tuple[str, _Check]]] = {
    "": {
        "schema": ("", _is_version(SCHEMA)),
        "language": ("language", _is_version(LANGUAGE)),
        "namespace": ("namespace", _is_name),
        "targets": ("targets", _is_targets),
        "torch": ("torch", _is_text),
    },
    "paths": {
        "specs": ("specs", _is_paths),
        "bodies": ("bodies", _is_path),
        "evidence": ("evidence", _is_path),
        "support": ("support", _is_path),
        "generated": ("generated", _is_path),
        "measured": ("measured", _is_path),
    },
    "gate": {"budget_s": ("gate_budget_s", _is_positive), "sample": ("gate_sample", _is_share)},
    "agents": {
        "max_attempts": ("agent_attempts", _is_positive),
        "max_seconds": ("agent_seconds", _is_positive),
    },
}

_PATHS = {
    "specs": ["specs"],
    "bodies": "bodies",
    "evidence": "evidence/ops",
    "support": "evidence/models",
    "generated": "build/generated",
    "measured": "build/measured",
}


def find(start: Path | None = None) -> Config:
    """The configuration that holds in `start` (default: the working directory)."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / NAME).is_file():
            return load(folder / NAME)
    return _config(here, None, {})


def load(file: Path) -> Config:
    """Read one file.  Raises `ConfigError`, several as a group."""
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", place=Place(str(file))) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{NAME} is not UTF-8", place=Place(str(file))) from error
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = Place.in_file(file, int(at[1]), int(at[2])) if at else Place(str(file))
        raise ConfigError(f"{NAME} is not TOML: {str(error).partition(' (at ')[0]}", place=place) from error
    errors: list[OpwrightError] = []
    values: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            _table(file, text, name, value, values, errors)
        else:
            _key(file, text, "", name, value, values, errors)
    if "schema" not in data:
        errors.append(
            ConfigError(f"{NAME} has no schema", place=Place(str(file)), hint=f"add `schema = {SCHEMA}`")
        )
    raise_all(errors)
    return _config(file.parent, file, values)


def _table(
    file: Path,
    text: str,
    name: str,
    table: Mapping[str, Any],
    values: dict[str, Any],
    errors: list[OpwrightError],
) -> None:
    if name not in _TABLES:
        errors.append(
            ConfigError(
                f"unknown table [{name}]",
                place=_place(file, text, rf"\[{re.escape(name)}\]"),
                hint=did_you_mean(name, [t for t in _TABLES if t], what="tables"),
            )
        )
        return
    for key, value in table.items():
        _key(file, text, name, key, value, values, errors)


def _key(
    file: Path,
    text: str,
    table: str,
    key: str,
    value: Any,
    values: dict[str, Any],
    errors: list[OpwrightError],
) -> None:
    place = _place(file, text, rf"{re.escape(key)}\s*=")
    known = _TABLES[table]
    if key not in known:
        errors.append(
            ConfigError(
                f"unknown key `{key}`" + (f" in [{table}]" if table else ""),
                place=place,
                hint=did_you_mean(key, known, what="keys"),
            )
        )
        return
    name, check = known[key]
    if wanted := check(value):
        errors.append(ConfigError(f"`{key}` must be {wanted}", place=place))
    elif name:
        values[name] = value


def _place(file: Path, text: str, pattern: str) -> Place:
    found = re.search(rf"^[ \t]*({pattern})", text, re.MULTILINE)
    if found is None:
        return Place(str(file))
    line = text.count("\n", 0, found.start(1)) + 1
    return Place.in_file(file, line, found.start(1) - text.rfind("\n", 0, found.start(1)))


def _config(root: Path, file: Path | None, values: Mapping[str, Any]) -> Config:
    given = {**_PATHS, **values}
    paths = {k: root / given.pop(k) for k in ("bodies", "evidence", "support", "generated", "measured")}
    specs = tuple(root / p for p in given.pop("specs"))
    if "targets" in given:
        given["targets"] = tuple(given["targets"])
    return Config(root=root, file=file, specs=specs if file is not None else (), **paths, **given)


TEMPLATE = """\
# This repository as a workbench.  `opwright` looks for this file from the working directory upwards; paths are
# relative to it.
schema = 1
language = 1            # version of the spec language
namespace = "{namespace}"       # your operators are {example}
targets = ["cpu"]       # what `accept` and `enable` prove by default
torch = ">=2.13"

[paths]
specs = ["specs"]                  # operators: specs/<family>/<op>.yaml
bodies = "bodies"                  # kernels written by hand
evidence = "evidence/ops"          # written by `opwright accept`; keep it in git
support = "evidence/models"        # written by `opwright enable`; keep it in git
generated = "build/generated"      # not in git
measured = "build/measured"        # not in git

[gate]
budget_s = 900          # time for one run of `opwright gate`
sample = 0.1            # share of what did not change that is judged again, chosen by the commit
"""
