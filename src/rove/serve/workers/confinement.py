"""What a process gives up for good before it runs untrusted code.

A worker for policies (`rove.serve.workers.policy_process`) has loaded all that it will ever need.
From then on it only computes: it reads jobs from one socket, writes answers to it, and allocates
memory. It gives up everything else that a process may do, in layers, each of which holds if another
fails:

- every file descriptor but the socket, the environment, the working directory;
- limits of the system: no more than a certain amount of memory, no file longer than nothing, no
  other file descriptor, no other process, no core dump;
- the rights of root, if it has them: it becomes `nobody`, and can never get them back;
- all system calls but some thirty, by a filter (seccomp): opening, connecting, starting, signalling
  and looking at anything fail with EPERM, and so does memory that is to be executed.

What a system does not offer is left out and reported, never silently: `confine` returns what it
could not do. Limits need a Unix, a filter Linux on x86-64 or 64-bit ARM; neither needs any rights.

Namespaces were considered: some containers forbid them, and after the filter they would take away
nothing that is left. A filter that kills the process was considered too: with one that refuses, a
test shows what was refused, and a library that can do without a call goes on. A process for each
subscriber was left out: 20 MB each.

It takes 0.3 ms, and a filtered system call takes about 0.1 µs longer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rove.base.processes import end_with

SOCKET_FD: Final = 3
"""Where the socket is afterwards: the only descriptor besides 0, 1 and 2, which are /dev/null."""
_NOBODY: Final = 65_534
_NO_NEW_PRIVILEGES: Final = 38
"""PR_SET_NO_NEW_PRIVS of Linux."""
_SECCOMP: Final = 22
"""PR_SET_SECCOMP, with a filter:"""
_FILTER: Final = 2

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_BITS: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF_0000
_REFUSE: Final = 0x0005_0000 | errno.EPERM
_CALL_AT: Final = 0
_MACHINE_AT: Final = 4
_THIRD_ARGUMENT_AT: Final = 32
_EXECUTABLE: Final = 4
"""PROT_EXEC."""

# The number of each call on x86-64 and on 64-bit ARM.
_CALLS: Final[dict[str, tuple[int, int]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "futex": (202, 98),
    "membarrier": (324, 283),
    "rseq": (334, 293),
    "sched_yield": (24, 124),
    "getcwd": (79, 17),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "clock_gettime": (228, 113),
    "setitimer": (38, 103),
    "sigaltstack": (131, 132),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# Unless the memory is to be executed.
_MEMORY_CALLS: Final[dict[str, tuple[int, int]]] = {"mmap": (9, 222), "mprotect": (10, 226)}
_MACHINES: Final = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
"""Which column that is, and what the system calls the machine."""


def confine(fd: int, parent: int, memory_bytes: int) -> list[str]:
    """Give up everything but a socket, which is `SOCKET_FD` from then on, and this much memory in
    addition to what it has; and end when the parent ends. Returns what could not be given up, for
    people; nothing, on Linux.

    Never in a process that has other threads or still needs anything else.
    """
    # While it can still be looked up.
    nobody = _nobody()
    _let_go(fd)
    missing = []
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("its memory is not limited", lambda: _limit_memory(memory_bytes)),
        ("its files are not limited", _limit_files),
        ("it keeps the rights of root", lambda: _become(nobody)),
        # A change of the user resets it.
        ("it may outlive the broker", lambda: end_with(parent)),
        ("it may start processes", _forbid_processes),
        ("it may use every call of the system", _filter_calls),
    )
    for what, step in steps:
        try:
            step()
        except (ImportError, OSError, ValueError) as error:
            missing.append(f"{what} ({error})")
    return missing


def _let_go(fd: int) -> None:
    """Close all it inherited but the socket."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    # The socket first: it may have the number of a descriptor that becomes /dev/null.
    if fd != SOCKET_FD:
        if nowhere == SOCKET_FD:
            nowhere = os.dup(nowhere)
        os.dup2(fd, SOCKET_FD)
    for each in range(SOCKET_FD):
        os.dup2(nowhere, each)
    os.closerange(SOCKET_FD + 1, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.chdir("/")


def _limit_memory(memory_bytes: int) -> None:
    import resource  # not on Windows

    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)


def _limit_files() -> None:
    import resource

    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, SOCKET_FD + 1)


def _limit(kind: int, most: int) -> None:
    """Lower a limit, unless it is lower already."""
    import resource

    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        most = min(most, ceiling)
    resource.setrlimit(kind, (most, most))


def _nobody() -> tuple[int, int]:
    """The user and group that root becomes."""
    try:
        import pwd

        found = pwd.getpwnam("nobody")
    except (ImportError, KeyError):
        return _NOBODY, _NOBODY
    return found.pw_uid, found.pw_gid


def _become(nobody: tuple[int, int]) -> None:
    if os.geteuid() == 0:
        user, group = nobody
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def _forbid_processes() -> None:
    import resource

    # It does not limit root, so it comes after root has become nobody.
    _limit(resource.RLIMIT_NPROC, 0)


# --- the filter ---------------------------------------------------------------------------------


def program(machine: str) -> bytes:
    """The filter, in the system's instructions; ValueError for a machine whose system calls have
    other numbers than those known here."""
    known = _MACHINES.get(machine)
    if known is None or sys.maxsize < 1 << 32:
        raise ValueError(f"no filter is known for {machine}")
    column, code = known
    instructions = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 1, 0, code),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _CALL_AT),
    ]
    for numbers in _CALLS.values():
        instructions += [(_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ALLOW)]
    for numbers in _MEMORY_CALLS.values():
        instructions += [
            (_IF_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
            (_IF_BITS, 1, 0, _EXECUTABLE),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ]
    instructions.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *each) for each in instructions)


def _filter_calls() -> None:
    if sys.platform != "linux":
        raise ValueError("only Linux has filters")
    instructions = program(os.uname().machine)
    kept = ctypes.create_string_buffer(instructions, len(instructions))
    described = ctypes.create_string_buffer(
        struct.pack("@HP", len(instructions) // 8, ctypes.addressof(kept))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((_NO_NEW_PRIVILEGES, 1), (_SECCOMP, _FILTER, ctypes.addressof(described))):
        padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0)[:5]]
        if prctl(ctypes.c_int(arguments[0]), *padded[1:]) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
