"""A recorded life of a broker, judged again from its lake: the same notifications."""

from pathlib import Path
from typing import Any

import pytest

from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.pipeline.index_files import write_index
from rove.pipeline.judging import IndexSpec, PartSpec, VersionIndex, opened
from rove.pipeline.versions import Version, versions_of
from tests.effort import is_soak, some
from tests.interop.by_state import index_of
from tests.interop.recorded import Notified, Recording


def judged(recording: Recording, folder: Path) -> list[Notified]:
    index = index_of(recording.read, folder / "index")
    batches = recording.publications().to_batches(max_chunksize=17)
    return [one for batch in batches for one in pairs_of(index, batch)]


def pairs_of(index: VersionIndex, batch: Any) -> list[Notified]:
    pairs = index.match_lake(batch)
    numbers, ids = pairs["subscription"].to_pylist(), pairs["id"].to_pylist()
    return [Notified(*pair, False) for pair in zip(numbers, ids, strict=True)]


@pytest.mark.parametrize("seed", some([1, 0, *range(2, 6)]))
def test_what_the_lake_says_is_what_the_broker_did(tmp_path: Path, seed: int) -> None:
    recording = Recording(tmp_path / "lake", seed, elastic=seed % 2 == 1)
    recording.play(600 if is_soak() else 300)
    versions = versions_of(recording.read.events())
    is_ranked = {one.number for one in versions if one.text and parse(one.text).rank is not None}
    expected = [one for one in recording.notified() if one.subscription not in is_ranked]
    assert len(expected) > 100
    assert sorted(judged(recording, tmp_path)) == sorted(expected)


def test_of_those_who_share_one_is_found(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 20, ranked=False, shared=True)
    recording.play(500)
    versions = versions_of(recording.read.events())
    group_of = {one.number: (one.share, one.filter) for one in versions if one.share}
    assert len(group_of) > 5

    def by_group(found: list[Notified]) -> list[tuple[object, str]]:
        return sorted(
            (str(group_of.get(one.subscription, one.subscription)), one.id) for one in found
        )

    assert by_group(judged(recording, tmp_path)) == by_group(recording.notified())


def test_ranked_rows_are_those_that_meet_a_condition(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 30)
    recording.play(300)
    text = "x > 3 ORDER BY y LIMIT 1 WITHIN 1 HOURS"
    versions = [
        Version(number=number, text=text, filter="air/#", since=100 * number) for number in range(5)
    ]
    write_index(versions, tmp_path / "ranked.index")
    index = opened(IndexSpec((PartSpec(str(tmp_path / "ranked.index"), ranked={4: 450}),)))
    table = recording.publications()
    rows = index.ranked_rows(table.combine_chunks().to_batches()[0], 2).to_pylist()
    condition = parse("x > 3")
    expected = {
        (row["position"], bucket): [
            one.number
            for one in versions
            if one.number % 2 == bucket
            and one.since < row["position"] <= (450 if one.number == 4 else 10_000)
        ]
        for row in table.to_pylist()
        for bucket in range(2)
        if row["topic"].startswith("air/")
        and matches(condition, attributes_of(row["topic"], row["payload"], ()))
    }
    found = {(row["position"], row["bucket"]): row["matched"] for row in rows}
    assert found == {key: numbers for key, numbers in expected.items() if numbers}
    assert len(found) > 50
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
