"""Settings from everywhere, errors of one line, and a session in the poorest surroundings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.base.processes import cores
from rove.errors import RoveError, UsageError
from rove.pipeline.spark.java import Java
from rove.pipeline.spark.session import (
    SparkError,
    SparkSettings,
    configuration,
    home_without_zip,
    machine_bytes,
    memory_bytes,
    open_session,
    reason,
    settings_from,
    spark_home,
)
from tests.effort import PATIENCE_S

JAVA_17 = Java(Path("/java"), 17, "PATH", "17.0.1", Path("/java"))


def in_a_process(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in a Python of its own, with nothing in its environment but what is given."""
    python = environment.pop("PYTHON", sys.executable)
    return subprocess.run(
        [python, "-c", script, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_S,
        check=False,
    )


class TestSettings:
    def test_options_win_over_the_environment_and_that_over_defaults(self) -> None:
        assert settings_from({}) == SparkSettings()
        environment = {
            "ROVE_SPARK_MASTER": "local[3]",
            "ROVE_SPARK_MEMORY": "3g",
            "ROVE_SPARK_UI": "yes",
            "ROVE_SPARK_BRIEF": "1",
            "ROVE_SPARK_CONF": "spark.a=1 'spark.b=x y'",
        }
        found = settings_from(environment)
        assert (found.master, found.memory, found.ui) == ("local[3]", "3g", True)
        assert found.brief
        assert not settings_from(environment, brief=False).brief
        assert found.conf == {"spark.a": "1", "spark.b": "x y"}
        found = settings_from(environment, master="yarn", memory="1g", ui=False, conf=["spark.a=2"])
        assert (found.master, found.memory, found.ui) == ("yarn", "1g", False)
        assert found.conf == {"spark.a": "2", "spark.b": "x y"}

    @pytest.mark.parametrize("text", ["spark.a", "a=1", "=1", ""])
    def test_a_setting_that_spark_would_not_know(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"write spark\.something=value"):
            settings_from({}, conf=[text])

    def test_a_switch_is_one_or_zero(self) -> None:
        with pytest.raises(UsageError, match="ROVE_SPARK_UI is 'maybe'; write 1 or 0"):
            settings_from({"ROVE_SPARK_UI": "maybe"})

    @pytest.mark.parametrize(
        ("master", "local", "loopback"),
        [
            ("local", True, True),
            ("local[*]", True, True),
            ("local-cluster[2,1,1024]", False, False),
            ("spark://127.0.0.1:7077", False, True),
            ("spark://10.0.0.1:7077", False, False),
            ("yarn", False, False),
        ],
    )
    def test_what_is_local(self, master: str, local: bool, loopback: bool) -> None:
        settings = SparkSettings(master=master)
        assert (settings.is_local, settings.is_on_loopback) == (local, loopback)


class TestConfiguration:
    def test_what_is_asked_for_wins(self) -> None:
        told = configuration(SparkSettings(conf={"spark.sql.session.timeZone": "CET"}))
        assert told["spark.sql.session.timeZone"] == "CET"
        assert told["spark.ui.enabled"] == "false"
        assert told["spark.sql.shuffle.partitions"] == str(cores())
        assert told["spark.driver.host"] == "127.0.0.1"

    def test_options_for_java_are_added_to_ours_and_come_last(self) -> None:
        name = "spark.driver.extraJavaOptions"
        settings = SparkSettings(brief=True, conf={name: "-Dmine=1"})
        words = configuration(settings, JAVA_17)[name].split()
        assert words[-1] == "-Dmine=1"
        assert {"-XX:+UseSerialGC", "-Xlog:disable"} <= set(words)
        loud = SparkSettings(debug=True)
        assert not {"-Xlog:disable", "-XX:+UseSerialGC"} & set(configuration(loud)[name].split())

    def test_executors_start_soon_where_that_is_wanted(self) -> None:
        name = "spark.executor.extraJavaOptions"
        brief = SparkSettings(master="yarn", brief=True, conf={name: "-Dmine=1"})
        assert configuration(brief)[name].split()[1:] == ["-XX:+UseSerialGC", "-Dmine=1"]
        for other in (SparkSettings(master="yarn"), SparkSettings(brief=True)):
            assert name not in configuration(other)

    def test_a_cluster_elsewhere_is_told_no_loopback(self) -> None:
        assert "spark.driver.host" not in configuration(SparkSettings(master="yarn"))


class TestWhatCannotWork:
    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            (SparkSettings(memory="much"), "'much' is no valid amount of memory; write 512m"),
            (SparkSettings(memory="1k"), "Spark needs 512m of memory or more, and was given 1k"),
            (SparkSettings(memory="900t"), "900t of memory is more than this machine has"),
            (SparkSettings(master="spark://here"), "names no port; write spark://host:7077"),
        ],
    )
    def test_is_refused_in_one_line_before_spark_starts(
        self, settings: SparkSettings, told: str
    ) -> None:
        with pytest.raises(RoveError) as caught:
            open_session(settings)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_master_that_does_not_answer(self) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            with pytest.raises(SparkError, match=rf"answers at 127.0.0.1:{port}: Connection ref"):
                open_session(SparkSettings(master=f"spark://127.0.0.1:{port}"))

    def test_spark_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        monkeypatch.setitem(sys.modules, "pyspark.sql", None)
        for use in (open_session, spark_home):
            with pytest.raises(SparkError, match=r"pip install 'rove\[spark\]' brings it"):
                use()

    def test_a_java_that_ends_at_once(self) -> None:
        script = """
from rove.pipeline.spark.session import *
conf = {"spark.driver.extraJavaOptions": "-Xms9000t"}
try:
    open_session(SparkSettings(master="local[1]", memory="1g", conf=conf))
except SparkError as error:
    print(error)
"""
        done = in_a_process(script, PATH=os.environ["PATH"])
        assert done.returncode == 0
        assert done.stdout.count("\n") == 1, done.stdout
        assert "larger value than the maximum heap size" in done.stderr
        assert "does not start" in done.stdout
        assert "Java exited at once; its messages are above" in done.stdout

    def test_why_it_failed_is_one_line(self) -> None:
        told = "An error occurred while calling x.\n: java.lang.IllegalStateException: no\n\tat y"
        assert reason(RuntimeError(told)) == "IllegalStateException: no"
        assert reason(RuntimeError("\n[JAVA_GATEWAY_EXITED] Java gateway")).startswith(
            "Java exited"
        )
        assert reason(ValueError()) == "ValueError"


