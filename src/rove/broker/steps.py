"""A step: what the broker does whole or not at all.

A packet, a timer, a publication that is routed: each is a step. While it lasts, whoever changes
something that outlives it leaves here what would change it back. When the step has gone well, that
is forgotten, and what had to wait for it is done; when it fails, it is run, newest first, and
everything is as it was.

Undoing is done in memory, and the journal is memory until the turn ends: so one list serves
sessions, queues, subscriptions and the rows that wait for the next commit alike. What cannot be
undone comes last in its step (`afterwards`), such as taking a subscription out of an index.

Three things are not undone: counters, numbers that were given away, and what belongs to a
connection that ends with the step.

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
        """Faults that were dealt with and that somebody should tell of."""
        self.warnings: list[str] = []
        """What was lost by mending, which somebody should tell of too."""
        self.later: list[Action] = []
        """What waits for the step to have gone well."""

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
        """Call this once the step has gone well; once more if it fails, for it has to be done."""
        self.later.append((function, *arguments))

    # -- its end -------------------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """Where a part of the step begins, which may be undone alone."""
        return len(self.undo)

    def succeed(self) -> None:
        """The step has gone well: do what waited for that."""
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
        """Undo the step, or what was done since a mark; gives what failed even in that."""
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
