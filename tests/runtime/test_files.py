"""A file is written whole or not at all: a full disk, an error or Ctrl-C leaves what was there, and nothing else."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opwright import files
from opwright.files import replacing, write_text, writing


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_written_once_with_its_folder_and_for_all_to_read(tmp_path):
    path = tmp_path / "a" / "b" / "note.txt"
    assert write_text(path, "é\n") and not write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(path.parent) == ["note.txt"]


def test_line_ends_are_compared_as_bytes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\r\n")
    assert write_text(path, "x\n")
    assert path.read_bytes() == b"x\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError("no")])
def test_what_stops_the_writer_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")

    def stopped() -> None:
        with replacing(path) as out:
            out.write(b"half")
            raise error

    with pytest.raises(type(error)):
        stopped()
    assert path.read_bytes() == b"before" and names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_a_disk_that_fills_up_at_the_last_step_is_said_of_the_file_that_was_wanted(
    tmp_path, monkeypatch, call
):
    path = tmp_path / "a.txt"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/temporary/name")

    monkeypatch.setattr(files.os, call, full)
    with pytest.raises(OSError, match="No space") as caught:
        write_text(path, "after")
    assert caught.value.filename == str(path)
    assert path.read_text() == "before" and names(tmp_path) == ["a.txt"]


def test_a_real_limit_on_the_size_of_files_leaves_nothing_half_written(tmp_path):
    """The system itself refuses the bytes, as a full disk does: in a child, for the limit is the process's."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    program = (
        "import sys; from pathlib import Path; from opwright.files import write_text\n"
        "try: write_text(Path(sys.argv[1]), 'x' * 100000)\n"
        "except OSError as e: print(e.filename)"
    )
    path = tmp_path / "a.txt"
    path.write_text("before")
    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
    )
    assert ran.stdout == f"{path}\n"
    assert path.read_text() == "before" and names(tmp_path) == ["a.txt"]


def test_what_nothing_makes_again_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    """The file is synced, then renamed, then the folder is: a power cut leaves the old file or the new one."""
    seen: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(files.os, "replace", lambda a, b: (seen.append("rename"), replace(a, b)))
    write_text(tmp_path / "evidence.yaml", "x")
    assert seen == ["file", "rename", "folder"]
    seen.clear()
    write_text(tmp_path / "generated.cpp", "x", durable=False)
    assert seen == ["rename"]


def test_what_the_system_refuses_is_said_of_the_file_that_was_wanted(tmp_path):
    with pytest.raises(OSError, match="No space") as caught, writing(tmp_path / "wanted"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tmp_path / ".scratch")
    assert caught.value.filename == str(tmp_path / "wanted")
