"""With a clock that is wrong, a widened expression matches whatever the exact one does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import Subscription, normalise, parse
from rove.lang.errors import LimitError
from rove.lang.normal_form import NormalForm, holds
from rove.mesh.interest.regions import expression_of
from rove.mesh.interest.time_error import with_time_error
from rove.testing import strategies
from tests.effort import examples


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("x >= 3 + 2 * t", "x >= 2 * (t - 0.5) + 3"),
        ("x <= 3 - 2 * t", "x <= 3 - 2 * (t - 0.5)"),
        ("x >= 3 - t / 4", "x >= 3 - (t + 0.5) / 4"),
        ("x = t AND y > 1", "y > 1"),
        ("x >= sin(t) AND y > 1", "y > 1"),
        ("x >= sqrt(t) AND y > 1", "y > 1"),
        ("x <= 1e308 * t AND y > 1", "y > 1"),
        ("x > 3", "x > 3"),
    ],
)
def test_bounds_that_rise_or_fall_are_shifted_and_others_left_out(text: str, wide: str) -> None:
    assert expression_of(with_time_error(normalise(parse(text)).conjunctions, 0.5)) == wide


@given(
    encounter=strategies.encounters(),
    error_s=st.sampled_from([0.0, 1e-9, 0.1, 0.5, 3.0]),
    share=st.sampled_from([-1.0, -0.5, 0.0, 0.7, 1.0]),
)
@examples(1_500)
def test_nothing_is_missed_within_the_error(
    encounter: tuple[Subscription, dict[str, object], float, dict[str, object]],
    error_s: float,
    share: float,
) -> None:
    subscription, publication, t, me = encounter
    try:
        form = normalise(subscription)
    except LimitError:
        return
    wide = NormalForm(with_time_error(form.conjunctions, error_s))
    if holds(form, publication, t, me):
        assert holds(wide, publication, t + 0.999999 * share * error_s, me)
