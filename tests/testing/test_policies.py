"""Simulated workers do what they are told, when they are told, and die when they are to."""

from __future__ import annotations

from rove.policy.jobs import CallJob, CallResult, JobResult, LostKind
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed
from rove.testing.policies import SimulatedWorkers

TEXT = "def arrived(m, me): return m"


class Heard:
    def __init__(self) -> None:
        self.answers: list[JobResult] = []
        self.losses: list[tuple[int, str]] = []

    def answered(self, answer: JobResult) -> None:
        self.answers.append(answer)

    def lost(self, number: int, kind: LostKind, why: str) -> None:
        assert why
        self.losses.append((number, kind))


def jobs(workers: SimulatedWorkers, count: int) -> Heard:
    workers.listener = heard = Heard()
    for number in range(count):
        job = CallJob(number, TEXT, "t", b"{}", (), {}, (), {}, 0.0, PolicyLimits())
        workers.submit(job, 500)
    return heard


def test_nothing_is_done_before_it_is_said() -> None:
    workers = SimulatedWorkers(count=4)
    heard = jobs(workers, 3)
    assert (heard.answers, workers.waiting) == ([], 3)
    assert workers.work(2) == 2
    assert (len(heard.answers), workers.waiting, workers.done) == (2, 1, 2)
    answer = heard.answers[0]
    assert isinstance(answer, CallResult)
    assert isinstance(answer.result, Completed)
    assert answer.result.passes


def test_a_seed_decides_the_order() -> None:
    orders = set()
    for seed in range(5):
        workers = SimulatedWorkers(seed, count=8)
        heard = jobs(workers, 8)
        workers.work()
        orders.add(tuple(one.number for one in heard.answers))
    assert len(orders) > 1


def test_some_die_and_some_are_late() -> None:
    workers = SimulatedWorkers(3, count=100)
    workers.kill_share, workers.late_share, workers.job_s = 0.3, 0.3, 0.5
    heard = jobs(workers, 100)
    workers.work()
    kinds = [kind for _, kind in heard.losses]
    assert set(kinds) == {"error", "time"}
    assert len(heard.answers) + len(heard.losses) == 100
    assert workers.clock() == 50.0


def test_a_crash_ends_all() -> None:
    workers = SimulatedWorkers(count=3)
    heard = jobs(workers, 3)
    workers.end_all()
    assert workers.work() == 0
    assert heard.answers == []
