"""What may go out at once, and what only when it is on disk.

An acknowledgement is a promise, so it waits for the commit that keeps it; a notification of
QoS 1 or 2 waits too, so that nobody hears of a publication that a crash could take back. What
waits is released in the order in which it was decided: a later turn never overtakes an earlier
one, even if the later one has nothing to commit. QoS 0 waits for nothing.

Costs a tuple per packet that waits.
"""

from __future__ import annotations

from collections import deque

from rove.broker.journal import Changes
from rove.broker.links import Link


class Gate:
    """Collects what a turn decides; the shell takes it when the turn ends."""

    def __init__(self) -> None:
        self.changes = Changes()
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
        self._held: deque[tuple[int, list[tuple[Link, bytes]]]] = deque()

    def send(self, link: Link, data: bytes) -> None:
        """Let this go out with the end of the turn, or behind what was sent in order."""
        if link.waits_for > self.committed:
            self._send_behind(link, data)
        else:
            self.send_at_once(link, data)

    def send_at_once(self, link: Link, data: bytes) -> None:
        """Let this go out with the end of the turn, before all that waits."""
        if not link.out:
            self.ready.append(link)
        link.out.append(data)

    def send_after_commit(self, link: Link, data: bytes) -> None:
        """Let this go out when all that was decided until the end of this turn is on disk."""
        self.waiting.append((link, data))

    def send_in_order(self, link: Link, data: bytes) -> None:
        """The same, and whatever goes to this link from now on goes behind it, QoS 0 too."""
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

    def _send_behind(self, link: Link, data: bytes) -> None:
        for number, waiting in self._held:
            if number >= link.waits_for:
                # With what it waits for, so that waiting ends with that commit.
                link.waits_for = number
                waiting.append((link, data))
                self.held_bytes += len(data)
                return
        self.send_in_order(link, data)

    def end_turn(self) -> Changes | None:
        """Close the turn; what has to be committed now, if anything."""
        changes: Changes | None = None
        if self.changes:
            changes, self.changes = self.changes, Changes()
            self.submitted += 1
        if self._in_order:
            for link in self._in_order:
                # If nothing has to be kept, there is no later commit to wait for.
                link.waits_for = self.submitted
                link.welcomed_by = min(link.welcomed_by, self.submitted)
            self._in_order.clear()
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            if self.submitted == self.committed:
                self._release(waiting)
            else:
                self.held_bytes += sum(len(data) for _, data in waiting)
                self._held.append((self.submitted, waiting))
        return changes

    def commit_done(self, number: int) -> None:
        """The commit of that number, and all before it, are on disk."""
        self.committed = max(self.committed, number)
        while self._held and self._held[0][0] <= self.committed:
            _, waiting = self._held.popleft()
            self.held_bytes -= sum(len(data) for _, data in waiting)
            self._release(waiting)

    def take_ready(self) -> list[Link]:
        """The links that have something to send; the shell's to empty."""
        ready, self.ready = self.ready, []
        return ready

    def _release(self, waiting: list[tuple[Link, bytes]]) -> None:
        ready = self.ready
        for link, data in waiting:
            if link.closing:
                # Nothing follows a goodbye.
                continue
            if not link.out:
                ready.append(link)
            link.out.append(data)
