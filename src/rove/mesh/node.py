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

A frame that is passed on costs about 5 µs, a small one that is sent and one that is received
together as much. A change of the network costs every broker one tree of shortest ways.

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

from rove.mesh.events import LinkClosed, MeshEvent, NeighbourJoined, NeighbourLeft, NodeOutput
from rove.mesh.graph import Graph, Record, Way
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
        """`instance` is random and secret, drawn at each start; `epoch` grows with each start.

        `version` is Rove's: brokers of another major version are refused. Raises `MeshError` for a
        name that no broker can have.
        """
        check_name(name)
        self.name, self.epoch, self.version = name, epoch, version
        self.limits = limits = limits or MeshLimits()
        self.node = _number(instance, b"node")
        self.links: dict[int, Link] = {}
        own = Record(self.node, name, epoch, 0)
        self.graph = Graph(own, brokers_max=limits.brokers_max, keep_s=limits.record_keep_s)
        self.tunnels = Tunnels(
            self.node,
            _number(instance, b"tunnels"),
            limits,
            self._transmit,
            self._transmit_open,
            self._is_congested,
        )
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
        self._must_publish = False
        self._published_at_s = -math.inf
        self._above = 0
        """A number that somebody has given to a record of ours."""
        self._now_s = -math.inf
        self._expire_at_s = -math.inf

    # -- links ---------------------------------------------------------------------------------

    def link_opened(self, number: int, now_s: float, *, outgoing: bool) -> None:
        """There is a connection, and who called has been authenticated."""
        self._advance(now_s)
        link = self.links[number] = Link(number, now_s, self.limits, outgoing=outgoing)
        hello = Hello(PROTOCOL, self.version, self.name, self.epoch, self.node, now_s)
        link.write(encode(hello))
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
            is_quiet = not message.reason
            who = link.name or "the other side"
            reason = DUPLICATE if is_quiet else f"{who} closed it: {message.reason}"
            self._close(link, reason, is_quiet=is_quiet)
            return
        if type(message) is not Open:
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

    def _hello(self, link: Link, hello: Hello) -> None:
        check_name(hello.name)
        link.peer, link.node = hello, hello.node
        if (reason := self._refusal(hello)) is not None:
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

    def _refusal(self, hello: Hello) -> str | None:
        """Why a broker may not join; None if it may."""
        if hello.node == self.node:
            return f"{self.name} cannot join itself"
        if hello.protocol != PROTOCOL:
            return f"{hello.name} uses protocol {hello.protocol}, and {self.name} {PROTOCOL}"
        if hello.version.split(".")[0] != self.version.split(".")[0]:
            versions = f"{hello.name} is Rove {hello.version[:20]}, and {self.name} {self.version}"
            return f"{versions}: brokers of one network need the same major version"
        if hello.name == self.name or self._is_taken(hello):
            return f"another broker of this network is called {hello.name}; choose another name"
        return None

    def _is_taken(self, hello: Hello) -> bool:
        """Whether a live other broker has the name."""
        self._refresh()
        for node, link in list(self._neighbours.items()):
            if link.name == hello.name and node != hello.node:
                if link.was_heard_lately(self._now_s):
                    return True
                # It was restarted, and its old link does not know that yet.
                self._close(link, f"{hello.name} has come back over another link")
                self._refresh()
        return self.holders.get(hello.name, hello.node) != hello.node

    def _start(self, link: Link, edge_number: int) -> None:
        self._neighbours[link.node] = link
        link.start(edge_number, self._now_s)

    def _joined(self, link: Link) -> None:
        """The delay and the clock of a new neighbour are measured."""
        link.state = "joined"
        self._must_publish = True
        self.tunnels.events.append(NeighbourJoined(link.name, link.number))
        records = self.graph.records.values()
        link.write(encode(Digest({record.node: record.number for record in records})))

    # -- records -------------------------------------------------------------------------------

    def _digest(self, link: Link, numbers: dict[int, int]) -> None:
        """Send what the neighbour does not have yet."""
        self._outdo(numbers.get(self.node, 0))
        for record in self.graph.records.values():
            if record.number > numbers.get(record.node, -1):
                link.write(encode(record))

    def _record(self, link: Link, record: Record) -> None:
        if record.node == self.node:
            self._outdo(record.number)
        elif self.graph.add(record, self._now_s):
            self._is_dirty = True
            self._flood(record, link)

    def _outdo(self, number: int) -> None:
        """Somebody has a record of ours that we did not write: it needs a newer one."""
        if self.graph.own.number < number < NUMBER_MAX:
            self._above = max(self._above, number)

    def _flood(self, record: Record, source: Link | None) -> None:
        data = encode(record)
        for link in self._neighbours.values():
            if link is not source:
                link.write(data)

    def _refresh(self) -> None:
        """Announce what has changed here, and let the tunnels follow the graph."""
        if self._must_publish:
            self._must_publish = False
            self._publish()
        if self._is_dirty:
            self._is_dirty = False
            graph = self.graph
            ways = graph.ways()
            self._choose_holders(ways)
            wanted = {node: (name, ways[node]) for name, node in self.holders.items()}
            self.tunnels.set_ways(wanted, graph.is_whole, self._now_s)

    def _publish(self) -> None:
        links = self._neighbours.values()
        edges = [
            link.published
            for link in links
            if link.state == "joined" and link.published is not None
        ]
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
        if self._is_dirty:
            self._refresh()
        link.frames_received += 1
        heads = frame.heads
        if len(heads) > 1:
            self._frame_to_many(link, frame)
        elif heads[0][0] == self.node:
            data = frame.data[frame.start :]
            self.tunnels.received(frame.origin, heads[0], data, self._now_s)
        elif (neighbour := self._onward(link, frame, heads[0][0])) is not None:
            neighbour.write_frame(frame_onward(frame))

    def _onward(self, link: Link, frame: Frame | Open, target: int) -> Link | None:
        """The link to which a frame goes next, if the tree of its origin leads there from here."""
        route = self.graph.route(frame.origin)
        if route.parent != link.node or frame.hops <= 1:
            link.frames_refused += 1
            return None
        return self._neighbours.get(route.onward.get(target, -1))

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
        """Like a frame."""
        self._refresh()
        if message.target == self.node:
            self.tunnels.offered(message, self._now_s)
        elif (neighbour := self._onward(link, message, message.target)) is not None:
            hops = message.hops - 1
            onward = Open(
                hops, message.origin, message.target, message.mine, message.yours, message.reason
            )
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
        self._refresh()
        return mesh_view(self.graph, self.links, self.tunnels.by_node, self.holders, self._now_s)

    def offset(self, name: str) -> tuple[float, float] | None:
        """By how much a broker's clock is ahead of ours, and how wrong that may be."""
        tunnel = self.tunnels.by_node.get(self.holders.get(name, -1))
        return None if tunnel is None else (tunnel.way.offset_us / 1e6, tunnel.way.error_us / 1e6)

    def take(self) -> NodeOutput:
        """What has to be done outside, once."""
        self.tunnels.flush()
        self._refresh()
        data = {}
        for number, parts in self._last_bytes.items():
            if parts:
                data[number] = b"".join(parts)
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
        passed_s = now_s - self._now_s
        if (passed_s < 0 or passed_s > 2 * self.limits.ping_s) and self._now_s != -math.inf:
            self._shift(passed_s)
        self._now_s = now_s

    def _shift(self, seconds: float) -> None:
        for link in self.links.values():
            link.shift(seconds)
        self.tunnels.shift(seconds)
        self.graph.shift(seconds)
        self._published_at_s += seconds
        self._expire_at_s += seconds

    def tick(self, now_s: float) -> None:
        """Time has passed; needed at `next_tick_s`, harmless earlier."""
        self._advance(now_s)
        for link in list(self.links.values()):
            if (reason := link.tick(now_s)) is not None:
                self._refuse(link, reason)
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
        return min(*times_s, self.tunnels.next_tick_s(), self._expire_at_s)


def _number(instance: bytes, purpose: bytes) -> int:
    """A number of 63 bits that says nothing of others made from the same secret."""
    digest = hashlib.blake2b(instance, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest) >> 1
