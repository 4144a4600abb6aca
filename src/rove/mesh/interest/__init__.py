"""Summaries of interest: what a broker tells the others about its subscriptions.

Pure decisions: time and input are arguments, what is to be sent is returned. `Summary` is for the
sender, `EntryTable` for the receiver.
"""

from __future__ import annotations

from rove.mesh.interest.entries import Changes, Entry, EntryTable, ForwardCounts, SummaryError
from rove.mesh.interest.outbox import Pace
from rove.mesh.interest.summary import Covering, Summary
from rove.mesh.interest.time_error import with_time_error

__all__ = [
    "Changes",
    "Covering",
    "Entry",
    "EntryTable",
    "ForwardCounts",
    "Pace",
    "Summary",
    "SummaryError",
    "with_time_error",
]
