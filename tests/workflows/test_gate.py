"""`gate`: a change that keeps what was proven is green; one that does not is red, and says of what."""

from __future__ import annotations

import contextlib
import io
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import git
import pytest

from opwright.workflows import cli, enable, records
from opwright.workflows.gate import Check, junit, same_names, shown_rows
from opwright.workflows.workbench import Workbench

from .conftest import SCALE

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small workbench in git, its operator accepted; the tests work on copies."""
    root = tmp_path_factory.mktemp("gate") / "project"
    (root / "specs" / "tiny").mkdir(parents=True)
    (root / "opwright.toml").write_text('schema = 1\n[paths]\nspecs = ["specs"]\n')
    (root / "specs" / "tiny" / "scale.yaml").write_text(SCALE)
    (root / ".gitignore").write_text("build/\n")
    with contextlib.chdir(root), contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["accept", "scale"]) == 0
    found = git.Repo.init(root)
    with found.config_writer() as config:
        config.set_value("user", "name", "Somebody")
        config.set_value("user", "email", "somebody@example.org")
    commit(found, "one operator")
    return root


@pytest.fixture
def repo(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> git.Repo:
    """A copy of the workbench, as the working directory."""
    shutil.copytree(template, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return git.Repo(tmp_path / "copy")


def commit(repo: git.Repo, message: str) -> str:
    repo.git.add("--all")
    return str(repo.index.commit(message).hexsha)


def states(ran: Any) -> dict[tuple[str, str], str]:
    return {(c["check"], c["name"]): c["state"] for c in ran.json["checks"]}


def spec_of(repo: git.Repo) -> Path:
    return Path(repo.working_tree_dir or "") / "specs" / "tiny" / "scale.yaml"


def test_nothing_changed_is_green_and_the_sample_reproduces(ow: Any, repo: git.Repo, tmp_path: Path) -> None:
    ran = ow("gate", "--base", "HEAD", "--json", "--junit", str(tmp_path / "gate.xml"))
    assert ran.code == 0, ran.out + ran.err
    assert states(ran) == {("evidence", "scale"): "ok", ("judged", "scale"): "ok"}
    assert ran.json["diff"] == [] and ran.json["files"] == []
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")


def test_a_changed_meaning_is_stale_until_it_is_accepted_and_shows_its_diff(ow: Any, repo: git.Repo) -> None:
    path = spec_of(repo)
    path.write_text(path.read_text().replace("A(x[*B]) * A(by)", "A(x[*B]) * A(by) + A(by)"))
    ran = ow("gate", "--base", "HEAD", "--json")
    assert ran.code == 1
    assert states(ran)[("evidence", "scale")] == "red"
    assert any(line.startswith("+") and "by" in line for line in ran.json["diff"])
    assert ran.json["files"] == ["specs/tiny/scale.yaml"]
    assert ow("accept", "scale").code == 0
    assert ow("gate", "--base", "HEAD", "--json").code == 0


def test_evidence_that_was_edited_or_lost_is_red(ow: Any, repo: git.Repo) -> None:
    path = Path(repo.working_tree_dir or "") / "evidence" / "ops" / "scale.yaml"
    text = path.read_text()
    path.write_text(text.replace("state: passed", "state: failed", 1))
    ran = ow("gate", "--base", "HEAD", "--json")
    assert ran.code == 1 and states(ran)[("judged", "scale")] == "red"
    path.unlink()
    ran = ow("gate", "--base", "HEAD", "--json", "--sample", "0")
    assert ran.code == 1 and states(ran)[("evidence", "scale")] == "red"


def test_a_new_operator_needs_evidence(ow: Any, repo: git.Repo) -> None:
    other = spec_of(repo).with_name("shift.yaml")
    other.write_text(
        spec_of(repo).read_text().replace("op: scale", "op: shift").replace("* A(by)", "+ A(by)")
    )
    ran = ow("gate", "--base", "HEAD", "--sample", "0")
    assert ran.code == 1 and "opwright accept shift" in ran.out
    green, red = (sum(f" {word} " in f"{line} " for line in ran.out.splitlines()) for word in ("ok", "red"))
    assert f"{green + red} checks: {green} ok, {red} red, 0 skipped" in ran.err, ran.out + ran.err


def test_a_wrong_request_is_said(
    ow: Any, repo: git.Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no revision `nowhere`" in ow("gate", "--base", "nowhere").err
    assert ow("gate", "--base=--output=x").code == 2
    assert ow("gate").code == 2
    monkeypatch.chdir(tmp_path)
    ran = ow("gate", "--base", "HEAD")
    assert ran.code == 2 and "no git repository" in ran.err


def test_the_rows_add_up_to_the_checks() -> None:
    found = [
        Check("evidence", f"op{k}", "red" if k == 3 else "ok", "gone" if k == 3 else "") for k in range(5)
    ]
    rows = shown_rows([*found, Check("judged", "op0", "ok", "sample")])
    assert rows == [
        ("evidence", "op3", "red", "gone"),
        ("evidence", "4 checks", "ok", ""),
        ("judged", "op0", "ok", ""),
    ]


def test_junit_escapes_what_it_says() -> None:
    text = junit([Check("judged", 'a<"b"', "red", "x < y & z", 1.5), Check("model", "m", "skipped", "later")])
    suite = ElementTree.fromstring(text)
    cases = list(suite)
    assert cases[0].get("name") == 'a<"b"' and cases[0][0].text == "x < y & z"
    assert cases[1][0].tag == "skipped" and suite.get("skipped") == "1"


def test_names_of_kernels_do_not_show_in_a_diff() -> None:
    assert same_names("ow_0123456789abcdef(ow_fedcba9876543210)") == same_names(
        "ow_aaaaaaaaaaaaaaaa(ow_bbbbbbbbbbbbbbbb)"
    )


def test_record_turns_claims_into_verified_ones_all_at_one_commit(
    ow: Any, repo: git.Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models themselves are enabled elsewhere; here each holds what it held, but the last."""
    levels: dict[str, bool | None] = {n: n <= "L2" for n in records.LEVELS}
    bench = Workbench.here()
    hashes = enable.hashes_now(bench, ["scale"])
    for name in ("bert", "llama", "vit"):
        claim = records.Attempt(
            name, "cpu", "f32", records.now(), f"transformers:{name}", levels=levels, hashes=hashes
        )
        records.append(bench.config.support, claim)
    head = commit(repo, "three claims")

    def enabled(bench: Workbench, target: str, *_: Any, **__: Any) -> enable.Result:
        failed = "parity: it does not hold L2" if target == "vit" else ""
        held: dict[str, bool | None] = levels | {"L2": False} if failed else dict(levels)
        return enable.Result(
            target, "cpu", "f32", f"transformers:{target}", levels=held, failed=failed, hashes=dict(hashes)
        )

    monkeypatch.setattr(enable, "enable_target", enabled)
    ran = ow("gate", "--base", "HEAD", "--record", "--json")
    assert ran.code == 1
    said = {name: state for (check, name), state in states(ran).items() if check == "model"}
    assert said == {"bert cpu f32": "ok", "llama cpu f32": "ok", "vit cpu f32": "red"}
    rows = {
        r["architecture"]: r
        for r in ow("report", *(["bert", "llama", "vit"]), "--json").json["architectures"]
    }
    assert {n: r["state"] for n, r in rows.items()} == {
        "bert": "verified",
        "llama": "verified",
        "vit": "stale",
    }
    # the first record made the tree dirty; the second still says which commit was run
    newest = {a: records.load(bench.config.support, a)[-1] for a in ("bert", "llama")}
    assert {(a.commit, a.dirty, a.by) for a in newest.values()} == {(head, False, "gate")}
    assert rows["vit"]["level"] is None and "does not hold L2" in rows["vit"]["reason"]


def test_a_new_composition_joins_bases_judge_for_new_operators_alone(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from opwright.workflows.gate import _Gate

    base, head = tmp_path / "base", tmp_path / "head"
    for tree, names in ((base, ["old"]), (head, ["old", "brought"])):
        for folder in ("validators", "generator", "workflows", "runtime/python"):
            (tree / folder).mkdir(parents=True)
        (tree / "validators" / "judge.py").write_text(f"# {tree.name}")
        (tree / "validators" / "compositions.py").write_text("".join(f"def {n}(x): ...\n" for n in names))
    gate: Any = SimpleNamespace(root=head, tree=base, work=tmp_path)

    def spec(op: str, composition: str) -> Any:
        return SimpleNamespace(op=op, reference=f"compositions.{composition}")

    specs = [spec("new", "brought"), spec("also_new", "old"), spec("there", "brought")]
    found = _Gate.with_new_compositions(gate, specs, {"there": specs[2]})
    assert list(found) == ["new"]
    judge = found["new"] / "opwright" / "validators"
    assert (judge / "judge.py").read_text() == "# base"
    assert "brought" in (judge / "compositions.py").read_text()
