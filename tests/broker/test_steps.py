"""Steps: what was done in one that fails is undone, newest first."""

from __future__ import annotations

from rove.broker.steps import Steps


class Thing:
    def __init__(self) -> None:
        self.size = 1
        self.items = {"a": 1}


def test_what_a_failed_step_has_changed_is_as_it_was() -> None:
    steps, thing = Steps(), Thing()
    heard: list[str] = []
    steps.saves(thing, "size")
    thing.size = 2
    for key in ("a", "b"):
        steps.saves_item(thing.items, key)
        thing.items[key] = 5
    steps.undoes(heard.append, "undone")
    steps.afterwards(heard.append, "too early")
    assert steps.roll_back() == []
    assert (thing.size, thing.items, heard) == (1, {"a": 1}, ["undone"])
    steps.succeed()
    assert heard == ["undone"]


def test_what_waits_for_the_end_of_a_step_is_done_when_it_has_gone_well() -> None:
    steps, thing = Steps(), Thing()
    heard: list[str] = []
    steps.saves(thing, "size")
    thing.size = 2
    steps.afterwards(heard.append, "done")
    steps.succeed()
    assert steps.roll_back() == []
    assert (thing.size, heard) == (2, ["done"])


def test_a_part_of_a_step_can_be_undone_alone() -> None:
    steps, thing = Steps(), Thing()
    steps.saves(thing, "size")
    thing.size = 2
    mark = steps.mark
    steps.saves(thing, "size")
    thing.size = 3
    steps.roll_back(mark)
    assert thing.size == 2
    steps.roll_back()
    assert thing.size == 1


def test_an_undoing_that_fails_does_not_keep_the_rest_from_it() -> None:
    steps, thing = Steps(), Thing()
    steps.saves(thing, "size")
    thing.size = 2
    steps.undoes(thing.items.__delitem__, "not there")
    (failure,) = steps.roll_back()
    assert (thing.size, type(failure)) == (1, KeyError)


def test_what_has_to_be_done_afterwards_is_tried_twice() -> None:
    steps = Steps()
    tries: list[int] = []

    def fails_once() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")

    steps.afterwards(fails_once)
    steps.succeed()
    assert (len(tries), [type(each) for each in steps.troubles]) == (2, [ValueError])
