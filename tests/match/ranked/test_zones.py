"""Only those are looked at that may want a publication."""

from random import Random

import numpy as np
import pytest

from rove.lang import parse
from rove.match.ranked.pool import RankedPool
from rove.match.ranked.scores import read


def test_a_publication_touches_only_those_that_may_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.match.ranked.pool._LOOSE_MIN", 100)
    random = Random(3)
    pool = RankedPool()
    for id in range(2_000):
        pool.add(id, parse(f"ORDER BY abs(a - {random.random()}) LIMIT 2 WITHIN 10 SECONDS"))
    for number in range(1_000):
        pool.enter({"a": random.random()}, number / 100, np.empty(0, np.int64))
        pool.take_deliveries()
    (zones,) = pool._zones
    assert zones.program is not None
    for publication in ({"a": 0.5}, {"a": 2**53 + 1}):
        reading = read(zones.program, publication, 0.0)
        assert reading is not None
        places, scores = zones.candidates(reading)
        assert (scores is None) is (publication["a"] != 0.5)
        assert places.size < 200
