"""A Spark session with settings for our jobs: in this process by default, or on any cluster.

The settings were measured. Spark's web UI and progress line are off by default; there is one
shuffle partition per core, since our shuffles are small; with a local master everything listens on
loopback only; file checkpoints bypass the layer that starts a process for every `chmod`, which
makes a micro-batch up to twice as fast; state is in RocksDB. Spark logs only errors that are not
reported otherwise.

Starting took some 8 s and the first job 3 s more on two cores; with an archive of Spark's classes
4 to 6 s and 2 s (see `rove.pipeline.spark.class_archive`, also for how that was measured); in one
run that was also `brief`, 3 s and 1 s.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rove.base.processes import cores
from rove.errors import RoveError, UsageError
from rove.pipeline.spark import executors
from rove.pipeline.spark.dialect import check_spark
from rove.pipeline.spark.java import Java, cache_folder, class_archive_options, find_java

LOOPBACK: Final = "127.0.0.1"
ARROW_ROWS: Final = 100_000
"""The most rows of a batch between the JVM and Python."""
ARROW_BYTES: Final = 64 * 2**20
"""The most bytes of a batch: strings may have any length."""
ENVIRONMENT_PREFIX: Final = "ROVE_SPARK_"
"""ROVE_SPARK_MASTER, …_MEMORY, …_UI, …_BRIEF and …_CONF (`name=value` pairs, spaces between)."""
MEMORY_BYTES_MIN: Final = 512 << 20
"""Spark's own minimum is a little less."""

_ALWAYS: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES),
    # Over TCP a task waits 40 ms for an acknowledgement before it begins.
    "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_ON_LOOPBACK: Final[Mapping[str, str]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
_BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_FORKS_BY_DEFAULT: Final = 25
"""The first version of Java that warns about the faster way to start a process."""
_MEMORY: Final = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)
_UNITS: Final = {"k": 10, "m": 20, "g": 30, "t": 40}
_CONNECT_S_MAX: Final = 5.0
_MISSING: Final = "Spark is not installed; pip install 'rove[spark]' brings it"
_MISSING_CONNECT: Final = "Spark Connect is not installed; pip install 'pyspark[connect]' brings it"


class SparkError(RoveError):
    """Spark is missing, or does not start."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how Spark runs."""

    master: str = "local[*]"
    """`local[n]`, `spark://host:port`, `yarn`, `k8s://…`, or `sc://host:port` for Spark Connect."""
    name: str = "rove"
    ui: bool = False
    """Whether Spark serves its web UI."""
    memory: str = "2g"
    """The driver's memory; in local mode the driver does everything."""
    shuffle_partitions: int = 0
    """0 is one per core of this machine."""
    brief: bool = False
    """For short jobs: Java compiles less, so it starts sooner and computes more slowly."""
    debug: bool = False
    """Whether Spark and Java log everything that they log by default."""
    conf: dict[str, str] = {}
    """Other settings by Spark's names; they override ours."""

    @property
    def is_local(self) -> bool:
        """Whether everything runs in one process and its children."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def is_connect(self) -> bool:
        """Whether the master is the address of a Spark Connect server."""
        return self.master.startswith("sc://")

    @property
    def is_on_loopback(self) -> bool:
        return self.is_local or self.master.startswith(("spark://127.", "spark://localhost:"))


def settings_from(
    environment: Mapping[str, str],
    *,
    master: str | None = None,
    memory: str | None = None,
    ui: bool | None = None,
    brief: bool | None = None,
    conf: Iterable[str] = (),
    debug: bool = False,
) -> SparkSettings:
    """Settings from a command's arguments, then the environment, then the defaults."""
    default = SparkSettings()
    pairs = [*shlex.split(environment.get(f"{ENVIRONMENT_PREFIX}CONF", "")), *conf]
    return SparkSettings(
        master=master or environment.get(f"{ENVIRONMENT_PREFIX}MASTER") or default.master,
        memory=memory or environment.get(f"{ENVIRONMENT_PREFIX}MEMORY") or default.memory,
        ui=_switch(environment, "UI") if ui is None else ui,
        brief=_switch(environment, "BRIEF") if brief is None else brief,
        conf=dict(map(_pair, pairs)),
        debug=debug,
    )


def open_session(settings: SparkSettings | None = None) -> Any:
    """A session with these settings, or the running one; SparkError says why there is none."""
    settings = settings or SparkSettings()
    _check(settings)
    with contextlib.suppress(ImportError):  # reported below as a missing package
        check_spark()
    session = _connected(settings) if settings.is_connect else _started(settings)
    try:
        executors.ship(session)
    except BaseException:
        session.stop()
        raise
    return session


def _connected(settings: SparkSettings) -> Any:
    """The session of a Spark Connect server, with those of our settings that it allows."""
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(settings.master)
        for name, value in {**_ALWAYS, **settings.conf}.items():
            if name.startswith("spark.sql."):
                builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError:
        raise SparkError(_MISSING_CONNECT) from None
    except Exception as error:
        raise SparkError(f"no Spark answers at {settings.master}: {reason(error)}") from error


def _started(settings: SparkSettings) -> Any:
    builder = _builder(settings).appName(settings.name).master(settings.master)
    java = find_java()
    for name, value in configuration(settings, java).items():
        builder = builder.config(name, value)
    os.environ.update(_environment(settings, java))
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark does not start with Java {java.version}: {reason(error)}"
        ) from error


