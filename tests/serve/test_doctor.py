"""The doctor, with real patients: occupied ports, full disks, wrong files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import socket
import sqlite3
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rove.broker.storage.journal import Changes
from rove.broker.storage.records import LogRow, SessionRow, encoded
from rove.errors import RoveError
from rove.serve import doctor
from rove.serve.config import load
from rove.serve.disk.lake import LakeAppender
from rove.serve.disk.store import Store
from rove.serve.doctor import DoctorFinding, examine_configuration, examine_machine
from rove.serve.passwords import set_password
from rove.serve.server import Server
from rove.serve.settings import Config
from rove.serve.tls import validity

CERTIFICATES = Path(__file__).parent / "certificates"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def patient(tmp_path: Path, **settings: Any) -> Config:
    """A configuration that is well but for the settings."""
    overrides = {"listen.mqtt_port": 0, "listen.http_port": 0, "data.folder": str(tmp_path / "d")}
    # Trying a worker takes its time.
    overrides["policies.enabled"] = False
    overrides |= {name.replace("__", "."): value for name, value in settings.items()}
    return load(overrides=overrides)


def about(subject: str, findings: Iterable[DoctorFinding]) -> list[tuple[str, str]]:
    return [(each.state, each.text) for each in findings if each.subject == subject]


def examine(config: Config) -> list[DoctorFinding]:
    return list(examine_configuration(config, time.time()))


def test_this_machine_is_well() -> None:
    findings = {finding.subject: finding for finding in examine_machine(time.time())}
    assert {"python", "packages", "kernels", "clock"} <= findings.keys()
    assert [each for each in findings.values() if each.state == "problem"] == []
    assert "msgspec" in findings["packages"].text
    assert findings["kernels"].text.startswith("compiled")


def test_a_healthy_configuration_leaves_nothing_behind(tmp_path: Path) -> None:
    findings = examine(patient(tmp_path, limits__connections_max=1))
    assert [each for each in findings if each.state == "problem"] == []
    assert about("configuration", findings) == [("ok", "a broker would accept it")]
    assert list(tmp_path.iterdir()) == []


def test_whatever_is_not_well_comes_with_advice(tmp_path: Path) -> None:
    config = patient(
        tmp_path, listen__mqtt_host="0.0.0.0", access__acl_file="nowhere", tls__certificate="none"
    )
    findings = [each for each in examine(config) if each.state != "ok"]
    assert len(findings) >= 4
    assert all(each.advice for each in findings)


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("msgspec", "no-such-package"))
    monkeypatch.setattr(doctor, "QUICKER", ("no-such-quicker-package",))
    findings = list(doctor._dependencies())
    assert about("no-such-package", findings) == [("problem", "is not installed")]
    assert about("no-such-quicker-package", findings)[0][0] == "warning"


@pytest.mark.parametrize(("now_s", "state"), [(0.0, "problem"), (1.8e9, "ok"), (5e9, "problem")])
def test_the_clock(now_s: float, state: str) -> None:
    assert doctor._clock(now_s).state == state


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = patient(tmp_path, listen__mqtt_port=port)
        ((state, text),) = about(f"port {port}", examine(config))
    assert state == "problem"
    assert text.startswith("mqtt at 127.0.0.1: Address already in use")
    ((state, text),) = about(f"port {port}", examine(config))
    assert (state, text) == ("ok", "mqtt at 127.0.0.1: free")


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    config = patient(tmp_path, listen__http_host="192.0.2.1", listen__http_port=18080)
    ((state, _),) = about("port 18080", examine(config))
    assert state == "problem"


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free_bytes, expected in ((10 * 2**20, "problem"), (500 * 2**20, "warning")):
        usage = Usage(2**40, 2**40 - free_bytes, free_bytes)
        monkeypatch.setattr("shutil.disk_usage", lambda path, usage=usage: usage)
        ((state, text),) = about("data", examine(patient(tmp_path)))
        assert state == expected
        assert str(tmp_path) in text


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ((state, text),) = about("data", examine(patient(tmp_path, data__folder=str(file))))
    assert state == "problem"
    assert f"cannot write in {file}: Not a directory" in text


def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_flush_ms", lambda place: 33.3)
    ((state, text),) = about("flush", examine(patient(tmp_path)))
    assert state == "warning"
    assert "a flush takes 33.3 ms" in text


def test_without_durability_the_disk_does_not_matter(tmp_path: Path) -> None:
    findings = examine(patient(tmp_path, data__durability="none", data__folder="/proc/nowhere"))
    assert about("data", findings) == about("flush", findings) == []
    assert about("configuration", findings)[0][0] == "warning"


def test_a_folder_from_the_future(tmp_path: Path) -> None:
    os.utime(tmp_path, (time.time() + 3_600,) * 2)
    findings = list(examine_configuration(patient(tmp_path, data__folder=str(tmp_path)), 1.7e9))
    assert about("clock", findings) == [("warning", f"{tmp_path} was changed in the future")]


def test_access_files(tmp_path: Path) -> None:
    users, acl = tmp_path / "users", tmp_path / "acl"
    set_password(users, "alice", b"secret")
    acl.write_text("allow user alice publish,subscribe #\n")
    good = patient(tmp_path, access__password_file=str(users), access__acl_file=str(acl))
    assert about("access", examine(good)) == [("ok", "1 users with passwords, 2 rules")]
    users.chmod(0o644)
    (found, _) = (each for each in examine(good) if each.subject == "access")
    assert found.text == f"{users} can be read by every user of this machine"
    assert found.advice == f"`chmod o-rwx {users}`"
    acl.write_text("allow alice")
    ((state, text),) = about("access", examine(good))
    assert state == "problem"
    assert f"{acl}:1: " in text


def test_certificates(tmp_path: Path) -> None:
    certificate, key = CERTIFICATES / "server.pem", tmp_path / "server.key"
    key.write_bytes((CERTIFICATES / "server.key").read_bytes())
    key.chmod(0o600)
    settings = {"tls__certificate": str(certificate), "tls__key": str(key)}
    config = patient(tmp_path, listen__mqtts_port=0, **settings)
    ((state, _),) = about("tls", examine(config))
    assert state == "ok"
    ends_at = validity(ssl.PEM_cert_to_DER_cert(certificate.read_text())).ends_at
    states = [state for state, _ in about("tls", examine_configuration(config, ends_at + 1))]
    assert states == ["warning", "ok"]
    key.write_bytes((CERTIFICATES / "client.key").read_bytes())
    ((state, text),) = about("tls", examine(config))
    assert state == "problem"
    assert "does not belong" in text


def test_limits_of_the_system(tmp_path: Path) -> None:
    ((state, text),) = about("open files", examine(patient(tmp_path, limits__connections_max=1)))
    assert state == "ok"
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        config = patient(tmp_path, limits__connections_max=1_000)
        ((state, text),) = about("open files", examine(config))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert state == "warning"
    assert text == "500 allowed, 1,200 needed for 1,000 connections"
    ((state, _),) = about("memory", examine(patient(tmp_path, limits__memory_bytes_high=2**50)))
    assert state == "warning"


def test_workers_for_policies_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = patient(tmp_path, policies__enabled=True)
    ((state, text),) = about("policies", examine(config))
    if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
        assert state == "ok"
        assert text.endswith("can do nothing but compute")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    expected = [("problem", "workers do not work: a worker ended with status 1")]
    assert about("policies", examine(config)) == expected
    assert about("policies", examine(patient(tmp_path))) == []


@pytest.mark.parametrize(("isolation", "state"), [("none", "warning"), ("process", "problem")])
def test_workers_that_could_do_more_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, state: str
) -> None:
    monkeypatch.setattr(doctor, "tried", lambda: (("it may start processes",), 0.1))
    config = patient(tmp_path, policies__enabled=True, policies__isolation=isolation)
    ((found, text),) = about("policies", examine(config))
    assert found == state
    assert text.endswith("than it should be: it may start processes")


# --- what is on disk ----------------------------------------------------------------------------


def filled(folder: Path) -> Path:
    """A data folder as a killed broker leaves it, with its groups in the write-ahead log."""
    live = folder.with_name("live")
    with Store.open(live, "process") as store:
        for number in range(40):
            changes = Changes()
            row = SessionRow(number, 5, 600, "ana")
            changes.put("sessions", f"client-{number}", encoded(row))
            store.commit(changes)
        shutil.copytree(live, folder)
    return folder


def cut_log(folder: Path) -> None:
    log = folder / "rove.db-wal"
    os.truncate(log, log.stat().st_size // 2)


def spoil_pages(folder: Path) -> None:
    """Of the file proper: everything is moved there first."""
    Store.open(folder, "process").close()
    file = folder / "rove.db"
    data = file.read_bytes()
    file.write_bytes(data[:4096] + bytes(len(data) - 4096))


def write_newer(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "rove.db")) as connection:
        connection.execute("UPDATE schema SET version = 99")
        connection.commit()


def write_nonsense(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "rove.db")) as connection:
        connection.execute("INSERT INTO sessions VALUES ('who', x'ff00ff')")
        connection.commit()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda folder: None, ""),
    "log cut": (cut_log, "acknowledged groups"),
    "log gone": (lambda folder: (folder / "rove.db-wal").unlink(), "acknowledged groups"),
    "database gone": (lambda folder: (folder / "rove.db").unlink(), "acknowledged groups"),
    "database empty": (lambda folder: (folder / "rove.db").write_bytes(b""), "it is empty"),
    "no database": (lambda folder: (folder / "rove.db").write_bytes(b"x" * 9999), "not a database"),
    "record gone": (lambda folder: (folder / "rove.commits").unlink(), "is missing"),
    "pages spoilt": (spoil_pages, "is damaged"),
    "newer": (write_newer, "newer Rove"),
    "rows of no Rove": (write_nonsense, "cannot take up"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_doctor_finds_what_a_start_would_refuse_and_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    damage, told = DAMAGES[name]
    folder = filled(tmp_path / "data")
    damage(folder)
    config = patient(tmp_path, data__folder=str(folder))
    before = {
        path.name: path.read_bytes() for path in folder.glob("rove.*") if "shm" not in path.name
    }
    findings = about("database", examine(config))
    assert {name: (folder / name).read_bytes() for name in before} == before
    refusal = started(config)
    assert told in refusal
    if told:
        [(state, text)] = findings
        assert state == "problem"
        assert refusal.startswith(text)
    else:
        told = f"{folder}/rove.db: 40 sessions, whole up to group 40"
        assert findings == [("ok", told)]
        assert not refusal


def started(config: Config) -> str:
    """Why a broker does not start with it; empty if it does."""

    async def start() -> None:
        server = Server(config)
        await server.start()
        await server.stop()

    try:
        asyncio.run(start())
    except RoveError as error:
        return str(error)
    return ""


def test_losses_that_were_accepted_are_remembered(tmp_path: Path) -> None:
    folder = filled(tmp_path / "data")
    cut_log(folder)
    Store.open(folder, "process", accept_loss=True).close()
    [(state, text)] = about("database", examine(patient(tmp_path, data__folder=str(folder))))
    assert state == "warning"
    assert re.search(r"; \d+ groups were lost before \(1 times accepted\)", text)


def test_a_folder_in_use_is_a_problem(tmp_path: Path) -> None:
    with Store.open(tmp_path / "d", "process"):
        [(state, text)] = about("database", examine(patient(tmp_path)))
    assert state == "problem"
    assert f"in use by process {os.getpid()}" in text


def lake_of(tmp_path: Path) -> Path:
    """The only file of a lake."""
    lake = LakeAppender(tmp_path / "d" / "lake")
    lake.take(
        [
            (n, LogRow("publications", "air", 1.7e9, payload=os.urandom(500).hex().encode()))
            for n in range(99)
        ]
    )
    [path] = (tmp_path / "d" / "lake" / "kind=publications").rglob("*.parquet")
    return path


def files_found(tmp_path: Path, *, is_deep: bool = False) -> list[tuple[str, str]]:
    config = patient(tmp_path)
    return about("lake", examine_configuration(config, time.time(), is_deep=is_deep))


def test_parquet_files_that_are_whole(tmp_path: Path) -> None:
    assert files_found(tmp_path) == []
    lake_of(tmp_path)
    told = f"{tmp_path / 'd' / 'lake'}: 1 files, 99 rows up to position 98"
    assert files_found(tmp_path) == [("ok", f"{told}, footers read")]
    assert files_found(tmp_path, is_deep=True) == [("ok", f"{told}, read")]


@pytest.mark.parametrize("kept", [0, 3, 0.5, 0.99])
def test_a_parquet_file_cut_short_is_found(tmp_path: Path, kept: float) -> None:
    path = lake_of(tmp_path)
    os.truncate(path, int(path.stat().st_size * kept) if kept < 1 else int(kept))
    (state, text), _ = files_found(tmp_path)
    assert state == "problem"
    assert text.startswith(f"cannot read {path}: ")
    assert "\n" not in text


def test_a_spoilt_page_of_a_parquet_file_is_found_by_a_deep_look(tmp_path: Path) -> None:
    path = lake_of(tmp_path)
    data = bytearray(path.read_bytes())
    data[2_000:20_000] = bytes(18_000)
    path.write_bytes(data)
    assert [state for state, _ in files_found(tmp_path)] == ["ok"]
    assert [state for state, _ in files_found(tmp_path, is_deep=True)] == ["problem", "ok"]


def test_a_list_of_files_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    lake_of(tmp_path)
    [*_, commit] = sorted((tmp_path / "d" / "lake" / "_delta_log").glob("*.json"))
    commit.write_text("{")
    ((state, text),) = files_found(tmp_path)
    assert state == "problem"
    assert text.startswith(f"cannot open the table {tmp_path}/d/lake: ")


def test_a_file_that_is_gone_is_found(tmp_path: Path) -> None:
    lake_of(tmp_path).unlink()
    (state, text), _ = files_found(tmp_path)
    assert state == "problem"
    assert "was not found" in text
