"""What a process does to itself before it runs a stranger's code: namespaces, mounts, limits, a system-call filter.

Runs inside the child (see `child.py`), so it imports the standard library only.  Every layer is independent: one
that the kernel refuses is reported with the reason, and the others still hold.  `measure` then *tries* what must
not work; the report is of what was measured, not of what was asked for.

To add a layer: a function that applies it, a row in `LAYERS`, and an attempt in `measure` that it must defeat.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: layer -> what it keeps out
LAYERS: dict[str, str] = {
    "environment": "no variable of the caller's reaches the candidate",
    "descriptors": "no file of the caller's is open in the candidate",
    "limits": "memory, time, file size and core dumps are bounded",
    "network": "no socket leads anywhere",
    "files": "nothing outside the scratch directory can be written",
    "processes": "no process can be started, traced or signalled",
    "threads": "no thread can be started beside the pool that the judge lends",
    "namespaces": "user, mount, network, process and IPC namespaces of its own",
}

_LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_SPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR = 442

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one worker.  `seconds` of CPU time, `memory` of address space, `file` of any file it writes (bytes)."""

    seconds: int = 600
    memory: int = 4 << 30
    file: int = 64 << 20
    descriptors: int = 64


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(s: str | None) -> bytes | None:
        return None if s is None else s.encode()

    call = _LIBC.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    _check(call, f"mount {target}")


def die_with_parent() -> None:
    """The kernel kills this process when its parent is gone."""
    _check(_LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _enter_spaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_SPACES), "unshare")
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


