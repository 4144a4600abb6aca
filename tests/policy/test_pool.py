"""Jobs are done in turn, once for all who want the same, and never too many at a time."""

from __future__ import annotations

from rove.policy.jobs import (
    CallJob,
    CallResult,
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Job,
    Stopped,
)
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed
from rove.policy.pool import CACHE_BYTES_MAX, IDLE_MAX, FinishedJob, Pool


class Workers:
    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.given: list[Job] = []

    def submit(self, job: Job, time_ms: int) -> None:
        assert time_ms == 500
        self.given.append(job)

    def clock(self) -> float:
        return 0.0


def taken(pool: Pool[str]) -> list[FinishedJob[str]]:
    ready: list[FinishedJob[str]] = []
    while pool.ready:
        ready.append(pool.take())
    return ready


def request(image: bytes = b"picture", quality: int = 50) -> CompressionRequest:
    return CompressionRequest(image, quality)


def call(text: str = "") -> CallJob:
    return CallJob(0, text, "t", b"{}", (), {}, (), {}, 0.0, PolicyLimits())


def test_workers_get_no_more_than_keeps_them_busy() -> None:
    workers = Workers(2)
    pool: Pool[str] = Pool(workers)
    for number in range(10):
        pool.run("ann", call(), f"a{number}", 500, is_light=True)
    assert len(workers.given) == pool.under_way == 2
    assert pool.waiting == 10 - 2
    pool.answered(CallResult(workers.given[0].number, Completed((), {}, None, 0)))
    assert len(workers.given) == 2 + 1


def done_in_order(pool: Pool[str], workers: Workers, took_s: dict[str, float]) -> list[str]:
    """Do everything, the oldest first; what an owner's jobs take is told by their first letter."""
    while pool.under_way:
        number = min(pool._under_way)
        job = pool._under_way[number].job
        assert isinstance(job, CallJob)
        pool.answered(CallResult(number, Completed((), {}, None, 0), took_s[job.text[0]]))
    return [one.text for one in workers.given if isinstance(one, CallJob)]


def test_who_has_used_least_is_next() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    for number in range(6):
        pool.run("greedy", call(f"g{number}"), "", 500)
    pool.run("modest", call("m0"), "", 500)
    pool.run("other", call("o0"), "", 500)
    texts = done_in_order(pool, workers, {"g": 0.1, "m": 0.01, "o": 0.01})
    assert texts == ["g0", "m0", "o0", "g1", "g2", "g3", "g4", "g5"]


def test_turns_are_by_time_and_not_by_number() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    for number in range(10):
        pool.run("slow", call(f"s{number}"), "", 500)
    for number in range(40):
        pool.run("quick", call(f"q{number}"), "", 500)
    texts = done_in_order(pool, workers, {"s": 0.1, "q": 0.01})
    # Ten of one take as long as one of the other.
    firsts = [text[0] for text in texts[:33]]
    assert 28 <= firsts.count("q") <= 31


def test_idleness_saves_nothing_up() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    for number in range(20):
        pool.run("busy", call(f"b{number}"), "", 500)
    while len(workers.given) < 10:
        pool.answered(CallResult(min(pool._under_way), Completed((), {}, None, 0), 0.1))
    for number in range(10):
        pool.run("idle", call(f"i{number}"), "", 500)
    texts = done_in_order(pool, workers, {"b": 0.1, "i": 0.1})
    assert 4 <= [text[0] for text in texts[10:20]].count("i") <= 6


def test_who_is_known_for_short_jobs_waits_for_none_of_fifty_who_are_new() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    took_s = {"m": 0.0001, "h": 0.01}
    for _ in range(3):
        pool.run("modest", call("m"), "", 500, is_light=True)
        done_in_order(pool, workers, took_s)
    for number in range(50):
        pool.run(f"hostile{number}", call("h"), "", 500, is_light=True)
    begun = len(workers.given) - 1
    overtaken = 0
    for _ in range(20):
        # It asks while one of them is being done, and is next.
        pool.run("modest", call("m"), "", 500, is_light=True)
        pool.answered(CallResult(min(pool._under_way), Completed((), {}, None, 0), took_s["h"]))
        overtaken += workers.given[-1].text == "m"  # type: ignore[union-attr]
        pool.answered(CallResult(min(pool._under_way), Completed((), {}, None, 0), took_s["m"]))
    assert overtaken == 20
    assert len(workers.given) - begun == 20 + 21


