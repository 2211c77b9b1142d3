"""The bridge: what the runtime is told, what it asks, and what it is answered."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwright.exceptions import OpTypeError
from opwright.generator.bound import KernelText
from opwright.generator.errors import DomainError
from opwright.generator.spec import load_spec_text
from opwright.validators import evidence
from opwright.workflows import bridge as bridge_module
from opwright.workflows.bridge import (
    Bridge,
    NoGradientError,
    NotProvenError,
    adjoint_of,
    aten_rows,
    signature,
)
from opwright.workflows.catalog import catalog
from opwright.workflows.workbench import Workbench

SPEC = """\
op: blend
types: {T: "promote(x, w)", A: accum(T)}
dims: {B: broadcast}
inputs: {x: "T[*B]", w: "optional T[*B]", zs: "list T[*B]"}
attrs:
  by: {type: float, default: 2.0}
  size: {type: ints, default: [1, 2]}
  mode: {type: "enum[plain, other]", default: plain}
  axis: {type: axes, default: null}
  scale: {type: optional float, default: null}
outputs: {z: "T[*B]", kept: "aux T[*B]"}
compute: |
  z[*B] = T(A(x[*B]) * A(by))
  kept[*B] = x[*B]
aten: [{overload: tiny.blend.default, map: {self: x, other: w, all: zs, k: by, cut: {only: false}}}]
"""


def prove(project: Path, op: str = "scale") -> None:
    """Evidence for the operator's meaning, as if the judge had written it."""
    bench = Workbench.here(project)
    proof = evidence.Proof("0" * 64, {}, "full")
    found = evidence.Evidence(op, bench.one(op).meaning_hash(), "author only", {"cpu-portable": proof})
    folder = project / "evidence" / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    evidence.evidence_path(folder, op).write_text(evidence.dump(found))


def f32(rank: int, weak: bool = False) -> dict[str, Any]:
    return {"dtype": "f32", "rank": rank, "weak": weak}


def test_a_signature_says_what_may_be_left_out() -> None:
    (spec,) = load_spec_text(SPEC)
    found = signature(spec)
    assert [i["optional"] for i in found["inputs"]] == [False, True, False]
    assert [i["list"] for i in found["inputs"]] == [False, False, True]
    attrs = {a["name"]: a for a in found["attrs"]}
    assert attrs["by"]["default"] == 2.0 and not attrs["by"]["optional"] and not attrs["by"]["static"]
    assert attrs["size"]["default"] == [1, 2]
    assert attrs["mode"]["static"] and attrs["axis"]["optional"] and attrs["scale"]["optional"]
    assert found["outputs"] == [{"name": "z", "aux": False}, {"name": "kept", "aux": True}]


def test_the_capture_s_table_has_the_spec_s_own_order() -> None:
    (row,) = aten_rows(load_spec_text(SPEC))["tiny.blend.default"]
    assert row.inputs == ("x", "w", "zs") and row.attrs == ("by", "size", "mode", "axis", "scale")
    assert row.returns == ("z",) and row.outputs == ("z", "kept")
    assert row.map[-1][1].value is False  # type: ignore[union-attr]


def test_a_request_is_answered_with_a_library_its_row_and_the_casts(project: Path) -> None:
    prove(project)
    bridge = Bridge(Workbench.here(project), "cpu-portable")
    asked = {"op": "scale", "inputs": [f32(2)], "attrs": {"by": 3.0}}
    first, again, other = bridge.resolve_many(
        [asked, asked, {**asked, "inputs": [{**f32(1), "dtype": "bf16"}]}]
    )
    assert first == again and Path(first["library"]).is_file()
    assert first["row"]["op"] == "scale" and first["casts"] == [None]
    assert first["row"]["symbol"] != other["row"]["symbol"]


def test_a_call_outside_of_the_domain_is_refused(project: Path) -> None:
    prove(project)
    bridge = Bridge(Workbench.here(project))
    with pytest.raises(OpTypeError, match="i64"):
        bridge({"op": "scale", "inputs": [{**f32(1), "dtype": "i64"}], "attrs": {}})


def test_only_what_was_proven_serves(project: Path) -> None:
    bridge = Bridge(Workbench.here(project))
    asked = {"op": "scale", "inputs": [f32(2)], "attrs": {}}
    with pytest.raises(NotProvenError, match="scale"):
        bridge.wanted(asked)
    prove(project)
    assert Bridge(Workbench.here(project)).wanted(asked).spec.op == "scale"


def test_the_catalog_follows_specs_and_evidence(project: Path, fresh_cache: Path) -> None:
    def names() -> set[str]:
        return {n for n in catalog(Workbench.here(project)).serves if n in ("scale", "shift")}

    assert names() == set()
    prove(project)
    assert names() == {"scale"} == names()
    path = project / "specs" / "tiny" / "scale.yaml"
    (path.parent / "shift.yaml").write_text(path.read_text().replace("op: scale", "op: shift"))
    prove(project, "shift")
    assert names() == {"scale", "shift"}
    path.write_text(path.read_text().replace("A(by)", "A(by) * A(by)"))
    assert names() == {"shift"}, "a changed meaning does not serve"


