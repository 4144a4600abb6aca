"""What was committed is there: after kill -9, a full disk, a damaged log; and errors say so."""

import contextlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.broker.storage.journal import INTEGER_TABLES, TABLES, Changes, Key
from rove.broker.storage.records import LogRow, encoded
from rove.errors import RoveError
from rove.serve.disk import commit_record
from rove.serve.disk import store as store_module
from rove.serve.disk.data_folder import FILE_NAME, StoreError
from rove.serve.disk.store import Durability, Store, Writer
from tests.effort import PATIENCE_S, examples, is_soak
from tests.waiting import eventually

DURABILITIES: tuple[Durability, ...] = ("full", "process", "none")


def changes_of(*puts: tuple[str, Key, bytes]) -> Changes:
    changes = Changes()
    for table, key, row in puts:
        changes.put(table, key, row)
    return changes


def rows_of(store: Store) -> dict[str, list[tuple[Key, bytes]]]:
    return {table: rows for table in TABLES if (rows := list(store.load(table)))}


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# --- a store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
def test_rows_come_in_the_order_of_their_keys(tmp_path: Path, durability: Durability) -> None:
    with Store.open(tmp_path, durability) as store:
        numbers = [5, 2**62, -3, 0, 70_000]
        texts = ["b", "a/ü", "", "a\x00b", "Z", "\U0001f600", "\uffff"]
        changes = changes_of(*(("queue", number, b"%d" % number) for number in numbers))
        changes.merge(changes_of(*(("retained", text, text.encode()) for text in texts)))
        store.commit(changes)
        assert list(store.load("queue")) == [(n, b"%d" % n) for n in sorted(numbers)]
        assert list(store.load("retained")) == [(text, text.encode()) for text in sorted(texts)]


@pytest.mark.parametrize("durability", ["full", "process"])
def test_what_was_committed_is_there_after_closing(tmp_path: Path, durability: Durability) -> None:
    folder = tmp_path / "made" / "on the way"
    with Store.open(folder, durability) as store:
        store.commit(changes_of(("retained", "a", b"1"), ("queue", 1, b"")))
    with Store.open(folder, durability) as store:
        assert rows_of(store) == {"retained": [("a", b"1")], "queue": [(1, b"")]}


def test_a_store_in_memory_leaves_no_file(tmp_path: Path) -> None:
    with Store.open(tmp_path, "none") as store:
        store.commit(changes_of(("retained", "a", b"1")))
        assert rows_of(store) == {"retained": [("a", b"1")]}
        assert not (tmp_path / FILE_NAME).exists()


