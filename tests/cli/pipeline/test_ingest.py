"""`rove pipeline ingest`: one source, one report, and an exit code that says what was left."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rove.cli.pipeline import ingest as pipeline_ingest
from rove.errors import UsageError
from rove.lake.log import open_for_writing
from rove.pipeline.lake.log import LakeError
from rove.pipeline.spark import kafka, session
from rove.pipeline.spark.session import SparkSettings
from rove.pipeline.tables import file_import
from rove.pipeline.tables import ingest as ingest_module
from rove.pipeline.tables.ingest import IngestReport
from rove.pipeline.tables.quality import RulesError

SETTINGS = SparkSettings(master="local[1]", conf={"a": "b"})


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    pipeline_ingest.configure(parser)
    return parser.parse_args([str(word) for word in words])


class Session:
    """Notes that it was ended; what would use it is replaced too."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a session was opened with, and the session."""
    seen: list[Any] = []

    def open_session(settings: SparkSettings) -> Session:
        seen.extend([settings, Session()])
        return seen[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(session, "open_session", open_session)
    return seen


def test_the_lake_is_ingested_and_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: dict[str, Any] = {}

    def ingest(spark: Any, lake: str, tables: str, **options: Any) -> IngestReport:
        seen.update(options, lake=lake, tables=tables)
        options["on_progress"](5, 10)
        return IngestReport(
            rows_in=2_000,
            rows_out=1_990,
            rejected={"late": 10},
            by_channel={"air": 1_990},
            files_written=3,
            bytes_written=4_500,
            seconds=2.0,
        )

    monkeypatch.setattr(ingest_module, "ingest", ingest)
    open_for_writing(tmp_path / "l")
    words = ["--lake", tmp_path / "l", "--tables", tmp_path / "t", "--channel", "air"]
    assert pipeline_ingest.run(parsed(*words, "--up-to", 9), SETTINGS) == 0
    assert (seen["lake"], seen["tables"]) == (str(tmp_path / "l"), str(tmp_path / "t"))
    assert (seen["channels"], seen["up_to"]) == (["air"], 9)
    assert opened[0] == SETTINGS
    assert opened[1].stopped
    assert capsys.readouterr().out.splitlines() == [
        "rows read       2,000 in 2.0s (1,000 a second)",
        "into air        1,990",
        "rejected: late  10",
        "written         3 files, 4.5 KB",
    ]


def test_what_could_not_be_read_is_in_the_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = IngestReport(unreadable=["x.parquet: torn"])
    monkeypatch.setattr(ingest_module, "ingest", lambda *_, **__: report)
    open_for_writing(tmp_path)
    words = ["--lake", tmp_path, "--tables", tmp_path]
    assert pipeline_ingest.run(parsed(*words), SETTINGS) == 1
    assert "tried again: x.parquet: torn" in capsys.readouterr().err
    assert pipeline_ingest.run(parsed(*words, "--json"), SETTINGS) == 1
    assert json.loads(capsys.readouterr().out)["unreadable"] == ["x.parquet: torn"]


def test_files_and_kafka_are_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    seen: list[Any] = []

    def record(*given: Any, **options: Any) -> IngestReport:
        seen.append((given[1:], options))
        return IngestReport()

    monkeypatch.setattr(file_import, "ingest_files", record)
    monkeypatch.setattr(kafka, "ingest_kafka", record)
    words: list[object] = ["a.csv", "b.csv", "--tables", tmp_path, "--channel", "air"]
    words += ["--at", "when", "--lat", "y", "--format", "csv"]
    assert pipeline_ingest.run(parsed(*words), SETTINGS) == 0
    given, options = seen[0]
    assert given == ([Path("a.csv"), Path("b.csv")], str(tmp_path), "air")
    assert options["columns"] == file_import.ImportColumns(at="when", lat="y")
    assert options["format"] == "csv"
    words = ["--kafka", "h:9092", "--kafka-topic", "t", "--tables", tmp_path, "--channel", "air"]
    assert pipeline_ingest.run(parsed(*words, "--packages", "p", "--jars", "j"), SETTINGS) == 0
    assert seen[1][0] == ("h:9092", "t", str(tmp_path), "air")
    assert opened[2].conf == {"a": "b", "spark.jars.packages": "p", "spark.jars": "j"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say where from: --lake LOCATION, files, or --kafka HOST:PORT"),
        (["a.csv", "--lake", "x"], "say where from"),
        (["a.csv"], "say into which channel"),
        (["a.csv", "--channel", "a", "--channel", "b"], "say into which channel"),
        (["--kafka", "h:1", "--channel", "a"], "say which topic of Kafka"),
    ],
)
def test_one_source_must_be_named(words: Sequence[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        pipeline_ingest.run(parsed(*words, "--tables", tmp_path), SETTINGS)


def test_a_missing_lake_is_told_before_spark_starts(tmp_path: Path, opened: list[Any]) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        pipeline_ingest.run(parsed("--lake", tmp_path / "l", "--tables", tmp_path), SETTINGS)
    assert opened == []


def test_bad_rules_are_told_before_spark_starts(tmp_path: Path, opened: list[Any]) -> None:
    words = ["--lake", tmp_path, "--tables", tmp_path, "--rules", tmp_path / "none.toml"]
    with pytest.raises(RulesError, match=r"cannot read .*none\.toml: No such file"):
        pipeline_ingest.run(parsed(*words), SETTINGS)
    assert opened == []
