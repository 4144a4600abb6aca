"""What a SUBSCRIBE asks for: its filter expression, and whether the session may have one more.

A subscription has a topic filter and perhaps a filter expression, which comes as the user property
`filter` (or `$where`) and applies to every topic filter of its packet. The property `evolve` names
the design that keeps moving bounds up to date, and `engine` what finds the matches: the broker or
Spark. Clients of 3.1.1 have no user properties. For them `topic?expression` gives both, where that
is switched on.

Without an expression, MQTT's rule holds: a second subscription with the same topic filter replaces
the first. With an expression, the subscription identifier counts as well, so that one client can
want several things of one topic.

Every expression has a cost that is known before it is accepted (`rove.lang.costs`). It is compared
with the limits of one expression and, together with all others of the session, with those of a
session. A refusal gives the figure, the limit and what would cost less. The sums are kept by adding
and subtracting, so a check costs the same however many subscriptions there are.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from rove.broker.limits import DAY_S, Limits
from rove.broker.steps import Steps
from rove.broker.user_properties import user_property
from rove.lang.costs import NO_COST, Cost, cost_of
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.lang.tree import Me, parts
from rove.lang.tree import Subscription as Parsed
from rove.match.designs.design import parse_evolve
from rove.match.matcher import EXACT
from rove.mqtt.packets import Properties

SubscriptionKey = tuple[str, int]
"""The topic filter as it was sent, and with an expression the identifier (-1 without)."""
NO_EXPRESSION = -1
Engine = Literal["broker", "spark"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)


class Interest:
    """A filter expression with its options; parsed only when its tree is needed."""

    __slots__ = (
        "cost",
        "engine",
        "evolve",
        "evolve_text",
        "is_ranked",
        "parsed",
        "text",
        "uses_me",
    )
    parsed: Parsed

    def __init__(
        self,
        text: str,
        evolve_text: str = "",
        *,
        uses_me: bool = False,
        is_ranked: bool = False,
        parsed: Parsed | None = None,
        engine: Engine = "broker",
        cost: Cost = NO_COST,
    ) -> None:
        self.text = text
        self.evolve_text = evolve_text
        """The property `evolve` as the subscriber sent it; empty without."""
        self.evolve = parse_evolve(evolve_text) if evolve_text else EXACT
        self.uses_me = uses_me
        self.is_ranked = is_ranked
        self.engine: Engine = engine
        self.cost = cost
        """What it costs the broker; nothing if Spark does the matching."""
        if parsed is not None:
            self.parsed = parsed

    def __getattr__(self, name: str) -> Parsed:
        # Called only while `parsed` is not set: after a restart, until its tree is needed.
        if name != "parsed":
            raise AttributeError(name)
        self.parsed = parse(self.text, accepted=True)
        return self.parsed

    @property
    def is_live(self) -> bool:
        """Whether the broker itself does the matching."""
        return self.engine == "broker"


def key_of(topic_filter: str, identifier: int, interest: Interest | None) -> SubscriptionKey:
    """The key of a subscription: a later one with the same key replaces it."""
    return topic_filter, NO_EXPRESSION if interest is None else identifier


def interest_of(properties: Properties) -> Interest | None:
    """The expression in the user properties of a SUBSCRIBE; LanguageError if it is invalid."""
    text = user_property(properties, "filter", "$where")
    evolve = user_property(properties, "evolve")
    engine = engine_of(user_property(properties, "engine"))
    if text is None:
        if evolve is not None:
            raise LanguageError("evolve without a filter", "add the user property filter")
        if engine != "broker":
            raise LanguageError(
                f"engine = {engine} without a filter", "add the user property filter"
            )
        return None
    return interest_in(text, evolve, engine)


def engine_of(name: str | None) -> Engine:
    """The engine of that name; LanguageError if there is none."""
    if name is None:
        return "broker"
    for known in ENGINES:
        if name == known:
            return known
    raise LanguageError(f"there is no engine {name!r}", f"write {' or '.join(ENGINES)}")


def interest_in(text: str, evolve: str | None = None, engine: Engine = "broker") -> Interest:
    """An expression with its options; LanguageError if they are invalid."""
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


def split_expression(topic_filter: str) -> tuple[str, str | None]:
    """`topic?expression` of a 3.1.1 client, as topic filter and expression."""
    topic, mark, text = topic_filter.partition("?")
    return topic, text if mark else None


# -- costs ------------------------------------------------------------------------------------


class Spent(msgspec.Struct):
    """The cost of all expressions of one session."""

    matching_steps: int = 0
    moving_steps: int = 0
    windows: int = 0

    def add(self, cost: Cost, steps: Steps, sign: int = 1) -> None:
        """Add the cost of an expression; with a sign of -1, subtract it."""
        steps.saves(self, *self.__struct_fields__)
        self.matching_steps += sign * cost.matching_steps
        self.moving_steps += sign * cost.moving_steps
        self.windows += sign * cost.has_window


def expression_fault(cost: Cost, limits: Limits) -> str | None:
    """Why an expression alone costs too much, or None."""
    if cost.peak_steps > limits.text_steps_max:
        at_first = " at first" if cost.peak_steps > cost.matching_steps else ""
        return (
            f"the filter expression costs {cost.peak_steps:,} steps a publication{at_first};"
            f" {limits.text_steps_max:,} are allowed"
            " (fewer ORs, computed values or patterns cost less; rove check shows the figure)"
        )
    if cost.window_s is not None and cost.window_s > limits.window_s_max:
        return (
            f"the window lasts {cost.window_s:,.10g} s; {limits.window_s_max:,.10g} s are allowed"
            f" (write WITHIN {limits.window_s_max / DAY_S:.10g} DAYS or less)"
        )
    if (cost.window_publications or 0) > limits.window_publications_max:
        return (
            f"the window holds {cost.window_publications:,} publications;"
            f" {limits.window_publications_max:,} are allowed"
            f" (write WITHIN {limits.window_publications_max} PUBLICATIONS or less)"
        )
    return None


def session_fault(cost: Cost, freed: Cost, spent: Spent, limits: Limits) -> str | None:
    """Why a session cannot have one more expression, or None. `freed` is the one it replaces."""
    matching = spent.matching_steps - freed.matching_steps + cost.matching_steps
    if matching > limits.session_steps_max and cost.matching_steps > freed.matching_steps:
        return (
            f"with this filter expression ({cost.matching_steps:,} steps) the session would cost"
            f" {matching:,} steps a publication; {limits.session_steps_max:,} are allowed"
            " (end a subscription first, or ask for less)"
        )
    moving = spent.moving_steps - freed.moving_steps + cost.moving_steps
    if moving > limits.session_moving_steps_max and cost.moving_steps > freed.moving_steps:
        return (
            f"with this filter expression a change of me. would cost {moving:,} steps;"
            f" {limits.session_moving_steps_max:,} are allowed"
            " (end a subscription that uses me. first)"
        )
    windows = spent.windows - freed.has_window + cost.has_window
    if windows > limits.windows_per_session_max and cost.has_window and not freed.has_window:
        return (
            f"more than {limits.windows_per_session_max:,} ranked subscriptions of one session"
            " (end one first)"
        )
    return None
