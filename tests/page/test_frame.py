"""The frame of the page: header, tabs, themes, states, reconnecting, logging in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from rove.monitor.page_files import Files
from tests.page.conftest import PATIENCE_MS, RunningMonitor, Watched, faults_of
from tests.page.plain_monitor import PlainMonitor
from tests.page.waiting import until

PAGE = Path(__file__).parents[2] / "src" / "rove" / "monitor" / "page"
PAGE_BYTES_MAX = 150_000
HOSTILE = "<img src=x onerror=window.hacked=1>\"'&amp;"
HOSTILE_SCENARIO = f"""
title = '''{HOSTILE}'''
about = '''<script>window.hacked = 1</script>'''

[map]
name = "arena"

[people]
players = 5

[engines]
use = ["area"]
"""
KEY = "open sesame, please"

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainMonitor]:
    """A monitor that asks for a key and plays a scenario with a hostile title."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "key").write_text(KEY)
    (folder / "hostile.toml").write_text(HOSTILE_SCENARIO)
    one = PlainMonitor(folder, str(folder / "hostile.toml"), "--password-file", str(folder / "key"))
    one.start()
    yield one
    one.stop()


def header(page: Any) -> Any:
    return page.locator("header.bar")


def connection(page: Any) -> Any:
    return page.locator(".connection")


@pytest.mark.soak
def test_the_header_tells_what_runs(page: Any) -> None:
    expect(connection(page)).to_have_text("Live")
    expect(header(page)).to_contain_text("Flash crowd")
    expect(header(page).get_by_text("Live engine")).to_be_visible()
    expect(page).to_have_title(re.compile("Flash crowd · Rove monitor"))

    expect(page.get_by_role("tab")).to_have_text(["World", "Graphs", "Operations", "Compare"])
    expect(page.get_by_role("tab", name="World")).to_have_attribute("aria-selected", "true")


@pytest.mark.soak
def test_tabs_are_addresses_and_keep_the_focus(page: Any) -> None:
    page.get_by_role("tab", name="World").press("ArrowRight")
    expect(page.get_by_role("tab", name="Graphs")).to_be_focused()
    expect(page.get_by_role("tab", name="Graphs")).to_have_attribute("aria-selected", "true")
    assert page.url.endswith("#graphs")
    page.keyboard.press("Home")
    expect(page.get_by_role("tab", name="World")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("tab", name="Graphs")).to_have_attribute("aria-selected", "true")


