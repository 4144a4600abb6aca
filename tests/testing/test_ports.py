"""Ports that nobody else takes."""

import socket

from rove.testing.ports import PORTS, free_port


def test_a_port_is_free_and_not_one_that_the_system_gives_away() -> None:
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        assert given.getsockname()[1] not in PORTS
    port = free_port()
    assert port in PORTS
    with socket.create_server(("127.0.0.1", port)) as listening:
        assert listening.getsockname()[1] == port


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        assert all(free_port() != port for _ in range(50))
