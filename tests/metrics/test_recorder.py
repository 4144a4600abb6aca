"""The recorder never waits, loses nothing that fits into its buffer, and writes nothing twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rove.metrics.database import Database, Reading
from rove.metrics.recorder import BATCH_MAX, Recorder, RecorderState
from tests.effort import PATIENCE_S
from tests.metrics.conftest import DatabaseServer

NOW = 1_790_000_000.0
NEVER_S = 30.0
"""Longer than this nothing waits that "never waits", however busy the machine; a server that does
not answer would be waited for a minute."""


def readings(begin: int, end: int, labels: str = "") -> list[Reading]:
    return [Reading("m", labels, NOW + number, number) for number in range(begin, end)]


@contextmanager
def recorder_of(place: str, **settings: float) -> Iterator[Recorder]:
    recorder = Recorder(place, **settings)  # type: ignore[arg-type]
    try:
        yield recorder
    finally:
        recorder.close(PATIENCE_S)


def wait_for(recorder: Recorder, is_so: Callable[[RecorderState], bool]) -> RecorderState:
    end = time.monotonic() + PATIENCE_S
    while not is_so(state := recorder.state()):
        assert time.monotonic() < end, state
        time.sleep(0.01)
    return state


def put_timed(recorder: Recorder, part: list[Reading]) -> float:
    begin = time.perf_counter()
    recorder.put(part)
    return time.perf_counter() - begin


def test_what_is_put_is_written(place: str) -> None:
    with recorder_of(place) as recorder:
        for begin in range(0, 100, 10):
            recorder.put(readings(begin, begin + 10))
        state = wait_for(recorder, lambda state: state.written == 100)
        assert state == RecorderState(100, 0, 0, None)
        with Database(place) as database:
            assert database.readings("m") == readings(0, 100)


def test_closing_writes_the_rest(tmp_path: Path) -> None:
    place = str(tmp_path / "metrics.db")
    recorder = Recorder(place)
    recorder.put(readings(0, 2 * BATCH_MAX + 10))
    recorder.close(PATIENCE_S)
    assert recorder.state() == RecorderState(2 * BATCH_MAX + 10, 0, 0, None)
    recorder.put(readings(0, 5))
    recorder.close(PATIENCE_S)
    assert recorder.state().dropped == 5
    with Database(place) as database:
        assert len(database.readings("m")) == 2 * BATCH_MAX + 10


def test_an_outage_loses_nothing_that_the_buffer_holds(
    server: DatabaseServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed in the middle of writing; put to again and again meanwhile."""
    place = server.new_database()
    slowest_s = 0.0
    with caplog.at_level(logging.INFO, "rove.metrics"), recorder_of(place) as recorder:
        recorder.put(readings(0, 20_000))
        wait_for(recorder, lambda state: state.written > 0)
        server.kill()
        try:
            for begin in range(20_000, 30_000, 100):
                slowest_s = max(slowest_s, put_timed(recorder, readings(begin, begin + 100)))
            state = wait_for(recorder, lambda state: state.last_error is not None)
            assert state.written + state.waiting == 30_000
            assert state.dropped == 0
            assert slowest_s < NEVER_S
        finally:
            server.start()
        state = wait_for(recorder, lambda state: state.waiting == 0)
        assert (state.dropped, state.last_error) == (0, None)
        with Database(place) as database:
            assert database.readings("m") == readings(0, 30_000)
    said = [one.getMessage() for one in caplog.records]
    assert said == ["metrics cannot be written and are buffered", "metrics are written again"]
    assert "se cret" not in str([one.__dict__ for one in caplog.records])


