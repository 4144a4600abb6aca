"""The broker as a whole: turns, time, pressure and the end."""

from rove.broker.limits import Limits
from rove.mqtt.packets import (
    Publish,
)
from rove.testing.mqtt import SimulatedClient, World


def is_paused(client: SimulatedClient) -> bool:
    """Whether the broker wants nothing to be read from it."""
    assert client.link is not None
    return client.link.is_paused


class TestThrottling:
    def test_a_client_that_is_too_fast_is_not_read_from_for_a_while(self) -> None:
        world = World(limits=Limits(publish_per_s_max=10))
        client = world.connect()
        client.send(*(Publish("a", b"") for _ in range(10)))
        assert not is_paused(client)
        client.send(*(Publish("a", b"") for _ in range(5)))
        assert is_paused(client)
        world.advance(0.4)
        assert is_paused(client)
        world.advance(0.2)
        assert not is_paused(client)

    def test_a_client_that_keeps_to_its_rate_is_never_paused(self) -> None:
        world = World(limits=Limits(publish_per_s_max=10))
        client = world.connect()
        for _ in range(50):
            client.publish("a", b"")
            assert not is_paused(client)
            world.advance(0.11)

    def test_nothing_is_lost(self) -> None:
        world = World(limits=Limits(publish_per_s_max=1))
        client = world.connect()
        client.subscribe("a")
        client.send(*(Publish("a", b"%d" % n) for n in range(30)))
        assert client.payloads() == [b"%d" % n for n in range(30)]

    def test_others_are_not_held_up(self) -> None:
        world = World(limits=Limits(publish_per_s_max=1))
        fast, other = world.connect("fast"), world.connect("other")
        fast.send(*(Publish("a", b"") for _ in range(5)))
        assert is_paused(fast)
        assert not is_paused(other)
