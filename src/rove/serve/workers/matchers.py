"""Matcher processes: started, fed, listened to, and buried, without the broker waiting for any.

Each is a child with one end of a socket pair (`rove.serve.workers.matcher_process` says what it
runs, `rove.serve.workers.children` how a frame looks). Commands that ask for an answer are sent at
once, others together with the next of these or when the broker has nothing else to do, whichever
comes first. Sockets do not block; what one does not take is kept and written when it does. What
arrives is handed to the listener from the event loop, or from `wait`, where the broker cannot go on
without an answer; never from within a call that only sends.

A child is lost when its socket says so, when it has not begun within `HELLO_S`, or when it owes an
answer and has said nothing for `ANSWER_S`. Then it is killed if need be, reaped, and the listener
hears of it once. What a child said before it was lost is still heard.

`multiprocessing` was considered and left out: it pickles, its queues have threads of their own, and
a child that is killed in the middle of one leaves a lock behind. Shared memory for batches would
save two copies, a few µs for a hundred publications, and was not worth a protocol. asyncio's
streams cannot be waited for from within a turn.

Cells are saved in a folder of their own beside what the broker keeps. It is emptied at the start,
made when it is first needed, and removed at the end: nothing in it outlives a broker.

Measured on two cores that others kept busy: starting one holds the broker up for 0.3 to 12 ms;
sending a batch of a hundred publications costs the broker 40 µs; a batch of one is back 70 µs after
it was sent, 23 of them matching, one of a hundred after 490, nearly all of them matching.
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
from rove.base.processes import told_of
from rove.elastic.commands import AnyCommand, Replies, decoded_replies, encoded_commands
from rove.elastic.ports import MatcherListener
from rove.serve.workers import matcher_start
from rove.serve.workers.children import Child, Unreadable, spawned
from rove.serve.workers.matcher_process import asks, mapped, save

FOLDER: Final = "matchers"
ANSWER_S: Final = 10.0
"""How long one that owes an answer may say nothing."""
HELLO_S: Final = 60.0
"""How long one may take to begin; compiling what no cache has takes some ten seconds."""
END_S: Final = 5.0
"""How long one that was told to end may take."""
_DYING_S: Final = 0.5
"""How long one whose socket has closed may take to be gone."""
_LOOK_S_MAX: Final = 1.0
_COLLECTED_MAX: Final = 256
"""Commands that nobody waits for are sent together, so many at the most."""
_BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE


class _Child(Child):
    """One process, and what it was asked."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        super().__init__(process, end)
        self.number = number
        self.is_there = False
        """Whether it has said so."""
        self.sent = self.asked = self.done = 0
        """Frames: the last sent, the last that asks for an answer, the last that it has done."""
        self.collected: list[AnyCommand] = []

    @property
    def owes(self) -> bool:
        return not self.is_there or self.done < self.asked

    def put_collected(self) -> None:
        """Put a frame of what was collected behind what waits."""
        commands, self.collected = self.collected, []
        self.sent += 1
        if asks(commands):
            if not self.owes:
                self.heard_at = time.monotonic()
            self.asked = self.sent
        self.put(self.sent, encoded_commands(commands))

    def next_message(self) -> Replies | None:
        """What has arrived whole, one by one; `Unreadable` if it makes no sense."""
        frame = self.next_frame()
        if frame is None:
            return None
        try:
            replies = decoded_replies(frame[1])
        except msgspec.MsgspecError as error:
            raise Unreadable(str(error)) from None
        self.done = frame[0]
        return replies


