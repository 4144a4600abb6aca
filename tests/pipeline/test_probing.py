"""Executors that do not see what the driver sees are found before they get work."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from rove.pipeline import probing
from rove.pipeline.probing import UnseenError, probe, probe_now, put, trouble_of

HOST = platform.node()


def test_what_all_see_is_fine_and_nothing_is_left(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet"
    probe_now(spark, [str(tmp_path)], [str(out)])
    assert list(out.iterdir()) == []


def test_what_an_executor_does_not_see_is_named_with_its_host(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UnseenError, match=f"executor on {HOST} does not see {tmp_path}/lake: an"):
        probe_now(spark, [str(tmp_path / "lake")], [str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_each_way_of_not_seeing_is_told(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert "does not see what the driver has written to" in trouble_of([], [out], "driver", "own")
    put(out, "driver")
    assert trouble_of([out], [out], "driver", "own") == ""
    assert (tmp_path / "own").read_text() == "rove\n"
    (tmp_path / "blocked").mkdir()
    told = trouble_of([], [out], "driver", "blocked")
    assert told.startswith(f"an executor on {HOST} cannot use the locations: ")
    assert "\n" not in told


def test_what_the_driver_does_not_see_is_told(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = probing._is_there

    def own_only(uri: str, name: str) -> bool:
        return is_there(uri, name) and not name.endswith("-3")

    monkeypatch.setattr(probing, "_is_there", own_only)
    with pytest.raises(UnseenError, match=f"executor on {HOST} has written to .* does not see"):
        probe_now(spark, [], [str(tmp_path)])


def test_on_one_machine_there_is_nothing_to_try(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(probing, "probe_now", lambda *given: tried.append(given))
    probe(spark, writes=[str(tmp_path)])
    assert tried == []
    monkeypatch.setattr(probing, "_is_local", lambda _: False)
    for _ in range(2):
        probe(spark, reads=["lake"], writes=[str(tmp_path)])
    assert tried == [(spark, ["lake"], [str(tmp_path)])]
