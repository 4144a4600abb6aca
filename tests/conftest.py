"""How Hypothesis behaves here, and one Spark session for all tests of a process.

`make test` must say the same thing twice, on every machine, so the default profile draws the
same examples each time. Looking for new ones is the business of `make soak`. No deadlines in
either: they measure the machine's neighbours.

Whatever starts Spark has work for seconds, so it is told to be brief.

Nothing is garbage while thousands of tests are collected, and what they are made of stays to the
end. So the garbage collector waits until they are there, never looks through them again, and runs
less often than a server would have it. That takes a fifth off collection and tests alike, and most
of what `gc.collect()` takes in a test.

A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
"""

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rove.testing.ports import free_port
from tests.effort import SOAK_EXAMPLES, TEST_EXAMPLES
from tests.sharing import Sharing, in_order
from tests.times import Times

settings.register_profile(
    "default", deadline=None, derandomize=True, print_blob=True, max_examples=TEST_EXAMPLES
)
settings.register_profile("soak", deadline=None, max_examples=SOAK_EXAMPLES, print_blob=True)
settings.load_profile("default")
os.environ.setdefault("ROVE_SPARK_BRIEF", "1")
gc.disable()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(config), "rove-times")


def pytest_xdist_auto_num_workers() -> int:
    """More processes than cores, because many tests wait. On a busy machine even more, which get a
    larger share of it; on an idle one they would only be in each other's way."""
    cores = os.cpu_count() or 1
    return (4 if _running() > 2 * cores else 2) * cores


def _running() -> int:
    """How many processes of the machine want a core right now, as far as that is known."""
    try:
        now = Path("/proc/loadavg").read_text(encoding="ascii")
        return int(now.split()[3].partition("/")[0])
    except OSError:
        return 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_order(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(name="free_port")
def _free_port() -> int:
    """A port on which nobody listens."""
    return free_port()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Made for short work; starting it takes seconds."""
    from rove.pipeline.spark.session import SparkSettings, open_session

    with warnings.catch_warnings():
        # Spark and pandas warn of things that are theirs to mend.
        warnings.simplefilter("ignore")
        session = open_session(SparkSettings(master="local[2]", memory="1g", brief=True))
        yield session
        session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Kafka; tests keep to topics of their own."""
    from rove.bench.servers.kafka import KafkaMissingError, kafka_server

    try:
        with kafka_server(tmp_path_factory.mktemp("kafka")) as server:
            yield server
    except KafkaMissingError as error:
        pytest.skip(str(error))
