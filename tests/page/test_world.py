"""The world view: the map and its renderers, selecting, leading, layers, the table."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from playwright.sync_api import expect

from rove.monitor.motion_frames import ClientAreas, Motion
from tests.effort import some
from tests.page.conftest import PATIENCE_MS, PLAYERS, RunningMonitor, Shot, Watched
from tests.page.plain_monitor import PlainMonitor
from tests.page.waiting import until

SCRIPT_MS_MAX = 4.0
ITEMS = 40
FOUR_SERVERS = """
title = "Four servers and their air"
about = "For the heat map and the regions."

[map]
name = "arena"

[people]
players = 20
npcs = 5
servers = 4

[engines]
use = ["object", "tile", "area", "pes"]

[air]
sensors = 10
"""

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainMonitor]:
    """A world with sensors and four servers."""
    folder = tmp_path_factory.mktemp("air")
    (folder / "four.toml").write_text(FOUR_SERVERS)
    one = PlainMonitor(folder, str(folder / "four.toml"))
    one.start()
    yield one
    one.stop()


def the_map(page: Any) -> Any:
    return page.get_by_role("application", name="Map of the world")


def is_drawn(page: Any) -> None:
    until(page, "window.roveFrames && roveFrames().frames > 1")


def select(page: Any, name: str) -> None:
    page.get_by_label("Find an entity by name").fill(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def said(page: Any, text: str) -> None:
    """Say something in the console, and wait until it is done."""
    before = page.locator(".console-line.is-ok").count()
    page.get_by_label("Command").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".console-line.is-ok")).to_have_count(before + 1)


def figure(page: Any, name: str) -> Any:
    return page.locator(".figures div", has_text=name).locator("dd")


def pixels_of(page: Any) -> npt.NDArray[np.int16]:
    """The map as it is seen: rows, columns, and three colours."""
    picture = Image.open(io.BytesIO(the_map(page).screenshot())).convert("RGB")
    return np.asarray(picture, np.int16)


def has_colour(page: Any, wanted: tuple[int, int, int]) -> bool:
    """Whether some pixel is as good as of this colour."""
    return bool((np.abs(pixels_of(page) - np.array(wanted)).max(axis=2) <= 6).any())


def reds(page: Any, at_least: int = 35) -> int:
    """Pixels that are rather red than green; only engines have such colours on this map."""
    pixels = pixels_of(page)
    return int((pixels[..., 0] - pixels[..., 1] > at_least).sum())


def yellows(page: Any) -> int:
    """Pixels from the upper half of the heat map's scale."""
    pixels = pixels_of(page)
    return int((pixels[..., 0] - pixels[..., 2] > 25).sum())


def next_picture(page: Any) -> None:
    frames = page.evaluate("roveFrames().frames")
    until(page, f"roveFrames().frames > {frames + 1}")


PLAYER, WALL = (47, 95, 208), (201, 206, 215)


@pytest.mark.parametrize(("path", "name"), some([("/", "webgl2"), ("/?renderer=2d", "canvas2d")]))
def test_the_map_shows_walls_and_players(watched: Watched, path: str, name: str) -> None:
    page = watched.open(path)
    is_drawn(page)
    expect(the_map(page)).to_have_attribute("data-renderer", name)
    assert page.evaluate("roveFrames().dots") == PLAYERS + ITEMS
    assert has_colour(page, WALL)
    assert has_colour(page, PLAYER)


@pytest.mark.soak
def test_without_the_graphics_card_it_goes_on(page: Any) -> None:
    is_drawn(page)
    page.evaluate(
        "document.querySelector('.map-canvas').getContext('webgl2')"
        ".getExtension('WEBGL_lose_context').loseContext()"
    )
    expect(the_map(page)).to_have_attribute("data-renderer", "canvas2d")
    frames = page.evaluate("roveFrames().frames")
    until(page, f"roveFrames().frames > {frames + 1}")
    assert has_colour(page, WALL)