def test_more_rows_than_a_statement_takes_are_one_transaction(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.commit(changes_of(*(("queue", n, b"x") for n in range(4_500))))
        assert sum(1 for _ in store.load("queue")) == 4_500
        changes = Changes()
        for n in range(4_499):
            changes.delete("queue", n)
        store.commit(changes)
        assert list(store.load("queue")) == [(4_499, b"x")]


def test_a_commit_that_fails_changes_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.commit(changes_of(("queue", 1, b"kept")))
        bad = changes_of(("queue", 1, b"never"), ("retained", "a", b"never"), ("log", 2**70, b""))
        with pytest.raises(OverflowError):
            store.commit(bad)
        with pytest.raises(StoreError, match="datatype mismatch"):
            store.commit(changes_of(("queue", 2, b"never"), ("log", "no number", b"")))
        assert rows_of(store) == {"queue": [(1, b"kept")]}
        store.commit(changes_of(("queue", 2, b"next")))
        assert rows_of(store) == {"queue": [(1, b"kept"), (2, b"next")]}


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_log_comes_in_groups_within_limits(tmp_path: Path, durability: Durability) -> None:
    rows = [(n, bytes([n]) * 100) for n in range(1, 11)]
    with Store.open(tmp_path, durability) as store:
        assert store.log_above(0, rows_max=5, bytes_max=1000) == ([], False)
        for begin in range(0, 10, 2):
            store.commit(changes_of(*(("log", *row) for row in rows[begin : begin + 2])))
        assert store.log_above(0, rows_max=10, bytes_max=10_000) == (rows, False)
        assert store.log_above(0, rows_max=5, bytes_max=10_000) == (rows[:4], True)
        assert store.log_above(2, rows_max=10, bytes_max=650) == (rows[2:8], True)
        assert store.log_above(2, rows_max=1, bytes_max=1) == (rows[2:4], True)
        assert store.log_above(8, rows_max=1, bytes_max=1) == (rows[8:], False)
        assert store.log_above(3, rows_max=9, bytes_max=1_000) == (rows[3:], False)
        store.drop_log(5)  # in the middle of a group, which stays
        assert store.log_above(0, rows_max=10, bytes_max=10_000) == (rows[4:], False)
        store.drop_log(10)
        assert rows_of(store) == {}


def test_a_large_group_of_the_log_is_several_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOG_GROUP_BYTES", 250)
    rows = [(n, bytes(100)) for n in range(1, 11)]
    with Store.open(tmp_path, "process") as store:
        store.commit(changes_of(*(("log", *row) for row in rows)))
        assert [key for key, _ in store.load("log")] == [3, 6, 9, 10]
        assert store.log_above(0, rows_max=10, bytes_max=10_000) == (rows, False)


def test_rows_of_the_log_that_were_committed_twice_come_once(tmp_path: Path) -> None:
    with Store.open(tmp_path, "process") as store:
        store.commit(changes_of(("log", 1, b"1"), ("log", 2, b"2")))
        # It reached the disk and was reported as failed, so it comes again with what came later.
        store.commit(changes_of(("log", 1, b"1"), ("log", 2, b"2"), ("log", 3, b"3")))
        assert store.log_above(0, rows_max=9, bytes_max=999).rows == [
            (1, b"1"),
            (2, b"2"),
            (3, b"3"),
        ]


def test_a_row_of_the_log_can_be_taken_back(tmp_path: Path) -> None:
    with Store.open(tmp_path, "process") as store:
        store.commit(changes_of(("log", 1, b"1"), ("log", 2, b"2"), ("log", 3, b"3")))
        for gone, left in ((3, [1, 2]), (9, [1, 2]), (1, [2]), (2, [])):
            changes = Changes()
            changes.delete("log", gone)
            store.commit(changes)
            found = store.log_above(0, rows_max=9, bytes_max=999).rows
            assert [position for position, _ in found] == left


def test_the_log_of_an_earlier_rove_is_read_and_the_file_is_ours_from_then_on(
    tmp_path: Path,
) -> None:
    Store.open(tmp_path, "process").close()
    file = tmp_path / FILE_NAME
    with contextlib.closing(sqlite3.connect(file)) as connection:
        row = encoded(LogRow("publications", "", 1.0))
        connection.execute("INSERT INTO log VALUES (7, ?)", (row,))
        connection.execute("DELETE FROM schema")
        connection.execute("INSERT INTO schema VALUES (1)")
        connection.commit()
    with Store.open(tmp_path, "process") as store:
        store.commit(changes_of(("log", 8, b"8")))
        assert store.log_above(0, rows_max=9, bytes_max=999).rows == [(7, row), (8, b"8")]
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT max(version) FROM schema").fetchall() == [(2,)]


def test_rows_can_be_read_while_others_are_committed(tmp_path: Path) -> None:
    with Store.open(tmp_path, "process") as store:
        store.commit(changes_of(("log", 1, b"1"), ("queue", 1, b"1"), ("queue", 2, b"2")))
        rows = store.load("queue")
        assert next(rows) == (1, b"1")
        store.commit(changes_of(("log", 2, b"2")))
        assert store.log_above(1, rows_max=9, bytes_max=9).rows == [(2, b"2")]
        assert list(rows) == [(2, b"2")]


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
texts = st.text(max_size=5) | st.sampled_from("ab")
keys = {table: numbers if table in INTEGER_TABLES else texts for table in TABLES}
PLAIN_TABLES = tuple(table for table in TABLES if table != "log")
one_change = st.sampled_from(PLAIN_TABLES).flatmap(
    lambda table: st.tuples(st.just(table), keys[table], st.none() | st.binary(max_size=9))
)


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.lists(one_change, max_size=8)), max_size=8))
def test_a_store_is_a_dictionary(
    turns: list[tuple[bool, list[tuple[str, Key, bytes | None]]]],
) -> None:
    model: dict[str, dict[Key, bytes]] = {table: {} for table in PLAIN_TABLES}
    with tempfile.TemporaryDirectory() as folder:
        with Store.open(Path(folder), "process") as store:
            waiting = Changes()
            for commits, turn in turns:
                changes = Changes()
                for table, key, row in turn:
                    if row is None:
                        changes.delete(table, key)
                        model[table].pop(key, None)
                    else:
                        changes.put(table, key, row)
                        model[table][key] = row
                waiting.merge(changes)
                if commits:
                    store.commit(waiting)
                    waiting = Changes()
            store.commit(waiting)
        with Store.open(Path(folder), "process") as store:
            for table in PLAIN_TABLES:
                assert list(store.load(table)) == sorted(model[table].items())