def test_sizes_are_sparks() -> None:
    assert memory_bytes("1g") == memory_bytes("1024m") == memory_bytes("1048576KB") == 1 << 30
    assert (machine_bytes() or 1 << 30) > 1 << 28


def test_a_session_that_runs_is_taken_and_not_mistaken_for_another(spark: Any) -> None:
    assert open_session(SparkSettings(master="local[2]", memory="1g")) is spark
    with pytest.raises(SparkError, match=r"already, with local\[2\] instead of local\[7\]"):
        open_session(SparkSettings(master="local[7]"))


def test_workers_take_the_installed_pyspark_and_compile_nothing(spark: Any) -> None:
    """Spark gives up on a worker that is not there after 10 s, which compiling takes when busy."""

    def where(_: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyspark

        yield pa.record_batch({"file": [pyspark.__file__]})

    found = spark.range(1).mapInArrow(where, "file string").first()["file"]
    assert Path(found).parent == spark_home()


def test_a_home_without_zip_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = home_without_zip()
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
    assert (home / "jars").resolve() == spark_home() / "jars"
    assert home_without_zip() == home
    assert list(home.parent.iterdir()) == [home]
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert home_without_zip() == spark_home()


def is_farewell(line: str) -> bool:
    """What Spark's own workers say when the JVM is gone before them, on a busy machine."""
    said = ("Traceback (most recent call last):", "BrokenPipeError: [Errno 32] Broken pipe")
    return line in said or "/pyspark/daemon.py" in line


@pytest.mark.soak
def test_nothing_around_but_the_package_and_spaces_in_every_path(tmp_path: Path) -> None:
    """No Java, no HOME, no PATH; batch, Arrow, Parquet, streams and RocksDB all work, silently."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "venv").symlink_to(sys.prefix)
    script = """
import json, sys
from pathlib import Path
from rove.pipeline.spark.class_archive import exercise
from rove.pipeline.spark.java import find_java
from rove.pipeline.spark.session import *
session = open_session(SparkSettings(master="local[2]", memory="1g", brief=True))
rows = exercise(session, Path(sys.argv[1]))
session.stop()
print(json.dumps({"rows": rows, "java": find_java().source, "home": str(spark_home())}))
"""
    python = str(folder / "venv" / "bin" / "python")
    cache = str(folder / "cache")
    data = folder / "some data"
    data.mkdir()
    done = in_a_process(
        script, str(data), PYTHON=python, PATH="/usr/bin:/bin", XDG_CACHE_HOME=cache
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == 1000
    assert "a folder" in found["home"]
    assert [line for line in done.stderr.splitlines() if not is_farewell(line)] == []
