"""The program of a matcher process.

`rove.serve.workers.matchers` starts it, and `rove.serve.workers.matcher_start` loads this module.
It reads commands from the socket with the number FD, passes them to a `CellHost`, and answers. When
the other end of the socket is closed, for whatever reason, it ends at once; on Linux even in the
middle of a command.

Both ways, a frame (`rove.serve.workers.children`) has a message of `rove.elastic.commands`. Frames
to a process are numbered from 1. A frame from it carries the number of the last frame that it has
completed, so the broker always knows which answers are due. Its first frame only means that it is
ready. It answers every frame that asks for it (`asks`) or that caused a reply, and whenever it has
worked for `REPORT_S`, so that a process that replays a long history is not taken for one that
hangs, and the broker learns how busy it is.

A second thread merges the index, as in the broker; the result is installed between two commands.
Threads for commands were considered and left out: Python runs one at a time.

Measured on two cores that other programs kept busy: it is ready after 1.2 s at best and 3.5 at
worst, most of it for importing Numba and loading kernels. Then it has 173 MB, 84 MB of them not
shared with other processes.
"""

from __future__ import annotations

import gc
import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from rove.base.files import PRIVATE, write_whole
from rove.base.processes import end_with
from rove.elastic.cell_host import CellHost
from rove.elastic.commands import (
    Add,
    AnyCommand,
    AnyReply,
    Failed,
    Match,
    MatchRow,
    Open,
    Remove,
    Replies,
    Save,
    decoded_commands,
    encoded_replies,
    encoded_rows,
)
from rove.match import engine
from rove.match.matcher import Work
from rove.serve.workers.children import HEADER, read_frame

REPORT_S: Final = 0.5
MERGE_THREAD: Final = "rove-merge"
_BUFFER_BYTES: Final = 256 * 1024
_CHANGES_MAX: Final = 64
"""After this many it looks for a merge, even within a frame."""


def asks(commands: Sequence[AnyCommand]) -> bool:
    """Whether commands need an answer even if nothing goes wrong."""
    return any(isinstance(command, Match | Save) for command in commands)


