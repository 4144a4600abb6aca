"""`rove bench`: a table for people, one object a line for programs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rove.bench import language as language_bench
from rove.bench.broker import store as store_bench
from rove.bench.broker import suite as broker_bench
from rove.bench.elastic import suite as elastic_bench
from rove.bench.match import suite as match_bench
from rove.bench.match.suite import Options
from rove.bench.measure import Measure
from rove.bench.pipeline import suite as pipeline_bench
from rove.bench.policy import suite as policy_bench
from rove.cli import main


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The real suites take minutes and are run by tests/bench; here only the showing counts."""

    def language() -> Iterator[Measure]:
        yield Measure("language.one", 1234.5, "texts/s", goal=">= 1,000", reached=True)
        yield Measure("language.other", 0.5, "texts/s", ratio=0.25, against="language.one")

    def match(options: Options, tell: Callable[[str], None]) -> Iterator[Measure]:
        options_asked.append(options)
        tell("the full scan")
        for name in options.workloads:
            for size in options.sizes:
                yield Measure(f"match.{name}.{size}.scan", 1e9 / size, "events/s")

    options_asked: list[Options] = []
    monkeypatch.setattr(language_bench, "run", language)
    monkeypatch.setattr(match_bench, "run", match)
    return options_asked


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


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nonsense"]) == 2
    assert "language" in capsys.readouterr().err


class TestMatch:
    def test_everything_by_default(self, asked: list[Options]) -> None:
        assert main(["bench", "match"]) == 0
        assert asked == [Options()]

    def test_options_are_passed_on(self, asked: list[Options]) -> None:
        words = "--workload W3 W1 --subscriptions 5000 10 5000 --engine scan index --missing 0.5"
        more = "--threads 4 --part speed kinetic"
        assert main(["bench", "match", *words.split(), *more.split()]) == 0
        (options,) = asked
        assert options.workloads == ["W1", "W3"]
        assert options.sizes == [10, 5000]
        assert options.engines == ["index"], "the scan always runs"
        assert (options.missing, options.threads) == (0.5, 4)
        assert options.parts == ["speed", "kinetic"]

    def test_no_run_with_missing_values(self, asked: list[Options]) -> None:
        assert main(["bench", "match", "--missing", "0"]) == 0
        assert asked[0].missing == 0.0

    @pytest.mark.parametrize("suite", ["designs", "forest", "programs", "ranked", "texts"])
    def test_parts_are_suites_too(self, asked: list[Options], suite: str) -> None:
        assert main(["bench", suite]) == 0
        assert [options.parts for options in asked] == [[suite]]

    def test_all_is_language_and_match(
        self, asked: list[Options], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", "all", "--subscriptions", "7"]) == 0
        out = capsys.readouterr().out
        assert "language.one" in out
        assert "match.W4.7.scan" in out
        assert asked[0].parts == ()

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
            ("language --threads 2", "--threads is for `rove bench match`, not for language"),
            ("broker --threads 2", "--threads is for `rove bench match`, not for broker"),
            (
                "match --seconds 2",
                "and `rove bench policy` and `rove bench world`, not for match",
            ),
            (
                "store --quick",
                "and `rove bench world` and `rove bench monitor`, not for store",
            ),
            (
                "ranked --part start",
                "and `rove bench world` and `rove bench monitor`, not for ranked",
            ),
            ("broker --part speed", "there is no part 'speed'; choose from fanout, unbatched"),
            ("broker --seconds 0", "0 is not a whole number from 1 to 3,600"),
            (
                "texts --plots here",
                "and `rove bench elastic` and `rove bench policy`, not for texts",
            ),
            ("match --plots here --part start", "--plots draws what the part `speed` measures"),
        ],
    )
    def test_bad_values_are_refused(
        self, asked: list[Options], capsys: pytest.CaptureFixture[str], words: str, complaint: str
    ) -> None:
        assert main(["bench", *words.split()]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("rove: error: ")
        assert complaint in err
        assert not asked, "nothing is measured before"
        assert "language.one" not in out


class TestPipeline:
    @pytest.fixture(autouse=True)
    def pipeline_asked(self, monkeypatch: pytest.MonkeyPatch) -> list[pipeline_bench.Options]:
        """The real suite starts Spark, and is run by tests/bench in small."""

        def pipeline(
            options: pipeline_bench.Options, tell: Callable[[str], None]
        ) -> Iterator[Measure]:
            options_asked.append(options)
            for name in options.workloads:
                for size in options.sizes:
                    yield Measure(f"pipeline.{name}.{size}.spark2", 1e9 / size, "rows/s")

        options_asked: list[pipeline_bench.Options] = []
        monkeypatch.setattr(pipeline_bench, "run", pipeline)
        return options_asked

    @pytest.mark.parametrize(
        ("words", "options"),
        [
            ("", pipeline_bench.Options()),
            ("--full", pipeline_bench.FULL),
            ("--quick", pipeline_bench.QUICK),
            (
                "--workload W2 --subscriptions 10 5 --part memory speed",
                pipeline_bench.Options(workloads=["W2"], sizes=[5, 10], parts=["speed", "memory"]),
            ),
        ],
    )
    def test_options_are_passed_on(
        self,
        pipeline_asked: list[pipeline_bench.Options],
        words: str,
        options: pipeline_bench.Options,
    ) -> None:
        assert main(["bench", "pipeline", *words.split()]) == 0
        assert pipeline_asked == [options]

    def test_pictures(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["bench", "pipeline", "--workload", "W2", "--plots", str(tmp_path)]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["pipeline-W2.png"]
        assert "wrote" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ("--quick --full", "--quick and --full cannot both be"),
            ("--workload W3", "there is no workload 'W3'; choose from W1, W2"),
            ("--part speeed", "there is no part 'speeed'; choose from speed, joins"),
            ("--threads 2", "--threads is for `rove bench match`, not for pipeline"),
            ("--plots here --part memory", "--plots draws what the part `speed` measures"),
        ],
    )
    def test_bad_values_are_refused(
        self, capsys: pytest.CaptureFixture[str], words: str, complaint: str
    ) -> None:
        assert main(["bench", "pipeline", *words.split()]) == 2
        assert complaint in capsys.readouterr().err


