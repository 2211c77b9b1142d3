"""Writing files whole or not at all: the one way in which anything of ours that stays gets onto the disk.

    write_text(path, text)                 False when the file already says this
    with replacing(path) as out: …         a binary file that becomes `path` when the block ends well
    with locked(folder): …                 one writer at a time; the folder itself is locked, nothing is left behind

A file goes to a temporary name beside its own, and is renamed; a full disk, Ctrl-C or a crash leaves what was there.
`durable` also waits for the disk, so that a power cut cannot leave the name with nothing in it: wanted for what no
command makes again (evidence, records), not for what is generated.

May import: the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["locked", "replacing", "write_text", "writing"]

_MODE = 0o644


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever the system refuses in this block, a full disk or a temporary name, is said of `path`."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        error.filename2 = None
        raise


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write; it becomes `path` when the block ends well, else nothing of it is left.

    The folder must exist.  Raises OSError, which names `path`.
    """
    with writing(path):
        # The suffix stays the file's own: a writer may ask for one (`numpy.savez` does).
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:80]}.", suffix=path.suffix)
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
                out.flush()
                if durable:
                    os.fsync(out.fileno())
            os.chmod(scratch, _MODE)
            os.replace(scratch, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            raise
        if durable:
            _sync_folder(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True) -> bool:
    """Write a file whole or not at all, its folder too; False when it already says this."""
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        if path.read_bytes().decode() == text:
            return False
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=durable) as out:
        out.write(text.encode())
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time in a folder that exists."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """The rename itself on the disk.  Some file systems cannot sync a folder; the file is whole there all the same."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
