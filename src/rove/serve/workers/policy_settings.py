"""The section `[policies]` of the configuration: whether policies run, where, and with how much.

What a policy may use is for the room of policies to say (`rove.policy.limits`); its fields and
their texts are taken over as they are, so that there is one explanation of each. What a broker
decides about the processes that it runs them in is added here.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from rove.base.processes import cores
from rove.broker.policies.agents import Isolation
from rove.policy.limits import PolicyLimits, Seconds

WORKERS_MIN: Final = 2
"""Workers there may be on the smallest machine: long jobs leave one to the others."""


class PolicySettings(PolicyLimits, frozen=True, forbid_unknown_fields=True):
    """A few lines of code per subscriber that decide what it is sent, and what they may use. What
    goes beyond a limit is stopped: that message is not sent, and the subscriber is told."""

    enabled: bool = True
    """Whether subscribers may have policies. If not, setting one is refused, and those that were
    kept are not asked: everything is sent as it came."""
    isolation: Isolation = "none"
    """Where policies run: `none`, within the broker as long as they are quick, and in worker
    processes when they are not; `process`, always in worker processes, which have no rights but to
    compute. Choose that if you do not trust whoever may set one."""
    workers: Annotated[int, Meta(ge=0)] = 0
    """How many worker processes there may be. 0: as many as cores, less one for the broker, and at
    least two: one is left to what takes a few milliseconds. They are started when there is
    something to do for them."""
    report_s: Seconds = 30.0
    """How often clients are asked to report their battery, their network and what else is known."""

    @property
    def limits(self) -> PolicyLimits:
        """What policies may use, and nothing else."""
        names = PolicyLimits.__struct_fields__
        return PolicyLimits(**{name: getattr(self, name) for name in names})

    @property
    def processes(self) -> int:
        """How many workers there may be on this machine."""
        return self.workers or max(WORKERS_MIN, cores() - 1)
