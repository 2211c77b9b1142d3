"""`make conformance`: PyTorch's samples of what we claim, through `ow.call_aten`; → docs/conformance.md.

    python -m tests.conformance.run                     go on where the last run stopped, then write the page
    python -m tests.conformance.run --dtypes f32,error  a part of it; the page says which dtypes it has
    python -m tests.conformance.run --again             what did not pass, once more
    python -m tests.conformance.run --only add,sum      some entries of OpInfo; prints, writes nothing

`error` stands beside the dtypes: what PyTorch refuses must be refused here.  `onnx`: ONNX's node tests (onnx_nodes.py).

An entry and a dtype at a time in a process of its own kind, so that one that crashes costs itself; what is done lies in
build/conformance/ until specs, runtime or these tests change.

May import: the standard library; errors, onnx_nodes, replay and torch_samples in the worker only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "conformance"
PAGE = ROOT / "docs" / "conformance.md"
#: In the smallest integers and c128 PyTorch's samples are those of the other types again.
DTYPES = ("f32", "f64", "bf16", "i64", "bool", "f16", "i32", "c64")
#: What else is run of an entry, and what is run once.
ERRORS, ONNX = "error", "onnx"
KINDS = (*DTYPES, ERRORS, ONNX)
#: ONNX's node tests are run in so many parts.
ONNX_PARTS = 16
SAMPLES, CALLS = 24, 6
#: Seconds that an entry in one dtype may take, kernels included.
LIMIT = 600


# ---- the worker --------------------------------------------------------------------------------------------------


def results(name: str, dtype: str, samples: int, calls: int, overloads: Sequence[str] = ()) -> dict[str, Any]:
    """Overload → how many calls were tried and passed, and why others were not."""
    if dtype == ONNX:
        from .onnx_nodes import node_results

        return node_results(name)
    if dtype == ERRORS:
        return _errors(name, overloads)
    from .replay import claimed, prepare, replay
    from .torch_samples import recorded

    found = list(recorded(name, dtype, overloads or claimed(), samples=samples, calls=calls))
    prepare(found)
    return _counted(found, replay)


def _errors(name: str, overloads: Sequence[str]) -> dict[str, Any]:
    from .errors import bad_calls, refuse

    return _counted([c for c in bad_calls(name) if not overloads or c.overload in overloads], refuse)


def _counted(found: Sequence[Any], judge: Callable[[Any], Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for call in found:
        row = out.setdefault(
            call.overload, {"tried": 0, "passed": 0, "oracle": 0, "refused": {}, "failed": []}
        )
        row["tried"] += 1
        try:
            outcome = judge(call)
            status, why = outcome.status, outcome.why
            row["oracle"] += outcome.by_oracle
        except Exception as error:  # whatever a kernel or the harness raises is a failure of this call
            status, why = "failed", f"raises {type(error).__name__}: {error}".splitlines()[0]
        if status == "passed":
            row["passed"] += 1
        elif status == "refused":
            row["refused"][why] = row["refused"].get(why, 0) + 1
        else:
            row["failed"].append({"call": str(call), "sample": call.sample, "why": why})
    return out


def work() -> None:
    """Answer tasks, one a line, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the answers
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps(results(task["name"], task["dtype"], SAMPLES, CALLS)) + "\n")
        answers.flush()


# ---- the parent --------------------------------------------------------------------------------------------------


class Worker:
    """A child that works through tasks, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[str] | None = None
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker

    def ask(self, name: str, dtype: str) -> dict[str, Any]:
        if self.child is None:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.run", "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                text=True,
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        child = self.child
        assert child.stdin is not None and child.stdout is not None
        timer = threading.Timer(LIMIT, child.kill)
        timer.start()
        try:
            child.stdin.write(json.dumps({"name": name, "dtype": dtype}) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = child.wait()
        self.child = None
        self.said.seek(0)
        last = (self.said.read().strip().splitlines() or [""])[-1]
        why = f"the process ended with status {status}: {last}"
        return {
            "(all)": {
                "tried": 1,
                "passed": 0,
                "oracle": 0,
                "refused": {},
                "failed": [{"call": name, "sample": f"{name} {dtype}", "why": why}],
            }
        }

    def close(self) -> None:
        if self.child is not None:
            assert self.child.stdin is not None
            self.child.stdin.close()
            self.child.wait()


def fingerprint() -> str:
    """What an answer holds for: specs, everything that makes kernels and judges, and these tests."""
    digest = hashlib.sha256(f"{SAMPLES} {CALLS}".encode())
    folders = (
        "specs",
        "generator",
        "validators",
        "runtime/python",
        "runtime/src",
        "runtime/include",
        "tests/conformance",
    )
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".yaml", ".py", ".h", ".cpp", ".hpp"):
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def path_of(name: str, dtype: str) -> Path:
    return STATE / f"{name}.{dtype}.json"


def done(name: str, dtype: str, state: str) -> bool:
    try:
        return bool(json.loads(path_of(name, dtype).read_text())["state"] == state)
    except (OSError, ValueError, KeyError):
        return False


def tasks_of(names: Sequence[str], kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Every entry in every dtype; ONNX's node tests are not by entry."""
    parts = [f"part {k}" for k in range(ONNX_PARTS)]
    return [(name, kind) for kind in kinds for name in (parts if kind == ONNX else names)]


