"""Subjects: every value of a publication arrives in its slot, and as nothing but itself."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.errors import PublicationError
from rove.lang.patterns import contains, ends_with, starts_with
from rove.lang.tree import Attribute, Call, Literal, Time, ValueNode
from rove.lang.values import OPAQUE, comparable, look_up
from rove.match.index import keys
from rove.match.index.batch import SlotBatch, Slots
from rove.match.index.keys import LAST, number_key
from rove.match.index.subjects import Subjects, is_subject
from rove.testing import strategies
from tests.effort import examples

SIGN = 1 << 63
NAN = 0x7FF8_0000_0000_0000
"""How a missing value stands in a column."""


def lower(attribute: Attribute) -> Call:
    return Call("lower", (attribute,))


def key_of_bits(bits: int) -> int:
    if bits == NAN:
        return keys.NULL
    bits = 0 if bits == SIGN else bits
    return bits ^ LAST if bits & SIGN else bits | SIGN


def slots(batch: SlotBatch, publication: int = 0) -> dict[int, int | str]:
    """By subject what a publication has: a key, or a string."""
    texts = {text.slot: text for text in batch.texts}
    found: dict[int, int | str] = {}
    for slot in range(batch.starts[publication], batch.starts[publication + 1]):
        subject = int(batch.subjects[slot])
        assert subject not in found, "a subject has one slot at most"
        if slot in texts:
            assert texts[slot].subject == subject
            found[subject] = texts[slot].text
        else:
            found[subject] = key_of_bits(int(batch.raws[slot]))
    return found


def expected(value: object) -> int | str | None:
    """What should stand in the slot of a value; None for no slot."""
    seen = comparable(value)
    if seen is None or isinstance(seen, str):
        return seen
    if isinstance(seen, bool):
        return keys.TRUE if seen else keys.FALSE
    if isinstance(seen, int | float):
        return number_key(seen)
    assert seen is OPAQUE
    return keys.OPAQUE


PATTERNS = (contains("a"), starts_with("ab"), ends_with("B"))
asked: st.SearchStrategy[ValueNode] = strategies.attributes | strategies.attributes.map(lower)


@examples(100)
@given(
    st.lists(asked, max_size=8),
    st.lists(st.tuples(asked, st.sampled_from(PATTERNS)), max_size=6),
    st.lists(strategies.publications, min_size=1, max_size=4),
)
def test_slots_hold_what_subjects_are(
    nodes: list[ValueNode],
    patterns: list[tuple[ValueNode, Any]],
    publications: list[dict[str, Any]],
) -> None:
    subjects = Subjects()
    numbers = {node: subjects.number(node) for node in nodes}
    pattern_numbers = {(node, p): subjects.pattern(node, p) for node, p in patterns}
    batch = subjects.batch(publications, [0.0] * len(publications))
    for position, publication in enumerate(publications):
        wanted: dict[int, int | str | None] = {}
        for node, number in numbers.items():
            wanted[number] = expected(value(node, publication))
        for (node, pattern), number in pattern_numbers.items():
            text = value(node, publication)
            fits = isinstance(text, str) and pattern.matches(text)
            wanted[number] = keys.TRUE if fits else None
        there = {number: what for number, what in wanted.items() if what is not None}
        assert slots(batch, position) == there


def value(node: ValueNode, publication: dict[str, Any]) -> object:
    if type(node) is Call:
        (inner,) = node.arguments
        text = value(inner, publication)
        return text.lower() if isinstance(text, str) else None
    assert type(node) is Attribute
    return look_up(publication, node.path)


@pytest.mark.parametrize(
    ("node", "is_one"),
    [
        (Attribute(("a",)), True),
        (Attribute(("a", "b")), True),
        (lower(Attribute(("a",))), True),
        (Call("lower", (lower(Attribute(("a",))),)), False),
        (Call("abs", (Attribute(("a",)),)), False),
        (Time(), False),
        (Literal(1), False),
    ],
)
def test_what_is_worth_a_number(node: ValueNode, is_one: bool) -> None:
    assert is_subject(node) == is_one


def test_numbers_stay() -> None:
    subjects = Subjects()
    a, nested = Attribute(("a",)), Attribute(("a", "b"))
    first = [
        subjects.pattern(a, contains("x")),
        subjects.number(a),
        subjects.number(nested),
        subjects.number(lower(a)),
        subjects.pattern(lower(a), contains("x")),
        subjects.attribute("b"),
    ]
    assert first == [0, 1, 2, 3, 4, 5]
    again = [
        subjects.pattern(a, contains("x")),
        subjects.number(a),
        subjects.number(nested),
        subjects.number(lower(a)),
        subjects.pattern(lower(a), contains("x")),
        subjects.attribute("b"),
    ]
    assert again == first
    assert len(subjects) == 6


def test_integers_that_no_float_holds_are_noted() -> None:
    subjects = Subjects()
    number = subjects.attribute("a")
    publications = [{"a": 2**53}, {"a": 2**53 + 1}, {"b": 2**53 + 1}, {"a": -(2**53) - 1}]
    batch = subjects.batch(publications, [0.0] * 4)
    assert batch.rounded.tolist() == [0, 1, 0, 1]
    assert slots(batch, 1)[number] == number_key(2.0**53)
    assert slots(batch, 3)[number] == number_key(-(2.0**53) - 2)


def test_a_pattern_is_looked_for_as_long_as_somebody_uses_it() -> None:
    subjects, a = Subjects(), Attribute(("a",))
    number = subjects.pattern(a, contains("x"))
    subjects.pattern(a, contains("x"))
    subjects.release(number)
    assert slots(subjects.batch([{"a": "x"}], [0.0])) == {number: keys.TRUE}
    subjects.release(number)
    assert slots(subjects.batch([{"a": "x"}], [0.0])) == {}
    assert subjects.pattern(a, contains("x")) == number
    assert slots(subjects.batch([{"a": "x"}], [0.0])) == {number: keys.TRUE}


def test_releasing_an_attribute_changes_nothing() -> None:
    subjects = Subjects()
    number = subjects.attribute("a")
    subjects.release(number)
    assert slots(subjects.batch([{"a": True}], [0.0])) == {number: keys.TRUE}


def test_subjects_have_the_same_numbers_after_a_journey() -> None:
    subjects, a = Subjects(), Attribute(("a",))
    subjects.pattern(lower(a), contains("x"))
    subjects.number(Attribute(("n", "m")))
    subjects.number(lower(a))
    arrived = Subjects.from_state(subjects.state())
    arrived.use_again({0: 1, 1: 7})
    asked = [{"a": "X", "n": {"m": 1}}]
    assert slots(arrived.batch(asked, [0.0])) == slots(subjects.batch(asked, [0.0]))
    assert len(slots(arrived.batch(asked, [0.0]))) == 3
    arrived.release(0)
    assert len(slots(arrived.batch(asked, [0.0]))) == 2


def test_one_publication_has_the_slots_of_a_batch_of_one() -> None:
    subjects = Subjects()
    numbers = [subjects.attribute(name) for name in "abc"]
    asked = {"c": "text", "a": 2**53 + 1, "b": None, "d": 1}
    one, batch = Slots(), subjects.batch([asked], [0.0])
    subjects.fill(one, asked)
    assert one.subjects == batch.subjects.tolist() == [numbers[2], numbers[0]]
    assert one.values == batch.raws.view(np.float64).tolist()
    assert [text.text for text in one.texts] == [text.text for text in batch.texts] == ["text"]
    assert one.rounded == batch.rounded[0] == 1


def test_what_nobody_asks_for_has_no_slot() -> None:
    subjects = Subjects()
    subjects.pattern(Attribute(("a",)), contains("x"))
    batch = subjects.batch([{"a": 1.5, "b": 2}, {"a": "y"}, {"a": 7}, {}], [0.0] * 4)
    assert len(batch) == 4
    assert batch.starts.tolist() == [0, 0, 0, 0, 0]


def test_the_value_of_an_attribute_by_its_number() -> None:
    subjects = Subjects()
    subjects.pattern(Attribute(("a",)), contains("x"))
    number = subjects.number(Attribute(("n", "m")))
    assert subjects.value(number, {"n": {"m": 2**53 + 1}}) == 2**53 + 1
    assert subjects.value(number, {"n": 3}) is None
    assert subjects.value(number, {"n": {"m": [1]}}) is OPAQUE


numbers_or_nan = strategies.numbers.map(float) | st.just(math.nan)


@examples(100)
@given(st.lists(st.tuples(numbers_or_nan, numbers_or_nan, numbers_or_nan), max_size=5))
def test_columns_are_a_batch_of_the_same_numbers(lines: list[tuple[float, float, float]]) -> None:
    subjects, names = Subjects(), ("a", "b", "c")
    table = np.array(lines, np.float64).reshape(-1, 3)
    at = np.arange(len(lines), dtype=np.float64)
    found = subjects.columns(names, table, at)
    publications = [
        {name: value for name, value in zip(names, line, strict=True) if not math.isnan(value)}
        for line in lines
    ]
    batch = subjects.batch(publications, at.tolist())
    assert found.at.tolist() == batch.at.tolist()
    assert found.rounded.tolist() == batch.rounded.tolist()
    for position in range(len(lines)):
        present = slots(found, position)
        assert {s: key for s, key in present.items() if key != keys.NULL} == slots(batch, position)


def test_columns_take_times_of_any_type() -> None:
    found = Subjects().columns(["a"], np.array([[1.0], [2.0]]), np.array([5, 0, 7, 0])[::2])
    assert found.at.dtype == np.float64
    assert found.at.tolist() == [5.0, 7.0]


@pytest.mark.parametrize("at", [[], [0.0], [0.0, 1.0, 2.0]])
def test_every_publication_needs_its_own_time(at: list[float]) -> None:
    with pytest.raises(PublicationError, match="2 publications came with"):
        Subjects().batch([{}, {}], at)
    with pytest.raises(PublicationError, match="2 publications came with"):
        Subjects().columns(["a"], np.zeros((2, 1)), np.array(at))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_times_and_columns_must_be_finite(bad: float) -> None:
    with pytest.raises(PublicationError, match="no finite time"):
        Subjects().batch([{}], [bad])
    with pytest.raises(PublicationError, match="no finite time"):
        Subjects().columns(["a"], np.zeros((1, 1)), np.array([bad]))
    if math.isinf(bad):
        with pytest.raises(PublicationError, match="infinite"):
            Subjects().columns(["a"], np.array([[bad]]), np.zeros(1))
