"""Where the pictures of a benchmark's parts are drawn, for benchmarks that have several parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol


class Drawing(Protocol):
    """Options of a benchmark that can draw."""

    @property
    def plots(self) -> Path | None:
        """The folder to draw in; None for no pictures."""
        ...


def picture_of(part: str, options: Drawing, names: Mapping[str, str]) -> Path | None:
    """Where a part is drawn, in a folder that is there; None if it is not to be."""
    if options.plots is None:
        return None
    options.plots.mkdir(parents=True, exist_ok=True)
    return options.plots / names[part]


def pictures_of(parts: Iterable[str], options: Drawing, names: Mapping[str, str]) -> list[Path]:
    """What was drawn of these parts."""
    assert options.plots is not None
    return [options.plots / names[part] for part in parts if part in names]
