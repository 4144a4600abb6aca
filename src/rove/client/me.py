"""`client.me`: the subscriber's own variables, which its subscriptions may name as `me.x`.

    client.me["x"] = 3              sent with all changes of this turn of the event loop
    del client.me["x"]              likewise
    await client.me.set(x=1, y=2)   sent at once; returns when the broker has them on disk

The mapping has what this program has set, without variables that an earlier program with the same
client id may have set. It is sent again to a broker that has lost the session, before the
subscriptions are made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from rove.client.errors import ClientError

TOPIC: Final = "$rove/me"
_log = logging.getLogger("rove.client")

Send = Callable[[bytes], "asyncio.Future[Any]"]
"""Publishes a payload to `TOPIC`."""


class Me(MutableMapping[str, Any]):
    """The variables; changes are sent in the order in which they were made."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._values: dict[str, Any] = {}
        self._changes: dict[str, Any] = {}
        self._flush_is_due = False

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            raise ValueError(f"me[{name!r}] = None: to remove a variable, write del me[{name!r}]")
        msgspec.json.encode(value)  # a value that cannot be sent is refused where it is set
        self._values[name] = value
        self._change(name, value)

    def __delitem__(self, name: str) -> None:
        del self._values[name]
        self._change(name, None)

    async def set(self, **variables: Any) -> None:
        """Set variables, or remove them with None; returns when the broker has acknowledged it."""
        for name, value in variables.items():
            if value is not None:
                self[name] = value
            else:
                self._values.pop(name, None)
                self._change(name, None)
        if self._changes:
            await self._send_changes()

    def take(self, changes: Mapping[str, Any], *, told: bool) -> None:
        """For the client: take over what a policy that runs here has set; None removes a
        variable."""
        for name, value in changes.items():
            if value is None:
                self._values.pop(name, None)
            else:
                self._values[name] = value
            if told:
                self._change(name, value)

    def flush(self) -> None:
        """For the client: send changes now, before requests that were made after them."""
        if self._changes:
            self._send_changes().add_done_callback(log_refusal)

    def snapshot(self) -> bytes | None:
        """For the client: all variables, for a broker that has lost the session; None if there are
        none."""
        self._changes.clear()
        return msgspec.json.encode(self._values) if self._values else None

    def _change(self, name: str, value: Any) -> None:
        self._changes[name] = value
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_is_due = False
        self.flush()

    def _send_changes(self) -> asyncio.Future[Any]:
        changes, self._changes = self._changes, {}
        return self._send(msgspec.json.encode(changes))

    def __repr__(self) -> str:
        return f"Me({self._values!r})"


def log_refusal(sent: asyncio.Future[Any]) -> None:
    """Log that an assignment was refused: nobody awaits its result."""
    if not sent.cancelled() and isinstance(error := sent.exception(), ClientError):
        _log.warning("%s", error)
