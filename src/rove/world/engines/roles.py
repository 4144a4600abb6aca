"""What the roles of all engines share: the order of a tick, what they may use, subscriber numbers.

An engine informs clients of the entities around their avatars, over a publish/subscribe system. It
is written as roles: clients, which have their own avatars, their subscriptions and what was
delivered to them; masters, the servers' side, which have the entities that they hold; and, for one
engine, a service that has the places of all entities. A role acts on its bus and receives what was
delivered, nothing else. In process one object plays all roles on one `ArrayBus`; over MQTT each
process plays one, with a client of a real broker as its bus.

A tick has one order. Clients act, then masters (they subscribe, then publish the changes of this
tick); then the bus has its turn, and everybody receives. Answers are published at the next tick. So
an update arrives in the tick in which it happened, and the answer to a request one tick later: a
replica that should exist at tick k exists at k + 1, which `rove.world.engines.truth` calls a delay
of 0 ticks. (Only the object-based engine is slower.) Between processes the order of roles is
undefined and does not matter: a client subscribes to a place before it sends its request, and a
server subscribes before it publishes a change there, so one of the two receives the other's
message.

Each role keeps arrays over all numbers and acts on its own ones. Considered: separate numbers in
each process. They would save little memory and cost a translation of every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import numpy as np

from rove.world.engines.bus import Deliveries
from rove.world.engines.engine_kernels import are_out_of_sight, heard_by_clients
from rove.world.engines.messages import MessageKind
from rove.world.engines.pair_kernels import keys_of, pairs_of
from rove.world.engines.replicas import Replicas
from rove.world.runs.state import Clients, Entities, Flags, Floats, Ints, Longs

SERVERS_FROM: Final = 1_000_000_000
"""Server s subscribes with the number SERVERS_FROM + s, client c with c."""
SERVICE: Final = 2_000_000_000


Column = TypeVar("Column", Flags, Floats, Ints, Longs)


class TileIndex(Protocol):
    """What an engine needs of `rove.world.map.tiles.Tiles`."""

    def in_rectangles(
        self, x: Floats, y: Floats, reach_x: Floats | float, reach_y: Floats | float
    ) -> tuple[Longs, Ints]:
        """The tiles that touch the closed rectangle around each point."""


class EngineWorld(Protocol):
    """What an engine is shown of a `rove.world.runs.simulation.World`."""

    @property
    def entities(self) -> Entities: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def tiles(self) -> TileIndex: ...


class Ownership:
    """What a process has: everything, or some numbers."""

    def __init__(self, numbers: Sequence[int] | None = None) -> None:
        self._numbers = None if numbers is None else np.unique(np.asarray(numbers, np.int32))

    def among(self, column: Ints) -> Ints:
        """The lines of a column whose values one has."""
        if self._numbers is None:
            return np.arange(len(column), dtype=np.int32)
        return np.flatnonzero(np.isin(column, self._numbers)).astype(np.int32)


def grown(values: Column, count: int, filling: float = 0) -> Column:
    """A column, or a table, with at least so many lines."""
    if len(values) >= count:
        return values
    more = np.full((count - len(values), *values.shape[1:]), filling, values.dtype)
    return np.concatenate([values, more])


def asked(deliveries: Deliveries, what: MessageKind) -> Deliveries:
    """The requests of one kind."""
    here, is_only = _stretch(deliveries, what)
    requests = Deliveries(
        deliveries.at,
        deliveries.messages,
        deliveries.message[here],
        deliveries.receiver[here],
        deliveries.subscription[here],
    )
    return requests if is_only else requests.only(what)


def told(deliveries: Deliveries, clients: Clients, what: MessageKind) -> tuple[Ints, Ints]:
    """(messages, clients): who was told what of others than their own avatars, of one kind."""
    here, _ = _stretch(deliveries, what)
    lines, receivers = heard_by_clients(
        deliveries.messages.what,
        deliveries.messages.entity,
        deliveries.message[here],
        deliveries.receiver[here],
        np.ascontiguousarray(clients.avatar, np.int32),
        int(what),
    )
    return lines, receivers


def _stretch(deliveries: Deliveries, what: MessageKind) -> tuple[slice, bool]:
    """Where the deliveries of a kind stand, and whether there are no others among them.

    Messages of a kind are published together, so this is a look at the few messages, and mostly
    saves one at the many deliveries.
    """
    lines = np.flatnonzero(deliveries.messages.what == int(what))
    if not len(lines):
        return slice(0, 0), True
    first, last = int(lines[0]), int(lines[-1])
    start = int(np.searchsorted(deliveries.message, np.int32(first)))
    stop = int(np.searchsorted(deliveries.message, np.int32(last + 1)))
    return slice(start, stop), last - first + 1 == len(lines)


class ClientReplicas(Replicas):
    """The replicas of an engine's clients, who forget what they no longer see."""

    def put_told(self, deliveries: Deliveries, clients: Clients, *whats: MessageKind) -> None:
        """Clients take in what they were told of others than their own avatars, of some kinds.

        One kind after the other, since each alone comes by ascending entity, as it is kept.
        """
        for what in whats:
            lines, receivers = told(deliveries, clients, what)
            if len(lines):
                self._put(deliveries.messages, lines, receivers)

    def drop_left(self, deliveries: Deliveries, clients: Clients) -> None:
        """Clients drop what they were told has left, unless they know already where it is now."""
        messages = deliveries.messages
        if not np.any(messages.what == int(MessageKind.LEFT)):
            return
        lines, receivers = told(deliveries, clients, MessageKind.LEFT)
        keys, _ = keys_of(messages.entity[lines], receivers)
        places = np.searchsorted(self.keys, keys)
        has = places < len(self)
        has[has] = self.keys[places[has]] == keys[has]
        places, lines = places[has], lines[has]
        gone = np.zeros(len(self), np.bool_)
        gone[places] = self.marks[places, 0] < messages.version[lines]
        if len(places):
            self.drop_where(gone)

    def drop_out_of_sight(
        self, sights: Floats, *, tolerance_m: float = 0.0, moving_since: int = -1
    ) -> tuple[Ints, Ints]:
        """Clients drop what is outside of low x, high x, low y, high y; (clients, entities).

        They also drop what moves and was not heard of since a tick.
        """
        motions = self._motions[: len(self)]
        gone = are_out_of_sight(self.keys, self.marks, motions, sights, tolerance_m, moving_since)
        entities, clients = pairs_of(self.keys[gone])
        if len(entities):
            self.drop_where(gone)
        return clients, entities
