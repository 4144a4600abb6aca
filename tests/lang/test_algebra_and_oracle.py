"""No publication ever contradicts `covers` and `intersects`, and laws that they obey.

The judge is the oracle, and it sits over everything that an answer is made of: the algebra,
the cases, the bounds, the sets, the normal form. Hypothesis draws the subscriptions; the
publications are sampled close to what the subscriptions mention, where mistakes would be.
"""

import random
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import (
    Answer,
    ProofResult,
    Witness,
    admit,
    covers,
    intersects,
    matches,
    parse,
    score_of,
    to_text,
)
from rove.lang.algebra import STATE_MAX
from rove.lang.oracle import value_of
from rove.lang.tree import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    In,
    Like,
    Literal,
    Me,
    Operator,
    Or,
    Subscription,
    TextTest,
    Time,
    parts,
)
from rove.lang.values import next_number, previous_number
from rove.testing.strategies import (
    NUMBERS,
    comparators,
    numbers,
    static_subscriptions,
    subscriptions,
)
from tests.effort import examples

# --- no publication contradicts an answer -----------------------------------------------------


def delivered(subscription: Subscription, witness: Witness, owner: str) -> bool:
    """Asked of the oracle anew: `me.` is the state of one owner, a rank needs a score."""
    me = witness.me.get(owner, {})
    assert isinstance(me, dict)
    at = (witness.publication, witness.t, me)
    if not matches(subscription, *at):
        return False
    return subscription.rank is None or score_of(subscription, *at) is not None


def written_in(*texts: Subscription) -> Iterator[Any]:
    """Every constant of some subscriptions; for a pattern, strings that may fit it."""
    for node in (node for text in texts for node in parts(text)):
        match node:
            case Literal(value=value):
                yield value
            case In(items=items):
                yield from (item.value for item in items)
            case TextTest(text=text):
                yield text
            case Like(pattern=pattern):
                yield pattern.replace("%", "").replace("_", "a")
                yield pattern.replace("%", "ba").replace("_", "b")


def near(value: Any) -> list[Any]:
    """A value and what lies beside it."""
    if isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        return [value, value + "a", "a" + value, value[:-1], value.upper()]
    around = [value, next_number(value), previous_number(value), float(value)]
    around += [value + 1, value - 1, -value, value / 2]
    return [number for number in around if abs(number) <= max(NUMBERS)]


