"""The policies of the bench mean the same to Rove and to Python; malicious ones never end."""

import msgspec
import pytest

from rove.bench.policy.cases import _VITALS, ICU_STATE, MALICIOUS, STATELESS, Case, cases, icu
from rove.bench.policy.workload import PATIENT
from rove.policy.compiler import compiled
from rove.policy.jobs import Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run


def ran(text: str, attributes: dict[str, object], me: dict[str, object]) -> Completed | Stopped:
    arrived = IncomingMessage("ward/7/ecg", msgspec.json.encode(attributes))
    found = run(compiled(text), arrived, me, {}, 1e6, PolicyLimits())
    assert isinstance(found, Completed | Stopped)
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_policy_decides_as_plain_python_does(case: Case) -> None:
    found = ran(case.text, case.attributes, case.me)
    assert isinstance(found, Completed)
    assert found.passes == (case.plain()() is not None)


@pytest.mark.parametrize(
    ("name", "attributes", "me"),
    [
        ("trend", {"values": [1.0, 1.5, 1.2]}, {}),
        ("nearest", {"x": 12.5, "y": 40.0}, {"places": [[900.0, 900.0]]}),
        ("words", {"text": "nothing of interest"}, {"words": ["gale"]}),
        ("check", {"code": "4539578763621487"}, {}),
        ("score", {**_VITALS, "pulse": 70}, {}),
        ("digest", {"values": [1.0, 1.5, 1.2]}, {}),
    ],
)
def test_they_can_also_refuse(
    name: str, attributes: dict[str, object], me: dict[str, object]
) -> None:
    (case,) = (one for one in cases() if one.name == name)
    case = case._replace(attributes=attributes, me=me)
    found = ran(case.text, attributes, me)
    assert isinstance(found, Completed)
    assert (found.outputs, case.plain()()) == ((), None)


@pytest.mark.parametrize("text", MALICIOUS)
def test_malicious_ones_are_stopped_by_steps_alone(text: str) -> None:
    found = ran(text, {"patient": 1}, {})
    assert isinstance(found, Stopped)
    assert found.kind == "steps"


@pytest.mark.parametrize(
    ("patient", "pulse", "passes"), [(PATIENT, 70, 1), (1, 70, 0), (1, 130, 1)]
)
def test_without_state_it_selects_by_patient_and_pulse(
    patient: int, pulse: int, passes: int
) -> None:
    for text in (STATELESS, icu()):
        found = ran(text, {"patient": patient, "pulse": pulse}, ICU_STATE)
        assert isinstance(found, Completed)
        assert found.passes == bool(passes)
