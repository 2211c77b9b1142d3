"""From C++ text to a shared library: the compiler, the named dialects, and the content-addressed cache.

Kernels, and the runtime's own extension module, are built by this one mechanism.  An artifact's name is a
hash of
everything that decides its bytes: texts, the headers of ours that they include, flags, compiler, and the CPU
features that its dialect demands.  So two builds never share a path, and a library never changes at its path.

May import: the standard library, `.errors`, `.resources`.
To add a dialect: one row in `DIALECTS` and its place in `_PREFERENCE`.

Note [Half-written files]: everything is written under `<cache>/tmp/` and renamed into place while the
artifact's lock is held.  A full disk, a refused source or Ctrl-C therefore leaves at most a scratch folder,
which the same `finally` removes; what a killed process leaves there, `cache_prune` removes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from . import __version__, resources
from .errors import EXIT_FAILED, EXIT_MACHINE, OpwrightError, Place, raise_all

# ---- errors ------------------------------------------------------------------------------------------------


class NoCompilerError(OpwrightError):
    """No C++ compiler was found, or the one that was named does not run."""

    exit_code: ClassVar[int] = EXIT_MACHINE


class CompileError(OpwrightError):
    """The compiler refused a source.  `log`: all that it said; `command`: what was run."""

    exit_code: ClassVar[int] = EXIT_FAILED

    def __init__(
        self,
        message: str,
        *,
        place: Place | None = None,
        hint: str | None = None,
        log: str = "",
        command: Sequence[str] = (),
    ) -> None:
        super().__init__(message, place=place, hint=hint)
        self.log = log
        self.command = tuple(command)


class CompilerDiedError(OpwrightError):
    """The compiler was stopped, or it refuses opwright's own sources: nothing is said of the source it was given."""

    exit_code: ClassVar[int] = EXIT_MACHINE


class CacheError(OpwrightError):
    """The artifact cache cannot be used: not ours, not writable, or the disk is full."""

    exit_code: ClassVar[int] = EXIT_MACHINE


class MissingSourcesError(OpwrightError):
    """The installation lacks the runtime's own sources."""

    exit_code: ClassVar[int] = EXIT_MACHINE


class DialectError(OpwrightError):
    """There is no dialect of this name."""


class MissingFeatureError(OpwrightError):
    """A dialect's instructions are not this machine's: running its text would end in SIGILL."""

    exit_code: ClassVar[int] = EXIT_MACHINE


# ---- texts -------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|//[^\n]*|/\*.*?\*/|\s+", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(define\s+\w+(?:\([^)]*\))?|\w+)")
#: Characters of which two that meet may be another token than two apart.
_OPERATORS = "+-*/%&|^<>=!:.#"


def without_layout(source: str) -> str:
    """C++ text without comments and layout, so that what it hashes to does not change when it is laid out anew.

    White space stays, as one blank, only between what would else be read as one token; line ends only around
    preprocessor lines.
    """
    pieces: list[str] = []
    code: list[str] = []
    for line in _TOKEN.sub(_blank, re.sub(r"\\[ \t]*\n", " ", source)).split("\n"):
        head = _DIRECTIVE.match(line)
        if head is None:
            code.append(line)
            continue
        pieces.append(_tight("\n".join(code)))
        code = []
        pieces.append(f"#{' '.join(head[1].split())} {_tight(line[head.end() :])}".rstrip())
    pieces.append(_tight("\n".join(code)))
    return "\n".join(p for p in pieces if p)


def _blank(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] in "\"'":
        return text
    return "\n" if text.isspace() and "\n" in text else " "


def _tight(code: str) -> str:
    """Code with blanks only where two tokens would merge."""

    def shorten(match: re.Match[str]) -> str:
        if not match[0].isspace():
            return match[0]
        before, after = code[: match.start()][-1:], code[match.end() :][:1]
        words = (before.isalnum() or before == "_") and (after.isalnum() or after == "_")
        signs = before in _OPERATORS and after in _OPERATORS
        return " " if before and after and (words or signs) else ""

    return _TOKEN.sub(shorten, code)


