"""What a SUBSCRIBE asks for, and what its session may have: limits of one expression and of all."""

import pytest

from rove.broker.context import BrokerSettings
from rove.broker.limits import Limits
from rove.broker.sessions.session import Session
from rove.broker.subscriptions.interest import (
    NO_EXPRESSION,
    Spent,
    expression_fault,
    interest_in,
    interest_of,
    key_of,
    session_fault,
    split_expression,
)
from rove.lang.costs import NO_COST, Cost, cost_of
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.match.designs.design import Evolve
from rove.match.matcher import EXACT
from rove.mqtt.packets import V311, Filter, Properties, Reason, Suback, Subscribe
from rove.testing.mqtt import SimulatedBroker

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
    assert key_of("a", 1, None) == key_of("a", 2, None) == ("a", NO_EXPRESSION)
    assert key_of("a", 1, text) != key_of("a", 2, text)
    assert key_of("a", 0, text) != key_of("a", 0, None)


def test_a_topic_and_a_text_are_split_at_the_first_question_mark() -> None:
    assert split_expression("a/b") == ("a/b", None)
    assert split_expression("a/b?x = '?'") == ("a/b", "x = '?'")
    assert split_expression("a?") == ("a", "")


COSTLY = " OR ".join(
    f"distance(lat, long, {i}, 3) < sin(x) + cos(y) * pow({i}, z)" for i in range(64)
)
COMPUTED = cost_of(parse("a + b > 1")).matching_steps


def filtered(text: str, identifier: int = 0, **user: str) -> Properties:
    identifiers = (identifier,) if identifier else ()
    return Properties(user=(("filter", text), *user.items()), subscription_ids=identifiers)


def subscribed(client: object, text: str, identifier: int = 0, **user: str) -> tuple[int, str]:
    answer = client.subscribe("a", properties=filtered(text, identifier, **user))  # type: ignore[attr-defined]
    return answer.reasons[0], answer.properties.reason_string or ""


class TestOneText:
    @pytest.mark.parametrize(
        ("text", "limits", "told"),
        [
            (
                COSTLY,
                Limits(text_steps_max=400_000),
                "steps a publication at first; 400,000 are allowed",
            ),
            (
                "ORDER BY x LIMIT 1 WITHIN 1e300 DAYS",
                Limits(),
                "the window lasts 8.64e+304 s; 2,678,400 s are allowed (write WITHIN 31 DAYS",
            ),
            ("ORDER BY x LIMIT 1 WITHIN 32 DAYS", Limits(), "write WITHIN 31 DAYS or less"),
            (
                "ORDER BY x LIMIT 1 WITHIN 100001 PUBLICATIONS",
                Limits(),
                "the window holds 100,001 publications; 100,000 are allowed",
            ),
        ],
    )
    def test_it_is_refused_with_the_figure_and_what_would_be_less(
        self, text: str, limits: Limits, told: str
    ) -> None:
        world = SimulatedBroker(limits=limits)
        client = world.connect()
        reason, why = subscribed(client, text)
        assert reason == Reason.QUOTA_EXCEEDED
        assert told in why
        assert world.broker.counters.quota_hits == 1
        assert subscribed(client, "x > 1")[0] == 0

    def test_a_client_of_3_1_1_is_refused_too(self) -> None:
        world = SimulatedBroker(
            limits=Limits(text_steps_max=10), settings=BrokerSettings(topic_text=True)
        )
        client = world.connect(version=V311)
        client.send(Subscribe(5, (Filter("a?x > 1", 1), Filter("b", 1))))
        assert client.inbox == [Suback(5, (0x80, 1))]

    def test_at_the_limit_it_is_accepted(self) -> None:
        steps = cost_of(parse(COSTLY)).matching_steps
        assert expression_fault(Cost(steps), Limits(text_steps_max=steps)) is None
        assert expression_fault(Cost(steps), Limits(text_steps_max=steps - 1)) is not None
        assert expression_fault(Cost(1, 0, 31 * 86_400.0), Limits()) is None
        assert expression_fault(Cost(1, 0, None, 100_000), Limits()) is None

    def test_what_spark_finds_costs_the_broker_nothing(self) -> None:
        world = SimulatedBroker(limits=Limits(text_steps_max=1))
        _, why = subscribed(world.connect(), "a + b > 1", engine="spark")
        assert "steps" not in why


