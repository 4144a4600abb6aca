"""Who gets what: exact matching of many subscriptions, over flat arrays.

    Matcher ── adds, removes, replaces, changes of state ──▶ fresh rows ──merged──▶ segments
       └────── publications, a batch at a time ──▶ codes ──▶ kernels ──▶ (publication, id) arrays

Time is an argument, nothing here reads a clock, a file or a socket. Importing this room costs
what Numba costs, about 0.6 s with its cache filled: commands import it when they need it.
"""

from rove.match.matcher import Matcher, Matches, Merge

__all__ = ["Matcher", "Matches", "Merge"]
