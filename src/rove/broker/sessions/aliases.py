"""Topic aliases towards a client: a number in place of a topic that it has received before.

A client that accepts aliases gets each topic in full once, and then its number. Numbers go to the
first topics that are sent and are never reassigned: the topics that a client receives rarely change
within a connection.

Packets do not always go out in the order in which they were encoded: QoS 0 may overtake what waits
for a commit. So QoS 0 relies on an alias only if the topic went out before everything that waits;
otherwise it repeats the topic, which is allowed.

Costs two dictionary lookups per notification, for the clients that accept aliases.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TopicForm(NamedTuple):
    """A topic as it stands in a packet: in full, as an alias, or both."""

    topic: str
    alias: int | None


class Aliases:
    """The aliases of one connection."""

    __slots__ = ("_count_max", "_numbers", "_sent")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._numbers: dict[str, int] = {}
        self._sent: set[str] = set()
        """Topics that went out before all that waits."""

    def written(self, topic: str, *, waits: bool) -> TopicForm:
        """The form of a topic now; `waits` for packets that go out after a commit, in order."""
        number = self._numbers.get(topic)
        if number is None:
            is_new = len(self._numbers) < self._count_max
            return TopicForm(topic, len(self._numbers) + 1 if is_new else None)
        if waits or topic in self._sent:
            return TopicForm("", number)
        return TopicForm(topic, number)

    def told(self, topic: str, written: TopicForm, *, waits: bool) -> None:
        """It was sent in this form; an alias must not be used before it was sent."""
        if written.alias is None or not written.topic:
            return
        self._numbers[topic] = written.alias
        if not waits:
            self._sent.add(topic)

    def before(self, topic: str) -> tuple[Any, ...]:
        """The call that would undo `told`: a function and its arguments."""
        return self._restore, topic, topic in self._numbers, topic in self._sent

    def _restore(self, topic: str, was_numbered: bool, was_sent: bool) -> None:
        if not was_numbered:
            self._numbers.pop(topic, None)
        if not was_sent:
            self._sent.discard(topic)
