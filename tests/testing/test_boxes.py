"""The array workloads: one seed, one workload; shaped as they say; texts that mean their rows."""

import math

import numpy as np
import pytest

from rove.lang import matches, parse
from rove.testing.boxes import Boxes, Events, Name, workload

NAMES: tuple[Name, ...] = ("W1", "W2", "W3", "W4")


def matching(boxes: Boxes, values: np.ndarray, t: float = 0.0) -> np.ndarray:
    """Which rows a publication matches, by the definition of a box."""
    moved = 0.0 if boxes.speeds is None else boxes.speeds * t
    inside = (boxes.lows + moved <= values[:, None]) & (values[:, None] <= boxes.highs + moved)
    not_asked = np.isinf(boxes.lows) & np.isinf(boxes.highs)
    return np.asarray((inside | not_asked).all(axis=0))


@pytest.mark.parametrize("name", NAMES)
class TestEvery:
    def test_one_seed_gives_one_workload(self, name: Name) -> None:
        boxes, events = workload(name, 500, 50, seed=3)
        again, events_again = workload(name, 500, 50, seed=3)
        other, other_events = workload(name, 500, 50, seed=4)
        assert np.array_equal(boxes.lows, again.lows)
        assert np.array_equal(boxes.highs, again.highs)
        assert np.array_equal(events.values, events_again.values)
        assert not np.array_equal(boxes.lows, other.lows)
        assert not np.array_equal(events.values, other_events.values)

    def test_publications_do_not_depend_on_the_number_of_subscriptions(self, name: Name) -> None:
        assert np.array_equal(workload(name, 10, 50)[1].values, workload(name, 1_000, 50)[1].values)

    @pytest.mark.parametrize("count", [0, 1, 2, 1_023, 1_025])
    def test_there_are_as_many_as_asked_for(self, name: Name, count: int) -> None:
        boxes, events = workload(name, count, count)
        assert len(boxes) == len(events) == count
        assert boxes.lows.shape == boxes.highs.shape == (len(boxes.attributes), count)
        assert events.values.shape == (count, len(events.attributes))
        assert boxes.attributes == events.attributes

    def test_no_box_is_empty_and_no_value_missing(self, name: Name) -> None:
        boxes, events = workload(name, 5_000, 1_000)
        assert (boxes.lows <= boxes.highs).all()
        assert np.isfinite(events.values).all()

    @pytest.mark.parametrize("t", [0.0, 3.7])
    def test_a_text_means_its_row(self, name: Name, t: float) -> None:
        boxes, events = workload(name, 60, 60)
        # Publications on the bounds of a row, where an inexact text would differ.
        moved = boxes.lows if boxes.speeds is None else boxes.lows + boxes.speeds * t
        corners = np.where(np.isinf(moved), events.values.T, moved).T
        subscriptions = [parse(boxes.text(row)) for row in range(len(boxes))]
        found = 0
        sparse = events.with_missing(0.3).values
        for values in (*events.values, *sparse, *corners, *np.nextafter(corners, -math.inf)):
            publication = Events(events.attributes, values[None]).publication(0)
            said = [matches(subscription, publication, t) for subscription in subscriptions]
            assert said == matching(boxes, values, t).tolist()
            found += sum(said)
        assert found >= 60

    def test_missing_values_are_left_out(self, name: Name) -> None:
        events = workload(name, 0, 500)[1]
        sparse = events.with_missing(0.3, seed=5)
        share = np.isnan(sparse.values).mean()
        assert 0.25 < share < 0.35
        assert np.array_equal(sparse.values, events.with_missing(0.3, seed=5).values, True)
        publication = sparse.publication(7)
        present = ~np.isnan(sparse.values[7])
        names = [
            name for name, is_there in zip(events.attributes, present, strict=True) if is_there
        ]
        assert list(publication) == names
        assert list(publication.values()) == events.values[7][present].tolist()


