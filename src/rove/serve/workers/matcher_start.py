"""How a matcher process comes to be without being in anybody's way: `python -m
rove.serve.workers.matcher_start FD PARENT`.

It is needed when there is no time to spare, and takes more than a second of processor time before
it can do anything, nearly all of it importing Numba and loading kernels. Started plainly on two
cores, two of them took a third of its time from a broker that had a seventh left, and publications
were two seconds late. So the loading is done by a thread that stands back behind everybody else.
Priority belongs to threads on Linux, and whoever has stepped back may not step forward again: that
is why it is another thread than the one that works later. That one stands back a little too, for
whoever reads the sockets should always come first. Elsewhere, the whole process stands back a
little.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

NICE: Final = 5
"""Of what matches: a quarter of a core where the broker wants all of it."""
LOADING_NICE: Final = 15
"""Of what loads: a thirtieth."""


def stand_back(nice: int) -> None:
    """Give this thread, and those that it starts, a lower priority."""
    here = threading.get_native_id() if sys.platform == "linux" else 0
    if os.getpriority(os.PRIO_PROCESS, here) < nice:
        os.setpriority(os.PRIO_PROCESS, here, nice)


def load() -> None:
    """Import everything, have the kernels ready, and do everything once."""
    stand_back(LOADING_NICE if sys.platform == "linux" else NICE)
    from rove.match import engine
    from rove.serve.workers import matcher_process

    engine.warm_up()
    matcher_process.rehearse()


def main(fd: int, parent: int) -> int:
    """Load, then be a matcher; what the process ends with."""
    stand_back(NICE)
    loading = threading.Thread(target=load, name="rove-loading")
    loading.start()
    loading.join()
    from rove.serve.workers import matcher_process

    return matcher_process.main(fd, parent)


if __name__ == "__main__":
    # At once: nothing here is to be kept, and tidying up an interpreter takes its time.
    os._exit(main(int(sys.argv[1]), int(sys.argv[2])))
