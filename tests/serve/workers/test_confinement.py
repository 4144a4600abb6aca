"""A process that has confined itself tries what it should no longer be able to do.

One process does all of it: it confines itself for ever, tries, and tells through its socket.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rove.serve.workers.confinement import program

MIB = 1024 * 1024
HAS_FILTER = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
only_linux = pytest.mark.skipif(not HAS_FILTER, reason="no filter is known for this system")

PRISONER = """
import json, mmap, os, signal, socket, sys, time
from pathlib import Path
from rove.serve.workers.confinement import SOCKET_FD, confine

fd, file = int(sys.argv[1]), sys.argv[2]
leaked = os.dup2(os.open(file, os.O_RDONLY), 99)
missing = confine(fd, os.getppid(), 64 << 20)
end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=SOCKET_FD)
out = {"missing": missing, "environment": dict(os.environ)}

def attempt(name, what, *arguments):
    try:
        out[name] = repr(what(*arguments))
    except MemoryError:
        out[name] = "MemoryError"
    except OSError as error:
        out[name] = error.errno

attempt("what it had open", os.read, leaked, 1)
attempt("open to read", os.open, file, os.O_RDONLY)
attempt("open to write", os.open, file, os.O_WRONLY)
attempt("remove", os.unlink, file)
attempt("look", os.listdir, "/")
attempt("look at a file", os.stat, file)
attempt("connect", socket.socket)
attempt("fork", os.fork)
attempt("execute", os.execv, sys.executable, [sys.executable])
attempt("signal", os.kill, os.getppid(), 0)
attempt("become root", os.setuid, 0)
attempt("pipe", os.pipe)
attempt("executable memory", lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
attempt("much memory", bytearray, 80 << 20)
attempt("some memory", lambda: len(bytearray(32 << 20)))
attempt("time", lambda: time.perf_counter() > 0 and time.process_time() > 0)
attempt("a timer", signal.setitimer, signal.ITIMER_PROF, 9)
attempt("print", os.write, 2, b"who hears this?")
end.sendall(json.dumps(out).encode())
end.recv(1)
os._exit(0)
"""


class Prisoner:
    """What a confined process told, and what is known of it from outside."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "file"
        self.file.write_text("x")
        # Whoever it becomes could read it, if it were let.
        self.file.chmod(0o666)
        ours, its = socket.socketpair()
        command = [sys.executable, "-c", PRISONER, str(its.fileno()), str(self.file)]
        with (
            ours,
            subprocess.Popen(
                command,
                pass_fds=(its.fileno(),),
                env={**os.environ, "SECRET": "1"},
                stderr=subprocess.PIPE,
            ) as process,
        ):
            its.close()
            ours.settimeout(60)
            try:
                told = ours.recv(MIB)
            except TimeoutError:
                process.kill()
                raise
            if told:
                about = Path(f"/proc/{process.pid}")
                self.status = dict(
                    line.split(":\t", 1)
                    for line in (about / "status").read_text().splitlines()
                    if ":\t" in line
                )
                self.limits = (about / "limits").read_text()
            ours.close()
            assert process.stderr is not None
            self.said = process.stderr.read()
            assert told, self.said
            assert process.wait(60) == 0
        self.told: dict[str, Any] = json.loads(told)


@pytest.fixture(scope="module")
def prisoner() -> Prisoner:
    # Not pytest's own folder, which is for its user only.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        prisoner = Prisoner(Path(folder))
        assert prisoner.file.read_text() == "x"
        return prisoner


@only_linux
def test_nothing_is_missing_here(prisoner: Prisoner) -> None:
    assert prisoner.told["missing"] == []


@only_linux
@pytest.mark.parametrize(
    "what",
    [
        "open to read", "open to write", "remove", "look", "look at a file", "connect", "fork",
        "execute", "signal", "become root", "pipe", "executable memory",
    ],
)  # fmt: skip
def test_it_is_refused(prisoner: Prisoner, what: str) -> None:
    assert prisoner.told[what] == errno.EPERM


@only_linux
def test_it_has_nothing_of_what_it_was_given(prisoner: Prisoner) -> None:
    assert prisoner.told["what it had open"] == errno.EBADF
    assert prisoner.told["environment"] == {}
    assert prisoner.said == b""


@only_linux
def test_it_has_so_much_memory_and_no_more(prisoner: Prisoner) -> None:
    assert prisoner.told["much memory"] == "MemoryError"
    assert prisoner.told["some memory"] == str(32 * MIB)


@only_linux
def test_what_it_needs_is_left(prisoner: Prisoner) -> None:
    assert prisoner.told["time"] == "True"
    assert prisoner.told["a timer"] == "(0.0, 0.0)"
    assert prisoner.told["print"] == "15"


@only_linux
def test_the_system_knows_it_as_confined(prisoner: Prisoner) -> None:
    assert prisoner.status["NoNewPrivs"] == "1"
    assert prisoner.status["Seccomp"] == "2"
    limits = {line[:26].strip(): line[26:47].strip() for line in prisoner.limits.splitlines()[1:]}
    assert {
        name: limits[name]
        for name in ("Max file size", "Max core file size", "Max open files", "Max processes")
    } == {
        "Max file size": "0",
        "Max core file size": "0",
        "Max open files": "4",
        "Max processes": "0",
    }


@only_linux
@pytest.mark.skipif(os.geteuid() != 0, reason="has no rights to lose")
def test_root_becomes_nobody(prisoner: Prisoner) -> None:
    assert "0" not in prisoner.status["Uid"].split() + prisoner.status["Gid"].split()
    assert len(set(prisoner.status["Uid"].split())) == 1
    assert prisoner.status["Groups"].split() == []
    assert int(prisoner.status["CapEff"], 16) == int(prisoner.status["CapPrm"], 16) == 0


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_leads_somewhere_from_everywhere(machine: str) -> None:
    instructions = list(struct.iter_unpack("<HBBI", program(machine)))
    ends = {0x06}
    for place, (code, if_so, if_not, _) in enumerate(instructions):
        if code in (0x15, 0x45):
            assert place + 1 + max(if_so, if_not) < len(instructions)
    assert instructions[-1][0] in ends
    calls = [value for code, _, _, value in instructions if code == 0x15][1:]
    assert len(calls) == len(set(calls))


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(ValueError, match="no filter is known for vax"):
        program("vax")
