"""The record of commits: no crash is a false alarm, and nothing that is missing goes unnoticed."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rove.broker.storage.journal import TABLES, Changes, Key
from rove.serve.disk import commit_record
from rove.serve.disk.commit_record import (
    FILE_NAME,
    SLOT_BYTES,
    Commits,
    CommitsError,
    Mark,
    check_commits,
    new_history,
    recorded,
)
from rove.serve.disk.data_folder import FILE_NAME as DATABASE
from rove.serve.disk.data_folder import LossError
from rove.serve.disk.store import Store

HISTORY = b"0123456789abcdef"


def mark(number: int, history: bytes = HISTORY) -> Mark:
    return Mark(history, number, 1_000_000 * number)


def write(folder: Path, *numbers: int, is_flushed: bool = True) -> Path:
    """A file in which these were recorded, one after another."""
    first, *others = numbers
    file = Commits(folder, mark(first), is_flushed=is_flushed)
    for number in others:
        file.write(mark(number))
    file.close()
    return folder / FILE_NAME


def test_the_last_one_counts(tmp_path: Path) -> None:
    assert recorded(tmp_path) is None
    file = write(tmp_path, 0, 1, 2, 3)
    told = recorded(tmp_path)
    assert told is not None
    assert told.mark == mark(3)
    assert told.is_flushed
    assert file.stat().st_mode & 0o777 == 0o600
    write(tmp_path, 3, 4)
    told = recorded(tmp_path)
    assert told is not None
    assert told.mark == mark(4)


def test_losses_are_remembered(tmp_path: Path) -> None:
    Commits(tmp_path, mark(1)._replace(losses=2, groups_lost=30), is_flushed=False).close()
    told = recorded(tmp_path)
    assert told is not None
    assert (told.mark.losses, told.mark.groups_lost, told.is_flushed) == (2, 30, False)
    assert told.mark.next(5) == Mark(HISTORY, 2, 5, 2, 30)


def test_two_histories_are_never_the_same() -> None:
    assert new_history() != new_history()


@pytest.mark.parametrize("number", [7, 8])
def test_a_record_torn_anywhere_leaves_the_one_before(tmp_path: Path, number: int) -> None:
    before = write(tmp_path, 5, 6, *range(7, number)).read_bytes()
    after = write(tmp_path, number - 1, number).read_bytes()
    begin = SLOT_BYTES * (number % 2)
    found = set()
    for torn in range(130):
        data = after[: begin + torn] + before[begin + torn :]
        (tmp_path / FILE_NAME).write_bytes(data)
        told = recorded(tmp_path)
        assert told is not None
        found.add(told.mark.number)
    assert found == {number - 1, number}


@pytest.mark.parametrize("data", [b"", b"x" * 8192, bytes(8192), b"rovecom1" * 1024])
def test_a_file_without_a_record_is_damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(CommitsError, match=r"rove\.commits is damaged: it holds no valid record"):
        recorded(tmp_path)
    assert "is unknown" in check_commits(tmp_path, None).fault
    assert "is unknown" in check_commits(tmp_path, mark(3)).fault


@pytest.mark.parametrize(
    ("kept", "told", "lost"),
    [
        (None, None, 0),
        (None, 0, 0),
        (None, 3, 3),
        (0, 0, 0),
        (3, 3, 0),
        (4, 3, 0),
        (400, 3, 0),
        (2, 3, 1),
        (0, 3, 3),
    ],
)
def test_only_a_database_behind_the_record_has_lost_something(
    tmp_path: Path, kept: int | None, told: int | None, lost: int
) -> None:
    if told is not None:
        write(tmp_path, told)
    verdict = check_commits(tmp_path, None if kept is None else mark(kept))
    assert verdict.groups_lost == lost
    assert bool(verdict.fault) == bool(lost)
    assert not verdict.is_expected


def test_a_record_that_is_missing_or_of_another_history_is_a_fault(tmp_path: Path) -> None:
    assert "rove.commits is missing" in check_commits(tmp_path, mark(3)).fault
    write(tmp_path, 3)
    assert "not of one history" in check_commits(tmp_path, mark(4, b"f" * 16)).fault


@pytest.mark.parametrize("is_flushed", [True, False])
def test_only_the_machine_may_lose_what_was_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    write(tmp_path, 3, is_flushed=is_flushed)
    assert not check_commits(tmp_path, mark(2)).is_expected
    monkeypatch.setattr(commit_record, "boot_id", lambda: b"f" * 16)
    assert check_commits(tmp_path, mark(2)).is_expected is not is_flushed


def test_a_system_without_starts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_record, "_BOOT_ID", Path("/nowhere"))
    assert commit_record.boot_id() == bytes(16)


@pytest.fixture
def moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Copies of the folder at every step of the record, as a kill at that step would leave it."""
    copies: list[Path] = []
    whole = Commits.write

    def copy() -> None:
        copies.append(tmp_path / f"killed {len(copies)}")
        shutil.copytree(tmp_path / "data", copies[-1])
        (copies[-1] / "rove.db-shm").unlink(missing_ok=True)

    def write(self: Commits, mark: Mark) -> None:
        copy()
        whole(self, mark)
        copy()

    monkeypatch.setattr(Commits, "write", write)
    yield copies
    monkeypatch.undo()


