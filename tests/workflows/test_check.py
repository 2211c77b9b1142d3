"""`check`, `show`, `ops`, `explain`, `cache`: what is read and printed without a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opwright.generator.spec import load_spec_text
from opwright.validators import overloads
from opwright.validators.evidence import Evidence, Proof
from opwright.validators.overloads import Overloads
from opwright.workflows.check import warnings_of
from opwright.workflows.ops import unjudged
from opwright.workflows.workbench import Workbench


def test_check_counts_the_keys_of_an_operator(ow: Any, project: Path) -> None:
    (row,) = ow("check", "scale", "--json").json["ops"]
    assert row["keys"] == 4 and row["grad"] == "derived" and row["family"] == "tiny"


def test_check_of_a_file_does_not_read_the_others(ow: Any, project: Path) -> None:
    (project / "specs" / "tiny" / "broken.yaml").write_text("op: broken\ninputs: 3\n")
    assert ow("check", "specs/tiny/scale.yaml").code == 0
    assert ow("check", "scale").code == 0
    assert ow("check", "broken").code == 2


def test_check_says_every_mistake_of_a_file_with_line_and_caret(ow: Any, project: Path) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    text = path.read_text().replace("dims:", "dimms:").replace("A(by)", "A(bye)")
    path.write_text(text)
    ran = ow("check", str(path))
    assert ran.code == 2 and "Traceback" not in ran.err
    assert "specs/tiny/scale.yaml:4:1: error:" in ran.err and "did you mean `dims`?" in ran.err
    assert "^" in ran.err


def test_check_finds_what_only_a_key_shows(ow: Any, project: Path) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    path.write_text(path.read_text().replace("T(A(x[*B]) * A(by))", "A(x[*B]) * A(by)"))
    ran = ow("check", "scale")
    assert ran.code == 2 and "scale.yaml:9" in ran.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[normal]", "[normal, halfs]", "did you mean `halves`?"),
        ("{B: [0]}", "{B: [0], by: -1.0}", "case 1 is no call that `scale` takes: scale: requires by >= 0"),
        ("type: float", "type: number", "types of attributes: axes, axis, bool"),
        ("A(by)", "A(x[*B])^2", "hint: a power is `**`"),
        ("T(A(x[*B]) * A(by))", "x[*B] * x[*B]", "`*` on f16, bf16 would round"),
    ],
)
def test_check_says_what_to_write_and_once(ow: Any, project: Path, old: str, new: str, words: str) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    path.write_text(
        path.read_text().replace("compute: |", 'require: ["by >= 0"]\ncompute: |').replace(old, new)
    )
    ran = ow("check", "scale")
    assert ran.code == 2 and words in ran.err and ran.err.count(" error: ") == 1, ran.err


def test_what_nothing_reads_is_warned_of(ow: Any, project: Path) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    text = path.read_text().replace("attrs: {", "attrs: {idle: {type: int, default: 0}, ")
    path.write_text(text.replace("  y[*B] =", "  t[*B] = A(x[*B])\n  t[*B] += A(x[*B])\n  y[*B] ="))
    ran = ow("check", "scale")
    assert ran.code == 0 and ran.err.count("warning:") == 2, ran.err
    assert "scale.yaml:6:9: warning: the attribute `idle` changes nothing" in ran.err
    first, second = ow("check", "scale", "--json").json["warnings"]
    assert first["line"] == 6 and second["message"].startswith("the temporary `t` is written in compute")


def test_no_operator_of_ours_is_warned_of() -> None:
    own = Workbench.here().own()
    assert [w for s in own for w in warnings_of(s)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{[}", "error:"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "error:"),
        ("op: ../../etc/passwd\ncompute: y = 1\n", "op"),
        ("", "no operator in this file"),
        ("op: x\nop: y\n", "error:"),
    ],
)
def test_check_refuses_what_is_no_spec_in_one_clear_error(
    ow: Any, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    ran = ow("check", str(path))
    assert ran.code == 2, ran.err
    assert words in ran.err and "Traceback" not in ran.err and "internal" not in ran.err


def test_check_refuses_fifty_megabytes_quickly(ow: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("doc: x\n" * (50_000_000 // 7))
    ran = ow("check", str(path))
    assert ran.code == 2 and len(ran.err) < 2000


@pytest.mark.parametrize("name", ["../x", "nope", "no/such.yaml", "a:b"])
def test_an_operator_that_there_is_not_is_a_wrong_request(ow: Any, project: Path, name: str) -> None:
    ran = ow("show", name)
    assert ran.code == 2 and ran.err.startswith("error: ")


@pytest.mark.parametrize("level", ["spec", "bound", "normal", "grad"])
def test_show_prints_each_level(ow: Any, project: Path, level: str) -> None:
    ran = ow("show", "scale", "--level", level)
    assert ran.code == 0 and "by" in ran.out


def test_show_takes_the_key_that_is_asked_for(ow: Any, project: Path) -> None:
    assert "x: bf16[" in ow("show", "scale", "--key", "T=bf16").out
    ran = ow("show", "scale", "--key", "T=i64")
    assert ran.code == 2 and "has no key with T=i64" in ran.err
    assert "has no `Q`" in ow("show", "scale", "--key", "Q=f32").err


def test_ops_lists_the_workbench_s_own_beside_the_built_in_ones(ow: Any, project: Path) -> None:
    with (project / "specs" / "tiny" / "scale.yaml").open("a") as spec:
        spec.write("aten: [{overload: tiny.scale.default, map: {self: x, other: by}}]\n")
    rows = {r["name"]: r for r in ow("ops", "--json").json["ops"]}
    assert rows["scale"]["state"] == "absent" and rows["scale"]["aten"] == ["tiny.scale.default"]
    assert rows["scale"]["dtypes"] == ["f16", "bf16", "f32", "f64"]
    assert rows["softmax"]["family"] == "norm" and len(rows["softmax"]["meaning"]) == 64
    assert set(rows["softmax"]) >= {"name", "family", "aten", "onnx", "dtypes", "meaning", "targets"}


def test_ops_tells_what_no_kernel_was_judged_of() -> None:
    spec = load_spec_text(
        'op: t\ntypes: {T: float, I: index, A: accum(T)}\ninputs: {x: "T[N]", i: "I[N]", m: "bool[N]"}\n'
        'outputs: {y: "A[N]"}\ncompute: |\n  y[n] = A(x[i[n]]) if m[n] else 0\n'
    )[0]
    proof = Proof("t", {}, "quick", ("A=f32, I=i64, T=f32", "A=f64, I=i64, T=f64"))
    assert unjudged(spec, Evidence("t", "m", "s", {"cpu-avx2": proof})) == ["i32", "f16", "bf16"]


def test_explain_reads_the_class_itself(ow: Any) -> None:
    ran = ow("explain", "DomainError")
    assert ran.code == 0 and "outside what a spec admits" in ran.out and "exit code 2" in ran.out
    near = ow("explain", "DomainEror")
    assert near.code == 2 and "did you mean `DomainError`?" in near.err


def test_every_error_class_says_what_it_means(ow: Any) -> None:
    rows = ow("explain", "--json").json["errors"]
    assert len(rows) > 20
    assert [r["error"] for r in rows if not r["means"]] == []
    assert {r["exit_code"] for r in rows} <= {1, 2, 3, None}


def test_cache_tells_prunes_and_clears(ow: Any, fresh_cache: Path) -> None:
    from opwright import toolchain

    toolchain.compile_library(
        {"a.cpp": 'extern "C" int a(void) { return 1; }\n'}, name="a", dialect="cpu-portable"
    )
    assert ow("cache", "info", "--json").json["files"] == 1
    assert ow("cache", "prune", "--to", "1G").out == "removed 0 B\n"
    assert ow("cache", "clear").code == 0
    assert ow("cache", "info", "--json").json["files"] == 0
    assert ow("cache", "prune", "--to", "much").code == 2


def test_doctor_finds_what_this_machine_has_and_lacks(
    ow: Any, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    ran = ow("doctor", "--json")
    found = {c["name"]: c for c in ran.json["checks"]}
    assert ran.code == 0 and ran.json["ok"] and found["compiler"]["state"] == "ok"
    monkeypatch.setenv("OPWRIGHT_CXX", "no-such-compiler")
    ran = ow("doctor")
    assert ran.code == 3 and "no-such-compiler" in ran.out


def test_doctor_refuses_a_cache_that_others_can_write_to(ow: Any, fresh_cache: Path) -> None:
    fresh_cache.mkdir()
    fresh_cache.chmod(0o777)
    ran = ow("doctor", "--json")
    cache = next(c for c in ran.json["checks"] if c["name"] == "cache")
    assert ran.code == 3 and cache["state"] == "missing" and "others can write" in cache["value"]


def test_a_composition_that_is_not_there_is_told(ow: Any, project: Path) -> None:
    path = project / "specs" / "tiny" / "scale.yaml"
    path.write_text(path.read_text() + "reference: compositions.silu_and_mull\n")
    ran = ow("check", "scale")
    assert ran.code == 2 and "did you mean `silu_and_mul`?" in ran.err


def test_an_overload_that_is_not_there_is_told(
    ow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Overloads("2.0", {"aten.mul.Scalar": {"self": ["Tensor"], "other": ["number"]}})
    monkeypatch.setattr(overloads, "known", lambda: there)
    path = project / "specs" / "tiny" / "scale.yaml"
    path.write_text(path.read_text() + "aten: [aten.mul.Scalr]\n")
    ran = ow("check", "scale")
    assert ran.code == 2 and "did you mean `aten.mul.Scalar`?" in ran.err
