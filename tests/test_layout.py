"""The house: what lies at the top, what may import what, what a wheel holds, and what no file may say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwright import resources

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("generator", "validators", "workflows")
FILES = (".clang-format", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md")
HOUSE = {*FILES, "opwright.toml", "pyproject.toml", ".ci", "docs", "runtime", "specs", "tests", *ROOMS}


def tracked() -> list[str]:
    """The files of the repository, as git knows them (those about to be added included)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every text file of the repository, this one left out (it spells what the others may not)."""
    out = {}
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" not in data and (ROOT / name) != Path(__file__):
            out[name] = data.decode("utf-8")
    return out


@pytest.fixture(scope="module")
def project() -> dict:  # type: ignore[type-arg]
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# ---- the top level ----


def test_top_level_is_the_house():
    assert {name.split("/")[0] for name in tracked()} <= HOUSE


def test_no_generated_code_in_git():
    made = [
        n for n in tracked() if n.startswith(("runtime/generated/", "runtime/measured/", "build/", "dist/"))
    ]
    assert made == []


def test_no_binary_files():
    binary = [n for n in tracked() if b"\0" in (ROOT / n).read_bytes()[:4096] and not n.startswith("docs/")]
    assert binary == []


# ---- what no file may say ----


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        (
            "an absolute path of somebody's machine",
            r"(?<![\w.$}])/(?:work|root|Users|home/\w+|opt/(?:wheels|pypi))/",
        ),
        (
            "a package registry's host",
            r"(?i)\b(?:pypi|pythonhosted|pytorch\.org/whl|npmjs|crates)\.(?:org|io|com)",
        ),
    ],
)
def test_no_file_says(texts, what, pattern):
    said = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert said == [], what


# ---- imports: one way (docs/internals.md) ----

CONTRACTS = {
    c["name"]: c
    for c in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
MEANING = CONTRACTS["a spec's meaning knows no lowering"]
FACE = CONTRACTS["the runtime imports nothing of the workbench, and no torch"]


def python_files(folder: str) -> Iterator[Path]:
    return (p for p in sorted((ROOT / folder).rglob("*.py")) if "generated" not in p.parts)


def entries(folder: Path) -> set[str]:
    """Modules and packages that lie directly in a folder."""
    packages = {p.parent.name for p in folder.glob("*/__init__.py")}
    return packages | {p.stem for p in folder.glob("*.py")} - {"__init__"}


def module_of(path: Path) -> list[str]:
    """The import name's parts of a file of ours: `opwright.generator.expr`, `opwright.toolchain`."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[2:] if parts[:2] == ["runtime", "python"] else parts
    return ["opwright", *parts]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a file imports, wherever in the file."""
    here = module_of(path)
    package = here[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{stem}.{alias.name}"


def forbidden(folder: str, *prefixes: str) -> list[str]:
    """Imports in `folder` of a module that is, or lies below, one of `prefixes`."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in python_files(folder)
        for line, name in imports(path)
        if any(name == p or name.startswith(p + ".") for p in prefixes)
    ]


def test_relative_imports_are_resolved():
    """The other tests here rest on it."""
    found = {name for _, name in imports(ROOT / "generator" / "errors.py")}
    assert "opwright.errors.OpwrightError" in found
    found = {name for _, name in imports(ROOT / "runtime" / "python" / "toolchain.py")}
    assert "opwright.resources" in found


def test_runtime_imports_nothing_of_the_workbench_and_no_torch():
    assert forbidden("runtime/python", *(f"opwright.{room}" for room in ROOMS), "torch") == []


def test_generator_imports_neither_judge_nor_workflows():
    assert forbidden("generator", "opwright.validators", "opwright.workflows") == []


def test_judge_imports_no_lowering_and_no_workflow():
    lowering = MEANING["forbidden_modules"]
    assert CONTRACTS["the judge shares no code with the accused"]["forbidden_modules"] == lowering
    assert forbidden("validators", "opwright.workflows", *lowering) == []


def test_every_module_is_in_a_contract():
    """A module that no contract names could import anything, and the judge could import it."""
    generator = {f"opwright.generator.{entry}" for entry in entries(ROOT / "generator")}
    assert generator == {*MEANING["source_modules"], *MEANING["forbidden_modules"]}
    assert {f"opwright.{entry}" for entry in entries(ROOT / "runtime" / "python")} | {"opwright"} == set(
        FACE["source_modules"]
    )


def test_torch_private_names_sit_in_one_file():
    private = (
        "torch._refs",
        "torch._decomp",
        "torch._prims",
        "torch._subclasses",
        "torch._internal",
        "torch.testing._internal",
    )
    found = [hit for room in ROOMS for hit in forbidden(room, *private)]
    allowed = f"generator{os.sep}program{os.sep}torch_compat.py:"
    assert [hit for hit in found if not hit.startswith(allowed)] == []


def test_between_folders_imports_are_relative():
    """Editors and graph tools follow them by path; the package's own name would need the link tree."""
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("runtime/python", *ROOMS)
        for path in python_files(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "opwright"
        )
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "opwright" for a in node.names))
    ]
    assert absolute == []


