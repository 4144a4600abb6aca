"""Matcher processes: started, sent to, read from and ended, without the broker waiting for them.

Each is a child with one end of a socket pair (`rove.serve.workers.matcher_process` is what it runs,
`rove.serve.workers.children` defines a frame). Commands that ask for an answer are sent at once;
others are sent with the next of these, or when the broker has nothing else to do, whichever comes
first. Sockets do not block; what one does not take is kept and written later. Answers are passed to
the listener from the event loop, or from `wait` if the broker cannot go on without one; never from
within a call that only sends.

A child is lost when its socket is closed, when it has not started within `HELLO_S`, or when it owes
an answer and has sent nothing for `ANSWER_S`. Then it is killed if need be and reaped, and the
listener is called once. What a child sent before it was lost is still read.

`multiprocessing` was considered and left out: it pickles, its queues need threads, and a child that
is killed in the middle of a queue operation leaves a lock behind. Shared memory for batches would
save two copies, a few µs for a hundred publications, and was not worth a protocol. asyncio's
streams cannot be waited for from within a turn.

Cells are saved in a folder beside the broker's data. It is emptied at the start, made when it is
first needed, and removed at the end: nothing in it outlives a broker.

Measured on two cores that other programs kept busy: starting a matcher blocks the broker for 0.3 to
12 ms; sending a batch of a hundred publications takes the broker 40 µs; a batch of one is answered
70 µs after it was sent, 23 of them for matching; a batch of a hundred after 490, nearly all of them
for matching.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rove.base.files import remove_unfinished
from rove.base.processes import Reaper, exit_reason
from rove.elastic.commands import (
    AnyCommand,
    MatcherListener,
    Replies,
    decoded_replies,
    encoded_commands,
)
from rove.serve.workers import matcher_start
from rove.serve.workers.children import Child, Unreadable, spawned
from rove.serve.workers.matcher_process import asks, mapped, save

FOLDER: Final = "matchers"
ANSWER_S: Final = 10.0
"""How long a matcher that owes an answer may send nothing."""
HELLO_S: Final = 60.0
"""How long a matcher may take to start; compiling kernels that no cache has takes ten seconds."""
END_S: Final = 5.0
"""How long a matcher may take to end when it is stopped."""
_DYING_S: Final = 0.5
"""How long a process may take to end after its socket was closed."""
_LOOK_S_MAX: Final = 1.0
_COLLECTED_MAX: Final = 256
"""Commands that need no answer are sent together, at most this many."""
_BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE


class _Child(Child):
    """One matcher process, and what it has been sent."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        super().__init__(process, end)
        self.number = number
        self.is_there = False
        """Whether its first frame has arrived."""
        self.sent = self.asked = self.done = 0
        """Frames: the last sent, the last that asks for an answer, the last that is done."""
        self.collected: list[AnyCommand] = []

    @property
    def owes(self) -> bool:
        return not self.is_there or self.done < self.asked

    def put_collected(self) -> None:
        """Queue the collected commands as a frame."""
        commands, self.collected = self.collected, []
        self.sent += 1
        if asks(commands):
            if not self.owes:
                self.heard_at = time.monotonic()
            self.asked = self.sent
        self.put(self.sent, encoded_commands(commands))

    def next_message(self) -> Replies | None:
        """The next complete message; `Unreadable` if it is invalid."""
        frame = self.next_frame()
        if frame is None:
            return None
        try:
            replies = decoded_replies(frame[1])
        except msgspec.MsgspecError as error:
            raise Unreadable(str(error)) from None
        self.done = frame[0]
        return replies


