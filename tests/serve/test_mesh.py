"""Networks of real brokers on loopback: joining, refusals, cuts, restarts and access rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rove
from rove.broker.access import Identity
from rove.mqtt.encoder import encode
from rove.mqtt.packets import V5, Connect, Filter, Publish, Subscribe
from rove.serve.mesh import Dial, Mesh, _next_epoch, _packet_end, _publications_in
from rove.serve.passwords import set_password
from rove.serve.server import Server
from rove.serve.settings import (
    AccessSettings,
    Config,
    DataSettings,
    ListenSettings,
    MeshSettings,
    TlsSettings,
)
from rove.testing.ports import free_port
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running

PEM = Path(__file__).parent / "certificates"


class Network:
    """Brokers by name, each with a port and a folder that it keeps over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Running] = {}
        self._ports: dict[str, int] = {}

    def port(self, name: str) -> int:
        return self._ports.setdefault(name, free_port())

    def start(self, name: str, *join: str, called: str | None = None, **sections: Any) -> Running:
        """Start a broker that joins those brokers; `called` is its name if it is another one."""
        urls = tuple(url if ":" in url else f"127.0.0.1:{self.port(url)}" for url in join)
        mesh = sections.pop("mesh", MeshSettings())
        mesh = msgspec.structs.replace(mesh, name=name if called is None else called, join=urls)
        config = Config(
            listen=ListenSettings(mqtt_port=self.port(name), http_port=0),
            data=DataSettings(folder=str(self.folder / name), durability="process"),
            mesh=mesh,
        )
        running = Running(msgspec.structs.replace(config, **sections))
        self.running[name] = running
        return running

    def mesh(self, name: str) -> Mesh:
        return _mesh(self.running[name].server)

    def url(self, name: str) -> str:
        return f"mqtt://127.0.0.1:{self.port(name)}"

    def until(self, name: str, holds: Callable[[Server], Any]) -> None:
        """Wait until something holds at a broker."""
        end = time.monotonic() + PATIENCE_S
        while not self.running[name].look(holds):
            assert time.monotonic() < end
            time.sleep(0.005)

    def until_joined(self, *names: str) -> None:
        """Wait until each of these has a session with all others."""
        for name in names:
            self.until(
                name, lambda server: _sessions(server) >= {*names} - {_mesh(server).node.name}
            )

    def until_wants(self, name: str, at: str, topic_filter: str) -> None:
        """Wait until one broker has asked another for a topic filter."""
        self.until(
            at,
            lambda server: any(
                one.topic_filter == topic_filter
                for session in server.shell.broker.context.brokers.values()
                if session.broker == name
                for one in session.subscriptions.values()
            ),
        )

    def dial(self, name: str) -> Dial:
        """The only broker that this one joins."""
        (dial,) = self.mesh(name).dials.values()
        return dial

    def trouble(self, name: str) -> str:
        """Why the only broker that this one joins is not joined."""
        self.until(name, lambda _: self.dial(name).trouble)
        return self.dial(name).trouble

    def cut(self, name: str) -> None:
        """Break all links of a broker."""

        def abort(server: Server) -> None:
            for connection in _mesh(server)._connections.values():
                assert connection.transport is not None
                connection.transport.abort()

        self.running[name].look(abort)

    def stop(self, name: str) -> None:
        self.running.pop(name).stop()

    def close(self) -> None:
        for name in list(self.running):
            self.stop(name)


def _mesh(server: Server) -> Mesh:
    assert server.mesh is not None
    return server.mesh


def _sessions(server: Server) -> set[str]:
    """The brokers that a broker is connected with."""
    brokers = server.shell.broker.context.brokers.values()
    return {session.broker for session in brokers if session.link is not None}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with closing(Network(tmp_path)) as network:
        yield network


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


async def publish(url: str, topic: str, *values: object, qos: int = 1, **options: Any) -> None:
    async with rove.connect(url, **options) as client:
        for value in values:
            await client.publish(topic, value, qos=qos)


async def subscribe_and_leave(url: str, topic_filter: str, **options: Any) -> None:
    client = await rove.connect(url, client_id="away", session_expiry_s=600)
    await client.subscribe(topic_filter, **options)
    await client.close()


async def come_back(url: str, topic_filter: str, count: int, **options: Any) -> list[Any]:
    """What waits for the client, and comes until there are so many."""
    client = await rove.connect(url, client_id="away", session_expiry_s=600)
    found: list[Any] = []
    arrived = asyncio.Event()

    def take(notification: Any) -> None:
        found.append(notification.value)
        if len(found) >= count:
            arrived.set()

    (await client.subscribe(topic_filter, **options)).listen(take)
    await arrived.wait()
    await client.close()
    return found


