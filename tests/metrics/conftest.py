"""Real databases: a file of SQLite, and servers of PostgreSQL and MariaDB that tests may kill.

Servers are started once for a process of tests, on loopback, in folders that are gone afterwards.
Neither lets itself be run by root, who therefore lends them to `nobody`. They die with the process
that started them.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa

from rove.metrics.points import increase_of
from rove.metrics.records import RESOLUTIONS_S, Reading, Rollup, kind_of
from rove.testing.ports import free_port

START_S_MAX = 90
POSTGRESQL_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")
MARIADB_PLACES = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/libexec")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def program(name: str, places: tuple[str, ...]) -> str:
    """Where a program is; skips the test where it is not."""
    found = [shutil.which(name)]
    for place in places:
        folders = [str(each) for each in Path("/").glob(place.lstrip("/"))]
        found += [shutil.which(name, path=folder) for folder in folders]
    path = next((each for each in found if each), None)
    if path is None:
        pytest.skip(f"{name} is not installed; Debian's postgresql and mariadb-server bring it")
    return path


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class DatabaseServer(ABC):
    """A server in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._used: str | None = None

    @abstractmethod
    def set_up(self) -> None:
        """Make what has to be there before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def url(self, database: str) -> str:
        """Of a database of it."""

    def new_database(self) -> str:
        """An empty database; its URL."""
        self._go_on()
        name = f"rove_{next(self._numbers)}"
        with self.administered() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        return self.url(name)

    def empty_database(self) -> str:
        """One without rows, whose tables may be there: to make them takes half a second."""
        self._go_on()
        if self._used is None:
            self._used = self.new_database()
        else:
            with self.administered(self._used) as connection:
                for table in {*sa.inspect(connection).get_table_names()} - {"schema_version"}:
                    connection.execute(sa.text(f"DELETE FROM {table}"))
        return self._used

    @contextlib.contextmanager
    def administered(self, place: str | None = None) -> Iterator[sa.Connection]:
        engine = sa.create_engine(
            place or self.url(self.first), isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool
        )
        with engine.connect() as connection:
            yield connection
        engine.dispose()

    first = "postgres"
    """A database that is there from the beginning."""

    def start(self) -> None:
        """Start it, again and again until it stays: what a kill left behind takes a moment."""
        end = time.monotonic() + START_S_MAX
        while True:
            with (self.folder / "log").open("ab") as log:
                self._process = self.as_nobody(self.command(), log)
            while self._process.poll() is None:
                if self._answers():
                    return
                assert time.monotonic() < end, self.said()
                time.sleep(0.05)
            assert time.monotonic() < end, self.said()
            time.sleep(0.1)

    def _go_on(self) -> None:
        """Start it if somebody else has ended it: tests are not about that."""
        if self._process is not None and self._process.poll() is not None:
            print(f"ended with {self._process.returncode}: {self.said()}", file=sys.stderr)
            self.start()

    def _answers(self) -> bool:
        try:
            with self.administered() as connection:
                return bool(connection.execute(sa.text("SELECT 1")).scalar() == 1)
        except sa.exc.OperationalError:
            return False

    def kill(self) -> None:
        """As a crash of its machine would, with the processes that serve its connections."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # it has noticed already
                os.kill(int(child), signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It is there, and does nothing. Of a server that is one process only."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2_000:]

    def run(self, words: list[str]) -> None:
        with (self.folder / "log").open("ab") as log:
            code = self.as_nobody(words, log).wait(START_S_MAX)
        assert code == 0, self.said()

    def as_nobody(self, words: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        is_root = os.geteuid() == 0
        return subprocess.Popen(
            words,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"},
            user=pwd.getpwnam("nobody").pw_uid if is_root else None,
            group=pwd.getpwnam("nobody").pw_gid if is_root else None,
            extra_groups=[] if is_root else None,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )


class PostgreSql(DatabaseServer):
    def set_up(self) -> None:
        initdb = program("initdb", POSTGRESQL_PLACES)
        words = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        self.run([initdb, *words, "--username=rove", f"--pgdata={self.folder / 'data'}"])

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",  # a killed process loses nothing by it, only a killed machine would
            "shared_buffers": "16MB",
            "max_connections": 40,
        }
        words = [f"-c{name}={value}" for name, value in settings.items()]
        return [program("postgres", POSTGRESQL_PLACES), "-D", str(self.folder / "data"), *words]

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://rove@127.0.0.1:{self.port}/{database}"


class MariaDb(DatabaseServer):
    first = "mysql"

    def set_up(self) -> None:
        (self.folder / "init.sql").write_text(
            "CREATE USER IF NOT EXISTS rove@'127.0.0.1' IDENTIFIED BY 'se cret';\n"
            "GRANT ALL ON *.* TO rove@'127.0.0.1';\n"
        )
        make = program("mariadb-install-db", MARIADB_PLACES)
        words = ["--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"]
        self.run([make, *words, "--auth-root-authentication-method=normal"])

    def command(self) -> list[str]:
        return [
            program("mariadbd", MARIADB_PLACES),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--init-file={self.folder / 'init.sql'}",
            "--skip-name-resolve",
            # A killed process loses nothing by these, only a killed machine would.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--innodb-buffer-pool-size=32M",
            # What many installations have: texts must not depend on it.
            "--character-set-server=latin1",
        ]

    def url(self, database: str) -> str:
        return f"mysql+pymysql://rove:se%20cret@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def serving(kind: type[DatabaseServer]) -> Iterator[DatabaseServer]:
    folder = Path(tempfile.mkdtemp(prefix="rove-db-", dir="/tmp"))  # paths of sockets are short
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    server = kind(folder)
    try:
        server.set_up()
        server.start()
        yield server
        server.kill()
    finally:
        if server._process is not None and server._process.poll() is None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    with serving(PostgreSql) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    with serving(MariaDb) as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Each kind of server in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, DatabaseServer)
    return found


