"""A matcher as one buffer: what was saved is what is loaded, and nothing else gets in."""

import gc
import math
import mmap
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, parse
from rove.lang.values import OPAQUE
from rove.match import Matcher, SavedError, parse_evolve
from rove.match.saved import load, save
from rove.testing import strategies
from rove.testing.boxes import workload
from tests.effort import examples

STREAM: list[tuple[dict[str, object], float]] = [
    ({"x": 3, "name": "Zagreb", "n": {"m": 1}}, 4.0),
    ({"x": 2.5, "name": "Split"}, 5.0),
    ({"x": 2**53 + 1, "name": None}, 5.0),
    ({"x": 9}, 9.0),
]


def saved(matcher: Matcher) -> bytes:
    return b"".join(bytes(part) for part in matcher.save())


def answers(matcher: Matcher, stream: list[tuple[dict[str, object], float]]) -> list[Any]:
    found = matcher.match([one for one, _ in stream], [at for _, at in stream])
    pairs = zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True)
    ranked = [(one.subscription, one.key, one.score, one.promoted) for one in found.ranked]
    return [sorted(pairs), ranked]


def everything() -> Matcher:
    """One of each kind, some of them changed since."""
    matcher = Matcher()
    texts = [
        "x > 2",
        "x BETWEEN 1 + t AND 5 + t",
        "x > me.x",
        "contains(name, 'a') AND x > 1",
        "name IN ('Split', 'Zagreb') OR n.m = 1",
        "x > 1 ORDER BY x DESC LIMIT 1 WITHIN 3 SECONDS",
        "TRUE ORDER BY x ASC LIMIT 1 WITHIN 2 PUBLICATIONS",
        "x + 1 > 3",
        "FALSE",
    ]
    for id, text in enumerate(texts):
        matcher.add(id, parse(text), me={"x": 2})
    for id, evolve in enumerate(("pes 1s", "lees", "clees 500ms"), start=100):
        matcher.add(id, parse("x > t - 1"), evolve=parse_evolve(evolve))
    matcher.set_state(2, {"x": 1})
    matcher.add(50, parse("x > 0"))
    matcher.remove(50)
    return matcher


def test_every_kind_of_subscription_goes_on_as_it_was() -> None:
    matcher = everything()
    before = answers(matcher, STREAM[:2])
    loaded = Matcher.load(saved(matcher))
    assert len(loaded) == len(matcher) == 12
    assert 8 in loaded
    assert 50 not in loaded
    assert answers(loaded, STREAM[2:]) == answers(matcher, STREAM[2:])
    assert loaded.next_change_at() == matcher.next_change_at()
    assert [one.key for one in loaded.advance(20.0)] == [one.key for one in matcher.advance(20.0)]
    assert before != [[], []]
    for id in (0, 2, 5, 100):
        loaded.remove(id)
    loaded.set_state(3, {"x": 1})
    loaded.add(0, parse("x = 9"))
    assert (0, 0) in answers(loaded, [({"x": 9}, 30.0)])[0]


@examples(40)
@given(
    st.lists(strategies.subscriptions, min_size=1, max_size=20),
    st.lists(strategies.publications, min_size=1, max_size=4),
    strategies.states,
)
def test_loaded_is_what_was_saved(
    drawn: list[Subscription], publications: list[dict[str, object]], me: dict[str, object]
) -> None:
    matcher = Matcher()
    for id, subscription in enumerate(drawn):
        try:
            matcher.add(id, Subscription(subscription.condition), 0.0, me)
        except LimitError:
            continue
    stream = [(one, float(number)) for number, one in enumerate(publications)]
    assert answers(Matcher.load(saved(matcher)), stream) == answers(matcher, stream)


def test_a_mapped_file_is_shared_and_stays_as_it_is(tmp_path: Path) -> None:
    boxes, events = workload("W1", 20_000, 50)
    matcher = Matcher()
    matcher.add_boxes(np.arange(len(boxes)), boxes.attributes, boxes.lows, boxes.highs)
    path = tmp_path / "matcher"
    with path.open("wb") as file:
        file.writelines(matcher.save())
    content = path.read_bytes()
    at = np.zeros(50)
    wanted = matcher.match_columns(events.attributes, events.values, at)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    first, second = Matcher.load(memoryview(mapped)), Matcher.load(content)
    for loaded in (first, second):
        found = loaded.match_columns(events.attributes, events.values, at)
        assert np.array_equal(found.subscriptions, wanted.subscriptions)
    gone = int(wanted.subscriptions[0])
    first.remove(gone)
    assert gone not in first
    found = first.match_columns(events.attributes, events.values, at)
    assert gone not in found.subscriptions.tolist()
    assert path.read_bytes() == content


