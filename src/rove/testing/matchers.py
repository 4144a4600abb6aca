"""Matchers that are no processes: slow, dead or late whenever a seed says so.

Each has real cells, and everything that goes to and fro is encoded and decoded as it would be. What
is sent waits until somebody lets it be worked on; who is next, and for how many messages, the seed
decides. So whatever order real processes could come in, comes here, and comes again.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections import deque
from collections.abc import Sequence

from rove.elastic.cell_host import CellHost
from rove.elastic.commands import (
    AnyCommand,
    AnyReply,
    MatcherListener,
    Replies,
    decoded_commands,
    decoded_replies,
    encoded_commands,
    encoded_replies,
)
from rove.match.cell import Cell


class _Simulated:
    def __init__(self, matchers: SimulatedMatchers) -> None:
        self.host = CellHost(matchers.read, matchers.write, lambda: 0.0)
        self.inbox: deque[bytes] = deque()
        self.has_begun = False


class SimulatedMatchers:
    """Is a `rove.elastic.commands.MatcherProcesses`."""

    def __init__(self, seed: int) -> None:
        self.listener: MatcherListener
        self.files: dict[str, bytes] = {}
        self.room = math.inf
        """So many files can still be written."""
        self.fails_to_start = 0
        """So many of the next do not start."""
        self.kill_share = 0.0
        """How often one dies instead of working."""
        self.kills = 0
        self._random = random.Random(seed)
        self._living: dict[int, _Simulated] = {}
        self._dead: deque[tuple[int, str]] = deque()
        self._next = 0
        self._paths = 0
        self._clock = 0.0

    @property
    def living(self) -> list[int]:
        """The numbers of those that are there."""
        return list(self._living)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody has anything to do or to say."""
        return not self._dead and all(
            one.has_begun and not one.inbox for one in self._living.values()
        )

    # -- the coordinator's side ----------------------------------------------------------------

    def start(self) -> int:
        self._next += 1
        if self.fails_to_start:
            self.fails_to_start -= 1
            self._dead.append((self._next, "it did not start"))
        else:
            self._living[self._next] = _Simulated(self)
        return self._next

    def send(self, matcher: int, commands: Sequence[AnyCommand]) -> None:
        if matcher in self._living:
            self._living[matcher].inbox.append(encoded_commands(commands))

    def wait(self) -> None:
        if self.is_quiet:
            raise RuntimeError("nobody has anything to say")
        while not self.work():
            pass

    def stop(self, matcher: int) -> None:
        self._living.pop(matcher, None)
        self._dead = deque(one for one in self._dead if one[0] != matcher)

    def clock(self) -> float:
        return self._clock

    def cpu_s(self) -> float:
        return 0.0

    def new_path(self) -> str:
        self._paths += 1
        return f"cell{self._paths}"

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= 1
        self.files[path] = b"".join(parts)

    def read(self, path: str) -> memoryview:
        return memoryview(self.files[path])

    def forget(self, path: str) -> None:
        self.files.pop(path, None)

    # -- the test's side -----------------------------------------------------------------------

    def cells_of(self, matcher: int) -> dict[int, Cell]:
        """The cells that one has, by number."""
        return self._living[matcher].host.cells

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on."""
        self._clock += seconds

    def end_all(self) -> None:
        """The broker is gone, and they with it; nobody is told."""
        self._living.clear()
        self._dead.clear()

    def kill(self, matcher: int) -> None:
        """Let one die; what it was sent and has not done is gone."""
        del self._living[matcher]
        self.kills += 1
        self._dead.append((matcher, "killed by signal 9"))

    def work(self) -> bool:
        """Let somebody do something; whether the coordinator has heard of it."""
        if self._dead:
            self.listener.died(*self._dead.popleft())
            return True
        ready = [n for n, one in self._living.items() if one.inbox or not one.has_begun]
        if not ready:
            return False
        number = self._random.choice(ready)
        if self._random.random() < self.kill_share:
            self.kill(number)
            return False
        one = self._living[number]
        if not one.has_begun:
            self._begin(number, one)
            return True
        told = _done(one, self._random.randint(1, 4))
        if self._random.random() < self.kill_share:
            # It has done it all, saved files too, and nobody hears of it.
            self.kill(number)
            return False
        self.listener.arrived(number, decoded_replies(told))
        return True

    def work_off(self, matcher: int) -> None:
        """Let this one do all that it was sent, and the coordinator hear of it at once."""
        one = self._living[matcher]
        if not one.has_begun:
            self._begin(matcher, one)
        if one.inbox:
            self.listener.arrived(matcher, decoded_replies(_done(one, len(one.inbox))))

    def _begin(self, number: int, one: _Simulated) -> None:
        one.has_begun = True
        self.listener.started(number, 1000 + number)


def _done(one: _Simulated, messages: int) -> bytes:
    """Have so many messages worked on; what is said about them."""
    replies: list[AnyReply] = []
    for _ in range(min(messages, len(one.inbox))):
        for command in decoded_commands(one.inbox.popleft()):
            replies += one.host.handle(command)
    return encoded_replies(Replies(replies, 0.001, 0.001, 1, one.host.subscriptions))
