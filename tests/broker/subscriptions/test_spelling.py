"""Misspelt names of user properties are refused with the right one; all others pass."""

from __future__ import annotations

import pytest

from rove.broker.subscriptions.spelling import (
    CHECKED_MAX,
    CONTROL_NAMES,
    PUBLISH_NAMES,
    SUBSCRIBE_NAMES,
    UNSUBSCRIBE_NAMES,
    misspelt,
)
from rove.mqtt.packets import (
    Filter,
    Properties,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.testing.mqtt import SimulatedBroker


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("flter", SUBSCRIBE_NAMES, "filter"),
        ("filtre", SUBSCRIBE_NAMES, "filter"),
        ("filters", SUBSCRIBE_NAMES, "filter"),
        ("fiter", SUBSCRIBE_NAMES, "filter"),
        ("Filter", SUBSCRIBE_NAMES, "filter"),
        ("$filter", SUBSCRIBE_NAMES, "filter"),
        ("$flter", SUBSCRIBE_NAMES, "filter"),
        ("where", SUBSCRIBE_NAMES, "$where"),
        ("WHERE", SUBSCRIBE_NAMES, "$where"),
        ("evovle", SUBSCRIBE_NAMES, "evolve"),
        ("Engine", SUBSCRIBE_NAMES, "engine"),
        ("polcy", SUBSCRIBE_NAMES, "policy"),
        ("valid_for", PUBLISH_NAMES, "valid-for"),
        ("validfor", PUBLISH_NAMES, "valid-for"),
        ("vaild-for", PUBLISH_NAMES, "valid-for"),
        ("ID", PUBLISH_NAMES, "id"),
        ("$id", PUBLISH_NAMES, "id"),
        ("subscripton", UNSUBSCRIBE_NAMES, "subscription"),
        ("subscriptions", CONTROL_NAMES, "subscription"),
    ],
)
def test_the_right_name_is_said(name: str, known: tuple[str, ...], meant: str) -> None:
    text = misspelt([("trace", "1"), (name, "x")], known)
    assert text == f"there is no user property {name!r} here; did you mean {meant}?"


@pytest.mark.parametrize("known", [SUBSCRIBE_NAMES, UNSUBSCRIBE_NAMES, PUBLISH_NAMES])
def test_right_names_and_those_of_others_pass(known: tuple[str, ...]) -> None:
    others = ["", "traceparent", "site", "color", "ids", "uid", "kind", "winter", "x" * 65_535]
    assert misspelt([(name, "x") for name in (*known, *others)], known) is None


def test_what_begins_with_a_dollar_is_the_brokers() -> None:
    text = misspelt([("$colour", "x")], PUBLISH_NAMES)
    assert text is not None
    assert text.endswith("names that begin with $ are the broker's: id, valid-for")


def test_no_more_is_looked_at_than_costs_little() -> None:
    many = [(f"name{number}", "") for number in range(CHECKED_MAX)]
    assert misspelt([*many[1:], ("flter", "")], SUBSCRIBE_NAMES) is not None
    assert misspelt([*many, ("flter", "")], SUBSCRIBE_NAMES) is None


def with_property(name: str) -> Properties:
    return Properties(user=((name, "x > 1"),))


def test_a_misspelt_filter_is_no_subscription_to_everything() -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.send(Subscribe(1, (Filter("a"), Filter("b")), with_property("flter")))
    answer = client.only(Suback)
    assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,) * 2
    assert "did you mean filter?" in (answer.properties.reason_string or "")
    world.connect("other").publish("a", b'{"x": 0}')
    assert client.payloads() == []
    assert world.broker.counters.subscriptions_refused == 2


def test_a_misspelt_subscription_ends_nothing() -> None:
    client = SimulatedBroker().connect()
    client.subscribe("a", filter="x > 1", identifier=1)
    client.subscribe("a", filter="x > 2", identifier=2)
    client.send(Unsubscribe(9, ("a",), with_property("subscripton")))
    answer = client.only(Unsuback)
    assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert "did you mean subscription?" in (answer.properties.reason_string or "")
    assert len(client.world.broker.context.sessions["client"].subscriptions) == 2


@pytest.mark.parametrize(
    ("topic", "name"), [("a", "valid_for"), ("a", "$id"), ("$rove/policy", "subscripton")]
)
def test_a_publication_with_a_misspelt_property_is_refused(topic: str, name: str) -> None:
    world = SimulatedBroker()
    client, reader = world.connect(), world.connect("reader")
    reader.subscribe("#")
    client.send(Publish(topic, b"pass", 1, packet_id=7, properties=with_property(name)))
    assert client.only(Puback).reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
    client.send(Publish(topic, b"pass", 0, properties=with_property(name)))
    assert reader.payloads() == []
    assert world.broker.counters.publications_refused == 2


def test_attributes_of_any_other_name_are_published() -> None:
    world = SimulatedBroker()
    client, reader = world.connect(), world.connect("reader")
    reader.subscribe("a", filter="subscripton = 'x > 1'")
    client.publish("a", b"1", properties=with_property("subscripton"))
    assert reader.payloads() == [b"1"]
