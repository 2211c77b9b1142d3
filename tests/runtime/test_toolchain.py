"""The toolchain: names by content, one build per name, and nothing half-written whatever goes wrong."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from opwright import toolchain
from opwright.errors import EXIT_FAILED, EXIT_MACHINE, EXIT_REQUEST, ErrorGroup, OpwrightError
from opwright.toolchain import (
    CacheError,
    CompileError,
    CompileJob,
    CompilerDiedError,
    DialectError,
    MissingFeatureError,
    NoCompilerError,
    Tally,
    cache_info,
    cache_prune,
    compile_library,
    compile_many,
    own_sources,
    tally,
    without_layout,
)

pytestmark = pytest.mark.usefixtures("fresh_cache")


def answer(value: int, name: str = "answer") -> dict[str, str]:
    return {"a.cpp": f'extern "C" int {name}() {{ return {value}; }}\n'}


def files(cache: Path) -> list[str]:
    """Everything the cache holds, folders left out."""
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())


def call(library: Path, name: str = "answer") -> int:
    return int(getattr(ctypes.CDLL(str(library)), name)())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that the compiler was run with."""
    seen: list[list[str]] = []
    real = toolchain._communicate

    def spy(command, cwd, cancel):  # type: ignore[no-untyped-def]
        seen.append(list(command))
        return real(command, cwd, cancel)

    monkeypatch.setattr(toolchain, "_communicate", spy)
    return seen


# ---- names and hits ----


def test_builds_and_runs():
    assert call(compile_library(answer(41), name="t")) == 41


def test_second_build_is_a_hit(runs):
    first = compile_library(answer(1), name="t")
    second = compile_library(answer(1), name="another name for people")
    assert first == second
    assert len(runs) == 1


def test_layout_is_two_hex_digits_then_the_hash(fresh_cache):
    path = compile_library(answer(1), name="t")
    assert path.parent.parent == fresh_cache / "lib"
    assert path.name.startswith(path.parent.name)
    assert len(path.parent.name) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"sources": answer(2)},
        {"sources": {"b.cpp": answer(1)["a.cpp"]}},
        {"dialect": "cpu-portable"},
        {"extra_flags": ["-DX=1"]},
        {"extra_flags": ["-lm"]},
    ],
    ids=["text", "file name", "dialect", "flag", "link flag"],
)
def test_whatever_decides_the_bytes_changes_the_name(other):
    base = {"sources": answer(1), "name": "t", "dialect": "cpu-avx2"}
    job = {**base, **other}
    assert compile_library(**base) != compile_library(**job)


def test_compiler_version_changes_the_name(monkeypatch):
    first = compile_library(answer(1), name="t")
    real = toolchain.find_compiler()
    newer = toolchain.Compiler(real.command, real.identity + " patched", real.kind)
    monkeypatch.setattr(toolchain, "find_compiler", lambda: newer)
    assert compile_library(answer(1), name="t") != first


def test_include_path_in_the_environment_changes_the_name(monkeypatch, tmp_path):
    first = compile_library(answer(1), name="t")
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert compile_library(answer(1), name="t") != first


def test_headers_count_directly_and_through_others(tmp_path):
    inc = tmp_path / "inc" / "mine"
    inc.mkdir(parents=True)
    (inc / "outer.h").write_text('#include "inner.h"\n')
    (inc / "inner.h").write_text("#define V 5\n")
    (inc / "unused.h").write_text("#define W 1\n")
    text = {"a.cpp": '#include <mine/outer.h>\nextern "C" int answer() { return V; }\n'}
    where = {"name": "t", "include_dirs": [tmp_path / "inc"]}
    first = compile_library(text, **where)
    (inc / "unused.h").write_text("#define W 2\n")
    assert compile_library(text, **where) == first
    (inc / "inner.h").write_text("#define V 6\n")
    second = compile_library(text, **where)
    assert second != first
    assert (call(first), call(second)) == (5, 6)


def test_include_of_a_macro_is_refused():
    with pytest.raises(CompileError, match="#include SECRET"):
        compile_library({"a.cpp": '#define SECRET "x.h"\n#include SECRET\n'}, name="t")


def test_runtime_headers_are_on_the_path():
    text = '#include "opwright/abi.h"\nextern "C" int answer() { return OW_ABI; }\n'
    assert call(compile_library({"a.cpp": text}, name="t")) >= 1


