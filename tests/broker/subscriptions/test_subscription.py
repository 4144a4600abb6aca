"""A subscription, read out of a SUBSCRIBE."""

import pytest

from rove.broker.sessions.session import Session
from rove.broker.subscriptions.subscription import (
    NO_TEXT,
    Subscription,
    interest_in,
    interest_of,
    key_of,
    split_text,
)
from rove.lang.errors import LanguageError
from rove.match.designs.design import Evolve
from rove.match.matcher import EXACT
from rove.mqtt.packets import Filter, Properties

SESSION = Session("client", 1, 5, 60)


def properties(**user: str) -> Properties:
    return Properties(user=tuple(user.items()))


def test_without_a_text_there_is_no_interest() -> None:
    assert interest_of(properties(colour="red")) is None


def test_a_text_is_read_with_how_it_evolves() -> None:
    interest = interest_of(properties(filter="x > 1 + t", evolve="pes 1s"))
    assert interest is not None
    assert (interest.text, interest.evolve_text) == ("x > 1 + t", "pes 1s")
    assert interest.evolve == Evolve("pes", 1.0)
    assert not interest.uses_me
    assert not interest.is_ranked


def test_without_being_told_it_evolves_exactly() -> None:
    assert interest_in("x > 1").evolve == EXACT


def test_it_is_known_whether_the_state_matters_and_whether_it_is_ranked() -> None:
    assert interest_in("x > me.x").uses_me
    assert interest_in("SELECT x WHERE y = 1 ORDER BY x + me.x LIMIT 1 WITHIN 1 HOUR").uses_me
    assert interest_in("ORDER BY x LIMIT 1 WITHIN 1 HOUR").is_ranked


@pytest.mark.parametrize(
    "user",
    [
        {"filter": "x >"},
        {"filter": "x > 1", "evolve": "pes"},
        {"evolve": "exact"},
        {"filter": "ORDER BY x LIMIT 1 WITHIN 1 HOUR", "evolve": "lees"},
        {"filter": "x > t", "evolve": "pes 1s", "engine": "spark"},
        {"filter": "x > 1", "engine": "flink"},
        {"filter": "x > 1", "engine": ""},
        {"engine": "flink"},
        {"engine": "spark"},
    ],
)
def test_what_cannot_be_meant_is_said(user: dict[str, str]) -> None:
    with pytest.raises(LanguageError):
        interest_of(properties(**user))


def test_who_finds_what_meets_a_text_can_be_chosen() -> None:
    for user, is_live in (({}, True), ({"engine": "broker"}, True), ({"engine": "spark"}, False)):
        interest = interest_of(properties(filter="x > 1", evolve="exact", **user))
        assert interest is not None
        assert interest.is_live is is_live
    assert interest_of(properties(engine="broker")) is None


def test_what_takes_whose_place() -> None:
    text = interest_in("x > 1")
    assert key_of("a", 1, None) == key_of("a", 2, None) == ("a", NO_TEXT)
    assert key_of("a", 1, text) != key_of("a", 2, text)
    assert key_of("a", 0, text) != key_of("a", 0, None)


def test_a_topic_and_a_text_are_split_at_the_first_question_mark() -> None:
    assert split_text("a/b") == ("a/b", None)
    assert split_text("a/b?x = '?'") == ("a/b", "x = '?'")
    assert split_text("a?") == ("a", "")


def test_groups_and_texts_are_not_part_of_the_topic_filter() -> None:
    interest = interest_in("x > 1")
    made = Subscription(5, SESSION, Filter("$share/g/a/+?x > 1", 1), 0, interest, 7.0)
    assert (made.group, made.topic_filter) == ("g", "a/+")
    assert made.key == ("$share/g/a/+?x > 1", 0)


def test_its_row_says_everything() -> None:
    interest = interest_in("x > 1", "lees")
    made = Subscription(5, SESSION, Filter("a", 1, True, True), 9, interest, 7.0)
    row = made.row()
    assert (row.client_id, row.topic_filter, row.qos) == ("client", "a", 1)
    assert (row.no_local, row.retain_as_published, row.identifier) == (True, True, 9)
    assert (row.text, row.evolve, row.accepted_at) == ("x > 1", "lees", 7.0)
    assert row.engine == "broker"
    served = Subscription(5, SESSION, Filter("a"), 9, interest_in("x > 1", engine="spark"), 7.0)
    assert served.row().engine == "spark"