@pytest.mark.soak
def test_skipping_the_header_or_following_a_link_leads_to_the_view(page: Any) -> None:
    expect(page.get_by_role("tab").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the view")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("tabpanel")).to_be_focused()
    page.get_by_label("Command").focus()
    page.evaluate("location.hash = 'graphs'")
    expect(page.get_by_role("tabpanel")).to_be_focused()


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


LIGHT, DARK = "rgb(245, 246, 248)", "rgb(14, 17, 22)"


@pytest.mark.soak
def test_the_theme_is_the_systems_until_somebody_chooses(watched: Watched) -> None:
    page = watched.open(color_scheme="dark")
    button = page.locator("[data-theme-choice]")
    expect(button).to_have_attribute("data-theme-choice", "auto")
    assert background(page) == DARK
    button.click()
    expect(button).to_have_attribute("data-theme-choice", "light")
    assert background(page) == LIGHT
    page.emulate_media(color_scheme="light")
    button.click()
    expect(button).to_have_attribute("data-theme-choice", "dark")
    assert background(page) == DARK
    page.reload()
    expect(button).to_have_attribute("data-theme-choice", "dark")
    assert background(page) == DARK


@pytest.mark.soak
def test_a_view_that_cannot_be_loaded_is_an_error_in_its_place(watched: Watched) -> None:
    watched.expected.append("Failed to load resource")
    page = watched.open()
    page.route("**/page/graphs/view.js", lambda route: route.abort())
    page.get_by_role("tab", name="Graphs").click()
    expect(page.get_by_role("alert")).to_contain_text("Graphs cannot be loaded")
    page.get_by_role("tab", name="World").click()
    expect(page.get_by_role("application", name="Map of the world")).to_be_visible()


@pytest.mark.soak
def test_a_page_that_finds_nobody_says_so_and_tries_again(
    watched: Watched, monitor: RunningMonitor
) -> None:
    watched.expected.append("Failed to load resource")
    page = watched.open("/page/favicon.svg")
    page.context.route("**/api/hello", lambda route: route.abort())
    page.goto(monitor.url)
    expect(page.get_by_role("alert")).to_contain_text("The monitor does not answer")
    page.context.unroute("**/api/hello")
    expect(connection(page)).to_have_text("Live")


@pytest.mark.soak
def test_it_reconnects_when_the_monitor_comes_back(watched: Watched, tmp_path: Path) -> None:
    watched.expected += ["WebSocket connection", "Failed to load resource"]
    one = PlainMonitor(tmp_path, "crowd", "--players", "10", "--engines", "area")
    try:
        one.start()
        page = watched.open(url=one.url)
        expect(connection(page)).to_have_text("Live")
        expect(header(page)).to_contain_text("Flash crowd")
        run = page.locator(".run-title").get_attribute("title")
        one.stop()
        expect(page.get_by_text("The connection is lost")).to_be_visible()
        expect(page).to_have_title(re.compile(r"^\(offline\)"))
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        one.start()
        expect(connection(page)).to_have_text("Live")
        expect(page.get_by_text("The connection is lost")).to_have_count(0)
        # Another run has begun; the page shows that one.
        expect(page.locator(".run-title")).not_to_have_attribute("title", run or "")
        until(page, "roveFrames().dots === 50")
    finally:
        one.stop()


HIDE = """(is_hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => is_hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.soak
def test_a_hidden_page_is_sent_nothing_of_the_world(page: Any) -> None:
    sent: list[str] = []
    received: list[str | bytes] = []

    def note_sent(text: str) -> None:
        sent.append(text)

    def note_received(message: str | bytes) -> None:
        received.append(message)

    def listen(socket: Any) -> None:
        socket.on("framesent", note_sent)
        socket.on("framereceived", note_received)

    def hear(what: Callable[[str | bytes], bool]) -> None:
        received.clear()
        for _ in range(600):
            if any(what(message) for message in received):
                return
            page.wait_for_timeout(100)
        raise AssertionError("it was never heard")

    def is_sample(message: str | bytes) -> bool:
        return isinstance(message, str) and '"type":"sample"' in message

    page.on("websocket", listen)
    page.reload()
    hear(lambda message: isinstance(message, bytes))
    page.evaluate(HIDE, True)
    hear(is_sample)  # what was on its way has come by then
    assert '"world":false' in sent[-1]
    hear(is_sample)
    assert not any(isinstance(message, bytes) for message in received)
    page.evaluate(HIDE, False)
    hear(lambda message: isinstance(message, bytes) and message[0] == 1)  # everybody's place


@pytest.mark.soak
def test_who_has_to_log_in_gets_a_form_and_is_let_in(
    watched: Watched, locked: PlainMonitor, axe: str
) -> None:
    watched.expected.append("Failed to load resource")
    page = watched.open(url=locked.url)
    expect(page.get_by_role("heading", name="Rove monitor")).to_be_visible()
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    assert faults_of(page, axe) == []
    page.get_by_label("Password").fill(KEY)
    page.keyboard.press("Enter")
    expect(connection(page)).to_have_text("Live")


def test_hostile_names_are_text_and_run_nothing(watched: Watched, locked: PlainMonitor) -> None:
    page = watched.open(url=locked.url)
    page.get_by_label("Password").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.locator(".run-title")).to_have_text(HOSTILE)
    expect(page).to_have_title(re.compile(re.escape(HOSTILE)))
    option = page.get_by_label("Scenario").locator("option", has_text="onerror")
    expect(option).to_have_text(HOSTILE)
    page.get_by_label("Command").fill(f"go {HOSTILE} to 1 1")
    page.keyboard.press("Enter")
    expect(page.locator(".console-line.is-refused")).to_contain_text("<img")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, header img, section img").count() == 0


@pytest.mark.soak
def test_a_telephone_does_not_scroll_sideways(watched: Watched) -> None:
    page = watched.open(viewport={"width": 360, "height": 740})
    expect(connection(page)).to_have_text("Live")
    for tab in ("World", "Graphs", "Operations", "Compare"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(f".view-{tab.lower()}")).to_be_visible()
        until(page, "document.documentElement.scrollWidth <= innerWidth")
        until(page, "document.querySelector('main').scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_axe_finds_nothing_wrong(watched: Watched, axe: str, scheme: str) -> None:
    page = watched.open(color_scheme=scheme)
    page.get_by_label("Find an entity by name").fill("player1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="player1", exact=True)).to_be_visible()
    expect(page.get_by_role("table", name="Listens to")).to_be_visible()
    page.get_by_label("Command").fill("help")
    page.keyboard.press("Enter")
    expect(page.locator(".console-line.is-ok")).to_be_visible()
    assert faults_of(page, axe) == []
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.get_by_role("table", name="All entities of the world")).to_be_visible()
    assert faults_of(page, axe) == []


def test_the_whole_page_is_small() -> None:
    files = Files()
    assert sum(len(files[path].packed) for path in files) < PAGE_BYTES_MAX


def test_the_page_has_no_markup_from_strings() -> None:
    own = [path for path in PAGE.rglob("*.js") if "vendor" not in path.parts]
    assert own
    for path in own:
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(", path.read_text())
        assert found is None, f"{path}: {found}"


def test_the_page_asks_nobody_but_its_own_server(page: Any, monitor: RunningMonitor) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    expect(connection(page)).to_have_text("Live")
    expect(page.get_by_role("application", name="Map of the world")).to_be_visible()
    assert len(asked) > 10
    assert all(url.startswith(monitor.url) for url in asked)
