"""The short memory of publications: bounded, newest first, and holding nothing alive."""

import gc

from rove.broker.publications.publication import Publication
from rove.broker.publications.recent import PAYLOAD_BYTES_MAX, Recent
from rove.mqtt.packets import Publish


def publication(id: str, payload: bytes = b"1") -> Publication:
    return Publication(1, Publish("t", payload, 1), "client", id, 5.0)


def test_the_oldest_is_forgotten_first() -> None:
    recent = Recent(2)
    for id in "abc":
        recent.add(publication(id), 1)
    assert [one.id for one in recent] == ["c", "b"]
    assert recent.find("a") is None
    assert len(recent) == 2


def test_of_two_with_one_id_the_last_is_found() -> None:
    recent = Recent(10)
    recent.add(publication("a", b"first"), 1)
    recent.add(publication("a", b"second"), 3)
    found = recent.find("a")
    assert found is not None
    assert (found.payload, found.notified, found.publisher, found.at) == (b"second", 3, "client", 5)


def test_nothing_is_held_alive() -> None:
    recent = Recent(10)
    one = publication("a")
    recent.add(one, 0)
    found = recent.find("a")
    assert found is not None
    assert found.living() is one
    del one
    gc.collect()
    assert found.living() is None


def test_large_payloads_are_not_held() -> None:
    recent = Recent(10)
    recent.add(publication("a", b"x" * (PAYLOAD_BYTES_MAX + 1)), 0)
    found = recent.find("a")
    assert found is not None
    assert found.payload == PAYLOAD_BYTES_MAX + 1


def test_a_bound_of_nothing_remembers_nothing() -> None:
    recent = Recent(0)
    recent.add(publication("a"), 0)
    assert len(recent) == 0
