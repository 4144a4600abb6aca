"""No two publications that are under way share a packet identifier, whatever the offsets are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rove.bridge.session import SPAN, Position, cut, must_settle, packet_id_of
from rove.bridge.translation import KafkaRecord

gaps = st.lists(st.sampled_from([1, 1, 1, 2, 500, SPAN - 1, SPAN, 65_534, 65_535, 65_536, 10**9]))


def records(first: int, steps: list[int]) -> list[KafkaRecord]:
    found = [first]
    for step in steps:
        found.append(found[-1] + step)
    return [KafkaRecord(None, None, offset=offset) for offset in found]


@given(first=st.integers(0, 2**40), steps=gaps, batch_max=st.integers(1, 5))
def test_what_is_under_way_has_identifiers_of_its_own(
    first: int, steps: list[int], batch_max: int
) -> None:
    waiting, position = records(first, steps), Position(first, first)
    seen: list[int] = []
    while waiting:
        batch, waiting = cut(waiting, batch_max)
        assert batch
        if must_settle(position, batch):
            position = Position(position.next, position.next)
        # All that a process may have left in the broker when it is killed from here on.
        before = position.packet_ids()
        ours = [packet_id_of(record.offset) for record in batch]
        assert len(set(before + ours)) == len(before) + len(ours)
        assert all(1 <= packet_id <= 65_535 for packet_id in ours)
        position = Position(batch[-1].offset + 1, batch[0].offset)
        assert len(position.packet_ids()) <= SPAN
        seen += [record.offset for record in batch]
    assert seen == [record.offset for record in records(first, steps)]
