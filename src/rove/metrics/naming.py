"""What series are called, in one place, so that whoever writes one finds what another has written.

A series is a metric and its labels. Labels are one text, as Prometheus writes them but for the
braces, sorted by name: `engine="area",run="dense-1"`. One text, not a table of its own: it is
compared as a whole nearly always, is a key as it stands, and is what `/metrics` says anyway.

Counters end in `_total`; everything else goes up and down. No other place says what is which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

COUNTER: Final = "_total"
WORLD: Final = "rove_world_"
WORLD_GAUGES: Final = frozenset(("subscriptions", "subscribers", "battery", "network"))
"""Figures of a world that say how it is now; all others are totals that grow."""
_LABEL: Final = re.compile(r'([^=,"]+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_PLAIN: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Kind = Literal["counter", "gauge"]


def kind_of(metric: str) -> Kind:
    """Whether it only grows."""
    return "counter" if metric.endswith(COUNTER) else "gauge"


def metric_name(figure: str) -> str:
    """What a figure of a world is called: `rove_world_subscribes_total`."""
    return f"{WORLD}{figure}" if figure in WORLD_GAUGES else f"{WORLD}{figure}{COUNTER}"


def labels_text(labels: Mapping[str, str]) -> str:
    """As one text, by name."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def labels_of(text: str) -> dict[str, str]:
    """The labels that a text has."""
    return {
        name: re.sub(r"\\[\\\"n]", lambda pair: _PLAIN[pair.group()], value)
        for name, value in _LABEL.findall(text)
    }


def split_series(series: str) -> tuple[str, str]:
    """Metric and labels of a name with braces: `rove_design_splits_total{design="lees"}`."""
    metric, _, rest = series.partition("{")
    return metric, rest.removesuffix("}")


def _escaped(value: str) -> str:
    return "".join(_ESCAPED.get(character, character) for character in value)
