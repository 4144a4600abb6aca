"""Executors run the driver's Rove and compile nothing that the driver has compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import rove
from rove.pipeline.spark import executors
from tests.effort import PATIENCE_S

LOOK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rove.pipeline.spark import executors
import msgspec
print(json.dumps(msgspec.to_builtins(executors._describe_executor())))
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an executor has it: the package in a folder of its own, which Python looks at first."""
    folder = tmp_path_factory.mktemp("executor")
    executors.write_package(folder / "rove.zip")
    with zipfile.ZipFile(folder / "rove.zip") as archive:
        archive.extractall(folder / "rove")
    return folder


def look(folder: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, folder],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        timeout=PATIENCE_S,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_same_package_is_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.zip", tmp_path / "other.zip"
    executors.write_package(one)
    executors.write_package(other)
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {"__init__.py", "match/index/search_kernels.py", "pipeline/spark/executors.py"} <= set(
        names
    )
    assert not [name for name in names if name.endswith(".pyc")]


def test_of_what_numba_has_only_this_version_is_taken() -> None:
    indexes = [name for name in executors.kernel_files() if name.endswith(".nbi")]
    names = {name.rsplit("-", 1)[0] for name in indexes}
    assert len(names) == len(indexes), "of every kernel one"
    wanted = {
        "match/index/__pycache__/search_kernels.find",
        "match/patterns/__pycache__/automaton_kernels.walk",
    }
    assert wanted <= names
    assert any(name.startswith("match/ranked/__pycache__/kernels.") for name in names)


@pytest.mark.soak
def test_an_executor_loads_what_the_driver_has_compiled(unpacked: Path) -> None:
    found = look(unpacked)
    assert found["place"] == str(unpacked / "rove")
    assert found["rove"] == rove.__version__
    assert found["missing"] == []
    assert found["compiled"] == 0


@pytest.mark.soak
def test_what_differs_is_compiled_and_counted(unpacked: Path) -> None:
    source = unpacked / "rove" / "match" / "patterns" / "automaton_kernels.py"
    text = source.read_text()
    source.write_text(text + "# another version\n")
    assert look(unpacked)["compiled"] > 0


def test_it_is_known_without_numba_whether_kernels_must_be_compiled(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(rove, "__file__", str(unpacked / "rove" / "__init__.py"))
    match = unpacked / "rove" / "match"
    for file in match.rglob("*"):
        os.utime(file, (1000, 1000))
    assert not executors.is_cold()
    os.utime(match / "index" / "search_kernels.py", (2000, 2000))
    assert executors.is_cold()
    for index in (match / "index" / "__pycache__").glob("search_kernels.*.nbi"):
        index.unlink()
    os.utime(match / "index" / "search_kernels.py", (1000, 1000))
    assert executors.is_cold()


def test_what_an_executor_lacks_is_told() -> None:
    good = executors.Executor("h", "3.11", rove.__version__, "/x", missing=(), compiled=0, took_s=1)
    assert executors.problem_of(good) is None
    bare = structs.replace(good, missing=("numba", "pyarrow"))
    assert "the executor on h lacks numba and pyarrow; install" in str(executors.problem_of(bare))
    other = structs.replace(good, rove="0.0.1")
    assert "has Rove 0.0.1 of its own in /x" in str(executors.problem_of(other))


@pytest.mark.soak
def test_an_executor_is_asked_by_one_task(spark: Any) -> None:
    found = executors.probe_executor(spark)
    assert (found.rove, found.missing) == (rove.__version__, ())
    assert found.took_s > 0


def test_a_task_that_cannot_run_is_told_in_one_line(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Iterator[Any]:
        yield from ()
        import a_package_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

    monkeypatch.setattr(executors, "_described", fail)
    with pytest.raises(executors.ShippingError, match="No module named") as caught:
        executors.probe_executor(spark)
    assert "\n" not in str(caught.value)


@pytest.mark.soak
def test_no_executor_in_time(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: object) -> Iterator[Any]:
        import time

        time.sleep(60)
        yield from ()

    monkeypatch.setattr(executors, "_described", sleep)
    with pytest.raises(executors.ShippingError, match=r"gave no executor within 1 s; are there"):
        executors.probe_executor(spark, seconds_max=1.0)
    monkeypatch.undo()
    assert executors.probe_executor(spark).rove == rove.__version__, "and the session is still good"


CLUSTER = """
import json
from rove.bench.servers.spark_cluster import LocalCluster
from rove.pipeline.spark.session import SparkSettings, open_session
from rove.pipeline.spark import executors

with LocalCluster(workers=2) as cluster:
    conf = {"spark.executor.memory": "512m"}
    settings = SparkSettings(master=cluster.master, memory="1g", brief=True, conf=conf)
    session = open_session(settings)
    context, look = session.sparkContext, lambda _: executors._describe_executor()
    found = {}
    while len(found) < 2:  # the second executor may come later
        for each in context.parallelize(range(4), 4).map(look).collect():
            found[each.place] = each.compiled
    session.stop()
    print(json.dumps(found))
"""


@pytest.mark.soak
def test_no_executor_of_a_cluster_compiles_anything() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 2
    assert not any(place.startswith(str(Path(rove.__file__).parent)) for place in found)
    assert set(found.values()) == {0}


def test_kernels_that_cannot_be_compiled_are_told_and_keep_no_session_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, spark: Any
) -> None:
    def fail() -> None:
        raise RuntimeError("this processor is not known")

    monkeypatch.setattr(executors, "is_cold", lambda: True)
    monkeypatch.setattr(executors, "warm_up", fail)
    executors.ship(spark)
    assert caplog.messages == ["kernels cannot be compiled: this processor is not known"]


def test_a_folder_of_a_process_is_gone_with_it() -> None:
    code = (
        "from rove.pipeline.spark.executors import folder_of_process\n"
        "print({folder_of_process('x') for _ in 'ab'}.pop())"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    folder = Path(ran.stdout.strip())
    assert folder.name.startswith("rove-x-")
    assert not folder.exists()