# ---- dialects ----------------------------------------------------------------------------------------------

# Names as in /proc/cpuinfo.  `abm` is lzcnt, `pni` is SSE3.
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A named set of instructions that text is printed and compiled for; never "what this machine has"."""

    name: str
    flags: tuple[str, ...]
    features: frozenset[str]
    machine: str | None = None  # platform.machine(), None = any


DIALECTS: Mapping[str, Dialect] = {
    d.name: d
    for d in (
        Dialect("cpu-avx512", ("-march=x86-64-v4",), _V4, "x86_64"),
        Dialect("cpu-avx2", ("-march=x86-64-v3",), _V3, "x86_64"),
        Dialect("cpu-portable", (), frozenset()),
    )
}
_PREFERENCE = ("cpu-avx512", "cpu-avx2", "cpu-portable")

# -ffast-math is never among them: it changes answers (NaN, signed zero, order of sums).  Contraction is off
# so that the text, which spells fma where it means it, decides the result and not the compiler.
COMMON_FLAGS = (
    "-std=c++20",
    "-O2",
    "-ftree-vectorize",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",  # integers wrap: the language says so
    "-fPIC",
)


@functools.cache
def cpu_features() -> frozenset[str]:
    """The features that the operating system reports for the first CPU; empty where it does not say."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip().lower() in ("flags", "features"):
                    return frozenset(value.split())
    except OSError:
        pass  # not Linux: only cpu-portable is known to run
    return frozenset()


