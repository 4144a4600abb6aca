"""A conjunction at a moment means what it means at that moment."""

from typing import Any

import pytest
from hypothesis import given

from rove.lang import LimitError, Subscription, normalise, parse
from rove.lang.normal_form import NormalForm, holds
from rove.lang.partial_evaluation import at_moment, is_fixed
from rove.testing import strategies
from tests.effort import examples


@examples(500)
@given(strategies.encounters())
def test_nothing_changes_but_that_it_stands_still(
    encounter: tuple[Subscription, dict[str, Any], float, dict[str, Any]],
) -> None:
    subscription, publication, t, me = encounter
    try:
        form = normalise(subscription)
    except LimitError:
        return
    for conjunction in form.conjunctions:
        wanted = holds(NormalForm((conjunction,)), publication, t, me)
        for known_t, known_me in ((t, me), (t, None), (None, me)):
            still = at_moment(conjunction, known_t, known_me)
            found = still is not None and holds(NormalForm((still,)), publication, t, me)
            assert found == wanted
            if still is not None and known_t is not None and known_me is not None:
                assert is_fixed(still)


@pytest.mark.parametrize(
    ("text", "t", "me", "plain"),
    [
        ("x BETWEEN t - 3 AND t + 3", 2.0, {}, "x BETWEEN -1.0 AND 5.0"),
        ("x > me.x", 0.0, {"x": 4}, "x > 4"),
        ("me.on AND x > 1", 0.0, {"on": True}, "x > 1"),
        ("me.on IS NULL AND x > 1", 0.0, {}, "x > 1"),
        ("x > t AND x > 5", 2.0, {}, "x > 5"),
    ],
)
def test_an_area_that_travels_is_a_plain_box_at_one_time(
    text: str, t: float, me: dict[str, Any], plain: str
) -> None:
    (conjunction,) = normalise(parse(text)).conjunctions
    assert at_moment(conjunction, t, me) == normalise(parse(plain)).conjunctions[0]


def test_a_boolean_has_no_order_here_either() -> None:
    (conjunction,) = normalise(parse("a < me.x")).conjunctions
    assert at_moment(conjunction, 0.0, {"x": True}) is None


@pytest.mark.parametrize("text", ["x > me.y", "me.on AND x > 1", "x > 1 / t", "t > 5 AND x > 1"])
def test_what_cannot_hold_is_nothing(text: str) -> None:
    (conjunction,) = normalise(parse(text)).conjunctions
    assert at_moment(conjunction, 0.0, {}) is None
