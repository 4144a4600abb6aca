"""A whole broker: opens its folder, takes up where it left off, listens, and stops in good order.

Made from a configuration. Starting reads everything that was kept into memory before the first
connection is accepted; the compiled kernels are loaded meanwhile and until then the matcher
searches with NumPy.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from pathlib import Path

from rove.broker.access import Identity, Rules
from rove.broker.broker import Broker
from rove.broker.journal import TABLES
from rove.broker.links import Link
from rove.broker.state import Channel, Settings
from rove.errors import RoveError
from rove.match import engine
from rove.mqtt.packets import Connect
from rove.serve.config import Config, check, listeners
from rove.serve.guests import Guests
from rove.serve.http import Interface
from rove.serve.listener import MqttConnection, listen
from rove.serve.passwords import Door, Passwords
from rove.serve.shell import Shell
from rove.serve.store import Store, Writer
from rove.serve.tls import server_context, user_of
from rove.serve.web import Web
from rove.serve.websocket import MqttWebSocket

log = logging.getLogger("rove")

DRAIN_S = 10.0
"""How long stopping waits for the disk."""


class ServerError(RoveError):
    """The broker cannot start."""


class Server:
    """One broker, as a configuration describes it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ports: dict[str, int] = {}
        """The port that each listener really has."""
        self.shell: Shell
        self._servers: list[asyncio.Server] = []
        self._web: Web
        self._store: Store
        self._writer: Writer
        self._door = door_of(config)

    # -- starting ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read what was kept, then listen."""
        for warning in check(self.config):
            log.warning(warning)
        started = time.perf_counter()
        warming = threading.Thread(target=engine.warm_up, name="rove-warm-up", daemon=True)
        warming.start()
        self._store = Store.open(Path(self.config.data.folder), self.config.data.durability)
        broker = Broker(
            now=time.time(),
            new_name=lambda: secrets.token_hex(8),
            limits=self.config.limits,
            rules=rules_of(self.config),
            settings=settings_of(self.config),
            compiled=False,
        )
        broker.restore({table: self._store.load(table) for table in TABLES})
        self._writer = Writer(self._store)
        loop = asyncio.get_running_loop()
        self.shell = Shell(broker, self._writer, self._identify, loop)
        self._web = self._make_web()
        for listener in listeners(self.config):
            await self._listen(listener.name, listener.host, listener.port)
        self.shell.wake()
        took_ms = (time.perf_counter() - started) * 1000
        facts = {**self.ports, "sessions": len(broker.state.sessions), "ms": round(took_ms)}
        log.info("listening", extra={"facts": facts})

    async def _listen(self, name: str, host: str, port: int) -> None:
        tls = server_context(self.config.tls) if name in ("mqtts", "https") else None
        try:
            if name in ("http", "https"):
                self.ports[name] = await self._web.listen(host, port, tls)
                return
            server = await listen(self.shell, host, port, tls)
        except OSError as error:
            where = f"{host}:{port}"
            raise ServerError(f"cannot listen for {name} on {where}: {error.strerror}") from None
        self._servers.append(server)
        self.ports[name] = server.sockets[0].getsockname()[1]

    def _make_web(self) -> Web:
        guests = Guests(lambda: self._door, self.config.tls)
        interface = Interface(self.shell, guests, self._troubles)
        return Web(self.shell, guests, interface.application)

    def _troubles(self) -> list[str]:
        return [] if self._writer.health is None else ["the disk does not take what is to be kept"]

    async def _identify(self, link: Link, packet: Connect) -> Identity | None:
        address = link.name.rpartition(":")[0].strip("[]")
        user = packet.user_name
        peer = link.peer
        certificate_user = None
        if isinstance(peer, MqttConnection | MqttWebSocket):
            certificate_user = user_of(peer.certificate(), self.config.tls)
        return await asyncio.to_thread(
            self._door.identify,
            packet.client_id,
            address,
            user,
            packet.password,
            certificate_user,
        )

    # -- stopping ------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take no more, tell everybody, and see that everything is on disk."""
        for server in self._servers:
            server.close()
        self._web.stop_listening()
        await self.shell.stop()
        await self._web.stop()
        await asyncio.to_thread(self._writer.close, DRAIN_S)
        self._store.close()


def door_of(config: Config) -> Door:
    """Who is let in."""
    path = config.access.password_file
    passwords = Passwords.load(Path(path)) if path else None
    trusts = bool(config.tls.client_ca)
    return Door(passwords, config.access.anonymous, trusts_certificates=trusts)


def rules_of(config: Config) -> Rules:
    """What those may do who are let in."""
    path = config.access.acl_file
    if not path:
        return Rules.without_file(anonymous_is_admin=not config.has_users)
    try:
        return Rules.parse(Path(path).read_text("utf-8"), path)
    except OSError as error:
        raise ServerError(f"cannot read the access rules {path}: {error.strerror}") from None


def settings_of(config: Config) -> Settings:
    """What the broker is told besides its limits."""
    channels: tuple[Channel, ...] = ()
    if config.lake.enabled:
        channels = tuple(
            Channel(one.name, one.topics, frozenset(one.keep)) for one in config.lake.channels
        )
    return Settings(bool(config.access.acl_file), channels, config.mqtt.topic_text)
