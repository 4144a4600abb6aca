"""The feed: a lake as a broker would write it."""

from __future__ import annotations

from pathlib import Path

from rove.bench.pipeline.feed import Feed, main, publish_some
from rove.pipeline.lake.log import Lake


def test_events_and_publications_are_in_one_order(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.subscribe(1, "NO2 > 40", 0.5, me={"x": 1})
    assert feed.publish("air/1", {"NO2": 41}, 1.0) == 1
    feed.change_state("client1", 1.5, x=2)
    feed.unsubscribe(1, 2.0)
    lake = Lake(tmp_path)
    assert lake.position() == -1
    assert feed.write() == lake.position() == 3
    events = list(lake.events())
    assert [(each.position, each.event) for each in events] == [
        (0, "made"), (2, "state"), (3, "ended"),
    ]  # fmt: skip
    assert events[0].me == {"x": 1}
    assert events[1].changes == {"x": 2}
    assert [file.channel for file in lake.files("publications")] == ["air"]


def test_it_goes_on_where_the_lake_ends(tmp_path: Path) -> None:
    main([str(tmp_path), "100", "0.2"])
    first = Lake(tmp_path).position()
    again = Feed(tmp_path)
    assert again.position == first == 21
    publish_some(again, 4, 1.0)
    assert again.write() == first + 4
