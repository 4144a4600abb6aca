"""`rove doctor`: what prevents a broker from starting or running well, and what to do about it.

Everything is tried rather than guessed: a file is written and flushed, ports are bound,
certificates are loaded as the broker loads them, the database is restored into a broker that is
then dropped, and every Parquet file is opened. Nothing is left behind, with one intended exception:
kernels that are not cached are compiled, so that the broker need not.

It takes about two seconds, half of it for the kernels; ten more if they must be compiled. A
database takes as long as a start does, a Parquet file 0.1 ms, or as long as reading all of it.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from rove.broker.broker import Broker
from rove.broker.limits import GIB, MIB
from rove.errors import RoveError
from rove.serve import tls
from rove.serve.config import ListenerAddress, check, find_problems, listeners, load_access
from rove.serve.disk.commit_record import FILE_NAME as COMMITS_NAME
from rove.serve.disk.data_folder import FILE_NAME, DatabaseReader, StoreError, opened_to_read
from rove.serve.server import settings_of, take_up
from rove.serve.settings import Config, PolicySettings
from rove.serve.workers.policy_workers import tried

State = Literal["ok", "warning", "problem"]

PYTHON_MIN: Final = (3, 11)
NEEDED: Final = (
    "msgspec", "numpy", "numba", "pillow", "pyarrow", "starlette", "uvicorn", "websockets",
)  # fmt: skip
QUICKER: Final = ("uvloop",)
"""Optional; the broker is slower without."""
FREE_BYTES_WARNING: Final = GIB
FREE_BYTES_PROBLEM: Final = 100 * MIB
FLUSHES: Final = 5
FLUSH_MS_WARNING: Final = 20.0
OTHER_FILES: Final = 200
"""Files that are open besides connections: the database, the lake, listeners, logs."""
SANE_YEARS: Final = range(2026, 2100)


class DoctorFinding(msgspec.Struct, frozen=True):
    """The result of one check."""

    subject: str
    state: State
    text: str
    advice: str = ""
    """What to do; empty if all is well."""


def examine_machine(now_s: float) -> Iterator[DoctorFinding]:
    """Checks without a configuration."""
    yield _python()
    yield from _dependencies()
    yield _kernels()
    yield _clock(now_s)


def examine_configuration(
    config: Config, now_s: float, *, is_deep: bool = False
) -> Iterator[DoctorFinding]:
    """Checks of a configuration on this machine; if deep, all data on disk are read."""
    yield from _settings(config)
    yield from _access(config)
    if config.tls.certificate:
        yield from _tls(config, now_s)
    if config.data.durability != "none":
        yield from _data(Path(config.data.folder), now_s)
        yield from _store(config, now_s, is_deep)
    if config.lake.enabled:
        yield from examine_lake(config.lake_location, is_deep=is_deep)
    for listener in listeners(config):
        if listener.port:
            yield _port(listener)
    yield _open_files(config.limits.connections_max)
    yield _memory(config.limits.memory_bytes_high)
    if config.policies.enabled:
        yield _workers(config.policies)


# --- the machine --------------------------------------------------------------------------------


def _python() -> DoctorFinding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        return DoctorFinding("python", "problem", text, f"use Python {wanted} or newer")
    return DoctorFinding("python", "ok", text)


def _dependencies() -> Iterator[DoctorFinding]:
    versions = {name: _version(name) for name in NEEDED + QUICKER}
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield DoctorFinding("packages", "ok", found)
    for name, version in versions.items():
        if version is None:
            state: State = "problem" if name in NEEDED else "warning"
            text = "is not installed" + ("" if name in NEEDED else ": connections cost more CPU")
            yield DoctorFinding(name, state, text, "pip install rove")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernels() -> DoctorFinding:
    begin_s = time.perf_counter()
    try:
        from rove.match import warm_up  # half a second, and what fails here is a finding

        warm_up()
    except Exception as error:  # Numba may raise anything on this machine
        return DoctorFinding(
            "kernels",
            "warning",
            f"cannot be compiled ({type(error).__name__}: {error}); matching runs without, slowly",
            "set NUMBA_CACHE_DIR to a folder that can be written, or install numba again",
        )
    took_s = time.perf_counter() - begin_s
    return DoctorFinding("kernels", "ok", f"compiled, ready after {took_s:.1f} s")


def _clock(now_s: float) -> DoctorFinding:
    moment = datetime.fromtimestamp(now_s, UTC)
    text = moment.isoformat(" ", "seconds")
    if moment.year not in SANE_YEARS:
        return DoctorFinding(
            "clock", "problem", f"{text} cannot be right", "set the clock; validity depends on it"
        )
    return DoctorFinding("clock", "ok", text)


# --- the configuration --------------------------------------------------------------------------


def _settings(config: Config) -> Iterator[DoctorFinding]:
    problems = list(find_problems(config))
    for problem in problems:
        yield DoctorFinding("configuration", "problem", problem, "`rove config` explains every key")
    warnings = check(config) if not problems else []
    for warning in warnings:
        yield DoctorFinding("configuration", "warning", warning, "change it unless it is intended")
    if not problems and not warnings:
        yield DoctorFinding("configuration", "ok", "a broker would accept it")


def _access(config: Config) -> Iterator[DoctorFinding]:
    try:
        door, rules, warnings = load_access(config)
    except RoveError as error:
        yield DoctorFinding(
            "access", "problem", str(error), "correct the file or the key in [access]"
        )
        return
    for warning in warnings:
        yield _warning("access", warning, otherwise="see [access]")
    users = len(door.passwords.users) if door.passwords else "no"
    count = len(rules.rules) if config.access.acl_file else "no"
    yield DoctorFinding("access", "ok", f"{users} users with passwords, {count} rules")


def _warning(subject: str, line: str, otherwise: str) -> DoctorFinding:
    """A warning, which may have advice after a semicolon."""
    text, _, advice = line.partition("; ")
    return DoctorFinding(subject, "warning", text, advice or otherwise)


def _tls(config: Config, now_s: float) -> Iterator[DoctorFinding]:
    try:
        tls.server_context(config.tls)
        for warning in tls.warnings(config.tls, now_s):
            yield _warning("tls", warning, otherwise="renew it: clients refuse what is not valid")
    except RoveError as error:
        yield DoctorFinding("tls", "problem", str(error), "correct the file or the key in [tls]")
        return
    yield DoctorFinding("tls", "ok", f"{config.tls.certificate} and its key belong together")


# --- disk, ports, limits ------------------------------------------------------------------------


def _data(folder: Path, now_s: float) -> Iterator[DoctorFinding]:
    place = _nearest_existing(folder)
    try:
        flush_ms = _flush_ms(place)
    except OSError as error:
        yield DoctorFinding(
            "data",
            "problem",
            f"cannot write in {place}: {error.strerror}",
            "give the broker's user the permission, or name another folder in [data]",
        )
        return
    yield _room(place)
    if flush_ms > FLUSH_MS_WARNING:
        yield DoctorFinding(
            "flush",
            "warning",
            f"{place}: a flush takes {flush_ms:.1f} ms; every acknowledgement waits for one",
            "use a faster disk for [data] folder",
        )
    else:
        yield DoctorFinding("flush", "ok", f"{place}: {flush_ms:.1f} ms")
    if place.stat().st_mtime > now_s + 60:
        yield DoctorFinding(
            "clock", "warning", f"{place} was changed in the future", "was the clock set back?"
        )


def _nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest parent that exists."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if os.path.lexists(each))


def _store(config: Config, now_s: float, is_deep: bool) -> Iterator[DoctorFinding]:
    """Whether a broker could restore the data folder."""
    folder = Path(config.data.folder)
    try:
        if not ((folder / FILE_NAME).exists() or (folder / COMMITS_NAME).exists()):
            return
        with opened_to_read(folder) as look:
            if damage := look.damage(is_thorough=is_deep):
                raise StoreError(damage)
            broker = _restored(config, look, now_s)
    except RoveError as error:
        text, _, advice = str(error).partition("; ")
        yield DoctorFinding("database", "problem", text, advice or "see [data]")
        return
    except OSError as error:
        yield DoctorFinding("database", "problem", f"{folder}: {error.strerror}", "see [data]")
        return
    mark = look.mark
    sessions = len(broker.view.sessions)
    text = f"{look.file}: {sessions:,} sessions, whole up to group {mark.number:,}"
    if mark.losses:
        yield DoctorFinding(
            "database",
            "warning",
            f"{text}; {mark.groups_lost:,} groups were lost before ({mark.losses} times accepted)",
            "check the disk and the backups, if that was not intended",
        )
    else:
        yield DoctorFinding("database", "ok", text)


def _restored(config: Config, look: DatabaseReader, now_s: float) -> Broker:
    """A broker in the state of the data folder, as a start makes it, without a shell."""
    policies = config.policies
    broker = Broker(
        now=now_s,
        new_name=lambda: "",
        limits=config.limits,
        settings=settings_of(config),
        compiled=False,
        policies=policies.limits if policies.enabled else None,
        isolation=policies.isolation,
    )
    take_up(broker, look, None)
    return broker


def examine_files(folder: Path, *, is_deep: bool = False) -> Iterator[DoctorFinding]:
    """Whether the Parquet files below a folder can be read: their footers, or deep, all of them."""
    try:
        paths = sorted(folder.rglob("*.parquet")) if folder.exists() else None
    except OSError as error:
        advice = "give the broker's user the right to, or name another folder"
        yield DoctorFinding("files", "problem", f"cannot read {folder}: {error.strerror}", advice)
        return
    if paths is None:
        return
    from pyarrow import parquet  # a third of a second, only where there is something to read

    files = rows = 0
    for path in paths:
        if path.name.startswith("."):  # unfinished; readers skip it, and so does a start
            continue
        files += 1
        try:
            with parquet.ParquetFile(path, page_checksum_verification=is_deep) as file:
                rows += file.metadata.num_rows
                for group in range(file.num_row_groups if is_deep else 0):
                    file.read_row_group(group)
        except (OSError, ValueError) as error:  # all that Arrow raises for what it cannot read
            yield DoctorFinding(
                "files",
                "problem",
                f"{path} cannot be read: {' '.join(str(error).split())}",
                "restore it from a backup, or move it away: readers stop at it",
            )
    how = "read" if is_deep else "footers read"
    yield DoctorFinding("files", "ok", f"{folder}: {files:,} Parquet files, {rows:,} rows, {how}")


def examine_lake(location: str, *, is_deep: bool = False) -> Iterator[DoctorFinding]:
    """Whether a lake can be read: the list of its files and their footers, or deep, all of them."""
    from rove.lake.delta import DeltaTable, MissingTableError
    from rove.lake.log import WRITER, files_of
    from rove.lake.storage import LakeError, open_parquet, shown

    try:
        table = DeltaTable(location)
        files = files_of(table.files())
    except MissingTableError:
        return
    except LakeError as error:
        yield DoctorFinding(
            "lake", "problem", str(error), "restore it from a backup, or name another place"
        )
        return
    for each in files:
        try:
            with open_parquet(table.uri, each.path) as file:
                for group in range(file.num_row_groups if is_deep else 0):
                    file.read_row_group(group)
        except LakeError as error:
            advice = "restore it from a backup: readers stop at it"
            yield DoctorFinding("lake", "problem", str(error), advice)
    rows, how = sum(each.rows for each in files), "read" if is_deep else "footers read"
    text = f"{shown(table.uri)}: {len(files):,} files, {rows:,} rows up to position "
    yield DoctorFinding("lake", "ok", f"{text}{table.number(WRITER)}, {how}")


def _flush_ms(place: Path) -> float:
    """The median time of writing 4 KB until they are on the disk."""
    times_s = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(FLUSHES):
            begin_s = time.perf_counter()
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times_s.append(time.perf_counter() - begin_s)
    return 1_000 * statistics.median(times_s)


def _room(place: Path) -> DoctorFinding:
    free_bytes = shutil.disk_usage(place).free
    text = f"{place}: {free_bytes / GIB:,.1f} GB free"
    if free_bytes >= FREE_BYTES_WARNING:
        return DoctorFinding("data", "ok", text)
    state: State = "warning" if free_bytes >= FREE_BYTES_PROBLEM else "problem"
    return DoctorFinding("data", state, text, "make room: nothing is acknowledged on a full disk")


def _port(listener: ListenerAddress) -> DoctorFinding:
    subject = f"port {listener.port}"
    where = f"{listener.name} at {listener.host}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        advice = {
            errno.EADDRINUSE: "stop what runs there (a broker already?) or choose another port",
            errno.EACCES: "ports below 1024 need rights; choose a higher one",
        }.get(error.errno or 0, "name an address of this machine in [listen]")
        return DoctorFinding(subject, "problem", f"{where}: {error.strerror}", advice)
    return DoctorFinding(subject, "ok", f"{where}: free")


def _open_files(connections_max: int) -> DoctorFinding:
    try:
        import resource  # not on Windows, where the limit is none
    except ImportError:
        return DoctorFinding("open files", "ok", "no limit known here")
    allowed, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + OTHER_FILES
    if allowed in range(needed):
        return DoctorFinding(
            "open files",
            "warning",
            f"{allowed:,} allowed, {needed:,} needed for {connections_max:,} connections",
            f"`ulimit -n {needed}` before `rove up` (at most {ceiling:,} now),"
            f" or a lower [limits] connections_max",
        )
    return DoctorFinding("open files", "ok", f"enough for {connections_max:,} connections")


def _memory(memory_bytes_high: int) -> DoctorFinding:
    try:
        total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return DoctorFinding("memory", "ok", "size not known here")
    text = f"{total_bytes / GIB:.1f} GB"
    if 2 * memory_bytes_high > total_bytes:
        return DoctorFinding(
            "memory",
            "warning",
            f"{text}; publishers are paused only when {memory_bytes_high / GIB:.1f} GB wait",
            "lower memory_bytes_high and memory_bytes_low in [limits]",
        )
    return DoctorFinding("memory", "ok", text)


def _workers(policies: PolicySettings) -> DoctorFinding:
    """Whether workers for policies work, and are confined."""
    try:
        missing, took_s = tried()
    except OSError as error:
        advice = "see what it says on standard error, or set [policies] enabled = false"
        return DoctorFinding("policies", "problem", f"workers do not work: {error}", advice)
    if missing:
        return DoctorFinding(
            "policies",
            "problem" if policies.isolation == "process" else "warning",
            f"a worker is less confined than it should be: {'; '.join(missing)}",
            "use Linux on x86-64 or 64-bit ARM, or trust everybody who may set a policy",
        )
    text = f"a worker is ready after {took_s:.1f} s and can do nothing but compute"
    return DoctorFinding("policies", "ok", text)
