"""The JSON Schema of a spec file, for editors and for programs that write specs.

It says which fields there are and of which shape; what names must exist and what fits together, `spec.py` says.
`opwright check` is the judge of a spec, never the schema.  Field names come from the tables of `spec_model.py`.

May import: spec_model, types.  To add a field: its row in `spec_model.FIELDS`, its shape in `_shapes` here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .spec_model import (
    ATEN_FIELDS,
    ATTR_FIELDS,
    ATTR_KINDS,
    DIM_FIELDS,
    DIM_KINDS,
    FIELDS,
    GRAD_FIELDS,
    LAYOUTS,
    ONNX_FIELDS,
    TEST_FIELDS,
    VALUE_CLASSES,
    VIEW_FIELDS,
)
from .types import DType

__all__ = ["schema_text", "spec_schema"]

Schema = dict[str, Any]

NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
PACK_OR_NAME = r"^\*?[A-Za-z][A-Za-z0-9_]*$"
OP = r"^(([a-z][a-z0-9_]*::)?[a-z][a-z0-9_]*|group:[0-9a-f]{8,64})$"
#: A placeholder of a family (`each:`) may stand anywhere in a text.
PLACEHOLDER = r"|\$[A-Za-z_]"
OVERLOAD = r"^[a-z_][a-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$" + PLACEHOLDER
TYPE = r"^\s*((optional|list|aux|expand)\s+)*[A-Za-z][A-Za-z0-9_]*\s*\[.*\]\s*$" + PLACEHOLDER
ATTR_TYPE = (
    rf"^\s*(optional\s+)?({'|'.join(k for k in ATTR_KINDS if k != 'enum')}|enum\s*\[.+\])\s*$" + PLACEHOLDER
)


def spec_schema() -> Schema:
    """JSON Schema (2020-12) of one document of a spec file."""
    shapes = _shapes()
    properties = {name: {"description": doc, **shapes[name]} for name, doc in FIELDS.items()}
    properties["each"] = {
        "description": "a family of operators: name -> the fields that differ, and texts for `$placeholders`",
        "type": "object",
        "additionalProperties": {"type": ["object", "null"]},
        "minProperties": 1,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "opwright operator specification",
        "type": "object",
        "properties": properties,
        "required": ["op"],
        "additionalProperties": False,
        # The entries of a family bring fields of their own: only a document that stands for itself must be whole.
        "if": {"required": ["each"]},
        "then": {"properties": {"op": {"const": "$op"}}},
        "else": {
            "properties": {"op": {"pattern": OP}},
            "required": ["outputs"],
            "anyOf": [{"required": ["compute"]}, {"required": ["view"]}, {"required": ["oracle"]}],
        },
    }


def schema_text() -> str:
    """The schema as a file holds it."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def _object(fields: Mapping[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    out: Schema = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    if required:
        out["required"] = list(required)
    return out


def _map(value: Schema, pattern: str = NAME) -> Schema:
    return {"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": value}


def _list(value: Schema) -> Schema:
    return {"type": "array", "items": value}


def _one_of(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _table(names: tuple[str, ...], shapes: Mapping[str, Schema]) -> dict[str, Schema]:
    if set(names) != set(shapes):
        raise AssertionError(f"schema and model disagree: {sorted(set(names) ^ set(shapes))}")
    return {name: shapes[name] for name in names}


def _shapes() -> dict[str, Schema]:
    """The shape of each field of a spec."""
    text: Schema = {"type": "string"}
    words: Schema = {"type": "string", "minLength": 1}
    expr: Schema = {"type": ["string", "number", "boolean"]}  # a number or True is an expression, unquoted
    names = _list({"type": "string", "pattern": NAME})
    tensor: Schema = {"type": "string", "pattern": TYPE}
    plain: Schema = {"type": ["string", "number", "boolean", "array", "null"]}
    target: Schema = {
        "anyOf": [
            {"type": ["string", "null"]},
            names,
            _object({"only": {}}, required=("only",)),
        ]
    }
    attr = _object(
        _table(
            ATTR_FIELDS,
            {
                "type": {"type": "string", "pattern": ATTR_TYPE},
                "default": plain,
                "static": {"type": ["boolean", "string"]},
                "empty": {"const": "all"},
            },
        ),
        required=("type",),
    )
    dim: Schema = {
        "anyOf": [_one_of(DIM_KINDS), _object(_table(DIM_FIELDS, {"kind": _one_of(DIM_KINDS), "rank": expr}))]
    }
    extents: Schema = {"anyOf": [expr, _list(expr)]}
    one = "|".join(_dtypes())
    types: Schema = {
        "type": "string",
        "pattern": rf"^({one})(\+({one}))*$",
    }  # `bf16+f32`: one for each variable
    case = {"type": "object", "properties": {"types": {"anyOf": [_list(types), types]}}}
    grad = _table(
        GRAD_FIELDS,
        {
            "wrt": names,
            "derive": {"type": "boolean"},
            "compute": words,
            "save": {"anyOf": [names, _map(_object({"every": {"type": "integer", "minimum": 1}}))]},
            "against": {"const": "derive"},
            "none": words,
            "order": _one_of(("unordered", "ordered")),
        },
    )
    test = _table(
        TEST_FIELDS,
        {
            "cases": _list(case),
            "layouts": _list(_one_of(LAYOUTS)),
            "values": _list(_one_of(VALUE_CLASSES)),
            "checks": _list(words),
            "tol": _one_of(("exact", "bound")),
        },
    )
    aten = _table(
        ATEN_FIELDS,
        {
            "overload": {"type": "string", "pattern": OVERLOAD},
            "map": {"type": "object", "additionalProperties": target},
            "set": {"type": "object"},
            "returns": names,
        },
    )
    onnx = _table(
        ONNX_FIELDS,
        {
            "op": words,
            "since": {"type": "integer", "minimum": 1},
            "map": {"type": "object", "additionalProperties": target},
            "set": {"type": "object"},
            "returns": names,
        },
    )
    return {
        "op": text,
        "doc": text,
        "types": _map(text),
        "dims": _map(dim),
        "let": _map(expr, PACK_OR_NAME),
        "sizes": _map(expr),
        "inputs": _map(tensor),
        "attrs": _map(attr),
        "outputs": {**_map(tensor), "minProperties": 1},
        "variants": _object({"inplace": names}),
        "require": _list(words),
        "view": _object(
            _table(VIEW_FIELDS, {"size": extents, "stride": extents, "offset": expr}),
            required=("size", "stride"),
        ),
        "compute": words,
        "grad": _object(grad),
        "lower": {"type": "object"},
        "test": _object(test),
        "bench": _list(case),
        "aten": _list(
            {"anyOf": [{"type": "string", "pattern": OVERLOAD}, _object(aten, required=("overload",))]}
        ),
        "onnx": _list({"anyOf": [words, _object(onnx, required=("op",))]}),
        "reference": words,
        "also": words,
        "oracle": words,
        "since": {"type": ["string", "number"]},
    }


def _dtypes() -> tuple[str, ...]:
    return tuple(d.value for d in DType)
