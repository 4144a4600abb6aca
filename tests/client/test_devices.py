"""Sources of automatic variables: the machine's battery, and devices that are simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.client.devices import (
    Battery,
    EnergyModel,
    SimulatedBattery,
    SimulatedDevice,
    SimulatedNetwork,
)

MODEL = EnergyModel(idle_w=1.0, joules_per_byte=0.001, joules_per_message=0.5)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# -- the real one ----------------------------------------------------------------------------------


def supply(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file).write_text(text + "\n")


def test_the_machines_battery_is_read(tmp_path: Path) -> None:
    supply(tmp_path, "AC", type="Mains", online="1")
    supply(tmp_path, "BAT0", type="Battery", capacity="80", status="Discharging")
    supply(tmp_path, "mouse", type="Battery", scope="Device", capacity="5", status="Discharging")
    assert Battery(folder=tmp_path)() == {"battery": 0.8, "charging": False}
    supply(tmp_path, "BAT1", type="Battery", capacity="40", status="Charging")
    both = Battery(folder=tmp_path, display=1280)()
    assert both == {"battery": pytest.approx(0.6), "charging": True, "display": 1280}


def test_a_machine_without_battery_reports_none(tmp_path: Path) -> None:
    supply(tmp_path, "BAT0", type="Battery")  # says nothing of its level
    assert Battery(folder=tmp_path)() == {}
    assert Battery(folder=tmp_path / "nowhere", display=640)() == {"display": 640}
    assert set(Battery()()) <= {"battery", "charging"}


# -- batteries -------------------------------------------------------------------------------------


def test_a_battery_idles_and_receives_by_its_model(clock: Clock) -> None:
    battery = SimulatedBattery(100, MODEL, clock)
    assert battery.level == 1
    clock.now = 30
    assert battery.level == pytest.approx(0.7)
    assert battery.received(9_500)
    assert battery.energy_j == pytest.approx(60)
    assert not battery.is_empty


def test_it_is_known_when_it_became_empty_and_nothing_is_received_then(clock: Clock) -> None:
    battery = SimulatedBattery(100, MODEL, clock, level=0.5)
    clock.now = 80  # nobody looked in between
    assert battery.is_empty
    assert battery.emptied_at == pytest.approx(50)
    assert not battery.received(1)
    killed = SimulatedBattery(1, MODEL, clock)
    assert killed.received(2_000)  # the last one came, and was too much
    assert (killed.level, killed.emptied_at) == (0, 80)


def test_charging_fills_it_and_no_further(clock: Clock) -> None:
    battery = SimulatedBattery(100, MODEL, clock, level=0)
    assert (battery.emptied_at, battery.is_charging) == (0, False)
    battery.charge(3)
    clock.now = 10
    assert battery.level == pytest.approx(0.2)
    assert battery.emptied_at is None
    clock.now = 1_000
    assert battery.level == 1
    battery.charge(0)
    clock.now = 1_050
    assert battery.level == pytest.approx(0.5)


@pytest.mark.parametrize(("capacity_j", "level"), [(0, 1.0), (1, 1.5), (1, -0.5)])
def test_impossible_batteries_are_refused(clock: Clock, capacity_j: float, level: float) -> None:
    with pytest.raises(ValueError, match="capacity above 0"):
        SimulatedBattery(capacity_j, MODEL, clock, level)
    with pytest.raises(ValueError, match="charger"):
        SimulatedBattery(1, MODEL, clock).charge(-1)


# -- links -----------------------------------------------------------------------------------------


def test_a_link_varies_between_its_rates_and_the_same_seed_is_the_same_link(clock: Clock) -> None:
    rates = [SimulatedNetwork(clock, 7).bits_per_s_at(10.0 * step) for step in range(200)]
    assert 300_000 <= min(rates) < 400_000
    assert 2_500_000 < max(rates) <= 3_000_000
    assert rates == [SimulatedNetwork(clock, 7).bits_per_s_at(10.0 * step) for step in range(200)]
    assert rates != [SimulatedNetwork(clock, 8).bits_per_s_at(10.0 * step) for step in range(200)]


def test_messages_take_their_turn_and_the_late_ones_are_lost(clock: Clock) -> None:
    link = SimulatedNetwork(clock, low_bits_per_s=8_000, high_bits_per_s=8_000, wait_s_max=2)
    assert [link.arrival(1_000) for _ in range(5)] == [1, 2, 3, None, None]
    clock.now = 2.5
    assert link.arrival(1_000) == pytest.approx(4)
    assert (link.sent, link.received) == (6, 4)


def test_a_message_passes_through_several_rates(clock: Clock) -> None:
    link = SimulatedNetwork(clock, 3, step_s=1)
    assert link.bits_per_s == link.bits_per_s_at(0)
    carried = sum(link.bits_per_s_at(step) for step in range(5))
    assert link.arrival(round(carried / 8)) == pytest.approx(5)


@pytest.mark.parametrize(("low", "high", "step_s"), [(0, 1, 1), (2, 1, 1), (1, 2, 0)])
def test_impossible_links_are_refused(clock: Clock, low: float, high: float, step_s: float) -> None:
    with pytest.raises(ValueError, match="rates"):
        SimulatedNetwork(clock, low_bits_per_s=low, high_bits_per_s=high, step_s=step_s)


# -- devices ---------------------------------------------------------------------------------------


def test_a_device_reports_what_it_has(clock: Clock) -> None:
    assert SimulatedDevice()() == {}
    battery = SimulatedBattery(100, MODEL, clock)
    device = SimulatedDevice(battery, display=1280, ward="ICU")
    clock.now = 75
    state = {"battery": pytest.approx(0.25), "charging": False, "display": 1280, "ward": "ICU"}
    assert device() == state


def test_a_device_receives_what_link_and_battery_allow(clock: Clock) -> None:
    link = SimulatedNetwork(clock, low_bits_per_s=8_000, high_bits_per_s=8_000, wait_s_max=0.5)
    device = SimulatedDevice(SimulatedBattery(100, MODEL, clock), network=link)
    assert [device.received(1_000) for _ in range(3)] == [True, False, False]
    assert device.lost == 2
    assert device.battery is not None
    assert device.battery.energy_j == pytest.approx(98.5)  # what is lost costs nothing
    clock.now = 99
    assert not device.received(1)
    assert SimulatedDevice().received(10)
