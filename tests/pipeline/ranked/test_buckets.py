"""Windows by bucket: however history is cut, what the broker's windows deliver."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import RankedWindow, matches, parse
from rove.lang.attributes import attributes_of
from rove.lang.values import change_state
from rove.mqtt.topics import fits
from rove.pipeline.lake.log import Event
from rove.pipeline.lake.version_index import RANKED_ROWS
from rove.pipeline.lake.versions import versions_of
from rove.pipeline.ranked.buckets import NOTIFICATIONS, RankingError, is_ranked, run_bucket
from tests.effort import examples, is_soak, some
from tests.interop.by_state import index_of
from tests.interop.recorded import Notified, Recording

Given = tuple[int, int, str, int, float, bool]
"""Subscription, position, id, due at in microseconds, score, promoted."""


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=RANKED_ROWS)


def row(position: int, at: float, matched: Sequence[int], **said: Any) -> dict[str, Any]:
    payload = json.dumps(said).encode()
    return {
        "bucket": 0,
        "position": position,
        "at": round(at * 1e6),
        "id": f"p{position}",
        "client_id": "ann",
        "topic": "air/a",
        "payload": payload,
        "user": [],
        "matched": list(matched),
    }


def made(number: int, text: str, position: int = 0, **more: Any) -> Event:
    return Event(event="made", number=number, text=text, position=position, **more)


def given_of(found: pa.Table) -> list[Given]:
    columns = found.set_column(3, "at", found["at"].cast(pa.int64())).to_pydict().values()
    return list(zip(*columns, strict=True))


class Broker:
    """Every subscription with a window of its own, told one thing after another."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rows: list[dict[str, Any]] = []
        self.given: list[Given] = []
        self._open: dict[int, Event] = {}
        self._windows: dict[int, RankedWindow] = {}
        self._me: dict[int, dict[str, Any]] = {}
        self._position = 0
        self._now_us = 1_700_000_000_000_000

    @property
    def now(self) -> float:
        return self._now_us / 1e6

    def wait(self, micros: int) -> None:
        self._now_us += micros
        self._advance()

    def _advance(self) -> None:
        for number, window in self._windows.items():
            self._give(number, window.advance(self.now))

    def _event(self, **facts: Any) -> Event:
        self._position += 1
        self.events.append(Event(position=self._position, at=self.now, **facts))
        return self.events[-1]

    def make(self, text: str, topic_filter: str, client: str, no_local: bool) -> None:
        number = len(self.events) + 10
        one = self._event(
            event="made",
            number=number,
            text=text,
            filter=topic_filter,
            accepted_at=self.now,
            client_id=client,
            no_local=no_local,
            durable=client != "dan",
            me={"x": 2},
        )
        self._open[number] = one
        self._windows[number] = RankedWindow(parse(text), one.accepted_at)
        self._me[number] = {"x": 2}

    def end(self, which: int) -> None:
        if self._open:
            number = sorted(self._open)[which % len(self._open)]
            self._event(event="ended", number=number)
            del self._open[number], self._windows[number]

    def change(self, client: str, changes: dict[str, Any]) -> None:
        self._event(event="state", client_id=client, changes=changes)
        for number, one in self._open.items():
            if one.client_id == client:
                change_state(self._me[number], changes)

    def start(self) -> None:
        self._event(event="started")
        for number, one in list(self._open.items()):
            self._windows[number] = RankedWindow(parse(one.text), one.accepted_at)
            if not one.durable:
                del self._open[number], self._windows[number]

    def publish(self, client: str, topic: str, said: dict[str, Any]) -> None:
        self._position += 1
        payload = json.dumps(said).encode()
        seen = attributes_of(topic, payload)
        matched = []
        for number, one in self._open.items():
            if fits(one.filter, topic):
                t, me = self.now - one.accepted_at, self._me[number]
                window = self._windows[number]
                if matches(parse(one.text), seen, t, me):
                    matched.append(number)
                key = (self._position, client)
                self._give(number, window.publish(seen, self.now, me, key))
        here = row(self._position, self.now, matched)
        self.rows.append(here | {"client_id": client, "topic": topic, "payload": payload})

    def _give(self, number: int, deliveries: list[Any]) -> None:
        one = self._open[number]
        for delivery in deliveries:
            position, publisher = delivery.key
            if not (one.no_local and publisher == one.client_id):
                due_us, score = round(delivery.at * 1e6), float(delivery.score)
                told = (number, position, f"p{position}", due_us, score, delivery.promoted)
                self.given.append(told)


