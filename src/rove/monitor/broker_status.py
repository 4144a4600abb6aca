"""What the page shows of a broker and of a pipeline, derived from their own answers.

The broker's answers are passed on unchanged, except metrics, which become JSON. Slow consumers are
found among its queues, with the reason: a client that is not connected, one that has a full window
and does not acknowledge, or one whose connection is too slow.

While a page is open, the broker's health is checked every few seconds (`/healthz`, open to
everybody and cached for the pages' own requests). Changes go to the timeline as notes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from rove.base.http import HttpError
from rove.monitor.broker_client import BrokerAnswer, BrokerClient
from rove.monitor.live_updates import LiveUpdates

ROUTES: Final[dict[str, tuple[str, ...]]] = {
    "channels": (),
    "clients": ("after", "limit"),
    "expired": (),
    "health": (),
    "matchers": (),
    "metrics": (),
    "policies": ("client", "limit", "short"),
    "queues": ("limit",),
    "subscriptions": ("after", "client", "limit"),
    "variables": ("client",),
}
"""Routes that are passed on, with their parameters."""
REARRANGEMENTS: Final = ("layout", "split", "merge")
"""Changes of a broker's matchers that the page may request."""
_PATHS: Final = {"health": "/healthz"}
OLD_S: Final = 5.0
"""What has waited for longer makes a consumer slow."""
LOOKED_AT: Final = 100
REMEMBERED_MAX: Final = 10_000


async def forwarded(
    broker: BrokerClient, route: str, query: Mapping[str, str], authorization: str
) -> BrokerAnswer:
    """What the broker answers to a visitor."""
    allowed = ROUTES[route]
    for name in query:
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise HttpError(400, f"{route} takes no {name[:50]}", f"there are {known}")
    if route == "variables":
        if not query.get("client"):
            raise HttpError(400, "whose variables?", "variables?client=NAME")
        client = quote(query["client"], safe="")
        return await broker.get(f"/sessions/{client}/variables", None, authorization)
    return await broker.get(_PATHS.get(route, f"/{route}"), query, authorization)


def metrics_json(answer: BrokerAnswer) -> dict[str, float]:
    """A broker's metrics by series."""
    found = {}
    for line in answer.body.decode().splitlines():
        series, _, value = line.rpartition(" ")
        if series and not line.startswith("#"):
            found[series] = float(value)
    return found


class SlowConsumers:
    """Finds slow consumers; remembers the lengths of queues for their growth."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}
        """By client: when its queue was looked at, and how long it was."""

    async def found(self, broker: BrokerClient, authorization: str) -> list[dict[str, Any]]:
        """All of them, the longest queue first; an `HttpError` with what the broker refuses."""
        limit = {"limit": str(LOOKED_AT)}
        queues, clients = await asyncio.gather(
            broker.get("/queues", limit, authorization),
            broker.get("/clients", limit, authorization),
        )
        for answer in (queues, clients):
            if answer.status != 200:
                raise fault_of(answer)
        away_since = {
            one["client"]: one["since"]
            for one in msgspec.json.decode(clients.body)["items"]
            if not one["connected"] and one["since"] is not None
        }
        now, slow = time.time(), []
        for queue in msgspec.json.decode(queues.body)["items"]:
            grows = self._growth(queue["client"], queue["queue_messages"], now)
            why = why_slow(queue, grows, away_since.get(queue["client"]), now)
            if why is not None:
                slow.append(
                    {
                        "client": queue["client"],
                        "user": queue["user"],
                        "connected": queue["connected"],
                        "queued": queue["queue_messages"],
                        "queued_bytes": queue["queue_bytes"],
                        "oldest_s": queue["oldest_s"],
                        "inflight": queue["inflight"],
                        "why": why,
                    }
                )
        return slow

    def _growth(self, client: str, length: int, now: float) -> float:
        """The growth of a queue in notifications a second; 0 if unknown."""
        at, before = self._before.get(client, (now, length))
        if now - at >= 1.0 or client not in self._before:
            if len(self._before) >= REMEMBERED_MAX:
                self._before.clear()
            self._before[client] = now, length
        return (length - before) / (now - at) if now - at >= 1.0 else 0.0


def why_slow(
    queue: Mapping[str, Any], grows_per_s: float, away_since: float | None, now: float
) -> str | None:
    """Why a client's notifications are late; None if they are not."""
    waiting, inflight, oldest_s = queue["queue_messages"], queue["inflight"], queue["oldest_s"]
    growing = f", {grows_per_s:.0f} more every second" if grows_per_s >= 1 else ""
    if not queue["connected"]:
        if not waiting or (oldest_s < OLD_S and not growing):
            return None
        away = "" if away_since is None else f" for {_duration(now - away_since)}"
        what = _count(waiting, "notification waits", "notifications wait")
        return f"it is away{away}; {what}{growing}"
    if oldest_s < OLD_S and not (waiting and growing):
        return None
    if inflight and waiting:
        return (
            f"its window is full: {inflight} are sent and not acknowledged for "
            f"{_duration(oldest_s)}, so {waiting} more wait{growing}"
        )
    if inflight:
        return (
            f"{_count(inflight, 'notification is', 'notifications are')} sent and not "
            f"acknowledged for {_duration(oldest_s)}"
        )
    return (
        f"its connection takes less than comes: {waiting} wait for {_duration(oldest_s)}{growing}"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def fault_of(answer: BrokerAnswer) -> HttpError:
    """A refusal of the broker as an error of the monitor."""
    try:
        said = msgspec.json.decode(answer.body)
        return HttpError(answer.status, str(said["error"]), said.get("hint"))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return HttpError(502, f"the broker answers {answer.status}, and its body cannot be decoded")


def jobs(folder: Path) -> list[dict[str, Any]]:
    """The jobs of a pipeline, as `rove pipeline status --json` has them; for threads."""
    from rove.pipeline.jobs.status import StatusError, statuses  # of systems that can lock files

    try:
        found: list[dict[str, Any]] = msgspec.to_builtins(statuses(folder))
    except StatusError:
        return []
    return found


HEALTH_EVERY_S: Final = 5.0
WELL: Final = "the broker answers, and is well"


async def watch_health(broker: BrokerClient, updates: LiveUpdates) -> None:
    """Add a note whenever the broker's health changes; runs until it is cancelled."""
    before = WELL
    while True:
        if updates.pages:
            now = await _health(broker)
            if now != before:
                updates.note("broker", now)
            before = now
        await asyncio.sleep(HEALTH_EVERY_S)


async def _health(broker: BrokerClient) -> str:
    try:
        return health_of(await broker.get("/healthz"))
    except HttpError as fault:
        return fault.error


def health_of(answer: BrokerAnswer) -> str:
    """The broker's health in words."""
    if answer.status == 200:
        return WELL
    try:
        reasons = ", ".join(map(str, msgspec.json.decode(answer.body)["reasons"]))
    except (msgspec.DecodeError, KeyError, TypeError):
        reasons = f"it answers {answer.status}"
    return f"the broker is ill: {reasons}"
