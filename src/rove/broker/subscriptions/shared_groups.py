"""Shared subscriptions (`$share/NAME/FILTER`): which member gets a publication.

Members take turns, and those that are connected come first. A choice costs a pass over the members.
"""

from __future__ import annotations

from collections.abc import Sequence

from rove.broker.sessions.session import Subscription


class SharedGroup:
    """The members of a shared subscription: each publication goes to one of them."""

    __slots__ = ("_turn", "members", "name")

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name
        """The share name, and the topic filter."""
        self.members: dict[Subscription, None] = {}
        self._turn = 0

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """The next of some members in turn, a connected one if there is any."""
        self._turn += 1
        connected = [one for one in candidates if one.session.link is not None]
        chosen = connected or candidates
        return chosen[self._turn % len(chosen)]
