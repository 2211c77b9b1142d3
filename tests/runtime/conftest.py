"""The runtime over kernels written by hand (kernels.cpp): ops, signatures and a miss hook without the generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

KERNELS = Path(__file__).with_name("kernels.cpp")


def tensor_input(name: str, *, optional: bool = False, many: bool = False) -> dict[str, Any]:
    return {"name": name, "optional": optional, "list": many}


SIGNATURES: list[dict[str, Any]] = [
    {
        "name": "add",
        "doc": "a + alpha * b",
        "inputs": [tensor_input("a"), tensor_input("b")],
        "attrs": [{"name": "alpha", "kind": "scalar", "default": 1}],
        "outputs": [{"name": "y"}],
    },
    {
        "name": "softmax",
        "inputs": [tensor_input("x")],
        "attrs": [{"name": "axis", "kind": "axis", "default": -1}],
        "outputs": [{"name": "y"}, {"name": "rows", "aux": True}],
    },
    {"name": "cat", "inputs": [tensor_input("xs", many=True)], "attrs": [], "outputs": [{"name": "y"}]},
    {"name": "nonzero", "inputs": [tensor_input("x")], "attrs": [], "outputs": [{"name": "y"}]},
    {
        "name": "take",
        "inputs": [tensor_input("x"), tensor_input("i")],
        "attrs": [],
        "outputs": [{"name": "y"}],
    },
    {"name": "wait", "inputs": [tensor_input("x")], "attrs": [], "outputs": [{"name": "y"}]},
    {"name": "reverse", "inputs": [tensor_input("x")], "attrs": [], "outputs": [{"name": "y"}]},
    {
        "name": "told",
        "inputs": [tensor_input("x"), tensor_input("w", optional=True)],
        "attrs": [
            {"name": "k", "kind": "int", "optional": True},
            {"name": "mode", "kind": "enum", "static": True, "default": "a"},
        ],
        "outputs": [{"name": "y"}],
    },
    {
        "name": "status",
        "inputs": [tensor_input("x")],
        "attrs": [
            {"name": "code", "kind": "int"},
            *(
                {"name": name, "kind": "int", "default": value}
                for name, value in (("arg", 0), ("axis", 0), ("want", 5), ("got", 7))
            ),
        ],
        "outputs": [{"name": "y"}],
    },
]

_ORDER = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128"]
_OUT = {"nonzero": ["i64"], "softmax": ["f32", "i64"]}
_IN = {"take": ["f32", "i64"]}


class Hook:
    """Answers requests from kernels.cpp, and remembers them."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self.requests: list[dict[str, Any]] = []
        self.batches: list[int] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        return self.answer(request)

    def resolve_many(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.batches.append(len(requests))
        return [self(request) for request in requests]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from opwright.exceptions import MissingKernelError

        name = request["op"].removeprefix("group:")
        signature = next((s for s in SIGNATURES if s["name"] == name), None)
        if signature is None:
            raise MissingKernelError(f"nobody supplies `{request['op']}`")
        flat: list[Any] = []
        for item in request["inputs"]:
            flat.extend(item if isinstance(item, list) else [item])
        wanted = ["f32"] * len(flat)
        symbol = f"ow_{name}"
        if name == "add":
            strong = [item["dtype"] for item in flat if not item["weak"]] or ["f32"]
            dtype = max(strong, key=_ORDER.index)
            dtype = dtype if dtype in ("f32", "f64", "i64") else "f32"
            if dtype == "i64" and any(item["weak"] and item["dtype"] == "f64" for item in flat):
                dtype = "f32"
            wanted, symbol = [dtype, dtype], f"ow_add_{dtype}"
        wanted = _IN.get(name, wanted)
        row_dtypes = wanted if name != "cat" else ["f32"]
        out = _OUT.get(name, [wanted[0] if wanted else "f32"])
        casts = [
            None if item is None or item["dtype"] == w else w for item, w in zip(flat, wanted, strict=True)
        ]
        return {
            "library": self.library,
            "casts": casts,
            "row": {
                "op": name,
                "symbol": symbol,
                "key": {
                    "types": {},
                    "static": {},
                    "present": {},
                    "lengths": {},
                    "ranks": {"K": 1} if name == "reverse" else {},
                },
                "inputs": [
                    {"name": i["name"], "dtype": d, "list": i["list"], "optional": i["optional"]}
                    for i, d in zip(signature["inputs"], row_dtypes, strict=True)
                ],
                "attrs": [
                    {"name": a["name"], "kind": a["kind"]} for a in signature["attrs"] if not a.get("static")
                ],
                "outputs": [
                    {"name": o["name"], "dtype": d, "aux": o.get("aux", False)}
                    for o, d in zip(signature["outputs"], out, strict=True)
                ],
                "rules": [{"text": "0 <= k < N", "line": 12}],
                "inplace": {"y": "a"} if name == "add" else {"y": "x"} if name == "told" else {},
                "from_data": name in ("nonzero", "cat"),
                "dialect": "cpu-portable",
            },
        }


@pytest.fixture(scope="session")
def library() -> Path:
    """kernels.cpp as a kernel library."""
    from opwright import toolchain

    return toolchain.compile_library(
        {"kernels.cpp": KERNELS.read_text()},
        name="tests/runtime",
        dialect="cpu-portable",
        extra_flags=("-Wall", "-Wextra", "-Werror"),
    )


@contextmanager
def registered(signatures: list[dict[str, Any]]) -> Iterator[None]:
    """These ops instead of the workbench's of their names, which come back afterwards."""
    from opwright import registry

    registry.ensure()
    own = {s["name"] for s in signatures} & set(registry.names())
    before = [registry.get(name).signature for name in own]
    for signature in signatures:
        registry.register_op(signature)
    try:
        yield
    finally:
        for signature in before:
            registry.register_op(signature)


@pytest.fixture
def hook(library: Path) -> Iterator[Hook]:
    """The hand-written ops, registered afresh, with their miss hook installed."""
    from opwright import registry

    made = Hook(library)
    with registered(SIGNATURES):
        before = registry.miss_hook()
        registry.set_miss_hook(made)
        yield made
        registry.set_miss_hook(before)
