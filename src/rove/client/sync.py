"""The same client for programs without an event loop: a thread runs one for it.

    with rove.client.sync.connect("mqtt://127.0.0.1:1883") as client:
        client.publish("air/zagreb", {"NO2": 41.5})
        with client.subscribe("air/#", "NO2 > 40", timeout_s=5) as readings:
            for notification in readings:
                print(notification.value)

Every call waits for its answer and may be made from any thread. Notifications are passed between
the threads in batches, so that a loop over them does not pay for each; a batch is acknowledged when
it is passed, so a program that is killed may lose up to `BATCH_MAX` notifications.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, MutableMapping
from typing import Any, Final, Generic, Literal, Self, TypedDict, TypeVar, Unpack, overload

from rove.client.addresses import DEFAULT_URL
from rove.client.client import Client as AsyncClient
from rove.client.client import Published
from rove.client.client import connect as connect_async
from rove.client.errors import ClientClosed
from rove.client.notifications import Notification
from rove.client.policies import PolicyNotice, Runs
from rove.client.reports import Source
from rove.client.subscription import Slow
from rove.client.subscription import Subscription as AsyncSubscription
from rove.client.subscription_table import Engine

T = TypeVar("T")
BATCH_MAX: Final = 100


class PublishOptions(TypedDict, total=False):
    """Of `rove.client.Client.publish`; the defaults are there."""

    qos: int
    retain: bool
    id: str | None
    valid_for: float | Literal["forever"] | None
    expiry_s: int | None
    user: Mapping[str, str] | None


class SubscribeOptions(TypedDict, total=False):
    """Of `rove.client.Client.subscribe`; the defaults are there."""

    qos: int
    evolve: str | None
    engine: Engine | None
    policy: str | None
    policy_runs: Runs
    slow: Slow | None
    inbox_max: int
    no_local: bool
    retained: Literal["always", "new", "never"]


class _Loop:
    """An event loop in another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._run, name="rove client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait_for(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result."""
        if self._loop.is_closed():
            what.close()
            raise ClientClosed("the client was closed")
        future = asyncio.run_coroutine_threadsafe(what, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C ends the waiting, and so the work
            raise

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def connect(url: str = DEFAULT_URL, **options: Any) -> Client:
    """Connect, with the options of `rove.client.connect`."""
    opening = connect_async(url, **options)
    loop = _Loop()

    async def opened() -> AsyncClient:
        return await opening

    try:
        return Client(loop, loop.wait_for(opened()))
    except BaseException:
        loop.stop()
        raise


class Client:
    """A connected client; made by `connect`."""

    def __init__(self, loop: _Loop, client: AsyncClient) -> None:
        self._loop = loop
        self._client = client
        self.me: MutableMapping[str, Any] = _Me(loop, client)
        """The subscriber's own variables; setting one waits until the broker has it."""

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def publish(self, topic: str, value: object, **options: Unpack[PublishOptions]) -> Published:
        """Publish, with the options of `rove.client.Client.publish`; waits for the broker."""
        return self._loop.wait_for(self._client.publish(topic, value, **options))

    def unpublish(self, id: str) -> None:
        """Withdraw a publication of this client."""
        self._loop.wait_for(self._client.unpublish(id))

    @overload
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        timeout_s: float | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Any]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        into: type[T],
        timeout_s: float | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[T]: ...

    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        into: Any = Any,
        timeout_s: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Any]:
        """Subscribe, with the options of `rove.client.Client.subscribe`.

        A loop over it ends when no notification has arrived for `timeout_s` (None: never).
        """

        async def subscribed() -> AsyncSubscription[Any]:
            return await self._client.subscribe(topic, filter, into=into, **options)

        return Subscription(self._loop, self._loop.wait_for(subscribed()), timeout_s)

    def set_policy(self, text: str, subscription: Subscription[Any] | int | None = None) -> None:
        """Set the policy of the session or of one subscription."""
        inner = (
            subscription._subscription if isinstance(subscription, Subscription) else subscription
        )
        self._loop.wait_for(self._client.set_policy(text, inner))

    def remove_policy(self, subscription: Subscription[Any] | int | None = None) -> None:
        """Remove a policy."""
        inner = (
            subscription._subscription if isinstance(subscription, Subscription) else subscription
        )
        self._loop.wait_for(self._client.remove_policy(inner))

    def policy_notices(self, timeout_s: float | None = None) -> Subscription[PolicyNotice]:
        """Subscribe to the broker's notices about this subscriber's policies."""

        async def subscribed() -> AsyncSubscription[PolicyNotice]:
            return await self._client.policy_notices()

        return Subscription(self._loop, self._loop.wait_for(subscribed()), timeout_s)

    def variables(self) -> dict[str, Any]:
        """All variables that the broker keeps for this subscriber, at this moment."""

        async def looked() -> dict[str, Any]:
            async with self._client.variables() as state:
                return dict(state)

        return self._loop.wait_for(looked())

    def report(self, source: Source | None = None, every_s: float | None = None) -> None:
        """Report the automatic variables of this device; `source` is called in another thread."""
        self._loop.wait_for(self._client.report(source, every_s))

    def close(self, *, forget: bool | None = None) -> None:
        """Disconnect; see `rove.client.Client.close`."""
        try:
            self._loop.wait_for(self._client.close(forget=forget))
        except ClientClosed:
            return
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscription(Generic[T]):
    """One subscription: iterate over it, or `get` one at a time."""

    def __init__(
        self, loop: _Loop, subscription: AsyncSubscription[T], timeout_s: float | None
    ) -> None:
        self.timeout_s = timeout_s
        self._loop = loop
        self._subscription = subscription
        self._batch: deque[Notification[T]] = deque()

    @property
    def dropped(self) -> int:
        """Notifications that were dropped because the program did not take them in time."""
        return self._subscription.dropped

    def get(self, timeout_s: float | None = None) -> Notification[T]:
        """The next notification; TimeoutError if none arrives in time, ClientClosed at the end."""
        if not self._fetch(timeout_s):
            if self._subscription.is_ended:
                raise ClientClosed("the subscription has ended")
            raise TimeoutError(f"no notification within {timeout_s} s")
        return self._batch.popleft()

    def __iter__(self) -> Iterator[Notification[T]]:
        while self._fetch(self.timeout_s):
            yield self._batch.popleft()

    def _fetch(self, timeout_s: float | None) -> bool:
        if not self._batch:
            self._batch.extend(self._loop.wait_for(self._subscription.batch(BATCH_MAX, timeout_s)))
        return bool(self._batch)

    def close(self) -> None:
        """Unsubscribe."""
        self._loop.wait_for(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Me(MutableMapping[str, Any]):
    """`Client.me` across the threads."""

    def __init__(self, loop: _Loop, client: AsyncClient) -> None:
        self._loop = loop
        self._me = client.me

    def __getitem__(self, name: str) -> Any:
        return self._me[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._me))

    def __len__(self) -> int:
        return len(self._me)

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            raise ValueError(f"me[{name!r}] = None: to remove a variable, write del me[{name!r}]")
        self._loop.wait_for(self._me.set(**{name: value}))

    def __delitem__(self, name: str) -> None:
        if name not in self._me:
            raise KeyError(name)
        self._loop.wait_for(self._me.set(**{name: None}))

    def update(self, *others: Any, **variables: Any) -> None:
        """Several at once, as one change."""
        self._loop.wait_for(self._me.set(**dict(*others, **variables)))
