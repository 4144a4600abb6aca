"""A data folder as a busy broker leaves it, and how long a start on it takes.

The rows are written through the store itself, which takes seconds; publishing them would take
minutes. What is written is what a broker would have written: sessions that are away, each with
its subscriptions, all with texts, and its queue. What a broker saves beside the store, so that
it need not read those texts again, the first start makes; it is measured without, the next with.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from rove.broker.storage.journal import Changes
from rove.broker.storage.records import (
    PublicationRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    encoded,
    queue_key,
)
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Connack, Connect
from rove.serve.disk.store import Store
from rove.testing.broker_processes import (
    HOST,
    START_S_MAX,
    BrokerProcessError,
    await_ports,
    cpu_seconds,
    rove_starting,
)
from rove.testing.ports import free_port

_AWAY_S: Final = 7 * 24 * 3_600
_COMMIT_ROWS: Final = 100_000
_POLL_S: Final = 0.01
_X_MAX: Final = 1_000


class Folder(msgspec.Struct, frozen=True):
    """How much is in it."""

    sessions: int = 1_000
    subscriptions: int = 100_000
    notifications: int = 1_000_000
    receivers: int = 10
    """Sessions that each publication waits for."""
    payload_bytes: int = 256


class Restart(msgspec.Struct, frozen=True):
    """What a start took, from the call that made the process to the first CONNACK."""

    seconds: float
    cpu_s: float


def fill(folder: Path, what: Folder) -> None:
    """Write a data folder."""
    with Store.open(folder, "process") as store:
        rows = _Rows(store)
        now = time.time()
        for number in range(what.sessions):
            rows.put(
                "sessions", f"client-{number}", SessionRow(number, 5, _AWAY_S, None, None, now)
            )
        for number in range(what.subscriptions):
            rows.put("subscriptions", number, _subscription(number, what, now))
        payload = b'{"x":41,"pad":"' + b"x" * (what.payload_bytes - 17) + b'"}'
        for number in range(what.notifications):
            publication, receiver = divmod(number, what.receivers)
            if not receiver:
                sent = PublicationRow("air/zagreb", payload, 1, "publisher", f"p-{number}", now)
                rows.put("publications", publication + 1, sent)
            session = (publication * what.receivers + receiver) % what.sessions
            key = queue_key(session, number // what.sessions)
            rows.put("queue", key, QueueRow(publication + 1, 1, False, (1,)))
        rows.commit()
        store.checkpoint()


def _subscription(number: int, what: Folder, now: float) -> SubscriptionRow:
    low = number * _X_MAX // what.subscriptions
    text = f"x >= {low} AND x < {low + 10} AND NO2 > {number % 100} AND lat BETWEEN 45 AND 46"
    client, identifier = number % what.sessions, number // what.sessions + 1
    return SubscriptionRow(
        f"client-{client}",
        "air/#",
        1,
        no_local=False,
        retain_as_published=False,
        identifier=identifier,
        accepted_at=now,
        text=text,
        evolve="exact",
        filter_number=1,
    )


class _Rows:
    """Commits rows in large groups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = Changes()
        self._waiting = 0

    def put(self, table: str, key: int | str, row: msgspec.Struct) -> None:
        self._changes.put(table, key, encoded(row))
        self._waiting += 1
        if self._waiting >= _COMMIT_ROWS:
            self.commit()

    def commit(self) -> None:
        self._store.commit(self._changes)
        self._changes, self._waiting = Changes(), 0


def restart(folder: Path, what: Folder) -> Restart:
    """Start a broker on `data` of the folder; everything in it has to be there again."""
    port = free_port()
    start = time.perf_counter()
    with rove_starting(folder, port) as broker:
        first_connack(port, lambda: broker.process.poll() is None)
        found = Restart(time.perf_counter() - start, cpu_seconds(broker.pid))
        await_ports(broker)
        metrics = broker.metrics()
    for name, wanted in (
        ("rove_subscriptions", what.subscriptions),
        ("rove_queued_messages", what.notifications),
    ):
        if metrics[name] != wanted:
            raise BrokerProcessError(
                f"{name} is {metrics[name]:,.0f} after a restart, not {wanted:,}"
            )
    return found


def first_connack(port: int, is_alive: Callable[[], bool]) -> None:
    """Knock until somebody opens."""
    end = time.monotonic() + START_S_MAX
    while is_alive() and time.monotonic() < end:
        try:
            with socket.create_connection((HOST, port), timeout=START_S_MAX) as one:
                one.sendall(encode(Connect("first")))
                (answer,) = PacketDecoder(version=5, from_server=True).feed(one.recv(4_096))
        except ConnectionError:
            time.sleep(_POLL_S)
            continue
        if isinstance(answer, Connack) and not answer.reason:
            return
        raise BrokerProcessError(f"the first client was not let in: {answer}")
    raise BrokerProcessError("the broker did not start again")
