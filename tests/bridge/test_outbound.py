"""What is read of a lake: each publication once, in order, in parts that say how far they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.bridge.outbound import chunks
from rove.broker.storage.records import LogRow
from rove.lake.log import NOTHING, LakeLog
from rove.serve.disk.lake import LakeAppender

NOON_S = 1_794_830_400.0


def row(position: int, channel: str, *earlier: str) -> LogRow:
    at_s = NOON_S + 86_400 * (position % 2)  # two days, so that files lie beside each other
    made = LogRow("publications", channel, at_s, "t", str(position), "c", b"x", (("a", "b"),))
    made.earlier = earlier
    return made


@pytest.fixture
def log(tmp_path: Path) -> LakeLog:
    lake = LakeAppender(tmp_path / "lake", rows_per_file=7)
    rows = [(number, row(number, "a" if number % 3 else "b")) for number in range(1, 31)]
    # The last three are kept by both channels.
    rows += [(31, row(31, "a")), (32, row(32, "b", "a")), (33, row(33, "b", "a"))]
    lake.take(rows)
    return LakeLog(tmp_path / "lake")


@pytest.mark.parametrize("rows_max", [1, 4, 100])
def test_each_once_and_in_order(log: LakeLog, rows_max: int) -> None:
    seen, ends = [], []
    for end, rows in chunks(log, NOTHING, 33, (), rows_max):
        assert len(rows) <= rows_max
        assert all(one.position <= end for one in rows)
        seen += [one.position for one in rows]
        ends.append(end)
    assert seen == list(range(1, 32))
    assert ends == sorted(ends)
    assert ends[-1] == 33
    assert rows == []


def test_a_stretch_and_a_channel(log: LakeLog) -> None:
    positions = [one.position for _, rows in chunks(log, 10, 20, ("b",)) for one in rows]
    assert positions == [12, 15, 18]
    both = [one.position for _, rows in chunks(log, 30, 33, ("b",)) for one in rows]
    assert both == [32, 33]


def test_a_row_is_whole(log: LakeLog) -> None:
    [(_, [one])] = [part for part in chunks(log, 0, 1, ()) if part[1]]
    assert (one.position, one.topic, one.id, one.client_id) == (1, "t", "1", "c")
    assert (one.payload, one.user) == (b"x", (("a", "b"),))
    assert one.at_us == round((NOON_S + 86_400) * 1_000_000)
