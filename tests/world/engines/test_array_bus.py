"""The bus of arrays, rule by rule, against an obvious bus, and against the matcher with texts."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from rove.lang import parse
from rove.lang.errors import LanguageError
from rove.match.designs.design import Evolve
from rove.match.matcher import Matcher
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.bus import Bus, Deliveries, area_text, topic_text
from rove.world.engines.messages import MessageKind, Messages, payload
from rove.world.runs.state import Floats, Ints, WorldError

TILE, AREA = "world/tile/{}/update", "world/area/update"


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def tiles(*, retained: bool = False) -> ArrayBus:
    bus = ArrayBus()
    bus.topics("tile", TILE, retained=retained)
    return bus


def areas(evolve: Evolve | None = None) -> ArrayBus:
    bus = ArrayBus()
    bus.areas("area", AREA, evolve or Evolve())
    return bus


def about(*entities: int, x: float = 0.0, y: float = 0.0) -> Messages:
    return Messages(MessageKind.UPDATE, len(entities), entity=ints(*entities), x=x, y=y)


def told(deliveries: Deliveries) -> list[tuple[int, int]]:
    """(entity, receiver) as they come."""
    entities = deliveries.messages.entity[deliveries.message]
    return list(zip(entities.tolist(), deliveries.receiver.tolist(), strict=True))


def place(bus: Bus, number: int, x: float = 0.0, y: float = 0.0, reach: float = 1.0) -> None:
    bus.place("area", ints(number), np.array([x]), np.array([y]), reach, reach)


# -- topics -----------------------------------------------------------------------------------


def test_a_publication_reaches_those_who_joined_its_topic() -> None:
    bus: Bus = tiles()
    bus.join("tile", ints(5, 3, 4), ints(8, 8, 9))
    bus.publish("tile", ints(9, 8, 7), about(1, 2, 3))
    deliveries = bus.turn(0.1)
    assert told(deliveries) == [(1, 4), (2, 3), (2, 5)]
    assert deliveries.subscription.tolist() == [9, 8, 8]
    assert deliveries.at == 0.1


def test_what_was_handed_out_is_gone() -> None:
    bus = tiles()
    bus.join("tile", ints(1), ints(1))
    bus.publish("tile", ints(1), about(1))
    assert len(bus.turn(0.0)) == 1
    assert len(bus.turn(0.0)) == 0
    assert len(bus.turn(0.0).messages) == 0


def test_joining_and_leaving_count_from_the_next_publication_on() -> None:
    bus = tiles()
    bus.publish("tile", ints(1), about(1))
    bus.join("tile", ints(7), ints(1))
    bus.publish("tile", ints(1), about(2))
    bus.leave("tile", ints(7), ints(1))
    bus.publish("tile", ints(1), about(3))
    assert told(bus.turn(0.0)) == [(2, 7)]


def test_order_is_that_of_publication_then_receiver() -> None:
    bus = tiles()
    bus.topics("client", "world/client/{}")
    bus.join("tile", ints(9, 2), ints(1, 1))
    bus.join("client", ints(5), ints(5))
    bus.publish("tile", ints(1), about(3))
    bus.publish("client", ints(5), about(2))
    bus.publish("tile", ints(1, 1), about(1, 0))
    deliveries = bus.turn(0.0)
    assert told(deliveries) == [(3, 2), (3, 9), (2, 5), (1, 2), (1, 9), (0, 2), (0, 9)]
    assert deliveries.message.tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_a_wildcard_is_one_subscription_to_all_topics() -> None:
    bus = tiles()
    bus.join("tile", ints(3, 8, 5), ints(1, 1, 1))
    bus.join_all("tile", 5)
    bus.join_all("tile", 5)
    bus.publish("tile", ints(1, 400), about(1, 2))
    assert told(bus.turn(0.0)) == [(1, 3), (1, 5), (1, 8), (2, 5)]
    assert bus.counters.subscriptions == bus.counters.subscribes == 4
    assert bus.counters.delivered[MessageKind.UPDATE] == 4


def test_the_last_message_of_a_retained_topic_waits_for_who_joins() -> None:
    bus = tiles(retained=True)
    bus.publish("tile", ints(4, 2, 4), about(1, 2, 3))
    bus.join("tile", ints(7, 6, 6), ints(4, 4, 9))
    bus.publish("tile", ints(4), about(5))
    bus.join("tile", ints(8), ints(4))
    deliveries = bus.turn(0.0)
    assert told(deliveries) == [(3, 6), (3, 7), (5, 6), (5, 7), (5, 8)]
    assert bus.counters.published[MessageKind.UPDATE] == 4
    assert bus.counters.delivered[MessageKind.UPDATE] == 5


def test_who_has_joined_is_given_nothing_again() -> None:
    bus = tiles(retained=True)
    bus.publish("tile", ints(4), about(1))
    bus.join("tile", ints(7), ints(4))
    bus.join("tile", ints(7, 7), ints(4, 4))
    assert told(bus.turn(0.0)) == [(1, 7)]
    bus.leave("tile", ints(7), ints(4))
    bus.join("tile", ints(7), ints(4))
    assert told(bus.turn(0.0)) == [(1, 7)]


def test_a_table_that_does_not_retain_gives_nothing_to_who_comes_late() -> None:
    bus = tiles()
    bus.publish("tile", ints(4), about(1))
    bus.join("tile", ints(7), ints(4))
    assert told(bus.turn(0.0)) == []
    assert bus.counters.row(0.1)["publications"] == 1


def test_operations_that_change_nothing_are_not_counted() -> None:
    bus = tiles()
    bus.join("tile", ints(1, 1, 2), ints(5, 5, 5))
    bus.join("tile", ints(2), ints(5))
    bus.leave("tile", ints(2, 2, 9), ints(5, 5, 5))
    bus.leave("tile", ints(2), ints(5))
    assert (bus.counters.subscribes, bus.counters.unsubscribes) == (2, 1)
    assert bus.counters.subscriptions == 1
    assert [column.tolist() for column in bus.joined("tile")] == [[5], [1]]


# -- areas ------------------------------------------------------------------------------------


def test_a_border_belongs_to_its_rectangle() -> None:
    bus = areas()
    place(bus, 0, x=10.0, y=10.0, reach=2.0)
    x = np.array([8.0, 12.0, 12.0, math.nextafter(12.0, 13.0)])
    y = np.array([8.0, 12.0, 8.0, 10.0])
    bus.publish_at("area", Messages(MessageKind.UPDATE, 4, entity=np.arange(4), x=x, y=y), 0.0)
    assert told(bus.turn(0.0)) == [(0, 0), (1, 0), (2, 0)]


def test_placing_again_replaces_and_lifting_ends() -> None:
    bus = areas()
    place(bus, 3, x=0.0)
    bus.publish_at("area", about(1), 0.0)
    place(bus, 3, x=100.0)
    bus.publish_at("area", about(2), 0.0)
    bus.publish_at("area", about(3, x=100.0), 0.0)
    bus.lift("area", ints(3, 99))
    bus.lift("area", ints(3))
    bus.publish_at("area", about(4, x=100.0), 0.0)
    assert told(bus.turn(0.0)) == [(1, 3), (3, 3)]
    assert (bus.counters.subscribes, bus.counters.unsubscribes) == (2, 2)
    assert bus.counters.subscriptions == 0
    assert bus.counters.published[MessageKind.UPDATE] == 4


def test_a_receiver_with_several_rectangles_is_delivered_to_once_and_told_which() -> None:
    bus = areas()
    zeros = np.zeros(4)
    bus.place("area", ints(4, 1, 2, 6), zeros, zeros, 1.0, 1.0, receivers=ints(50, 50, 49, 51))
    bus.publish_at("area", about(9), 0.0)
    deliveries = bus.turn(0.0)
    assert deliveries.receiver.tolist() == [49, 50, 50, 51]
    assert deliveries.subscription.tolist() == [2, 1, 4, 6]
    assert bus.counters.delivered[MessageKind.UPDATE] == 3
    # Handed over: 4 belongs to 49 now.
    bus.place("area", ints(4), zeros[:1], zeros[:1], 1.0, 1.0, receivers=ints(49))
    bus.publish_at("area", about(9), 0.0)
    deliveries = bus.turn(0.0)
    assert deliveries.receiver.tolist() == [49, 49, 50, 51]
    assert deliveries.subscription.tolist() == [2, 4, 1, 6]


def test_placed_tells_what_was_placed() -> None:
    bus = areas()
    bus.place(
        *("area", ints(7, 2), np.array([1.0, 2.0]), np.array([3.0, 4.0]), 5.0, 6.0),
        vx=np.array([0.5, 0.0]),
        since=9.0,
        receivers=ints(70, 20),
    )
    placed = bus.placed("area")
    assert [column.tolist() for column in placed] == [
        [2, 7],
        [20, 70],
        [2.0, 1.0],
        [4.0, 3.0],
        [5.0, 5.0],
        [6.0, 6.0],
        [0.0, 0.5],
        [0.0, 0.0],
        [9.0, 9.0],
    ]


# -- moving, against the matcher ----------------------------------------------------------------


class Case(NamedTuple):
    evolve: Evolve
    seed: int


CASES = [
    Case(Evolve(design, seconds), seed)  # type: ignore[arg-type]
    for design, seconds in [("exact", None), ("lees", None), ("pes", 0.7), ("clees", 0.7)]
    for seed in range(3)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.evolve.design}-{case.seed}")
def test_the_answers_are_those_of_the_matcher_for_the_same_texts(case: Case) -> None:
    """Rectangles that rest, move along an axis or askew, are replaced and lifted; points at random
    and exactly on borders as they are at the time."""
    rng = np.random.default_rng(case.seed)
    bus, matcher = areas(case.evolve), Matcher()
    pairs_seen = 0
    for turn in range(25):
        at = turn * 0.1 if turn % 5 else turn * 0.1 + 0.05 * float(rng.random())
        for number in rng.integers(0, 30, rng.integers(0, 12)).tolist():
            _replace(rng, bus, matcher, number, at, case.evolve)
        x, y = _points(rng, bus, at)
        bus.publish_at("area", Messages(MessageKind.UPDATE, len(x), x=x, y=y), at)
        found = bus.turn(at)
        publications = [
            {"x": one, "y": other} for one, other in zip(x.tolist(), y.tolist(), strict=True)
        ]
        expected = matcher.match(publications, [at] * len(x))
        pairs = zip(expected.publications.tolist(), expected.subscriptions.tolist(), strict=True)
        assert list(zip(found.message.tolist(), found.receiver.tolist(), strict=True)) == sorted(
            pairs
        )
        pairs_seen += len(found)
    assert pairs_seen > 100


def _replace(
    rng: np.random.Generator, bus: Bus, matcher: Matcher, number: int, at: float, evolve: Evolve
) -> None:
    if number in matcher:
        matcher.remove(number)
        if rng.random() < 0.3:
            bus.lift("area", ints(number))
            return
    x, y, vx, vy = (rng.normal(0, 5, 4) * [1, 1, *rng.integers(0, 2, 2)]).tolist()
    place = np.array([[x], [y]])
    bus.place("area", ints(number), place[0], place[1], 3.0, 2.0, vx=vx, vy=vy, since=at)
    matcher.add(number, parse(area_text(x, y, 3.0, 2.0, vx, vy)), at, evolve=evolve)


def _points(rng: np.random.Generator, bus: Bus, at: float) -> tuple[Floats, Floats]:
    """Anywhere, and on the corners of rectangles where they are or once were."""
    x, y = rng.normal(0, 6, (2, 10))
    placed = bus.placed("area")
    t = np.where(rng.random(len(placed.x)) < 0.5, at - placed.since, 0.0)
    corner_x = (placed.x - placed.reach_x) + placed.vx * t
    corner_y = (placed.y + placed.reach_y) + placed.vy * t
    return np.concatenate([x, corner_x]), np.concatenate([y, corner_y])


def test_pes_and_clees_answer_late_as_they_say() -> None:
    answers = {}
    for evolve in (Evolve(), Evolve("lees"), Evolve("pes", 1.0), Evolve("clees", 1.0)):
        bus = areas(evolve)
        bus.place("area", ints(0), np.zeros(1), np.zeros(1), 1.0, 1.0, vx=10.0, since=0.5)
        seen = []
        for at in (0.4, 0.6, 1.4, 1.6, 1.7):
            # One message where it is, one where it was at 0.6, one where it was at 1.5.
            x = np.array([10.0 * (at - 0.5), 1.0, 10.0])
            bus.publish_at("area", Messages(MessageKind.UPDATE, 3, x=x), at)
            seen.append(bus.turn(at).message.tolist())
        answers[evolve.design] = seen
    exact = [[], [0, 1], [0, 2], [0, 2], [0]]
    assert answers["exact"] == exact
    assert answers["lees"] == exact
    # Versions of 0.5 (around 0) and, from 1.5 on, of 1.5 (around 10).
    assert answers["pes"] == [[], [0, 1], [1], [0, 2], [2]]
    # A version of 0.6 (around 1), good up to and with 1.6; then one of 1.7.
    assert answers["clees"] == [[], [0, 1], [1], [1], [0]]


def test_versions_are_made_by_publications_only() -> None:
    bus = areas(Evolve("clees", 1.0))
    bus.place("area", ints(0), np.zeros(1), np.zeros(1), 1.0, 1.0, vx=10.0)
    bus.publish_at("area", Messages.none(), 0.0)
    bus.publish_at("area", about(5, x=9.0), 0.9)
    assert told(bus.turn(1.0)) == [(5, 0)]


# -- counting -----------------------------------------------------------------------------------


def test_bytes_are_those_of_topics_and_payloads() -> None:
    bus = tiles(retained=True)
    bus.areas("area", AREA)
    bus.join("tile", ints(1, 2, 3), ints(7, 7, 1234))
    bus.place("area", ints(0, 1), np.zeros(2), np.zeros(2), 1.0, 1.0)
    replicas = Messages(MessageKind.REPLICA, 2, entity=ints(10, 11), x=np.array([1.0, -200.0]))
    bus.publish("tile", ints(7, 99), replicas)
    updates = about(5, 6)
    bus.publish("tile", ints(1234, 7), updates)
    bus.publish_at("area", updates, 0.0)
    bus.join("tile", ints(4), ints(99))
    sizes = {
        line: len(topic_text(TILE, topic)) + len(payload(batch, at))
        for line, (topic, batch, at) in enumerate(
            [(7, replicas, 0), (99, replicas, 1), (1234, updates, 0), (7, updates, 1)]
        )
    }
    areal = [len(AREA) + len(payload(updates, line)) for line in range(2)]
    counters = bus.counters
    assert counters.published.tolist() == [4, 2, 0, 0, 0]
    assert counters.delivered.tolist() == [1 + 2 + 2 * 2, 2 + 1, 0, 0, 0]
    assert counters.published_bytes[MessageKind.REPLICA] == sizes[0] + sizes[1]
    assert counters.delivered_bytes[MessageKind.REPLICA] == 2 * sizes[0] + sizes[1]
    assert counters.published_bytes[MessageKind.UPDATE] == sizes[2] + sizes[3] + sum(areal)
    assert counters.delivered_bytes[MessageKind.UPDATE] == sizes[2] + 2 * sizes[3] + 2 * sum(areal)


def test_matching_is_timed_by_the_clock_that_is_handed_in() -> None:
    ticks = iter(range(0, 1000, 7))
    bus = ArrayBus(timer=lambda: next(ticks))
    bus.topics("tile", TILE)
    bus.publish("tile", ints(1), about(1))
    bus.publish("tile", ints(1), about(1))
    assert bus.counters.matching_ns == 14


# -- mistakes -----------------------------------------------------------------------------------


def second_table(bus: ArrayBus) -> None:
    bus.areas("tile", AREA)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (second_table, "already a table tile"),
        (lambda bus: bus.topics("tile", TILE), "already a table tile"),
        (lambda bus: bus.join("til", ints(1), ints(1)), "no table til; there are tile, area"),
        (lambda bus: bus.lift("tile", ints(1)), "the table tile is not of areas"),
        (lambda bus: bus.publish("area", ints(1), about(1)), "the table area is not of topics"),
        (lambda bus: bus.join("tile", ints(1, 2), ints(1)), "1 topics do not pair with 2 subscr"),
        (lambda bus: bus.join("tile", ints(-3), ints(1)), "no subscriber -3; numbers begin with 0"),
        (lambda bus: bus.publish("tile", ints(-1), about(1)), "no topic -1"),
        (lambda bus: bus.publish("tile", ints(1), about(1, 2)), "2 messages were given 1 topics"),
        (lambda bus: place(bus, 0, x=math.nan), "a rectangle of area has a number that is not"),
        (lambda bus: place(bus, -1), "no rectangle -1"),
        (lambda bus: bus.turn(-1.0), "it is -1.0 s after it was 0.5 s"),
        (lambda bus: bus.publish_at("area", about(1), math.nan), "time never goes back"),
        (lambda bus: bus.topics("new", "world/tile"), "the form world/tile of a topic"),
    ],
)
def test_mistakes_are_named(mistake: Callable[[ArrayBus], None], complaint: str) -> None:
    bus = tiles()
    bus.areas("area", AREA)
    bus.turn(0.5)
    with pytest.raises(WorldError, match=complaint):
        mistake(bus)


def test_a_design_without_its_time_is_refused() -> None:
    with pytest.raises(LanguageError, match="pes needs an interval"):
        ArrayBus().areas("area", AREA, Evolve("pes"))


# -- all together, against an obvious bus ---------------------------------------------------------


class ObviousBus:
    """Topics and rectangles at rest, one by one, with sets."""

    def __init__(self, retained: bool) -> None:
        self.retained = retained
        self.joined: set[tuple[int, int]] = set()
        self.everywhere: set[int] = set()
        self.last: dict[int, int] = {}
        self.rectangles: dict[int, tuple[float, float, int]] = {}
        self.told: list[tuple[int, int, int]] = []
        """Entity, receiver, topic or rectangle."""
        self.operations = [0, 0]
        self.deliveries = 0

    def join(self, topic: int, subscriber: int) -> None:
        if (topic, subscriber) not in self.joined:
            self.joined.add((topic, subscriber))
            self.operations[0] += 1
            if self.retained and topic in self.last:
                self.told.append((self.last[topic], subscriber, topic))
                self.deliveries += 1

    def leave(self, topic: int, subscriber: int) -> None:
        self.operations[1] += (topic, subscriber) in self.joined
        self.joined.discard((topic, subscriber))

    def publish(self, topic: int, entity: int) -> None:
        receivers = {s for t, s in self.joined if t == topic} | self.everywhere
        self.told += [(entity, receiver, topic) for receiver in sorted(receivers)]
        self.deliveries += len(receivers)
        self.last[topic] = entity

    def place(self, number: int, x: float, y: float, receiver: int) -> None:
        self.operations[0] += 1
        self.operations[1] += number in self.rectangles
        self.rectangles[number] = (x, y, receiver)

    def lift(self, number: int) -> None:
        self.operations[1] += self.rectangles.pop(number, None) is not None

    def publish_at(self, x: float, y: float, entity: int) -> None:
        found = sorted(
            (receiver, number)
            for number, (centre_x, centre_y, receiver) in self.rectangles.items()
            if abs(x - centre_x) <= 3.0 and abs(y - centre_y) <= 2.0
        )
        self.told += [(entity, receiver, number) for receiver, number in found]
        self.deliveries += len({receiver for receiver, _ in found})


@pytest.mark.parametrize("seed", range(12))
def test_many_calls_against_an_obvious_bus(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bus, obvious = tiles(retained=seed % 2 == 0), ObviousBus(retained=seed % 2 == 0)
    bus.areas("area", AREA)
    if seed % 3 == 0:
        bus.join_all("tile", 4)
        obvious.everywhere.add(4)
        obvious.operations[0] += 1
    for at in range(40):
        for _ in range(5):
            random_call(rng, bus, obvious, float(at))
        found = bus.turn(float(at))
        entities = found.messages.entity[found.message].tolist()
        columns = (entities, found.receiver.tolist(), found.subscription.tolist())
        assert list(zip(*columns, strict=True)) == obvious.told
        obvious.told.clear()
        assert [bus.counters.subscribes, bus.counters.unsubscribes] == obvious.operations
        subscriptions = len(obvious.joined) + len(obvious.everywhere) + len(obvious.rectangles)
        assert bus.counters.subscriptions == subscriptions
        assert bus.counters.delivered[MessageKind.UPDATE] == obvious.deliveries


def random_call(rng: np.random.Generator, bus: ArrayBus, obvious: ObviousBus, at: float) -> None:
    count = int(rng.integers(0, 9))
    ones, others, third = rng.integers(0, 12, (3, count)).astype(np.int32)
    call = rng.integers(0, 6)
    if call == 0:
        bus.join("tile", others, ones)
        for topic, subscriber in sorted(zip(ones.tolist(), others.tolist(), strict=True)):
            obvious.join(topic, subscriber)
    elif call == 1:
        bus.leave("tile", others, ones)
        for topic, subscriber in zip(ones.tolist(), others.tolist(), strict=True):
            obvious.leave(topic, subscriber)
    elif call == 2:
        bus.publish("tile", ones, about(*others.tolist()))
        for topic, entity in zip(ones.tolist(), others.tolist(), strict=True):
            obvious.publish(topic, entity)
    elif call == 3:
        numbers = rng.permutation(12)[:count].astype(np.int32)
        x, y = others.astype(np.float64), third.astype(np.float64)
        receivers = numbers // 3
        bus.place("area", numbers, x, y, 3.0, 2.0, receivers=receivers)
        columns = (numbers.tolist(), x.tolist(), y.tolist(), receivers.tolist())
        for number, centre_x, centre_y, receiver in zip(*columns, strict=True):
            obvious.place(number, centre_x, centre_y, receiver)
    elif call == 4:
        numbers = rng.permutation(14)[: count // 3].astype(np.int32)
        bus.lift("area", numbers)
        for number in numbers.tolist():
            obvious.lift(number)
    else:
        x, y = others.astype(np.float64), third.astype(np.float64)
        bus.publish_at("area", Messages(MessageKind.UPDATE, count, entity=ones, x=x, y=y), at)
        for entity, at_x, at_y in zip(ones.tolist(), x.tolist(), y.tolist(), strict=True):
            obvious.publish_at(at_x, at_y, entity)
