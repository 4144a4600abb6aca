"""A publication as policies see it, and their outputs as they are sent."""

import pytest

from rove.policy.guards import Guards, Halted
from rove.policy.messages import ENCODED_MAX, IncomingMessage, Message, OutputMessage


def meter() -> Guards:
    return Guards(100_000, 1_000_000)


def test_what_is_missing_is_none() -> None:
    m = Message(pulse=80)
    assert m["pulse"] == 80
    assert m["other"] is None
    assert "other" not in m


def test_members_win_over_user_properties_and_the_topic_over_both() -> None:
    arrived = IncomingMessage(
        "t", b'{"a": 1, "topic": 2}', (("a", "x"), ("u", "y"), ("topic", "z"))
    )
    assert arrived.attributes == {"u": "y", "a": 1, "topic": "t"}


@pytest.mark.parametrize("payload", [b"\x00\x01", b"[1]", b"text", b"{"])
def test_what_is_no_object_is_the_payload(payload: bytes) -> None:
    arrived = IncomingMessage("t", payload, (("u", "y"),))
    assert arrived.attributes == {"u": "y", "topic": "t", "payload": payload}
    assert arrived.encode(arrived.message(), meter()) == OutputMessage(payload, (("u", "y"),))


def test_an_empty_payload_is_nothing() -> None:
    assert IncomingMessage("t", b"").attributes == {"topic": "t"}
    assert IncomingMessage("t", b"{}").attributes == {"topic": "t"}


def test_the_message_is_a_copy() -> None:
    arrived = IncomingMessage("t", b'{"a": 1}')
    m = arrived.message()
    m["a"] = 2
    assert arrived.attributes["a"] == 1


def test_user_properties_that_were_left_alone_stay_what_they_are() -> None:
    arrived = IncomingMessage("t", b'{"a": 1}', (("u", "y"), ("v", "z")))
    m = arrived.message()
    m["u"] = "other"
    assert arrived.encode(m, meter()) == OutputMessage(b'{"u":"other","a":1}', (("v", "z"),))
    assert arrived.is_user_property("v", m["v"])
    assert not arrived.is_user_property("u", m["u"])
    assert not arrived.is_user_property("a", m["a"])


@pytest.mark.parametrize(
    ("payload", "output", "sent"),
    [
        (b'{"a": 1}', Message(a=2), b'{"a":2}'),
        (b'{"a": 1}', Message(id="mine"), b'{"id":"mine"}'),
        (b'{"a": 1, "id": 5}', Message(id=5), b'{"id":5}'),
        (b"no object", Message(payload=b"xy"), b"xy"),
    ],
)
def test_what_it_is_called_stays(payload: bytes, output: Message, sent: bytes) -> None:
    arrived = IncomingMessage("t", payload, (("u", "y"), ("id", "p-17")))
    assert arrived.encode(output, meter()) == OutputMessage(sent, (("id", "p-17"),))
    everything = arrived.encode(arrived.message(), meter())
    assert set(everything.user) == {("u", "y"), ("id", "p-17")}
    assert b"p-17" not in everything.payload


def test_the_topic_is_not_sent_twice() -> None:
    arrived = IncomingMessage("t", b'{"a": 1}')
    assert arrived.encode(Message(topic="other", a=2), meter()).payload == b'{"a":2}'


def test_what_several_make_alike_is_written_once() -> None:
    arrived = IncomingMessage("t", b'{"a": 1, "xs": [1, 2]}')
    outputs = [Message(xs=arrived.attributes["xs"]) for _ in range(2)]
    first, second = (arrived.encode(output, meter()) for output in outputs)
    assert first is second
    assert arrived.encode(Message(xs=[1, 2]), meter()) == first


def test_who_makes_it_again_pays_the_same() -> None:
    arrived = IncomingMessage("t", b'{"xs": [[1], [2], 3]}')
    paid = [meter() for _ in range(3)]
    for each in paid:
        arrived.encode(Message(xs=arrived.attributes["xs"]), each)
    assert paid[0].steps == paid[1].steps == paid[2].steps > 10


def test_it_is_paid_for_before_it_is_written() -> None:
    arrived = IncomingMessage("t", b'{"x": [%s]}' % b",".join([b"0"] * 300_000))
    paid = meter()
    with pytest.raises(Halted, match="more than 100,000 steps"):
        arrived.encode(Message(x=arrived.attributes["x"]), paid)
    assert arrived._encodings == {}


def test_no_more_is_remembered_than_that() -> None:
    arrived = IncomingMessage("t", b"{}")
    for number in range(2 * ENCODED_MAX):
        assert arrived.encode(Message(a=float(number)), meter()).payload == b'{"a":%d.0}' % number


def test_bytes_are_a_payload_alone() -> None:
    arrived = IncomingMessage("t", b'{"a": 1}')
    assert arrived.encode(Message(payload=b"xy"), meter()).payload == b"xy"
    with pytest.raises(ValueError, match="cannot also have 'a'"):
        arrived.encode(Message(payload=b"xy", a=1), meter())


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(Halted, match="inf is no number"):
        IncomingMessage("t", b"{}").encode(Message(a=float("inf")), meter())


def test_sizes_count_what_goes_out() -> None:
    assert OutputMessage(b"1234", (("ab", "c"),)).size_bytes == 7
    arrived = IncomingMessage("t", b"1234", (("ab", "c"),))
    assert arrived.as_it_came == OutputMessage(b"1234", (("ab", "c"),))


def test_a_message_with_a_longer_one_is_a_payload() -> None:
    for digits, is_fine in ((77, True), (78, False), (4_000, False)):
        for form in (b'{"n": %s}', b'{"a": {"b": [[1.5], [-%s]]}}'):
            payload = form % (b"9" * digits)
            attributes = IncomingMessage("t", payload).attributes
            assert (attributes["payload"] is None) is is_fine
            assert is_fine or attributes["payload"] == payload
