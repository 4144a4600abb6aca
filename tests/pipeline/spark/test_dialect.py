"""Names in SQL, and refused versions; `tests/interop/test_spark_versions.py` has real versions."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest

from rove.pipeline.spark.dialect import OldSparkError, check_spark, check_streams, quoted


@pytest.mark.parametrize("version", ["4.1.0", "4.2.1", "4.3.0", "4.10.0", "5.0.0.dev1"])
def test_what_is_new_enough_passes(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    check_spark()
    if version == "4.1.0":
        with pytest.raises(OldSparkError, match="whose Python sources cannot limit"):
            check_streams()
    else:
        check_streams()


@pytest.mark.parametrize("version", ["4.0.5", "3.5.7"])
def test_what_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(OldSparkError, match=f"4.1 or newer, and this is {version[:3]}; pip"):
        check_spark()


@pytest.mark.parametrize("name", ["x", "a.b", "odd `name`", "ü", "select", "a b"])
def test_any_name_can_be_written(spark: Any, name: str) -> None:
    frame = spark.createDataFrame([(1,)], "x long").toDF(name)
    assert frame.select(quoted(name)).columns == [name]
