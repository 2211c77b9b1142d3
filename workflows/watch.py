"""`opwright watch`: which model types does a release of transformers have that nobody enabled yet?  Enable them.

    opwright watch                         what is new in the installed transformers, beside the records
    opwright watch --since old.json        what is new since another release (a file that --list wrote, or a folder
                                           that `pip install --target` filled): these were published with this one
    opwright watch --enable --reports new  enable each, one page of Markdown each; run by workflows/ci/day_one.yml

`published` is the upload time of the release that brought a type, as the package index states it; where the index
cannot be asked, or does not say which release it was, it is unknown and said so.
May import: enable, records, report, generator.program.models.  To learn of releases elsewhere: a branch in `release`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILED, EXIT_OK, OpwrightError
from ..files import write_text
from . import console, records
from .command import command, json_option
from .enable import Result, enable_target, print_result, remember
from .workbench import Workbench

__all__ = ["New", "Release", "new_types", "release", "uploaded", "watch"]

PACKAGE = "transformers"
#: Seconds that the package index gets to answer.
_PATIENCE = 10.0


class WatchError(OpwrightError):
    """A release that cannot be read."""


@dataclass(frozen=True)
class Release:
    """A release of transformers: its version, the model types that it has a model for, when it was uploaded."""

    version: str
    types: tuple[str, ...]
    published: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"version": self.version, "published": self.published, "types": list(self.types)}


@dataclass(frozen=True)
class New:
    """A model type that no record has; `published`: None where nobody says which release brought it."""

    type: str
    published: str | None


def new_types(now: Release, before: Release | None, recorded: Iterable[str]) -> list[New]:
    """What a release has and the records have not, in its order.  Only what the release before lacked was published
    with this one."""
    known = set(recorded)
    old = set(before.types) if before is not None else None
    return [
        New(t, now.published if old is not None and t not in old else None)
        for t in now.types
        if t not in known and (old is None or t not in old)
    ]


# ---- releases --------------------------------------------------------------------------------------------------

_LIST = """
import json, sys
sys.path[:0] = sys.argv[1:]
import transformers
from transformers.models.auto import configuration_auto, modeling_auto
have = set()
for name, table in vars(modeling_auto).items():
    if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES"):
        have |= set(table)
types = [t for t in configuration_auto.CONFIG_MAPPING_NAMES if t in have]
print(json.dumps({"version": transformers.__version__, "types": types}))
"""


def release(source: Path | None, ask: Callable[[str, str], str | None] | None = None) -> Release:
    """A release: the installed one (None), a folder of packages, or a file that `--list` wrote.

    Raises `WatchError`.
    """
    if source is not None and source.is_file():
        try:
            data = json.loads(source.read_text(encoding="utf-8"))
            return Release(
                str(data["version"]), tuple(str(t) for t in data["types"]), data.get("published") or None
            )
        except (ValueError, KeyError, TypeError) as error:
            raise WatchError(
                f"{source} lists no release: {error}", hint="`opwright watch --list` prints one"
            ) from None
    if source is not None and not (source / PACKAGE).is_dir():
        raise WatchError(
            f"there is no {PACKAGE} in {source}",
            hint=f"pip install --no-deps --target {source} '{PACKAGE}==5.23.*'",
        )
    found = subprocess.run(
        [sys.executable, "-c", _LIST, *([str(source)] if source is not None else [])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    if found.returncode:
        tail = (found.stderr.strip().splitlines() or ["it is not installed"])[-1]
        raise WatchError(f"{PACKAGE} cannot be read: {tail[:200]}", hint="pip install 'opwright[models]'")
    data = json.loads(found.stdout.splitlines()[-1])
    version = str(data["version"])
    return Release(version, tuple(data["types"]), (ask or uploaded)(PACKAGE, version))


def uploaded(package: str, version: str) -> str | None:
    """When a release was uploaded, as the index of this machine's pip states it; None where it cannot be asked."""
    url = f"{_index()}/{package}/"
    if not url.startswith(("https://", "http://")):
        return None
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return upload_time(json.load(answer), version)
    except (OSError, ValueError, urllib.error.URLError):
        return None


def upload_time(page: Mapping[str, Any], version: str) -> str | None:
    """The earliest upload time of a version's files, from the index's page of a project (PEP 691, PEP 700)."""
    times = [
        str(f["upload-time"])
        for f in page.get("files", ())
        if f.get("upload-time")
        and str(f.get("filename", "")).split("-")[1:2] in ([version], [f"{version}.tar.gz"])
    ]
    return min(times)[:19] + "Z" if times else None


#: prints the index that pip is set to, else the one that it knows by itself
_INDEX = """
import subprocess, sys
command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
said = subprocess.run(command, capture_output=True, text=True)
if said.returncode == 0:
    print(said.stdout)
else:
    from pip._internal.models.index import PyPI
    print(PyPI.simple_url)
"""


