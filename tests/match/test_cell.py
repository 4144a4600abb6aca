"""Cells answer what the slow, obvious evaluator says, also after they were saved and loaded."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from rove.lang.attributes import attributes_of
from rove.lang.errors import LanguageError
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.replay import RankedWindow
from rove.match.cell import Cell, CellSubscription, check
from rove.match.designs.design import parse_evolve
from rove.match.results import RankedDelivery
from rove.match.saved import SavedError

PLAIN = (
    "x > 5",
    "x = 9007199254740993",
    "x = 9007199254740992",
    "x IS NULL",
    "NOT x = 5",
    "x = ''",
    "x LIKE '%\\_%' ESCAPE '\\'",
    "x IN (1, 2, 5.5) OR x IN ('a', '5') OR x = TRUE",
    "x.y > 1 AND topic LIKE 'air/%'",
    "x BETWEEN t - 3 AND t + 3",
    "x * 2 > t AND y = 0",
    "x BETWEEN me.x - 2 AND me.x + 2",
    "y = me.gone OR x < me.x + t",
)
RANKED = (
    "ORDER BY x LIMIT 2 WITHIN 4 SECONDS",
    "y >= 0 ORDER BY x + t DESC LIMIT 1 WITHIN 3 PUBLICATIONS",
    "x IS NOT NULL ORDER BY abs(x - me.x) LIMIT 1 WITHIN 5 SECONDS",
)
DESIGNS = (("x > t", "pes 500ms"), ("x < 9 - t", "lees"), ("x BETWEEN t AND t + 4", "clees 1s"))
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 4, 6, -0.0, 5.5, "", "a", "a_b", "5", {"y": 2}, [1], 1e308),
    *(9007199254740992, 9007199254740993, 2**63, 2**70, -(2**63), 5e-324),
)


class Seen:
    """A publication, as a cell is shown it."""

    def __init__(self, key: int, at: float, filters: Sequence[int], values: Mapping[str, Any]):
        self.key, self.at, self.filters = key, at, filters
        self._attributes = attributes_of("air/a", json.dumps(values).encode())

    def attributes(self) -> Mapping[str, object]:
        return self._attributes


def wanted(
    id: int, text: str, *, filter: int = 1, at: float = 0.0, evolve: str = ""
) -> CellSubscription:
    me = {"x": 4} if "me." in text else None
    parsed = parse(text)
    if evolve:
        return CellSubscription(id, parsed, filter, at, me, parse_evolve(evolve))
    return CellSubscription(id, parsed, filter, at, me)


class Judged:
    """A cell, and the oracle beside it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cell = Cell()
        self.subscriptions: dict[int, CellSubscription] = {}
        self.windows: dict[int, RankedWindow] = {}
        self.now = 0.0
        self.next = 1
        self.published = 0

    def add(self) -> None:
        text = self.random.choice(PLAIN + RANKED)
        one = wanted(self.next, text, filter=self.random.randint(1, 3), at=self.now)
        self.next += 1
        self.cell.add(one)
        self.subscriptions[one.id] = one
        if one.text.rank is not None:
            self.windows[one.id] = RankedWindow(one.text, self.now)

    def remove(self) -> None:
        if self.subscriptions:
            id = self.random.choice(list(self.subscriptions))
            self.cell.remove(id)
            del self.subscriptions[id]
            self.windows.pop(id, None)

    def move(self) -> None:
        following = [one for one in self.subscriptions.values() if one.me is not None]
        if following:
            one = self.random.choice(following)
            value = self.random.choice((None, 1, 5.5, "a"))
            self.cell.set_state(one.id, {"x": value})
            one.me = {} if value is None else {"x": value}

    def save(self) -> None:
        self.cell = Cell.load(b"".join(self.cell.save()))

    def publish(self) -> None:
        shown = []
        for _ in range(self.random.randint(1, 4)):
            self.now += self.random.choice((0.0, 0.25, 1.0))
            self.published += 1
            filters = self.random.sample((1, 2, 3, 4), self.random.randint(0, 3))
            values = {"x": self.random.choice(VALUES), "y": self.random.randint(0, 2)}
            shown.append(Seen(self.published, self.now, filters, values))
        found = self.cell.match(shown)
        due: dict[int, list[int]] = {}
        ranked = []
        for number, publication in enumerate(shown):
            for id, one in self.subscriptions.items():
                if one.filter in publication.filters:
                    attributes, me = publication.attributes(), one.me or {}
                    if id in self.windows:
                        window = self.windows[id]
                        given = window.publish(attributes, publication.at, me, publication.key)
                        ranked += [(id, each.key, each.at, each.promoted) for each in given]
                    elif matches(one.text, attributes, publication.at - one.accepted_at, me):
                        due.setdefault(number, []).append(id)
        assert {row: sorted(ids) for row, ids in found.by_row()} == due
        self.compare(found.ranked, ranked)
        assert not found.counts or len(found.counts) == len(shown)

    def advance(self) -> None:
        self.now += self.random.choice((0.5, 3.0))
        due = [
            (id, each.key, each.at, each.promoted)
            for id, window in self.windows.items()
            for each in window.advance(self.now)
        ]
        self.compare(self.cell.advance(self.now), due)

    def compare(self, given: Sequence[Any], due: Sequence[tuple[int, object, float, bool]]) -> None:
        told = [(one.subscription, one.key, one.at, one.promoted) for one in given]
        for id in self.windows:
            # Of one subscription in their order; nobody says whose are first.
            assert [one for one in told if one[0] == id] == [one for one in due if one[0] == id]
        assert len(told) == len(due)


