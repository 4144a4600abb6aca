"""The area-based engine: content subscriptions to rectangles, at rest or moving with their owner.

There are three area tables. A client has a rectangle around its avatar in `update` and in `reply`;
a server has one around each of its entities in `request`. Changes of an entity are published in
`update` at its position. A client whose view reaches new ground publishes a request there, with the
part of it that is known already. The servers whose entities' rectangles hold that point publish, in
`reply`, replicas of the entities in the new part, each at its own position. Other clients with a
rectangle there receive them too.

What makes it exact:

- An update has the whole state of an entity, so a client that receives the first one has its
  replica. Moving entities need no request, whichever view they enter.
- `rove.world.engines.engine_kernels.follow` decides when a rectangle is replaced and what has to be
  requested, such that a client's view always lies in a subscription and in what was requested.
- A moving entity is published at each tick. A replica that moves but gets no update has left the
  rectangle and is dropped; one at rest is dropped when it is out of view. If an entity at rest is
  moved elsewhere at once, its server publishes LEFT at the old place.

The designs differ in their rectangles. With `resubscribe` a rectangle rests; it covers the way of
`ahead_s` and is replaced that often while its owner moves. With the others a leg of a way is one
evolving subscription with start and velocity, replaced when the velocity changes, and every
`ahead_s` there is a request, as a publication. Rectangles of `exact` and `lees` are always where
they should be; those of `pes` and `clees` may lag by `lag_s` and are longer by that.

Cost: two passes over clients and entities a tick, and one over replicas. Measured with everybody
moving and 15 in each view, CPU time on two cores busy with other work: 2.1 ms a tick for 1,000
clients and 14 ms for 10,000, the same if evolving; half of it is the bus's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from rove.match.designs.design import Evolve
from rove.world.engines.bus import EXACT, Bus, Deliveries, EngineCounters
from rove.world.engines.engine_kernels import (
    FOLLOWED_COLUMNS,
    HAS,
    SLACK_M,
    are_asked_for,
    follow,
    views_at,
)
from rove.world.engines.messages import MessageKind, Messages
from rove.world.engines.roles import (
    SERVERS_FROM,
    ClientReplicas,
    EngineWorld,
    Ownership,
    asked,
    grown,
)
from rove.world.runs.state import (
    NOBODY,
    Clients,
    Entities,
    Flags,
    Floats,
    Ints,
    Longs,
    TickChanges,
    WorldError,
)

Design: TypeAlias = Literal["resubscribe", "exact", "pes", "lees", "clees"]

REQUEST: Final = "request"
REPLY: Final = "reply"
UPDATE: Final = "update"
AHEAD_MAX: Final = 0.25
"""How long a view may be in front, as a part of the reach. All have to agree on it: a request
travels as far as the rectangles of entities reach."""
_TOLERANCE_M: Final = 0.001
"""Replicas are kept a little beyond the view: never drop what was told to be known."""


class AreaRules:
    """What clients and servers of one area-based engine agree on."""

    def __init__(self, design: Design, *, ahead_s: float = 0.5, lag_s: float = 0.5) -> None:
        for name, seconds in (("ahead_s", ahead_s), ("lag_s", lag_s)):
            if not 0 < seconds < np.inf:
                raise WorldError(f"{name} of an area engine is {seconds:g}; it is more than 0 s")
        self.ahead_s: Final = ahead_s
        self.evolves: Final = design != "resubscribe"
        self.lag_s: Final = lag_s if design in ("pes", "clees") else 0.0
        self.evolve: Final = (
            Evolve(design, lag_s)
            if design == "pes" or design == "clees"
            else Evolve("lees")
            if design == "lees"
            else EXACT
        )

    def make_tables(self, bus: Bus) -> None:
        """The three tables, once for each bus."""
        bus.areas(REQUEST, "world/area/request", self.evolve)
        bus.areas(REPLY, "world/area/reply", self.evolve)
        bus.areas(UPDATE, "world/area/update", self.evolve)


class AreaClients:
    """The clients' side: rectangles around avatars, requests, and replicas."""

    def __init__(self, bus: Bus, rules: AreaRules, owned: Sequence[int] | None = None) -> None:
        """`owned` are the numbers of the clients in this process; None are all."""
        self.replicas: Final = ClientReplicas()
        self._bus = bus
        self._rules = rules
        self._owned = Ownership(owned)
        self._followed: Floats = np.zeros((0, FOLLOWED_COLUMNS))

    def act(self, clients: Clients, avatars: Entities, tick: int, at: float) -> None:
        """Place what is due, and ask; of `avatars` only the clients' own are looked at."""
        rules, bus = self._rules, self._bus
        count = len(clients.avatar)
        self._followed = grown(self._followed, count)
        mine = self._owned.among(np.arange(count, dtype=np.int32))
        placed, rectangles, asking, questions = follow(
            self._followed,
            mine,
            clients.avatar[mine],
            _motion(avatars),
            np.zeros(count, np.bool_),
            _reaches(clients),
            rules.evolves,
            rules.ahead_s,
            rules.lag_s,
            at,
        )
        if len(placed):
            for table in (UPDATE, REPLY):
                _place(bus, table, placed, rectangles, at)
        if len(asking):
            bus.publish_at(REQUEST, _requests(clients, asking, questions, tick), at)

    def receive(self, deliveries: Deliveries, clients: Clients, tick: int) -> None:
        """Take in what was told, and forget what is out of view."""
        self.replicas.drop_left(deliveries, clients)
        self.replicas.put_told(deliveries, clients, MessageKind.UPDATE, MessageKind.REPLICA)
        views = views_at(self._followed, deliveries.at)
        self.replicas.drop_out_of_sight(views, tolerance_m=_TOLERANCE_M, moving_since=tick)


