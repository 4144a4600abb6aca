"""The graphs: what every engine does, live, over one axis of time that all charts share."""

from __future__ import annotations

import csv
import io
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from rove.metrics.database import Database, Reading
from tests.effort import PATIENCE_S
from tests.page.conftest import PATIENCE_MS, RunningMonitor, Shot, Watched, faults_of
from tests.page.waiting import until

expect.set_options(timeout=PATIENCE_MS)

TITLES = [
    "Subscriptions",
    "Subscribe and unsubscribe operations",
    "Publications",
    "Replica messages",
    "Update notifications",
    "Bytes delivered",
    "Matching time",
    "Missing replicas",
    "Stale replicas",
    "Delay in the broker",
    "Notifications sent",
]
HOSTILE = '<img src=x onerror="window.hacked=1">'
THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6}


@pytest.fixture
def graphs(watched: Watched) -> Any:
    """The graphs, once they have drawn something."""
    return opened(watched)


@pytest.fixture
def modules(watched: Watched) -> Any:
    """A page that shows nothing, in which modules can be tried."""
    watched.expected.append("favicon.ico")  # browsers ask for it where a page names none
    return watched.open("/page/favicon.svg")


def opened(watched: Watched, **context: Any) -> Any:
    page = watched.open("/#graphs", **context)
    expect(legend(page, "Subscriptions").first).to_be_visible()
    return page


def card(page: Any, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True)


def legend(page: Any, title: str) -> Any:
    """A button for each line."""
    return card(page, title).locator(".graph-key")


def value(page: Any, title: str, engine: str) -> float:
    """What a line says now."""
    shown = card(page, title).locator(".graph-key", has_text=engine).locator(".graph-value")
    found = re.fullmatch(r"([\d.]+) ?([kM]?)", shown.first.inner_text().strip())
    return float(found[1]) * THOUSANDS[found[2]] if found else -1.0


def say(page: Any, text: str) -> None:
    line = page.get_by_role("combobox", name="Command")
    line.fill(text)
    line.press("Enter")
    expect(line).to_have_value("")


def option(page: Any, title: str, name: str) -> Any:
    """Something in the menu of a chart, which is opened for it."""
    menu = card(page, title).locator("details")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    return menu.get_by_text(name, exact=True)


def engines_of(page: Any) -> list[str]:
    names: list[str] = page.evaluate(
        "fetch('/api/world').then((r) => r.json()).then((w) => w.engines.map((e) => e.name))"
    )
    return names