class TestWhatIsNoMatcher:
    def test_something_else_is_refused(self) -> None:
        with pytest.raises(SavedError, match="the saved matcher cannot be read: it is not a file"):
            Matcher.load(b"something else entirely")

    def test_wherever_it_is_cut_short(self) -> None:
        whole = saved(everything())
        for end in (0, 5, 16, 20, 100, 4000, len(whole) // 2, len(whole) - 4096):
            with pytest.raises(SavedError):
                Matcher.load(whole[:end])

    def test_a_pickle_is_refused(self) -> None:
        """Older versions pickled the head."""
        old = b"rove matcher\x00\x00\x00\x01" + pickle.dumps({"head": {}, "sizes": []})
        with pytest.raises(SavedError, match="not a file of this version of Rove"):
            Matcher.load(old.ljust(8192, b"\0"))

    def test_something_else_that_was_saved_is_refused_by_name(self) -> None:
        with pytest.raises(SavedError, match="the saved matcher cannot be read: it holds bucket"):
            Matcher.load(b"".join(save("bucket", {})))

    @given(st.integers(24, 3_000), st.integers(0, 255))
    @examples(60)
    def test_a_changed_byte_does_no_harm(self, at: int, byte: int) -> None:
        whole = bytearray(b"".join(bytes(part) for part in save("x", [{"a": [1, 2.5, "x"]}])))
        whole[at % len(whole)] = byte
        with suppress(SavedError):  # and no other error
            load(bytes(whole), "x", list[dict[str, Any]])

    @pytest.mark.parametrize("code", [0, 9, 127])
    def test_an_unknown_extension_type_is_refused(self, code: int) -> None:
        with pytest.raises(SavedError, match=f"no extension type {code}"):
            load(b"".join(save("x", [msgspec.msgpack.Ext(code, b"")])), "x", list[Any])

    def test_what_has_no_saved_form_is_named(self) -> None:
        with pytest.raises(NotImplementedError, match="a complex cannot be saved"):
            save("x", [1j])


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            2**63 - 1,
            -(2**63),
            2**64,
            -(2**63) - 1,
            2**200,
            -(2**200),
            math.inf,
            OPAQUE,
            b"x",
            None,
        ],
    )
    def test_a_value_of_a_publication_is_the_same_after_loading(self, value: object) -> None:
        saved = b"".join(save("x", {"a": value, "b": {"c": [value]}}))
        loaded, _ = load(saved, "x", dict[str, Any])
        assert loaded == {"a": value, "b": {"c": [value]}}
        assert type(loaded["a"]) is type(value)

    def test_variables_with_large_integers(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x"), me={"x": 1, "other": 2**70})
        matcher.add(2, parse("ORDER BY x LIMIT 1 WITHIN 9 SECONDS"), me={"other": -(2**70)})
        matcher.match([{"x": 2, "n": 2**99}], [1.0])
        loaded = Matcher.load(saved(matcher))
        assert loaded._states == {1: {"x": 1, "other": 2**70}, 2: {"other": -(2**70)}}
        assert answers(loaded, STREAM[:1]) == answers(matcher, STREAM[:1])

    def test_keys_of_the_caller_are_what_they_were(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("ORDER BY x LIMIT 9 WITHIN 9 SECONDS"))
        keys: list[object] = [1, "two", (3, ("four", None)), [5], b"six"]
        matcher.match([{"x": 1}] * 5, [0.0] * 5, keys)
        assert Matcher.load(saved(matcher)).live_keys() == matcher.live_keys() == keys

    def test_patterns_of_any_length(self) -> None:
        """The gaps of a pattern are a mask with a bit for each character, and may exceed 64."""
        matcher = Matcher()
        long = "abcdefgh" * 20
        matcher.add(1, parse(f"contains(name, '{long}') AND x > me.x"), me={"x": 0})
        matcher.add(2, parse(f"name LIKE '%{long}_%z'"))
        matcher.add(3, parse(f"NOT name LIKE '%{long}%' AND x + me.x > 0"), me={"x": 0})
        loaded = Matcher.load(saved(matcher))
        stream = [({"x": 1, "name": f"a{long}bz"}, 1.0), ({"x": 1, "name": "b"}, 1.0)]
        assert answers(loaded, stream) == answers(matcher, stream)
        assert answers(loaded, stream)[0] == [(0, 1), (0, 2), (1, 3)]


def test_the_garbage_collector_goes_on_afterwards() -> None:
    matcher = everything()
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            Matcher.load(saved(matcher))
            assert gc.isenabled() == enabled
        finally:
            gc.enable()
