"""Program folders: written whole, read back the same, refused when they are not whole."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opwright.generator.errors import OpwrightError
from opwright.generator.program import folder
from opwright.generator.program.folder import (
    FolderError,
    read_folder,
    read_tensors,
    write_folder,
    write_tensors,
)
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import Binding, Call, Program, Value
from opwright.generator.program.views import contiguous_strides
from opwright.generator.types import DType

of = IntExpr.of
HASH = "0123456789abcdef"


def tensor(id: str, *shape: int) -> Value:
    extents = tuple(of(n) for n in shape)
    return Value(id, DType.F32, extents, contiguous_strides(extents))


def program() -> Program:
    values = [
        tensor("v1", 2, 3),
        tensor("w1", 3),
        tensor("w2", 3),
        tensor("c1"),
        tensor("v2", 2, 3),
        tensor("v3", 2, 3),
    ]
    nodes = (
        Call("mul_0", "mul", ("v1", "w1"), {}, ("v2",)),
        Call("group_0", f"group:{HASH}", ("v2", "w2", "c1"), {}, ("v3",)),
    )
    return Program(
        "p",
        "test",
        DType.F32,
        {v.id: v for v in values},
        (Binding("x", "v1"),),
        (Binding("y", "v3"),),
        nodes,
        weights=(Binding("w", "w1"), Binding("twin", "w2", "w")),
        constants=(Binding("k", "c1"),),
    )


TENSORS = {"w": np.arange(3, dtype=np.float32), "k": np.array(2.5, dtype=np.float32), "unused": np.zeros(9)}
GROUPS = {HASH: f"op: group:{HASH}\n", "ffffffffffffffff": "never called"}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    write_folder(path, program(), TENSORS, GROUPS)
    return path


def test_round_trip(whole: Path) -> None:
    got = read_folder(whole)
    assert got.program == program() and got.groups == {HASH: GROUPS[HASH]}
    assert sorted(p.name for p in whole.rglob("*") if p.is_file()) == [
        f"{HASH}.yaml",
        "program.json",
        "weights.safetensors",
    ]
    tensors = got.tensors()
    assert np.array_equal(tensors["w"], TENSORS["w"]) and tensors["k"].shape == ()
    assert tensors["twin"] is tensors["w"] and "unused" not in tensors


def test_the_same_program_gives_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "again", program(), dict(reversed(TENSORS.items())), GROUPS)
    for name in ("program.json", "weights.safetensors"):
        assert (whole / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_writing_again_replaces_the_whole_folder(whole: Path) -> None:
    (whole / "stale.txt").write_text("old")
    write_folder(whole, program(), TENSORS, GROUPS)
    assert not (whole / "stale.txt").exists()
    assert [p.name for p in whole.parent.iterdir()] == ["program"]


@pytest.mark.parametrize(
    ("tensors", "groups", "says"),
    [
        ({"w": TENSORS["w"]}, GROUPS, "no tensor for k"),
        (TENSORS, {}, "no spec for the groups"),
        ({**TENSORS, "w": np.zeros(4, np.float32)}, GROUPS, r"w is f32\[4\] in the weights and f32\[3\]"),
        ({**TENSORS, "w": np.zeros(3)}, GROUPS, r"w is f64\[3\] in the weights"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_left(
    tmp_path: Path, tensors: dict[str, np.ndarray], groups: dict[str, str], says: str
) -> None:
    path = tmp_path / "program"
    with pytest.raises(FolderError, match=says):
        write_folder(path, program(), tensors, groups)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_folder(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_tensors", full)
    with pytest.raises(OSError, match="No space"):
        write_folder(whole, program(), TENSORS, GROUPS)
    assert read_folder(whole).program == program()
    assert [p.name for p in whole.parent.iterdir()] == ["program"]


def test_a_group_must_be_a_hash(tmp_path: Path) -> None:
    p = program()
    bad = replace(p, nodes=(p.nodes[0], replace(p.calls[1], op="group:../../etc/passwd")))
    with pytest.raises(FolderError, match="not `group:` and a hash"):
        write_folder(tmp_path / "p", bad, TENSORS, GROUPS)


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        (path / name).write_bytes(change((path / name).read_bytes()))

    return do


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (rewrite("weights.safetensors", lambda b: b[:-4]), "is cut off"),
        (rewrite("weights.safetensors", lambda b: b[:20]), "is cut off"),
        (rewrite("weights.safetensors", lambda b: b""), "is cut off"),
        (
            rewrite("weights.safetensors", lambda b: struct.pack("<Q", 2**60) + b[8:]),
            "not a safetensors file",
        ),
        (
            rewrite("weights.safetensors", lambda b: b.replace(b'"shape":[3]', b'"shape":[4]')),
            "has 12 bytes for 4 elements",
        ),
        (
            rewrite("weights.safetensors", lambda b: b.replace(b'"shape":[3]', b'"shape":[x]')),
            "broken header",
        ),
        (rewrite("weights.safetensors", lambda b: b.replace(b'"w":', b'"v":')), "holds no w"),
        (rewrite("weights.safetensors", lambda b: b.replace(b'"F32"', b'"I32"')), r"w is i32\[3\]|k is i32"),
        (rewrite("program.json", lambda b: b[: len(b) // 2]), "not JSON"),
        (rewrite("program.json", lambda b: b"\xff\xfe"), "not UTF-8"),
        (rewrite("program.json", lambda b: b.replace(b'"v2"', b'"v1"', 1)), "not among the values"),
        (lambda path: (path / "groups" / f"{HASH}.yaml").unlink(), "cannot be read"),
        (lambda path: (path / "program.json").unlink(), "not a program folder"),
        (lambda path: (path / "weights.safetensors").unlink(), "cannot be read"),
    ],
)
def test_damage_is_one_clear_error(whole: Path, damage: Callable[[Path], None], says: str) -> None:
    damage(whole)
    with pytest.raises(OpwrightError, match=says) as caught:
        read_folder(whole)
    if "weights of another" not in str(caught.value.hint):
        assert str(whole) in str(caught.value)


def test_a_full_disk_is_said_of_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "chmod", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_tensors(tmp_path / "w.safetensors", TENSORS)
    assert caught.value.filename == str(tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", list(DType))
def test_every_dtype_in_safetensors(dtype: DType, tmp_path: Path) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(folder.numpy_dtype(dtype))
    write_tensors(tmp_path / "x.safetensors", {"x": x, "empty": x[:0], "one": x[0, 0]})
    got = read_tensors(tmp_path / "x.safetensors")
    assert got["x"].dtype == x.dtype and np.array_equal(got["x"], x)
    assert got["empty"].shape == (0, 3) and got["one"].shape == ()
    infos, _ = folder.tensor_infos(tmp_path / "x.safetensors")
    assert infos["x"].dtype is dtype


def test_the_library_reads_our_files_and_we_its(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1, 2], dtype=np.int8),
        "c": np.zeros((0, 2)),
    }
    write_tensors(tmp_path / "ours.safetensors", tensors, {"by": "test"})
    got = safetensors.load_file(tmp_path / "ours.safetensors")
    assert all(np.array_equal(got[k], v) for k, v in tensors.items())
    safetensors.save_file(tensors, tmp_path / "theirs.safetensors")
    back = read_tensors(tmp_path / "theirs.safetensors")
    assert all(np.array_equal(back[k], v) for k, v in tensors.items())


def test_torch_tensors_of_any_strides(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6).reshape(2, 3)
    write_tensors(
        tmp_path / "x.safetensors", {"t": x.t(), "h": x.to(torch.bfloat16), "s": torch.tensor(True)}
    )
    got = read_tensors(tmp_path / "x.safetensors")
    assert got["t"].tolist() == x.t().tolist() and got["h"].dtype.name == "bfloat16" and got["s"].shape == ()


def test_reading_needs_no_torch(whole: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['safetensors'] = None\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from opwright.generator.program.folder import read_folder\n"
        f"print(sorted(read_folder({str(whole)!r}).tensors()))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert json.loads(out.stdout.replace("'", '"')) == ["k", "twin", "w"]
