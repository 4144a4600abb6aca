"""Curves over the day."""

import numpy as np

from rove.world.traffic.curves import bump, hill, hours_apart, wave

HOURS = np.arange(0.0, 48.0, 0.01)


def test_midnight_is_no_border() -> None:
    assert hours_apart(23.0, 1.0) == 2.0
    assert hours_apart(np.array([1.0, 13.0, 25.0]), 1.0).tolist() == [0.0, 12.0, 0.0]
    assert hill(23.5, 0.5, 1.0) == hill(1.5, 0.5, 1.0) == 0.25


def test_curves_peak_where_they_should_and_are_smooth() -> None:
    for curve, lowest in ((wave(HOURS, 15.0), -1.0), (hill(HOURS, 15.0, 2.0), 0.0)):
        assert abs(HOURS[np.argmax(curve)] % 24.0 - 15.0) < 0.02
        assert curve.max() <= 1.0
        assert lowest <= curve.min() < lowest + 0.01
        assert np.abs(np.diff(curve)).max() < 0.01
    assert bump(np.array([0.0, 1.0, -1.0])).tolist() == [1.0, 0.25, 0.25]
