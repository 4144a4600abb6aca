"""The section `[policies]`: its limits are those of the room, and what else it has is its own."""

from __future__ import annotations

import os

import msgspec
import pytest

from rove.policy.limits import PolicyLimits
from rove.serve.config import keys
from rove.serve.settings import PolicySettings


def test_its_limits_are_those_of_the_room() -> None:
    assert PolicySettings().limits == PolicyLimits()
    limits = PolicySettings(workers=3, isolation="process", time_ms=7, suspended="deliver").limits
    assert type(limits) is PolicyLimits
    assert limits == PolicyLimits(time_ms=7, suspended="deliver")


def test_its_own_keys_come_first_and_all_are_explained_once() -> None:
    names = [key.name for key in keys().values() if key.section == "policies"]
    own = ["enabled", "isolation", "workers", "report_s"]
    assert names == own + [field.name for field in msgspec.structs.fields(PolicyLimits)]
    assert keys()["policies.time_ms"].explanation.startswith("How long a call may take")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells")
def test_the_broker_keeps_a_core_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for has, processes in ((1, 2), (2, 2), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, has=has: set(range(has)))
        assert PolicySettings().processes == processes
        assert PolicySettings(workers=5).processes == 5
