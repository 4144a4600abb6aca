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
    """Limits of the code that decides what a subscriber is sent. A call that exceeds a limit is
    stopped: its message is not sent, and the subscriber gets a notice."""

    enabled: bool = True
    """Whether subscribers may have policies. If not, setting one is refused, and stored ones do
    not run: every message is sent unchanged."""
    isolation: Isolation = "none"
    """Where policies run: `none`, in the broker while they are fast, and otherwise in worker
    processes; `process`, always in worker processes, which can only compute. Choose `process` if
    you do not trust the users who may set policies."""
    workers: Annotated[int, Meta(ge=0)] = 0
    """The maximum of worker processes. 0: one fewer than cores, but at least two, because one is
    reserved for short calls. They are started when there is work."""
    report_s: Seconds = 30.0
    """How often clients should report their battery, their network and other variables."""

    @property
    def limits(self) -> PolicyLimits:
        """What policies may use, and nothing else."""
        names = PolicyLimits.__struct_fields__
        return PolicyLimits(**{name: getattr(self, name) for name in names})

    @property
    def processes(self) -> int:
        """How many workers there may be on this machine."""
        return self.workers or max(WORKERS_MIN, cores() - 1)
