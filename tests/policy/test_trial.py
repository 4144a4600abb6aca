"""A policy tried out as at work in a broker; and the rules of intensive care, one by one."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.trial import (
    MessageLine,
    PolicyTrial,
    StateLine,
    TrialError,
    TrialResult,
    read_line,
)
from rove.world.feeds.hospital import ECG_WIDTH, ecg_png
from rove.world.runs.scenarios import SHIPPED

ICU = (SHIPPED / "icu.policy").read_text(encoding="utf-8")
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "icu.policy"

COUNTS = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    if me.seen > 2:
        del me.seen
    return m if m.x > 3 else None
"""
LOOPS = """
def arrived(m, me):
    while m.forever:
        pass
    return m
"""


# --- a trial --------------------------------------------------------------------------------------


def test_shows_what_is_sent_and_what_changes() -> None:
    trial = PolicyTrial(COUNTS)
    few = trial.show({"x": 1})
    assert (few.verdict, few.messages, few.changes) == ("dropped", [], {"seen": (None, 1)})
    many = trial.show({"x": 4}, "air/zagreb")
    assert (many.verdict, many.changes) == ("passed", {"seen": (1, 2)})
    assert many.messages == [{"x": 4, "topic": "air/zagreb"}]
    third = trial.show({"x": 4})
    assert (third.changes, trial.me) == ({"seen": (2, None)}, {})
    assert (trial.tally.calls, trial.tally.passed, trial.tally.dropped) == (3, 2, 1)


def test_a_payload_may_be_anything() -> None:
    tried = PolicyTrial("def arrived(m, me):\n    return m").show(
        b"\x00\x01", user=[("unit", "mg")]
    )
    assert tried.messages == [{"payload": b"\x00\x01", "unit": "mg", "topic": "test"}]


def test_time_is_that_of_the_messages() -> None:
    trial = PolicyTrial("def arrived(m, me):\n    return m if every(10) else None", at=100.0)
    verdicts = [trial.show({}, at=at).verdict for at in (100.0, 105.0, 110.0, 119.0)]
    assert verdicts == ["passed", "dropped", "passed", "dropped"]


def test_stops_too_many_suspend_as_in_a_broker() -> None:
    limits = PolicyLimits(steps_max=50, offences_max=2, suspension_s=60.0)
    trial = PolicyTrial(LOOPS, limits=limits)
    first = trial.show({"forever": True}, at=1.0)
    assert first.stopped is not None
    assert (first.verdict, first.stopped.kind) == ("stopped", "steps")
    assert first.stopped.line in (3, 4)
    assert not first.is_now_suspended
    assert trial.show({"forever": True}, at=2.0).is_now_suspended
    assert trial.show({"forever": False}, at=3.0).verdict == "suspended"
    assert trial.show({"forever": False}, at=62.0).verdict == "passed"


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(PolicyError, match="line 1"):
        PolicyTrial("import os")
    with pytest.raises(TrialError, match="cannot be published"):
        PolicyTrial(COUNTS).show({"x": object()})
    with pytest.raises(TrialError, match="finite"):
        PolicyTrial(COUNTS, {"x": float("nan")})


def test_automatic_variables_can_only_be_read() -> None:
    trial = PolicyTrial("def arrived(m, me):\n    set(m.name, 1)", automatic=["floor"])
    tried = trial.show({"name": "floor"})
    assert tried.stopped is not None
    assert tried.stopped.kind == "error"
    assert trial.show({"name": "door"}).stopped is None


def test_without_pillow_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    trial = PolicyTrial(
        "def arrived(m, me):\n    return message(small=compress(m.large, quality=20))"
    )
    tried = trial.show({"large": PNG})
    assert tried.stopped is not None
    assert "pip install rove" in tried.stopped.text


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"x": 1}', MessageLine(b'{"x":1}', "test", (), None)),
        ('{"x": 1, "topic": "a", "at": 2}', MessageLine(b'{"x":1,"at":2}', "a", (), 2.0)),
        ('{"topic": "a", "payload": {"x": 1}}', MessageLine(b'{"x":1}', "a", (), None)),
        ('{"topic": "a", "value": 3, "id": "7", "at": 1}', MessageLine(b"3", "a", (), 1.0)),
        ('{"topic": "a", "text": "hm"}', MessageLine(b"hm", "a", (), None)),
        ('{"topic": "a", "base64": "AAE="}', MessageLine(b"\x00\x01", "a", (), None)),
        (
            '{"topic": "a", "payload": "t", "user": {"u": "v"}}',
            MessageLine(b"t", "a", (("u", "v"),), None),
        ),
        ('{"$me": {"battery": 0.2, "old": null}}', StateLine({"battery": 0.2, "old": None}, None)),
    ],
)
def test_lines_of_every_form(line: str, found: MessageLine | StateLine) -> None:
    assert read_line(line) == found


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON"),
        ("[1]", "not a message"),
        ('{"x": 1, "at": "noon"}', "number of seconds"),
        ('{"x": 1, "topic": 3}', "to be a text"),
        ('{"topic": "a", "payload": 1, "text": "1"}', "both the payload"),
        ('{"topic": "a", "payload": 1, "user": {"u": 1}}', "texts by their names"),
        ('{"topic": "a", "base64": "%"}', "base64"),
        ('{"$me": 3}', "variables by their names"),
    ],
)
def test_lines_that_say_nothing(line: str, what: str) -> None:
    with pytest.raises(TrialError, match=what):
        read_line(line)


# --- intensive care -------------------------------------------------------------------------------

PNG = base64.b64encode(ecg_png(80.0, 0.3)).decode()
MINE, OTHERS = 3, 9
CALM, RACING, SLOW = 80.0, 131.0, 44.0