def dialect(name: str) -> Dialect:
    """The dialect of this name, or a DialectError that lists them."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise DialectError(
            f"unknown dialect `{name}`", hint=f"dialects: {', '.join(sorted(DIALECTS))}"
        ) from None


def runs_here(name: str) -> bool:
    """Whether this machine has every instruction that the dialect may use."""
    wanted = dialect(name)
    return (wanted.machine is None or wanted.machine == platform.machine()) and (
        wanted.features <= cpu_features()
    )


def require_dialect(name: str) -> Dialect:
    """The dialect, if this machine runs it, else a MissingFeatureError that names what is missing."""
    wanted = dialect(name)
    if not runs_here(name):
        missing = sorted(wanted.features - cpu_features())
        what = f"it lacks {', '.join(missing)}" if missing else f"it is {platform.machine()}"
        raise MissingFeatureError(f"this machine does not run {name}: {what}", hint=f"use {native_dialect()}")
    return wanted


def native_dialect() -> str:
    """The best dialect that this machine runs."""
    return next(name for name in _PREFERENCE if runs_here(name))


# ---- the compiler ------------------------------------------------------------------------------------------

# Variables that change what a compiler reads; they take part in the artifact's name.
_COMPILER_ENV = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """`command` as it is run; `identity`: its whole version text, target included; `kind`: gcc or clang."""

    command: tuple[str, ...]
    identity: str
    kind: str

    @property
    def version(self) -> str:
        """The first line of the version text."""
        return self.identity.splitlines()[0]


def find_compiler() -> Compiler:
    """`$OPWRIGHT_CXX`, else g++, clang++ or c++ on the path; NoCompilerError when there is none."""
    return _find_compiler(os.environ.get("OPWRIGHT_CXX", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find_compiler(named: str, path: str) -> Compiler:
    hint = "install g++ or clang++ with C++20, or name one in OPWRIGHT_CXX; `opwright doctor` checks it"
    if named:
        candidates = [tuple(shlex.split(named))]
    else:
        candidates = [(name,) for name in ("g++", "clang++", "c++")]
    for command in candidates:
        if command and shutil.which(command[0], path=path):
            identity = _compiler_identity(command, hint)
            kind = "clang" if "clang" in identity.lower() else "gcc"
            return Compiler(command, identity, kind)
    if named:
        raise NoCompilerError(f"OPWRIGHT_CXX names `{named}`, which is not found", hint=hint)
    raise NoCompilerError("no C++ compiler found: tried g++, clang++ and c++", hint=hint)


def _compiler_identity(command: tuple[str, ...], hint: str) -> str:
    text = []
    for question in ("--version", "-dumpmachine"):
        try:
            answer = subprocess.run(
                [*command, question],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
                env=_compiler_env(None),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoCompilerError(
                f"the compiler `{shlex.join(command)}` does not run: {error}", hint=hint
            ) from error
        if answer.returncode != 0 or not answer.stdout.strip():
            said = (answer.stderr.strip().splitlines() or ["no output"])[0]
            raise NoCompilerError(f"`{shlex.join(command)} {question}` failed: {said}", hint=hint)
        text.append(answer.stdout.strip())
    return "\n".join(text)


def _compiler_env(scratch: Path | None) -> dict[str, str]:
    env = dict(os.environ, LC_ALL="C")  # diagnostics are parsed
    if scratch is not None:
        env["TMPDIR"] = str(scratch)
    return env


# ---- the cache ---------------------------------------------------------------------------------------------

CACHE_LIMIT_BYTES = 8 << 30
_SUFFIXES = (".so", ".o", ".json")
_STALE_SCRATCH_S = 24 * 3600.0
_LOCK_POLL_S = 0.02


def open_cache() -> Path:
    """The cache folder, created if need be; CacheError when it is not safely ours.

    Whoever can write there can have their code run by us, so a folder that others own or can write to is
    refused.
    """
    path = resources.cache_dir()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except FileExistsError:
        raise CacheError(
            f"the cache {path} is not a directory", hint="remove it or set OPWRIGHT_CACHE"
        ) from None
    except OSError as error:
        raise _cache_failure(error, path) from error
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"the cache {path} belongs to another user", hint="set OPWRIGHT_CACHE to a folder of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"others can write to the cache {path}", hint=f"chmod go-w {shlex.quote(str(path))}")
    for parent in path.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheError(
                f"others can replace the cache {path}: they can write to {parent}",
                hint="set OPWRIGHT_CACHE to a folder below your home",
            )
    return path


def _cache_failure(error: OSError, path: Path) -> CacheError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full(path)
    return CacheError(
        f"the cache {path} cannot be written: {error.strerror or error}",
        hint="set OPWRIGHT_CACHE to a folder that you can write to",
    )


def _disk_full(path: Path) -> CacheError:
    return CacheError(
        f"the disk that holds the cache {path} is full",
        hint="free space, run `opwright cache prune`, or set OPWRIGHT_CACHE to another disk",
    )


@contextlib.contextmanager
def _locked(path: Path, cancel: _Cancel | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `path`, across threads and processes; the file is gone afterwards.

    Polled rather than awaited in the kernel, so that a cancelled thread comes back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us unlinked the file: then this lock guards nothing.
            if os.fstat(handle).st_nlink > 0:
                break
        except BlockingIOError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if cancel is not None and cancel.is_set():
            raise _Cancelled
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


@contextlib.contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    base = cache / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as name:
        yield Path(name)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What the cache holds: `files` artifacts of `bytes` in all under `path`; `limit` in bytes."""

    path: Path
    files: int
    bytes: int
    limit: int


@dataclass(slots=True)
class _Entry:
    stem: Path
    used: float = 0.0
    size: int = 0
    files: list[Path] = field(default_factory=list)


def _entries(cache: Path) -> dict[Path, _Entry]:
    entries: dict[Path, _Entry] = {}
    for kind in ("lib", "obj"):
        for path in (cache / kind).glob("??/*"):
            if path.suffix not in _SUFFIXES:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process pruned it
            entry = entries.setdefault(path.with_suffix(""), _Entry(path.with_suffix("")))
            entry.files.append(path)
            entry.size += status.st_size
            entry.used = max(entry.used, status.st_mtime)
    return entries


