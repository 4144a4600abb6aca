"""Control topics `$rove/…`: commands to the broker itself, sent as publications.

    $rove/me           a JSON object: variables of the subscriber's own state; null removes one
    $rove/report       a JSON object: what the subscriber's device reports about itself
    $rove/policy       the source of a policy for the session, or for the subscription that the
                       user property `subscription` names; an empty payload removes the policy
    $rove/unpublish    the id of one of the user's own publications, to withdraw it
    $rove/deliver      notifications that the pipeline has found; needs the right `admin`
                       (`rove.broker.notifications.feeds`)

The result is the reason code of the acknowledgement, so commands should have QoS 1 or 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.feeds import FeedError, Feeds, FeedsFull
from rove.broker.notifications.notifier import Notifier
from rove.broker.policies.agents import Agents
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Session, Subscription
from rove.broker.sessions.variables import Variables
from rove.broker.storage.records import encoded
from rove.broker.user_properties import user_property
from rove.lang.errors import LanguageError
from rove.lang.values import change_state
from rove.mqtt.packets import Publish, Reason
from rove.policy.automatic_variables import ReportError, refused_change
from rove.policy.errors import PolicyError

PREFIX = "$rove/"
UNPUBLISH = "$rove/unpublish"


class PublishResult(NamedTuple):
    """The outcome of a PUBLISH, for its acknowledgement."""

    reason: int
    text: str = ""
    """For people: the reason string."""
    user: tuple[tuple[str, str], ...] = ()
    """For programs: user properties of the acknowledgement."""


DONE = PublishResult(Reason.SUCCESS)

_CHANGES = msgspec.json.Decoder(dict[str, object])


class Control:
    """Executes commands."""

    def __init__(
        self,
        context: BrokerContext,
        retained: RetainedStore,
        variables: Variables,
        agents: Agents,
        feeds: Feeds,
        notifier: Notifier,
    ) -> None:
        self._context = context
        self._retained = retained
        self._variables = variables
        self._agents = agents
        self._feeds = feeds
        self._notifier = notifier
        self._commands: dict[str, Callable[[Session, Publication], PublishResult]] = {
            "me": self._set_state,
            "report": self._report,
            "policy": self._set_policy,
            "unpublish": self._unpublish,
            "deliver": self._deliver,
        }

    def handle(self, session: Session, publication: Publication) -> PublishResult:
        """Execute a command."""
        name = publication.topic.removeprefix(PREFIX)
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(PREFIX + known for known in self._commands)
            what = f"there is no {publication.topic}; there is {known}"
            return PublishResult(Reason.TOPIC_NAME_INVALID, what)
        return command(session, publication)

    def _set_state(self, session: Session, publication: Publication) -> PublishResult:
        try:
            changes = _CHANGES.decode(publication.payload)
            refusal = self._unfit(session, changes)
        except (ValueError, OverflowError, RecursionError, LanguageError) as error:
            what = f"{PREFIX}me takes a JSON object: {error}"
            return PublishResult(Reason.PAYLOAD_FORMAT_INVALID, what)
        if fixed := refused_change(changes.keys(), session.automatic):
            return PublishResult(Reason.PAYLOAD_FORMAT_INVALID, fixed)
        if refusal is None:
            self._variables.change(session, changes)
        return refusal or DONE

    def _report(self, session: Session, publication: Publication) -> PublishResult:
        variables = self._variables
        try:
            report = _CHANGES.decode(publication.payload)
            changes = variables.report(session, report)
            refusal = self._unfit(session, changes)
        except (ValueError, OverflowError, RecursionError, LanguageError, ReportError) as error:
            what = f"{PREFIX}report takes a JSON object: {error}"
            return PublishResult(Reason.PAYLOAD_FORMAT_INVALID, what)
        if refusal is None:
            variables.reported(session, report, changes)
        every = f"{self._context.settings.report_s:g}"
        return refusal or PublishResult(Reason.SUCCESS, user=(("every", every),))

    def _unfit(self, session: Session, changes: Mapping[str, Any]) -> PublishResult | None:
        """Why there is no room for these variables; None if there is.

        Policies have limits of their own, and limits may be lowered: a change that takes no more
        room than before is always accepted.
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

    def _set_policy(self, session: Session, publication: Publication) -> PublishResult:
        agents = self._agents
        identifier = user_property(publication.properties, "subscription")
        places: list[Subscription | None] = [None]
        if identifier is not None:
            # All topic filters of one packet share an identifier; 0 is none.
            known = (one for one in session.subscriptions.values() if one.identifier)
            places = [one for one in known if str(one.identifier) == identifier]
            if not places:
                what = f"{session.client_id} has no subscription with the identifier {identifier}"
                return PublishResult(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)
        if not publication.payload:
            for place in places:
                agents.remove_policy(session, place)
            return DONE
        try:
            policy = agents.compiler.compiled(publication.payload.decode(), session)
        except (PolicyError, UnicodeDecodeError) as error:
            return PublishResult(Reason.PAYLOAD_FORMAT_INVALID, str(error))
        for place in places:
            agents.set_policy(session, policy, place)
        return DONE

    def _full(self, what: str) -> PublishResult:
        self._context.counters.quota_hits += 1
        return PublishResult(Reason.QUOTA_EXCEEDED, what)

    def _unpublish(self, session: Session, publication: Publication) -> PublishResult:
        id = publication.payload.decode("utf-8", "replace")
        context, identity = self._context, session.identity
        found = self._retained.owned(identity.user, session.client_id, id)
        if found is None:
            text = f"{session.client_id} has no publication {id!r} that is valid or waits"
            return PublishResult(Reason.IMPLEMENTATION_SPECIFIC_ERROR, text)
        if not context.rules.allowed(identity, "publish", found.topic):
            return PublishResult(
                Reason.NOT_AUTHORIZED, f"withdrawing from {found.topic} is not allowed"
            )
        self._retained.withdraw(found.name)
        if context.brokers:
            withdrawal = Publish(UNPUBLISH, id.encode(), 1, False)
            self._notifier.notify_brokers(
                Publication(
                    publication.number,
                    withdrawal,
                    found.publisher,
                    publication.id,
                    context.now,
                    user=found.user,
                )
            )
        return DONE

    def _deliver(self, session: Session, publication: Publication) -> PublishResult:
        if not self._context.rules.allowed(session.identity, "admin"):
            return PublishResult(Reason.NOT_AUTHORIZED, f"{PREFIX}deliver needs the right `admin`")
        try:
            sequence = self._feeds.take(publication.payload)
        except FeedsFull as error:
            return self._full(str(error))
        except FeedError as error:
            return PublishResult(Reason.PAYLOAD_FORMAT_INVALID, f"{PREFIX}deliver: {error}")
        return PublishResult(Reason.SUCCESS, user=(("sequence", str(sequence)),))