def test_several_units_become_one_library_and_rebuild_only_what_changed(runs):
    def sources(value: int) -> dict[str, str]:
        return {
            "a.cpp": '#include "g.h"\nextern "C" int answer() { return g() + 1; }\n',
            "b.cpp": f'#include "g.h"\nint g() {{ return {value}; }}\n',
            "g.h": "int g();\n",
        }

    assert call(compile_library(sources(1), name="t")) == 2
    assert len(runs) == 3
    assert call(compile_library(sources(8), name="t")) == 9
    assert len(runs) == 5  # one object, one link


def test_equal_text_gives_equal_bytes(fresh_cache, monkeypatch):
    first = compile_library(answer(3), name="t").read_bytes()
    shutil.rmtree(fresh_cache)
    assert compile_library(answer(3), name="t").read_bytes() == first


def test_never_fast_math_and_no_contraction():
    flags = [*toolchain.COMMON_FLAGS, *(f for d in toolchain.DIALECTS.values() for f in d.flags)]
    assert "-ffp-contract=off" in flags
    assert not any("fast-math" in f or f in ("-Ofast", "-march=native") for f in flags)


@pytest.mark.parametrize("name", ["../a.cpp", "/etc/a.cpp", ".a.cpp", "a b.cpp", "a.so", "-o.cpp"])
def test_source_names_are_plain(name):
    with pytest.raises(ValueError, match="plain source name"):
        compile_library({name: ""}, name="t")


# ---- dialects ----


def test_note_beside_the_library_says_what_it_needs():
    path = compile_library(answer(1), name="softmax", dialect="cpu-avx512")
    note = json.loads(path.with_suffix(".json").read_text())
    assert note["name"] == "softmax"
    assert note["dialect"] == "cpu-avx512"
    assert "avx512f" in note["features"]


def test_native_dialect_follows_the_features(monkeypatch):
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    for features, expected in (
        (toolchain._V4, "cpu-avx512"),
        (toolchain._V4 - {"avx512vl"}, "cpu-avx2"),
        (toolchain._V2, "cpu-portable"),
        (frozenset(), "cpu-portable"),
    ):
        monkeypatch.setattr(toolchain, "cpu_features", lambda features=features: features)
        assert toolchain.native_dialect() == expected


def test_other_machines_get_the_portable_dialect(monkeypatch):
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "aarch64")
    assert toolchain.native_dialect() == "cpu-portable"
    assert toolchain.DIALECTS["cpu-portable"].flags == ()


def test_a_library_for_other_machines_is_not_loadable(monkeypatch):
    path = compile_library(answer(1), name="t", dialect="cpu-avx512")
    monkeypatch.setattr(toolchain, "cpu_features", lambda: toolchain._V3)
    with pytest.raises(MissingFeatureError, match="avx512bw") as caught:
        toolchain.require_loadable(path)
    assert caught.value.exit_code == EXIT_MACHINE


def test_unknown_dialect():
    with pytest.raises(DialectError, match="cpu-sse9") as caught:
        compile_library(answer(1), name="t", dialect="cpu-sse9")
    assert caught.value.exit_code == EXIT_REQUEST
    assert "cpu-avx2" in (caught.value.hint or "")


