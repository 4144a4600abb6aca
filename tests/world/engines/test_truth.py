"""Who ought to know what, and histories made by hand."""

import numpy as np
import pytest

from rove.world.engines.bus import EngineCounters
from rove.world.engines.replicas import Replicas
from rove.world.engines.truth import GroundTruth, ReplicaChecker, ReplicaErrors
from rove.world.runs.state import Clients, Entities, EntityKind, WorldError


def world(x: list[float], y: list[float]) -> Entities:
    entities = Entities()
    entities.add(EntityKind.PLAYER, [f"p{i}" for i in range(len(x))], np.array(x), np.array(y))
    return entities


def pairs(truth: GroundTruth) -> list[tuple[int, int]]:
    clients, entities = truth.pairs()
    return list(zip(clients.tolist(), entities.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_pairs_against_asking_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    # Whole metres, so that many lie on a border.
    entities = world(*rng.integers(0, 40, (2, count)).astype(np.float64).tolist())
    avatars = rng.permutation(count)[: rng.integers(0, count + 1)].astype(np.int32)
    truth = GroundTruth()
    truth.step(entities, Clients(avatars, 6.0, 4.0), 0)
    obvious = [
        (client, entity)
        for entity in range(count)
        for client, avatar in enumerate(avatars.tolist())
        if entity != avatar
        and abs(entities.x[entity] - entities.x[avatar]) <= 6.0
        and abs(entities.y[entity] - entities.y[avatar]) <= 4.0
    ]
    assert pairs(truth) == obvious


def test_the_border_belongs_to_it_and_the_avatar_does_not() -> None:
    entities = world([0.0, 3.0, -3.0, 3.0000001], [0.0, 2.0, -2.0, 0.0])
    truth = GroundTruth()
    truth.step(entities, Clients(np.array([0], np.int32), 3.0, 2.0), 0)
    assert pairs(truth) == [(0, 1), (0, 2)]


def test_a_stay_is_counted_from_its_unbroken_beginning() -> None:
    entities = world([0.0, 1.0], [0.0, 0.0])
    clients = Clients(np.array([0], np.int32), 3.0, 3.0)
    truth = GroundTruth()
    since: list[list[int]] = []
    for tick, x in enumerate([1.0, 2.0, 9.0, 3.0, 3.0]):
        entities.x[1] = x
        truth.step(entities, clients, tick)
        since.append(truth.since.tolist())
    assert since == [[0], [0], [], [3], [3]]


def test_ticks_come_one_by_one() -> None:
    truth = GroundTruth()
    clients = Clients(np.array([0], np.int32), 1.0, 1.0)
    truth.step(world([0.0], [0.0]), clients, 40)
    with pytest.raises(WorldError, match="tick 42 follows tick 40"):
        truth.step(world([0.0], [0.0]), clients, 42)


class History:
    """A client at 0 and a thing that is in sight at some ticks; what the client has is said."""

    def __init__(self, delay_ticks: int) -> None:
        self.entities = world([0.0, 0.0], [0.0, 0.0])
        self.clients = Clients(np.array([0], np.int32), 10.0, 10.0)
        self.truth = GroundTruth()
        self.counters = EngineCounters()
        self.checker = ReplicaChecker(delay_ticks, self.counters)
        self.replicas = Replicas()
        self.verdicts: list[ReplicaErrors] = []

    def tick(self, *, seen: bool, told: bool = False, changed: bool = False) -> None:
        self.entities.x[1] = 5.0 if seen else 50.0
        self.entities.version[1] += changed
        tick = len(self.verdicts)
        self.truth.step(self.entities, self.clients, tick)
        if told:
            one = np.array([1], np.int32)
            zero, none = np.zeros(1), np.zeros(1, np.int32)
            version = self.entities.version[1:]
            self.replicas.put(none, one, version, zero, zero, zero, zero, np.array([tick]))
        self.verdicts.append(self.checker.check(self.truth, self.replicas))

    def ticks_with(self, what: str) -> list[int]:
        return [tick for tick, verdict in enumerate(self.verdicts) if getattr(verdict, what)]


def test_a_pair_is_missing_when_it_ought_to_be_for_longer_than_the_delay() -> None:
    history = History(delay_ticks=2)
    for tick in range(12):
        history.tick(seen=tick >= 5, told=tick == 9)
        clients, entities = history.checker.missing()
        assert (clients.tolist(), entities.tolist()) == (([0], [1]) if tick == 8 else ([], []))
    assert history.ticks_with("missing") == [8]
    assert history.counters.missing_ticks == 1
    assert history.counters.row(0.1)["missing_s"] == 0.1


@pytest.mark.parametrize(("delay", "missing"), [(0, [6, 7, 8]), (1, [7, 8]), (3, []), (9, [])])
def test_other_delays(delay: int, missing: list[int]) -> None:
    history = History(delay)
    for tick in range(12):
        history.tick(seen=tick >= 5, told=tick == 9)
    assert history.ticks_with("missing") == missing


def test_a_pair_that_comes_again_is_given_time_again() -> None:
    history = History(delay_ticks=1)
    for tick in range(10):
        history.tick(seen=tick not in (3, 4))
    assert history.ticks_with("missing") == [2, 7, 8, 9]


def test_what_leaves_in_time_was_never_missing() -> None:
    history = History(delay_ticks=2)
    for tick in range(12):
        history.tick(seen=tick % 4 != 3)
    assert history.verdicts == [ReplicaErrors(0, 0, 0)] * 12


def test_a_replica_is_stale_when_the_entity_had_a_later_version_a_delay_ago() -> None:
    history = History(delay_ticks=2)
    for tick in range(14):
        history.tick(seen=True, told=tick in (0, 10), changed=tick == 5)
        assert history.checker.stale()[1].tolist() == ([1] if tick in (7, 8, 9) else [])
    assert history.ticks_with("stale") == [7, 8, 9]
    assert history.counters.stale_ticks == 3
    assert history.ticks_with("missing") == []


def test_an_old_replica_is_given_time_when_its_entity_comes_again() -> None:
    history = History(delay_ticks=2)
    for tick in range(12):
        history.tick(seen=tick < 2 or tick >= 6, told=tick == 0, changed=tick == 3)
    assert history.ticks_with("extra") == [2, 3, 4, 5]
    assert history.ticks_with("stale") == [9, 10, 11]
    assert history.counters.extra_ticks == 4


def test_entities_that_are_born_later() -> None:
    history = History(delay_ticks=1)
    history.tick(seen=True, told=True)
    history.entities.add(EntityKind.ITEM, ["apple"], np.array([1.0]), np.array([1.0]))
    for _ in range(3):
        history.tick(seen=True)
    assert history.ticks_with("missing") == [3]


def test_a_delay_that_cannot_be_is_refused() -> None:
    with pytest.raises(WorldError, match="a delay of -1 ticks; it is from 0 to 100"):
        ReplicaChecker(-1, EngineCounters())
    with pytest.raises(WorldError, match="a delay of 101 ticks"):
        ReplicaChecker(101, EngineCounters())
