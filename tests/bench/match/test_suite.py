"""The benchmark of matching runs through and checks answers; its figures are not judged here."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from rove.bench.harness import Bench
from rove.bench.match import suite as match_bench
from rove.bench.match.engines import IndexEngine, Judge, Stream, WrongAnswerError
from rove.bench.match.suite import SUITE, MatchOptions, steady_seconds
from rove.bench.measure import Measure
from rove.match import Matcher
from rove.match.results import Pairs

QUICK = MatchOptions(sizes=(100, 300), events=32, parts=("speed",))


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_bench, "_ENOUGH_S", 0.001)
    monkeypatch.setattr(match_bench, "_SMALL_EVENTS", 20)


def measured(**changes: object) -> dict[str, Measure]:
    options = msgspec.structs.replace(QUICK, **changes)
    return {measure.name: measure for measure in SUITE.run(options)}


class TestSpeed:
    def test_every_engine_is_compared_with_the_scan(self) -> None:
        measures = measured(workloads=("W1", "W3"))
        for name in ("W1", "W3"):
            for group in (f"match.{name}.100", f"match.{name}.300.missing30"):
                assert measures[f"{group}.scan"].unit == "events/s"
                for engine in (
                    "index.stream",
                    "index.dictionary",
                    "index.batch32",
                    "numpy.stream",
                    "forest.stream",
                ):
                    measure = measures[f"{group}.{engine}"]
                    assert measure.against == f"{group}.scan"
                    assert measure.ratio == pytest.approx(
                        measure.value / measures[f"{group}.scan"].value
                    )
                threads = measures[f"{group}.index.threads2"]
                assert threads.against == f"{group}.index.batch32"
        assert measures["match.W1.300.index.build"].value > 0
        assert measures["match.W1.300.index.bytes"].value > 20

    def test_options_choose(self) -> None:
        names = list(
            measured(workloads=("W4",), sizes=(50,), engines=("index",), missing=0.0, threads=1)
        )
        group = "match.W4.50"
        assert names == [
            f"{group}.index.build",
            f"{group}.index.bytes",
            f"{group}.scan",
            f"{group}.index.stream",
            f"{group}.index.dictionary",
            f"{group}.index.batch32",
        ]

    def test_the_scan_alone(self) -> None:
        assert list(measured(workloads=("W2",), sizes=(50,), engines=(), missing=0.0)) == [
            "match.W2.50.scan"
        ]

    def test_an_engine_beyond_its_size_is_left_out(self) -> None:
        measures = measured(workloads=("W1",), sizes=(1_001,), engines=("forest",), missing=0.0)
        assert list(measures) == ["match.W1.1001.scan"]

    def test_goals_are_those_of_a_million(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(match_bench, "_GOAL_SIZE", 300)
        measures = measured(workloads=("W4",))
        goals = {name: m.goal for name, m in measures.items() if m.goal is not None}
        assert goals == {
            "match.W4.300.index.stream": ">= 75×",
            "match.W4.300.index.batch32": ">= 150×",
            "match.W4.300.missing30.index.stream": ">= 37.5×",
            "match.W4.300.missing30.index.batch32": ">= 75×",
        }

    @pytest.mark.parametrize("size", [32, 16])
    def test_a_wrong_batch_stops_the_benchmark(
        self, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        """The whole one, and halves for two threads."""
        right = IndexEngine.match

        def wrong(self: IndexEngine, stream: Stream) -> Pairs:
            found = right(self, stream)
            if len(stream) != size:
                return found
            return Pairs(found.publications[1:], found.subscriptions[1:])

        monkeypatch.setattr(IndexEngine, "match", wrong)
        with pytest.raises(WrongAnswerError, match=r"match\.W4\.300\.index\.(batch32|threads2)"):
            measured(workloads=("W4",), sizes=(300,), missing=0.0)

    def test_a_wrong_answer_to_one_stops_the_benchmark(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(IndexEngine, "match_one", lambda self, one, at: np.array([1, 2]))
        with pytest.raises(WrongAnswerError, match=r"match\.W4\.300\.index\.stream"):
            measured(workloads=("W4",), sizes=(300,), missing=0.0)

    def test_a_wrong_answer_to_a_dictionary_stops_the_benchmark(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Matcher, "match_one", lambda self, one, at: np.array([1, 2]))
        with pytest.raises(WrongAnswerError, match=r"match\.W4\.300\.index\.dictionary"):
            measured(workloads=("W4",), sizes=(300,), missing=0.0)


class TestKinetic:
    def test_moving_areas_are_compared_with_resting_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(match_bench, "_KINETIC_GOAL_SIZE", 300)
        measures = measured(parts=("kinetic",))
        kinetic = measures["match.W2.300.kinetic"]
        assert kinetic.against == "match.W2.300.static"
        assert kinetic.ratio == pytest.approx(kinetic.value / measures["match.W2.300.static"].value)
        assert kinetic.goal == "<= 1.6×"
        assert measures["match.W2.100.kinetic"].goal is None
        for engine in ("index.stream", "index.batch32", "pes.stream", "lees.stream"):
            assert measures[f"match.W2.300.moving.{engine}"].against == "match.W2.300.moving.scan"

    def test_only_with_w2(self) -> None:
        assert measured(parts=("kinetic",), workloads=("W1",)) == {}


def test_a_call_for_one_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = measured(parts=("small",))
    assert [measure.goal for measure in measures.values()] == ["<= 15 µs"] * 6
    assert "match.W1.10.call" in measures
    monkeypatch.setattr(Judge, "__init__", _judge_of_nothing)
    with pytest.raises(WrongAnswerError):
        measured(parts=("small",))


def _judge_of_nothing(self: Judge, boxes: object, stream: Stream) -> None:
    self._stream, self.events_per_s = stream, 1.0
    self._found = [np.empty(0, np.int64)] * len(stream)


def test_long_work_is_done_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_bench, "_ENOUGH_S", 1.0)
    for seconds, rounds in ((10.0, 2), (0.3, 5), (0.001, 10)):
        calls: list[int] = []
        clock = iter(np.arange(0, 1000) * seconds)
        monkeypatch.setattr("rove.bench.measure.time.perf_counter", lambda: next(clock))  # noqa: B023
        assert steady_seconds(lambda: calls.append(1)) == pytest.approx(seconds)  # noqa: B023
        assert len(calls) == rounds


class TestDrawing:
    def test_one_picture_for_each_workload(self, tmp_path: Path) -> None:
        folder = tmp_path / "plots"
        measured(workloads=("W1", "W4"), sizes=(50, 100), events=8, plots=folder)
        paths = sorted(folder.iterdir())
        assert [path.name for path in paths] == ["matching-W1.png", "matching-W4.png"]
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)

    def test_what_is_no_plain_speed_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn: list[str] = []

        def plot(measures: list[Measure], prefix: str, path: Path, title: str) -> None:
            drawn.extend(m.name for m in measures if m.name.startswith(prefix))

        monkeypatch.setattr(match_bench, "speed_plot", plot)
        names = [
            "match.W2.1000.scan",
            "match.W2.1000.index.stream",
            "match.W2.1000.index.batch4096",
            "match.W2.1000.index.threads2",
            "match.W2.1000.index.dictionary",
            "match.W2.1000.index.build",
            "match.W2.1000.missing30.index.stream",
            "match.W2.1000.moving.scan",
        ]
        bench = Bench(MatchOptions(workloads=("W2",), plots=tmp_path))
        match_bench._draw(bench, [Measure(name, 1.0, "events/s") for name in names])
        assert drawn == names[:3]
