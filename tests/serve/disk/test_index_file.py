"""The saved index: there after a restart, gone without harm."""

from pathlib import Path

import pytest

from rove.serve.disk.index_file import NAME, IndexFile


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert IndexFile(tmp_path).load() is None


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    IndexFile(tmp_path).save(b"one")
    IndexFile(tmp_path).save(b"another")
    loaded = IndexFile(tmp_path).load()
    assert loaded is not None
    assert bytes(loaded) == b"another"
    assert [file.name for file in tmp_path.iterdir()] == [NAME]


def test_what_is_loaded_can_be_written_to_without_changing_the_file(tmp_path: Path) -> None:
    IndexFile(tmp_path).save(b"one")
    loaded = IndexFile(tmp_path).load()
    assert loaded is not None
    loaded[0] = 0
    assert (tmp_path / NAME).read_bytes() == b"one"


def test_an_empty_file_is_none(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert IndexFile(tmp_path).load() is None


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    file = IndexFile(tmp_path)
    file.save(b"one")
    with pytest.raises(TypeError):
        file.save(None)  # type: ignore[arg-type]
    loaded = file.load()
    assert loaded is not None
    assert bytes(loaded) == b"one"
