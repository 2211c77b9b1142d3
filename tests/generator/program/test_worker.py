"""The child process: what a capture leaves, and that a model's code can do no more than fail."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opwright.generator.errors import MachineError, OpwrightError
from opwright.generator.program import aten, capture_worker, records
from opwright.generator.program.aten import AtenRow
from opwright.generator.program.capture import capture
from opwright.generator.program.capture_run import CANNOT_WRITE, Captured, run_worker, worker_error
from opwright.generator.program.captured import Capture, CaptureError
from opwright.generator.program.folder import read_folder, read_tensors
from opwright.generator.program.models import Model, TargetError

torch = pytest.importorskip("torch")

SOURCE = """
import os, sys, time
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 6)

    def forward(self, x):
        print("the model's own words")
        return {"y": self.a(x).tanh(), "x": x}

def make():
    torch.manual_seed(3)
    print('{"stage": "forged", "seconds": 1}')
    return Net(), (torch.randn(2, 5, 4),)

def shuffled():
    class Shuffled(torch.nn.Module):
        def forward(self, x):
            unused = torch.randperm(3)
            return torch.poisson(x.abs())
    return Shuffled(), (torch.randn(4, 2),)

def noisy():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            mask = torch.rand(x.shape[0], 1) < 0.5
            return (x + self.scale * torch.randn_like(x) + torch.empty(4).normal_(2, 0.5)) * mask
    return Noisy(), (torch.randn(2, 4),)

def leaves():
    raise SystemExit(7)

def exits():
    os._exit(3)

def exits_well():
    os._exit(0)

def nan():
    class Nan(torch.nn.Module):
        def forward(self, x):
            return torch.log(-x.abs() - 1)
    return Nan(), (torch.randn(3),)

def elsewhere():
    return Net().to("meta"), (torch.randn(2, 5, 4, device="meta"),)

def dies():
    os.abort()

def loops():
    if os.fork() == 0:
        time.sleep(1000)
    while True:
        pass

def secrets():
    found = [k for k in os.environ if "SECRET" in k or "TOKEN" in k]
    found += [os.environ["HOME"]] if os.environ["HOME"] == os.path.expanduser("~root") else []
    raise RuntimeError(f"sees {found}")