clients = st.sampled_from(["ann", "bob", "dan"])
values = st.sampled_from([0, 1, 2, 2.0, 3.5, -1, 2**53 + 1, 2**53 + 2, "a", None])
said = st.fixed_dictionaries({}, optional={"a": values, "b": values})
texts = st.builds(
    "{} ORDER BY {} LIMIT {} WITHIN {}".format,
    st.sampled_from(["", "a > 1", "b <= me.x"]),
    st.sampled_from(["a", "a DESC", "abs(a - me.x)", "a + t", "2 * a + b DESC"]),
    st.integers(1, 3),
    st.sampled_from(["1 SECOND", "2.5 SECONDS", "2 PUBLICATIONS"]),
)
topics = st.sampled_from(["air/a", "air/b", "road"])
making = st.tuples(st.just("make"), texts, st.sampled_from(["air/#", "#"]), clients, st.booleans())
publishing = st.tuples(st.just("publish"), clients, topics, said)
acts = st.one_of(
    *[publishing] * 4,
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 300_000, 1_000_000, 2_500_000])),
    making,
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("change"), clients, st.fixed_dictionaries({"x": values})),
    st.tuples(st.just("start")),
)


@examples(150)
@given(
    st.lists(making, min_size=1, max_size=4),
    st.lists(acts, max_size=50),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_any_cut_gives_what_the_windows_give(
    first: list[Any], acts: list[Any], buckets: int, random: Random
) -> None:
    broker = Broker()
    for name, *arguments in [*first, *acts]:
        # A start empties windows that have slid no further than to the last thing before it.
        if name == "start":
            broker.publish("ann", "none", {})
        getattr(broker, name)(*arguments)
    broker.wait(10_000_000)
    found: list[Given] = []
    for bucket in range(buckets):
        found += run_in_pieces(broker, bucket, buckets, random)
    assert sorted(found) == sorted(broker.given)


def run_in_pieces(broker: Broker, bucket: int, buckets: int, random: Random) -> list[Given]:
    state: bytes | None = None
    found: list[Given] = []
    last = max([one.position for one in broker.events] + [one["position"] for one in broker.rows])
    cuts = sorted({0, last, *(random.randrange(last + 1) for _ in range(random.randrange(4)))})
    for after, up_to in pairwise(cuts):
        events = [one for one in broker.events if after < one.position <= up_to]
        rows = [
            one | {"matched": [number for number in one["matched"] if number % buckets == bucket]}
            for one in broker.rows
            if after < one["position"] <= up_to
        ]
        random.shuffle(rows)
        until = broker.now if up_to == last else None
        given, state = run_bucket(bucket, buckets, state, events, table(rows), until)
        assert given.schema == NOTIFICATIONS
        found += given_of(given)
    return found


@pytest.mark.parametrize("seed", some([1, 0, 2, 3]))
def test_a_recorded_broker_notified_of_the_same(tmp_path: Path, seed: int) -> None:
    recording = Recording(tmp_path / "lake", seed, elastic=seed % 2 == 1)
    recording.play(900 if is_soak() else 400)
    assert (recording.rearranged() > 0) == (seed % 2 == 1)
    versions = versions_of(recording.read.events())
    numbers = {one.number for one in versions if is_ranked(one.text)}
    index = index_of(recording.read, tmp_path / "index")
    batches = recording.publications().to_batches(max_chunksize=90)
    events = list(recording.read.events())
    found: list[Notified] = []
    for bucket in range(2):
        state, after = None, -1
        for batch in batches:
            last = batch["position"][-1].as_py()
            up_to = 2**63 if batch is batches[-1] else last
            ranked = pa.Table.from_batches([index.ranked_rows(batch, 2)])
            rows = ranked.filter(pc.equal(ranked["bucket"], bucket))
            now = [one for one in events if after < one.position <= up_to]
            until = recording.world.now if batch is batches[-1] else None
            given, state = run_bucket(bucket, 2, state, now, rows, until)
            found += [Notified(one[0], one[2], one[5]) for one in given_of(given)]
            after = last
    expected = [one for one in recording.notified() if one.subscription in numbers]
    assert len(expected) > 100
    assert sorted(found) == sorted(expected)


def test_who_is_not_ranked_or_elsewhere_is_passed_over() -> None:
    events = [
        made(2, "a > 1"),
        made(3, "ORDER BY a LIMIT 1 WITHIN 1 HOUR"),
        Event(event="ended", number=4, position=1),
        made(6, "a > 1 ORDER BY a LIMIT 1 WITHIN 1 HOUR"),
    ]
    found, state = run_bucket(0, 2, None, events, table([row(5, 1.0, [6], a=2)]))
    assert [one[:2] for one in given_of(found)] == [(6, 5)]
    again, _ = run_bucket(0, 2, state, [], table([row(6, 2.0, [6], a=1.5)]))
    assert [one[:2] for one in given_of(again)] == [(6, 6)]


def test_a_log_that_tells_twice_of_one_changes_nothing() -> None:
    text = "ORDER BY a LIMIT 1 WITHIN 1 HOUR"
    events = [made(1, text), made(1, text, position=3)]
    rows = table([row(2, 1.0, [1], a=1), row(4, 2.0, [1], a=2)])
    found, _ = run_bucket(0, 1, None, events, rows)
    assert [one[1] for one in given_of(found)] == [2]


def test_a_number_that_comes_again_begins_anew() -> None:
    text = "ORDER BY a LIMIT 1 WITHIN 1 HOUR"
    ended = Event(event="ended", number=1, position=3, at=1.0)
    rows = [row(2, 1.0, [1], a=1), row(5, 2.0, [1], a=2)]
    for pieces in ([rows], [rows[:1], rows[1:]], [rows[:1], [], rows[1:]]):
        events: list[Event] = [made(1, text), ended, made(1, text, position=4)]
        state, found = None, []
        for piece in pieces:
            given, state = run_bucket(0, 1, state, events, table(piece))
            events = []
            found += [one[1] for one in given_of(given)]
        assert found == [2, 5]


def test_what_does_not_belong_together_is_refused() -> None:
    text = "a > 1 ORDER BY a LIMIT 1 WITHIN 1 HOUR"
    with pytest.raises(
        RankingError, match="positions 4 and 5 matched subscription 8, which has no event"
    ):
        run_bucket(0, 1, None, [], table([row(4, 1.0, [], a=2), row(5, 1.0, [8], a=2)]))
    with pytest.raises(RankingError, match="times decrease in the rows from position 4 to 5"):
        run_bucket(0, 1, None, [made(8, text)], table([row(4, 2.0, [8]), row(5, 1.0, [8])]))
    _, state = run_bucket(0, 1, None, [made(8, text)], table([row(5, 1.0, [8], a=2)]))
    with pytest.raises(RankingError, match="at position 5, and a row is at 5"):
        run_bucket(0, 1, state, [], table([row(5, 1.0, [8], a=2)]))
    with pytest.raises(RankingError, match="that of bucket 0 of 1, not of 1 of 2"):
        run_bucket(1, 2, state, [], table([]))
    with pytest.raises(RankingError, match=r"bucket 0 cannot be read: .* not a file of this"):
        run_bucket(0, 1, b"what?", [], table([]))


@pytest.mark.parametrize(
    ("text", "ranked"),
    [
        ("", False),
        ("x > 5", False),
        ("place = 'in order'", False),
        ("order by x limit 1 within 1 hours", True),
        ("x > 5 ORDER BY x LIMIT 2 WITHIN 3 PUBLICATIONS", True),
    ],
)
def test_what_has_an_order_is_ranked(text: str, ranked: bool) -> None:
    assert is_ranked(text) is ranked
