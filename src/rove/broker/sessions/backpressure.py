"""Backpressure: slow receivers are disconnected, publishers that outrun the others are paused.

A receiver that takes nothing for long is disconnected. All publishers are paused while too much
waits inside, for a commit or for receivers that fall behind because the load is high; a publisher
above its rate is paused alone. This decides; the shell stops and resumes reading.

Costs nothing while every receiver keeps up.
"""

from __future__ import annotations

from collections.abc import Callable

from rove.broker.context import BrokerContext
from rove.broker.sessions.session import Link, Session

CONGESTED_SHARE = 0.5
"""Publishers are paused when this share of the receivers cannot keep up."""
STUCK_LATELY_SHARE = 0.05
STUCK_LATELY_S = 0.2
"""The same for those that got stuck within this time."""
STUCK_S = 1.0
"""A receiver that has taken nothing for this long no longer pauses publishers."""


class Backpressure:
    """Tracks slow receivers and fast publishers."""

    def __init__(self, context: BrokerContext, leave: Callable[[Link], None]) -> None:
        """`leave` detaches a connection from its session."""
        self._context = context
        self._leave = leave
        self.is_paused = False
        """No publisher is read from until less waits inside."""
        self.backlog_bytes = 0
        """What the shell was given to commit and has not; the shell keeps it up to date."""
        self.stuck_links: dict[Link, None] = {}
        """Those that take nothing for the moment; the shell updates their `buffered_bytes` before
        every tick."""
        self._given_up: dict[Link, None] = {}
        self._throttled: dict[Link, None] = {}

    @property
    def is_throttling(self) -> bool:
        """Whether any publisher is above its rate."""
        return bool(self._throttled)

    def is_throttled(self, link: Link) -> bool:
        """Whether it is above its rate and has to wait."""
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
                # It would not take a DISCONNECT either.
                link.closing = True
                self._given_up[link] = None
                context.gate.ready.append(link)
                context.note("warning", "slow consumer closed", link=link.name)
                self._leave(link)

    def judge(self) -> None:
        """Pause publishers while too much waits inside, and resume them when it has gone.

        The shell calls this too when sending has left a receiver stuck: what it read before the
        next turn would be dropped.
        """
        context = self._context
        waiting = self.backlog_bytes + context.gate.held_bytes
        limits = context.limits
        congested = self._is_congested()
        # Nothing that waits for another broker may be dropped, so publishers have to wait too.
        for_brokers = sum(session.queue_bytes for session in context.brokers.values())
        if self.is_paused:
            calm = min(limits.commit_backlog_bytes_max, limits.memory_bytes_low) // 2
            is_full = for_brokers > limits.memory_bytes_low
            self.is_paused = waiting > calm or congested or is_full
            return
        is_full = for_brokers > limits.memory_bytes_high
        waiting_max = min(limits.commit_backlog_bytes_max, limits.memory_bytes_high)
        if waiting > waiting_max or congested or is_full:
            self.is_paused = True
            context.counters.publishers_paused += 1

    def _is_congested(self) -> bool:
        """Whether receivers are behind because the load is high, and not because they are slow.

        Either half of them are stuck and still take something, or several got stuck a moment ago,
        as happens when publishers outrun them all. A few receivers that are slow for long do not
        slow down the others.
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
        """Add what a publisher may send since the last time, at most a second's worth."""
        rate = self._context.limits.publish_per_s_max
        now = self._context.now
        saved = rate * (now - session.publish_allowance_at)
        session.publish_allowance = min(session.publish_allowance + saved, rate)
        session.publish_allowance_at = now

    def release_throttled(self) -> None:
        """Resume publishers that have waited for as long as they were ahead."""
        for link in list(self._throttled):
            session = link.session
            if session is None:
                del self._throttled[link]
                continue
            self._refill(session)
            if session.publish_allowance >= 0:
                link.is_paused = False
                del self._throttled[link]
