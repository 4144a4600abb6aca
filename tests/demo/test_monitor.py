"""A monitor with a world, for as long as a demonstration lasts."""

import json
import urllib.request

import pytest

from rove.demo.monitor import SCENARIO, monitor_beside
from tests.effort import PATIENCE_S


@pytest.mark.soak
def test_a_world_is_there_to_look_at() -> None:
    with monitor_beside() as beside:
        with urllib.request.urlopen(f"{beside.url()}/api/world", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["scenario"] == SCENARIO
        with urllib.request.urlopen(f"{beside.url()}/api/hello", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["parts"]["metrics"] is True