def test_a_spoilt_or_missing_cache_costs_time_only(
    project: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(project)
    assert "scale" in catalog(Workbench.here(project)).serves
    for path in (fresh_cache / "catalog").rglob("*.json"):
        path.write_text('{"schema": 1, "rows": [')
    assert "scale" in catalog(Workbench.here(project)).serves
    (fresh_cache.parent / "file").write_text("")
    monkeypatch.setenv("OPWRIGHT_CACHE", str(fresh_cache.parent / "file"))
    assert "scale" in catalog(Workbench.here(project)).serves


def test_a_gradient_is_promised_for_floats_only(project: Path) -> None:
    bench = Workbench.here(project)
    from opwright.generator.bind_key import keys_of
    from opwright.generator.types import DType
    from opwright.workflows.bridge import differentiable

    add = bench.one("add")
    keys = {k.types[1][1]: k for k in keys_of(add, (DType.F32, DType.I64))}
    assert differentiable(add, keys["f32"]) == ("a", "b") and differentiable(add, keys["i64"]) == ()
    with pytest.raises(NoGradientError):
        adjoint_of(add, keys["i64"])


def test_import_opwright_finds_the_workbench_by_its_entry_point(project: Path) -> None:
    prove(project)
    code = "import opwright as ow; print('scale' in dir(ow.ops), ow.ops.scale(2.0, by=4.0).numpy())"
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=project, check=False
    )
    assert ran.stdout == "True 8.0\n", ran.stderr


def test_what_only_its_author_vouches_for_counts_for_no_model(project: Path) -> None:
    bench = Workbench.here(project)
    spec = bench.one("scale")
    assert bench.is_its_authors_only(spec), "it names no other text"
    prove(project)
    bench = Workbench.here(project)
    assert bench.is_proven(spec) and bench.is_its_authors_only(spec)
    path = evidence.evidence_path(project / "evidence" / "ops", "scale")
    path.write_text(path.read_text().replace("author only", "numpy.multiply"))
    assert not Workbench.here(project).is_its_authors_only(spec)
    assert not bench.is_its_authors_only(bench.registry.get("add"))


GROUP = """\
op: group:{name}
inputs: {{x0: "f32[*B]"}}
outputs: {{y: "f32[*B]"}}
compute: |
  y[*B] = x0[*B]
"""


def test_a_group_is_the_one_that_the_program_calls(project: Path) -> None:
    """Files of two programs that were mixed must not compute something else."""
    path = project / "0123456789abcdef.yaml"
    path.write_text(GROUP.format(name="fedcba9876543210"))
    with pytest.raises(NotProvenError, match="holds `group:fedcba9876543210`"):
        Bridge(Workbench.here(project)).group(str(path), "group:0123456789abcdef")


def test_a_call_of_a_group_with_other_inputs_is_refused() -> None:
    (spec,) = load_spec_text(GROUP.format(name="0123456789abcdef"))
    with pytest.raises(DomainError, match="has 1 inputs, the call gives 2"):
        Bridge.resolve(spec, {"op": spec.op, "inputs": [f32(1), f32(1)], "attrs": {}})


def test_what_is_nested_too_deeply_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    def deep(*_: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("opwright.generator.emit.emit", deep)
    bench = Workbench.here(project)
    bridge = Bridge(bench, "cpu-portable")
    wanted = bridge.resolve(bench.one("scale"), {"op": "scale", "inputs": [f32(1)], "attrs": {"by": 2.0}})
    with pytest.raises(DomainError, match="`scale` is too deeply nested to be compiled"):
        bridge.text(wanted.spec, wanted.resolved.key)


def test_one_that_waits_for_the_judge_says_so(project: Path) -> None:
    asked = "import opwright as ow; from opwright.workflows.bridge import install; install(); ow.ops.scale"
    ran = subprocess.run(
        [sys.executable, "-c", asked], cwd=project, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    said = "its evidence is missing or stale; `opwright accept scale` judges it"
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("AttributeError: the op `scale` is declared, and does not serve") and said in last
    prove(project)
    subprocess.run([sys.executable, "-c", asked], cwd=project, check=True)


def test_who_waits_for_a_compiler_on_a_terminal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def patience(what: str) -> contextlib.AbstractContextManager[None]:
        said.append(what)
        return contextlib.nullcontext()

    monkeypatch.setattr("opwright.toolchain.patience", patience)
    texts = [KernelText(f"ow_{k}", "", {"op": f"op{k}"}, "cpu-portable") for k in range(5)]
    for stream in (io.StringIO(), Terminal()):  # a log, then a terminal
        monkeypatch.setattr(sys, "stderr", stream)
        with bridge_module._said_when_slow(texts), bridge_module._said_when_slow([]):
            pass
    assert said == ["compiling 5 kernels of op0, op1, op2 and 2 more (once; they stay in the cache)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