def test_a_server_that_does_not_answer_holds_up_nobody(mariadb: DatabaseServer) -> None:
    place = mariadb.new_database()
    with recorder_of(place) as recorder:
        recorder.put(readings(0, 10))
        wait_for(recorder, lambda state: state.written == 10)
        with mariadb.frozen():
            took_s = [put_timed(recorder, readings(n, n + 10)) for n in range(10, 1_000, 10)]
            time.sleep(0.3)  # the thread is in the middle of it by now
            took_s += [put_timed(recorder, readings(n, n + 10)) for n in range(1_000, 2_000, 10)]
            assert recorder.state().written == 10
        assert max(took_s) < NEVER_S
        state = wait_for(recorder, lambda state: state.waiting == 0)
        assert (state.written, state.dropped, state.last_error) == (2_000, 0, None)
    with Database(place) as database:
        assert database.readings("m") == readings(0, 2_000)


def test_a_database_that_comes_later_gets_everything(server: DatabaseServer) -> None:
    place = server.new_database()
    server.kill()
    try:
        recorder = Recorder(place)
        assert put_timed(recorder, readings(0, 10)) < NEVER_S
        wait_for(recorder, lambda state: state.last_error is not None)
    finally:
        server.start()
    recorder.close(PATIENCE_S)
    assert recorder.state() == RecorderState(10, 0, 0, None)


def test_a_full_buffer_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with recorder_of(str(folder / "metrics.db"), buffer_max=100) as recorder:
        recorder.put(readings(0, 60))
        wait_for(recorder, lambda state: state.last_error is not None)
        recorder.put(readings(60, 130))
        recorder.put(readings(130, 140))
        state = recorder.state()
        assert (state.written, state.waiting, state.dropped) == (0, 100, 40)
        folder.mkdir()
        state = wait_for(recorder, lambda state: state.waiting == 0)
        assert (state.written, state.dropped, state.last_error) == (100, 40, None)
        with Database(str(folder / "metrics.db")) as database:
            assert database.readings("m") == readings(40, 140)


def test_what_is_dropped_while_it_is_written_counts_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "metrics.db")
    entered, go_on = threading.Event(), threading.Event()
    write = Database.put_readings

    def slow(database: Database, batch: list[Reading]) -> int:
        entered.set()
        go_on.wait(PATIENCE_S)
        return write(database, batch)

    monkeypatch.setattr(Database, "put_readings", slow)
    with recorder_of(place, buffer_max=50) as recorder:
        recorder.put(readings(0, 50))
        assert entered.wait(PATIENCE_S)
        assert put_timed(recorder, readings(50, 80)) < NEVER_S  # 0 to 29 have no room any more
        assert recorder.state() == RecorderState(0, 50, 30, None)
        go_on.set()
        assert wait_for(recorder, lambda s: s.waiting == 0) == RecorderState(80, 0, 0, None)
    with Database(place) as database:
        assert database.readings("m") == readings(0, 80)


def test_readings_that_no_database_keeps_hold_up_nobody(tmp_path: Path) -> None:
    place = str(tmp_path / "metrics.db")
    with recorder_of(place) as recorder:
        recorder.put([Reading("m", "", NOW, float("nan")), *readings(0, 3)])
        recorder.put([Reading("m" * 999, "", NOW, 1.0)])
        state = wait_for(recorder, lambda state: state.waiting == 0)
        assert (state.written, state.dropped, state.last_error) == (3, 2, None)


def test_a_place_that_is_none_is_told_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder("nonsense://me:secret@there/x")
    recorder.put(readings(0, 3))
    state = wait_for(recorder, lambda state: state.last_error is not None)
    assert "cannot use nonsense://there/x" in str(state.last_error)
    recorder.close(0.1)
    assert recorder.state().waiting == 3
    said = [one.getMessage() for one in caplog.records]
    assert said == ["metrics cannot be written and are buffered", "metrics were not written"]


def test_readings_are_forgotten_after_a_while(tmp_path: Path) -> None:
    place = str(tmp_path / "metrics.db")
    now = time.time()
    with Database(place) as database:
        database.put_readings([Reading("m", "", now - 7_300, 1.0)])
        with recorder_of(place, keep_raw_s=7_200) as recorder:
            recorder.put([Reading("m", "", now, 1.0)])
        assert [one.at for one in database.readings("m")] == [pytest.approx(now)]