class TestElastic:
    @pytest.fixture(autouse=True)
    def elastic_asked(self, monkeypatch: pytest.MonkeyPatch) -> list[elastic_bench.Options]:
        """The real suite takes minutes, and is run by tests/bench in small."""

        def elastic(
            options: elastic_bench.Options, tell: Callable[[str], None]
        ) -> Iterator[Measure]:
            options_asked.append(options)
            yield Measure("elastic.start.mb", 150.0, "MB", note="a remark")

        options_asked: list[elastic_bench.Options] = []
        monkeypatch.setattr(elastic_bench, "run", elastic)
        return options_asked

    @pytest.mark.parametrize(
        ("words", "options"),
        [
            ("", elastic_bench.Options()),
            ("--full", elastic_bench.FULL),
            ("--quick", elastic_bench.QUICK),
            ("--part start delay", elastic_bench.Options(parts=["delay", "start"])),
            ("--subscriptions 20 10 20", elastic_bench.Options(sizes=(10, 20))),
        ],
    )
    def test_options_are_passed_on(
        self,
        elastic_asked: list[elastic_bench.Options],
        capsys: pytest.CaptureFixture[str],
        words: str,
        options: elastic_bench.Options,
    ) -> None:
        assert main(["bench", "elastic", *words.split()]) == 0
        assert elastic_asked == [options]
        assert "a remark" in capsys.readouterr().out

    def test_pictures_go_into_a_folder(
        self,
        elastic_asked: list[elastic_bench.Options],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        words = ["--part", "delay", "throughput", "--plots", str(tmp_path)]
        assert main(["bench", "elastic", *words]) == 0
        assert elastic_asked[0].plots == tmp_path
        assert capsys.readouterr().err.splitlines() == [f"wrote {tmp_path / 'elastic-delay.png'}"]

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ("--quick --full", "--quick and --full cannot both be"),
            ("--part speed", "there is no part 'speed'; choose from delay, length, steps"),
            (
                "--seconds 3",
                "and `rove bench policy` and `rove bench world`, not for elastic",
            ),
        ],
    )
    def test_bad_values_are_refused(
        self, capsys: pytest.CaptureFixture[str], words: str, complaint: str
    ) -> None:
        assert main(["bench", "elastic", *words.split()]) == 2
        assert complaint in capsys.readouterr().err