@pytest.mark.parametrize(
    ("name", "per_million"), [("W1", 1_600), ("W2", 600), ("W3", 1_900), ("W4", 3_600)]
)
def test_as_many_match_as_the_workload_promises(name: Name, per_million: int) -> None:
    boxes, events = workload(name, 50_000, 400)
    share = np.mean([matching(boxes, values).mean() for values in events.values])
    assert share * 1e6 == pytest.approx(per_million, rel=0.3)


class TestTexts:
    def test_only_what_is_asked_for_is_said(self) -> None:
        infinity = math.inf
        lows = np.array([[-infinity, 1.0, -infinity, 2.0], [-infinity, -infinity, 3.0, 4.0]])
        highs = np.array([[infinity, infinity, 5.0, 2.0], [infinity, 6.5, 3.0, 7.0]])
        boxes = Boxes(("a", "b"), lows, highs)
        assert boxes.text(0) == "TRUE"
        assert boxes.text(1) == "a >= 1.0 AND b <= 6.5"
        assert boxes.text(2) == "a <= 5.0 AND b = 3.0"
        assert boxes.text(3) == "a = 2.0 AND b BETWEEN 4.0 AND 7.0"

    def test_speeds_are_said_with_their_sign(self) -> None:
        lows, highs = np.array([[100.0], [-5.0]]), np.array([[300.0], [5.0]])
        moving = Boxes(("x", "y"), lows, highs, np.array([[2.5], [-1.25]]))
        assert moving.text(0) == (
            "x BETWEEN 100.0 + 2.5 * t AND 300.0 + 2.5 * t"
            " AND y BETWEEN -5.0 - 1.25 * t AND 5.0 - 1.25 * t"
        )
        assert moving.at_rest().text(0) == "x BETWEEN 100.0 AND 300.0 AND y BETWEEN -5.0 AND 5.0"


class TestShapes:
    def test_air_quality_asks_for_places_and_thresholds(self) -> None:
        boxes = workload("W1", 20_000, 0)[0]
        asked = ~(np.isinf(boxes.lows) & np.isinf(boxes.highs))
        assert np.array_equal(asked[0], asked[1])
        assert 0.985 < asked[0].mean() < 0.995
        pollutants = asked[2:].sum(axis=0)
        assert set(pollutants.tolist()) == {1, 2}
        assert 0.18 < (pollutants == 2).mean() < 0.22

    def test_areas_of_the_world_travel(self) -> None:
        boxes = workload("W2", 20_000, 0)[0]
        assert np.allclose(boxes.highs - boxes.lows, 200)
        assert boxes.speeds is not None
        speed = np.hypot(*boxes.speeds)
        assert 9.9 < speed.max() <= 10.01
        assert boxes.at_rest().speeds is None

    def test_the_market_asks_for_a_symbol_and_two_to_five_more(self) -> None:
        boxes, events = workload("W3", 20_000, 1_000)
        asked = ~(np.isinf(boxes.lows) & np.isinf(boxes.highs))
        assert boxes.lows.shape[0] == 20
        assert 0.94 < asked[0].mean() < 0.96
        assert np.array_equal(boxes.lows[0, asked[0]], boxes.highs[0, asked[0]])
        more = asked[1:].sum(axis=0)
        assert set(more.tolist()) == {2, 3, 4, 5}
        # No attribute is preferred: 3.5 of 19 on average.
        assert np.allclose(asked[1:].mean(axis=1), 3.5 / 19, atol=0.015)
        assert set(np.unique(events.values[:, 0])) <= set(range(2_000))

    def test_nested_ones_cover_each_other(self) -> None:
        boxes = workload("W4", 3_000, 0)[0]
        roots = 3
        for row in range(roots, 3_000, 50):
            earlier = slice(0, row)
            inside = (boxes.lows[:, earlier] <= boxes.lows[:, row, None]) & (
                boxes.highs[:, row, None] <= boxes.highs[:, earlier]
            )
            assert inside.all(axis=0).any()
