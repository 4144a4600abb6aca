"""The console: commands that change the world, refusals, completion, history, buttons."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PATIENCE_MS, Watched

expect.set_options(timeout=PATIENCE_MS)


def line(page: Any) -> Any:
    return page.get_by_label("Command")


def say(page: Any, text: str) -> None:
    expect(page.get_by_role("button", name="Say")).to_be_enabled()
    line(page).fill(text)
    line(page).press("Enter")


def answers(page: Any, kind: str) -> Any:
    return page.locator(f".console-line.is-{kind}")


@pytest.mark.soak
def test_help_tells_what_can_be_said(page: Any) -> None:
    say(page, "help")
    expect(answers(page, "ok")).to_contain_text("gather CROWD at POINT [within METRES]")
    expect(line(page)).to_have_value("")


@pytest.mark.soak
def test_what_is_no_command_is_refused_with_a_hint(page: Any) -> None:
    say(page, "gathr 50 at market")
    expect(answers(page, "refused")).to_contain_text("did you mean gather")
    say(page, "alert(1)")
    expect(answers(page, "refused").last).to_contain_text("there is no command")


@pytest.mark.soak
def test_a_command_changes_the_world(page: Any) -> None:
    page.get_by_label("Find an entity by name").fill("player5")
    page.keyboard.press("Enter")
    speed = page.locator(".figures div", has_text="Speed").locator("dd")
    say(page, "travel player5")
    expect(answers(page, "ok")).to_have_text(re.compile("travel player5: done at"))
    expect(speed).not_to_have_text("0.0 m/s")
    say(page, "stop player5")
    expect(speed).to_have_text("0.0 m/s")


@pytest.mark.soak
def test_another_engine_becomes_live(page: Any) -> None:
    live = page.locator(".run-live dd")
    say(page, "engine area")
    expect(live).to_have_text("area")
    chosen = page.get_by_label("Live engine")
    expect(chosen).to_have_value("area")
    chosen.select_option("tile")
    expect(live).to_have_text("tile")
    expect(answers(page, "said").last).to_have_text(re.compile("engine tile"))
    expect(answers(page, "note").last).to_contain_text("tile is live, area no longer")
    say(page, "engine object")
    expect(live).to_have_text("object")


@pytest.mark.soak
def test_the_world_halts_and_goes_on(page: Any) -> None:
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".run .badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".run .badge")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.soak
def test_tab_completes(page: Any) -> None:
    expect(page.get_by_role("button", name="Say")).to_be_enabled()
    line(page).fill("ga")
    line(page).press("Tab")
    expect(line(page)).to_have_value("gather ")
    line(page).fill("engine ")
    line(page).press("Tab")
    words = page.get_by_role("listbox", name="Completions").get_by_role("option")
    expect(words).to_have_text(["area", "evolving", "object", "tile"])
    line(page).press("Tab")
    line(page).press("ArrowDown")
    expect(words.nth(1)).to_have_attribute("aria-selected", "true")
    line(page).press("Enter")
    expect(line(page)).to_have_value("engine evolving ")
    line(page).press("Tab")
    line(page).fill("stop player1")
    line(page).press("Tab")
    expect(words.first).to_have_text("player1")
    line(page).press("Escape")
    expect(words).to_have_count(0)


@pytest.mark.soak
def test_an_empty_line_does_not_catch_the_tab_key(page: Any) -> None:
    line(page).focus()
    page.keyboard.press("Tab")
    expect(line(page)).not_to_be_focused()


@pytest.mark.soak
def test_the_history_is_kept(page: Any) -> None:
    for text in ("help go", "help stop", "help stop"):
        say(page, text)
    expect(answers(page, "ok")).to_have_count(3)
    page.reload()
    expect(page.get_by_role("button", name="Say")).to_be_enabled()
    line(page).fill("draft")
    for key, text in [
        ("ArrowUp", "help stop"),
        ("ArrowUp", "help go"),
        ("ArrowUp", "help go"),
        ("ArrowDown", "help stop"),
        ("ArrowDown", "draft"),
    ]:
        line(page).press(key)
        expect(line(page)).to_have_value(text)


@pytest.mark.soak
def test_notes_of_others_come_as_they_happen(watched: Watched) -> None:
    one, other = watched.open(), watched.open()
    expect(other.get_by_role("button", name="Say")).to_be_enabled()
    say(one, "stop player9")
    expect(answers(one, "ok")).to_have_count(1)
    expect(answers(other, "note").last).to_contain_text("stop player9")
    other.locator(".toggle", has_text="Notes").click()
    expect(answers(other, "note")).to_have_count(0)


@pytest.mark.soak
def test_answers_are_read_out_and_the_console_folds(page: Any) -> None:
    log = page.get_by_role("log", name="Console output")
    expect(log).to_have_attribute("aria-live", "polite")
    fold = page.get_by_role("button", name="Console")
    fold.click()
    expect(log).to_be_hidden()
    page.reload()
    expect(fold).to_have_attribute("aria-expanded", "false")
    expect(log).to_be_hidden()


@pytest.mark.soak
def test_scenarios_can_be_chosen(page: Any) -> None:
    options = page.get_by_label("Scenario").locator("option")
    expect(options.filter(has_text="Flash crowd")).to_have_count(1)
    expect(options.filter(has_text="High density")).to_have_count(1)
    expect(page.get_by_label("Scenario")).to_have_value("crowd")
    say(page, "scenario nowhere")
    expect(answers(page, "refused")).to_contain_text("there is no scenario nowhere")


def tab_to(page: Any, wanted: Any, most: int = 60) -> None:
    """Press Tab until something has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"not reached with {most} tabs: {wanted}")


@pytest.mark.soak
def test_everything_is_reached_with_keys_alone(page: Any) -> None:
    expect(page.get_by_role("button", name="Say")).to_be_enabled()
    tab_to(page, page.get_by_role("application", name="Map of the world"))
    page.keyboard.press("+")
    tab_to(page, page.get_by_label("Find an entity by name"))
    page.keyboard.type("player6")
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name="Follow"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "true")
    tab_to(page, page.get_by_label("Places"))
    page.keyboard.press("Space")
    expect(page.get_by_label("Places")).not_to_be_checked()
    tab_to(page, line(page))
    page.keyboard.type("stop player6")
    page.keyboard.press("Enter")
    expect(answers(page, "ok")).to_contain_text("stop player6: done")