KINDS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind in turn, with nothing in it: a path, or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "metrics.db")
    return str(request.getfixturevalue(request.param).empty_database())


@pytest.fixture(params=KINDS)
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, but nobody has opened it before: it has no tables."""
    if request.param == "sqlite":
        return str(tmp_path / "metrics.db")
    return str(request.getfixturevalue(request.param).new_database())


# --- roll-ups in plain Python --------------------------------------------------------------------


def plain_roll_up(
    readings: Iterable[Reading], resolutions_s: Sequence[int] = RESOLUTIONS_S
) -> Iterator[Rollup]:
    """Roll-ups by series, resolution and time."""
    ordered = sorted(readings, key=lambda one: (one.metric, one.labels, one.at))
    for _, group in groupby(ordered, key=lambda one: (one.metric, one.labels)):
        of_series = list(group)
        increases = _increases(of_series)
        for resolution_s in resolutions_s:
            yield from _by_interval(of_series, increases, resolution_s)


Increase = tuple[float, float] | None
"""How much a counter has counted, and in how many seconds; None if unknown."""


def _increases(readings: Sequence[Reading]) -> list[Increase]:
    """The increase of each reading since the one before it."""
    if kind_of(readings[0].metric) != "counter":
        return [None] * len(readings)
    return [None] + [
        (increase_of(one.value, before.value), one.at - before.at)
        for before, one in pairwise(readings)
    ]


def _by_interval(
    readings: Sequence[Reading], increases: Sequence[Increase], resolution_s: int
) -> Iterator[Rollup]:
    both = zip(readings, increases, strict=True)
    for start, group in groupby(both, key=lambda pair: math.floor(pair[0].at / resolution_s)):
        inside = list(group)
        values = [reading.value for reading, _ in inside]
        known = [increase for _, increase in inside if increase is not None]
        increase = math.fsum(counted for counted, _ in known) if known else None
        watched_s = math.fsum(seconds for _, seconds in known) if known else None
        first = inside[0][0]
        yield Rollup(
            first.metric,
            first.labels,
            resolution_s,
            start * resolution_s,
            count=len(values),
            sum=math.fsum(values),
            last=values[-1],
            min=min(values),
            max=max(values),
            mean=math.fsum(values) / len(values),
            increase=increase,
            rate=increase / watched_s if increase is not None and watched_s else None,
            watched_s=watched_s,
        )


def assert_equal(found: Iterable[Rollup], wanted: Iterable[Rollup]) -> None:
    """Both have the same roll-ups, with equal figures but for rounding."""

    def by_key(rows: Iterable[Rollup]) -> dict[tuple[object, ...], Rollup]:
        return {(one.metric, one.labels, one.resolution_s, one.start): one for one in rows}

    ours, theirs = by_key(found), by_key(wanted)
    assert ours.keys() == theirs.keys()
    for key, one in ours.items():
        for name in Rollup.__struct_fields__[4:]:
            ought = getattr(theirs[key], name)
            is_so = getattr(one, name)
            assert is_so == (None if ought is None else pytest.approx(ought)), (key, name)
