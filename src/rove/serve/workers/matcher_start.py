"""Starts a matcher without slowing down the broker: `python -m rove.serve.workers.matcher_start FD
PARENT`.

A matcher is started when the machine is busy, and takes more than a second of processor time before
it can do anything, nearly all of it importing Numba and loading kernels. Without this module, on
two cores, two of them took a third of its time from a broker that had a seventh left, and
publications were two seconds late. So a thread of very low priority does the loading. On Linux,
priority belongs to threads and cannot be raised again: that is why another thread works later. Its
priority is a little below that of the broker, which should always read its sockets first. On other
systems the whole process has a slightly lower priority.

This module imports as little as possible, because its imports run before the priority is lowered.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

from rove.base.processes import NICE, lower_priority

LOADING_NICE: Final = 15
"""While loading: a thirtieth of a core."""


def load() -> None:
    """Import everything, load the kernels, and do everything once."""
    lower_priority(LOADING_NICE if sys.platform == "linux" else NICE)
    from rove.match import engine
    from rove.serve.workers import matcher_process

    engine.warm_up()
    matcher_process.rehearse()


def main(fd: int, parent: int) -> int:
    """Load, then run a matcher; returns the exit status."""
    lower_priority(NICE)
    loading = threading.Thread(target=load, name="rove-loading")
    loading.start()
    loading.join()
    from rove.serve.workers import matcher_process

    return matcher_process.main(fd, parent)


if __name__ == "__main__":
    # At once: there is nothing to save, and finalizing the interpreter takes time.
    os._exit(main(int(sys.argv[1]), int(sys.argv[2])))
