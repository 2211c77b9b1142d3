"""`opwright generate`: everything that is made from a spec, as files: kernels, bindings, tests, benchmark, page.

The folder `<generated>/<op>/` holds
  <dialect>.cpp        one translation unit: the operator's kernels for that dialect, and its gradient's
  rows.json            the bindings: signature, ATen overloads, and each kernel's row, with its lines in the unit
  test_<op>.py         passes by itself: the judge's gates on those texts
  bench_<op>.py, <op>.md
  manifest.json        the list, with hashes

May import: bridge, generator.emit, generator.write.  To add a file: `files_of`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .. import toolchain
from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from ..generator.bind_key import keys_of
from ..generator.bound import BindKey, KernelText
from ..generator.emit.bench import bench_name, print_bench
from ..generator.emit.docs import page_name, print_page
from ..generator.emit.tests import print_test, test_name
from ..generator.errors import ErrorGroup, SpecError
from ..generator.spec import OpSpec, aten_row
from ..generator.write import Changes, Tree
from . import console
from .bridge import Bridge, differentiable, signature
from .command import command, json_option
from .workbench import Workbench, folder_name

__all__ = ["Generated", "files_of", "generate", "generate_op"]

ROWS = "rows.json"
#: The gates that a generated test runs: those on the kernels themselves.
GATES = ("lint", "build", "numerics", "layouts", "memory", "determinism", "errors", "gradient", "inplace")


@dataclass(frozen=True)
class Generated:
    """What one operator's generation did (or would do)."""

    spec: OpSpec
    folder: Path
    changes: Changes
    kernels: int


def keys_for(spec: OpSpec) -> list[BindKey]:
    """The keys that kernels are written for: what a spec admits in the dtypes that are printed, and the judge's."""
    from ..validators.judge import DTYPES, judged_keys

    return list(dict.fromkeys([*keys_of(spec, DTYPES), *judged_keys(spec, "quick")]))


def _unit(texts: Sequence[KernelText]) -> tuple[str, list[dict[str, Any]]]:
    """One translation unit of many kernels, each whole, and where each stands in it."""
    parts: list[str] = []
    rows: list[dict[str, Any]] = []
    at = 1
    seen: dict[str, tuple[int, int]] = {}
    for text in texts:
        source = text.source.rstrip("\n") + "\n"
        if text.symbol not in seen:
            lines = source.count("\n")
            seen[text.symbol] = (at, lines)
            parts.append(source)
            at += lines
        begin, lines = seen[text.symbol]
        rows.append({"line": begin, "lines": lines, "row": text.row})
    return "".join(parts), rows


def files_of(bench: Workbench, spec: OpSpec, dialects: Sequence[str]) -> tuple[dict[str, str], int]:
    """Name → text of every file, and the number of kernels."""
    files: dict[str, str] = {}
    made: dict[str, Any] = {}
    keys = keys_for(spec)
    count = 0
    for dialect in dialects:
        bridge = Bridge(bench, dialect)
        forward = [bridge.text(spec, k) for k in keys]
        backward = [bridge.gradient_text(spec, k) for k in keys if differentiable(spec, k)]
        text, rows = _unit([*forward, *backward])
        files[f"{dialect}.cpp"] = text
        made[dialect] = {
            "file": f"{dialect}.cpp",
            "forward": rows[: len(forward)],
            "gradient": rows[len(forward) :],
        }
        count += len({r["row"]["symbol"] for r in rows})
    files[ROWS] = json.dumps(
        {
            "schema": 1,
            "op": spec.op,
            "meaning": spec.meaning_hash(),
            "signature": signature(spec),
            "aten": {e.overload: aten_row(spec, e) for e in spec.aten},
            "dialects": made,
        },
        indent=1,
        sort_keys=True,
        allow_nan=True,
    )
    files[test_name(spec)] = print_test(spec, GATES)
    files[bench_name(spec)] = print_bench(spec)
    files[page_name(spec)] = print_page(spec)
    return files, count


def address(bench: Workbench, spec: OpSpec, folder: Path) -> str:
    """How the folder's test finds its spec: by name, or by the file's path from the folder."""
    registry = bench.registry
    own = spec.op in registry and any(
        Path(spec.file).resolve().is_relative_to(d.resolve()) for d in bench.config.spec_dirs
    )
    return spec.op if own else f"{os.path.relpath(spec.file, folder)}:{spec.op}"


def generate_op(
    bench: Workbench, spec: OpSpec, dialects: Sequence[str], root: Path, *, check: bool = False
) -> Generated:
    """Write (or with `check` compare) the folder of one operator."""
    folder = root / folder_name(spec.op)
    files, count = files_of(bench, spec, dialects)
    tree = Tree(folder, {"op": spec.op, "spec": address(bench, spec, folder), "dialects": list(dialects)})
    for name, text in files.items():
        tree.add(name, text)
    return Generated(spec, folder, tree.compare() if check else tree.commit(), count)


