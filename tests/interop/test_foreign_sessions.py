"""In a session that somebody else has set up, everything answers as in one of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.recorded import Recording
from tests.interop.spark_answers import answers, right

SQL = "spark.sql."
ARROW = "spark.sql.execution.arrow."
SETTINGS: list[dict[str, str]] = [
    {f"{ARROW}useLargeVarTypes": "true", f"{SQL}timestampType": "TIMESTAMP_NTZ"},
    {f"{SQL}session.timeZone": "America/St_Johns", f"{ARROW}maxRecordsPerBatch": "1"},
    {f"{SQL}ansi.enabled": "false", f"{SQL}caseSensitive": "true"},
    {f"{SQL}ansi.doubleQuotedIdentifiers": "true", f"{ARROW}maxBytesPerBatch": "1000"},
    {f"{ARROW}pyspark.enabled": "false", f"{ARROW}maxRecordsPerBatch": "100"},
    {f"{SQL}shuffle.partitions": "7", f"{SQL}adaptive.enabled": "false"},
    {
        f"{SQL}sources.partitionColumnTypeInference.enabled": "true",
        f"{SQL}execution.pyspark.binaryAsBytes": "false",
        f"{SQL}parser.escapedStringLiterals": "true",
    },
]


@contextlib.contextmanager
def set_up(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """A session with other settings, until the end of the block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("foreign") / "lake", 42)
    made.play(300)
    return made


@pytest.mark.soak
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_answers_are_the_same(spark: Any, recording: Recording, settings: dict[str, str]) -> None:
    folder: Path = recording.folder.parent
    expected = right(folder, sorted([*one] for one in recording.notified()))
    assert len(expected["replay"]) > 100
    with set_up(spark, settings):
        found = answers(spark, folder, recording.world.now)
    assert found == expected
