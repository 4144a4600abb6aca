"""The result of `connect` and `subscribe`: `await` it, or enter it with `async with`.

    client = await connect(url)            async with connect(url) as client:
    ...                                        ...
    await client.close()

A function cannot be both a coroutine and a context manager, so these return an `Opener`, which can
be used as either. Nothing happens until one of the two is done.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """Has `close`."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Opener(Generic[C]):
    """Opens when awaited or entered; leaving closes."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._open = open
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._open().__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()
