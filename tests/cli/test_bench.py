"""`rove bench`: a table for people, one object a line for programs."""

import json
from collections.abc import Iterator

import pytest

from rove.cli import bench, main
from rove.lab.measure import Measure


@pytest.fixture(autouse=True)
def quick_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real suite takes seconds and is run by tests/lab; here only the showing counts."""

    def suite() -> Iterator[Measure]:
        yield Measure("one", 1234.5, "texts/s", goal=">= 1,000", reached=True)
        yield Measure("other", 0.5, "texts/s", ratio=0.25, against="one")

    monkeypatch.setitem(bench._SUITES, "language", suite)


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "language"]) == 0
    out = capsys.readouterr().out
    assert "CPython" in out
    assert "✔ >= 1,000" in out
    assert "0.25×" in out


def test_programs_get_one_object_a_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["bench", "language", "--json"]) == 0
    first, second = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert first == {
        "name": "one",
        "value": 1234.5,
        "unit": "texts/s",
        "goal": ">= 1,000",
        "reached": True,
    }
    assert second["ratio"] == 0.25
    assert second["against"] == "one"


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nonsense"]) == 2
    assert "language" in capsys.readouterr().err
