"""What an index keeps and computes: patterns as facts, and only those that rows ask for."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from rove.lang import matches, normalise, parse
from rove.lang.limits import COMPILED_NODES_MAX
from rove.lang.normal import Conjunction
from rove.lang.tree import walk
from rove.match.conditions import residual
from rove.match.conditions.programs import TruthProgram, compiled_conjunction
from rove.match.conditions.residual import (
    NODES_AT_ONCE,
    PART_MAX,
    FittingPatterns,
    ResidualConditions,
)
from rove.match.index.index import ExactIndex
from rove.match.index.subjects import Subjects


def kept_of(text: str, subjects: Subjects, me: dict[str, Any] | None = None) -> ResidualConditions:
    """A subscription as an index keeps it; its rows are compiled."""
    index = ExactIndex(subjects)
    conjunctions = normalise(parse(text)).conjunctions
    index.add(0, conjunctions, 10.0, me)
    return index._fresh_kept[0]


def holds(
    kept: ResidualConditions, subjects: Subjects, publication: dict[str, Any], at: float
) -> bool:
    facts = FittingPatterns.of(subjects.batch([publication], [at]), 0)
    return kept.holds(publication, at, facts, subjects)


@pytest.mark.parametrize(
    "text",
    [
        "s LIKE '%a%b%' AND n > 2",
        "s NOT LIKE '%a%b%'",
        "s NOT LIKE '%a%b%' AND lower(s) LIKE '%x%y%'",
        "s LIKE '%a%b%' OR s LIKE '%x%y%' AND n > 2",
        "s = me.who AND s LIKE 'a%b%'",
        "s != me.who AND s NOT LIKE '%a%b%'",
        "me.who LIKE '%a%b%' AND s LIKE '%x%'",
    ],
)
def test_it_holds_exactly_when_the_oracle_says_so(text: str) -> None:
    subjects = Subjects()
    for who in ("ab", "xy", None, 3):
        me = {"who": who} if who is not None else {}
        kept = kept_of(text, subjects, me)
        for publication in _publications():
            expected = matches(parse(text), publication, 1.0, me)
            assert holds(kept, subjects, publication, 11.0) is expected, (me, publication)
            assert not holds(kept, subjects, publication, 9.0), "it was not accepted yet"


def _publications() -> Iterable[dict[str, Any]]:
    for s in ("ab", "ba", "xy", "XY", "axbY", "", 5, None):
        for n in (1, 3):
            yield {"s": s, "n": n}


def test_conjunctions_are_compiled_late_and_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No publication pays for compiling a whole text; the answers are the same before and after."""
    compiled: list[Conjunction] = []

    def counted(conjunction: Conjunction) -> TruthProgram:
        compiled.append(conjunction)
        return compiled_conjunction(conjunction)

    monkeypatch.setattr(residual, "compiled_conjunction", counted)
    subjects = Subjects()
    kept = kept_of(" OR ".join(f"a + b * {i} > 60" for i in range(20)), subjects)
    counts = []
    for number in range(16):
        assert not holds(kept, subjects, {"a": number, "b": 1}, 10.0)
        counts.append(len(compiled))
    assert counts[:4] == [0, 0, 2, 4]
    assert max(after - before for before, after in pairwise(counts)) == 2
    assert counts[-1] == 20
    assert holds(kept, subjects, {"a": 50, "b": 1}, 10.0)
    assert len(compiled) == 20
    many = " AND ".join(f"a{i} > {i} AND a{i} + b > 0" for i in range(40))
    large = kept_of(many, subjects)
    publication: dict[str, int] = {f"a{i}": i + 1 for i in range(40)} | {"b": 0}
    for _ in range(10):
        assert holds(large, subjects, publication, 10.0)
        assert not holds(large, subjects, publication | {"a39": -1}, 10.0)
    assert max(len(one.sets) + len(one.atoms) for one in compiled) == PART_MAX


