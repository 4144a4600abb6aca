"""An archive of Spark's classes: made once, used from then on, and never in the way."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rove.pipeline.spark import class_archive
from rove.pipeline.spark.java import Java, class_archive_options, class_archive_path

JAVA_17 = Java(Path("/a/script"), 17, "PATH", "17.0.1", Path("/a"))
JAVA_25 = Java(Path("/a/script"), 25, "PATH", "25.0.1", Path("/a"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rove" / "classes"


def path_of(java: Java) -> Path:
    found = class_archive_path(java)
    assert found is not None
    return found


def test_each_java_has_its_own(cache: Path) -> None:
    paths = {path_of(java) for java in (JAVA_17, JAVA_25)}
    assert len(paths) == 2
    assert {path.parent for path in paths} == {cache}
    assert "java-17.0.1-" in path_of(JAVA_17).name


@pytest.mark.usefixtures("cache")
def test_a_spark_that_was_installed_again_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "pyspark" / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    spark = SimpleNamespace(origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spark)
    before = path_of(JAVA_17)
    assert path_of(JAVA_17) == before
    os.utime(jar, (1, 1))
    assert path_of(JAVA_17) != before


def test_java_is_told_of_it_as_soon_as_it_is_there(cache: Path) -> None:
    assert list(class_archive_options(JAVA_17)) == []
    for java, option in ((JAVA_17, "SharedArchiveFile"), (JAVA_25, "AOTCache")):
        archive = path_of(java)
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.touch()
        assert list(class_archive_options(java)) == [f"-XX:{option}={archive}"]
        assert class_archive.make(java) == archive, "nothing is made again"


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rove").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.make(JAVA_17) is None
    assert list(class_archive_options(JAVA_17)) == []


def test_two_do_not_make_the_same(cache: Path) -> None:
    lock = path_of(JAVA_17).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert class_archive.make(JAVA_17) is None


def test_what_nobody_used_for_long_is_removed_and_a_failure_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(parents=True)
    old, new = cache / "old.archive", cache / "new.archive"
    for each in (old, new):
        each.touch()
    long_ago_s = time.time() - class_archive.UNUSED_S_MAX - 1
    os.utime(old, (long_ago_s, long_ago_s))
    monkeypatch.setattr(class_archive, "_TRAINING", "raise SystemExit(1)")
    assert class_archive.make(JAVA_17) is None
    assert {path.name for path in cache.glob("*") if path.suffix != ".lock"} == {"new.archive"}


@pytest.mark.soak
def test_the_exercise_is_a_little_of_everything(spark: Any, tmp_path: Path) -> None:
    assert class_archive.exercise(spark, tmp_path) == class_archive.EXERCISE_ROWS
    assert {path.name for path in tmp_path.iterdir()} == {"table", "output", "checkpoint"}


@pytest.mark.soak
@pytest.mark.parametrize("path", [os.environ["PATH"], "/nowhere"])
def test_it_is_made_and_spark_starts_from_it(tmp_path: Path, path: str) -> None:
    """With the machine's Java and with that of the package, where a folder has a space."""
    cache = tmp_path / "a folder"
    script = """
import sys
from pathlib import Path
from types import SimpleNamespace
from rove.pipeline.spark.class_archive import exercise, make
from rove.pipeline.spark.java import find_java
from rove.pipeline.spark.session import *
archive = make(find_java({"PATH": sys.argv[2]}))
assert archive is not None and archive.stat().st_size > 50 << 20
os.environ["JAVA_HOME"] = str(find_java({"PATH": sys.argv[2]}).home)
session = open_session(SparkSettings(master="local[2]", memory="1g"))
beans = session.sparkContext._jvm.java.lang.management.ManagementFactory
told = [str(word) for word in beans.getRuntimeMXBean().getInputArguments()]
assert any(str(archive) in word for word in told), told
assert exercise(session, Path(sys.argv[1])) == 1000
session.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path, path],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