def set_at(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        values = inner
    values[path[-1]] = value


def sampled(a: Subscription, b: Subscription, seed: int, count: int) -> Iterator[Witness]:
    """Publications, moments and states near everything that two subscriptions mention."""
    chance = random.Random(seed)
    constants = [value for constant in written_in(a, b) for value in near(constant)]
    pool = [*constants, *constants, *NUMBERS[:8], 0, 1, 0.5, "", "a", True, False, None, []]
    nodes = [node for text in (a, b) for node in parts(text)]
    names = sorted({node.path for node in nodes if isinstance(node, Attribute)})
    variables = sorted({node.path for node in nodes if isinstance(node, Me)})
    for _ in range(count):
        # Few different values, so that two attributes are often equal or of one type.
        few = chance.choices(pool, k=chance.choice((1, 3, len(pool))))
        filled: list[dict[str, Any]] = [{}, {}, {}]
        for values, paths in zip(filled, (names, variables, variables), strict=True):
            for path in paths:
                if chance.random() < 0.95:
                    set_at(values, path, chance.choice(few))
        t = chance.choice((0.0, 0.5, 1.0, 2.0, 8.0, 1e9, chance.uniform(0, 10)))
        yield Witness(filled[0], t, {"a": filled[1], "b": filled[2]})


def is_state_spoken_of(state: object) -> bool:
    """Whether answers about one subscriber speak of a state: none of its numbers is too large."""
    if isinstance(state, dict):
        return all(is_state_spoken_of(inner) for inner in state.values())
    return not isinstance(state, int | float) or abs(state) <= STATE_MAX


def check_answers(a: Subscription, b: Subscription, seed: int, same_subscriber: bool) -> None:
    """Hold both answers, and their witnesses, against the oracle."""
    covering = covers(a, b, same_subscriber=same_subscriber)
    meeting = intersects(a, b, same_subscriber=same_subscriber)
    owner = "a" if same_subscriber else "b"
    assert (covering.witness is not None) == (covering.verdict is ProofResult.NO)
    assert (meeting.witness is not None) == (meeting.verdict is ProofResult.YES)
    if covering.witness is not None:
        admit(covering.witness.publication)
        assert delivered(b, covering.witness, owner)
        assert not delivered(a, covering.witness, "a")
    if meeting.witness is not None:
        admit(meeting.witness.publication)
        assert delivered(a, meeting.witness, "a")
        assert delivered(b, meeting.witness, owner)
    for each in sampled(a, b, seed, count=20):
        if same_subscriber and not is_state_spoken_of(each.me["a"]):
            continue
        by_a, by_b = delivered(a, each, "a"), delivered(b, each, owner)
        assert not (by_b and not by_a and covering.verdict is ProofResult.YES), (to_text(a), each)
        assert not (by_a and by_b and meeting.verdict is ProofResult.NO), (to_text(a), each)


seeds = st.integers(0, 2**32)


@examples(1_000)
@given(static_subscriptions, static_subscriptions, seeds)
def test_no_publication_contradicts_static_answers(
    a: Subscription, b: Subscription, seed: int
) -> None:
    check_answers(a, b, seed, same_subscriber=False)


@examples(150)  # about 0.1 s each: some use up all the steps that a proof may take
@given(subscriptions, subscriptions, seeds, st.booleans())
def test_no_publication_contradicts_any_answer(
    a: Subscription, b: Subscription, seed: int, same_subscriber: bool
) -> None:
    check_answers(a, b, seed, same_subscriber)


# Attributes in ranges, compared with what is computed from each other: here proofs are found.
_bounded = [Attribute(("a",)), Attribute(("b",)), Me(("x",))]
_ranges = st.builds(
    lambda subject, ends: Between(subject, Literal(min(ends)), Literal(max(ends))),
    st.sampled_from(_bounded),
    st.tuples(numbers, numbers),
)
_leaves = st.sampled_from([*_bounded, Time()]) | numbers.map(Literal)
_sums = st.builds(
    Arithmetic, cast("st.SearchStrategy[Operator]", st.sampled_from("+-*/")), _leaves, _leaves
)
_atoms = st.builds(Comparison, comparators, _leaves | _sums, _leaves | _sums)
_moving = st.builds(
    lambda ranges, atoms: Subscription(And((*ranges, *atoms))),
    st.lists(_ranges, min_size=1, max_size=2),
    st.lists(_atoms, min_size=1, max_size=2),
)


@examples(150)  # as above
@given(_moving, _moving, seeds)
def test_no_publication_contradicts_answers_about_bounds_that_move(
    a: Subscription, b: Subscription, seed: int
) -> None:
    check_answers(a, b, seed, same_subscriber=True)


def test_a_wrong_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is judged: with answers turned round, each of these fails."""
    three, five = parse("x > 3 AND s = 'a'"), parse("x > 5")

    def check() -> None:
        for seed in range(50):
            check_answers(three, five, seed, same_subscriber=False)

    check()
    for name, verdict in (("covers", ProofResult.YES), ("intersects", ProofResult.NO)):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, lambda *_, verdict=verdict, **__: Answer(verdict))
            with pytest.raises(AssertionError):
                check()


# --- laws -------------------------------------------------------------------------------------


def joined(kind: type[And] | type[Or], a: Subscription, b: Subscription) -> Subscription:
    return Subscription(kind((a.condition, b.condition)))


@examples(150)
@given(static_subscriptions)
def test_everything_covers_itself(a: Subscription) -> None:
    assert covers(a, a).verdict is not ProofResult.NO


@examples(60)
@given(subscriptions)
def test_everything_of_one_subscriber_covers_itself(a: Subscription) -> None:
    assert covers(a, a, same_subscriber=True).verdict is not ProofResult.NO


@examples(150)
@given(static_subscriptions, static_subscriptions, static_subscriptions)
def test_covering_is_transitive(a: Subscription, b: Subscription, c: Subscription) -> None:
    """Made so that they do cover; static ones are decided exactly, but for lower()."""
    b, c = joined(And, a, b), joined(And, joined(And, a, b), c)
    verdicts = {covers(a, b).verdict, covers(b, c).verdict, covers(a, c).verdict}
    assert verdicts <= {ProofResult.YES, ProofResult.UNKNOWN}


@examples(150)
@given(static_subscriptions, static_subscriptions, static_subscriptions)
def test_covering_is_transitive_by_chance(
    a: Subscription, b: Subscription, c: Subscription
) -> None:
    if covers(a, b).verdict is covers(b, c).verdict is ProofResult.YES:
        assert covers(a, c).verdict is not ProofResult.NO


@examples(150)
@given(static_subscriptions, static_subscriptions)
def test_meeting_is_mutual(a: Subscription, b: Subscription) -> None:
    there, back = intersects(a, b).verdict, intersects(b, a).verdict
    assert there is back or ProofResult.UNKNOWN in (there, back)


@examples(150)
@given(static_subscriptions, static_subscriptions)
def test_what_is_covered_is_met(a: Subscription, b: Subscription) -> None:
    if covers(a, b).verdict is ProofResult.YES and intersects(b, b).verdict is ProofResult.YES:
        assert intersects(a, b).verdict is not ProofResult.NO


@examples(150)
@given(static_subscriptions, static_subscriptions)
def test_an_alternative_covers_each_part_and_each_part_what_is_added(
    a: Subscription, b: Subscription
) -> None:
    assert covers(joined(Or, a, b), a).verdict is not ProofResult.NO
    assert covers(a, joined(And, a, b)).verdict is not ProofResult.NO


@examples(40)  # about 0.2 s each
@given(subscriptions, subscriptions)
def test_laws_hold_for_what_moves(a: Subscription, b: Subscription) -> None:
    a, b = Subscription(a.condition), Subscription(b.condition)
    either, both = joined(Or, a, b), joined(And, a, b)
    assert covers(either, a, same_subscriber=True).verdict is not ProofResult.NO
    assert covers(a, both, same_subscriber=True).verdict is not ProofResult.NO
    there, back = intersects(a, b).verdict, intersects(b, a).verdict
    assert there is back or ProofResult.UNKNOWN in (there, back)


def test_what_is_no_value_is_never_taken_for_the_time() -> None:
    condition: Any = parse("a > 1").condition
    with pytest.raises(TypeError, match="is no value"):
        value_of(condition, {}, 7.0, {})
