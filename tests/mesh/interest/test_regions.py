"""Boxes and hulls: rounded outwards, and never narrower than what they stand for."""

import pytest
from hypothesis import given

from rove.lang import Subscription, matches, normalise, parse
from rove.lang.errors import LimitError
from rove.lang.normal_form import NormalForm, holds
from rove.mesh.interest.regions import Region, expression_of, hull, region_covers, region_of
from rove.testing import strategies
from tests.effort import examples

Encounter = tuple[Subscription, dict[str, object], float, dict[str, object]]
static = strategies.encounters(strategies.static_subscriptions)


def region(text: str) -> Region:
    return region_of(normalise(parse(text)).conjunctions)


def expression(text: str, other: str) -> str | None:
    return expression_of(hull(region(text), region(other)).conjunctions)


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("x > 3 AND y = 1", "x < 2 AND x > 1", "x > 1"),
        ("x BETWEEN 1 AND 2", "x BETWEEN 5 AND 6", "x BETWEEN 1 AND 6"),
        ("s = 'a' AND x = 1", "s = 'b' AND x = 3", "s IN ('a', 'b') AND x BETWEEN 1 AND 3"),
        ("s = 'a' AND x = 1", "y = 1", None),
        ("x = 1", "x = 'a'", "x = 1 OR x = 'a'"),
        ("x IS NOT NULL", "x > 3", "x IS NOT NULL"),
        ("x IS NULL", "x IS NOT NULL", None),
        ("x = 9007199254740993", "x = 1", "x BETWEEN 1 AND 9007199254740993"),
        ("x BETWEEN t AND t + 3 AND y > 2", "y > 4", "y > 2"),
    ],
)
def test_a_hull_is_as_narrow_as_one_conjunction_can_say(a: str, b: str, both: str | None) -> None:
    assert expression(a, b) == both
    assert expression(b, a) == both


@given(one=static, other=static)
@examples(1_000)
def test_a_hull_matches_what_either_matches(one: Encounter, other: Encounter) -> None:
    publications = one[1], other[1]
    for a in region_of_any(one[0]):
        for b in region_of_any(other[0]):
            text = expression_of(hull(a, b).conjunctions)
            if text is None:
                continue
            wide = parse(text)
            for publication in publications:
                wanted = any(holds(NormalForm(c.conjunctions), publication) for c in (a, b))
                assert not wanted or matches(wide, publication)


@given(one=strategies.encounters(), other=strategies.encounters())
@examples(1_000)
def test_what_covers_matches_what_is_covered(one: Encounter, other: Encounter) -> None:
    for a, b in ((one, other), (other, one), (one, one)):
        for outer in region_of_any(a[0]):
            for inner in region_of_any(b[0]):
                if not region_covers(outer, inner, same_time=True):
                    continue
                for _, publication, t, me in (a, b):
                    wanted = holds(NormalForm(inner.conjunctions), publication, t, me)
                    assert not wanted or holds(NormalForm(outer.conjunctions), publication, t, me)


def region_of_any(subscription: Subscription) -> list[Region]:
    """The whole, and its conjunctions one by one."""
    try:
        found = normalise(subscription).conjunctions
    except LimitError:
        return []
    return [region_of((conjunction,)) for conjunction in found[:3]]
