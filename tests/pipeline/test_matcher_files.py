"""Subscriptions become a file, wherever they come from; a process opens it once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rove.lang import parse
from rove.match import Matcher
from rove.pipeline.matcher_files import (
    Asked,
    Shipped,
    asked_in,
    open_matcher,
    plain_subscription,
)
from rove.pipeline.table_check import MatchingError
from rove.pipeline.versions import Version, VersionsError


def found(asked: Asked, publication: dict[str, Any], at: float = 0.0) -> list[object]:
    opened = open_matcher(asked.path)
    numbers = sorted(opened.matcher.match([publication], [at]).subscriptions.tolist())
    return numbers if opened.ids is None else opened.ids.take(numbers).to_pylist()


def test_texts_are_called_by_their_numbers() -> None:
    asked = asked_in(["NO2 > 40", "n.m = 1 OR NO2 < 5", "TRUE"])
    assert not asked.has_names
    assert asked.uses is not None
    assert asked.uses.heads == frozenset(("NO2", "n"))
    assert (asked.evolving, asked.filtered) == ("", "")
    assert found(asked, {"NO2": 41}) == [0, 2]


def test_texts_with_ids() -> None:
    assert found(asked_in([(7, "a > 1"), (3, "a > 2")]), {"a": 5}) == [7, 3]
    named = asked_in([("home", "a > 1"), (3, "a > 2"), "a > 3"])
    assert named.has_names
    assert found(named, {"a": 5}) == ["home", "3", "2"]


def test_versions_keep_what_they_know() -> None:
    versions = [
        Version(number=9, text="x > me.x + t", accepted_at=10.0, me={"x": 1}),
        Version(number=4, text="", filter="air/#"),
    ]
    asked = asked_in(versions)
    assert asked.evolving == "9 (x > me.x + t)"
    assert asked.filtered == "4 (air/#)"
    assert list(open_matcher(asked.path).filters) == ["", "air/#"]
    assert found(asked, {"x": 2.5}, 11.0) == [9, 4]
    assert found(asked, {"x": 1.5}, 11.0) == [4]
    assert found(asked, {"x": 9.0}, 9.0) == [4], "not accepted yet"


def test_without_times_all_are_accepted() -> None:
    versions = [Version(number=9, text="x > 1", accepted_at=10.0)]
    assert found(asked_in(versions, timed=False), {"x": 2}) == [9]


def test_a_file_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.jsonl"
    lines = ["a > 1", {"id": "home", "filter": "a > me.x", "me": {"x": 2}}]
    path.write_text("\n".join(map(json.dumps, lines)))
    for given in (path, str(path)):
        asked = asked_in(given)
        assert asked.has_names
        assert found(asked, {"a": 3}) == ["1", "home"]


def test_a_saved_matcher(tmp_path: Path) -> None:
    matcher = Matcher()
    matcher.add(12, parse("a > 1"))
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.writelines(matcher.save())
    asked = asked_in(path)
    assert asked.uses is None, "it does not tell"
    assert found(asked, {"a": 3}) == [12]


def test_a_file_is_opened_once() -> None:
    path = asked_in(["a > 1"]).path
    assert open_matcher(path) is open_matcher(path)


def test_what_changes_in_one_process_stays_there() -> None:
    path = asked_in(["a > 1"]).path
    before = Path(path).read_bytes()
    open_matcher(path).matcher.remove(0)
    assert Path(path).read_bytes() == before


def broken(path: Path) -> Path:
    path.write_bytes(b'{"filter": 5}\n')
    return path


REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: [], "there are no subscriptions; give at least one text"),
    (lambda folder: ["a > 1", "a >"], "subscription 1: column 4"),
    (lambda folder: [("x", "a > 1"), ("x", "a > 2")], "two subscriptions are called x"),
    (lambda folder: [(-1, "a > 1")], "-1 is no id"),
    (lambda folder: folder / "none", "cannot read .*none: No such file"),
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
        asked_in(given(tmp_path))


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(VersionsError, match="line 1: not a subscription"):
        asked_in(broken(tmp_path / "lines"))


def test_what_is_no_file_of_ours_is_not_opened(tmp_path: Path) -> None:
    for content in (b"", b"nonsense", b"rove texts\x00\x00\x00\x00\x00\x01\xff\xff"):
        path = tmp_path / f"file-{len(content)}"
        path.write_bytes(content)
        with pytest.raises(MatchingError, match=f"cannot open the subscriptions in .*{path.name}"):
            open_matcher(str(path))


def test_a_ranked_text_alone_is_refused() -> None:
    with pytest.raises(MatchingError, match="is ranked"):
        plain_subscription("ORDER BY a LIMIT 1 WITHIN 1 HOUR")


def test_on_the_drivers_machine_a_file_is_where_it_is() -> None:
    assert Shipped("/tmp/x", is_local=True).local_path() == "/tmp/x"
