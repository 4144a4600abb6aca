"""Samples of a world as readings, named alike whoever takes them: a run in virtual time, a stage.

A sample is anything that has the figures of an engine, or of an audience, at a moment of the world.
This room does not know worlds; it only knows what their figures are called here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from rove.metrics.naming import kind_of, labels_text, metric_name
from rove.metrics.records import Reading


class Sample(Protocol):
    """What an engine, or an audience, had come to at a moment."""

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
        """By name: totals, and how many there are."""
        ...


Who = Literal["engine", "audience"]


def world_readings(
    sample: Sample, run: str, scenario: str, began: float = 0.0, who: Who = "engine"
) -> list[Reading]:
    """A reading for each figure; `began` is when the world's seconds began, since 1970."""
    labels = world_labels(sample.source, run, scenario, who)
    return [
        Reading(metric_name(figure), labels, began + sample.at, float(value))
        for figure, value in sample.figures.items()
    ]


def world_beginning(
    sample: Sample, run: str, scenario: str, began: float, who: Who = "engine"
) -> list[Reading]:
    """What counters were when the world began: nothing, so that the first increase is known too."""
    labels = world_labels(sample.source, run, scenario, who)
    metrics = map(metric_name, sample.figures)
    return [
        Reading(metric, labels, began, 0.0) for metric in metrics if kind_of(metric) == "counter"
    ]


def world_labels(source: str, run: str, scenario: str, who: Who = "engine") -> str:
    """`engine="area",run="dense-1",scenario="dense"`."""
    return labels_text({who: source, "run": run, "scenario": scenario})
