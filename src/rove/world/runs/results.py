"""What a run of a scenario gives: samples of every engine and every audience, and one hash.

A sample has its figures by name, as the counters of the engines have them; so a new counter needs
no change here, nor in the files that are written of it. The last sample of each engine is what the
run comes to: figures are totals since the world began, but for those that say how many there are
now.
"""

from __future__ import annotations

import msgspec


class RunSample(msgspec.Struct, frozen=True):
    """What an engine, or an audience, had come to at a moment."""

    at: float
    """Seconds since the world began."""
    source: str
    """The name of the engine, or of the audience."""
    figures: dict[str, float]
    live: bool = False
    """Whether it was the engine that clients heard."""


class EngineFacts(msgspec.Struct, frozen=True):
    """What an engine says of itself."""

    name: str
    delay_s: float
    """How long it may take until a client has what it should have."""
    live: bool
    """At the end."""


class RunResult(msgspec.Struct, frozen=True):
    """A whole run."""

    scenario: str
    title: str
    seed: int
    players: int
    entities: int
    servers: int
    seconds: float
    """Of the world's own time."""
    ticks: int
    trace_hash: str
    """Of the world at every tick: one seed, one history, one hash."""
    engines: tuple[EngineFacts, ...]
    samples: tuple[RunSample, ...]
    """Of the engines, by time."""
    heard: tuple[RunSample, ...]
    """Of the audiences, by time."""
    handed_over: int = 0
    """How often a server gave a master copy to another."""
    elapsed_s: float | None = None
    """How long the run took; None if nobody had a clock."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as real time it was."""
        return self.seconds / self.elapsed_s if self.elapsed_s else None

    def summary(self) -> dict[str, dict[str, float]]:
        """The last figures of each engine, in the order of the engines."""
        last = {sample.source: sample.figures for sample in self.samples}
        return {engine.name: last[engine.name] for engine in self.engines}

    def audiences(self) -> dict[str, dict[str, float]]:
        """The last figures of each audience."""
        return {sample.source: sample.figures for sample in self.heard}
