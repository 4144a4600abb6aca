"""Tables are matched as the same publications are, one by one; the oracle judges both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import parse
from rove.lang.errors import PublicationError
from rove.lang.values import OPAQUE, Path
from rove.match import Matcher
from rove.match.index import columns
from rove.match.index.columns import (
    BooleanColumn,
    CarriedColumn,
    Column,
    FloatColumn,
    IntegerColumn,
    MappingTable,
    ObjectColumn,
    PublicationTable,
    StringColumn,
    strings_column,
)
from rove.match.index.keys import floor_float
from rove.testing import strategies
from tests.differential.trials import Counts, Found, MatcherEngine, Plan, Trial
from tests.effort import is_soak

Part = tuple[Path, Callable[[], Column]]


# -- against the oracle ----------------------------------------------------------------------


def typed(path: Path, values: Sequence[Any]) -> Iterable[Part]:
    """Values as columns of one type each, with rubbish where there is nothing."""

    def where(kind: type) -> Any:
        return np.array([type(value) is kind for value in values], np.bool_)

    def those(kind: type, filler: Any) -> list[Any]:
        return [value if type(value) is kind else filler for value in values]

    yield path, lambda: FloatColumn(np.array(those(float, 7.5)), where(float))
    fits = np.array([type(v) is int and -(2**63) <= v < 2**63 for v in values], np.bool_)
    whole = [value if fit else 2**60 + 1 for value, fit in zip(values, fits, strict=True)]
    yield path, lambda: IntegerColumn(np.array(whole, np.int64), fits)
    yield path, lambda: BooleanColumn(np.array(those(bool, True), np.bool_), where(bool))
    yield path, lambda: strings_column(values)
    kinds = (float, bool, str, dict, type(None))
    carried = [type(v) not in kinds and not fit for v, fit in zip(values, fits, strict=True)]
    yield path, lambda: CarriedColumn(np.array(carried, np.bool_))


def by_type(publications: Sequence[Mapping[str, Any]], prefix: Path = ()) -> Iterable[Part]:
    """Every attribute as typed columns; objects as columns of their members."""
    for name in sorted({name for publication in publications for name in publication}):
        values = [publication.get(name) for publication in publications]
        path = (*prefix, name)
        are_objects = np.array([type(value) is dict for value in values], np.bool_)
        yield path, lambda there=are_objects: CarriedColumn(there, are_objects=True)  # type: ignore[misc]
        yield from typed(path, values)
        inner = [value if type(value) is dict else {} for value in values]
        yield from by_type(inner, path)


def as_table(publications: Sequence[Mapping[str, Any]], way: int) -> PublicationTable:
    if way == 0:
        return PublicationTable(len(publications), by_type(publications))
    if way == 1:
        return MappingTable(publications)
    names = sorted({name for publication in publications for name in publication})
    parts = [
        ((name,), lambda name=name: ObjectColumn([one.get(name) for one in publications]))
        for name in names
    ]
    return PublicationTable(len(publications), parts)


class TableEngine(MatcherEngine):
    """A `Matcher` that is given tables, made in one of three ways."""

    def __init__(self, way: int) -> None:
        super().__init__()
        self._table_way = way

    def match(self, publications: Sequence[Mapping[str, Any]], at: Sequence[float]) -> Found:
        found = self.matcher.match_table(as_table(publications, self._table_way), at)
        return found.publications, found.subscriptions


PLANS = (
    Plan(),
    Plan(moving=0.7, subscriptions=90, live=150),
    Plan(texts=0.7, moving=0.1, subscriptions=200, live=300),
    Plan(names=60, subscriptions=120, live=200),
)


def trial(seed: int) -> Trial:
    makers = {f"way {way}": lambda way=way: TableEngine(way) for way in range(3)}
    return Trial(seed, PLANS[seed % len(PLANS)], makers)


def test_tables_against_the_oracle() -> None:
    counts = Counts()
    for seed in range(4 if is_soak() else 1):
        counts.add(trial(seed).run())
    assert counts.triples > 10_000
    assert counts.matches > 0.02 * counts.decisions.total()
    assert set(counts.decisions) == {"way 0", "way 1", "way 2"}


@pytest.mark.soak
def test_tables_against_the_oracle_for_long() -> None:
    counts = Counts()
    for seed in itertools.count(SystemRandom().randrange(10**12)):
        counts.add(trial(seed).run())
        if counts.triples > 5_000_000:
            break


TEXTS = (
    "a > 2.5",
    "a BETWEEN -1 AND 9007199254740992",
    "a = 9007199254740993",
    "a IN ('a', 'ab')",
    "a LIKE '%b%'",
    "NOT a LIKE 'a%'",
    "lower(a) = 'a'",
    "lower(a) LIKE '%b'",
    "a IS NULL",
    "a IS NOT NULL",
    "a",
    "n IS NOT NULL AND n.m IS NULL",
    "n.m >= 3",
    "n.m = 'ab' OR a < 1 + t",
    "a + n.m > 3",
    "a > me.x",
    "contains(n.m, 'b') AND a != 1",
)


@given(st.lists(strategies.publications, max_size=6), st.sampled_from(strategies.NUMBERS))
def test_as_publications_are_matched(publications: list[dict[str, Any]], x: float) -> None:
    matcher = Matcher()
    for id, text in enumerate(TEXTS):
        matcher.add(id, parse(text), me={"x": x})
    at = [0.5] * len(publications)
    wanted = pairs_of(matcher.match(publications, at))
    for way in range(3):
        assert pairs_of(matcher.match_table(as_table(publications, way), at)) == wanted


def pairs_of(found: Any) -> list[tuple[int, int]]:
    return sorted(zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True))


# -- columns ---------------------------------------------------------------------------------


def matched(text: str, parts: Iterable[Part], rows: int, at: float = 0.0) -> list[int]:
    matcher = Matcher()
    matcher.add(0, parse(text))
    matcher.compact()  # what still waits would be computed
    found = matcher.match_table(PublicationTable(rows, parts), np.full(rows, at))
    assert not found.subscriptions.any()
    rows_found: list[int] = found.publications.tolist()
    return rows_found


def one(column: Column, name: str = "a") -> list[Part]:
    return [((name,), lambda: column)]


def test_in_floats_nan_is_missing_and_infinity_cannot_be_compared() -> None:
    odd_nan = np.array([0x7FF8_0000_0000_0003], np.uint64).view(np.float64)
    values = np.concatenate([[1.0, math.nan, math.inf, -math.inf, -0.0], odd_nan])
    column = FloatColumn(values)
    assert matched("a IS NULL", one(column), 6) == [1, 5]
    assert matched("a > 0 OR a <= 0", one(column), 6) == [0, 4]
    assert matched("a = 0", one(column), 6) == [4]
    assert [column.value(row) for row in range(6)] == [1.0, None, OPAQUE, OPAQUE, 0.0, None]


def test_what_is_infinite_is_not_computed_with() -> None:
    column = FloatColumn(np.array([1.0, math.inf]))
    assert matched("a + 1 > 0", one(column), 2) == [0]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 + 1, 2**63 - 1])))
def test_integers_become_the_float_below(values: list[int]) -> None:
    encoded = IntegerColumn(np.array(values, np.int64)).encoded()
    assert encoded.raws.view(np.float64).tolist() == [floor_float(value) for value in values]
    exact = [value == floor_float(value) for value in values]
    if encoded.rounded is None:
        assert all(exact)
    else:
        assert encoded.rounded.tolist() == [not each for each in exact]


def test_integers_are_exact_beyond_floats_and_against_what_moves() -> None:
    column = IntegerColumn(np.array([2**53, 2**53 + 1, 2**53 + 2]))
    assert matched("a > 9007199254740992", one(column), 3) == [1, 2]
    assert matched("a > 9007199254740992.0 + t", one(column), 3) == [1, 2]


def test_a_dictionary_may_be_larger_than_the_rows() -> None:
    texts = [f"text {number}" for number in range(1_000)]
    column = StringColumn(np.array([999, 3, 3], np.int32), texts, np.array([True, True, False]))
    assert matched("a LIKE '%9'", one(column), 3) == [0]
    assert matched("a = 'text 3'", one(column), 3) == [1]
    assert matched("a IS NULL", one(column), 3) == [2]


def test_each_distinct_string_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher()
    matcher.add(0, parse("a LIKE '%x%' AND lower(a) = 'xyz'"))
    looked_at: list[str] = []
    (source,) = matcher._subjects.sources_of("a")
    assert source.patterns is not None
    fitting = source.patterns.fitting

    def counted(text: str) -> Any:
        looked_at.append(text)
        return fitting(text)

    monkeypatch.setattr(source.patterns, "fitting", counted)
    column = StringColumn(np.arange(5_000, dtype=np.int32) % 2, ["Xyz", "xyZ"])
    found = matcher.match_table(PublicationTable(5_000, one(column)), np.zeros(5_000))
    assert looked_at == ["Xyz", "xyZ"]
    assert found.publications.tolist() == list(range(1, 5_000, 2))


def test_members_make_their_object_be_there() -> None:
    parts: list[Part] = [
        (("n", "m"), lambda: FloatColumn(np.array([1.0, math.nan, math.nan]))),
        (("n", "k"), lambda: BooleanColumn(np.array([True] * 3), np.array([True, True, False]))),
    ]
    assert matched("n IS NOT NULL", parts, 3) == [0, 1]
    assert matched("n.m + 1 = 2", parts, 3) == [0]
    table = PublicationTable(3, parts)
    assert list(table.publications) == [{"n": {"m": 1.0, "k": True}}, {"n": {"k": True}}, {}]


def test_an_empty_object_is_there() -> None:
    there = CarriedColumn(np.array([True, False]), are_objects=True)
    parts = [*one(there, "n"), (("n", "m"), lambda: FloatColumn(np.array([math.nan] * 2)))]
    assert matched("n IS NOT NULL", parts, 2) == [0]
    assert list(PublicationTable(2, parts).publications) == [{"n": {}}, {}]


def test_objects_are_looked_into() -> None:
    column = ObjectColumn([{"m": {"k": 3}}, {"m": 3}, 3, None, {"m": {"k": "3"}}])
    assert matched("n.m.k = 3", one(column, "n"), 5) == [0]
    assert matched("n.m IS NOT NULL", one(column, "n"), 5) == [0, 1, 4]


@pytest.mark.parametrize("text", ["a > 0", "a + 0 > 0"])
def test_two_values_in_a_row_are_refused(text: str) -> None:
    parts = [*one(FloatColumn(np.array([1.0]))), *one(BooleanColumn(np.array([True])))]
    with pytest.raises(PublicationError, match="only one may have a value"):
        matched(text, parts, 1)


def test_columns_that_nobody_asks_for_are_not_made() -> None:
    def unwanted() -> Column:
        raise AssertionError("nobody asked")

    parts = [*one(FloatColumn(np.array([1.0]))), (("b",), unwanted)]
    assert matched("a > 0", parts, 1) == [0]


def test_only_rows_in_doubt_become_publications(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    publication = PublicationTable.publication

    def counted(self: PublicationTable, row: int) -> dict[str, object]:
        made.append(row)
        return publication(self, row)

    monkeypatch.setattr(PublicationTable, "publication", counted)
    values = np.arange(1_000.0)
    assert matched("a > 997 AND a * 2 > 1997", one(FloatColumn(values)), 1_000) == [999]
    assert made == [998, 999]


def test_publications_behave_as_a_sequence() -> None:
    rows = PublicationTable(3, one(FloatColumn(np.array([1.0, math.nan, 3.0])))).publications
    assert len(rows) == 3
    assert rows[1:] == [{}, {"a": 3.0}]
    with pytest.raises(IndexError):
        rows[3]


def test_times_must_be_there_and_finite() -> None:
    table = PublicationTable(2, one(FloatColumn(np.array([1.0, 2.0]))))
    with pytest.raises(PublicationError, match="came with 1 times"):
        Matcher().match_table(table, [0.0])
    with pytest.raises(PublicationError, match="no finite time"):
        Matcher().match_table(table, [0.0, math.nan])


def test_publications_of_very_many_names_are_taken_one_by_one() -> None:
    random = Random(1)
    matcher = Matcher()
    names = [f"w{number}" for number in range(columns.NAMES_MAX + 1)]
    for id, name in enumerate(names):
        matcher.add(id, parse(f"{name} > 0.5"))
    publications = [{random.choice(names): random.random()} for _ in range(500)]
    wanted = pairs_of(matcher.match(publications, [0.0] * 500))
    found = matcher.match_table(MappingTable(publications), [0.0] * 500)
    assert pairs_of(found) == wanted


def test_known_columns_are_used() -> None:
    matcher = Matcher()
    matcher.add(0, parse("topic = 'b'"))
    known = {"topic": StringColumn(np.array([1, 0], np.int32), ["a", "b"])}
    table = MappingTable([{"topic": "b"}, {"topic": "a"}], known)
    assert matcher.match_table(table, [0.0, 0.0]).publications.tolist() == [0]


def test_a_table_with_ranked_subscriptions() -> None:
    matcher = Matcher()
    matcher.add(0, parse("a > 1 ORDER BY a LIMIT 1 WITHIN 10 SECONDS"))
    table = PublicationTable(2, one(FloatColumn(np.array([1.0, 2.0]))))
    (delivery,) = matcher.match_table(table, [0.0, 1.0], keys=["p", "q"]).ranked
    assert (delivery.key, delivery.publication) == ("q", {"a": 2.0})
