"""What doctors found, printed."""

import json

import pytest

from rove.cli.common.findings import show
from rove.serve.doctor import DoctorFinding

FINDINGS = [
    DoctorFinding("disk", "ok", "12 GB free"),
    DoctorFinding("limits", "problem", "too few files", "raise it"),
]


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(FINDINGS, as_json=False) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       disk           12 GB free",
        "problem  limits         too few files",
        "                        → raise it",
        "",
        "1 problems, 0 warnings",
    ]


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(FINDINGS[:1], as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert [one["subject"] for one in told["findings"]] == ["disk"]
