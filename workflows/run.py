"""`opwright run`: run a program folder.  No torch: NumPy, the runtime, and kernels from the cache or built now.

May import: bridge, generator.program.folder, the runtime.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..errors import OpwrightError
from ..files import replacing
from ..generator.errors import did_you_mean
from ..generator.program.draw import draw_inputs, drawn_like, example_sizes, small_sizes
from ..generator.program.folder import Example, numpy_dtype, read_folder, read_tensors
from ..generator.program.ir import Program
from . import console
from .command import command, json_option, seed_option

__all__ = ["draw_inputs", "read_inputs", "run"]

Array = NDArray[Any]


class InputError(OpwrightError):
    """Inputs that do not fit the program, or a file of them that cannot be read."""


# ---- inputs ------------------------------------------------------------------------------------------------------


def read_inputs(path: Path) -> dict[str, Array]:
    """Arrays by name from an .npz or .safetensors file.  No pickles are read."""
    if path.suffix == ".safetensors":
        return dict(read_tensors(path))
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):  # an .npy, which is no context manager either
            raise InputError(
                f"{path} holds one array without a name", hint="np.savez('inputs.npz', name=array)"
            )
        with archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        said = (str(error).splitlines() or ["it is cut off"])[0]
        raise InputError(
            f"{path} cannot be read: {said}", hint="an .npz by np.savez, or .safetensors"
        ) from error


def inputs_for(
    program: Program, example: Example | None, given: Iterable[str], seed: int | None
) -> dict[str, Array]:
    """The folder's example, or inputs like it where sizes or a seed are given; drawn ones where it has none."""
    sizes = sizes_of(program, given)
    if example is None:
        extents = small_sizes(program) | sizes
        require_memory(program, extents)
        return draw_inputs(program, extents, seed or 0)
    if seed is None and not sizes:
        return dict(example.arrays)
    extents = example_sizes(program, example, sizes)
    require_memory(program, extents)
    return drawn_like(program, example, extents, seed or 0)


def require_memory(program: Program, sizes: Mapping[str, int]) -> None:
    """Raises `InputError` where an input alone is larger than this machine's memory."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for b in program.inputs:
        v = program.values[b.value]
        shape = [n.evaluate(sizes) for n in v.shape]
        wants = math.prod(shape) * numpy_dtype(v.dtype).itemsize
        if wants > has:
            raise InputError(
                f"the input `{b.name}` of {shape} takes {wants / 2**30:,.0f} GiB; this machine has "
                f"{has / 2**30:,.0f}",
                hint="a smaller --size",
            )


def sizes_of(program: Program, given: Iterable[str]) -> dict[str, int]:
    """The values that are `given` (`s0=4`) to symbols that come from an input."""
    symbols = {s.name: s for s in program.symbols.values() if s.source in {b.name for b in program.inputs}}
    out: dict[str, int] = {}
    for text in given:
        name, eq, value = text.partition("=")
        if not eq or not value.isdecimal():
            raise InputError(f"`{text}` is not SYMBOL=NUMBER", hint="such as --size s0=4")
        if name not in symbols:
            raise InputError(
                f"the program has no symbol `{name}`", hint=did_you_mean(name, symbols, what="symbols")
            )
        out[name] = int(value)
    return out


def _refused(error: OpwrightError, arrays: Mapping[str, Array], file: Path | None) -> InputError:
    """What the program said of these inputs, which are all that it can mean."""
    given = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
    hint = "" if file is not None else "; give inputs that belong together by --inputs FILE"
    return InputError(error.message, hint=f"the inputs were {given}{hint}")


# ---- outputs -----------------------------------------------------------------------------------------------------


def summary(name: str, array: Array) -> dict[str, Any]:
    """An output in a few numbers."""
    out: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    numbers = array.astype(np.float64) if array.dtype.kind not in "c" else np.abs(array).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        out |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    if finite.size != numbers.size:
        out["not_finite"] = int(numbers.size - finite.size)
    return out


def write_outputs(path: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz or .safetensors file, whole or not at all."""
    if path.suffix == ".safetensors":
        from ..generator.program.folder import write_tensors

        write_tensors(path, arrays)
        return
    if path.suffix != ".npz":
        raise InputError(f"{path} is neither .npz nor .safetensors")
    # NumPy's own files know no bf16.
    plain = {n: a.astype(np.float32) if a.dtype.name == "bfloat16" else a for n, a in arrays.items()}
    with replacing(path, durable=False) as out:
        np.savez(out, **plain)  # type: ignore[arg-type]