def run_all(todo: Sequence[tuple[str, str]], jobs: int, state: str) -> None:
    tasks: queue.Queue[tuple[str, str]] = queue.Queue()
    for task in todo:
        tasks.put(task)
    total = tasks.qsize()

    def loop() -> None:
        worker = Worker()
        while True:
            try:
                name, dtype = tasks.get_nowait()
            except queue.Empty:
                break
            answer = worker.ask(name, dtype)
            temporary = path_of(name, dtype).with_suffix(".tmp")
            temporary.write_text(json.dumps({"state": state, "results": answer}))
            temporary.rename(path_of(name, dtype))
            print(
                f"\r{total - tasks.qsize()} of {total} {name} {dtype}\033[K",
                end="",
                file=sys.stderr,
                flush=True,
            )
        worker.close()

    threads = [threading.Thread(target=loop) for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(file=sys.stderr)


# ---- the page ----------------------------------------------------------------------------------------------------


def merged(parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for part in parts:
        for overload, row in part.items():
            into = out.setdefault(
                overload, {"tried": 0, "passed": 0, "oracle": 0, "refused": Counter(), "failed": []}
            )
            into["tried"] += row["tried"]
            into["passed"] += row["passed"]
            into["oracle"] += row["oracle"]
            into["refused"].update(row["refused"])
            into["failed"] += row["failed"]
    return out


def totals(rows: Mapping[str, Any]) -> dict[str, int]:
    return {
        "tried": sum(r["tried"] for r in rows.values()),
        "passed": sum(r["passed"] for r in rows.values()),
        "oracle": sum(r["oracle"] for r in rows.values()),
        "refused": sum(sum(r["refused"].values()) for r in rows.values()),
        "failed": sum(len(r["failed"]) for r in rows.values()),
    }


def commit() -> str:
    """Of which tree the numbers are; nothing where that is no commit's."""
    try:
        ran = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return ran.stdout.strip()


def page(
    by_kind: Mapping[str, Mapping[str, Any]],
    torch: str,
    left: Mapping[str, int] | None = None,
    tree: str = "",
) -> str:
    """`by_kind`: rows by dtype, `error` and `onnx`; `left`: how many entries of each were not run; `tree`: of which
    commit the numbers are."""
    at = f" at {tree}" if tree else ""
    numbers = {k: v for k, v in by_kind.items() if k not in (ERRORS, ONNX)}
    rows = merged(iter(numbers.values()))
    total = totals(rows)
    lines = [
        "# Conformance",
        "",
        f"PyTorch's own samples (OpInfo, torch {torch}) through `ow.call_aten`; made by `make conformance`{at}.",
        "A sample is run under a dispatch mode, and every ATen overload that it calls and some spec or front claims is",
        f"called here with the same arguments: dtypes {', '.join(numbers)}, at most {SAMPLES} samples",
        f"an entry and {CALLS} calls of an overload in each.  Passed: our result lies in the oracle's ball, PyTorch's",
        "in a wider one; views are equal; what is drawn has PyTorch's shape and dtype.  Refused: one clear error, with",
        "its reason.  Operators serve here whether they have evidence or not.",
        "",
        "`error`: the error inputs of OpInfo.  PyTorch raises; passed: so do we, by an error that says why; refused:",
        "nothing here claims the overload; failed: we compute.  `onnx`: the node tests of the `onnx` wheel.",
        "",
        "| | tried | passed | by the oracle | refused | failed | entries not run |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, found in by_kind.items():
        counts = totals(found)
        rest = (left or {}).get(kind, 0)
        lines.append(f"| {kind} | {' | '.join(str(n) for n in counts.values())} | {rest} |")
    lines += [
        "",
        f"{len(rows)} overloads, {total['tried']} calls: {total['passed']} passed ({total['oracle']} by the oracle), "
        f"{total['refused']} refused, {total['failed']} failed.",
        "",
        "| overload | tried | passed | by the oracle | refused | failed | the commonest reasons to refuse |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for overload, row in sorted(rows.items()):
        reasons = sorted(row["refused"].items(), key=lambda kv: (-kv[1], kv[0]))[:3]
        text = "; ".join(f"{why} ({n})" for why, n in reasons).replace("|", "\\|")
        counts = (
            row["tried"],
            row["passed"],
            row["oracle"],
            sum(row["refused"].values()),
            len(row["failed"]),
        )
        lines.append(f"| {overload} | {' | '.join(map(str, counts))} | {text} |")
    lines += _failures("Failed", rows)
    if ERRORS in by_kind:
        lines += _failures("Computed where PyTorch raises", by_kind[ERRORS])
        lines += _reasons("Raised by PyTorch, claimed by nothing here", by_kind[ERRORS])
    if ONNX in by_kind:
        lines += _failures("ONNX's node tests that fail", by_kind[ONNX])
        lines += _reasons("ONNX's node tests that are refused", by_kind[ONNX])
    return "\n".join(lines) + "\n"


def _failures(title: str, rows: Mapping[str, Any]) -> list[str]:
    bad = [f for _, row in sorted(rows.items()) for f in sorted(row["failed"], key=lambda f: f["sample"])[:3]]
    if not bad:
        return []
    said = [f"- `{f['call']}` ({f['sample']}): {f['why']}" for f in bad]
    return ["", f"## {title}", "", "The first three of each.", "", *said]


def _reasons(title: str, rows: Mapping[str, Any]) -> list[str]:
    said = [
        f"- {name}: {why} ({count})"
        for name, row in sorted(rows.items())
        for why, count in sorted(row["refused"].items())
    ]
    return ["", f"## {title}", "", *said] if said else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="entries of OpInfo, with commas between them")
    parser.add_argument("--dtypes", default=",".join(KINDS), help="of these, with commas between them")
    parser.add_argument("--overload", default="", help="only calls of these, with commas between them")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", action="store_true", help="go on though specs or code have changed since")
    parser.add_argument(
        "--again", action="store_true", help="run what did not pass once more, and nothing else"
    )
    parser.add_argument("--page", action="store_true", help="write the page of what was run, and run nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    if given.only:
        return show(given)
    import torch

    from .torch_samples import names

    STATE.mkdir(parents=True, exist_ok=True)
    state = fingerprint()
    if given.keep and (first := next(STATE.glob("*.json"), None)):
        state = json.loads(first.read_text())["state"]
    tasks = tasks_of(names(), KINDS)
    asked = [t for t in tasks if t[1] in given.dtypes.split(",")]
    if given.again:
        asked = [t for t in asked if not clean(*t)]
    if not given.page:
        run_all([t for t in asked if given.again or not done(*t, state)], given.jobs, state)
    have = {kind: [t for t in tasks if t[1] == kind and path_of(*t).exists()] for kind in KINDS}
    have = {kind: found for kind, found in have.items() if found}
    by_kind = {
        kind: merged(json.loads(path_of(*t).read_text())["results"] for t in found)
        for kind, found in have.items()
    }
    left = {kind: sum(t[1] == kind for t in tasks) - len(found) for kind, found in have.items()}
    PAGE.write_text(page(by_kind, torch.__version__.partition("+")[0], left, commit()), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    for kind, rows in by_kind.items():
        print(
            f"{kind}: {', '.join(f'{n} {what}' for what, n in totals(rows).items())}; not run: {left[kind]}"
        )
    return 1 if any(row["failed"] for rows in by_kind.values() for row in rows.values()) else 0


def clean(name: str, kind: str) -> bool:
    """Whether an entry was run and all of it passed."""
    try:
        rows = json.loads(path_of(name, kind).read_text())["results"].values()
    except (OSError, ValueError, KeyError):
        return False
    return all(row["passed"] == row["tried"] for row in rows)


def show(given: argparse.Namespace) -> int:
    """Some entries, here, in words."""
    overloads = [o for o in given.overload.split(",") if o]
    bad = 0
    for name in given.only.split(","):
        for dtype in given.dtypes.split(","):
            for overload, row in sorted(results(name, dtype, SAMPLES, CALLS, overloads).items()):
                print(f"{name} {dtype} {overload}: {row['passed']} of {row['tried']} passed")
                for why, count in row["refused"].items():
                    print(f"    refused {count}: {why}")
                for f in row["failed"]:
                    bad += 1
                    print(f"    FAILED {f['call']}\n        {f['why']}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