class TestASession:
    def test_its_texts_count_together(self) -> None:
        world = SimulatedBroker(limits=Limits(session_steps_max=2 * COMPUTED))
        client, other = world.connect("one"), world.connect("other")
        assert subscribed(client, "a + b > 1", 1)[0] == 0
        assert subscribed(client, "a + b > 2", 2)[0] == 0
        reason, why = subscribed(client, "a + b > 3", 3)
        assert reason == Reason.QUOTA_EXCEEDED
        assert f"the session would cost {3 * COMPUTED:,} steps a publication" in why
        assert subscribed(other, "a + b > 3", 1)[0] == 0
        assert subscribed(client, "a + b > 4", 2)[0] == 0, "one in the place of another"
        client.unsubscribe("a")
        assert subscribed(client, "a + b > 3", 3)[0] == 0

    def test_windows_are_counted(self) -> None:
        world = SimulatedBroker(limits=Limits(windows_per_session_max=1))
        client = world.connect()
        ranked = "ORDER BY x LIMIT 1 WITHIN 1 DAY"
        assert subscribed(client, ranked, 1)[0] == 0
        assert subscribed(client, ranked, 2)[0] == Reason.QUOTA_EXCEEDED
        assert subscribed(client, "ORDER BY y LIMIT 1 WITHIN 1 DAY", 1)[0] == 0
        assert subscribed(client, "x > 1", 1)[0] == 0
        assert subscribed(client, ranked, 2)[0] == 0

    def test_what_follows_is_counted(self) -> None:
        steps = cost_of(parse("x > me.x")).moving_steps
        world = SimulatedBroker(limits=Limits(session_moving_steps_max=2 * steps - 1))
        client = world.connect()
        assert subscribed(client, "x > me.x", 1)[0] == 0
        reason, why = subscribed(client, "x > me.x", 2)
        assert reason == Reason.QUOTA_EXCEEDED
        assert f"a change of me. would cost {2 * steps:,} steps" in why
        assert subscribed(client, "x > 1", 2)[0] == 0

    def test_what_was_accepted_before_stays_and_counts(self) -> None:
        world = SimulatedBroker(limits=Limits(session_steps_max=3 * COMPUTED))
        client = world.connect("c", expiry_s=1_000)
        for number in (1, 2, 3):
            assert subscribed(client, f"a + b > {number}", number)[0] == 0
        before = world.broker.context.sessions["c"].spent
        world.crash()
        client.come_back()
        assert world.broker.context.sessions["c"].spent == before
        world.broker.context.limits = Limits(session_steps_max=1)
        assert subscribed(client, "a + b > 4", 4)[0] == Reason.QUOTA_EXCEEDED
        client.publish("a", b'{"a": 1, "b": 1}')
        assert client.payloads() == [b'{"a": 1, "b": 1}'], "what was there is served as before"

    def test_a_cheaper_text_may_take_the_place_of_one_beyond_the_limit(self) -> None:
        spent = Spent(1_000, 1_000, 5)
        limits = Limits(
            session_steps_max=10, session_moving_steps_max=10, windows_per_session_max=1
        )
        old = Cost(500, 500, 1.0)
        assert session_fault(Cost(499, 499, 2.0), old, spent, limits) is None
        assert session_fault(Cost(501, 0), old, spent, limits) is not None
        assert session_fault(Cost(0, 501), old, spent, limits) is not None
        assert session_fault(Cost(0, 0, 1.0), NO_COST, spent, limits) is not None
