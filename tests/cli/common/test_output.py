"""How commands write: rows, JSON, numbers with units, and the findings of a doctor."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.cli.common.output import (
    bytes_text,
    count_text,
    duration_text,
    emit_json,
    is_terminal,
    show_findings,
)
from rove.serve.doctor import DoctorFinding

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Half a surrogate pair too: JSON can spell it, no encoding can write it.
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_what_goes_out_as_one_line_comes_back(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
        patch.setattr("sys.stdout", stream)
        emit_json(value)
        stream.seek(0)
        out = stream.read()
    assert out.count("\n") == 1
    assert json.loads(out) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_lacks_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        emit_json([value])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_terminal(Terminal())
    assert not is_terminal(io.StringIO())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert is_terminal()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (0.5, "0.5"), (3, "3"), (99.94, "99.9"), (149.2, "149"), (1234567.8, "1,234,568")],
)
def test_counts(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.9, "1.0 KB"),
        (1000, "1.0 KB"),
        (1_234_567, "1.2 MB"),
        (123_456_789, "123 MB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.31, "0.3s"),
        (59, "59s"),
        (60, "1m 0s"),
        (725, "12m 5s"),
        (3600, "1h 0m"),
        (90_061, "1d 1h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


FINDINGS = [
    DoctorFinding("disk", "ok", "12 GB free"),
    DoctorFinding("limits", "problem", "too few files", "raise it"),
]


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_findings(FINDINGS, as_json=False) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       disk           12 GB free",
        "problem  limits         too few files",
        "                        → raise it",
        "",
        "1 problems, 0 warnings",
    ]


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_findings(FINDINGS[:1], as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert [one["subject"] for one in told["findings"]] == ["disk"]
