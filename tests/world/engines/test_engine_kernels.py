"""Compiled loops of the engines, against obvious ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rove.world.engines.engine_kernels import (
    FOLLOWED_COLUMNS,
    SLACK_M,
    add_length_bytes,
    add_whole_number_bytes,
    are_asked_for,
    are_elsewhere,
    exchanged,
    follow,
    tally,
    views_at,
)
from rove.world.runs.state import Flags, Floats, Ints


class Followed:
    """One client that moves, and what a subscription and the questions make it know."""

    def __init__(self, *, evolves: bool, ahead_s: float, lag_s: float, reach: float = 10.0) -> None:
        self.lines = np.zeros((1, FOLLOWED_COLUMNS))
        self.evolves, self.ahead_s, self.lag_s = evolves, ahead_s, lag_s
        self.reaches = np.array([reach, reach, reach / 4, reach / 4])
        self.rectangle: Floats = np.zeros(6)
        self.since = 0.0
        self.places = self.questions = 0

    def follow(self, at: float, x: float, y: float, vx: float, vy: float) -> Floats | None:
        """The question, if there is one."""
        motion = tuple(np.array([value]) for value in (x, y, vx, vy))
        number, no = np.zeros(1, np.int32), np.zeros(1, np.bool_)
        placed, rectangles, asking, questions = follow(
            self.lines,
            number,
            number,
            motion,
            no,
            self.reaches,
            self.evolves,
            self.ahead_s,
            self.lag_s,
            at,
        )
        if len(placed):
            self.rectangle, self.since = rectangles[0], at
        self.places += len(placed)
        self.questions += len(asking)
        return questions[0] if len(asking) else None

    def holds(self, at: float, lag_s: float, x: Floats, y: Floats) -> Flags:
        """Which points the rectangle holds, evaluated up to `lag_s` late."""
        cx, cy, half_x, half_y, vx, vy = self.rectangle
        seconds = max(at - lag_s, self.since) - self.since
        inside: Flags = (np.abs(x - cx - vx * seconds) <= half_x) & (
            np.abs(y - cy - vy * seconds) <= half_y
        )
        return inside


@pytest.mark.parametrize("evolves", [False, True])
@pytest.mark.parametrize("lag_s", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_seen_is_subscribed_and_asked_for(evolves: bool, lag_s: float, seed: int) -> None:
    """Things at rest change at random; who looks has to know them as they are."""
    rng = np.random.default_rng(seed)
    client = Followed(evolves=evolves, ahead_s=0.5, lag_s=lag_s if evolves else 0.0)
    things_x, things_y = rng.uniform(0, 60, (2, 400))
    versions = np.zeros(400, np.int64)
    known = np.full(400, -1)
    x, y, vx, vy = 30.0, 30.0, 0.0, 0.0
    for tick in range(400):
        at = tick / 10
        x, y = x + vx / 10, y + vy / 10
        if rng.random() < 0.1:
            vx, vy = rng.choice([0.0, 1.0, -2.0, 5.0, -30.0], 2)
        if rng.random() < 0.02 or not (0 < x < 60 and 0 < y < 60):
            x, y = rng.uniform(5, 55, 2)
        question = client.follow(at, x, y, vx, vy)
        # Some change; who has a rectangle there hears it, however late it is evaluated.
        versions[(changed := rng.random(400) < 0.02)] += 1
        late = rng.uniform(0, client.lag_s) if client.lag_s else 0.0
        heard = changed & client.holds(at, late, things_x, things_y)
        known[heard] = versions[heard]
        if question is not None:
            qx, qy, half_x, half_y, former_x, former_y = question
            asked = (np.abs(things_x - qx) <= half_x) & (np.abs(things_y - qy) <= half_y)
            former = (np.abs(things_x - former_x) <= half_x) & (
                np.abs(things_y - former_y) <= half_y
            )
            shown = asked & ~former
            known[shown] = versions[shown]
        seen = (np.abs(things_x - x) <= 10) & (np.abs(things_y - y) <= 10)
        assert np.array_equal(known[seen], versions[seen])
        low_x, high_x, low_y, high_y = views_at(client.lines, at)[0]
        assert low_x <= x - 10 <= x + 10 <= high_x
        assert low_y <= y - 10 <= y + 10 <= high_y
    assert client.questions < 400


def test_rectangles_are_placed_no_more_often_than_needed() -> None:
    lying = Followed(evolves=False, ahead_s=0.5, lag_s=0.0)
    evolving = Followed(evolves=True, ahead_s=0.5, lag_s=0.0)
    for tick in range(101):
        for client in (lying, evolving):
            client.follow(tick / 10, 0.1 * tick, 0.0, 1.0, 0.0)
    assert (lying.places, lying.questions) == (21, 21)
    assert (evolving.places, evolving.questions) == (1, 21)


def test_what_is_known_is_not_asked_for() -> None:
    client = Followed(evolves=True, ahead_s=0.5, lag_s=0.0)
    first = client.follow(0.0, 0.0, 0.0, 0.0, 0.0)
    assert first is not None
    assert first.tolist()[:4] == [0.0, 0.0, 10 + SLACK_M, 10 + SLACK_M]
    assert np.isnan(first[4:]).all()
    setting_out = client.follow(1.0, 0.0, 0.0, 2.0, 0.0)
    assert setting_out is not None
    x, _, half_x, _, former_x, former_y = setting_out
    # The view is a metre longer in front; of it all is known but that metre.
    assert (x, half_x, former_y) == (0.5, 10 + SLACK_M + 0.5, 0.0)
    assert former_x + half_x == pytest.approx(10 + SLACK_M, abs=0.01)
    assert client.follow(1.2, 0.4, 0.0, 0.0, 0.0) is None
    assert client.places == 3


def test_who_is_asked_for() -> None:
    message, asked = np.array([0, 0, 0, 1, 1], np.int32), np.array([0, 1, 2, 2, 3], np.int32)
    own = np.array([0, 9], np.int32)
    x, y = np.array([0.0, 1.0, 3.0, 9.0]), np.zeros(4)
    nan = math.nan
    questions = tuple(
        np.array(column)
        for column in ([0.0, 0.0], [0.0, 0.0], [4.0, 4.0], [1.0, 1.0], [-3.0, nan], [0.0, nan])
    )
    # 0 is who asks, 1 was in the former view, 2 is new to both, 3 is too far away.
    wanted = are_asked_for(message, asked, own, x, y, questions)
    assert wanted.tolist() == [False, False, True, False]


def _rows(rng: np.random.Generator, count: int) -> list[list[int]]:
    return [sorted(set(rng.integers(0, 9, rng.integers(0, 6)).tolist())) for _ in range(count)]


def _flat(rows: list[list[int]]) -> tuple[Ints, Ints]:
    starts = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)
    members = np.array([member for row in rows for member in row], np.int32)
    return starts, members  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(20))
def test_exchanges_are_those_of_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 8))
    old, new = _rows(rng, count), _rows(rng, count)
    lines = [line for line in range(count) if rng.random() < 0.6]
    starts, members, *changes = exchanged(
        *_flat(old), np.array(lines, np.int32), *_flat([new[line] for line in lines])
    )
    expected = [new[line] if line in lines else old[line] for line in range(count)]
    assert [members[starts[i] : starts[i + 1]].tolist() for i in range(count)] == expected
    joined, joined_members, left, left_members = (column.tolist() for column in changes)
    assert list(zip(joined, joined_members, strict=True)) == [
        (line, member) for line in lines for member in new[line] if member not in old[line]
    ]
    assert list(zip(left, left_members, strict=True)) == [
        (line, member) for line in lines for member in old[line] if member not in new[line]
    ]


@pytest.mark.parametrize("seed", range(10))
def test_who_is_elsewhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = _rows(rng, 6)
    starts, topics = _flat(rows)
    topic_of = rng.integers(0, 9, 5).astype(np.int32)
    looked_at = rng.random(6) < 0.5
    pairs = [(entity, client) for entity in range(5) for client in range(6) if rng.random() < 0.7]
    keys = np.array([(entity << 32) | client for entity, client in pairs], np.int64)
    gone = are_elsewhere(keys, topic_of, looked_at, starts, topics)
    # Topic 0, for what is in no tile, is everybody's.
    assert gone.tolist() == [
        bool(looked_at[client]) and topic_of[entity] not in (0, *rows[client])
        for entity, client in pairs
    ]


def edges() -> list[int]:
    powers = [10**exponent for exponent in range(18)]
    return sorted(
        {sign * (power + by) for power in powers for by in (-1, 0, 1) for sign in (1, -1)}
    )


def test_whole_numbers_are_as_long_as_their_text() -> None:
    values = np.array(edges())
    sizes = np.full(len(values), 3)
    add_whole_number_bytes(values, sizes)
    assert sizes.tolist() == [3 + len(str(value)) for value in values.tolist()]


def test_lengths_are_as_long_as_their_millimetres() -> None:
    metres = np.array([edge / 1000 for edge in edges() if abs(edge) < 10**12] + [-0.0, -0.0004])
    sizes = np.zeros(len(metres), np.int64)
    add_length_bytes(metres, sizes)
    in_millimetres = [round(value * 1000) for value in metres.tolist()]
    texts = [("-" if mm < 0 else "") + f"{abs(mm) // 1000}.000" for mm in in_millimetres]
    assert sizes.tolist() == [len(text) for text in texts]


def test_no_length_is_null() -> None:
    sizes = np.zeros(1, np.int64)
    add_length_bytes(np.array([np.nan]), sizes)
    assert sizes.tolist() == [len("null")]


def test_messages_are_tallied_by_kind() -> None:
    totals, total_bytes = np.array([1, 0, 0]), np.zeros(3, np.int64)
    whats = np.array([2, 0, 2], np.int8)
    tally(whats, np.array([4, 1, 0]), np.array([10, 7, 1000]), totals, total_bytes)
    assert totals.tolist() == [2, 0, 4]
    assert total_bytes.tolist() == [7, 0, 40]