def doctor(**me: object) -> PolicyTrial:
    return PolicyTrial(ICU, {"patients": [1, 2, MINE], "display": 1024, **me})


def pulse(
    trial: PolicyTrial, patient: int = MINE, pulse: float = CALM, at: float = 0.0
) -> TrialResult:
    return trial.show({"patient": patient, "pulse": pulse, "spo2": 97.0}, "ward/vitals", at=at)


def picture(
    trial: PolicyTrial, patient: int = MINE, pulse: float = CALM, at: float | None = None
) -> TrialResult:
    of = {"patient": patient, "pulse": pulse, "width": ECG_WIDTH, "height": 250, "ecg": PNG}
    return trial.show(of, "ward/ecg", at=at)


def bytes_of(tried: TrialResult) -> int:
    (sent,) = tried.outputs
    return len(sent.payload)


def test_the_example_is_the_policy_that_the_scenario_has() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == ICU


def test_r1_all_of_ones_own_patients_as_it_came_while_all_is_well() -> None:
    for me in ({}, {"battery": 1.0, "network": 1.0}, {"battery": 0.75, "network": 0.9}):
        assert pulse(doctor(**me)).verdict == "passed"
        assert picture(doctor(**me)).verdict == "passed"


def test_r1_no_picture_is_larger_than_the_display() -> None:
    small = picture(doctor(display=ECG_WIDTH // 2))
    assert small.verdict == "sent"
    assert bytes_of(small) < len(PNG) / 4
    assert picture(doctor(display=ECG_WIDTH)).verdict == "passed"
    assert pulse(doctor(display=100)).verdict == "passed"


@pytest.mark.parametrize("unsaid", [("width",), ("height",), ("width", "height")])
def test_r1_a_picture_that_does_not_say_its_size_is_sent_to_fit(unsaid: tuple[str, ...]) -> None:
    said = {"width": ECG_WIDTH, "height": 250}
    of = {name: value for name, value in said.items() if name not in unsaid}
    trial = doctor(display=ECG_WIDTH // 2)
    sent = trial.show({"patient": MINE, "pulse": CALM, "ecg": PNG, **of}, "ward/ecg")
    assert (sent.verdict, sent.stopped) == ("sent", None)
    (message,) = sent.messages
    image = Image.open(io.BytesIO(base64.b64decode(str(message["ecg"]))))
    assert image.width == ECG_WIDTH // 2


def test_r4_others_patients_whose_pulse_is_not_known_are_left_out() -> None:
    unknown = doctor().show({"patient": OTHERS, "ecg": PNG}, "ward/ecg")
    assert (unknown.verdict, unknown.stopped) == ("dropped", None)


def test_r2_pictures_shrink_with_the_battery_and_numbers_do_not() -> None:
    sizes = [bytes_of(picture(doctor(battery=left))) for left in (0.74, 0.5, 0.25)]
    assert len(PNG) / 4 > sizes[0] > sizes[1] > sizes[2]
    assert all(pulse(doctor(battery=left)).verdict == "passed" for left in (0.74, 0.25))


def test_r2_nearly_empty_only_the_pulse_every_five_minutes() -> None:
    trial = doctor(battery=0.24)
    first = pulse(trial, at=0.0)
    assert first.messages == [{"patient": MINE, "pulse": CALM, "topic": "ward/vitals"}]
    assert picture(trial).verdict == "dropped"
    assert pulse(trial, at=299.0).verdict == "dropped"
    assert pulse(trial, patient=1, at=299.0).verdict == "sent", "each patient has its own turn"
    assert pulse(trial, at=300.0).verdict == "sent"


def test_r3_pictures_shrink_with_the_network_and_numbers_do_not() -> None:
    sizes = [bytes_of(picture(doctor(network=part))) for part in (0.89, 0.5, 0.0)]
    assert len(PNG) / 4 > sizes[0] > sizes[1] > sizes[2]
    assert pulse(doctor(network=0.0)).verdict == "passed"
    worse = bytes_of(picture(doctor(network=0.1, battery=0.7)))
    assert worse == bytes_of(picture(doctor(network=0.1))), "the worse of the two decides"


def test_r3_a_network_that_was_bad_is_trusted_again_little_by_little() -> None:
    trial = doctor(network=0.5)
    small = bytes_of(picture(trial, at=0.0))
    trial.change({"network": 1.0})
    assert bytes_of(picture(trial, at=29.0)) == small
    sizes = [bytes_of(picture(trial, at=31.0 * step)) for step in range(1, 7)]
    assert sizes == sorted(sizes)
    assert small <= sizes[0] < sizes[-1]
    assert [picture(trial, at=31.0 * step).verdict for step in (7, 8)] == ["sent", "passed"]


@pytest.mark.parametrize("beats", [RACING, SLOW])
def test_r4_others_patients_only_in_trouble_and_by_the_other_rules(beats: float) -> None:
    assert pulse(doctor(), OTHERS).verdict == "dropped"
    assert picture(doctor(), OTHERS).verdict == "dropped"
    assert pulse(doctor(), OTHERS, beats).verdict == "passed"
    assert picture(doctor(), OTHERS, beats).verdict == "passed"
    assert picture(doctor(battery=0.5), OTHERS, beats).verdict == "sent"
    empty = doctor(battery=0.1)
    assert [pulse(empty, OTHERS, beats, at).verdict for at in (0.0, 10.0)] == ["sent", "dropped"]


def test_who_is_responsible_for_nobody_hears_of_trouble() -> None:
    trial = PolicyTrial(ICU)
    assert pulse(trial).verdict == "dropped"
    assert pulse(trial, pulse=RACING).verdict == "passed"