@pytest.mark.soak
def test_ten_thousand_dots_take_little_of_the_pages_time(watched: Watched) -> None:
    small = {"width": 900, "height": 500}
    page = watched.open(reduced_motion="no-preference", viewport=small)
    is_drawn(page)
    page.evaluate("roveStress(10_000, 1_000)")
    until(page, "roveFrames().frames > 15")
    figures = page.evaluate("roveFrames()")
    assert (figures["dots"], figures["rectangles"]) == (10_000, 1_000)
    assert figures["script_ms_mean"] <= SCRIPT_MS_MAX


@pytest.mark.soak
def test_reduced_motion_gets_fewer_frames(page: Any) -> None:
    is_drawn(page)
    rate = """async () => {
        const before = roveFrames().frames;
        await new Promise((resolve) => setTimeout(resolve, 1500));
        return (roveFrames().frames - before) / 1.5;
    }"""
    assert page.evaluate(rate) < 4


@pytest.mark.soak
def test_the_selected_is_described_and_what_it_listens_to(page: Any, shot: Shot) -> None:
    is_drawn(page)
    select(page, "player1")
    expect(figure(page, "Position")).to_have_text(re.compile(r"\d+\.\d, \d+\.\d m"))
    expect(figure(page, "Speed")).to_have_text(re.compile(r"\d\.\d m/s"))
    table = page.get_by_role("table", name="Listens to")
    rows = table.get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(2)).to_contain_text("tile")
    expect(page.get_by_text("What it really sees: 60.0 m × 40.0 m")).to_be_visible()
    page.get_by_role("button", name="Deselect").click()
    expect(page.get_by_text("Nothing selected")).to_be_visible()


@pytest.mark.soak
def test_beliefs_of_engines_are_drawn_in_their_colours(page: Any) -> None:
    is_drawn(page)
    said(page, "stop player1")
    select(page, "player1")
    expect(page.get_by_role("table", name="Listens to")).to_be_visible()
    for name in ("object", "tile", "evolving"):
        page.get_by_label(f"Draw {name}").uncheck()
    next_picture(page)
    assert reds(page) > 40  # the outline of the area that is listened to
    page.get_by_label("Draw area").uncheck()
    next_picture(page)
    assert reds(page) == 0
    page.get_by_label("Draw tile").check()
    next_picture(page)
    assert reds(page, 15) > 40  # tiles, in a breath of orange


@pytest.mark.soak
def test_a_click_selects_and_escape_lets_go(page: Any) -> None:
    is_drawn(page)
    said(page, "stop player2")
    select(page, "player2")
    page.get_by_role("button", name="Follow").click()
    next_picture(page)
    name = page.locator(".card h2")
    the_map(page).press("Escape")
    expect(name).to_have_count(0)
    the_map(page).click()  # in the middle, where player2 stands
    expect(name).to_have_text(re.compile("player|item"))


@pytest.mark.soak
def test_a_player_is_led_by_click_and_by_keys(page: Any) -> None:
    is_drawn(page)
    said(page, "go player3 to green")
    select(page, "player3")
    page.get_by_role("button", name="Lead").click()
    expect(page.get_by_text("You lead player3.")).to_be_visible()
    the_map(page).click(position={"x": 60, "y": 200})
    line = page.locator(".console-line.is-said").last
    expect(line).to_have_text(re.compile(r"go player3 to -?[\d.]+ -?[\d.]+"))
    the_map(page).focus()
    page.keyboard.down("w")
    expect(figure(page, "Speed")).not_to_have_text("0.0 m/s")
    page.keyboard.up("w")
    expect(figure(page, "Speed")).to_have_text("0.0 m/s")
    page.keyboard.press("Escape")
    expect(page.get_by_text("You lead player3.")).to_have_count(0)


@pytest.mark.soak
def test_keys_steer_nobody_outside_of_the_map(page: Any) -> None:
    is_drawn(page)
    select(page, "player4")
    page.get_by_role("button", name="Lead").click()
    page.get_by_label("Command").press_sequentially("wasd")
    expect(page.get_by_label("Command")).to_have_value("wasd")
    assert page.locator(".console-line.is-said").count() == 0


