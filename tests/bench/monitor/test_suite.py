"""The bench of the monitor measures what it says."""

import msgspec
import pytest

from rove.bench.monitor import suite as monitor_bench
from rove.bench.monitor.suite import QUICK, SUITE


@pytest.mark.soak
def test_size_stream_and_pages_in_small() -> None:
    options = msgspec.structs.replace(QUICK, parts=("size", "stream", "pages"))
    told: list[str] = []
    measures = {measure.name: measure for measure in SUITE.run(options, told.append)}
    assert list(measures) == [
        "monitor.size",
        "monitor.stream.60",
        "monitor.stream.60.messages",
        "monitor.stream.60.areas",
        "monitor.stream.60.areas.messages",
        "monitor.stream.60.speed",
        "monitor.pages.3.broker",
        "monitor.pages.3.monitor",
    ]
    assert measures["monitor.size"].reached
    assert 0 < measures["monitor.stream.60"].value < 100
    assert measures["monitor.stream.60.messages"].value < 20
    assert measures["monitor.pages.3.monitor"].value > 0
    assert told[0] == "size"


def test_without_a_browser_its_parts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_bench, "_executable", lambda: None)
    told: list[str] = []
    with monitor_bench._browser(told.append) as browser:
        assert browser is None
    assert "no Chromium" in told[0]