def as_array(x: Any) -> Array:
    """A tensor of the runtime, or a register's number, as a NumPy array."""
    found: Array = x.numpy() if hasattr(x, "numpy") else np.asarray(x)
    return found


@command(
    "run",
    example=[
        "opwright run build/programs/llama-cpu-f32",
        "opwright run build/programs/llama-cpu-f32 --size s0=4 --seed 3 --out outputs.npz",
        "opwright run build/programs/llama-cpu-f32 --inputs inputs.npz",
        "opwright run model.onnx --size s0=4",
    ],
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="An .npz or .safetensors file of inputs by name (default: the folder's example; with --seed or --size, "
    "drawn).",
)
@click.option(
    "--size", "sizes", multiple=True, metavar="SYMBOL=N", help="The extent that a symbol stands for."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Write the outputs there."
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 10_000),
    default=1,
    metavar="N",
    help="Run N times; the fastest counts.",
)
@seed_option
@json_option
def run(
    folder: Path,
    inputs: Path | None,
    sizes: tuple[str, ...],
    out: Path | None,
    repeat: int,
    seed: int | None,
    as_json: bool,
) -> int:
    """Run a program folder, without PyTorch.

    FOLDER is what `opwright enable` wrote, or an .onnx file, which is converted first.
    """
    if folder.suffix.lower() != ".onnx":
        return _run(folder, folder, inputs, sizes, out, repeat, seed, as_json)
    with tempfile.TemporaryDirectory(prefix="opwright-run-") as scratch:
        converted = from_onnx(folder, Path(scratch) / "capture")
        return _run(converted, folder, inputs, sizes, out, repeat, seed, as_json)


def from_onnx(path: Path, out: Path) -> Path:
    """The program folder of an .onnx file.  Raises `InputError` where operators are missing."""
    from ..generator.program.capture_run import run_worker
    from .bridge import aten_rows
    from .workbench import Workbench

    table = aten_rows(Workbench.here().registry.all())
    captured = run_worker(str(path), out, table=table, records=0, sensitivity=False)
    lacking = [c for c in captured.program.calls if c.missing]
    if lacking:
        names = ", ".join(dict.fromkeys(c.op.removeprefix("missing:") for c in lacking))
        raise InputError(
            f"{path} needs {names}, which is missing", hint=f"`opwright inventory {path}` says where and why"
        )
    return out / "program"


def _run(
    folder: Path,
    named: Path,
    inputs: Path | None,
    sizes: tuple[str, ...],
    out: Path | None,
    repeat: int,
    seed: int | None,
    as_json: bool,
) -> int:
    """Run `folder`, which people call `named`."""
    have = read_folder(folder)  # our own reader first: its errors say more
    program = have.program
    arrays = read_inputs(inputs) if inputs is not None else inputs_for(program, have.example(), sizes, seed)
    if inputs is not None and sizes:
        raise InputError("--size is for drawn inputs", hint="leave it out, or leave out --inputs")
    from .bridge import install

    install()
    from ..exceptions import OpError
    from ..program import Program as Loaded

    with console.progress("loading", quiet=as_json) as progress:
        begun = time.perf_counter()
        loaded = Loaded.load(folder)
        loading = time.perf_counter() - begun
        progress.step("running")
        times = []
        for _ in range(repeat):
            begun = time.perf_counter()
            try:
                results = loaded.run(arrays)
            except OpError as error:
                raise _refused(error, arrays, inputs) from error
            times.append(time.perf_counter() - begun)
    found = {name: as_array(t) for name, t in results.items()}
    if out is not None:
        write_outputs(out, found)
    shown = [summary(n, a) for n, a in found.items()]
    if as_json:
        console.print_json(
            {
                "program": program.name,
                "folder": str(named),
                "seconds": {"load": loading, "run": min(times)},
                "inputs": [
                    {"name": n, "dtype": str(a.dtype), "shape": list(a.shape)} for n, a in arrays.items()
                ],
                "outputs": shown,
                "out": str(out) if out is not None else None,
            }
        )
        return 0
    if out is not None:
        console.note(f"wrote {console.short(out)}")
    for s in shown:
        numbers = f"  {s['min']:.6g} … {s['max']:.6g}, mean {s['mean']:.6g}" if "min" in s else ""
        odd = f", {s['not_finite']} not finite" if "not_finite" in s else ""
        console.say(f"{s['name']}: {s['dtype']}{s['shape']}{numbers}{odd}")
    console.note(f"loaded in {loading:.2f} s, ran in {min(times) * 1e3:.3g} ms")
    return 0
