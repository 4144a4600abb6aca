"""One policy at work: decisions, patience, shares, and what is kept of it."""

from __future__ import annotations

import msgspec

from rove.policy.agents import SLOW_S, Agent, CpuAllowance, Notice, PolicyDecision, StoredAgent
from rove.policy.compiler import compiled
from rove.policy.jobs import Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import IncomingMessage

LIMITS = PolicyLimits(offences_max=3, offences_s=60, suspension_s=100)


def agent(body: str) -> Agent:
    return Agent(compiled(f"def arrived(m, me):\n    {body}"), 0.0)


def shown(one: Agent, now: float = 0.0, payload: bytes = b'{"x": 1}') -> PolicyDecision:
    return one.decide(IncomingMessage("t", payload), {}, now, LIMITS)


class TestDecisions:
    def test_what_passes_is_marked_and_not_repeated(self) -> None:
        one = agent("return m")
        decision = shown(one)
        assert (decision.verdict, decision.is_unchanged, decision.outputs) == ("passed", True, ())
        assert decision.output_count == 1
        assert (one.tally.calls, one.tally.passed, one.tally.bytes_in, one.tally.bytes_out) == (
            1,
            1,
            8,
            8,
        )

    def test_what_is_dropped(self) -> None:
        one = agent("return None")
        assert shown(one).verdict == "dropped"
        assert (one.tally.dropped, one.tally.outputs) == (1, 0)

    def test_what_is_changed(self) -> None:
        one = agent("return [message(a=1), message(b=2)]")
        decision = shown(one)
        assert (decision.verdict, [out.payload for out in decision.outputs]) == (
            "sent",
            [b'{"a":1}', b'{"b":2}'],
        )
        assert (one.tally.changed, one.tally.outputs, one.tally.bytes_out) == (1, 2, 14)

    def test_it_remembers_only_what_has_happened(self) -> None:
        one = agent("return m if every(60) else None")
        assert shown(one, 1.0).remembers
        before = one.memory
        decision = shown(one, 2.0)
        assert (decision.verdict, decision.remembers) == ("dropped", False)
        assert one.memory is before

    def test_changes_of_variables_are_told_and_not_made(self) -> None:
        me: dict[str, object] = {"n": 1}
        one = agent("me.n = me.n + 1")
        decision = one.decide(IncomingMessage("t", b"{}"), me, 0.0, LIMITS)
        assert decision.changes == {"n": 2}
        assert me == {"n": 1}


class TestPatience:
    def test_stops_within_a_minute_suspend(self) -> None:
        one = agent("return 1 / 0")
        events = [[notice.event for notice in shown(one, at).notices] for at in (0.0, 30.0, 59.0)]
        assert events == [["stopped"], ["stopped"], ["stopped", "suspended"]]
        assert one.suspended_until == 159.0
        assert shown(one, 158.0).verdict == "suspended"
        assert one.tally.stopped == {"error": 3}
        assert one.tally.suspended == 1

    def test_stops_that_are_far_apart_do_not(self) -> None:
        one = agent("return 1 / 0")
        for at in range(0, 600, 31):
            shown(one, float(at))
        assert one.suspended_until is None

    def test_when_it_is_over_it_is_told_and_tried_again(self) -> None:
        one = agent("return 1 / m.x")
        for at in (0.0, 1.0, 2.0):
            shown(one, at, b'{"x": 0}')
        assert shown(one, 102.0).notices[0].event == "resumed"
        assert one.suspended_until is None

    def test_after_a_suspension_counting_begins_anew(self) -> None:
        one = agent("return 1 / 0")
        for at in (0.0, 1.0, 2.0, 103.0, 104.0):
            shown(one, at)
        assert one.suspended_until is None
        shown(one, 105.0)
        assert one.suspended_until == 205.0

    def test_a_suspended_one_may_let_everything_through(self) -> None:
        limits = msgspec.structs.replace(LIMITS, suspended="deliver", offences_max=1)
        one = agent("return 1 / 0")
        arrived = IncomingMessage("t", b'{"x": 1}')
        assert one.decide(arrived, {}, 0.0, limits).is_unchanged is False
        decision = one.decide(arrived, {}, 1.0, limits)
        assert (decision.verdict, decision.is_unchanged) == ("suspended", True)
        assert one.tally.outputs == 1

    def test_notices_come_once_a_second_and_count_the_others(self) -> None:
        limits = PolicyLimits(offences_max=100)
        one = agent("return 1 / 0")
        told: list[Notice] = []
        for tenth in range(25):
            told += one.decide(IncomingMessage("t", b"{}"), {}, tenth / 10, limits).notices
        assert [(notice.at, notice.missed) for notice in told] == [(0.0, 0), (1.0, 9), (2.0, 9)]
        assert told[0].line == 2
        assert "division by zero" in told[0].text

    def test_stops_that_others_tell_of_count_alike(self) -> None:
        one = agent("return m")
        for at in (0.0, 1.0, 2.0):
            one.settle(Stopped("share", "too much"), at, LIMITS)
        assert one.suspended_until == 102.0

    def test_a_crowd_is_told_and_counted_and_no_offence(self) -> None:
        one = agent("return m")
        limits = PolicyLimits(offences_max=2)
        notices = [
            notice.event
            for number in range(10)
            for notice in one.settle(Stopped("crowded", "many"), number / 9, limits).notices
        ]
        assert notices == ["stopped", "stopped"]
        assert one.tally.stopped == {"crowded": 10}
        assert one.suspended_until is None