class AreaMasters:
    """The servers' side: rectangles around entities, updates, and replies."""

    def __init__(self, bus: Bus, rules: AreaRules, owned: Sequence[int] | None = None) -> None:
        """`owned` are the numbers of the servers in this process; None are all."""
        self._bus = bus
        self._rules = rules
        self._owned = Ownership(owned)
        self._followed: Floats = np.zeros((0, FOLLOWED_COLUMNS))
        self._server: Ints = np.zeros(0, np.int32)
        """Who held each entity at the last tick, NOBODY if none of this process."""
        self._told: Floats = np.zeros((0, 4))
        """x, y, vx, vy of each entity as it was told last."""
        self._asked: Deliveries | None = None
        """The requests of the last tick, and the entities by whose rectangles each was found."""

    def act(self, clients: Clients, entities: Entities, changes: TickChanges) -> None:
        """Place what is due, tell what happened, answer what was asked."""
        count = len(entities)
        self._followed = grown(self._followed, count)
        self._server = grown(self._server, count, NOBODY)
        self._told = grown(self._told, count, np.nan)
        server = np.full(count, NOBODY, np.int32)
        mine = self._owned.among(entities.server)
        server[mine] = entities.server[mine]
        taken_over = (server != NOBODY) & (server != self._server)
        given_away = np.flatnonzero((server == NOBODY) & (self._server != NOBODY))
        self._server = server
        self._place(clients, entities, mine, taken_over, changes.at)
        self._tell_who_left(entities, changes)
        self._give_away(given_away)
        is_told = taken_over
        is_told[changes.changed] = server[changes.changed] != NOBODY
        self._tell(entities, np.flatnonzero(is_told).astype(np.int32), changes)
        self._answer(entities, changes)

    def receive(self, deliveries: Deliveries) -> None:
        """Take note of requests, to be answered at the next tick."""
        self._asked = asked(deliveries, MessageKind.AREA_REQUEST)

    def _give_away(self, entities: Longs) -> None:
        if len(entities):
            self._bus.lift(REQUEST, entities.astype(np.int32))
            self._followed[entities, HAS] = 0.0
            self._told[entities] = np.nan

    def _place(
        self, clients: Clients, entities: Entities, mine: Ints, taken_over: Flags, at: float
    ) -> None:
        rules = self._rules
        # A request is published in the middle of a view, which has half the way ahead added to it.
        reaches = _reaches(clients)
        reaches[:2] += reaches[2:] / 2 + SLACK_M
        # Where a rectangle moves along, it need not be longer than what it is for.
        ahead_s = 0.0 if rules.evolves else rules.ahead_s
        placed, rectangles, _, _ = follow(
            self._followed,
            mine,
            mine,
            _motion(entities),
            taken_over,
            reaches,
            rules.evolves,
            ahead_s,
            rules.lag_s,
            at,
        )
        if len(placed):
            receivers = self._server[placed] + np.int32(SERVERS_FROM)
            _place(self._bus, REQUEST, placed, rectangles, at, receivers)

    def _tell_who_left(self, entities: Entities, changes: TickChanges) -> None:
        """Publish LEFT for entities that were at rest and are elsewhere now."""
        before = self._told[changes.changed]
        x, y = entities.x[changes.changed], entities.y[changes.changed]
        # What was never told is NaN, and no comparison with it holds.
        rested = (before[:, 2] == 0.0) & (before[:, 3] == 0.0)
        left = rested & ((x != before[:, 0]) | (y != before[:, 1]))
        if left.any():
            messages = Messages.about(
                MessageKind.LEFT, entities, changes.changed[left], changes.tick
            )
            messages.x, messages.y = before[left, 0], before[left, 1]
            self._bus.publish_at(UPDATE, messages, changes.at)

    def _tell(self, entities: Entities, numbers: Ints, changes: TickChanges) -> None:
        for column, values in enumerate(_motion(entities)):
            self._told[numbers, column] = values[numbers]
        if len(numbers):
            updates = Messages.about(MessageKind.UPDATE, entities, numbers, changes.tick)
            self._bus.publish_at(UPDATE, updates, changes.at)

    def _answer(self, entities: Entities, changes: TickChanges) -> None:
        if self._asked is None or not len(self._asked):
            return
        requests = self._asked.messages
        wanted = are_asked_for(
            self._asked.message,
            self._asked.subscription,
            requests.entity,
            entities.x,
            entities.y,
            (
                *(requests.x, requests.y, requests.reach_x, requests.reach_y),
                *(requests.former_x, requests.former_y),
            ),
        )
        numbers = np.flatnonzero(wanted & (self._server != NOBODY)).astype(np.int32)
        if len(numbers):
            replicas = Messages.about(MessageKind.REPLICA, entities, numbers, changes.tick)
            self._bus.publish_at(REPLY, replicas, changes.at)


