"""TLS, passwords, client certificates and access rules, with clients that others have written."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, RunProgram, StartBroker

CERTIFICATES = Path(__file__).parents[1] / "serve" / "certificates"
RULES = """\
allow user alice publish,subscribe home/#
allow user * subscribe news/#
"""


def pem(name: str) -> str:
    return str(CERTIFICATES / name)


class Guarded:
    """A broker with TLS, users and rules, and the port of its TLS listener."""

    def __init__(self, broker: RunningBroker, port: int) -> None:
        self.broker = broker
        self.port = port


@pytest.fixture
def guarded(start_broker: StartBroker, tmp_path: Path, free_port: int) -> Guarded:
    """`alice` has a password, whoever has a certificate of the authority has a name."""
    users, rules = tmp_path / "users", tmp_path / "rules"
    rules.write_text(RULES, encoding="utf-8")
    command = [sys.executable, "-m", "rove", "passwd", str(users), "alice", "--stdin"]
    subprocess.run(command, input=b"secret\n", check=True, capture_output=True)
    broker = start_broker(
        ROVE_LISTEN__MQTTS_PORT=str(free_port),
        ROVE_TLS__CERTIFICATE=pem("server.pem"),
        ROVE_TLS__KEY=pem("server.key"),
        ROVE_TLS__CLIENT_CA=pem("authority.pem"),
        ROVE_ACCESS__PASSWORD_FILE=str(users),
        ROVE_ACCESS__ACL_FILE=str(rules),
    )
    return Guarded(broker, free_port)


def connect(guarded: Guarded, *, certificate: str | None = None, **user: Any) -> tuple[Client, Any]:
    """A paho client, and what CONNACK answered."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    context = ssl.create_default_context(cafile=pem("authority.pem"))
    if certificate is not None:
        context.load_cert_chain(pem(f"{certificate}.pem"), pem(f"{certificate}.key"))
    client.tls_set_context(context)
    if user:
        client.username_pw_set(user["name"], user.get("password"))
    answers: Queue[Any] = Queue()
    client.on_connect = lambda _c, _u, _f, code, _p: answers.put(code)
    client.connect("localhost", guarded.port)
    client.loop_start()
    answer = answers.get(timeout=PATIENCE_S)
    if answer.is_failure:
        client.disconnect()
        client.loop_stop()
    return client, answer


def test_mosquitto_over_tls_with_a_password(guarded: Guarded, run: RunProgram) -> None:
    common = ("-h", "localhost", "-p", guarded.port, "--cafile", pem("authority.pem"))
    alice = ("-u", "alice", "-P", "secret", "-V", "mqttv5", "-q", 1)
    subscriber = run("mosquitto_sub", *common, *alice, "-t", "home/+", "-C", 1, "-d", "-v")
    subscriber.until("Subscribed (mid: 1)")
    publisher = run("mosquitto_pub", *common, *alice, "-t", "home/door", "-m", "open")
    assert publisher.exit_code == 0
    subscriber.until("home/door open")
    assert "secret" not in guarded.broker.log


def test_wrong_passwords_and_the_nameless_stay_outside(guarded: Guarded) -> None:
    for user in ({"name": "alice", "password": "guess"}, {"name": "nobody", "password": "x"}, {}):
        assert connect(guarded, **user)[1] == "Bad user name or password"


def test_a_certificate_is_a_name(guarded: Guarded) -> None:
    client, answer = connect(guarded, certificate="client")  # that of alice
    assert answer == 0
    granted: Queue[Any] = Queue()
    client.on_subscribe = lambda _c, _u, _m, codes, _p: granted.put(codes)
    client.subscribe([("home/door", 1), ("cellar/door", 1)])
    assert granted.get(timeout=PATIENCE_S) == [1, "Not authorized"]
    client.disconnect()
    client.loop_stop()


def test_what_rules_do_not_allow_is_refused(guarded: Guarded) -> None:
    client, answer = connect(guarded, name="alice", password="secret")
    assert answer == 0
    published: Queue[Any] = Queue()
    client.on_publish = lambda _c, _u, _m, code, _p: published.put(code)
    client.publish("news/today", "mine", 1)
    assert published.get(timeout=PATIENCE_S) == "Not authorized"
    client.publish("home/door", "open", 1)
    assert not published.get(timeout=PATIENCE_S).is_failure
    client.disconnect()
    client.loop_stop()