# --- what cannot be used ------------------------------------------------------------------------


def test_a_second_store_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path), pytest.raises(RoveError) as refusal:
        Store.open(tmp_path)
    assert str(refusal.value) == (
        f"the data folder {tmp_path} is in use by process {os.getpid()}; "
        "stop that one or name another folder"
    )
    Store.open(tmp_path).close()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from rove.serve.disk.store import Store
        store = Store.open(Path(sys.argv[1]), "none")
        print("open", flush=True)
        time.sleep(60)
    """
    with python(code, tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        for durability in DURABILITIES:
            with pytest.raises(StoreError, match=f"in use by process {other.pid};"):
                Store.open(tmp_path, durability)
        other.kill()
    Store.open(tmp_path).close()


def test_a_holder_that_has_not_said_its_name_yet(tmp_path: Path) -> None:
    with Store.open(tmp_path):
        (tmp_path / "lock.pid").write_text("")
        with pytest.raises(StoreError, match="in use by another process;"):
            Store.open(tmp_path)


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no durability 'fsync'; choose from full, process, none"):
        Store.open(tmp_path, "fsync")  # type: ignore[arg-type]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("UPDATE schema SET version = 3")
    connection.close()
    with pytest.raises(StoreError, match=r"newer Rove: .* version 3, this Rove knows up to 2;"):
        Store.open(tmp_path)


def test_a_file_without_the_newest_tables_is_given_them(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.commit(changes_of(("sessions", "ana", b"1")))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as old:
        old.execute("DROP TABLE feeds")
    with Store.open(tmp_path) as store:
        store.commit(changes_of(("feeds", "spark", b"2")))
        assert rows_of(store) == {"sessions": [("ana", b"1")], "feeds": [("spark", b"2")]}


def test_the_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StoreError, match="data of another program"):
        Store.open(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(StoreError, match=r"x is a file, but a folder is needed there"):
        Store.open(tmp_path / "x")


def filled(folder: Path) -> Path:
    with Store.open(folder) as store:
        store.commit(changes_of(*(("queue", n, bytes(500)) for n in range(1_000))))
    return folder / FILE_NAME


def test_an_empty_file_is_damage(tmp_path: Path) -> None:
    filled(tmp_path).write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged: it is empty; restore it"):
        Store.open(tmp_path)


def test_a_file_of_something_else_is_damage(tmp_path: Path) -> None:
    filled(tmp_path).write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreError, match="is damaged: file is not a database; restore it"):
        Store.open(tmp_path)


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.99])
def test_a_file_cut_short_is_damage(tmp_path: Path, kept: float) -> None:
    file = filled(tmp_path)
    os.truncate(file, int(file.stat().st_size * kept))
    with pytest.raises(StoreError, match=r"is damaged: .*; restore it"), Store.open(tmp_path) as it:
        list(it.load("queue"))


def test_a_file_with_spoilt_pages_is_damage(tmp_path: Path) -> None:
    file = filled(tmp_path)
    spoilt = bytearray(file.read_bytes())
    spoilt[20_000:60_000] = os.urandom(40_000)
    file.write_bytes(spoilt)
    with Store.open(tmp_path) as store:
        with pytest.raises(StoreError, match=r"is damaged: .*; restore it"):
            list(store.load("queue"))
        with pytest.raises(StoreError, match=r"is damaged: .*; restore it"):
            store.commit(changes_of(*(("queue", n, b"x") for n in range(1_000))))


def test_a_start_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "rove.new").write_bytes(b"half a file")
    (tmp_path / "rove.new-journal").write_bytes(b"half a journal")
    (tmp_path / ".index.rove.0a1b2c3d.unfinished").write_bytes(b"half an index")
    with Store.open(tmp_path) as store:
        assert rows_of(store) == {}
    assert not list(tmp_path.glob("rove.new*"))
    assert not list(tmp_path.glob("*.unfinished"))


# --- the writer -----------------------------------------------------------------------------


class SlowStore(Store):
    """A store whose commits wait to be let through, and are counted."""

    commits = 0
    allowed = threading.Semaphore(0)

    def commit(self, changes: Changes) -> None:
        self.allowed.acquire()
        self.commits += 1
        super().commit(changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path, "process") as store:
        yield store


def test_done_is_called_in_order_from_another_thread_when_it_can_be_read(store: Store) -> None:
    heard: list[tuple[int, str, bool]] = []
    writer = Writer(store)

    def listener(number: int) -> Callable[[BaseException | None], None]:
        def done(error: BaseException | None) -> None:
            assert error is None
            is_there = bool(store.log_above(number - 1, rows_max=1, bytes_max=1).rows)
            heard.append((number, threading.current_thread().name, is_there))

        return done

    for number in range(500):
        writer.submit(changes_of(("log", number, b"x" * 50)), listener(number))
    assert writer.close(PATIENCE_S)
    assert heard == [(number, "rove-store", True) for number in range(500)]
    assert writer.backlog_bytes == 0
    assert writer.health is None


def test_what_comes_during_a_commit_is_one_commit(tmp_path: Path) -> None:
    heard: list[int] = []
    with SlowStore.open(tmp_path, "none") as store:
        writer = Writer(store)
        for number in range(100):
            last = ("retained", "last", b"%d" % number)
            changes = changes_of(("queue", number, bytes(100)), last)
            changes.drop_new("queue", number - 1)
            writer.submit(changes, lambda error, number=number: heard.append(number))  # type: ignore[misc]
            if number == 0:
                eventually(lambda: not writer._waiting)
        assert heard == []
        assert writer.backlog_bytes > 100 * 100
        store.allowed.release(2)
        assert writer.close(PATIENCE_S)
        assert heard == list(range(100))
        assert store.commits == 2
        assert writer.backlog_bytes == 0
        assert rows_of(store) == {"queue": [(99, bytes(100))], "retained": [("last", b"99")]}


def test_nothing_to_commit_is_told_after_what_came_before(store: Store) -> None:
    heard: list[str] = []
    writer = Writer(store)
    writer.submit(changes_of(("queue", 1, b"")), lambda error: heard.append("changes"))
    writer.submit(Changes(), lambda error: heard.append("nothing"))
    assert writer.close(PATIENCE_S)
    assert heard == ["changes", "nothing"]


def test_a_listener_that_fails_stops_nobody(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    writer = Writer(store)

    def fail(error: BaseException | None) -> None:
        raise RuntimeError("the loop is closed")

    writer.submit(changes_of(("queue", 1, b"")), fail)
    writer.submit(changes_of(("queue", 2, b"")), lambda error: heard.append("still"))
    assert writer.close(PATIENCE_S)
    assert heard == ["still"]
    assert "the loop is closed" in caplog.text


def test_a_closed_writer_takes_nothing(store: Store) -> None:
    writer = Writer(store)
    assert writer.close(PATIENCE_S)
    with pytest.raises(StoreError, match="is closed"):
        writer.submit(Changes(), lambda error: None)


def set_pages_max(store: Store, pages: int) -> None:
    """As if the disk had room for so many pages."""
    with store._commit_lock:
        store._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()


def test_what_could_not_be_recorded_is_not_acknowledged(store: Store) -> None:
    heard: list[BaseException | None] = []
    broken = store._commits
    assert broken is not None
    handle, broken._file = broken._file, os.open(os.devnull, os.O_RDONLY)
    writer = Writer(store, retry_delay_s=0.01)
    writer.submit(changes_of(("queue", 1, b"")), heard.append)
    eventually(lambda: writer.health)
    assert heard == []
    os.close(broken._file)
    broken._file = handle
    assert writer.close(20)
    assert heard == [None]
    told = commit_record.recorded(store.folder)
    assert told is not None
    assert told.mark == store.mark


def test_a_full_disk_loses_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    set_pages_max(store, 40)
    heard: list[int] = []
    writer = Writer(store, retry_delay_s=0.01)
    numbers = itertools.count()

    def submit() -> None:
        number = next(numbers)
        row = bytes([number % 256]) * 10_000
        writer.submit(changes_of(("queue", number, row)), lambda error: heard.append(number))

    while writer.health is None:
        submit()
        time.sleep(0.001)
    heard_before, submitted_before = list(heard), next(numbers)
    assert heard_before == list(range(len(heard_before)))
    assert len(heard_before) < submitted_before
    assert writer.health == (
        f"cannot write to {store.folder / FILE_NAME}: the disk is full; make room on it"
    )
    for _ in range(5):
        submit()
        time.sleep(0.02)
    assert heard == heard_before
    assert writer.backlog_bytes > 50_000
    set_pages_max(store, 10_000)
    eventually(lambda: writer.backlog_bytes == 0 and writer.health is None)
    assert writer.close(PATIENCE_S)
    expected = [n for n in range(submitted_before + 6) if n != submitted_before]
    assert heard == expected
    rows = [(n, bytes([n % 256]) * 10_000) for n in expected]
    assert list(store.load("queue")) == rows
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_closing_with_a_full_disk_says_what_was_not_kept(store: Store) -> None:
    set_pages_max(store, 1)
    heard: list[BaseException | None] = []
    writer = Writer(store, retry_delay_s=0.01)
    writer.submit(changes_of(("queue", 1, bytes(100_000))), heard.append)
    assert not writer.close(0.05)
    [error] = heard
    assert isinstance(error, StoreError)
    assert "stopped before it was kept: cannot write to" in str(error)
    assert "the disk is full" in str(error)


def test_room_that_comes_while_closing_is_used(store: Store) -> None:
    set_pages_max(store, 1)
    heard: list[BaseException | None] = []
    writer = Writer(store, retry_delay_s=0.01)
    writer.submit(changes_of(("queue", 1, bytes(100_000))), heard.append)
    eventually(lambda: writer.health)
    threading.Timer(0.1, set_pages_max, (store, 10_000)).start()
    assert writer.close(PATIENCE_S)
    assert heard == [None]


def test_the_log_does_not_grow_without_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CHECKPOINT_BYTES", 500_000)
    writer = Writer(store)
    for turn in range(200):
        heard = threading.Event()
        numbers = range(100 * turn, 100 * turn + 100)
        puts = [("queue", number % 3_000, os.urandom(1_000)) for number in numbers]
        writer.submit(changes_of(*puts), lambda error, heard=heard: heard.set())  # type: ignore[misc]
        assert heard.wait(20)
    assert writer.close(PATIENCE_S)
    assert Path(f"{store.folder / FILE_NAME}-wal").stat().st_size < 10_000_000
    assert sum(1 for _ in store.load("queue")) == 3_000


# --- other processes, killed and starved --------------------------------------------------------

KILLED = """
    import sys, threading
    from pathlib import Path
    from rove.broker.storage.journal import Changes
    from rove.serve.disk import store as store_module
    from rove.serve.disk.store import Store, Writer

    store_module.CHECKPOINT_BYTES = 200_000  # so that it is also killed during checkpoints
    store = Store.open(Path(sys.argv[1]))
    last = int(dict(store.load("retained")).get("last", b"0"))
    print(last, flush=True)
    writer = Writer(store)
    room = threading.Semaphore(20)

    def done(number):
        def tell(error):
            assert error is None
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
            room.release()
        return tell

    while True:
        room.acquire()
        last += 1
        changes = Changes()
        changes.put("publications", last, b"%d " % last * 100)
        changes.put("queue", last, b"%d" % last)
        changes.drop_new("queue", last - 3)
        changes.drop_new("publications", last - 40)
        changes.put("retained", "last", b"%d" % last)
        writer.submit(changes, done(last))
