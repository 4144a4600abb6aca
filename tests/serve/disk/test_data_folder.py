"""Data folders that cannot be used, each with one line that says why; and who may read the rest."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.broker.storage.journal import Changes
from rove.serve.disk.data_folder import FILE_NAME, INDEX_NAME, IndexFile, StoreError, refusal
from rove.serve.disk.store import Store

NOBODY = 65_534


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Root may do everything: such a test then runs as somebody else."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can reach: the folders above pytest's are open to its user only."""
    with tempfile.TemporaryDirectory(prefix="rove-test-") as made:
        Path(made).chmod(0o755)
        folder = Path(made, "data")
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, NOBODY)
        yield folder
        folder.chmod(0o700)


def refused(folder: Path) -> str:
    with pytest.raises(StoreError) as error:
        Store.open(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o400, 0o500, 0o600])
def test_a_folder_without_the_rights_to_it(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with without_rights():
        told = refused(folder)
    assert told == (
        f"cannot use the data folder {folder}: the broker's user may not read and write it; "
        "give it the right to, or name another folder: `--data`, or `folder` of [data]"
    )


def test_a_folder_that_cannot_be_made(folder: Path) -> None:
    folder.chmod(0o500)
    with without_rights():
        told = refused(folder / "deeper")
    assert told.startswith(f"cannot make the data folder {folder}/deeper: Permission denied; name")


@pytest.mark.parametrize("name", [FILE_NAME, "lock", "lock.pid", "rove.commits"])
def test_a_file_without_the_rights_to_it(folder: Path, name: str) -> None:
    with without_rights():
        with Store.open(folder) as store:
            store.commit(Changes())
        (folder / name).chmod(0)
        told = refused(folder)
    assert re.match(rf"cannot (use|lock) .*{folder}.*: .*; ", told)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert refused(tmp_path / "x").startswith(f"{tmp_path}/x is a file, but a folder is needed")
    assert refused(tmp_path / "x" / "y").startswith(
        f"cannot make the data folder {tmp_path}/x/y: Not a directory; name another folder"
    )


@pytest.mark.parametrize("name", [FILE_NAME, "lock", "lock.pid", "rove.commits"])
def test_a_folder_where_a_file_should_be(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert str(tmp_path) in refused(tmp_path)


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A small disk; needs rights that not everybody has."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    if (
        sys.platform != "linux"
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    for size in ("4k", "16k", "64k"):
        with mounted(tmp_path / size, f"size={size}"):
            told = refused(tmp_path / size)
            assert "the disk is full; make room on it" in told, told


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro"):
        told = "it is on a read-only file system; name another folder"
        assert told in refused(tmp_path / "disk")
        assert told in refusal(tmp_path / "disk")
        assert "Read-only file system; name another" in refused(tmp_path / "disk" / "data")


# --- who may read it ----------------------------------------------------------------------------


def test_what_is_made_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.open(tmp_path / "data") as store:
            changes = Changes()
            changes.put("queue", 1, b"")
            store.commit(changes)
            modes = {path.name: mode_of(path) for path in store.folder.iterdir()}
    finally:
        os.umask(before)
    assert modes.keys() == {
        "rove.db", "rove.db-wal", "rove.db-shm", "rove.commits", "lock", "lock-journal",
        "lock.pid",
    }  # fmt: skip
    assert set(modes.values()) == {0o600}
    assert mode_of(tmp_path / "data") == 0o700


def test_what_was_open_before_is_closed_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Store.open(tmp_path).close()
    tmp_path.chmod(0o755)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    caplog.clear()
    Store.open(tmp_path).close()
    assert mode_of(tmp_path) == 0o700
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o600}
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"others could read what is in the data folder {tmp_path}; now")
    caplog.clear()
    Store.open(tmp_path).close()
    assert caplog.records == []


def test_a_folder_with_other_things_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch(mode=0o644)
    tmp_path.chmod(0o755)
    Store.open(tmp_path).close()
    assert mode_of(tmp_path) == 0o755
    assert mode_of(tmp_path / FILE_NAME) == 0o600
    assert mode_of(tmp_path / "thesis.tex") == 0o644


def test_others_may_pass_through_to_a_lake(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    Store.open(folder, mode=0o710).close()
    assert mode_of(folder) == 0o710
    assert mode_of(folder / FILE_NAME) == 0o600


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert IndexFile(tmp_path).load() is None


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    IndexFile(tmp_path).save(b"one")
    IndexFile(tmp_path).save(b"another")
    loaded = IndexFile(tmp_path).load()
    assert loaded is not None
    assert bytes(loaded) == b"another"
    assert [file.name for file in tmp_path.iterdir()] == [INDEX_NAME]


def test_what_is_loaded_can_be_written_to_without_changing_the_file(tmp_path: Path) -> None:
    IndexFile(tmp_path).save(b"one")
    loaded = IndexFile(tmp_path).load()
    assert loaded is not None
    loaded[0] = 0
    assert (tmp_path / INDEX_NAME).read_bytes() == b"one"


def test_an_empty_file_is_none(tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).touch()
    assert IndexFile(tmp_path).load() is None


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    file = IndexFile(tmp_path)
    file.save(b"one")
    with pytest.raises(TypeError):
        file.save(None)  # type: ignore[arg-type]
    loaded = file.load()
    assert loaded is not None
    assert bytes(loaded) == b"one"
