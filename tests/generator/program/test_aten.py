"""Rows of the aten table: exact in JSON, refused when broken, made from a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright.generator.program.aten import (
    AtenRow,
    Only,
    TableError,
    table_dumps,
    table_loads,
    table_of,
    table_of_registry,
)
from opwright.generator.spec import Registry

ROW = AtenRow(
    "op",
    "aten.x.y",
    (("self", "x"), ("a", Only((1, 2))), ("b", None), ("c", ("i", "j")), ("d", Only(None))),
    ("x", "i", "j"),
    ("k",),
    ("y", "z"),
    ("y",),
    {"k": [1]},
)


def test_round_trip() -> None:
    table = table_of([ROW, AtenRow("other", "aten.x.y", (), ("x",)), AtenRow("third", "aten.a.b", (), ())])
    assert table_loads(table_dumps(table)) == table
    assert [r.op for r in table["aten.x.y"]] == ["op", "other"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"op": "x"}]', '[{"op": 1, "overload": "o", "map": [[1]], "inputs": []}]']
)
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(TableError):
        table_loads(text)


def test_a_registrys_rows_know_the_specs_order(root: Path) -> None:
    registry = Registry.load([root / "specs" / "ops"])
    table = table_of_registry(registry)
    assert set(table) == set(registry.aten_table())
    for rows in table.values():
        for row in rows:
            spec = registry.get(row.op)
            assert (
                row.inputs == tuple(spec.inputs)
                and row.attrs == tuple(spec.attrs)
                and row.outputs == tuple(spec.outputs)
            )
            targets = [
                t for _, to in row.map for t in (to if isinstance(to, tuple) else (to,)) if isinstance(t, str)
            ]
            assert {*targets, *row.set} <= {*row.inputs, *row.attrs}


def test_no_map_names_an_argument_that_torch_has_not(root: Path) -> None:
    pytest.importorskip("torch")
    from opwright.generator.program import torch_compat as compat

    for overload, rows in table_of_registry(Registry.load([root / "specs" / "ops"])).items():
        op = compat.overload_of(overload)
        if op is None:
            continue  # of another torch
        known = {a.name for a in compat.arguments(op)}
        for row in rows:
            assert {a for a, _ in row.map} <= known, overload