def _possible(step: Callable[[], None]) -> str:
    """Try a step in a throw-away process; the reason why it cannot be done, or an empty text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            step()
        except OSError as error:
            os.write(write, str(error.strerror or error).encode()[:200])
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 256).decode(errors="replace")
    os.close(read)
    os.waitpid(pid, 0)
    return said


def enter_namespaces(scratch: str, ends: tuple[int, ...]) -> str:
    """Namespaces of our own, everything but a fresh `scratch` read-only; returns "" or the reason it could not be.

    Forks: the caller continues as the first process of the new process namespace.  The process it leaves behind
    only waits: it closes the descriptors in `ends`, so that the judge notices their end, and dies as its child died.
    """
    if sys.platform != "linux":
        return "not Linux"
    if reason := _possible(_enter_spaces):
        return reason
    _enter_spaces()
    pid = os.fork()
    if pid:
        _stand_by(pid, ends)
    die_with_parent()
    try:
        _mount(None, "/", None, MS_REC | MS_PRIVATE)
        attr = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
        _check(
            _LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attr, len(attr)), "mount_setattr"
        )
        _mount("tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=700")
        os.chdir(scratch)
        try:
            _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        except OSError:  # containers hide parts of /proc and so forbid a fresh one: then none at all
            _mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=555")
    except OSError as error:
        return str(error.strerror or error)
    return ""


def _stand_by(pid: int, ends: tuple[int, ...]) -> None:
    for fd in ends:
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def set_limits(limits: Limits) -> None:
    """Resource limits, hard and soft alike, so that nothing raises them again."""
    for name, value in (
        (resource.RLIMIT_CPU, limits.seconds),
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_NOFILE, limits.descriptors),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(name)
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (wanted, wanted))


# ---- the system-call filter --------------------------------------------------------------------------------------

# name -> (x86_64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # network
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    # processes and threads
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "setns": (308, 268),
    "unshare": (272, 97),
    # work that would happen later
    "setitimer": (38, 103),
    "timer_create": (222, 107),
    "alarm": (37, None),
    "timerfd_create": (283, 85),
    # files
    "creat": (85, None),
    "openat2": (437, 437),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    # ways around
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "mq_open": (240, 180),
    "personality": (135, 92),
}
# opening a file for writing: (call, which argument holds the flags)
_OPENERS: dict[str, tuple[tuple[int | None, int], tuple[int | None, int]]] = {
    "open": ((2, 1), (None, 1)),
    "openat": ((257, 2), (56, 2)),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277, "arm64": 277}
_SET_FILTER, _TSYNC = 1, 1
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000


def _instruction(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def filter_program(machine: str) -> bytes:
    """The BPF program: everything is allowed but what `_DENIED` names and files opened for writing."""
    column, arch = _ARCHES[machine]
    out = [
        _instruction(_LD, 4),
        _instruction(_JEQ, arch, 1, 0),
        _instruction(_RET, _KILL),
        _instruction(_LD, 0),
    ]
    if machine == "x86_64":  # the x32 numbers would be a second set of the same calls
        out += [_instruction(_JGE, _X32, 0, 1), _instruction(_RET, _KILL)]
    for name, numbers in _DENIED.items():
        number = numbers[column]
        if number is None:
            continue
        # glibc falls back from clone3 and openat2 only when they are unknown.
        code = errno.ENOSYS if name in ("clone3", "openat2") else errno.EPERM
        out += [_instruction(_JEQ, number, 0, 1), _instruction(_RET, _ERRNO | code)]
    for per_arch in _OPENERS.values():
        number, argument = per_arch[column]
        if number is None:
            continue
        out += [
            _instruction(_JEQ, number, 0, 4),
            _instruction(_LD, 16 + 8 * argument),
            _instruction(_JSET, _WRITING, 0, 1),
            _instruction(_RET, _ERRNO | errno.EPERM),
            _instruction(_RET, _ALLOW),
        ]
    out.append(_instruction(_RET, _ALLOW))
    return b"".join(out)


def filter_calls() -> str:
    """Install the filter on every thread of this process; "" or the reason it could not be."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHES:
        return f"no filter for {sys.platform} on {machine}"
    program = filter_program(machine)
    text = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    block = Program(len(program) // 8, ctypes.addressof(text))
    try:
        _check(_LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _check(_LIBC.syscall(_SYS_SECCOMP[machine], _SET_FILTER, _TSYNC, ctypes.byref(block)), "seccomp")
    except OSError as error:
        return str(error.strerror or error)
    return ""


# ---- what holds --------------------------------------------------------------------------------------------------

#: The variables that a worker is given.
CLEAN_ENV = {"LC_ALL": "C", "PATH": "/nonexistent"}
# The interpreter may add these by itself (PEP 538, macOS).
_TOLERATED = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING", "PWD"}


def _network() -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: nothing is sent, but a route must exist
    except OSError:
        return ""
    return "a socket found a route out"


def _files(scratch: str, outside: tuple[str, ...]) -> str:
    for folder in outside:
        path = os.path.join(folder, f".opwright-probe-{os.getpid()}")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            continue
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(path)
        return f"wrote a file in {folder}"
    return ""


def _processes(watcher: int) -> str:
    try:
        pid = os.fork()
    except OSError:
        pass
    else:
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "started a process"
    with contextlib.suppress(OSError):
        os.kill(watcher, 0)
        return "could signal the judge"
    return ""


def _threads() -> str:
    handle = ctypes.c_ulong()
    noop = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
    if _LIBC.pthread_create(ctypes.byref(handle), None, noop, None) != 0:
        return ""
    _LIBC.pthread_join(handle, None)
    return "started a thread"


def _limits(limits: Limits) -> str:
    loose = [
        name
        for name, number, value in (
            ("CPU time", resource.RLIMIT_CPU, limits.seconds),
            ("memory", resource.RLIMIT_AS, limits.memory),
            ("file size", resource.RLIMIT_FSIZE, limits.file),
        )
        if not 0 <= resource.getrlimit(number)[1] <= value
    ]
    return f"no limit of {', '.join(loose)}" if loose else ""


def _descriptors(known: tuple[int, ...]) -> str:
    open_ones = []
    for fd in range(3, 256):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            if fd not in known:
                open_ones.append(fd)
    return f"open: {open_ones}" if open_ones else ""


def measure(
    limits: Limits, scratch: str, outside: tuple[str, ...], known: tuple[int, ...], watcher: int, spaces: str
) -> dict[str, str]:
    """Layer -> "" when it held against an attempt, else what got through.  `watcher` is the judge's process id."""
    extra = sorted(set(os.environ) - set(CLEAN_ENV) - _TOLERATED)
    return {
        "environment": f"set: {', '.join(extra)}" if extra else "",
        "descriptors": _descriptors(known),
        "limits": _limits(limits),
        "network": _network(),
        "files": _files(scratch, outside),
        "processes": _processes(watcher),
        "threads": _threads(),
        "namespaces": spaces,
    }
