"""The JSON Schema: it takes what the reader takes, and refuses what has another shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opwright.generator.schema import schema_text, spec_schema
from opwright.generator.source import read_documents
from opwright.generator.spec_model import FIELDS

SPECS = Path(__file__).with_name("specs")
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as ours uses; a keyword it does not know fails the test that uses it."""
    for word, arg in schema.items():
        match word:
            case "$schema" | "title" | "description" | "then" | "else":
                ok = True
            case "type":
                ok = any(is_a(value, t) for t in ([arg] if isinstance(arg, str) else arg))
            case "properties":
                ok = not isinstance(value, dict) or all(
                    fits(value[k], s) for k, s in arg.items() if k in value
                )
            case "additionalProperties":
                known = schema.get("properties", {})
                rest = [v for k, v in value.items() if k not in known] if isinstance(value, dict) else []
                ok = not rest if arg is False else all(fits(v, arg) for v in rest)
            case "propertyNames":
                ok = not isinstance(value, dict) or all(fits(k, arg) for k in value)
            case "items":
                ok = not isinstance(value, list) or all(fits(v, arg) for v in value)
            case "required":
                ok = not isinstance(value, dict) or all(k in value for k in arg)
            case "minProperties":
                ok = not isinstance(value, dict) or len(value) >= arg
            case "minLength":
                ok = not isinstance(value, str) or len(value) >= arg
            case "minimum":
                ok = not isinstance(value, int) or value >= arg
            case "pattern":
                ok = not isinstance(value, str) or re.search(arg, value) is not None
            case "enum":
                ok = value in arg
            case "const":
                ok = value == arg
            case "anyOf":
                ok = any(fits(value, s) for s in arg)
            case "if":
                ok = fits(value, schema["then"] if fits(value, arg) else schema["else"])
            case _:
                raise AssertionError(f"the schema uses `{word}`")
        if not ok:
            return False
    return True


def is_a(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        return isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[kind])


def documents(path: Path) -> list[Any]:
    return [n.plain() for n in read_documents(path.read_text(encoding="utf-8"), str(path))]


def test_every_field_has_a_shape_and_a_word_about_it() -> None:
    properties = spec_schema()["properties"]
    assert set(properties) == {*FIELDS, "each"}
    assert all(p["description"] for p in properties.values())


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda p: p.stem)
def test_it_takes_what_the_reader_takes(path: Path) -> None:
    for doc in documents(path):
        assert fits(doc, spec_schema()), doc["op"]


def test_it_takes_the_shipped_specs(root: Path) -> None:
    paths = sorted((root / "specs" / "ops").rglob("*.yaml"))
    assert paths
    for path in paths:
        for doc in documents(path):
            assert fits(doc, spec_schema()), f"{path}: {doc['op']}"


@pytest.mark.parametrize(
    "change",
    [
        {"op": "../x"},
        {"op": None},
        {"op": "group:xyz"},
        {"ops": 1},
        {"inputs": {"x": "T"}},
        {"inputs": ["x"]},
        {"inputs": {"x-y": "T[N]"}},
        {"outputs": {}},
        {"attrs": {"a": {"type": "axs"}}},
        {"attrs": {"a": {"default": 1}}},
        {"dims": {"B": "bacth"}},
        {"grad": {"wrt": "x"}},
        {"grad": {"dervie": True}},
        {"test": {"tol": 0.001}},
        {"bench": [{"types": ["fp32"]}]},
        {"aten": ["add"]},
        {"each": {"a": {}}},
        {"compute": ""},
    ],
    ids=str,
)
def test_it_refuses_other_shapes(change: dict[str, Any]) -> None:
    good = {"op": "t", "inputs": {"x": "T[N]"}, "outputs": {"y": "T[N]"}, "compute": "y[i] = x[i]"}
    assert fits(good, spec_schema())
    assert not fits({**good, **change}, spec_schema())


def test_a_document_must_mean_something() -> None:
    assert not fits({"op": "t", "outputs": {"y": "T[N]"}}, spec_schema())
    assert fits({"op": "$op", "each": {"sin": {"doc": "Sine."}}}, spec_schema())


def test_the_text_is_json() -> None:
    assert json.loads(schema_text()) == spec_schema()
