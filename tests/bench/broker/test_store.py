"""The benchmark of the store runs through and says what it must; figures are not judged here."""

import pytest

from rove.bench.broker import store as store_bench


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bench, "_GROUPS", (1, 10))
    monkeypatch.setattr(store_bench, "_QUEUE_ROWS", 500)
    monkeypatch.setattr(store_bench, "_SECONDS", 0.02)


def test_the_suite_measures_what_it_promises() -> None:
    measures = {measure.name: measure for measure in store_bench.SUITE.run()}
    assert measures.keys() == {
        "store.commit.1",
        "store.commit.10",
        "store.busy.commit.1",
        "store.busy.commit.10",
        "store.submit.50",
        "store.load",
    }
    assert all(measure.value > 0 for measure in measures.values())
    assert measures["store.commit.10"].against == "store.commit.1"
    assert measures["store.commit.10"].ratio is not None
    assert measures["store.load"].goal == "<= 1 s"


def test_a_missing_row_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bench, "queue_key", lambda session, entry: session)
    monkeypatch.setattr(store_bench, "_QUEUE_SESSIONS", 10)
    with pytest.raises(AssertionError, match="not all there"):
        list(store_bench.SUITE.run())