"""


def test_killed_at_any_moment_it_has_kept_what_it_said(tmp_path: Path) -> None:
    moments = random.Random(1)
    last = 0
    for _ in range(20 if is_soak() else 5):
        with python(KILLED, tmp_path) as child:
            assert child.stdout is not None
            assert int(child.stdout.readline()) >= last
            for _ in range(moments.randrange(100)):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            lines = child.stdout.read().split("\n")
        reported = int(lines[-2]) if len(lines) > 1 else last
        with Store.open(tmp_path) as store:
            rows = rows_of(store)
        last = int(dict(rows["retained"])["last"]) if rows else 0
        assert last >= reported
        kept = [(n, b"%d " % n * 100) for n in range(max(1, last - 39), last + 1)]
        assert rows.get("publications", []) == kept
        assert rows.get("queue", []) == [(n, b"%d" % n) for n in range(max(1, last - 2), last + 1)]
    assert last > 100


STARVED = """
    import resource, sys, time
    from pathlib import Path
    from rove.broker.storage.journal import Changes
    from rove.serve.disk.store import Store, Writer

    store = Store.open(Path(sys.argv[1]))
    heard = []
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    writer = Writer(store, retry_delay_s=0.02)
    number = 0
    while writer.health is None or number % 50:
        changes = Changes()
        changes.put("queue", number, bytes(5_000))
        writer.submit(changes, lambda error, number=number: heard.append(number))
        number += 1
        time.sleep(0.001)
    assert "cannot write to" in writer.health, writer.health
    assert heard == list(range(len(heard))) and len(heard) < number
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert writer.close(float(sys.argv[2]))
    assert heard == list(range(number))
    print(number)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes there")
def test_a_disk_that_takes_no_more_loses_nothing(tmp_path: Path) -> None:
    with python(STARVED, tmp_path, PATIENCE_S) as child:
        assert child.stdout is not None
        number = int(child.stdout.read() or 0)
    assert number >= 50
    with Store.open(tmp_path) as store:
        assert list(store.load("queue")) == [(n, bytes(5_000)) for n in range(number)]
