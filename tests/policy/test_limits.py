"""Limits are keys of the configuration: only known ones, only sane ones."""

import msgspec
import pytest

from rove.policy.limits import PolicyLimits


def test_defaults_are_themselves_allowed() -> None:
    given = msgspec.to_builtins(PolicyLimits())
    assert msgspec.convert(given, PolicyLimits) == PolicyLimits()
    assert PolicyLimits().inline_steps_max <= PolicyLimits().steps_max


@pytest.mark.parametrize(
    "given",
    [
        {"steps_max": 0},
        {"time_ms": -1},
        {"share": 0.0},
        {"share": 1.5},
        {"share_s": 0.0},
        {"suspended": "whatever"},
        {"step_max": 5},
    ],
)
def test_others_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, PolicyLimits)
