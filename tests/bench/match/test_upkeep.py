"""What an index costs to keep: measured after real changes, judged by what is left."""

import gc
import re
from collections.abc import Iterator

import pytest

from rove.bench.match import upkeep as match_upkeep
from rove.bench.match.engines import WrongAnswerError
from rove.bench.match.upkeep import changes, memory, saving, start
from rove.bench.measure import Measure
from rove.match import Matcher, Work


def silent(text: str) -> None:
    """Nobody is watching."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_upkeep, "_ADDED_MAX", 3_000)
    monkeypatch.setattr(match_upkeep, "_EVENTS", 32)
    monkeypatch.setattr(match_upkeep, "_TRACED_MAX", 500)


@pytest.fixture(autouse=True, scope="module")
def frozen() -> Iterator[None]:
    """What is measured unfreezes at its end what tests/conftest.py has frozen."""
    yield
    gc.freeze()


class TestChanges:
    def test_insertions_and_removals_are_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        merged: list[Work] = []

        def install(self: Matcher, work: Work) -> None:
            merged.append(work)
            work.install()

        monkeypatch.setattr(Matcher, "install", install)
        monkeypatch.setattr("rove.match.index.index.MERGED_AT_ONCE_MAX", 300)
        measures = {measure.name: measure for measure in changes(("W1", "W2"), 3_000, silent)}
        group = "match.W1.3000"
        assert list(measures) == [f"{group}.normalise"] + [
            f"{group}.{what}{kind}"
            for what in ("insert", "insert+match", "remove")
            for kind in ("", ".pause", ".merging")
        ]
        assert measures[f"{group}.insert"].goal == "<= 30 µs"
        assert measures[f"{group}.insert.pause"].goal == "<= 20 ms"
        pause_us = 1e3 * measures[f"{group}.insert.pause"].value
        assert pause_us > measures[f"{group}.insert"].value, "the longest is above the mean"
        assert merged, "some merge ran beside"

    @pytest.mark.parametrize("method", ["add", "remove"])
    def test_a_lost_change_stops_the_benchmark(
        self, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        done = getattr(Matcher, method)

        def forgetful(self: Matcher, id: int, *rest: object) -> None:
            if id % 2:
                done(self, id, *rest)

        monkeypatch.setattr(match_upkeep, "_ADDED_MAX", 200)
        monkeypatch.setattr(Matcher, method, forgetful)
        if method == "add":  # what is not there cannot be removed
            monkeypatch.setattr(Matcher, "remove", lambda self, id: None)
        with pytest.raises(WrongAnswerError, match="after changes"):
            list(changes(("W4",), 200, silent))


class TestMemory:
    @pytest.mark.soak
    def test_bytes_for_many_and_one_by_one(self) -> None:
        measures = list(memory(("W2",), 1_000, silent))
        assert [(measure.name, measure.goal) for measure in measures] == [
            ("match.W2.1000.memory", "<= 200 bytes"),
            ("match.W2.500.memory.one-by-one", "<= 200 bytes"),
        ]
        for measure in measures:
            assert 40 < measure.value < 2_000

    def test_what_is_kept_is_counted(self) -> None:
        # So large that what other threads of the tests allocate meanwhile does not count.
        measure = match_upkeep._bytes_each("m", 10, lambda: bytearray(50_000_000))
        assert measure.value == pytest.approx(5_000_000, rel=0.05)
        assert measure.reached is False


class TestSaving:
    def test_what_was_saved_is_loaded_and_judged(self) -> None:
        measures = list(saving(("W3", "W1"), 500, silent))
        assert [(measure.name, measure.unit) for measure in measures] == [
            ("match.W3.500.save", "s"),
            ("match.W3.500.saved", "bytes"),
            ("match.W3.500.load", "ms"),
        ]

    def test_a_matcher_that_loads_wrongly_stops_the_benchmark(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(match_upkeep, "_loaded", lambda path: Matcher())
        with pytest.raises(WrongAnswerError, match="saved and loaded"):
            list(saving(("W4",), 300, silent))


def test_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compiling anything: the kernels are compiled once a day, not in every test."""
    started: list[bool] = []

    def seconds(cache: str, *, compiled: bool) -> float:
        started.append(compiled)
        return 10.0 if len(started) == 1 else 1.0

    monkeypatch.setattr(match_upkeep, "_started_s", seconds)
    cold, warm, plain = list(start((), 0, silent))
    assert (cold.name, cold.value) == ("match.start.cold", 10.0)
    assert (warm.name, warm.ratio) == ("match.start.warm", 0.1)
    assert plain.name == "match.start.numpy"
    assert started == [True, True, True, True, False, False, False]


def test_the_started_process_answers_without_kernels(tmp_path: pytest.TempPathFactory) -> None:
    assert 0 < match_upkeep._started_s(str(tmp_path), compiled=False) < 60
    assert re.search(r"== \[7\]", match_upkeep._START), "it checks its answer"


def test_limits_are_shown() -> None:
    assert match_upkeep._limited("m", 3.0, "µs", None) == Measure("m", 3.0, "µs")
    assert match_upkeep._limited("m", 3.0, "µs", 2.0).reached is False
