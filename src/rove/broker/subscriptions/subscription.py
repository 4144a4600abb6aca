"""A subscription inside the broker, and how one is read out of a SUBSCRIBE.

A subscription has a topic filter and perhaps a text of the language, which comes as the user
property `filter` (or `$where`) and applies to every topic filter of its packet; `evolve` says by
which design bounds that move are kept up, and `engine` who finds what meets the text: the broker,
or Spark. Clients of 3.1.1 have no user properties: for them, where it is switched on, `topic?text`
says topic and text.

Without a text, a subscription is what MQTT says it is: a second one with the same topic filter
takes the place of the first. With a text, the subscription identifier counts as well, so that one
client can want several things of one topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from rove.broker.publications.publication import user_property
from rove.broker.sessions.session import Session
from rove.broker.storage.records import SubscriptionRow
from rove.lang.costs import NO_COST, Cost, cost_of
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.lang.tree import Me, parts
from rove.lang.tree import Subscription as Text
from rove.match.designs.design import parse_evolve
from rove.match.matcher import EXACT
from rove.mqtt.packets import Filter, Properties
from rove.mqtt.topics import split_shared

if TYPE_CHECKING:
    from rove.broker.policies.slots import PolicySlot

SubscriptionKey = tuple[str, int]
"""The topic filter as it was sent, and the identifier of those with a text (-1 without)."""
NO_TEXT = -1
Engine = Literal["broker", "spark"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)


class Interest:
    """What a text asks for; the text is parsed when somebody wants to know more than this."""

    __slots__ = (
        "_parsed",
        "cost",
        "engine",
        "evolve",
        "evolve_text",
        "is_ranked",
        "text",
        "uses_me",
    )

    def __init__(
        self,
        text: str,
        evolve_text: str = "",
        *,
        uses_me: bool = False,
        is_ranked: bool = False,
        parsed: Text | None = None,
        engine: Engine = "broker",
        cost: Cost = NO_COST,
    ) -> None:
        self.text = text
        self.evolve_text = evolve_text
        """How it is to evolve, as the subscriber said it; empty if it did not."""
        self.evolve = parse_evolve(evolve_text) if evolve_text else EXACT
        self.uses_me = uses_me
        self.is_ranked = is_ranked
        self.engine: Engine = engine
        self.cost = cost
        """What it costs the broker; nothing, if Spark finds what meets it."""
        self._parsed = parsed

    @property
    def is_live(self) -> bool:
        """Whether the broker itself finds what meets the text."""
        return self.engine == "broker"

    @property
    def parsed(self) -> Text:
        if self._parsed is None:
            self._parsed = parse(self.text, accepted=True)
        return self._parsed


class Subscription:
    """One subscription of one session."""

    __slots__ = (
        "accepted_at",
        "filter_number",
        "group",
        "identifier",
        "interest",
        "key",
        "no_local",
        "number",
        "qos",
        "retain_as_published",
        "session",
        "slot",
        "topic_filter",
    )

    def __init__(
        self,
        number: int,
        session: Session,
        asked: Filter,
        identifier: int,
        interest: Interest | None,
        accepted_at: float,
    ) -> None:
        self.number = number
        self.session = session
        self.key: SubscriptionKey = key_of(asked.topic_filter, identifier, interest)
        topic_filter = asked.topic_filter
        if interest is not None:
            topic_filter = topic_filter.removesuffix(f"?{interest.text}")
        shared = split_shared(topic_filter)
        self.group: str | None = None
        """The name of the group whose members share what comes."""
        if shared is not None:
            self.group, topic_filter = shared
        self.topic_filter = topic_filter
        """Without the group and without a text."""
        self.qos = asked.qos
        self.no_local = asked.no_local
        self.retain_as_published = asked.retain_as_published
        self.identifier = identifier
        """0 is none."""
        self.interest = interest
        self.accepted_at = accepted_at
        self.slot: PolicySlot | None = None
        """Its own policy, instead of its session's."""
        self.filter_number = 0
        """The number of the topic filter among those of subscriptions with a text."""

    def row(self) -> SubscriptionRow:
        """As it is written to disk."""
        row = SubscriptionRow(
            self.session.client_id,
            self.key[0],
            self.qos,
            self.no_local,
            self.retain_as_published,
            self.identifier,
            self.accepted_at,
        )
        if self.interest is not None:
            row.text, row.evolve = self.interest.text, self.interest.evolve_text
            row.uses_me, row.is_ranked = self.interest.uses_me, self.interest.is_ranked
            row.filter_number, row.engine = self.filter_number, self.interest.engine
            row.matching_steps = self.interest.cost.matching_steps
            row.moving_steps = self.interest.cost.moving_steps
        return row


def key_of(topic_filter: str, identifier: int, interest: Interest | None) -> SubscriptionKey:
    """What a later subscription must have in common to take the place of this one."""
    return topic_filter, NO_TEXT if interest is None else identifier


def interest_of(properties: Properties) -> Interest | None:
    """What the user properties of a SUBSCRIBE ask for; LanguageError if it cannot be."""
    text = user_property(properties, "filter", "$where")
    evolve = user_property(properties, "evolve")
    engine = engine_of(user_property(properties, "engine"))
    if text is None:
        if evolve is not None:
            raise LanguageError("evolve without a filter", "say what evolves in filter")
        if engine != "broker":
            raise LanguageError(f"engine = {engine} without a filter", "say in filter what to find")
        return None
    return interest_in(text, evolve, engine)


def engine_of(name: str | None) -> Engine:
    """Who is to find what meets a text; LanguageError if it is nobody known."""
    if name is None:
        return "broker"
    for known in ENGINES:
        if name == known:
            return known
    raise LanguageError(f"there is no engine {name!r}", f"write {' or '.join(ENGINES)}")


def interest_in(text: str, evolve: str | None = None, engine: Engine = "broker") -> Interest:
    """A text as the matcher takes it."""
    parsed = parse(text)
    uses_me = any(type(node) is Me for node in parts(parsed))
    is_ranked = parsed.rank is not None
    found = Interest(
        text, evolve or "", uses_me=uses_me, is_ranked=is_ranked, parsed=parsed, engine=engine
    )
    if found.is_live:
        found.cost = cost_of(parsed, versions=found.evolve.design in ("pes", "clees"))
    if found.evolve != EXACT and (is_ranked or not found.is_live):
        what = "a ranked subscription" if is_ranked else f"a subscription of engine {engine}"
        raise LanguageError(
            f"{what} cannot evolve by {found.evolve.design}", "write evolve = exact"
        )
    return found


def split_text(topic_filter: str) -> tuple[str, str | None]:
    """`topic?text` of a 3.1.1 client as both."""
    topic, mark, text = topic_filter.partition("?")
    return topic, text if mark else None
