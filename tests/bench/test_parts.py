"""Pictures have their places."""

from pathlib import Path
from typing import NamedTuple

from rove.bench.parts import picture_of, pictures_of

NAMES = {"one": "one.png", "two": "two.png"}


class Options(NamedTuple):
    plots: Path | None


def test_a_folder_is_made_when_something_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert picture_of("one", Options(folder), NAMES) == folder / "one.png"
    assert folder.is_dir()
    assert picture_of("one", Options(None), NAMES) is None


def test_only_parts_with_a_picture_are_told_of(tmp_path: Path) -> None:
    found = pictures_of(["two", "three"], Options(tmp_path), NAMES)
    assert found == [tmp_path / "two.png"]
