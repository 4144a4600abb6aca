"""What there is to see of policies at work: for the HTTP interface, the metrics and the monitor."""

from __future__ import annotations

import msgspec


class PolicyCounts(msgspec.Struct):
    """What became of the messages that were shown to a policy, since it was set or the start."""

    calls: int = 0
    passed: int = 0
    """Sent as they came."""
    changed: int = 0
    """Sent as something else, or as several."""
    dropped: int = 0
    stopped: dict[str, int] = {}
    """By what they were stopped (`rove.policy.jobs.Kind`)."""
    suspended: int = 0
    """Came while the policy was suspended."""
    outputs: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    """In the broker and in workers."""
    in_workers: int = 0
    """Calls that a worker did, or did something for."""

    def add(self, other: PolicyCounts) -> None:
        """Count what another has counted."""
        # Field by field: who looks at the metrics waits for as many of these as there are policies.
        self.calls += other.calls
        self.passed += other.passed
        self.changed += other.changed
        self.dropped += other.dropped
        self.suspended += other.suspended
        self.outputs += other.outputs
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.in_workers += other.in_workers
        for kind, count in other.stopped.items():
            self.stopped[kind] = self.stopped.get(kind, 0) + count


class PolicyView(msgspec.Struct):
    """One policy at work."""

    client_id: str
    subscription: int
    """The number of the subscription that it belongs to; 0 for the whole session."""
    identifier: int
    """Of that subscription, as the client knows it; 0 is none."""
    topic_filter: str
    """Of that subscription; empty for the whole session."""
    text: str
    set_at: float
    suspended_until: float | None
    waiting: int
    """Messages that wait for a worker."""
    last_trouble: str
    tally: PolicyCounts


class PoliciesView(msgspec.Struct):
    """All of them."""

    isolation: str
    workers: int
    """Processes there may be."""
    jobs: int
    """Under way in workers."""
    jobs_waiting: int
    jobs_done: int
    jobs_lost: int
    count: int
    """Policies at work; `policies` may be a part of them."""
    suspended: int
    """How many of them are suspended at this moment."""
    total: PolicyCounts
    """Of all, those that have gone included."""
    policies: list[PolicyView]
