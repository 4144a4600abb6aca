"""Topic aliases towards a client: a number in the place of a topic that it has heard before.

A client that says how many it takes is sent each topic in full once, and then its number. Numbers
are given to the first topics that come and never given to another: what a client subscribes to
rarely changes within a connection.

What goes out is not always in the order in which it was written: QoS 0 may overtake what waits
for a commit. So QoS 0 relies on a number only if the topic has gone out before everything that
waits; otherwise it repeats the topic, which is allowed.

Costs two dictionary lookups per notification, for those clients that asked.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TopicForm(NamedTuple):
    """How a topic is written in a packet."""

    topic: str
    alias: int | None


class Aliases:
    """The numbers that one connection has been told."""

    __slots__ = ("_count_max", "_numbers", "_sent")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._numbers: dict[str, int] = {}
        self._sent: set[str] = set()
        """Topics that went out ahead of all that waits."""

    def written(self, topic: str, *, waits: bool) -> TopicForm:
        """How to write a topic now; `waits` is for what goes out after a commit, in order."""
        number = self._numbers.get(topic)
        if number is None:
            is_new = len(self._numbers) < self._count_max
            return TopicForm(topic, len(self._numbers) + 1 if is_new else None)
        if waits or topic in self._sent:
            return TopicForm("", number)
        return TopicForm(topic, number)

    def told(self, topic: str, written: TopicForm, *, waits: bool) -> None:
        """It was sent so; what was not sent must not be relied upon."""
        if written.alias is None or not written.topic:
            return
        self._numbers[topic] = written.alias
        if not waits:
            self._sent.add(topic)

    def before(self, topic: str) -> tuple[Any, ...]:
        """What would make it untold again: a function and its arguments."""
        return self._restore, topic, topic in self._numbers, topic in self._sent

    def _restore(self, topic: str, was_numbered: bool, was_sent: bool) -> None:
        if not was_numbered:
            self._numbers.pop(topic, None)
        if not was_sent:
            self._sent.discard(topic)
