"""One link: what waits for it, how alive it is, what it measures."""

from __future__ import annotations

import pytest

from rove.mesh.limits import MeshLimits
from rove.mesh.links import ERROR_US_MIN, Link
from rove.mesh.messages import Hello, MeshError, Ping, Pong, encode

LIMITS = MeshLimits(link_window_bytes=1_000, link_queue_bytes_max=4_000)


def up(now_s: float = 0.0, limits: MeshLimits = LIMITS) -> Link:
    link = Link(1, now_s, limits, outgoing=True)
    link.peer, link.node = Hello(1, "1.0", "b2", 1, 2, now_s), 2
    link.start(5, now_s)
    return link


def test_a_link_without_hello_is_given_up() -> None:
    link = Link(1, 0.0, LIMITS, outgoing=True)
    assert link.next_tick_s() == 5.0
    assert link.tick(4.9) is None
    assert link.tick(5.0) == "no HELLO came within 5 s"


def test_pings_are_sent_every_second() -> None:
    link = up()
    for second in range(1, 4):
        link.received(b"x", second)
        link.taken(link.sent_bytes, second)
        assert link.tick(second) is None
    assert link.out.count(encode(Ping(2.0, 2))) == 1
    assert len(link.out) == 4


def test_a_silent_link_is_closed() -> None:
    link = up()
    assert link.tick(4.9) is None
    assert link.tick(5.0) == "nothing came for 5 s"


def test_a_link_whose_other_side_receives_nothing_is_closed() -> None:
    link = up()
    for second in range(1, 5):
        link.received(b"x", second)
        assert link.tick(second) is None
    link.received(b"x", 5.0)
    assert link.tick(5.0) == "the other side received nothing for 5 s"


def test_a_clock_that_was_set_does_not_close_a_link() -> None:
    link = up()
    link.shift(3_600.0)
    assert link.tick(3_601.0) is None


def test_frames_wait_beyond_the_window_and_control_messages_overtake_them() -> None:
    link = up()
    link.taken(link.sent_bytes, 0.0)
    link.out.clear()
    for number in range(4):
        link.write_frame(b"%d" % number * 500)
    link.write(b"control")
    assert b"".join(link.out) == b"0" * 500 + b"1" * 500 + b"control"
    assert link.queued_bytes == 1_000
    link.taken(link.sent_bytes - 7, 1.0)
    assert b"".join(link.out).endswith(b"2" * 500 + b"3" * 500)
    assert link.queued_bytes == 0


def test_frames_for_which_there_is_no_room_are_dropped_and_counted() -> None:
    link = up()
    for _ in range(20):
        link.write_frame(b"x" * 500)
    assert link.queued_bytes == 4_000
    assert link.is_congested
    assert link.frames_dropped == 20 - 8 - 2


def test_a_neighbour_cannot_have_received_more_than_was_sent() -> None:
    link = up()
    with pytest.raises(MeshError, match="it took 1000000 bytes, and only"):
        link.taken(1_000_000, 0.0)


def test_too_many_messages_are_refused_after_a_burst() -> None:
    link = up(limits=MeshLimits(control_per_s=10, control_burst=50))
    for _ in range(50):
        link.spend(0.0)
    with pytest.raises(MeshError, match="more than 10 messages/s besides frames and records"):
        link.spend(0.0)
    link = up(limits=MeshLimits(control_per_s=10, control_burst=50))
    for number in range(1_000):
        link.spend(number / 10)


def test_records_that_are_too_many_are_asked_for_later() -> None:
    link = up(limits=MeshLimits(records_per_s=10, records_burst=50))
    assert [link.may_take_record(0.0) for _ in range(51)] == [True] * 50 + [False]
    assert not link.must_ask(0.01)
    assert link.must_ask(1.0)
    assert not link.must_ask(1.0)


def test_much_data_is_acknowledged_at_once() -> None:
    link = up()
    link.out.clear()
    link.received(b"x" * 250, 0.0)
    assert len(link.out) == 1


def pong(link: Link, now_s: float, delay_s: float, offset_s: float) -> None:
    link.pong(Pong(now_s - delay_s, now_s - delay_s / 2 + offset_s, 0), now_s)


def test_a_measured_delay_is_announced_again_only_if_it_is_much_smaller() -> None:
    link = up(limits=MeshLimits())
    assert not link.measure(0.0)
    pong(link, 1.0, 0.010, 3.0)
    assert link.measure(1.0)
    first = link.published
    assert first is not None
    assert (first.delay_us, first.offset_us) == (5_000, 3_000_000)
    assert first.error_us == 2 * 5_000 + ERROR_US_MIN
    pong(link, 2.0, 0.006, 3.0005)
    assert not link.measure(2.0)
    assert link.published is first
    for second in range(3, 15):  # the link is busy: the bound of the clock is wider, no way changes
        pong(link, second, 0.050, 3.0)
    assert link.measure(15.0)
    assert link.published is not None
    assert link.published.delay_us == 5_000
    assert link.published.error_us > first.error_us
    pong(link, 16.0, 0.002, 3.0)
    assert link.measure(16.0)
    assert link.published.delay_us == 1_000


def test_a_clock_that_has_drifted_is_announced_with_the_same_delay() -> None:
    link = up(limits=MeshLimits())
    pong(link, 1.0, 0.010, 3.0)
    link.measure(1.0)
    for second in range(2, 20):
        pong(link, second, 0.011, 3.030)
    assert link.measure(20.0)
    assert link.published is not None
    assert link.published.delay_us == 5_000
    assert link.published.offset_us == pytest.approx(3_030_000)
