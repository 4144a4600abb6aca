"""Finds the subscriptions that a publication matches, with indexes and kernels over flat arrays.

`Matcher` is the entry point. It needs Numba's kernels to be fast; `warm_up` loads them, or compiles
them if they are not in the cache, and can do so in the background.
"""

from rove.match.designs.design import Counters, Evolve, parse_evolve
from rove.match.engine import warm_up
from rove.match.matcher import Matcher, Work
from rove.match.results import Matches, RankedDelivery
from rove.match.saved import SavedError

__all__ = [
    "Counters",
    "Evolve",
    "Matcher",
    "Matches",
    "RankedDelivery",
    "SavedError",
    "Work",
    "parse_evolve",
    "warm_up",
]
