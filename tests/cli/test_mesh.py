"""`rove mesh`: what it shows, and how brokers are joined and left."""

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rove.cli import mesh
from rove.cli.common.connection import BrokerRequestError
from rove.errors import UsageError
from tests.serve.test_mesh import Network


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    mesh.configure(parser)
    return mesh.run(parser.parse_args(words))


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with closing(Network(tmp_path)) as network:
        yield network


def test_a_broker_is_joined_shown_and_left(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    network.start("b1")
    url = ("--url", network.start("b2").url(""))
    address = f"127.0.0.1:{network.port('b1')}"
    assert run("connect", address, *url) == 0
    assert capsys.readouterr().out == f"joining mqtt://{address}; `rove mesh` shows the result\n"
    network.until_joined("b1", "b2")
    assert run(*url) == 0
    head, _, titles, broker, _, _, link = capsys.readouterr().out.splitlines()
    assert head == "b2 has 0 subscriptions, and asks each other broker for 0 entries (0 B)"
    assert titles.split()[:4] == ["broker", "state", "via", "hops"]
    assert broker.split()[:4] == ["b1", "connected", "b1", "1"]
    assert link.split()[:3] == ["b1", "joined", "here"]
    assert run("--json", *url) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "b2"
    assert run("disconnect", "b1", *url) == 0
    assert capsys.readouterr().out == "disconnected from b1\n"


def test_what_is_refused(network: Network) -> None:
    url = ("--url", network.start("b1").url(""))
    with pytest.raises(UsageError, match="rove mesh connect needs the address of a broker"):
        run("connect", *url)
    with pytest.raises(BrokerRequestError, match="there is no link to 'b9'"):
        run("disconnect", "b9", *url)


def test_troubles_and_conflicts_are_shown() -> None:
    status: dict[str, Any] = {
        "name": "b1",
        "subscriptions": 1,
        "asks_for": 1,
        "asks_for_bytes": 29,
        "brokers": [],
        "links": [],
        "joins": [{"url": "mqtt://b2:1883", "trouble": "Connection refused"}],
        "conflicts": ["b3"],
    }
    assert "".join(mesh.network_lines(status)) == (
        "b1 has 1 subscription, and asks each other broker for 1 entry (29 B)\n"
        "\nmqtt://b2:1883 is not joined: Connection refused\n"
        "\ntwo brokers are called b3\n"
    )
