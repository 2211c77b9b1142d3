"""A repository's operators together with what was proven of them: specs, evidence, the aten table.

    bench = Workbench.here()
    bench.select(["softmax"])        specs by name, or of a file (`file.yaml`, `file.yaml:name`)
    bench.standing(spec)             what the evidence says of it: fresh, stale, not_here, absent
    bench.proven()                   the specs whose evidence holds for their meaning

May import: config, generator.spec, validators.{evidence, verdict}.  To add a question about an operator: a method here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from ..generator.errors import OpwrightError, SpecError, did_you_mean, raise_together
from ..generator.spec import AtenEntry, OpSpec, Registry, load_spec
from ..generator.spec_model import MapTarget
from ..validators import evidence
from ..validators.abi import tiles_here
from ..validators.evidence import Evidence, Freshness, Proof
from ..validators.verdict import AUTHOR_ONLY
from .config import Config, find

__all__ = ["Body", "Workbench", "WorkbenchError", "folder_name", "with_body"]


class WorkbenchError(OpwrightError):
    """An operator is asked for that there is not, or in a way that does not say which."""


@dataclass(frozen=True)
class Body:
    """Loops that a person or an agent wrote: where they lie, their text, and who says to have written them."""

    path: Path
    text: str
    author: str


def with_body(spec: OpSpec, path: Path) -> OpSpec:
    """The spec, its CPU kernels filled by the file at `path`."""
    return replace(spec, lower={**spec.lower, "cpu": {"kind": "body", "file": str(path.absolute())}})


def folder_name(op: str) -> str:
    """An operator's name as a file's: `myco::rope2d` lies in `myco.rope2d`."""
    return op.replace("::", ".")


class Workbench:
    """What one `opwright.toml` and the built-in specs give."""

    #: What did not read when a registry was last asked for: the command line tells of it.
    last_broken: ClassVar[tuple[SpecError, ...]] = ()

    def __init__(self, config: Config) -> None:
        self.config = config
        self._overlays: list[OpSpec] = []

    @classmethod
    def here(cls, start: Path | None = None) -> Workbench:
        return cls(find(start))

    @cached_property
    def _read(self) -> tuple[Registry, tuple[SpecError, ...]]:
        folders = tuple(d for d in self.config.spec_dirs if d.is_dir())
        specs, broken = _specs(folders, _state(folders), self.config.evidence_dirs)
        found = Registry(specs)
        for spec in self._overlays:
            found.add(spec)
        Workbench.last_broken = broken
        return found, broken

    @property
    def registry(self) -> Registry:
        """All operators whose specs read; own ones replace built-in ones by name.  `broken` says what did not read."""
        return self._read[0]

    @property
    def broken(self) -> tuple[SpecError, ...]:
        """The mistakes of the spec files that do not read: they take nothing else down, and `own()` raises them."""
        return self._read[1]

    # ---- which operators

    def select(self, names: Iterable[str]) -> list[OpSpec]:
        """The operators that were named: by name, `file.yaml` (all of it) or `file.yaml:name`; each once."""
        out: dict[str, OpSpec] = {}
        for text in names:
            for spec in self._named(text):
                out[spec.op] = spec
        return list(out.values())

    def one(self, name: str) -> OpSpec:
        """The one operator that `name` means."""
        found = self._named(name)
        if len(found) > 1:
            raise WorkbenchError(
                f"{name} holds {len(found)} operators",
                hint=f"name one: {name}:{found[0].op} (it has {', '.join(s.op for s in found)})",
            )
        return found[0]

    def _named(self, text: str) -> list[OpSpec]:
        path, member = _split(text)
        if path is None:
            full = f"{self.config.namespace}::{text}"
            return [self._known(full if full in self.registry and text not in self.registry else text)]
        if not path.is_file():
            raise WorkbenchError(
                f"there is no spec file {path}", hint="OP is an operator's name or the path of a spec file"
            )
        specs = load_spec(path, family=path.absolute().parent.name)
        for spec in specs:
            self._overlay(spec, path)
        if member:
            found = [s for s in specs if s.op == member]
            if not found:
                raise WorkbenchError(
                    f"{path} has no operator `{member}`",
                    hint=did_you_mean(member, [s.op for s in specs], what="operators"),
                )
            return found
        return specs

    def _known(self, name: str) -> OpSpec:
        """The operator of this name.  Where there is none it may be in a file that did not read: its mistakes are
        raised, and where no file looks like it, all that did not read are named."""
        if name not in self.registry:
            raise_together(e for e in self.broken if _speaks_of(e, name))
        try:
            return self.registry.get(name)
        except SpecError as error:
            files = sorted({e.place.file for b in self.broken for e in b.errors if e.place is not None})
            if files:
                unread = f"{', '.join(files)} did not read"
                error.hint = f"{error.hint}; {unread}" if error.hint else unread
            raise

    def _overlay(self, spec: OpSpec, path: Path) -> None:
        """A file that was named replaces operators of its names for this run.  The others are not read for it: a
        mistake elsewhere must not keep one file from being checked."""
        if "_read" not in self.__dict__:
            self._overlays.append(spec)
        elif (
            spec.op not in self.registry or Path(self.registry.get(spec.op).file).resolve() != path.resolve()
        ):
            self.registry.add(spec)

    def own(self) -> list[OpSpec]:
        """The operators that this workbench's own specs declare, by name: what `--all` means.  Raises `SpecError`
        with the mistakes of all files that do not read: all is not all without them."""
        raise_together(self.broken)
        return self.own_readable()

    def own_readable(self) -> list[OpSpec]:
        """Those of them whose files read."""
        folders = [p.resolve() for p in self.config.specs]
        specs = self.registry.all()
        return [s for s in specs if any(Path(s.file).resolve().is_relative_to(f) for f in folders)]

    def body_of(self, spec: OpSpec) -> Body | None:
        """The loops that were written by hand for the CPU (`lower: {cpu: {kind: body, file: …}}`), if any were."""
        asked = spec.lower.get("cpu")
        if not spec.by_hand or not isinstance(asked, Mapping):
            return None
        names = asked["file"] if isinstance(asked["file"], list) else [asked["file"]]
        paths = [self._body_file(spec, str(n)) for n in names]
        try:
            text = "\n".join(p.read_text(encoding="utf-8") for p in paths)
        except UnicodeDecodeError as error:
            raise WorkbenchError(f"{paths[-1]} is not UTF-8 text", place=spec.place) from error
        return Body(paths[-1], text, str(asked.get("author", "")))

    def is_body_judged(self, spec: OpSpec, key: str) -> bool:
        """Whether a body may serve a key: the evidence names it, or there is none yet."""
        if not spec.by_hand:
            return False
        found = self.evidence(spec.op)
        if found is None or found.meaning != spec.meaning_hash():
            return True
        return any(key in proof.keys for proof in found.proofs.values() if proof.bodies)

    def _body_file(self, spec: OpSpec, name: str) -> Path:
        """Where a file of a body lies: in this repository's folder of bodies, else among the built-in ones."""
        folders = self.config.bodies_dirs
        found = next((p for f in folders if (p := f / name).is_file()), None)
        if found is None:
            raise WorkbenchError(
                f"`{spec.op}` names the body {name}, which is not there",
                place=spec.place,
                hint=f"it belongs into {folders[0]}; `opwright show {spec.op} --level body` prints a beginning",
            )
        return found

    # ---- what is proven

    def evidence(self, op: str) -> Evidence | None:
        """The evidence of an operator, this repository's first."""
        for folder in self.config.evidence_dirs:
            found = evidence.load(folder, op)
            if found is not None:
                return found
        return None

    def proof(self, op: str, meaning: str, dialect: str) -> Proof | None:
        """What was proven of an operator of this meaning for a dialect."""
        found = self.evidence(op)
        return None if found is None or found.meaning != meaning else found.proofs.get(dialect)

    def standing(self, spec: OpSpec, dialect: str | None = None, text: str | None = None) -> Freshness:
        """What the evidence says of the spec's meaning; with a dialect, and its text's hash, of those too."""
        found = self.evidence(spec.op)
        if dialect is not None or found is None:
            place = {"tiles": tiles_here()}
            return evidence.freshness(
                found, meaning=spec.meaning_hash(), dialect=dialect or "", text=text, place=place
            )
        if found.meaning != spec.meaning_hash():
            return Freshness(evidence.STALE, "the meaning has changed")
        return Freshness(evidence.FRESH)

    def is_proven(self, spec: OpSpec) -> bool:
        """Whether the operator may serve: the judge proved this very meaning."""
        return self.standing(spec).state == evidence.FRESH

    def is_its_authors_only(self, spec: OpSpec) -> bool:
        """Whether nobody but its author vouches for the meaning: such an operator serves who calls it by name, and no
        model counts it (JUDGE.md, "Meaning is judged first")."""
        found = self.evidence(spec.op)
        if found is not None and found.meaning == spec.meaning_hash():
            return found.source == AUTHOR_ONLY
        return not (spec.aten or spec.onnx or spec.reference or spec.also)

    def proven(self) -> list[OpSpec]:
        """All operators that may serve."""
        return [s for s in self.registry.all() if self.is_proven(s)]


