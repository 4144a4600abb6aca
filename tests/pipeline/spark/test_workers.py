"""Work comes back in order, from Spark's workers as from here."""

import os
import sys
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

from rove.lake.log import LogFile
from rove.pipeline.spark.workers import parallelism, run_each

FILES = [LogFile(first, 0, f"p/{first}", "publications", "", "", 1, 1) for first in range(5)]


def squared(file: LogFile) -> LogFile:
    if file.first < 0:
        raise ValueError(f"{file.first} is negative")
    return msgspec.structs.replace(
        file, last=file.first**2, path=f"{file.path}/done", channel=str(os.getpid())
    )


def test_here() -> None:
    found = run_each(None, squared, FILES, LogFile)
    assert [file.last for file in found] == [0, 1, 4, 9, 16]
    assert parallelism(None) == 1


def test_by_spark(spark: Any) -> None:
    # Workers cannot import a test, so its function goes there whole.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    found = run_each(spark, squared, FILES, LogFile)
    assert [(file.path, file.last) for file in found] == [
        (f"p/{first}/done", first**2) for first in range(5)
    ]
    assert str(os.getpid()) not in {file.channel for file in found}
    assert run_each(spark, squared, [], LogFile) == []
    assert parallelism(spark) >= 1


def test_what_fails_is_raised() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        run_each(None, squared, [LogFile(-1, 0, "", "", "", "", 1, 1)], LogFile)
