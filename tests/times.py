"""What each test takes, so that `make test-times` can list the dearest.

Wall time says what the machine's neighbours do, so CPU time stands beside it: of this process, of
the children it has waited for, and of those that still run (Spark's Java, a browser, a broker).
The controller keeps the figures of the last run in pytest's cache. This costs about 0.1 ms a test.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

LISTED: Final = 50
KEPT_AT: Final = "rove/times"
_PROPERTY: Final = "times"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Times:
    """A plugin: measures in the process that runs the test, collects in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wall_s = time.perf_counter()
        self._cpu_s = cpu_s()
        self._taken: dict[str, list[float]] = {}

    def pytest_collection_finish(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), cpu_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        # After the teardown, because a fixture's start and end are part of what a test costs.
        if call.when != "teardown":
            return
        wall_s, used_s = time.perf_counter(), cpu_s()
        taken = [round(wall_s - self._wall_s, 3), round(used_s - self._cpu_s, 3)]
        item.user_properties.append((_PROPERTY, taken))
        self._wall_s, self._cpu_s = wall_s, used_s

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            for name, taken in report.user_properties:
                if name == _PROPERTY and isinstance(taken, list):
                    self._taken[report.nodeid] = taken

    def pytest_sessionfinish(self) -> None:
        is_worker = hasattr(self._config, "workerinput")
        if self._taken and not is_worker and self._config.pluginmanager.has_plugin("cacheprovider"):
            self._config.cache.set(KEPT_AT, self._taken)


def cpu_s() -> float:
    """The CPU time of this process and of all that it started."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime
    return used_s + sum(map(_running_s, _children(os.getpid())))


def _running_s(process: int) -> float:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0  # ended meanwhile
    # After the name, which may hold anything: user, system, and both of the children waited for.
    ticks = sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])
    return ticks / _TICKS_PER_S + sum(map(_running_s, _children(process)))


def _children(process: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (thread / "children").read_text(encoding="ascii").split())
    except OSError:
        pass  # ended meanwhile, or a system without /proc
    return children


def listing(taken: dict[str, list[float]]) -> str:
    """The dearest tests, then the folders, with wall and CPU time."""
    dearest = sorted(taken.items(), key=lambda entry: -max(entry[1]))[:LISTED]
    lines = ["  wall s   CPU s  test"]
    lines += [f"{wall_s:8.2f}{used_s:8.2f}  {name}" for name, (wall_s, used_s) in dearest]
    folders: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, (wall_s, used_s) in taken.items():
        for folder in ("/".join(name.partition("::")[0].split("/")[:2]), "all"):
            sums = folders[folder]
            folders[folder] = [sums[0] + wall_s, sums[1] + used_s, sums[2] + 1]
    lines += ["", "  wall s   CPU s  tests  folder"]
    for folder, (wall_s, used_s, count) in sorted(folders.items(), key=lambda entry: entry[1][1]):
        lines.append(f"{wall_s:8.1f}{used_s:8.1f}{count:7.0f}  {folder}")
    return "\n".join(lines)


def main() -> int:
    place = Path(__file__).parents[1] / ".pytest_cache" / "v" / KEPT_AT
    try:
        taken: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    except OSError:
        print("rove: error: no test has run here yet: make test", file=sys.stderr)
        return 1
    print(listing(taken))
    return 0


if __name__ == "__main__":
    sys.exit(main())
