"""`opwright new`: the first draft of a spec, by itself, like another operator, or from a PyTorch overload.

The draft is a spec that reads; what a person must decide is marked with `# …` on its line.  From an overload whose
decomposition is elementwise it is whole (derive_spec.py); else it has the overload's arguments.
May import: workbench, generator.spec; asks child processes about overloads, for that needs torch.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..files import write_text
from ..generator.errors import MachineError, OpwrightError
from ..generator.expr import show
from ..generator.spec import OpSpec, load_spec_text
from . import console
from .command import command, json_option
from .workbench import Workbench, folder_name

__all__ = ["new", "spec_yaml", "undecided"]

_NAME = re.compile(r"([a-z][a-z0-9_]*::)?[a-z][a-z0-9_]*")


class NewError(OpwrightError):
    """A draft cannot be made: its name, its family, or what it should be like."""


def _q(text: str) -> str:
    """A YAML scalar in flow style."""
    plain = (
        re.fullmatch(r"[A-Za-z_][\w.]*( [\w.]+)*|[\w.]+\([\w., ]*\)", text) is not None and ", " not in text
    )
    return text if plain and text not in ("null", "true", "false") else json.dumps(text, ensure_ascii=False)


def _flow(pairs: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{k if k.isidentifier() else json.dumps(k)}: {v}" for k, v in pairs.items()) + "}"


def _attr(spec: OpSpec, name: str) -> str:
    a = spec.attrs[name]
    out: dict[str, str] = {"type": _q(("optional " if a.optional else "") + a.kind)}
    if a.kind == "enum":
        out["type"] = json.dumps(f"enum[{', '.join(a.values)}]")
    if a.default_expr is not None:
        out["default"] = json.dumps(show(a.default_expr))
    elif a.has_default:
        out["default"] = json.dumps(list(a.default) if isinstance(a.default, tuple) else a.default)
    if isinstance(a.static, tuple):
        out["static"] = json.dumps(f"in ({', '.join(map(str, a.static))})")
    elif a.static:
        out["static"] = a.static if isinstance(a.static, str) else "true"
    if a.empty:
        out["empty"] = a.empty
    return _flow(out)


def spec_yaml(spec: OpSpec, name: str, doc: str = "") -> str:
    """A spec as YAML under another name, without what ties it to its origin (aten, onnx, lower, bench)."""
    lines = [f"op: {name}", f"doc: {_q(doc or spec.doc)}"]

    def flow(field: str, pairs: Mapping[str, str]) -> None:
        if pairs:
            lines.append(f"{field}: {_flow(pairs)}")

    flow("types", {k: _q(show(v)) for k, v in spec.types.items()})
    flow(
        "dims",
        {
            k: d.kind if d.rank is None else _flow({"kind": d.kind, "rank": _q(show(d.rank))})
            for k, d in spec.dims.items()
        },
    )
    flow("let", {("*" if d.pack else "") + k: json.dumps(show(d.expr)) for k, d in spec.let.items()})
    flow("sizes", {k: json.dumps(show(v)) for k, v in spec.sizes.items()})
    flow("inputs", {k: json.dumps(t.show()) for k, t in spec.inputs.items()})
    flow("attrs", {k: _attr(spec, k) for k in spec.attrs})
    flow("outputs", {k: json.dumps(t.show()) for k, t in spec.outputs.items()})
    if spec.require:
        lines.append("require: [" + ", ".join(json.dumps(r.text) for r in spec.require) + "]")
    lines.append("compute: |")
    lines += [f"  {line}" for line in spec.compute_text.rstrip("\n").splitlines()]
    if g := spec.grad:
        if g.none is not None:
            flow("grad", {"none": _q(g.none)})
        else:
            flow("grad", {"wrt": f"[{', '.join(g.wrt)}]", "derive": "true"})
    t = spec.test
    lines.append("test:")
    if t.cases:
        lines.append("  cases: [" + ", ".join(json.dumps(c) for c in t.cases) + "]")
    if t.values:
        lines.append(f"  values: [{', '.join(t.values)}]")
    lines.append(f"  tol: {t.tol}")
    return "\n".join(lines) + "\n"


_PLAIN = """\
op: {name}
doc: {doc}                              # one sentence: what it computes
types: {{T: float, A: accum(T)}}       # T: which dtypes; A: what it is computed in
dims: {{B: batch}}                     # *B: any number of axes
inputs: {{x: "T[*B]"}}
outputs: {{y: "T[*B]"}}
compute: |                           # the meaning, as statements over indices
  y[*B] = T(A(x[*B]))
grad: {{wrt: [x], derive: true}}
test:
  cases: [{{B: [7, 5]}}, {{B: [0, 3]}}, {{B: []}}]
  layouts: [contiguous, transposed, sliced]
  values: [normal, zeros, nan_inf, denormal]
  tol: bound