def is_running() -> bool:
    """Whether this process has a session already; then the caller must not stop it."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


def configuration(settings: SparkSettings, java: Java | None = None) -> dict[str, str]:
    """Spark's configuration for these settings."""
    found = dict(_ALWAYS)
    found["spark.ui.enabled"] = "true" if settings.ui else "false"
    found["spark.driver.memory"] = settings.memory
    found["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions or cores())
    if settings.is_on_loopback:
        found |= _ON_LOOPBACK
    if not settings.is_local:
        found |= executors.CONFIGURATION
    found |= settings.conf
    for name, options in (
        (_JAVA_OPTIONS, java_options(settings, java)),
        (_EXECUTOR_OPTIONS, executor_options(settings, java)),
    ):
        if words := " ".join([*map(quoted, options), settings.conf.get(name, "")]).strip():
            found[name] = words
    return found


def java_options(settings: SparkSettings, java: Java | None) -> Iterator[str]:
    """Java options of the driver; of two that contradict each other, the later one counts."""
    yield "-XX:+DisplayVMOutputToStderr"  # stdout is for the results of commands
    if not settings.debug:
        yield f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        yield "-Xlog:disable"
        yield "-Xlog:all=error:stderr"
    # Spark reads only values that Arrow has just written: no need to check each again.
    yield "-Darrow.enable_unsafe_memory_access=true"
    yield "-Darrow.enable_null_check_for_get=false"
    if settings.brief:
        yield from _BRIEF
    else:
        yield "-XX:+UseParallelGC"
    if java is not None:
        if java.version < _FORKS_BY_DEFAULT:
            yield "-Djdk.lang.Process.launchMechanism=VFORK"
        yield from class_archive_options(java)


def executor_options(settings: SparkSettings, java: Java | None) -> Iterator[str]:
    """Java options of executors: those that make them start sooner, if `brief`."""
    if settings.brief and not settings.is_local:
        yield from _BRIEF
        if java is not None and settings.is_on_loopback:
            yield from class_archive_options(java)


def spark_home() -> Path:
    """Where Spark is installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkError(_MISSING)
    return Path(found.origin).parent


def home_without_zip() -> Path:
    """A Spark home without the zip of Python modules, for workers on this machine.

    Spark puts the zip in its home first on the path of Python workers. The modules in a zip are not
    compiled, so every worker would compile PySpark again: 1.8 s of CPU instead of 0.5, and Spark
    gives up on a worker that does not start within 10 s. Without the zip, workers import the
    installed modules.
    """
    home = spark_home()
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    made = cache_folder() / "spark" / digest
    if made.exists():
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=made.parent))
        for name in ("bin", "jars"):
            (unfinished / name).symlink_to(home / name)
        with contextlib.suppress(OSError):  # another process was faster
            unfinished.rename(made)
    except OSError:
        return home
    return made if made.exists() else home


def memory_bytes(text: str) -> int:
    """A size such as `2g` in bytes, as Spark reads it."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no valid amount of memory; write 512m, 2g or the like")
    return int(found[1]) << _UNITS[found[2].lower()]


def machine_bytes() -> int | None:
    """The memory of this machine; None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def reason(error: BaseException) -> str:
    """Why Spark failed, in a line: the text of a Java exception without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line[2:] for line in lines if line.startswith(": ")]
    first = (messages or lines or [type(error).__name__])[0]
    if "JAVA_GATEWAY_EXITED" in first:
        return "Java exited at once; its messages are above"
    return re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", r"\1: ", first)


def _check(settings: SparkSettings) -> None:
    """Check what Spark would report too late, or in a way that is hard to read."""
    wanted_bytes, has_bytes = memory_bytes(settings.memory), machine_bytes()
    if wanted_bytes < MEMORY_BYTES_MIN:
        raise UsageError(f"Spark needs 512m of memory or more, and was given {settings.memory}")
    if has_bytes is not None and wanted_bytes > has_bytes:
        has = f"{has_bytes / (1 << 30):.1f} GB"
        raise UsageError(f"{settings.memory} of memory is more than this machine has ({has})")
    if settings.master.startswith("spark://"):
        _check_reachable(settings.master)


def _check_reachable(master: str) -> None:
    """Connect to the master: Spark would try for a minute and then report only that it stopped."""
    problems = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise UsageError(f"{master!r} names no port; write spark://host:7077")
        try:
            socket.create_connection((host, int(port)), _CONNECT_S_MAX).close()
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise SparkError(f"no Spark master answers at {'; '.join(problems)}; is it running?")


def _environment(settings: SparkSettings, java: Java) -> dict[str, str]:
    """Environment variables for Spark's scripts; those that are set stay, except JAVA_HOME."""
    wanted = {
        # Spark's own search for it fails where the interpreter's path has a space.
        "SPARK_HOME": str(home_without_zip() if settings.is_on_loopback else spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if settings.is_on_loopback:
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
    return wanted | {name: os.environ[name] for name in wanted.keys() & os.environ} | {
        "JAVA_HOME": str(java.home)
    }  # fmt: skip


def _builder(settings: SparkSettings) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkError(_MISSING) from None
    running = SparkSession.getActiveSession()
    if running is not None and running.sparkContext.master != settings.master:
        raise SparkError(
            f"Spark runs in this process already, with {running.sparkContext.master} instead of "
            f"{settings.master}; stop that session first"
        )
    return SparkSession.builder


def _switch(environment: Mapping[str, str], what: str) -> bool:
    name = f"{ENVIRONMENT_PREFIX}{what}"
    value = environment.get(name, "").lower()
    if value in ("", "0", "false", "no", "off"):
        return False
    if value in ("1", "true", "yes", "on"):
        return True
    raise UsageError(f"{name} is {value!r}; write 1 or 0")


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.startswith("spark."):
        raise UsageError(f"{text!r} is no setting of Spark; write spark.something=value")
    return name, value


def quoted(option: str) -> str:
    """An option in quotes if it has spaces, where Spark would split it."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if " " in option else option
