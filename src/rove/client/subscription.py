"""A subscription of a program: it iterates over the notifications, or calls a listener.

All notifications of one turn of the event loop go into the inbox at once, and the iterator returns
them without suspending until it is empty: a loop over notifications costs one task switch per
batch, not per notification. An `asyncio.Queue` per subscription, with a task that fills it, would
cost two.

The subscriber chooses what happens if notifications arrive faster than they are taken:

    wait         (the default) acknowledge a notification when the program takes it, so that the
                 broker queues the rest, on disk if need be. All subscriptions of a client share
                 its window (`receive_max`), so one that is never read stops the others; use
                 another client for it, or another choice. QoS 0 has no acknowledgement: beyond
                 `inbox_max` the newest is dropped.
    drop-oldest  acknowledge at once; beyond `inbox_max`, drop the oldest
    drop-newest  acknowledge at once; beyond `inbox_max`, drop the newest
    error        acknowledge at once; beyond `inbox_max`, end with SlowConsumer after the inbox

`dropped` counts dropped notifications.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar, get_args

from rove.client.errors import ClientError, SlowConsumer
from rove.client.notifications import Notification, RecentIds, id_of
from rove.mqtt.packets import Publish

if TYPE_CHECKING:
    from rove.client.edge import EdgePolicy
    from rove.client.protocol import DeliveryToken

T = TypeVar("T")
Slow = Literal["wait", "drop-oldest", "drop-newest", "error"]
SLOW: Final[tuple[Slow, ...]] = get_args(Slow)
Listener = Callable[[Notification[T]], object]


class SubscriptionOwner(Protocol):
    """What a subscription needs of its client."""

    def taken(self, delivery: DeliveryToken) -> None:
        """The program has taken a notification, which must now be acknowledged."""

    def leave(self, subscription: Subscription[Any]) -> asyncio.Future[None]:
        """End the subscription at the broker."""


class Subscription(Generic[T]):
    """One subscription; `Client.subscribe` makes them."""

    def __init__(
        self,
        owner: SubscriptionOwner,
        topic: str,
        filter: str | None,
        read: Callable[[Notification[Any]], T],
        *,
        slow: Slow,
        inbox_max: int,
        seen_max: int,
        policy: EdgePolicy | None = None,
    ) -> None:
        self.topic = topic
        self.filter = filter
        self.slow = slow
        self.inbox_max = inbox_max
        self.dropped = 0
        """Notifications that were dropped because the program did not take them in time."""
        self.duplicates = 0
        """Notifications that arrived again, and which the program did not get again."""
        self.received = 0
        """Notifications that arrived, without duplicates."""
        self.identifier = 0
        """The subscription identifier, once it was made; equal subscriptions share it."""
        self.policy = policy
        """The policy that runs here, on notifications; see `rove.client.edge`."""
        self._owner = owner
        self._read = read
        self._seen = RecentIds(seen_max)
        self._inbox: deque[Notification[T]] = deque()
        self._listener: Listener[T] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._ended = False
        self._error: ClientError | None = None

    # -- taking ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification[T]:
        while not self._inbox:
            if self._ended:
                raise self._error or StopAsyncIteration
            await self._arrival(None)
        return self._take()

    async def batch(
        self, count_max: int | None = None, timeout_s: float | None = None
    ) -> list[Notification[T]]:
        """All waiting notifications, at least one; none after the time limit or at the end of the
        subscription."""
        if not self._inbox and not self._ended:
            await self._arrival(timeout_s)
        if not self._inbox and self._error is not None:
            raise self._error
        count = len(self._inbox) if count_max is None else min(count_max, len(self._inbox))
        return [self._take() for _ in range(count)]

    def take(self) -> list[Notification[T]]:
        """All waiting notifications, perhaps none."""
        return [self._take() for _ in range(len(self._inbox))]

    def listen(self, listener: Listener[T] | None) -> None:
        """Call this for every notification, waiting ones first; None to iterate again.

        It is called from the event loop and must not block it. An exception of it is reported to
        the loop's exception handler, and does not keep the next notification from coming.
        """
        self._listener = listener
        while self._listener is not None and self._inbox:
            self._call(self._listener, self._take())

    @property
    def waiting(self) -> int:
        """Notifications that have come and were not taken yet."""
        return len(self._inbox)

    @property
    def is_ended(self) -> bool:
        """True once nothing more will come."""
        return self._ended

    def _take(self) -> Notification[T]:
        notification = self._inbox.popleft()
        if (delivery := notification._delivery) is not None:
            notification._delivery = None
            self._owner.taken(delivery)
        return notification

    async def _arrival(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        self._waiting.append(arrival)
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, arrival)
        try:
            await arrival
        finally:
            if timer is not None:
                timer.cancel()
            if arrival in self._waiting:
                self._waiting.remove(arrival)

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for arrival in waiting:
            _wake(arrival)

    # -- ending ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Unsubscribe. What has come can still be taken; then the loop over it ends."""
        if not self._ended:
            self.end(None)
            for notification in self._inbox:  # or they would hold back what others have taken
                if (delivery := notification._delivery) is not None:
                    notification._delivery = None
                    self._owner.taken(delivery)
            await self._owner.leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def end(self, error: ClientError | None) -> None:
        """For the client: nothing more will come, because of that error if there is one."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake_all()

    # -- arriving --------------------------------------------------------------------------------

    def arrive(self, publish: Publish, delivery: DeliveryToken | None) -> int:
        """For the client: take what came. How often it has to be taken before it is acknowledged.

        That is once, or never; more often if a policy has made several of it.
        """
        if self._ended:
            return 0
        id = id_of(publish)
        # The payload counts too: who publishes again under an id has something new to say.
        if id is not None and not self._seen.is_new((id, hash(publish.payload))):
            self.duplicates += 1
            return 0
        self.received += 1
        if self.policy is None:
            return self._put(publish, id, delivery)
        outputs = self.policy.arrived(publish, self.identifier)
        return sum(self._put(each, id, delivery) for each in outputs)

    def _put(self, publish: Publish, id: str | None, delivery: DeliveryToken | None) -> bool:
        """Hand it over, or have it wait. True if it will be acknowledged only when taken."""
        if self._ended:
            return False
        if self._listener is not None:
            self._call(self._listener, Notification(publish, id, self._read))
            return False
        if self.slow == "wait" and delivery is not None:
            self._inbox.append(Notification(publish, id, self._read, delivery))
            held = True
        else:
            held = False
            if len(self._inbox) < self.inbox_max or self._make_room():
                self._inbox.append(Notification(publish, id, self._read))
        if self._waiting:
            self._wake_all()
        return held

    def _make_room(self) -> bool:
        """The inbox is full: whether there is room after all for one more."""
        self.dropped += 1
        if self.slow == "drop-oldest":
            self._inbox.popleft()
            return True
        if self.slow == "error":
            text = f"{self.inbox_max} notifications on {self.topic!r} waited, and one more came"
            self.end(SlowConsumer(f'{text}; take them faster, or choose another slow="…"'))
            self._owner.leave(self)
        return False

    def _call(self, listener: Listener[T], notification: Notification[T]) -> None:
        try:
            listener(notification)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"a listener on {self.topic!r} failed", "exception": error}
            )

    def __repr__(self) -> str:
        text = "" if self.filter is None else f", filter={self.filter!r}"
        return f"Subscription({self.topic!r}{text})"


def _wake(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)