def cache_info() -> CacheInfo:
    """Count what the cache holds."""
    cache = open_cache()
    entries = _entries(cache).values()
    return CacheInfo(cache, len(entries), sum(e.size for e in entries), CACHE_LIMIT_BYTES)


def cache_prune(max_bytes: int = CACHE_LIMIT_BYTES, *, min_age_s: float = 60.0) -> int:
    """Remove artifacts, least recently used first, until at most `max_bytes` are left; returns the bytes
    removed.

    Artifacts used in the last `min_age_s` seconds stay: somebody may be about to load them.  (A library that
    is loaded already keeps working after its file is gone.)  Scratch folders of killed processes go too.
    """
    cache = open_cache()
    now = time.time()
    for left in (cache / "tmp").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if now - left.stat().st_mtime > _STALE_SCRATCH_S:
                shutil.rmtree(left, ignore_errors=True)
    entries = sorted(_entries(cache).values(), key=lambda e: e.used)
    total = sum(e.size for e in entries)
    removed = 0
    for entry in entries:
        if total - removed <= max_bytes:
            break
        if now - entry.used < min_age_s:
            continue
        # The library first: an artifact without its note is a miss, never the other way round.
        for path in sorted(entry.files, key=lambda p: p.suffix == ".json"):
            path.unlink(missing_ok=True)
        removed += entry.size
    return removed


_stores = itertools.count()


def _keep_limit() -> None:
    """Every few stores, bring the cache back under its limit."""
    if next(_stores) % 32 == 0:
        cache_prune()


# ---- names -------------------------------------------------------------------------------------------------

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|\"([^\"\n]+)\"|(\w+))", re.MULTILINE)
_SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.(?:cpp|cc|c|h|hpp|inc)")
_UNIT_SUFFIXES = (".cpp", ".cc", ".c")


def _included(unit: str, given: Mapping[str, str], dirs: Sequence[Path]) -> dict[str, str]:
    """All texts of ours that compiling `given[unit]` reads, itself included: name -> text.

    Headers of the system belong to the compiler's identity.  An include under `#if` counts, taken or not.
    """
    texts = {unit: given[unit]}
    seen: set[Path] = set()
    todo: list[tuple[str, Path | None]] = [(given[unit], None)]  # text, the folder it was found in
    while todo:
        text, beside = todo.pop()
        for angle, quote, macro in _INCLUDE.findall(text):
            if macro:
                raise CompileError(f"`#include {macro}`: an include of a macro cannot be named by content")
            if quote and beside is None and quote in given:
                if quote not in texts:
                    texts[quote] = given[quote]
                    todo.append((given[quote], None))
                continue
            folders = [beside, *dirs] if quote and beside else dirs
            found = next((f / (angle or quote) for f in folders if (f / (angle or quote)).is_file()), None)
            if found is not None and found not in seen:
                seen.add(found)
                header = found.read_text(encoding="utf-8")
                texts[f"<{len(seen)}:{angle or quote}>"] = header
                todo.append((header, found.parent))
    return texts


