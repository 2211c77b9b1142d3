"""`opwright build`: kernels ahead of time.

    opwright build FOLDER          a program folder's own kernels, into FOLDER/kernels: it then runs without Python
    opwright build [OP…]           operators (default: all that are accepted), with headers and a CMake package
    opwright build --wheel [OP…]   the same in a wheel that needs no compiler where it is installed

May import: bridge, kernels, stubs, wheel, workbench, generator.bind_key, runtime.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__, resources, toolchain
from ..errors import OpwrightError, raise_all
from ..files import replacing, write_text
from ..generator.errors import DomainError, LowerError, SpecError
from ..generator.spec import OpSpec
from ..generator.types import DType
from . import console
from .cache import size_text
from .command import command, json_option
from .kernels import Built, Entry, digest_of, write_table
from .workbench import Workbench

__all__ = ["BuildError", "build", "build_ops", "build_program", "write_sdk"]

HEADERS = ("abi.h", "host.h", "program.h")


class BuildError(OpwrightError):
    """What is to be built cannot be."""


CONFIG = """\
# The CMake package of opwright: find_package(opwright) gives the target opwright::opwright, and opwright_KERNELS, the
# folder of the kernels that were built with it (empty where none were).
get_filename_component(_opwright_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET opwright::opwright)
  add_library(opwright::opwright SHARED IMPORTED)
  set_target_properties(opwright::opwright PROPERTIES
    IMPORTED_LOCATION "${_opwright_prefix}/lib/libopwright.so"
    IMPORTED_SONAME "libopwright.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_opwright_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
set(opwright_KERNELS "")
if(EXISTS "${_opwright_prefix}/share/opwright/kernels/kernels.json")
  set(opwright_KERNELS "${_opwright_prefix}/share/opwright/kernels")
endif()
unset(_opwright_prefix)
"""

VERSION = """\
set(PACKAGE_VERSION "{version}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"""


def write_sdk(out: Path) -> int:
    """Library, headers and CMake package below `out`; the library's bytes."""
    library = toolchain.build_host()
    for folder in ("include/opwright", "lib/cmake/opwright"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name in HEADERS:
        text = (resources.include_dir() / "opwright" / name).read_text(encoding="utf-8")
        write_text(out / "include" / "opwright" / name, text)
    # A new file, never one that a running program has mapped.
    with library.open("rb") as source, replacing(out / "lib" / "libopwright.so") as target:
        shutil.copyfileobj(source, target)
    (out / "lib" / "libopwright.so").chmod(0o755)
    write_text(out / "lib" / "cmake" / "opwright" / "opwrightConfig.cmake", CONFIG)
    write_text(
        out / "lib" / "cmake" / "opwright" / "opwrightConfigVersion.cmake",
        VERSION.format(version=__version__),
    )
    return library.stat().st_size


def build_program(
    bench: Workbench, folder: Path, dialects: Sequence[str], workers: int | None, progress: console.Progress
) -> list[Built]:
    """The kernels of a program folder, into `FOLDER/kernels`."""
    from ..generator.program.folder import read_folder
    from .bridge import Bridge

    read_folder(folder)  # our own reader first: its errors say more
    from ..load import core

    own = Bridge(bench)
    own.install()
    asked = core.program_requests(folder)
    entries: dict[str, list[Entry]] = {}
    for dialect in dialects:
        bridge = own if dialect == own.dialect else Bridge(bench, dialect)
        progress.step(f"{dialect}: printing {len(asked)} kernels")
        made = []
        for line, request in asked:
            text, casts = bridge.answering(request)
            made.append(Entry(text, line, casts))
        entries[dialect] = made
    named = sorted({str(r["op"]) for _, r in asked if not r.get("group")})
    return write_table(
        folder / "kernels",
        entries,
        signatures=[own.catalog.serves[name].signature for name in named],
        program=digest_of((folder / "program.json").read_bytes()),
        workers=workers,
        step=progress.step,
    )


def build_ops(
    bench: Workbench,
    specs: Sequence[OpSpec],
    folder: Path,
    dialects: Sequence[str],
    *,
    dtypes: Sequence[DType] | None = None,
    gradients: bool = False,
    workers: int | None = None,
    progress: console.Progress,
) -> list[Built]:
    """Kernels of operators for every key they admit, into one library a dialect."""
    from .bridge import Bridge, differentiable, signature

    entries: dict[str, list[Entry]] = {}
    for dialect in dialects:
        bridge = Bridge(bench, dialect)
        made: list[Entry] = []
        errors: list[OpwrightError] = []
        for at, spec in enumerate(specs):
            progress.step(f"{dialect}: printing {spec.op}", at, len(specs))
            for key in keys_for(spec, dtypes):
                try:
                    made.append(Entry(bridge.text(spec, key)))
                    if gradients and differentiable(spec, key):
                        made.append(Entry(bridge.gradient_text(spec, key), gradient_of=spec.op))
                except (DomainError, LowerError):
                    continue  # a key that `require` rules out, or without a lowering: no call has a kernel there
                except SpecError as error:
                    errors.append(error)
        raise_all(errors)
        entries[dialect] = made
    signatures = [signature(s) | {"meaning": s.meaning_hash()} for s in specs]
    return write_table(folder, entries, signatures=signatures, workers=workers, step=progress.step)


def keys_for(spec: OpSpec, dtypes: Sequence[DType] | None) -> list[Any]:
    """The keys to build: what a spec admits in these dtypes, and what the judge has judged of them."""
    from ..generator.bind_key import keys_of
    from ..validators.judge import DTYPES, judged_keys

    wanted = list(DTYPES if dtypes is None else dtypes)
    names = {d.value for d in wanted}
    keys = dict.fromkeys([*keys_of(spec, wanted), *judged_keys(spec, "quick")])
    if dtypes is None:
        return list(keys)
    types = {t.dtype for t in spec.inputs.values()} & set(spec.types)
    return [k for k in keys if all(v in names for n, v in k.types if n in types)]


@command(
    "build",
    example=[
        "opwright build build/programs/llama-cpu-f32",
        "opwright build softmax rms_norm --dtype f32 --out build/opwright",
        "opwright build --wheel --dialect cpu-avx2 --dialect cpu-portable",
    ],
)
@click.argument("targets", nargs=-1, metavar="[FOLDER | OP...]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Where library, headers, CMake package and wheel go (default: build/opwright; for FOLDER: nowhere).",
)
@click.option(
    "--dialect", "dialects", multiple=True, metavar="NAME", help="Only for this one (may be repeated)."
)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="T", help="Only for inputs of this dtype (may be repeated)."
)
@click.option("--gradients", is_flag=True, help="Gradients as well.")
@click.option("--wheel", is_flag=True, help="Also a wheel that needs no compiler where it is installed.")
@click.option("-j", "--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Compilers at once.")
@json_option
def build(
    targets: tuple[str, ...],
    out: Path | None,
    dialects: tuple[str, ...],
    dtypes: tuple[str, ...],
    gradients: bool,
    wheel: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """Build kernels ahead of time, for C++ programs and for machines without a compiler.

    FOLDER is a program folder: its kernels go into FOLDER/kernels, and `opwright/program.h` runs it without Python
    (docs/host_api.md). OP are operators; without any, all that are accepted. One library a dialect, best first: the
    one that the machine runs is chosen when it is loaded.
    """
    bench = Workbench.here()
    wanted = [toolchain.dialect(d).name for d in dialects] or [
        d for d, about in toolchain.DIALECTS.items() if about.machine in (None, platform.machine())
    ]
    began = time.perf_counter()
    sdk = 0
    made_wheel: Path | None = None
    programs = [Path(t) for t in targets if Path(t, "program.json").is_file()]
    with console.progress("building", quiet=as_json) as progress:
        if programs:
            if len(targets) != 1 or wheel or gradients or dtypes:
                raise BuildError(
                    f"{programs[0]} is a program folder: it is built alone, as it is",
                    hint="leave out the other targets, --wheel, --gradients and --dtype",
                )
            folder = programs[0] / "kernels"
            built = build_program(bench, programs[0], wanted, jobs or None, progress)
        else:
            specs = bench.select(targets) if targets else bench.proven()
            waiting = [s.op for s in specs if not bench.is_proven(s)]
            if waiting:
                raise BuildError(
                    f"`{waiting[0]}` has not been accepted"
                    + (f", nor {len(waiting) - 1} others" if len(waiting) > 1 else ""),
                    hint=f"`opwright accept {waiting[0]}` judges it; only what is proven is built",
                )
            out = out or Path("build/opwright")
            folder = out / "share" / "opwright" / "kernels"
            chosen = [_dtype(d) for d in dtypes] if dtypes else None
            built = build_ops(
                bench, specs, folder, wanted,
                dtypes=chosen, gradients=gradients, workers=jobs or None, progress=progress,
            )  # fmt: skip
        if out is not None:
            progress.step("the runtime library")
            sdk = write_sdk(out)
            if wheel:
                from .stubs import stub_texts
                from .wheel import write_wheel

                made_wheel = write_wheel(out, folder, stub_texts(bench.proven()))
    seconds = time.perf_counter() - began
    _show(built, folder, out, sdk, made_wheel, seconds, as_json)
    return 0


def _dtype(name: str) -> DType:
    try:
        return DType(name)
    except ValueError:
        raise BuildError(
            f"`{name}` is no dtype", hint=f"one of {', '.join(d.value for d in DType)}"
        ) from None


def _show(
    built: Sequence[Built],
    folder: Path,
    out: Path | None,
    sdk: int,
    wheel: Path | None,
    seconds: float,
    as_json: bool,
) -> None:
    kernels = sum(b.kernels for b in built)
    if as_json:
        console.print_json(
            {
                "kernels": str(folder),
                "dialects": [
                    {
                        "name": b.dialect,
                        "library": str(b.library),
                        "kernels": b.kernels,
                        "units": b.units,
                        "bytes": b.bytes,
                    }
                    for b in built
                ],
                "out": None if out is None else str(out),
                "runtime_bytes": sdk or None,
                "wheel": None if wheel is None else {"file": str(wheel), "bytes": wheel.stat().st_size},
                "seconds": round(seconds, 3),
                "kernels_per_second": round(kernels / seconds, 2) if seconds else None,
            }
        )
        return
    for b in built:
        console.say(
            f"{b.dialect:13} {console.counted(b.kernels, 'kernel'):>12}  {size_text(b.bytes):>10}  "
            f"{console.short(b.library)}"
        )
    if out is not None:
        console.say(
            f"{'runtime':13} {'':>12}  {size_text(sdk):>10}  {console.short(out / 'lib' / 'libopwright.so')}"
        )
    if wheel is not None:
        console.say(f"{'wheel':13} {'':>12}  {size_text(wheel.stat().st_size):>10}  {console.short(wheel)}")
    console.say(f"{console.counted(kernels, 'kernel')} in {seconds:.1f} s, {kernels / seconds:.1f} a second")
