"""Subscriptions over time."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rove.pipeline.lake import Event
from rove.pipeline.versions import (
    FOR_EVER,
    Timeline,
    Version,
    VersionsError,
    from_broker,
    from_file,
    from_table,
    from_texts,
)


def made(number: int, position: int, text: str = "x > 1", **more: Any) -> Event:
    return Event(event="made", number=number, position=position, text=text, **more)


def lives(versions: list[Version]) -> list[tuple[int, int, int]]:
    return sorted((one.number, one.since, one.until) for one in versions)


def test_a_life_is_cut_by_changes_of_state() -> None:
    timeline = Timeline()
    ended: list[Version] = []
    for event in (
        made(1, 10, "x > me.x", client_id="ann", me={"x": 1}),
        made(2, 11, client_id="ann"),
        made(3, 12, "x > me.x", client_id="bob"),
        Event(event="state", position=20, client_id="ann", changes={"x": 2, "y": 3}),
        Event(event="state", position=25, client_id="nobody", changes={"x": 2}),
        Event(event="ended", position=30, number=2),
        Event(event="state", position=40, client_id="ann", changes={"x": None}),
    ):
        ended += timeline.take(event)[0]
    assert lives(ended) == [(1, 10, 20), (1, 20, 40), (2, 11, 30)]
    assert [one.me for one in ended if one.number == 1] == [{"x": 1}, {"x": 2, "y": 3}]
    assert lives(timeline.open()) == [(1, 40, FOR_EVER), (3, 12, FOR_EVER)]
    assert {one.number: one.me for one in timeline.open()}[1] == {"y": 3}
    assert timeline.position == 40
    assert len(timeline) == 2


def test_a_start_ends_what_was_not_kept() -> None:
    timeline = Timeline()
    for number, durable in ((1, True), (2, False)):
        timeline.take(made(number, number, durable=durable))
    ended, begun = timeline.take(Event(event="started", position=9))
    assert (lives(ended), begun) == ([(2, 2, 9)], [])
    assert timeline.take(made(1, 10)) == ([], []), "told again, and known"
    assert timeline.take(Event(event="ended", position=11, number=7)) == ([], [])


def test_an_engine_sees_its_own_only() -> None:
    timeline = Timeline("spark")
    timeline.take(made(1, 1))
    timeline.take(made(2, 2, engine="spark"))
    assert lives(timeline.open()) == [(2, 2, FOR_EVER)]
    assert timeline.take(Event(event="ended", position=3, number=1)) == ([], [])


def test_texts_are_numbered() -> None:
    assert [(one.number, one.text) for one in from_texts(["a > 1", (7, "b > 2")])] == [
        (0, "a > 1"),
        (7, "b > 2"),
    ]


def test_a_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text('"x > 1"\n\n{"id": "home", "filter": "x > me.x", "at": 5, "me": {"x": 2}}\n')
    versions, names = from_file(path)
    assert names == ["1", "home"]
    assert versions == [
        Version(number=0, text="x > 1"),
        Version(number=1, text="x > me.x", accepted_at=5.0, me={"x": 2}),
    ]
    path.write_text('"x > 1"\n17\n')
    with pytest.raises(VersionsError, match="line 2: not a subscription"):
        from_file(path)
    with pytest.raises(VersionsError, match=r"cannot read .*none: No such file"):
        from_file(tmp_path / "none")


def test_a_table(spark: Any) -> None:
    rows = [("x > 1", 5, "air/#", None), ("y > 1", 6, None, 3.5)]
    table = spark.createDataFrame(
        rows, "text string, number int, filter string, accepted_at double"
    )
    assert from_table(table) == [
        Version(number=5, text="x > 1", filter="air/#"),
        Version(number=6, text="y > 1", accepted_at=3.5),
    ]
    with pytest.raises(VersionsError, match="needs a column text; it has"):
        from_table(table.drop("text"))
    with pytest.raises(VersionsError, match=r"row 0 .*Expected `int`, got `str`"):
        from_table(spark.createDataFrame([("x > 1", "a")], "text string, number string"))


VIEW = {
    "client": "ann", "filter": "x > 1", "accepted_at": 1.5, "no_local": True,
}  # fmt: skip


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") is None:
            self.send_error(401, "who are you?")
            return
        after = int(self.path.split("after=")[1].split("&")[0])
        topic = "$share/team/air/#" if after else "air/#"
        page = {"items": [{**VIEW, "number": after + 1, "topic": topic}]}
        answer = json.dumps({**page, "next": None if after else 1}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_pages_of_a_broker(pages: str) -> None:
    first, second = from_broker(pages, user="ann", password="secret")
    assert (first.number, first.filter, first.share, first.no_local) == (1, "air/#", None, True)
    assert (second.number, second.filter, second.share) == (2, "air/#", "team")
    with pytest.raises(VersionsError, match="answered 401: who are you"):
        from_broker(pages)
    with pytest.raises(VersionsError, match="cannot ask the broker"):
        from_broker("http://127.0.0.1:1")
