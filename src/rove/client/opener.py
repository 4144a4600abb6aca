"""Something that is being opened: `await` it, or enter it with `async with`.

    client = await connect(url)            async with connect(url) as client:
    ...                                        ...
    await client.close()

Both are wanted for connections and for subscriptions, and a function cannot be both a coroutine
and a context manager. Nothing happens before one of the two is done.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What can be closed again."""

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
