"""A port for a server that a test starts, and may stop and start again.

The system gives ports of a range of its own to whoever asks for any, also to whoever only connects.
A port of that range may be gone before the server listens on it, and again while it is stopped. So
ports are drawn from below.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives away."""


def free_port() -> int:
    """A port on which nobody listens, on loopback."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as one:
            # Not a generator that a test may have seeded: two tests would meet.
            one.bind(("127.0.0.1", random.SystemRandom().choice(PORTS)))
            return int(one.getsockname()[1])
