"""Parts of the benchmark run, in a tiny version, with a real broker and a real matcher. One broker
serves them all, whatever they ask for, since starting takes most of the time. Figures are not
judged here; that everything due came, once and in order, is judged by the benchmark itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rove.bench.elastic import suite as elastic_bench
from rove.bench.elastic.brokers import CONFIGURATIONS, Configuration, running
from rove.bench.elastic.load import Run
from rove.bench.elastic.suite import FULL, QUICK, SUITE, ElasticOptions
from rove.bench.measure import Measure
from rove.testing.broker_processes import Running


@pytest.fixture(scope="module")
def broker() -> Iterator[Running]:
    """With one matcher, and perhaps a second."""
    with running(*QUICK.dynamic(1)) as one:
        yield one


@pytest.fixture
def shared(broker: Running, monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
    """Every configuration is that broker; which were asked for."""

    @contextmanager
    def same(
        configuration: Configuration, more: Mapping[str, str] | None = None
    ) -> Iterator[Running]:
        asked.append(configuration)
        yield broker

    asked: list[Configuration] = []
    monkeypatch.setattr(elastic_bench, "running", same)
    return asked


def measured(part: str, **changes: Any) -> dict[str, Measure]:
    told: list[str] = []
    options = msgspec.structs.replace(QUICK, parts=[part], **changes)
    measures = {one.name: one for one in SUITE.run(options, told.append)}
    assert told[0] == part
    assert all(name.startswith(f"elastic.{part}.") for name in measures)
    return measures


@pytest.mark.soak
def test_delay(shared: list[Configuration], tmp_path: Path) -> None:
    measures = measured("delay", configurations=("one",), plots=tmp_path)
    assert shared == [Configuration(1, 1)]
    assert list(measures) == [
        f"elastic.delay.{size}.one.{what}"
        for size in (1, 50)
        for what in ("mean", "p50", "p99", "rate")
    ]
    half, most = (measures[f"elastic.delay.50.one.{what}"].value for what in ("p50", "p99"))
    assert 0 < half <= most
    assert (tmp_path / "elastic-delay.png").exists()


@pytest.mark.usefixtures("shared")
@pytest.mark.soak
def test_length() -> None:
    measures = measured("length")
    growth = measures["elastic.length.embedded.last_quarter"]
    assert growth.goal == "<= 1.2×"
    assert growth.ratio is not None
    assert growth.note == "of 80 publications"
    assert measures["elastic.length.40.embedded.mean"].value > 0


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_steps(tmp_path: Path) -> None:
    measures = measured("steps", plots=tmp_path)
    most = measures["elastic.steps.min1.most"].value
    labels = ["1-50", "2-100", f"3-{round(QUICK.top_share * most)}", "4-100", "5-50"]
    for label in labels:
        group = f"elastic.steps.min1.{label}"
        assert measures[f"{group}.mean"].value > 0
        assert measures[f"{group}.changes"].goal == "<= 2 rearrangements"
    assert max(measures[f"elastic.steps.min1.{label}.matchers"].value for label in labels) >= 1
    assert (tmp_path / "elastic-steps.png").exists()


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_on_a_machine_that_is_not_free_no_throughput_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = Measure("elastic.throughput.undisturbed", 1.1, "of one process", reached=False)
    monkeypatch.setattr(elastic_bench, "_undisturbed", lambda seconds: busy)
    monkeypatch.setattr(elastic_bench, "_THROUGHPUT_GOAL", 0.0)
    two = measured("throughput")["elastic.throughput.replicated"]
    assert two.reached is False
    assert two.note == "does not count: the machine was not free"


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_heavy(tmp_path: Path) -> None:
    measures = measured("heavy", plots=tmp_path)
    most = measures["elastic.heavy.embedded"].value
    assert measures[f"elastic.heavy.1-{round(0.2 * most)}.p99"].value > 0
    assert (tmp_path / "elastic-heavy.png").exists()


@pytest.mark.soak
def test_throughput(shared: list[Configuration]) -> None:
    measures = measured("throughput")
    assert shared == [CONFIGURATIONS["one"], CONFIGURATIONS["replicated"]]
    one, two = (measures[f"elastic.throughput.{name}"] for name in ("one", "replicated"))
    assert measures["elastic.throughput.undisturbed"].value > 0
    assert measures["elastic.throughput.one.cores"].value > 0
    assert (one.ratio, two.against, two.goal) == (None, one.name, ">= 1.7×")
    assert two.ratio == pytest.approx(two.value / one.value)
    assert measures["elastic.throughput.one.matchers"].against == "elastic.throughput.one.broker"


@pytest.mark.soak
def test_start(monkeypatch: pytest.MonkeyPatch) -> None:
    real = elastic_bench._started({})
    asked: list[dict[str, str]] = []

    def started(settings: dict[str, str]) -> elastic_bench._Started:
        asked.append(settings)
        return msgspec.structs.replace(real, mb=real.mb * (1 + len(asked) % 2))

    monkeypatch.setattr(elastic_bench, "_started", started)
    measures = measured("start", start_rounds=2)
    assert asked == [{"ROVE_MATCHERS__MAX": "0"}, {}] * 2
    for field in ("seconds", "cpu_s", "mb"):
        without, default = (
            measures[f"elastic.start.{name}.{field}"] for name in ("without", "default")
        )
        assert default.against == without.name
        assert default.goal == "<= 1.05×"
        assert min(default.value, without.value) > 0
    assert measures["elastic.start.default.mb"].ratio == 0.5


def test_the_published_figure_stands_beside_ours() -> None:
    found = Run(
        subscriptions=20_000,
        sent=100,
        received=100,
        seconds=1.0,
        broker_cpu_s=0.5,
        children_cpu_s=0.0,
        mean_ms=4.0,
    )
    theirs, mean, *_ = elastic_bench._delays_beside_cupus("embedded", found)
    assert (theirs.name, theirs.value) == ("elastic.delay.20000.cupus", 1_000.0)
    assert (mean.ratio, mean.against, mean.reached) == (0.004, theirs.name, True)


def test_all_that_was_asked_for_is_there() -> None:
    assert set(SUITE.parts) == {"delay", "length", "steps", "heavy", "throughput", "start"}
    assert tuple(ElasticOptions().paces) == (95, 292, 420, 1_000)
    assert {100_000, 1_000_000} <= set(FULL.sizes)
    assert list(CONFIGURATIONS)[:2] == ["embedded", "one"]
