"""Pictures of the bench: what was measured is in them, and of SUBLIM what it published."""

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rove.bench.policy import plots as policy_plots
from rove.bench.policy.load import PolicyOutcome
from rove.bench.policy.simulated import MODEL
from rove.errors import UsageError


def ran(seconds: float, cpu_s: float = 1.0, p99_ms: float = 5.0) -> PolicyOutcome:
    return PolicyOutcome(
        sent=10,
        expected=100,
        received=100,
        received_bytes=10_000,
        seconds=seconds,
        broker_cpu_s=cpu_s,
        children_cpu_s=0.0,
        p50_ms=1.0,
        p99_ms=p99_ms,
    )


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is made."""
    made: list[Figure] = []

    def figure(size_inches: tuple[float, float]) -> Figure:
        made.append(Figure(figsize=size_inches, layout="constrained"))
        return made[-1]

    monkeypatch.setattr(policy_plots, "new_figure", figure)
    return made


def lines(axes: Axes) -> dict[str, list[list[float]]]:
    return {
        str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()
    }


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for axes in figure.get_axes() for text in axes.texts)


def test_overheads_by_both_measures(tmp_path: Path, figures: list[Figure]) -> None:
    found = {
        (rate, count): {
            "blind": ran(10.0, 1.0),
            "passed": ran(10.1, 1.5),
            "one": ran(11.0, 2.0),
            "many": ran(20.0, 3.0),
        }
        for rate in (120, 240)
        for count in (100, 220)
    }
    policy_plots.overhead(found, tmp_path / "overhead.png")
    assert (tmp_path / "overhead.png").read_bytes().startswith(b"\x89PNG")
    durations, durations_fast, costs, _ = figures[0].get_axes()
    assert lines(durations)["compressed, all qualities"] == [[100, 100.0], [220, 100.0]]
    assert lines(costs)["nothing to compress"] == [[100, 50.0], [220, 50.0]]
    assert [100, 17.3] in lines(durations)["SUBLIM, as published"]
    assert [200, 334.33] in lines(durations_fast)["SUBLIM, as published"]
    assert "goal: 5 %" in texts(figures[0])


def test_without_published_numbers_words_stand_there(tmp_path: Path, figures: list[Figure]) -> None:
    case = {name: ran(10.0) for name in ("blind", "passed", "one", "many")}
    policy_plots.overhead({(30, 20): case, (30, 220): case}, tmp_path / "overhead.png")
    assert "in words" in texts(figures[0])


def test_links_and_batteries(tmp_path: Path, figures: list[Figure]) -> None:
    found = {"stateless": [(20, 100.0), (120, 60.0)], "stateful": [(20, 100.0), (120, 90.0)]}
    policy_plots.link(found, tmp_path / "link.png")
    policy_plots.battery(found, MODEL, tmp_path / "battery.png")
    link, battery = figures
    assert lines(link.get_axes()[0])["stateful policy of the case study"] == [
        [20, 100.0],
        [120, 90.0],
    ]
    assert "very fast" in texts(link)
    said = texts(battery)
    for wanted in ("+50 %", "+0 %", "up to 31 %", "1.2 W", "3 µJ a byte"):
        assert wanted in said
    assert lines(battery.get_axes()[0])["no messages"] == [[20, 100.0], [120, 100.0]]


def test_harm(tmp_path: Path, figures: list[Figure]) -> None:
    some = {name: [ran(10.0, p99_ms=ms) for ms in (1.0, 7.0, 9.0)] for name in ("blind", "0")}
    more = {name: [ran(11.0)] for name in ("5", "10")}
    found = {(120, count): {**some, **more} for count in (100, 200)}
    policy_plots.malicious(found, tmp_path / "malicious.png")
    overheads, delays = figures[0].get_axes()
    assert lines(overheads)["10 % malicious"] == [[100, 10.0], [200, 10.0]]
    assert lines(overheads)["SUBLIM, 10 %"][-1] == [200, 117.0]
    assert lines(delays)["0 % malicious"] == [[100, 7.0], [200, 7.0]], "the median"


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install rove\[plots\]"):
        policy_plots.link({"stateful": [(1, 1.0)]}, tmp_path / "none.png")
