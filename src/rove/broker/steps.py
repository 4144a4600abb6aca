"""A step: a change of the broker's state that is applied completely or not at all.

A packet, a timer and the routing of a publication are a step each. Code that changes state which
outlives the step also appends the call that would undo the change. If the step succeeds, this list
is dropped and the deferred calls are made. If it fails, the list is run, newest first, and the
state is what it was before.

Only memory is undone, and the journal stays in memory until the turn ends. So one list serves
sessions, queues, subscriptions and the rows for the next commit. What cannot be undone, such as
removing a subscription from an index, is deferred to the end of the step (`afterwards`).

Three things are not undone: counters, numbers that were assigned, and the state of a connection
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
    """The calls that would undo the current step."""

    __slots__ = ("later", "troubles", "undo", "warnings")

    def __init__(self) -> None:
        self.undo: list[Action] = []
        """The oldest first; empty between steps. Code for each publication appends directly."""
        self.troubles: list[Exception] = []
        """Faults that were repaired and are still to be logged."""
        self.warnings: list[str] = []
        """What repairs have lost, still to be logged."""
        self.later: list[Action] = []
        """Calls that wait for the step to succeed."""

    # -- while a step lasts --------------------------------------------------------------------

    def undoes(self, function: Callable[..., object], *arguments: object) -> None:
        """Make this call if the step fails."""
        self.undo.append((function, *arguments))

    def saves(self, owner: object, *names: str) -> None:
        """Restore these attributes, which are about to be set, if the step fails."""
        for name in names:
            self.undo.append((setattr, owner, name, getattr(owner, name)))

    def saves_item(self, mapping: MutableMapping[Any, Any], key: object) -> None:
        """Restore an item, which is about to be set or deleted, if the step fails.

        Its place in the order of the mapping may change.
        """
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
