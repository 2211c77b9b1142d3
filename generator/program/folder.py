"""A program folder: `program.json`, `weights.safetensors`, `groups/`; written whole or not at all, checked when read.

    write_folder(path, program, tensors, groups={})     a temporary folder, then a rename
    folder = read_folder(path)                          verified; raises `FolderError`
    folder.tensors()                                    NumPy arrays mapped from the file, no torch
    folder.example()                                    inputs that the model takes, where its capture recorded some
    write_tensors(path, tensors) / read_tensors(path)   one safetensors file; used for records too

Reading needs NumPy only (a safetensors file is a JSON header and bytes), because programs run where neither torch nor
safetensors is installed.  Tensors given may be torch's or NumPy's.
May import: ir, generator.types, generator.errors, numpy, ml_dtypes.  To add a file to the folder: here, in
`write_folder` and `read_folder`, and in docs/internals.md.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...files import replacing, writing
from ..errors import OpwrightError, Place
from ..types import DType
from .ir import Binding, Program, dumps, loads, verify

__all__ = [
    "Example",
    "Folder",
    "FolderError",
    "TensorInfo",
    "local_file",
    "read_folder",
    "read_tensors",
    "tensor_infos",
    "whole",
    "write_folder",
    "write_tensors",
]

_SAFE = {
    DType.BOOL: "BOOL",
    DType.U8: "U8",
    DType.I8: "I8",
    DType.I16: "I16",
    DType.I32: "I32",
    DType.I64: "I64",
    DType.F16: "F16",
    DType.BF16: "BF16",
    DType.F32: "F32",
    DType.F64: "F64",
    DType.C64: "C64",
    DType.C128: "C128",
}
_FROM_SAFE = {v: k for k, v in _SAFE.items()}
#: What is local to a program: where its files lie, by what the names of its ops begin with.
_LOCAL = {"group": ("groups", ".yaml"), "grad": ("grads", ".json")}
_HASH = re.compile(r"[0-9a-f]{8,64}\Z")
MAX_HEADER = 100 << 20


class FolderError(OpwrightError):
    """A program folder, or a file of one, that is not whole."""


@dataclass(frozen=True)
class TensorInfo:
    """What a safetensors file says of one tensor: bytes `begin` to `end` of its data."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


# ------------------------------------------------------------------------------------------------- safetensors


def numpy_dtype(d: DType) -> Any:
    """The NumPy dtype of a DType (bf16 by ml_dtypes)."""
    if d is DType.BF16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    names = {
        DType.BOOL: "bool",
        DType.U8: "uint8",
        DType.F16: "float16",
        DType.F32: "float32",
        DType.F64: "float64",
        DType.C64: "complex64",
        DType.C128: "complex128",
    }
    return np.dtype(names.get(d) or f"int{d.bytes * 8}")


def _bytes_of(x: Any) -> tuple[DType, tuple[int, ...], Any]:
    """Dtype, shape and bytes of a torch tensor or a NumPy array."""
    if hasattr(x, "detach"):
        from . import torch_compat as compat

        dtype = compat.dtype_of(x.dtype)
        flat = x.detach().cpu().contiguous().reshape(-1)
        torch = compat.require_torch()
        # Of one element, any stride is contiguous, and not any can be viewed as bytes.
        flat = flat.clone(memory_format=torch.contiguous_format) if flat.numel() == 1 else flat
        data = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        return dtype, tuple(x.shape), data
    array = np.ascontiguousarray(x)
    name = array.dtype.name
    kind = {
        "bfloat16": DType.BF16,
        "bool": DType.BOOL,
        "uint8": DType.U8,
        "complex64": DType.C64,
        "complex128": DType.C128,
    }
    dtype = kind.get(name) or DType(f"{'f' if array.dtype.kind == 'f' else 'i'}{array.dtype.itemsize * 8}")
    return dtype, tuple(np.shape(x)), array.reshape(-1).view(np.uint8)


