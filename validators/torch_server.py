"""PyTorch in a process of its own: evaluates ATen overloads for the gate `meaning`, and dies without taking us along.

It also runs the functions of compositions*.py.  This file is both sides.  Run as a program it is the server: it imports
torch and NumPy and nothing of opwright.  Imported it gives `TorchServer`, which starts one on demand, restarts it after
a crash (`div(INT_MIN, -1, 'trunc')` kills a process) and says `TorchMissing` where there is none.

A message is a JSON text and an npz archive, each with its length in front.  `VERSION` changes with the protocol.
May import: the standard library, numpy; torch only in `serve`.  To add a request: a branch in `_answer`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

__all__ = ["TorchCrashed", "TorchError", "TorchMissing", "TorchServer", "complete", "composition_names"]

VERSION = 4
_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"owts"
_START_SECONDS, _CALL_SECONDS = 120.0, 60.0

Array = npt.NDArray[Any]


class TorchMissing(Exception):
    """torch cannot be imported here; the message says why."""


class TorchCrashed(Exception):
    """The server died, or gave no answer in time, on this call."""


class TorchError(Exception):
    """torch refused the call: its exception's type and first line."""


def _pack(message: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    text = json.dumps(message).encode()
    block = io.BytesIO()
    np.savez(block, **arrays)  # type: ignore[arg-type]
    data = block.getvalue()
    return _HEAD.pack(_MAGIC, len(text), len(data)) + text + data


def _unpack(text: bytes, data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return json.loads(text), dict(archive)


# ---- the judge's side --------------------------------------------------------------------------------------------


def encode(value: object, arrays: dict[str, Array]) -> Any:
    """An argument as JSON; arrays go to `arrays` and are named.  A dtype is `DType`-like: has `.value`."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"tensor": name}
    if isinstance(value, list | tuple):
        return {"list": [encode(v, arrays) for v in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"torch cannot be handed a {type(value).__name__}")


def _arguments(
    given: Mapping[str, object], dtypes: Mapping[str, str] | None, arrays: dict[str, Array]
) -> dict[str, Any]:
    """A call's arguments by name, as a request has them; their tensors go to `arrays`."""
    encoded = {name: encode(value, arrays) for name, value in given.items()}
    return encoded | {name: {"dtype": dtype} for name, dtype in (dtypes or {}).items()}


class TorchServer:
    """A server that is there when it is called.  A context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: BinaryIO | None = None
        self.version = ""
        self.restarts = -1

    def start(self) -> None:
        """Start one if none runs.  Raises `TorchMissing`."""
        if self._process is not None:
            return
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PYTORCH", "OPWRIGHT"))
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        self.restarts += 1
        try:
            hello, _ = self._receive(_START_SECONDS)
        except TorchCrashed as death:
            raise TorchMissing(str(death)) from None
        if hello.get("version") != VERSION or "torch" not in hello:
            self.stop()
            raise TorchMissing(hello.get("missing", "its server speaks another protocol"))
        self.version = hello["torch"]

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = self._stderr = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def call(
        self,
        overload: str,
        arguments: Mapping[str, object],
        dtypes: Mapping[str, str] | None = None,
        *,
        in_order: bool = False,
        left_out: Sequence[str] = (),
        fused: bool = False,
    ) -> list[Array | None]:
        """The outputs of `overload` (`aten.add.Tensor`) on arguments by name; `dtypes` names those that are dtypes.

        in_order: the names are the caller's own; arguments are taken in the order of the overload's schema.
        left_out: of these arguments the overload takes its own defaults, where it has them.
        fused: attention by PyTorch's fused kernel, else by its formula (their nan differ).
        Raises `TorchError` when torch refuses, `TorchCrashed` when it dies, `TorchMissing` when it is not there.
        """
        arrays: dict[str, Array] = {}
        request = {
            "overload": overload,
            "arguments": _arguments(arguments, dtypes, arrays),
            "in_order": in_order,
            "left_out": list(left_out),
            "fused": fused,
        }
        return self._ask(request, arrays)

    def gradients(
        self,
        overload: str,
        arguments: Mapping[str, object],
        dtypes: Mapping[str, str] | None,
        wrt: Sequence[str],
        cotangents: Sequence[Array | None],
        *,
        in_order: bool = False,
    ) -> list[Array | None]:
        """What autograd gives for each tensor of the arguments `wrt` (a list's entries in order): None for one that the
        overload takes as a number, and for all where it has no derivative.

        cotangents: of the overload's outputs in order, None: that output does not count.  Raises as `call` does, and
        `TorchError` where PyTorch has no derivative.
        """
        arrays: dict[str, Array] = {}
        request = {
            "overload": overload,
            "arguments": _arguments(arguments, dtypes, arrays),
            "in_order": in_order,
            "left_out": [],
            "fused": False,
            "wrt": list(wrt),
            "cotangents": [encode(ct, arrays) for ct in cotangents],
        }
        return self._ask(request, arrays)

    def overloads(self) -> dict[str, dict[str, list[Any]]]:
        """Every overload of `aten` -> argument -> its type, and its default where it has one."""
        self._send({"overloads": True}, {})
        reply, _ = self._receive(_CALL_SECONDS)
        found: dict[str, dict[str, list[Any]]] = reply["overloads"]
        return found

    def compose(self, name: str, inputs: Sequence[object], attrs: Mapping[str, object]) -> list[Array | None]:
        """The outputs of a function of compositions*.py on inputs in order (None: absent) and attributes by name."""
        arrays: dict[str, Array] = {}
        request = {
            "composition": name,
            "inputs": [encode(v, arrays) for v in inputs],
            "attrs": {n: encode(v, arrays) for n, v in attrs.items()},
        }
        return self._ask(request, arrays)

    def _send(self, request: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(_pack({"version": VERSION, **request}, arrays))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise TorchCrashed(self._bury()) from None

    def _ask(self, request: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[Array | None]:
        self._send(request, arrays)
        reply, results = self._receive(_CALL_SECONDS)
        if reply.get("error"):
            raise TorchError(reply["error"])
        return [None if name is None else results[name] for name in reply["outputs"]]

    def _receive(self, seconds: float) -> tuple[dict[str, Any], dict[str, Array]]:
        deadline = time.monotonic() + seconds
        head = self._read(_HEAD.size, deadline)
        magic, text, data = _HEAD.unpack(head)
        if magic != _MAGIC:
            self.stop()
            raise TorchCrashed("it printed on its channel")
        return _unpack(self._read(text, deadline), self._read(data, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        fd = self._process.stdout.fileno()
        parts = b""
        while len(parts) < size:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                raise TorchCrashed("no answer in time")
            part = os.read(fd, min(size - len(parts), 1 << 20))
            if not part:
                raise TorchCrashed(self._bury())
            parts += part
        return parts

    def _bury(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        said = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            lines = self._stderr.read().decode(errors="replace").strip().splitlines()
            said = f": {lines[-1]}" if lines else ""
        self.stop()
        return f"ended with status {status}{said}"


# ---- the server's side -------------------------------------------------------------------------------------------

_TORCH_NAMES = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}


def _decode(torch: Any, value: dict[str, Any], arrays: Mapping[str, Array]) -> Any:
    if "tensor" in value:
        return torch.from_numpy(arrays[value["tensor"]].copy())
    if "list" in value:
        return [_decode(torch, v, arrays) for v in value["list"]]
    if "dtype" in value:
        return None if value["dtype"] is None else getattr(torch, _TORCH_NAMES[value["dtype"]])
    if "complex" in value:
        return complex(*value["complex"])
    return value["value"]


def complete(torch: Any, schema: Any, arguments: dict[str, Any]) -> None:
    """Fit arguments to the overload's types, or say that it cannot express them.

    A tensor of rank 0 where a number is wanted becomes one, and so does a list of one; a list has the overload's own
    length; required arguments that a map ignores get a value.
    """
    first = next((v for v in arguments.values() if isinstance(v, torch.Tensor)), None)
    lists = [v for v in arguments.values() if isinstance(v, list) and v and isinstance(v[0], int)]
    for a in schema:
        kind = str(a.type)
        value = arguments.get(a.name)
        plain = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional") else kind
        if isinstance(value, torch.Tensor) and plain in _NUMBERS:
            if value.dim() != 0:
                raise Inexpressible(
                    f"`{a.name}` is a number, the case has a tensor of shape {list(value.shape)}"
                )
            arguments[a.name] = value.item()
        elif isinstance(value, list) and plain in _NUMBERS:
            if len(value) != 1:
                raise Inexpressible(f"`{a.name}` is one number, the case has {len(value)}")
            arguments[a.name] = value[0]
        elif isinstance(value, list) and a.N is not None and len(value) != a.N:
            raise Inexpressible(f"`{a.name}` has {a.N} entries, the case has {len(value)}")
        elif value is None and a.name in arguments and not kind.startswith("Optional"):
            raise Inexpressible(f"`{a.name}` is never absent")
        if a.name in arguments or a.has_default_value():
            continue
        if kind.startswith("Optional"):
            arguments[a.name] = None
        elif first is not None and a.name in ("N", "C", "HxW"):  # of the group norms: facts of the shape
            shape = list(first.shape)
            arguments[a.name] = {"N": shape[0], "C": shape[1], "HxW": int(np.prod(shape[2:]))}[a.name]
        elif kind in ("int", "float", "number", "bool", "SymInt"):
            arguments[a.name] = {"float": 0.0, "bool": False}.get(kind, 0)
        elif kind.startswith(("List[int", "List[SymInt")):
            arguments[a.name] = [0] * (len(lists[0]) if lists else 0)


_NUMBERS = ("number", "Scalar", "float", "int", "bool", "SymInt")


class Inexpressible(Exception):
    """The overload has no way to say this call."""


def _answer(
    torch: Any, message: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    if "composition" in message:
        return _composed(torch, message, arrays)
    if "overloads" in message:
        return {"overloads": _overloads(torch)}, {}
    try:
        space, name, overload = message["overload"].split(".")
        function = getattr(getattr(getattr(torch.ops, space), name), overload)
        arguments = {k: _decode(torch, v, arrays) for k, v in message["arguments"].items()}
        schema = function._schema.arguments
        left_out, wrt = set(message["left_out"]), list(message.get("wrt", ()))
        if message["in_order"] and not set(arguments) <= {a.name for a in schema}:
            left_out = {a.name for a, n in zip(schema, arguments, strict=False) if n in left_out}
            places = dict(zip(arguments, (a.name for a in schema), strict=False))
            wrt = [places[n] for n in wrt]
            arguments = dict(zip((a.name for a in schema), arguments.values(), strict=False))
        for a in schema:
            if a.name in left_out and a.has_default_value():
                arguments.pop(a.name, None)
        complete(torch, schema, arguments)
        torch.backends.cuda.enable_flash_sdp(message["fused"])
        if wrt:
            cotangents = [_decode(torch, v, arrays) for v in message["cotangents"]]
            return _reply(torch, _gradients(torch, function, arguments, wrt, cotangents))
        with torch.no_grad():
            result = function(**arguments)
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"{type(error).__name__.strip('_')}: {said}"}, {}
    return _reply(torch, result)


def _gradients(
    torch: Any, function: Any, arguments: dict[str, Any], wrt: Sequence[str], cotangents: Sequence[Any]
) -> list[Any]:
    """Autograd's answer for every tensor of the arguments `wrt`."""
    leaves: list[Any] = []
    for name in wrt:
        value = arguments[name]
        for item in value if isinstance(value, list) else [value]:
            moves = isinstance(item, torch.Tensor) and item.is_floating_point()
            leaves.append(item.requires_grad_() if moves else None)
    with torch.enable_grad():
        result = function(**arguments)
    outputs = list(result) if isinstance(result, list | tuple) else [result]
    pairs = [
        (o, ct)
        for o, ct in zip(outputs, cotangents, strict=False)
        if ct is not None and isinstance(o, torch.Tensor) and o.requires_grad
    ]
    some = [x for x in leaves if x is not None]
    if not pairs or not some:
        return [None] * len(leaves)
    found = iter(torch.autograd.grad([o for o, _ in pairs], some, [ct for _, ct in pairs], allow_unused=True))
    given = [None if x is None else (next(found), x) for x in leaves]
    return [
        None if pair is None else torch.zeros_like(pair[1]) if pair[0] is None else pair[0] for pair in given
    ]


def _overloads(torch: Any) -> dict[str, dict[str, list[Any]]]:
    """What `TorchServer.overloads` gives: overloads that `torch.ops` has, defaults that JSON has a word for."""
    found: dict[str, dict[str, list[Any]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name = f"aten.{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        found[name] = {
            a.name: [str(a.type), a.default_value]
            if a.has_default_value() and isinstance(a.default_value, bool | int | float | str | list | None)
            else [str(a.type)]
            for a in schema.arguments
        }
    return found


def composition_names(folder: Path | None = None) -> frozenset[str]:
    """What `reference: compositions.NAME` may name (in another version's folder), read without torch."""
    where = folder or Path(__file__).resolve().parent
    texts = (p.read_text(encoding="utf-8") for p in where.glob("compositions*.py"))
    return frozenset(n for text in texts for n in re.findall(r"^def ([a-z]\w*)\(", text, re.MULTILINE))


@functools.cache
def _compositions() -> dict[str, Any]:
    """The functions of compositions*.py beside this file, which import torch."""
    found: dict[str, Any] = {}
    for path in sorted(Path(__file__).resolve().parent.glob("compositions*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= {n: f for n, f in vars(module).items() if getattr(f, "__module__", "") == path.stem}
    return found


def _composed(
    torch: Any, message: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A mistake in a composition is an error of ours, so it is told where."""
    try:
        function = _compositions().get(message["composition"])
        if function is None:
            raise LookupError(f"no function {message['composition']} in compositions*.py")
        inputs = [_decode(torch, v, arrays) for v in message["inputs"]]
        attrs = {n: _decode(torch, v, arrays) for n, v in message["attrs"].items()}
        with torch.no_grad():
            result = function(*inputs, **attrs)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"}, {}
    return _reply(torch, result)


def _reply(torch: Any, result: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    items = list(result) if isinstance(result, list | tuple) else [result]
    outputs: dict[str, Array] = {}
    given: list[str | None] = []
    for k, item in enumerate(items):
        if item is None:
            given.append(None)
            continue
        tensor = item if isinstance(item, torch.Tensor) else torch.as_tensor(item)
        tensor = tensor.float() if tensor.dtype in (torch.bfloat16,) else tensor
        outputs[f"o{k}"] = tensor.detach().resolve_conj().resolve_neg().contiguous().numpy()
        given.append(f"o{k}")
    return {"outputs": given}, outputs


def serve(inbox: BinaryIO, outbox: BinaryIO) -> None:
    """Answer until the pipe closes."""
    try:
        import torch
    except ImportError as error:
        outbox.write(_pack({"version": VERSION, "missing": f"torch is missing: {error}"}, {}))
        outbox.flush()
        return
    torch.set_num_threads(1)
    outbox.write(_pack({"version": VERSION, "torch": str(torch.__version__)}, {}))
    outbox.flush()
    while head := inbox.read(_HEAD.size):
        _, text, data = _HEAD.unpack(head)
        message, arrays = _unpack(inbox.read(text), inbox.read(data))
        outbox.write(_pack(*_answer(torch, message, arrays)))
        outbox.flush()


if __name__ == "__main__":
    # What torch or its libraries print must not reach the channel.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, channel)
