"""Files are whole, whatever happens to who writes them."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rove.base.files import (
    FILE_MODES,
    FOLDER_MODES,
    PASSAGE_MODES,
    PRIVATE,
    make_folder,
    private_opener,
    remove_unfinished,
    replacing,
    set_mode,
    write_whole,
)

OLD, NEW = b"o" * 200_000, b"n" * 300_000

WRITER = """
import os, signal, sys
from rove.base import files

moment, path = sys.argv[1:]

def end_at(owner, name, is_after):
    real = getattr(owner, name)
    def ending(*arguments):
        if is_after:
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, ending)

def parts():
    yield b"n" * 150_000
    if moment == "half written":
        os.kill(os.getpid(), signal.SIGKILL)
    yield b"n" * 150_000

if moment in ("before the flush", "after the flush"):
    end_at(files.os, "fsync", moment == "after the flush")
elif moment in ("before the rename", "after the rename"):
    end_at(files.Path, "replace", moment == "after the rename")
files.write_whole(path, parts())
"""


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("half written", OLD),
        ("before the flush", OLD),
        ("after the flush", OLD),
        ("before the rename", OLD),
        ("after the rename", NEW),
        ("never", NEW),
    ],
)
def test_who_writes_may_be_killed_at_any_moment(
    tmp_path: Path, moment: str, expected: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    ended = subprocess.run([sys.executable, "-c", WRITER, moment, str(path)], check=False)
    assert ended.returncode == (0 if moment == "never" else -signal.SIGKILL)
    assert path.read_bytes() == expected
    remove_unfinished(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_everything_is_flushed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content, then the name, then the folder; each before the next."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"to {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    write_whole(tmp_path / "file", [b"x"])
    assert done[0].endswith(".unfinished")
    assert done[1:] == ["to file", tmp_path.name]
    done.clear()
    write_whole(tmp_path / "file", [b"y"], is_flushed=False)
    assert done == ["to file"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(bytes(1 // 0))
    assert path.read_bytes() == OLD
    taken = tmp_path / "folder"
    (taken / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(taken, [b"x"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


def test_permissions_hold_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mask = os.umask(0)
    try:
        with replacing(path, mode=PRIVATE):
            assert [each.stat().st_mode & 0o777 for each in tmp_path.iterdir()] == [PRIVATE]
        os.umask(0o077)
        write_whole(tmp_path / "program", [b"#!"], mode=0o755)
        os.umask(0o022)
        write_whole(tmp_path / "usual", [b"x"])
    finally:
        os.umask(mask)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {"file": 0o600, "program": 0o755, "usual": 0o644}


def test_two_who_write_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        for _ in range(3):
            first.write(b"first ")
            second.write(b"second ")
    assert path.read_bytes() == b"first first first "  # the outer block ends last


def test_only_what_was_left_of_that_file_is_removed(tmp_path: Path) -> None:
    for name in (".1.ab.unfinished", ".12.ab.unfinished", "1", ".other"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path, "1")
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {".12.ab.unfinished", "1", ".other"}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_what_is_made_has_its_rights_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with open(tmp_path / "file", "w", opener=private_opener) as file:
            file.write("secret")
        make_folder(tmp_path / "a" / "b", FOLDER_MODES["group"])
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o600
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o750


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    make_folder(tmp_path, FOLDER_MODES["owner"])
    assert mode_of(tmp_path) == 0o711


def test_the_group_of_new_files_stays(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    folder.chmod(0o2775)
    assert set_mode(folder, FOLDER_MODES["group"])
    assert mode_of(folder) == 0o2750
    assert not set_mode(folder, FOLDER_MODES["group"])


def test_nobody_who_may_not_read_may_pass() -> None:
    for readers, mode in PASSAGE_MODES.items():
        assert mode & FOLDER_MODES[readers] == mode
        assert mode & 0o066 == 0
        assert FILE_MODES[readers] & 0o111 == 0