def test_every_module_opens_with_what_it_is_for():
    bare = [
        str(path.relative_to(ROOT))
        for folder in ("runtime/python", *ROOMS, "tests", ".ci")
        for path in python_files(folder)
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert bare == []


# ---- the package ----


def test_no_package_is_left_out_of_the_wheel(project):
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {"opwright"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            found.add(".".join(module_of(init.parent / "x.py")[:-1]))
    assert found == {name for name in listed if not name.startswith("opwright._data")}


def test_every_folder_with_python_is_a_package():
    bare = {
        str(path.parent.relative_to(ROOT))
        for room in ROOMS
        for path in python_files(room)
        if not (path.parent / "__init__.py").exists()
    }
    assert bare == set()


def test_data_folders_agree_with_the_wheel(project):
    declared = {
        name.removeprefix("opwright._data."): place
        for name, place in project["tool"]["setuptools"]["package-dir"].items()
        if name.startswith("opwright._data.")
    }
    assert declared == resources._PLACES


@pytest.mark.parametrize("name", ["specs", "include", "src", "bodies", "accepted", "support"])
def test_resources_are_found_through_the_link_tree(name):
    folder = getattr(resources, f"{name}_dir")()
    assert folder == ROOT / resources._PLACES[name]
    assert folder.is_dir()


def test_resources_in_an_installed_wheel(tmp_path):
    package = tmp_path / "opwright"
    (package / "_data" / "specs").mkdir(parents=True)
    (package / "resources.py").write_text((ROOT / "runtime/python/resources.py").read_text())
    (package / "__init__.py").write_text("")
    script = "import opwright.resources as r; print(r.checkout(), r.specs_dir())"
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["None", str((package / "_data" / "specs").resolve())]


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/a/b", "/x", "/a/b"),
        ("", "/x", "/x/opwright"),
        ("", "relative", "~/.cache/opwright"),
        ("", "", "~/.cache/opwright"),
    ],
)
def test_cache_dir(monkeypatch, own, xdg, expected):
    monkeypatch.setenv("OPWRIGHT_CACHE", own)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert str(resources.cache_dir()) == os.path.expanduser(expected)


def test_import_needs_no_compiler_and_no_torch(tmp_path):
    """`doctor` must be able to say that there is no compiler, and the core works without torch."""
    script = (
        "import sys, opwright, opwright.toolchain, opwright.generator.errors\n"
        "bad = {'torch', 'transformers', 'onnx'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    env = {
        "PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT / "build" / "src"),
        "OPWRIGHT_CACHE": str(tmp_path / "c"),
    }
    subprocess.run([sys.executable, "-c", script], env=env, check=True)
    assert not (tmp_path / "c").exists()


def test_link_tree_follows_files(tmp_path):
    """A new file of the face is linked, a removed one is unlinked, twice is once."""
    for name in ("generator", "validators", "workflows", "runtime/python", ".ci"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".ci" / "link.py").write_text((ROOT / ".ci" / "link.py").read_text())
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "opwright"\nversion = "1"\n[project.entry-points.group]\npoint = "module:function"\n'
    )
    tree = tmp_path / "build" / "src" / "opwright"

    def linked() -> set[str]:
        subprocess.run([sys.executable, ".ci/link.py", "--pth", str(tmp_path)], cwd=tmp_path, check=True)
        assert all(entry.resolve().exists() for entry in tree.iterdir())
        return {entry.name for entry in tree.iterdir()}

    (tmp_path / "runtime/python/one.py").write_text("")
    assert linked() == {*ROOMS, "one.py"}
    (tmp_path / "runtime/python/two.py").write_text("")
    (tmp_path / "runtime/python/one.py").unlink()
    assert linked() == {*ROOMS, "two.py"}
    assert linked() == {*ROOMS, "two.py"}
    assert (tmp_path / "opwright-dev.pth").read_text().strip() == str(tree.parent)
    assert {p.name for p in tree.parent.iterdir()} == {"opwright", "opwright_dev-1.dist-info"}
    points = tree.parent / "opwright_dev-1.dist-info" / "entry_points.txt"
    assert points.read_text() == "[group]\npoint = module:function\n"


# ---- what people are told ----


def test_make_targets_of_the_docs_exist(texts):
    targets = set(re.findall(r"^([a-z-]+):", texts["Makefile"], re.MULTILINE))
    told = {
        (name, target)
        for name, text in texts.items()
        if name.endswith((".md", ".yml")) or name.startswith(".ci/")
        for target in re.findall(r"(?:^|`)make (?:--no-print-directory )?([a-z-]+)", text, re.MULTILINE)
    }
    assert {t for t in told if t[1] not in targets} == set()


def by_day(texts: dict[str, str]) -> str:
    """What `.ci/run` runs when nothing else is asked for."""
    return texts[".ci/run"].split("\n  ci)")[1].split(";;")[0]


def test_parts_of_ci_are_marks(project, texts):
    marks = {m.split(":")[0] for m in project["tool"]["pytest"]["ini_options"]["markers"]}
    parts = re.findall(r"^\s+tests (\w+) \d+", by_day(texts), re.MULTILINE)
    parts += re.findall(r"PART=(\w+)", by_day(texts))  # in the time of another part
    assert marks == {*parts, "nightly"} - {"unit"}, "a test with another mark would run in no part"
    assert marks - {"nightly"} == set(
        re.search(r"^PARTS := (.*)$", texts["Makefile"], re.MULTILINE)[1].split()
    )


def test_budgets_of_ci_fit_into_twenty_minutes(texts):
    budgets = re.findall(r"^\s+(?:part|tests|supported) \w+ (\d+)", by_day(texts), re.MULTILINE)
    assert len(budgets) == 9
    assert sum(map(int, budgets)) <= 20


def test_licence_is_apache():
    import hashlib

    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
