"""The section `[policies]` of the configuration: whether policies run, where, and their limits.

The limits of a policy are defined in `rove.policy.limits`, and inherited with their explanations,
so that each has one. Added here are the settings of the processes in which policies run.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from rove.base.processes import cores
from rove.broker.policies.agents import Isolation
from rove.policy.limits import PolicyLimits, Seconds

WORKERS_MIN: Final = 2
"""Workers on the smallest machine: long jobs leave one for the others."""


class PolicySettings(PolicyLimits, frozen=True, forbid_unknown_fields=True):
    """A few lines of code per subscriber that decide what it gets, and their limits. A policy that
    exceeds a limit is stopped: the message is not sent, and the subscriber is notified."""

    enabled: bool = True
    """Whether subscribers may have policies. If not, setting one is refused, and existing ones do
    not run: everything is sent unchanged."""
    isolation: Isolation = "none"
    """Where policies run: `none`, in the broker while they are quick, otherwise in worker
    processes; `process`, always in worker processes, which have no rights but to compute. Choose
    that if you do not trust everybody who may set a policy."""
    workers: Annotated[int, Meta(ge=0)] = 0
    """The maximum number of worker processes. 0: one per core except one for the broker, and at
    least two, so that one is free for short jobs. They are started when there are jobs."""
    report_s: Seconds = 30.0
    """How often clients are asked to report their battery, their network and other variables."""

    @property
    def limits(self) -> PolicyLimits:
        """The limits alone."""
        names = PolicyLimits.__struct_fields__
        return PolicyLimits(**{name: getattr(self, name) for name in names})

    @property
    def processes(self) -> int:
        """The maximum number of workers on this machine."""
        return self.workers or max(WORKERS_MIN, cores() - 1)
