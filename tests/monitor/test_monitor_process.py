"""A monitor as a child, and its end."""

import socket
import urllib.request

import pytest

from rove.monitor.monitor_process import MonitorProcess, MonitorProcessError
from tests.effort import PATIENCE_S


def test_it_is_there_until_it_is_stopped() -> None:
    with MonitorProcess("--port", "0", "--pipeline", "nowhere") as beside:
        url = beside.url()
        with urllib.request.urlopen(f"{url}/api/hello", timeout=PATIENCE_S) as answer:
            assert b'"pipeline":true' in answer.read()
        beside.stop()
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"{url}/api/hello", timeout=PATIENCE_S)


@pytest.mark.soak
def test_why_it_did_not_start_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with (
            MonitorProcess("--port", port, "--pipeline", "nowhere") as beside,
            pytest.raises(MonitorProcessError, match="cannot listen"),
        ):
            beside.url()