def rows(page: Any, title: str) -> list[list[str]]:
    found: list[list[str]] = (
        card(page, title)
        .locator("table")
        .evaluate(
            "(table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
    )
    return found


# --- what is drawn --------------------------------------------------------------------------------


def test_every_figure_has_a_chart_with_a_line_for_each_engine(graphs: Any) -> None:
    expect(graphs.locator(".graph-card h2")).to_have_text(TITLES)
    engines = engines_of(graphs)
    for title in TITLES[:9]:
        names = legend(graphs, title).locator(".graph-name")
        expect(names.first).to_be_visible()
        assert set(engines) <= set(names.all_inner_texts()), title
    words = card(graphs, "Subscriptions").locator(".graph-word")
    assert sorted(words.all_inner_texts()) == ["dummy"] * (len(engines) - 1) + ["live"]
    expect(card(graphs, "Bytes delivered").locator(".graph-moment")).to_have_text("B/s")
    expect(card(graphs, "Matching time").locator(".graph-moment")).to_have_text("ms/s")


@pytest.mark.soak
def test_lines_are_drawn_in_the_colours_of_their_engines(graphs: Any) -> None:
    # Colours of a canvas are seen by nobody but eyes and this test.
    drawn = """(canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const found = new Set();
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] === 255) found.add([data[i], data[i + 1], data[i + 2]].join());
      }
      return [...found];
    }"""
    until(graphs, "document.querySelectorAll('.graph-plot canvas').length >= 9")
    colours = card(graphs, "Subscriptions").locator("canvas").evaluate(drawn)
    assert "0,114,178" in colours  # object
    assert "213,94,0" in colours  # tile
    graphs.emulate_media(color_scheme="dark")
    dark = card(graphs, "Subscriptions").locator("canvas")
    wait_for(graphs, lambda: "86,180,233" in dark.evaluate(drawn))
    dashes = (
        legend(graphs, "Subscriptions")
        .locator("line")
        .evaluate_all("(lines) => lines.map((line) => line.getAttribute('stroke-dasharray'))")
    )
    assert len(set(dashes)) == len(dashes), "colour alone would tell them apart"


@pytest.mark.soak
def test_the_broker_has_charts_too(graphs: Any) -> None:
    expect(legend(graphs, "Delay in the broker").locator(".graph-name")).to_have_text(
        ["until kept", "until sent"]
    )
    expect(card(graphs, "Delay in the broker").locator(".graph-moment")).to_have_text("ms")


# --- a command, seen ------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_command_is_seen_in_the_graphs(graphs: Any) -> None:
    """People who stand still need no updates; when they walk again, they do."""
    title, engine = "Update notifications", engines_of(graphs)[0]
    commanded(graphs, "stop player*", lambda: 0 <= value(graphs, title, engine) < 60)
    commanded(graphs, "wander player*", lambda: value(graphs, title, engine) > 120)


def wait_for(page: Any, is_true: Callable[[], bool]) -> None:
    """Wait for something that neither Playwright nor a line of JavaScript can tell."""
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end, "it never came true"
        page.wait_for_timeout(100)


def commanded(page: Any, command: str, is_seen: Callable[[], bool]) -> None:
    """Say something until it is seen: the scenario gives commands of its own in between."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        say(page, command)
        for _ in range(30):
            if is_seen():
                return
            page.wait_for_timeout(100)
    raise AssertionError(f"{command} is not seen")


@pytest.mark.soak
def test_another_live_engine_is_marked(graphs: Any) -> None:
    engines = engines_of(graphs)
    live = card(graphs, "Publications").locator(".graph-name.is-live")
    for engine in (engines[-1], engines[0]):
        say(graphs, f"engine {engine}")
        expect(live).to_have_text(engine)
    marked = graphs.locator(".graph-name.is-live")
    key = card(graphs, "Publications").locator(".graph-key", has=marked)
    expect(key).to_contain_text("live")
    assert float(key.locator("line").get_attribute("stroke-width")) == 3


# --- past and present -----------------------------------------------------------------------------


@pytest.mark.soak
def test_past_and_present_meet_without_gap_or_double(graphs: Any) -> None:
    graphs.reload()
    option(graphs, "Subscriptions", "Table").click()
    expect(card(graphs, "Subscriptions").locator("tbody tr").nth(4)).to_be_visible()
    moments = [row[0] for row in rows(graphs, "Subscriptions")[1:]]
    assert len(moments) >= 5
    assert moments == sorted(moments, reverse=True), "the newest first"


@pytest.mark.soak
def test_how_tracks_are_joined(modules: Any) -> None:
    joined = """async ([past, live]) => {
      const { joined } = await import('/page/graphs/tracks.js');
      const of = (track) => new Map([['a', track]]);
      const { at, value } = joined(of(past), of(live)).get('a');
      return [at, value];
    }"""
    past = {"at": [1, 2, 3], "value": [10, 20, 30], "resolution": 0}
    live = {"at": [2.1, 3.1, 4.1], "value": [21, 31, 41], "resolution": 0}
    assert modules.evaluate(joined, [past, live]) == [[1, 2, 3, 4.1], [10, 20, 30, 41]]
    late = {"at": [20, 21], "value": [1, 2], "resolution": 0}
    at, values = modules.evaluate(joined, [past, late])
    assert (at[3], values[3:]) == (11.5, [None, 1, 2]), "a hole stays one"
    rolled = {"at": [0, 10, 20], "value": [5, 6, 1], "resolution": 10}
    whole = {"at": [19, 20, 24, 29, 30, 31], "value": [9, 7, 8, 9, 3, 5], "resolution": 0}
    assert modules.evaluate(joined, [rolled, whole]) == [[0, 10, 20, 30], [5, 6, 8, 4]]


@pytest.mark.soak
def test_a_hole_is_as_wide_as_nothing_is_known(modules: Any) -> None:
    first = """async (tracks) => {
      const { aligned } = await import('/page/graphs/tracks.js');
      return aligned(tracks, [0, 9], 2).values.map((column) =>
        column.map((value) => (value === undefined ? "between" : value)));
    }"""
    holed = {"at": [1, 2, 5, 8], "value": [1, 2, None, 3], "resolution": 0}
    other = {"at": [1, 4, 6, 8], "value": [1, 1, 1, 1], "resolution": 0}
    assert modules.evaluate(first, [holed, other]) == [
        [2, 4, None, None, None, 6],
        [2, "between", 2, "between", 2, 2],
    ]


@pytest.mark.soak
def test_rates_are_made_of_totals(modules: Any) -> None:
    rates = """async (samples) => {
      const { liveTracks } = await import('/page/graphs/tracks.js');
      const figures = [{figure: 'a', is_rate: true}, {figure: 'b', is_rate: true}];
      const { at, value } = liveTracks(samples, figures).get('area');
      return [at, value];
    }"""

    def sample(now: float, run: int, a: float, b: float) -> dict[str, Any]:
        return {"now": now, "run": run, "sources": {"area": {"a": a, "b": b}}}

    samples = [sample(0, 1, 0, 0), sample(2, 1, 6, 4), sample(3, 2, 0, 0), sample(4, 2, 1, 2)]
    at, values = modules.evaluate(rates, samples)
    assert values == [5, None, 3], "another run begins from nothing"
    assert (at[0], at[2]) == (2, 4)


@pytest.mark.soak
def test_without_the_past_the_present_is_drawn_and_the_fault_is_told(watched: Watched) -> None:
    watched.expected.append("status of 503")
    page = watched.open()
    refusal = {"status": 503, "body": '{"error": "the database is away", "hint": ""}'}
    page.route("**/api/points?*", lambda route: route.fulfill(**refusal))
    page.get_by_role("tab", name="Graphs").click()
    fault = card(page, "Subscriptions").get_by_text("The past is missing: the database is away")
    expect(fault).to_be_visible()
    page.unroute("**/api/points?*")
    fault.get_by_role("button", name="Try again").click()
    expect(fault).to_be_hidden()


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.soak
def test_one_cursor_for_all_and_a_period_that_can_be_chosen(graphs: Any) -> None:
    until(graphs, "document.querySelectorAll('.graph-plot canvas').length >= 9")
    over = card(graphs, "Subscriptions").locator(".u-over")
    box = over.bounding_box()
    graphs.mouse.move(box["x"] + box["width"] - 5, box["y"] + 40)
    for title in ("Subscriptions", "Publications"):
        moment = card(graphs, title).locator(".graph-moment")
        expect(moment).to_have_text(re.compile(r"at \d\d:\d\d:\d\d$"))
    for name in ("1 min", "1 h", "1 day", "Whole run"):
        graphs.get_by_text(name, exact=True).click()
        expect(legend(graphs, "Subscriptions").first).to_be_visible()
    graphs.get_by_text("From … to").click()
    graphs.get_by_label("from", exact=True).fill("2020-01-01T00:00:00")
    graphs.get_by_label("to", exact=True).fill("2019-01-01T00:00:00")
    expect(graphs.get_by_text("It has to end after it begins.")).to_be_visible()
    graphs.get_by_label("to", exact=True).fill("2020-01-01T01:00:00")
    graphs.get_by_role("button", name="Show").click()
    empty = card(graphs, "Notifications sent").get_by_text("No data in this period")
    expect(empty).to_be_visible()


@pytest.mark.soak
def test_zoom_with_mouse_and_keys_and_pause(graphs: Any) -> None:
    plot = card(graphs, "Subscriptions").locator(".graph-plot")
    over = plot.locator(".u-over")
    expect(over).to_be_visible()
    back = graphs.get_by_role("button", name="Back from zoom")
    box = over.bounding_box()
    graphs.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    graphs.mouse.down()
    graphs.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 50, steps=4)
    graphs.mouse.up()
    expect(back).to_be_visible()
    over.dblclick()
    expect(back).to_be_hidden()
    plot.focus()
    graphs.keyboard.press("+")
    expect(back).to_be_visible()
    graphs.keyboard.press("ArrowLeft")
    said = re.compile(r"\d\d:\d\d:\d\d: .* subscriptions")
    expect(graphs.locator("#announcer")).to_have_text(said)
    graphs.keyboard.press("0")
    expect(back).to_be_hidden()
    graphs.get_by_role("toolbar").get_by_role("button", name="Pause").click()
    option(graphs, "Publications", "Table").click()
    newest = card(graphs, "Publications").locator("tbody td").first
    stopped = newest.inner_text()
    graphs.wait_for_timeout(1500)  # a sample comes every second
    assert newest.inner_text() == stopped
    graphs.get_by_role("button", name="Go on").click()
    expect(newest).not_to_have_text(stopped)


# --- charts of one's own --------------------------------------------------------------------------


@pytest.mark.soak
def test_a_chart_of_any_metric_is_added_and_stays(graphs: Any, monitor: RunningMonitor) -> None:
    now = graphs.evaluate("Date.now() / 1000")
    with Database(monitor.database) as database:
        database.put_readings(
            [Reading(HOSTILE, f'site="{HOSTILE[:4]}"', now - n, float(n)) for n in range(20)]
        )
    graphs.get_by_role("button", name="Add a chart").click()
    dialog = graphs.get_by_role("dialog", name="Add a chart")
    expect(dialog.get_by_label("Search")).to_be_focused()
    dialog.get_by_label("Search").fill("ONERROR")
    dialog.locator(".graph-found-row").click()
    dialog.get_by_role("button", name="Add this chart").click()
    expect(dialog).to_be_hidden()
    graphs.reload()
    added = graphs.locator(".graph-card").last
    expect(added.locator("h2")).to_have_text(HOSTILE)
    expect(added.locator(".graph-name")).to_have_text("site <img")
    assert graphs.evaluate("window.hacked") is None
    assert graphs.locator("main img").count() == 0
    option(graphs, HOSTILE, "Remove chart").click()
    expect(graphs.locator(".graph-card h2")).to_have_text(TITLES)


@pytest.mark.soak
def test_charts_are_moved_and_changed_and_the_layout_is_kept(graphs: Any) -> None:
    titles = graphs.locator(".graph-card h2")
    handle = card(graphs, "Publications").get_by_role("button", name="Move Publications")
    handle.press("ArrowLeft")
    expect(titles.nth(1)).to_have_text("Publications")
    expect(graphs.locator("#announcer")).to_have_text("Publications is now chart 2 of 11.")
    handle.drag_to(card(graphs, "Subscriptions"))
    expect(titles.first).to_have_text("Publications")
    option(graphs, "Publications", "Two columns wide").click()
    option(graphs, "Publications", "Logarithmic axis").click()
    graphs.keyboard.press("Escape")
    expect(card(graphs, "Publications").locator("details")).not_to_have_attribute("open", "")
    graphs.reload()
    expect(titles.first).to_have_text("Publications")
    expect(graphs.locator(".graph-item").first).to_have_class(re.compile("is-wide"))
    graphs.get_by_role("button", name="Reset the layout").click()
    expect(titles).to_have_text(TITLES)
    expect(graphs.locator(".graph-item.is-wide")).to_have_count(0)


@pytest.mark.soak
def test_a_line_can_be_hidden(graphs: Any) -> None:
    line = legend(graphs, "Subscriptions").first
    line.click()
    expect(line).to_have_attribute("aria-pressed", "false")


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_chart_is_saved_as_csv_and_png(graphs: Any, tmp_path: Path) -> None:
    engines = engines_of(graphs)
    with graphs.expect_download() as download:
        option(graphs, "Subscriptions", "Save as CSV").click()
    assert download.value.suggested_filename == "rove-subscriptions.csv"
    download.value.save_as(tmp_path / "chart.csv")
    table = list(csv.reader(io.StringIO((tmp_path / "chart.csv").read_text(encoding="utf-8"))))
    assert table[0][:2] == ["time", "seconds since 1970"]
    assert {f"{engine} (subscriptions)" for engine in engines} <= set(table[0][2:])
    moments = [float(row[1]) for row in table[1:]]
    assert moments == sorted(set(moments))
    assert any(float(cell) > 0 for row in table[1:] for cell in row[2:] if cell)
    expect(card(graphs, "Subscriptions").locator("canvas")).to_be_visible()
    with graphs.expect_download() as download:
        option(graphs, "Subscriptions", "Save as PNG").click()
    download.value.save_as(tmp_path / "chart.png")
    picture = (tmp_path / "chart.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 400
    assert height > 250


def test_cells_of_a_csv_are_no_formulas(modules: Any) -> None:
    text = modules.evaluate(
        """async () => (await import('/page/graphs/files.js')).csvOf(
          {x: [0], values: [[1.5], [null]]}, [{name: '=HYPERLINK("x")'}, {name: 'a,b'}], 'B/s')"""
    )
    head, row, _ = text.split("\r\n")
    assert next(csv.reader([head]))[2:] == ['\'=HYPERLINK("x") (B/s)', "a,b (B/s)"]
    assert row == "1970-01-01T00:00:00.000Z,0.000,1.5,"


# --- for everybody --------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_the_graphs_are_accessible(watched: Watched, axe: str, shot: Shot, scheme: str) -> None:
    page = opened(watched, color_scheme=scheme)
    until(page, "document.querySelectorAll('.graph-plot canvas').length >= 9")
    assert faults_of(page, axe) == []
    shot(page, f"graphs-{scheme}")
    page.get_by_role("button", name="Add a chart").click()
    option_list = page.get_by_role("dialog").locator(".graph-found-row").first
    expect(option_list).to_be_visible()
    assert faults_of(page, axe) == []


@pytest.mark.soak
def test_a_telephone_shows_one_column(watched: Watched) -> None:
    page = opened(watched, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.querySelector('.main').scrollWidth") <= 360
    lefts = page.locator(".graph-item").evaluate_all(
        "(items) => items.map((item) => item.getBoundingClientRect().left)"
    )
    assert len(set(lefts)) == 1
