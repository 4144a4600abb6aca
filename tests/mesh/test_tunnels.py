"""Tunnels: two ends that send each other messages, of which a test may lose or delay any."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rove.mesh.events import Closed, MeshEvent, Opened, Received
from rove.mesh.graph import Way
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import (
    PAYLOAD_BYTES_MAX,
    Frame,
    Hello,
    Message,
    MessageReader,
    Open,
    encode,
    prefix_places,
)
from rove.mesh.tunnels import Tunnels

ONE, OTHER, THIRD = 1, 2, 3
DIRECT = (5_000,)


def way(own: int, target: int, *, over: int | None = None, number: int = 1) -> Way:
    nodes = (own, target) if over is None else (own, over, target)
    return Way(nodes, (number,) * (len(nodes) - 1), 5_000, 0, 0)


class End:
    """One end, with what it has sent and what it has reported."""

    def __init__(self, own: int, limits: MeshLimits | None = None) -> None:
        self.own = own
        self.is_congested = False
        self.out: list[tuple[int, Message]] = []
        """Neighbour and message."""
        self.tunnels = Tunnels(
            own, own * 1_000, limits or MeshLimits(), self._sent, self._sent, self._congested
        )
        self.whole: Callable[[Way], bool] = lambda way: True

    def _congested(self, neighbour: int) -> bool:
        return self.is_congested

    def _sent(self, neighbour: int, data: bytes) -> None:
        reader = MessageReader()
        list(reader.feed(encode(Hello(1, "1", "b", 1, 1, 0.0))))
        self.out += [(neighbour, message) for message in reader.feed(data)]

    def ways(self, now_s: float, **ways: Way) -> None:
        """The ways to brokers, by name."""
        by_node = {way.nodes[-1]: (name, way) for name, way in ways.items()}
        self.tunnels.set_ways(by_node, self.whole, now_s)

    def take(self) -> list[Message]:
        """What it sends now."""
        self.tunnels.flush()
        out, self.out = self.out, []
        return [message for _, message in out]

    def get(self, message: Message, now_s: float) -> None:
        """A message arrives."""
        if isinstance(message, Open):
            self.tunnels.offered(message, now_s)
        elif isinstance(message, Frame):
            places = prefix_places(message)
            for index, head in enumerate(message.heads):
                if head[0] == self.own:
                    prefix = message.data[places[index] : places[index + 1]]
                    data = prefix + message.data[places[-1] :]
                    self.tunnels.received(message.origin, head, data, now_s)

    def events(self) -> list[MeshEvent]:
        events, self.tunnels.events = self.tunnels.events, []
        return events

    @property
    def number(self) -> int:
        """Of the tunnel to the other end."""
        return next(iter(self.tunnels.by_node.values())).number


class Pair:
    """Two ends and the time."""

    def __init__(self, limits: MeshLimits | None = None) -> None:
        self.now_s = 100.0
        self.one, self.other = End(ONE, limits), End(OTHER, limits)
        self.loses: Callable[[Message], bool] = lambda message: False
        self.messages = 0
        self.one.ways(self.now_s, other=way(ONE, OTHER))
        self.other.ways(self.now_s, one=way(OTHER, ONE))

    def exchange(self) -> None:
        """Deliver until nothing is under way."""
        while found := [(self.one, self.other.take()), (self.other, self.one.take())]:
            if not any(messages for _, messages in found):
                return
            for end, messages in found:
                for message in messages:
                    self.messages += 1
                    if not self.loses(message):
                        end.get(message, self.now_s)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        self.exchange()
        while self.now_s < end_s:
            due_s = min(end.tunnels.next_tick_s() for end in (self.one, self.other))
            self.now_s = max(min(due_s, end_s), self.now_s + 0.001)
            for end in (self.one, self.other):
                end.tunnels.tick(self.now_s)
            self.exchange()

    def opened(self) -> Pair:
        self.exchange()
        for end in (self.one, self.other):
            assert [type(event) for event in end.events()] == [Opened]
        self.now_s += 1.0
        for end in (self.one, self.other):
            end.tunnels.tick(self.now_s)
        return self


def received(events: list[MeshEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Received))


def kinds(events: list[MeshEvent]) -> list[type]:
    return [type(event) for event in events]


def is_data(message: Message) -> bool:
    return isinstance(message, Frame) and len(message.data) > message.start


def test_two_ends_open_in_one_round_trip() -> None:
    pair = Pair().opened()
    assert pair.messages <= 6


def test_bytes_arrive_in_order_and_small_parts_share_a_frame() -> None:
    pair = Pair().opened()
    for number in range(10):
        pair.one.tunnels.send({pair.one.number: b"p"}, b"%d" % number)
    frames = pair.one.take()
    assert len(frames) == 1
    pair.other.get(frames[0], pair.now_s)
    assert received(pair.other.events()) == b"p0p1p2p3p4p5p6p7p8p9"


def test_a_lost_frame_resets_both_ends_and_nothing_after_it_is_delivered() -> None:
    pair = Pair().opened()
    old = pair.one.number
    for number in range(3):
        pair.one.tunnels.send({old: b""}, b"%d" % number)
        pair.one.tunnels.flush()
    first, _, third = pair.one.take()
    pair.other.get(first, pair.now_s)
    pair.other.get(third, pair.now_s)
    pair.exchange()
    events = pair.other.events()
    assert kinds(events) == [Received, Closed, Opened]
    assert received(events) == b"0"
    closed = pair.one.events()[0]
    assert closed == Closed("other", old, "other has reset it: a part of the stream was lost")
    pair.one.tunnels.send({old: b""}, b"to the old one")
    pair.one.tunnels.send({pair.one.number: b""}, b"to the new one")
    pair.exchange()
    assert received(pair.other.events()) == b"to the new one"


def test_a_frame_of_an_older_incarnation_and_a_repeated_one_are_ignored() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"late")
    (late,) = pair.one.take()
    pair.other.tunnels.reset(pair.other.tunnels.by_node[ONE], 1)
    pair.exchange()
    pair.other.events()
    pair.other.get(late, pair.now_s)
    pair.one.tunnels.send({pair.one.number: b""}, b"new")
    (new,) = pair.one.take()
    for _ in range(3):
        pair.other.get(new, pair.now_s)
    assert received(pair.other.events()) == b"new"
    assert pair.other.number


def test_both_ends_may_reset_at_once() -> None:
    pair = Pair().opened()
    for end, node in ((pair.one, OTHER), (pair.other, ONE)):
        end.tunnels.reset(end.tunnels.by_node[node], 1)
    pair.exchange()
    assert pair.one.number
    assert pair.other.number
    pair.one.tunnels.send({pair.one.number: b""}, b"hello")
    pair.exchange()
    assert received(pair.other.events()) == b"hello"


def test_openings_that_are_lost_are_tried_again_less_and_less_often() -> None:
    pair = Pair()
    pair.loses = lambda message: True
    pair.run(60.0)
    assert 50 <= pair.messages <= 100
    pair.loses = lambda message: False
    pair.run(2.1)
    assert pair.one.number
    assert pair.other.number


def test_data_that_is_lost_at_the_end_is_asked_for_and_resets_the_tunnel() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"lost")
    pair.one.take()
    pair.run(0.9)
    assert pair.one.events() == []
    pair.run(0.3)
    assert kinds(pair.one.events()) == [Closed, Opened]


def test_an_acknowledgement_that_is_lost_is_asked_for() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"x")
    pair.exchange()
    pair.loses = lambda message: isinstance(message, Frame)
    pair.run(0.5)
    pair.loses = lambda message: False
    pair.run(1.0)
    assert pair.one.tunnels.by_node[OTHER].acked == 1
    assert pair.one.events() == []


def test_data_that_waits_for_a_slow_link_is_asked_for_less_and_less_often() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"slow")
    pair.one.tunnels.flush()
    pair.messages = 0
    pair.loses = lambda message: True
    pair.run(59.0)
    assert pair.messages <= 12
    assert pair.one.events() == []
    pair.run(2.0)
    (closed,) = pair.one.events()
    assert isinstance(closed, Closed)
    assert closed.reason == "nothing was acknowledged for too long"


def test_resets_are_no_more_frequent_than_round_trips() -> None:
    pair = Pair().opened()
    drops = iter(range(10**9))
    pair.loses = lambda message: is_data(message) and next(drops) % 3 == 1
    resets = 0
    for _ in range(1_000):
        if pair.one.number:
            for _ in range(4):
                pair.one.tunnels.send({pair.one.number: b""}, b"x")
                pair.one.tunnels.flush()
        pair.run(0.001)
        resets += sum(isinstance(event, Closed) for event in pair.one.events())
    round_trip_s = pair.one.tunnels.by_node[OTHER].round_trip_s
    assert 10 < resets <= 1.0 / round_trip_s


# -- ways ------------------------------------------------------------------------------------------


def test_a_tunnel_with_nothing_under_way_changes_its_way_without_a_reset() -> None:
    pair = Pair().opened()
    pair.one.whole = lambda way: False
    pair.one.ways(pair.now_s, other=way(ONE, OTHER, over=THIRD))
    pair.one.tunnels.send({pair.one.number: b""}, b"x")
    pair.one.tunnels.flush()
    assert [neighbour for neighbour, _ in pair.one.out] == [THIRD]
    pair.exchange()
    assert kinds(pair.other.events()) == [Received]
    assert pair.one.events() == []


def test_a_better_way_is_taken_when_everything_has_arrived() -> None:
    pair = Pair().opened()
    number = pair.one.number
    pair.one.tunnels.send({number: b""}, b"old ")
    under_way = pair.one.take()
    pair.one.ways(pair.now_s, other=way(ONE, OTHER, over=THIRD))
    pair.one.tunnels.send({number: b""}, b"new")
    assert pair.one.take() == []
    pair.other.get(under_way[0], pair.now_s)
    pair.now_s += 0.03
    pair.other.tunnels.tick(pair.now_s)
    pair.one.get(pair.other.take()[0], pair.now_s)
    pair.one.tunnels.flush()
    assert {neighbour for neighbour, _ in pair.one.out} == {THIRD}
    pair.exchange()
    assert received(pair.other.events()) == b"old new"
    assert pair.one.events() == []


def test_a_better_way_that_takes_too_long_and_a_broken_one_reset_the_tunnel() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"lost")
    pair.one.take()
    pair.one.ways(pair.now_s, other=way(ONE, OTHER, over=THIRD))
    pair.run(0.2)
    assert kinds(pair.one.events()) == [Closed, Opened]
    pair.one.tunnels.send({pair.one.number: b""}, b"lost")
    pair.one.take()
    pair.one.whole = lambda way: False
    pair.one.ways(pair.now_s, other=way(ONE, OTHER))
    assert kinds(pair.one.events()) == [Closed]
    pair.run(0.2)
    assert kinds(pair.one.events()) == [Opened]
    assert pair.one.tunnels.by_node[OTHER].way == way(ONE, OTHER)


def test_a_way_that_comes_back_before_the_change_is_kept() -> None:
    pair = Pair().opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"a")
    under_way = pair.one.take()
    pair.one.ways(pair.now_s, other=way(ONE, OTHER, over=THIRD))
    pair.one.tunnels.send({pair.one.number: b""}, b"b")
    pair.one.ways(pair.now_s, other=way(ONE, OTHER))
    for message in under_way + pair.one.take():
        pair.other.get(message, pair.now_s)
    assert received(pair.other.events()) == b"ab"


def test_a_broker_without_a_way_loses_its_tunnel() -> None:
    pair = Pair().opened()
    pair.one.ways(pair.now_s)
    assert pair.one.events() == [Closed("other", 1, "there is no way to other")]
    pair.one.ways(pair.now_s, other=way(ONE, OTHER))
    pair.exchange()
    assert kinds(pair.one.events()) == [Opened]
    assert kinds(pair.other.events()) == [Closed, Opened]


# -- flow ------------------------------------------------------------------------------------------


def test_at_most_a_window_is_under_way_and_the_rest_follows() -> None:
    limits = MeshLimits(window_bytes=1_000)
    pair = Pair(limits).opened()
    body = bytes(range(250)) * 20
    for begin in range(0, len(body), 250):
        pair.one.tunnels.send({pair.one.number: b""}, body[begin : begin + 250])
        pair.one.tunnels.flush()
    tunnel = pair.one.tunnels.by_node[OTHER]
    assert tunnel.sent == 1_000
    assert not pair.one.tunnels.is_writable(tunnel.number)
    pair.run(1.0)
    assert received(pair.other.events()) == body
    assert pair.one.tunnels.is_writable(tunnel.number)


def test_a_tunnel_for_which_too_much_waits_is_reset() -> None:
    pair = Pair(MeshLimits(window_bytes=1_000, queue_bytes_max=5_000)).opened()
    for _ in range(10):
        pair.one.tunnels.send({pair.one.number: b""}, b"x" * 1_000)
        pair.one.tunnels.flush()
    assert "too much waited" in str(pair.one.events()[0])


def test_a_congested_link_keeps_frames_back_until_it_has_room() -> None:
    pair = Pair().opened()
    pair.one.is_congested = True
    pair.one.tunnels.send({pair.one.number: b""}, b"x")
    assert pair.one.take() == []
    assert not pair.one.tunnels.is_writable(pair.one.number)
    pair.one.is_congested = False
    pair.one.tunnels.drain()
    pair.exchange()
    assert received(pair.other.events()) == b"x"


def test_a_large_part_is_cut() -> None:
    pair = Pair().opened()
    body = b"0123456789" * 30_000
    pair.one.tunnels.send({pair.one.number: b"prefix"}, body)
    frames = pair.one.take()
    assert all(isinstance(frame, Frame) and len(frame.data) <= 2**16 + 100 for frame in frames)
    for frame in frames:
        pair.other.get(frame, pair.now_s)
    assert received(pair.other.events()) == b"prefix" + body


def test_little_data_is_acknowledged_after_a_while_and_much_at_once() -> None:
    pair = Pair(MeshLimits(window_bytes=4_000)).opened()
    pair.one.tunnels.send({pair.one.number: b""}, b"x")
    pair.exchange()
    tunnel = pair.one.tunnels.by_node[OTHER]
    assert tunnel.acked == 0
    pair.run(0.03)
    assert tunnel.acked == 1
    pair.one.tunnels.send({pair.one.number: b""}, b"x" * 1_000)
    pair.exchange()
    assert tunnel.acked == 1_001


# -- several targets -------------------------------------------------------------------------------


def hub(count: int, limits: MeshLimits | None = None) -> tuple[End, dict[int, End]]:
    """One end with tunnels to so many others, the odd ones beyond one neighbour."""
    one = End(ONE, limits)
    targets = {node: End(node, limits) for node in range(10, 10 + count)}
    one.ways(
        0.0, **{f"b{node}": way(ONE, node, over=1_000 + node % 2, number=node) for node in targets}
    )
    for node, end in targets.items():
        end.ways(0.0, one=way(node, ONE))
    for _ in range(4):
        for message in one.take():
            assert isinstance(message, Open)
            targets[message.target].get(message, 0.0)
        for end in targets.values():
            for message in end.take():
                one.get(message, 0.0)
    one.events()
    return one, targets


@pytest.mark.parametrize("size", [10, PAYLOAD_BYTES_MAX * 2 + 10])
def test_one_part_to_many_targets_is_one_copy_for_each_neighbour(size: int) -> None:
    one, targets = hub(10)
    tunnels = {one.tunnels.by_node[node].number: f"{node}:".encode() for node in targets}
    body = b"y" * size
    one.tunnels.send(tunnels, body)
    one.tunnels.flush()
    frames = [message for _, message in one.out if isinstance(message, Frame)]
    assert len(frames) == 2 * (1 + size // PAYLOAD_BYTES_MAX)
    for frame in frames:
        for end in targets.values():
            end.get(frame, 0.0)
    for node, end in targets.items():
        assert received(end.events()) == f"{node}:".encode() + body


def test_more_targets_than_a_frame_has_and_long_prefixes_arrive_too() -> None:
    one, targets = hub(600)
    tunnels = {one.tunnels.by_node[node].number: b"p" * (node % 200) for node in targets}
    one.tunnels.send(tunnels, b"body")
    frames = one.take()
    for frame in frames:
        assert isinstance(frame, Frame)
        for head in frame.heads:
            # Each end takes only its own; asking those that are named keeps the test short.
            places = prefix_places(frame)
            index = frame.heads.index(head)
            data = frame.data[places[index] : places[index + 1]] + frame.data[places[-1] :]
            targets[head[0]].tunnels.received(frame.origin, head, data, 0.0)
    for node, end in targets.items():
        assert received(end.events()) == b"p" * (node % 200) + b"body"


def test_a_target_that_takes_nothing_does_not_keep_the_others_waiting() -> None:
    one, targets = hub(3, MeshLimits(window_bytes=1_000))
    slow = one.tunnels.by_node[10]
    one.tunnels.send({slow.number: b""}, b"z" * 2_000)
    one.take()
    tunnels = {one.tunnels.by_node[node].number: b"" for node in targets}
    one.tunnels.send(tunnels, b"news")
    for frame in one.take():
        for node in (11, 12):
            targets[node].get(frame, 0.0)
    assert received(targets[11].events()) == received(targets[12].events()) == b"news"
    assert slow.queued_bytes == 4
