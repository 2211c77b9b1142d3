"""What a program needs: every operator call with its types, where it stands in the model's source, and whether
something covers it.

    inv = inventory(captured)                 statuses `mapped` (the aten table names an op) or `missing`
    inv = judge(inv, covers)                  `covered` or `missing`, by `covers(op, request) -> True | reason`

A request is what the runtime's miss hook gets (docs/internals.md): `{"op", "inputs": [{"dtype", "rank", "weak"}, …],
"attrs": {…}}`.  May import: ir, generator.types, generator.errors.  To add a fact: a field of `Item`, its line in
`_item` and in `to_json`/`from_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import OpwrightError
from ..types import default_dtype
from .ir import Arg, Call, Program, ScalarArg, attr_json, number_json

__all__ = ["Covers", "Inventory", "Item", "Row", "inventory", "judge", "request_of"]

SCHEMA = 1
#: True, or why not.
Covers = Callable[[str, dict[str, Any]], "bool | str"]


class InventoryError(OpwrightError):
    """An inventory that cannot be read."""


@dataclass(frozen=True)
class Item:
    """One call.  `inputs` and `outputs` hold `{"dtype", "rank", "shape", "strides"}` (extents as text), None, a list
    for a list input, or `{"dtype", "rank": 0, "weak": true, "value"}` for a Python scalar."""

    id: str
    op: str
    overload: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    site: Mapping[str, Any]
    status: str
    why: str = ""

    def __hash__(self) -> int:
        return hash((self.id, self.op))

    @property
    def request(self) -> dict[str, Any]:
        """What `covers` is asked."""
        return {"op": self.op, "inputs": [_asked(i) for i in self.inputs], "attrs": dict(self.attrs)}

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the inputs in order, lists in brackets."""
        return tuple(_dtype(i) for i in self.inputs)

    @property
    def ranks(self) -> tuple[Any, ...]:
        return tuple(
            None if i is None else tuple(x["rank"] for x in i if x) if isinstance(i, list) else i["rank"]
            for i in self.inputs
        )

    @property
    def where(self) -> str:
        file = str(self.site.get("file", "")).rpartition("/")[2]
        return f"{file}:{self.site.get('line', 0)}" if file else str(self.site.get("module", ""))


@dataclass(frozen=True)
class Row:
    """Calls of one op on the same dtypes, together."""

    op: str
    overload: str
    dtypes: tuple[str, ...]
    ranks: tuple[Any, ...]
    count: int
    status: str
    why: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Inventory:
    """All calls of a program, in order."""

    name: str
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.items))

    @property
    def missing(self) -> tuple[Item, ...]:
        return tuple(i for i in self.items if i.status == "missing")

    def rows(self) -> tuple[Row, ...]:
        """Calls grouped by op, overload, dtypes and status; the missing first, then by op."""
        groups: dict[Any, list[Item]] = {}
        for i in self.items:
            groups.setdefault((i.status != "missing", i.op, i.overload, i.dtypes, i.why), []).append(i)
        out: list[Row] = []
        for key in sorted(groups):
            items = groups[key]
            first = items[0]
            ranks = tuple(dict.fromkeys(i.ranks for i in items))
            sites = tuple(dict.fromkeys(i.where for i in items))
            out.append(
                Row(first.op, first.overload, first.dtypes, ranks, len(items), first.status, first.why, sites)
            )
        return tuple(out)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "notes": list(self.notes),
            "meta": dict(self.meta),
            "calls": [asdict(i) for i in self.items],
        }

    @classmethod
    def from_json(cls, data: Any) -> Inventory:
        """Raises `InventoryError`."""
        try:
            if data["schema"] != SCHEMA:
                raise InventoryError(
                    f"an inventory of schema {data['schema']}, not {SCHEMA}", hint="capture the model again"
                )
            items = tuple(
                Item(**{**c, "inputs": tuple(c["inputs"]), "outputs": tuple(c["outputs"])})
                for c in data["calls"]
            )
            return cls(data["name"], items, tuple(data["notes"]), data["meta"])
        except (KeyError, TypeError) as e:
            raise InventoryError(f"not an inventory: {e}", hint="capture the model again") from e

    def show(self) -> str:
        """A line for each row, as people read it."""
        lines = [
            f"{self.name}: {len(self.items)} calls, {len({i.op for i in self.items})} operators, "
            f"{len(self.missing)} calls missing"
        ]
        for r in self.rows():
            why = f"  {r.why}" if r.why else ""
            sites = ", ".join(r.sites[:3]) + (", …" if len(r.sites) > 3 else "")
            lines.append(f"  {r.status:8} {r.op:28} {r.count:4} × ({', '.join(r.dtypes)})  {sites}{why}")
        return "\n".join(lines) + "\n"


