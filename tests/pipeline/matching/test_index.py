"""Subscriptions become an index, wherever they come from; it changes, is saved and cleaned up."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rove.lang import parse
from rove.match import Matcher
from rove.pipeline.lake.versions import Version, VersionsError
from rove.pipeline.matching.index import Index, index_of, open_index, plain_subscription
from rove.pipeline.matching.table_check import MatchingError
from rove.pipeline.spark.executors import TaskFile


def saved(index: Index, folder: Path) -> TaskFile:
    path = folder / uuid.uuid4().hex
    index.save(path)
    return TaskFile(path.name, str(path))


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., list[object]]:
    def search(index: Index, publication: dict[str, Any], at: float = 0.0) -> list[object]:
        opened = open_index(saved(index, tmp_path))
        numbers = sorted(opened.matcher.match([publication], [at]).subscriptions.tolist())
        return numbers if opened.ids is None else opened.ids.take(numbers).to_pylist()

    return search


def test_texts_are_called_by_their_numbers(found: Any) -> None:
    index = Index.build(["NO2 > 40", "n.m = 1 OR NO2 < 5", "TRUE"])
    assert not index.has_names
    assert index.attributes == frozenset(("NO2", "n"))
    assert (index.evolving, index.filtered) == ("", "")
    assert found(index, {"NO2": 41}) == [0, 2]


def test_texts_with_ids(found: Any) -> None:
    assert found(Index.build([(7, "a > 1"), (3, "a > 2")]), {"a": 5}) == [7, 3]
    named = Index.build([("home", "a > 1"), (3, "a > 2"), "a > 3"])
    assert named.has_names
    assert found(named, {"a": 5}) == ["home", "3", "2"]


def test_versions_keep_what_they_know(found: Any, tmp_path: Path) -> None:
    versions = [
        Version(number=9, text="x > me.x + t", accepted_at=10.0, me={"x": 1}),
        Version(number=4, text="", filter="air/#"),
    ]
    index = Index.build(versions)
    assert index.evolving == "9 (x > me.x + t)"
    assert index.filtered == "4 (air/#)"
    opened = open_index(saved(index, tmp_path))
    assert list(opened.filters) == ["", "air/#"]
    assert opened.has_filter is not None
    assert opened.has_filter.tolist() == [False, True]
    assert opened.latest_s == 10.0
    assert found(index, {"x": 2.5, "$filter": 1}, 11.0) == [9, 4]
    assert found(index, {"x": 1.5, "$filter": 1}, 11.0) == [4]
    assert found(index, {"x": 9.0, "$filter": 1}, 9.0) == [4], "not accepted yet"


def test_changes_are_what_a_new_index_would_be(found: Any, tmp_path: Path) -> None:
    index = Index.build([("a", "x > 1"), ("b", "y > 1 AND x < t")])
    index.add([("c", "z = 'q'")])
    index.remove(["b"])
    assert len(index) == 2
    assert "b" not in index
    assert index.attributes == frozenset(("x", "z"))
    assert index.evolving == ""
    for one in (index, Index.open(saved(index, tmp_path).path)):
        assert found(one, {"x": 2, "y": 2, "z": "q"}, 5.0) == ["a", "c"]
    again = Index.open(saved(index, tmp_path).path)
    again.add([("b", "x > 5")])
    assert found(again, {"x": 6}) == ["a", "b"]
    again.check_columns({"x": pa.int64(), "z": pa.string()})
    with pytest.raises(MatchingError, match=r"subscription c \(z = 'q'\) uses z"):
        again.check_columns({"x": pa.int64()})


def test_drawn_changes_as_the_oracle_has_them(found: Any) -> None:
    drawn = random.Random(20)
    index, there = Index.build(), dict[str, int]()
    for step in range(60):
        if there and drawn.random() < 0.4:
            gone = drawn.sample(sorted(there), drawn.randint(1, min(3, len(there))))
            index.remove(gone)
            for name in gone:
                del there[name]
        else:
            new = {f"{step}-{n}": drawn.randint(-9, 9) for n in range(drawn.randint(1, 5))}
            index.add([(name, f"x > {bound}") for name, bound in new.items()])
            there |= new
        if step % 6 == 5:
            x = drawn.randint(-10, 10)
            assert sorted(found(index, {"x": x})) == sorted(n for n, b in there.items() if x > b)


def test_what_is_refused_changes_nothing(found: Any) -> None:
    index = Index.build(["x > 1"])
    for given, complaint in (
        ([(5, "x > 2"), (6, "x >")], "subscription 6: column"),
        ([(0, "x > 2")], "two subscriptions have the id 0"),
        ([("home", "x > 2")], "some ids are strings"),
    ):
        with pytest.raises(MatchingError, match=complaint):
            index.add(given)
    with pytest.raises(MatchingError, match="no subscription 7"):
        index.remove([0, 7])
    assert len(index) == 1
    assert found(index, {"x": 3}) == [0]


def test_the_same_texts_are_built_once() -> None:
    one = index_of(["a > 1", "b > 2"])
    assert index_of(["a > 1", "b > 2"]) is one
    assert index_of(["a > 1", "b > 3"]) is not one
    mine = Index.build(["a > 1"])
    assert index_of(mine) is mine


def test_closing_removes_its_files(spark: Any) -> None:
    with Index.build([f"a > {n}" for n in range(50)]) as index:
        index.task_file(spark)
        index.add(["b > 1"])
        index.task_file(spark)
        files = list(index._files)
        assert len(files) == 2
        assert all(path.exists() for path in files)
    assert not any(path.exists() for path in files)
    with pytest.raises(MatchingError, match="the index is closed"):
        index.task_file(spark)


def test_a_file_of_json_lines(found: Any, tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.jsonl"
    lines = ["a > 1", {"id": "home", "filter": "a > me.x", "me": {"x": 2}}]
    path.write_text("\n".join(map(json.dumps, lines)))
    for given in (path, str(path)):
        index = Index.build(given)
        assert index.has_names
        assert found(index, {"a": 3}) == ["1", "home"]


def test_a_matcher_of_somebody_else(found: Any) -> None:
    matcher = Matcher()
    matcher.add(12, parse("a > 1"))
    index = Index.of_matcher(matcher)
    assert index.attributes is None, "it does not tell"
    assert found(index, {"a": 3}) == [12]


def test_a_file_is_opened_once(tmp_path: Path) -> None:
    file = saved(Index.build(["a > 1"]), tmp_path)
    assert open_index(file) is open_index(file)


def test_what_changes_in_one_process_stays_there(tmp_path: Path) -> None:
    file = saved(Index.build(["a > 1"]), tmp_path)
    before = Path(file.path).read_bytes()
    open_index(file).matcher.remove(0)
    assert Path(file.path).read_bytes() == before


def broken(path: Path) -> Path:
    path.write_bytes(b'{"filter": 5}\n')
    return path


REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: [], "there are no subscriptions; give at least one expression"),
    (lambda folder: ["a > 1", "a >"], "subscription 1: column 4"),
    (lambda folder: [("x", "a > 1"), ("x", "a > 2")], "two subscriptions have the id x"),
    (lambda folder: [(-1, "a > 1")], "-1 is no id"),
    (
        lambda folder: [("top", "a > 1 ORDER BY a LIMIT 3 WITHIN 1 HOUR")],
        "subscription top is ranked, .*use rove.pipeline.rank",
    ),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_cannot_be_asked_is_refused(
    given: Callable[[Path], Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(MatchingError, match=complaint):
        index_of(given(tmp_path))


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(VersionsError, match="line 1: not a subscription"):
        index_of(broken(tmp_path / "lines"))


MAGIC = b"rove pages\x00\x00\x00\x00\x00\x01"


def test_what_is_no_index_is_not_opened(tmp_path: Path) -> None:
    whole = Path(saved(Index.build(["a > 1"]), tmp_path).path).read_bytes()
    assert whole.startswith(MAGIC)
    cut = whole[: len(whole) - 4096]
    for content in (b"", b"nonsense", MAGIC, MAGIC + b"\xff\xff", cut):
        path = tmp_path / f"file-{len(content)}"
        path.write_bytes(content)
        with pytest.raises(MatchingError, match=f"cannot open the index .*{path.name}"):
            Index.open(path)
        with pytest.raises(MatchingError, match=f"cannot open the index .*{path.name}"):
            open_index(TaskFile(path.name, str(path)))
    with pytest.raises(MatchingError, match=r"cannot open the index .*none: No such file"):
        Index.open(tmp_path / "none")
    with pytest.raises(VersionsError, match=r"cannot read .*none: No such file"):
        Index.build(tmp_path / "none")


def test_a_ranked_text_alone_is_refused() -> None:
    with pytest.raises(MatchingError, match="is ranked"):
        plain_subscription("ORDER BY a LIMIT 1 WITHIN 1 HOUR")
