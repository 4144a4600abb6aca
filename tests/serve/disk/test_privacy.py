"""Who may read what the broker writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rove.serve.disk.privacy import (
    FILE_MODES,
    FOLDER_MODES,
    PASSAGE_MODES,
    make_folder,
    private_opener,
    set_mode,
)


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
