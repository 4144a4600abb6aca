"""The comparison: two engines or two runs, what differs, and how sure that is."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from rove.metrics.database import Database, Reading, RunRecord
from rove.metrics.world_readings import world_labels
from tests.page.conftest import PATIENCE_MS, RunningMonitor, Shot, Watched, faults_of
from tests.page.waiting import until

expect.set_options(timeout=PATIENCE_MS)

BEGAN = 1_000_000_000.0
SECONDS = 120
ENGINES = {"area": 3.0, "tile": 1.0, "<b>odd": 2.0}


@pytest.fixture(scope="module")
def recorded(monitor: RunningMonitor) -> str:
    """Two runs in which `area` needs three times the operations of `tile` and as many bytes."""
    with Database(monitor.database) as database:
        for number, factor in ((1, 1.0), (2, 1.5)):
            run = f"dense-{number}"
            facts = {"engines": list(ENGINES), "players": 10 * number}
            began = BEGAN + 1000 * number
            database.put_run(
                RunRecord(run, "dense", "High density", 1, began, began + SECONDS, facts)
            )
            for engine, times in ENGINES.items():
                labels = world_labels(engine, run, "dense")
                operations = bytes_ = 0.0
                readings = []
                for second in range(SECONDS):
                    operations += times * factor * (10 + math.sin(second + times))
                    bytes_ += 1000 + math.sin(second * 7 + times * 5)
                    for name, value in (
                        ("rove_world_subscribes_total", operations),
                        ("rove_world_delivered_bytes_total", bytes_),
                        ("rove_world_subscriptions", 50 + 50 * times),
                    ):
                        readings.append(Reading(name, labels, began + second, value))
                database.put_readings(readings)
    return "#compare?left=dense-1%2Farea&right=dense-1%2Ftile"


def opened(watched: Watched, address: str, **context: Any) -> Any:
    page = watched.open(f"/{address}", **context)
    expect(page.locator(".compare-multiple").first).to_be_visible()
    return page


def sentences(page: Any) -> list[str]:
    found: list[str] = page.locator(".compare-sentence").all_inner_texts()
    return found


@pytest.mark.soak
def test_two_engines_of_one_run(watched: Watched, recorded: str) -> None:
    page = opened(watched, recorded)
    lead = page.locator(".compare-lead")
    expect(lead).to_contain_text(re.compile(r"^area needs \S+ times \(.* to .*\) as many"))
    expect(lead).to_contain_text("2 of 3 metrics differ")
    titles = page.locator(".compare-multiple h2")
    expect(titles).to_have_text(["Subscribe operations", "Subscriptions", "Bytes delivered"])
    told = sentences(page)
    times = r"(2\.99|3|3\.01) times \((2\.9\d|3) to 3(\.0\d)?\)"
    assert re.fullmatch(f"area needs {times} as many subscribe operations as tile\\.", told[0])
    assert told[1] == "area holds 2 times (2 to 2) as many subscriptions as tile."
    assert "cannot be told apart" in told[2]
    note = page.locator(".compare-note").first
    expect(note).to_contain_text(re.compile(r"Mean difference 20(\.\d)? \(.* operations/s"))
    expect(note).to_contain_text("95 % interval of 20 batches")
    until(page, "document.querySelectorAll('.compare-multiple canvas').length === 6")


@pytest.mark.soak
def test_the_choice_is_in_the_address_and_can_be_changed(watched: Watched, recorded: str) -> None:
    page = opened(watched, recorded)
    left = page.get_by_role("group", name="Left")
    left.get_by_label("Engine").select_option("<b>odd")
    expect(page.locator(".compare-lead")).to_contain_text("<b>odd needs 2")
    assert "left=dense-1%2F%3Cb%3Eodd&right=dense-1%2Ftile" in page.url
    page.reload()
    expect(page.locator(".compare-lead")).to_contain_text("<b>odd needs 2")
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("group", name="Right").get_by_label("Engine")).to_have_value("<b>odd")
    assert page.locator("main b").count() == 0


@pytest.mark.soak
def test_two_runs_of_one_engine_over_a_period(watched: Watched, recorded: str) -> None:
    page = opened(watched, "#compare?left=dense-2/area&right=dense-1/area")
    lead = page.locator(".compare-lead")
    expect(lead).to_contain_text(re.compile(r"20 players needs 1\.5 times .* 10 players\."))
    page.get_by_label("from", exact=True).fill("100")
    page.get_by_label("from", exact=True).press("Tab")
    expect(page.locator(".compare-note").first).to_contain_text("of 6 batches")
    assert "since=100" in page.url
    page.get_by_label("to", exact=True).fill("20")
    page.get_by_label("to", exact=True).press("Tab")
    expect(page.get_by_role("alert")).to_have_text("It has to end after it begins.")


@pytest.mark.soak
def test_the_same_as_a_table(watched: Watched, recorded: str) -> None:
    page = opened(watched, recorded)
    page.get_by_text("Table", exact=True).click()
    rows = page.locator(".compare-table tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1).locator("td")).to_have_text(
        [
            "Subscriptions",
            "subscriptions",
            "2 (2 to 2)",
            "100 (100 to 100)",
            "area holds 2 times (2 to 2) as many subscriptions as tile.",
        ]
    )


@pytest.mark.soak
def test_what_cannot_be_compared_is_told(watched: Watched, recorded: str) -> None:
    watched.expected.append("status of 404")
    page = watched.open("/#compare?left=nobody/area&right=dense-1/tile")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("These cannot be compared")
    expect(alert).to_contain_text("there is no run nobody")
    page.get_by_role("group", name="Left").get_by_label("Run").select_option("dense-1")
    expect(page.locator(".compare-lead")).to_contain_text("area")


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_without_a_choice_the_newest_run_is_taken(
    watched: Watched, recorded: str, shot: Shot, scheme: str
) -> None:
    page = opened(watched, "#compare", color_scheme=scheme)
    left, right = (
        page.get_by_role("group", name=name).get_by_label("Engine").input_value()
        for name in ("Left", "Right")
    )
    assert left
    assert left != right
    until(page, "document.querySelectorAll('.compare-multiple canvas').length > 9")
    # The run goes on: what is too little at first becomes enough.
    expect(page.locator(".compare-lead")).to_contain_text("metrics differ")
    shot(page, f"compare-{scheme}")


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_the_comparison_is_accessible(
    watched: Watched, recorded: str, axe: str, scheme: str
) -> None:
    page = opened(watched, recorded, color_scheme=scheme)
    until(page, "document.querySelectorAll('.compare-multiple canvas').length === 6")
    assert faults_of(page, axe) == []


@pytest.mark.soak
def test_a_telephone_shows_the_comparison(watched: Watched, recorded: str) -> None:
    page = opened(watched, recorded, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.querySelector('.main').scrollWidth") <= 360
