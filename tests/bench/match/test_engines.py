"""The engines of the benchmark agree with the full scan, and the judge notices where not."""

import numpy as np
import pytest

from rove.bench.match.engines import (
    DESIGNS,
    ENGINES,
    DesignEngine,
    IndexEngine,
    Judge,
    Stream,
    WrongAnswerError,
    stream_of,
)
from rove.match.results import Pairs
from rove.testing.boxes import Name, workload
from tests.effort import some


def a_stream(name: Name = "W1", size: int = 200) -> tuple[Judge, Stream]:
    boxes, events = workload(name, size, 40)
    stream = stream_of(events)
    return Judge(boxes.at_rest(), stream), stream


class TestStream:
    def test_parts_are_the_whole(self) -> None:
        _, stream = a_stream()
        parts = stream.parts(7)
        assert [len(part) for part in parts] == [5, 6, 6, 5, 6, 6, 6]
        assert np.array_equal(np.concatenate([part.values for part in parts]), stream.values)
        assert [one for part in parts for one in part.publications] == stream.publications

    def test_singles_are_lines(self) -> None:
        _, stream = a_stream()
        singles = stream.singles()
        assert [one.values.shape for one in singles] == [(1, 5)] * 40
        assert singles[3].publications == stream.publications[3:4]

    def test_times_are_even(self) -> None:
        _, events = workload("W2", 1, 5)
        assert stream_of(events, lasting_s=4.0).at.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_every_engine_agrees_with_the_scan(kind: str, name: Name, share: float) -> None:
    boxes, events = workload(name, 150, 30)
    stream = stream_of(events.with_missing(share))
    judge = Judge(boxes.at_rest(), stream)
    judge.check(kind, ENGINES[kind].make(boxes.at_rest()).match(stream), len(stream))
    assert judge.events_per_s > 0


class TestJudge:
    def test_order_within_a_publication_does_not_matter(self) -> None:
        boxes, events = workload("W4", 300, 40)
        stream = stream_of(events)
        found = IndexEngine(boxes).match(stream)
        assert len(found) > 1
        turned = Pairs(found.publications[::-1], found.subscriptions[::-1])
        Judge(boxes, stream).check("turned", turned, len(stream))

    @pytest.mark.parametrize("fault", ["one less", "one more", "twice", "moved"])
    def test_a_wrong_answer_is_refused(self, fault: str) -> None:
        boxes, events = workload("W4", 300, 40)
        stream = stream_of(events)
        found = IndexEngine(boxes).match(stream)
        numbers, ids = found.publications, found.subscriptions
        wrong = {
            "one less": (numbers[1:], ids[1:]),
            "one more": (np.append(numbers, numbers[:1] * 0), np.append(ids, 300)),
            "twice": (np.append(numbers, numbers[:1]), np.append(ids, ids[:1])),
            "moved": (numbers + 1, ids),
        }
        with pytest.raises(WrongAnswerError, match="index differs"):
            Judge(boxes, stream).check("index", Pairs(*wrong[fault]), len(stream))

    def test_the_first_so_many_can_be_judged(self) -> None:
        boxes, events = workload("W4", 300, 40)
        stream = stream_of(events)
        judge = Judge(boxes, stream)
        found = IndexEngine(boxes).match(stream.part(0, 10))
        judge.check("index", found, 10)
        with pytest.raises(WrongAnswerError):
            judge.check("index", found, 40)


class TestDesigns:
    @pytest.mark.parametrize("name", some(DESIGNS))
    def test_each_is_right_for_the_moment_it_names(self, name: str) -> None:
        boxes, events = workload("W2", 500, 1_500)
        stream = stream_of(events, lasting_s=4.0)
        engine = DesignEngine(boxes, DESIGNS[name])
        found = engine.match(stream)
        judge = Judge(boxes, stream)
        judge.check(name, found, len(stream), engine.as_of(stream.at))
        if name != "lees":
            with pytest.raises(WrongAnswerError):  # versions of up to a second are not up to date
                judge.check(name, found, len(stream))

    def test_moments(self) -> None:
        boxes, _ = workload("W2", 1, 1)
        at = np.array([0.0, 0.4, 1.0, 1.2, 2.5])
        moments = {name: DesignEngine(boxes, e).as_of(at).tolist() for name, e in DESIGNS.items()}
        assert moments["lees"] == at.tolist()
        assert moments["pes"] == [0.0, 0.0, 1.0, 1.0, 2.0]
        assert moments["clees"] == [0.0, 0.0, 0.0, 1.2, 2.5]
