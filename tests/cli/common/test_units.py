"""Numbers for people."""

import pytest

from rove.cli.common.units import bytes_text, count_text, duration_text


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
