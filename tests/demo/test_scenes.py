"""The demonstration: deterministic, honest about what was delivered, and drawn."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from rove.demo.scenes import ROWS, SUBSCRIBERS, WIDTH, Scene, as_svg, drawn, scenes, summary
from rove.lang import matches, parse
from rove.lang.description import kinds_of
from rove.testing.workloads import City

SECONDS = 12


def text_of(what: object) -> str:
    console = Console(width=WIDTH, file=StringIO(), force_terminal=False)
    console.print(what)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_there_is_one_subscriber_of_each_kind() -> None:
    assert [s.kind for s in SUBSCRIBERS] == ["Boolean", "evolving", "following", "ranked"]
    assert all(kinds_of(parse(s.text)) == (s.kind,) for s in SUBSCRIBERS)


@pytest.fixture(scope="module")
def played() -> list[Scene]:
    """The first seconds, once for those who only look at them."""
    return list(scenes(SECONDS))


def test_what_it_counts_is_what_the_language_says(played: list[Scene]) -> None:
    last = played[-1]
    smog, tram = (parse(s.text) for s in SUBSCRIBERS[:2])
    readings = list(City().readings(SECONDS))
    assert last.published == len(readings)
    assert last.received["smog"] == sum(matches(smog, r.attributes) for r in readings)
    assert last.received["tram"] == sum(matches(tram, r.attributes, r.at) for r in readings)


def test_every_notification_appears_in_one_scene(played: list[Scene]) -> None:
    told = sum(len(scene.delivered) for scene in played)
    assert told == sum(played[-1].received.values()) > 0


def test_two_runs_are_the_same(played: list[Scene]) -> None:
    assert list(scenes(5)) == played[:5]


def test_a_scene_fits_its_width_and_shows_everyone(played: list[Scene]) -> None:
    lines = text_of(drawn(played[-1])).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) >= ROWS
    assert all(any(s.name in line for line in lines) for s in SUBSCRIBERS)


def test_the_summary_has_the_texts(played: list[Scene]) -> None:
    assert "ORDER BY distance" in text_of(summary(played[-1]))


def test_a_picture_loads_nothing_from_elsewhere(played: list[Scene]) -> None:
    for dark in (False, True):
        picture = as_svg(played[-1], dark=dark)
        assert "@font-face" not in picture
        assert "url(http" not in picture


def test_what_spark_found_is_told(played: list[Scene]) -> None:
    # That it does find the same is tested where the README shows it: it takes a Spark.
    last = played[-1]
    beside = msgspec.structs.replace(last, found=last.received)
    assert "Spark has found the same" in text_of(summary(beside))
    assert "by Spark" in text_of(drawn(beside))
    assert "by Spark" not in text_of(drawn(last))
    installing = msgspec.structs.replace(beside, is_installing=True)
    assert "Spark is being installed" in text_of(drawn(installing))


def test_without_spark_it_says_why(played: list[Scene]) -> None:
    last = played[-1]
    broken = msgspec.structs.replace(last, trouble="there is no Java")
    assert "Spark did not run beside it: there is no Java" in text_of(summary(broken))
    behind = msgspec.structs.replace(last, found=dict.fromkeys(last.received, 0))
    assert "not the same ones" in text_of(summary(behind))
