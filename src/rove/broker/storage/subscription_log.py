"""Who wanted what, and when: the subscriptions' own log, from which a past can be judged again.

A notification depends on the publication, on the subscriptions there were at that moment and on
the subscribers' state. The log has the publications; with these events beside them, in the same
order of positions, whoever reads the lake can find out who was notified of what, or who would
have been. An event costs a row of the log; publications cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from rove.broker.sessions.session import PolicySlot, Session, Subscription
from rove.broker.storage.records import LogRow, encoded
from rove.policy.limits import PolicyLimits

KIND = "subscriptions"


class SubscriptionLog:
    """Writes the events of subscriptions down, where that is wanted."""

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
        """The broker begins, perhaps again: what only its memory held is gone.

        `restored` and `slots` are those that no earlier event tells of; `policies` is what policies
        may use from now on.
        """
        if self._is_kept:
            limits = None if policies is None else msgspec.to_builtins(policies)
            self._write("", now, event="started", policies=limits)
            for one in restored:
                self.made(one, now)
            for slot in slots:
                self.policy_set(slot, now, tells=True)

    def made(self, new: Subscription, now: float) -> None:
        """A subscription takes part from now on."""
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
        """Policies may use something else from now on."""
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

        With `replaces`, it is the agent of that subscription, which goes on with what it knows;
        with `tells`, what it knows is not in the log yet.
        """
        if not self._is_kept:
            return
        session, agent = slot.session, slot.agent
        facts: dict[str, object] = {"replaces": replaces} if replaces else {}
        if tells:
            facts["kept"] = encoded(agent.kept())
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
        """A policy that was kept and could not be run since the last start is no more."""
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
        """It takes part no longer."""
        if self._is_kept:
            self._write(old.session.client_id, now, event="ended", number=old.number)

    def state_changed(
        self, session: Session, changes: Mapping[str, object], now: float, by: str = ""
    ) -> None:
        """A subscriber's variables have changed; `by` says if its `policy` or a `report` did it."""
        if self._is_kept:
            facts = {"by": by} if by else {}
            self._write(session.client_id, now, event="state", changes=changes, **facts)

    def _write(self, client_id: str, now: float, **facts: object) -> None:
        payload = msgspec.json.encode(facts)
        self._log(LogRow(KIND, "", now, client_id=client_id, payload=payload))
