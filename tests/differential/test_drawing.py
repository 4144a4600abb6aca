"""What the seeded generator draws is in the language, is the same again, and stands on edges."""

from random import Random

from rove.lang import matches, parse, to_text
from rove.lang.tree import Attribute, Like, Me, Time, walk
from rove.lang.values import admit, next_number, previous_number
from tests.differential.drawing import Drawing, Moment, edges

NOW = Moment(2.0, {"x": 10})


def test_every_drawn_subscription_is_in_the_language() -> None:
    for subscription in Drawing(Random(1), moving=0.5).subscriptions(300):
        assert parse(to_text(subscription)) == subscription


def test_one_seed_draws_the_same_again() -> None:
    one, other = Drawing(Random(7)), Drawing(Random(7))
    assert one.subscriptions(50) == other.subscriptions(50)
    assert repr([one.state(), one.value()]) == repr([other.state(), other.value()])
    assert one.subscriptions(1) != Drawing(Random(8)).subscriptions(1)


def test_everything_that_moves_and_does_not_is_drawn() -> None:
    drawn = Drawing(Random(1), moving=0.5, texts=0.5, names=["w1"]).subscriptions(300)
    nodes = {type(node) for one in drawn for node in walk(one.condition)}
    assert {Time, Me, Attribute, Like} <= nodes
    assert any(Attribute(("w1",)) in walk(one.condition) for one in drawn)


def test_without_a_share_nothing_moves() -> None:
    drawn = Drawing(Random(1), moving=0.0).subscriptions(200)
    assert not any(type(node) in (Time, Me) for one in drawn for node in walk(one.condition))


def test_edges_are_bounds_at_the_moment_and_their_neighbours() -> None:
    found = edges(parse("a > 3 + t AND b = me.x AND c AND startswith(n.m, 'q')"), NOW)
    assert {5.0, next_number(5.0), previous_number(5.0)} <= set(found["a",])
    assert {10, next_number(10)} <= set(found["b",])
    assert {True, False} <= set(found["c",])
    assert {"q", "qb", "Bq"} <= set(found["n", "m"])


def test_values_that_a_bound_cannot_have_are_no_edges() -> None:
    assert edges(parse("a > 1 / (t - 2) AND a < 1.7976931348623157e308"), NOW)["a",]
    values = edges(parse("a < 1.7976931348623157e308"), NOW)["a",]
    admit({"values": values})


def test_publications_meet_their_subscriptions_and_are_fit_for_the_door() -> None:
    drawing, met = Drawing(Random(3)), 0
    for subscription in drawing.subscriptions(400):
        publication = drawing.publication([subscription], NOW)
        admit(publication)
        met += matches(subscription, publication, *NOW)
    assert 80 < met < 320