def mapped(path: str) -> memoryview:
    """A file, mapped so that changes stay private."""
    with Path(path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def save(path: str, parts: Sequence[bytes | memoryview]) -> None:
    """Write the file of a cell.

    It is not flushed: it need not survive a crash of the machine, and flushing would take longest.
    """
    write_whole(path, parts, mode=PRIVATE, is_flushed=False)


def rows_in(rows: msgspec.Raw) -> int:
    """How many rows a `Match` has: MessagePack begins with that."""
    with memoryview(rows) as view:
        first = view[0]
        if first & 0xF0 == 0x90:
            return first & 0x0F
        size = 2 if first == 0xDC else 4
        return int.from_bytes(view[1 : 1 + size], "big")


class Merges:
    """Merges the index in another thread, one merge at a time, after changes."""

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._changes = 0
        self._thread: threading.Thread | None = None
        self._finished: Work | None = None

    def changed(self) -> None:
        """Subscriptions have changed: there may be something to merge."""
        self._changes += 1
        if self._changes >= _CHANGES_MAX:
            self.go_on()

    def go_on(self) -> None:
        """Install a finished merge and begin the next; never in the middle of a command."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread.join()
            self._thread = None
            if self._finished is None:  # it failed: the next change tries again
                self._changes = 0
            else:
                self._host.install(self._finished)
                self._finished = None
        if self._changes:
            self._changes = 0
            self._begin()

    def _begin(self) -> None:
        work = self._host.merge_due()
        if work is not None:
            # There may be more to merge after it.
            self._changes = 1
            self._thread = threading.Thread(
                target=self._run, args=(work,), name=MERGE_THREAD, daemon=True
            )
            self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            self._finished = work.run()
        except Exception as error:
            # Matching goes on without it, more slowly.
            complain(f"a merge of the index failed: {error!r}")


class MatcherWorker:
    """Serves one socket until it is closed."""

    def __init__(self, connection: socket.socket, host: CellHost) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb", _BUFFER_BYTES)
        self._host = host
        self._merges = Merges(host)
        self._done = 0
        """The number of the last completed frame."""
        self._replies: list[AnyReply] = []
        self._at = time.perf_counter()
        """Up to when the next two count the time."""
        self._busy_s = self._waited_s = 0.0
        self._messages = 0
        self._ticket = -1
        """The highest so far: what is asked again, or of another cell, counts once."""

    def run(self) -> None:
        """Report that it is ready, then execute commands until the other end is closed."""
        try:
            self._report()
            while (frame := self._received()) is not None:
                number, message = frame
                self._handle(number, decoded_commands(message))
        except OSError:  # the other end was closed while it was written to
            return
        finally:
            self._stream.close()

    def _received(self) -> tuple[int, bytes] | None:
        """The next frame; None at the end."""
        frame = read_frame(self._stream)
        self._waited_s += self._passed_s()
        return frame

    def _handle(self, number: int, commands: Sequence[AnyCommand]) -> None:
        for command in commands:
            if isinstance(command, Match):
                if command.ticket > self._ticket:
                    self._ticket = command.ticket
                    self._messages += rows_in(command.rows)
            elif isinstance(command, Add | Remove | Open):
                self._merges.changed()
            self._replies += self._host.handle(command)
            self._busy_s += self._passed_s()
            if self._busy_s >= REPORT_S:
                self._report()
        self._merges.go_on()
        self._done = number
        if self._replies or asks(commands):
            self._report()

    def _report(self) -> None:
        """Send the replies and how busy it was."""
        self._busy_s += self._passed_s()
        replies, self._replies = self._replies, []
        subscriptions = self._host.subscriptions
        report = Replies(replies, self._busy_s, self._waited_s, self._messages, subscriptions)
        self._busy_s = self._waited_s = 0.0
        self._messages = 0
        message = encoded_replies(report)
        header = HEADER.pack(len(message), self._done)
        self._busy_s = self._passed_s()
        self._connection.sendall(b"".join((header, message)))
        self._waited_s = self._passed_s()

    def _passed_s(self) -> float:
        """The time since the last call."""
        before, self._at = self._at, time.perf_counter()
        return self._at - before


_REHEARSED: Final = (
    "x > 5 AND kind = 'car'",
    "kind LIKE 'c%' OR kind LIKE '%r'",
    "x + 2 * y > 10",
    "x BETWEEN t - 3 AND t + 3",
    "sqrt(x) > t AND y < me.y",
    "x > 2 ORDER BY y DESC LIMIT 1 WITHIN 3 SECONDS",
    "ORDER BY x LIMIT 2 WITHIN 2 SECONDS",
)


def rehearse() -> None:
    """Do everything that a matcher does once, on a small scale.

    The first time takes longer, some of it 40 ms, and no publication should wait for that.
    """
    files: dict[str, bytes] = {}

    def write(path: str, parts: Sequence[bytes | memoryview]) -> None:
        files[path] = b"".join(parts)

    host = CellHost(lambda path: memoryview(bytearray(files[path])), write, time.perf_counter)
    payload = b'{"x": 6, "y": 2.5, "kind": "car"}'
    commands: list[AnyCommand] = [Open(1)]
    for id, text in enumerate(_REHEARSED):
        commands.append(Add(1, id, text, 1, 0.0, {"y": 3.0}))
    for cell, at in ((1, 0.0), (2, 20.0)):
        rows = [MatchRow(number, "a", payload, (), at + number, (1,)) for number in range(20)]
        commands += [
            Match(cell, 0, 0, encoded_rows(part), part[-1].at) for part in (rows[:1], rows[1:])
        ]
        commands += [Save(cell, "saved"), Open(2, "saved")]
    for command in commands:
        for reply in host.handle(command):
            if isinstance(reply, Failed):
                raise RuntimeError(reply.text)


def complain(text: str) -> None:
    """Write a fault to standard error: there is no other way to report it."""
    print(f"rove: matcher {os.getpid()}: {text}", file=sys.stderr, flush=True)


def main(fd: int, parent: int) -> int:
    """Serve the socket with this number; returns the exit status."""
    end_with(parent)
    connection = socket.socket(fileno=fd)
    try:
        engine.warm_up()
        # What was imported stays, so the garbage collector need not look through it: a pause.
        gc.freeze()
        MatcherWorker(connection, CellHost(mapped, save, time.perf_counter)).run()
    except Exception as error:
        complain(f"ends: {error!r}")
        return 1
    return 0
