"""Counters: each has a text, begins at nothing, and is counted somewhere."""

from pathlib import Path

import rove.broker
from rove.broker.counters import BrokerCounters


def test_each_begins_at_zero_and_is_explained() -> None:
    counters = BrokerCounters()
    assert set(counters.as_dict()) == set(BrokerCounters.HELP) == set(BrokerCounters.__slots__)
    assert set(counters.as_dict().values()) == {0}
    assert all(BrokerCounters.HELP.values())


def test_what_is_counted_is_shown() -> None:
    counters = BrokerCounters()
    counters.wills_published += 2
    assert counters.as_dict()["wills_published"] == 2


def test_none_is_declared_and_never_counted() -> None:
    """`bytes_sent` is the shell's to count, as it sends, and `groups_lost` the store's, at a start;
    all others are the broker's."""
    assert rove.broker.__file__ is not None
    room = Path(rove.broker.__file__).parent
    code = "".join(path.read_text() for path in room.rglob("*.py") if path.name != "counters.py")
    uncounted = {name for name in BrokerCounters.HELP if f"{name} += " not in code}
    assert uncounted == {"bytes_sent", "groups_lost"}
