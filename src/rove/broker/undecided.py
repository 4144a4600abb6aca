"""Telling subscribers that it is not known whether they wanted a publication.

Trying patterns on a long string takes steps, and a publication has only so many
(`rove.match.patterns.texts`). A pattern that they do not suffice for is undecided, and its
subscription is passed over for that publication. That must not be silent: it is counted, logged
once per batch, and told to the subscriber on `$rove/undecided`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from rove.broker.state import State
from rove.broker.subscriptions import Subscription

UNDECIDED: Final = "$rove/undecided"


def tell_undecided(state: State, passed_over: Sequence[Subscription]) -> None:
    """Tell subscribers that were passed over for something that was just published."""
    state.counters.matches_undecided += len(passed_over)
    first = passed_over[0]
    state.note(
        "warning",
        "patterns took too many steps",
        subscriptions=len(passed_over),
        client=first.session.client_id,
        filter=first.topic_filter,
    )
    for one in passed_over:
        facts = {
            "subscription": one.identifier,
            "filter": one.topic_filter,
            "reason": "a publication was too long for the patterns that are tried on it",
        }
        state.variables.tell(one.session, UNDECIDED, msgspec.json.encode(facts))