class AreaEngine:
    """Clients and masters on one bus."""

    def __init__(
        self,
        bus: Bus,
        *,
        name: str = "area",
        design: Design = "resubscribe",
        ahead_s: float = 0.5,
        lag_s: float = 0.5,
    ) -> None:
        """`ahead_s` is how often is resubscribed, or asked where rectangles evolve."""
        self.name = name
        self.delay_ticks = 0
        rules = AreaRules(design, ahead_s=ahead_s, lag_s=lag_s)
        rules.make_tables(bus)
        self._bus = bus
        self._clients = AreaClients(bus, rules)
        self._masters = AreaMasters(bus, rules)
        self.replicas = self._clients.replicas

    @property
    def counters(self) -> EngineCounters:
        return self._bus.counters

    def subscriptions(self) -> int:
        return self._bus.counters.subscriptions

    def step(self, world: EngineWorld, changes: TickChanges) -> None:
        """Take a tick."""
        clients, entities = world.clients, world.entities
        self._clients.act(clients, entities, changes.tick, changes.at)
        self._masters.act(clients, entities, changes)
        deliveries = self._bus.turn(changes.at)
        self._clients.receive(deliveries, clients, changes.tick)
        self._masters.receive(deliveries)


def _motion(entities: Entities) -> tuple[Floats, Floats, Floats, Floats]:
    return entities.x, entities.y, entities.vx, entities.vy


def _reaches(clients: Clients) -> Floats:
    """Half the sides of what is seen, and how long a view may be in front."""
    reach = np.array([clients.reach_x, clients.reach_y])
    return np.concatenate([reach, AHEAD_MAX * reach])


def _requests(clients: Clients, asking: Ints, questions: Floats, tick: int) -> Messages:
    x, y, reach_x, reach_y, former_x, former_y = questions.T
    return Messages(
        MessageKind.AREA_REQUEST,
        len(asking),
        sender=asking,
        entity=clients.avatar[asking],
        x=x,
        y=y,
        reach_x=reach_x,
        reach_y=reach_y,
        former_x=former_x,
        former_y=former_y,
        tick=tick,
    )


def _place(
    bus: Bus,
    table: str,
    numbers: Ints,
    rectangles: Floats,
    at: float,
    receivers: Ints | None = None,
) -> None:
    x, y, reach_x, reach_y, vx, vy = rectangles.T
    bus.place(table, numbers, x, y, reach_x, reach_y, vx=vx, vy=vy, since=at, receivers=receivers)
