"""`rove version`, for people and for programs."""

import json
import platform

import pytest

from rove import __version__
from rove.cli import main


def test_prints_the_versions_one_to_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["rove"] == __version__
    assert platform.python_version() in lines["python"]
    assert lines["platform"] == platform.platform()


def test_prints_the_same_as_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["rove"] == __version__
    assert json.loads(out).keys() == {"rove", "python", "platform"}
