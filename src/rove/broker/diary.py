"""Who wanted what, and when: the subscriptions' own log, from which a past can be judged again.

A notification depends on the publication, on the subscriptions there were at that moment and on
the subscribers' state. The log has the publications; with these events beside them, in the same
order of positions, whoever reads the lake can find out who was notified of what, or who would
have been. An event costs a row of the log; publications cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from rove.broker.records import LogRow
from rove.broker.sessions import Session
from rove.broker.subscriptions import Subscription

KIND = "subscriptions"


class Diary:
    """Writes the events of subscriptions down, where that is wanted."""

    def __init__(self, log: Callable[[LogRow], None], *, is_kept: bool) -> None:
        self._log = log
        self._is_kept = is_kept

    def started(self, now: float, restored: Iterable[Subscription]) -> None:
        """The broker begins, perhaps again: what only its memory held is gone.

        `restored` are those that no earlier event tells of.
        """
        if self._is_kept:
            self._write("", now, event="started")
            for one in restored:
                self.made(one, now)

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

    def ended(self, old: Subscription, now: float) -> None:
        """It takes part no longer."""
        if self._is_kept:
            self._write(old.session.client_id, now, event="ended", number=old.number)

    def state_changed(self, session: Session, changes: Mapping[str, object], now: float) -> None:
        """A subscriber's variables have changed."""
        if self._is_kept:
            self._write(session.client_id, now, event="state", changes=changes)

    def _write(self, client_id: str, now: float, **facts: object) -> None:
        payload = msgspec.json.encode(facts)
        self._log(LogRow(KIND, "", now, client_id=client_id, payload=payload))
