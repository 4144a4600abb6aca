"""A whole broker: opens its data folder, restores its state, listens, and stops in order.

It is made from a configuration. All stored state is read into memory before the first connection is
accepted. Compiled kernels are loaded when they are first needed; until then the matcher uses NumPy.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from rove import __version__
from rove.base.files import PASSAGE_MODES
from rove.base.http import is_loopback
from rove.base.processes import cores
from rove.broker.access import Identity
from rove.broker.broker import Broker
from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.sessions.session import BROKER_PREFIX, Link
from rove.broker.storage.journal import TABLES, Key
from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.view import Layout
from rove.errors import RoveError
from rove.lake.storage import folder_of
from rove.match import engine
from rove.mqtt.packets import Connect
from rove.serve.config import changes, check, listeners, load_access
from rove.serve.disk.data_folder import IndexFile
from rove.serve.disk.lake import LakeAppender, LakeWriter
from rove.serve.disk.store import Store, Writer
from rove.serve.http.authentication import HttpAuthenticator
from rove.serve.http.routes import Interface
from rove.serve.http.web import Web
from rove.serve.http.websocket import MqttWebSocket
from rove.serve.listener import MqttConnection, listen, stop_listening
from rove.serve.logs import events, install
from rove.serve.mesh import Mesh
from rove.serve.metrics.delays import WINDOW_S, Delays
from rove.serve.metrics.recording import MetricsLog, MetricsRecording, check_place
from rove.serve.passwords import close_to_others
from rove.serve.settings import Config, MatcherSettings
from rove.serve.shell import Shell, wall_clock
from rove.serve.tls import load_certificate, server_context, user_of, warnings
from rove.serve.workers.matchers import FOLDER as MATCHERS_FOLDER
from rove.serve.workers.matchers import MatcherPool
from rove.serve.workers.policy_workers import PolicyWorkers, memory_bytes_of

log = events("server")

INDEX_SAVED_S = 5.0
INDEX_CHANGES_MIN = 1_000
"""A restart parses fewer new subscriptions than this again, in some 50 ms."""
DRAIN_S = 10.0
"""How long stopping waits for the disk."""
_loading_kernels = threading.Lock()
"""Two threads that import one package in different orders can deadlock."""


class ServerError(RoveError):
    """The broker cannot start."""


class Server:
    """One broker, as a configuration describes it."""

    def __init__(
        self,
        config: Config,
        now: Callable[[], float] = wall_clock,
        *,
        accept_loss: bool = False,
    ) -> None:
        """`now` is the clock of the broker.

        A database that has lost acknowledged changes is refused unless `accept_loss`.
        """
        self.config = config
        self._accept_loss = accept_loss
        self._now = now
        self.ports: dict[str, int] = {}
        """The actual port of each listener."""
        self.shell: Shell
        self._is_started = False
        self._ends = AsyncExitStack()
        """Ends everything that was started, in reverse order."""
        self._web: Web
        self._store: Store
        self._writer: Writer
        self._lake: LakeWriter | None = None
        self._workers: PolicyWorkers | None = None
        self.mesh: Mesh | None = None
        """None if this broker is in no network."""
        self._index_file: IndexFile
        self._indexed = 0
        """How many subscriptions had been made when the index was last saved."""
        self._saving: asyncio.Task[None] | None = None
        self._contexts: list[ssl.SSLContext] = []
        users = config.access.password_file
        closed = close_to_others(Path(users)) if users else None
        self._door, self._rules, self._access_warnings = load_access(config)
        if closed:
            self._access_warnings.append(closed)
        check_place(config.metrics.database)

    # -- starting ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the state, then listen; if that fails, everything that was started is ended."""
        try:
            await self._start()
        except BaseException:
            await self._ends.aclose()
            raise

    async def _start(self) -> None:
        self._warn()
        started = time.perf_counter()
        loop = asyncio.get_running_loop()
        for ranked in (False, True):
            warming = threading.Thread(
                target=self._warm_up, args=(loop, ranked), name="rove-warm-up", daemon=True
            )
            engine.when_wanted(warming.start, ranked=ranked)
        data = self.config.data
        self._store = Store.open(
            Path(data.folder),
            data.durability,
            accept_loss=self._accept_loss,
            mode=folder_mode_of(self.config),
        )
        self._ends.callback(self._store.close)
        broker = self._make_broker(loop)
        broker.counters.groups_lost = self._store.mark.groups_lost
        self._index_file = IndexFile(Path(self.config.data.folder))
        self._restore(broker)
        self._writer = Writer(self._store)
        self._ends.push_async_callback(asyncio.to_thread, self._writer.close, DRAIN_S)
        if broker.view.settings.channels:
            self._start_lake(broker)
        is_recorded = bool(self.config.metrics.database)
        window_s = self.config.metrics.every_s if is_recorded else WINDOW_S
        delays = Delays(self._now(), window_s)
        self.shell = Shell(broker, self._writer, self._identify, loop, self._now, delays)
        interface = self._make_web()
        self._ends.push_async_callback(self._end_saving)
        self._ends.push_async_callback(self._web.stop)
        self._ends.push_async_callback(self.shell.stop)
        self._start_metrics(interface)
        if self.config.mesh.name:
            self.mesh = Mesh(self.shell, self.config.mesh, Path(data.folder), loop)
            interface.network = self.mesh
            self._ends.push_async_callback(self.mesh.stop)
        self._ends.push_async_callback(self._web.stop_listening)
        for listener in listeners(self.config):
            await self._listen(listener.name, listener.host, listener.port)
        if self.mesh is not None:
            self.mesh.start()
        self._is_started = True
        self.shell.look_for_merges()
        self._saving = asyncio.create_task(self._keep_index())
        took_ms = (time.perf_counter() - started) * 1000
        log.info(
            "listening",
            **self.ports,
            sessions=len(broker.view.sessions),
            subscriptions=broker.view.subscription_count,
            took_ms=round(took_ms),
        )

    def _warm_up(self, loop: asyncio.AbstractEventLoop, ranked: bool) -> None:
        """Load the kernels in a thread; then let the matcher use them for existing
        subscriptions."""
        with _loading_kernels:
            engine.warm_up(ranked=ranked)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._warmed_up)

    def _warmed_up(self) -> None:
        if self._is_started:
            self.shell.look_for_merges()

    def _make_broker(self, loop: asyncio.AbstractEventLoop) -> Broker:
        elasticity = elasticity_of(self.config.matchers)
        processes = None
        if elasticity.matchers_max:
            folder = Path(self.config.data.folder) / MATCHERS_FOLDER
            processes = MatcherPool(folder, loop, self._wake)
            self._ends.callback(processes.close)
        policies, limits = self.config.policies, None
        if policies.enabled:
            limits = policies.limits
            self._workers = PolicyWorkers(
                policies.processes, loop, self._wake, memory_bytes=memory_bytes_of(limits)
            )
            self._ends.callback(self._workers.close)
        broker = Broker(
            now=self._now(),
            new_name=lambda: secrets.token_hex(8),
            limits=self.config.limits,
            rules=self._rules,
            settings=settings_of(self.config),
            compiled=False,
            matchers=processes,
            elasticity=elasticity,
            policies=limits,
            workers=self._workers,
            isolation=policies.isolation,
        )
        if processes is not None:
            assert broker.coordinator is not None
            processes.listener = broker.coordinator
        if self._workers is not None:
            assert broker.jobs is not None
            self._workers.listener = broker.jobs
        return broker

    def _wake(self) -> None:
        """A matcher or a worker has sent something."""
        self.shell.wake()

    def _restore(self, broker: Broker) -> None:
        # Millions of objects are made and stay: garbage collection would double the time.
        gc.disable()
        try:
            index = self._index_file.load()
            take_up(broker, self._store, index)
        finally:
            gc.enable()
        if index is None:
            # All expressions were parsed: save the index soon, so that the next start need not.
            self._indexed = -broker.view.subscription_count

    def _warn(self) -> None:
        for warning in check(self.config) + self._access_warnings:
            log.warning(warning)
        if self.config.tls.certificate:
            for warning in warnings(self.config.tls, time.time()):
                log.warning(warning)

    def _start_lake(self, broker: Broker) -> None:
        settings = self.config.lake
        lake = LakeAppender(
            self.config.lake_location,
            rows_per_file=settings.rows_per_file,
            seconds_per_file=settings.seconds_per_file,
            keep_days=settings.keep_days or None,
            keep_bytes=settings.keep_bytes or None,
            readers=settings.readers,
        )
        is_new = not lake.knows_subscriptions
        broker.begin_log(lake.last_position, is_new=is_new, now=self._now())
        self._lake = LakeWriter(lake, self._store, self._writer)
        self._ends.push_async_callback(asyncio.to_thread, self._lake.close, DRAIN_S)

    async def _listen(self, name: str, host: str, port: int) -> None:
        tls = None
        if name in ("mqtts", "https"):
            tls = server_context(self.config.tls)
            self._contexts.append(tls)
        try:
            if name in ("http", "https"):
                self.ports[name] = await self._web.listen(host, port, tls)
                return
            server = await listen(self.shell, host, port, tls)
        except OSError as error:
            where = f"{host}:{port}"
            raise ServerError(f"cannot listen for {name} on {where}: {error.strerror}") from None
        self._ends.push_async_callback(stop_listening, server)
        self.ports[name] = server.sockets[0].getsockname()[1]

    def _make_web(self) -> Interface:
        guests = HttpAuthenticator(lambda: self._door, self.config.tls)
        interface = Interface(self.shell, guests, self._troubles)
        self._web = Web(self.shell, guests, interface.application)
        return interface

    def _start_metrics(self, interface: Interface) -> None:
        """Record metrics in the lake, if a channel keeps them, and in the database."""
        channels = self.shell.broker.view.settings.channels
        keepers = [channel.name for channel in channels if "metrics" in channel.keep]
        if keepers:
            every_s = self.config.lake.metrics_every_s
            kept = MetricsLog(
                self.shell, lambda: interface.metrics_now(self._web), keepers, every_s
            )
            kept.start(self._now)
            self._ends.push_async_callback(kept.stop)
        if self.config.metrics.database:
            recording = MetricsRecording(
                self.config.metrics, lambda: interface.metrics_now(self._web)
            )
            interface.recorder_state = recording.state
            recording.start(self._now)
            self._ends.push_async_callback(recording.stop)

    def _troubles(self) -> list[str]:
        troubles = []
        if self._writer.health is not None:
            troubles.append("changes cannot be written to the disk")
        if self._lake is not None and self._lake.health is not None:
            troubles.append("the lake cannot be written")
        return troubles

    async def _identify(self, link: Link, packet: Connect) -> Identity | None:
        address = link.name.rpartition(":")[0].strip("[]")
        user = packet.user_name
        peer = link.peer
        certificate_user = None
        if isinstance(peer, MqttConnection | MqttWebSocket):
            certificate_user = user_of(peer.certificate(), self.config.tls)
        identity = await asyncio.to_thread(
            self._door.identify,
            packet.client_id,
            address,
            user,
            packet.password,
            certificate_user,
        )
        if identity is not None and packet.client_id.startswith(BROKER_PREFIX):
            if isinstance(peer, MqttWebSocket):
                log.warning("a broker may not join over a WebSocket", address=address)
                return None
            return self._identity_of_broker(identity, address)
        return identity

    def _identity_of_broker(self, identity: Identity, address: str) -> Identity | None:
        """Without a secret, a broker of this machine may join while there are no users."""
        is_open = is_loopback(address) and not self.config.has_users
        if identity.source != "anonymous" or is_open:
            return identity
        log.warning("a broker without a user name may not join", address=address)
        return None

    # -- while it runs -------------------------------------------------------------------------

    def reload(self, config: Config) -> None:
        """Apply the settings that can change at run time; the log names those that need a
        restart."""
        check(config)
        door, rules, self._access_warnings = load_access(config)
        for context in self._contexts:
            load_certificate(context, config.tls)
        changed, needs_restart = changes(self.config, config)
        self._door, self._rules, self.config = door, rules, config
        policies = config.policies.limits
        self.shell.broker.reconfigure(
            config.limits, rules, settings_of(config).is_guarded, policies
        )
        if self._workers is not None:
            self._workers.memory_bytes = memory_bytes_of(policies)
        if "matchers.layout" in changed:
            self._switch_layout(config.matchers.layout)
        if self.mesh is not None:
            self.mesh.configure(config.mesh)
            self.mesh.set_join(config.mesh.join)
        install(config.log)
        self._warn()
        log.info("reloaded", changed=", ".join(changed) or "nothing")
        if needs_restart:
            log.warning("needs a restart to take effect", settings=", ".join(needs_restart))

    def _switch_layout(self, layout: Layout) -> None:
        why = self.shell.broker.rearrange_matchers("layout", self._now(), layout)
        if why:
            log.warning("the layout of the matchers stays", wanted=layout, why=why)
        self.shell.wake()

    async def _keep_index(self) -> None:
        """Save the index whenever enough has changed to slow down a restart."""
        while True:
            await asyncio.sleep(INDEX_SAVED_S)
            broker = self.shell.broker
            changed = broker.counters.subscriptions_made - self._indexed
            if changed >= max(INDEX_CHANGES_MIN, broker.view.subscription_count // 10):
                index = self._taken_index()
                if index is not None:
                    await asyncio.to_thread(self._save_index, index)

    def _taken_index(self) -> bytes | None:
        """The index; None while matchers have it."""
        broker = self.shell.broker
        made = broker.counters.subscriptions_made
        index = broker.saved_index()
        if index is not None:
            self._indexed = made
        return index

    def _save_index(self, index: bytes) -> None:
        try:
            self._index_file.save(index)
        except OSError as error:
            log.warning("the index was not saved; a restart takes longer", reason=str(error))

    async def _end_saving(self) -> None:
        if self._saving is not None:
            self._saving.cancel()
        if self.shell.broker.counters.subscriptions_made > self._indexed:
            self.shell.broker.take_back(self._now())
            index = self._taken_index()
            if index is not None:
                self._save_index(index)

    # -- stopping ------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take no more, tell everybody, and see that everything is on disk."""
        await self._ends.aclose()
        log.info("stopped")


class Tables(Protocol):
    """A store, or a look at one."""

    def load(self, table: str) -> Iterator[tuple[Key, bytes]]:
        """All rows of a table in the order of their keys."""
        ...


def take_up(broker: Broker, tables: Tables, index: memoryview | None) -> None:
    """Have a broker know what was kept; ServerError if it holds what no Rove has written."""
    try:
        broker.restore({table: tables.load(table) for table in TABLES}, index)
    except RoveError:
        raise
    except Exception as error:  # rows that cannot be read may fail anywhere
        raise ServerError(
            f"the database holds rows that this Rove cannot take up"
            f" ({type(error).__name__}: {error}); restore it from a backup, or use the Rove that"
            f" wrote it"
        ) from error


def folder_mode_of(config: Config) -> int:
    """The rights to the data folder: others pass through it to a lake that they may read."""
    folder = Path(config.data.folder).absolute()
    lake = folder_of(config.lake_location)
    is_on_the_way = lake is not None and lake.absolute().is_relative_to(folder)
    return PASSAGE_MODES[config.lake.readers if is_on_the_way else "owner"]


def settings_of(config: Config) -> BrokerSettings:
    """The settings of the broker besides its limits."""
    channels: tuple[LakeStream, ...] = ()
    if config.lake.enabled:
        channels = tuple(
            LakeStream(one.name, one.topics, frozenset(one.keep)) for one in config.lake.channels
        )
    return BrokerSettings(
        is_guarded=bool(config.access.acl_file),
        channels=channels,
        keeps_subscriptions=bool(channels) and config.lake.subscriptions,
        version=__version__,
        topic_text=config.mqtt.topic_text,
        report_s=config.policies.report_s,
        name=config.mesh.name,
    )


def elasticity_of(config: MatcherSettings) -> ElasticitySettings:
    """The broker's settings for matchers."""
    if config.max == "auto":
        count = cores()
        most = max(config.min, count if count > 1 else 0)
    else:
        most = config.max
    return ElasticitySettings(
        layout=config.layout,
        matchers_min=config.min,
        matchers_max=most,
        window_messages=config.window_messages,
        split_below=config.split_below,
        merge_above=config.merge_above,
        pause_s=config.pause_s,
    )
