"""Speed is measured of what it is said to be; figures are not judged here."""

import pytest

from rove.bench.policy import speed as policy_speed
from rove.bench.policy.cases import MALICIOUS, cases
from rove.bench.policy.speed import Extent, caller, measures
from rove.policy.jobs import Stopped
from rove.policy.messages import Completed


def test_everything_is_measured() -> None:
    found = {one.name: one for one in measures(Extent(calls=20, rounds=1))}
    assert found["policy.speed.icu"].goal == ">= 200,000"
    for case in cases():
        plain, policy = (
            found[f"policy.speed.{case.name}.{which}"] for which in ("plain", "policy")
        )
        assert policy.against == plain.name
        assert policy.ratio == pytest.approx(plain.value / policy.value)
        assert (policy.goal is not None) == case.is_demanding
    new, again = (found[f"policy.speed.compile.{which}"] for which in ("new", "again"))
    assert new.value * 1e3 > again.value, "milliseconds, and microseconds"
    kinds = [name for name in found if name.startswith("policy.speed.calls.")]
    assert len(kinds) == 8


def test_a_call_is_one_of_the_real_thing() -> None:
    case = cases()[1]
    assert isinstance(caller(case.text, case.attributes, case.me)(), Completed)
    stopped = caller(MALICIOUS[0], {}, {}, steps_max=policy_speed._LIMITS.inline_steps_max)()
    assert isinstance(stopped, Stopped)
    assert stopped.steps <= policy_speed._LIMITS.inline_steps_max + 1
