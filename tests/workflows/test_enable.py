"""`enable`, `inventory`, `run`, `report`: a small module to parity without torch; what goes wrong is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opwright.generator.program.folder import read_tensors, write_tensors
from opwright.workflows import parity
from opwright.workflows.records import load

pytest.importorskip("torch")
pytestmark = pytest.mark.judge

MODEL = """
import torch

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(6, 6, generator=generator))
        self.g = torch.nn.Parameter(torch.randn(6, generator=generator))

    def forward(self, x):
        y = torch.softmax(x @ self.w, -1)
        return y * torch.sigmoid(x * self.g)

def make_model():
    torch.manual_seed(0)
    return Gate(), (torch.randn(3, 6),)

def scaled():
    class Scaled(torch.nn.Module):
        def forward(self, x):
            scale = (x.abs().sum(-1, keepdim=True) * 2).exp() + 1
            return torch.nn.functional.layer_norm(x * scale, (6,), eps=0.0)
    torch.manual_seed(0)
    return Scaled(), (torch.rand(3, 6) * 0.1,)

def raises():
    raise ValueError("no such checkpoint")

def exits():
    import sys
    sys.exit(7)

def leaves():
    import os
    os._exit(0)

class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1

def branches():
    return Branch(), (torch.randn(3, 6),)

def sleeps():
    import time
    time.sleep(1000)

