"""`validate` and `accept`: what passes is recorded and served, what fails changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from opwright import toolchain
from opwright.generator.bound import KernelText
from opwright.validators import evidence
from opwright.workflows import accept, bridge
from opwright.workflows.accept import judge_all
from opwright.workflows.console import Progress
from opwright.workflows.workbench import Workbench

pytestmark = pytest.mark.judge


def child(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, in the workbench."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=cwd, check=False
    )


SERVE = "import opwright as ow, numpy as np; print(ow.ops.scale(np.arange(3.0, dtype='f'), by=3.0).numpy().tolist())"


def test_what_was_accepted_is_served_until_its_meaning_changes(ow: Any, project: Path) -> None:
    missing = child(SERVE, project)
    assert missing.returncode == 1 and "scale" in missing.stderr

    ran = ow("accept", "scale", "--json")
    assert ran.code == 0, ran.out + ran.err
    (verdict,) = ran.json["ops"]
    assert verdict["passed"] and all(g["cases"] >= g["minimum"] for g in verdict["gates"])
    found = evidence.load(project / "evidence" / "ops", "scale")
    assert found is not None and found.source == "author only"
    (row,) = ow("ops", "scale", "--json").json["ops"]
    assert row["state"] == "fresh" and row["targets"]["cpu"]["gates"]["numerics"]["cases"] > 10

    served = child(SERVE, project)
    assert served.stdout == "[0.0, 3.0, 6.0]\n", served.stderr
    assert ow("accept", "--all", "--stale").out == "nothing is stale\n"

    spec = project / "specs" / "tiny" / "scale.yaml"
    spec.write_text(spec.read_text().replace("default: 2.0", "default: 4.0"))
    (row,) = ow("ops", "scale", "--json").json["ops"]
    assert (row["state"], row["targets"]) == ("stale", {})
    assert child(SERVE, project).returncode == 1, "nothing enters the runtime that the judge has not proven"


class Wrong(bridge.Emitted):
    """Kernels that add where the spec multiplies."""

    def forward(self, keys: Sequence[Any]) -> list[KernelText]:
        return [replace(t, source=t.source.replace("] * (", "] + (")) for t in super().forward(keys)]


def test_a_wrong_kernel_fails_with_the_command_that_repeats_it_and_no_evidence(
    ow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("opwright.workflows.accept.Emitted", Wrong)
        ran = ow("accept", "scale")
        assert ran.code == 1
        assert "✗ numerics" in ran.out and "opwright validate scale --case '" in ran.out
        assert not (project / "evidence").exists()

        repeat = next(line for line in ran.out.splitlines() if "opwright validate scale --case" in line)
        case, seed = repeat.split("--case '")[1].split("' --seed ")
        assert ow("validate", "scale", "--gate", "numerics", "--case", case, "--seed", seed.strip()).code == 1
    assert ow("validate", "scale", "--gate", "numerics", "--case", case, "--seed", seed.strip()).code == 0


def test_two_accepts_at_once_leave_one_whole_file(project: Path) -> None:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    command = [sys.executable, "-m", "opwright.workflows.start", "accept", "scale"]
    both = [
        subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in "ab"
    ]
    assert [p.wait(300) for p in both] == [0, 0]
    for p in both:
        p.communicate()
    assert evidence.load(project / "evidence" / "ops", "scale") is not None
    assert sorted(os.listdir(project / "evidence" / "ops")) == ["scale.yaml"]


def test_without_a_compiler_it_says_what_lacks(
    ow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPWRIGHT_CXX", "no-such-compiler")
    ran = ow("accept", "scale")
    assert ran.code == 3 and "no-such-compiler" in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to judge"),
        (("scale", "--all"), "two answers"),
        (("scale", "--gate", "numrics"), "no gate `numrics`"),
        (("scale", "softmax", "--case", "x"), "--case belongs to one operator"),
        (("scale", "--dialect", "cpu-mmx"), "unknown dialect"),
        (("scale", "--case", "nope/f32"), "error:"),
        (("nope",), "no operator `nope`"),
    ],
)
def test_a_wrong_request_is_said(ow: Any, project: Path, words: tuple[str, ...], said: str) -> None:
    ran = ow("validate", *words)
    assert ran.code == 2 and said in ran.err, ran


def test_workers_that_are_stopped_clean_up_behind_themselves(tmp_path: Path) -> None:
    """Ctrl-C ends a pool; what its workers have on the disk goes with them."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), accept._quiet)
    pool.submit(
        exec,
        "import tempfile, time, pathlib\n"
        f"kept = globals().setdefault('kept', tempfile.TemporaryDirectory(dir={str(tmp_path)!r}))\n"
        "time.sleep(60)\n",
        {},
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    accept._end(pool)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_in_a_build_is_one_line_and_leaves_nothing(
    project: Path, fresh_cache: Path, tmp_path: Path
) -> None:
    building, compiler = tmp_path / "building", tmp_path / "slow-c++"
    real = " ".join(toolchain.find_compiler().command)
    compiler.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version|-dump*) exec {real} "$@";; esac\n'
        f"touch {building}; exec sleep 60\n"
    )
    compiler.chmod(0o755)
    env = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(p for p in sys.path if p),
        OPWRIGHT_CXX=str(compiler),
    )
    other = project / "specs" / "tiny" / "shift.yaml"
    other.write_text(
        (project / "specs" / "tiny" / "scale.yaml").read_text().replace("op: scale", "op: shift")
    )
    with subprocess.Popen(
        [sys.executable, "-m", "opwright.workflows.start", "accept", "--all"],
        cwd=project,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background job ignores Ctrl-C, and hands that down
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:
        deadline = time.monotonic() + 120
        while not building.exists() and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.05)
        assert building.exists()
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=50)  # less than the compiler sleeps
    assert run.returncode == 130
    assert [line for line in err.splitlines() if line and not line.startswith("…")] == [
        "interrupted; nothing was left half-written"
    ]
    assert out == "" and not (project / "evidence").exists()
    left = [p for p in fresh_cache.rglob("*") if p.is_file()] if fresh_cache.exists() else []
    assert [p for p in left if p.suffix not in (".so", ".o", ".json")] == []


def test_nothing_to_judge_is_no_fault(project: Path) -> None:
    assert list(judge_all(Workbench.here(project), [], 2, Progress())) == []


def test_a_text_is_printed_once_for_what_it_is_made_of(
    project: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench.here(project)
    spec = bench.one("scale")
    first = accept.text_now(bench, spec, "cpu-portable", "quick")
    printed: list[str] = []
    monkeypatch.setattr(
        accept, "_text_now", lambda b, s, d, t, only: printed.append(f"{s.op} {d} {t}") or "other"
    )
    assert first and accept.text_now(bench, spec, "cpu-portable", "quick") == first and not printed
    for other in (
        (replace(spec, lower={"cpu": {"kind": "rows"}}), "cpu-portable", "quick"),
        (spec, "cpu-avx2", "quick"),
        (spec, "cpu-portable", "full"),
    ):
        assert accept.text_now(bench, *other) == "other"
    assert len(printed) == 3
    monkeypatch.setattr(accept, "_sources", lambda: "another generator")
    assert accept.text_now(bench, spec, "cpu-portable", "quick") == "other"
