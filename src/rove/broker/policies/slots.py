"""Where a policy belongs: to a session, or to one subscription of it.

A *slot* has an agent (`rove.policy.agents`) and, in order, the *pending decisions*: notifications
that wait for the agent, each with everything that is needed to go on with it, whoever decides it
when. A session has a `SubscriberContext` from its first policy or its first report on; those
without one cost nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from rove.broker.notifications.notification import Notification
from rove.broker.publications.publication import Publication
from rove.broker.storage.records import PendingDecisionRow
from rove.policy.accounts import Account
from rove.policy.agents import Agent
from rove.policy.automatic import Traffic
from rove.policy.jobs import Compressed, Compression, Run
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Arrived, User
from rove.policy.view import PolicyView

if TYPE_CHECKING:
    from rove.broker.sessions.session import Session
    from rove.broker.subscriptions.subscription import Subscription

POLICY: Final = "$rove/policy"
"""Where a client sets a policy, and is told of it."""


class Shown(msgspec.Struct, eq=False):
    """A publication as policies see it, and what became of it that others may share."""

    arrived: Arrived
    derived: dict[tuple[int | bytes, User], Publication] = {}
    """By the identity of the payload, which is kept alive here, or by the payload itself if it is
    from a worker, and the user properties; as many as `Arrived` remembers."""


class PendingDecision(msgspec.Struct, eq=False):
    """A notification that a policy has to decide on."""

    notification: Notification
    shown: Shown | None
    """None until its turn, after a restart: then nobody shares it, and there may be very many."""
    results: dict[Compression, Compressed]
    """Pictures that were made smaller for it."""
    me: object = None
    """The variables that a worker was given for the whole call."""
    agent: Agent | None = None
    """Whose policy a worker was asked for."""
    limits: PolicyLimits | None = None
    """Of that call; these, the agent and the variables must still hold at its end."""
    asked_at: float = 0.0
    attempts: int = 0
    cpu_s: float = 0.0
    is_light: bool = False
    """The worker was asked for the first steps only."""
    key: int = 0
    """Where it is kept in the journal; 0 is nowhere."""

    @property
    def size_bytes(self) -> int:
        """What it counts for while it waits."""
        return len(self.notification.publication.payload)

    def row(self, subscription: int, queued_at: float) -> PendingDecisionRow:
        """As it is written to disk."""
        one = self.notification
        return PendingDecisionRow(
            one.publication.number,
            subscription,
            one.qos,
            one.retain,
            one.ids,
            one.select,
            one.numbers,
            one.why,
            one.waits,
            queued_at,
        )


class PolicySlot:
    """An agent in its place."""

    __slots__ = ("account", "agent", "session", "subscription", "waiting")

    def __init__(
        self,
        agent: Agent,
        session: Session,
        subscription: Subscription | None,
        account: Account,
    ) -> None:
        self.agent = agent
        self.session = session
        self.account = account
        """Of the user who has set the policy."""
        self.subscription = subscription
        """None for the whole session."""
        self.waiting: deque[PendingDecision] = deque()
        """The first is being worked on."""

    # Each of these counts first and moves then: what fails has done nothing, so that undoing a
    # step never moves or counts what it did not.

    def enter(self, pending: PendingDecision) -> None:
        """Let a pending decision wait, behind the others."""
        self.account.wait(pending.size_bytes)
        self.waiting.append(pending)

    def enter_first(self, pending: PendingDecision) -> None:
        """Let a pending decision wait, before the others."""
        self.account.wait(pending.size_bytes)
        self.waiting.appendleft(pending)

    def leave(self) -> PendingDecision:
        """The first pending decision waits no more."""
        self.account.wait(-self.waiting[0].size_bytes)
        return self.waiting.popleft()

    def retract(self, pending: PendingDecision) -> None:
        """A pending decision waits no more, wherever it stands."""
        if pending in self.waiting:
            self.account.wait(-pending.size_bytes)
            self.waiting.remove(pending)

    def swap(self, waiting: deque[PendingDecision]) -> None:
        """Let these wait here instead of those that do."""
        size_bytes = sum(pending.size_bytes for pending in waiting)
        self.account.wait(size_bytes - sum(pending.size_bytes for pending in self.waiting))
        self.waiting = waiting

    @property
    def number(self) -> int:
        """Of the subscription; 0 for the whole session."""
        return 0 if self.subscription is None else self.subscription.number

    @property
    def key(self) -> str:
        """Where the agent is kept in the journal."""
        return slot_key(self.session, self.subscription)

    def job(
        self,
        pending: PendingDecision,
        arrived: Arrived,
        limits: PolicyLimits,
        light: tuple[int, int],
    ) -> Run:
        """What a worker is asked to do for a pending decision; its number is given to it later.

        `light` are the steps and the milliseconds after which it is begun again as a long one.
        """
        session, agent = self.session, self.agent
        return Run(
            0,
            agent.policy.text,
            arrived.topic,
            arrived.payload,
            arrived.user,
            session.me,
            tuple(session.automatic),
            dict(agent.memory),
            pending.asked_at,
            limits,
            agent.policy.code,
            *light,
        )

    def view(self) -> PolicyView:
        """What there is to see of it."""
        agent, subscription = self.agent, self.subscription
        return PolicyView(
            self.session.client_id,
            self.number,
            0 if subscription is None else subscription.identifier,
            "" if subscription is None else subscription.topic_filter,
            agent.policy.text,
            agent.set_at,
            agent.suspended_until,
            len(self.waiting),
            agent.last_trouble,
            agent.tally,
        )


def slot_key(session: Session, subscription: Subscription | None) -> str:
    """Where the policy of a session, or of one subscription, is kept in the journal."""
    return f"{0 if subscription is None else subscription.number}/{session.client_id}"


class SubscriberContext:
    """What the broker does for one session beside delivering."""

    __slots__ = ("is_asking", "slot", "traffic", "turns")

    def __init__(self) -> None:
        self.slot: PolicySlot | None = None
        """The policy of the whole session."""
        self.traffic = Traffic()
        """Notifications while the client was there."""
        self.is_asking = False
        """A worker does a whole call for it."""
        self.turns: deque[tuple[PolicySlot, PendingDecision]] = deque()
        """Who asks next; the pending decision is the first that waits there, or has gone."""
