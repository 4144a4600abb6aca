"""Messages between neighbours: every one comes back as it went, and nothing else is believed."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.mesh import messages
from rove.mesh.graph import Edge, Record
from rove.mesh.messages import (
    Digest,
    Frame,
    Hello,
    MeshError,
    Message,
    MessageReader,
    Open,
    Ping,
    Pong,
    Refuse,
    Taken,
    Welcome,
    check_name,
    encode,
    encode_frame,
    encode_open,
    frame_onward,
    frame_split,
    prefix_places,
)
from tests.effort import examples

HELLO = Hello(1, "1.2.3", "b1", 7, 1 << 62, 1_000.5)
EVERY = (
    HELLO,
    Welcome(3),
    Refuse("the name is taken"),
    Ping(1.5, 10),
    Pong(1.5, 2.5, 11),
    Taken(12),
    Digest({1: 2, 3: 4}),
    Record(5, "b-2.x_y", 1, 9, (Edge(1, 2, 3, -4, 5), Edge(6, 7, 8, 9, 10))),
)


def read(data: bytes, *, pieces: int = 1 << 20) -> list[Message]:
    """What a reader makes of this, after HELLO."""
    reader = MessageReader()
    assert list(reader.feed(encode(HELLO))) == [HELLO]
    found = []
    for begin in range(0, len(data), pieces):
        found += list(reader.feed(data[begin : begin + pieces]))
    return found


@pytest.mark.parametrize("pieces", [1, 3, 7, 1 << 20])
def test_messages_come_back_however_they_are_cut(pieces: int) -> None:
    data = b"".join(encode(message) for message in EVERY[1:])
    opening = Open(64, 1, 2, 3, 4, 1)
    frame = encode_frame(9, [(1, 2, 3, 4, 3), (5, 6, 7, 8, 2)], b"abcde and the body")
    found = read(data + encode_open(opening) + frame, pieces=pieces)
    assert found[:-1] == [*EVERY[1:], opening]
    assert isinstance(found[-1], Frame)
    assert found[-1].heads == ((1, 2, 3, 4, 3), (5, 6, 7, 8, 2))


def test_a_frame_is_passed_on_as_it_came_with_one_hop_less() -> None:
    data = encode_frame(9, [(1, 2, 3, 4, 0)], b"body", hops=5)
    (frame,) = read(data)
    assert isinstance(frame, Frame)
    assert frame_onward(frame) == encode_frame(9, [(1, 2, 3, 4, 0)], b"body", hops=4)


def test_a_frame_is_split_with_the_prefixes_of_its_targets() -> None:
    heads = [(1, 0, 0, 0, 1), (2, 0, 0, 0, 2), (3, 0, 0, 0, 3)]
    (frame,) = read(encode_frame(9, heads, b"abbccc body", hops=5))
    assert isinstance(frame, Frame)
    (part,) = read(frame_split(frame, [0, 2]))
    assert isinstance(part, Frame)
    assert [head[0] for head in part.heads] == [1, 3]
    places = prefix_places(part)
    assert part.data[places[1] : places[2]] == b"ccc"
    assert part.data[places[-1] :] == b" body"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (struct.pack(">IB", 1, 99), "a message of the unknown type 99; known are 1 to 10"),
        (struct.pack(">IB", 0, 3), "REFUSE of -1 bytes, at most 300 are allowed"),
        (struct.pack(">IB", 1 << 31, 10), "FRAME of 2,147,483,647 bytes, at most"),
        (struct.pack(">IB", 3, 4) + b"xx", "PING of 2 bytes has not the fields"),
        (struct.pack(">IBdQ", 17, 4, float("nan"), 0), "PING with the time nan"),
        (struct.pack(">IB", 4, 3) + b"a\nb", "REFUSE with characters that cannot be printed"),
        (struct.pack(">IB", 2, 10) + b"x", "FRAME of 0 bytes, its origin is missing"),
        (struct.pack(">IBBQB", 11, 10, 1, 1, 0), "FRAME of 9 bytes cannot have 0 targets"),
        (struct.pack(">IBBQB", 11, 10, 1, 1, 2), "FRAME of 9 bytes cannot have 2 targets"),
        (encode_frame(1, [(1, 1, 1, 1, 9)], b"short"), "FRAME with 9 bytes of prefixes"),
        (encode(Record(1, "b1", 1, 1 << 63)), "RECORD with the number 9223372036854775808"),
        (encode(Record(1, "b 1", 1, 1)), "a broker cannot be called 'b 1'"),
        (encode(Record(1, "", 1, 1)), "a broker cannot be called ''"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data: bytes, what: str) -> None:
    with pytest.raises(MeshError) as caught:
        read(data)
    assert str(caught.value).startswith(what)
    assert "\n" not in str(caught.value)


def test_a_stranger_is_noticed_by_its_first_bytes() -> None:
    with pytest.raises(
        MeshError, match=r"this is no link of a broker: it begins with b'GET / HTTP"
    ):
        list(MessageReader().feed(b"GET / HTTP/1.1\r\n\r\n"))


def test_a_later_version_may_say_more_in_hello() -> None:
    data = encode(HELLO)
    longer = struct.pack(">I", len(data) - 4 + 5) + data[4:] + b"later"
    assert list(MessageReader().feed(longer)) == [HELLO]


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "a/b", "a\n"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(MeshError, match="a broker cannot be called"):
        check_name(name)


@examples(1_000)
@given(st.data())
def test_no_bytes_raise_anything_else_or_are_kept_beyond_the_limit(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(PIECES, max_size=8))
    reader = MessageReader()
    list(reader.feed(encode(HELLO)))
    with contextlib.suppress(MeshError):
        for piece in pieces:
            for message in reader.feed(piece):
                if isinstance(message, Frame):
                    prefix_places(message)
    longest = max(map(len, pieces), default=0)
    assert reader.kept_bytes <= max(messages.BYTES_MAX.values()) + 5 + longest


def broken(message: bytes, at: int, value: int) -> bytes:
    """A message with one byte changed."""
    at %= len(message)
    return message[:at] + bytes((value,)) + message[at + 1 :]


WHOLE = st.sampled_from(
    [
        *(encode(message) for message in EVERY),
        encode_open(Open(64, 1, 2, 3, 4, 1)),
        encode_frame(9, [(1, 2, 3, 4, 3), (5, 6, 7, 8, 2)], b"abcde and the body"),
        encode_frame(9, [(1, 2, 3, 4, 0)], b""),
    ]
)
PIECES = st.one_of(
    st.binary(max_size=60),
    WHOLE,
    st.builds(broken, WHOLE, st.integers(0, 200), st.integers(0, 255)),
    st.builds(
        lambda size, kind, data: struct.pack(">IB", size, kind) + data,
        st.integers(0, 200),
        st.integers(0, 12),
        st.binary(max_size=200),
    ),
)


def test_an_announced_length_allocates_nothing() -> None:
    reader = MessageReader()
    list(reader.feed(encode(HELLO)))
    tracemalloc.start()
    try:
        list(reader.feed(struct.pack(">IB", messages.BYTES_MAX[messages.FRAME], messages.FRAME)))
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