"""

#: What a draft says of an operator before anybody has.
_DRAFT_DOC = re.compile(r"(What|Says what) \S+ computes\.")
_DRAFT_COMPUTE = re.compile(r"\s*\w+\[\*B\] = (T\(A\(\w+\[\*B\]\)\)|\w+\[\*B\])\s*")


def undecided(spec: OpSpec) -> list[tuple[str, str]]:
    """What a draft of ours leaves to a person and nobody has decided yet, as (what, hint)."""
    if not _DRAFT_DOC.fullmatch(spec.doc):
        return []
    out = [("`doc` is still the draft's", "one sentence: what it computes")]
    if _DRAFT_COMPUTE.fullmatch(spec.compute_text):
        out.append(("`compute` is still the draft's, which copies its input", "write the meaning"))
    if not spec.aten and not spec.onnx and spec.reference is None:
        out.append(
            ("nobody is named who says what it means", "`aten:`, `onnx:` or `reference:` (CONTRIBUTING.md)")
        )
    return out


_ASK = """
import json, sys, torch
name, overload = sys.argv[1].removeprefix("aten.").rsplit(".", 1)
packet = getattr(torch.ops.aten, name, None)
schema = getattr(getattr(packet, overload, None), "_schema", None)
if schema is None:
    near = [] if packet is None else [f"aten.{name}.{o}" for o in packet.overloads()]
    print(json.dumps({"missing": near}))
else:
    print(json.dumps({
        "arguments": [{"name": a.name, "type": str(a.type), "default": a.default_value if a.default_value is None or
                       isinstance(a.default_value, (bool, int, float, str)) else list(a.default_value)
                       if isinstance(a.default_value, (list, tuple)) else None, "required": not a.has_default_value()}
                      for a in schema.arguments],
        "returns": [{"name": r.name, "type": str(r.type)} for r in schema.returns]}))
