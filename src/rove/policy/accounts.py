"""The processor time and offences of one user's policies, over all sessions and policies.

If the share of a processor were counted per session, a user could multiply it by opening sessions;
if a suspension ended with the policy, a user could end it by setting the policy again. So both
belong to the user, and remain after the last session as long as there is something to remember. A
client without a user name is identified by its client id: an open broker cannot distinguish its
clients otherwise, so a program may act as many users there. The total is bounded by the workers,
and within a turn of the broker by `rove.broker.policies.agents`.

A suspended policy stays suspended for its user wherever it is set again. A different policy may
run, because it may be a corrected one, but its first offence suspends it; then no other one runs
until the first suspension is over.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final
from weakref import WeakValueDictionary

from rove.policy.agents import Agent, CpuAllowance
from rove.policy.limits import PolicyLimits

TRIED_MAX: Final = 2
"""Texts of one user that are suspended before no other is tried."""
OWING_MAX: Final = 10_000
"""Users without a session whose offences and use are remembered; the oldest go."""


class Account:
    """One user's."""

    __slots__ = (
        "__weakref__",
        "_everybody",
        "_offences",
        "_suspended",
        "allowance",
        "name",
        "waiting_bytes",
    )

    def __init__(self, name: str, everybody: Accounts) -> None:
        self.name = name
        self._everybody = everybody
        self.allowance = CpuAllowance()
        self.waiting_bytes = 0
        """Of messages that wait for its policies to decide."""
        self._offences: deque[float] = deque()
        """Of all its policies, as far as they count."""
        self._suspended: dict[str, float] = {}
        """Texts, and until when."""

    def wait(self, size_bytes: int) -> None:
        """So many bytes more wait, or if negative, fewer."""
        self.waiting_bytes += size_bytes
        self._everybody.waiting_bytes += size_bytes

    def full(self, limits: PolicyLimits) -> str:
        """Why nothing more may wait; empty if it may."""
        if self.waiting_bytes >= limits.waiting_bytes_max:
            return f"{self.waiting_bytes:,} bytes wait for this user's policies already"
        if self._everybody.waiting_bytes >= limits.waiting_all_bytes_max:
            return f"{self._everybody.waiting_bytes:,} bytes wait for policies already"
        return ""

    def begin(self, agent: Agent, now: float, limits: PolicyLimits) -> bool:
        """Let a new policy begin with what others have done; whether there was something."""
        self._forget(now, limits)
        until = self._suspended.get(agent.policy.text)
        if until is None and len(self._suspended) >= TRIED_MAX:
            until = max(self._suspended.values())
        count = limits.offences_max - 1
        offences = [now] * count if self._suspended else list(self._offences)[-count:]
        agent.inherit(offences if count else [], until)
        return bool(offences) or until is not None

    def offended(self, agent: Agent, now: float, limits: PolicyLimits) -> None:
        """A policy was stopped, and may have been suspended for it."""
        self._offences.append(now)
        self._forget(now, limits)
        self.note_suspension(agent, now)

    def note_suspension(self, agent: Agent, now: float) -> None:
        """Remember that a policy is suspended, if it is."""
        until = agent.suspended_until
        if until is not None and until > now:
            self._suspended[agent.policy.text] = until
            self._offences.clear()

    def before(self) -> tuple[Any, ...]:
        """What would undo an offence that is about to be noted: a function and its arguments."""
        return self._restore, tuple(self._offences), dict(self._suspended)

    def _restore(self, offences: tuple[float, ...], suspended: dict[str, float]) -> None:
        self._offences, self._suspended = deque(offences), suspended

    def _forget(self, now: float, limits: PolicyLimits) -> None:
        while self._offences and self._offences[0] <= now - limits.offences_s:
            self._offences.popleft()
        if self._suspended:
            over = [text for text, until in self._suspended.items() if until <= now]
            for text in over:
                del self._suspended[text]

    def is_settled(self, now: float, limits: PolicyLimits) -> bool:
        """Whether there is nothing to remember."""
        self._forget(now, limits)
        return not (self._offences or self._suspended) and self.allowance.is_full(limits, now)


class Accounts:
    """All of them: those in use, and those that owe something."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._owing: OrderedDict[str, Account] = OrderedDict()
        self.waiting_bytes = 0
        """Of all."""

    def of(self, name: str) -> Account:
        """The account of this name; who uses it keeps it."""
        account = self._known.get(name)
        if account is None:
            account = self._known[name] = Account(name, self)
        return account

    def left(self, account: Account, now: float, limits: PolicyLimits) -> None:
        """A session of it has ended: remember what there is, even if that was the last."""
        if not account.is_settled(now, limits):
            self._owing[account.name] = account
            self._owing.move_to_end(account.name)
        while self._owing:
            first = next(iter(self._owing.values()))
            if len(self._owing) <= OWING_MAX and not first.is_settled(now, limits):
                return
            self._owing.popitem(last=False)