def _state(folders: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    files = (p for f in folders for p in sorted(f.rglob("*.yaml")))
    return tuple((str(p), s.st_mtime_ns, s.st_size) for p in files if (s := p.stat()))


@lru_cache(maxsize=8)
def _specs(
    folders: tuple[Path, ...], _state: tuple[tuple[str, int, int], ...], proofs: tuple[Path, ...]
) -> tuple[tuple[OpSpec, ...], tuple[SpecError, ...]]:
    """The operators of some folders, and what did not read; a process that asks again reads only what has changed
    since.  An operator with evidence stood before one without."""
    found, broken = Registry.readable(
        folders, lambda op: any(evidence.evidence_path(d, op).exists() for d in proofs)
    )
    return tuple(found.all()), tuple(broken)


def _speaks_of(error: SpecError, op: str) -> bool:
    """Whether a mistake is of the file in which an operator of this name would be looked for."""
    names = (op, folder_name(op), op.rpartition("::")[2])
    return any(
        f"`{op}`" in e.message or (e.place is not None and Path(e.place.file).stem in names)
        for e in error.errors
    )


def _split(text: str) -> tuple[Path | None, str]:
    """A path and the operator named in it, or (None, "") for a plain name."""
    for suffix in (".yaml:", ".yml:"):
        head, mark, tail = text.partition(suffix)
        if mark and "/" not in tail:
            return Path(head + suffix[:-1]), tail
    if text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text:
        return Path(text), ""
    return None, ""


def entries_text(spec: OpSpec) -> list[str]:
    """The ATen overloads that a spec is."""
    return [e.overload for e in spec.aten]


def targets_of(entry: AtenEntry, spec: OpSpec) -> Sequence[tuple[str, MapTarget]]:
    """An entry's pairs, spelled out where the spec says only the overload's name."""
    return entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