@pytest.mark.soak
def test_the_map_zooms_by_keys_buttons_and_wheel(page: Any) -> None:
    is_drawn(page)
    bar = page.locator(".scale-bar")
    expect(bar).to_have_text(re.compile(r"\d+ m"))

    def changes(act: Any) -> None:
        before = bar.get_attribute("style")
        act()
        expect(bar).not_to_have_attribute("style", before)

    changes(lambda: the_map(page).press("+"))
    changes(lambda: page.get_by_role("button", name="Zoom in").click())
    changes(lambda: page.get_by_role("button", name="Show all").click())
    the_map(page).hover()
    changes(lambda: page.mouse.wheel(0, -240))
    changes(lambda: the_map(page).press("0"))


@pytest.mark.soak
def test_fingers_pinch(watched: Watched) -> None:
    page = watched.open(has_touch=True, viewport={"width": 600, "height": 900})
    is_drawn(page)
    before = page.locator(".scale-bar").get_attribute("style")
    box = the_map(page).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hands = page.context.new_cdp_session(page)

    def touch(kind: str, apart: int) -> None:
        at = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        points = [] if kind == "touchEnd" else at
        hands.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 40)
    for apart in range(50, 160, 10):
        touch("touchMove", apart)
    touch("touchEnd", 0)
    expect(page.locator(".scale-bar")).not_to_have_attribute("style", before)
    expect(page.get_by_text("Nothing selected")).to_be_visible()


@pytest.mark.soak
def test_layers_are_remembered(page: Any) -> None:
    is_drawn(page)
    page.locator(".toggle", has_text="Areas of all clients").click()
    until(page, "roveFrames().rectangles > 0")
    page.reload()
    is_drawn(page)
    expect(page.get_by_label("Areas of all clients")).to_be_checked()
    until(page, "roveFrames().rectangles > 0")


@pytest.mark.soak
def test_the_table_tells_the_same(page: Any) -> None:
    is_drawn(page)
    page.get_by_role("button", name="Table", exact=True).click()
    table = page.get_by_role("table", name="All entities of the world")
    expect(table.get_by_role("row")).to_have_count(51)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("Page 2 of 2")).to_be_visible()
    page.get_by_label("Name contains").fill("player1")
    expect(table.get_by_role("row")).to_have_count(12)
    page.get_by_label("Kind").select_option("item")
    expect(page.get_by_text("No entity matches the filter")).to_be_visible()
    page.get_by_label("Kind").select_option("player")
    table.get_by_role("button", name="player12").click()
    expect(page.get_by_role("heading", name="player12")).to_be_visible()


@pytest.mark.soak
def test_sensors_are_a_heat_map_and_servers_have_regions(
    watched: Watched, air: PlainMonitor
) -> None:
    page = watched.open(url=air.url)
    is_drawn(page)
    expect(page.get_by_label("Regions of servers")).to_be_checked()
    page.locator(".toggle", has_text="Sensors as heat map").click()
    expect(page.get_by_label("Reading")).to_have_value("NO2")
    expect(page.get_by_text("µg/m³")).to_be_visible()
    next_picture(page)
    assert yellows(page) > 1000
    page.get_by_label("Reading").select_option("temperature")
    expect(page.get_by_text("°C")).to_be_visible()


@pytest.mark.soak
def test_the_world_in_light_and_in_dark(watched: Watched, shot: Shot) -> None:
    page = watched.open(color_scheme="light")
    is_drawn(page)
    for text in ("help gather", "stop player1", "travel player1"):
        said(page, text)
    select(page, "player1")
    page.locator(".toggle", has_text="Areas of all clients").click()
    page.get_by_role("button", name="Follow").click()
    page.get_by_role("button", name="Zoom out").click()
    expect(page.get_by_role("table", name="Listens to")).to_be_visible()
    until(page, "roveFrames().rectangles > 0")
    page.locator(".world-side").evaluate("side => side.scrollTo(0, 0)")
    page.mouse.move(0, 0)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        next_picture(page)
        assert shot(page, f"world-{scheme}").stat().st_size > 20_000


# -- parts that do not need a picture ---------------------------------------------------------


