"""One Spark session for all tests of a process: starting one takes seconds.

It is made for short work, and from an archive of Spark's classes, which the first run on a machine
makes (40 s): every session and every cluster of these tests starts sooner.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from rove.pipeline import class_archive
from rove.pipeline.java import find_java
from rove.pipeline.session import SparkSettings, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with warnings.catch_warnings():
        # Spark and pandas warn of things that are theirs to mend.
        warnings.simplefilter("ignore")
        class_archive.make(find_java(), seconds_max=120)
        session = open_session(SparkSettings(master="local[2]", memory="1g", brief=True))
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
