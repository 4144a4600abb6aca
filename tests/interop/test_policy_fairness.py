"""One user's policies do not hurt another's: offences, share, room, and the broker's turn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rove.broker.access import Identity
from rove.broker.context import Output
from rove.policy.agents import Allowance
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers
from tests.broker.policies.test_agents import COUNTING, ENDLESS, set_policy, values


def user(world: SimulatedBroker, client_id: str, name: str, **given: Any) -> SimulatedClient:
    """A client of which it is known whose it is."""
    client = world.connect(client_id, **given)
    world.broker.context.sessions[client_id].identity = Identity(name, client_id)
    return client


class TestAccounts:
    """Offences, share and room are the user's, whatever text and session they come in."""

    LIMITS = PolicyLimits(offences_max=2, suspension_s=100)

    def offend(self, world: SimulatedBroker, times: int = 2) -> None:
        bob = world.connect("bob")
        for _ in range(times):
            bob.publish("t", b"{}")

    def test_the_same_text_again_does_not_end_a_suspension(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann")
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world)
        for _ in range(5):
            set_policy(ann, ENDLESS)
            self.offend(world, 1)
        total = world.broker.view.policies().total
        assert (total.stopped, total.suspended) == ({"steps": 2}, 5)
        world.advance(101)
        self.offend(world, 1)
        assert world.broker.view.policies().total.stopped == {"steps": 3}

    def test_another_text_is_tried_once_and_then_none(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann")
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world)
        for number in range(6):
            set_policy(ann, ENDLESS + f"# {number}")
            self.offend(world, 1)
        total = world.broker.view.policies().total
        assert (total.stopped, total.suspended) == ({"steps": 3}, 5)

    def test_a_mended_text_goes_on_at_once(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann")
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world)
        set_policy(ann, "def arrived(m, me): return m")
        self.offend(world, 3)
        assert len(ann.payloads()) == 3

    def test_offences_go_on_counting_under_another_text(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann")
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world, 1)
        set_policy(ann, ENDLESS + "# other")
        self.offend(world, 2)
        total = world.broker.view.policies().total
        assert (total.stopped, total.suspended) == ({"steps": 2}, 1)

    def test_a_new_session_of_the_same_user_begins_suspended(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann")
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world)
        ann.disconnect()
        for name, number in (("ann", 1), ("ann", 2), ("eve", 3)):
            again = user(world, f"client{number}", name)
            again.subscribe("t")
            set_policy(again, ENDLESS)
        self.offend(world, 1)
        total = world.broker.view.policies().total
        assert (total.stopped, total.suspended) == ({"steps": 3}, 2)

    def test_it_is_still_so_after_a_restart(self) -> None:
        world = SimulatedBroker(policies=self.LIMITS)
        ann = user(world, "ann", "ann", expiry_s=EXPIRES_NEVER_S)
        ann.subscribe("t")
        set_policy(ann, ENDLESS)
        self.offend(world)
        world.crash()
        other = user(world, "other", "ann")
        other.subscribe("t")
        set_policy(other, ENDLESS)
        self.offend(world, 1)
        assert world.broker.view.policies().total.stopped == {}

    def test_sessions_of_one_user_have_one_share(self) -> None:
        workers = SimulatedWorkers()
        workers.job_s = 0.3
        limits = PolicyLimits(share=0.1, share_s=10, offences_max=100)
        world = SimulatedBroker(policies=limits, workers=workers, isolation="process")
        clients = [user(world, f"client{number}", "ann") for number in range(10)]
        eve = user(world, "eve", "eve")
        for client in (*clients, eve):
            client.subscribe("t")
            set_policy(client, "def arrived(m, me): return m")
        world.connect("bob").publish("t", b"{}")
        world.connect("bob").publish("t", b"{}")
        # What is asked for before it is known how long it takes is done.
        assert 4 <= sum(len(client.payloads()) for client in clients) <= 11
        assert len(eve.payloads()) == 2

    def test_what_waits_is_bounded_in_bytes(self) -> None:
        workers = SimulatedWorkers()
        workers.holds_jobs = True
        limits = PolicyLimits(waiting_bytes_max=2_500, waiting_all_bytes_max=5_000)
        world = SimulatedBroker(policies=limits, workers=workers, isolation="process")
        clients = [user(world, f"client{number}", f"user{number // 2}") for number in range(6)]
        for client in clients:
            client.subscribe("t")
            set_policy(client, "def arrived(m, me): return m")
        bob = world.connect("bob")
        for _ in range(4):
            bob.publish("t", b"x" * 1_000)
        # The first of each is being worked on, whatever it has.
        stopped = world.broker.view.policies().total.stopped
        waiting = [one.waiting for one in world.broker.view.policies().policies]
        assert stopped == {"crowded": 24 - sum(waiting)}
        assert all(sum(waiting[place : place + 2]) <= 4 for place in (0, 2, 4))
        assert sum(waiting) <= 5 + 6
        while workers.waiting:
            world.work()
        assert [one.waiting for one in world.broker.view.policies().policies] == [0] * 6
        accounts = world.broker.agents.policies._accounts
        assert accounts.waiting_bytes == 0
        bob.publish("t", b"x")
        assert workers.waiting


