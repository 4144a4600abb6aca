"""The strategies draw what the language accepts, and reach the edges they promise."""

from hypothesis import Phase, find, given, settings

from rove.lang import Subscription, matches, parse, to_text
from rove.lang.tree import Like, walk
from rove.testing import strategies

ANY = settings(phases=[Phase.generate], max_examples=1_000)
"""Any example will do, so none is made smaller."""


@given(strategies.subscriptions)
def test_every_drawn_subscription_is_in_the_language(subscription: Subscription) -> None:
    parse(to_text(subscription))


def test_numbers_hold_the_neighbours_of_two_to_the_53() -> None:
    assert {2**53 - 1, 2**53, 2**53 + 1} <= set(strategies.NUMBERS)


def test_publications_can_match() -> None:
    area = parse("a > 1 AND n.m IS NOT NULL")
    find(strategies.publications, lambda publication: matches(area, publication), settings=ANY)


def test_escapes_are_drawn() -> None:
    def has_escape(subscription: Subscription) -> bool:
        nodes = walk(subscription.condition)
        return any(isinstance(node, Like) and node.escape is not None for node in nodes)

    find(strategies.static_subscriptions, has_escape, settings=ANY)