def _asked(i: Any) -> Any:
    if i is None:
        return None
    if isinstance(i, list):
        return [_asked(x) for x in i]
    return {"dtype": i["dtype"], "rank": i["rank"], "weak": bool(i.get("weak", False))}


def _dtype(i: Any) -> str:
    if i is None:
        return "-"
    if isinstance(i, list):
        kinds = list(dict.fromkeys(_dtype(x) for x in i))
        return f"[{', '.join(kinds)}]"
    return f"{i['dtype']} scalar" if i.get("weak") else str(i["dtype"])


def _argument(p: Program, arg: Arg) -> Any:
    if isinstance(arg, ScalarArg):
        value = number_json(arg.value)
        known = 0 if isinstance(value, dict) and "sym" in value else arg.value
        return {"dtype": default_dtype(known).value, "rank": 0, "weak": True, "value": value}
    if isinstance(arg, tuple):
        return [_argument(p, a) for a in arg]
    if arg is None:
        return None
    v = p.values[arg]
    return {
        "dtype": v.dtype.value,
        "rank": v.rank,
        "shape": [str(n) for n in v.shape],
        "strides": [str(n) for n in v.strides],
    }


def request_of(p: Program, call: Call) -> dict[str, Any]:
    """The request that a call makes to the runtime's miss hook."""
    return {
        "op": call.op,
        "inputs": [_asked(_argument(p, a)) for a in call.inputs],
        "attrs": {k: attr_json(v) for k, v in call.attrs.items()},
    }


def _item(p: Program, call: Call, site: Any) -> Item:
    where = (
        asdict(site)
        if site is not None
        else {"file": "", "line": 0, "function": "", "text": "", "module": call.site}
    )
    # Installed code is named from its package on: the same on every machine.
    for mark in ("/site-packages/", "/dist-packages/"):
        where["file"] = str(where["file"]).rpartition(mark)[2] or where["file"]
    return Item(
        call.id,
        call.op,
        call.aten,
        tuple(_argument(p, a) for a in call.inputs),
        tuple(_argument(p, o) for o in call.out),
        {k: attr_json(v) for k, v in call.attrs.items()},
        where,
        "missing" if call.missing else "mapped",
        call.why,
    )


def inventory(
    p: Program,
    sites: Mapping[str, Any] | None = None,
    *,
    notes: Iterable[str] = (),
    meta: Mapping[str, Any] | None = None,
) -> Inventory:
    """Every call of a program; `sites` by call id (`Capture.sites`)."""
    sites = sites or {}
    return Inventory(
        p.name, tuple(_item(p, c, sites.get(c.id)) for c in p.calls), tuple(notes), dict(meta or {})
    )


def judge(inv: Inventory, covers: Covers) -> Inventory:
    """Ask `covers` about every call that has an op; equal requests are asked once."""
    answers: dict[str, bool | str] = {}
    items: list[Item] = []
    for i in inv.items:
        if i.op.startswith("missing:"):
            items.append(i)
            continue
        key = repr(i.request)
        if key not in answers:
            answers[key] = covers(i.op, i.request)
        said = answers[key]
        covered = said is True
        items.append(
            replace(
                i,
                status="covered" if covered else "missing",
                why=""
                if covered
                else said or f"nothing covers {i.op} for these types"
                if isinstance(said, str)
                else f"nothing covers {i.op} for these types",
            )
        )
    return replace(inv, items=tuple(items))
