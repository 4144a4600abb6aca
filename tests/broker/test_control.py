"""`$rove/…`: the subscriber's state, and what cannot be asked."""

import pytest

from rove.broker.context import LakeStream, Settings
from rove.broker.limits import Limits
from rove.broker.storage.records import LogRow, SessionRow
from rove.mqtt.packets import Puback, Publish, Reason
from rove.testing.mqtt import SimulatedBroker, SimulatedClient


def say(client: SimulatedClient, payload: bytes, topic: str = "$rove/me") -> Puback:
    client.publish(topic, payload, 1)
    return client.only(Puback)


def test_me_moves_a_following_subscription() -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.subscribe("a", filter="x > me.x")
    client.publish("a", b'{"x": 5}')
    assert client.payloads() == []
    assert say(client, b'{"x": 3}').reason == Reason.SUCCESS
    client.publish("a", b'{"x": 5}')
    assert say(client, b'{"x": 7}').reason == Reason.SUCCESS
    client.publish("a", b'{"x": 5}')
    client.publish("a", b'{"x": 8}')
    assert client.payloads() == [b'{"x": 5}', b'{"x": 8}']


def test_what_was_published_before_in_the_same_turn_meets_the_old_state() -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.subscribe("a", filter="x > me.x")
    say(client, b'{"x": 3}')
    client.say(Publish("a", b'{"x": 5}'))
    client.say(Publish("$rove/me", b'{"x": 7}'))
    client.say(Publish("a", b'{"x": 6}'))
    world.turn()
    assert client.payloads() == [b'{"x": 5}']


def test_variables_are_added_changed_and_removed_by_null() -> None:
    world = SimulatedBroker()
    client = world.connect()
    say(client, b'{"x": 1, "place": {"city": "Split"}}')
    say(client, b'{"y": 2, "x": 3}')
    me = world.broker.context.sessions["client"].me
    assert (me["x"], me["y"]) == (3, 2)
    say(client, b'{"y": null}')
    assert "y" not in world.broker.context.sessions["client"].me


def test_a_later_subscription_knows_the_state() -> None:
    world = SimulatedBroker()
    client = world.connect()
    say(client, b'{"x": 3}')
    client.subscribe("a", filter="x > me.x")
    client.publish("a", b'{"x": 2}')
    client.publish("a", b'{"x": 4}')
    assert client.payloads() == [b'{"x": 4}']


def test_one_clients_state_is_not_anothers() -> None:
    world = SimulatedBroker()
    one, two = world.connect("one"), world.connect("two")
    for client, x in ((one, b"3"), (two, b"30")):
        say(client, b'{"x": %s}' % x)
        client.subscribe("a", filter="x > me.x")
    one.publish("a", b'{"x": 10}')
    assert one.payloads() == [b'{"x": 10}']
    assert two.payloads() == []


def test_state_moves_ranks_and_designs_too() -> None:
    world = SimulatedBroker()
    client = world.connect()
    say(client, b'{"x": 0}')
    client.subscribe("r", identifier=1, filter="ORDER BY abs(x - me.x) LIMIT 1 WITHIN 60 SECONDS")
    client.subscribe("a", identifier=2, filter="x > me.x - t", evolve="lees")
    assert say(client, b'{"x": 10}').reason == Reason.SUCCESS
    client.publish("r", b'{"x": 9}')
    client.publish("a", b'{"x": 9}')
    client.publish("a", b'{"x": 11}')
    assert client.payloads() == [b'{"x": 9}', b'{"x": 11}']


@pytest.mark.parametrize(
    "payload",
    [
        *(
            b"",
            b"[1]",
            b"7",
            b'{"x": ',
            b"\xff",
            b'{"x": NaN}',
            b'{"x": 1e999}',
            b'{"me": {"a":' * 5,
        ),
        b'{"x": 18446744073709551616}',
        b'{"x": {"y": [-9223372036854775809]}}',
    ],
)
def test_what_is_no_object_is_refused_and_changes_nothing(payload: bytes) -> None:
    world = SimulatedBroker()
    client = world.connect()
    say(client, b'{"x": 1}')
    answer = say(client, payload)
    assert answer.reason == Reason.PAYLOAD_FORMAT_INVALID
    assert (answer.properties.reason_string or "").startswith("$rove/me takes a JSON object")
    assert world.broker.context.sessions["client"].me == {"x": 1}
    assert not client.is_closed()


def test_more_variables_than_allowed_are_refused_as_a_whole() -> None:
    world = SimulatedBroker(limits=Limits(state_variables_max=2))
    client = world.connect()
    say(client, b'{"a": 1}')
    answer = say(client, b'{"b": 1, "c": 1}')
    assert answer.reason == Reason.QUOTA_EXCEEDED
    assert world.broker.context.sessions["client"].me == {"a": 1}
    assert say(client, b'{"b": 1, "a": null, "c": 2}').reason == Reason.SUCCESS
    assert world.broker.counters.quota_hits == 1


def test_more_bytes_than_allowed_are_refused_as_a_whole() -> None:
    world = SimulatedBroker(limits=Limits(state_bytes_max=100))
    client = world.connect()
    assert say(client, b'{"a": "%s"}' % (b"x" * 50)).reason == Reason.SUCCESS
    assert say(client, b'{"b": "%s"}' % (b"x" * 50)).reason == Reason.QUOTA_EXCEEDED
    assert set(world.broker.context.sessions["client"].me) == {"a"}


def test_state_of_a_session_that_stays_survives_a_crash() -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    client.subscribe("a", qos=1, filter="x > me.x")
    say(client, b'{"x": 3, "name": "me"}')
    (row,) = world.disk.read("sessions", SessionRow).values()
    assert row.me == {"x": 3, "name": "me"}
    world.crash()
    client.come_back()
    client.publish("a", b'{"x": 2}', 1)
    client.publish("a", b'{"x": 4}', 1)
    assert client.payloads() == [b'{"x": 4}']


def test_an_answer_waits_for_the_commit() -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    world.holds_commits = True
    client.publish("$rove/me", b'{"x": 3}', 1)
    assert client.inbox == []
    world.commit()
    assert client.only(Puback).reason == Reason.SUCCESS


def test_an_unknown_command_is_refused_and_those_that_exist_are_named() -> None:
    answer = say(SimulatedBroker().connect(), b"", "$rove/mee")
    assert answer.reason == Reason.TOPIC_NAME_INVALID
    assert answer.properties.reason_string == (
        "there is no $rove/mee; there is $rove/me, $rove/report, $rove/policy, "
        "$rove/unpublish, $rove/deliver"
    )


def test_commands_are_delivered_to_nobody() -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.subscribe("$rove/#", "#")
    say(client, b'{"x": 1}')
    assert client.payloads() == []


def test_commands_are_not_retained() -> None:
    world = SimulatedBroker()
    client = world.connect()
    client.publish("$rove/me", b'{"x": 1}', 1, retain=True)
    assert world.disk.sizes() == {}


def test_states_are_logged_where_a_channel_keeps_them() -> None:
    channel = LakeStream("states", ("$rove/me",), frozenset(("states",)))
    world = SimulatedBroker(settings=Settings(channels=(channel,)))
    client = world.connect()
    say(client, b'{"x": 1}')
    say(client, b"nonsense")
    (row,) = world.disk.read("log", LogRow).values()
    assert (row.kind, row.channel, row.client_id, row.payload) == (
        "states",
        "states",
        "client",
        b'{"x":1}',
    )
