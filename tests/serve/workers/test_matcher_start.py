"""A matcher comes to be behind everybody else, and works a little behind the broker."""

import os
import socket
import subprocess
import sys

from rove.base.processes import NICE
from rove.serve.workers.children import HEADER
from rove.serve.workers.matcher_start import __name__ as name
from tests.effort import PATIENCE_S


def test_a_matcher_stands_back() -> None:
    ours, its = socket.socketpair()
    command = [sys.executable, "-P", "-m", name, str(its.fileno()), str(os.getpid())]
    with ours, subprocess.Popen(command, pass_fds=(its.fileno(),)) as process:
        its.close()
        ours.settimeout(PATIENCE_S)
        assert len(ours.recv(HEADER.size, socket.MSG_WAITALL)) == HEADER.size  # it is there
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == max(mine, NICE)
        ours.close()
        assert process.wait(PATIENCE_S) == 0
