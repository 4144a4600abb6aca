"""Flushing, and errors of the disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from rove.base.files import sync
from rove.errors import RoveError
from rove.pipeline.disk import told


class DiskError(RoveError):
    pass


def test_files_and_folders_are_flushed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sync(tmp_path / "file")
    sync(tmp_path)


def test_an_error_is_one_line_of_the_named_kind(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskError, match=r"^cannot flush it: No such file or directory$"),
        told("cannot flush it", DiskError),
    ):
        sync(tmp_path / "none")


def test_a_folder_of_a_process_is_gone_with_it() -> None:
    code = "from rove.pipeline.disk import *; print({folder_of_process('x') for _ in 'ab'}.pop())"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    folder = Path(ran.stdout.strip())
    assert folder.name.startswith("rove-x-")
    assert not folder.exists()