def spectrum():
    class Spectrum(torch.nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x @ x.mT)
    return Spectrum(), (torch.randn(3, 8),)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workbench with a model, as the working directory of the whole module."""
    root = tmp_path_factory.mktemp("enable")
    (root / "opwright.toml").write_text('schema = 1\n[paths]\nspecs = ["specs"]\n')
    (root / "specs").mkdir()
    (root / "gated.py").write_text(MODEL)
    before = Path.cwd()
    os.chdir(root)
    yield root
    os.chdir(before)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    line = [sys.executable, "-m", "opwright.workflows.start", *words]
    return subprocess.run(line, capture_output=True, text=True, env=env, check=False)


@pytest.fixture(scope="module")
def enabled(place: Path) -> dict[str, Any]:
    """What `enable --json` says of the model; everything is kept in `kept`."""
    ran = command("enable", "gated.py:make_model", "--json", "--keep", "kept")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    data: dict[str, Any] = json.loads(ran.stdout)
    return data


def test_the_face_says_level_operators_error_sensitivity_seconds_program(enabled: dict[str, Any]) -> None:
    assert enabled["schema"] == 1
    assert (enabled["architecture"], enabled["target"], enabled["dtype"], enabled["level"]) == (
        "gated",
        "cpu",
        "f32",
        "L5",
    )
    assert enabled["levels"] == {
        "L0": True,
        "L1": True,
        "L2": True,
        "L3": True,
        "L4": None,
        "L5": True,
        "L6": None,
    }
    assert set(enabled["reasons"]) == {"L4", "L6"}
    assert enabled["reasons"]["L4"] == "it does not apply: the model writes no text"
    assert enabled["training"]["gradients"] == 4
    for part in ("error", "losses"):
        assert 0 < enabled["training"][part]["max"] <= enabled["training"][part]["bound"]
    assert 0 < enabled["half"]["max"] <= enabled["half"]["bound"]
    assert enabled["operators"]["names"] == ["matmul", "mul", "sigmoid", "softmax"]
    assert enabled["operators"]["needed"] == 4 and enabled["operators"]["missing"] == []
    assert 0 < enabled["error"]["max"] <= enabled["error"]["bound"]
    assert enabled["sensitivity"]["detected"] >= 0.95 * enabled["sensitivity"]["total"] > 0
    assert list(enabled["seconds"]) == [
        "captured",
        "inventoried",
        "supplied",
        "validated",
        "composed",
        "parity",
        "half",
        "decoding",
        "training",
    ]
    assert Path(enabled["program"]).is_dir()


def test_the_attempt_is_recorded_once_and_reported(enabled: dict[str, Any], ow: Any, place: Path) -> None:
    (attempt,) = load(place / "evidence" / "models", "gated")
    assert sum(attempt.kernels.values()) > 0
    assert attempt.level == "L5" and attempt.hashes.keys() == {"matmul", "mul", "sigmoid", "softmax"}
    rows = {r["architecture"]: r for r in ow("report", "--json").json["architectures"]}
    row = rows["gated"]
    assert (row["level"], row["state"]) == ("L5", "claimed")
    assert set(row) >= {"architecture", "target", "level", "levels", "seconds", "supplied", "state"}
    assert "| gated | cpu | f32 | claimed | yes | yes | yes |" in ow("report", "--markdown").out


def test_the_program_runs_where_torch_cannot_be_imported(enabled: dict[str, Any], place: Path) -> None:
    x = np.random.default_rng(1).standard_normal((5, 6), np.float32)
    np.savez(place / "in.npz", x=x)
    blocked = (
        "import sys; from opwright.workflows import parity_child, cli; parity_child.block(); "
        f"sys.exit(cli.main(['run', {enabled['program']!r}, '--inputs', 'in.npz', '--out', 'out.npz']))"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    ran = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    weights = read_tensors(Path(enabled["program"]) / "weights.safetensors")
    logits = x.astype(np.float64) @ weights["w"]
    soft = np.exp(logits - logits.max(-1, keepdims=True))
    want = soft / soft.sum(-1, keepdims=True) / (1 + np.exp(-x * weights["g"].astype(np.float64)))
    (got,) = np.load(place / "out.npz").values()
    assert got.shape == (5, 6) and np.abs(got - want).max() < 1e-6


def judged_again(
    enabled: dict[str, Any], place: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> parity.Parity:
    """Parity of a copy of the program that was spoilt."""
    from opwright.generator.program.folder import read_folder
    from opwright.workflows.bridge import Bridge
    from opwright.workflows.workbench import Workbench

    folder = tmp_path / "program"
    shutil.copytree(enabled["program"], folder)
    spoil(folder)
    records = place / "kept" / "capture" / "records"
    parity.run_child(folder, records, tmp_path / "ran")
    bridge = Bridge(Workbench.here(place))
    return parity.judge_parity(bridge, read_folder(folder).program, folder, records, tmp_path / "ran")


def test_an_honest_program_holds_on_every_call_and_at_two_shapes(
    enabled: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    found = judged_again(enabled, place, tmp_path, lambda folder: None)
    assert found.held and found.records == 2 and len(found.calls) >= 6


def test_a_weight_off_by_a_percent_is_seen_end_to_end(
    enabled: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    def spoil(folder: Path) -> None:
        have = {k: np.array(v) for k, v in read_tensors(folder / "weights.safetensors").items()}
        have["g"] *= np.float32(1.01)
        write_tensors(folder / "weights.safetensors", have)

    found = judged_again(enabled, place, tmp_path, spoil)
    assert not found.bad_calls and found.ratio > 1 and not found.held and "error" in found.reason


def test_a_call_that_computes_something_else_is_named_with_its_site(
    enabled: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    def spoil(folder: Path) -> None:
        path = folder / "program.json"
        text = path.read_text()
        assert '"axis": -1' in text
        path.write_text(text.replace('"axis": -1', '"axis": 0'))

    found = judged_again(enabled, place, tmp_path, spoil)
    assert not found.held and found.ratio > 1


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("gated.py:raises", 2, "no such checkpoint"),
        ("gated.py:branches", 2, "if x.sum() > 0:"),
        *(
            pytest.param(
                *row, marks=pytest.mark.nightly
            )  # by day tests/generator/program/test_worker.py has its like
            for row in (
                ("gated.py:exits", 2, "ended the process with status 7"),
                ("gated.py:leaves", 2, "ended the process with status 0"),
                ("gated.py:nothing", 2, "has no function nothing"),
            )
        ),
        ("nowhere.py:make", 2, "there is no file nowhere.py"),
        ("weights.pth", 2, "is a pickle"),
        ("lama", 2, "did you mean `llama`?"),
    ],
)
def test_a_target_that_is_none_is_one_clear_error(place: Path, target: str, code: int, words: str) -> None:
    ran = command("enable", target)
    assert ran.returncode == code, ran.stderr
    assert words in ran.stderr and "Traceback" not in ran.stderr


def test_a_model_that_never_returns_ends_at_the_limit(place: Path) -> None:
    ran = command("enable", "gated.py:sleeps", "--timeout", "3", "--json")
    assert ran.returncode == 2 and "was not captured within 3 s" in ran.stderr
    data = json.loads(ran.stdout)
    assert data["levels"]["L0"] is False and data["failed"].startswith("captured: ")


def test_an_operator_that_nobody_supplies_is_listed_with_site_and_why(place: Path) -> None:
    ran = command("inventory", "gated.py:spectrum", "--json")
    data = json.loads(ran.stdout)
    assert ran.returncode == 1
    (missing,) = [m for m in data["missing"] if "airy" in m["op"]]
    assert missing["site"].startswith("gated.py:") and "no operator claims" in missing["why"]
    ran = command("enable", "gated.py:spectrum", "--json")
    data = json.loads(ran.stdout)
    assert ran.returncode == 1 and data["level"] == "L0" and data["levels"]["L1"] is False
    assert data["operators"]["missing"] and "Traceback" not in ran.stderr
    (attempt,) = load(place / "evidence" / "models", "spectrum")
    assert attempt.failed.startswith("supplied: ")


def test_inventory_lists_what_is_there(enabled: dict[str, Any], place: Path) -> None:
    data = json.loads(command("inventory", "gated.py:make_model", "--json").stdout)
    assert {r["op"] for r in data["operators"]} == {"matmul", "mul", "sigmoid", "softmax"}
    assert all(r["sites"] and r["state"] == "accepted" for r in data["operators"])


def cut(folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def other_shapes(folder: Path) -> None:
    write_tensors(
        folder / "weights.safetensors", {"w": np.zeros((2, 2), np.float32), "g": np.zeros(6, np.float32)}
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut, "is cut off"),
        (other_shapes, "these are weights of another model"),
        (lambda f: (f / "program.json").write_text("{"), "not JSON"),
        (lambda f: (f / "program.json").unlink(), "is not a program folder"),
    ],
)
def test_a_folder_that_is_not_whole_is_one_clear_error(
    enabled: dict[str, Any], ow: Any, tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    shutil.copytree(enabled["program"], tmp_path / "program")
    spoil(tmp_path / "program")
    ran = ow("run", str(tmp_path / "program"))
    assert ran.code == 2 and words in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--size", "s9=4"), "no symbol `s9`"),
        (("--size", "s0"), "not SYMBOL=NUMBER"),
        (("--size", "s0=99999999999"), "this machine has"),
        (("--size", f"s0={10**30}"), "this machine has"),
        (("--inputs", "none.npz"), "there is no file"),
        (("--inputs", "gated.py"), "cannot be read"),
        (("--out", "out.txt"), "neither .npz nor .safetensors"),
    ],
)
def test_inputs_that_do_not_fit_are_said(
    enabled: dict[str, Any], ow: Any, words: tuple[str, ...], said: str
) -> None:
    ran = ow("run", enabled["program"], *words)
    assert ran.code == 2 and said in ran.err and "Traceback" not in ran.err


def test_inputs_that_do_not_belong_together_are_all_named(
    enabled: dict[str, Any], ow: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "odd.npz", x=np.zeros((3, 5), np.float32))
    ran = ow("run", enabled["program"], "--inputs", str(tmp_path / "odd.npz"))
    assert ran.code == 2 and "the inputs were x float32[3, 5]" in ran.err and "Traceback" not in ran.err


def test_an_inner_value_that_is_observed_is_compared_too(tmp_path: Path) -> None:
    record, ran = tmp_path / "record", tmp_path / "ran"
    y = {"y": np.array([1.0, 2.0], np.float32)}
    inner = {"v3": np.array([0.5, -4.0], np.float32)}
    for folder in (record, ran):
        folder.mkdir()
    write_tensors(record / "outputs_f64.safetensors", {"y": y["y"].astype(np.float64)})
    write_tensors(record / "outputs_f32.safetensors", y)
    write_tensors(ran / "outputs.safetensors", y)
    assert [r[0] for r in parity.end_to_end(record, ran)] == ["y"]
    write_tensors(record / "inner_f64.safetensors", {"v3": inner["v3"].astype(np.float64)})
    write_tensors(record / "values.safetensors", inner)
    for off, held in ((0.0, True), (1e-4, False)):
        write_tensors(ran / "inner.safetensors", {"v3": inner["v3"] + np.float32(off)})
        rows = parity.end_to_end(record, ran)
        assert [r[0] for r in rows] == ["y", "inner value v3"]
        assert (rows[1][1] <= 1) is held
    write_tensors(ran / "inner.safetensors", {})
    assert parity.end_to_end(record, ran)[1][1] == np.inf


def test_a_model_whose_output_tells_of_little_is_compared_inside(place: Path) -> None:
    """A scale goes into a norm: nobody sees an error of it in the output."""
    found = json.loads(command("enable", "gated.py:scaled", "--no-record", "--json").stdout)
    seen = found["sensitivity"]
    assert found["levels"]["L2"] is True and seen["by_outputs"] < 0.95 * seen["total"] <= seen["detected"]
    assert seen["observed"] > 0
