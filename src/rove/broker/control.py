"""`$rove/…`: what clients tell the broker itself, by publishing.

    $rove/me           a JSON object: variables of the subscriber's own state; null removes one
    $rove/unpublish    the id of one of the client's own publications, which it takes back
    $rove/deliver      notifications that the pipeline has found (`rove.broker.feeds`); for `admin`

The answer is the reason code of the acknowledgement, so these want QoS 1 or 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rove.broker.feeds import FeedError, Feeds, FeedsFull, Notify
from rove.broker.publications import Publication
from rove.broker.records import LogRow, encoded
from rove.broker.sessions import Session
from rove.broker.state import State
from rove.lang.errors import LanguageError
from rove.lang.values import change_state
from rove.mqtt.packets import Reason

PREFIX = "$rove/"


class Answer(NamedTuple):
    """How it went."""

    reason: int
    text: str = ""
    """For people: what the code means here."""
    user: tuple[tuple[str, str], ...] = ()
    """For programs, as user properties of the acknowledgement."""


DONE = Answer(Reason.SUCCESS)

_CHANGES = msgspec.json.Decoder(dict[str, object])


class Control:
    """Does what is asked on control topics."""

    def __init__(self, state: State, notify: Notify) -> None:
        self._state = state
        self._feeds = Feeds(state, notify)
        self._commands: dict[str, Callable[[Session, Publication], Answer]] = {
            "me": self._set_state,
            "unpublish": self._unpublish,
            "deliver": self._deliver,
        }

    def handle(self, session: Session, publication: Publication) -> Answer:
        """Do it, and say how it went."""
        name = publication.topic.removeprefix(PREFIX)
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(PREFIX + known for known in self._commands)
            what = f"there is no {publication.topic}; there is {known}"
            return Answer(Reason.TOPIC_NAME_INVALID, what)
        return command(session, publication)

    def _set_state(self, session: Session, publication: Publication) -> Answer:
        try:
            changes = _CHANGES.decode(publication.payload)
            me = dict(session.me)
            change_state(me, changes)
            size_bytes = len(encoded(me))
        except (ValueError, OverflowError, RecursionError, LanguageError) as error:
            what = f"{PREFIX}me takes a JSON object: {error}"
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, what)
        limits = self._state.limits
        if len(me) > limits.state_variables_max:
            return self._full(f"more than {limits.state_variables_max} variables")
        if size_bytes > limits.state_bytes_max:
            return self._full(f"more than {limits.state_bytes_max} bytes of variables")
        session.me = me
        self._state.interests.set_state(session, changes)
        self._state.diary.state_changed(session, changes, self._state.now)
        if session.is_durable:
            self._state.gate.changes.put("sessions", session.client_id, encoded(session.row()))
        for channel in self._state.channels_of(publication.topic, "states"):
            self._state.log(
                LogRow(
                    "states",
                    channel,
                    publication.at,
                    publication.topic,
                    client_id=session.client_id,
                    payload=publication.payload,
                )
            )
        return DONE

    def _full(self, what: str) -> Answer:
        self._state.counters.quota_hits += 1
        return Answer(Reason.QUOTA_EXCEEDED, what)

    def _unpublish(self, session: Session, publication: Publication) -> Answer:
        id = publication.payload.decode("utf-8", "replace")
        if self._state.keeper.withdraw(session.client_id, id):
            return DONE
        text = f"{session.client_id} has no publication {id!r} that is valid or waits"
        return Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, text)

    def _deliver(self, session: Session, publication: Publication) -> Answer:
        if not self._state.rules.allowed(session.identity, "admin"):
            return Answer(Reason.NOT_AUTHORIZED, f"{PREFIX}deliver needs the right `admin`")
        try:
            sequence = self._feeds.take(publication.payload)
        except FeedsFull as error:
            return self._full(str(error))
        except FeedError as error:
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, f"{PREFIX}deliver: {error}")
        return Answer(Reason.SUCCESS, user=(("sequence", str(sequence)),))
