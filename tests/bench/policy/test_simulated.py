"""A device in virtual time: the link loses, the battery empties, and policies help."""

import pytest

from rove.bench.policy.cases import DIRECT, STATELESS, icu
from rove.bench.policy.simulated import MODEL, Ward, life_s, linked
from rove.bench.policy.workload import PATIENT, message
from rove.client.devices import EnergyModel


class TestWard:
    def test_what_passes_is_sent_as_it_came(self) -> None:
        ward = Ward(STATELESS)
        (size_bytes,) = ward.publish()
        assert 0 < size_bytes - len(message(0)) < 60, "a header and a topic"

    def test_pictures_are_really_made_smaller(self) -> None:
        ward = Ward(icu())
        (before,) = ward.publish()
        ward.report({"battery": 0.4})
        (after,) = ward.publish()
        assert after < 0.7 * before

    def test_of_a_low_battery_only_pulses_are_left(self) -> None:
        ward = Ward(icu())
        ward.report({"battery": 0.2})
        sizes = []
        for second in range(0, 601, 50):
            ward.wait_until(ward.began_at + second)
            sizes += ward.publish()
        assert len(sizes) == 3, "every five minutes"
        assert max(sizes) < 200

    def test_it_is_somebody_elses_patient(self) -> None:
        ward = Ward(f"def arrived(m, me):\n    return None if m.patient == {PATIENT} else m\n")
        assert ward.publish() == []


def test_a_link_loses_what_it_cannot_carry() -> None:
    slow, fast = linked(STATELESS, 20, 60.0, 1), linked(STATELESS, 240, 60.0, 1)
    assert (slow.published, slow.sent) == (20, 20)
    assert slow.share > fast.share > 0.1
    assert slow == linked(STATELESS, 20, 60.0, 1), "the same seed, the same figures"


def test_state_helps_on_a_poor_link() -> None:
    stateless, direct, stateful = (
        linked(text, 120, 150.0, 2) for text in (STATELESS, DIRECT, icu())
    )
    assert stateless.bytes_mean > 1.1 * direct.bytes_mean > 1.1 * stateful.bytes_mean
    assert stateful.share > direct.share > stateless.share


def test_a_battery_lasts_as_the_model_says() -> None:
    capacity_j = 60 * MODEL.idle_w
    assert life_s(None, 0, capacity_j) == pytest.approx(60.0)
    per_message_j = MODEL.joules(len(message(0)) + 25)
    expected_s = capacity_j / (MODEL.idle_w + 2 * per_message_j)
    assert life_s(STATELESS, 120, capacity_j) == pytest.approx(expected_s, rel=0.05)


def test_state_makes_a_battery_last() -> None:
    hungry = EnergyModel(idle_w=1.0, joules_per_byte=1e-5)
    short, long = (life_s(text, 60, 240.0, hungry) for text in (STATELESS, icu()))
    assert 1.1 * short < long < life_s(None, 0, 240.0, hungry)
