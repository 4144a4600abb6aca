"""One broker of the network: bytes of its links and the time in; bytes, events and a deadline out.

The shell calls `link_opened`, `received` and `link_closed` as things happen, `tick` at
`next_tick_s`, and `take` after each of them: that returns what to send, which links to close, and
what happened. Nothing here has sockets, files or a clock. Between every two brokers that can reach
each other there is a tunnel (`Opened` ... `Closed`), and `send` writes to any number of them.

    node.link_opened(1, now_s, outgoing=True)
    node.received(1, data, now_s)
    node.send({tunnel: prefix, other_tunnel: other_prefix}, body)
    output = node.take()

`now_s` is the broker's clock, because its offsets to the clocks of others are measured. It may be
set: if it jumps by seconds between two calls, all deadlines move with it.

A small frame costs about 2 µs where it is sent, 1.5 µs where it is passed on and 1.5 µs where it
arrives, and one that is alone in its turn twice as much. A change of the network costs every broker
one tree of shortest ways: 0.1 ms among 20 brokers.

What a hostile neighbour can do: it has shown a secret before, and is a broker like any other. It
can stop what passes it, announce brokers and links that do not exist, and draw ways to itself by
claiming short delays. It cannot make a broker raise, use more memory than `MeshLimits` says, take
the name of a broker that can be reached, or write into streams whose ways do not lead past it. A
record forged in the name of a live broker is answered by that broker with a newer one. Frames are
passed on only if they came along the link that the tree of their origin leads through.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import msgspec

from rove.mesh.events import LinkClosed, MeshEvent, NeighbourJoined, NeighbourLeft, NodeOutput
from rove.mesh.graph import NUMBER_STEP_MAX, Graph, Record, Way
from rove.mesh.limits import MeshLimits
from rove.mesh.links import Link
from rove.mesh.messages import (
    NUMBER_MAX,
    PROTOCOL,
    Digest,
    Frame,
    Hello,
    MeshError,
    Message,
    Open,
    Ping,
    Pong,
    Refuse,
    Taken,
    Welcome,
    check_name,
    encode,
    encode_open,
    frame_onward,
    frame_split,
    prefix_places,
)
from rove.mesh.tunnels import Tunnels
from rove.mesh.view import MeshView, mesh_view

DUPLICATE = "there is a link to this broker already"
BACK_S = 0.1
"""By how much the time may go back before all deadlines follow it."""


class MeshNode:
    """All decisions of one broker about its network."""

    def __init__(
        self,
        name: str,
        epoch: int,
        instance: bytes,
        *,
        version: str,
        limits: MeshLimits | None = None,
    ) -> None:
        """`instance` is random, secret and new at each start; `epoch` grows with each start.

        Brokers of another major `version` are refused. Raises `MeshError` for a malformed name.
        """
        check_name(name)
        self.name, self.epoch, self.version = name, epoch, version
        self.limits = limits = limits or MeshLimits()
        self.node = _number(instance, b"node")
        self.links: dict[int, Link] = {}
        own = Record(self.node, name, epoch, 0)
        self.graph = Graph(own, brokers_max=limits.brokers_max, keep_s=limits.record_keep_s)
        seed = _number(instance, b"tunnels")
        send, send_open = self._transmit, self._transmit_open
        self.tunnels = Tunnels(self.node, seed, limits, send, send_open, self._is_congested)
        self.holders: dict[str, int] = {}
        """By name: the node that has it. One that can be reached keeps it."""
        self._neighbours: dict[int, Link] = {}
        """By node, those whose link is up."""
        self._closed: list[LinkClosed] = []
        self._last_bytes: dict[int, list[bytes]] = {}
        """For links that are closed."""
        self._edge_number = 0
        self._is_dirty = False
        """The graph has changed, and the tunnels do not know it."""
        self._settled_at_s = -math.inf
        """Until then the tunnels wait for further changes."""
        self._must_publish = False
        self._above = 0
        """A number that somebody has given to a record of ours."""
        self._now_s = self._published_at_s = self._expire_at_s = -math.inf

    # -- links ---------------------------------------------------------------------------------

    def link_opened(
        self, number: int, now_s: float, *, outgoing: bool, expected: str | None = None
    ) -> None:
        """There is a connection, and the other side has been authenticated.

        If that proved its name, it is `expected`: the broker may not introduce itself otherwise.
        """
        self._advance(now_s)
        link = Link(number, now_s, self.limits, outgoing=outgoing, expected=expected)
        self.links[number] = link
        link.write(encode(self._hello_of_ours()))
        if len(self.links) > self.limits.links_max:
            self._refuse(link, f"{self.name} has {self.limits.links_max} links already")

    def link_closed(self, number: int, now_s: float, reason: str = "the link was closed") -> None:
        """The connection is gone."""
        self._advance(now_s)
        if (link := self.links.get(number)) is not None:
            self._drop(link, reason)
            del self._last_bytes[number]
            self._refresh()

    def close_link(self, number: int, now_s: float, reason: str) -> None:
        """Close it because somebody wants it; both sides show the reason."""
        self._advance(now_s)
        if (link := self.links.get(number)) is not None:
            self._refuse(link, reason)
            self._refresh()

    def _refuse(self, link: Link, reason: str, *, is_quiet: bool = False) -> None:
        """Say why, and close."""
        link.write(encode(Refuse("" if is_quiet else reason)))
        self._close(link, reason, is_quiet=is_quiet)

    def _close(self, link: Link, reason: str, *, is_quiet: bool = False) -> None:
        self._closed.append(LinkClosed(link.number, link.name, reason, is_quiet))
        self._drop(link, reason)

    def _drop(self, link: Link, reason: str) -> None:
        """Forget a link."""
        del self.links[link.number]
        self._last_bytes[link.number] = link.out
        if self._neighbours.get(link.node) is link:
            del self._neighbours[link.node]
        if link.state == "joined":
            self._must_publish = True
            self.tunnels.events.append(NeighbourLeft(link.name, link.number, reason))

    # -- receiving -----------------------------------------------------------------------------

    def received(self, number: int, data: bytes, now_s: float) -> None:
        """Bytes came. If they are wrong, `take` says that the link has to be closed."""
        self._advance(now_s)
        link = self.links.get(number)
        if link is None:
            return
        link.received(data, now_s)
        try:
            for message in link.reader.feed(data):
                if type(message) is Frame:
                    self._frame(link, message)
                else:
                    self._message(link, message)
                if number not in self.links:
                    break
        except MeshError as error:
            self._refuse(link, str(error))
        self._refresh()

    def _message(self, link: Link, message: Message) -> None:
        """Anything but a frame."""
        if type(message) is Taken:
            link.taken(message.taken, self._now_s)
            self.tunnels.drain()
            return
        if type(message) is Refuse:
            who = link.name or "the other side"
            reason = f"{who} closed it: {message.reason}" if message.reason else DUPLICATE
            self._close(link, reason, is_quiet=not message.reason)
            return
        if type(message) is not Open and type(message) is not Record:
            link.spend(self._now_s)
        if link.is_up:
            self._message_of_neighbour(link, message)
        elif type(message) is Hello and link.state == "hello":
            self._hello(link, message)
        elif type(message) is Welcome and link.state == "welcome" and link.node < self.node:
            if (older := self._neighbours.get(link.node)) is not None:
                self._refuse(older, DUPLICATE, is_quiet=True)
            self._start(link, message.number)
        else:
            raise MeshError(f"{type(message).__name__.upper()} before the link was agreed upon")

    def _message_of_neighbour(self, link: Link, message: Message) -> None:
        now_s = self._now_s
        match message:
            case Ping():
                link.ping(message, now_s)
            case Pong():
                link.pong(message, now_s)
                self.tunnels.drain()
                if link.state == "measuring" and link.measure(now_s):
                    self._joined(link)
            case Record():
                self._record(link, message)
            case Digest(numbers):
                self._digest(link, numbers)
            case Open():
                self._open(link, message)
            case _:
                raise MeshError(f"{type(message).__name__.upper()} on a link that is in use")

    # -- the beginning of a link ---------------------------------------------------------------

    def _hello_of_ours(self) -> Hello:
        return Hello(PROTOCOL, self.version, self.name, self.epoch, self.node, self._now_s)

    def _hello(self, link: Link, hello: Hello) -> None:
        check_name(hello.name)
        link.peer, link.node = hello, hello.node
        reason = link.refusal(self._hello_of_ours())
        if reason is None and (hello.name == self.name or self._is_taken(hello)):
            reason = f"another broker of this network is called {hello.name}; choose another name"
        if reason is not None:
            self._refuse(link, reason)
            return
        link.state = "welcome"
        if self.node > hello.node:
            return  # the other side decides
        if (older := self._neighbours.get(hello.node)) is not None:
            if older.was_heard_lately(self._now_s):
                self._refuse(link, DUPLICATE, is_quiet=True)
                return
            self._refuse(older, DUPLICATE, is_quiet=True)
        self._edge_number += 1
        link.write(encode(Welcome(self._edge_number)))
        self._start(link, self._edge_number)

    def _is_taken(self, hello: Hello) -> bool:
        """Whether a live other broker has the name."""
        self._refresh(must_settle=True)
        for node, link in list(self._neighbours.items()):
            if link.name == hello.name and node != hello.node:
                if link.was_heard_lately(self._now_s):
                    return True
                # It was restarted, and its old link does not know that yet.
                self._close(link, f"{hello.name} has come back over another link")
                self._refresh(must_settle=True)
        return self.holders.get(hello.name, hello.node) != hello.node

    def _start(self, link: Link, edge_number: int) -> None:
        self._neighbours[link.node] = link
        link.start(edge_number, self._now_s)

    def _joined(self, link: Link) -> None:
        """The delay and the clock of a new neighbour are measured."""
        link.state = "joined"
        self._must_publish = True
        self.tunnels.events.append(NeighbourJoined(link.name, link.number))
        self._ask(link)

    def _ask(self, link: Link) -> None:
        """Ask for records that this broker does not have."""
        numbers = {node: record.number for node, record in self.graph.records.items()}
        link.write(encode(Digest(numbers)))

    # -- records -------------------------------------------------------------------------------

    def _digest(self, link: Link, numbers: dict[int, int]) -> None:
        """Send what the neighbour does not have yet."""
        self._outdo(numbers.get(self.node, 0))
        for record in self.graph.records.values():
            if record.number > numbers.get(record.node, -1):
                link.write(encode(record))

    def _record(self, link: Link, record: Record) -> None:
        if not link.may_take_record(self._now_s):
            return
        if record.node == self.node:
            self._outdo(record.number)
        elif self.graph.add(record, self._now_s):
            self._is_dirty = True
            self._flood(record, link)

    def _outdo(self, number: int) -> None:
        """Somebody has a record of ours that is not ours: it needs a newer one."""
        if 0 < number - self.graph.own.number <= NUMBER_STEP_MAX and number < NUMBER_MAX:
            self._above = max(self._above, number)

    def _flood(self, record: Record, source: Link | None) -> None:
        data = encode(record)
        for link in self._neighbours.values():
            if link is not source:
                link.write(data)

    def _refresh(self, *, must_settle: bool = False) -> None:
        """Announce what has changed here, and let the tunnels follow the graph."""
        if self._must_publish:
            self._must_publish = False
            self._publish()
        if self._is_dirty and (self._now_s >= self._settled_at_s or must_settle):
            self._is_dirty = False
            self._settled_at_s = self._now_s + self.limits.settle_s
            graph = self.graph
            ways = graph.ways()
            self._choose_holders(ways)
            wanted = {node: (name, ways[node]) for name, node in self.holders.items()}
            self.tunnels.set_ways(wanted, graph.is_whole, self._now_s)

    def _publish(self) -> None:
        joined = [link for link in self._neighbours.values() if link.state == "joined"]
        edges = [link.published for link in joined if link.published is not None]
        self._flood(self.graph.publish(edges, self._above), None)
        self._above = 0
        self._published_at_s = self._now_s
        self._is_dirty = True

    def _choose_holders(self, ways: dict[int, Way]) -> None:
        """Who has each name: of several, the one that had it; of new ones, the last started."""
        records = self.graph.records
        old = self.holders
        self.holders = {}
        for node in sorted(ways, key=lambda node: (records[node].epoch, node)):
            name = records[node].name
            if name != self.name:
                kept = old.get(name)
                self.holders[name] = kept if kept in ways and kept is not None else node

    # -- frames --------------------------------------------------------------------------------

    def _frame(self, link: Link, frame: Frame) -> None:
        if not link.is_up:
            raise MeshError("FRAME before the link was agreed upon")
        link.frames_received += 1
        heads = frame.heads
        if len(heads) > 1:
            self._frame_to_many(link, frame)
        elif heads[0][0] == self.node:
            data = frame.data[frame.start :]
            self.tunnels.received(frame.origin, heads[0], data, self._now_s)
        elif (neighbour := self._onward(link, frame, heads[0][0])) is not None:
            neighbour.write_frame(frame_onward(frame))

    def _is_on_way(self, link: Link, frame: Frame | Open) -> bool:
        """Whether the tree of its origin leads through the link along which it came."""
        if self.graph.route(frame.origin).parent == link.node and frame.hops > 1:
            return True
        link.frames_refused += 1
        return False

    def _onward(self, link: Link, frame: Frame | Open, target: int) -> Link | None:
        """The link to which a frame goes next, if the tree of its origin leads there from here."""
        if not self._is_on_way(link, frame):
            return None
        return self._neighbours.get(self.graph.route(frame.origin).onward.get(target, -1))

    def _frame_to_many(self, link: Link, frame: Frame) -> None:
        """Deliver what is for this broker; pass on one copy to each neighbour on the way."""
        groups: dict[int, list[int]] = {}
        places: list[int] = []
        onward = self.graph.route(frame.origin).onward
        for index, head in enumerate(frame.heads):
            if head[0] == self.node:
                places = places or prefix_places(frame)
                data = frame.data[places[index] : places[index + 1]] + frame.data[places[-1] :]
                self.tunnels.received(frame.origin, head, data, self._now_s)
            elif (step := onward.get(head[0])) is not None:
                groups.setdefault(step, []).append(index)
        for indexes in groups.values():
            neighbour = self._onward(link, frame, frame.heads[indexes[0]][0])
            if neighbour is not None:
                is_all = len(indexes) == len(frame.heads)
                neighbour.write_frame(
                    frame_onward(frame) if is_all else frame_split(frame, indexes)
                )

    def _open(self, link: Link, message: Open) -> None:
        """Like a frame; but nothing secret shows that it is true, so it must come the right way."""
        self._refresh()
        if message.target == self.node:
            if self._is_on_way(link, message):
                self.tunnels.offered(message, self._now_s)
        elif (neighbour := self._onward(link, message, message.target)) is not None:
            onward = msgspec.structs.replace(message, hops=message.hops - 1)
            neighbour.write_frame(encode_open(onward))

    # -- sending -------------------------------------------------------------------------------

    def send(self, parts: Mapping[int, bytes], body: bytes) -> None:
        """By tunnel: append this prefix and the body to its stream. Closed ones are passed over.

        However many targets lie beyond a link, it carries the body once.
        """
        self.tunnels.send(parts, body)

    def writable(self, tunnel: int) -> bool:
        """Whether it is open and little waits for it; look again after `received` and `tick`."""
        return self.tunnels.is_writable(tunnel)

    def queued_bytes(self, tunnel: int) -> int:
        """How many bytes wait here for a tunnel."""
        return self.tunnels.queued_bytes(tunnel)

    def reset(self, tunnel: int, now_s: float) -> None:
        """Close a tunnel and open it again, because what used it has ended."""
        self._advance(now_s)
        self.tunnels.end(tunnel, now_s)

    def neighbour_link(self, name: str) -> int | None:
        """The number of the link by which a broker is reached."""
        tunnel = self.tunnels.by_node.get(self.holders.get(name, -1))
        link = None if tunnel is None else self._neighbours.get(tunnel.way.neighbour)
        return None if link is None else link.number

    def _transmit(self, node: int, data: bytes) -> None:
        if (link := self._neighbours.get(node)) is not None:
            link.write_frame(data)

    def _transmit_open(self, node: int, data: bytes) -> None:
        if (link := self._neighbours.get(node)) is not None:
            link.write(data)

    def _is_congested(self, node: int) -> bool:
        link = self._neighbours.get(node)
        return link is not None and link.is_congested

    @property
    def view(self) -> MeshView:
        """What `rove mesh` shows."""
        self._refresh(must_settle=True)
        return mesh_view(self.graph, self.links, self.tunnels.by_node, self.holders, self._now_s)

    def offset(self, name: str) -> tuple[float, float] | None:
        """By how much a broker's clock is ahead of ours, and how wrong that may be."""
        tunnel = self.tunnels.by_node.get(self.holders.get(name, -1))
        return None if tunnel is None else (tunnel.way.offset_us / 1e6, tunnel.way.error_us / 1e6)

    def take(self) -> NodeOutput:
        """What has to be done outside, once."""
        self.tunnels.flush()
        self._refresh()
        data = {number: b"".join(parts) for number, parts in self._last_bytes.items() if parts}
        self._last_bytes = {}
        for number, link in self.links.items():
            if link.out:
                data[number] = b"".join(link.out)
                link.out = []
        closed, self._closed = self._closed, []
        events: list[MeshEvent] = self.tunnels.events
        self.tunnels.events = []
        return NodeOutput(data, closed, events)

    # -- time ----------------------------------------------------------------------------------

    def _advance(self, now_s: float) -> None:
        """Notice a clock that was set, or a process that stood still."""
        passed_s, before_s, self._now_s = now_s - self._now_s, self._now_s, now_s
        if -BACK_S <= passed_s <= 2 * self.limits.ping_s or before_s == -math.inf:
            return
        for link in self.links.values():
            link.shift(passed_s)
        self.tunnels.shift(passed_s)
        self.graph.shift(passed_s)
        self._published_at_s += passed_s
        self._expire_at_s += passed_s
        self._settled_at_s += passed_s

    def tick(self, now_s: float) -> None:
        """Time has passed; needed at `next_tick_s`, harmless earlier."""
        self._advance(now_s)
        for link in list(self.links.values()):
            if (reason := link.tick(now_s)) is not None:
                self._refuse(link, reason)
            elif link.must_ask(now_s):
                self._ask(link)
        if now_s >= self._expire_at_s:
            self._expire_at_s = now_s + self.limits.ping_s
            self._is_dirty |= self.graph.expire(now_s)
            self._measure(now_s)
        self._refresh()
        self.tunnels.tick(now_s)

    def _measure(self, now_s: float) -> None:
        """Announce delays and clocks that have changed, and outdo what was forged."""
        if now_s - self._published_at_s >= self.limits.publish_s:
            joined = [link for link in self.links.values() if link.state == "joined"]
            has_changed = [link.measure(now_s) for link in joined]
            if any(has_changed) or self._above:
                self._must_publish = True

    def next_tick_s(self) -> float:
        """When `tick` has to be called, at the latest."""
        times_s = [link.next_tick_s() for link in self.links.values()]
        settles_at_s = self._settled_at_s if self._is_dirty else math.inf
        return min(*times_s, self.tunnels.next_tick_s(), self._expire_at_s, settles_at_s)


def _number(instance: bytes, purpose: bytes) -> int:
    """A number of 63 bits that says nothing of others made from the same secret."""
    digest = hashlib.blake2b(instance, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest) >> 1
