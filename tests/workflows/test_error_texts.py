"""Every error class, as a person meets it: each is provoked here, and the text compared with the one that
`opwright explain` and docs/errors.md show (workflows/errors.yaml).

A new class needs a function `provoke_<Class>` here and an entry there; EXPECTTEST_ACCEPT=1 writes the texts.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from opwright import resources, toolchain
from opwright.errors import ErrorGroup, OpwrightError
from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call, keys_of
from opwright.generator.normal import normalise, verify
from opwright.generator.program.onnx_model import require_onnx
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, Operand
from opwright.workflows import bench, bridge, enable, explain, generated, migrate, parity, report
from opwright.workflows.measuring import rows
from opwright.workflows.workbench import Workbench

ACCEPT = os.environ.get("EXPECTTEST_ACCEPT") == "1"
F32 = DType.F32


@dataclass(frozen=True)
class Here:
    """Where an error is provoked: a workbench of its own as the working directory."""

    project: Path
    ow: Any
    patch: pytest.MonkeyPatch

    @property
    def scale(self) -> str:
        return (self.project / "specs" / "tiny" / "scale.yaml").read_text()

    def spec(self, *changes: tuple[str, str]) -> Any:
        """The operator `scale`, changed."""
        text = self.scale
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (spec,) = load_spec_text(text, "myop.yaml")
        return spec


# ---- what a command line says ------------------------------------------------------------------------------------

#: class -> the command line that ends in it, in a workbench with the operator `scale`
COMMANDS: dict[str, tuple[str, ...]] = {
    "AcceptError": ("accept",),
    "DialectError": ("accept", "scale", "--dialect", "cpu-mmx"),
    "GateError": ("gate", "--base", "HEAD"),
    "GenerateError": ("generate",),
    "InitError": ("init",),
    "NewError": ("new", "relu", "--like", "scale", "--from", "aten.relu.default"),
    "RequestError": ("chek",),
    "FolderError": ("run", "nowhere"),
    "OpwrightError": ("validate", "scale", "--gate", "numrics"),
    "ShowError": ("show", "scale", "--level", "cpp", "--key", "T=i64"),
    "SizeError": ("cache", "prune", "--to", "lots"),
    "TargetError": ("enable", "model.py:make"),
    "UnknownErrorError": ("explain", "DomianError"),
    "WorkbenchError": ("accept", "specs/nope.yaml"),
}


# ---- what a function says ----------------------------------------------------------------------------------------


def provoke_BenchError(here: Here) -> None:
    side = SimpleNamespace(ask=lambda *_: {"missing": "SIGSEGV"})
    rows.load_all({"ours": side}, {}, here.project, rows.Plan(("torch",)), {})


def provoke_BindError(here: Here) -> None:
    spec = here.spec(
        ('{x: "T[*B]"}', '{x: "T[*B, N]", z: "T[M]"}'),
        ("A(x[*B]) * A(by)", "sum[i](A(x[*B, i]) * A(z[i]))"),
    )
    bind(spec, keys_of(spec)[0])


def provoke_CacheError(here: Here) -> None:
    (here.project / "cache").write_text("")
    here.patch.setenv("OPWRIGHT_CACHE", str(here.project / "cache"))
    toolchain.cache_info()


def provoke_ControlFlowError(here: Here) -> None:
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    from opwright.errors import Place
    from opwright.generator.program import rewrite
    from opwright.generator.program import torch_compat as compat

    class Loop(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,))

    try:
        rewrite.rewrite(compat.export(Loop(), (torch.ones(3),), {}, [()]))
    except rewrite.ControlFlowError as error:
        error.place = Place("model.py", 9) if error.place else None
        raise


def provoke_CaptureError(here: Here) -> None:
    from opwright.generator.program import capture_run

    log = here.project / "log"
    log.write_text("loading weights\nSegmentation fault\n")
    raise capture_run.worker_error("model.py:make", here.project, -signal.SIGSEGV, log)


def provoke_CaseRefused(here: Here) -> None:
    from opwright.validators.cases import build_case

    build_case(here.spec(), "nope", 0)


def provoke_CompileError(here: Here) -> None:
    toolchain.compile_library({"kernel.cpp": "#include CONFIG\n"}, name="demo")


def provoke_CompilerDiedError(here: Here) -> None:
    with toolchain.own_sources():
        raise toolchain.CompileError("core.cpp does not compile: `std::span` is not a member of `std`")


def provoke_ConfigError(here: Here) -> None:
    from opwright.workflows import config

    (here.project / "opwright.toml").write_text('schema = 1\nlanguage = 1\n[paths]\nspec = ["specs"]\n')
    config.find(here.project)


def provoke_CorpusError(here: Here) -> None:
    from opwright.validators.corpus import Corpus

    Corpus(here.project)


def provoke_DomainError(here: Here) -> None:
    key_for_call(here.spec(), {"x": Operand(DType.I32, 2)}, {})


def provoke_EnableError(here: Here) -> None:
    missing = enable.Missing("aten.nope.default", "modeling_llama.py:210", "no operator claims it")
    here.patch.setattr(enable, "missing_of", lambda *_: [missing])
    result = SimpleNamespace(levels={}, supplied=[], needed=[], reasons={}, architecture="llama")
    captured = SimpleNamespace(facts={})
    run = SimpleNamespace(
        stage=lambda _: contextlib.nullcontext([]),
        program=object(),
        bench=None,
        bridge=None,
        result=result,
        captured=captured,
    )
    enable._Run.supply(run)


def provoke_ErrorGroup(here: Here) -> None:
    first, second = (
        OpwrightError(f"`{name}` is not an operator", hint="`opwright ops` lists them") for name in "ab"
    )
    raise ErrorGroup([first, second])


def provoke_EvidenceError(here: Here) -> None:
    from opwright.validators import evidence

    folder = here.project / "evidence" / "ops"
    folder.mkdir(parents=True)
    (folder / "scale.yaml").write_text("schema: 1\nop: scale\n")
    evidence.load(folder, "scale")


def provoke_GradError(here: Here) -> None:
    from opwright.generator.grad import adjoint
    from opwright.generator.grad_cost import check_cost

    spec = here.spec(("A(x[*B]) * A(by)", "exp(exp(A(x[*B])))"))
    op = normalise(bind(spec, keys_of(spec, [F32])[0]))
    check_cost(op, adjoint(op, ("x",), ()), {"B": (4,)}, factor=0.1)


def provoke_InputError(here: Here) -> None:
    from opwright.workflows.run import read_inputs

    np.save(here.project / "inputs.npy", np.zeros(3))
    read_inputs(Path("inputs.npy"))


def provoke_InventoryError(here: Here) -> None:
    from opwright.generator.program.inventory import Inventory

    Inventory.from_json({"schema": 9})


def provoke_LanguageError(here: Here) -> None:
    here.spec(("A(by))", "A(by)"))


def provoke_LintUnavailable(here: Here) -> None:
    from opwright.validators import lint

    def create() -> None:
        raise lint.cindex.LibclangError("libclang.so: cannot open shared object file")

    here.patch.setattr(lint.cindex.Index, "create", create)
    lint._index.__wrapped__()


def provoke_LowerError(here: Here) -> None:
    from opwright.generator.emit import emit_cuda

    spec = here.spec()
    emit_cuda(normalise(bind(spec, keys_of(spec, [F32])[0])), "sm_30")


def provoke_MachineError(here: Here) -> None:
    here.patch.setitem(sys.modules, "onnx", None)
    require_onnx()


def provoke_MalformedProgram(here: Here) -> None:
    from opwright.generator.program.ir import loads

    loads('{"schema": 7}')


def provoke_MigrateError(here: Here) -> None:
    folder = here.project / "evidence" / "ops"
    folder.mkdir(parents=True)
    (folder / "scale.yaml").write_text("schema: 99\n")
    migrate._schema(folder / "scale.yaml")


def provoke_MissingFeatureError(here: Here) -> None:
    here.patch.setattr(toolchain, "cpu_features", lambda: toolchain.dialect("cpu-avx2").features)
    toolchain.require_dialect("cpu-avx512")


def provoke_MissingKernel(here: Here) -> None:
    spec = here.spec()
    generated._FolderSource(spec, {}, {}).forward([keys_of(spec, [F32])[0]])


def provoke_MissingSourcesError(here: Here) -> None:
    (here.project / "src").mkdir()
    here.patch.setattr(resources, "src_dir", lambda: Path("src"))
    toolchain.build_core()


def provoke_NoCompilerError(here: Here) -> None:
    here.patch.setenv("OPWRIGHT_CXX", "no-such-compiler")
    toolchain.find_compiler()


def provoke_NoGradientError(here: Here) -> None:
    spec = here.spec(("{wrt: [x], derive: true}", "{none: a step has no slope}"))
    bridge.adjoint_of(spec, keys_of(spec, [F32])[0])


def provoke_NormalError(here: Here) -> None:
    spec = here.spec(("T(A(x[*B]) * A(by))", "T(sum[*b](A(x[*b])) + sum[*b](A(x[*b])))"))
    verify(bind(spec, keys_of(spec, [F32])[0]))


def provoke_NotAnExtent(here: Here) -> None:
    sympy = pytest.importorskip("sympy")
    pytest.importorskip("torch")
    from opwright.generator.program import torch_compat

    torch_compat._extent(sympy.sin(sympy.Symbol("s0")))


def provoke_NotDifferentiable(here: Here) -> None:
    from opwright.generator.grad import adjoint

    spec = here.spec()
    adjoint(normalise(bind(spec, keys_of(spec, [F32])[0])), ("z",), ())


def provoke_NotProvenError(here: Here) -> None:
    bridge.Bridge(Workbench.here()).spec_of({"op": "softmaxx", "inputs": [], "attrs": {}})


def provoke_OpError(here: Here) -> None:
    from importlib import metadata

    from opwright import registry

    point = metadata.EntryPoint("workbench", "nowhere.at_all:bootstrap", registry.ENTRY_POINTS)
    here.patch.setattr(metadata, "entry_points", lambda **_: [point])
    registry._entry_points()


def provoke_OpIndexError(here: Here) -> None:
    import opwright as ow

    ow.zeros((2, 3)).permute(5, 0)


def provoke_OpTypeError(here: Here) -> None:
    import opwright as ow

    ow.ops.softmax(ow.zeros((2, 3)), axes=-1)


def provoke_OpValueError(here: Here) -> None:
    import opwright as ow

    ow.zeros((2, 3)).reshape(7)


def provoke_MissingKernelError(here: Here) -> None:
    import opwright as ow

    ow.call_aten("aten.sofmax.int", ow.zeros((2,)))


def provoke_OracleError(here: Here) -> None:
    evaluate(
        here,
        [
            ("dims: {B: batch}\n", ""),
            ('"T[*B]"', '"T[N]"'),
            ("y[*B] = T(A(x[*B]) * A(by))", "y[i] = T(A(x[i]) * A(by)) if i > 0 else skip"),
            ("cases: [{B: [3, 5]}, {B: [0]}, {B: []}]", "cases: [{N: 3}]"),
        ],
    )


def provoke_OracleRefusal(here: Here) -> None:
    evaluate(here, [("compute:", 'require: ["by > 3"]\ncompute:')])


def provoke_OracleTooLarge(here: Here) -> None:
    evaluate(here, [], max_points=2)


def provoke_TooMuchMemory(here: Here) -> None:
    from opwright.validators.memory import ARENA, TooMuchMemory, mib

    raise TooMuchMemory(f"a call takes {mib(3 << 30)} of tensors, and may take {mib(ARENA)}")


def provoke_ParityError(here: Here) -> None:
    raise parity._child_error(here.project, -signal.SIGSEGV, [])


def provoke_ProgramError(here: Here) -> None:
    import opwright as ow

    ow.Program.load("nowhere")


def provoke_RecordError(here: Here) -> None:
    from opwright.workflows import records

    records.file_name("../llama")


def provoke_SandboxError(here: Here) -> None:
    from opwright.validators import sandbox

    here.patch.setattr(sandbox, "_BOOT", "import sys; sys.exit('no namespaces here')")
    sandbox.level.__wrapped__()  # not what an earlier test of this process measured


def provoke_SpecError(here: Here) -> None:
    here.spec(("compute:", "computes:"))


def provoke_BuildError(here: Here) -> None:
    from opwright.workflows.build import _dtype

    _dtype("float")


def provoke_OutOfMemoryError(here: Here) -> None:
    import opwright as ow

    before = ow.memory.stats()["limit"]
    ow.empty_cache()
    ow.memory.set_limit(64 << 20)
    try:
        ow.empty(1 << 40, "u8")
    except ow.OutOfMemoryError as error:
        # What else this process holds is not the same in every run.
        head, _, _ = error.message.partition(" wanted, ")
        raise ow.OutOfMemoryError(
            f"{head} wanted, 44.0 MiB in use, 4.0 MiB cached, limit 64.0 MiB; "
            "the largest in use: 2 × 16.0 MiB (matmul), 12.0 MiB (program llama)"
        ) from error
    finally:
        ow.memory.set_limit(before)


def provoke_KernelTableError(here: Here) -> None:
    from opwright.workflows.kernels import Prebuilt

    (here.project / "kernels.json").write_text('{"schema": 7}')
    Prebuilt.read(Path(), "cpu-portable")


def provoke_WheelError(here: Here) -> None:
    import sysconfig

    from opwright.workflows.wheel import wheel_tag

    here.patch.setattr(sysconfig, "get_config_var", lambda name: "pypy311-pp73-x86_64-linux-gnu")
    wheel_tag()


def provoke_TableError(here: Here) -> None:
    from opwright.generator.program.aten import table_loads

    table_loads('{"overload": "aten.add.Tensor"}')


def provoke_TargetNameError(here: Here) -> None:
    (here.project / "-.py").write_text("")
    enable.architecture_of("./-.py:make")


def provoke_WatchError(here: Here) -> None:
    from opwright.workflows.watch import release

    (here.project / "old").mkdir()
    release(Path("old"))


def provoke_DerivationError(here: Here) -> None:
    pytest.importorskip("torch")
    from opwright.workflows.derive_spec import derived_spec
    from opwright.workflows.workbench import Workbench

    derived_spec(Workbench.here(here.project), "mine", "aten.mm.default")


def provoke_UnknownDtype(here: Here) -> None:
    torch = pytest.importorskip("torch")
    from opwright.generator.program import torch_compat

    torch_compat.dtype_of(torch.float8_e4m3fn)


def provoke_ReportError(here: Here) -> None:
    report.report.callback(("nosuch",), None, None, False)


def provoke_TraceError(here: Here) -> None:
    from opwright.validators.traced import read_calls

    (here.project / "calls.jsonl").write_text('{"schema": 1}\n')
    read_calls(Path("calls.jsonl"))


def provoke_WorkloadError(here: Here) -> None:
    bench.required(here.spec(), [])


def provoke_WriteError(here: Here) -> None:
    from opwright.generator.write import Tree

    Tree(here.project).add("../kernel.cpp", "")


# ---- helpers -----------------------------------------------------------------------------------------------------


def evaluate(here: Here, changes: list[tuple[str, str]], **limits: Any) -> None:
    """The oracle's answer for `scale`, changed."""
    from opwright.validators import oracle

    spec = here.spec(*changes)
    oracle.evaluate(bind(spec, keys_of(spec, [F32])[0]), {"x": np.ones(3, np.float32)}, {"by": 2.0}, **limits)


