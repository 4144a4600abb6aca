"""Brokers with matchers, as `rove bench elastic` starts and watches them.

A configuration is a name and the settings that `rove up` is started with: `embedded` has no
processes, `one` has one, and two are laid out in each of the three ways. It is waited for until
there are as many as it says. What a broker says of its matchers is asked for over HTTP several
times a second while load is on, which costs it about a millisecond of CPU each time.
"""

from __future__ import annotations

import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from rove.elastic.view import LAYOUTS, MatchersView
from rove.testing import broker_processes
from rove.testing.broker_processes import HOST, START_S_MAX, BrokerProcessError, Running

_POLL_S: Final = 0.05
_MANY: Final = {"ROVE_LIMITS__SUBSCRIPTIONS_PER_SESSION_MAX": "5000000"}


class Configuration(msgspec.Struct, frozen=True):
    """How many matchers there are at least and at most, and how they are laid out."""

    least: int
    most: int
    layout: str = "replicated"

    def settings(self) -> dict[str, str]:
        """As they are called in the environment."""
        return {
            "ROVE_MATCHERS__MIN": str(self.least),
            "ROVE_MATCHERS__MAX": str(self.most),
            "ROVE_MATCHERS__LAYOUT": self.layout,
        }


EMBEDDED: Final = Configuration(0, 0)
CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "embedded": EMBEDDED,
    "one": Configuration(1, 1),
    **{layout: Configuration(2, 2, layout) for layout in LAYOUTS},
}
"""Those whose number of matchers stays as it is."""


@contextmanager
def running(
    configuration: Configuration, more: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """A broker, when all the matchers that it has to have are there."""
    settings = {**_MANY, **configuration.settings(), **(more or {})}
    with (
        tempfile.TemporaryDirectory(prefix="rove-bench-") as folder,
        broker_processes.rove(Path(folder), settings) as broker,
    ):
        if configuration.least:
            _await_matchers(broker, configuration.least)
        yield broker


def _await_matchers(broker: Running, count: int) -> None:
    end = time.monotonic() + START_S_MAX
    while (there := processes_of(view_of(broker))) < count:
        if time.monotonic() > end:
            raise BrokerProcessError(f"the broker has {there} matchers, not {count}")
        time.sleep(_POLL_S)


def view_of(broker: Running) -> MatchersView:
    """What a broker says of its matchers."""
    with urllib.request.urlopen(f"http://{HOST}:{broker.http_port}/matchers", timeout=30) as page:
        return msgspec.json.decode(page.read(), type=MatchersView)


def processes_of(view: MatchersView) -> int:
    """How many processes match; the broker itself, which is called 0, is none of them."""
    return sum(one.number > 0 for one in view.matchers)


class Seen(msgspec.Struct, frozen=True):
    """What was seen at one moment."""

    at: float
    """In seconds since 1970."""
    matchers: int
    idle_share: float
    """Of the busiest."""


class Watcher:
    """Looks at the matchers again and again, from a thread of its own, until it is left."""

    def __init__(self, broker: Running, every_s: float = 0.25) -> None:
        self.seen: list[Seen] = []
        self.last: MatchersView | None = None
        self._broker = broker
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._is_over.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        self.last = view = view_of(self._broker)
        busiest = min((one.idle_share for one in view.matchers), default=1.0)
        self.seen.append(Seen(time.time(), processes_of(view), busiest))