def test_who_has_become_slow_is_expected_to_be() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    for number in range(30):
        pool.run("turned", call(f"t{number}"), "", 500)
        done_in_order(pool, workers, {"t": 0.001 if number < 10 else 0.1})
    pool.run("other", call("o"), "", 500)
    pool.run("turned", call("t"), "", 500)
    pool.run("new", call("n"), "", 500)
    texts = done_in_order(pool, workers, {"t": 0.1, "o": 0.01, "n": 0.01})
    assert texts[-3:] == ["o", "n", "t"]


def test_what_the_broker_does_for_a_user_counts() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    pool.run("other", call("x"), "", 500)
    for owner in ("costly", "cheap"):
        pool.run(owner, call(owner), "", 500)
    pool.charge("costly", 0.01)
    pool.charge("nobody", 1.0)
    texts = done_in_order(pool, workers, {"x": 0.01, "c": 0.01})
    assert texts == ["x", "cheap", "costly"]
    assert "nobody" not in pool._used_s


def test_answers_are_taken_by_what_their_users_have_used() -> None:
    workers = Workers(3)
    pool: Pool[str] = Pool(workers)
    for owner in ("greedy", "modest", "middling"):
        pool.run(owner, call(), owner, 500, is_light=True)
    took_s = {"greedy": 0.3, "modest": 0.001, "middling": 0.1}
    for job, owner in zip(list(workers.given), took_s, strict=True):
        pool.answered(CallResult(job.number, Completed((), {}, None, 0), took_s[owner]))
    assert [one.waiter for one in taken(pool)] == ["modest", "middling", "greedy"]


def test_long_jobs_leave_a_worker_to_light_ones() -> None:
    workers = Workers(3)
    pool: Pool[str] = Pool(workers)
    for number in range(5):
        pool.run(f"attacker{number}", call("long"), "", 500)
    assert [pool.under_way, pool.waiting] == [2, 3]
    for _ in range(5):
        pool.run("victim", call("light"), "", 500, is_light=True)
    assert [pool.under_way, pool.waiting] == [3, 3 + 4]


def test_owners_who_want_nothing_are_forgotten() -> None:
    workers = Workers(1)
    pool: Pool[str] = Pool(workers)
    for number in range(5 * IDLE_MAX):
        pool.run(f"owner{number}", call(), "", 500)
        pool.answered(CallResult(workers.given[-1].number, Completed((), {}, None, 0), 0.001))
    assert len(pool._used_s) <= 2 * IDLE_MAX


def test_the_same_wish_is_done_once_and_told_to_all() -> None:
    workers = Workers()
    pool: Pool[str] = Pool(workers)
    for waiter in ("a", "b", "c"):
        pool.compress(waiter, request(), waiter, 500)
    pool.compress("a", request(quality=60), "d", 500)
    assert [type(job) for job in workers.given] == [CompressionJob]
    answer = CompressionResult(workers.given[0].number, b"small", took_s=0.1)
    pool.answered(answer)
    # Whose job it was has used what it took, and is the last to be told.
    assert [(one.waiter, one.answer, one.is_first) for one in taken(pool)] == [
        ("b", answer, False),
        ("c", answer, False),
        ("a", answer, True),
    ]
    assert pool.compressed[request()] is answer
    assert not pool.ready


