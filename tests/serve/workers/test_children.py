"""What is between a broker and its processes: frames, whole and in pieces, and how one starts."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rove.serve.workers.children import HEADER, Child, Unreadable, read_frame, spawned
from tests.effort import PATIENCE_S


@pytest.fixture
def pair() -> Iterator[tuple[Child, socket.socket]]:
    """A child that has ended already, with a socket that lives, and the other end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with subprocess.Popen([sys.executable, "-c", ""]) as process, ours, theirs:
        yield Child(process, ours), theirs


def test_frames_arrive_whole_and_one_by_one(pair: tuple[Child, socket.socket]) -> None:
    child, its = pair
    frames = HEADER.pack(3, 7) + b"abc" + HEADER.pack(0, 8)
    for byte in frames[:-1]:
        its.send(bytes([byte]))
        assert child.receive()
    assert child.next_frame() == (7, b"abc")
    assert child.next_frame() is None
    its.send(frames[-1:])
    assert child.receive()
    assert child.next_frame() == (8, b"")
    its.close()
    assert not child.receive()


def test_what_is_longer_than_could_be_meant_is_not_waited_for(
    pair: tuple[Child, socket.socket],
) -> None:
    child, its = pair
    its.send(HEADER.pack(101, 1))
    child.receive()
    assert child.next_frame(101) is None
    with pytest.raises(Unreadable, match="a message of 101 bytes"):
        child.next_frame(100)


def test_what_the_socket_does_not_take_waits(pair: tuple[Child, socket.socket]) -> None:
    child, its = pair
    large = bytes(range(256)) * 8_000
    child.put(1, large)
    child.put(2, b"small")
    assert child.flush()
    assert len(child.outgoing) == 2
    assert not child.flush()
    its.settimeout(PATIENCE_S)
    wanted = 2 * HEADER.size + len(large) + 5
    taken = b""
    while len(taken) < wanted:
        taken += its.recv(wanted)
        child.flush()
    stream = io.BytesIO(taken)
    assert read_frame(stream) == (1, large)
    assert read_frame(stream) == (2, b"small")
    assert read_frame(stream) is None
    assert not child.outgoing
    its.close()
    child.put(3, b"nobody")
    child.flush()
    assert not child.outgoing


def test_half_a_frame_is_none() -> None:
    assert read_frame(io.BytesIO(HEADER.pack(4, 1) + b"abc")) is None
    assert read_frame(io.BytesIO(HEADER.pack(4, 1)[:-1])) is None


def test_a_process_is_told_its_socket_its_parent_and_what_else() -> None:
    # `this` prints: a module that is everywhere, ends by itself, and takes any arguments.
    process, end = spawned("this", "more", environment={})
    with end:
        assert isinstance(process.args, list)
        assert process.args[1:4] == ["-P", "-m", "this"]
        assert process.args[5:] == [str(os.getpid()), "more"]
        assert process.wait(PATIENCE_S) == 0
        assert end.recv(1) == b""