class TestAllowance:
    def test_it_fills_up_with_time_and_no_further(self) -> None:
        limits = PolicyLimits(share=0.1, share_s=10)
        allowance = CpuAllowance()
        assert not allowance.is_used_up(limits, 0.0)
        allowance.use(1.5)
        assert allowance.is_used_up(limits, 0.0)
        assert allowance.is_used_up(limits, 4.9)
        assert not allowance.is_used_up(limits, 5.1)
        assert not allowance.is_used_up(limits, 1_000.0)
        allowance.use(1.1)
        assert allowance.is_used_up(limits, 1_000.0)

    def test_it_comes_in_while_the_time_stands_still(self) -> None:
        limits = PolicyLimits(share=0.1, share_s=10)
        allowance = CpuAllowance()
        assert not allowance.is_used_up(limits, 1_000.0, 50.0)
        allowance.use(1.5)
        assert allowance.is_used_up(limits, 1_000.0, 54.9)
        assert not allowance.is_used_up(limits, 1_000.0, 55.1)
        allowance.use(1.0)
        assert allowance.is_used_up(limits, 1_000.0, 55.1)
        assert not allowance.is_used_up(limits, 1_100.0, 55.1)


class TestKept:
    def test_it_goes_on_where_it_was(self) -> None:
        one = agent("return 1 / 0 if m.x else (m if every(60) else None)")
        shown(one, 0.0, b'{"x": 0}')
        shown(one, 1.0)
        shown(one, 2.0)
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(one.stored()), type=StoredAgent)
        again = Agent.restored(compiled(kept.text), kept)
        assert shown(again, 3.0, b'{"x": 0}').verdict == "dropped"
        assert [notice.event for notice in shown(again, 4.0).notices][-1] == "suspended"


class TestSlowness:
    def test_one_that_takes_long_again_and_again_is_slow(self) -> None:
        one = agent("return m")
        calls = 0
        while not one.is_slow:
            one.took(2 * SLOW_S)
            calls += 1
        assert 5 < calls < 20

    def test_nor_does_a_short_call_now_and_then_hide_it(self) -> None:
        one = agent("return m")
        for _ in range(50):
            for took_s in (4 * SLOW_S, 4 * SLOW_S, 0.0):
                one.took(took_s)
        assert one.is_slow

    def test_a_machine_that_stands_still_now_and_then_makes_none_slow(self) -> None:
        one = agent("return m")
        for call in range(1_000):
            one.took(1.0 if call % 50 == 0 else 1e-5)
        assert not one.is_slow
