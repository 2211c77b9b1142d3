"""Records of support: `runtime/support/<architecture>.yaml`, every attempt to enable an architecture, in git.

    append(folder, attempt)            at the end of the file; what stands there is never rewritten
    attempts = load(folder, name)      in order, oldest first
    standing(attempts, now)            what the newest one is worth today: verified, claimed or stale

An attempt holds the hashes of what it rests on.  What no longer matches is *stale*; what matches is *claimed* until
`opwright gate --record` has run it again at a commit, which makes it *verified*.  A failed attempt counts as one.

May import: generator.errors, ruamel.yaml.  To add a fact: a field of `Attempt` with a default.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import locked, write_text
from ..generator.errors import OpwrightError, Place

__all__ = [
    "LEVELS",
    "Attempt",
    "RecordError",
    "Standing",
    "append",
    "file_of",
    "highest",
    "load",
    "load_all",
    "now",
    "standing",
    "supports",
]

SCHEMA = 1
LEVELS = ("L0", "L1", "L2", "L3", "L4", "L5", "L6")
VERIFIED, CLAIMED, STALE = "verified", "claimed", "stale"
#: how the reason of a level begins that nobody has measured
UNMEASURED = "not measured"


class RecordError(OpwrightError):
    """A file of records cannot be read, or an architecture has no name that a file can have."""


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    at          when it began, UTC
    by          `enable`, or `gate` for a re-verification, which is no new time
    commit      of the repository; None outside of git; `dirty`: with changes that no commit has
    levels      level -> held: true, false, or null where it was not measured; `reasons` says why not
    seconds     per stage; `active` of them by machine, agent and person
    supplied    operators that were not accepted before: {op, by, seconds}
    hashes      operator -> hash of its meaning and of its text, that this rests on
    graph       of the captured program: hash of all nodes, calls by operator (`requalify` compares them)
    slowest     operators by the seconds that their calls took in the comparison: {op, calls, seconds}
    published   upload time of the release that brought the model's code; None: nobody knows
    failed      the stage that it ended in and why, empty when it ran through
    kernels     libraries that it asked for: `built` in the attempt, `found` in the cache; older attempts do not say
    """

    architecture: str
    target: str
    dtype: str
    at: str
    source: str = ""
    by: str = "enable"
    commit: str | None = None
    dirty: bool = False
    weights: str = "random"
    scale: str = "tiny"
    levels: Mapping[str, bool | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    active: Mapping[str, float] = field(default_factory=dict)
    supplied: Sequence[Mapping[str, Any]] = ()
    missing: Sequence[Mapping[str, Any]] = ()
    operators: int = 0
    error: Mapping[str, Any] = field(default_factory=dict)
    sensitivity: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    published: str | None = None
    graph: Mapping[str, Any] = field(default_factory=dict)
    slowest: Sequence[Mapping[str, Any]] = ()
    failed: str = ""
    kernels: Mapping[str, int] = field(default_factory=dict)

    @property
    def level(self) -> str | None:
        """The highest level that holds together with all below it."""
        return highest(self.levels, self.reasons)

    def to_data(self) -> dict[str, Any]:
        """Plain data for YAML: what is empty is left out, but for levels."""
        out = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if (
                f.name not in ("levels", "commit", "dirty")
                and value in ("", (), [], {}, None, 0)
                and f.name != "seconds"
            ):
                continue
            out[f.name] = _plain(value)
        return out

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Attempt:
        """Raises TypeError for what is no attempt."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known})


def highest(levels: Mapping[str, bool | None], reasons: Mapping[str, str]) -> str | None:
    """The highest level that holds together with all below it; L4 stands in no way where it does not apply."""
    best = None
    for name in LEVELS:
        if levels.get(name) is True:
            best = name
        elif name != "L4" or not _does_not_apply(levels, reasons):
            break
    return best


def _does_not_apply(levels: Mapping[str, bool | None], reasons: Mapping[str, str]) -> bool:
    """Of L4: a level that is null because it does not apply says why not; one that was not measured is not held."""
    return levels.get("L4") is None and not reasons.get("L4", UNMEASURED).startswith(UNMEASURED)


def supports(a: Attempt) -> bool:
    """Whether an attempt holds what "supported" means: L0 to L3, and L4 where the model generates."""
    if (a.level or "") < "L3":
        return False
    return a.levels.get("L4") is True or _does_not_apply(a.levels, a.reasons)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def now() -> str:
    """This moment, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- files -------------------------------------------------------------------------------------------------------


def file_name(architecture: str) -> str:
    """The architecture's name as a file's.  Raises `RecordError`."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", architecture):
        raise RecordError(
            f"`{architecture}` is no name for an architecture", hint="letters, digits and _ . + -"
        )
    return f"{architecture}.yaml"


def file_of(folder: Path, architecture: str) -> Path:
    """Where an architecture's records lie."""
    return folder / file_name(architecture)


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 4096
    return yaml


def _item_text(attempt: Attempt) -> str:
    """One attempt as an item of the list."""
    out = io.StringIO()
    _yaml().dump([attempt.to_data()], out)
    return out.getvalue()


def load(folder: Path, architecture: str) -> list[Attempt]:
    """The attempts, oldest first; none where there is no file.  Raises `RecordError`."""
    return _read(file_of(folder, architecture))


def _read(path: Path) -> list[Attempt]:
    from ruamel.yaml.error import YAMLError

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    hint = "restore it from git; attempts are never rewritten"
    try:
        data = _yaml().load(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise RecordError(
                f"{path.name} holds no records of schema {SCHEMA}",
                place=Place(str(path)),
                hint="`opwright migrate` moves older files on",
            )
        return [Attempt.from_data(a) for a in data["attempts"]]
    except (YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(
            f"{path.name} cannot be read: {str(error).splitlines()[0]}", place=Place(str(path)), hint=hint
        ) from error


def load_all(folders: Sequence[Path]) -> dict[str, list[Attempt]]:
    """Every architecture's attempts; a folder that comes earlier hides a later one's file of the same name."""
    out: dict[str, list[Attempt]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            if path.stem not in out:
                out[path.stem] = _read(path)
    return dict(sorted(out.items()))


def append(folder: Path, attempt: Attempt) -> Path:
    """Add an attempt at the end of its architecture's file; the bytes before it stay as they are."""
    path = file_of(folder, attempt.architecture)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _read(path)  # a file that cannot be read is not added to
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = f"schema: {SCHEMA}\narchitecture: {attempt.architecture}\nattempts:\n"
        write_text(path, (before if before.endswith("\n") else before + "\n") + _item_text(attempt))
    return path


# ---- what they are worth -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """The newest attempt for a target and dtype, and what it is worth today.

    supported   when the gate first held, at a commit, all that "supported" means (`supports`); None: not yet
    """

    attempt: Attempt
    state: str
    reason: str = ""
    first: str = ""
    attempts: int = 1
    supported: str | None = None

    @property
    def level(self) -> str | None:
        """What may be called held: nothing that is stale."""
        return None if self.state == STALE else self.attempt.level


def standing(attempts: Sequence[Attempt], hashes: Mapping[str, str]) -> list[Standing]:
    """Per target and dtype: the newest attempt that ran through (else the newest), judged by today's `hashes` (operator
    → hash; an operator that is missing there is stale)."""
    groups: dict[tuple[str, str], list[Attempt]] = {}
    for a in attempts:
        groups.setdefault((a.target, a.dtype), []).append(a)
    out = []
    for group in groups.values():
        through = [a for a in group if not a.failed]
        newest = (through or group)[-1]
        changed = sorted(op for op, h in newest.hashes.items() if hashes.get(op) != h)
        last = group[-1]
        if newest.failed:
            state, reason = CLAIMED, newest.failed
        elif last.by == "gate" and last.failed:
            # Whatever held before, today's run of the gate is the newer word.
            state, reason = STALE, f"the gate did not hold it again: {last.failed}"
        elif changed:
            state, reason = (
                STALE,
                f"changed since: {', '.join(changed[:5])}" + (", …" if len(changed) > 5 else ""),
            )
        elif newest.by == "gate" and newest.commit and not newest.dirty:
            state, reason = VERIFIED, f"at {newest.commit[:12]}"
        else:
            state, reason = CLAIMED, "not yet run again at a commit: `opwright gate --record`"
        first_good = next(
            (a.at for a in group if a.by == "gate" and a.commit and not a.dirty and supports(a)), None
        )
        out.append(
            Standing(newest, state, reason, group[0].at, sum(a.by == "enable" for a in group), first_good)
        )
    return out