def _digest(parts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


# ---- compiling ---------------------------------------------------------------------------------------------


class _Cancelled(Exception):
    """Another job failed for good, or the person pressed Ctrl-C."""


class _Cancel:
    """Tells running work to stop; a nested one also stops when its parent does, never the other way round."""

    def __init__(self, parent: _Cancel | None = None) -> None:
        self._event = threading.Event()
        self._parent = parent

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set() or (self._parent is not None and self._parent.is_set())


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One library to be: the arguments of `compile_library`."""

    sources: Mapping[str, str]
    name: str
    dialect: str | None = None
    extra_flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()


def compile_library(
    sources: Mapping[str, str],
    *,
    name: str,
    dialect: str | None = None,
    extra_flags: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    workers: int = 1,
) -> Path:
    """Build `sources` (file name -> text) into one shared library, or find it in the cache; returns its path.

    name: what people call it, in messages and in the note beside the library; no part of its identity.
    dialect: a name in DIALECTS; default: the best one that this machine runs.
    extra_flags: after the common ones; `-l…`, `-L…` and `-Wl,…` are seen by the linker only.
    include_dirs: before `runtime/include`, which is always searched.
    workers: how many units are compiled at once.

    Raises CompileError, NoCompilerError, CacheError, DialectError.
    """
    job = CompileJob(sources, name, dialect, tuple(extra_flags), tuple(Path(d) for d in include_dirs))
    return _Build(job, _Cancel(), workers).library()


class _Build:
    """One library: its name, and the way to make it."""

    def __init__(self, job: CompileJob, cancel: _Cancel | None = None, workers: int = 1) -> None:
        for source in job.sources:
            if not _SOURCE_NAME.fullmatch(source):
                raise ValueError(f"not a plain source name: {source!r}")
        self.job = job
        self.cancel = cancel
        self.workers = workers
        self.compiler = find_compiler()
        self.dialect = dialect(job.dialect or native_dialect())
        self.include_dirs = [*job.include_dirs, resources.include_dir()]
        self.units = sorted(s for s in job.sources if s.endswith(_UNIT_SUFFIXES))
        if not self.units:
            raise ValueError(f"{job.name}: no translation unit among {sorted(job.sources)}")
        self.link_flags = [f for f in job.extra_flags if f.startswith(("-l", "-L", "-Wl,"))]
        self.flags = [
            *COMMON_FLAGS,
            *self.dialect.flags,
            *(f for f in job.extra_flags if f not in self.link_flags),
        ]

    def _base_key(self) -> dict[str, object]:
        return {
            "schema": 1,
            "compiler": [*self.compiler.command, self.compiler.identity],
            "environment": {v: os.environ[v] for v in _COMPILER_ENV if v in os.environ},
            "flags": self.flags,
            "dialect": self.dialect.name,
            "features": sorted(self.dialect.features),
        }

    def _unit_key(self, unit: str) -> str:
        return _digest({**self._base_key(), "texts": _included(unit, self.job.sources, self.include_dirs)})

    def library(self) -> Path:
        """The library's path, built if it is not there."""
        units = {unit: self._unit_key(unit) for unit in self.units}
        digest = _digest({"schema": 1, "objects": units, "link": self.link_flags})
        return self._artifact("lib", digest, ".so", functools.partial(self._make, units))

    def _make(self, units: Mapping[str, str], out: Path, scratch: Path) -> None:
        """One unit goes straight to a library; several by objects, each cached for the next build."""
        if len(units) == 1:
            self._write(scratch)
            self._run(["-shared", *self.units, "-o", str(out), *self.link_flags], scratch)
            return

        def object_of(unit: str) -> Path:
            return self._artifact("obj", units[unit], ".o", functools.partial(self._object, unit))

        tasks = [functools.partial(object_of, unit) for unit in self.units]
        objects = _in_parallel(tasks, self.workers, _Cancel(self.cancel))
        self._run(["-shared", *map(str, objects), "-o", str(out), *self.link_flags], scratch)

    def _object(self, unit: str, out: Path, scratch: Path) -> None:
        self._write(scratch, without={u for u in self.units if u != unit})
        self._run(["-c", unit, "-o", str(out)], scratch)

    def _write(self, scratch: Path, without: Set[str] = frozenset()) -> None:
        for source, text in self.job.sources.items():
            if source not in without:
                (scratch / source).write_text(text, encoding="utf-8")

    def _artifact(self, kind: str, digest: str, suffix: str, make: Callable[[Path, Path], None]) -> Path:
        cache = open_cache()
        path = cache / kind / digest[:2] / (digest + suffix)
        if _touch(path):
            if kind == "lib":
                _count(built=False)
            return path
        try:
            with _locked(cache / "lock" / f"{kind}-{digest}", self.cancel):
                if _touch(path):  # built while we waited
                    return path
                with _scratch(cache) as scratch:
                    out = scratch / ("out" + suffix)
                    make(out, scratch)
                    note = scratch / "note.json"
                    note.write_text(json.dumps(self._note(out), indent=1, sort_keys=True), encoding="utf-8")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(note, path.with_suffix(".json"))
                    os.replace(out, path)
        except OSError as error:
            raise _cache_failure(error, cache) from error
        if kind == "lib":
            _count(built=True)
        _keep_limit()
        return path

    def _note(self, out: Path) -> dict[str, object]:
        return {
            "schema": 1,
            "name": self.job.name,
            "dialect": self.dialect.name,
            "features": sorted(self.dialect.features),
            "compiler": self.compiler.version,
            "flags": [*self.flags, *self.link_flags],
            "sources": sorted(self.job.sources),
            "bytes": out.stat().st_size,
        }

    def _run(self, arguments: Sequence[str], scratch: Path) -> None:
        includes = [f"-I{folder}" for folder in self.include_dirs]
        # Paths of scratch folders must not reach the library: equal text, equal bytes.
        command = [
            *self.compiler.command,
            *self.flags,
            f"-ffile-prefix-map={scratch}=.",
            *includes,
            *arguments,
        ]
        status, log = _communicate(command, scratch, self.cancel)
        if status != 0:
            raise self._refused(status, log, command, scratch)

    def _refused(self, status: int, log: str, command: Sequence[str], scratch: Path) -> OpwrightError:
        if "No space left on device" in log or "Disk quota exceeded" in log:
            return _disk_full(resources.cache_dir())
        log = log.replace(f"{scratch}/", "")
        if status < 0:
            what = signal.Signals(-status).name if -status in signal.valid_signals() else str(-status)
            return _stopped(what, self.job.name)
        if match := _STOPPED.search(log):
            return _stopped(_SIGNALS[match["what"] or match["also"]], self.job.name)
        message, place = _first_diagnostic(log, self.job.sources)
        return CompileError(
            f"{self.job.name} does not compile: {message}",
            place=place,
            hint=None if place else _tail(log),
            log=log,
            command=command,
        )


#: What g++ and clang++ say when a signal ended the program that does their work.
_STOPPED = re.compile(
    r"fatal error: (?P<what>Killed|Terminated|Interrupt) signal terminated program"
    r"|unable to execute command: (?P<also>Killed|Terminated)"
)
_SIGNALS = {"Killed": "SIGKILL", "Terminated": "SIGTERM", "Interrupt": "SIGINT"}


def _stopped(what: str, name: str) -> OpwrightError:
    return CompilerDiedError(
        f"the compiler was stopped by {what} while it built {name}",
        hint="SIGKILL mostly means that the machine ran out of memory",
    )


_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_UNPLACED = re.compile(r"^(?:.*?: )?(?:fatal |collect2: )?(?:error|undefined reference)[: ].*$", re.MULTILINE)


def _first_diagnostic(log: str, sources: Mapping[str, str]) -> tuple[str, Place | None]:
    """The first error that the compiler printed, and its place (with the line where we have the text)."""
    if match := _DIAGNOSTIC.search(log):
        file, line = match["file"], int(match["line"])
        place = Place(file, line, int(match["column"] or 0))
        place = place.with_text(sources[file]) if file in sources else Place.in_file(file, line, place.column)
        return match["text"], place
    for pattern in (r"undefined reference to .*", _UNPLACED):
        if match := re.search(pattern, log):
            return match[0].strip(), None
    return "the compiler gave no reason", None


def _tail(log: str, lines: int = 6) -> str | None:
    return "\n        ".join(log.strip().splitlines()[-lines:]) or None


def _touch(path: Path) -> bool:
    """Whether the artifact is there; marks it as used now, for the pruner."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        return path.exists()  # a read-only cache still serves
    return True


def _communicate(command: Sequence[str], cwd: Path, cancel: _Cancel | None) -> tuple[int, str]:
    """Run a compiler; its status and all that it printed.  It never outlives us."""
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_compiler_env(cwd),
            text=True,
            errors="replace",
            start_new_session=True,  # so that the driver's own children can be stopped with it
        )
    except FileNotFoundError as error:
        raise NoCompilerError(
            f"the compiler `{command[0]}` has gone", hint="install it again or set OPWRIGHT_CXX"
        ) from error
    try:
        while True:
            try:
                log, _ = child.communicate(timeout=0.1)
                return child.returncode, log
            except subprocess.TimeoutExpired:
                if cancel is not None and cancel.is_set():
                    raise _Cancelled from None
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()


# ---- many at once ------------------------------------------------------------------------------------------

# Called after each job, from the calling thread: jobs done, jobs in all, the job, and its error if it failed.
Progress = Callable[[int, int, CompileJob, OpwrightError | None], None]


def available_cores() -> int:
    """`$OPWRIGHT_NUM_THREADS`, else the cores that this process may use."""
    given = os.environ.get("OPWRIGHT_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compile_many(
    jobs: Sequence[CompileJob], *, progress: Progress | None = None, workers: int | None = None
) -> list[Path]:
    """Build many libraries in parallel; their paths, in the order of `jobs`.

    A job that does not compile does not stop the others: all such errors are raised together at the end, and
    what was built stays cached.  A machine's fault (no compiler, no disk) stops the rest at once.
    """
    jobs = list(jobs)
    errors: list[OpwrightError] = []
    count = itertools.count(1)

    def done(index: int, error: OpwrightError | None) -> None:
        if error is not None:
            errors.append(error)
        if progress is not None:
            progress(next(count), len(jobs), jobs[index], error)

    cancel = _Cancel()
    tasks = [functools.partial(_library, job, cancel) for job in jobs]
    paths = _in_parallel(tasks, workers or available_cores(), cancel, done)
    raise_all(errors)
    return paths


@dataclass(frozen=True)
class Tally:
    """Libraries that this process asked for: how many were built, and how many the cache had."""

    built: int = 0
    found: int = 0

    def since(self, before: Tally) -> Tally:
        return Tally(self.built - before.built, self.found - before.found)


_tally = {True: 0, False: 0}  # whether it was built: how many
_tally_lock = threading.Lock()


def tally() -> Tally:
    """Of all libraries so far; the difference of two is what lies between them."""
    return Tally(_tally[True], _tally[False])


def _count(*, built: bool) -> None:
    with _tally_lock:
        _tally[built] += 1


def _library(job: CompileJob, cancel: _Cancel) -> Path:
    return _Build(job, cancel).library()


def _in_parallel(
    tasks: Sequence[Callable[[], Path]],
    workers: int,
    cancel: _Cancel,
    done: Callable[[int, OpwrightError | None], None] | None = None,
) -> list[Path]:
    """Run tasks in threads; with `done`, CompileErrors are reported to it and the rest goes on.

    On any other exception, Ctrl-C included, `cancel` stops the running compilers before it is raised.
    """
    results: dict[int, Path] = {}
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(tasks)))) as pool:
        futures: dict[Future[Path], int] = {pool.submit(task): i for i, task in enumerate(tasks)}
        waiting = set(futures)
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in sorted(finished, key=futures.__getitem__):
                    error: OpwrightError | None = None
                    try:
                        results[futures[future]] = future.result()
                    except CompileError as refused:
                        if done is None:
                            raise
                        error = refused
                    if done is not None:
                        done(futures[future], error)
        except BaseException:
            cancel.set()
            for future in waiting:
                future.cancel()
            raise
    return [results[i] for i in sorted(results)]


# ---- the runtime's own extension module --------------------------------------------------------------------


def build_core(*, extra_flags: Sequence[str] = ()) -> Path:
    """Build `runtime/src/*.cpp` into the extension module `_core`; returns its path.

    The first import on a machine compiles it; later ones find it in the cache.  It is compiled for the
    portable
    dialect: kernels do the arithmetic, and one library then serves every machine that shares the cache.
    Says so on stderr when it takes more than two seconds.  `extra_flags`: as in `compile_library`, for sanitizers.
    """
    link = ["-Wl,-undefined,dynamic_lookup"] if sys.platform == "darwin" else []
    sources = _runtime_sources(lambda name: not name.startswith(_HOST))
    return _build_runtime(
        sources, "opwright._core", [*extra_flags, *link], "compiling opwright's runtime core"
    )


def build_host() -> Path:
    """Build libopwright, the runtime for programs that are not Python (`opwright/host.h`); returns its path.

    Its flags are those of the core, so that what both have is compiled once.
    """
    sources = _runtime_sources(lambda name: not name.startswith(_PYTHON))
    sources["version.h"] = f'#define OPWRIGHT_VERSION "{__version__}"\n'
    link = ["-Wl,-soname,libopwright.so"]
    return _build_runtime(sources, "libopwright", link, "compiling opwright's runtime library")


#: Files of `runtime/src` that only one of the two libraries has.
_HOST, _PYTHON = "host", "py_"


def _runtime_sources(wanted: Callable[[str], bool]) -> dict[str, str]:
    folder = resources.src_dir()
    files = [p for p in sorted(folder.iterdir()) if p.suffix in _CORE_SUFFIXES and wanted(p.name)]
    if not any(p.name.endswith(_UNIT_SUFFIXES) for p in files):
        raise MissingSourcesError(
            f"no C++ sources in {folder}", hint="the installation is not complete: install opwright again"
        )
    return {p.name: p.read_text(encoding="utf-8") for p in files}


def _build_runtime(sources: Mapping[str, str], name: str, link: Sequence[str], what: str) -> Path:
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").is_file():
        raise NoCompilerError(
            f"Python's C headers are missing: {python / 'Python.h'}",
            hint="install them (Debian and Ubuntu: python3-dev, Fedora: python3-devel)",
        )
    # The module's ABI is part of its name, for the cache may serve several Pythons.
    abi = f"-DOW_PYTHON_ABI={sysconfig.get_config_var('SOABI') or sys.implementation.cache_tag}"
    flags = [abi, f"-I{python}", "-fvisibility=hidden", "-pthread", *link]
    if sys.platform == "linux":
        flags.append("-ldl")
    job = CompileJob(sources, name, "cpu-portable", tuple(flags), ())
    with patience(f"{what} (once for this compiler and Python)"), own_sources():
        return _Build(job, _Cancel(), available_cores()).library()


@contextlib.contextmanager
def own_sources() -> Iterator[None]:
    """What is compiled here is opwright's own text: where it does not compile, the compiler does not serve."""
    try:
        yield
    except CompileError as refused:
        raise CompilerDiedError(
            refused.message,
            place=refused.place,
            hint="opwright needs a C++20 compiler that works; `opwright doctor` tries yours",
        ) from refused


_CORE_SUFFIXES = (*_UNIT_SUFFIXES, ".h", ".hpp", ".inc")


@contextlib.contextmanager
def patience(what: str, after_s: float = 2.0) -> Iterator[None]:
    """Say on stderr what is going on, but only when it takes longer than `after_s`."""
    timer = threading.Timer(after_s, lambda: print(f"opwright: {what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def require_loadable(library: Path) -> None:
    """Raise MissingFeatureError when this machine lacks an instruction that a cached library may use.

    Loaders call it, for a cache on a shared disk serves several machines.
    """
    note = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
    require_dialect(note["dialect"])


def describe() -> dict[str, object]:
    """What `opwright doctor` and the evidence say of this machine's toolchain."""
    compiler = find_compiler()
    return {
        "compiler": compiler.version,
        "command": shlex.join(compiler.command),
        "dialect": native_dialect(),
        "dialects": [name for name in _PREFERENCE if runs_here(name)],
        "cores": available_cores(),
        "cache": dataclasses.asdict(cache_info()) | {"path": str(resources.cache_dir())},
    }