def test_killed_at_any_step_nothing_is_missing(tmp_path: Path, moments: list[Path]) -> None:
    for _ in range(2):
        with Store.open(tmp_path / "data", "process") as store:
            for _ in range(3):
                changes = Changes()
                changes.put("queue", store.mark.number + 1, b"x")
                store.commit(changes)
    found = []
    for folder in list(moments):
        with Store.open(folder, "process") as store:
            found.append(store.mark.number)
            assert [key for key, _ in store.load("queue")] == list(range(1, found[-1] + 1))
    assert found == [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 6]


# --- losses ---------------------------------------------------------------------------------------

GROUPS = 8


def changes_of(*puts: tuple[str, Key, bytes]) -> Changes:
    changes = Changes()
    for table, key, row in puts:
        changes.put(table, key, row)
    return changes


def rows_of(store: Store) -> dict[str, list[tuple[Key, bytes]]]:
    return {table: rows for table in TABLES if (rows := list(store.load(table)))}


def filled(folder: Path) -> Path:
    with Store.open(folder, "process") as store:
        store.commit(changes_of(*(("queue", n, bytes(500)) for n in range(1_000))))
    return folder / DATABASE


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a killed process leaves it, with all of its groups in the write-ahead log."""
    folder = tmp_path_factory.mktemp("crashed")
    with Store.open(folder / "live", "process") as store:
        for n in range(1, GROUPS + 1):
            store.commit(changes_of(("queue", n, bytes(900)), ("retained", "last", b"%d" % n)))
        shutil.copytree(folder / "live", folder / "kept")
    (folder / "kept" / f"{DATABASE}-shm").unlink()
    return folder / "kept"


class Copies:
    """Makes copies of a folder to damage; `keep` cuts or changes the log."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self._whole = whole
        self._folder = folder
        self._numbers = itertools.count()

    def with_log(self, log: bytes | None) -> Path:
        folder = self._folder / str(next(self._numbers))
        shutil.copytree(self._whole, folder)
        wal = folder / f"{DATABASE}-wal"
        wal.unlink()
        if log is not None:
            wal.write_bytes(log)
        return folder

    @property
    def log(self) -> bytes:
        return (self._whole / f"{DATABASE}-wal").read_bytes()


@pytest.fixture
def copies(crashed: Path, tmp_path: Path) -> Copies:
    return Copies(crashed, tmp_path)


def groups_of(store: Store) -> int:
    """How many groups are there; they are there whole."""
    rows = rows_of(store)
    last = len(rows.get("queue", []))
    assert rows.get("retained") == ([("last", b"%d" % last)] if last else None)
    assert store.mark.number == last
    return last


def kept_groups(folder: Path) -> int:
    """How many groups a folder still has. That some are missing is told, and counted, or none is.

    A start that is refused leaves everything as it was.
    """
    before = {file.name: file.read_bytes() for file in folder.iterdir() if "db" in file.name}
    refusal = ""
    try:
        Store.open(folder, "process").close()
    except LossError as error:
        refusal = str(error)
    lost = 0
    if refusal:
        found = re.fullmatch(r".* has lost (\d+) acknowledged groups .*--accept-loss`", refusal)
        assert found is not None, refusal
        lost = int(found.group(1))
        for name, data in before.items():
            assert (folder / name).read_bytes() == data
    with Store.open(folder, "process", accept_loss=True) as store:
        kept = groups_of(store)
        assert (store.mark.losses, store.mark.groups_lost) == (int(lost > 0), lost)
    assert kept + lost == GROUPS
    with Store.open(folder, "process") as store:  # it was accepted once and for all
        assert store.mark.groups_lost == lost
    return kept