def test_who_wants_the_same_does_not_wait_for_all_that_another_wants() -> None:
    workers = Workers()
    pool: Pool[str] = Pool(workers)
    for number in range(50):
        pool.compress("greedy", request(quality=number), f"g{number}", 500)
    pool.compress("modest", request(quality=49), "m", 500)
    pool.compress("modest", request(quality=90), "n", 500)
    assert pool.waiting == 51 - 1
    heard: list[str] = []
    while workers.given:
        pool.answered(CompressionResult(workers.given.pop(0).number, b"small"))
        heard += [one.waiter for one in taken(pool)]
    assert heard.index("m") < 5
    assert heard.index("n") < 8
    assert sorted(heard) == sorted([f"g{number}" for number in range(50)] + ["m", "n"])
    assert (pool.done, pool.waiting, pool.under_way, len(pool._long.queues)) == (51, 0, 0, 0)


def test_what_is_lost_is_told_and_not_remembered() -> None:
    workers = Workers()
    pool: Pool[str] = Pool(workers)
    pool.compress("a", request(), "a", 500)
    pool.run("b", call(), "b", 500, is_light=True)
    pool.lost(workers.given[0].number, "time", "too late")
    (first,) = taken(pool)
    pool.lost(workers.given[1].number, "memory", "too large")
    (second,) = taken(pool)
    assert isinstance(first.answer, CompressionResult)
    assert (first.answer.kind, first.answer.is_lost, first.answer.image) == ("time", True, b"")
    assert isinstance(second.answer, CallResult)
    assert second.answer.is_lost
    assert second.answer.result == Stopped("memory", "too large")
    assert request() not in pool.compressed
    assert pool.lost_count == 2
    pool.compress("a", request(), "a", 500)
    assert len(workers.given) == 3


def test_what_a_worker_died_of_is_done_once_more_and_before_what_else_its_owner_wants() -> None:
    workers = Workers(2)
    pool: Pool[str] = Pool(workers)
    for number in range(4):
        pool.run("ann", call(f"a{number}"), f"a{number}", 500, is_light=True)
    first = workers.given[0].number
    pool.lost(first, "error", "killed")
    assert not pool.ready
    texts = [one.text for one in workers.given if isinstance(one, CallJob)]
    assert texts == ["a0", "a1", "a0"]
    again = workers.given[2].number
    assert again != first
    pool.answered(CallResult(first, Completed((), {}, None, 0)))
    assert not pool.ready
    pool.lost(again, "error", "killed")
    (ready,) = taken(pool)
    assert (ready.waiter, ready.answer.is_lost) == ("a0", True)
    assert pool.lost_count == 2


def test_a_picture_that_many_want_is_done_once_more_for_all() -> None:
    workers = Workers(2)
    pool: Pool[str] = Pool(workers)
    pool.run("ann", call(), "busy", 500, is_light=True)
    for waiter in ("ann", "bob", "eve"):
        pool.compress(waiter, request(), waiter, 500)
    pool.lost(workers.given[1].number, "error", "killed")
    assert [type(job) for job in workers.given] == [CallJob, CompressionJob, CompressionJob]
    pool.answered(CompressionResult(workers.given[2].number, b"small"))
    assert [one.waiter for one in taken(pool)] == ["ann", "bob", "eve"]
    pool.answered(CallResult(workers.given[0].number, Completed((), {}, None, 0)))
    assert (pool.waiting, pool.under_way, len(pool._long.queues)) == (0, 0, 0)
    assert len(workers.given) == 3


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    pool: Pool[str] = Pool(Workers())
    pool.answered(CompressionResult(7, b"x"))
    pool.lost(8, "error", "dead")
    assert not pool.ready


def test_the_oldest_answers_are_forgotten() -> None:
    workers = Workers()
    pool: Pool[str] = Pool(workers)
    size = CACHE_BYTES_MAX // 4
    for number in range(6):
        pool.compress("a", request(bytes([number]) * size), "a", 500)
        pool.answered(CompressionResult(workers.given[-1].number, b"s"))
    assert len(pool.compressed) == 3
    assert request(bytes([5]) * size) in pool.compressed
