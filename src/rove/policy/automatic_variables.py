"""Automatic variables, which the system sets and policies can only read.

The broker sets some itself (`OWN`); the others come from reports of the subscriber's device, and
every name in a report becomes automatic. The quality of the network is computed here, as in SUBLIM:
the number of messages that the device reports as received, divided by the number sent to it in the
same interval. It needs no probe, and measures loss as well as delay.

One thing differs from SUBLIM. Messages sent just before a report may not have arrived when the
device made it; with few messages, a single one would look like a broken network. So missing
messages that may still be in transit count towards the next report, but at most those sent
within `ON_ITS_WAY_S`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final

from rove.errors import RoveError

NETWORK: Final = "network"
RECEIVED: Final = "received"
"""Of a report: how many notifications the device has received since the last one."""
CONNECTED: Final = "connected"
CONNECTED_AT: Final = "connected_at"
PROTOCOL: Final = "protocol"

OWN: Final = frozenset((NETWORK, CONNECTED, CONNECTED_AT, PROTOCOL))
"""Found out by the broker."""
USUAL: Final = frozenset(("battery", "display")) | OWN
"""Automatic wherever a policy runs, reported or not: no policy can set them."""


ON_ITS_WAY_S: Final = 1.0
"""What was sent so short a time ago need not be there yet."""


class ReportError(RoveError):
    """A report that cannot be used."""


class SentCounter:
    """What was sent to a device and has not been accounted for by a report of its."""

    __slots__ = ("_accounted", "_recent", "_total")

    def __init__(self) -> None:
        self._total = self._accounted = 0
        self._recent: deque[tuple[float, int]] = deque()
        """Moments, and how much had been sent before each."""

    @property
    def sent(self) -> int:
        """What no report has accounted for yet."""
        return self._total - self._accounted

    def send(self, now: float) -> None:
        """One more is sent."""
        recent = self._recent
        if not recent or recent[-1][0] != now:
            while recent and recent[0][0] <= now - ON_ITS_WAY_S:
                recent.popleft()
            recent.append((now, self._total))
        self._total += 1

    def on_its_way(self, received: int, now: float) -> int:
        """How much of what is missing may still come."""
        before = (sent for at, sent in self._recent if at > now - ON_ITS_WAY_S)
        return min(self._total - next(before, self._total), max(0, self.sent - received))

    def account(self, received: int, now: float) -> None:
        """So much has been received; what else is missing is not expected any more."""
        self._accounted = self._total - self.on_its_way(received, now)


def network_share(received: int, sent: int) -> float:
    """How much of what was sent came through: 1.0 is all, and all is well while nothing is sent."""
    return 1.0 if sent <= 0 else min(1.0, received / sent)


def changes_of(report: Mapping[str, Any], traffic: SentCounter, now: float) -> dict[str, Any]:
    """What a report changes."""
    changes = {name: value for name, value in report.items() if name != RECEIVED}
    if own := sorted(OWN & changes.keys()):
        raise ReportError(f"{own[0]} is found out by the broker; leave it out of the report")
    if RECEIVED in report:
        received = report[RECEIVED]
        if type(received) is not int or received < 0:
            raise ReportError(f"{RECEIVED} is {received!r}; say how many, 0 or more")
        due = traffic.sent - traffic.on_its_way(received, now)
        changes[NETWORK] = network_share(received, due)
    return changes


def refused_change(names: Collection[str], automatic: Collection[str]) -> str:
    """Why these variables cannot be set by their subscriber; empty if they can."""
    fixed = sorted(name for name in names if name in automatic or name in OWN)
    return f"{fixed[0]} is kept by the system and can only be read" if fixed else ""
