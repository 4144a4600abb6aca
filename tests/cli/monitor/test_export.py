"""`rove monitor export` as somebody calls it."""

from pathlib import Path

import pytest

from rove.cli import main
from rove.metrics.database import Database, Reading, RunRecord
from rove.metrics.world_readings import world_labels


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A database with one run."""
    path = str(tmp_path / "metrics.sqlite")
    labels = world_labels("object", "dense/1", "dense")
    with Database(path) as database:
        database.put_run(RunRecord("dense/1", "dense", "High density", 1, 1e9, 1e9 + 10))
        database.put_readings(
            [Reading("rove_world_subscriptions", labels, 1e9 + n, n) for n in range(10)]
        )
    return path


def test_a_report_is_written_where_it_is_wanted(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    code = main(["monitor", "export", "dense/1", "--database", place, "--out", str(out)])
    assert code == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    assert "High density" in out.read_text(encoding="utf-8")


def test_without_a_name_the_file_is_called_like_the_run(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["monitor", "export", "dense/1", "--database", place]) == 0
    assert (tmp_path / "dense-1.html").is_file()


def test_it_says_what_is_missing(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", "export", "dense/1"]) == 2
    assert "--database" in capsys.readouterr().err
    assert main(["monitor", "export", "other", "--database", place]) != 0
    assert "there is no run other" in capsys.readouterr().err
    missing = str(tmp_path / "nowhere" / "report.html")
    assert main(["monitor", "export", "last", "--database", place, "--out", missing]) != 0
    assert "cannot write" in capsys.readouterr().err
