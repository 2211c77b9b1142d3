"""`opwright doctor`: what this machine has, what it lacks, and what to do about it.

May import: runtime.toolchain, validators.sandbox; imports neither torch nor CUDA, it looks whether they are there.
To add a check: a function that returns `Check`s, in `CHECKS`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, resources, toolchain
from ..errors import EXIT_MACHINE, EXIT_OK, OpwrightError
from . import console
from .cache import size_text
from .command import command, json_option
from .config import find

__all__ = ["Check", "doctor", "examine"]

OK, WARN, MISSING = "ok", "warn", "missing"


@dataclass(frozen=True)
class Check:
    """One finding.  `missing`: something that every command needs is not there; `warn`: something that some need."""

    name: str
    state: str
    value: str
    do: str = ""


def _python() -> Iterator[Check]:
    fine = sys.version_info >= (3, 11)
    yield Check(
        "python",
        OK if fine else MISSING,
        platform.python_version(),
        "" if fine else "opwright needs 3.11 or newer",
    )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    yield Check(
        "python headers",
        OK if header.is_file() else MISSING,
        str(header.parent),
        "" if header.is_file() else "install them (Debian and Ubuntu: python3-dev, Fedora: python3-devel)",
    )
    where = "a checkout" if resources.checkout() is not None else "installed"
    yield Check("opwright", OK, f"{__version__}, {where}")


def _compiler() -> Iterator[Check]:
    try:
        found = toolchain.find_compiler()
    except OpwrightError as error:
        yield Check("compiler", MISSING, error.message, error.hint or "")
        return
    yield Check("compiler", OK, f"{' '.join(found.command)}: {found.version}")
    try:
        with_20 = "#include <version>\n#if __cplusplus < 202002L\n#error C++20 is needed\n#endif\n"
        toolchain.compile_library(
            {"probe.cpp": with_20 + 'extern "C" int ow_probe(void) { return 0; }\n'}, name="probe"
        )
    except OpwrightError as error:
        yield Check("compiles C++20", MISSING, error.message, error.hint or "")
    else:
        yield Check("compiles C++20", OK, "yes")


def _dialects() -> Iterator[Check]:
    names = [n for n in toolchain.DIALECTS if toolchain.runs_here(n)]
    yield Check("dialects", OK, f"{', '.join(names)}; the best is {toolchain.native_dialect()}")
    yield Check("threads", OK, str(toolchain.available_cores()))


def _cache() -> Iterator[Check]:
    try:
        found = toolchain.cache_info()
    except OpwrightError as error:
        yield Check("cache", MISSING, error.message, error.hint or "")
        return
    free = shutil.disk_usage(found.path).free
    tight = free < 1 << 30
    yield Check(
        "cache",
        WARN if tight else OK,
        f"{found.path}: {console.counted(found.files, 'artifact')}, {size_text(found.bytes)}; {size_text(free)} free",
        "free space, or set OPWRIGHT_CACHE to another disk" if tight else "",
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.partition("+")[0])[:3])


def _models() -> Iterator[Check]:
    wanted = find().torch
    for name, use in (
        ("torch", "judging meaning, enabling models"),
        ("transformers", "models by name"),
        ("safetensors", "weights"),
        ("onnx", "ONNX node tests"),
    ):
        have = _version(name)
        if have is None:
            yield Check(name, WARN, f"not installed; needed for {use}", "pip install 'opwright[models]'")
        elif name == "torch" and _numbers(have) < _numbers(wanted):
            yield Check(
                name, WARN, f"{have}, but opwright.toml asks for {wanted}", f"pip install 'torch{wanted}'"
            )
        else:
            yield Check(name, OK, have)


def _libclang() -> Iterator[Check]:
    have = _version("libclang")
    if have is None or importlib.util.find_spec("clang") is None:
        yield Check(
            "libclang",
            MISSING,
            "not installed: kernel source cannot be judged",
            "pip install 'libclang>=18.1,<19'",
        )
        return
    from clang import cindex

    try:
        cindex.Index.create()
    except cindex.LibclangError as error:
        yield Check(
            "libclang", MISSING, f"{have} does not load: {str(error).splitlines()[0]}", "install it again"
        )
        return
    yield Check("libclang", OK, have)


def _sandbox() -> Iterator[Check]:
    from ..validators import sandbox

    try:
        level = sandbox.level()
    except OpwrightError as error:
        yield Check("sandbox", MISSING, error.message, error.hint or "")
        return
    if not level.missing:
        yield Check("sandbox", OK, f"full: {', '.join(level.held)}")
        return
    why = "; ".join(f"{name}: {reason}" for name, reason in level.missing.items())
    yield Check(
        "sandbox",
        WARN,
        f"{level.name}; without {why}",
        "evidence names what was missing; judge untrusted kernels on a machine that has all layers",
    )


def _cuda() -> Iterator[Check]:
    have = _version("nvidia-cuda-nvrtc") or _version("nvidia-cuda-nvrtc-cu12")
    if have is None:
        yield Check(
            "nvrtc", WARN, "not installed; needed to compile CUDA text", "pip install 'opwright[cuda]'"
        )
    else:
        yield Check("nvrtc", OK, have)
    driver = Path("/proc/driver/nvidia/version").exists()
    yield Check(
        "gpu",
        OK if driver else WARN,
        "an NVIDIA driver" if driver else "none: CUDA text is compiled, not run",
    )


def _git() -> Iterator[Check]:
    path = shutil.which("git")
    yield Check(
        "git",
        OK if path else WARN,
        path or "not found; needed by `opwright gate`",
        "" if path else "install git",
    )


def _config() -> Iterator[Check]:
    try:
        config = find()
    except OpwrightError as error:
        yield Check("opwright.toml", MISSING, error.message, error.hint or "")
        return
    if config.file is None:
        yield Check("opwright.toml", OK, "none here: the built-in operators, and the defaults")
    else:
        yield Check("opwright.toml", OK, str(config.file))


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _compiler,
    _dialects,
    _cache,
    _libclang,
    _sandbox,
    _models,
    _cuda,
    _git,
    _config,
)


def examine() -> list[Check]:
    """Every check, in order.  None of them raises for what a machine lacks."""
    return [found for check in CHECKS for found in check()]


@command("doctor", example=["opwright doctor", "opwright doctor --json"])
@json_option
def doctor(as_json: bool) -> int:
    """Say what this machine has, what it lacks, and what to do.

    Ends with 3 when something is missing that every command needs.
    """
    found = examine()
    lacking = [c for c in found if c.state == MISSING]
    if as_json:
        console.print_json(
            {
                "ok": not lacking,
                "checks": [{"name": c.name, "state": c.state, "value": c.value, "do": c.do} for c in found],
            }
        )
    else:
        console.print_table(
            ("", "check", "found"),
            [({OK: "ok", WARN: "--", MISSING: "!!"}[c.state], c.name, c.value) for c in found],
        )
        advice = [c for c in found if c.do]
        if advice:
            console.say()
            for c in advice:
                console.say(f"{c.name}: {c.do}")
    return EXIT_MACHINE if lacking else EXIT_OK