class Ticking(SimulatedWorkers):
    """Every look at the clock takes a while."""

    tick_s = 0.001

    def clock(self) -> float:
        self._clock_s += self.tick_s
        return self._clock_s


class InOrder(random.Random):
    """Whatever there is to choose from, the first is chosen."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


class TestLightCalls:
    TEXT = """\
def arrived(m, me):
    n = 0
    while n < m.rounds:
        n += 1
    return message(n=n)
"""

    def test_one_that_takes_long_for_its_steps_is_begun_again_as_a_long_one(self) -> None:
        """However few its steps are, others wait for it no longer than for any light one."""
        workers = Ticking()
        world = SimulatedBroker(
            policies=PolicyLimits(share=1.0), workers=workers, isolation="process"
        )
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, self.TEXT)
        done: list[int] = []
        for rounds in (1, 30_000, 30_000):
            bob.publish("t", b'{"rounds": %d}' % rounds)
            done.append(workers.done)
        assert done == [1, 3, 4]
        assert [one["n"] for one in values(ann)] == [1, 30_000, 30_000]
        assert world.broker.view.policies().total.stopped == {}

    def test_an_answer_for_who_has_used_little_is_taken_before_dear_ones(self) -> None:
        """Taking an answer takes time too, and a turn has little of it."""
        workers = Ticking(count=60)
        workers.holds_jobs = True
        world = SimulatedBroker(
            policies=PolicyLimits(share=1.0), workers=workers, isolation="process"
        )
        hostile = [world.connect(f"hostile{number}") for number in range(40)]
        modest, bob = world.connect("modest"), world.connect("bob")
        for number, client in enumerate((*hostile, modest)):
            client.subscribe(f"t/{number}")
            set_policy(client, self.TEXT)
        for number in range(41):
            bob.publish(f"t/{number}", b'{"rounds": 1}')
        # What the others asked for is done first, and has taken a worker a while.
        workers.job_s = 0.009
        workers._random = InOrder()
        workers.work(40)
        workers.job_s = 0.0001
        workers.work(1)
        world.turn()
        assert len(modest.payloads()) == 1
        assert sum(len(client.payloads()) for client in hostile) < 10


class TestTurns:
    def test_what_policies_use_of_a_turn_is_bounded(self) -> None:
        world = SimulatedBroker(policies=PolicyLimits(share=1.0), workers=Ticking())
        clients = [world.connect(f"client{number}") for number in range(50)]
        plain = world.connect("plain")
        for client in (*clients, plain):
            client.subscribe("t")
        for client in clients:
            set_policy(client, COUNTING)
        bob = world.connect("bob")
        agents = world.broker.agents
        calls: list[int] = []
        end_turn = world.broker.end_turn

        def counted(now: float) -> Output:
            before = world.broker.view.policies().total.calls
            output = end_turn(now)
            calls.append(world.broker.view.policies().total.calls - before)
            assert agents._spent_s == 0.0
            return output

        world.broker.end_turn = counted  # type: ignore[method-assign]
        bob.publish("t", b'{"x": 1}')
        assert len(plain.payloads()) == 1
        assert world.broker.next_tick_at() <= world.now
        while agents.has_later:
            world.advance(0.001)
        assert [values(client) for client in clients] == [[{"x": 1, "seen": 1}]] * 50
        assert max(calls) <= 6
        assert len([count for count in calls if count]) >= 10

    def test_who_is_next_is_found_once_a_turn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not once for each of those who wait: there may be thousands."""
        looks = 0

        def left_s(self: Allowance) -> float:
            nonlocal looks
            looks += 1
            return 0.0

        workers = Ticking()
        world = SimulatedBroker(policies=PolicyLimits(share=1.0), workers=workers)
        clients = [world.connect(f"client{number}") for number in range(100)]
        for client in clients:
            client.subscribe("t")
            set_policy(client, COUNTING)
        world.connect("bob").publish("t", b'{"x": 1}')
        waiting = len(world.broker.agents._later)
        assert waiting > 80
        workers.tick_s = 0.0
        monkeypatch.setattr(Allowance, "left_s", property(left_s))
        world.advance(0.001)
        assert not world.broker.agents.has_later
        assert looks == waiting

    def test_messages_stay_in_order_when_they_wait_for_a_turn(self) -> None:
        world = SimulatedBroker(policies=PolicyLimits(share=1.0), workers=Ticking())
        ann, bob = world.connect("ann"), world.connect("bob")
        ann.subscribe("t")
        set_policy(ann, COUNTING)
        for number in range(30):
            bob.publish("t", b'{"x": %d}' % number)
        while world.broker.agents.has_later:
            world.advance(0.001)
        assert values(ann) == [{"x": n, "seen": n + 1} for n in range(30)]
