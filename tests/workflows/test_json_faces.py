"""docs/json.md against what the commands print: every shape, every example, and no command with `--json` left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import git
import pytest

from opwright.workflows import cli
from opwright.workflows.enable import Result

DOC = Path(__file__).resolve().parents[2] / "docs" / "json.md"
BLOCK = re.compile(r"^```json (shape|example)=(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOUND = [
    (kind, name, json.loads(text)) for kind, name, text in BLOCK.findall(DOC.read_text(encoding="utf-8"))
]
SHAPES: dict[str, Any] = {name: data for kind, name, data in FOUND if kind == "shape"}
TYPES: dict[str, Any] = {"text": str, "int": int, "number": (int, float), "bool": bool, "null": type(None)}


def fits(value: Any, shape: Any, at: str = "") -> None:
    """Assert that a value has a shape of the page."""
    match shape:
        case {}:
            assert isinstance(value, dict), f"{at}: {value!r} is no object"
            rest = dict(value)
            for key, inner in shape.items():
                name = key.removesuffix("?")
                if key == "*":
                    continue
                if name in rest:
                    fits(rest.pop(name), inner, f"{at}.{name}")
                else:
                    assert key.endswith("?"), f"{at}: no `{name}`"
            assert not rest or "*" in shape, f"{at}: the page does not name {sorted(rest)}"
            for name, found in rest.items():
                fits(found, shape["*"], f"{at}.{name}")
        case [inner]:
            assert isinstance(value, list), f"{at}: {value!r} is no list"
            for k, found in enumerate(value):
                fits(found, inner, f"{at}[{k}]")
        case str():
            kinds = [k.strip() for k in shape.split("|")]
            assert set(kinds) <= {*TYPES, "any"}, f"{at}: the page says `{shape}`"
            fine = any(
                k == "any" or (isinstance(value, TYPES[k]) and (k == "bool" or not isinstance(value, bool)))
                for k in kinds
            )
            assert fine, f"{at}: {value!r} is not {shape}"


def test_each_shape_has_an_example_that_fits_it() -> None:
    examples = {name: data for kind, name, data in FOUND if kind == "example"}
    assert examples.keys() == SHAPES.keys() and len(FOUND) == 2 * len(SHAPES)
    for name, data in examples.items():
        fits(data, SHAPES[name], name)
        assert next(iter(data)) == "schema"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"schema": 1, "op": "a"}, "no `file`"),
        ({"schema": 1, "op": "a", "file": None, "derived": False}, "None is not text"),
        ({"schema": True, "op": "a", "file": "b", "derived": False}, "True is not int"),
        ({"schema": 1, "op": "a", "file": "b", "derived": False, "more": 1}, "does not name"),
    ],
)
def test_the_comparison_sees_what_differs(value: Any, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        fits(value, SHAPES["new"])


def test_every_command_that_prints_json_is_on_the_page() -> None:
    names: set[str] = set()

    def walk(command: click.Command, name: str) -> None:
        for member in getattr(command, "commands", {}).values():
            walk(member, f"{name} {member.name}")
        if any("--json" in p.opts for p in command.params):
            names.add(name)

    for rows in cli.SECTIONS.values():
        for name in rows:
            found = cli.root.get_command(click.Context(cli.root), name)
            assert found is not None
            walk(found, name)
    heads = [
        h
        for line in DOC.read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
        for h in line[3:].split(", ")
    ]
    assert names <= set(heads), f"docs/json.md lacks {sorted(names - set(heads))}"


#: face -> the command line, in a workbench with the operator `scale`
LINES: dict[str, tuple[str, ...]] = {
    "error": ("chek", "--json"),
    "new": ("new", "myop", "--json"),
    "check": ("check", "scale", "--json"),
    "generate": ("generate", "scale", "--json"),
    "show": ("show", "scale", "--level", "cpp", "--json"),
    "report": ("report", "--json"),
    "doctor": ("doctor", "--json"),
    "ops": ("ops", "softmax", "scale", "--json"),
    "cache_info": ("cache", "info", "--json"),
    "cache_prune": ("cache", "prune", "--to", "10G", "--json"),
    "init": ("init", "--json"),
    "migrate": ("migrate", "--json"),
    "explain": ("explain", "SizeError", "--json"),
}


@pytest.mark.parametrize("name", LINES)
def test_what_a_command_prints(
    ow: Any, project: Path, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
) -> None:
    if name == "init":
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
    ran = ow(*LINES[name])
    data = json.loads(ran.out)
    assert next(iter(data)) == "schema" and data["schema"] == 1
    fits(data, SHAPES[name], name)
    lists = [v for k, v in data.items() if isinstance(v, list) and k != "warnings"]
    (rows,) = lists or [[0]] if name != "report" else [[0]]
    assert rows or name == "migrate", "an empty list shows no shape"


def test_keys_are_another_answer_of_show(ow: Any, project: Path) -> None:
    fits(ow("show", "scale", "--keys", "--json").json, SHAPES["show"])


@pytest.mark.judge
def test_what_the_judge_s_commands_print(ow: Any, project: Path) -> None:
    """One after the other, for each reads what the one before it wrote."""
    accepted = ow("accept", "scale", "--json").json
    fits(accepted, SHAPES["validate"])
    assert accepted["ops"][0]["gates"]
    (spec,) = (project / "specs" / "tiny").iterdir()
    spec.write_text(spec.read_text().replace("A(by))", "A(by) + 1)"))
    fits(ow("validate", "scale", "--gate", "numerics", "--json").json, SHAPES["validate"])
    spec.write_text(spec.read_text().replace("A(by) + 1)", "A(by))"))
    proven = ow("ops", "scale", "--json").json
    fits(proven, SHAPES["ops"])
    assert proven["ops"][0]["targets"]["cpu"]["gates"]
    fits(ow("migrate", "--json").json, SHAPES["migrate"])
    repo = git.Repo.init(project)
    repo.git.add("--all")
    with repo.config_writer() as config:
        config.set_value("user", "name", "Somebody")
        config.set_value("user", "email", "somebody@example.org")
    repo.index.commit("one operator")
    gate = ow("gate", "--base", "HEAD", "--no-models", "--json").json
    fits(gate, SHAPES["gate"])
    assert gate["checks"]


def test_what_enable_prints_of_an_attempt_that_failed() -> None:
    result = Result("llama", "cpu", "f32", failed="captured: it raised")
    fits({"schema": 1, **result.to_json()}, SHAPES["enable"])


MODEL = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(8, 8)
    def forward(self, x):
        return torch.relu(self.w(x))
def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(3, 8),)
"""


@pytest.mark.nightly
def test_what_the_commands_for_models_print(ow: Any, project: Path) -> None:
    pytest.importorskip("torch")
    (project / "model.py").write_text(MODEL)
    fits(ow("inventory", "model.py:make", "--json").json, SHAPES["inventory"])
    enabled = ow("enable", "model.py:make", "--no-record", "--json", "--out", "program").json
    fits(enabled, SHAPES["enable"])
    assert enabled["levels"]["L2"] is True and enabled["operators"]["names"]
    fits(ow("run", "program", "--json").json, SHAPES["run"])
    fits(ow("report", "--json").json, SHAPES["report"])
    measured = ow("bench", "softmax", "--dtype", "f32", "--seconds", "0.1", "--vs", "torch,jax", "--json")
    assert measured.code == 0, measured.err
    fits(measured.json, SHAPES["bench"])
    measured = ow("bench", "--model", "program", "--seconds", "0.1", "--json")
    assert measured.code == 0, measured.err
    fits(measured.json, SHAPES["bench"])
    fits(ow("judge", "calibrate", "--json").json, SHAPES["judge_calibrate"])
    fits(ow("judge", "scorecard", "--json").json, SHAPES["judge_scorecard"])
