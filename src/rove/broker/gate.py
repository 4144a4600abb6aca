"""What may go out at once, and what only when it is on disk.

An acknowledgement is a promise, so it waits for the commit that keeps it; a notification of
QoS 1 or 2 waits too, so that nobody hears of a publication that a crash could take back. What
waits is released in the order in which it was decided: a later turn never overtakes an earlier
one, even if the later one has nothing to commit. QoS 0 waits for nothing.

Costs a tuple per packet that waits.
"""

from __future__ import annotations

from collections import deque

import msgspec

from rove.broker.sessions.session import Link
from rove.broker.steps import Steps
from rove.broker.storage.journal import Changes


class _Held(msgspec.Struct):
    """What waits for a commit."""

    number: int
    waiting: list[tuple[Link, bytes]]
    size_bytes: int


class Gate:
    """Collects what a turn decides; the shell takes it when the turn ends."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()
        self._undo = self.steps.undo
        self.changes = Changes(self._undo)
        """What this turn wants to be kept."""
        self.ready: list[Link] = []
        """Links with something in `out`."""
        self.submitted = 0
        """The number of the last commit that was handed out."""
        self.committed = 0
        self.held_bytes = 0
        self.waiting: list[tuple[Link, bytes]] = []
        """What this turn decided to send after its commit."""
        self._in_order: list[Link] = []
        """Links that were sent something in order in this turn."""
        self._held: deque[_Held] = deque()

    def send(self, link: Link, data: bytes) -> None:
        """Let this go out with the end of the turn, or behind what was sent in order."""
        if link.waits_for > self.committed:
            self._send_behind(link, data)
        else:
            self.send_at_once(link, data)

    def send_at_once(self, link: Link, data: bytes) -> None:
        """Let this go out with the end of the turn, before all that waits."""
        self._undo.append((_unsend, link, self.ready, len(self.ready)))
        if not link.out:
            self.ready.append(link)
        link.out.append(data)

    def send_after_commit(self, link: Link, data: bytes) -> None:
        """Let this go out when all that was decided until the end of this turn is on disk."""
        self._undo.append((self.waiting.pop,))
        self.waiting.append((link, data))

    def send_in_order(self, link: Link, data: bytes) -> None:
        """The same, and whatever goes to this link from now on goes behind it, QoS 0 too."""
        self._undo.append((self._unsend_in_order, link, link.waits_for))
        link.waits_for = self.submitted + 1
        self._in_order.append(link)
        self.waiting.append((link, data))

    def send_welcome(self, link: Link, data: bytes) -> None:
        """The same for the first that is ever sent to this link."""
        self.send_in_order(link, data)
        link.welcomed_by = link.waits_for

    def is_welcomed(self, link: Link) -> bool:
        """Whether the first that is sent to this link is on its way."""
        return link.welcomed_by <= self.committed

    def _unsend_in_order(self, link: Link, waits_for: int) -> None:
        link.waits_for = waits_for
        self._in_order.pop()
        self.waiting.pop()

    def _send_behind(self, link: Link, data: bytes) -> None:
        for held in self._held:
            if held.number >= link.waits_for:
                # With what it waits for, so that waiting ends with that commit.
                self._undo.append((self._unhold, link, link.waits_for, held))
                link.waits_for = held.number
                held.waiting.append((link, data))
                held.size_bytes += len(data)
                self.held_bytes += len(data)
                return
        self.send_in_order(link, data)

    def _unhold(self, link: Link, waits_for: int, held: _Held) -> None:
        link.waits_for = waits_for
        _, data = held.waiting.pop()
        held.size_bytes -= len(data)
        self.held_bytes -= len(data)

    def end_turn(self) -> Changes | None:
        """Close the turn; what has to be committed now, if anything."""
        # Whatever fails here, nothing is lost: what is held and what is to be committed stay so.
        fresh = Changes(self._undo) if self.changes.tables and self.changes else None
        number = self.submitted if fresh is None else self.submitted + 1
        if self._in_order:
            for link in self._in_order:
                # If nothing has to be kept, there is no later commit to wait for.
                link.waits_for = number
                link.welcomed_by = min(link.welcomed_by, number)
            self._in_order.clear()
        if self.waiting:
            size_bytes = 0
            if number > self.committed:
                size_bytes = sum(map(_size_bytes, self.waiting))
            self.held_bytes += size_bytes
            self._held.append(_Held(number, self.waiting, size_bytes))
            self.waiting = []
        if self._held:
            self._release()
        if fresh is None:
            return None
        changes, self.changes, self.submitted = self.changes, fresh, number
        return changes

    def commit_done(self, number: int) -> None:
        """The commit of that number, and all before it, are on disk."""
        self.committed = max(self.committed, number)
        self._release()

    def take_ready(self) -> list[Link]:
        """The links that have something to send; the shell's to empty."""
        ready, self.ready = self.ready, []
        return ready

    def _release(self) -> None:
        """Let go what waited for commits that are done."""
        ready = self.ready
        while self._held and self._held[0].number <= self.committed:
            held = self._held.popleft()
            self.held_bytes -= held.size_bytes
            for link, data in held.waiting:
                if link.closing:
                    # Nothing follows a goodbye.
                    continue
                if not link.out:
                    ready.append(link)
                link.out.append(data)


def _unsend(link: Link, ready: list[Link], ready_before: int) -> None:
    link.out.pop()
    del ready[ready_before:]


def _size_bytes(waiting: tuple[Link, bytes]) -> int:
    return len(waiting[1])
