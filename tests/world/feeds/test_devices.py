"""Devices of an audience: what a policy lets through, a link loses and a battery says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.policy.compiler import compiled
from rove.world.feeds.audiences import AudienceNotification, FeedPublication
from rove.world.feeds.devices import AudienceDevices
from rove.world.runs.scenario_run import run
from rove.world.runs.scenarios import DeviceSettings, ScenarioError, load_scenario

CALM = DeviceSettings(idle_w=0.0, joules_per_message=0.0)
HEAD = 'title = "T"\nabout = "For tests."\nseconds = 12\n[map]\nname = "ward"\n'
PEOPLE = "[people]\nplayers = 1\n[engines]\nuse = []\n[ward]\npatients = 4\n"
AUDIENCE = '[[audiences]]\nname = "a"\ntopic = "ward/#"\ntext = "pulse >= 0"\npatients = 2\n'


def heard(devices: AudienceDevices, at: float, size: int = 1_000, number: int = 0) -> None:
    feed = FeedPublication("ward/1/ecg", {"pulse": 70, "text": "x" * size}, at)
    devices.hear([AudienceNotification(number, feed)], at)


def test_without_a_policy_everything_is_sent_and_costs() -> None:
    devices = AudienceDevices(
        DeviceSettings(battery_j=1.0, idle_w=0.01, joules_per_byte=1e-4), [{}]
    )
    heard(devices, 1.0)
    heard(devices, 2.0)
    of = devices.figures()
    assert (of["notifications"], of["received"]) == (2, 2)
    assert of["battery"] == pytest.approx(1 - 0.02 - 2e-4 * of["notified_bytes"] / 2 - 2e-3)


def test_an_empty_battery_receives_nothing() -> None:
    devices = AudienceDevices(DeviceSettings(battery=(0.0, 0.0)), [{}])
    heard(devices, 1.0)
    assert (devices.figures()["notifications"], devices.figures()["received"]) == (1, 0)


def test_what_a_link_loses_is_the_network_of_the_next_report() -> None:
    slow = DeviceSettings(bits_per_s=(1_000, 1_000), report_s=5.0)
    devices = AudienceDevices(slow, [{}])
    assert devices.subscribers[0].me["network"] == 1.0
    for at in range(1, 5):
        heard(devices, float(at), size=500)
    devices.hear([], 5.0)
    of = devices.figures()
    assert 0 < of["received"] < of["notifications"] == 4
    assert devices.subscribers[0].me["network"] == of["network"] == of["received"] / 4
    devices.hear([], 10.0)
    assert devices.subscribers[0].me["network"] == 1.0, "nothing was sent since"


def test_the_policy_of_each_knows_its_own_variables() -> None:
    text = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    return message(seen=me.seen, mine=me.patients, battery=me.battery) if me.seen > 1 else None
"""
    variables: list[dict[str, object]] = [{"patients": [1]}, {"patients": [2]}]
    chosen = DeviceSettings(battery=(1.0, 0.5), idle_w=0.0, display=(300, 900))
    devices = AudienceDevices(chosen, variables, policy=compiled(text))
    for at in (1.0, 2.0):
        heard(devices, at, number=0)
        heard(devices, at, number=1)
    first, second = devices.subscribers
    assert (first.me["battery"], second.me["battery"]) == (1.0, 0.5)
    assert (first.me["display"], second.me["display"]) == (300, 900)
    assert first.me["seen"] == second.me["seen"] == 2
    of = devices.figures()
    assert (of["dropped"], of["changed"], of["notifications"]) == (2, 2, 2)


def test_a_stopped_call_is_counted() -> None:
    devices = AudienceDevices(
        CALM, [{}], policy=compiled("def arrived(m, me):\n    return m.nothing + 1")
    )
    heard(devices, 1.0)
    assert (devices.figures()["stopped"], devices.figures()["notifications"]) == (1, 0)


def test_a_scenario_names_its_policy(tmp_path: Path) -> None:
    (tmp_path / "mine.policy").write_text(
        "def arrived(m, me):\n    return m if m.patient in me.patients else None\n"
    )
    path = tmp_path / "s.toml"
    path.write_text(HEAD + PEOPLE + AUDIENCE + 'count = 3\npolicy = "mine.policy"\n')
    of = run(load_scenario(path)).audiences()["a"]
    # Four patients, two each, so the third doctor has those of the first.
    assert of["dropped"] == of["notifications"] == 3 * of["publications"] / 2
    assert of["stopped"] == 0


def test_texts_name_the_patients_of_each(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    text = AUDIENCE.replace("pulse >= 0", "patient BETWEEN {first} AND {last}")
    path.write_text(HEAD + PEOPLE + text + "count = 2\ndevice = {}\n")
    of = run(load_scenario(path)).audiences()["a"]
    assert of["notifications"] == of["received"] == of["publications"]


@pytest.mark.parametrize(
    ("policy", "told"), [(None, "there is no policy"), ("import os", "line 1")]
)
def test_a_policy_that_is_none_is_told(policy: str | None, told: str, tmp_path: Path) -> None:
    if policy is not None:
        (tmp_path / "bad.policy").write_text(policy)
    path = tmp_path / "s.toml"
    path.write_text(HEAD + PEOPLE + AUDIENCE + 'policy = "bad.policy"\n')
    with pytest.raises(ScenarioError, match=told):
        run(load_scenario(path), seconds=1)


@pytest.mark.soak
def test_with_policies_the_nearly_empty_last_and_the_rest_hear_more() -> None:
    """The scenario that is shipped, for half a minute."""
    of = run(load_scenario("intensive-care"), seconds=30).audiences()
    for name in ("charged", "half empty", "poor network"):
        without, by_policy = of[f"{name}, no policy"], of[f"{name}, by policy"]
        assert by_policy["battery"] >= without["battery"]
        assert by_policy["notified_bytes"] < without["notified_bytes"]
        assert by_policy["received"] / by_policy["notifications"] >= (
            without["received"] / without["notifications"]
        )
        assert by_policy["stopped"] == 0