"""
ROWS = aten.table_of(
    [
        AtenRow(
            "addmm", "aten.addmm.default", (("self", "c"), ("mat1", "a"), ("mat2", "b")), ("c", "a", "b")
        ),
    ]
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("worker") / "net.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def done(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Captured, list[str]]:
    stages: list[str] = []
    out = tmp_path_factory.mktemp("out") / "net"
    captured = run_worker(f"{source}:make", out, 120, table=ROWS, report=stages.append)
    return captured, stages


def test_what_a_capture_leaves(done: tuple[Captured, list[str]]) -> None:
    captured, stages = done
    assert stages == [
        "load",
        "export",
        "decompose",
        "convert",
        "write",
        "reference",
        "reference",
        "sensitivity",
    ]
    assert set(captured.seconds) == set(stages) and captured.facts["dynamic"] == "batch and sequence"
    assert sorted(p.name for p in captured.path.iterdir()) == [
        "capture.json",
        "inventory.json",
        "program",
        "records",
    ]
    assert read_folder(captured.path / "program").program == captured.program
    assert [(i.op, i.status) for i in captured.inventory.items] == [
        ("addmm", "mapped"),
        ("missing:aten.tanh.default", "missing"),
        ("contiguous", "mapped"),
    ]
    site = captured.inventory.items[1].site
    assert site["file"].endswith("net.py") and "tanh" in site["text"]


def test_records_are_whole(done: tuple[Captured, list[str]]) -> None:
    captured, _ = done
    for k, record in enumerate(captured.facts["records"]):
        path = captured.path / record["path"]
        assert json.loads((path / "record.json").read_text()) == record
        inputs, narrow, wide = (
            read_tensors(path / f"{n}.safetensors") for n in ("inputs", "outputs_f32", "outputs_f64")
        )
        values = read_tensors(path / "values.safetensors")
        assert inputs["x"].shape == ((2, 5, 4) if k == 0 else (3, 2, 4))
        assert narrow["y"].dtype.name == "float32" and wide["y"].dtype.name == "float64"
        assert (
            abs(narrow["y"] - wide["y"]).max() <= record["eager_error"]["y"] * 1.0001 < record["bound"]["y"]
        )
        used = {v for c in captured.program.calls for v in c.out if v}
        assert used <= values.keys()
        out = {b.name: b.value for b in captured.program.outputs}
        assert values[out["y"]].reshape(-1).tolist() == narrow["y"].reshape(-1).tolist()


def test_draws_that_cannot_be_given_are_told_with_their_site(source: Path, tmp_path: Path) -> None:
    facts = run_worker(f"{source}:shuffled", tmp_path / "out", 120, records=0).facts
    (drawn,) = facts["random"]
    line = SOURCE[: SOURCE.index("return torch.poisson")].count("\n") + 1
    assert drawn == {"aten": "aten.poisson.default", "site": f"net.py:{line}"}


def test_numbers_that_a_model_draws_are_inputs_of_its_program(source: Path, tmp_path: Path) -> None:
    captured = run_worker(f"{source}:noisy", tmp_path / "out", 120, records=2, sensitivity=False)
    assert captured.facts["random"] == []
    program = captured.program
    shapes = {b.name: program.values[b.value].shape for b in program.inputs}
    (batch,) = program.symbols
    assert {n: [str(e) for e in s] for n, s in shapes.items()} == {
        "x": [batch, "4"],
        "drawn_0": [batch, "1"],
        "drawn_1": [batch, "4"],
        "drawn_2": ["4"],
    }
    for k in range(2):
        at = captured.path / "records" / str(k)
        given = read_tensors(at / "inputs.safetensors")
        for name, near in (("outputs_f32", 1e-6), ("outputs_f64", 1e-12)):
            got = read_tensors(at / f"{name}.safetensors")["output"].astype("f8")
            x, keep, noise, more = (given[n].astype("f8") for n in ("x", "drawn_0", "drawn_1", "drawn_2"))
            want = (x + 3 * noise + 2 + 0.5 * more) * (keep < 0.5)
            assert abs(got - want).max() <= near * 16
        assert 0 <= given["drawn_0"].min() <= given["drawn_0"].max() < 1


def test_given_weights_are_written_as_given_and_judged_enlarged(done: tuple[Captured, list[str]]) -> None:
    import torch

    captured, _ = done
    torch.manual_seed(3)
    want = torch.nn.Linear(4, 6)
    assert captured.folder.tensors()["a.weight"].tolist() == want.weight.tolist()
    found = captured.facts["sensitivity"]
    assert found["weights"] == "rescaled" and found["detected"] == found["total"] == 4


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        ("leaves", TargetError, "ended the process with status 7"),
        ("exits_well", CaptureError, "the code of .* ended the process with status 0"),
        ("nan", CaptureError, "PyTorch itself gives nan in `output`"),
        ("dies", CaptureError, "was killed by SIGABRT"),
        ("secrets", TargetError, r"sees \[\]"),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)  # each is a process that imports torch
            for row in (
                ("exits", CaptureError, "ended the process with status 3"),
                ("elsewhere", TargetError, "returned tensors on meta"),
                ("nothing", TargetError, "has no function nothing"),
                ("loops", CaptureError, "was not captured within 8 s"),
            )
        ),
    ],
)
def test_code_that_does_not_return_a_model(
    function: str,
    error: type[OpwrightError],
    says: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SECRET", "x")
    monkeypatch.setenv("HF_TOKEN", "x")
    start = time.monotonic()
    with pytest.raises(error, match=says) as e:
        run_worker(f"{source}:{function}", tmp_path / "out", 8 if function == "loops" else 60, table={})
    assert time.monotonic() - start < 70 and "Traceback" not in e.value.render()
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_a_refused_form_starts_no_process(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is a pickle"):
        run_worker(str(tmp_path / "model.pt"), tmp_path / "out", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_capture_leaves_the_last_one(source: Path, tmp_path: Path) -> None:
    old = tmp_path / "out"
    old.mkdir()
    (old / "kept.txt").write_text("kept")
    with pytest.raises(TargetError):
        run_worker(f"{source}:nothing", old, 60, table={})
    assert (old / "kept.txt").read_text() == "kept" and os.listdir(tmp_path) == ["out"]


def test_a_sandbox_goes_in_front(source: Path, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def wrap(command: list[str]) -> list[str]:
        seen.append(command)
        return ["sh", "-c", "exit 9"]

    with pytest.raises(CaptureError, match="status 9"):
        run_worker(f"{source}:make", tmp_path / "out", 60, wrap=wrap)
    assert seen[0][1:3] == ["-m", "opwright.generator.program.capture_worker"]


def test_a_full_disk_is_the_machines_fault(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(capture_worker, "write_folder", full)
    monkeypatch.setattr(capture_worker.os, "dup2", lambda *_: None)  # this process keeps its stdout
    out = tmp_path / "out"
    assert capture_worker.main([f"{source}:make", str(out)]) == 3
    error = json.loads((out / "error.json").read_text())
    assert error["error"] == "MachineError" and "no space left" in error["message"]
    # Where not even that can be written, the status tells.
    found = worker_error("m", tmp_path / "nothing", CANNOT_WRITE, tmp_path / "log")
    assert isinstance(found, MachineError) and "the disk may be full" in str(found.hint)


def test_a_text_alone_is_captured_where_the_image_with_it_is_not() -> None:
    model = Model("m", "test:m", None, (), {"input_ids": torch.ones(1, 2), "pixel_values": torch.ones(1)})
    model = replace(model, plain={"input_ids": torch.ones(1, 2)})
    program = SimpleNamespace(calls=[])

    def captured_of(m: Model) -> Any:
        if "pixel_values" in m.kwargs:
            raise CaptureError("it looks at the image")
        return Capture(program, {}, {}, {}, None, "static")  # type: ignore[arg-type]

    got, captured = capture_worker._as_far_as_it_goes(model, captured_of)
    assert list(got.kwargs) == ["input_ids"]
    assert captured.notes == ("captured without pixel_values: it looks at the image",)
    assert capture_worker._as_far_as_it_goes(got, captured_of)[1].notes == ()


def test_a_choice_by_what_a_mask_holds_falls_as_the_example_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """longformer: whether anything is attended to from everywhere decides what is computed."""

    class Choosing(torch.nn.Module):  # type: ignore[misc]
        config = None

        def forward(self, x: Any, attention_mask: Any) -> Any:
            anywhere = (attention_mask > 1).any().item()
            return x.mean(1) if anywhere else (x * attention_mask).sum(1)

    inputs = {"x": torch.randn(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.int64)}
    model = Model("m", "test:m", Choosing(), (), inputs)

    def captured_of(m: Model) -> Capture:
        return capture(m.module, (), m.kwargs, {}, name="m", source="m", fixed=m.fixed, assuming=m.assuming)

    monkeypatch.setattr(capture_worker, "missing", lambda captured: set())  # there is no table
    got, captured = capture_worker._as_far_as_it_goes(model, captured_of)
    assert [b.name for b in captured.program.inputs] == ["x", "attention_mask"] and got.assuming
    (note,) = captured.notes
    assert "n1 == 0" in note and "test_worker.py:" in note and ".any().item()" in note
    for value, refused in ((1, False), (0, False), (2, True)):
        mask = torch.full((2, 6), value)
        assert bool(records._refused(captured, {**inputs, "attention_mask": mask})) == refused


def test_a_record_that_is_too_large_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Outer(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return (x.unsqueeze(1) * x).sum(1)

    x = torch.randn(2, 600)
    captured = capture(Outer(), (x,), {}, {}, name="m", source="m")
    used = set(captured.program.values)
    sizes = {s.name: x.shape[s.axis] for s in captured.program.symbols.values()}
    capture_worker._fits(captured.program, used, sizes, tmp_path)
    monkeypatch.setattr(capture_worker, "RECORD_BYTES", 1000)
    with pytest.raises(CaptureError, match=r"GiB.*largest value is f32") as e:
        capture_worker._fits(captured.program, used, sizes, tmp_path)
    assert "smaller" in str(e.value.hint)


def test_what_takes_long_is_given_up() -> None:
    def endless() -> None:
        with capture_worker.within(0.05):
            while True:
                with suppress(Exception):
                    sum(range(1000))

    with pytest.raises(CaptureError, match=r"longer than 0\.05 s"):
        endless()
    with capture_worker.within(60.0):
        pass


def test_masks_are_held_where_a_model_counts_in_them() -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc]
        config = None

        def forward(self, x: Any, x_mask: Any) -> Any:
            return torch.cat([row[: int(mask.sum())] for row, mask in zip(x, x_mask, strict=True)]) * 2

    inputs = {"x": torch.randn(2, 3), "x_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    model = Model("m", "test:m", Counting(), (), inputs)
    program = SimpleNamespace(calls=[])

    def captured_of(m: Model) -> Any:
        if "x_mask" in m.kwargs:
            raise CaptureError("a data-dependent extent")
        return Capture(program, {}, {}, {}, None, "static")  # type: ignore[arg-type]

    got, captured = capture_worker._as_far_as_it_goes(model, captured_of)
    assert list(got.kwargs) == ["x"] and got.fixed == {"x"} and got.meta["given"]["x_mask"][1] == [1, 1, 0]
    assert captured.notes == ("captured for the x_mask of the example: a data-dependent extent",)
    assert torch.equal(got.module(**got.kwargs), Counting()(**inputs))
    with pytest.raises(CaptureError):
        capture_worker._as_far_as_it_goes(replace(model, kwargs={"x_mask": inputs["x_mask"]}), captured_of)
