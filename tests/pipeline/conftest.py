"""One Spark session for all tests of a process, made for short work: starting one takes seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from rove.pipeline.session import SparkSettings, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with warnings.catch_warnings():
        # Spark and pandas warn of things that are theirs to mend.
        warnings.simplefilter("ignore")
        session = open_session(SparkSettings(master="local[2]", memory="1g", brief=True))
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