class Processes:
    """All matcher processes of a broker: what `rove.elastic.ports.Matchers` asks for."""

    def __init__(
        self,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
        on_news: Callable[[], None],
        *,
        answer_s: float = ANSWER_S,
        hello_s: float = HELLO_S,
    ) -> None:
        """Keep cells in a folder, which is emptied; call `on_news` when the listener was told
        something in between the broker's turns."""
        self.listener: MatcherListener
        """To be set before the first is started."""
        self._folder = folder.absolute()
        self._loop = loop
        self._on_news = on_news
        self._answer_s = answer_s
        self._hello_s = hello_s
        self._children: dict[int, _Child] = {}
        self._ending: list[tuple[subprocess.Popen[bytes], float]] = []
        """Those that are to end, and when they are killed if they have not."""
        self._never_came: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()
        self._timer: asyncio.TimerHandle | None = None
        self._started = self._paths = self._told = 0
        self._is_collecting = False
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> dict[int, int]:
        """The processes that live, by the number of the matcher."""
        return {number: child.process.pid for number, child in self._children.items()}

    # -- what the coordinator wants --------------------------------------------------------------

    def start(self) -> int:
        """Begin another; `started` or `died` follows."""
        self._started += 1
        number = self._started
        try:
            child = _Child(number, *spawned(matcher_start.__name__))
        except OSError as error:
            self._never_came[number] = f"cannot be started: {error.strerror}"
            self._loop.call_soon(self._tell_never_came)
            return number
        self._children[number] = child
        self._selector.register(child.socket, selectors.EVENT_READ, child)
        self._loop.add_reader(child.socket, self._arrived, child)
        self._set_timer()
        return number

    def send(self, matcher: int, commands: Sequence[AnyCommand]) -> None:
        """Send, or keep what the socket does not take; nothing, to one that is gone."""
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
        """Wait for news of any; RuntimeError if there cannot be any."""
        self._put_all()
        told = self._told
        while self._told == told:
            self._tell_never_came()
            if self._told != told:
                return
            deadline = min(map(self._deadline, self._children.values()), default=math.inf)
            if deadline == math.inf:
                raise RuntimeError("no matcher has anything to say: nobody was asked")
            for key, events in self._selector.select(max(deadline - time.monotonic(), 0)):
                child = key.data
                if events & selectors.EVENT_WRITE:
                    self._writable(child)
                if events & selectors.EVENT_READ:
                    self._read(child)
            self._end_overdue()

    def stop(self, matcher: int) -> None:
        """End one, without waiting for it."""
        self._never_came.pop(matcher, None)
        child = self._children.get(matcher)
        if child is not None:
            self._let_go(child)
            self._ending.append((child.process, time.monotonic() + END_S))

    def clock(self) -> float:
        """Seconds that only ever go on."""
        return time.perf_counter()

    def cpu_s(self) -> float:
        """Processor time that the broker has used, with all its threads."""
        return time.process_time()

    def new_path(self) -> str:
        """A file that no cell was saved in yet."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._paths += 1
        return str(self._folder / str(self._paths))

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Save a cell of the broker's own."""
        save(path, parts)

    def read(self, path: str) -> memoryview:
        """What was saved, mapped privately."""
        return mapped(path)

    def forget(self, path: str) -> None:
        """Remove a file, and what is left of one that was not finished."""
        Path(path).unlink(missing_ok=True)
        remove_unfinished(Path(path).parent, Path(path).name)

    def close(self) -> None:
        """End all of them, now, and remove the folder."""
        for child in list(self._children.values()):
            self._let_go(child)
            self._ending.append((child.process, 0.0))
        for process, _ in self._ending:
            process.kill()
        for process, _ in self._ending:
            process.wait()
        self._ending.clear()
        self._never_came.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- what happens --------------------------------------------------------------------------

    def _arrived(self, child: _Child) -> None:
        self._read(child)
        self._on_news()

    def _read(self, child: _Child) -> None:
        """Take what a socket has, and hand it on."""
        if child.number not in self._children:
            return
        is_open = child.receive()
        while True:
            try:
                replies = child.next_message()
            except Unreadable as error:
                self._lose(child, f"said what makes no sense: {error}")
                return
            if replies is None:
                break
            self._told += 1
            if child.is_there:
                self.listener.arrived(child.number, replies)
            else:
                child.is_there = True
                self.listener.started(child.number, child.process.pid)
            if child.number not in self._children:  # stopped by whoever heard that
                return
        if not is_open:
            self._lose(child)

    def _writable(self, child: _Child) -> None:
        if child.number not in self._children or not child.outgoing:
            return
        if child.flush():
            # It had been full, so the process has read, so it is alive.
            child.heard_at = time.monotonic()
        if not child.outgoing:
            self._loop.remove_writer(child.socket)
            self._selector.modify(child.socket, selectors.EVENT_READ, child)

    def _lose(self, child: _Child, why: str = "") -> None:
        """One is gone, or is killed for a reason: bury it and say so."""
        self._let_go(child)
        if why:
            child.process.kill()
        try:
            status = child.process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            child.process.kill()
            self._ending.append((child.process, 0.0))
            why = why or "closed its socket and was killed"
        else:
            why = why or told_of(status)
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
        """When one has been silent for too long."""
        if not child.owes:
            return math.inf
        return child.heard_at + (self._answer_s if child.is_there else self._hello_s)

    def _end_overdue(self) -> None:
        """Kill those that owe an answer and do not give it."""
        for child in list(self._children.values()):
            if time.monotonic() < self._deadline(child):
                continue
            # The broker may have been the one that did nothing for so long.
            self._writable(child)
            self._read(child)
            if child.number in self._children and time.monotonic() >= self._deadline(child):
                took_s = self._answer_s if child.is_there else self._hello_s
                did = "answer" if child.is_there else "begin"
                self._lose(child, f"did not {did} within {took_s:g} s and was killed")

    def _tell_never_came(self) -> None:
        while self._never_came:
            number, why = self._never_came.popitem()
            self._told += 1
            self.listener.died(number, why)
            self._on_news()

    def _bury(self) -> None:
        """Reap those that have ended, and kill those that have not for too long."""
        still = []
        for process, kill_at in self._ending:
            if process.poll() is None:
                if time.monotonic() >= kill_at:
                    process.kill()
                still.append((process, kill_at))
        self._ending = still

    def _look(self) -> None:
        """Now and then, while there is anybody."""
        self._timer = None
        told = self._told
        self._end_overdue()
        self._bury()
        self._set_timer()
        if self._told != told:
            self._on_news()

    def _set_timer(self) -> None:
        if self._timer is None and (self._children or self._ending):
            look_s = min(_LOOK_S_MAX, self._answer_s / 4, self._hello_s / 4)
            self._timer = self._loop.call_later(look_s, self._look)