@pytest.mark.parametrize("seed", range(3))
def test_a_life_gives_what_the_oracle_says(seed: int) -> None:
    judged = Judged(seed)
    for _ in range(12):
        judged.add()
    actions = (judged.publish, judged.add, judged.remove, judged.move, judged.advance, judged.save)
    for _ in range(120):
        judged.random.choices(actions, (10, 2, 2, 2, 2, 1))[0]()
        assert judged.cell.ids() == judged.subscriptions.keys()
        assert judged.cell.stateful_ids() == judged.windows.keys()


def full() -> Cell:
    """Three stateless ones, three ranked ones, three that evolve by a design, on three filters."""
    cell = Cell()
    kinds = [(text, "") for text in ("x > 5", "x > t", "x > me.x")]
    kinds += [(text, "") for text in RANKED]
    kinds += list(DESIGNS)
    for number, (text, evolve) in enumerate(kinds):
        cell.add(wanted(number + 1, text, filter=number % 3 + 1, evolve=evolve))
    return cell


def life_of(*cells: Cell) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Whom publications from the eleventh second on meet, in any of some cells."""
    said = []
    for number in range(20):
        met: list[int] = []
        ranked: list[RankedDelivery] = []
        for cell in cells:
            shown = [Seen(100 + number, 11 + number / 4, (1, 2, 3), {"x": number % 9, "y": 1})]
            found = cell.match(shown)
            met += found.ids.tolist()
            ranked += [*found.ranked, *cell.advance(11 + number / 4 + 0.1)]
        given = sorted((one.subscription, cast(int, one.key)) for one in ranked)
        said.append((sorted(met), given))
    return said


class TestSaving:
    def begun(self) -> Cell:
        """A cell with a past."""
        cell = full()
        cell.match(
            [Seen(number, float(number), (1, 2, 3), {"x": 8, "y": 1}) for number in range(9)]
        )
        cell.advance(10.0)
        return cell

    def test_everything(self) -> None:
        cell = self.begun()
        loaded = Cell.load(b"".join(cell.save()))
        assert loaded.ids() == cell.ids() == set(range(1, 10))
        assert loaded.stateless_ids() == {1, 2, 3}
        assert loaded.stateful_ids() == {4, 5, 6, 7, 8, 9}
        assert loaded.next_change_at() == cell.next_change_at()
        assert set(loaded.live_keys()) == set(cell.live_keys()) != set()
        assert life_of(loaded) == life_of(cell)

    def test_one_kind_only(self) -> None:
        cell = self.begun()
        stateless = Cell.load(b"".join(cell.save(stateful=False)))
        stateful = Cell.load(b"".join(cell.save(stateless=False)))
        assert stateless.ids() == {1, 2, 3}
        assert stateful.ids() == {4, 5, 6, 7, 8, 9}
        said = life_of(cell)
        assert life_of(stateless, stateful) == said
        assert any(ids for ids, _ in said)
        assert any(ranked for _, ranked in said)

    def test_parts_lie_at_whole_pages(self) -> None:
        """So that a mapped file can be searched where it lies."""
        assert all(
            sum(len(part) for part in cell.save()) % 4096 == 0 for cell in (Cell(), self.begun())
        )

    @pytest.mark.parametrize("size", [0, 7, 8, 31, 100, 4096, 5000, -4096])
    def test_a_file_that_is_cut(self, size: int) -> None:
        saved = b"".join(self.begun().save())
        with pytest.raises(SavedError):
            Cell.load(saved[:size])

    @pytest.mark.parametrize("seed", range(3))
    def test_a_file_that_is_something_else(self, seed: int) -> None:
        rubbish = random.Random(seed).randbytes(10_000)
        for saved in (rubbish, b"\x01" + bytes(7) + rubbish, b"\x01" + bytes(10_000)):
            with pytest.raises(SavedError):
                Cell.load(saved)


class TestChanging:
    def test_counting(self) -> None:
        cell = full()
        assert len(cell) == 9
        assert all(id in cell for id in range(1, 10))
        for id in range(1, 10):
            cell.remove(id)
        assert len(cell) == 0
        assert cell.stateful_ids() == set()
        assert cell.ids() == set()

    def test_one_that_is_not_there(self) -> None:
        with pytest.raises(KeyError):
            full().remove(10)
        with pytest.raises(KeyError):
            full().set_state(10, {"x": 1})

    def test_a_topic_that_nobody_asked_for(self) -> None:
        found = full().match([Seen(1, 1.0, (4,), {"x": 8}), Seen(2, 1.0, (), {"x": 8})])
        assert list(found.by_row()) == []
        assert not found.ranked

    def test_no_text_speaks_of_the_filter(self) -> None:
        for text in ("$filter = 1", '"$filter" = 1'):
            with pytest.raises(LanguageError):
                parse(text)
        cell = Cell()
        cell.add(wanted(1, "x = 1", filter=2))
        found = cell.match([Seen(1, 1.0, (1,), {"x": 1, "$filter": 2})])
        assert list(found.by_row()) == []

    def test_no_error_speaks_of_the_filter(self) -> None:
        text = " AND ".join(f"(a{number} = 1 OR b{number} = 1)" for number in range(9))
        with pytest.raises(LanguageError) as refused:
            check(wanted(1, text))
        assert "$filter" not in str(refused.value)
        assert "(a0 = 1 OR b0 = 1) AND (a1 = 1" in str(refused.value)

    def test_what_is_refused_is_refused_beforehand(self) -> None:
        good = wanted(1, "x > 1")
        check(good)
        for bad in (
            CellSubscription(-1, good.text, 1, 0.0),
            CellSubscription(1, good.text, 1, float("nan")),
            CellSubscription(1, parse(RANKED[0]), 1, 0.0, None, parse_evolve("lees")),
        ):
            with pytest.raises(LanguageError):
                check(bad)
            with pytest.raises(LanguageError):
                Cell().add(bad)