def generated_ops(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The folders that were generated, with their manifests."""
    found = []
    for path in sorted(root.glob("*/manifest.json")) if root.is_dir() else ():
        try:
            found.append((path.parent, json.loads(path.read_text(encoding="utf-8"))))
        except ValueError as error:
            raise OpwrightError(
                f"{path} cannot be read: {error}", hint=f"remove {path.parent} and generate again"
            ) from error
    return found


class GenerateError(OpwrightError):
    """What is to be generated is not said, or said twice."""


@command(
    "generate",
    example=[
        "opwright generate softmax",
        "opwright generate softmax --dialect cpu-avx2 --dialect cpu-portable",
        "opwright generate --all --check",
        "opwright generate --stubs",
    ],
)
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every operator of this workbench; with --check: all that was generated.",
)
@click.option(
    "--stubs",
    is_flag=True,
    help="ops.pyi and _core.pyi, which editors and type checkers read, beside the runtime (or into --out).",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit code 1 where the files are not what would be written."
)
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="NAME",
    help="For this dialect (default: this machine's best).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Instead of the folder that opwright.toml names.",
)
@json_option
def generate(
    ops: tuple[str, ...],
    every: bool,
    stubs: bool,
    check: bool,
    dialects: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> int:
    """Write kernels, bindings, tests, benchmark and page of an op, and list them.

    OP is an operator's name or the path of a spec file.  Only what changes is written; `pytest FOLDER` passes by
    itself.
    """
    bench = Workbench.here()
    if stubs:
        return _stubs(bench, ops, every or check or bool(dialects), out, as_json)
    root = (out or bench.config.generated).absolute()
    if every == bool(ops):
        raise GenerateError(
            "nothing to generate" if not ops else "--all and names are two answers to one question",
            hint="name operators, or say --all",
        )
    for name in dialects:
        if not name.startswith("sm_"):
            toolchain.dialect(name)
    work: list[tuple[OpSpec, tuple[str, ...]]] = []
    if every and check:
        for folder, manifest in generated_ops(root):
            work.append((_spec_of(bench, folder, manifest), dialects or tuple(manifest["dialects"])))
    else:
        specs = bench.own() if every else bench.select(ops)
        for spec in specs:
            work.append((spec, dialects or _dialects_before(root, spec) or (toolchain.native_dialect(),)))
    done: list[Generated] = []
    errors: list[OpwrightError] = []
    with console.progress("generating", quiet=as_json) as progress:
        for k, (spec, names) in enumerate(work):
            progress.step(f"generating {spec.op}", k, len(work))
            try:
                done.append(generate_op(bench, spec, names, root, check=check))
            except SpecError as error:
                errors += error.errors
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(errors)
    return _report(done, check, as_json)


def _stubs(bench: Workbench, ops: tuple[str, ...], more: bool, out: Path | None, as_json: bool) -> int:
    from .stubs import beside, write_stubs

    if ops or more:
        raise GenerateError("--stubs are of all operators, and stand alone", hint="leave out the rest")
    folder = out or beside()
    written = write_stubs(bench.proven(), folder)
    if as_json:
        console.print_json(
            {"ok": True, "ops": [], "stubs": {"folder": str(folder), "written": [p.name for p in written]}}
        )
    else:
        console.say(f"{console.short(folder)}: {', '.join(p.name for p in written) or 'nothing changed'}")
    return EXIT_OK


def _dialects_before(root: Path, spec: OpSpec) -> tuple[str, ...]:
    """The dialects that the folder was generated for last time: `--check` asks about those."""
    path = root / folder_name(spec.op) / "manifest.json"
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8"))["dialects"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _spec_of(bench: Workbench, folder: Path, manifest: dict[str, Any]) -> OpSpec:
    text = str(manifest["spec"])
    return bench.one(str(folder / text) if ".yaml:" in text else text)


def _report(done: Sequence[Generated], check: bool, as_json: bool) -> int:
    differs = [g for g in done if g.changes.any]
    if as_json:
        console.print_json(
            {
                "ok": not (check and differs),
                "ops": [
                    {
                        "op": g.spec.op,
                        "folder": str(g.folder),
                        "kernels": g.kernels,
                        "written": list(g.changes.written),
                        "same": list(g.changes.same),
                        "removed": list(g.changes.removed),
                    }
                    for g in done
                ],
            }
        )
    elif check:
        for g in differs:
            for word, names in (("differs", g.changes.written), ("is no longer made", g.changes.removed)):
                for name in names:
                    console.say(f"{console.short(g.folder / name)} {word}")
        console.note(f"{console.counted(len(done), 'operator')}, {len(differs)} differ")
    else:
        for g in done:
            for name in sorted((*g.changes.written, *g.changes.same)):
                if name != "manifest.json":
                    console.say(console.short(g.folder / name))
            console.note(
                f"{g.spec.op}: {console.counted(g.kernels, 'kernel')}; "
                f"{console.counted(len(g.changes.written), 'file')} written, "
                f"{len(g.changes.same)} unchanged, {len(g.changes.removed)} removed"
            )
    if check and differs and not as_json:
        console.note(
            "run `opwright generate` again"
            if len(differs) > 1
            else f"run `opwright generate {differs[0].spec.op}`"
        )
    return EXIT_FAILED if check and differs else EXIT_OK
