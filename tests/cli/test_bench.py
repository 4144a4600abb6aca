"""`rove bench`: a table for people, one object per line for programs, options for each suite."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rove.bench.broker.suite import QUICK as QUICK_BROKER
from rove.bench.broker.suite import BrokerOptions
from rove.bench.elastic import suite as elastic_bench
from rove.bench.elastic.suite import ElasticOptions
from rove.bench.harness import Bench, Part, Suite, SuiteOptions, Tell
from rove.bench.match.suite import MatchOptions
from rove.bench.measure import Measure
from rove.bench.pipeline import suite as pipeline_bench
from rove.bench.pipeline.suite import PipelineOptions
from rove.bench.policy import suite as policy_bench
from rove.bench.policy.suite import PolicyOptions
from rove.cli import bench as bench_command
from rove.cli import main


def part_named(name: str) -> Part:
    """A part that takes no time, and draws if plots are wanted."""

    def language(bench: Bench[Any]) -> Iterator[Measure]:
        yield Measure("language.one", 1234.5, "texts/s", goal=">= 1,000", reached=True)
        yield Measure("language.other", 0.5, "texts/s", ratio=0.25, against="language.one")

    def other(bench: Bench[Any]) -> Iterator[Measure]:
        bench.tell("the full scan")
        yield Measure(f"{name}.scan", 1e6, "events/s", note="a remark")
        bench.plot(f"plot-{name}")

    return language if name == "language" else other


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SuiteOptions]:
    """The options of each run. The real suites take minutes and are run by tests/bench."""

    def faked(name: str) -> Suite[Any]:
        def bench(options: SuiteOptions, tell: Tell) -> Bench[Any]:
            seen.append(options)
            return Bench(options, tell)

        suite = real(name)
        parts = {part: part_named(part) for part in suite.parts}
        return msgspec.structs.replace(suite, parts=parts, prepare=lambda: None, bench=bench)

    seen: list[SuiteOptions] = []
    real: Callable[[str], Suite[Any]] = bench_command._suite
    monkeypatch.setattr(bench_command, "_suite", faked)
    return seen


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "language"]) == 0
    out = capsys.readouterr().out
    assert "CPython" in out
    assert "✔ >= 1,000" in out
    assert "0.25×  one" in out, "only what differs in the name"


def test_programs_get_one_object_a_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["bench", "language", "--json"]) == 0
    first, second = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert first == {
        "name": "language.one",
        "value": 1234.5,
        "unit": "texts/s",
        "goal": ">= 1,000",
        "reached": True,
    }
    assert second["ratio"] == 0.25
    assert second["against"] == "language.one"


def test_remarks_stand_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "store"]) == 0
    assert "a remark" in capsys.readouterr().out


def test_a_program_gets_nothing_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "match", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nonsense"]) == 2
    assert "language" in capsys.readouterr().err


@pytest.mark.parametrize("suite", sorted(bench_command.SUITES.keys() - {"bridge"}))
def test_every_suite_is_registered_under_its_name(suite: str) -> None:
    assert bench_command._suite(suite).name == suite


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("match", MatchOptions()),
        ("all --subscriptions 7", MatchOptions(sizes=[7])),
        ("match --missing 0", MatchOptions(missing=0.0)),
        (
            "match --workload W3 W1 --subscriptions 5000 10 5000 --part speed kinetic",
            MatchOptions(workloads=["W1", "W3"], sizes=[10, 5000], parts=["speed", "kinetic"]),
        ),
        (
            "match --engine scan index --missing 0.5 --threads 4",
            MatchOptions(engines=["index"], missing=0.5, threads=4),
        ),
        ("ranked", SuiteOptions()),
        ("texts", SuiteOptions(parts=("contains",))),
        ("texts --part slowest", SuiteOptions(parts=["slowest"])),
        ("broker", BrokerOptions()),
        ("broker --quick", QUICK_BROKER),
        (
            "broker --part durable fanout --seconds 9",
            BrokerOptions(parts=["fanout", "durable"], seconds=9),
        ),
        ("pipeline", PipelineOptions()),
        ("pipeline --full", pipeline_bench.FULL),
        ("pipeline --quick", pipeline_bench.QUICK),
        (
            "pipeline --workload W2 --subscriptions 10 5 --part memory speed",
            PipelineOptions(workloads=["W2"], sizes=[5, 10], parts=["speed", "memory"]),
        ),
        ("elastic", ElasticOptions()),
        ("elastic --full", elastic_bench.FULL),
        ("elastic --quick", elastic_bench.QUICK),
        ("elastic --part start delay", ElasticOptions(parts=["delay", "start"])),
        ("elastic --subscriptions 20 10 20", ElasticOptions(sizes=[10, 20])),
        ("policy", PolicyOptions()),
        ("policy --full", policy_bench.FULL),
        ("policy --quick", policy_bench.QUICK),
        ("policy --part speed link", PolicyOptions(parts=["link", "speed"])),
        ("policy --part hostile --seconds 2", PolicyOptions(parts=["hostile"], hostile_s=2)),
    ],
)
def test_options_are_passed_on(runs: list[SuiteOptions], words: str, options: SuiteOptions) -> None:
    assert main(["bench", *words.split()]) == 0
    assert runs == [options]


def test_all_is_language_and_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all"]) == 0
    out = capsys.readouterr().out
    assert "language.one" in out
    assert "speed.scan" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("match --workload W9", "there is no workload 'W9'; choose from W1, W2, W3, W4"),
        ("match --engine warp", "there is no engine 'warp'; choose from scan, index"),
        ("all --workload W0", "there is no workload 'W0'"),
        ("match --part all", "there is no part 'all'; choose from speed"),
        ("match --subscriptions 0", "0 is not a whole number from 1 to 10,000,000"),
        ("match --subscriptions many", "many is not a whole number"),
        ("match --subscriptions 10000001", "10000001 is not a whole number"),
        ("match --threads 65", "65 is not a whole number from 1 to 64"),
        ("match --missing 1", "1 is not a number from 0 to less than 1"),
        ("match --missing nan", "nan is not a number"),
        ("match --missing most", "most is not a number"),
        ("language --threads 2", "--threads is not for `rove bench language`, which accepts no"),
        ("broker --threads 2", "--threads is not for `rove bench broker`, which accepts --part"),
        ("match --seconds 2", "--seconds is not for `rove bench match`, which accepts --part"),
        ("store --quick", "--quick is not for `rove bench store`, which accepts no options"),
        ("ranked --part start", "--part is not for `rove bench ranked`"),
        ("broker --part speed", "there is no part 'speed'; choose from fanout, unbatched"),
        ("broker --seconds 0", "0 is not a whole number from 1 to 3,600"),
        ("texts --plots here", "--plots is not for `rove bench texts`"),
        ("match --plots here --part start", "--plots is for the part `speed`; add it to --part"),
        ("pipeline --quick --full", "--quick and --full cannot both be given"),
        ("pipeline --workload W3", "there is no workload 'W3'; choose from W1, W2"),
        ("pipeline --part speeed", "there is no part 'speeed'; choose from speed, joins"),
        ("pipeline --plots here --part memory", "--plots is for the part `speed`"),
        ("elastic --part speed", "there is no part 'speed'; choose from delay, length, steps"),
        ("elastic --seconds 3", "--seconds is not for `rove bench elastic`"),
        ("policy --part delay", "there is no part 'delay'; choose from overhead, link, battery"),
        ("policy --subscriptions 3", "--subscriptions is not for `rove bench policy`"),
        ("policy --part link --seconds 3", "--seconds is for the part `hostile`; add it"),
    ],
)
def test_bad_values_are_refused(
    runs: list[SuiteOptions], capsys: pytest.CaptureFixture[str], words: str, complaint: str
) -> None:
    assert main(["bench", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("rove: error: ")
    assert complaint in err
    assert not runs, "nothing is measured before"
    assert "language.one" not in out


@pytest.mark.parametrize(
    ("words", "plot"),
    [
        ("match --part speed", "plot-speed.png"),
        ("elastic --part delay", "plot-delay.png"),
        ("policy --part link", "plot-link.png"),
    ],
)
def test_plots_are_named_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, plot: str
) -> None:
    assert main(["bench", *words.split(), "--plots", str(tmp_path)]) == 0
    assert capsys.readouterr().err.splitlines() == [f"wrote {tmp_path / plot}"]


def test_without_matplotlib_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, runs: list[SuiteOptions], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "match", "--plots", str(tmp_path)]) == 2
    assert not runs