class MatcherPool:
    """All matcher processes of a broker; implements `rove.elastic.commands.MatcherProcesses`."""

    def __init__(
        self,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
        on_news: Callable[[], None],
        *,
        answer_s: float = ANSWER_S,
        hello_s: float = HELLO_S,
    ) -> None:
        """Save cells in a folder, which is emptied; `on_news` is called when the listener was
        called between the broker's turns."""
        self.listener: MatcherListener
        """To be set before the first is started."""
        self._folder = folder.absolute()
        self._loop = loop
        self._on_news = on_news
        self._answer_s = answer_s
        self._hello_s = hello_s
        self._children: dict[int, _Child] = {}
        self._reaper = Reaper(loop)
        self._not_started: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()
        self._timer: asyncio.TimerHandle | None = None
        self._started = self._paths = self._told = 0
        self._is_collecting = False
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> dict[int, int]:
        """Running processes, by the number of their matcher."""
        return {number: child.process.pid for number, child in self._children.items()}

    # -- for the coordinator ---------------------------------------------------------------------

    def start(self) -> int:
        """Start another; `started` or `died` of the listener follows."""
        self._started += 1
        number = self._started
        try:
            child = _Child(number, *spawned(matcher_start.__name__))
        except OSError as error:
            self._not_started[number] = f"cannot be started: {error.strerror}"
            self._loop.call_soon(self._report_not_started)
            return number
        self._children[number] = child
        self._selector.register(child.socket, selectors.EVENT_READ, child)
        self._loop.add_reader(child.socket, self._arrived, child)
        self._set_timer()
        return number

    def send(self, matcher: int, commands: Sequence[AnyCommand]) -> None:
        """Send commands; what the socket does not take is kept. Nothing, if the matcher is gone."""
        child = self._children.get(matcher)
        if child is None:
            return
        child.collected += commands
        if asks(commands) or len(child.collected) >= _COLLECTED_MAX:
            self._put(child)
        elif not self._is_collecting:
            self._is_collecting = True
            self._loop.call_soon(self._put_all)

    def _put_all(self) -> None:
        self._is_collecting = False
        for child in self._children.values():
            if child.collected:
                self._put(child)

    def _put(self, child: _Child) -> None:
        is_behind = bool(child.outgoing)
        child.put_collected()
        if is_behind:
            return
        child.flush()
        if child.outgoing:
            self._selector.modify(child.socket, _BOTH, child)
            self._loop.add_writer(child.socket, self._writable, child)

    def wait(self) -> None:
        """Wait until something happens to any matcher; RuntimeError if nothing can."""
        self._put_all()
        told = self._told
        while self._told == told:
            self._report_not_started()
            if self._told != told:
                return
            deadline = min(map(self._deadline, self._children.values()), default=math.inf)
            if deadline == math.inf:
                raise RuntimeError("no matcher owes an answer, so there is nothing to wait for")
            for key, events in self._selector.select(max(deadline - time.monotonic(), 0)):
                child = key.data
                if events & selectors.EVENT_WRITE:
                    self._writable(child)
                if events & selectors.EVENT_READ:
                    self._read(child)
            self._end_overdue()

    def stop(self, matcher: int) -> None:
        """End a matcher, without waiting for it."""
        self._not_started.pop(matcher, None)
        child = self._children.get(matcher)
        if child is not None:
            self._let_go(child)
            self._reaper.add(child.process, END_S)

    def clock(self) -> float:
        """A monotonic clock, in seconds."""
        return time.perf_counter()

    def cpu_s(self) -> float:
        """Processor time of the broker with all its threads."""
        return time.process_time()

    def new_path(self) -> str:
        """The path of a new file for a cell."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._paths += 1
        return str(self._folder / str(self._paths))

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Save a cell that the broker holds."""
        save(path, parts)

    def read(self, path: str) -> memoryview:
        """A saved cell, as a private mapping."""
        return mapped(path)

    def forget(self, path: str) -> None:
        """Remove a file, and unfinished versions of it."""
        Path(path).unlink(missing_ok=True)
        remove_unfinished(Path(path).parent, Path(path).name)

    def close(self) -> None:
        """Kill all of them and remove the folder."""
        for child in list(self._children.values()):
            self._let_go(child)
            self._reaper.add(child.process, 0.0)
        self._reaper.close()
        self._not_started.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- events --------------------------------------------------------------------------------

    def _arrived(self, child: _Child) -> None:
        self._read(child)
        self._on_news()

    def _read(self, child: _Child) -> None:
        """Read a socket, and pass on what it has."""
        if child.number not in self._children:
            return
        is_open = child.receive()
        while True:
            try:
                replies = child.next_message()
            except Unreadable as error:
                self._lose(child, f"sent an invalid message: {error}")
                return
            if replies is None:
                break
            self._told += 1
            if child.is_there:
                self.listener.arrived(child.number, replies)
            else:
                child.is_there = True
                self.listener.started(child.number, child.process.pid)
            if child.number not in self._children:  # the listener stopped it
                return
        if not is_open:
            self._lose(child)

    def _writable(self, child: _Child) -> None:
        if child.number not in self._children or not child.outgoing:
            return
        if child.flush():
            # The socket was full and the process has read from it, so it is alive.
            child.heard_at = time.monotonic()
        if not child.outgoing:
            self._loop.remove_writer(child.socket)
            self._selector.modify(child.socket, selectors.EVENT_READ, child)

    def _lose(self, child: _Child, why: str = "") -> None:
        """Report a matcher that is gone, or is to be killed for this reason."""
        self._let_go(child)
        if why:
            child.process.kill()
        try:
            status = child.process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            self._reaper.add(child.process, 0.0)
            why = why or "closed its socket and was killed"
        else:
            why = why or exit_reason(status)
        self._told += 1
        self.listener.died(child.number, why)

    def _let_go(self, child: _Child) -> None:
        del self._children[child.number]
        self._loop.remove_reader(child.socket)
        self._loop.remove_writer(child.socket)
        self._selector.unregister(child.socket)
        child.socket.close()

    # -- time ----------------------------------------------------------------------------------

    def _deadline(self, child: _Child) -> float:
        """When a matcher will have been silent for too long."""
        if not child.owes:
            return math.inf
        return child.heard_at + (self._answer_s if child.is_there else self._hello_s)

    def _end_overdue(self) -> None:
        """Kill matchers that owe an answer and have not sent it in time."""
        for child in list(self._children.values()):
            if time.monotonic() < self._deadline(child):
                continue
            # Perhaps it was the broker that was busy for so long, and the answer is there.
            self._writable(child)
            self._read(child)
            if child.number in self._children and time.monotonic() >= self._deadline(child):
                took_s = self._answer_s if child.is_there else self._hello_s
                did = "answer" if child.is_there else "start"
                self._lose(child, f"did not {did} within {took_s:g} s and was killed")

    def _report_not_started(self) -> None:
        while self._not_started:
            number, why = self._not_started.popitem()
            self._told += 1
            self.listener.died(number, why)
            self._on_news()

    def _look(self) -> None:
        """Check deadlines, regularly while there are matchers."""
        self._timer = None
        told = self._told
        self._end_overdue()
        self._set_timer()
        if self._told != told:
            self._on_news()

    def _set_timer(self) -> None:
        if self._timer is None and self._children:
            look_s = min(_LOOK_S_MAX, self._answer_s / 4, self._hello_s / 4)
            self._timer = self._loop.call_later(look_s, self._look)
