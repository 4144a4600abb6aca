"""Jobs that bring something up to date, again and again, as opposed to those that stream.

Some results are not worth a streaming query: they are computed from what changed since the last
time, in a few seconds, every so often. Such a job is a function that does one step; this is the
loop around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from rove.pipeline.status import ALIVE, Progress, statuses

if TYPE_CHECKING:
    from rove.pipeline.jobs import Context

LOOK_EVERY_S: Final = 1.0


def repeat(
    context: Context, every_s: float, step: Callable[[], Progress], after: str | None = None
) -> None:
    """Take steps until the job is stopped; once, until all is done.

    `after` names the job whose results are taken up: a run that is to end waits for it.
    """
    pause_s = every_s if context.settings.trigger_s is None else context.settings.trigger_s
    while not context.stopping.is_set():
        is_last = context.once and not _runs(context, after)
        begin_s = time.monotonic()
        progress = step()
        took_s = time.monotonic() - begin_s
        context.report(msgspec.structs.replace(progress, seconds=took_s))
        if is_last:
            return
        _rest(context, LOOK_EVERY_S if context.once else pause_s - took_s)


def _runs(context: Context, job: str | None) -> bool:
    return any(one.job == job and one.state in ALIVE for one in statuses(context.settings.out))


def _rest(context: Context, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if context.stopping.wait(min(left_s, LOOK_EVERY_S)):
            return
        context.look()
