"""Inventories: what each call asks, grouped for people, exact in JSON, judged by a callback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opwright.generator.program.inventory import Inventory, InventoryError, inventory, judge, request_of
from opwright.generator.program.ir import Call, ScalarArg

from .small_program import of, small


def made() -> Inventory:
    return inventory(small(), {}, notes=("static",), meta={"seed": 0})


def test_a_request_is_what_the_miss_hook_gets() -> None:
    p = small()
    call = Call(
        "c",
        "op",
        ("v1", None, ("w1", "c1"), ScalarArg(2), ScalarArg(0.5), ScalarArg(True), ScalarArg(of("n1"))),
        {"dim": (0, of("s0")), "value": float("-inf")},
        ("v2",),
    )
    assert request_of(p, call) == {
        "op": "op",
        "inputs": [
            {"dtype": "f32", "rank": 2, "weak": False},
            None,
            [{"dtype": "f32", "rank": 1, "weak": False}, {"dtype": "f32", "rank": 0, "weak": False}],
            {"dtype": "i64", "rank": 0, "weak": True},
            {"dtype": "f32", "rank": 0, "weak": True},
            {"dtype": "bool", "rank": 0, "weak": True},
            {"dtype": "i64", "rank": 0, "weak": True},
        ],
        "attrs": {"dim": [0, {"sym": "s0"}], "value": {"float": "-inf"}},
    }
    assert made().items[0].request == request_of(p, p.calls[0])


def test_json_round_trip() -> None:
    inv = made()
    again = Inventory.from_json(json.loads(json.dumps(inv.to_json())))
    assert again == inv and again.rows() == inv.rows()


@pytest.mark.parametrize(
    "data", [{}, {"schema": 9}, [], None, {"schema": 1, "name": "x", "notes": [], "meta": {}, "calls": [{}]}]
)
def test_what_is_no_inventory(data: Any) -> None:
    with pytest.raises(InventoryError):
        Inventory.from_json(data)


def test_judging_asks_equal_requests_once() -> None:
    asked: list[str] = []

    def covers(op: str, request: dict[str, Any]) -> bool | str:
        asked.append(op)
        return True if op == "mul" else "only f64 is accepted"

    twice = inventory(small())
    twice = Inventory(twice.name, (*twice.items, *twice.items))
    got = judge(twice, covers)
    assert asked == ["mul", "cat"]
    assert [(i.op, i.status, i.why) for i in got.items[:2]] == [
        ("mul", "covered", ""),
        ("cat", "missing", "only f64 is accepted"),
    ]
    assert len(got.missing) == 2


def test_a_plain_no_has_a_reason_too() -> None:
    got = judge(made(), lambda op, request: False)
    assert all(i.status == "missing" and i.why for i in got.items)


def test_missing_calls_are_not_asked_about() -> None:
    p = small()
    p = type(p)(
        **{
            **p.__dict__,
            "nodes": tuple(
                Call(n.id, f"missing:aten.{n.op}", n.inputs, n.attrs, n.out, n.site, n.aten, "nobody has it")
                if isinstance(n, Call)
                else n
                for n in p.nodes
            ),
        }
    )
    inv = inventory(p)
    assert {i.status for i in inv.items} == {"missing"}
    got = judge(inv, lambda op, request: pytest.fail("asked"))
    assert {i.why for i in got.items} == {"nobody has it"}


def test_rows_and_text_for_people() -> None:
    inv = judge(made(), lambda op, request: op == "mul")
    assert [(r.op, r.status, r.count) for r in inv.rows()] == [("cat", "missing", 1), ("mul", "covered", 1)]
    text = inv.show()
    assert text.startswith("small: 2 calls, 2 operators, 1 calls missing\n")
    assert "(f32, f32)" in text and "([f32], -, i64 scalar, f32 scalar, bool scalar, i64 scalar)" in text
