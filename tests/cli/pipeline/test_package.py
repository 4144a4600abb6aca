"""`rove pipeline package` writes both files and says how to use them."""

from pathlib import Path

import pytest

from rove.cli import main
from rove.pipeline.spark import executors


def test_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executors, "kernel_files", dict)  # compiling takes long
    assert main(["pipeline", "package", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    (wheel,) = tmp_path.glob("rove-*.whl")
    assert f"pip install '{wheel}[spark]'" in told
    assert f"spark-submit --master URL --archives {tmp_path / 'rove.zip'}#rove JOB.py" in told
    assert (tmp_path / "rove.zip").exists()