class TestPolicy:
    @pytest.fixture(autouse=True)
    def policy_asked(self, monkeypatch: pytest.MonkeyPatch) -> list[policy_bench.Options]:
        """The real suite takes minutes, and is run by tests/bench in small."""

        def policy(options: policy_bench.Options, tell: Callable[[str], None]) -> Iterator[Measure]:
            options_asked.append(options)
            yield Measure("policy.speed.icu", 2.5e5, "evaluations/s", note="a remark")

        options_asked: list[policy_bench.Options] = []
        monkeypatch.setattr(policy_bench, "run", policy)
        return options_asked

    @pytest.mark.parametrize(
        ("words", "options"),
        [
            ("", policy_bench.Options()),
            ("--full", policy_bench.FULL),
            ("--quick", policy_bench.QUICK),
            ("--part speed link", policy_bench.Options(parts=["link", "speed"])),
            (
                "--part hostile --seconds 2",
                policy_bench.Options(parts=["hostile"], hostile_s=2.0),
            ),
        ],
    )
    def test_options_are_passed_on(
        self,
        policy_asked: list[policy_bench.Options],
        capsys: pytest.CaptureFixture[str],
        words: str,
        options: policy_bench.Options,
    ) -> None:
        assert main(["bench", "policy", *words.split()]) == 0
        assert policy_asked == [options]
        assert "a remark" in capsys.readouterr().out

    def test_pictures_go_into_a_folder(
        self,
        policy_asked: list[policy_bench.Options],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        words = ["--part", "link", "speed", "--plots", str(tmp_path)]
        assert main(["bench", "policy", *words]) == 0
        assert policy_asked[0].plots == tmp_path
        assert capsys.readouterr().err.splitlines() == [f"wrote {tmp_path / 'policy-link.png'}"]

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ("--quick --full", "--quick and --full cannot both be"),
            ("--part delay", "there is no part 'delay'; choose from overhead, link, battery"),
            ("--subscriptions 3", "--subscriptions is for `rove bench match`"),
            ("--part link --seconds 3", "--seconds is how long a case of the part `hostile` lasts"),
        ],
    )
    def test_bad_values_are_refused(
        self, capsys: pytest.CaptureFixture[str], words: str, complaint: str
    ) -> None:
        assert main(["bench", "policy", *words.split()]) == 2
        assert complaint in capsys.readouterr().err


class TestBroker:
    @pytest.fixture(autouse=True)
    def broker_asked(self, monkeypatch: pytest.MonkeyPatch) -> list[broker_bench.Options]:
        """The real suite takes minutes, and is run by tests/bench in small."""

        def broker(options: broker_bench.Options, tell: Callable[[str], None]) -> Iterator[Measure]:
            options_asked.append(options)
            yield Measure("broker.restart", 1.5, "s")

        options_asked: list[broker_bench.Options] = []
        monkeypatch.setattr(broker_bench, "run", broker)
        return options_asked

    def test_everything_by_default(
        self, broker_asked: list[broker_bench.Options], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", "broker"]) == 0
        assert broker_asked == [broker_bench.Options()]
        assert "broker.restart" in capsys.readouterr().out

    def test_options_are_passed_on(self, broker_asked: list[broker_bench.Options]) -> None:
        words = "--part durable fanout --seconds 9"
        assert main(["bench", "broker", *words.split()]) == 0
        assert main(["bench", "broker", "--quick"]) == 0
        first, second = broker_asked
        assert (first.parts, first.seconds) == (["fanout", "durable"], 9)
        assert first.sizes == broker_bench.Sizes()
        assert second.sizes == broker_bench.QUICK
        assert second.seconds < 1


def test_the_store_is_a_suite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_bench, "run", lambda: iter([Measure("store.load", 0.5, "s")]))
    assert main(["bench", "store"]) == 0
    assert "store.load" in capsys.readouterr().out


class TestPlots:
    def test_a_picture_for_each_workload(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "plots"
        words = ["--workload", "W1", "W2", "--plots", str(folder)]
        assert main(["bench", "match", *words]) == 0
        assert sorted(path.name for path in folder.iterdir()) == [
            "matching-W1.png",
            "matching-W2.png",
        ]
        assert "matching-W2.png" in capsys.readouterr().err

    def test_without_matplotlib_nothing_is_measured(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[Options], tmp_path: Path
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert main(["bench", "match", "--plots", str(tmp_path)]) == 2
        assert not asked


def test_a_program_is_told_nothing_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "match", "--json"]) == 0
    assert capsys.readouterr().err == ""
