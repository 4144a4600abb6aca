"""Series, points and runs of the metrics database, as the page needs them.

Queries run in threads, a few at a time, and results are cached for a second: twenty pages with the
same charts cost what one does. The database is opened with the first query, and again after it was
unavailable.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from rove.base.http import HttpError
from rove.metrics.database import Database, DatabaseError
from rove.metrics.records import labels_of

AT_ONCE: Final = 2
FRESH_S: Final = 1.0
KEPT_MAX: Final = 200
POINTS_MAX: Final = 5_000
POINTS: Final = 600
YEARS_S: Final = 100 * 366 * 86_400.0
_LABEL: Final = "label."
T = TypeVar("T")


class MetricsHistory:
    """Reads what was recorded."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._database: Database | None = None
        self._lock = threading.Lock()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._kept: dict[str, tuple[float, asyncio.Task[Any]]] = {}

    def database(self) -> Database:
        """The database, opened at first use. For threads."""
        with self._lock:
            if self._database is None:
                self._database = Database(self._place)
            return self._database

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    async def ask(self, question: str, work: Callable[[Database], T]) -> T:
        """What `work` finds in the database; the same question gets the same answer for a while."""
        now = time.monotonic()
        kept = self._kept.get(question)
        if kept is None or kept[0] < now:
            if len(self._kept) >= KEPT_MAX:
                self._kept = {name: one for name, one in self._kept.items() if one[0] >= now}
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            task: asyncio.Task[Any] = asyncio.create_task(self._answered(work))
            kept = self._kept[question] = now + FRESH_S, task
        found: T = await asyncio.shield(kept[1])
        return found

    async def _answered(self, work: Callable[[Database], T]) -> T:
        async with self._slots:
            try:
                return await asyncio.to_thread(lambda: work(self.database()))
            except DatabaseError as error:
                raise HttpError(503, str(error), "is the database up?") from None

    # -- questions -----------------------------------------------------------------------------

    async def series(self) -> list[dict[str, Any]]:
        """Everything that was recorded."""
        found = await self.ask("series", lambda database: database.series())
        return [
            {"metric": one.metric, "labels": labels_of(one.labels), "kind": one.kind}
            for one in found
        ]

    async def points(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """A metric over a period, a line for each combination of labels."""
        metric = query.get("metric", "")
        if not metric:
            raise HttpError(
                400, "which metric?", "/api/points?metric=rove_subscriptions&since=-300"
            )
        labels = {
            name.removeprefix(_LABEL): value
            for name, value in query.items()
            if name.startswith(_LABEL)
        }
        since, until = moment(query, "since"), moment(query, "until")
        most = points_in(query)
        question = msgspec.json.encode(
            [metric, labels, query.get("since"), query.get("until"), most]
        )
        found = await self.ask(
            question.decode(),
            lambda database: database.points(metric, labels, since, until, most),
        )
        return [
            {
                "labels": labels_of(one.labels),
                "resolution_s": one.resolution_s,
                "at": one.at,
                "value": one.value,
                "low": one.low,
                "high": one.high,
            }
            for one in found
        ]

    async def runs(self) -> list[dict[str, Any]]:
        """All runs, the newest first."""
        found = await self.ask("runs", lambda database: database.runs())
        return [msgspec.structs.asdict(one) for one in found]


def moment(query: Mapping[str, str], name: str) -> float | None:
    """A time in seconds since 1970; a negative one counts back from now."""
    written = query.get(name)
    if written is None or written == "":
        return None
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not -YEARS_S < number < YEARS_S:
        raise HttpError(400, f"{name} is {written[:50]!r}", "seconds since 1970, or -300 for back")
    return time.time() + number if number < 0 else number


def points_in(query: Mapping[str, str]) -> int:
    """How many points are wanted."""
    written = query.get("points") or str(POINTS)
    number = int(written) if written.isascii() and written.isdecimal() else 0
    if not 1 <= number <= POINTS_MAX:
        raise HttpError(400, f"points is {written[:50]!r}", f"a whole number, 1 to {POINTS_MAX}")
    return number
