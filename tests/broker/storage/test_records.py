"""Rows come back as they were, old ones too, and keys keep the order that they promise."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.broker.storage.records import (
    QUEUE_ENTRY_BITS,
    LogRow,
    PublicationRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    decoded,
    encoded,
    queue_key,
    received_key,
)
from rove.lang.tree import Attribute
from rove.mqtt.packets import Properties, Will

ROWS: list[msgspec.Struct] = [
    SessionRow(1, 5, 3600),
    SessionRow(
        2,
        4,
        0,
        user="ana",
        will=Will("last/words", b"\xff\x00", 1, properties=Properties(will_delay_s=5)),
        away_since=1.25,
        me={"x": 1.5, "tags": ["a", None, True], "deep": {"y": -3}},
    ),
    SubscriptionRow("c", "air/#", 1, False, True, 7, 12.5, "NO2 > 40", "pes 1s", True, False, 3),
    SubscriptionRow("c", "air/#", 1, False, True, 7, 12.5, "NO2 > 40", engine="spark"),
    PublicationRow("air/1", b"\x00\xff", 2, "c", "id-1", 12.5),
    PublicationRow(
        "", b"", 0, "", "", 0.0, 1.0, math.inf, Properties(user=(("a", "1"), ("a", "2")))
    ),
    QueueRow(1, 2, True, (7, 8), 65535, True),
    QueueRow(1, 1, False, select=(Attribute(("air", "NO2")),)),
    LogRow("publications", "air", 1.5, "air/1", "id", "c", b"\x80", (("a", "b"),), (1, 2), 2),
    LogRow("metrics", "", 0.0),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_a_row_comes_back_as_it_was(row: msgspec.Struct) -> None:
    assert decoded(type(row), encoded(row)) == row


def test_a_row_without_the_newest_fields_is_understood() -> None:
    assert decoded(QueueRow, encoded([1, 2, True])) == QueueRow(1, 2, True)
    assert decoded(LogRow, encoded(["metrics", "", 0.0])) == LogRow("metrics", "", 0.0)
    old = ["c", "air/#", 1, False, True, 7, 12.5, "NO2 > 40", "pes 1s", True, False, 3]
    assert decoded(SubscriptionRow, encoded(old)).engine == "broker"


def test_a_row_from_a_newer_version_is_understood() -> None:
    row = msgspec.to_builtins(QueueRow(1, 2, True))
    assert decoded(QueueRow, encoded([*row, "a later field"])) == QueueRow(1, 2, True)


def test_a_row_of_something_else_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decoded(QueueRow, encoded(["not a number", 2, True]))


entries = st.tuples(st.integers(0, 2**22), st.integers(0, 2**QUEUE_ENTRY_BITS - 1))


@given(entries, entries)
def test_queue_keys_are_ordered_by_session_and_entry(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (queue_key(*one) < queue_key(*other)) == (one < other)
    assert queue_key(*one) < 2**63, "fits an integer of the disk"


@given(st.tuples(st.integers(0), st.integers(0, 0xFFFF)), st.integers(0), st.integers(0, 0xFFFF))
def test_received_keys_are_one_per_session_and_packet(
    one: tuple[int, int], session: int, packet_id: int
) -> None:
    same = one == (session, packet_id)
    assert (received_key(*one) == received_key(session, packet_id)) == same
