"""Variables that the system keeps and a policy can only read.

Some the broker finds out by itself (`OWN`), the others come in reports of the subscriber's device:
whatever a report names is automatic from then on. How well the network carries what is sent is
worked out here, as in SUBLIM: what the device says that it received, by what was sent to it in the
same interval. It needs no clock and no probe, and it sees loss and delay alike.
"""

from __future__ import annotations

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


class ReportError(RoveError):
    """A report that cannot be used."""


def network_share(received: int, sent: int) -> float:
    """How much of what was sent came through: 1.0 is all, and all is well while nothing is sent."""
    return 1.0 if sent <= 0 else min(1.0, received / sent)


def changes_of(report: Mapping[str, Any], sent: int) -> dict[str, Any]:
    """What a report changes; `sent` is how much was sent since the last one."""
    changes = {name: value for name, value in report.items() if name != RECEIVED}
    if own := sorted(OWN & changes.keys()):
        raise ReportError(f"{own[0]} is found out by the broker; leave it out of the report")
    if RECEIVED in report:
        received = report[RECEIVED]
        if type(received) is not int or received < 0:
            raise ReportError(f"{RECEIVED} is {received!r}; say how many, 0 or more")
        changes[NETWORK] = network_share(received, sent)
    return changes


def refused_change(names: Collection[str], automatic: Collection[str]) -> str:
    """Why these variables cannot be set by their subscriber; empty if they can."""
    fixed = sorted(name for name in names if name in automatic or name in OWN)
    return f"{fixed[0]} is kept by the system and can only be read" if fixed else ""
