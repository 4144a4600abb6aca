"""Runs routes: each separately, restarted after faults, until it is stopped.

Each route has one thread for blocking calls. After a fault that may pass (Kafka or the broker is
down, a lake cannot be read) a route is restarted after a random part of a delay that doubles; any
other fault ends all routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rove.bridge.inbound import BrokerCredentials, InboundRoute
from rove.bridge.outbound import OutboundRoute
from rove.bridge.routes import BridgeConfig, BridgeRoute, RouteProgress
from rove.bridge.transactions import KafkaUnavailable
from rove.client.errors import ConnectionFailed, ConnectionRefused
from rove.lake.storage import LakeError

LOOK_EVERY_S: Final = 0.2
RETRY_S_FIRST: Final = 0.5
RETRY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 10.0
"""How long a route that is stopped may take to end its batch."""


class Bridge:
    """All routes of a configuration."""

    def __init__(
        self,
        config: BridgeConfig,
        access: BrokerCredentials | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self._config, self._access, self._tell = config, access or BrokerCredentials(), tell
        self._stopping = asyncio.Event()
        self._is_stopped = threading.Event()
        self.progress = [RouteProgress(route.title) for route in config.routes]

    def stop(self) -> None:
        """End after the present batches."""
        self._stopping.set()

    async def run(self, *, once: bool = False) -> None:
        """Run until it is stopped; with `once`, until every route has reached the end."""
        keeping = [
            asyncio.create_task(self._keep(route, progress, once=once), name=route.title)
            for route, progress in zip(self._config.routes, self.progress, strict=True)
        ]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await self._until_ended(keeping, stopping)
        finally:
            self._is_stopped.set()
            for task in (*keeping, stopping):
                task.cancel()
            await asyncio.gather(*keeping, stopping, return_exceptions=True)

    async def _until_ended(
        self, keeping: list[asyncio.Task[None]], stopping: asyncio.Task[Any]
    ) -> None:
        left: set[asyncio.Task[Any]] = set(keeping)
        while left and not stopping.done():
            done, _ = await asyncio.wait({*left, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & left:
                task.result()
            left -= done
        if left:
            done, _ = await asyncio.wait(left, timeout=STOP_S_MAX)
            for task in done:
                task.result()

    async def _keep(self, route: BridgeRoute, progress: RouteProgress, *, once: bool) -> None:
        """Run one route, and restart it after faults."""
        troubles = 0
        with ThreadPoolExecutor(1, thread_name_prefix=route.title) as threads:
            while not self._stopping.is_set():
                sent = progress.sent
                try:
                    await self._run(route, progress, threads, once=once)
                    return
                except ConnectionRefused:
                    raise
                except (KafkaUnavailable, ConnectionFailed, LakeError) as error:
                    troubles = 0 if progress.sent > sent else troubles
                    progress.troubles += 1
                    progress.trouble = str(error)
                    self._tell(f"{route.title}: {error}; trying again")
                delay_s = min(RETRY_S_MAX, RETRY_S_FIRST * 2 ** min(troubles, 30))
                troubles += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), random.uniform(0, delay_s))

    async def _run(
        self,
        route: BridgeRoute,
        progress: RouteProgress,
        threads: ThreadPoolExecutor,
        *,
        once: bool,
    ) -> None:
        loop = asyncio.get_running_loop()

        def in_thread(function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
            return loop.run_in_executor(threads, function, *arguments)

        if route.is_to_kafka:
            outbound = OutboundRoute(self._config, route, progress, self._is_stopped)
            try:
                await in_thread(outbound.open)
                await self._go_on(progress, lambda: in_thread(outbound.step), once=once)
                await in_thread(outbound.close)
            finally:
                outbound.abandon()
            return
        inbound = InboundRoute(
            self._config, route, progress, self._is_stopped, self._access, self._tell
        )
        try:
            await inbound.open(in_thread)
            await self._go_on(progress, lambda: inbound.step(in_thread), once=once)
        finally:
            await inbound.close(in_thread)

    async def _go_on(
        self, progress: RouteProgress, step: Callable[[], Awaitable[bool]], *, once: bool
    ) -> None:
        progress.trouble = ""
        while not self._stopping.is_set():
            if await step():
                progress.trouble = ""
                continue
            if once and progress.is_at_end:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_EVERY_S)
