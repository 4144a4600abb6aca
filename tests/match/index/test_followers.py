"""Following subscriptions over a stretch of the past, against the judge of the language."""

import random

import numpy as np
import pytest

from rove.lang.normal import normalise
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.match.index.followers import POSITION, Follower, FollowingIndex, States
from rove.match.index.subjects import Subjects
from tests.effort import some

TEXTS = (
    "x BETWEEN me.x - 2 AND me.x + 2",
    "x > me.x",
    "x < me.x AND x > 1",
    "x >= me.x * 2 - me.y / 4",
    "x <= -me.x",
    "x = me.x",
    "x != me.x",
    "kind = me.kind",
    "kind < me.kind AND x > 0",
    "kind IN ('car', 'bus') AND kind >= me.kind",
    "(x < 2 OR x > 5) AND x < me.x",
    "x > me.x OR kind = me.kind",
    "NOT (x < me.x) AND kind LIKE 'c%'",
    "me.kind = 'car' AND x > 3",
    "me.x IS NULL AND x > 3",
    "me.x < me.y AND x > me.x",
    "x + y > me.x",
    "x - me.x > 1",
    "x < me.x + t",
    "x BETWEEN t - 1 AND t + 3 AND y > me.y",
    "x > me.home.x",
    "x > abs(me.x) AND x < greatest(me.x, me.y)",
    "x / me.x > 1",
    "ok = me.ok",
    "x = me.x AND y = me.y AND kind = me.kind",
    "lower(me.kind) = 'car' AND x >= me.x",
    "distance(x, y, me.x, me.y) < 300000",
)
NUMBERS = (0, 1, 2.5, -0.0, 3, 4.5, -7, 5e-324, -5e-324, 1e300, 2**53, 2**53 + 1, 2**62, 1e-9)
VALUES = (*NUMBERS, None, "car", "bus", "", "Car", True, False, {"x": 2}, [1])


def publication(chance: random.Random) -> dict[str, object]:
    said = {
        "x": chance.choice((*VALUES, chance.uniform(-5, 10))),
        "y": chance.choice((*NUMBERS, None, "3")),
        "kind": chance.choice(("car", "bus", "cat", "", 3, None)),
        "ok": chance.choice((True, False, "TRUE", None)),
    }
    return {name: value for name, value in said.items() if chance.random() < 0.9}


def state(chance: random.Random) -> dict[str, object]:
    said = {
        "x": chance.choice((*VALUES, chance.uniform(-5, 10), chance.uniform(-5, 10))),
        "y": chance.choice((*VALUES, chance.uniform(-5, 10))),
        "kind": chance.choice(("car", "bus", "Car", "", 3, None)),
        "ok": chance.choice((True, False, 1, None)),
        "home": chance.choice(({"x": 2}, {"x": None}, {}, 3, None)),
    }
    return {k: v for k, v in said.items() if v is not None and chance.random() < 0.9}


def states_of(given: list[dict[str, object]], since: list[int], until: list[int]) -> States:
    def number(value: object) -> float:
        is_plain = type(value) in (int, float) and abs(value) < 2**53  # type: ignore[arg-type]
        return float(value) if is_plain else np.nan  # type: ignore[arg-type]

    return States(
        np.array([7.0 + i % 3 for i in range(len(given))]),
        np.array(since, np.int64),
        np.array(until, np.int64),
        {name: np.array([number(one.get(name)) for one in given]) for name in ("x", "y", "kind")},
        given.__getitem__,
    )


@pytest.mark.parametrize("seed", some([1, 2, 3, *range(4, 40)]))
def test_each_state_meets_what_the_judge_says(seed: int) -> None:
    chance = random.Random(seed)
    subjects = Subjects()
    index = FollowingIndex(subjects)
    added: list[tuple[str, dict[str, object], float, int, int]] = []
    for text in chance.sample(TEXTS, 12):
        count = chance.choice((1, 2, 30))
        given = [state(chance) for _ in range(count)]
        since = [chance.randrange(-1, 40) for _ in range(count)]
        until = [one + chance.choice((1, 2, 50)) for one in since]
        states = states_of(given, since, until)
        index.add_states(Follower(normalise(parse(text)).conjunctions, subjects), states)
        added += [
            (text, given[i], float(states.accepted_at[i]), since[i], until[i]) for i in range(count)
        ]
    assert index.states == len(added)
    index.settle_fresh()
    shown, at = [], []
    for position in range(60):
        shown.append({**publication(chance), POSITION: float(position)})
        at.append(7.0 + position / 8)
    index.prepare(min(at), max(at))
    pairs = index.match(shown, at)
    found = set(zip(pairs.publications.tolist(), pairs.subscriptions.tolist(), strict=True))
    assert len(found) == len(pairs), "each pair once"
    expected = {
        (position, id)
        for id, (text, me, accepted_at, since, until) in enumerate(added)
        for position in range(60)
        if since < position <= until
        and at[position] >= accepted_at
        and matches(parse(text), shown[position], at[position] - accepted_at, me)
    }
    assert found == expected
    assert expected