"""


def ask_schema(overload: str) -> dict[str, Any]:
    """The arguments and results of an overload, from torch in a child process."""
    if not re.fullmatch(r"aten\.\w+\.\w+", overload):
        raise NewError(f"`{overload}` is not an overload's name", hint="such as aten.dist.default")
    ran = subprocess.run([sys.executable, "-c", _ASK, overload], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = (ran.stderr.strip().splitlines() or ["no output"])[-1]
        raise MachineError(f"torch does not tell its schema: {said}", hint="pip install 'opwright[models]'")
    data: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    if "missing" in data:
        near = data["missing"]
        raise NewError(
            f"this torch has no overload `{overload}`", hint=f"it has {', '.join(near)}" if near else None
        )
    return data


def ask_derived(name: str, overload: str) -> str:
    """The spec that PyTorch's decomposition of the overload gives, from a child process; empty where it gives none."""
    module = f"{__package__}.derive_spec"
    ran = subprocess.run(
        [sys.executable, "-m", module, name, overload], capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        return ""  # no torch, or no such overload: who asks for its schema says so
    answer: dict[str, str] = json.loads(ran.stdout.strip().splitlines()[-1])
    return answer.get("text", "")


#: PyTorch's argument types that are attributes of ours.
_KINDS = {
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "number": "scalar",
    "Scalar": "scalar",
    "str": "str",
    "List[int]": "ints",
    "List[SymInt]": "ints",
    "List[float]": "floats",
}


def _argument(a: Mapping[str, Any]) -> tuple[str, str] | None:
    """(input or attribute, its text), None for what an operator does not have (layout, device, generator)."""
    kind = str(a["type"])
    optional = kind.startswith("Optional[")
    inner = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    if inner == "Tensor":
        return "input", json.dumps(("optional " if optional else "") + "T[*B]")
    if inner in ("List[Tensor]", "Tensor[]"):
        return "input", json.dumps("list T[*B]")
    if a["name"] in ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"):
        return None
    if inner not in _KINDS:
        return None
    name = "dtype" if a["name"] == "dtype" else {"dim": "axis", "dims": "axes"}.get(a["name"], _KINDS[inner])
    if name == "axis" and _KINDS[inner] == "ints":
        name = "axes"
    out = {"type": _q(("optional " if optional else "") + name)}
    if not a["required"]:
        out["default"] = json.dumps(a["default"])
    return "attr", _flow(out)


def from_schema(name: str, overload: str, schema: Mapping[str, Any]) -> str:
    """A draft with the overload's arguments; what it computes is the person's to write."""
    names = {"self": "x", "input": "x", "dim": "axis", "lambda": "lam"}
    inputs: dict[str, str] = {}
    attrs: dict[str, str] = {}
    pairs: list[str] = []
    for a in schema["arguments"]:
        found = _argument(a)
        if found is None:
            continue
        own = names.get(a["name"], a["name"])
        (inputs if found[0] == "input" else attrs)[own] = found[1]
        pairs.append(f"{a['name']}: {own}")
    outs = [
        r["name"] or ("y" if len(schema["returns"]) == 1 else f"y{k}")
        for k, r in enumerate(schema["returns"])
    ]
    first = next(iter(inputs), None)
    lines = [
        f"op: {name}",
        f"doc: Says what {overload} computes.   # one sentence",
        "types: {T: float, A: accum(T)}",
        "dims: {B: batch}              # give every axis that the meaning speaks of a name of its own",
        f"inputs: {_flow(inputs)}",
        *([f"attrs: {_flow(attrs)}"] if attrs else []),
        f"outputs: {_flow({o: json.dumps('T[*B]') for o in outs})}",
        "compute: |                    # the meaning of every output, as statements over indices",
        *[f"  {o}[*B] = {f'{first}[*B]' if first else '0'}" for o in outs],
        *(["grad: {wrt: [" + str(first) + "], derive: true}"] if first else []),
        "test:",
        "  cases: [{B: [7, 5]}, {B: [0, 3]}, {B: []}]",
        "  values: [normal]",
        "  tol: bound",
        f"aten: [{{overload: {overload}, map: {{{', '.join(pairs)}}}}}]",
    ]
    return "\n".join(lines) + "\n"


def draft(bench: Workbench, name: str, like: str | None, overload: str | None) -> tuple[str, bool]:
    """The text of the draft, which the reader accepts, and whether its meaning was derived."""
    derived = ""
    if like is not None:
        spec = bench.one(like)
        text = spec_yaml(spec, name, f"Like {spec.op}: {spec.doc}")
    elif overload is not None:
        derived = ask_derived(name, overload)
        text = derived or from_schema(name, overload, ask_schema(overload))
    else:
        text = _PLAIN.format(name=name, doc=f"What {name} computes.")
    load_spec_text(text, f"{folder_name(name)}.yaml")  # what we hand out must read
    return text, bool(derived)


def refuse_taken(bench: Workbench, overload: str) -> None:
    """Raises `NewError` where operators serve this overload already: a second spec of it would not be read."""
    rows = bench.registry.by_aten(overload)
    if rows:
        spec = rows[0][0]
        raise NewError(
            f"`{overload}` is the operator `{spec.op}` already",
            place=spec.place,
            hint=f"`opwright new NAME --like {spec.op}` starts from it under another name",
        )


def target_path(bench: Workbench, name: str, family: str) -> Path:
    """Where the draft goes: `<first spec folder>/<family>/<name>.yaml`."""
    config = bench.config
    root = config.specs[0] / "ops" if (config.specs[0] / "ops").is_dir() else config.specs[0]
    return root / family / f"{folder_name(name.rpartition('::')[2])}.yaml"


@command(
    "new",
    example=[
        "opwright new rope2d --family attention",
        "opwright new tanh_cubed --like tanh --family pointwise",
        "opwright new dist --from aten.dist.default --family reduction",
    ],
)
@click.argument("name")
@click.option("--family", default=None, metavar="NAME", help="The folder that it goes to, such as pointwise.")
@click.option("--like", default=None, metavar="OP", help="Start from another operator's spec.")
@click.option(
    "--from",
    "overload",
    default=None,
    metavar="OVERLOAD",
    help="Start from a PyTorch overload: its decomposition, or its arguments.",
)
@json_option
def new(name: str, family: str | None, like: str | None, overload: str | None, as_json: bool) -> int:
    """Write the first draft of a spec.

    NAME gets this workbench's namespace unless it has one.  The draft reads; lines that a person must decide say so.
    """
    if like is not None and overload is not None:
        raise NewError("--like and --from are two beginnings", hint="give one")
    bench = Workbench.here()
    if bench.config.file is None:
        raise NewError(f"{bench.config.root} is no workbench", hint="`opwright init` makes it one")
    full = name if "::" in name or not bench.config.namespace else f"{bench.config.namespace}::{name}"
    if not _NAME.fullmatch(full):
        raise NewError(
            f"`{name}` is no operator's name",
            hint="lower-case letters, digits and _, beginning with a letter",
        )
    if family is not None and not re.fullmatch(r"[a-z][a-z0-9_]*", family):
        raise NewError(f"`{family}` is no family's name", hint="lower-case letters, digits and _")
    if full in bench.registry:
        raise NewError(f"there is an operator `{full}` already", place=bench.registry.get(full).place)
    if overload is not None:
        refuse_taken(bench, overload)
    folder = family or (bench.one(like).family if like else "misc")
    path = target_path(bench, full, folder)
    if path.exists():
        raise NewError(f"{path} is there already", hint="choose another name, or remove it")
    text, derived = draft(bench, full, like, overload)
    write_text(path, text)
    if as_json:
        console.print_json({"op": full, "file": str(path), "derived": derived})
    else:
        console.say(console.short(path))
        console.note(
            f"its meaning is PyTorch's own decomposition; next: `opwright accept {full}` judges it against eager"
            if derived
            else f"next: write its meaning, then `opwright check {full}` and `opwright accept {full}`"
        )
    return 0