def _index() -> str:
    """The package index that pip is set to; empty where there is no pip."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url.rstrip("/")
    said = subprocess.run([sys.executable, "-c", _INDEX], capture_output=True, text=True, check=False)
    return said.stdout.strip().rstrip("/")


# ---- one page each ---------------------------------------------------------------------------------------------


def page_of(found: Result, new: New, version: str) -> str:
    """What one new architecture came to, in Markdown."""
    held = found.level or "nothing"
    lines = [
        f"# {found.architecture}: {held} held",
        "",
        f"- model type `{new.type}` of transformers {version}, published {new.published or 'at an unknown time'}",
        f"- {len(found.needed)} operators, {len(found.accepted)} of them accepted; {found.calls} calls, "
        f"{found.groups} fused groups",
        f"- {sum(found.seconds.values()):.1f} s: "
        + ", ".join(f"{name} {s:.1f} s" for name, s in found.seconds.items()),
    ]
    if found.error:
        lines.append(
            f"- error {found.error['max']:.3g} of at most {found.error['bound']:.3g} "
            f"(PyTorch's own {found.error['eager']:.3g})"
        )
    lines += ["", "| level | held | why not |", "| --- | --- | --- |"]
    words = {True: "yes", False: "no", None: "-"}
    lines += [f"| {n} | {words[v]} | {_cell(found.reasons.get(n, ''))} |" for n, v in found.levels.items()]
    if found.missing:
        lines += ["", "| missing | where the model calls it | why |", "| --- | --- | --- |"]
        lines += [f"| `{m.op}` | {_cell(m.site)} | {_cell(m.why)} |" for m in found.missing]
    if found.failed:
        lines += ["", f"It ended in {found.failed}"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def enable_new(
    bench: Workbench,
    new: Sequence[New],
    version: str,
    reports: Path | None,
    record: bool,
    progress: console.Progress,
    *,
    quiet: bool = False,
    run: Callable[..., Result] = enable_target,
) -> list[dict[str, Any]]:
    """Enable each, record the attempt with its publication, write its page; what each came to."""
    out = []
    for k, n in enumerate(new):
        progress.step(n.type, k, len(new))
        at = records.now()
        try:
            found = run(bench, n.type, progress)
        except OpwrightError as error:
            out.append({"type": n.type, "published": n.published, "level": None, "failed": error.message})
            continue
        if record:
            remember(bench, found, at, published=n.published)
        if reports is not None:
            reports.mkdir(parents=True, exist_ok=True)
            name = records.file_name(found.architecture).removesuffix(".yaml")
            write_text(reports / f"{name}.md", page_of(found, n, version), durable=False)
        out.append(
            {
                "type": n.type,
                "published": n.published,
                "level": found.level,
                "failed": found.failed or None,
            }
        )
        if not quiet:
            print_result(found)
    return out


@command(
    "watch",
    example=[
        "opwright watch",
        "opwright watch --since old --enable --reports new",
        "opwright watch --list > releases/5.24.0.json",
    ],
)
@click.option(
    "--transformers",
    "other",
    type=click.Path(exists=True, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Another release than the installed one: a folder of packages, or a file that --list wrote.",
)
@click.option(
    "--since",
    type=click.Path(exists=True, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="The release before: only what it lacks is new, and was published with this one.",
)
@click.option("--list", "listing", is_flag=True, help="Print the release as JSON, and do nothing else.")
@click.option("--enable", "do_enable", is_flag=True, help="Enable what is new, and record each attempt.")
@click.option("--no-record", is_flag=True, help="Do not append the attempts to the records.")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Write one page of Markdown for each architecture there.",
)
@click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="Enable N at most.")
@json_option
def watch(
    other: Path | None,
    since: Path | None,
    listing: bool,
    do_enable: bool,
    no_record: bool,
    reports: Path | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Find the model types of a release of transformers that no record has, and enable them.

    Exit code 1: with --enable, one of them does not hold L2.
    """
    now = release(other)
    if listing:
        console.print_json(now.to_json())
        return EXIT_OK
    before = release(since) if since is not None else None
    bench = Workbench.here()
    recorded = records.load_all(bench.config.support_dirs)
    new = new_types(now, before, recorded)
    done: list[dict[str, Any]] = []
    if do_enable:
        if other is not None:
            raise WatchError(
                "only types of the installed transformers can be enabled",
                hint=f"pip install '{PACKAGE}=={now.version}', then leave --transformers out",
            )
        with console.progress("watching", quiet=as_json) as progress:
            done = enable_new(
                bench, new[:limit], now.version, reports, not no_record, progress, quiet=as_json
            )
    if as_json:
        console.print_json(
            {
                "version": now.version,
                "published": now.published,
                "since": before.version if before is not None else None,
                "recorded": len(recorded),
                "new": [{"type": n.type, "published": n.published} for n in new],
                "enabled": done,
            }
        )
    else:
        for n in new:
            console.say(f"{n.type}  {n.published or 'published at an unknown time'}")
        when = now.published or "an unknown time"
        console.note(
            f"transformers {now.version}, uploaded at {when}: {console.counted(len(now.types), 'model type')}, "
            f"{len(recorded)} recorded, {len(new)} new"
        )
    return EXIT_FAILED if any((d["level"] or "") < "L2" for d in done) else EXIT_OK
