"""A commit is whole or absent, has its number alone, and the state is what all of them say."""

import threading
from pathlib import Path
from typing import Any

import pytest

from rove.pipeline import commits
from rove.pipeline.commits import (
    SNAPSHOT_EVERY,
    Change,
    FileEntry,
    Log,
    ManifestError,
    Skipped,
    State,
)


def entry(path: str, rows: int = 1) -> FileEntry:
    return FileEntry(path, "data", rows, 100, "2026-11-16", "33TWL77", box=(1.0, 2.0, 3.0, 4.0))


def always(state: State) -> bool:
    return True


def never(state: State) -> bool:
    return False


def test_a_new_table_has_nothing(tmp_path: Path) -> None:
    assert Log(tmp_path / "air").state() == State()


def test_changes_add_up(tmp_path: Path) -> None:
    log = Log(tmp_path)
    skipped = (Skipped("bad.parquet", 1, 9, 0, 9, "torn"),)
    first = Change(
        position=7,
        add=(entry("a"), entry("b")),
        skipped=skipped,
        sources={"x.csv": "1"},
        counts={"in": 3, "out": 2, "late": 1},
        schema={"channel": "air"},
        newest_at_us=50,
    )
    log.commit(State(), first, never)
    second = Change(position=9, add=(entry("c"),), remove=("a",), counts={"in": 1, "out": 1})
    given = log.commit(log.state(), second, never)
    assert log.state() == given
    assert list(given.files) == ["b", "c"]
    assert given.files["b"] == entry("b")
    assert (given.version, given.position, given.newest_at_us) == (1, 9, 50)
    assert given.skipped == skipped
    assert given.counts == {"in": 4, "out": 3, "late": 1}
    assert (given.sources, given.schema) == ({"x.csv": "1"}, {"channel": "air"})
    assert log.commit(given, Change(skipped=()), never).skipped == ()


def test_states_are_told_whole_every_so_often(tmp_path: Path) -> None:
    log = Log(tmp_path)
    state = State()
    for number in range(2 * SNAPSHOT_EVERY + 3):
        state = log.commit(state, Change(position=number, add=(entry(str(number)),)), never)
    for version in range(SNAPSHOT_EVERY):  # nobody needs these any more
        log.path_of(version).unlink()
    assert log.state() == state
    assert len(state.files) == 2 * SNAPSHOT_EVERY + 3


def test_who_comes_second_builds_upon_the_first_if_that_fits(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(State(), Change(add=(entry("a"),)), never)
    after = log.commit(State(), Change(add=(entry("b"),)), always)
    assert (after.version, list(after.files)) == (1, ["a", "b"])
    with pytest.raises(ManifestError, match=r"somebody else has changed .*; run it again"):
        log.commit(State(), Change(add=(entry("c"),)), never)
    assert list(log.state().files) == ["a", "b"]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def write(writer: int) -> None:
        for number in range(15):
            log.commit(log.state(), Change(add=(entry(f"{writer}-{number}"),)), always)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.state().files) == 60
    assert log.versions() == list(range(60))
    assert not list(log.folder.glob(".*"))


def test_a_manifest_that_is_torn_or_missing_is_named(tmp_path: Path) -> None:
    log = Log(tmp_path)
    state = State()
    for _ in range(3):
        state = log.commit(state, Change(), never)
    log.path_of(1).unlink()
    with pytest.raises(ManifestError, match=r"0000000001\.json is missing"):
        log.state()
    log.path_of(2).write_bytes(b'{"change":')
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*0000000002\.json"):
        log.state()


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    log = Log(tmp_path)
    monkeypatch.setattr(commits, "sync", full)
    with pytest.raises(ManifestError, match=r"cannot write the manifest .*: No space left"):
        log.commit(State(), Change(), never)
    assert list(log.folder.iterdir()) == []
    assert log.state() == State()