PROVOKE: dict[str, Callable[[Here], None]] = {
    name.removeprefix("provoke_"): f for name, f in list(globals().items()) if name.startswith("provoke_")
}
CLASSES = explain.error_classes()
#: Classes that only their subclasses are raised of.
BASES = {"JudgedError"}


def told(here: Here, name: str) -> str:
    """What a person sees of the error, without what differs between machines."""
    if name in COMMANDS:
        ran = here.ow(*COMMANDS[name])
        assert ran.code == CLASSES[name].exit_code, ran
        text = ran.err.rstrip("\n")
    else:
        with pytest.raises(CLASSES[name]) as caught:
            PROVOKE[name](here)
        assert type(caught.value) is CLASSES[name]
        text = caught.value.render()
    return text.replace(str(here.project), "…")


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - BASES))
def test_what_a_person_sees(name: str, ow: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = told(Here(project, ow, monkeypatch), name)
    assert text.startswith("error: ") or re.match(r"\S+: error: ", text)
    if ACCEPT:
        accept(name, text)
    assert explain.examples()[name]["text"].rstrip("\n") == text


def accept(name: str, text: str) -> None:
    """Write the text into the file that people read; a new class gets a line to be filled in."""
    path = Path(inspect.getfile(explain)).resolve().with_name("errors.yaml")
    yaml = YAML()
    yaml.width = 4096
    data = yaml.load(path.read_text())
    data.setdefault(name, {"when": " ".join(("opwright", *COMMANDS[name])) if name in COMMANDS else "TODO"})
    data[name]["text"] = LiteralScalarString(text + "\n")
    out = io.StringIO()
    out.writelines(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    yaml.dump({n: data[n] for n in sorted(data)}, out)
    path.write_text(out.getvalue())
    explain.examples.cache_clear()


def test_every_class_has_an_example_and_nothing_else_has() -> None:
    assert explain.examples().keys() == CLASSES.keys() - BASES
    for name, example in explain.examples().items():
        assert example.keys() == {"when", "text"}, name
        assert example["when"] and "TODO" not in example["when"], name


def test_a_base_is_raised_by_no_one(root: Path) -> None:
    for name in BASES:
        assert CLASSES[name].__subclasses__()
        for room in ("generator", "validators", "workflows", "runtime/python"):
            for path in (root / room).rglob("*.py"):
                assert not re.search(rf"(?<!class )\b{name}\((?!\w+\):)", path.read_text()), path


def test_names_of_classes_are_unique() -> None:
    """`explain` and JSON name them by one word."""
    seen: dict[str, type] = {}
    todo: list[type] = [OpwrightError]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        assert seen.setdefault(cls.__name__, cls) is cls, f"{cls} and {seen[cls.__name__]}"


def test_the_index_in_the_docs_is_current(root: Path) -> None:
    text = (root / "docs" / "errors.md").read_text(encoding="utf-8")
    assert text == explain.page(), "opwright explain --markdown > docs/errors.md"