def test_a_pattern_that_nobody_looks_for_any_more_is_no_fact() -> None:
    """With the state known the row asks for one string, and for no pattern: others may have."""
    subjects = Subjects()
    index = ExactIndex(subjects)
    index.add(1, normalise(parse("s LIKE 'a%b%'")).conjunctions)
    index.remove(1)
    kept = kept_of("s LIKE 'a%b%' AND s = me.who", subjects, {"who": "axb"})
    assert holds(kept, subjects, {"s": "axb"}, 10.0)


def test_what_rows_ask_for_may_change_with_the_state() -> None:
    index = ExactIndex()
    text = "s LIKE 'a%b%' AND s >= me.low AND s <= me.high AND n + m > 1"
    index.add(0, normalise(parse(text)).conjunctions, 0.0, {"low": "a", "high": "z"})
    publication = {"s": "axb", "n": 1, "m": 1}
    for me in ({"low": "axb", "high": "axb"}, {"low": "a", "high": "b"}, {"low": "b", "high": "z"}):
        for settles in (False, True):
            index.set_state(0, me)
            if settles:
                index.settle_fresh()
            expected = [0] if matches(parse(text), publication, 0.0, me) else []
            assert index.match_one(publication, 0.0).tolist() == expected


def test_undecided_patterns_are_present_and_not_true() -> None:
    facts = FittingPatterns([1, 2, 3], [2])
    assert facts.present == frozenset({1, 2, 3})
    assert facts.true == frozenset({1, 3})


def test_its_work_is_the_number_of_its_predicates() -> None:
    subjects = Subjects()
    assert kept_of("a = 1", subjects).work == 2
    assert kept_of("a = 1 AND b = 2 OR c + d > 3", subjects).work == 5
    assert kept_of("s LIKE '%a%b%' AND s NOT LIKE '%c%d%'", subjects).work == 2
    assert kept_of("s LIKE '%a%b%' AND x = me.x", subjects, {"x": 1}).work == 4


class NotAsked(Sequence[int]):
    """Patterns that nobody must ask for."""

    def __len__(self) -> int:
        raise AssertionError("somebody asked how many patterns fit")

    def __getitem__(self, _: Any) -> Any:
        raise AssertionError("somebody asked which patterns fit")


def test_who_asks_for_no_pattern_does_not_pay_for_them() -> None:
    subjects = Subjects()
    kept = kept_of("a = 1 OR b + c > 2", subjects)
    assert kept.holds({"a": 1}, 10.0, FittingPatterns(NotAsked()), subjects)
    with pytest.raises(AssertionError, match="which patterns fit"):
        kept_of("s LIKE '%a%b%'", subjects).holds(
            {"s": "ab"}, 10.0, FittingPatterns(NotAsked()), subjects
        )


def node_count(part: Conjunction) -> int:
    return sum(1 for node in (*part.sets, *part.atoms) for _ in walk(node))


def test_no_publication_pays_for_compiling_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicates of all sizes: few nodes are compiled at once, and the largest never."""
    compiled: list[int] = []

    def counted(conjunction: Conjunction) -> TruthProgram:
        compiled.append(node_count(conjunction))
        return compiled_conjunction(conjunction)

    monkeypatch.setattr(residual, "compiled_conjunction", counted)
    names = [", ".join(f"a{i}" for i in range(size)) for size in range(2, 80, 5)]
    form = normalise(parse(" OR ".join(f"greatest({some}) > 998" for some in names)))
    sizes = [node_count(one) for one in form.conjunctions]
    subjects = Subjects()
    kept = ResidualConditions(form.conjunctions, 0.0, {}, follows=False)
    publication = {f"a{i}": 1 for i in range(99)}
    at_once = []
    for _ in range(99):
        before = sum(compiled)
        assert not holds(kept, subjects, publication, 0.0)
        at_once.append(sum(compiled) - before)
    assert max(at_once) < NODES_AT_ONCE + COMPILED_NODES_MAX
    assert sorted(compiled) == sorted(size for size in sizes if size <= COMPILED_NODES_MAX)
    assert max(sizes) > COMPILED_NODES_MAX
    assert kept.holds(publication | {"a0": 999}, 0.0, FittingPatterns([]), subjects)
