"""Processes that work for the broker, each at one end of a socket pair: what all of them share.

The broker's side starts one and has a `Child`: frames that wait for the socket and frames that came
out of it, none of which ever blocks. The process's side reads frames from a plain stream, and asks
the system to end it when the broker ends. What is in the frames is for others to say: matchers
(`rove.serve.workers.matchers`) and workers for policies (`rove.serve.workers.policy_workers`) have
a protocol each.

A *frame* is a header (`HEADER`) and a message. One is made, sent and taken apart in some µs, plus
two copies of the message.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from rove.errors import RoveError

HEADER: Final = struct.Struct("<IQ")
"""How long the message is, and a number that the protocol gives a meaning to."""
MESSAGE_BYTES_MAX: Final = 1 << 30
_CHUNK_BYTES: Final = 256 * 1024


class Unreadable(RoveError):
    """A process says what makes no sense."""


class Child:
    """One process, and what is on its way to and from it."""

    def __init__(self, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        self.process = process
        self.socket = end
        self.heard_at = time.monotonic()
        """When it last said something."""
        self.outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()

    def put(self, number: int, message: bytes) -> None:
        """Put a frame behind what waits."""
        self.outgoing.append(memoryview(HEADER.pack(len(message), number) + message))

    def flush(self) -> bool:
        """Give the socket what it takes; whether it took anything."""
        took = False
        try:
            while self.outgoing:
                sent = self.socket.send(self.outgoing[0])
                took = True
                if sent < len(self.outgoing[0]):
                    self.outgoing[0] = self.outgoing[0][sent:]
                else:
                    self.outgoing.popleft()
        except BlockingIOError:
            pass
        except OSError:  # it is gone: reading will say so, after all that it said before
            self.outgoing.clear()
        return took

    def receive(self) -> bool:
        """Take what the socket has; False if it will have no more."""
        while True:
            try:
                data = self.socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._incoming += data
            self.heard_at = time.monotonic()
            if len(data) < _CHUNK_BYTES:
                return True

    def next_frame(self, bytes_max: int = MESSAGE_BYTES_MAX) -> tuple[int, bytes] | None:
        """The number and the message of what has arrived whole, one by one; `Unreadable` if it is
        longer than anything that could be meant."""
        incoming = self._incoming
        if len(incoming) < HEADER.size:
            return None
        length, number = HEADER.unpack_from(incoming)
        if length > bytes_max:
            raise Unreadable(f"a message of {length} bytes")
        end = HEADER.size + length
        if len(incoming) < end:
            return None
        message = bytes(memoryview(incoming)[HEADER.size : end])
        del incoming[:end]
        return number, message


def spawned(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A process that runs a module, and our end of its socket. The module is told the number of its
    end, which process this is, and the arguments; without an environment of its own it has ours.

    Never from a thread: where the system ends a process with the one that started it, it is the
    thread that counts.
    """
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as otherwise:
        otherwise.callback(ours.close)
        ours.setblocking(False)
        fd, parent = theirs.fileno(), os.getpid()
        # -P: what lies about where the broker was started is not imported instead of a library.
        command = [sys.executable, "-P", "-m", module, str(fd), str(parent), *arguments]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            env=environment,
            start_new_session=True,  # Ctrl-C is for the broker to hear
        )
        otherwise.pop_all()
    return process, ours


def cores() -> int:
    """Those that this process, and whoever it starts, may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- in the process -----------------------------------------------------------------------------


class Readable(Protocol):
    """What frames are read from."""

    def read(self, size: int, /) -> bytes:
        """As many bytes; fewer at the end."""
        ...


def read_frame(stream: Readable) -> tuple[int, bytes] | None:
    """The next frame; None when there will be no more."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, number = HEADER.unpack(header)
    message = stream.read(length)
    return (number, message) if len(message) == length else None