def users(folder: Path, **passwords: str) -> AccessSettings:
    """A password file with these users."""
    path = folder / "users"
    for user, password in passwords.items():
        set_password(path, user, password.encode())
    return AccessSettings(password_file=str(path))


def password_file(folder: Path, password: str) -> str:
    path = folder / f"password-{password}"
    path.write_text(f"{password}\n", encoding="utf-8")
    return str(path)


# --- publications ---------------------------------------------------------------------------------


def test_a_client_at_one_end_gets_what_is_published_at_the_other(network: Network) -> None:
    network.start("b1")
    network.start("b2", "b1")
    network.start("b3", "b2")
    network.until_joined("b1", "b2", "b3")
    run(subscribe_and_leave(network.url("b1"), "air/#", filter="NO2 > 40"))
    network.until_wants("b1", "b3", "air/#")
    run(publish(network.url("b3"), "air/zagreb", {"NO2": 39}, {"NO2": 41}, {"NO2": 42}))
    found = run(come_back(network.url("b1"), "air/#", 2, filter="NO2 > 40"))
    assert found == [{"NO2": 41}, {"NO2": 42}]


def test_what_is_published_while_a_link_is_cut_arrives_once_and_in_order(network: Network) -> None:
    network.start("b1")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    run(subscribe_and_leave(network.url("b1"), "air/#"))
    network.until_wants("b1", "b2", "air/#")
    for first in (0, 10, 20):
        network.cut("b2")
        run(publish(network.url("b2"), "air/zagreb", *range(first, first + 10)))
    assert run(come_back(network.url("b1"), "air/#", 30)) == list(range(30))


def test_what_waits_for_a_broker_that_is_down_arrives_after_its_restart(network: Network) -> None:
    network.start("b1")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    run(subscribe_and_leave(network.url("b1"), "air/#"))
    network.until_wants("b1", "b2", "air/#")
    network.stop("b1")
    run(publish(network.url("b2"), "air/zagreb", 1, 2, 3))
    network.stop("b2")
    network.start("b2", "b1")
    network.start("b1")
    assert run(come_back(network.url("b1"), "air/#", 3)) == [1, 2, 3]


def test_two_brokers_that_join_each_other_keep_one_link(network: Network) -> None:
    network.start("b1", "b2")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    network.until("b1", lambda server: len(_mesh(server)._connections) == 1)
    network.until("b1", lambda _: not network.dial("b1").trouble)


# --- refusals -------------------------------------------------------------------------------------


def test_a_wrong_password_is_refused(network: Network, tmp_path: Path) -> None:
    network.start("b1", access=users(tmp_path, broker="right"))
    mesh = MeshSettings(password_file=password_file(tmp_path, "wrong"))
    network.start("b2", f"mqtt://broker@127.0.0.1:{network.port('b1')}", mesh=mesh)
    assert network.trouble("b2") == "it refuses: the user name or the password is wrong"


def test_a_user_without_the_role_is_refused(network: Network, tmp_path: Path) -> None:
    network.start("b1", access=users(tmp_path, ana="secret"))
    mesh = MeshSettings(password_file=password_file(tmp_path, "secret"))
    network.start("b2", f"mqtt://ana@127.0.0.1:{network.port('b1')}", mesh=mesh)
    reason = "user ana may not join as a broker; the access rules must allow it `broker`"
    assert network.trouble("b2") == f"it refuses: {reason}"


def test_a_name_that_is_taken_is_refused(network: Network) -> None:
    network.start("b1")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    network.start("another", "b1", called="b2")
    taken = "another broker of this network is called b2; choose another name"
    assert taken in network.trouble("another")
    network.until_joined("b1", "b2")


def test_a_broker_that_joins_itself_is_refused(network: Network) -> None:
    network.start("b1", "b1")
    assert "itself" in network.trouble("b1")


def test_a_broker_without_a_network_lets_none_join(network: Network) -> None:
    network.start("b1", called="")
    network.start("b2", "b1")
    assert "this broker is in no network (it has no [mesh] name)" in network.trouble("b2")


def test_without_a_secret_only_brokers_of_this_machine_join(network: Network) -> None:
    server = network.start("b1").server
    anonymous = Identity(None, "broker:b2")
    assert server._identity_of_broker(anonymous, "127.0.0.1") == anonymous
    assert server._identity_of_broker(anonymous, "192.0.2.1") is None
    user = Identity("b2", "broker:b2", "password")
    assert server._identity_of_broker(user, "192.0.2.1") == user


