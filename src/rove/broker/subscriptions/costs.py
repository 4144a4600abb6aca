"""Whether a session may have one more text: what it would cost, beside the limits.

Every text has a cost that is known before it is accepted (`rove.lang.costs`). Here it is compared
with the limits of one text and, together with all others of the session, with those of a session.
A refusal has the figure, the limit and what would be less. The sums are kept by adding and taking
away, so a check costs the same however many subscriptions there are.
"""

from __future__ import annotations

import msgspec

from rove.broker.limits import DAY_S, Limits
from rove.broker.steps import Steps
from rove.lang.costs import Cost


class Spent(msgspec.Struct):
    """What the texts of one session cost together."""

    matching_steps: int = 0
    moving_steps: int = 0
    windows: int = 0

    def add(self, cost: Cost, steps: Steps, sign: int = 1) -> None:
        """There is one more text; with a sign of -1, one less."""
        steps.saves(self, *self.__struct_fields__)
        self.matching_steps += sign * cost.matching_steps
        self.moving_steps += sign * cost.moving_steps
        self.windows += sign * cost.has_window


def text_fault(cost: Cost, limits: Limits) -> str | None:
    """Why a text alone costs too much, or None."""
    if cost.peak_steps > limits.text_steps_max:
        at_first = " at first" if cost.peak_steps > cost.matching_steps else ""
        return (
            f"the text costs {cost.peak_steps:,} steps a publication{at_first};"
            f" {limits.text_steps_max:,} are allowed"
            " (fewer ORs, computed values or patterns cost less; rove check shows the figure)"
        )
    if cost.window_s is not None and cost.window_s > limits.window_s_max:
        return (
            f"the window lasts {cost.window_s:,.10g} s; {limits.window_s_max:,.10g} s are allowed"
            f" (write WITHIN {limits.window_s_max / DAY_S:.10g} DAYS or less)"
        )
    if (cost.window_publications or 0) > limits.window_publications_max:
        return (
            f"the window holds {cost.window_publications:,} publications;"
            f" {limits.window_publications_max:,} are allowed"
            f" (write WITHIN {limits.window_publications_max} PUBLICATIONS or less)"
        )
    return None


def session_fault(cost: Cost, freed: Cost, spent: Spent, limits: Limits) -> str | None:
    """Why a session cannot have a text beside its others, or None. `freed` is what it replaces."""
    matching = spent.matching_steps - freed.matching_steps + cost.matching_steps
    if matching > limits.session_steps_max and cost.matching_steps > freed.matching_steps:
        return (
            f"with this text ({cost.matching_steps:,} steps) the session would cost"
            f" {matching:,} steps a publication; {limits.session_steps_max:,} are allowed"
            " (end a subscription first, or ask for less)"
        )
    moving = spent.moving_steps - freed.moving_steps + cost.moving_steps
    if moving > limits.session_moving_steps_max and cost.moving_steps > freed.moving_steps:
        return (
            f"with this text a change of me. would cost {moving:,} steps;"
            f" {limits.session_moving_steps_max:,} are allowed"
            " (end a subscription that uses me. first)"
        )
    windows = spent.windows - freed.has_window + cost.has_window
    if windows > limits.windows_per_session_max and cost.has_window and not freed.has_window:
        return (
            f"more than {limits.windows_per_session_max:,} ranked subscriptions of one session"
            " (end one first)"
        )
    return None
