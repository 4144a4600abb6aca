"""Pictures of the bench: what was measured is in them, and of CUPUS what its text says."""

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from rove.bench.elastic import plots as elastic_plots
from rove.bench.elastic.load import Run
from rove.bench.elastic.steps import Change, Elasticity, Second, steps_of
from rove.errors import UsageError


def ran(subscriptions: int, sent: int, mean_ms: float) -> Run:
    return Run(
        subscriptions=subscriptions,
        sent=sent,
        received=sent,
        seconds=1.0,
        broker_cpu_s=0.5,
        children_cpu_s=0.0,
        mean_ms=mean_ms,
        p50_ms=mean_ms,
        p99_ms=2 * mean_ms,
        quarters_ms=[mean_ms] * 4,
    )


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is made."""
    made: list[Figure] = []

    def figure(size_inches: tuple[float, float]) -> Figure:
        made.append(Figure(figsize=size_inches, layout="constrained"))
        return made[-1]

    monkeypatch.setattr(elastic_plots, "new_figure", figure)
    return made


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for axes in figure.get_axes() for text in axes.texts)


def test_delays_and_the_one_published_point(tmp_path: Path, figures: list[Figure]) -> None:
    lines = {
        case: [ran(1, 9, 0.0), ran(100, 9, mean_ms), ran(20_000, 9, 4 * mean_ms)]
        for case, mean_ms in (("embedded", 0.5), ("one", 0.7))
    }
    elastic_plots.delay(lines, (20_000, 1_000.0), tmp_path / "delay.png")
    assert (tmp_path / "delay.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    (axes,) = figure.get_axes()
    drawn = {
        str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()
    }
    assert drawn["embedded"] == [[100, 0.5], [20_000, 2.0]], "what was told nobody has no delay"
    assert [[20_000, 1_000.0]] in drawn.values()
    for wanted in ("embedded", "one", "up to 1,000 ms at 20,000", "goal"):
        assert wanted in texts(figure)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("subscriptions", "mean delay in ms")


def test_lengths(tmp_path: Path, figures: list[Figure]) -> None:
    lines = {"embedded": [ran(5_000, 1_000, 1.0), ran(5_000, 2_000, 1.1)]}
    elastic_plots.length(lines, tmp_path / "length.png")
    (axes,) = figures[0].get_axes()
    assert [line.get_label() for line in axes.get_lines()] == ["embedded, mean", "embedded, p99"]
    assert axes.get_ylim()[0] == 0, "growth would be seen"
    assert "does not depend" in texts(figures[0])


def test_steps_show_paces_delays_matchers_and_changes(
    tmp_path: Path, figures: list[Figure]
) -> None:
    steps = steps_of([(95, 2.0), (1_000, 2.0), (95, 2.0)], ["1-95", "2-1000", "3-95"])
    seconds = [Second(float(at), 2.0, 1.0, 3.0) for at in range(6)]
    changes = [
        Change(2.5, 2.9, "split", "busy", 2, "", 9.0, 9.0),
        Change(5.0, 5.1, "merge", "idle", 2, "it died", 9.0, 9.0),
    ]
    found = Elasticity(steps, seconds, changes, [(0.0, 1), (3.0, 2)])
    elastic_plots.steps(found, "Title", tmp_path / "steps.png", elastic_plots.CUPUS_REMARKS)
    said = texts(figures[0])
    for wanted in ("1,000", "split", "merge: given up", "goal for p99"):
        assert wanted in said
    assert said.count("in vain") == 1, "a remark stands where its pace comes first"
    assert figures[0].get_axes()[0].get_title(loc="left") == "Title"
    elastic_plots.steps(Elasticity(steps, seconds, [], [(0.0, 1)]), "T", tmp_path / "none.png")
    assert "nothing was rearranged" in texts(figures[1])


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install rove\[plots\]"):
        elastic_plots.length({"embedded": [ran(1, 1, 1.0)]}, tmp_path / "none.png")
