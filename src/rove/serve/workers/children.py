"""Child processes of the broker, each with one end of a socket pair: what all of them share.

The broker's side starts a process and has a `Child`: frames that wait for the socket and frames
that came out of it. Neither ever blocks. The process reads frames from a plain stream, and asks the
system to end it when the broker ends. The contents of frames are up to the two protocols: matchers
(`rove.serve.workers.matchers`) and workers for policies (`rove.serve.workers.policy_workers`).

A *frame* is a header (`HEADER`) and a message. To make, send and read one takes some µs, plus two
copies of the message.
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
"""The length of the message, and a number whose meaning the protocol defines."""
MESSAGE_BYTES_MAX: Final = 1 << 30
_CHUNK_BYTES: Final = 256 * 1024


class Unreadable(RoveError):
    """A process has sent an invalid message."""


class Child:
    """One process, and what is on its way to it and from it."""

    def __init__(self, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        self.process = process
        self.socket = end
        self.heard_at = time.monotonic()
        """When it last sent something."""
        self.outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()

    def put(self, number: int, message: bytes) -> None:
        """Queue a frame."""
        self.outgoing.append(memoryview(HEADER.pack(len(message), number) + message))

    def flush(self) -> bool:
        """Write as much as the socket takes; whether that was anything."""
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
        except OSError:  # it is gone: the reader finds out, after all that it sent before
            self.outgoing.clear()
        return took

    def receive(self) -> bool:
        """Read what the socket has; False at its end."""
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
        """The number and message of the next complete frame; `Unreadable` if it is longer than
        allowed."""
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
    """A process that runs a module, and our end of its socket. The module's arguments are the file
    descriptor of its end, the id of this process, and `arguments`; without an environment it has
    ours.

    Call it from the main thread only: where the system ends a process with its parent, the parent
    is the thread that started it.
    """
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as otherwise:
        otherwise.callback(ours.close)
        ours.setblocking(False)
        fd, parent = theirs.fileno(), os.getpid()
        # -P: files in the working directory are not imported instead of a library.
        command = [sys.executable, "-P", "-m", module, str(fd), str(parent), *arguments]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            env=environment,
            start_new_session=True,  # Ctrl-C is for the broker only
        )
        otherwise.pop_all()
    return process, ours


# --- in the child -------------------------------------------------------------------------------


class Readable(Protocol):
    """What frames are read from."""

    def read(self, size: int, /) -> bytes:
        """As many bytes; fewer at the end."""
        ...


def read_frame(stream: Readable) -> tuple[int, bytes] | None:
    """The next frame; None at the end of the stream."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, number = HEADER.unpack(header)
    message = stream.read(length)
    return (number, message) if len(message) == length else None