@pytest.fixture(scope="module")
def scripts(chromium: Any, monitor: RunningMonitor) -> Iterator[Any]:
    """A page to load modules in; nothing on it is looked at."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{monitor.url}/page/favicon.svg")
    yield page
    context.close()


def in_page(page: Any, module: str, body: str, *given: Any) -> Any:
    """What a function body answers that has a module of the page as `m`."""
    script = f"async (given) => {{ const m = await import('/page/{module}'); {body} }}"
    return page.evaluate(script, list(given))


def test_frames_are_read_as_the_server_writes_them(scripts: Any) -> None:
    motion = Motion(3)
    x, y, v = np.array([1.5, 2.5, 3.5]), np.array([4.0, 5.0, 6.0]), np.array([0.25, -1.0, 0.0])
    legs = motion.look(x, y, v, -v, 7, 0.7, 0.1)
    boxes = np.array([[1.0, 2.0, 30.0, 20.0, 0.5, -0.5]])
    areas = ClientAreas(3).look(np.array([2], np.int32), boxes, 7, 0.7)
    read = """
        const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
        return given.map((text) => {
          const f = m.decode(bytes(text));
          const all = [...f.x.keys()];
          const { kind, tick, at, is_whole } = f;
          return { kind, tick, at, is_whole, x: [...f.x], y: [...f.y], vx: all.map(f.vx),
            vy: all.map(f.vy), lines: [...(f.lines ?? [])], rx: [...(f.rx ?? [])] };
        });"""
    sent = [base64.b64encode(frame).decode() for frame in (legs, motion.whole(), areas)]
    one, whole, area = in_page(scripts, "world/frames.js", read, *sent)
    assert (one["kind"], one["tick"], one["at"], one["lines"]) == (2, 7, 0.7, [0, 1, 2])
    assert (one["x"], one["y"]) == (x.tolist(), y.tolist())
    assert (one["vx"], one["vy"]) == (v.tolist(), (-v).tolist())
    assert (whole["kind"], whole["x"], whole["vx"]) == (1, x.tolist(), v.tolist())
    assert (area["kind"], area["is_whole"], area["lines"], area["rx"]) == (3, True, [2], [30.0])


def test_the_clock_is_smooth_and_never_goes_back(scripts: Any) -> None:
    run = """
        const clock = new m.WorldClock();
        const shown = [];
        for (let i = 0; i < 600; i += 1) {
          const now = i / 60;
          const late = (i * 7919 % 50) / 1000; // frames come up to 50 ms late
          if (i % 6 === 0) clock.take(i / 60, now + late);
          shown.push(clock.time(now + 0.06));
        }
        return shown;"""
    shown = np.array(in_page(scripts, "world/clock.js", run))
    steps = np.diff(shown)
    assert steps.min() >= 0
    assert steps[120:].max() < 2.5 / 60
    assert abs(shown[-1] - 599 / 60) < 0.3


def test_between_legs_the_old_one_is_drawn_until_the_new_one_begins(scripts: Any) -> None:
    run = """
        const frame = (kind, at, x, vx) => ({
          kind, at, count: 1, lines: [0], x: [x], y: [0], vx: () => vx, vy: () => 0,
        });
        const dots = new m.Dots([0]);
        dots.take(frame(1, 10, 0, 1));
        dots.take(frame(2, 12, 2, -1));
        return [11, 12, 13].map((at) => dots.place(0, at).x);"""
    assert in_page(scripts, "world/dots.js", run) == [1, 2, 1]


def test_walls_are_cut_into_triangles_of_the_same_area(scripts: Any) -> None:
    corners = [[0, 0], [4, 0], [4, 4], [2, 4], [2, 2], [0, 2]]
    run = "return [m.polygonTriangles(given), m.polygonTriangles([...given].reverse())];"
    for flat in in_page(scripts, "world/geometry.js", run, *corners):
        a, b, c = np.array(flat).reshape(-1, 3, 2).transpose(1, 0, 2)
        cross = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
        assert abs(cross / 2).sum() == 12


def test_the_nearest_names_come_first(scripts: Any) -> None:
    run = "return m.namesLike(['npc1', 'player1', 'player10', 'Player2', 'x-player'], given[0]);"
    found = in_page(scripts, "world/search.js", run, "PLAYER")
    assert found == ["player1", "player10", "Player2", "x-player"]
