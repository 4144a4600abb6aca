"""What roles share."""

from __future__ import annotations

import numpy as np

from rove.world.engines.bus import Deliveries
from rove.world.engines.messages import MessageKind, Messages
from rove.world.engines.roles import ClientReplicas, Ownership, asked, grown, told
from rove.world.runs.state import Clients, Ints

CLIENTS = Clients(np.array([5, 6, 7], np.int32), 3.0, 2.0)


def _ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def _deliveries(
    whats: list[MessageKind], entities: list[int], pairs: list[tuple[int, int]], version: int = 1
) -> Deliveries:
    """Messages, and who gets which: (message, receiver)."""
    messages = Messages(
        np.array(whats, np.int8),
        len(whats),
        entity=_ints(*entities),
        version=version,
        x=np.arange(len(whats), dtype=np.float64),
        tick=4,
    )
    lines, receivers = _ints(*(pair[0] for pair in pairs)), _ints(*(pair[1] for pair in pairs))
    return Deliveries(0.4, messages, lines, receivers, lines + np.int32(100))


def test_one_owns_everything_or_some_numbers() -> None:
    column = _ints(3, 1, 3, 2)
    assert Ownership().among(column).tolist() == [0, 1, 2, 3]
    assert Ownership([3, 2]).among(column).tolist() == [0, 2, 3]
    assert Ownership([]).among(column).tolist() == []


def test_columns_grow() -> None:
    assert grown(_ints(1, 2), 4, 9).tolist() == [1, 2, 9, 9]
    assert grown(_ints(1, 2), 1).tolist() == [1, 2]
    assert grown(np.zeros((1, 2)), 2, np.nan).shape == (2, 2)


def test_clients_are_told_of_others_only() -> None:
    whats = [MessageKind.UPDATE, MessageKind.REPLICA, MessageKind.REQUEST, MessageKind.LEFT]
    pairs = [(0, 0), (0, 1), (1, 2), (1, 1_000), (2, 1_000), (3, 0), (3, 2)]
    deliveries = _deliveries(whats, [5, 9, 0, 7], pairs)
    lines, clients = told(deliveries, CLIENTS, MessageKind.UPDATE)
    assert list(zip(lines.tolist(), clients.tolist(), strict=True)) == [(0, 1)]
    lines, clients = told(deliveries, CLIENTS, MessageKind.REPLICA)
    assert list(zip(lines.tolist(), clients.tolist(), strict=True)) == [(1, 2)]
    lines, clients = told(deliveries, CLIENTS, MessageKind.LEFT)
    assert list(zip(lines.tolist(), clients.tolist(), strict=True)) == [(3, 0)]
    requests = asked(deliveries, MessageKind.REQUEST)
    assert (requests.message.tolist(), requests.receiver.tolist()) == ([2], [1_000])
    assert requests.subscription.tolist() == [102]


def test_kinds_may_be_mixed() -> None:
    whats = [MessageKind.REQUEST, MessageKind.UPDATE, MessageKind.REQUEST, MessageKind.UPDATE]
    deliveries = _deliveries(whats, [1, 2, 3, 4], [(0, 1_000), (1, 0), (2, 1_001), (3, 1)])
    assert asked(deliveries, MessageKind.REQUEST).receiver.tolist() == [1_000, 1_001]
    assert told(deliveries, CLIENTS, MessageKind.UPDATE)[0].tolist() == [1, 3]
    assert len(asked(deliveries, MessageKind.AREA_REQUEST)) == 0


def test_what_has_left_is_dropped_unless_it_is_known_where_it_is() -> None:
    known = ClientReplicas()
    pairs = [(0, 0), (0, 1), (1, 0)]
    known.put_told(
        _deliveries([MessageKind.REPLICA] * 2, [8, 9], pairs, 3), CLIENTS, MessageKind.REPLICA
    )
    assert len(known) == 3
    known.drop_left(_deliveries([MessageKind.LEFT], [8], [(0, 0), (0, 1), (0, 2)], 3), CLIENTS)
    assert len(known) == 3
    known.drop_left(_deliveries([MessageKind.UPDATE], [8], [(0, 0)], 4), CLIENTS)
    assert len(known) == 3
    known.drop_left(_deliveries([MessageKind.LEFT], [8], [(0, 1), (0, 2)], 4), CLIENTS)
    assert [column.tolist() for column in known.pairs()] == [[0, 0], [8, 9]]


def test_what_is_out_of_sight_is_dropped() -> None:
    known = ClientReplicas()
    one = np.ones(4, np.int64)
    x, still = np.array([1.0, 4.0, 4.0005, 2.0]), np.zeros(4)
    vx = np.array([0.0, 0.0, 0.0, 1.0])
    entities, clients = _ints(1, 2, 3, 4), _ints(0, 0, 0, 0)
    known.put(clients, entities, one, x, still, vx, still, 5 * one)
    sights = np.array([[0.0, 4.0, -1.0, 1.0]])
    dropped = known.copy()
    assert isinstance(known.drop_out_of_sight(sights, tolerance_m=0.001, moving_since=5), tuple)
    assert known.pairs()[1].tolist() == [1, 2, 3, 4]
    clients, entities = known.drop_out_of_sight(sights)
    assert (clients.tolist(), entities.tolist()) == ([0], [3])
    # The fourth moves, and was heard of at tick 5.
    assert known.drop_out_of_sight(sights, moving_since=6)[1].tolist() == [4]
    assert known.pairs()[1].tolist() == [1, 2]
    assert len(dropped) == 4