def write_tensors(
    path: Path | str, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, written beside and renamed.  The same tensors give the same bytes."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    blobs: list[Any] = []
    at = 0
    for name in sorted(
        tensors, key=lambda n: (-_align(tensors[n]), n)
    ):  # wide elements first: all stay aligned
        dtype, shape, data = _bytes_of(tensors[name])
        header[name] = {"dtype": _SAFE[dtype], "shape": list(shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    path = Path(path)
    with replacing(path, durable=False) as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for data in blobs:
            f.write(data.tobytes())


def _align(x: Any) -> int:
    return int(x.element_size() if hasattr(x, "element_size") else np.asarray(x).dtype.itemsize)


def tensor_infos(path: Path | str) -> tuple[dict[str, TensorInfo], int]:
    """What a safetensors file holds, and where its data begins.  Raises `FolderError` when it is cut off or is none."""
    path = Path(path)
    header, length, size = _header(path)
    out: dict[str, TensorInfo] = {}
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            info = TensorInfo(_FROM_SAFE[entry["dtype"]], tuple(entry["shape"]), begin, end)
            count = 1
            for n in info.shape:
                if not isinstance(n, int) or n < 0:
                    raise ValueError(f"extent {n!r}")
                count *= n
            if not 0 <= begin <= end or end - begin != count * info.dtype.bytes:
                raise ValueError(f"{name} has {end - begin} bytes for {count} elements of {info.dtype}")
            if 8 + length + end > size:
                raise FolderError(
                    f"{path} is cut off: {name} ends at byte {8 + length + end} of {size}",
                    hint="copy or capture it again",
                )
            out[name] = info
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise FolderError(f"{path} has a broken header: {e}", hint="capture the model again") from e
    return out, 8 + length


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    """A safetensors file's header, how long that is, and how long the file."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as f:
            head = f.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, max(size - 8, 0)):
                raise FolderError(
                    f"{path} is not a safetensors file, or is cut off", hint="capture the model again"
                )
            header = json.loads(f.read(length))
    except OSError as e:
        raise FolderError(f"{path} cannot be read: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        raise FolderError(f"{path} has a broken header: {e}", hint="capture the model again") from e
    if not isinstance(header, dict):
        raise FolderError(f"{path} has a broken header: it is no object", hint="capture the model again")
    return header, length, size


def read_tensors(path: Path | str) -> dict[str, Any]:
    """Every tensor as a read-only NumPy array mapped from the file.  Raises `FolderError`."""
    infos, start = tensor_infos(path)
    if not infos:
        return {}
    with open(path, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    out: dict[str, Any] = {}
    for name, info in infos.items():
        count = (info.end - info.begin) // info.dtype.bytes
        flat = np.frombuffer(data, dtype=numpy_dtype(info.dtype), count=count, offset=start + info.begin)
        out[name] = flat.reshape(info.shape)
    return out


# ------------------------------------------------------------------------------------------------- the folder


@dataclass(frozen=True)
class Example:
    """A program's inputs by name, and the tokens in them that stand for features of something else."""

    arrays: Mapping[str, Any]
    stand: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Folder:
    """A program folder that was read and verified."""

    path: Path
    program: Program
    groups: Mapping[str, str] = field(default_factory=dict)
    grads: Mapping[str, str] = field(default_factory=dict)

    def tensors(self) -> dict[str, Any]:
        """Weights and constants by name, mapped from the file; ties resolved."""
        have = read_tensors(self.path / "weights.safetensors")
        ties = {b.name: have[b.tie] for b in self.program.weights if b.tie is not None}
        return have | ties

    def example(self) -> Example | None:
        """What `example.safetensors` holds; None where there is no such file, or not of this program."""
        file = self.path / "example.safetensors"
        if not file.is_file():
            return None
        said = json.loads(_header(file)[0].get("__metadata__", {}).get("placeholders", "{}"))
        arrays = read_tensors(file)
        ranks = {b.name: self.program.values[b.value].rank for b in self.program.inputs}
        return Example(arrays, said) if ranks == {n: x.ndim for n, x in arrays.items()} else None


@contextmanager
def whole(path: Path | str) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends well, and nothing when it does not."""
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        with writing(path):
            os.chmod(temporary, 0o755)
            replace_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Put `new` where `path` is; what was there goes away only after the new one stands."""
    if not path.exists():
        os.replace(new, path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
    os.rmdir(old)
    os.replace(path, old)
    try:
        os.replace(new, path)
    except BaseException:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_folder(
    path: Path | str,
    program: Program,
    tensors: Mapping[str, Any] | None,
    groups: Mapping[str, str] | None = None,
    grads: Mapping[str, str] | None = None,
    example: Example | None = None,
) -> None:
    """Write the folder.  `tensors` by weight and constant name (ties need none), None: a program without weights, which
    can be read and asked, and does not run; `groups`: hash → text of its spec; `grads`: hash → text of the request
    whose gradient it is; `example`: inputs that the model takes.

    Raises `FolderError` where they do not fit the program,
    `MalformedProgram` where the program does not hold together.
    """
    verify(program)
    needed = stored_names(program)
    lacking = sorted(needed.keys() - tensors.keys()) if tensors is not None else []
    if lacking:
        raise FolderError(f"no tensor for {', '.join(lacking[:5])}")
    local: dict[str, Mapping[str, str]] = {"group": groups or {}, "grad": grads or {}}
    for kind, texts in local.items():
        without = sorted(local_hashes(program, kind) - texts.keys())
        if without:
            raise FolderError(f"no spec for the {_LOCAL[kind][0]} {', '.join(without)}")
    with whole(path) as temporary:
        (temporary / "program.json").write_text(dumps(program), encoding="utf-8")
        if tensors is not None:
            write_tensors(temporary / "weights.safetensors", {n: tensors[n] for n in needed})
        if example is not None:
            stand = {n: list(tokens) for n, tokens in example.stand.items()}
            said = {"placeholders": json.dumps(stand)} if stand else None
            write_tensors(temporary / "example.safetensors", example.arrays, said)
        for kind, (folder, suffix) in _LOCAL.items():
            wanted = sorted(local_hashes(program, kind))
            if wanted or kind == "group":
                (temporary / folder).mkdir()
            for hash in wanted:
                (temporary / folder / f"{hash}{suffix}").write_text(local[kind][hash], encoding="utf-8")
        read_folder(temporary, weights=tensors is not None)


def stored_names(p: Program) -> dict[str, Binding]:
    """Names in the weights file and what each is bound to; tied weights share another's."""
    return {b.name: b for b in (*p.weights, *p.constants) if b.tie is None}


def group_hashes(p: Program) -> set[str]:
    """The fused groups that the program calls.  Raises `FolderError` for a name that is no hash."""
    return local_hashes(p, "group")


def local_hashes(p: Program, kind: str) -> set[str]:
    """What the program calls of its own: `group` or `grad`.  Raises `FolderError` for a name that is no hash."""
    out: set[str] = set()
    for c in p.calls:
        if c.op.startswith(f"{kind}:"):
            hash = c.op.removeprefix(f"{kind}:")
            if not _HASH.match(hash):
                raise FolderError(f"{c.id} calls {c.op!r}, which is not `{kind}:` and a hash")
            out.add(hash)
    return out


def local_file(op: str) -> str:
    """Where in a program's folder the op's file lies; empty for an op that is not the program's own."""
    kind, colon, hash = op.partition(":")
    return f"{_LOCAL[kind][0]}/{hash}{_LOCAL[kind][1]}" if colon and kind in _LOCAL else ""


def read_folder(path: Path | str, *, weights: bool = True) -> Folder:
    """Read and check a folder: the program holds together, every weight is there with its dtype and shape (unless
    `weights` is False), every group has its spec.  Raises `FolderError` or `MalformedProgram`."""
    path = Path(path)
    try:
        text = (path / "program.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise FolderError(
            f"{path} is not a program folder: program.json: {reason}",
            hint="name the folder that `opwright enable` wrote",
        ) from e
    try:
        program = loads(text)
        verify(program)
    except OpwrightError as e:
        for single in e.errors:
            single.place = single.place or Place(str(path / "program.json"))
        raise
    infos = tensor_infos(path / "weights.safetensors")[0] if weights else {}
    for name, b in stored_names(program).items() if weights else ():
        v = program.values[b.value]
        info = infos.get(name)
        want = tuple(n.value for n in v.shape)
        if info is None:
            raise FolderError(
                f"{path / 'weights.safetensors'} holds no {name}", hint="capture the model again"
            )
        if (info.dtype, info.shape) != (v.dtype, want):
            raise FolderError(
                f"{name} is {info.dtype}{list(info.shape)} in the weights and {v.dtype}{list(want)} in the program",
                hint="these are weights of another model",
            )
    texts: dict[str, dict[str, str]] = {kind: {} for kind in _LOCAL}
    for kind, (place, suffix) in _LOCAL.items():
        for hash in sorted(local_hashes(program, kind)):
            file = path / place / f"{hash}{suffix}"
            try:
                texts[kind][hash] = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as e:
                raise FolderError(f"the program calls {kind}:{hash}, and {file} cannot be read") from e
    return Folder(path, program, texts["group"], texts["grad"])
