"""Who has a copy of what, against a dictionary."""

import numpy as np
import pytest

from rove.world.engines.bus import Deliveries
from rove.world.engines.messages import MessageKind, Messages
from rove.world.engines.replicas import Replicas
from rove.world.runs.state import Ints, WorldError

Model = dict[tuple[int, int], tuple[float, ...]]
"""Version, x, y, vx, vy, tick of each pair of client and entity."""


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def put(
    replicas: Replicas,
    clients: list[int],
    entities: list[int],
    versions: list[int],
    x: float = 0.0,
    tick: int = 0,
) -> None:
    count = len(clients)
    numbers = np.array(versions, np.int64)
    zeros, ticks = np.zeros(count), np.full(count, tick)
    replicas.put(ints(*clients), ints(*entities), numbers, zeros + x, zeros, zeros, zeros, ticks)


def versions_of(replicas: Replicas) -> dict[tuple[int, int], int]:
    copies = replicas.all()
    pairs = zip(copies.client.tolist(), copies.entity.tolist(), strict=True)
    return dict(zip(pairs, copies.version.tolist(), strict=True))


def test_a_lower_version_never_overwrites_a_higher_one() -> None:
    replicas = Replicas()
    put(replicas, [1], [7], [5], x=1.0, tick=10)
    put(replicas, [1], [7], [4], x=2.0, tick=11)
    assert replicas.of(1).x.tolist() == [1.0]
    put(replicas, [1], [7], [5], x=3.0, tick=12)
    assert (replicas.of(1).x.tolist(), replicas.of(1).tick.tolist()) == ([3.0], [12])
    put(replicas, [1], [7], [6], x=4.0, tick=13)
    assert (replicas.of(1).x.tolist(), replicas.of(1).version.tolist()) == ([4.0], [6])


def test_of_several_at_once_the_last_of_the_highest_stays() -> None:
    replicas = Replicas()
    for _ in range(2):  # first new, then known
        replicas.put(
            ints(1, 1, 1, 1),
            ints(7, 7, 7, 7),
            np.array([3, 5, 5, 4]),
            np.array([30.0, 50.0, 51.0, 40.0]),
            *(np.zeros(4),) * 3,
            np.zeros(4, np.int64),
        )
        assert replicas.of(1).x.tolist() == [51.0]
        assert len(replicas) == 1


def test_they_stand_by_entity_then_client() -> None:
    replicas = Replicas()
    put(replicas, [3, 0, 1, 2], [5, 6, 6, 5], [1, 1, 1, 1])
    clients, entities = replicas.pairs()
    assert entities.tolist() == [5, 5, 6, 6]
    assert clients.tolist() == [2, 3, 0, 1]
    assert replicas.of(2).entity.tolist() == [5]
    assert replicas.of(9).entity.tolist() == []
    assert replicas.has(ints(1, 2, 9), ints(6, 6, 6)).tolist() == [True, False, False]


def test_dropping_pairs_and_lines() -> None:
    replicas = Replicas()
    put(replicas, [0, 1, 2, 3], [5, 5, 5, 5], [1, 1, 1, 1])
    replicas.drop(ints(2, 9, 0), ints(5, 5, 5))
    assert replicas.pairs()[0].tolist() == [1, 3]
    replicas.drop_where(np.array([True, False]))
    assert replicas.pairs()[0].tolist() == [3]
    with pytest.raises(WorldError, match="2 flags were given for 1 replicas"):
        replicas.drop_where(np.array([True, False]))


def test_between_messages_a_replica_goes_on_as_it_went() -> None:
    replicas = Replicas()
    replicas.put(
        ints(0, 0),
        ints(1, 2),
        np.array([1, 1]),
        np.array([10.0, 20.0]),
        np.array([1.0, 2.0]),
        np.array([2.0, 0.0]),
        np.array([-4.0, 0.5]),
        np.array([100, 104]),
    )
    x, y = replicas.positions(104, 0.25)
    assert x.tolist() == [12.0, 20.0]
    assert y.tolist() == [-3.0, 2.0]


def delivered() -> Deliveries:
    whats = np.array([MessageKind.UPDATE, MessageKind.LEFT, MessageKind.REPLICA], np.int8)
    messages = Messages(whats, 3, entity=np.array([7, 8, 9]), version=2, x=5.0, tick=4)
    lines = ints(0, 0, 1, 2)
    return Deliveries(0.4, messages, lines, ints(0, 1, 0, 1), lines)


def test_receivers_of_updates_and_replicas_know_them() -> None:
    replicas = Replicas()
    replicas.put_delivered(delivered())
    assert versions_of(replicas) == {(0, 7): 2, (1, 7): 2, (1, 9): 2}
    assert replicas.of(0).tick.tolist() == [4]


def test_a_copy_is_changed_apart() -> None:
    replicas = Replicas()
    put(replicas, [1], [7], [1])
    twin = replicas.copy()
    put(twin, [1, 2], [7, 7], [5, 5])
    assert versions_of(replicas) == {(1, 7): 1}
    assert versions_of(twin) == {(1, 7): 5, (2, 7): 5}


@pytest.mark.parametrize("seed", range(10))
def test_many_changes_against_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    replicas, model = Replicas(), Model()
    for _ in range(60):
        count = int(rng.integers(0, 40))
        clients, entities = rng.integers(0, 9, (2, count)).astype(np.int32)
        if rng.random() < 0.3:
            order = np.lexsort((clients, entities))
            clients, entities = clients[order], entities[order]
        pairs = list(zip(clients.tolist(), entities.tolist(), strict=True))
        if rng.random() < 0.3:
            replicas.drop(clients, entities)
            for pair in pairs:
                model.pop(pair, None)
        else:
            versions, ticks = rng.integers(0, 9, count), rng.integers(0, 99, count)
            x, y, vx, vy = rng.normal(0, 1, (4, count))
            replicas.put(clients, entities, versions, x, y, vx, vy, ticks)
            columns = [column.tolist() for column in (versions, x, y, vx, vy, ticks)]
            for pair, told in zip(pairs, zip(*columns, strict=True), strict=True):
                if pair not in model or told[0] >= model[pair][0]:
                    model[pair] = told
        check(replicas, model)


def check(replicas: Replicas, model: Model) -> None:
    copies = replicas.all()
    columns = [column.tolist() for column in copies[2:]]
    pairs = zip(copies.client.tolist(), copies.entity.tolist(), strict=True)
    assert dict(zip(pairs, zip(*columns, strict=True), strict=True)) == model
    assert len(replicas) == len(model)
    clients, entities = replicas.pairs()
    in_order = sorted(model, key=lambda pair: (pair[1], pair[0]))
    assert list(zip(clients.tolist(), entities.tolist(), strict=True)) == in_order
