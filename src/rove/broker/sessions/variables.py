"""A subscriber's variables (`me.`): their sources, and what a change of them causes.

A subscriber sets variables itself (`$rove/me`), its policies set others, the broker determines some
(such as whether the client is connected), and the device reports the rest. A change has the same
effects whatever its source: subscriptions that use a variable move, the change is logged and
stored, and the owner gets it if it has subscribed to `$rove/me`. Earlier publications are matched
with the earlier values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification, Session, SubscriberContext
from rove.broker.storage.log import SubscriptionLog
from rove.broker.storage.records import LogRow, encoded
from rove.broker.subscriptions.interest import NO_EXPRESSION
from rove.broker.subscriptions.router import Router
from rove.lang.values import change_state
from rove.mqtt.packets import V5, Publish
from rove.policy.automatic_variables import (
    CONNECTED,
    CONNECTED_AT,
    OWN,
    PROTOCOL,
    RECEIVED,
    SentCounter,
    changes_of,
)

ME: Final = "$rove/me"


class Variables:
    """The variables of all sessions."""

    def __init__(
        self, context: BrokerContext, router: Router, delivery: Delivery, log: SubscriptionLog
    ) -> None:
        self._context = context
        self._router = router
        self._delivery = delivery
        self._log = log
        self.restored: list[Session] = []
        """Sessions whose clients were disconnected by a restart."""

    def subscriber(self, session: Session) -> SubscriberContext:
        """The subscriber context of a session, which has automatic variables from now on."""
        if session.subscriber is None:
            self._context.steps.undoes(self._forget_routes, session)
            self._context.steps.saves(session, "subscriber", "automatic")
            session.subscriber = SubscriberContext()
            session.automatic |= OWN
            self._router.forget_routes(session.subscriptions.values())
            self.change(session, self._facts(session))
        return session.subscriber

    def _forget_routes(self, session: Session) -> None:
        self._router.forget_routes(session.subscriptions.values())

    def _facts(self, session: Session) -> dict[str, Any]:
        if session.link is None:
            return {CONNECTED: False}
        return {
            CONNECTED: True,
            CONNECTED_AT: self._context.now,
            PROTOCOL: 5 if session.version == V5 else 4,
        }

    def connection_changed(self, session: Session) -> None:
        """A client has connected or disconnected."""
        if session.subscriber is not None:
            self.change(session, self._facts(session))

    def report(self, session: Session, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """The changes that a device's report makes; ReportError if it is invalid."""
        traffic = SentCounter() if session.subscriber is None else session.subscriber.traffic
        return changes_of(report, traffic, self._context.now)

    def reported(
        self, session: Session, report: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> None:
        """Accept a report, with the changes that it makes."""
        traffic = self.subscriber(session).traffic
        self._context.steps.saves(traffic, "_accounted")
        traffic.account(report.get(RECEIVED, traffic.sent), self._context.now)
        self._context.steps.saves(session, "automatic")
        told = {name for name, value in changes.items() if value is not None}
        session.automatic = (session.automatic - changes.keys()) | told | OWN
        self.change(session, changes, by="report")

    def change(
        self, session: Session, changes: Mapping[str, Any], by: Literal["", "policy", "report"] = ""
    ) -> None:
        """Change variables, whatever the source; None removes one."""
        context = self._context
        me = dict(session.me)
        change_state(me, changes)
        self._router.expressions.set_state(session, me, changes)
        self._log.state_changed(session, changes, context.now, by)
        if session.is_durable:
            context.gate.changes.put("sessions", session.client_id, encoded(session.row()))
        for channel in context.channels_of(ME, "states"):
            payload = msgspec.json.encode(changes)
            context.log(
                LogRow(
                    "states", channel, context.now, ME, client_id=session.client_id, payload=payload
                )
            )
        self.tell_variables(session)

    def tell_variables(self, session: Session) -> None:
        """Send a subscriber its variables, if it has subscribed to them.

        A client that is away gets them when it is back: all intermediate values would drive other
        notifications out of its queue.
        """
        if session.link is not None and (ME, NO_EXPRESSION) in session.subscriptions:
            self.tell(session, ME, msgspec.json.encode(session.me))

    def tell(self, session: Session, topic: str, payload: bytes) -> None:
        """Send a message of the broker's own to one session, if it has subscribed to its topic."""
        one = session.subscriptions.get((topic, NO_EXPRESSION))
        if one is None:
            return
        context = self._context
        context.next_publication += 1
        number = context.next_publication
        publish = Publish(topic, payload, one.qos)
        publication = Publication(number, publish, "", f"rove-{number}", context.now)
        ids = (one.identifier,) if one.identifier else ()
        told = Notification(session, publication, one.qos, False, ids, waits=True)
        self._delivery.deliver(told, context.now)

    # -- restarts ------------------------------------------------------------------------------

    def restore_subscriber(self, session: Session) -> None:
        """This session had automatic variables before a restart."""
        if session.subscriber is None:
            session.subscriber = SubscriberContext()
            self.restored.append(session)

    def take_up(self) -> None:
        """After a restart, when the log is open: no client is connected any more."""
        restored, self.restored = self.restored, []
        attempt = self._context.faults.attempt
        for session in restored:
            # A session may have ended since, before there was a turn.
            if session.link is not None or session.subscriber is None:
                continue
            # Clients that were away before still are, and there may be thousands.
            if session.me.get(CONNECTED) is not False:
                client = session.client_id
                attempt("restart", self.change, session, self._facts(session), client=client)


def view_of(session: Session) -> dict[str, dict[str, object]]:
    """A subscriber's variables: manual ones, and automatic ones."""
    manual: dict[str, object] = {}
    automatic: dict[str, object] = {}
    for name, value in session.me.items():
        (automatic if name in session.automatic else manual)[name] = value
    return {"manual": manual, "automatic": automatic}