def test_nothing_but_a_broker_is_joined(network: Network) -> None:
    async def answer(answers: bytes) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answers)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        running = network.start("b1", f"127.0.0.1:{port}")
        found = await asyncio.to_thread(network.trouble, "b1")
        await asyncio.to_thread(running.stop)
        server.close()
        await server.wait_closed()
        return found

    no_connack = "it does not answer with CONNACK; is this the MQTT port of a broker?"
    assert run(answer(b"SSH-2.0-OpenSSH_9.2\r\n" * 20)) == no_connack
    assert run(answer(b"\xff\xff\xff\xff\xff\xff")) == no_connack
    assert run(answer(b"\x20\x03\x00\x00\x00")) == "it is not a Rove broker"


def test_bytes_that_are_no_message_close_the_link_only(network: Network) -> None:
    network.start("b1")

    async def intrude() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", network.port("b1"))
        writer.write(encode(Connect("broker:evil"), V5))
        await reader.read(10)
        writer.write(b"\xff" * 100)
        rest = await reader.read()
        writer.close()
        return rest

    assert run(intrude())
    network.start("b2", "b1")
    network.until_joined("b1", "b2")


# --- rights ---------------------------------------------------------------------------------------


def test_only_topics_that_the_rules_allow_cross(network: Network, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(
        "allow user east broker\nallow user east publish,subscribe open/#\n"
        "allow user ana publish,subscribe #\n",
        encoding="utf-8",
    )
    access = users(tmp_path, east="secret", ana="secret")
    access = msgspec.structs.replace(access, acl_file=str(rules))
    network.start("b1", access=access)
    mesh = MeshSettings(password_file=password_file(tmp_path, "secret"))
    network.start("b2", f"mqtt://east@127.0.0.1:{network.port('b1')}", mesh=mesh)
    network.until_joined("b1", "b2")
    run(subscribe_and_leave(network.url("b2"), "#"))
    network.until_wants("b2", "b1", "#")
    ana = f"mqtt://ana:secret@127.0.0.1:{network.port('b1')}"
    run(publish(ana, "closed/door", 1))
    run(publish(ana, "open/door", 2))
    assert run(come_back(network.url("b2"), "#", 1)) == [2]
    run(subscribe_and_leave(ana, "#"))
    network.until_wants("b1", "b2", "#")
    run(publish(network.url("b2"), "closed/door", 3))
    run(publish(network.url("b2"), "open/door", 4))
    assert run(come_back(ana, "#", 1)) == [4]


def test_the_queue_of_a_broker_that_is_gone_can_be_ended(network: Network) -> None:
    first = network.start("b1")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    network.stop("b2")
    network.until("b1", lambda server: not _sessions(server))
    assert first.ask("DELETE", "/sessions/broker:b2").json == {"client": "broker:b2", "ended": True}
    assert first.ask("DELETE", "/sessions/broker:b2").status == 404
    assert not first.look(lambda server: server.shell.broker.context.brokers)
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    refused = first.ask("DELETE", "/sessions/broker:b2")
    reason = "client ids that begin with broker: are those of other brokers"
    assert (refused.status, refused.json["error"]) == (403, reason)
    assert first.post("/sessions/broker:b9/subscriptions", {"topic": "a"}).status == 403


def test_brokers_join_with_certificates(network: Network) -> None:
    tls = TlsSettings(
        certificate=str(PEM / "server.pem"),
        key=str(PEM / "server.key"),
        client_ca=str(PEM / "authority.pem"),
    )
    rules = network.folder / "rules"
    rules.write_text("allow user * broker\nallow user * publish,subscribe #\n", encoding="utf-8")
    port = free_port()
    listen = ListenSettings(mqtt_port="off", mqtts_port=port, http_port=0)
    access = AccessSettings(acl_file=str(rules))
    network.start("b1", listen=listen, tls=tls, access=access)
    mesh = MeshSettings(
        ca=str(PEM / "authority.pem"),
        certificate=str(PEM / "client.pem"),
        key=str(PEM / "client.key"),
    )
    network.start("b2", f"mqtts://localhost:{port}", mesh=mesh)
    network.until_joined("b1", "b2")
    network.start("b3", f"mqtts://localhost:{port}")
    assert network.trouble("b3").startswith("its certificate is not trusted: ")
    network.start("b4", f"mqtts://localhost:{port}", mesh=MeshSettings(ca=mesh.ca))
    reason = "the user name or the password is wrong (the URL names no user)"
    assert network.trouble("b4") == f"it refuses: {reason}"


# --- at run time ----------------------------------------------------------------------------------


def test_a_broker_that_was_disconnected_stays_so_until_it_is_joined(network: Network) -> None:
    network.start("b1")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    assert network.running["b1"].look(lambda server: _mesh(server).disconnect("b2"))
    assert "b1 was told to disconnect from b2" in network.trouble("b2")
    assert not network.running["b1"].look(lambda server: _mesh(server).disconnect("b3"))
    url = f"127.0.0.1:{network.port('b2')}"
    network.running["b1"].look(lambda server: _mesh(server).join(url))
    network.until_joined("b1", "b2")


def test_a_broker_that_leaves_another_is_not_joined_by_it(network: Network) -> None:
    network.start("b1", "b2")
    network.start("b2", "b1")
    network.until_joined("b1", "b2")
    assert network.running["b1"].look(lambda server: _mesh(server).disconnect("b2"))
    assert "b1 was told to disconnect from b2" in network.trouble("b2")
    network.until("b1", lambda server: not _mesh(server).dials and not _sessions(server))


def test_the_network_over_http(network: Network) -> None:
    first = network.start("b1")
    second = network.start("b2")
    assert second.post("/mesh/links", {"url": network.url("b1")}).status == 202
    network.until_joined("b1", "b2")
    run(subscribe_and_leave(network.url("b1"), "air/#", filter="NO2 > 40"))
    network.until_wants("b1", "b2", "air/#")
    run(publish(network.url("b2"), "air/zagreb", {"NO2": 41}, {"NO2": 39}))
    network.until("b1", lambda server: server.shell.broker.counters.forwards_received == 1)
    status = first.get("/mesh").json
    (broker,), (link,) = status["brokers"], status["links"]
    assert (status["name"], status["subscriptions"], status["asks_for"]) == ("b1", 1, 1)
    assert (broker["name"], broker["is_connected"], broker["received"]) == ("b2", True, 1)
    assert (link["name"], link["state"], link["outgoing"]) == ("b2", "joined", False)
    status = second.get("/mesh").json
    (broker,), (join,) = status["brokers"], status["joins"]
    assert (broker["asks_for"], broker["sent"], broker["hops"]) == (1, 1, 1)
    assert (join["state"], join["name"], join["trouble"]) == ("joined", "b1", "")
    figures = second.get("/metrics").text.splitlines()
    assert 'rove_mesh_sent_total{peer="b1"} 1.0' in figures
    assert "rove_mesh_links 1" in figures
    assert second.ask("DELETE", "/mesh/links/b1").json == {"name": "b1", "disconnected": True}
    network.until("b1", lambda server: not _sessions(server))
    assert second.get("/mesh").json["brokers"][0]["is_connected"] is False


def test_what_http_refuses(network: Network) -> None:
    network.start("b1")
    running = network.running["b1"]
    refused = running.ask("DELETE", "/mesh/links/b9")
    assert (refused.status, refused.json["error"]) == (404, "there is no link to 'b9'")
    refused = running.post("/mesh/links", {"url": "ws://localhost"})
    assert refused.status == 400
    assert "brokers are joined at mqtt:// or mqtts://" in refused.json["error"]
    alone = network.start("alone", called="")
    assert alone.get("/mesh").json["error"] == "this broker is in no network"


def test_a_reload_joins_and_leaves(network: Network) -> None:
    network.start("b1")
    network.start("b2")
    config = network.running["b2"].server.config
    joining = MeshSettings(name="b2", join=(f"127.0.0.1:{network.port('b1')}",))
    network.running["b2"].look(
        lambda server: server.reload(msgspec.structs.replace(config, mesh=joining))
    )
    network.until_joined("b1", "b2")
    network.running["b2"].look(lambda server: server.reload(config))
    network.until("b1", lambda server: not _sessions(server))


# --- small parts ----------------------------------------------------------------------------------


def test_the_epoch_grows_with_every_start_whatever_the_clock_does(tmp_path: Path) -> None:
    assert _next_epoch(tmp_path, 1000.5) == 1000
    assert _next_epoch(tmp_path, 500.0) == 1001
    assert _next_epoch(tmp_path, 2000.0) == 2000


def test_publications_are_counted_once() -> None:
    publish = encode(Publish("a", b"x" * 200, 2, packet_id=1), V5)
    again = encode(Publish("a", b"x" * 200, 2, packet_id=1, dup=True), V5)
    subscribe = encode(Subscribe(1, (Filter("a", 2),)), V5)
    assert _publications_in(publish + subscribe + again + publish) == 2
    assert _publications_in(b"") == 0


def test_the_end_of_a_packet_is_found_once_it_is_complete() -> None:
    connack = b"\x20\x03\x00\x00\x00"
    for size in range(len(connack)):
        assert _packet_end(bytearray(connack[:size])) == 0
    assert _packet_end(bytearray(connack + b"more")) == len(connack)
