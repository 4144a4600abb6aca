"""The broker's log: rows for the lake about subscriptions, publications and notifications.

A notification depends on the publication, on the subscriptions at that moment and on the
subscribers' state. The log has all three in one order of positions, so a reader of the lake can
find out which subscribers were notified of what, or would have been. An event of a subscription
costs a row; a publication or a notification costs one for each channel that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification, PolicySlot, Session, Subscription
from rove.broker.storage.records import LogRow, encoded
from rove.policy.agents import PolicyDecision
from rove.policy.limits import PolicyLimits

KIND = "subscriptions"


class SubscriptionLog:
    """Logs the events of subscriptions, if configured."""

    def __init__(self, log: Callable[[LogRow], None], *, is_kept: bool) -> None:
        self._log = log
        self._is_kept = is_kept

    def started(
        self,
        now: float,
        restored: Iterable[Subscription],
        slots: Iterable[PolicySlot] = (),
        policies: PolicyLimits | None = None,
    ) -> None:
        """The broker has started: what only its memory held before is gone.

        `restored` and `slots` are those without an earlier event; `policies` are the limits of
        policies from now on.
        """
        if self._is_kept:
            limits = None if policies is None else msgspec.to_builtins(policies)
            self._write("", now, event="started", policies=limits)
            for one in restored:
                self.made(one, now)
            for slot in slots:
                self.policy_set(slot, now, tells=True)

    def made(self, new: Subscription, now: float) -> None:
        """A subscription was made."""
        if not self._is_kept:
            return
        interest, session = new.interest, new.session
        self._write(
            session.client_id,
            now,
            event="made",
            number=new.number,
            filter=new.topic_filter,
            text="" if interest is None else interest.text,
            accepted_at=new.accepted_at,
            me=session.me if interest is not None and interest.uses_me else {},
            evolve=(interest and interest.evolve_text) or "exact",
            qos=new.qos,
            no_local=new.no_local,
            share=new.group,
            durable=session.is_durable,
            engine="broker" if interest is None else interest.engine,
        )

    def limits_changed(self, policies: PolicyLimits, now: float) -> None:
        """The limits of policies have changed."""
        if self._is_kept:
            self._write("", now, event="policy", policies=msgspec.to_builtins(policies))

    def policy_set(
        self,
        slot: PolicySlot,
        now: float,
        *,
        is_over: bool = False,
        replaces: int = 0,
        tells: bool = False,
    ) -> None:
        """A session or a subscription has this policy from now on, or none.

        With `replaces`, it is the agent of that subscription, which keeps its memory; with `tells`,
        its memory is not in the log yet and is logged here.
        """
        if not self._is_kept:
            return
        session, agent = slot.session, slot.agent
        facts: dict[str, object] = {"replaces": replaces} if replaces else {}
        if tells:
            facts["kept"] = encoded(agent.stored())
        self._write(
            session.client_id,
            now,
            event="policy",
            number=slot.number,
            policy="" if is_over else agent.policy.text,
            me=session.me,
            automatic=sorted(session.automatic),
            durable=session.is_durable,
            **facts,
        )

    def unrun_dropped(
        self, session: Session, subscription: Subscription | None, now: float
    ) -> None:
        """A stored policy that could not be run since the last start was removed."""
        if self._is_kept:
            self._write(
                session.client_id,
                now,
                event="policy",
                number=0 if subscription is None else subscription.number,
                policy="",
                me=session.me,
                automatic=sorted(session.automatic),
                durable=session.is_durable,
            )

    def ended(self, old: Subscription, now: float) -> None:
        """A subscription has ended."""
        if self._is_kept:
            self._write(old.session.client_id, now, event="ended", number=old.number)

    def state_changed(
        self, session: Session, changes: Mapping[str, object], now: float, by: str = ""
    ) -> None:
        """A subscriber's variables have changed; `by` is `policy`, `report` or empty."""
        if self._is_kept:
            facts = {"by": by} if by else {}
            self._write(session.client_id, now, event="state", changes=changes, **facts)

    def _write(self, client_id: str, now: float, **facts: object) -> None:
        payload = msgspec.json.encode(facts)
        self._log(LogRow(KIND, "", now, client_id=client_id, payload=payload))


class PublicationLog:
    """Logs publications and notifications."""

    def __init__(self, context: BrokerContext, delivery: Delivery) -> None:
        self._context = context
        self._delivery = delivery
        streams = context.settings.channels
        self.keeps_notifications = any("notifications" in stream.keep for stream in streams)
        """Whether any notification has to be logged."""

    def taken(self, publication: Publication) -> None:
        """A publication was accepted."""
        context = self._context
        channels = context.channels_of(publication.topic, "publications")
        for number, channel in enumerate(channels):
            row = _row(publication, channel)
            row.earlier = tuple(channels[:number])
            context.log(row)
            if not number:
                publication.position = context.position
                if publication.kept:
                    # A retained or valid publication was put already, without a position.
                    self._delivery.keep_again(publication)

    def forget(self, publication: Publication) -> None:
        """A publication was taken back."""
        if publication.position:
            context = self._context
            channels = context.channels_of(publication.topic, "publications")
            for position in range(publication.position, publication.position + len(channels)):
                context.gate.changes.drop_new("log", position)

    def notified(self, one: Notification, why: bytes, at: float) -> None:
        """A session was notified; `why` is the payload of the row."""
        if not self.keeps_notifications:
            return
        context = self._context
        channels = context.channels_of(one.publication.topic, "notifications")
        for number, channel in enumerate(channels):
            row = _row(one.publication, channel)
            row.earlier = tuple(channels[:number])
            row.kind, row.client_id = "notifications", one.session.client_id
            row.at, row.subscriptions, row.payload = at, one.numbers, why
            context.log(row)


def why_decided(
    one: Notification, subscription: int, decision: PolicyDecision, *, is_lost: bool
) -> bytes:
    """The payload of the log row for a policy's decision."""
    facts: dict[str, Any] = msgspec.json.decode(one.why) if one.why else {}
    facts["policy"], facts["outputs"] = decision.verdict, decision.output_count
    facts["subscription"] = subscription
    if one.publication.position:
        facts["position"] = one.publication.position
    if decision.kind:
        facts["kind"] = decision.kind
    if is_lost:
        facts["lost"] = True
    return msgspec.json.encode(facts)


def _row(publication: Publication, channel: str) -> LogRow:
    return LogRow(
        "publications",
        channel,
        publication.at,
        publication.topic,
        publication.id,
        publication.publisher,
        publication.payload,
        publication.properties.user,
        (),
        publication.qos,
    )
