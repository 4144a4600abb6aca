"""Simulated matchers do what processes would, in an order that a seed decides."""

from __future__ import annotations

import pytest

from rove.elastic.commands import (
    Add,
    Close,
    Match,
    MatchReply,
    Open,
    Replies,
    Save,
    Saved,
    encoded_rows,
)
from rove.testing.matchers import SimulatedMatchers


class Heard:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def started(self, matcher: int, pid: int) -> None:
        self.told.append(("started", matcher))

    def arrived(self, matcher: int, replies: Replies) -> None:
        self.told.append(("arrived", matcher, *(type(one) for one in replies.replies)))

    def died(self, matcher: int, why: str) -> None:
        self.told.append(("died", matcher, why))


def simulated(seed: int = 1, matchers: int = 1) -> tuple[SimulatedMatchers, Heard]:
    found, heard = SimulatedMatchers(seed), Heard()
    found.listener = heard
    for _ in range(matchers):
        found.start()
    return found, heard


def question(cell: int = 1) -> Match:
    return Match(cell, 1, 1, encoded_rows([]))


def test_one_begins_when_it_is_let() -> None:
    matchers, heard = simulated()
    assert heard.told == []
    assert [matchers.work(), matchers.work()] == [True, False]
    assert heard.told == [("started", 1)]
    assert matchers.is_quiet


def test_numbers_are_never_used_again() -> None:
    matchers, _ = simulated(matchers=2)
    matchers.stop(2)
    matchers.kill(1)
    assert matchers.start() == 3
    assert matchers.living == [3]


def test_commands_are_worked_on_in_their_order() -> None:
    matchers, heard = simulated()
    matchers.send(1, [Open(1)])
    matchers.send(1, [Add(1, 1, "x > 1", 1, 0.0), question()])
    matchers.send(1, [Save(1, "a")])
    matchers.work_off(1)
    assert heard.told == [("started", 1), ("arrived", 1, MatchReply, Saved)]
    assert matchers.cells_of(1)[1].ids() == {1}
    assert list(matchers.files) == ["a"]


def test_waiting_ends_when_something_was_heard() -> None:
    matchers, heard = simulated()
    matchers.send(1, [Open(1), question()])
    matchers.wait()
    matchers.wait()
    assert heard.told == [("started", 1), ("arrived", 1, MatchReply)]
    with pytest.raises(RuntimeError, match="nobody"):
        matchers.wait()


def test_what_a_dead_one_was_sent_is_gone() -> None:
    matchers, heard = simulated(matchers=2)
    matchers.work_off(1)
    matchers.work_off(2)
    matchers.send(1, [Open(1), question()])
    matchers.kill(1)
    matchers.send(1, [question()])
    assert matchers.kills == 1
    assert matchers.work()
    assert heard.told[2:] == [("died", 1, "killed by signal 9")]
    assert matchers.is_quiet


def test_of_one_that_was_stopped_nothing_is_heard() -> None:
    matchers, heard = simulated(matchers=2)
    matchers.kill(1)
    matchers.stop(1)
    matchers.stop(2)
    assert matchers.is_quiet
    assert not matchers.work()
    assert heard.told == []


def test_one_that_does_not_start() -> None:
    matchers, heard = simulated()
    matchers.fails_to_start = 1
    assert matchers.start() == 2
    assert matchers.work()
    assert heard.told == [("died", 2, "it did not start")]
    assert matchers.start() == 3
    assert 3 in matchers.living


def test_some_die_of_themselves() -> None:
    matchers, heard = simulated(matchers=3)
    matchers.kill_share = 1.0
    while not matchers.is_quiet:
        matchers.work()
    assert matchers.kills == 3
    assert sorted(heard.told) == [("died", number, "killed by signal 9") for number in (1, 2, 3)]


def test_the_seed_decides_and_decides_again() -> None:
    def life(seed: int) -> list[tuple[object, ...]]:
        matchers, heard = simulated(seed, 3)
        for _ in range(5):
            for number in (1, 2, 3):
                matchers.send(number, [Open(1), question(), Close(1)])
        while not matchers.is_quiet:
            matchers.work()
        return heard.told

    assert life(1) == life(1)
    assert len({str(life(seed)) for seed in range(5)}) > 1


def test_files_and_time() -> None:
    matchers, _ = simulated()
    first, second = matchers.new_path(), matchers.new_path()
    assert first != second
    matchers.write(first, [b"a", memoryview(b"b")])
    assert bytes(matchers.read(first)) == b"ab"
    matchers.room = 0
    with pytest.raises(OSError, match="No space left"):
        matchers.write(second, [b"c"])
    matchers.forget(first)
    matchers.forget(second)
    assert not matchers.files
    matchers.pass_time(1.5)
    assert matchers.clock() == 1.5
    assert matchers.cpu_s() == 0.0
