"""Readings of a world's figures, with the same names whether a run or the stage records them.

A sample has the figures of an engine, or of an audience, at a moment of the world. This room
imports nothing of worlds; it only names their series. A sample of ten figures costs some 10 µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from rove.metrics.records import COUNTER, Reading, kind_of, labels_text

WORLD: Final = "rove_world_"
WORLD_GAUGES: Final = frozenset(("subscriptions", "subscribers", "battery", "network"))
"""Figures of a world that go up and down; all others are totals that grow."""


class WorldSample(Protocol):
    """The figures of an engine, or of an audience, at a moment."""

    @property
    def at(self) -> float:
        """Seconds since the world began."""
        ...

    @property
    def source(self) -> str:
        """The name of the engine, or of the audience."""
        ...

    @property
    def figures(self) -> Mapping[str, float]:
        """Totals and gauges, by name."""
        ...


Who = Literal["engine", "audience"]


def metric_name(figure: str) -> str:
    """The metric of a figure: `rove_world_subscribes_total`."""
    return f"{WORLD}{figure}" if figure in WORLD_GAUGES else f"{WORLD}{figure}{COUNTER}"


def world_readings(
    sample: WorldSample, run: str, scenario: str, began: float = 0.0, who: Who = "engine"
) -> list[Reading]:
    """A reading for each figure; `began` is when the world's seconds began, since 1970."""
    labels = world_labels(sample.source, run, scenario, who)
    return [
        Reading(metric_name(figure), labels, began + sample.at, float(value))
        for figure, value in sample.figures.items()
    ]


def initial_readings(
    sample: WorldSample, run: str, scenario: str, began: float, who: Who = "engine"
) -> list[Reading]:
    """Counters at 0 when the world began: without them, the first increase would be unknown."""
    labels = world_labels(sample.source, run, scenario, who)
    metrics = map(metric_name, sample.figures)
    return [
        Reading(metric, labels, began, 0.0) for metric in metrics if kind_of(metric) == "counter"
    ]


def world_labels(source: str, run: str, scenario: str, who: Who = "engine") -> str:
    """`engine="area",run="dense-1",scenario="dense"`."""
    return labels_text({who: source, "run": run, "scenario": scenario})
