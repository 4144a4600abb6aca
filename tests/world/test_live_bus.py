"""Batches of payloads are those that are written one by one; histograms never flatter."""

from __future__ import annotations

import numpy as np
import pytest

from rove.world.live_bus import Delays, payloads, percentile_s, read_payloads
from rove.world.messages import COLUMNS, FIELDS, NO_PLACE, Messages, What, parse_payload, payload
from rove.world.state import WorldError


def _some(rng: np.random.Generator, count: int) -> Messages:
    """Messages of all kinds with numbers that are hard to write."""
    awkward = np.array(
        [0.0, -0.0, 0.0005, -0.0005, 0.0015, -0.00049, 1e-9, -1e9, 123.4565, 99.9995]
    )
    columns: dict[str, object] = {}
    for name, dtype in COLUMNS.items():
        if dtype is np.float64:
            drawn = np.where(
                rng.random(count) < 0.5, rng.choice(awkward, count), rng.normal(0, 1000, count)
            )
            columns[name] = drawn
        else:
            bounds = np.iinfo(dtype)  # type: ignore[type-var]
            columns[name] = rng.integers(bounds.min, bounds.max, count, endpoint=True)
    return Messages(rng.integers(0, len(What), count).astype(np.int8), count, **columns)


@pytest.mark.parametrize("seed", range(5))
def test_payloads_of_a_batch_are_those_of_its_messages(seed: int) -> None:
    messages = _some(np.random.default_rng(seed), 300)
    assert payloads(messages) == [payload(messages, line) for line in range(300)]


def test_a_place_that_there_is_none_of_is_null() -> None:
    messages = Messages(What.AREA_REQUEST, 2, former_x=np.array([1.0, NO_PLACE]), former_y=2.0)
    first, second = payloads(messages)
    assert b'"former_x":1.000' in first
    assert b'"former_x":null' in second
    assert np.isnan(read_payloads([second]).former_x[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_is_read_as_its_payloads_are_one_by_one(seed: int) -> None:
    texts = payloads(_some(np.random.default_rng(seed), 200))
    read = read_payloads(texts)
    for line, text in enumerate(texts):
        one = parse_payload(text)
        assert read.what[line] == one.what[0]
        for name in FIELDS[What(int(one.what[0]))]:
            assert getattr(read, name)[line] == getattr(one, name)[0], name


def test_nothing_is_read_as_nothing() -> None:
    assert len(read_payloads([])) == 0
    assert payloads(Messages.none()) == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"7",
        b"\xff",
        b'{"what":"update"}',
        b'{"what":"rumour","entity":1}',
        b'{"what":"request","sender":1,"tile":2,"tick":3,"more":4}',
        b'{"what":"request","sender":99999999999,"tile":2,"tick":3}',
        b'{"what":"request","sender":1.5,"tile":2,"tick":3}',
    ],
)
def test_what_is_none_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(WorldError, match="none of the world's"):
        read_payloads([text])


def test_percentiles_are_at_most_two_percent_above() -> None:
    rng = np.random.default_rng(3)
    delays_s = rng.lognormal(-4, 1, 5_000)
    clients = rng.integers(0, 7, 5_000).astype(np.int32)
    histogram = Delays(7)
    histogram.add(clients[:2_000], delays_s[:2_000])
    histogram.add(clients[2_000:], delays_s[2_000:])
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = np.quantile(delays_s, share, method="inverted_cdf")
        assert exact <= percentile_s(histogram.of_all(), share) * (1 + 1e-9)
        assert percentile_s(histogram.of_all(), share) <= exact * 1.0201
    of_one = delays_s[clients == 4]
    half = np.quantile(of_one, 0.5, method="inverted_cdf")
    assert half * 0.9999 <= percentile_s(histogram.counts[4], 0.5) <= half * 1.0201


def test_extreme_delays_are_counted() -> None:
    histogram = Delays(1)
    histogram.add(np.zeros(3, np.int32), np.array([-0.5, 0.0, 1e6]))
    assert histogram.of_all().sum() == 3
    assert percentile_s(histogram.of_all(), 0.5) == pytest.approx(0.0001)
    assert percentile_s(histogram.of_all(), 1.0) > 100
    assert np.isnan(percentile_s(Delays(2).of_all(), 0.5))
