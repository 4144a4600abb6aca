"""Pressure: who does not take what it is sent, and who sends more than can be taken.

A receiver that takes nothing for long is closed. Publishers wait while too much waits inside,
for a commit or for receivers that are behind because all is quick, and one that publishes more
than its rate waits by itself. The shell acts on what is decided here.

Costs nothing while nobody is behind.
"""

from __future__ import annotations

from collections.abc import Callable

from rove.broker.context import BrokerContext
from rove.broker.sessions.session import Link, Session

CONGESTED_SHARE = 0.5
"""Publishers are paused when so many of the receivers cannot keep up; fewer are on their own."""
STUCK_LATELY_SHARE = 0.05
STUCK_LATELY_S = 0.2
"""The same for those that got stuck within this time."""
STUCK_S = 1.0
"""A receiver that took nothing for so long pauses nobody any more."""


class Pressure:
    """Who is slow, who is quick, and who has to wait."""

    def __init__(self, context: BrokerContext, leave: Callable[[Link], None]) -> None:
        """`leave` ends what a connection was for."""
        self._context = context
        self._leave = leave
        self.is_paused = False
        self.backlog_bytes = 0
        self.stuck_links: dict[Link, None] = {}
        """Those that take nothing for the moment."""
        self._given_up: dict[Link, None] = {}
        self._throttled: dict[Link, None] = {}

    @property
    def is_throttling(self) -> bool:
        """Whether some publishers are too quick."""
        return bool(self._throttled)

    def is_throttled(self, link: Link) -> bool:
        """Whether it publishes too quickly and has to wait."""
        return link in self._throttled

    @property
    def wants_looking_at(self) -> bool:
        """Whether a tick would do anything soon."""
        return bool(self.stuck_links or self._throttled)

    def stuck(self, link: Link) -> None:
        """The connection takes nothing for the moment."""
        link.stuck_at = link.moved_at = self._context.now
        link.seen_bytes = link.buffered_bytes
        self.stuck_links[link] = None

    def unstuck(self, link: Link) -> None:
        """It takes again."""
        self.stuck_links.pop(link, None)

    def forget(self, link: Link) -> None:
        """The connection is gone."""
        self.stuck_links.pop(link, None)
        self._throttled.pop(link, None)
        self._given_up.pop(link, None)

    def is_given_up(self, link: Link) -> bool:
        """Whether it is to be closed without waiting for what it was sent."""
        return link in self._given_up

    def published(self, session: Session, link: Link) -> None:
        """A publisher whose rate is limited has published once more."""
        self._refill(session)
        session.publish_allowance -= 1
        if session.publish_allowance < 0:
            link.is_paused = True
            self._throttled[link] = None

    def look_at_stuck(self) -> None:
        """Close connections that took nothing for too long."""
        context = self._context
        for link in list(self.stuck_links):
            if link.buffered_bytes < link.seen_bytes:
                link.moved_at = context.now
            link.seen_bytes = link.buffered_bytes
            if context.now - link.moved_at >= context.limits.unsent_disconnect_s:
                del self.stuck_links[link]
                context.counters.slow_disconnected += 1
                # It would not take a goodbye either.
                link.closing = True
                self._given_up[link] = None
                context.gate.ready.append(link)
                context.note("warning", "slow consumer closed", link=link.name)
                self._leave(link)

    def judge(self) -> None:
        """Pause publishers while too much waits inside, and let them go on when it has gone."""
        context = self._context
        waiting = self.backlog_bytes + context.gate.held_bytes
        limits = context.limits
        congested = self._is_congested()
        if self.is_paused:
            calm = min(limits.commit_backlog_bytes_max, limits.memory_bytes_low) // 2
            self.is_paused = waiting > calm or congested
        elif waiting > min(limits.commit_backlog_bytes_max, limits.memory_bytes_high) or congested:
            self.is_paused = True
            context.counters.publishers_paused += 1

    def _is_congested(self) -> bool:
        """Whether receivers are behind because all is quick, and not because they are slow.

        Either half of them are stuck and still take something, or several got stuck a moment ago,
        as happens when publishers outrun everybody. Few that are slow for long slow nobody.
        """
        if not self.stuck_links:
            return False
        now = self._context.now
        receivers = max(1, len(self._context.links) - 1)
        moving = sum(now - link.moved_at < STUCK_S for link in self.stuck_links)
        if moving >= receivers * CONGESTED_SHARE:
            return True
        fresh = sum(now - link.stuck_at < STUCK_LATELY_S for link in self.stuck_links)
        return fresh >= max(2, receivers * STUCK_LATELY_SHARE)

    def _refill(self, session: Session) -> None:
        """Let a publisher have what it saved since the last time, a second's worth at most."""
        rate = self._context.limits.publish_per_s_max
        now = self._context.now
        saved = rate * (now - session.publish_allowance_at)
        session.publish_allowance = min(session.publish_allowance + saved, rate)
        session.publish_allowance_at = now

    def release_throttled(self) -> None:
        """Let publishers go on that were too quick and have waited for it."""
        for link in list(self._throttled):
            session = link.session
            if session is None:
                del self._throttled[link]
                continue
            self._refill(session)
            if session.publish_allowance >= 0:
                link.is_paused = False
                del self._throttled[link]
