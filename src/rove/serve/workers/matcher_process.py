"""What a matcher process runs.

`rove.serve.workers.matchers` starts it, and `rove.serve.workers.matcher_start` loads this module.
It reads commands from the socket with the number FD hands them to a `CellHost`, and answers. It
has no life of its own: when the other end of the socket is closed, for whatever reason, it ends at
once, and on Linux also when it is in the middle of something.

Both ways, a frame (`rove.serve.workers.children`) has a message of `rove.elastic.commands`. Frames
to a process are numbered from 1, and a frame from it says which was the last that it had finished
with, so the broker knows at any time what is still owed. The first frame from it only says that it
is there. Answers are sent for every frame that asks for one (`asks`) or caused one, and whenever
`REPORT_S` of work have passed, so that a process that replays a long history is not taken for one
that hangs, and the broker learns how busy it is.

A thread of its own merges the index, as in the broker; what is merged is installed between two
commands. Threads for handling commands were considered and left out: Python runs one at a time.

Measured on two cores that others kept busy: it is there after 1.2 s at best and 3.5 at worst, most
of which goes into importing Numba and loading kernels, and then has 173 MB, 84 MB of them its own
and the rest shared libraries.
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
from rove.elastic.hosts import CellHost
from rove.match import engine
from rove.match.matcher import Work
from rove.serve.workers.children import HEADER, read_frame

REPORT_S: Final = 0.5
MERGE_THREAD: Final = "rove-merge"
_BUFFER_BYTES: Final = 256 * 1024
_CHANGES_MAX: Final = 64
"""After as many, it is seen whether there is something to merge, even within a frame."""


def asks(commands: Sequence[AnyCommand]) -> bool:
    """Whether commands are to be answered even if nothing goes wrong."""
    return any(isinstance(command, Match | Save) for command in commands)


def mapped(path: str) -> memoryview:
    """A file, mapped so that what is changed stays private."""
    with Path(path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def save(path: str, parts: Sequence[bytes | memoryview]) -> None:
    """Write the file of a cell.

    It is not flushed: it need not outlive the broker, and that would take longer than the rest.
    """
    write_whole(path, parts, mode=PRIVATE, is_flushed=False)


def rows_in(rows: msgspec.Raw) -> int:
    """How many rows a `Match` has: MessagePack has that in front."""
    with memoryview(rows) as view:
        first = view[0]
        if first & 0xF0 == 0x90:
            return first & 0x0F
        size = 2 if first == 0xDC else 4
        return int.from_bytes(view[1 : 1 + size], "big")


class Merges:
    """Merges of the index in a thread beside, one at a time, after changes."""

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._changes = 0
        self._thread: threading.Thread | None = None
        self._finished: Work | None = None

    def changed(self) -> None:
        """Subscriptions have come or gone: there may be something to merge."""
        self._changes += 1
        if self._changes >= _CHANGES_MAX:
            self.go_on()

    def go_on(self) -> None:
        """Install what is finished and begin what is due; never in the middle of a command."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread.join()
            self._thread = None
            if self._finished is None:  # it failed: tried again after the next change
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
            # There may be more to do after it.
            self._changes = 1
            self._thread = threading.Thread(
                target=self._run, args=(work,), name=MERGE_THREAD, daemon=True
            )
            self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            self._finished = work.run()
        except Exception as error:
            # Searching goes on without, more slowly.
            complain(f"a merge of the index failed: {error!r}")


class Worker:
    """Serves one socket until it is closed."""

    def __init__(self, connection: socket.socket, host: CellHost) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb", _BUFFER_BYTES)
        self._host = host
        self._merges = Merges(host)
        self._done = 0
        """The number of the last frame that was finished with."""
        self._replies: list[AnyReply] = []
        self._at = time.perf_counter()
        """Up to when the time is in one of the next two."""
        self._busy_s = self._waited_s = 0.0
        self._messages = 0
        self._ticket = -1
        """The highest so far: what is asked again, or of another cell, is not counted again."""

    def run(self) -> None:
        """Say that it is there, then do as it is told until the other end is closed."""
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
        """The next frame; None when there will be no more."""
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
        """Send what there is to say."""
        self._busy_s += self._passed_s()
        replies, self._replies = self._replies, []
        subscriptions = self._host.subscriptions
        said = Replies(replies, self._busy_s, self._waited_s, self._messages, subscriptions)
        self._busy_s = self._waited_s = 0.0
        self._messages = 0
        message = encoded_replies(said)
        header = HEADER.pack(len(message), self._done)
        self._busy_s = self._passed_s()
        self._connection.sendall(b"".join((header, message)))
        self._waited_s = self._passed_s()

    def _passed_s(self) -> float:
        """The time since it was last asked for."""
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
    """Do once, on a small scale, all that a matcher does.

    The first time of everything takes longer, some of it 40 ms, and must not be a publication's.
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
    """What nobody else would hear of."""
    print(f"rove: matcher {os.getpid()}: {text}", file=sys.stderr, flush=True)


def main(fd: int, parent: int) -> int:
    """Serve the socket with this number; what the process ends with."""
    end_with(parent)
    connection = socket.socket(fileno=fd)
    try:
        engine.warm_up()
        # What was imported stays: looking for cycles in it would stop everything for a while.
        gc.freeze()
        Worker(connection, CellHost(mapped, save, time.perf_counter)).run()
    except Exception as error:
        complain(f"ends: {error!r}")
        return 1
    return 0
