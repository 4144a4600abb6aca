"""What a user's policies have done is remembered, as long as it matters and no longer."""

import gc

from rove.policy.accounts import OWING_MAX, Account, Accounts
from rove.policy.agents import Agent
from rove.policy.compiler import compiled
from rove.policy.jobs import Stopped
from rove.policy.limits import PolicyLimits

LIMITS = PolicyLimits(offences_max=3, offences_s=60, suspension_s=300)
TEXT = "def arrived(m, me): return m"


def agent_of(account: Account, text: str = TEXT, now: float = 0.0) -> Agent:
    agent = Agent(compiled(text), now)
    account.begin(agent, now, LIMITS)
    return agent


def offend(account: Account, agent: Agent, now: float) -> None:
    agent.settle(Stopped("steps", "too many"), now, LIMITS)
    account.offended(agent, now, LIMITS)


def test_offences_are_inherited_while_they_count() -> None:
    account = Accounts().of("user ann")
    first = agent_of(account)
    offend(account, first, 1.0)
    offend(account, first, 2.0)
    assert agent_of(account, TEXT + "# 2", 60.5).stored().offences == (1.0, 2.0)
    assert agent_of(account, TEXT + "# 3", 61.5).stored().offences == (2.0,)
    assert not account.is_settled(61.5, LIMITS)
    assert agent_of(account, TEXT + "# 4", 63.0).stored().offences == ()
    assert account.is_settled(63.0, LIMITS)


def test_a_suspended_text_is_suspended_everywhere_and_another_is_tried() -> None:
    account = Accounts().of("user ann")
    first = agent_of(account)
    for now in (1.0, 2.0, 3.0):
        offend(account, first, now)
    assert first.stored().suspended_until == 303.0
    assert agent_of(account, now=4.0).suspended_until == 303.0
    other = agent_of(account, TEXT + "# other", 5.0)
    assert other.stored().suspended_until is None
    offend(account, other, 6.0)
    assert other.stored().suspended_until == 306.0
    assert agent_of(account, TEXT + "# third", 7.0).suspended_until == 306.0
    assert agent_of(account, TEXT + "# third", 304.0).suspended_until is None
    assert account.is_settled(306.0, LIMITS)


def test_one_offence_may_be_all_that_is_allowed() -> None:
    limits = PolicyLimits(offences_max=1)
    account = Accounts().of("user ann")
    agent = Agent(compiled(TEXT), 0.0)
    account.begin(agent, 0.0, limits)
    agent.settle(Stopped("steps", ""), 1.0, limits)
    account.offended(agent, 1.0, limits)
    other = Agent(compiled(TEXT + "# 2"), 2.0)
    assert not account.begin(other, 2.0, limits)
    assert other.stored().offences == ()


def test_accounts_last_as_long_as_somebody_uses_them_or_they_owe() -> None:
    accounts = Accounts()
    kept = accounts.of("user ann")
    assert accounts.of("user ann") is kept
    offend(kept, agent_of(kept), 1.0)
    accounts.left(kept, 1.0, LIMITS)
    del kept
    gc.collect()
    assert not accounts.of("user ann").is_settled(2.0, LIMITS)
    other = accounts.of("user bob")
    accounts.left(other, 1_000.0, LIMITS)
    gc.collect()
    assert accounts.of("user ann").is_settled(2.0, LIMITS)


def test_no_more_are_remembered_than_that() -> None:
    accounts = Accounts()
    for number in range(OWING_MAX + 10):
        account = accounts.of(f"user {number}")
        account.allowance.use(100.0)
        accounts.left(account, 0.0, LIMITS)
    assert len(accounts._owing) == OWING_MAX


def test_what_was_used_is_owed_until_it_has_come_in_again() -> None:
    account = Accounts().of("user ann")
    assert account.is_settled(0.0, LIMITS)
    assert not account.allowance.is_used_up(LIMITS, 0.0)
    account.allowance.use(0.5)
    assert not account.is_settled(4.0, LIMITS)
    assert account.is_settled(5.1, LIMITS)


def test_room_is_bounded_for_each_and_for_all() -> None:
    limits = PolicyLimits(waiting_bytes_max=10, waiting_all_bytes_max=15)
    accounts = Accounts()
    ann, bob = accounts.of("user ann"), accounts.of("user bob")
    assert not ann.full(limits)
    ann.wait(10)
    assert "10 bytes wait for this user's policies" in ann.full(limits)
    assert not bob.full(limits)
    bob.wait(5)
    assert "15 bytes wait for policies" in bob.full(limits)
    ann.wait(-10)
    assert not bob.full(limits)