def test_a_log_cut_anywhere_holds_whole_groups_and_the_loss_is_told(copies: Copies) -> None:
    log = copies.log
    frame, header = 4096 + 24, 32
    ends = [header + frame * n for n in range((len(log) - header) // frame + 1)]
    assert ends[-1] == len(log)
    torn = [end - 1_021 for end in ends[1::4]]
    kept = {kept_groups(copies.with_log(log[:size])) for size in [0, 7, *ends, *torn]}
    assert kept == set(range(GROUPS + 1))
    assert kept_groups(copies.with_log(None)) == 0


def flipped(log: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(log))
    return log[:at] + bytes([log[at] ^ 1 << chance.randrange(8)]) + log[at + 1 :]


def check_flips(copies: Copies, times: int) -> None:
    chance = random.Random(7)
    kept = [kept_groups(copies.with_log(flipped(copies.log, chance))) for _ in range(times)]
    assert min(kept) < GROUPS // 2 < max(kept)


def test_a_log_with_a_flipped_bit_is_told_of(copies: Copies) -> None:
    check_flips(copies, 30)


@pytest.mark.soak
def test_a_log_with_a_flipped_bit_is_told_of_at_length(copies: Copies) -> None:
    check_flips(copies, 20_000)


def test_what_was_not_told_to_be_lost_is_committed_on_top(copies: Copies) -> None:
    folder = copies.with_log(copies.log[: len(copies.log) // 2])
    with Store.open(folder, "process", accept_loss=True) as store:
        kept = groups_of(store)
        store.commit(changes_of(("queue", kept + 1, b""), ("retained", "last", b"%d" % (kept + 1))))
    with Store.open(folder, "process") as store:
        assert groups_of(store) == kept + 1
        assert store.mark.groups_lost == GROUPS - kept


def test_an_old_database_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Store.open(folder) as store:
        store.commit(changes_of(("queue", 1, b"")))
    shutil.copytree(folder, tmp_path / "backup")
    with Store.open(folder) as store:
        store.commit(changes_of(("queue", 2, b"")))
        store.commit(changes_of(("queue", 3, b"")))
    shutil.copy(tmp_path / "backup" / DATABASE, folder / DATABASE)
    with pytest.raises(LossError, match=r"lost 2 .* ends with group 1 of .* but group 3 was"):
        Store.open(folder)
    with Store.open(tmp_path / "backup") as store:  # the whole folder is of one moment
        assert rows_of(store) == {"queue": [(1, b"")]}


def test_a_database_that_is_gone_is_missed(tmp_path: Path) -> None:
    filled(tmp_path).unlink()
    with pytest.raises(LossError, match="lost 1 acknowledged groups of changes: it has no groups"):
        Store.open(tmp_path)
    assert not (tmp_path / DATABASE).exists()
    with Store.open(tmp_path, accept_loss=True) as store:
        assert rows_of(store) == {}
        assert store.mark.groups_lost == 1


def test_a_database_of_another_history_is_told_of(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    filled(tmp_path / "other")
    shutil.copy(tmp_path / "one" / DATABASE, tmp_path / "other" / DATABASE)
    with pytest.raises(LossError, match="are not of one history"):
        Store.open(tmp_path / "other")


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"x" * 8192)])
def test_a_record_that_is_gone_or_damaged_is_told_of(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    filled(tmp_path)
    spoil(tmp_path / FILE_NAME)
    with pytest.raises(LossError, match=r"rove\.commits is (missing|damaged).*is unknown; "):
        Store.open(tmp_path)
    with Store.open(tmp_path, accept_loss=True) as store:
        assert store.mark.losses == 1
    Store.open(tmp_path).close()


def test_a_database_from_before_there_were_records_is_taken_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = filled(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    with contextlib.closing(sqlite3.connect(file)) as old:
        old.execute("DROP TABLE last_commit")
    with Store.open(tmp_path) as store:
        assert sum(1 for _ in store.load("queue")) == 1_000
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} is of a Rove that did not record its commits; now they are"
    ]
    caplog.clear()
    Store.open(tmp_path).close()
    assert caplog.records == []


def test_a_restart_of_the_machine_may_take_what_was_never_flushed(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copies.with_log(copies.log[: len(copies.log) // 2])
    with pytest.raises(LossError):
        Store.open(folder, "process")
    monkeypatch.setattr(commit_record, "boot_id", lambda: b"another start...")
    with Store.open(folder, "process") as store:
        assert store.mark.groups_lost > 0
    assert "acknowledged groups of changes" in caplog.text
