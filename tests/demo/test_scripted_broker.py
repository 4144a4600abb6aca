"""The broker on a stage delivers what the language itself says, notification by notification."""

import math

from rove.demo.scenes import SUBSCRIBERS
from rove.demo.scripted_broker import ScriptedBroker
from rove.lang.replay import Notification, Replay
from rove.testing.workloads import City

SECONDS = 12


def here(at: float) -> dict[str, object]:
    return {"lat": 45.8165 + 0.007 * math.sin(at), "long": 15.9600 + 0.012 * math.cos(at)}


def by_the_language() -> list[Notification]:
    replay = Replay()
    for one in SUBSCRIBERS:
        replay.subscribe(one.name, one.text, me=here(0.0))
    found = []
    for number, reading in enumerate(City().readings(SECONDS), start=1):
        replay.set_state("walk", here(reading.at))
        found += replay.publish(f"{number}", reading.attributes, reading.at)
    return found


def by_the_broker() -> list[Notification]:
    texts = {one.name: one.text for one in SUBSCRIBERS}
    with ScriptedBroker(texts, here(0.0)) as stage:
        return [
            one
            for readings in City().seconds(SECONDS)
            for one in stage.play(readings, {"walk": here})
        ]


def test_a_broker_delivers_what_the_language_says() -> None:
    expected = by_the_language()
    found = by_the_broker()
    for one in SUBSCRIBERS:
        mine = [n for n in found if n.subscription == one.name]
        theirs = [n for n in expected if n.subscription == one.name]
        assert [(n.publication, n.promoted, n.score) for n in mine] == [
            (n.publication, n.promoted, n.score) for n in theirs
        ]
        assert [n.attributes for n in mine] == [n.attributes for n in theirs]
    assert {n.subscription for n in found} == {one.name for one in SUBSCRIBERS}
    assert any(n.promoted for n in found)
