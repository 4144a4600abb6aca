"""`$rove/…`: what clients tell the broker itself, by publishing.

    $rove/me           a JSON object: variables of the subscriber's own state; null removes one
    $rove/report       a JSON object: what the subscriber's device has found out about itself
    $rove/policy       the text of a policy for the session, or for the subscription that the user
                       property `subscription` names; without a text there is none any more
    $rove/unpublish    the id of one of the user's own publications, which is taken back
    $rove/deliver      notifications that the pipeline has found; for `admin`
                       (`rove.broker.notifications.feeds`)

The answer is the reason code of the acknowledgement, so these want QoS 1 or 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.feeds import FeedError, Feeds, FeedsFull
from rove.broker.policies.agents import Agents
from rove.broker.publications.publication import Publication, user_property
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Session, Subscription
from rove.broker.sessions.variables import Variables
from rove.broker.storage.records import encoded
from rove.lang.errors import LanguageError
from rove.lang.values import change_state
from rove.mqtt.packets import Reason
from rove.policy.automatic import ReportError, refused_change
from rove.policy.errors import PolicyError

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

    def __init__(
        self,
        context: BrokerContext,
        retained: RetainedStore,
        variables: Variables,
        agents: Agents,
        feeds: Feeds,
    ) -> None:
        self._context = context
        self._retained = retained
        self._variables = variables
        self._agents = agents
        self._feeds = feeds
        self._commands: dict[str, Callable[[Session, Publication], Answer]] = {
            "me": self._set_state,
            "report": self._report,
            "policy": self._set_policy,
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
            refusal = self._unfit(session, changes)
        except (ValueError, OverflowError, RecursionError, LanguageError) as error:
            what = f"{PREFIX}me takes a JSON object: {error}"
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, what)
        if fixed := refused_change(changes.keys(), session.automatic):
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, fixed)
        if refusal is None:
            self._variables.change(session, changes)
        return refusal or DONE

    def _report(self, session: Session, publication: Publication) -> Answer:
        variables = self._variables
        try:
            report = _CHANGES.decode(publication.payload)
            changes = variables.report(session, report)
            refusal = self._unfit(session, changes)
        except (ValueError, OverflowError, RecursionError, LanguageError, ReportError) as error:
            what = f"{PREFIX}report takes a JSON object: {error}"
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, what)
        if refusal is None:
            variables.reported(session, report, changes)
        every = f"{self._context.settings.report_s:g}"
        return refusal or Answer(Reason.SUCCESS, user=(("every", every),))

    def _unfit(self, session: Session, changes: Mapping[str, Any]) -> Answer | None:
        """Why there is no room for these variables; None if there is.

        Policies go by limits of their own, and limits are lowered: what takes no more room than
        there was is always taken.
        """
        me = dict(session.me)
        change_state(me, changes)
        limits = self._context.limits
        if len(me) > max(limits.state_variables_max, len(session.me)):
            return self._full(f"more than {limits.state_variables_max} variables")
        size_bytes = len(encoded(me))
        if size_bytes > limits.state_bytes_max and size_bytes > len(encoded(session.me)):
            return self._full(f"more than {limits.state_bytes_max} bytes of variables")
        return None

    def _set_policy(self, session: Session, publication: Publication) -> Answer:
        agents = self._agents
        identifier = user_property(publication.properties, "subscription")
        places: list[Subscription | None] = [None]
        if identifier is not None:
            # Several topic filters of one packet have the same; 0 is none.
            known = (one for one in session.subscriptions.values() if one.identifier)
            places = [one for one in known if str(one.identifier) == identifier]
            if not places:
                what = f"{session.client_id} has no subscription with the identifier {identifier}"
                return Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)
        if not publication.payload:
            for place in places:
                agents.remove_policy(session, place)
            return DONE
        try:
            policy = agents.compiler.compiled(publication.payload.decode(), session)
        except (PolicyError, UnicodeDecodeError) as error:
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, str(error))
        for place in places:
            agents.set_policy(session, policy, place)
        return DONE

    def _full(self, what: str) -> Answer:
        self._context.counters.quota_hits += 1
        return Answer(Reason.QUOTA_EXCEEDED, what)

    def _unpublish(self, session: Session, publication: Publication) -> Answer:
        id = publication.payload.decode("utf-8", "replace")
        context, identity = self._context, session.identity
        found = self._retained.owned(identity.user, session.client_id, id)
        if found is None:
            text = f"{session.client_id} has no publication {id!r} that is valid or waits"
            return Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, text)
        if not context.rules.allowed(identity, "publish", found.topic):
            return Answer(Reason.NOT_AUTHORIZED, f"withdrawing from {found.topic} is not allowed")
        self._retained.withdraw(found.name)
        return DONE

    def _deliver(self, session: Session, publication: Publication) -> Answer:
        if not self._context.rules.allowed(session.identity, "admin"):
            return Answer(Reason.NOT_AUTHORIZED, f"{PREFIX}deliver needs the right `admin`")
        try:
            sequence = self._feeds.take(publication.payload)
        except FeedsFull as error:
            return self._full(str(error))
        except FeedError as error:
            return Answer(Reason.PAYLOAD_FORMAT_INVALID, f"{PREFIX}deliver: {error}")
        return Answer(Reason.SUCCESS, user=(("sequence", str(sequence)),))
