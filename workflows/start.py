"""Where `opwright` begins and ends: what Ctrl-C does while Python is still importing, and after the command is over.

Before `cli.main` runs, and after it has returned, there is nothing to put in order: the process ends with one line and
exit code 130.  In between `cli.main` turns Ctrl-C into its own orderly end.  What comes before `main` is Python's own
start, whose time is kept short by importing next to nothing here.

May import: `_signal` (built in, where `signal` costs imports of its own), os, sys; everything else inside functions.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed knows `signal` alone
import os
import sys

TYPE_CHECKING = False  # as typing's, whose import would take the time that is to be kept short
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; nothing was left half-written"


def main() -> int:
    """Run the command line that this process was started with."""
    # A Ctrl-C that is ignored, as in the background jobs of a shell, stays ignored.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)
    try:
        from . import cli

        code = cli.main()
    except KeyboardInterrupt:  # in the moment between the command's end and its last line
        _end()
    if code == EXIT_INTERRUPTED:
        _leave(code)
    return code


def _end(*_: object) -> NoReturn:
    """Ctrl-C where no command runs."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def _leave(code: int) -> None:
    """End with this exit code, whatever Python would make of it.

    Python ends itself by SIGINT when Ctrl-C ever broke into the text of an `exec` (dataclasses use one), though it
    was caught.
    """
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
