"""The frame of the command line: help, exit codes, one clear error, no traceback unless it is asked for."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from typing import Any

import click
import pytest

from opwright.generator.errors import JudgedError, MachineError, SpecError
from opwright.workflows import cli

ALL = [name for rows in cli.SECTIONS.values() for name in rows]


def command_of(name: str) -> click.Command:
    found = cli.root.get_command(click.Context(cli.root), name)
    assert found is not None
    return found


def test_help_has_the_three_sections_and_every_command(ow: Any) -> None:
    ran = ow("--help")
    assert ran.code == 0
    for title in ("Add an op:", "Support a model:", "Keep it:"):
        assert title in ran.out
    for name in ALL:
        assert re.search(rf"^  {name} +\S", ran.out, re.MULTILINE), name


@pytest.mark.parametrize("name", ALL)
def test_every_help_ends_with_an_example_of_that_command(ow: Any, name: str) -> None:
    ran = ow(name, "--help")
    assert ran.code == 0
    _, _, examples = ran.out.partition("Examples:\n")
    assert re.search(rf"^  opwright {name}\b", examples, re.MULTILINE), ran.out


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_the_name_that_it_is_called_by(name: str) -> None:
    found = command_of(name)
    assert found.name == name
    members = getattr(found, "commands", {})
    for member in members.values():
        assert member.example, f"{name} {member.name} has no example"


def test_no_arguments_show_the_help_and_are_a_wrong_request(ow: Any) -> None:
    ran = ow()
    assert ran.code == 2
    assert "Add an op" in ran.out + ran.err


def test_an_unknown_command_says_which_is_near(ow: Any) -> None:
    ran = ow("chek")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no command `chek`" in ran.err and "did you mean `check`?" in ran.err


def test_an_unknown_option_is_one_error_with_exit_code_2(ow: Any) -> None:
    ran = ow("ops", "--nope")
    assert ran.code == 2
    assert ran.err.startswith("error: no such option") and "opwright ops --help" in ran.err


def test_the_version_is_the_package_s(ow: Any) -> None:
    import opwright

    assert ow("--version").out == f"opwright {opwright.__version__}\n"


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def callback(**_: Any) -> None:
        raise error

    monkeypatch.setattr(command_of("doctor"), "callback", callback)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JudgedError("it is wrong"), 1),
        (SpecError("it is no spec", hint="write one"), 2),
        (MachineError("there is no compiler"), 3),
    ],
)
def test_an_error_gives_its_exit_code_and_no_traceback(
    ow: Any, monkeypatch: pytest.MonkeyPatch, error: Any, code: int
) -> None:
    fail_with(monkeypatch, error)
    ran = ow("doctor")
    assert (ran.code, ran.err) == (code, error.render() + "\n")


def test_an_error_under_json_is_json_on_stdout(ow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, MachineError("there is no compiler", hint="install one"))
    ran = ow("doctor", "--json")
    assert ran.json == {
        "schema": 1,
        "error": "MachineError",
        "message": "there is no compiler",
        "exit_code": 3,
        "hint": "install one",
    }
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("words", [("--debug", "doctor"), ("doctor", "--debug")])
def test_debug_shows_the_traceback_wherever_it_stands(
    ow: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    fail_with(monkeypatch, MachineError("there is no compiler"))
    ran = ow(*words)
    assert ran.code == 3 and "Traceback (most recent call last)" in ran.err


def test_ctrl_c_is_one_line(ow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    ran = ow("doctor")
    assert ran.code == 130
    assert ran.err.strip().splitlines() == ["interrupted; nothing was left half-written"]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, 3, "the disk is full"),
        (errno.EACCES, 3, "choose a folder that you can write to"),
        (errno.ENOENT, 2, "No such file"),
    ],
)
def test_what_the_system_refuses_is_one_clear_error(
    ow: Any, monkeypatch: pytest.MonkeyPatch, number: int, code: int, words: str
) -> None:
    fail_with(monkeypatch, OSError(number, os.strerror(number), "/somewhere"))
    ran = ow("doctor")
    assert ran.code == code
    assert ran.err.startswith("error: /somewhere: ") and words in ran.err


def test_a_fault_of_ours_says_so_and_how_to_report_it(ow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ZeroDivisionError("division by zero"))
    ran = ow("doctor")
    assert ran.code == 70
    assert ran.err.startswith("internal error: ZeroDivisionError: division by zero") and "--debug" in ran.err


def test_help_imports_neither_torch_nor_the_core_nor_a_command() -> None:
    program = (
        "import sys; from opwright.workflows import cli; cli.main(['--help']); "
        "bad = {'torch', 'numpy', 'rich', 'opwright._core', 'opwright.workflows.bridge'} & set(sys.modules); "
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_env(), check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_a_closed_pipe_is_no_error() -> None:
    line = (
        f"{sys.executable} -m opwright.workflows.start schema | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    )
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=_env(), check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("0", "")


def test_sigterm_ends_a_command_like_ctrl_c() -> None:
    """The command waits for ever: that it ends at all is the signal's doing."""
    program = (
        "import sys, threading; from opwright.workflows import cli, doctor; "
        "doctor.doctor.callback = lambda **_: (print('up', flush=True), threading.Event().wait()); "
        "sys.exit(cli.main(['doctor']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env()
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate()
    assert child.returncode == 130 and err.strip().startswith("interrupted")


INTERRUPTED_AT = """\
import os, signal, sys
sys.argv[1:] = ["check", "softmax"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from opwright.workflows.start import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    ["opwright.workflows.cli", "click", "opwright.workflows.check", "ruamel.yaml", "opwright.generator.bind"],
)
def test_ctrl_c_while_importing_is_one_line(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT.format(module=module)],
        capture_output=True,
        text=True,
        env=_env(),
        check=False,
    )
    said = ran.stderr.strip()  # click ends the line that `^C` stands on
    assert (ran.returncode, ran.stdout, said) == (130, "", "interrupted; nothing was left half-written")


def test_ctrl_c_that_broke_into_an_exec_ends_with_130_too() -> None:
    """Python would end itself by the signal then, though it was caught."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = ['doctor']\n"
        "from opwright.workflows import doctor, start\n"
        "doctor.doctor.callback = lambda **_: exec('import signal; signal.raise_signal(2)')\n"
        "sys.exit(start.main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_env(), check=False
    )
    assert (ran.returncode, ran.stderr.strip()) == (130, "interrupted; nothing was left half-written")


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    """As in the background jobs of a shell."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.argv[1:] = ['doctor']\n"
        "from opwright.workflows import doctor, start\n"
        "doctor.doctor.callback = lambda **_: (signal.raise_signal(2), print('went on'))[1] or 0\n"
        "sys.exit(start.main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_env(), check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "went on\n", "")


def _env() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