# ---- no compiler, refused sources ----


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("OPWRIGHT_CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError) as caught:
        compile_library(answer(1), name="t")
    assert caught.value.exit_code == EXIT_MACHINE
    assert "OPWRIGHT_CXX" in (caught.value.hint or "")


def test_named_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CXX", "no-such-c++")
    with pytest.raises(NoCompilerError, match="no-such-c"):
        compile_library(answer(1), name="t")


def test_named_compiler_that_is_no_compiler(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CXX", "false")
    with pytest.raises(NoCompilerError, match="failed"):
        compile_library(answer(1), name="t")


def test_named_compiler_may_carry_arguments(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CXX", "g++ -DV=77")
    assert call(compile_library({"a.cpp": 'extern "C" int answer() { return V; }'}, name="t")) == 77


def test_compile_error_has_place_line_and_caret(fresh_cache):
    text = "int good;\nint f() {\n  return missing;\n}\n"
    with pytest.raises(CompileError) as caught:
        compile_library({"kernel.cpp": text}, name="softmax")
    error = caught.value
    assert error.exit_code == EXIT_FAILED
    assert error.place is not None
    assert (error.place.file, error.place.line, error.place.column) == ("kernel.cpp", 3, 10)
    rendered = error.render()
    assert "softmax does not compile" in rendered
    assert "return missing;" in rendered
    assert rendered.splitlines()[-1].endswith("^")
    assert str(fresh_cache) not in rendered
    assert files(fresh_cache) == []


def test_compile_error_crosses_processes():
    with pytest.raises(CompileError) as caught:
        compile_library({"kernel.cpp": "int f() { return missing; }\n"}, name="t")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.render() == caught.value.render()
    assert again.log == caught.value.log


def test_link_error_says_what_is_missing():
    with pytest.raises(CompileError, match="undefined reference to `gone"):
        compile_library(
            {"a.cpp": "int gone();\nint f() { return gone(); }\n"}, name="t", extra_flags=["-Wl,-z,defs"]
        )


def test_a_refused_source_compiles_once_mended():
    with pytest.raises(CompileError):
        compile_library({"a.cpp": "int f( {}"}, name="t")
    assert call(compile_library(answer(4), name="t")) == 4


# ---- the cache is ours, and whole ----


def test_cache_that_others_can_write_to_is_refused(fresh_cache):
    fresh_cache.mkdir()
    fresh_cache.chmod(0o777)
    with pytest.raises(CacheError, match="others can write") as caught:
        compile_library(answer(1), name="t")
    assert caught.value.exit_code == EXIT_MACHINE
    assert "chmod go-w" in (caught.value.hint or "")


def test_cache_below_a_folder_of_everybody_is_refused(tmp_path, monkeypatch):
    common = tmp_path / "common"
    common.mkdir()
    common.chmod(0o777)
    monkeypatch.setenv("OPWRIGHT_CACHE", str(common / "cache"))
    with pytest.raises(CacheError, match="can replace"):
        compile_library(answer(1), name="t")
    common.chmod(0o1777)  # as /tmp: only owners rename there
    assert call(compile_library(answer(1), name="t")) == 1


def test_cache_of_another_user_is_refused(monkeypatch, fresh_cache):
    fresh_cache.mkdir()
    os.chown(fresh_cache, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(
        os, "geteuid", lambda: 12345
    )
    with pytest.raises(CacheError, match="another user"):
        compile_library(answer(1), name="t")


def test_cache_that_is_a_file(fresh_cache):
    fresh_cache.write_text("")
    with pytest.raises(CacheError, match="not a directory"):
        compile_library(answer(1), name="t")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_failed_rename_leaves_nothing(fresh_cache, monkeypatch, code):
    def refuse(source, target):  # type: ignore[no-untyped-def]
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(toolchain.os, "replace", refuse)
        with pytest.raises(CacheError) as caught:
            compile_library(answer(1), name="t")
    assert caught.value.exit_code == EXIT_MACHINE
    assert ("full" in caught.value.message) == (code != errno.EACCES)
    assert files(fresh_cache) == []
    assert call(compile_library(answer(1), name="t")) == 1


def test_disk_that_fills_up_under_the_compiler(fresh_cache, monkeypatch, tmp_path):
    wrapper = tmp_path / "cxx"
    wrapper.write_text(
        textwrap.dedent("""\
        #!/bin/sh
        case "$1" in --version) echo "full 1.0"; exit 0;; -dumpmachine) echo x; exit 0;; esac
        echo "as: error: writing to out.s: No space left on device" >&2
        : > out.so
        exit 1
        """)
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("OPWRIGHT_CXX", str(wrapper))
    with pytest.raises(CacheError, match="full"):
        compile_library(answer(1), name="t")
    assert files(fresh_cache) == []


def test_compiler_killed_for_memory(monkeypatch, tmp_path):
    wrapper = tmp_path / "cxx"
    wrapper.write_text(
        '#!/bin/sh\ncase "$1" in --version|-dumpmachine) echo x; exit 0;; esac\nkill -KILL $$\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("OPWRIGHT_CXX", str(wrapper))
    with pytest.raises(CompilerDiedError, match="SIGKILL") as caught:
        compile_library(answer(1), name="t")
    assert "memory" in (caught.value.hint or "") and caught.value.exit_code == 3


@pytest.mark.parametrize(
    "said",
    [
        "g++: fatal error: Killed signal terminated program cc1plus",
        "clang++: error: unable to execute command: Killed",
    ],
)
def test_what_ends_the_compilers_own_child_is_the_machines_fault(monkeypatch, tmp_path, said):
    wrapper = tmp_path / "cxx"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$1" in --version|-dumpmachine) echo x; exit 0;; esac\necho "{said}" >&2; exit 1\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("OPWRIGHT_CXX", str(wrapper))
    with pytest.raises(CompilerDiedError, match="SIGKILL"):
        compile_library(answer(1), name="t")


def test_a_compiler_that_refuses_our_own_text_does_not_serve():
    with pytest.raises(CompilerDiedError, match="does not compile") as caught, own_sources():
        compile_library({"a.cpp": "no C++"}, name="t")
    assert caught.value.exit_code == 3 and "doctor" in (caught.value.hint or "")


def test_ctrl_c_stops_the_compiler_and_leaves_nothing(fresh_cache, tmp_path, root):
    pid_file = tmp_path / "pid"
    wrapper = tmp_path / "cxx"
    wrapper.write_text(
        '#!/bin/sh\ncase "$1" in --version|-dumpmachine) echo x; exit 0;; esac\n'
        f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 60 & wait\n"
    )
    wrapper.chmod(0o755)
    script = (
        "from opwright.toolchain import CompileJob, compile_many\n"
        "compile_many([CompileJob({'a.cpp': f'int x{i};'}, f'k{i}') for i in range(3)], workers=1)\n"
    )
    env = dict(os.environ, OPWRIGHT_CXX=str(wrapper), PYTHONPATH=str(root / "build" / "src"))
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job ignores Ctrl-C, and hands that down
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.time() + 30
    while not pid_file.exists() and time.time() < deadline:
        time.sleep(0.02)
    compiler = int(pid_file.read_text())
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in stderr  # the command line turns it into one line
    assert files(fresh_cache) == []
    with pytest.raises(ProcessLookupError):
        os.kill(compiler, 0)


# ---- many at once ----


def test_threads_that_want_the_same_library_build_it_once(runs):
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(compile_library(answer(6), name="t"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert len(paths) == 6
    assert len(runs) == 1


def test_processes_that_want_the_same_library_build_it_once(fresh_cache, tmp_path, root):
    log = tmp_path / "log"
    wrapper = tmp_path / "cxx"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version|-dumpmachine) ;; *) echo x >> {log}; sleep 0.3;; esac\n'
        'exec g++ "$@"\n'
    )
    wrapper.chmod(0o755)
    script = (
        "from opwright.toolchain import compile_library\n"
        "print(compile_library({'a.cpp': 'int x;'}, name='t'))\n"
    )
    env = dict(os.environ, OPWRIGHT_CXX=str(wrapper), PYTHONPATH=str(root / "build" / "src"))
    children = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    paths = {child.communicate(timeout=60)[0] for child in children}
    assert len(paths) == 1
    assert log.read_text().split() == ["x"]
    assert [f for f in files(fresh_cache) if f.startswith(("lock", "tmp"))] == []


def test_what_was_built_and_what_the_cache_had_is_counted():
    before = tally()
    jobs = [CompileJob({"a.cpp": f"int counted{k};"}, f"counted{k}") for k in range(2)]
    compile_many(jobs[:1])
    compile_many(jobs)
    assert tally().since(before) == Tally(built=2, found=1)


def test_compile_many_keeps_the_order_and_reports_progress():
    jobs = [CompileJob(answer(i), f"k{i}") for i in range(4)]
    seen: list[tuple[int, int]] = []
    paths = compile_many(jobs, progress=lambda done, total, job, error: seen.append((done, total)), workers=2)
    assert [call(p) for p in paths] == [0, 1, 2, 3]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_compile_many_of_nothing():
    assert compile_many([]) == []


def test_compile_many_reports_all_refused_sources_and_builds_the_rest(fresh_cache):
    bad = {"a.cpp": "int f() { return missing; }\n"}
    two = {"a.cpp": "int x;", "b.cpp": "int y() { return gone; }\n"}
    jobs = [CompileJob(bad, "one"), CompileJob(two, "two"), CompileJob(answer(9), "three")]
    errors: list[OpwrightError | None] = []
    with pytest.raises(ErrorGroup) as caught:
        compile_many(jobs, progress=lambda done, total, job, error: errors.append(error), workers=1)
    assert [type(e) for e in caught.value.errors] == [CompileError, CompileError]
    assert [e is None for e in errors] == [False, False, True]
    assert caught.value.exit_code == EXIT_FAILED
    assert call(compile_library(answer(9), name="three")) == 9


def test_compile_many_stops_when_the_machine_is_at_fault(monkeypatch):
    def refuse(source, target):  # type: ignore[no-untyped-def]
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(toolchain.os, "replace", refuse)
    with pytest.raises(CacheError, match="full"):
        compile_many([CompileJob(answer(i), f"k{i}") for i in range(3)], workers=2)


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_NUM_THREADS", "3")
    assert toolchain.available_cores() == 3
    monkeypatch.setenv("OPWRIGHT_NUM_THREADS", "none")
    assert toolchain.available_cores() >= 1


# ---- size ----


def test_prune_removes_the_least_recently_used(fresh_cache):
    old, new = (compile_library(answer(i), name="t") for i in (1, 2))
    for path, age in ((old, 2000), (new, 1000)):
        for file in (path, path.with_suffix(".json")):
            os.utime(file, (time.time() - age,) * 2)
    size = cache_info().bytes
    assert cache_info().files == 2
    removed = cache_prune(size - 1)
    assert 0 < removed < size
    assert not old.exists()
    assert not old.with_suffix(".json").exists()
    assert new.exists()
    assert cache_prune(0) == size - removed
    assert files(fresh_cache) == []


def test_a_hit_counts_as_use():
    first, second = (compile_library(answer(i), name="t") for i in (1, 2))
    for path in (first, second):
        for file in (path, path.with_suffix(".json")):
            os.utime(file, (time.time() - 1000,) * 2)
    compile_library(answer(1), name="t")
    cache_prune(0)  # what was used a moment ago stays
    assert first.exists()
    assert not second.exists()


def test_prune_removes_what_killed_processes_left(fresh_cache):
    left = toolchain.open_cache() / "tmp" / "left"
    left.mkdir(parents=True)
    (left / "a.cpp").write_text("")
    cache_prune()
    assert left.exists()
    os.utime(left, (0, 0))
    cache_prune()
    assert not left.exists()


def test_stores_keep_the_limit(monkeypatch):
    calls: list[int] = []
    monkeypatch.setattr(toolchain, "cache_prune", lambda: calls.append(1))
    monkeypatch.setattr(toolchain, "_stores", iter(range(31, 100)))
    for i in range(2):
        compile_library(answer(i), name="t")
    assert calls == [1]


# ---- the core ----


def test_build_core_without_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.resources, "src_dir", lambda: tmp_path)
    with pytest.raises(OpwrightError, match="no C\\+\\+ sources") as caught:
        toolchain.build_core()
    assert caught.value.exit_code == EXIT_MACHINE


def test_build_core_makes_an_extension_module(monkeypatch, tmp_path, capfd):
    (tmp_path / "core.cpp").write_text(
        textwrap.dedent("""\
        #include <Python.h>
        static PyModuleDef def = {PyModuleDef_HEAD_INIT, "_core", nullptr, -1, nullptr};
        PyMODINIT_FUNC PyInit__core() {
          PyObject* m = PyModule_Create(&def);
          PyModule_AddIntConstant(m, "answer", 42);
          return m;
        }
        """)
    )
    monkeypatch.setattr(toolchain.resources, "src_dir", lambda: tmp_path)
    path = toolchain.build_core()
    script = (
        "import importlib.machinery as m, importlib.util as u, sys\n"
        "loader = m.ExtensionFileLoader('opwright._core', sys.argv[1])\n"
        "spec = u.spec_from_loader('opwright._core', loader)\n"
        "print(u.module_from_spec(spec).answer)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "42"


def test_build_core_without_python_headers(monkeypatch, tmp_path):
    (tmp_path / "core.cpp").write_text("")
    monkeypatch.setattr(toolchain.resources, "src_dir", lambda: tmp_path)
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path / "none"))
    with pytest.raises(NoCompilerError, match=r"Python\.h") as caught:
        toolchain.build_core()
    assert "python3-dev" in (caught.value.hint or "")


def test_a_long_build_says_so(capfd):
    with toolchain.patience("building", after_s=0.01):
        time.sleep(0.2)
    with toolchain.patience("never shown", after_s=5):
        pass
    err = capfd.readouterr().err
    assert "opwright: building" in err
    assert "never shown" not in err


# ---- texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("int  f( ) {\n  return 1 ; // one\n}", "int f(){return 1;}"),
        ("#define F(x) \\\n  (x)  \nint a;", "#define F(x) (x)\nint a;"),
        ("#  include <a.h>\n\n/* b */ int b;", "#include <a.h>\nint b;"),
    ],
)
def test_layout_is_no_part_of_a_text(text: str, same: str) -> None:
    assert without_layout(text) == without_layout(same)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a + +b", "a ++b"),
        ("int ab;", "int a b;"),
        ("#define F(x) x", "#define F (x) x"),
        ("#if A\nint b;\n#endif", "#if A int b;\n#endif"),
        ('s = "a  b"', 's = "a b"'),
        ("s = '  '", "s = ' '"),
    ],
)
def test_what_a_compiler_reads_otherwise_is_another_text(text: str, other: str) -> None:
    assert without_layout(text) != without_layout(other)
