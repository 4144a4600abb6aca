"""The variables that the broker keeps for this subscriber.

    async with client.variables() as state:
        print(state["network"], dict(state))
        async for variables in state:
            ...

`client.me` has what this program has set. The broker also has what policies have set, and the
automatic variables. It sends all of them, first and after every change, so only the last message
counts; changes that arrive before the program looks are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from rove.client.errors import SubscribeRefused
from rove.client.subscription import Subscription


class Variables(Mapping[str, Any]):
    """All variables of a subscriber; `Client.variables` makes it."""

    def __init__(self, subscription: Subscription[dict[str, Any]]) -> None:
        self._subscription = subscription
        self._values: dict[str, Any] = {}

    async def begin(self, timeout_s: float) -> Self:
        """For the client: wait for the first message."""
        if not (found := await self._subscription.batch(timeout_s=timeout_s)):
            text = f"the broker has granted {self._subscription.topic} and says nothing on it"
            await self._subscription.close()
            raise SubscribeRefused(f"{text}; is it a Rove broker?")
        self._values = found[-1].value
        return self

    def __getitem__(self, name: str) -> Any:
        return self._newest()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest())

    def __len__(self) -> int:
        return len(self._newest())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        """All variables, once they have changed since the last look."""
        if not (found := await self._subscription.batch()):
            raise StopAsyncIteration
        self._values = found[-1].value
        return dict(self._values)

    async def close(self) -> None:
        """End the subscription."""
        await self._subscription.close()

    def _newest(self) -> dict[str, Any]:
        if found := self._subscription.take():
            self._values = found[-1].value
        return self._values

    def __repr__(self) -> str:
        return f"Variables({self._newest()!r})"
