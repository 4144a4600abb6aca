"""Each hostile program is a policy, and really goes to a limit or near one."""

import os

import msgspec
import pytest

from rove.bench.policy.hostile import CASES, Attack, _names
from rove.policy.compiler import compiled
from rove.policy.jobs import Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run


@pytest.mark.parametrize("name", CASES)
def test_it_uses_what_it_can(name: str) -> None:
    hostile = CASES[name]
    policy = compiled(hostile.text)
    if name == "picture":
        assert policy.is_heavy
        return
    arrived = IncomingMessage("t", msgspec.json.encode(hostile.payload()))
    result = run(policy, arrived, {}, {}, 1e9, PolicyLimits())
    assert not isinstance(result, Deferred)
    if name == "compile":
        # It costs before it runs.
        assert len(hostile.text) > 3_000
        return
    assert result.steps > 5_000
    assert isinstance(result, Stopped if name in ("outputs", "reset") else Completed)


def test_nobody_begins_suspended_for_what_an_earlier_case_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each case is a process of its own, against one broker, which remembers offences by name."""
    seen: set[str] = set()
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        for case in ("reset", "texts"):
            names = _names(Attack(1883, case, 3))
            assert len(set(names)) == 3
            assert seen.isdisjoint(names)
            seen.update(names)
