"""The monitor beside the demonstration: a town that everybody comes together in, on a page.

What is demonstrated in the terminal runs in a time of its own, as fast as it can; the page needs a
world that goes on, so it has one of its own, and a metrics database for as long as it lasts.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rove.monitor.process import MonitorProcess

SCENARIO: Final = "crowd"
PORT: Final = 8090


@contextmanager
def monitor_beside() -> Iterator[MonitorProcess]:
    """A monitor with a world, on the usual port if that is free."""
    with tempfile.TemporaryDirectory(prefix="rove-demo-") as folder:
        words = [SCENARIO, "--port", str(_free_port()), "--database", str(Path(folder) / "metrics")]
        with MonitorProcess(*words) as beside:
            yield beside


def _free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT
