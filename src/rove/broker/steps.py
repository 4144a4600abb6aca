"""A step: what the broker does whole or not at all.

A packet, a timer, the routing of a publication: each is a step. During a step, code that changes
something that outlives it also appends the call that would undo the change. When the step succeeds,
this list is dropped, and what was deferred to the end is done. When it fails, the list is run,
newest first, and everything is as it was.

Undoing happens in memory, and the journal is memory until the turn ends: so one list serves
sessions, queues, subscriptions and the rows that wait for the next commit alike. What cannot be
undone, such as removing a subscription from an index, comes last in its step (`afterwards`).

Three things are not undone: counters, numbers that were assigned, and what belongs to a connection
that ends with the step.

A change costs a tuple in a list, about 0.1 µs; a publication of QoS 0 leaves one for all of its
receivers together.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

Action = tuple[Any, ...]
"""A function and its arguments."""


class Steps:
    """What would undo the step under way."""

    __slots__ = ("later", "troubles", "undo", "warnings")

    def __init__(self) -> None:
        self.undo: list[Action] = []
        """The oldest first; empty between steps. Appended to directly where every bit counts."""
        self.troubles: list[Exception] = []
        """Faults that were repaired and are still to be logged."""
        self.warnings: list[str] = []
        """What was lost by a repair, still to be logged too."""
        self.later: list[Action] = []
        """Calls that wait for the step to succeed."""

    # -- while a step lasts --------------------------------------------------------------------

    def undoes(self, function: Callable[..., object], *arguments: object) -> None:
        """This call would undo what is about to be done, or has just been."""
        self.undo.append((function, *arguments))

    def saves(self, owner: object, *names: str) -> None:
        """These attributes are about to be set."""
        for name in names:
            self.undo.append((setattr, owner, name, getattr(owner, name)))

    def saves_item(self, mapping: MutableMapping[Any, Any], key: object) -> None:
        """The item of that key is about to be set or deleted; its place in the order may change."""
        if key in mapping:
            self.undo.append((mapping.__setitem__, key, mapping[key]))
        else:
            self.undo.append((mapping.pop, key, None))

    def afterwards(self, function: Callable[..., object], *arguments: object) -> None:
        """Call this when the step has succeeded; again if it fails, because it has to be done."""
        self.later.append((function, *arguments))

    # -- its end -------------------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """Where a part of the step begins, which may be undone alone."""
        return len(self.undo)

    def succeed(self) -> None:
        """The step has succeeded: make the deferred calls."""
        self.undo.clear()
        if self.later:
            afterwards, self.later = self.later, []
            for function, *arguments in afterwards:
                try:
                    function(*arguments)
                except Exception as error:
                    self.troubles.append(error)
                    function(*arguments)

    def roll_back(self, mark: int = 0) -> list[Exception]:
        """Undo the step, or what was done since a mark; returns the exceptions of undoing."""
        failures: list[Exception] = []
        if not mark:
            self.later.clear()
        while len(self.undo) > mark:
            function, *arguments = self.undo.pop()
            try:
                function(*arguments)
            except Exception as error:
                failures.append(error)
        return failures
